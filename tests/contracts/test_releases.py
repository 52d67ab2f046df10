"""What every release keeps, whichever protection made it: it is saved, loaded, verified and made again alike."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.release import ARTIFACTS
from sfumato.masking import NoiseAddition, Pram, RankSwap, TopBottomCode
from sfumato.synthesizers import LabelledTree

SECRET = "Zaphod-Beeblebrox"
PEOPLE = pl.DataFrame(
    {
        "age": [20 + i % 40 for i in range(240)],
        "sex": ["f", "m"] * 120,
        "cost": [float(i % 17) for i in range(240)],
        "ill": ["no", "yes", "no"] * 80,
    }
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="age", bounds=(0, 100)),
        sf.Column(name="sex", domain=["f", "m"]),
        sf.Column(name="cost", bounds=(0, 20)),
        sf.Column(name="ill", domain=["no", "yes"]),
    ]
)
MASKS = [
    Pram("sex", keep=0.8),
    RankSwap("age", percent=5),
    NoiseAddition("cost", scale=0.1),
    TopBottomCode("age", high=50),
]


_TEMPORARY = tempfile.TemporaryDirectory()
LEDGER = Path(_TEMPORARY.name, "people.ledger")


def _asked(data: Any) -> sf.Release:
    sf.Ledger.grant(data, epsilon=1000, path=LEDGER).close()
    return sf.query(data, "mean of cost where age > 30 by sex", epsilon=2, schema=SCHEMA, ledger=LEDGER)


PROTECTIONS: dict[str, Callable[[Any], Any]] = {
    "anonymize": lambda data: sf.anonymize(data, "k=5,l=2", qi=["age", "sex"], sensitive=["ill"]),
    "microaggregate": lambda data: sf.anonymize(data, "k=5", qi=["age", "sex"], method="microaggregate"),
    "mask": lambda data: sf.mask(data, MASKS),
    "perturb": lambda data: sf.perturb(data, ["sex", "age"], epsilon=2, schema=SCHEMA),
    "train": lambda data: sf.train(
        sf.Table(data, SCHEMA) if isinstance(data, pl.DataFrame) else data, "naive-bayes", target="ill", epsilon=1
    ),
    "query": _asked,
    "synthesize": lambda data: sf.synthesize(
        sf.Table(data, SCHEMA) if isinstance(data, pl.DataFrame) else data,
        target="ill",
        method=LabelledTree(pool=1000),
        rows=50,
    ),
}


@pytest.fixture(scope="module")
def made() -> dict[str, sf.Release]:
    """One release of each protection."""
    found = {name: make(PEOPLE) for name, make in PROTECTIONS.items()}
    return {name: one if isinstance(one, sf.Release) else next(iter(one.values())) for name, one in found.items()}


@pytest.fixture(scope="module")
def folders(made: dict[str, sf.Release], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Their folders."""
    root = tmp_path_factory.mktemp("releases")
    for name, release in made.items():
        sf.save(release, root / name)
    return {name: root / name for name in made}


every = pytest.mark.parametrize("name", PROTECTIONS)


@every
def test_it_is_a_release_of_a_known_kind(name: str, made: dict[str, sf.Release]) -> None:
    release = made[name]
    assert isinstance(release, sf.Release)
    assert release.kind in ARTIFACTS
    assert release.recipe.command in ("anonymize", "mask", "perturb", "train", "query", "synthesize")
    json.dumps(release.to_dict(), allow_nan=False)
    assert "23" not in repr(release)


@every
def test_every_guarantee_holds_for_it(name: str, made: dict[str, sf.Release], folders: dict[str, Path]) -> None:
    for release in (made[name], sf.load(folders[name])):
        assert all(isinstance(one, sf.Guarantee) and one.holds_for(release) for one in release.guarantees)
    assert bool(made[name].guarantees) == (name != "mask")


@every
def test_what_is_loaded_is_what_was_saved(name: str, made: dict[str, sf.Release], folders: dict[str, Path]) -> None:
    release, loaded = made[name], sf.load(folders[name])
    assert loaded.kind == release.kind
    assert loaded.method == release.method
    assert loaded.guarantees == release.guarantees
    assert loaded.events == release.events
    assert loaded.recipe == release.recipe
    assert loaded.claims == release.claims
    assert loaded.provenance.rows == release.provenance.rows
    if release.kind == "table":
        assert loaded.table.rows == release.table.rows
    elif release.kind == "statistics":
        assert loaded.rows == release.rows
    elif release.kind == "generator":
        assert loaded.table.frame.equals(release.table.frame)
        assert loaded.sample(20, seed=1).equals(release.sample(20, seed=1))
    else:
        assert (loaded.predict(PEOPLE) == release.predict(PEOPLE)).all()


@every
def test_a_loaded_release_is_saved_again_and_claims_the_same(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    again = tmp_path / "again"
    loaded = sf.load(folders[name])
    sf.save(loaded, again)
    sf.write_report(loaded, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    verdict = sf.verify(again)
    assert verdict.ok, [claim.to_dict() for claim in verdict.failed]
    before, after = (json.loads((folder / "certificate.json").read_text()) for folder in (folders[name], again))
    for one in (before, after):
        del one["made"], one["files"]
    assert after == before
    assert (again / before["data"]).read_bytes() == (folders[name] / before["data"]).read_bytes()


def test_several_loaded_releases_of_any_kind_are_saved_together(folders: dict[str, Path], tmp_path: Path) -> None:
    sf.save({name: sf.load(folder) for name, folder in folders.items()}, tmp_path / "all")
    page = (tmp_path / "all" / "report.html").read_text()
    for name in folders:
        assert sf.verify(tmp_path / "all" / name).ok
        assert name in page
    tables = {name: sf.load(folders[name]) for name in ("anonymize", "microaggregate")}
    sf.save(tables, tmp_path / "tables")
    sf.save({name: sf.load(folders["query"]) for name in ("one", "two")}, tmp_path / "answers")
    models = {name: sf.load(folders["train"]) for name in ("one", "two")}
    sf.save(models, tmp_path / "models")


def test_a_masked_table_with_quasi_identifiers_verifies(tmp_path: Path) -> None:
    masked = sf.mask(sf.Table.of(PEOPLE, qi=["age", "sex"]), MASKS)
    sf.save(masked, tmp_path / "masked")
    assert sf.verify(tmp_path / "masked").ok
    sf.save(sf.load(tmp_path / "masked"), tmp_path / "again")
    assert sf.verify(tmp_path / "again").ok


@pytest.mark.parametrize("kind", ["table", "model"])
def test_a_folder_written_before_the_release_class_still_loads_and_verifies(kind: str, tmp_path: Path) -> None:
    """The folders in tests/data/releases were written by an earlier version of format 1."""
    folder = Path(__file__).parents[1] / "data" / "releases" / kind
    release = sf.load(folder)
    assert release.kind == kind
    assert [str(one) for one in release.guarantees] == {
        "table": ["k=2"],
        "model": ["epsilon=1, delta=1e-05 (add or remove one record)"],
    }[kind]
    assert sf.verify(folder).ok
    sf.save(release, tmp_path / "again")
    assert sf.verify(tmp_path / "again").ok
    assert sf.load(tmp_path / "again").claims == release.claims


@every
def test_it_is_verified_without_asking_who_made_it(name: str, folders: dict[str, Path]) -> None:
    verdict = sf.verify(folders[name])
    assert verdict.ok, [claim.claim for claim in verdict.failed]
    assert {"certificate.json", "recipe.toml", "report.html"} <= {one.name for one in folders[name].iterdir()}


@every
def test_a_changed_file_is_found(
    name: str, folders: dict[str, Path], made: dict[str, sf.Release], tmp_path: Path
) -> None:
    sf.save(made[name], tmp_path / "again")
    main = json.loads((tmp_path / "again" / "certificate.json").read_text())["data"]
    for file in (main, "recipe.toml", "report.html"):
        path = tmp_path / "again" / file
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert not sf.verify(tmp_path / "again").ok, file
        path.write_bytes(before)
    (tmp_path / "again" / "more.txt").write_text("more")
    assert not sf.verify(tmp_path / "again").ok


@every
def test_a_promise_that_is_raised_is_found(name: str, made: dict[str, sf.Release], tmp_path: Path) -> None:
    """Whoever raises k or lowers epsilon in the certificate and the recipe alike still has to show it."""
    if name == "mask":
        return  # it promises nothing
    sf.save(made[name], tmp_path / "forged")
    path = tmp_path / "forged" / "certificate.json"
    plain = json.loads(path.read_text())
    for one in plain["guarantees"]:
        for key, value in {"k": 100, "l": 3, "epsilon": 0.01}.items():
            if key in one:
                one[key] = value
    path.write_text(json.dumps(plain))
    assert not sf.verify(tmp_path / "forged").ok


@every
def test_its_recipe_makes_it_again(name: str, made: dict[str, sf.Release], folders: dict[str, Path]) -> None:
    data = sf.Table(PEOPLE, SCHEMA) if name == "train" else PEOPLE
    again = sf.run(folders[name], data, **({"ledger": LEDGER} if name == "query" else {}))
    release = again if isinstance(again, sf.Release) else next(iter(again.values()))
    assert release.recipe == made[name].recipe
    assert release.guarantees == made[name].guarantees


@every
def test_its_page_is_offline_and_holds_no_record(name: str, tmp_path: Path) -> None:
    marked = PEOPLE.with_columns(note=pl.lit(SECRET)) if name in ("mask",) else PEOPLE
    made = PROTECTIONS[name](marked)
    release = made if isinstance(made, sf.Release) else next(iter(made.values()))
    sf.write_report(release, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "://" not in page.replace("http://www.w3.org", "")
    assert SECRET not in page


def test_a_kind_that_is_not_known_is_refused_with_the_version_that_made_it(
    made: dict[str, sf.Release], tmp_path: Path
) -> None:
    sf.save(made["anonymize"], tmp_path / "release")
    path = tmp_path / "release" / "certificate.json"
    plain = json.loads(path.read_text()) | {"kind": "hologram"}
    path.write_text(json.dumps(plain))
    with pytest.raises(sf.errors.FileError, match=rf"kind 'hologram'.*made by Sfumato {re.escape(sf.__version__)}\)"):
        sf.load(tmp_path / "release")
    assert not sf.verify(tmp_path / "release").ok


def test_a_recipe_of_an_unknown_command_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('command = "fly"\n[fly]\n')
    with pytest.raises(sf.errors.OptionError, match="recipe of 'fly' cannot be run"):
        sf.run(tmp_path / "recipe.toml", PEOPLE)


def test_masked_columns_that_name_people_are_not_saved(tmp_path: Path) -> None:
    named = PEOPLE.with_columns(email=pl.Series([f"person{i}@example.org" for i in range(240)]))
    with pytest.raises(sf.errors.InputError, match="email"):
        sf.save(sf.mask(named, MASKS), tmp_path / "masked")
    with pytest.raises(sf.errors.ColumnError, match="'email' is an identifier"):
        sf.save(sf.mask(sf.Table.of(named, identifiers=["email"]), MASKS), tmp_path / "masked")
    assert not (tmp_path / "masked").exists()

"""A saved generator is verified by what follows from its plan and its domain, and a forged one is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

import sfumato as sf
from sfumato.synthesizers import LabelledTree
from tests.forgery import bind, change_json, change_text, failed

RNG = np.random.default_rng(3)
PEOPLE = pl.DataFrame(
    {
        "age": RNG.integers(20, 90, 300),
        "pay": RNG.integers(0, 5000, 300),
        "sex": RNG.choice(["f", "m"], 300),
        "ill": RNG.choice(["no", "yes"], 300),
    }
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="age", bounds=(0, 99)),
        sf.Column(name="pay", bounds=(0, 9999)),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="ill", domain=("no", "yes"), role="target"),
    ]
)
FACTS, ARRAYS = "generator.json", "generator.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "out"
    release = sf.synthesize(sf.Table(PEOPLE, SCHEMA), 1, method=LabelledTree(pool=1000), rows=25, ledger=False)
    sf.save(release, folder, format="csv")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "forged"))


def in_both(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the certificate's parameters and generator.json alike, as a careful forger does."""

    def forge(folder: Path) -> None:
        change_json(folder, FACTS, change)
        change_json(folder, "certificate.json", lambda plain: change(plain["parameters"]))

    return forge


def arrays(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        found = load_file(folder / ARRAYS)
        change(found)
        save_file({name: np.ascontiguousarray(one) for name, one in found.items()}, folder / ARRAYS)
        bind(folder, ARRAYS)

    return forge


def facts(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: change_json(folder, FACTS, change)


def rows(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        change(pl.read_csv(folder / "table.csv")).write_csv(folder / "table.csv")
        bind(folder, "table.csv")

    return forge


def promise(epsilon: float) -> Callable[[Path], None]:
    """Lower epsilon wherever it is stated, but not the noise."""

    def forge(folder: Path) -> None:
        in_both(lambda plain: plain.update(epsilon=epsilon))(folder)
        change_json(folder, "certificate.json", lambda plain: plain["guarantees"][0].update(epsilon=epsilon))
        change_json(folder, "certificate.json", lambda plain: plain["claims"].update(epsilon=epsilon * 0.999))
        change_text(folder, "recipe.toml", "epsilon = 1.0", f"epsilon = {epsilon}")

    return forge


def column(at: int, **values: Any) -> Callable[[Path], None]:
    return facts(lambda plain: plain["domain"]["columns"][at].update(values))


READ = "the generator can be read, and its state is valid"
ALONE = "generator.json and generator.safetensors hold the generator alone"
EVENTS = "its events follow from its method, columns and noise"
STATE = "the noise that its state implies is the noise that was paid for"
SAME = "the certificate says the same as generator.json"
COLUMNS = "its columns are as declared, or were bought"
RECIPE = "the recipe says the same"
ROWS = "every drawn row lies in the domain of its columns"
FORGERIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a smaller epsilon everywhere": (promise(0.5), "epsilon=0.5, delta=1e-05 (add or remove one record)"),
    "less noise in the state": (facts(lambda one: one["settings"].update(pair_deviation=0.001)), STATE),
    "less noise in the plan": (facts(lambda one: one.update(noise=0.5)), EVENTS),
    "less noise in plan and certificate": (in_both(lambda one: one.update(noise=0.5)), EVENTS),
    "more noise than there was": (in_both(lambda one: one.update(noise=50.0)), STATE),
    "another event": (facts(lambda one: one["plan"][0]["event"].update(scale=99.0)), ALONE),
    "a purchase less": (facts(lambda one: one["plan"].pop()), ALONE),
    "another share": (facts(lambda one: one["plan"][0].update(share=0.9)), ALONE),
    "an event less in the certificate": (
        lambda at: change_json(at, "certificate.json", lambda one: one["parameters"]["events"].pop()),
        EVENTS,
    ),
    "another method": (facts(lambda one: one.update(method="independent")), READ),
    "a method of nobody": (facts(lambda one: one.update(method="os.system")), READ),
    "a parameter of nobody": (facts(lambda one: one["parameters"].update(code="print()")), READ),
    "another parameter": (facts(lambda one: one["parameters"].update(pool=999)), SAME),
    "a note beside": (facts(lambda one: one.update(note="Ada Lovelace")), READ),
    "hours of work": (facts(lambda one: one["settings"].update(sweeps=1000)), READ),
    "a setting beside": (facts(lambda one: one["settings"].update(note="Ada Lovelace")), ALONE),
    "a key in the domain": (column(0, note="Ada Lovelace"), ALONE),
    "another format": (facts(lambda one: one.update(format=99)), READ),
    "private that is a text": (in_both(lambda one: one.update(private="yes")), READ),
    "noise that came from a seed": (in_both(lambda one: one.update(private=False)), "one epsilon is guaranteed"),
    "a column that was not bought": (facts(lambda one: one.update(bought={"age": ["bounds"]})), EVENTS),
    "a column of nobody was bought": (facts(lambda one: one.update(bought={"zip": ["bounds"]})), READ),
    "wider bounds": (column(0, bounds=[0.0, 98.0]), READ),
    "another domain": (column(2, domain=["f", "x"]), COLUMNS),
    "another name": (column(2, name="gender"), COLUMNS),
    "two columns of one name": (column(1, name="age"), READ),
    "a tiny step": (column(1, step=1e-9), READ),
    "a step that is not a number": (column(1, step="many"), READ),
    "another target": (facts(lambda one: one["domain"].update(label=2)), SAME),
    "a target that is a number": (facts(lambda one: one["domain"].update(label=0)), READ),
    "a target that does not exist": (facts(lambda one: one["domain"].update(label=99)), READ),
    "an array less": (arrays(lambda one: one.pop("tables")), READ),
    "an array more": (arrays(lambda one: one.update(people=np.arange(5.0))), ALONE),
    "a longer array": (arrays(lambda one: one.update(tables=np.vstack([one["tables"]] * 2))), READ),
    "a number that is none": (arrays(lambda one: one["tables"].fill(np.nan)), READ),
    "a count below zero": (arrays(lambda one: one["tables"].fill(-1.0)), READ),
    "a value outside the domain": (rows(lambda one: one.with_columns(sex=pl.lit("x"))), ROWS),
    "a number beyond the bounds": (rows(lambda one: one.with_columns(age=pl.lit(100))), ROWS),
    "a number between the steps": (rows(lambda one: one.with_columns(age=pl.lit(30.5))), ROWS),
    "a column more": (rows(lambda one: one.with_columns(name=pl.lit("Ada"))), ROWS),
    "columns in another order": (rows(lambda one: one.select("sex", "age", "pay", "ill")), ROWS),
    "a row more": (rows(lambda one: pl.concat([one, one.head(1)])), "rows is 25"),
    "another seed in the recipe": (lambda at: change_text(at, "recipe.toml", "rows = 25", "rows = 26"), RECIPE),
    "the recipe of a seed": (
        lambda at: change_text(at, "recipe.toml", "rows = 25", "rows = 25\ninsecure_seed = 1"),
        RECIPE,
    ),
    "the number of records": (
        lambda at: change_json(at, "certificate.json", lambda one: one["source"].update(rows=300)),
        "source.rows is 300",
    ),
    "exact figures": (lambda at: change_json(at, "certificate.json", lambda one: one["loss"].update(auc=0.9)), SAME),
    "a second promise": (
        lambda at: change_json(
            at, "certificate.json", lambda one: one["guarantees"].append({**one["guarantees"][0], "epsilon": 0.1})
        ),
        "one epsilon is guaranteed",
    ),
}


def test_an_honest_generator_verifies(made: Path) -> None:
    assert failed(made) == []


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(name: str, folder: Path) -> None:
    forge, claim = FORGERIES[name]
    forge(folder)
    assert claim in failed(folder)


@pytest.mark.parametrize("file", [FACTS, ARRAYS, "table.csv"])
def test_a_damaged_or_missing_file_is_one_error(file: str, folder: Path) -> None:
    for content in (b"", b"{", b"\x00" * 100, json.dumps([1, 2]).encode()):
        (folder / file).write_bytes(content)
        bind(folder, file)
        assert failed(folder) != []
        if file != "table.csv":
            with pytest.raises(sf.errors.FileError):
                sf.load(folder)
    (folder / file).unlink()
    assert failed(folder) != []
    with pytest.raises(sf.errors.FileError):
        sf.load(folder)


def test_a_file_that_is_too_large_is_not_read(folder: Path) -> None:
    with (folder / FACTS).open("r+b") as file:
        file.truncate(2**25)
    with (folder / ARRAYS).open("r+b") as file:
        file.truncate(2**32)  # sparse: it takes no space
    with pytest.raises(sf.errors.FileError, match="at most"):
        sf.load(folder)


def test_another_table_of_the_domain_is_another_release_and_holds(folder: Path) -> None:
    """Rows are drawn for free, so which of them are in the table is not a claim."""
    drawn = sf.load(folder).sample(25, seed=1)
    drawn.write_csv(folder / "table.csv")
    bind(folder, "table.csv")
    assert failed(folder) == []

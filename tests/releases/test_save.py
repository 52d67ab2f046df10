"""A saved release is whole, says how it was made, and is refused where its file would mean something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import sfumato as sf
from sfumato.data import Certificate, Recipe
from tests.conftest import Ran

ROWS = pl.DataFrame(
    {
        "name": [f"person {number}" for number in range(40)],
        "age": [20 + number % 20 for number in range(40)],
        "sex": ["f", "m"] * 20,
        "disease": ["flu", "ulcer", "flu", "cancer"] * 10,
    }
)
ROLES = {"qi": ["age", "sex"], "sensitive": ["disease"], "identifiers": ["name"]}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))


FRAMES = {"polars": ROWS, "pandas": ROWS.to_pandas(), "pyarrow": ROWS.to_arrow(), "lazy": ROWS.lazy()}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_release_of_any_frame_is_saved_and_verified(frame: object, format: str, tmp_path: Path) -> None:
    release = sf.anonymize(frame, "k=4,l=2", **ROLES)
    sf.save(release, tmp_path / "release", format=format)
    names = ["certificate.json", "recipe.toml", "report.html", f"table.{format}"]
    assert sorted(path.name for path in (tmp_path / "release").iterdir()) == names
    verdict = sf.verify(tmp_path / "release")
    assert verdict.ok, verdict
    released = sf.read(tmp_path / "release" / f"table.{format}").frame
    assert released.columns == ["age", "sex", "disease"]
    assert released["age"].to_list() == pl.Series(release.table.column("age")).cast(pl.String).to_list()


def test_the_certificate_says_how_it_was_made_and_holds_no_record(tmp_path: Path) -> None:
    ROWS.write_csv(tmp_path / "patients.csv")
    release = sf.anonymize(tmp_path / "patients.csv", [sf.KAnonymity(4), sf.TCloseness(0.9)], **ROLES)
    sf.save(release, tmp_path / "release")
    plain = json.loads((tmp_path / "release" / "certificate.json").read_text())
    assert plain["source"]["name"] == "patients.csv"
    assert plain["source"]["fingerprint"].startswith("hmac-sha256:")
    sf.save(release, tmp_path / "again")
    again = json.loads((tmp_path / "again" / "certificate.json").read_text())["source"]["fingerprint"]
    assert again != plain["source"]["fingerprint"]  # or two releases would show whether a row has changed
    assert plain["claims"]["k"] == release.assessment.k
    assert plain["guarantees"][1] == {"guarantee": "TCloseness", "t": 0.9, "distance": "auto"}
    for file in ("certificate.json", "recipe.toml", "report.html"):
        assert "person 7" not in (tmp_path / "release" / file).read_text()
    assert Certificate.read(tmp_path / "release").to_dict() == plain


def test_the_recipe_makes_the_same_release_again(tmp_path: Path) -> None:
    release = sf.anonymize(ROWS, "k=4", method=sf.Mondrian(output="median"), **ROLES)
    sf.save(release, tmp_path / "release")
    recipe = Recipe.load(tmp_path / "release" / "recipe.toml")
    method = sf.Mondrian(**recipe.options["parameters"])
    guarantees = [sf.Guarantee.from_dict(one) for one in recipe.options["guarantees"]]
    again = sf.anonymize(ROWS, guarantees, method=method, schema=recipe.schema)
    assert again.aligned.frame.equals(release.aligned.frame)


def test_every_guarantee_can_be_saved_and_done_again(tmp_path: Path) -> None:
    asked = [
        sf.measures.AlphaK(0.9),
        sf.measures.RecursiveCL(9.0),
        sf.LDiversity(2),
        sf.measures.EntropyL(1.2),
        sf.TCloseness(0.9),
    ]
    asked += [
        sf.measures.BetaLikeness(9.0),
        sf.measures.EnhancedBeta(),
        sf.measures.DeltaDisclosure(9.0),
        sf.KAnonymity(4),
    ]
    release = sf.anonymize(ROWS, asked, **ROLES)
    sf.save(release, tmp_path / "release")
    assert sf.verify(tmp_path / "release")
    plain = Recipe.load(tmp_path / "release" / "recipe.toml").options["guarantees"]
    assert [sf.Guarantee.from_dict(one) for one in plain] == asked


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("first", [date(2020, 1, 1), datetime(2020, 1, 1, 12, 30)])
def test_an_order_of_dates_is_read_back_as_one_of_dates(first: date, format: str, tmp_path: Path) -> None:
    days = [first + timedelta(days=day) for day in range(4)]
    frame = pl.DataFrame({"sex": ["f", "m"] * 20, "day": days * 10})
    schema = sf.Schema(
        [
            sf.Column(name="sex", role="quasi"),
            sf.Column(name="day", role="sensitive", kind="ordinal", domain=days[::-1]),
        ]
    )
    sf.save(sf.anonymize(frame, "k=4,t=0.5", schema=schema), tmp_path / "release", format=format)
    assert sf.verify(tmp_path / "release")


ORDERED = {
    "polars": ROWS.with_columns(pl.col("name").cast(pl.Enum(ROWS["name"])), pl.col("sex").cast(pl.Enum(["f", "m"]))),
    "pandas": ROWS.to_pandas().assign(name=pd.Categorical(ROWS["name"], ordered=True)),
}


@pytest.mark.parametrize("frame", ORDERED.values(), ids=ORDERED.keys())
def test_values_that_a_type_lists_are_in_no_recipe(frame: object, tmp_path: Path) -> None:
    release = sf.anonymize(frame, "k=4", **ROLES)
    sf.save(release, tmp_path / "release")
    for file in (tmp_path / "release").iterdir():
        assert b"person 7" not in file.read_bytes()
    schema = Recipe.load(tmp_path / "release" / "recipe.toml").schema
    assert schema == sf.Schema(sf.Column(name=one.name, role=one.role, kind=one.kind) for one in schema.columns)
    again = sf.anonymize(frame, "k=4", schema=schema)
    assert again.aligned.to_polars().equals(release.aligned.to_polars())


def test_the_report_shows_the_accuracy_of_a_model_where_there_is_a_target(tmp_path: Path) -> None:
    schema = sf.Schema([sf.Column(name="age", role="quasi"), sf.Column(name="disease", role="target")])
    release = sf.anonymize(sf.Table(ROWS.select("age", "disease"), schema), "k=4")
    sf.save(release, tmp_path / "release", models=["tree"])
    sf.save(release, tmp_path / "without", models=[])
    texts = [(tmp_path / folder / "report.html").read_text() for folder in ("release", "without")]
    assert ["What it cost: models" in text for text in texts] == [True, False]


def test_columns_of_many_categories_are_left_out_of_the_model_and_the_release_says_so(
    tmp_path: Path, sfumato: Callable[..., Ran]
) -> None:
    rows = 2500
    frame = pl.DataFrame(
        {
            "age": [20 + at % 40 for at in range(rows)],
            "town": [f"town {at // 2 * 2 if at % 5 else at}" for at in range(rows)],
            "buys": [("no", "yes")[at // 7 % 2] for at in range(rows)],
        }
    )
    release = sf.anonymize(sf.Table.of(frame, qi=["age"], target="buys", keep=["town"]), "k=10")
    sf.save(release, tmp_path / "release", models=["tree"])
    page = (tmp_path / "release" / "report.html").read_text()
    said = "1 of 2 columns could not be used, because of too many categories: town"
    assert said in page
    assert "What it cost: models" in page
    frame.write_csv("many.csv")
    roles = ("--qi", "age", "--target", "buys", "--keep", "town", "--k", "10", "--model", "tree")
    ran = sfumato("anonymize", "many.csv", *roles, "--json", "-o", "out")
    assert ran.json["notes"] == [said]
    assert said in ran.err
    nothing = sf.anonymize(sf.Table.of(frame, qi=["age"], target="town"), "k=10")
    sf.save(nothing, tmp_path / "nothing", models=["tree"])
    page = (tmp_path / "nothing" / "report.html").read_text()
    assert "no model was trained: the target" in page


def test_a_text_file_that_no_longer_keeps_the_promise_is_refused(tmp_path: Path) -> None:
    """Read back from CSV, an empty text is missing: two classes become one, in which delta is larger."""
    rows = [("", "flu")] * 6 + [(None, "ulcer")] * 60 + [("Bonn", "flu")] * 75 + [("Bonn", "ulcer")] * 25
    frame = pd.DataFrame(rows, columns=["city", "disease"])
    release = sf.anonymize(
        frame, [sf.KAnonymity(5), sf.measures.DeltaDisclosure(1.2)], qi=["city"], sensitive=["disease"]
    )
    assert release.assessment.classes == 3
    sf.save(release, tmp_path / "parquet", format="parquet")
    assert sf.verify(tmp_path / "parquet")
    with pytest.raises(sf.errors.InputError, match="read back from csv, the release does not keep delta_disclosure"):
        sf.save(release, tmp_path / "csv", format="csv")
    assert not (tmp_path / "csv").exists()


def test_the_claims_of_a_text_file_are_measured_on_the_file(tmp_path: Path) -> None:
    """Two classes that read alike in CSV are one there."""
    frame = pd.DataFrame({"city": ["", None] * 6, "disease": ["flu", "ulcer"] * 6})
    release = sf.anonymize(
        frame, [sf.KAnonymity(6), sf.measures.DeltaDisclosure(1.0)], qi=["city"], sensitive=["disease"]
    )
    sf.save(release, tmp_path / "parquet", format="parquet")
    assert sf.verify(tmp_path / "parquet")
    sf.save(release, tmp_path / "csv", format="csv")
    assert sf.verify(tmp_path / "csv")  # the claims are those of the file


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_table_that_is_in_its_folder_is_neither_written_nor_measured_again(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{format}"
    release = sf.anonymize(ROWS, "k=4", **ROLES, to=path)
    before = path.stat()
    name, artifact = release.artifact.write_into(tmp_path, release.guarantees, format=format)
    assert name == path.name
    assert artifact is release.artifact
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_wrong_options_are_one_sentence_and_leave_nothing(tmp_path: Path) -> None:
    release = sf.anonymize(ROWS, "k=4", **ROLES)
    with pytest.raises(sf.errors.OptionError, match="format"):
        sf.save(release, tmp_path / "release", format="excel")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(sf.errors.FileError, match="exists already"):
        sf.save(release, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]

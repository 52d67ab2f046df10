"""Every column of a table that is released is accounted for, or refused with its reason."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data import Recipe
from sfumato.data.column_audit import Values, accounted, doubts, reproduces
from tests.hospital import LANGUAGES, extract

ROWS = 600


def people(seed: int = 0) -> dict[str, list[Any]]:
    """Return columns of made-up people; none but the ages, the days and the towns has to do with another."""
    chance = Random(seed)
    born = [date(1930, 1, 1) + timedelta(chance.randrange(28_000)) for _ in range(ROWS)]
    return {
        "born": born,
        "age": [2024 - day.year for day in born],
        "town": [chance.choice(["Bonn", "Köln", "Ulm", "Trier", "Kiel"]) for _ in range(ROWS)],
        "sex": [chance.choice("fm") for _ in range(ROWS)],
        "icd10": [chance.choice(["E11.9", "I10", "J45.0", "K21.9", "C50.9"]) for _ in range(ROWS)],
        "ward": [chance.choice("ABCD") for _ in range(ROWS)],
        "glucose": [round(chance.gauss(6, 1), 2) for _ in range(ROWS)],
    }


def table(columns: dict[str, list[Any]], **roles: Any) -> sf.Table:
    return sf.Table.of(pl.DataFrame(columns), **({"qi": ["age", "town"], "sensitive": ["icd10"]} | roles))


def added(name: str, values: list[Any], **roles: Any) -> dict[str, str]:
    """Return the doubts about one more column."""
    columns = people()
    kept = {one: columns[one] for one in (*roles.get("qi", ("age", "town")), "icd10", "ward", "glucose")}
    return doubts(table(kept | {name: values}, **roles))


# What reproduces a column, measured


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda c: c["town"], "it repeats 'town'"),
        (lambda c: [town.upper() + " " for town in c["town"]], "it repeats 'town'"),
        (
            lambda c: [{"Bonn": 1, "Köln": 2, "Ulm": 3, "Trier": 4, "Kiel": 5}[town] for town in c["town"]],
            "in other words",
        ),
        (lambda c: [age // 10 for age in c["age"]], "it follows from 'age'"),
        (lambda c: ["old" if age > 60 else "young" for age in c["age"]], "it follows from 'age'"),
        (lambda c: [12 * age + 3 for age in c["age"]], "in other words"),
        (lambda c: [day.toordinal() for day in c["born"]], "rises or falls with 'age' throughout"),
        (lambda c: [f"{town}-{at % 9}" for at, town in enumerate(c["town"])], "'town' follows from it"),
        (lambda c: [code[0] for code in c["icd10"]], "'icd10'"),
        (lambda c: [*c["town"][:-6], *["?"] * 6], "'town'"),
    ],
)
def test_a_copy_a_unit_a_coarser_and_a_finer_version_are_recognised_by_measuring(make: Any, reason: str) -> None:
    found = added("v17", make(people()))
    assert list(found) == ["v17"]
    assert reason in found["v17"]


def test_a_band_of_dates_that_nearly_all_differ_is_recognised() -> None:
    columns = people()
    band = [day.year // 20 for day in columns["born"]]
    assert added("v17", band, qi=["born", "town"])["v17"] == "it follows from 'born'"
    written = [day.strftime("%d.%m.%Y") for day in columns["born"]]
    assert added("v17", written, qi=["born", "town"])["v17"] == "it repeats 'born'"


def test_what_differs_in_nearly_every_row_determines_nothing_by_itself() -> None:
    chance = Random(1)
    columns = people()
    assert len(set(columns["born"])) > 0.95 * ROWS
    for values in ([chance.choice("ab") for _ in range(ROWS)], [0] * ROWS, [0] * (ROWS - 3) + [1, 1, 1]):
        assert added("v17", values, qi=["born", "town"]) == {}


def test_columns_that_mostly_hold_the_same_value_do_not_repeat_each_other() -> None:
    one = ["none"] * (ROWS - 12) + list("abcdefabcdef")
    other = ["none"] * (ROWS - 24) + list("uvwxyzuvwxyz") + ["none"] * 12
    assert reproduces(Values(pl.Series(one)), Values(pl.Series(other)), "x") == ""


def test_a_strong_but_imperfect_relation_is_not_a_reproduction() -> None:
    chance = Random(2)
    columns = people()
    assert added("v17", [age + chance.gauss(0, 8) for age in columns["age"]]) == {}
    assert added("v17", [town if chance.random() < 0.8 else "Ulm" for town in columns["town"]]) == {}


@given(seed=st.integers(0, 10**6), kinds=st.tuples(*[st.sampled_from([2, 3, 7, 40, 500])] * 2))
@settings(max_examples=60, deadline=None)
def test_unrelated_columns_never_reproduce_each_other(seed: int, kinds: tuple[int, int]) -> None:
    """Once in more than 10^8 pairs at worst: forty rows that would differ by chance would all have to agree."""
    chance = Random(seed)
    one, other = (pl.Series([chance.randrange(kind) for _ in range(ROWS)]) for kind in kinds)
    assert reproduces(Values(one), Values(other.cast(pl.String) + "x"), "x") == ""


# What is refused, and the two ways out


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_columns_that_identify_are_named_at_once_with_the_ways_out(language: str) -> None:
    made = extract(language)
    frame = pl.DataFrame(made.rows, schema=list(made.header), orient="row")
    name = made.column
    qi, sensitive = [name("birth_date"), name("sex"), name("zip")], [name("icd10")]
    open_ = [name(one) for one in ("patient_id", "name", "email", "phone", "admitted", "note")]
    with pytest.raises(sf.errors.ColumnError) as refused:
        sf.anonymize(frame, "k=5", qi=qi, sensitive=sensitive)
    assert all(f"'{one}' (" in refused.value.message for one in open_)
    assert refused.value.message.startswith("6 columns without a role")
    assert f"--identifiers {','.join(open_)}" in refused.value.hint
    assert f"--keep {','.join(open_)}" in refused.value.hint
    assert not any(secret in str(refused.value) for secret in made.planted)
    with pytest.raises(sf.errors.ColumnError, match="without a role"):
        sf.assess(frame, qi=qi, sensitive=sensitive)
    release = sf.anonymize(frame, "k=5", qi=qi, sensitive=sensitive, identifiers=open_)
    assert not set(open_) & set(release.table.schema.names)


def test_what_has_a_role_is_accounted_for() -> None:
    columns = people() | {"contact": [f"p{i}@example.org" for i in range(ROWS)]}
    del columns["born"]
    assert list(doubts(table(columns))) == ["contact"]
    for roles in ({"identifiers": ["contact"]}, {"target": "contact"}, {"qi": ["age", "town", "contact"]}):
        assert accounted(table(columns, **roles)).schema["contact"].reason == ""
    kept = accounted(table(columns, keep=["contact"]))
    assert kept.schema["contact"].role is sf.Role.KEPT
    assert kept.schema["contact"].reason == "its values look like e-mail addresses"


def test_a_column_may_be_kept_by_a_schema_and_then_has_another_role() -> None:
    schema = sf.Schema.from_toml('[columns.contact]\nrole = "kept"')
    assert schema.kept == ("contact",)
    assert schema.with_roles(identifiers=["contact"]).kept == ()
    assert sf.Schema.from_toml(schema.to_toml()) == schema
    with pytest.raises(sf.errors.SchemaError, match="both identifier and kept"):
        schema.with_roles(identifiers=["contact"], keep=["contact"])


def test_names_that_look_like_records_are_not_quoted() -> None:
    columns = people() | {"02139": [f"p{i}@example.org" for i in range(ROWS)]}
    with pytest.raises(sf.errors.ColumnError) as refused:
        accounted(table(columns, identifiers=["born"]))
    assert "02139" not in str(refused.value)
    assert "column 8 (its values look like e-mail addresses)" in refused.value.message


def test_what_is_kept_stands_in_the_certificate_the_recipe_the_page_and_the_assessment(tmp_path: Path) -> None:
    columns = people() | {"contact": [f"p{i}@example.org" for i in range(ROWS)]}
    roles: dict[str, Any] = {"qi": ["age", "town"], "sensitive": ["icd10"], "identifiers": ["born"]}
    frame = pl.DataFrame(columns)
    release = sf.anonymize(frame, "k=3", keep=["contact"], **roles)
    reason = "its values look like e-mail addresses"
    assert release.to_dict()["kept"] == {"contact": reason}
    assessment = sf.assess(frame, keep=["contact"], **roles)
    assert assessment.to_dict()["kept"] == {"contact": reason}
    sf.write_report(assessment, tmp_path / "page.html")
    sf.save(release, tmp_path / "release")
    said = f"the column &#39;contact&#39; is kept unchanged on purpose: {reason}"
    for page in (tmp_path / "page.html", tmp_path / "release" / "report.html"):
        text = page.read_text()
        assert f'<section class="warning">\n<p>{said}</p>' in text
        assert text.index(said) < text.index('class="verdict')
    verdict = sf.verify(tmp_path / "release")
    assert verdict.ok
    assert verdict.to_dict()["kept"] == {"contact": reason}
    assert Recipe.load(tmp_path / "release" / "recipe.toml").schema.kept == ("contact",)


def test_a_release_in_which_a_column_names_people_and_is_not_kept_fails(tmp_path: Path) -> None:
    columns = people() | {"contact": [f"p{i}@example.org" for i in range(ROWS)]}
    frame = pl.DataFrame(columns)
    release = sf.anonymize(frame, "k=3", keep=["contact"], qi=["age", "town"], identifiers=["born"])
    sf.save(release, tmp_path / "release")
    for file in ("certificate.json", "recipe.toml"):
        path = tmp_path / "release" / file
        path.write_text(path.read_text().replace('"kept"', '"other"'))
    failed = [claim.claim for claim in sf.verify(tmp_path / "release").failed]
    assert failed == ["recipe.toml is the file that was released", "what names people is kept on purpose"]


# Where the rows are


def test_at_most_ten_thousand_rows_are_looked_at_wherever_they_are(tmp_path: Path) -> None:
    rows = 25_000
    frame = pl.DataFrame({"age": [i % 70 for i in range(rows)], "contact": [f"p{i}@example.org" for i in range(rows)]})
    frame.write_parquet(tmp_path / "people.parquet", row_group_size=4_000)
    frame.write_csv(tmp_path / "people.csv")
    for data in (frame, frame.lazy(), tmp_path / "people.parquet", tmp_path / "people.csv", frame.to_pandas()):
        one = sf.Table.of(data, qi=["age"])
        assert one.sample(10_000, ["age"]).rows == 10_000
        assert one.sample(10_000, ["age"]).to_polars().equals(one.sample(10_000, ["age"]).to_polars())
        assert doubts(one) == {"contact": "its values look like e-mail addresses"}
    spread = sf.read(tmp_path / "people.parquet").sample(10, ["contact"]).to_polars()["contact"]
    assert spread.to_list()[0] == "p0@example.org"
    assert spread.to_list()[-1] == f"p{rows - 1}@example.org"


def test_a_large_text_file_a_database_and_unreadable_columns_are_sampled_too(tmp_path: Path) -> None:
    import sqlite3

    from sfumato.data.io.source import File

    rows = 300
    frame = pl.DataFrame({"age": [i % 70 for i in range(rows)], "contact": [f"p{i}@example.org" for i in range(rows)]})
    frame.write_csv(tmp_path / "people.csv")
    assert doubts(sf.Table.of(sf.Table(File(tmp_path / "people.csv")), qi=["age"])).keys() == {"contact"}
    clinic = sqlite3.connect(tmp_path / "clinic.db")
    clinic.execute("CREATE TABLE people (age INTEGER, contact TEXT)")
    clinic.executemany("INSERT INTO people VALUES (?, ?)", frame.rows())
    clinic.commit()
    clinic.close()
    stored = sf.read(f"sqlite:///{tmp_path}/clinic.db", table="people")
    assert doubts(sf.Table.of(stored, qi=["age"])).keys() == {"contact"}
    assert stored.sample(7, ["age"]).rows == 7
    mixed = sf.Table.of(pl.DataFrame({"age": [1, 2], "odd": [[1], [2]]}), qi=["age"])
    assert doubts(mixed) == {"odd": "its values are lists or records"}


# What differs in nearly every row


MINUTES = [datetime(2023, 1, 1) + timedelta(minutes=37 * at) for at in range(ROWS)]


@pytest.mark.parametrize(
    "values",
    [
        MINUTES,
        [*MINUTES[:-40], *[MINUTES[0]] * 40],
        [f"{minute:%Y-%m-%d %H:%M}" for minute in MINUTES],
        [f"unit {at}" if at % 20 else "none" for at in range(ROWS)],
    ],
    ids=["time stamps", "time stamps of which some repeat", "time stamps as texts", "texts"],
)
def test_dates_and_texts_that_nearly_all_differ_are_refused(values: list[Any]) -> None:
    assert added("seen", values) == {"seen": "nearly every row has its own value"}


@pytest.mark.parametrize(
    "values",
    [
        [at + 0.37 for at in range(ROWS)],
        [f"{at},37" if at % 10 else str(at) for at in range(ROWS)],
        [10_000 + (at * 7919) % 590 for at in range(ROWS)],
        [date(2023, 1, 1) + timedelta(at % 300) for at in range(ROWS)],
        [None if at > 10 else MINUTES[at] for at in range(ROWS)],
    ],
    ids=[
        "a lab value",
        "a lab value as text",
        "an amount",
        "shared days",
        "a few dates",
    ],
)
def test_measurements_and_days_that_people_share_are_released(values: list[Any]) -> None:
    assert added("seen", values) == {}

"""Anonymity of people who have several rows: in every method, in the release, and in what a verifier can tell."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.anonymizers.anonymize import METHODS, as_method, with_tokens
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce
from sfumato.engines.tuples import Tuples
from sfumato.releases.verify import Claim

ROLES: dict[str, Any] = {"qi": ["age", "place", "month"], "sensitive": ["disease"], "person": "patient_id"}
OPTIONS: dict[str, dict[str, Any]] = {
    "lattice": {"suppress": 0.4},
    "suppress": {"suppress": 0.4},
    "guided": {"labels": "disease"},
}


def visits(rows: int = 900, people: int = 250, seed: int = 4) -> pl.DataFrame:
    source = np.random.default_rng(seed)
    who = source.integers(0, people, rows)
    return pl.DataFrame(
        {
            "patient_id": [None if one < 5 else f"p{one}" for one in who],
            "age": source.integers(18, 60, people)[who],
            "place": [f"z{one}" for one in source.integers(0, 5, people)[who]],
            "month": source.integers(1, 7, rows),
            "disease": [f"d{one}" for one in source.integers(0, 6, rows)],
        }
    )


def method_of(name: str) -> Any:
    return as_method(name).set_params(**OPTIONS.get(name, {}))


def people_of_classes(table: pl.DataFrame, person: pl.Series) -> list[int]:
    """The people of each class, by the plain definition; a row without a person is one of its own."""
    own = pl.Series([f"row {at}" if one is None else str(one) for at, one in enumerate(person)])
    rows = table.select("age", "place", "month").with_columns(person=own)
    classes = rows.filter(~pl.all_horizontal((pl.col("age", "place", "month") == "*").fill_null(False)))
    return classes.group_by("age", "place", "month").agg(pl.col("person").n_unique())["person"].to_list()


@pytest.fixture(autouse=True)
def _labels_may_be_sensitive() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the guiding label")
        yield


@pytest.mark.parametrize("name", METHODS)
def test_every_class_has_k_people_with_every_method(name: str) -> None:
    frame = visits()
    method = method_of(name)
    method.set_params(guarantees="k=5,l=2", qi=ROLES["qi"], sensitive=ROLES["sensitive"])
    table = sf.Table.of(frame, **ROLES)
    recoded = pl.DataFrame(method.fit_transform(table).frame).cast(dict.fromkeys(ROLES["qi"], pl.String))
    assert min(people_of_classes(recoded, recoded["patient_id"])) >= 5
    release = sf.anonymize(frame, "k=5,l=2", method=method_of(name), **ROLES)
    assert release.unit == "person"
    assert release.assessment.unit == "person"
    assert release.assessment.k >= 5
    assert release.assessment.satisfied
    assert release.table.schema.names == ("age", "place", "month", "disease")
    roles: dict[str, Any] = {"qi": ROLES["qi"], "sensitive": ["disease"]}
    by_rows = sf.anonymize(frame.drop("patient_id"), "k=5,l=2", method=method_of(name), **roles)
    assert by_rows.assessment.classes >= release.assessment.classes / 1.5  # people are harder to hide than rows


@pytest.mark.parametrize("name", METHODS)
def test_with_one_row_for_each_person_the_release_is_that_of_rows(name: str) -> None:
    frame = visits().with_columns(patient_id=pl.int_range(pl.len()))
    asked = "k=5,l=2,t=0.7" if name != "guided" else "k=5"
    of_people = sf.anonymize(frame, asked, method=method_of(name), keep_order=True, **ROLES)
    roles = {**ROLES, "identifiers": ["patient_id"]}
    del roles["person"]
    of_rows = sf.anonymize(frame, asked, method=method_of(name), keep_order=True, **roles)
    assert of_people.table.frame.equals(of_rows.table.frame)
    assert of_people.claims == of_rows.claims
    assert of_people.loss.to_dict() == of_rows.loss.to_dict()
    assert of_people.assessment.numbers() == of_rows.assessment.numbers()
    assert of_people.details == of_rows.details


def test_shares_of_people_hold_too() -> None:
    frame = visits(1500, 200)
    release = sf.anonymize(frame, "k=4,t=0.35,alpha=0.6", **ROLES)
    assert release.assessment.satisfied
    assert release.assessment.t <= 0.35


def test_a_release_says_people_and_a_verifier_what_it_cannot_tell(tmp_path: Path) -> None:
    visits().write_csv(tmp_path / "visits.csv")
    release = sf.anonymize(tmp_path / "visits.csv", "k=5,l=2", **ROLES)
    sf.save(release, tmp_path / "release")
    certificate = json.loads((tmp_path / "release" / "certificate.json").read_text())
    assert certificate["unit"] == "person"
    assert "patient_id" not in (tmp_path / "release" / "table.csv").read_text()
    found = sf.verify(tmp_path / "release")
    assert found.ok
    assert {"k=5 for people", "l=2 for people"} <= {one.claim for one in found.unchecked}
    again = sf.verify(tmp_path / "release", source=tmp_path / "visits.csv")
    assert again.ok
    held = {one.claim: one.measured for one in again.claims if one.held}
    assert held["k=5 for people"] == held["l=2 for people"] == "made again from 'visits.csv': the same rows"
    assert not any("for people" in one.claim for one in again.unchecked)
    loaded = sf.load(tmp_path / "release")
    assert loaded.unit == "person"
    with pytest.raises(sf.errors.InputError, match="cannot be measured without the person column"):
        loaded.guarantees[0].holds_for(loaded)
    assert all(one.holds_for(release) for one in release.guarantees)


def test_another_original_or_a_stronger_claim_is_refuted(tmp_path: Path) -> None:
    visits().write_csv(tmp_path / "visits.csv")
    visits(seed=5).write_csv(tmp_path / "others.csv")
    sf.save(sf.anonymize(tmp_path / "visits.csv", "k=5", **ROLES), tmp_path / "release")
    refuted = sf.verify(tmp_path / "release", source=tmp_path / "others.csv")
    assert refuted.failed[-1] == Claim("k=5 for people", False, "made again from 'others.csv': other rows")
    for name in ("certificate.json", "recipe.toml"):
        file = tmp_path / "release" / name
        file.write_text(file.read_text().replace('"k": 5', '"k": 500').replace("k = 5", "k = 500"))
    assert "k=500 for people" in {one.claim for one in sf.verify(tmp_path / "release").failed}


def test_a_claim_about_rows_cannot_be_passed_off_as_one_about_people(tmp_path: Path) -> None:
    frame = visits().drop("patient_id")
    sf.save(sf.anonymize(frame, "k=5", qi=ROLES["qi"], sensitive=["disease"]), tmp_path / "release")
    file = tmp_path / "release" / "certificate.json"
    file.write_text(file.read_text().replace('"unit": "row"', '"unit": "person"'))
    failed = sf.verify(tmp_path / "release").failed
    assert any("it protects another unit" in str(one.measured) for one in failed)


def test_tokens_let_anyone_count_people(tmp_path: Path) -> None:
    frame = visits()
    release = sf.anonymize(frame, "k=5,l=2,t=0.5", keep_person_token=True, **ROLES)
    sf.save(release, tmp_path / "release")
    found = sf.verify(tmp_path / "release")
    assert found.ok
    held = {one.claim for one in found.claims if one.held}
    assert {"k=5", "l=2", "t=0.5", "people have tokens, not identifiers"} <= held
    tokens = sf.load(tmp_path / "release").table.column("patient_id")
    assert tokens.n_unique() == frame["patient_id"].drop_nulls().n_unique() + frame["patient_id"].null_count()
    rows = pl.DataFrame(release.table.frame).cast(dict.fromkeys(ROLES["qi"], pl.String))
    assert min(people_of_classes(rows, rows["patient_id"])) >= 5
    others = [sf.anonymize(frame, "k=5", keep_person_token=True, keep_order=True, **ROLES) for _ in range(2)]
    assert not others[0].table.column("patient_id").equals(others[1].table.column("patient_id"))
    made = sf.run(tmp_path / "release", frame)
    assert made.table.schema.person == "patient_id"


def test_identifiers_are_no_tokens(tmp_path: Path) -> None:
    sf.save(sf.anonymize(visits(), "k=5", keep_person_token=True, **ROLES), tmp_path / "release", format="csv")
    file = tmp_path / "release" / "table.csv"
    rows = pl.read_csv(file, infer_schema=False)
    rows.with_columns(pl.format("p{}", "patient_id").alias("patient_id")).write_csv(file)
    assert "people have tokens, not identifiers" in {one.claim for one in sf.verify(tmp_path / "release").failed}


def test_people_are_counted_in_files_and_databases(tmp_path: Path) -> None:
    import duckdb

    frame = visits()
    frame.write_parquet(tmp_path / "visits.parquet")
    kept = {**ROLES, "sensitive": [], "keep": ["disease"]}
    here = sf.anonymize(frame, "k=5", **kept)
    file = sf.anonymize(tmp_path / "visits.parquet", "k=5", to=tmp_path / "out.parquet", **kept)
    relation = sf.anonymize(duckdb.sql("SELECT * FROM frame"), "k=5", **kept)
    assert here.assessment.numbers() == file.assessment.numbers() == relation.assessment.numbers()
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["age", "place", "month", "disease"]


def test_people_are_counted_in_a_database_but_not_in_a_new_table_there(tmp_path: Path) -> None:
    frame, address = visits(), f"sqlite:///{tmp_path / 'clinic.db'}"
    frame.write_database("visits", address, engine="sqlalchemy")
    table = sf.read(address, table="visits")
    assert sf.assess(table, **ROLES).numbers() == sf.assess(frame, **ROLES).numbers()
    assert sf.anonymize(table, "k=5", **ROLES).assessment.k == 5
    with pytest.raises(sf.errors.OptionError, match="people cannot be counted in a new table of a database"):
        sf.anonymize(table, "k=5", to="released", **ROLES)


def test_every_row_without_a_person_has_a_token_of_its_own() -> None:
    for missing in (None, float("nan")):
        frame = pl.DataFrame({"person": [7.0, missing, 9.0, missing, 7.0], "age": [30, 31, 32, 33, 34]})
        tokens = with_tokens(sf.Table.of(frame, person="person")).column("person").to_list()
        assert sorted(set(tokens)) == [1, 2, 3, 4]
        assert tokens[0] == tokens[4]


@pytest.mark.parametrize("sensitive", [["disease"], ["disease", "drug"]])
def test_every_person_has_weight_one_split_over_their_tuples(sensitive: list[str]) -> None:
    frame = visits().with_columns(drug=pl.col("disease").str.replace("d[0-2]", "x"))
    table = sf.Table.of(frame, **{**ROLES, "sensitive": sensitive})
    tuples = reduce(table, [*ROLES["qi"], "patient_id", *sensitive])
    people = frame["patient_id"].drop_nulls().n_unique() + frame["patient_id"].null_count()
    by_size, by_value = (
        Problem.of(tuples, ROLES["qi"], sensitive, guarantees, "patient_id")
        for guarantees in ([sf.KAnonymity(5)], [sf.KAnonymity(5), sf.LDiversity(2)])
    )
    unit = by_size.weighted().guarantees[0].to_dict()["k"] // 5
    assert by_size.weighted().records.sum() == people * unit
    assert by_size.weighted(2.0).guarantees == (sf.KAnonymity(math.ceil(5 * unit / 2)),)
    weighted = by_value.weighted()
    assert weighted.records.tolist() == by_size.weighted().records.tolist()
    pieces = weighted.pieces
    assert np.bincount(pieces.tuple, pieces.records).tolist() == weighted.records.tolist()
    for column, one in enumerate(weighted.counts):
        assert np.bincount(one.owner, one.count).tolist() == weighted.records.tolist()
        assert np.bincount(one.value, one.count).tolist() == one.total.tolist()
        assert np.bincount(pieces.values[:, column], pieces.records).tolist() == one.total.tolist()


def test_only_some_tuples_have_the_people_that_they_had() -> None:
    table = sf.Table.of(visits(), **ROLES)
    tuples = reduce(table, [*ROLES["qi"], "patient_id", "disease"])
    asked = [sf.KAnonymity(2), sf.LDiversity(2)]
    problem = Problem.of(tuples, ROLES["qi"], ["disease"], asked, "patient_id")
    groups = np.arange(len(problem)) // 7
    some = np.flatnonzero(groups % 3 == 1)
    of_all, own = problem.merge(groups)[0], np.unique(groups[some], return_inverse=True)[1]
    of_some = problem.only(some).merge(own)[0]
    assert of_some.size.tolist() == of_all.size[1::3].tolist()
    assert np.diff(of_some.start).tolist() == np.diff(of_all.start)[1::3].tolist()
    backwards = Tuples(tuples.codes[::-1], tuples.count[::-1], tuples.domains)
    again = Problem.of(backwards, ROLES["qi"], ["disease"], asked, "patient_id").merge(groups)[0]
    assert again.size.tolist() == of_all.size.tolist()


def test_what_cannot_be_done_for_people_is_refused() -> None:
    frame = visits()
    with pytest.raises(sf.errors.OptionError, match="would publish equal rows differently"):
        sf.anonymize(frame, "k=5", method=sf.Mondrian(strict=False), **ROLES)
    with pytest.raises(sf.errors.OptionError, match="a map of the lattice is about rows"):
        sf.Lattice("k=5").map(sf.Table.of(frame, **ROLES))
    with pytest.raises(sf.errors.InputError, match="no grouping keeps k=300"):
        sf.anonymize(frame, "k=300", **ROLES)
    with pytest.raises(sf.errors.OptionError, match="there is no person column to keep as a token"):
        sf.anonymize(frame.drop("patient_id"), "k=5", qi=["age"], sensitive=["disease"], keep_person_token=True)


def test_the_commands_count_people(sfumato: Any) -> None:
    visits().write_csv("visits.csv")
    roles = ["visits.csv", "--qi", "age,place,month", "--sensitive", "disease", "--person", "patient_id"]
    raw = sfumato("assess", *roles, "--json").json
    assert (raw["unit"], raw["people"]["rows"]) == ("person", 900)
    assert sfumato("assess", *roles, "--require", "k=5").code == 1
    made = sfumato("anonymize", *roles, "--k", "5", "--l", "2", "-o", "release")
    assert made.code == 0, made.err
    assert "people" in made.out
    assert sfumato("verify", "release").code == 0
    assert sfumato("verify", "release", "--source", "visits.csv").code == 0
    tokens = sfumato("anonymize", *roles, "--k", "5", "--keep-person-token", "-o", "tokens", "--json")
    assert tokens.json["assessment"]["unit"] == "person"
    assert sfumato("verify", "tokens").code == 0
    page = Path("release/report.html").read_text()
    assert "people are counted, not rows: 900 rows of" in page
    assert "Share of people by the size of their class" in page
    assert sfumato("assess", *roles, "--report", "page.html").code == 0
    assert "People that are unique now" in Path("page.html").read_text()
    refused = sfumato("anonymize", *roles[:-2], "--identifiers", "patient_id", "--k", "5", "-o", "other")
    assert refused.code == 2
    assert "--person patient_id" in refused.err

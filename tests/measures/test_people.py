"""Rows are not people: where an identifier repeats, what is measured of rows is not promised of people."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.suggest import PersonKey, key_of
from sfumato.measures.people import People, keys_of, people_of
from tests.hospital import extract

VISITS = pl.DataFrame(
    {
        "patient_id": [1, 1, 1, 2, 2, 3, 4, None],
        "visit_id": range(8),
        "zip": ["a", "a", "a", "b", "b", "b", "b", "a"],
        "disease": ["flu", "flu", "ulcer", "flu", "flu", "ulcer", "flu", "flu"],
    }
)
ROLES: dict[str, Any] = {"qi": ["zip"], "sensitive": ["disease"], "identifiers": ["patient_id", "visit_id"]}


def test_people_are_counted_and_so_are_those_of_the_smallest_class() -> None:
    result = sf.assess(VISITS, **ROLES)
    assert result.people == People("patient_id", rows=7, people=4, smallest=2)  # 1 and whoever has no number; 2, 3, 4
    assert result.to_dict()["people"] == {"identifier": "patient_id", "rows": 7, "people": 4, "smallest": 2}
    assert result.k == 4


def test_what_is_asked_of_rows_is_refused_where_people_have_several() -> None:
    with pytest.raises(sf.errors.OptionError) as refused:
        sf.assess(VISITS, require="k=2", **ROLES)
    assert (
        refused.value.message == "7 rows are of 4 people ('patient_id' repeats), so k=2 would count rows and not people"
    )
    assert "--rows-are-units" in refused.value.hint
    with pytest.raises(sf.errors.OptionError, match="so k=2 would count rows and not people"):
        sf.anonymize(VISITS, "k=2", **ROLES)
    assert sf.assess(VISITS, require="k=2", rows_are_units=True, **ROLES).satisfied
    release = sf.anonymize(VISITS, "k=2", rows_are_units=True, **ROLES)
    assert release.assessment.people == People("patient_id", rows=7, people=4)


def test_one_row_per_person_is_not_remarked_upon() -> None:
    once = VISITS.unique("patient_id", maintain_order=True)
    result = sf.assess(once, require="k=1", **ROLES)
    assert result.people is not None
    assert not result.people.repeat


def test_names_copies_and_texts_that_are_left_out_do_not_count_as_people() -> None:
    frame = VISITS.select("zip", "disease", last_name=pl.lit("Abel"), copy=pl.col("zip"), doctor_id=pl.lit(1))
    table = sf.Table.of(frame, qi=["zip"], identifiers=["last_name", "copy", "doctor_id"])
    assert keys_of(table) == []
    assert sf.assess(table, require="k=1").people is None


def test_of_several_numbers_of_people_the_one_that_tells_most_apart_counts() -> None:
    frame = VISITS.with_columns(email=pl.Series([f"{one}@example.org" for one in (1, 1, 1, 2, 2, 3, 4, 5)]))
    table = sf.Table.of(frame, qi=["zip"], identifiers=["patient_id", "email", "visit_id"])
    found = people_of(table, keys_of(table))
    assert found == People("email", rows=8, people=5)


def test_keys_are_known_in_five_languages() -> None:
    english, german = ("patient_id", "PatientID", "e-mail"), ("Patientennummer", "Versicherten-Nr")
    keys = (*english, *german, "numéro_patient", "courriel", "id_paciente", "codice_fiscale")
    assert {key_of(name) for name in keys} == {PersonKey.PERSON}
    assert {key_of(name) for name in ("first_name", "Nachname", "prénom", "apellidos", "cognome")} == {PersonKey.NAME}
    assert {key_of(name) for name in ("age", "zip", "state_id", "note")} == {PersonKey.NONE}


def test_the_pages_say_it_first(tmp_path: Path) -> None:
    said = "7 rows are of 4 people (&#39;patient_id&#39; repeats)"
    sf.write_report(sf.assess(VISITS, **ROLES), tmp_path / "page.html")
    sf.save(sf.anonymize(VISITS, "k=2", rows_are_units=True, **ROLES), tmp_path / "release")
    for page in (tmp_path / "page.html", tmp_path / "release" / "report.html"):
        text = page.read_text()
        assert text.index(said) < text.index('class="verdict')
    assert sf.verify(tmp_path / "release").ok


def test_visits_of_a_hospital_are_of_fewer_people() -> None:
    made = extract(people=60, visits=5)
    frame = pl.DataFrame(made.rows, schema=list(made.header), orient="row")
    left_out = ["patient_id", "name", "email", "phone", "admitted", "note"]
    result = sf.assess(frame, qi=["birth_date", "sex", "zip"], sensitive=["icd10"], identifiers=left_out)
    assert result.people is not None
    assert (result.people.people, result.people.rows) == (60, len(made.rows))


def test_a_private_question_says_on_stderr_alone_that_people_have_several_rows(sfumato: Any) -> None:
    VISITS.write_csv("visits.csv")
    sfumato("budget", "grant", "visits.csv", "--epsilon", "3")
    ran = sfumato("query", "visits.csv", "count", "--epsilon", "1", "--json")
    assert ran.code == 0, ran.err
    assert "'patient_id' repeats: people have several rows, and epsilon protects one row, not one person" in ran.err
    assert "patient_id" not in ran.out
    VISITS.drop("patient_id").write_csv("once.csv")
    sfumato("budget", "grant", "once.csv", "--epsilon", "3")
    assert "repeats" not in sfumato("query", "once.csv", "count", "--epsilon", "1").err


def test_the_commands_refuse_rows_for_people_unless_it_is_said(sfumato: Any) -> None:
    VISITS.write_csv("visits.csv")
    roles = ["visits.csv", "--qi", "zip", "--sensitive", "disease", "--identifiers", "patient_id,visit_id"]
    for command in (["assess", *roles, "--require", "k=2"], ["anonymize", *roles, "--k", "2", "-o", "out.csv"]):
        ran = sfumato(*command)
        assert ran.code == 2
        assert "7 rows are of 4 people ('patient_id' repeats)" in ran.err
        said = sfumato(*command, "--rows-are-units")
        assert said.code == 0, said.err
        assert "7 rows are of 4 people" in said.out.replace("\n  ", " ")
    assert sfumato("assess", *roles, "--json").json["people"]["smallest"] == 2


def test_people_and_rows_are_not_protected_at_once() -> None:
    roles: dict[str, Any] = {"qi": ["zip"], "person": "patient_id", "identifiers": ["visit_id"]}
    for run in (partial(sf.assess, VISITS), partial(sf.anonymize, VISITS, "k=2")):
        with pytest.raises(sf.errors.OptionError, match="rows_are_units protects rows, and column 'patient_id' asks"):
            run(**roles, rows_are_units=True)


def test_guarantees_ledgers_and_certificates_name_their_unit(tmp_path: Path) -> None:
    from sfumato.data import Certificate

    promise = sf.DifferentialPrivacy(1.0)
    assert promise.to_dict()["unit"] == "row"
    earlier = {name: value for name, value in promise.to_dict().items() if name != "unit"}
    assert sf.Guarantee.from_dict(earlier) == promise
    with pytest.raises(sf.errors.OptionError, match="protects a row, a person or a client, got 'household'"):
        sf.Guarantee.from_dict(promise.to_dict() | {"unit": "household"})
    ledger = sf.Ledger.grant(VISITS, epsilon=1.0, path=tmp_path / "visits.ledger")
    assert ledger.to_dict()["unit"] == "row"
    sf.save(sf.anonymize(VISITS.drop("patient_id"), "k=2", qi=["zip"], identifiers=["visit_id"]), tmp_path / "release")
    assert Certificate.read(tmp_path / "release").unit == "row"
    file = tmp_path / "release" / "certificate.json"
    file.write_text(file.read_text().replace('  "unit": "row",\n', ""))
    assert sf.verify(tmp_path / "release").ok
    file.write_text(file.read_text().replace('"format": 1,', '"format": 1, "unit": "household",'))
    with pytest.raises(sf.errors.FileError, match="protects the unit 'household'"):
        sf.verify(tmp_path / "release")

"""Presets: thresholds and what they imply, and what Safe Harbor finds in names and values."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.engines.memory import reduce
from sfumato.measures.counts import class_counts
from sfumato.measures.presets import PRESETS, Preset, preset
from sfumato.measures.risk import risk
from sfumato.measures.safe_harbor import RESTRICTED_ZIP3, RULES, Finding, Status, safe_harbor


def findings(name: str, values: list[Any], **how: Any) -> list[Finding]:
    """What is found in one column, beside what always asks for a person."""
    return [one for one in safe_harbor(pl.DataFrame({name: values}), **how) if one.column]


def found(name: str, values: list[Any], **how: Any) -> list[tuple[str, Status, int | None]]:
    return [(one.letter, one.status, one.count) for one in findings(name, values, **how)]


@pytest.mark.parametrize("name", ["ema", "health-canada"])
def test_a_risk_of_nine_percent_needs_classes_of_twelve(name: str) -> None:
    assert preset(name).threshold == 0.09
    assert preset(name).guarantees == (sf.KAnonymity(12),)
    for size, held in ((11, False), (12, True)):  # 1/11 = 0.0909
        table = sf.Table(pl.DataFrame({"q": ["x"] * size}))
        assert preset(name).accepts(risk(class_counts(reduce(table, ["q"]), ["q"], None))) is held
    assert preset(name).to_dict()["guarantees"] == ["k=12"]


@pytest.mark.parametrize(("threshold", "k"), [(0.09, 12), (0.1, 10), (0.2, 5), (1 / 3, 3), (0.05, 20), (1, 1)])
def test_k_is_the_smallest_that_keeps_the_threshold(threshold: float, k: int) -> None:
    assert Preset("own", "Own", threshold, "").guarantees == (sf.KAnonymity(k),)


def test_an_unknown_preset_is_named_with_the_known() -> None:
    with pytest.raises(sf.OptionError, match=r"preset 'emma' is unknown \(did you mean 'ema'"):
        preset("emma")
    assert set(PRESETS) == {"ema", "health-canada"}


def test_there_are_eighteen_rules_and_seventeen_restricted_prefixes() -> None:
    assert list(RULES) == list(range(1, 19))
    assert len(RESTRICTED_ZIP3) == 17
    assert {"036", "893"} < RESTRICTED_ZIP3


@pytest.mark.parametrize(
    ("name", "letter"),
    [
        ("name", "A"), ("LastName", "A"), ("patient_name", "A"), ("city", "B"), ("county", "B"), ("street", "B"),
        ("phone", "D"), ("home_phone", "D"), ("fax_number", "E"), ("email", "F"), ("e-mail", "F"), ("SSN", "G"),
        ("mrn", "H"), ("patientId", "H"), ("member_id", "I"), ("account_number", "J"), ("licence_number", "K"),
        ("vin", "L"), ("license_plate", "L"), ("device_serial", "M"), ("url", "N"), ("ip_address", "O"),
        ("fingerprint", "P"), ("photo", "Q"),
    ],
)  # fmt: skip
def test_names_of_columns_are_found(name: str, letter: str) -> None:
    assert found(name, ["a", "a", None, "*", ""]) == [(letter, Status.FOUND, 2)]


@pytest.mark.parametrize(
    "name", ["state", "country", "diagnosis", "sex", "cell_count", "cause_of_death", "relative_risk", "page", "income"]
)
def test_other_names_are_left_alone(name: str) -> None:
    assert found(name, ["a", "a", "b", "b"]) == []


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("ask jane@example.org please", "F"),
        ("SSN 123-45-6789", "G"),
        ("call (555) 123-4567", "D"),
        ("call 555-123-4567", "D"),
        ("see https://example.org/x", "N"),
        ("from 192.168.0.1", "O"),
    ],
)
def test_one_identifier_in_one_note_is_found_and_never_quoted(text: str, letter: str) -> None:
    (finding,) = findings("note", [text, "nothing", "nothing", "in 2 of 10-12 cases"])
    assert (finding.letter, finding.status, finding.count) == (letter, Status.FOUND, 1)
    assert not any(
        word in str(finding.to_dict()) for word in text.split() if any(map(str.isdigit, word)) or "@" in word
    )


def test_zip_codes_keep_three_digits() -> None:
    assert found("zip", ["10001", "10001-1234", "100**", "100", "000", "1****", "*****", "*", None]) == [
        ("B", Status.FOUND, 2)
    ]
    assert found("zip", ["100", "100**", "000**", "94*"]) == []


def test_prefixes_of_small_areas_become_000() -> None:
    (finding,) = findings("ZipCode", ["036", "036**", "893XX", "100", "000"])
    assert (finding.status, finding.count, finding.action) == (Status.FOUND, 3, "replace them by 000")
    assert found("zip", ["100", "101"], restricted={"101"}) == [("B", Status.FOUND, 1)]


@pytest.mark.parametrize("values", [[3601, 10001, 94110], [3601.0, 10001.0, 94110.0, None]])
def test_zip_codes_read_as_numbers_are_said_to_have_lost_their_zeros(values: list[Any]) -> None:
    lost, long = findings("zip", values)
    assert lost.found == (
        "column 'zip' was read as numbers, so that leading zeros of ZIP codes are lost; "
        "1 of 3 have fewer than five digits"
    )
    assert (lost.status, lost.action) == (Status.PERSON, "read column 'zip' as text")
    assert (long.status, long.count) == (Status.FOUND, 3)
    assert found("zip", [36, 100])[1] == ("B", Status.FOUND, 1)  # 036


def test_postcodes_of_other_countries_are_for_a_person() -> None:
    assert found("postcode", ["SW1A 1AA", "100"]) == [("B", Status.PERSON, 1)]
    assert found("zip", [True, False]) == [("B", Status.PERSON, 2)]


@pytest.mark.parametrize("values", [[34, 89, 90, 101, None], [34.0, 89.9, 90.0, 95.0], ["34", "89", "90", "95"]])
def test_ages_over_89_are_counted(values: list[Any]) -> None:
    assert found("age", values) == [("C", Status.FOUND, 2)]


def test_ages_may_be_ranges_and_90_plus() -> None:
    assert found("age", ["[80-90)", "80-89", "30 to 39", "[20, 30)", "90+", ">=90", "> 89", "90 or older", "*"]) == []
    assert found("age_group", ["80-90", "85-94", "[90-95)"]) == [("C", Status.FOUND, 3)]


def test_ages_that_cannot_be_read_are_named() -> None:
    (finding,) = findings("age", ["thirty", "34 years", "40"])
    assert finding.found == "column 'age' holds ages as texts, 2 of which are neither numbers nor ranges"
    assert finding.status is Status.PERSON
    assert "thirty" not in str(finding)
    assert found("age", [datetime.date(2020, 1, 1)]) == [("C", Status.PERSON, 1)]


@pytest.mark.parametrize(
    "values",
    [
        [datetime.date(2020, 3, 1), datetime.date(2020, 1, 1)],
        [datetime.datetime(2020, 1, 1, 8), datetime.datetime(2020, 1, 1)],
        ["2020-03-01", "2020"],
        ["3/1/2020", "2020"],
        ["2020-03", "2020"],
        ["1 March 2020", "2020"],
        ["March 1, 2020", "2020"],
    ],
)
def test_dates_finer_than_a_year_are_counted_whatever_the_name(values: list[Any]) -> None:
    assert ("C", Status.FOUND, 1) in found("visit", [*values, *values[1:]])
    assert found("visit_date", values) == [("C", Status.FOUND, 1)]


def test_years_are_kept_but_years_of_birth_tell_an_age() -> None:
    assert found("visit_date", [2020, 2021, 2021]) == []
    assert found("visit_date", [20200301, 2021]) == [("C", Status.FOUND, 1)]
    assert found("visit_date", ["spring", "2021"]) == [("C", Status.PERSON, 1)]
    assert found("birth_year", [1920, 1990]) == [("C", Status.PERSON, 2)]


def test_columns_can_be_told() -> None:
    assert found("home", ["10001"], zips=["home"]) == [("B", Status.FOUND, 1)]
    assert found("a", [95, 20], ages=["a"]) == [("C", Status.FOUND, 1)]
    assert found("d", [20200301], dates=["d"]) == [("C", Status.FOUND, 1)]
    with pytest.raises(sf.ColumnError, match=r"a column 'zipp', which the table lacks \(did you mean 'zip'"):
        safe_harbor(pl.DataFrame({"zip": ["1"]}), zips=["zipp"])
    with pytest.raises(sf.SchemaError, match="'age' that the table lacks"):
        safe_harbor(pl.DataFrame({"zip": ["1"]}), sf.Schema([sf.Column(name="age")]))


def test_other_codes_are_identifiers_or_for_a_person() -> None:
    schema = sf.Schema([sf.Column(name="token", role="identifier")])
    assert found("token", ["x", "x"], schema=schema) == [("R", Status.FOUND, 2)]
    assert found("token", ["x", "y", "z"]) == [("R", Status.PERSON, 3)]
    assert found("score", [0.5, 0.25, 0.125]) == []
    assert found("tags", [["a"], ["b"]]) == [("R", Status.PERSON, 2)]


def test_what_a_program_cannot_see_is_left_to_a_person() -> None:
    always = safe_harbor(pl.DataFrame({"sex": ["f", "f"]}))
    assert [one.letter for one in always] == ["P", "Q", "R"]
    assert all(one.status is Status.PERSON and one.column is None and one.count is None for one in always)
    assert always[0].to_dict()["status"] == "to be checked by a person"


def test_an_empty_column_breaks_no_rule() -> None:
    assert found("name", [None, None]) == []
    assert found("name", ["*", "*", ""]) == []


def test_every_kind_of_frame_is_checked(as_frame: Any) -> None:
    frame = as_frame(pl.DataFrame({"zip": ["03601", "100"], "age": [95, 20], "sex": ["f", "f"]}))
    seen = [(one.letter, one.count) for one in safe_harbor(frame) if one.column]
    assert seen == [("B", 1), ("C", 1)]


def test_adult_has_one_column_to_change() -> None:
    seen = [(one.letter, one.column, one.status.value) for one in safe_harbor(sf.datasets.adult()) if one.column]
    assert seen == [("C", "age", "found")]

"""Presets: thresholds and what they imply, and what Safe Harbor finds in names and values."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato import safe_harbor
from sfumato.measures import Preset, preset
from sfumato.measures.risk.reidentification import PRESETS
from sfumato.measures.risk.safe_harbor import RESTRICTED_ZIP3, RULES, Finding, Status


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
        result = sf.assess(pl.DataFrame({"q": ["x"] * size}), qi=["q"], preset=name)
        assert (result.risk.prosecutor_max <= preset(name).threshold) is held
        assert result.satisfied is held
    assert preset(name).to_dict()["guarantees"] == ["k=12"]


@pytest.mark.parametrize(("threshold", "k"), [(0.09, 12), (0.1, 10), (0.2, 5), (1 / 3, 3), (0.05, 20), (1, 1)])
def test_k_is_the_smallest_that_keeps_the_threshold(threshold: float, k: int) -> None:
    assert Preset("own", "Own", threshold, "").guarantees == (sf.KAnonymity(k),)


def test_an_unknown_preset_is_named_with_the_known() -> None:
    with pytest.raises(sf.errors.OptionError, match=r"preset 'emma' is unknown \(did you mean 'ema'"):
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
        "column 'zip' was read as numbers, so leading zeros of ZIP codes are lost; 1 of 3 have fewer than five digits"
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
    with pytest.raises(sf.errors.ColumnError, match=r"a column 'zipp', which the table lacks \(did you mean 'zip'"):
        safe_harbor(pl.DataFrame({"zip": ["1"]}), zips=["zipp"])
    with pytest.raises(sf.errors.SchemaError, match="'age' that the table lacks"):
        safe_harbor(pl.DataFrame({"zip": ["1"]}), sf.Schema([sf.Column(name="age")]))


def test_other_codes_are_identifiers_or_for_a_person() -> None:
    schema = sf.Schema([sf.Column(name="token", role=sf.Role.IDENTIFIER)])
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


def test_texts_are_read_in_columns_of_dates_ages_and_zip_codes_too() -> None:
    notes = ["jo@x.org", "123-45-6789", "none", "none"]
    assert {("F", Status.FOUND, 1), ("G", Status.FOUND, 1)} < set(found("date_note", notes))
    notes = ["call 617-555-1234", "ask jo@x.org", "seen on 03/04/2020", "none"]
    assert {("D", Status.FOUND, 1), ("F", Status.FOUND, 1), ("C", Status.FOUND, 1)} < set(found("age_comment", notes))
    assert ("F", Status.FOUND, 1) in found("zip", ["100", "jo@x.org"])


@pytest.mark.parametrize(
    "text",
    [
        "seen on 03/04/2020 by Dr. Smith", "since 2020-03-04.", "am 1.3.2020 hier", "on March 4, 2020 at home",
        "the 4th of March 2020", "in Sept. 2020", "2020-Q1", "Q1 2020", "2020-W05", "[2020-01-01, 2020-02-01)",
        "[2020-01, 2020-03)", "Dec-2011",
    ],
)  # fmt: skip
def test_dates_are_found_inside_of_texts(text: str) -> None:
    assert found("note", [text, "none", "none", "none"]) == [("C", Status.FOUND, 1)]


@pytest.mark.parametrize(
    "text",
    ["decile 10", "Marketing-20", "Junior 12", "1500.5", "2000.1", "1000/10", "1234-5", "2020-13", "1.2.10", "1.2.3.4"],
)
def test_numbers_and_words_that_only_resemble_dates_or_addresses_are_left_alone(text: str) -> None:
    assert found("group", [text, "none", "none", "none"]) == []


def test_long_texts_are_for_a_person() -> None:
    long = [f"the patient came with a neighbour who is {job} of our town" for job in ("mayor", "baker", "judge")]
    assert found("note", long) == [("R", Status.PERSON, 3)]
    assert found("answer", ["a long label of one of the two categories here", "another one"] * 30) == []
    schema = sf.Schema([sf.Column(name="note", kind=sf.Kind.TEXT)])
    assert found("note", ["ok", "ok", "ill"], schema=schema) == [("R", Status.PERSON, 3)]


def test_an_ip_address_is_told_from_a_version() -> None:
    assert found("host", ["10.0.0.1", "10.0.0.2", "10.0.0.2"]) == [("O", Status.FOUND, 3)]
    assert found("host", ["10.0.0.1", "none", "none"]) == []
    assert found("ip", ["10.0.0.1", "none", "none"]) == [("O", Status.FOUND, 3)]


@pytest.mark.parametrize(
    "name",
    [
        "num persons worked for employer", "num_mort_accounts", "account_never_delinq_percent", "accounts_opened_24m",
        "phone_type", "photo_count", "ip_count", "city_size", "district_attorney", "has_phone", "number_of_addresses",
        "total_credit_card_debt", "email_flag", "zip_count",
    ],
)  # fmt: skip
def test_names_that_count_or_qualify_are_left_alone(name: str) -> None:
    assert found(name, [0, 1, 2, 1, 0, 1]) == []
    assert found(name, ["a", "a", "b", "b"]) == []


def test_a_name_alone_is_for_a_person_where_values_do_not_look_like_codes() -> None:
    assert found("county", ["a", "b"] * 20) == [("B", Status.PERSON, 40)]
    assert found("city", [*range(30)] * 3) == [("B", Status.PERSON, 90)]
    assert found("phone", ["617-555-1234", "none", "none", "none"]) == [("D", Status.FOUND, 4)]
    assert found("city", [f"town {i}" for i in range(30)] * 3) == [("B", Status.FOUND, 90)]
    assert found("ssn", [123456789, 123456780] * 5) == [("G", Status.FOUND, 10)]
    assert found("latitude", [40.7, 41.3, 39.9]) == [("B", Status.FOUND, 3)]


@pytest.mark.parametrize(
    ("name", "letter", "status"),
    [
        ("contact_name", "A", Status.FOUND), ("mother_name", "A", Status.FOUND), ("name_of_patient", "A", Status.FOUND),
        ("employer", "A", Status.FOUND), ("drug_name", "A", Status.PERSON), ("patient", "A", Status.PERSON),
        ("physician", "A", Status.PERSON), ("provider", "A", Status.PERSON), ("pat_id", "H", Status.FOUND),
        ("hospital_no", "H", Status.FOUND), ("subject_id", "R", Status.PERSON), ("id", "R", Status.PERSON),
        ("account", "J", Status.FOUND), ("postal", "B", Status.PERSON), ("plz", "B", Status.PERSON),
        ("ageyrs", "C", Status.PERSON),
    ],
)  # fmt: skip
def test_more_names_of_columns_are_found(name: str, letter: str, status: Status) -> None:
    assert found(name, ["a", "a"]) == [(letter, status, 2)]


def test_names_of_persons_are_no_numbers() -> None:
    assert found("provider", [1, 1, 2]) == []


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("(617)555-1234", "D"), ("+44 20 7946 0958", "D"), ("tel. +49 30 123456", "D"), ("+16175551234", "D"),
        ("00:1B:44:11:3A:B7", "M"), ("at 00-1b-44-11-3a-b7", "M"),
    ],
)  # fmt: skip
def test_telephones_and_devices_are_found_in_texts(text: str, letter: str) -> None:
    assert found("note", [text, "none", "none", "+12.5 - 13.5"]) == [(letter, Status.FOUND, 1)]


def test_bare_numbers_of_nine_or_ten_digits_are_for_a_person() -> None:
    numbers = [str(123456789 + i) for i in range(19)]
    assert found("key", [*numbers, numbers[0]]) == [("R", Status.PERSON, 20)]
    assert found("key", numbers[:2] * 10) == []


def test_intervals_of_ages_are_read() -> None:
    labels = ["(-inf, 20)", "[20, 25[", "]20, 25]", "[20, 25)", "[20, 25]", "20-25", "[80, 90)", "< 20", "under 20"]
    for label in labels:
        assert found("age", [label, "30"]) == [], label


@pytest.mark.parametrize("label", ["[90, inf)", "[90, 120]", "(89, 120]", "90+", ">89", "≥ 90", "90 and over"])
def test_one_group_of_all_ages_over_89_is_as_prescribed(label: str) -> None:
    assert found("age", ["[80, 90)", label, label]) == []
    assert found("age", ["[80, 90)", label, label, "[90, 95)"]) == [("C", Status.FOUND, 3)]
    assert found("age", [label, "93"]) == [("C", Status.FOUND, 2)]


def test_a_group_that_mixes_ages_over_89_with_others_is_not_the_prescribed_one() -> None:
    assert found("age", ["[80, 100)", "[60, 80)"]) == [("C", Status.FOUND, 1)]
    assert found("age", ["85+", "[60, 85)"]) == [("C", Status.PERSON, 1)]  # tells less than 90+


def test_a_schema_that_says_identifier_leaves_no_doubt() -> None:
    for name, letter in (("id", "R"), ("county", "B"), ("patient", "A"), ("key", "R")):
        schema = sf.Schema([sf.Column(name=name, role=sf.Role.IDENTIFIER)])
        assert found(name, ["a", "b"] * 20, schema=schema) == [(letter, Status.FOUND, 40)]


def test_long_labels_that_recur_are_no_free_text() -> None:
    labels = [f"a long label of a code book, the one with the number {i}" for i in range(30)]
    assert found("factor", labels * 20) == []

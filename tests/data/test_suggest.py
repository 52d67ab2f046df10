"""What Schema.suggest proposes, and why."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.data import Column, Hierarchy, Kind, Role, Schema, Table
from sfumato.data.suggest import suggest

KNOWN_TO_OTHERS = "its name suggests something that others know about a person"
NAMES_SOMEONE = "its name suggests something that names a person"
PRIVATE = "its name suggests something that a person may want to keep private"
UNREMARKABLE = "nothing in its name or values suggests another role"
UNIQUE = "every row has its own value"
CODES = "its numbers are codes, not quantities"
DATES = "it holds dates, which others may know"
UNPARSED = "its texts look like dates and should be parsed"
MIXED = "its values are of different types"

LOOKS = {
    "e-mail addresses": ["ada@example.org", "b.c+d@mail.example.co.uk", "e_f@x.io"],
    "US social security numbers": ["123-45-6789", "078-05-1120", "219-09-9999"],
    "IP addresses": ["192.168.0.1", "10.0.0.255", "8.8.8.8"],
    "bank account numbers (IBAN)": ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32", "NL91ABNA0417164300"],
    "payment card numbers": ["4111111111111111", "5500 0000 0000 0004", "3400-0000-0000-009"],
    "phone numbers": [
        "555-123-4567",
        "(555) 123-4567",
        "(555)123-4567 x89",
        "1-555-123-4567",
        "555.123.4567",
        "+15551234567",
        "+49 30 1234567",
        "030 12345678",
        "06 12 34 56 78",
        "020 7946 0958",
    ],
}
ADULT = {
    "age": [39, 50, 38, 53],
    "workclass": ["State-gov", "Self-emp-not-inc", "Private", "Private"],
    "fnlwgt": [77516, 83311, 215646, 234721],
    "education": ["Bachelors", "Bachelors", "HS-grad", "11th"],
    "education-num": [13, 13, 9, 7],
    "marital-status": ["Never-married", "Married-civ-spouse", "Divorced", "Married-civ-spouse"],
    "occupation": ["Adm-clerical", "Exec-managerial", "Handlers-cleaners", "Handlers-cleaners"],
    "relationship": ["Not-in-family", "Husband", "Not-in-family", "Husband"],
    "race": ["White", "White", "White", "Black"],
    "sex": ["Male", "Male", "Male", "Male"],
    "capital-gain": [2174, 0, 0, 0],
    "capital-loss": [0, 0, 0, 0],
    "hours-per-week": [40, 13, 40, 40],
    "native-country": ["United-States", "United-States", "United-States", "Cuba"],
    "income": ["<=50K", "<=50K", "<=50K", ">50K"],
}


def listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def propose(values: Any, name: str = "x") -> Column:
    return suggest(pl.DataFrame({name: values}))[name]


def by_name(name: str) -> tuple[Role, str]:
    """Propose a role for a column of which only the name says something."""
    column = propose(["a", "b", "a", "b"], name)
    return column.role, column.reason


# Identifiers by their values


@pytest.mark.parametrize("things", LOOKS)
def test_values_that_look_like_an_identifier_are_one_whatever_their_column_is_called(things: str) -> None:
    for name in ("x", "age", "salary"):
        column = propose(LOOKS[things], name)
        assert (column.role, column.reason) == (Role.IDENTIFIER, f"its values look like {things}")
        assert column.kind is Kind.CATEGORY


@pytest.mark.parametrize(("things", "value"), [(things, value) for things in LOOKS for value in LOOKS[things]])
def test_one_value_is_enough_when_it_is_the_only_one(things: str, value: str) -> None:
    assert propose([None, f" {value} ", "", value]).reason == f"its values look like {things}"


def test_four_fifths_of_the_distinct_values_must_look_alike() -> None:
    addresses = [f"p{i}@x.org" for i in range(8)]
    assert propose([*addresses, "refused", "unknown"]).role is Role.IDENTIFIER
    assert propose([*addresses[:7], "refused", "unknown"] * 2).role is Role.OTHER
    assert propose(["p@x.org"] * 50 + ["refused", "unknown"]).role is Role.OTHER


def test_ipv6_addresses_and_card_numbers_stored_as_numbers_are_recognised() -> None:
    assert propose(["2001:db8::1", "::1", "2001:0db8:0:0:0:ff00:42:8329"]).reason == "its values look like IP addresses"
    card = propose([4111111111111111, 5500000000000004])
    assert (card.role, card.kind) == (Role.IDENTIFIER, Kind.CATEGORY)
    assert card.reason == f"its values look like payment card numbers; {CODES}"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1987, 2001, 2020], id="years"),
        pytest.param(["1987", "2001", "2020"], id="years as texts"),
        pytest.param([17, 45, 99], id="ages"),
        pytest.param(["12345", "02139", "90210"], id="ZIP"),
        pytest.param(["12345-6789", "02139-0001"], id="ZIP+4"),
        pytest.param(["100-0001", "530-0001"], id="Japanese postal codes"),
        pytest.param(["2020-01-31", "1999-12-01"], id="ISO dates"),
        pytest.param(["2020/01/31", "1999/12/01"], id="slashed dates"),
        pytest.param(["31/01/2020", "01/12/1999"], id="day first"),
        pytest.param(["31.01.2020", "1.12.1999"], id="dotted dates"),
        pytest.param(["2020-01-31 10:30:00", "1999-12-01T23:59:59Z"], id="times of a day"),
        pytest.param(["12:30:00", "23:59:59"], id="times"),
        pytest.param(["1234567890", "5551234567"], id="plain digits"),
        pytest.param([1234567890, 5551234567], id="long integers"),
        pytest.param(["12.345.678", "123.456.789", "12 345 678"], id="thousands"),
        pytest.param(["10000-19999", "20000-29999"], id="ranges"),
        pytest.param(["20-29", "30-39"], id="age bands"),
        pytest.param(["+1.5 - 2.5", "+2.5 - 3.5"], id="signed ranges"),
        pytest.param(["+" + "1234567890" * 3], id="too many digits for a phone"),
        pytest.param(["0002-1433-80", "50580-449-05"], id="drug codes"),
        pytest.param(["4111111111111112", "5500000000000005"], id="cards that fail Luhn's check"),
        pytest.param(["DE00370400440532013000", "GB00WEST12345698765432"], id="IBANs that fail their check"),
        pytest.param(["300.1.1.1", "1.2.3"], id="version numbers"),
        pytest.param(["@home", "a@b", "x @ y.z"], id="at signs"),
        pytest.param([1.5, 2.25, -71.060316], id="fractions"),
        pytest.param([b"123-45-6789", b"078-05-1120"], id="bytes"),
    ],
)
def test_years_dates_codes_and_ranges_do_not_look_like_identifiers(values: list[Any]) -> None:
    assert propose(values).role is not Role.IDENTIFIER


# Roles by name


@pytest.mark.parametrize(
    "name",
    listed(
        """
        name, Name, first_name, firstName, FirstName, last-name, full name, lname, surname, PatientName, ssn, SSN,
        social_security_number, email, e-mail, eMail, EMAIL_ADDRESS, phone, PhoneNumber, telephone, tel, fax,
        address, home-address, Address1, street, passport, passport_no, mrn, medical_record_number, record_number,
        case no, patient_id, patientID, PatientId, patientid, account, account_number, iban, licence,
        driver_license, url, ip, ip_address, device_id, user_id, userid, username, id, ID, Id, record-id, sample id,
        uuid
        """
    ),
)
def test_a_name_of_a_direct_identifier_is_one(name: str) -> None:
    assert by_name(name) == (Role.IDENTIFIER, NAMES_SOMEONE)


@pytest.mark.parametrize(
    "name",
    listed(
        """
        disease, primaryDiagnosis, diagnoses, icd10, ICD_code, HIV, hiv-status, income, householdIncome, Salary,
        hourly_wage, wages, religion, political-party, sexual orientation, criminalRecord, credit_score,
        account_balance, disease_id
        """
    ),
)
def test_a_name_of_health_money_belief_or_crime_is_sensitive(name: str) -> None:
    assert by_name(name) == (Role.SENSITIVE, PRIVATE)


@pytest.mark.parametrize(
    "name",
    listed(
        """
        age, Age, age_group, ageAtVisit, birth_year, birthdate, dateOfBirth, dob, sex, gender, zip, ZIPCode,
        zipcode, postal-code, postcode, city, county, state, country, native-country, race, ethnicity, ethnic_group,
        marital-status, maritalStatus, education, education-num, occupation, job, relationship, nationality,
        state_id, city name
        """
    ),
)
def test_a_name_of_what_others_know_is_quasi(name: str) -> None:
    assert by_name(name) == (Role.QUASI, KNOWN_TO_OTHERS)


@pytest.mark.parametrize(
    "name",
    listed(
        """
        workclass, ship, package, storage, idea, width, grid, paid, valid, kids, status, statement, filename,
        mycityhall, zipper, tracer, essex, embrace, recipe, chip, hotel, drivers, incoming, hours-per-week, fnlwgt,
        capital-gain, x, 42, _, Größe, 名前
        """
    ),
)
def test_a_name_that_only_contains_such_a_word_says_nothing(name: str) -> None:
    assert by_name(name) == (Role.OTHER, UNREMARKABLE)


def test_what_a_name_says_is_kept_when_every_row_differs() -> None:
    assert propose(list(range(100)), "age").role is Role.QUASI
    assert propose(list(range(1000, 1100)), "salary").role is Role.SENSITIVE
    assert propose([f"{i:05}" for i in range(100)], "zip").role is Role.QUASI


# Roles by how the values are distributed


@pytest.mark.parametrize(
    "values", [[f"p{i}" for i in range(20)], list(range(500, 520)), [i / 2 for i in range(0, 40, 2)]]
)
def test_a_value_of_its_own_in_every_row_identifies(values: list[Any]) -> None:
    column = propose(values)
    assert (column.role, column.kind) == (Role.IDENTIFIER, Kind.CATEGORY)
    assert column.reason in (UNIQUE, f"{UNIQUE}; {CODES}")


def test_values_of_their_own_identify_also_where_some_are_missing() -> None:
    column = propose([f"p{i}" for i in range(20)] + [None, " "])
    assert (column.role, column.reason) == (Role.IDENTIFIER, "no two rows with a value share it")


def test_few_rows_or_fractions_or_dates_or_one_repetition_do_not_identify() -> None:
    assert propose([f"p{i}" for i in range(19)]).role is not Role.IDENTIFIER
    assert propose([i + 0.5 for i in range(100)]).role is Role.OTHER
    assert propose([dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(100)]).role is Role.QUASI
    assert propose([dt.timedelta(i) for i in range(100)]).role is Role.OTHER
    assert propose([*range(99), 98]).role is Role.OTHER


def test_a_category_of_many_values_is_quasi_and_the_reason_counts_them() -> None:
    column = propose([f"v{i % 51}" for i in range(500)])
    assert column.role is Role.QUASI
    assert column.reason == "it has 51 distinct values, more than 50, and a rare one can single a person out"
    assert propose([f"v{i % 50}" for i in range(500)]).role is Role.OTHER
    assert propose([i % 51 for i in range(500)]).role is Role.OTHER, "a number is no category"


def test_in_a_small_table_fewer_values_are_many() -> None:
    assert propose([f"v{i % 16}" for i in range(30)]).reason.startswith("it has 16 distinct values, more than 15,")
    assert propose([f"v{i % 15}" for i in range(30)]).role is Role.OTHER


# Kinds


def test_dates_are_quasi_and_stay_dates() -> None:
    for values in ([dt.date(2020, 1, 1), None], [dt.datetime(2020, 1, 1, 12)]):
        column = propose(values)
        assert (column.role, column.kind, column.reason) == (Role.QUASI, Kind.DATE, DATES)


@pytest.mark.parametrize(
    "values",
    [["2020-01-31", None], ["2020-01-31T10:30:00Z", "2021-02-28 10:30"], ["31/01/2020", "1/12/1999"], ["12/31/2020"]],
)
def test_texts_that_all_read_as_dates_stay_a_category_that_should_be_parsed(values: list[Any]) -> None:
    column = propose(values)
    assert (column.role, column.kind, column.reason) == (Role.QUASI, Kind.CATEGORY, f"{DATES}; {UNPARSED}")
    assert propose(values, "birth").reason == f"{KNOWN_TO_OTHERS}; {UNPARSED}"
    assert UNPARSED not in propose([*values, "soon"]).reason
    assert UNPARSED not in propose(["2020-13-01", "99/99/2020"]).reason


def test_numbers_named_as_codes_are_categories() -> None:
    zips = propose([12345, 12346], "zip")
    assert (zips.role, zips.kind, zips.reason) == (Role.QUASI, Kind.CATEGORY, f"{KNOWN_TO_OTHERS}; {CODES}")
    for name in ("postal_code", "phone", "patient_id", "id", "region code", "sex", "ICD9"):
        assert propose([1, 2, None], name).kind is Kind.CATEGORY
        assert propose([1.0, 2.0, None], name).kind is Kind.CATEGORY, "pandas turns integers with gaps into floats"
    for name in ("age", "education-num", "hours", "codec", "income"):
        assert propose([1, 2], name).kind is Kind.NUMBER
    assert propose([0.5, 1.5], "zip").kind is Kind.NUMBER, "a fraction is no code"


def test_long_texts_that_nearly_all_differ_are_texts() -> None:
    notes = [f"patient {i} came in with complaints of the {i % 7}th kind" for i in range(30)]
    column = propose(notes)
    assert (column.role, column.kind) == (Role.IDENTIFIER, Kind.TEXT)
    assert column.reason == f"{UNIQUE}; its texts are long and mostly different"
    assert propose([*notes, notes[0]]).role is Role.IDENTIFIER
    assert propose([*notes, notes[0]]).kind is Kind.TEXT
    assert propose(notes, "diagnosis").role is Role.SENSITIVE
    assert propose(notes[:10] * 3).kind is Kind.CATEGORY, "a long label that recurs is a category"
    assert propose([note[:9] for note in notes]).kind is Kind.CATEGORY, "a short text is a category"


def test_ordered_categories_truth_values_and_times_keep_the_kind_of_their_type() -> None:
    grade = propose(pl.Series(["low", "high"], dtype=pl.Enum(["low", "high"])))
    assert (grade.role, grade.kind, grade.domain) == (Role.OTHER, Kind.ORDINAL, ("low", "high"))
    assert propose([True, False]).kind is Kind.CATEGORY
    assert propose([dt.time(1), dt.time(2)]).kind is Kind.CATEGORY
    assert propose(pl.Series(["a", "b"], dtype=pl.Categorical), "email").role is Role.IDENTIFIER


def test_what_is_publicly_known_is_kept_where_it_fits_and_old_roles_are_not_looked_at() -> None:
    ladder = Hierarchy.tree([["f", "*"], ["m", "*"]])
    given_schema = Schema(
        [
            Column(name="age", kind=Kind.NUMBER, bounds=(0, 120), role=Role.TARGET),
            Column(name="zip", kind=Kind.NUMBER, bounds=(0, 99999)),
            Column(name="sex", domain=("f", "m"), hierarchy=ladder, role=Role.SENSITIVE),
        ]
    )
    schema = suggest(Table(pl.DataFrame({"age": [30, 40], "zip": [1, 2], "sex": ["f", "m"]}), given_schema))
    assert (schema["age"].role, schema["age"].bounds) == (Role.QUASI, (0, 120))
    assert (schema["zip"].kind, schema["zip"].bounds) == (Kind.CATEGORY, None)
    assert (schema["sex"].role, schema["sex"].domain, schema["sex"].hierarchy) == (Role.QUASI, ("f", "m"), ladder)


# Whole tables


def test_a_patient_table_is_proposed_as_a_steward_would_describe_it() -> None:
    draw = random.Random(0)
    rows = range(200)
    frame = pl.DataFrame(
        {
            "PatientID": [100000 + i for i in rows],
            "Name": [f"Person {chr(65 + i % 26)}" for i in rows],
            "contact": [f"p{i}@example.org" for i in rows],
            "mobile_no": [f"555-{draw.randrange(100, 999)}-{draw.randrange(1000, 9999)}" for i in rows],
            "birthDate": [dt.date(1950, 1, 1) + dt.timedelta(draw.randrange(20000)) for i in rows],
            "ZIP": [draw.choice(["02139", "02138", "10001"]) for i in rows],
            "Sex": [draw.choice("fm") for i in rows],
            "admitted": [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in rows],
            "Diagnosis": [draw.choice(["flu", "asthma", "angina"]) for i in rows],
            "glucose": [draw.gauss(100, 15) for i in rows],
            "ward": [draw.choice("ABC") for i in rows],
            "notes": [f"seen on day {i}, sent home with advice and an appointment" for i in rows],
        }
    )
    schema = suggest(frame)
    assert schema.names == tuple(frame.columns)
    assert schema.identifiers == ("PatientID", "Name", "contact", "mobile_no", "notes")
    assert schema.quasi == ("birthDate", "ZIP", "Sex", "admitted")
    assert schema.sensitive == ("Diagnosis",)
    kinds = {"PatientID": "category", "birthDate": "date", "ZIP": "category", "glucose": "number", "notes": "text"}
    assert {name: schema[name].kind.value for name in kinds} == kinds


def test_adult_is_proposed_as_the_literature_uses_it() -> None:
    schema = suggest(pl.DataFrame(ADULT))
    usual = {"age", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country"}
    assert usual <= set(schema.quasi) <= usual | {"education-num"}
    assert schema.sensitive == ("income",)
    assert schema.identifiers == ()
    assert schema["age"].kind is Kind.NUMBER


def test_the_reasons_in_the_documentation_are_given() -> None:
    schema = Schema.suggest(pl.DataFrame({"email": ["a@x.org", "b@x.org"], "zip": ["0123", "0124"]}))
    assert [column.reason for column in schema.columns] == ["its values look like e-mail addresses", KNOWN_TO_OTHERS]


def test_a_proposal_comes_back_from_toml_with_its_reasons() -> None:
    schema = suggest(pl.DataFrame(ADULT | {'a "quoted" näme.x': [1, 2, 3, 4]}))
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert [column.reason for column in again.columns] == [column.reason for column in schema.columns]


# Frames and edge tables


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "lazy", "duckdb", "file", "table"])
def test_every_kind_of_frame_gets_the_same_proposal(kind: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(ADULT | {"dob": [dt.date(1970, 1, 1), None, dt.date(1980, 1, 1), None], "id": [1, 2, 3, None]})
    native: Any
    if kind == "pandas":
        native = pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False))
        native["dob"] = native["dob"].astype("datetime64[ns]")
    elif kind == "pyarrow":
        pytest.importorskip("pyarrow")
        native = frame.to_arrow()
    elif kind == "duckdb":
        pytest.importorskip("pyarrow")
        native = pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    elif kind == "file":
        native = tmp_path / "people.csv"
        frame.write_csv(native)
    else:
        native = frame.lazy() if kind == "lazy" else Table(frame)
    assert suggest(native).to_dict() == suggest(frame).to_dict()


def test_columns_of_mixed_types_are_texts_and_keep_what_their_name_says() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, "a", None], "ssn": [1, "a", 2.5], "fine": ["a", "b", "c"]}, dtype=object)
    schema = suggest(frame)
    assert [column.kind for column in schema.columns] == [Kind.TEXT, Kind.TEXT, Kind.CATEGORY]
    assert (schema["x"].role, schema["x"].reason) == (Role.OTHER, MIXED)
    assert (schema["ssn"].role, schema["ssn"].reason) == (Role.IDENTIFIER, f"{NAMES_SOMEONE}; {MIXED}")
    assert (schema["fine"].role, schema["fine"].reason) == (Role.OTHER, UNREMARKABLE)


def test_objects_lists_and_records_are_texts() -> None:
    assert propose(pl.Series([1, "a"], dtype=pl.Object)).reason == MIXED
    for values in ([[1], [2]], [{"a": 1}, {"a": 2}]):
        column = propose(values)
        assert (column.role, column.kind, column.reason) == (Role.OTHER, Kind.TEXT, "its values are lists or records")


@pytest.mark.parametrize(
    "dtype", [pl.Int64, pl.Float64, pl.String, pl.Date, pl.Boolean, pl.Null, pl.Categorical, pl.Binary]
)
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_columns_without_values_go_by_their_name_and_type(dtype: Any, rows: int) -> None:
    empty = pl.Series([None] * rows, dtype=dtype)
    assert propose(empty, "age").role is Role.QUASI
    expected = (Role.QUASI, DATES) if dtype == pl.Date else (Role.OTHER, "it has no values")
    assert (propose(empty).role, propose(empty).reason) == expected


@pytest.mark.parametrize("value", [1, 1.5, "a", True, b"a"])
@pytest.mark.parametrize("rows", [1, 30])
def test_a_constant_is_other(value: Any, rows: int) -> None:
    column = propose([value] * rows)
    assert (column.role, column.reason) == (Role.OTHER, "it has a single value")


def test_not_a_number_and_blank_texts_count_as_missing() -> None:
    assert propose([float("nan"), None]).reason == "it has no values"
    assert propose(["", "  ", None]).reason == "it has no values"
    assert propose([float("inf"), 1.0, 2.0], "zip").kind is Kind.NUMBER


def test_more_distinct_values_than_the_sample_holds_give_the_same_proposal_each_time() -> None:
    values = [f"{i}@x.org" for i in range(15_000)] + ["unknown"] * 20_000
    assert {propose(values).reason for _ in range(3)} == {"its values look like e-mail addresses"}
    half = [f"{i}@x.org" if i % 2 else f"person {i}" for i in range(24_000)]
    assert {propose(half).reason for _ in range(3)} == {UNIQUE}, "the sample must not follow a pattern in the rows"


def test_a_wide_table_gets_a_proposal_for_every_column() -> None:
    schema = suggest(pl.DataFrame({f"column {i}": [1, 2] for i in range(300)}))
    assert len(schema.columns) == 300


# Signs and digits that no reason holds three of in a row, so that a value in a reason is a leak.
marks = st.text(alphabet="QXZ@.-+/0123456789", min_size=3, max_size=12)
columns = st.one_of(
    st.lists(st.none() | marks, max_size=60),
    st.lists(marks.map(lambda mark: f"{mark.replace('@', '')}@QX.ZZ"), max_size=60),
    st.lists(st.integers(200, 999).map(lambda number: f"555-{number}-{number}0"), max_size=60),
    st.lists(st.none() | st.integers(1000, 10**18), max_size=60),
    st.lists(st.none() | st.floats(1000.5, 1e9), max_size=60),
    st.lists(st.none() | st.dates(), max_size=60),
    st.lists(st.dates(min_value=dt.date(1900, 1, 1)).map(str), max_size=60),
)


@given(values=columns, name=st.sampled_from(["x", "age", "email", "zip", "salary", "id", "note"]))
def test_no_reason_quotes_a_value_of_the_table(values: list[Any], name: str) -> None:
    schema = suggest(pl.DataFrame({name: values}))
    reason = schema[name].reason
    assert reason
    for value in values:
        assert value is None or str(value) not in reason
    assert Schema.from_toml(schema.to_toml()) == schema


# Spanish and Italian headers, and names that depend on the values


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (
            Role.IDENTIFIER,
            "Nombre, apellidos, Correo electrónico, Teléfono, móvil, Dirección, DNI, número de historia, NHC,"
            "Nome, Cognome, Codice fiscale, Cellulare, Indirizzo, Posta elettronica, numero di telefono, id_paziente",
        ),
        (
            Role.SENSITIVE,
            "Diagnóstico, enfermedad, Tratamiento, Alergias, Ingresos, salario,"
            "Diagnosi, malattia, Terapia, Allergie, Reddito, stipendio, Gravidanza",
        ),
        (
            Role.QUASI,
            "Edad, Fecha de nacimiento, Sexo, Código postal, Ciudad, Provincia, Estado civil, Profesión,"
            "Età, Data di nascita, Sesso, CAP, Città, Comune, Stato civile, Professione, Titolo di studio",
        ),
    ],
)
def test_spanish_and_italian_headers_are_recognised(role: Role, names: str) -> None:
    assert {name: by_name(name)[0] for name in listed(names)} == dict.fromkeys(listed(names), role)


def test_whether_somebody_has_a_telephone_names_nobody_and_a_number_does() -> None:
    assert propose(["yes", "no"] * 20, "telephone").role is Role.OTHER
    assert propose([True, False] * 20, "telephone").role is Role.OTHER
    assert propose([f"0{30 + at} {123456 + at}" for at in range(40)], "telephone").role is Role.IDENTIFIER


def test_first_and_last_are_names_where_their_values_are() -> None:
    for name in ("first", "last", "First", "LAST"):
        assert propose(["Ada", "Grace", "Mary Ann", "O'Neil", "Jean-Luc", "Ada"] * 4, name).role is Role.IDENTIFIER
        assert propose([1, 2, 3, 4] * 10, name).role is Role.OTHER

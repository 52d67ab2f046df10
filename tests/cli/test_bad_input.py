"""Bad input gets the right number, or one clear sentence and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
TABLE = "age,zip,sex,disease\n30,1,f,flu\n30,1,f,ulcer\n41,2,m,flu\n"


@pytest.fixture
def assess(sfumato: Run) -> Run:
    Path("t.csv").write_text(TABLE)
    return lambda *arguments: sfumato("assess", *arguments)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_missing_file(assess: Run, as_json: list[str]) -> None:
    refused(assess("nowhere.csv", "--qi", "age", *as_json), "there is no file 'nowhere.csv'")


def test_a_folder(assess: Run) -> None:
    Path("folder.csv").mkdir()
    refused(assess("folder.csv", "--qi", "age"), "is a folder")


def test_an_unknown_format(assess: Run) -> None:
    Path("t.sas").write_text("x")
    refused(assess("t.sas", "--qi", "age"), "the format of 't.sas' is unknown", ".parquet")


def test_an_unknown_column_with_those_that_are_close(assess: Run) -> None:
    refused(assess("t.csv", "--qi", "aeg"), "there is no column 'aeg' (did you mean 'age'?)")
    refused(assess("t.csv", "--qi", "AGE"), "did you mean 'age'?")
    refused(assess("t.csv", "--qi", "age", "--sensitive", "illness"), "there is no column 'illness'", "known: age, zip")
    refused(assess("t.csv", "--qi", "age", "--target", "y"), "there is no column 'y'")


def test_an_empty_table(assess: Run) -> None:
    Path("t.csv").write_text("age,zip\n")
    refused(assess("t.csv", "--qi", "age"), "the table has no rows")
    Path("t.csv").write_text("")
    refused(assess("t.csv", "--qi", "age"), "'t.csv' is empty")


def test_no_quasi_identifier(assess: Run) -> None:
    refused(assess("t.csv"), "no quasi-identifier is named", "--qi")
    refused(assess("t.csv", "--qi", " , "), "no quasi-identifier is named")


def test_a_column_with_two_roles(assess: Run) -> None:
    refused(assess("t.csv", "--qi", "age,sex", "--sensitive", "sex"), "column 'sex' cannot be both quasi and sensitive")
    refused(assess("t.csv", "--qi", "age", "--identifiers", "age"), "column 'age' cannot be both quasi and identifier")


def test_a_column_named_twice_counts_once(assess: Run) -> None:
    assert assess("t.csv", "--qi", "age,age", "--json").json["quasi"] == ["age"]


def test_duplicate_column_names(assess: Run) -> None:
    Path("t.csv").write_text("a,b,a\n1,2,3\n")
    refused(assess("t.csv", "--qi", "a"), "has the same name for columns 1 and 3")


def test_text_that_is_not_utf_8(assess: Run) -> None:
    Path("t.csv").write_bytes("age,town\n30,Zoë\n".encode("latin-1"))
    found = assess("t.csv", "--qi", "age", "--json")
    assert found.json["read"][0]["encoding"] == "cp1252"
    assert found.err == "Read 't.csv' with encoding cp1252\n"
    refused(assess("t.csv", "--qi", "age", "--encoding", "utf-8"), "not UTF-8", "--encoding")
    assert assess("t.csv", "--qi", "age", "--encoding", "latin-1", "--json").json["k"] == 1
    refused(assess("t.csv", "--qi", "age", "--encoding", "nonsense"), "the encoding 'nonsense' is unknown")


def test_a_ragged_file(assess: Run) -> None:
    Path("t.csv").write_text("a,b\n1,2\n3\n")
    refused(assess("t.csv", "--qi", "a"), "line 3 has 1 fields, the header 2")
    Path("t.csv").write_text("a,b\n1,2\n3,4,5\n")
    refused(assess("t.csv", "--qi", "a"), "line 3 has 3 fields, the header 2")


def test_mixed_types_in_a_file_are_texts(assess: Run) -> None:
    Path("t.csv").write_text("a,s\n1,x\none,y\n1,y\n")
    ran = assess("t.csv", "--qi", "a", "--sensitive", "s", "--json")
    assert (ran.json["k"], ran.json["classes"]) == (1, 2)


def test_a_column_of_missing_values(assess: Run) -> None:
    Path("t.csv").write_text("a,b,s\n,1,\n,1,\n")
    ran = assess("t.csv", "--qi", "a,b", "--sensitive", "s", "--json")
    assert (ran.json["k"], ran.json["l"], ran.json["t"], ran.json["basic_beta"]) == (2, 1, 0.0, 0.0)
    refused(assess("t.csv", "--qi", "a", "--missing", "drop"), "no row is left", "--missing value")
    assert assess("t.csv", "--qi", "a", "--missing", "wildcard", "--json").json["k"] == 2


def test_one_row(assess: Run) -> None:
    Path("t.csv").write_text("a,s\n1,x\n")
    ran = assess("t.csv", "--qi", "a", "--sensitive", "s", "--json").json
    assert (ran["k"], ran["l"], ran["alpha"], ran["entropy_l"], ran["recursive_c"]) == (1, 1, 1.0, 1.0, 1.0)
    assert (ran["t"], ran["basic_beta"], ran["enhanced_beta"], ran["delta_disclosure"]) == (0.0, 0.0, 0.0, 0.0)


def test_constant_columns(assess: Run) -> None:
    Path("t.csv").write_text("a,s\n" + "1,7\n" * 5)
    for distance in ("auto", "equal", "ordered", "scaled"):
        ran = assess("t.csv", "--qi", "a", "--sensitive", "s", "--distance", distance, "--json").json
        assert (ran["k"], ran["t"]) == (5, 0.0)


def test_thousands_of_columns(assess: Run) -> None:
    names = [f"c{i}" for i in range(1_500)]
    Path("wide.csv").write_text("\n".join([",".join(names), *[",".join(["1"] * 1_500)] * 3]))
    assert assess("wide.csv", "--qi", "c0,c1499", "--sensitive", "c5", "--json").json["k"] == 3
    with pytest.raises(sf.errors.ColumnError, match=r"there is no column 'c1500' \(did you mean 'c500' or 'c150'"):
        sf.Schema([sf.Column(name=name) for name in names])["c1500"]


def test_infinite_and_missing_numbers(assess: Run) -> None:
    Path("t.csv").write_text("q,s\n-0.0,1\n0.5,inf\n-inf,2\nnan,3\n-inf,2\n")
    ran = assess("t.csv", "--qi", "q", "--sensitive", "s", "--json").json
    assert (ran["rows"], ran["classes"], ran["k"]) == (5, 4, 1)
    refused(
        assess("t.csv", "--qi", "q", "--sensitive", "s", "--distance", "scaled"),
        "the scaled distance needs finite numbers, and column 's' has others too",
    )


def test_dates_and_decimals(assess: Run) -> None:
    Path("t.csv").write_text("born,price,s\n2020-01-01,1.5,2020-05-05\n2020-01-01,1.5,2021-05-05\n")
    ran = assess("t.csv", "--qi", "born,price", "--sensitive", "s", "--json").json
    assert (ran["k"], ran["by_sensitive"]["s"]["distance"]) == (2, "ordered")
    assert ran["witnesses"]["k"]["class"] == {"born": "2020-01-01", "price": "1.5"}


def test_names_with_html_in_them_are_harmless(assess: Run) -> None:
    name = "<script>alert(1)</script>"
    Path("t.csv").write_text(f"{name},s\n" + "<img src=x onerror=alert(2)>,a&b\n" * 12)
    ran = assess("t.csv", "--qi", name, "--sensitive", "s", "--report", "page.html", "--json")
    assert ran.code == 0
    page = Path("page.html").read_text()
    assert page.count("<script") == 1  # our own
    assert name not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;img src=x" in page


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--require", "k=ten"], ["the guarantee 'k' needs a number, got 'ten'"]),
        (["--require", "k=0"], ["k must be a whole number of at least 1, got 0"]),
        (["--require", "q=3"], ["the guarantee 'q' is unknown", "known: k, alpha, l"]),
        (["--require", ""], ["the guarantee '' is unknown"]),
        (["--require", "l=3"], ["l needs a sensitive attribute", "--sensitive"]),
        (["--missing", "never"], ["--missing", "never", "value"]),
        (["--distance", "far"], ["--distance", "far"]),
        (["--qii", "age"], ["--qii"]),
        (["--separator", "ab"], ["the separator must be one ASCII character, got 'ab'"]),
        (["--schema", "nowhere.toml"], ["'nowhere.toml' cannot be read: No such file"]),
        (["--report", "nowhere/page.html"], ["'nowhere/page.html' cannot be written: there is no folder 'nowhere'"]),
        (
            ["--sensitive", "sex", "--distance", "ordered"],
            ["the ordered distance needs a number", "'sex' is a category"],
        ),
        (["--sensitive", "sex", "--distance", "hierarchical"], ["needs a hierarchy, and column 'sex' has none"]),
    ],
)
def test_a_wrong_option(assess: Run, options: list[str], parts: list[str]) -> None:
    refused(assess("t.csv", "--qi", "age", *options), *parts)


def test_a_wrong_command(sfumato: Run) -> None:
    refused(sfumato("asses"), "there is no command 'asses' (did you mean 'assess'?)")
    refused(sfumato("assess"), "FILE")
    refused(sfumato("demo", "-o", "/proc/nowhere"), "cannot be made")


def test_a_schema_of_another_table(assess: Run) -> None:
    Path("s.toml").write_text('[columns.agee]\nrole = "quasi"\n')
    refused(assess("t.csv", "--schema", "s.toml"), "column 'agee' that the table lacks (did you mean 'age'?)")
    refused(assess("adult", "--schema", "s.toml"), "'adult' is built in")


def test_debug_shows_the_traceback(assess: Run) -> None:
    ran = assess("nowhere.csv", "--qi", "age", "--debug")
    assert ran.code == 2
    assert "Traceback" in ran.err


def test_an_unexpected_error_is_one_sentence_too(assess: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("SECRET")

    monkeypatch.setattr("sfumato.assess", broken)
    ran = assess("t.csv", "--qi", "age")
    refused(ran, "something unexpected went wrong (ZeroDivisionError)", "--debug")
    assert "SECRET" not in ran.err


def test_a_report_is_not_written_when_the_assessment_fails(assess: Run) -> None:
    Path("page.html").write_text("old")
    assess("t.csv", "--qi", "nobody", "--report", "page.html")
    assert Path("page.html").read_text() == "old"


def test_a_population_that_does_not_fit(assess: Run) -> None:
    Path("p.csv").write_text("age,zip\n30,1\n30,1\n30,1\n")
    refused(assess("t.csv", "--qi", "sex", "--population", "p.csv"), "lacks the quasi-identifier 'sex'")
    refused(assess("t.csv", "--qi", "age", "--population", "p.csv"), "lacks 1 of the 2 classes of the table (1 rows)")
    refused(assess("t.csv", "--qi", "age", "--population", "nowhere.csv"), "there is no file 'nowhere.csv'")
    refused(assess("t.csv", "--qi", "age", "--population-size", "2"), "population")
    refused(assess("t.csv", "--qi", "age", "--threshold", "7"), "threshold must be a number from 0 to 1, got 7")
    refused(assess("t.csv", "--qi", "age", "--preset", "gdpr"), "--preset", "gdpr")


def test_a_file_that_is_read_is_not_written(assess: Run, sfumato: Run) -> None:
    refused(assess("t.csv", "--qi", "age", "--report", "./t.csv"), "is read and cannot be written too")
    refused(sfumato("schema", "t.csv", "-o", "t.csv"), "is read and cannot be written too")
    assert Path("t.csv").read_text() == TABLE
    refused(assess("t.csv", "--qi", "age", "--report", "."), "its name must end in .html")


def test_a_record_that_was_read_as_the_header_is_not_shown(assess: Run) -> None:
    Path("t.csv").write_text("John Smith,1970-01-01,HIV\nJane Doe,1971-01-01,flu\n")
    ran = assess("t.csv", "--qi", "age")
    refused(ran, "there is no column 'age'", "does the table have a header line?")
    assert "HIV" not in ran.err


def test_a_schema_with_the_wrong_shapes(assess: Run) -> None:
    for line in ("domain = 5", "hierarchy = 5", "bounds = 5", "role = 5", "kind = []"):
        Path("s.toml").write_text(f"[columns.age]\n{line}\n")
        refused(assess("t.csv", "--qi", "age", "--schema", "s.toml"), "age")


def test_a_column_name_with_a_line_break_is_one_sentence(assess: Run) -> None:
    refused(assess("t.csv", "--qi", "a\nb"), "there is no column 'a b'")


def test_a_date_beyond_the_calendar_is_no_panic(assess: Run) -> None:
    import polars as pl

    pl.DataFrame({"d": pl.Series([2**30, 2**30], dtype=pl.Int32).cast(pl.Date)}).write_parquet("far.parquet")
    assert assess("far.parquet", "--qi", "d", "--json").json["k"] == 2


RECORDS = "34,f,02139,ada@example.org,influenza\n41,m,02139,bob@example.org,ulcer\n"


def test_a_lost_header_is_named_and_no_cell_of_the_first_record_is_shown(sfumato: Run) -> None:
    Path("t.csv").write_text(RECORDS)
    for arguments in (
        ["assess", "--qi", "age"],
        ["assess", "--qi", "influenz"],
        ["schema"],
        ["schema", "--json"],
        ["anonymize", "--qi", "02138", "--k", "2", "-o", "release"],
        ["mask", "--noise", "34=1", "-o", "masked.csv"],
    ):
        ran = sfumato(arguments[0], "t.csv", *arguments[1:])
        refused(ran, "'t.csv' seems to have no header line", "names of the columns in the first line")
        assert not any(cell in ran.err.replace("'t.csv'", "") for cell in ("34", "ada@", "influenza", "02139"))


def test_a_record_that_is_taken_for_names_is_never_suggested(sfumato: Run) -> None:
    Path("t.csv").write_text(
        "34,f,02139,ada@example.org,influenza\n41,m,02140,bob@example.org,ulcer\n"
    )  # no value twice
    for name in ("influenz", "ada@example.com", "0213", "age"):
        refused(sfumato("assess", "t.csv", "--qi", name), f"there is no column '{name}'", "a header line?")
        assert "influenza" not in sfumato("assess", "t.csv", "--qi", name).err
    Path("t.csv").write_text("34,34\n1,2\n")
    ran = sfumato("assess", "t.csv", "--qi", "age")
    refused(ran, "has the same name for columns 1 and 2")
    assert "34" not in ran.err


def test_numbers_as_names_are_names(sfumato: Run) -> None:
    for header in ("0,1,2", "1,2", "0", "country,2019,2020", "1st visit,sex"):
        columns = header.split(",")
        Path("t.csv").write_text(header + "\n" + f"{','.join(['1'] * len(columns))}\n" * 3)
        assert sfumato("assess", "t.csv", "--qi", columns[-1], "--json").json["k"] == 3


def test_a_lost_header_in_a_sheet_is_named(sfumato: Run) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for line in RECORDS.splitlines():
        book.active.append(line.split(","))
    book.save("t.xlsx")
    refused(sfumato("assess", "t.xlsx", "--qi", "age"), "'t.xlsx' seems to have no header line")


@pytest.mark.parametrize(
    "command",
    [
        ["assess", "{}.csv", "--qi", "age"],
        ["anonymize", "{}.parquet", "--qi", "age", "--k", "2", "-o", "release"],
        ["anonymize", "patients.csv", "--qi", "zip,age", "--k", "2", "-o", "{}"],
        ["anonymize", "patients.csv", "--qi", "zip,age", "--k", "2", "-o", "{}/release.csv"],
        ["assess", "patients.csv", "--qi", "zip,age", "--report", "{}.html"],
        ["schema", "patients.csv", "-o", "{}.toml"],
        ["pseudonymize", "patients.csv", "--columns", "zip", "--key", "{}.key", "-o", "out.csv"],
        ["verify", "{}"],
        ["train", "{}.csv", "--model", "additive", "--target", "disease", "--epsilon", "1", "-o", "models"],
        ["query", "{}.csv", "count", "--epsilon", "1"],
        ["budget", "show", "{}.csv"],
    ],
)
def test_a_path_that_the_system_refuses_is_one_sentence(sfumato: Run, command: list[str]) -> None:
    """As it does with a folder that may not be entered; no user, root included, may use a name of 300 letters."""
    refused(sfumato(*(part.format("x" * 300) for part in command)), "File name too long")

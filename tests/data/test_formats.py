"""Compressed files, JSON lines, sheets, databases of DuckDB, standard input and output."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import duckdb
import openpyxl
import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
FRAME = pl.DataFrame(
    {
        "zip": ["01067", "80331", None],
        "age": [30, None, 41],
        "weight": [50.5, 80.25, None],
        "born": [date(1990, 1, 1), None, date(1979, 5, 5)],
        "seen": [datetime(2023, 1, 1, 10, 30), datetime(2023, 1, 2), None],
        "note": ["=1+1", 'say "so"', "Zoë"],
    }
)
CSV = "zip;sex;hba1c\n01067;f;7,50\n80331;m;6,10\n01067;f;7,50\n80331;m;6,10\n"


@pytest.mark.parametrize("ending", ["csv.gz", "tsv.gz", "csv.zst", "jsonl", "ndjson", "jsonl.gz", "jsonl.zst", "xlsx"])
def test_what_is_written_is_read_back(ending: str, tmp_path: Path) -> None:
    sf.write(FRAME, tmp_path / f"t.{ending}")
    assert sf.read(tmp_path / f"t.{ending}").frame.equals(FRAME)
    assert [path.name for path in tmp_path.iterdir()] == [f"t.{ending}"]


@pytest.mark.parametrize("ending", ["xls", "ods", "duckdb"])
def test_formats_that_are_only_read_are_refused(ending: str, tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match=rf"Sfumato reads \.{ending} files but does not write them"):
        sf.write(FRAME, tmp_path / f"t.{ending}")


def test_only_text_files_are_compressed(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match=r"'t\.parquet\.gz' is a compressed parquet file"):
        sf.write(FRAME, tmp_path / "t.parquet.gz")
    with pytest.raises(sf.errors.FileError, match=r"the format of 't\.gz' is unknown"):
        sf.write(FRAME, tmp_path / "t.gz")


def test_a_compressed_release_stays_compressed(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    release = sf.anonymize(tmp_path / "t.csv.gz", "k=2", qi=["zip", "sex"], to=tmp_path / "o.csv.gz", keep_order=True)
    assert release.assessment.k == 2
    assert gzip.decompress((tmp_path / "o.csv.gz").read_bytes()) == CSV.encode()
    assert sf.read(tmp_path / "t.csv.gz").has_inferred_types


def test_no_formula_is_computed_in_a_sheet_and_no_code_becomes_a_number(tmp_path: Path) -> None:
    sf.write(FRAME, tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    assert sheet is not None
    assert [(cell.value, cell.data_type) for cell in sheet["F"]][1] == ("=1+1", "s")
    assert sheet["A2"].value == "01067"


def test_more_rows_than_a_sheet_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="more than an Excel sheet can hold"):
        sf.write(pl.select(a=pl.repeat(1, 2**20)), tmp_path / "t.xlsx")


def workbook(path: Path, **sheets: list[list[object]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_sheet_is_named_if_there_are_several(tmp_path: Path, sfumato: Run) -> None:
    path = workbook(tmp_path / "t.xlsx", patients=[["age"], [30]], visits=[["cost"], [7]])
    with pytest.raises(
        sf.errors.OptionError, match=r"has 2 sheets \(name one with sheet / --sheet: patients, visits\)"
    ):
        sf.read(path)
    with pytest.raises(sf.errors.OptionError, match="has no sheet 'visit'"):
        sf.read(path, sheet="visit")
    assert sf.read(path, sheet="visits").frame.rows() == [(7,)]
    assert sfumato("assess", str(path), "--sheet", "patients", "--qi", "age", "--json").json["rows"] == 1
    refused(sfumato("assess", str(path), "--qi", "age"), "has 2 sheets", "--sheet")
    with pytest.raises(sf.errors.OptionError, match="a sheet can be named only for an Excel file"):
        sf.read(workbook(tmp_path / "t.xlsx", a=[["age"]]).rename(tmp_path / "t.csv"), sheet="x")


def test_empty_sheets_do_not_count(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", Sheet1=[], Sheet2=[["age"], [30]], Sheet3=[])
    assert sf.read(path).frame.rows() == [(30,)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("not json\n", "cannot be read as jsonl"),
        ('{"a": 1}\n{"a":', "cannot be read as jsonl"),
        ('[{"a": 1}]', "cannot be read as jsonl"),
        ('{"a": 1}\n{"a": true}\n', "cannot be read as jsonl"),
    ],
)
def test_json_lines_that_cannot_be_read_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(sf.errors.FileError, match=message):
        sf.read(tmp_path / "t.jsonl")


def test_json_lines_keep_their_types(tmp_path: Path) -> None:
    lines = [{"zip": "01067", "n": 1, "born": "31.12.1980"}, {"zip": "2", "n": None, "born": None}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = sf.read(tmp_path / "t.jsonl")
    assert table.frame.rows() == [("01067", 1, date(1980, 12, 31)), ("2", None, None)]
    assert table.has_inferred_types  # a line more can change them
    assert table.as_declared().column("born").to_list() == ["31.12.1980", None]  # for private answers it may not


def database(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_table_of_a_duckdb_file_is_named_if_there_are_several(tmp_path: Path, sfumato: Run) -> None:
    path = database(
        tmp_path / "c.duckdb", "CREATE TABLE patients AS SELECT * FROM (VALUES (30, 'f'), (41, 'm')) t(age, sex)"
    )
    assert sf.assess(path, qi=["age"]).rows == 2
    database(path, "CREATE SCHEMA old", 'CREATE TABLE old."a.b" AS SELECT 1 AS x', "CREATE VIEW young AS SELECT 1 AS y")
    with pytest.raises(
        sf.errors.OptionError, match=r"has 3 tables \(name one with table / --table: it holds old.a.b, pat"
    ):
        sf.read(path)
    assert sf.read(path, table="patients").schema.names == ("age", "sex")
    assert sf.read(path, table="old.a.b").schema.names == ("x",)
    with pytest.raises(sf.errors.InputError, match="has no table 'patient'"):
        sf.read(path, table="patient")
    assert sfumato("assess", str(path), "--table", "patients", "--qi", "sex", "--json").json["k"] == 1
    refused(sfumato("assess", str(path), "--qi", "sex"), "has 3 tables", "--table")


def test_a_duckdb_file_that_is_none_is_refused_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="there is no file"):
        sf.read(tmp_path / "c.duckdb")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c.duckdb").write_text("nonsense" * 1000)
    with pytest.raises(sf.errors.FileError, match="cannot be opened: it is damaged"):
        sf.read(tmp_path / "c.duckdb")
    with pytest.raises(sf.errors.OptionError, match="is a database"):
        sf.read(tmp_path / "c.duckdb", decimal=",")


def test_a_view_of_a_stranger_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    path = database(tmp_path / "c.duckdb", f"CREATE VIEW v AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')")
    with pytest.raises(sf.errors.InputError, match=r"the table 'v' of .* cannot be read"):
        sf.read(path)


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.fixture
def piped(sfumato: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    def run(*arguments: str, content: bytes = CSV.encode("cp1252")) -> Ran:
        feed(monkeypatch, content)
        return sfumato(*arguments)

    return run


def test_a_table_comes_from_the_standard_input_and_goes_to_the_standard_output(piped: Run) -> None:
    assert piped("assess", "-", "--qi", "zip,sex", "--json").json["k"] == 2
    assert piped("assess", "-", "--qi", "zip,sex", "--json", content=CSV.encode("utf-16")).json["rows"] == 4
    ran = piped("anonymize", "-", "--qi", "zip,sex", "--k", "2", "--keep-order", "-o", "-")
    assert (ran.code, ran.out) == (0, CSV), ran.err
    assert "The release is in the standard output" in ran.err
    ran = piped("mask", "-", "--top", "hba1c=7", "-o", "-")
    assert ran.out == CSV.replace("7,50", "7,0")


def test_what_cannot_go_to_the_standard_output_is_refused(piped: Run) -> None:
    common = ["-", "--qi", "zip,sex", "--k", "2", "-o", "-"]
    refused(piped("anonymize", *common, "--json"), "--json and -o - both write to the standard output")
    refused(piped("schema", "-", "-o", "-"), "schema does not write to the standard output")
    refused(piped("assess", "-", "--qi", "zip", "--population", "-"), "the standard input can be read only once")
    refused(piped("assess", "-", "--qi", "zip", content=b""), "'the standard input' is empty")


def test_pseudonyms_go_through_a_pipe_and_back(piped: Run) -> None:
    piped("key", "new", "k.key")
    options = ["--columns", "zip", "--method", "encrypted", "--key", "k.key", "-o", "-"]
    ran = piped("pseudonymize", "-", *options)
    assert ran.code == 0, ran.err
    assert "01067" not in ran.out
    assert piped("pseudonymize", "-", *options, "--reverse", content=ran.out.encode()).out == CSV

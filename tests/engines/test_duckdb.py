from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given

import sfumato as sf
from sfumato.data.io.source import File
from sfumato.engines import DuckDB, Memory, Recoding, reduce
from tests.engines import cases

ENGINE = DuckDB()


@pytest.mark.parametrize("case", cases.FRAMES)
def test_relations_are_counted_as_in_memory(case: str) -> None:
    frame = cases.FRAMES[case].drop("span", strict=False)  # neither reads DuckDB's spans, see below
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()))
    cases.assert_counts_as_memory(ENGINE, table, sf.Table(frame) if case == "names that need quotes" else None)


@pytest.mark.parametrize("case", cases.FRAMES)
def test_a_column_without_rows_keeps_its_type(case: str) -> None:
    frame = cases.FRAMES[case].drop("span", strict=False)
    full, empty = (
        ENGINE.joint_count(sf.Table(duckdb.from_arrow(rows.to_arrow())), frame.columns)
        for rows in (frame, frame.head(0))
    )
    assert empty.codes.shape == (0, len(frame.columns))
    assert [domain.values.dtype for domain in empty.domains] == [domain.values.dtype for domain in full.domains]


@given(cases.rows(max_size=30))
def test_any_relation_is_counted_as_in_memory(frame: pl.DataFrame) -> None:
    cases.assert_counts_as_memory(ENGINE, sf.Table(duckdb.from_arrow(frame.to_arrow())), sf.Table(frame))


def test_a_disk_that_is_too_full_for_a_recoding_is_named(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
import duckdb
import sfumato as sf
from sfumato.engines import Recoding
from sfumato.engines import DuckDB

duckdb.sql("SET enable_progress_bar = false")  # which DuckDB prints after two seconds, on a busy machine
table = sf.Table(duckdb.sql("SELECT range % 3 AS a, hash(range) AS b FROM range(1_000_000)"))
tuples = DuckDB().count(table, "a")
sys.dont_write_bytecode = True  # a compiled module that is cut off would be kept
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
spill = Path(sys.argv[1])
try:
    DuckDB().recode(table, Recoding(tuples, []), spill / "to.csv")
except sf.errors.InputError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.stdout.startswith(f"the disk of the folder '{tmp_path}' is too full for a copy of the rows"), ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_connection_of_a_relation_must_be_open() -> None:
    connection = duckdb.connect()
    table = sf.Table(connection.sql("SELECT 1 AS a"))
    tuples = ENGINE.count(table, "a")
    connection.close()
    with pytest.raises(sf.errors.InputError, match="the connection of the DuckDB relation is closed"):
        ENGINE.count(table, "a")
    with pytest.raises(sf.errors.InputError, match="the connection of the DuckDB relation is closed"):
        ENGINE.recode(table, Recoding(tuples, []))


def test_a_relation_keeps_the_limits_of_its_connection() -> None:
    connection = duckdb.connect(config={"memory_limit": "30MB", "temp_directory": ""})
    table = sf.Table(connection.sql("SELECT 'text number ' || range AS a FROM range(3_000_000)"))
    with pytest.raises(sf.errors.InputError, match=r"than its connection has \(raise its memory_limit"):
        ENGINE.count(table, "a")
    assert connection.execute("SELECT current_setting('memory_limit')").fetchone() == ("28.6 MiB",)


def test_a_span_in_duckdb_is_no_plain_type() -> None:
    with pytest.raises(sf.errors.InputError, match="only plain types: cast others in a view, a duration to seconds"):
        ENGINE.count(sf.Table(duckdb.sql("SELECT INTERVAL 1 MONTH AS a")), "a")


# How the same texts can be in a table: DuckDB would count some of those that differ as one.
COLLATED = {
    "of a column": "CREATE TABLE t (row INT, s VARCHAR COLLATE NOCASE)",
    "of accents": "CREATE TABLE t (row INT, s VARCHAR COLLATE NOCASE.NOACCENT)",
    "of a connection": "PRAGMA default_collation = NOCASE; CREATE TABLE t (row INT, s VARCHAR)",
    "of documents": "PRAGMA default_collation = NOCASE; CREATE TABLE t (row INT, s JSON)",
}


@pytest.mark.parametrize("collation", COLLATED)
def test_a_collation_merges_no_texts(collation: str) -> None:
    connection = duckdb.connect()
    connection.execute(COLLATED[collation])
    texts = ['"a"', '"A"', '"b"', '"b"', None, '"é"', '"É"', '"e"']
    connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(texts)))
    table = sf.Table(connection.table("t"))
    frame = sf.Table(pl.DataFrame({"row": range(len(texts)), "s": texts}))
    cases.assert_same(ENGINE.count(table, "s"), Memory().count(frame, "s"))
    recoded = ENGINE.recode(table, numbered(table, ["s"])).frame
    expected = Memory().recode(frame, numbered(frame, ["s"])).frame
    assert recoded.order("row").pl()["s"].to_list() == expected["s"].to_list()


def test_endless_moments_are_counted() -> None:
    table = sf.Table(duckdb.sql("SELECT unnest(['infinity'::TIMESTAMP, '-infinity', '2024-01-01']) AS a"))
    assert ENGINE.count(table, "a").count.tolist() == [1, 1, 1]


def test_a_panic_over_a_relation_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*values: Any) -> None:
        raise pl.exceptions.PanicException("a value of a person")

    monkeypatch.setattr(pl.Series, "cast", panic)
    with pytest.raises(sf.errors.InputError, match="the table holds values that cannot be counted") as refusal:
        ENGINE.count(sf.Table(duckdb.sql("SELECT 1 AS a")), "a")
    assert "person" not in str(refusal.value)


def test_an_interrupted_relation_is_an_interruption() -> None:
    connection = duckdb.connect()
    table = sf.Table(connection.sql("SELECT hash(range) AS a FROM range(20_000_000)"))
    for stop in (lambda: os.kill(os.getpid(), signal.SIGINT), connection.interrupt):
        timer = threading.Timer(0.5, stop)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ENGINE.count(table, "a")
        timer.join()


def test_lists_are_refused() -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'a' holds list values"):
        ENGINE.count(sf.Table(duckdb.sql("SELECT [1] AS a")), "a")


def test_progress_ends_with_everything() -> None:
    told: list[float] = []
    ENGINE.count(sf.Table(duckdb.sql("SELECT range % 7 AS a FROM range(600_000)")), "a", told.append)
    assert told == [1.0]

    def stop(share: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ENGINE.count(sf.Table(duckdb.sql("SELECT 1 AS a")), "a", stop)


def numbered(table: sf.Table, names: list[str]) -> Recoding:
    """Every tuple becomes its number, in the last of the columns."""
    tuples = reduce(table, names)
    return Recoding(tuples, [pl.Series(names[-1], [f"g{number}" for number in range(len(tuples.count))])])


@pytest.mark.parametrize("case", cases.FRAMES)
def test_a_relation_is_recoded_as_a_frame_is(case: str) -> None:
    frame = cases.FRAMES[case].drop("span", strict=False).with_row_index("row")
    names = frame.columns[1:]
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()))
    recoded = ENGINE.recode(table, numbered(table, names)).frame
    assert recoded.columns == frame.columns
    expected = Memory().recode(sf.Table(frame), numbered(sf.Table(frame), names)).frame
    assert recoded.order("row").pl()[names[-1]].to_list() == expected[names[-1]].to_list()


def test_a_recoded_relation_is_lazy_and_lives_on() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT range % 3 AS a, range AS b FROM range(6)")
    table = sf.Table(connection.table("t"))
    recoded = ENGINE.recode(table, numbered(table, ["a"])).frame
    connection.execute("INSERT INTO t VALUES (0, 6)")
    assert sorted(recoded.fetchall(), key=lambda row: row[1]) == [(f"g{b % 3}", b) for b in range(7)]


def test_recoding_a_relation_keeps_the_order_of_its_rows() -> None:
    table = sf.Table(duckdb.sql("SELECT range AS row, hash(range) % 1000 AS a FROM range(500_000)"))
    recoded = ENGINE.recode(table, numbered(table, ["a"])).frame
    assert recoded.pl()["row"].equals(pl.int_range(500_000, eager=True))


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "arrow"])
def test_a_recoding_is_written_as_one_file(ending: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["x", None, "y"], "f": [0.5, float("nan"), None], "n": [1, 2, 3]})
    expected = [("g0", 1), ("g2", 2), ("g1", 3)]
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()))
    tuples = ENGINE.joint_count(table, ["f", "a"])
    new = pl.Series("a", [f"g{number}" for number in range(len(tuples.count))])
    to = tmp_path / f"to.{ending}"
    result = ENGINE.recode(table, Recoding(tuples, [new]), to)
    assert result.source == File(to)
    assert result.source.read().sort("n").select("a", "n").rows() == expected
    assert sorted(path.name for path in tmp_path.glob("*to.*")) == [to.name]


def test_nothing_is_left_of_a_recoding_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = pl.DataFrame({"a": ["x", "y"], "b": [b"1", b"2"]})
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()).project("a, [1] AS b"))
    to = tmp_path / "to.csv"
    to.write_text("as it was")
    with pytest.raises(sf.errors.FileError, match="csv cannot hold values of these types"):
        ENGINE.recode(table, numbered(table, ["a"]), to)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("to.csv", "as it was")]
    broken = sf.Table(duckdb.sql("SELECT range AS a, error('broken') AS b FROM range(3)"))
    with pytest.raises(sf.errors.InputError):
        ENGINE.recode(broken, Recoding(ENGINE.count(broken, "a"), []), to)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("to.csv", "as it was")]

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings

import sfumato as sf
from sfumato.data.io.source import File, Source
from sfumato.engines import DuckDB, Memory, Recoding
from tests.engines import cases

SMALL = DuckDB(memory_limit="100MB")

# Two million tuples of 40 letters, in a process of its own, with what is left in the spill folder afterwards.
FULL = """
import resource, sys
from pathlib import Path
import polars as pl
import sfumato as sf
from sfumato.engines import DuckDB

spill = Path(sys.argv[1])
if sys.argv[2] == "small files":
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
frame = pl.DataFrame({"a": pl.int_range(2_000_000, eager=True).cast(pl.String).str.zfill(40)})
try:
    DuckDB(memory_limit="60MB", spill=spill).count(sf.Table(frame), "a")
except sf.errors.InputError as error:
    print(error, list(spill.iterdir()))
"""


def written(frame: pl.DataFrame, path: Path) -> sf.Table:
    sf.write(frame, path)
    return sf.Table(File(path))


WAYS: dict[str, Callable[[pl.DataFrame, Path], sf.Table]] = {
    "polars": lambda frame, folder: sf.Table(frame),
    "lazy": lambda frame, folder: sf.Table(frame.lazy()),
    "pandas": lambda frame, folder: sf.Table(frame.to_pandas()),
    "pyarrow": lambda frame, folder: sf.Table(frame.to_arrow()),
    "parquet": lambda frame, folder: written(frame, folder / "x.parquet"),
    "arrow": lambda frame, folder: written(frame, folder / "x.arrow"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", cases.FRAMES)
def test_frames_and_files_are_counted_as_in_memory(case: str, way: str, tmp_path: Path) -> None:
    frame = cases.FRAMES[case]
    table = WAYS[way](frame, tmp_path)
    cases.assert_counts_as_memory(SMALL, table, sf.Table(frame) if case == "names that need quotes" else None)


@pytest.mark.parametrize("case", cases.FRAMES)
def test_relations_are_counted_as_in_memory(case: str) -> None:
    frame = cases.FRAMES[case].drop("span", strict=False)  # neither reads DuckDB's spans, see below
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()))
    cases.assert_counts_as_memory(SMALL, table, sf.Table(frame) if case == "names that need quotes" else None)


@pytest.mark.parametrize("case", cases.FRAMES)
def test_a_column_without_rows_keeps_its_type(case: str) -> None:
    frame = cases.FRAMES[case].head(0)
    tuples = SMALL.joint_count(sf.Table(frame), frame.columns)
    assert tuples.codes.shape == (0, len(frame.columns))
    for domain, dtype in zip(tuples.domains, frame.dtypes, strict=True):
        assert domain.values.dtype == (pl.String if isinstance(dtype, pl.Categorical | pl.Enum) else dtype)


@pytest.mark.parametrize("case", sorted(set(cases.TEXTS) - {"names that need quotes"}))
def test_text_files_are_counted_as_in_memory(case: str, tmp_path: Path) -> None:
    cases.assert_counts_as_memory(SMALL, sf.Table(cases.text_file(tmp_path / "x.csv", case)))


def test_a_name_in_a_text_file_is_no_pattern(tmp_path: Path) -> None:
    file = cases.text_file(tmp_path / "x.csv", "names that need quotes")
    tuples = SMALL.joint_count(sf.Table(file), file.text.names)
    assert [domain.values.to_list() for domain in tuples.domains] == [[1], [2], [3]]
    assert tuples.count.tolist() == [2]


@pytest.mark.parametrize("name", cases.PATHS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_path_is_no_pattern(name: str, ending: str, tmp_path: Path) -> None:
    for other in ("1", "aXb", "whatX"):
        sf.write(pl.DataFrame({"a": ["other"]}), tmp_path / f"{other}.{ending}")
    cases.assert_counts_as_memory(SMALL, written(pl.DataFrame({"a": [3, 1, 3]}), tmp_path / f"{name}.{ending}"))


@settings(max_examples=40)
@given(cases.rows(max_size=30))
def test_any_frame_is_counted_as_in_memory(frame: pl.DataFrame) -> None:
    cases.assert_counts_as_memory(SMALL, sf.Table(frame))


@pytest.mark.parametrize("content", [b"a,b\n1,2\n3\n", b"a,b\n1,2\n3,4,5\n", b'a,b\n1,2\n3,"4\n', b"a,b\n1,\x81\n"])
def test_a_text_file_that_memory_refuses_is_refused_in_the_same_words(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    said = []
    for engine in (SMALL, Memory()):
        with pytest.raises(sf.errors.InputError) as refusal:
            engine.joint_count(sf.Table(File(path)), ["a"])
        said.append(str(refusal.value))
    assert said[0] == said[1]


def test_the_last_field_decides_what_a_column_of_a_million_integers_is(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{row},1\n" for row in range(1_000_000)) + "x,1\n")
    tuples = SMALL.joint_count(sf.Table(File(path)), ["a"])
    assert tuples.domains[0].values.dtype == pl.String
    assert len(tuples.count) == 1_000_001


def test_what_exceeds_the_memory_is_spilled_and_counted_right(tmp_path: Path) -> None:
    tuples = 2_000_000
    frame = pl.DataFrame({"a": pl.int_range(tuples, eager=True).cast(pl.String).str.zfill(40)})
    spilled = []

    def look(share: float) -> None:
        spilled.append(sum(file.stat().st_size for file in tmp_path.glob("*/*")))

    counted = DuckDB(memory_limit="60MB", spill=tmp_path).count(sf.Table(pl.concat([frame, frame[::2]])), "a", look)
    assert max(spilled) > 20_000_000
    assert counted.count.tolist() == [2, 1] * (tuples // 2)
    assert counted.domains[0].values.equals(frame["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, tmp_path, "small files"], capture_output=True, text=True)
    assert ran.stdout.strip() == (
        f"the disk of the folder '{tmp_path}' is too full for the data that DuckDB spills "
        "(raise memory_limit / --memory, or set spill / TMPDIR to a folder with more space) []"
    ), ran.stderr


def test_a_disk_that_is_too_full_for_a_decoded_copy_is_no_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "é,1\n" * 500_000, encoding="latin-1")
    program = """
import resource, sys
from pathlib import Path
import sfumato as sf
from sfumato.data.io.source import File
from sfumato.engines import DuckDB

resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    DuckDB().count(sf.Table(File(Path(sys.argv[1]), encoding="latin-1")), "a")
except sf.errors.InputError as error:
    print(error)
"""
    spill = tmp_path / "spill"
    spill.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(spill)}
    )
    assert ran.stdout.strip() == (
        f"the disk of the folder '{spill}' is too full for a copy of the rows (set TMPDIR to a folder with more space)"
    ), ran.stderr
    assert list(spill.iterdir()) == []


def test_a_disk_that_is_too_full_for_a_recoding_is_named(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
import duckdb
import sfumato as sf
from sfumato.engines import Recoding
from sfumato.engines import DuckDB

table = sf.Table(duckdb.sql("SELECT range % 3 AS a, hash(range) AS b FROM range(1_000_000)"))
tuples = DuckDB().count(table, "a")
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
spill = Path(sys.argv[1])
try:
    DuckDB(spill=spill).recode(table, Recoding(tuples, []), spill / "to.csv")
except sf.errors.InputError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert ran.stdout.startswith(f"the disk of the folder '{tmp_path}' is too full for a copy of the rows"), ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_small_file_system_is_named_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=8m none "$1" && shift && exec "$@"'
    mounted = ["unshare", "-rm", "sh", "-c", mount, "sh", tmp_path]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("this system does not let users mount a file system of their own")
    ran = subprocess.run([*mounted, sys.executable, "-c", FULL, tmp_path, ""], capture_output=True, text=True)
    assert ran.stdout.startswith(f"the disk of the folder '{tmp_path}' is too full"), ran.stderr
    assert ran.stdout.endswith("[]\n")


def test_a_limit_that_is_too_small_is_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": pl.int_range(1_000_000, eager=True).cast(pl.String)})
    with pytest.raises(sf.errors.InputError, match=r"its memory_limit of 5MB in DuckDB.*raise memory_limit / --memory"):
        DuckDB(memory_limit="5MB", spill=tmp_path).count(sf.Table(frame), "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["", "much", "2", "-2GB", "2GB; DROP TABLE x", "GB", 2])
def test_a_limit_needs_a_number_and_a_unit(limit: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="memory_limit must be a number with a unit"):
        DuckDB(memory_limit=limit)


@pytest.mark.parametrize("limit", ["99999999999999999999TB", f"{'9' * 400}GB"])
def test_a_limit_is_one_that_duckdb_understands(limit: str) -> None:
    with pytest.raises(
        sf.errors.OptionError, match=f"memory_limit is not a size that DuckDB understands, got '{limit}'"
    ):
        DuckDB(memory_limit=limit)


def test_the_spill_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.OptionError, match="spill must be a folder that exists"):
        DuckDB(spill=tmp_path / "absent")


def test_a_truncated_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": pl.int_range(100_000, eager=True).cast(pl.String)}).write_parquet(path)
    table = sf.Table(File(path))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(sf.errors.FileError, match="cannot be read as parquet: it is damaged"):
        SMALL.count(table, "a")


def test_the_connection_of_a_relation_must_be_open() -> None:
    connection = duckdb.connect()
    table = sf.Table(connection.sql("SELECT 1 AS a"))
    tuples = SMALL.count(table, "a")
    connection.close()
    with pytest.raises(sf.errors.InputError, match="the connection of the DuckDB relation is closed"):
        SMALL.count(table, "a")
    with pytest.raises(sf.errors.InputError, match="the connection of the DuckDB relation is closed"):
        SMALL.recode(table, Recoding(tuples, []))


def test_a_relation_keeps_the_limits_of_its_connection() -> None:
    connection = duckdb.connect(config={"memory_limit": "30MB", "temp_directory": ""})
    table = sf.Table(connection.sql("SELECT 'text number ' || range AS a FROM range(3_000_000)"))
    with pytest.raises(sf.errors.InputError, match=r"than its connection has \(raise its memory_limit"):
        DuckDB(memory_limit="2GB").count(table, "a")
    assert connection.execute("SELECT current_setting('memory_limit')").fetchone() == ("28.6 MiB",)


def test_a_span_in_duckdb_is_no_plain_type() -> None:
    with pytest.raises(sf.errors.InputError, match="has only plain types"):
        SMALL.count(sf.Table(duckdb.sql("SELECT INTERVAL 1 MONTH AS a")), "a")


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
    cases.assert_same(SMALL.count(table, "s"), Memory().count(frame, "s"))
    recoded = SMALL.recode(table, numbered(table, ["s"])).frame
    expected = Memory().recode(frame, numbered(frame, ["s"])).frame
    assert recoded.order("row").pl()["s"].to_list() == expected["s"].to_list()


def test_endless_moments_are_counted() -> None:
    table = sf.Table(duckdb.sql("SELECT unnest(['infinity'::TIMESTAMP, '-infinity', '2024-01-01']) AS a"))
    assert SMALL.count(table, "a").count.tolist() == [1, 1, 1]


def test_a_panic_over_a_relation_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*values: Any) -> None:
        raise pl.exceptions.PanicException("a value of a person")

    monkeypatch.setattr(pl.Series, "cast", panic)
    with pytest.raises(sf.errors.InputError, match="the table holds values that cannot be counted") as refusal:
        SMALL.count(sf.Table(duckdb.sql("SELECT 1 AS a")), "a")
    assert "person" not in str(refusal.value)


def test_half_precision_is_counted_as_in_memory(tmp_path: Path) -> None:
    halves = pl.Series([0.1, None, float("nan"), -0.0, 0.0, 0.1, 65504.0, float("-inf")]).cast(pl.Float16)
    table = written(pl.DataFrame({"a": halves}), tmp_path / "x.parquet")
    cases.assert_counts_as_memory(SMALL, table)


@pytest.mark.parametrize("moment", [0.05, 0.3, 0.6])
def test_an_interrupted_count_is_an_interruption(moment: float, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": pl.int_range(2_000_000, eager=True).cast(pl.String).str.zfill(40)})
    sent = threading.Event()

    def interrupt(share: float) -> None:
        if share >= moment and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        DuckDB(memory_limit="60MB", spill=tmp_path).count(sf.Table(frame), "a", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_relation_is_an_interruption() -> None:
    connection = duckdb.connect()
    table = sf.Table(connection.sql("SELECT hash(range) AS a FROM range(20_000_000)"))
    for stop in (lambda: os.kill(os.getpid(), signal.SIGINT), connection.interrupt):
        timer = threading.Timer(0.5, stop)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            SMALL.count(table, "a")
        timer.join()


def test_lists_are_refused() -> None:
    for table in (sf.Table(pl.DataFrame({"a": [[1]]})), sf.Table(duckdb.sql("SELECT [1] AS a"))):
        with pytest.raises(sf.errors.ColumnError, match="column 'a' holds list values"):
            SMALL.count(table, "a")


class Elsewhere(Source):
    """Rows that DuckDB does not know."""

    def types(self) -> dict[str, pl.DataType]:
        return {"a": pl.String()}

    def rows(self) -> int:
        return 0

    def read(self, names: Any = None) -> pl.DataFrame:
        raise AssertionError

    def sample(self, rows: int, names: Any) -> pl.DataFrame:
        raise AssertionError


def test_rows_in_another_database_are_refused() -> None:
    table = sf.Table(Elsewhere())
    with pytest.raises(sf.errors.OptionError, match=r"the engine duckdb cannot count a Elsewhere.*use the engine auto"):
        SMALL.count(table, "a")
    recoding = Recoding(Memory().count(sf.Table(pl.DataFrame({"a": ["x"]})), "a"), [])
    with pytest.raises(sf.errors.OptionError, match="its rows are elsewhere"):
        SMALL.recode(table, recoding)


def test_progress_never_decreases_and_ends_with_everything(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": pl.int_range(600_000, eager=True) % 7, "b": "x"})
    for way in (*WAYS.values(), lambda frame, folder: written(frame, folder / "x.csv")):
        told: list[float] = []
        SMALL.joint_count(way(frame, tmp_path), ["a"], told.append)
        assert told == sorted(told)
        assert told[-1] == 1.0
        assert len(set(told)) > 2
    told = []
    SMALL.count(sf.Table(duckdb.from_arrow(frame.to_arrow())), "a", told.append)
    assert told == [1.0]


def test_what_goes_wrong_in_telling_is_raised(tmp_path: Path) -> None:
    def stop(share: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        DuckDB(spill=tmp_path).count(sf.Table(pl.DataFrame({"a": [1]})), "a", stop)
    assert list(tmp_path.iterdir()) == []


def numbered(table: sf.Table, names: list[str]) -> Recoding:
    """Every tuple becomes its number, in the last of the columns."""
    tuples = SMALL.joint_count(table, names)
    return Recoding(tuples, [pl.Series(names[-1], [f"g{number}" for number in range(len(tuples.count))])])


@pytest.mark.parametrize("case", cases.FRAMES)
def test_a_relation_is_recoded_as_a_frame_is(case: str) -> None:
    frame = cases.FRAMES[case].drop("span", strict=False).with_row_index("row")
    names = frame.columns[1:]
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()))
    recoded = SMALL.recode(table, numbered(table, names)).frame
    assert recoded.columns == frame.columns
    expected = Memory().recode(sf.Table(frame), numbered(sf.Table(frame), names)).frame
    assert recoded.order("row").pl()[names[-1]].to_list() == expected[names[-1]].to_list()


def test_a_recoded_relation_is_lazy_and_lives_on() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT range % 3 AS a, range AS b FROM range(6)")
    table = sf.Table(connection.table("t"))
    recoded = SMALL.recode(table, numbered(table, ["a"])).frame
    connection.execute("INSERT INTO t VALUES (0, 6)")
    assert sorted(recoded.fetchall(), key=lambda row: row[1]) == [(f"g{b % 3}", b) for b in range(7)]


def test_recoding_a_relation_keeps_the_order_of_its_rows() -> None:
    table = sf.Table(duckdb.sql("SELECT range AS row, hash(range) % 1000 AS a FROM range(500_000)"))
    recoded = SMALL.recode(table, numbered(table, ["a"])).frame
    assert recoded.pl()["row"].equals(pl.int_range(500_000, eager=True))


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "arrow"])
def test_a_recoding_is_written_as_one_file(ending: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["x", None, "y"], "f": [0.5, float("nan"), None], "n": [1, 2, 3]})
    expected = [("g0", 1), ("g2", 2), ("g1", 3)]
    for table in (
        sf.Table(duckdb.from_arrow(frame.to_arrow())),
        sf.Table(frame),
        written(frame, tmp_path / "from.parquet"),
        written(frame, tmp_path / "from.csv"),
    ):
        tuples = SMALL.joint_count(table, ["f", "a"])
        new = pl.Series("a", [f"g{number}" for number in range(len(tuples.count))])
        to = tmp_path / f"to.{ending}"
        result = SMALL.recode(table, Recoding(tuples, [new]), to)
        assert result.source == File(to)
        assert result.source.read().sort("n").select("a", "n").rows() == expected
        assert sorted(path.name for path in tmp_path.glob("*to.*")) == [to.name]


@pytest.mark.parametrize("case", sorted(set(cases.TEXTS) - {"no rows", "names that need quotes"}))
def test_a_text_file_is_recoded_with_the_types_of_the_whole_file(case: str, tmp_path: Path) -> None:
    file = cases.text_file(tmp_path / "x.csv", case)
    whole = sf.Table(file.read())
    recoding = numbered(sf.Table(file), list(whole.schema.names[:1]))
    recoded = SMALL.recode(sf.Table(file), recoding).frame
    assert isinstance(recoded, pl.LazyFrame)
    assert recoded.collect().equals(Memory().recode(whole, recoding).frame)


def test_nothing_is_left_of_a_recoding_that_fails(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["x", "y"], "b": [b"1", b"2"]})
    table = sf.Table(duckdb.from_arrow(frame.to_arrow()).project("a, [1] AS b"))
    to = tmp_path / "to.csv"
    to.write_text("as it was")
    with pytest.raises(sf.errors.FileError, match="csv cannot hold values of these types"):
        DuckDB(spill=tmp_path).recode(table, numbered(table, ["a"]), to)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("to.csv", "as it was")]
    broken = sf.Table(duckdb.sql("SELECT range AS a, error('broken') AS b FROM range(3)"))
    with pytest.raises(sf.errors.InputError):
        DuckDB(spill=tmp_path).recode(broken, Recoding(SMALL.count(broken, "a"), []), to)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("to.csv", "as it was")]

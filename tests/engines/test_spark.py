from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import HealthCheck, given, settings

import sfumato as sf
from sfumato.data.io.source import File
from sfumato.engines import Memory, Recoding, Spark
from tests.engines import cases

# What Spark has a type for.
PLAIN = cases.EVERYTHING.select(
    ~(cs.unsigned_integer() | cs.time() | cs.duration() | cs.datetime("ns") | cs.by_dtype(pl.Null))
)
SPARKS = PLAIN.with_columns(cs.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))

# A task kills the Java that runs it, once: that of a worker, or in local mode that of the session.
KILLED = """
import os, sys
from pathlib import Path
import pyspark
for part in Path(pyspark.__file__).parent.iterdir():  # workers leave their logs in Spark's home
    Path(sys.argv[2], part.name).symlink_to(part)
os.environ["SPARK_HOME"] = sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import sfumato as sf
from sfumato.engines import Spark

builder = (
    SparkSession.builder.master(sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.log.level", "OFF")
)

def count(frame):
    try:
        print(Spark().count(sf.Table(frame), "a", lambda share: None).count.tolist(), flush=True)
    except sf.errors.InputError as error:
        print(error)

session = builder.getOrCreate()
if sys.argv[1].startswith("local["):  # first one that is stopped, and then another one that dies
    gone = session.range(3).toDF("a")
    session.stop()
    count(gone)
    session = builder.getOrCreate()

def kill_once(rows):
    import os, signal, subprocess
    from pyspark import TaskContext
    task = TaskContext.get()
    if task.partitionId() == 1 and task.attemptNumber() == 0:
        java = subprocess.run(["ps", "-o", "ppid=", "-p", str(os.getppid())], capture_output=True).stdout
        os.kill(int(java), signal.SIGKILL)
    for row in rows:
        yield (row % 5,)

rows = session.sparkContext.parallelize(range(40), 4).mapPartitions(kill_once)
count(session.createDataFrame(rows, "a int"))
"""


@pytest.fixture(autouse=True)
def active(spark: Any) -> Iterator[None]:
    """There is a session, which is the active one."""
    yield
    assert spark.range(1).count() == 1  # nobody has stopped it


def test_a_spark_frame_is_counted_as_in_memory(spark: Any) -> None:
    quoted = cs.starts_with("names that need quotes")
    frame = SPARKS.select(~quoted)
    cases.assert_counts_as_memory(Spark(), sf.Table(spark.createDataFrame(frame.to_arrow())))
    frame = SPARKS.select(quoted)
    cases.assert_counts_as_memory(Spark(), sf.Table(spark.createDataFrame(frame.to_arrow())), sf.Table(frame))


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UTF8_BINARY_RTRIM", "UNICODE_CI_AI"])
def test_a_collation_merges_no_texts(collation: str, spark: Any) -> None:
    texts = ["a", "A", "a ", "b", "b", None, "é", "e"]
    frame = sf.Table(pl.DataFrame({"row": range(len(texts)), "s": texts}))
    rows = spark.createDataFrame(list(enumerate(texts)), "row long, s string")
    table = sf.Table(rows.selectExpr("row", f"s COLLATE {collation} AS s"))
    cases.assert_same(Spark().count(table, "s"), Memory().count(frame, "s"))
    marks = [f"g{number}" for number in range(7)]
    recoded = Spark().recode(table, Recoding(Spark().count(table, "s"), [pl.Series("s", marks)])).frame
    expected = Memory().recode(frame, Recoding(Memory().count(frame, "s"), [pl.Series("s", marks)])).frame
    assert [row.s for row in recoded.orderBy("row").collect()] == expected["s"].to_list()


def test_a_panic_over_a_spark_frame_is_one_sentence(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*values: Any) -> None:
        raise pl.exceptions.PanicException("a value of a person")

    table = sf.Table(spark.range(2))
    monkeypatch.setattr(pl.Series, "to_numpy", panic)
    with pytest.raises(sf.errors.InputError, match="the table holds values that cannot be counted") as refusal:
        Spark().count(table, "id")
    assert "person" not in str(refusal.value)


def test_names_that_differ_in_their_case_are_told_apart(spark: Any) -> None:
    frame = pl.DataFrame({"Rows": [1, 1], "rows": ["a", "b"], "count": [None, None]})
    both = spark.createDataFrame([(1, "a", None), (1, "b", None)], "x long, y string, z string").toDF(*frame.columns)
    cases.assert_counts_as_memory(Spark(), sf.Table(both), sf.Table(frame.cast({"count": pl.String})))


def test_columns_without_rows_keep_their_types(spark: Any) -> None:
    frame = SPARKS.select(~cs.datetime()).head(0)
    table = sf.Table(spark.createDataFrame(frame.to_arrow()))
    tuples = Spark().joint_count(table, table.schema.names)
    assert tuples.codes.shape == (0, len(table.schema.names))
    assert [domain.values.dtype for domain in tuples.domains] == [frame[name].dtype for name in table.schema.names]


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(cases.rows(max_size=30))
def test_any_frame_is_counted_as_in_memory(spark: Any, frame: pl.DataFrame) -> None:
    cases.assert_counts_as_memory(Spark(), sf.Table(spark.createDataFrame(frame.to_arrow())))


def test_progress_never_decreases_and_ends_with_everything(spark: Any) -> None:
    def slowly(rows: Any) -> Any:
        time.sleep(0.25)  # progress is told five times in a second
        return ((row % 3,) for row in rows)

    frame = spark.createDataFrame(spark.sparkContext.parallelize(range(60), 6).mapPartitions(slowly), "a int")
    spark.sparkContext.setJobGroup("theirs", "what the user does")
    told: list[float] = []
    assert Spark().count(sf.Table(frame), "a", told.append).count.tolist() == [20, 20, 20]
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert any(0 < share < 1 for share in told)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "theirs"

    def stop(share: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        Spark().count(sf.Table(frame), "a", stop)


def test_a_job_that_fails_is_one_sentence_without_a_record(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id AS a, IF(id = 2, raise_error('secret'), id) AS b FROM range(3)")
    table = sf.Table(frame)
    with pytest.raises(sf.errors.InputError, match="Spark cannot finish the job") as failure:
        Spark().count(table, "b")
    assert "secret" not in str(failure.value)
    to = tmp_path / "to.csv"
    to.write_text("as it was")
    with pytest.raises(sf.errors.InputError, match="Spark cannot finish the job"):
        Spark().recode(table, Recoding(Spark().count(table, "a"), []), to)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("to.csv", "as it was")]


def numbered(engine: Any, table: sf.Table, names: list[str]) -> Recoding:
    """Every tuple becomes its number, in the last of the columns, and a moment in the first."""
    tuples = engine.joint_count(table, names)
    numbers = range(len(tuples.count))
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=number) for number in numbers]
    return Recoding(tuples, [pl.Series(names[-1], [f"g{number}" for number in numbers]), pl.Series(names[0], moments)])


def test_a_spark_frame_is_recoded_as_a_frame_is(spark: Any) -> None:
    frame = SPARKS.with_row_index("row").with_columns(pl.col("row").cast(pl.Int32))
    names = frame.columns[1:]
    table = sf.Table(spark.createDataFrame(frame.to_arrow()))
    recoded = pl.DataFrame(Spark().recode(table, numbered(Spark(), table, names)).frame.toArrow()).sort("row")
    expected = Memory().recode(sf.Table(frame), numbered(Memory(), sf.Table(frame), names)).frame
    assert recoded.columns == expected.columns
    changed = [names[0], names[-1]]
    assert recoded.select(changed).equals(expected.select(changed))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_recoding_is_written_as_one_file(ending: str, spark: Any, tmp_path: Path) -> None:
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    frame = pl.DataFrame({"a": ["x", None, "y"], "f": [0.5, float("nan"), None], "n": [1, 2, 3], "when": [noon] * 3})
    to = tmp_path / f"to.{ending}"
    table = sf.Table(spark.createDataFrame(frame.to_arrow()).repartition(3))
    tuples = Spark().joint_count(table, ["f", "a"])
    new = pl.Series("a", [f"g{number}" for number in range(len(tuples.count))])
    result = Spark().recode(table, Recoding(tuples, [new]), to)
    assert result.source == File(to)
    assert result.source.read().sort("n").select("a", "n").rows() == [("g0", 1), ("g2", 2), ("g1", 3)]
    if ending == "parquet":
        assert result.source.read()["when"].to_list() == [noon] * 3
    assert [path.name for path in tmp_path.glob("*to.*")] == [to.name]


def run(program: str, *arguments: str | Path, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr  # a thread of pyspark may print its own trouble there
    return ran.stdout


def test_a_worker_that_dies_costs_no_row(tmp_path: Path) -> None:
    assert run(KILLED, "local-cluster[1,1,1024]", tmp_path) == "[8, 8, 8, 8, 8]\n"


def test_a_session_that_was_stopped_and_one_that_dies_are_named(tmp_path: Path) -> None:
    stopped, died = run(KILLED, "local[2]", tmp_path).splitlines()
    for said in (stopped, died):
        assert said.startswith("the Spark session is gone: it was stopped, or its process")

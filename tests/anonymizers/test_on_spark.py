"""Mondrian in Spark: the same groups, and the same release, as in one process."""

from __future__ import annotations

import datetime as dt
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato.anonymizers import on_spark
from sfumato.anonymizers.mondrian import mondrian
from sfumato.anonymizers.on_spark import OnSpark, mondrian_on_spark
from sfumato.anonymizers.publish import Members, Output, publish

from .problems import TREE, Case, cases, whole_table_keeps

ODD = 'a name with "quotes", `ticks`.and dots'


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small table is cut into parts here."""
    monkeypatch.setattr(on_spark, "_FEWEST", 4)


def batches(one: Case) -> list[Any]:
    """The distinct tuples with their sensitive values and records, as Spark hands them to two workers."""
    names = [*one.quasi, *one.sensitive]
    tuples = one.frame.select(names).group_by(names, maintain_order=True).len("records")
    plain = tuples.with_columns(pl.col("records").cast(pl.Int64)).to_arrow()
    return [plain.slice(0, 7).combine_chunks(), plain.slice(7).combine_chunks()]


def summed(workers: list[Any], count: Callable[..., Iterator[Any]], shape: tuple[int, int]) -> NDArray[np.int64]:
    """Add up what workers count, without Spark."""
    sums = np.zeros(shape, dtype=np.int64)
    for worker in workers:
        for cells in count(iter(worker.to_batches())):
            np.add.at(sums.ravel(), cells["cell"].to_numpy(), cells["records"].to_numpy())
    return sums


@given(one=cases(), output=st.sampled_from(list(Output)), cores=st.integers(1, 3))
def test_parts_of_a_table_make_the_groups_of_the_whole(one: Case, output: Output, cores: int) -> None:
    if not whole_table_keeps(one):
        return
    problem = one.problem
    layout = on_spark._layout(problem)
    workers = [
        pyarrow.Table.from_batches(on_spark._coded(layout, iter(each.to_batches()))) for each in batches(one)[:1]
    ]
    for each in batches(one)[1:]:
        coded = list(on_spark._coded(layout, iter(each.to_batches())))
        workers.append(pyarrow.Table.from_batches(coded, workers[0].schema))
    cuts = on_spark._first_cuts(partial(summed, workers), layout, cores)
    parted = pyarrow.concat_tables(
        pyarrow.Table.from_batches(on_spark._parted(layout, cuts, iter(each.to_batches()))) for each in workers
    )
    counts = [np.bincount(codes, weights=problem.records).astype(np.int64) for codes in problem.codes.T]
    arrow = [domain.values.to_arrow().type for domain in problem.domains]
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    generalised = np.zeros(len(one.quasi), dtype=bool)
    marked = []
    for part in sorted(set(parted["part"].to_pylist())):
        rows = parted.filter(pyarrow.compute.equal(parted["part"], part))
        finished = pl.DataFrame(on_spark._finished(layout, output, counts, arrow, rows))
        before, after = finished.select("^before.*$").rows(), finished.select("^after.*$").rows()
        assert not found.keys() & set(before)
        found |= dict(zip(before, after, strict=True))
        summary = finished["summary"].drop_nulls().to_list()
        assert len(summary) == 1
        marked.append(bool(summary[0][2]))
        generalised |= np.array(summary[0][3 : 3 + len(one.quasi)], dtype=bool)
    groups = mondrian(problem)
    published = publish(problem, Members.of(problem, groups), output)
    expected = [series.gather(groups).to_list() for series in published]
    tuples = [
        domain.values.gather(codes).to_list() for domain, codes in zip(problem.domains, problem.codes.T, strict=True)
    ]
    assert len(found) == len(problem)
    for index, row in enumerate(zip(*tuples, strict=True)):
        for column, text in enumerate(found[row]):
            as_text = output in (Output.INTERVAL, Output.LEVEL)
            if all(marked) and column == 0 and as_text:
                assert expected[0][index] == "*"
            elif as_text and not generalised[column]:
                assert expected[column][index] == row[column]
            else:
                assert expected[column][index] == text


def people(rows: int) -> tuple[pl.DataFrame, sf.Schema]:
    """A table with a column of every kind, and missing values in most."""
    random = np.random.default_rng(0)
    day = dt.date(1999, 12, 31)
    noon = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)

    def some(values: Any) -> list[Any]:
        return [None if random.random() < 0.1 else value for value in values]

    frame = pl.DataFrame(
        {
            "name": [f"person {row}" for row in range(rows)],
            "row": range(rows),
            "age": some(random.integers(18, 90, rows).tolist()),
            "born": some(day + dt.timedelta(days=int(days)) for days in random.integers(0, 900, rows)),
            "admitted": [noon + dt.timedelta(hours=int(hours)) for hours in random.integers(0, 50, rows)],
            "weight": [float("nan") if random.random() < 0.1 else kg / 2 for kg in random.integers(100, 200, rows)],
            ODD: some(random.choice(list("abcdef"), rows).tolist()),
            "grade": some(random.choice(["low", "mid", "high"], rows).tolist()),
            "country": ["nowhere"] * rows,
            "disease": some(random.choice(["flu", "ulcer", "cancer"], rows).tolist()),
            "pay": random.choice([10, 20, 50], rows).tolist(),
        },
        strict=False,
    )
    schema = sf.Schema(
        [
            sf.Column(name="name", role="identifier"),
            *(sf.Column(name=name, role="quasi") for name in ("age", "born", "admitted", "weight", "country")),
            sf.Column(name=ODD, role="quasi", hierarchy=TREE),
            sf.Column(name="grade", role="quasi", kind="ordinal", domain=("low", "mid", "high")),
            *(sf.Column(name=name, role="sensitive") for name in ("disease", "pay")),
        ]
    )
    return frame, schema


def assert_same(done: OnSpark, release: sf.Release) -> None:
    """The rows, what was measured and what was lost are those of a release made in this process."""
    rows, expected = pl.DataFrame(done.table.frame.toArrow()).sort("row"), release.table.frame.sort("row")
    assert rows.schema == expected.schema
    for name in rows.columns:
        assert rows[name].equals(expected[name]), name
    assert done.assessment.to_dict() == release.assessment.to_dict()
    ours, theirs = done.loss.to_dict(), release.loss.to_dict()
    assert ours.pop("kl") is None
    theirs.pop("kl")
    for name, column in ours.pop("by_column").items():
        assert column == pytest.approx(theirs["by_column"][name]), name
    theirs.pop("by_column")
    assert ours == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("asked", "output"), [("k=4,l=2,t=0.6", "interval"), ("k=3", "level"), ("k=3", "mean")], ids=str
)
def test_a_release_is_the_same_as_in_one_process(asked: str, output: str, spark: Any) -> None:
    frame, schema = people(400)
    kept = spark.sparkContext._jsc.getPersistentRDDs
    before = len(kept())
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        table = sf.Table(spark.createDataFrame(frame.to_arrow()).repartition(3), schema)
        done = mondrian_on_spark(table, list(sf.Guarantee.parse(asked)), output=output)
        assert done.parts > 2
        assert_same(done, sf.anonymize(frame, asked, method=sf.Mondrian(output=output), schema=schema))
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    del done
    gc.collect()
    assert len(kept()) == before


def test_many_tuples_are_joined_without_being_sent_to_all(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "_SENT_TO_ALL", 10)
    frame, schema = people(150)
    table = sf.Table(spark.createDataFrame(frame.to_arrow()), schema)
    done = mondrian_on_spark(table, [sf.KAnonymity(3)])
    assert_same(done, sf.anonymize(frame, "k=3", schema=schema))


def test_what_cannot_be_anonymized_is_named_as_in_one_process(spark: Any) -> None:
    frame = pl.DataFrame({"age": [20, 30, 40], "disease": ["flu", "flu", "ulcer"]})
    for rows, asked, star in (
        (frame, "k=4", False),
        (frame, "l=3", False),
        (frame.head(0), "k=2", False),
        (frame, "k=2", True),
    ):
        given_rows = rows.with_columns(age=pl.lit("*")) if star else rows
        said = []
        for way in (
            lambda data: mondrian_on_spark(data, list(sf.Guarantee.parse(asked))),
            partial(sf.anonymize, guarantees=asked),
        ):
            data = given_rows if said else spark.createDataFrame(given_rows.to_arrow())
            with pytest.raises(sf.InputError) as refusal:
                way(sf.Table.of(data, qi=["age"], sensitive=["disease"]))
            said.append(str(refusal.value))
        assert said[0] == said[1]


def test_a_table_in_one_group_is_the_mark(spark: Any) -> None:
    frame = pl.DataFrame({"row": [1, 2, 3], "age": [20, None, 40], "sex": ["f", None, "m"]})
    done = mondrian_on_spark(
        sf.Table.of(spark.createDataFrame(frame.to_arrow()), qi=["age", "sex"]), [sf.KAnonymity(3)]
    )
    assert_same(done, sf.anonymize(frame, "k=3", qi=["age", "sex"]))
    assert {(row.age, row.sex) for row in done.table.frame.collect()} == {("*", "*")}


def test_workers_without_sfumato_are_named(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o700)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(sf.InputError, match="the workers of Spark cannot import sfumato"):
        mondrian_on_spark(sf.Table.of(spark.range(20), qi=["id"]), [sf.KAnonymity(2)])


# A task kills the worker that runs it, once.
KILLED = """
import os, sys
from pathlib import Path
import pyspark
for part in Path(pyspark.__file__).parent.iterdir():  # workers leave their logs in Spark's home
    Path(sys.argv[1], part.name).symlink_to(part)
os.environ["SPARK_HOME"] = sys.argv[1]
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import sfumato as sf
from sfumato.anonymizers import on_spark

on_spark._FEWEST = 10
session = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.log.level", "OFF")
    .getOrCreate()
)

def kill_once(rows, flag):
    import os, signal, subprocess
    from pathlib import Path
    from pyspark import TaskContext
    if TaskContext.get().partitionId() == 1 and not Path(flag).exists():
        Path(flag).touch()
        java = subprocess.run(["ps", "-o", "ppid=", "-p", str(os.getppid())], capture_output=True).stdout
        os.kill(int(java), signal.SIGKILL)
    for row in rows:
        yield (row * 7 % 50,)

flag = sys.argv[2]
rows = session.sparkContext.parallelize(range(200), 2).mapPartitions(lambda rows: kill_once(rows, flag))
table = sf.Table.of(session.createDataFrame(rows, "a int"), qi=["a"])
done = on_spark.mondrian_on_spark(table, [sf.KAnonymity(8)])
print(done.assessment.rows, done.assessment.k, done.groups)
"""


def test_a_worker_that_dies_costs_no_row(tmp_path: Path) -> None:
    home, flag = tmp_path / "spark", tmp_path / "killed"
    home.mkdir()
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, home, flag], env=os.environ, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "200 8 25\n"
    assert flag.exists()

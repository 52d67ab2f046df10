"""Mondrian in Spark: the same groups, and the same release, as in one process."""

from __future__ import annotations

import datetime as dt
import gc
import sys
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
from sfumato.anonymizers import Output
from sfumato.anonymizers.mondrian import spark as on_spark
from sfumato.anonymizers.mondrian import spark_cuts as first_cuts
from sfumato.anonymizers.mondrian.mondrian import mondrian
from sfumato.anonymizers.mondrian.spark import OnSpark, mondrian_on_spark
from sfumato.anonymizers.mondrian.spark_cuts import Count, TupleLayout, pack, unpack
from sfumato.anonymizers.problem import with_hierarchies
from sfumato.anonymizers.publish import Members, publish
from tests.anonymizers.test_people import ROLES as OF_PEOPLE
from tests.anonymizers.test_people import visits

from .problems import TREE, Case, cases, whole_table_keeps

ODD = 'a name with "quotes", `ticks`.and dots'


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small table is cut into parts here."""
    monkeypatch.setattr(first_cuts, "_FEWEST", 4)


def batches(one: Case) -> list[Any]:
    """The distinct tuples with their sensitive values and records, as Spark hands them to two workers."""
    names = [*one.quasi, *one.sensitive]
    tuples = one.frame.select(names).group_by(names, maintain_order=True).len("records")
    plain = tuples.with_columns(pl.col("records").cast(pl.Int64)).to_arrow()
    return [plain.slice(0, 7).combine_chunks(), plain.slice(7).combine_chunks()]


def summed(workers: list[Any], layout: TupleLayout, count: Count, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Add up what workers count, without Spark."""
    sums = np.zeros(shape, dtype=np.int64)
    for worker in workers:
        for cell, records in count(*unpack(layout, worker.to_batches())):
            np.add.at(sums.ravel(), cell, records)
    return sums


@given(one=cases(), output=st.sampled_from(list(Output)), cores=st.integers(1, 3))
def test_parts_of_a_table_make_the_groups_of_the_whole(one: Case, output: Output, cores: int) -> None:
    if not whole_table_keeps(one):
        return
    problem = with_hierarchies(one.problem) if output is Output.LEVEL else one.problem
    layout = TupleLayout.of(problem)
    schema = pyarrow.schema([(name, pyarrow.int64()) for name in layout.names])
    workers = [pyarrow.Table.from_batches(pack(layout, iter(each.to_batches())), schema) for each in batches(one)]
    cuts = first_cuts.first_cuts(partial(summed, workers, layout), layout, cores)
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
            if all(marked) and column == 0 and not output.is_value:
                assert expected[0][index] == "*"
            elif not output.is_value and not generalised[column]:
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
            sf.Column(name="row", role="kept"),
            *(sf.Column(name=name, role="quasi") for name in ("age", "born", "admitted", "weight", "country")),
            sf.Column(name=ODD, role="quasi", hierarchy=TREE),
            sf.Column(name="grade", role="quasi", kind="ordinal", domain=("low", "mid", "high")),
            *(sf.Column(name=name, role="sensitive") for name in ("disease", "pay")),
        ]
    )
    return frame, schema


def assert_same(done: OnSpark | sf.Release, release: sf.Release) -> None:
    """The rows, what was measured and what was lost are those of a release made in this process."""
    rows, expected = pl.DataFrame(done.table.frame.toArrow()).sort("row"), release.table.frame.sort("row")
    assert rows.schema == expected.schema
    for name in rows.columns:
        assert rows[name].equals(expected[name]), name
    measured, theirs = done.assessment.to_dict(), release.assessment.to_dict()
    assert measured.pop("kept").keys() == theirs.pop("kept").keys()  # why not is found by `sf.anonymize`
    assert measured == theirs
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


def test_a_spark_frame_is_released_as_one_and_only_spark_saves_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here its tuples are too many to be sent to all workers."""
    monkeypatch.setattr(on_spark, "SENT_TO_ALL", 10)
    frame, schema = people(150)
    release = sf.anonymize(spark.createDataFrame(frame.to_arrow()), "k=3", schema=schema)
    expected = sf.anonymize(frame, "k=3", schema=schema)
    assert type(release.table.frame).__module__.startswith("pyspark.")
    assert_same(release, expected)
    assert release.details["groups"] == expected.assessment.classes
    assert release.before.to_dict() == expected.before.to_dict()
    with pytest.raises(sf.errors.InputError, match=r"cannot be saved.*write it with Spark.*or fetch the table"):
        sf.save(release, tmp_path / "release")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ages", "asked"), [([20, 30, 40], "k=4"), ([20, 30, 40], "l=3"), ([], "k=2"), (["*", "a", "a"], "k=2")], ids=str
)
def test_what_cannot_be_anonymized_is_named_as_in_one_process(ages: list[Any], asked: str, spark: Any) -> None:
    diseases = pl.Series(["flu", "flu", "ulcer"][: len(ages)], dtype=pl.String)
    frame = pl.DataFrame({"age": ages, "disease": diseases}, schema_overrides=None if ages else {"age": pl.Int64})
    table = sf.Table.of(spark.createDataFrame(frame.to_arrow()), qi=["age"], sensitive=["disease"])
    with pytest.raises(sf.errors.InputError) as refusal:
        mondrian_on_spark(table, list(sf.Guarantee.parse(asked)))
    with pytest.raises(sf.errors.InputError) as expected:
        sf.anonymize(frame, asked, qi=["age"], sensitive=["disease"])
    assert str(refusal.value) == str(expected.value)


def test_a_table_in_one_group_is_the_mark(spark: Any) -> None:
    frame = pl.DataFrame({"row": [1, 2, 3], "age": [20, None, 40], "sex": ["f", None, "m"]})
    done = mondrian_on_spark(
        sf.Table.of(spark.createDataFrame(frame.to_arrow()), qi=["age", "sex"]), [sf.KAnonymity(3)]
    )
    assert_same(done, sf.anonymize(frame, "k=3", qi=["age", "sex"]))
    assert {(row.age, row.sex) for row in done.table.frame.collect()} == {("*", "*")}


def test_workers_without_sfumato_are_named(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    ours = Path(sf.__file__).parents[1]  # in the path of the tests, where these run without an installation
    path = f'PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : "\\n" | grep -Fvx "{ours}" | paste -sd : -)'
    bare.write_text(f'#!/bin/sh\n{path} exec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o700)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(sf.errors.InputError, match="the workers of Spark cannot import sfumato"):
        mondrian_on_spark(sf.Table.of(spark.range(20), qi=["id"]), [sf.KAnonymity(2)])


def test_people_are_counted(spark: Any, tmp_path: Path) -> None:
    frame = visits()
    frame.write_parquet(tmp_path / "visits.parquet")
    here = sf.anonymize(frame, "k=5", **OF_PEOPLE)
    there = sf.anonymize(spark.read.parquet(str(tmp_path / "visits.parquet")), "k=5", **OF_PEOPLE)
    assert there.assessment.numbers() == here.assessment.numbers()
    assert (there.unit, there.table.schema.names) == ("person", ("age", "place", "month", "disease"))

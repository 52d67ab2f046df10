"""Synthetic tables of data that stay where they are: counts there are those of memory, and so is the generator."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.database import Database
from sfumato.errors import ColumnError, SchemaError, SfumatoError
from sfumato.synthesizers.tables.base import Recoding
from sfumato.synthesizers.tables.columns.description import Description
from sfumato.synthesizers.tables.columns.domain import Domain
from sfumato.synthesizers.tables.engine_records import describe_elsewhere
from sfumato.synthesizers.tables.methods.aim import Aim
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
from tests.effort import effort
from tests.postgres import store

PLACES = [(where, "auto") for where in ("duckdb", "duckdb file", "sqlite", "postgresql", "spark")]
everywhere = pytest.mark.parametrize("place", PLACES, ids=" ".join, indirect=True)

_TEXTS = st.sampled_from(["a", "A", " a", "", "1", "1.0", "é", "it's", "x\ny", "%", "?"])
_SHOWN = st.sampled_from(
    ["1", " 2.50 ", "1e3", "-inf", "nan", "NaN", "+.5", "True", "2020-02-29", "2020-02-30", "x", ""]
)
_MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
_NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(-30, 30).map(lambda one: one / 4), st.just(-0.0)
)
VALUES: dict[str, tuple[Any, Any]] = {
    "text": (_TEXTS, pl.String),
    "shown": (_SHOWN, pl.String),
    "day": (_SHOWN, pl.String),
    "real": (_NUMBERS, pl.Float64),
    "whole": (st.integers(-(2**62), 2**62) | st.integers(-3, 30), pl.Int64),
    "kind": (st.integers(-1, 3), pl.Int64),
    "date": (st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)), pl.Date),
    "moment": (_MOMENTS, pl.Datetime("us")),
    "truth": (st.booleans(), pl.Boolean),
    "clock": (st.times(), pl.Time),
    "shift": (st.sampled_from([dt.time(6), dt.time(14, 30), dt.time(22, 0, 0, 500_000)]), pl.Time),
}
DECLARED = sf.Schema(
    [
        sf.Column(name="text", domain=("a", "1.0", "é", "it's", "%", "?", "x\ny")),
        sf.Column(name="shown", kind="number", bounds=(-10, 10_000)),
        sf.Column(name="day", kind="date"),
        sf.Column(name="real", bounds=(-5, 5), step=0.5),
        sf.Column(name="whole", bounds=(0, 20)),
        sf.Column(name="kind", domain=(0, 1, "2.0", "x")),
        sf.Column(name="truth", domain=(True, "False")),
        sf.Column(name="clock", step="15m"),
        sf.Column(name="shift", domain=("06:00:00", "14:30:00", "22:00:00.500000", "22:00")),
    ]
)
BOUNDS = {"day": (18_000.0, 19_000.0), "date": (-1000.0, 20_000.0), "moment": (0.0, 2e9)}
FRAMES = st.lists(st.tuples(*(st.none() | values for values, _ in VALUES.values())), max_size=12).map(
    lambda rows: pl.DataFrame(rows, schema={name: kind for name, (_, kind) in VALUES.items()}, orient="row")
)
FIXED = pl.DataFrame(
    [
        (
            "a",
            " 2.50 ",
            "2020-02-29",
            1.25,
            7,
            0,
            dt.date(1999, 12, 31),
            dt.datetime(2001, 1, 1, 0, 0, 0, 500_000),
            True,
        ),
        (" a", "1e3", "2020-02-30", 0.75, -(2**62), 2, dt.date(1969, 12, 31), dt.datetime(1969, 1, 1), False),
        (None, "-inf", "18001", float("nan"), None, None, None, None, None),
        ("1.0", "True", "True", float("inf"), 2**62, 1, dt.date(2099, 1, 1), dt.datetime(2099, 1, 1), True),
        ("1", "x", "", -4.75, 20, 3, dt.date(1900, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 1, 499_999), False),
        ("é", None, None, 5.0, 21, -1, dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 23, 59, 59), None),
    ],
    schema={name: kind for name, (_, kind) in VALUES.items() if kind != pl.Time},
    orient="row",
)
CLOCKS = {
    "clock": [
        dt.time(23, 59, 59, 999_999),
        dt.time(0),
        None,
        dt.time(0, 7, 30),
        dt.time(0, 22, 30),
        dt.time(12, 34, 5),
    ],
    "shift": [dt.time(6), dt.time(14, 30), None, dt.time(22, 0, 0, 500_000), dt.time(22), dt.time(6, 0, 1)],
}
UNDECLARED = sf.Schema([sf.Column(name="shown", kind="number"), sf.Column(name="day", kind="date")])


def compare(frame: pl.DataFrame, source: Any) -> None:
    """Compare what is counted elsewhere with what is counted in memory."""
    declared = sf.Schema(one for one in DECLARED.columns if one.name in frame.columns)
    here = Description.of(sf.Table(frame, declared))
    there = describe_elsewhere(sf.Table(source, declared))
    assert there is not None
    assert there.rows == len(frame)
    assert [one.values for one in there.described] == [one.values for one in here.described]
    codings = tuple(replace(one, bounds=BOUNDS.get(one.name, one.bounds)).coding() for one in here.described)
    domain = Domain(codings, label=0)
    halves = [Recoding(np.array([0, one.axis.size // 2]), np.array([1, 0])) for one in codings]
    every = [Recoding.identity(one.axis.size) for one in codings]
    few = [at for at, one in enumerate(codings) if one.axis.size < 50]
    alone = [(at,) for at in range(len(codings))]
    pairs = [(at, 0) for at in range(1, len(codings))] + [(4, 5, 8)]
    for tuples, recodings in ((alone, halves), (pairs, halves), ([(at, 0) for at in few if at], every)):
        exact = domain.encode(here.columns).count(tuples, recodings)
        found = there.records(domain).count(tuples, recodings)
        for one, other, columns in zip(exact, found, tuples, strict=True):
            assert one.tolist() == other.tolist(), [codings[at].name for at in columns]
    wanting = Description.of(sf.Table(frame, UNDECLARED))
    counted = describe_elsewhere(sf.Table(source, UNDECLARED))
    assert counted is not None
    for one, exact_ones, found_ones in zip(
        wanting.described, wanting._exact_histograms(), counted._exact_histograms(), strict=True
    ):
        assert [part.tolist() for part in exact_ones] == [part.tolist() for part in found_ones], one.name
    assert wanting._text_counts("text") == counted._text_counts("text")


HUGE = pl.DataFrame(
    {name: [1.79e307] if name == "real" else [None] for name in VALUES},
    schema={name: kind for name, (_, kind) in VALUES.items()},
)


@settings(max_examples=effort(10, 200))
@example(HUGE)
@given(FRAMES.filter(len))
def test_codes_are_counted_in_a_database_as_in_memory(frame: pl.DataFrame) -> None:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/a.db"
        (Path(folder) / "a.db").touch()
        store(url, "t", frame)
        compare(frame, Database(url, "t"))


@everywhere
def test_codes_are_counted_everywhere_as_in_memory(place: Any, request: pytest.FixtureRequest) -> None:
    put, _ = place
    frame = FIXED if "spark" in request.node.name else FIXED.with_columns(pl.DataFrame(CLOCKS))  # Spark has no times
    compare(frame, put(frame))


PEOPLE = pl.DataFrame(
    {
        "age": np.random.default_rng(1).integers(20, 90, 300),
        "pay": np.random.default_rng(2).exponential(1000, 300).round(2),
        "sex": np.random.default_rng(3).choice(["f", "m"], 300),
        "ill": np.random.default_rng(4).choice(["no", "yes"], 300, p=[0.7, 0.3]),
    }
)
KNOWN = sf.Schema([sf.Column(name="age", bounds=(0, 99)), sf.Column(name="ill", domain=("no", "yes"), role="target")])
OPTIONS: dict[str, Any] = {"epsilon": 5, "rows": 50, "ledger": False, "insecure_seed": 1}


@everywhere
def test_a_generator_is_the_same_wherever_the_rows_are(place: Any) -> None:
    put, _ = place
    here = sf.synthesize(sf.Table(PEOPLE, KNOWN), method="independent", **OPTIONS)
    there = sf.synthesize(sf.Table(put(PEOPLE), KNOWN), method="independent", **OPTIONS)
    assert there.table.frame.equals(here.table.frame)
    assert there.artifact.domain == here.artifact.domain
    assert there.spent.epsilon == here.spent.epsilon
    assert not there.artifact.scans


@pytest.mark.parametrize("method", [LabelledTree(pool=500), Aim()], ids=["tree", "aim"])
def test_methods_that_only_count_learn_from_a_database(method: Any, tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    store(f"sqlite:///{tmp_path / 'a.db'}", "t", PEOPLE)
    table = sf.Table(Database(f"sqlite:///{tmp_path / 'a.db'}", "t"), KNOWN)
    release = sf.synthesize(table, 5, method=method, rows=50, ledger=False)
    assert release.table.frame.schema == PEOPLE.schema
    assert "residuals" not in release.artifact.plan.shares
    sf.save(release, tmp_path / "release")
    assert sf.verify(tmp_path / "release").ok


@everywhere
def test_weights_are_added_up_everywhere_as_in_memory(place: Any) -> None:
    put, _ = place
    rng = np.random.default_rng(5)
    some = pl.Series([0.0, 0.5, 33.3, 99.0, 120.0, -4.0, None])
    weights = some.gather(rng.integers(0, len(some), 300))
    frame = PEOPLE.with_columns(weight=weights)
    schema = sf.Schema([*KNOWN.columns, sf.Column(name="weight", bounds=(0, 100))])
    here, there = (
        sf.synthesize(sf.Table(one, schema), method="independent", weights="weight", **OPTIONS)
        for one in (frame, put(frame))
    )
    assert there.table.frame.equals(here.table.frame)
    assert "weight" not in there.table.schema.names
    assert np.array_equal(there.artifact.model.counts[0], here.artifact.model.counts[0])


def test_a_method_that_reads_records_and_unbounded_weights_are_refused_in_one_sentence() -> None:
    import duckdb

    table = sf.Table(duckdb.from_arrow(PEOPLE.to_arrow()), KNOWN)
    with pytest.raises(SfumatoError, match="read"):
        sf.synthesize(table, method="copula", **OPTIONS)
    with pytest.raises(SchemaError, match="the weights 'pay' need a declared upper bound above 0"):
        sf.synthesize(table, weights="pay", **OPTIONS)
    declared = sf.Schema([sf.Column(name="scan", domain=("a",))])
    scans = sf.Table(duckdb.sql("SELECT 'a'::BLOB AS scan, 1 AS n"), declared)
    with pytest.raises(ColumnError, match="column 'scan' has the type Binary, and only numbers"):
        sf.synthesize(scans, **OPTIONS)


def test_what_a_database_is_asked_does_not_depend_on_its_rows(tmp_path: Path) -> None:
    asked: list[list[Any]] = []
    frames = [PEOPLE, PEOPLE.head(-1), PEOPLE.with_columns(sex=pl.lit("Zoe"), age=pl.lit(10**6, dtype=pl.Int64))]
    declared = sf.Schema(
        [
            sf.Column(name="age", bounds=(0, 99)),
            sf.Column(name="pay", bounds=(0, 99), step=1),
            sf.Column(name="sex", domain=("f", "m")),
            sf.Column(name="ill", domain=("no", "yes")),
        ]
    )

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked[-1].append((statement, parameters))

    (tmp_path / "a.db").touch()
    for frame in frames:
        store(f"sqlite:///{tmp_path / 'a.db'}", "t", frame)
        asked.append([])
        sa.event.listen(sa.Engine, "before_cursor_execute", note)
        try:
            table = sf.Table(Database(f"sqlite:///{tmp_path / 'a.db'}", "t"), declared)
            sf.synthesize(table, method="independent", **OPTIONS)
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(asked[0]) > 1
    assert asked[0] == asked[1] == asked[2]

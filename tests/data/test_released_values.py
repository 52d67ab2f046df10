"""Whatever is written by the grammar of released values is read back by it, and means the same."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data import Interval
from sfumato.data.hierarchies.rules import Intervals
from sfumato.data.released_values import (
    DAY,
    read_complement,
    read_range,
    read_set,
    read_span,
    write_complement,
    write_set,
    write_span,
    write_time,
    write_whole,
)
from sfumato.measures.loss.generalised import coverage
from sfumato.measures.loss.universe import universe

ENDS = st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(-100, 100)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(st.tuples(ENDS, ENDS).map(sorted), st.booleans())
def test_a_range_of_whole_numbers_is_read_back(ends: list[int], brackets: bool) -> None:
    low, high = ends
    for text, expected in (
        (write_whole(low, high, brackets=brackets), (low, high)),
        (write_whole(low, math.inf, brackets=brackets), (low, math.inf)),
        (write_whole(-math.inf, high, brackets=brackets), (-math.inf, high)),
    ):
        if low == high and expected == (low, high):
            assert text == str(low)
            continue
        found = Interval.parse(text)
        for number, inside in ((expected[0], True), (expected[1], True), (expected[0] - 1, False)):
            if math.isfinite(number):
                assert (number in found) == inside, text
        if math.isfinite(expected[1]):
            assert expected[1] + 1 not in found


@given(
    st.floats(-(2**53), 2**53) | st.just(-math.inf) | st.integers(-50, 50).map(float),
    st.floats(-(2**53), 2**53) | st.just(math.inf) | st.integers(-50, 50).map(float),
    st.booleans(),
    st.booleans(),
)
def test_the_whole_numbers_of_an_interval_are_those_of_its_text(
    low: float, high: float, left: bool, right: bool
) -> None:
    interval = Interval(low, high, left and math.isfinite(low), right and math.isfinite(high))
    text = interval.whole_text()
    if text.lstrip("-").isdecimal():
        assert [number for number in range(int(text) - 2, int(text) + 3) if number in interval] == [int(text)]
        return
    found = Interval.parse(text)
    near = {math.floor(end) + step for end in (low, high) if math.isfinite(end) for step in range(-2, 3)}
    assert [number in found for number in sorted(near)] == [number in interval for number in sorted(near)]


@given(
    st.integers(-700_000, 2_880_000),
    st.integers(1, 40_000),
    st.sampled_from([DAY, DAY // 24, 60_000_000, 1_000_000, 1]),
)
def test_a_range_of_time_is_read_back(start: int, length: int, tick: int) -> None:
    first, stop = start * DAY, start * DAY + length * tick
    found = read_range(write_time(first, stop), pl.Datetime("us"))
    if found is None:  # a single moment
        assert length * tick == 1
    else:
        assert (found.low, found.high) == (float(first), float(stop - 1))


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_set_is_read_back(members: list[str]) -> None:
    for text in (write_set(members, ()), write_set(members, {write_set(members, ())})):
        assert read_set(text) == members
    assert read_complement(write_complement(members)) == write_set(members, ())
    assert tuple(members[:2]) in read_span(write_span(*members[:2])) if len(members) > 1 else True


@given(
    st.lists(st.integers(-60, 200), min_size=2, max_size=8, unique=True).map(sorted),
    st.lists(st.integers(-60, 200), min_size=1, max_size=20, unique=True),
    st.booleans(),
)
def test_a_level_means_the_same_in_both_notations(cuts: list[int], values: list[int], outside: bool) -> None:
    """The same values, the same ends, the same level: so no loss changes with the notation."""
    ends = [-math.inf, *cuts, math.inf] if outside else [-61, *cuts[1:-1], 201]
    hierarchy = Intervals([ends])
    column = sf.Column(name="q", kind="number", hierarchy=hierarchy)
    of = universe(sf.Table(pl.DataFrame({"q": values}), sf.Schema([column])).encode(["q"]).domains[0])
    plain = pl.Series(hierarchy.labels(values, 1))
    readable = pl.Series(hierarchy.for_whole_numbers().labels(values, 1))
    assert not any(text.startswith(("[", "(")) and "-" not in text for text in readable)
    alone = readable.str.contains(r"^-?\d+$").to_numpy()  # an interval of one number is that number
    one, other = coverage(of, plain), coverage(of, readable)
    for mine, theirs in ((one.low, other.low), (one.high, other.high), (one.size, other.size)):
        assert mine.tolist() == theirs.tolist()
    assert one.level[~alone].tolist() == other.level[~alone].tolist()
    assert [one.covers(np.full(len(of), at), np.arange(len(of))).tolist() for at in range(len(plain))] == [
        other.covers(np.full(len(of), at), np.arange(len(of))).tolist() for at in range(len(plain))
    ]


@pytest.mark.parametrize("method", [sf.Lattice(suppress=0.1), sf.Mondrian(output="level")])
@pytest.mark.parametrize("declared", [True, False])
def test_a_release_on_levels_reads_like_one_of_mondrian(method: sf.Lattice, declared: bool) -> None:
    draw = np.random.default_rng(3)
    rows = pl.DataFrame({"age": draw.integers(18, 91, 400), "weight": draw.normal(70, 9, 400).round(1)})
    ages = sf.Hierarchy.intervals(widths=[5, 10, 20], bounds=(0, 100)) if declared else None
    schema = sf.Schema([sf.Column(name="age", kind="number", hierarchy=ages), sf.Column(name="weight", kind="number")])
    release = sf.anonymize(sf.Table(rows, schema), "k=5", method=method, qi=["age", "weight"])
    texts = {name: set(release.table.frame[name].cast(pl.String)) - {"*", "{*}"} for name in rows.columns}
    assert texts["age"]
    assert all(pl.Series(sorted(texts["age"])).str.contains(r"^(\d+|\d+-\d+|<\d+|\d+\+)$"))
    assert not any(pl.Series(sorted(texts["weight"]), dtype=pl.String).str.contains(r"^\d+-\d+$|\+$|^<"))
    loss = sf.loss(sf.Table(rows, schema), release.aligned, quasi=["age", "weight"])
    assert loss.gcp == pytest.approx(release.loss.gcp)


def test_a_hierarchy_keeps_the_notation_of_its_labels() -> None:
    automatic = sf.Hierarchy.automatic(sf.Column(name="age", kind="number"), range(17, 91))
    assert automatic.labels([17, 39, 90], 3) == ["<20", "20-39", "80+"]
    assert sf.Hierarchy.from_dict(automatic.to_dict()) == automatic
    tree = sf.Hierarchy.tree([(20, "[20, 40)"), (39, "[20, 40)"), (40, "40+")])
    assert tree.for_whole_numbers() is tree

"""A comparison equals its definition, written out slowly, and shows nothing that only a few rows have."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures import ModelAccuracy
from sfumato.measures.loss.generalised import Pairing, pair, pair_codes
from sfumato.measures.loss.information_loss import loss_of
from sfumato.report.bins import SMALLEST_SHOWN, bins_of
from sfumato.report.table.comparison import Comparison, compare, rows_by_size

NAMES = ["age", "city"]
CITIES = ["Atown", "Bville", "Cburg", "Dford"]
EVERYTHING = (0, 9, frozenset(CITIES))

# A row, what it is released as (lowest age, highest age, cities), and how many rows are like that.
Row = tuple[int, str, tuple[int, int, frozenset[str]], int]


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made = []
    for age, city in draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(CITIES)), min_size=1, max_size=12)):
        low, high = draw(st.integers(0, age)), draw(st.integers(age, 9))
        others = draw(st.frozensets(st.sampled_from(CITIES), max_size=3))
        released = draw(st.sampled_from([EVERYTHING, *[(low, high, others | {city})] * 4]))
        made.append((age, city, released, draw(st.integers(1, 40))))
    return made


def tables(made: list[Row]) -> tuple[sf.Table, pl.DataFrame]:
    """Return both tables; the domain and the bounds are public, so that everything is the same in each."""
    schema = sf.Schema(
        [
            sf.Column(name="age", kind="number", bounds=(0, 9), role="quasi"),
            sf.Column(name="city", domain=CITIES, role="quasi"),
        ]
    )
    original, released = [], []
    for age, city, (low, high, cities), times in made:
        original += [(age, city)] * times
        suppressed = (low, high, cities) == EVERYTHING
        released += [("*", "*") if suppressed else (f"[{low}, {high}]", "{" + ", ".join(sorted(cities)) + "}")] * times
    frames = [pl.DataFrame(each, schema=NAMES, orient="row") for each in (original, released)]
    return sf.Table(frames[0], schema), frames[1]


def compared(original: Any, released: Any, both: Pairing | None = None, **more: Any) -> Comparison:
    both = both or pair(original, released, NAMES)
    before, after = (sf.assess(table, qi=NAMES) for table in (original, released))
    return compare(both, before, after, loss_of(both), **more)


def inside(name: str, labels: tuple[str, ...], of_value: list[int], row: Row, bin_: int) -> float:
    """Return which share of a released value lies in a bin."""
    low, high, cities = row[2]
    if name == "city":
        return sum(of_value[CITIES.index(city)] == bin_ for city in cities) / len(cities)
    first, last = ends(labels[bin_])
    if low == high:
        return float(first <= low <= last)
    return max(min(high, last + 0.5) - max(low, first - 0.5), 0) / (high - low)  # bins meet between whole numbers


def ends(label: str) -> tuple[float, float]:
    """Return the whole numbers from which and to which a bin goes."""
    words = label.split()
    if label == "all values":
        return -np.inf, np.inf
    if words[0] == "up":
        return -np.inf, int(words[2])
    return int(words[-1] if words[0] == "from" else words[0]), np.inf if words[0] == "from" else int(words[-1])


def step(size: int) -> float:
    return 1 / min(max(size // SMALLEST_SHOWN, 1), 1000)


@given(rows())
def test_distributions_equal_their_definition(made: list[Row]) -> None:
    original, released = tables(made)
    result = compared(original, released)
    size, slack = original.rows, step(original.rows) / 2 + 0.0006  # rounding, and once more to 0.1 %
    both = pair(original, released, NAMES)
    shares: dict[str, list[list[float]]] = {}
    for i, (name, marginal) in enumerate(zip(NAMES, result.columns, strict=True)):
        of = both.coverages[i].universe
        count = np.bincount(both.original[:, i], minlength=len(of))
        bins = bins_of(of, count)
        assert marginal.bins == bins.labels
        value = {text: position for position, text in enumerate(of.texts)}
        before, after = np.zeros(len(bins)), np.zeros(len(bins))
        shares[name] = []
        for row in made:
            before[bins.of_value[value[str(row[i])]]] += row[3] / size
            share = [inside(name, bins.labels, bins.of_value.tolist(), row, bin_) for bin_ in range(len(bins))]
            shares[name].append(share)
            after += np.array(share) * row[3] / size
        assert marginal.before == pytest.approx(before.tolist(), abs=slack)
        assert marginal.after == pytest.approx(after.tolist(), abs=slack)
        assert marginal.moved == pytest.approx(abs(before - after).sum() / 2, abs=slack + 0.001)
    (joint,) = result.pairs
    if joint.bins == tuple(marginal.bins for marginal in result.columns):  # not cut more coarsely
        expected = sum(
            np.outer(age, city) * row[3] / size
            for age, city, row in zip(shares["age"], shares["city"], made, strict=True)
        )
        assert np.array(joint.after) == pytest.approx(expected, abs=slack)


@given(rows())
def test_nothing_that_fewer_than_ten_rows_have_is_shown_alone(made: list[Row]) -> None:
    original, released = tables(made)
    result = compared(original, released)
    shown = json.dumps(result.to_dict())
    for city in CITIES:
        if sum(times for _, where, _, times in made if where == city) < SMALLEST_SHOWN:
            assert city not in shown
    size = original.rows
    for marginal in result.columns:
        for share in (*marginal.before, *marginal.after, marginal.moved):
            assert is_rounded(share, size)
    (joint,) = result.pairs
    both = pair(original, released, NAMES)
    bins = [
        bins_of(read.universe, np.bincount(both.original[:, i], minlength=len(read.universe)), 10)
        for i, read in enumerate(both.coverages)
    ]
    places = [one.of_value[both.original[:, i]] for i, one in enumerate(bins)]
    for a, b in itertools.product(range(len(bins[0])), range(len(bins[1]))):
        records = int(((places[0] == a) & (places[1] == b)).sum())
        assert (joint.before[a][b] is None) == (records < SMALLEST_SHOWN)
        if joint.before[a][b] is not None:
            assert is_rounded(joint.before[a][b], size)
            assert joint.before[a][b] == pytest.approx(records / size, abs=step(size) / 2 + 0.0006)
    assert is_rounded(joint.unshown, size)
    assert is_rounded(joint.moved, size)


def is_rounded(share: float, size: int) -> bool:
    """Say whether a share is a whole number of parts of ten rows, rounded to 0.1 %."""
    parts = 1 / step(size)
    return round(round(share * parts) / parts, 3) == share


@given(rows())
def test_counted_rows_are_compared_as_if_they_were_there_many_times(made: list[Row]) -> None:
    original, released = tables(made)
    once = [(age, city, what, 1) for age, city, what, _ in made]
    few, few_released = tables(once)
    records = np.array([times for *_, times in made])
    both = pair_codes(few.encode(NAMES), [few_released[name] for name in NAMES], records=records)
    assert both.rows == original.rows
    counted, repeated = (compared(original, released, which) for which in (both, None))
    assert counted.columns == repeated.columns
    assert counted.pairs == repeated.pairs


@given(rows())
def test_an_untouched_table_did_not_change(made: list[Row]) -> None:
    original, _ = tables(made)
    result = compared(original, original)
    for one in result.columns:
        assert (one.before, one.moved) == (one.after, 0.0)
    (joint,) = result.pairs
    assert joint.moved == 0.0
    for before, after in zip(joint.before, joint.after, strict=True):
        assert all(b is None or b == a for b, a in zip(before, after, strict=True))


def test_numbers_of_both_tables_are_side_by_side() -> None:
    original = pl.DataFrame({"age": [20, 21, 22, 23] * 5, "city": ["Atown"] * 10 + ["Bville"] * 10})
    released = original.with_columns(age=pl.lit("[20, 23]"))
    accuracy = ModelAccuracy("tree", 0.9, 0.01, 0.8, 0.02, 0.6, 20, 5, 0.3, 0)
    result = compared(original, released, accuracy=[accuracy])
    assert (result.before.k, result.after.k) == (2, 10)
    assert (result.before.risk.prosecutor_max, result.after.risk.prosecutor_max) == (0.5, 0.1)
    assert result.before.rows_by_size == (0, 8, 12, 0, 0, 0, 0, 0)
    assert result.after.rows_by_size == (0, 0, 0, 0, 20, 0, 0, 0)
    assert result.loss.by_column["age"].ncp == 1
    assert result.accuracy == (accuracy,)
    assert result.all_pairs == 1
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["before"]["numbers"]["k"] == 2
    assert plain["accuracy"][0]["released"] == 0.8
    assert plain["class_sizes"] == ["1", "2", "3-4", "5-9", "10-19", "20-49", "50-99", "100+"]


def test_the_classes_that_decide_a_measure_are_not_in_it() -> None:
    original = pl.DataFrame({"age": [33] * 20 + [77], "city": ["Atown"] * 20 + ["Zzz"]})
    released = pl.DataFrame({"age": ["[33, 77]"] * 21, "city": ["{Atown, Zzz}"] * 21})
    assert "Zzz" in sf.assess(original, qi=NAMES).to_json()  # the witness of k
    result = json.dumps(compared(original, released).to_dict())
    assert "Zzz" not in result
    assert "77" not in result


def test_suppressed_rows_are_in_no_class_and_spread_over_all_values() -> None:
    original = pl.DataFrame({"age": [20] * 300 + [40] * 100, "city": ["Atown"] * 400})
    released = pl.DataFrame({"age": ["20"] * 300 + ["*"] * 100, "city": ["Atown"] * 300 + ["*"] * 100})
    result = compared(original, released)
    assert (result.after.rows, result.after.suppressed) == (300, 100)
    assert result.columns[0].bins == ("up to 21", "from 22")
    assert result.columns[0].before == (0.75, 0.25)
    assert result.columns[0].after == (0.775, 0.225)  # [20, 40] is cut at 21.5


def test_of_many_pairs_those_that_changed_or_were_related_most_are_shown() -> None:
    random = np.random.default_rng(0)
    left = random.integers(0, 4, 4000)
    columns = {name: random.integers(0, 4, 4000) for name in "abcdef"} | {"same": left, "twin": left}
    original = pl.DataFrame(columns).select(pl.all().cast(pl.String))
    released = original.with_columns(a=pl.lit("*"), b=pl.lit("0"))
    names = list(columns)
    both = pair(original, released, names)
    before, after = (sf.assess(table, qi=names) for table in (original, released))
    result = compare(both, before, after, loss_of(both))
    assert result.all_pairs == 28
    assert len(result.pairs) == 6
    assert "b" in result.pairs[0].columns
    assert result.pairs[0].moved == pytest.approx(0.75, abs=0.02)
    assert result.pairs[3].columns == ("same", "twin")
    assert result.pairs[3].related == pytest.approx(0.75, abs=0.01)
    for three in (result.pairs[:3], result.pairs[3:]):  # no column is in two of them
        assert len({name for one in three for name in one.columns}) == 6


def test_one_column_has_no_pairs() -> None:
    ages = pl.DataFrame({"age": [20, 30] * 10})
    both = pair(ages, ages, ["age"])
    result = compare(both, sf.assess(ages, qi=["age"]), sf.assess(ages, qi=["age"]), loss_of(both))
    assert (result.pairs, result.all_pairs) == ((), 0)
    assert len(result.columns[0].bins) == 2


def test_every_class_is_in_one_bar() -> None:
    sizes = {size: 2 * size for size in range(1, 150)}
    found = rows_by_size(sizes)
    assert sum(found) == sum(sizes.values())
    assert found[:4] == (2, 4, 14, 70)

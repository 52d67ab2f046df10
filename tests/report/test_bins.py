"""The bins of a column are few, in order, round, and never those of a few people."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures.loss.universe import Universe, universe
from sfumato.report.bins import SMALLEST_SHOWN, Bins, bins_of


def counted(values: list[Any], dtype: Any = None, **column: Any) -> tuple[Universe, np.ndarray]:
    table = sf.Table(pl.DataFrame({"x": pl.Series(values, dtype=dtype)}), sf.Schema([sf.Column(name="x", **column)]))
    codes = table.encode(["x"])
    of = universe(codes.domains[0])
    return of, np.bincount(of.place[codes.values[:, 0]], minlength=len(of))


def binned(values: list[Any], most: int = 12, dtype: Any = None, **column: Any) -> dict[str, int]:
    """Return the bins of a column, and how many rows are in each."""
    of, count = counted(values, dtype, **column)
    return sizes(bins_of(of, count, most), count)


def sizes(bins: Bins, count: np.ndarray) -> dict[str, int]:
    rows = np.bincount(bins.of_value, weights=count, minlength=len(bins)).astype(int).tolist()
    return dict(zip(bins.labels, rows, strict=True))


NUMBERS = st.one_of(st.integers(-50, 200), st.floats(-1e6, 1e6).map(lambda x: round(x, 2)))


@given(
    st.dictionaries(st.one_of(st.none(), NUMBERS), st.integers(1, 40), max_size=40),
    st.sampled_from(["number", "category", "ordinal"]),
    st.integers(1, 12),
)
def test_no_bin_is_that_of_fewer_than_ten_rows(made: dict[Any, int], kind: str, most: int) -> None:
    column: dict[str, Any] = {"kind": kind}
    made = {0: 1, **made}
    values = [None if v is None else float(v) for v, n in made.items() for _ in range(n)]
    if kind != "number":
        values = [None if v is None else f"v{v}" for v in values]
        column |= {"domain": sorted({v for v in values if v is not None})} if kind == "ordinal" else {}
    dtype = pl.Float64 if kind == "number" else pl.String
    of, count = counted(values, dtype, **column)
    bins = bins_of(of, count, most)
    found = sizes(bins, count)
    assert len(bins) <= most
    assert len(found) == len(bins)  # no two are called alike
    assert sum(found.values()) == len(values)
    assert len(found) == 1 or min(found.values()) >= SMALLEST_SHOWN
    if kind != "category":
        assert (np.diff(bins.of_value) >= 0).all()


def test_numbers_are_cut_at_round_numbers_and_the_ends_are_open() -> None:
    ages = [age for age in range(17, 91) for _ in range(20)]
    tens = {f"{low} to {low + 9}": 200 for low in range(20, 90, 10)}
    assert binned(ages) == {"up to 19": 60, **tens, "from 90": 20}
    assert binned([0.1 * step for step in range(100)], most=4) == {"under 5": 50, "from 5": 50}


def test_a_fraction_lies_in_the_bin_that_begins_with_it() -> None:
    found = binned([0.0] * 20 + [0.3] * 21 + [0.6] * 22 + [0.7] * 23, most=8)
    assert found == {"under 0.3": 20, "0.3 to 0.6": 21, "0.6 to 0.7": 22, "from 0.7": 23}


def test_nobody_is_seen_to_be_the_richest() -> None:
    found = binned([*range(1000), 10_000_000], most=6)
    assert list(found) == ["up to 199", "200 to 399", "400 to 599", "600 to 799", "from 800"]
    assert found["from 800"] == 201


def test_most_numbers_may_be_one() -> None:
    assert binned([0] * 5000 + [7] * 11) == {"up to 0": 5000, "from 1": 11}
    assert binned([0.5] * 5000 + [0.7] * 3) == {"all values": 5003}
    assert binned([3] * 30) == {"all values": 30}


def test_few_rows_are_one_bin() -> None:
    assert binned([1, 2, 3]) == {"all values": 3}
    assert binned(["a", "b"]) == {"all values": 2}
    assert binned([None, None], dtype=pl.Int64) == {"all values or missing": 2}


def test_dates_are_cut_at_round_moments() -> None:
    days = [dt.date(1950, 1, 1) + dt.timedelta(days=30 * step) for step in range(600)]
    assert list(binned(days))[:3] == ["up to 1954", "1955 to 1959", "1960 to 1964"]
    month = [dt.date(2024, 1, 1) + dt.timedelta(days=step) for step in range(366)]
    assert list(binned(month))[:2] == ["up to 2024-01", "2024-02"]
    hours = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=15 * step) for step in range(400)]
    assert list(binned(hours, most=6))[:2] == ["up to 2024-01-01", "2024-01-02"]


def test_lengths_of_time_have_a_unit() -> None:
    stays = [dt.timedelta(hours=step) for step in range(24 * 40)]
    assert list(binned(stays, most=3)) == ["up to 20 days", "from 20 days"]
    assert list(binned(stays[:24], most=3, dtype=pl.Duration("ms"))) == ["up to 10 h", "from 10 h"]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_the_unit_of_a_moment_changes_nothing(unit: Any) -> None:
    hours = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=15 * step) for step in range(400)]
    assert binned(hours, dtype=pl.Datetime(unit)) == binned(hours)


def test_ordinals_are_merged_with_their_neighbours() -> None:
    grades = ["none"] * 3 + ["school"] * 20 + ["college"] * 30 + ["doctor"] * 4 + [None] * 2
    order = ["none", "school", "college", "doctor"]
    found = binned(grades, kind="ordinal", domain=order)
    assert found == {"none to school": 23, "college to doctor or missing": 36}
    assert binned(grades, most=1, kind="ordinal", domain=order) == {"all values or missing": 59}


def test_missing_is_a_bin_of_its_own_if_many_miss() -> None:
    assert binned(["f"] * 20 + [None] * 15) == {"f": 20, "(missing)": 15}
    found = binned([*range(100)] + [None] * 15, most=3)
    assert found["(missing)"] == 15


def test_rare_categories_are_others_and_the_others_are_not_a_few() -> None:
    assert binned(["a"] * 50 + ["b"] * 20 + ["c"] * 9) == {"a": 50, "others": 29}
    assert binned(["a"] * 50 + ["b"] * 20 + ["c"] * 9 + ["d"] * 3) == {"a": 50, "b": 20, "others": 12}
    assert binned(["a"] * 50 + ["b"] * 20, domain=["a", "b", "c"]) == {"a": 50, "b": 20, "others": 0}
    assert binned(["a"] * 30_000 + ["b"] * 20) == {"a": 30_000, "others": 20}  # less than 0.1 %
    assert list(binned([v for v in "abcdefgh" for _ in range(10)], most=3)) == ["a", "b", "others"]
    assert list(binned([v for v in "abc" for _ in range(10)], most=3)) == ["a", "b", "c"]

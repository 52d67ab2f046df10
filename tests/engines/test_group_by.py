"""Rows of integers are counted as they stream by, whatever the width of their keys and the size of the batches."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter as Multiset
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.engines import group_by as tally_module
from sfumato.engines.counter import Dictionary
from sfumato.engines.group_by import GroupBy

BATCHES = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.tuples(*[st.sampled_from([0, 1, 2, 255, 70_000, 2**31 - 1])] * width), max_size=8),
        min_size=1,
        max_size=6,
    ).map(lambda batches: (width, batches))
)


@given(BATCHES, st.booleans(), st.booleans())
def test_every_distinct_row_is_counted_once_and_in_order(
    case: tuple[int, list[list[tuple[int, ...]]]], weighted: bool, unlucky: bool
) -> None:
    width, batches = case
    tally, expected = GroupBy(width), Multiset[tuple[int, ...]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally_module, "_SMALLEST_MERGE", 3)  # so that small batches are merged too
        if unlucky:
            patch.setattr(tally_module, "_mix", lambda keys: keys[0] % 3)  # many are mixed alike
        for rows in batches:
            count = np.arange(1, len(rows) + 1) if weighted else None
            tally.add(list(np.array(rows, dtype=np.int64).reshape(-1, width).T), count)
            for row, times in zip(rows, count if count is not None else [1] * len(rows), strict=True):
                expected[row] += int(times)
    codes, count = tally.sorted()
    assert codes.tolist() == [list(row) for row in sorted(expected)]
    assert count.tolist() == [expected[row] for row in sorted(expected)]


def test_a_key_may_fill_its_64_bits() -> None:
    tally = GroupBy(3)
    widest = np.array([2**31 - 1, 0, 2**31 - 1])
    tally.add([widest, widest, np.array([3, 3, 3])])  # 31 + 31 + 2 bits
    codes, count = tally.sorted()
    assert codes.tolist() == [[0, 0, 3], [2**31 - 1, 2**31 - 1, 3]]
    assert count.tolist() == [1, 2]


VALUES: list[list[Any]] = [
    ["f", "m", "", None],
    [1, -5, 2**40, None],
    [30, 41, 7, None],
    [1.5, -0.25, None],
    [True, False, None],
    [datetime.date(1990, 1, 1), datetime.date(1850, 5, 5), None],
    [datetime.datetime(2020, 1, 1, 12), datetime.datetime(1950, 1, 1), None],
    [decimal.Decimal("1.10"), decimal.Decimal("250.00"), None],
    [datetime.time(12, 30), None],
    [datetime.timedelta(days=3), None],
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: type(values[0]).__name__)
@given(data=st.data())
def test_a_number_stands_for_one_value(values: list[Any], data: st.DataObject) -> None:
    numbering = Dictionary()
    dtype = pl.Series(values).dtype
    seen: dict[Any, int] = {}
    for batch in data.draw(st.lists(st.lists(st.sampled_from(values), max_size=6), max_size=4)):
        for value, number in zip(batch, numbering.numbers(pl.Series(batch, dtype=dtype)).tolist(), strict=True):
            assert seen.setdefault(value, number) == number
            assert (number == 0) == (value is None)
    assert len(set(seen.values())) == len(seen)
    back = numbering.values().to_list()
    assert all(back[number] == value for value, number in seen.items())


def test_not_a_number_is_missing_and_a_category_is_its_text() -> None:
    assert Dictionary().numbers(pl.Series([1.0, float("nan"), None])).tolist() == [1, 0, 0]
    texts = Dictionary()
    assert texts.numbers(pl.Series(["a", "b"])).tolist() == [1, 2]
    assert texts.numbers(pl.Series(["b", "c"], dtype=pl.Categorical)).tolist() == [2, 3]
    assert texts.numbers(pl.Series(["c", None], dtype=pl.Enum(["c", "d"]))).tolist() == [3, 0]


def test_integers_may_move_apart_after_they_were_near() -> None:
    numbering = Dictionary()
    assert numbering.numbers(pl.Series([5, 6])).tolist() == [1, 2]
    assert numbering.numbers(pl.Series([6, -1000, None])).tolist() == [2, 3, 0]
    assert numbering.numbers(pl.Series([2**60, 5])).tolist() == [4, 1]
    assert numbering.numbers(pl.Series([6, 7])).tolist() == [2, 5]
    assert numbering.values().to_list() == [None, 5, 6, -1000, 2**60, 7]

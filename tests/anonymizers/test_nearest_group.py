"""Rows that were not there when the groups were made go to the nearest group."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers import nearest_group as route
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce


def routed(old: dict[str, list[Any]], groups: list[int], new: dict[str, list[Any]]) -> list[int]:
    """The group of each of the distinct new tuples, which are given in their order."""
    names = list(old)
    problem = Problem.of(reduce(sf.Table(pl.DataFrame(old)), names), names, [], [])
    return route.nearest_groups(problem, np.array(groups), reduce(sf.Table(pl.DataFrame(new)), names)).tolist()


def test_a_known_tuple_goes_to_its_own_group() -> None:
    old = {"x": [1, 2, 3], "y": ["a", "b", "a"]}
    assert routed(old, [0, 1, 0], old) == [0, 1, 0]
    assert routed(old, [0, 1, 0], {"x": [2], "y": ["b"]}) == [1]


def test_a_number_goes_where_the_range_grows_least() -> None:
    old = {"x": [0, 10, 20, 100]}
    assert routed(old, [0, 0, 1, 1], {"x": [-50, 5, 12, 18, 60, 900]}) == [0, 0, 0, 1, 1, 1]


def test_a_tie_goes_to_the_first_group() -> None:
    assert routed({"x": [0, 10]}, [0, 1], {"x": [5]}) == [0]


def test_columns_count_together() -> None:
    old = {"x": [0, 10, 0, 10], "y": [0, 0, 10, 10]}  # the tuples are (0, 0), (0, 10), (10, 0), (10, 10)
    assert routed(old, [0, 1, 2, 3], {"x": [1, 9], "y": [9, 8]}) == [1, 3]


def test_a_known_category_in_a_new_combination_goes_to_a_group_that_holds_it() -> None:
    old = {"x": [1, 2, 3, 4], "y": ["a", "a", "b", "b"]}
    assert routed(old, [0, 0, 1, 1], {"x": [1, 4], "y": ["b", "a"]}) == [1, 0]
    assert routed(old, [0, 0, 1, 1], {"x": [2, 3], "y": ["b", "a"]}) == [1, 0]


def test_a_missing_number_lies_apart() -> None:
    assert routed({"x": [1, 2, 3, None]}, [0, 0, 1, 1], {"x": [2, None]}) == [0, 1]
    assert routed({"x": [1, 2, 3]}, [0, 0, 1], {"x": [None]}) == [1], "beyond all others"


def test_a_number_may_come_with_a_fraction_though_whole_numbers_were_learnt() -> None:
    assert routed({"x": [1, 2, 10, 11]}, [0, 0, 1, 1], {"x": [2.4, 9.7]}) == [0, 1]


def test_a_fraction_is_not_mistaken_for_the_whole_number_below() -> None:
    assert routed({"x": [1, 2, 3]}, [0, 1, 2], {"x": [1.75, 2.9]}) == [1, 2]


def test_an_unseen_category_is_refused_without_being_shown() -> None:
    with pytest.raises(sf.errors.ColumnError, match=r"holds 2 value\(s\) that the fitted table lacks") as caught:
        routed({"y": ["a", "b"]}, [0, 1], {"y": ["a", "secret", "zz"]})
    assert "secret" not in str(caught.value)


def test_another_type_is_refused() -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'y' holds String values, but Int64 in the fitted table"):
        routed({"y": [1, 2]}, [0, 1], {"y": ["a"]})


@given(
    old=st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
    new=st.lists(st.integers(-10, 40), min_size=1, max_size=12, unique=True),
    data=st.data(),
)
def test_no_other_group_would_grow_less(old: list[int], new: list[int], data: st.DataObject) -> None:
    old, new = sorted(old), sorted(new)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=len(old), max_size=len(old)))
    groups = np.unique(drawn, return_inverse=True)[1].tolist()
    found = routed({"x": old}, groups, {"x": new})
    for value, group in zip(new, found, strict=True):
        if value in old:
            assert group == groups[old.index(value)]
            continue
        value = min(max(value, old[0]), old[-1])  # beyond the range nothing is told apart
        ranges = [[x for x, at in zip(old, groups, strict=True) if at == one] for one in range(max(groups) + 1)]
        growth = [max(min(held) - value, value - max(held), 0) for held in ranges]
        assert growth[group] == pytest.approx(min(growth))


def test_many_rows_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    old, groups, new = {"x": list(range(0, 90, 3))}, list(range(30)), {"x": list(range(1, 88, 3))}
    at_once = routed(old, groups, new)
    monkeypatch.setattr(route, "_MOST_PAIRS", 50)
    assert routed(old, groups, new) == at_once

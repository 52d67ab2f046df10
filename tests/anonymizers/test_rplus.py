"""The leaves of an R+-tree: boxes that do not overlap, with every guarantee kept."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

import sfumato as sf
from sfumato.anonymizers.mondrian.mondrian import rplus

from .problems import Case, case, cases, keeps, members, tuple_of_row, whole_table_keeps


@given(one=cases())
def test_every_leaf_keeps_every_guarantee(one: Case) -> None:
    if not whole_table_keeps(one):
        with pytest.raises(sf.errors.InputError, match="no grouping keeps"):
            rplus(one.problem)
        return
    groups = rplus(one.problem)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    assert keeps(one, groups[tuple_of_row(one)])


@given(one=cases())
def test_leaves_do_not_overlap(one: Case) -> None:
    if not whole_table_keeps(one):
        return
    boxes = [(box.min(axis=0), box.max(axis=0)) for box in members(one.problem, rplus(one.problem)).values()]
    for (low, high), (other_low, other_high) in combinations(boxes, 2):
        assert ((high < other_low) | (other_high < low)).any()


def test_the_cut_that_leaves_least_is_taken() -> None:
    # Number and tree go together: a cut on either narrows both. A cut on plain narrows nothing else.
    rows = [
        (number, "low", letter, plain, "flu", 10)
        for number, letter in [(0, "a"), (9, "b")]
        for plain in ("p", "q")
        for _ in range(2)
    ]
    one = case(rows, ["plain", "number", "tree"], [], "k=4")
    groups = rplus(one.problem)
    assert {frozenset(box[:, 1].tolist()) for box in members(one.problem, groups).values()} == {
        frozenset([0]),
        frozenset([1]),
    }


def test_the_same_problem_gives_the_same_leaves() -> None:
    rows = [(x * 7 % 10, "low", "abcdef"[x % 6], "pqrs"[x % 4], "flu" if x % 3 else "ulcer", 10) for x in range(200)]
    one = case(rows, ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    again = case(rows[::-1], ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    assert rplus(one.problem).tolist() == rplus(again.problem).tolist()

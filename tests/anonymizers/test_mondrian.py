"""Mondrian: cuts at medians, with every guarantee kept on both sides."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers.mondrian.mondrian import mondrian
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce

from .problems import SCHEMA, Case, case, cases, keeps, members, tuple_of_row, whole_table_keeps


def numbers(values: list[int], asked: str) -> Problem:
    table = sf.Table(pl.DataFrame({"x": values}))
    return Problem.of(reduce(table, ["x"]), ["x"], [], sf.Guarantee.parse(asked))


@given(one=cases())
def test_every_group_keeps_every_guarantee(one: Case) -> None:
    if not whole_table_keeps(one):
        with pytest.raises(sf.errors.InputError, match="no grouping keeps"):
            mondrian(one.problem)
        return
    groups = mondrian(one.problem)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    assert keeps(one, groups[tuple_of_row(one)])


@given(one=cases())
def test_groups_are_boxes_that_do_not_overlap(one: Case) -> None:
    if not whole_table_keeps(one):
        return
    boxes = [(box.min(axis=0), box.max(axis=0)) for box in members(one.problem, mondrian(one.problem)).values()]
    for (low, high), (other_low, other_high) in combinations(boxes, 2):
        assert ((high < other_low) | (other_high < low)).any()


@given(one=cases())
def test_relaxed_loses_no_record_and_keeps_every_guarantee(one: Case) -> None:
    if not whole_table_keeps(one):
        return
    pieces, groups = mondrian(one.problem, strict=False)
    assert (pieces.records > 0).all()
    whole = one.problem.pieces
    width = whole.values.shape[1]

    def held(parts: Any) -> dict[tuple[int, ...], int]:
        found: dict[tuple[int, ...], int] = {}
        for tuple_, values, records in zip(parts.tuple, parts.values, parts.records, strict=True):
            key = (int(tuple_), *values.tolist())
            found[key] = found.get(key, 0) + int(records)
        return found

    assert held(pieces) == held(whole)
    assert pieces.values.shape[1] == width
    # Hand the rows out, piece by piece, and check the table.
    rows: dict[tuple[int, ...], list[int]] = {}
    of_row = tuple_of_row(one)
    attributes = [counts.attribute for counts in one.problem.counts if counts.attribute is not None]
    coded = [
        [attribute.values.to_list().index(value) for value in one.frame[attribute.name].to_list()]
        for attribute in attributes
    ]
    for row, tuple_ in enumerate(of_row.tolist()):
        rows.setdefault((tuple_, *(codes[row] for codes in coded)), []).append(row)
    group_of_row = np.full(len(one.frame), -1)
    for tuple_, values, records, group in zip(pieces.tuple, pieces.values, pieces.records, groups, strict=True):
        for _ in range(records):
            group_of_row[rows[(int(tuple_), *values.tolist())].pop()] = group
    assert (group_of_row >= 0).all()
    assert keeps(one, group_of_row)


@given(values=st.lists(st.integers(0, 5), min_size=1, max_size=80), k=st.integers(1, 10))
def test_relaxed_leaves_no_group_of_2k_records_that_differ(values: list[int], k: int) -> None:
    if len(values) < k:
        return
    pieces, groups = mondrian(numbers(values, f"k={k}"), strict=False)
    for group in range(groups.max() + 1):
        inside = groups == group
        assert pieces.records[inside].sum() < 2 * k or len(set(pieces.tuple[inside].tolist())) == 1


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=80), k=st.integers(1, 10))
def test_no_group_could_be_cut_once_more_and_keep_k(values: list[int], k: int) -> None:
    if len(values) < k:
        return
    problem = numbers(values, f"k={k}")
    groups = mondrian(problem)
    for group in range(groups.max() + 1):
        records = problem.records[groups == group]
        below = np.cumsum(records)
        assert (np.minimum(below, records.sum() - below) < k).all()


def test_the_dimension_that_loses_most_is_cut_first() -> None:
    rows = [
        (x, y, None, z, "flu", 10) for x, y, z in [(0, "low", "p"), (0, "mid", "q"), (9, "low", "p"), (9, "mid", "q")]
    ]
    one = case(rows, ["plain", "number"], [], "k=2")  # both lose everything: the first is cut
    assert mondrian(one.problem).tolist() == [0, 0, 1, 1]
    one = case(rows, ["ordinal", "number"], [], "k=2")  # low and mid are a third of low to top
    assert mondrian(one.problem).tolist() == [0, 1, 0, 1]


def test_a_missing_number_is_apart() -> None:
    rows = [(x, None, None, "p", "flu", 10) for x in (1, 2, 9, None, None)]
    one = case(rows, ["number"], [], "k=2")
    assert mondrian(one.problem).tolist() == [0, 0, 0, 1]
    assert one.problem.places[0].tolist() == [0.0, 0.125, 1.0, 2.0]


@given(letters=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=60), k=st.integers(1, 20))
def test_a_group_is_a_union_of_children_of_one_node(letters: list[str], k: int) -> None:
    if len(letters) < k:
        return
    one = case([(0, "low", letter, "p", "flu", 10) for letter in letters], ["tree"], [], f"k={k}")
    hierarchy = SCHEMA["tree"].hierarchy
    assert hierarchy is not None
    values = one.problem.domains[0].values.to_list()
    paths = dict(zip(values, hierarchy.paths(values), strict=True))
    groups = mondrian(one.problem)
    for group in range(groups.max() + 1):
        inside = {values[i] for i in np.flatnonzero(groups == group)}
        level = next(i for i in range(4) if len({paths[value][i] for value in inside}) == 1)
        if level > 0:  # below the node that covers the group, every child is in it as a whole
            children = {paths[value][level - 1] for value in inside}
            assert inside == {value for value in values if paths[value][level - 1] in children}


def test_every_node_of_a_hierarchy_is_a_range() -> None:
    one = case([(0, "low", letter, "p", "flu", 10) for letter in "abcdef"], ["tree"], [], "k=1")
    line = one.problem.lines[0]
    for level in line.nodes:
        assert (np.diff(level) >= 0).all()
    assert [len(set(level.tolist())) for level in line.nodes] == [6, 4, 2]


def test_what_cannot_be_reached_is_named() -> None:
    rows = [(x, "low", "a", "p", disease, 10) for x, disease in enumerate(["flu", "flu", "flu", "ulcer"])]
    with pytest.raises(sf.errors.InputError, match="no grouping keeps l=3: the whole table as one class has l = 2"):
        mondrian(case(rows, ["number"], ["disease"], "k=2,l=3").problem)
    with pytest.raises(sf.errors.InputError, match="no grouping keeps k=5: the whole table as one class has k = 4"):
        mondrian(case(rows, ["number"], ["disease"], "k=5").problem)
    with pytest.raises(sf.errors.InputError, match=r"no grouping keeps alpha=0.5,k=2: .* alpha = 0.75"):
        mondrian(case(rows, ["number"], ["disease"], [sf.measures.AlphaK(0.5, 2)]).problem)
    # With l = 2 a finer grouping could keep c, with the l of the whole table none can.
    rows = [(0, "low", "a", "p", disease, 10) for disease in ["flu", "ulcer"] * 5 + ["cancer"]]
    with pytest.raises(
        sf.errors.InputError,
        match=r"keeps recursive_c=2,recursive_l=3: .* recursive_c = 5, and it must be less \(.*smaller l\)",
    ):
        mondrian(case(rows, ["number"], ["disease"], [sf.measures.RecursiveCL(2)]).problem)
    with pytest.raises(sf.errors.OptionError, match="needs a sensitive attribute"):
        mondrian(case(rows, ["number"], [], "l=2").problem)


def test_attributes_counted_one_by_one_are_divided_only_if_strict() -> None:
    rows = [(x % 3, "low", "a", "p", "flu" if x % 2 else "ulcer", 10 * x) for x in range(12)]
    one = case(rows, ["number"], ["disease", "salary"], "k=2,l=2")
    apart = Problem(one.problem.counts, one.problem.guarantees)
    assert mondrian(apart).tolist() == mondrian(one.problem).tolist()
    with pytest.raises(sf.errors.OptionError, match="must be counted jointly"):
        mondrian(apart, strict=False)


@given(one=cases())
def test_pieces_put_together_have_the_counts_of_every_attribute(one: Case) -> None:
    pieces = Problem(one.problem.counts, ()).pieces
    merged = one.problem.merge_pieces(pieces, pieces.tuple)
    for ours, counts in zip(merged, one.problem.counts, strict=True):
        assert ours.size.tolist() == counts.size.tolist()
        assert ours.start.tolist() == counts.start.tolist()
        assert ours.value.tolist() == counts.value.tolist()
        assert ours.count.tolist() == counts.count.tolist()


@given(values=st.lists(st.integers(0, 10**6), min_size=4, max_size=60, unique=True), k=st.integers(1, 4))
def test_a_long_line_is_cut_like_its_ranks(values: list[int], k: int) -> None:
    """Few rows on a line of 100,000 positions are sorted; more are counted."""
    problem = numbers(values, f"k={k}")
    groups = mondrian(problem)
    below = {group: np.flatnonzero(groups == group) for group in range(groups.max() + 1)}
    assert all((np.diff(inside) == 1).all() for inside in below.values())


def test_long_lines_of_categories_and_numbers_make_the_same_kind_of_groups() -> None:
    generator = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "town": [f"town {i:05}" for i in generator.integers(0, 3000, 2000)],
            "income": generator.integers(0, 10**6, 2000),
            "sex": generator.choice(["f", "m"], 2000),
        }
    )
    names = ["town", "income", "sex"]
    problem = Problem.of(reduce(sf.Table(frame), names), names, [], [sf.KAnonymity(5)])
    groups = mondrian(problem)
    assert np.bincount(groups, weights=problem.records).min() >= 5
    boxes = [(box.min(axis=0), box.max(axis=0)) for box in members(problem, groups).values()]
    low, high = np.array([low for low, _ in boxes]), np.array([high for _, high in boxes])
    apart = ((high[:, None] < low[None]) | (high[None] < low[:, None])).any(axis=2)
    assert (apart | np.eye(len(boxes), dtype=bool)).all()


def test_the_same_problem_gives_the_same_groups() -> None:
    rows = [(x * 7 % 10, "low", "abcdef"[x % 6], "pqrs"[x % 4], "flu" if x % 3 else "ulcer", 10) for x in range(200)]
    one = case(rows, ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    again = case(rows[::-1], ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    assert mondrian(one.problem).tolist() == mondrian(again.problem).tolist()


@pytest.mark.parametrize("asked", ["k=5", "k=5,l=2,t=0.4"])
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    generator = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "x": generator.integers(0, 90, 4000),
            "y": generator.integers(0, 30, 4000),
            "z": generator.choice(list("abcdef"), 4000),
            "s": generator.choice(["flu", "ulcer", "cancer"], 4000),
        }
    )
    problem = Problem.of(reduce(sf.Table(frame), list("xyzs")), list("xyz"), ["s"], sf.Guarantee.parse(asked))
    monkeypatch.setattr(
        "sfumato.anonymizers.mondrian.partition._FEW", 0
    )  # a table of many rows, whose kernel is compiled
    alone = mondrian(problem)
    monkeypatch.setattr("sfumato.anonymizers.mondrian.partition._ROWS_PER_THREAD", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert mondrian(problem).tolist() == alone.tolist()

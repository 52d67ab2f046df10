"""Groups of neighbours along the Hilbert curve, with every guarantee kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers.hilbert import hilbert as module
from sfumato.anonymizers.hilbert import plain
from sfumato.anonymizers.hilbert.hilbert import hilbert
from sfumato.anonymizers.hilbert.kernels import along_the_curve
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce

from .problems import Case, case, cases, keeps, tuple_of_row, whole_table_keeps


@given(one=cases())
def test_every_group_keeps_every_guarantee(one: Case) -> None:
    if not whole_table_keeps(one):
        with pytest.raises(sf.errors.InputError, match="no grouping keeps"):
            hilbert(one.problem)
        return
    groups = hilbert(one.problem)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    assert keeps(one, groups[tuple_of_row(one)])


@pytest.mark.parametrize(("axes", "bits"), [(1, 4), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_the_curve_visits_every_point_and_moves_one_step_at_a_time(axes: int, bits: int) -> None:
    points = np.array(list(product(range(2**bits), repeat=axes)), dtype=np.int64)
    index = along_the_curve(points, bits)[:, 0]
    assert sorted(index.tolist()) == list(range(len(points)))
    for here, there in pairwise(points[np.argsort(index)]):
        assert np.abs(here - there).sum() == 1


@given(
    data=st.lists(st.lists(st.integers(0, 2**20 - 1), min_size=7, max_size=7), min_size=1, max_size=20, unique_by=tuple)
)
def test_long_indices_tell_all_points_apart(data: list[list[int]]) -> None:
    index = along_the_curve(np.array(data, dtype=np.int64), 20)
    assert plain.along_the_curve(np.array(data, dtype=np.int64), 20).tolist() == index.tolist()
    assert index.shape[1] == 3
    assert len(np.unique(index, axis=0)) == len(data)


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=40), k=st.integers(1, 8))
def test_a_single_number_is_cut_as_well_as_can_be(values: list[int], k: int) -> None:
    if len(values) < k:
        return
    one = case([(value, "low", "a", "p", "flu", 10) for value in values], ["number"], [], f"k={k}")
    problem = one.problem
    place, records = problem.places[0], problem.records

    def loss(groups: np.ndarray) -> float:
        return sum(
            float(records[groups == group].sum() * np.ptp(place[groups == group])) for group in set(groups.tolist())
        )

    # The best of all ways to cut the line, by trying them.
    best = {0: 0.0}
    for end in range(1, len(place) + 1):
        ways = [
            best[start] + float(records[start:end].sum() * (place[end - 1] - place[start]))
            for start in range(end)
            if start in best and records[start:end].sum() >= k
        ]
        if ways:
            best[end] = min(ways)
    assert loss(hilbert(problem)) == pytest.approx(best[len(place)])


def test_what_is_left_over_is_merged_backward() -> None:
    rows = [(x, "low", "a", "p", disease, 10) for x, disease in enumerate(["flu", "ulcer"] * 4 + ["flu"] * 3)]
    groups = hilbert(case(rows, ["number"], ["disease"], "l=2").problem)
    assert len(set(groups[-4:].tolist())) == 1


def test_the_same_problem_gives_the_same_groups() -> None:
    rows = [(x * 7 % 10, "low", "abcdef"[x % 6], "pqrs"[x % 4], "flu" if x % 3 else "ulcer", 10) for x in range(200)]
    one = case(rows, ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    again = case(rows[::-1], ["number", "tree", "plain"], ["disease"], "k=3,l=2")
    assert hilbert(one.problem).tolist() == hilbert(again.problem).tolist()


def compiled(problem: Problem) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", 0)
        return hilbert(problem).tolist()


@given(one=cases(), k=st.integers(1, 8))
def test_without_a_compiler_the_groups_are_the_same(one: Case, k: int) -> None:
    rows = int(one.problem.records.sum())
    if rows >= k:
        problem = replace(one.problem, guarantees=(sf.KAnonymity(k),))
        assert hilbert(problem).tolist() == compiled(problem)


@pytest.mark.parametrize("k", [2, 5, 40, 299])
@pytest.mark.parametrize("window", [4, 256])
def test_long_lines_and_many_values_make_the_same_groups_too(k: int, window: int) -> None:
    random = np.random.default_rng(7)
    frame = pl.DataFrame(
        {
            "far": random.integers(0, 10**6, 300),
            "near": random.integers(0, 5, 300),
            "name": [f"n{value}" for value in random.integers(0, 100, 300)],
            "letter": random.choice(list("abc"), 300),
        }
    )
    table = sf.Table(pl.concat([frame, *[frame.head(4)] * 30]))
    problem = Problem.of(reduce(table, frame.columns), frame.columns, [], [sf.KAnonymity(k)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", window)
        assert hilbert(problem).tolist() == compiled(problem)

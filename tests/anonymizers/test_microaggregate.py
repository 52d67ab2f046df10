"""Microaggregation: MDAV as the paper has it, every guarantee kept, and averages that keep their types."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers.microaggregation import microaggregate as module
from sfumato.anonymizers.microaggregation.microaggregate import Metric, _breaks, _points, microaggregate
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce
from sfumato.measures.models import EnhancedBeta, EntropyL, RecursiveCL

from .problems import CELLS, GUARANTEES, QUASI, SCHEMA, Case, case, cases, keeps, tuple_of_row, whole_table_keeps

Point = tuple[float, ...]


@given(one=cases(), block=st.sampled_from([1, 3, 4096]))
def test_every_group_keeps_every_guarantee(one: Case, block: int) -> None:
    if not whole_table_keeps(one):
        with pytest.raises(sf.errors.InputError, match="no grouping keeps"):
            microaggregate(one.problem, block=block)
        return
    groups = microaggregate(one.problem, block=block)
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    assert keeps(one, groups[tuple_of_row(one)])


class Paper:
    """MDAV-generic, then merging, as the pseudo-code has it: lists, loops and nothing else."""

    def __init__(self, problem: Problem, k: int) -> None:
        self.points: list[Point] = [tuple(point) for point in _points(problem, None)[0].tolist()]
        self.records: list[int] = problem.records.tolist()
        self.lines, self.k = problem.lines, k

    def distance(self, here: Point, there: Point) -> float:
        total = 0.0
        for a, b, line in zip(here, there, self.lines, strict=True):
            if line.ordered:
                total += (a - b) * (a - b)
            elif len(line.nodes):
                levels = [level[int(a)] != level[int(b)] for level in line.nodes]
                total += (sum(levels) / len(levels)) * (sum(levels) / len(levels))
            else:
                total += float(a != b)
        return total

    def average(self, rows: list[int]) -> Point:
        found = []
        for column, line in enumerate(self.lines):
            values = [self.points[row][column] for row in rows for _ in range(self.records[row])]
            if line.ordered:
                total = 0.0
                for row in rows:
                    total += self.points[row][column] * self.records[row]
                found.append(total / len(values))
            else:
                found.append(min(values, key=lambda value, all_=values: (-all_.count(value), value)))
        return tuple(found)

    def size(self, rows: list[int]) -> int:
        return sum(self.records[row] for row in rows)

    def farthest(self, rows: list[int], centre: Point) -> int:
        return max(rows, key=lambda row: (self.distance(self.points[row], centre), -row))

    def gather(self, left: list[int], around: int) -> list[int]:
        near = sorted(left, key=lambda row: (self.distance(self.points[row], self.points[around]), row))
        group: list[int] = []
        while self.size(group) < self.k:
            group.append(near.pop(0))
        for row in group:
            left.remove(row)
        return group

    def groups(self) -> list[list[int]]:
        left, groups = list(range(len(self.points))), []
        while self.size(left) >= 3 * self.k:
            r = self.farthest(left, self.average(left))
            s = self.farthest(left, self.points[r])
            groups.append(self.gather(left, r))
            if self.size(left) >= 2 * self.k:  # always, if no two records are equal
                groups.append(self.gather(left, s))
        if self.size(left) >= 2 * self.k:
            groups.append(self.gather(left, self.farthest(left, self.average(left))))
        if left:
            groups.append(left)
        while len(groups) > 1 and min(map(self.size, groups)) < self.k:
            small = min(groups, key=self.size)
            others = [group for group in groups if group is not small]
            centre = self.average(small)
            other = min(others, key=lambda group: self.distance(self.average(group), centre))
            groups = [group for group in others if group is not other] + [small + other]
        return groups


@given(
    rows=st.lists(CELLS, min_size=1, max_size=40),
    quasi=st.lists(st.sampled_from(QUASI), min_size=1, max_size=4, unique=True),
    k=st.integers(1, 6),
)
def test_the_groups_are_those_of_the_paper(rows: list[Any], quasi: list[str], k: int) -> None:
    if len(rows) < k:
        return
    problem = case(rows, quasi, [], f"k={k}").problem
    groups = microaggregate(problem)
    expected = {tuple(sorted(group)) for group in Paper(problem, k).groups()}
    assert {tuple(np.flatnonzero(groups == group).tolist()) for group in set(groups.tolist())} == expected


def test_distances_are_in_standard_deviations_and_shares_of_levels() -> None:
    rows = [(x, "low", tree, "p", "flu", 10) for x, tree in ((0, "a"), (0, "d"), (10, "e"), (10, "b"))]
    problem = case(rows, ["number", "tree"], [], "k=1").problem
    paper = Paper(problem, 1)
    assert [point[0] for point in paper.points] == [0, 0, 2, 2]  # the deviation of 0, 0, 10, 10 is 5
    by_value = dict(zip("adeb", (paper.points[row] for row in tuple_of_row(case(rows, ["number", "tree"], [], "k=1"))),
                        strict=True))  # fmt: skip
    assert paper.distance(by_value["a"], by_value["d"]) == (1 / 3) ** 2  # the same on two of three levels
    assert paper.distance(by_value["a"], by_value["e"]) == 4 + (2 / 3) ** 2
    assert paper.distance(by_value["a"], by_value["b"]) == 4 + 1


def test_tuples_of_one_block_are_not_grouped_with_others() -> None:
    rows = [(x % 10, "low", "a", "pqrs"[x // 10], "flu", 10) for x in range(40)]
    one = case(rows, ["number", "plain"], [], "k=2")
    groups = microaggregate(one.problem, block=10)
    blocks: dict[int, set[int]] = {}
    for group, codes in zip(groups.tolist(), one.problem.codes, strict=True):
        blocks.setdefault(group, set()).add(int(codes[1]))
    assert len({frozenset(values) for values in blocks.values()}) >= 2
    assert np.bincount(groups, one.problem.records).min() >= 2


def test_the_same_problem_gives_the_same_groups() -> None:
    rows = [(x * 7 % 10, "low", "abcdef"[x % 6], "pqrs"[x % 4], "flu" if x % 3 else "ulcer", 10) for x in range(200)]
    one, again = (case(order, ["number", "tree", "plain"], ["disease"], "k=3,l=2") for order in (rows, rows[::-1]))
    for block in (5, 4096):
        assert microaggregate(one.problem, block=block).tolist() == microaggregate(again.problem, block=block).tolist()


def test_the_group_that_misses_most_is_merged_with_the_nearest() -> None:
    # Two groups of three have one disease only; each takes the neighbour that has another.
    sick = ["flu"] * 3 + ["flu", "ulcer", "flu"] + ["ulcer", "flu", "ulcer"] + ["cancer"] * 3
    rows = [([0, 1, 8, 9][i // 3], "low", "a", "p", disease, 10) for i, disease in enumerate(sick)]
    problem = case(rows, ["number"], ["disease"], "k=3,l=2").problem
    assert microaggregate(problem).tolist() == [0, 0, 1, 1]


@given(rows=st.lists(CELLS, min_size=1, max_size=40), guarantees=GUARANTEES, output=st.sampled_from(["mean", "medoid"]))
def test_groups_that_are_published_alike_are_one_and_still_keep_everything(
    rows: list[Any], guarantees: list[sf.Guarantee], output: str
) -> None:
    one = case(rows, ["number", "tree"], ["disease"], guarantees)
    table = sf.Table(one.frame, SCHEMA)
    roles = {"qi": ["number", "tree"], "sensitive": ["disease"]}
    if not whole_table_keeps(one):
        return
    method = sf.Microaggregate(guarantees, output=output, **roles).fit(table)
    assert len(set(zip(*method.published_, strict=True))) == len(method.published_[0])
    released = method.transform(table).frame.select(*roles["qi"], "disease")
    assert all(check.held for check in sf.check(released, guarantees, **roles).checks)


def means(values: list[Any], dtype: Any = None, column: sf.Column | None = None) -> list[Any]:
    """What all values are published as, when they are one group."""
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype, strict=False)})
    table = sf.Table(frame, sf.Schema([column]) if column else None)
    return sf.Microaggregate(f"k={len(values)}", qi=["x"]).fit_transform(table).frame["x"].unique().to_list()


def test_whole_numbers_have_a_whole_mean() -> None:
    assert means([1, 2, 4]) == [2]
    assert means([1, 2, 2], pl.UInt8) == [2]
    assert means([-7, 0], pl.Int8) == [-4]


def test_a_mean_has_the_decimal_places_of_the_column() -> None:
    assert means([0.5, 1.25, 1.0]) == [0.92]
    assert means([1.0, 2.0, 2.0]) == [2.0]
    assert means([1 / 3, 2 / 3, 1.0]) == [2 / 3]
    assert means(["0.10", "0.25"], pl.Decimal(10, 2)) in ([Decimal("0.17")], [Decimal("0.18")])
    assert means([0.1, 0.3], pl.Float32) == pytest.approx([0.2])


def test_a_mean_is_of_the_numbers_that_are_known_unless_most_are_missing() -> None:
    assert means([1, 4, None]) == [2]
    assert means([1, None, None]) == [None]


def test_what_has_no_mean_is_published_as_its_median_or_mode() -> None:
    assert means([date(2020, 1, day) for day in (1, 2, 30)]) == [date(2020, 1, 2)]
    assert means(["low", "low", "top", "mid", "mid"], column=SCHEMA["ordinal"].__class__(
        name="x", kind="ordinal", domain=("low", "mid", "top"))) == ["mid"]  # fmt: skip
    assert means(["b", "a", "b"]) == ["b"]
    assert means([True, False, True]) == [True]


def test_durations_have_a_mean_and_huge_numbers_a_median() -> None:
    assert means([timedelta(seconds=1), timedelta(seconds=4)]) == [timedelta(seconds=2, milliseconds=500)]
    assert means([2**62, 2**62 + 1, 2**62 + 3]) == [2**62 + 1]


def test_every_partitioner_can_publish_means() -> None:
    people = pl.DataFrame({"age": [20, 23, 40, 61], "sex": ["f", "f", "m", "m"]})
    release = sf.anonymize(people, "k=2", method=sf.Mondrian(output="mean"), qi=["age", "sex"])
    assert release.aligned.frame.rows() == [(22, "f"), (22, "f"), (50, "m"), (50, "m")]
    assert release.table.frame.schema == people.schema


def test_new_rows_go_to_the_nearest_group() -> None:
    learnt = sf.Microaggregate("k=2", qi=["x"]).fit(pl.DataFrame({"x": [1, 3, 10, 12]}))
    assert learnt.transform(pl.DataFrame({"x": [0, 4, 99, 10]}))["x"].to_list() == [2, 2, 11, 11]


def test_many_tuples_are_grouped_alike_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    frame = pl.DataFrame({"x": draw.integers(0, 10**6, 5000), "y": draw.normal(size=5000)})
    problem = Problem.of(reduce(sf.Table(frame), ["x", "y"]), ["x", "y"], [], [sf.KAnonymity(5)])
    monkeypatch.setattr(module, "_FEW", 0)  # compiled
    groups = microaggregate(problem, block=500)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert np.array_equal(microaggregate(problem, block=500), groups)
    assert np.bincount(groups).min() >= 5


@pytest.mark.parametrize("block", [0, -1, 2.5, "many", None])
def test_a_wrong_block_is_refused(block: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="tuples of a block must be a whole number of at least 1, got"):
        sf.Microaggregate("k=1", qi=["x"], block=block).fit(pl.DataFrame({"x": [1, 2]}))


def test_a_column_that_counts_more_is_kept_apart() -> None:
    table = sf.Table(pl.DataFrame({"x": [0, 0, 9, 9], "town": ["a", "b", "a", "b"]}))
    problem = Problem.of(reduce(table, ["x", "town"]), ["x", "town"], [], [sf.KAnonymity(2)])
    assert problem.codes.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    nothing = np.zeros((4, 0))
    assert microaggregate(problem, metric=Metric(np.array([2.0, 0.1]), nothing)).tolist() == [0, 0, 1, 1]
    assert microaggregate(problem, metric=Metric(np.array([0.1, 2.0]), nothing)).tolist() == [1, 0, 1, 0]
    beside = np.array([[0.0], [9.0], [9.0], [0.0]])
    assert microaggregate(problem, metric=Metric(np.ones(2), beside)).tolist() == [1, 0, 0, 1]


@settings(max_examples=30)
@given(one=cases(), data=st.data())
def test_every_guarantee_holds_whatever_columns_count(one: Case, data: st.DataObject) -> None:
    columns = len(one.problem.domains)
    weight = np.array(data.draw(st.lists(st.sampled_from([0.125, 1.0, 4.0]), min_size=columns, max_size=columns)))
    if whole_table_keeps(one):
        beside = np.array(
            data.draw(st.lists(st.sampled_from([0.0, 0.5, 8.0]), min_size=len(one.problem), max_size=len(one.problem)))
        )[:, None]
        groups = microaggregate(one.problem, metric=Metric(weight, beside))
        assert keeps(one, groups[tuple_of_row(one)])
        assert groups.tolist() == microaggregate(one.problem, metric=Metric(4 * weight, 2 * beside)).tolist(), (
            "only their ratio matters"
        )


@settings(max_examples=60)
@given(one=cases(), data=st.data())
def test_the_plain_kernels_make_the_groups_of_the_compiled_ones(one: Case, data: st.DataObject) -> None:
    if not whole_table_keeps(one):
        return
    numbers = st.floats(0.125, 8.0)
    columns, tuples = len(one.problem.domains), len(one.problem)
    weight = data.draw(st.lists(numbers, min_size=columns, max_size=columns))
    beside = data.draw(st.lists(numbers, min_size=tuples, max_size=tuples))
    metric = data.draw(st.sampled_from([None, Metric(np.array(weight), np.array(beside)[:, None])]))
    plainly = microaggregate(one.problem, metric=metric).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", -1)
        assert microaggregate(one.problem, metric=metric).tolist() == plainly


def test_a_table_of_a_thousand_tuples_is_grouped_alike_with_plain_and_compiled_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "x": draw.normal(size=1000),
            "town": [f"t{value}" for value in draw.integers(0, 40, 1000)],
            "tree": draw.choice(list("abcdef"), 1000),
            "disease": draw.choice(list("uvw"), 1000),
        }
    )
    schema = sf.Schema(SCHEMA[name] if name == "tree" else sf.Column(name=name) for name in frame.columns)
    quasi = ["x", "town", "tree"]
    tuples = reduce(sf.Table(frame, schema), [*quasi, "disease"])
    problem = Problem.of(tuples, quasi, ["disease"], sf.Guarantee.parse("k=7,l=3"))
    plainly = microaggregate(problem)
    monkeypatch.setattr(module, "_FEW", -1)
    assert microaggregate(problem).tolist() == plainly.tolist()
    assert len(set(plainly.tolist())) > 50


@given(
    st.lists(st.floats(0, 4, allow_nan=False) | st.sampled_from([2.0, 2.0 - 1e-12, 2.0 + 1e-12, np.inf]), min_size=1)
)
def test_numbers_that_break_a_guarantee_are_those_that_it_does_not_accept(values: list[float]) -> None:
    asked = [sf.KAnonymity(2), sf.TCloseness(0.5), EntropyL(2.0), RecursiveCL(2.0, l=2), EnhancedBeta(2.0)]
    for guarantee in asked:
        broken = _breaks(guarantee, np.array(values))
        assert broken.tolist() == [not guarantee.accepts(value) for value in values]

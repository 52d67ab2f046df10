"""The lattice against trying every node, and against published optima."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers.lattice import nodes as lattice_nodes
from sfumato.anonymizers.lattice.nodes import Levels, levels_of
from sfumato.anonymizers.lattice.search import Generalisation, at_levels, lattice
from sfumato.anonymizers.lattice.walk import map_lattice
from sfumato.data.coding import Domain
from sfumato.engines import reduce
from sfumato.measures import ClassCounts, class_counts
from tests.effort import effort

DATA = os.environ.get("SFUMATO_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="SFUMATO_DATA does not name the folder of the full data sets")

GUARANTEES: list[list[sf.Guarantee]] = [
    [sf.KAnonymity(2)],
    [sf.KAnonymity(4)],
    [sf.measures.AlphaK(0.6, k=2)],
    [sf.measures.AlphaK(0.5, values=("0",))],
    [sf.LDiversity(2)],
    [sf.LDiversity(3), sf.KAnonymity(3)],
    [sf.measures.EntropyL(1.8)],
    [sf.measures.RecursiveCL(1.5, 2)],
    [sf.measures.RecursiveCL(2.5)],
    [sf.TCloseness(0.3)],
    [sf.TCloseness(0.2), sf.KAnonymity(2)],
    [sf.TCloseness(0.25, distance="equal")],
    [sf.measures.BetaLikeness(0.7)],
    [sf.measures.EnhancedBeta(0.6)],
    [sf.measures.DeltaDisclosure(0.8)],
    [sf.measures.DeltaDisclosure(0.8, absent="infinite"), sf.KAnonymity(2)],
]
EVERY_GUARANTEE = pytest.mark.parametrize("guarantees", GUARANTEES, ids=lambda asked: " ".join(map(str, asked)))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[list[list[int]]], float]:
    """Rows of two or three quasi-identifiers and two sensitive attributes, nested groups per column, a limit."""
    groups = [draw(hierarchies()) for _ in range(draw(st.integers(2, 3)))]
    row = st.tuples(*(st.integers(0, len(one[0]) - 1) for one in groups), st.integers(0, 3), st.integers(0, 1))
    rows = draw(st.lists(row, min_size=4, max_size=24))
    return rows, groups, draw(st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]))


@st.composite
def hierarchies(draw: st.DrawFn) -> list[list[int]]:
    """The group of each of two to five values on each level."""
    values = draw(st.integers(2, 5))
    levels = [list(range(values))]
    for _ in range(draw(st.integers(0, 2))):
        join = draw(st.lists(st.integers(0, 2), min_size=5, max_size=5))
        levels.append([join[group] for group in levels[-1]])
    return [*levels, [0] * values]


def tables(rows: Sequence[Sequence[int]], columns: int) -> list[ClassCounts]:
    names = [f"q{i}" for i in range(columns)]
    # All values of a column occur in the codes below, whether a row holds them or not.
    frame = pl.DataFrame(rows, schema=[*names, "s0", "s1"], orient="row")
    tuples = reduce(sf.Table(frame), [*names, "s0", "s1"])
    return [class_counts(tuples, names, name) for name in ("s0", "s1")]


def levels_in(counts: ClassCounts, groups: Sequence[Sequence[Sequence[int]]]) -> list[Levels]:
    """The given groups for the codes of the values that occur; all values are leaves."""
    found = []
    for domain, levels in zip(counts.quasi, groups, strict=True):
        values = domain.values.to_list()
        leaves = [[sum(other == level[value] for other in level) for value in values] for level in levels]
        found.append(Levels(np.array([[level[value] for value in values] for level in levels]), np.array(leaves)))
    return found


def counted(classes: Sequence[int], values: Sequence[Any]) -> ClassCounts:
    """Count the values of one sensitive attribute in classes numbered from 0."""
    present = sorted(set(values))
    cells = Counter((one, present.index(value)) for one, value in zip(classes, values, strict=True))
    owner, value, count = np.array([(*cell, cells[cell]) for cell in sorted(cells)]).T
    size = np.bincount(classes)
    domain = Domain(
        sf.Column(name="s", kind="number" if isinstance(present[0], int) else "category"), pl.Series(present)
    )
    total = np.bincount(value, weights=count).astype(np.int64)
    start = np.searchsorted(owner, np.arange(len(size) + 1))
    return ClassCounts(size, size, start, value, count, total, domain, np.arange(len(size))[:, None], (Numbers(),))


class Numbers:
    """Stands for the domain of the classes, which are but numbers here."""

    name = "class"

    def label(self, code: int) -> str:
        return str(code)


def suppressed_at(rows: Any, keys: list[Any], guarantees: Sequence[sf.Guarantee], limit: int) -> set[Any] | None:
    """The classes to suppress, written out: first by what each class shows alone, then in rounds; None if too many."""
    gone: set[Any] = set()
    own = (sf.KAnonymity, sf.measures.AlphaK, sf.LDiversity, sf.measures.EntropyL)
    for alone in (True, False):
        asked = [g for g in guarantees if (isinstance(g, own) or getattr(g, "l", None) is not None) is alone]
        while asked:
            left = [(key, row) for key, row in zip(keys, rows, strict=True) if key not in gone]
            if not left:
                return None
            labels = sorted({key for key, _ in left})
            place = [labels.index(key) for key, _ in left]
            counts = [counted(place, [row[which] for _, row in left]) for which in (-2, -1)]
            l = min(int(np.diff(one.start).min()) for one in counts)
            bad: set[Any] = set()
            for g in asked:
                g = sf.measures.RecursiveCL(g.c, l) if isinstance(g, sf.measures.RecursiveCL) and g.l is None else g
                for one in counts:
                    numbers = g.per_class(one).tolist()
                    small = [isinstance(g, sf.measures.AlphaK) and size < g.k for size in one.size.tolist()]
                    bad |= {q for q, x, no in zip(labels, numbers, small, strict=True) if no or not g.accepts(x)}
            gone |= bad
            if not bad or alone:
                break
    rows_gone = sum(key in gone for key in keys)
    return None if rows_gone > limit or rows_gone == len(rows) else gone


def every_node(
    rows: Any, groups: Any, guarantees: Sequence[sf.Guarantee], suppress: float, loss: str
) -> list[tuple[float, int, tuple[int, ...]]]:
    """Loss, suppressed rows and levels of every feasible node."""
    found = []
    for node in itertools.product(*(range(len(one)) for one in groups)):
        keys = [tuple(one[level][v] for one, level, v in zip(groups, node, row, strict=False)) for row in rows]
        gone = suppressed_at(rows, keys, guarantees, math.floor(suppress * len(rows) + 1e-9))
        if gone is None:
            continue
        total = 0.0
        for key, row in zip(keys, rows, strict=True):
            if key in gone:
                total += 1
            elif loss == "discernibility":
                total += keys.count(key) / len(rows)
            elif loss == "precision":
                total += float(np.mean([level / (len(one) - 1) for one, level in zip(groups, node, strict=True)]))
            else:
                shares = [
                    (one[level].count(one[level][v]) - 1) / (len(one[0]) - 1)
                    for one, level, v in zip(groups, node, row, strict=False)
                ]
                total += float(np.mean(shares))
        found.append((round(total / len(rows), 10), sum(key in gone for key in keys), node))
    return found


def released(found: Generalisation, counts: Sequence[ClassCounts]) -> list[ClassCounts]:
    """What is left, counted anew."""
    left = []
    for one in counts:
        assert one.attribute is not None
        entries = [
            (int(of), value, times)
            for of, value, times in zip(found.of_tuple[one.owner], one.value, one.count, strict=True)
        ]
        rows = [(of, one.attribute.values[int(value)]) for of, value, times in entries for _ in range(times) if of >= 0]
        left.append(counted([of for of, _ in rows], [value for _, value in rows]))
    return left


@EVERY_GUARANTEE
@settings(max_examples=effort(10, 100))
@given(problem=problems(), loss=st.sampled_from(["leaves", "precision", "discernibility"]))
def test_it_finds_what_trying_every_node_finds(guarantees: list[sf.Guarantee], loss: str, problem: Any) -> None:
    rows, groups, suppress = problem
    counts = tables(rows, len(groups))
    guarantees = [
        g
        for g in guarantees
        if not (isinstance(g, sf.measures.AlphaK) and g.values and not any(0 in r[-2:] for r in rows))
    ]
    if not guarantees:
        return
    levels = levels_in(counts[0], groups)
    expected = every_node(rows, groups, guarantees, suppress, loss)
    if not expected:
        with pytest.raises(sf.errors.InputError, match="no level of the hierarchies keeps"):
            lattice(counts, guarantees, levels, suppress=suppress, loss=loss)
        return
    found = lattice(counts, guarantees, levels, suppress=suppress, loss=loss)
    best = min(expected)
    assert (round(found.loss, 10), found.suppressed, found.levels) == best
    assert found.optimal
    assert found.bound == found.loss
    assert found.nodes == math.prod(map(len, groups))
    assert found.checked + found.pruned == found.nodes
    assert counts[0].size[found.of_tuple < 0].sum() == found.suppressed <= suppress * len(rows) + 1e-9
    left = released(found, counts)
    for guarantee in guarantees:
        chosen = getattr(guarantee, "values", None) or ()
        assert not set(chosen) <= {str(v) for one in left for v in one.attribute.values} or guarantee.check(left).held


@EVERY_GUARANTEE
@settings(max_examples=effort(8, 80))
@given(problem=problems(), most_nodes=st.integers(1, 6))
def test_with_too_few_nodes_the_bound_is_still_true(
    guarantees: list[sf.Guarantee], problem: Any, most_nodes: int
) -> None:
    rows, groups, suppress = problem
    if any(isinstance(g, sf.measures.AlphaK) and g.values for g in guarantees):
        return
    counts = tables(rows, len(groups))
    expected = every_node(rows, groups, guarantees, suppress, "leaves")
    feasible = {node: loss for loss, _, node in expected}
    try:
        found = lattice(counts, guarantees, levels_in(counts[0], groups), suppress=suppress, most_nodes=most_nodes)
    except sf.errors.InputError:
        assert tuple(len(one) - 1 for one in groups) not in feasible
        return
    assert found.loss == pytest.approx(feasible[found.levels])
    assert found.bound <= min(expected)[0] + 1e-9 <= found.loss + 2e-9
    assert found.optimal is (found.bound == found.loss)
    if found.optimal:
        assert found.loss == pytest.approx(min(expected)[0])


@given(problem=problems(), k=st.integers(2, 5), l=st.integers(1, 3))
def test_a_coarser_node_never_suppresses_more_rows_under_k_and_distinct_l(problem: Any, k: int, l: int) -> None:
    rows, groups, _ = problem
    asked = [sf.KAnonymity(k), sf.LDiversity(l)]
    gone: dict[tuple[int, ...], set[int]] = {}
    for node in itertools.product(*(range(len(one)) for one in groups)):
        keys = [tuple(one[level][v] for one, level, v in zip(groups, node, row, strict=False)) for row in rows]
        classes = suppressed_at(rows, keys, asked, len(rows))
        gone[node] = {i for i, key in enumerate(keys) if classes is None or key in classes}
    for a, b in itertools.permutations(gone, 2):
        if all(x <= y for x, y in zip(a, b, strict=True)):
            assert gone[b] <= gone[a]


@pytest.mark.parametrize(
    ("guarantee", "fine", "coarse"),
    [  # rows of (quasi-identifier, value); the classes a and b are merged
        (sf.measures.AlphaK(0.5), "a1 a1 a1 a1 b1 b2", 6),
        (sf.measures.EntropyL(2), "a1 a1 a1 a1 b1 b2", 6),
        (sf.measures.RecursiveCL(1.5, 2), "a1 a1 a1 a1 b1 b2", 6),
    ],
)
def test_a_coarser_node_may_suppress_more_rows_under_the_other_models(
    guarantee: sf.Guarantee, fine: str, coarse: int
) -> None:
    rows = [(text[0], text[1], text[1]) for text in fine.split()]
    assert suppressed_at(rows, [row[0] for row in rows], [guarantee], len(rows)) == {"a"}
    assert suppressed_at(rows, ["ab"] * coarse, [guarantee], len(rows)) is None


@settings(max_examples=25)
@given(problem=problems())
def test_keys_that_do_not_fit_into_a_word_change_nothing(problem: Any) -> None:
    rows, groups, suppress = problem
    counts = tables(rows, len(groups))
    levels = levels_in(counts[0], groups)
    expected = lattice(counts, [sf.KAnonymity(2)], levels, suppress=suppress)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice_nodes, "_LARGEST_KEY", 1)
        patch.setattr(lattice_nodes, "_MOST_KEPT", 10)
        found = lattice(counts, [sf.KAnonymity(2)], levels, suppress=suppress)
    assert (found.levels, found.of_tuple.tolist()) == (expected.levels, expected.of_tuple.tolist())
    assert found.loss == pytest.approx(expected.loss)


@given(problem=problems(), most=st.sampled_from([0, 3000]), loss=st.sampled_from(["leaves", "discernibility"]))
def test_plain_and_compiled_kernels_find_the_same_and_may_change_places(problem: Any, most: int, loss: str) -> None:
    rows, groups, suppress = problem
    counts = tables(rows, len(groups))
    levels = levels_in(counts[0], groups)
    asked = [sf.KAnonymity(2), sf.measures.RecursiveCL(4.0)]
    try:
        expected = lattice(counts, asked, levels, suppress=suppress, loss=loss)
    except sf.errors.InputError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice_nodes, "_FEW", most)
        found = lattice(counts, asked, levels, suppress=suppress, loss=loss)
    assert found.of_tuple.tolist() == expected.of_tuple.tolist()
    assert (found.levels, found.loss, found.bound) == (expected.levels, expected.loss, expected.bound)
    assert (found.suppressed, found.checked) == (expected.suppressed, expected.checked)


def small() -> tuple[list[ClassCounts], list[Levels]]:
    rows = [(i % 5, i % 3, i % 4, i % 2) for i in range(30)]
    counts = tables(rows, 2)
    groups = [[[0, 1, 2, 3, 4], [0, 0, 1, 1, 2], [0] * 5], [[0, 1, 2], [0] * 3]]
    return counts, levels_in(counts[0], groups)


def test_it_always_gives_the_same() -> None:
    counts, levels = small()
    first = lattice(counts, [sf.KAnonymity(3), sf.TCloseness(0.3)], levels, suppress=0.2)
    again = lattice(counts, [sf.KAnonymity(3), sf.TCloseness(0.3)], levels, suppress=0.2)
    assert first.of_tuple.tolist() == again.of_tuple.tolist()
    assert (first.levels, first.loss, first.checked) == (again.levels, again.loss, again.checked)


def test_a_loss_of_ones_own_is_minimised_and_must_be_monotone() -> None:
    counts, levels = small()
    free = lattice(counts, [sf.KAnonymity(3)], levels, suppress=1, loss=lambda one: np.zeros(one.groups.shape))
    assert free.loss == 0
    with pytest.raises(sf.errors.OptionError, match="never falling with the level"):
        lattice(counts, [sf.KAnonymity(3)], levels, loss=lambda one: 1 - one.leaves / one.leaves.max())
    with pytest.raises(
        sf.errors.OptionError, match="loss must be one of leaves, precision, discernibility, got 'beauty'"
    ):
        lattice(counts, [sf.KAnonymity(3)], levels, loss="beauty")


def test_a_guarantee_that_nobody_knows_is_kept_too() -> None:
    class EvenClasses(sf.measures.ClassGuarantee):
        key = "odd"
        bounds = {}
        needs_sensitive = False

        def per_class(self, counts: ClassCounts) -> Any:
            return counts.size % 2

        def accepts(self, value: float) -> bool:
            return value == 0

    counts, levels = small()
    plain = [
        replace(
            counts[0], attribute=None, start=counts[0].start * 0, value=counts[0].value[:0], count=counts[0].count[:0]
        )
    ]
    found = lattice(counts, [EvenClasses(), sf.KAnonymity(3)], levels, suppress=0.3)
    assert lattice(plain, [EvenClasses(), sf.KAnonymity(3)], levels, suppress=0.3).levels == found.levels
    sizes = np.bincount(found.of_tuple[found.of_tuple >= 0], weights=counts[0].size[found.of_tuple >= 0])
    assert (sizes % 2 == 0).all()
    assert found.optimal


@pytest.mark.parametrize("suppress", [0.0, 0.1])
def test_a_large_lattice_is_solved_with_few_checks(suppress: float) -> None:
    generator = np.random.default_rng(0)
    rows = [(*map(int, generator.integers(0, 5, 4)), 0, 0) for _ in range(200)]
    groups = [[[0, 1, 2, 3, 4], [0, 0, 2, 3, 4], [0, 0, 2, 2, 4], [0, 0, 2, 2, 2], [0] * 5]] * 4
    counts = tables(rows, 4)
    found = lattice(counts, [sf.KAnonymity(5)], levels_in(counts[0], groups), suppress=suppress)
    assert (round(found.loss, 10), found.suppressed, found.levels) == min(
        every_node(rows, groups, [sf.KAnonymity(5)], suppress, "leaves")
    )
    assert found.optimal
    assert found.checked < found.nodes / 3


def test_progress_rises_to_one() -> None:
    counts, levels = small()
    shares: list[float] = []
    lattice(counts, [sf.KAnonymity(3)], levels, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_it_says_what_cannot_be_had() -> None:
    counts, levels = small()
    with pytest.raises(
        sf.errors.InputError, match=r"keeps k=31 \(k is 30\) even with all rows in one class \(ask for less\)"
    ):
        lattice(counts, [sf.KAnonymity(31)], levels, suppress=0.5)
    with pytest.raises(sf.errors.InputError, match=r"keeps l=3 \(l is 2\)"):
        lattice(counts, [sf.KAnonymity(2), sf.LDiversity(3)], levels, suppress=1)
    with pytest.raises(sf.errors.InputError, match=r"keeps alpha=0.9,k=40 \(there are 30 rows\)"):
        lattice(counts, [sf.measures.AlphaK(0.9, k=40)], levels, suppress=1)


def test_it_does_not_claim_more_than_it_has_tried() -> None:
    rows = [(0, 0, s, s) for s in (0, 1) * 5] + [(1, 0, s, s) for s in (*(0, 1) * 5, 2)]
    counts = tables(rows, 2)
    levels = levels_in(counts[0], [[[0, 1], [0, 0]], [[0], [0]]])
    asked = [sf.KAnonymity(2), sf.measures.RecursiveCL(2)]
    assert lattice(counts, asked, levels).levels == (0, 0)
    crowd = [sf.KAnonymity(11), *asked[1:]]
    with pytest.raises(
        sf.errors.InputError, match=r"no level of the hierarchies that was tried keeps .*visit more nodes"
    ):
        lattice(counts, crowd, levels, most_nodes=1)


def test_it_says_how_much_suppression_would_do() -> None:
    rows = [(0, 0, 0, 0), (0, 0, 1, 1), *[(1, 0, 0, 0)] * 8]
    counts = tables(rows, 2)
    levels = levels_in(counts[0], [[[0, 1], [0, 0]], [[0], [0]]])
    with pytest.raises(
        sf.errors.InputError, match=r"keeps alpha=0\.5,k=1 \(alpha is 0\.9\).*suppress=0\.8 would do, less would not"
    ):
        lattice(counts, [sf.measures.AlphaK(0.5)], levels, suppress=0.1)
    assert lattice(counts, [sf.measures.AlphaK(0.5)], levels, suppress=0.8).suppressed == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suppress": 1.5}, "the share of rows to suppress must be a number from 0 to 1, got 1.5"),
        ({"most_nodes": 0}, "the number of nodes to visit must be a whole number of at least 1, got 0"),
        ({"guarantees": []}, "no guarantee is asked for"),
        ({"guarantees": [sf.measures.AlphaK(0.5, values=("7",))]}, "alpha is required for the value '7'"),
        ({"levels": []}, "needs the levels of each of 2 quasi-identifiers, got 0"),
    ],
)
def test_bad_options_are_refused(change: dict[str, Any], message: str) -> None:
    counts, levels = small()
    with pytest.raises(sf.errors.OptionError, match=message):
        lattice(**{"counts": counts, "guarantees": [sf.KAnonymity(2)], "levels": levels, **change})


def test_levels_that_do_not_nest_are_refused() -> None:
    counts, levels = small()
    crossed = Levels(np.array([[0, 1, 2, 3, 4], [0, 0, 1, 1, 2], [0, 1, 0, 0, 0], [0] * 5]), np.ones((4, 5), dtype=int))
    with pytest.raises(sf.errors.SchemaError, match="column 'q0': values that agree on one level must agree"):
        lattice(counts, [sf.KAnonymity(2)], [crossed, levels[1]])


def test_a_model_of_sensitive_values_needs_a_sensitive_attribute() -> None:
    counts, levels = small()
    names = [domain.name for domain in counts[0].quasi]
    plain = class_counts(reduce(sf.Table(pl.DataFrame({"q0": [1, 2], "q1": [1, 2]})), names), names, None)
    with pytest.raises(sf.errors.OptionError, match="l needs a sensitive attribute"):
        lattice([plain], [sf.LDiversity(2)], levels)


def test_a_column_without_a_hierarchy_gets_one() -> None:
    frame = pl.DataFrame({"age": [17, 18, 23, 31, 36, 44, 47, 58], "sex": ["f", "m"] * 4})
    counts = class_counts(reduce(sf.Table(frame), ["age", "sex"]), ["age", "sex"], None)
    levels = [levels_of(domain) for domain in counts.quasi]
    assert [one.height for one in levels] == [3, 1]
    assert levels[0].leaves[-1].tolist() == [8] * 8
    assert lattice([counts], [sf.KAnonymity(2)], levels).optimal


def adult(folder: Path) -> tuple[list[ClassCounts], list[Levels]]:
    """The training rows, and anjana's hierarchies."""
    files = {"age": "age", "education": "education", "marital-status": "marital", "occupation": "occupation"}
    files |= {"sex": "sex", "native-country": "country"}
    trees = {name: sf.Hierarchy.read(folder / "anjana" / "hierarchies" / f"{file}.csv") for name, file in files.items()}
    frame = pl.read_parquet(folder / "adult" / "adult.parquet").filter(pl.col("split") == "train")
    schema = sf.Schema([sf.Column(name=name, hierarchy=tree) for name, tree in trees.items()])
    tuples = reduce(sf.Table(frame.select(*files).cast({pl.Categorical: pl.String}), schema), list(files))
    counts = class_counts(tuples, list(files), None)
    return [counts], [levels_of(domain) for domain in counts.quasi]


@needs_data
@pytest.mark.parametrize(
    ("suppress", "loss", "levels"),
    [(0.5, 0.2233, (3, 1, 0, 1, 0, 0)), (0.05, 0.2566, (4, 2, 0, 1, 0, 1)), (0.0, 0.5821, (6, 1, 2, 1, 0, 2))],
)
def test_the_known_optima_of_adult_are_found(suppress: float, loss: float, levels: tuple[int, ...]) -> None:
    counts, all_levels = adult(Path(DATA))
    found = lattice(counts, [sf.KAnonymity(10)], all_levels, suppress=suppress)
    assert found.nodes == 1512
    assert found.optimal
    assert (round(found.loss, 4), found.levels) == (loss, levels)


def test_a_release_on_levels_of_automatic_hierarchies_can_be_compared_with_the_original() -> None:
    jobs = [f"job {number % 37 % (1 + number % 30)}" for number in range(600)]
    frame = pl.DataFrame({"job": jobs})
    release = sf.anonymize(frame, "k=60", method=sf.Lattice(), qi=["job"])
    assert release.details["levels"]["job"] not in (0, release.details["heights"]["job"])
    assert sf.loss(frame, release.aligned, quasi=["job"]).gcp == pytest.approx(release.loss.gcp)


# --- levels that a person chooses -----------------------------------------------------------------


@EVERY_GUARANTEE
@settings(max_examples=effort(10, 200))
@given(problem=problems())
def test_the_map_says_what_each_combination_of_levels_costs(
    problem: tuple[list[tuple[int, ...]], list[list[list[int]]], float], guarantees: list[sf.Guarantee]
) -> None:
    rows, groups, limit = problem
    counts = tables(rows, len(groups))
    levels = levels_in(counts[0], groups)
    found = map_lattice(counts, guarantees, levels, suppress=limit)
    assert found.size == len({one.levels for one in found.nodes}) == math.prod(map(len, groups))
    holding = {one.levels: (one.loss, one.suppressed) for one in found.nodes if one.holds}
    by_hand = {
        node: (pytest.approx(loss), gone) for loss, gone, node in every_node(rows, groups, guarantees, limit, "leaves")
    }
    assert holding == by_hand
    if by_hand:
        assert found.best == lattice(counts, guarantees, levels, suppress=limit).levels
    else:
        assert found.best is None
    for one in found.nodes:
        if one.holds:
            taken = at_levels(counts, guarantees, levels, one.levels, suppress=limit)
            assert (taken.levels, taken.suppressed) == (one.levels, one.suppressed)
        else:
            with pytest.raises(sf.errors.InputError, match=f"at these levels {one.suppressed} of"):
                at_levels(counts, guarantees, levels, one.levels, suppress=limit)


PEOPLE = pl.DataFrame({"age": [21, 22, 24, 41, 68, 21], "sex": ["f", "f", "m", "m", "m", "f"]})


def people() -> sf.Table:
    decades = sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100))
    ages, sex = sf.Column(name="age", role="quasi", hierarchy=decades), sf.Column(name="sex", role="quasi")
    return sf.Table(PEOPLE, sf.Schema([ages, sex]))


def test_chosen_levels_are_those_of_the_release_and_of_its_recipe(tmp_path: Path) -> None:
    method = sf.Lattice(levels={"sex": 1, "age": 2}, suppress=0.4)
    release = sf.anonymize(people(), "k=2", method=method)
    assert release.details["levels"] == {"age": 2, "sex": 1}
    assert not release.details["optimal"]
    sf.save(release, tmp_path / "release")
    assert sf.verify(tmp_path / "release")
    again = sf.run(sf.load(tmp_path / "release").recipe, people())
    assert again.details["levels"] == {"age": 2, "sex": 1}


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"age": 1}, "the level of column 'sex' is missing"),
        ({"age": 1, "sex": 0, "zip": 1}, "no quasi-identifier 'zip'"),
        ({"age": 9, "sex": 0}, "at most 3, got 9"),
        ({"age": -1, "sex": 0}, "whole number"),
        ({"age": 1.5, "sex": 0}, "whole number"),
        ({"age": 0, "sex": 0}, "at these levels 4 of 6 rows must be suppressed, and 0 may be"),
    ],
)
def test_levels_that_cannot_be_taken_are_refused(levels: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.errors.SfumatoError, match=message):
        sf.anonymize(people(), "k=2", method=sf.Lattice(levels=levels))


def test_the_map_of_a_large_lattice_is_the_part_around_some_levels() -> None:
    method = sf.Lattice("k=2", suppress=0.4)
    whole = {one.levels: one for one in method.map(people()).nodes}
    part = method.map(people(), around={"age": 3, "sex": 0}, most_nodes=3)
    assert [one.levels for one in part.nodes] == [(2, 0), (3, 0), (3, 1)]
    assert all(whole[one.levels] == one for one in part.nodes)
    assert part.size == 8
    with pytest.raises(sf.errors.OptionError, match="at most 3"):
        method.map(people(), around={"age": 4, "sex": 0})

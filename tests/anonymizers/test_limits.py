"""The compiled check of a class agrees with the guarantee objects, for all nine models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.limits import limits
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce
from sfumato.measures import ClassCounts

TREE = sf.Hierarchy.tree(
    [("a", "vowel"), ("b", "consonant"), ("c", "consonant"), ("d", "consonant"), ("e", "vowel"), ("(missing)", "none")]
)
SENSITIVE = {
    "letter": sf.Column(name="letter", kind="category", role="sensitive"),
    "node": sf.Column(name="node", kind="category", role="sensitive", hierarchy=TREE),
    "rank": sf.Column(name="rank", kind="ordinal", role="sensitive", domain=tuple("abcde")),
    "number": sf.Column(name="number", kind="number", role="sensitive"),
}


def counts_of(rows: list[tuple[int, str]], kinds: list[str]) -> tuple[ClassCounts, ...]:
    values: dict[str, Any] = {"q": [q for q, _ in rows]}
    for kind in kinds:
        texts = [text for _, text in rows]
        values[kind] = [ord(text) ** 2 for text in texts] if kind == "number" else texts
    schema = sf.Schema([sf.Column(name="q", role="quasi"), *(SENSITIVE[kind] for kind in kinds)])
    table = sf.Table(pl.DataFrame(values), schema)
    return Problem.of(reduce(table, ["q", *kinds]), ["q"], kinds, []).counts


def class_of(counts: ClassCounts, index: int) -> ClassCounts:
    """One class alone, in a table whose distribution is still that of all."""
    entries = slice(counts.start[index], counts.start[index + 1])
    return OneClass(
        size=counts.size[index : index + 1],
        records=counts.records[index : index + 1],
        start=np.array([0, entries.stop - entries.start]),
        value=counts.value[entries],
        count=counts.count[entries],
        total=counts.total,
        attribute=counts.attribute,
        labels=counts.labels[index : index + 1],
        quasi=counts.quasi,
        table=counts.rows,
    )


@dataclass(frozen=True, eq=False)
class OneClass(ClassCounts):
    table: int = 0

    @property
    def rows(self) -> int:
        return self.table


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcde")), min_size=1, max_size=40)
SHARES = st.floats(0, 1) | st.sampled_from([0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1])
SMALL = st.floats(0, 5) | st.sampled_from([0, 0.5, 1, 2, math.log(2), math.log(3), 1 / 3, math.inf])
L = st.integers(1, 4)
GUARANTEES = st.one_of(
    st.builds(sf.KAnonymity, st.integers(1, 12)),
    st.builds(sf.measures.AlphaK, SHARES, st.integers(1, 5)),
    st.builds(sf.LDiversity, L),
    st.builds(sf.measures.EntropyL, st.floats(1, 5) | st.sampled_from([1.0, 2.0, 3.0])),
    st.builds(sf.measures.RecursiveCL, SMALL, st.none() | L),
    st.builds(sf.TCloseness, SHARES),
    st.builds(sf.TCloseness, SHARES, st.just("equal")),
    st.builds(sf.measures.BetaLikeness, SMALL),
    st.builds(sf.measures.EnhancedBeta, SMALL),
    st.builds(sf.measures.DeltaDisclosure, SMALL, st.sampled_from(["ignore", "infinite"])),
)
KINDS = st.lists(st.sampled_from(list(SENSITIVE)), min_size=1, max_size=3, unique=True)


def assert_agree(counts: tuple[ClassCounts, ...], guarantees: list[sf.Guarantee]) -> None:
    asked = limits(counts, guarantees)
    for index in range(len(counts[0])):
        alone = [class_of(one, index) for one in counts]
        histogram = np.concatenate(
            [np.bincount(one.value, weights=one.count, minlength=len(one.total)) for one in alone]
        ).astype(np.int64)
        expected = all(guarantee.check(alone).held for guarantee in guarantees)
        size = int(alone[0].size[0])
        assert keeps(histogram, size, asked, np.zeros(len(histogram), dtype=np.int64)) == expected


@given(rows=ROWS, kinds=KINDS, guarantees=st.lists(GUARANTEES, min_size=1, max_size=3))
def test_a_class_keeps_what_the_guarantees_say(
    rows: list[tuple[int, str]], kinds: list[str], guarantees: list[sf.Guarantee]
) -> None:
    assert_agree(counts_of(rows, kinds), guarantees)


@given(rows=ROWS, kind=st.sampled_from(list(SENSITIVE)), guarantee=GUARANTEES)
def test_it_agrees_where_the_bound_is_what_was_measured(
    rows: list[tuple[int, str]], kind: str, guarantee: sf.Guarantee
) -> None:
    counts = counts_of(rows, [kind])
    field = guarantee.bounds[guarantee.key].field
    for index in range(len(counts[0])):
        measured = guarantee.measure([class_of(counts[0], index)]).value
        rest = {"l": guarantee.l} if isinstance(guarantee, sf.measures.RecursiveCL) else {}
        for bound in (measured, measured * (1 - 5e-10), measured * (1 - 2e-9), np.nextafter(measured, np.inf)):
            if (guarantee.key in ("k", "l") and bound != int(bound)) or (guarantee.key == "entropy_l" and bound < 1):
                continue
            if guarantee.key in ("t", "alpha") and bound > 1:
                continue
            assert_agree(counts, [type(guarantee)(**{field: bound}, **rest)])


@pytest.mark.parametrize("distance", ["equal", "ordered", "scaled", "hierarchical"])
@given(rows=ROWS, t=SHARES)
def test_every_distance_of_closeness_agrees(distance: str, rows: list[tuple[int, str]], t: float) -> None:
    kind = "node" if distance == "hierarchical" else "number"
    assert_agree(counts_of(rows, [kind]), [sf.TCloseness(t, distance)])


@given(rows=ROWS, alpha=SHARES, chosen=st.lists(st.sampled_from("abcde"), unique=True))
def test_alpha_counts_only_the_chosen_values(rows: list[tuple[int, str]], alpha: float, chosen: list[str]) -> None:
    held = tuple(value for value in chosen if any(value == text for _, text in rows))
    assert_agree(counts_of(rows, ["letter"]), [sf.measures.AlphaK(alpha, values=held)])


def test_two_guarantees_of_one_model_both_count() -> None:
    counts = counts_of([(0, "a"), (0, "b"), (0, "b"), (1, "c")], ["number"])
    for t in (0.1, 0.3, 0.5, 0.9):
        assert_agree(counts, [sf.TCloseness(t, "equal"), sf.TCloseness(0.5, "scaled")])


def test_a_model_without_numbers_is_refused() -> None:
    class Own(sf.KAnonymity):
        pass

    with pytest.raises(sf.errors.OptionError, match="this method does not support the guarantee"):
        limits(counts_of([(0, "a")], ["letter"]), [Own(2)])

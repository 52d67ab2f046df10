"""The nine privacy models as arrays of numbers, for kernels that check a class millions of times.

`limits` translates the guarantees once; `class_kernels.keeps` then checks the counts of one class, with the result of
`ClassGuarantee.check` on a table where only this class matters. Strict bounds agree exactly: ratios use the same
operations, and logarithms are taken beforehand. The sums of t and of the entropy are added in another order and may
differ in the last digits, which matters only at the edge of the tolerance of 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import OptionError
from sfumato.measures.classes import ClassCounts, Floats, Ints
from sfumato.measures.distance import Distance, levels_of, places_of
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import (
    Absent,
    AlphaK,
    BetaLikeness,
    DeltaDisclosure,
    EnhancedBeta,
    EntropyL,
    KAnonymity,
    LDiversity,
    RecursiveCL,
    TCloseness,
)

__all__ = ["Limits", "limits", "sparse"]

# The kinds of rules in `Limits`, the cheapest first.
L, ALPHA, RECURSIVE, BETA, DELTA, T_EQUAL, T_TREE, T_LINE, ENTROPY = range(9)


class Limits(NamedTuple):
    """The limits of a class: at least k records, and a list of rules about its sensitive values.

    Attributes
    ----------
    k : the smallest number of records
    rows : the records of the whole table
    offset : the offset of each sensitive attribute in a histogram, and the length of the histogram
    total : the count of each value of each attribute in the whole table
    model, attribute, asked, whole, at : for each rule its kind, the attribute (-1 for all), the bound, a whole number
        (l; the levels of a hierarchy; 1 if every value must occur) and the offset of its numbers
    numbers : the numbers of a rule per value: 1 if alpha counts it; the largest gain; the smallest and the largest
        ratio; the shares of nodes; the cumulative shares and the distances to the next value
    node : the node of every value on every level
    """

    k: int
    rows: int
    offset: Ints
    total: Ints
    model: Ints
    attribute: Ints
    asked: Floats
    whole: Ints
    at: Ints
    numbers: Floats
    node: Ints

    @property
    def values(self) -> int:
        """The length of a histogram of all sensitive attributes; 0 if only the size matters."""
        return int(self.offset[-1]) if len(self.model) else 0


class _Rule(NamedTuple):
    model: int
    attribute: int
    asked: float = 0.0
    whole: int = 0
    numbers: Any = ()
    node: Any = ()


def limits(counts: Sequence[ClassCounts], guarantees: Sequence[ClassGuarantee]) -> Limits:
    """Translate guarantees into arrays, with the distribution of the whole table from the counts.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> from sfumato.anonymizers.class_kernels import keeps
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "m"], "disease": ["flu", "ulcer", "flu"]}))
    >>> counts = class_counts(reduce(table, ["sex", "disease"]), ["sex"], "disease")
    >>> asked = limits([counts], [sf.KAnonymity(2), sf.LDiversity(2)])
    >>> [bool(keeps(np.array(one), sum(one), asked, np.zeros(2, dtype=np.int64))) for one in ([1, 1], [2, 0], [1, 0])]
    [True, False, False]
    """
    k = max([1, *(one.k for one in guarantees if isinstance(one, KAnonymity | AlphaK))])
    rules = [rule for guarantee in guarantees for rule in _rules(guarantee, counts)]
    rules.sort(key=lambda rule: rule.model)
    sizes = [0 if one.attribute is None else len(one.total) for one in counts]
    numbers = [np.asarray(rule.numbers, dtype=np.float64).ravel() for rule in rules]
    nodes = [np.asarray(rule.node, dtype=np.int64).ravel() for rule in rules]
    # The numbers and nodes of a rule have the same offset: a hierarchy has equally many of both.
    length = [max(len(a), len(b)) for a, b in zip(numbers, nodes, strict=True)]
    return Limits(
        k=k,
        rows=counts[0].rows,
        offset=np.cumsum([0, *sizes], dtype=np.int64),
        total=np.concatenate([one.total[:size] for one, size in zip(counts, sizes, strict=True)]).astype(np.int64),
        model=np.array([rule.model for rule in rules], dtype=np.int64),
        attribute=np.array([rule.attribute for rule in rules], dtype=np.int64),
        asked=np.array([rule.asked for rule in rules], dtype=np.float64),
        whole=np.array([rule.whole for rule in rules], dtype=np.int64),
        at=(np.cumsum(length) - length).astype(np.int64),
        numbers=_pool(numbers, length, np.float64),
        node=_pool(nodes, length, np.int64),
    )


def sparse(counts: Sequence[ClassCounts], asked: Limits) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the size of each class and its sparse sensitive values: those of class i are start[i] to start[i + 1]."""
    classes = len(counts[0])
    if not len(asked.model):
        none = np.zeros(0, dtype=np.int64)
        return counts[0].size, np.zeros(classes + 1, dtype=np.int64), none, none
    owner = np.concatenate([one.owner for one in counts])
    cell = np.concatenate([one.value + at for one, at in zip(counts, asked.offset, strict=False)])
    count = np.concatenate([one.count for one in counts])
    sort = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[sort], np.arange(classes + 1)).astype(np.int64)
    return counts[0].size, start, cell[sort], count[sort]


def _rules(guarantee: ClassGuarantee, counts: Sequence[ClassCounts]) -> Iterator[_Rule]:
    """Yield the rules of one guarantee for every sensitive attribute; none if it accepts everything."""
    model = type(guarantee)
    if model is KAnonymity:
        return
    if isinstance(guarantee, RecursiveCL):
        # Without an l, each class uses its own distinct l over all attributes (-1); see `keeps`.
        for index in range(len(counts)) if guarantee.l is not None else (-1,):
            if guarantee.c < math.inf:
                yield _Rule(RECURSIVE, index, guarantee.c, guarantee.l or 0)
        return
    if model not in _TRANSLATIONS:
        raise OptionError(
            f"this method does not support the guarantee '{guarantee}'",
            hint="it supports the nine models of Sfumato",
        )
    for index, one in enumerate(counts):
        if one.attribute is not None:
            rule = _TRANSLATIONS[model](guarantee, one, index)
            if rule is not None:
                yield rule


def _alpha(guarantee: AlphaK, counts: ClassCounts, index: int) -> _Rule:
    assert counts.attribute is not None
    labels = [counts.attribute.label(code) for code in range(len(counts.attribute))]
    chosen = np.ones(len(labels)) if guarantee.values is None else np.isin(labels, guarantee.values)
    return _Rule(ALPHA, index, guarantee.alpha, numbers=chosen)


def _closeness(guarantee: TCloseness, counts: ClassCounts, index: int) -> _Rule:
    assert counts.attribute is not None
    attribute, rows = counts.attribute, counts.rows
    distance = guarantee.distance.for_attribute(attribute)
    if distance is Distance.EQUAL:
        return _Rule(T_EQUAL, index, guarantee.t, numbers=counts.total / rows)
    if distance is Distance.HIERARCHICAL:
        nodes = levels_of(attribute)
        share = [np.bincount(level, weights=counts.total, minlength=nodes.shape[1]) / rows for level in nodes]
        return _Rule(T_TREE, index, guarantee.t, len(nodes), share, nodes)
    step = np.append(np.diff(places_of(attribute, distance)), 0.0)
    return _Rule(T_LINE, index, guarantee.t, numbers=[np.cumsum(counts.total) / rows, step])


def _enhanced(guarantee: EnhancedBeta, counts: ClassCounts, index: int) -> _Rule | None:
    if guarantee.beta == math.inf:  # accepts an infinite number too
        return None
    return _Rule(BETA, index, guarantee.beta, numbers=-np.log(counts.total / counts.rows))


def _delta(guarantee: DeltaDisclosure, counts: ClassCounts, index: int) -> _Rule | None:
    if guarantee.delta == math.inf:
        return None
    ratios = _ratios_below(guarantee.delta)
    return _Rule(DELTA, index, whole=int(guarantee.absent is Absent.INFINITE), numbers=ratios)


_TRANSLATIONS: dict[type[ClassGuarantee], Callable[[Any, ClassCounts, int], _Rule | None]] = {
    AlphaK: _alpha,
    LDiversity: lambda guarantee, counts, index: _Rule(L, index, whole=guarantee.l),
    EntropyL: lambda guarantee, counts, index: _Rule(ENTROPY, index, guarantee.l),
    TCloseness: _closeness,
    BetaLikeness: lambda guarantee, counts, index: _Rule(
        BETA, index, guarantee.beta, numbers=np.full(len(counts.total), np.inf)
    ),
    EnhancedBeta: _enhanced,
    DeltaDisclosure: _delta,
}


def _ratios_below(delta: float) -> tuple[float, float]:
    """Return the smallest and the largest ratio whose logarithm, as numpy computes it, is within delta of 0."""
    if delta == 0:
        return 1.0, 0.0  # none
    if delta > 700:  # more than any table has rows
        return 0.0, math.inf
    return (
        _edge(lambda ratio: bool(-np.log(ratio) < delta), np.exp(-delta), 1e-9),
        _edge(lambda ratio: bool(np.log(ratio) < delta), np.exp(delta), -1e-9),
    )


def _edge(holds: Callable[[np.float64], bool], near: float, inward: float) -> float:
    """Return the last number near `near` for which a condition holds, by bisection."""
    inside, outside = np.float64(near * (1 + inward)), np.float64(near * (1 - inward))
    while (middle := inside + (outside - inside) / 2) not in (inside, outside):
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return float(inside)


def _pool(parts: Sequence[NDArray[Any]], length: Sequence[int], dtype: type) -> NDArray[Any]:
    filled = [np.append(part, np.zeros(size - len(part), dtype)) for part, size in zip(parts, length, strict=True)]
    return np.concatenate([*filled, np.zeros(0)]).astype(dtype)

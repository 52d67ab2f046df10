"""The nine privacy models as a few arrays of numbers, for kernels that check a class millions of times.

`limits` translates guarantees once; `kernels.keeps` then says, from the counts of one class, what
`ClassGuarantee.check` would say of a table in which this is the only class that matters. Strict bounds agree
exactly: ratios are formed by the same operations, logarithms are taken beforehand. The sums of t and
of the entropy are added in another order, and so may differ in the last digits: that shows only where the
measured number lies on the very edge of the slack of 1e-9.
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

__all__ = ["ALPHA", "BETA", "DELTA", "ENTROPY", "RECURSIVE", "T_EQUAL", "T_LINE", "T_TREE", "L", "Limits", "limits"]

# What a rule of `Limits` checks, the cheapest first.
L, ALPHA, RECURSIVE, BETA, DELTA, T_EQUAL, T_TREE, T_LINE, ENTROPY = range(9)


class Limits(NamedTuple):
    """What a class must keep: at least k records, and a list of rules on its sensitive values.

    Attributes
    ----------
    k : the least number of records
    rows : the records of the whole table
    offset : where the counts of each sensitive attribute begin in a histogram; the last is its length
    total : how often each value of each attribute occurs in the whole table
    model, attribute, asked, whole, at : of each rule its kind, the attribute (-1 for all), the bound, a whole
        number (l; the levels of a hierarchy; 1 if every value must occur) and where its numbers begin
    numbers : per value what a rule needs: 1 if alpha counts it; the largest allowed gain; the least and the
        largest ratio; the shares of nodes; the shares up to a value and the distances to the next
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
    """Return the guarantees as arrays; the distribution of the whole table is taken from the counts.

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
    # A rule's numbers and nodes begin at the same place: a hierarchy has as many of one as of the other.
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


def _rules(guarantee: ClassGuarantee, counts: Sequence[ClassCounts]) -> Iterator[_Rule]:
    """Return the rules of one guarantee, for every sensitive attribute; none if it accepts everything."""
    model = type(guarantee)
    if model is KAnonymity:
        return
    if model is RecursiveCL:
        if guarantee.c < math.inf:  # type: ignore[attr-defined]
            yield from _recursive(guarantee, len(counts))  # type: ignore[arg-type]
        return
    if model not in _TRANSLATIONS:
        raise OptionError(
            f"the guarantee '{guarantee}' is of a kind that this method cannot keep",
            hint="it keeps the nine models of Sfumato",
        )
    for index, one in enumerate(counts):
        if one.attribute is not None:
            rule = _TRANSLATIONS[model](guarantee, one, index)
            if rule is not None:
                yield rule


def _recursive(guarantee: RecursiveCL, attributes: int) -> Iterator[_Rule]:
    if guarantee.l is None:  # the l of a class is its own distinct l, over all attributes: see `keeps`
        yield _Rule(RECURSIVE, -1, guarantee.c, 0)
    else:
        yield from (_Rule(RECURSIVE, index, guarantee.c, guarantee.l) for index in range(attributes))


def _alpha(guarantee: AlphaK, counts: ClassCounts, index: int) -> _Rule:
    assert counts.attribute is not None
    labels = [counts.attribute.label(code) for code in range(len(counts.attribute))]
    chosen = np.ones(len(labels)) if guarantee.values is None else np.isin(labels, guarantee.values)
    return _Rule(ALPHA, index, guarantee.alpha, numbers=chosen)


def _distinct(guarantee: LDiversity, counts: ClassCounts, index: int) -> _Rule:
    return _Rule(L, index, whole=guarantee.l)


def _entropy(guarantee: EntropyL, counts: ClassCounts, index: int) -> _Rule:
    return _Rule(ENTROPY, index, guarantee.l)


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


def _beta(guarantee: BetaLikeness, counts: ClassCounts, index: int) -> _Rule:
    return _Rule(BETA, index, guarantee.beta, numbers=np.full(len(counts.total), np.inf))


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
    LDiversity: _distinct,
    EntropyL: _entropy,
    TCloseness: _closeness,
    BetaLikeness: _beta,
    EnhancedBeta: _enhanced,
    DeltaDisclosure: _delta,
}


def _ratios_below(delta: float) -> tuple[float, float]:
    """Return the least and the largest ratio whose logarithm, as numpy takes it, is less than delta away from 0."""
    if delta == 0:
        return 1.0, 0.0  # none
    if delta > 700:  # more than any table has rows
        return 0.0, math.inf
    return (
        _edge(lambda ratio: bool(-np.log(ratio) < delta), np.exp(-delta), 1e-9),
        _edge(lambda ratio: bool(np.log(ratio) < delta), np.exp(delta), -1e-9),
    )


def _edge(holds: Callable[[np.float64], bool], near: float, inward: float) -> float:
    """Return the last number for which something holds, close to another one, by bisection."""
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

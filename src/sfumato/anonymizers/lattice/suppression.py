"""Which classes of a node must be suppressed, and whether too many must.

First go the classes whose own number breaks a guarantee that looks at nothing but the class (k,
alpha, l, entropy l, recursive (c,l) with a given l). Then, in rounds, those that break one that
looks at the whole table (t, the betas, delta, recursive without an l): all of them at once,
measured against the rows still left. Suppressed rows are not in the reference distribution, so it
shifts, and the rest is measured again until all that is left holds. The node is feasible if rows
are left and the suppressed share is within the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.lattice.nodes import Classes
from sfumato.measures.classes import ClassCounts, Floats
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import (
    Absent,
    AlphaK,
    BetaLikeness,
    DeltaDisclosure,
    EntropyL,
    KAnonymity,
    LDiversity,
    RecursiveCL,
    TCloseness,
)

__all__ = ["Judge"]


class Judge:
    """Says which classes must be suppressed; see the top of this module."""

    def __init__(self, guarantees: Sequence[ClassGuarantee], counts: Sequence[ClassCounts], limit: int) -> None:
        # alpha with a k is a guarantee on shares and one on sizes
        apart = [*guarantees, *(KAnonymity(one.k) for one in guarantees if isinstance(one, AlphaK))]
        self.limit, self.counts, self.rows = limit, counts, counts[0].rows
        self._fails = np.empty(len(counts[0]), dtype=bool)
        self.k = max((one.k for one in apart if isinstance(one, KAnonymity)), default=1)
        self.l = max((one.l for one in apart if isinstance(one, LDiversity)), default=1)
        others = [one for one in apart if not isinstance(one, KAnonymity | LDiversity)]
        self.of_class = [one for one in others if _looks_at_the_class_only(one)]
        self.of_table = [one for one in others if not _looks_at_the_class_only(one)]
        self.sensitive = self.l > 1 or bool(others)
        self.can_tag = self.k > 1 or self.l > 1 or (limit == 0 and any(map(_improves_by_merging, others)))

    def judge(self, classes: Classes) -> tuple[NDArray[np.bool_] | None, bool]:
        """Return which classes are suppressed, or None and whether every finer node is infeasible too."""
        fails = self._fails[: len(classes.size)]
        np.less(classes.size, self.k, out=fails)
        rows = int(classes.size[fails].sum())
        if rows > self.limit or rows == self.rows:
            return None, True
        if not self.sensitive:
            return fails, False
        for start, _, _ in classes.entries if self.l > 1 else ():
            fails |= np.diff(start) < self.l
        if self._too_many(classes, fails):
            return None, True
        for guarantees, repeat in ((self.of_class, False), (self.of_table, True)):
            while guarantees:
                kept = np.flatnonzero(~fails)
                worse, hopeless = self._failing(
                    guarantees, [self.counts_of(classes, i, kept) for i in range(len(classes.entries))]
                )
                fails[kept[worse]] = True
                if self._too_many(classes, fails):
                    return None, hopeless and self.limit == 0
                if not repeat or not worse.any():
                    break
        return fails, False

    def _too_many(self, classes: Classes, fails: NDArray[np.bool_]) -> bool:
        return bool(classes.size[fails].sum() > self.limit or fails.all())

    def _failing(
        self, guarantees: Sequence[ClassGuarantee], tables: Sequence[ClassCounts]
    ) -> tuple[NDArray[np.bool_], bool]:
        """Return which classes fail some guarantee, and whether one fails that merging cannot worsen."""
        fails, hopeless = np.zeros(len(tables[0]), dtype=bool), False
        for guarantee in guarantees:
            if isinstance(guarantee, RecursiveCL) and guarantee.l is None:  # all attributes share one l
                asked: ClassGuarantee = replace(guarantee, l=int(min(np.diff(one.start).min() for one in tables)))
            else:
                asked = guarantee
            for one in tables:
                wrong = ~_accepted(asked, np.asarray(asked.per_class(one), dtype=np.float64))
                hopeless |= bool(wrong.any()) and _improves_by_merging(guarantee)
                fails |= wrong
        return fails, hopeless

    def counts_of(self, classes: Classes, attribute: int, kept: NDArray[np.intp]) -> ClassCounts:
        """Return the counts of the classes that are kept, over the sensitive values that they hold."""
        start, value, count = classes.entries[attribute]
        size, given = classes.size, self.counts[attribute]
        if len(kept) < len(size):
            length = np.diff(start)
            alive = np.zeros(len(size), dtype=bool)
            alive[kept] = True
            entries = np.repeat(alive, length)
            start = np.concatenate([[0], np.cumsum(length[kept])])
            size, value, count = size[kept], value[entries], count[entries]
        total = np.bincount(value, weights=count, minlength=len(given.total)).astype(np.int64)
        domain = given.attribute
        if domain is not None and not total.all():
            present = np.flatnonzero(total)
            value = (np.cumsum(total > 0) - 1)[value]
            domain, total = replace(domain, values=domain.values.gather(present)), total[present]
        return ClassCounts(size, size, start, value, count, total, domain, given.labels[:0], given.quasi)


def _looks_at_the_class_only(guarantee: ClassGuarantee) -> bool:
    if isinstance(guarantee, RecursiveCL):
        return guarantee.l is not None
    return isinstance(guarantee, KAnonymity | AlphaK | LDiversity | EntropyL)


def _improves_by_merging(guarantee: ClassGuarantee) -> bool:
    """Say whether merging classes never worsens a guarantee; of a model that is not known here, it is not assumed."""
    if isinstance(guarantee, DeltaDisclosure):
        return guarantee.absent is Absent.INFINITE
    return _looks_at_the_class_only(guarantee) or isinstance(guarantee, TCloseness | BetaLikeness)


def _accepted(guarantee: ClassGuarantee, value: Floats) -> NDArray[np.bool_]:
    """Say of each number whether it keeps the promise: `ClassGuarantee.accepts` for many numbers."""
    if type(guarantee).accepts is not ClassGuarantee.accepts:
        return np.array([guarantee.accepts(one) for one in value.tolist()], dtype=bool)
    bound = guarantee.bounds[guarantee.key]
    asked: float = getattr(guarantee, bound.field)
    if guarantee.strict:
        return (value < asked) | (asked == math.inf)
    right = value >= asked if guarantee.larger_is_safer else value <= asked
    if bound.whole or math.isinf(asked):
        return right
    with np.errstate(invalid="ignore"):
        return right | (
            np.abs(value - asked) <= np.maximum(1e-9 * np.maximum(np.abs(value), abs(asked)), 1e-12)
        ) & np.isfinite(value)

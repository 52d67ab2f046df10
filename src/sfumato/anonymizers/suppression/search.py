"""The search of local suppression: which columns of each tuple become ``*``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.hilbert.hilbert import sparse
from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.suppression import kernels
from sfumato.engines.compiling import plain
from sfumato.engines.tuples import Tuples, group
from sfumato.measures.classes import Floats, Ints, ranges, sum_by_index
from sfumato.measures.models import KAnonymity

__all__ = ["WHOLE", "Suppression", "local_suppression", "masks_by_cost"]

_FEW = 20_000  # tuples with sensitive values that are settled without compiling the kernel

Masks = NDArray[np.bool_]

WHOLE = -1
"""The mask of a tuple that is suppressed as a whole."""


class Suppression(NamedTuple):
    """Which cells of each tuple are suppressed.

    Attributes
    ----------
    masks : a row per set of columns: which of them it suppresses; the cheapest first
    of_tuple : the row of each tuple, and -1 for one that is suppressed as a whole
    """

    masks: Masks
    of_tuple: Ints

    @property
    def used(self) -> list[int]:
        """The masks that some tuple has, the cheapest first."""
        used: list[int] = np.unique(self.of_tuple[self.of_tuple != WHOLE]).tolist()
        return used

    def hidden(self, of_tuple: Ints) -> Masks:
        """Return which cells of some tuples are suppressed, given their masks."""
        return np.vstack([self.masks, np.ones(self.masks.shape[1], dtype=np.bool_)])[of_tuple]


def local_suppression(
    problem: Problem, worth: Floats | None = None, *, most_rows: int = 0, most_masks: int = 4096
) -> Suppression:
    """Choose a set of columns to suppress for every tuple, so that the classes keep every guarantee.

    ::

        for each cost of a mask (a set of suppressed columns), the least first:
            while a mask of this cost settles anyone:
                take the one that settles most records:
                    group the tuples that are not settled by their values outside the mask
                    settle the groups that keep every guarantee, as classes with this mask
        for each mask, the cheapest first:
            group the tuples that are not settled by their values outside the mask
            add to each group the class, settled under a part of the mask, to which that does least harm
            settle those that now keep every guarantee, if that costs less than to suppress the group as a whole
        if more than the allowed number of rows are left: the same at any cost
        what is not settled is suppressed as a whole
        if anything was: do all of it again without these records, until everyone left is settled

    A class is a mask with the values outside it. The cost of a mask is what its columns are worth
    together. So each tuple gets a mask of the least cost at which it finds others, given those that
    were settled before; which choice suppresses the fewest cells of all is NP-hard to say (Meyerson &
    Williams, PODS 2004). Suppressed rows are not part of the distribution that t-closeness and its like
    compare with, hence the repetition. All of it is also done without those who find no class by its
    size alone, and the better result is taken.

    Parameters
    ----------
    problem : Problem
    worth : what a cell of each column is worth, 1 by default
    most_rows : how many rows may be suppressed as a whole; it may have to be more
    most_masks : the most masks to try; see `masks_by_cost`

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 20, 40, 60], "sex": ["f", "f", "m", "m"]}))
    >>> problem = Problem.of(reduce(table, ["age", "sex"]), ["age", "sex"], [], [sf.KAnonymity(2)])
    >>> found = local_suppression(problem)
    >>> found.hidden(found.of_tuple).tolist()
    [[False, False], [True, False], [True, False]]
    """
    _ = problem.lines  # refuses values that no release can be measured with
    for guarantee in problem.guarantees:
        guarantee.refuse_unknown([one.attribute for one in problem.counts if one.attribute is not None])
    problem.check(np.zeros(len(problem), dtype=np.int64))  # refuses what cannot be measured without sensitive columns
    worth = np.ones(len(problem.domains)) if worth is None else worth
    masks = masks_by_cost(worth, [len(domain) for domain in problem.domains], most_masks)

    def lost(one: Suppression) -> tuple[float, float]:
        hidden = one.hidden(one.of_tuple)
        return float(problem.records @ hidden.all(axis=1)), float(problem.records @ (hidden @ worth))

    found = min(_settlements(problem, worth, masks, most_rows), key=lost)
    if 0 < most_rows < lost(found)[0]:  # sparing cells left more rows over than were allowed
        found = min(found, *_settlements(problem, worth, masks, 0), key=lost)
    return found


def _settlements(problem: Problem, worth: Floats, masks: Masks, most_rows: int) -> Iterator[Suppression]:
    """Settle all tuples; where some find no class, also those alone that are not too few for one."""
    found = _settled(problem, np.arange(len(problem)), worth, masks, most_rows)
    yield found
    asked = limits(problem.counts, problem.guarantees)
    if len(asked.model) and (found.of_tuple == WHOLE).any():
        by_size = _Search(replace(problem, guarantees=(KAnonymity(asked.k),)), worth, masks)
        by_size.settle()
        yield _settled(problem, np.flatnonzero(by_size.found != WHOLE), worth, masks, most_rows)


def _settled(problem: Problem, left: Ints, worth: Floats, masks: Masks, most_rows: int) -> Suppression:
    """Settle some of the tuples, without those for which there is no class, until there is one for everybody left."""
    of_tuple = np.full(len(problem), WHOLE)
    while len(left):
        part = problem if len(left) == len(problem) else _only(problem, left)
        search = _Search(part, worth, masks)
        search.settle()
        search.borrow()
        gone = problem.counts[0].rows - part.counts[0].rows
        if gone + int(part.records[search.found == WHOLE].sum()) > most_rows:
            search.borrow(at_any_cost=True)
        settled = search.found != WHOLE
        if settled.all():
            of_tuple[left] = search.found
            part.require_kept(part.merged(search.classes(np.arange(len(part)))[1]))
            break
        left = left[settled]
    return Suppression(masks, of_tuple)


def masks_by_cost(worth: Floats, sizes: Sequence[int], most: int) -> Masks:
    """List sets of columns by what they are worth together, the empty one first; the set of all is not among them.

    Among equals, those of columns with many values are first. If there are more than `most`, only the
    cheapest are listed, and after them the sets of the first columns (the least worth, those with the most
    values first): 1, 2, ... all but one of them. The result is then less likely to be the best.

    Examples
    --------
    >>> masks = masks_by_cost(np.array([1.0, 1.0, 3.0]), [2, 9, 5], 100)
    >>> [np.flatnonzero(mask).tolist() for mask in masks]
    [[], [1], [0], [0, 1], [2], [1, 2], [0, 2]]
    """
    columns = np.lexsort((-np.array(sizes), worth))
    sets = list(dict.fromkeys(_cheapest(worth[columns], most)))
    beyond = [tuple(range(number)) for number in range(1, len(columns))]
    sets += [one for one in beyond if one not in set(sets)]
    sets.sort(key=lambda one: round(float(worth[columns[list(one)]].sum()), 9))  # stable
    masks = np.zeros((len(sets), len(columns)), dtype=np.bool_)
    for mask, one in zip(masks, sets, strict=True):
        mask[columns[list(one)]] = True
    return masks


def _cheapest(worth: Floats, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of some numbers, ascending, by their sum, but not the set of all of them."""
    heap: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(min(most, 2 ** len(worth) - 1)):
        cost, one = heappop(heap)
        while len(one) == len(worth):
            cost, one = heappop(heap)
        yield one
        after = one[-1] + 1 if one else 0
        if after < len(worth):
            heappush(heap, (cost + worth[after], (*one, after)))
            if one:  # the last moves on
                heappush(heap, (cost + worth[after] - worth[after - 1], (*one[:-1], after)))


class _Search:
    """The mask that each tuple of a problem has so far."""

    def __init__(self, problem: Problem, worth: Floats, masks: Masks) -> None:
        self.problem, self.masks = problem, masks
        self.costs, self.whole = np.round(masks @ worth, 9), float(worth.sum())
        self.asked = limits(problem.counts, problem.guarantees)
        self.counts = sparse(problem.counts, self.asked)
        self.sizes = np.array([len(domain) for domain in problem.domains])
        self.found = np.full(len(problem), WHOLE)

    def settle(self) -> None:
        """Give a mask to every tuple that finds others under it, the cheapest masks first."""
        for _, same in groupby(range(len(self.masks)), key=self.costs.__getitem__):
            # With every mask that is taken fewer are left: what a mask could settle before bounds what it can now.
            bounds = [(-math.inf, mask) for mask in same]
            heapify(bounds)
            while bounds and (self.found == WHOLE).any():
                _, mask = heappop(bounds)
                left = np.flatnonzero(self.found == WHOLE)
                tuples = self._kept(left, self._groups(left, mask))
                gain = float(self.problem.records[tuples].sum())
                if bounds and -gain > bounds[0][0]:
                    heappush(bounds, (-gain, mask))
                elif gain:
                    self.found[tuples] = mask
                else:
                    break

    def borrow(self, *, at_any_cost: bool = False) -> None:
        """Settle tuples that find no class together with a class that is there, whose mask is widened to theirs."""
        records, changed = self.problem.records, True
        for mask, cost in enumerate(self.costs.tolist()):
            left = np.flatnonzero(self.found == WHOLE)
            if not len(left):
                return
            if changed:
                lent = np.flatnonzero(self.found != WHOLE)
                first, of_lent = self.classes(lent)
                head, size = lent[first], np.bincount(of_lent, records[lent])
            usable = np.flatnonzero(~(self.masks[self.found[head]] & ~self.masks[mask]).any(axis=1))
            groups = self._groups(np.concatenate([left, head[usable]]), mask)
            mine, theirs = groups[: len(left)], groups[len(left) :]
            harm = size[usable] * (cost - self.costs[self.found[head[usable]]])
            # Of the classes that match a group, the one to which it does least harm; a class matches one group at most.
            order = np.lexsort((harm, theirs))[::-1]
            best = np.full(int(groups.max()) + 1, -1)
            best[theirs[order]] = order
            many = np.bincount(mine, records[left], minlength=len(best))
            wanted = np.flatnonzero((best >= 0) & (many > 0))
            if not at_any_cost:
                wanted = wanted[harm[best[wanted]] + many[wanted] * cost < many[wanted] * self.whole]
            joins = np.full(len(head), -1)  # the group that each class is added to
            joins[usable[best[wanted]]] = wanted
            joined, those = joins[of_lent], np.isin(mine, wanted)
            rows = np.concatenate([left[those], lent[joined >= 0]])
            kept = self._kept(rows, np.concatenate([mine[those], joined[joined >= 0]]))
            self.found[kept], changed = mask, bool(len(kept))

    def classes(self, tuples: Ints) -> tuple[Ints, Ints]:
        """Return the classes of some tuples that are settled, a mask and the values outside it: see `group`."""
        shown = np.where(self.masks[self.found[tuples]], self.sizes, self.problem.codes[tuples])
        return group(shown, (self.sizes + 1).tolist())

    def _groups(self, tuples: Ints, mask: int) -> Ints:
        """Group tuples by their values outside a mask."""
        shown = ~self.masks[mask]
        _, groups = group(self.problem.codes[tuples][:, shown], self.sizes[shown].tolist())
        return groups

    def _kept(self, tuples: Ints, groups: Ints) -> Ints:
        """Return those of the tuples whose groups keep every guarantee."""
        together = np.argsort(groups, kind="stable")
        tuples, groups = tuples[together], groups[together]
        many = len(self.asked.model) and len(self.problem) > _FEW
        kept: Ints = tuples[(kernels.keeping if many else _keeping)(tuples, groups, *self.counts, self.asked)]
        return kept


def _keeping(rows: Ints, groups: Ints, size: Ints, start: Ints, cell: Ints, count: Ints, limits: Limits) -> Masks:
    """Do what `kernels.keeping` does, with array operations in place of its loops over rows."""
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    of_row = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))
    records = sum_by_index(of_row, size[rows], len(first))
    kept: Masks = records >= limits.k
    if len(limits.model):
        keeps_all, scratch = plain(keeps), np.zeros(limits.values, dtype=np.int64)
        rows = rows[kept[of_row]]
        of_entry, entry = ranges(start[rows], start[rows + 1])
        owner = of_row[kept[of_row]][of_entry]
        bounds = np.searchsorted(owner, np.arange(len(first) + 1))
        for one in np.flatnonzero(kept).tolist():
            mine = entry[bounds[one] : bounds[one + 1]]
            held = sum_by_index(cell[mine], count[mine], limits.values)
            kept[one] = keeps_all(held, int(records[one]), limits, scratch)
    return kept[of_row]


def _only(problem: Problem, left: Ints) -> Problem:
    """Return the problem of some tuples alone, as if there were no others."""
    pieces = problem.pieces
    those = np.isin(pieces.tuple, left)
    attributes = [one.attribute for one in problem.counts if one.attribute is not None]
    codes = np.column_stack([problem.codes[pieces.tuple], pieces.values])[those].astype(np.int32)
    tuples = Tuples(codes, pieces.records[those], (*problem.domains, *attributes))
    names = [domain.name for domain in problem.domains]
    return Problem.of(tuples, names, [attribute.name for attribute in attributes], problem.guarantees)

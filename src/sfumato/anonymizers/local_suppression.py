"""Local suppression: single cells become ``*``, as few as possible, and all others stay unchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.base import Anonymizer
from sfumato.anonymizers.class_kernels import keeping, keeps
from sfumato.anonymizers.limits import Limits, limits, sparse
from sfumato.anonymizers.problem import Problem
from sfumato.data.coding import Domain
from sfumato.data.released_values import MARK
from sfumato.data.validate import real, whole
from sfumato.engines.compiling import plain
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import InputError, OptionError, did_you_mean
from sfumato.measures.classes import Floats, Ints, ranges, sum_by_index
from sfumato.measures.models import KAnonymity

__all__ = ["WHOLE", "LocalSuppression", "Suppression", "local_suppression", "masks_by_cost"]

_FEW = 20_000  # up to so many tuples, the kernel is not compiled for sensitive values
_UNSEEN = -2

Masks = NDArray[np.bool_]

WHOLE = -1
"""The mask of a tuple whose row is suppressed as a whole."""


class Suppression(NamedTuple):
    """Which cells of each tuple are suppressed.

    Attributes
    ----------
    masks : a row per set of columns, true where it suppresses the column; the cheapest first
    of_tuple : the mask of each tuple, or -1 if the whole row is suppressed
    """

    masks: Masks
    of_tuple: Ints

    @property
    def used(self) -> list[int]:
        """The masks in use, the cheapest first."""
        used: list[int] = np.unique(self.of_tuple[self.of_tuple != WHOLE]).tolist()
        return used

    def hidden(self, of_tuple: Ints) -> Masks:
        """Return which cells of tuples are suppressed, given their masks."""
        return np.vstack([self.masks, np.ones(self.masks.shape[1], dtype=np.bool_)])[of_tuple]


@dataclass(eq=False, repr=False)
class LocalSuppression(Anonymizer):
    """Anonymize by suppressing single cells, as few as possible; see `local_suppression`.

    A cell is released unchanged or as ``*``. The rows of a class agree in every quasi-identifier: ``*`` counts as a
    value of its own, so anyone can measure the release without assuming what a ``*`` stands for. (sdcMicro's
    `localSuppression` lets a suppressed cell match every value. It suppresses fewer cells, but its k does not count
    rows that look alike.) If `suppress` allows it, rows that fit into no class have ``*`` in every quasi-identifier.

    Parameters
    ----------
    guarantees, qi, sensitive, new_rows
        See `Anonymizer`.
    suppress : float
        The largest share of rows that may be suppressed as a whole. Suppressing a few unusual rows often saves
        cells of other rows.
    importance : mapping of str to float, optional
        The weight of a cell of each column, 1 by default: cells of important columns are suppressed last.
    most_masks : int
        The most sets of columns to try; see `masks_by_cost`.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 20, 20, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> published = sf.LocalSuppression("k=2", qi=["age", "sex"]).fit_transform(people)
    >>> published["age"].tolist(), published["sex"].tolist()
    (['20', '20', '*', '*', '*'], ['f', 'f', 'm', 'm', 'm'])
    """

    suppress: float = 0.0
    importance: Mapping[str, float] | None = None
    most_masks: int = 4096

    name = "suppress"

    def _decide(self, problem: Problem) -> None:
        share = real("the share of rows to suppress", self.suppress, least=0, most=1)
        most_masks = whole("the number of column sets to try", self.most_masks)
        rows = problem.counts[0].rows
        most = math.floor(share * rows + 1e-9)
        found = local_suppression(problem, self._worth(problem), most_rows=most, most_masks=most_masks)
        suppressed = int(problem.records[found.of_tuple == WHOLE].sum())
        if suppressed == rows:  # all rows look alike and form one class
            problem.require_reachable()
        if suppressed > most:
            asked = " and ".join(map(str, problem.guarantees))
            enough = math.ceil(suppressed / rows * 10_000) / 10_000
            raise InputError(
                f"no suppression of cells was found that keeps {asked} with at most {share:g} of the rows suppressed "
                "as a whole",
                hint=f"suppress={enough:g} would do",
            )
        self.suppression_: Suppression = found

    def _worth(self, problem: Problem) -> Floats:
        """Return the weight of a cell of each column."""
        importance, names = self.importance or {}, [domain.name for domain in problem.domains]
        for name, value in importance.items():
            if name not in names:
                raise OptionError(
                    f"importance names the column '{name}', which is not a quasi-identifier",
                    hint=did_you_mean(name, names),
                )
            real(f"the importance of column '{name}'", value, above=0)
        return np.array([float(importance.get(name, 1.0)) for name in names])

    def details(self) -> dict[str, Any]:
        """Return the numbers of suppressed rows and cells, and of column sets tried and used."""
        found, records = self.suppression_, self.problem_.records
        hidden = found.hidden(found.of_tuple)
        return {
            "suppressed": int(records[found.of_tuple == WHOLE].sum()),
            "cells": int(records @ hidden.sum(axis=1)),
            "cells_share": float(records @ hidden.mean(axis=1) / records.sum()),
            "masks": len(found.used),
            "tried": len(found.masks),
        }

    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        codes = np.column_stack(
            [
                _old_codes(known, new)[tuples.codes[:, column]]
                for column, (known, new) in enumerate(zip(self.problem_.domains, tuples.domains, strict=True))
            ]
        )
        hidden = self.suppression_.hidden(self._masks_of(codes))
        published = []
        for column, domain in enumerate(tuples.domains):
            values = domain.values
            if hidden[:, column].any():
                labels = [None if code == domain.missing else domain.label(code) for code in range(len(domain))]
                values = pl.Series([*labels, MARK], dtype=pl.String)
            cells = np.where(hidden[:, column], len(domain), tuples.codes[:, column])
            published.append(values.gather(cells).alias(domain.name))
        return published

    def _masks_of(self, codes: NDArray[np.int64]) -> Ints:
        """Return the mask of each tuple: the fitted one, or for a new tuple the cheapest that puts it in a class."""
        problem, found = self.problem_, self.suppression_
        sizes = [len(domain) + 1 for domain in problem.domains]
        known = len(problem)
        both = np.concatenate([problem.codes, codes])
        _, of_row = group(both, sizes)
        chosen = np.full(int(of_row.max(initial=0)) + 1, _UNSEEN)
        chosen[of_row[:known]] = found.of_tuple
        masks = chosen[of_row[known:]]
        for mask in found.used:
            unseen, mine = np.flatnonzero(masks == _UNSEEN), np.flatnonzero(found.of_tuple == mask)
            if not len(unseen):
                break
            kept = ~found.masks[mask]
            rows = np.concatenate([problem.codes[mine], codes[unseen]])[:, kept]
            _, of_row = group(rows, [size for size, keep in zip(sizes, kept, strict=True) if keep])
            masks[unseen[np.isin(of_row[len(mine) :], of_row[: len(mine)])]] = mask
        masks[masks == _UNSEEN] = WHOLE
        return masks


def _old_codes(known: Domain, new: Domain) -> Ints:
    """Return the fitted code of each value; a new value gets the code after the last."""
    if known.values.equals(new.values):
        return np.arange(len(new))
    code_of = {known.label(code): code for code in range(len(known)) if code != known.missing}
    codes = [code_of.get(new.label(code), len(known)) for code in range(len(new))]
    if new.missing is not None:
        codes[new.missing] = len(known) if known.missing is None else known.missing
    return np.array(codes, dtype=np.int64)


def local_suppression(
    problem: Problem, worth: Floats | None = None, *, most_rows: int = 0, most_masks: int = 4096
) -> Suppression:
    """Choose the columns to suppress in each tuple so that the classes keep every guarantee.

    ::

        for each cost of a mask (a set of suppressed columns), the lowest first:
            while some mask of this cost settles tuples:
                take the mask that settles the most records:
                    group the unsettled tuples by their values outside the mask
                    settle the groups that keep every guarantee, as classes with this mask
        for each mask, the cheapest first:
            group the unsettled tuples by their values outside the mask
            add to each group the class, settled under a subset of the mask, that this harms least
            settle those that now keep every guarantee, if that costs less than suppressing the group as a whole
        if more rows are left than allowed: the same at any cost
        suppress unsettled tuples as a whole
        if there were any: start again without these records, until all remaining tuples are settled

    A class is a mask with the values outside it, and the cost of a mask is the sum of its columns' weights. So each
    tuple gets the cheapest mask under which it finds a class, given the tuples settled before. Suppressing the
    fewest cells overall is NP-hard (Meyerson & Williams, PODS 2004). Suppressed rows are not part of the reference
    distribution of t-closeness and similar models, hence the repetition. The search also runs without the tuples
    whose groups are too small under every mask, and the better result is returned.

    Parameters
    ----------
    problem : Problem
    worth : the weight of a cell of each column, 1 by default
    most_rows : the number of rows that may be suppressed as a whole; more are suppressed if there is no other way
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
    _ = problem.lines  # rejects values that cannot be measured in a release
    for guarantee in problem.guarantees:
        guarantee.refuse_unknown([one.attribute for one in problem.counts if one.attribute is not None])
    problem.check(np.zeros(len(problem), dtype=np.int64))  # rejects guarantees that need sensitive columns
    worth = np.ones(len(problem.domains)) if worth is None else worth
    masks = masks_by_cost(worth, [len(domain) for domain in problem.domains], most_masks)

    def lost(one: Suppression) -> tuple[float, float]:
        hidden = one.hidden(one.of_tuple)
        return float(problem.records @ hidden.all(axis=1)), float(problem.records @ (hidden @ worth))

    found = min(_settlements(problem, worth, masks, most_rows), key=lost)
    if 0 < most_rows < lost(found)[0]:  # sparing cells left more rows than allowed
        found = min(found, *_settlements(problem, worth, masks, 0), key=lost)
    return found


def _settlements(problem: Problem, worth: Floats, masks: Masks, most_rows: int) -> Iterator[Suppression]:
    """Yield a result for all tuples and, if some find no class, one for those with large enough groups."""
    found = _settled(problem, np.arange(len(problem)), worth, masks, most_rows)
    yield found
    asked = limits(problem.counts, problem.guarantees)
    if len(asked.model) and (found.of_tuple == WHOLE).any():
        by_size = _Search(replace(problem, guarantees=(KAnonymity(asked.k),)), worth, masks)
        by_size.settle()
        yield _settled(problem, np.flatnonzero(by_size.found != WHOLE), worth, masks, most_rows)


def _settled(problem: Problem, left: Ints, worth: Floats, masks: Masks, most_rows: int) -> Suppression:
    """Settle the given tuples; drop those without a class and repeat until all that are left have one."""
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
            part.require_kept(part.merge(search.classes(np.arange(len(part)))[1]))
            break
        left = left[settled]
    return Suppression(masks, of_tuple)


def masks_by_cost(worth: Floats, sizes: Sequence[int], most: int) -> Masks:
    """List sets of columns by their total weight, from the empty set on, without the set of all columns.

    Ties are broken in favour of columns with many values. If there are more than `most` sets, only the cheapest are
    listed, and after them the sets of the first 1, 2, ... columns (the lightest, then those with the most values).
    The result is then less likely to be the best.

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
    """Yield the sets of columns in the order of their total weight, without the set of all columns."""
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
    """The mask of each tuple so far."""

    def __init__(self, problem: Problem, worth: Floats, masks: Masks) -> None:
        self.problem, self.masks = problem, masks
        self.costs, self.whole = np.round(masks @ worth, 9), float(worth.sum())
        self.asked = limits(problem.counts, problem.guarantees)
        self.counts = sparse(problem.counts, self.asked)
        self.sizes = np.array([len(domain) for domain in problem.domains])
        self.found = np.full(len(problem), WHOLE)

    def settle(self) -> None:
        """Give each tuple the cheapest mask under which it finds a class."""
        for _, same in groupby(range(len(self.masks)), key=self.costs.__getitem__):
            # Fewer tuples are left after each mask, so an earlier gain bounds the present one.
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
        """Settle tuples by adding a settled class to their group, with its mask widened to theirs."""
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
            # Of the classes that match a group, choose the one harmed least; a class matches at most one group.
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
        """Return the classes of settled tuples, by mask and values outside it; see `group`."""
        shown = np.where(self.masks[self.found[tuples]], self.sizes, self.problem.codes[tuples])
        return group(shown, (self.sizes + 1).tolist())

    def _groups(self, tuples: Ints, mask: int) -> Ints:
        """Group tuples by their values outside a mask."""
        shown = ~self.masks[mask]
        _, groups = group(self.problem.codes[tuples][:, shown], self.sizes[shown].tolist())
        return groups

    def _kept(self, tuples: Ints, groups: Ints) -> Ints:
        """Return the tuples whose groups keep every guarantee."""
        together = np.argsort(groups, kind="stable")
        tuples, groups = tuples[together], groups[together]
        many = len(self.asked.model) and len(self.problem) > _FEW
        kept: Ints = tuples[(keeping if many else _keeping)(tuples, groups, *self.counts, self.asked)]
        return kept


def _keeping(rows: Ints, groups: Ints, size: Ints, start: Ints, cell: Ints, count: Ints, limits: Limits) -> Masks:
    """Do the same as `class_kernels.keeping`, as numpy code."""
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
    """Restrict the problem to some tuples, as if there were no others."""
    pieces = problem.pieces
    those = np.isin(pieces.tuple, left)
    attributes = [one.attribute for one in problem.counts if one.attribute is not None]
    codes = np.column_stack([problem.codes[pieces.tuple], pieces.values])[those].astype(np.int32)
    tuples = Tuples(codes, pieces.records[those], (*problem.domains, *attributes))
    names = [domain.name for domain in problem.domains]
    return Problem.of(tuples, names, [attribute.name for attribute in attributes], problem.guarantees)

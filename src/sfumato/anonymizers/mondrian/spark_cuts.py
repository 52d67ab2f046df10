"""The first cuts of Mondrian, decided from sums of single columns: nobody has to hold all tuples.

A cut needs only how many records of a part have each value of each column, and how many sensitive values are left of
it. Whoever holds some of the tuples counts these in numbered cells, and the cells are added up. The cuts
are those that the kernel makes of the whole table; see `partition_kernels.split`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sfumato.anonymizers.mondrian.packing import Layout, Words
from sfumato.anonymizers.mondrian.partition import Space, dimensions_of
from sfumato.measures.classes import Ints, sum_by_index

__all__ = ["Count", "Cuts", "Summed", "first_cuts"]

_PARTS_PER_CORE = 4
_FEWEST, _MOST = 20_000, 1_000_000
"""A part of fewer tuples is not cut, for the sake of balance; one of more has to be: a worker holds it whole."""

Count = Callable[[Words, Ints], Iterator[tuple[Ints, Ints]]]
"""What is counted of some tuples and their records: numbered cells, some maybe twice, and what is in each."""

Summed = Callable[[Count, tuple[int, int]], Ints]
"""What adds up the cells of all tuples, in a matrix of this shape."""


class Cuts(NamedTuple):
    """The first cuts as a tree: a part that is cut on a dimension has two others, below and next to that.

    Attributes
    ----------
    by : the dimension that each part is cut on, or -1
    at : the last position on the left
    below : the part on the left; the one on the right has the next number
    """

    by: Ints
    at: Ints
    below: Ints

    @classmethod
    def none(cls) -> Cuts:
        """Return the whole table as one part."""
        return cls(np.full(1, -1), np.full(1, -1), np.full(1, -1))

    def cut(self, part: int, by: int, at: int) -> Cuts:
        """Return the tree with one more cut."""
        changed = [np.append(old, [-1, -1]) for old in self]
        for array, value in zip(changed, (by, at, len(self.by)), strict=True):
            array[part] = value
        return Cuts(*changed)

    def parts(self, layout: Layout, words: Words) -> Ints:
        """Return the part of each tuple."""
        part = np.zeros(words.shape[1], dtype=np.int64)
        while (cut := np.flatnonzero(self.by[part] >= 0)).size:
            here = part[cut]
            word, shift, mask = layout.lanes[self.by[here]].T
            position = (words[word, cut] >> shift) & mask
            part[cut] = self.below[here] + (position > self.at[here])
        return part

    @property
    def uncut(self) -> int:
        """How many parts are not cut any more."""
        return int((self.by < 0).sum())


class _Cut(NamedTuple):
    """A cut of a part that may be made: on a dimension, after a position, with so many records on the left."""

    part: int
    by: int
    at: int
    records: int


def first_cuts(summed: Summed, layout: Layout, cores: int) -> Cuts:
    """Cut the table as Mondrian does until its parts are small, several for each core: level by level."""
    cuts, open_parts, enough = Cuts.none(), np.zeros(1, dtype=np.int64), 0
    while len(open_parts):
        sums = summed(partial(_histograms, layout, cuts, open_parts), (len(open_parts), int(_begins(layout)[-1]) + 1))
        tuples = sums[:, -1]
        enough = enough or int(np.clip(tuples[0] // (_PARTS_PER_CORE * cores), _FEWEST, _MOST))
        large = tuples > enough
        before = len(cuts.by)
        for cut in _chosen(summed, layout, cuts, open_parts[large], sums[large]):
            cuts = cuts.cut(cut.part, cut.by, cut.at)
        open_parts = np.arange(before, len(cuts.by))
    return cuts


def _chosen(summed: Summed, layout: Layout, cuts: Cuts, parts: Ints, sums: Ints) -> list[_Cut]:
    """Choose for each part the first cut whose both sides keep every guarantee, if there is one."""
    from sfumato.anonymizers.class_kernels import keeps

    possible = [list(_possible(layout, int(part), one)) for part, one in zip(parts, sums, strict=True)]
    if not len(layout.asked.model):  # the number of records is all that counts
        return [of_part[0] for of_part in possible if of_part]
    begins = _begins(layout)
    size = dict(zip(parts.tolist(), sums[:, : begins[1]].sum(axis=1).tolist(), strict=True))
    whole = dict(zip(parts.tolist(), sums[:, begins[len(layout.quasi)] : -1], strict=True))
    scratch = np.zeros(int(layout.asked.offset[-1]), dtype=np.int64)
    chosen: dict[int, _Cut] = {}
    # Large parts can nearly always be cut where they lose most: only of those that cannot, all other cuts are counted.
    for some in (slice(0, 1), slice(1, None)):
        tried = [cut for of_part in possible for cut in of_part[some] if cut.part not in chosen]
        left = summed(partial(_left, layout, cuts, tried), (len(tried), len(scratch))) if tried else ()
        for cut, below in zip(tried, left, strict=True):
            sides = (below, cut.records), (whole[cut.part] - below, size[cut.part] - cut.records)
            if cut.part not in chosen and all(keeps(side, records, layout.asked, scratch) for side, records in sides):
                chosen[cut.part] = cut
    return list(chosen.values())


def _possible(layout: Layout, part: int, sums: Ints) -> Iterator[_Cut]:
    """Yield the cuts of a part that leave k records on both sides, in the order in which the kernel tries them."""
    from sfumato.anonymizers.mondrian.kernels import boundary, dimension

    space, k, begins = layout.space, layout.asked.k, _begins(layout)
    dimensions = dimensions_of(space, layout.lanes)
    size = int(sums[: begins[1]].sum())
    columns = [sums[begin:end] for begin, end in pairwise(begins[: len(layout.quasi) + 1].tolist())]
    losses = np.array([_loss(space, by, np.flatnonzero(records)) for by, records in enumerate(columns)])
    for by in np.argsort(-losses, kind="stable")[: np.count_nonzero(losses)].tolist():
        value, one = np.flatnonzero(columns[by]), dimension(dimensions, by)
        weight = columns[by][value]
        for attempt in range(3):
            at, _, below = boundary(value, weight, len(value), size, one, space.place, space.node, False, attempt)
            if below >= k and size - below >= k:
                yield _Cut(part, by, int(at), int(below))


def _loss(space: Space, by: int, present: Ints) -> float:
    """Return what a dimension loses in a part with these positions, as the kernel counts it."""
    if not space.ordered[by]:
        return len(present) / int(space.size[by]) if len(present) > 1 else 0.0
    place = space.place[space.at[by] :]
    return float(min(place[present[-1]] - place[present[0]], 1.0))


def _begins(layout: Layout) -> Ints:
    """Return where the sums of each column begin among those of a part; the last is where they end."""
    return np.concatenate([[0], np.cumsum(layout.widths)])


def _histograms(layout: Layout, cuts: Cuts, parts: Ints, words: Words, records: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Count the records of each value of each column in each of some parts, and the tuples of each part."""
    number = np.full(len(cuts.by), -1)
    number[parts] = np.arange(len(parts))
    of_tuple = number[cuts.parts(layout, words)]
    words, records, of_tuple = words[:, of_tuple >= 0], records[of_tuple >= 0], of_tuple[of_tuple >= 0]
    begins = _begins(layout)
    width = begins[-1] + 1
    for lane, (begin, values) in enumerate(zip(begins, layout.widths, strict=False)):
        cell, sums = _cells(of_tuple * values + layout.column(words, lane), records, len(parts) * int(values))
        yield cell // values * width + begin + cell % values, sums
    yield (np.arange(len(parts)) + 1) * width - 1, np.bincount(of_tuple, minlength=len(parts))


def _left(
    layout: Layout, cuts: Cuts, tried: Sequence[_Cut], words: Words, records: Ints
) -> Iterator[tuple[Ints, Ints]]:
    """Count the sensitive values on the left of some cuts."""
    of_tuple = cuts.parts(layout, words)
    order = np.argsort(of_tuple, kind="stable")
    begins = np.searchsorted(of_tuple[order], np.arange(len(cuts.by) + 1))
    offset = layout.asked.offset
    for number, cut in enumerate(tried):
        inside = order[begins[cut.part] : begins[cut.part + 1]]
        left = inside[layout.column(words[:, inside], cut.by) <= cut.at]
        for attribute, (begin, end) in enumerate(pairwise(offset.tolist())):
            value = layout.column(words[:, left], len(layout.quasi) + attribute)
            cell, sums = _cells(value, records[left], end - begin)
            yield number * offset[-1] + begin + cell, sums


def _cells(index: Ints, records: Ints, length: int) -> tuple[Ints, Ints]:
    """Return the cells that have records, and how many."""
    if length > 4 * len(index) + 1_000_000:
        cell, of_row = np.unique(index, return_inverse=True)
        return cell, sum_by_index(of_row, records, len(cell))
    sums = sum_by_index(index, records, length)
    cell = np.flatnonzero(sums)
    return cell, sums[cell]

"""The first cuts of Mondrian in Spark, decided from sums over single columns: no process holds all tuples.

Workers pack their tuples into the words of bits that the kernel cuts. A cut depends only on the number of records of a
part with each value of each column, and on the sensitive values left of it. Workers count these in numbered cells, and
Spark adds the cells up. The cuts are those that the kernel would make of the whole table; see `kernels.split`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.mondrian.counted import cuts_of
from sfumato.anonymizers.mondrian.partition import Space, rows_of, space_of
from sfumato.anonymizers.problem import Problem
from sfumato.data.coding import Domain, codes_in
from sfumato.measures.classes import Ints, sum_by_index

__all__ = ["Count", "Cuts", "Summed", "TupleLayout", "Words", "batch_of", "first_cuts", "pack", "unpack"]

_BATCH = 2**18  # tuples packed at a time
_PARTS_PER_CORE = 4
_FEWEST, _MOST = 20_000, 1_000_000
"""A part with fewer tuples is not cut here; one with more must be, because a worker holds it whole."""

Words = NDArray[np.int64]
"""A row per word, a column per tuple."""


class TupleLayout(NamedTuple):
    """The layout of packed tuples, with all that is needed to cut a part of a table.

    Attributes
    ----------
    quasi, sensitive : the domain of each column
    of_code : the position of each code of each quasi-identifier on its line
    space, asked : the lines and the limits, as arrays for the kernel
    lanes : the place of each column in the words of a tuple; see `partition.rows_of`
    """

    quasi: tuple[Domain, ...]
    sensitive: tuple[Domain, ...]
    of_code: tuple[NDArray[np.int32], ...]
    space: Space
    asked: Limits
    lanes: Ints

    @classmethod
    def of(cls, whole: Problem) -> TupleLayout:
        """Lay out the columns of the whole table."""
        space = space_of(whole)
        sensitive = tuple(one.attribute for one in whole.counts if one.attribute is not None)
        kinds = np.array([len(domain) for domain in sensitive], dtype=np.int64)
        none = np.zeros((0, len(kinds)), dtype=np.int64)
        _, lanes = rows_of(whole.codes[:0], space.length, none.sum(axis=1), none, kinds)
        of_code = tuple(line.position for line in whole.lines)
        return cls(whole.domains, sensitive, of_code, space, limits(whole.counts, whole.guarantees), lanes)

    @property
    def widths(self) -> Ints:
        """The number of values of each column, the quasi-identifiers first."""
        return np.array([len(domain) for domain in (*self.quasi, *self.sensitive)], dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a frame of packed tuples: their words and their records."""
        return (*(f"w{word}" for word in range(int(self.lanes[-1, 0]) + 1)), "records")

    def column(self, words: Words, lane: int) -> Ints:
        """Unpack one column of some tuples: positions on a line, or sensitive values."""
        word, shift, mask = self.lanes[lane]
        found: Ints = (words[word] >> shift) & mask
        return found

    def codes(self, words: Words) -> NDArray[np.int32]:
        """Unpack the codes of the quasi-identifiers, a row per tuple."""
        codes = np.empty((words.shape[1], len(self.quasi)), dtype=np.int32)
        for lane, of_code in enumerate(self.of_code):
            codes[:, lane] = np.argsort(of_code)[self.column(words, lane)]
        return codes


def pack(layout: TupleLayout, batches: Iterator[Any]) -> Iterator[Any]:
    """Pack tuples from Arrow batches whose last column is the number of records."""
    for *columns, last in _larger(batches):
        domains = (*layout.quasi, *layout.sensitive)
        codes = [codes_in(domain, values) for domain, values in zip(domains, columns, strict=True)]
        positions = [of_code[code] for of_code, code in zip(layout.of_code, codes, strict=False)]
        values = np.column_stack([*codes[len(positions) :], np.zeros((len(last), 0), dtype=np.int64)])
        kinds = layout.widths[len(positions) :]
        records = last.to_numpy()
        words, _ = rows_of(np.column_stack(positions), layout.space.length, records, values.astype(np.int64), kinds)
        yield batch_of(layout.names, [*words[:-1], records])


def unpack(layout: TupleLayout, batches: Iterable[Any]) -> tuple[Words, Ints]:
    """Return the words and the records of all packed tuples in some batches."""
    import pyarrow

    schema = pyarrow.schema([(name, pyarrow.int64()) for name in layout.names])
    table = pyarrow.Table.from_batches([batch.select(schema.names).cast(schema) for batch in batches], schema)
    *words, records = (column.to_numpy() for column in table.columns)
    return np.array(words), records


def batch_of(names: Sequence[str], columns: Sequence[NDArray[Any]]) -> Any:
    """Return an Arrow batch of the columns."""
    import pyarrow

    return pyarrow.RecordBatch.from_arrays([pyarrow.array(column) for column in columns], list(names))


def _larger(batches: Iterator[Any]) -> Iterator[list[pl.Series]]:
    """Join small batches into larger ones, because encoding a batch visits every value of the domain."""
    import pyarrow

    waiting: list[Any] = []
    for batch in chain(batches, [None]):
        if waiting and (batch is None or sum(map(len, waiting)) >= _BATCH):
            yield [pl.Series(column) for column in pyarrow.Table.from_batches(waiting).columns]
            waiting = []
        waiting.append(batch)


# Deciding

Count = Callable[[Words, Ints], Iterator[tuple[Ints, Ints]]]
"""Counts some tuples with their records: yields the numbers of cells, possibly repeated, and their counts."""

Summed = Callable[[Count, tuple[int, int]], Ints]
"""Adds up the cells of all tuples into a matrix of this shape."""


class Cuts(NamedTuple):
    """The first cuts as a binary tree of parts.

    Attributes
    ----------
    by : the dimension that cuts each part, or -1
    at : the last position on the left
    below : the part on the left; the part on the right is the next one
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

    def parts(self, layout: TupleLayout, words: Words) -> Ints:
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
        """The number of leaves."""
        return int((self.by < 0).sum())


class _Cut(NamedTuple):
    """A possible cut of a part: on a dimension, after a position, with this many records on the left."""

    part: int
    by: int
    at: int
    records: int


def first_cuts(summed: Summed, layout: TupleLayout, cores: int) -> Cuts:
    """Cut the table like Mondrian, level by level, until there are several small parts for each core."""
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


def _chosen(summed: Summed, layout: TupleLayout, cuts: Cuts, parts: Ints, sums: Ints) -> list[_Cut]:
    """Choose for each part the first cut whose two sides keep every guarantee, if there is one."""
    from sfumato.anonymizers.class_kernels import keeps

    possible = [list(_possible(layout, int(part), one)) for part, one in zip(parts, sums, strict=True)]
    if not len(layout.asked.model):  # only the number of records counts
        return [of_part[0] for of_part in possible if of_part]
    begins = _begins(layout)
    size = dict(zip(parts.tolist(), sums[:, : begins[1]].sum(axis=1).tolist(), strict=True))
    whole = dict(zip(parts.tolist(), sums[:, begins[len(layout.quasi)] : -1], strict=True))
    scratch = np.zeros(int(layout.asked.offset[-1]), dtype=np.int64)
    chosen: dict[int, _Cut] = {}
    # The first cut of a large part nearly always works; the others are counted only where it does not.
    for some in (slice(0, 1), slice(1, None)):
        tried = [cut for of_part in possible for cut in of_part[some] if cut.part not in chosen]
        left = summed(partial(_left, layout, cuts, tried), (len(tried), len(scratch))) if tried else ()
        for cut, below in zip(tried, left, strict=True):
            sides = (below, cut.records), (whole[cut.part] - below, size[cut.part] - cut.records)
            if cut.part not in chosen and all(keeps(side, records, layout.asked, scratch) for side, records in sides):
                chosen[cut.part] = cut
    return list(chosen.values())


def _possible(layout: TupleLayout, part: int, sums: Ints) -> Iterator[_Cut]:
    """Yield the cuts of a part with at least k records on both sides, in the order of the kernel."""
    columns = [sums[begin:end] for begin, end in pairwise(_begins(layout)[: len(layout.quasi) + 1].tolist())]
    for cut in cuts_of(layout.space, layout.asked.k, columns):
        yield _Cut(part, *cut)


def _begins(layout: TupleLayout) -> Ints:
    """Return the offset of each column in the sums of a part, and their total length."""
    return np.concatenate([[0], np.cumsum(layout.widths)])


def _histograms(
    layout: TupleLayout, cuts: Cuts, parts: Ints, words: Words, records: Ints
) -> Iterator[tuple[Ints, Ints]]:
    """Count the records of each value of each column, and the tuples, in each of the parts."""
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
    layout: TupleLayout, cuts: Cuts, tried: Sequence[_Cut], words: Words, records: Ints
) -> Iterator[tuple[Ints, Ints]]:
    """Count the sensitive values left of each cut."""
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
    """Return the cells with records, and their numbers."""
    if length > 4 * len(index) + 1_000_000:
        cell, of_row = np.unique(index, return_inverse=True)
        return cell, sum_by_index(of_row, records, len(cell))
    sums = sum_by_index(index, records, length)
    cell = np.flatnonzero(sums)
    return cell, sums[cell]

"""Tuples as the words of bits that the kernel cuts: packed where they are, so that nothing else of them is moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.mondrian.partition import Space, rows_of, space_of
from sfumato.anonymizers.problem import Problem
from sfumato.data.coding import Domain, codes_in
from sfumato.measures.classes import Ints

__all__ = ["Layout", "Words", "batch_of", "packed", "unpacked"]

_BATCH = 2**18  # tuples that are packed at a time

Words = NDArray[np.int64]
"""A row per word, a column per tuple."""


class Layout(NamedTuple):
    """What must be known of a table to pack and to cut a part of it.

    Attributes
    ----------
    quasi, sensitive : what the values of each column are
    of_code : the position of each code of each quasi-identifier on its line
    space, asked : the lines and the limits, as the kernel knows them
    lanes : where in the words of a tuple each column is; see `partition.rows_of`
    """

    quasi: tuple[Domain, ...]
    sensitive: tuple[Domain, ...]
    of_code: tuple[NDArray[np.int32], ...]
    space: Space
    asked: Limits
    lanes: Ints

    @classmethod
    def of(cls, whole: Problem) -> Layout:
        """Lay out the columns of a problem, whose limits are those of the whole table."""
        space = space_of(whole)
        sensitive = tuple(one.attribute for one in whole.counts if one.attribute is not None)
        kinds = np.array([len(domain) for domain in sensitive], dtype=np.int64)
        none = np.zeros((0, len(kinds)), dtype=np.int64)
        _, lanes = rows_of(whole.codes[:0], space.length, none.sum(axis=1), none, kinds)
        of_code = tuple(line.position for line in whole.lines)
        return cls(whole.domains, sensitive, of_code, space, limits(whole.counts, whole.guarantees), lanes)

    @property
    def widths(self) -> Ints:
        """How many values each column has, the quasi-identifiers first."""
        return np.array([len(domain) for domain in (*self.quasi, *self.sensitive)], dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a frame of packed tuples: their words, and how many records have each."""
        return (*(f"w{word}" for word in range(int(self.lanes[-1, 0]) + 1)), "records")

    def column(self, words: Words, lane: int) -> Ints:
        """Return the positions, or the sensitive values, that the words of some tuples hold."""
        word, shift, mask = self.lanes[lane]
        found: Ints = (words[word] >> shift) & mask
        return found

    def codes(self, words: Words) -> NDArray[np.int32]:
        """Return the codes of the quasi-identifiers that the words of some tuples hold, a row per tuple."""
        codes = np.empty((words.shape[1], len(self.quasi)), dtype=np.int32)
        for lane, of_code in enumerate(self.of_code):
            codes[:, lane] = np.argsort(of_code)[self.column(words, lane)]
        return codes


def packed(layout: Layout, batches: Iterator[Any]) -> Iterator[Any]:
    """Pack tuples that come in Arrow batches, each with its records in the last column."""
    for *columns, last in _larger(batches):
        domains = (*layout.quasi, *layout.sensitive)
        codes = [codes_in(domain, values) for domain, values in zip(domains, columns, strict=True)]
        positions = [of_code[code] for of_code, code in zip(layout.of_code, codes, strict=False)]
        values = np.column_stack([*codes[len(positions) :], np.zeros((len(last), 0), dtype=np.int64)])
        kinds = layout.widths[len(positions) :]
        records = last.to_numpy()
        words, _ = rows_of(np.column_stack(positions), layout.space.length, records, values.astype(np.int64), kinds)
        yield batch_of(layout.names, [*words[:-1], records])


def unpacked(layout: Layout, batches: Iterable[Any]) -> tuple[Words, Ints]:
    """Return the words of all tuples in some batches, and their records."""
    import pyarrow

    schema = pyarrow.schema([(name, pyarrow.int64()) for name in layout.names])
    table = pyarrow.Table.from_batches([batch.select(schema.names).cast(schema) for batch in batches], schema)
    *words, records = (column.to_numpy() for column in table.columns)
    return np.array(words), records


def batch_of(names: Sequence[str], columns: Sequence[NDArray[Any]]) -> Any:
    """Return an Arrow batch of some columns."""
    import pyarrow

    return pyarrow.RecordBatch.from_arrays([pyarrow.array(column) for column in columns], list(names))


def _larger(batches: Iterator[Any]) -> Iterator[list[pl.Series]]:
    """Put small batches together, as columns: to code one takes a look at every value that there is."""
    import pyarrow

    waiting: list[Any] = []
    for batch in chain(batches, [None]):
        if waiting and (batch is None or sum(map(len, waiting)) >= _BATCH):
            yield [pl.Series(column) for column in pyarrow.Table.from_batches(waiting).columns]
            waiting = []
        waiting.append(batch)

"""Count the distinct tuples of streamed columns.

A dictionary per column numbers the values in order of appearance, a streaming group-by counts tuples of numbers, and at
the end the numbers become the codes of sorted domains. The kind of a column (numbers, dates, an ordered domain) depends
only on its distinct values, so even a text file is counted in one pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import encode_column, refuse_nested
from sfumato.data.schema import Column
from sfumato.engines.dictionary import Dictionary
from sfumato.engines.group_by import GroupBy
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError

__all__ = ["BATCH", "BYTES_PER_TUPLE", "Counter"]

BATCH = 2**20
"""The number of rows of a file or a frame that are counted at a time."""

BYTES_PER_TUPLE = 300
"""The memory that a distinct tuple of about ten columns takes while it is counted and measured."""


class Counter:
    """A running count of the distinct tuples of some columns.

    Examples
    --------
    >>> import sfumato as sf
    >>> counter = Counter([sf.Column(name="sex"), sf.Column(name="age")])
    >>> counter.add([pl.Series(["f", "m"]), pl.Series([30, 30])])
    >>> counter.add([pl.Series(["f"]), pl.Series([30])], count=np.array([4]))
    >>> tuples = counter.tuples()
    >>> tuples.codes.tolist(), tuples.count.tolist()
    ([[0, 0], [1, 0]], [5, 1])
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self.dictionaries = tuple(Dictionary() for _ in columns)
        self._group_by = GroupBy(len(self.columns))

    def add(self, values: Sequence[pl.Series], count: NDArray[np.int64] | None = None) -> None:
        """Count the rows of these columns, each once or ``count`` times."""
        for series, column in zip(values, self.columns, strict=True):
            refuse_nested(series.dtype, column.name)
        self.add_numbers(
            [dictionary.numbers(series) for dictionary, series in zip(self.dictionaries, values, strict=True)], count
        )

    def add_numbers(self, numbers: Sequence[NDArray[Any]], count: NDArray[np.int64] | None = None) -> None:
        """Count rows whose values are already numbered."""
        self._group_by.add(numbers, count)
        self._refuse_more_than_fits(self._group_by.merged)

    def take_back(self, rows: int) -> None:
        """Subtract rows without any value, such as the blank lines of a text file."""
        if rows:
            self.add_numbers([np.zeros(1, dtype=np.uint32)] * len(self.columns), np.array([-rows]))

    def tuples(self, read: Callable[[pl.Series], pl.Series] = lambda values: values) -> Tuples:
        """Return the sorted distinct tuples; ``read`` converts the distinct values of a column."""
        numbers, count = self._group_by.distinct()
        self._refuse_more_than_fits(len(count))
        if len(count) and count.min() < 0:
            raise InputError(
                "more rows were subtracted than counted", hint="check that the file did not change while it was read"
            )
        kept = slice(None) if count.all() else count != 0  # without the subtracted rows
        codes, domains = [], []
        for column, dictionary, of_tuple in zip(self.columns, self.dictionaries, numbers, strict=True):
            of_column = of_tuple[kept]
            present = np.flatnonzero(np.bincount(of_column))
            code, domain = encode_column(read(dictionary.values().gather(present).alias(column.name)), column)
            code_of = np.zeros(len(dictionary.values()), dtype=np.int32)
            code_of[present] = code
            codes.append(code_of[of_column])
            domains.append(domain)
        final = GroupBy(len(codes))
        final.add(codes, count[kept])
        return Tuples(*final.sorted(), tuple(domains))

    def _refuse_more_than_fits(self, tuples: int) -> None:
        most = _physical_memory() // BYTES_PER_TUPLE
        if tuples > most:
            raise InputError(
                f"the {len(self.columns)} columns have more than {most:,} distinct combinations, too many for "
                "the memory of this machine",
                hint="name fewer columns, or generalise the finest of them first",
            )


def _physical_memory() -> int:
    """Return the memory of the machine or container, in bytes."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return sys.maxsize
    with suppress(OSError, ValueError):
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine

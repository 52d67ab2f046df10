"""Count the distinct tuples of columns as their values stream by, batch after batch.

Each column numbers its values in the order in which they come, the tally counts tuples of
numbers, and at the end the numbers become the codes of sorted domains. What a column is (numbers,
dates, an ordered domain) is decided by its distinct values alone, so that not even a text file
has to be read before it is counted.
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
from sfumato.engines.dictionary import Numbering
from sfumato.engines.group_by import Tally
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError

__all__ = ["BATCH", "BYTES_PER_TUPLE", "Counter"]

BATCH = 2**20
"""How many rows of a file or a frame are counted at a time."""

BYTES_PER_TUPLE = 300
"""What a distinct tuple takes in memory while it is counted and measured, for some ten columns."""


class Counter:
    """How often each distinct tuple of some columns has been seen.

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
        self.numberings = tuple(Numbering() for _ in columns)
        self._tally = Tally(len(self.columns))

    def add(self, values: Sequence[pl.Series], count: NDArray[np.int64] | None = None) -> None:
        """Count the rows of these columns, each once or as often as it says."""
        for series, column in zip(values, self.columns, strict=True):
            refuse_nested(series.dtype, column.name)
        self.add_numbers(
            [numbering.numbers(series) for numbering, series in zip(self.numberings, values, strict=True)], count
        )

    def add_numbers(self, numbers: Sequence[NDArray[Any]], count: NDArray[np.int64] | None = None) -> None:
        """Count rows whose values have their numbers already."""
        self._tally.add(numbers, count)
        self._refuse_more_than_fits(self._tally.merged)

    def take_back(self, rows: int) -> None:
        """Count so many rows less that miss everything, such as the blank lines of a text file."""
        if rows:
            self.add_numbers([np.zeros(1, dtype=np.uint32)] * len(self.columns), np.array([-rows]))

    def tuples(self, read: Callable[[pl.Series], pl.Series] = lambda values: values) -> Tuples:
        """Return the distinct tuples in order; ``read`` makes of a column's distinct values what they mean."""
        numbers, count = self._tally.distinct()
        self._refuse_more_than_fits(len(count))
        if len(count) and count.min() < 0:
            raise InputError("more rows were taken back than there are", hint="did the file change while it was read?")
        kept = slice(None) if count.all() else count != 0  # without what was taken back
        codes, domains = [], []
        for column, numbering, of_tuple in zip(self.columns, self.numberings, numbers, strict=True):
            of_column = of_tuple[kept]
            present = np.flatnonzero(np.bincount(of_column))
            code, domain = encode_column(read(numbering.values().gather(present).alias(column.name)), column)
            code_of = np.zeros(len(numbering.values()), dtype=np.int32)
            code_of[present] = code
            codes.append(code_of[of_column])
            domains.append(domain)
        final = Tally(len(codes))
        final.add(codes, count[kept])
        return Tuples(*final.sorted(), tuple(domains))

    def _refuse_more_than_fits(self, tuples: int) -> None:
        most = _physical_memory() // BYTES_PER_TUPLE
        if tuples > most:
            raise InputError(
                f"the {len(self.columns)} columns have more than {most:,} different combinations, more than can be "
                "measured in this machine's memory",
                hint="name fewer columns, or generalise the finest of them first",
            )


def _physical_memory() -> int:
    """Return the bytes of memory that the machine, or the container, has."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return sys.maxsize
    with suppress(OSError, ValueError):
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine

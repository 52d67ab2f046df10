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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import encode_column, positions_in, refuse_nested
from sfumato.data.schema import Column
from sfumato.engines.group_by import GroupBy
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError

__all__ = ["BATCH", "BYTES_PER_TUPLE", "Counter", "Dictionary"]

BATCH = 2**20
"""The number of rows of a file or a frame that are counted at a time."""

BYTES_PER_TUPLE = 300
"""The memory that a distinct tuple of about ten columns takes while it is counted and measured."""

_Texts = pl.String | pl.Categorical | pl.Enum
_SMALL_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_WIDEST_TABLE = 2**22


class Dictionary:
    """Numbers for the distinct values of one column in order of appearance; 0 is missing.

    Texts are numbered by a Polars categorical type, integers in a small range (ages, years, days) by an
    array, and everything else by a join with the known values.

    Examples
    --------
    >>> ages = Dictionary()
    >>> ages.numbers(pl.Series([41, 30, None])).tolist(), ages.numbers(pl.Series([30, 7])).tolist()
    ([2, 1, 0], [1, 3])
    >>> ages.values().to_list()
    [None, 30, 41, 7]
    """

    def __init__(self) -> None:
        self._categories = pl.Categories.random()
        self._kept = pl.Series(dtype=self.categories)  # keeps the categories alive
        self._dtype: pl.DataType = pl.String()
        self._known = pl.Series(dtype=pl.Int64)  # the values with the numbers 1, 2, ...; not used for texts
        self._table = np.zeros(0, dtype=np.uint32)  # the number of the integer low + i, or 0
        self._low = 0

    @property
    def categories(self) -> pl.Categorical:
        """The type that numbers texts while they are read."""
        return pl.Categorical(self._categories)

    def numbers(self, values: pl.Series) -> NDArray[np.uint32]:
        """Return the number of each value."""
        if isinstance(values.dtype, _Texts):
            if values.dtype != self.categories:
                values = values.cast(pl.String).cast(self.categories)
            return _plus_one(values.to_physical())
        self._dtype = values.dtype
        if values.dtype.is_float():
            values = values.fill_nan(None)
        elif values.dtype == pl.Boolean:
            values = values.cast(pl.Int64)
        elif values.dtype.is_temporal():
            values = values.to_physical()
        if values.dtype in _SMALL_INTEGERS:
            values = values.cast(pl.Int64)
            if self._cover(values):
                return self._by_table(values)
        return self._by_join(values)

    def values(self) -> pl.Series:
        """Return the value of each number; the first is the missing value."""
        values = self._categories.to_series() if self._dtype == pl.String else self._known.cast(self._dtype)
        return pl.concat([pl.Series([None], dtype=values.dtype), values.rename("")])

    def _cover(self, integers: pl.Series) -> bool:
        """Widen the table to cover these integers; return False if their range is too wide."""
        ends = [int(end) for known in (self._known, integers) for end in (known.min(), known.max()) if end is not None]  # type: ignore[arg-type]
        if not ends:
            return True
        low, high = min(ends), max(ends)
        if high - low >= _WIDEST_TABLE:
            return False
        if low < self._low or high >= self._low + len(self._table):
            self._low = low
            self._table = np.zeros(high - low + 1, dtype=np.uint32)
            self._table[self._known.to_numpy() - low] = np.arange(1, len(self._known) + 1)
        return True

    def _by_table(self, integers: pl.Series) -> NDArray[np.uint32]:
        if integers.null_count() == len(integers):
            return np.zeros(len(integers), dtype=np.uint32)
        place: NDArray[np.int64] = integers.fill_null(strategy="min").to_numpy() - self._low
        numbers = self._table[place]
        if not numbers.all():
            is_new = np.zeros(len(self._table), dtype=bool)
            is_new[place[numbers == 0]] = True
            new = np.flatnonzero(is_new)
            self._table[new] = np.arange(1, len(new) + 1) + len(self._known)
            self._learn(pl.Series(new + self._low))
            numbers = self._table[place]
        if integers.has_nulls():
            numbers[integers.is_null().to_numpy()] = 0
        return numbers

    def _by_join(self, values: pl.Series) -> NDArray[np.uint32]:
        distinct = values.drop_nulls().unique().rename("value")
        self._learn(distinct if self._known.is_empty() else distinct.filter(~distinct.is_in(self._known.implode())))
        return _plus_one(positions_in(values, self._known))

    def _learn(self, new: pl.Series) -> None:
        self._known = new if self._known.is_empty() else pl.concat([self._known, new.rename(self._known.name)])


def _plus_one(positions: pl.Series) -> NDArray[np.uint32]:
    if positions.has_nulls():
        return (positions.cast(pl.Int64) + 1).fill_null(0).cast(pl.UInt32).to_numpy()
    numbers: NDArray[np.uint32] = positions.to_numpy() + np.uint32(1)
    return numbers


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
            of_column, values = of_tuple[kept], dictionary.values()
            present = np.flatnonzero(np.bincount(of_column))
            code, domain = encode_column(read(values.gather(present).alias(column.name)), column)
            code_of = np.zeros(len(values), dtype=np.int32)
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


@cache
def _physical_memory() -> int:
    """Return the memory of the machine or container, in bytes."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return sys.maxsize
    with suppress(OSError, ValueError):
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine

"""Dictionary encoding of one streamed column."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["Dictionary"]

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
        look_up = self._known.rename("value").to_frame().with_row_index("number")
        found = values.rename("value").to_frame().join(look_up, on="value", how="left", maintain_order="left")
        return _plus_one(found["number"])

    def _learn(self, new: pl.Series) -> None:
        self._known = new if self._known.is_empty() else pl.concat([self._known, new.rename(self._known.name)])


def _plus_one(positions: pl.Series) -> NDArray[np.uint32]:
    if positions.has_nulls():
        return (positions.cast(pl.Int64) + 1).fill_null(0).cast(pl.UInt32).to_numpy()
    numbers: NDArray[np.uint32] = positions.to_numpy() + np.uint32(1)
    return numbers

"""Detect whether one column reproduces another: a copy, another unit, a coarser or a finer version of it.

Names do not matter. If rows that agree in one column agree in the other far more often than by chance, the second
column follows from the first. A unique value is no evidence, so a column with only unique values determines nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["FEWEST_ROWS", "Values", "reproduces"]

_DIFFER = 0.05  # the share of rows, among those that would differ by chance, that may differ in a dependent column
_EVIDENCE = 40  # rows that must differ by chance; that none of them does has a probability of about e^-20
FEWEST_ROWS = 10
"""The same for cells with equal spelling, which is hardly a coincidence; fewer rows are no evidence."""
_MONOTONE = 0.99  # rank correlation of a quantity in another unit, or nearly the same
_SPELT = 200  # the number of cells whose spelling is compared
_CELLS = 2**20  # the most cells of a contingency table counted at once
_WORD, _ZEROS = re.compile(r"[^\W_]+"), re.compile(r"\.0+$")
_BINS = 100  # a quantity with more values is compared by percentiles


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one column, prepared for comparison with other columns of the same rows."""

    series: pl.Series

    @cached_property
    def ranks(self) -> NDArray[np.float64] | None:
        """The rank of each row, NaN for a missing value; None if the values are not numbers or times."""
        if self._numbers is None:
            return None
        _, which, count = np.unique(self._numbers, return_inverse=True, return_counts=True)
        average = np.cumsum(count) - (count - 1) / 2
        return np.where(np.isnan(self._numbers), np.nan, average[which])

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """A code from 1 on for each value, or each percentile of a quantity with many values; 0 if missing."""
        if self._numbers is None or self.ranks is None:
            return self._texts.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
        present = ~np.isnan(self._numbers)
        values, which = np.unique(self._numbers, return_inverse=True)
        if len(values) > _BINS:
            which = np.nan_to_num(self.ranks) * (_BINS / (present.sum() + 1))
        return np.where(present, 1 + which, 0).astype(np.int64)

    @cached_property
    def spelling(self) -> list[str | None]:
        """The words and numbers of some cells, ignoring case, order, punctuation and leading zeros."""
        cells = self._texts.gather_every(max(1, -(-len(self.series) // _SPELT))).to_list()
        words = (None if cell is None else _WORD.findall(_ZEROS.sub("", cell).lower()) for cell in cells)
        return [None if cell is None else " ".join(sorted(word.lstrip("0") for word in cell)) for cell in words]

    @cached_property
    def _numbers(self) -> NDArray[np.float64] | None:
        dtype = self.series.dtype
        if not (dtype.is_numeric() or dtype.is_temporal()):
            return None
        numbers: NDArray[np.float64] = self.series.to_physical().cast(pl.Float64).to_numpy()
        return numbers

    @cached_property
    def _texts(self) -> pl.Series:
        return self.series.cast(pl.String, strict=False)


def reproduces(column: Values, other: Values, name: str) -> str:
    """Describe how a column reproduces another one of this name; return an empty text if it does not.

    Examples
    --------
    >>> age = pl.Series(list(range(20, 80)) * 5)
    >>> reproduces(Values(age // 10), Values(age), "age")
    "it follows from 'age'"
    >>> reproduces(Values(pl.Series([i * i % 7 for i in range(300)])), Values(age), "age")
    ''
    """
    if _are_same(column.spelling, other.spelling):
        return f"it repeats '{name}'"
    both = (column.codes > 0) & (other.codes > 0)
    mine, theirs = (column.codes, other.codes) if both.all() else (column.codes[both], other.codes[both])
    follows, determines = _follows(mine, theirs), _follows(theirs, mine)
    if follows and determines:
        return f"it says the same as '{name}' in other words"
    if follows:
        return f"it follows from '{name}'"
    if determines:
        return f"'{name}' follows from it"
    in_step = column.ranks is not None and other.ranks is not None and _are_monotone(column.ranks, other.ranks)
    return f"it rises or falls with '{name}' throughout" if in_step else ""


def _are_same(one: list[str | None], other: list[str | None]) -> bool:
    """Return whether nearly all cells are equal, far more often than by chance."""
    both = [(mine, theirs) for mine, theirs in zip(one, other, strict=True) if None not in (mine, theirs)]
    differing = sum(mine != theirs for mine, theirs in both)
    if differing > _DIFFER * len(both):
        return False
    mine, theirs = (Counter(cells) for cells in zip(*both, strict=True)) if both else (Counter(), Counter())
    by_chance = len(both) - sum(count * theirs[cell] for cell, count in mine.items()) / max(1, len(both))
    return by_chance >= FEWEST_ROWS and differing <= _DIFFER * by_chance


def _are_monotone(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Return whether one quantity rises, or falls, with the other throughout."""
    both = ~(np.isnan(one) | np.isnan(other))
    one, other = one[both], other[both]
    if len(one) < _EVIDENCE or not one.std() or not other.std():
        return False
    return bool(abs(np.corrcoef(one, other)[0, 1]) >= _MONOTONE)


def _follows(column: NDArray[np.int64], given: NDArray[np.int64]) -> bool:
    """Return whether rows that agree in ``given`` agree in the column.

    Uses Goodman and Kruskal's tau with each row left out of its own prediction: without a relation its mean is 0,
    however many values ``given`` has.
    """
    if not len(given):
        return False
    size = np.bincount(given)[given]
    shared = size > 1
    column, given, size = column[shared], given[shared], size[shared]
    if not len(given):
        return False
    by_chance = 1 - float(((np.bincount(column) / len(column)) ** 2).sum())
    if by_chance * len(column) < _EVIDENCE:
        return False
    pair = given * (int(column.max()) + 1) + column
    if int(pair.max()) < _CELLS:
        alike = np.bincount(pair)[pair]
    else:
        _, cell, count = np.unique(pair, return_inverse=True, return_counts=True)
        alike = count[cell]
    return bool((1 - (alike - 1) / (size - 1)).mean() <= _DIFFER * by_chance)

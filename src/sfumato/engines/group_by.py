"""Streaming group-by: count the distinct rows of integer columns.

The codes of a row are packed into one 64-bit key, a batch of keys is sorted, and runs of equal keys are counted. Only
distinct keys are kept, so memory grows with the number of distinct rows, not of all rows. Codes that do not fit into
one key take several keys, which are sorted by one mixed number and compared in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.tuples import Keys, Packing
from sfumato.engines.tuples import key_starts as _starts

__all__ = ["GroupBy"]

Counts = NDArray[np.int64]

_BITS = 64
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, for multiplicative hashing
_NO_COUNTS = np.zeros(0, dtype=np.int64)
_SMALLEST_MERGE = 2**23


class GroupBy:
    """A running count of the distinct rows of integer codes.

    The keys are as narrow as the codes so far allow. When a column has a larger code, its bits are
    widened and the existing keys are repacked; that happens at most once per bit.

    Examples
    --------
    >>> tally = GroupBy(2)
    >>> tally.add([np.array([3, 0, 3]), np.array([1, 1, 1])])
    >>> tally.add([np.array([0]), np.array([1])], count=np.array([5]))
    >>> codes, count = tally.sorted()
    >>> codes.tolist(), count.tolist()
    ([[0, 1], [3, 1]], [6, 2])
    """

    def __init__(self, columns: int) -> None:
        self._packing = Packing([0] * columns)
        self._merged: tuple[Keys, Counts] | None = None
        self._new: list[tuple[Keys, Counts]] = []
        self._new_rows = 0

    def add(self, codes: Sequence[NDArray[Any]], count: Counts | None = None) -> None:
        """Count the rows of these columns, each once or ``count`` times."""
        if not len(codes[0]):
            return
        known = zip(self._packing.bits, codes, strict=True)
        bits = tuple(max(width, int(column.max()).bit_length()) for width, column in known)
        if bits != self._packing.bits:
            self._widen(Packing(bits))
        run = _distinct(self._packing.pack(codes), count, bits)
        self._new.append(run)
        self._new_rows += len(run[1])
        if self._new_rows >= max(_SMALLEST_MERGE, self.merged):
            self._merge()

    @property
    def merged(self) -> int:
        """The number of distinct rows at the last merge of batches."""
        return len(self._merged[1]) if self._merged else 0

    def distinct(self) -> tuple[Iterator[NDArray[np.int64]], Counts]:
        """Return the distinct rows by column, in no particular order, and their counts."""
        self._merge()
        keys, count = self._merged or ([np.zeros(0, dtype=np.uint64)] * len(self._packing.bits), _NO_COUNTS)
        return (column.view(np.int64) for column in self._packing.unpack(keys)), count

    def sorted(self) -> tuple[NDArray[np.int32], Counts]:
        """Return the distinct rows in lexicographic order, and their counts."""
        self._merge()
        if self._merged is not None and len(self._merged[0]) > 1:
            keys, count = self._merged
            order = np.lexsort(keys[::-1])
            self._merged = [key[order] for key in keys], count[order]
        columns, count = self.distinct()
        codes = np.empty((len(count), len(self._packing.bits)), dtype=np.int32, order="F")
        for position, column in enumerate(columns):
            codes[:, position] = column
        return codes, count

    def _merge(self) -> None:
        """Merge the batches counted so far."""
        runs = [self._merged, *self._new] if self._merged else self._new
        if len(runs) > 1:
            keys = [np.concatenate(words) for words in zip(*(run[0] for run in runs), strict=True)]
            self._merged = _distinct(keys, np.concatenate([run[1] for run in runs]), self._packing.bits)
        elif runs:
            self._merged = runs[0]
        self._new, self._new_rows = [], 0

    def _widen(self, packing: Packing) -> None:
        """Repack the counted keys with other widths."""

        def repack(run: tuple[Keys, Counts]) -> tuple[Keys, Counts]:
            return packing.pack(list(self._packing.unpack(run[0]))), run[1]

        self._merged = repack(self._merged) if self._merged else None
        self._new = [repack(run) for run in self._new]
        self._packing = packing


def _distinct(keys: Keys, count: Counts | None, bits: Sequence[int]) -> tuple[Keys, Counts]:
    """Return the distinct keys with their total counts."""
    if len(keys) == 1:
        key, count = _sort_key(keys[0], count, sum(bits))
        keys, begins = [key], _starts(key)
    else:
        mixed = _mix(keys)
        order = np.argsort(mixed)
        keys, begins = [key[order] for key in keys], _starts(mixed[order])
        if any((_starts(key) > begins).any() for key in keys):  # different keys with the same mixed number
            again = np.lexsort(keys)
            keys, order = [key[again] for key in keys], order[again]
            begins = np.logical_or.reduce([_starts(key) for key in keys])
        count = None if count is None else count[order]
    first = np.flatnonzero(begins)
    size = np.diff(first, append=len(begins)) if count is None else np.add.reduceat(count, first)
    return [key[first] for key in keys], size


def _sort_key(key: NDArray[np.uint64], count: Counts | None, used: int) -> tuple[NDArray[np.uint64], Counts | None]:
    """Sort a key that uses the given number of bits, together with its counts."""
    if count is None:
        return np.sort(key), None
    spare = int(count.max()).bit_length()
    if used + spare <= _BITS and count.min() >= 0:  # packing both into one number is faster than an argsort
        both = key << np.uint64(spare)
        both |= count.view(np.uint64)
        both.sort()
        counts = both & np.uint64((1 << spare) - 1)
        both >>= np.uint64(spare)
        return both, counts.view(np.int64)
    order = np.argsort(key)
    return key[order], count[order]


def _mix(keys: Keys) -> NDArray[np.uint64]:
    """Hash several keys into one number."""
    mixed = keys[0]
    for key in keys[1:]:
        mixed = mixed * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint64(32))) + key
    return mixed

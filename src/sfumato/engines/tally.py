"""Count the distinct rows of integer columns as they stream by.

The codes of a row are packed into one 64-bit key (or several, if they do not fit), a batch of
keys is sorted, and runs of equal keys are counted. Only distinct keys are kept, so that memory
grows with the number of distinct rows, not with the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tally"]

Keys = list[NDArray[np.uint64]]
Counts = NDArray[np.int64]

_BITS = 64
_SMALLEST_MERGE = 2**21


class Tally:
    """How often each distinct row of integer codes has been seen.

    The keys are as narrow as the codes seen so far allow. When a column shows a larger code, its
    bits are widened and the keys kept so far are packed anew; that happens at most once per bit.

    Examples
    --------
    >>> tally = Tally(2)
    >>> tally.add([np.array([3, 0, 3]), np.array([1, 1, 1])])
    >>> tally.add([np.array([0]), np.array([1])], count=np.array([5]))
    >>> codes, count = tally.sorted()
    >>> codes.tolist(), count.tolist()
    ([[0, 1], [3, 1]], [6, 2])
    """

    def __init__(self, columns: int) -> None:
        self._bits = [0] * columns
        self._merged: tuple[Keys, Counts] | None = None
        self._new: list[tuple[Keys, Counts]] = []
        self._new_rows = 0

    def add(self, codes: Sequence[NDArray[Any]], count: Counts | None = None) -> None:
        """Count the rows of these columns, each once or as often as it says."""
        if not len(codes[0]):
            return
        bits = [max(known, int(column.max()).bit_length()) for known, column in zip(self._bits, codes, strict=True)]
        if bits != self._bits:
            self._widen(bits)
        run = _distinct(_pack(codes, bits), count)
        self._new.append(run)
        self._new_rows += len(run[1])
        if self._new_rows >= max(_SMALLEST_MERGE, len(self._merged[1]) if self._merged else 0):
            self._merge()

    def sorted(self) -> tuple[NDArray[np.int32], Counts]:
        """Return the distinct rows in lexicographic order, and how often each was seen."""
        self._merge()
        if self._merged is None:
            return np.zeros((0, len(self._bits)), dtype=np.int32), np.zeros(0, dtype=np.int64)
        keys, count = self._merged
        codes = np.empty((len(count), len(self._bits)), dtype=np.int32, order="F")
        for position, column in enumerate(_unpack(keys, self._bits)):
            codes[:, position] = column
        return codes, count

    def _merge(self) -> None:
        """Make one of what has been counted so far."""
        runs = [self._merged, *self._new] if self._merged else self._new
        if len(runs) > 1:
            keys = [np.concatenate(words) for words in zip(*(run[0] for run in runs), strict=True)]
            self._merged = _distinct(keys, np.concatenate([run[1] for run in runs]))
        elif runs:
            self._merged = runs[0]
        self._new, self._new_rows = [], 0

    def _widen(self, bits: list[int]) -> None:
        """Pack what has been counted so far into keys of other widths."""
        if self._merged is not None:
            keys, count = self._merged
            self._merged = _pack(_unpack(keys, self._bits), bits), count
        self._new = [(_pack(_unpack(keys, self._bits), bits), count) for keys, count in self._new]
        self._bits = bits


def _layout(bits: Sequence[int]) -> list[tuple[int, int]]:
    """Say in which key each column lies, and how far it is shifted: the first column is the most significant."""
    places: list[tuple[int, int]] = []
    key, free = 0, _BITS
    for width in bits:
        if width > free:
            key, free = key + 1, _BITS
        free -= width
        places.append((key, free))
    return places


def _pack(codes: Sequence[NDArray[Any]], bits: Sequence[int]) -> Keys:
    places = _layout(bits)
    keys = [np.zeros(len(codes[0]), dtype=np.uint64) for _ in range(places[-1][0] + 1)]
    for column, width, (key, shift) in zip(codes, bits, places, strict=True):
        if width:
            keys[key] |= column.astype(np.uint64) << np.uint64(shift)
    return keys


def _unpack(keys: Keys, bits: Sequence[int]) -> list[NDArray[np.uint64]]:
    masks = [np.uint64((1 << width) - 1) for width in bits]
    return [
        (keys[key] >> np.uint64(shift % _BITS)) & mask for mask, (key, shift) in zip(masks, _layout(bits), strict=True)
    ]


def _distinct(keys: Keys, count: Counts | None) -> tuple[Keys, Counts]:
    """Sort the keys, and add up the counts of those that are equal."""
    if len(keys) == 1 and count is None:
        keys = [np.sort(keys[0])]
    else:
        order = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
        keys = [key[order] for key in keys]
        count = None if count is None else count[order]
    begins = np.zeros(len(keys[0]), dtype=bool)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(begins)
    size = np.diff(first, append=len(begins)) if count is None else np.add.reduceat(count, first)
    return [key[first] for key in keys], size

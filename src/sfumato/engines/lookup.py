"""Look up the position of each row of a batch among known tuples of integer codes.

The codes are packed into a 64-bit key for a hash table. If the columns do not fit into one key, the first of them are
looked up on their own, and the result is packed with the codes of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.tuples import group_keys

__all__ = ["Lookup"]

_BITS = 63  # a key is never negative
_MIX = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, for multiplicative hashing


class Lookup:
    """A hash lookup of distinct tuples of integer codes.

    Parameters
    ----------
    codes : the tuples, a row each
    sizes : the number of codes of each column

    Examples
    --------
    >>> finder = Lookup(np.array([[0, 3], [1, 3]]), [2, 4])
    >>> finder.find([np.array([1, 0, 1]), np.array([3, 3, 0])]).tolist()
    [1, 0, -1]
    """

    def __init__(self, codes: NDArray[Any], sizes: Sequence[int]) -> None:
        self._steps: list[tuple[list[tuple[int, int]], _HashTable]] = []
        found, at = np.zeros(len(codes), dtype=np.int64), 1
        columns: list[tuple[int, int]] = []
        used = 0
        for column, size in enumerate(sizes):
            bits = max(int(size - 1).bit_length(), 1)
            if columns and used + bits > _BITS - at.bit_length():
                found, at = self._step(columns, found, codes)
                columns, used = [], 0
            columns.append((column, bits))
            used += bits
        found, _ = self._step(columns, found, codes)
        self._tuple_of = np.full(len(codes) + 1, -1, dtype=np.int64)  # the last entry is for rows that are not found
        self._tuple_of[found] = np.arange(len(codes))

    def find(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the position of each row among the tuples, or -1."""
        found = np.zeros(len(columns[0]), dtype=np.int64)
        for chosen, table in self._steps:
            found = table.find(_pack(found, chosen, columns))  # a row that was not found has a negative key
        return self._tuple_of[found]

    def _step(
        self, columns: list[tuple[int, int]], found: NDArray[np.int64], codes: NDArray[Any]
    ) -> tuple[NDArray[np.int64], int]:
        """Add a hash table for more columns; return the number of each tuple so far, and their count."""
        key = _pack(found, columns, codes.T)
        first, number = group_keys(key)
        self._steps.append((columns, _HashTable(key[first])))
        return number.astype(np.int64), len(first)


def _pack(found: NDArray[np.int64], chosen: Sequence[tuple[int, int]], columns: Any) -> NDArray[np.int64]:
    key = found.copy()
    for column, bits in chosen:
        key <<= bits
        key |= columns[column]
    return key


class _HashTable:
    """A hash table from distinct keys to their positions."""

    def __init__(self, keys: NDArray[np.int64]) -> None:
        from sfumato.engines.lookup_kernels import fill

        bits = max(len(keys), 1).bit_length() + 1
        self._keys, self._shift = np.full(1 << bits, -1, dtype=np.int64), 64 - bits
        self._position = np.empty(1 << bits, dtype=np.int32)
        fill(keys, self._keys, self._position, self._shift, _MIX)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each key, or -1."""
        from sfumato.engines.lookup_kernels import find

        found = np.empty(len(keys), dtype=np.int64)
        find(keys, self._keys, self._position, self._shift, _MIX, found)
        return found

"""Look up the position of each row of a batch among known tuples of integer codes, by a hash table of packed keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel
from sfumato.engines.tuples import Packing

__all__ = ["Lookup"]

_BITS = 63  # a code of -1 sets the last bit, which no known key has
_MIX = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, for multiplicative hashing

Keys = NDArray[np.uint64]  # a row per word, a column per tuple


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
        self._packing = Packing.of(sizes, _BITS)
        self._known = np.array(self._packing.pack(codes.T))
        bits = max(len(codes), 1).bit_length() + 1  # more than half of the slots stay free
        self._slots, self._shift = np.full(1 << bits, -1, dtype=np.int32), 64 - bits
        fill(self._known, self._slots, self._shift, _MIX)

    def find(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return the position of each row among the tuples, or -1; a code of -1 is not found."""
        keys = np.array(self._packing.pack(columns))
        found = np.empty(keys.shape[1], dtype=np.int64)
        find(keys, self._known, self._slots, self._shift, _MIX, found)
        return found


@kernel()
def _slot(keys: Keys, row: int, shift: int, mix: Any) -> Any:
    """Hash the words of a key to a slot."""
    mixed = keys[0, row]
    for word in range(1, keys.shape[0]):
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(mix) + keys[word, row]
    return (mixed * np.uint64(mix)) >> np.uint64(shift)


@kernel()
def fill(known: Keys, slots: NDArray[np.int32], shift: int, mix: Any) -> None:
    """Insert distinct keys into an empty table with open addressing."""
    last = np.uint64(len(slots) - 1)
    for row in range(known.shape[1]):
        slot = _slot(known, row, shift, mix)
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = row


@kernel()
def find(keys: Keys, known: Keys, slots: NDArray[np.int32], shift: int, mix: Any, found: NDArray[np.int64]) -> None:
    """Look up the position of each key, or -1."""
    last = np.uint64(len(slots) - 1)
    for row in range(keys.shape[1]):
        slot = _slot(keys, row, shift, mix)
        at = slots[slot]
        while at >= 0:
            word = 0
            while word < keys.shape[0] and known[word, at] == keys[word, row]:
                word += 1
            if word == keys.shape[0]:
                break
            slot = (slot + np.uint64(1)) & last
            at = slots[slot]
        found[row] = at

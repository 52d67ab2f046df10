"""Words of 32 or 64 bits as small whole numbers that encryption adds up exactly, and their total as words again.

A word of 64 bits is two lanes of 32 bits, added up apart; the carries are added when the total is read. So an encrypted
sum is that of the words modulo their size, as by masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import OptionError

__all__ = ["LANE", "MOST_PARTIES", "from_lanes", "to_lanes"]

Words = NDArray[np.unsignedinteger[Any]]
Integers = NDArray[np.int64]

LANE = 32
MOST_PARTIES = 255  # sums of lanes stay below 2^40


def to_lanes(words: Words) -> Integers:
    """Return the lanes of words: whole numbers below 2^32.

    Examples
    --------
    >>> to_lanes(np.array([2**33 + 5], np.uint64)).tolist()
    [5, 2]
    """
    if words.dtype.itemsize not in (4, 8) or words.dtype.kind != "u" or words.ndim != 1:
        raise OptionError(f"a sum is of words of 32 or 64 bits, got {words.dtype}")
    return np.ascontiguousarray(words, words.dtype.newbyteorder("<")).view("<u4").astype(np.int64)


def from_lanes(total: Integers, bits: int) -> Words:
    """Return the total as words.

    Examples
    --------
    >>> from_lanes(np.array([2**32 + 5, 2]), 64).tolist() == [2**32 * 3 + 5]
    True
    """
    sums = total.astype(np.uint64)
    if bits == LANE:
        return sums.astype(np.uint32)
    low, high = sums.reshape(-1, 2).T
    return np.asarray(low + (high << np.uint64(LANE)))

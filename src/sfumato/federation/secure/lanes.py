"""Words of 32 or 64 bits as small whole numbers that encryption adds up exactly, and their total as words again.

A word of 64 bits is two lanes of 32 bits, added up apart; the carries are added when the total is read. So an encrypted
sum is that of the words modulo their size, as by masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import OptionError

__all__ = ["LANE", "MOST_LANES", "MOST_PARTIES", "check_size", "from_lanes", "to_lanes"]

Words = NDArray[np.unsignedinteger[Any]]
Integers = NDArray[np.int64]

LANE = 32
MOST_PARTIES = 255  # sums of lanes stay below 2^40
MOST_LANES = 1 << 24
"""Of all parties together in one sum; as ciphertexts about 1.2 GB, which a threshold sum sends to each of them."""


def check_size(what: str, parties: int, words: int, bits: int = 32) -> None:
    """Raise an error if a sum is too large for encryption.

    Examples
    --------
    >>> check_size("threshold encryption", 3, 26_010)
    >>> check_size("threshold encryption", 3, 11_172_810)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: threshold encryption adds up at most 5,592,405 numbers of 32 bits from each of 3 parties, got 11,172,810 (use masks)
    """  # noqa: E501 - the message is one line
    if parties > MOST_PARTIES:
        raise OptionError(f"{what} takes at most {MOST_PARTIES} parties, got {parties}", hint="use masks")
    most = MOST_LANES // (parties * (bits // LANE))
    if words > most:
        raise OptionError(
            f"{what} adds up at most {most:,} numbers of {bits} bits from each of {parties} parties, got {words:,}",
            hint="use masks",
        )


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

"""Compiled code of local suppression: which of many groups of tuples keep their limits.

Numba compiles this on first use and keeps the result on disk; import it inside the functions that run it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.limits import Limits
from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Ints

__all__ = ["keeping"]


@kernel(error_model="numpy")
def keeping(
    rows: Ints, groups: Ints, size: Ints, start: Ints, cell: Ints, count: Ints, limits: Limits
) -> NDArray[np.bool_]:
    """Say of each row, a tuple, whether its group keeps every limit; the rows of a group stand together.

    Parameters
    ----------
    rows : the tuples
    groups : the group of each row
    size, start, cell, count : of each tuple its records and, sparse, its sensitive values
    limits : Limits
    """
    held = np.zeros(limits.offset[-1], np.int64)
    scratch = np.zeros(limits.offset[-1], np.int64)
    kept = np.zeros(len(rows), np.bool_)
    first = 0
    while first < len(rows):
        last, records = first, 0
        while last < len(rows) and groups[last] == groups[first]:
            records += size[rows[last]]
            last += 1
        if records >= limits.k:
            for index in range(first, last):
                for entry in range(start[rows[index]], start[rows[index] + 1]):
                    held[cell[entry]] += count[entry]
            if keeps(held, records, limits, scratch):
                kept[first:last] = True
            for index in range(first, last):
                for entry in range(start[rows[index]], start[rows[index] + 1]):
                    held[cell[entry]] = 0
        first = last
    return kept

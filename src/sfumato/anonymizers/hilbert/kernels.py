"""Kernels of the Hilbert method: the position of a point on the curve, and the cuts of the line.

Numba compiles them on first use and caches the result on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps, ones
from sfumato.anonymizers.limits import Limits
from sfumato.anonymizers.mondrian.partition import Space
from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Ints

__all__ = ["along_the_curve", "cut_at_best", "cut_greedily", "loss_of_all"]


@kernel(error_model="numpy")
def along_the_curve(points: Ints, bits: int) -> NDArray[np.uint64]:
    """Return the positions of points on the Hilbert curve, as numbers of 64-bit words, the highest word first.

    John Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707, 2004: the axes are
    turned into the transposed index bit by bit; its bits are then woven together.
    """
    rows, axes = points.shape
    index = np.zeros((rows, (axes * bits + 63) // 64), dtype=np.uint64)
    axis = np.empty(axes, dtype=np.int64)
    for row in range(rows):
        for i in range(axes):
            axis[i] = points[row, i]
        bit = np.int64(1) << (bits - 1)
        while bit > 1:  # undo the rotations and reflections
            below = bit - 1
            for i in range(axes):
                if axis[i] & bit:
                    axis[0] ^= below
                else:
                    swap = (axis[0] ^ axis[i]) & below
                    axis[0] ^= swap
                    axis[i] ^= swap
            bit >>= 1
        for i in range(1, axes):  # Gray code
            axis[i] ^= axis[i - 1]
        flip = np.int64(0)
        bit = np.int64(1) << (bits - 1)
        while bit > 1:
            if axis[axes - 1] & bit:
                flip ^= bit - 1
            bit >>= 1
        at = index.shape[1] * 64 - axes * bits
        for level in range(bits - 1, -1, -1):
            for i in range(axes):
                if ((axis[i] ^ flip) >> level) & 1:
                    index[row, at >> 6] |= np.uint64(1) << np.uint64(63 - (at & 63))
                at += 1
    return index


@kernel(error_model="numpy")
def cut_greedily(size: Ints, start: Ints, cell: Ints, count: Ints, limits: Limits, begins: NDArray[np.bool_]) -> None:
    """Close a group as soon as it keeps its limits; merge the rest backward until it does.

    Parameters
    ----------
    size, start, cell, count : the records and the sparse sensitive values of each class along the line
    begins : set to true where a group begins
    """
    held = limits.offset[-1]
    histogram, scratch = np.zeros(held, np.int64), np.zeros(held, np.int64)
    records, begin = 0, 0
    for row in range(len(size)):
        records += size[row]
        for entry in range(start[row], start[row + 1]):
            histogram[cell[entry]] += count[entry]
        if records >= limits.k and keeps(histogram, records, limits, scratch):
            begins[begin] = True
            begin, records = row + 1, 0
            for value in range(held):
                histogram[value] = 0
    while begin < len(size) and begin > 0:
        begin -= 1
        while not begins[begin]:
            records, begin = _add(histogram, records, size, start, cell, count, begin), begin - 1
        records = _add(histogram, records, size, start, cell, count, begin)
        begins[begin] = keeps(histogram, records, limits, scratch)
        if begins[begin]:
            break
    begins[0] = True


@kernel(error_model="numpy")
def _add(histogram: Ints, records: Any, size: Ints, start: Ints, cell: Ints, count: Ints, row: int) -> Any:
    for entry in range(start[row], start[row + 1]):
        histogram[cell[entry]] += count[entry]
    return records + size[row]


@kernel(error_model="numpy")
def _loss_of(mask: NDArray[np.uint64], least: Ints, most: Ints, space: Space) -> float:
    """Return the NCP of a group, summed over the columns.

    Parameters
    ----------
    mask, least, most : for each column the set of its positions, if it has at most 64, the first and the last
    """
    loss = 0.0
    for by in range(len(mask)):
        if space.ordered[by]:
            loss += min(space.place[space.at[by] + most[by]] - space.place[space.at[by] + least[by]], 1.0)
        elif least[by] < most[by]:
            loss += (ones(mask[by]) if space.length[by] <= 64 else most[by] - least[by] + 1) / space.size[by]
    return loss


@kernel(error_model="numpy")
def loss_of_all(mask: NDArray[np.uint64], least: Ints, most: Ints, records: Ints, group: Ints, space: Space) -> float:
    """Return the total loss of all records; see `_loss_of`."""
    loss = np.empty(len(mask))
    for index in range(len(mask)):
        loss[index] = _loss_of(mask[index], least[index], most[index], space)
    total = 0.0
    for row in range(len(group)):
        total += records[row] * loss[group[row]]
    return total


@kernel(error_model="numpy")
def cut_at_best(
    size: Ints,
    start: Ints,
    cell: Ints,
    count: Ints,
    mask: NDArray[np.uint64],
    least: Ints,
    most: Ints,
    space: Space,
    limits: Limits,
    window: int,
    begins: NDArray[np.bool_],
) -> None:
    """Cut the line for the least total loss, by dynamic programming over the first row of the last group.

    Groups with more than twice the records that are needed, or with more rows than the window, are tried only if
    nothing else keeps the limits.
    """
    rows, columns = mask.shape
    held, sensitive = limits.offset[-1], len(limits.model) > 0
    histogram, scratch = np.zeros(held, np.int64), np.zeros(held, np.int64)
    best, come_from = np.full(rows + 1, np.inf), np.zeros(rows + 1, np.int64)
    best[0] = 0.0
    group_mask, group_least, group_most = (
        np.empty(columns, np.uint64),
        np.empty(columns, np.int64),
        np.empty(columns, np.int64),
    )
    for end in range(1, rows + 1):
        records, needed = 0, -1
        for value in range(held):
            histogram[value] = 0
        for by in range(columns):
            group_mask[by], group_least[by], group_most[by] = np.uint64(0), space.length[by], -1
        for row in range(end - 1, -1, -1):
            records = _add(histogram, records, size, start, cell, count, row)
            for by in range(columns):
                group_mask[by] |= mask[row, by]
                group_least[by] = min(group_least[by], least[row, by])
                group_most[by] = max(group_most[by], most[row, by])
            if records >= limits.k and (not sensitive or keeps(histogram, records, limits, scratch)):
                if needed < 0:
                    needed = records
                if best[row] < np.inf:
                    loss = best[row] + records * _loss_of(group_mask, group_least, group_most, space)
                    if loss < best[end]:
                        best[end], come_from[end] = loss, row
            enough = needed >= 0 and records >= 2 * needed and best[end] < np.inf
            if enough or (end - row >= window and (best[end] < np.inf or end < rows)):
                break
    begin = come_from[rows]
    while begin > 0:
        begins[begin] = True
        begin = come_from[begin]
    begins[0] = True

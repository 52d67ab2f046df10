"""The kernels of the Hilbert method as numpy code, for k-anonymity alone; small tables need no compiler.

Each function gives the same groups as its namesake in `hilbert.kernels`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import ones
from sfumato.anonymizers.mondrian.partition import Space
from sfumato.measures.classes import Floats, Ints

__all__ = ["along_the_curve", "cut_at_best", "cut_greedily", "loss_of_all"]

_WORD = 64


def along_the_curve(points: Ints, bits: int) -> NDArray[np.uint64]:
    """Return the positions of points on the Hilbert curve, as numbers of 64-bit words, the highest word first."""
    rows, axes = points.shape
    axis = points.T.astype(np.int64)
    for level in range(bits - 1, 0, -1):  # undo the rotations and reflections
        below = (1 << level) - 1
        for i in range(axes):
            is_set = (axis[i] >> level) & 1 == 1
            swap = np.where(is_set, 0, (axis[0] ^ axis[i]) & below)
            axis[0] ^= np.where(is_set, below, swap)
            if i > 0:
                axis[i] ^= swap
    for i in range(1, axes):  # Gray code
        axis[i] ^= axis[i - 1]
    flip = np.zeros(rows, dtype=np.int64)
    for level in range(bits - 1, 0, -1):
        flip ^= np.where((axis[axes - 1] >> level) & 1 == 1, (1 << level) - 1, 0)
    words = (axes * bits + _WORD - 1) // _WORD
    index = np.zeros((rows, words), dtype=np.uint64)
    at = words * _WORD - axes * bits
    for level in range(bits - 1, -1, -1):
        for i in range(axes):
            bit = (((axis[i] ^ flip) >> level) & 1).astype(np.uint64)
            index[:, at // _WORD] |= bit << np.uint64(_WORD - 1 - at % _WORD)
            at += 1
    return index


def cut_greedily(size: Ints, k: int, begins: NDArray[np.bool_]) -> None:
    """Close a group as soon as it has k records; merge the rest into the last group."""
    total = np.concatenate([[0], np.cumsum(size)])
    begin, rows = 0, len(size)
    while (end := int(np.searchsorted(total, total[begin] + k))) <= rows:
        begins[begin] = True
        begin = end
    begins[0] = True


def loss_of_all(mask: NDArray[np.uint64], least: Ints, most: Ints, records: Ints, group: Ints, space: Space) -> float:
    """Return the total loss of all records."""
    return float(np.cumsum(records * _loss_of(mask, least, most, space)[group])[-1])  # in the order of the rows


def _loss_of(mask: NDArray[np.uint64], least: Ints, most: Ints, space: Space) -> Floats:
    """Return the NCP of each group, summed over the columns."""
    loss = np.zeros(len(mask))
    for by in range(mask.shape[1]):
        low, high = least[:, by], most[:, by]
        if space.ordered[by]:
            at = space.at[by]
            loss += np.minimum(space.place[at + high] - space.place[at + low], 1.0)
        else:
            held = ones.function(mask[:, by].copy()) if space.length[by] <= _WORD else high - low + 1
            loss += np.where(low < high, held / space.size[by], 0.0)
    return loss


def cut_at_best(
    size: Ints,
    mask: NDArray[np.uint64],
    least: Ints,
    most: Ints,
    space: Space,
    k: int,
    window: int,
    begins: NDArray[np.bool_],
) -> None:
    """Cut the line into groups of at least k records for the least total loss, by dynamic programming."""
    rows = len(size)
    total = np.concatenate([[0], np.cumsum(size)])
    ends = np.arange(rows + 1)
    # The last group begins at the row `latest` or earlier; groups of more than twice its records are not tried.
    latest = np.searchsorted(total, total - k, side="right") - 1
    needed = total - total[np.maximum(latest, 0)]
    earliest = np.maximum(np.searchsorted(total, total - 2 * needed, side="right") - 1, np.maximum(ends - window, 0))
    earliest = np.minimum(earliest, np.maximum(latest, 0))
    loss = _losses(mask, least, most, space, np.where(latest >= 0, ends - earliest, 0))
    best, come_from = np.full(rows + 1, np.inf), np.zeros(rows + 1, dtype=np.int64)
    best[0] = 0.0
    for end in range(1, rows + 1):
        last, first = int(latest[end]), int(earliest[end])
        if last < 0:
            continue
        begin = np.arange(last, first - 1, -1)
        tried = best[begin] + (total[end] - total[begin]) * loss[end - begin, end]
        found = int(np.argmin(tried))
        best[end], come_from[end] = tried[found], begin[found]
        if best[end] == np.inf:  # no such group leaves a divisible rest: take the shortest longer one that does
            lowest = 0 if end == rows else max(end - window, 0)
            longer = lowest + np.flatnonzero(best[lowest:first] < np.inf)
            if len(longer):
                row = int(longer[-1])
                low, high = least[row:end].min(axis=0)[None], most[row:end].max(axis=0)[None]
                box_loss = _loss_of(np.bitwise_or.reduce(mask[row:end])[None], low, high, space)[0]
                best[end] = best[row] + (total[end] - total[row]) * box_loss
                come_from[end] = row
    begin_at = int(come_from[rows])
    while begin_at > 0:
        begins[begin_at] = True
        begin_at = int(come_from[begin_at])
    begins[0] = True


def _losses(mask: NDArray[np.uint64], least: Ints, most: Ints, space: Space, longest: Ints) -> Floats:
    """Return the loss of the last n rows before each end, for each n up to the longest group there."""
    loss = np.full((int(longest.max()) + 1, len(longest)), np.inf)
    held, low, high = mask.copy(), least.copy(), most.copy()
    for n in range(1, len(loss)):
        if n > 1:  # in row i is the group of the n rows that end with it
            held[n - 1 :] |= mask[: len(mask) - n + 1]
            np.minimum(low[n - 1 :], least[: len(mask) - n + 1], out=low[n - 1 :])
            np.maximum(high[n - 1 :], most[: len(mask) - n + 1], out=high[n - 1 :])
        asked = np.flatnonzero(longest >= n)
        loss[n, asked] = _loss_of(held[asked - 1], low[asked - 1], high[asked - 1], space)
    return loss

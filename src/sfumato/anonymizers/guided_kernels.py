"""Compiled code of the tree that a label guides.

Numba compiles this on first use and keeps the result on disk; import it inside the functions that run it.
The rows of a node are a range of `order`; they stay in their own order when a node is cut, so that memory is
read forwards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sfumato.anonymizers.kernels import keeps
from sfumato.anonymizers.limits import Limits
from sfumato.measures.counts import Floats, Ints

__all__ = ["MISSING", "UNKNOWN", "find_leaves", "grow"]

UNKNOWN = -1.0
"""The place of a value that no line has: it goes to the side with more records."""
MISSING = 1.5
"""A place above this is that of a missing value."""

_LEAST = 1e-10  # what a cut must gain per record: less is rounding


class _Data(NamedTuple):
    """What is cut: see `grow`."""

    positions: NDArray[np.int32]
    records: Ints
    mass: Floats
    start: Ints
    cell: Ints
    times: Ints
    dimensions: Ints
    place: Floats
    node: NDArray[np.int32]


class _Room(NamedTuple):
    """The arrays that the functions below write to, so that none of them allocates any.

    Attributes
    ----------
    value : the values of a dimension in a node, ascending
    unit : the unit that each belongs to: itself, or a child of the lowest node of the hierarchy that covers all
    weight, sums : the records and the label mass of each unit
    rank : the units in the order in which they are cut
    right_side : which units go to the right
    bucket, rows : the rows in the order of their units
    """

    value: Ints
    unit: Ints
    weight: Ints
    sums: Floats
    rank: Ints
    right_side: NDArray[np.bool_]
    bucket: Ints
    rows: Ints
    tally: Ints
    heap: Floats
    keys: Ints
    spare: Ints
    other: Ints
    key: Floats
    total: Floats
    below: Floats
    histogram: Ints
    left: Ints
    right: Ints
    scratch: Ints


@njit(cache=True, nogil=True, error_model="numpy")
def grow(
    positions: NDArray[np.int32],
    records: Ints,
    mass: Floats,
    start: Ints,
    cell: Ints,
    count: Ints,
    dimensions: Ints,
    place: Floats,
    node: NDArray[np.int32],
    limits: Limits,
    entropy: bool,
    refine: bool,
    ahead: int,
    order: Ints,
) -> tuple[Ints, Floats, Ints, Ints]:
    """Cut the tuples where the label gains most and both sides keep their limits; else, if asked to, at medians.

    Parameters
    ----------
    positions : a row per dimension, a column per tuple
    records, mass : of each tuple its records and, a column per class, how much of the label they have
    start, cell, count : how often the tuple at i has each sensitive value: ``start[i]`` to ``start[i + 1]``
    dimensions : of each its length, its size, whether it is ordered, where its places begin, the height of its
        hierarchy and where its nodes begin; see `partition.Space`
    place, node : see `partition.Space`
    ahead : a node of at most so many records compares the best cuts of all dimensions by what can be gained below them
    order : all tuples; on return those of a leaf stand together

    Returns
    -------
    Of each node its dimension (-1 for a leaf), children, records, first and last tuple in `order`, and where its
    values begin and end; its threshold; the values of all cuts of categories, twice the position and 1 if it goes
    to the right; and the leaf of each tuple.
    """
    number, tuples, all_records = len(dimensions), len(records), 0
    for row in range(tuples):
        all_records += records[row]
    data = _Data(positions, records, mass, start, cell, count, dimensions, place, node)
    room = _room(dimensions, tuples, mass.shape[1], limits.offset[-1] if len(limits.model) > 0 else 0)
    value, unit, right_side = room.value, room.unit, room.right_side
    trial, waiting = (
        np.empty(tuples if ahead > 0 else 0, np.int64),
        np.empty((tuples + 1 if ahead > 0 else 0, 3), np.int64),
    )
    most_nodes = 2 * min(tuples, max(all_records // max(limits.k, 1), 1)) + 1
    made = np.zeros((most_nodes, 8), np.int64)
    threshold, pool = np.zeros(most_nodes), np.empty(1024, np.int64)
    leaf, nodes, pooled = np.empty(tuples, np.int64), 1, 0
    made[0, 3], made[0, 4], made[0, 5] = all_records, 0, tuples
    stack, top = np.empty(most_nodes, np.int64), 0
    stack[0] = 0
    while top >= 0:
        at = stack[top]
        top -= 1
        size, low, high = made[at, 3], made[at, 4], made[at, 5]
        by = by_class = cut = -1
        if size >= 2 * limits.k and high - low > 1:
            if size <= ahead and size >= 3 * limits.k:
                best = 0.0
                for candidate in range(number):
                    gained, its_class, its_cut = _best(
                        data, order, low, high, size, candidate, 0.0, limits, entropy, room
                    )
                    if its_cut < 0:
                        continue
                    for index in range(low, high):
                        trial[index] = order[index]
                    reached = gained + _reach(
                        data, trial, low, high, size, candidate, its_class, its_cut, limits, entropy, room, waiting
                    )
                    if reached > best:
                        best, by, by_class, cut = reached, candidate, its_class, its_cut
            else:
                _, by, by_class, cut = _greedy(data, order, low, high, size, limits, entropy, room)
            if refine and by < 0:
                by, cut = _halve(data, order, low, high, size, limits, room)
        made[at, 0] = by
        if by < 0:
            for index in range(low, high):
                leaf[order[index]] = at
            continue
        found, middle, records_below = _divide(data, order, low, high, by, by_class, cut, room)
        if dimensions[by, 2]:
            last = 0  # the last value on the left
            while last + 1 < found and not right_side[unit[last + 1]]:
                last += 1
            first = dimensions[by, 3]
            threshold[at] = (place[first + value[last]] + min(place[first + value[last + 1]], MISSING)) / 2
            made[at, 6] = made[at, 7] = pooled
        else:
            if pooled + found > len(pool):
                larger = np.empty(2 * (pooled + found), np.int64)
                for index in range(pooled):
                    larger[index] = pool[index]
                pool = larger
            made[at, 6], made[at, 7] = pooled, pooled + found
            for index in range(found):
                pool[pooled + index] = 2 * value[index] + np.int64(right_side[unit[index]])
            pooled += found
        for side in range(2):
            child = nodes + side
            made[at, 1 + side] = child
            made[child, 3] = size - records_below if side else records_below
            made[child, 4] = middle if side else low
            made[child, 5] = high if side else middle
            top += 1
            stack[top] = child
        nodes += 2
    return made[:nodes], threshold[:nodes], pool[:pooled], leaf


@njit(cache=True, nogil=True, error_model="numpy")
def _room(dimensions: Ints, tuples: int, classes: int, held: int) -> _Room:
    longest = 0
    for by in range(len(dimensions)):
        longest = max(longest, dimensions[by, 0])
    longest = min(longest, max(tuples, 256) * 4 + 256)
    most = max(tuples, longest)
    return _Room(
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty((longest, classes)),
        np.empty(longest, np.int64),
        np.zeros(longest, np.bool_),
        np.empty(longest + 1, np.int64),
        np.empty(tuples, np.int64),
        np.zeros(longest, np.int64),
        np.zeros((longest, classes)),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest),
        np.empty(classes),
        np.empty(classes),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _greedy(
    data: _Data, order: Ints, low: int, high: int, size: Any, limits: Limits, entropy: bool, room: _Room
) -> tuple[float, int, int, int]:
    """Return what the best cut gains, its dimension, the order of the values and the last on the left; -1 for none."""
    best, by, by_class, cut = 0.0, -1, -1, -1
    if size >= 2 * limits.k and high - low > 1:
        for candidate in range(len(data.dimensions)):
            gained, its_class, its_cut = _best(data, order, low, high, size, candidate, best, limits, entropy, room)
            if its_cut >= 0:
                best, by, by_class, cut = gained, candidate, its_class, its_cut
    return best, by, by_class, cut


@njit(cache=True, nogil=True, error_model="numpy")
def _reach(
    data: _Data,
    order: Ints,
    low: int,
    high: int,
    size: Any,
    by: int,
    by_class: int,
    cut: int,
    limits: Limits,
    entropy: bool,
    room: _Room,
    waiting: Ints,
) -> float:
    """Return what is gained below a cut if all further ones are the best at their place; the rows are moved."""
    reached, top = 0.0, -1
    while True:
        if by >= 0:
            _, middle, below = _divide(data, order, low, high, by, by_class, cut, room)
            waiting[top + 1, 0], waiting[top + 1, 1], waiting[top + 1, 2] = low, middle, below
            waiting[top + 2, 0], waiting[top + 2, 1], waiting[top + 2, 2] = middle, high, size - below
            top += 2
        if top < 0:
            return reached
        low, high, size = waiting[top, 0], waiting[top, 1], waiting[top, 2]
        top -= 1
        gained, by, by_class, cut = _greedy(data, order, low, high, size, limits, entropy, room)
        reached += gained


@njit(cache=True, nogil=True, error_model="numpy")
def _best(
    data: _Data,
    order: Ints,
    low: int,
    high: int,
    size: Any,
    by: int,
    beyond: float,
    limits: Limits,
    entropy: bool,
    room: _Room,
) -> tuple[float, int, int]:
    """Return what the best cut of one dimension gains, the order of the values and the last of them on the left.

    Both sides keep their limits. There is no such cut, -1, if none gains more than another one does already.
    """
    start, cell, count = data.start, data.cell, data.times
    weight, sums, rank, bucket, rows = room.weight, room.sums, room.rank, room.bucket, room.rows
    total, below, scratch = room.total, room.below, room.scratch
    histogram, left, right = room.histogram, room.left, room.right
    classes, held, k, ordered = len(total), len(histogram), limits.k, data.dimensions[by, 2]
    least = max(beyond, _LEAST * size)
    found, units, _ = _list(data, order, low, high, by, room)
    best, best_class, best_cut = least, -1, -1
    if units < 2:
        return best, best_class, best_cut
    for one in range(classes):
        total[one] = 0.0
    for index in range(units):
        for one in range(classes):
            total[one] += sums[index, one]
    whole = _score(total, size, entropy)
    for by_class in range(_orders(ordered, classes)):
        _rank(units, by_class, ordered, room)
        for one in range(classes):
            below[one] = 0.0
        records_below = 0
        for cut in range(units - 1):
            which = rank[cut]
            records_below += weight[which]
            for one in range(classes):
                below[one] += sums[which, one]
            if records_below < k or size - records_below < k:
                continue
            gained = _gain(below, total, records_below, size, entropy) - whole
            if gained > best:
                best, best_class, best_cut = gained, by_class, cut
    if held == 0 or best_cut < 0:
        return best, best_class, best_cut
    for cell_at in range(held):
        histogram[cell_at] = 0
    for index in range(low, high):
        for entry in range(start[order[index]], start[order[index] + 1]):
            histogram[cell[entry]] += count[entry]
    best, best_class, best_cut = least, -1, -1
    for by_class in range(_orders(ordered, classes)):
        _rank(units, by_class, ordered, room)
        _bucket(data, order, low, high, by, found, units, room)
        for one in range(classes):
            below[one] = 0.0
        for cell_at in range(held):
            left[cell_at] = 0
        records_below = 0
        for cut in range(units - 1):
            which = rank[cut]
            records_below += weight[which]
            for one in range(classes):
                below[one] += sums[which, one]
            for index in range(bucket[cut], bucket[cut + 1]):
                for entry in range(start[rows[index]], start[rows[index] + 1]):
                    left[cell[entry]] += count[entry]
            if records_below < k or size - records_below < k:
                continue
            gained = _gain(below, total, records_below, size, entropy) - whole
            if gained > best:
                for cell_at in range(held):
                    right[cell_at] = histogram[cell_at] - left[cell_at]
                if keeps(left, records_below, limits, scratch) and keeps(right, size - records_below, limits, scratch):
                    best, best_class, best_cut = gained, by_class, cut
    return best, best_class, best_cut


@njit(cache=True, nogil=True, error_model="numpy")
def _halve(data: _Data, order: Ints, low: int, high: int, size: Any, limits: Limits, room: _Room) -> tuple[int, int]:
    """Return the dimension that loses most of those that can be cut at their median, as Mondrian does, and the cut."""
    start, cell, count, dimensions, place = data.start, data.cell, data.times, data.dimensions, data.place
    value, weight, rank, bucket, rows = room.value, room.weight, room.rank, room.bucket, room.rows
    left, right, scratch = room.left, room.right, room.scratch
    held, number = len(left), len(dimensions)
    loss = np.empty(number)
    for by in range(number):
        _, _, loss[by] = _list(data, order, low, high, by, room)
    for _ in range(number):
        by = 0
        for candidate in range(1, number):
            if loss[candidate] > loss[by]:
                by = candidate
        if loss[by] <= 0.0:
            break
        loss[by] = 0.0
        found, units, _ = _list(data, order, low, high, by, room)
        misses = dimensions[by, 2] and place[dimensions[by, 3] + value[found - 1]] > MISSING
        for attempt in range(2):  # a missing value is separated first
            if attempt == 0 and not misses:
                continue
            cut = _median(units, weight, size, limits.k, attempt == 0)
            if cut < 0:
                continue
            if held == 0:
                return by, cut
            for index in range(units):
                rank[index] = index
            _bucket(data, order, low, high, by, found, units, room)
            records_below = 0
            for index in range(cut + 1):
                records_below += weight[index]
            for cell_at in range(held):
                left[cell_at] = right[cell_at] = 0
            for index in range(high - low):
                row = rows[index]
                for entry in range(start[row], start[row + 1]):
                    if index < bucket[cut + 1]:
                        left[cell[entry]] += count[entry]
                    else:
                        right[cell[entry]] += count[entry]
            if keeps(left, records_below, limits, scratch) and keeps(right, size - records_below, limits, scratch):
                return by, cut
    return -1, -1


@njit(cache=True, nogil=True, error_model="numpy")
def _divide(
    data: _Data, order: Ints, low: int, high: int, by: int, by_class: int, cut: int, room: _Room
) -> tuple[int, int, Any]:
    """Move the rows left of a cut before the others, both in their order.

    Returns
    -------
    The number of values, which are listed in the room with the side of their unit; where the others begin, and the
    records on the left.
    """
    positions, value, unit, weight = data.positions, room.value, room.unit, room.weight
    rank, right_side, spare = room.rank, room.right_side, room.spare
    found, units, _ = _list(data, order, low, high, by, room)
    if by_class < 0:
        for index in range(units):
            rank[index] = index
    else:
        _rank(units, by_class, data.dimensions[by, 2], room)
    records_below = 0
    for index in range(units):
        right_side[rank[index]] = index > cut
        records_below += weight[rank[index]] if index <= cut else 0
    middle, after = low, 0
    for index in range(low, high):
        row = order[index]
        if right_side[unit[_search(value, found, positions[by, row])]]:
            spare[after] = row
            after += 1
        else:
            order[middle] = row
            middle += 1
    for index in range(after):
        order[middle + index] = spare[index]
    return found, middle, records_below


@njit(cache=True, nogil=True, error_model="numpy")
def _score(sums: Floats, size: Any, entropy: bool) -> float:
    """Return what is told of the label by one sum per class: the larger, the purer."""
    score = 0.0
    for one in range(len(sums)):
        if not entropy:
            score += sums[one] * sums[one] / size
        elif sums[one] > 0.0:
            score += sums[one] * math.log(sums[one] / size)
    return score


@njit(cache=True, nogil=True, error_model="numpy")
def _gain(below: Floats, total: Floats, records: Any, size: Any, entropy: bool) -> float:
    """Return the score of both sides of a cut."""
    score, rest = 0.0, size - records
    for one in range(len(total)):
        left, right = below[one], total[one] - below[one]
        if not entropy:
            score += left * left / records + right * right / rest
        else:
            if left > 0.0:
                score += left * math.log(left / records)
            if right > 0.0:
                score += right * math.log(right / rest)
    return score


@njit(cache=True, nogil=True, error_model="numpy")
def _orders(ordered: int, classes: int) -> int:
    """Return in how many orders the values are tried: by the share of each class, or of one of two."""
    return 1 if ordered or classes < 3 else classes


@njit(cache=True, nogil=True, error_model="numpy")
def _list(data: _Data, order: Ints, low: int, high: int, by: int, room: _Room) -> tuple[int, int, float]:
    """List the values of a dimension in a node, and the records and label mass of each unit that a cut keeps together.

    A unit is a value, or a child of the lowest node of the hierarchy that covers all values.

    Returns
    -------
    The number of values, the number of units, and what the dimension loses as NCP counts it.
    """
    positions, records, mass, dimensions = data.positions, data.records, data.mass, data.dimensions
    place, node = data.place, data.node
    value, unit, weight, sums = room.value, room.unit, room.weight, room.sums
    tally, heap, keys, spare = room.tally, room.heap, room.keys, room.spare
    classes, rows = mass.shape[1], high - low
    least = most = np.int64(positions[by, order[low]])
    for index in range(low, high):
        code = np.int64(positions[by, order[index]])
        least, most = min(least, code), max(most, code)
    found, span = 0, most - least + 1
    if span <= 4 * rows + 256:
        for index in range(low, high):
            row = order[index]
            at = positions[by, row] - least
            tally[at] += records[row]
            for one in range(classes):
                heap[at, one] += mass[row, one]
        for at in range(span):
            if tally[at] > 0:
                value[found], weight[found], tally[at] = least + at, tally[at], 0
                for one in range(classes):
                    sums[found, one], heap[at, one] = heap[at, one], 0.0
                found += 1
    else:  # few rows on a long line: sort them
        for index in range(rows):
            keys[index] = (np.int64(positions[by, order[low + index]]) << 32) | index
        _sort(keys, spare, rows)
        before = np.int64(-1)
        for index in range(rows):
            code, row = keys[index] >> 32, order[low + (keys[index] & 0xFFFFFFFF)]
            if code != before:
                value[found], weight[found] = code, 0
                for one in range(classes):
                    sums[found, one] = 0.0
                found += 1
                before = code
            weight[found - 1] += records[row]
            for one in range(classes):
                sums[found - 1, one] += mass[row, one]
    units, level = found, dimensions[by, 4] - 1
    for index in range(found):
        unit[index] = index
    if level >= 0 and found > 1:
        length, nodes = dimensions[by, 0], dimensions[by, 5]
        nodes += level * length
        while level > 0 and node[nodes + value[0]] == node[nodes + value[found - 1]]:
            level, nodes = level - 1, nodes - length
        units = 1
        for index in range(1, found):  # a unit never lies behind the value that is read
            if node[nodes + value[index]] != node[nodes + value[index - 1]]:
                weight[units] = weight[index]
                for one in range(classes):
                    sums[units, one] = sums[index, one]
                units += 1
            else:
                weight[units - 1] += weight[index]
                for one in range(classes):
                    sums[units - 1, one] += sums[index, one]
            unit[index] = units - 1
    if dimensions[by, 2]:
        first = dimensions[by, 3]
        return found, units, min(place[first + value[found - 1]] - place[first + value[0]], 1.0)
    return found, units, found / dimensions[by, 1] if found > 1 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(units: int, by_class: int, ordered: int, room: _Room) -> None:
    """Put the units into the order in which they are cut: their own, or that of their share of a class."""
    weight, sums, rank, other, key = room.weight, room.sums, room.rank, room.other, room.key
    for index in range(units):
        rank[index] = index
    if ordered:
        return
    column = sums.shape[1] - 1 if sums.shape[1] < 3 else by_class
    for index in range(units):
        key[index] = sums[index, column] / weight[index]
    width = 1
    while width < units:  # merge ever longer runs
        for low in range(0, units, 2 * width):
            left, middle, end = low, min(low + width, units), min(low + 2 * width, units)
            right = middle
            for at in range(low, end):
                if left < middle and (right >= end or key[rank[left]] <= key[rank[right]]):
                    other[at] = rank[left]
                    left += 1
                else:
                    other[at] = rank[right]
                    right += 1
        for at in range(units):
            rank[at] = other[at]
        width *= 2


@njit(cache=True, nogil=True, error_model="numpy")
def _sort(numbers: Ints, other: Ints, length: int) -> None:
    """Sort the beginning of an array by merging ever longer runs."""
    width = 1
    while width < length:
        for low in range(0, length, 2 * width):
            left, middle, end = low, min(low + width, length), min(low + 2 * width, length)
            right = middle
            for at in range(low, end):
                if left < middle and (right >= end or numbers[left] <= numbers[right]):
                    other[at] = numbers[left]
                    left += 1
                else:
                    other[at] = numbers[right]
                    right += 1
        for at in range(length):
            numbers[at] = other[at]
        width *= 2


@njit(cache=True, nogil=True, error_model="numpy")
def _bucket(data: _Data, order: Ints, low: int, high: int, by: int, found: int, units: int, room: _Room) -> None:
    """Sort the rows of a node by the rank of their unit; those at rank i are ``bucket[i]`` to ``bucket[i + 1]``."""
    positions, value, unit, rank = data.positions, room.value, room.unit, room.rank
    bucket, rows, place_of = room.bucket, room.rows, room.other
    for index in range(units):
        place_of[rank[index]] = index
        bucket[index] = 0
    bucket[units] = 0
    for index in range(low, high):
        at = place_of[unit[_search(value, found, positions[by, order[index]])]]
        bucket[at] += 1
    total = 0
    for index in range(units):  # where each ends; it is filled backwards
        total += bucket[index]
        bucket[index] = total
    bucket[units] = total
    for index in range(high - low):
        row = order[high - 1 - index]
        at = place_of[unit[_search(value, found, positions[by, row])]]
        bucket[at] -= 1
        rows[bucket[at]] = row


@njit(cache=True, nogil=True, error_model="numpy")
def _search(value: Ints, found: int, wanted: int) -> int:
    """Return where a value stands in an ascending list that holds it."""
    low, high = 0, found
    while high - low > 1:
        middle = (low + high) // 2
        if value[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def _median(units: int, weight: Ints, size: int, k: int, missing: bool) -> int:
    """Return the last unit left of the most balanced cut that leaves k records on both sides, or -1.

    If the last unit is a missing value, the cut that separates it is meant instead.
    """
    best, furthest, below = -1, size, 0
    for index in range(units - 1):
        below += weight[index]
        if below < k or size - below < k or (missing and index < units - 2):
            continue
        if abs(2 * below - size) < furthest:
            best, furthest = index, abs(2 * below - size)
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def find_leaves(places: Floats, ordered: NDArray[np.bool_], made: Ints, threshold: Floats, pool: Ints) -> Ints:
    """Return the leaf of each tuple.

    Parameters
    ----------
    places : a row per dimension: the place on the line if it is ordered, else the position, or `UNKNOWN`
    ordered : which dimensions are
    made, threshold, pool : the tree that `grow` made
    """
    leaves = np.empty(places.shape[1], np.int64)
    for row in range(places.shape[1]):
        at = 0
        while made[at, 0] >= 0:
            by = made[at, 0]
            place, side = places[by, row], -1
            if place != UNKNOWN:
                if ordered[by]:
                    side = 1 if place > threshold[at] else 0
                else:
                    first, last = made[at, 6], made[at, 7]
                    wanted = np.int64(place)
                    while last - first > 1:
                        middle = (first + last) // 2
                        if pool[middle] >> 1 <= wanted:
                            first = middle
                        else:
                            last = middle
                    if pool[first] >> 1 == wanted:
                        side = pool[first] & 1
            if side < 0:
                side = 1 if made[made[at, 2], 3] > made[made[at, 1], 3] else 0
            at = made[at, 1 + side]
        leaves[row] = at
    return leaves

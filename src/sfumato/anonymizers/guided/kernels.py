"""Kernels of the guided tree.

Numba compiles them on first use and caches the result on disk.
The rows of a node are a range of `order`; they stay in their own order when a node is cut, so that memory is
read forwards. All columns of a node are counted in one go, a row at a time, into one long histogram.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.limits import Limits
from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Floats, Ints

__all__ = ["LEAST", "MISSING", "UNKNOWN", "find_leaves", "grow", "median"]

UNKNOWN = -1.0
"""The place of a value that no line has: it goes to the side with more records."""
MISSING = 1.5
"""A place above this is that of a missing value."""

LEAST = 1e-10
"""What a cut must gain per record: less is rounding."""


class _Data(NamedTuple):
    """What is cut: see `grow`."""

    cells: NDArray[np.int32]
    amounts: Floats
    start: Ints
    cell: Ints
    times: Ints
    dimensions: Ints
    place: Floats
    node: NDArray[np.int32]
    limits: Limits
    entropy: bool


class _Room(NamedTuple):
    """The arrays that the functions below write to, so that none of them allocates any.

    Attributes
    ----------
    alive : which dimensions can be cut in a node; one that cannot cannot be cut in any part of it either
    which, loss : the dimensions that are counted, and what each dimension loses in the node
    counted : the records and the label mass of each value of each dimension in a node
    value : the values of a dimension in a node, ascending
    unit : the unit that each belongs to: itself, or a child of the lowest node of the hierarchy that covers all
    unit_of : the same, for each value of each dimension
    weight, sums : the records and the label mass of each unit
    rank : the units in the order in which they are cut; `key` is what they are sorted by
    bucket, rows : the rows in the order of their units
    total, below : the label mass of the node, and of what lies left of a cut
    whole, left, right : how often each sensitive value occurs in the node, and on both sides of a cut
    """

    alive: NDArray[np.bool_]
    which: Ints
    loss: Floats
    counted: Floats
    value: Ints
    unit: Ints
    unit_of: NDArray[np.int32]
    weight: Ints
    sums: Floats
    rank: Ints
    other: Ints
    key: Floats
    right_side: NDArray[np.bool_]
    bucket: Ints
    rows: Ints
    total: Floats
    below: Floats
    whole: Ints
    left: Ints
    right: Ints
    scratch: Ints


class _Part(NamedTuple):
    """A node: its rows are a range of an order, and have so many records."""

    order: Ints
    low: int
    high: int
    size: int


class _Cut(NamedTuple):
    """A cut of a node: what it gains, its dimension, the class whose share orders the units, the last on the left.

    The dimension is -1 if there is none. If the class is -1, units have their own order.
    """

    gained: float
    by: int
    by_class: int
    last: int


@kernel(error_model="numpy")
def grow(
    cells: NDArray[np.int32],
    amounts: Floats,
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
    cells : a row per tuple, a column per dimension: its position on the line, behind all lines before it
    amounts : of each tuple its records and, a column per class, how much of the label they have
    start, cell, count : how often the tuple at i has each sensitive value: ``start[i]`` to ``start[i + 1]``
    dimensions : of each its length, its size, whether it is ordered, where its places begin, the height of its
        hierarchy and where its nodes begin; see `partition.Space`
    place, node : see `partition.Space`
    ahead : a node of at most so many records compares the best cuts of all dimensions by what can be gained below them
    order : all tuples; on return those of a leaf stand together

    Returns
    -------
    Of each node its dimension (-1 for a leaf), children, records, first and last tuple in `order`, and where its
    values begin and end, or of an ordered one its last value on the left and the first on the right; its threshold; the
    values of all cuts of categories, twice the position and 1 if it goes to the right; and the leaf of each tuple.
    """
    number, tuples = len(dimensions), len(cells)
    all_records: Any = np.int64(amounts[:, 0].sum())
    data = _Data(cells, amounts, start, cell, count, dimensions, place, node, limits, entropy)
    room = _room(data)
    value, unit, right_side = room.value, room.unit, room.right_side
    trial = np.empty(tuples if ahead > 0 else 0, np.int64)
    waiting = np.empty((tuples + 1 if ahead > 0 else 0, 3), np.int64)
    waiting_alive = np.empty((len(waiting), number), np.bool_)
    firsts = [_Cut(0.0, -1, -1, -1) for _ in range(number)]
    most_nodes = 2 * min(tuples, max(all_records // max(limits.k, 1), 1)) + 1
    made = np.zeros((most_nodes, 8), np.int64)
    threshold, pool, alive = np.zeros(most_nodes), np.empty(1024, np.int64), np.ones((most_nodes, number), np.bool_)
    leaf, nodes, pooled = np.empty(tuples, np.int64), 1, 0
    made[0, 3], made[0, 4], made[0, 5] = all_records, 0, tuples
    stack, top = np.empty(most_nodes, np.int64), 0
    stack[0] = 0
    while top >= 0:
        at = stack[top]
        top -= 1
        size, low, high = made[at, 3], made[at, 4], made[at, 5]
        cut, part = _Cut(0.0, -1, -1, -1), _Part(order, low, high, size)
        _copy(alive[at], room.alive)
        if size >= 3 * limits.k and size <= ahead and high - low > 1:
            _count(data, part, np.int64(-1), room)
            for by in range(number):
                firsts[by] = _best(data, part, by, 0.0, room)
            _copy(room.alive, alive[at])
            for by in range(number):
                if firsts[by].by >= 0:
                    _copy(alive[at], room.alive)
                    for index in range(low, high):  # to copy slices takes numba seconds more to compile
                        trial[index] = order[index]
                    reached = firsts[by].gained + _reach(
                        data, _Part(trial, low, high, size), firsts[by], room, waiting, waiting_alive
                    )
                    if reached > cut.gained:
                        cut = _Cut(reached, by, firsts[by].by_class, firsts[by].last)
            if cut.by >= 0:  # what was counted are nodes of the trials
                _count(data, part, cut.by, room)
        else:
            cut = _greedy(data, part, room)
            _copy(room.alive, alive[at])
        if refine and cut.by < 0 and size >= 2 * limits.k and high - low > 1:
            cut = _halve(data, part, room)
        by = made[at, 0] = cut.by
        if by < 0:
            for index in range(low, high):
                leaf[order[index]] = at
            continue
        found, middle, records_below = _divide(data, part, cut, room)
        if dimensions[by, 2]:
            last = 0  # the last value on the left
            while last + 1 < found and not right_side[unit[last + 1]]:
                last += 1
            first = dimensions[by, 3]
            threshold[at] = (place[first + value[last]] + min(place[first + value[last + 1]], MISSING)) / 2
            made[at, 6], made[at, 7] = value[last], value[last + 1]
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
            _copy(alive[at], alive[child])
            made[child, 3] = size - records_below if side else records_below
            made[child, 4] = middle if side else low
            made[child, 5] = high if side else middle
            top += 1
            stack[top] = child
        nodes += 2
    return made[:nodes], threshold[:nodes], pool[:pooled], leaf


@kernel(error_model="numpy")
def _copy(alive: NDArray[np.bool_], to: NDArray[np.bool_]) -> None:
    for by in range(len(to)):
        to[by] = alive[by]


@kernel(error_model="numpy")
def _room(data: _Data) -> _Room:
    tuples, width = data.amounts.shape
    held = data.limits.offset[-1] if len(data.limits.model) > 0 else 0
    longest = max(data.dimensions[:, 0].max(), 1)
    most = max(tuples, longest)
    return _Room(
        np.ones(len(data.dimensions), np.bool_),
        np.empty(len(data.dimensions), np.int64),
        np.zeros(len(data.dimensions)),
        np.empty((len(data.place), width)),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(len(data.place), np.int32),
        np.empty(longest, np.int64),
        np.empty((longest, width - 1)),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most),
        np.zeros(longest, np.bool_),
        np.empty(longest + 1, np.int64),
        np.empty(tuples, np.int64),
        np.empty(width - 1),
        np.empty(width - 1),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
        np.zeros(held, np.int64),
    )


@kernel(error_model="numpy")
def _greedy(data: _Data, part: _Part, room: _Room) -> _Cut:
    """Return the best cut of all dimensions."""
    best, number = _Cut(0.0, -1, -1, -1), len(data.dimensions)
    if part.size >= 2 * data.limits.k and part.high - part.low > 1:
        _count(data, part, np.int64(-1), room)
        for by in range(number):
            cut = _best(data, part, by, best.gained, room)
            if cut.by >= 0:
                best = cut
    return best


@kernel(error_model="numpy")
def _reach(data: _Data, part: _Part, cut: _Cut, room: _Room, waiting: Ints, alive: NDArray[np.bool_]) -> float:
    """Return what is gained below a cut if all further ones are the best at their place; the rows are moved."""
    reached, top = 0.0, -1
    _count(data, part, cut.by, room)
    while True:
        if cut.by >= 0:
            _, middle, below = _divide(data, part, cut, room)
            waiting[top + 1, 0], waiting[top + 1, 1], waiting[top + 1, 2] = part.low, middle, below
            waiting[top + 2, 0], waiting[top + 2, 1], waiting[top + 2, 2] = middle, part.high, part.size - below
            _copy(room.alive, alive[top + 1])
            _copy(room.alive, alive[top + 2])
            top += 2
        if top < 0:
            return reached
        part = _Part(part.order, waiting[top, 0], waiting[top, 1], waiting[top, 2])
        _copy(alive[top], room.alive)
        top -= 1
        cut = _greedy(data, part, room)
        reached += cut.gained


@kernel(error_model="numpy")
def _best(data: _Data, part: _Part, by: int, beyond: float, room: _Room) -> _Cut:
    """Return the best cut of one dimension, which was counted: both sides keep their limits, and it gains more."""
    size = part.size
    least = max(beyond, LEAST * size)
    cut = _Cut(least, -1, -1, -1)
    room.loss[by] = 0.0
    if room.alive[by]:
        found, units = _list(data, part, by, room)
        if _is_alive(found, units, size, data.limits.k, data.dimensions[by, 2], data.dimensions[by, 4], room):
            for check in range(2):  # a number, not a constant: of each constant numba compiles a version
                if check == 0 or (cut.by >= 0 and len(room.whole) > 0):  # only then sensitive values are worth counting
                    cut = _scan(data, part, by, units, least, check, room)
        else:
            room.alive[by] = False
            room.loss[by] = 0.0
    return cut


@kernel(error_model="numpy")
def _is_alive(found: int, units: int, size: Any, k: int, ordered: int, height: int, room: _Room) -> Any:
    """Return whether a cut of the listed units leaves k records on both sides, or one of finer units might."""
    below, most = 0, 0
    for index in range(units):
        most = max(most, room.weight[index])
        below += room.weight[index]
        if ordered and below >= k:
            return size - below >= k
    return found > 1 if height > 0 else size - most >= k


@kernel(error_model="numpy")
def _scan(data: _Data, part: _Part, by: int, units: int, least: float, check: int, room: _Room) -> _Cut:
    """Return the best cut of the listed units, in all orders in which they are tried; check all limits, or only k."""
    order, low, high, size = part
    weight, sums, rank, bucket, rows = room.weight, room.sums, room.rank, room.bucket, room.rows
    total, below, whole, left, right = room.total, room.below, room.whole, room.left, room.right
    limits, entropy, ordered = data.limits, data.entropy, data.dimensions[by, 2]
    classes, k = len(total), limits.k
    for one in range(classes):
        total[one] = 0.0
        for index in range(units):
            total[one] += sums[index, one]
    before = _score(total, size, entropy)
    if check:
        whole[:] = 0
        for index in range(low, high):
            _add(data, order[index], whole)
    best, best_class, best_cut = least, -1, -1
    for by_class in range(1 if ordered or classes < 3 else classes):
        _rank(units, by_class, ordered, room)
        if check:
            _bucket(data, part, by, units, room)
            left[:] = 0
        below[:] = 0.0
        records_below = 0
        for cut in range(units - 1):
            which = rank[cut]
            records_below += weight[which]
            for one in range(classes):
                below[one] += sums[which, one]
            if check:
                for index in range(bucket[cut], bucket[cut + 1]):
                    _add(data, rows[index], left)
            if records_below < k or size - records_below < k:
                continue
            gained = _gain(below, total, records_below, size, entropy) - before
            if gained > best:
                if check:
                    for one in range(len(whole)):
                        right[one] = whole[one] - left[one]
                    if not _both_keep(room, records_below, size, limits):
                        continue
                best, best_class, best_cut = gained, by_class, cut
    return _Cut(best, by if best_cut >= 0 else -1, best_class, best_cut)


@kernel(error_model="numpy")
def _add(data: _Data, row: int, histogram: Ints) -> None:
    """Count the sensitive values of a tuple."""
    for entry in range(data.start[row], data.start[row + 1]):
        histogram[data.cell[entry]] += data.times[entry]


@kernel(error_model="numpy")
def _both_keep(room: _Room, records: Any, size: Any, limits: Limits) -> bool:
    if not keeps(room.left, records, limits, room.scratch):
        return False
    return bool(keeps(room.right, size - records, limits, room.scratch))


@kernel(error_model="numpy")
def _halve(data: _Data, part: _Part, room: _Room) -> _Cut:
    """Return the cut at the median of the dimension that loses most of those that can be cut so, as Mondrian does.

    All dimensions of the node were counted and listed just before.
    """
    order, low, high, size = part
    dimensions, value, weight, left, right = data.dimensions, room.value, room.weight, room.left, room.right
    loss = room.loss
    for _ in range(len(dimensions)):
        by = int(np.argmax(loss))
        if loss[by] <= 0.0:
            break
        found, units = _list(data, part, by, room)
        loss[by] = 0.0  # it is not tried again
        misses = dimensions[by, 2] and data.place[dimensions[by, 3] + value[found - 1]] > MISSING
        for separate in range(1 if misses else 0, -1, -1):  # a missing value is separated first
            last = median(units, weight, size, data.limits.k, separate == 1)
            if last < 0:
                continue
            if len(left) > 0:
                left[:] = 0
                right[:] = 0
                for index in range(low, high):
                    row = order[index]
                    _add(data, row, left if room.unit_of[data.cells[row, by]] <= last else right)
                if not _both_keep(room, weight[: last + 1].sum(), size, data.limits):
                    continue
            return _Cut(0.0, by, -1, last)
    return _Cut(0.0, -1, -1, -1)


@kernel(error_model="numpy")
def _divide(data: _Data, part: _Part, cut: _Cut, room: _Room) -> tuple[int, int, Any]:
    """Move the rows left of a cut of a dimension, which was counted, before the others, both in their order.

    Returns
    -------
    The number of values, which are listed in the room with the side of their unit; where the others begin, and the
    records on the left.
    """
    order, low, high, _ = part
    cells, unit_of, weight = data.cells, room.unit_of, room.weight
    rank, right_side, spare = room.rank, room.right_side, room.rows
    by = cut.by
    found, units = _list(data, part, by, room)
    _rank(units, cut.by_class, np.int64(cut.by_class < 0 or data.dimensions[by, 2] > 0), room)
    records_below = 0
    for index in range(units):
        right_side[rank[index]] = index > cut.last
        records_below += weight[rank[index]] if index <= cut.last else 0
    middle, after = low, 0
    for index in range(low, high):
        row = order[index]
        side = int(right_side[unit_of[cells[row, by]]])
        order[middle] = spare[after] = row  # to both sides: a branch would be mispredicted
        middle += 1 - side
        after += side
    for index in range(after):
        order[middle + index] = spare[index]
    return found, middle, records_below


@kernel(error_model="numpy")
def _score(sums: Floats, size: Any, entropy: bool) -> float:
    """Return the purity of a group from its sum of each class: the larger, the purer."""
    score = 0.0
    for one in range(len(sums)):
        if not entropy:
            score += sums[one] * sums[one] / size
        elif sums[one] > 0.0:
            score += sums[one] * math.log(sums[one] / size)
    return score


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
def _count(data: _Data, part: _Part, only: Any, room: _Room) -> None:
    """Count the records and the label mass of each value of one dimension, or of all alive ones (-1), in one go."""
    order, low, high, _ = part
    cells, amounts, counted, which = data.cells, data.amounts, room.counted, room.which
    number, width = 0, amounts.shape[1]
    for by in range(len(data.dimensions)):
        wanted = room.alive[by] if only < 0 else by == only
        if wanted and _is_short(data.dimensions[by, 0], high - low):
            which[number] = by
            number += 1
            first = data.dimensions[by, 3]
            counted[first : first + data.dimensions[by, 0]] = 0.0
    for index in range(low, high):
        row = order[index]
        if width == 2:  # two classes, or a number
            records, mass = amounts[row, 0], amounts[row, 1]
            for at in range(number):
                cell = cells[row, which[at]]
                counted[cell, 0] += records
                counted[cell, 1] += mass
        else:
            for at in range(number):
                cell = cells[row, which[at]]
                for one in range(width):
                    counted[cell, one] += amounts[row, one]


@kernel(error_model="numpy")
def _is_short(length: int, rows: int) -> bool:
    """Say whether the values of a line are counted; else, few rows on a long line, they are sorted."""
    return length <= 4 * rows + 256


@kernel(error_model="numpy")
def _list(data: _Data, part: _Part, by: int, room: _Room) -> tuple[int, int]:
    """List the values of a dimension in a node, and the records and label mass of each unit that a cut keeps together.

    A unit is a value, or a child of the lowest node of the hierarchy that covers all values.

    Returns
    -------
    The number of values and the number of units; what the dimension loses, as NCP counts it, is in the room.
    """
    order, low, high, _ = part
    cells, amounts, dimensions, place, node = data.cells, data.amounts, data.dimensions, data.place, data.node
    counted, value, unit, unit_of = room.counted, room.value, room.unit, room.unit_of
    weight, sums, rank, key = room.weight, room.sums, room.rank, room.key
    length, first, level = dimensions[by, 0], dimensions[by, 3], dimensions[by, 4]
    classes, rows = sums.shape[1], high - low
    found = 0
    if _is_short(length, rows):
        for cell in range(first, first + length):
            if counted[cell, 0] > 0.0:
                value[found], weight[found] = cell - first, np.int64(counted[cell, 0])
                for one in range(classes):
                    sums[found, one] = counted[cell, 1 + one]
                found += 1
    else:
        for index in range(rows):
            key[index] = cells[order[low + index], by]
        _sort(rows, room)
        before = -1.0
        for index in range(rows):
            row = order[low + rank[index]]
            if key[rank[index]] != before:
                before = key[rank[index]]
                value[found], weight[found] = np.int64(before) - first, 0
                for one in range(classes):
                    sums[found, one] = 0.0
                found += 1
            weight[found - 1] += np.int64(amounts[row, 0])
            for one in range(classes):
                sums[found - 1, one] += amounts[row, 1 + one]
    units = found
    for index in range(found):
        unit[index] = index
    if level > 0 and found > 1:
        nodes = dimensions[by, 5] + (level - 1) * length
        while level > 1 and node[nodes + value[0]] == node[nodes + value[found - 1]]:
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
    for index in range(found):
        unit_of[first + value[index]] = unit[index]
    if dimensions[by, 2]:
        room.loss[by] = min(place[first + value[found - 1]] - place[first + value[0]], 1.0)
    else:
        room.loss[by] = found / dimensions[by, 1] if found > 1 else 0.0
    return found, units


@kernel(error_model="numpy")
def _rank(units: int, by_class: int, ordered: Any, room: _Room) -> None:
    """Put the units into the order in which they are cut: their own, or that of their share of a class."""
    weight, sums, rank, key = room.weight, room.sums, room.rank, room.key
    if ordered:
        for index in range(units):
            rank[index] = index
        return
    column = sums.shape[1] - 1 if sums.shape[1] < 3 else by_class
    for index in range(units):
        key[index] = sums[index, column] / weight[index]
    _sort(units, room)


@kernel(error_model="numpy")
def _sort(length: int, room: _Room) -> None:
    """Rank the first keys by merging ever longer runs; equal ones stay in their order."""
    rank, other, key = room.rank, room.other, room.key
    for index in range(length):
        rank[index] = index
    width = 1
    while width < length:
        for low in range(0, length, 2 * width):
            left, middle, end = low, min(low + width, length), min(low + 2 * width, length)
            right = middle
            for at in range(low, end):
                if left < middle and (right >= end or key[rank[left]] <= key[rank[right]]):
                    other[at] = rank[left]
                    left += 1
                else:
                    other[at] = rank[right]
                    right += 1
        for at in range(length):
            rank[at] = other[at]
        width *= 2


@kernel(error_model="numpy")
def _bucket(data: _Data, part: _Part, by: int, units: int, room: _Room) -> None:
    """Sort the rows of a node by the rank of their unit; those at rank i are ``bucket[i]`` to ``bucket[i + 1]``."""
    order, low, high, _ = part
    cells, unit_of, rank = data.cells, room.unit_of, room.rank
    bucket, rows, place_of = room.bucket, room.rows, room.other
    for index in range(units):
        place_of[rank[index]] = index
    bucket[: units + 1] = 0
    for index in range(low, high):
        at = place_of[unit_of[cells[order[index], by]]]
        bucket[at] += 1
    total = 0
    for index in range(units + 1):  # where each ends; it is filled backwards
        total += bucket[index]
        bucket[index] = total
    for index in range(high - 1, low - 1, -1):
        at = place_of[unit_of[cells[order[index], by]]]
        bucket[at] -= 1
        rows[bucket[at]] = order[index]


@kernel(error_model="numpy")
def median(units: int, weight: Ints, size: int, k: int, missing: bool) -> int:
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


@kernel(error_model="numpy")
def find_leaves(
    positions: Ints, places: Floats, ordered: NDArray[np.bool_], made: Ints, threshold: Floats, pool: Ints
) -> Ints:
    """Return the leaf of each tuple.

    Parameters
    ----------
    positions : a row per dimension: the position on the line, -1 for a value that it does not have
    places : the place of each value on the line if that is ordered, or `UNKNOWN`
    ordered : which dimensions are
    made, threshold, pool : the tree that `grow` made
    """
    leaves = np.empty(places.shape[1], np.int64)
    for row in range(places.shape[1]):
        at = 0
        while made[at, 0] >= 0:
            by = made[at, 0]
            position, first, last, side = positions[by, row], made[at, 6], made[at, 7], -1
            if ordered[by]:
                # A value that was cut goes where it went; places, which are rounded, are for those between.
                if position >= 0 and (position <= first or position >= last):
                    side = 1 if position >= last else 0
                elif places[by, row] != UNKNOWN:
                    side = 1 if places[by, row] > threshold[at] else 0
            elif position >= 0:
                while last - first > 1:
                    middle = (first + last) // 2
                    if pool[middle] >> 1 <= position:
                        first = middle
                    else:
                        last = middle
                if pool[first] >> 1 == position:
                    side = pool[first] & 1
            if side < 0:
                side = 1 if made[made[at, 2], 3] > made[made[at, 1], 3] else 0
            at = made[at, 1 + side]
        leaves[row] = at
    return leaves

"""Compiled code of the top-down partitions: Mondrian and the R+-tree.

Numba compiles this on first use and keeps the result on disk; import it inside the functions that run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sfumato.anonymizers.kernels import keeps, ones
from sfumato.anonymizers.limits import Limits
from sfumato.anonymizers.partition import Space
from sfumato.measures.counts import Floats, Ints

__all__ = ["split"]


@njit(cache=True, nogil=True, error_model="numpy")
def split(
    words: Ints,
    codes: NDArray[Any],
    space: Space,
    limits: Limits,
    relaxed: bool,
    look_ahead: bool,
    waiting: Ints,
    bounds: Floats,
    smallest: int,
    begins: NDArray[np.bool_],
) -> tuple[Ints, Floats]:
    """Cut parts until no cut leaves two parts that keep their limits; mark where each part begins.

    Rows are moved, so that every part is a range of them. A part is cut on the dimension whose
    loss is largest (or, looking ahead, on which the cut leaves least), else on the next.

    Parameters
    ----------
    words : of each row, in columns: the packed positions, its number, its records, its sensitive values
    codes : the positions, in the same memory: of each packed word, row by row, those that it holds
    waiting, bounds : the first row, the end and the records of each part to be cut, and the most that each
        dimension can lose in it
    smallest : parts of fewer rows are left as they are, as long as there is room to list them
    begins : is set to where each part begins

    Returns
    -------
    The parts that were left, with their bounds.
    """
    dimensions, sensitive, packed = len(space.length), len(limits.model) > 0, len(codes)
    lanes, rows = codes.shape[2], 0
    for index in range(len(waiting)):
        rows = max(rows, waiting[index, 1] - waiting[index, 0])
    spare = np.empty(rows, np.int64)
    longest = 0
    for by in range(dimensions):
        longest = max(longest, space.length[by])
    value, weight = np.empty(min(longest, rows) + 1, np.int64), np.empty(min(longest, rows) + 1, np.int64)
    tally = np.zeros(max(rows, min(longest, 4 * rows + 256)), np.int64)
    seen, clock = np.zeros(len(space.place), np.int64), np.zeros(1, np.int64)
    held = limits.offset[-1] if sensitive else 0
    sides, scratch = np.zeros((2, held), np.int64), np.zeros(held, np.int64)
    loss, least, most = np.empty(dimensions), np.empty(dimensions, np.int64), np.empty(dimensions, np.int64)
    known = np.empty(dimensions, np.bool_)
    stack, limit = np.empty((len(waiting) + 64, 3), np.int64), np.empty((len(waiting) + 64, dimensions))
    for index in range(len(waiting)):  # loops, not slices: they compile in a fraction of the time
        for end in range(3):
            stack[index, end] = waiting[index, end]
        for by in range(dimensions):
            limit[index, by] = bounds[index, by]
    histogram = np.zeros((len(waiting) + 64, held), np.int64)
    for index in range(len(waiting) if sensitive else 0):
        low, high, size = waiting[index, 0], waiting[index, 1], waiting[index, 2]
        _count(words[:, low:high], packed, codes[0, low:high, 0], space.length[0], size, limits, histogram[index])
    later, later_bounds, put_off = np.empty((64, 3), np.int64), np.empty((64, dimensions)), 0
    top = len(waiting) - 1
    while top >= 0:
        low, high, size = stack[top, 0], stack[top, 1], stack[top, 2]
        bound, whole = limit[top], histogram[top]
        top -= 1
        if high - low < smallest and put_off < len(later):
            later[put_off, 0], later[put_off, 1], later[put_off, 2] = low, high, size
            for by in range(dimensions):
                later_bounds[put_off, by] = bound[by]
            put_off += 1
            continue
        part, records = words[:, low:high], words[packed + 1, low:high]
        middle, below = 0, 0
        divisible = size >= 2 * limits.k and high - low > 1
        for by in range(dimensions):
            loss[by], known[by] = bound[by], False
        if divisible and look_ahead:
            for by in range(dimensions):
                if bound[by] > 0.0:
                    column = codes[by // lanes, low:high, by % lanes]
                    bound[by], least[by], most[by] = _loss(column, by, space, seen, clock)
            for by in range(dimensions):
                known[by], loss[by] = True, 0.0
                if bound[by] > 0.0:
                    column = codes[by // lanes, low:high, by % lanes]
                    found = _tally(column, records, least[by], most[by], value, weight, tally)
                    for attempt in range(2):
                        cut, ties, below = _cut(value, weight, found, size, by, space, False, attempt)
                        if below >= limits.k and size - below >= limits.k:
                            remains = _remaining(codes[:, low:high], by, cut, below, size, space, bound, seen, clock)
                            loss[by] = dimensions + 1 - remains
                            break
        while divisible:
            by = 0
            for other in range(1, dimensions):
                if loss[other] > loss[by]:
                    by = other
            if loss[by] <= 0.0:
                break
            column = codes[by // lanes, low:high, by % lanes]
            if not known[by]:  # the loss is at most that of the part around it, and often need not be known
                loss[by], least[by], most[by] = _loss(column, by, space, seen, clock)
                bound[by], known[by] = loss[by], True
                continue
            loss[by] = 0.0
            found = _tally(column, records, least[by], most[by], value, weight, tally)
            for attempt in range(3):
                cut, ties, below = _cut(value, weight, found, size, by, space, relaxed, attempt)
                if below < limits.k or size - below < limits.k:
                    if attempt == 1 and space.height[by] == 0:
                        bound[by] = 0.0  # nor can any cut of a part of this part leave k records on both sides
                        break
                    continue
                if sensitive:
                    _count(part, packed, column, cut, ties, limits, sides[0])
                    for cell in range(held):
                        sides[1, cell] = whole[cell] - sides[0, cell]
                    kept = True
                    for side in range(2):
                        kept = kept and keeps(sides[side], size - below if side else below, limits, scratch)
                    if not kept:
                        continue
                middle = _move(part, by // lanes, column, spare, cut, ties)
                break
            divisible = middle == 0
        if middle == 0:
            begins[low] = True
            continue
        # The part with more rows waits: then never more than log2(rows) wait.
        top += 2
        for by in range(dimensions):
            limit[top, by] = bound[by]
        left_at = top if 2 * middle < high - low else top - 1
        right_at = 2 * top - 1 - left_at
        for cell in range(held):
            histogram[left_at, cell], histogram[right_at, cell] = sides[0, cell], sides[1, cell]
        stack[left_at, 0], stack[left_at, 1], stack[left_at, 2] = low, low + middle, below
        stack[right_at, 0], stack[right_at, 1], stack[right_at, 2] = low + middle, high, size - below
    return later[:put_off], later_bounds[:put_off]


@njit(cache=True, nogil=True, error_model="numpy")
def _loss(column: NDArray[Any], by: int, space: Space, seen: Ints, clock: Ints) -> tuple[float, Any, Any]:
    """Return what a column loses in a part as NCP counts it, and its first and last position there.

    The loss is the width of the range of an ordered column, the share of its values for another.
    """
    distinct, least, most = 0, np.int64(column[0]), np.int64(column[0])
    if space.length[by] <= 64:
        mask = np.uint64(0)
        for row in range(len(column)):
            mask |= np.uint64(1) << np.uint64(column[row])
        distinct = ones(mask)
        least = ones((mask & (~mask + np.uint64(1))) - np.uint64(1))
        for shift in (1, 2, 4, 8, 16, 32):
            mask |= mask >> np.uint64(shift)
        most = ones(mask) - 1
    else:
        low = high = column[0]
        for row in range(len(column)):
            low, high = min(low, column[row]), max(high, column[row])
        least, most = np.int64(low), np.int64(high)
        if not space.ordered[by]:
            clock[0] += 1
            at = space.at[by]
            for row in range(len(column)):
                if seen[at + column[row]] != clock[0]:
                    seen[at + column[row]] = clock[0]
                    distinct += 1
    if space.ordered[by]:
        return min(space.place[space.at[by] + most] - space.place[space.at[by] + least], 1.0), least, most
    return (distinct / space.size[by] if distinct > 1 else 0.0), least, most


@njit(cache=True, nogil=True, error_model="numpy")
def _tally(column: NDArray[Any], records: Ints, least: int, most: int, value: Ints, weight: Ints, tally: Ints) -> int:
    """List the values of a column in a part in their order, with their records; return how many they are."""
    found, span, rows = 0, most - least + 1, len(column)
    if span <= 4 * rows + 256:
        for row in range(rows):
            tally[np.int64(column[row]) - least] += records[row]
        for cell in range(span):
            value[found], weight[found] = least + cell, tally[cell]
            found += tally[cell] > 0
            tally[cell] = 0
        return found
    for row in range(rows):  # few rows on a long line: sort them
        tally[row] = (np.int64(column[row]) << 32) | row
    _sort(tally, rows)
    last = -1
    for row in range(rows):
        code = tally[row] >> 32
        if code != last:
            value[found], weight[found] = code, 0
            found += 1
            last = code
        weight[found - 1] += records[tally[row] & 0xFFFFFFFF]
    for row in range(rows):
        tally[row] = 0
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def _sort(numbers: Ints, length: int) -> None:
    """Sort the beginning of an array by merging ever longer runs; numba's own sort takes seconds to compile."""
    other, width = np.empty(length, np.int64), 1
    while width < length:
        for low in range(0, length, 2 * width):
            left, middle, end = low, min(low + width, length), min(low + 2 * width, length)
            right = middle
            for place in range(low, end):
                if left < middle and (right >= end or numbers[left] <= numbers[right]):
                    other[place] = numbers[left]
                    left += 1
                else:
                    other[place] = numbers[right]
                    right += 1
        for place in range(length):
            numbers[place] = other[place]
        width *= 2


@njit(cache=True, nogil=True, error_model="numpy")
def _cut(
    value: Ints, weight: Ints, found: int, size: Any, by: int, space: Space, relaxed: bool, attempt: int
) -> tuple[Any, Any, Any]:
    """Return the last value on the left, how many rows with it go there, and the records on the left.

    The first attempt separates a missing value from the numbers, the second is the most balanced cut, the third the
    one on the other side of the median value. A hierarchy is cut only between the children of the lowest node that
    covers the part. If there is no such cut, -1 records are on the left.
    """
    if attempt == 0:
        if found == 1 or not space.ordered[by] or space.place[space.at[by] + value[found - 1]] <= 1.0:
            return -1, -1, -1
        return value[found - 2], size, size - weight[found - 1]
    length, level = space.length[by], space.height[by] - 1
    nodes = space.node[space.node_at[by] :]
    if level >= 0:
        while level > 0 and nodes[level * length + value[0]] == nodes[level * length + value[found - 1]]:
            level -= 1
        nodes = nodes[level * length :]
    elif relaxed and attempt == 1:
        index, below = 0, 0
        while below + weight[index] <= size // 2:
            below += weight[index]
            index += 1
        return value[index], size // 2 - below, size // 2
    # The last boundary before the middle, and the first from there on.
    before, before_records, after, after_records = -1, 0, -1, 0
    below = 0
    for index in range(found - 1):
        below += weight[index]
        if level >= 0 and nodes[value[index]] == nodes[value[index + 1]]:
            continue
        if 2 * below < size:
            before, before_records = index, below
        else:
            after, after_records = index, below
            break
    first = after < 0 or (before >= 0 and size - 2 * before_records <= 2 * after_records - size)
    if first == (attempt == 1 or relaxed):
        after, after_records = before, before_records
    if after < 0:
        return -1, -1, -1
    return value[after], size, after_records


@njit(cache=True, nogil=True, error_model="numpy")
def _count(part: Ints, packed: int, column: NDArray[Any], cut: Any, ties: Any, limits: Limits, histogram: Ints) -> None:
    """Count the sensitive values of the rows left of a cut."""
    for cell in range(len(histogram)):
        histogram[cell] = 0
    records = part[packed + 1]
    for attribute in range(len(limits.offset) - 1):
        of_attribute, values = histogram[limits.offset[attribute] :], part[packed + 2 + attribute]
        if ties >= len(column):
            for row in range(len(column)):
                of_attribute[values[row]] += records[row] * (np.int64(column[row]) <= cut)
            continue
        remain = ties
        for row in range(len(column)):
            code = np.int64(column[row])
            remain -= code == cut
            of_attribute[values[row]] += records[row] * ((code < cut) | ((code == cut) & (remain >= 0)))


@njit(cache=True, nogil=True, error_model="numpy")
def _move(part: Ints, holds: int, column: NDArray[Any], spare: Ints, cut: Any, ties: Any) -> int:
    """Move the rows left of a cut before the others, both in their order; return where the others begin."""
    before = 0
    for step in range(len(part)):
        word = part[(holds + 1 + step) % len(part)]  # the one that holds the column is moved last
        before, after, remain = 0, 0, ties
        # Every row is written to both sides: no branch that is guessed wrong half of the time.
        if ties >= len(column):
            for row in range(len(column)):
                left = np.int64(column[row]) <= cut
                word[before] = spare[after] = word[row]
                before += left
                after += not left
        else:
            for row in range(len(column)):
                code = np.int64(column[row])
                remain -= code == cut
                left = (code < cut) | ((code == cut) & (remain >= 0))
                word[before] = spare[after] = word[row]
                before += left
                after += not left
        for row in range(after):
            word[before + row] = spare[row]
    return before


@njit(cache=True, nogil=True, error_model="numpy")
def _loss_beyond(
    column: NDArray[Any], by: int, space: Space, decides: NDArray[Any], cut: Any, above: bool, seen: Ints, clock: Ints
) -> Any:
    """Return the loss of a column in the rows on one side of a cut; see `_loss`."""
    distinct, least, most = 0, space.length[by], np.int64(-1)
    if space.length[by] <= 64 and not space.ordered[by]:
        mask = np.uint64(0)
        for row in range(len(column)):
            mask |= np.uint64((np.int64(decides[row]) > cut) == above) << np.uint64(column[row])
        distinct = ones(mask)
    else:
        clock[0] += 1
        for row in range(len(column)):
            if (np.int64(decides[row]) > cut) == above:
                code = np.int64(column[row])
                least, most = min(least, code), max(most, code)
                if seen[space.at[by] + code] != clock[0]:
                    seen[space.at[by] + code] = clock[0]
                    distinct += 1
    if space.ordered[by]:
        return min(space.place[space.at[by] + most] - space.place[space.at[by] + least], 1.0)
    return distinct / space.size[by] if distinct > 1 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _remaining(
    codes: NDArray[Any], by: int, cut: Any, below: Any, size: Any, space: Space, bound: Floats, seen: Ints, clock: Ints
) -> Any:
    """Return the mean loss of the records, over all columns, that a cut would leave."""
    remains, lanes = 0.0, codes.shape[2]
    decides = codes[by // lanes, :, by % lanes]
    for other in range(len(bound)):
        if bound[other] > 0.0:
            column = codes[other // lanes, :, other % lanes]
            remains += below * _loss_beyond(column, other, space, decides, cut, False, seen, clock)
            remains += (size - below) * _loss_beyond(column, other, space, decides, cut, True, seen, clock)
    return remains / size

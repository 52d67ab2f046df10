"""Kernels of top-down partitioning: Mondrian and the R+-tree.

Rows are indexed by unsigned numbers and never by slices: otherwise numba checks for negative indices at every row, and
counts references.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps, ones
from sfumato.anonymizers.limits import Limits
from sfumato.anonymizers.mondrian.partition import RECORDS
from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Floats, Ints

__all__ = ["boundary", "dimension", "split"]


class _Dimension(NamedTuple):
    """The lane of a quasi-identifier in the words of a row, and its line; see `partition.Space`."""

    word: int
    shift: int
    mask: int
    length: int
    size: int
    ordered: int
    at: int
    height: int
    node_at: int


@kernel(error_model="numpy", forceinline=True)
def dimension(dimensions: Ints, by: int) -> _Dimension:
    """Return one of the quasi-identifiers; see `partition.dimensions_of`."""
    one = dimensions
    return _Dimension(
        one[by, 0], one[by, 1], one[by, 2], one[by, 3], one[by, 4], one[by, 5], one[by, 6], one[by, 7], one[by, 8]
    )


@kernel(error_model="numpy")
def split(
    words: Ints,
    dimensions: Ints,
    place: Floats,
    node: NDArray[np.int32],
    lanes: Ints,
    limits: Limits,
    relaxed: bool,
    look_ahead: bool,
    waiting: Ints,
    bounds: Floats,
    smallest: int,
    begins: NDArray[np.bool_],
) -> tuple[Ints, Floats]:
    """Cut parts until no cut leaves two parts that keep their limits; mark where each part begins.

    Rows are moved so that every part is a range of them. A part is cut on the dimension with the largest loss (or,
    looking ahead, on the one whose cut leaves the least), else on the next.

    Parameters
    ----------
    words : a column per row: the packed positions and sensitive values, then its number and records
    dimensions, place, node : the quasi-identifiers; see `partition.dimensions_of` and `partition.Space`
    lanes : the word, the shift and the mask of each sensitive attribute
    waiting, bounds : the first row, the end and the records of each part to cut, and the largest possible loss of each
        dimension in it
    smallest : parts of fewer rows are left uncut, as long as there is room to list them
    begins : set to true where a part begins

    Returns
    -------
    The parts left uncut, with their bounds.
    """
    number, sensitive, offset, k = len(dimensions), len(limits.model) > 0, limits.offset, limits.k
    rows, longest = 0, 0
    for index in range(len(waiting)):
        rows = max(rows, waiting[index, 1] - waiting[index, 0])
    for by in range(number):
        longest = max(longest, dimensions[by, 3])
    spare = np.empty(rows, np.int64)
    value, weight = np.empty(min(longest, rows) + 1, np.int64), np.empty(min(longest, rows) + 1, np.int64)
    tally = np.zeros(max(rows, min(longest, 4 * rows + 256)), np.int64)
    seen = np.zeros(len(place) + 1, np.int64)
    held = offset[-1] if sensitive else 0
    left, right, scratch = np.zeros(held, np.int64), np.zeros(held, np.int64), np.zeros(held, np.int64)
    loss, least, most = np.empty(number), np.empty(number, np.int64), np.empty(number, np.int64)
    known = np.empty(number, np.bool_)
    stack, bound = np.empty((len(waiting) + 64, 3), np.int64), np.empty((len(waiting) + 64, number))
    for index in range(len(waiting)):  # loops, not slices: they compile in a fraction of the time
        for end in range(3):
            stack[index, end] = waiting[index, end]
        for by in range(number):
            bound[index, by] = bounds[index, by]
    histogram = np.zeros((len(waiting) + 64, held), np.int64)
    for index in range(len(waiting) if sensitive else 0):
        low, high, size = waiting[index, 0], waiting[index, 1], waiting[index, 2]
        _count(words, low, high, dimension(dimensions, 0), dimensions[0, 3], size, lanes, offset, left)
        for cell in range(held):
            histogram[index, cell] = left[cell]
    later, later_bounds, put_off = np.empty((64, 3), np.int64), np.empty((64, number)), 0
    top = len(waiting) - 1
    while top >= 0:
        low, high, size = stack[top, 0], stack[top, 1], stack[top, 2]
        at, top = top, top - 1
        if high - low < smallest and put_off < len(later):
            later[put_off, 0], later[put_off, 1], later[put_off, 2] = low, high, size
            for by in range(number):
                later_bounds[put_off, by] = bound[at, by]
            put_off += 1
            continue
        middle, below = low, 0
        divisible = size >= 2 * k and high - low > 1
        for by in range(number):
            loss[by], known[by] = bound[at, by], False
        if divisible and look_ahead:
            for by in range(number):
                if bound[at, by] > 0.0:
                    one = dimension(dimensions, by)
                    bound[at, by], least[by], most[by] = _loss(words, low, high, one, place, seen)
            for by in range(number):
                known[by], loss[by] = True, 0.0
                if bound[at, by] > 0.0:
                    one = dimension(dimensions, by)
                    found = _tally(words, low, high, one, least[by], most[by], value, weight, tally)
                    for attempt in range(2):
                        cut, ties, below = boundary(value, weight, found, size, one, place, node, False, attempt)
                        if below >= k and size - below >= k:
                            remains = 0.0
                            for other in range(number):
                                if bound[at, other] > 0.0:
                                    remains += _remaining(
                                        words,
                                        low,
                                        high,
                                        dimension(dimensions, other),
                                        one,
                                        cut,
                                        below,
                                        size,
                                        place,
                                        seen,
                                    )
                            loss[by] = number + 1 - remains / size
                            break
        while divisible:
            by = 0
            for other in range(1, number):
                if loss[other] > loss[by]:
                    by = other
            if loss[by] <= 0.0:
                break
            one = dimension(dimensions, by)
            if not known[by]:  # at most the loss of the enclosing part, and often not needed
                loss[by], least[by], most[by] = _loss(words, low, high, one, place, seen)
                bound[at, by], known[by] = loss[by], True
                continue
            loss[by] = 0.0
            found = _tally(words, low, high, one, least[by], most[by], value, weight, tally)
            for attempt in range(3):
                cut, ties, below = boundary(value, weight, found, size, one, place, node, relaxed, attempt)
                if below < k or size - below < k:
                    if attempt == 1 and one.height == 0:
                        bound[at, by] = 0.0  # no cut of a smaller part can leave k records on both sides either
                        break
                    continue
                if sensitive:
                    _count(words, low, high, one, cut, ties, lanes, offset, left)
                    for cell in range(held):
                        right[cell] = histogram[at, cell] - left[cell]
                    if not (keeps(left, below, limits, scratch) and keeps(right, size - below, limits, scratch)):
                        continue
                middle = _move(words, low, high, one, cut, ties, spare)
                break
            divisible = middle == low
        if middle == low:
            begins[low] = True
            continue
        # The part with more rows waits, so at most log2(rows) parts wait.
        top += 2
        for by in range(number):
            bound[top, by] = bound[at, by]
        left_at = top if 2 * (middle - low) < high - low else top - 1
        right_at = 2 * top - 1 - left_at
        for cell in range(held):
            histogram[left_at, cell], histogram[right_at, cell] = left[cell], right[cell]
        stack[left_at, 0], stack[left_at, 1], stack[left_at, 2] = low, middle, below
        stack[right_at, 0], stack[right_at, 1], stack[right_at, 2] = middle, high, size - below
    return later[:put_off], later_bounds[:put_off]


@kernel(error_model="numpy", forceinline=True)
def _loss(words: Ints, low: int, high: int, one: _Dimension, place: Floats, seen: Ints) -> tuple[float, Any, Any]:
    """Return the NCP of a dimension in a part, and its first and last position there.

    It is the width of the range of an ordered dimension, or the share of the values of another.
    """
    word, shift, mask = one.word, one.shift, one.mask
    distinct, least = 0, (words[word, low] >> shift) & mask
    most = least
    if one.length <= 64:
        found = np.int64(0)
        for row in range(np.uint64(low), np.uint64(high)):
            found |= np.int64(1) << ((words[word, row] >> shift) & mask)
        bits = np.uint64(found)
        distinct = ones(bits)
        least = ones((bits & (~bits + np.uint64(1))) - np.uint64(1))
        for step in (1, 2, 4, 8, 16, 32):
            bits |= bits >> np.uint64(step)
        most = ones(bits) - 1
    elif one.ordered:
        for row in range(np.uint64(low), np.uint64(high)):
            code = (words[word, row] >> shift) & mask
            least, most = min(least, code), max(most, code)
    else:
        seen[-1] += 1
        for row in range(np.uint64(low), np.uint64(high)):
            code = (words[word, row] >> shift) & mask
            least, most = min(least, code), max(most, code)
            if seen[one.at + code] != seen[-1]:
                seen[one.at + code] = seen[-1]
                distinct += 1
    if one.ordered:
        return min(place[one.at + most] - place[one.at + least], 1.0), least, most
    return (distinct / one.size if distinct > 1 else 0.0), least, most


@kernel(error_model="numpy", forceinline=True)
def _tally(
    words: Ints, low: int, high: int, one: _Dimension, least: int, most: int, value: Ints, weight: Ints, tally: Ints
) -> int:
    """List the values of a dimension in a part in order, with their records; return their number."""
    word, shift, mask, last = one.word, one.shift, one.mask, len(words) - 1
    found, span, rows = 0, most - least + 1, high - low
    if span <= 4 * rows + 256:
        for row in range(np.uint64(low), np.uint64(high)):
            tally[np.uint64(((words[word, row] >> shift) & mask) - least)] += words[last, row] & RECORDS
        for cell in range(span):
            value[found], weight[found] = least + cell, tally[cell]
            found += tally[cell] > 0
            tally[cell] = 0
        return found
    for row in range(rows):  # few rows on a long line: sort them
        tally[row] = (((words[word, low + row] >> shift) & mask) << 32) | row
    _sort(tally, rows)
    before = -1
    for row in range(rows):
        code = tally[row] >> 32
        if code != before:
            value[found], weight[found] = code, 0
            found += 1
            before = code
        weight[found - 1] += words[last, low + (tally[row] & 0xFFFFFFFF)] & RECORDS
    for row in range(rows):
        tally[row] = 0
    return found


@kernel(error_model="numpy")
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


@kernel(error_model="numpy", forceinline=True)
def boundary(
    value: Ints,
    weight: Ints,
    found: int,
    size: Any,
    one: _Dimension,
    place: Floats,
    node: NDArray[np.int32],
    relaxed: bool,
    attempt: int,
) -> tuple[Any, Any, Any]:
    """Return the last value on the left, the number of rows with it that go there, and the records on the left.

    The first attempt separates missing values from numbers, the second is the most balanced cut, the third the cut on
    the other side of the median value. A hierarchy is cut only between children of the lowest node that covers the
    part. Returns -1 if there is no such cut.
    """
    if attempt == 0:
        if found == 1 or not one.ordered or place[one.at + value[found - 1]] <= 1.0:
            return -1, -1, -1
        return value[found - 2], size, size - weight[found - 1]
    level, nodes = one.height - 1, one.node_at
    if level >= 0:
        nodes += level * one.length
        while level > 0 and node[nodes + value[0]] == node[nodes + value[found - 1]]:
            level, nodes = level - 1, nodes - one.length
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
        if level >= 0 and node[nodes + value[index]] == node[nodes + value[index + 1]]:
            continue
        if 2 * below < size:
            before, before_records = index, below
        else:
            after, after_records = index, below
            break
    earlier = after < 0 or (before >= 0 and size - 2 * before_records <= 2 * after_records - size)
    if earlier == (attempt == 1 or relaxed):
        after, after_records = before, before_records
    if after < 0:
        return -1, -1, -1
    return value[after], size, after_records


@kernel(error_model="numpy", forceinline=True)
def _count(
    words: Ints,
    low: int,
    high: int,
    one: _Dimension,
    cut: Any,
    ties: Any,
    lanes: Ints,
    offset: Ints,
    histogram: Ints,
) -> None:
    """Count the sensitive values of the rows left of a cut."""
    for cell in range(len(histogram)):
        histogram[cell] = 0
    word, shift, mask, last = one.word, one.shift, one.mask, len(words) - 1
    for attribute in range(len(offset) - 1):
        at, holds, from_bit, bits = offset[attribute], lanes[attribute, 0], lanes[attribute, 1], lanes[attribute, 2]
        remain = ties
        if ties >= high - low:
            for row in range(np.uint64(low), np.uint64(high)):
                held = np.uint64(at + ((words[holds, row] >> from_bit) & bits))
                histogram[held] += (words[last, row] & RECORDS) * (((words[word, row] >> shift) & mask) <= cut)
            continue
        for row in range(np.uint64(low), np.uint64(high)):
            code = (words[word, row] >> shift) & mask
            remain -= code == cut
            left = (code < cut) | ((code == cut) & (remain >= 0))
            histogram[at + ((words[holds, row] >> from_bit) & bits)] += (words[last, row] & RECORDS) * left


@kernel(error_model="numpy", forceinline=True)
def _move(words: Ints, low: int, high: int, one: _Dimension, cut: Any, ties: Any, spare: Ints) -> int:
    """Move the rows left of a cut before the others, both in their order; return where the others begin."""
    word, shift, mask, number = one.word, one.shift, one.mask, len(words)
    before: Any = np.uint64(low)
    for step in range(number):
        moved = (word + 1 + step) % number  # the word that holds the dimension is moved last
        before, after, remain = np.uint64(low), np.uint64(0), ties
        # Write every row to both sides: a branch would be mispredicted half of the time.
        if ties >= high - low:
            for row in range(np.uint64(low), np.uint64(high)):
                left = np.uint64(((words[word, row] >> shift) & mask) <= cut)
                words[moved, before] = spare[after] = words[moved, row]
                before += left
                after += np.uint64(1) - left
        else:
            for row in range(np.uint64(low), np.uint64(high)):
                code = (words[word, row] >> shift) & mask
                remain -= code == cut
                left = np.uint64((code < cut) | ((code == cut) & (remain >= 0)))
                words[moved, before] = spare[after] = words[moved, row]
                before += left
                after += np.uint64(1) - left
        for row in range(after):
            words[moved, before + row] = spare[row]
    return int(before)


@kernel(error_model="numpy")
def _remaining(
    words: Ints,
    low: int,
    high: int,
    one: _Dimension,
    decides: _Dimension,
    cut: Any,
    below: Any,
    size: Any,
    place: Floats,
    seen: Ints,
) -> Any:
    """Return the loss of a dimension that a cut would leave, summed over the records; see `_loss`."""
    word, shift, mask = one.word, one.shift, one.mask
    cut_word, cut_shift, cut_mask = decides.word, decides.shift, decides.mask
    remains = 0.0
    for above in range(2):
        distinct, least, most = 0, one.length, np.int64(-1)
        if one.length <= 64 and not one.ordered:
            found = np.int64(0)
            for row in range(np.uint64(low), np.uint64(high)):
                beyond = ((words[cut_word, row] >> cut_shift) & cut_mask) > cut
                found |= np.int64(beyond == (above == 1)) << ((words[word, row] >> shift) & mask)
            distinct = ones(np.uint64(found))
        else:
            seen[-1] += 1
            for row in range(np.uint64(low), np.uint64(high)):
                if (((words[cut_word, row] >> cut_shift) & cut_mask) > cut) == (above == 1):
                    code = (words[word, row] >> shift) & mask
                    least, most = min(least, code), max(most, code)
                    if seen[one.at + code] != seen[-1]:
                        seen[one.at + code] = seen[-1]
                        distinct += 1
        records = size - below if above else below
        if one.ordered:
            remains += records * min(place[one.at + most] - place[one.at + least], 1.0)
        elif distinct > 1:
            remains += records * (distinct / one.size)
    return remains

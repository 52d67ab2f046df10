"""Kernels that several methods share: whether a class keeps its limits, and the size of a set of bits.

Numba compiles them on first use and caches the result on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.limits import ALPHA, BETA, DELTA, RECURSIVE, T_EQUAL, T_LINE, T_TREE, L, Limits
from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Floats, Ints

__all__ = ["keeping", "keeps", "ones"]


@kernel(error_model="numpy")
def at_most(value: float, asked: float) -> bool:
    """Return whether a number is at most the bound, with the tolerance of `ClassGuarantee.accepts`."""
    if value <= asked:
        return True
    return value < math.inf and value - asked <= max(1e-9 * max(abs(value), abs(asked)), 1e-12)


@kernel(error_model="numpy")
def keeps(histogram: Ints, size: Any, limits: Limits, scratch: Ints) -> bool:
    """Return whether a class with these counts of the sensitive values keeps every guarantee.

    Parameters
    ----------
    histogram : the count of each value of each sensitive attribute in the class
    size : its records
    limits : Limits
    scratch : an array as long as the histogram
    """
    # One function without slices that unpacks once: counting references to arrays takes longer than most rules.
    if size < limits.k:
        return False
    _, rows, offset, total, models, attributes, bounds, wholes, begins, numbers, nodes = limits
    kept = True
    for rule in range(len(models)):
        model, asked, whole, at = models[rule], bounds[rule], wholes[rule], begins[rule]
        if attributes[rule] < 0:
            kept = _recursive_alone(histogram, asked, offset, scratch)
            if not kept:
                break
            continue
        first, last = offset[attributes[rule]], offset[attributes[rule] + 1]
        if model == L:
            distinct = 0
            for value in range(first, last):
                distinct += histogram[value] > 0
            kept = distinct >= whole
        elif model == ALPHA:
            most = 0
            for value in range(first, last):
                if numbers[at + value - first] != 0.0:
                    most = max(most, histogram[value])
            kept = at_most(most / size, asked)
        elif model == BETA:
            for value in range(first, last):
                if histogram[value] > 0:
                    gain = _ratio(histogram[value], size, total[value], rows) - 1.0
                    if gain > 0.0 and not (gain <= numbers[at + value - first] and at_most(gain, asked)):
                        kept = False
        elif model == DELTA:
            for value in range(first, last):
                if histogram[value] > 0:
                    ratio = _ratio(histogram[value], size, total[value], rows)
                    if ratio < numbers[at] or ratio > numbers[at + 1]:
                        kept = False
                elif whole:
                    kept = False
        elif model == T_EQUAL:
            moved = 0.0
            for value in range(first, last):
                moved += max(histogram[value] / size - numbers[at + value - first], 0.0)
            kept = at_most(moved, asked)
        elif model == T_LINE:
            moved, below = 0.0, 0
            for value in range(first, last):
                below += histogram[value]
                apart = abs(below / size - numbers[at + value - first])
                moved += apart * numbers[at + value - first + last - first]
            kept = at_most(moved, asked)
        elif model == T_TREE:
            share, node = numbers[at:], nodes[at:]
            kept = at_most(_emd_tree(histogram[first:last], size, whole, node, share, scratch), asked)
        elif model == RECURSIVE:
            kept = _recursive(histogram[first:last], whole, asked, scratch)
        else:
            kept = _keeps_entropy(histogram[first:last], size, asked)
        if not kept:
            break
    return kept


@kernel(error_model="numpy")
def _ratio(count: int, size: Any, total: int, rows: int) -> float:
    return (float(count) * float(rows)) / (float(size) * float(total))


@kernel(error_model="numpy")
def _distinct(count: Ints) -> int:
    distinct = 0
    for value in range(len(count)):
        distinct += count[value] > 0
    return distinct


@kernel(error_model="numpy")
def _recursive(count: Ints, l: int, c: float, scratch: Ints) -> bool:
    """Return whether r1 / (r_l + ... + r_m) < c."""
    distinct = 0
    for value in range(len(count)):
        if count[value] > 0:
            scratch[distinct] = count[value]
            distinct += 1
    if distinct < l:
        return False
    for rank in range(l - 1):  # bring the l - 1 largest to the front
        largest = rank
        for other in range(rank + 1, distinct):
            if scratch[other] > scratch[largest]:
                largest = other
        scratch[rank], scratch[largest] = scratch[largest], scratch[rank]
    most, tail = scratch[0], 0
    for rank in range(l - 1, distinct):
        most = max(most, scratch[rank])
        tail += scratch[rank]
    below: bool = most / tail < c
    return below


@kernel(error_model="numpy")
def _recursive_alone(histogram: Ints, c: float, offset: Ints, scratch: Ints) -> bool:
    """Return whether a class keeps (c, l) with its own distinct l.

    The l of a table is the smallest of its classes, and the ratio grows with l: if all classes keep
    (c, l) with their own l, so does the table.
    """
    l = len(histogram)
    for attribute in range(len(offset) - 1):
        l = min(l, _distinct(histogram[offset[attribute] : offset[attribute + 1]]))
    for attribute in range(len(offset) - 1):
        if not _recursive(histogram[offset[attribute] : offset[attribute + 1]], l, c, scratch):
            return False
    return True


@kernel(error_model="numpy")
def _emd_tree(count: Ints, size: Any, levels: int, node: Ints, share: Floats, scratch: Ints) -> float:
    """Return the mean over the levels of the mass that must move to another node."""
    values, moved = len(count), 0.0
    for level in range(levels):
        for value in range(values):
            scratch[value] = 0
        for value in range(values):
            scratch[node[level * values + value]] += count[value]
        for value in range(values):
            moved += max(scratch[value] / size - share[level * values + value], 0.0)
    return moved / levels


@kernel(error_model="numpy")
def _keeps_entropy(count: Ints, size: Any, asked: float) -> bool:
    """Return whether exp(H(q)) is at least l; for a uniform class it is exactly the number of values."""
    distinct, low, high, weighted = 0, size, 0, 0.0
    for value in range(len(count)):
        held = count[value]
        if held > 0:
            distinct += 1
            low, high = min(low, held), max(high, held)
            weighted += held * math.log(held)
    diversity = float(distinct) if low == high else math.exp(math.log(size) - weighted / size)
    return diversity >= asked or asked - diversity <= max(1e-9 * max(diversity, asked), 1e-12)


@kernel(error_model="numpy")
def keeping(
    rows: Ints, groups: Ints, size: Ints, start: Ints, cell: Ints, count: Ints, limits: Limits
) -> NDArray[np.bool_]:
    """Return for each row, a tuple, whether its group keeps the limits; the rows of a group are adjacent.

    Parameters
    ----------
    rows, groups : the tuple and the group of each row
    size, start, cell, count : the records and the sparse sensitive values of each tuple; see `limits.sparse`
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


@kernel(error_model="numpy")
def ones(mask: np.uint64) -> Any:
    """Count the bits of a mask."""
    mask -= (mask >> np.uint64(1)) & np.uint64(0x5555555555555555)
    mask = (mask & np.uint64(0x3333333333333333)) + ((mask >> np.uint64(2)) & np.uint64(0x3333333333333333))
    mask = (mask + (mask >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((mask * np.uint64(0x0101010101010101)) >> np.uint64(56))

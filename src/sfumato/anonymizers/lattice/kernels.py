"""Kernels of the lattice: the classes of a node from those of a finer one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel

__all__ = ["any_below", "first_above", "merge_classes", "merge_entries", "nearest_below"]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 by the golden ratio spreads keys over the upper bits (Knuth, vol. 3)


@kernel()
def merge_classes(
    codes: NDArray[np.int32],
    place: NDArray[np.int64],
    word: NDArray[np.uint64],
    group: NDArray[np.int32],
    cost: NDArray[np.float64],
    exact: bool,
    below: NDArray[np.uint8],
    node: NDArray[np.uint8],
    first: NDArray[np.int32],
    key: NDArray[np.uint64],
    size: NDArray[np.int64],
    price: NDArray[np.float64],
    slots: NDArray[np.int32],
    moved: NDArray[np.uint64],
    firsts: NDArray[np.int32],
    keys: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    prices: NDArray[np.float64],
    of: NDArray[np.int32],
) -> int:
    """Merge the classes of a finer node into those of a coarser one; return the number of coarser classes.

    A class is identified by its first tuple and its key: the sum of one word per column for the group of its value.
    Only columns whose level changes are looked up. If keys are exact, equal keys mean equal groups; if not, the groups
    of the first tuples are compared too.

    Parameters
    ----------
    codes : a row per column, a column per tuple
    place : the offset of each level of each column in the next three arrays
    word, group, cost : the word, the group and the cost of each code, level by level
    below, node : the levels of the finer and of the coarser node
    first, key, size, price : the finer classes; the price is the cost of one row of the class
    slots, moved : buffers for a hash table, a power of two of at least 4 slots a class, and for keys
    firsts, keys, sizes, prices, of : filled with the coarser classes, and the coarser class of each finer one
    """
    finer = len(first)
    for one in range(finer):  # not slices: compiling their error messages takes numba three seconds
        moved[one], prices[one] = key[one], price[one]
    for column in range(len(codes)):
        if below[column] != node[column]:
            old, new = place[column, below[column]], place[column, node[column]]
            of_tuple = codes[column]
            for one in range(finer):
                code = of_tuple[first[one]]
                moved[one] += word[new + code] - word[old + code]
                prices[one] += cost[new + code] - cost[old + code]
    bits = 1
    while (1 << bits) < 4 * finer:
        bits += 1
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    slots[: 1 << bits] = -1
    classes = 0
    for one in range(finer):
        here = moved[one]
        slot = np.int64((here * _MIX) >> shift)
        found = slots[slot]
        while found >= 0 and (
            keys[found] != here or not (exact or _alike(codes, first[one], firsts[found], place, node, group))
        ):
            slot = (slot + 1) & mask
            found = slots[slot]
        if found < 0:
            found = classes
            slots[slot] = found
            firsts[found], keys[found], sizes[found], prices[found] = first[one], here, size[one], prices[one]
            classes += 1
        else:
            sizes[found] += size[one]
        of[one] = found
    return classes


@kernel()
def _alike(
    codes: NDArray[np.int32],
    a: int,
    b: int,
    place: NDArray[np.int64],
    node: NDArray[np.uint8],
    group: NDArray[np.int32],
) -> bool:
    for column in range(len(codes)):
        begin = place[column, node[column]]
        if group[begin + codes[column, a]] != group[begin + codes[column, b]]:
            return False
    return True


@kernel()
def merge_entries(
    of: NDArray[np.int32],
    classes: int,
    values: int,
    start: NDArray[np.int64],
    value: NDArray[np.int64],
    count: NDArray[np.int64],
) -> Any:
    """Add up the counts of the sensitive values of merged classes, a product of sparse matrices.

    Two stable counting sorts, by value and then by class, bring equal entries side by side.
    """
    entries = len(value)
    owner = np.empty(entries, dtype=np.int32)
    place = np.zeros(values + 1, dtype=np.int64)
    for one in range(len(of)):
        for entry in range(start[one], start[one + 1]):
            owner[entry] = of[one]
            place[value[entry] + 1] += 1
    place = np.cumsum(place)
    by_value = np.empty(entries, dtype=np.int64)
    begin = np.zeros(classes + 1, dtype=np.int64)
    for entry in range(entries):
        by_value[place[value[entry]]] = entry
        place[value[entry]] += 1
        begin[owner[entry] + 1] += 1
    begin = np.cumsum(begin)
    order = np.empty(entries, dtype=np.int64)
    place = begin.copy()
    for here in by_value:
        order[place[owner[here]]] = here
        place[owner[here]] += 1
    starts = np.zeros(classes + 1, dtype=np.int64)
    merged, counts = np.empty(entries, dtype=np.int64), np.empty(entries, dtype=np.int64)
    kept = 0
    for one in range(classes):
        for position in range(begin[one], begin[one + 1]):
            here = order[position]
            if kept > starts[one] and merged[kept - 1] == value[here]:
                counts[kept - 1] += count[here]
            else:
                merged[kept], counts[kept] = value[here], count[here]
                kept += 1
        starts[one + 1] = kept
    return starts, merged[:kept].copy(), counts[:kept].copy()


@kernel()
def nearest_below(nodes: NDArray[np.uint8], classes: NDArray[np.int64], node: NDArray[np.uint8]) -> int:
    """Return the index of the node with the fewest classes that is finer than or equal to a node."""
    best = -1
    for one in range(len(nodes)):
        if best < 0 or classes[one] < classes[best]:
            for column in range(len(node)):
                if nodes[one, column] > node[column]:
                    break
            else:
                best = one
    return best


@kernel()
def first_above(nodes: NDArray[np.uint8], node: NDArray[np.uint8]) -> int:
    """Return the index of the first node that is coarser than or equal to a node, or -1."""
    for one in range(len(nodes)):
        for column in range(len(node)):
            if nodes[one, column] < node[column]:
                break
        else:
            return one
    return -1


@kernel()
def any_below(nodes: NDArray[np.uint8], node: NDArray[np.uint8]) -> bool:
    """Return whether any of the nodes is finer than or equal to a node."""
    for one in range(len(nodes)):
        for column in range(len(node)):
            if nodes[one, column] > node[column]:
                break
        else:
            return True
    return False

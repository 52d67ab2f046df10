"""The kernels of the lattice as numpy code, for exact keys; small tables need no compiler.

Each function does the same as its namesake in `lattice.kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.measures.classes import sum_by_index

__all__ = ["any_below", "first_above", "merge_classes", "merge_entries", "nearest_below"]


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
    """Merge the classes of a finer node into those of a coarser one, in the order of their first tuples."""
    assert exact
    here, costs = key.copy(), price.copy()
    for column in np.flatnonzero(below != node).tolist():
        old, new = place[column, below[column]], place[column, node[column]]
        code = codes[column][first]
        here += word[new + code] - word[old + code]
        costs += cost[new + code] - cost[old + code]
    _, begins, number = np.unique(here, return_index=True, return_inverse=True)
    order, classes = np.argsort(begins), len(begins)
    rank = np.empty(classes, dtype=np.int32)
    rank[order] = np.arange(classes)
    of[: len(first)] = rank[number]
    begins = begins[order]
    firsts[:classes], keys[:classes], prices[:classes] = first[begins], here[begins], costs[begins]
    sizes[:classes] = sum_by_index(of[: len(first)], size, classes)
    return classes


def merge_entries(
    of: NDArray[np.int32],
    classes: int,
    values: int,
    start: NDArray[np.int64],
    value: NDArray[np.int64],
    count: NDArray[np.int64],
) -> Any:
    """Add up the counts of the sensitive values of merged classes."""
    cell, of_entry = np.unique(np.repeat(of.astype(np.int64), np.diff(start)) * values + value, return_inverse=True)
    starts = np.searchsorted(cell, np.arange(classes + 1) * values)
    return starts, cell % values, sum_by_index(of_entry, count, len(cell))


def nearest_below(nodes: NDArray[np.uint8], classes: NDArray[np.int64], node: NDArray[np.uint8]) -> int:
    """Return the index of the node with the fewest classes that is finer than or equal to a node."""
    finer = np.flatnonzero((nodes <= node).all(axis=1))
    return int(finer[classes[finer].argmin()]) if len(finer) else -1


def first_above(nodes: NDArray[np.uint8], node: NDArray[np.uint8]) -> int:
    """Return the index of the first node that is coarser than or equal to a node, or -1."""
    coarser = np.flatnonzero((nodes >= node).all(axis=1))
    return int(coarser[0]) if len(coarser) else -1


def any_below(nodes: NDArray[np.uint8], node: NDArray[np.uint8]) -> bool:
    """Return whether any of the nodes is finer than or equal to a node."""
    return bool((nodes <= node).all(axis=1).any())

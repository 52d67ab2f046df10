"""How noisy counts of one, two or three coded columns become consistent probabilities.

Everything here works on small arrays of noisy numbers: post-processing, which costs no privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.simplex import onto_simplex

__all__ = [
    "by_group",
    "coarse_groups",
    "draw_evenly",
    "fit_three_way",
    "fit_to_margins",
    "information",
    "onto_simplex",
    "spanning_tree",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SWEEPS = 30
_TINY = 1e-12


def fit_to_margins(table: Floats, rows: Floats, columns: Floats, sweeps: int = _SWEEPS) -> Floats:
    """Scale the rows and columns of a table until it has these margins (iterative proportional fitting).

    Examples
    --------
    >>> fit_to_margins(np.ones((2, 2)), np.array([3.0, 1.0]), np.array([2.0, 2.0])).tolist()
    [[1.5, 1.5], [0.5, 0.5]]
    """
    fitted = np.maximum(table, _TINY)
    for _ in range(sweeps):
        fitted = fitted * (rows / np.maximum(fitted.sum(axis=1), _TINY))[:, None]
        fitted = fitted * (columns / np.maximum(fitted.sum(axis=0), _TINY))
    return fitted


def fit_three_way(first: Floats, second: Floats, third: Floats, sweeps: int = _SWEEPS) -> Floats:
    """Return the table (a, b, y) of largest entropy with the margins (a, b), (a, y) and (b, y), approximately.

    Examples
    --------
    >>> ab, ay, by = np.full((2, 2), 2.0), np.array([[3.0, 1.0], [1.0, 3.0]]), np.full((2, 2), 2.0)
    >>> fit_three_way(ab, ay, by).sum(axis=1).round(6).tolist()
    [[3.0, 1.0], [1.0, 3.0]]
    """
    fitted = np.ones((*first.shape, second.shape[1]))
    for _ in range(sweeps):
        fitted *= (first / np.maximum(fitted.sum(axis=2), _TINY))[:, :, None]
        fitted *= (second / np.maximum(fitted.sum(axis=1), _TINY))[:, None, :]
        fitted *= (third / np.maximum(fitted.sum(axis=0), _TINY))[None, :, :]
    return fitted


def information(table: Floats) -> float:
    """Return the mutual information of the rows and columns of a table, in nats.

    Examples
    --------
    >>> round(information(np.eye(2)), 4), information(np.ones((2, 2)))
    (0.6931, 0.0)
    """
    joint = table / max(table.sum(), _TINY)
    alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / alone[there])).sum())


def spanning_tree(weights: Floats) -> list[tuple[int, int]]:
    """Return the edges (parent, child) of a maximum spanning tree, parents first (Prim 1957).

    Examples
    --------
    >>> spanning_tree(np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]]))
    [(0, 2), (2, 1)]
    """
    size = len(weights)
    edges, inside = [], np.zeros(size, dtype=bool)
    if size < 2:
        return []
    root = int(np.unravel_index(np.argmax(weights), weights.shape)[0])
    inside[root] = True
    best, parent = weights[root].copy(), np.full(size, root)
    for _ in range(size - 1):
        child = int(np.argmax(np.where(inside, -np.inf, best)))
        edges.append((int(parent[child]), child))
        inside[child] = True
        nearer = weights[child] > best
        best, parent = np.where(nearer, weights[child], best), np.where(nearer, child, parent)
    return edges


def by_group(table: Floats, groups: Ints) -> Floats:
    """Return the sums of a table's rows by group.

    Examples
    --------
    >>> by_group(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 1, 0])).tolist()
    [[6.0, 8.0], [3.0, 4.0]]
    """
    found = np.zeros((int(groups.max()) + 1, table.shape[1]))
    np.add.at(found, groups, table)
    return found


def coarse_groups(counts: Floats, most: int, least: float, *, ordered: bool) -> Ints:
    """Return the group of each cell: neighbours of about equal mass if ordered, else rare categories together.

    Parameters
    ----------
    counts : array
        The counts of the cells, not negative; the last cell is for missing values.
    most : int
        The largest number of groups, apart from the one for missing values.
    least : float
        The smallest share of a group.
    ordered : bool

    Examples
    --------
    >>> coarse_groups(np.array([1.0, 1.0, 6.0, 1.0, 1.0, 0.0]), 3, 0.1, ordered=True).tolist()
    [0, 0, 1, 2, 2, 2]
    >>> coarse_groups(np.array([5.0, 1.0, 6.0, 1.0, 9.0]), 9, 0.1, ordered=False).tolist()
    [0, 1, 2, 1, 3]
    """
    total = max(counts.sum(), _TINY)
    shares = counts / total
    known, missing = shares[:-1], shares[-1]
    if not ordered:
        rare = known < least
        order = np.argsort(-known, kind="stable")
        rare[order[most:]] = True
        groups = _numbered(rare)
    else:
        groups = _intervals(known, most, least)
    last = groups.max(initial=-1) + 1
    # Missing values have a group of their own only if there are enough of them.
    lightest = np.argmin(np.bincount(groups, weights=known)) if len(groups) else 0
    return np.append(groups, last if missing >= least or not len(groups) else (last - 1 if ordered else lightest))


def _numbered(rare: NDArray[np.bool_]) -> Ints:
    """Return a group for each category, and one for all rare ones, numbered in order of appearance."""
    if rare.sum() < 2:
        return np.arange(len(rare))
    kept = np.where(rare, -1, np.arange(len(rare)))
    _, first, groups = np.unique(kept, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[groups]


def _intervals(shares: Floats, most: int, least: float) -> Ints:
    """Merge neighbouring cells: the lightest with its lighter neighbour, until few enough are heavy enough."""
    heavy = max(least, shares.sum() / most) if most else 1.0
    groups, held, at = np.zeros(len(shares), dtype=np.int64), 0.0, 0
    for cell, share in enumerate(shares):
        if held and (held + share / 2 > heavy or share >= heavy):
            at, held = at + 1, 0.0
        groups[cell] = at
        held += share
    mass = np.bincount(groups, weights=shares)
    edges = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    weights = mass.tolist()
    while len(weights) > 1 and (min(weights) < least or len(weights) > most):
        lightest = int(np.argmin(weights))
        left = lightest > 0 and (lightest == len(weights) - 1 or weights[lightest - 1] <= weights[lightest + 1])
        first = lightest - 1 if left else lightest
        weights[first] += weights.pop(first + 1)
        edges.pop(first + 1)
    lengths = np.diff([*edges, len(shares)])
    return np.repeat(np.arange(len(edges)), lengths)


def draw_evenly(given: Ints, chances: Floats, rng: np.random.Generator) -> Ints:
    """Draw a value for each row, given its group; within a group, values have their shares almost exactly.

    Examples
    --------
    >>> drawn = draw_evenly(np.array([0, 1, 0, 1, 1, 1]), np.array([[1.0, 1.0], [3.0, 1.0]]), np.random.default_rng(0))
    >>> np.bincount(drawn[[0, 2]]).tolist(), np.bincount(drawn[[1, 3, 4, 5]]).tolist()
    ([1, 1], [3, 1])
    """
    up = np.cumsum(chances, axis=1)
    whole = up[:, -1:]
    up = np.where(whole > 0, up / np.maximum(whole, 1e-300), np.arange(1, chances.shape[1] + 1) / chances.shape[1])
    sizes = np.bincount(given, minlength=len(chances))
    order = rng.permutation(len(given))
    order = order[np.argsort(given[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sorted_groups = given[order]
    rank = np.arange(len(given)) - starts[sorted_groups]
    even = (rank + rng.random(len(chances))[sorted_groups]) / sizes[sorted_groups]
    # Searching all groups at once: the shares of group g lie between g and g + 1.
    flat = (up + np.arange(len(up))[:, None]).ravel()
    place = np.searchsorted(flat, np.minimum(even, 1 - 1e-12) + sorted_groups, side="right")
    values = np.empty(len(given), dtype=np.int64)
    values[order] = np.minimum(place - sorted_groups * chances.shape[1], chances.shape[1] - 1)
    return values

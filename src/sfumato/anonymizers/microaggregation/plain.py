"""The kernels of microaggregation as numpy code; small tables need no compiler.

Each function does the same as its namesake in `microaggregation.kernels`, and adds in the same order, so the groups are
the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.microaggregation.kernels import Scale
from sfumato.measures.classes import Floats, Ints, sum_by_index

__all__ = ["centre_of", "mdav", "nearest"]


def mdav(points: Floats, records: Ints, members: Ints, k: int, scale: Scale, groups: Ints) -> int:
    """Put the members, ascending, into groups of at least k records, and return how many; the last may be smaller."""
    ordered = scale.height < 0
    columns, weight, rows = points[members].T.copy(), records[members], members
    sums, held = columns[ordered] * weight, _held(columns, weight, scale)
    gone, total, made = np.zeros(len(members), dtype=np.bool_), int(weight.sum()), 0
    while total >= 2 * k:
        if 8 * np.count_nonzero(gone) > len(gone):
            columns, sums = columns[:, ~gone], sums[:, ~gone]
            weight, rows, gone = weight[~gone], rows[~gone], np.zeros(np.count_nonzero(~gone), dtype=np.bool_)
        away = _apart(columns, _centre(sums, total, held, scale), scale)
        away[gone] = -1.0
        here = columns[:, int(away.argmax())].copy()
        away = _apart(columns, here, scale)
        there = columns[:, int(np.where(gone, -1.0, away).argmax())].copy()
        for around in (here, there) if total >= 3 * k else (here,):
            if total < 2 * k:
                break
            if around is there:
                away = _apart(columns, there, scale)
            away[gone] = np.inf
            # k records are at most k of the nearest rows
            near = np.flatnonzero(away <= np.partition(away, k - 1)[k - 1]) if k <= len(away) else np.arange(len(away))
            near = near[np.argsort(away[near], kind="stable")]
            near = near[: int(np.searchsorted(np.cumsum(weight[near]), k)) + 1]
            groups[rows[near]] = made
            gone[near], sums[:, near] = True, 0.0
            held -= _held(columns[:, near], weight[near], scale)
            total -= int(weight[near].sum())
            made += 1
    groups[rows[~gone]] = made
    return made + bool(total)


def centre_of(points: Floats, records: Ints, rows: Ints, held: Ints, scale: Scale, centre: Floats) -> None:
    """Set the centre of some points."""
    columns, weight = points[rows].T, records[rows]
    sums = columns[scale.height < 0] * weight
    centre[:] = _centre(sums, int(weight.sum()), _held(columns, weight, scale), scale)


def nearest(centres: Floats, there: NDArray[np.bool_], one: int, scale: Scale) -> int:
    """Return the first of the centres, of those that are there, that are nearest to another one."""
    away = np.where(there, _apart(centres.T, centres[one], scale), np.inf)
    away[one] = np.inf
    return int(away.argmin())


def _apart(columns: Floats, centre: Floats, scale: Scale) -> Floats:
    """Return the squared distance of each point from a centre; the points are columns."""
    total = np.zeros(columns.shape[1])
    for column, (here, there) in enumerate(zip(columns, centre, strict=True)):
        height, weight = scale.height[column], scale.weight[column]
        if height < 0:
            away = here - there
            total += weight * away * away
        elif height == 0:
            total += weight * (here != there)
        else:
            at, length = scale.node_at[column], scale.length[column]
            nodes = scale.node[at : at + height * length].reshape(height, length)
            share = (nodes != nodes[:, [int(there)]]).sum(axis=0) / height
            total += (weight * share * share)[here.astype(np.int64)]
    return total


def _centre(sums: Floats, total: int, held: Ints, scale: Scale) -> Floats:
    """Return the mean of each ordered column, and the most frequent category of each other one."""
    centre = np.empty(len(scale.height))
    centre[scale.height < 0] = np.cumsum(sums, axis=1)[:, -1] / total  # in the order of the rows
    for column in np.flatnonzero(scale.height >= 0).tolist():
        centre[column] = held[scale.held_at[column] : scale.held_at[column + 1]].argmax()
    return centre


def _held(columns: Floats, weight: Ints, scale: Scale) -> Ints:
    """Return how often the points have each category."""
    of = scale.height >= 0
    cell = columns[of].astype(np.int64) + scale.held_at[:-1][of][:, None]
    return sum_by_index(cell.ravel(), np.tile(weight, len(cell)), int(scale.held_at[-1]))

"""Kernels of microaggregation: distances, centres and MDAV.

Numba compiles them on first use and caches the result on disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Floats, Ints

__all__ = ["Scale", "centre_of", "mdav", "nearest"]


class Scale(NamedTuple):
    """What the numbers of a point mean: where a number lies, or which position on its line a category has.

    Attributes
    ----------
    height : of each column -1 if it is ordered, else the levels of its hierarchy, 0 without
    length : the number of positions on its line
    node_at : where its nodes begin
    node : the node of each position on each level
    held_at : where the positions of each category begin in a row of counts
    weight : what one unit of the squared distance in each column counts
    """

    height: Ints
    length: Ints
    node_at: Ints
    node: NDArray[np.int32]
    held_at: Ints
    weight: Floats


@kernel(error_model="numpy")
def apart(points: Floats, row: int, centre: Floats, scale: Scale) -> float:
    """Return the squared distance of a point from a centre.

    A category is 0 or 1 away from another; with a hierarchy, the share of its levels on which the two differ.
    """
    total = 0.0
    for column in range(len(centre)):
        here, there = points[row, column], centre[column]
        height = scale.height[column]
        if height < 0:
            total += scale.weight[column] * (here - there) * (here - there)
        elif here != there:
            if height == 0:
                total += scale.weight[column]
            else:
                at, differ = scale.node_at[column], 0
                for _ in range(height):
                    differ += scale.node[at + np.int64(here)] != scale.node[at + np.int64(there)]
                    at += scale.length[column]
                total += scale.weight[column] * (differ / height) * (differ / height)
    return total


@kernel(error_model="numpy")
def _centre(points: Floats, records: Ints, rows: Ints, number: int, held: Ints, scale: Scale, centre: Floats) -> None:
    """Set the mean of each ordered column, and the most frequent category; held counts the categories of the rows."""
    for column in range(len(centre)):
        if scale.height[column] < 0:
            total, weight = 0.0, 0
            for index in range(number):
                row = rows[index]
                total += points[row, column] * records[row]
                weight += records[row]
            centre[column] = total / weight
        else:
            at, most, best = scale.held_at[column], np.int64(0), np.int64(0)
            for index in range(number):
                position = np.int64(points[rows[index], column])
                times = held[at + position]
                if times > most or (times == most and position < best):
                    most, best = times, position
            centre[column] = best


@kernel(error_model="numpy")
def _count(points: Floats, row: int, times: int, held: Ints, scale: Scale) -> None:
    """Count the categories of a point so many times more."""
    for column in range(points.shape[1]):
        if scale.height[column] >= 0:
            held[scale.held_at[column] + np.int64(points[row, column])] += times


@kernel(error_model="numpy")
def centre_of(points: Floats, records: Ints, rows: Ints, held: Ints, scale: Scale, centre: Floats) -> None:
    """Set the centre of some points; held, all zero, is room for counts and is left so."""
    for row in rows:
        _count(points, row, records[row], held, scale)
    _centre(points, records, rows, len(rows), held, scale, centre)
    for row in rows:
        _count(points, row, -records[row], held, scale)


@kernel(error_model="numpy")
def _farthest(points: Floats, rows: Ints, number: int, centre: Floats, scale: Scale) -> Any:
    """Return the first of the rows that are farthest from a centre."""
    far, best = -1.0, rows[0]
    for index in range(number):
        away = apart(points, rows[index], centre, scale)
        if away > far:
            far, best = away, rows[index]
    return best


@kernel(error_model="numpy")
def mdav(points: Floats, records: Ints, members: Ints, k: int, scale: Scale, groups: Ints) -> Any:
    """Put the members, ascending, into groups of at least k records, and return how many; the last may be smaller.

    Maximum distance to average vector (Domingo-Ferrer & Mateo-Sanz 2002); ties go to the first.
    """
    left, number, total = members.copy(), len(members), np.int64(0)
    held = np.zeros(scale.held_at[-1], np.int64)
    for row in members:
        total += records[row]
        _count(points, row, records[row], held, scale)
    centre = np.empty(points.shape[1])
    room, away = np.empty(number, np.int64), np.empty(number)
    made = np.int64(0)  # of a constant, numba would compile a version of its own
    while total >= 2 * k:
        _centre(points, records, left, number, held, scale, centre)
        r = _farthest(points, left, number, centre, scale)
        s = _farthest(points, left, number, points[r], scale)
        pair = total >= 3 * k
        number, total = _gather(points, records, left, number, total, r, k, scale, held, room, away, groups, made)
        made += 1
        if pair and total >= 2 * k:
            number, total = _gather(points, records, left, number, total, s, k, scale, held, room, away, groups, made)
            made += 1
    for index in range(number):
        groups[left[index]] = made
    return made + (number > 0)


@kernel(error_model="numpy")
def _gather(
    points: Floats,
    records: Ints,
    left: Ints,
    number: int,
    total: int,
    around: int,
    k: int,
    scale: Scale,
    held: Ints,
    room: Ints,
    away: Floats,
    groups: Ints,
    made: int,
) -> tuple[int, int]:
    """Make a group of the points nearest to one, until it has k records; return what is left."""
    # The nearest seen so far, in order: as many as are needed for k records.
    near, size = 0, 0
    for index in range(number):
        row = left[index]
        distance = apart(points, row, points[around], scale)
        if size >= k and distance >= away[near - 1]:
            continue
        at = near
        while at > 0 and away[at - 1] > distance:
            room[at], away[at] = room[at - 1], away[at - 1]
            at -= 1
        room[at], away[at] = row, distance
        near += 1
        size += records[row]
        while size - records[room[near - 1]] >= k:
            near -= 1
            size -= records[room[near]]
    for index in range(near):
        groups[room[index]] = made
        _count(points, room[index], -records[room[index]], held, scale)
    kept = 0
    for index in range(number):
        if groups[left[index]] != made:
            left[kept] = left[index]
            kept += 1
    return kept, total - size


@kernel(error_model="numpy")
def nearest(centres: Floats, there: NDArray[np.bool_], one: int, scale: Scale) -> int:
    """Return the first of the centres, of those that are there, that are nearest to another one."""
    best, least = -1, np.inf
    for other in range(len(centres)):
        if there[other] and other != one:
            away = apart(centres, other, centres[one], scale)
            if away < least:
                best, least = other, away
    return best

"""The kernels of the guided tree as numpy code; small tables need no compiler.

`grow` and `find_leaves` return the same as their namesakes in `guided.kernels`, and add in the same order, so rounding
does not change the cuts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.guided.kernels import LEAST, MISSING, UNKNOWN, median
from sfumato.anonymizers.limits import Limits
from sfumato.engines.compiling import plain
from sfumato.measures.classes import Floats, Ints, ranges, sum_by_index

__all__ = ["Chooser", "Cut", "Units", "find_leaves", "grow"]

_keeps, _median = plain(keeps), plain(median)
_log = np.frompyfunc(math.log, 1, 1)  # numpy's own differs in the last digit


class Cut(NamedTuple):
    """A cut of a part: what it gains, its dimension, and which of its values go to the right, in cells."""

    gained: float
    by: int
    cells: Ints
    cells_right: NDArray[np.bool_]


class Units(NamedTuple):
    """The values of some dimensions in a part, and the units that a cut keeps together: a value, or a node's child.

    Attributes
    ----------
    dimensions : the dimensions
    cell, dimension, unit : of each value its cell, its dimension's index, and its unit in that dimension
    weight : the records of each unit, a row per dimension, with zeros behind the last
    sums : the label mass of each unit, of each class such a table
    """

    dimensions: Ints
    cell: Ints
    dimension: Ints
    unit: Ints
    weight: Floats
    sums: list[Floats]


class Chooser(ABC):
    """Chooses the cut of a part from the counts of its values, wherever the records are.

    Parameters
    ----------
    dimensions, place, node, limits, entropy : those of `kernels.grow`
    """

    def __init__(self, dimensions: Ints, place: Floats, node: NDArray[np.int32], limits: Limits, entropy: bool) -> None:
        self.dimensions, self.place, self.node = dimensions, place, node
        self.limits, self.entropy = limits, entropy
        self.of_cell = np.repeat(np.arange(len(dimensions)), dimensions[:, 0])
        self.scratch = np.zeros(limits.values, dtype=np.int64)

    @abstractmethod
    def counted(self, part: Any, alive: Ints) -> tuple[Ints, list[Floats]]:
        """Return the cells of the values of some dimensions in a part, and of each the records and the label mass."""

    @abstractmethod
    def held(self, part: Any, cut: Cut) -> Iterator[tuple[Ints, int]]:
        """Yield the sensitive values and the records of both sides of a cut."""

    def listed(self, part: Any, alive: Ints) -> Units:
        """Count the values of the dimensions that are alive, and find their units."""
        cell, amounts = self.counted(part, alive)
        of = np.searchsorted(alive, self.of_cell[cell])
        first = np.searchsorted(of, np.arange(len(alive) + 1))
        unit = np.arange(len(cell)) - first[of]
        for index in np.flatnonzero(self.dimensions[alive, 4]).tolist():
            values = cell[first[index] : first[index + 1]] - self.dimensions[alive[index], 3]
            unit[first[index] : first[index + 1]] = self.children(int(alive[index]), values)
        longest = int(unit.max()) + 1
        at, shape = of * longest + unit, (len(alive), longest)
        sums = [_sums(at, amount, math.prod(shape)).reshape(shape) for amount in amounts]
        return Units(alive, cell, of, unit, sums[0], sums[1:])

    def children(self, by: int, values: Ints) -> Ints:
        """Return which child of the lowest node of the hierarchy that covers all values has each."""
        length, level, at = (int(self.dimensions[by, column]) for column in (0, 4, 5))
        nodes = self.node[at : at + level * length].reshape(level, length)[:, values]
        while level > 1 and nodes[level - 1, 0] == nodes[level - 1, -1]:
            level -= 1
        return np.cumsum(np.diff(nodes[level - 1], prepend=nodes[level - 1, 0]) != 0)

    def best(self, part: Any, size: int, units: Units, only: int | None = None) -> Cut | None:
        """Return the best cut of all dimensions, or of one: both sides keep their limits."""
        classes = len(units.sums)
        ordered = self.dimensions[units.dimensions, 2] > 0
        # A row per order in which the units of a dimension are tried: their own, or that of their share of a class.
        row = np.arange(len(ordered))
        if only is not None:
            row = row[only : only + 1]
        by_class = np.full(len(row), classes - 1)
        if classes > 2:
            orders = np.where(ordered[row], 1, classes)
            row = np.repeat(row, orders)
            by_class = np.arange(len(row)) - np.repeat(np.cumsum(orders) - orders, orders)
        weight = units.weight[row]
        key = np.where(weight > 0, np.stack(units.sums)[by_class, row] / weight, np.inf)
        key[ordered[row]] = np.arange(weight.shape[1])
        rank = np.argsort(key, axis=1, kind="stable")
        below = np.cumsum(np.take_along_axis(weight, rank, 1), axis=1)
        rest = size - below
        gain, before = np.zeros(below.shape), np.zeros(len(row))
        for sums in units.sums:
            sums = sums[row]
            total = np.cumsum(sums, axis=1)[:, -1]
            left = np.cumsum(np.take_along_axis(sums, rank, 1), axis=1)
            right = total[:, None] - left
            if self.entropy:
                before += _entropy(total, np.full(len(total), size))
                gain += _entropy(left, below)
                gain += _entropy(right, rest)
            else:
                before += total * total / size
                gain += left * left / below + right * right / rest
        gain -= before[:, None]
        gain[(below < self.limits.k) | (rest < self.limits.k)] = -np.inf
        for at in self.candidates(gain, LEAST * size):
            order, last = divmod(at, rank.shape[1])
            place = np.empty(rank.shape[1], dtype=np.int64)
            place[rank[order]] = np.arange(len(place))
            cut = self.cut(units, int(row[order]), place > last, float(gain[order, last]))
            if self.keep(part, cut):
                return cut
        return None

    def candidates(self, gain: Floats, least: float) -> list[int]:
        """Return the cuts that gain more than so much, those that gain most first."""
        flat = gain.ravel()
        if not self.limits.values:
            best = int(flat.argmax())
            return [best] if flat[best] > least else []
        enough = np.flatnonzero(flat > least)
        ordered: list[int] = enough[np.argsort(-flat[enough], kind="stable")].tolist()
        return ordered

    def cut(self, units: Units, index: int, right: NDArray[np.bool_], gained: float = 0.0) -> Cut:
        """Return the cut of a dimension that puts these of its units to the right."""
        mine = units.dimension == index
        return Cut(gained, int(units.dimensions[index]), units.cell[mine], right[units.unit[mine]])

    def keep(self, part: Any, cut: Cut) -> bool:
        """Say whether both sides keep what is asked of sensitive values; that both have k records is known."""
        if not self.limits.values:
            return True
        return all(_keeps(held, records, self.limits, self.scratch) for held, records in self.held(part, cut))

    def halved(self, part: Any, size: int, units: Units) -> Cut | None:
        """Return the cut at the median of the dimension that loses most of those that can be cut so."""
        number = len(units.dimensions)
        first = np.searchsorted(units.dimension, np.arange(number + 1))
        low, high = self.place[units.cell[first[:-1]]], self.place[units.cell[first[1:] - 1]]
        several = np.diff(first)
        shares = np.where(several > 1, several / self.dimensions[units.dimensions, 1], 0.0)
        ordered = self.dimensions[units.dimensions, 2] > 0
        loss = np.where(ordered, np.minimum(high - low, 1.0), shares)
        for index in np.argsort(-loss, kind="stable").tolist():
            if loss[index] <= 0.0:
                break
            weight = units.weight[index].astype(np.int64)
            weight = weight[: np.count_nonzero(weight)]
            misses = bool(ordered[index] and high[index] > MISSING)
            for separate in (True, False) if misses else (False,):  # a missing value is separated first
                last = _median(len(weight), weight.tolist(), size, self.limits.k, separate)
                if last >= 0:
                    cut = self.cut(units, index, np.arange(units.weight.shape[1]) > last)
                    if self.keep(part, cut):
                        return cut
        return None

    def alive(self, size: int, units: Units) -> Ints:
        """Return the dimensions some cut of which leaves k records on both sides, or one of finer units might."""
        k, weight = self.limits.k, units.weight
        below = np.cumsum(weight, axis=1)
        first = np.take_along_axis(below, (below >= k).argmax(axis=1)[:, None], 1)[:, 0]
        several = np.bincount(units.dimension, minlength=len(weight)) > 1
        ordered, height = self.dimensions[units.dimensions, 2] > 0, self.dimensions[units.dimensions, 4] > 0
        can = np.where(ordered, size - first >= k, np.where(height, several, size - weight.max(axis=1) >= k))
        return units.dimensions[can]


class _Grower(Chooser):
    """What is cut in memory; the parameters are those of `kernels.grow`."""

    def __init__(
        self,
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
    ) -> None:
        super().__init__(dimensions, place, node, limits, entropy)
        self.cells, self.records, self.mass = cells.T.astype(np.int64), amounts[:, 0].copy(), amounts[:, 1:].T.copy()
        self.start, self.cell, self.count = start, cell, count
        self.to_right = np.zeros(len(place), dtype=bool)

    def counted(self, part: Ints, alive: Ints) -> tuple[Ints, list[Floats]]:
        """Count the values of some dimensions in some rows."""
        cells = self.cells[alive[:, None], part].ravel()
        cell = np.flatnonzero(np.bincount(cells))
        amounts = (self.records, *self.mass)
        return cell, [_sums(cells, np.tile(one[part], len(alive)), len(self.place))[cell] for one in amounts]

    def rows(self, part: Ints, cut: Cut) -> tuple[Ints, Ints]:
        """Return the rows on the left and on the right of a cut."""
        self.to_right[cut.cells] = cut.cells_right
        right = self.to_right[self.cells[cut.by, part]]
        return part[~right], part[right]

    def held(self, part: Ints, cut: Cut) -> Iterator[tuple[Ints, int]]:
        """Yield the sensitive values and the records of both sides of a cut."""
        for side in self.rows(part, cut):
            _, entry = ranges(self.start[side], self.start[side + 1])
            held = sum_by_index(self.cell[entry], self.count[entry], self.limits.values)
            yield held, int(self.records[side].sum())

    def reach(self, rows: Ints, size: int, alive: Ints, cut: Cut) -> float:
        """Return what is gained below a cut if all further ones are the best at their place."""
        reached, waiting = 0.0, self.sides(rows, size, cut)
        parts = [(part, records, alive) for part, records in waiting]
        while parts:
            rows, size, alive = parts.pop()
            if size >= 2 * self.limits.k and len(rows) > 1 and len(alive):
                units = self.listed(rows, alive)
                alive = self.alive(size, units)
                further = self.best(rows, size, units)
                if further is not None:
                    reached += further.gained
                    parts += [(part, records, alive) for part, records in self.sides(rows, size, further)]
        return reached

    def sides(self, rows: Ints, size: int, cut: Cut) -> list[tuple[Ints, int]]:
        """Return the rows and the records of both sides of a cut."""
        left, right = self.rows(rows, cut)
        below = int(self.records[left].sum())
        return [(left, below), (right, size - below)]


@np.errstate(divide="ignore", invalid="ignore")  # of cuts that are not allowed
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
    """Cut the tuples where the label gains most and both sides keep their limits; else, if asked to, at medians."""
    data = _Grower(cells, amounts, start, cell, count, dimensions, place, node, limits, entropy)
    made, threshold, pool = [[0] * 8], [0.0], np.zeros(0, dtype=np.int64)
    pools, pooled, leaf = [pool], 0, np.empty(len(cells), dtype=np.int64)
    stack = [(0, order, int(data.records.sum()), 0, np.arange(len(dimensions)))]
    while stack:
        at, rows, size, low, alive = stack.pop()
        one, cut = made[at], None
        one[3], one[4], one[5] = size, low, low + len(rows)
        if size >= 2 * limits.k and len(rows) > 1 and len(alive):
            units = data.listed(rows, alive)
            alive = data.alive(size, units)
            cut = _ahead(data, rows, size, units, alive) if 3 * limits.k <= size <= ahead else None
            cut = cut or data.best(rows, size, units)
            if cut is None and refine:
                cut = data.halved(rows, size, units)
        if cut is None:
            one[0] = -1
            leaf[rows] = at
            continue
        one[0], first = cut.by, int(dimensions[cut.by, 3])
        if dimensions[cut.by, 2]:
            last = int(cut.cells_right.argmax()) - 1
            left, right = cut.cells[last], cut.cells[last + 1]
            threshold[at] = (place[left] + min(place[right], MISSING)) / 2
            one[6], one[7] = int(left) - first, int(right) - first
        else:
            pools.append(2 * (cut.cells - first) + cut.cells_right)
            one[6], one[7] = pooled, pooled + len(cut.cells)
            pooled += len(cut.cells)
        for side, (part, records) in enumerate(data.sides(rows, size, cut)):
            one[1 + side] = len(made)
            stack.append((len(made), part, records, low, alive))
            low += len(part)
            made.append([0] * 8)
            threshold.append(0.0)
    return np.array(made), np.array(threshold), np.concatenate(pools), leaf


def _ahead(data: _Grower, rows: Ints, size: int, units: Units, alive: Ints) -> Cut | None:
    """Return the best of the best cuts of all dimensions, compared by what can be gained below them."""
    found, most = None, 0.0
    for index in range(len(units.dimensions)):
        cut = data.best(rows, size, units, index)
        if cut is not None:
            reached = cut.gained + data.reach(rows, size, alive, cut)
            if reached > most:
                found, most = cut, reached
    return found


def _sums(index: Ints, amounts: Floats, length: int) -> Floats:
    """Sum the amounts by index, in their order."""
    sums: Any = np.bincount(index, weights=amounts, minlength=length)
    return np.asarray(sums, dtype=np.float64)


def _entropy(sums: Floats, size: Any) -> Floats:
    """Return the sum of a class times the logarithm of its share; 0 if it is empty."""
    score, some = np.zeros(sums.shape), (sums > 0.0) & (size > 0)
    score[some] = sums[some] * _log(sums[some] / size[some]).astype(np.float64)
    return score


def find_leaves(
    positions: Ints, places: Floats, ordered: NDArray[np.bool_], made: Ints, threshold: Floats, pool: Ints
) -> Ints:
    """Return the leaf of each tuple."""
    leaves = np.empty(places.shape[1], dtype=np.int64)
    waiting = [(0, np.arange(places.shape[1]))]
    while waiting:
        at, rows = waiting.pop()
        by, left, right, _, _, _, first, last = made[at].tolist()
        if by < 0:
            leaves[rows] = at
            continue
        position = positions[by, rows]
        larger = made[right, 3] > made[left, 3]
        if ordered[by]:
            # A value that was cut goes where it went; places, which are rounded, are for those between.
            goes = position >= last
            between = np.flatnonzero((position < 0) | ((position > first) & ~goes))
            if len(between):
                new = places[by, rows[between]]
                goes[between] = np.where(new != UNKNOWN, new > threshold[at], larger)
        else:
            found = np.minimum(np.searchsorted(pool[first:last] >> 1, position), last - first - 1)
            known = pool[first + found]
            goes = np.where(known >> 1 == position, known & 1 == 1, larger)
        for child, part in ((left, rows[~goes]), (right, rows[goes])):
            if len(part):
                waiting.append((child, part))
    return leaves

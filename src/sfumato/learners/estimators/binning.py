"""Bins of about equal mass, from one noisy histogram of every column.

Numbers are counted in many equal cells between their bounds, categories in one cell each. Neighbouring cells are then
merged until a bin stands out from the noise. Only the histogram costs privacy; merging is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.features import Columns, Features
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums

__all__ = ["Binning", "CellCounts", "histogram", "make_bins"]

Ints = NDArray[np.int64]

_FEW = 0.25  # the weight of a column of few cells; a power of two keeps sums exact
_STANDS_OUT = 3.0  # least count of a bin, in standard deviations of the noise on one cell,
_IS_THERE = 3.0  # and in standard deviations of the noise on all its cells


@dataclass(frozen=True, eq=False)
class Binning:
    """The bin of each cell of each column; the last cell and the last bin of a column are for unknown values.

    ``bins`` has the bin of every cell, one column after the other, and is stored with the model; ``cells`` has the
    number of cells of each column.

    Examples
    --------
    >>> binning = Binning(np.array([0, 0, 1, 2, 0, 1, 2]), (4, 3))
    >>> binning.sizes
    (3, 3)
    >>> binning.codes(np.array([[1, 0], [3, 1]])).tolist()
    [[0, 0], [2, 1]]
    >>> binning.places(np.array([[1, 0], [3, 1]])).tolist()
    [[0, 3], [2, 4]]
    """

    bins: Ints
    cells: tuple[int, ...]

    @cached_property
    def columns(self) -> tuple[Ints, ...]:
        """The bins of the cells of each column."""
        return tuple(np.split(self.bins, np.cumsum(self.cells)[:-1]))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of bins of each column, including the one for unknown values."""
        return tuple(int(one[-1]) + 1 for one in self.columns)

    @cached_property
    def starts(self) -> Ints:
        """The position of the first bin of each column among the bins of all columns."""
        return np.cumsum([0, *self.sizes[:-1]])

    @property
    def total(self) -> int:
        """The number of bins of all columns."""
        return sum(self.sizes)

    def codes(self, cells: Ints) -> Ints:
        """Return the bin of each cell, column by column."""
        return np.stack([bins[cells[:, at]] for at, bins in enumerate(self.columns)], axis=1)

    def places(self, cells: Ints) -> Ints:
        """Return the bins of cells as positions among the bins of all columns."""
        return self.codes(cells) + self.starts

    def mass(self, counts: Sequence[Floats]) -> Floats:
        """Return the counts of the bins of all columns, given the counts of the cells of each."""
        return np.concatenate(
            [
                np.bincount(bins, weights=one, minlength=size)
                for bins, one, size in zip(self.columns, counts, self.sizes, strict=True)
            ]
        )

    def shares(self, counts: Sequence[Floats]) -> Floats:
        """Return the share of each bin in its column, given the counts of the cells of each column."""
        mass = np.maximum(self.mass(counts), 0.0)
        return mass / np.maximum(np.repeat(np.add.reduceat(mass, self.starts), self.sizes), 1e-9)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Noisy counts of the cells of every column, and the standard deviation of the noise for each column.

    Examples
    --------
    >>> CellCounts((np.array([60.0, 44.0]), np.array([30.0, 32.0, 35.0, 5.0])), (2.0, 2.0)).rows
    103.33333333333333
    """

    counts: tuple[Floats, ...]
    deviations: tuple[float, ...]

    @property
    def rows(self) -> float:
        """The estimated number of records: every column counts all of them, and a sum of fewer cells is less noisy."""
        trust = [
            1 / (len(one) * max(noise, 1e-9) ** 2) for one, noise in zip(self.counts, self.deviations, strict=True)
        ]
        sums = [one.sum() for one in self.counts]
        return max(float(np.average(sums, weights=trust)), 1.0)

    def without_last(self) -> tuple[CellCounts, Floats]:
        """Return the histogram of all columns but the last, and the counts of the last one."""
        return CellCounts(self.counts[:-1], self.deviations[:-1]), self.counts[-1]


def histogram(
    features: Features,
    columns: Columns,
    sums: NoisySums,
    name: str,
    fine: int,
    target: tuple[Ints, int] | None = None,
) -> CellCounts:
    """Measure the counts of every column's cells in one noisy sum; a record counts once per column.

    A number is divided into ``fine`` cells. Categories have few cells, so they get more of the noise. ``target`` has
    the cells of one more column, and their number.
    """
    sizes, cells = features.sizes(fine), features.cells(columns, fine)
    weights = [1.0 if one.is_number else _FEW for one in features.features]
    if target is not None:
        sizes, cells, weights = (*sizes, target[1]), np.column_stack([cells, target[0]]), [*weights, _FEW]
    norm = math.sqrt(math.fsum(one * one for one in weights))
    each = [one * np.bincount(cells[:, at], minlength=sizes[at]) for at, one in enumerate(weights)]
    noisy = np.split(sums(name, np.concatenate(each), norm=norm), np.cumsum(sizes)[:-1])
    return CellCounts(
        tuple(one / weight for one, weight in zip(noisy, weights, strict=True)),
        tuple(sums.deviation_of(name, norm) / weight for weight in weights),
    )


def make_bins(features: Features, found: CellCounts, most: int) -> Binning:
    """Merge cells into bins of about equal mass, given their noisy counts.

    Parameters
    ----------
    features : Features
    found : CellCounts
        The counts of each column's cells; the last cell is for unknown values.
    most : int
        The largest number of bins of a number, apart from the one for unknown values. Categories keep a bin each,
        except that those too rare to stand out from the noise share one.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> gain = Features((Feature("capital-gain", bounds=(0.0, 100.0)),))
    >>> counts = np.array([900.0, 2.0, 30.0, 40.0, 0.0, 28.0, 0.0])
    >>> make_bins(gain, CellCounts((counts,), (0.0,)), most=3).bins.tolist()
    [0, 1, 1, 1, 2, 2, 3]
    """
    rows = found.rows
    bins = [
        _intervals(counts[:-1], max(rows - max(counts[-1], 0.0), 1.0), deviation, most)
        if feature.is_number
        else _without_rare(counts[:-1], _STANDS_OUT * deviation)
        for feature, counts, deviation in zip(features.features, found.counts, found.deviations, strict=True)
    ]
    return Binning(
        np.concatenate([np.append(one, one.max(initial=-1) + 1) for one in bins]), tuple(len(one) + 1 for one in bins)
    )


def _intervals(counts: Floats, rows: float, deviation: float, most: int) -> Ints:
    """Return the bins of ordered cells: a heavy cell has its own bin, others are merged until they hold enough."""
    enough, heavy = _enough(counts, rows, most, _STANDS_OUT * deviation)
    bins = np.zeros(len(counts), dtype=np.int64)
    bin_, held, cells = 0, 0.0, 0
    for at, count in enumerate(counts):
        if cells and heavy[at]:  # a heavy cell starts a new bin
            bin_, held, cells = bin_ + 1, 0.0, 0
        bins[at] = bin_
        held, cells = held + count, cells + 1
        if heavy[at] or held >= max(enough, _IS_THERE * deviation * math.sqrt(cells), 1e-9):
            bin_, held, cells = bin_ + 1, 0.0, 0
    return _without_light(bins, counts, enough, deviation, most)


def _enough(counts: Floats, rows: float, most: int, least: float) -> tuple[float, NDArray[np.bool_]]:
    """Return the count that a bin should reach, and which cells reach it alone (they leave fewer records to others)."""
    heavy = np.zeros(len(counts), dtype=bool)
    while True:
        rest = max(rows - counts[heavy].sum(), 0.0) / max(most - heavy.sum(), 1)
        enough = max(rest, least)
        more = heavy | (counts >= max(enough, 1e-9))
        if (more == heavy).all():
            return enough, heavy
        heavy = more


def _without_light(bins: Ints, counts: Floats, enough: float, deviation: float, most: int) -> Ints:
    """Merge the lightest bin with its lighter neighbour while a bin is too light or there are too many."""
    edges = np.flatnonzero(np.diff(bins, prepend=-1, append=-1))
    held = np.maximum(np.add.reduceat(counts, edges[:-1]), 0.0)
    needed = np.maximum(enough / 2, _IS_THERE * deviation * np.sqrt(np.diff(edges)))
    while len(held) > 1:
        light = np.flatnonzero((held < needed) | (held == 0)) if len(held) <= most else np.arange(len(held))
        if not len(light):
            break
        at = int(light[np.argmin(held[light])])
        left = at > 0 and (at == len(held) - 1 or held[at - 1] <= held[at + 1])
        first = at - 1 if left else at
        held[first] += held[first + 1]
        needed[first] = min(needed[first], needed[first + 1])  # merging an empty gap must not hide a clear bin
        held, needed, edges = (np.delete(one, first + 1) for one in (held, needed, edges))
    return np.repeat(np.arange(len(held)), np.diff(edges))


def _without_rare(counts: Floats, least: float) -> Ints:
    """Return the bins of categories: one each, and a common one for all that are too rare."""
    rare = counts < least
    if rare.sum() < 2:
        return np.arange(len(counts))
    bins = np.cumsum(~rare) - 1
    bins[rare] = (~rare).sum()
    return bins

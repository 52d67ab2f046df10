"""Bins of about equal mass, found in one noisy histogram of every column.

Numbers are counted in many equal cells between their bounds, categories in their own; neighbouring cells are then put
together until a bin holds enough to stand out from the noise. Only the histogram is bought; what is made of it costs
no more.
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

__all__ = ["Binning", "Histogram", "found_bins", "histogram"]

Ints = NDArray[np.int64]

_FEW = 0.25  # the weight of a column of few cells; a power of two, so that sums stay exact
_STANDS_OUT = 3.0  # a bin holds at least so many deviations of the noise on one cell,
_IS_THERE = 3.0  # and so many of the noise on all its cells


@dataclass(frozen=True, eq=False)
class Binning:
    """In which bin each cell of each column is; the last cell and the last bin of a column are for unknown.

    Parameters
    ----------
    bins : array of int
        The bin of every cell, one column after the other: all that has to be kept.
    cells : sequence of int
        How many cells each column has.

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
        """How many bins each column has, the one for unknown included."""
        return tuple(int(one[-1]) + 1 for one in self.columns)

    @cached_property
    def starts(self) -> Ints:
        """The place of the first bin of each column when all bins stand in a row."""
        return np.cumsum([0, *self.sizes[:-1]])

    @property
    def total(self) -> int:
        """How many bins there are."""
        return sum(self.sizes)

    def codes(self, cells: Ints) -> Ints:
        """Return the bins of cells, a column per column."""
        return np.stack([bins[cells[:, at]] for at, bins in enumerate(self.columns)], axis=1)

    def places(self, cells: Ints) -> Ints:
        """Return the bins of cells as places among the bins of all columns."""
        return self.codes(cells) + self.starts

    def mass(self, counts: Sequence[Floats]) -> Floats:
        """Return what the bins of all columns hold, from what the cells of each hold."""
        return np.concatenate(
            [
                np.bincount(bins, weights=one, minlength=size)
                for bins, one, size in zip(self.columns, counts, self.sizes, strict=True)
            ]
        )

    def shares(self, counts: Sequence[Floats]) -> Floats:
        """Return which part of its column each bin is, from what the cells of each column hold."""
        mass = np.maximum(self.mass(counts), 0.0)
        return mass / np.maximum(np.repeat(np.add.reduceat(mass, self.starts), self.sizes), 1e-9)


@dataclass(frozen=True, eq=False)
class Histogram:
    """What was bought: noisy counts of the cells of every column, and the deviation of the noise on those of each.

    Examples
    --------
    >>> Histogram((np.array([60.0, 44.0]), np.array([30.0, 32.0, 35.0, 5.0])), (2.0, 2.0)).rows
    103.33333333333333
    """

    counts: tuple[Floats, ...]
    deviations: tuple[float, ...]

    @property
    def rows(self) -> float:
        """How many records there are: every column counts the same ones, and the sum of fewer cells is less noisy."""
        trust = [
            1 / (len(one) * max(noise, 1e-9) ** 2) for one, noise in zip(self.counts, self.deviations, strict=True)
        ]
        sums = [one.sum() for one in self.counts]
        return max(float(np.average(sums, weights=trust)), 1.0)

    def without_last(self) -> tuple[Histogram, Floats]:
        """Return the histogram of all columns but the last, and the counts of that one."""
        return Histogram(self.counts[:-1], self.deviations[:-1]), self.counts[-1]


def histogram(
    features: Features,
    columns: Columns,
    sums: NoisySums,
    name: str,
    fine: int,
    target: tuple[Ints, int] | None = None,
) -> Histogram:
    """Buy the counts of every column's cells, all at once: a record counts once per column.

    Parameters
    ----------
    features : Features
    columns : Columns
    sums : NoisySums
    name : str
        Under which they are paid for.
    fine : int
        In how many cells a number is counted. Few are needed of a category, and so they get more of the noise.
    target : tuple of array and int, optional
        The cells of one more column, and how many there are.
    """
    sizes, cells = features.sizes(fine), features.cells(columns, fine)
    weights = [1.0 if one.is_number else _FEW for one in features.features]
    if target is not None:
        sizes, cells, weights = (*sizes, target[1]), np.column_stack([cells, target[0]]), [*weights, _FEW]
    norm = math.sqrt(math.fsum(one * one for one in weights))
    each = [one * np.bincount(cells[:, at], minlength=sizes[at]) for at, one in enumerate(weights)]
    noisy = np.split(sums(name, np.concatenate(each), norm=norm), np.cumsum(sizes)[:-1])
    return Histogram(
        tuple(one / weight for one, weight in zip(noisy, weights, strict=True)),
        tuple(sums.deviation_of(name, norm) / weight for weight in weights),
    )


def found_bins(features: Features, found: Histogram, most: int) -> Binning:
    """Put cells together into bins of about equal mass, given their noisy counts.

    Parameters
    ----------
    features : Features
    found : Histogram
        What each column's cells hold; the last is for unknown.
    most : int
        How many bins of numbers there may be in a column, beside the one for unknown. Categories keep their own, except
        that those too rare to stand out from the noise share one.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> gain = Features((Feature("capital-gain", bounds=(0.0, 100.0)),))
    >>> counts = np.array([900.0, 2.0, 30.0, 40.0, 0.0, 28.0, 0.0])
    >>> found_bins(gain, Histogram((counts,), (0.0,)), most=3).bins.tolist()
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
    """Return the bins of ordered cells: a heavy cell is its own, others share one until it holds enough."""
    enough, heavy = _enough(counts, rows, most, _STANDS_OUT * deviation)
    bins = np.zeros(len(counts), dtype=np.int64)
    bin_, held, cells = 0, 0.0, 0
    for at, count in enumerate(counts):
        if cells and heavy[at]:  # what came before a heavy cell is apart from it
            bin_, held, cells = bin_ + 1, 0.0, 0
        bins[at] = bin_
        held, cells = held + count, cells + 1
        if heavy[at] or held >= max(enough, _IS_THERE * deviation * math.sqrt(cells), 1e-9):
            bin_, held, cells = bin_ + 1, 0.0, 0
    return _without_light(bins, counts, enough, deviation, most)


def _enough(counts: Floats, rows: float, most: int, least: float) -> tuple[float, NDArray[np.bool_]]:
    """Return what a bin should hold, and which cells hold that alone: what they hold is not to be shared out."""
    heavy = np.zeros(len(counts), dtype=bool)
    while True:
        rest = max(rows - counts[heavy].sum(), 0.0) / max(most - heavy.sum(), 1)
        enough = max(rest, least)
        more = heavy | (counts >= max(enough, 1e-9))
        if (more == heavy).all():
            return enough, heavy
        heavy = more


def _without_light(bins: Ints, counts: Floats, enough: float, deviation: float, most: int) -> Ints:
    """Return bins of which the lightest are joined to their lighter neighbour, while they are too light or too many."""
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
        needed[first] = min(needed[first], needed[first + 1])  # a gap takes nothing from what stands out
        held, needed, edges = (np.delete(one, first + 1) for one in (held, needed, edges))
    return np.repeat(np.arange(len(held)), np.diff(edges))


def _without_rare(counts: Floats, least: float) -> Ints:
    """Return the bins of categories: their own, or one for all that are too rare."""
    rare = counts < least
    if rare.sum() < 2:
        return np.arange(len(counts))
    bins = np.cumsum(~rare) - 1
    bins[rare] = (~rare).sum()
    return bins

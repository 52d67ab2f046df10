"""Cells: how a wide column of numbers is counted, with frequent single values apart.

A column of few codes has a cell per code. A wide one (incomes, prices) is divided by its width alone, without a look at
the data: into equal parts, and into parts that grow with the distance from the origin, so that narrow and skewed
columns are both resolved. A noisy histogram of the single codes shows frequent values (0, 40 hours, 7,688 dollars),
which become cells of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.state import State, Stored, split
from sfumato.synthesizers.tables.base import Axis, Recoding, Records

__all__ = [
    "NARROW",
    "AllowedCells",
    "Cells",
    "count_cells",
    "find_cells",
    "is_wide",
    "label_totals",
    "read_cells",
    "read_columns",
    "read_groups",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NARROW = 128
"""A column with at most this many codes has a cell for each."""
_EQUAL = 48  # equal parts of a wide column
_PER_DECADE = 8  # parts for each power of ten of the distance from the origin
_DRAWN = 200  # different codes that are drawn of a wide column, about
_SPIKES = 48  # codes of a column that become cells of their own, at most,
_FREQUENT = 2e-4  # and their least share of all codes that stand out
_FALSE = 0.1  # expected number of empty codes that become cells of their own, per column


def is_wide(axis: Axis) -> bool:
    """Return whether a column has too many codes for a cell each."""
    return axis.ordered and axis.size - 1 > NARROW


@dataclass(frozen=True)
class Cells:
    """The cells of one column: where each begins, in codes. The last cell is the code for missing values.

    Examples
    --------
    >>> cells = Cells.of(Axis("pay", 100_001, ordered=True), spikes=[7688])
    >>> cells.size, cells.starts[:5].tolist()
    (89, [0, 1, 2, 3, 4])
    >>> cells.of_codes(np.array([7687, 7688, 7689, 100_000])).tolist()
    [33, 34, 35, 88]
    """

    starts: Ints
    codes: int
    """The number of codes, including the one for missing values."""

    @classmethod
    def of(cls, axis: Axis, spikes: Sequence[int] | Ints = ()) -> Cells:
        """Return the cells of a column, given the codes that are cells of their own."""
        known = axis.size - 1
        if not is_wide(axis):
            return cls(np.arange(axis.size), axis.size)
        equal = np.arange(_EQUAL) * known // _EQUAL
        grown = np.floor(10 ** (np.arange(int(np.log10(known) * _PER_DECADE) + 1) / _PER_DECADE))
        around = np.concatenate([axis.origin + np.append(0, grown), axis.origin - np.append(-1, grown) + 1])
        alone = np.asarray(spikes, dtype=np.int64)
        starts = np.unique(np.concatenate([[0], equal, around, alone, alone + 1]).astype(np.int64))
        return cls(np.append(starts[(starts >= 0) & (starts < known)], known), axis.size)

    @property
    def size(self) -> int:
        """The number of cells, including the one for missing values."""
        return len(self.starts)

    @cached_property
    def widths(self) -> Ints:
        """The number of codes in each cell."""
        return np.diff(self.starts, append=self.codes)

    @cached_property
    def recoding(self) -> Recoding:
        """From codes to cells."""
        return Recoding(self.starts, np.arange(self.size))

    def of_codes(self, codes: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the cell of each code."""
        return self.recoding.of_codes(codes)

    def draw_codes(self, cells: NDArray[np.integer], rng: np.random.Generator, most: int = _DRAWN) -> Ints:
        """Return a code inside each cell, at random, out of at most this many equidistant ones.

        Fewer distinct values are enough: within a cell, nothing is known of the distribution.
        """
        if self.size == self.codes:
            return cells.astype(np.int64)
        kinds = self._kinds(cells, most)
        return self._code(cells, rng.integers(0, kinds), kinds)

    def _kinds(self, cells: NDArray[np.integer], most: int) -> Ints:
        """Return how many codes of each cell are drawn."""
        kinds: Ints = np.minimum(self.widths[cells], max(most // self.size, 4))
        return kinds

    def _code(self, cells: NDArray[np.integer], at: Ints, kinds: Ints) -> Ints:
        """Return one of the equidistant codes of each cell."""
        codes: Ints = self.starts[cells] + (2 * at + 1) * self.widths[cells] // (2 * kinds)
        return codes

    def within(self, allowed: NDArray[np.bool_], most: int = _DRAWN) -> tuple[AllowedCells, Floats]:
        """Return cells of which only the allowed codes are drawn, and the share of each cell's codes that these are.

        Examples
        --------
        >>> some, share = Cells(np.array([0, 1, 5]), 6).within(np.array([False, False, True, True, False, True]))
        >>> share.tolist(), some.draw_codes(np.array([1, 1, 2]), np.random.default_rng(0)).tolist()
        ([0.0, 0.5, 1.0], [3, 3, 5])
        """
        kinds = self._kinds(np.arange(self.size), most)
        cells = np.repeat(np.arange(self.size), kinds)
        place = np.arange(len(cells)) - np.repeat(np.cumsum(kinds) - kinds, kinds)
        codes = self._code(cells, place, kinds[cells])
        kept = allowed[codes]
        counts = np.bincount(cells[kept], minlength=self.size)
        return AllowedCells(self.starts, self.codes, codes[kept], counts), counts / kinds


@dataclass(frozen=True)
class AllowedCells(Cells):
    """Cells of which only some codes are drawn."""

    drawn: Ints
    """These codes, cell by cell."""
    counts: Ints
    """How many of them each cell has."""

    def draw_codes(self, cells: NDArray[np.integer], rng: np.random.Generator, most: int = _DRAWN) -> Ints:
        """Return an allowed code inside each cell, at random; the cell must have one."""
        first = np.cumsum(self.counts) - self.counts
        codes: Ints = self.drawn[first[cells] + rng.integers(0, self.counts[cells])]
        return codes


def stand_out(noisy: Floats, deviation: float) -> Ints:
    """Return the most frequent codes, whose noisy counts are too large for an empty code.

    Examples
    --------
    >>> stand_out(np.array([900.0, 3.0, -4.0, 40.0]), 5.0).tolist()
    [0, 3]
    """
    from scipy.special import ndtri

    least = deviation * float(ndtri(1 - _FALSE / max(len(noisy), 2)))
    clear = np.where(noisy > least, noisy, 0.0)
    few = np.argsort(-clear, kind="stable")[:_SPIKES]
    return np.sort(few[clear[few] > _FREQUENT * clear.sum()])


def find_cells(records: Records, columns: Sequence[int], sums: NoisySums) -> list[Cells]:
    """Return the cells of some columns; those of wide ones after a noisy histogram of their codes."""
    wide = [at for at in columns if is_wide(records.axes[at])]
    spikes: dict[int, Ints] = {}
    if wide:
        norm = math.sqrt(len(wide))
        singles = [Recoding.identity(one.size) for one in records.axes]
        counts = [one[:-1] for one in records.count([(at,) for at in wide], singles)]
        noisy = sums("values", np.concatenate(counts), norm=norm)
        found = np.split(noisy, np.cumsum([len(one) for one in counts])[:-1])
        spikes = {at: stand_out(one, sums.deviation_of("values", norm)) for at, one in zip(wide, found, strict=True)}
    return [Cells.of(records.axes[at], spikes.get(at, ())) for at in columns]


def count_cells(
    records: Records, columns: Sequence[int], cells: Sequence[Cells], sums: NoisySums
) -> tuple[list[Floats], float]:
    """Return the noisy counts of (cell, label) for each column, and their deviation."""
    label, norm = records.label, math.sqrt(len(columns))
    recodings = [Recoding.identity(one.size) for one in records.axes]
    for at, one in zip(columns, cells, strict=True):
        recodings[at] = one.recoding
    wanted = [(at,) if label is None else (at, label) for at in columns]
    # Records without a label are left out: the last code of the label stands for a missing one.
    exact = [one[:, None] if label is None else one[:, :-1] for one in records.count(wanted, recodings)]
    noisy = split(sums("cells", np.concatenate([one.ravel() for one in exact]), norm=norm), [one.size for one in exact])
    found = [one.reshape(had.shape) for one, had in zip(noisy, exact, strict=True)]
    return found, sums.deviation_of("cells", norm)


def label_totals(tables: Sequence[Floats]) -> Floats:
    """Return the number of records of each label: every column counts them all, a sum of fewer cells is less noisy."""
    trust = np.array([1 / len(one) for one in tables])
    sums = np.stack([one.sum(axis=0) for one in tables])
    totals: Floats = np.maximum((trust[:, None] * sums).sum(axis=0) / trust.sum(), 1.0)
    return totals


def read_cells(axes: Sequence[Axis], stored: Stored) -> list[Cells]:
    """Return the cells of columns that somebody wrote to a file."""
    sizes = stored.sizes("cells", len(axes))
    starts = split(stored.array("starts", (sum(sizes),), kind="i"), sizes)
    for axis, one in zip(axes, starts, strict=True):
        if not (np.all(np.diff(one) > 0) and one[0] == 0 and one[-1] == axis.size - 1):
            raise InputError(f"the cells of column '{axis.name[:40]}' must rise from 0 to its last code")
    return [Cells(one.astype(np.int64), axis.size) for axis, one in zip(axes, starts, strict=True)]


def read_columns(axes: Sequence[Axis], label: int | None, state: State) -> tuple[Stored, list[Axis], int, list[Cells]]:
    """Return a state that somebody wrote to a file, its columns beside the label, the number of labels, and the cells.

    Examples
    --------
    >>> axes = [Axis("sex", 3, False), Axis("ill", 3, False)]
    >>> stored, columns, labels, cells = read_columns(axes, 1, State({"cells": [3]}, {"starts": np.arange(3)}))
    >>> [one.name for one in columns], labels, [one.size for one in cells]
    (['sex'], 2, [3])
    """
    stored = Stored(state)
    columns = [axis for at, axis in enumerate(axes) if at != label]
    return stored, columns, 1 if label is None else axes[label].size - 1, read_cells(columns, stored)


def read_groups(stored: Stored, name: str, cells: Sequence[Cells]) -> list[Ints]:
    """Return the groups of each column's cells that somebody wrote to a file, numbered from 0 without gaps."""
    sizes = [one.size for one in cells]
    groups = split(stored.array(name, (sum(sizes),), kind="i", least=0, most=max(sizes)), sizes)
    if any(len(np.unique(one)) != one.max() + 1 for one in groups):
        raise InputError(f"the generator's '{name}' must be numbered from 0 without gaps, column by column")
    return groups

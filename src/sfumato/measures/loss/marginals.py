"""Distances between the original and the released distributions of each column and of each pair.

A released value is spread evenly over the values that it stands for (see `generalised`): a category
over its values, a number or date along its interval.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.released_values import MARK
from sfumato.data.table import Table
from sfumato.errors import OptionError
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing, coverage, pair
from sfumato.measures.loss.universe import Universe

__all__ = ["Binned", "Distances", "along", "binned", "distances", "distances_of", "raw_coverage"]

_MOST_CELLS = 2**20  # of a pair that is counted in one array

Spread = tuple[Coverage, Floats]  # a column, and the share of rows with each of its codes


@dataclass(frozen=True)
class Distances:
    """The distances between original and released distributions, from 0 (equal) to 1.

    Attributes
    ----------
    by_column : the distance of each column; for a number or date, along its range
    by_pair : the total variation distance of each pair of columns
    binned : the total variation distance of each column, with numbers in the bins of the pairs
    bins : the number of bins of a number
    quantiles : whether bins hold equal shares of the original rows, or have equal widths
    """

    by_column: dict[str, float]
    by_pair: dict[tuple[str, str], float]
    binned: dict[str, float]
    bins: int
    quantiles: bool = False

    @property
    def mean_of_columns(self) -> float:
        """The mean total variation distance of the columns."""
        return float(np.mean(list(self.binned.values())))

    @property
    def mean_of_pairs(self) -> float | None:
        """The mean total variation distance of the pairs; None for a single column."""
        return float(np.mean(list(self.by_pair.values()))) if self.by_pair else None

    def to_dict(self) -> dict[str, Any]:
        """Return the distances as plain values."""
        pairs = [{"columns": list(names), "distance": value} for names, value in self.by_pair.items()]
        return {
            "by_column": self.by_column,
            "by_pair": pairs,
            "binned": self.binned,
            "mean_of_columns": self.mean_of_columns,
            "mean_of_pairs": self.mean_of_pairs,
            "bins": self.bins,
            "quantiles": self.quantiles,
        }


def distances(
    original: Table | Any,
    released: Table | Any,
    *,
    columns: Sequence[str] = (),
    bins: int = 10,
    quantiles: bool = False,
    suppressed: str | None = MARK,
) -> Distances:
    """Compare the distributions of each column and of each pair of columns.

    For a category (or text, or ordinal): total variation, half the sum of ``|p_v - q_v|``. For a number or date:
    the earth mover's (1-Wasserstein) distance along the range, divided by the range, at most 1; a difference in
    the share of missing values counts with distance 1. For a pair: total variation of the joint distribution, with
    numbers in bins and a bin for missing values.

    Parameters
    ----------
    original, released : Table, frame or path
        They need not have the same rows, or the same number of rows.
    columns : sequence of str
        The quasi-identifiers of the original's schema by default.
    bins : int
        The number of bins of a number.
    quantiles : bool
        Whether the bins hold about equal shares of the original rows; a value that at least 1/bins of the rows have is
        then a bin of its own. By default the bins have equal widths over the range.
    suppressed : str or None
        The mark of suppression.

    Examples
    --------
    >>> import polars as pl
    >>> original = pl.DataFrame({"age": [0, 50, 100, 100], "sex": ["f", "f", "f", "m"]})
    >>> released = pl.DataFrame({"age": [0, 0, 100, 100], "sex": ["f", "f", "*", "*"]})
    >>> distances(original, released, columns=["age", "sex"]).to_dict()["by_column"]
    {'age': 0.125, 'sex': 0.0}
    >>> distances(original, released, columns=["age", "sex"]).by_pair
    {('age', 'sex'): 0.25}
    """
    return distances_of(pair(original, released, columns, suppressed), bins, quantiles=quantiles)


def distances_of(both: Pairing, bins: int = 10, *, quantiles: bool = False) -> Distances:
    """Compare the distributions of a paired original and release; see `distances`."""
    names = both.names
    if bins < 1:
        raise OptionError(f"bins must be at least 1, got {bins}")
    raw = [raw_coverage(read.universe) for read in both.coverages]
    alone = {
        name: (_along_the_line if read.universe.is_line else _total_variation)(
            (ours, _shares(both.original[:, i], ours, both.records)),
            (read, _shares(both.meaning[:, i], read, both.records)),
        )
        for i, (name, ours, read) in enumerate(zip(names, raw, both.coverages, strict=True))
    }
    sides = binned(both, bins, quantiles=quantiles)
    columns = {name: _apart(*(side[i].alone(both.records) for side in sides)) for i, name in enumerate(names)}
    paired = {
        (names[a], names[b]): _apart(*(side[a].joint(side[b], both.records) for side in sides))
        for a, b in combinations(range(len(names)), 2)
    }
    return Distances(alone, paired, columns, bins, quantiles)


def binned(both: Pairing, bins: int = 10, *, quantiles: bool = False) -> tuple[list[Binned], list[Binned]]:
    """Put the columns of a paired original and release into bins; see `distances`."""
    edges = [
        _edges(read.universe, both.original[:, i], both.records, bins, quantiles=quantiles)
        for i, read in enumerate(both.coverages)
    ]
    ours = [
        Binned.of(raw_coverage(read.universe), both.original[:, i], edges[i]) for i, read in enumerate(both.coverages)
    ]
    theirs = [Binned.of(read, both.meaning[:, i], edges[i]) for i, read in enumerate(both.coverages)]
    return ours, theirs


def raw_coverage(of: Universe) -> Coverage:
    """Return the coverage of the original values: each is itself."""
    return coverage(of, of.values.values, None)


@dataclass(frozen=True, eq=False, repr=False)
class Binned(Discreet):
    """The rows of a column in bins; the last bin is for values that the universe lacks.

    Attributes
    ----------
    of_row : the bin of each row; None if a value lies in several bins
    codes : the code of each row
    shares : the share of each code in each bin
    """

    of_row: NDArray[np.int32] | None
    codes: NDArray[np.int32]
    shares: Any

    @classmethod
    def of(cls, read: Coverage, codes: NDArray[np.int32], edges: Floats) -> Binned:
        """Put the rows into bins between the edges, or on the values of a category."""
        shares = _bin_shares(read, edges)
        single = shares.nnz == len(read) and bool((np.diff(shares.indptr) == 1).all() and (shares.data == 1).all())
        return cls(shares.indices.astype(np.int32)[codes] if single else None, codes, shares)

    @property
    def size(self) -> int:
        """The number of bins."""
        return int(self.shares.shape[1])

    def alone(self, records: Ints | None) -> Floats:
        """Return the share of the rows in each bin; each row counts once, or as often as `records` says."""
        count = np.bincount(self.codes, weights=records, minlength=self.shares.shape[0])
        return np.asarray(self.shares.T @ count) / float(count.sum())

    def joint(self, other: Binned, records: Ints | None) -> Any:
        """Return the share of the rows in each pair of bins."""
        cells = self.size * other.size
        if self.of_row is not None and other.of_row is not None and cells <= _MOST_CELLS:
            place = self.of_row * np.int32(other.size) + other.of_row
            count = np.bincount(place, weights=records, minlength=cells)
            return count.reshape(self.size, other.size) / float(count.sum())
        sparse = importlib.import_module("scipy.sparse")
        of_row = np.ones(len(self.codes)) if records is None else records
        shape = self.shares.shape[0], other.shares.shape[0]
        pairs = sparse.coo_array((of_row, (self.codes, other.codes)), shape=shape).tocsr()
        return self.shares.T @ (pairs @ other.shares) / float(of_row.sum())


def _apart(ours: Any, theirs: Any) -> float:
    """Return the total variation between two distributions."""
    return _tidy(abs(ours - theirs).sum() / 2)


def _shares(codes: NDArray[np.int32], read: Coverage, records: Ints | None) -> Floats:
    count = np.bincount(codes, weights=records, minlength=len(read)).astype(np.float64)
    return count / float(count.sum())


def _tidy(distance: float) -> float:
    """Remove rounding errors, and clip the distance to [0, 1]."""
    return min(max(round(float(distance), 15), 0.0), 1.0)


def _total_variation(ours: Spread, theirs: Spread) -> float:
    outside = theirs[1][theirs[0].outside].sum()
    return _tidy((np.abs(ours[0].spread(ours[1]) - theirs[0].spread(theirs[1])).sum() + outside) / 2)


def _along_the_line(ours: Spread, theirs: Spread) -> float:
    """Integrate |F - G|: both jump at points and rise linearly along intervals, so F - G is linear between breaks."""
    of = ours[0].universe
    missing = [share[np.isnan(read.low)].sum() for read, share in (ours, theirs)]
    both = 1 - max(missing)
    if both <= 0:
        return _tidy(abs(missing[0] - missing[1]))
    breaks = np.unique(np.concatenate([end for read, _ in (ours, theirs) for end in (read.low, read.high)]))
    breaks = breaks[~np.isnan(breaks)]
    apart = _distribution(*ours, breaks) - _distribution(*theirs, breaks)
    start, end = apart[:-1, 0], apart[1:, 1]
    ends = np.abs(start) + np.abs(end)
    triangles = (start**2 + end**2) / np.where(ends > 0, ends, 1)  # where the difference changes sign
    area = float(np.diff(breaks) @ np.where(start * end < 0, triangles, ends)) / 2
    span = of.high - of.low
    return _tidy(abs(missing[0] - missing[1]) + both * (area / span if span > 0 else float(area > 0)))


def _distribution(read: Coverage, share: Floats, breaks: Floats) -> NDArray[np.float64]:
    """Return the distribution function of the known values at each break: after and before its jump."""
    known = ~np.isnan(read.low) & (share > 0)
    low, high, share = read.low[known], read.high[known], share[known] / share[known].sum()
    first, last = np.searchsorted(breaks, low), np.searchsorted(breaks, high)
    point = first == last
    jump = np.bincount(first[point], weights=share[point], minlength=len(breaks))
    slope = share[~point] / (high - low)[~point]
    rise = np.bincount(first[~point], weights=slope, minlength=len(breaks))
    rise -= np.bincount(last[~point], weights=slope, minlength=len(breaks))
    risen = np.concatenate([[0.0], np.cumsum(np.cumsum(rise)[:-1] * np.diff(breaks))])
    jumped = np.cumsum(jump)
    return np.column_stack([risen + jumped, risen + jumped - jump])


def along(read: Coverage, edges: Floats) -> NDArray[np.float64]:
    """Return the share of each released number or date in each bin between the edges; the last column is missing.

    An interval is spread evenly over its length. A number on an edge belongs to the bin above it; one beyond the edges,
    to the first or the last bin.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.universe import universe
    >>> ages = universe(sf.Table(pl.DataFrame({"age": [20, 30, 60]})).encode(["age"]).domains[0])
    >>> along(coverage(ages, pl.Series(["20", "[20, 60]"])), np.array([20, 30, 60])).tolist()
    [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]]
    """
    low, high = (np.clip(end, edges[0], edges[-1])[:, None] for end in (read.low, read.high))
    inside = np.clip(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0, None)
    share = inside / np.where(high > low, high - low, 1)
    point = (high == low)[:, 0]
    last = len(edges) - 2
    share[point] = np.arange(last + 1) == np.clip(np.searchsorted(edges, low[point], side="right") - 1, 0, last)
    missing = np.isnan(read.low)
    return np.column_stack([np.where(missing[:, None], 0.0, share), missing])


def _edges(of: Universe, codes: NDArray[np.int32], records: Ints | None, bins: int, *, quantiles: bool) -> Floats:
    """Return the edges of the bins of a number or date; none for a category."""
    if not of.is_line:
        return np.zeros(0)
    if not quantiles:
        return of.low + np.arange(bins + 1) * ((of.high - of.low) or 1.0) / bins
    known = len(of) - (of.missing is not None)
    count = np.bincount(codes, weights=records, minlength=len(of))[:known]
    frequent = count * bins >= count.sum()
    rest = np.where(frequent, 0, count)
    group = np.floor((np.cumsum(rest) - rest) * bins / max(float(rest.sum()), 1))
    cut = frequent[1:] | frequent[:-1] | (np.diff(group) > 0)
    between = (of.numbers[1:known] + of.numbers[: max(known - 1, 0)]) / 2
    return np.concatenate([[-np.inf], between[cut], [np.inf]])


def _bin_shares(read: Coverage, edges: Floats) -> Any:
    """Return a sparse matrix with the share of each released value in each bin, or on each value, or outside."""
    sparse = importlib.import_module("scipy.sparse")
    of = read.universe
    if of.is_line:
        point = (read.low == read.high) | np.isnan(read.low)
        if point.all():
            last = len(edges) - 2
            place = np.clip(np.searchsorted(edges, read.low, side="right") - 1, 0, last)
            place = np.where(np.isnan(read.low), last + 1, place)
            return sparse.csr_array((np.ones(len(place)), (np.arange(len(place)), place)), shape=(len(read), last + 3))
        inside = along(read, edges)
        return sparse.csr_array(np.column_stack([inside, np.zeros(len(read))]))
    lengths = read.stop - read.first
    row = np.repeat(read.owner, lengths)
    column = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - read.first, lengths)
    outside = np.flatnonzero(read.outside)
    share = np.concatenate([1 / read.size[row], np.ones(len(outside))])
    cells = np.concatenate([row, outside]), np.concatenate([column, np.full(len(outside), len(of))])
    return sparse.csr_array((share, cells), shape=(len(read), len(of) + 1))

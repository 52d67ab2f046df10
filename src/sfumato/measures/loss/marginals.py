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

from sfumato.data.released_values import MARK
from sfumato.data.table import Table
from sfumato.errors import OptionError
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing, coverage, pair

__all__ = ["Distances", "along", "distances", "distances_of"]

Spread = tuple[Coverage, Floats]  # a column, and the share of rows with each of its codes


@dataclass(frozen=True)
class Distances:
    """The distances between original and released distributions, from 0 (equal) to 1.

    Attributes
    ----------
    by_column : the distance of each column
    by_pair : the distance of each pair of columns
    bins : the number of equal bins of a number's range, for the pairs
    """

    by_column: dict[str, float]
    by_pair: dict[tuple[str, str], float]
    bins: int

    def to_dict(self) -> dict[str, Any]:
        """Return the distances as plain values."""
        pairs = [{"columns": list(names), "distance": value} for names, value in self.by_pair.items()]
        return {"by_column": self.by_column, "by_pair": pairs, "bins": self.bins}


def distances(
    original: Table | Any,
    released: Table | Any,
    *,
    columns: Sequence[str] = (),
    bins: int = 10,
    suppressed: str | None = MARK,
) -> Distances:
    """Compare the distributions of each column and of each pair of columns.

    For a category (or text, or ordinal): total variation, half the sum of ``|p_v - q_v|``. For a number or date:
    the earth mover's (1-Wasserstein) distance along the range, divided by the range, at most 1; a difference in
    the share of missing values counts with distance 1. For a pair: total variation of the joint distribution, with
    numbers in equal bins over the range and a bin for missing values.

    Parameters
    ----------
    original, released : Table, frame or path
        They need not have the same rows, or the same number of rows.
    columns : sequence of str
        The quasi-identifiers of the original's schema by default.
    bins : int
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
    return distances_of(pair(original, released, columns, suppressed), bins)


def distances_of(both: Pairing, bins: int = 10) -> Distances:
    """Compare the distributions of a paired original and release; see `distances`."""
    names = both.names
    if bins < 1:
        raise OptionError(f"bins must be at least 1, got {bins}")
    raw = [coverage(read.universe, read.universe.values.values, None) for read in both.coverages]
    alone = {
        name: (_along_the_line if read.universe.is_line else _total_variation)(
            (ours, _shares(both.original[:, i], ours, both.records)),
            (read, _shares(both.meaning[:, i], read, both.records)),
        )
        for i, (name, ours, read) in enumerate(zip(names, raw, both.coverages, strict=True))
    }
    binned = [[_bin_shares(read, bins) for read in table] for table in (raw, both.coverages)]
    paired = {}
    for a, b in combinations(range(len(names)), 2):
        ours = _joint(both.original[:, [a, b]], both.records, binned[0][a], binned[0][b])
        theirs = _joint(both.meaning[:, [a, b]], both.records, binned[1][a], binned[1][b])
        paired[names[a], names[b]] = _tidy(abs(ours - theirs).sum() / 2)
    return Distances(alone, paired, bins)


def _shares(codes: NDArray[np.int32], read: Coverage, records: Ints | None) -> Floats:
    count = np.bincount(codes, weights=records, minlength=len(read)).astype(np.float64)
    return count / float(count.sum())


def _tidy(distance: float) -> float:
    """Remove rounding errors, and clip the distance to [0, 1]."""
    return min(max(round(float(distance), 15), 0.0), 1.0)


def _total_variation(ours: Spread, theirs: Spread) -> float:
    return _tidy(np.abs(ours[0].spread(ours[1]) - theirs[0].spread(theirs[1])).sum() / 2)


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


def _bin_shares(read: Coverage, bins: int) -> Any:
    """Return a sparse matrix with the share of each released value in each bin, or on each value."""
    sparse = importlib.import_module("scipy.sparse")
    of = read.universe
    if not of.is_line:
        lengths = read.stop - read.first
        row = np.repeat(read.owner, lengths)
        column = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - read.first, lengths)
        return sparse.csr_array((1 / read.size[row], (row, column)), shape=(len(read), len(of)))
    span = (of.high - of.low) or 1.0
    return sparse.csr_array(along(read, of.low + np.arange(bins + 1) * span / bins))


def _joint(codes: NDArray[np.int32], records: Ints | None, left: Any, right: Any) -> Any:
    """Spread the pairs of codes over the pairs of bins."""
    sparse = importlib.import_module("scipy.sparse")
    share = np.full(len(codes), 1 / len(codes)) if records is None else records / records.sum()
    pairs = sparse.coo_array((share, (codes[:, 0], codes[:, 1])), shape=(left.shape[0], right.shape[0]))
    return left.T @ (pairs.tocsr() @ right)

"""Compare an original table with its release, in numbers that a page may show.

Nothing that fewer than `SMALLEST_SHOWN` rows of the original table have is shown on its own. Values are grouped into
bins of at least that many rows (see `bins`), smaller cells of two columns are left out, and every share is rounded to
0.1 % or to that many rows, whichever is coarser, so that what is left out cannot be calculated from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.certificate import UNIT
from sfumato.measures.assessment import SMALLEST_SHOWN, Assessment, Profile, round_shares
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Pairing
from sfumato.measures.loss.information_loss import Loss
from sfumato.measures.loss.utility import ModelAccuracy, QueryError
from sfumato.measures.risk.reidentification import Risk
from sfumato.report.bins import Bins, bins_of

__all__ = [
    "CLASS_SIZES",
    "LACKING",
    "Comparison",
    "Joint",
    "Marginal",
    "Standing",
    "apart",
    "compare",
    "joints_of",
    "marginals_of",
    "rows_by_size",
    "size_label",
]

CLASS_SIZES = (1, 2, 3, 5, 10, 20, 50, 100)
"""The smallest class size of each bar of a chart."""

LACKING = "values that the original lacks"
"""The label of a bin."""

_BINS, _BINS_OF_PAIR = 12, 10
_PAIRS = 3  # shown of those that changed most, and of those that were most related


@dataclass(frozen=True)
class Standing:
    """How anonymous a table is, without the classes that decide it.

    Attributes
    ----------
    rows, classes : the rows that are in a class, and the classes
    suppressed : the rows that are in no class
    numbers : the value of each measure as plain JSON; see `Measures`
    risk : the risk of re-identification
    rows_by_size : the rows (or people) in classes of each size range of `CLASS_SIZES`
    unit : what is counted: rows, or people
    """

    rows: int
    classes: int
    suppressed: int
    numbers: dict[str, float | str | None]
    risk: Risk
    rows_by_size: tuple[int, ...]
    unit: str = UNIT

    @classmethod
    def of(cls, assessment: Assessment) -> Standing:
        """Take the numbers of an assessment."""
        a = assessment
        return cls(a.rows, a.classes, a.suppressed, a.numbers(), a.risk, rows_by_size(a.rows_by_class_size), a.unit)

    @property
    def units(self) -> int:
        """The rows, or the people, that are in a class."""
        return sum(self.rows_by_size)

    @property
    def k(self) -> int:
        """The size of the smallest class."""
        return int(self.numbers["k"] or 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {**asdict(self), "rows_by_size": list(self.rows_by_size)}


@dataclass(frozen=True, repr=False)
class Marginal(Discreet):
    """The distribution of a column before and after.

    Attributes
    ----------
    bins : the label of each bin
    before, after : the share of the rows in each bin
    moved : the share of the rows in a different bin afterwards: half the sum of the differences
    replaced : the share of the rows with a single value that is not their own, such as the mean of a class
    """

    column: str
    bins: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    moved: float
    replaced: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the distributions as plain values."""
        lists = {name: list(getattr(self, name)) for name in ("bins", "before", "after")}
        return {"column": self.column, **lists, "moved": self.moved, "replaced": self.replaced}


@dataclass(frozen=True, repr=False)
class Joint(Discreet):
    """The joint distribution of two columns before and after.

    Attributes
    ----------
    bins : the labels of the bins of the first column and of the second
    before : the share of the rows by bin of the first column, then of the second; None for too few rows
    after : the same of the release
    unshown : the share of the original rows in cells with too few rows to show
    moved : the share of the rows in a different cell afterwards
    related : how far the two columns were from independent: the share of rows that would have to move
    """

    columns: tuple[str, str]
    bins: tuple[tuple[str, ...], tuple[str, ...]]
    before: tuple[tuple[float | None, ...], ...]
    after: tuple[tuple[float, ...], ...]
    unshown: float
    moved: float
    related: float

    def to_dict(self) -> dict[str, Any]:
        """Return the distributions as plain values."""
        lists = {name: [list(row) for row in getattr(self, name)] for name in ("bins", "before", "after")}
        numbers = {"unshown": self.unshown, "moved": self.moved, "related": self.related}
        return {"columns": list(self.columns), **lists, **numbers}


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Discreet):
    """A comparison of an original table with its release, made by `compare`.

    Attributes
    ----------
    before, after : how anonymous each is
    loss : the information loss
    columns : the distribution of each quasi-identifier
    pairs : the joint distribution of a few pairs of columns: those that changed most, then those that were most
        related; pairs of one group have no column in common
    all_pairs : the number of pairs of columns
    accuracy : the accuracy of models trained on each, if measured
    queries : the error of counting queries on the release, if measured
    others : profiles of the columns that are released as they are
    notes : what could not be compared, and why
    """

    before: Standing
    after: Standing
    loss: Loss
    columns: tuple[Marginal, ...]
    pairs: tuple[Joint, ...]
    all_pairs: int
    accuracy: tuple[ModelAccuracy, ...] = ()
    queries: QueryError | None = None
    others: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def replaced(self) -> float:
        """The share of quasi-identifier values that were replaced by another value."""
        return float(np.mean([one.replaced for one in self.columns])) if self.columns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, ready for JSON."""
        return {
            "class_sizes": [size_label(position) for position in range(len(CLASS_SIZES))],
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "loss": self.loss.to_dict(),
            "columns": [one.to_dict() for one in self.columns],
            "pairs": [one.to_dict() for one in self.pairs],
            "all_pairs": self.all_pairs,
            "accuracy": [one.to_dict() for one in self.accuracy],
            "queries": self.queries and self.queries.to_dict(),
            "others": [one.to_dict() for one in self.others],
        }


def compare(
    both: Pairing,
    before: Assessment,
    after: Assessment,
    lost: Loss,
    *,
    accuracy: Sequence[ModelAccuracy] | None = None,
    queries: QueryError | None = None,
    others: Sequence[Profile] = (),
) -> Comparison:
    """Compare an original table with its release, without revealing what only a few people have.

    A released value is spread over the values it stands for, as in `distances`.

    Parameters
    ----------
    both : Pairing
        The quasi-identifiers of both tables; see `pair`.
    before, after : Assessment
        The assessments of the original and of the release.
    lost : Loss
    accuracy : sequence of ModelAccuracy, optional
    queries : QueryError, optional
    others : sequence of Profile
        Profiles of the unchanged columns of the release.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.generalised import pair
    >>> from sfumato.measures.loss.information_loss import loss_of
    >>> raw = pl.DataFrame({"sex": ["f", "m"] * 50, "age": range(100)})
    >>> halves = raw.with_columns(age=pl.Series(["[0, 49]"] * 50 + ["[50, 99]"] * 50))
    >>> both = pair(raw, halves, ["sex", "age"])
    >>> before, after = (sf.assess(table, qi=["sex", "age"]) for table in (raw, halves))
    >>> result = compare(both, before, after, loss_of(both))
    >>> result.before.k, result.after.k
    (1, 25)
    >>> result.columns[0].bins, result.columns[0].after
    (('f', 'm'), (0.5, 0.5))
    """
    return Comparison(
        before=Standing.of(before),
        after=Standing.of(after),
        loss=lost,
        columns=tuple(
            replace(one, replaced=_replaced(both, position)) for position, one in enumerate(marginals_of(both))
        ),
        pairs=tuple(_pairs(both)),
        all_pairs=len(both.names) * (len(both.names) - 1) // 2,
        accuracy=tuple(accuracy or ()),
        queries=queries,
        others=tuple(others),
    )


def rows_by_size(rows_by_class_size: dict[int, int]) -> tuple[int, ...]:
    """Return the number of rows in classes of each size range of `CLASS_SIZES`.

    Examples
    --------
    >>> rows_by_size({1: 5, 3: 6, 4: 4, 200: 200})
    (5, 0, 10, 0, 0, 0, 0, 200)
    """
    bar = np.searchsorted(CLASS_SIZES, list(rows_by_class_size), side="right") - 1
    rows = np.bincount(bar, weights=list(rows_by_class_size.values()), minlength=len(CLASS_SIZES))
    return tuple(int(one) for one in rows)


def size_label(position: int) -> str:
    """Return the label of a bar of class sizes.

    Examples
    --------
    >>> [size_label(position) for position in (0, 2, 7)]
    ['1', '3-4', '100+']
    """
    low, *rest = CLASS_SIZES[position:]
    return f"{low}+" if not rest else str(low) if rest[0] == low + 1 else f"{low}-{rest[0] - 1}"


def marginals_of(both: Pairing) -> list[Marginal]:
    """Return the distribution of each column of a paired original and release, which may have other rows."""
    marginals = []
    for position, (name, read) in enumerate(zip(both.names, both.coverages, strict=True)):
        total = _totals(both, position)
        bins = bins_of(read.universe, total, _BINS)
        before = np.bincount(bins.of_value, weights=total, minlength=len(bins)) / both.rows
        records = np.bincount(both.meaning[:, position], weights=both.records, minlength=len(read))
        after = records @ bins.share(read) / records.sum()
        moved, labels = _moved(before, after, both.rows), bins.labels
        lacking = records[read.outside].sum() / records.sum()
        if round_shares(lacking, both.rows) > 0:
            labels, before, after = (*labels, LACKING), np.append(before, 0.0), np.append(after, lacking)
        shown = [tuple(round_shares(shares, both.rows).tolist()) for shares in (before, after)]
        marginals.append(Marginal(name, labels, shown[0], shown[1], moved))
    return marginals


def _totals(both: Pairing, position: int) -> Ints:
    """Return the number of original rows with each value of a column."""
    size = len(both.coverages[position].universe)
    return np.bincount(both.original[:, position], weights=both.records, minlength=size).astype(np.int64)


def _replaced(both: Pairing, position: int) -> float:
    """Return the share of rows whose released value is a single value other than their own."""
    read, ours, theirs = both.coverages[position], both.original[:, position], both.meaning[:, position]
    other = read.exact[theirs] & ~read.covers(theirs, ours)
    return float(round_shares(np.average(other, weights=both.records), both.rows))


def _pairs(both: Pairing) -> list[Joint]:
    """Return the joint distributions of the pairs that changed most, then of those that were most related."""
    found = joints_of(both, list(combinations(range(len(both.names)), 2)))
    found.sort(key=lambda one: -one.moved)
    if len(found) <= 2 * _PAIRS:
        return found
    changed = [found[at] for at in apart([one.columns for one in found], _PAIRS)]
    others = sorted((one for one in found if one not in changed), key=lambda one: -one.related)
    return changed + [others[at] for at in apart([one.columns for one in others], _PAIRS)]


def joints_of(both: Pairing, pairs: Sequence[tuple[int, int]]) -> list[Joint]:
    """Return the joint distributions of pairs of columns, by position."""
    used = {at for one in pairs for at in one}
    bins = {at: bins_of(both.coverages[at].universe, _totals(both, at), _BINS_OF_PAIR) for at in sorted(used)}
    regions, records = both.regions
    spread = {at: one.share(both.coverages[at])[regions[:, at]] for at, one in bins.items()}
    found = []
    for a, b in pairs:
        shape = len(bins[a]), len(bins[b])
        place = bins[a].of_value[both.original[:, a]] * shape[1] + bins[b].of_value[both.original[:, b]]
        count = np.bincount(place, weights=both.records, minlength=shape[0] * shape[1])
        after = (spread[a] * records[:, None]).T @ spread[b] / records.sum()
        found.append(_joint(both, (a, b), (bins[a], bins[b]), count.astype(np.int64).reshape(shape), after))
    return found


def apart(ranked: Sequence[tuple[str, str]], most: int) -> list[int]:
    """Return the first few pairs without a common column: a column that changed much would be in all of them.

    Examples
    --------
    >>> apart([("a", "b"), ("b", "c"), ("c", "d"), ("e", "f")], 2)
    [0, 2]
    """
    chosen: list[int] = []
    for at, one in enumerate(ranked):
        if len(chosen) < most and not any(set(one) & set(ranked[other]) for other in chosen):
            chosen.append(at)
    return chosen


def _joint(
    both: Pairing, pair: tuple[int, int], bins: tuple[Bins, Bins], count: Ints, after: NDArray[np.float64]
) -> Joint:
    before = count / both.rows
    few = count < SMALLEST_SHOWN
    shown = np.where(few, np.nan, round_shares(before, both.rows)).tolist()
    return Joint(
        columns=(both.names[pair[0]], both.names[pair[1]]),
        bins=(bins[0].labels, bins[1].labels),
        before=tuple(tuple(None if share != share else share for share in row) for row in shown),
        after=tuple(map(tuple, round_shares(after, both.rows).tolist())),
        unshown=float(round_shares(before[few].sum(), both.rows)),
        moved=_moved(before, after, both.rows),
        related=_moved(before, np.outer(before.sum(axis=1), before.sum(axis=0)), both.rows),
    )


def _moved(before: Floats, after: Floats, rows: int) -> float:
    """Return the total variation between two distributions; what the second lacks is elsewhere."""
    elsewhere = max(1 - float(after.sum()), 0.0)
    return float(round_shares((np.abs(before - after).sum() + elsewhere) / 2, rows))

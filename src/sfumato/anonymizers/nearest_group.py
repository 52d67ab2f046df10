"""Assign tuples to fitted groups: a known tuple to its own group, a new one to the nearest.

The nearest group is the one that must be widened least to contain the tuple: by the distance of a number, date or
ordinal from its range, and by one more value of a category. Ties go to the first group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.problem import APART, Problem, ValueLine
from sfumato.data.coding import Domain, positions_in
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Kind
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import ColumnError
from sfumato.measures.classes import Floats, Ints, ranges

__all__ = ["known_codes", "nearest_groups", "places_on"]

_MOST_PAIRS = 2_000_000  # pairs of tuples and groups compared at a time
_UNSEEN = -1


def nearest_groups(problem: Problem, groups: Ints, tuples: Tuples) -> Ints:
    """Return the group of each tuple of quasi-identifiers.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> old, new = (sf.Table(pl.DataFrame({"age": ages})) for ages in ([20, 30, 41, 60], [30, 38, 90]))
    >>> problem = Problem.of(reduce(old, ["age"]), ["age"], [], [])
    >>> nearest_groups(problem, np.array([0, 0, 1, 1]), reduce(new, ["age"])).tolist()
    [0, 1, 1]
    """
    codes = np.column_stack(
        [
            _old_codes(known, tuples.domains[column])[tuples.codes[:, column]]
            for column, known in enumerate(problem.domains)
        ]
    )
    found = np.full(len(codes), _UNSEEN)
    seen = (codes != _UNSEEN).all(axis=1)
    sizes = [len(domain) for domain in problem.domains]
    _, of_row = group(np.concatenate([problem.codes, codes[seen]]), sizes)
    group_of = np.full(int(of_row.max()) + 1, _UNSEEN)
    group_of[of_row[: len(problem)]] = groups
    found[seen] = group_of[of_row[len(problem) :]]
    unseen = np.flatnonzero(found == _UNSEEN)
    if len(unseen):
        found[unseen] = _nearest(problem, groups, tuples, codes, unseen)
    return found


def known_codes(known: Domain, new: Domain) -> Ints:
    """Return the fitted code of each value, or -1 if it is new."""
    fitted, values = _comparable(known, new)
    return positions_in(values, fitted).cast(pl.Int64).fill_null(_UNSEEN).to_numpy()


def _old_codes(known: Domain, new: Domain) -> Ints:
    """Return the fitted code of each value; only numbers, dates and declared ordinals may be new."""
    codes = known_codes(known, new)
    ranks = _ranks(known)
    if ranks is not None:
        strange = sum(code == _UNSEEN and new.label(at) not in ranks for at, code in enumerate(codes.tolist()))
    elif known.values.dtype.is_numeric() or known.values.dtype.is_temporal():
        strange = 0
    else:
        strange = int((codes == _UNSEEN).sum())
    if strange:
        raise ColumnError(
            f"column '{known.name}' holds {strange} value(s) that the fitted table lacks",
            hint="fit a table that has them all, or map them to known values first",
        )
    return codes


def _nearest(problem: Problem, groups: Ints, tuples: Tuples, codes: NDArray[np.int64], rows: Ints) -> Ints:
    """Return the nearest group of each of the rows."""
    number = int(groups.max()) + 1
    beyond: list[_Widening] = []
    at: list[NDArray[Any]] = []
    for column, (known, line) in enumerate(zip(problem.domains, problem.lines, strict=True)):
        new = codes[:, column]
        beyond.append((_out_of_range if line.ordered else _one_more)(problem.codes[:, column], line, groups, number))
        at.append(places_on(known, line, tuples.domains[column])[tuples.codes[:, column]] if line.ordered else new)
    nearest = np.empty(len(rows), dtype=np.int64)
    step = max(1, _MOST_PAIRS // number)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        away = np.zeros((len(some), number))
        for widening, place in zip(beyond, at, strict=True):
            away += widening(place[some])
        nearest[start : start + step] = away.argmin(axis=1)
    return nearest


_Widening = Callable[[NDArray[Any]], Floats]  # the widening that each group needs to contain each value


def _out_of_range(of_tuple: NDArray[np.int32], line: ValueLine, groups: Ints, number: int) -> _Widening:
    """Measure the distance of a place on a line from the range of each group."""
    low, high = np.full(number, np.inf), np.full(number, -np.inf)
    np.minimum.at(low, groups, line.place[of_tuple])
    np.maximum.at(high, groups, line.place[of_tuple])
    return lambda place: np.maximum(np.maximum(low - place[:, None], place[:, None] - high), 0.0)


def _one_more(of_tuple: NDArray[np.int32], line: ValueLine, groups: Ints, number: int) -> _Widening:
    """Measure the cost of one more value of a category for groups that lack it."""
    held = np.unique(of_tuple.astype(np.int64) * number + groups)  # sparse: a matrix of both might be huge
    holder, start = held % number, np.searchsorted(held // number, np.arange(len(line.position) + 1))

    def cost(code: NDArray[Any]) -> Floats:
        away = np.full((len(code), number), 1 / max(line.size - 1, 1))
        row, at = ranges(start[code], start[code + 1])
        away[row, holder[at]] = 0.0
        return away

    return cost


def places_on(known: Domain, line: ValueLine, new: Domain) -> Floats:
    """Return the places of new values on the line of the known ones; values beyond it are at its ends."""
    ranks = _ranks(known)
    if ranks is not None:
        of_label = [ranks.get(new.label(code), np.nan) for code in range(len(new))]
        place = np.array(of_label, dtype=np.float64) / max(len(ranks) - 1, 1)
        return np.where(np.isnan(place), APART, place)
    numbers, at = map(_numbers, _comparable(known, new))
    there = ~np.isnan(numbers)
    if not there.any():
        return np.full(len(at), APART)
    order = np.argsort(numbers[there], kind="stable")
    place = np.interp(at, numbers[there][order], line.place[there][order])
    return np.where(np.isnan(at), APART, place)


def _ranks(known: Domain) -> dict[str, int] | None:
    """Return the rank of each value of an ordinal column with a declared order, else None."""
    if known.column.kind is not Kind.ORDINAL or known.column.domain is None:
        return None
    return {text_of(value): rank for rank, value in enumerate(known.column.domain)}


def _comparable(known: Domain, new: Domain) -> tuple[pl.Series, pl.Series]:
    """Return the known and the new values in a common type, without loss."""
    fitted, values = known.values, new.values
    alike = fitted.dtype == values.dtype or pl.Null in (fitted.dtype, values.dtype)
    alike |= fitted.dtype.is_numeric() and values.dtype.is_numeric()
    alike |= all(isinstance(dtype, pl.Date | pl.Datetime) for dtype in (fitted.dtype, values.dtype))
    alike |= all(isinstance(dtype, pl.Duration) for dtype in (fitted.dtype, values.dtype))
    try:
        if alike:
            both = pl.concat([fitted.to_frame("x"), values.to_frame("x")], how="vertical_relaxed")["x"]
            return both.head(len(fitted)), both.slice(len(fitted))
    except pl.exceptions.PolarsError:  # times with and without a time zone
        pass
    raise ColumnError(f"column '{known.name}' holds {values.dtype} values, but {fitted.dtype} in the fitted table")


def _numbers(values: pl.Series) -> Floats:
    physical = values.to_physical() if values.dtype.is_temporal() else values
    if not physical.dtype.is_numeric() and physical.dtype != pl.Boolean:
        return np.arange(len(values), dtype=np.float64)  # ordinals are all known, so only their order counts
    return physical.cast(pl.Float64).fill_null(np.nan).to_numpy()

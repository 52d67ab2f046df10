"""Find the group of a tuple that was not there when the groups were made: the one that is nearest.

A tuple that was there goes to its own group. Another goes to the group that would have to be
widened least to hold it: by how far a number, date or ordinal lies outside its range, and by one
more value of a category. Ties go to the first group.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._errors import ColumnError
from sfumato.anonymizers.problem import APART, Line, Problem
from sfumato.data.coding import Domain
from sfumato.engines.tuples import Tuples, group
from sfumato.measures.counts import Floats, Ints

__all__ = ["nearest_groups"]

_MOST_PAIRS = 2_000_000  # tuples by groups that are compared at a time
_UNSEEN = -1


def nearest_groups(problem: Problem, groups: Ints, tuples: Tuples) -> Ints:
    """Return the group of each of the tuples, which have the quasi-identifiers as columns.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines.reduce import reduce
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


def _old_codes(known: Domain, new: Domain) -> Ints:
    """Return the old code of each new value; a number or date that was not there has none."""
    try:
        values = _comparable(known, new).rename("value").to_frame()
        look_up = known.values.cast(values["value"].dtype).rename("value").to_frame().with_row_index("code")
        joined = values.join(look_up, on="value", how="left", nulls_equal=True, maintain_order="left")
    except pl.exceptions.PolarsError:
        raise ColumnError(
            f"column '{known.name}' holds {new.values.dtype} values, but {known.values.dtype} when it was learnt"
        ) from None
    codes = joined["code"].cast(pl.Int64).fill_null(_UNSEEN).to_numpy()
    missing = int((codes == _UNSEEN).sum())
    if missing and not (known.values.dtype.is_numeric() or known.values.dtype.is_temporal()):
        raise ColumnError(
            f"column '{known.name}' holds {missing} value(s) that were not there when it was learnt",
            hint="learn a table that has them all, or map them to known ones first",
        )
    return codes


def _nearest(problem: Problem, groups: Ints, tuples: Tuples, codes: NDArray[np.int64], rows: Ints) -> Ints:
    """Return the group nearest to each of these rows."""
    number = int(groups.max()) + 1
    nearest = np.empty(len(rows), dtype=np.int64)
    step = max(1, _MOST_PAIRS // number)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        away = np.zeros((len(some), number))
        for column, line in enumerate(problem.lines):
            away += _widening(problem, column, line, groups, number, tuples, codes[some, column], some)
        nearest[start : start + step] = away.argmin(axis=1)
    return nearest


def _widening(
    problem: Problem,
    column: int,
    line: Line,
    groups: Ints,
    number: int,
    tuples: Tuples,
    code: NDArray[np.int64],
    rows: Ints,
) -> Floats:
    """Return how much each group would have to be widened in one column to hold each row."""
    of_tuple = problem.codes[:, column]
    if not line.ordered:
        holds = np.zeros((number, len(line.position)), dtype=bool)
        holds[groups, of_tuple] = True
        return np.asarray(~holds[:, code].T, dtype=np.float64) / max(line.size - 1, 1)
    low, high = np.full(number, np.inf), np.full(number, -np.inf)
    np.minimum.at(low, groups, line.place[of_tuple])
    np.maximum.at(high, groups, line.place[of_tuple])
    place = _places(problem.domains[column], line, tuples.domains[column])[tuples.codes[rows, column]][:, None]
    beyond: Floats = np.maximum(np.maximum(low - place, place - high), 0.0)
    return beyond


def _places(known: Domain, line: Line, new: Domain) -> Floats:
    """Return where new values lie on the line of the known ones; those beyond it lie at its ends."""
    numbers = _numbers(known.values)
    at = _numbers(_comparable(known, new))
    there = np.isfinite(numbers)
    if not there.any():
        return np.full(len(at), APART)
    order = np.argsort(numbers[there], kind="stable")
    place = np.interp(at, numbers[there][order], line.place[there][order])
    return np.where(np.isfinite(at), place, APART)


def _comparable(known: Domain, new: Domain) -> pl.Series:
    """Return the new values in the type of the known ones; 1.5 among whole numbers stays what it is."""
    fractions = known.values.dtype.is_integer() and new.values.dtype.is_float()
    return new.values.cast(pl.Float64 if fractions else known.values.dtype)


def _numbers(values: pl.Series) -> Floats:
    physical = values.to_physical() if values.dtype.is_temporal() else values
    if not physical.dtype.is_numeric() and physical.dtype != pl.Boolean:
        return np.arange(len(values), dtype=np.float64)  # ordinals are all known: only their order counts
    return physical.cast(pl.Float64).fill_null(np.nan).to_numpy()

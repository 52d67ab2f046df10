"""Conditions such as "age is at least 80 and sex is f": found in released rows, counted among records.

A generalised value is a condition on the values that it stands for. A released row meets a condition on a number by
the middle of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.tables.reading import cover
from sfumato.engines.tuples import group
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing

__all__ = ["AT_LEAST", "AT_MOST", "IS", "Conditions", "ReleasedRows", "joined", "met"]

IS, AT_MOST, AT_LEAST = 0, 1, 2
"""The signs of the parts of a condition."""

_CELLS = 4_000_000  # pairs of conditions and rows that are compared at a time
_SOURCES = 4000  # released rows that conditions are built from

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Conditions(Discreet):
    """Conditions: conjunctions of the form "column is, is at most, or is at least, the value of a released row".

    All arrays have a row per condition and a column per part: the column of the table, the sign, and the code of the
    released value.
    """

    column: Ints
    sign: Ints
    code: Ints

    def __len__(self) -> int:
        return len(self.column)

    def take(self, which: NDArray[Any]) -> Conditions:
        """Return some of the conditions."""
        return Conditions(self.column[which], self.sign[which], self.code[which])


class ReleasedRows(Discreet):
    """The released rows, and the conditions that they suggest."""

    def __init__(self, both: Pairing, rng: np.random.Generator, *, distinct: bool) -> None:
        self.both = both
        rows = both.meaning
        if distinct:
            rows = rows[group(rows, [len(read) for read in both.coverages])[0]]
        self.rows = rows[rng.permutation(len(rows))].astype(np.int64)
        self.middle = [_middle(read) for read in both.coverages]
        self._bits: dict[int, tuple[Ints, NDArray[np.uint8]]] = {}

    def signs(self, column: int, code: Ints) -> Ints:
        """Return the sign that singles out best: at least, for numbers above the median; at most, for others."""
        at = self.middle[column]
        known = at[self.rows[:, column]]
        known = known[~np.isnan(known)]
        median = np.median(known) if len(known) else np.nan
        return np.where(np.isnan(at[code]), IS, np.where(at[code] > median, AT_LEAST, AT_MOST))

    def around(self, number: int, width: int, rng: np.random.Generator) -> Conditions:
        """Return conditions that random rows meet."""
        columns = rng.random((number, len(self.both.coverages))).argsort(axis=1)[:, :width]
        columns.sort(axis=1)
        code = self.rows[rng.integers(0, min(len(self.rows), _SOURCES), number)[:, None], columns]
        sign = np.full(code.shape, IS)
        for column in range(len(self.both.coverages)):
            here = columns == column
            sign[here] = self.signs(column, code[here])
        return Conditions(columns, sign, code)

    def random(self, number: int, width: int, rng: np.random.Generator) -> Conditions:
        """Return conditions with random columns, released values and signs."""
        found = self.around(number, width, rng)
        code = np.empty_like(found.code)
        sign = rng.integers(0, 3, code.shape)
        for column, at in enumerate(self.middle):
            here = found.column == column
            code[here] = self.rows[rng.integers(0, len(self.rows), int(here.sum())), column]
            sign[here] = np.where(np.isnan(at[code[here]]), IS, sign[here])
        return Conditions(found.column, sign, code)

    def once(self, column: int) -> Conditions:
        """Return the conditions on one column that a single row meets."""
        read, at = self.both.coverages[column], self.middle[column]
        count = np.bincount(self.rows[:, column], minlength=len(read))
        code = np.flatnonzero((count == 1) & ~read.everything)
        sign = np.full(len(code), IS)
        known = np.flatnonzero((count > 0) & ~np.isnan(at))
        if len(known):
            ends = known[[np.argmin(at[known]), np.argmax(at[known])]]
            signs = np.array([AT_MOST, AT_LEAST])
            single = self._part(column, signs, ends).sum(axis=1) == 1
            code, sign = np.concatenate([code, ends[single]]), np.concatenate([sign, signs[single]])
        return Conditions(np.full((len(code), 1), column), sign[:, None], code[:, None])

    def met(self, conditions: Conditions) -> Ints:
        """Return the number of rows that meet each condition; conditions must be `around` rows."""
        meets = self._bits_of(conditions.column[:, 0], conditions.code[:, 0])
        for part in range(1, conditions.column.shape[1]):
            meets &= self._bits_of(conditions.column[:, part], conditions.code[:, part])
        return np.asarray(np.bitwise_count(meets).sum(axis=1, dtype=np.int64))

    def _bits_of(self, column: Ints, code: Ints) -> NDArray[np.uint8]:
        """Return the rows that meet each part of a condition, as bits."""
        bits = np.empty((len(column), -(-len(self.rows) // 8)), dtype=np.uint8)
        for one in np.unique(column).tolist():
            here = np.flatnonzero(column == one)
            if one not in self._bits:
                codes = np.unique(self.rows[:_SOURCES, one])
                step = max(1, _CELLS // len(self.rows))
                blocks = [codes[start : start + step] for start in range(0, len(codes), step)]
                packed = [np.packbits(self._part(one, self.signs(one, block), block), axis=1) for block in blocks]
                self._bits[one] = codes, np.concatenate(packed)
            codes, packed_bits = self._bits[one]
            bits[here] = packed_bits[np.searchsorted(codes, code[here])]
        return bits

    def _part(self, column: int, sign: Ints, code: Ints) -> Bools:
        read, theirs, at = self.both.coverages[column], self.rows[:, column], self.middle[column]
        low, high = _ends(read, self.middle[column])
        place = at[theirs]
        return np.asarray(
            np.where(
                sign[:, None] == IS,
                theirs == code[:, None],
                np.where(sign[:, None] == AT_MOST, place <= high[code][:, None], place >= low[code][:, None]),
            )
        )


def met(both: Pairing, conditions: Conditions, records: Ints, owners: Ints | None = None) -> Ints:
    """Return the number of records that meet each condition, or of people with such a record.

    If `owners` says whose each record is, all records of a person come together.
    """
    first = np.arange(len(records)) if owners is None else np.flatnonzero(np.diff(owners, prepend=-1))
    found = np.empty(len(conditions), dtype=np.int64)
    step = max(1, _CELLS // len(records))
    for start in range(0, len(conditions), step):
        some = conditions.take(np.arange(start, min(start + step, len(conditions))))
        meets = np.ones((len(some), len(records)), dtype=bool)
        for part in range(some.column.shape[1]):
            for column in np.unique(some.column[:, part]).tolist():
                here = np.flatnonzero(some.column[:, part] == column)
                ours = both.original[records, column].astype(np.int64)
                meets[here] &= _part_met(both.coverages[column], some.sign[here, part], some.code[here, part], ours)
        if len(first) < len(records):
            meets = np.logical_or.reduceat(meets, first, axis=1)
        found[start : start + step] = meets.sum(axis=1)
    return found


def _part_met(read: Coverage, sign: Ints, code: Ints, ours: Ints) -> Bools:
    """Return whether each record meets each part: by the values covered, or by its place on the line."""
    meets = np.zeros((len(code), len(ours)), dtype=bool)
    same = np.flatnonzero(sign == IS)
    inside = cover(read, code[same])
    meets[same] = inside[:, ours]
    rest = np.flatnonzero(sign != IS)
    if len(rest):
        place = _places(read)[ours]
        low, high = _ends(read, _middle(read))
        limit = np.where(sign[rest] == AT_MOST, high[code[rest]], low[code[rest]])[:, None]
        meets[rest] = np.where(sign[rest, None] == AT_MOST, place <= limit, place >= limit)
    return meets


def _places(read: Coverage) -> Floats:
    """Return the place of each value of the universe on a line; NaN for missing values and categories."""
    of = read.universe
    return of.numbers if of.is_line else np.full(len(of), np.nan)


def _middle(read: Coverage) -> Floats:
    """Return the middle of each released value on a line; NaN for missing values, marks and categories."""
    if not read.universe.is_line:
        return np.full(len(read), np.nan)
    return np.where(read.everything, np.nan, (read.low + read.high) / 2)


def _ends(read: Coverage, middle: Floats) -> tuple[Floats, Floats]:
    return np.where(np.isnan(middle), np.nan, read.low), np.where(np.isnan(middle), np.nan, read.high)


def joined(parts: Sequence[Conditions], width: int) -> Conditions:
    """Return all conditions of several lists, with so many parts each."""
    none = np.zeros((0, width), dtype=np.int64)
    columns = [np.concatenate([none, *(getattr(one, name) for one in parts)]) for name in ("column", "sign", "code")]
    return Conditions(*columns)

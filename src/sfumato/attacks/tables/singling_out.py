"""Singling-out: a condition that a single released row meets is also met by a single person.

As in Giomi, Boenisch, Wehmeyer and Tasnádi, *A unified framework for quantifying privacy risk in synthetic data*,
Proceedings on Privacy Enhancing Technologies 2023(2), with these differences from its package anonymeter: a condition
that cannot be found counts as a failed guess, so that there are never fewer guesses than asked for; the columns take
turns; and members and control are samples of the same size, because a condition singles people out of a large table
more rarely than out of a small one.

A generalised value is a condition on the values that it stands for. A released row meets a condition on a number by
the middle of its range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.attacks.tables.reading import cover, known_columns, read_pairing
from sfumato.data.validate import whole
from sfumato.engines.tuples import group
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing

__all__ = ["SinglingOut", "SinglingOutUnivariate"]

_CELLS = 4_000_000  # pairs of conditions and rows that are compared at a time
_BYTES = 16_000_000  # of bits of rows that are compared at a time
_SOURCES = 4000  # released rows that conditions are built from
_TRIES = 200  # conditions that are tried for each one asked for
Bools = NDArray[np.bool_]
IS, AT_MOST, AT_LEAST = 0, 1, 2


@dataclass(frozen=True, eq=False, repr=False)
class _Conditions(Discreet):
    """Conditions: conjunctions of the form "column is, is at most, or is at least, the value of a released row".

    All arrays have a row per condition and a column per part: the column of the table, the sign, and the code of the
    released value.
    """

    column: Ints
    sign: Ints
    code: Ints

    def __len__(self) -> int:
        return len(self.column)

    def take(self, which: NDArray[Any]) -> _Conditions:
        return _Conditions(self.column[which], self.sign[which], self.code[which])


class SinglingOut(Attack):
    """Single people out by conditions on several columns, each found in the release.

    Parameters
    ----------
    queries : int
        The number of conditions.
    columns : int
        The number of columns in a condition.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import SyntheticTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40, 50], "sex": ["f", "m", "f", "m"]})
    >>> outside = pl.DataFrame({"age": [25, 25, 35, 35], "sex": ["f", "m", "f", "m"]})
    >>> target = SyntheticTarget(inside, sf.Table(inside).schema)
    >>> found = SinglingOut(queries=4).run(target, Records(inside), Records(outside), seed=0)
    >>> found.members.tolist(), dict(found.details)
    ([1.0, 1.0, 1.0, 1.0], {'asked': 4, 'found': 4, 'columns': 2})
    """

    name = "singling-out"
    question = "Is there a single person with these values, as there is a single released row?"
    targets = ("table", "synthetic")
    guesses = True

    def __init__(self, *, queries: int = 500, columns: int = 3) -> None:
        self.queries = whole("the number of conditions", queries, least=2)
        self.columns = whole("the number of columns of a condition", columns)

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Find conditions, and count the people who meet them."""
        both = read_pairing(target, members, nonmembers, known_columns(target))
        rng = np.random.default_rng(seed)
        size = min(len(members), len(nonmembers))
        inside = rng.permutation(len(members))[:size]
        outside = len(members) + rng.permutation(len(nonmembers))[:size]
        release = _Release(both, rng, distinct=target.kind == "synthetic")
        width = min(self.columns, len(both.coverages))
        found = self._find(release, width, rng)
        scores = []
        for some in (inside, outside):
            score = np.zeros(self.queries)  # a condition that was not found has failed
            score[: len(found)] = _met(both, found, some) == 1
            scores.append(score)
        chance = float(np.mean(_met(both, release.random(self.queries, width, rng), inside) == 1))
        details = {"asked": self.queries, "found": len(found), "columns": width}
        baseline = Baseline(chance, "random conditions on as many columns")
        return Scores(scores[0], scores[1], baseline, details=details)

    def _find(self, release: _Release, width: int, rng: np.random.Generator) -> _Conditions:
        """Return conditions that a single released row meets, as many as asked for if there are so many."""
        found = _joined([], width)
        tries = max(1, min(_BYTES * 8 // len(release.rows), 20 * self.queries))
        for _ in range(max(1, _TRIES * self.queries // tries)):
            tried, before = release.around(tries, width, rng), len(found)
            found = _joined([found, tried.take(release.met(tried) == 1)], width)
            _, first = np.unique(np.hstack([found.column, found.sign, found.code]), axis=0, return_index=True)
            found = found.take(np.sort(first)[: self.queries])
            if len(found) in (before, self.queries):  # so many tries found no new one: there are hardly any others
                break
        return found


class SinglingOutUnivariate(SinglingOut):
    """Single people out by conditions on one column: a value that occurs once, the least or the greatest one.

    Examples
    --------
    >>> SinglingOutUnivariate(queries=10).columns
    1
    """

    name = "singling-out-univariate"
    question = "Is there a single person with this value, as there is a single released row?"

    def __init__(self, *, queries: int = 500) -> None:
        super().__init__(queries=queries, columns=1)

    def _find(self, release: _Release, width: int, rng: np.random.Generator) -> _Conditions:
        by_column = []
        for column in range(len(release.both.coverages)):
            found = release.once(column)
            by_column.append(found.take(rng.permutation(len(found))))
        # The columns take turns, so that no column with many values crowds out the others.
        turn = np.concatenate([np.arange(len(found)) for found in by_column])
        every = _joined(by_column, 1)
        return every.take(np.argsort(turn, kind="stable")[: self.queries])


class _Release(Discreet):
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

    def around(self, number: int, width: int, rng: np.random.Generator) -> _Conditions:
        """Return conditions that random rows meet."""
        columns = rng.random((number, len(self.both.coverages))).argsort(axis=1)[:, :width]
        columns.sort(axis=1)
        code = self.rows[rng.integers(0, min(len(self.rows), _SOURCES), number)[:, None], columns]
        sign = np.full(code.shape, IS)
        for column in range(len(self.both.coverages)):
            here = columns == column
            sign[here] = self.signs(column, code[here])
        return _Conditions(columns, sign, code)

    def random(self, number: int, width: int, rng: np.random.Generator) -> _Conditions:
        """Return conditions with random columns, released values and signs."""
        found = self.around(number, width, rng)
        code = np.empty_like(found.code)
        sign = rng.integers(0, 3, code.shape)
        for column, at in enumerate(self.middle):
            here = found.column == column
            code[here] = self.rows[rng.integers(0, len(self.rows), int(here.sum())), column]
            sign[here] = np.where(np.isnan(at[code[here]]), IS, sign[here])
        return _Conditions(found.column, sign, code)

    def once(self, column: int) -> _Conditions:
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
        return _Conditions(np.full((len(code), 1), column), sign[:, None], code[:, None])

    def met(self, conditions: _Conditions) -> Ints:
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


def _met(both: Pairing, conditions: _Conditions, records: Ints) -> Ints:
    """Return the number of records that meet each condition."""
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


def _joined(parts: list[_Conditions], width: int) -> _Conditions:
    none = np.zeros((0, width), dtype=np.int64)
    columns = [np.concatenate([none, *(getattr(one, name) for one in parts)]) for name in ("column", "sign", "code")]
    return _Conditions(*columns)

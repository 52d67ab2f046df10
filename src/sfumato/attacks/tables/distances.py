"""How far a record is from each released row: the distance of Gower, for values and for ranges of values.

A number, date or ordinal adds its distance divided by the range of the column, any other value 0 or 1. A generalised
value adds the mean distance to the values that it stands for. A missing value is 0 from a missing one, and 1 from
all others. The distance of two rows is the mean over the columns.

- Gower, *A general coefficient of similarity and some of its properties*, Biometrics 27(4), 1971.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.tables.reading import cover
from sfumato.data.schema import Kind
from sfumato.engines.tuples import group
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing

__all__ = ["CLOSE", "Distances"]

_PAIRS = 250_000  # pairs of records and released rows that are compared at a time: they fit into the cache
_TABLE = 20_000_000  # pairs of values whose distances are kept; of more, they are found anew for each record
_TIES = 256  # nearest rows of a record; of more, a random part is taken
CLOSE = np.float32(1e-6)
"""Distances that differ by less are the same: they are rounded."""

Term = Callable[[Ints], NDArray[np.float32]]


class Distances:
    """The distances of records to the distinct released rows.

    Parameters
    ----------
    both : Pairing
        The records and the released rows.
    names : sequence of str, optional
        The columns that count; all by default.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.measures.loss.generalised import pair
    >>> records = pl.DataFrame({"age": [20, 60], "sex": ["f", "m"]})
    >>> both = pair(records, pl.DataFrame({"age": ["20", "20-60"], "sex": ["f", "*"]}), ["age", "sex"])
    >>> Distances(both).of(np.array([0, 1])).tolist()
    [[0.0, 0.5], [1.0, 0.5]]
    """

    def __init__(self, both: Pairing, names: Sequence[str] | None = None) -> None:
        columns = [both.names.index(name) for name in (both.names if names is None else names)]
        codes = both.meaning[:, columns]
        self.first, self.of_row = group(codes, [len(both.coverages[column]) for column in columns])
        """The first released row of each distinct one, and the distinct one of each released row."""
        self.count: Ints = np.bincount(self.of_row, minlength=len(self.first))
        self._terms = [
            _term(both.coverages[column], codes[self.first, place], both.original[:, column])
            for place, column in enumerate(columns)
        ]

    def __len__(self) -> int:
        return len(self.first)

    def of(self, records: Ints) -> NDArray[np.float32]:
        """Return the distance of each record (a position) to each distinct released row."""
        total = np.zeros((len(records), len(self)), dtype=np.float32)
        for term in self._terms:
            total += term(records)
        total /= np.float32(len(self._terms))
        return total

    def blocks(self, records: Ints) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
        """Yield some of the records at a time, with their distances."""
        step = max(1, _PAIRS // len(self))
        for start in range(0, len(records), step):
            some = records[start : start + step]
            yield some, self.of(some)

    def least(self, records: Ints) -> Floats:
        """Return the distance of each record to the nearest released row."""
        return np.concatenate([np.zeros(0), *(distance.min(axis=1) for _, distance in self.blocks(records))])

    def nearest(self, records: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the pairs of a record and a nearest distinct released row, and the distance of each record.

        Several rows may be nearest; of very many, a random part is taken. A record is given by its place in `records`.
        """
        rng = np.random.default_rng(0)
        pairs: list[tuple[Ints, Ints]] = []
        away = np.empty(len(records))
        done = 0
        for some, distance in self.blocks(records):
            least = distance.min(axis=1)
            near = distance <= least[:, None] + CLOSE
            number = np.count_nonzero(near, axis=1)
            if (number > _TIES).any():
                near &= rng.random(near.shape) < (_TIES / number)[:, None]
            record, row = np.nonzero(near)
            pairs.append((record + done, row))
            away[done : done + len(some)] = least
            done += len(some)
        return np.concatenate([one for one, _ in pairs]), np.concatenate([one for _, one in pairs]), away


def _term(read: Coverage, codes: NDArray[np.int32], original: NDArray[np.int32]) -> Term:
    """Return the distances of a column."""
    of = read.universe
    if of.is_line and of.high > of.low:
        middle, half = (read.low + read.high)[codes] / 2, (read.high - read.low)[codes] / 2
        return _on_a_line(of.numbers, middle, half, of.high - of.low, original)
    known = len(of) - (of.missing is not None)
    if of.column.kind is Kind.ORDINAL and known > 1:
        place = np.arange(len(of), dtype=np.float64)
        place[known:] = np.nan
        weight = np.arange(len(of)) < known
        count = read.total(weight)
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = read.total(np.where(weight, place, 0.0)) / count
        return _on_a_line(place, middle[codes], (count[codes] - 1) / 2, known - 1.0, original)
    return _by_category(read, codes, original)


def _by_category(read: Coverage, codes: NDArray[np.int32], original: NDArray[np.int32]) -> Term:
    """Return 0 for the same value, 1 for another, and in between for a value that stands for several."""
    single = read.exact & (np.diff(read.start) == 1)
    if single[codes].all():
        at = read.first[read.start[codes]]
        return lambda records: (original[records, None] != at).astype(np.float32)
    distinct, of_code = np.unique(codes, return_inverse=True)
    size = np.maximum(read.size[distinct], 1)
    if len(distinct) * len(read.universe) <= _TABLE:
        apart = (1 - cover(read, distinct) / size[:, None]).astype(np.float32).T.copy()
        return lambda records: apart[original[records]][:, of_code]

    def term(records: Ints) -> NDArray[np.float32]:
        who, which = np.repeat(original[records], len(distinct)), np.tile(distinct, len(records))
        found = read.covers(which, who).reshape(len(records), -1) / size
        return (1 - found).astype(np.float32)[:, of_code]

    return term


def _on_a_line(place: Floats, middle: Floats, half: Floats, span: float, original: NDArray[np.int32]) -> Term:
    middle, half, gone = (middle / span).astype(np.float32), (half / span).astype(np.float32), np.isnan(middle)
    at = (place / span).astype(np.float32)
    wide = half > 0

    def term(records: Ints) -> NDArray[np.float32]:
        x = at[original[records], None]
        away: NDArray[np.float32] = np.abs(x - middle)
        if wide.any():
            part = away[:, wide]
            away[:, wide] = np.where(part < half[wide], (part**2 + half[wide] ** 2) / (2 * half[wide]), part)
        lost = np.isnan(x[:, 0])
        if gone.any() or lost.any():
            away[:, gone] = 1
            away[lost] = 1
            away[np.ix_(lost, gone)] = 0
        return away

    return term

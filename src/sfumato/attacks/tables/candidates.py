"""The released rows that may be about a person: those whose values cover the person's quasi-identifiers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Records
from sfumato.attacks.tables.distances import Distances
from sfumato.attacks.tables.reading import cover, read_pairing
from sfumato.engines.tuples import group
from sfumato.measures.classes import Ints
from sfumato.measures.loss.generalised import Pairing

__all__ = ["Candidates", "candidates", "candidates_of", "nearest", "sparse_counts"]

_CELLS = 16_000_000  # pairs of people and released classes that are compared at a time


@dataclass(frozen=True, eq=False, repr=False)
class Candidates(Discreet):
    """The released classes that each person may be in.

    Attributes
    ----------
    of_record : the person of each record; records with equal values are one person here
    of_row : the class of each released row; -1 if the row is suppressed
    size : the rows of each class
    may_be : a sparse matrix of people and classes, 1 where the class covers the person
    covered : whether any class covers the person; if none does, `may_be` has the nearest classes
    """

    _repr_fields = ("people", "classes")

    of_record: Ints
    of_row: Ints
    size: Ints
    may_be: Any
    covered: NDArray[np.bool_]

    @property
    def people(self) -> int:
        """The number of people with different values."""
        return len(self.covered)

    @property
    def classes(self) -> int:
        """The number of released classes."""
        return len(self.size)

    @property
    def rows(self) -> Ints:
        """The number of released rows that each person may be."""
        found: Ints = (self.may_be @ self.size).astype(np.int64)
        return found

    def counts(self, code: NDArray[Any], values: int) -> Any:
        """Return how often each value (a code by released row) occurs among the rows of each person."""
        kept = self.of_row >= 0
        return self.may_be @ sparse_counts(self.of_row[kept], code[kept], (self.classes, values))

    def pick(self, rng: np.random.Generator) -> Ints:
        """Return a random released row of those that each record may be."""
        weight = np.concatenate([[0], np.cumsum(self.size[self.may_be.indices])])
        begin = weight[self.may_be.indptr[:-1]][self.of_record]
        drawn = begin + rng.integers(0, self.rows[self.of_record])
        entry = np.searchsorted(weight, drawn, side="right") - 1
        by_class = np.argsort(self.of_row, kind="stable")[np.count_nonzero(self.of_row < 0) :]
        start = np.cumsum(self.size) - self.size
        row: Ints = by_class[start[self.may_be.indices[entry]] + drawn - weight[entry]]
        return row


def sparse_counts(row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]) -> Any:
    """Return a sparse matrix that counts pairs."""
    sparse = importlib.import_module("scipy.sparse")
    return sparse.coo_array((np.ones(len(row), dtype=np.int64), (row, column)), shape=shape).tocsr()


def candidates_of(target: Any, members: Records, nonmembers: Records) -> Candidates:
    """Find the released classes that each record may be in, by the quasi-identifiers; once for all attacks."""
    last = getattr(target, "_candidates", None)
    if last is None or last[0] is not members or last[1] is not nonmembers:
        last = members, nonmembers, candidates(read_pairing(target, members, nonmembers, target.schema.quasi))
        target._candidates = last
    found: Candidates = last[2]
    return found


def candidates(both: Pairing) -> Candidates:
    """Find the released classes that each record may be in, by all columns of the pairing.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.measures.loss.generalised import pair
    >>> records = pl.DataFrame({"age": [20, 30, 40]})
    >>> found = candidates(pair(records, pl.DataFrame({"age": ["20-30", "20-30", "30-40", "*"]}), ["age"]))
    >>> found.rows[found.of_record].tolist(), found.of_row.tolist()
    ([2, 3, 1], [0, 0, 1, -1])
    """
    sizes = [len(read) for read in both.coverages]
    first, of_row = group(both.meaning, sizes)
    of_row = of_row.astype(np.int64)
    regions = both.meaning[first]
    suppressed = np.logical_and.reduce([read.everything[regions[:, c]] for c, read in enumerate(both.coverages)])
    if not suppressed.all():
        number = np.where(suppressed, -1, np.cumsum(~suppressed) - 1)
        of_row, regions = number[of_row], regions[~suppressed]
    alike, of_record = group(both.original, [len(read.universe) for read in both.coverages])
    person, region = _covering(both, both.original[alike], regions)
    covered = np.bincount(person, minlength=len(alike)) > 0
    if not covered.all():
        # The distinct rows are in the order of the regions, so both have the same numbers.
        kept = first if suppressed.all() else first[~suppressed]
        only = Pairing(both.original, both.released, both.domains, both.meaning[kept], both.coverages)
        who, row, _ = Distances(only).nearest(alike[~covered].astype(np.int64))
        person = np.concatenate([person, np.flatnonzero(~covered)[who]])
        region = np.concatenate([region, row])
    size: Ints = np.bincount(of_row[of_row >= 0], minlength=len(regions))
    may_be = sparse_counts(person, region, (len(alike), len(regions)))
    return Candidates(of_record.astype(np.int64), of_row, size, may_be, covered)


def _covering(both: Pairing, people: NDArray[np.int32], regions: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return all pairs of a person and a region that covers the person, as bits, some regions at a time."""
    pairs: list[tuple[Ints, Ints]] = []
    widest = max(len(read.universe) for read in both.coverages)
    step = max(8, min(_CELLS // widest, _CELLS // 64) // 8 * 8)
    for start in range(0, len(regions), step):
        some = regions[start : start + step]
        bits = []
        for column, read in enumerate(both.coverages):
            codes, of_code = np.unique(some[:, column], return_inverse=True)
            bits.append(np.packbits(cover(read, codes).T[:, of_code], axis=1))
        block = max(1, _CELLS // len(some))
        for begin in range(0, len(people), block):
            found = bits[0][people[begin : begin + block, 0]]
            for column in range(1, len(bits)):
                found = found & bits[column][people[begin : begin + block, column]]
            person, region = np.nonzero(np.unpackbits(found, axis=1, count=len(some)))
            pairs.append((person + begin, region + start))
    return np.concatenate([one for one, _ in pairs]), np.concatenate([one for _, one in pairs])


def nearest(both: Pairing, records: Ints, names: Sequence[str] | None = None) -> Candidates:
    """Find the released rows that are nearest to each of some records, by some of the columns.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.measures.loss.generalised import pair
    >>> both = pair(pl.DataFrame({"age": [20, 30, 40]}), pl.DataFrame({"age": [21, 39, 39]}), ["age"])
    >>> found = nearest(both, np.arange(3))
    >>> found.rows.tolist(), found.pick(np.random.default_rng(0)).tolist()[0]
    ([1, 3, 2], 0)
    """
    away = Distances(both, names)
    record, row, least = away.nearest(records)
    may_be = sparse_counts(record, row, (len(records), len(away)))
    return Candidates(np.arange(len(records)), away.of_row.astype(np.int64), away.count, may_be, least <= 0)

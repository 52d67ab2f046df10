"""Count people instead of rows: how many there are in a class, and how a sensitive value is shared among them.

A person may have several rows, in one class or in many. A class has as many people as there are in its rows, each once.
A person has weight one in it, split over their rows there: with two visits for flu and one for a fracture, they count
2/3 for flu and 1/3 for a fracture. In the whole table they also have weight one, split over all of their rows.

Weights are whole numbers of a common unit, so that a class with the shares of the table has exactly these shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.engines.tuples import Tuples, group_keys, key_starts

__all__ = ["PersonCounts", "Visits", "count_people", "split_by_rows"]

Ints = NDArray[np.int64]

_LARGEST = 1 << 53
"""What all weights may add up to: floats count up to there."""
_USUAL_UNIT = 720_720
"""Divisible by all numbers up to 16. People with more rows, of several values, are split to a millionth."""
_MOST_ROWS = 10_000
"""People with more rows are split one by one."""
_FEW = 3_000_000
"""Up to so many entries, to count them takes less time than to import numba."""


class Visits(NamedTuple):
    """Rows by class and person: entry i says that a person has so many rows in a class."""

    owner: Ints
    """The class."""
    person: Ints
    """The number of the person; every row without one has a number of its own, beyond the others."""
    rows: Ints
    place: Ints
    """The tuple that the entry is from."""

    def __repr__(self) -> str:
        return f"Visits({len(self.rows):,} entries)"

    @property
    def people(self) -> int:
        """One more than the largest number of a person."""
        return int(self.person.max(initial=0)) + 1

    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first entry of each pair of class and person, and the pair of each entry."""
        return group_keys(self.owner * self.people + self.person)

    @classmethod
    def of(cls, tuples: Tuples, column: str, owner: NDArray[Any]) -> Visits:
        """Return the rows of tuples that were also counted by a person column.

        Examples
        --------
        >>> import polars as pl
        >>> import sfumato as sf
        >>> from sfumato.engines import reduce
        >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "m", "m"], "person": [7, 7, 7, None]}))
        >>> visits = Visits.of(reduce(table, ["sex", "person"]), "person", np.array([0, 1, 1]))
        >>> visits.owner.tolist(), visits.person.tolist(), visits.rows.tolist()
        ([0, 1, 1], [0, 0, 2], [2, 1, 1])
        """
        position = tuples.position[column]
        person, domain = tuples.codes[:, position].astype(np.int64), tuples.domains[position]
        rows, place = tuples.count, np.arange(len(tuples.count))
        gap = -1 if domain.missing is None else domain.missing
        if (person == gap).any():
            times = np.where(person == gap, rows, 1)
            place = np.repeat(place, times)
            person, rows = person[place], rows[place]
            nobody = person == gap
            rows = np.where(nobody, 1, rows)
            person[nobody] = len(domain) + np.arange(nobody.sum())
        return cls(owner[place].astype(np.int64), person, rows, place)


@dataclass(frozen=True, eq=False, repr=False)
class PersonCounts(Discreet):
    """People in each class, and their values; see `ClassCounts`, whose arrays these are."""

    size: Ints
    """The people in each class."""
    records: Ints
    """Each person in the smallest of their classes."""
    links: int
    """How many times a person is in a class."""
    owner: Ints
    value: Ints
    count: Ints
    """The weight of each value in each class, as multiples of 1 / unit."""
    total: Ints
    unit: int


def count_people(
    visits: Visits,
    classes: int,
    value: Ints | None,
    values: int,
    overlap: Visits | None = None,
    *,
    few: int = _FEW,
) -> PersonCounts:
    """Count the people of each class, and how their weight is split among values.

    Parameters
    ----------
    visits : Visits
        The rows of each person in their classes.
    value : array, optional
        The sensitive value of each entry.
    overlap : Visits, optional
        The rows of each person in all classes that they may belong to, if classes overlap.
    few : int
        Up to so many entries, no kernel is compiled; the result is the same.

    Examples
    --------
    >>> rows = np.array([2, 1, 1])
    >>> visits = Visits(np.array([0, 0, 0]), np.array([0, 0, 1]), rows, np.arange(3))
    >>> found = count_people(visits, 1, np.array([0, 1, 1]), 2)
    >>> found.size.tolist(), found.count.tolist(), found.unit
    ([2], [2, 4], 3)
    """
    if overlap is None and len(visits.rows) > few:
        return _count_compiled(visits, classes, value, values)
    wide = visits if overlap is None else overlap
    entry_value = value if value is None or wide is visits else value[wide.place]  # a wide entry repeats another one
    pair_of, pair_class, pair_person, pair_rows = _pairs(wide)
    size = np.bincount(pair_class, minlength=classes)
    _, own_class, own_person, _ = (pair_of, pair_class, pair_person, pair_rows) if overlap is None else _pairs(visits)
    records = _most_exposed(own_class, own_person, size)
    none = np.zeros(0, dtype=np.int64)
    if entry_value is None:
        return PersonCounts(size, records, len(own_class), none, none, none, np.zeros(1, dtype=np.int64), 1)

    assert value is not None
    pairs = _Holders(pair_of, pair_class, entry_value, wide.rows, len(pair_class), values)
    people = _Holders(visits.person, None, value, visits.rows, visits.people, values)
    unit = _unit(math.lcm(pairs.parts, people.parts), len(own_class), int(people.rows.max()))
    cell, weight = pairs.split(unit)
    cell, count = _sums(cell, weight, classes * values)
    (whole, share), total = people.split(unit), np.zeros(values, dtype=np.int64)
    np.add.at(total, whole, share)
    return PersonCounts(size, records, len(own_class), cell // values, cell % values, count, total, unit)


def _count_compiled(visits: Visits, classes: int, value: Ints | None, values: int) -> PersonCounts:
    """Count people as `count_people` does, by kernels."""
    from sfumato.measures import person_kernels as kernels

    where, entries = _runs(visits.owner, classes), (visits.person, visits.rows)
    known, size = np.full((visits.people, 6), -1, dtype=np.int64), np.empty(classes, dtype=np.int64)
    known[:, kernels.WHOLE_ROWS] = 0
    parts = np.zeros(int(visits.rows.sum()) + 1, dtype=bool)
    # Without values, that of an entry is its class: nobody has several.
    kernels.count(*where, *entries, visits.owner if value is None else value, known, size, parts)
    smallest = known[:, kernels.SMALLEST]
    records, links = np.bincount(smallest[smallest >= 0], minlength=classes), int(size.sum())
    none, total = np.zeros(0, dtype=np.int64), np.zeros(max(values, 1), dtype=np.int64)
    if value is None:
        return PersonCounts(size, records, links, none, none, none, total[:1], 1)

    whole, alone = known[:, kernels.WHOLE_ROWS], known[:, kernels.WHOLE_VALUE]
    most = int(whole.max())
    parts[whole[alone == kernels.MIXED]] = True
    unit = _unit(_multiple(np.flatnonzero(parts[: most + 1])), links, most)
    number = np.arange(1, min(most, _MOST_ROWS) + 1)
    of_row = np.append(0, np.where(unit % number, 0, unit // number))
    known[:, kernels.CLASS] = -1
    weight, late = np.zeros(values, dtype=np.int64), np.empty((2, len(value)), dtype=np.int64)
    cell = np.empty(min(len(value), classes * values), dtype=np.int64)
    sums = np.empty_like(cell)
    found, left, left_whole = kernels.share(
        *where, *entries, value, known, unit, of_row, weight, cell, sums, total, late
    )
    total += np.bincount(alone[alone >= 0], minlength=values) * unit
    if left_whole:
        nowhere = np.zeros(len(value), dtype=np.int64)
        at, of_table = _split_late(visits._replace(owner=nowhere), value, late[1, :left_whole], values, unit)
        np.add.at(total, at, of_table)
    cell, sums = cell[:found], sums[:found]
    if left or (cell[1:] < cell[:-1]).any():
        at, of_classes = _split_late(visits, value, late[0, :left], values, unit)
        cell, sums = _sums(np.append(cell, at), np.append(sums, of_classes), classes * values)
    owner = cell // values
    return PersonCounts(size, records, links, owner, cell - owner * values, sums, total, unit)


def _split_late(visits: Visits, value: Ints, entries: Ints, values: int, unit: int) -> tuple[Ints, Ints]:
    """Split the weight of people whose rows do not divide it; return cells of class and value, and their weight."""
    some = Visits(*(of_entry[entries] for of_entry in visits))
    first, of_pair = some.pairs()
    return _Holders(of_pair, some.owner[first], value[entries], some.rows, len(first), values).split(unit)


def _runs(owner: Ints, classes: int) -> tuple[Ints, Ints]:
    """Return the first entry and the end of each run of entries with one owner, by owner, and where owners begin."""
    first = np.flatnonzero(key_starts(owner))
    runs, of_run = np.column_stack([first, np.append(first[1:], len(owner))]), owner[first]
    if (of_run[1:] < of_run[:-1]).any():
        runs = runs[np.argsort(of_run, kind="stable")]
    return runs, np.cumsum(np.bincount(of_run + 1, minlength=classes + 1))


class _Holders:
    """Holders of weight one, pairs of class and person or people, whose rows have values."""

    def __init__(
        self, holder: NDArray[Any], owner: Ints | None, value: Ints, rows: Ints, holders: int, values: int
    ) -> None:
        self.holder, self.value, self.own, self.values = holder, value, rows, values
        self.owner = np.zeros(holders, dtype=np.int64) if owner is None else owner
        self.rows = np.bincount(holder, rows, holders).astype(np.int64)
        self.low, high = np.full(holders, values, dtype=np.int64), np.full(holders, -1, dtype=np.int64)
        np.minimum.at(self.low, holder, value)
        np.maximum.at(high, holder, value)
        self.several = self.low < high
        """Whether a holder has several values."""

    @property
    def parts(self) -> int:
        """A number of parts that divides the weight of every holder exactly; a number beyond all bounds is cut."""
        return _multiple(np.unique(self.rows[self.several]))

    def split(self, unit: int) -> tuple[Ints, Ints]:
        """Split the unit of every holder over its values by rows; return cells of owner and value, and their weight."""
        alone = np.flatnonzero(~self.several & (self.rows > 0))
        mixed = np.flatnonzero(self.several[self.holder])
        holder, value, rows = self.holder[mixed], self.value[mixed], self.own[mixed]
        whole = self.rows[holder]
        if len(mixed) and (unit % self.rows[self.several]).any():
            holder, value, rows = _added(holder, value, rows, self.values)
            weight = split_by_rows(holder, rows, unit)
        else:
            weight = rows * (unit // whole)
        cells = np.concatenate(
            [self.owner[alone] * self.values + self.low[alone], self.owner[holder] * self.values + value]
        )
        return cells, np.concatenate([np.full(len(alone), unit), weight])


def _unit(exact: int, links: int, most: int) -> int:
    """Return the parts of a person: the exact number unless that is too many for all pairs of a person and a class."""
    return exact if exact <= _LARGEST // max(links, 1) else _USUAL_UNIT * -(-most // _USUAL_UNIT)


def _multiple(numbers: Ints) -> int:
    """Return the least common multiple of some numbers, or any number beyond `_LARGEST`."""
    multiple = 1
    for number in numbers.tolist():
        multiple = math.lcm(multiple, number)
        if multiple > _LARGEST:
            break
    return multiple


def _sums(cell: Ints, weight: Ints, cells: int) -> tuple[Ints, Ints]:
    """Add up the weights of equal cells; return the cells in order."""
    if cells <= 4 * len(cell) + 1_000_000:
        sums = np.bincount(cell, weight, cells)
        found = np.flatnonzero(sums)
        return found, sums[found].astype(np.int64)
    first, of_cell = group_keys(cell)
    return cell[first], np.bincount(of_cell, weight, len(first)).astype(np.int64)


def _pairs(visits: Visits) -> tuple[NDArray[np.intp], Ints, Ints, Ints]:
    """Return the pair of class and person of each entry, and the class, the person and the rows of each pair."""
    first, pair_of = visits.pairs()
    rows = np.bincount(pair_of, visits.rows, len(first)).astype(np.int64)
    return pair_of, visits.owner[first], visits.person[first], rows


def _most_exposed(owner: Ints, person: Ints, size: Ints) -> Ints:
    """Return the number of people whose smallest class is each class."""
    people = int(person.max(initial=0)) + 1
    if len(person) < 2 or np.bincount(person, minlength=people).max() == 1:
        return np.bincount(owner, minlength=len(size))
    rank = np.empty(len(size), dtype=np.int64)
    by_size = np.argsort(size, kind="stable")
    rank[by_size] = np.arange(len(size))
    smallest = np.full(people, len(size), dtype=np.int64)
    np.minimum.at(smallest, person, rank[owner])
    return np.bincount(by_size[smallest[smallest < len(size)]], minlength=len(size))


def _added(holder: NDArray[Any], value: Ints, rows: Ints, values: int) -> tuple[Ints, Ints, Ints]:
    """Add up the rows of equal holders and values; return them sorted."""
    cell = holder.astype(np.int64) * values + value
    if (cell[1:] > cell[:-1]).all():
        return holder.astype(np.int64), value, rows
    first, of_cell = group_keys(cell)
    return cell[first] // values, cell[first] % values, np.bincount(of_cell, rows, len(first)).astype(np.int64)


def split_by_rows(holder: NDArray[Any], rows: Ints, parts: Ints | int) -> Ints:
    """Split the parts of every holder, whose entries are adjacent, by their rows; the largest remainders get the rest.

    Examples
    --------
    >>> split_by_rows(np.array([0, 0, 1]), np.array([2, 1, 5]), np.array([10, 3])).tolist()
    [7, 3, 3]
    """
    if not len(rows):
        return rows
    begins = key_starts(holder)
    starts, of_holder = np.flatnonzero(begins), np.cumsum(begins) - 1
    whole = np.add.reduceat(rows, starts)[of_holder]
    each = np.broadcast_to(parts, len(starts))
    share, remainder = np.divmod(rows * each[of_holder], whole)
    left = each - np.add.reduceat(share, starts)
    if left.any():
        order = np.lexsort((-remainder, of_holder))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - starts[of_holder[order]]
        share = share + (rank < left[of_holder])
    return np.asarray(share, dtype=np.int64)

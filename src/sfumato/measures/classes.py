"""Equivalence classes and their counts: the only input of the nine privacy models.

The engine reduces a table to distinct tuples with counts; this module groups the tuples into
equivalence classes (rows equal on all quasi-identifiers) and counts, in each class, every
value of one sensitive attribute. The result is a few integer arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.coding import Domain
from sfumato.engines.tuples import Tuples, group, group_keys
from sfumato.measures.person_counts import Visits, count_people

__all__ = ["ClassCounts", "Missing", "class_counts", "ranges", "sum_by_index", "without_missing", "without_suppressed"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Numbers = NDArray[np.float64] | NDArray[np.int64]


class Missing(StrEnum):
    """The meaning of a missing value.

    Examples
    --------
    >>> Missing("wildcard")
    <Missing.WILDCARD: 'wildcard'>
    """

    VALUE = "value"
    """A value of its own: rows with a missing value match each other."""
    WILDCARD = "wildcard"
    """A missing quasi-identifier may be any value; see `class_counts`."""
    DROP = "drop"
    """A row with a missing quasi-identifier or sensitive value is left out, and counted as dropped."""


@dataclass(frozen=True, eq=False, repr=False)
class ClassCounts(Discreet):
    """The count of each value of one sensitive attribute in each equivalence class.

    A sparse matrix with a row per class: the entries of class ``i`` are
    ``value[start[i]:start[i+1]]`` and ``count[start[i]:start[i+1]]``, in the order of the
    values. Without a sensitive attribute there are no entries, only sizes.

    Attributes
    ----------
    size : rows in each class, or people if there is a person column
    records : rows in this class alone (less than `size` only for wildcards); people whose smallest class this is
    start, value, count : the sparse matrix
    total : the count of each value in the whole table
    attribute : the domain of the values
    labels : the codes of the quasi-identifiers of each class
    quasi : the domains of these codes
    unit : the parts that a person's weight is split into, which `count` and `total` are numbers of; 1 for rows
    links : how many times a person is in a class; None if rows are counted
    """

    size: Ints
    records: Ints
    start: Ints
    value: Ints
    count: Ints
    total: Ints
    attribute: Domain | None
    labels: NDArray[np.int32]
    quasi: tuple[Domain, ...]
    unit: int = 1
    links: int | None = None

    @classmethod
    def sizes(cls, size: Ints, labels: NDArray[np.int32], quasi: tuple[Domain, ...]) -> ClassCounts:
        """Return classes of these sizes, without a sensitive attribute."""
        none, start = np.zeros(0, dtype=np.int64), np.zeros(len(size) + 1, dtype=np.int64)
        return cls(size, size, start, none, none, np.zeros(1, dtype=np.int64), None, labels, quasi)

    def __len__(self) -> int:
        return len(self.size)

    @property
    def rows(self) -> int:
        """The number of rows in the table, or of people if they are counted."""
        return int(self.records.sum())

    @property
    def mass(self) -> Ints:
        """What the counts of each class add up to."""
        return self.size if self.unit == 1 else self.size * self.unit

    @property
    def whole(self) -> int:
        """What the totals add up to."""
        return self.rows * self.unit

    @cached_property
    def owner(self) -> Ints:
        """The class of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @cached_property
    def ratio(self) -> Floats:
        """The ratio q/p of each entry: its share in the class divided by its share in the table."""
        # Cross-multiplied: a class distributed like the table gives exactly 1.
        count, size, total = (part.astype(np.float64) for part in (self.count, self.size, self.total))  # in one unit
        return (count * self.rows) / (size[self.owner] * total[self.value])

    def label(self, index: int) -> dict[str, str]:
        """Return the quasi-identifier values of a class, as texts."""
        return {domain.name: domain.label(code) for domain, code in zip(self.quasi, self.labels[index], strict=True)}


def without_suppressed(tuples: Tuples, quasi: Sequence[str], mark: str | None) -> tuple[Tuples, int]:
    """Drop the rows in which every quasi-identifier is the mark; return the rest and the number dropped.

    If every row is marked, none is dropped: the table has been generalised to the root and is one
    class.
    """
    if mark is None:
        return tuples, 0
    suppressed = np.ones(len(tuples.count), dtype=bool)
    for name in quasi:
        position = tuples.position[name]
        code = tuples.domains[position].code_of(mark)
        suppressed &= tuples.codes[:, position] == (-1 if code is None else code)
    return (tuples, 0) if suppressed.all() else _keep(tuples, ~suppressed)


def without_missing(tuples: Tuples, person: str | None = None) -> tuple[Tuples, int]:
    """Drop the rows with a missing value, other than that of the person; return the rest and the number dropped."""
    complete = np.ones(len(tuples.count), dtype=bool)
    for position, domain in enumerate(tuples.domains):
        if domain.missing is not None and domain.name != person:
            complete &= tuples.codes[:, position] != domain.missing
    return _keep(tuples, complete)


def class_counts(
    tuples: Tuples,
    quasi: Sequence[str],
    sensitive: str | None,
    missing: Missing = Missing.VALUE,
    person: str | None = None,
) -> ClassCounts:
    """Group tuples into equivalence classes and count a sensitive attribute in each.

    With a person column, people are counted instead of rows; see `person_counts`.

    With ``missing="wildcard"`` an attacker cannot rule out a row by a quasi-identifier that is
    missing. The class of a row is then every row that equals it in all columns where that other
    row has a value. Where the row itself has a missing value, the worst case is assumed: the
    person's true value occurs in no other row. Classes overlap, and rows with missing values
    form classes of their own.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "m"], "disease": ["flu", "ulcer", "flu"]}))
    >>> counts = class_counts(reduce(table, ["sex", "disease"]), ["sex"], "disease")
    >>> counts.size.tolist(), counts.label(1)
    ([2, 1], {'sex': 'm'})
    """
    positions = [tuples.position[name] for name in quasi]
    domains = tuple(tuples.domains[position] for position in positions)
    sizes = [len(domain) for domain in domains]
    first, of_tuple = group(tuples.codes[:, positions], sizes)
    labels = tuples.codes[:, positions][first]
    records = sum_by_index(of_tuple, tuples.count, len(labels))

    if sensitive is None:
        attribute, total = None, np.zeros(1, dtype=np.int64)
        owner = value = count = np.zeros(0, dtype=np.int64)
    else:
        position = tuples.position[sensitive]
        domain, code = tuples.domains[position], tuples.codes[:, position]
        present = np.flatnonzero(np.bincount(code, minlength=len(domain)))
        rank = np.zeros(len(domain), dtype=np.int64)
        rank[present] = np.arange(len(present))
        value_of_tuple = rank[code]
        attribute = replace(domain, values=domain.values.gather(present))
        total = sum_by_index(value_of_tuple, tuples.count, len(present))
        if person is None:
            owner, value, count = _entries(of_tuple, value_of_tuple, tuples.count, len(present))

    size = records
    if person is not None:
        visits = Visits.of(tuples, person, of_tuple)
        overlap = _overlapping(visits, *_candidates(labels, domains)) if missing is Missing.WILDCARD else None
        of_entry = None if sensitive is None else value_of_tuple[visits.place]
        found = count_people(visits, len(labels), of_entry, len(total), overlap)
        start = np.searchsorted(found.owner, np.arange(len(labels) + 1))
        arrays = found.size, found.records, start, found.value, found.count, found.total
        return ClassCounts(*arrays, attribute, labels, domains, found.unit, found.links)
    if missing is Missing.WILDCARD:
        target, source = _candidates(labels, domains)
        size = sum_by_index(target, records[source], len(labels))
        start = np.searchsorted(owner, np.arange(len(labels) + 1))
        pair, entry = ranges(start[source], start[source + 1])
        owner, value, count = _entries(target[pair], value[entry], count[entry], len(total))
    start = np.searchsorted(owner, np.arange(len(labels) + 1))
    return ClassCounts(size, records, start, value, count, total, attribute, labels, domains)


def _keep(tuples: Tuples, mask: NDArray[np.bool_]) -> tuple[Tuples, int]:
    if mask.all():
        return tuples, 0
    kept = replace(tuples, codes=tuples.codes[mask], count=tuples.count[mask])
    return kept, int(tuples.count.sum() - kept.count.sum())


def sum_by_index(index: NDArray[Any], weight: Ints, length: int) -> Ints:
    """Sum the weights by index."""
    # bincount adds in float64, which is exact below 2**53 rows.
    return np.bincount(index, weights=weight, minlength=length).astype(np.int64)


def _entries(owner: NDArray[np.intp], value: NDArray[np.intp], count: Ints, values: int) -> tuple[Ints, Ints, Ints]:
    """Sum the counts of equal (class, value) pairs; return them sorted."""
    pair = owner * values + value
    first, of_pair = group_keys(pair)
    distinct = pair[first]
    return distinct // values, distinct % values, sum_by_index(of_pair, count, len(distinct))


def _overlapping(visits: Visits, target: Ints, source: Ints) -> Visits:
    """Repeat the rows of each class in all classes that they may belong to; places are entries of the visits."""
    order = np.argsort(visits.owner, kind="stable")
    start = np.searchsorted(visits.owner[order], np.arange(int(max(target.max(), source.max())) + 2))
    pair, entry = ranges(start[source], start[source + 1])
    entry = order[entry]
    return Visits(target[pair], visits.person[entry], visits.rows[entry], entry)


def _candidates(labels: NDArray[np.int32], domains: Sequence[Domain]) -> tuple[Ints, Ints]:
    """Pair each class with the classes whose rows could match it if their missing values were known."""
    absent = labels == [-1 if domain.missing is None else domain.missing for domain in domains]
    everyone = np.arange(len(labels))
    targets, sources = [everyone], [everyone]
    for pattern in np.unique(absent, axis=0):
        members = np.flatnonzero((absent == pattern).all(axis=1))
        known = np.flatnonzero(~pattern)
        first, of_class = group(labels[:, known], [len(domains[position]) for position in known.tolist()])
        # Members differ on the known columns, so each group of classes has at most one.
        member = np.full(len(first), -1)
        member[of_class[members]] = members
        source = member[of_class]
        matched = (source >= 0) & (source != everyone)
        targets.append(everyone[matched])
        sources.append(source[matched])
    return np.concatenate(targets), np.concatenate(sources)


def ranges(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Return every position of every range, and the range of each."""
    length = stop - start
    of_range = np.repeat(np.arange(len(start)), length)
    offset = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return of_range, start[of_range] + offset

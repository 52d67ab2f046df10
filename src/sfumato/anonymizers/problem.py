"""The input of an anonymizer: the distinct tuples of a table, the order of their values, and the guarantees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.released_values import are_whole
from sfumato.data.schema import Kind
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import InputError
from sfumato.measures.classes import ClassCounts, Floats, Ints, class_counts, ranges, sum_by_index
from sfumato.measures.guarantee import Check, ClassGuarantee
from sfumato.measures.loss.universe import as_floats, universe
from sfumato.measures.models import AlphaK, KAnonymity, LDiversity, RecursiveCL
from sfumato.measures.person_counts import Visits, count_people, split_by_rows

__all__ = ["APART", "Crowd", "Pieces", "Problem", "ValueLine", "exact_floats", "with_hierarchies", "with_hierarchy"]

_PARTS = 2520
"""The parts of a person, divisible by all numbers up to 10, if someone has more tuples than that."""
_FEW = 50_000  # up to so many visits, kernels are not compiled
APART = 2.0
"""The place of a missing number, date or ordinal, away from all others, which are between 0 and 1."""


@dataclass(frozen=True, eq=False, repr=False)
class ValueLine(Discreet):
    """The values of one quasi-identifier on a line, where a group is a range or part of one.

    Attributes
    ----------
    position : the rank of each code on the line
    place : the place of each code, from 0 to 1; a missing number, date or ordinal is at 2
    ordered : whether distances on the line are meaningful: numbers, dates, ordinals
    size : the number of values that the column may take
    nodes : the nodes of the hierarchy in depth-first order, a row per level from the values up, without the root, and
        a column per position; no rows if the column has no hierarchy to respect
    """

    position: NDArray[np.int32]
    place: Floats
    ordered: bool
    size: int
    nodes: NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class Pieces(Discreet):
    """The records that share a tuple and a value of every sensitive attribute.

    Attributes
    ----------
    tuple : the tuple that each piece belongs to, ascending
    values : a row per piece with its value of each sensitive attribute, in the codes of the counts
    records : the number of records of each piece
    joint : whether these combinations of values occur in the table; if not, only each attribute alone is right
    """

    tuple: Ints
    values: NDArray[np.int64]
    records: Ints
    joint: bool


class Crowd(NamedTuple):
    """Whose the rows are: the visits of people to tuples, by tuple, and a row for each with its sensitive values."""

    visits: Visits
    values: NDArray[np.int64]

    def by_tuple(self) -> Crowd:
        """Return the visits in the order of their tuples, those of a person together."""
        owner = self.visits.owner
        return self if (owner[1:] >= owner[:-1]).all() else self.some(np.lexsort((self.visits.person, owner)))

    def some(self, entries: NDArray[Any]) -> Crowd:
        """Return some of the visits."""
        return Crowd(Visits(*(of_entry[entries] for of_entry in self.visits)), self.values[entries])

    def __repr__(self) -> str:
        return f"Crowd({self.visits!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Discreet):
    """The distinct tuples of the quasi-identifiers with their counts, and the guarantees to keep.

    Parameters
    ----------
    counts : tuple of ClassCounts
        One per sensitive attribute, or a single one without; every class is one distinct tuple.
    guarantees : tuple of ClassGuarantee
    together : Pieces, optional
        The joint counts of several sensitive attributes, from `of`.
    people : Crowd, optional
        Whose the rows are, from `of`, if the guarantees are about people.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 20, 40], "disease": ["flu", "ulcer", "flu"]}))
    >>> problem = Problem.of(reduce(table, ["age", "disease"]), ["age"], ["disease"], [sf.KAnonymity(2)])
    >>> problem.records.tolist(), problem.lines[0].place.tolist()
    ([2, 1], [0.0, 1.0])
    >>> [[check.held for check in problem.check(np.array(groups))] for groups in ([0, 1], [0, 0])]
    [[False], [True]]
    """

    counts: tuple[ClassCounts, ...]
    guarantees: tuple[ClassGuarantee, ...]
    together: Pieces | None = None
    people: Crowd | None = None

    def __post_init__(self) -> None:
        first = self.counts[0] if self.counts else None
        if first is None or not len(first):
            raise InputError("the table has no rows to anonymize")
        for one in self.counts:
            if len(one) != len(first) or not np.array_equal(one.labels, first.labels):
                raise InputError("the sensitive attributes must be counted in the same classes")
            if not np.array_equal(one.size, one.records):
                raise InputError(
                    "classes that overlap cannot be anonymized",
                    hint="count missing values as values of their own, or drop them",
                )

    @classmethod
    def of(
        cls,
        tuples: Tuples,
        quasi: Sequence[str],
        sensitive: Sequence[str],
        guarantees: Sequence[ClassGuarantee],
        person: str | None = None,
    ) -> Problem:
        """Build the problem from the tuples of quasi-identifiers and sensitive attributes that an engine counted.

        If a person column was counted too, the guarantees are about people.
        """
        counts = tuple(class_counts(tuples, quasi, name) for name in sensitive or (None,))
        together = None
        if len(sensitive) > 1 or person is not None:
            quasi_codes = tuples.codes[:, [tuples.position[name] for name in quasi]]
            _, of_row = group(quasi_codes, [len(domain) for domain in counts[0].quasi])
            values = np.empty((len(of_row), len(sensitive)), dtype=np.int64)
            for column, name in enumerate(sensitive):
                values[:, column] = _ranks(tuples.codes[:, tuples.position[name]])[1]
            if person is not None:
                visits = Visits.of(tuples, person, of_row)
                crowd = Crowd(visits, values[visits.place])
                return cls(counts, tuple(guarantees), None, crowd.by_tuple())
            order = np.lexsort((*values.T[::-1], of_row))
            together = Pieces(of_row[order], values[order], tuples.count[order], joint=True)
        return cls(counts, tuple(guarantees), together)

    @classmethod
    def whole(
        cls,
        rows: int,
        quasi: Sequence[Domain],
        sensitive: Sequence[tuple[Domain, Ints]],
        guarantees: Sequence[ClassGuarantee],
    ) -> Problem:
        """Build the problem of a whole table as one class, from the counts of its sensitive values.

        It has the lines and the limits of the table, but none of its tuples: they may be elsewhere.
        """
        if not rows:
            raise InputError("the table has no rows to anonymize")
        size, labels, domains = np.array([rows]), np.zeros((1, len(quasi)), dtype=np.int32), tuple(quasi)
        counts = [
            ClassCounts(
                size, size, np.array([0, len(domain)]), np.arange(len(domain)), count, count, domain, labels, domains
            )
            for domain, count in sensitive
        ]
        return cls(tuple(counts) or (ClassCounts.sizes(size, labels, domains),), tuple(guarantees))

    def __len__(self) -> int:
        return len(self.counts[0])

    @property
    def codes(self) -> NDArray[np.int32]:
        """The tuples: a row per tuple, a column per quasi-identifier."""
        return self.counts[0].labels

    @property
    def records(self) -> Ints:
        """The number of records of each tuple."""
        return self.counts[0].records

    @property
    def tuples(self) -> Tuples:
        """The tuples with their records."""
        return Tuples(self.codes, self.records, self.domains)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domain of each quasi-identifier."""
        return self.counts[0].quasi

    @cached_property
    def lines(self) -> tuple[ValueLine, ...]:
        """The line of each quasi-identifier."""
        return tuple(map(_line, self.domains))

    @property
    def places(self) -> tuple[Floats, ...]:
        """The place of each code of each quasi-identifier; see `ValueLine`."""
        return tuple(line.place for line in self.lines)

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """The tuples as ranks on the lines instead of codes."""
        positions = np.empty_like(self.codes)
        for column, line in enumerate(self.lines):
            positions[:, column] = line.position[self.codes[:, column]]
        return positions

    @cached_property
    def pieces(self) -> Pieces:
        """The records of each tuple by their sensitive values.

        If several attributes were counted separately, their joint distribution is unknown: values are combined in
        their order (the north-west corner rule). That changes nothing as long as no tuple is divided, because
        every attribute is checked alone.
        """
        if self.together is not None:
            return self.together
        if self.counts[0].attribute is None:
            tuples = np.arange(len(self))
            return Pieces(tuples, np.zeros((len(self), 0), dtype=np.int64), self.records, joint=True)
        before = np.cumsum(self.records) - self.records
        ends = [np.cumsum(one.count) for one in self.counts]
        # A piece ends where one of its values ends.
        end = ends[0] if len(ends) == 1 else np.unique(np.concatenate(ends))
        values = np.column_stack(
            [one.value[np.searchsorted(at, end)] for one, at in zip(self.counts, ends, strict=True)]
        )
        tuples = np.searchsorted(before, end, side="left") - 1
        return Pieces(tuples, values, np.diff(end, prepend=0), joint=len(self.counts) == 1)

    def merge(self, groups: NDArray[Any]) -> list[ClassCounts]:
        """Merge the tuples of each group, numbered from 0, into one class, labelled by its first tuple.

        Classes of people are counted in people, and without their sensitive values if no guarantee needs these.
        """
        labels = self.codes[_first(groups)]
        if self.people is not None:
            columns = range(len(self.counts)) if self.needs_values else [None]
            return [self._of_people(column, groups, labels) for column in columns]
        size = np.bincount(groups, weights=self.records).astype(np.int64)
        return [_merged(one, groups[one.owner], one.value, one.count, size, labels) for one in self.counts]

    @property
    def needs_values(self) -> bool:
        """Whether a guarantee is about sensitive values."""
        return any(one.needs_sensitive for one in self.guarantees)

    def _of_people(self, column: int | None, groups: NDArray[Any], labels: NDArray[np.int32]) -> ClassCounts:
        assert self.people is not None
        (visits, values), known = self.people, self.counts[column or 0]
        attribute = None if column is None else known.attribute
        value = None if attribute is None else values[:, column]
        grouped = visits._replace(owner=groups[visits.owner])
        found = count_people(grouped, len(labels), value, len(known.total), few=_FEW)
        start = np.searchsorted(found.owner, np.arange(len(labels) + 1))
        return ClassCounts(
            found.size, found.records, start, found.value, found.count, found.total,
            attribute, labels, known.quasi, found.unit, found.links,
        )  # fmt: skip

    def only(self, tuples: Ints) -> Problem:
        """Return the problem of some of the tuples, given in ascending order, with people."""
        assert self.people is not None
        owner = self.people.visits.owner
        of_tuple, entries = ranges(np.searchsorted(owner, tuples), np.searchsorted(owner, tuples + 1))
        visits, values = self.people.some(entries)
        visits = visits._replace(owner=of_tuple, place=np.arange(len(entries)))
        counts = tuple(
            replace(ClassCounts.sizes(self.records[tuples], self.codes[tuples], self.domains), attribute=one.attribute,
                    total=one.total)
            for one in self.counts
        )  # fmt: skip
        return Problem(counts, self.guarantees, None, Crowd(visits, values))

    @cached_property
    def spread(self) -> float:
        """In how many distinct tuples a person is on average; 1 if rows are counted."""
        if self.people is None:
            return 1.0
        visits = self.people.visits
        return len(visits.pairs()[0]) / np.count_nonzero(np.bincount(visits.person))

    def weighted(self, ease: float = 1.0) -> Problem:
        """Return the problem of rows that stands for this one of people, in whole parts of a person.

        A person has weight one, split over their distinct tuples. A class has at least as many people as the weight in
        it, so if it has weight k, it has k people, and a method for rows finds it without knowing of people. If people
        are in many classes, that asks for more than is needed; `ease` asks for so many times less.
        """
        unit, problem, whole = self._weights
        asked = [_in_parts(one, unit / ease) for one in self.guarantees]
        return replace(problem, guarantees=tuple(one for one in asked if one.check(whole).held))

    @cached_property
    def _weights(self) -> tuple[int, Problem, list[ClassCounts]]:
        """The parts of a person, the problem of these parts without guarantees, and its counts of the whole table."""
        assert self.people is not None
        visits = self.people.visits
        first, of_entry = visits.pairs()
        person = visits.person[first]
        tuples_of = np.bincount(person, minlength=visits.people)
        spread = int(tuples_of.max())
        unit = int(np.lcm.reduce(np.unique(tuples_of[tuples_of > 0]))) if spread <= 10 else _PARTS
        unit = max(unit, spread)
        of_pair = unit // tuples_of[person]
        size = sum_by_index(visits.owner[first], of_pair, len(self))
        if not self.needs_values:
            problem = Problem((ClassCounts.sizes(size, self.codes, self.domains),), ())
        else:
            problem = self._weighted_values(size, split_by_rows(of_entry, visits.rows, of_pair))
        return unit, problem, problem.merge(np.zeros(len(self), dtype=np.int64))

    def _weighted_values(self, size: Ints, weight: Ints) -> Problem:
        """Return the problem of rows with these weights of the tuples and of the visits."""
        assert self.people is not None
        some = self.people.some(weight > 0)
        owner, weight, columns, counts = some.visits.owner, weight[weight > 0], [], []
        for known, value in zip(self.counts, some.values.T, strict=True):
            present, rank = _ranks(value)
            assert known.attribute is not None
            attribute = replace(known.attribute, values=known.attribute.values.gather(present))
            total = sum_by_index(rank, weight, len(present))
            columns.append(rank)
            weighted = replace(known, attribute=attribute, total=total)
            counts.append(_merged(weighted, owner, rank, weight, size, self.codes))
        if len(counts) == 1:
            return Problem(tuple(counts), ())
        cells = np.column_stack([owner, *columns])
        first, of_visit = group(cells, [len(self), *(len(one.total) for one in counts)])
        joint = Pieces(cells[first, 0], cells[first, 1:], sum_by_index(of_visit, weight, len(first)), joint=True)
        return Problem(tuple(counts), (), joint)

    def merge_pieces(self, pieces: Pieces, groups: NDArray[Any]) -> list[ClassCounts]:
        """Merge the pieces of each group, rather than whole tuples, into one class."""
        labels = self.codes[pieces.tuple[_first(groups)]]
        size = np.bincount(groups, weights=pieces.records).astype(np.int64)
        values = pieces.values.T if pieces.values.shape[1] else [np.zeros(0, dtype=np.int64)]
        owner, count = (groups, pieces.records) if pieces.values.shape[1] else (groups[:0], pieces.records[:0])
        return [_merged(one, owner, value, count, size, labels) for one, value in zip(self.counts, values, strict=True)]

    @property
    def only_counts_members(self) -> bool:
        """Whether the guarantees hold in the union of two classes of people: those of k and l do.

        Shares may get worse, because someone in both classes has weight one in their union too.
        """
        return all(isinstance(one, KAnonymity | LDiversity) for one in self.guarantees)

    def check(self, groups: NDArray[Any]) -> tuple[Check, ...]:
        """Check every guarantee on the classes formed by groups of tuples."""
        return self._checks(self.merge(groups))

    def require_reachable(self) -> None:
        """Raise an error if even the whole table as one class breaks a guarantee."""
        for guarantee in self.guarantees:
            guarantee.refuse_unknown([one.attribute for one in self.counts if one.attribute is not None])
        whole = self.merge(np.zeros(len(self), dtype=np.int64))
        for check in self._checks(whole):
            if not check.held:
                asked, measured = check.guarantee, check.measured.value
                if isinstance(asked, RecursiveCL):  # it may hold with a smaller l than that of the table
                    asked = replace(asked, l=asked.l or int(LDiversity().measure(whole).value))
                reason = check.reason or ("it must be less" if asked.strict else "")
                raise InputError(
                    f"no grouping keeps {asked}: the whole table as one class has {asked.key} = {measured:.6g}"
                    + (f", and {reason}" if reason else ""),
                    hint="ask for less" if asked == check.guarantee else "ask for less, or name a smaller l",
                )

    def require_kept(self, counts: Sequence[ClassCounts]) -> None:
        """Raise an error if a result breaks a guarantee, which would be a bug of the method."""
        for check in self._checks(counts):
            if not check.held:
                raise InputError(
                    f"the groups do not keep {check.guarantee}: measured {check.measured.value:.6g}",
                    hint="this should never happen; please report it",
                )

    def _checks(self, counts: Sequence[ClassCounts]) -> tuple[Check, ...]:
        return tuple(guarantee.check(counts) for guarantee in self.guarantees)


def _in_parts(guarantee: ClassGuarantee, parts: float) -> ClassGuarantee:
    """Return a guarantee for classes whose members are counted in parts."""
    if isinstance(guarantee, KAnonymity | AlphaK):
        return replace(guarantee, k=max(1, math.ceil(guarantee.k * parts - 1e-9)))
    return guarantee


def exact_floats(domain: Domain) -> Domain:
    """Return a domain in which 32-bit floats have the value of their text, as hierarchies and readers see them."""
    return replace(domain, values=as_floats(domain.values)) if domain.values.dtype == pl.Float32 else domain


def with_hierarchy(domain: Domain, records: NDArray[np.generic]) -> Domain:
    """Give a column without a hierarchy an automatic one, from its values and their counts.

    The intervals of a column of whole numbers get labels such as ``20-39``.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> ages = sf.Table(pl.DataFrame({"age": [18, 20, 33, 41, 97]})).encode(["age"]).domains[0]
    >>> with_hierarchy(ages, np.ones(5)).column.hierarchy.labels([33, 97], level=1)
    ['20-49', '50+']
    """
    column = domain.column
    if column.hierarchy is not None:
        if column.kind is Kind.NUMBER and are_whole([*domain.values.drop_nulls(), *(column.domain or ())]):
            column = replace(column, hierarchy=column.hierarchy.for_whole_numbers())
        return replace(domain, column=column)
    if isinstance(domain.values.dtype, pl.Duration):
        column = replace(column, kind=Kind.CATEGORY)  # intervals are of numbers and dates
    automatic = Hierarchy.automatic(column, domain.values, records.astype(int).tolist())
    return replace(domain, column=replace(domain.column, hierarchy=automatic))


def with_hierarchies(problem: Problem) -> Problem:
    """Give every quasi-identifier without a hierarchy an automatic one."""
    quasi = []
    for at, domain in enumerate(problem.domains):
        records = np.bincount(problem.codes[:, at], problem.records, len(domain))
        quasi.append(replace(domain, column=with_hierarchy(exact_floats(domain), records).column))
    return replace(problem, counts=tuple(replace(one, quasi=tuple(quasi)) for one in problem.counts))


def _line(domain: Domain) -> ValueLine:
    of = universe(domain)
    rank = np.arange(len(domain), dtype=np.int32)
    hierarchy, values = domain.column.hierarchy, exact_floats(domain).values.to_list()
    none = np.zeros((0, len(domain)), dtype=np.int32)
    if of.column.kind.is_ordered:
        place = of.place / max(len(of) - (of.missing is not None) - 1, 1)
        if of.is_line:
            place = (of.numbers[of.place] - of.low) / ((of.high - of.low) or 1.0)
        if domain.missing is not None:
            place[domain.missing] = APART
        return ValueLine(rank, place, True, len(of), none)
    if hierarchy is None:
        return ValueLine(rank, rank / max(len(rank) - 1, 1), False, len(of), none)
    hierarchy.check(values, domain.name)
    levels = hierarchy.levels(values)
    order = np.lexsort((rank, *levels))  # highest level first, values within a node by rank
    position = np.empty_like(rank)
    position[order] = rank
    nodes = np.zeros(levels.shape, dtype=np.int32)
    differ = np.zeros(len(order) - 1, dtype=bool)
    for level in reversed(range(len(levels))):  # a node ends where its parent does
        differ |= np.diff(levels[level][order]) != 0
        nodes[level, 1:] = np.cumsum(differ)
    return ValueLine(position, position / max(len(rank) - 1, 1), False, len(of), nodes)


def _ranks(codes: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the distinct codes, and the rank of each code among them."""
    there = np.bincount(codes) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _first(groups: NDArray[Any]) -> Ints:
    """Return the index of the first member of each group."""
    first = np.empty(int(groups.max()) + 1, dtype=np.int64)
    first[groups[::-1]] = np.arange(len(groups))[::-1]
    return first


def _merged(
    counts: ClassCounts, owner: NDArray[Any], value: Ints, count: Ints, size: Ints, labels: NDArray[np.int32]
) -> ClassCounts:
    span, classes = len(counts.total), len(size)
    cell = owner.astype(np.int64) * span + value
    if classes * span <= 4 * len(cell) + 1_000_000:
        sums = np.bincount(cell, weights=count, minlength=classes * span)
        cell = np.flatnonzero(sums)
        sums = sums[cell]
    else:
        cell, of_entry = np.unique(cell, return_inverse=True)
        sums = np.bincount(of_entry, weights=count, minlength=len(cell))
    start = np.searchsorted(cell, np.arange(classes + 1) * span)
    return replace(
        counts,
        size=size,
        records=size,
        start=start,
        value=cell % span,
        count=sums.astype(np.int64),
        labels=labels,
    )

"""Privacy for people with several rows: which of their rows count, and what an access costs for a person.

A person may have any number of rows, so what they change has no bound of its own. At most b rows of each person are
kept, drawn at random and in secret; everything else is dropped. Then a person is a group of at most b rows. They change
a sum at most b times as much as a row does, so noise that is b times as large protects them.

Which rows count is drawn for each person without regard to others. So for any draw, tables that differ in one person
still differ in at most b rows, and what is proved for each draw holds for all of them together.

A row without a person counts as a person of its own.

::

    PersonBound
    ├── MaxRowsPerPerson       so many rows of a person count
    ├── MaxGroupsPerPerson     so many groups of a person count, and so many rows in each
    └── BoughtRowsPerPerson    as many rows of a person count as a noisy choice says
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.accounting.composition import group
from sfumato.budget.events import (
    ApproximateEvent,
    Composed,
    Event,
    FixedSampled,
    NoiseEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    Repeated,
    Selected,
    Shuffled,
)
from sfumato.budget.noise import Source
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.coding import person_texts
from sfumato.data.validate import whole
from sfumato.engines.tuples import Tuples
from sfumato.engines.tuples import group as group_rows
from sfumato.errors import OptionError

__all__ = [
    "BOUGHT",
    "BOUNDS",
    "NOBODY",
    "BoughtRowsPerPerson",
    "DeclaredBound",
    "MaxGroupsPerPerson",
    "MaxRowsPerPerson",
    "PersonBound",
    "at_most",
    "check_bound",
    "codes_of_people",
    "draw_groups",
    "draw_rows",
    "for_people",
    "people_of",
    "units_of",
]

Ints = NDArray[np.int64]

NOBODY = -1
"""The number of rows without a person; each of them counts as a person of its own."""
BOUGHT: Final = "bought"
"""The word in place of a number of rows that is bought."""
BOUNDS = ("rows_per_person", "groups_per_person", "rows_per_group")
"""The names of all numbers that bound the rows of a person."""


def codes_of_people(persons: pl.Series) -> Ints:
    """Give every person of a column a number; a row without a person gets -1.

    Examples
    --------
    >>> codes_of_people(pl.Series(["b", "a", None, "b"])).tolist()
    [1, 0, -1, 1]
    """
    known = persons.is_not_null()
    if persons.dtype.is_float():
        known &= persons.fill_null(0).is_not_nan()
    codes = np.full(len(persons), NOBODY, dtype=np.int64)
    codes[known.to_numpy()] = persons.filter(known).rank("dense").to_numpy().astype(np.int64) - 1
    return codes


def units_of(people: Ints) -> Ints:
    """Give people numbers from 0 in the order of their first rows; every row of nobody is a person of its own.

    Examples
    --------
    >>> units_of(np.array([7, 2, -1, 7, -1])).tolist()
    [0, 1, 2, 0, 3]
    """
    owners = np.where(people >= 0, people, people.max(initial=-1) + 1 + np.arange(len(people)))
    _, first, which = np.unique(owners, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[which]


def check_bound(person: str | None, rows: Any) -> MaxRowsPerPerson | BoughtRowsPerPerson | None:
    """Return the bound on the rows of a person, or raise an error if it does not go with the person column.

    Examples
    --------
    >>> check_bound("patient_id", 3), check_bound("patient_id", "bought"), check_bound(None, None)
    (MaxRowsPerPerson(rows_per_person=3), BoughtRowsPerPerson(), None)
    """
    if person is None:
        if rows is not None:
            raise OptionError("rows_per_person needs a person column", hint="name it with person / --person")
        return None
    if rows is None:
        raise OptionError(
            f"column '{person}' asks to protect people, but the rows of a person are not bounded",
            hint="rows_per_person / --rows-per-person N: of people with more, N are drawn at random; N must not be "
            "chosen by looking at the data, but it can be 'bought' with a tenth of epsilon",
        )
    if isinstance(rows, str) and rows == BOUGHT:
        return BoughtRowsPerPerson()
    return MaxRowsPerPerson(whole("the rows of a person", rows))


def people_of(tuples: Tuples, person: str) -> Ints:
    """Return the person of each tuple; that of tuples without one is -1.

    In a text file, one cell can change how all others are read, so people are told apart by their texts.

    Examples
    --------
    >>> from sfumato.data.table import Table
    >>> from sfumato.engines import reduce
    >>> visits = Table(pl.DataFrame({"sex": ["f", "f", "m"], "patient": ["a", "b", None]}))
    >>> people_of(reduce(visits, ["sex", "patient"]), "patient").tolist()
    [0, 1, -1]
    """
    position = tuples.position[person]
    values = tuples.domains[position].values
    whose = codes_of_people(values if values.dtype.is_integer() else person_texts(values))
    return whose[tuples.codes[:, position]]


def draw_rows(people: Ints, rows: int, source: Source) -> Ints:
    """Draw at most so many rows of each person, and return their positions in order.

    Every row of a person has the same chance, and which rows are drawn does not depend on other people. Rows of nobody
    (a negative code) are all kept.

    Examples
    --------
    >>> kept = draw_rows(np.array([7, 7, 7, 2, -1, -1]), 2, Source())
    >>> len(kept), kept[-3:].tolist()
    (5, [3, 4, 5])
    """
    rows = whole("the rows of a person", rows)
    known = people >= 0
    if np.bincount(people[known]).max(initial=0) <= rows:
        return np.arange(len(people))
    order = np.lexsort((source.words(len(people)), people))
    owner = people[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return np.sort(order[(rank < rows) | (owner < 0)])


def draw_groups(people: Ints, groups: Ints, most: int, rows: int, source: Source) -> Ints:
    """Draw at most so many groups of each person and rows in each of them, and return the positions of the rows.

    Every group of a person has the same chance, however many rows they have in it. Rows of nobody are all kept.

    Examples
    --------
    >>> people, wards = np.array([7, 7, 7, 7, 2, -1]), np.array([0, 0, 0, 1, 1, 0])
    >>> kept = draw_groups(people, wards, 1, 2, Source())
    >>> len(set(wards[kept[people[kept] == 7]])), kept[-2:].tolist()
    (1, [4, 5])
    """
    sizes = [int(people.max(initial=0)) + 2, int(groups.max(initial=0)) + 1]
    first, pair = group_rows(np.column_stack([people + 1, groups]), sizes)
    drawn = np.zeros(len(first), dtype=np.bool_)
    drawn[draw_rows(people[first], most, source)] = True
    places = np.flatnonzero(drawn[pair])
    owner = np.where(people[places] < 0, NOBODY, pair[places])
    return places[draw_rows(owner, rows, source)]


def at_most(tuples: Tuples, person: str, rows: int, source: Source) -> Tuples:
    """Keep at most so many rows of each person in tuples that were also counted by a person column.

    Examples
    --------
    >>> from sfumato.data.table import Table
    >>> from sfumato.engines import reduce
    >>> visits = Table(pl.DataFrame({"sex": ["f", "f", "f", "m"], "patient": [1, 1, 1, 2]}))
    >>> at_most(reduce(visits, ["sex", "patient"]), "patient", 2, Source()).count.tolist()
    [2, 1]
    """
    place = np.repeat(np.arange(len(tuples.count)), tuples.count)  # the tuple of every row
    kept = draw_rows(people_of(tuples, person)[place], rows, source)
    count = np.bincount(place[kept], minlength=len(tuples.count))
    return replace(tuples, codes=tuples.codes[count > 0], count=count[count > 0])


def for_people(event: Event, rows: int) -> Event:
    """Return the cost of an event for a person who has at most so many rows.

    A person with b rows is a group of b rows (see `group`): noise on a sensitivity of s is noise on one of b s, and a
    mechanism of epsilon is one of b epsilon. With one row for each person, every event is what it is for rows. Several
    rows of a person may be sampled apart, so no cost is known of a sample of rows.

    Examples
    --------
    >>> from sfumato.budget import DiscreteLaplace, PureEvent
    >>> event = for_people(DiscreteLaplace(6.0), rows=3)
    >>> event.sensitivity, event.unit, for_people(PureEvent(0.1), rows=3).epsilon
    (3, 'person', 0.30000000000000004)
    """
    rows = whole("the rows of a person", rows)
    if event.unit != UNIT:
        raise OptionError(f"the event is for a {event.unit} already: {event}")
    return _of_people(group(event, rows))


def _of_people(event: Event) -> Event:
    """Return the same event, of the unit person."""
    match event:
        case NoiseEvent() | PureEvent() | ApproximateEvent():
            return replace(event, unit=PERSON)
        case Composed() | Parallel():
            return replace(event, events=tuple(map(_of_people, event.events)))
        case Repeated() | PoissonSampled() | FixedSampled() | Shuffled() | Selected():
            return replace(event, event=_of_people(event.event))
    raise OptionError(f"the cost for a person is not known of this event: {event}")


class PersonBound(ABC):
    """How much of a person counts."""

    names: ClassVar[tuple[str, ...]]
    """The numbers of the bound, as in its plain form."""

    @staticmethod
    def of(given: Mapping[str, Any]) -> PersonBound | None:
        """Return the bound of some numbers by their names, or None if all are None.

        Examples
        --------
        >>> PersonBound.of({"groups_per_person": 2, "rows_per_group": 3})
        MaxGroupsPerPerson(groups_per_person=2, rows_per_group=3)
        >>> PersonBound.of({"rows_per_person": "bought"})
        BoughtRowsPerPerson()
        """
        numbers = {name: value for name, value in given.items() if value is not None}
        if "rows_per_person" in numbers:
            if len(numbers) > 1:
                raise OptionError(
                    "rows_per_person and groups_per_person are two ways to bound the rows of a person",
                    hint="give rows_per_person alone, or groups_per_person with rows_per_group",
                )
            rows = numbers["rows_per_person"]
            if isinstance(rows, str) and rows != BOUGHT:
                raise OptionError(f"rows_per_person must be a whole number of at least 1 or '{BOUGHT}', got {rows!r}")
            return BoughtRowsPerPerson() if isinstance(rows, str) else MaxRowsPerPerson(rows)
        if len(numbers) == 1:
            raise OptionError(
                f"{next(iter(numbers))} alone does not bound the rows of a person",
                hint="give groups_per_person and rows_per_group together",
            )
        return MaxGroupsPerPerson(**numbers) if numbers else None

    def to_dict(self) -> dict[str, Any]:
        """Return the bound as plain values."""
        return {name: getattr(self, name) for name in self.names}

    @abstractmethod
    def in_words(self, person: str) -> str:
        """Return the bound in words, given the name of the person column."""


@dataclass(frozen=True)
class DeclaredBound(PersonBound):
    """A bound that is known before the data are read."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The most rows of a person that count, in all groups together."""

    @abstractmethod
    def draw(self, people: Ints, groups: Ints, source: Source) -> Ints:
        """Return the positions of the rows that count, given the person and the group of every row."""

    @abstractmethod
    def event(self, each: Event) -> Event:
        """Return the cost for a person, given that for a row of a mechanism in every group."""

    @abstractmethod
    def alone(self, *, merged: bool) -> tuple[tuple[int, int], ...]:
        """Return how a person may be alone in groups, as numbers of groups and of rows in each.

        Any other way is less likely to be noticed by noisy sizes of groups. If groups are `merged`, what is counted
        as one group may hold several of them.
        """


@dataclass(frozen=True)
class MaxRowsPerPerson(DeclaredBound):
    """At most so many rows of a person count, wherever they are.

    Examples
    --------
    >>> from sfumato.budget import DiscreteLaplace
    >>> print(MaxRowsPerPerson(3).event(DiscreteLaplace(6.0)))
    discrete Laplace noise of scale 6 on a sensitivity of 3 per person
    """

    rows_per_person: int

    names = ("rows_per_person",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_per_person", whole("rows_per_person", self.rows_per_person))

    @property
    def rows(self) -> int:
        """The most rows of a person that count."""
        return self.rows_per_person

    def draw(self, people: Ints, groups: Ints, source: Source) -> Ints:
        """Return the positions of the rows that count."""
        return draw_rows(people, self.rows, source)

    def event(self, each: Event) -> Event:
        """Return the cost for a person: that of a group of rows."""
        return for_people(each, self.rows)

    def alone(self, *, merged: bool) -> tuple[tuple[int, int], ...]:
        """Return the two extremes: all rows in one group, or each in a group of its own."""
        return (1, self.rows), (self.rows, 1)

    def in_words(self, person: str) -> str:
        """Return the bound in words."""
        return f"rows that count per {person}: at most {self.rows:,}, drawn at random in secret; {_ALONE}"


@dataclass(frozen=True)
class MaxGroupsPerPerson(DeclaredBound):
    """At most so many groups of a person count, and at most so many of their rows in each.

    A mechanism that runs on every group by itself sees at most ``rows_per_group`` rows of a person, and only
    ``groups_per_person`` of its runs see any: it is composed so many times.

    Examples
    --------
    >>> from sfumato.budget import DiscreteLaplace
    >>> bound = MaxGroupsPerPerson(2, rows_per_group=3)
    >>> print(bound.event(DiscreteLaplace(6.0)))
    2 times: discrete Laplace noise of scale 6 on a sensitivity of 3 per person
    >>> bound.rows
    6
    """

    groups_per_person: int
    rows_per_group: int

    names = ("groups_per_person", "rows_per_group")

    def __post_init__(self) -> None:
        for name in self.names:
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    @property
    def rows(self) -> int:
        """The most rows of a person that count, in all groups together."""
        return self.groups_per_person * self.rows_per_group

    def draw(self, people: Ints, groups: Ints, source: Source) -> Ints:
        """Return the positions of the rows that count."""
        return draw_groups(people, groups, self.groups_per_person, self.rows_per_group, source)

    def event(self, each: Event) -> Event:
        """Return the cost for a person: that of a group of rows, once for each of their groups."""
        one = for_people(each, self.rows_per_group)
        return one if self.groups_per_person == 1 else Repeated(one, self.groups_per_person)

    def alone(self, *, merged: bool) -> tuple[tuple[int, int], ...]:
        """Return the extremes: every group full; or, if groups are merged, all rows in one of them."""
        full = self.groups_per_person, self.rows_per_group
        return ((1, self.rows), full) if merged else (full,)

    def in_words(self, person: str) -> str:
        """Return the bound in words."""
        return (
            f"groups that count per {person}: at most {self.groups_per_person:,}, with at most "
            f"{self.rows_per_group:,} row{'s' * (self.rows_per_group > 1)} in each, drawn at random in secret; {_ALONE}"
        )


@dataclass(frozen=True)
class BoughtRowsPerPerson(PersonBound):
    """As many rows of a person count as a noisy choice says; see `FindRowsPerPerson`.

    Examples
    --------
    >>> BoughtRowsPerPerson().to_dict()
    {'rows_per_person': 'bought'}
    """

    names = ("rows_per_person",)

    @property
    def rows_per_person(self) -> str:
        """The word that stands for a number that is bought."""
        return BOUGHT

    def in_words(self, person: str) -> str:
        """Return the bound in words."""
        return f"rows that count per {person}: as many as a tenth of epsilon finds, drawn at random in secret; {_ALONE}"


_ALONE = "a row without one counts as a person of its own"

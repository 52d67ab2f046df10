"""Privacy for people with several rows: which of their rows count, and what an access costs for a person.

A person may have any number of rows, so what they change has no bound of its own. At most b rows of each person are
kept, drawn at random and in secret; everything else is dropped. Then a person is a group of at most b rows. They change
a sum at most b times as much as a row does, so noise that is b times as large protects them.

A row without a person counts as a person of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from sfumato.data.validate import whole
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError

__all__ = ["at_most", "check_bound", "codes_of_people", "draw_rows", "for_people", "units_of"]

Ints = NDArray[np.int64]

_NOBODY = -1


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
    codes = np.full(len(persons), _NOBODY, dtype=np.int64)
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


def check_bound(person: str | None, rows: Any) -> int | None:
    """Return the bound on the rows of a person, or raise an error if it does not go with the person column.

    Examples
    --------
    >>> check_bound("patient_id", 3), check_bound(None, None)
    (3, None)
    """
    if person is None:
        if rows is not None:
            raise OptionError("rows_per_person needs a person column", hint="name it with person / --person")
        return None
    if rows is None:
        raise OptionError(
            f"column '{person}' asks to protect people, but the rows of a person are not bounded",
            hint="rows_per_person / --rows-per-person N: of people with more, N are drawn at random; N must not be "
            "chosen by looking at the data",
        )
    return whole("the rows of a person", rows)


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
    position = tuples.position[person]
    gap = tuples.domains[position].missing
    place = np.repeat(np.arange(len(tuples.count)), tuples.count)  # the tuple of every row
    people = tuples.codes[place, position].astype(np.int64)
    if gap is not None:
        people[people == gap] = _NOBODY
    count = np.bincount(place[draw_rows(people, rows, source)], minlength=len(tuples.count))
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

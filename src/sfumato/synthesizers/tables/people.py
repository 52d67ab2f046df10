"""People: which of their rows a generator learns from, drawn at random and in secret, and people that it draws.

A generator of rows reads up to b rows of each person, and its noise is b times as large as for rows. What the schema
does not declare is bought from one row of each.

A generator of people reads one row of each person together with the number of their rows, and the pair of that row and
another one, if there is another. Its noise is that for rows, whatever b is: one person is one record of each sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUGHT, codes_of_people, draw_rows
from sfumato.budget.query.discovery import FindRowsPerPerson
from sfumato.data.schema import Schema
from sfumato.data.validate import whole
from sfumato.errors import InputError, OptionError
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.tables.base import Model, Synthesizer
from sfumato.synthesizers.tables.columns.constraints import Constraints
from sfumato.synthesizers.tables.columns.constraints import draw_rows as draw_model_rows
from sfumato.synthesizers.tables.columns.description import Described, Description
from sfumato.synthesizers.tables.columns.domain import Domain
from sfumato.synthesizers.tables.columns.kinds import Values
from sfumato.synthesizers.tables.further_rows import FurtherRows, learn_further, rows_of

__all__ = [
    "OF_PEOPLE",
    "ROWS",
    "Drawn",
    "People",
    "check_people",
    "draw_people",
    "frame_of_people",
    "learn_people",
    "read_people",
    "rows_of_a_person",
]

Ints = NDArray[np.int64]

ROWS = "rows of the person"
"""The column of a generator of people that is learned beside those of the table."""
OF_PEOPLE = ("rows_per_person", "people", "rows_bought")
"""What a file of a generator states if people are protected."""
_MOST_ROWS = 10_000  # of a person
_DONORS = 20_000  # drawn rows that further rows take new values from
_TRIES = 50  # to meet the constraints
_MOST_PEOPLE = 10**8


def check_people(schema: Schema, rows_per_person: Any, people: Any) -> None:
    """Raise an error if the rows of people are not bounded, or there is no column that says whose they are.

    Examples
    --------
    >>> check_people(Schema.of({"patient_id": "person"}), 3, None)
    >>> try:
    ...     check_people(Schema.of({"patient_id": "person"}), None, None)
    ... except OptionError as error:
    ...     print(error.message)
    column 'patient_id' asks to protect people, but the rows of a person are not bounded
    """
    if schema.person is None:
        name = "rows_per_person" if rows_per_person is not None else "people"
        if rows_per_person is not None or people is not None:
            raise OptionError(f"{name} needs a person column", hint="name it with person / --person")
        return
    if rows_per_person is None:
        raise OptionError(
            f"column '{schema.person}' asks to protect people, but the rows of a person are not bounded",
            hint="rows_per_person / --rows-per-person N: of people with more, N are drawn at random; N must not be "
            "chosen by looking at the data, but it can be 'bought' with a tenth of epsilon. To protect rows, make the "
            "column an identifier",
        )
    if isinstance(rows_per_person, str) and rows_per_person == BOUGHT:
        if people is not None:
            raise OptionError(
                "the rows of a person are not bought where people are drawn, because a large bound adds no noise there",
                hint="declare a number that few people exceed, or draw rows: leave out people / --people",
            )
        return
    whole("the rows of a person", rows_per_person, most=_MOST_ROWS)
    if people is not None:
        if ROWS in schema.names:
            raise OptionError(f"a column is named '{ROWS}', as the number of rows of a person is", hint="rename it")
        whole("the number of people", people, most=_MOST_PEOPLE)
        if rows_per_person == 1:
            raise OptionError(
                "people with several rows are made, but rows_per_person is 1",
                hint="raise rows_per_person / --rows-per-person, or draw rows: leave out people / --people",
            )


def rows_of_a_person(most: int) -> Described:
    """Return what is public of the number of rows of a person.

    Examples
    --------
    >>> rows_of_a_person(3).coding().decode(np.array([0, 2])).to_list()
    [1, 3]
    """
    return Described(ROWS, Values.WHOLE, pl.Int64(), bounds=(1.0, float(most)), step=1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Drawn(Discreet):
    """Rows of people that were drawn in secret, by their positions."""

    first: Ints
    """One row of each person."""
    counts: Ints
    """The number of rows of each of these people, up to a bound."""
    paired: Ints
    """Which of these people have another row,"""
    second: Ints
    """and the position of one."""


@dataclass(frozen=True, eq=False, repr=False)
class People(Discreet):
    """The person of every row, as a number; -1 for rows without one, each of which is a person of its own.

    Examples
    --------
    >>> people = People.of(pl.Series(["b", "a", None, "b", "b"]))
    >>> people.count, len(people.at_most(2, Source()))
    (3, 4)
    >>> drawn = people.draw(2, Source())
    >>> len(drawn.first), sorted(drawn.counts.tolist()), len(drawn.second)
    (3, [1, 1, 2], 1)
    """

    codes: Ints

    @classmethod
    def of(cls, column: pl.Series) -> People:
        """Return the people of a person column."""
        return cls(codes_of_people(column if column.dtype.is_numeric() else column.cast(pl.String)))

    @property
    def count(self) -> int:
        """The number of people."""
        return int(self.codes.max(initial=-1)) + 1 + int((self.codes < 0).sum())

    def only(self, rows: Ints) -> People:
        """Return the people of the rows at some positions."""
        return People(self.codes[rows])

    def at_most(self, rows: int, source: Source) -> Ints:
        """Draw at most so many rows of each person, and return their positions in order."""
        return draw_rows(self.codes, rows, source)

    def draw(self, most: int, source: Source) -> Drawn:
        """Draw one row of each person, and another one of those who have it; rows are counted up to a bound."""
        two = self.at_most(2, source)
        is_first = np.zeros(len(two), dtype=bool)
        is_first[draw_rows(self.codes[two], 1, source)] = True
        first, second = two[is_first], two[~is_first]
        times = np.bincount(self.codes[self.codes >= 0], minlength=1)
        owner = self.codes[first]
        counts = np.where(owner < 0, 1, np.minimum(times[owner], most)).astype(np.int64)
        place = np.zeros(len(times), dtype=np.int64)
        place[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
        return Drawn(first, counts, place[self.codes[second]], second)


def learn_people(
    method: Synthesizer,
    domain: Domain,
    learned: Description,
    visits: Drawn,
    sums: NoisySums,
    rng: np.random.Generator,
) -> tuple[Model, FurtherRows]:
    """Learn first rows together with the number of rows of their people, and further rows."""
    first, second = learned.only(visits.first), learned.only(visits.second)
    counts = pl.Series(ROWS, visits.counts)
    records = domain.encode_each(lambda name: counts if name == ROWS else first.values(name))
    model = method.learn(records, sums, rng)
    before = [codes[visits.paired] for codes in records.codes[:-1]]
    after = [one.encode_compactly(second.values(one.name)) for one in domain.codings[:-1]]
    return model, learn_further(model, domain.axes, before, after, sums, rng)


def draw_people(
    model: Model,
    further: FurtherRows,
    domain: Domain,
    people: int,
    rng: np.random.Generator,
    constraints: Constraints | None = None,
) -> tuple[Ints, list[Ints]]:
    """Return the person of each row, from 1 on, and the codes of new rows; those of a person follow each other.

    Rows that do not meet the constraints are drawn again; a further row that never does is like the first one.

    Parameters
    ----------
    model : Model
    further : FurtherRows
    domain : Domain
        The columns; the last one that is learned is the number of rows of a person.
    people : int
    rng : numpy Generator
    constraints : Constraints, optional
    """
    rules = constraints or Constraints()
    *first, rows = draw_model_rows(model, domain, people, rng, constraints=rules)
    most = domain.codings[-1].axis.size - 1
    owner = np.repeat(np.arange(people), rows_of(rows, most) - 1)
    *donors, _ = model.sample(_DONORS, rng)
    before = [one[owner] for one in first]
    found = further.draw(before, donors, rng)
    if rules.conditions or rules.orders:
        counts = rows[owner]
        for _ in range(_TRIES):
            again = np.flatnonzero(~rules.met(domain, domain.complete([*found, counts])))
            if not len(again):
                break
            for codes, more in zip(found, further.draw([one[again] for one in before], donors, rng), strict=True):
                codes[again] = more
        wrong = ~rules.met(domain, domain.complete([*found, counts]))
        found = [np.where(wrong, one, codes) for one, codes in zip(before, found, strict=True)]
    person = np.concatenate([np.arange(people), owner])
    order = np.argsort(person, kind="stable")
    every = [
        np.concatenate([one, codes])[order] for one, codes in zip([*first, rows], [*found, rows[owner]], strict=True)
    ]
    return person[order] + 1, every


def frame_of_people(person: Any, codes: Any, domain: Domain, name: str) -> pl.DataFrame:
    """Return the rows of people as a frame: their numbers, and their columns."""
    return domain.decode(codes).drop(ROWS).insert_column(0, pl.Series(name, person, dtype=pl.Int64))


def read_people(plain: Mapping[str, Any], schema: Schema, domain: Domain) -> tuple[int | None, bool, bool]:
    """Return what a stranger's file says of people, if they are protected.

    That is the most rows of a person, whether people are drawn, and whether the most rows were bought.
    """
    if (schema.person is None) != plain.keys().isdisjoint(OF_PEOPLE):
        raise InputError("a generator that protects people, and no other, has a person column and a bound on its rows")
    if schema.person is None:
        return None, False, False
    most, people = plain.get("rows_per_person"), plain.get("people")
    if not isinstance(people, bool) or not isinstance(most, int):
        raise InputError("'people' must be true or false, and 'rows_per_person' a whole number")
    check_people(schema, most, 1 if people else None)
    if people and (domain.codings[-1] != rows_of_a_person(most).coding() or domain.label == len(domain.codings) - 1):
        raise InputError("a generator of people must have the number of their rows as its last column")
    if "rows_bought" in plain:
        if people or plain["rows_bought"] is not True:
            raise InputError("'rows_bought' must be true, and only where rows are drawn")
        FindRowsPerPerson.checked(most)
    return most, people, "rows_bought" in plain

"""Count the people behind the rows, by the column that identifies them.

k rows of a class may be k visits of one person. If a person column is named, people are counted instead of rows, see
`person_counts`. If none is named and an identifier of people repeats, numbers measured on rows do not hold for people,
and a guarantee is given only if the caller states that rows, not people, are protected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._repr import Plain
from sfumato.data.io.source import DataSource
from sfumato.data.schema import Role
from sfumato.data.suggest import PersonKey, key_of, names_someone
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.engine import is_spark
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError, SfumatoError
from sfumato.measures.classes import Missing, class_counts, without_suppressed
from sfumato.measures.models import LDiversity

__all__ = ["People", "keys_of", "people_of", "refuse_repeated", "refuse_two_units"]

_NAMING = (Role.IDENTIFIER, Role.KEPT)
_SAMPLE = 1000
_MOST_ROWS = 20_000_000
"""The most rows of a table whose people are counted, because the count keeps each person in memory."""


@dataclass(frozen=True)
class People(Plain):
    """The number of people behind the rows of a table.

    Examples
    --------
    >>> People("patient_id", rows=15_000, people=4_000, smallest=1).in_words
    "15,000 rows are of 4,000 people ('patient_id' repeats)"
    """

    identifier: str
    """The column that identifies people."""
    rows: int
    people: int
    smallest: int | None = None
    """The fewest people in a class, if classes were counted."""

    @property
    def repeat(self) -> bool:
        """Whether a person has several rows."""
        return self.people < self.rows

    @property
    def in_words(self) -> str:
        """The counts as part of a sentence."""
        return f"{self.rows:,} rows are of {self.people:,} people ('{self.identifier}' repeats)"


def keys_of(table: Table) -> list[str]:
    """Return the identifiers, including kept ones, that may identify people: personal numbers, if there are any.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> columns = {"visit_id": [1, 2], "patient_id": [7, 7], "last_name": ["Abel", "Abel"]}
    >>> keys_of(sf.Table.of(pl.DataFrame(columns), identifiers=list(columns)))
    ['patient_id']
    """
    rank = {one.name: key_of(one.name) for one in table.schema.columns if one.role in _NAMING}
    if PersonKey.PERSON not in rank.values():
        rank |= _by_their_looks(table, [name for name, one in rank.items() if one is PersonKey.NONE])
    best = max(rank.values(), default=PersonKey.NONE)
    return [name for name, one in rank.items() if one is best] if best >= PersonKey.SOME else []


def _by_their_looks(table: Table, names: Sequence[str]) -> dict[str, PersonKey]:
    """Return the columns whose values look like personal addresses or numbers, whatever their names."""
    rows = table.sample(_SAMPLE, names) if names else table
    readable = {*rows.schema.names}
    return {name: PersonKey.SOME for name in names if name in readable and names_someone(rows, rows.schema[name])}


def people_of(
    table: Table,
    keys: Sequence[str],
    quasi: Sequence[str] = (),
    *,
    missing: Missing = Missing.VALUE,
    suppressed: str | None = "*",
) -> People | None:
    """Count people by the key with the most distinct values; return None if there is no key, or too many rows.

    Rows without a key are left out of the numbers of rows and people, and count as one more person in their class.
    """
    source = table.source
    if not keys or is_spark(table):
        return None
    if isinstance(source, DataSource) and not table.has_inferred_types and source.rows() > _MOST_ROWS:
        return None
    best: tuple[People, Tuples] | None = None
    for key in keys:
        try:
            tuples = reduce(table, [key])
        except SfumatoError:  # a column that cannot be read identifies no one
            continue
        known = np.ones(len(tuples.count), dtype=bool)
        if (gap := tuples.domains[0].missing) is not None:
            known = tuples.codes[:, 0] != gap
        found = People(key, rows=int(tuples.count[known].sum()), people=int(known.sum()))
        if found.people and (best is None or found.people > best[0].people):
            best = found, tuples
    if best is None or not quasi or not best[0].repeat:
        return best[0] if best else None
    people = best[0]
    joint, _ = without_suppressed(reduce(table, [*quasi, people.identifier]), quasi, suppressed)
    classes = class_counts(joint, quasi, people.identifier, missing)
    return People(people.identifier, people.rows, people.people, int(LDiversity().measure([classes]).value))


def refuse_two_units(table: Table, rows_are_units: bool) -> None:
    """Refuse to protect people and rows at once."""
    if rows_are_units and table.schema.person is not None:
        raise OptionError(
            f"rows_are_units protects rows, and column '{table.schema.person}' asks to protect people",
            hint="leave out one of the two: as an identifier, the column protects rows",
        )


def refuse_repeated(people: People | None, asked: Sequence[object], rows_are_units: bool) -> None:
    """Refuse a guarantee about people that holds only for rows."""
    if people is not None and people.repeat and asked and not rows_are_units:
        raise OptionError(
            f"{people.in_words}, so {asked[0]} would count rows and not people",
            hint=f"count people with person / --person {people.identifier}, or protect rows instead of people "
            "with rows_are_units / --rows-are-units",
        )

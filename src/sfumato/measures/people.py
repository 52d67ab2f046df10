"""Rows are not people: find the column that tells people apart, and count how many people the rows are of.

k rows of a class may be k visits of one person. Where the identifier of a person repeats, what is measured of rows
does not hold for people, and whoever asks for a guarantee must say that rows are what is to be protected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato.data.io.source import Source
from sfumato.data.schema import Role
from sfumato.data.suggest import Key, key_of, names_someone
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.engine import is_spark
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError, SfumatoError
from sfumato.measures.classes import Missing, class_counts, without_suppressed
from sfumato.measures.models import LDiversity

__all__ = ["People", "keys_of", "people_of", "refuse_repeated"]

_NAMING = (Role.IDENTIFIER, Role.KEPT)
_SAMPLE = 1000
_MOST_ROWS = 20_000_000
"""Of a larger table people are not counted: each of them would have to be kept in memory."""


@dataclass(frozen=True)
class People:
    """How many people the rows of a table are of.

    Examples
    --------
    >>> People("patient_id", rows=15_000, people=4_000, smallest=1).in_words
    "15,000 rows are of 4,000 people ('patient_id' repeats)"
    """

    identifier: str
    """The column that tells people apart."""
    rows: int
    people: int
    smallest: int | None = None
    """The fewest people in a class, if classes were counted."""

    @property
    def repeat(self) -> bool:
        """Whether somebody has several rows."""
        return self.people < self.rows

    @property
    def in_words(self) -> str:
        """A sentence for a person."""
        return f"{self.rows:,} rows are of {self.people:,} people ('{self.identifier}' repeats)"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return asdict(self)


def keys_of(table: Table) -> list[str]:
    """Return the identifiers, also kept ones, that may tell people apart: those that name a person's number, if any do.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> columns = {"visit_id": [1, 2], "patient_id": [7, 7], "last_name": ["Abel", "Abel"]}
    >>> keys_of(sf.Table.of(pl.DataFrame(columns), identifiers=list(columns)))
    ['patient_id']
    """
    rank = {one.name: key_of(one.name) for one in table.schema.columns if one.role in _NAMING}
    if Key.PERSON not in rank.values():
        rank |= _by_their_looks(table, [name for name, one in rank.items() if one is Key.NONE])
    best = max(rank.values(), default=Key.NONE)
    return [name for name, one in rank.items() if one is best] if best >= Key.SOME else []


def _by_their_looks(table: Table, names: Sequence[str]) -> dict[str, Key]:
    """Find the columns whose values look like addresses or numbers of people, whatever they are called."""
    rows = table.sample(_SAMPLE, names) if names else table
    readable = {*rows.schema.names}
    return {name: Key.SOME for name in names if name in readable and names_someone(rows, rows.schema[name])}


def people_of(
    table: Table,
    keys: Sequence[str],
    quasi: Sequence[str] = (),
    *,
    missing: Missing = Missing.VALUE,
    suppressed: str | None = "*",
) -> People | None:
    """Count people by that of the keys which tells most of them apart; None if there is no key, or too many rows.

    Rows without a key are left out of the number of rows and people, and are one more person in their class.
    """
    if not keys or is_spark(table) or (_unread_rows(table) or 0) > _MOST_ROWS:
        return None
    best: tuple[People, Tuples] | None = None
    for key in keys:
        try:
            tuples = reduce(table, [key])
        except SfumatoError:  # a column that cannot be read tells nobody apart
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


def refuse_repeated(people: People | None, asked: Sequence[object], rows_are_units: bool) -> None:
    """Refuse to promise something of people that holds of rows only."""
    if people is not None and people.repeat and asked and not rows_are_units:
        raise OptionError(
            f"{people.in_words}, so {asked[0]} would count rows and not people",
            hint="give a table with one row per person, or say that rows are protected, not people, with "
            "rows_are_units / --rows-are-units",
        )


def _unread_rows(table: Table) -> int | None:
    """Return the number of rows that have not been read, where it is known without reading them."""
    source = table.source
    return source.rows() if isinstance(source, Source) and not table.has_inferred_types else None

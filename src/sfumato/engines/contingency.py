"""Contingency tables of coded columns, counted where the rows are: what to count, and how counts are put into arrays.

A column becomes codes by public rules alone: the steps between the bounds of a number, the places of texts in a domain.
Codes fall into groups, and an engine counts the groups of many tuples of columns in one pass over the rows. What an
engine is asked does not depend on the rows, and a value that does not fit counts as missing, whatever the others are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import StrEnum
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import canonical_text
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.table import Table
from sfumato.engines.engine import Engine
from sfumato.errors import ColumnError

__all__ = [
    "TEXTS",
    "Bins",
    "CodeCounter",
    "Coded",
    "Decimals",
    "Places",
    "Rule",
    "Steps",
    "Unit",
    "has_zone",
    "into_arrays",
    "is_countable",
    "place_in_type",
    "refuse_type",
]

Ints = NDArray[np.int64]

TEXTS = (pl.String, pl.Categorical, pl.Enum)
_EPOCH = date(1970, 1, 1).toordinal()


class Unit(StrEnum):
    """What a number of a column is."""

    ONE = "one"
    """The number itself; 0 or 1 for a truth value; of a text, the number that it shows."""
    DAY = "day"
    """The day since 1970 of a date, a moment (in UTC), or a text that shows one of them."""
    SECOND = "second"
    """The seconds since 1970 of a moment (in UTC), or since midnight of a time of day."""


@dataclass(frozen=True)
class Steps:
    """Numbers: clipped to the bounds, and then rounded to steps, half steps to even ones; a code per step."""

    low: float
    high: float
    step: float
    first: int
    last: int
    """The first and the last step, in steps from 0."""
    unit: Unit = Unit.ONE
    per_one: int | None = None
    """How many steps make 1, if it is a whole number: numbers are multiplied by it instead of divided by the step."""

    @property
    def known(self) -> int:
        """The number of codes; the next code is for missing values."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Places:
    """Categories: the position of a value in a domain, or the size of the domain if it is not there.

    A text must equal one of the domain; a value of another type must have it as its canonical text.
    """

    domain: tuple[str, ...]

    @property
    def known(self) -> int:
        """The number of codes; the next code is for missing values."""
        return len(self.domain)


@dataclass(frozen=True)
class Bins:
    """Numbers: how many edges are not above the number."""

    edges: tuple[float, ...]
    unit: Unit = Unit.ONE

    @property
    def known(self) -> int:
        """The number of codes; the next code is for missing values."""
        return len(self.edges) + 1


@dataclass(frozen=True)
class Decimals:
    """Numbers: how many decimals the number has, at most a limit."""

    most: int
    unit: ClassVar[Unit] = Unit.ONE

    @property
    def known(self) -> int:
        """The number of codes; the next code is for missing and infinite numbers."""
        return self.most + 1


Rule = Steps | Places | Bins | Decimals


@dataclass(frozen=True, eq=False)
class Coded:
    """A column, how its values become codes, and how codes become groups: intervals of codes, each with a group.

    Examples
    --------
    >>> sex = Coded("sex", Places(("f", "m")))
    >>> sex.size, sex.starts.tolist(), sex.groups.tolist()
    (3, [0, 1, 2], [0, 1, 2])
    """

    name: str
    rule: Rule
    starts: Ints
    groups: Ints

    def __init__(self, name: str, rule: Rule, starts: Ints | None = None, groups: Ints | None = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "starts", np.arange(rule.known + 1) if starts is None else starts)
        object.__setattr__(self, "groups", self.starts if groups is None else groups)

    @property
    def size(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1

    @property
    def is_identity(self) -> bool:
        """Whether every code is its own group."""
        return len(self.starts) == self.rule.known + 1 and bool((self.groups == self.starts).all())


class CodeCounter(Engine):
    """An engine that counts codes in one pass over the rows."""

    @abstractmethod
    def types(self, table: Table) -> dict[str, pl.DataType]:
        """Return the declared types of all columns."""

    def contingency(
        self,
        table: Table,
        columns: Sequence[Coded],
        tuples: Sequence[tuple[int, ...]],
        weight: Coded | None = None,
    ) -> list[Ints]:
        """Count the groups of each tuple of columns, which are given by position.

        With a weight, a row counts as often as its code says; a missing one does not count.

        Examples
        --------
        >>> import duckdb
        >>> import sfumato as sf
        >>> from sfumato.engines import DuckDB
        >>> table = sf.Table(duckdb.sql("SELECT * FROM 'patients.csv'"))
        >>> columns = Coded("sex", Places(("f", "m"))), Coded("age", Bins((40.0,)))
        >>> [one.tolist() for one in DuckDB().contingency(table, columns, [(0,), (0, 1)])]
        [[5, 3, 0], [[4, 1, 0], [2, 1, 0], [0, 0, 0]]]
        """
        types = self.types(table)
        for column in columns if weight is None else (*columns, weight):
            if not is_countable(types[column.name]):
                raise refuse_type(column.name, types[column.name])
        used = sorted({at for one in tuples for at in one})
        position = {at: new for new, at in enumerate(used)}
        asked = [tuple(position[at] for at in one) for one in tuples]
        sets = list(dict.fromkeys(tuple(sorted(one)) for one in asked))
        if not sets:
            return []
        own = [columns[at] for at in used]
        *groups, count = self._count_groups(table, own, types, sets, weight)
        return into_arrays(own, asked, groups, count)

    @abstractmethod
    def _count_groups(
        self,
        table: Table,
        columns: Sequence[Coded],
        types: dict[str, pl.DataType],
        sets: Sequence[tuple[int, ...]],
        weight: Coded | None,
    ) -> Sequence[pl.Series]:
        """Return the groups of the columns, null where a row counts other columns, and the counts."""


def is_countable(dtype: pl.DataType) -> bool:
    """Return whether values of a type become codes where they are: numbers, texts, truth values, dates and times."""
    plain = dtype.is_numeric() or dtype in (pl.Boolean, pl.Date, pl.Datetime, pl.Time)
    return plain or isinstance(dtype, TEXTS)


def refuse_type(name: str, dtype: pl.DataType) -> ColumnError:
    """Return the error for a column of another type."""
    kind = "no declared type" if isinstance(dtype, pl.Unknown | pl.Object) else f"the type {dtype}"
    return ColumnError(
        f"column '{name}' has {kind}, and only numbers, texts, truth values, dates and times can be counted there",
        hint="cast it in a view (a duration to its seconds), leave it out, or export the table to Parquet",
    )


def place_in_type(text: str, dtype: pl.DataType) -> float | int | None:
    """Return the number that stands for a category in a column that does not hold texts; None if there is none.

    A truth value is 0 or 1, a date its day, a moment its microseconds since 1970, a time those since midnight.

    Examples
    --------
    >>> place_in_type("True", pl.Boolean()), place_in_type("1970-01-03", pl.Date()), place_in_type("x", pl.Int64())
    (1, 2, None)
    """
    if canonical_text(text) != text:
        return None
    if dtype == pl.Boolean:
        return {"False": 0, "True": 1}.get(text)
    try:
        if dtype.is_numeric():
            return float(text) if text_of(float(text)) == text else None
        if dtype == pl.Date:
            day = date.fromisoformat(text)
            return day.toordinal() - _EPOCH if str(day) == text else None
        if dtype == pl.Time:
            clock = pl.Series([time.fromisoformat(text)])
            return int(clock.to_physical()[0]) // 1000 if str(clock[0]) == text else None
        moment = pl.Series([datetime.fromisoformat(text)], dtype=pl.Datetime("us", "UTC") if has_zone(dtype) else None)
    except (ValueError, TypeError, pl.exceptions.PolarsError):
        return None
    zone = getattr(dtype, "time_zone", None)
    back = moment.dt.convert_time_zone(zone) if zone is not None else moment
    return int(moment.to_physical()[0]) if str(back[0]) == text else None


def has_zone(dtype: pl.DataType) -> bool:
    """Return whether the moments of a type have a time zone."""
    return getattr(dtype, "time_zone", None) is not None


def into_arrays(
    columns: Sequence[Coded], tuples: Sequence[tuple[int, ...]], groups: Sequence[pl.Series], count: pl.Series
) -> list[Ints]:
    """Return an array of counts for each tuple of columns.

    Parameters
    ----------
    columns, tuples
        What was counted.
    groups : sequence of series
        The group of each column, or null in a row that counts other columns: so the nulls tell the tuple.
    count : series
        The counts.

    Examples
    --------
    >>> columns = Coded("a", Places(("x",))), Coded("b", Places(("y",)))
    >>> groups = pl.Series([0, 1, None]), pl.Series([None, 1, 1])
    >>> [one.tolist() for one in into_arrays(columns, [(0,), (1, 0)], groups, pl.Series([2, 1, 1]))]
    [[2, 0], [[0, 0], [0, 1]]]
    """
    found = [np.zeros([columns[at].size for at in one], dtype=np.int64) for one in tuples]
    if not len(count):
        return found
    used = np.packbits(np.stack([one.is_not_null().to_numpy() for one in groups], axis=1), axis=1)
    _, first, kind = np.unique(used, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(kind.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(kind.ravel()))[:-1])
    rows = {used[at].tobytes(): part for at, part in zip(first, parts, strict=True)}
    codes, counts = [one.fill_null(0).to_numpy() for one in groups], count.to_numpy()
    for one, counted in zip(tuples, found, strict=True):
        mask = np.zeros(len(groups), dtype=bool)
        mask[list(one)] = True
        own = rows.get(np.packbits(mask).tobytes(), order[:0])
        counted[tuple(codes[at][own] for at in one)] = counts[own]
    return found

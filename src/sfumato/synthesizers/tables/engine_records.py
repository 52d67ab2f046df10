"""Records that stay where they are: a database, DuckDB or Spark counts their codes, and only counts reach this process.

Every round of a method is one pass over the rows. What an engine is asked consists of public rules and of noisy
numbers, so it does not tell anything of the rows. Records cannot be read here, only counted (`scans` is False): a
method that corrects itself by reading them spends that budget on counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.schema import Column
from sfumato.data.table import Table
from sfumato.engines.contingency import (
    Bins,
    CodeCounter,
    Coded,
    Decimals,
    Places,
    Rule,
    Steps,
    Unit,
    is_countable,
    refuse_type,
)
from sfumato.engines.dispatch import choose, reduce
from sfumato.learners.estimators.features import Columns
from sfumato.synthesizers.state import split
from sfumato.synthesizers.tables.base import Axis, Recoding, Records
from sfumato.synthesizers.tables.columns.description import (
    MOST_DECIMALS,
    WEIGHTS,
    Described,
    Description,
    most_weight,
    record_weights,
    texts_of,
)
from sfumato.synthesizers.tables.columns.domain import Coding, Domain
from sfumato.synthesizers.tables.columns.kinds import Values

if TYPE_CHECKING:
    from sfumato.engines.spark import Spark

__all__ = ["EngineDescription", "EngineRecords", "describe_elsewhere"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNITS = {Values.DATE: Unit.DAY, Values.MOMENT: Unit.SECOND, Values.TIME: Unit.SECOND}


def describe_elsewhere(table: Table, *, buy_decimals: bool = True) -> EngineDescription | None:
    """Describe the columns of a table whose rows are in a database, in DuckDB or in Spark; None if they are here.

    Examples
    --------
    >>> import duckdb
    >>> import sfumato as sf
    >>> there = describe_elsewhere(sf.Table(duckdb.sql("SELECT * FROM range(5) AS numbers(n)")))
    >>> there.rows, there.described[0].values.value
    (5, 'whole')
    """
    engine = choose(table)
    if engine.name == "spark":
        from sfumato.engines.spark import Spark

        counter: Counting = InSpark(Spark(), table)
    elif isinstance(engine, CodeCounter):
        counter = InDatabase(engine, table)
    else:
        return None
    types = {name: dtype for name, dtype in counter.types.items() if name in table.schema.names}
    columns = Columns(tuple(pl.Series(name, dtype=dtype) for name, dtype in types.items()), table.schema, named=True)
    for name, dtype in types.items():
        if name not in table.schema.identifiers and not is_countable(dtype):
            raise refuse_type(name, dtype)
    known = Description.of_columns(columns, buy_decimals=buy_decimals)
    return EngineDescription(known.columns, known.described, counter)


class Counting(Discreet):
    """Where the rows are, and how they are counted there."""

    table: Table
    types: dict[str, pl.DataType]

    def rows(self) -> int:
        """Count the rows."""
        raise NotImplementedError

    def count(
        self,
        codings: Sequence[Coding],
        tuples: Sequence[tuple[int, ...]],
        recodings: Sequence[Recoding],
        weight: Column | None = None,
    ) -> list[Floats]:
        """Count the groups of each tuple of columns, in one pass."""
        raise NotImplementedError

    def histograms(self, described: Sequence[Described]) -> list[list[Floats]]:
        """Return the histograms that each column wants, in one pass."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class InDatabase(Counting):
    """Rows in a database or in DuckDB: their codes are expressions of a query."""

    engine: CodeCounter
    table: Table

    @cached_property
    def types(self) -> dict[str, pl.DataType]:  # type: ignore[override]
        """The declared types of all columns."""
        return self.engine.types(self.table)

    def rows(self) -> int:
        """Count the rows."""
        every = Coded(next(name for name, dtype in self.types.items() if is_countable(dtype)), Places(()))
        return int(self.engine.contingency(self.table, [every], [(0,)])[0].sum())

    def count(
        self,
        codings: Sequence[Coding],
        tuples: Sequence[tuple[int, ...]],
        recodings: Sequence[Recoding],
        weight: Column | None = None,
    ) -> list[Floats]:
        """Count the groups of each tuple of columns, in one query."""
        columns = [
            Coded(one.name, rule_of(one), how.starts, how.groups) for one, how in zip(codings, recodings, strict=True)
        ]
        if weight is None:
            return [one.astype(np.float64) for one in self.engine.contingency(self.table, columns, tuples)]
        most = most_weight(weight)
        steps = Coded(weight.name, Steps(0.0, most, most / WEIGHTS, 0, WEIGHTS))
        return [one / WEIGHTS for one in self.engine.contingency(self.table, columns, tuples, steps)]

    def histograms(self, described: Sequence[Described]) -> list[list[Floats]]:
        """Return the histograms that each column wants, from one query."""
        columns, sizes = list[Coded](), list[int]()
        for one in described:
            rules = _histogram_rules(one)
            columns += [Coded(one.name, rule) for rule in rules]
            sizes.append(len(rules))
        found = self.engine.contingency(self.table, columns, [(at,) for at in range(len(columns))])
        counts = [
            (one[:-1] if isinstance(column.rule, Decimals) else one).astype(np.float64)
            for one, column in zip(found, columns, strict=True)
        ]
        starts = np.cumsum([0, *sizes])
        return [counts[start : start + size] for start, size in zip(starts, sizes, strict=False)]


@dataclass(frozen=True, eq=False, repr=False)
class InSpark(Counting):
    """Rows of a Spark frame: its workers turn them into codes as is done in memory, and count them."""

    engine: Spark
    table: Table

    @cached_property
    def types(self) -> dict[str, pl.DataType]:  # type: ignore[override]
        """The declared types of all columns."""
        return self.engine.types(self.table)

    def rows(self) -> int:
        """Count the rows."""
        return int(self.engine.add_up(self.table, _length)[0])

    def count(
        self,
        codings: Sequence[Coding],
        tuples: Sequence[tuple[int, ...]],
        recodings: Sequence[Recoding],
        weight: Column | None = None,
    ) -> list[Floats]:
        """Count the groups of each tuple of columns, in one job."""
        domain = Domain(tuple(codings))

        def counts(frame: pl.DataFrame) -> Ints:
            weights = None if weight is None else record_weights(frame[weight.name], weight)
            rows = domain.encode(Columns(tuple(frame.get_columns()), None, named=True), weights)
            counted = np.concatenate([one.ravel() for one in rows.count(tuples, recodings)])
            return (counted if weight is None else counted * WEIGHTS).astype(np.int64)

        if not tuples:
            return []
        shapes = [tuple(recodings[at].size for at in one) for one in tuples]
        parts = split(self.engine.add_up(self.table, counts), [int(np.prod(one)) for one in shapes])
        unit = 1 if weight is None else WEIGHTS
        return [(one / unit).reshape(shape) for one, shape in zip(parts, shapes, strict=True)]

    def histograms(self, described: Sequence[Described]) -> list[list[Floats]]:
        """Return the histograms that each column wants, from one job."""
        wanted = list(described)

        def counts(frame: pl.DataFrame) -> Ints:
            every = [one for column in wanted for one in column.histograms(frame[column.name])]
            return np.concatenate([np.zeros(0), *every]).astype(np.int64)

        lengths = [[len(part) for part in one.histograms(pl.Series(dtype=self.types[one.name]))] for one in wanted]
        parts = iter(split(self.engine.add_up(self.table, counts), [one for part in lengths for one in part]))
        return [[next(parts).astype(np.float64) for _ in one] for one in lengths]


def _length(frame: pl.DataFrame) -> Ints:
    return np.array([len(frame)])


@dataclass(frozen=True, eq=False, repr=False)
class EngineRecords(Discreet, Records):
    """Records that an engine counts where they are.

    Examples
    --------
    >>> import duckdb
    >>> import sfumato as sf
    >>> there = describe_elsewhere(sf.Table(duckdb.sql("SELECT sex FROM 'patients.csv'")))
    >>> domain = Domain((Described("sex", Values.TEXT, pl.String(), domain=("f", "m")).coding(),))
    >>> there.records(domain, None).count([(0,)], [Recoding.identity(3)])[0].tolist()
    [5.0, 3.0, 0.0]
    """

    axes: tuple[Axis, ...]
    label: int | None
    domain: Domain
    where: Counting
    weight: Column | None = None
    """The column of survey weights."""
    scans: ClassVar[bool] = False

    def count(self, tuples: Sequence[tuple[int, ...]], recodings: Sequence[Recoding]) -> list[Floats]:
        """Count the groups of each tuple of columns, in one pass over the rows."""
        return self.where.count(self.domain.codings, tuples, recodings, self.weight)


@dataclass(frozen=True, eq=False)
class EngineDescription(Description):
    """What is public of the columns of a table whose rows are elsewhere; what is bought is counted there."""

    where: Counting
    scans: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.where.rows()

    def records(self, domain: Domain, weights: Any = None) -> Records:
        """Return the records, which are counted where they are."""
        return EngineRecords(domain.axes, domain.label, domain, self.where, weights)

    def weights(self, name: str) -> Any:
        """Return the declared column of survey weights, which are added up where they are."""
        column = self._declared(name)
        most_weight(column)
        return column

    def _exact_histograms(self) -> list[list[Floats]]:
        wanted = [one for one in self.described if one.wants_bounds or one.wants_step]
        found = iter(self.where.histograms(wanted) if wanted else [])
        return [next(found) if one.wants_bounds or one.wants_step else [] for one in self.described]

    def _text_counts(self, name: str) -> Mapping[Any, int]:
        tuples = reduce(self.where.table, [name])
        values = tuples.domains[0].values.gather(tuples.codes[:, 0])
        counts = Counter[Any]()
        for text, count in zip(texts_of(values, self.where.types[name]), tuples.count.tolist(), strict=True):
            if text is not None:
                counts[text] += count
        return counts


def rule_of(coding: Coding) -> Rule:
    """Return the rule by which an engine turns the values of a column into codes.

    Examples
    --------
    >>> age = Described("age", Values.WHOLE, pl.Int64(), bounds=(0.0, 99.0)).coding()
    >>> rule_of(age)
    Steps(low=0.0, high=99.0, step=1.0, first=0, last=99, unit=<Unit.ONE: 'one'>, per_one=None)
    """
    if coding.feature.domain is not None:
        return Places(coding.feature.domain)
    low, high = coding.feature.bounds or (0.0, 1.0)
    first, last, per_one = coding.grid
    return Steps(low, high, coding.step, first, last, _UNITS.get(coding.values, Unit.ONE), per_one)


def _histogram_rules(one: Described) -> list[Rule]:
    rules = list[Rule]()
    if one.wants_bounds:
        rules.append(Bins(tuple(one.edges[1:-1].tolist()), _UNITS.get(one.values, Unit.ONE)))
    if one.wants_step:
        rules.append(Decimals(MOST_DECIMALS))
    return rules

"""The plan of a question: everything that decides its noise and its groups, none of which depends on the data.

The public facts about the columns are those declared in a schema. Anyone who has the plan of an answer can derive its
cost, its groups and the width of its intervals again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Composed, Event, Relation
from sfumato.budget.mechanisms.additive import declared_bounds
from sfumato.budget.mechanisms.selection import Extreme, Quantile
from sfumato.budget.mechanisms.statistics import Count, Mean, OfRecords, Sum, Variance
from sfumato.budget.people import for_people
from sfumato.budget.query.discovery import SelectCategories
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.coding import canonical_text
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real, whole
from sfumato.errors import ColumnError, OptionError, SchemaError

__all__ = ["NumberColumn", "Plan", "check_terms", "public_schema", "statistic_for"]

_MOST_GROUPS = 1_000_000
_LEAST_EPSILON = 1e-9  # for a smaller epsilon, the noise would not fit into 64 bits


def public_schema(table: Table, schema: Schema | str | Path | None) -> Schema:
    """Return the declarations for all columns of a table, from its own schema or the given one.

    The given schema is not checked against the data, since the result of that check would be private. A kind that
    was inferred from the values, as in a text file, is not public either: one record can change it.

    Examples
    --------
    >>> import sfumato as sf
    >>> public = public_schema(sf.read("patients.csv"), sf.Schema([sf.Column(name="sex", domain=["f", "m"])]))
    >>> public["sex"].domain, public["age"].domain, public["age"].kind
    (('f', 'm'), None, <Kind.AUTO: 'auto'>)
    """
    given = Schema(()) if schema is None else Schema.of(schema)
    listed = {table.schema[column.name].name: column for column in given.columns}

    def public(column: Column) -> Column:
        inferred = table.declared_type(column.name) is None
        return listed.get(column.name) or (replace(column, kind=Kind.AUTO) if inferred else column)

    return Schema(map(public, table.schema.columns))


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers with public bounds.

    Examples
    --------
    >>> import sfumato as sf
    >>> NumberColumn.of(sf.Column(name="age", bounds=(0, 120)), whole=True)
    NumberColumn(name='age', low=0.0, high=120.0, whole=True)
    """

    name: str
    low: float
    high: float
    whole: bool = False
    """Whether the declared type of the column is a whole number."""

    @classmethod
    def of(cls, column: Column, *, whole: bool = False) -> NumberColumn:
        """Return a column with its bounds, or raise an error if it has none or is not declared to hold numbers."""
        if column.kind not in (Kind.NUMBER, Kind.AUTO):
            raise ColumnError(
                f"column '{column.name}' does not hold numbers: its kind is '{column.kind.value}'",
                hint=f"count by {column.name} counts its values",
            )
        if column.bounds is None:
            raise SchemaError(
                f"column '{column.name}' has no public bounds, which declare that it holds numbers and determine the "
                "noise",
                hint="give its bounds in the schema or with --bounds: the possible range, not that of the data",
            )
        low, high = column.bounds
        if low == high:
            raise SchemaError(f"the bounds of column '{column.name}' are equal, so its values are known")
        return cls(column.name, *declared_bounds((low, high)), whole)


@dataclass(frozen=True)
class Plan:
    """A question, its terms, and the public declarations of its columns.

    Examples
    --------
    >>> import sfumato as sf
    >>> schema = sf.Schema([sf.Column(name="sex", domain=["f", "m"])])
    >>> plan = Plan(Question.parse("count by sex"), schema, epsilon=0.5)
    >>> plan.keys, str(plan.event(Relation.ADD_REMOVE))
    ([('f',), ('m',), (None,)], 'discrete Laplace noise of scale 2 on a sensitivity of 1')
    """

    question: Question
    schema: Schema
    """The columns of the question and no others, with the domains and bounds that it needs."""
    epsilon: float
    delta: float = 0.0
    discover: bool = False
    confidence: float = 0.95
    whole: bool = False
    """Whether the declared type of the column of numbers is a whole number."""
    person: str | None = None
    """The column that says which rows are of the same person, if people are protected."""
    rows_per_person: int | None = None
    """The most rows of a person that count."""

    def __post_init__(self) -> None:
        check_terms(self.epsilon, self.delta, self.confidence, self.discover)
        if (self.person is None) != (self.rows_per_person is None) or (self.person and self.discover):
            raise OptionError("a person column needs a bound on the rows of a person, and groups that are declared")
        if self.rows_per_person is not None:
            object.__setattr__(self, "rows_per_person", whole("the rows of a person", self.rows_per_person))
        for name in ("epsilon", "delta", "confidence"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if {*self.schema.names} != {*_columns_of(self.question)}:
            raise SchemaError("the schema of a plan must have the columns of its question and no others")
        _ = self.bounded
        _refuse_names(self.question, self.discover)
        if not self.discover:
            _ = self.domains

    @classmethod
    def of(
        cls, table: Table, question: str | Question, *, schema: Schema | str | Path | None = None, **terms: Any
    ) -> Plan:
        """Check a question against the names, declared types and declarations of the columns, without reading a row."""
        asked = question if isinstance(question, Question) else Question.parse(question)
        check_terms(terms["epsilon"], *(terms[name] for name in ("delta", "confidence", "discover")))
        public = public_schema(table, schema)
        terms["person"] = _person(public, terms.get("person"), terms.get("rows_per_person"), terms["discover"])
        domains = () if terms["discover"] else asked.groups
        if terms["person"] is not None and public[terms["person"]].name in _columns_of(asked):
            raise OptionError(f"the person column '{terms['person']}' cannot be a part of the question")
        columns = [
            Column(
                name=name,
                domain=public[name].domain if name in domains else None,
                bounds=public[name].bounds if name == asked.column else None,
            )
            for name in _columns_of(asked)
        ]
        dtype = None if asked.column is None else table.declared_type(public[asked.column].name)
        if dtype is not None and not (dtype.is_numeric() or isinstance(dtype, nw.Boolean)):
            raise ColumnError(
                f"column '{asked.column}' does not hold numbers: its type is {str(dtype).partition('(')[0]}",
                hint=f"count by {asked.column} counts its values",
            )
        if asked.column is not None:
            NumberColumn.of(public[asked.column])  # before its kind is left out below
        return cls(asked, Schema(columns), whole=dtype is not None and dtype.is_integer(), **terms)

    @cached_property
    def bounded(self) -> NumberColumn | None:
        """The column of numbers."""
        name = self.question.column
        return None if name is None else NumberColumn.of(self.schema[name], whole=self.whole)

    @cached_property
    def edges(self) -> NDArray[np.float64] | None:
        """The edges of the bins of a histogram."""
        if self.question.statistic is not StatisticName.HISTOGRAM or self.bounded is None:
            return None
        return np.linspace(self.bounded.low, self.bounded.high, self.question.bins + 1)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parts of a group: the grouping columns, and the column of a histogram."""
        return (*self.question.groups, *((self.bounded.name,) if self.edges is not None and self.bounded else ()))

    @cached_property
    def domains(self) -> list[list[Any]]:
        """The public values of each grouping column, with None for missing and unlisted values."""
        for column in (self.schema[name] for name in self.question.groups):
            if column.domain is None:
                raise SchemaError(
                    f"column '{column.name}' has no public domain, so its groups are unknown",
                    hint="list its values in the schema, or find large groups with discover / --discover",
                )
            if len({canonical_text(text_of(value)) for value in column.domain}) < len(column.domain):
                raise SchemaError(f"the domain of column '{column.name}' lists the same value twice")
        domains = [[*(self.schema[name].domain or ()), None] for name in self.question.groups]
        if math.prod(map(len, domains)) * (1 if self.edges is None else len(self.edges)) > _MOST_GROUPS:
            raise OptionError(f"the question asks for more than {_MOST_GROUPS:,} groups", hint="group by fewer columns")
        return domains

    @property
    def groups(self) -> int | None:
        """The number of groups; None if they are to be discovered."""
        if self.discover:
            return None
        return math.prod(map(len, self.domains)) * (1 if self.edges is None else len(self.edges))

    @property
    def counts(self) -> bool:
        """Whether the answers are counts, which are whole numbers."""
        return self.question.statistic in (StatisticName.COUNT, StatisticName.HISTOGRAM)

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """The groups as plain values, unless they are to be discovered."""
        return self.with_bins([tuple(map(_plain, key)) for key in itertools.product(*self.domains)])

    def with_bins(self, keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return groups split by the bins of a histogram; the last bin is for missing numbers."""
        if self.edges is None:
            return keys
        bins: list[Any] = [*map(list, itertools.pairwise(self.edges.tolist())), None]
        return [(*key, one) for key in keys for one in bins]

    def statistic(self, relation: Relation) -> OfRecords:
        """Return the statistic of each group."""
        share = self.epsilon / 2 if self.discover else self.epsilon / (self.rows_per_person or 1)
        return statistic_for(self.question, self.bounded, share, self.confidence, relation)

    def selection(self, relation: Relation) -> SelectCategories | None:
        """Return the mechanism that selects the groups, if they are to be discovered."""
        if not self.discover:
            return None
        return SelectCategories(epsilon=self.epsilon / 2, delta=self.delta, relation=relation)

    def event(self, relation: Relation) -> Event:
        """Return the cost of the answer."""
        selection, statistic = self.selection(relation), self.statistic(relation)
        if self.rows_per_person is not None:
            return for_people(statistic.event, self.rows_per_person)
        return statistic.event if selection is None else Composed((selection.event, statistic.event))

    @property
    def unit(self) -> str:
        """What epsilon protects: a row, or a person."""
        return UNIT if self.person is None else PERSON

    def to_dict(self) -> dict[str, Any]:
        """Return the question and its terms as plain values; the schema is stored on its own."""
        return {
            "question": str(self.question),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "discover": self.discover,
            "confidence": self.confidence,
            **({} if self.person is None else {"person": self.person, "rows_per_person": self.rows_per_person}),
        }


def statistic_for(
    question: Question,
    bounded: NumberColumn | None,
    epsilon: float,
    confidence: float = 0.95,
    relation: Relation = Relation.ADD_REMOVE,
) -> OfRecords:
    """Return the statistic that answers a question for an epsilon.

    Examples
    --------
    >>> print(statistic_for(Question.parse("count by sex"), None, 0.5).event)
    discrete Laplace noise of scale 2 on a sensitivity of 1
    """
    name, bins = question.statistic, question.statistic is StatisticName.HISTOGRAM  # a histogram counts groups
    options: dict[str, Any] = {"epsilon": epsilon, "confidence": confidence, "relation": relation}
    options["grouped"] = bins or bool(question.groups)
    if bins or name is StatisticName.COUNT:
        return Count(**options)
    assert bounded is not None
    options["bounds"] = bounded.low, bounded.high
    simple: dict[StatisticName, type[OfRecords]] = {
        StatisticName.SUM: Sum,
        StatisticName.MEAN: Mean,
        StatisticName.VARIANCE: Variance,
    }
    if name in simple:
        return simple[name](**options)
    if name in (StatisticName.MIN, StatisticName.MAX):
        return Extreme(**options, share=float(name is StatisticName.MAX), whole=bounded.whole)
    return Quantile(**options, share=question.share, whole=bounded.whole)


def check_terms(epsilon: Any, delta: Any, confidence: Any, discover: bool) -> None:
    """Raise an `OptionError` if no question can be asked on these terms, independent of the table."""
    if real("epsilon", epsilon, above=0) < _LEAST_EPSILON:
        raise OptionError(f"epsilon must be at least {_LEAST_EPSILON:g} for a question, got {epsilon!r}")
    real("the confidence", confidence, above=0, below=1)
    if discover and delta == 0:
        raise OptionError(
            "discovering groups needs a delta, the probability that a group of a single person is revealed",
            hint="give delta= or --delta, far below one over the number of people, such as 1e-6",
        )
    if discover:
        check_delta(delta)
    elif delta != 0:
        raise OptionError(f"delta is only for discovering groups, got {delta!r}", hint="add discover / --discover")


def _person(public: Schema, person: str | None, rows: Any, discover: bool) -> str | None:
    """Return the person column, and check that the rows of a person are bounded."""
    person = person if person is not None else public.person
    if person is None:
        if rows is not None:
            raise OptionError("rows_per_person needs a person column", hint="name it with person / --person")
        return None
    if rows is None:
        raise OptionError(
            f"column '{public[person].name}' asks to protect people, but the rows of a person are not bounded",
            hint="rows_per_person / --rows-per-person N: of people with more, N are drawn at random; N must not be "
            "chosen by looking at the data",
        )
    whole("the rows of a person", rows)
    if discover:
        raise OptionError(
            "groups are not discovered for people", hint="declare their values with --domain or in a schema"
        )
    return person


def _columns_of(question: Question) -> Sequence[str]:
    """Return the columns of a question, each once."""
    named = [*question.groups, *([question.column] if question.column else [])]
    return list(dict.fromkeys([*named, *(question.where.columns if question.where else ())]))


def _refuse_names(question: Question, discover: bool) -> None:
    if discover and not question.groups:
        raise OptionError("groups can only be discovered for a question with 'by' and its columns")
    named = [*question.groups, question.column] if question.statistic is StatisticName.HISTOGRAM else question.groups
    for name in named:
        if name in ("value", "interval"):
            raise OptionError(
                f"a grouping column cannot be called '{name}', like a part of the answer", hint="rename the column"
            )
    if len(set(named)) < len(named):
        raise OptionError(f"the question asks for a histogram of '{question.column}' by itself")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)

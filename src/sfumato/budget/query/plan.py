"""The plan of a question: everything that decides its noise and its groups, none of which depends on the data.

The public facts about the columns are those declared in a schema. Anyone who has the plan of an answer can derive its
cost, its groups and the width of its intervals again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta, spent
from sfumato.budget.events import Composed, Event, PureEvent, Relation
from sfumato.budget.mechanisms.additive import declared_bounds
from sfumato.budget.mechanisms.selection import Extreme, Quantile
from sfumato.budget.mechanisms.statistics import Count, Mean, OfRecords, Sum, Variance
from sfumato.budget.people import (
    BOUNDS,
    BoughtRowsPerPerson,
    DeclaredBound,
    MaxGroupsPerPerson,
    MaxRowsPerPerson,
    PersonBound,
)
from sfumato.budget.query.discovery import FindRowsPerPerson, SelectCategories
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.coding import canonical_text
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real
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
    bound: PersonBound | None = None
    """How much of a person counts."""

    def __post_init__(self) -> None:
        check_terms(self.epsilon, self.delta, self.confidence, self.discover)
        if (self.person is None) != (self.bound is None):
            raise OptionError("a person column needs a bound on the rows of a person, and the reverse")
        for name in ("epsilon", "delta", "confidence"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if {*self.schema.names} != {*_columns_of(self.question)}:
            raise SchemaError("the schema of a plan must have the columns of its question and no others")
        _ = self.bounded
        _refuse_names(self.question, self.discover)
        if not self.discover:
            _ = self.domains
        if isinstance(self.bound, MaxGroupsPerPerson):
            _check_groups(self.bound, self.groups)
        if isinstance(self.bound, DeclaredBound) and self.epsilon / self.bound.rows < _LEAST_EPSILON:
            raise OptionError(
                f"epsilon must be at least {_LEAST_EPSILON:g} for each row of a person that counts, and "
                f"{self.bound.rows:,} count",
                hint="bound the rows of a person by a smaller number",
            )
        if isinstance(self.bound, BoughtRowsPerPerson):
            self.settled(FindRowsPerPerson.CANDIDATES[-1])

    @classmethod
    def of(
        cls, table: Table, question: str | Question, *, schema: Schema | str | Path | None = None, **terms: Any
    ) -> Plan:
        """Check a question against the names, declared types and declarations of the columns, without reading a row."""
        asked = question if isinstance(question, Question) else Question.parse(question)
        check_terms(terms["epsilon"], *(terms[name] for name in ("delta", "confidence", "discover")))
        public = public_schema(table, schema)
        given = {name: terms.pop(name, None) for name in BOUNDS}
        terms["bound"] = PersonBound.of(given)
        terms["person"] = _person(public, terms.get("person"), given)
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

    def search(self, relation: Relation) -> FindRowsPerPerson | None:
        """Return the mechanism that buys a bound on the rows of a person, if it is to be bought."""
        if not isinstance(self.bound, BoughtRowsPerPerson):
            return None
        return FindRowsPerPerson(epsilon=FindRowsPerPerson.SHARE * self.epsilon, relation=relation)

    def settled(self, rows: int | None) -> Plan:
        """Return the plan of what is left to do once a bound has been bought: the same plan if none was to be.

        Examples
        --------
        >>> import sfumato as sf
        >>> plan = Plan(Question.parse("count"), sf.Schema([]), 1.0, person="id", bound=BoughtRowsPerPerson())
        >>> plan.settled(5).epsilon, plan.settled(5).bound
        (0.9, MaxRowsPerPerson(rows_per_person=5))
        """
        if not isinstance(self.bound, BoughtRowsPerPerson):
            return self
        bound = MaxRowsPerPerson(FindRowsPerPerson.checked(rows))
        paid = FindRowsPerPerson.SHARE * self.epsilon
        rest = self.epsilon - paid
        while paid + rest > self.epsilon:  # rounding must not increase epsilon
            rest = math.nextafter(rest, 0)
        return replace(self, epsilon=rest, bound=bound)

    @property
    def _for_answers(self) -> float:
        """What is left of epsilon for the answers, once the groups are known."""
        return self.epsilon / 2 if self.discover else self.epsilon

    def statistic(self, relation: Relation) -> OfRecords:
        """Return the statistic of each group, for what epsilon buys of it if a person has as many rows as count."""
        if self.bound is None:
            return statistic_for(self.question, self.bounded, self._for_answers, self.confidence, relation)
        bound = self._declared
        share = self._for_answers / bound.rows
        while True:
            statistic = statistic_for(self.question, self.bounded, share, self.confidence, relation)
            if spent(bound.event(statistic.event), 0.0, relation=relation).epsilon <= self._for_answers:
                return statistic
            share = math.nextafter(share, 0)  # rounding must not increase epsilon

    def selection(self, relation: Relation) -> SelectCategories | None:
        """Return the mechanism that selects the groups, if they are to be discovered."""
        if not self.discover:
            return None
        terms: dict[str, Any] = {"epsilon": self.epsilon / 2, "delta": self.delta, "relation": relation}
        if self.bound is not None:
            terms |= {"bound": self._declared, "merged": self.edges is not None}
        return SelectCategories(**terms)

    @property
    def _declared(self) -> DeclaredBound:
        """The bound, which must be settled."""
        if not isinstance(self.bound, DeclaredBound):
            raise OptionError("the bound on the rows of a person has not been bought yet")
        return self.bound

    def event(self, relation: Relation) -> Event:
        """Return the cost of the answer."""
        search = self.search(relation)
        if search is not None:
            # The noise depends on what is bought, and its epsilon does not, so the charge can come first.
            rest = self.settled(FindRowsPerPerson.CANDIDATES[0])
            selection = rest.selection(relation)
            answer = PureEvent(rest._for_answers, relation, PERSON)
            return Composed((search.event, *(() if selection is None else (selection.event,)), answer))
        selection, each = self.selection(relation), self.statistic(relation).event
        event = each if self.bound is None else self._declared.event(each)
        return event if selection is None else Composed((selection.event, event))

    @property
    def people_in_words(self) -> str | None:
        """How much of a person counts, and a row without one, in words; None if rows are protected."""
        return None if self.person is None or self.bound is None else self.bound.in_words(self.person)

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
            **({} if self.person is None or self.bound is None else {"person": self.person, **self.bound.to_dict()}),
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


def _person(public: Schema, person: str | None, given: Mapping[str, Any]) -> str | None:
    """Return the person column, and check that the rows of a person are bounded."""
    person = person if person is not None else public.person
    bounds = [name for name, value in given.items() if value is not None]
    if person is None and bounds:
        raise OptionError(f"{bounds[0]} needs a person column", hint="name it with person / --person")
    if person is not None and not bounds:
        raise OptionError(
            f"column '{public[person].name}' asks to protect people, but the rows of a person are not bounded",
            hint="rows_per_person / --rows-per-person N: of people with more, N are drawn at random; N must not be "
            "chosen by looking at the data, but it can be 'bought' with a tenth of epsilon",
        )
    return person


def _check_groups(bound: MaxGroupsPerPerson, groups: int | None) -> None:
    """Raise an `OptionError` if a bound on groups does not fit the number of groups; None if they are not known."""
    if groups == 1:
        raise OptionError(
            "groups_per_person has no meaning for a question with a single group",
            hint="rows_per_person / --rows-per-person N",
        )
    if groups is not None and bound.groups_per_person > groups:
        raise OptionError(
            f"groups_per_person is {bound.groups_per_person:,}, and the question has {groups:,} groups",
            hint=f"at most {groups:,}: more would only add noise",
        )


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

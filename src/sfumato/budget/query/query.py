"""Answer questions about a table with noise, charged to its ledger.

Public facts are declared, and everything else is paid for. Groups are those of the public domains of the schema, or
the large groups, selected with noise. Numbers are clipped to the public bounds of the schema. The number of rows is
never used. The answer is computed only after the charge is on disk.

Under add-remove each record is in one group, so all groups together cost as much as one. Under replace-one a
record may move from one group to another, and both are paid for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Composed, Event, Relation
from sfumato.budget.ledger.fingerprint import canonical_text, texts_of
from sfumato.budget.ledger.ledger import Budget, Ledger
from sfumato.budget.mechanisms.records import Records
from sfumato.budget.mechanisms.statistics import Count, Extreme, Mean, OfRecords, Quantile, Sum, Variance
from sfumato.budget.noise import Source
from sfumato.budget.query.condition import numbers_of
from sfumato.budget.query.discovery import SelectCategories
from sfumato.budget.query.public import Bounded, public_schema
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group as group_rows
from sfumato.errors import OptionError, SchemaError

__all__ = ["BoundQuestion", "QueryAnswer", "Row", "bin_edges", "check_terms", "query", "statistic_for"]

Ints = NDArray[np.int64]

_MOST_GROUPS = 1_000_000
_LEAST_EPSILON = 1e-9  # for a smaller epsilon, the noise would not fit into 64 bits


@dataclass(frozen=True)
class Row:
    """The answer for one group.

    Examples
    --------
    >>> Row({"sex": "f"}, 12, (9, 15)).to_dict()
    {'sex': 'f', 'value': 12, 'interval': [9, 15]}
    """

    group: dict[str, Any]
    """The value of each grouping column; None if it is missing or not in the domain."""
    value: float
    interval: tuple[float, float]
    """The confidence interval of the exact value for this data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {**self.group, "value": self.value, "interval": list(self.interval)}


@dataclass(frozen=True)
class QueryAnswer:
    """The answer to a question; see `query`."""

    question: Question
    rows: tuple[Row, ...]
    epsilon: float
    """The cost of the answer."""
    delta: float
    relation: Relation
    confidence: float
    event: Event
    spent: Budget
    """The total spent for the data set, including this answer."""
    limit: Budget
    left: float
    private: bool = True
    """False if the noise came from a given seed: the answer is then reproducible and not private."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {
            "question": str(self.question),
            "rows": [row.to_dict() for row in self.rows],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "confidence": self.confidence,
            "event": self.event.to_dict(),
            "spent": self.spent.to_dict(),
            "limit": self.limit.to_dict(),
            "left": self.left,
            "private": self.private,
        }


def query(
    data: Any,
    question: str | Question,
    *,
    epsilon: float,
    delta: float = 0.0,
    schema: Schema | str | Path | None = None,
    discover: bool = False,
    confidence: float = 0.95,
    note: str = "",
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
) -> QueryAnswer:
    """Ask a table for a statistic, and pay for the answer from its budget.

    Parameters
    ----------
    data
        A table, a frame or a file with a granted budget; see `Ledger.grant`.
    question : str or Question
        Such as ``"count by sex"``, ``"sum of income"``, ``"mean of age where sex = 'f' by region"``,
        ``"variance of age"``, ``"median of age"``, ``"quantile 0.9 of income"``, ``"min of age"`` or
        ``"histogram of age in 10 bins by sex"``.
    epsilon : float
        The cost of the whole answer, all groups together.
    delta : float
        Only with `discover`: the probability that a group of a single person is revealed.
    schema : Schema or path, optional
        Declares the domains of the grouping columns and the bounds of the column of numbers.
    discover : bool
        Whether to select the groups privately, for half of epsilon and the delta; only large groups are found.
    confidence : float
        The probability that an interval contains the exact value of its group.
    note : str
        Stored in the ledger together with the question.
    ledger : Ledger or path, optional
        The ledger or its file; by default it is found by the content of the data.
    insecure_seed : int, optional
        Makes the noise reproducible for a test. The answer is then marked as not private.

    Returns
    -------
    QueryAnswer

    Examples
    --------
    >>> import sfumato as sf
    >>> schema = sf.Schema([sf.Column(name="sex", domain=["f", "m"])])
    >>> ledger = sf.Ledger.grant("patients.csv", epsilon=10)
    >>> answer = sf.query("patients.csv", "count by sex", epsilon=4, schema=schema)
    >>> [row.group["sex"] for row in answer.rows]
    ['f', 'm', None]
    >>> print(answer.spent)
    epsilon 4, delta 0
    """
    source = Source(insecure_seed=insecure_seed)
    bound = BoundQuestion.of(
        data, question, epsilon=epsilon, delta=delta, schema=schema, discover=discover, confidence=confidence
    )
    asked, bounded = bound.question, bound.bounded
    with Ledger.of(bound.table, ledger) as book:
        statistic, selection, event = bound.plan(book.relation)
        rows = _Rows.of(bound.table, asked, bounded)  # before the charge: a question that fails is not charged
        book.charge(event, note=f"{asked} ({note})" if note else str(asked), private=source.private)
        spent, limit, left = book.spent, book.limit, book.left
    keys, records = rows.selected(selection, source) if selection else rows.within(bound.domains)
    groups = list(bound.groups)
    if asked.statistic is StatisticName.HISTOGRAM and bounded:
        edges = bin_edges(asked, bounded)
        records = _in_bins(records, edges)
        bins: list[Any] = [*map(list, itertools.pairwise(edges.tolist())), None]
        groups, keys = [*groups, bounded.name], [(*key, one) for key in keys for one in bins]
    answers = statistic.each(records, source)
    values = zip(keys, answers.value.tolist(), answers.low.tolist(), answers.high.tolist(), strict=True)
    return QueryAnswer(
        asked,
        tuple(Row(dict(zip(groups, key, strict=True)), value, (low, high)) for key, value, low, high in values),
        epsilon=float(epsilon),
        delta=float(delta),
        relation=book.relation,
        confidence=float(confidence),
        event=event,
        spent=spent,
        limit=limit,
        left=left,
        private=source.private,
    )


@dataclass(frozen=True, eq=False)
class BoundQuestion:
    """A question that was checked against the public schema of a table, without reading a row."""

    table: Table
    question: Question
    groups: tuple[str, ...]
    domains: list[list[Any]]
    """The values of each grouping column; empty if the groups are to be discovered."""
    bounded: Bounded | None
    epsilon: float
    delta: float
    discover: bool
    confidence: float

    @classmethod
    def of(
        cls,
        data: Any,
        question: str | Question,
        *,
        epsilon: float,
        delta: float,
        schema: Schema | str | Path | None,
        discover: bool,
        confidence: float,
    ) -> BoundQuestion:
        """Check a question against the names, types and declarations of the columns."""
        asked = question if isinstance(question, Question) else Question.parse(question)
        check_terms(epsilon, delta, confidence, discover)
        table = Table.of(data).as_declared()
        public = public_schema(table, schema)
        groups = [public[name] for name in asked.groups]
        bounded = None if asked.column is None else Bounded.of(table, public[asked.column])
        for name in asked.where.columns if asked.where else ():
            _ = public[name]  # raises an error if there is no such column
        _refuse_names(asked, discover)
        domains = [] if discover else _domains(groups)
        names = tuple(column.name for column in groups)
        return cls(table, asked, names, domains, bounded, float(epsilon), float(delta), discover, float(confidence))

    def plan(self, relation: Relation) -> tuple[OfRecords, SelectCategories | None, Event]:
        """Return the statistic, the mechanism that selects its groups if any, and the cost of both."""
        share = self.epsilon / 2 if self.discover else self.epsilon
        statistic = statistic_for(self.question, self.bounded, share, self.confidence, relation)
        if not self.discover:
            return statistic, None, statistic.event
        selection = SelectCategories(epsilon=self.epsilon / 2, delta=self.delta, relation=relation)
        return statistic, selection, Composed((selection.event, statistic.event))


def statistic_for(
    question: Question,
    bounded: Bounded | None,
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


def bin_edges(question: Question, bounded: Bounded) -> NDArray[np.float64]:
    """Return the edges of the bins of a histogram.

    Examples
    --------
    >>> bin_edges(Question.parse("histogram of age in 2 bins"), Bounded("age", 0, 120)).tolist()
    [0.0, 60.0, 120.0]
    """
    return np.linspace(bounded.low, bounded.high, question.bins + 1)


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


def _domains(groups: Sequence[Column]) -> list[list[Any]]:
    """Return the domain of each grouping column, with None for missing and unlisted values."""
    for column in groups:
        if column.domain is None:
            raise SchemaError(
                f"column '{column.name}' has no public domain, so its groups are unknown",
                hint="list its values in the schema, or find large groups with discover / --discover",
            )
        if len({canonical_text(text_of(value)) for value in column.domain}) < len(column.domain):
            raise SchemaError(f"the domain of column '{column.name}' lists the same value twice")
    domains = [[*(column.domain or ()), None] for column in groups]
    if math.prod(map(len, domains)) > _MOST_GROUPS:
        raise OptionError(f"the question asks for more than {_MOST_GROUPS:,} groups", hint="group by fewer columns")
    return domains


@dataclass(frozen=True, eq=False)
class _Rows:
    """The distinct rows of the columns that a question needs, with the codes of the grouping columns."""

    texts: list[list[str | None]]
    """The text of every code, for each grouping column."""
    codes: Ints
    records: Records
    """The records, all in one group."""

    @classmethod
    def of(cls, table: Table, question: Question, bounded: Bounded | None) -> _Rows:
        plain = Table(table.source, origin=table.origin)  # without its schema, which must not reject values
        needed = [
            *question.groups,
            *([bounded.name] if bounded else []),
            *(question.where.columns if question.where else ()),
        ]
        tuples = reduce(plain, list(dict.fromkeys(needed)) or plain.schema.names[:1])
        if question.where is not None:
            kept = question.where.holds(tuples)
            tuples = replace(tuples, codes=tuples.codes[kept], count=tuples.count[kept])
        value = np.full(len(tuples.count), np.nan)
        if bounded:
            at = tuples.position[bounded.name]
            numbers = numbers_of(tuples.domains[at].values)
            value = np.clip(numbers[tuples.codes[:, at]], bounded.low, bounded.high)
        texts: list[list[str | None]] = []
        codes = np.empty((len(value), len(question.groups)), dtype=np.int64)
        for at in range(len(question.groups)):
            read = [None if text is None else canonical_text(text) for text in texts_of(tuples.domains[at])]
            texts.append(sorted(set(read), key=lambda text: (text is None, text or "")))
            place = {text: code for code, text in enumerate(texts[at])}
            codes[:, at] = np.array([place[text] for text in read], dtype=np.int64)[tuples.codes[:, at]]
        return cls(texts, codes, Records(np.zeros(len(value), dtype=np.int64), value, tuples.count, 1))

    def within(self, domains: Sequence[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], Records]:
        """Return all groups of the public domains, and the records in them."""
        group = np.zeros(len(self.codes), dtype=np.int64)
        for position, domain in enumerate(domains):
            place = {None if value is None else canonical_text(text_of(value)): at for at, value in enumerate(domain)}
            of_code = np.array([place.get(text, len(domain) - 1) for text in self.texts[position]], dtype=np.int64)
            group = group * len(domain) + of_code[self.codes[:, position]]
        keys = [tuple(map(_plain, key)) for key in itertools.product(*domains)]
        return keys, replace(self.records, group=group, groups=len(keys))

    def selected(self, selection: SelectCategories, source: Source) -> tuple[list[tuple[Any, ...]], Records]:
        """Return the groups whose noisy size reaches the threshold, and the records in them."""
        first, group = group_rows(self.codes, [len(texts) for texts in self.texts])
        sizes = replace(self.records, group=group, groups=len(first)).counts()
        noisy = np.array(selection.noise.release_steps(sizes, source) if sizes else [], dtype=np.int64)
        kept = np.flatnonzero(noisy >= selection.threshold)
        keys = [
            tuple(texts[code] for texts, code in zip(self.texts, self.codes[first[at]], strict=True)) for at in kept
        ]
        new = np.full(len(first), -1)
        new[kept] = np.arange(len(kept))
        seen = new[group] >= 0
        records = self.records
        return keys, Records(new[group][seen], records.value[seen], records.count[seen], len(kept))


def _in_bins(records: Records, edges: NDArray[np.float64]) -> Records:
    """Return the records with groups split by bin; missing numbers are in the last bin."""
    width = len(edges)
    place = np.clip(np.searchsorted(edges, records.value, side="right") - 1, 0, width - 2)
    bins = np.where(np.isnan(records.value), width - 1, place)
    return replace(records, group=records.group * width + bins, groups=records.groups * width)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)

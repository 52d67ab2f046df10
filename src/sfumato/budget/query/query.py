"""Answers to a person's questions about a table, with noise and charged to its ledger.

What is not private is declared, and everything else is paid for: groups are those of the
public domains of the schema, or are bought by selecting the large ones with noise; numbers are
held within the public bounds of the schema; the number of rows is never used. The answer is made after the
charge is on the disk.

Under add-remove one record is in one group, so all groups cost what one costs. Under a ledger of replace-one a
record may leave one group and enter another, and both are paid for.
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
from sfumato.budget.ledger.fingerprint import reading, texts_of
from sfumato.budget.ledger.ledger import Budget, Ledger
from sfumato.budget.mechanisms.additive import positive
from sfumato.budget.mechanisms.records import Records
from sfumato.budget.mechanisms.statistics import OfRecords
from sfumato.budget.noise import Source
from sfumato.budget.query.condition import numbers_of
from sfumato.budget.query.discovery import SelectCategories
from sfumato.budget.query.plans import Bounded, bins_of, plan
from sfumato.budget.query.public import declared, is_whole, refuse_texts
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group as group_rows
from sfumato.errors import OptionError, SchemaError

__all__ = ["QueryAnswer", "Row", "Told", "check_terms", "query"]

Ints = NDArray[np.int64]

_MOST_GROUPS = 1_000_000
_LEAST_EPSILON = 1e-9  # the noise of less would not fit into 64 bits


@dataclass(frozen=True)
class Row:
    """The answer for one group.

    Examples
    --------
    >>> Row({"sex": "f"}, 12, (9, 15)).to_dict()
    {'sex': 'f', 'value': 12, 'interval': [9, 15]}
    """

    group: dict[str, Any]
    """The value of each column that makes groups; None for one that is missing or that the domain does not list."""
    value: float
    interval: tuple[float, float]
    """Where the true value of this data is, with the confidence of the answer."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {**self.group, "value": self.value, "interval": list(self.interval)}


@dataclass(frozen=True)
class QueryAnswer:
    """The answer to a question; see `query`."""

    question: Question
    rows: tuple[Row, ...]
    epsilon: float
    """What the answer cost."""
    delta: float
    relation: Relation
    confidence: float
    event: Event
    spent: Budget
    """What was spent of the data set in all, this answer included."""
    limit: Budget
    left: float
    private: bool = True
    """False if the noise came from a given seed: then the answer is reproducible, and not private."""

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
        A table, a frame or a file, for which a budget was granted; see `Ledger.grant`.
    question : str or Question
        Such as ``"count by sex"``, ``"sum of income"``, ``"mean of age where sex = 'f' by region"``,
        ``"variance of age"``, ``"median of age"``, ``"quantile 0.9 of income"``, ``"min of age"`` or
        ``"histogram of age in 10 bins by sex"``.
    epsilon : float
        What the whole answer may cost, all groups together.
    delta : float
        Only to discover groups: the probability that somebody who is a group of their own is seen.
    schema : Schema or path, optional
        With the domains of the columns that make groups, and the bounds of the column of numbers.
    discover : bool
        Whether to find out the groups, for a part of the epsilon and the delta: only groups of many people are seen.
    confidence : float
        With which probability an interval holds the true value of its group.
    note : str
        Kept in the ledger beside the question.
    ledger : Ledger or path, optional
        The ledger, or its file; by default it is found by the content of the data.
    insecure_seed : int, optional
        Makes the noise reproducible, for a test. The answer is then not private, and says so.

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
    told = Told.of(
        data, question, epsilon=epsilon, delta=delta, schema=schema, discover=discover, confidence=confidence
    )
    asked, bounded = told.question, told.bounded
    with Ledger.of(told.table, ledger) as book:
        how, selection, event = told.planned(book.relation)
        rows = _Rows.of(told.table, asked, bounded)  # so that what cannot be answered is not charged
        book.charge(event, note=f"{asked} ({note})" if note else str(asked), private=source.private)
        spent, limit, left = book.spent, book.limit, book.left
    keys, records = rows.selected(selection, source) if selection else rows.within(told.domains)
    groups = list(told.groups)
    if asked.statistic is StatisticName.HISTOGRAM and bounded:
        edges = bins_of(asked, bounded)
        records = _in_bins(records, edges)
        bins: list[Any] = [*map(list, itertools.pairwise(edges.tolist())), None]
        groups, keys = [*groups, bounded.name], [(*key, one) for key in keys for one in bins]
    found = how.each(records, source)
    return QueryAnswer(
        asked,
        tuple(
            Row(
                dict(zip(groups, key, strict=True)),
                value,
                (low, high),
            )
            for key, value, low, high in zip(
                keys, found.value.tolist(), found.low.tolist(), found.high.tolist(), strict=True
            )
        ),
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
class Told:
    """A question with all that is public of it, checked; no row was looked at."""

    table: Table
    question: Question
    groups: tuple[str, ...]
    domains: list[list[Any]]
    """The values of each column that makes groups; none if the groups are to be discovered."""
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
    ) -> Told:
        """Check a question against the names, types and declarations of the columns."""
        asked = question if isinstance(question, Question) else Question.parse(question)
        check_terms(epsilon, delta, confidence, discover)
        table = Table.of(data).as_declared()
        public = declared(table, schema)
        groups = [public[name] for name in asked.groups]
        bounded = None if asked.column is None else _bounded(table, public[asked.column])
        for name in asked.where.columns if asked.where else ():
            _ = public[name]  # refused here if there is none
        _refuse_names(asked, discover)
        domains = [] if discover else _domains(groups)
        names = tuple(column.name for column in groups)
        return cls(table, asked, names, domains, bounded, float(epsilon), float(delta), discover, float(confidence))

    def planned(self, relation: Relation) -> tuple[OfRecords, SelectCategories | None, Event]:
        """Return the statistic that answers, what selects its groups, and what both cost."""
        if not self.discover:
            how = plan(self.question, self.bounded, self.epsilon, self.confidence, relation)
            return how, None, how.event
        how = plan(self.question, self.bounded, self.epsilon / 2, self.confidence, relation)
        selection = SelectCategories(epsilon=self.epsilon / 2, delta=self.delta, relation=relation)
        return how, selection, Composed((selection.event, how.event))


def _bounded(table: Table, column: Column) -> Bounded:
    """Return the public bounds of a column of numbers; whether it is one, the values do not decide."""
    refuse_texts(table, column.name)
    return Bounded.of(column, whole=is_whole(table, column.name))


def check_terms(epsilon: Any, delta: Any, confidence: Any, discover: bool) -> None:
    """Refuse terms that no question can be asked on, whatever the table."""
    if positive("epsilon", epsilon) < _LEAST_EPSILON:
        raise OptionError(f"epsilon must be at least {_LEAST_EPSILON:g} for any answer, got {epsilon!r}")
    if positive("the confidence", confidence) >= 1:
        raise OptionError(f"the confidence must be a number between 0 and 1, got {confidence!r}")
    if discover and delta == 0:
        raise OptionError(
            "discovering groups needs a delta: the chance that somebody who is a group alone is seen",
            hint="give delta= or --delta, far below one over the number of people, such as 1e-6",
        )
    if discover:
        check_delta(delta)
    elif delta != 0:
        raise OptionError(f"delta is for discovering groups, got {delta!r}", hint="give discover / --discover too")


def _refuse_names(question: Question, discover: bool) -> None:
    if discover and not question.groups:
        raise OptionError("groups can be discovered only if the question names columns that make them")
    named = [*question.groups, question.column] if question.statistic is StatisticName.HISTOGRAM else question.groups
    for name in named:
        if name in ("value", "interval"):
            raise OptionError(
                f"a group cannot be called '{name}', as a part of the answer is", hint="rename the column"
            )
    if len(set(named)) < len(named):
        raise OptionError(f"the question asks for a histogram of '{question.column}' by itself")


def _domains(groups: Sequence[Column]) -> list[list[Any]]:
    """Return the values of each column that makes groups, and None for all that its domain does not list."""
    for column in groups:
        if column.domain is None:
            raise SchemaError(
                f"column '{column.name}' has no public domain, so its groups are not known",
                hint="list its values in the schema, or have large groups found with discover / --discover",
            )
        if len({reading(text_of(value)) for value in column.domain}) < len(column.domain):
            raise SchemaError(f"the domain of column '{column.name}' lists two values that read alike")
    domains = [[*(column.domain or ()), None] for column in groups]
    if math.prod(map(len, domains)) > _MOST_GROUPS:
        raise OptionError(f"the question asks for more than {_MOST_GROUPS:,} groups", hint="group by fewer columns")
    return domains


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a table as far as a question needs them: distinct ones, with the texts of what makes groups."""

    texts: list[list[str | None]]
    """Of each column that makes groups: what every code reads as, in order."""
    codes: Ints
    records: Records
    """All in one group."""

    @classmethod
    def of(cls, table: Table, question: Question, bounded: Bounded | None) -> _Rows:
        plain = Table(table.source, origin=table.origin)  # of what the data holds no schema shall complain
        asked = [
            *question.groups,
            *([bounded.name] if bounded else []),
            *(question.where.columns if question.where else ()),
        ]
        tuples = reduce(plain, list(dict.fromkeys(asked)) or plain.schema.names[:1])
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
            read = [None if text is None else reading(text) for text in texts_of(tuples.domains[at])]
            texts.append(sorted(set(read), key=lambda text: (text is None, text or "")))
            place = {text: code for code, text in enumerate(texts[at])}
            codes[:, at] = np.array([place[text] for text in read], dtype=np.int64)[tuples.codes[:, at]]
        return cls(
            texts,
            codes,
            Records(np.zeros(len(value), dtype=np.int64), value, tuples.count, 1),
        )

    def within(self, domains: Sequence[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], Records]:
        """Return all groups of public domains, and the records in them."""
        group = np.zeros(len(self.codes), dtype=np.int64)
        for position, domain in enumerate(domains):
            place = {None if value is None else reading(text_of(value)): at for at, value in enumerate(domain)}
            of_code = np.array([place.get(text, len(domain) - 1) for text in self.texts[position]], dtype=np.int64)
            group = group * len(domain) + of_code[self.codes[:, position]]
        keys = [tuple(map(_plain, key)) for key in itertools.product(*domains)]
        return keys, replace(self.records, group=group, groups=len(keys))

    def selected(self, selection: SelectCategories, source: Source) -> tuple[list[tuple[Any, ...]], Records]:
        """Return the groups that are large enough to be seen, and the records in them."""
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
    """Return the records with the bin of each as a part of its group; a missing number is in the last."""
    width = len(edges)
    place = np.clip(np.searchsorted(edges, records.value, side="right") - 1, 0, width - 2)
    bins = np.where(np.isnan(records.value), width - 1, place)
    return replace(records, group=records.group * width + bins, groups=records.groups * width)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)

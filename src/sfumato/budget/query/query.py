"""Answer questions about a table with noise, charged to its ledger.

Public facts are declared, and everything else is paid for. Groups are those of the public domains of the schema, or
the large groups, selected with noise. Numbers are clipped to the public bounds of the schema. The number of rows is
never used. The answer is computed only after the charge is on disk.

Under add-remove each record is in one group, so all groups together cost as much as one. Under replace-one a
record may move from one group to another, and both are paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import Relation
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.mechanisms.statistics import Records
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUNDS, DeclaredBound, people_of
from sfumato.budget.query.answer import QueryAnswer, Row
from sfumato.budget.query.condition import numbers_of
from sfumato.budget.query.discovery import SelectCategories
from sfumato.budget.query.plan import Plan
from sfumato.budget.query.question import Question
from sfumato.data.coding import canonical_text, texts_of
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.recipe import Recipe
from sfumato.data.release import Release
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group as group_rows
from sfumato.errors import OptionError

__all__ = ["query", "run_recipe"]

Ints = NDArray[np.int64]


def query(
    data: Any,
    question: str | Question,
    *,
    epsilon: float,
    delta: float = 0.0,
    schema: Schema | str | Path | None = None,
    discover: bool = False,
    confidence: float = 0.95,
    person: str | None = None,
    rows_per_person: int | str | None = None,
    groups_per_person: int | None = None,
    rows_per_group: int | None = None,
    note: str = "",
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
) -> Release:
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
        Only with `discover`: the probability that a group of a single person, or row, is revealed.
    schema : Schema or path, optional
        Declares the domains of the grouping columns and the bounds of the column of numbers.
    discover : bool
        Whether to select the groups privately, for half of epsilon and the delta; only large groups are found.
    confidence : float
        The probability that an interval contains the exact value of its group.
    person : str, optional
        The column that says which rows are of the same person, to protect people instead of rows; that of the schema by
        default. The ledger must be one for people: ``Ledger.grant(..., unit="person")``.
    rows_per_person : int or "bought", optional
        With a person column: how many rows of a person count. Of people with more, so many are drawn at random, which
        biases the answer; with fewer, there is more noise than needed. Do not choose it by looking at the data.
        ``"bought"`` finds a number with a tenth of epsilon, and answers with the rest.
    groups_per_person, rows_per_group : int, optional
        In place of `rows_per_person`, for a question by groups: how many groups of a person count, drawn at random, and
        how many of their rows in each. With one row per group, a count is the number of people.
    note : str
        Stored in the ledger together with the question.
    ledger : Ledger or path, optional
        The ledger or its file; by default it is found by the content of the data.
    insecure_seed : int, optional
        Makes the noise reproducible for a test. The answer is then marked as not private.

    Returns
    -------
    Release
        Of kind ``statistics``, with the attributes of `QueryAnswer`. Its folder (`sf.save`) holds nothing that is not
        noisy or declared public.

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
    table = Table.of(data).as_declared()
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "discover": discover, "confidence": confidence}
    terms |= {"person": person, "rows_per_person": rows_per_person}
    terms |= {"groups_per_person": groups_per_person, "rows_per_group": rows_per_group}
    plan = Plan.of(table, question, schema=schema, **terms)
    with Ledger.of(table, ledger, person=plan.person) as book:
        relation, event = book.relation, plan.event(book.relation)
        rows = _Rows.of(table, plan)  # before the charge: a question that fails is not charged
        asked = str(plan.question)
        book.charge(event, note=f"{asked} ({note})" if note else asked, private=source.private)
        account = book.account
    each, bought = _answer(rows, plan, relation, source)
    return QueryAnswer(plan, each, relation, source.private, account, bought).release(table.origin)


def _answer(rows: _Rows, plan: Plan, relation: Relation, source: Source) -> tuple[tuple[Row, ...], int | None]:
    """Return the noisy answer for each group, and the bound on the rows of a person if one was to be bought."""
    search = plan.search(relation)
    bought = None if search is None else search.answer(rows.each_person(), source)
    plan = plan.settled(bought)
    if isinstance(plan.bound, DeclaredBound):
        group = rows.records(plan).group
        rows = rows.drawn(plan.bound, group, source)
    selection = plan.selection(relation)
    if selection:
        found, records = rows.selected(selection, source)
        keys = plan.with_bins(found)
        records = _in_bins(records, plan.edges)
    else:
        keys, records = plan.keys, rows.records(plan)
    answers = plan.statistic(relation).each(records, source)
    values = zip(keys, *(one.tolist() for one in (answers.value, answers.low, answers.high)), strict=True)
    each = tuple(Row(dict(zip(plan.names, key, strict=True)), value, (low, high)) for key, value, low, high in values)
    return each, bought


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Ask the question of a recipe again, with new noise; it is charged again, to a ledger that must be named."""
    if data is None:
        raise OptionError("a recipe of query does not name its data", hint="give the table")
    if options.get("ledger") is None:
        raise OptionError(
            "a question that is asked again is charged again, so its ledger must be named",
            hint="run(recipe, data, ledger=Ledger.of(data))",
        )
    terms = {"question", "epsilon", "delta", "discover", "confidence"}
    if recipe.options.keys() - {"person", *BOUNDS} != terms:
        raise OptionError("the recipe does not describe a question", hint="'sfumato query -o FOLDER' writes one")
    return query(data, schema=recipe.schema, **recipe.options, **options)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The distinct rows of the columns that a question needs, with the codes of the grouping columns."""

    texts: list[list[str | None]]
    """The text of every code, for each grouping column."""
    codes: Ints
    value: NDArray[np.float64]
    """The number of each row; NaN if it is missing."""
    count: Ints
    people: Ints | None
    """The person of each row; negative for nobody, and None if rows are protected."""

    @classmethod
    def of(cls, table: Table, plan: Plan) -> _Rows:
        question, bounded = plan.question, plan.bounded
        plain = Table(table.source, origin=table.origin)  # without its schema, which must not reject values
        names = [*plan.schema.names, *([] if plan.person is None else [plan.person])]
        tuples = reduce(plain, names or plain.schema.names[:1])
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
        return cls(texts, codes, value, tuples.count, None if plan.person is None else people_of(tuples, plan.person))

    def each_person(self) -> Ints:
        """Return the person of every single row."""
        assert self.people is not None
        return np.repeat(self.people, self.count)

    def drawn(self, bound: DeclaredBound, group: Ints, source: Source) -> _Rows:
        """Return the rows that count, given the group of each."""
        place = np.repeat(np.arange(len(self.count)), self.count)
        kept = bound.draw(self.each_person(), group[place], source)
        count = np.bincount(place[kept], minlength=len(self.count))
        left = count > 0  # a group without rows that count must not be discovered
        return replace(self, codes=self.codes[left], value=self.value[left], count=count[left], people=None)

    def records(self, plan: Plan) -> Records:
        """Return the records in the groups of the public domains, or in those that occur if they are not declared."""
        if plan.discover:
            first, group = group_rows(self.codes, [len(texts) for texts in self.texts])
            return _in_bins(Records(group, self.value, self.count, len(first)), plan.edges)
        group = np.zeros(len(self.codes), dtype=np.int64)
        for position, domain in enumerate(plan.domains):
            place = {None if value is None else canonical_text(text_of(value)): at for at, value in enumerate(domain)}
            of_code = np.array([place.get(text, len(domain) - 1) for text in self.texts[position]], dtype=np.int64)
            group = group * len(domain) + of_code[self.codes[:, position]]
        return _in_bins(Records(group, self.value, self.count, math.prod(map(len, plan.domains))), plan.edges)

    def selected(self, selection: SelectCategories, source: Source) -> tuple[list[tuple[Any, ...]], Records]:
        """Return the groups whose noisy size reaches the threshold, and the records in them."""
        first, group = group_rows(self.codes, [len(texts) for texts in self.texts])
        sizes = Records(group, self.value, self.count, len(first)).counts()
        noisy = np.array(selection.noise.release_steps(sizes, source) if sizes else [], dtype=np.int64)
        kept = np.flatnonzero(noisy >= selection.threshold)
        keys = [
            tuple(texts[code] for texts, code in zip(self.texts, self.codes[first[at]], strict=True)) for at in kept
        ]
        new = np.full(len(first), -1)
        new[kept] = np.arange(len(kept))
        seen = new[group] >= 0
        return keys, Records(new[group][seen], self.value[seen], self.count[seen], len(kept))


def _in_bins(records: Records, edges: NDArray[np.float64] | None) -> Records:
    """Return the records with groups split by bin, if there are bins; missing numbers are in the last one."""
    if edges is None:
        return records
    width = len(edges)
    place = np.clip(np.searchsorted(edges, records.value, side="right") - 1, 0, width - 2)
    bins = np.where(np.isnan(records.value), width - 1, place)
    return replace(records, group=records.group * width + bins, groups=records.groups * width)

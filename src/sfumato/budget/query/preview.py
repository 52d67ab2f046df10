"""Preview the cost of a question and the width of its answer, without asking it.

Nothing is charged and no row is read, only the names, declared types and declarations of the columns. The width of a
count or a sum follows from its noise. The width of a mean, a variance or a quantile depends on the number of rows,
which is private, so it is simulated with artificial columns of several lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.budget.events import Event, Relation
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.mechanisms.selection import Quantile
from sfumato.budget.mechanisms.statistics import Count, OfRecords, Records, Sum
from sfumato.budget.noise import Source
from sfumato.budget.query.answer import of_people
from sfumato.budget.query.plan import Plan
from sfumato.budget.query.question import Question
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.errors import BudgetError

__all__ = ["Preview", "preview"]

_SIZES = (100, 1_000, 10_000, 100_000)
_TRIES, _DIFFERENT = 25, 1_000


@dataclass(frozen=True)
class Preview:
    """The cost of a question and the width of its answer; see `preview`."""

    question: Question
    epsilon: float
    delta: float
    relation: Relation
    confidence: float
    event: Event
    """The event that would be charged."""
    groups: int | None
    """The number of answers; None if the groups are to be discovered."""
    least: int | None
    """The approximate number of rows that a group needs to be discovered."""
    width: float | None
    """The width of the interval of a count or a sum; None for other statistics."""
    widths: dict[int, float]
    """For other statistics: the width by the number of rows in a group, if the numbers are evenly spread."""
    ranks: int | None
    """For a quantile, a minimum or a maximum: the largest rank error of each end of the interval."""
    left: float | None = None
    """The remaining budget, if a ledger was given."""
    fits: bool | None = None
    """Whether the remaining budget is enough, if a ledger was given."""
    people: Mapping[str, Any] = field(default_factory=dict)
    """How much of a person counts. If that is bought, all widths are for one row, and grow with what is bought."""

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as plain values."""
        return {
            "question": str(self.question),
            "dry_run": True,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            **self.people,
            "confidence": self.confidence,
            "event": self.event.to_dict(),
            "groups": self.groups,
            "least": self.least,
            "width": self.width,
            "widths": {str(rows): width for rows, width in self.widths.items()},
            "ranks": self.ranks,
            "left": self.left,
            "fits": self.fits,
        }


def preview(
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
    ledger: str | Path | None = None,
) -> Preview:
    """Return the cost of a question and the width of its answer, without asking it.

    Parameters
    ----------
    data, question, epsilon, delta, schema, discover, confidence
        See `query`.
    person, rows_per_person, groups_per_person, rows_per_group
        See `query`. If a bound is to be bought, widths and thresholds are those of its smallest value, 1.
    ledger : path, optional
        A ledger file, to compare with the remaining budget. By default no ledger is looked up, because that would
        read the rows, and the relation is add-remove.

    Examples
    --------
    >>> import sfumato as sf
    >>> schema = sf.Schema([sf.Column(name="sex", domain=["f", "m"]), sf.Column(name="age", bounds=(0, 120))])
    >>> asked = sf.preview("patients.csv", "count by sex", epsilon=0.5, schema=schema)
    >>> asked.groups, asked.width
    (3, 12.0)
    >>> asked = sf.preview("patients.csv", "mean of age", epsilon=0.5, schema=schema)
    >>> [rows for rows, width in asked.widths.items() if width < 10]
    [1000, 10000, 100000]
    """
    plan = Plan.of(
        Table.of(data).as_declared(),
        question,
        schema=schema,
        epsilon=epsilon,
        delta=delta,
        discover=discover,
        confidence=confidence,
        person=person,
        rows_per_person=rows_per_person,
        groups_per_person=groups_per_person,
        rows_per_group=rows_per_group,
    )
    relation, left, fits = Relation.ADD_REMOVE, None, None
    if ledger is not None:
        with Ledger(ledger) as book:
            relation, left = book.relation, book.left
            fits = _fits(book, plan.event(relation))
    search = plan.search(relation)
    settled = plan.settled(None if search is None else search.CANDIDATES[0])
    statistic, selection = settled.statistic(relation), settled.selection(relation)
    return Preview(
        plan.question,
        plan.epsilon,
        plan.delta,
        relation,
        plan.confidence,
        plan.event(relation),
        plan.groups,
        None if selection is None else selection.threshold,
        2 * statistic.noise.half_width(plan.confidence) if isinstance(statistic, Count | Sum) else None,
        {} if isinstance(statistic, Count | Sum) else {rows: _width(statistic, rows) for rows in _SIZES},
        statistic.rank_error if isinstance(statistic, Quantile) else None,
        left,
        fits,
        of_people(plan, bought=search is not None),
    )


def _fits(book: Ledger, event: Event) -> bool:
    try:
        book.check(event)
    except BudgetError:
        return False
    return True


def _width(statistic: OfRecords, rows: int) -> float:
    """Return the median width of the interval for an artificial column, evenly spread between the bounds."""
    low, high = statistic.bounds  # type: ignore[attr-defined]
    different = min(rows, _DIFFERENT)
    group, count = np.zeros(different, dtype=np.int64), np.full(different, rows // different)
    column, source = Records(group, np.linspace(low, high, different), count, 1), Source(insecure_seed=0)
    answers = [statistic.each(column, source) for _ in range(_TRIES)]
    return float(np.median([answer.high - answer.low for answer in answers]))

"""What a question would cost and how wide its answer would be, before it is asked.

Nothing is charged and no row is read: only the names and declared types of the columns are looked at, and what is
declared of them. How wide a count or a sum is follows from its noise. How wide a mean, a variance or a quantile is
depends on how many rows there are, which is private; so they are tried on made-up columns of several lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.budget.events import Event, Relation
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.mechanisms.records import Records
from sfumato.budget.mechanisms.statistics import Count, OfRecords, Quantile, Sum
from sfumato.budget.noise import Source
from sfumato.budget.query.plans import bins_of
from sfumato.budget.query.query import Told
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.schema import Schema
from sfumato.errors import BudgetError

__all__ = ["Preview", "preview"]

_SIZES = (100, 1_000, 10_000, 100_000)
_TRIES, _DIFFERENT = 25, 1_000


@dataclass(frozen=True)
class Preview:
    """What a question would cost, and how wide its answer would be; see `preview`."""

    question: Question
    epsilon: float
    delta: float
    relation: Relation
    confidence: float
    event: Event
    """What would be charged."""
    groups: int | None
    """How many answers there would be; None if the groups are to be discovered."""
    least: int | None
    """How many rows a group needs, about, to be discovered."""
    width: float | None
    """How wide the interval of a count or a sum would be; None for other statistics."""
    widths: dict[int, float]
    """For the others: how wide it would be, by the number of rows in a group, if they were spread evenly."""
    ranks: int | None
    """Of a quantile, a minimum or a maximum: by how many rows each end of the interval is off at most."""
    left: float | None = None
    """What is left of the budget, if a ledger was named."""
    fits: bool | None = None
    """Whether the budget is enough, if a ledger was named."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "question": str(self.question),
            "dry_run": True,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
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
    ledger: str | Path | None = None,
) -> Preview:
    """Say what a question would cost and how wide its answer would be, without asking it.

    Parameters
    ----------
    data, question, epsilon, delta, schema, discover, confidence
        See `query`.
    ledger : path, optional
        The file of a ledger, to compare with what is left of the budget. Without it nothing is looked up, since that
        takes reading the rows; adding or removing one record is then assumed.

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
    told = Told.of(
        data, question, epsilon=epsilon, delta=delta, schema=schema, discover=discover, confidence=confidence
    )
    relation, left, fits = Relation.ADD_REMOVE, None, None
    how, selection, event = told.planned(relation)
    if ledger is not None:
        with Ledger(ledger) as book:
            relation, left = book.relation, book.left
            how, selection, event = told.planned(relation)
            fits = _fits(book, event)
    groups = None if discover else math.prod(map(len, told.domains))
    if groups is not None and told.question.statistic is StatisticName.HISTOGRAM and told.bounded:
        groups *= len(bins_of(told.question, told.bounded))
    return Preview(
        told.question,
        told.epsilon,
        told.delta,
        relation,
        told.confidence,
        event,
        groups,
        None if selection is None else selection.threshold,
        2 * how.noise.half_width(told.confidence) if isinstance(how, Count | Sum) else None,
        {} if isinstance(how, Count | Sum) else {rows: _width(how, rows) for rows in _SIZES},
        how.rank_error if isinstance(how, Quantile) else None,
        left,
        fits,
    )


def _fits(book: Ledger, event: Event) -> bool:
    try:
        book.refuse(event)
    except BudgetError:
        return False
    return True


def _width(how: OfRecords, rows: int) -> float:
    """Return the median width of the interval for a made-up column: numbers spread evenly between the bounds."""
    low, high = how.bounds  # type: ignore[attr-defined]
    different = min(rows, _DIFFERENT)
    group, count = np.zeros(different, dtype=np.int64), np.full(different, rows // different)
    column, source = Records(group, np.linspace(low, high, different), count, 1), Source(insecure_seed=0)
    tried = [how.each(column, source) for _ in range(_TRIES)]  # nobody's numbers
    return float(np.median([one.high - one.low for one in tried]))

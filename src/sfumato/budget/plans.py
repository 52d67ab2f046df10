"""Which statistic answers a question, with the public bounds of its column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato._errors import SchemaError
from sfumato.budget.mechanisms import declared_bounds
from sfumato.budget.noise import Floats
from sfumato.budget.question import Question, Statistic
from sfumato.budget.statistics import Count, Mean, OfRecords, Quantile, Sum
from sfumato.data.schema import Column

__all__ = ["Bounded", "bins_of", "plan"]

_CANDIDATES = 4097  # so many values are told apart by a quantile


@dataclass(frozen=True)
class Bounded:
    """A column of numbers with public bounds."""

    name: str
    low: float
    high: float

    @classmethod
    def of(cls, column: Column) -> Bounded:
        """Return the bounds of a column, or refuse one that declares none."""
        if column.bounds is None:
            raise SchemaError(
                f"column '{column.name}' has no public bounds, and without them no noise is enough",
                hint="give its bounds in the schema: what is possible, and not what the data holds",
            )
        low, high = column.bounds
        if low == high:
            raise SchemaError(f"the bounds of column '{column.name}' are equal: its values are known")
        return cls(column.name, *declared_bounds((low, high)))


def plan(question: Question, bounded: Bounded | None, epsilon: float, confidence: float = 0.95) -> OfRecords:
    """Return the statistic that answers a question for an epsilon, under add-remove.

    Examples
    --------
    >>> print(plan(Question.parse("count by sex"), None, 0.5).event)
    discrete Laplace noise of scale 2 on a sensitivity of 1
    """
    if question.statistic in (Statistic.COUNT, Statistic.HISTOGRAM):  # bins are groups
        return Count(epsilon=epsilon, confidence=confidence)
    assert bounded is not None
    bounds = bounded.low, bounded.high
    if question.statistic is Statistic.SUM:
        return Sum(epsilon=epsilon, confidence=confidence, bounds=bounds)
    if question.statistic is Statistic.MEAN:
        return Mean(epsilon=epsilon, confidence=confidence, bounds=bounds)
    candidates = _CANDIDATES
    if bounded.low.is_integer() and bounded.high.is_integer():  # then every whole number is one
        candidates = min(candidates, int(bounded.high - bounded.low) + 1)
    return Quantile(epsilon=epsilon, confidence=confidence, bounds=bounds, share=question.share, candidates=candidates)


def bins_of(question: Question, bounded: Bounded) -> Floats:
    """Return where the bins of a histogram begin, and where the last one ends.

    Examples
    --------
    >>> bins_of(Question.parse("histogram of age in 2 bins"), Bounded("age", 0, 120)).tolist()
    [0.0, 60.0, 120.0]
    """
    return np.linspace(bounded.low, bounded.high, question.bins + 1)

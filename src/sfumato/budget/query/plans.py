"""Which statistic answers a question, with the public bounds of its column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.budget.events import Relation
from sfumato.budget.mechanisms.additive import declared_bounds
from sfumato.budget.mechanisms.statistics import Count, Extreme, Mean, OfRecords, Quantile, Sum, Variance
from sfumato.budget.noise import Floats
from sfumato.budget.query.question import Question, StatisticName
from sfumato.data.schema import Column, Kind
from sfumato.errors import ColumnError, SchemaError

__all__ = ["Bounded", "bins_of", "plan"]


@dataclass(frozen=True)
class Bounded:
    """A column of numbers with public bounds."""

    name: str
    low: float
    high: float
    whole: bool = False
    """Whether its type says that the numbers are whole."""

    @classmethod
    def of(cls, column: Column, *, whole: bool = False) -> Bounded:
        """Return the bounds of a column of numbers, or refuse one that declares none."""
        if column.kind not in (Kind.NUMBER, Kind.AUTO):
            raise ColumnError(
                f"column '{column.name}' has the kind '{column.kind.value}', and numbers are needed",
                hint=f"count by {column.name} counts its values",
            )
        if column.bounds is None:
            raise SchemaError(
                f"column '{column.name}' has no public bounds, which declare that it holds numbers and how much noise "
                "they need",
                hint="give its bounds in the schema or with --bounds: what is possible, and not what the data holds",
            )
        low, high = column.bounds
        if low == high:
            raise SchemaError(f"the bounds of column '{column.name}' are equal: its values are known")
        return cls(column.name, *declared_bounds((low, high)), whole)


def plan(
    question: Question,
    bounded: Bounded | None,
    epsilon: float,
    confidence: float = 0.95,
    relation: Relation = Relation.ADD_REMOVE,
) -> OfRecords:
    """Return the statistic that answers a question for an epsilon.

    Examples
    --------
    >>> print(plan(Question.parse("count by sex"), None, 0.5).event)
    discrete Laplace noise of scale 2 on a sensitivity of 1
    """
    bins = question.statistic is StatisticName.HISTOGRAM  # they are groups
    how: dict[str, Any] = {
        "epsilon": epsilon,
        "confidence": confidence,
        "relation": relation,
        "grouped": bins or bool(question.groups),
    }
    if bins or question.statistic is StatisticName.COUNT:
        return Count(**how)
    assert bounded is not None
    how["bounds"] = bounded.low, bounded.high
    if question.statistic is StatisticName.SUM:
        return Sum(**how)
    if question.statistic is StatisticName.MEAN:
        return Mean(**how)
    if question.statistic is StatisticName.VARIANCE:
        return Variance(**how)
    if question.statistic in (StatisticName.MIN, StatisticName.MAX):
        return Extreme(**how, share=float(question.statistic is StatisticName.MAX), whole=bounded.whole)
    return Quantile(**how, share=question.share, whole=bounded.whole)


def bins_of(question: Question, bounded: Bounded) -> Floats:
    """Return where the bins of a histogram begin, and where the last one ends.

    Examples
    --------
    >>> bins_of(Question.parse("histogram of age in 2 bins"), Bounded("age", 0, 120)).tolist()
    [0.0, 60.0, 120.0]
    """
    return np.linspace(bounded.low, bounded.high, question.bins + 1)

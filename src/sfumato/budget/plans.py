"""How each statistic is answered: the event that the answer is, and how it is drawn once that is charged.

An answer is drawn for all groups at once. A record is in one group, so under add-remove the groups together cost what
one costs. Numbers are held within public bounds and rounded to a grid, so that all noise is in
whole numbers and exact. Intervals are of the noise alone: with the probability asked for, the statistic of
the records in the table, their numbers held within the bounds, lies inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._errors import SchemaError
from sfumato.budget.choices import NoisyMax
from sfumato.budget.events import Composed, Event
from sfumato.budget.mechanisms import AddedNoise
from sfumato.budget.noise import Source
from sfumato.budget.question import Question, Statistic
from sfumato.data.schema import Column

__all__ = ["Bounded", "Found", "Plan", "Records", "bins_of", "plan"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS = 4096  # so many values are told apart by a quantile


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
        return cls(column.name, low, high)


@dataclass(frozen=True, eq=False)
class Records:
    """Equal records, once: their group, their number (NaN if it is missing), and how many they are."""

    group: Ints
    value: Floats
    count: Ints
    groups: int
    """How many groups there are."""

    def known(self) -> Records:
        """Return those whose number is not missing."""
        known = ~np.isnan(self.value)
        return Records(self.group[known], self.value[known], self.count[known], self.groups)

    def sums(self, each: Ints) -> list[int]:
        """Return the sum of a whole number of each record, for every group."""
        largest = int(np.abs(each).max(initial=0)) * int(self.count.sum())
        total = np.zeros(self.groups, dtype=np.int64 if largest < 2**62 else object)  # Python's have no limit
        np.add.at(total, self.group, each.astype(total.dtype) * self.count.astype(total.dtype))
        whole: list[int] = total.tolist()
        return whole

    def counts(self) -> list[int]:
        """Return the number of records of every group."""
        return self.sums(np.ones(len(self.count), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Found:
    """A value for each group, and between which two numbers the true one is."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    @classmethod
    def nothing(cls) -> Found:
        """Return the answer for no groups at all."""
        return cls(np.empty(0), np.empty(0), np.empty(0))


@dataclass(frozen=True, eq=False)
class Plan:
    """The event that an answer is, and how it is drawn."""

    event: Event
    draw: Callable[[Records, float, Source], Found]
    """Of the records, the probability that an interval may be wrong, and where noise comes from."""


def plan(question: Question, bounded: Bounded | None, epsilon: float) -> Plan:
    """Return how a question is answered for an epsilon, under add-remove.

    Examples
    --------
    >>> print(plan(Question.parse("count by sex"), None, 0.5).event)
    discrete Laplace noise of scale 2 on a sensitivity of 1
    """
    if question.statistic in (Statistic.COUNT, Statistic.HISTOGRAM):  # bins are groups
        return _count(epsilon)
    assert bounded is not None
    if question.statistic is Statistic.SUM:
        return _sum(bounded, epsilon)
    if question.statistic is Statistic.MEAN:
        return _mean(bounded, epsilon)
    return _quantile(Fraction(question.share).limit_denominator(10**6), bounded, epsilon)


def bins_of(question: Question, bounded: Bounded) -> Floats:
    """Return where the bins of a histogram begin, and where the last one ends.

    Examples
    --------
    >>> bins_of(Question.parse("histogram of age in 2 bins"), Bounded("age", 0, 120)).tolist()
    [0.0, 60.0, 120.0]
    """
    return np.linspace(bounded.low, bounded.high, question.bins + 1)


def _count(epsilon: float) -> Plan:
    noise = AddedNoise(sensitivity=1, epsilon=epsilon, whole=True)

    def draw(records: Records, wrong: float, source: Source) -> Found:
        value = np.array(noise.release_steps(records.counts(), source), dtype=np.int64)
        width = int(noise.half_width(1 - wrong))
        return Found(value, np.maximum(value - width, 0), np.maximum(value + width, 0))

    return Plan(noise.event, draw)


def _sum(bounded: Bounded, epsilon: float) -> Plan:
    noise = AddedNoise(sensitivity=max(abs(bounded.low), abs(bounded.high)), epsilon=epsilon)

    def draw(records: Records, wrong: float, source: Source) -> Found:
        known = records.known()
        value = np.array(noise.release_steps(known.sums(noise.on_grid(known.value)), source)) * noise.step
        width = noise.half_width(1 - wrong)
        return Found(value, value - width, value + width)

    return Plan(noise.event, draw)


def _mean(bounded: Bounded, epsilon: float) -> Plan:
    """Spend half on the sum of the distances from the middle of the bounds, half on the count, and divide."""
    low, high = bounded.low, bounded.high
    middle = low + (high - low) / 2
    of_sum = AddedNoise(sensitivity=max(middle - low, high - middle), epsilon=epsilon / 2)
    of_count = AddedNoise(sensitivity=1, epsilon=epsilon / 2, whole=True)

    def draw(records: Records, wrong: float, source: Source) -> Found:
        known = records.known()
        steps = known.sums(of_sum.on_grid(known.value - middle))
        total = np.array(of_sum.release_steps(steps, source)) * of_sum.step
        count = np.array(of_count.release_steps(known.counts(), source), dtype=np.int64)
        off, more = of_sum.half_width(1 - wrong / 2), of_count.half_width(1 - wrong / 2)
        fewest, most = np.maximum(count - more, 1), np.maximum(count + more, 1)
        ends = [middle + end / number for end in (total - off, total + off) for number in (fewest, most)]
        value, first, last = middle + total / np.maximum(count, 1), np.min(ends, axis=0), np.max(ends, axis=0)
        # Rounding to the grid moves a mean by less than a step.
        value, first, last = (np.clip(one, low, high) for one in (value, first - of_sum.step, last + of_sum.step))
        return Found(value, first, last)

    return Plan(Composed((of_sum.event, of_count.event)), draw)


def _quantile(share: Fraction, bounded: Bounded, epsilon: float) -> Plan:
    """Spend half on the quantile, and a quarter on each end of its interval.

    The range is cut into cells, and one is chosen with noise: the more records it is away from the rank that is
    looked for, the less likely. With a probability of 1 - b, the chosen one of m cells is away by at most
    ``2 s / epsilon * ln(m / b)`` records, where s is the most that one record changes that distance; by so
    many, the ranks of the two ends lie lower and higher.
    """
    edges, whole = _edges(bounded)
    cells, per = len(edges) - 1, share.denominator
    sensitivity = max(share, 1 - share) * per  # distances are counted in parts of a record: all are whole numbers
    choice = NoisyMax(epsilon=epsilon / 2, sensitivity=float(sensitivity))
    end = NoisyMax(epsilon=epsilon / 4, sensitivity=float(sensitivity))

    def draw(records: Records, wrong: float, source: Source) -> Found:
        known = records.known()
        place = np.clip(np.searchsorted(edges, known.value, side="right") - 1, 0, cells - 1)
        in_cells = Records(known.group * cells + place, known.value, known.count, records.groups * cells)
        away = math.ceil(2 * sensitivity / per / (epsilon / 4) * math.log((cells + 1) / (wrong / 2)))
        found = np.empty((records.groups, 3))
        for group, count in enumerate(np.array(in_cells.counts(), dtype=np.int64).reshape(records.groups, cells)):
            rank = share.numerator * int(count.sum())
            # So many records are thought beyond each end that the rank that is looked for always exists.
            first = end.choose(-_away(np.append(away, count), rank, per), source) - 1
            last = end.choose(-_away(np.append(count, away), rank + away * per, per), source)
            at = choice.choose(-_away(count, rank, per), source)
            # A cell of whole numbers is the number that it begins with.
            ends = edges[max(first, 0)], edges[min(last, cells - 1) + (not whole)]
            found[group] = min(ends), edges[at] if whole else (edges[at] + edges[at + 1]) / 2, max(ends)
        low, value, high = found.T
        return Found(np.clip(value, low, high), low, high)

    return Plan(Composed((choice.event, end.event, end.event)), draw)


def _edges(bounded: Bounded) -> tuple[Floats, bool]:
    """Return where cells begin and end, and whether they are whole numbers: if the bounds are, and not far apart."""
    low, high = bounded.low, bounded.high
    if low.is_integer() and high.is_integer() and high - low < _CELLS:
        return np.arange(low, high + 2), True
    return np.linspace(low, high, _CELLS + 1), False


def _away(count: Ints, rank: int, per: int) -> Ints:
    """Return how far each cell is from holding a rank; both are counted in parts of a record."""
    until = np.cumsum(count)
    far: Ints = np.maximum(0, np.maximum((until - count) * per - rank, rank - until * per))
    return far

"""Noisy statistics of a table: counts, sums, means, variances and histograms; `selection` has the quantiles.

A statistic is a small frozen object whose event is known before it sees any data, so the charge can come first.
Bounds and categories are declared, never read from the data. Missing values and values outside a declared domain
contribute nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Composed, Event, Relation
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism, declared_bounds
from sfumato.budget.noise import Floats, Integers, Source
from sfumato.data.validate import real
from sfumato.errors import OptionError, one_of

__all__ = [
    "Answer",
    "Answers",
    "ContingencyTable",
    "Count",
    "Histogram",
    "Mean",
    "OfNumbers",
    "OfRecords",
    "Records",
    "Statistic",
    "Sum",
    "Variance",
    "nested",
]

_PARTS = 2**31  # fractions of a grid step


@dataclass(frozen=True, eq=False)
class Records:
    """Distinct records with their multiplicity: the group, the number (NaN if missing) and the count of each.

    Examples
    --------
    >>> records = Records.of([30.0, float("nan"), 7.5])
    >>> records.counts(), records.known().counts()
    ([3], [2])
    """

    group: Integers
    value: Floats
    count: Integers
    groups: int
    """The number of groups."""

    @classmethod
    def of(cls, values: Any) -> Records:
        """Return numbers as records of a single group."""
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        zeros = np.zeros(len(numbers), dtype=np.int64)
        return cls(zeros, numbers, zeros + 1, 1)

    def known(self) -> Records:
        """Return the records whose number is not missing."""
        known = ~np.isnan(self.value)
        return Records(self.group[known], self.value[known], self.count[known], self.groups)

    def sums(self, each: Integers) -> list[int]:
        """Return the sum of `each`, a whole number per record, for every group."""
        largest = int(np.abs(each).max(initial=0)) * int(self.count.sum())
        total = np.zeros(self.groups, dtype=np.int64 if largest < 2**62 else object)  # Python integers do not overflow
        np.add.at(total, self.group, each.astype(total.dtype) * self.count.astype(total.dtype))
        whole: list[int] = total.tolist()
        return whole

    def totals(self, each: Floats, step: float) -> list[int]:
        """Return the sum of `each`, a number per record, in grid steps for every group.

        The sum is exact in fractions of a step and rounded once, so rounding errors never add up to a step.
        The step must be a power of two.

        Examples
        --------
        >>> Records.of([0.0] * 4).totals(np.array([0.3, 0.3, 0.3, 0.3]), step=1.0)
        [1]
        """
        scaled = each / step
        whole = np.rint(scaled)
        rest = np.rint((scaled - whole) * _PARTS)
        sums = zip(self.sums(whole.astype(np.int64)), self.sums(rest.astype(np.int64)), strict=True)
        return [(steps * _PARTS + parts + _PARTS // 2) // _PARTS for steps, parts in sums]

    def counts(self) -> list[int]:
        """Return the number of records of every group."""
        return self.sums(np.ones(len(self.count), dtype=np.int64))


@dataclass(frozen=True)
class Answer:
    """A noisy statistic and a confidence interval for the exact one."""

    value: float
    low: float
    high: float
    confidence: float
    """The probability that the interval contains the statistic of the table, not that of a wider population."""
    private: bool
    """False if the noise came from a given seed: the answer is then reproducible and not private."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        plain: dict[str, Any] = {"value": self.value, "interval": [self.low, self.high], "confidence": self.confidence}
        return plain if self.private else {**plain, "note": "reproducible, not private"}


@dataclass(frozen=True, kw_only=True)
class Statistic(Mechanism):
    """A statistic that costs an epsilon, or an epsilon and a delta."""

    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE
    confidence: float = 0.95

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        check_delta(self.delta, allow_zero=True)
        real("the confidence", self.confidence, above=0, below=1)

    @abstractmethod
    def answer(self, values: Any, source: Source | None = None) -> Any:
        """Return the statistic of values, with noise."""

    def _noise(self, sensitivity: float, share: float = 1.0, *, changes: int = 1, whole: bool = False) -> AddedNoise:
        return AddedNoise(
            sensitivity=sensitivity,
            epsilon=self.epsilon * share,
            delta=self.delta * share,
            changes=changes,
            whole=whole,
            relation=self.relation,
        )


@dataclass(frozen=True, eq=False)
class Answers:
    """A noisy statistic of every group and a confidence interval for the exact one."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    @classmethod
    def of_counts(cls, noisy: Sequence[int], half: float) -> Answers:
        """Return noisy counts with confidence intervals for the true counts, which are never negative.

        A noisy count may be negative, because clipping it at 0 would bias small counts. Its interval then
        extends from that count to 0 or more.
        """
        value = np.array(noisy, dtype=np.int64)
        low, high = value - int(half), value + int(half)
        return cls(value, np.minimum(np.maximum(low, 0), value), np.maximum(high, 0))


@dataclass(frozen=True, kw_only=True)
class OfRecords(Statistic):
    """A statistic of records, computed for every group at once.

    Under add-remove each record is in one group, so all groups together cost as much as one. Under replace-one a
    record may move from one group to another, so two answers can change; ``grouped`` accounts for that.
    """

    grouped: bool = False
    """Whether the records are in several groups that depend on their values."""

    def each(self, records: Records, source: Source | None = None) -> Answers:
        """Return the statistic of every group, with noise."""
        if records.groups > 1 and not self.grouped and self.relation is Relation.REPLACE_ONE:
            raise OptionError(
                f"under replace-one a record can change the answers of two of the {records.groups:,} groups",
                hint="grouped=True accounts for both",
            )
        return self._each(records, Source() if source is None else source)

    @abstractmethod
    def _each(self, records: Records, source: Source) -> Answers: ...

    @abstractmethod
    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether this statistic can give such a value with such an interval."""

    def _change(self, record: float, replacement: float) -> float:
        """Return the total change of the answers, given that by one record and that by its replacement in a group."""
        if self.relation is Relation.ADD_REMOVE:
            return record
        return 2 * record if self.grouped else replacement  # the record may move to another group

    def answer(self, values: Any, source: Source | None = None) -> Answer:
        """Return the statistic of values, with noise."""
        chosen = Source() if source is None else source
        return self._first(self.each(Records.of(values), chosen), chosen)

    def _first(self, answers: Answers, source: Source) -> Answer:
        value, low, high = (ends[0].item() for ends in (answers.value, answers.low, answers.high))
        return Answer(value, low, high, self.confidence, source.private)


@dataclass(frozen=True, kw_only=True)
class Count(OfRecords):
    """Count the records, or those that meet a condition.

    Examples
    --------
    >>> count = Count(epsilon=0.5)
    >>> str(count.event)
    'discrete Laplace noise of scale 2 on a sensitivity of 1'
    >>> count.answer(1000, Source(insecure_seed=1)).to_dict()["note"]
    'reproducible, not private'
    """

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on the count, which one record changes by at most 1."""
        return self._noise(self._change(1, 1), whole=True)

    @property
    def event(self) -> Event:
        """The cost of the count."""
        return self.noise.event

    def _each(self, records: Records, source: Source) -> Answers:
        return self._noisy(records.counts(), source)

    def answer(self, values: Any, source: Source | None = None) -> Answer:
        """Return the noisy count, given the true count or an array with a truth value per record."""
        chosen = Source() if source is None else source
        true = int(values) if isinstance(values, int | np.integer) else int(np.count_nonzero(np.asarray(values)))
        return self._first(self._noisy([true], chosen), chosen)

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the interval is that of the count."""
        expected = Answers.of_counts(answers.value.tolist(), self.noise.half_width(self.confidence))
        return np.asarray((answers.low == expected.low) & (answers.high == expected.high))

    def _noisy(self, counts: list[int], source: Source) -> Answers:
        return Answers.of_counts(self.noise.release_steps(counts, source), self.noise.half_width(self.confidence))


@dataclass(frozen=True, kw_only=True)
class OfNumbers(OfRecords):
    """A statistic of numbers between public bounds."""

    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", declared_bounds(self.bounds))

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.bounds is not None
        return self.bounds

    def _clipped(self, records: Records) -> Records:
        """Return the records whose number is not missing, clipped to the bounds."""
        known = records.known()
        return replace(known, value=np.clip(known.value, *self._ends))


@dataclass(frozen=True, kw_only=True)
class Sum(OfNumbers):
    """Sum numbers between public bounds; a number outside them is clipped.

    Examples
    --------
    >>> total = Sum(epsilon=1.0, bounds=(0, 120))
    >>> round(total.noise.scale, 3)
    120.0
    >>> answer = total.answer([20.0, 30.0, 700.0])
    """

    @property
    def sensitivity(self) -> float:
        """The largest contribution of a record, or under replace-one the largest change by replacing it."""
        low, high = self._ends
        return self._change(max(abs(low), abs(high)), max(high, 0.0) - min(low, 0.0))  # a missing value contributes 0

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on the sum."""
        return self._noise(self.sensitivity)

    @property
    def event(self) -> Event:
        """The cost of the sum."""
        return self.noise.event

    def _each(self, records: Records, source: Source) -> Answers:
        clipped = self._clipped(records)
        return self._around(self.noise.release_steps(clipped.totals(clipped.value, self.noise.step), source))

    def _around(self, steps: Iterable[int]) -> Answers:
        noise, steps = self.noise, list(steps)
        far = round(noise.half_width(self.confidence) / noise.step) + 1  # rounding to the grid adds less than a step
        value, low, high = (
            np.array([(step + side) * noise.step for step in steps], dtype=np.float64) for side in (0, -far, far)
        )
        return Answers(value, np.nextafter(low, -np.inf), np.nextafter(high, np.inf))

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the sum is on the grid of the noise, and its interval that of the sum."""
        with np.errstate(all="ignore"):
            steps = answers.value / self.noise.step
        known = np.isfinite(steps)
        expected = self._around(int(step) for step in np.where(known, np.rint(steps), 0.0))
        rounding = 1e-9 * self.noise.scale + 4 * np.spacing(np.abs(expected.value))  # of sums beyond 2**53 steps
        near = np.abs(np.stack([answers.low - expected.low, answers.high - expected.high])) <= rounding
        return np.asarray(known & (answers.value == expected.value) & near.all(axis=0))


@dataclass(frozen=True, kw_only=True)
class _Moments(OfNumbers):
    """A statistic of a noisy count and noisy sums of powers of the numbers, scaled to [-1, 1]."""

    @property
    def _shares(self) -> tuple[float, ...]:
        raise NotImplementedError

    @cached_property
    def noises(self) -> tuple[AddedNoise, ...]:
        """The noise on the count and on each sum, to which a record contributes at most 1 in absolute value."""
        count, *sums = self._shares
        change = self._change(1.0, 2.0)
        return (self._noise(self._change(1, 1), count, whole=True), *(self._noise(change, share) for share in sums))

    @property
    def event(self) -> Event:
        """The cost of the count and the sums together."""
        return Composed(tuple(noise.event for noise in self.noises))

    def _means(self, records: Records, source: Source) -> tuple[NDArray[np.int64], list[Answers]]:
        """Return the noisy counts and the noisy mean of each power; the intervals of a group hold simultaneously."""
        low, high = self._ends
        clipped = self._clipped(records)
        # Subtracting the midpoint would lose precision for large bounds that are close together.
        centred = np.clip((clipped.value - low) / (high - low) * 2 - 1, -1, 1)
        each = 1 - (1 - self.confidence) / len(self.noises)
        count = np.array(self.noises[0].release_steps(clipped.counts(), source), dtype=np.int64)
        more = int(self.noises[0].half_width(each))
        sizes = np.maximum(count - more, 1), np.maximum(count + more, 1)
        means = []
        for power, noise in enumerate(self.noises[1:], start=1):
            # The square is in [0, 1]; scaled to [-1, 1], it needs no more noise than the first power.
            steps = clipped.totals(centred if power == 1 else 2 * centred**2 - 1, noise.step)
            total = np.array([step * noise.step for step in noise.release_steps(steps, source)], dtype=np.float64)
            half = noise.half_width(each)
            ends = np.array([(total + side) / size for side in (-half, half) for size in sizes])
            # Rounding to the grid changes a mean by less than a step, and so do float errors.
            mean = total / np.maximum(count, 1), ends.min(axis=0) - 2 * noise.step, ends.max(axis=0) + 2 * noise.step
            means.append(Answers(*(np.clip(one, -1, 1) for one in mean)))
        return count, means


@dataclass(frozen=True, kw_only=True)
class Mean(_Moments):
    """Average numbers between public bounds: a noisy sum over a noisy count.

    Dividing by a noisy count causes a bias of the order of the noise variance over the square of the count.

    Examples
    --------
    >>> mean = Mean(epsilon=1.0, bounds=(0, 120))
    >>> answer = mean.answer(np.full(10_000, 40.0))
    >>> abs(answer.value - 40) < 1
    True
    """

    @property
    def _shares(self) -> tuple[float, ...]:
        return 0.5, 0.5

    def _each(self, records: Records, source: Source) -> Answers:
        low, high = self._ends
        _, (mean,) = self._means(records, source)
        value, least, most = (low + (high - low) * ((one + 1) / 2) for one in (mean.value, mean.low, mean.high))
        ends = value, np.nextafter(least, -np.inf), np.nextafter(most, np.inf)
        return Answers(*(np.clip(one, low, high) for one in ends))

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the mean is in its interval, and that between the bounds."""
        return nested(answers, *self._ends)


@dataclass(frozen=True, kw_only=True)
class Variance(_Moments):
    """The variance of numbers between public bounds, from a noisy count and two noisy sums.

    The square of a noisy mean is biased by the variance of its noise, which is known and subtracted.

    Examples
    --------
    >>> variance = Variance(epsilon=1.0, bounds=(0, 2))
    >>> answer = variance.answer(np.tile([0.0, 2.0], 50_000))
    >>> abs(answer.value - 1) < 0.05
    True
    """

    @property
    def _shares(self) -> tuple[float, ...]:
        return 0.25, 0.375, 0.375

    def _each(self, records: Records, source: Source) -> Answers:
        """Return the noisy variance (the mean squared distance from the mean) of every group."""
        low, high = self._ends
        count, (mean, square) = self._means(records, source)
        noise = (self.noises[1].standard_deviation / np.maximum(count, 1)) ** 2
        far = np.maximum(np.abs(mean.low), np.abs(mean.high))
        near = np.where((mean.low <= 0) & (mean.high >= 0), 0.0, np.minimum(np.abs(mean.low), np.abs(mean.high)))
        value, least, most = (
            ((high - low) / 2) ** 2 * np.clip(one, 0, 1)
            for one in (
                (square.value + 1) / 2 - mean.value**2 + noise,
                (square.low + 1) / 2 - far**2,
                (square.high + 1) / 2 - near**2,
            )
        )
        return Answers(value, np.minimum(least, value), np.maximum(most, value))

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the variance is in its interval, and that among the possible variances."""
        low, high = self._ends
        return nested(answers, 0.0, ((high - low) / 2) ** 2)


@dataclass(frozen=True, kw_only=True)
class ContingencyTable(Statistic):
    """Count the records of every combination of the public values of some columns.

    Each record is in one cell, so all cells together cost as much as one; under replace-one a record may
    move to another cell, which costs more.

    Examples
    --------
    >>> table = ContingencyTable(epsilon=1.0, domains=(("f", "m"), ("no", "yes")))
    >>> counts = table.answer([["f", "m", "m"], ["yes", "no", "no"]])
    >>> list(counts)
    [('f', 'no'), ('f', 'yes'), ('m', 'no'), ('m', 'yes')]
    """

    domains: tuple[tuple[Hashable, ...], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.domains:
            raise OptionError(
                "the columns need public domains: a category of a single record would identify it",
                hint="declare them in the schema without looking at the data, or select them with SelectCategories",
            )
        object.__setattr__(self, "domains", tuple(tuple(domain) for domain in self.domains))
        for domain in self.domains:
            if not domain or len(set(domain)) != len(domain):
                raise OptionError("a public domain must list at least one value, each only once")

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each cell."""
        return self._noise(1, whole=True, changes=1 if self.relation is Relation.ADD_REMOVE else 2)

    @property
    def event(self) -> Event:
        """The cost of all cells together."""
        return self.noise.event

    def answer(self, values: Sequence[Iterable[Hashable]], source: Source | None = None) -> dict[Any, Answer]:
        """Return the noisy count of every cell, given the values of each column."""
        chosen = Source() if source is None else source
        assert self.domains is not None
        if len(values) != len(self.domains):
            raise OptionError(f"there are {len(self.domains)} domains, but {len(values)} columns of values")
        shape = tuple(map(len, self.domains))
        codes = [_codes(column, domain) for column, domain in zip(values, self.domains, strict=True)]
        if len({len(code) for code in codes}) > 1:
            raise OptionError("the columns must have the same number of values")
        known = np.all([code >= 0 for code in codes], axis=0)
        cells = np.ravel_multi_index([code[known] for code in codes], shape)
        true = np.bincount(cells, minlength=math.prod(shape))
        noisy = Answers.of_counts(
            self.noise.release_steps(true.tolist(), chosen), self.noise.half_width(self.confidence)
        )
        counts = zip(noisy.value.tolist(), noisy.low.tolist(), noisy.high.tolist(), strict=True)
        return {
            cell: Answer(*count, self.confidence, chosen.private)
            for cell, count in zip(product(*self.domains), counts, strict=True)
        }


@dataclass(frozen=True, kw_only=True)
class Histogram(Statistic):
    """Count the records of every public value, or of every bin between public edges.

    Examples
    --------
    >>> ages = Histogram(epsilon=1.0, edges=(0, 18, 65, 120))
    >>> list(ages.answer([3.0, 20.0, 70.0, 120.0]))
    [(0.0, 18.0), (18.0, 65.0), (65.0, 120.0)]
    >>> list(Histogram(epsilon=1.0, domain=("a", "b")).answer(["a", "a", "z"]))
    ['a', 'b']
    """

    domain: tuple[Hashable, ...] | None = None
    edges: tuple[float, ...] | None = None
    """The increasing edges of the bins; a bin includes its lower edge, the last bin both edges."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges is not None:
            edges = tuple(map(float, self.edges))
            if len(edges) < 2 or not all(map(math.isfinite, edges)) or any(np.diff(edges) <= 0):
                raise OptionError(f"the edges of bins must be two or more increasing finite numbers, got {edges}")
            if self.domain is not None:
                raise OptionError("a histogram has either a domain or edges, not both")
            object.__setattr__(self, "edges", edges)
        _ = self._table  # raises an error if there is no domain

    @cached_property
    def _table(self) -> ContingencyTable:
        bins = self.domain if self.edges is None else tuple(pairwise(self.edges))
        domains = None if bins is None else (tuple(bins),)
        return ContingencyTable(
            epsilon=self.epsilon,
            delta=self.delta,
            relation=self.relation,
            confidence=self.confidence,
            domains=domains,
        )

    @property
    def noise(self) -> AddedNoise:
        """The noise on each count."""
        return self._table.noise

    @property
    def event(self) -> Event:
        """The cost of all counts together."""
        return self._table.event

    def answer(self, values: Iterable[Any], source: Source | None = None) -> dict[Any, Answer]:
        """Return the noisy count of every value or bin."""
        if self.edges is not None:
            values = _binned(values, self.edges)
        return {cell[0]: answer for cell, answer in self._table.answer([values], source).items()}


def nested(answers: Answers, least: float, most: float) -> NDArray[np.bool_]:
    """Return for every group whether the value is in its interval, and that in the range of the statistic."""
    return np.asarray(
        (least <= answers.low)
        & (answers.low <= answers.value)
        & (answers.value <= answers.high)
        & (answers.high <= most)
    )


def _codes(values: Iterable[Hashable], domain: tuple[Hashable, ...]) -> Any:
    place = {value: code for code, value in enumerate(domain)}
    return np.array([place.get(value, -1) for value in values], dtype=np.int64)


def _binned(values: Iterable[Any], edges: tuple[float, ...]) -> list[Any]:
    """Return the bin of each number, or None if it is outside all bins."""
    bins = [*pairwise(edges), None]
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    place = np.searchsorted(edges, numbers, "right") - 1
    place[numbers == edges[-1]] = len(edges) - 2
    place[(place < 0) | (place > len(edges) - 2) | np.isnan(numbers)] = -1
    return [bins[at] for at in place]

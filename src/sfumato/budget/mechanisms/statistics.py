"""Statistics of a table with noise: counts, sums, means, variances, histograms and quantiles.

Every statistic is a small frozen object that knows its event before it sees any data, so that it
can be charged first. Nothing is read off the data that is not paid for: bounds and categories
are declared. Missing values, and values outside of a declared domain, contribute nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Composed, Event, Relation
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism, declared_bounds, positive
from sfumato.budget.mechanisms.records import Records
from sfumato.budget.mechanisms.selection import NoisyMax
from sfumato.budget.noise import Floats, Source
from sfumato.errors import OptionError, one_of

__all__ = [
    "Answer",
    "Answers",
    "ContingencyTable",
    "Count",
    "Extreme",
    "Histogram",
    "Mean",
    "OfRecords",
    "Quantile",
    "Statistic",
    "Sum",
    "Variance",
]

_BEYOND = 2**61  # a rank that no table reaches


@dataclass(frozen=True)
class Answer:
    """A statistic with noise, and the interval that holds it without noise."""

    value: float
    low: float
    high: float
    confidence: float
    """The probability that the interval holds the statistic of the table. It says nothing of a wider population."""
    private: bool
    """False if the noise came from a fixed seed: reproducible, not private."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        plain: dict[str, Any] = {"value": self.value, "interval": [self.low, self.high], "confidence": self.confidence}
        return plain if self.private else {**plain, "note": "reproducible, not private"}


@dataclass(frozen=True, kw_only=True)
class Statistic(Mechanism):
    """A statistic that costs epsilon, or epsilon and delta."""

    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE
    confidence: float = 0.95

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        positive("epsilon", self.epsilon)
        check_delta(self.delta, allow_zero=True)
        if not 0 < self.confidence < 1:
            raise OptionError(f"the confidence must be a number between 0 and 1, got {self.confidence!r}")

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
    """A statistic of every group with noise, and the interval that holds it without noise."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    @classmethod
    def of_counts(cls, noisy: Sequence[int], half: float) -> Answers:
        """Return noisy counts with intervals that hold the true counts, which are never negative.

        A noisy count may be negative: to cut it off at 0 would make small counts too large on average. Its
        interval then reaches from that count up to 0 or more.
        """
        value = np.array(noisy, dtype=np.int64)
        low, high = value - int(half), value + int(half)
        return cls(value, np.minimum(np.maximum(low, 0), value), np.maximum(high, 0))


@dataclass(frozen=True, kw_only=True)
class OfRecords(Statistic):
    """A statistic of records, for every group at once.

    Under add-remove a record is in one group, so all groups cost what one costs. Under replace-one a record may
    leave one group and enter another, so two answers change: ``grouped`` says that there are several groups.
    """

    grouped: bool = False
    """Whether the records are in several groups that their own values decide on."""

    def each(self, records: Records, source: Source | None = None) -> Answers:
        """Return the statistic of every group, with noise."""
        if records.groups > 1 and not self.grouped and self.relation is Relation.REPLACE_ONE:
            raise OptionError(
                f"under replace-one a record can change the answers of two of the {records.groups:,} groups",
                hint="grouped=True pays for both",
            )
        return self._each(records, Source() if source is None else source)

    @abstractmethod
    def _each(self, records: Records, source: Source) -> Answers: ...

    def _change(self, record: float, replacement: float) -> float:
        """Return by how much the answers change together: by one record, or by the replacement of one in a group."""
        if self.relation is Relation.ADD_REMOVE:
            return record
        return 2 * record if self.grouped else replacement  # leaves one group and enters another

    def answer(self, values: Any, source: Source | None = None) -> Answer:
        """Return the statistic of values, with noise."""
        chosen = Source() if source is None else source
        return self._first(self.each(Records.of(values), chosen), chosen)

    def _first(self, found: Answers, source: Source) -> Answer:
        value, low, high = (ends[0].item() for ends in (found.value, found.low, found.high))
        return Answer(value, low, high, self.confidence, source.private)


@dataclass(frozen=True, kw_only=True)
class Count(OfRecords):
    """Count the records, or those that fulfil a condition.

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
        """One record more, or another record, changes a count by at most 1."""
        return self._noise(self._change(1, 1), whole=True)

    @property
    def event(self) -> Event:
        """The noise on the count."""
        return self.noise.event

    def _each(self, records: Records, source: Source) -> Answers:
        return self._noisy(records.counts(), source)

    def answer(self, values: Any, source: Source | None = None) -> Answer:
        """Return the count with noise of a true count, or of the true values in an array of conditions."""
        chosen = Source() if source is None else source
        true = int(values) if isinstance(values, int | np.integer) else int(np.count_nonzero(np.asarray(values)))
        return self._first(self._noisy([true], chosen), chosen)

    def _noisy(self, counts: list[int], source: Source) -> Answers:
        return Answers.of_counts(self.noise.release_steps(counts, source), self.noise.half_width(self.confidence))


@dataclass(frozen=True, kw_only=True)
class _Bounded(OfRecords):
    """A statistic of numbers between public bounds."""

    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", declared_bounds(self.bounds))

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.bounds is not None
        return self.bounds

    def _held(self, records: Records) -> Records:
        """Return the records whose number is not missing, cut off at the bounds."""
        known = records.known()
        return replace(known, value=np.clip(known.value, *self._ends))


@dataclass(frozen=True, kw_only=True)
class Sum(_Bounded):
    """Add up numbers between public bounds; a number outside of them is cut off.

    Examples
    --------
    >>> total = Sum(epsilon=1.0, bounds=(0, 120))
    >>> round(total.noise.scale, 3)
    120.0
    >>> answer = total.answer([20.0, 30.0, 700.0])
    """

    @property
    def sensitivity(self) -> float:
        """What a record, present or absent, contributes at most; or by how much its replacement can differ."""
        low, high = self._ends
        return self._change(max(abs(low), abs(high)), max(high, 0.0) - min(low, 0.0))  # a missing value contributes 0

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on the sum."""
        return self._noise(self.sensitivity)

    @property
    def event(self) -> Event:
        """What the noise costs."""
        return self.noise.event

    def _each(self, records: Records, source: Source) -> Answers:
        held, noise = self._held(records), self.noise
        steps = noise.release_steps(held.totals(held.value, noise.step), source)
        far = round(noise.half_width(self.confidence) / noise.step) + 1  # putting a sum on the grid moves it by less
        value, low, high = (
            np.array([(one + side) * noise.step for one in steps], dtype=np.float64) for side in (0, -far, far)
        )
        return Answers(value, np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


@dataclass(frozen=True, kw_only=True)
class _Moments(_Bounded):
    """A statistic of the noisy count and of noisy sums of the numbers, moved and scaled to lie in [-1, 1]."""

    @property
    def _shares(self) -> tuple[float, ...]:
        raise NotImplementedError

    @cached_property
    def noises(self) -> tuple[AddedNoise, ...]:
        """The noise on the count, and on each sum: each record contributes at most 1 to either side."""
        count, *sums = self._shares
        change = self._change(1.0, 2.0)
        return (self._noise(self._change(1, 1), count, whole=True), *(self._noise(change, share) for share in sums))

    @property
    def event(self) -> Event:
        """What the count and the sums cost together."""
        return Composed(tuple(noise.event for noise in self.noises))

    def _means(self, records: Records, source: Source) -> tuple[NDArray[np.int64], list[Answers]]:
        """Return the noisy counts, and the noisy mean of each power; all intervals of a group hold together."""
        low, high = self._ends
        held = self._held(records)
        # Not by the middle, which is no float between bounds that are large and close.
        centred = np.clip((held.value - low) / (high - low) * 2 - 1, -1, 1)
        each = 1 - (1 - self.confidence) / len(self.noises)
        count = np.array(self.noises[0].release_steps(held.counts(), source), dtype=np.int64)
        more = int(self.noises[0].half_width(each))
        sizes = np.maximum(count - more, 1), np.maximum(count + more, 1)
        means = []
        for power, noise in enumerate(self.noises[1:], start=1):
            # The second power lies in [0, 1]: moved to [-1, 1], it needs no more noise than the first.
            steps = held.totals(centred if power == 1 else 2 * centred**2 - 1, noise.step)
            total = np.array([one * noise.step for one in noise.release_steps(steps, source)], dtype=np.float64)
            half = noise.half_width(each)
            ends = np.array([(total + side) / size for side in (-half, half) for size in sizes])
            # Putting a sum on the grid moves a mean by less than a step, and so do the roundings of floats.
            found = total / np.maximum(count, 1), ends.min(axis=0) - 2 * noise.step, ends.max(axis=0) + 2 * noise.step
            means.append(Answers(*(np.clip(one, -1, 1) for one in found)))
        return count, means


@dataclass(frozen=True, kw_only=True)
class Mean(_Moments):
    """Average numbers between public bounds: a noisy sum over a noisy count.

    The bias from dividing by a noisy count is of the order of the variance of the noise over the
    square of the count.

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


@dataclass(frozen=True, kw_only=True)
class Variance(_Moments):
    """The variance of numbers between public bounds, from a noisy count and two noisy sums.

    The square of a noisy mean is too large by the variance of its noise, which is known and taken off.

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
        """Return the variance (the mean squared distance from the mean) of every group, with noise."""
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


@dataclass(frozen=True, kw_only=True)
class ContingencyTable(Statistic):
    """Count the records of every combination of the public values of some columns.

    A record is in one cell, so all cells together cost what one costs; under replace-one it may
    leave a cell and enter another.

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
                "the columns need public domains: a category that only one record has would give it away",
                hint="declare them in the schema, not read off the data, or buy them with SelectCategories",
            )
        object.__setattr__(self, "domains", tuple(tuple(domain) for domain in self.domains))
        for domain in self.domains:
            if not domain or len(set(domain)) != len(domain):
                raise OptionError("a public domain must list at least one value, and each once")

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each cell."""
        return self._noise(1, whole=True, changes=1 if self.relation is Relation.ADD_REMOVE else 2)

    @property
    def event(self) -> Event:
        """What all the cells cost together."""
        return self.noise.event

    def answer(self, values: Sequence[Iterable[Hashable]], source: Source | None = None) -> dict[Any, Answer]:
        """Return the count of every cell with noise, given the values of each column."""
        chosen = Source() if source is None else source
        assert self.domains is not None
        if len(values) != len(self.domains):
            raise OptionError(f"there are {len(self.domains)} domains, but values of {len(values)} columns")
        shape = tuple(map(len, self.domains))
        codes = [_codes(column, domain) for column, domain in zip(values, self.domains, strict=True)]
        if len({len(code) for code in codes}) > 1:
            raise OptionError("the columns must have the same number of values")
        known = np.all([code >= 0 for code in codes], axis=0)
        cells = np.ravel_multi_index([code[known] for code in codes], shape)
        true = np.bincount(cells, minlength=math.prod(shape))
        found = Answers.of_counts(
            self.noise.release_steps(true.tolist(), chosen), self.noise.half_width(self.confidence)
        )
        ends = zip(found.value.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
        return {
            cell: Answer(*counted, self.confidence, chosen.private)
            for cell, counted in zip(product(*self.domains), ends, strict=True)
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
    """Ends of the bins, in order; a bin holds its lower end, the last one both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges is not None:
            edges = tuple(map(float, self.edges))
            if len(edges) < 2 or not all(map(math.isfinite, edges)) or any(np.diff(edges) <= 0):
                raise OptionError(f"the edges of bins must be two or more finite numbers that increase, got {edges}")
            if self.domain is not None:
                raise OptionError("a histogram has either a domain or edges, not both")
            object.__setattr__(self, "edges", edges)
        _ = self._table  # a histogram without a domain is refused here

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
        """What all the counts cost together."""
        return self._table.event

    def answer(self, values: Iterable[Any], source: Source | None = None) -> dict[Any, Answer]:
        """Return the count of every value or bin with noise."""
        if self.edges is not None:
            values = _binned(values, self.edges)
        return {cell[0]: answer for cell, answer in self._table.answer([values], source).items()}


@dataclass(frozen=True, kw_only=True)
class Quantile(_Bounded):
    """Find the value below which a share of the numbers lies, among evenly spaced candidates (Smith 2011).

    Half of epsilon chooses the value; a quarter each chooses, a little below and above, the ends of the interval.
    The interval holds a number below which no more than the share of the numbers lies, and no less at or below it.

    Parameters
    ----------
    share : float
        0.5 is the median.
    candidates : int
        At most how many values, besides the bounds, can be the answer: the multiples of a round number.
    whole : bool
        Whether only whole numbers, besides the bounds, can be the answer. Declared, and not read off the data.

    Examples
    --------
    >>> median = Quantile(epsilon=3.0, bounds=(0, 100), share=0.5, candidates=101)
    >>> answer = median.answer(np.arange(101).repeat(100))
    >>> abs(answer.value - 50) <= 2
    True
    >>> Quantile(epsilon=3.0, bounds=(0, 5)).grid[:3].tolist()
    [0.0, 0.002, 0.004]
    """

    share: float = 0.5
    candidates: int = 4097
    whole: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta:
            raise OptionError("a quantile is chosen with an epsilon alone, without delta")
        if not 0 <= self.share <= 1:
            raise OptionError(f"the share of a quantile must be a number from 0 to 1, got {self.share!r}")
        if isinstance(self.candidates, bool) or not isinstance(self.candidates, int) or self.candidates < 2:
            raise OptionError(f"the candidates must be a whole number of at least 2, got {self.candidates!r}")

    @cached_property
    def _share(self) -> Fraction:
        return Fraction(self.share).limit_denominator(10**6)

    @cached_property
    def grid(self) -> Floats:
        """The values that can be the answer: the bounds, and the multiples of a round number between them."""
        low, high = map(Fraction, self._ends)
        step = _round_step((high - low) / (self.candidates - 1))
        if self.whole:
            step = max(step, Fraction(1))
        multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
        return np.unique([*self._ends, *(float(step * one) for one in multiples)])

    @cached_property
    def choice(self) -> NoisyMax:
        """The choice of one value."""
        return self._choice(self.epsilon / 2)

    @cached_property
    def end(self) -> NoisyMax:
        """The choice of one end of the interval."""
        return self._choice(self.epsilon / 4)

    def _choice(self, epsilon: float) -> NoisyMax:
        """Return a choice by how far off a rank is, in parts of a record: so all ranks are whole numbers.

        A record more adds 1 to some ranks, and the share to the rank that is looked for; another record adds 1
        to some ranks alone.
        """
        parts = self._share.denominator
        most = self._change(float(max(self._share, 1 - self._share) * parts), float(parts))
        return NoisyMax(epsilon=epsilon, sensitivity=most, relation=self.relation)

    @property
    def event(self) -> Event:
        """What the three choices cost together."""
        return Composed((self.choice.event, self.end.event, self.end.event))

    @property
    def rank_error(self) -> int:
        """How many records the rank of an end is off at most, with the confidence for both ends of the interval."""
        apart = 2 * self.end.sensitivity / self._share.denominator / self.end.epsilon
        return math.ceil(apart * (math.log(len(self.grid) + 2) + math.log(2 / (1 - self.confidence))))

    def _each(self, records: Records, source: Source) -> Answers:
        held = self._held(records)
        order = np.argsort(held.group, kind="stable")
        starts = np.searchsorted(held.group[order], np.arange(records.groups + 1))
        # A number counts as the candidate next to it: for the ends, as the one below and as the one above.
        below = np.searchsorted(self.grid, held.value, "right") - 1
        above = np.searchsorted(self.grid, held.value, "left")
        nearest = np.where(held.value - self.grid[below] <= self.grid[above] - held.value, below, above)
        found = np.empty((3, records.groups))
        for group in range(records.groups):
            own = order[starts[group] : starts[group + 1]]
            for part, (choice, places, shift) in enumerate(
                (
                    (self.choice, nearest, 0),
                    (self.end, below, -self.rank_error),
                    (self.end, above, self.rank_error),
                )
            ):
                found[part, group] = self._chosen(choice, places[own], held.count[own], shift, source)
        value, low, high = found
        return Answers(value, np.minimum(low, value), np.maximum(high, value))

    def _chosen(
        self, choice: NoisyMax, places: NDArray[np.int64], counts: NDArray[np.int64], shift: int, source: Source
    ) -> float:
        """Return the candidate whose rank, among numbers that are candidates all, is the share of them and a shift."""
        low, high = self._ends
        each = np.zeros(len(self.grid), dtype=np.int64)
        np.add.at(each, places, counts)
        per = self._share.denominator
        until = np.concatenate([[0], np.cumsum(each)]) * per
        everybody = int(until[-1])
        # A candidate is right if no more than the share lies below it, and no less at or below it. Before the
        # first and after the last there is a bound that is right when the share, moved, lies beyond all numbers.
        below = np.concatenate([[-_BEYOND], until[:-1], [everybody]])
        upto = np.concatenate([[0], until[1:], [_BEYOND]])
        target = self._share.numerator * (everybody // per) + shift * per
        off = np.maximum(0, np.maximum(below - target, target - upto))
        return float(np.concatenate([[low], self.grid, [high]])[choice.choose(-off, source)])


@dataclass(frozen=True, kw_only=True)
class Extreme(Quantile):
    """The smallest (share 0) or the largest (share 1) number that noise lets one see.

    The very smallest number is one person's own, and no private answer is near it for certain. So a candidate is
    chosen that `rank_error` records are meant to lie at or below, just enough that, with the confidence, at least one
    does. The interval reaches from the bound to that candidate: nothing closer to the bound can be ruled out, since a
    single record could be there. With fewer records than that the answer is the other bound, and says nothing.

    Examples
    --------
    >>> smallest = Extreme(epsilon=1.0, bounds=(0, 100), share=0, candidates=101)
    >>> smallest.rank_error
    16
    >>> answer = smallest.answer(np.arange(20, 100).repeat(50))
    >>> answer.low, 20 <= answer.value <= 22
    (0.0, True)
    """

    share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share not in (0, 1):
            raise OptionError(f"the share of an extreme must be 0 or 1, got {self.share!r}")

    @cached_property
    def choice(self) -> NoisyMax:
        """The choice of the value, with the whole epsilon."""
        return self._choice(self.epsilon)

    @property
    def event(self) -> Event:
        """What the choice costs."""
        return self.choice.event

    @property
    def rank_error(self) -> int:
        """How many records are meant to lie beyond the answer; with the confidence, one to twice as many do."""
        apart = 2 * self.choice.sensitivity / self.choice.epsilon
        return math.floor(apart * (math.log(len(self.grid) + 2) - math.log1p(-self.confidence))) + 1

    def _each(self, records: Records, source: Source) -> Answers:
        held = self._held(records)
        smallest = self.share == 0
        # Each number counts as the candidate on its inner side, so that the answer is never beyond it.
        places = (
            np.searchsorted(self.grid, held.value, "left")
            if smallest
            else np.searchsorted(self.grid, held.value, "right") - 1
        )
        shift = self.rank_error if smallest else -self.rank_error
        order = np.argsort(held.group, kind="stable")
        starts = np.searchsorted(held.group[order], np.arange(records.groups + 1))
        value = np.empty(records.groups)
        for group in range(records.groups):
            own = order[starts[group] : starts[group + 1]]
            value[group] = self._chosen(self.choice, places[own], held.count[own], shift, source)
        low, high = (np.full(records.groups, end) for end in self._ends)
        return Answers(value, low, value.copy()) if smallest else Answers(value, value.copy(), high)


def _round_step(least: Fraction) -> Fraction:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below a number.

    Examples
    --------
    >>> _round_step(Fraction(3, 100))
    Fraction(1, 20)
    """
    power = Fraction(10) ** (len(str(least.numerator)) - len(str(least.denominator)) - 1)  # at most the number
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10


def _codes(values: Iterable[Hashable], domain: tuple[Hashable, ...]) -> Any:
    place = {value: code for code, value in enumerate(domain)}
    return np.array([place.get(value, -1) for value in values], dtype=np.int64)


def _binned(values: Iterable[Any], edges: tuple[float, ...]) -> list[Any]:
    """Return the bin of each number, or None for one that is in none."""
    bins = [*pairwise(edges), None]
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    place = np.searchsorted(edges, numbers, "right") - 1
    place[numbers == edges[-1]] = len(edges) - 2
    place[(place < 0) | (place > len(edges) - 2) | np.isnan(numbers)] = -1
    return [bins[at] for at in place]

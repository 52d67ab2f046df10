"""Selection mechanisms: one candidate by its noisy score, the first counts above a threshold, or a quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import BoundedRange, Composed, Event, Exponential, PureEvent, Relation
from sfumato.budget.mechanisms.additive import Mechanism
from sfumato.budget.mechanisms.statistics import Answers, OfNumbers, Records, nested
from sfumato.budget.noise import Floats, Source
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError, SfumatoError, one_of

__all__ = ["ExponentialMechanism", "Extreme", "NoisyMax", "Quantile", "SparseVector"]

_BEYOND = 2**61  # a rank that no table reaches
_TRIES = 4096  # candidates drawn at a time


@dataclass(frozen=True, kw_only=True)
class _Choice(Mechanism):
    """The selection of a candidate by scores that one record changes by at most the sensitivity."""

    epsilon: float
    sensitivity: float = 1.0
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        real("the sensitivity", self.sensitivity, above=0)

    @property
    def event(self) -> Event:
        """The cost of the selection, independent of the number of candidates."""
        return Exponential(self.epsilon, self.relation)

    def _accept(self, scores: Floats, tried: Any, source: Source) -> Any:
        """Accept each drawn candidate with probability exp(-epsilon (best - score) / (2 sensitivity))."""
        best = float(scores.max())
        rate = Fraction(self.epsilon) / (2 * Fraction(self.sensitivity))
        with np.errstate(over="ignore"):  # a score too far below the best is never accepted
            exponent = np.minimum((best - scores[tried]) * float(rate), 1e300)
        return source.bernoulli_exp(exponent, lambda at: (Fraction(best) - Fraction(float(scores[tried[at]]))) * rate)


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(_Choice):
    """Select a candidate with a probability that grows with its score (McSherry and Talwar 2007).

    The probability is exactly proportional to ``exp(epsilon * score / (2 * sensitivity))``.

    Examples
    --------
    >>> mechanism = ExponentialMechanism(epsilon=50.0)
    >>> mechanism.choose([3.0, 90.0, 5.0])
    1
    >>> str(mechanism.event)
    'a choice by the exponential mechanism of epsilon 50'
    """

    @property
    def event(self) -> Event:
        """The cost of the selection, independent of the number of candidates."""
        return BoundedRange(self.epsilon, self.relation)

    def choose(self, scores: Any, source: Source | None = None) -> int:
        """Return the place of the candidate that was chosen."""
        known, chosen = _scores(scores), Source() if source is None else source
        while True:  # rejection sampling from uniform candidates
            tried = chosen.below(len(known), min(_TRIES, 4 * len(known)))
            kept = np.flatnonzero(self._accept(known, tried, chosen))
            if len(kept):
                return int(tried[kept[0]])


@dataclass(frozen=True, kw_only=True)
class NoisyMax(_Choice):
    """Select the candidate with the largest noisy score (permute-and-flip, McKenna and Sheldon 2020).

    This is equivalent to the maximum of the scores with exponential noise (Ding et al. 2021). Alone, it
    costs the same as the exponential mechanism, and its expected score is never worse; many choices of the exponential
    mechanism cost less.

    Examples
    --------
    >>> NoisyMax(epsilon=50.0).choose([3.0, 90.0, 5.0])
    1
    """

    def choose(self, scores: Any, source: Source | None = None) -> int:
        """Return the place of the candidate that was chosen."""
        known, chosen = _scores(scores), Source() if source is None else source
        order = chosen.permutation(len(known))
        kept = np.flatnonzero(self._accept(known, order, chosen))
        return int(order[kept[0]])  # the best candidate is always accepted


@dataclass(kw_only=True)
class SparseVector(Mechanism):
    """Compare one count after another with a threshold, and pay only for the answers "above".

    The whole epsilon is charged at the start. After the given number of answers "above", further
    comparisons raise an error (Lyu, Su and Li 2017, algorithm 1, with a third of epsilon for the threshold).

    Parameters
    ----------
    threshold : int
    epsilon : float
    positives : int
        The number of answers "above" before it stops.
    sensitivity : int
        The largest change of a count by one record.

    Examples
    --------
    >>> monitor = SparseVector(threshold=100, epsilon=100.0)
    >>> [monitor.above(count) for count in (3, 50, 180)]
    [False, False, True]
    >>> monitor.above(4)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: all paid answers "above" have been given: 1 (create a new SparseVector)
    """

    threshold: int
    epsilon: float
    positives: int = 1
    sensitivity: int = 1
    relation: Relation = Relation.ADD_REMOVE
    source: Source = field(default_factory=Source, repr=False)
    _left: int = field(init=False, repr=False)
    _noisy: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.relation = one_of(Relation, self.relation, "the relation")
        real("epsilon", self.epsilon, above=0)
        self.positives = whole("positives", self.positives)
        self.sensitivity = whole("sensitivity", self.sensitivity)
        self._left = self.positives
        scale = math.nextafter(3 * self.sensitivity / self.epsilon, math.inf)
        self._noisy = int(self.threshold) + int(self.source.discrete_laplace(scale, 1)[0])

    @property
    def event(self) -> Event:
        """The cost of all answers together."""
        return PureEvent(self.epsilon, self.relation)

    def above(self, count: int) -> bool:
        """Return whether the noisy count is at or above the noisy threshold."""
        if not self._left:
            raise OptionError(
                f'all paid answers "above" have been given: {self.positives:,}', hint="create a new SparseVector"
            )
        if not isinstance(count, int | np.integer):
            raise OptionError("a count must be a whole number")
        scale = math.nextafter(3 * self.positives * self.sensitivity / self.epsilon, math.inf)  # 2 c s / (2/3 epsilon)
        is_above = int(count) + int(self.source.discrete_laplace(scale, 1)[0]) >= self._noisy
        self._left -= is_above
        return is_above


def _scores(scores: Any) -> Floats:
    known: Floats = np.asarray(scores, dtype=np.float64).reshape(-1)
    if not len(known):
        raise OptionError("there must be at least one candidate to choose from")
    if not np.isfinite(known).all():
        raise SfumatoError("the scores of candidates must be finite numbers")
    return known


@dataclass(frozen=True, kw_only=True)
class Quantile(OfNumbers):
    """A quantile of numbers between public bounds, selected among evenly spaced candidates (Smith 2011).

    Half of epsilon selects the value, and a quarter each selects the ends of the interval, slightly below and above.
    The interval contains a number such that at most the share of the numbers is below it, and at least that
    share is at or below it.

    Parameters
    ----------
    share : float
        The fraction of numbers below the quantile; 0.5 is the median.
    candidates : int
        The maximum number of candidates apart from the bounds; they are multiples of a round number.
    whole : bool
        Whether all candidates apart from the bounds are whole numbers. It is declared, not read from the data.

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
            raise OptionError("a quantile has an epsilon but no delta")
        real("the share of a quantile", self.share, least=0, most=1)
        object.__setattr__(self, "candidates", whole("the number of candidates", self.candidates, least=2))

    @cached_property
    def _share(self) -> Fraction:
        return Fraction(self.share).limit_denominator(10**6)

    @cached_property
    def grid(self) -> Floats:
        """The candidates: the bounds, and the multiples of a round number between them."""
        low, high = map(Fraction, self._ends)
        step = _round_step((high - low) / (self.candidates - 1))
        if self.whole:
            step = max(step, Fraction(1))
        multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
        return np.unique([*self._ends, *(float(step * one) for one in multiples)])

    @cached_property
    def choice(self) -> NoisyMax:
        """The selection of the value."""
        return self._choice(self.epsilon / 2)

    @cached_property
    def end(self) -> NoisyMax:
        """The selection of one end of the interval."""
        return self._choice(self.epsilon / 4)

    def _choice(self, epsilon: float) -> NoisyMax:
        """Return a selection by the distance of ranks, scaled by the denominator of the share to whole numbers.

        Adding a record adds 1 to some ranks and the share to the target rank; replacing a record changes some
        ranks by 1 and leaves the target.
        """
        parts = self._share.denominator
        most = self._change(float(max(self._share, 1 - self._share) * parts), float(parts))
        return NoisyMax(epsilon=epsilon, sensitivity=most, relation=self.relation)

    @property
    def event(self) -> Event:
        """The cost of the three selections together."""
        return Composed((self.choice.event, self.end.event, self.end.event))

    @property
    def rank_error(self) -> int:
        """The largest rank error of an end of the interval, in records, with the confidence for both ends."""
        apart = 2 * self.end.sensitivity / self._share.denominator / self.end.epsilon
        return math.ceil(apart * (math.log(len(self.grid) + 2) + math.log(2 / (1 - self.confidence))))

    def _each(self, records: Records, source: Source) -> Answers:
        clipped = self._clipped(records)
        order = np.argsort(clipped.group, kind="stable")
        starts = np.searchsorted(clipped.group[order], np.arange(records.groups + 1))
        # A number counts as the nearest candidate; for the ends, as the one below and the one above.
        below = np.searchsorted(self.grid, clipped.value, "right") - 1
        above = np.searchsorted(self.grid, clipped.value, "left")
        nearest = np.where(clipped.value - self.grid[below] <= self.grid[above] - clipped.value, below, above)
        selected = np.empty((3, records.groups))
        for group in range(records.groups):
            own = order[starts[group] : starts[group + 1]]
            for part, (choice, places, shift) in enumerate(
                (
                    (self.choice, nearest, 0),
                    (self.end, below, -self.rank_error),
                    (self.end, above, self.rank_error),
                )
            ):
                selected[part, group] = self._select(choice, places[own], clipped.count[own], shift, source)
        value, low, high = selected
        return Answers(value, np.minimum(low, value), np.maximum(high, value))

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the quantile and the ends of its interval are candidates, in order."""
        candidates = [np.isin(one, self.grid) for one in (answers.value, answers.low, answers.high)]
        return np.asarray(nested(answers, *self._ends) & np.all(candidates, axis=0))

    def _select(
        self, choice: NoisyMax, places: NDArray[np.int64], counts: NDArray[np.int64], shift: int, source: Source
    ) -> float:
        """Select the candidate whose rank is near the share of the numbers plus a shift, in records."""
        low, high = self._ends
        each = np.zeros(len(self.grid), dtype=np.int64)
        np.add.at(each, places, counts)
        per = self._share.denominator
        until = np.concatenate([[0], np.cumsum(each)]) * per
        everybody = int(until[-1])
        # A candidate is exact if at most the target rank is below it, and at least that rank at or below it. An extra
        # bound before the first and after the last candidate is exact if the shifted target is beyond all numbers.
        below = np.concatenate([[-_BEYOND], until[:-1], [everybody]])
        upto = np.concatenate([[0], until[1:], [_BEYOND]])
        target = self._share.numerator * (everybody // per) + shift * per
        off = np.maximum(0, np.maximum(below - target, target - upto))
        return float(np.concatenate([[low], self.grid, [high]])[choice.choose(-off, source)])


@dataclass(frozen=True, kw_only=True)
class Extreme(Quantile):
    """A private approximation of the smallest (share 0) or the largest (share 1) number.

    The exact minimum is the value of one person, so no private answer can be reliably close to it. Instead, the
    answer is a candidate with about `rank_error` records at or below it, just enough that at least one is
    there with the given confidence. The interval extends from the bound to that candidate, because a single record
    could be anywhere in it. With fewer records than that, the answer is the other bound and carries no information.
    The maximum mirrors this.

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
        """The selection of the value, with the whole epsilon."""
        return self._choice(self.epsilon)

    @property
    def event(self) -> Event:
        """The cost of the selection."""
        return self.choice.event

    @property
    def rank_error(self) -> int:
        """The target number of records beyond the answer; with the confidence it is between 1 and twice this."""
        apart = 2 * self.choice.sensitivity / self.choice.epsilon
        return math.floor(apart * (math.log(len(self.grid) + 2) - math.log1p(-self.confidence))) + 1

    def _each(self, records: Records, source: Source) -> Answers:
        clipped = self._clipped(records)
        smallest = self.share == 0
        # Each number counts as the candidate on its inner side, so that the answer is never beyond it.
        places = (
            np.searchsorted(self.grid, clipped.value, "left")
            if smallest
            else np.searchsorted(self.grid, clipped.value, "right") - 1
        )
        shift = self.rank_error if smallest else -self.rank_error
        order = np.argsort(clipped.group, kind="stable")
        starts = np.searchsorted(clipped.group[order], np.arange(records.groups + 1))
        value = np.empty(records.groups)
        for group in range(records.groups):
            own = order[starts[group] : starts[group + 1]]
            value[group] = self._select(self.choice, places[own], clipped.count[own], shift, source)
        low, high = (np.full(records.groups, end) for end in self._ends)
        return Answers(value, low, value.copy()) if smallest else Answers(value, value.copy(), high)

    def agrees(self, answers: Answers) -> NDArray[np.bool_]:
        """Return for every group whether the answer is a candidate, and its interval extends to the bound."""
        low, high = self._ends
        ends = (low, answers.value) if self.share == 0 else (answers.value, high)
        return np.asarray(np.isin(answers.value, self.grid) & (answers.low == ends[0]) & (answers.high == ends[1]))


def _round_step(least: Fraction) -> Fraction:
    """Return the smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`.

    Examples
    --------
    >>> _round_step(Fraction(3, 100))
    Fraction(1, 20)
    """
    power = Fraction(10) ** (len(str(least.numerator)) - len(str(least.denominator)) - 1)  # at most `least`
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10

"""Choosing with noise: one of many by its score, or the first answers above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.budget.events import Event, Exponential, PureEvent, Relation
from sfumato.budget.mechanisms.additive import Mechanism, positive
from sfumato.budget.noise import Floats, Source
from sfumato.errors import OptionError, SfumatoError, one_of

__all__ = ["ExponentialMechanism", "NoisyMax", "SparseVector"]

_TRIES = 4096  # how many candidates are tried at once


@dataclass(frozen=True, kw_only=True)
class _Choice(Mechanism):
    """The choice of a candidate by scores that one record changes by at most the sensitivity."""

    epsilon: float
    sensitivity: float = 1.0
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        positive("epsilon", self.epsilon)
        positive("the sensitivity", self.sensitivity)

    @property
    def event(self) -> Event:
        """What the choice costs, however many candidates there are."""
        return Exponential(self.epsilon, self.relation)

    def _survivors(self, scores: Floats, tried: Any, source: Source) -> Any:
        """Say of tried candidates whether they survive: exp(-epsilon (best - score) / (2 sensitivity))."""
        best = float(scores.max())
        rate = Fraction(self.epsilon) / (2 * Fraction(self.sensitivity))
        with np.errstate(over="ignore"):  # what is too far behind to be a float does not survive
            exponent = np.minimum((best - scores[tried]) * float(rate), 1e300)
        return source.survives(exponent, lambda at: (Fraction(best) - Fraction(float(scores[tried[at]]))) * rate)


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(_Choice):
    """Choose a candidate with a probability that grows with its score (McSherry and Talwar 2007).

    The probability is proportional to ``exp(epsilon * score / (2 * sensitivity))``, exactly.

    Examples
    --------
    >>> mechanism = ExponentialMechanism(epsilon=50.0)
    >>> mechanism.choose([3.0, 90.0, 5.0])
    1
    >>> str(mechanism.event)
    'a noisy choice of epsilon 50'
    """

    def choose(self, scores: Any, source: Source | None = None) -> int:
        """Return the place of the candidate that was chosen."""
        known, chosen = _scores(scores), Source() if source is None else source
        while True:  # candidates are tried evenly and kept by their score: that is the distribution
            tried = chosen.below(len(known), min(_TRIES, 4 * len(known)))
            kept = np.flatnonzero(self._survivors(known, tried, chosen))
            if len(kept):
                return int(tried[kept[0]])


@dataclass(frozen=True, kw_only=True)
class NoisyMax(_Choice):
    """Report the candidate with the largest score after noise (permute-and-flip, McKenna and Sheldon 2020).

    It is the same as the largest of the scores with exponential noise added (Ding et al. 2021),
    costs what the exponential mechanism costs, and is never further from the best score on average.

    Examples
    --------
    >>> NoisyMax(epsilon=50.0).choose([3.0, 90.0, 5.0])
    1
    """

    def choose(self, scores: Any, source: Source | None = None) -> int:
        """Return the place of the candidate that was chosen."""
        known, chosen = _scores(scores), Source() if source is None else source
        order = chosen.shuffled(len(known))
        kept = np.flatnonzero(self._survivors(known, order, chosen))
        return int(order[kept[0]])  # the best one survives for certain


@dataclass(kw_only=True)
class SparseVector(Mechanism):
    """Say of one count after the other whether it is above a threshold, and pay only for those that are.

    The whole is paid for at the start; after the number of answers "above" that was paid for, it
    refuses to go on (Lyu, Su and Li 2017, algorithm 1: a third of epsilon for the threshold).

    Parameters
    ----------
    threshold : int
    epsilon : float
    positives : int
        How many times it can say "above".
    sensitivity : int
        The most that one record changes a count.

    Examples
    --------
    >>> monitor = SparseVector(threshold=100, epsilon=100.0)
    >>> [monitor.above(count) for count in (3, 50, 180)]
    [False, False, True]
    >>> monitor.above(4)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: the 1 answer "above" that was paid for has been given (buy a new one)
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
        positive("epsilon", self.epsilon)
        for name, value in (("positives", self.positives), ("sensitivity", self.sensitivity)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
        self._left = self.positives
        scale = math.nextafter(3 * self.sensitivity / self.epsilon, math.inf)
        self._noisy = int(self.threshold) + int(self.source.discrete_laplace(scale, 1)[0])

    @property
    def event(self) -> Event:
        """What all the answers cost together."""
        return PureEvent(self.epsilon, self.relation)

    def above(self, count: int) -> bool:
        """Say whether a count, with noise, is at or above the threshold, with noise."""
        if not self._left:
            answers = "answer" if self.positives == 1 else "answers"
            raise OptionError(
                f'the {self.positives} {answers} "above" that was paid for has been given', hint="buy a new one"
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

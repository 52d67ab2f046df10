"""Selection mechanisms: one candidate by its noisy score, or the first counts above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.budget.events import Event, Exponential, PureEvent, Relation
from sfumato.budget.mechanisms.additive import Mechanism
from sfumato.budget.noise import Floats, Source
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError, SfumatoError, one_of

__all__ = ["ExponentialMechanism", "NoisyMax", "SparseVector"]

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
    'a noisy choice of epsilon 50'
    """

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

    This is equivalent to the maximum of the scores with exponential noise (Ding et al. 2021). It costs the same as
    the exponential mechanism, and its expected score is never worse.

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

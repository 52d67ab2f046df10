"""What right guesses about canaries prove about epsilon.

*One run* (Steinke, Nasr and Jagielski 2023): each of m canaries is included by a fair coin, the mechanism runs once,
and the auditor guesses some of the coins. A private mechanism allows few right guesses, so many of them refute its
claim. Mahloujifar, Melis and Chaudhuri (2024) test a whole trade-off curve in this way, not only one epsilon and
delta: `refutes`. *Many runs*: one canary is included in half of them, and a threshold tells the two kinds of runs
apart (`Calls`).

How many guesses are made must be fixed before the scores are seen. The best of several numbers is valid only if they
share the error rate (`shared`).

The claim under test is always the curve that was claimed: an honest mechanism that is not Gaussian may well exceed the
Gaussian curve of the same epsilon and delta.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sfumato.attacks.statistics import CONFIDENCE
from sfumato.budget.accounting.pld import delta_upper_bounds, gaussian_strength
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError

__all__ = [
    "ApproximateCurve",
    "Calls",
    "Curve",
    "GaussianCurve",
    "Guesses",
    "JointCurve",
    "ProfileCurve",
    "curve_of",
    "fdp_epsilon",
    "fdp_gaussian_epsilon",
    "one_run_epsilon",
    "refutes",
    "shared",
]

Floats = NDArray[np.float64]

_LARGEST = 60.0  # no audit of a few million canaries proves more
_EXACT = 1e-6  # of the epsilons found
_LOSSES = np.concatenate([np.linspace(0, 2, 41), np.linspace(2.1, 20, 180)])  # at which a profile is evaluated


class Curve(ABC):
    """A claim of privacy as a trade-off between errors: how rarely an attacker can be wrong."""

    @abstractmethod
    def least_false(self, power: float) -> float:
        """Return the smallest false positive rate of any test of one record that has this true positive rate."""


@dataclass(frozen=True)
class GaussianCurve(Curve):
    """The curve of Gaussian noise, with its standard deviation in sensitivities.

    Examples
    --------
    >>> round(GaussianCurve(1.0).least_false(0.5), 4)
    0.1587
    """

    noise_multiplier: float

    def least_false(self, power: float) -> float:
        """Return the smallest false positive rate of a test with this power."""
        return float(special.ndtr(special.ndtri(power) - 1 / self.noise_multiplier))


@dataclass(frozen=True)
class ApproximateCurve(Curve):
    """The curve of an epsilon and a delta.

    Examples
    --------
    >>> round(ApproximateCurve(1.0, 0.0).least_false(0.5), 4)
    0.1839
    """

    epsilon: float
    delta: float

    def least_false(self, power: float) -> float:
        """Return the smallest false positive rate of a test with this power."""
        lost = math.exp(-min(self.epsilon, 700.0))
        return max(0.0, (power - self.delta) * lost, 1 - self.delta - (1 - power) / lost)


@dataclass(frozen=True, eq=False)
class ProfileCurve(Curve):
    """The curve of a privacy profile: a delta for each of many epsilons.

    Examples
    --------
    >>> from sfumato.budget import Laplace
    >>> round(curve_of([Laplace(2.0), Laplace(2.0)]).least_false(0.5), 3)
    0.258
    """

    epsilons: Floats
    deltas: Floats

    @cached_property
    def _lines(self) -> tuple[Floats, Floats]:
        """The offsets and slopes of straight lines, all below the curve."""
        lost = np.exp(-self.epsilons)
        offsets = np.concatenate([[0.0], -self.deltas * lost, 1 - self.deltas - 1 / lost])
        return offsets, np.concatenate([[0.0], lost, 1 / lost])

    def least_false(self, power: float) -> float:
        """Return the smallest false positive rate of a test with this power."""
        offsets, slopes = self._lines
        return float((offsets + slopes * power).max())


@dataclass(frozen=True)
class JointCurve(Curve):
    """The curve of several claims that all hold.

    Examples
    --------
    >>> both = JointCurve((GaussianCurve(1.0), ApproximateCurve(0.5, 0.0)))
    >>> round(both.least_false(0.5), 4)
    0.3033
    """

    curves: tuple[Curve, ...]

    def least_false(self, power: float) -> float:
        """Return the smallest false positive rate of a test with this power."""
        return max(curve.least_false(power) for curve in self.curves)


def curve_of(claimed: Curve | DifferentialPrivacy | Event | Iterable[Event]) -> Curve:
    """Return the curve of a guarantee, or of events that were composed (by their privacy loss distribution).

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> curve_of(DifferentialPrivacy(1.0, 1e-5))
    ApproximateCurve(epsilon=1.0, delta=1e-05)
    >>> curve_of(Gaussian(2.0))
    GaussianCurve(noise_multiplier=2.0)
    """
    if isinstance(claimed, Curve):
        return claimed
    if isinstance(claimed, DifferentialPrivacy):
        return ApproximateCurve(claimed.epsilon, claimed.delta)
    events = (claimed,) if isinstance(claimed, Event) else tuple(claimed)
    if not events or not all(isinstance(event, Event) for event in events):
        raise OptionError("a claim is a guarantee, a curve or events, and there must be at least one")
    if (strength := gaussian_strength(events)) is not None:
        return GaussianCurve(1 / strength)
    return ProfileCurve(_LOSSES, delta_upper_bounds(events, _LOSSES))


# --- one run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guesses:
    """How many canaries there were, about how many a guess was made, and how many guesses were right.

    Examples
    --------
    >>> included = np.array([True, True, False, False, True, False])
    >>> Guesses.of(np.array([9.0, 8.0, 1.0, 7.0, 5.0, 2.0]), included, high=2, low=2)
    Guesses(canaries=6, made=4, right=4)
    """

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        whole("the number of canaries", self.canaries)
        whole("the number of guesses", self.made, most=self.canaries)
        whole("the number of right guesses", self.right, least=0, most=self.made)

    @classmethod
    def of(cls, scores: Any, included: Any, *, high: int, low: int) -> Guesses:
        """Guess that the canaries with the highest scores were included, and those with the lowest were not."""
        order = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable")
        inside = np.asarray(included, dtype=bool)[order]
        whole("the number of guesses", high + low, most=len(inside))
        right = int(inside[len(inside) - high :].sum()) + low - int(inside[:low].sum())
        return cls(len(inside), high + low, right)

    @property
    def best(self) -> Guesses:
        """The same guesses if all were right."""
        return Guesses(self.canaries, self.made, self.made)


def one_run_epsilon(guesses: Guesses, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the lower bound on epsilon of Steinke, Nasr and Jagielski (2023).

    Examples
    --------
    >>> round(one_run_epsilon(Guesses(1000, 600, 600), 1e-5), 4)
    5.2704
    """
    m, r, v = guesses.canaries, guesses.made, guesses.right
    before = np.arange(1, v + 1)

    def chance(epsilon: float) -> float:
        """Bound the probability of this many right guesses."""
        right = float(special.expit(epsilon))
        at_least = float(special.betainc(v, r - v + 1, right)) if v else 1.0
        below = v - before
        reached = np.where(below > 0, special.betainc(np.maximum(below, 1), r - below + 1, right), 1.0)
        slightly_less = float(((reached - at_least) / before).max(initial=0.0))
        return min(1.0, at_least + 2 * m * delta * slightly_less)

    return _largest(lambda epsilon: chance(epsilon) < 1 - confidence)


def refutes(curve: Curve, guesses: Guesses, confidence: float = CONFIDENCE) -> bool:
    """Return whether so many right guesses refute a curve (Mahloujifar, Melis and Chaudhuri 2024, algorithm 3).

    Examples
    --------
    >>> refutes(GaussianCurve(1.0), Guesses(1000, 300, 299)), refutes(GaussianCurve(1.0), Guesses(1000, 300, 200))
    (True, False)
    """
    m, made, right = guesses.canaries, guesses.made, guesses.right
    error = 1 - confidence
    hit, missed = error * right / m, error * (made - right) / m
    for at in range(right - 1, -1, -1):
        more = max(missed, curve.least_false(hit))
        if more == missed:  # then neither changes any more
            break
        hit, missed = min(1.0, hit + at / (made - at) * (more - missed)), more
    return hit + missed > made / m


@lru_cache(maxsize=4096)
def fdp_epsilon(guesses: Guesses, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest epsilon that the guesses refute at a delta, whatever the mechanism.

    If it exceeds the epsilon of a claimed curve, then `refutes` rejects that curve too.

    Examples
    --------
    >>> round(fdp_epsilon(Guesses(1000, 600, 600), 1e-5), 4)
    5.2971
    """
    return _largest(lambda epsilon: refutes(ApproximateCurve(epsilon, delta), guesses, confidence))


@lru_cache(maxsize=4096)
def fdp_gaussian_epsilon(guesses: Guesses, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the epsilon at delta of the largest Gaussian noise that the guesses refute.

    It is a lower bound on epsilon for Gaussian noise only, and an estimate for other mechanisms.

    Examples
    --------
    >>> round(fdp_gaussian_epsilon(Guesses(100_000, 1500, 1429), 1e-5), 3)
    3.299
    """
    strength = _largest(lambda mu: refutes(GaussianCurve(1 / mu), guesses, confidence))
    return _gaussian_epsilon(strength, delta)


def _gaussian_epsilon(strength: float, delta: float) -> float:
    """Return the epsilon of Gaussian noise at a delta; the strength is one over the noise multiplier."""
    if strength <= 0:
        return 0.0

    def lost(epsilon: float) -> float:
        shift = epsilon / strength
        less = float(special.log_ndtr(-strength / 2 - shift))
        return float(special.ndtr(strength / 2 - shift)) - math.exp(epsilon + less)

    return _largest(lambda epsilon: lost(epsilon) > delta, most=16 * _LARGEST)


def shared(confidence: float, tries: int) -> float:
    """Return the confidence of each of several tries of which the best is taken (a union bound).

    Examples
    --------
    >>> round(shared(0.95, 5), 3)
    0.99
    """
    return 1 - (1 - real("the confidence", confidence, above=0, below=1)) / whole("the number of tries", tries)


# --- many runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """How many runs with a canary, and how many without, were called runs with it.

    Attributes
    ----------
    hits, runs_with : runs with the canary that were called so, and all
    alarms, runs_without : runs without the canary that were called runs with it, and all

    Examples
    --------
    >>> calls = Calls(480, 500, 100, 500)
    >>> round(calls.epsilon(1e-5), 3)
    2.524
    >>> calls.refutes(GaussianCurve(1.0)), calls.refutes(GaussianCurve(0.25))
    (True, False)
    """

    hits: int
    runs_with: int
    alarms: int
    runs_without: int

    def __post_init__(self) -> None:
        whole("the number of runs with the canary", self.runs_with)
        whole("the number of runs without the canary", self.runs_without)
        whole("the number of hits", self.hits, least=0, most=self.runs_with)
        whole("the number of false alarms", self.alarms, least=0, most=self.runs_without)

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return a lower bound on the true, and an upper bound on the false positive rate; both hold together."""
        tail = (1 - confidence) / 2
        missed = self.runs_with - self.hits
        low = float(special.betaincinv(self.hits, missed + 1, tail)) if self.hits else 0.0
        rest = self.runs_without - self.alarms
        high = float(special.betaincinv(self.alarms + 1, rest, 1 - tail)) if rest else 1.0
        return low, high

    def epsilon(self, delta: float, confidence: float = CONFIDENCE) -> float:
        """Return a lower bound on epsilon, from the Clopper-Pearson bounds of both rates."""
        power, false = self.bounds(confidence)
        inside = (power - delta) / false
        outside = (1 - false - delta) / (1 - power) if power < 1 else math.inf
        return max(0.0, *(math.log(one) for one in (inside, outside) if one > 0))

    def refutes(self, curve: Curve, confidence: float = CONFIDENCE) -> bool:
        """Return whether the rates refute a curve."""
        power, false = self.bounds(confidence)
        return false < curve.least_false(power)

    @property
    def best(self) -> Calls:
        """The same runs if all were called right."""
        return Calls(self.runs_with, self.runs_with, 0, self.runs_without)


def _largest(holds: Callable[[float], bool], *, most: float = _LARGEST) -> float:
    """Return the largest number up to which something holds; 0 if it never does."""
    low, high = 0.0, 1.0
    if not holds(_EXACT):
        return 0.0
    while holds(high):
        low, high = high, 2 * high
        if low > most:
            return most
    while high - low > _EXACT:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

"""Sums over records with Gaussian noise: the only access of the classical estimators to the data.

An estimator declares in advance which kinds of sums it needs, how often, and the share of the budget for each kind.
Each sum gets noise accordingly, and further sums raise an error. All sums together cost as much as a single sum with
one noise multiplier (the inverse squares of the multipliers add up), so one number is calibrated, whatever the
estimator does.

Sums are exact and noise is in whole numbers: a record's contribution is rounded to a grid (`on_grid`) on which up to
two million contributions add up without error in 64-bit floats, and the noise is a discrete Gaussian on a grid so fine
that it costs what a continuous one does (Canonne, Kamath and Steinke 2020).

`Descent` uses such sums as full-batch gradients, for additive models and logistic regression.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import BoundedRange, Event, Gaussian, Repeated
from sfumato.budget.mechanisms.selection import ExponentialMechanism
from sfumato.budget.noise import Source
from sfumato.budget.people import for_people

__all__ = ["Descent", "NoisySums", "Selection", "Share", "on_grid", "ridge_against", "softmax", "within"]

Floats = NDArray[np.float64]
T = TypeVar("T")

_GRID = 2.0**-16
_FINE = 30  # the grid of the noise is its standard deviation over 2**30,
_FINEST = 40  # but not finer than the norm over 2**40
_STEP, _MOMENTUM = 0.5, 0.8
_SPREAD = 32.0  # the scale of coefficients relative to noise; chosen like the defaults of the estimators


@dataclass(frozen=True)
class Share:
    """How often a kind of sum is needed, and the relative budget for all sums of this kind.

    A kind of access that is not a sum (steps of DP-SGD, choices) is a subclass with a `multiplier` and an `event` of
    its own, and takes place in `NoisySums.run`.
    """

    times: int
    worth: float

    bounds_people: ClassVar[bool] = False
    """Whether the access itself bounds what a person changes with all of their rows."""

    def multiplier(self, single: float, whole: float) -> float:
        """Return the noise multiplier of each access, such that all of this kind cost about their part of the budget.

        ``single`` is the multiplier of a single sum that costs as much as the whole budget, and ``whole`` is the worth
        of all kinds. Larger numbers must result from larger ones.
        """
        return single * math.sqrt(self.times * whole / self.worth)

    def event(self, multiplier: float) -> Event:
        """Return the event of all accesses of this kind, given the noise multiplier of each."""
        return Gaussian(multiplier) if self.times == 1 else Repeated(Gaussian(multiplier), self.times)


@dataclass(frozen=True)
class Selection(Share):
    """How many choices of the exponential mechanism are needed, and the relative budget for all of them.

    The multiplier of a choice is 1 over its epsilon. Many choices cost about as much as a sum if the squares of their
    epsilons add up to 3 over the square of its multiplier: the variance of the worst-case loss of a choice is a third
    of the squared epsilon.

    Examples
    --------
    >>> str(Selection(12, 0.25).event(Selection(12, 0.25).multiplier(single=2.0, whole=1.0)))
    '12 times: a choice by the exponential mechanism of epsilon 0.125'
    """

    def multiplier(self, single: float, whole: float) -> float:
        """Return 1 over the epsilon of each choice."""
        return super().multiplier(single, whole) / math.sqrt(3)

    def event(self, multiplier: float) -> Event:
        """Return the event of all choices, given 1 over the epsilon of each."""
        return Repeated(BoundedRange(1 / multiplier), self.times)


class NoisySums:
    """The noisy sums of one estimator.

    The multiplier is that of a single sum that would cost as much as all sums; 0 adds no noise. If a person has at most
    ``rows_per_person`` rows, noise that is as many times as large protects people: the events are then for a person.

    Examples
    --------
    >>> sums = NoisySums({"counts": Share(1, 0.2), "gradients": Share(10, 0.8)}, 2.0, Source())
    >>> [str(event) for event in sums.events][0]
    'Gaussian noise of scale 4.47214 on a sensitivity of 1'
    >>> round(sum(one.times / sums.multiplier_of(name) ** 2 for name, one in sums.shares.items()), 12)  # 1 / 2.0 ** 2
    0.25
    >>> sums("counts", np.array([500.0, 20.0]), norm=1.0).shape
    (2,)
    >>> print(*NoisySums({"counts": Share(1, 1.0)}, 2.0, Source(), rows_per_person=3).events)
    Gaussian noise of scale 6 on a sensitivity of 3 per person
    """

    def __init__(
        self, shares: Mapping[str, Share], multiplier: float, source: Source, *, rows_per_person: int | None = None
    ) -> None:
        self.shares, self.multiplier, self._source = dict(shares), multiplier, source
        self.rows_per_person = rows_per_person
        self._used = Counter[str]()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all sums; none without noise."""
        if self.multiplier == 0:
            return ()
        events = {name: one.event(self.multiplier_of(name)) for name, one in self.shares.items()}
        if self.rows_per_person is None:
            return tuple(events.values())
        return tuple(for_people(event, self._rows(name)) for name, event in events.items())

    def multiplier_of(self, name: str) -> float:
        """Return the standard deviation of the noise on a kind of sum, for rows of norm 1."""
        if self.multiplier == 0:
            return 0.0
        whole = math.fsum(one.worth for one in self.shares.values())
        return self._rows(name) * self.shares[name].multiplier(self.multiplier, whole)

    def _rows(self, name: str) -> int:
        """Return how many rows of a person enter an access of this kind."""
        return 1 if self.shares[name].bounds_people else self.rows_per_person or 1

    def deviation_of(self, name: str, norm: float) -> float:
        """Return the standard deviation of the noise on every number of a kind of sum."""
        return self.multiplier_of(name) * norm

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        """Return sums with noise.

        Parameters
        ----------
        name : str
            The kind of sum.
        sums : array
            The sum of one array per record, each of at most this Euclidean norm.
        norm : float
            A constant, or computed from released values; never from the data.
        """
        self._use(name, 1)
        exact = np.asarray(sums, dtype=np.float64)
        if self.multiplier == 0 or exact.size == 0:
            return exact.copy()
        multiplier = self.multiplier_of(name)
        step = 2.0 ** math.floor(max(math.log2(multiplier * norm) - _FINE, math.log2(norm) - _FINEST))
        # Rounding to the grid may move each number by half a step, in either of two neighbouring tables.
        most = norm + math.sqrt(exact.size) * step
        noise = self._source.discrete_gaussian(multiplier * most / step, exact.size)
        steps = np.rint(exact / step).astype(np.int64) + noise.reshape(exact.shape)
        noisy: Floats = steps.astype(np.float64) * step
        return noisy

    def run(self, name: str, mechanism: Callable[[float, Source], T], times: int = 1) -> T:
        """Run a mechanism that is not a sum, and return its result.

        Parameters
        ----------
        name : str
            The kind of access.
        mechanism : callable
            Gets the noise multiplier of each access (0 without noise) and the source of all its randomness. What it
            returns must be as private as the event of the share says.
        times : int
            How many of the accesses that were paid for it makes.
        """
        self._use(name, times)
        return mechanism(self.multiplier_of(name), self._source)

    def choose(self, name: str, scores: Any, sensitivity: float) -> int:
        """Return the place of a candidate with a high score, by the exponential mechanism.

        The kind of access is a `Selection`. One record changes each score by at most the sensitivity, which is public,
        as are the candidates.

        Examples
        --------
        >>> NoisySums({"pairs": Selection(1, 1.0)}, 0.01, Source()).choose("pairs", [3.0, 90.0, 5.0], 1.0)
        1
        """

        def chosen(multiplier: float, source: Source) -> int:
            if multiplier == 0:
                return int(np.argmax(scores))
            return ExponentialMechanism(epsilon=1 / multiplier, sensitivity=sensitivity).choose(scores, source)

        return self.run(name, chosen)

    def _use(self, name: str, times: int) -> None:
        self._used[name] += times
        if self._used[name] > self.shares[name].times:
            raise RuntimeError(f"'{name}' was needed more often than it was paid for: {self.shares[name].times} times")


def on_grid(values: Any) -> Floats:
    """Round numbers towards zero, to a grid on which their products add up exactly.

    Examples
    --------
    >>> float(on_grid(-0.1))
    -0.0999908447265625
    """
    return np.trunc(np.asarray(values, dtype=np.float64) / _GRID) * _GRID


def within(rows: Any, norm: float) -> Floats:
    """Clip each row to a Euclidean norm.

    Examples
    --------
    >>> np.linalg.norm(within([[3.0, 4.0], [0.3, 0.4]], 1.0), axis=1) <= [1.0, 0.5]
    array([ True,  True])
    """
    given = np.asarray(rows, dtype=np.float64)
    sizes = np.sqrt(np.square(given).sum(axis=1, keepdims=True))
    # The factor 1 - 1e-9 keeps rounding from making a row longer than the norm.
    return on_grid(np.where(sizes > norm, given * (norm * (1 - 1e-9) / np.maximum(sizes, 1e-300)), given))


class Descent:
    """Gradient descent with momentum, scaled by the curvature of each coefficient, and the average of its steps.

    The rounds share a budget, so each is noisier the more there are. The noise averages out again in the mean, which
    gives later rounds more weight (Polyak and Juditsky 1992).

    Curvature (of the loss of all records) and ridge penalty have a number for each coefficient.

    Examples
    --------
    >>> descent = Descent(np.zeros(1), curvature=np.array([100.0]), ridge=np.array([1.0]))
    >>> for _ in range(200):
    ...     descent.step(100 * (3 - descent.at))
    >>> round(descent.at.item(), 3), round(descent.mean.item(), 1)  # the ridge shrinks 3 by one percent
    (2.97, 3.0)
    """

    def __init__(self, start: Floats, curvature: Floats, ridge: Floats) -> None:
        self.at, self.mean = start, start
        self._curvature, self._ridge = curvature, ridge
        self._speed, self._turn = np.zeros_like(start), 0

    def step(self, pull: Floats) -> None:
        """Take a step, given the noisy sum of the records' negative gradients."""
        self._turn += 1
        wanted = (pull - self._ridge * self.at) / (self._curvature + self._ridge)
        self._speed = _MOMENTUM * self._speed + (1 - _MOMENTUM) * wanted
        self.at = self.at + _STEP * self._speed
        self.mean = self.mean + 2 / (self._turn + 1) * (self.at - self.mean)


def ridge_against(noise: Any, curvature: Floats) -> Floats:
    """Return ridge penalties in proportion to the squared noise, larger for coefficients with little curvature.

    This is the form of the Bayes estimate for normal coefficients and normal noise. Without noise, the penalty equals
    one additional record with a coefficient of zero.

    ``noise`` is the standard deviation of the noise on the sum of gradients, over all rounds.

    Examples
    --------
    >>> ridge_against(16.0, np.array([10.0, 1000.0]))
    array([15.4  ,  9.064])
    """
    return 1 + np.square(noise) * (1 / _SPREAD + 1 / (4 * np.maximum(curvature, 1.0)))


def softmax(scores: Floats) -> Floats:
    """Return class probabilities from a row of scores per record.

    Examples
    --------
    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)

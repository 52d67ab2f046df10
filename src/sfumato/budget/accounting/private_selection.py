"""Choosing the best of several private runs, such as trainings with different settings, and what that costs.

Whoever runs a private algorithm with ten settings and keeps the best has looked at the data ten times, and ten runs
are to be paid for. If only the best is released, and the number of runs is random, much less is enough (Liu and
Talwar 2019; Papernot and Steinke 2022): about two or three runs, and not much more for a hundred settings.

::

    draw K                                      # from the entropy of the operating system
    for each of K runs:
        draw a setting at random, train with it, score it      # all of it private, and costs the base event
    release the run of the best score, and nothing else

The guarantee holds if

- every run is drawn and run alike and for itself: its setting comes from a distribution that was fixed before, never
  from what earlier runs found, and not from a list that is worked off;
- the base event covers a whole run under every setting, and the noise on its score;
- K stays secret, and so do the other runs. K says nothing about the data by itself, but whoever knows it knows how
  hard the best was looked for. A time that is published can give it away;
- all K runs are made. To stop before, because K turned out large, is another distribution of K.

What runs cost that are Gaussian noise of scale 10 each, at a delta of 1e-5, if all of them are paid for and if the
best of as many on average is released:

>>> from sfumato.budget import spent
>>> from sfumato.budget import Gaussian, Repeated
>>> run = Gaussian(10.0)
>>> print("runs     all    -0.5       0       1 poisson")
runs     all    -0.5       0       1 poisson
>>> for mean in (10, 100):
...     best = [RandomStopping(mean, shape).event(run) for shape in (-0.5, 0, 1, "poisson")]
...     costs = [spent(event, delta=1e-5).epsilon for event in (Repeated(run, mean), *best)]
...     print(f"{mean:4}", *(f"{cost:7.2f}" for cost in costs))
  10    1.20    0.55    0.62    0.73    0.80
 100    4.38    0.66    0.77    0.97    2.90

One run alone costs 0.34.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from sfumato.budget.events import Event, Selected, check_trials
from sfumato.budget.noise import Floats, Source

__all__ = ["RandomStopping"]

_DIGITS = 80  # of the probabilities from which a number of runs is drawn
_WORDS = 4  # of 64 bits, which decide it


@dataclass(frozen=True)
class RandomStopping:
    """Run something private a random number of times and release the best run.

    Parameters
    ----------
    mean : float
        How many runs there are on average.
    shape : float or "poisson"
        Which distribution the number K of runs has. A number above -1 is the shape eta of the truncated negative
        binomial distribution: 0 is the logarithmic and 1 the geometric distribution. The smaller it is, the less a run
        of the same noise costs, and the more often there are few runs or very many. A ``"poisson"`` number is close
        to its mean, and costs more; it may be 0, and then nothing is chosen.

    Examples
    --------
    >>> from sfumato.budget import PureEvent
    >>> stopping = RandomStopping(mean=10, shape=0)
    >>> stopping.draw() >= 1
    True
    >>> str(stopping.event(PureEvent(0.5)))
    'the best of about 10 runs (a logarithmic number): a mechanism of epsilon 0.5'
    """

    mean: float = 10.0
    shape: float | str = 0.0

    def __post_init__(self) -> None:
        mean, shape = check_trials(self.mean, self.shape)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    @property
    def gamma(self) -> float | None:
        """The other parameter of the truncated negative binomial distribution, which follows from the mean."""
        return None if isinstance(self.shape, str) else math.exp(-_log_inverse_gamma(self.mean, self.shape))

    def event(self, base: Event) -> Event:
        """Return what the best of the runs costs, if each run costs the base event, its score included."""
        return Selected(base, self.mean, self.shape)

    def draw(self, source: Source | None = None) -> int:
        """Return a number of runs; it must stay secret.

        The probabilities are added up until they exceed a random number of 256 bits. They are off by less than
        1e-60, which is far less than any delta.
        """
        chosen = Source() if source is None else source
        with localcontext(Context(prec=_DIGITS)):
            drawn = Decimal(int.from_bytes(chosen.words(_WORDS).tobytes(), "little")) / 2 ** (64 * _WORDS)
            if isinstance(self.shape, str):
                trials, mean = 0, Decimal(self.mean)
                chance = (-mean).exp()
                while drawn >= chance:  # P(k + 1) = P(k) mean / (k + 1)
                    drawn, chance, trials = drawn - chance, chance * mean / (trials + 1), trials + 1
                return trials
            length, eta = Decimal(_log_inverse_gamma(self.mean, self.shape)), Decimal(self.shape)
            more = 1 - (-length).exp()  # 1 - gamma
            power = eta * length
            # P(1) = (1 - gamma) eta / (gamma**-eta - 1), and its limit where eta is 0
            trials, chance = 1, more * eta / (power.exp() - 1) if abs(power) > Decimal("1e-30") else more / length
            while drawn >= chance:  # P(k + 1) = P(k) (1 - gamma) (k + eta) / (k + 1)
                drawn, chance, trials = drawn - chance, chance * more * (trials + eta) / (trials + 1), trials + 1
            return trials

    def added(self, epsilon: Any, delta: Any) -> Any:
        """Return how much epsilon the random number of runs adds, if one run is (epsilon, delta)-private.

        If one run is also (e, d)-private, the best is (e + added, mean d)-private (Koskela, Redberg and Wang
        2024). For it costs what the run costs where it is the best, times f'(s) / f'(s'), where f is the
        generating function of K, s the probability that a run is no better, and s' the same for a neighbour:
        1 - s' <= exp(epsilon) (1 - s) + delta. Without any delta that makes (2 + shape) epsilon in all
        (Papernot and Steinke 2022, corollary 3).

        Examples
        --------
        >>> 0.5 + float(RandomStopping(10, 1).added(0.5, 0.0))
        1.5
        """
        with np.errstate(divide="ignore", over="ignore"):
            if isinstance(self.shape, str):
                return self.mean * (np.expm1(epsilon) + delta)
            rest = _log_expm1(_log_inverse_gamma(self.mean, self.shape))  # log(1 / gamma - 1)
            return (1 + self.shape) * np.logaddexp(epsilon, rest + np.log(delta))

    def renyi(self, orders: Floats, costs: Floats) -> Floats:
        """Return the Renyi privacy of the best run at each order, from that of one run (Papernot and Steinke 2022).

        Theorem 2 for the truncated negative binomial distribution and theorem 6 for the Poisson one. The latter
        leaves out that there may be no run; that is added here, as ``exp(-mean)`` within the logarithm: without
        it, a mean below 1 would cost less than nothing.
        """
        order, one = np.asarray(orders, dtype=np.float64), np.asarray(costs, dtype=np.float64)
        if isinstance(self.shape, str):
            deltas = np.array([_delta_of_renyi(order, one, math.log1p(1 / (each - 1))) for each in order])
            runs = math.log(self.mean) + (order - 1) * (one + self.mean * deltas)
            best = np.logaddexp(-self.mean, runs) / (order - 1)
        else:
            length = _log_inverse_gamma(self.mean, self.shape)
            free = np.min((1 - 1 / order) * one + length / order)  # at the other order of the theorem
            best = one + (1 + self.shape) * free + math.log(self.mean) / (order - 1)
        # The privacy of an order holds at all smaller ones.
        return np.array([np.min(best[order >= each]) for each in order])


def _delta_of_renyi(order: Floats, cost: Floats, epsilon: float) -> float:
    """Return a delta that follows from Renyi privacy (Canonne, Kamath and Steinke 2020, proposition 12).

    At epsilon 0 and so above it, also the total variation that follows from it (Bretagnolle and Huber 1978).
    """
    logarithms = (order - 1) * (cost - epsilon + np.log1p(-1 / order)) - np.log(order)
    return float(min(np.exp(np.min(logarithms)), np.sqrt(np.min(-np.expm1(-cost)))))


@lru_cache(maxsize=256)
def _log_inverse_gamma(mean: float, shape: float) -> float:
    """Return log(1 / gamma) of the truncated negative binomial distribution of a mean, or a hair less than that.

    A little less makes the mean a little smaller, and the cost that is claimed for the mean holds.
    """
    low, high = 0.0, 1.0
    while _log_mean(high, shape) < math.log(mean):
        low, high = high, high * 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_mean(middle, shape) < math.log(mean) else (low, middle)
    return low


def _log_mean(length: float, shape: float) -> float:
    """Return log(shape (1 / gamma - 1) / (1 - gamma**shape)), where the length is log(1 / gamma)."""
    if shape == 0:
        return _log_expm1(length) - math.log(length)
    size = abs(shape)
    return _log_expm1(length) - _log_expm1(size * length) + math.log(size) + max(shape, 0.0) * length


def _log_expm1(x: float) -> float:
    """Return log(exp(x) - 1) for any x above 0."""
    return x + math.log(-math.expm1(-x))

"""Private selection: the cost of releasing the best of several private runs, such as a hyperparameter search.

Running a private algorithm with ten settings and keeping the best costs ten runs. If only the best run is released
and the number of runs is random, it costs far less (Liu and Talwar 2019; Papernot and Steinke 2022): about two or
three runs, and not much more for a hundred settings.

::

    draw K                                      # from the entropy of the operating system
    for each of K runs:
        draw a setting at random, train with it, score it      # private; costs the base event
    release the run with the best score, and nothing else

The guarantee holds if

- the runs are independent and identically distributed: each setting is drawn from a distribution that was fixed in
  advance, never chosen from the results of earlier runs or taken in turn from a list;
- the base event covers a whole run under every setting, including the noise on its score;
- K and the other runs stay secret. K alone reveals nothing about the data, but the analysis assumes that it is
  unknown. A published running time can reveal it;
- all K runs are made. Stopping early because K is large would change the distribution of K.

The epsilon at a delta of 1e-5 of runs with Gaussian noise of scale 10, if every run is charged, and if only the best
of the same number of runs on average is released:

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

_DIGITS = 80  # precision of the probabilities of the number of runs
_WORDS = 4  # random 64-bit words per draw


@dataclass(frozen=True)
class RandomStopping:
    """A random number of runs of a private algorithm, of which only the best is released.

    Parameters
    ----------
    mean : float
        The mean number of runs.
    shape : float or "poisson"
        The distribution of the number K of runs. A number above -1 is the shape eta of the truncated negative
        binomial distribution: 0 is the logarithmic and 1 the geometric distribution. A smaller shape costs less at
        the same noise, but very few or very many runs are more likely. A ``"poisson"`` number is close to its mean
        and costs more; it can be 0, and then nothing is released.

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
        """The parameter gamma of the truncated negative binomial distribution, which follows from the mean."""
        return None if isinstance(self.shape, str) else math.exp(-_log_inverse_gamma(self.mean, self.shape))

    def event(self, base: Event) -> Event:
        """Return the event of releasing the best run, if each run including its score costs the base event."""
        return Selected(base, self.mean, self.shape)

    def draw(self, source: Source | None = None) -> int:
        """Draw the number of runs, which must stay secret.

        The draw inverts the cumulative distribution at a random number of 256 bits. The probabilities have an error
        below 1e-60, far less than any delta.
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

    def extra_epsilon(self, epsilon: Any, delta: Any) -> Any:
        """Return the epsilon that the selection adds, if one run is (epsilon, delta)-private.

        If one run is also (e, d)-private, the best is (e + extra, mean d)-private (Koskela, Redberg and Wang
        2024). The probability that a run is released is that of the run times f'(s), where f is the generating
        function of K and s the probability that a run is no better. For a neighbouring table with s', the ratio
        f'(s) / f'(s') is bounded by 1 - s' <= exp(epsilon) (1 - s) + delta. Without any delta the total is
        (2 + shape) epsilon (Papernot and Steinke 2022, corollary 3).

        Examples
        --------
        >>> 0.5 + float(RandomStopping(10, 1).extra_epsilon(0.5, 0.0))
        1.5
        """
        with np.errstate(divide="ignore", over="ignore"):
            if isinstance(self.shape, str):
                return self.mean * (np.expm1(epsilon) + delta)
            rest = _log_expm1(_log_inverse_gamma(self.mean, self.shape))  # log(1 / gamma - 1)
            return (1 + self.shape) * np.logaddexp(epsilon, rest + np.log(delta))

    def renyi(self, orders: Floats, costs: Floats) -> Floats:
        """Return the Renyi divergence of the best run at each order, given that of one run.

        Papernot and Steinke (2022), theorem 2 for the truncated negative binomial and theorem 6 for the Poisson
        distribution. The latter ignores that there may be no run; the term ``exp(-mean)`` in the logarithm accounts
        for it, since otherwise a mean below 1 would have a negative cost.
        """
        order, one = np.asarray(orders, dtype=np.float64), np.asarray(costs, dtype=np.float64)
        if isinstance(self.shape, str):
            deltas = np.array([_delta_of_renyi(order, one, math.log1p(1 / (each - 1))) for each in order])
            runs = math.log(self.mean) + (order - 1) * (one + self.mean * deltas)
            best = np.logaddexp(-self.mean, runs) / (order - 1)
        else:
            length = _log_inverse_gamma(self.mean, self.shape)
            free = np.min((1 - 1 / order) * one + length / order)  # at the theorem's second order
            best = one + (1 + self.shape) * free + math.log(self.mean) / (order - 1)
        # A bound at one order holds at all smaller orders.
        return np.array([np.min(best[order >= each]) for each in order])


def _delta_of_renyi(order: Floats, cost: Floats, epsilon: float) -> float:
    """Return the delta that Renyi privacy implies (Canonne, Kamath and Steinke 2020, proposition 12).

    It is capped by the total variation distance that Renyi privacy implies (Bretagnolle and Huber 1978).
    """
    logarithms = (order - 1) * (cost - epsilon + np.log1p(-1 / order)) - np.log(order)
    return float(min(np.exp(np.min(logarithms)), np.sqrt(np.min(-np.expm1(-cost)))))


@lru_cache(maxsize=256)
def _log_inverse_gamma(mean: float, shape: float) -> float:
    """Return log(1 / gamma) of the truncated negative binomial distribution with this mean, rounded down.

    Rounding down makes the mean slightly smaller, so the cost stated for the mean still holds.
    """
    low, high = 0.0, 1.0
    while _log_mean(high, shape) < math.log(mean):
        low, high = high, high * 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_mean(middle, shape) < math.log(mean) else (low, middle)
    return low


def _log_mean(length: float, shape: float) -> float:
    """Return the log of the mean, shape (1 / gamma - 1) / (1 - gamma**shape), for length = log(1 / gamma)."""
    if shape == 0:
        return _log_expm1(length) - math.log(length)
    size = abs(shape)
    return _log_expm1(length) - _log_expm1(size * length) + math.log(size) + max(shape, 0.0) * length


def _log_expm1(x: float) -> float:
    """Return log(exp(x) - 1) for any x above 0."""
    return x + math.log(-math.expm1(-x))

"""Local differential privacy: each value is perturbed on its own, before anyone else sees it.

Each mechanism perturbs values one by one, under replace-one: a report is almost equally likely for any true
value. From many reports it estimates shares or means of the true values.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import Event, RandomizedResponse, Relation
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism, declared_bounds
from sfumato.budget.noise import Source
from sfumato.data.validate import real
from sfumato.errors import ColumnError, OptionError

__all__ = ["CategoryResponse", "CoinResponse", "Estimate", "LocalMechanism", "NumberResponse", "UnaryResponse"]


@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate from perturbed reports, and its standard error.

    The standard error covers the perturbation of these people's values; it does not cover the sampling of
    people from a larger population.
    """

    value: float
    standard_error: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval, by the normal approximation."""
        from scipy.special import ndtri

        half = float(ndtri((1 + confidence) / 2)) * self.standard_error
        return self.value - half, self.value + half

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values, with its 95 % interval."""
        return {"value": self.value, "standard_error": self.standard_error, "interval": list(self.interval())}


class LocalMechanism(Mechanism):
    """A mechanism that perturbs the value of each person separately."""

    @abstractmethod
    def perturb(self, values: Any, source: Source | None = None) -> Any:
        """Return a perturbed report for each value."""

    @abstractmethod
    def estimate(self, reports: Any) -> Any:
        """Estimate shares or the mean of the true values from the reports."""


@dataclass(frozen=True, kw_only=True)
class CoinResponse(LocalMechanism):
    """Randomized response to a yes-or-no question with two coins (Warner 1965).

    The first coin decides whether to answer truthfully; otherwise the second coin gives the answer.

    Parameters
    ----------
    honest : float
        The probability of a truthful answer.
    yes : float
        The probability that the second coin answers yes.

    Examples
    --------
    >>> coins = CoinResponse()
    >>> round(coins.epsilon, 4), round(math.log(3), 4)
    (1.0986, 1.0986)
    >>> 0.999999 < CoinResponse.for_epsilon(1.0).epsilon <= 1.0
    True
    >>> answers = np.arange(10_000) < 3_000
    >>> share = coins.estimate(coins.perturb(answers))
    >>> abs(share.value - 0.3) < 6 * share.standard_error
    True
    """

    honest: float = 0.5
    yes: float = 0.5

    def __post_init__(self) -> None:
        for name, value in (("honest", self.honest), ("yes", self.yes)):
            real(f"the probability '{name}'", value, above=0, below=1)

    @classmethod
    def for_epsilon(cls, epsilon: float) -> CoinResponse:
        """Return the coins for an epsilon, with a fair second coin."""
        epsilon = real("epsilon", epsilon, above=0)
        honest = min(math.tanh(epsilon / 2), math.nextafter(1.0, 0.0))  # the largest probability below 1
        while cls(honest=honest).epsilon > epsilon:
            honest = math.nextafter(honest, 0.0)
        return cls(honest=honest)

    @property
    def probabilities(self) -> tuple[float, float]:
        """The probabilities of the answer yes if the truth is no, and if it is yes."""
        lie = (1 - self.honest) * self.yes
        return lie, self.honest + lie

    @property
    def epsilon(self) -> float:
        """The logarithm of the largest ratio of the probabilities of an answer under the two truths."""
        lies = (1 - self.honest) * np.array([self.yes, 1 - self.yes])
        return float(np.log1p(self.honest / lies.min()))

    @property
    def event(self) -> Event:
        """The cost of an answer for its person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE)

    def perturb(self, values: Any, source: Source | None = None) -> NDArray[np.bool_]:
        """Return the perturbed answer for each true answer."""
        truth, chosen = np.asarray(values), Source() if source is None else source
        if truth.dtype != np.bool_:
            raise ColumnError(f"the answers must be booleans, got {truth.dtype}")
        honest = chosen.bernoulli(self.honest, truth.size)
        second = chosen.bernoulli(self.yes, truth.size)
        return np.where(honest, truth.reshape(-1), second)

    def estimate(self, reports: Any) -> Estimate:
        """Estimate the share of people whose true answer is yes."""
        answers = np.asarray(reports)
        if answers.dtype != np.bool_:
            raise ColumnError(f"the reports must be booleans, got {answers.dtype}")
        return _shares(
            (True,), np.array([np.count_nonzero(answers)]), _at_least_one(answers.size), *self.probabilities
        )[True]


@dataclass(frozen=True, kw_only=True)
class _OfCategories(LocalMechanism):
    """A report of a category of a public domain."""

    epsilon: float
    domain: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, above=0)
        object.__setattr__(self, "domain", _declared_domain(self.domain))

    @property
    def event(self) -> Event:
        """The cost of a report for its person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE)


@dataclass(frozen=True, kw_only=True)
class CategoryResponse(_OfCategories):
    """Report the true category or, with some probability, another one (k-ary randomized response, Kairouz et al. 2016).

    The true category is ``exp(epsilon)`` times as likely as each of the others.

    Examples
    --------
    >>> response = CategoryResponse(epsilon=2.0, domain=("a", "b", "c"))
    >>> reports = response.perturb(["a"] * 6_000 + ["b"] * 4_000)
    >>> shares = response.estimate(reports)
    >>> abs(shares["c"].value) < 6 * shares["c"].standard_error
    True
    """

    @cached_property
    def probabilities(self) -> tuple[float, float]:
        """The probabilities of reporting one particular other category, and the true category."""
        assert self.domain is not None
        less = _less_likely(self.epsilon)
        total = 1 + (len(self.domain) - 1) * less
        return less / total, 1 / total

    def perturb(self, values: Iterable[Hashable], source: Source | None = None) -> list[Any]:
        """Return the reported category for each value."""
        assert self.domain is not None
        chosen = Source() if source is None else source
        codes = _known_codes(values, self.domain)
        # For a large epsilon the probability of a true report would round to 1, which is not private.
        lie = (len(self.domain) - 1) * self.probabilities[0]
        honest = ~chosen.bernoulli(lie * (1 + 2.0**-48), len(codes))
        other = chosen.below(len(self.domain) - 1, len(codes))
        other += other >= codes  # skips the true category
        return [self.domain[code] for code in np.where(honest, codes, other)]

    def estimate(self, reports: Iterable[Hashable]) -> dict[Any, Estimate]:
        """Estimate the share of each category."""
        assert self.domain is not None
        codes = _known_codes(reports, self.domain)
        named = np.bincount(codes, minlength=len(self.domain))
        return _shares(self.domain, named, _at_least_one(len(codes)), *self.probabilities)


@dataclass(frozen=True, kw_only=True)
class UnaryResponse(_OfCategories):
    """Report one perturbed boolean per category (optimized unary encoding, Wang et al. 2017).

    With many categories it is more accurate than `CategoryResponse`: its error does not grow with their number.

    Examples
    --------
    >>> response = UnaryResponse(epsilon=1.0, domain=("a", "b", "c"))
    >>> reports = response.perturb(["a", "c"])
    >>> reports.shape
    (2, 3)
    """

    @property
    def probabilities(self) -> tuple[float, float]:
        """The probabilities of a true bit for another category, and for the true category."""
        less = _less_likely(self.epsilon)
        return less / (1 + less), 0.5

    def perturb(self, values: Iterable[Hashable], source: Source | None = None) -> NDArray[np.bool_]:
        """Return a row of booleans for each value."""
        assert self.domain is not None
        chosen = Source() if source is None else source
        codes = _known_codes(values, self.domain)
        no, yes = self.probabilities
        # Rounding the smaller probability must not increase epsilon.
        shape = len(codes), len(self.domain)
        reports = chosen.bernoulli(no * (1 + 2.0**-48), math.prod(shape)).reshape(shape)
        reports[np.arange(len(codes)), codes] = chosen.bernoulli(yes, len(codes))
        return reports

    def estimate(self, reports: Any) -> dict[Any, Estimate]:
        """Estimate the share of each category."""
        assert self.domain is not None
        rows = np.asarray(reports, dtype=np.bool_)
        if rows.ndim != 2 or rows.shape[1] != len(self.domain):
            raise ColumnError(f"each report must be a row of {len(self.domain)} booleans")
        return _shares(self.domain, rows.sum(axis=0), _at_least_one(len(rows)), *self.probabilities)


@dataclass(frozen=True, kw_only=True)
class NumberResponse(LocalMechanism):
    """Report a number with noise: Laplace, or Gaussian if there is a delta.

    The noise is calibrated to the distance between the bounds; a number outside the bounds is clipped.

    If numbers may be missing, a missing one is taken for the middle of the bounds, and a `CoinResponse` to whether it
    is missing decides whether the report is. The noise alone hides any number behind any other. The middle is at most
    half as far from a number as two numbers are from each other, so about half of epsilon hides it in the noise, and
    the rest pays for the coins.

    Parameters
    ----------
    epsilon, delta : float
    bounds : pair of float
        Public bounds of the numbers.
    missing : bool
        Whether numbers may be missing; otherwise a missing one is an error.

    Examples
    --------
    >>> response = NumberResponse(epsilon=1.0, bounds=(0, 10))
    >>> mean = response.estimate(response.perturb(np.full(20_000, 4.0)))
    >>> abs(mean.value - 4) < 6 * mean.standard_error
    True
    >>> response = NumberResponse(epsilon=4.0, bounds=(0, 10), missing=True)
    >>> reports = response.perturb(np.array([4.0] * 15_000 + [np.nan] * 5_000))
    >>> mean, gaps = response.estimate(reports), response.estimate_missing(reports)
    >>> abs(mean.value - 4) < 6 * mean.standard_error, abs(gaps.value - 0.25) < 6 * gaps.standard_error
    (True, True)
    """

    epsilon: float
    delta: float = 0.0
    bounds: tuple[float, float] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", declared_bounds(self.bounds))
        _ = self.noise  # epsilon and delta are checked there
        if self.missing and self.delta:
            raise OptionError(
                f"numbers that may be missing have Laplace noise, which needs no delta, got {self.delta!r}"
            )

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each number."""
        assert self.bounds is not None
        low, high = self.bounds
        return AddedNoise(sensitivity=high - low, epsilon=self.epsilon, delta=self.delta, relation=Relation.REPLACE_ONE)

    @cached_property
    def coins(self) -> CoinResponse:
        """The coins that answer whether a number is missing."""
        assert self.bounds is not None
        if not self.missing:
            raise OptionError("no number may be missing, so there are no coins", hint="give missing=True")
        low, middle, high = (round(one / self.noise.step) for one in (self.bounds[0], self._middle, self.bounds[1]))
        hidden = max(middle - low, high - middle) * self.noise.step / self.noise.scale  # by the noise alone
        return CoinResponse.for_epsilon((self.epsilon - hidden) * (1 - 2.0**-50))  # rounding must not increase it

    @property
    def event(self) -> Event:
        """The cost of a report for its person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE) if self.missing else self.noise.event

    def perturb(self, values: Any, source: Source | None = None) -> NDArray[np.float64]:
        """Return each number with noise."""
        assert self.bounds is not None
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        gaps, chosen = np.isnan(numbers), Source() if source is None else source
        if gaps.any() and not self.missing:
            raise ColumnError("a missing number cannot be perturbed", hint="give missing=True, or omit it")
        within = np.clip(np.where(gaps, self._middle, numbers), *self.bounds)
        noisy: NDArray[np.float64] = self.noise.release(within, chosen)
        return np.where(self.coins.perturb(gaps, chosen), np.nan, noisy) if self.missing else noisy

    def estimate(self, reports: Any) -> Estimate:
        """Estimate the mean of the true numbers; if some may be missing, of those that are not.

        Let a and b be the probabilities of a missing report for a number and for a gap, t the share of missing reports,
        and z the mean distance of the reports from the middle, with 0 for those that are missing. On average a gap adds
        nothing to z, so the mean is estimated by the middle plus (b - a) z / ((1 - a) (b - t)). With more reports, the
        bias of this ratio falls faster than its standard error, which also covers how the numbers differ.
        """
        numbers = np.asarray(reports, dtype=np.float64).reshape(-1)
        count = _at_least_one(len(numbers))
        if not self.missing:
            return Estimate(float(numbers.mean()), self.noise.standard_deviation / math.sqrt(count))
        no, yes = self.coins.probabilities
        said = np.isnan(numbers)
        apart = np.where(said, 0.0, numbers - self._middle)
        known = yes - float(said.mean())
        if known <= 0:
            raise OptionError("all numbers seem to be missing, so there is no mean to estimate")
        ratio = (yes - no) / ((1 - no) * known)
        parts = apart + float(apart.mean()) / known * said
        return Estimate(self._middle + ratio * float(apart.mean()), ratio * float(parts.std()) / math.sqrt(count))

    def estimate_missing(self, reports: Any) -> Estimate:
        """Estimate the share of people whose number is missing."""
        return self.coins.estimate(np.isnan(np.asarray(reports, dtype=np.float64).reshape(-1)))

    @property
    def _middle(self) -> float:
        assert self.bounds is not None
        low, high = self.bounds
        return low / 2 + high / 2


def _less_likely(epsilon: float) -> float:
    return math.exp(-min(epsilon, 600.0))  # for a larger epsilon it could underflow to 0, which is not private


def _shares(
    domain: tuple[Hashable, ...], named: NDArray[np.int64], count: int, no: float, yes: float
) -> dict[Any, Estimate]:
    """Return unbiased estimates of the shares, given the number of reports of each category."""
    shares = {}
    for value, times in zip(domain, named.tolist(), strict=True):
        share = (times / count - no) / (yes - no)
        true = min(max(share, 0.0), 1.0)
        variance = (true * yes * (1 - yes) + (1 - true) * no * (1 - no)) / (yes - no) ** 2 / count
        shares[value] = Estimate(share, math.sqrt(variance))
    return shares


def _declared_domain(domain: Any) -> tuple[Hashable, ...]:
    if domain is None:
        raise OptionError(
            "the categories need a public domain: a category of a single person would identify them",
            hint="declare it in the schema without looking at the data",
        )
    values = tuple(domain)
    if len(values) < 2 or len(set(values)) != len(values):
        raise OptionError("a public domain must list at least two values, each only once")
    return values


def _known_codes(values: Iterable[Hashable], domain: tuple[Hashable, ...]) -> NDArray[np.int64]:
    place = {value: code for code, value in enumerate(domain)}
    codes = [place.get(value, -1) for value in values]
    if -1 in codes:
        raise ColumnError(
            "a value is missing or not in the public domain, so it cannot be perturbed",
            hint='add a value such as "other" to the domain and map it there',
        )
    return np.array(codes, dtype=np.int64)


def _at_least_one(count: int) -> int:
    if count < 1:
        raise OptionError("there must be at least one report")
    return count

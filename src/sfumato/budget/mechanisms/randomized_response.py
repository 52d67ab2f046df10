"""Perturbed answers: every person adds the noise before anybody else sees the value.

Each method perturbs values one by one, under replace-one: whatever the person's value is, the
report is almost as likely. From many reports it estimates what was true of the people together.
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
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism, declared_bounds, positive
from sfumato.budget.noise import Source
from sfumato.errors import ColumnError, OptionError

__all__ = ["CategoryResponse", "CoinResponse", "Estimate", "LocalMechanism", "NumberResponse", "UnaryResponse"]


@dataclass(frozen=True)
class Estimate:
    """What reports say about the people together, without bias, and how sure that is.

    The standard error is that of the perturbation and of the values of the people as they are; it
    does not speak of people who were not asked.
    """

    value: float
    standard_error: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval of a normal distribution around the value."""
        from scipy.special import ndtri

        half = float(ndtri((1 + confidence) / 2)) * self.standard_error
        return self.value - half, self.value + half

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values, with its interval of 95 %."""
        return {"value": self.value, "standard_error": self.standard_error, "interval": list(self.interval())}


class LocalMechanism(Mechanism):
    """A way of perturbing values of which each belongs to one person."""

    @abstractmethod
    def perturb(self, values: Any, source: Source | None = None) -> Any:
        """Return a report of each value."""

    @abstractmethod
    def estimate(self, reports: Any) -> Any:
        """Return what the reports say about the values together."""


@dataclass(frozen=True, kw_only=True)
class CoinResponse(LocalMechanism):
    """Answer yes or no with two coins (Warner 1965): the first decides whether to be honest, the second lies.

    Parameters
    ----------
    honest : float
        The probability that the first coin says: tell the truth.
    yes : float
        The probability that the second coin says: answer yes.

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
            if not isinstance(value, int | float) or not 0 < value < 1:
                raise OptionError(f"the probability '{name}' must be a number between 0 and 1, got {value!r}")

    @classmethod
    def for_epsilon(cls, epsilon: float) -> CoinResponse:
        """Return the coins of an epsilon of which the second is fair."""
        epsilon = positive("epsilon", epsilon)
        honest = min(math.tanh(epsilon / 2), math.nextafter(1.0, 0.0))  # no coin is more honest
        while cls(honest=honest).epsilon > epsilon:
            honest = math.nextafter(honest, 0.0)
        return cls(honest=honest)

    @property
    def said(self) -> tuple[float, float]:
        """The probabilities of saying yes if the truth is no, and if it is yes."""
        lie = (1 - self.honest) * self.yes
        return lie, self.honest + lie

    @property
    def epsilon(self) -> float:
        """The logarithm of how much more likely an answer is for one truth than for the other."""
        lies = (1 - self.honest) * np.array([self.yes, 1 - self.yes])
        return float(np.log1p(self.honest / lies.min()))

    @property
    def event(self) -> Event:
        """What the answers cost each person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE)

    def perturb(self, values: Any, source: Source | None = None) -> NDArray[np.bool_]:
        """Return what is said to each question."""
        truth, chosen = np.asarray(values), Source() if source is None else source
        if truth.dtype != np.bool_:
            raise ColumnError(f"the answers must be yes or no (true or false), got {truth.dtype}")
        honest = chosen.happens(self.honest, truth.size)
        second = chosen.happens(self.yes, truth.size)
        return np.where(honest, truth.reshape(-1), second)

    def estimate(self, reports: Any) -> Estimate:
        """Return the share of people whose true answer is yes."""
        said, count = _some(reports)
        no, yes = self.said
        share = float(np.count_nonzero(said)) / count
        value = (share - no) / (yes - no)
        true = min(max(value, 0.0), 1.0)
        variance = (true * yes * (1 - yes) + (1 - true) * no * (1 - no)) / (yes - no) ** 2 / count
        return Estimate(value, math.sqrt(variance))


@dataclass(frozen=True, kw_only=True)
class CategoryResponse(LocalMechanism):
    """Name one's category, or sometimes another one (k-ary randomized response, Kairouz et al. 2016).

    The true one is ``exp(epsilon)`` times as likely as each of the others.

    Examples
    --------
    >>> response = CategoryResponse(epsilon=2.0, domain=("a", "b", "c"))
    >>> reports = response.perturb(["a"] * 6_000 + ["b"] * 4_000)
    >>> shares = response.estimate(reports)
    >>> abs(shares["c"].value) < 6 * shares["c"].standard_error
    True
    """

    epsilon: float
    domain: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        object.__setattr__(self, "domain", _declared_domain(self.domain))

    @property
    def event(self) -> Event:
        """What a report costs its person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE)

    @cached_property
    def said(self) -> tuple[float, float]:
        """The probabilities of naming a category that is not one's own, and one's own."""
        assert self.domain is not None
        less = _less_likely(self.epsilon)
        total = 1 + (len(self.domain) - 1) * less
        return less / total, 1 / total

    def perturb(self, values: Iterable[Hashable], source: Source | None = None) -> list[Any]:
        """Return the category that is named for each value."""
        assert self.domain is not None
        chosen = Source() if source is None else source
        codes = _known_codes(values, self.domain)
        # Of a large epsilon the share of honest answers rounds to 1, which would be no privacy at all.
        lie = (len(self.domain) - 1) * self.said[0]
        honest = ~chosen.happens(lie * (1 + 2.0**-48), len(codes))
        other = chosen.below(len(self.domain) - 1, len(codes))
        other += other >= codes  # any but one's own
        return [self.domain[code] for code in np.where(honest, codes, other)]

    def estimate(self, reports: Iterable[Hashable]) -> dict[Any, Estimate]:
        """Return the share of people of each category."""
        assert self.domain is not None
        codes = _known_codes(reports, self.domain)
        named = np.bincount(codes, minlength=len(self.domain))
        return _shares(self.domain, named, _at_least_one(len(codes)), *self.said)


@dataclass(frozen=True, kw_only=True)
class UnaryResponse(LocalMechanism):
    """Report a row of yes and no, one for each category, each perturbed (optimised unary encoding, Wang et al. 2017).

    With many categories it is more accurate than naming one: its error does not grow with their number.

    Examples
    --------
    >>> response = UnaryResponse(epsilon=1.0, domain=("a", "b", "c"))
    >>> reports = response.perturb(["a", "c"])
    >>> reports.shape
    (2, 3)
    """

    epsilon: float
    domain: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        object.__setattr__(self, "domain", _declared_domain(self.domain))

    @property
    def event(self) -> Event:
        """What a report costs its person."""
        return RandomizedResponse(self.epsilon, Relation.REPLACE_ONE)

    @property
    def said(self) -> tuple[float, float]:
        """The probabilities of a yes for a category that is not one's own, and for one's own."""
        less = _less_likely(self.epsilon)
        return less / (1 + less), 0.5

    def perturb(self, values: Iterable[Hashable], source: Source | None = None) -> NDArray[np.bool_]:
        """Return a row of yes and no for each value."""
        assert self.domain is not None
        chosen = Source() if source is None else source
        codes = _known_codes(values, self.domain)
        no, yes = self.said
        # Rounding the smaller probability must not cost a last digit of epsilon.
        shape = len(codes), len(self.domain)
        reports = chosen.happens(no * (1 + 2.0**-48), math.prod(shape)).reshape(shape)
        reports[np.arange(len(codes)), codes] = chosen.happens(yes, len(codes))
        return reports

    def estimate(self, reports: Any) -> dict[Any, Estimate]:
        """Return the share of people of each category."""
        assert self.domain is not None
        rows = np.asarray(reports, dtype=np.bool_)
        if rows.ndim != 2 or rows.shape[1] != len(self.domain):
            raise ColumnError(f"a report must be a row of {len(self.domain)} times yes or no")
        return _shares(self.domain, rows.sum(axis=0), _at_least_one(len(rows)), *self.said)


@dataclass(frozen=True, kw_only=True)
class NumberResponse(LocalMechanism):
    """Report one's number with noise: Laplace, or Gaussian if there is a delta.

    The noise hides any number between the bounds behind any other; a number outside is cut off.

    Examples
    --------
    >>> response = NumberResponse(epsilon=1.0, bounds=(0, 10))
    >>> mean = response.estimate(response.perturb(np.full(20_000, 4.0)))
    >>> abs(mean.value - 4) < 6 * mean.standard_error
    True
    """

    epsilon: float
    delta: float = 0.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", declared_bounds(self.bounds))
        _ = self.noise  # epsilon and delta are checked there

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each number."""
        assert self.bounds is not None
        low, high = self.bounds
        return AddedNoise(sensitivity=high - low, epsilon=self.epsilon, delta=self.delta, relation=Relation.REPLACE_ONE)

    @property
    def event(self) -> Event:
        """What a report costs its person."""
        return self.noise.event

    def perturb(self, values: Any, source: Source | None = None) -> NDArray[np.float64]:
        """Return each number with noise."""
        assert self.bounds is not None
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        if np.isnan(numbers).any():
            raise ColumnError("a missing number cannot be perturbed", hint="leave it out, or put a public value there")
        noisy: NDArray[np.float64] = self.noise.release(np.clip(numbers, *self.bounds), source)
        return noisy

    def estimate(self, reports: Any) -> Estimate:
        """Return the mean of the numbers."""
        numbers = np.asarray(reports, dtype=np.float64).reshape(-1)
        count = _at_least_one(len(numbers))
        return Estimate(float(numbers.mean()), self.noise.standard_deviation / math.sqrt(count))


def _less_likely(epsilon: float) -> float:
    return math.exp(-min(epsilon, 600.0))  # of a larger epsilon it would be 0, and nothing would be hidden


def _shares(
    domain: tuple[Hashable, ...], named: NDArray[np.int64], count: int, no: float, yes: float
) -> dict[Any, Estimate]:
    """Return the estimates of the shares that would give so many reports of each category on average."""
    shares = {}
    for value, times in zip(domain, named.tolist(), strict=True):
        found = (times / count - no) / (yes - no)
        true = min(max(found, 0.0), 1.0)
        variance = (true * yes * (1 - yes) + (1 - true) * no * (1 - no)) / (yes - no) ** 2 / count
        shares[value] = Estimate(found, math.sqrt(variance))
    return shares


def _declared_domain(domain: Any) -> tuple[Hashable, ...]:
    if domain is None:
        raise OptionError(
            "the categories need a public domain: one that only one person has would give them away",
            hint="declare it in the schema, not read off the data",
        )
    values = tuple(domain)
    if len(values) < 2 or len(set(values)) != len(values):
        raise OptionError("a public domain must list at least two values, and each once")
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


def _some(reports: Any) -> tuple[NDArray[Any], int]:
    said = np.asarray(reports)
    if said.dtype != np.bool_:
        raise ColumnError(f"the reports must be yes or no (true or false), got {said.dtype}")
    return said, _at_least_one(said.size)


def _at_least_one(count: int) -> int:
    if count < 1:
        raise OptionError("there must be at least one report")
    return count

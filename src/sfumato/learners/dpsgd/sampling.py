"""Samplers: which samples a step takes, and the event that this is to the accountant.

Every sampler divides by the expected batch size, never by the actual one, because the number of samples drawn is
private. So is the number of samples in the data: rate, steps and divisor come from ``rows``, which is public, and only
`Sampler.draw` uses the actual number.

Where a person may have several rows, a sampler draws people, and everything here counts people instead of samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.training_events import step_event
from sfumato.budget.events import ApproximateEvent, Composed, Event
from sfumato.budget.noise import Source, rounding_event
from sfumato.budget.people import for_people
from sfumato.data.certificate import PERSON
from sfumato.errors import OptionError

__all__ = ["FixedPoisson", "Full", "Poisson", "Sampler"]

_SMALLEST = 2.0**-40  # at smaller rates, the gaps between samples would overflow an integer


@dataclass(frozen=True)
class Sampler(ABC):
    """A way to draw samples from about ``rows``, the public number of samples.

    With ``rows_per_person``, it draws people with at most so many rows each, ``rows`` is the public number of people,
    and its events are for people.

    ``dimensions`` is how many numbers get noise in a step, which `rounding_event` charges for; 0 charges for ideal
    noise.
    """

    rows: int
    dimensions: int = field(default=0, kw_only=True)
    rows_per_person: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise OptionError("there are no samples to train on")

    @property
    @abstractmethod
    def expected(self) -> float:
        """The average number of samples per step, by which sums are divided."""

    @abstractmethod
    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Return the indices of the samples of the next step, out of ``there`` samples (by default ``rows``)."""

    def event(self, noise_multiplier: float) -> Event:
        """Return the event of one step: Gaussian noise on the sum over the samples drawn, and the cost of rounding."""
        more = self._more(noise_multiplier)
        ideal = self._ideal(noise_multiplier)
        event = Composed((ideal, *more)) if more else ideal
        # A person is drawn as a whole, and what all of their rows add is clipped once, so they count like one sample.
        return event if self.rows_per_person is None else for_people(event, 1)

    @abstractmethod
    def _ideal(self, noise_multiplier: float) -> Event:
        """Return the event of a step with ideal noise."""

    def _more(self, noise_multiplier: float) -> list[Event]:
        """Return the events of a step beyond the ideal one."""
        return [rounding_event(self.dimensions, noise_multiplier)] if self.dimensions else []

    @property
    def people(self) -> dict[str, Any]:
        """What of the plain values is about people."""
        bound = self.rows_per_person
        return {} if bound is None else {"unit": PERSON, "rows_per_person": bound}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the sampler as plain values."""


@dataclass(frozen=True)
class Poisson(Sampler):
    """Poisson sampling: each sample is drawn independently, with the same probability.

    Examples
    --------
    >>> sampler = Poisson(rows=60_000, rate=64 / 60_000)
    >>> sampler.expected
    64.0
    >>> print(sampler.event(1.2))
    on a Poisson sample of rate 0.00106667: Gaussian noise of scale 1.2 on a sensitivity of 1
    >>> 20 < len(sampler.draw(Source())) < 130
    True
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _SMALLEST <= self.rate <= 1:
            raise OptionError(f"the sampling rate must be at least 2**-40 and at most 1, got {self.rate!r}")

    @property
    def expected(self) -> float:
        """The rate times the number of rows."""
        return self.rate * self.rows

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Draw the gaps between samples, which have a geometric distribution."""
        count = self.rows if there is None else there
        if self.rate == 1:
            return np.arange(count)
        scale = -1 / math.log1p(-self.rate)  # a gap is at least m with the probability (1 - rate)^m
        many = int(self.rate * count + 5 * math.sqrt(self.rate * count)) + 8
        taken = np.cumsum(source.geometric(scale, many) + 1) - 1
        while taken[-1] < count:
            taken = np.concatenate([taken, taken[-1] + np.cumsum(source.geometric(scale, many) + 1)])
        return taken[taken < count]

    def _ideal(self, noise_multiplier: float) -> Event:
        return step_event("poisson", self.rate, noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the rate."""
        return {"kind": "poisson", "rate": self.rate, **self.people}


@dataclass(frozen=True)
class FixedPoisson(Poisson):
    """Poisson sampling into batches of a fixed size; samples beyond the size are dropped.

    A step that differs from Poisson sampling with probability t, whatever the data, costs an additional delta of
    ``(1 + e^epsilon) t``. Every step is charged for it, for an epsilon of at most ``up_to`` and at most ``most``
    samples in the data; with more samples, none is dropped.

    Examples
    --------
    >>> sampler = FixedPoisson.of(Poisson(60_000, 512 / 60_000), delta=1e-5, up_to=20)
    >>> sampler.size
    752
    >>> sampler.beyond < 1e-5 / 1e9
    True
    """

    size: int
    up_to: float
    most: int

    @classmethod
    def of(cls, sampler: Poisson, delta: float, up_to: float, most: int | None = None) -> FixedPoisson:
        """Choose the size such that a million steps cost less than a thousandth of delta."""
        from scipy.stats import binom

        rows = sampler.rows if most is None else most
        chance, sizes = delta * 1e-9 / (1 + math.exp(up_to)), range(0, rows + 8, 8)
        enough = bisect_left(sizes, True, key=lambda size: bool(binom.sf(size, rows, sampler.rate) <= chance))
        size = min(rows, sizes[enough])
        many, bound = sampler.dimensions, sampler.rows_per_person
        return cls(sampler.rows, sampler.rate, size, up_to, rows, dimensions=many, rows_per_person=bound)

    @property
    def beyond(self) -> float:
        """The delta that dropping samples costs per step."""
        from scipy.stats import binom

        return float((1 + math.exp(self.up_to)) * binom.sf(self.size, self.most, self.rate))

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Draw a Poisson sample, and drop samples beyond the size."""
        taken = super().draw(source, there)
        return taken[: self.size] if (there or 0) <= self.most else taken

    def _more(self, noise_multiplier: float) -> list[Event]:
        beyond = [ApproximateEvent(0.0, self.beyond)] if self.beyond else []
        return [*super()._more(noise_multiplier), *beyond]

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the rate and the size."""
        return {**super().to_dict(), "size": self.size}


@dataclass(frozen=True)
class Full(Sampler):
    """Full batches: every step takes all samples, without amplification by sampling.

    Examples
    --------
    >>> print(Full(rows=100).event(2.0))
    Gaussian noise of scale 2 on a sensitivity of 1
    """

    @property
    def expected(self) -> float:
        """The public number of samples."""
        return float(self.rows)

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Return all samples."""
        return np.arange(self.rows if there is None else there)

    def _ideal(self, noise_multiplier: float) -> Event:
        return step_event("full", 1.0, noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind."""
        return {"kind": "full", "rate": 1.0, **self.people}

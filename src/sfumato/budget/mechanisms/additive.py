"""Additive noise, calibrated to how much one record can change an answer.

All noise is in whole numbers. A real-valued answer is rounded to a public grid, far finer than the noise, so
that float rounding cannot leak anything.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sfumato.budget.accounting.accountant import calibrate, check_delta
from sfumato.budget.events import DiscreteGaussian, DiscreteLaplace, Event, Relation, Repeated
from sfumato.budget.noise import Source
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError, one_of

__all__ = ["AddedNoise", "Mechanism", "declared_bounds"]

_FINE = 30  # a grid step is the noise scale over 2**30,
_FINEST = 50  # but at least the sensitivity over 2**50, so that sums of steps stay whole numbers
_SMALLEST, _LARGEST = 1e-200, 1e200  # sensitivities for which the grid step is a float


class Mechanism(ABC):
    """An operation on private data whose cost is known before it runs."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event to charge, which does not depend on the data."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation under which the event holds."""
        return self.event.relation


@dataclass(frozen=True, kw_only=True)
class AddedNoise(Mechanism):
    """Noise that hides the contribution of one record to an answer of one or several numbers.

    With an epsilon alone the noise is discrete Laplace; with a delta it is discrete Gaussian with
    the smallest scale that satisfies both (Balle and Wang 2018).

    Parameters
    ----------
    sensitivity : float
        The largest change of one number of the answer by one record.
    epsilon : float
    delta : float
        0 for Laplace noise.
    changes : int
        How many numbers of the answer one record changes.
    whole : bool
        Whether the answer is in whole numbers; otherwise it is rounded to a grid.
    relation : Relation or str

    Examples
    --------
    >>> noise = AddedNoise(sensitivity=1, epsilon=0.5, whole=True)
    >>> str(noise.event)
    'discrete Laplace noise of scale 2 on a sensitivity of 1'
    >>> noise.half_width(0.95)
    6.0
    >>> released = noise.release(100)
    """

    sensitivity: float
    epsilon: float
    delta: float = 0.0
    changes: int = 1
    whole: bool = False
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("the sensitivity", self.sensitivity, least=_SMALLEST, most=_LARGEST)
        real("epsilon", self.epsilon, above=0)
        check_delta(self.delta, allow_zero=True)
        object.__setattr__(self, "changes", whole("the count of numbers that a record changes", self.changes))
        if self.whole and not float(self.sensitivity).is_integer():
            raise OptionError(f"the sensitivity of a whole-number answer must be whole, got {self.sensitivity!r}")

    @cached_property
    def step(self) -> float:
        """The step of the grid: 1, or a power of two far below the noise scale."""
        if self.whole:
            return 1.0
        finest = math.log2(self.sensitivity) - _FINEST
        return 2.0 ** math.floor(max(math.log2(self.sensitivity * self.changes / self.epsilon) - _FINE, finest))

    @cached_property
    def units(self) -> int:
        """The sensitivity in grid steps, including one step for rounding."""
        return int(self.sensitivity) if self.whole else math.ceil(self.sensitivity / self.step) + 1

    @cached_property
    def event(self) -> Event:
        """The noise as an event, in grid steps."""
        if self.delta:
            return _repeated(DiscreteGaussian(self._scale, self.units, self.relation), self.changes)
        return DiscreteLaplace(self._scale, self.units * self.changes, self.relation)

    @cached_property
    def _scale(self) -> float:
        """The noise scale in grid steps."""
        if self.delta:
            return _gaussian_scale(self.units, self.changes, self.epsilon, self.delta)
        change = self.units * self.changes
        scale = change / self.epsilon
        while change / scale > self.epsilon:  # rounding must not increase epsilon
            scale = math.nextafter(scale, math.inf)
        return scale

    @property
    def scale(self) -> float:
        """The noise scale in units of the answer."""
        return self._scale * self.step

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the noise in units of the answer."""
        if self.delta:
            return self.scale  # an upper bound for the discrete Gaussian
        ratio = math.exp(-1 / self._scale)
        return math.sqrt(2 * ratio) / -math.expm1(-1 / self._scale) * self.step

    def half_width(self, confidence: float) -> float:
        """Return a bound on the absolute value of the noise that holds with this probability."""
        beyond = 1 - real("the confidence", confidence, above=0, below=1)
        if self.delta:
            from scipy.special import ndtri

            return (math.ceil(-float(ndtri(beyond / 2)) * self._scale) + 1) * self.step
        # P(|x| >= m) = 2 exp(-m / scale) / (1 + exp(-1 / scale))
        farthest = self._scale * (math.log(2 / beyond) - math.log1p(math.exp(-1 / self._scale)))
        return max(0, math.ceil(farthest) - 1) * self.step

    def release(self, answer: Any, source: Source | None = None) -> Any:
        """Return an answer, a number or an array, with noise."""
        given = np.asarray(answer, dtype=np.int64 if self.whole else np.float64)
        # Python integers, unlike those of an array, cannot overflow.
        steps = [round(value) if self.whole else round(value / self.step) for value in given.reshape(-1).tolist()]
        noisy = [step if self.whole else step * self.step for step in self.release_steps(steps, source)]
        return noisy[0] if given.ndim == 0 else np.array(noisy, dtype=given.dtype).reshape(given.shape)

    def release_steps(self, steps: Sequence[int], source: Source | None = None) -> list[int]:
        """Return whole numbers of grid steps, of any size, with noise."""
        chosen = Source() if source is None else source
        draw = chosen.discrete_gaussian if self.delta else chosen.discrete_laplace
        return [step + noise for step, noise in zip(steps, draw(self._scale, len(steps)).tolist(), strict=True)]


def declared_bounds(bounds: Any) -> tuple[float, float]:
    """Return the public bounds of a number, or raise an `OptionError` if they are absent, infinite or out of order.

    Examples
    --------
    >>> declared_bounds((0, 120))
    (0.0, 120.0)
    """
    if bounds is None:
        raise OptionError(
            "the numbers need public bounds: without them one record could change an answer arbitrarily",
            hint="declare them in the schema without looking at the data, or estimate them privately with FindBounds",
        )
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise OptionError(f"the bounds must be two numbers, got {bounds!r}") from None
    if not (max(abs(low), abs(high)) <= _LARGEST / 4 and low < high):
        far = f"finite and within {_LARGEST / 4:g}"
        raise OptionError(f"the bounds must be {far}, the lower below the upper, got ({low:g}, {high:g})")
    return low, high


def _repeated(event: Event, times: int) -> Event:
    return event if times == 1 else Repeated(event, times)


@lru_cache(maxsize=1024)
def _gaussian_scale(units: int, changes: int, epsilon: float, delta: float) -> float:
    return calibrate(lambda scale: _repeated(DiscreteGaussian(scale * units, units), changes), epsilon, delta) * units

"""Noise on an answer: how much an answer can change by one record, and the noise that hides it.

All noise is in whole numbers. An answer in real numbers is put on a grid that is so fine that
it costs nothing one could notice, and so regular that nothing shows through it.
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
from sfumato.errors import OptionError, one_of

__all__ = ["AddedNoise", "Mechanism", "declared_bounds", "positive"]

_FINE = 30  # a grid has steps of the noise's scale over 2**30
_FINEST = 50  # and of the sensitivity over 2**50, however little noise there is: sums of steps are whole numbers
_SMALLEST, _LARGEST = 1e-200, 1e200  # sensitivities of which the grid has floats
_BLOCK = 1 << 16


class Mechanism(ABC):
    """Something that may be done to private data, at a price that is known before it is done."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What it costs, whatever the data is."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation under which the event holds."""
        return self.event.relation


@dataclass(frozen=True, kw_only=True)
class AddedNoise(Mechanism):
    """Noise that hides what one record changes in an answer of one or several numbers.

    With an epsilon alone the noise is discrete Laplace; with a delta it is discrete Gaussian, of
    the smallest scale that keeps the two (Balle and Wang 2018).

    Parameters
    ----------
    sensitivity : float
        The most that one number of the answer changes by one record.
    epsilon : float
    delta : float
        0 for Laplace noise.
    changes : int
        How many numbers of the answer one record changes.
    whole : bool
        Whether the answer is in whole numbers; if not, it is put on a grid.
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
        if not _SMALLEST <= positive("the sensitivity", self.sensitivity) <= _LARGEST:
            raise OptionError(f"the sensitivity must be from {_SMALLEST:g} to {_LARGEST:g}, got {self.sensitivity!r}")
        positive("epsilon", self.epsilon)
        check_delta(self.delta, allow_zero=True)
        if isinstance(self.changes, bool) or not isinstance(self.changes, int) or self.changes < 1:
            raise OptionError(f"the numbers that a record changes must be at least 1, got {self.changes!r}")
        if self.whole and not float(self.sensitivity).is_integer():
            raise OptionError(f"the sensitivity of an answer in whole numbers must be whole, got {self.sensitivity!r}")

    @cached_property
    def step(self) -> float:
        """The distance of the points of the grid: 1, or a power of two far below the scale of the noise."""
        if self.whole:
            return 1.0
        finest = math.log2(self.sensitivity) - _FINEST
        return 2.0 ** math.floor(max(math.log2(self.sensitivity * self.changes / self.epsilon) - _FINE, finest))

    @cached_property
    def units(self) -> int:
        """The sensitivity in steps; rounding to the grid may add one."""
        return int(self.sensitivity) if self.whole else math.ceil(self.sensitivity / self.step) + 1

    @cached_property
    def event(self) -> Event:
        """What is charged: the noise in steps of the grid."""
        if self.delta:
            return _repeated(DiscreteGaussian(self._scale, self.units, self.relation), self.changes)
        return DiscreteLaplace(self._scale, self.units * self.changes, self.relation)

    @cached_property
    def _scale(self) -> float:
        """The scale of the noise in steps."""
        if self.delta:
            return _gaussian_scale(self.units, self.changes, self.epsilon, self.delta)
        change = self.units * self.changes
        scale = change / self.epsilon
        while change / scale > self.epsilon:  # rounding must not cost a last digit of epsilon
            scale = math.nextafter(scale, math.inf)
        return scale

    @property
    def scale(self) -> float:
        """The scale of the noise in units of the answer."""
        return self._scale * self.step

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the noise in units of the answer."""
        if self.delta:
            return self.scale  # of a discrete Gaussian it is a little less
        ratio = math.exp(-1 / self._scale)
        return math.sqrt(2 * ratio) / -math.expm1(-1 / self._scale) * self.step

    def half_width(self, confidence: float) -> float:
        """Return how far the noise strays at most, with this probability, to either side."""
        if not 0 < confidence < 1:
            raise OptionError(f"the confidence must be a number between 0 and 1, got {confidence!r}")
        beyond = 1 - confidence
        if self.delta:
            from scipy.special import ndtri

            return (math.ceil(-float(ndtri(beyond / 2)) * self._scale) + 1) * self.step
        # P(|x| >= m) = 2 exp(-m / scale) / (1 + exp(-1 / scale))
        farthest = self._scale * (math.log(2 / beyond) - math.log1p(math.exp(-1 / self._scale)))
        return max(0, math.ceil(farthest) - 1) * self.step

    def release(self, answer: Any, source: Source | None = None) -> Any:
        """Return an answer, a number or an array of them, with noise."""
        given = np.asarray(answer, dtype=np.int64 if self.whole else np.float64)
        # Whole numbers of Python are of any size, unlike those of an array.
        steps = [round(value) if self.whole else round(value / self.step) for value in given.reshape(-1).tolist()]
        noisy = [one if self.whole else one * self.step for one in self.release_steps(steps, source)]
        return noisy[0] if given.ndim == 0 else np.array(noisy, dtype=given.dtype).reshape(given.shape)

    def release_steps(self, steps: Sequence[int], source: Source | None = None) -> list[int]:
        """Return whole numbers of steps with noise, of any size."""
        chosen = Source() if source is None else source
        draw = chosen.discrete_gaussian if self.delta else chosen.discrete_laplace
        return [one + noise for one, noise in zip(steps, draw(self._scale, len(steps)).tolist(), strict=True)]


def positive(name: str, value: Any) -> float:
    """Return a finite number above 0, or say that it is none."""
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
    if not 0 < number < math.inf:
        raise OptionError(f"{name} must be a finite number above 0, got {value!r}")
    return number


def declared_bounds(bounds: Any) -> tuple[float, float]:
    """Return the two bounds of numbers if they are declared, finite and in order.

    Examples
    --------
    >>> declared_bounds((0, 120))
    (0.0, 120.0)
    """
    if bounds is None:
        raise OptionError(
            "the numbers need public bounds: without them one record could change an answer by anything",
            hint="declare them in the schema, not read off the data, or buy them with FindBounds",
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

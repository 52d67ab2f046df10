"""Steps of DP-SGD (Abadi et al. 2016) among the private accesses of a synthesizer.

The probability with which a step draws a record is fixed beforehand, not the size of a batch: the cost of all steps is
then known before anything is read, and does not depend on the number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.budget.events import Event, Repeated
from sfumato.data.validate import real, whole
from sfumato.learners.dpsgd.sampling import Poisson
from sfumato.learners.estimators.noisy_sums import Share

__all__ = ["Steps"]


@dataclass(frozen=True)
class Steps(Share):
    """A number of steps of DP-SGD, and their worth.

    Examples
    --------
    >>> steps = Steps(200, 0.5, rate=0.05, dimensions=10_000)
    >>> noise = steps.multiplier(3.7, whole=1.0)  # for a single sum, 3.7 costs about epsilon 1
    >>> 3 < noise < 4
    True
    >>> steps.event(noise).times
    200
    """

    rate: float
    """The probability with which a step draws each record."""
    dimensions: int
    """The largest number of weights that are trained."""

    def __post_init__(self) -> None:
        whole("the number of steps", self.times)
        real("the sampling rate", self.rate, above=0, most=1)

    def multiplier(self, single: float, whole: float) -> float:
        """Return the noise multiplier of each step.

        By the central limit theorem, steps with a multiplier z cost about as much as a single sum with a multiplier of
        1 / (rate sqrt(times (exp(1 / z^2) - 1))) (Bu et al. 2020). This only divides the budget; `event` has the cost.
        """
        strength = self.worth / (whole * single**2)
        return 1 / math.sqrt(math.log1p(strength / (self.rate**2 * self.times)))

    def event(self, multiplier: float) -> Event:
        """Return the event of all steps, with the rounding of their noise."""
        return Repeated(Poisson(1, self.rate, dimensions=self.dimensions).event(multiplier), self.times)

"""Client-level privacy: every client adds its share of discrete Gaussian noise to its clipped update.

What a sum costs is a `NoiseShares` event, in steps of the grid. Neighbours differ in one client, whose update is
replaced by zero; only the ``honest`` shares that are surely in whatever the coordinator sees are counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.accounting.concentrated import rho_of_epsilon
from sfumato.budget.events import Event, NoiseShares, Repeated
from sfumato.budget.noise import Source
from sfumato.errors import InputError, OptionError
from sfumato.federation.plan import FederationPlan
from sfumato.federation.secure.fixed_point import FixedPoint

__all__ = ["ClientNoise"]

_ROOM = 1.01  # the norm of a rounded update, in clips


@dataclass(frozen=True)
class ClientNoise:
    """The noise of one client in one round.

    Examples
    --------
    >>> plan = FederationPlan(model="logistic", inputs=(4,), classes=2, level="client", epsilon=3.0, threshold=7)
    >>> noise = ClientNoise.of(plan, parties=10, weights=10)
    >>> 2.99 < noise.epsilon <= 3.0
    True
    """

    plan: FederationPlan
    code: FixedPoint
    scale: int
    weights: int

    @classmethod
    def of(cls, plan: FederationPlan, parties: int, weights: int) -> ClientNoise:
        """Calibrate the noise such that all updates together cost at most epsilon."""
        return _calibrated(plan, parties, weights)

    @property
    def sensitivity(self) -> float:
        """The largest norm of a rounded update, in steps."""
        return _ROOM * self.plan.clip / self.code.step

    @property
    def event(self) -> NoiseShares:
        """What one update costs."""
        return NoiseShares(self.scale, self.sensitivity, self.plan.shares, self.weights)

    @property
    def events(self) -> tuple[Event, ...]:
        """What all updates cost, repeated rounds included."""
        return (Repeated(self.event, self.plan.updates),)

    @property
    def epsilon(self) -> float:
        """The epsilon of all updates together."""
        return spent(self.events, self.plan.delta).epsilon

    def protect(self, update: NDArray[np.float64], source: Source) -> NDArray[np.unsignedinteger[Any]]:
        """Clip an update, round it and add this client's share of the noise."""
        if not np.isfinite(update).all():
            raise InputError("the update must be finite")
        norm = float(np.linalg.norm(update))
        clipped = update * min(1.0, self.plan.clip / norm) if norm else update
        steps = np.rint(clipped / self.code.step).astype(np.int64)
        if float(np.linalg.norm(steps.astype(np.float64))) > self.sensitivity:
            raise InputError("the rounded update is beyond its bound")
        return self.code.of_integers(steps + source.discrete_gaussian(float(self.scale), len(steps)))


@lru_cache(maxsize=16)  # each of many simulated clients asks
def _calibrated(plan: FederationPlan, parties: int, weights: int) -> ClientNoise:
    assert plan.epsilon is not None
    rho = rho_of_epsilon(plan.epsilon, plan.delta)
    share = _ROOM * plan.clip / math.sqrt(2 * rho / plan.updates) / math.sqrt(plan.shares)
    code = FixedPoint(plan.clip + 40 * share, parties)
    if code.step * math.sqrt(weights) / 2 > (_ROOM - 1) * plan.clip or share < 8 * code.step:
        raise OptionError("the grid of the updates is too coarse for this clip and this number of parties")
    made = ClientNoise(plan, code, math.ceil(share / code.step), weights)
    while made.epsilon > plan.epsilon:
        made = ClientNoise(plan, code, made.scale + max(made.scale // 10_000, 1), weights)
    return made

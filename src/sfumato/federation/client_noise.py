"""Client-level privacy: every client adds its share of discrete Gaussian noise to its clipped update.

The sum of discrete Gaussians is nearly a discrete Gaussian (Kairouz, Liu and Steinke 2021, theorem 1): with n shares
of scale s on a sum in d dimensions of sensitivity D, in steps of the grid, it is ``e**2 / 2`` zero-concentrated with
``e = D / (sqrt(n) s) + tau sqrt(d)`` and ``tau = 10 sum_{k<n} exp(-2 pi**2 s**2 k / (k + 1))``. Neighbours differ in
one client, whose update is replaced by zero; only the ``threshold`` shares that are surely there are counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.noise import Source
from sfumato.errors import InputError, OptionError
from sfumato.federation.plan import FederationPlan
from sfumato.federation.secure.fixed_point import FixedPoint

__all__ = ["ClientNoise", "epsilon_of_rho", "epsilon_of_shares", "rho_of_epsilon"]

_ROOM = 1.01  # the norm of a rounded update, in clips


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return the epsilon of zero-concentrated privacy (Canonne, Kamath and Steinke 2020, corollary 13).

    Examples
    --------
    >>> round(epsilon_of_rho(0.4, 1e-5), 3)
    4.162
    """
    orders = 1 + np.geomspace(1e-3, 1e6, 20_000)
    found = rho * orders - (np.log(delta) + np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
    return max(float(found.min()), 0.0)


def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest rho of zero-concentrated privacy that costs at most epsilon.

    Examples
    --------
    >>> round(rho_of_epsilon(4.162, 1e-5), 3)
    0.4
    """
    low, high = 1e-12, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of_rho(middle, delta) <= epsilon else (low, middle)
    return low


def epsilon_of_shares(sensitivity: float, scale: int, shares: int, dimensions: int, sums: int, delta: float) -> float:
    """Return the cost of several sums, to each of which so many shares of noise were added.

    Examples
    --------
    >>> round(epsilon_of_shares(1000, 500, shares=4, dimensions=10, sums=1, delta=1e-5), 2)
    4.73
    """
    tau = 10 * sum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, shares))
    each = sensitivity / (math.sqrt(shares) * scale) + tau * math.sqrt(dimensions)
    return epsilon_of_rho(sums * each**2 / 2, delta)


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
    def epsilon(self) -> float:
        """What all updates cost together."""
        plan = self.plan
        return epsilon_of_shares(self.sensitivity, self.scale, plan.threshold, self.weights, plan.updates, plan.delta)

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
    share = _ROOM * plan.clip / math.sqrt(2 * rho / plan.updates) / math.sqrt(plan.threshold)
    code = FixedPoint(plan.clip + 40 * share, parties)
    if code.step * math.sqrt(weights) / 2 > (_ROOM - 1) * plan.clip or share < 8 * code.step:
        raise OptionError("the grid of the updates is too coarse for this clip and this number of parties")
    made = ClientNoise(plan, code, math.ceil(share / code.step), weights)
    while made.epsilon > plan.epsilon:
        made = ClientNoise(plan, code, made.scale + max(made.scale // 10_000, 1), weights)
    return made

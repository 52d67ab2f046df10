"""Zero-concentrated privacy: events known only by their rho, which add up (Bun and Steinke 2016)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from sfumato.budget.accounting.pld import distinct_events
from sfumato.budget.events import Event, NoiseShares
from sfumato.errors import OptionError

__all__ = ["epsilon_of_rho", "rho_of", "rho_of_epsilon"]


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


def rho_of(events: Iterable[Event]) -> float | None:
    """Return the sum of the rhos of events, if they are known by it; None if none of them is.

    Examples
    --------
    >>> from sfumato.budget import Gaussian, Repeated
    >>> share = NoiseShares(scale=40, sensitivity=100, shares=7, numbers=1000)
    >>> round(rho_of([Repeated(share, 3)]) / share.rho, 6), rho_of([Gaussian(1.0)])
    (3.0, None)
    """
    times = distinct_events(events)
    shares = [one for one in times if isinstance(one, NoiseShares)]
    if not shares:
        return None
    if len(shares) < len(times):
        raise OptionError("shares of noise and events of other kinds have no common epsilon, except by Renyi privacy")
    return math.fsum(one.rho * times[one] for one in shares)

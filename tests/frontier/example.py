"""A made-up frontier with every kind of protection, for tests of what is shown of it."""

from __future__ import annotations

import numpy as np

from sfumato.frontier.sweep.choose import Limits
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.frontier.sweep.grid import DEFAULTS, candidates_of
from sfumato.frontier.sweep.point import Figure, Point, with_common_spread

__all__ = ["example"]


def example(*, more: tuple[str, ...] = (), name: str = "people.csv", seed: int = 0) -> Frontier:
    """Return the default grid, and more protections, with plausible numbers."""
    rng = np.random.default_rng(seed)
    points = []
    for one in candidates_of((*DEFAULTS, *more)):
        k, epsilon = one.number("k") or 1.0, one.number("epsilon")
        blur = 0.01 * np.log10(k) + (0 if epsilon is None else 0.02 / epsilon**0.5)
        gain = 0.15 if one.name == "raw" else 0.02 / k

        def figure(value: float, spread: float = 0.003) -> Figure:
            return Figure(tuple(value + spread * rng.normal(size=3)), 0.003)

        risk = {
            "re_identification": figure(1 / k if one.publishes_rows and epsilon is None else 0, 0),
            "membership_auc": figure(0.5 + gain),
            "membership_advantage": figure(gain),
        }
        if one.publishes_rows:
            risk |= {"linkage": figure(0.9 / k), "attribute_inference": figure(0.1 / k)}
        utility = {"accuracy": figure(0.855 - blur), "auc": figure(0.91 - blur)}
        utility |= {"query_error": figure(blur, 0.001), "mean_age.old": figure(38 + blur)} if one.publishes_rows else {}
        across = np.geomspace(1e-4, 1, 33)
        roc = tuple(zip(across.tolist(), (across ** (1 - gain)).tolist(), strict=True))
        points.append(
            Point(
                one, risk, utility, float(rng.uniform(0.2, 4)), roc, tuple(f"{rng.bytes(20).hex()}" for _ in range(3))
            )
        )
    facts = {
        "name": name,
        "rows": 48_842,
        "target": "income",
        "qi": ["age", "sex"],
        "models": ["forest"],
        "attacks": ["loss", "gap"],
        "seeds": [0, 1, 2],
        "considered": len(points),
    }
    skipped = {"lattice:k=5000": "no generalization reaches k=5000"}
    return Frontier(with_common_spread(points), facts, skipped, limits=Limits(max_risk=0.09, max_advantage=0.05))

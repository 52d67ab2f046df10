"""What a synthetic table will cost: every private access, known before the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.budget.accounting.accountant import Spent, calibrate, spent
from sfumato.budget.events import Composed, Event
from sfumato.budget.query.discovery import FindBounds, SelectCategories
from sfumato.learners.estimators.features import Feature, Undeclared
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

__all__ = ["Plan", "Purchase", "mechanisms", "multiplier"]

_FOR_COLUMNS = 0.1  # the share of epsilon, and of delta, for undeclared bounds and domains


@dataclass(frozen=True)
class Purchase:
    """One private access: its purpose, and the event that it is charged with."""

    name: str
    event: Event
    share: float
    """Its share of the budget: of epsilon for the description of a column, else of what is left."""


@dataclass(frozen=True)
class Plan:
    """All purchases of a synthetic table.

    Examples
    --------
    >>> plan = Plan.of({}, [], {"cells": Share(1, 0.5), "pairs": Share(1, 0.5)}, 10.0)
    >>> [(one.name, one.share) for one in plan.purchases]
    [('cells', 0.5), ('pairs', 0.5)]
    >>> 0.3 < plan.spent(1e-5).epsilon < 0.4
    True
    """

    purchases: tuple[Purchase, ...]

    @classmethod
    def of(
        cls,
        columns: Mapping[int, FindBounds | SelectCategories],
        names: Sequence[str],
        shares: Mapping[str, Share],
        noise: float,
    ) -> Plan:
        """Return the plan of mechanisms that describe columns, and of shares with one noise multiplier."""
        bought = [
            Purchase(f"{'bounds' if isinstance(one, FindBounds) else 'domain'} of {names[at]}", one.event, one.epsilon)
            for at, one in columns.items()
        ]
        whole = sum(one.worth for one in shares.values())
        events = NoisySums(shares, noise, None).events  # type: ignore[arg-type]  # nothing is drawn
        sums = [
            Purchase(name, event, one.worth / whole) for (name, one), event in zip(shares.items(), events, strict=True)
        ]
        return cls((*bought, *sums))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all purchases."""
        return tuple(one.event for one in self.purchases)

    def spent(self, delta: float) -> Spent:
        """Return what all purchases cost together."""
        return spent(self.events, delta)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the purchases as plain values."""
        return [{"name": one.name, "share": one.share, "event": one.event.to_dict()} for one in self.purchases]


def mechanisms(
    public: Sequence[Feature | Undeclared], epsilon: float, delta: float
) -> dict[int, FindBounds | SelectCategories]:
    """Return the mechanisms that describe the undeclared columns, by position."""
    wanted = {at: one for at, one in enumerate(public) if isinstance(one, Undeclared)}
    categories = sum(not one.is_number for one in wanted.values())
    return {
        at: one.mechanism(_FOR_COLUMNS * epsilon / len(wanted), _FOR_COLUMNS * delta / max(categories, 1))
        for at, one in wanted.items()
    }


def multiplier(before: Sequence[Event], shares: Mapping[str, Share], epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier with which the shares cost at most epsilon together with earlier events."""

    def events(scale: float) -> Event:
        return Composed((*before, *NoisySums(shares, scale, None).events))  # type: ignore[arg-type]  # nothing is drawn

    return calibrate(events, epsilon, delta)

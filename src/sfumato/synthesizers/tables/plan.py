"""What a synthetic table will cost: every private access, known before the first one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sfumato.budget.accounting.accountant import Spent, calibrate, spent
from sfumato.budget.events import Composed, Event
from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import SelectCategories
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.tables.base import Synthesizer
from sfumato.synthesizers.tables.description import SHARE, Described, selections
from sfumato.synthesizers.tables.description import shares as description_shares

__all__ = ["Plan", "Purchase", "multiplier", "plan_of"]

_SHOWN = 3  # columns in the name of a purchase


@dataclass(frozen=True)
class Purchase:
    """One private access: its purpose, and the event that it is charged with."""

    name: str
    event: Event
    share: float
    """Its share of the budget: of epsilon for the description of a column, else of what is left."""
    describes: bool = False
    """Whether it finds out what the schema does not declare, or is a sum over the records."""

    def to_dict(self) -> dict[str, Any]:
        """Return the purchase as plain values."""
        return {"name": self.name, "share": self.share, "event": self.event.to_dict()}


@dataclass(frozen=True)
class Plan:
    """All purchases of a synthetic table.

    Attributes
    ----------
    epsilon, delta : what all purchases may cost together
    columns : the mechanisms that select categories, by column
    shares : the kinds of noisy sums
    noise : the noise multiplier of a single sum that would cost as much as all sums
    bought : what was bought of each undeclared column: domain, bounds or decimals

    Examples
    --------
    >>> plan = Plan(0.4, 1e-5, {}, {"cells": Share(1, 0.5), "pairs": Share(1, 0.5)}, 10.0)
    >>> [(one.name, one.share) for one in plan.purchases]
    [('cells', 0.5), ('pairs', 0.5)]
    >>> 0.3 < plan.spent.epsilon < 0.4
    True
    """

    epsilon: float
    delta: float
    columns: Mapping[str, SelectCategories]
    shares: Mapping[str, Share]
    noise: float
    bought: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def purchases(self) -> tuple[Purchase, ...]:
        """Every private access, in the order in which they are made."""
        found = [
            Purchase(f"domain of {name}", one.event, one.epsilon / self.epsilon, describes=True)
            for name, one in self.columns.items()
        ]
        whole = math.fsum(one.worth for one in self.shares.values())
        events = self.sums(Source()).events
        found += [
            Purchase(self._described if name == SHARE else name, event, one.worth / whole, name == SHARE)
            for (name, one), event in zip(self.shares.items(), events, strict=True)
        ]
        return tuple(found)

    @property
    def _described(self) -> str:
        """What the noisy sum that describes numbers is for."""
        parts = []
        for what in ("bounds", "decimals"):
            names = [name for name, bought in self.bought.items() if what in bought]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            parts += [f"{what} of {', '.join(names[:_SHOWN])}{more}"] if names else []
        return ", ".join(parts)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all purchases."""
        return tuple(one.event for one in self.purchases)

    @property
    def event(self) -> Event:
        """All purchases as one event."""
        return self.events[0] if len(self.events) == 1 else Composed(self.events)

    @cached_property
    def spent(self) -> Spent:
        """What all purchases cost together."""
        return spent(self.events, self.delta)

    def sums(self, source: Source) -> NoisySums:
        """Return the noisy sums that are paid for."""
        return NoisySums(self.shares, self.noise, source)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the purchases as plain values."""
        return [one.to_dict() for one in self.purchases]


def plan_of(
    method: Synthesizer,
    described: Sequence[Described],
    label: int | None,
    epsilon: float,
    delta: float,
    *,
    scans: bool = True,
    noise: float | None = None,
) -> Plan:
    """Return the plan of a method for a table; it depends on nothing that is private.

    Parameters
    ----------
    method : Synthesizer
    described : sequence of Described
        What is declared of each column; the rest is bought.
    label : int, optional
        The position of the label.
    epsilon, delta : float
    scans : bool
        Whether the records can be read, not only counted.
    noise : float, optional
        The noise multiplier, if it is known; by default the smallest one that costs at most epsilon.
    """
    chosen = selections(described, epsilon, delta)
    # The shares must not depend on what is bought: an undeclared number may turn out to be wide.
    asked = method.shares([one.axis for one in described], label, scans=scans)
    shares = {**description_shares(described, math.fsum(one.worth for one in asked.values())), **asked}
    if noise is None:
        noise = multiplier([one.event for one in chosen.values()], shares, epsilon, delta)
    bought = {one.name: one.bought for one in described if one.bought}
    return Plan(epsilon, delta, chosen, shares, noise, bought)


def multiplier(before: Sequence[Event], shares: Mapping[str, Share], epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier with which the shares cost at most epsilon together with earlier events."""

    def events(scale: float) -> Event:
        return Composed((*before, *NoisySums(shares, scale, Source()).events))

    return calibrate(events, epsilon, delta)

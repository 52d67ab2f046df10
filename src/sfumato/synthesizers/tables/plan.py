"""What a synthetic table will cost: every private access, known before the first one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfumato.budget.accounting.accountant import Spent, calibrate, spent
from sfumato.budget.events import Composed, Event
from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import FindBounds, SelectCategories
from sfumato.learners.estimators.features import Feature, Undeclared
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.tables.base import Axis, Synthesizer
from sfumato.synthesizers.tables.cells import NARROW

__all__ = ["Plan", "Purchase", "multiplier", "plan_of"]

_FOR_COLUMNS = 0.1  # the share of epsilon, and of delta, for undeclared bounds and domains


@dataclass(frozen=True)
class Purchase:
    """One private access: its purpose, and the event that it is charged with."""

    name: str
    event: Event
    share: float
    """Its share of the budget: of epsilon for the description of a column, else of what is left."""
    column: str | None = None
    """The column that it describes; None if it is a sum over the records."""

    def to_dict(self) -> dict[str, Any]:
        """Return the purchase as plain values."""
        column = {} if self.column is None else {"column": self.column}
        return {"name": self.name, **column, "share": self.share, "event": self.event.to_dict()}


@dataclass(frozen=True)
class Plan:
    """All purchases of a synthetic table.

    Attributes
    ----------
    epsilon, delta : what all purchases may cost together
    columns : the mechanisms that describe undeclared columns, by name
    shares : the kinds of noisy sums
    noise : the noise multiplier of a single sum that would cost as much as all sums

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
    columns: Mapping[str, FindBounds | SelectCategories]
    shares: Mapping[str, Share]
    noise: float

    @cached_property
    def purchases(self) -> tuple[Purchase, ...]:
        """Every private access, in the order in which they are made."""
        found = [
            Purchase(
                f"{'bounds' if isinstance(one, FindBounds) else 'domain'} of {name}",
                one.event,
                one.epsilon / self.epsilon,
                name,
            )
            for name, one in self.columns.items()
        ]
        whole = math.fsum(one.worth for one in self.shares.values())
        events = self.sums(Source()).events
        found += [
            Purchase(name, event, one.worth / whole)
            for (name, one), event in zip(self.shares.items(), events, strict=True)
        ]
        return tuple(found)

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
    described: Sequence[Feature | Undeclared],
    axes: Mapping[str, Axis],
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
    described : sequence of Feature or Undeclared
        What is declared of each column; the rest is bought.
    axes : mapping of str to Axis
        The axes of the declared columns.
    label : int, optional
        The position of the label.
    epsilon, delta : float
    scans : bool
        Whether the records can be read, not only counted.
    noise : float, optional
        The noise multiplier, if it is known; by default the smallest one that costs at most epsilon.
    """
    wanted = [one for one in described if isinstance(one, Undeclared)]
    categories = sum(not one.is_number for one in wanted)
    bought = {
        one.name: one.mechanism(_FOR_COLUMNS * epsilon / len(wanted), _FOR_COLUMNS * delta / max(categories, 1))
        for one in wanted
    }
    # The shares must not depend on what is bought: an undeclared number may turn out to be wide.
    expected = [_widest(one) if isinstance(one, Undeclared) else axes[one.name] for one in described]
    shares = method.shares(expected, label, scans=scans)
    if noise is None:
        noise = multiplier([one.event for one in bought.values()], shares, epsilon, delta)
    return Plan(epsilon, delta, bought, dict(shares), noise)


def _widest(one: Undeclared) -> Axis:
    """Return the widest axis that an undeclared column may get."""
    return Axis(one.name, 2 * NARROW + 1 if one.is_number else 2, one.is_number)


def multiplier(before: Sequence[Event], shares: Mapping[str, Share], epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier with which the shares cost at most epsilon together with earlier events."""

    def events(scale: float) -> Event:
        return Composed((*before, *NoisySums(shares, scale, Source()).events))

    return calibrate(events, epsilon, delta)

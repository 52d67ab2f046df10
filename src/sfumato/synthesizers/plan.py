"""What a generator will cost: every private access, known before the first one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from sfumato.budget.accounting.accountant import Spent, calibrate, spent
from sfumato.budget.events import Composed, Event, Relation
from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

__all__ = ["Plan", "Purchase", "derived", "multiplier"]


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
    """All purchases of a generator.

    Attributes
    ----------
    epsilon, delta : what all purchases may cost together
    shares : the kinds of noisy sums
    noise : the noise multiplier of a single sum that would cost as much as all sums
    rows_per_person : how many rows of a person are read, if people are protected; noise is as many times as large

    Examples
    --------
    >>> plan = Plan(0.4, 1e-5, {"cells": Share(1, 0.5), "pairs": Share(1, 0.5)}, 10.0)
    >>> [(one.name, one.share) for one in plan.purchases]
    [('cells', 0.5), ('pairs', 0.5)]
    >>> 0.3 < plan.spent.epsilon < 0.4
    True
    """

    epsilon: float
    delta: float
    shares: Mapping[str, Share]
    noise: float
    rows_per_person: int | None = None

    @property
    def unit(self) -> str:
        """What is protected: a row, or a person."""
        return self.events[0].unit

    @property
    def beforehand(self) -> tuple[Purchase, ...]:
        """What is bought before the first sum."""
        return ()

    def purchase(self, name: str, event: Event, share: float) -> Purchase:
        """Return a kind of sum as a purchase."""
        return Purchase(name, event, share)

    @cached_property
    def purchases(self) -> tuple[Purchase, ...]:
        """Every private access, in the order in which they are made."""
        whole = math.fsum(one.worth for one in self.shares.values())
        events = self.sums(Source()).events
        kinds = zip(self.shares.items(), events, strict=True)
        return (*self.beforehand, *(self.purchase(name, event, one.worth / whole) for (name, one), event in kinds))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all purchases."""
        return tuple(one.event for one in self.purchases)

    @property
    def event(self) -> Event:
        """All purchases as one event."""
        return self.events[0] if len(self.events) == 1 else Composed(self.events)

    @property
    def relation(self) -> Relation:
        """Which data sets are neighbours; known without accounting."""
        return self.events[0].relation

    @cached_property
    def spent(self) -> Spent:
        """What all purchases cost together."""
        return spent(self.events, self.delta)

    def sums(self, source: Source) -> NoisySums:
        """Return the noisy sums that are paid for."""
        return NoisySums(self.shares, self.noise, source, rows_per_person=self.rows_per_person)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the purchases as plain values."""
        return [one.to_dict() for one in self.purchases]


_P = TypeVar("_P", bound=Plan)


def derived(plan: _P) -> _P:
    """Return a plan of a stranger's numbers whose events could be derived, or raise an error.

    Examples
    --------
    >>> derived(Plan(1.0, 1e-5, {"cells": Share(1, 1.0)}, 4.0)).noise
    4.0
    """
    try:
        if plan.events:
            return plan
    except ArithmeticError as error:  # a noise multiplier that is nearly zero or infinite
        raise InputError(f"the events of noise {plan.noise:g} cannot be derived") from error
    raise InputError("the generator has bought nothing")


def multiplier(
    before: Sequence[Event],
    shares: Mapping[str, Share],
    epsilon: float,
    delta: float,
    *,
    rows_per_person: int | None = None,
) -> float:
    """Return the smallest noise multiplier with which the shares cost at most epsilon together with earlier events."""

    def events(scale: float) -> Event:
        return Composed((*before, *NoisySums(shares, scale, Source(), rows_per_person=rows_per_person).events))

    return calibrate(events, epsilon, delta)

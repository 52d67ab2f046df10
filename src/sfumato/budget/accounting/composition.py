"""Derived events: under another relation, for groups of records, and after post-processing."""

from __future__ import annotations

import math
from dataclasses import replace

from sfumato.budget.events import (
    ApproximateEvent,
    Composed,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    NoiseEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    Selected,
    Shuffled,
)
from sfumato.data.validate import whole
from sfumato.errors import OptionError

__all__ = ["group", "post_process", "replace_one"]


def replace_one(event: Event) -> Event:
    """Convert an event to replace-one: replacing a record is removing one and adding one.

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> replace_one(Gaussian(1.2)) == Gaussian(1.2, sensitivity=2, relation="replace-one")
    True
    """
    return event if event.relation is Relation.REPLACE_ONE else _changed(event, 2, Relation.REPLACE_ONE)


def group(event: Event, size: int) -> Event:
    """Return the event for a group of records that are present or absent together (group privacy).

    Sampled events are rejected, because a sample may include only some records of a group.

    Examples
    --------
    >>> from sfumato.budget import PureEvent
    >>> group(PureEvent(0.1), 3).epsilon
    0.30000000000000004
    """
    size = whole("the size of a group", size)
    return event if size == 1 else _changed(event, size, event.relation)


def post_process(event: Event) -> Event:
    """Return the same event: processing its answer without access to the data costs nothing.

    Examples
    --------
    >>> from sfumato.budget import Laplace
    >>> post_process(Laplace(2.0))
    Laplace(scale=2.0, sensitivity=1.0, relation=<Relation.ADD_REMOVE: 'add-remove'>)
    """
    return event


def _changed(event: Event, records: int, relation: Relation) -> Event:
    """Return the event for a change of several records, under a relation."""
    match event:
        case NoiseEvent():
            return replace(event, sensitivity=event.sensitivity * records, relation=relation)
        case PureEvent():
            return replace(event, epsilon=event.epsilon * records, relation=relation)
        case ApproximateEvent():
            # Changing one record at a time, each later step multiplies the accumulated delta by exp(epsilon).
            delta = math.fsum(event.delta * math.exp(min(step * event.epsilon, 700.0)) for step in range(records))
            if delta >= 1:
                raise OptionError(f"for {records} records the delta of this event would be 1 or more: {event}")
            return replace(event, epsilon=event.epsilon * records, delta=delta, relation=relation)
        case Repeated() | Shuffled() | Selected():
            return replace(event, event=_changed(event.event, records, relation))
        case Composed():
            return Composed(tuple(_changed(one, records, relation) for one in event.events))
        case PoissonSampled(event=Gaussian()) if relation is not event.relation:
            return replace(event, event=_changed(event.event, records, relation))
        case Parallel() if len(set(event.events)) == 1:
            # The records may be in one part or in several; for these events the worst case is a single part.
            if isinstance(event.events[0], Laplace | Gaussian | DiscreteLaplace | PureEvent):
                return _changed(event.events[0], records, relation)
    raise OptionError(f"no bound is known when several records change in this event: {event}")

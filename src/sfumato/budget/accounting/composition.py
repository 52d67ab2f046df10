"""What follows from an event: under another relation, for several records at once, for what is made of its answer."""

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
from sfumato.errors import OptionError

__all__ = ["group", "post_process", "replace_one"]


def replace_one(event: Event) -> Event:
    """Return the event under replace-one: a replaced record is one removed and one added.

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> replace_one(Gaussian(1.2)) == Gaussian(1.2, sensitivity=2, relation="replace-one")
    True
    """
    return event if event.relation is Relation.REPLACE_ONE else _changed(event, 2, Relation.REPLACE_ONE)


def group(event: Event, size: int) -> Event:
    """Return what the event is for a group of several records that are present or absent together.

    A sample treats the records of a group apart, so sampled events are refused.

    Examples
    --------
    >>> from sfumato.budget import PureEvent
    >>> group(PureEvent(0.1), 3).epsilon
    0.30000000000000004
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise OptionError(f"the size of a group must be a whole number of at least 1, got {size!r}")
    return event if size == 1 else _changed(event, size, event.relation)


def post_process(event: Event) -> Event:
    """Return the event again: whatever is made of its answer without looking at the data costs nothing more.

    Examples
    --------
    >>> from sfumato.budget import Laplace
    >>> post_process(Laplace(2.0))
    Laplace(scale=2.0, sensitivity=1.0, relation=<Relation.ADD_REMOVE: 'add-remove'>)
    """
    return event


def _changed(event: Event, records: int, relation: Relation) -> Event:
    """Return the event when so many records change, under a relation."""
    match event:
        case NoiseEvent():
            return replace(event, sensitivity=event.sensitivity * records, relation=relation)
        case PureEvent():
            return replace(event, epsilon=event.epsilon * records, relation=relation)
        case ApproximateEvent():
            # From table to table, the delta of each step is carried through the steps after it.
            delta = math.fsum(event.delta * math.exp(min(step * event.epsilon, 700.0)) for step in range(records))
            if delta >= 1:
                raise OptionError(f"for {records} records the delta of this event would be 1 or more: {event}")
            return ApproximateEvent(event.epsilon * records, delta, relation)
        case Repeated() | Shuffled() | Selected():
            return replace(event, event=_changed(event.event, records, relation))
        case Composed():
            return Composed(tuple(_changed(one, records, relation) for one in event.events))
        case PoissonSampled(event=Gaussian()) if relation is not event.relation:
            return replace(event, event=_changed(event.event, records, relation))
        case Parallel() if len(set(event.events)) == 1:
            # The records may be in one part or in several; for these events one part is the worst.
            if isinstance(event.events[0], Laplace | Gaussian | DiscreteLaplace | PureEvent):
                return _changed(event.events[0], records, relation)
    raise OptionError(f"no bound is known when several records change in this event: {event}")

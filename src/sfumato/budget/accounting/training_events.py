"""The steps of a training as events, and whether recorded events hold the steps that a certificate states.

A certificate states the noise, the samples and the number of steps beside the events. `step_event` is the one place
where a step becomes an event: samplers charge by it, and `uncharged` finds the steps that events leave out.
Events may hold more than the steps (bought columns, a score, the chance that a sample is too large): more events
never cost less, so nothing but the missing ones matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from sfumato.budget.events import (
    ApproximateEvent,
    Composed,
    Event,
    Gaussian,
    Parallel,
    PoissonSampled,
    Repeated,
    Shuffled,
)
from sfumato.budget.mechanisms.rounded_gaussian import rounding_event
from sfumato.errors import InputError

__all__ = ["step_event", "uncharged"]

_MOST_WAYS = 64  # through events on separate parts of the records; ours have one or two
_CLOSE = 1 - 1e-9  # numbers are compared as they were written


def step_event(kind: str, rate: float, noise_multiplier: float) -> Event:
    """Return the event of one step: noise on the sum of clipped gradients over a sample.

    Parameters
    ----------
    kind : {"poisson", "full"}
        How the step samples: each record by its own coin, or all of them.
    rate : float
        The chance of each record to be sampled.
    noise_multiplier : float
        The deviation of the noise, in clips.

    Examples
    --------
    >>> print(step_event("poisson", 0.01, 1.2))
    on a Poisson sample of rate 0.01: Gaussian noise of scale 1.2 on a sensitivity of 1
    """
    if kind == "poisson":
        return PoissonSampled(rate, Gaussian(noise_multiplier))
    if kind == "full" and rate == 1:
        return Gaussian(noise_multiplier)
    raise InputError(f"a step samples as poisson, or full at a rate of 1, got {kind!r} at a rate of {rate!r}")


def uncharged(
    events: Iterable[Event],
    *,
    sampling: Mapping[str, Any],
    noise_multiplier: float,
    each: bool,
    varies: bool = False,
    dimensions: int = 0,
) -> str:
    """Say what events leave out of the steps that are stated; an empty text if nothing.

    Parameters
    ----------
    events : iterable of Event
    sampling : mapping
        ``kind``, ``rate`` and ``steps``; and ``size``, if what a sample has beyond it is left out.
    noise_multiplier : float
        That of each step, or of a single sum that costs as much as all of them.
    each : bool
        Which of the two.
    varies : bool
        Whether steps may have other noise, and the last one has this.
    dimensions : int
        How many numbers get noise in a step, at least: each step is charged for what their floats miss of ideal noise.

    Examples
    --------
    >>> from sfumato.budget import Repeated
    >>> sampling = {"kind": "full", "rate": 1.0, "steps": 16}
    >>> uncharged([Repeated(Gaussian(2.0), 16)], sampling=sampling, noise_multiplier=2.0, each=True)
    ''
    >>> uncharged([Gaussian(2.0)], sampling=sampling, noise_multiplier=2.0, each=True)
    'they hold 1 of 16 steps with this noise'
    """
    step = step_event(sampling["kind"], sampling["rate"], noise_multiplier)
    steps = sampling["steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError("the number of steps must be a whole number of at least 1")
    lacking = list[str]()
    for way in _ways(tuple(events)):
        if each:
            lacks = _steps_missing(way, step, steps, varies)
            lacks = lacks or _extras_missing(way, steps, "size" in sampling, noise_multiplier, dimensions)
        else:
            lacks = _sums_missing(way, noise_multiplier, steps)
        if not lacks:
            return ""
        lacking.append(lacks)
    return lacking[0]


def _steps_missing(way: Counter[Event], step: Event, steps: int, varies: bool) -> str:
    if varies:
        like = sum(count for event, count in way.items() if _shape(event) == _shape(step))
        return "" if like >= steps and way[step] else f"they hold {like:,} of {steps:,} steps, or none with this noise"
    return "" if way[step] >= steps else f"they hold {way[step]:,} of {steps:,} steps with this noise"


def _shape(event: Event) -> tuple[Any, ...]:
    """Return what all steps of a training share, whatever their noise."""
    if isinstance(event, PoissonSampled) and isinstance(event.event, Gaussian):
        return (event.rate, *_shape(event.event))
    return (event.sensitivity, event.relation) if isinstance(event, Gaussian) else (type(event), event)


def _extras_missing(way: Counter[Event], steps: int, cut: bool, noise_multiplier: float, dimensions: int) -> str:
    """Find the charges of every step for what its sample leaves out, and for what floats miss of ideal noise."""
    small = {event: count for event, count in way.items() if isinstance(event, ApproximateEvent)}
    if cut and sum(count for event, count in small.items() if event.epsilon == 0) < steps:
        return "no chance of a sample beyond its size is charged"
    if not dimensions:
        return ""
    least = rounding_event(dimensions, noise_multiplier).epsilon  # its delta may be of more noise than the last step's
    rounded = sum(count for event, count in small.items() if event.epsilon >= least)
    return "" if rounded >= steps else "what floats miss of ideal noise is not charged"


def _sums_missing(way: Counter[Event], noise_multiplier: float, steps: int) -> str:
    """Compare noisy sums with the one that costs as much: the squares of one over the multipliers add up."""
    sums = {event: count for event, count in way.items() if isinstance(event, Gaussian)}
    strength = math.fsum(count / event.noise_multiplier**2 for event, count in sums.items())
    if sum(sums.values()) < steps:
        return f"they hold {sum(sums.values()):,} of {steps:,} noisy sums"
    if strength < _CLOSE / noise_multiplier**2:
        return f"they have the noise of {1 / math.sqrt(strength):g}, not {noise_multiplier:g}"
    return ""


def _ways(events: tuple[Event, ...]) -> Iterator[Counter[Event]]:
    """Count the events that one record meets: of separate parts of the records, it is in one."""
    parts = [_alternatives(event) for event in events]
    if math.prod(map(len, parts)) > _MOST_WAYS:
        raise InputError(f"the events have more than {_MOST_WAYS} ways through separate parts of the records")
    for way in product(*parts):
        met: Counter[Event] = Counter()
        for one in way:
            met.update(one)
        yield met


def _alternatives(event: Event) -> list[Counter[Event]]:
    match event:
        case Repeated():
            return [
                Counter({one: count * event.times for one, count in way.items()}) for way in _alternatives(event.event)
            ]
        case Shuffled():
            return _alternatives(event.event)
        case Composed():
            return list(_ways(event.events))
        case Parallel():
            found = [way for one in event.events for way in _alternatives(one)]
            if len(found) > _MOST_WAYS:
                raise InputError(f"the events have more than {_MOST_WAYS} ways through separate parts of the records")
            return found
    return [Counter([event])]

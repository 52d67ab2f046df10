"""The events of training steps, and whether recorded events cover the steps that a certificate states.

A certificate states the noise, the sampling and the number of steps as well as the events. `step_event` is the one
place that turns a step into an event: samplers charge it, and `missing_charges` finds steps without a charge.
Events may cover more than the steps (columns, a score, the probability of an oversized sample). More events never
cost less, so only missing ones matter.
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
from sfumato.budget.noise import rounding_event
from sfumato.data.certificate import UNIT
from sfumato.data.validate import whole
from sfumato.errors import InputError

__all__ = ["missing_charges", "step_event"]

_MOST_WAYS = 64  # combinations of disjoint parts; Sfumato records one or two
_CLOSE = 1 - 1e-9  # tolerance for numbers that were written as text


def step_event(kind: str, rate: float, noise_multiplier: float, unit: str = UNIT) -> Event:
    """Return the event of one step: noise on the sum of clipped gradients over a sample.

    Parameters
    ----------
    kind : {"poisson", "full"}
        How the step samples: each record independently, or all records.
    rate : float
        The sampling probability of each record.
    noise_multiplier : float
        The standard deviation of the noise, in units of the clipping norm.
    unit : str
        What is sampled and clipped: each record ("row"), or all rows of each "person" together.

    Examples
    --------
    >>> print(step_event("poisson", 0.01, 1.2))
    on a Poisson sample of rate 0.01: Gaussian noise of scale 1.2 on a sensitivity of 1
    """
    if kind == "poisson":
        return PoissonSampled(rate, Gaussian(noise_multiplier, unit=unit))
    if kind == "full" and rate == 1:
        return Gaussian(noise_multiplier, unit=unit)
    raise InputError(f"the sampling of a step must be poisson, or full at a rate of 1, got {kind!r} at {rate!r}")


def missing_charges(
    events: Iterable[Event],
    *,
    sampling: Mapping[str, Any],
    noise_multiplier: float,
    each: bool,
    varies: bool = False,
    dimensions: int = 0,
    unit: str = UNIT,
) -> str:
    """Describe which of the stated steps the events do not cover; return an empty text if they cover all.

    Parameters
    ----------
    events : iterable of Event
    sampling : mapping
        ``kind``, ``rate`` and ``steps``; also ``size`` if samples are truncated to that size.
    noise_multiplier : float
        The noise multiplier of each step, or that of one sum with the cost of all steps together.
    each : bool
        True for each step, False for one sum.
    varies : bool
        Whether the noise varies between steps; the noise multiplier is then that of the last step.
    dimensions : int
        A lower bound on the number of noisy values per step, from which the charge for float rounding follows.
    unit : str
        What the steps protect.

    Examples
    --------
    >>> from sfumato.budget import Repeated
    >>> sampling = {"kind": "full", "rate": 1.0, "steps": 16}
    >>> missing_charges([Repeated(Gaussian(2.0), 16)], sampling=sampling, noise_multiplier=2.0, each=True)
    ''
    >>> missing_charges([Gaussian(2.0)], sampling=sampling, noise_multiplier=2.0, each=True)
    'they hold 1 of 16 steps with this noise'
    """
    step = step_event(sampling["kind"], sampling["rate"], noise_multiplier, unit)
    steps = whole("the number of steps", sampling["steps"])
    findings = list[str]()
    for way in _ways(tuple(events)):
        if each:
            missing = _steps_missing(way, step, steps, varies)
            missing = missing or _extras_missing(way, steps, "size" in sampling, noise_multiplier, dimensions)
        else:
            missing = _sums_missing(way, noise_multiplier, steps)
        if not missing:
            return ""
        findings.append(missing)
    return findings[0]


def _steps_missing(way: Counter[Event], step: Event, steps: int, varies: bool) -> str:
    if varies:
        like = sum(count for event, count in way.items() if _shape(event) == _shape(step))
        return "" if like >= steps and way[step] else f"they hold {like:,} of {steps:,} steps, or none with this noise"
    return "" if way[step] >= steps else f"they hold {way[step]:,} of {steps:,} steps with this noise"


def _shape(event: Event) -> tuple[Any, ...]:
    """Return the parameters that all steps of a training share regardless of their noise."""
    if isinstance(event, PoissonSampled) and isinstance(event.event, Gaussian):
        return (event.rate, *_shape(event.event))
    return (event.sensitivity, event.relation, event.unit) if isinstance(event, Gaussian) else (type(event), event)


def _extras_missing(way: Counter[Event], steps: int, cut: bool, noise_multiplier: float, dimensions: int) -> str:
    """Describe missing charges per step for truncated samples and for the float rounding of the noise."""
    small = {event: count for event, count in way.items() if isinstance(event, ApproximateEvent)}
    if cut and sum(count for event, count in small.items() if event.epsilon == 0) < steps:
        return "the probability of an oversized sample is not charged"
    if not dimensions:
        return ""
    least = rounding_event(
        dimensions, noise_multiplier
    ).epsilon  # its delta may belong to more noise than that of the last step
    rounded = sum(count for event, count in small.items() if event.epsilon >= least)
    return "" if rounded >= steps else "the float rounding of the noise is not charged"


def _sums_missing(way: Counter[Event], noise_multiplier: float, steps: int) -> str:
    """Compare noisy sums with a single equivalent sum: the inverse squares of the noise multipliers add up."""
    sums = {event: count for event, count in way.items() if isinstance(event, Gaussian)}
    strength = math.fsum(count / event.noise_multiplier**2 for event, count in sums.items())
    if sum(sums.values()) < steps:
        return f"they hold {sum(sums.values()):,} of {steps:,} noisy sums"
    if strength < _CLOSE / noise_multiplier**2:
        return f"their combined noise multiplier is {1 / math.sqrt(strength):g}, not {noise_multiplier:g}"
    return ""


def _ways(events: tuple[Event, ...]) -> Iterator[Counter[Event]]:
    """Count the events that one record takes part in, for each choice of its disjoint parts."""
    parts = [_alternatives(event) for event in events]
    if math.prod(map(len, parts)) > _MOST_WAYS:
        raise InputError(f"the events have more than {_MOST_WAYS} combinations of disjoint parts")
    for way in product(*parts):
        total: Counter[Event] = Counter()
        for part in way:
            total.update(part)
        yield total


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
            ways = [way for one in event.events for way in _alternatives(one)]
            if len(ways) > _MOST_WAYS:
                raise InputError(f"the events have more than {_MOST_WAYS} combinations of disjoint parts")
            return ways
    return [Counter([event])]

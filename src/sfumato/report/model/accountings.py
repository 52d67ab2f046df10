"""The epsilon of the same noise by other accountings: the proof, the relation and the batches each change it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import (
    ApproximateEvent,
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    Relation,
    Repeated,
    Shuffled,
)
from sfumato.errors import SfumatoError

__all__ = [
    "AS_SHUFFLED",
    "BY_RENYI",
    "REPLACED",
    "events_of",
    "leaves_of",
    "other_epsilons",
    "shuffled",
    "shuffled_epsilon",
]

BY_RENYI = "By Renyi privacy, a looser proof"
REPLACED = "For replacing one record instead of adding or removing it"
AS_SHUFFLED = "With shuffled batches, as in most data loaders: no proof that sampling then hides anything"


def events_of(facts: Mapping[str, Any]) -> tuple[Event, ...]:
    """Read the events of a run from their plain form; none if they cannot be read."""
    try:
        return tuple(map(Event.from_dict, facts.get("events") or ()))
    except SfumatoError:
        return ()


def leaves_of(events: Sequence[Event], times: int = 1) -> Iterator[tuple[Event, int]]:
    """Flatten repeated and composed events into single events and how often each happened.

    Examples
    --------
    >>> [(str(event), times) for event, times in leaves_of([Repeated(Gaussian(2.0), 3)])]
    [('Gaussian noise of scale 2 on a sensitivity of 1', 3)]
    """
    for event in events:
        if isinstance(event, Repeated):
            yield from leaves_of([event.event], times * event.times)
        elif isinstance(event, Composed):
            yield from leaves_of(event.events, times)
        else:
            yield event, times


def other_epsilons(events: Sequence[Event], delta: float) -> dict[str, float]:
    """Return the epsilon of the same noise by the name of each accounting that applies.

    Examples
    --------
    >>> training = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> {name[:20]: round(epsilon, 3) for name, epsilon in other_epsilons([training], 1e-5).items()}
    {'By Renyi privacy, a ': 0.522, 'For replacing one re': 0.607, 'With shuffled batche': 13.207}
    """
    if not events:
        return {}
    leaves = list(leaves_of(events))
    lost = math.fsum(times * leaf.delta for leaf, times in leaves if isinstance(leaf, ApproximateEvent))
    noise = [Repeated(leaf, times) for leaf, times in leaves if not isinstance(leaf, ApproximateEvent)]
    found = {}
    if delta and not any(isinstance(leaf, ApproximateEvent) and leaf.epsilon for leaf, _ in leaves):
        # Renyi accounting cannot compose a delta, but it can use the rest of it.
        found[BY_RENYI] = _epsilon(noise, delta - lost, accountant="rdp")
    if all(event.relation is Relation.ADD_REMOVE for event in events):
        found[REPLACED] = _epsilon(events, delta, relation="replace-one")
    found[AS_SHUFFLED] = shuffled_epsilon(events, delta)
    return {name: epsilon for name, epsilon in found.items() if epsilon is not None}


def shuffled(events: Sequence[Event], steps: int | None = None) -> list[Event]:
    """Return the first steps of a training as if its batches had been shuffled instead of Poisson sampled.

    A record is then in one batch of every pass; the batch with the least noise is assumed. Returns nothing unless the
    training is Gaussian noise on Poisson samples of one rate.

    Examples
    --------
    >>> training = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> [(one.times, one.event.batches) for one in shuffled([training])]
    [(9, 938)]
    >>> [one.times for one in shuffled([training], steps=939)]
    [2]
    """
    noise: list[Gaussian] = []
    counts: list[int] = []
    rates = set()
    for leaf, times in leaves_of(events):
        if isinstance(leaf, ApproximateEvent) and not leaf.epsilon:
            continue  # the chance that a batch overflows: shuffled batches are all of one size
        if not (isinstance(leaf, PoissonSampled) and isinstance(leaf.event, Gaussian)) or leaf.rate == 1:
            return []
        noise.append(leaf.event)
        counts.append(times)
        rates.add(leaf.rate)
    if len(rates) != 1:
        return []
    batches = math.ceil(1 / rates.pop() - 1e-9)
    which = np.repeat(np.arange(len(noise)), counts)[:steps]
    passes = [
        min((noise[one] for one in np.unique(which[start : start + batches])), key=lambda one: one.noise_multiplier)
        for start in range(0, len(which), batches)
    ]
    return [Repeated(Shuffled(batches, event), len(list(same))) for event, same in groupby(passes)]


def shuffled_epsilon(events: Sequence[Event], delta: float, steps: int | None = None) -> float | None:
    """Return the epsilon of `shuffled` batches, or None if it is unknown.

    Examples
    --------
    >>> training = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> round(shuffled_epsilon([training], 1e-5, steps=938), 2)
    3.55
    """
    return _epsilon(shuffled(events, steps), delta)


def _epsilon(events: Sequence[Event], delta: float, **how: Any) -> float | None:
    log = logging.getLogger("absl")  # it logs every Renyi order that it leaves out
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        epsilon = spent(events, delta, **how).epsilon if events else math.inf
    except SfumatoError:
        return None
    finally:
        log.setLevel(level)
    return epsilon if math.isfinite(epsilon) else None

"""What other accountings of the same noise would say: the proof, the relation and the batches each change epsilon."""

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

BY_RENYI = "The same, by Renyi privacy: a looser proof"
REPLACED = "The same, for someone else in your place: replace one record"
AS_SHUFFLED = "Had the batches been shuffled, as most data loaders do: sampling then hides nothing that could be proved"


def events_of(facts: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of a run, of which only the plain form is kept; none if they cannot be read."""
    try:
        return tuple(map(Event.from_dict, facts.get("events") or ()))
    except SfumatoError:
        return ()


def leaves_of(events: Sequence[Event], times: int = 1) -> Iterator[tuple[Event, int]]:
    """Take repeated and composed events apart: what happened, and how often.

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
    """Return the epsilon of the same noise by other accountings, by their names; what cannot be counted is left out.

    Examples
    --------
    >>> training = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> {name[:20]: round(epsilon, 3) for name, epsilon in other_epsilons([training], 1e-5).items()}
    {'The same, by Renyi p': 0.522, 'The same, for someon': 0.607, 'Had the batches been': 13.207}
    """
    if not events:
        return {}
    leaves = list(leaves_of(events))
    lost = math.fsum(times * leaf.delta for leaf, times in leaves if isinstance(leaf, ApproximateEvent))
    noise = [Repeated(leaf, times) for leaf, times in leaves if not isinstance(leaf, ApproximateEvent)]
    found = {}
    if delta and not any(isinstance(leaf, ApproximateEvent) and leaf.epsilon for leaf, _ in leaves):
        # Renyi privacy cannot count a delta, but what is left of delta can be counted by it.
        found[BY_RENYI] = _epsilon(noise, delta - lost, accountant="rdp")
    if all(event.relation is Relation.ADD_REMOVE for event in events):
        found[REPLACED] = _epsilon(events, delta, relation="replace-one")
    found[AS_SHUFFLED] = shuffled_epsilon(events, delta)
    return {name: epsilon for name, epsilon in found.items() if epsilon is not None}


def shuffled(events: Sequence[Event], steps: int | None = None) -> list[Event]:
    """Return the first steps of a training as if its batches had been shuffled and not drawn by coins.

    A record is then in one batch of every pass, which is counted as if it were that with the least noise.
    Of a training that is not noise on Poisson samples of one rate, nothing is returned.

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
            continue  # what did not fit into a batch: shuffled ones are all of one size
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
    """Return what `shuffled` batches would have cost; None where that cannot be told.

    Examples
    --------
    >>> training = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> round(shuffled_epsilon([training], 1e-5, steps=938), 2)
    3.55
    """
    return _epsilon(shuffled(events, steps), delta)


def _epsilon(events: Sequence[Event], delta: float, **how: Any) -> float | None:
    log = logging.getLogger("absl")  # Renyi privacy tells there of every order that it leaves out
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        epsilon = spent(events, delta, **how).epsilon if events else math.inf
    except SfumatoError:
        return None
    finally:
        log.setLevel(level)
    return epsilon if math.isfinite(epsilon) else None

"""Differential privacy as a guarantee, and whether events satisfy it.

A certificate is not trusted: a short one can require hours of accounting, with thousands of different events that each
take a convolution, or deeply nested ones. `read_events` rejects more events than Sfumato ever records, and
`bounded_epsilon` uses the looser but cheap Renyi accounting where privacy loss distributions would take too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.budget.accounting.accountant import check_delta, spent
from sfumato.budget.accounting.pld import distinct_events
from sfumato.budget.events import (
    ApproximateEvent,
    Event,
    FixedSampled,
    Gaussian,
    NoiseEvent,
    NoiseShares,
    Parallel,
    PoissonSampled,
    Relation,
    Selected,
)
from sfumato.data.certificate import UNIT, UNITS
from sfumato.data.claim import DAMAGED, Claim, reason_of
from sfumato.data.guarantee import Guarantee
from sfumato.data.validate import real
from sfumato.errors import InputError, OptionError, SfumatoError, one_of

if TYPE_CHECKING:
    from sfumato.data.release import Release

__all__ = ["DifferentialPrivacy", "EpsilonBound", "bounded_epsilon", "read_events", "verify_events"]

_MOST_EVENTS = 2_000
_DEEPEST = 16
_MOST_TIMES = 10**12
_MOST_WORK = 40.0  # in convolutions of about 0.1 s each
_MOST_RENYI = 100  # different events for Renyi accounting
_OFTEN = 100  # repetitions of an event above which it takes longer
_MOST_PARTS = 100  # that are accounted for one by one
_SEVERAL = 10.0  # convolutions for events on disjoint parts, or for the best of several runs


@dataclass(frozen=True)
class DifferentialPrivacy(Guarantee, stored_as="differential-privacy"):
    """A bound on what a release reveals about any one record, whatever else is known (Dwork et al. 2006).

    For any two neighbouring tables and any set of results, the probability of a result in that set under one
    table is at most exp(epsilon) times the probability under the other, plus delta.

    Parameters
    ----------
    epsilon, delta : float
        The bounds that the guarantee promises.
    relation : Relation or str
        Which tables are neighbours.
    unit : str
        "row"; or "client", all that one data holder contributes to a federated training.

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> promise = DifferentialPrivacy(1.0, 1e-5)
    >>> print(promise)
    epsilon=1, delta=1e-05 (add or remove one record)
    >>> promise.kept_by([Gaussian(4.0)]), promise.kept_by([Gaussian(4.0), Gaussian(4.0)])
    (True, False)
    """

    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE
    unit: str = UNIT

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            known = f"{', a '.join(UNITS[:-1])} or a {UNITS[-1]}"
            raise OptionError(f"a guarantee of differential privacy protects a {known}, got {self.unit!r}")
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, above=0))
        object.__setattr__(self, "delta", check_delta(self.delta, allow_zero=True))
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))

    def kept_by(self, events: Iterable[Event]) -> bool:
        """Return whether events on the same data satisfy the guarantee together; never for events of another unit."""
        given = tuple(events)
        if any(one.unit != self.unit for one in given):
            return False
        return spent(given, self.delta, relation=self.relation).epsilon <= self.epsilon

    def holds_for(self, release: Release) -> bool:
        """Return whether the events of a release satisfy the guarantee together."""
        return self.kept_by(release.events)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain values."""
        return {
            "guarantee": "differential-privacy",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": self.unit,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DifferentialPrivacy:
        """Build the guarantee from the plain values that `to_dict` returned."""
        known = {"guarantee", "epsilon", "delta", "relation"}  # earlier versions wrote no unit
        if plain.get("guarantee") != "differential-privacy" or plain.keys() - {"unit"} != known:
            raise OptionError("a guarantee of differential privacy lacks a key or has an unknown one")
        return cls(plain["epsilon"], plain["delta"], plain["relation"], plain.get("unit", UNIT))

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:g}, delta={self.delta:g} ({self.relation.of_one(self.unit)})"


@dataclass(frozen=True)
class EpsilonBound:
    """An upper bound on the epsilon of events, and whether it equals the result of `spent`."""

    epsilon: float
    exact: bool = True
    why: str = ""


def read_events(plain: Any) -> tuple[Event, ...]:
    """Build the events of a certificate, or reject them if they are too many or too deeply nested.

    Examples
    --------
    >>> read_events([Gaussian(1.0).to_dict()])
    (Gaussian(scale=1.0, sensitivity=1.0, relation=<Relation.ADD_REMOVE: 'add-remove'>),)
    """
    if not isinstance(plain, list):
        raise InputError("the certificate has no list of events")
    _refuse_many(plain)
    return tuple(Event.from_dict(one) for one in plain)


def bounded_epsilon(events: Iterable[Event], promise: DifferentialPrivacy) -> EpsilonBound:
    """Return an upper bound on the epsilon of events at the delta of a guarantee, in bounded time and memory.

    Examples
    --------
    >>> bounded_epsilon([Gaussian(4.0)], DifferentialPrivacy(1.0, 1e-5)).exact
    True
    """
    given = tuple(events)
    if other := next((one.unit for one in given if one.unit != promise.unit), None):
        raise InputError(f"its events protect a {other}, and the guarantee a {promise.unit}")
    if len(given) == 1 and isinstance(given[0], Parallel) and len(parts := {*given[0].events}) <= _MOST_PARTS:
        # Alone, events on separate parts cost as much as the worst of them.
        bounds = [bounded_epsilon((one,), promise) for one in parts]
        return max(bounds, key=lambda one: (not one.exact, one.epsilon))
    work = _work(given)
    if work <= _MOST_WORK:
        return EpsilonBound(spent(given, promise.delta, relation=promise.relation).epsilon)
    why = f"accounting for its events exactly would take about {work / 10:,.0f} s"
    if len(distinct_events(given)) > _MOST_RENYI:
        return EpsilonBound(math.inf, exact=False, why=why)
    try:
        cheap = spent(given, promise.delta, relation=promise.relation, accountant="rdp").epsilon
    except OptionError:  # Renyi privacy does not support some event
        return EpsilonBound(math.inf, exact=False, why=why)
    return EpsilonBound(cheap, exact=False, why=f"{why}; Renyi privacy proves epsilon {cheap:.3g}")


def verify_events(plain: Any, promise: DifferentialPrivacy) -> Iterator[Claim]:
    """Check that the events of a certificate satisfy its guarantee.

    Examples
    --------
    >>> next(verify_events([Gaussian(4.0).to_dict()], DifferentialPrivacy(1.5, 1e-5))).held
    True
    """
    try:
        events = read_events(plain)
        bound = bounded_epsilon(events, promise) if events else EpsilonBound(math.inf)
    except (SfumatoError, *DAMAGED) as error:
        yield Claim("its events can be accounted for", False, reason_of(error))
        return
    if bound.exact or bound.epsilon <= promise.epsilon:
        number = "inf" if bound.epsilon == math.inf else bound.epsilon
        yield Claim(str(promise), bound.epsilon <= promise.epsilon, number)
    else:
        yield Claim.unchecked(str(promise), bound.why)


def _refuse_many(plain: list[Any]) -> None:
    """Reject too many, too deeply nested or too often repeated plain events, without building them."""
    left, count = [(one, 1) for one in plain[: _MOST_EVENTS + 1]], 0
    while left:
        one, depth = left.pop()
        count += 1
        if count > _MOST_EVENTS or depth > _DEEPEST:
            raise InputError(
                f"there are more than {_MOST_EVENTS:,} events, or they are nested beyond {_DEEPEST} levels"
            )
        if not isinstance(one, Mapping):
            continue
        if isinstance(one.get("times"), int) and one["times"] > _MOST_TIMES:
            raise InputError(f"an event is repeated more than {_MOST_TIMES:,} times")
        within = one.get("events")
        inner = [one.get("event"), *(within[: _MOST_EVENTS + 1] if isinstance(within, list) else ())]
        left += [(each, depth + 1) for each in inner if each is not None]


def _work(events: Iterable[Event]) -> float:
    """Estimate the number of convolutions that accounting for events takes."""
    work = 0.0
    for event, times in distinct_events(events).items():
        match event:
            case Gaussian() | NoiseShares():
                work += 0.01  # Gaussians compose in closed form
            case Parallel():
                work += _SEVERAL + sum(_work([one]) for one in event.events)
            case Selected():
                work += _SEVERAL + 3 * _work([event.event])
            case ApproximateEvent() if event.epsilon == 0:
                work += 0.01  # deltas are simply added
            case _:
                work += _convolutions(event, times)
    return work


def _convolutions(event: Event, times: int) -> float:
    """Return about how many convolutions one event takes: more if it is often repeated, or if its losses reach far."""
    inner = event.event if isinstance(event, PoissonSampled | FixedSampled) else event
    is_wide = isinstance(inner, NoiseEvent) and inner.noise_multiplier < 1
    often = 1.0 if times < _OFTEN else 2 * (1 + math.log10(times / _OFTEN))
    return often * (3 if is_wide else 1)

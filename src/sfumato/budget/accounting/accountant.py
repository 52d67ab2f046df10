"""The privacy accountant: the smallest provable epsilon of composed events at a delta.

The default is the privacy loss distribution (see `pld`), which also gives a lower bound. Renyi differential
privacy is a cross-check; it is looser, except for the best of a Poisson number of many runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sfumato.budget.accounting.composition import replace_one
from sfumato.budget.accounting.concentrated import epsilon_of_rho, rho_of
from sfumato.budget.accounting.pld import epsilon_lower_bound, epsilon_upper_bound, own_cost, set_aside
from sfumato.budget.accounting.private_selection import RandomStopping
from sfumato.budget.events import (
    BoundedRange,
    Composed,
    DiscreteLaplace,
    Event,
    Laplace,
    Parallel,
    PureEvent,
    Relation,
    Repeated,
    Selected,
    Shuffled,
)
from sfumato.budget.noise import Floats
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.validate import real
from sfumato.errors import OptionError, one_of

__all__ = ["Spent", "calibrate", "check_delta", "spent"]

_LEAST_DELTA = 1e-12  # below it, rounding in the convolutions could exceed delta
_MANY = 64  # from this many events on, a loss distribution may save something
_NEGLIGIBLE, _NEGLIGIBLE_SHARE = 1e-4, 1e-3  # of an epsilon: the grid of loss distributions is not finer
_SMALLEST, _LARGEST = 1e-6, 1e9  # the range of scales that `calibrate` searches


@dataclass(frozen=True)
class Spent:
    """The privacy cost of composed events.

    Examples
    --------
    >>> from sfumato.budget import Gaussian, Laplace
    >>> cost = spent([Gaussian(5.0), Laplace(10.0)], delta=1e-5)
    >>> print(cost)
    epsilon 0.792 at delta 1e-05 (add or remove one record)
    >>> 0 <= cost.epsilon - cost.optimistic < 0.01
    True
    """

    epsilon: float
    """An upper bound: the events are (epsilon, delta)-differentially private."""
    delta: float
    relation: Relation
    accountant: str
    events: tuple[Event, ...] = field(repr=False)

    @cached_property
    def optimistic(self) -> float | None:
        """A lower bound on the exact epsilon of the same accounting; None for Renyi privacy."""
        if self.accountant != "pld" or self.epsilon == math.inf:
            return None
        if self.delta < _LEAST_DELTA or rho_of(self.events) is not None:
            return self.epsilon
        ideal, _, _ = set_aside(self.events)
        return min(self.epsilon, epsilon_lower_bound(ideal, self.delta))

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain values; an unbounded epsilon is the text "inf"."""
        return {**self.bound(), "optimistic": self.optimistic}

    def bound(self) -> dict[str, Any]:
        """Return the cost as plain values without `optimistic`, which takes time to compute."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "accountant": self.accountant,
        }

    @property
    def unit(self) -> str:
        """The unit that the events protect."""
        return self.events[0].unit if self.events else UNIT

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.3g} at delta {self.delta:g} ({self.relation.of_one(self.unit)})"


def spent(
    events: Event | Iterable[Event],
    delta: float,
    *,
    accountant: str = "pld",
    relation: Relation | str | None = None,
) -> Spent:
    """Return the total privacy cost of events on one data set.

    Parameters
    ----------
    events : Event or iterable of Event
        No events cost nothing.
    delta : float
        From 0 to below 1. At 0 the epsilon is finite only if every event has a finite epsilon of its own.
    accountant : str
        ``"pld"``, the privacy loss distribution, or ``"rdp"``, Renyi privacy as a cross-check.
    relation : Relation or str, optional
        By default that of the events. Under replace-one, add-remove events are converted first.

    Examples
    --------
    >>> from sfumato.budget import Gaussian, PoissonSampled, PureEvent, Repeated
    >>> spent([PureEvent(0.25), PureEvent(0.5)], delta=0).epsilon
    0.75
    >>> run = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> round(spent(run, delta=1e-5).epsilon, 3)
    0.343
    """
    given = (events,) if isinstance(events, Event) else tuple(events)
    for event in given:
        if not isinstance(event, Event):
            raise OptionError(f"only events can be composed, got {type(event).__name__}")
    if accountant not in ("pld", "rdp"):
        raise OptionError(f"the accountant must be pld or rdp, got {accountant!r}")
    delta = check_delta(delta, allow_zero=True)
    under, given = _under_one_relation(given, relation)
    epsilon = _basic(given, delta)
    if 0 < delta < _LEAST_DELTA and epsilon == math.inf:
        raise OptionError(f"delta must be 0 or at least {_LEAST_DELTA:g}, got {delta:g}")
    if not given or delta < _LEAST_DELTA or (accountant == "pld" and _saves_little(given, delta, epsilon)):
        return Spent(epsilon, delta, under, accountant, given)
    if accountant == "pld" and (rho := rho_of(given)) is not None:
        return Spent(min(epsilon, epsilon_of_rho(rho, delta)), delta, under, accountant, given)
    ideal, more, lost = set_aside(given)
    if lost < delta:
        if accountant == "pld":
            composed = min(epsilon_upper_bound(ideal, delta - lost), _selected_epsilon(ideal, delta - lost, under))
        else:
            composed = _rdp_epsilon(ideal, delta - lost, under)
        epsilon = min(epsilon, composed + more)
    return Spent(epsilon, delta, under, accountant, given)


def quick_bound(events: Iterable[Event], delta: float, relation: Relation) -> tuple[float, bool]:
    """Return an upper bound on the epsilon of events in no time, and whether it is that of `spent`.

    It is the sum of the epsilons of the events, and infinite if that of some event is not known.

    Examples
    --------
    >>> from sfumato.budget import PureEvent, Relation
    >>> quick_bound([PureEvent(0.5)] * 2, 1e-6, Relation.ADD_REMOVE)
    (1.0, True)
    >>> quick_bound([PureEvent(0.5)] * 20, 1e-6, Relation.ADD_REMOVE)
    (10.0, False)
    """
    _, given = _under_one_relation(tuple(events), relation)
    epsilon = _basic(given, delta)
    return epsilon, not given or delta < _LEAST_DELTA or _saves_little(given, delta, epsilon)


def calibrate(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    accountant: str = "pld",
    relation: Relation | str | None = None,
    precision: float = 1e-4,
) -> float:
    """Return the smallest noise scale at which an event costs at most epsilon.

    The returned scale itself was checked with the accountant, so the event never costs more than the target.

    Parameters
    ----------
    make_event : callable
        Takes a noise scale and returns the event; a larger scale must cost less.
    epsilon, delta : float
        The target.
    precision : float
        The largest relative difference between the returned and the smallest possible scale.

    Examples
    --------
    >>> from sfumato.budget import Gaussian, PoissonSampled, Repeated
    >>> def training(scale):
    ...     return Repeated(PoissonSampled(0.01, Gaussian(scale)), 1000)
    >>> scale = calibrate(training, epsilon=1.0, delta=1e-5)
    >>> 0.999 < spent(training(scale), delta=1e-5).epsilon <= 1.0
    True
    """
    epsilon = real("epsilon", epsilon, above=0)
    precision = real("the precision", precision, above=0, below=1)

    def above(scale: float) -> float:
        """Return the logarithm of the cost at a scale over the target."""
        cost = spent(make_event(scale), delta, accountant=accountant, relation=relation).epsilon
        return math.log(cost / epsilon) if 0 < cost < math.inf else (math.inf if cost else -math.inf)

    high, at_high = 1.0, above(1.0)
    while at_high > 0:
        high *= 4
        if high > _LARGEST:
            raise OptionError(f"no amount of noise reduces the event to epsilon {epsilon:g} at delta {delta:g}")
        at_high = above(high)
    low, at_low = high / 4, math.inf
    while low > _SMALLEST and (at_low := above(low)) <= 0:
        low, high, at_low, at_high = low / 4, low, math.inf, at_low
    # Epsilon falls approximately as a power of the scale, so the search is linear interpolation in logarithms. An end
    # that stays twice is halved (the Illinois method), and a step too close to an end goes slightly beyond it.
    beyond, moved = 1 + 0.9 * precision, 0
    while high > low * (1 + precision):
        share = at_low / (at_low - at_high) if math.isfinite(at_low - at_high) else 0.5
        middle = min(max(low * (high / low) ** share, low * beyond), high / beyond)
        if not low < middle < high:
            break
        if (at_middle := above(middle)) <= 0:
            high, at_high, at_low, moved = middle, at_middle, at_low / 2 if moved > 0 else at_low, 1
        else:
            low, at_low, at_high, moved = middle, at_middle, at_high / 2 if moved < 0 else at_high, -1
    return high


def check_delta(delta: Any, rows: int | None = None, unit: str = UNIT, *, allow_zero: bool = False) -> float:
    """Return delta if it is valid and, given a number of records, or of people, below 1 / rows.

    At a delta of 1 / rows, publishing one full record would count as private.

    Examples
    --------
    >>> check_delta(1e-6, rows=1000)
    1e-06
    """
    number = real("delta", delta, least=0, below=1) if allow_zero else real("delta", delta, above=0, below=1)
    if rows and number >= 1 / rows:
        many, one = ("people", "person with all rows") if unit == PERSON else ("records", "full record")
        raise OptionError(
            f"delta must be below 1 / {rows:,}, one over the number of {many}, got {number:g}",
            hint=f"at that delta, publishing one {one} would count as private",
        )
    return number


def _under_one_relation(
    events: tuple[Event, ...], relation: Relation | str | None
) -> tuple[Relation, tuple[Event, ...]]:
    if len({event.unit for event in events}) > 1:
        raise OptionError("events that protect a row and events that protect a client have no common epsilon")
    relations = {event.relation for event in events}
    asked = one_of(Relation, relation, "the relation") if relation is not None else None
    if asked is None and len(relations) > 1:
        raise OptionError(
            "events under add-remove and replace-one have no common epsilon",
            hint='relation="replace-one" converts add-remove events',
        )
    under = asked or next(iter(relations), Relation.ADD_REMOVE)
    if under is Relation.ADD_REMOVE and Relation.REPLACE_ONE in relations:
        raise OptionError("an event under replace-one cannot be converted to add-remove")
    return under, tuple(replace_one(event) if event.relation is not under else event for event in events)


# --- basic composition ------------------------------------------------------------------------


def _basic(events: tuple[Event, ...], delta: float) -> float:
    """Return the sum of the epsilons of the events if the sum of their deltas is at most delta, else infinity."""
    costs = [own_cost(event) for event in events]
    return math.fsum(epsilon for epsilon, _ in costs) if math.fsum(lost for _, lost in costs) <= delta else math.inf


def _saves_little(events: tuple[Event, ...], delta: float, epsilon: float) -> bool:
    """Return whether a loss distribution would lower the sum of the epsilons by less than its own rounding."""
    return epsilon < math.inf and _saved_at_most(events, delta) <= max(_NEGLIGIBLE, _NEGLIGIBLE_SHARE * epsilon)


def _saved_at_most(events: tuple[Event, ...], delta: float) -> float:
    """Bound what a loss distribution could save over the sum of the epsilons; infinite if no bound is known.

    The largest loss of one such event, its epsilon, has a probability of at least 1/2. So the largest loss E of n of
    them has a probability of at least 2^-n, and delta >= 2^-n (1 - exp(epsilon - E)) gives
    epsilon >= E + log(1 - 2^n delta). For a few events the saving is negligible, while loading the distributions takes
    a second.
    """
    count = sum(map(_largest_losses, events))
    missed = math.ldexp(delta, count) if count < _MANY else math.inf
    return -math.log1p(-missed) if missed < 1 else math.inf


def _largest_losses(event: Event) -> int:
    """Return the number of losses, each with a probability of at least 1/2, whose sum is the epsilon of an event."""
    match event:
        case BoundedRange():  # its largest loss is rare
            return _MANY
        case PureEvent() | Laplace() | DiscreteLaplace():
            return 1
        case Repeated():
            return min(event.times, _MANY) * _largest_losses(event.event)
        case Composed():
            return sum(map(_largest_losses, event.events))
        case Parallel():  # at least as bad as its worst part alone
            return _largest_losses(max(event.events, key=own_cost))
    return _MANY


# --- Renyi privacy ----------------------------------------------------------------------------


def _rdp_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    from dp_accounting.rdp import compute_epsilon

    if not events:
        return 0.0
    orders = _accountant(relation).orders
    return float(compute_epsilon(orders.tolist(), _renyi_sum(events, relation).tolist(), delta)[0])


def _renyi_sum(events: tuple[Event, ...], relation: Relation) -> Floats:
    total: Floats = np.sum([_renyi(event, relation) for event in events], axis=0)
    return total


def _selected_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    """Return the Renyi bound if an event is the best of a Poisson number of runs, where it can be the tighter one."""
    if not any(map(_is_poisson, events)):
        return math.inf
    try:
        return _rdp_epsilon(events, delta, relation)
    except OptionError:  # Renyi privacy does not support some event
        return math.inf


def _is_poisson(event: Event) -> bool:
    match event:
        case Selected():
            return event.shape == "poisson" or _is_poisson(event.event)
        case Repeated() | Shuffled():
            return _is_poisson(event.event)
        case Composed():
            return any(map(_is_poisson, event.events))
    return False


@lru_cache(maxsize=256)
def _renyi(event: Event, relation: Relation) -> Floats:
    """Return the Renyi privacy of an event at the orders of dp-accounting."""
    from dp_accounting import UnsupportedEventError

    accountant = _accountant(relation)
    match event:
        case Selected():
            return RandomStopping(event.mean, event.shape).renyi(accountant.orders, _renyi(event.event, relation))
        case Repeated():
            return event.times * _renyi(event.event, relation)
        case Composed():
            return _renyi_sum(event.events, relation)
        case Shuffled():
            return _renyi(event.event, relation)
    try:
        costs: Floats = accountant.compose(event.dp_event()).rdp
    except UnsupportedEventError:
        raise OptionError(f"Renyi privacy does not support this event: {event}", hint='use accountant="pld"') from None
    return costs


def _accountant(relation: Relation) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    # The sensitivities already are those under the relation; only fixed-size sampling depends on its name.
    replace = relation is Relation.REPLACE_ONE
    return RdpAccountant(
        neighboring_relation=NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    )

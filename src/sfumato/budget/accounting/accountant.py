"""What events cost together: the smallest epsilon that we can prove for a delta.

By default by the distributions of their privacy losses, with a lower bound beside; see `losses`. Renyi
privacy is kept as a cross-check; it is looser, except for the best of a Poisson number of many runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sfumato.budget.accounting.composition import replace_one
from sfumato.budget.accounting.pld import least_epsilon, most_epsilon, own_cost, set_aside
from sfumato.budget.accounting.private_selection import RandomStopping
from sfumato.budget.events import (
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
from sfumato.errors import OptionError, one_of

__all__ = ["Spent", "calibrate", "check_delta", "spent"]

_LEAST_DELTA = 1e-12  # below it, the rounding of the convolutions could be larger than delta
_MANY = 64  # events of which loss distributions may well save something
_NEGLIGIBLE, _NEGLIGIBLE_SHARE = 1e-4, 1e-3  # of an epsilon: the grid of the loss distributions is no finer
_SMALLEST, _LARGEST = 1e-6, 1e9  # where a scale is looked for


@dataclass(frozen=True)
class Spent:
    """What events cost together.

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
        """What the same accounting would give at least if it were exact; Renyi privacy has no such bound."""
        if self.accountant != "pld" or self.epsilon == math.inf:
            return None
        if self.delta < _LEAST_DELTA:
            return self.epsilon
        ideal, _, _ = set_aside(self.events)
        return min(self.epsilon, least_epsilon(ideal, self.delta))

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain values; an unbounded epsilon is the text "inf"."""
        return {**self.bound(), "optimistic": self.optimistic}

    def bound(self) -> dict[str, Any]:
        """Return the upper bound alone, for which nothing more has to be computed."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "accountant": self.accountant,
        }

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.3g} at delta {self.delta:g} ({self.relation.in_words})"


def spent(
    events: Event | Iterable[Event],
    delta: float,
    *,
    accountant: str = "pld",
    relation: Relation | str | None = None,
) -> Spent:
    """Return what events on one data set cost together.

    Parameters
    ----------
    events : Event or iterable of Event
        None of them costs nothing.
    delta : float
        From 0 to below 1. At 0 only events that have an epsilon of their own can be added.
    accountant : str
        ``"pld"``, the privacy loss distribution, or ``"rdp"``, Renyi privacy as a cross-check.
    relation : Relation or str, optional
        By default that of the events. Under replace-one, add-remove events are turned into it first.

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
            raise OptionError(f"only events can be added up, got {type(event).__name__}")
    if accountant not in ("pld", "rdp"):
        raise OptionError(f"the accountant must be pld or rdp, got {accountant!r}")
    delta = check_delta(delta, allow_zero=True)
    under, given = _under_one_relation(given, relation)
    epsilon = _basic(given, delta)
    if not given or delta < _LEAST_DELTA:
        if epsilon == math.inf and delta > 0:
            raise OptionError(f"delta must be 0 or at least {_LEAST_DELTA:g}, got {delta:g}")
        return Spent(epsilon, delta, under, accountant, given)
    is_known = accountant == "pld" and epsilon < math.inf
    if is_known and _saved_at_most(given, delta) <= max(_NEGLIGIBLE, _NEGLIGIBLE_SHARE * epsilon):
        return Spent(epsilon, delta, under, accountant, given)
    ideal, more, lost = set_aside(given)
    if lost < delta:
        if accountant == "pld":
            composed = min(most_epsilon(ideal, delta - lost), _selected_epsilon(ideal, delta - lost, under))
        else:
            composed = _rdp_epsilon(ideal, delta - lost, under)
        epsilon = min(epsilon, composed + more)
    return Spent(epsilon, delta, under, accountant, given)


def calibrate(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    accountant: str = "pld",
    relation: Relation | str | None = None,
    precision: float = 1e-4,
) -> float:
    """Return the smallest scale of noise for which an event costs at most epsilon.

    The scale returned was itself accounted for, so what is run with it never costs more than the target.

    Parameters
    ----------
    make_event : callable
        Returns the event that noise of a scale would be; more noise must cost less.
    epsilon, delta : float
        The target.
    precision : float
        How much smaller, relatively, the smallest such scale may be.

    Examples
    --------
    >>> from sfumato.budget import Gaussian, PoissonSampled, Repeated
    >>> def training(scale):
    ...     return Repeated(PoissonSampled(0.01, Gaussian(scale)), 1000)
    >>> scale = calibrate(training, epsilon=1.0, delta=1e-5)
    >>> 0.999 < spent(training(scale), delta=1e-5).epsilon <= 1.0
    True
    """
    if not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
        raise OptionError(f"epsilon must be a finite number above 0, got {epsilon!r}")
    if not 0 < precision < 1:
        raise OptionError(f"the precision must be a number between 0 and 1, got {precision!r}")

    def above(scale: float) -> float:
        """By how much, relatively and in logarithms, noise of a scale costs more than the target."""
        cost = spent(make_event(scale), delta, accountant=accountant, relation=relation).epsilon
        return math.log(cost / epsilon) if 0 < cost < math.inf else (math.inf if cost else -math.inf)

    high, at_high = 1.0, above(1.0)
    while at_high > 0:
        high *= 4
        if high > _LARGEST:
            raise OptionError(f"no noise brings the event to epsilon {epsilon:g} at delta {delta:g}")
        at_high = above(high)
    low, at_low = high / 4, math.inf
    while low > _SMALLEST and (at_low := above(low)) <= 0:
        low, high, at_low, at_high = low / 4, low, math.inf, at_low
    # Epsilon falls about as a power of the scale: a straight line in logarithms says where it meets the target. An end
    # that stays twice counts half (the Illinois method), and a step that is next to an end goes just beyond it.
    beyond, moved = 1 + 0.9 * precision, 0
    while high > low * (1 + precision):
        share = at_low / (at_low - at_high) if math.isfinite(at_low - at_high) else 0.5
        middle = min(max(low * (high / low) ** share, low * beyond), high / beyond)
        if not low < middle < high:
            break
        if (found := above(middle)) <= 0:
            high, at_high, at_low, moved = middle, found, at_low / 2 if moved > 0 else at_low, 1
        else:
            low, at_low, at_high, moved = middle, found, at_high / 2 if moved < 0 else at_high, -1
    return high


def check_delta(delta: Any, rows: int | None = None, *, allow_zero: bool = False) -> float:
    """Return a delta if it can be used; with a number of records, only one below 1 / rows.

    At a delta of 1 / rows, publishing one record in full would count as private.

    Examples
    --------
    >>> check_delta(1e-6, rows=1000)
    1e-06
    """
    number = float(delta) if isinstance(delta, int | float) and not isinstance(delta, bool) else math.nan
    if not (0 < number < 1 or (allow_zero and number == 0)):
        raise OptionError(f"delta must be a number {'of 0 or ' if allow_zero else ''}between 0 and 1, got {delta!r}")
    if rows and number >= 1 / rows:
        raise OptionError(
            f"delta must be below 1 / {rows:,}, one over the number of records, got {number:g}",
            hint="at that delta, publishing one record in full would count as private",
        )
    return number


def _under_one_relation(
    events: tuple[Event, ...], relation: Relation | str | None
) -> tuple[Relation, tuple[Event, ...]]:
    held = {event.relation for event in events}
    asked = one_of(Relation, relation, "the relation") if relation is not None else None
    if asked is None and len(held) > 1:
        raise OptionError(
            "events under add-remove and replace-one do not add up to one epsilon",
            hint='relation="replace-one" turns the former into the latter',
        )
    under = asked or next(iter(held), Relation.ADD_REMOVE)
    if under is Relation.ADD_REMOVE and Relation.REPLACE_ONE in held:
        raise OptionError("an event under replace-one says nothing about adding or removing a record")
    return under, tuple(replace_one(event) if event.relation is not under else event for event in events)


# --- epsilons and deltas that just add up -----------------------------------------------------


def _basic(events: tuple[Event, ...], delta: float) -> float:
    """Return the sum of the epsilons of the events if that of their deltas is within delta, else infinity."""
    costs = [own_cost(event) for event in events]
    return math.fsum(epsilon for epsilon, _ in costs) if math.fsum(lost for _, lost in costs) <= delta else math.inf


def _saved_at_most(events: tuple[Event, ...], delta: float) -> float:
    """Bound what loss distributions could take off the sum of the epsilons; infinity where no bound is known.

    The largest loss of one such event, its epsilon, has a chance of at least 1/2. So the largest loss E of n of them
    has a chance of at least 2^-n, and delta >= 2^-n (1 - exp(epsilon - E)) gives epsilon >= E + log(1 - 2^n delta).
    For a few events that is next to nothing, and the distributions take a second to load.
    """
    count = sum(map(_largest_losses, events))
    missed = math.ldexp(delta, count) if count < _MANY else math.inf
    return -math.log1p(-missed) if missed < 1 else math.inf


def _largest_losses(event: Event) -> int:
    """Return of how many losses, each with a chance of at least 1/2, the epsilon of an event is the sum."""
    match event:
        case PureEvent() | Laplace() | DiscreteLaplace():
            return 1
        case Repeated():
            return min(event.times, _MANY) * _largest_losses(event.event)
        case Composed():
            return sum(map(_largest_losses, event.events))
        case Parallel():  # which is at least as bad as its worst part alone
            return _largest_losses(max(event.events, key=own_cost))
    return _MANY


# --- Renyi privacy ----------------------------------------------------------------------------


def _rdp_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    from dp_accounting.rdp import compute_epsilon

    if not events:
        return 0.0
    orders = _accountant(relation).orders
    return float(compute_epsilon(orders.tolist(), _added(events, relation).tolist(), delta)[0])


def _added(events: tuple[Event, ...], relation: Relation) -> Floats:
    total: Floats = np.sum([_renyi(event, relation) for event in events], axis=0)
    return total


def _selected_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    """Return the Renyi bound of the best of a Poisson number of runs: with many runs it is the smaller one."""
    if not any(map(_is_poisson, events)):
        return math.inf
    try:
        return _rdp_epsilon(events, delta, relation)
    except OptionError:  # it cannot count some event, and need not
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
            return _added(event.events, relation)
        case Shuffled():
            return _renyi(event.event, relation)
    try:
        costs: Floats = accountant.compose(event.dp_event()).rdp
    except UnsupportedEventError:
        raise OptionError(f"Renyi privacy cannot count this event: {event}", hint='use accountant="pld"') from None
    return costs


def _accountant(relation: Relation) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    # The sensitivities are those under the relation already; only samples of a fixed size need its name.
    replaced = relation is Relation.REPLACE_ONE
    return RdpAccountant(
        neighboring_relation=NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    )

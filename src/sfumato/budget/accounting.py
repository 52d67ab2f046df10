"""What events cost together: the smallest epsilon that we can prove for a delta.

By default the privacy loss distribution of every event is put on a grid and all are convolved
(Koskela et al. 2020; Doroshenko et al. 2022, as dp-accounting implements them). The grid only
ever adds to the loss, so the epsilon is an upper bound; how much it can have added at most
gives the lower bound beside it. Renyi privacy is kept as a cross-check; it is looser.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import Any

from sfumato._errors import OptionError
from sfumato.budget.composition import replace_one
from sfumato.budget.events import (
    ApproximateEvent,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    FixedSampled,
    Gaussian,
    Laplace,
    NoiseEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    Shuffled,
)

__all__ = ["Spent", "calibrate", "check_delta", "spent"]

_GRID = 1e-4  # how finely privacy losses are told apart
_POINTS = 200_000  # how many losses of one event are told apart at most, about
_LEAST_DELTA = 1e-12  # below it, the rounding of the convolutions could be larger than delta
_WIDE = 500  # the scale from which noise in whole numbers is counted like noise in real ones
_FAR = 10.0  # Gaussian noise beyond so many scales is put at infinity
_TAIL = 1e-15  # what dp-accounting may cut off in one convolution
_SMALLEST, _LARGEST = 1e-6, 1e9  # where a scale is looked for


@dataclass(frozen=True)
class Spent:
    """What events cost together.

    Examples
    --------
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
        return self.epsilon if self.delta < _LEAST_DELTA else min(self.epsilon, _optimistic(self.events, self.delta))

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain values; an unbounded epsilon is the text "inf"."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "optimistic": self.optimistic,
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
    >>> spent([PureEvent(0.25), PureEvent(0.5)], delta=0).epsilon
    0.75
    >>> run = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)
    >>> round(spent(run, delta=1e-5).epsilon, 3)
    0.343
    """
    given = (events,) if isinstance(events, Event) else tuple(events)
    if accountant not in ("pld", "rdp"):
        raise OptionError(f"the accountant must be pld or rdp, got {accountant!r}")
    delta = check_delta(delta, allow_zero=True)
    under, given = _under_one_relation(given, relation)
    basic = _basic(given, delta)
    exact = not given or delta < _LEAST_DELTA
    if exact and basic == math.inf and delta > 0:
        raise OptionError(f"delta must be 0 or at least {_LEAST_DELTA:g}, got {delta:g}")
    if exact:
        epsilon = basic
    elif accountant == "pld":
        epsilon = min(basic, _pld_epsilon(given, delta))
    else:
        epsilon = min(basic, _rdp_epsilon(given, delta, under))
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

    def enough(scale: float) -> bool:
        return spent(make_event(scale), delta, accountant=accountant, relation=relation).epsilon <= epsilon

    high = 1.0
    while not enough(high):
        high *= 4
        if high > _LARGEST:
            raise OptionError(f"no noise brings the event to epsilon {epsilon:g} at delta {delta:g}")
    low = high / 4
    while low > _SMALLEST and enough(low):
        low, high = low / 4, low
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
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
    if rows is not None and number >= 1 / rows:
        raise OptionError(
            f"delta must be below 1 / {rows:,}, one over the number of records, got {number:g}",
            hint="at that delta, publishing one record in full would count as private",
        )
    return number


def _under_one_relation(
    events: tuple[Event, ...], relation: Relation | str | None
) -> tuple[Relation, tuple[Event, ...]]:
    held = {event.relation for event in events}
    asked = Relation(relation) if relation is not None else None
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
    costs = [_own_cost(event) for event in events]
    return math.fsum(epsilon for epsilon, _ in costs) if math.fsum(lost for _, lost in costs) <= delta else math.inf


def _own_cost(event: Event) -> tuple[float, float]:
    """Return an epsilon and a delta that hold for an event alone, without any search."""
    match event:
        case PureEvent():
            return event.epsilon, 0.0
        case ApproximateEvent():
            return event.epsilon, event.delta
        case Laplace() | DiscreteLaplace():
            return event.sensitivity / event.scale, 0.0
        case Shuffled():
            return _own_cost(event.event)
        case PoissonSampled() if event.relation is Relation.ADD_REMOVE:
            return _amplified(_own_cost(event.event), event.rate)
        case FixedSampled():
            return _amplified(_own_cost(event.event), event.rate)
        case Repeated():
            epsilon, delta = _own_cost(event.event)
            return epsilon * event.times, delta * event.times
        case Composed():
            costs = list(map(_own_cost, event.events))
            return math.fsum(epsilon for epsilon, _ in costs), math.fsum(delta for _, delta in costs)
        case Parallel():
            costs = list(map(_own_cost, event.events))
            return max(epsilon for epsilon, _ in costs), max(delta for _, delta in costs)
    return math.inf, 0.0


def _amplified(cost: tuple[float, float], rate: float) -> tuple[float, float]:
    """Return what an event costs on a sample (Balle, Barthe and Gaboardi 2018)."""
    epsilon, delta = cost
    if epsilon > 700:  # its exponential has no float
        return epsilon, rate * delta
    return math.log1p(rate * math.expm1(epsilon)), rate * delta


# --- privacy loss distributions ---------------------------------------------------------------


@lru_cache(maxsize=4096)
def _pld_epsilon(events: tuple[Event, ...], delta: float) -> float:
    smooth, shift = _smoothed(_times(events))
    return _epsilon_of(smooth, delta, _grid(smooth), -_rounding(smooth)) + shift


def _grid(times: Counter[Event]) -> float:
    """Return how finely losses are told apart: less finely where they are so large that nobody minds."""
    widest = max(map(_reach, times), default=0.0)
    return _GRID * 2.0 ** max(0, math.ceil(math.log2(max(widest, 1e-9) / (_POINTS * _GRID))))


def _reach(event: Event) -> float:
    """Return about how large the loss of an event can become."""
    match event:
        case PoissonSampled() | FixedSampled():
            return _reach(event.event)
        case Gaussian() | DiscreteGaussian():
            return 1 / (2 * event.noise_multiplier**2) + _FAR / event.noise_multiplier
        case Parallel():
            return max(_reach(one) for part in event.events for one in _times([part]))
    return _own_cost(event)[0]


def _epsilon_of(times: Counter[Event], delta: float, grid: float, slack: float) -> float:
    """Return the epsilon for a delta; one that takes convolutions is asked for the delta and its slack."""
    if all(isinstance(event, Gaussian) for event in times):
        return _gaussian_epsilon(_strength(times), delta)
    if delta + slack <= 0:
        return math.inf
    return float(_composed(times, grid).get_epsilon_for_delta(min(delta + slack, 1.0)))


def _rounding(times: Counter[Event]) -> float:
    """Return how much of a delta the floats of convolutions can hide; 2e-14 was seen for any number of events."""
    return 1e-13 + 1e-14 * len(times)


def _smoothed(times: Counter[Event]) -> tuple[Counter[Event], float]:
    """Return the events with noise of a large scale in real instead of whole numbers, and what that can hide.

    Noise in whole numbers is at most 1 larger than some noise in real numbers of the same scale (both
    tails of the one lie between those of the other and of the other moved by 1), so the loss is larger by no
    more than it changes over 1. Listing all the whole numbers would take long.
    """
    smooth: Counter[Event] = Counter()
    shift = 0.0
    for event, count in times.items():
        same, moved = _smoothed_one(event)
        smooth[same] += count
        shift += count * moved
    return smooth, shift


def _smoothed_one(event: Event) -> tuple[Event, float]:
    match event:
        case DiscreteGaussian() if event.scale > _WIDE:
            return Gaussian(event.scale, event.sensitivity, event.relation), event.sensitivity / event.scale**2
        case DiscreteLaplace() if event.scale > _WIDE:
            return Laplace(event.scale, event.sensitivity, event.relation), 2 / event.scale
        case PoissonSampled():
            inner, moved = _smoothed_one(event.event)
            return PoissonSampled(event.rate, inner), moved
        case Parallel():
            parts = [_smoothed(_times([one])) for one in event.events]
            composed = [Composed(tuple(Repeated(one, count) for one, count in part.items())) for part, _ in parts]
            return Parallel(tuple(composed)), max(moved for _, moved in parts)
    return event, 0.0


def _optimistic(events: tuple[Event, ...], delta: float) -> float:
    """Return a lower bound of epsilon: the loss on the grid, less what the grid can have added.

    A loss that is spread over the two ends of its cell without bias is moved by at most the square root
    of the number of events (Hoeffding) and a bias of the second order; one rounded up by a cell each.
    """
    times, shift = _smoothed(_times(events))
    if all(isinstance(event, Gaussian) for event in times):
        return max(0.0, _gaussian_epsilon(_strength(times), delta) - shift)
    unlikely = delta / 1000
    spread = sum(1 if isinstance(event, Gaussian) else count for event, count in times.items() if _is_spread(event))
    rounded = sum(count * _pieces(event) for event, count in times.items() if not _is_spread(event))
    many = spread >= 100 and not any(isinstance(event, FixedSampled) for event in times)  # their losses reach too far
    grid = _grid(times) / 10 if many else _grid(times)
    moved = math.sqrt(spread * math.log(1 / unlikely) / 2) + spread * grid / 4 + rounded
    slack = unlikely + _rounding(times)
    return max(0.0, _epsilon_of(times, delta, grid, slack) - moved * grid - shift)


def _is_spread(event: Event) -> bool:
    inner = event.event if isinstance(event, PoissonSampled | FixedSampled) else event
    return isinstance(inner, Gaussian) or (isinstance(inner, Laplace) and not isinstance(event, FixedSampled))


def _pieces(event: Event) -> int:
    """Return how many losses are rounded to the grid for an event."""
    if isinstance(event, Parallel):
        return 1 + max(sum(count * _pieces(one) for one, count in _times([part]).items()) for part in event.events)
    return 1


def _strength(times: Counter[Event]) -> float:
    """Return the sensitivity over the scale of the one Gaussian that several ones together are."""
    return math.sqrt(
        math.fsum(count / event.noise_multiplier**2 for event, count in times.items() if isinstance(event, Gaussian))
    )


@lru_cache(maxsize=1024)
def _gaussian_epsilon(strength: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise (Balle and Wang 2018), from above to the last digits."""
    from scipy.special import log_ndtr, ndtr

    def lost(epsilon: float) -> float:
        above, below = strength / 2 - epsilon / strength, -strength / 2 - epsilon / strength
        return float(ndtr(above)) - math.exp(epsilon + float(log_ndtr(below)))

    low, high = 0.0, 1.0
    if lost(low) <= delta:
        return 0.0
    while lost(high) > delta:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if lost(middle) <= delta else (middle, high)
    return high * (1 + 1e-9)  # the difference of two probabilities has its own rounding


def _times(events: Iterable[Event]) -> Counter[Event]:
    """Return how often each event that is not made of others happened."""
    times: Counter[Event] = Counter()

    def add(event: Event, count: int) -> None:
        match event:
            case Repeated():
                add(event.event, count * event.times)
            case Composed():
                for one in event.events:
                    add(one, count)
            case Shuffled():
                add(event.event, count)
            case Parallel() if len(set(event.events)) == 1:
                add(event.events[0], count)
            case _:
                times[event] += count

    for event in events:
        add(event, 1)
    return times


def _composed(times: Counter[Event], grid: float) -> Any:
    """Return the distribution of all events; equal ones are convolved at once."""
    parts = [_repeated(event, count, grid) for event, count in times.items() if not isinstance(event, Gaussian)]
    strength = _strength(times)
    if strength:  # the sum of Gaussians is one: no convolution, no rounding
        parts.append(_single(Gaussian(1 / strength), grid))
    return reduce(lambda total, part: total.compose(part, _TAIL), parts)


@lru_cache(maxsize=256)
def _repeated(event: Event, count: int, grid: float) -> Any:
    return _single(event, grid) if count == 1 else _single(event, grid).self_compose(count, _TAIL)


@lru_cache(maxsize=256)
def _single(event: Event, grid: float) -> Any:
    """Return the privacy loss distribution of one event."""
    match event:
        case NoiseEvent():
            return _of_noise(event, 1.0, grid)
        case PureEvent() | ApproximateEvent():
            return _of_parameters(*_own_cost(event), grid)
        case PoissonSampled(event=Gaussian() as inner) if inner.relation is Relation.ADD_REMOVE and event.rate < 1:
            return _of_sampled(inner, event.rate, grid)
        case PoissonSampled(event=NoiseEvent() as inner) if inner.relation is Relation.ADD_REMOVE:
            return _of_noise(inner, event.rate, grid)
        case PoissonSampled(event=Gaussian() as inner):
            return _of_replaced(inner, event.rate, grid)
        case PoissonSampled(event=PureEvent() | ApproximateEvent()) if event.relation is Relation.ADD_REMOVE:
            return _of_parameters(*_own_cost(event), grid)
        case FixedSampled(event=Gaussian() as inner):
            return _of_fixed(inner, event.rate, grid)
        case FixedSampled(event=PureEvent() | ApproximateEvent() | Laplace() | DiscreteLaplace()):
            return _of_parameters(*_own_cost(event), grid)
        case Parallel():
            return _of_worst(event, grid)
    raise OptionError(f"no bound is known for this event under {event.relation.value}: {event}")


def _of_noise(event: NoiseEvent, rate: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    shared: dict[str, Any] = {"value_discretization_interval": grid, "sampling_prob": rate}
    match event:
        case Gaussian():
            return pld.from_gaussian_mechanism(event.scale, event.sensitivity, **shared)
        case Laplace():
            return pld.from_laplace_mechanism(event.scale, event.sensitivity, **shared)
        case DiscreteLaplace():
            return pld.from_discrete_laplace_mechanism(1 / event.scale, int(event.sensitivity), **shared)
        case DiscreteGaussian():
            return pld.from_discrete_gaussian_mechanism(event.scale, int(event.sensitivity), **shared)
    raise OptionError(f"no bound is known for this noise: {event}")


def _of_replaced(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distribution of a Poisson sampled sum under replace-one: half of the sensitivity each way."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        event.scale,
        event.sensitivity / 2,
        value_discretization_interval=grid,
        sampling_prob=rate,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )


def _of_parameters(epsilon: float, delta: float, grid: float) -> Any:
    """Return the worst distribution of anything that is (epsilon, delta)-private (Kairouz, Oh and Viswanath 2015)."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return pld.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, delta), grid)


def _of_fixed(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distribution of a sample without replacement (Zhu, Dong and Wang 2022).

    For losses above 0 the worst pair is the mixture against the noise, below 0 the noise against the
    mixture. Neither alone is a bound after composition (Lebeda et al. 2024), so one distribution is built from both.
    """
    if rate == 1:
        return _of_noise(event, 1.0, grid)
    highest = math.ceil(_mixture_loss(1 + _FAR * event.noise_multiplier, event, rate) / grid)
    lowest = math.floor(-_mixture_loss(_FAR * event.noise_multiplier, event, rate) / grid)
    negative, positive = _losses(min(lowest, -1), -1, grid), _losses(0, max(highest, 1), grid)
    return _of_profile([*_add_profile(negative, event, rate), *_remove_profile(positive, event, rate)], negative, grid)


def _of_sampled(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distribution of Gaussian noise on a Poisson sample: adding and removing a record differ."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    multiplier = event.noise_multiplier
    ends = [_mixture_loss(place, event, rate) for place in (-_FAR * multiplier, _FAR * multiplier)]
    farthest = _mixture_loss(1 + _FAR * multiplier, event, rate)
    removed = _losses(math.floor(ends[0] / grid), math.ceil(farthest / grid), grid)
    added = _losses(math.floor(-ends[1] / grid), math.ceil(-ends[0] / grid), grid)
    return pld.PrivacyLossDistribution(
        _mass(_remove_profile(removed, event, rate), removed, grid),
        _mass(_add_profile(added, event, rate), added, grid),
    )


def _losses(lowest: int, highest: int, grid: float) -> Any:
    import numpy as np

    return np.arange(lowest, highest + 1) * grid


def _mixture_loss(place: float, event: Gaussian, rate: float) -> float:
    """Return the loss, at a place in sensitivities, of noise that is moved by 1 at a rate against noise that is not."""
    exponent = (2 * place - 1) / (2 * event.noise_multiplier**2)
    if exponent > 500:  # its exponential has no float
        return exponent + math.log(rate)
    return math.log1p(rate * math.expm1(exponent))


def _remove_profile(losses: Any, event: Gaussian, rate: float) -> Any:
    """Return, for each loss, the delta of noise that is moved by 1 at a rate against noise that is not."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    multiplier = event.noise_multiplier
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log(exp(loss) - (1 - rate)), which for a large loss is the loss itself
        excess = np.where(losses > 500, losses, np.log(np.expm1(np.minimum(losses, 500)) + rate))
        place = 0.5 + multiplier**2 * (excess - math.log(rate))
        deltas = rate * ndtr((1 - place) / multiplier) - np.exp(excess + log_ndtr(-place / multiplier))
    return np.clip(np.where(losses <= math.log1p(-rate), -np.expm1(losses), deltas), 0.0, 1.0)


def _add_profile(losses: Any, event: Gaussian, rate: float) -> Any:
    """Return, for each loss, the delta of noise that is not moved against noise that is moved by 1 at a rate."""
    import numpy as np
    from scipy.special import ndtr

    multiplier = event.noise_multiplier
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rest = np.expm1(-losses) + rate
        place = 0.5 + multiplier**2 * (np.log(rest) - math.log(rate))
        deltas = np.exp(losses) * (rest * ndtr(place / multiplier) - rate * ndtr((place - 1) / multiplier))
    return np.clip(np.where(losses >= -math.log1p(-rate), 0.0, deltas), 0.0, 1.0)


def _of_worst(event: Parallel, grid: float) -> Any:
    """Return a distribution that is nowhere better than that of any part."""
    import numpy as np

    within = [_times([one]) for one in dict.fromkeys(event.events)]
    parts = [_composed(times, grid) for times in within]
    reach = max(sum(count * _reach(one) for one, count in times.items()) for times in within)
    limit = min(math.ceil(reach / grid) + 1, 10 * _POINTS)  # beyond it, losses are put at infinity
    losses = _losses(-limit, limit, grid)
    return _of_profile(np.max([part.get_delta_for_epsilon(losses) for part in parts], axis=0), losses, grid)


def _of_profile(deltas: Any, losses: Any, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(_mass(deltas, losses, grid))


def _mass(deltas: Any, losses: Any, grid: float) -> Any:
    """Return the distribution whose deltas from the first loss on are given, and larger between them."""
    from dp_accounting.pld import pld_pmf

    lowest = round(float(losses[0]) / grid)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, lowest, lowest + len(deltas) - 1, deltas)


# --- Renyi privacy ----------------------------------------------------------------------------


def _rdp_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    from dp_accounting import NeighboringRelation, UnsupportedEventError
    from dp_accounting.rdp import RdpAccountant

    # The sensitivities are those under the relation already; only samples of a fixed size need its name.
    replaced = relation is Relation.REPLACE_ONE
    accountant = RdpAccountant(
        neighboring_relation=NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    for event in events:
        try:
            accountant.compose(event.dp_event())
        except UnsupportedEventError:
            raise OptionError(f"Renyi privacy cannot count this event: {event}", hint='use accountant="pld"') from None
    return float(accountant.get_epsilon(delta))

"""Privacy loss distributions (PLD) of events, and the bounds on epsilon that follow from them.

The losses of all events are discretized on a grid and convolved (Koskela et al. 2020; Doroshenko et al. 2022, as
implemented in dp-accounting). Discretization only increases the loss, so the epsilon is an upper bound. The largest
possible increase gives a lower bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Any

from sfumato.budget.accounting.private_selection import RandomStopping
from sfumato.budget.events import (
    ApproximateEvent,
    BoundedRange,
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
    Selected,
    Shuffled,
)
from sfumato.errors import OptionError

__all__ = [
    "delta_upper_bounds",
    "distinct_events",
    "epsilon_lower_bound",
    "epsilon_upper_bound",
    "gaussian_strength",
    "own_cost",
    "set_aside",
]

_GRID = 1e-4  # the width of a grid cell
_POINTS = 200_000  # the approximate maximum of grid points per event
_WIDE = 500  # from this scale on, discrete noise is accounted for as continuous noise
_FAR = 10.0  # Gaussian noise beyond this many scales counts as an infinite loss
_FLOAT = 2.0**-50  # the largest relative error of a float function
_TAIL = 1e-15  # the mass that dp-accounting may truncate per convolution
_BLOCK = 2**14  # losses summed at a time
_FEW = 1000  # of so few losses dp-accounting keeps a dictionary
_MOST_TIMES = 20_000_000  # with more equal events, the discretization errors add up to too much
_MOST_WIDE = 2**21  # the maximum of grid points for many equal events; beyond it the grid is coarsened
_DOTS = 10_000  # the losses of one run that are evaluated to bound the best run
_MOST_LOST = 500.0  # for a larger loss of one run, no bound is computed for the best run
_FARTHEST = 700.0  # the exponential of a larger loss overflows
_UNLIKELY = 1e-12  # the probability of a loss outside the range for which the grid is chosen
_NO_PRIVACY = 300.0  # a larger epsilon is added, not composed
_TINY = 1e-6  # a smaller epsilon is added, not composed: discretization would increase it a hundredfold


def own_cost(event: Event) -> tuple[float, float]:
    """Return the epsilon and delta of a single event in closed form; epsilon is infinite if there is none."""
    match event:
        case PureEvent():
            return event.epsilon, 0.0
        case ApproximateEvent():
            return event.epsilon, event.delta
        case Laplace() | DiscreteLaplace():
            return event.sensitivity / event.scale, 0.0
        case Shuffled():
            return own_cost(event.event)
        case PoissonSampled() if event.relation is Relation.ADD_REMOVE:
            return _amplified(own_cost(event.event), event.rate)
        case FixedSampled():
            return _amplified(own_cost(event.event), event.rate)
        case Selected():
            return _best_cost(event, own_cost(event.event))
        case Repeated():
            epsilon, delta = own_cost(event.event)
            return epsilon * event.times, delta * event.times
        case Composed():
            costs = list(map(own_cost, event.events))
            return math.fsum(epsilon for epsilon, _ in costs), math.fsum(delta for _, delta in costs)
        case Parallel():
            costs = list(map(own_cost, event.events))
            return max(epsilon for epsilon, _ in costs), max(delta for _, delta in costs)
    return math.inf, 0.0


def _amplified(cost: tuple[float, float], rate: float) -> tuple[float, float]:
    """Return the cost of an event on a sample (Balle, Barthe and Gaboardi 2018)."""
    epsilon, delta = cost
    if epsilon > 700:  # its exponential overflows
        return epsilon, rate * delta
    return math.log1p(rate * math.expm1(epsilon)), rate * delta


def _best_cost(event: Selected, cost: tuple[float, float]) -> tuple[float, float]:
    """Return the cost of the best of several runs, given the cost of one run."""
    epsilon, delta = cost
    if epsilon == math.inf or event.mean * delta >= 1:
        return math.inf, 0.0
    stopping = RandomStopping(event.mean, event.shape)
    # Any run is also (0, 1)-private.
    extra = min(float(stopping.extra_epsilon(epsilon, delta)), float(stopping.extra_epsilon(0.0, 1.0)))
    return epsilon + extra, event.mean * delta


def set_aside(events: tuple[Event, ...]) -> tuple[tuple[Event, ...], float, float]:
    """Separate events with a tiny epsilon; return the others, and the sums of the tiny epsilons and their deltas.

    Tiny events account for truncated samples and float noise. Adding their epsilons instead of composing them also
    holds if they depend on the other events.
    """
    left, epsilons, deltas = list[Event](), list[float](), list[float]()
    for event in events:
        within, times = (event.event, event.times) if isinstance(event, Repeated) else (event, 1)
        others: tuple[Event, ...]
        if isinstance(within, ApproximateEvent) and within.epsilon < _TINY:
            others, epsilon, delta = (), within.epsilon, within.delta
        elif isinstance(within, Composed):
            others, epsilon, delta = set_aside(within.events)
        else:
            others, epsilon, delta = (within,), 0.0, 0.0
        left.extend(one if times == 1 else Repeated(one, times) for one in others)
        epsilons.append(times * epsilon)
        deltas.append(times * delta)
    return tuple(left), math.fsum(epsilons), math.fsum(deltas)


@lru_cache(maxsize=4096)
def epsilon_upper_bound(events: tuple[Event, ...], delta: float) -> float:
    """Return an upper bound on the epsilon of events at a delta."""
    smooth, shift = _smoothed(distinct_events(events))
    if _are_too_many(smooth) or any(isinstance(one, Selected) and _is_unbounded(one) for one in smooth):
        return math.inf
    return _epsilon_of(smooth, delta, _grid(smooth), -_rounding(smooth)) + shift


def _are_too_many(times: Counter[Event]) -> bool:
    return any(count > _MOST_TIMES for event, count in times.items() if not isinstance(event, Gaussian))


def _is_unbounded(event: Selected) -> bool:
    """Return whether the loss of one run is too large for a useful bound on the best run."""
    return max(map(_reach, distinct_events([event.event])), default=0.0) > _MOST_LOST


def _grid(times: Counter[Event]) -> float:
    """Return the width of a grid cell, which is larger for larger losses."""
    widest = max(map(_reach, times), default=0.0)
    return _GRID * 2.0 ** max(0, math.ceil(math.log2(max(widest, 1e-9) / (_POINTS * _GRID))))


def _reach(event: Event) -> float:
    """Return the approximate range of the loss of an event."""
    match event:
        case PoissonSampled() | FixedSampled():
            return _reach(event.event)
        case Gaussian() | DiscreteGaussian():
            return 1 / (2 * event.noise_multiplier**2) + _FAR / event.noise_multiplier
        case Parallel():
            return max(_reach(one) for part in event.events for one in distinct_events([part]))
        case Selected():
            epsilon, _ = _best_cost(event, (epsilon_upper_bound((event.event,), _UNLIKELY), 0.0))
            return epsilon if epsilon < math.inf else 0.0
    epsilon, _ = own_cost(event)
    return epsilon if epsilon < math.inf else 0.0  # no bound is known


def _epsilon_of(times: Counter[Event], delta: float, grid: float, slack: float) -> float:
    """Return the epsilon of events at a delta; where it takes convolutions, at the delta plus the slack."""
    if not times:
        return 0.0
    if all(isinstance(event, Gaussian) for event in times):
        return _gaussian_epsilon(_strength(times), delta)
    if delta + slack <= 0:
        return math.inf
    try:
        return max(_epsilon_at(way, min(delta + slack, 1.0)) for way in _ways(_composed(times, grid)))
    except _TooFine as wide:
        return _epsilon_of(times, delta, grid * wide.factor, slack)
    except OverflowError:  # the exponential of a loss overflows, so no bound is known
        return math.inf


def _epsilon_at(mass: Any, delta: float) -> float:
    """Return the smallest epsilon of a loss distribution at a delta.

    dp-accounting sums from the largest loss down in a Python loop; this computes the same sums in blocks.
    """
    import numpy as np

    above, below = mass._infinity_mass, 0.0  # the probability of larger losses under either table
    if above > delta:
        return math.inf
    chances = np.asarray(mass._probs, dtype=np.float64)[::-1]
    for start in range(0, len(chances), _BLOCK):
        some = chances[start : start + _BLOCK]
        largest = mass._lower_loss + len(chances) - 1 - start
        losses = (largest - np.arange(len(some))) * mass._discretization
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            uppers = np.cumsum(np.concatenate([[above], some]))
            lowers = np.cumsum(np.concatenate([[below], np.exp(-losses) * some]))
            epsilons = np.log((uppers[:-1] - delta) / lowers[:-1])
        solved = (uppers[:-1] > delta) & (lowers[:-1] > 0) & (epsilons >= losses)
        too_large = (uppers[1:] >= delta) & (lowers[1:] == 0)  # their exponentials underflow
        if (solved | too_large).any():
            first = int(np.argmax(solved | too_large))
            return max(0.0, float(epsilons[first] if solved[first] else losses[first]))
        above, below = float(uppers[-1]), float(lowers[-1])
        if not math.isfinite(below):
            raise OverflowError
    return 0.0 if above <= below + delta else math.log((above - delta) / below)


def _rounding(times: Counter[Event]) -> float:
    """Return a bound on the float error of convolutions in delta; the largest error observed is 2e-14."""
    return 1e-13 + 1e-14 * len(times)


def _smoothed(times: Counter[Event]) -> tuple[Counter[Event], float]:
    """Return the events with wide discrete noise replaced by continuous noise, and the epsilon that this can hide.

    Events with a very large or a tiny epsilon are removed, and their epsilon is added to the second result.

    Discrete noise exceeds some continuous noise of the same scale by at most 1 (its tails are between those of
    the continuous noise and of the same noise shifted by 1), so the loss increases at most by its change over
    a distance of 1. Enumerating all whole numbers would take too long.
    """
    smooth: Counter[Event] = Counter()
    shift = 0.0
    for event, count in times.items():
        same, moved = _smoothed_one(event)
        if same is not None:
            smooth[same] += count
        shift += count * moved
    return smooth, shift


def _smoothed_one(event: Event) -> tuple[Event | None, float]:
    epsilon, delta = own_cost(event)
    is_tiny = isinstance(event, ApproximateEvent) and epsilon < _TINY
    if is_tiny or _NO_PRIVACY < epsilon < math.inf:
        return ApproximateEvent(0.0, delta, event.relation, unit=event.unit) if delta else None, epsilon
    match event:
        case DiscreteGaussian() if event.scale > _WIDE:
            wide = Gaussian(event.scale, event.sensitivity, event.relation, unit=event.unit)
            return wide, event.sensitivity / event.scale**2
        case DiscreteLaplace() if event.scale > _WIDE:
            return Laplace(event.scale, event.sensitivity, event.relation, unit=event.unit), 2 / event.scale
        case PoissonSampled():
            inner, moved = _smoothed_one(event.event)
            return (event, 0.0) if inner is None else (PoissonSampled(event.rate, inner), moved)
        case Parallel():
            parts = [_smoothed(distinct_events([one])) for one in event.events]
            left = [Composed(tuple(Repeated(one, count) for one, count in part.items())) for part, _ in parts if part]
            return Parallel(tuple(left)) if left else None, max(moved for _, moved in parts)
    return event, 0.0


def epsilon_lower_bound(events: tuple[Event, ...], delta: float) -> float:
    """Return a lower bound on epsilon: the loss on the grid minus the largest discretization error.

    A loss that is split between the two ends of its cell without bias moves, over all events, by at most the square
    root of their number (Hoeffding) plus a second-order bias; a loss that is rounded up moves by one cell per event.
    """
    times, shift = _smoothed(distinct_events(events))
    if _are_too_many(times) or any(map(_is_selected, times)):
        return 0.0
    if all(isinstance(event, Gaussian) for event in times):
        return max(0.0, _epsilon_of(times, delta, _GRID, 0.0) - shift)
    unlikely = delta / 1000
    spread = sum(1 if isinstance(event, Gaussian) else count for event, count in times.items() if _is_spread(event))
    rounded = sum(count * _pieces(event) for event, count in times.items() if not _is_spread(event))
    # The losses of fixed-size samples span too wide a range for a finer grid.
    many = spread >= 100 and not any(isinstance(event, FixedSampled) for event in times)
    grid = _grid(times) / 10 if many else _grid(times)
    moved = math.sqrt(spread * math.log(1 / unlikely) / 2) + spread * grid / 4 + rounded
    slack = unlikely + _rounding(times)
    return max(0.0, _epsilon_of(times, delta, grid, slack) - moved * grid - shift)


def delta_upper_bounds(events: Iterable[Event], epsilons: Any) -> Any:
    """Return upper bounds on delta at nonnegative epsilons, for adding and for removing a record.

    Examples
    --------
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100)
    >>> [float(f"{delta:.2g}") for delta in delta_upper_bounds([run], [0.1, 0.5, 1.0])]
    [0.019, 0.00013, 6.7e-07]
    """
    import numpy as np

    ideal, more, lost = set_aside(tuple(events))
    times, shift = _smoothed(distinct_events(ideal))
    given = np.asarray(epsilons, dtype=np.float64)
    if _are_too_many(times) or any(isinstance(one, Selected) and _is_unbounded(one) for one in times):
        return np.ones_like(given)
    at = given - more - shift
    deltas = _deltas_of(times, np.maximum(at, 0.0), _grid(times))
    if (below := at < 0).any():  # the profile at a negative epsilon follows from its swapped pair of tables
        deltas[below] = 1 - np.exp(at[below]) * (1 - deltas[below])
    return np.minimum(deltas + lost, 1.0)


def gaussian_strength(events: Iterable[Event]) -> float | None:
    """Return the sensitivity over the scale of the Gaussian that is equivalent to events; None if there is none.

    Examples
    --------
    >>> gaussian_strength([Repeated(Gaussian(4.0), 4)]), gaussian_strength([Laplace(1.0)])
    (0.5, None)
    """
    times = distinct_events(events)
    return _strength(times) if times and all(isinstance(event, Gaussian) for event in times) else None


def _deltas_of(times: Counter[Event], epsilons: Any, grid: float) -> Any:
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    if all(isinstance(event, Gaussian) for event in times):
        if not times:
            return np.zeros_like(epsilons)
        strength = _strength(times)
        above, below = strength / 2 - epsilons / strength, -strength / 2 - epsilons / strength
        less = log_ndtr(below)
        return ndtr(above) * (1 + _FLOAT) - np.exp(epsilons + less) * (1 - _FLOAT * (1 + epsilons - less))
    try:
        ways = [_deltas_at(way, epsilons) for way in _ways(_composed(times, grid))]
        return np.max(ways, axis=0) + _rounding(times)
    except _TooFine as wide:
        return _deltas_of(times, epsilons, grid * wide.factor)
    except OverflowError:  # no bound is known
        return np.ones_like(epsilons)


def _deltas_at(mass: Any, epsilons: Any) -> Any:
    """Return the deltas of a loss distribution at nonnegative epsilons; dp-accounting does so in a Python loop."""
    import numpy as np

    first = max(0, 1 - mass._lower_loss)  # the first loss above 0
    chances = np.maximum(np.asarray(mass._probs, dtype=np.float64)[first:], 0.0)
    losses = (mass._lower_loss + first + np.arange(len(chances))) * mass._discretization
    above = np.append(np.cumsum(chances[::-1])[::-1], 0.0)
    below = np.append(np.cumsum((chances * np.exp(-losses))[::-1])[::-1], 0.0)
    at = np.searchsorted(losses, epsilons, side="right")
    return mass._infinity_mass + np.maximum(above[at] - np.exp(epsilons) * below[at], 0.0)


def _is_selected(event: Event) -> bool:
    """Return whether an event contains a selection, whose discretization error has no known bound."""
    if isinstance(event, Parallel):
        return any(_is_selected(one) for part in event.events for one in distinct_events([part]))
    return isinstance(event, Selected)


def _is_spread(event: Event) -> bool:
    inner = event.event if isinstance(event, PoissonSampled | FixedSampled) else event
    return isinstance(inner, Gaussian) or (isinstance(inner, Laplace) and not isinstance(event, FixedSampled))


def _pieces(event: Event) -> int:
    """Return the number of losses that are rounded to the grid for an event."""
    if isinstance(event, Parallel):
        return 1 + max(
            sum(count * _pieces(one) for one, count in distinct_events([part]).items()) for part in event.events
        )
    return 1


def _strength(times: Counter[Event]) -> float:
    """Return the sensitivity over the scale of the Gaussian that is equivalent to several Gaussians."""
    return math.sqrt(
        math.fsum(count / event.noise_multiplier**2 for event, count in times.items() if isinstance(event, Gaussian))
    )


@lru_cache(maxsize=1024)
def _gaussian_epsilon(strength: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise (Balle and Wang 2018), rounded up."""
    from scipy.special import log_ndtr, ndtr

    def lost(epsilon: float) -> float:
        above, below = strength / 2 - epsilon / strength, -strength / 2 - epsilon / strength
        less = float(log_ndtr(below))
        # Both terms have an error of a few units in the last place, and delta may be their small difference.
        return float(ndtr(above)) * (1 + _FLOAT) - math.exp(epsilon + less) * (1 - _FLOAT * (1 + epsilon - less))

    low, high = 0.0, 1.0
    if lost(low) <= delta:
        return 0.0
    while lost(high) > delta:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if lost(middle) <= delta else (middle, high)
    return high


def distinct_events(events: Iterable[Event]) -> Counter[Event]:
    """Count the elementary events, that is, those that do not consist of others."""
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
            case Parallel() if (strongest := _strongest(event)) is not None:
                add(strongest, count)
            case _:
                times[event] += count

    for event in events:
        add(event, 1)
    return times


def _strongest(event: Parallel) -> Event | None:
    """Return the part with the largest loss if all parts are Gaussian: it then dominates the others everywhere."""
    strengths = {}
    for one in event.events:
        times = distinct_events([one])
        if not all(isinstance(each, Gaussian) for each in times):
            return None
        strengths[one] = _strength(times)
    return max(strengths, key=strengths.__getitem__)


def _composed(times: Counter[Event], grid: float) -> Any:
    """Return the loss distribution of all events together."""
    parts = [_repeated(event, count, grid) for event, count in times.items() if not isinstance(event, Gaussian)]
    strength = _strength(times)
    if strength:  # Gaussians compose to one Gaussian, without convolution or rounding
        parts.append(_single(Gaussian(1 / strength), grid))
    return reduce(lambda total, part: total.compose(part, _TAIL), parts)


@lru_cache(maxsize=256)
def _repeated(event: Event, count: int, grid: float) -> Any:
    if count > _MOST_TIMES:
        raise OptionError(f"a nested event can be repeated at most {_MOST_TIMES:,} times, got {count:,}")
    return _single(event, grid) if count == 1 else _self_composed(_single(event, grid), count)


class _TooFine(Exception):
    """The grid is too fine for the memory that this many equal events may use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = 2.0 ** math.ceil(math.log2(width / _MOST_WIDE))


def _self_composed(single: Any, count: int) -> Any:
    """Return the distribution of equal events with a single Fourier transform.

    dp-accounting bounds the tails by moments whose orders do not depend on the number of events, so its
    arrays grow linearly with that number. With the best order they grow with its square root.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(*(_power(way, count) for way in _ways(single)))


def _power(mass: Any, count: int) -> Any:
    import numpy as np
    from dp_accounting.pld import pld_pmf
    from scipy import fft

    chances = np.asarray(mass._probs, dtype=np.float64)
    places = np.arange(len(chances))
    mean = float(chances @ places)
    spread = max(float(chances @ np.square(places - mean)), 1e-9)
    best = math.sqrt(2 * math.log(2 / _TAIL) / (count * spread))  # Chernoff's bound for a normal sum
    orders = best * 2.0 ** np.arange(-3, 4)
    low, high = _ends_of_sum(chances, places, count, [*-orders, *orders])
    if (width := high - low + 1) > max(_MOST_WIDE, len(chances)):
        raise _TooFine(width)
    length = fft.next_fast_len(max(width, len(chances)), real=True)
    powered = fft.irfft(fft.rfft(chances, length) ** count, length)
    lost = _TAIL - math.expm1(count * math.log1p(-mass._infinity_mass)) if mass._infinity_mass < 1 else 1.0
    kept = np.roll(powered, -(low % length))[:width]
    return pld_pmf.DensePLDPmf(mass._discretization, mass._lower_loss * count + low, kept, lost, True)


def _ends_of_sum(chances: Any, places: Any, count: int, orders: list[float]) -> tuple[int, int]:
    """Return the places that a sum of so many draws leaves with a probability of at most `_TAIL`, by Chernoff's bound.

    They are those of dp-accounting, whose moments take longer.
    """
    import numpy as np

    low, high = 0, (len(chances) - 1) * count
    for order in orders:
        most = max(0.0, order * (len(chances) - 1))
        moment = float(chances @ np.exp(order * places - most))
        bound = (count * (math.log(moment) + most) + math.log(2 / _TAIL)) / order if moment > 0 else math.inf
        if math.isfinite(bound):
            low, high = (low, min(high, math.ceil(bound))) if order > 0 else (max(low, math.floor(bound)), high)
    return low, high


@lru_cache(maxsize=256)
def _single(event: Event, grid: float) -> Any:
    """Return the loss distribution of one event."""
    match event:
        case Gaussian():
            return _of_gaussian(event, grid)
        case NoiseEvent():
            return _of_noise(event, 1.0, grid)
        case BoundedRange():
            return _of_bounded_range(event.epsilon, grid)
        case PoissonSampled(event=Gaussian() as inner) if inner.relation is Relation.ADD_REMOVE and event.rate < 1:
            return _of_sampled(inner, event.rate, grid)
        case PoissonSampled(event=NoiseEvent() as inner) if inner.relation is Relation.ADD_REMOVE:
            return _of_noise(inner, event.rate, grid)
        case PoissonSampled(event=Gaussian() as inner):
            return _of_replaced(inner, event.rate, grid)
        case FixedSampled(event=Gaussian() as inner):
            return _of_fixed(inner, event.rate, grid)
        case Parallel():
            return _of_worst(event, grid)
        case Selected():
            return _of_best(event, grid)
    epsilon, delta = own_cost(event)
    if epsilon < math.inf and delta < 1:
        return _of_parameters(epsilon, delta, grid)
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


def _of_gaussian(event: Gaussian, grid: float) -> Any:
    """Return the distribution of Gaussian noise as dp-accounting does, but vectorized."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    multiplier = event.noise_multiplier
    middle, farthest = 1 / (2 * multiplier**2), _FAR / multiplier
    losses = _losses(math.floor((middle - farthest) / grid), math.ceil((middle + farthest) / grid), grid)
    place = losses * multiplier
    with np.errstate(over="ignore", under="ignore"):
        # In the upper tail, a difference of nearly equal numbers would cancel.
        first, second = 1 / (2 * multiplier) - place, -1 / (2 * multiplier) - place
        deltas = ndtr(first) - np.exp(losses + log_ndtr(second))
    return _of_profile(np.clip(deltas, 0.0, 1.0), losses, grid)


def _of_replaced(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distribution of a Poisson-sampled sum under replace-one, with half of the sensitivity each way.

    It is that of dp-accounting, which finds the place of each loss in a Python loop.
    """
    import numpy as np
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    half = event.sensitivity / 2
    pair = GaussianPrivacyLoss(event.scale, half, sampling_prob=rate, adjacency_type=AdjacencyType.REPLACE)
    ends = pair.connect_dots_bounds()
    losses = _losses(math.floor(ends.epsilon_lower / grid), math.ceil(ends.epsilon_upper / grid), grid)
    with np.errstate(divide="ignore", over="ignore"):
        # arcsinh(a sinh(loss / 2)) with a = exp((half / scale)^2 / 2) (1 - rate) / rate, by logarithms
        log_sinh = np.abs(losses) / 2 + np.log1p(-np.exp(-np.abs(losses))) - math.log(2)
        log_product = log_sinh + (half / event.scale) ** 2 / 2 + np.log1p(-rate) - math.log(rate)
        arcsinh = np.sign(losses) * np.logaddexp(np.logaddexp(0, 2 * log_product) / 2, log_product)
        place = -(event.scale**2) / half * (arcsinh + losses / 2)
        deltas = pair.mu_upper_cdf(place) - np.exp(losses + pair.mu_lower_log_cdf(place))
    return _of_profile(np.clip(deltas, 0.0, 1.0), losses, grid)


def _of_parameters(epsilon: float, delta: float, grid: float) -> Any:
    """Return the worst-case distribution of an (epsilon, delta)-private event (Kairouz, Oh and Viswanath 2015)."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return pld.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, delta), grid)


def _of_bounded_range(epsilon: float, grid: float) -> Any:
    """Return the worst-case distribution of losses in an interval of length epsilon (Dong, Durfee and Rogers 2020).

    The worst pair for an interval has only its two ends as losses. The delta at a loss is the largest over all
    intervals, in closed form; a distribution with these deltas dominates every one of them, also if later choices
    depend on earlier ones.
    """
    import numpy as np

    most = math.ceil(epsilon / grid)
    losses = _losses(-most, most, grid)
    within = np.clip(losses, -epsilon, epsilon)
    deltas = np.square(np.expm1((within - epsilon) / 2)) / -math.expm1(-epsilon)
    return _of_profile(np.where(losses < -epsilon, -np.expm1(losses), deltas), losses, grid)


def _of_fixed(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distribution of a sample without replacement (Zhu, Dong and Wang 2022).

    For losses above 0 the worst pair is the mixture against the noise; below 0 it is the noise against the
    mixture. Neither alone is a bound after composition (Lebeda et al. 2024), so one distribution combines both.
    """
    if rate == 1:
        return _of_noise(event, 1.0, grid)
    highest = math.ceil(_mixture_loss(1 + _FAR * event.noise_multiplier, event, rate) / grid)
    lowest = math.floor(-_mixture_loss(_FAR * event.noise_multiplier, event, rate) / grid)
    negative, positive = _losses(min(lowest, -1), -1, grid), _losses(0, max(highest, 1), grid)
    return _of_profile([*_add_profile(negative, event, rate), *_remove_profile(positive, event, rate)], negative, grid)


def _of_sampled(event: Gaussian, rate: float, grid: float) -> Any:
    """Return the distributions of Gaussian noise on a Poisson sample, for removing and for adding a record."""
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
    """Return the loss of the sampled mixture against the noise, at a point in units of the sensitivity."""
    exponent = (2 * place - 1) / (2 * event.noise_multiplier**2)
    if exponent > 500:  # its exponential overflows
        return exponent + math.log(rate)
    return math.log1p(rate * math.expm1(exponent))


def _remove_profile(losses: Any, event: Gaussian, rate: float) -> Any:
    """Return the delta of the sampled mixture against the noise, at each loss."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    multiplier = event.noise_multiplier
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log(exp(loss) - (1 - rate)), which equals the loss if it is large
        excess = np.where(losses > 500, losses, np.log(np.expm1(np.minimum(losses, 500)) + rate))
        place = 0.5 + multiplier**2 * (excess - math.log(rate))
        deltas = rate * ndtr((1 - place) / multiplier) - np.exp(excess + log_ndtr(-place / multiplier))
        deltas = np.where(losses <= math.log1p(-rate), -np.expm1(losses), deltas)
    return np.clip(deltas, 0.0, 1.0)


def _add_profile(losses: Any, event: Gaussian, rate: float) -> Any:
    """Return the delta of the noise against the sampled mixture, at each loss."""
    import numpy as np
    from scipy.special import ndtr

    multiplier = event.noise_multiplier
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rest = np.expm1(-losses) + rate
        place = 0.5 + multiplier**2 * (np.log(rest) - math.log(rate))
        deltas = np.exp(losses) * (rest * ndtr(place / multiplier) - rate * ndtr((place - 1) / multiplier))
    return np.clip(np.where(losses >= -math.log1p(-rate), 0.0, deltas), 0.0, 1.0)


def _of_worst(event: Parallel, grid: float) -> Any:
    """Return a distribution that dominates that of every part."""
    import numpy as np

    parts = [_composed(distinct_events([one]), grid) for one in dict.fromkeys(event.events)]
    ways = [way for part in parts for way in _ways(part)]
    lowest = min(way._lower_loss for way in ways)
    highest = max(way._lower_loss + way.size - 1 for way in ways)
    limit = 10 * _POINTS  # larger losses count as infinite, smaller ones as the lowest grid point
    lowest, highest = max(min(lowest, -1), -limit), min(max(highest, 1), limit)
    deltas = np.max([_profile(way, lowest, highest, grid) for way in ways], axis=0)
    # Float errors can make a distribution sum to slightly more than 1.
    return _of_profile(np.minimum(deltas, 1.0), _losses(lowest, highest, grid), grid)


def _profile(mass: Any, lowest: int, highest: int, grid: float) -> Any:
    """Return the deltas of a distribution on a range of the grid.

    With r = exp(-grid), the delta at loss k is the sum of p_i (1 - r^(i-k)) over the losses i above k. From one loss
    to the next lower one it grows by (1 - r) times the sum of p_i r^(i-k-1). A linear filter computes that without
    cancellation.
    """
    import numpy as np
    from scipy.signal import lfilter

    first, last = max(mass._lower_loss, lowest), min(mass._lower_loss + mass.size - 1, highest)
    within = np.zeros(highest - lowest + 1)
    if first <= last:
        chances = np.asarray(mass._probs)[first - mass._lower_loss : last - mass._lower_loss + 1]
        within[first - lowest : last - lowest + 1] = np.maximum(chances, 0.0)
    beyond = float(np.maximum(np.asarray(mass._probs)[max(highest + 1 - mass._lower_loss, 0) :], 0.0).sum())
    faded = lfilter([0.0, 1.0], [1.0, -math.exp(-grid)], within[::-1])
    return (mass._infinity_mass + beyond - math.expm1(-grid) * np.cumsum(faded))[::-1]


def _deltas(distribution: Any, epsilons: Any) -> Any:
    """Return the deltas at ascending epsilons.

    They are those of dp-accounting, which adds up the same numbers in the same order, one by one.
    """
    import numpy as np

    found = []
    for way in _ways(distribution):
        losses = (np.arange(way.size) + way._lower_loss) * way._discretization
        above = losses > epsilons[0]  # what is below counts for none of them
        losses, chances = losses[above][::-1], np.asarray(way._probs)[above][::-1]
        upper = np.cumsum(np.append(way._infinity_mass, chances))
        lower = np.cumsum(np.append(0.0, chances * np.exp(-losses)))
        counted = len(losses) - np.searchsorted(losses[::-1], epsilons, side="right")
        found.append(upper[counted] - np.exp(epsilons) * lower[counted])
    return np.max(found, axis=0)


def _ways(distribution: Any) -> list[Any]:
    """Return the distribution for removing a record and, where it differs, that for adding one."""
    both = [distribution._pmf_remove] if distribution._symmetric else [distribution._pmf_remove, distribution._pmf_add]
    return [way.to_dense_pmf() for way in both]


def _of_best(event: Selected, grid: float) -> Any:
    """Return a distribution that dominates that of the best of several runs (Koskela et al. 2024).

    Its delta is at most the mean number of runs times the delta of one run at an epsilon reduced by
    `RandomStopping.extra_epsilon`.
    """
    import numpy as np

    times, moved = _smoothed(distinct_events([event.event]))
    run = _composed(times, grid)
    reach = run.get_epsilon_for_delta(run.get_delta_for_epsilon(_FARTHEST) + _TAIL) + moved
    losses = np.linspace(0.0, reach + grid, _DOTS)
    deltas = _deltas(run, np.minimum(losses - moved, _FARTHEST)) + _rounding(times)
    deltas = np.minimum(deltas, 1.0)
    added = float(np.min(RandomStopping(event.mean, event.shape).extra_epsilon(losses, deltas)))
    limit = min(math.ceil((reach + added) / grid) + 1, 10 * _POINTS)  # larger losses count as infinite
    deltas, losses = _both_ways(deltas, losses)
    most = _losses(0, limit, grid)
    # The delta of one run is convex in exp(loss), so linear interpolation gives an upper bound.
    less = np.exp(np.clip(most - added, -_FARTHEST, _FARTHEST))
    best = event.mean * np.interp(less, np.exp(np.clip(losses, -_FARTHEST, _FARTHEST)), deltas, left=1.0)
    if best[-1] >= 1:  # one of the runs is expected to have an infinite loss
        raise OverflowError("no bound is known for the best of these runs")
    deltas, losses = _both_ways(_convex(np.minimum(best, 1.0), most), most)
    return _of_profile(deltas, losses, grid)


def _convex(deltas: Any, losses: Any) -> Any:
    """Return smaller valid deltas for small nonnegative losses, by convexity.

    The true delta is convex in exp(loss), so between a loss and its negative it is below the straight line that
    connects them; the lowest such line replaces the deltas.
    """
    import numpy as np

    small = np.exp(-losses)
    at = int(np.argmin((1 - small + 2 * deltas * small) / (1 + small)))  # the value of each line at loss 0
    line = deltas[at] + (1 - deltas[at]) * (1 - np.exp(losses[:at] - losses[at])) / (1 + small[at])
    return np.concatenate([line, deltas[at:]])


def _both_ways(deltas: Any, losses: Any) -> tuple[Any, Any]:
    """Extend deltas at nonnegative losses to the negative losses, where the swapped pair of tables determines them."""
    import numpy as np

    mirrored = 1 - np.exp(-losses) * (1 - deltas)
    return np.concatenate([mirrored[:0:-1], deltas]), np.concatenate([-losses[:0:-1], losses])


def _of_profile(deltas: Any, losses: Any, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(_mass(deltas, losses, grid))


def _mass(deltas: Any, losses: Any, grid: float) -> Any:
    """Return the distribution with these deltas at the losses, and larger deltas between them.

    It is that of dp-accounting, which takes a Python dictionary from one array to the next. The chances are those of
    the pessimistic Connect-the-Dots (Doroshenko et al. 2022, algorithm 1).
    """
    import numpy as np
    from dp_accounting.pld import pld_pmf

    deltas, lowest = np.asarray(deltas, dtype=np.float64), round(float(losses[0]) / grid)
    if len(deltas) <= _FEW or not (deltas.min() >= 0 and deltas.max() <= 1 and np.diff(deltas).max() <= 1e-12):
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, lowest, lowest + len(deltas) - 1, deltas)
    deltas = np.minimum.accumulate(deltas)  # a rise of a rounding error
    falls = np.diff(deltas)
    chances = np.empty_like(deltas)
    chances[0] = 1 - deltas[0] + falls[0] / math.expm1(grid)
    chances[1:-1] = (falls[1:] - falls[:-1] * math.exp(grid)) / math.expm1(grid)
    chances[-1] = falls[-1] / math.expm1(-grid)
    return pld_pmf.DensePLDPmf(grid, lowest, np.maximum(0.0, chances), deltas[-1], True)

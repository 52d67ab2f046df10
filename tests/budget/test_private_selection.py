"""The best of a random number of private runs costs what it is charged, and the number is drawn as it is said to be."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Ledger,
    Parallel,
    PoissonSampled,
    PureEvent,
    RandomStopping,
    Relation,
    Repeated,
    Selected,
    Shuffled,
    Source,
    group,
    replace_one,
    spent,
)
from sfumato.budget.noise import Floats
from tests.budget.chance import assert_fits

SHAPES = [-0.9, -0.5, 0.0, 0.4, 1.0, 2.5, "poisson"]
ORDERS = np.array([1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0])


# --- the definition, worked out exactly for a mechanism of a few outcomes, from the worst to the best ----


def generating(stopping: RandomStopping) -> Callable[[Floats], Floats]:
    """Return E[s**K] from the probabilities of the paper, not from any formula of ours."""
    if stopping.shape == "poisson":
        return lambda s: np.exp(stopping.mean * (s - 1))
    eta, gamma = float(stopping.shape), stopping.gamma
    assert gamma is not None
    if eta == 0:
        return lambda s: np.log1p(-(1 - gamma) * s) / math.log(gamma)
    return lambda s: ((1 - (1 - gamma) * s) ** -eta - 1) / (gamma**-eta - 1)


def best_of(outcomes: Floats, stopping: RandomStopping) -> Floats:
    """Return how likely each outcome is the best of K: all runs are at most it, but not all below it."""
    f = generating(stopping)
    upto = np.concatenate([[0.0], np.minimum(np.cumsum(outcomes), 1.0)])
    return np.concatenate([np.diff(f(upto)), f(np.zeros(1))])  # the last is that there was no run


def delta_at(here: Floats, there: Floats, epsilon: float) -> float:
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((here, there), (there, here)))


def divergence(here: Floats, there: Floats, order: float) -> float:
    def one_way(a: Floats, b: Floats) -> float:
        held = a > 0
        return float(np.logaddexp.reduce(order * np.log(a[held]) + (1 - order) * np.log(b[held]))) / (order - 1)

    return max(0.0, one_way(here, there), one_way(there, here))


def renyi_is_kept(
    stopping: RandomStopping, here: Floats, there: Floats, claim: Callable[[RandomStopping, Floats, Floats], Floats]
) -> bool:
    """Say whether a formula for the Renyi privacy of the best holds for two neighbouring tables."""
    claimed = claim(stopping, ORDERS, np.array([divergence(here, there, order) for order in ORDERS]))
    best = best_of(here, stopping), best_of(there, stopping)
    return all(divergence(*best, order) <= most + 1e-7 for order, most in zip(ORDERS, claimed, strict=True))


def profile_is_kept(
    stopping: RandomStopping, here: Floats, there: Floats, claim: Callable[[RandomStopping, float, float], float]
) -> bool:
    """Say whether deltas of the best are at most the mean times those of one, at an epsilon that is less."""
    best = best_of(here, stopping), best_of(there, stopping)
    at = [0.0, 0.01, 0.1, 0.3, 1.0, 3.0]
    added = min(claim(stopping, epsilon, delta_at(here, there, epsilon)) for epsilon in at)
    return all(
        delta_at(*best, epsilon + added) <= stopping.mean * delta_at(here, there, epsilon) + 1e-9 for epsilon in at
    )


def ours_renyi(stopping: RandomStopping, orders: Floats, costs: Floats) -> Floats:
    return stopping.renyi(orders, costs)


def ours_added(stopping: RandomStopping, epsilon: float, delta: float) -> float:
    return float(stopping.extra_epsilon(epsilon, delta))


@st.composite
def mechanisms(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Two to four outcomes, from the worst to the best, and their probabilities for two neighbouring tables."""
    size = draw(st.integers(2, 4))
    logs = st.lists(st.floats(-8, 0), min_size=size, max_size=size)
    here = np.exp(draw(logs))
    there = here * np.exp(draw(st.sampled_from([0.1, 1.0, 3.0])) * np.array(draw(logs)))
    there = np.maximum(there, 1e-6 * there.sum())  # `best_of` takes differences, which tell no much smaller ones
    return here / here.sum(), there / there.sum()


stoppings = st.builds(
    RandomStopping, st.sampled_from([1.01, 1.5, 3.0, 10.0, 300.0]), st.sampled_from(SHAPES)
) | st.builds(RandomStopping, st.sampled_from([0.05, 0.5, 1.0]), st.just("poisson"))

CATASTROPHE = np.array([1 - 1e-3, 1e-3]), np.array([1 - 1e-12, 1e-12])  # a rare outcome gives a record away


@settings(max_examples=300, deadline=None)
@given(mechanisms(), stoppings)
def test_the_renyi_privacy_of_the_best_is_never_worse_than_the_theorems_say(
    pair: tuple[Floats, Floats], stopping: RandomStopping
) -> None:
    assert renyi_is_kept(stopping, *pair, ours_renyi)


@settings(max_examples=300, deadline=None)
@given(mechanisms(), stoppings)
def test_the_deltas_of_the_best_are_never_larger_than_those_claimed(
    pair: tuple[Floats, Floats], stopping: RandomStopping
) -> None:
    assert profile_is_kept(stopping, *pair, ours_added)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0])
def test_a_renyi_bound_without_the_mean_number_of_runs_would_be_caught(shape: float) -> None:
    def forgetful(stopping: RandomStopping, orders: Floats, costs: Floats) -> Floats:
        return stopping.renyi(orders, costs) - math.log(stopping.mean) / (orders - 1)

    stopping = RandomStopping(10, shape)
    assert renyi_is_kept(stopping, *CATASTROPHE, ours_renyi)
    assert not renyi_is_kept(stopping, *CATASTROPHE, forgetful)


def test_a_renyi_bound_without_the_chance_of_no_run_would_be_caught() -> None:
    """Theorem 6 as it is printed adds log(mean) / (order - 1), which for a mean below 1 is less than nothing."""

    def forgetful(stopping: RandomStopping, orders: Floats, costs: Floats) -> Floats:
        ours = (orders - 1) * stopping.renyi(orders, costs)
        return np.log(np.exp(ours) - math.exp(-stopping.mean)) / (orders - 1)

    few = RandomStopping(0.5, "poisson")
    pair = np.array([0.5, 0.5]), np.array([0.49, 0.51])
    orders = ORDERS[ORDERS < 5]
    costs = np.array([divergence(*pair, order) for order in orders])
    best = best_of(pair[0], few), best_of(pair[1], few)
    true = [divergence(*best, order) for order in orders]
    assert all(true <= few.renyi(orders, costs))
    assert all(true > forgetful(few, orders, costs))


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 2.5])
def test_less_for_the_random_number_of_runs_would_be_caught(shape: float) -> None:
    def too_little(stopping: RandomStopping, epsilon: float, delta: float) -> float:
        return ours_added(stopping, epsilon, delta) * 0.85

    stopping = RandomStopping(3000, shape)
    # The middle outcome is likelier for the first table, and a better one, which hides it, is less likely.
    here, there = np.array([1e-4, 0.05]), np.array([1e-4 / math.e, 0.05 * math.e])
    pair = np.array([1 - here.sum(), *here]), np.array([1 - there.sum(), *there])
    assert profile_is_kept(stopping, *pair, ours_added)
    assert not profile_is_kept(stopping, *pair, too_little)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_a_rare_catastrophe_is_as_much_likelier_as_there_are_runs(shape: float | str) -> None:
    stopping, rare = RandomStopping(50, shape), 1e-9
    best = best_of(np.array([1 - rare, rare]), stopping), best_of(np.array([1.0, 0.0]), stopping)
    event = stopping.event(ApproximateEvent(0.1, rare))
    reached = delta_at(*best, 20.0)
    assert reached == pytest.approx(50 * rare, rel=1e-3)
    assert spent(event, 49.9 * rare).epsilon == math.inf
    assert spent(event, 51 * rare).epsilon < 10.0


# --- what is claimed for events ---------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(mechanisms(), stoppings, st.sampled_from([0.0, 0.1, 0.5]))
def test_what_is_charged_for_the_best_of_any_small_mechanism_is_enough(
    pair: tuple[Floats, Floats], stopping: RandomStopping, at: float
) -> None:
    """Whatever (epsilon, delta) the mechanism has, the exact delta of the best is within that of the charge."""
    pure = max(np.abs(np.log(pair[0] / pair[1])).max(), 1e-6)
    lost = delta_at(*pair, at)
    run: Event = ApproximateEvent(at, lost) if 1e-9 < lost < 0.1 / stopping.mean else PureEvent(pure)
    best = best_of(pair[0], stopping), best_of(pair[1], stopping)
    for delta in (0.2, 1e-2, 1e-5):
        epsilon = spent(stopping.event(run), delta).epsilon
        assert epsilon == math.inf or delta_at(*best, min(epsilon, 600.0)) <= delta * (1 + 1e-6) + 1e-12


@settings(max_examples=12, deadline=None)
@given(mechanisms(), stoppings)
def test_what_is_charged_for_two_choices_and_an_answer_is_enough(
    pair: tuple[Floats, Floats], stopping: RandomStopping
) -> None:
    run = PureEvent(max(np.abs(np.log(pair[0] / pair[1])).max(), 1e-6))
    answer = np.array([0.6, 0.4])
    best = best_of(pair[0], stopping), best_of(pair[1], stopping)
    both = [
        np.multiply.outer(np.multiply.outer(one, one), other).reshape(-1)
        for one, other in zip(best, (answer, answer[::-1]), strict=True)
    ]
    events = [Repeated(stopping.event(run), 2), PureEvent(math.log(1.5))]
    for delta in (0.1, 1e-3):
        assert delta_at(*both, min(spent(events, delta).epsilon, 600.0)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [2.0, 30.0])
def test_what_is_charged_for_the_largest_of_gaussian_answers_is_enough(mean: float, shape: float | str) -> None:
    """The best answer has the density q(y) f'(Q(y)): its delta is integrated numerically."""
    scale, stopping = 2.0, RandomStopping(mean, shape)
    f, places = generating(stopping), np.linspace(-12 * scale, 12 * scale + 1, 200_001)
    here, there = (np.diff(f(stats.norm.cdf(places, move, scale))) for move in (0.0, 1.0))
    event = stopping.event(Gaussian(scale))
    for delta in (1e-2, 1e-5):
        cost = spent(event, delta).epsilon
        assert delta_at(here, there, cost) <= delta
        assert delta_at(here, there, cost / 4) > delta  # and the bound is of some use


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("run", [Gaussian(3.0), Laplace(4.0), Repeated(PoissonSampled(0.01, Gaussian(1.5)), 50)])
def test_losses_are_never_looser_than_renyi_privacy(run: Event, shape: float) -> None:
    event = Selected(run, 40, shape)
    assert spent(event, 1e-6).epsilon <= spent(event, 1e-6, accountant="rdp").epsilon


@pytest.mark.parametrize("shape", [0.0, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("mean", [1.5, 10.0, 1000.0])
def test_renyi_privacy_agrees_with_dp_accounting(mean: float, shape: float) -> None:
    event = Composed((Selected(Gaussian(5.0), mean, shape), Gaussian(9.0)))
    theirs = RdpAccountant().compose(event.dp_event()).get_epsilon(1e-6)
    assert spent(event, 1e-6, accountant="rdp").epsilon == pytest.approx(theirs, rel=1e-7)


@pytest.mark.parametrize("mean", [1.0, 10.0, 1000.0])
def test_renyi_privacy_of_a_poisson_number_is_that_of_dp_accounting_and_the_chance_of_no_run(mean: float) -> None:
    event = Selected(Gaussian(5.0), mean, "poisson")
    theirs = RdpAccountant().compose(event.dp_event())
    ours = RandomStopping(mean, "poisson").renyi(theirs.orders, RdpAccountant().compose(Gaussian(5.0).dp_event()).rdp)
    assert all(ours <= theirs.rdp + math.log1p(math.exp(-mean)) / (theirs.orders - 1) * (1 + 1e-9) + 1e-12)
    assert spent(event, 1e-6).epsilon <= spent(event, 1e-6, accountant="rdp").epsilon


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
def test_the_best_of_pure_runs_is_pure(shape: float) -> None:
    """(2 + shape) epsilon, however many runs there are (Papernot and Steinke 2022, corollary 3)."""
    for run in (PureEvent(0.2), Laplace(5.0), DiscreteLaplace(10.0, 2)):
        assert spent(Selected(run, 500, shape), 0.0).epsilon == pytest.approx((2 + shape) * 0.2)


def test_the_best_of_large_epsilons_costs_no_more_than_the_number_of_runs_gives_away() -> None:
    stopping = RandomStopping(10, 1)
    assert spent(stopping.event(PureEvent(50.0)), 0.0).epsilon == pytest.approx(50 + 2 * math.log(10), rel=1e-9)


def test_choosing_costs_more_than_one_run_and_less_than_all_of_them() -> None:
    run = Repeated(PoissonSampled(0.01, Gaussian(1.5)), 500)
    one, best, all_of_them = (spent(event, 1e-6).epsilon for event in (run, Selected(run, 30, 0), Repeated(run, 30)))
    assert one < best < 3 * one < all_of_them


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0])
def test_more_runs_never_cost_less(shape: float) -> None:
    costs = [spent(Selected(Gaussian(8.0), mean, shape), 1e-5).epsilon for mean in (1.001, 1.3, 2, 30, 1e4, 1e6)]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(spent(Gaussian(8.0), 1e-5).epsilon, rel=0.02)


@pytest.mark.parametrize(
    "event",
    [
        Selected(Selected(Gaussian(9.0), 3, 0), 4, 1),
        Selected(Parallel((Gaussian(9.0), Laplace(9.0))), 4, 1),
        Selected(Composed((DiscreteGaussian(5000.0, 500), DiscreteLaplace(9000.0, 900))), 4, 0),
        Parallel((Selected(Gaussian(9.0), 4, 1), Laplace(9.0))),
        Shuffled(7, Selected(Gaussian(9.0), 4, "poisson")),
        Selected(Gaussian(0.05), 4, 0),
        Selected(PureEvent(500.0), 4, 0),
        Selected(ApproximateEvent(0.1, 1e-9), 4, 0),
        Selected(Gaussian(9.0), 1e6, "poisson"),
    ],
    ids=str,
)
def test_the_best_may_stand_within_others_and_others_within_it(event: Event) -> None:
    alone, beside = spent(event, 1e-6), spent([event, Gaussian(20.0)], 1e-6)
    assert 0 < alone.epsilon <= beside.epsilon < math.inf
    assert beside.optimistic is not None
    assert 0 <= beside.optimistic <= beside.epsilon


def test_noise_in_whole_numbers_of_a_large_scale_costs_what_noise_in_real_ones_costs() -> None:
    whole, real = (spent(Selected(run, 10, 0), 1e-6).epsilon for run in (DiscreteGaussian(5e4, 10_000), Gaussian(5.0)))
    assert real <= whole <= real * 1.001


def test_changing_several_records_changes_every_run() -> None:
    event = Selected(Gaussian(4.0), 10, 0)
    assert replace_one(event) == Selected(Gaussian(4.0, 2.0, Relation.REPLACE_ONE), 10, 0)
    assert group(event, 3) == Selected(Gaussian(4.0, 3.0), 10, 0)
    assert event.relation is Relation.ADD_REMOVE
    with pytest.raises(sf.errors.OptionError, match="no bound is known when several records change"):
        group(Selected(PoissonSampled(0.1, Gaussian(4.0)), 10, 0), 2)


def test_a_ledger_charges_the_best_and_refuses_what_would_exceed_its_limit(tmp_path: Path) -> None:
    event = RandomStopping(20, 0).event(Gaussian(10.0))
    one, two = (spent(Repeated(event, times), 1e-6).epsilon for times in (1, 2))
    data = tmp_path / "people.csv"
    data.write_text("age\n42\n")
    with Ledger.grant(data, epsilon=(one + two) / 2, delta=1e-6, path=tmp_path / "people.ledger") as ledger:
        ledger.charge(event, note="the best of several trainings")
        assert ledger.spent.epsilon == pytest.approx(one)
        assert ledger.events == (event,)
        with pytest.raises(sf.errors.BudgetError, match="would exceed the limit"):
            ledger.charge(event)
        ledger.charge(Gaussian(1000.0))
        assert one < ledger.spent.epsilon < two


@pytest.mark.parametrize("shape", [-1, -2.0, math.nan, math.inf, 1e300, "geometric", None, True])
def test_a_shape_of_no_distribution_is_refused(shape: Any) -> None:
    for make in (lambda: RandomStopping(10, shape), lambda: Selected(PureEvent(1.0), 10, shape)):
        with pytest.raises(sf.errors.OptionError, match='"poisson", must be a number above -1 and at most 1,000,000'):
            make()


@pytest.mark.parametrize(("mean", "shape"), [(1, 0), (0.5, 1), (2e6, 0), (math.nan, 0), ("10", 0), (0, "poisson")])
def test_a_mean_of_no_distribution_is_refused(mean: Any, shape: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="the mean number of runs must be a number above"):
        RandomStopping(mean, shape)


def test_the_distribution_is_named_in_words() -> None:
    run = PureEvent(0.5)
    assert str(Selected(run, 10, 1)).startswith("the best of about 10 runs (a geometric number): ")
    assert "Poisson" in str(Selected(run, 10, "poisson"))
    assert "truncated negative binomial, shape -0.5" in str(Selected(run, 10, -0.5))


def test_dp_accounting_has_no_name_for_some_shapes_and_means() -> None:
    assert isinstance(Selected(Gaussian(1.0), 10, -0.5).dp_event(), dp_accounting.UnsupportedDpEvent)
    assert isinstance(Selected(Gaussian(1.0), 0.5, "poisson").dp_event(), dp_accounting.UnsupportedDpEvent)
    assert spent(Selected(Gaussian(9.0), 10, -0.5), 1e-6, accountant="rdp").epsilon < 1.0


# --- the number of runs -----------------------------------------------------------------------


def probability(stopping: RandomStopping, trials: int) -> float:
    """Return how likely a number of runs is: by scipy if it has the distribution, else by definition 1 of the paper."""
    if stopping.shape == "poisson":
        return float(stats.poisson.pmf(trials, stopping.mean))
    eta, gamma = float(stopping.shape), stopping.gamma
    assert gamma is not None
    if eta == 0:
        return float(stats.logser.pmf(trials, 1 - gamma))
    if eta == 1:
        return float(stats.geom.pmf(trials, gamma))
    if eta > 0:
        return float(stats.nbinom.pmf(trials, eta, gamma) / -np.expm1(eta * math.log(gamma))) if trials else 0.0
    product = math.prod((one + eta) / (one + 1) for one in range(trials))
    return (1 - gamma) ** trials / (gamma**-eta - 1) * product if trials else 0.0


@pytest.mark.parametrize(("mean", "shape"), [*((6.0, shape) for shape in SHAPES), (1.2, 0.0), (0.5, "poisson")])
def test_the_number_of_runs_is_drawn_as_the_paper_defines_it(mean: float, shape: float | str) -> None:
    """A binomial test of each number and a chi-square test of the frequent ones.

    All of these together give a false alarm in less than 1e-6 of all runs: 1e-8 for the numbers of a distribution, and
    about as much for its chi-square, whose numbers are so frequent that its approximation holds that far out.
    """
    stopping, source, draws = RandomStopping(mean, shape), Source(), 3_000
    drawn = np.array([stopping.draw(source) for _ in range(draws)])
    shares = {trials: probability(stopping, trials) for trials in range(20)}
    assert_fits(drawn, shares.__getitem__, range(20))
    often = [trials for trials, share in shares.items() if draws * share > 100]
    expected = np.array([draws * shares[trials] for trials in often])
    found = np.array([np.count_nonzero(drawn == trials) for trials in often])
    square = float(((found - expected) ** 2 / expected).sum())  # without the rest, so at most of as many degrees
    assert stats.chi2.sf(square, len(often)) > 1e-9


@pytest.mark.parametrize("shape", SHAPES[:-1])
@pytest.mark.parametrize("mean", [1.01, 1.5, 10.0, 1000.0])
def test_the_mean_is_the_one_asked_for_and_at_least_one_run_is_made(mean: float, shape: float) -> None:
    stopping = RandomStopping(mean, shape)
    gamma = stopping.gamma
    assert gamma is not None
    ratio = shape / (1 - gamma**shape) if shape else 1 / math.log(1 / gamma)
    assert ratio * (1 / gamma - 1) == pytest.approx(mean, rel=1e-9)
    assert min(stopping.draw() for _ in range(20)) >= 1


def test_a_poisson_number_may_be_none_at_all() -> None:
    stopping = RandomStopping(0.01, "poisson")
    assert min(stopping.draw() for _ in range(20)) == 0  # all of them are above 0 once in 10**40


def test_a_seed_repeats_the_number_and_no_seed_does_not() -> None:
    stopping = RandomStopping(1000, 1)
    assert stopping.draw(Source(insecure_seed=7)) == stopping.draw(Source(insecure_seed=7))
    assert len({stopping.draw() for _ in range(12)}) > 1  # equal ones by chance once in 10**33


@pytest.mark.parametrize(("mean", "shape"), [(1e6, 0.0), (1e6, -0.5), (1e6, 3.0), (1e3, "poisson")])
@pytest.mark.parametrize("epsilon", [0.001, 3.0])
def test_of_so_many_runs_that_one_is_sure_to_tell_all_nothing_is_proven(
    mean: float, shape: float | str, epsilon: float
) -> None:
    event = Selected(ApproximateEvent(epsilon, 1e-3), mean, shape)
    for events in ([event], [event, Gaussian(9.0)], [Repeated(event, 2)], [Parallel((event, Gaussian(9.0)))]):
        assert spent(events, 1e-5).epsilon == math.inf
    assert spent(Selected(Selected(ApproximateEvent(epsilon, 1e-3), 10, 0), mean, shape), 1e-5).epsilon == math.inf


@pytest.mark.parametrize("scale", [0.01, 0.02])
def test_runs_that_tell_all_have_no_epsilon_rather_than_an_error(scale: float) -> None:
    run = Composed((ApproximateEvent(0.01, 1e-9), Gaussian(50.0), Gaussian(scale)))
    assert spent(Selected(run, 10, 0), 1e-5).epsilon > 100

"""What events cost together: never less than the truth, and not much more."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, common, pld_pmf, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    FixedSampled,
    Gaussian,
    Laplace,
    NoiseEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    RandomizedResponse,
    Relation,
    Repeated,
    Shuffled,
    calibrate,
    check_delta,
    group,
    replace_one,
    spent,
)
from sfumato.budget.accounting import pld as losses

NOTEBOOK = Gaussian(1.2)  # sigma 1.2, batches of 64 of 60,000 records, 9 epochs, delta 1e-5
RATE, STEPS, DELTA = 64 / 60_000, 9 * 938, 1e-5


def gaussian_delta(strength: float, epsilon: float) -> float:
    """Return the delta of Gaussian noise by its definition (Balle and Wang 2018, theorem 8)."""

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return phi(strength / 2 - epsilon / strength) - math.exp(epsilon) * phi(-strength / 2 - epsilon / strength)


class TestTheNotebook:
    """What epsilon did that notebook really have?"""

    def test_poisson_sampling_by_privacy_loss(self) -> None:
        cost = spent(Repeated(PoissonSampled(RATE, NOTEBOOK), STEPS), DELTA)
        assert cost.epsilon == pytest.approx(0.343, abs=5e-4)
        assert cost.optimistic is not None
        assert cost.epsilon - 0.005 < cost.optimistic < cost.epsilon

    def test_poisson_sampling_by_renyi_privacy_is_looser(self) -> None:
        cost = spent(Repeated(PoissonSampled(RATE, NOTEBOOK), STEPS), DELTA, accountant="rdp")
        assert cost.epsilon == pytest.approx(0.522, abs=5e-4)
        assert cost.optimistic is None

    def test_shuffled_batches_get_no_amplification(self) -> None:
        cost = spent(Repeated(Shuffled(938, NOTEBOOK), 9), DELTA)
        assert cost.epsilon == pytest.approx(13.2, abs=0.05)

    def test_shuffled_batches_under_replace_one(self) -> None:
        cost = spent(Repeated(Shuffled(938, NOTEBOOK), 9), DELTA, relation="replace-one")
        assert cost.epsilon == pytest.approx(33.1, abs=0.05)
        assert cost.relation is Relation.REPLACE_ONE

    def test_fixed_batches_have_a_bound_of_their_own(self) -> None:
        batches = Repeated(FixedSampled(64, 60_000, replace_one(NOTEBOOK)), STEPS)
        by_loss, by_renyi = spent(batches, DELTA).epsilon, spent(batches, DELTA, accountant="rdp").epsilon
        poisson = spent(Repeated(PoissonSampled(RATE, NOTEBOOK), STEPS), DELTA, relation="replace-one").epsilon
        assert poisson < by_loss < by_renyi < 33.1


@pytest.mark.parametrize(("scale", "times"), [(6.0, 200), (30.0, 5000), (2.0, 20)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-10, 1e-11, 2e-12])
def test_the_rounding_of_convolutions_never_makes_a_cost_too_small(scale: float, times: int, delta: float) -> None:
    """Parts that differ a little are convolved, while the worst of them has a formula."""
    convolved = Repeated(Parallel((Gaussian(scale), Gaussian(scale * 1.1))), times)
    exact = spent(Repeated(Gaussian(scale), times), delta).epsilon
    cost = spent(convolved, delta)
    assert cost.optimistic is not None
    assert cost.optimistic <= exact <= cost.epsilon < exact * 1.01


def test_one_sample_of_a_fixed_size_costs_what_the_theorem_says() -> None:
    """Of a rate q: epsilon becomes log(1 + q (exp(epsilon) - 1)) and delta q delta (Balle et al. 2018)."""
    noise = Gaussian(1.5, 2.0, Relation.REPLACE_ONE)
    for delta in (1e-2, 1e-4, 1e-7):
        amplified = math.log1p(0.1 * math.expm1(spent(noise, delta).epsilon))
        assert spent(FixedSampled(10, 100, noise), 0.1 * delta).epsilon == pytest.approx(amplified, rel=1e-3)


@pytest.mark.parametrize("times", [1, 20, 500])
def test_samples_of_a_fixed_size_cost_at_least_what_some_two_tables_cost(times: int) -> None:
    """If all the other records agree, one replaced record moves the noise at the rate of the sample."""
    noise = Gaussian(1.5, 2.0, Relation.REPLACE_ONE)
    reached = PoissonSampled(0.1, Gaussian(1.5, 2.0))
    for delta in (1e-3, 1e-6):
        cost = spent(Repeated(FixedSampled(10, 100, noise), times), delta).epsilon
        assert cost >= spent(Repeated(reached, times), delta).epsilon * (1 - 1e-9)


@pytest.mark.parametrize("block", [1, 7, 2**14])
@pytest.mark.parametrize(
    ("lower", "chances", "infinite"),
    [
        (-3, [0.1, 0.2, 0.3, 0.2, 0.1, 0.05], 0.05),
        (-3, [0.1, 0.2, 0.3, 0.2, 0.1, 0.1], 0.0),
        (2, [0.5, 0.5], 0.0),
        (-9, [0.9, 0.1], 0.0),  # no loss above 0
        (7_490, [0.0] * 9 + [1.0], 0.0),  # whose exponential is no float
        (-5, [0.0] * 5 + [0.3, 0.0, 0.0, 0.7], 0.0),
    ],
)
def test_the_epsilon_of_losses_is_that_of_dp_accounting(
    lower: int, chances: list[float], infinite: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_BLOCK", block)
    mass = pld_pmf.DensePLDPmf(0.1, lower, np.array(chances), infinite, True)
    for delta in (0.0, 1e-9, 0.04, 0.05, 0.1, 0.3, 0.6, 0.9, 1.0):
        found, expected = losses._epsilon_at(mass, delta), mass.get_epsilon_for_delta(delta)
        assert found == pytest.approx(max(0.0, expected), rel=1e-12, abs=1e-12), delta


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("scale", [0.8, 2.0, 10.0])
def test_gaussian_noise_costs_what_its_formula_says(scale: float, epsilon: float) -> None:
    delta = gaussian_delta(1 / scale, epsilon)
    if delta > 1e-11:
        assert spent(Gaussian(scale), delta).epsilon == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("times", [1, 7, 200])
@pytest.mark.parametrize("event", [Gaussian(6.0), Laplace(9.0), DiscreteLaplace(9.0, 1)], ids=lambda event: event.kind)
def test_costs_agree_with_dp_accounting_where_it_knows_the_event(event: Event, times: int) -> None:
    accountant = PLDAccountant().compose(event.dp_event(), times)
    assert spent(Repeated(event, times), 1e-6).epsilon == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize(("scale", "grid"), [(0.3, 1e-3), (1, 1e-3), (12, 1e-3), (400, 1e-3), (12, 1e-4), (400, 1e-4)])
def test_the_distribution_of_gaussian_noise_is_that_of_dp_accounting(scale: float, grid: float) -> None:
    ours = losses._of_gaussian(Gaussian(scale), grid).self_compose(5)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(scale, 1, value_discretization_interval=grid)
    theirs = theirs.self_compose(5)
    for delta in (1e-3, 1e-5, 1e-9):
        found, expected = (one.get_epsilon_for_delta(delta) for one in (ours, theirs))
        assert found == pytest.approx(expected, rel=1e-6)
        assert gaussian_delta(math.sqrt(5) / scale, found) <= delta  # never too small


@pytest.mark.parametrize(("scale", "rate"), [(0.7, 0.3), (1.0, 0.01), (3.0, 1.0), (40.0, 0.5), (0.6, 1e-4)])
def test_the_distribution_of_a_replaced_sample_is_that_of_dp_accounting(scale: float, rate: float) -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        scale, 0.5, value_discretization_interval=1e-3, sampling_prob=rate, neighboring_relation=relation
    )._pmf_remove.to_dense_pmf()
    ours = losses._of_replaced(Gaussian(scale), rate, 1e-3)._pmf_remove.to_dense_pmf()
    assert (ours._lower_loss, ours.size) == (theirs._lower_loss, theirs.size)
    assert np.abs(ours._probs - theirs._probs).max() < 1e-10, (
        "a difference of 1e-13 between deltas is 1e-10 of a chance"
    )
    assert np.abs(np.cumsum(ours._probs - theirs._probs)).max() < 1e-10
    assert ours._infinity_mass == pytest.approx(theirs._infinity_mass, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("count", [1, 30, 100_000])
@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_the_ends_of_a_sum_are_those_of_dp_accounting(size: int, count: int) -> None:
    chances = np.random.default_rng(size).random(size) ** 9
    chances[size // 2 :: 3] = 0.0
    chances[0] += 1e-3
    chances /= chances.sum() * 1.001
    orders = [sign * 10.0**power / size for power in range(-3, 4) for sign in (-1, 1)]
    theirs = common.compute_self_convolve_bounds(chances, count, losses._TAIL, orders)
    assert losses._ends_of_sum(chances, np.arange(size), count, orders) == pytest.approx(theirs, abs=1)


def test_deltas_become_the_chances_of_dp_accounting() -> None:
    """Bit by bit, also where rounding lets a delta rise; one that rises by more is refused."""
    grid, chance = 1e-3, np.random.default_rng(0)
    deltas = np.sort(chance.random(5_000))[::-1] * 0.9
    deltas[1000:2000] = deltas[1000] + chance.choice([0.0, 1e-14, -1e-14], 1000)
    places = (np.arange(5_000) - 700) * grid
    ours = losses._mass(deltas, places, grid)
    theirs = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -700, 4299, deltas)
    assert (ours._lower_loss, ours._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
    assert np.array_equal(ours._probs, theirs._probs)
    with pytest.raises(ValueError, match="not in non-increasing order"):
        losses._mass(deltas[::-1], places, grid)


@pytest.mark.parametrize("moved", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("grid", [1e-2, 1e-3])
def test_deltas_at_many_epsilons_are_those_of_dp_accounting(grid: float, moved: float) -> None:
    epsilons = np.minimum(np.linspace(0.0, 30.0, 400) - moved, 25.0)
    for one in (
        privacy_loss_distribution.from_gaussian_mechanism(0.4, value_discretization_interval=grid),
        privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.2, value_discretization_interval=grid
        ),  # of which adding and removing a record differ
        privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(1.5, 1e-3), grid),
    ):
        theirs = one.get_delta_for_epsilon(epsilons)
        assert losses._deltas(one, epsilons) == pytest.approx(theirs, rel=1e-12, abs=1e-17)


def test_sampled_noise_agrees_with_dp_accounting_under_both_relations() -> None:
    event = Repeated(PoissonSampled(0.02, Gaussian(1.0)), 300)
    assert spent(event, 1e-6).epsilon == pytest.approx(
        PLDAccountant().compose(event.dp_event()).get_epsilon(1e-6), rel=1e-4
    )
    replaced = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(event.dp_event())
    assert spent(replace_one(event), 1e-6).epsilon == pytest.approx(replaced.get_epsilon(1e-6), rel=1e-4)


def test_repeated_randomized_responses_all_count() -> None:
    """dp-accounting 0.6 composes a repeated randomized response only once; here each is charged."""
    one, many = RandomizedResponse(1.0), Repeated(RandomizedResponse(1.0), 10)
    assert spent(many, 1e-9).epsilon > 5 * spent(one, 1e-9).epsilon
    assert spent(many, 1e-9).epsilon == spent([one] * 10, 1e-9).epsilon


def test_pure_epsilons_add_up_exactly() -> None:
    assert spent([PureEvent(0.1)] * 10, 0).epsilon == 1.0
    assert spent([PureEvent(0.5), Laplace(2.0), Exponential(0.25)], 1e-6).epsilon <= 1.25
    assert spent([], 0).epsilon == 0.0
    assert spent([], 1e-5).epsilon == 0.0


@pytest.mark.parametrize("times", [1, 12])
def test_choices_of_the_exponential_mechanism_cost_what_the_worst_of_them_do(times: int) -> None:
    """The worst pairs for losses in an interval have its ends as losses (Dong, Durfee and Rogers 2020)."""
    each, epsilons = 0.4, np.linspace(0.0, 0.4 * times, 9)[:-1]
    charged = losses.delta_upper_bounds([Repeated(BoundedRange(each), times)], epsilons)
    worst = np.zeros(len(epsilons))
    for high in np.linspace(0.0, each, 81):
        above = -math.expm1(high - each) / -math.expm1(-each)  # the probability of the upper end
        ups = np.arange(times + 1)
        chances = [math.comb(times, up) * above**up * (1 - above) ** (times - up) for up in ups.tolist()]
        lost = times * high - (times - ups) * each
        worst = np.maximum(worst, [np.dot(chances, np.maximum(-np.expm1(one - lost), 0.0)) for one in epsilons])
    assert (charged >= worst - 1e-12).all()
    if times == 1:
        assert charged == pytest.approx(worst, abs=1e-4)
    else:  # no single pair is the worst one for several choices: the bound is above them, but far below other events
        pure = losses.delta_upper_bounds([Repeated(PureEvent(each), times)], epsilons)
        assert (charged[1:-1] < 0.75 * pure[1:-1]).all()
    assert spent([BoundedRange(each)] * times, 0).epsilon == pytest.approx(each * times)


def test_one_choice_costs_its_epsilon_at_most() -> None:
    assert 0.45 < spent(BoundedRange(0.5), 1e-5).epsilon <= 0.5
    assert (
        spent(Repeated(BoundedRange(0.1), 100), 1e-6).epsilon
        < 0.65 * spent(Repeated(PureEvent(0.1), 100), 1e-6).epsilon
    )
    assert spent(replace_one(BoundedRange(0.25)), 0).epsilon == 0.5


def test_many_small_events_cost_less_than_their_sum() -> None:
    assert spent([PureEvent(0.01)] * 1000, 1e-6).epsilon < 2.0 < 10.0


def test_a_delta_alone_can_be_charged() -> None:
    step = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 100)
    with_truncation = Composed((step, ApproximateEvent(0.0, 5e-6)))
    assert spent(with_truncation, 1e-5).epsilon == pytest.approx(spent(step, 5e-6).epsilon, rel=1e-3)
    assert spent(with_truncation, 4e-6).epsilon == math.inf


def test_gaussian_noise_has_no_epsilon_at_a_delta_of_0() -> None:
    cost = spent(Gaussian(1.0), 0)
    assert cost.epsilon == math.inf
    assert cost.to_dict()["epsilon"] == "inf"


def test_separate_parts_cost_what_the_worst_costs() -> None:
    cheap, dear = Laplace(10.0), Laplace(2.0)
    assert spent(Parallel((cheap, dear)), 1e-6).epsilon == pytest.approx(spent(dear, 1e-6).epsilon, rel=1e-3)
    assert spent(Parallel((dear,) * 50), 1e-6).epsilon == spent(dear, 1e-6).epsilon
    mixed = Parallel((Gaussian(3.0), Laplace(2.0)))
    for delta in (1e-2, 1e-4, 1e-8):
        worst = max(spent(event, delta).epsilon for event in mixed.events)
        assert worst <= spent(mixed, delta).epsilon * (1 + 1e-9) <= worst * 1.02
    assert spent([mixed] * 3, 1e-6).epsilon >= max(spent([event] * 3, 1e-6).epsilon for event in mixed.events)


@pytest.mark.parametrize("make", [Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian])
@pytest.mark.parametrize("multiplier", [0.6, 2.0, 10.0])
def test_a_change_spread_over_several_numbers_costs_no_more_than_one_large_change(
    make: type[NoiseEvent], multiplier: float
) -> None:
    """So the sum of the changes is all that the accountant needs to know."""
    whole, parts = make(4 * multiplier, 4), [make(4 * multiplier, 2)] * 2
    for delta in (0.1, 1e-3, 1e-6, 1e-9):
        # rounding to the grid of losses adds up to one step of it for each event
        assert spent(parts, delta).epsilon <= spent(whole, delta).epsilon + 2.1e-4


@pytest.mark.parametrize("make", [DiscreteLaplace, DiscreteGaussian])
def test_noise_of_a_large_scale_costs_what_noise_in_real_numbers_costs(make: type[NoiseEvent]) -> None:
    listed, large, larger = (make(3.0 * units, units) for units in (160, 170, 2**30))
    epsilons = [spent([event] * 5, 1e-6).epsilon for event in (listed, large, larger)]
    smooth = {DiscreteLaplace: Laplace, DiscreteGaussian: Gaussian}[make](3.0)
    assert epsilons == pytest.approx([spent([smooth] * 5, 1e-6).epsilon] * 3, rel=0.02)
    cost = spent(larger, 1e-6)
    assert cost.optimistic is not None
    assert cost.optimistic <= cost.epsilon < cost.optimistic * 1.01


@given(
    st.lists(
        st.sampled_from(
            [Gaussian(5.0), Laplace(8.0), DiscreteLaplace(8.0), PureEvent(0.1), PoissonSampled(0.1, Gaussian(2.0))]
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1e-3, 1e-6]),
)
@settings(max_examples=25, deadline=None)
def test_adding_an_event_never_costs_less_and_the_bounds_are_in_order(events: list[Event], delta: float) -> None:
    before, after = spent(events[:-1], delta), spent(events, delta)
    assert before.epsilon <= after.epsilon + 1e-9
    assert after.optimistic is not None
    assert 0 <= after.optimistic <= after.epsilon
    assert after.epsilon - after.optimistic < 0.02
    assert spent(events[::-1], delta).epsilon == pytest.approx(after.epsilon, rel=1e-6)


def test_a_larger_group_costs_more() -> None:
    costs = [spent(group(Gaussian(5.0), size), 1e-6).epsilon for size in (1, 2, 4, 8)]
    assert costs == sorted(costs)
    assert costs[1] > 2 * costs[0] * 0.99


def test_events_of_two_relations_add_up_only_under_replace_one() -> None:
    mixed = [PureEvent(0.5), RandomizedResponse(0.5)]
    with pytest.raises(sf.errors.OptionError, match="have no common epsilon"):
        spent(mixed, 0)
    cost = spent(mixed, 0, relation="replace-one")
    assert cost.epsilon == 1.5
    assert cost.relation is Relation.REPLACE_ONE
    with pytest.raises(sf.errors.OptionError, match="cannot be converted to add-remove"):
        spent(mixed, 0, relation="add-remove")


def test_an_event_without_a_known_bound_is_refused_not_guessed() -> None:
    sampled = PoissonSampled(0.1, Laplace(2.0, 2.0, Relation.REPLACE_ONE))
    with pytest.raises(sf.errors.OptionError, match="no bound is known"):
        spent(sampled, 1e-6)
    with pytest.raises(sf.errors.OptionError, match="Renyi privacy does not support"):
        spent(ApproximateEvent(1.0, 1e-7), 1e-8, accountant="rdp")


class TestCalibration:
    @pytest.mark.parametrize("target", [1e-3, 0.3, 30.0])
    @pytest.mark.parametrize("kind", [Gaussian, Laplace])
    def test_the_scale_is_found_in_a_few_steps(self, kind: type[Gaussian | Laplace], target: float) -> None:
        tried = []

        def make(scale: float) -> Event:
            tried.append(scale)
            return kind(scale)

        found = calibrate(make, target, 1e-6)
        brackets = 1 + abs(math.log(found, 4))  # steps by factors of 4 until the target is passed
        assert len(tried) <= brackets + 9, "halving the rest takes 14 more"
        assert spent(kind(found / (1 + 1e-4)), 1e-6).epsilon > target >= spent(kind(found), 1e-6).epsilon

    @pytest.mark.parametrize("target", [0.1, 1.0, 8.0])
    def test_what_is_calibrated_never_costs_more_than_the_target(self, target: float) -> None:
        for make in (
            Gaussian,
            Laplace,
            lambda scale: Repeated(PoissonSampled(0.01, Gaussian(scale)), 1000),
            lambda scale: Repeated(DiscreteGaussian(scale), 2),
        ):
            scale = calibrate(make, target, 1e-6, precision=1e-3)
            assert spent(make(scale), 1e-6).epsilon <= target
            assert spent(make(scale * 0.99), 1e-6).epsilon > target

    def test_renyi_privacy_asks_for_more_noise(self) -> None:
        def training(scale: float) -> Event:
            return Repeated(PoissonSampled(0.01, Gaussian(scale)), 1000)

        by_loss, by_renyi = (calibrate(training, 1.0, 1e-6, accountant=name) for name in ("pld", "rdp"))
        assert by_loss < by_renyi

    def test_a_target_that_no_noise_reaches_is_refused(self) -> None:
        with pytest.raises(sf.errors.OptionError, match="no amount of noise reduces the event to epsilon"):
            calibrate(lambda scale: Composed((PureEvent(1.0), Gaussian(scale))), 0.5, 1e-6)

    @pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
    def test_an_epsilon_that_is_no_positive_number_is_refused(self, epsilon: float) -> None:
        with pytest.raises(sf.errors.OptionError, match="epsilon must be a finite number above 0"):
            calibrate(Gaussian, epsilon, 1e-6)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, "0.1", True, None])
def test_a_delta_outside_of_its_range_is_refused(delta: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="delta must be a number"):
        spent(PureEvent(1.0), delta)


def test_a_delta_must_be_below_one_over_the_number_of_records() -> None:
    assert check_delta(1e-4, 9_999) == 1e-4
    with pytest.raises(sf.errors.OptionError, match="below 1 / 10,000"):
        check_delta(1e-4, 10_000)


def test_a_delta_below_the_rounding_of_convolutions_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="at least 1e-12"):
        spent(Gaussian(1.0), 1e-14)
    assert spent(PureEvent(1.0), 1e-14).epsilon == 1.0


def test_an_unknown_accountant_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="must be pld or rdp"):
        spent(PureEvent(1.0), 0, accountant="gdp")


def test_a_cost_states_its_relation() -> None:
    cost = spent(Gaussian(1.0), 1e-5)
    assert "add or remove one record" in str(cost)
    assert cost.to_dict()["relation"] == "add-remove"


@pytest.mark.parametrize(
    "event",
    [
        PureEvent(1000.0),
        Laplace(1e-3),
        DiscreteLaplace(1e-3),
        PoissonSampled(0.1, PureEvent(1000.0)),
        PoissonSampled(0.1, Laplace(1e-3)),
        ApproximateEvent(1000.0, 1e-8),
        Parallel((PureEvent(1000.0), Laplace(1.0))),
    ],
    ids=str,
)
def test_an_epsilon_without_an_exponential_is_added(event: Event) -> None:
    assert spent(event, 1e-6).epsilon == pytest.approx(1000, abs=2)
    assert 1000 < spent([event, Gaussian(1.0)], 1e-6).epsilon < 1010


@pytest.mark.parametrize("event", [Gaussian(0.01), PoissonSampled(0.1, Gaussian(0.01)), DiscreteGaussian(0.01)])
def test_hardly_any_noise_has_its_cost(event: Event) -> None:
    assert 5000 <= spent(event, 1e-6).epsilon < 5600


def test_a_sample_of_several_events_costs_what_the_theorem_says() -> None:
    sampled = PoissonSampled(0.1, Repeated(PureEvent(0.1), 3))
    assert spent(sampled, 1e-6).epsilon == pytest.approx(math.log1p(0.1 * math.expm1(0.3)))
    with pytest.raises(sf.errors.OptionError, match="no bound is known"):
        spent(PoissonSampled(0.1, Composed((Gaussian(2.0), Gaussian(3.0)))), 1e-6)


def test_more_events_than_can_be_composed_are_added_up() -> None:
    assert spent(Repeated(PureEvent(1e-9), 10**12), 1e-6).epsilon == pytest.approx(1000)
    assert spent(Repeated(PoissonSampled(0.1, Gaussian(1.0)), 10**12), 1e-6).epsilon == math.inf
    assert spent(Repeated(Gaussian(1e6), 10**12), 1e-6).epsilon == spent(Gaussian(1.0), 1e-6).epsilon


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e7])
def test_the_smallest_delta_of_the_weakest_noise_is_kept(scale: float) -> None:
    """Decided with 60 digits: the difference of two floats would not tell."""
    import mpmath

    with mpmath.workdps(60):
        epsilon, strength = mpmath.mpf(spent(Gaussian(scale), 1e-12).epsilon), 1 / mpmath.mpf(scale)
        above, below = strength / 2 - epsilon / strength, -strength / 2 - epsilon / strength
        delta = mpmath.ncdf(above) - mpmath.exp(epsilon) * mpmath.ncdf(below)
        assert 0.999 < delta / mpmath.mpf(1e-12) <= 1


def test_what_cannot_be_added_up_is_one_sentence() -> None:
    with pytest.raises(sf.errors.OptionError, match="the relation must be one of"):
        spent([], 0, relation="neighbours")
    with pytest.raises(sf.errors.OptionError, match="only events can be composed"):
        spent([3], 0)  # type: ignore[list-item]
    with pytest.raises(sf.errors.OptionError, match="would be 1 or more"):
        group(ApproximateEvent(800.0, 1e-7), 3)
    assert calibrate(Gaussian, 1.0, 1e-6, precision=1e-17) > 1


class TestManySteps:
    """Equal events are convolved at once, on arrays that grow with the square root of their number."""

    @pytest.mark.parametrize("count", [2, 17, 1000])
    def test_they_cost_what_dp_accounting_says(self, count: int) -> None:
        step = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.1))
        theirs = PLDAccountant(value_discretization_interval=1e-4).compose(step, count).get_epsilon(1e-5)
        ours = spent(Repeated(PoissonSampled(0.02, Gaussian(1.1)), count), 1e-5).epsilon
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)

    def test_nineteen_million_steps_take_little_memory(self) -> None:
        """They took 13 GB; a normal sum of as many losses of this variance is close to the truth."""
        tracemalloc.start()
        cost = spent(Repeated(PureEvent(1e-3), 19_000_000), 1e-5).epsilon
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 400e6
        strength = 1e-3 * math.sqrt(19_000_000)
        assert gaussian_delta(strength, cost) == pytest.approx(1e-5, rel=0.1)

    def test_a_loss_too_wide_for_the_grid_gets_a_coarser_one(self) -> None:
        cost, strength = spent(Repeated(PureEvent(0.02), 1_000_000), 1e-5).epsilon, 0.02 * 1000
        assert gaussian_delta(strength * 0.999, cost) < 1e-5 < gaussian_delta(strength * 1.001, cost)

    def test_separate_parts_cost_the_dearest_of_them(self) -> None:
        run = Repeated(PoissonSampled(0.01, Gaussian(1.3)), 1000)
        score = Composed((Gaussian(13.0), PureEvent(0.01)))
        alone = spent(run, 1e-5).epsilon
        assert alone <= spent(Parallel((run, score)), 1e-5).epsilon <= alone + 1e-6


@pytest.mark.parametrize("delta", [1e-6, 1e-5, 1e-3])
@pytest.mark.parametrize(
    "events",
    [
        (Laplace(2.0),),
        (DiscreteLaplace(20.0),) * 4,
        (PureEvent(0.3), Laplace(1.0), DiscreteLaplace(3.0)),
        (Composed((PureEvent(0.3), Repeated(Laplace(1.0), 3))),),
        (Parallel((Laplace(2.0), Repeated(Laplace(9.0), 3))), PureEvent(0.01)),
        (Repeated(DiscreteLaplace(2.0), 12),),
        (PoissonSampled(0.1, Laplace(1.0)),),
    ],
)
def test_loss_distributions_are_skipped_only_where_they_would_save_next_to_nothing(
    events: tuple[Event, ...], delta: float
) -> None:
    at_least = losses.epsilon_upper_bound(events, delta)
    cost = spent(events, delta).epsilon
    assert cost - at_least <= max(1e-4, 1e-3 * cost)
    assert cost <= sum(losses.own_cost(event)[0] for event in events) + 1e-12

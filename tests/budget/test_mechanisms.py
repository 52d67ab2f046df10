"""Noise hides what one record changes: as much as the claim says, and no less."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import AddedNoise, DiscreteGaussian, DiscreteLaplace, Relation, Repeated, Source, spent
from sfumato.budget.mechanisms.additive import declared_bounds
from tests.budget.chance import assert_epsilon, assert_mean, assert_variance

RUNS = 120_000


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_laplace_noise_keeps_its_epsilon_and_a_smaller_claim_would_be_caught(epsilon: float, whole: bool) -> None:
    noise = AddedNoise(sensitivity=3, epsilon=epsilon, whole=whole)
    with_record, without = noise.release(np.full(RUNS, 10)), noise.release(np.full(RUNS, 7))
    assert_epsilon(int((with_record >= 10).sum()), int((without >= 10).sum()), RUNS, epsilon)


@pytest.mark.parametrize("whole", [True, False])
def test_gaussian_noise_keeps_its_epsilon_and_delta_and_a_smaller_claim_would_be_caught(whole: bool) -> None:
    epsilon, delta = 1.0, 0.02
    noise = AddedNoise(sensitivity=20, epsilon=epsilon, delta=delta, whole=whole)
    limit = 20 + noise.scale * (epsilon * noise.scale / 20 - 10 / noise.scale) - 20  # where the loss is epsilon
    with_record, without = noise.release(np.full(RUNS, 20)), noise.release(np.full(RUNS, 0))
    here, there = int((with_record >= limit + 10).sum()), int((without >= limit + 10).sum())
    assert_epsilon(here, there, RUNS, epsilon, delta)


@given(st.floats(0.01, 20), st.floats(0.001, 1e6), st.integers(1, 3), st.booleans())
def test_the_event_never_costs_more_than_was_asked_for(
    epsilon: float, sensitivity: float, changes: int, whole: bool
) -> None:
    change = max(1, round(sensitivity)) if whole else sensitivity
    noise = AddedNoise(sensitivity=change, epsilon=epsilon, changes=changes, whole=whole)
    assert spent(noise.event, 0).epsilon <= epsilon
    assert spent(noise.event, 0).epsilon > epsilon * 0.999


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-3)])
@pytest.mark.parametrize("changes", [1, 2])
def test_gaussian_noise_is_the_least_that_keeps_epsilon_and_delta(epsilon: float, delta: float, changes: int) -> None:
    noise = AddedNoise(sensitivity=1, epsilon=epsilon, delta=delta, changes=changes)
    assert spent(noise.event, delta).epsilon <= epsilon
    less = DiscreteGaussian(noise._scale * 0.999, noise.units)
    assert spent(Repeated(less, changes), delta).epsilon > epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("whole", [True, False])
def test_noise_is_unbiased_and_has_the_variance_it_says(whole: bool, delta: float) -> None:
    noise = AddedNoise(sensitivity=7, epsilon=0.7, delta=delta, whole=whole)
    drawn = noise.release(np.full(RUNS, 100)).astype(np.float64)
    assert_mean(drawn, 100, noise.standard_deviation)
    assert_variance(drawn, noise.standard_deviation**2)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_holds_the_answer_as_often_as_it_says(whole: bool, delta: float, confidence: float) -> None:
    noise = AddedNoise(sensitivity=20, epsilon=0.2, delta=delta, whole=whole)
    held = np.mean(np.abs(noise.release(np.zeros(RUNS))) <= noise.half_width(confidence))
    error = 6 * math.sqrt(confidence * (1 - confidence) / RUNS)
    assert confidence - error < held < confidence + error + 0.01  # whole numbers can hold a little more often


def test_what_is_released_lies_on_a_grid_whatever_the_answer_is() -> None:
    """Two answers that no float has in common release numbers of the same grid."""
    noise = AddedNoise(sensitivity=0.1, epsilon=1.0)
    for answer in (0.1, 1 / 3, math.pi):
        released = noise.release(np.full(1000, answer))
        assert (released / noise.step == np.rint(released / noise.step)).all()
    assert math.log2(noise.step).is_integer()


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e3))
def test_putting_two_answers_on_the_grid_parts_them_by_at_most_the_units(answer: float, sensitivity: float) -> None:
    noise = AddedNoise(sensitivity=sensitivity, epsilon=1.0)
    apart = round((answer + sensitivity) / noise.step) - round(answer / noise.step)
    slack = math.ceil(math.ulp(abs(answer) + sensitivity) / noise.step)  # the answers themselves are floats
    assert apart <= noise.units + slack


def test_a_record_that_changes_two_numbers_needs_noise_for_both() -> None:
    laplace = AddedNoise(sensitivity=1, epsilon=1.0, changes=2, whole=True, relation="replace-one")
    assert laplace.event == DiscreteLaplace(2.0, 2, Relation.REPLACE_ONE)
    gaussian = AddedNoise(sensitivity=1, epsilon=1.0, delta=1e-5, changes=2, whole=True)
    assert isinstance(gaussian.event, Repeated)
    assert gaussian.event.times == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number above 0"),
        ({"sensitivity": -1}, "the sensitivity must be a number from 1e-200 to"),
        ({"delta": 1.0}, "delta must be a number"),
        ({"changes": 0}, "must be a whole number of at least 1"),
        ({"sensitivity": 0.5, "whole": True}, "must be whole"),
        ({"relation": "swap"}, "must be one of add-remove, replace-one"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=says):
        AddedNoise(**{"sensitivity": 1.0, "epsilon": 1.0, **options})


@pytest.mark.parametrize("bounds", [(1, 0), (0, 0), (0, math.inf), (math.nan, 1), (1,), "ab", 3])
def test_bounds_that_are_reversed_or_infinite_are_refused(bounds: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="the bounds must be"):
        declared_bounds(bounds)


def test_bounds_that_are_not_declared_are_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="need public bounds"):
        declared_bounds(None)


def test_a_fixed_seed_repeats_the_release() -> None:
    noise = AddedNoise(sensitivity=1, epsilon=0.1)
    assert noise.release(5.0, Source(insecure_seed=3)) == noise.release(5.0, Source(insecure_seed=3))


def test_epsilons_and_scales_agree_with_opendp() -> None:
    """OpenDP proves the same epsilon for the same discrete Laplace, and the same rho for the same Gaussian."""
    dp.enable_features("contrib")
    whole = (dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"))
    for epsilon in (0.3, 1.0, 4.0):
        ours = AddedNoise(sensitivity=1, epsilon=epsilon, whole=True)
        theirs = dp.m.make_laplace(*whole, scale=ours.scale)
        assert theirs.map(1) == pytest.approx(spent(ours.event, 0).epsilon, rel=1e-9)
    squares = (dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"))
    rho = dp.m.make_gaussian(*squares, scale=4.0).map(1.0)
    assert rho == pytest.approx(DiscreteGaussian(4.0).dp_event().rho, rel=1e-9)
    theirs = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*squares, scale=4.0)).map(1.0).epsilon(delta=1e-6)
    assert spent(DiscreteGaussian(4.0), 1e-6).epsilon <= theirs


def test_a_huge_epsilon_needs_no_grid_that_whole_numbers_cannot_count() -> None:
    noise = AddedNoise(sensitivity=100.0, epsilon=1e15)
    assert 2**50 < noise.units <= 2**51 + 1
    assert noise.release(42.0) == pytest.approx(42.0)
    assert spent(noise.event, 0).epsilon <= 1e15


@pytest.mark.parametrize("sensitivity", [1e308, 1e-310])
def test_a_sensitivity_without_a_grid_is_refused(sensitivity: float) -> None:
    with pytest.raises(sf.errors.OptionError, match="the sensitivity must be a number from"):
        AddedNoise(sensitivity=sensitivity, epsilon=1.0)

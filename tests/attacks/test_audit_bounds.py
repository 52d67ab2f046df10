"""The bounds of audits: published and derived figures, definitions by brute force, what an audit can show at most."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.attacks.auditing.bounds import (
    ApproximateCurve,
    Calls,
    GaussianCurve,
    Guesses,
    JointCurve,
    ProfileCurve,
    curve_of,
    fdp_epsilon,
    fdp_gaussian_epsilon,
    one_run_epsilon,
    refutes,
    shared,
)
from sfumato.budget import DifferentialPrivacy, Gaussian, Laplace, PoissonSampled, Repeated, spent
from sfumato.errors import OptionError

DELTA = 1e-5


def test_the_one_run_bound_has_its_derived_values() -> None:
    assert one_run_epsilon(Guesses(1000, 600, 600), DELTA) == pytest.approx(5.2704, abs=1e-4)
    assert one_run_epsilon(Guesses(100_000, 1500, 1429), DELTA) == pytest.approx(2.6688, abs=1e-4)
    assert fdp_gaussian_epsilon(Guesses(100_000, 1500, 1429), DELTA) == pytest.approx(3.299, abs=1e-3)


@pytest.mark.parametrize(
    ("canaries", "made", "pure", "approximate", "gaussian"),
    [
        (100, 100, 3.49, 3.49, 8.22),
        (1000, 1000, 5.81, 5.78, 12.33),
        (5000, 5000, 7.42, 7.28, 15.0),
        (1000, 100, 3.49, 3.47, 5.55),
        (5000, 500, 5.11, 4.98, 7.98),
    ],
)
def test_what_an_audit_can_show_at_most(
    canaries: int, made: int, pure: float, approximate: float, gaussian: float
) -> None:
    best = Guesses(canaries, made, made // 2).best
    assert one_run_epsilon(best, 0.0) == pytest.approx(pure, abs=0.006)
    right = 0.05 ** (1 / made)
    assert one_run_epsilon(best, 0.0) == pytest.approx(math.log(right / (1 - right)), abs=1e-5)
    assert one_run_epsilon(best, DELTA) == pytest.approx(approximate, abs=0.006)
    assert fdp_gaussian_epsilon(best, DELTA) == pytest.approx(gaussian, abs=0.011)


def test_the_same_values_as_jax_privacy() -> None:
    """Computed with jax_privacy 2.0.0 (`_epsilon_one_run`, `_epsilon_one_run_fdp`, `epsilon_clopper_pearson`)."""
    for (canaries, made, right), (steinke, fdp) in JAX_PRIVACY.items():
        guesses = Guesses(canaries, made, right)
        assert one_run_epsilon(guesses, DELTA) == pytest.approx(steinke, abs=1e-3)
        assert fdp_gaussian_epsilon(guesses, DELTA) == pytest.approx(fdp, abs=1e-3)
    for (hits, alarms, runs), epsilon in JAX_TWO_SAMPLES.items():
        power, false = Calls(hits, runs, alarms, runs).bounds(0.95)
        assert math.log((power - DELTA) / false) == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize(
    ("sigma", "theory", "steinke", "fdp"), [(0.5, 9.99, 4.99, 8.16), (1.0, 4.37, 2.61, 3.61), (2.0, 1.99, 1.33, 1.59)]
)
def test_the_published_table_of_the_idealised_game(sigma: float, theory: float, steinke: float, fdp: float) -> None:
    """Table 1 of Mahloujifar et al.: 100,000 canaries at +-1 with noise of 2 sigma, the best number of guesses.

    A bound varies by about 1 with the game, so the best of three games stands for the games of the table.
    """
    tried = []
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        included = rng.random(100_000) < 0.5
        scores = np.where(included, 1.0, -1.0) + rng.normal(0, 2 * sigma, 100_000)
        tried += [Guesses.of(scores, included, high=half, low=half) for half in (200, 500, 1500, 4000, 8000)]
    assert spent(Gaussian(sigma), DELTA).epsilon == pytest.approx(theory, abs=0.02)
    assert max(one_run_epsilon(one, DELTA) for one in tried) == pytest.approx(steinke, abs=0.1)
    assert max(fdp_gaussian_epsilon(one, DELTA) for one in tried) == pytest.approx(fdp, abs=0.35)


def test_guesses_of_randomized_response_are_right_as_often_as_the_bound_allows() -> None:
    """By brute force: of 10 canaries with randomized response, so many right guesses are less likely than stated."""
    epsilon, canaries = 1.0, 10
    right = 1 / (1 + math.exp(-epsilon))
    for count, confidence in itertools.product(range(canaries + 1), (0.9, 0.99)):
        rejected = one_run_epsilon(Guesses(canaries, canaries, count), 0.0, confidence) > epsilon
        assert rejected == (stats.binom.sf(count - 1, canaries, right) < 1 - confidence)


def test_the_form_for_curves_is_the_one_run_bound_where_delta_is_zero() -> None:
    for right in (150, 200, 290):
        guesses = Guesses(300, 300, right)
        assert fdp_epsilon(guesses, 0.0) <= one_run_epsilon(guesses, 0.0) + 1e-4
        assert fdp_epsilon(guesses, 0.0) >= 0.95 * one_run_epsilon(guesses, 0.0) - 1e-4


@settings(max_examples=15, deadline=None)
@given(st.integers(10, 400), st.floats(0.05, 1), st.floats(0, 1), st.floats(0.2, 4))
def test_a_bound_above_the_claim_always_refutes_the_claimed_curve(
    canaries: int, share: float, accuracy: float, epsilon: float
) -> None:
    made = max(1, int(canaries * share))
    guesses = Guesses(canaries, made, int(made * accuracy))
    sigma = 1 / epsilon
    claimed = JointCurve((ApproximateCurve(epsilon, DELTA), GaussianCurve(100.0)))
    if fdp_epsilon(guesses, DELTA) > epsilon + 1e-5:
        assert refutes(claimed, guesses)
    if refutes(GaussianCurve(sigma), guesses):
        assert refutes(GaussianCurve(2 * sigma), guesses)  # a stronger claim falls with a weaker one


def test_the_curve_of_composed_events_is_that_of_their_profile() -> None:
    sampled = Repeated(PoissonSampled(0.1, Gaussian(1.0)), 50)
    curve = curve_of(sampled)
    assert isinstance(curve, ProfileCurve)
    at = spent(sampled, DELTA).epsilon
    assert np.interp(at, curve.epsilons, np.log(curve.deltas)) == pytest.approx(math.log(DELTA), abs=0.05)
    for power in (0.01, 0.5, 0.99):  # never below any of its own pairs, never above the diagonal
        assert ApproximateCurve(at, DELTA).least_false(power) - 1e-3 <= curve.least_false(power) <= power
    laplace = curve_of(Laplace(1.0))
    for false in (0.01, 0.2, 0.4):  # the exact curve of Laplace noise: powers below and above one half
        power = false * math.e if false * math.e <= 0.5 else 1 - 1 / (4 * false * math.e)
        assert laplace.least_false(power) == pytest.approx(false, abs=2e-3)


def test_gaussian_events_have_their_exact_curve() -> None:
    assert curve_of([Gaussian(2.0), Repeated(Gaussian(2.0), 3)]) == GaussianCurve(1.0)
    with_rounding = curve_of([Gaussian(1.0), Laplace(1e7)])
    for power in (0.05, 0.5, 0.95):
        assert with_rounding.least_false(power) == pytest.approx(GaussianCurve(1.0).least_false(power), abs=2e-3)
    assert curve_of(DifferentialPrivacy(2.0, DELTA)) == ApproximateCurve(2.0, DELTA)


def test_an_honest_mechanism_may_exceed_the_gaussian_curve_but_not_its_own() -> None:
    """Why the verdict tests the claimed curve: the guesses about honest Laplace noise would refute a Gaussian."""
    own, like = curve_of(Laplace(0.5)), GaussianCurve(1.9935)
    assert spent(Gaussian(1.9935), DELTA).epsilon == pytest.approx(spent(Laplace(0.5), DELTA).epsilon, abs=1e-3)
    rng = np.random.default_rng(5)
    included = rng.random(2000) < 0.5
    scores = included + rng.laplace(0, 0.5, 2000)
    guesses = Guesses.of(scores, included, high=300, low=300)
    assert refutes(like, guesses)
    assert not refutes(own, guesses)


def test_two_samples_show_at_most_what_their_runs_allow() -> None:
    for runs, most in ((200, 3.98), (1000, 5.60)):
        assert Calls(runs, runs, 0, runs).best.epsilon(0.0) == pytest.approx(most, abs=0.006)
        right = 0.025 ** (1 / runs)
        assert Calls(1, runs, 1, runs).best.epsilon(0.0) == pytest.approx(math.log(right / (1 - right)), abs=1e-9)
    assert Calls(50, 100, 50, 100).epsilon(0.0) == 0.0
    assert Calls(0, 100, 95, 100).epsilon(0.0) == 0.0


def test_the_best_of_several_tries_shares_its_error_rate() -> None:
    assert shared(0.95, 1) == 0.95
    assert shared(0.95, 5) == pytest.approx(0.99)
    assert fdp_epsilon(Guesses(300, 90, 88), DELTA, shared(0.95, 5)) < fdp_epsilon(Guesses(300, 90, 88), DELTA)


def test_impossible_counts_are_rejected() -> None:
    with pytest.raises(OptionError, match="the number of guesses must be a whole number from 1 to 10, got 11"):
        Guesses(10, 11, 3)
    with pytest.raises(OptionError, match="the number of right guesses"):
        Guesses(10, 5, 6)
    with pytest.raises(OptionError, match="the number of hits"):
        Calls(6, 5, 0, 5)
    with pytest.raises(OptionError, match="at least one"):
        curve_of([])


JAX_PRIVACY = {
    (100, 30, 29): (1.743806, 3.276068),
    (1000, 300, 250): (1.347004, 2.235660),
    (1000, 600, 600): (5.270400, 10.514892),
    (5000, 1500, 1200): (1.277644, 1.950767),
    (5000, 500, 499): (4.570482, 7.138132),
    (100_000, 1500, 1429): (2.668754, 3.299235),
}
JAX_TWO_SAMPLES = {(480, 100, 500): 1.373300, (1000, 0, 1000): 5.600577, (300, 20, 1000): 2.179824}

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.mixture import GaussianMixture

from sfumato.errors import OptionError
from sfumato.learners import PrivateGaussianMixture
from sfumato.learners.estimators.clustering import positive_definite, responsibilities, split_the_largest
from sfumato.learners.estimators.moments import Moments
from tests.learners.sensitivity import assert_sums_are_bounded

TURNED = np.array([[1.0, 0.8], [0.8, 1.0]])


def records(rows: int = 4000) -> np.ndarray:
    """Two groups, of 30 and 70 percent, the second turned."""
    rng = np.random.default_rng(0)
    first = rng.multivariate_normal([-5, -5], np.eye(2) * 0.5, int(0.3 * rows))
    return np.concatenate([first, rng.multivariate_normal([4, 4], TURNED, rows - len(first))])


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_every_sum_stays_within_its_norm(kind: str) -> None:
    x = np.concatenate([records(30), [[-99.0, 99.0], [np.nan, 10.0], [10.0, 10.0]]])
    model = PrivateGaussianMixture(
        n_components=3, rounds=3, covariance_type=kind, epsilon=1, delta=1e-3, bounds=(-10, 10)
    )
    assert_sums_are_bounded(model, x)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_without_noise_it_finds_what_scikit_learn_does(kind: str) -> None:
    x = records()
    ours = PrivateGaussianMixture(n_components=2, covariance_type=kind, epsilon=math.inf, bounds=(-10, 10), rounds=20)
    theirs = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    order, other = (np.argsort(one.means_[:, 0]) for one in (ours.fit(x), theirs))
    assert ours.weights_[order] == pytest.approx(theirs.weights_[other], abs=1e-2)
    assert ours.means_[order] == pytest.approx(theirs.means_[other], abs=1e-2)
    assert ours.covariances_[order] == pytest.approx(theirs.covariances_[other], abs=2e-2)
    assert ours.score(x) == pytest.approx(theirs.score(x), abs=1e-2)
    assert np.array_equal(ours.predict(x)[:1000] == order[0], theirs.predict(x)[:1000] == other[0])


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_with_noise_the_groups_are_still_found(kind: str) -> None:
    model = PrivateGaussianMixture(
        n_components=2, covariance_type=kind, epsilon=2, delta=1e-4, bounds=(-10, 10), insecure_seed=0
    ).fit(records())
    order = np.argsort(model.means_[:, 0])
    assert model.means_[order] == pytest.approx(np.array([[-5.0, -5.0], [4.0, 4.0]]), abs=1.0)
    assert model.weights_[order] == pytest.approx([0.3, 0.7], abs=0.1)


@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize("epsilon", [0.01, 0.3])
def test_it_is_a_density_however_much_noise_there_is(kind: str, epsilon: float) -> None:
    """Most components are lost in noise; what comes out can still be drawn from, and is within reach of the bounds."""
    x = records(300)
    model = PrivateGaussianMixture(
        n_components=8, covariance_type=kind, epsilon=epsilon, delta=1e-3, bounds=(-10, 10)
    ).fit(x)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert (model.weights_ > 0).all()
    assert (np.abs(model.means_) <= 10).all()
    matrices = model.covariances_ if kind == "full" else [np.diag(one) for one in model.covariances_]
    assert all(np.linalg.eigvalsh(one).min() > 0 for one in matrices)
    assert np.isfinite(model.score_samples(x)).all()
    made, own = model.sample(500)
    assert made.shape == (500, 2)
    assert np.isfinite(made).all()
    assert set(own) <= set(range(8))
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(len(x)))


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_the_density_is_that_of_its_parameters_in_the_units_of_the_columns(kind: str) -> None:
    x = records() * [1.0, 1000.0]
    model = PrivateGaussianMixture(
        n_components=2, covariance_type=kind, epsilon=math.inf, bounds=([-10, -10000], [10, 10000])
    ).fit(x)
    spreads = model.covariances_ if kind == "full" else [np.diag(one) for one in model.covariances_]
    parts = zip(model.weights_, model.means_, spreads, strict=True)
    density = sum(weight * stats.multivariate_normal(mean, one).pdf(x[:50]) for weight, mean, one in parts)
    assert model.score_samples(x[:50]) == pytest.approx(np.log(density), abs=1e-6)
    assert model.score(x[:50]) == pytest.approx(np.log(density).mean(), abs=1e-6)


def test_samples_have_the_moments_of_the_model() -> None:
    """20,000 draws, fixed by their seed."""
    model = PrivateGaussianMixture(n_components=2, epsilon=math.inf, bounds=(-10, 10)).fit(records())
    made, own = model.sample(20_000, random_state=0)
    for at in range(2):
        mine = made[own == at]
        assert len(mine) / len(made) == pytest.approx(model.weights_[at], abs=0.02)
        assert mine.mean(axis=0) == pytest.approx(model.means_[at], abs=0.05)
        assert np.cov(mine.T) == pytest.approx(model.covariances_[at], abs=0.05)
    assert np.array_equal(made, model.sample(20_000, random_state=0)[0])
    assert not np.array_equal(made, model.sample(20_000)[0])


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 10.0))
def test_covariances_are_made_positive_definite(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    raw = rng.normal(0, 1, (3, 4, 4))
    found = Moments(np.ones(3), np.ones(3, bool), np.zeros((3, 4)), raw + np.swapaxes(raw, 1, 2), np.full(3, noise))
    together = np.linalg.norm(np.full(3, noise / 3))  # the noise on the mean of the three
    assert (np.linalg.eigvalsh(positive_definite(found)) >= min(2 * together, 1.0) * 0.999).all()
    flat = Moments(found.counts, found.clear, found.means, raw[:, 0], found.noise)
    assert (positive_definite(flat) >= min(together, 1.0) * 0.999).all()


def test_covariances_that_differ_by_noise_only_become_their_mean() -> None:
    variances = np.array([[0.2, 0.3], [0.4, 0.5]])
    apart = Moments(np.array([100.0, 300.0]), np.ones(2, bool), np.zeros((2, 2)), variances, np.full(2, 0.0))
    assert positive_definite(apart) == pytest.approx(variances)
    alike = Moments(apart.counts, apart.clear, apart.means, variances, np.full(2, 0.2))
    assert positive_definite(alike) == pytest.approx(np.array([[0.35, 0.45], [0.35, 0.45]]))
    lost = Moments(apart.counts, np.array([False, True]), apart.means, variances, np.full(2, 0.2))
    assert positive_definite(lost)[0] == pytest.approx([0.4, 0.5])


def test_what_is_positive_and_clear_of_the_noise_is_left_as_it_is() -> None:
    found = Moments(np.ones(1), np.ones(1, bool), np.zeros((1, 2)), TURNED[None] / 2, np.full(1, 1e-3))
    assert positive_definite(found) == pytest.approx(TURNED[None] / 2)


def test_a_lost_component_takes_half_of_the_largest() -> None:
    weights, means = np.array([10.0, 0.0, 90.0]), np.array([[0.5, 0.5], [0.9, 0.9], [0.0, 0.0]])
    covariances = np.array([[0.1, 0.1], [0.1, 0.1], [0.01, 0.04]])
    split, apart, spreads = split_the_largest(weights, means, covariances)
    assert split.tolist() == [10.0, 45.0, 45.0]
    assert np.abs(apart[1:]) == pytest.approx(np.array([[0.0, 0.2], [0.0, 0.2]]))
    assert apart[1] == pytest.approx(-apart[2])
    assert spreads[1].tolist() == [0.01, 0.04]
    assert weights.tolist() == [10.0, 0.0, 90.0]


def test_a_record_is_shared_out_however_far_it_is() -> None:
    assert responsibilities(np.array([[-1e6, -1e6], [-1e6, -2e6]])).tolist() == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("wrong", [{"n_components": 0}, {"rounds": -1}, {"covariance_type": "tied"}])
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must be"):
        PrivateGaussianMixture(**wrong).fit(records(100))

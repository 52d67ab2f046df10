"""DP-EM: scikit-learn's step without noise, sums within their norms, mixtures that can be drawn from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.moments import Covariance, noisy_moments
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.dp_em import Mixtures, _update, em_shares, fit_mixtures

Floats = NDArray[np.float64]


def two_groups(rows: int = 1500) -> tuple[Floats, NDArray[np.int64]]:
    """Two groups of two clusters each, within the unit ball; a tenth of the records have no group."""
    rng = np.random.default_rng(0)
    groups = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    centres = np.array([[[0.5, 0.0], [-0.4, 0.3]], [[0.0, 0.5], [0.1, -0.5]], [[0.0, 0.0], [0.0, 0.0]]])
    turned = np.array([[0.12, 0.0], [0.06, 0.08]])
    x = centres[groups, rng.integers(0, 2, rows)] + rng.normal(size=(rows, 2)) @ turned.T
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0), groups


def without_noise(rounds: int) -> NoisySums:
    return NoisySums(em_shares(rounds, 1.0), 0.0, Source())


def test_without_noise_a_round_is_the_step_of_scikit_learn() -> None:
    x, groups = two_groups()
    start = fit_mixtures(x, groups, 2, without_noise(1), components=2, rounds=1)
    parts = start.responsibilities(x, groups)
    ours = _update(start, noisy_moments(x, np.sqrt(parts), without_noise(1), Covariance.FULL, ball=True), last=True)
    for group in range(2):
        theirs = GaussianMixture(
            2,
            max_iter=1,
            tol=0.0,
            reg_covar=0.0,
            weights_init=start.weights[group],
            means_init=start.means[group],
            precisions_init=np.linalg.inv(start.covariances[group]),
        )
        with pytest.warns(UserWarning, match="did not converge"):
            theirs.fit(x[groups == group])
        # Records and their parts are rounded to a grid of 2^-16.
        assert ours.weights[group] == pytest.approx(theirs.weights_, abs=1e-4)
        assert ours.means[group] == pytest.approx(theirs.means_, abs=1e-4)
        assert ours.covariances[group] == pytest.approx(theirs.covariances_, abs=1e-4)


def test_without_noise_the_clusters_of_each_group_are_found() -> None:
    x, groups = two_groups()
    found = fit_mixtures(x, groups, 2, without_noise(15), components=2, rounds=15)
    order = np.argsort(found.means[0][:, 0])
    assert found.means[0][order] == pytest.approx(np.array([[-0.4, 0.3], [0.5, 0.0]]), abs=0.05)
    order = np.argsort(found.means[1][:, 1])
    assert found.means[1][order] == pytest.approx(np.array([[0.1, -0.5], [0.0, 0.5]]), abs=0.05)
    assert found.weights == pytest.approx(np.full((2, 2), 0.5), abs=0.1)


class Recording(NoisySums):
    """Noisy sums that keep what they were asked, or that answer what another has answered."""

    def __init__(self, shares: Any, answers: list[Any] | None = None) -> None:
        super().__init__(shares, 2.0, Source(insecure_seed=1))
        self.asked: list[Any] = []
        self._answers = answers

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        noisy = super().__call__(name, sums, norm)
        if self._answers is not None:
            noisy = self._answers[len(self.asked)][3]
        self.asked.append((name, np.array(sums), norm, noisy))
        return noisy.copy()


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_one_record_moves_every_sum_by_at_most_its_norm(width: int, components: int, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x = rng.normal(size=(20, width))
    x[0] = data.draw(st.lists(st.floats(-3, 3), min_size=width, max_size=width))  # most lie beyond the ball
    x[1] = np.eye(width)[0]
    groups, weights = rng.integers(0, 3, 20), np.append(np.ones(2), rng.random(18))
    groups[:2] = 0
    whole = Recording(em_shares(2, 1.0))
    fit_mixtures(x, groups, 2, whole, components=components, rounds=2, weights=weights)
    moved = []
    for record in (0, 1, 7):
        part = Recording(em_shares(2, 1.0), whole.asked)
        rest = np.arange(20) != record
        fit_mixtures(x[rest], groups[rest], 2, part, components=components, rounds=2, weights=weights[rest])
        for one, other in zip(whole.asked, part.asked, strict=True):
            assert one[2] == other[2] == 1.0
            moved.append(np.linalg.norm(one[1] - other[1]))
    assert max(moved) <= 1.0 + 1e-9
    assert max(moved) > 0.99  # the record at the border of the ball: the norm is not larger than it must be


def test_noise_of_second_moments_is_that_of_a_symmetric_matrix() -> None:
    draws = []
    for seed in range(400):
        sums = NoisySums(
            {name: Share(1, 1.0) for name in ("counts", "means", "covariances")}, 1.0, Source(insecure_seed=seed)
        )
        zeros = np.zeros((1, 3))
        draws.append(noisy_moments(zeros, np.ones((1, 1)), sums, Covariance.FULL, ball=True))
    second = np.array([one.covariances[0] + np.outer(one.means[0], one.means[0]) for one in draws])
    second *= np.array([one.counts[0] for one in draws])[:, None, None]
    assert (second == second.transpose(0, 2, 1)).all()
    upper = np.triu_indices(3, 1)
    # 1,200 normal draws each, of deviations sqrt(3) and sqrt(3) / 1.41, with a fixed seed: nothing here is random.
    assert np.std(np.diagonal(second, axis1=1, axis2=2)) == pytest.approx(math.sqrt(3), rel=0.1)
    assert np.std(second[:, upper[0], upper[1]]) == pytest.approx(math.sqrt(3) * 32 / 45, rel=0.1)


@pytest.mark.parametrize("noise", [1.0, 100.0, 1e6])
def test_under_any_noise_vectors_in_the_ball_are_drawn(noise: float) -> None:
    x, groups = two_groups(200)
    sums = NoisySums(em_shares(3, 1.0), noise, Source(insecure_seed=3))
    found = fit_mixtures(x, groups, 4, sums, components=3, rounds=3)  # two groups are empty
    assert found.weights.sum(axis=1) == pytest.approx(np.ones(4))
    assert (np.linalg.eigvalsh(found.covariances) > 0).all()
    drawn = found.sample(np.arange(4).repeat(50), np.random.default_rng(0))
    assert drawn.shape == (200, 2)
    assert (np.linalg.norm(drawn, axis=1) <= 1).all()


def test_drawn_vectors_have_the_moments_of_their_group() -> None:
    matrices = np.array([[[[0.02, 0.01], [0.01, 0.02]]] * 2, [[[0.01, 0.0], [0.0, 0.001]]] * 2])
    mixtures = Mixtures(
        np.array([[0.8, 0.2], [1.0, 0.0]]), np.array([[[0.2, 0.2], [-0.3, 0.1]], [[0.0, 0.5], [0.9, 0.0]]]), matrices
    )
    drawn = mixtures.sample(np.array([0, 1]).repeat(20_000), np.random.default_rng(0))
    assert drawn[:20_000].mean(axis=0) == pytest.approx([0.1, 0.18], abs=0.01)
    assert drawn[20_000:].mean(axis=0) == pytest.approx([0.0, 0.5], abs=0.01)
    assert np.cov(drawn[20_000:].T) == pytest.approx(matrices[1, 0], abs=1e-3)


def test_mixtures_whose_parts_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="do not fit each other"):
        Mixtures(np.ones((2, 1)), np.zeros((2, 1, 3)), np.zeros((2, 1, 3, 2)))

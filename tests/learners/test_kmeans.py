from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.cluster import KMeans

from sfumato.errors import ColumnError, OptionError
from sfumato.learners import PrivateKMeans
from sfumato.learners.estimators.clustering import _beside_the_largest
from sfumato.learners.estimators.moments import spread
from tests.learners.sensitivity import assert_sums_are_bounded

CORNERS = np.array([[2.0, 2.0], [2.0, 8.0], [8.0, 2.0], [8.0, 8.0]])


def blobs(rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    own = rng.integers(0, 4, rows)
    return CORNERS[own] + rng.normal(0, 0.5, (rows, 2)), own


def farthest(model: PrivateKMeans) -> float:
    """Return how far the corner is that is worst hit by a centre."""
    apart = np.linalg.norm(CORNERS[:, None] - model.cluster_centers_[None], axis=2)
    return float(apart.min(axis=1).max())


def test_every_sum_stays_within_its_norm() -> None:
    x = np.concatenate([blobs(40)[0], [[-100.0, 100.0], [np.nan, 0.0]]])
    model = PrivateKMeans(n_clusters=3, rounds=3, epsilon=1, delta=1e-3, bounds=(0, 10))
    assert_sums_are_bounded(model, x)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_centres_are_those_of_the_clusters(epsilon: float) -> None:
    """With 500 records in each and noise of about 25, a mean is off by far less than 1."""
    x, _ = blobs()
    model = PrivateKMeans(n_clusters=4, epsilon=epsilon, delta=1e-4, bounds=(0, 10), insecure_seed=0).fit(x)
    assert farthest(model) < (1.0 if epsilon == 1 else 0.1)


def test_without_noise_it_ends_where_scikit_learn_does() -> None:
    x, _ = blobs()
    ours = PrivateKMeans(n_clusters=4, epsilon=math.inf, bounds=(-10, 20), rounds=20).fit(x)
    theirs = KMeans(4, n_init=5, random_state=0).fit(x)
    order, other = (np.lexsort(one.cluster_centers_.round().T) for one in (ours, theirs))
    assert ours.cluster_centers_[order] == pytest.approx(theirs.cluster_centers_[other], abs=1e-3)


def test_labels_of_the_training_are_only_there_without_privacy() -> None:
    x, own = blobs()
    private = PrivateKMeans(n_clusters=4, epsilon=1, delta=1e-4, bounds=(0, 10))
    labels = private.fit_predict(x)
    assert not hasattr(private, "labels_")
    assert len(labels) == len(own)
    open_ = PrivateKMeans(n_clusters=4, epsilon=math.inf, bounds=(0, 10)).fit(x)
    assert np.array_equal(open_.labels_, open_.predict(x))
    assert not hasattr(open_.set_params(epsilon=1, delta=1e-4).fit(x), "labels_")


def test_distances_are_in_units_of_half_the_bounds() -> None:
    model = PrivateKMeans(n_clusters=1, epsilon=math.inf, bounds=([0, 0], [10, 1000])).fit([[5.0, 500.0], [5.0, 500.0]])
    assert model.cluster_centers_ == pytest.approx(np.array([[5.0, 500.0]]))
    assert model.transform([[10.0, 500.0], [5.0, 0.0]]).ravel() == pytest.approx([1.0, 1.0])
    assert model.score([[10.0, 500.0], [5.0, 0.0]]) == pytest.approx(-2.0)
    assert list(model.get_feature_names_out()) == ["privatekmeans0"]


def test_a_centre_without_records_goes_beside_the_largest() -> None:
    centres = np.array([[0.0, 0.0], [0.8, 0.0], [-0.9, -0.9]])
    moved = _beside_the_largest(centres, np.array([10.0, 500.0, 1.0]), np.array([True, True, False]))
    assert np.array_equal(moved[:2], centres[:2])
    assert np.linalg.norm(moved[2] - centres[1]) == pytest.approx(0.2)
    nothing = np.array([False, False, False])
    assert np.array_equal(_beside_the_largest(centres, np.ones(3), nothing), centres)


def test_more_clusters_than_records_are_no_harm() -> None:
    model = PrivateKMeans(n_clusters=5, epsilon=math.inf, bounds=(0, 1)).fit([[0.1], [0.9]])
    assert model.predict([[0.1], [0.9]]).shape == (2,)


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"rounds": 0}, {"n_clusters": 2.5}])
def test_what_is_no_whole_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must be a whole number"):
        PrivateKMeans(**wrong).fit(blobs()[0])


def test_categories_are_refused_before_anything_is_charged() -> None:
    with pytest.raises(ColumnError, match="column 'x0' holds categories"):
        PrivateKMeans(bounds=(0, 1)).fit(np.array([[1.0, "a"], [2.0, "b"]], dtype=object))


def test_points_that_are_spread_are_symmetric_and_leave_the_rest_of_the_variance() -> None:
    points, rest = spread(8, 3)
    assert points.shape == (8, 3)
    between = np.square(points).sum(axis=1).mean() / 3
    assert between + rest == pytest.approx(1.0, abs=0.15)
    assert np.array_equal(points, spread(8, 3)[0])

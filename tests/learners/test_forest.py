from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import OptionError
from sfumato.learners import PrivateRandomForest
from sfumato.learners.estimators.counts import _gains, _order, _shares_of
from tests.learners.sensitivity import assert_sums_are_bounded


def published(counts: tuple[int, ...], epsilon: float) -> np.ndarray:
    """Return the probability of each class as a leaf's answer, after Fletcher and Islam (2017)."""
    first, second = sorted(counts, reverse=True)[:2]
    sensitivity = math.exp(-(first - second) * epsilon)
    weights = np.array([math.exp(epsilon / (2 * sensitivity)) if count == first else 1.0 for count in counts])
    return weights / weights.sum()


def least_delta(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """Return the least delta for which two distributions are as close as epsilon says: the hockey-stick divergence."""
    return max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((one, other), (other, one)))


def test_the_published_leaf_rule_is_not_epsilon_private() -> None:
    """The least delta for which it would be, over all neighbouring counts of two classes with a lead of at most 60."""
    one, other = published((11, 10), 1.0), published((12, 10), 1.0)
    assert one[1] == pytest.approx(0.2044, abs=1e-4)
    assert other[1] == pytest.approx(0.0243, abs=1e-4)
    assert one[1] / other[1] == pytest.approx(8.43, abs=0.01)  # and not e
    for epsilon, expected, leads in ((0.1, 0.0105, 60), (0.5, 0.0613, 10), (1.0, 0.1384, 5), (2.0, 0.4954, 2)):
        tables = [published((10 + lead, 10), epsilon) for lead in range(leads + 1)]
        pairs = itertools.pairwise(tables)
        assert max(least_delta(a, b, epsilon) for a, b in pairs) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_counts_as_utilities_are_epsilon_private(classes: int, epsilon: float) -> None:
    """The check itself is right: the exponential mechanism with a sensitivity of 1 needs no delta."""

    def right(counts: np.ndarray) -> np.ndarray:
        weights = np.exp(epsilon * (counts - counts.max()) / 2)
        return weights / weights.sum()

    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = rng.integers(0, 20, classes)
        more = counts + np.eye(classes, dtype=int)[rng.integers(classes)]
        assert least_delta(right(counts), right(more), epsilon) <= 1e-12


def table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.2, 1.2, (rows, 3))
    x[::7, 1] = np.nan
    return x, (x[:, 0] > 0.5).astype(int) + (x[:, 2] > 0.8)


def test_every_sum_stays_within_its_norm() -> None:
    x, y = table()
    model = PrivateRandomForest(
        epsilon=1, delta=1e-3, bounds=(0, 1), classes=(0, 1, 2), trees=4, depth=3, cells=5, random_state=0
    )
    assert_sums_are_bounded(model, x, y, records=range(0, 60, 3))


def test_without_noise_it_learns_what_no_single_column_tells_alone() -> None:
    """A class that depends on two columns together, each of which tells a little."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2000, 4))
    y = (x[:, 0] > 0.4) & (x[:, 1] > 0.4)
    model = PrivateRandomForest(epsilon=math.inf, bounds=(0, 1), random_state=0).fit(x[:1000], y[:1000])
    assert model.score(x[1000:], y[1000:]) > 0.95


def test_trees_are_less_deep_with_more_noise() -> None:
    x, y = table(500)
    depths = [
        PrivateRandomForest(epsilon=epsilon, delta=1e-4, bounds=(0, 1), classes=(0, 1, 2), trees=10, insecure_seed=0)
        .fit(x, y)
        .columns_.shape[1]
        for epsilon in (0.05, 1.0, 10.0, math.inf)
    ]
    assert depths == sorted(depths)
    assert depths[0] == 1
    assert depths[-1] == 12


def test_a_tree_takes_a_column_again_only_after_all_others() -> None:
    x, y = table(500)
    model = PrivateRandomForest(epsilon=math.inf, trees=20, depth=7, random_state=1).fit(x, y)
    for columns in model.columns_:
        assert sorted(columns[:3]) == sorted(columns[3:6]) == [0, 1, 2]


def test_the_same_random_state_draws_the_same_splits() -> None:
    x, y = table(500)
    one, other, third = (
        PrivateRandomForest(epsilon=math.inf, trees=3, random_state=state).fit(x, y) for state in (1, 1, 2)
    )
    assert np.array_equal(one.sides_, other.sides_)
    assert not np.array_equal(one.sides_, third.sides_)


def test_a_split_gains_what_its_sides_tell_of_the_class() -> None:
    """By hand: a split that parts the classes gains the whole entropy, log 2; the ones around it, less."""
    counts = np.array([[50.0, 0.0], [50.0, 0.0], [0.0, 50.0], [0.0, 50.0]])
    first, middle, last = _gains(counts, 0.0)
    assert middle == pytest.approx(math.log(2))
    assert first == pytest.approx(last)
    assert first == pytest.approx(math.log(2) - 0.75 * (math.log(3) - 2 / 3 * math.log(2)))
    assert _gains(np.array([[10.0, 20.0], [5.0, 10.0]]), 0.0)[0] == pytest.approx(0.0, abs=1e-12)
    assert (_gains(counts, 100.0) == 0).all()  # nothing stands out from so much noise


def test_categories_are_ordered_by_their_share_of_a_class() -> None:
    counts = np.array([[10.0, 90.0], [90.0, 10.0], [50.0, 50.0]])
    assert _order(counts, 1, 0.0).tolist() == [1, 2, 0]
    assert _order(counts, 0, 0.0).tolist() == [0, 2, 1]


def test_a_leaf_that_is_lost_in_noise_answers_like_the_node_above_it() -> None:
    leaves = np.array([[[900.0, 100.0], [10.0, -30.0], [100.0, 900.0], [300.0, 100.0]]])
    shares = _shares_of(leaves, noise=50.0)[0]
    left, right = np.array([910.0, 70.0]), np.array([400.0, 1000.0])
    assert shares[1] == pytest.approx(left / left.sum(), abs=1e-3)
    assert shares[2] == pytest.approx([0.1, 0.9], abs=1e-3)
    assert shares[3] == pytest.approx((np.array([300.0, 100.0]) + right / right.sum()) / 401, abs=1e-3)
    assert _shares_of(leaves, noise=0.0)[0, 1] == pytest.approx([0.993, 0.007], abs=0.1)


def test_shares_add_up_and_none_is_zero() -> None:
    rng = np.random.default_rng(0)
    shares = _shares_of(rng.normal(0, 10, (3, 16, 4)), noise=10.0)
    assert shares.sum(axis=2) == pytest.approx(np.ones((3, 16)))
    assert (shares > 0).all()


@pytest.mark.parametrize("wrong", [{"trees": 0}, {"depth": 1.5}, {"cells": "many"}, {"random_state": -1}])
def test_what_is_no_whole_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must be a whole number"):
        PrivateRandomForest(**wrong).fit(*table())


def test_it_is_better_than_what_was_published_on_adult() -> None:
    """Published: 0.79 to 0.80 at epsilon 1, of a rule that is not private."""
    model = PrivateRandomForest(epsilon=1, insecure_seed=0).fit(sf.datasets.adult("train"), "income")
    assert model.score(sf.datasets.adult("test"), "income") > 0.82

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.decomposition import PCA

from sfumato.errors import InputError, OptionError
from sfumato.learners import PrivatePCA
from tests.learners.sensitivity import assert_sums_are_bounded

BOUNDS = ([-30.0, -30.0, 0.0], [30.0, 30.0, 10.0])


def records(rows: int = 3000) -> np.ndarray:
    """Records along (3, 4, 0), with a little of everything else."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 1)) @ [[3.0, 4.0, 0.0]] + rng.normal(0, 0.5, (rows, 3)) + [1.0, 2.0, 5.0]


def test_every_sum_stays_within_its_norm() -> None:
    """Corners of the bounds have the largest norm there is."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.choice([-1.0, 1.0], (20, 4)), rng.normal(0, 1, (10, 4)), np.full((1, 4), np.nan)])
    assert_sums_are_bounded(PrivatePCA(epsilon=1, delta=1e-3, bounds=(-1, 1)), x)


def test_without_noise_it_is_scikit_learns() -> None:
    x = records()
    ours, theirs = PrivatePCA(epsilon=math.inf, bounds=BOUNDS).fit(x), PCA().fit(x)
    assert ours.mean_ == pytest.approx(theirs.mean_, abs=1e-3)
    assert ours.explained_variance_ == pytest.approx(theirs.explained_variance_, rel=1e-3)
    assert ours.explained_variance_ratio_ == pytest.approx(theirs.explained_variance_ratio_, abs=1e-3)
    assert np.abs((ours.components_ * theirs.components_).sum(axis=1)) == pytest.approx(np.ones(3), abs=1e-3)
    assert np.abs(ours.transform(x)) == pytest.approx(np.abs(theirs.transform(x)), abs=0.02)


def test_the_first_component_is_found_with_noise() -> None:
    model = PrivatePCA(n_components=1, epsilon=1, delta=1e-4, bounds=BOUNDS, insecure_seed=0).fit(records())
    assert abs(float(model.components_[0] @ [0.6, 0.8, 0.0])) > 0.95


def test_all_components_turn_records_and_turn_them_back() -> None:
    x = records(100)
    model = PrivatePCA(epsilon=1, delta=1e-3, bounds=BOUNDS).fit(x)
    assert model.components_ @ model.components_.T == pytest.approx(np.eye(3), abs=1e-9)
    assert model.inverse_transform(model.transform(x)) == pytest.approx(np.clip(x, *BOUNDS), abs=1e-9)
    with pytest.raises(InputError, match="there are 3 components"):
        model.inverse_transform(x[:, :2])


def test_components_are_named_and_ordered() -> None:
    model = PrivatePCA(n_components=2, epsilon=0.5, delta=1e-3, bounds=BOUNDS).fit(records(200))
    assert list(model.get_feature_names_out()) == ["privatepca0", "privatepca1"]
    assert model.explained_variance_[0] >= model.explained_variance_[1] >= 0
    assert (model.components_[np.arange(2), np.abs(model.components_).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize(("number", "rule"), [(0, "at least 1"), (4, "at most the number of columns"), (1.5, "whole")])
def test_a_wrong_number_of_components_is_refused(number: object, rule: str) -> None:
    with pytest.raises(OptionError, match=rule):
        PrivatePCA(n_components=number, bounds=BOUNDS).fit(records(200))

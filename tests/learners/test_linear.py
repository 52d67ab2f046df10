import math

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression

from sfumato.learners import PrivateLinearRegression
from tests.learners.sensitivity import assert_sums_are_bounded
from tests.learners.tables import mixed_schema, mixed_table


def line(rows):
    random = np.random.default_rng(0)
    x = random.uniform([0, -5], [100, 5], (rows, 2))
    return x, 0.3 * x[:, 0] - 2 * x[:, 1] + 7 + random.normal(0, 0.5, rows)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_no_record_moves_a_sum_further_than_is_paid_for(epsilon):
    table, _, numbers = mixed_table(12)
    model = PrivateLinearRegression(epsilon=epsilon, schema=mixed_schema(), target_bounds=(-1, 1), insecure_seed=1)
    assert_sums_are_bounded(model, table, numbers)


def test_a_record_at_the_corner_uses_the_whole_norm():
    # Were a bound taken twice instead of both, as in diffprivlib, one of the two corners would be longer.
    for corner in (0.0, 10.0):
        x, y = np.array([[corner, corner], [5.0, 5.0]]), np.array([corner, 5.0])
        model = PrivateLinearRegression(bounds=(0, 10), target_bounds=(0, 10))
        assert_sums_are_bounded(model, x, y)


@pytest.mark.parametrize("seed", range(20))
def test_columns_that_add_up_to_one_are_fitted_without_noise(seed):
    """The values of two categories each add up to one, so the moments are singular, but for rounding."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(30, 400))
    age = random.integers(18, 90, rows)
    both = {name: random.choice(["yes", "no"], rows) for name in ("ill", "old")}
    table, target = pl.DataFrame({"age": age, **both}), pl.Series("cost", age * 10.0)
    model = PrivateLinearRegression(epsilon=math.inf).fit(table, target)
    assert model.predict(table) == pytest.approx(target.to_numpy(), rel=1e-2)


def test_coefficients_without_noise_are_those_of_least_squares():
    x, y = line(2000)
    ours, theirs = PrivateLinearRegression(epsilon=math.inf).fit(x, y), LinearRegression().fit(x, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, rel=1e-3)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-3)
    assert ours.predict(x) == pytest.approx(x @ ours.coef_ + ours.intercept_)


def test_coefficients_with_noise_come_near_with_many_records():
    x, y = line(50_000)
    public = {"bounds": ([0, -5], [100, 5]), "target_bounds": (-20, 60)}
    model = PrivateLinearRegression(epsilon=1, delta=1e-6, insecure_seed=1, **public)
    assert model.fit(x, y).coef_ == pytest.approx([0.3, -2], rel=0.1)


def test_categories_that_add_up_to_one_are_no_obstacle():
    table = pl.DataFrame({"colour": ["red", "green", "blue", "red"] * 50})
    y = np.array([1.0, 2.0, 3.0, 1.0] * 50)
    model = PrivateLinearRegression(epsilon=math.inf).fit(table, y)
    assert model.predict(table) == pytest.approx(y, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_ten_records_give_finite_predictions_within_the_bounds(epsilon):
    table, _, numbers = mixed_table(10)
    model = PrivateLinearRegression(epsilon=epsilon, schema=mixed_schema(), target_bounds=(-1, 1))
    assert (np.abs(model.fit(table, numbers).predict(table)) <= 1).all()


def test_a_model_is_what_its_state_says():
    x, y = line(50)
    fitted = PrivateLinearRegression(epsilon=1, bounds=([0, -5], [100, 5]), target_bounds=(-20, 60)).fit(x, y)
    again = PrivateLinearRegression()
    again.restore(*fitted.state())
    assert (again.predict(x) == fitted.predict(x)).all()

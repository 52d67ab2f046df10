from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from sklearn.naive_bayes import CategoricalNB

import sfumato as sf
from sfumato.errors import OptionError
from sfumato.learners import PrivateNaiveBayes
from tests.learners.sensitivity import assert_sums_are_bounded

SCHEMA = sf.Schema(
    [
        sf.Column(name="age", kind="number", bounds=(0, 100)),
        sf.Column(name="sex", kind="category", domain=("f", "m")),
        sf.Column(name="ill", kind="category", domain=("no", "yes")),
    ]
)
PEOPLE = pl.DataFrame(
    {
        "age": [10.0, 20.0, 60.0, 70.0, 80.0, None, 500.0, 30.0],
        "sex": ["f", "m", "f", "f", "m", "m", "x", None],
        "ill": ["no", "no", "no", "yes", "yes", "yes", "yes", "unknown"],
    }
)


def test_every_sum_stays_within_its_norm() -> None:
    """Also with records of another class, which count nowhere."""
    model = PrivateNaiveBayes(epsilon=1, delta=1e-3, schema=SCHEMA, classes=("no", "yes"), cells=4)
    assert_sums_are_bounded(model, PEOPLE.drop("ill"), PEOPLE["ill"])


def test_without_noise_shares_are_those_of_the_counts() -> None:
    """By hand: of two cells of age, one for unknown; a count of 0 is held at 1; the record of no class is left out."""
    model = PrivateNaiveBayes(epsilon=math.inf, cells=2).fit(sf.Table(PEOPLE, SCHEMA), "ill")
    assert np.exp(model.class_log_prior_) == pytest.approx([3 / 7, 4 / 7])
    ages, sexes = np.split(np.exp(model.feature_log_prob_), [3], axis=1)
    assert ages == pytest.approx(np.array([[2 / 4, 1 / 4, 1 / 4], [1 / 5, 3 / 5, 1 / 5]]))
    assert sexes == pytest.approx(np.array([[2 / 4, 1 / 4, 1 / 4], [1 / 4, 2 / 4, 1 / 4]]))
    odds = 3 / 7 * 1 / 2 * 1 / 4 / (4 / 7 * 1 / 5 * 1 / 2)
    assert model.predict_proba(pl.DataFrame({"age": [5], "sex": ["m"]}))[0] == pytest.approx(
        [odds / (1 + odds), 1 / (1 + odds)]
    )


def test_without_noise_it_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    codes, target = rng.integers(0, 4, (2000, 3)), rng.integers(0, 3, 2000)
    ours = PrivateNaiveBayes(epsilon=math.inf, bounds=(0, 4), cells=4).fit(codes.astype(float), target)
    theirs = CategoricalNB(alpha=1e-10).fit(codes, target)
    # One record more in each column's cell for unknown.
    assert ours.predict_proba(codes.astype(float)) == pytest.approx(theirs.predict_proba(codes), abs=1e-2)


def test_noise_is_what_was_paid_for() -> None:
    """The deviation of a large count, over 400 fits; within 6 of its standard errors, 1 / sqrt(800) each."""
    x, y = np.full((1000, 1), 0.25), np.arange(1000) % 2
    model = PrivateNaiveBayes(epsilon=1, delta=1e-4, bounds=(0, 1), cells=1, classes=(0, 1))
    priors = [math.exp(model.fit(x, y).class_log_prior_[0]) for _ in range(400)]
    # The share of one of two equal noisy counts deviates by sqrt(2) / 4 of their noise over 500.
    expected = model.events_[0].scale * math.sqrt(2) / 4 / 500
    assert abs(np.std(priors) / expected - 1) < 6 / math.sqrt(800)


def test_more_noise_than_counts_is_still_a_model() -> None:
    model = PrivateNaiveBayes(epsilon=0.01, delta=1e-3, schema=SCHEMA).fit(PEOPLE.drop("ill"), PEOPLE["ill"])
    chances = model.predict_proba(PEOPLE.drop("ill").head(5))
    assert np.isfinite(chances).all()
    assert chances.sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("cells", [0, 2.5, "ten"])
def test_a_wrong_number_of_cells_is_refused(cells: object) -> None:
    with pytest.raises(OptionError, match="number of cells must be a whole number"):
        PrivateNaiveBayes(cells=cells, schema=SCHEMA, delta=1e-3).fit(PEOPLE.drop("ill"), PEOPLE["ill"])

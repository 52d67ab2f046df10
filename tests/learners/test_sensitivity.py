"""The brute force of `sensitivity.py` finds what it is for, and naive Bayes passes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from sfumato.learners import PrivateEstimator, PrivateNaiveBayes
from sfumato.learners.estimators.noisy_sums import Share
from tests.learners.sensitivity import assert_sums_are_bounded
from tests.learners.tables import mixed_schema, mixed_table


@dataclass(kw_only=True, eq=False, repr=False)
class Means(PrivateEstimator):
    """Asks for a count and for a mean around it, rightly or wrongly."""

    norm: float = 1.0
    times: int = 1
    norm_by_data: bool = False

    _state: ClassVar = ()

    def _shares(self, columns):
        return {"count": Share(1, 0.5), "sum": Share(self.times, 0.5)}

    def _learn(self, columns, target, sums):
        rows = self.features_.matrix(columns)
        sums("count", len(rows), norm=1.0)
        sums("sum", rows.sum(axis=0), norm=float(np.abs(rows).sum()) if self.norm_by_data else self.norm)


def found(**options):
    assert_sums_are_bounded(Means(bounds=(0, 1), **options), np.array([[0.1], [1.0], [0.5]]))


def test_honest_sums_pass():
    found()


def test_a_norm_that_is_too_small_is_found():
    with pytest.raises(AssertionError, match="'sum' changes by"):
        found(norm=0.5)


def test_a_norm_that_depends_on_a_record_is_found():
    with pytest.raises(AssertionError, match="the norm of 'sum' depends on a record"):
        found(norm_by_data=True)


def test_a_sum_that_is_declared_and_not_asked_for_is_found():
    with pytest.raises(AssertionError, match="declared are"):
        found(times=2)


@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_no_record_moves_a_sum_of_naive_bayes_further_than_is_paid_for(epsilon):
    table, classes, _ = mixed_table(12)
    model = PrivateNaiveBayes(epsilon=epsilon, schema=mixed_schema(), classes=("a", "b", "c"), insecure_seed=1)
    assert_sums_are_bounded(model, table, classes)


def test_a_record_of_an_unknown_class_moves_no_sum_further():
    table, classes, _ = mixed_table(12)
    model = PrivateNaiveBayes(epsilon=1.0, schema=mixed_schema(), classes=("a", "b"), insecure_seed=1)
    assert_sums_are_bounded(model, table, classes)

"""Does what one record adds to a sum stay within the norm that the sum is paid for? By brute force, for any estimator.

An estimator learns from a table, and from the same table without one record, while both are given the same noisy
answers: so its second question may depend on the first answer, as it does in earnest. What the two ask must differ
by no more than the norm they declare, which must be the same, since noise is calibrated to it. If the table has a
person column, one person is left out with all of their rows, and the questions may differ by that many norms.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from sfumato.budget import Source
from sfumato.learners import PrivateEstimator
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums

__all__ = ["assert_sums_are_bounded"]

_SLACK = 1e-9  # a last digit of the norm


@dataclass
class Asked:
    """One question: its kind, the exact sums, the norm, and what was answered."""

    name: str
    exact: Floats
    norm: float
    answer: Floats


class Recording(NoisySums):
    """Noisy sums that keep what they were asked, or that answer what another has answered."""

    def __init__(self, like: NoisySums, answers: list[Asked] | None = None) -> None:
        bound = like.rows_per_person
        super().__init__(like.shares, like.multiplier, Source(insecure_seed=7), rows_per_person=bound)
        self.asked: list[Asked] = []
        self._answers = answers

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        exact = np.array(sums, dtype=np.float64)
        at = len(self.asked)
        noisy = super().__call__(name, sums, norm)  # also when replaying: it refuses what is not paid for
        if self._answers is not None:
            assert at < len(self._answers), "one record more or less makes it ask more often"
            noisy = self._answers[at].answer
        self.asked.append(Asked(name, exact, norm, noisy))
        return noisy.copy()


def assert_sums_are_bounded(
    model: PrivateEstimator,
    X: Any,  # noqa: N803
    y: Any = None,
    records: Iterable[int] | None = None,
) -> None:
    """Fit a model with and without each record, or each person, and compare every sum that it asks for.

    Parameters
    ----------
    model : PrivateEstimator
        With a finite epsilon. What is public of the columns and the target must be declared. Nobody may have more rows
        than count, since which of them are drawn is random.
    X, y : table or `ImageInputs`, and target
    records : iterable of int, optional
        Which records, or people in the order of their first rows, to leave out one after the other; by default all.
    """
    columns = Columns.of(X)
    target = None if y is None else pl.Series("target", np.asarray(y))
    units, bound = columns.units, 1 if columns.people is None else model.rows_per_person
    assert bound is not None
    assert np.bincount(units).max() <= bound
    whole = _asked(model, columns, target, None)
    for record in range(units.max() + 1) if records is None else records:
        kept = np.flatnonzero(units != record)
        less = _asked(model, columns.take(kept), None if target is None else target[kept], whole)
        for with_it, without in zip(whole, less, strict=True):
            assert with_it.name == without.name
            assert with_it.norm == without.norm, f"the norm of '{with_it.name}' depends on a record"
            assert with_it.exact.shape == without.exact.shape, f"the shape of '{with_it.name}' depends on a record"
            difference = float(np.linalg.norm((with_it.exact - without.exact).ravel()))
            assert difference <= bound * with_it.norm * (1 + _SLACK), f"'{with_it.name}' changes by {difference}"


def _asked(
    model: PrivateEstimator, columns: Columns, target: pl.Series | None, answers: list[Asked] | None
) -> list[Asked]:
    """Return everything that fitting asks for; with other answers than noise, if they are given."""
    one = copy.copy(model)
    recorders = []

    def recording(given: Columns, how: Mapping[int, Any]) -> NoisySums:
        assert not how, "everything must be declared: what is bought is tested by itself"
        recorders.append(Recording(type(one)._sums(one, given, how), answers))
        return recorders[-1]

    one._sums = recording  # type: ignore[method-assign]
    one.fit(columns, target)
    (sums,) = recorders
    assert sums.multiplier > 0, "without noise there is nothing to bound"
    asked = Counter(question.name for question in sums.asked)
    declared = {name: share.times for name, share in sums.shares.items()}
    assert asked == declared, f"declared are {declared}, and asked for is {dict(asked)}"
    return sums.asked

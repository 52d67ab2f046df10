"""Naive Bayes from noisy counts of every column's values within every class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sfumato.data.validate import whole
from sfumato.learners.estimators.estimator import Classifier, Ints
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["PrivateNaiveBayes"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateNaiveBayes(Classifier):
    """Naive Bayes with differential privacy (after Vaidya et al. 2013).

    Columns are assumed independent within a class. Numbers are counted in equal cells between their bounds. A record
    is counted once per column, and once for its class.

    Parameters
    ----------
    cells : int
        The number of cells that a number is divided into.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateNaiveBayes(epsilon=1).fit(adult, "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.7
    True
    >>> print(model.spent_)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """

    cells: int = 20

    _state: ClassVar = ("class_log_prior_", "feature_log_prob_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of cells", self.cells)
        return {"classes": Share(1, 0.1), "columns": Share(1, 0.9)}

    def _learn(self, columns: Columns, target: Ints, sums: NoisySums) -> None:
        classes = len(self.classes_)
        known = target < classes
        target, cells = target[known], self.features_.cells(columns, self.cells)[known]
        starts = np.concatenate([[0], np.cumsum(self.features_.sizes(self.cells))])
        places = cells + starts[:-1]
        counts = np.zeros((classes, starts[-1]))
        np.add.at(counts, (target[:, None], places), 1.0)
        width = cells.shape[1]
        self.class_log_prior_ = _logarithms(sums("classes", np.bincount(target, minlength=classes), norm=1.0))
        noisy = sums("columns", counts, norm=float(np.sqrt(width)))
        parts = np.split(noisy, starts[1:-1], axis=1)
        self.feature_log_prob_ = np.concatenate([_logarithms(part) for part in parts], axis=1)

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        columns = self._columns(X)
        cells = self.features_.cells(columns, self.cells)
        starts = np.concatenate([[0], np.cumsum(self.features_.sizes(self.cells))[:-1]])
        logs = self.class_log_prior_ + self.feature_log_prob_[:, cells + starts].sum(axis=2).T
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)


def _logarithms(counts: Floats) -> Floats:
    """Return the logarithms of shares; a count below 1 counts as 1."""
    positive = np.maximum(counts, 1.0)
    return np.log(positive / positive.sum(axis=-1, keepdims=True))

"""Logistic regression by noisy full-batch gradient descent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sfumato.data.validate import whole
from sfumato.learners.estimators.estimator import Classifier, Ints
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.linear import from_units, to_units
from sfumato.learners.estimators.noisy_descent import Descent, ridge_against, softmax
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share, on_grid, within

__all__ = ["PrivateLogisticRegression"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegression(Classifier):
    """Logistic regression with differential privacy (noisy gradient descent: Song et al. 2013, Bassily et al. 2014).

    First, noisy means and variances are measured, to centre all columns and scale numbers. A record's row is clipped
    to the norm that it would have if every column contributed 1, and its gradient is that row times a residual of norm
    at most sqrt(2). Every step uses all records, each coefficient moves in proportion to its inverse curvature, and
    the result is the average of the steps.

    Parameters
    ----------
    rounds : int
        The number of steps, which share the budget: more steps take longer but cost no more.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateLogisticRegression(epsilon=1).fit(adult, "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.8
    True
    """

    rounds: int = 60

    _state: ClassVar = ("coef_", "intercept_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of rounds", self.rounds)
        return {"moments": Share(1, 0.1), "gradients": Share(self.rounds, 0.9)}

    def _learn(self, columns: Columns, target: Ints, sums: NoisySums) -> None:
        known, classes = target < len(self.classes_), len(self.classes_)
        given, truth = on_grid(self.features_.matrix(columns)[known]), np.eye(classes)[target[known]]
        numbers = np.repeat(
            [one.is_number for one in self.features_.features], [one.size(1) - 1 for one in self.features_.features]
        )
        rows, means, variances, prior = self._moments(given, numbers, truth, sums)

        width = len(columns.values)
        scales = np.where(numbers, np.sqrt(variances), 1.0)
        centred = (given - means) / scales
        inputs = np.column_stack(
            [within(centred, math.sqrt(width)) if self.is_private else centred, np.ones(len(given))]
        )
        norm = math.sqrt((width + 1) * 2)

        curvature = 2 * prior * (1 - prior)
        total = rows * np.append(variances / scales**2, 1.0)[:, None] * curvature
        noise = sums.deviation_of("gradients", norm) / math.sqrt(self.rounds)  # of the average over all rounds
        start, ridge = np.zeros_like(total), ridge_against(noise, total)
        start[-1], ridge[-1] = np.log(prior), 0.0
        descent = Descent(start, total, ridge)
        for _ in range(self.rounds):
            residuals = within(truth - softmax(inputs @ descent.at), math.sqrt(2))
            descent.step(sums("gradients", inputs.T @ residuals, norm=norm))
        mean = descent.mean
        slopes = (mean[:-1] / scales[:, None]).T
        intercepts = mean[-1] - slopes @ means
        if classes == 2:
            slopes, intercepts = slopes[1:] - slopes[:1], intercepts[1:] - intercepts[:1]
        self.coef_, self.intercept_ = to_units(self.features_, slopes, intercepts)

    def _moments(
        self, given: Floats, numbers: Any, truth: Floats, sums: NoisySums
    ) -> tuple[float, Floats, Floats, Floats]:
        """Measure the number of records, the means and variances of the columns, and the shares of the classes."""
        width = len(self.features_.features)
        parts = [given.sum(axis=0), np.square(given[:, numbers]).sum(axis=0), truth.sum(axis=0)]
        # Each column has norm at most 1, and so have the square of each number and the class.
        noisy = sums("moments", np.concatenate(parts), norm=math.sqrt(width + numbers.sum() + 1))
        first, squares, classes = np.split(noisy, np.cumsum([len(one) for one in parts])[:-1])
        classes = np.maximum(classes, 1.0)
        rows = float(classes.sum())
        means = np.clip(first / rows, np.where(numbers, -1.0, 0.0), 1.0)
        variances = means * (1 - means)
        variances[numbers] = squares / rows - means[numbers] ** 2
        least = max(sums.deviation_of("moments", math.sqrt(width + numbers.sum() + 1)) / rows, 1e-6)
        return rows, means, np.clip(variances, least, 1.0), classes / rows

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the log-odds of the second class, or a score per class if there are more than two."""
        columns = self._columns(X)
        slopes, intercepts = from_units(self.features_, self.coef_, self.intercept_)
        scores = self.features_.matrix(columns) @ slopes.T + intercepts
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        scores = self.decision_function(X)
        return softmax(scores if scores.ndim == 2 else np.column_stack([np.zeros(len(scores)), scores]))

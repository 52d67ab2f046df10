"""Linear models: linear regression (AdaSSP), and logistic regression by noisy full-batch gradient descent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sfumato.data.validate import whole
from sfumato.learners.estimators.estimator import Classifier, Ints, Regressor
from sfumato.learners.estimators.features import Columns, Features
from sfumato.learners.estimators.noisy_sums import (
    Descent,
    Floats,
    NoisySums,
    Share,
    on_grid,
    ridge_against,
    softmax,
    within,
)

__all__ = ["PrivateLinearRegression", "PrivateLogisticRegression", "from_units", "to_units"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(Regressor):
    """Linear regression with differential privacy, and a ridge penalty adapted to the noise (AdaSSP: Wang 2018).

    The row of a record consists of its numbers, scaled to [-1, 1] by their bounds, a 1 for each category, a 1 for the
    intercept, and the scaled target. The only noisy sum is that of the outer products of the rows with themselves;
    each has a norm of at most the number of columns plus 2. It gives means and covariances, and its smallest
    eigenvalue determines the ridge penalty.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateLinearRegression(epsilon=1).fit(adult, "age")
    >>> model.score(sf.datasets.adult("test"), "age") > 0.2
    True
    """

    _state: ClassVar = ("coef_", "intercept_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        return {"moments": Share(1, 1.0)}

    def _learn(self, columns: Columns, target: Floats, sums: NoisySums) -> None:
        low, high = self.target_.bounds or (0.0, 1.0)
        known = ~np.isnan(target)
        scaled = (target[known] - low) * (2 / (high - low)) - 1
        given = self.features_.matrix(columns)[known]
        rows = on_grid(np.column_stack([given, np.ones(len(given)), scaled]))
        moments = _noisy_moments(rows, len(columns.values) + 2, sums)
        # An eigenvalue of the noise matrix is almost never larger: its entries deviate by that of a sum over root 2.
        noise = sums.deviation_of("moments", len(columns.values) + 2) * math.sqrt(2 * len(moments))

        count = max(moments[-2, -2], 1.0)
        means = np.clip(moments[-2] / count, -1.0, 1.0)
        spread = moments - count * np.outer(means, means)
        inner, outer = spread[:-2, :-2], spread[:-2, -1]
        ridge = noise - np.linalg.eigvalsh(inner).min(initial=noise)  # 0 without any column
        if noise > 0 and ridge > 0:  # without noise, only rounding makes an eigenvalue negative
            slopes = np.linalg.solve(inner + ridge * np.eye(len(inner)), outer)
        else:
            slopes = np.linalg.lstsq(inner, outer, rcond=1e-10)[0]
        self.coef_, (self.intercept_,) = to_units(
            self.features_,
            slopes[None] * (high - low) / 2,
            [(high + low) / 2 + (means[-1] - slopes @ means[:-2]) * (high - low) / 2],
        )
        self.coef_ = self.coef_[0]

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the prediction for each record, within the bounds of the target."""
        columns = self._columns(X)
        slopes, (intercept,) = from_units(self.features_, self.coef_[None], [self.intercept_])
        low, high = self.target_.bounds or (-math.inf, math.inf)
        return np.clip(self.features_.matrix(columns) @ slopes[0] + intercept, low, high)


def _noisy_moments(rows: Floats, squared_norm: float, sums: NoisySums) -> Floats:
    """Return the noisy sum of the outer products of rows with themselves, measuring each entry once.

    An off-diagonal entry stands for two, so it is multiplied by about sqrt(2), rounded down to the grid on which sums
    are exact. The norm of the measured entries is then at most the squared norm of the row.
    """
    upper = np.triu_indices(rows.shape[1])
    weights = np.where(upper[0] == upper[1], 1.0, float(on_grid(math.sqrt(2))))
    noisy = sums("moments", (rows.T @ rows)[upper] * weights, norm=squared_norm) / weights
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    moments[upper] = noisy
    return moments + np.triu(moments, 1).T


def _scales(features: Features) -> tuple[Floats, Floats]:
    """Return the factor and the shift that turn a column's own numbers into those of the matrix."""
    factors, shifts = [], []
    for one in features.features:
        if one.bounds is not None:
            low, high = one.bounds
            factors.append(2 / (high - low))
            shifts.append(-1 - low * (2 / (high - low)))
        else:
            factors += [1.0] * len(one.domain or ())
            shifts += [0.0] * len(one.domain or ())
    return np.array(factors), np.array(shifts)


def to_units(features: Features, slopes: Floats, intercepts: Any) -> tuple[Floats, Floats]:
    """Convert coefficients of the matrix (rows of slopes, and intercepts) to the units of the columns."""
    factors, shifts = _scales(features)
    return slopes * factors, np.asarray(intercepts) + slopes @ shifts


def from_units(features: Features, slopes: Floats, intercepts: Any) -> tuple[Floats, Floats]:
    """Convert coefficients in the units of the columns to those of the matrix."""
    factors, shifts = _scales(features)
    return slopes / factors, np.asarray(intercepts) - (slopes / factors) @ shifts


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

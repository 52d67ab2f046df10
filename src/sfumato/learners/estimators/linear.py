"""Linear regression from one noisy matrix of second moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sfumato.learners.estimators.estimator import Regressor
from sfumato.learners.estimators.features import Columns, Features
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share, on_grid

__all__ = ["PrivateLinearRegression", "from_units", "to_units"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(Regressor):
    """Linear regression with differential privacy, with as much ridge as the noise asks for (AdaSSP: Wang 2018).

    Each record is a row of numbers scaled to [-1, 1] by their bounds, of a 1 for each category, of a 1 for the
    intercept and of the target, scaled likewise. The sum of the outer products of the rows with themselves is all that
    is asked for: none is longer than the number of columns plus 2. It has the means, the covariances, and in its
    smallest eigenvalue how much ridge is needed.

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
        # Hardly ever has the matrix of noise a larger eigenvalue: its entries deviate by that of a sum over root 2.
        noise = sums.deviation_of("moments", len(columns.values) + 2) * math.sqrt(2 * len(moments))

        count = max(moments[-2, -2], 1.0)
        means = np.clip(moments[-2] / count, -1.0, 1.0)
        spread = moments - count * np.outer(means, means)
        inner, outer = spread[:-2, :-2], spread[:-2, -1]
        ridge = noise - np.linalg.eigvalsh(inner).min(initial=noise)  # without any column there is nothing to draw
        if ridge > 0:
            found = np.linalg.solve(inner + ridge * np.eye(len(inner)), outer)
        else:
            found = np.linalg.lstsq(inner, outer, rcond=1e-10)[0]
        self.coef_, (self.intercept_,) = to_units(
            self.features_,
            found[None] * (high - low) / 2,
            [(high + low) / 2 + (means[-1] - found @ means[:-2]) * (high - low) / 2],
        )
        self.coef_ = self.coef_[0]

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the prediction for each record, within the bounds of the target."""
        columns = self._columns(X)
        slopes, (intercept,) = from_units(self.features_, self.coef_[None], [self.intercept_])
        low, high = self.target_.bounds or (-math.inf, math.inf)
        return np.clip(self.features_.matrix(columns) @ slopes[0] + intercept, low, high)


def _noisy_moments(rows: Floats, squared_norm: float, sums: NoisySums) -> Floats:
    """Return the noisy sum of the outer products of rows with themselves, each entry asked for once.

    An entry beside the diagonal stands for two, so it is multiplied by about the root of 2, rounded down to the
    grid on which sums are exact: the numbers that are asked for are then as long as the row is, squared, or less.
    """
    upper = np.triu_indices(rows.shape[1])
    weights = np.where(upper[0] == upper[1], 1.0, float(on_grid(math.sqrt(2))))
    noisy = sums("moments", (rows.T @ rows)[upper] * weights, norm=squared_norm) / weights
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    moments[upper] = noisy
    return moments + np.triu(moments, 1).T


def _scales(features: Features) -> tuple[Floats, Floats]:
    """Return by what a column of the matrix is the value of the data multiplied, and what is added."""
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
    """Return coefficients of the columns' own numbers, given those of the matrix: rows of slopes, and intercepts."""
    factors, shifts = _scales(features)
    return slopes * factors, np.asarray(intercepts) + slopes @ shifts


def from_units(features: Features, slopes: Floats, intercepts: Any) -> tuple[Floats, Floats]:
    """Return coefficients of the matrix, given those of the columns' own numbers."""
    factors, shifts = _scales(features)
    return slopes / factors, np.asarray(intercepts) - (slopes / factors) @ shifts

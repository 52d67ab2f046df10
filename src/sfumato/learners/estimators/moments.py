"""Counts, means and covariances of groups of records from noisy sums, for estimators without a target.

Numbers are scaled by their public bounds to [-1, 1]. A record may belong to several groups in part; its parts add up to
at most one, so it contributes no more to all sums together than if it belonged to one group.

Principal component analysis needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import polars as pl
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from sfumato.data.validate import whole
from sfumato.errors import ColumnError, InputError, OptionError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns, Feature, Undeclared
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share, on_grid

__all__ = ["Covariance", "Moments", "NumericEstimator", "PrivatePCA", "noisy_means", "noisy_moments", "spread"]

_ROOT_TWO = 45 / 32  # a little below it, and exact in floats
_STANDS_OUT = 2.0  # least count of a group, in standard deviations of the noise on it


class Covariance(StrEnum):
    """Whether all covariances are estimated, or only the variances."""

    FULL = "full"
    DIAG = "diag"


class _NotNumbers(ColumnError, TypeError):
    """A column does not contain numbers; scikit-learn expects a `TypeError`."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy counts, means and covariances of groups of records, for numbers in [-1, 1]."""

    counts: Floats
    """The number of records of each group; at least 1."""
    clear: Any
    """Whether the count stands out from the noise."""
    means: Floats
    covariances: Floats
    """A matrix per group, or a row of variances; because of the noise not always positive definite."""
    noise: Floats
    """The standard deviation of the noise on each covariance of a group."""


@dataclass(kw_only=True, eq=False, repr=False)
class NumericEstimator(PrivateEstimator):
    """The base of estimators for numbers only; a missing number counts as the middle of its bounds."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = False
        return tags

    def _described(self, columns: Columns, target: pl.Series | None) -> list[Feature | Undeclared]:
        features = super()._described(columns, target)
        for one in features:
            if not one.is_number:
                raise _NotNumbers(
                    f"column '{one.name}' holds categories, and an argument must be a number or "
                    f"a string that reads as a number in {type(self).__name__}",
                    hint="leave it out, or declare its bounds",
                )
        return features

    @property
    def _middle(self) -> Floats:
        return self.features_.bounds.mean(axis=0)

    @property
    def _half(self) -> Floats:
        """Half the distance between the bounds: the unit of scaled numbers."""
        low, high = self.features_.bounds
        return (high - low) / 2


def noisy_means(x: Floats, roots: Floats, sums: NoisySums, *, ball: bool = False) -> tuple[Floats, Any, Floats]:
    """Measure the count of each group, whether it stands out from the noise, and the means.

    ``x`` has a row per record, in [-1, 1], and in a ``ball`` of norm at most 1; ``roots`` the square roots of its parts
    in each group, whose squares add up to at most 1.
    """
    # Products of two numbers on the grid add up exactly.
    parts, given = on_grid(roots), on_grid(x)
    noisy = sums("counts", np.square(parts).sum(axis=0), norm=1.0)
    exact = [parts[:, at] @ on_grid(parts[:, at, None] * given) for at in range(parts.shape[1])]
    totals = sums("means", np.array(exact), norm=1.0 if ball else math.sqrt(given.shape[1]))
    clear = noisy > max(_STANDS_OUT * sums.deviation_of("counts", norm=1.0), 0.5)
    counts = np.maximum(noisy, 1.0)
    return counts, clear, np.clip(totals / counts[:, None], -1.0, 1.0)


def noisy_moments(x: Floats, roots: Floats, sums: NoisySums, kind: Covariance, *, ball: bool = False) -> Moments:
    """Measure the counts, means and covariances of groups; `sums` needs a share for "covariances" too.

    Second moments are taken about the middle of the bounds, each once (Dwork et al. 2014, "Analyze Gauss"): for a
    record in [-1, 1] their norm is at most sqrt(d (d + 1) / 2), or sqrt(d) for variances only. In a ball it is at most
    1, even with products of two different columns weighted by the root of 2: the noise is then that of a symmetric
    matrix, the same in all directions.
    """
    counts, clear, means = noisy_means(x, roots, sums, ball=ball)
    parts, given = on_grid(roots), on_grid(x)
    groups, width = parts.shape[1], given.shape[1]
    weighted = (on_grid(parts[:, at, None] * given) for at in range(groups))
    if kind is Covariance.DIAG:
        norm = 1.0 if ball else math.sqrt(width)
        squares = sums("covariances", np.array([np.square(one).sum(axis=0) for one in weighted]), norm=norm)
        covariances = squares / counts[:, None] - np.square(means)
    else:
        norm = 1.0 if ball else math.sqrt(width * (width + 1) / 2)
        upper = np.triu_indices(width)
        scale = np.where(upper[0] == upper[1], 1.0, _ROOT_TWO if ball else 1.0)
        products = sums("covariances", np.array([(one.T @ one)[upper] * scale for one in weighted]), norm=norm) / scale
        squares = np.zeros((groups, width, width))
        squares[:, upper[0], upper[1]] = squares[:, upper[1], upper[0]] = products
        covariances = squares / counts[:, None, None] - means[:, :, None] * means[:, None, :]
    return Moments(counts, clear, means, covariances, sums.deviation_of("covariances", norm=norm) / counts)


@lru_cache(maxsize=64)
def spread(count: int, width: int) -> tuple[Floats, float]:
    """Return points that represent a standard normal distribution, and the variance around them.

    They are k-means centres of 1,000 or more normal draws from a fixed seed, so they do not depend on any data.

    Examples
    --------
    >>> points, rest = spread(2, 1)
    >>> points.round(1).ravel().tolist(), round(rest, 1)
    ([0.8, -0.8], 0.4)
    """
    from sklearn.cluster import KMeans

    draws = np.random.default_rng(0).normal(size=(1000 + 50 * count, width))
    clusters = KMeans(count, n_init=1, random_state=0).fit(draws)
    return clusters.cluster_centers_, float(clusters.inertia_ / draws.size)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NumericEstimator):  # type: ignore[misc]
    """Principal component analysis with differential privacy (Analyze Gauss: Dwork et al. 2014).

    The mean and the second moments of numbers scaled by their bounds are measured with noise; everything else is
    computed from them, in the units of the columns.

    Parameters
    ----------
    n_components : int, optional
        The number of components to keep; by default all.

    Attributes
    ----------
    components_ : array
        A row of norm 1 per component, by descending explained variance.
    mean_ : array
    explained_variance_ : array
        The variance along each component; noise biases the first upwards and the last downwards.
    explained_variance_ratio_ : array
        The share of the total variance.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(5000, 1)) @ [[3.0, 4.0]]
    >>> model = PrivatePCA(n_components=1, epsilon=5, bounds=(-20, 20)).fit(x)
    >>> model.components_.round(1).tolist()
    [[0.6, 0.8]]
    """

    n_components: int | None = None

    _state: ClassVar = ("components_", "mean_", "explained_variance_", "explained_variance_ratio_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        if self.n_components is not None and whole("the number of components", self.n_components) > columns:
            raise OptionError(
                f"the number of components must be at most the number of columns, {columns}, got {self.n_components!r}"
            )
        return {"counts": Share(1, 0.05), "means": Share(1, 0.15), "covariances": Share(1, 0.8)}

    def _learn(self, columns: Columns, target: None, sums: NoisySums) -> None:
        x = self.features_.matrix(columns)
        moments = noisy_moments(x, np.ones((len(x), 1)), sums, Covariance.FULL)
        unbiased = moments.counts[0] / max(moments.counts[0] - 1, 1)
        variances, vectors = np.linalg.eigh(moments.covariances[0] * unbiased * np.outer(self._half, self._half))
        components, variances = vectors.T[::-1], np.maximum(variances[::-1], 0.0)
        # A component and its negative are equivalent; choose the sign that makes its largest entry positive.
        largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
        count = self.n_components or len(components)
        self.components_ = (components * np.sign(largest))[:count]
        self.mean_ = self._middle + moments.means[0] * self._half
        self.explained_variance_ = variances[:count]
        self.explained_variance_ratio_ = variances[:count] / max(variances.sum(), 1e-300)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the coordinates of each record along the components."""
        columns = self._columns(X)
        return (self.features_.numbers(columns) - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """Map coordinates along the components back to the columns."""
        from sklearn.utils.validation import check_array, check_is_fitted

        check_is_fitted(self, "components_")
        given = check_array(X, dtype=np.float64)
        if given.shape[1] != len(self.components_):
            raise InputError(f"X has {given.shape[1]} features, but there are {len(self.components_)} components")
        return given @ self.components_ + self.mean_

"""Principal component analysis of a noisy covariance matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from sfumato.data.validate import whole
from sfumato.errors import InputError, OptionError
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.moments import Covariance, OfNumbers, noisy_moments
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["PrivatePCA"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, OfNumbers):  # type: ignore[misc]
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

"""K-means clustering with noisy counts and sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin

from sfumato.data.validate import whole
from sfumato.learners.estimators.estimator import Ints
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.moments import Covariance, OfNumbers, noisy_means, noisy_moments, spread
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["PrivateKMeans"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, OfNumbers):  # type: ignore[misc]
    """K-means with differential privacy (DPLloyd: Su et al. 2016).

    Initial centres are spread around the mean of all records, in proportion to the standard deviations. In each round
    every record is assigned to the nearest centre, and every centre moves to the noisy mean of its records. A centre
    whose count is lost in the noise is moved next to the largest. Distances are between numbers scaled by their bounds.

    The assignment of training records is not released: with privacy there is no ``labels_``, and `fit_predict`
    predicts for the records that the caller passes.

    Parameters
    ----------
    n_clusters : int
    rounds : int
        How often the centres move; every round takes a share of the budget.

    Attributes
    ----------
    cluster_centers_ : array
        A row per centre, in the units of the columns.
    labels_ : array
        The centre of each record; only if epsilon is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.concatenate([np.full((500, 1), 2.0), np.full((500, 1), 8.0)])
    >>> model = PrivateKMeans(n_clusters=2, epsilon=5, bounds=(0, 10)).fit(x)
    >>> sorted(model.cluster_centers_.round().ravel().tolist())
    [2.0, 8.0]
    """

    n_clusters: int = 8
    rounds: int = 5

    _state: ClassVar = ("cluster_centers_",)

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of clusters", self.n_clusters)
        rounds = whole("the number of rounds", self.rounds)
        # This ratio of sums to counts minimises the error of a mean, for centres spread over the bounds.
        more = math.sqrt(3 * columns)
        return {
            "counts": Share(rounds + 1, 1.0),
            "means": Share(rounds + 1, more),
            "covariances": Share(1, more / (rounds + 1)),
        }

    def _learn(self, columns: Columns, target: None, sums: NoisySums) -> None:
        x = self.features_.matrix(columns)
        centres = self._first(x, sums)
        for _ in range(self.rounds):
            own = _distances(x, centres).argmin(axis=1)
            roots = (own[:, None] == np.arange(self.n_clusters)).astype(np.float64)
            counts, clear, means = noisy_means(x, roots, sums)
            centres = _beside_the_largest(np.where(clear[:, None], means, centres), counts, clear)
        self.cluster_centers_ = self._middle + centres * self._half
        self.__dict__.pop("labels_", None)  # from an earlier fit
        if not self.is_private:
            self.labels_ = _distances(x, centres).argmin(axis=1)

    def fit_predict(self, X: Any, y: Any = None) -> Ints:  # noqa: N803
        """Fit the centres, and return the index of the nearest one for each record."""
        return self.fit(X, y).predict(X)

    def predict(self, X: Any) -> Ints:  # noqa: N803
        """Return the index of the nearest centre of each record."""
        return self.transform(X).argmin(axis=1)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the distance of each record to each centre, with numbers scaled by their bounds to [-1, 1]."""
        columns = self._columns(X)
        x = self.features_.matrix(columns)
        return np.sqrt(_distances(x, (self.cluster_centers_ - self._middle) / self._half))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the negative sum of the squared distances to the nearest centres."""
        return -float(np.square(self.transform(X).min(axis=1)).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _first(self, x: Floats, sums: NoisySums) -> Floats:
        everyone = noisy_moments(x, np.ones((len(x), 1)), sums, Covariance.DIAG)
        wide = np.sqrt(np.clip(everyone.covariances, 1e-4, 1.0))
        return np.clip(everyone.means + wide * spread(self.n_clusters, x.shape[1])[0], -1.0, 1.0)


def _distances(x: Floats, centres: Floats) -> Floats:
    """Return the squared distance of each record to each centre."""
    products = -2 * x @ centres.T + np.square(centres).sum(axis=1) + np.square(x).sum(axis=1, keepdims=True)
    return np.maximum(products, 0.0)


def _beside_the_largest(centres: Floats, counts: Floats, clear: Any) -> Floats:
    """Return the centres with each lost one moved next to a large one, a quarter of the way to the nearest other."""
    moved, there = centres.copy(), np.flatnonzero(clear)
    if not len(there):
        return moved
    largest = there[np.argsort(-counts[there])]
    for at, lost in enumerate(np.flatnonzero(~clear)):
        beside = largest[at % len(largest)]
        others = centres[there[there != beside]]
        way = math.sqrt(_distances(centres[beside, None], others).min()) / 4 if len(others) else 0.25
        towards = np.random.default_rng(at).normal(size=centres.shape[1])
        moved[lost] = np.clip(centres[beside] + towards * (way / np.linalg.norm(towards)), -1.0, 1.0)
    return moved

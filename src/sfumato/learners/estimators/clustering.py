"""Clustering from noisy counts and sums: k-means, and Gaussian mixtures by expectation maximisation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, DensityMixin, TransformerMixin

from sfumato.data.validate import whole
from sfumato.errors import one_of
from sfumato.learners.estimators.estimator import Ints
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.moments import (
    Covariance,
    Moments,
    NumericEstimator,
    noisy_means,
    noisy_moments,
    spread,
)
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share, on_grid

__all__ = [
    "PrivateGaussianMixture",
    "PrivateKMeans",
    "kmeans_shares",
    "log_densities",
    "nearest_centres",
    "noisy_centres",
    "positive_definite",
    "responsibilities",
    "split_the_largest",
]

_LEAST_VARIANCE = 1e-6  # of numbers scaled to [-1, 1]
_LEAST_WEIGHT = 1e-3  # of a component, times one over their number


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, NumericEstimator):  # type: ignore[misc]
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
        return kmeans_shares(whole("the number of rounds", self.rounds), columns)

    def _learn(self, columns: Columns, target: None, sums: NoisySums) -> None:
        x = self.features_.matrix(columns)
        centres = noisy_centres(x, self.n_clusters, self.rounds, sums)
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


def kmeans_shares(rounds: int, columns: int) -> Mapping[str, Share]:
    """Return the kinds of sums that `noisy_centres` asks for, and the worth of each.

    Examples
    --------
    >>> {name: one.times for name, one in kmeans_shares(5, 3).items()}
    {'counts': 6, 'means': 6, 'covariances': 1}
    """
    # This ratio of sums to counts minimises the error of a mean, for centres spread over the bounds.
    more = math.sqrt(3 * columns)
    return {
        "counts": Share(rounds + 1, 1.0),
        "means": Share(rounds + 1, more),
        "covariances": Share(1, more / (rounds + 1)),
    }


def noisy_centres(x: Floats, count: int, rounds: int, sums: NoisySums, *, ball: bool = False) -> Floats:
    """Return the centres of k-means from noisy counts and sums.

    Parameters
    ----------
    x : array
        A row per record, in [-1, 1], and in a ``ball`` of norm at most 1.
    count, rounds : int
        The number of centres, and how often they move.
    sums : NoisySums
        With the shares of `kmeans_shares`.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> x = np.repeat([[-0.5], [0.7]], 400, axis=0)
    >>> found = noisy_centres(x, 2, 5, NoisySums(kmeans_shares(5, 1), 1.0, Source(insecure_seed=1)))
    >>> sorted(found.round(1).ravel().tolist())
    [-0.5, 0.7]
    """
    everyone = noisy_moments(x, np.ones((len(x), 1)), sums, Covariance.DIAG, ball=ball)
    wide = np.sqrt(np.clip(everyone.covariances, 1e-4, 1.0))
    centres = np.clip(everyone.means + wide * spread(count, x.shape[1])[0], -1.0, 1.0)
    for _ in range(rounds):
        roots = (nearest_centres(x, centres)[:, None] == np.arange(count)).astype(np.float64)
        counts, clear, means = noisy_means(x, roots, sums, ball=ball)
        centres = _beside_the_largest(np.where(clear[:, None], means, centres), counts, clear)
    return centres


def nearest_centres(x: Floats, centres: Floats) -> Ints:
    """Return the index of the nearest centre of each record.

    On the grid all products are exact, so the centre of a record does not depend on other records beside it.

    Examples
    --------
    >>> nearest_centres(np.array([[0.1], [0.9]]), np.array([[1.0], [0.0]])).tolist()
    [1, 0]
    """
    return _distances(on_grid(x), on_grid(centres)).argmin(axis=1)


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


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateGaussianMixture(DensityMixin, NumericEstimator):  # type: ignore[misc]
    """A mixture of normal distributions with differential privacy (DP-EM: Park et al. 2017).

    Initial components are spread according to the mean and covariance of all records. In each round every record is
    divided among the components by its likelihood, and their counts, means and covariances are measured with noise. No
    variance is smaller than the noise on it, so every covariance is positive definite. A component whose count is lost
    in the noise takes half of the largest one.

    Parameters
    ----------
    n_components : int
    covariance_type : str
        ``"full"``, or ``"diag"`` for columns that are independent within a component, which needs fewer sums and so
        less noise. For more than a few columns and an epsilon of about 1, it gives the better density even if columns
        are not independent.
    rounds : int
        How often the components are updated; every round takes a share of the budget.

    Attributes
    ----------
    weights_ : array
    means_ : array
        A row per component, in the units of the columns.
    covariances_ : array
        A matrix per component, or a row of variances.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(2, 0.5, (2000, 1)), rng.normal(8, 0.5, (2000, 1))])
    >>> model = PrivateGaussianMixture(n_components=2, epsilon=5, bounds=(0, 10)).fit(x)
    >>> sorted(model.means_.round().ravel().tolist())
    [2.0, 8.0]
    >>> made, component = model.sample(100)
    >>> made.shape
    (100, 1)
    """

    n_components: int = 5
    covariance_type: str = "full"
    rounds: int = 10

    _state: ClassVar = ("weights_", "means_", "covariances_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of components", self.n_components)
        one_of(Covariance, self.covariance_type, "the type of covariance")
        times = whole("the number of rounds", self.rounds) + 1
        return {"counts": Share(times, 0.1), "means": Share(times, 0.3), "covariances": Share(times, 0.6)}

    def _learn(self, columns: Columns, target: None, sums: NoisySums) -> None:
        x, kind = self.features_.matrix(columns), Covariance(self.covariance_type)
        weights, means, covariances = self._first(noisy_moments(x, np.ones((len(x), 1)), sums, kind))
        for left in reversed(range(self.rounds)):
            logs = log_densities(x, means, covariances) + np.log(weights)
            moments = noisy_moments(x, np.sqrt(responsibilities(logs)), sums, kind)
            weights = np.where(moments.clear, moments.counts, 0.0)
            clear = moments.clear if kind is Covariance.DIAG else moments.clear[:, None]
            means = np.where(moments.clear[:, None], moments.means, means)
            covariances = np.where(clear[:, None], positive_definite(moments), covariances)
            if left:
                weights, means, covariances = split_the_largest(weights, means, covariances)
            weights = np.maximum(weights / max(weights.sum(), 1.0), _LEAST_WEIGHT / self.n_components)
            weights /= weights.sum()
        self.weights_, self.means_ = weights, self._middle + means * self._half
        self.covariances_ = covariances * self._unit(kind)

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each component, given a record."""
        return responsibilities(self._logs(X))

    def predict(self, X: Any) -> Ints:  # noqa: N803
        """Return the index of the most probable component of each record."""
        return self._logs(X).argmax(axis=1)

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """Return the log-density at each record."""
        logs = self._logs(X)
        most = logs.max(axis=1)
        return most + np.log(np.exp(logs - most[:, None]).sum(axis=1)) - np.log(self._half).sum()

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the mean log-density."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, *, random_state: int | None = None) -> tuple[Floats, Ints]:
        """Return new records, and the index of the component of each; sampling costs no privacy."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "means_")
        rng = np.random.default_rng(random_state)
        own = rng.choice(len(self.weights_), whole("the number of samples", n_samples), p=self.weights_)
        roots = np.linalg.cholesky(self._matrices(self._scaled_covariances()))
        drawn = np.einsum("nij,nj->ni", roots[own], rng.normal(size=(len(own), self.means_.shape[1])))
        return self.means_[own] + drawn * self._half, own

    def _first(self, everyone: Moments) -> tuple[Floats, Floats, Floats]:
        """Return components that together approximate the normal distribution of all records."""
        points, rest = spread(self.n_components, everyone.means.shape[1])
        covariances = positive_definite(everyone)
        roots = np.linalg.cholesky(self._matrices(covariances)[0])
        means = np.clip(everyone.means + points @ roots.T, -1.0, 1.0)
        weights = np.full(self.n_components, 1 / self.n_components)
        return weights, means, np.repeat(covariances * rest, self.n_components, axis=0)

    def _unit(self, kind: Covariance) -> Floats:
        return np.square(self._half) if kind is Covariance.DIAG else np.outer(self._half, self._half)

    def _scaled_covariances(self) -> Floats:
        return self.covariances_ / self._unit(Covariance(self.covariance_type))

    def _matrices(self, covariances: Floats) -> Floats:
        return covariances if covariances.ndim == 3 else covariances[:, :, None] * np.eye(covariances.shape[1])

    def _logs(self, X: Any) -> Floats:  # noqa: N803
        columns = self._columns(X)
        x = self.features_.matrix(columns)
        means = (self.means_ - self._middle) / self._half
        return log_densities(x, means, self._scaled_covariances()) + np.log(self.weights_)


def log_densities(x: Floats, means: Floats, covariances: Floats) -> Floats:
    """Return log-densities of the normal components: a row per record, a column per component."""
    densities = []
    for mean, covariance in zip(means, covariances, strict=True):
        if covariance.ndim == 1:
            squares = (np.square(x - mean) / covariance).sum(axis=1)
            volume = np.log(covariance).sum()
        else:
            root = np.linalg.cholesky(covariance)
            squares = np.square(np.linalg.solve(root, (x - mean).T)).sum(axis=0)
            volume = 2 * np.log(np.diagonal(root)).sum()
        densities.append(-0.5 * (squares + volume + x.shape[1] * math.log(2 * math.pi)))
    return np.stack(densities, axis=1)


def responsibilities(logs: Floats) -> Floats:
    """Return the part of each record in each component; the parts of a record add up to 1."""
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    return parts / parts.sum(axis=1, keepdims=True)


def positive_definite(moments: Moments) -> Floats:
    """Return covariances whose variance in every direction is at least the noise on it.

    Each covariance is first shrunk towards the mean of all, which is less noisy, by the share of their squared distance
    that is noise (as in James and Stein 1961).
    """
    width = moments.means.shape[1]
    parts = np.where(moments.clear, moments.counts, 0.0) + 1e-9
    parts /= parts.sum()
    mean = np.tensordot(parts, moments.covariances, axes=1)
    apart = np.square(moments.covariances - mean).reshape(len(parts), -1)
    moved = np.minimum(apart.shape[1] * np.square(moments.noise) / np.maximum(apart.sum(axis=1), 1e-30), 1.0)
    moved = np.where(moments.noise > 0, moved, 0.0)
    noise = (1 - moved) * moments.noise + moved * np.linalg.norm(parts * moments.noise)
    least = np.clip(noise, _LEAST_VARIANCE, 1.0)
    if moments.covariances.ndim == 2:
        mixed = moments.covariances + moved[:, None] * (mean - moments.covariances)
        return np.maximum(mixed, least[:, None])
    mixed = moments.covariances + moved[:, None, None] * (mean - moments.covariances)
    variances, vectors = np.linalg.eigh(mixed)
    bounded = np.clip(variances, np.minimum(least * math.sqrt(width), 1.0)[:, None], width)
    return (vectors * bounded[:, None, :]) @ np.swapaxes(vectors, 1, 2)


def split_the_largest(weights: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats, Floats]:
    """Replace each lost component by half of the largest one, split along its widest direction."""
    weights, means, covariances = weights.copy(), means.copy(), covariances.copy()
    for lost in np.flatnonzero(weights == 0):
        largest = int(weights.argmax())
        if weights[largest] == 0:
            break
        matrix = covariances[largest] if covariances.ndim == 3 else np.diag(covariances[largest])
        variances, vectors = np.linalg.eigh(matrix)
        apart = vectors[:, -1] * math.sqrt(variances[-1])
        weights[largest] = weights[lost] = weights[largest] / 2
        covariances[lost] = covariances[largest]
        means[lost], means[largest] = np.clip([means[largest] + apart, means[largest] - apart], -1.0, 1.0)
    return weights, means, covariances

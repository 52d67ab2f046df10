"""A mixture of Gaussians for each class of points, from noisy moments and noisy k-means.

1. For every class, one noisy sum of (1, point, point point^T) gives its size, mean and covariance. A pooled covariance
   is denoised, then the difference of each class from it.
2. Centres are drawn from the Gaussian of the class, which is free, and moved by rounds of noisy k-means (Su et al.
   2016): the noisy number and sum of the points nearest to each. A centre moves the less, the noisier its count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid
from sfumato.learners.images.spectrum import shrink

__all__ = ["Gaussian", "Mixture", "find_gaussians", "find_mixtures"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_COUNT = math.sqrt(0.05)  # what a record adds to the count of its class: counts need less precision than moments
_LEAST = 1e-7  # the smallest variance of a direction


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The noisy size, mean and covariance of a class."""

    size: float
    mean: Floats
    covariance: Floats

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return random points."""
        values, vectors = np.linalg.eigh(self.covariance)
        return self.mean + rng.standard_normal((rows, len(self.mean))) * np.sqrt(np.maximum(values, _LEAST)) @ vectors.T


def find_gaussians(points: Floats, labels: Ints, classes: int, prior: Floats, sums: NoisySums) -> list[Gaussian]:
    """Return the Gaussian of each class of points of the unit ball.

    ``prior`` has the variance that is expected in each direction.
    """
    size = points.shape[1]
    at = np.triu_indices(size)
    twice = np.where(at[0] == at[1], 1.0, math.sqrt(2.0))
    exact = []
    for one in range(classes):
        own = points[labels == one]
        exact.append(np.concatenate([[len(own) * _COUNT], own.sum(axis=0), (own.T @ own)[at] * twice]))
    norm = math.sqrt(2 + _COUNT**2)
    noisy = sums("moments", np.array(exact), norm=norm)
    deviation = sums.deviation_of("moments", norm)
    counts = np.maximum(noisy[:, 0] / _COUNT, 1.0)
    means = noisy[:, 1 : size + 1] / counts[:, None]
    # A noisy mean is trusted in proportion to what it knows.
    error = (deviation / counts[:, None]) ** 2
    seen = np.maximum(np.average(np.square(means), axis=0, weights=counts) - error.mean(), 0.0) + 1e-12
    means = means * seen / (seen + error)
    seconds = np.zeros((classes, size, size))
    seconds[:, at[0], at[1]] = noisy[:, size + 1 :] / twice
    seconds += np.triu(seconds, 1).transpose(0, 2, 1)
    spreads = seconds - counts[:, None, None] * means[:, :, None] * means[:, None, :]
    pooled = _denoised(spreads.sum(axis=0), deviation * math.sqrt(classes), counts.sum() * np.diag(prior))
    shared = pooled / counts.sum()
    return [
        Gaussian(float(count), mean, _positive(shared + _difference(spread - count * shared, deviation) / count))
        for count, mean, spread in zip(counts, means, spreads, strict=True)
    ]


def _denoised(moment: Floats, deviation: float, prior: Floats) -> Floats:
    """Return a positive matrix without noise; what is lost goes to the prior."""
    values, vectors = shrink(moment, deviation)
    values = np.maximum(values, 0.0)
    lost = max(float(np.trace(moment)) - float(values.sum()), 0.0)
    return np.asarray((vectors * values) @ vectors.T + lost * prior / np.trace(prior))


def _difference(moment: Floats, deviation: float) -> Floats:
    """Return a symmetric matrix of either sign without its noise."""
    values, vectors = shrink(moment, deviation)
    return np.asarray((vectors * values) @ vectors.T)


def _positive(matrix: Floats) -> Floats:
    """Return the nearest covariance of points of the unit ball: its variances are positive, and at most 1."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.clip(values, _LEAST, 1.0)) @ vectors.T)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Centres with shares, and the covariance around each."""

    size: float
    shares: Floats
    centres: Floats
    covariance: Floats

    def draw(self, rows: int, rng: np.random.Generator) -> Floats:
        """Return random points."""
        values, vectors = np.linalg.eigh(self.covariance)
        noise = rng.standard_normal((rows, self.centres.shape[1])) * np.sqrt(np.maximum(values, _LEAST)) @ vectors.T
        return np.asarray(self.centres[rng.choice(len(self.shares), rows, p=self.shares)] + noise)


def find_mixtures(
    points: Floats,
    labels: Ints,
    gaussians: list[Gaussian],
    centres: int,
    rounds: int,
    sums: NoisySums,
    rng: np.random.Generator,
) -> list[Mixture]:
    """Return the mixture of each class, after rounds of noisy k-means that start from its Gaussian."""
    at = np.stack([one.draw(centres, rng) for one in gaussians])
    counts = np.stack([np.full(centres, one.size / centres) for one in gaussians])
    norm = math.sqrt(1 + 0.05)
    deviation = sums.deviation_of("centres", norm)
    for _ in range(rounds):
        exact = np.zeros((len(gaussians), centres, 1 + points.shape[1]))
        for k in range(len(gaussians)):
            own = points[labels == k]
            nearest = _nearest(own, on_grid(at[k]))
            exact[k, :, 0] = np.bincount(nearest, minlength=centres) * _COUNT
            exact[k, :, 1:] = np.eye(centres)[nearest].T @ own
        noisy = sums("centres", exact, norm=norm)
        counts = np.maximum(noisy[:, :, 0] / _COUNT, 1.0)
        means = noisy[:, :, 1:] / counts[:, :, None]
        # Around its present place, a centre is believed to be uncertain by the variance of the class.
        spread = np.stack([np.trace(one.covariance) / len(one.covariance) for one in gaussians])[:, None]
        trust = spread / (spread + (deviation / counts) ** 2)
        moved = at + trust[:, :, None] * (means - at)
        at = moved / np.maximum(np.sqrt(np.square(moved).sum(axis=2, keepdims=True)), 1.0)
    found = []
    for one, places, numbers in zip(gaussians, at, counts, strict=True):
        shares = numbers / numbers.sum()
        apart = places - shares @ places
        # The centres explain a part of the class's covariance; the rest is around each of them.
        values, vectors = np.linalg.eigh(one.covariance - (apart.T * shares) @ apart)
        floor = 0.1 * np.diag(vectors.T @ one.covariance @ vectors)
        rest = (vectors * np.maximum(values, floor)) @ vectors.T
        found.append(Mixture(one.size, shares, places, rest))
    return found


def _nearest(points: Floats, centres: Floats) -> Ints:
    """Return the centre nearest to each point; both are on the grid, so the products are exact."""
    return np.argmin(np.square(centres).sum(axis=1) - 2 * (points @ centres.T), axis=1)

"""Images as points of a low-dimensional ball: low frequencies, a noisy middle and radius, a noisy principal basis.

The low frequencies of an image (discrete cosine transform), less a noisy mean, are clipped to a noisy radius and
divided by it, so every image is a point of the unit ball. The noisy second moment of all points has random-matrix
noise: an eigenvalue e is shrunk to sqrt(e^2 - noise^2), where noise is the largest eigenvalue that noise alone would
have, and what the noise hides is believed to follow a public 1/f spectrum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid, within

__all__ = ["Radius", "find_basis", "find_middle", "find_radius", "find_spread", "in_basis", "points_of", "shrink"]

Floats = NDArray[np.float64]

_BINS = 64  # of norms
_QUANTILE = 0.9
_WIDER = 1.3  # the radius over the mean distance from the middle; it holds most images
_LEAST = 1e-6  # what the prior gets if noise hides everything


@dataclass(frozen=True)
class Radius:
    """The noisy clip radius, and the noisy number of images."""

    radius: float
    count: float


def find_radius(rows: Floats, largest: float, sums: NoisySums) -> Radius:
    """Return the radius that holds most rows, and their number, from one noisy histogram of norms.

    ``largest`` is the largest norm that an image can have.
    """
    norms = np.sqrt(np.square(rows).sum(axis=1))
    bins = np.clip((norms / largest * _BINS).astype(np.int64), 0, _BINS - 1)
    noisy = sums("norms", np.bincount(bins, minlength=_BINS), norm=1.0)
    up = np.cumsum(np.maximum(noisy, 0.0))
    at = int(np.searchsorted(up, _QUANTILE * up[-1]))
    return Radius((at + 1) * largest / _BINS, max(float(noisy.sum()), 1.0))


def find_middle(points: Floats, count: float, sums: NoisySums) -> Floats:
    """Return the noisy mean of points of the unit ball; a coordinate that noise may explain is shrunk towards 0.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> from sfumato.learners.estimators.noisy_sums import Share
    >>> points = on_grid(np.tile([0.5, 0.0], (1000, 1)))
    >>> sums = NoisySums({"middle": Share(1, 1.0)}, 20.0, Source(insecure_seed=1))
    >>> [round(float(one), 1) for one in find_middle(points, 1000, sums)]
    [0.5, 0.0]
    """
    mean = sums("middle", points.sum(axis=0), norm=1.0) / count
    error = (sums.deviation_of("middle", 1.0) / count) ** 2
    squares = np.square(mean)
    shrunk = mean * np.maximum(squares - error, 0.0) / np.maximum(squares, 1e-300)
    return np.asarray(shrunk / max(float(np.linalg.norm(shrunk)), 1.0))


def find_spread(rows: Floats, whole: Radius, sums: NoisySums) -> float:
    """Return the radius that holds most rows around the middle, from one noisy sum of their distances from it.

    Distances longer than the radius around zero count as this radius.
    """
    distances = on_grid(np.minimum(np.sqrt(np.square(rows).sum(axis=1)) / whole.radius, 1.0))
    mean = float(sums("spread", distances.sum()[None], norm=1.0)[0]) / whole.count
    return whole.radius * min(max(_WIDER * mean, 1 / _BINS), 1.0)


def _noisy_moment(name: str, points: Floats, sums: NoisySums) -> Floats:
    """Return the noisy sum of the outer products of points of the unit ball with themselves.

    Symmetric: the numbers off the diagonal are asked for once, times sqrt(2), so that the norm is that of the matrix.
    """
    exact = points.T @ points
    at = np.triu_indices(len(exact))
    twice = np.where(at[0] == at[1], 1.0, math.sqrt(2.0))
    noisy = sums(name, exact[at] * twice, norm=1.0) / twice
    whole = np.zeros_like(exact)
    whole[at] = noisy
    return whole + np.triu(whole, 1).T


def points_of(rows: Floats, radius: float) -> Floats:
    """Return rows as points of the unit ball, on the grid on which their products add up exactly."""
    return on_grid(within(rows / radius, 1.0))


def shrink(moment: Floats, deviation: float) -> tuple[Floats, Floats]:
    """Return the eigenvalues of a noisy symmetric matrix without the part of the noise, and its eigenvectors.

    The noise alone has eigenvalues of up to 2 sqrt(size) deviations (Wigner 1955): what does not exceed them is lost.
    This shrinkage has the least squared error (Gavish and Donoho 2017).

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_normal((100, 100))
    >>> noise = (noise + noise.T) / np.sqrt(2)
    >>> signal = np.zeros((100, 100))
    >>> signal[0, 0], signal[1, 1] = 100.0, -200.0
    >>> [round(float(one)) for one in shrink(signal + noise, 1.0)[0] if abs(one) > 20]
    [-198, 99]
    """
    values, vectors = np.linalg.eigh(moment)
    edge = 2 * deviation * math.sqrt(len(moment))
    return np.sign(values) * np.sqrt(np.maximum(np.square(values) - edge**2, 0.0)), vectors


def find_basis(points: Floats, prior: Floats, count: float, most: int, sums: NoisySums) -> tuple[Floats, Floats]:
    """Return a noisy principal basis of points, a row per direction, and the prior variance in each.

    What the noise hides of the second moment goes to the public prior spectrum.
    """
    noisy = _noisy_moment("basis", points, sums)
    deviation = sums.deviation_of("basis", 1.0)
    values, vectors = shrink(noisy, deviation)
    values = np.maximum(values, 0.0)
    lost = max(float(np.trace(noisy)) - float(values.sum()), _LEAST)
    moment = (vectors * values) @ vectors.T + lost * np.diag(prior)
    values, vectors = np.linalg.eigh(moment)
    order = np.argsort(-values)[:most]
    return on_grid(vectors[:, order].T), np.maximum(values[order], 0.0) / count


def in_basis(points: Floats, basis: Floats) -> Floats:
    """Return points on the grid in an orthonormal basis on the grid; the norm does not grow.

    All products and sums are exact, so a point does not depend on others beside it.
    """
    return on_grid(within(points @ basis.T, 1.0))

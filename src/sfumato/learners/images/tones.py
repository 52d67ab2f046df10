"""Tones: the noisy histogram of each class's pixel values, and images that are given these values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid
from sfumato.learners.estimators.simplex import onto_simplex

__all__ = ["find_tones", "match_tones"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BINS = 32
_LEVELS = 256  # quantiles of drawn images


def find_tones(images: NDArray[np.uint8], labels: Ints, classes: int, sums: NoisySums) -> Floats:
    """Return the noisy shares of pixel values in each class: a row per class, a column per bin of 0..1.

    An image adds the shares of its own pixels, a vector of norm 1 at most.
    """
    exact = np.zeros((classes, _BINS))
    pixels = images.reshape(len(images), -1)
    for part in np.array_split(np.arange(len(images)), max(1, len(images) // 8192)):
        bins = pixels[part].astype(np.int64) * _BINS // 256 + _BINS * np.arange(len(part))[:, None]
        shares = np.bincount(bins.ravel(), minlength=_BINS * len(part)).reshape(-1, _BINS) / pixels.shape[1]
        np.add.at(exact, labels[part], on_grid(shares))
    noisy = sums("tones", exact, norm=1.0)
    return np.stack([onto_simplex(one / max(float(one.sum()), 1.0), 1.0) for one in noisy])


def match_tones(images: Floats, shares: Floats) -> Floats:
    """Return images of one class in which each pixel value is replaced by that of the same rank in a histogram.

    Examples
    --------
    >>> shares = np.zeros(32)
    >>> shares[[0, 31]] = 0.5
    >>> matched = match_tones(np.linspace(-1, 1, 1000).reshape(10, 10, 10), shares)
    >>> float(matched.min()) < 0.01, float(matched.max()) > 0.99, round(float(matched.mean()), 2)
    (True, True, 0.5)
    """
    ranks = np.linspace(0, 1, _LEVELS)
    have = np.quantile(images.ravel()[:: max(1, images.size // 2_000_000)], ranks)
    up = np.concatenate([[0.0], np.cumsum(shares)])
    edges = np.linspace(0, 1, len(shares) + 1)
    # The darkest and the brightest bin stand for 0 and 1, which most pixels of drawings are.
    edges[1], edges[-2] = min(edges[1], 0.004), max(edges[-2], 0.996)
    wanted = np.interp(ranks, up / up[-1], edges)
    return np.interp(images, have, wanted)

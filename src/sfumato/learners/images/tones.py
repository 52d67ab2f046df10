"""Tones: the noisy histogram of each class's pixel values, and images that are given these values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid
from sfumato.learners.estimators.simplex import onto_simplex

__all__ = ["TONES", "ToneCurve", "find_tones"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TONES = 32  # bins of pixel values
_RANKS = 256
_LEVELS = 4096


def find_tones(images: NDArray[np.uint8], labels: Ints, classes: int, sums: NoisySums) -> Floats:
    """Return the noisy shares of pixel values in each class: a row per class, a column per bin of 0..1.

    An image adds the shares of its own pixels, a vector of norm 1 at most.
    """
    exact = np.zeros((classes, TONES))
    pixels = images.reshape(len(images), math.prod(images.shape[1:]))
    for part in np.array_split(np.arange(len(images)), max(1, len(images) // 8192)):
        bins = pixels[part].astype(np.int64) * TONES // 256 + TONES * np.arange(len(part))[:, None]
        shares = np.bincount(bins.ravel(), minlength=TONES * len(part)).reshape(-1, TONES) / pixels.shape[1]
        np.add.at(exact, labels[part], on_grid(shares))
    noisy = sums("tones", exact, norm=1.0)
    return np.stack([onto_simplex(one / max(float(one.sum()), 1.0), 1.0) for one in noisy])


@dataclass(frozen=True, eq=False, repr=False)
class ToneCurve:
    """A monotone curve that gives drawn images the pixel values of a histogram.

    Examples
    --------
    >>> shares = np.zeros(32)
    >>> shares[[0, 31]] = 0.5
    >>> drawn = np.linspace(-1, 1, 1000)
    >>> matched = ToneCurve.of(drawn, shares)(drawn)
    >>> float(matched.min()) < 0.01, float(matched.max()) > 0.99, round(float(matched.mean()), 2)
    (True, True, 0.5)
    """

    low: float
    high: float
    values: NDArray[np.float32]
    """The new values of evenly spaced old ones, from the lowest to the highest."""

    @classmethod
    def of(cls, drawn: NDArray[Any], shares: Floats) -> ToneCurve:
        """Return the curve by which each value is replaced by that of the same rank in a histogram."""
        ranks = np.linspace(0, 1, _RANKS)
        have = np.quantile(drawn, ranks)
        up = np.concatenate([[0.0], np.cumsum(shares)])
        edges = np.linspace(0, 1, len(shares) + 1)
        # The darkest and the brightest bin stand for 0 and 1, which most pixels of drawings are.
        edges[1], edges[-2] = 0.004, 0.996
        wanted = np.interp(ranks, up / max(up[-1], 1e-9), edges)
        places = np.linspace(have[0], have[-1], _LEVELS)
        return cls(float(have[0]), float(have[-1]), np.interp(places, have, wanted).astype(np.float32))

    def __call__(self, drawn: NDArray[Any]) -> NDArray[np.float32]:
        """Return images with the new values."""
        scale = (_LEVELS - 1) / max(self.high - self.low, 1e-9)
        return self.values[np.clip((drawn - self.low) * scale + 0.5, 0, _LEVELS - 1).astype(np.int16)]

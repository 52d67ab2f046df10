"""The low frequencies of images, by a discrete cosine transform whose results do not depend on rounding.

Pixels are whole numbers and the matrix of the transform is on a grid, so all products and sums are exact in 64-bit
floats: the coefficients of an image are the same to the last bit whatever other images are beside it. A sum over
images then changes by no more than the part of the image that is added or removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Frequencies"]

Floats = NDArray[np.float64]

_GRID = 2.0**-18
_AT_ONCE = 2048  # images


@dataclass(frozen=True)
class Frequencies:
    """The low frequencies of images of one size: the corner of their discrete cosine transform.

    Examples
    --------
    >>> low = Frequencies(28, 28, 1)
    >>> images = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1), dtype=np.uint8)
    >>> low.transform(images).shape, low.inverse(low.transform(images)).shape
    ((2, 256), (2, 28, 28, 1))
    """

    height: int
    width: int
    channels: int
    side: int = 16

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of frequencies: down, across, and of channels."""
        return min(self.side, self.height), min(self.side, self.width), self.channels

    @property
    def size(self) -> int:
        """The number of coefficients of an image."""
        return math.prod(self.shape)

    @property
    def largest(self) -> float:
        """The largest norm that the coefficients of an image can have."""
        return math.sqrt(self.height * self.width * self.channels)

    def transform(self, images: NDArray[np.uint8]) -> Floats:
        """Return the low frequencies of images of shape (count, height, width, channels), a row for each."""
        waves = np.trunc(self._waves() / _GRID) * _GRID
        found = np.empty((len(images), waves.shape[1], self.channels))
        for start in range(0, len(images), _AT_ONCE):
            part = images[start : start + _AT_ONCE].reshape(-1, len(waves), self.channels).astype(np.float64)
            for one in range(self.channels):
                found[start : start + len(part), :, one] = part[:, :, one] @ waves / 255
        return found.reshape(len(images), self.size)

    def inverse(self, rows: Floats) -> Floats:
        """Return images that have these low frequencies and no others."""
        waves = self._waves()
        images = rows.reshape(len(rows), waves.shape[1], self.channels).swapaxes(1, 2) @ waves.T
        return images.swapaxes(1, 2).reshape(len(rows), self.height, self.width, self.channels)

    def _waves(self) -> Floats:
        """Return the frequencies as orthonormal images, a column each."""
        down, across, _ = self.shape
        return np.asarray(np.kron(_cosines(self.height, down), _cosines(self.width, across)).T)

    def prior(self) -> Floats:
        """Return a spectrum that falls with the squared frequency, as that of natural images does (Field 1987)."""
        down, across, channels = self.shape
        squares = (np.arange(down)[:, None] / self.height) ** 2 + (np.arange(across) / self.width) ** 2
        power = 1 / (squares + (1 / max(self.height, self.width)) ** 2)
        every = np.repeat(power[:, :, None], channels, axis=2).ravel()
        return np.asarray(every / every.sum())


def _cosines(size: int, count: int) -> Floats:
    """Return the first rows of the orthonormal cosine transform (DCT-II)."""
    waves = np.cos(np.pi / size * (np.arange(size) + 0.5) * np.arange(count)[:, None]) * math.sqrt(2 / size)
    waves[0] /= math.sqrt(2)
    return np.asarray(waves)

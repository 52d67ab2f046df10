"""A generator of labelled images from noisy sums: a mixture of Gaussians for each class, in a noisy basis.

    radius and number of images        noisy histogram of norms
    tones                              noisy histogram of pixel values per class
    middle                             noisy mean of low frequencies
    radius around the middle           noisy sum of distances from it
    basis                              noisy second moment of low frequencies around the middle
    Gaussian of each class             noisy moments in the basis
    centres within each class          rounds of noisy k-means

The guarantee is that of the noisy sums. Drawing is free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.learners.images.frequencies import Frequencies
from sfumato.learners.images.mixtures import Mixture, find_gaussians, find_mixtures
from sfumato.learners.images.spectrum import find_basis, find_middle, find_radius, find_spread, in_basis, points_of
from sfumato.learners.images.tones import ToneCurve, find_tones

__all__ = ["ImageMixtures", "generator_shares", "learn_generator"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 3
_TONED = 500  # images of a class that its tones are matched on
_PER_CENTRE = 0.55  # centres of a class grow with the square root of the class's signal
_WORTH = {"norms": 0.5, "tones": 1, "middle": 1.5, "spread": 0.5, "basis": 8, "moments": 13, "centres": 12}


def generator_shares(worth: float) -> Mapping[str, Share]:
    """Return the kinds of sums that `learn_generator` asks for, given their worth together.

    Examples
    --------
    >>> shares = generator_shares(0.25)
    >>> list(shares), round(sum(one.worth for one in shares.values()), 9)
    (['norms', 'tones', 'middle', 'spread', 'basis', 'moments', 'centres'], 0.25)
    """
    whole = sum(_WORTH.values())
    return {name: Share(_ROUNDS if name == "centres" else 1, worth * one / whole) for name, one in _WORTH.items()}


@dataclass(frozen=True, eq=False, repr=False)
class ImageMixtures:
    """Noisy numbers, from which images of each class are drawn for free.

    Attributes
    ----------
    low : the frequencies that are kept
    middle : the noisy mean of all images' frequencies
    radius : the largest distance of an image's frequencies from the middle
    count : the noisy number of images
    tones : the shares of pixel values, a row per class
    basis : the directions in the space of frequencies, a row each
    mixtures : a mixture per class
    """

    low: Frequencies
    middle: Floats
    radius: float
    count: float
    tones: Floats
    basis: Floats
    mixtures: tuple[Mixture, ...]

    @cached_property
    def _pictures(self) -> NDArray[np.float32]:
        """The directions of the basis as images, a row each."""
        return self.low.inverse(self.basis * self.radius).reshape(len(self.basis), -1).astype(np.float32)

    @cached_property
    def _background(self) -> NDArray[np.float32]:
        """The middle as an image, in one row."""
        return self.low.inverse(self.middle[None]).reshape(-1).astype(np.float32)

    @cached_property
    def _curves(self) -> list[ToneCurve]:
        """What gives the images of each class their tones."""
        rng = np.random.default_rng(0)
        return [
            ToneCurve.of(mixture.draw(_TONED, rng) @ self._pictures + self._background, tones)
            for mixture, tones in zip(self.mixtures, self.tones, strict=True)
        ]

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Ints]:
        """Return images in 0..1 of shape (rows, height, width, channels), and the classes they were drawn from."""
        sizes = np.array([one.size for one in self.mixtures])
        labels = rng.permutation(np.repeat(np.arange(len(sizes)), _rounded(sizes / sizes.sum() * rows, rows)))
        return self.draw_classes(labels, rng), labels

    def draw_classes(self, labels: Ints, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return an image of each of these classes."""
        images = np.empty((len(labels), self._pictures.shape[1]), dtype=np.float32)
        for one, mixture in enumerate(self.mixtures):
            own = np.flatnonzero(labels == one)
            if len(own):
                drawn = mixture.draw(len(own), rng).astype(np.float32) @ self._pictures
                images[own] = self._curves[one](drawn + self._background)
        return images.reshape(len(labels), self.low.height, self.low.width, self.low.channels)


def learn_generator(
    images: NDArray[np.uint8],
    labels: Ints,
    classes: int,
    sums: NoisySums,
    rng: np.random.Generator,
    *,
    directions: int = 60,
) -> ImageMixtures:
    """Learn a generator from images of shape (count, height, width, channels) and their labels.

    Parameters
    ----------
    images, labels, classes
        Labels are whole numbers from 0 to the number of classes - 1.
    sums : NoisySums
        With the shares of `generator_shares`.
    rng : Generator
        Of the first centres, which are drawn from noisy Gaussians.
    directions : int
        The number of directions of the basis.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.budget.noise import Source
    >>> digits = sf.datasets.mnist()
    >>> pixels, labels = digits.train_images[:1000, :, :, None], digits.train_labels[:1000].astype(int)
    >>> sums = NoisySums(generator_shares(1.0), 0.1, Source(insecure_seed=1))
    >>> found = learn_generator(pixels, labels, 10, sums, np.random.default_rng(1))
    >>> [one.shape for one in found.draw(5, np.random.default_rng(2))]
    [(5, 28, 28, 1), (5,)]
    """
    low = Frequencies(*images.shape[1:])
    rows = low.transform(images)
    whole = find_radius(rows, low.largest, sums)
    tones = find_tones(images, labels, classes, sums)
    # Most images have much in common, such as their brightness. It is learned once; all else needs less noise then.
    middle = find_middle(points_of(rows, whole.radius), whole.count, sums) * whole.radius
    radius = find_spread(rows - middle, whole, sums)
    points = points_of(rows - middle, radius)
    basis, prior = find_basis(points, low.prior(), whole.count, directions, sums)
    inside = in_basis(points, basis)
    gaussians = find_gaussians(inside, labels, classes, prior, sums)
    signal = whole.count / classes / max(sums.multiplier, 0.1)
    centres = max(1, round(_PER_CENTRE * math.sqrt(0.7 * signal)))
    mixtures = find_mixtures(inside, labels, gaussians, centres, _ROUNDS, sums, rng)
    return ImageMixtures(low, middle, radius, whole.count, tones, basis, tuple(mixtures))


def _rounded(shares: Floats, total: int) -> Ints:
    """Return whole numbers that add up to a total, near given ones."""
    up = np.floor(np.cumsum(shares) + 0.5).astype(np.int64)
    up[-1] = total
    return np.diff(up, prepend=0)

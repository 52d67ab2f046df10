"""Whether synthetic images are copies of the images that they were made from.

An image is compared with others pixel by pixel: the distance is the root of the mean squared difference, from 0 (the
same) to 1 (black against white). Two questions are asked, both with real images that the generator has never seen:

- How far is a synthetic image from the nearest training image, and how far is a held-out one? Synthetic images that are
  smooth are near to everything, so being nearer alone does not prove a copy.
- Is a synthetic image nearer to a training image than to a held-out one, for as many of each? Without copies that is so
  for half of them, however they look, or for a few more if the held-out images are of another kind: other training
  images, which are no copies, show for how many (distance to the closest record, M. Platzer and T. Reutterer,
  *Holdout-based empirical assessment of mixed-type synthetic data*, Frontiers in Big Data 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Plain

__all__ = ["Copies", "Neighbours", "copies_of", "nearest"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_AT_ONCE = 512  # images that are compared with all others at a time
_SIGMAS = 3.0  # what chance gives is narrower than this in all but 0.3 % of cases


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours:
    """The nearest image of another set for each image of one."""

    distances: Floats
    places: Ints


@dataclass(frozen=True)
class Copies(Plain):
    """Whether synthetic images are nearer to training images than they should be; made by `copies_of`.

    Attributes
    ----------
    images, held_out, training : how many synthetic, held-out and training images were compared
    distance, held_out_distance : the median distance to the nearest training image
    ratio : of the two; None if held-out images are copies themselves
    closer : the chance that a synthetic image is nearer to the training images than a held-out one
    identical : how many synthetic images are a training image, pixel by pixel
    nearer_to_training : the share that is nearer to a training image than to a held-out one, among as many of each
    others_nearer : the same share of training images that are not among them: above a half, held-out images are of
        another kind
    chance : what the share of synthetic images may be if nothing is copied, in 997 of 1,000 cases
    """

    images: int
    held_out: int
    training: int
    distance: float
    held_out_distance: float
    ratio: float | None
    closer: float
    identical: int
    nearer_to_training: float
    others_nearer: float
    chance: tuple[float, float]

    @property
    def leaks(self) -> bool:
        """Whether more synthetic images are nearer to training images than chance explains."""
        return self.nearer_to_training > self.chance[1]


def nearest(images: Bytes, among: Bytes) -> Neighbours:
    """Return the nearest of other images for each image, and its distance from 0 to 1.

    Examples
    --------
    >>> black, white = np.zeros((1, 4, 4, 1), np.uint8), np.full((1, 4, 4, 1), 255, np.uint8)
    >>> found = nearest(black, np.concatenate([white, black]))
    >>> found.places.tolist(), nearest(black, white).distances.tolist()
    ([1], [1.0])
    """
    others = _flat(among)
    norms = np.square(others).sum(axis=1)
    distances, places = np.empty(len(images)), np.empty(len(images), dtype=np.int64)
    for start in range(0, len(images), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        place = (norms - 2 * _flat(images[part]) @ others.T).argmin(axis=1)
        # Once more in whole numbers: the sum above rounds, and a copy has distance 0.
        apart = images[part].astype(np.int64) - among[place].astype(np.int64)
        places[part], distances[part] = place, np.sqrt(np.square(apart).mean(axis=(1, 2, 3))) / 255
    return Neighbours(distances, places)


def copies_of(
    training: Bytes, synthetic: Bytes, held_out: Bytes, rng: np.random.Generator
) -> tuple[Copies, Neighbours, Neighbours]:
    """Return whether synthetic images are copies, and the neighbours of synthetic and of held-out images.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real, other = (rng.integers(0, 256, (200, 4, 4, 1), dtype=np.uint8) for _ in range(2))
    >>> copies_of(real, real[:50], other, rng)[0].leaks
    True
    """
    ours, theirs = nearest(synthetic, training), nearest(held_out, training)
    middle, expected = float(np.median(ours.distances)), float(np.median(theirs.distances))
    count = max(1, min(len(training) // 2, len(held_out)))
    order = rng.permutation(len(training))
    some, rest = training[order[:count]], training[order[count : 2 * count]]
    others = held_out[rng.choice(len(held_out), count, replace=False)]
    share, chance = _nearer(synthetic, some, others)
    control, _ = _nearer(rest, some, others)
    return (
        Copies(
            images=len(synthetic),
            held_out=len(held_out),
            training=len(training),
            distance=middle,
            held_out_distance=expected,
            ratio=middle / expected if expected > 0 else None,
            closer=_chance_to_be_less(ours.distances, theirs.distances),
            identical=int((ours.distances == 0).sum()),
            nearer_to_training=share,
            others_nearer=control,
            chance=(max(0.0, min(0.5, control) - chance), min(1.0, max(0.5, control) + chance)),
        ),
        ours,
        theirs,
    )


def _nearer(images: Bytes, first: Bytes, second: Bytes) -> tuple[float, float]:
    """Return the share of images that are nearer to the first set than to the second, and how far chance may move it.

    If nothing is copied, both sets are alike, so each real image could as well be in the other one. The share is then
    the sum of the weights of those in the first, where the weight of a real image is the share of images next to it:
    its variance is a quarter of the sum of all squared weights.
    """
    inside, outside = nearest(images, first), nearest(images, second)
    nearer, tie = inside.distances < outside.distances, inside.distances == outside.distances
    place = np.where(nearer, inside.places, len(first) + outside.places)
    weights = np.bincount(place[~tie], minlength=len(first) + len(second)) / len(place)
    share = (nearer.sum() + tie.sum() / 2) / len(place)
    return float(share), _SIGMAS / 2 * math.sqrt(float(np.square(weights).sum()))


def _chance_to_be_less(first: Floats, second: Floats) -> float:
    """Return the chance that a number of the first array is below one of the second; ties count half."""
    ranked = np.sort(second)
    above = len(ranked) - np.searchsorted(ranked, first, side="right")
    equal = np.searchsorted(ranked, first, side="right") - np.searchsorted(ranked, first, side="left")
    return float((above + equal / 2).mean() / len(ranked))


def _flat(images: Bytes) -> NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32)

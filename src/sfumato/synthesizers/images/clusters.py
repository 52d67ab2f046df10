"""Groups of images without labels: k-means of their lowest frequencies, from noisy counts and sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import Composed, Event
from sfumato.budget.noise import Source
from sfumato.learners.estimators.clustering import kmeans_shares, nearest_centres, noisy_centres
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.learners.images.frequencies import Frequencies
from sfumato.learners.images.spectrum import find_radius, points_of
from sfumato.synthesizers.images.base import Bytes, Canvas, Ints

__all__ = ["Clustering"]

_SIDE = 5  # frequencies in each direction
_NORMS = 0.5  # the worth of the histogram of norms; that of all counts of k-means is 1


@dataclass(frozen=True)
class Clustering(Share):
    """The noisy sums of k-means, as one kind of access.

    Examples
    --------
    >>> images = np.zeros((200, 8, 8, 1), np.uint8)
    >>> images[:100, :4], images[100:, 4:] = 255, 200
    >>> share = Clustering(1, 0.1, canvas=Canvas(8, 8, 1, 2), clusters=2, rounds=5)
    >>> found = share.groups(images, 0.1, Source(insecure_seed=1))
    >>> len(set(found[:100].tolist())), len(set(found[100:].tolist())), found[0] == found[100]
    (1, 1, np.False_)
    """

    canvas: Canvas
    clusters: int
    rounds: int

    @property
    def _low(self) -> Frequencies:
        return Frequencies(*self.canvas.shape, side=_SIDE)

    @property
    def _sums(self) -> Mapping[str, Share]:
        return {"norms": Share(1, _NORMS), **kmeans_shares(self.rounds, self._low.size)}

    def event(self, multiplier: float) -> Event:
        """Return the event of all sums."""
        return Composed(NoisySums(self._sums, multiplier, Source()).events)

    def groups(self, images: Bytes, multiplier: float, source: Source) -> Ints:
        """Return the cluster of each image; only the centres are as private as the event says."""
        sums = NoisySums(self._sums, multiplier, source)
        rows = self._low.transform(images)
        points: NDArray[np.float64] = points_of(rows, find_radius(rows, self._low.largest, sums).radius)
        return nearest_centres(points, noisy_centres(points, self.clusters, self.rounds, sums, ball=True))

"""The default for images: a noisy generator, a private teacher, and its labels for many strongly warped samples.

    radius and number of images        noisy histogram of norms                      0.5 % of the budget
    tones                              noisy histogram of pixel values per class     1 %
    basis                              noisy second moment of low frequencies        8 %
    Gaussian of each class             noisy moments in the basis                    13 %
    centres within each class          three rounds of noisy k-means                 12 %
    teacher                            noisy gradients of softmax regression         65.5 %

Samples of the generator whiten the teacher's features. The released images are samples that are warped more than looks
natural, labelled by the teacher: a set to train on, not to look at. Without warps and with the classes of the
generator they are faithful to the originals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.images.classes import Mixture, find_gaussians, find_mixtures, in_basis
from sfumato.synthesizers.images.spectrum import Frequencies, find_basis, find_radius, points_of
from sfumato.synthesizers.images.teacher import Teacher, Whitening, as_tensor, features_of, fit_teacher, rate_of
from sfumato.synthesizers.images.tones import find_tones, match_tones
from sfumato.synthesizers.images.views import Views

__all__ = ["Distillation", "ImageModel"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 3
_PER_CENTRE = 0.55  # centres of a class grow with the square root of the class's signal


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """The settings of the method."""

    directions: int = 60
    steps: int = 240
    views: int = 4
    whitening: int = 1500
    samples: int = 20_000
    device: str = "cpu"

    def shares(self) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        return {
            "norms": Share(1, 0.005),
            "tones": Share(1, 0.01),
            "basis": Share(1, 0.08),
            "moments": Share(1, 0.13),
            "centres": Share(_ROUNDS, 0.12),
            "gradients": Share(self.steps, 0.655),
        }

    def learn(
        self, images: NDArray[np.floating], labels: Ints, classes: int, sums: NoisySums, rng: np.random.Generator
    ) -> ImageModel:
        """Learn from images of shape (count, height, width, channels) in 0..1, and their labels."""
        low = Frequencies(*images.shape[1:])
        rows = low.transform(images)
        radius = find_radius(rows, math.sqrt(math.prod(images.shape[1:])), sums)
        tones = find_tones(images, labels, classes, sums)
        points = points_of(rows, radius.radius)
        basis, prior = find_basis(points, low.prior(), radius.count, self.directions, sums)
        inside = in_basis(points, basis)
        gaussians = find_gaussians(inside, labels, classes, prior, sums)
        mu = 1 / sums.multiplier if sums.multiplier else 10.0
        centres = max(1, round(_PER_CENTRE * math.sqrt(mu * radius.count / classes * 0.7)))
        mixtures = find_mixtures(inside, labels, gaussians, centres, _ROUNDS, sums, rng)
        model = ImageModel(low, radius.radius, radius.count, tones, basis, mixtures, None)
        model.teacher = self._teacher(model, images, labels, classes, sums, rng)
        return model

    def _teacher(
        self,
        model: ImageModel,
        images: NDArray[np.floating],
        labels: Ints,
        classes: int,
        sums: NoisySums,
        rng: np.random.Generator,
    ) -> Teacher:
        generator = torch.Generator(device=self.device)
        generator.seed()
        drawn, _ = model.faithful(self.samples, rng)
        view = Views(affine=0.4, elastic=0.3)
        whitening = Whitening.of(features_of(view(as_tensor(drawn, self.device), generator)), self.whitening)
        given = as_tensor(images, self.device)
        views = torch.stack([whitening(features_of(view(given, generator))) for _ in range(self.views)])
        mu = 1 / sums.multiplier if sums.multiplier else 10.0
        truth = torch.from_numpy(labels).to(self.device)
        weights = fit_teacher(views, truth, classes, model.count, rate_of(mu), self.steps, sums)
        return Teacher(whitening, weights)


@dataclass(eq=False, repr=False)
class ImageModel:
    """Noisy numbers, from which images are drawn for free."""

    low: Frequencies
    radius: float
    count: float
    tones: Floats
    basis: Floats
    mixtures: list[Mixture]
    teacher: Teacher | None

    def faithful(self, rows: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Return images and the classes that they were drawn from."""
        sizes = np.array([one.size for one in self.mixtures])
        labels = rng.permutation(np.repeat(np.arange(len(sizes)), _rounded(sizes / sizes.sum() * rows, rows)))
        images = np.empty((rows, self.low.height, self.low.width, self.low.channels), dtype=np.float32)
        for one, mixture in enumerate(self.mixtures):
            own = np.flatnonzero(labels == one)
            if len(own):
                points = mixture.draw(len(own), rng)
                images[own] = match_tones(self.low.inverse(points @ self.basis * self.radius), self.tones[one])
        return images, labels

    def distilled(self, rows: int, rng: np.random.Generator, device: str = "cpu") -> tuple[Floats, Ints]:
        """Return strongly warped images, and the labels of the teacher."""
        generator = torch.Generator(device=device).manual_seed(int(rng.integers(2**62)))
        view = Views(affine=1.0, elastic=1.5, gamma=0.3)
        found, labels = [], []
        for start in range(0, rows, 20_000):
            drawn, _ = self.faithful(min(20_000, rows - start), rng)
            seen = view(as_tensor(drawn, device), generator)
            labels.append(self.teacher.scores(seen).argmax(dim=1).cpu().numpy())
            found.append(np.moveaxis(seen.cpu().numpy(), 1, 3))
        return np.concatenate(found), np.concatenate(labels)


def _rounded(shares: Floats, total: int) -> Ints:
    """Return whole numbers that add up to a total, near given ones."""
    up = np.floor(np.cumsum(shares) + 0.5).astype(np.int64)
    up[-1] = total
    return np.diff(up, prepend=0)

"""The default for images: a noisy generator, a private teacher, and its labels for many strongly warped samples.

A quarter of the budget pays for a generator (`learners.images.generator`), the rest for a teacher
(`learners.images.teacher`), whose features are whitened by samples of the generator. The released images are samples
that are warped more than looks natural, labelled by the teacher: a set to train on (distillation: Hinton, Vinyals and
Dean 2015), not to look at. In the style "faithful" they are not warped, and have the classes of the generator; those
in which the teacher does not see their class are drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.data.validate import whole
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.learners.images.frequencies import Frequencies
from sfumato.learners.images.generator import ImageMixtures, generator_shares, learn_generator
from sfumato.learners.images.mixtures import Mixture
from sfumato.learners.images.teacher import STRONG, as_tensor, features_of, learn_teacher
from sfumato.learners.images.tones import TONES
from sfumato.learners.networks.scattering import channels_of
from sfumato.synthesizers.images.base import Bytes, Canvas, ImageModel, ImageRecords, ImageSynthesizer, Ints, Progress
from sfumato.synthesizers.state import State, Stored

__all__ = ["Distillation", "DistillationModel"]

_AT_ONCE = 10_000  # images drawn at a time
_TRIES = 6  # until the teacher sees the class of an image in it
_TEACHER = 0.75  # of the budget
_WARPED = replace(STRONG, gamma=0.3)
_SHORTEST = 8  # pixels of a side
_MOST_FEATURES = 16_384  # whitening needs a square matrix of them
_RANGES = (
    ("directions", 1, 10_000),
    ("steps", 1, 100_000),
    ("views", 0, 100),
    ("whitening", 1, _MOST_FEATURES),
    ("samples", 2, 10**6),
)


@dataclass(frozen=True, eq=False, repr=False)
class DistillationModel(ImageModel):
    """A generator, and the teacher's weights and bias."""

    styles: ClassVar[tuple[str, ...]] = ("distilled", "faithful")

    generator: ImageMixtures
    teacher: tuple[torch.Tensor, torch.Tensor]
    device: str = "cpu"

    @property
    def total(self) -> float:
        """The noisy number of images."""
        return self.generator.count

    def sample(
        self, rows: int, rng: np.random.Generator, *, style: str | None = None, progress: Progress | None = None
    ) -> tuple[Bytes, Ints]:
        """Return new images: warped and labelled by the teacher, or as the generator draws them."""
        chosen = self.style_of(style)
        low = self.generator.low
        images = np.empty((rows, low.height, low.width, low.channels), dtype=np.uint8)
        labels = np.empty(rows, dtype=np.int64)
        draw = self._distilled if chosen == "distilled" else self._faithful
        for start in range(0, rows, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, rows))
            drawn, labels[part] = draw(part.stop - start, rng)
            images[part] = np.rint(drawn * 255)
            if progress is not None:
                progress(part.stop / rows)
        return images, labels

    def _distilled(self, rows: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Ints]:
        """Return warped images, and the classes that the teacher sees in them."""
        drawn, _ = self.generator.draw(rows, rng)
        warped = _WARPED(as_tensor(drawn, self.device), torch.Generator(self.device).manual_seed(_seed(rng)))
        return np.moveaxis(warped.cpu().numpy(), 1, 3), self._seen(warped)

    def _faithful(self, rows: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Ints]:
        """Return images in which the teacher sees their class; of those in which it does not, new ones are drawn."""
        drawn, labels = self.generator.draw(rows, rng)
        left = np.arange(rows)
        for _ in range(_TRIES):
            left = left[self._seen(as_tensor(drawn[left], self.device)) != labels[left]]
            if not len(left):
                break
            drawn[left] = self.generator.draw_classes(labels[left], rng)
        return drawn, labels

    def _seen(self, images: torch.Tensor) -> Ints:
        """Return the class that the teacher sees in each image."""
        weights, bias = (one.float().to(self.device) for one in self.teacher)
        found: Ints = (features_of(images) @ weights + bias).argmax(dim=1).cpu().numpy()
        return found

    def to_state(self) -> State:
        """Return the noisy numbers."""
        own = self.generator
        return State(
            {"radius": own.radius, "count": own.count, "centres": len(own.mixtures[0].shares)},
            {
                "tones": own.tones,
                "middle": own.middle,
                "basis": own.basis,
                "sizes": np.array([one.size for one in own.mixtures]),
                "shares": np.stack([one.shares for one in own.mixtures]),
                "places": np.stack([one.centres for one in own.mixtures]),
                "covariances": np.stack([one.covariance for one in own.mixtures]),
                "weights": self.teacher[0].float().cpu().numpy(),
                "bias": self.teacher[1].float().cpu().numpy(),
            },
        )

    @classmethod
    def from_state(cls, canvas: Canvas, state: State) -> Self:
        """Return the model of a state, which may be a stranger's."""
        stored, low, classes = Stored(state), Frequencies(*canvas.shape), canvas.classes
        basis = state.arrays.get("basis", np.empty(0))
        if basis.ndim != 2 or not 0 < len(basis) <= low.size:
            raise InputError("the generator's array 'basis' must have a row for each direction")
        size, centres = len(basis), stored.whole("centres", 1, 10_000)
        features = features_in(canvas)
        shares = stored.array("shares", (classes, centres), least=0.0)
        if not np.allclose(shares.sum(axis=1), 1.0, rtol=0, atol=1e-9):
            raise InputError("the shares of the generator's centres must add up to 1")
        sizes = stored.array("sizes", (classes,), least=0.0, most=1e12)
        places = stored.array("places", (classes, centres, size), least=-2.0, most=2.0)
        covariances = stored.array("covariances", (classes, size, size), least=-2.0, most=2.0)
        generator = ImageMixtures(
            low,
            stored.array("middle", (low.size,), least=-low.largest, most=low.largest),
            stored.number("radius", 0.0, 2 * low.largest),
            stored.number("count", 1.0, 1e12),
            stored.array("tones", (classes, TONES), least=0.0, most=1.0),
            stored.array("basis", (size, low.size), least=-1.0, most=1.0),
            tuple(Mixture(float(sizes[k]), shares[k], places[k], covariances[k]) for k in range(classes)),
        )
        weights = torch.from_numpy(stored.array("weights", (features, classes)).astype(np.float32))
        bias = torch.from_numpy(stored.array("bias", (classes,)).astype(np.float32))
        return cls(generator, (weights, bias))


@dataclass(frozen=True, kw_only=True)
class Distillation(ImageSynthesizer):
    """A noisy generator, a private teacher, and its labels for many warped samples.

    Parameters
    ----------
    directions : int
        Of the basis in which the generator learns.
    steps : int
        Of the teacher's training.
    views : int
        Random views of each image that a step averages; 0 for the image as it is.
    whitening : int
        The number of features of the teacher.
    samples : int
        Images of the generator that whiten the features.
    device : str
        "cpu" or "cuda".

    Examples
    --------
    >>> Distillation().shares(Canvas(28, 28, 1, 10))["gradients"].times
    240
    >>> Distillation().quick().shares(Canvas(28, 28, 1, 10))["gradients"].times
    120
    """

    name = "distillation"
    model = DistillationModel

    directions: int = 60
    steps: int = 240
    views: int = 4
    whitening: int = 1500
    samples: int = 20_000
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            whole(f"the number of {name}", getattr(self, name), least=least, most=most)

    def quick(self) -> Self:
        """Return a smaller form: one view of an image, fewer features and half of the steps."""
        return replace(self, views=1, whitening=600, samples=6000, steps=120)

    def prepare(self, canvas: Canvas) -> None:
        """Raise an error if the images are too small or too large for the features of the teacher."""
        size = f"{canvas.height} x {canvas.width}" + (" in colour" if canvas.channels > 1 else "")
        if min(canvas.height, canvas.width) < _SHORTEST:
            raise InputError(f"images must have at least {_SHORTEST} pixels a side, got {size}")
        if features_in(canvas) > _MOST_FEATURES:
            raise InputError(
                f"images of {size} are too large for the method 'distillation'", hint="scale them down to 32 x 32"
            )

    def shares(self, canvas: Canvas) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        return {**generator_shares(1 - _TEACHER), "gradients": Share(self.steps, _TEACHER)}

    def learn(
        self, records: ImageRecords, sums: NoisySums, rng: np.random.Generator, progress: Progress | None = None
    ) -> DistillationModel:
        """Learn a generator, then a teacher."""
        report = progress or (lambda share: None)
        generator = learn_generator(
            records.images, records.labels, records.canvas.classes, sums, rng, directions=self.directions
        )
        report(0.1)
        teacher = learn_teacher(
            records.images,
            records.labels,
            generator,
            sums,
            rng,
            steps=self.steps,
            views=self.views,
            whitening=self.whitening,
            samples=self.samples,
            device=self.device,
            progress=lambda share: report(0.1 + 0.9 * share),
        )
        return DistillationModel(generator, teacher.folded(), self.device)


def features_in(canvas: Canvas) -> int:
    """Return the number of features of the teacher.

    Examples
    --------
    >>> features_in(Canvas(28, 28, 1, 10))
    3969
    """
    return canvas.channels * channels_of() * (canvas.height // 4) * (canvas.width // 4)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))

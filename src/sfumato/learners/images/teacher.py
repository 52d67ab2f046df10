"""A private teacher: softmax regression on scattering features, by full-batch noisy gradient descent.

The features are whitened by the principal directions of *synthetic* images, which is free. Each record's gradient is
the mean over several random views of it, clipped once: the views together are one record, so they cost no privacy (De
et al. 2022). Every step is a Gaussian mechanism on all records, and the weights are averaged over the second half
(Polyak and Juditsky 1992).

The sums are exact: features, weights and clipped residuals are rounded to grids on which their products add up without
error in 64-bit floats, whatever the order of additions. So a sum changes by no more than the part of the record that is
added or removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.generator import ImageMixtures
from sfumato.learners.images.views import Views, numbers_of
from sfumato.learners.networks.scattering import channels_of, normalized_scattering

__all__ = [
    "LIGHT",
    "STRONG",
    "Teacher",
    "Whitening",
    "as_tensor",
    "features_of",
    "fit_teacher",
    "learn_teacher",
    "rate_of",
    "whitened_views",
    "width_of",
]

_FEATURES = 2.0**-12  # the grid of features,
_WEIGHTS = 2.0**-16  # of weights,
_RESIDUALS = 2.0**-20  # and of clipped residuals
_LARGEST = 2.0**6  # the largest feature
_RIDGE = 0.3  # features of smaller variance are noise: they are scaled up less
_RATE = 32.0  # at a signal of 60,000
_WIDTH = 12.0  # features per square root of the signal
_NO_VARIANCE = 1e-9  # what variances below it may be in 32-bit floats
_MOMENTUM = 0.9
_CLIP = 0.05
_LEAST_NOISE = 0.1  # with less, the noise is not what limits the accuracy
_MARGIN = 0.998  # rounding residuals to the grid may lengthen a gradient a little
_MANY = 6000  # eigenvectors of more products of features, or of images, take minutes
_SAMPLES, _SAMPLES_OF_MANY, _FEWEST = 15, 5, 500  # samples per whitened feature; with many features; at least
_AT_ONCE = 64  # records: their features then stay in the processor's cache
_AT_ONCE_ON_DEVICE = 16_384


LIGHT = Views(affine=0.6, elastic=0.5)
"""The views of a record in training."""
STRONG = Views(affine=1.0, elastic=1.5)
"""The views of synthetic images whose features are whitened: they vary in more directions."""


@dataclass(frozen=True, eq=False, repr=False)
class Whitening:
    """Principal directions of the features of public or synthetic images, scaled to about equal variance."""

    mean: Tensor
    directions: Tensor

    @classmethod
    def of(cls, features: Tensor, most: int = 1500, ridge: float = _RIDGE) -> Whitening:
        """Return the whitening by these features; directions of a variance below the ridge are scaled up less."""
        mean = features.double().mean(dim=0)
        centred, count = features - mean.float(), len(features)
        if count < features.shape[1]:  # the products of few images with each other have the same eigenvalues
            values, within = torch.linalg.eigh(centred @ centred.T / count)
            vectors = centred.T @ (within[:, -most:] / torch.sqrt(count * values[-most:].clamp(min=_NO_VARIANCE)))
        else:
            values, vectors = torch.linalg.eigh(centred.T @ centred / count)
            vectors = vectors[:, -most:]
        return cls(mean, _on(vectors.double() / torch.sqrt(values[-most:].double().clamp(min=0) + ridge), _FEATURES))

    def __call__(self, features: Tensor) -> Tensor:
        """Return whitened features and a last one of 1, on the grid."""
        whitened = _on(features.double() - self.mean, _FEATURES) @ self.directions
        ones = torch.ones_like(whitened[:, :1])
        return torch.cat([_on(whitened.clamp(-_LARGEST, _LARGEST), _FEATURES), ones], dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Teacher:
    """A linear classifier of whitened scattering features."""

    whitening: Whitening
    weights: Tensor

    def scores(self, images: Tensor) -> Tensor:
        """Return the scores of each class for images of shape (count, channels, height, width)."""
        weights, bias = self.folded()
        return features_of(images) @ weights.float() + bias.float()

    def folded(self) -> tuple[Tensor, Tensor]:
        """Return the same classifier as weights and bias of the features that are not whitened."""
        weights = self.whitening.directions @ self.weights[:-1]
        return weights, self.weights[-1] - self.whitening.mean @ weights


def features_of(images: Tensor) -> Tensor:
    """Return normalized scattering features; those of the channels beside each other."""
    return torch.cat([normalized_scattering(images[:, one]) for one in range(images.shape[1])], dim=1)


def whitened_views(
    images: NDArray[np.uint8],
    whitening: Whitening,
    views: Views,
    count: int,
    key: bytes,
    *,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """Return the features of several random views of each image: (images, views, features).

    The views of an image follow from its pixels and the key, so its features depend on no other image. A count of 0
    returns the features of the images as they are, as one view.
    """
    shape = (len(images), max(count, 1), whitening.directions.shape[1] + 1)
    found = torch.empty(shape, device=device)  # 32-bit floats hold the grid exactly
    step = _AT_ONCE_ON_DEVICE if device != "cpu" else 256
    for start in range(0, len(images), step):
        own = images[start : start + step]
        numbers = torch.from_numpy(numbers_of(own, count, key)).to(device)
        # With blank images in the place of missing ones, all batches have one size: libraries choose the order of
        # additions by it.
        missing = step - len(own)
        part = functional.pad(as_tensor(own, device), (0, 0, 0, 0, 0, 0, 0, missing))
        for one in range(max(count, 1)):
            seen = views.by(part, functional.pad(numbers[:, one], (0, 0, 0, missing))) if count else part
            found[start : start + step, one] = whitening(features_of(seen)[: len(own)]).float()
        if progress is not None:
            progress(min(1.0, (start + step) / len(images)))
    return found


def learn_teacher(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    generator: ImageMixtures,
    sums: NoisySums,
    rng: np.random.Generator,
    *,
    count: float | None = None,
    steps: int = 240,
    views: int = 4,
    whitening: int = 1500,
    samples: int = 20_000,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> Teacher:
    """Learn a teacher of images, whose features are whitened by samples of their generator.

    Parameters
    ----------
    images, labels, generator
        As given to and returned by `learn_generator`.
    sums : NoisySums
        With a share "gradients" of as many steps.
    rng : Generator
        Of the samples, which are free, and of the key of the views, which need not be secret.
    count : float, optional
        The number of images if it is public; by default the noisy one of the generator.
    steps, views, whitening, samples
        The number of steps, of random views of an image in each, the largest number of features, and the number of
        samples that whiten them. Rate and features follow from the signal: the less of it, the fewer features.
    device : str
    progress : callable, optional
    """
    report = progress or (lambda share: None)
    total = generator.count if count is None else count
    signal = total / max(sums.multiplier, _LEAST_NOISE)
    low = generator.low
    size = low.channels * channels_of() * (low.height // 4) * (low.width // 4)
    width = min(whitening, width_of(signal))
    enough = _SAMPLES * width if size <= _MANY else min(_SAMPLES_OF_MANY * width, _MANY)
    drawn, _ = generator.draw(min(samples, max(enough, _FEWEST)), rng)
    warps = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
    found = Whitening.of(features_of(STRONG(as_tensor(drawn, device), warps)), width)
    report(0.1)
    inputs = whitened_views(
        images, found, LIGHT, views, rng.bytes(16), device=device, progress=lambda share: report(0.1 + 0.4 * share)
    )
    weights = fit_teacher(
        inputs,
        torch.from_numpy(labels).to(device),
        len(generator.mixtures),
        total,
        rate_of(signal),
        steps,
        sums,
        lambda share: report(0.5 + 0.5 * share),
    )
    return Teacher(found, weights)


def rate_of(signal: float) -> float:
    """Return the learning rate for a signal: the number of records over the noise of one step with the whole budget.

    Examples
    --------
    >>> rate_of(60_000), round(rate_of(2_000), 1)
    (32.0, 3.5)
    """
    return _RATE * (signal / 60_000) ** 0.65


def width_of(signal: float) -> int:
    """Return the number of features that a signal is strong enough for.

    Examples
    --------
    >>> width_of(16_000), width_of(2_000)
    (1518, 537)
    """
    return max(1, round(_WIDTH * math.sqrt(signal)))


@torch.no_grad()
def fit_teacher(
    inputs: Tensor,
    labels: Tensor,
    classes: int,
    count: float,
    rate: float,
    steps: int,
    sums: NoisySums,
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """Return the weights of softmax regression.

    Parameters
    ----------
    inputs : tensor of shape (records, views, features)
        As `whitened_views` returns them.
    labels : tensor of shape (records,)
    classes : int
    count : float
        The noisy number of records.
    rate, steps
        The learning rate, and the number of steps that were paid for.
    sums : NoisySums
        With a share "gradients".
    """
    _, views, size = inputs.shape
    truth = functional.one_hot(labels, classes).double()
    step_size = _AT_ONCE if inputs.device.type == "cpu" else _AT_ONCE_ON_DEVICE
    products = torch.cat([part @ part.transpose(1, 2) for part in map(Tensor.double, inputs.split(step_size))])
    weights = torch.zeros(size, classes, dtype=torch.float64, device=inputs.device)
    speed, mean = torch.zeros_like(weights), torch.zeros_like(weights)
    buffer = torch.empty(step_size, views, size, dtype=torch.float64, device=inputs.device)
    for step in range(steps):
        exact, used = torch.zeros_like(weights.T), _on(weights, _WEIGHTS)
        for start in range(0, len(inputs), step_size):
            part = slice(start, start + step_size)
            rows = buffer[: len(inputs[part])].copy_(inputs[part])
            scores = (used.T @ rows.flatten(0, 1).T).T.contiguous()  # twice as fast as rows @ used, and the same
            left = (truth[part, None] - torch.softmax(scores, dim=1).view(-1, views, classes)) / views
            shorter = torch.clamp(_MARGIN * _CLIP / (_norms(left, products[part]) + 1e-15), max=1.0)
            left = torch.trunc(left * shorter[:, None, None] / _RESIDUALS) * _RESIDUALS
            left[_norms(left, products[part]) > _CLIP] = 0.0  # never seen, but nothing else excludes it
            exact.addmm_(left.flatten(0, 1).T, rows.flatten(0, 1))
        noisy = torch.from_numpy(sums("gradients", exact.T.cpu().numpy(), norm=_CLIP)).to(weights.device)
        speed = _MOMENTUM * speed + noisy / count
        weights = weights + rate * speed
        if step >= steps // 2:
            mean += weights / (steps - steps // 2)
        if progress is not None:
            progress((step + 1) / steps)
    return mean


def _norms(left: Tensor, products: Tensor) -> Tensor:
    """Return the norm of each record's gradient, given its residuals and the products of its views."""
    return ((left @ left.transpose(1, 2)) * products).sum(dim=(1, 2)).clamp(min=0).sqrt()


def _on(values: Tensor, grid: float) -> Tensor:
    """Return numbers rounded to a grid."""
    return torch.round(values / grid) * grid


def as_tensor(images: NDArray[Any], device: Any = "cpu") -> Tensor:
    """Return images of shape (count, height, width, channels) as a tensor (count, channels, height, width) in 0..1.

    Bytes are divided by 255, other numbers are used as they are.
    """
    given = np.ascontiguousarray(np.moveaxis(images, 3, 1)).astype(np.float32)
    return torch.from_numpy(given / np.float32(255) if images.dtype == np.uint8 else given).to(device)

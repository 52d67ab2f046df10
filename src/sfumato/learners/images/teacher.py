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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.views import Views
from sfumato.learners.networks.scattering import normalized_scattering

__all__ = [
    "LIGHT",
    "STRONG",
    "Teacher",
    "Whitening",
    "as_tensor",
    "features_of",
    "fit_teacher",
    "rate_of",
    "whitened_views",
]

_FEATURES = 2.0**-12  # the grid of features,
_WEIGHTS = 2.0**-16  # of weights,
_RESIDUALS = 2.0**-20  # and of clipped residuals
_LARGEST = 2.0**6  # the largest feature
_RIDGE = 0.3  # features of smaller variance are noise: they are scaled up less
_RATE = 32.0
_MOMENTUM = 0.9
_CLIP = 0.05
_MARGIN = 0.998  # rounding residuals to the grid may lengthen a gradient a little
_AT_ONCE = 256  # records: their features then stay in the processor's cache
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
        centred = features.double() - mean
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(features))
        keep = min(most, len(values))
        values, vectors = values[-keep:], vectors[:, -keep:]
        return cls(mean, _on(vectors / torch.sqrt(values.clamp(min=0) + ridge), _FEATURES))

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
    *,
    seed: int | None = None,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> Tensor:
    """Return the features of several random views of each image: (images, views, features).

    The views are drawn independently for each image, with entropy of the system unless a seed is given. The seed must
    be secret: were it known, each image would have the views of its position, and one image more would change those of
    all after it. A count of 0 returns the features of the images as they are, as one view.
    """
    generator = torch.Generator(device=device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    size = whitening.directions.shape[1] + 1
    found = torch.empty((len(images), max(count, 1), size), dtype=torch.float64, device=device)
    step = _AT_ONCE_ON_DEVICE if device != "cpu" else 2048
    for start in range(0, len(images), step):
        part = as_tensor(images[start : start + step], device)
        for one in range(max(count, 1)):
            seen = views(part, generator) if count else part
            found[start : start + step, one] = whitening(features_of(seen))
        if progress is not None:
            progress(min(1.0, (start + step) / len(images)))
    return found


def rate_of(mu: float) -> float:
    """Return the learning rate for Gaussian differential privacy with parameter mu.

    Examples
    --------
    >>> rate_of(1.0)
    32.0
    """
    return _RATE * mu**0.65


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
    truth = torch.nn.functional.one_hot(labels, classes).double()
    products = torch.cat([part @ part.transpose(1, 2) for part in inputs.split(_AT_ONCE)])
    weights = torch.zeros(size, classes, dtype=torch.float64, device=inputs.device)
    speed, mean = torch.zeros_like(weights), torch.zeros_like(weights)
    step_size = _AT_ONCE if inputs.device.type == "cpu" else _AT_ONCE_ON_DEVICE
    for step in range(steps):
        exact, used = torch.zeros_like(weights), _on(weights, _WEIGHTS)
        for start in range(0, len(inputs), step_size):
            part = slice(start, start + step_size)
            left = (truth[part, None] - torch.softmax(inputs[part] @ used, dim=2)) / views
            shorter = torch.clamp(_MARGIN * _CLIP / (_norms(left, products[part]) + 1e-15), max=1.0)
            left = torch.trunc(left * shorter[:, None, None] / _RESIDUALS) * _RESIDUALS
            left[_norms(left, products[part]) > _CLIP] = 0.0  # never seen, but nothing else excludes it
            exact += inputs[part].flatten(0, 1).T @ left.flatten(0, 1)
        noisy = torch.from_numpy(sums("gradients", exact.cpu().numpy(), norm=_CLIP)).to(weights.device)
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

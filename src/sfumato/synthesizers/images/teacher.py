"""A private teacher: softmax regression on scattering features, by full-batch noisy gradient descent.

The features are whitened by the principal directions of *synthetic* images, which is free. Each record's gradient is
the mean over several random views of it, clipped once: views cost no privacy, as together they are one record (De et
al. 2022). All steps are full-batch Gaussian mechanisms, and the weights are averaged over the second half (Polyak and
Juditsky 1992).

The sums are exact: residuals and features are rounded to a grid on which their products add up without error in 64-bit
floats, whatever the order of additions.
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
from sfumato.learners.networks.scattering import normalized_scattering

__all__ = ["Teacher", "Whitening", "fit_teacher", "rate_of"]

_FEATURES = 2.0**-12  # the grid of features,
_RESIDUALS = 2.0**-20  # and of clipped residuals
_MOMENTUM = 0.9
_CLIP = 0.05


@dataclass(frozen=True, eq=False)
class Whitening:
    """Principal directions of the features of public or synthetic images, scaled to about equal variance."""

    mean: Tensor
    directions: Tensor

    @classmethod
    def of(cls, features: Tensor, most: int = 1500, ridge: float = 0.03) -> Whitening:
        """Return the whitening by these features."""
        mean = features.mean(dim=0)
        centred = (features - mean).double()
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(features))
        keep = min(most, len(values))
        values, vectors = values[-keep:], vectors[:, -keep:]
        scale = 1 / torch.sqrt(values.clamp(min=0) + ridge * values.max().clamp(min=1e-12) / 10)
        return cls(mean, (vectors * scale).float())

    def __call__(self, features: Tensor) -> Tensor:
        """Return whitened features."""
        return (features - self.mean) @ self.directions


@dataclass(frozen=True, eq=False)
class Teacher:
    """A linear classifier of whitened scattering features."""

    whitening: Whitening
    weights: Tensor

    def scores(self, images: Tensor) -> Tensor:
        """Return the scores of each class for images of shape (count, channels, height, width)."""
        return _with_one(self.whitening(features_of(images))) @ self.weights.float()


def features_of(images: Tensor) -> Tensor:
    """Return normalized scattering features; those of the channels beside each other."""
    return torch.cat([normalized_scattering(images[:, one]) for one in range(images.shape[1])], dim=1)


def rate_of(mu: float) -> float:
    """Return the learning rate for Gaussian differential privacy with parameter mu."""
    return 16 * mu**0.65


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


@torch.no_grad()
def fit_teacher(
    views: Tensor,
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
    views : tensor of shape (views, records, features)
    labels : tensor of shape (records,)
    classes : int
    count : float
        The noisy number of records.
    rate, steps
        The learning rate, and the number of steps that were paid for.
    """
    inputs = torch.stack([torch.round(_with_one(one) / _FEATURES) * _FEATURES for one in views])
    number, rows, size = inputs.shape
    truth = torch.nn.functional.one_hot(labels, classes).double()
    products = torch.einsum("vnd,wnd->nvw", inputs, inputs).double()
    weights = torch.zeros(size, classes, dtype=torch.float64, device=inputs.device)
    speed, mean = torch.zeros_like(weights), torch.zeros_like(weights)
    for step in range(steps):
        left = torch.stack([truth - torch.softmax((one @ weights.float()).double(), dim=1) for one in inputs]) / number
        squares = torch.einsum("vnk,wnk,nvw->n", left, left, products).clamp(min=0)
        shorter = torch.clamp(_CLIP / torch.sqrt(squares + 1e-30), max=1.0) * (1 - 1e-4)
        left = torch.trunc(left * shorter[None, :, None] / _RESIDUALS) * _RESIDUALS
        exact = sum(_product(one, part) for one, part in zip(inputs, left, strict=True))
        noisy = torch.from_numpy(sums("gradients", exact.cpu().numpy(), norm=_CLIP)).to(weights.device)
        speed = _MOMENTUM * speed + noisy / count
        weights = weights + rate * speed
        if step >= steps // 2:
            mean += weights / (steps - steps // 2)
        if progress is not None:
            progress((step + 1) / steps)
    return mean


def _product(inputs: Tensor, left: Tensor) -> Any:
    """Return inputs^T left in 64-bit floats, in parts, so that no copy of all inputs is needed."""
    found = torch.zeros(inputs.shape[1], left.shape[1], dtype=torch.float64, device=inputs.device)
    for start in range(0, len(inputs), 8192):
        found += inputs[start : start + 8192].double().T @ left[start : start + 8192]
    return found


def as_tensor(images: NDArray[Any], device: Any = "cpu") -> Tensor:
    """Return images of shape (count, height, width, channels) in 0..1 as a tensor (count, channels, height, width)."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)).astype(np.float32)).to(device)

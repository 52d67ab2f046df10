"""Model inversion: reconstruct, from a network alone, an image of what it takes for each class.

The gradients of a network say how to change an image so that it becomes more typical of a class. If all images of a
class show one person, that person may be recognised in the result. If they show many people, it is at best an average,
and nobody's image. So the result is compared with the training images of its class, and with images that the network
has never seen.

- Fredrikson, Jha, Ristenpart, *Model inversion attacks that exploit confidence information and basic countermeasures*,
  ACM CCS 2015: MI-Face, gradient descent on 1 - f_y(x) from a black image.
- Yin et al., *Dreaming to distill: data-free knowledge transfer via DeepInversion*, CVPR 2020: from noise, Adam, cross
  entropy and total variation. Its term for batch normalization is left out: our networks have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Attack, Records, Scores
from sfumato.attacks.predictions import label_codes
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, OptionError, require_extra

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Inversion", "ModelInversion", "invert"]

Floats = NDArray[np.float64]
METHODS = ("adam", "mi-face")

_SMOOTH = 0.3  # weight of the total variation, per pixel, beside the cross entropy
_ENOUGH = 0.99  # the probability at which MI-Face stops
_PATIENCE = 100  # steps without progress after which MI-Face stops


@dataclass(frozen=True, eq=False, repr=False)
class Inversion(Discreet):
    """The images that a network takes for its classes.

    Attributes
    ----------
    classes : the classes
    representatives : an image per class, from 0 to 1: by class, channel, height and width
    confidence : the probability of its class that the network gives to each
    method : "adam" or "mi-face"
    """

    _repr_fields = ("method", "shape")

    classes: NDArray[Any]
    representatives: Floats
    confidence: Floats
    method: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of classes, and the channels, height and width of an image."""
        return self.representatives.shape

    @property
    def images(self) -> NDArray[np.uint8]:
        """The images as bytes: by class, height and width, and channel if there are several."""
        found = np.round(255 * np.moveaxis(self.representatives, 1, -1)).astype(np.uint8)
        return found[..., 0] if found.shape[-1] == 1 else found

    def grid(self, columns: int | None = None, *, stretched: bool = False) -> NDArray[np.uint8]:
        """Return one image with all classes, row by row (all in one by default); stretched, each uses all greys."""
        images = self.images
        if stretched:
            brightest = images.reshape(len(images), -1).max(axis=1).clip(1).reshape(-1, *[1] * (images.ndim - 1))
            images = np.round(images * (255 / brightest)).astype(np.uint8)
        columns = len(images) if columns is None else whole("the number of columns", columns, most=len(images))
        blank = np.zeros((-len(images) % columns, *images.shape[1:]), dtype=np.uint8)
        rows = np.concatenate([images, blank]).reshape(-1, columns, *images.shape[1:])
        return np.concatenate([np.concatenate(list(row), axis=1) for row in rows])

    def similarity(self, records: Records) -> Floats:
        """Return the correlation of each image with the representative of its class, from -1 to 1."""
        return _correlation(_flat(records), self._flat()[self._codes(records)])

    def likeness(self, records: Records) -> float:
        """Return the correlation of the representatives with the mean images of their classes, on average."""
        codes, images, mine = self._codes(records), _flat(records), self._flat()
        known = np.unique(codes)
        means = np.array([images[codes == code].mean(axis=0) for code in known])
        return float(_correlation(means, mine[known]).mean())

    def _flat(self) -> Floats:
        return self.representatives.reshape(len(self.representatives), -1)

    def _codes(self, records: Records) -> NDArray[np.int64]:
        if records.labels is None:
            raise InputError("images are compared with the representative of their class, and these have no labels")
        if math.prod(records.rows.shape[1:]) != self._flat().shape[1]:
            raise InputError(
                f"the images have {math.prod(records.rows.shape[1:])} numbers, not {self._flat().shape[1]}"
            )
        return label_codes(records.labels, self.classes)


def invert(
    model: Any,
    *,
    shape: Sequence[int] | None = None,
    classes: Sequence[Any] | None = None,
    method: str = "adam",
    steps: int = 200,
    learning_rate: float = 0.1,
    smooth: float = _SMOOTH,
    patience: int = _PATIENCE,
    enough: float = _ENOUGH,
    seed: int = 0,
) -> Inversion:
    """Reconstruct an image for each class of a network.

    Parameters
    ----------
    model : PrivateClassifier of images, or torch.nn.Module
        A module gives one output per class, before the softmax.
    shape : sequence of int
        For a module: channels, height and width of an image with values from 0 to 1.
    classes : sequence, optional
        For a module: what its outputs are called; 0, 1, 2 and so on by default.
    method : str
        "adam": from noise, by Adam on the cross entropy and the total variation. "mi-face": from a black image, by
        gradient descent on 1 - f_y(x).
    steps : int
    learning_rate : float
    smooth : float
        The weight of the total variation of "adam": the mean difference between neighbouring pixels.
    patience, enough
        MI-Face stops when the probability of the class has reached `enough`, or has not grown for so many steps.
    seed : int
        Of the noise that "adam" begins with.

    Examples
    --------
    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    >>> with torch.no_grad():
    ...     _ = network[1].weight.copy_(torch.cat([torch.ones(1, 16), -torch.ones(1, 16)]))
    >>> found = invert(network, shape=(1, 4, 4))
    >>> found.images.shape, found.images[0].mean() > 100, found.images[1].mean() < 1  # the second is black
    ((2, 4, 4), np.True_, np.True_)
    """
    require_extra("torch", "torch", "model inversion")
    import torch

    if method not in METHODS:
        raise OptionError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")
    whole("the number of steps", steps, most=1_000_000)
    real("the learning rate", learning_rate, above=0)
    real("the weight of the total variation", smooth, least=0)
    network = _network(model, shape, classes)
    module = network.module
    before = {part: part.training for part in module.modules()}
    frozen = [one for one in module.parameters() if one.requires_grad]
    module.eval()
    for one in frozen:
        one.requires_grad_(False)
    try:
        if method == "adam":
            found = _by_adam(network, steps, learning_rate, smooth, seed)
        else:
            found = _by_descent(network, steps, learning_rate, patience, enough)
        with torch.no_grad():
            confidence = network.own(found)
    finally:
        for one in frozen:
            one.requires_grad_(True)
        for part, was in before.items():
            part.training = was
    return Inversion(network.classes, found.double().numpy(), confidence.double().numpy(), method)


@dataclass(frozen=True, eq=False)
class _Network:
    """A network as a function of images from 0 to 1."""

    module: Any
    prepare: Callable[[Any], Any]
    shape: tuple[int, ...]
    classes: NDArray[Any]

    def scores(self, images: Tensor) -> Tensor:
        """Return one number per class, before the softmax."""
        found: Tensor = self.module(self.prepare(images)).reshape(len(images), -1)
        if found.shape[1] == 1:
            found = _torch().cat([_torch().zeros_like(found), found], dim=1)
        if found.shape[1] != len(self.classes):
            raise InputError(f"the network has {found.shape[1]} outputs, and {len(self.classes)} classes are named")
        return found

    def own(self, images: Tensor) -> Tensor:
        """Return the probability of class 0 for the first image, of class 1 for the second, and so on."""
        return self.scores(images).softmax(1).diagonal()


def _by_adam(network: _Network, steps: int, rate: float, smooth: float, seed: int) -> Tensor:
    torch = _torch()
    size = (len(network.classes), *network.shape)
    images = (0.1 * torch.rand(size, generator=torch.Generator().manual_seed(seed))).requires_grad_(True)
    optimizer = torch.optim.Adam([images], lr=rate)
    wanted = torch.arange(len(images))
    for _ in range(steps):
        optimizer.zero_grad()
        variation = images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()
        # The mean over classes would make each image's step depend on how many there are: the sum does not.
        entropy = torch.nn.functional.cross_entropy(network.scores(images), wanted, reduction="sum")
        (entropy + smooth * len(images) * variation).backward()
        optimizer.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    result: Tensor = images.detach()
    return result


def _by_descent(network: _Network, steps: int, rate: float, patience: int, enough: float) -> Tensor:
    """Climb the probability of each class; each image stops by itself."""
    torch = _torch()
    images = torch.zeros(len(network.classes), *network.shape)
    best, waited = torch.zeros(len(images)), torch.zeros(len(images))
    for _ in range(steps):
        images.requires_grad_(True)
        own = network.own(images)
        with torch.no_grad():
            waited = torch.where(own > best, 0, waited + 1)
            best = torch.maximum(best, own)
            active = (own < enough) & (waited < patience)
        if not active.any():
            break
        (slope,) = torch.autograd.grad(own.sum(), images)
        images = (images.detach() + rate * slope * active.reshape(-1, 1, 1, 1)).clamp(0, 1)
    result: Tensor = images.detach()
    return result


def _network(model: Any, shape: Sequence[int] | None, classes: Sequence[Any] | None) -> _Network:
    """Return what is inverted: a module with its shape, or the network of a classifier of images."""
    torch = _torch()
    if isinstance(model, torch.nn.Module):
        if shape is None or len(shape) != 3:
            raise OptionError(
                "a network needs the shape of an image: channels, height and width", hint="shape=(1, 28, 28)"
            )
        size = tuple(whole("a side of an image", side, most=4096) for side in shape)
        with torch.no_grad():
            outputs = model(torch.zeros(1, *size)).numel()
        named = np.arange(max(outputs, 2)) if classes is None else np.asarray(list(classes))
        return _Network(model, lambda images: images, size, named)
    if not _inverts(model):
        raise InputError(f"model inversion follows the gradients of a network of images, not of {type(model).__name__}")
    transform = getattr(model.architecture_, "features", None)

    def prepare(images: Tensor) -> Any:
        if model.scale is not None:
            mean, deviation = (torch.tensor(one, dtype=images.dtype).reshape(-1, 1, 1) for one in model.scale)
            images = (images - mean) / deviation
        return images if transform is None else transform(images.squeeze(1))

    return _Network(model.module_, prepare, tuple(model.inputs_), np.asarray(model.classes_))


def _inverts(model: Any) -> bool:
    """Return whether a model is a network of images: one of `PrivateClassifier`."""
    return getattr(model, "features_", 0) is None and hasattr(model, "module_") and len(model.inputs_) == 3


class ModelInversion(Attack):
    """Score an image by its correlation with the representative that is reconstructed for its class.

    Parameters
    ----------
    method : str
        "mi-face" or "adam"; see `invert`.
    steps : int
    """

    name = "inversion"
    question = "Does the image that a network takes for a class look like the training images rather than like others?"
    targets = ("model",)

    def __init__(self, method: str = "mi-face", *, steps: int = 1000) -> None:
        self.method, self.steps = method, steps

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        return found if found or _inverts(target.model) else "it needs a network of images, whose gradients it follows"

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score by similarity."""
        found = invert(target.model, method=self.method, steps=self.steps, seed=seed)
        return Scores(
            found.similarity(members),
            found.similarity(nonmembers),
            details={
                "method": self.method,
                "confidence": float(found.confidence.mean()),
                "likeness": {"members": found.likeness(members), "nonmembers": found.likeness(nonmembers)},
            },
            picture=found.grid(stretched=True) if found.images.ndim == 3 else None,  # of grey images
        )


def _flat(records: Records) -> Floats:
    if not isinstance(records.rows, np.ndarray):
        raise InputError("this attack needs images, and got a table")
    return records.rows.reshape(len(records), -1).astype(np.float64)


def _correlation(first: Floats, second: Floats) -> Floats:
    """Return the correlation of the rows of two arrays; 0 if one of them is constant."""
    first, second = (one - one.mean(axis=1, keepdims=True) for one in (first, second))
    length = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    result: Floats = (first * second).sum(axis=1) / np.where(length > 0, length, 1.0)
    return result


def _torch() -> Any:
    import torch

    return torch

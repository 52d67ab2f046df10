"""Named network architectures, and images as their inputs; none of them mixes samples.

Each is built for a sample shape and a number of outputs. None uses batch normalization, which would make the gradient
of one record depend on the others; where a published network has it, group normalization takes its place.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.data.validate import whole
from sfumato.errors import InputError, OptionError, did_you_mean
from sfumato.learners.estimators.features import Columns
from sfumato.learners.networks.scattering import channels_of, normalized_scattering

__all__ = ["ARCHITECTURES", "Architecture", "ImageInputs", "architecture", "rebuild"]

Shape = tuple[int, ...]
Features = Callable[..., Tensor]

_LARGEST = 2**22  # largest sample of a stored network, in numbers
_SCATTERED = 2**26  # largest scattering transform of a stored network, in pixels over all channels


@dataclass(frozen=True, eq=False)
class Architecture:
    """A network, and the fixed features that its inputs are transformed to.

    Attributes
    ----------
    name : str
        One of `ARCHITECTURES`.
    inputs : tuple of int
        The shape of a sample.
    outputs : int
        The number of outputs.
    options : dict
        The other options of the network, including defaults.
    module : torch.nn.Module
        The network, untrained.
    features : callable, optional
        If given, the network takes its result instead of the samples. It is fixed and public, and transforms every
        sample independently, so it costs no privacy; it is called once, before training. It accepts ``progress``.

    Examples
    --------
    >>> digits = architecture("scattering-linear", (28, 28), 10)
    >>> images = torch.zeros(5, 28, 28)
    >>> digits.module(digits.features(images)).shape
    torch.Size([5, 10])
    """

    name: str
    inputs: Shape
    outputs: int
    options: dict[str, Any]
    module: nn.Module
    features: Features | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights as plain values, from which `architecture` builds the same network.

        Examples
        --------
        >>> architecture("mlp", 14, 2).to_dict()
        {'name': 'mlp', 'inputs': [14], 'outputs': 2, 'hidden': [100]}
        """
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in self.options.items()}
        return {"name": self.name, "inputs": list(self.inputs), "outputs": self.outputs, **options}


def architecture(name: str, inputs: int | Sequence[int], outputs: int, **options: Any) -> Architecture:
    """Build a network by name, with initial weights from torch's own generator.

    Parameters
    ----------
    name : str
        - ``cnn``: two convolutions and two linear layers; for images.
        - ``resnet18``: the residual network of 18 layers (He et al. 2016) with group normalization; for
          images. Option ``groups``: 32 by default.
        - ``mlp``: linear layers with ReLU between. Option ``hidden``: their widths, ``(100,)`` by default.
        - ``logistic``: one linear layer, zero at first.
        - ``scattering-linear``: one linear layer, zero at first, on `normalized_scattering`; for grey
          images. Options ``scales``, ``angles`` and ``groups``.
    inputs : int or sequence of int
        The number of columns, or the shape of an image: (height, width) if it is grey, or
        (channels, height, width). The networks for images take (count, channels, height, width).
    outputs : int
        The number of outputs: one per class.

    Examples
    --------
    >>> small = architecture("cnn", (28, 28), 10)
    >>> small.module(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    >>> sum(parameter.numel() for parameter in small.module.parameters())
    26010
    """
    if name not in ARCHITECTURES:
        hint = did_you_mean(name, ARCHITECTURES) if isinstance(name, str) else ""
        raise OptionError(f"an architecture must be one of {', '.join(ARCHITECTURES)}, got {name!r}", hint=hint)
    make = ARCHITECTURES[name]
    known = {
        option: parameter.default
        for option, parameter in inspect.signature(make).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "leave it out"
            raise OptionError(f"the architecture '{name}' has no option '{option}'", hint=hint)
    shape = _sizes("the number of inputs", inputs if isinstance(inputs, Sequence) else (inputs,))
    if not shape:
        raise OptionError("the inputs must have at least one dimension, got none")
    (count,) = _sizes("the number of outputs", (outputs,))
    chosen = {**known, **options}
    module, features = make(shape, count, **chosen)
    return Architecture(name, shape, count, chosen, module, features)


def rebuild(plain: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Architecture:
    """Build the network that stored weights belong to, after checking its size against the weights.

    ``plain`` is a result of `Architecture.to_dict`, possibly from an untrusted file; ``shapes`` are those of the
    weights.

    Examples
    --------
    >>> rebuild({"name": "logistic", "inputs": [3], "outputs": 2}, {"1.weight": (2, 3), "1.bias": (2,)}).inputs
    (3,)
    >>> rebuild({"name": "mlp", "inputs": [3], "outputs": 2, "hidden": [90000]}, {"1.weight": (2, 3)})
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: the weights do not fit the described network 'mlp'
    """
    name, (*inputs,) = plain["name"], _sizes("the number of inputs", plain["inputs"])
    if math.prod(inputs) > _LARGEST or len(plain.get("hidden", ())) > len(shapes):
        raise OptionError(f"the described network '{name}' is too large for its weights")
    if name == "scattering-linear":
        scales, angles = plain.get("scales", 2), plain.get("angles", 8)
        channels, (count,) = channels_of(scales, angles), _sizes("the number of outputs", (plain["outputs"],))
        if channels * math.prod(inputs) > _SCATTERED:
            raise OptionError(f"the described network '{name}' has too many channels")
        width = channels * math.prod(side >> scales for side in inputs[-2:])
        wanted: dict[str, Shape] = {"1.weight": (count, width), "1.bias": (count,)}
    else:
        with torch.device("meta"):  # shapes without memory
            skeleton = architecture(**plain).module
        wanted = {name: tuple(one.shape) for name, one in skeleton.state_dict().items()}
    if wanted != {name: tuple(shape) for name, shape in shapes.items()}:
        raise OptionError(f"the weights do not fit the described network '{name}'")
    return architecture(**plain)


def _cnn(inputs: Shape, outputs: int) -> tuple[nn.Module, None]:
    channels, *sides = _image("cnn", inputs)
    height, width = ((side // 2 - 5) // 2 for side in sides)
    if min(height, width) < 1:
        raise OptionError(f"the images for 'cnn' must have at least 14 pixels a side, got {sides[0]} x {sides[1]}")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * height * width, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    ), None


def _resnet18(inputs: Shape, outputs: int, *, groups: int = 32) -> tuple[nn.Module, None]:
    channels, *_ = _image("resnet18", inputs)
    (groups,) = _sizes("the number of groups", (groups,))
    if 64 % groups:
        raise OptionError(f"the number of groups of 'resnet18' must divide 64, got {groups!r}")
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    module = nn.Sequential(
        nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(groups, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *(_Residual(before, after, groups) for before, after in itertools.pairwise(widths)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, outputs),
    )
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return module, None


class _Residual(nn.Module):
    """Two convolutions with a shortcut; where the width grows, the image is halved."""

    def __init__(self, before: int, after: int, groups: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(groups, after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(groups, after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.GroupNorm(groups, after)
            )
        self.last = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Add both paths; not in place, because per-sample gradients need the inputs."""
        result: Tensor = self.last(self.convolutions(images) + self.shortcut(images))
        return result


def _mlp(inputs: Shape, outputs: int, *, hidden: Sequence[int] = (100,)) -> tuple[nn.Module, None]:
    if not isinstance(hidden, Sequence):
        raise OptionError(f"the hidden layers must be a list of widths, got {hidden!r}")
    widths = (math.prod(inputs), *_sizes("the width of a hidden layer", hidden))
    layers = [part for pair in itertools.pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], outputs)), None


def _logistic(inputs: Shape, outputs: int) -> tuple[nn.Module, None]:
    return _linear(math.prod(inputs), outputs), None


def _scattering_linear(
    inputs: Shape, outputs: int, *, scales: int = 2, angles: int = 8, groups: int = 27
) -> tuple[nn.Module, Features]:
    channels, height, width = _image("scattering-linear", inputs)
    if channels != 1:
        raise OptionError(f"the images for 'scattering-linear' must be grey, got {channels} channels")
    features = partial(normalized_scattering, scales=scales, angles=angles, groups=groups)
    size = features(torch.zeros(1, height, width)).shape[1]
    return _linear(size, outputs), features


def _linear(inputs: int, outputs: int) -> nn.Module:
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)  # the loss is convex: any other start would only be farther away
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def _image(name: str, inputs: Shape) -> tuple[int, int, int]:
    """Return the channels, height and width of an image; a grey one may leave out its channel."""
    match inputs:
        case (height, width):
            return 1, height, width
        case (channels, height, width):
            return channels, height, width
    raise OptionError(
        f"the architecture '{name}' is for images, got samples of the shape {inputs}",
        hint="use 'mlp' or 'logistic' for a table",
    )


def _sizes(name: str, values: Sequence[Any]) -> Shape:
    return tuple(whole(name, value) for value in values)


ARCHITECTURES: dict[str, Callable[..., tuple[nn.Module, Features | None]]] = {
    "cnn": _cnn,
    "resnet18": _resnet18,
    "mlp": _mlp,
    "logistic": _logistic,
    "scattering-linear": _scattering_linear,
}
"""The function that builds each network, by name."""


@dataclass(frozen=True, eq=False)
class ImageInputs(Columns):
    """Images in place of columns; no public description is needed.

    Examples
    --------
    >>> images = ImageInputs.of_array(np.full((5, 28, 28), 255, dtype=np.uint8))
    >>> images.shape, images.tensor(None).max()
    ((1, 28, 28), tensor(1.))
    """

    array: NDArray[Any]

    @property
    def rows(self) -> int:
        """The number of images."""
        return len(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return (1, *self.array.shape[1:]) if self.array.ndim == 3 else self.array.shape[1:]

    def take(self, rows: Any) -> ImageInputs:
        """Return the images at some positions."""
        return replace(self, array=self.array[rows])

    @classmethod
    def of_array(cls, given: Any) -> ImageInputs:
        """Convert an array of shape (count, height, width) or (count, channels, height, width)."""
        array = np.asarray(given)
        if array.ndim not in (3, 4) or array.dtype.kind not in "biuf":
            raise InputError(
                "images must be numbers of shape (count, height, width) or (count, channels, height, width), "
                f"got {array.ndim} dimensions of {array.dtype}"
            )
        if not array.size:
            raise InputError(f"0 sample(s): there are no images, got the shape {array.shape}")
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longer floats
            array = array.astype(np.float64)
        return cls((), None, False, array.astype(array.dtype.newbyteorder("="), copy=False))

    def tensor(self, scale: Any) -> Tensor:
        """Return the images with channels, bytes scaled to 0..1 and missing numbers as 0, normalised by the scale.

        A scale is a mean and a standard deviation.
        """
        # Torch needs arrays that are contiguous and writable; others are copied.
        raw = torch.as_tensor(np.require(self.array, requirements=["C", "W"])).reshape(self.rows, *self.shape)
        numbers = raw if raw.is_floating_point() else raw.float() / (255 if raw.dtype == torch.uint8 else 1)
        numbers = torch.where(numbers.isfinite(), numbers, 0)  # each image independently
        if scale is None:
            return numbers
        try:
            mean, deviation = (torch.tensor(one, dtype=numbers.dtype).reshape(-1, 1, 1) for one in scale)
            if not (bool(mean.isfinite().all()) and bool((deviation > 0).all() and deviation.isfinite().all())):
                raise ValueError
            return (numbers - mean) / deviation
        except (TypeError, ValueError, RuntimeError):
            raise OptionError(
                f"the scale must be a mean and a deviation above 0, each a number or one per channel, got {scale!r}"
            ) from None

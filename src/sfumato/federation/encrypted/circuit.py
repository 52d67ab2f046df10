"""A trained model as layers that can be evaluated under encryption: affine maps with squares between them.

Every run of affine layers (linear, convolution, average pooling, batch normalization after training) is one matrix,
found by sending unit vectors through it. Encryption knows additions and multiplications alone, so the only activation
is the square (Gilad-Bachrach et al. 2016, CryptoNets).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.data.release import Release
from sfumato.errors import ModelError
from sfumato.federation.encrypted.records import Records

__all__ = ["Circuit", "Square", "inputs_of", "to_circuit"]

Floats = NDArray[np.float64]

_AFFINE: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.Dropout,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
)
_INSTEAD = {
    "MaxPool2d": "put torch.nn.AvgPool2d in its place and train again",
    "Softmax": "leave it out: the client takes the softmax of the scores",
    "LogSoftmax": "leave it out: the client takes the softmax of the scores",
    "GroupNorm": "leave it out and train again",
    "LayerNorm": "leave it out and train again",
}
_ACTIVATION = "put sfumato.federation.Square in its place and train again"


class Square(nn.Module):
    """The square, an activation that can be evaluated under encryption.

    Examples
    --------
    >>> Square()(torch.tensor([2.0, -3.0]))
    tensor([4., 9.])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Square every number."""
        return inputs * inputs


@dataclass(frozen=True, eq=False)
class Circuit:
    """Affine maps with squares between them.

    Attributes
    ----------
    weights, biases : of each map
    bound : the largest absolute value of an input
    classes : the label of each output, if known
    records : how records become inputs, for our own models

    Examples
    --------
    >>> circuit = to_circuit(nn.Sequential(nn.Linear(3, 4), Square(), nn.Linear(4, 2)), 3)
    >>> circuit.depth, circuit([[0.5, 0, 1]]).shape
    (3, (1, 2))
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    bound: float = 1.0
    classes: tuple[Any, ...] | None = None
    records: Records | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ModelError(f"the bound of the inputs must be above 0, got {self.bound!r}")
        for one in (*self.weights, *self.biases):
            if not np.isfinite(one).all():
                raise ModelError("the model has weights that are not finite")
        if not all(one.any() for one in self.weights):
            raise ModelError("all weights of a layer are zero", hint="train the model first")

    @property
    def depth(self) -> int:
        """How many multiplications follow each other."""
        return 2 * len(self.weights) - 1

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of inputs, then of outputs of every map."""
        return (self.weights[0].shape[1], *(len(one) for one in self.weights))

    @property
    def largest(self) -> float:
        """The largest absolute value that any output can have, whatever the inputs within their bound are."""
        at = np.full(self.widths[0], self.bound)
        for place, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            at = np.abs(weights) @ (at if place == 0 else at**2) + np.abs(biases)
        return float(at.max())

    def __call__(self, inputs: Any) -> Floats:
        """Return the outputs in clear."""
        at = np.asarray(inputs, np.float64)
        for place, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            at = (at if place == 0 else at**2) @ weights.T + biases
        return at


def to_circuit(model: Any, inputs: int | Sequence[int] | None = None, *, bound: float = 1.0) -> Circuit:
    """Convert a trained model; a `ModelError` names the layer that cannot be evaluated, and what to put instead.

    Parameters
    ----------
    model : Release, estimator or torch.nn.Module
        A fitted classifier of Sfumato with a network, a logistic or linear regression (ours or scikit-learn's), a
        release of one of ours, or a module: a `torch.nn.Sequential` of affine layers and `Square`.
    inputs : int or sequence of int, optional
        The shape of one sample; needed for a module alone.
    bound : float
        The largest absolute value of an input. Inputs of our own estimators lie between -1 and 1, unless ``scale``
        was given.

    Examples
    --------
    >>> to_circuit(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), 3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    sfumato.errors.ModelError: layer '1' (ReLU) cannot be evaluated under encryption (put ...Square in its place ...)
    """
    if isinstance(model, Release):
        model = getattr(model.artifact, "model", model)
    classes = getattr(model, "classes_", None)
    labels = None if classes is None else tuple(np.asarray(classes).tolist())
    if hasattr(model, "module_"):
        if model.architecture_ is not None and model.architecture_.features is not None:
            raise ModelError(
                f"the features of '{model.architecture_.name}' cannot be evaluated under encryption",
                hint="use 'logistic', or a network with sfumato.federation.Square",
            )
        return replace(_of_module(model.module_, model.inputs_, bound, labels), records=Records.of(model))
    if isinstance(model, nn.Module):
        if inputs is None:
            raise ModelError("the shape of one sample must be given with a module", hint="to_circuit(module, 784)")
        return _of_module(model, (inputs,) if isinstance(inputs, int) else tuple(inputs), bound, labels)
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        slopes, intercepts = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
        if hasattr(model, "features_"):
            from sfumato.learners.estimators.linear import from_units

            slopes, intercepts = from_units(model.features_, slopes, intercepts)
        weights, biases = (np.asarray(one, np.float64) for one in (slopes, intercepts))
        return Circuit((weights,), (biases,), bound, labels, Records.of(model))
    raise ModelError(
        f"a {type(model).__name__} cannot be evaluated under encryption",
        hint="use a logistic regression or a network with sfumato.federation.Square",
    )


def inputs_of(model: Any, records: Any) -> Floats:
    """Return records as the numbers that a client encrypts, a row per record.

    Parameters
    ----------
    model : Question or estimator
        The question of a server, which has the public description of the columns and no weights, or one of our models.
    records : table, frame or array of images
    """
    described = model.records if isinstance(getattr(model, "records", None), Records) else Records.of(model)
    if described is None:
        raise ModelError(
            "how records become inputs of this model is not known", hint="encrypt rows of numbers in its own coding"
        )
    return described.matrix(records)


def _of_module(module: nn.Module, shape: Sequence[int], bound: float, classes: Any) -> Circuit:
    runs: list[list[nn.Module]] = [[]]
    for name, layer in _leaves(module):
        if isinstance(layer, Square):
            runs.append([])
        elif isinstance(layer, _AFFINE):
            runs[-1].append(layer)
        else:
            kind = type(layer).__name__
            raise ModelError(
                f"layer '{name}' ({kind}) cannot be evaluated under encryption", hint=_INSTEAD.get(kind, _ACTIVATION)
            )
    weights, biases, at = [], [], tuple(shape)
    for layers in runs:
        matrix, bias, at = _affine(layers, at)
        weights.append(matrix)
        biases.append(bias)
    return Circuit(tuple(weights), tuple(biases), bound, classes)


def _leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield layers in the order in which they are applied."""
    if not isinstance(module, nn.Sequential):
        yield name or "0", module
        return
    for own, part in module.named_children():
        yield from _leaves(part, f"{name}.{own}" if name else own)


def _affine(layers: Sequence[nn.Module], shape: tuple[int, ...]) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return matrix, bias and output shape of a run of affine layers."""
    size = math.prod(shape)
    at = torch.cat([torch.zeros(1, size), torch.eye(size)]).double().reshape(size + 1, *shape)
    with torch.no_grad():
        for layer in layers:
            was, kind = layer.training, next((one.dtype for one in layer.parameters()), at.dtype)
            try:
                at = layer.eval()(at.to(kind)).double()
            except (RuntimeError, ValueError) as error:
                raise ModelError(f"inputs of the shape {shape} do not fit the model") from error
            finally:
                layer.train(was)
    bias, rows = at[0].reshape(-1), at[1:].reshape(size, -1)
    return (rows - bias).T.contiguous().numpy(), bias.numpy(), tuple(at.shape[1:])

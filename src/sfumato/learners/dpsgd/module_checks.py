"""Whether a model can be trained privately: what must be replaced, and by what.

A sample's gradient must be its own. A layer that mixes the samples of a batch (batch
normalisation) makes every gradient depend on all of them, and then clipping bounds nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfumato.errors import ModelError
from sfumato.learners.gradients.gradients import tensors

if TYPE_CHECKING:
    from sfumato.learners.gradients.clipping import Clipper

__all__ = [
    "Obstacle",
    "check",
    "like",
    "make_private",
    "obstacles",
    "refuse_mixing",
    "refuse_wrong_gradients",
    "same",
    "undisturbed",
]

_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_GROUPS = 32  # as Wu and He (2018) take


@dataclass(frozen=True)
class Obstacle:
    """A layer that keeps a model from being trained privately."""

    name: str
    """Where it is in the model."""
    reason: str
    replacement: str = ""
    """What to put in its place; empty if there is nothing."""
    automatic: bool = False
    """Whether `make_private` replaces it."""

    def __str__(self) -> str:
        return f"layer '{self.name}': {self.reason}" + (f"; {self.replacement}" if self.replacement else "")


def obstacles(module: nn.Module) -> tuple[Obstacle, ...]:
    """Return every layer of a model that keeps it from being trained privately.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    >>> print(*obstacles(model), sep="\\n")
    layer '1': BatchNorm2d mixes the samples of a batch; put GroupNorm(4, 8) in its place
    """
    return tuple(_found(module))


def check(module: nn.Module) -> None:
    """Refuse a model that cannot be trained privately, and name what must be replaced.

    Examples
    --------
    >>> check(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
    Traceback (most recent call last):
        ...
    sfumato.errors.ModelError: layer '1': BatchNorm1d mixes the samples of a batch; put GroupNorm(1, 8) in its \
place (make_private does it)
    """
    found = obstacles(module)
    if not found:
        return
    first, more = found[0], len(found) - 1
    others = f", and {more} more like it" if more == 1 else f", and {more} more layers" if more else ""
    raise ModelError(str(first) + others, hint="make_private does it" if all(one.automatic for one in found) else "")


def make_private(module: nn.Module) -> nn.Module:
    """Return a copy of a model whose batch normalisations are group normalisations.

    Scales and shifts are kept; running means, which were read off data, are not.

    Examples
    --------
    >>> make_private(nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)))[1].num_groups
    3
    """
    replaced = _replacement(module)
    if replaced is not None:
        return replaced
    changed = copy.deepcopy(module)
    found = {layer: _replacement(layer) for layer in changed.modules()}  # one layer in two places stays one
    for name, layer in list(changed.named_modules(remove_duplicate=False)):
        new = found[layer]
        if new is not None:
            parent, _, last = name.rpartition(".")
            setattr(changed.get_submodule(parent), last, new)
    check(changed)
    return changed


def refuse_mixing(module: nn.Module, example: Tensor) -> None:
    """Refuse a model in which what comes out for one sample depends on another, or that keeps what it reads.

    It is run on random inputs like the example, never on the data. What comes out for the first sample,
    and what the model keeps, must not change with the others, and the gradient of the first output with
    respect to the others must be exactly 0.
    """
    inputs = like(example, 3)
    beside = inputs.clone()
    beside[1:] = 1
    if not inputs.is_floating_point():
        inputs[1:] = 0
    (first, found, kept), (other, _, also) = _tried(module, inputs), _tried(module, beside)
    for name, one in kept.items():
        if not same(one, also[name]):
            raise ModelError(f"the model keeps '{name}', which it reads off the data and which no noise protects")
    if not same(first, other) or bool((found[1:] != 0).any()):
        raise ModelError("the model mixes the samples of a batch: an output depends on another sample's input")


def _tried(module: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Return a number of the first output, its gradient, and what the model keeps afterwards."""
    inputs = inputs.detach().requires_grad_(inputs.is_floating_point())
    with undisturbed(module, inputs):
        torch.manual_seed(0)  # dropout drops the same every time
        first = _projected(module(inputs), len(inputs))[0]
        found = None
        if inputs.requires_grad and first.requires_grad:
            (found,) = torch.autograd.grad(first, inputs, allow_unused=True)
        kept = {name: one.clone() for name, one in module.named_buffers()}
    return first.detach(), torch.zeros_like(inputs) if found is None else found, kept


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors differ by rounding at most."""
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), 1e-4, 1e-6, equal_nan=True)


def refuse_wrong_gradients(clipper: Clipper, example: Tensor) -> None:
    """Refuse a model of which the gradients of single samples are not found as they are.

    A weight that is used past its layer, or by code that torch's hooks do not see, would be missed. So
    the gradients of random samples like the example (never of the data) are compared with torch's own,
    sample by sample, for batches of two sizes: what has the length of one by chance has not that of the other.
    """
    samples = len(example) // clipper.views
    with undisturbed(clipper.module, example):
        clipper.module.eval()  # without dropout
        try:
            for count in sorted({min(samples, 2), min(samples, 3)}):
                _compare(clipper, like(example, count * clipper.views), count)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            raise ModelError(
                "the model uses torch's checkpoint with use_reentrant=True", hint="set it to False"
            ) from error


def _compare(clipper: Clipper, inputs: Tensor, count: int) -> None:
    def loss(outputs: Any) -> Tensor:
        return _projected(outputs, len(inputs))

    torch.manual_seed(0)  # whatever is drawn on the way is drawn again
    for at, (found, length) in enumerate(clipper.single(inputs, loss)):
        torch.manual_seed(0)
        own = loss(clipper.module(inputs)).view(count, -1).mean(1)[at]
        ordinary = torch.autograd.grad(own, clipper.parameters, allow_unused=True)
        _refuse_difference(clipper.names, found, length, ordinary)


def _refuse_difference(names: list[str], found: list[Tensor], length: Tensor, own: tuple[Tensor | None, ...]) -> None:
    """Compare a sample's gradient and norm with torch's: what is missed is more than half precision loses."""
    expected = [torch.zeros_like(one) if other is None else other for one, other in zip(found, own, strict=True)]
    total = torch.stack([one.norm() for one in expected]).norm()
    if not bool(total.isfinite()):
        return
    off = [float((one - other).norm() - 0.05 * other.norm()) for one, other in zip(found, expected, strict=True)]
    if max(off) > 0.01 * float(total) or float(length) < 0.95 * float(total):
        raise ModelError(
            f"the gradient of weight '{names[off.index(max(off))]}' is not found sample by sample",
            hint="use a weight only by calling the layer that has it, and keep the samples apart",
        )


def like(example: Tensor, count: int) -> Tensor:
    """Return random samples of the shape of the example: shares from 0 to 1, or the words 0 and 1."""
    shape = (count, *example.shape[1:])
    random = torch.rand(shape, generator=torch.Generator().manual_seed(count))
    return (random if example.is_floating_point() else random.round()).to(example.device, example.dtype)


def _projected(outputs: Any, rows: int) -> Tensor:
    """Return one number per row of what a model gives; a plain sum would be the same for all shares, say."""
    found = [one.reshape(rows, -1) for one in tensors(outputs) if one.shape[:1] == (rows,) and one.is_floating_point()]
    if not found:
        raise ModelError(f"the model must give a tensor with one row per sample, got {type(outputs).__name__}")
    joined = torch.cat([one.float() for one in found], 1)
    return joined @ torch.arange(joined.shape[1], device=joined.device).float().cos()


@contextmanager
def undisturbed(module: nn.Module, example: Tensor) -> Iterator[None]:
    """Try a module, and leave it and torch's random numbers as they were."""
    modes = {part: part.training for part in module.modules()}
    buffers = {one: one.clone() for one in module.buffers()}
    devices = [example.device] if example.is_cuda else []
    try:
        with torch.random.fork_rng(devices), torch.enable_grad():
            yield
    finally:
        for part, training in modes.items():
            part.training = training
        with torch.no_grad():
            for one, before in buffers.items():
                one.copy_(before)


def _found(module: nn.Module) -> Iterator[Obstacle]:
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            new = _replacement(layer)
            yield Obstacle(
                name, f"{kind} mixes the samples of a batch", f"put {_told(new)} in its place" if new else "", bool(new)
            )
        elif isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats:
            yield Obstacle(name, f"{kind} keeps means of the data", "set track_running_stats=False", True)
        elif isinstance(layer, nn.MultiheadAttention) and not layer.batch_first:
            yield Obstacle(name, f"{kind} takes the first dimension for places, not samples", "set batch_first=True")
        elif isinstance(layer, nn.RNNBase):
            yield Obstacle(name, f"{kind} has no gradients of single samples yet", "use attention or convolutions")
        elif isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            yield Obstacle(name, f"{kind} with max_norm changes its weights by what it reads", "set max_norm=None")
        elif isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.scale_grad_by_freq:
            yield Obstacle(name, f"{kind} counts words over the whole batch", "set scale_grad_by_freq=False")
        elif isinstance(layer, nn.EmbeddingBag):
            yield Obstacle(name, f"{kind} has no gradients of single samples yet", "use Embedding and a mean")
        elif any(nn.parameter.is_lazy(one) for one in layer.parameters(recurse=False)):
            yield Obstacle(name, f"{kind} has no shape before its first batch", "give its sizes")


def _replacement(layer: nn.Module) -> nn.Module | None:
    """Return what takes the place of a layer, if that is clear."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        channels = layer.num_features
        # One channel alone, in one place, would be normalised to 0.
        most = 1 if isinstance(layer, nn.BatchNorm1d) else min(_GROUPS, channels // 2)
        groups = max((count for count in range(1, most + 1) if channels % count == 0), default=1)
        return _taking_over(layer, nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine))
    if isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats:
        return _taking_over(layer, type(layer)(layer.num_features, eps=layer.eps, affine=layer.affine))
    return None


def _taking_over(old: nn.Module, new: nn.Module) -> nn.Module:
    """Give a new layer the weights of the old one, trained or frozen as they are."""
    for name, weight in old.named_parameters():
        setattr(new, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
    return new.train(old.training)


def _told(layer: nn.Module) -> str:
    assert isinstance(layer, nn.GroupNorm | nn.modules.instancenorm._InstanceNorm)
    return f"GroupNorm({layer.num_groups}, {layer.num_channels})" if isinstance(layer, nn.GroupNorm) else str(layer)

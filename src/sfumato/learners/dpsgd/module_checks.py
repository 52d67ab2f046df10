"""Check that a model can be trained privately, and replace layers that prevent it.

A sample's gradient must depend on that sample alone. A layer that mixes the samples of a batch (batch normalisation)
makes every gradient depend on all samples, and then clipping does not bound the effect of one.
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
    "make_private",
    "nearly_equal",
    "obstacles",
    "preserving_state",
    "random_like",
    "refuse_mixing",
    "refuse_wrong_gradients",
    "seed_torch",
]

_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_GROUPS = 32  # the default of Wu and He (2018)


@dataclass(frozen=True)
class Obstacle:
    """A layer that prevents private training."""

    name: str
    """The name of the layer in the model."""
    reason: str
    replacement: str = ""
    """How to fix or replace the layer; empty if there is no way."""
    automatic: bool = False
    """Whether `make_private` replaces it."""

    def __str__(self) -> str:
        return f"layer '{self.name}': {self.reason}" + (f"; {self.replacement}" if self.replacement else "")


def obstacles(module: nn.Module) -> tuple[Obstacle, ...]:
    """Return every layer that prevents private training of a model.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    >>> print(*obstacles(model), sep="\\n")
    layer '1': BatchNorm2d mixes the samples of a batch; put GroupNorm(4, 8) in its place
    """
    return tuple(_obstacles(module))


def check(module: nn.Module) -> None:
    """Raise a `ModelError` that names the first obstacle if a model cannot be trained privately.

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
    """Return a copy of a model with group normalisation in place of batch normalisation.

    The copy keeps scales and shifts, but not running means, which were computed from data.

    Examples
    --------
    >>> make_private(nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)))[1].num_groups
    3
    """
    replaced = _replacement(module)
    if replaced is not None:
        return replaced
    changed = copy.deepcopy(module)
    replacements = {layer: _replacement(layer) for layer in changed.modules()}  # a shared layer stays shared
    for name, layer in list(changed.named_modules(remove_duplicate=False)):
        new = replacements[layer]
        if new is not None:
            parent, _, last = name.rpartition(".")
            setattr(changed.get_submodule(parent), last, new)
    check(changed)
    return changed


def refuse_mixing(module: nn.Module, example: Tensor) -> None:
    """Raise a `ModelError` if the output for one sample depends on another, or if the model stores what it reads.

    The model is run on random inputs shaped like the example, never on the data. The output for the first sample and
    the buffers of the model must not change with the other samples, and the gradient of the first output with respect
    to the other samples must be exactly 0.
    """
    inputs = random_like(example, 3)
    beside = inputs.clone()
    beside[1:] = 1
    if not inputs.is_floating_point():
        inputs[1:] = 0
    (first, gradient, buffers), (other, _, others) = _probe(module, inputs), _probe(module, beside)
    for name, one in buffers.items():
        if not nearly_equal(one, others[name]):
            raise ModelError(f"the model computes the buffer '{name}' from the data, and no noise protects it")
    if not nearly_equal(first, other) or bool((gradient[1:] != 0).any()):
        raise ModelError("the model mixes the samples of a batch: an output depends on another sample's input")


def _probe(module: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Return a projection of the first output, its gradient, and the buffers of the model afterwards."""
    inputs = inputs.detach().requires_grad_(inputs.is_floating_point())
    with preserving_state(module, inputs):
        seed_torch(0)  # the same dropout every time
        first = _project(module(inputs), len(inputs))[0]
        gradient = None
        if inputs.requires_grad and first.requires_grad:
            (gradient,) = torch.autograd.grad(first, inputs, allow_unused=True)
        buffers = {name: one.clone() for name, one in module.named_buffers()}
    return first.detach(), torch.zeros_like(inputs) if gradient is None else gradient, buffers


def seed_torch(seed: int) -> None:
    """Seed the generators of all devices in use; for the others, torch.manual_seed would record a stack trace."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def nearly_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), 1e-4, 1e-6, equal_nan=True)


def refuse_wrong_gradients(clipper: Clipper, example: Tensor) -> None:
    """Raise a `ModelError` if the clipper computes the gradient of a single sample wrongly.

    A weight that is used outside its layer, or by code that torch's hooks do not see, would be missed. So the
    gradients of random samples shaped like the example (never of the data) are compared with torch's own, sample by
    sample. Two batch sizes are tried, because a dimension may equal one of them by chance.
    """
    samples = len(example) // clipper.views
    with preserving_state(clipper.module, example):
        clipper.module.eval()  # without dropout
        try:
            for count in sorted({min(samples, 2), min(samples, 3)}):
                _compare(clipper, random_like(example, count * clipper.views), count)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            raise ModelError(
                "the model uses torch's checkpoint with use_reentrant=True", hint="set it to False"
            ) from error


def _compare(clipper: Clipper, inputs: Tensor, count: int) -> None:
    def loss(outputs: Any) -> Tensor:
        return _project(outputs, len(inputs))

    seed_torch(0)  # the same random numbers in both passes
    for at, (found, length) in enumerate(clipper.per_sample(inputs, loss)):
        seed_torch(0)
        own = loss(clipper.module(inputs)).view(count, -1).mean(1)[at]
        ordinary = torch.autograd.grad(own, clipper.parameters, allow_unused=True)
        _refuse_difference(clipper.names, found, length, ordinary)


def _refuse_difference(names: list[str], found: list[Tensor], length: Tensor, own: tuple[Tensor | None, ...]) -> None:
    """Compare a sample's gradient and norm with torch's, with a tolerance for half precision."""
    expected = [torch.zeros_like(one) if other is None else other for one, other in zip(found, own, strict=True)]
    total = torch.stack([one.norm() for one in expected]).norm()
    if not bool(total.isfinite()):
        return
    off = [float((one - other).norm() - 0.05 * other.norm()) for one, other in zip(found, expected, strict=True)]
    if max(off) > 0.01 * float(total) or float(length) < 0.95 * float(total):
        raise ModelError(
            f"the gradient of weight '{names[off.index(max(off))]}' cannot be computed per sample",
            hint="use a weight only by calling its layer, and keep samples separate",
        )


def random_like(example: Tensor, count: int) -> Tensor:
    """Return random samples in the shape of the example: floats from 0 to 1, or the token ids 0 and 1."""
    shape = (count, *example.shape[1:])
    random = torch.rand(shape, generator=torch.Generator().manual_seed(count))
    return (random if example.is_floating_point() else random.round()).to(example.device, example.dtype)


def _project(outputs: Any, rows: int) -> Tensor:
    """Return one number per row of the outputs; not a plain sum, which is constant for probabilities."""
    parts = [one.reshape(rows, -1) for one in tensors(outputs) if one.shape[:1] == (rows,) and one.is_floating_point()]
    if not parts:
        raise ModelError(f"the model must return a tensor with one row per sample, got {type(outputs).__name__}")
    joined = torch.cat([one.float() for one in parts], 1)
    return joined @ torch.arange(joined.shape[1], device=joined.device).float().cos()


@contextmanager
def preserving_state(module: nn.Module, example: Tensor) -> Iterator[None]:
    """Restore the modes and buffers of a module, and torch's random state, afterwards."""
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


def _obstacles(module: nn.Module) -> Iterator[Obstacle]:
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            new = _replacement(layer)
            fix = ""
            if isinstance(new, nn.GroupNorm):
                fix = f"put GroupNorm({new.num_groups}, {new.num_channels}) in its place"
            yield Obstacle(name, f"{kind} mixes the samples of a batch", fix, automatic=bool(fix))
        elif isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats:
            yield Obstacle(name, f"{kind} keeps means of the data", "set track_running_stats=False", True)
        elif isinstance(layer, nn.MultiheadAttention) and not layer.batch_first:
            reason = f"{kind} expects the sequence, not the batch, in the first dimension"
            yield Obstacle(name, reason, "set batch_first=True")
        elif isinstance(layer, nn.RNNBase):
            yield Obstacle(name, f"{kind} has no per-sample gradients yet", "use attention or convolutions")
        elif isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            yield Obstacle(name, f"{kind} with max_norm changes its weights in the forward pass", "set max_norm=None")
        elif isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.scale_grad_by_freq:
            yield Obstacle(name, f"{kind} counts words over the whole batch", "set scale_grad_by_freq=False")
        elif isinstance(layer, nn.EmbeddingBag):
            yield Obstacle(name, f"{kind} has no per-sample gradients yet", "use Embedding and a mean")
        elif any(nn.parameter.is_lazy(one) for one in layer.parameters(recurse=False)):
            yield Obstacle(name, f"{kind} has no shape before its first batch", "give its sizes")


def _replacement(layer: nn.Module) -> nn.Module | None:
    """Return the layer that can replace this one; None if it need not or cannot be replaced."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        channels = layer.num_features
        # A group of one channel at one position would be normalised to 0.
        most = 1 if isinstance(layer, nn.BatchNorm1d) else min(_GROUPS, channels // 2)
        groups = max((count for count in range(1, most + 1) if channels % count == 0), default=1)
        return _with_weights_of(layer, nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine))
    if isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats:
        return _with_weights_of(layer, type(layer)(layer.num_features, eps=layer.eps, affine=layer.affine))
    return None


def _with_weights_of(old: nn.Module, new: nn.Module) -> nn.Module:
    """Copy the weights of the old layer, trained or frozen, into the new one."""
    for name, weight in old.named_parameters():
        setattr(new, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
    return new.train(old.training)

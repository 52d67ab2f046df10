"""Whether a model can be trained privately: what must be replaced, and by what.

A sample's gradient must be its own. A layer that mixes the samples of a batch (batch
normalisation) makes every gradient depend on all of them, and then clipping bounds nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._errors import ModelError

__all__ = ["Obstacle", "check", "make_private", "obstacles", "refuse_mixing"]

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
    sfumato._errors.ModelError: layer '1': BatchNorm1d mixes the samples of a batch; put GroupNorm(1, 8) in its \
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
    for name, layer in list(changed.named_modules()):
        new = _replacement(layer)
        if new is not None:
            parent, _, last = name.rpartition(".")
            setattr(changed.get_submodule(parent), last, new)
    check(changed)
    return changed


def refuse_mixing(module: nn.Module, example: Tensor) -> None:
    """Refuse a model in which what comes out for one sample depends on another.

    It is run on random inputs like the example (never on the data), and the gradient of the first
    sample's output with respect to the others must be exactly 0.
    """
    like = example[:1].detach()
    if not like.is_floating_point():
        _refuse_other_outputs(module, like)
        return
    inputs = torch.randn(3, *like.shape[1:], dtype=like.dtype, device=like.device, requires_grad=True)
    first = _first_output(module(inputs))
    if not first.requires_grad:
        return
    (found,) = torch.autograd.grad(first[0].sum(), inputs, allow_unused=True)
    if found is not None and bool((found[1:] != 0).any()):
        raise ModelError("the model mixes the samples of a batch: an output depends on another sample's input")


def _refuse_other_outputs(module: nn.Module, like: Tensor) -> None:
    """Compare outputs of words beside other words: whole numbers have no gradient."""
    alone = torch.zeros(2, *like.shape[1:], dtype=like.dtype, device=like.device)
    beside = alone.clone()
    beside[1] = 1
    training = module.training
    module.eval()  # dropout would differ
    try:
        with torch.no_grad():
            same, other = _first_output(module(alone))[0], _first_output(module(beside))[0]
    finally:
        module.train(training)
    if not torch.allclose(same, other, rtol=1e-4, atol=1e-5):
        raise ModelError("the model mixes the samples of a batch: an output depends on another sample's input")


def _first_output(outputs: Any) -> Tensor:
    found = outputs[0] if isinstance(outputs, tuple | list) else outputs
    if not isinstance(found, Tensor) or found.dim() < 1:
        raise ModelError(f"the model must give a tensor with one row per sample, got {type(found).__name__}")
    return found


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
        new = nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)
        if not layer.affine:
            return new
        new = new.to(layer.weight.device, layer.weight.dtype)
        new.load_state_dict({"weight": layer.weight.detach(), "bias": layer.bias.detach()})
        return new
    if isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats:
        new_norm = type(layer)(layer.num_features, eps=layer.eps, affine=layer.affine)
        if layer.affine:
            new_norm.load_state_dict({"weight": layer.weight.detach(), "bias": layer.bias.detach()})
        return new_norm
    return None


def _told(layer: nn.Module) -> str:
    assert isinstance(layer, nn.GroupNorm | nn.modules.instancenorm._InstanceNorm)
    return f"GroupNorm({layer.num_groups}, {layer.num_channels})" if isinstance(layer, nn.GroupNorm) else str(layer)

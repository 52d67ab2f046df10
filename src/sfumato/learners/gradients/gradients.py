"""Gradients of single samples: of one module, from what went in and what came back.

This is the common ground of all layers; `matrix` and `layers` hold the layers themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = [
    "CHAIN",
    "IN_BLOCKS",
    "ROUNDING",
    "Call",
    "Factors",
    "Layer",
    "kernels_for",
    "norm",
    "rounding",
    "summed_products",
    "tensors",
]

CHAIN = 64  # how many samples are added up in the floats of the weights, before the sums of such blocks are in 64 bits
IN_BLOCKS = 1024  # beyond so many samples, all products are in 64 bits
_AT_ONCE = 4096  # rows that are brought to 64 bits at once
ROUNDING = 16  # units in the last place that a product of Gram matrices may be off


@dataclass
class Call:
    """One use of a layer: what went in, and later what came back."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    edges: tuple[Any, ...]
    """Where the outputs are in autograd's graph, before anything changes them in place."""
    shapes: tuple[torch.Size, ...]
    given: tuple[int, ...] = (0,)
    """Which of the outputs those are: not all lead back to weights."""
    versions: tuple[int, ...] = ()
    """How often each input had been changed in place when the layer read it."""
    random: Tensor | None = None
    """The state of torch's random numbers before, where they are needed again."""
    gradients: tuple[Tensor, ...] = ()
    kept: Any = None
    """What was found on the way to the norms and serves the sum."""
    by_row: bool = False
    """Whether it was found for each row of a kernel."""


class Layer(ABC):
    """How the gradients of single samples of one module are found.

    ``views`` says how many views of a sample follow each other in a batch; ``memory`` is shared by all
    layers of a model.
    """

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        self.module: Any = module
        self.views = views
        self.parameters = [one for one in module.parameters() if one.requires_grad]
        self._memory = {} if memory is None else memory

    def borrowed(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return memory that is used again in the next step: getting it anew takes longer than filling it."""
        (like, *_), size = self.parameters, math.prod(shape)
        held = self._memory.get(name)
        if held is None or held.numel() < size or held.dtype != like.dtype or held.device != like.device:
            held = self._memory[name] = torch.empty(size, dtype=like.dtype, device=like.device)
        return held[:size].view(*shape)

    @abstractmethod
    def per_sample(self, call: Call) -> list[Tensor]:
        """Return each sample's gradient, per parameter that is trained."""

    def norms(self, call: Call) -> list[Tensor]:
        """Return norms of each sample's gradient: those of its parts, if it is found in parts."""
        call.kept = self.per_sample(call)
        return [norm(one) for one in call.kept]

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Return the sum of the gradients, each times the factor of its sample, per parameter."""
        return [factors.summed(one) for one in call.kept]

    @property
    def is_bounded(self) -> bool:
        """Whether sums over samples go through `summed_products`, whose rounding is bounded."""
        return True


def norm(values: Tensor) -> Tensor:
    """Return the norm of what belongs to each sample."""
    return torch.linalg.vector_norm(values.flatten(1), dim=1)


class Factors:
    """A factor for every sample, by which its gradient counts.

    A sample whose gradient is not finite has the factor 0. Since 0 times infinity is not 0, where
    such samples are possible (``doubtful``) their numbers are put to 0 first.
    """

    def __init__(self, values: Tensor, *, doubtful: bool) -> None:
        self.values, self.doubtful = values, doubtful

    def finite(self, values: Tensor) -> Tensor:
        """Put 0 where a number is not finite."""
        fused = kernels_for(values)
        if fused is not None:
            return fused.masked(values, self.values, scale=False)
        return torch.nan_to_num(values, 0.0, 0.0, 0.0) if self.doubtful and values.is_floating_point() else values

    def scaled(self, values: Tensor) -> Tensor:
        """Multiply what belongs to each sample, all its views, by its factor."""
        fused = kernels_for(values)
        if fused is not None:
            return fused.masked(values, self.values, scale=True)
        each = self.values
        if len(values) > len(each):
            each = each.repeat_interleave(len(values) // len(each))
        return self.finite(values) * each.view(-1, *[1] * (values.dim() - 1))

    def summed(self, values: Tensor) -> Tensor:
        """Add what belongs to the samples, each times its factor."""
        return summed_products(self.values[:, None], self.finite(values.flatten(1))).view(values.shape[1:])


def summed_products(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left.T @ right``, a sum over rows, so that its rounding has a bound whatever the numbers are.

    Numbers that are added up one after another in 32 bits can be off by their count times a unit in the last place of
    the sum, and one more number at the beginning can change all of that: with 200,000 of them by hundreds of clips. So
    only `CHAIN` rows are added up in 32 bits, and all rows in 64 bits where there are many.
    """
    rows = len(left)
    if rows <= CHAIN or left.dtype == torch.float64:
        return left.t() @ right
    if rows > IN_BLOCKS:
        parts = zip(left.split(_AT_ONCE), right.split(_AT_ONCE), strict=True)
        total = sum(one.double().t() @ other.double() for one, other in parts)
        return torch.as_tensor(total).to(left.dtype)
    whole = rows - rows % CHAIN
    blocks = [one[:whole].unflatten(0, (-1, CHAIN)) for one in (left, right)]
    found = torch.bmm(blocks[0].mT, blocks[1]).sum(0, dtype=torch.float64)
    return found.add_(left[whole:].t() @ right[whole:]).to(left.dtype)


def rounding(first: Tensor, second: Tensor) -> Tensor:
    """Return by how much the product of two Gram matrices can be too small for its rounding.

    Where the places of a sample cancel each other, their products are large and the sum of them is
    small: without this, the norm of such a sample could be taken for 0 and its gradient not be clipped.
    """
    traces = [one.diagonal(dim1=1, dim2=2).sum(1) for one in (first, second)]
    return traces[0] * traces[1] * (ROUNDING * torch.finfo(second.dtype).eps)


def kernels_for(values: Tensor) -> Any:
    """Return the kernels of a GPU, if the values are on one and Triton is there."""
    if not values.is_cuda or values.dtype != torch.float32:
        return None
    try:
        from sfumato.learners.gpu import triton_kernels as fused
    except ImportError:
        return None
    return fused


def tensors(outputs: Any) -> tuple[Tensor, ...]:
    """Return the tensors among what a module gives."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(one for one in tree_leaves(outputs) if isinstance(one, Tensor))

"""Per-sample gradients of one module from its inputs and output gradients: the base of all layers.

`matrix` and `layers` implement the layers.
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

from sfumato.learners.gradients.people import People

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
    "rounding_of",
    "summed_products",
    "tensors",
]

CHAIN = 64  # samples per block that is added up in the type of the weights; the sums of blocks use 64 bits
IN_BLOCKS = 1024  # beyond this many samples, all products use 64 bits
_AT_ONCE = 4096  # rows converted to 64 bits at once
ROUNDING = 16  # units in the last place that a product of Gram matrices may be off


@dataclass
class Call:
    """One call of a layer: its inputs, and after the backward pass its output gradients."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    edges: tuple[Any, ...]
    """The outputs in autograd's graph, before anything changes them in place."""
    shapes: tuple[torch.Size, ...]
    given: tuple[int, ...] = (0,)
    """The positions of these outputs; others do not depend on weights."""
    versions: tuple[int, ...] = ()
    """How often each input had been changed in place when the layer read it."""
    random: Tensor | None = None
    """Torch's random state before the call, if the layer is to be run again."""
    gradients: tuple[Tensor, ...] = ()
    saved: Any = None
    """Gradients computed for the norms and reused for the sum."""
    by_row: bool = False
    """Whether the saved gradients are split by rows of a kernel."""
    people: People | None = None
    """Whose rows the samples are, if a person may have several."""


class Layer(ABC):
    """Computes the per-sample gradients of one module.

    ``views`` is the number of consecutive rows that are views of one sample; all layers of a model share ``memory``.
    """

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        self.module: Any = module
        self.views = views
        self.parameters = [one for one in module.parameters() if one.requires_grad]
        self._memory = {} if memory is None else memory

    def buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a buffer that is reused in every step, because allocating takes longer than filling."""
        (like, *_), size = self.parameters, math.prod(shape)
        buffer = self._memory.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._memory[name] = torch.empty(size, dtype=like.dtype, device=like.device)
        return buffer[:size].view(*shape)

    @abstractmethod
    def per_sample(self, call: Call) -> list[Tensor]:
        """Return each sample's gradient, per trained parameter."""

    def per_person(self, call: Call) -> list[Tensor]:
        """Return each person's gradient, per trained parameter; a sample is a person if nobody has several."""
        gradients = self.per_sample(call)
        return gradients if call.people is None else [call.people.sum(one) for one in gradients]

    def norms(self, call: Call) -> list[Tensor]:
        """Return norms per person, which together make up the norm of the gradient."""
        call.saved = self.per_person(call)
        return [norm(one) for one in call.saved]

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Return the sum of the gradients weighted by the factors, per trained parameter."""
        return [factors.weighted_sum(one) for one in call.saved]

    @property
    def is_bounded(self) -> bool:
        """Whether sums over samples use `summed_products`, whose rounding error is bounded."""
        return True


def norm(values: Tensor) -> Tensor:
    """Return the Euclidean norm of each row."""
    return torch.linalg.vector_norm(values.flatten(1), dim=1)


class Factors:
    """The factor by which each person's or sample's gradient is multiplied.

    One whose gradient is not finite has factor 0. Because 0 times infinity is not 0, numbers that are not finite
    are set to 0 first where they are possible (``doubtful``).
    """

    def __init__(self, values: Tensor, *, doubtful: bool) -> None:
        self.values, self.doubtful = values, doubtful

    def of_samples(self, people: People | None) -> Factors:
        """Return the factor of every sample: that of its person."""
        return self if people is None else Factors(self.values[people.owners], doubtful=self.doubtful)

    def finite(self, values: Tensor) -> Tensor:
        """Return the values with 0 in place of numbers that are not finite."""
        fused = kernels_for(values)
        if fused is not None:
            return fused.mask(values, self.values, scale=False)
        return torch.nan_to_num(values, 0.0, 0.0, 0.0) if self.doubtful and values.is_floating_point() else values

    def scale(self, values: Tensor) -> Tensor:
        """Multiply the rows of each sample, one per view, by its factor."""
        fused = kernels_for(values)
        if fused is not None:
            return fused.mask(values, self.values, scale=True)
        each = self.values
        if len(values) > len(each):
            each = each.repeat_interleave(len(values) // len(each))
        return self.finite(values) * each.view(-1, *[1] * (values.dim() - 1))

    def weighted_sum(self, values: Tensor) -> Tensor:
        """Return the sum of the rows, each times its factor."""
        return summed_products(self.values[:, None], self.finite(values.flatten(1))).view(values.shape[1:])


def summed_products(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left.T @ right``, a sum over rows, with a bounded rounding error whatever the numbers are.

    Sequential addition in 32 bits can be off by the number of terms times a unit in the last place of the sum, and one
    more term at the start can change the whole error: with 200,000 terms by hundreds of clips. So at most `CHAIN` rows
    are added up in 32 bits, and large sums use 64 bits throughout.
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
    product = torch.bmm(blocks[0].mT, blocks[1]).sum(0, dtype=torch.float64)
    return product.add_(left[whole:].t() @ right[whole:]).to(left.dtype)


def rounding(first: Tensor, second: Tensor) -> Tensor:
    """Return how much too small the product of two Gram matrices can be because of rounding.

    Where the positions of a sample cancel, their products are large and the sum is small: without this margin, the
    norm of such a sample could round to 0 and its gradient would not be clipped.
    """
    return rounding_of(*(one.diagonal(dim1=1, dim2=2).sum(1) for one in (first, second)))


def rounding_of(first: Tensor, second: Tensor) -> Tensor:
    """Return the same from the traces of two Gram matrices."""
    return first * second * (ROUNDING * torch.finfo(second.dtype).eps)


def kernels_for(values: Tensor) -> Any:
    """Return the module of Triton kernels if the values are on a GPU and Triton is installed, else None."""
    if not values.is_cuda or values.dtype != torch.float32:
        return None
    try:
        from sfumato.learners.gpu import triton_kernels as fused
    except ImportError:
        return None
    return fused


def tensors(outputs: Any) -> tuple[Tensor, ...]:
    """Return all tensors in the outputs of a module."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(one for one in tree_leaves(outputs) if isinstance(one, Tensor))

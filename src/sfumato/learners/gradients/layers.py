"""Per-sample gradients of normalisation, embedding and arbitrary layers, and the choice of a layer's method."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_unflatten

from sfumato.errors import ModelError
from sfumato.learners.gradients.gradients import (
    Call,
    Factors,
    Layer,
    kernels_for,
    rounding,
    rounding_of,
    tensors,
)
from sfumato.learners.gradients.matrix import Convolution, Linear

__all__ = ["Embedding", "Normalisation", "OtherModule", "layer_of"]


class Normalisation(Layer):
    """A layer that normalises within a sample and then scales and shifts."""

    def per_sample(self, call: Call) -> list[Tensor]:
        """Sum the output gradients, and their products with the normalised inputs, over all positions."""
        module: Any = self.module
        (back,), inputs = call.gradients, call.inputs[0]
        fused = kernels_for(inputs)
        trained = [one is not None and one.requires_grad for one in (module.weight, getattr(module, "bias", None))]
        if (
            isinstance(module, nn.GroupNorm)
            and fused is not None
            and inputs[0].numel() // module.num_groups <= fused.LARGEST
        ):
            pair = fused.group_norm_gradients(inputs, back, module.num_groups, module.eps)
            return [self._sum_positions(one) for one, wanted in zip(pair, trained, strict=True) if wanted]
        gradients = [self._sum_positions(back * self._normalise(inputs))] if trained[0] else []
        return [*gradients, self._sum_positions(back)] if trained[1] else gradients

    def _normalise(self, inputs: Tensor) -> Tensor:
        module: Any = self.module
        if isinstance(module, nn.GroupNorm):
            return functional.group_norm(inputs, module.num_groups, eps=module.eps)
        if isinstance(module, nn.LayerNorm):
            return functional.layer_norm(inputs, module.normalized_shape, eps=module.eps)
        if isinstance(module, nn.RMSNorm):
            return functional.rms_norm(inputs, module.normalized_shape, eps=module.eps)
        return functional.instance_norm(inputs, eps=module.eps)

    def _sum_positions(self, values: Tensor) -> Tensor:
        shape = self.module.weight.shape
        if isinstance(self.module, nn.LayerNorm | nn.RMSNorm):  # scales the last dimensions
            return values.reshape(len(values) // self.views, -1, *shape).sum(1)
        summed = values.sum(tuple(range(2, values.dim()))) if values.dim() > 2 else values
        return summed.unflatten(0, (-1, self.views)).sum(1) if self.views > 1 else summed


class Embedding(Layer):
    """A table of vectors; every position of a sample looks one up."""

    def norms(self, call: Call) -> list[Tensor]:
        """Return norms from Gram matrices; two positions have a product only if they look up the same vector."""
        taken, back = self._lookups(call)
        if call.people is not None:
            same = (taken.unsqueeze(2) == call.people.windows(taken.unsqueeze(2)).mT).to(back.dtype)
            squares, *traces = call.people.inner_products(same, call.people.gram(back, self.buffer))
            return [squares.clamp(min=0).add_(rounding_of(*traces)).sqrt_()]
        same = (taken.unsqueeze(1) == taken.unsqueeze(2)).to(back.dtype)
        gram = torch.bmm(back, back.mT)
        return [(same * gram).sum((1, 2)).clamp_(min=0).add_(rounding(same, gram)).sqrt_()]

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add each output gradient to the vector that was looked up."""
        taken, back = self._lookups(call)
        table = torch.zeros_like(self.module.weight, dtype=torch.float64)
        scaled = factors.of_samples(call.people).scale(back)
        return [table.index_add_(0, taken.flatten(), scaled.flatten(0, 1).double()).to(back.dtype)]

    def per_sample(self, call: Call) -> list[Tensor]:
        """Add each output gradient to the vector that was looked up, in a table per sample."""
        taken, back = self._lookups(call)
        tables = back.new_zeros(len(back), *self.module.weight.shape)
        return [tables.scatter_add_(1, taken.unsqueeze(2).expand_as(back), back)]

    def _lookups(self, call: Call) -> tuple[Tensor, Tensor]:
        """Return the index and the output gradient at each position of each sample."""
        module: Any = self.module
        taken = call.inputs[0].reshape(len(call.inputs[0]) // self.views, -1)
        back = call.gradients[0].reshape(*taken.shape, -1)
        if module.padding_idx is not None:
            back = back * (taken != module.padding_idx).unsqueeze(2)
        return taken, back


class OtherModule(Layer):
    """Any other module: run again per sample, vectorised with `torch.func.vmap`."""

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(module, views, memory)
        self._whole: set[int] = set()  # positions of arguments without a row per sample: their length once differed

    def per_sample(self, call: Call) -> list[Tensor]:
        """Backpropagate the output gradients of each sample to the weights."""
        frozen = {name: one.detach() for name, one in self.module.named_parameters() if not one.requires_grad}
        trained = {name: one.detach() for name, one in self.module.named_parameters() if one.requires_grad}
        buffers = dict(self.module.named_buffers())
        samples = len(call.gradients[0])
        leaves, structure = tree_flatten((call.inputs, call.options))
        leaves = [one.detach() if isinstance(one, Tensor) else one for one in leaves]
        sized = {at: len(one) for at, one in enumerate(leaves) if isinstance(one, Tensor) and one.dim() > 0}
        self._whole.update(at for at, size in sized.items() if size != samples)
        split = [at in sized and at not in self._whole for at in range(len(leaves))]

        def pulled(values: tuple[Any, ...], back: tuple[Tensor, ...]) -> dict[str, Tensor]:
            alone = [one.unsqueeze(0) if by else one for one, by in zip(values, split, strict=True)]

            def run(weights: dict[str, Tensor]) -> tuple[Tensor, ...]:
                state = {**weights, **frozen, **buffers}
                inputs, options = tree_unflatten(alone, structure)
                outputs = tensors(torch.func.functional_call(self.module, state, inputs, options))
                return tuple(outputs[at].squeeze(0) for at in call.given)

            back_to_weights = torch.func.vjp(run, trained)[1]
            (gradients,) = back_to_weights(back)
            return dict(gradients)

        along = (tuple(0 if by else None for by in split), 0)
        with warnings.catch_warnings(), torch.random.fork_rng([], enabled=call.random is not None):
            warnings.filterwarnings("ignore", "There is a performance drop")  # vmap runs some layers in a loop
            if call.random is not None:  # repeat the same dropout
                torch.set_rng_state(call.random)
            try:
                result = torch.func.vmap(pulled, in_dims=along, randomness="different")(tuple(leaves), call.gradients)
            except RuntimeError as error:
                if "vmap" not in str(error):
                    raise
                raise ModelError(
                    f"a layer {type(self.module).__name__} cannot be run per sample with torch.func.vmap",
                    hint="it must not branch on its inputs or change them in place",
                ) from error
        return [one.unflatten(0, (-1, self.views)).sum(1) for one in result.values()]


_KINDS: dict[type[nn.Module], type[Layer]] = {
    nn.Linear: Linear,
    nn.Conv1d: Convolution,
    nn.Conv2d: Convolution,
    nn.Conv3d: Convolution,
    nn.GroupNorm: Normalisation,
    nn.LayerNorm: Normalisation,
    nn.RMSNorm: Normalisation,
    nn.InstanceNorm1d: Normalisation,
    nn.InstanceNorm2d: Normalisation,
    nn.InstanceNorm3d: Normalisation,
    nn.Embedding: Embedding,
}


def layer_of(module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> Layer:
    """Return the per-sample gradient method for a module.

    A subclass of a known layer counts as unknown, because its ``forward`` may do anything.

    Examples
    --------
    >>> type(layer_of(nn.Linear(3, 2))).__name__
    'Linear'
    >>> type(layer_of(nn.Bilinear(3, 3, 2))).__name__
    'OtherModule'
    """
    plain = {name for name, _ in module.named_parameters()} <= {"weight", "bias"}
    return _KINDS.get(type(module) if plain else nn.Module, OtherModule)(module, views, memory)

"""Gradients of single samples, layer by layer, from what went in and what came back.

A layer that is linear in its weights, as all common ones are, has for a sample the gradient
``G^T U``: U holds the inputs that the weights met, in T places, and G what came back to the
outputs there. So the norm of that gradient follows without a second backward pass, and even
without the gradient itself, from the Gram matrices of U and G (ghost norm: Goodfellow 2015, Li
et al. 2022), and the sum of all gradients, each scaled by a factor of its sample, is one
ordinary weight gradient of scaled outputs (book-keeping: Bu et al. 2023). Which way to the norm
is cheaper depends on the layer: T (P + O) numbers against P O.

Several views of a sample (augmentations) give one gradient: their places are put together
before a norm is taken.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn import grad as weight_gradients
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["Call", "Factors", "Layer", "Unknown", "layer_of", "norm", "tensors"]


_SMALL = 16_384  # on a CPU, gradients of so many numbers are found faster than their norms alone
_ROUNDING = 16  # units in the last place that a product of Gram matrices may be off


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
        fused = _fused(values)
        if fused is not None:
            return fused.masked(values, self.values, scale=False)
        return torch.nan_to_num(values, 0.0, 0.0, 0.0) if self.doubtful and values.is_floating_point() else values

    def scaled(self, values: Tensor) -> Tensor:
        """Multiply what belongs to each sample, all its views, by its factor."""
        fused = _fused(values)
        if fused is not None:
            return fused.masked(values, self.values, scale=True)
        each = self.values
        if len(values) > len(each):
            each = each.repeat_interleave(len(values) // len(each))
        return self.finite(values) * each.view(-1, *[1] * (values.dim() - 1))

    def summed(self, values: Tensor) -> Tensor:
        """Add what belongs to the samples, each times its factor."""
        return (self.values @ self.finite(values.flatten(1))).view(values.shape[1:])


class Matrix(Layer):
    """A layer that multiplies by a matrix of O rows and P columns, in T places of every sample.

    Layers differ only in how the places are read off, and in the ordinary gradient of their weights.
    """

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(module, views, memory)
        self.groups = int(getattr(module, "groups", 1))
        bias = getattr(module, "bias", None)
        self.of_weight = bool(module.weight.requires_grad)
        self.of_bias = bias is not None and bool(bias.requires_grad)
        self.small = 0 if module.weight.is_cuda else _SMALL
        self.one = torch.ones_like(self.parameters[0].detach().flatten()[0])

    @property
    def margin(self) -> float:
        """How much the ordinary gradient can err, in products of the norms of U and G."""
        return 0.0

    @abstractmethod
    def places(self, call: Call) -> Tensor:
        """Return U: (samples * views, groups, T, P)."""

    @abstractmethod
    def returned(self, call: Call) -> Tensor:
        """Return G: (samples * views, groups, T, O)."""

    @abstractmethod
    def ordinary(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Return the ordinary gradient of the weights, for scaled gradients of the outputs."""

    def shaped(self, gradient: Tensor) -> Tensor:
        """Give gradients of the weights, (..., O, P), the shape of the weights."""
        return gradient.reshape(*gradient.shape[:-2], *self.module.weight.shape)

    def norms(self, call: Call) -> list[Tensor]:
        """Take the cheaper way: the Gram matrices of the places, or the gradients themselves."""
        back = self._together(self.returned(call))
        if not self.of_weight:
            return [self._of_bias(back)]
        count, high = back.shape[1:]
        wide = self.module.weight[0].numel()
        if count > 1 and (count * (wide + high) > wide * high or wide * high <= self.small):
            call.kept = self.direct(call, back)
            return [norm(one) for one in call.kept]
        met = self._together(self.places(call))
        fused = _fused(met)
        if count == 1:
            if fused is not None:
                return [self._over_groups(fused.outer_norms(met, back, float(self.of_bias)))]
            of_input = norm(met)
            if self.of_bias:
                of_input = torch.hypot(of_input, self.one.to(of_input))
            return [self._over_groups(of_input * norm(back))]
        grams = torch.bmm(met, met.mT), torch.bmm(back, back.mT)
        if fused is not None:
            found = fused.ghost_norms(*grams, max(self.margin, math.sqrt(_ROUNDING * torch.finfo(met.dtype).eps)))
        else:
            squares = torch.bmm(grams[0].flatten(1)[:, None], grams[1].flatten(1)[..., None]).flatten()
            found = squares.clamp_(min=0).add_(_rounding(*grams)).sqrt_()
            if self.margin:
                found = found + self.margin * norm(met) * norm(back)
        return [self._over_groups(found), *([self._of_bias(back)] if self.of_bias else [])]

    def direct(self, call: Call, back: Tensor) -> list[Tensor]:
        """Return the gradients of every sample, in parts that `assembled` puts together."""
        met = self._together(self.places(call))
        into = self.borrowed(f"kept {id(self)}", (len(met), back.shape[2], met.shape[2]))
        return self._gradients(met, back, into)

    def assembled(self, call: Call, parts: list[Tensor]) -> list[Tensor]:
        """Return sums of what `direct` gave as gradients of the parameters."""
        return self._shaped(parts)

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add the gradients that were kept, or take one ordinary weight gradient."""
        if call.kept is not None:
            return self.assembled(call, [factors.summed(one) for one in call.kept])
        scaled = factors.scaled(call.gradients[0])
        found = [self.ordinary(factors.finite(call.inputs[0]), scaled)] if self.of_weight else []
        return [*found, self.over_all(scaled)] if self.of_bias else found

    def per_sample(self, call: Call) -> list[Tensor]:
        """Multiply the two matrices of every sample."""
        return self._shaped(self._gradients(self._together(self.places(call)), self._together(self.returned(call))))

    @abstractmethod
    def over_all(self, scaled: Tensor) -> Tensor:
        """Sum what came back over all places of all samples."""

    def _gradients(self, met: Tensor, back: Tensor, into: Tensor | None = None) -> list[Tensor]:
        """Return the gradients of every sample, those of the weights as (samples, O, P)."""
        found = []
        if self.of_weight:
            product = torch.bmm(back.mT, met, out=into) if into is not None else torch.bmm(back.mT, met)
            found.append(product.unflatten(0, (-1, self.groups)).flatten(1, 2))
        return [*found, back.sum(1).view(-1, self.groups * back.shape[2])] if self.of_bias else found

    def _shaped(self, found: list[Tensor]) -> list[Tensor]:
        return [self.shaped(found[0]), *found[1:]] if self.of_weight else found

    def _of_bias(self, back: Tensor) -> Tensor:
        return self._over_groups(norm(back.sum(1)))

    def _over_groups(self, norms: Tensor) -> Tensor:
        return norm(norms.view(-1, self.groups)) if self.groups > 1 else norms

    def _together(self, matrix: Tensor) -> Tensor:
        """Put the places of all views of a sample together: (samples * groups, views * T, columns)."""
        if self.views > 1:
            matrix = matrix.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2, 3)
        return matrix.flatten(0, 1)


class Linear(Matrix):
    """A linear layer; all dimensions between the first and the last are places."""

    def places(self, call: Call) -> Tensor:
        """Return the inputs."""
        inputs = call.inputs[0]
        return inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])

    def returned(self, call: Call) -> Tensor:
        """Return what came back."""
        (back,) = call.gradients
        return back.reshape(len(back), 1, -1, back.shape[-1])

    def ordinary(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Multiply them over all places of all samples."""
        return scaled.flatten(0, -2).t() @ inputs.flatten(0, -2)

    def over_all(self, scaled: Tensor) -> Tensor:
        """Sum over all but the last dimension."""
        return scaled.flatten(0, -2).sum(0)


class Convolution(Matrix):
    """A convolution of one to three dimensions: a place is a position of its kernel."""

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(module, views, memory)
        self.last = False  # whether the channels are the last in memory

    @property
    def margin(self) -> float:
        """On a GPU, by torch's default, convolutions take numbers of 10 bits: TF32, 2**-10 off each."""
        return 2.0**-9 if self.module.weight.is_cuda and torch.backends.cudnn.allow_tf32 else 0.0

    def _padded(self, inputs: Tensor) -> Tensor:
        module: Any = self.module
        width: list[int] = []
        for size, step, before in reversed(
            list(zip(module.kernel_size, module.dilation, _padding(module), strict=True))
        ):
            after = step * (size - 1) - before if module.padding == "same" else before
            width += [before, after]
        if not any(width):
            return inputs
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        return functional.pad(inputs, width, mode=mode)

    def places(self, call: Call) -> Tensor:
        """Return what the kernel covers at each position, as a view where memory allows."""
        module: Any = self.module
        padded = self._padded(call.inputs[0])
        rank = len(module.kernel_size)
        covered = padded.as_strided(
            (len(padded), self.groups, padded.shape[1] // self.groups, *call.shapes[0][2:], *module.kernel_size),
            (
                padded.stride(0),
                padded.stride(1) * padded.shape[1] // self.groups,
                padded.stride(1),
                *(stride * step for stride, step in zip(padded.stride()[2:], module.stride, strict=True)),
                *(stride * step for stride, step in zip(padded.stride()[2:], module.dilation, strict=True)),
            ),
        )
        self.last = padded.shape[1] > 1 and padded.stride(1) == 1
        moved = covered.movedim(2, -1) if self.last else covered.movedim(2, 2 + rank)
        if not moved.is_contiguous():
            moved = self.borrowed("places", moved.shape).copy_(moved)
        return moved.view(len(padded), self.groups, math.prod(call.shapes[0][2:]), -1)

    def direct(self, call: Call, back: Tensor) -> list[Tensor]:
        """For one channel go row by row of the kernel: what a row covers is copied once for all rows."""
        module: Any = self.module
        call.by_row = (
            self.of_weight
            and not call.inputs[0].is_cuda
            and call.inputs[0].dim() == 4
            and call.inputs[0].shape[1] == 1
            and (self.groups, self.views, tuple(module.dilation)) == (1, 1, (1, 1))
        )
        if not call.by_row:
            return super().direct(call, back)
        (high, wide), (down, along), (tall, broad) = module.kernel_size, module.stride, call.shapes[0][2:]
        padded = self._padded(call.inputs[0])
        padded = functional.pad(padded, (0, 0, 0, -padded.shape[2] % down)).movedim(1, -1).contiguous()
        samples, run, rows = len(padded), wide * padded.shape[3], padded.shape[1] // down
        row = padded.stride(1)
        # Rows that are a stride apart follow each other, so that a kernel's row meets one piece of memory.
        covered = self.borrowed("places", (samples, down, rows, broad, run)).copy_(
            padded.as_strided(
                (samples, down, rows, broad, run), (padded.stride(0), row, down * row, along * padded.stride(2), 1)
            )
        )
        kept = self.borrowed(f"kept {id(self)}", (high, samples, back.shape[2], run))
        for at, into in enumerate(kept):
            first = (at % down * rows + at // down) * broad * run
            met = covered.as_strided((samples, tall * broad, run), (covered.stride(0), run, 1), first)
            torch.bmm(back.mT, met, out=into)
        return [*kept, back.sum(1)] if self.of_bias else list(kept)

    def assembled(self, call: Call, parts: list[Tensor]) -> list[Tensor]:
        """Put the rows of the kernel together."""
        if not call.by_row:
            return super().assembled(call, parts)
        out, into, high, wide = self.module.weight.shape
        weight = torch.stack(parts[:high], 1).view(out, high, wide, into).movedim(-1, 1)
        return [weight, *parts[high:]]

    def returned(self, call: Call) -> Tensor:
        """Return what came back to each position."""
        (back,) = call.gradients
        grouped = back.unflatten(1, (self.groups, -1))
        return grouped.movedim(2, -1).flatten(2, -2)

    def shaped(self, gradient: Tensor) -> Tensor:
        """Bring the channels back to their place."""
        weight = self.module.weight
        if not self.last:
            return super().shaped(gradient)
        return gradient.reshape(*gradient.shape[:-2], len(weight), *weight.shape[2:], weight.shape[1]).movedim(
            -1, gradient.dim() - 1
        )

    def ordinary(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Let torch do it."""
        module: Any = self.module
        plain = module.padding_mode == "zeros" and module.padding != "same"
        weight_gradient: Any = (
            weight_gradients.conv1d_weight,
            weight_gradients.conv2d_weight,
            weight_gradients.conv3d_weight,
        )[len(module.kernel_size) - 1]
        return weight_gradient(
            inputs if plain else self._padded(inputs),
            module.weight.shape,
            scaled,
            stride=module.stride,
            padding=_padding(module) if plain else 0,
            dilation=module.dilation,
            groups=module.groups,
        )

    def over_all(self, scaled: Tensor) -> Tensor:
        """Sum over all but the channels."""
        return scaled.sum((0, *range(2, scaled.dim())))


def _padding(module: Any) -> tuple[int, ...]:
    """Return how many zeros a convolution puts before its input."""
    if module.padding == "same":
        return tuple(step * (size - 1) // 2 for size, step in zip(module.kernel_size, module.dilation, strict=True))
    return (0,) * len(module.kernel_size) if module.padding == "valid" else tuple(module.padding)


class Normalisation(Layer):
    """A layer that normalises within a sample and then scales and shifts."""

    def per_sample(self, call: Call) -> list[Tensor]:
        """Sum what came back, and what came back times what was scaled, over all places."""
        module: Any = self.module
        (back,), inputs = call.gradients, call.inputs[0]
        fused = _fused(inputs)
        trained = [one is not None and one.requires_grad for one in (module.weight, getattr(module, "bias", None))]
        if (
            isinstance(module, nn.GroupNorm)
            and fused is not None
            and inputs[0].numel() // module.num_groups <= fused.LARGEST
        ):
            pair = fused.group_norm_gradients(inputs, back, module.num_groups, module.eps)
            return [self._summed(one) for one, wanted in zip(pair, trained, strict=True) if wanted]
        found = [self._summed(back * self._normalised(inputs))] if trained[0] else []
        return [*found, self._summed(back)] if trained[1] else found

    def _normalised(self, inputs: Tensor) -> Tensor:
        module: Any = self.module
        if isinstance(module, nn.GroupNorm):
            return functional.group_norm(inputs, module.num_groups, eps=module.eps)
        if isinstance(module, nn.LayerNorm):
            return functional.layer_norm(inputs, module.normalized_shape, eps=module.eps)
        if isinstance(module, nn.RMSNorm):
            return functional.rms_norm(inputs, module.normalized_shape, eps=module.eps)
        return functional.instance_norm(inputs, eps=module.eps)

    def _summed(self, values: Tensor) -> Tensor:
        shape = self.module.weight.shape
        if isinstance(self.module, nn.LayerNorm | nn.RMSNorm):  # scales the last dimensions
            return values.reshape(len(values) // self.views, -1, *shape).sum(1)
        summed = values.sum(tuple(range(2, values.dim()))) if values.dim() > 2 else values
        return summed.unflatten(0, (-1, self.views)).sum(1) if self.views > 1 else summed


class Embedding(Layer):
    """A table of vectors, of which every place of a sample takes one."""

    def norms(self, call: Call) -> list[Tensor]:
        """Two places have a product only if they took the same vector."""
        taken, back = self._places(call)
        same = (taken.unsqueeze(1) == taken.unsqueeze(2)).to(back.dtype)
        gram = torch.bmm(back, back.mT)
        return [(same * gram).sum((1, 2)).clamp_(min=0).add_(_rounding(same, gram)).sqrt_()]

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add to every vector what came back where it was taken."""
        taken, back = self._places(call)
        table = torch.zeros_like(self.module.weight, dtype=back.dtype)
        return [table.index_add_(0, taken.flatten(), factors.scaled(back).flatten(0, 1))]

    def per_sample(self, call: Call) -> list[Tensor]:
        """Do the same for every sample."""
        taken, back = self._places(call)
        found = back.new_zeros(len(back), *self.module.weight.shape)
        return [found.scatter_add_(1, taken.unsqueeze(2).expand_as(back), back)]

    def _places(self, call: Call) -> tuple[Tensor, Tensor]:
        module: Any = self.module
        taken = call.inputs[0].reshape(len(call.inputs[0]) // self.views, -1)
        back = call.gradients[0].reshape(*taken.shape, -1)
        if module.padding_idx is not None:
            back = back * (taken != module.padding_idx).unsqueeze(2)
        return taken, back


class Unknown(Layer):
    """Any other module: run again for one sample at a time, all at once (`torch.func.vmap`)."""

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(module, views, memory)
        self._whole: set[int] = set()  # which arguments do not belong to samples: they once had another length

    def per_sample(self, call: Call) -> list[Tensor]:
        """Pull back what came back, sample by sample."""
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
            (found,) = back_to_weights(back)
            return dict(found)

        along = (tuple(0 if by else None for by in split), 0)
        with warnings.catch_warnings(), torch.random.fork_rng([], enabled=call.random is not None):
            warnings.filterwarnings("ignore", "There is a performance drop")  # some layers go sample by sample
            if call.random is not None:  # dropout is to drop the same again
                torch.set_rng_state(call.random)
            found = torch.func.vmap(pulled, in_dims=along, randomness="different")(tuple(leaves), call.gradients)
        return [one.unflatten(0, (-1, self.views)).sum(1) for one in found.values()]


def _rounding(first: Tensor, second: Tensor) -> Tensor:
    """Return by how much the product of two Gram matrices can be too small for its rounding.

    Where the places of a sample cancel each other, their products are large and the sum of them is
    small: without this, the norm of such a sample could be taken for 0 and its gradient not be clipped.
    """
    traces = [one.diagonal(dim1=1, dim2=2).sum(1) for one in (first, second)]
    return traces[0] * traces[1] * (_ROUNDING * torch.finfo(second.dtype).eps)


def _fused(values: Tensor) -> Any:
    """Return the kernels of a GPU, if the values are on one and Triton is there."""
    if not values.is_cuda or values.dtype != torch.float32:
        return None
    try:
        from sfumato.learners import fused
    except ImportError:
        return None
    return fused


def tensors(outputs: Any) -> tuple[Tensor, ...]:
    """Return the tensors among what a module gives."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(one for one in tree_leaves(outputs) if isinstance(one, Tensor))


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
    """Return how the gradients of single samples of a module are found.

    A subclass of a known layer may do anything in its ``forward``: it counts as unknown.

    Examples
    --------
    >>> type(layer_of(nn.Linear(3, 2))).__name__
    'Linear'
    >>> type(layer_of(nn.Bilinear(3, 3, 2))).__name__
    'Unknown'
    """
    plain = {name for name, _ in module.named_parameters()} <= {"weight", "bias"}
    return _KINDS.get(type(module) if plain else nn.Module, Unknown)(module, views, memory)

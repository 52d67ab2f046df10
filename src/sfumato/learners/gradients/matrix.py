"""Layers that multiply by a matrix, in one or many places of a sample: linear ones and convolutions.

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
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn import grad as weight_gradients

from sfumato.learners.gradients.gradients import (
    ROUNDING,
    Call,
    Factors,
    Layer,
    kernels_for,
    norm,
    rounding,
    summed_products,
)

__all__ = ["Convolution", "Linear", "Matrix"]

_SMALL = 16_384  # on a CPU, gradients of so many numbers are found faster than their norms alone


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
            return self.direct(call, back)
        met = self._together(self.places(call))
        fused = kernels_for(met)
        if count == 1:
            if fused is not None:
                found = fused.outer_norms(met, back, float(self.of_bias))
            else:
                of_input = norm(met)
                if self.of_bias:
                    of_input = torch.hypot(of_input, self.one.to(of_input))
                found = of_input * norm(back)
            return [self._over_groups(found * (1 + self.margin) if self.margin else found)]
        grams = torch.bmm(met, met.mT), torch.bmm(back, back.mT)
        if fused is not None:
            found = fused.ghost_norms(*grams, max(self.margin, math.sqrt(ROUNDING * torch.finfo(met.dtype).eps)))
        else:
            squares = torch.bmm(grams[0].flatten(1)[:, None], grams[1].flatten(1)[..., None]).flatten()
            found = squares.clamp_(min=0).add_(rounding(*grams)).sqrt_()
            if self.margin:
                found = found + self.margin * norm(met) * norm(back)
        return [self._over_groups(found), *([self._of_bias(back)] if self.of_bias else [])]

    def direct(self, call: Call, back: Tensor) -> list[Tensor]:
        """Keep the gradients of every sample, and return their norms."""
        met = self._together(self.places(call))
        into = self.borrowed(f"kept {id(self)}", (len(met), back.shape[2], met.shape[2]))
        call.kept = self._gradients(met, back, into)
        return [norm(one) for one in call.kept]

    def kept_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add what `direct` kept, each times the factor of its sample."""
        return self._shaped([factors.summed(one) for one in call.kept])

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add the gradients that were kept, or take one ordinary weight gradient."""
        if call.kept is not None:
            return self.kept_sum(call, factors)
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
        return summed_products(scaled.flatten(0, -2), inputs.flatten(0, -2))

    def over_all(self, scaled: Tensor) -> Tensor:
        """Sum over all but the last dimension."""
        return scaled.flatten(0, -2).sum(0, dtype=torch.float64).to(scaled.dtype)


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
        call.kept = [kept.flatten(2), *([back.sum(1)] if self.of_bias else [])]
        return [torch.linalg.vector_norm(call.kept[0], dim=(0, 2)), *map(norm, call.kept[1:])]

    def kept_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Put the rows of the kernel together."""
        if not call.by_row:
            return super().kept_sum(call, factors)
        out, into, high, wide = self.module.weight.shape
        rows, *bias = call.kept
        each = [factors.summed(row) for row in rows]
        weight = torch.stack(each).view(high, out, wide, into).permute(1, 3, 0, 2)
        return [weight, *map(factors.summed, bias)]

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

    @property
    def is_bounded(self) -> bool:
        """Not where torch adds up the gradients of a whole batch."""
        return self.module.weight.dtype == torch.float64

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

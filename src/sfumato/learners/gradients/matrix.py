"""Layers that multiply by a matrix at one or many positions of a sample: linear layers and convolutions.

For a layer that is linear in its weights, as all common ones are, the gradient of a sample is ``G^T U``: U holds the
inputs at T positions, and G the output gradients there. The norm follows from the Gram matrices of U and G, without a
second backward pass and without the gradient itself (ghost norm: Goodfellow 2015, Li et al. 2022). The sum of all
gradients, each scaled by the factor of its sample, is one ordinary weight gradient for scaled output gradients
(book-keeping: Bu et al. 2023). Which way to the norm is cheaper depends on the layer: T (P + O) numbers against P O.

Several views of a sample (augmentations) have one gradient: their positions are concatenated before the norm. Several
rows of a person have one gradient too: see `people`.
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
    rounding_of,
    summed_products,
)
from sfumato.learners.gradients.people import People

__all__ = ["Convolution", "Linear", "Matrix"]

_SMALL = 16_384  # on a CPU, computing gradients of up to this size is faster than computing ghost norms


class Matrix(Layer):
    """A layer that multiplies by a matrix of O rows and P columns, at T positions of every sample.

    Layers differ only in how positions are extracted, and in the ordinary gradient of their weights.
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
        """The error of the ordinary gradient, relative to the product of the norms of U and G."""
        return 0.0

    @abstractmethod
    def positions(self, call: Call) -> Tensor:
        """Return U: (samples * views, groups, T, P)."""

    @abstractmethod
    def output_gradients(self, call: Call) -> Tensor:
        """Return G: (samples * views, groups, T, O)."""

    @abstractmethod
    def weight_gradient(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Return the ordinary weight gradient for scaled output gradients."""

    def reshape(self, gradient: Tensor) -> Tensor:
        """Reshape weight gradients, (..., O, P), to the shape of the weights."""
        return gradient.reshape(*gradient.shape[:-2], *self.module.weight.shape)

    def norms(self, call: Call) -> list[Tensor]:
        """Return norms in the cheaper way: from Gram matrices, or from the gradients themselves."""
        back, people = self._merge_views(self.output_gradients(call)), call.people
        if not self.of_weight:
            return [self._bias_norm(back, people)]
        count, high = back.shape[1:]
        wide = self.module.weight[0].numel()
        if count > 1 and (count * (wide + high) > wide * high or wide * high <= self.small):
            return self.direct(call, back)
        if people is not None:
            if self.groups > 1 or people.prefers_gradients(count, wide, high):
                return self.direct(call, back)
            return self._norms_of_people(people, self._merge_views(self.positions(call)), back)
        met = self._merge_views(self.positions(call))
        fused = kernels_for(met)
        if count == 1:
            if fused is not None:
                norms = fused.outer_norms(met, back, float(self.of_bias))
            else:
                of_input = norm(met)
                if self.of_bias:
                    of_input = torch.hypot(of_input, self.one.to(of_input))
                norms = of_input * norm(back)
            return [self._over_groups(norms * (1 + self.margin) if self.margin else norms)]
        grams = torch.bmm(met, met.mT), torch.bmm(back, back.mT)
        if fused is not None:
            norms = fused.ghost_norms(*grams, max(self.margin, math.sqrt(ROUNDING * torch.finfo(met.dtype).eps)))
        else:
            squares = torch.bmm(grams[0].flatten(1)[:, None], grams[1].flatten(1)[..., None]).flatten()
            norms = squares.clamp_(min=0).add_(rounding(*grams)).sqrt_()
            if self.margin:
                norms = norms + self.margin * norm(met) * norm(back)
        return [self._over_groups(norms), *([self._bias_norm(back)] if self.of_bias else [])]

    def _norms_of_people(self, people: People, met: Tensor, back: Tensor) -> list[Tensor]:
        """Return norms from the Gram matrices of all rows of each person."""
        of_met = people.gram(met, self.buffer)
        if self.of_bias:
            of_met += 1  # as for an input that is always 1
        squares, *traces = people.inner_products(of_met, people.gram(back, self.buffer))
        norms = squares.clamp(min=0).add_(rounding_of(*traces)).sqrt_()
        return [norms + self.margin * (traces[0] * traces[1]).sqrt() if self.margin else norms]

    def direct(self, call: Call, back: Tensor) -> list[Tensor]:
        """Compute and save the gradients of every person, and return their norms."""
        met, people = self._merge_views(self.positions(call)), call.people
        each = (back.shape[2], met.shape[2])
        if people is None:
            call.saved = self._gradients(met, back, self.buffer(f"saved {id(self)}", (len(met), *each)))
        else:

            def gradients(first: int, last: int) -> list[Tensor]:
                some = slice(first * self.groups, last * self.groups)
                into = self.buffer("some", (some.stop - some.start, *each)) if self.of_weight else None
                return self._gradients(met[some], back[some], into)

            call.saved = people.sum_parts(gradients, self.groups * math.prod(each))
        return [norm(one) for one in call.saved]

    def saved_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Return the weighted sum of the gradients that `direct` saved."""
        return self._reshape_first([factors.weighted_sum(one) for one in call.saved])

    def weighted_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Add up the saved gradients, or compute one ordinary weight gradient."""
        if call.saved is not None:
            return self.saved_sum(call, factors)
        factors = factors.of_samples(call.people)
        scaled = factors.scale(call.gradients[0])
        gradients = [self.weight_gradient(factors.finite(call.inputs[0]), scaled)] if self.of_weight else []
        return [*gradients, self.bias_gradient(scaled)] if self.of_bias else gradients

    def per_sample(self, call: Call) -> list[Tensor]:
        """Multiply the two matrices of every sample."""
        met, back = self._merge_views(self.positions(call)), self._merge_views(self.output_gradients(call))
        return self._reshape_first(self._gradients(met, back))

    @abstractmethod
    def bias_gradient(self, scaled: Tensor) -> Tensor:
        """Sum scaled output gradients over all positions of all samples."""

    def _gradients(self, met: Tensor, back: Tensor, into: Tensor | None = None) -> list[Tensor]:
        """Return the gradients of every sample, those of the weights as (samples, O, P)."""
        gradients = []
        if self.of_weight:
            product = torch.bmm(back.mT, met, out=into) if into is not None else torch.bmm(back.mT, met)
            gradients.append(product.unflatten(0, (-1, self.groups)).flatten(1, 2))
        return [*gradients, back.sum(1).view(-1, self.groups * back.shape[2])] if self.of_bias else gradients

    def _reshape_first(self, gradients: list[Tensor]) -> list[Tensor]:
        return [self.reshape(gradients[0]), *gradients[1:]] if self.of_weight else gradients

    def _bias_norm(self, back: Tensor, people: People | None = None) -> Tensor:
        if people is not None:
            return norm(people.sum(back.sum(1).view(-1, self.groups * back.shape[2])))
        return self._over_groups(norm(back.sum(1)))

    def _over_groups(self, norms: Tensor) -> Tensor:
        return norm(norms.view(-1, self.groups)) if self.groups > 1 else norms

    def _merge_views(self, matrix: Tensor) -> Tensor:
        """Concatenate the positions of all views of a sample: (samples * groups, views * T, columns)."""
        if self.views > 1:
            matrix = matrix.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2, 3)
        return matrix.flatten(0, 1)


class Linear(Matrix):
    """A linear layer; all dimensions between the first and the last are positions."""

    def positions(self, call: Call) -> Tensor:
        """Return the inputs."""
        inputs = call.inputs[0]
        return inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])

    def output_gradients(self, call: Call) -> Tensor:
        """Return the output gradients."""
        (back,) = call.gradients
        return back.reshape(len(back), 1, -1, back.shape[-1])

    def weight_gradient(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Multiply inputs and output gradients over all positions of all samples."""
        return summed_products(scaled.flatten(0, -2), inputs.flatten(0, -2))

    def bias_gradient(self, scaled: Tensor) -> Tensor:
        """Sum over all but the last dimension."""
        return scaled.flatten(0, -2).sum(0, dtype=torch.float64).to(scaled.dtype)


class Convolution(Matrix):
    """A convolution of one to three dimensions; positions are those of its kernel."""

    def __init__(self, module: nn.Module, views: int = 1, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(module, views, memory)
        self.last = False  # whether the memory format is channels last

    @property
    def margin(self) -> float:
        """By default, torch's convolutions on a GPU use TF32: 10 bits, a relative error of 2**-10 each."""
        return 2.0**-9 if self.module.weight.is_cuda and torch.backends.cudnn.allow_tf32 else 0.0

    def _pad(self, inputs: Tensor) -> Tensor:
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

    def positions(self, call: Call) -> Tensor:
        """Return the patch under the kernel at each position, as a view where possible."""
        module: Any = self.module
        padded = self._pad(call.inputs[0])
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
            moved = self.buffer("positions", moved.shape).copy_(moved)
        return moved.view(len(padded), self.groups, math.prod(call.shapes[0][2:]), -1)

    def direct(self, call: Call, back: Tensor) -> list[Tensor]:
        """Compute single-channel gradients by rows of the kernel: one copy of the input serves all rows."""
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
        padded = self._pad(call.inputs[0])
        padded = functional.pad(padded, (0, 0, 0, -padded.shape[2] % down)).movedim(1, -1).contiguous()
        samples, run, rows = len(padded), wide * padded.shape[3], padded.shape[1] // down
        row = padded.stride(1)
        # Rows that are a stride apart follow each other, so each row of the kernel reads contiguous memory.
        covered = self.buffer("positions", (samples, down, rows, broad, run)).copy_(
            padded.as_strided(
                (samples, down, rows, broad, run), (padded.stride(0), row, down * row, along * padded.stride(2), 1)
            )
        )
        saved = self.buffer(f"saved {id(self)}", (high, samples, back.shape[2], run))
        for at, into in enumerate(saved):
            first = (at % down * rows + at // down) * broad * run
            met = covered.as_strided((samples, tall * broad, run), (covered.stride(0), run, 1), first)
            torch.bmm(back.mT, met, out=into)
        call.saved = [saved.flatten(2), *([back.sum(1)] if self.of_bias else [])]
        if call.people is not None:
            call.saved = [
                torch.stack([call.people.sum(row) for row in call.saved[0]]),
                *map(call.people.sum, call.saved[1:]),
            ]
        return [torch.linalg.vector_norm(call.saved[0], dim=(0, 2)), *map(norm, call.saved[1:])]

    def saved_sum(self, call: Call, factors: Factors) -> list[Tensor]:
        """Return the weighted sum of the saved gradients, joining the rows of the kernel."""
        if not call.by_row:
            return super().saved_sum(call, factors)
        out, into, high, wide = self.module.weight.shape
        rows, *bias = call.saved
        each = [factors.weighted_sum(row) for row in rows]
        weight = torch.stack(each).view(high, out, wide, into).permute(1, 3, 0, 2)
        return [weight, *map(factors.weighted_sum, bias)]

    def output_gradients(self, call: Call) -> Tensor:
        """Return the output gradient at each position."""
        (back,) = call.gradients
        grouped = back.unflatten(1, (self.groups, -1))
        return grouped.movedim(2, -1).flatten(2, -2)

    def reshape(self, gradient: Tensor) -> Tensor:
        """Reshape weight gradients to the shape of the weights."""
        weight = self.module.weight
        if not self.last:
            return super().reshape(gradient)
        return gradient.reshape(*gradient.shape[:-2], len(weight), *weight.shape[2:], weight.shape[1]).movedim(
            -1, gradient.dim() - 1
        )

    @property
    def is_bounded(self) -> bool:
        """Whether the rounding error is bounded; not where torch adds up a whole batch in 32 bits."""
        return self.module.weight.dtype == torch.float64

    def weight_gradient(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Return torch's own weight gradient."""
        module: Any = self.module
        plain = module.padding_mode == "zeros" and module.padding != "same"
        weight_gradient: Any = (
            weight_gradients.conv1d_weight,
            weight_gradients.conv2d_weight,
            weight_gradients.conv3d_weight,
        )[len(module.kernel_size) - 1]
        return weight_gradient(
            inputs if plain else self._pad(inputs),
            module.weight.shape,
            scaled,
            stride=module.stride,
            padding=_padding(module) if plain else 0,
            dilation=module.dilation,
            groups=module.groups,
        )

    def bias_gradient(self, scaled: Tensor) -> Tensor:
        """Sum over all dimensions except the channels."""
        return scaled.sum((0, *range(2, scaled.dim())))


def _padding(module: Any) -> tuple[int, ...]:
    """Return the padding before the input, per dimension."""
    if module.padding == "same":
        return tuple(step * (size - 1) // 2 for size, step in zip(module.kernel_size, module.dilation, strict=True))
    return (0,) * len(module.kernel_size) if module.padding == "valid" else tuple(module.padding)

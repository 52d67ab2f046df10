"""Fused Triton kernels for operations that take many small kernels in torch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["LARGEST", "ghost_norms", "group_norm_gradients", "mask", "outer_norms"]

LARGEST = 16_384  # values of a group that fit into one program
_SIZE = 1024


@triton.jit
def _mask(out, values, factors, count, row, SCALE: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    factor = tl.load(factors + at // row, mask=inside, other=0.0)
    value = tl.load(values + at, mask=inside, other=0.0)
    tl.store(out + at, tl.where(factor != 0.0, value * factor if SCALE else value, 0.0), mask=inside)


def mask(values: Tensor, factors: Tensor, *, scale: bool) -> Tensor:
    """Return 0 for samples whose factor is 0; other values are multiplied by their factor if ``scale``."""
    last = values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last)
    values = values if last else values.contiguous()  # either way, samples are consecutive in memory
    out = torch.empty_like(values)
    count = values.numel()
    _mask[(triton.cdiv(count, _SIZE),)](out, values, factors, count, count // len(factors), SCALE=scale, SIZE=_SIZE)
    return out


@triton.jit
def _ghost(out, first, second, count, side, margin, SIZE: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    both, one, other = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    for start in range(0, count, SIZE):
        at = start + tl.arange(0, SIZE)
        left = tl.load(first + sample * count + at, mask=at < count, other=0.0)
        right = tl.load(second + sample * count + at, mask=at < count, other=0.0)
        both += left * right
        diagonal = at % (side + 1) == 0
        one += tl.where(diagonal, left, 0.0)
        other += tl.where(diagonal, right, 0.0)
    norm = tl.sqrt(tl.maximum(tl.sum(both), 0.0))
    tl.store(out + sample, norm + margin * tl.sqrt(tl.sum(one) * tl.sum(other)))


def ghost_norms(first: Tensor, second: Tensor, margin: float) -> Tensor:
    """Return norms from pairs of Gram matrices, plus a margin in proportion to the norms of both factors."""
    samples, side = first.shape[:2]
    out = first.new_empty(samples)
    size = min(1024, triton.next_power_of_2(side * side))
    _ghost[(samples,)](out, first, second, side * side, side, margin, SIZE=size)
    return out


@triton.jit
def _outer(out, first, second, wide, high, more, SIZE: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    one, other = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    for start in range(0, wide, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(first + sample * wide + at, mask=at < wide, other=0.0)
        one += value * value
    for start in range(0, high, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(second + sample * high + at, mask=at < high, other=0.0)
        other += value * value
    tl.store(out + sample, tl.sqrt((tl.sum(one) + more) * tl.sum(other)))


def outer_norms(first: Tensor, second: Tensor, more: float) -> Tensor:
    """Return the norms of outer products of two vectors, the first with one more entry of square ``more``."""
    first, second = first.flatten(1).contiguous(), second.flatten(1).contiguous()
    out = first.new_empty(len(first))
    size = min(1024, triton.next_power_of_2(max(first.shape[1], second.shape[1])))
    _outer[(len(first),)](out, first, second, first.shape[1], second.shape[1], more, SIZE=size)
    return out


@triton.jit
def _group_norm(
    inputs, back, of_weight, of_bias, channels, places, small,
    in_sample, in_channel, in_place, back_sample, back_channel, back_place,
    GROUP: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    sample, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel, place = tl.arange(0, HIGH), tl.arange(0, WIDE)
    inside = (channel < GROUP)[:, None] & (place < places)[None, :]
    at = (group * GROUP + channel)[:, None]
    value = tl.load(inputs + sample * in_sample + at * in_channel + place[None, :] * in_place, mask=inside, other=0.0)
    came = tl.load(
        back + sample * back_sample + at * back_channel + place[None, :] * back_place, mask=inside, other=0.0
    )
    count = GROUP * places
    centred = tl.where(inside, value - tl.sum(value) / count, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred) / count + small)
    to = sample * channels + group * GROUP + channel
    tl.store(of_weight + to, tl.sum(came * centred, 1) / deviation, mask=channel < GROUP)
    tl.store(of_bias + to, tl.sum(came, 1), mask=channel < GROUP)


def group_norm_gradients(inputs: Tensor, back: Tensor, groups: int, small: float) -> tuple[Tensor, Tensor]:
    """Return every sample's gradients of the scale and the shift of a group normalisation."""
    samples, channels = inputs.shape[:2]
    inputs, back = (one.reshape(samples, channels, -1) for one in (inputs, back))
    places = inputs.shape[2]
    of_weight, of_bias = (inputs.new_empty(samples, channels) for _ in range(2))
    group = channels // groups
    _group_norm[(samples, groups)](
        inputs, back, of_weight, of_bias, channels, places, small, *inputs.stride(), *back.stride(),
        GROUP=group, HIGH=triton.next_power_of_2(group), WIDE=triton.next_power_of_2(places),
        num_warps=1 if group * places <= 512 else 4,
    )  # fmt: skip
    return of_weight, of_bias

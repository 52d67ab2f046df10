"""Noise and sampling on a GPU: ChaCha20 in Triton kernels, with a key from the operating system.

Each block of the stream cipher ChaCha20 (Bernstein 2008; RFC 8439) depends only on a key and a number. So all blocks of
a step can be computed at once, inside a CUDA graph, and are unpredictable without the key. The number combines the call
and the position in the call, so no block is ever used twice. Torch's own generators are not cryptographic.
"""

from __future__ import annotations

import math
import secrets

import torch
import triton
import triton.language as tl
from torch import Tensor

from sfumato.budget.noise import CELLS

__all__ = ["DeviceNoise"]

_BLOCK = 128  # blocks of the cipher per program


@triton.jit
def _quarter(a, b, c, d):
    a = a + b
    d = d ^ a
    d = (d << 16) | (d >> 16)
    c = c + d
    b = b ^ c
    b = (b << 12) | (b >> 20)
    a = a + b
    d = d ^ a
    d = (d << 8) | (d >> 24)
    c = c + d
    b = b ^ c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _chacha(key, place, tick):
    """Return the sixteen words of the block at a position (32 bits) in a call (64 bits)."""
    zero = place * 0
    k0 = zero + tl.load(key + 0).to(tl.uint32, bitcast=True)
    k1 = zero + tl.load(key + 1).to(tl.uint32, bitcast=True)
    k2 = zero + tl.load(key + 2).to(tl.uint32, bitcast=True)
    k3 = zero + tl.load(key + 3).to(tl.uint32, bitcast=True)
    k4 = zero + tl.load(key + 4).to(tl.uint32, bitcast=True)
    k5 = zero + tl.load(key + 5).to(tl.uint32, bitcast=True)
    k6 = zero + tl.load(key + 6).to(tl.uint32, bitcast=True)
    k7 = zero + tl.load(key + 7).to(tl.uint32, bitcast=True)
    n1 = zero + tl.load(tick + 0).to(tl.uint32, bitcast=True)
    n2 = zero + tl.load(tick + 1).to(tl.uint32, bitcast=True)
    n3 = zero + tl.load(tick + 2).to(tl.uint32, bitcast=True)
    c0, c1, c2, c3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    x0, x1, x2, x3 = c0, c1, c2, c3
    x4, x5, x6, x7 = k0, k1, k2, k3
    x8, x9, x10, x11 = k4, k5, k6, k7
    x12, x13, x14, x15 = place, n1, n2, n3
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return (
        x0 + c0, x1 + c1, x2 + c2, x3 + c3, x4 + k0, x5 + k1, x6 + k2, x7 + k3,
        x8 + k4, x9 + k5, x10 + k6, x11 + k7, x12 + place, x13 + n1, x14 + n2, x15 + n3,
    )  # fmt: skip


@triton.jit
def _words(out, key, tick, blocks, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < blocks
    words = _chacha(key, at.to(tl.uint32), tick)
    for word in tl.static_range(16):
        tl.store(out + at * 16 + word, words[word].to(tl.int32, bitcast=True), mask=inside)


@triton.jit
def _add_cells(values, at, inside, grid, noise):
    """Add noise, in cells, to values and round once, to whole cells."""
    cells = tl.load(values + at, mask=inside, other=0.0).to(tl.float64) / grid
    whole = tl.floor(cells)
    tl.store(values + at, (whole + tl.floor((cells - whole) + noise + 0.5)) * grid, mask=inside)


@triton.jit
def _add_rounded(values, scale, turn, key, tick, count, blocks, CELLS: tl.constexpr, SIZE: tl.constexpr):
    """Add Gaussian noise on its grid (see `budget.noise`): three pairs of deviates per block of the cipher."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    words = _chacha(key, at.to(tl.uint32), tick)
    deviation = tl.load(scale).to(tl.float32)
    # A float with only its exponent bits is the power of two below it.
    power = (deviation.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True).to(tl.float64)
    grid = tl.where(power > 0, power, 1.0) / CELLS
    spread = tl.load(scale).to(tl.float64) / grid
    half_turn = tl.load(turn)
    place = tl.where(at < blocks, at, count)  # writes nothing beyond the end
    for pair in tl.static_range(3):
        high, low, more = words[5 * pair].to(tl.uint64), words[5 * pair + 1].to(tl.uint64), words[5 * pair + 2]
        first = ((high << 31) | (low >> 1)).to(tl.float64)
        rest = ((low & 1) << 42) | (more.to(tl.uint64) << 10) | ((words[15] >> (10 * pair)) & 1023).to(tl.uint64)
        uniform = first * 1.0842021724855044e-19 + (rest.to(tl.float64) + 0.5) * 1.232595164407831e-32  # 2^-63, 2^-106
        radius = tl.sqrt(-2.0 * tl.log(uniform)) * spread
        turned = (words[5 * pair + 3].to(tl.uint64) << 32) | words[5 * pair + 4].to(tl.uint64)
        angle = turned.to(tl.int64, bitcast=True).to(tl.float64) * half_turn
        one, other = place + 2 * pair * blocks, place + (2 * pair + 1) * blocks
        _add_cells(values, one, (one < count) & (power > 0), grid, radius * tl.cos(angle))
        _add_cells(values, other, (other < count) & (power > 0), grid, radius * tl.sin(angle))


@triton.jit
def _draw(taken, weights, key, tick, log_rest, rows, size, SIZE: tl.constexpr):
    """Draw the gaps between samples, which have a geometric distribution."""
    at = tl.arange(0, SIZE)
    words = _chacha(key, at.to(tl.uint32), tick)
    mantissa = (words[0].to(tl.uint64) << 21) | (words[1].to(tl.uint64) >> 11)
    uniform = (mantissa.to(tl.float64) + 0.5) * 1.1102230246251565e-16
    gap = tl.minimum(tl.floor(tl.log(uniform) / tl.load(log_rest)), 2.0 * rows).to(tl.int64)
    row = tl.cumsum(gap + 1, 0) - 1
    inside = row < rows
    tl.store(taken + at, tl.where(inside, row, 0), mask=at < size)
    tl.store(weights + at, tl.where(inside, 1.0, 0.0), mask=at < size)


class DeviceNoise:
    """A ChaCha20 stream on a GPU, usable inside a CUDA graph."""

    def __init__(self, device: torch.device, key: bytes | None = None) -> None:
        drawn = key or secrets.token_bytes(32)
        words = [int.from_bytes(drawn[at : at + 4], "little", signed=True) for at in range(0, 32, 4)]
        self._key = torch.tensor(words, dtype=torch.int32, device=device)
        self._tick = torch.zeros(3, dtype=torch.int32, device=device)
        # In memory, because a constant in a kernel may be truncated to 32 bits.
        self._turn = torch.full((), math.pi * 2.0**-63, dtype=torch.float64, device=device)
        self._advance = torch.tensor([1, 0, 0], dtype=torch.int32, device=device)

    def _next(self) -> None:
        # One key lasts for 2^32 calls: three weeks at a thousand steps per second.
        self._tick += self._advance

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise to contiguous values in place and round to the grid of the scale."""
        blocks = math.ceil(values.numel() / 6)
        _add_rounded[(triton.cdiv(blocks, _BLOCK),)](
            values, scale, self._turn, self._key, self._tick, values.numel(), blocks, CELLS=CELLS, SIZE=_BLOCK
        )
        self._next()

    def draw(self, taken: Tensor, weights: Tensor, log_rest: Tensor, rows: int) -> None:
        """Draw a Poisson sample: row indices, and weights that are 0 after the last one.

        ``log_rest`` is the logarithm of the probability that a row is not drawn, as a 64-bit float.
        """
        size = taken.numel()
        _draw[(1,)](
            taken, weights, self._key, self._tick, log_rest, rows, size,
            SIZE=triton.next_power_of_2(size), num_warps=8,
        )  # fmt: skip
        self._next()

    def words(self, blocks: int) -> Tensor:
        """Return the raw stream, sixteen words per block."""
        words = torch.empty(blocks * 16, dtype=torch.int32, device=self._key.device)
        _words[(triton.cdiv(blocks, _BLOCK),)](words, self._key, self._tick, blocks, SIZE=_BLOCK)
        self._next()
        return words

"""Gaussian noise on a public grid for gradient sums, computed on the CPU; `budget.noise` has the guarantee."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from sfumato.budget.noise import Source, grid_of

__all__ = ["HostNoise", "NoiseMaker"]

_PAIRS = 1 << 14  # per block, to stay in the cache
_BYTES = 24  # per pair: two words for the radius, one for the angle
_POSITIVE = 2**63 - 1  # a word without its sign


class NoiseMaker(Protocol):
    """Adds unpredictable Gaussian noise and rounds the result to a grid."""

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise in place and round to the grid of the scale."""
        ...


class HostNoise:
    """Noise from the operating system's entropy through AES (see `budget.noise`), computed on the CPU.

    Examples
    --------
    >>> values = torch.full((3,), 0.1)
    >>> HostNoise(Source()).add(values, torch.tensor(1.0))
    >>> bool((values % grid_of(1.0) == 0).all())
    True
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._pairs, self._dtype = 0, torch.float32

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise in place and round to the grid of the scale."""
        deviation = float(scale)
        if deviation == 0:
            return
        flat = values.reshape(-1).cpu()
        self._prepare(min(_PAIRS, math.ceil(flat.numel() / 2)), flat.dtype)
        grid = grid_of(deviation)
        for part in flat.split(2 * _PAIRS):
            self._add(part, grid, deviation / grid)
        if flat.data_ptr() != values.data_ptr():
            values.copy_(flat.view_as(values))

    def _prepare(self, pairs: int, dtype: torch.dtype) -> None:
        """Allocate buffers for this many pairs; intermediate results reuse them, to stay in the cache."""
        if self._pairs >= pairs and self._dtype == dtype:
            return
        self._pairs, self._dtype = pairs, dtype
        self._bytes = bytearray(max(_BYTES, 4 * dtype.itemsize) * pairs + 16)
        self._noise, self._rest = torch.empty(2, 2 * pairs, dtype=torch.float64)
        self._radius, self._angle = self._rest.split(pairs)
        self._cells, self._whole = torch.frombuffer(self._bytes, dtype=dtype, count=4 * pairs).split(2 * pairs)

    def _add(self, part: Tensor, grid: float, deviation: float) -> None:
        count = len(part)
        noise = self._normal(math.ceil(count / 2), deviation)[:count]
        cells, whole, rest = self._cells[:count], self._whole[:count], self._rest[:count]
        torch.mul(part, 1 / grid, out=cells)  # exact, because the grid is a power of two
        torch.round(cells, out=whole)
        rest.copy_(cells.sub_(whole))  # exact too: the position within a cell is not rounded, however large the sum
        noise.add_(rest).round_()
        torch.mul(cells.copy_(noise).add_(whole), grid, out=part)

    def _normal(self, pairs: int, deviation: float) -> Tensor:
        """Return pairs of normal deviates as 64-bit floats (Box-Muller)."""
        self.source.fill(self._bytes, _BYTES * pairs)
        words = torch.frombuffer(self._bytes, dtype=torch.int64, count=3 * pairs)
        first, more, turned = words.split(pairs)
        radius, angle, noise = self._radius[:pairs], self._angle[:pairs], self._noise[: 2 * pairs]
        # The second word continues the first: a small uniform number (a far tail) keeps full relative precision.
        radius.copy_(first.bitwise_and_(_POSITIVE)).mul_(2.0**-63)
        radius.add_(angle.copy_(more.bitwise_and_(_POSITIVE)).add_(0.5), alpha=2.0**-126)
        radius.log_().mul_(-2 * deviation**2).sqrt_()
        angle.copy_(turned).mul_(math.pi * 2.0**-63)
        torch.cos(angle, out=noise[:pairs]).mul_(radius)
        torch.sin(angle, out=noise[pairs:]).mul_(radius)
        return noise

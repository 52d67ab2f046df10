"""Noise as other DP-SGD engines add it, in 32-bit floats: only to compare its time with that of noise on a grid.

Do not use it. The last bits of such a sum can name the record that is in it.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.budget import Source

__all__ = ["HostFloats", "device_floats"]


class HostFloats:
    """Box and Muller's normal numbers in 32-bit floats, from AES."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise of a scale in place."""
        half = math.ceil(values.numel() / 2)
        words = self.source.words(half).view(np.uint32)
        radius = (words[:half].astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.maximum(radius, 0, out=radius)
        np.sqrt(radius, out=radius)
        angle = words[half:].astype(np.float32) * np.float32(2 * math.pi * 2.0**-32)
        noise = np.empty(2 * half, dtype=np.float32)
        np.multiply(np.cos(angle), radius, out=noise[:half])
        np.multiply(np.sin(angle), radius, out=noise[half:])
        values.view(-1).addcmul_(torch.from_numpy(noise[: values.numel()]), scale)


def device_floats(device: torch.device) -> Any:
    """Return the same on a GPU, from ChaCha20, as a kind of `DeviceNoise`."""

    class DeviceFloats(DeviceNoise):
        def add(self, values: Tensor, scale: Tensor) -> None:
            blocks = math.ceil(values.numel() / 16)
            _add_floats[(triton.cdiv(blocks, 128),)](
                values, scale, self._key, self._tick, values.numel(), blocks, SIZE=128
            )
            self._next()

    return DeviceFloats(device)


if importlib.util.find_spec("triton"):
    import triton
    import triton.language as tl

    from sfumato.learners.gpu.chacha import DeviceNoise, _chacha

    @triton.jit  # type: ignore[untyped-decorator]
    def _add_floats(values, scale, key, tick, count, blocks, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
        at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        words = _chacha(key, at.to(tl.uint32), tick)
        factor = tl.load(scale)
        place = tl.where(at < blocks, at, count)
        for pair in tl.static_range(8):
            first, second = words[2 * pair].to(tl.float32), words[2 * pair + 1].to(tl.float32)
            radius = tl.sqrt(tl.maximum(-2.0 * tl.log((first + 0.5) * 2.3283064365386963e-10), 0.0)) * factor
            angle = second * 1.4629180792671596e-09
            one, other = place + 2 * pair * blocks, place + (2 * pair + 1) * blocks
            tl.store(values + one, tl.load(values + one, mask=one < count) + radius * tl.cos(angle), mask=one < count)
            held = tl.load(values + other, mask=other < count)
            tl.store(values + other, held + radius * tl.sin(angle), mask=other < count)

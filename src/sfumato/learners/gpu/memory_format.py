"""Memory formats of weights and images: contiguous or channels last, whichever runs faster."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.learners.gradients.clipping import Clipper
from sfumato.learners.gradients.gradients import tensors

__all__ = ["LAYOUTS", "fastest_layout", "in_layout", "set_layout", "to_layout"]

LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def set_layout(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Convert the weights of a module, in place, to a memory format."""
    return module.to(memory_format=layout)  # type: ignore[call-overload]


def to_layout(inputs: Tensor, layout: torch.memory_format) -> Tensor:
    """Return images in a memory format; other inputs are returned as they are."""
    return inputs.contiguous(memory_format=layout) if inputs.dim() == 4 else inputs


@contextmanager
def in_layout(module: nn.Module, layout: torch.memory_format) -> Iterator[None]:
    """Temporarily use another memory format for the weights."""
    set_layout(module, layout)
    try:
        yield
    finally:
        set_layout(module, torch.contiguous_format)


def fastest_layout(module: nn.Module, images: Tensor, *, private: bool) -> str:
    """Return the memory format in which a module runs faster, measured on random numbers in the shape of the images.

    Examples
    --------
    >>> fastest_layout(nn.Linear(2, 1), torch.zeros(8, 2), private=True)
    'contiguous'
    """
    if images.dim() != 4 or not any(isinstance(one, nn.Conv2d) for one in module.modules()):
        return "contiguous"
    took: dict[str, float] = {}
    for name, layout in LAYOUTS.items():
        copied, random = set_layout(copy.deepcopy(module), layout), to_layout(torch.randn_like(images), layout)
        clipper = Clipper(copied, _mean_square) if private else None
        for _ in range(4):  # the first is a warm-up
            began = time.process_time()
            if clipper:
                clipper(random, random)
            else:
                _mean_square(copied(random), random).sum().backward()
            took[name] = min(took.get(name, math.inf), time.process_time() - began)
    return min(took, key=lambda name: took[name])


def _mean_square(outputs: Any, _: Tensor) -> Tensor:
    """Return a loss per sample for any outputs."""
    return torch.stack([one.flatten(1).square().mean(1) for one in tensors(outputs)]).sum(0)

"""How the weights and images of a model lie in memory: some convolutions run twice as fast one way, some the other."""

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

__all__ = ["LAYOUTS", "arranged", "fastest_layout", "in_layout", "laid_out"]

LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def laid_out(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Give the weights of a module a layout in memory."""
    return module.to(memory_format=layout)  # type: ignore[call-overload]


def arranged(some: Tensor, layout: torch.memory_format) -> Tensor:
    """Give images a layout; all else has only one."""
    return some.contiguous(memory_format=layout) if some.dim() == 4 else some


@contextmanager
def in_layout(module: nn.Module, layout: torch.memory_format) -> Iterator[None]:
    """Let the weights lie so for a while, and then as those of other modules do."""
    laid_out(module, layout)
    try:
        yield
    finally:
        laid_out(module, torch.contiguous_format)


def fastest_layout(module: nn.Module, images: Tensor, *, private: bool) -> str:
    """Return the layout in which a module is faster, tried on random numbers like the images.

    Examples
    --------
    >>> fastest_layout(nn.Linear(2, 1), torch.zeros(8, 2), private=True)
    'contiguous'
    """
    if images.dim() != 4 or not any(isinstance(one, nn.Conv2d) for one in module.modules()):
        return "contiguous"
    took: dict[str, float] = {}
    for name, layout in LAYOUTS.items():
        copied, some = laid_out(copy.deepcopy(module), layout), arranged(torch.randn_like(images), layout)
        clipper = Clipper(copied, _size) if private else None
        for _ in range(4):  # the first one only warms up
            began = time.process_time()
            if clipper:
                clipper(some, some)
            else:
                _size(copied(some), some).sum().backward()
            took[name] = min(took.get(name, math.inf), time.process_time() - began)
    return min(took, key=lambda name: took[name])


def _size(outputs: Any, _: Tensor) -> Tensor:
    """Return some loss per sample, whatever a module gives."""
    return torch.stack([one.flatten(1).square().mean(1) for one in tensors(outputs)]).sum(0)

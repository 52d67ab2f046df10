"""Random views of images: affine and elastic warps, and brightness (Simard, Steinkraus and Platt 2003).

Every image is warped at random and independently of the others, by a generator that nobody else knows: the views of an
image then tell nothing about other images, so what one record can change stays one record's share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Views"]

_NODES = 5  # of the random field that bends an image, in each direction


@dataclass(frozen=True)
class Views:
    """How strong the warps are; 1 is about what handwriting varies by.

    Examples
    --------
    >>> images = torch.rand(3, 1, 28, 28)
    >>> Views(affine=1.0, elastic=1.5, gamma=0.3)(images, torch.Generator()).shape
    torch.Size([3, 1, 28, 28])
    >>> bool((Views()(images, torch.Generator()) - images).abs().max() < 1e-4)
    True
    """

    affine: float = 0.0
    elastic: float = 0.0
    gamma: float = 0.0

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random view of each image of shape (count, channels, height, width)."""
        count, device = len(images), images.device

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=device)

        turn = normal(count) * (math.pi / 12) * self.affine
        wide, high = (torch.exp(0.12 * self.affine * normal(count)) for _ in range(2))
        slant = 0.12 * self.affine * normal(count)
        move = 0.07 * self.affine * normal(count, 2)
        cos, sin = turn.cos(), turn.sin()
        first = torch.stack([cos * wide, -sin * high + slant, move[:, 0]], dim=1)
        second = torch.stack([sin * wide, cos * high, move[:, 1]], dim=1)
        grid = functional.affine_grid(torch.stack([first, second], dim=1), list(images.shape), align_corners=False)
        if self.elastic:
            nodes = normal(count, 2, _NODES, _NODES) * (0.06 * self.elastic)
            field = functional.interpolate(nodes, size=images.shape[2:], mode="bicubic", align_corners=True)
            grid = grid + field.permute(0, 2, 3, 1)
        seen = functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
        if self.gamma:
            power = torch.exp(self.gamma * normal(count))[:, None, None, None]
            seen = seen.clamp(1e-6, 1.0).pow(power)
        return seen

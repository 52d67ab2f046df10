"""Random views of images: affine and elastic warps, and brightness (Simard, Steinkraus and Platt 2003).

The views of a private image follow from its own pixels and a key (`numbers_of`): so they are a fixed function of that
image, whatever other images are beside it, and what one record can change stays one record's share. The key need not be
secret.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

__all__ = ["Views", "numbers_of"]

_NODES = 5  # of the random field that bends an image, in each direction
_BENDS = 2 * _NODES**2
_NUMBERS = 7 + _BENDS  # normal numbers that make a view


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
        return self.by(images, torch.randn(len(images), _NUMBERS, generator=generator, device=images.device))

    @torch.no_grad()
    def by(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Return the view of each image that a row of normal numbers makes."""
        turn = numbers[:, 0] * (math.pi / 12) * self.affine
        wide, high = (torch.exp(0.12 * self.affine * numbers[:, at]) for at in (1, 2))
        slant = 0.12 * self.affine * numbers[:, 3]
        move = 0.07 * self.affine * numbers[:, 4:6]
        cos, sin = turn.cos(), turn.sin()
        first = torch.stack([cos * wide, -sin * high + slant, move[:, 0]], dim=1)
        second = torch.stack([sin * wide, cos * high, move[:, 1]], dim=1)
        grid = functional.affine_grid(torch.stack([first, second], dim=1), list(images.shape), align_corners=False)
        if self.elastic:
            nodes = numbers[:, 7:].reshape(-1, 2, _NODES, _NODES) * (0.06 * self.elastic)
            field = functional.interpolate(nodes, size=images.shape[2:], mode="bicubic", align_corners=True)
            grid = grid + field.permute(0, 2, 3, 1)
        seen = functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
        if self.gamma:
            power = torch.exp(self.gamma * numbers[:, 6])[:, None, None, None]
            seen = seen.clamp(1e-6, 1.0).pow(power)
        return seen


def numbers_of(images: NDArray[np.uint8], views: int, key: bytes) -> NDArray[np.float32]:
    """Return normal numbers for several views of each image: (images, views, numbers).

    Those of an image follow from its pixels and the key.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)
    >>> numbers = numbers_of(images, 4, b"key")
    >>> bool((numbers_of(images[1:], 4, b"key") == numbers[1:]).all())
    True
    """
    found = np.empty((len(images), views, _NUMBERS), dtype=np.float32)
    for at, image in enumerate(np.ascontiguousarray(images)):
        digest = hashlib.blake2b(image.data, digest_size=16, key=key).digest()
        own = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
        own.standard_normal(out=found[at], dtype=np.float32)
    return found

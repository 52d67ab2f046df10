"""Images as inputs of a model: bytes become floats, and grey images get a channel dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import InputError, OptionError
from sfumato.learners.estimators.features import Columns

__all__ = ["Images"]


@dataclass(frozen=True, eq=False)
class Images(Columns):
    """Images in place of columns; no public description is needed.

    Examples
    --------
    >>> images = Images.of_array(np.full((5, 28, 28), 255, dtype=np.uint8))
    >>> images.shape, images.tensor(None).max()
    ((1, 28, 28), tensor(1.))
    """

    array: NDArray[Any]

    @property
    def rows(self) -> int:
        """The number of images."""
        return len(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return (1, *self.array.shape[1:]) if self.array.ndim == 3 else self.array.shape[1:]

    @classmethod
    def of_array(cls, given: Any) -> Images:
        """Convert an array of shape (count, height, width) or (count, channels, height, width)."""
        array = np.asarray(given)
        if array.ndim not in (3, 4) or array.dtype.kind not in "biuf":
            raise InputError(
                "images must be numbers of shape (count, height, width) or (count, channels, height, width), "
                f"got {array.ndim} dimensions of {array.dtype}"
            )
        if not array.size:
            raise InputError(f"0 sample(s): there are no images, got the shape {array.shape}")
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longer floats
            array = array.astype(np.float64)
        return cls((), None, False, array.astype(array.dtype.newbyteorder("="), copy=False))

    def tensor(self, scale: Any) -> Tensor:
        """Return the images with channels, bytes scaled to 0..1 and missing numbers as 0, normalised by the scale.

        A scale is a mean and a standard deviation.
        """
        # Torch needs arrays that are contiguous and writable; others are copied.
        raw = torch.as_tensor(np.require(self.array, requirements=["C", "W"])).reshape(self.rows, *self.shape)
        numbers = raw if raw.is_floating_point() else raw.float() / (255 if raw.dtype == torch.uint8 else 1)
        numbers = torch.where(numbers.isfinite(), numbers, 0)  # each image independently
        if scale is None:
            return numbers
        try:
            mean, deviation = (torch.tensor(one, dtype=numbers.dtype).reshape(-1, 1, 1) for one in scale)
            if not (bool(mean.isfinite().all()) and bool((deviation > 0).all() and deviation.isfinite().all())):
                raise ValueError
            return (numbers - mean) / deviation
        except (TypeError, ValueError, RuntimeError):
            raise OptionError(
                f"the scale must be a mean and a deviation above 0, each a number or one per channel, got {scale!r}"
            ) from None

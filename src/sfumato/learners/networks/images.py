"""Images that a model is given in the place of columns: bytes become numbers, and a missing channel is added."""

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
    """Images in the place of columns; nothing of them has to be public.

    Examples
    --------
    >>> images = Images.of_array(np.full((5, 28, 28), 255, dtype=np.uint8))
    >>> images.shape, images.tensor(None).max()
    ((1, 28, 28), tensor(1.))
    """

    array: NDArray[Any]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one."""
        return (1, *self.array.shape[1:]) if self.array.ndim == 3 else self.array.shape[1:]

    @classmethod
    def of_array(cls, given: Any) -> Images:
        """Take an array of shape (count, height, width) or (count, channels, height, width)."""
        array = np.asarray(given)
        if array.ndim not in (3, 4) or array.dtype.kind not in "biuf":
            raise InputError(
                "images must be numbers of shape (count, height, width) or (count, channels, height, width), "
                f"got {array.ndim} dimensions of {array.dtype}"
            )
        if not array.size:
            raise InputError(f"0 sample(s): there are no images, got the shape {array.shape}")
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has none that are longer
            array = array.astype(np.float64)
        return cls((), None, False, array.astype(array.dtype.newbyteorder("="), copy=False))

    def tensor(self, scale: Any) -> Tensor:
        """Return them with their channel, bytes from 0 to 1, 0 for what is no number; then by the scale.

        A scale is the mean, which is taken off, and the deviation, by which is divided.
        """
        # Torch wants arrays in order that it may write to; others are copied.
        found = torch.as_tensor(np.require(self.array, requirements=["C", "W"])).reshape(self.rows, *self.shape)
        numbers = found if found.is_floating_point() else found.float() / (255 if found.dtype == torch.uint8 else 1)
        numbers = torch.where(numbers.isfinite(), numbers, 0)  # each image for itself, as in a table
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

"""What a training tells of itself: a report after each epoch, and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Report", "scored"]


@dataclass(frozen=True)
class Report:
    """Where a training stands after an epoch.

    Losses and scores are read from data, and those of private data are not covered by epsilon: they
    are for the eyes of whoever may see the data.

    Examples
    --------
    >>> Report(epoch=1, step=9, loss=0.25, epsilon=math.inf, seconds=1.5).to_dict()
    {'epoch': 1, 'step': 9, 'loss': 0.25, 'epsilon': 'inf', 'seconds': 1.5, 'score': None}
    """

    epoch: int
    step: int
    loss: float
    """The mean loss of the samples that were drawn; not a number if none were."""
    epsilon: float
    seconds: float
    score: float | None = None
    """Accuracy, or the mean squared error, on the validation data."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values; what is unbounded is the text "inf", what is not known is None."""
        return {name: _plain(value) for name, value in vars(self).items()}


def scored(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return whether each sample got its class, or, of targets that are no classes, by how much it is off, squared.

    Of a single output, the class is whether it is above 0.
    """
    if targets.is_floating_point():
        return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1)
    found = (outputs.flatten() > 0) if outputs.numel() == len(outputs) else outputs.argmax(1)
    return (found == targets).float()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value

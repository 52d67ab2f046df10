"""What a training tells of itself: a report after each epoch, and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from sfumato.errors import OptionError

__all__ = ["PublicReport", "Report", "scored"]


@dataclass(frozen=True)
class Report:
    """Where a training stands after an epoch.

    Losses and scores are read from data without noise, and epsilon does not cover them. Those of private data are
    for the data owner: do not release them, and do not act on them (stop, change a setting, choose between models).

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

    def without_data(self) -> Report:
        """Return it without what is read from data: loss and score."""
        return replace(self, loss=math.nan, score=None)


@dataclass(frozen=True)
class PublicReport:
    """Where a private training stands after an epoch, as far as ``stop`` may know: what does not depend on the data.

    ``seconds`` is the exception: in principle the time that a computer takes depends on the numbers it handles. Use
    it as a limit, not for fine decisions.

    Examples
    --------
    >>> told = PublicReport(epoch=1, step=9, epsilon=0.5, seconds=1.5)
    >>> told.loss
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: a private training cannot stop on its loss, which is read from the data without \
noise (stop on a score: validation=..., public_validation=True)
    """

    epoch: int
    step: int
    epsilon: float
    seconds: float
    public_score: float | None = None
    """The score on validation data that were declared public; None if there are none."""

    @property
    def loss(self) -> float:
        """Not available: refused."""
        raise OptionError(
            "a private training cannot stop on its loss, which is read from the data without noise",
            hint="stop on a score: validation=..., public_validation=True",
        )

    @property
    def score(self) -> float:
        """The public score; refused if there is none."""
        if self.public_score is None:
            raise OptionError(
                "a private training can stop only on the score of public validation data",
                hint="validation=..., public_validation=True",
            )
        return self.public_score


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

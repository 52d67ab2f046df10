"""Progress reports: the report after each epoch, and scores of predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from sfumato.errors import OptionError

__all__ = ["PublicReport", "Report", "sample_scores"]


@dataclass(frozen=True)
class Report:
    """The state of a training run after an epoch.

    Losses and scores are computed without noise, and epsilon does not cover them. Losses and scores of private data
    are for the data owner: do not release them, and do not act on them (stop, change a setting, choose a model).

    Examples
    --------
    >>> Report(epoch=1, step=9, loss=0.25, epsilon=math.inf, seconds=1.5).to_dict()
    {'epoch': 1, 'step': 9, 'loss': 0.25, 'epsilon': 'inf', 'seconds': 1.5, 'score': None}
    """

    epoch: int
    step: int
    loss: float
    """The mean loss of the samples drawn; NaN if none were drawn."""
    epsilon: float
    seconds: float
    score: float | None = None
    """Accuracy, or the mean squared error, on the validation data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values: infinity as "inf", NaN as None."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def without_data(self) -> Report:
        """Return the report without loss and score, which depend on the data."""
        return replace(self, loss=math.nan, score=None)


@dataclass(frozen=True)
class PublicReport:
    """The part of a report that does not depend on the data, which ``stop`` may use in private training.

    ``seconds`` is an exception: running time can in principle depend on the data. Use it as a limit, not for fine
    decisions.

    Examples
    --------
    >>> report = PublicReport(epoch=1, step=9, epsilon=0.5, seconds=1.5)
    >>> report.loss
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
    """The score on public validation data, if there is any."""

    @property
    def loss(self) -> float:
        """Raise an `OptionError`: the loss depends on the data."""
        raise OptionError(
            "a private training cannot stop on its loss, which is read from the data without noise",
            hint="stop on a score: validation=..., public_validation=True",
        )

    @property
    def score(self) -> float:
        """The public score; raises an `OptionError` if there is none."""
        if self.public_score is None:
            raise OptionError(
                "a private training can stop only on the score of public validation data",
                hint="validation=..., public_validation=True",
            )
        return self.public_score


def sample_scores(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 1 or 0 per sample for a right or wrong class, or the squared error for targets that are fractions.

    A single output above 0 means class 1.
    """
    if targets.is_floating_point():
        return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1)
    predicted = (outputs.flatten() > 0) if outputs.numel() == len(outputs) else outputs.argmax(1)
    return (predicted == targets).float()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value

"""How an auto-encoder is trained, and how many weights it has; what a plan needs to know without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.synthesizers.dense import Dense

__all__ = ["Training", "prior_deviation", "weights_of"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an auto-encoder is trained.

    Parameters
    ----------
    clip : float
        The largest norm of a record's gradient.
    learning_rate : float
        Of Adam, at its largest.
    jitter : float
        The standard deviation of the noise on codes, unless it is variational.
    variational : bool
        Whether codes are drawn from normal distributions.
    divergence : float
        If so, the weight of their divergence from the prior in the loss.
    known : int
        The number of inputs, the last ones, that the decoder knows too.
    gain : float
        A factor of the initial weights of the first layer, for small inputs.
    """

    clip: float = 1.0
    learning_rate: float = 0.01
    jitter: float = 0.1
    variational: bool = False
    divergence: float = 1.0
    known: int = 0
    gain: float = 1.0


def weights_of(down: Sequence[int], up: Sequence[int], how: Training) -> int:
    """Return the number of weights that are trained.

    Examples
    --------
    >>> weights_of([4, 1], [1, 4], Training()), weights_of([4, 1], [1, 4], Training(variational=True))
    (13, 18)
    """
    codes = 2 * down[-1] if how.variational else down[-1]
    return Dense.count([*down[:-1], codes]) + Dense.count(up)


def prior_deviation(width: int) -> float:
    """Return the standard deviation of the prior of codes: half of them are at most about 1/2 long.

    Examples
    --------
    >>> prior_deviation(16)
    0.125
    """
    return 0.5 / math.sqrt(width)

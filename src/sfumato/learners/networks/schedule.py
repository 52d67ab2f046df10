"""The number of steps and the learning rate of full-batch linear models, from epsilon and the number of images.

Every step uses all images, so there is no amplification by sampling: a step is one Gaussian mechanism, and T steps with
noise of sigma clips equal one step with sigma / sqrt(T). Epsilon and delta therefore determine mu = sqrt(T) / sigma,
whatever T is (Dong, Roth and Su 2022).

With clip C, learning rate r and momentum m, the weights travel at most D = r C T / (1 - m), and the noise in each of
them finally has a standard deviation of about D / (n mu), for n images, independent of T. So n mu, here called the
signal, determines how far to travel, and more steps only make the path smoother. A clip far below the usual norm of a
gradient makes all gradients equally long; no larger clip was better at any signal.

The two remaining constants below were chosen on training images only: on 1,750 to 7,000 of the 10,000 built-in training
images of MNIST, scored on the other 3,000, for signals from 50 to 45,000, 10 to 640 steps, five clips, ten distances
and two schedules. One setting was checked on 50,000 images of the full training part against its other 10,000. Test
images were not used. The search is benchmarks/training_rule.py.
"""

from __future__ import annotations

import math

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian

__all__ = ["learning_rate_of", "signal_of", "signal_of_noise", "steps_of"]

_STEPS, _FEWEST = 2.2, 20  # times sqrt(signal): more steps were hardly better, and take longer
_DISTANCE = 4.0  # times signal / sqrt(inputs): the noise of an output then has a standard deviation of about 4
_LARGEST = 60_000.0  # the largest signal tried; beyond it, noise does not matter


def signal_of(rows: int, epsilon: float, delta: float) -> float:
    """Return the signal n mu: the number of records over the noise multiplier of training in a single step.

    Examples
    --------
    >>> round(signal_of(60_000, 0.79, 1e-5), -2)
    13000.0
    """
    if epsilon == math.inf:
        return _LARGEST
    return min(_LARGEST, rows / calibrate(Gaussian, epsilon, delta, precision=1e-3))


def signal_of_noise(rows: int, noise_multiplier: float) -> float:
    """Return the signal of `steps_of` steps with the given noise per step.

    Examples
    --------
    >>> round(signal_of_noise(60_000, 71.7)), steps_of(signal_of_noise(60_000, 71.7))
    (13339, 254)
    """
    steps = max(_FEWEST, (_STEPS**2 * rows / noise_multiplier) ** (2 / 3))  # signal = rows sqrt(steps) / noise
    return min(_LARGEST, rows * math.sqrt(steps) / noise_multiplier)


def steps_of(signal: float) -> int:
    """Return the number of steps for a signal.

    Examples
    --------
    >>> steps_of(50), steps_of(2_800), steps_of(13_000)
    (20, 116, 251)
    """
    return max(_FEWEST, round(_STEPS * math.sqrt(min(signal, _LARGEST))))


def learning_rate_of(signal: float, *, steps: float, inputs: int, clip: float = 0.1, momentum: float = 0.9) -> float:
    """Return the learning rate with which the weights travel as far as the signal allows.

    Examples
    --------
    >>> round(learning_rate_of(13_000, steps=251, inputs=3969), 2)
    3.29
    """
    distance = _DISTANCE * min(signal, _LARGEST) / math.sqrt(inputs)
    return distance * (1 - momentum) / (clip * steps)

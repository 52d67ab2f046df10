"""How many steps a linear model on all images takes, and how long they are: from epsilon and the number of images.

Every step takes all images, so nothing is sampled and nothing is amplified: a step is one Gaussian mechanism, and T
steps with noise of sigma clips are the same as one with sigma / sqrt(T). An epsilon and a delta therefore fix
mu = sqrt(T) / sigma, whatever T is (Dong, Roth and Su 2022).

With clip C, learning rate r and momentum m the weights travel at most D = r C T / (1 - m), and their noise at the end
has a deviation of about D / (n mu) each, for n images. T does not occur in it. So the number n mu, here called the
signal, decides how far to travel, and more steps only make the way smoother. A clip far below the usual norm of a
gradient makes all gradients equally long; anything larger was no better at any signal.

What is left, the two constants below, was chosen on training images alone: on 1,750 to 7,000 of the 10,000 images
of MNIST's training part that are built in, scored on the other 3,000, for signals from 50 to 45,000, 10 to 640 steps,
five clips, ten distances and two schedules. One setting was checked on 50,000 of the full training part against its
other 10,000. The test images had no say. The search is benchmarks/training_rule.py.
"""

from __future__ import annotations

import math

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian

__all__ = ["learning_rate_of", "signal_of", "signal_of_noise", "steps_of"]

_STEPS, _FEWEST = 2.2, 20  # times sqrt(signal): more steps were hardly better, and cost time
_DISTANCE = 4.0  # times signal / sqrt(inputs): the noise of an output then has a deviation of about 4
_LARGEST = 60_000.0  # the largest signal that was tried; beyond it, noise does not matter


def signal_of(rows: int, epsilon: float, delta: float) -> float:
    """Return n mu: the number of records over the noise that the whole training would need as a single step.

    Examples
    --------
    >>> round(signal_of(60_000, 0.79, 1e-5), -2)
    13000.0
    """
    if epsilon == math.inf:
        return _LARGEST
    return min(_LARGEST, rows / calibrate(Gaussian, epsilon, delta, precision=1e-3))


def signal_of_noise(rows: int, noise_multiplier: float) -> float:
    """Return the signal of a training whose noise per step is given, if it makes `steps_of` steps.

    Examples
    --------
    >>> round(signal_of_noise(60_000, 71.7)), steps_of(signal_of_noise(60_000, 71.7))
    (13339, 254)
    """
    steps = max(_FEWEST, (_STEPS**2 * rows / noise_multiplier) ** (2 / 3))  # signal = rows sqrt(steps) / noise
    return min(_LARGEST, rows * math.sqrt(steps) / noise_multiplier)


def steps_of(signal: float) -> int:
    """Return how many steps to make.

    Examples
    --------
    >>> steps_of(50), steps_of(2_800), steps_of(13_000)
    (20, 116, 251)
    """
    return max(_FEWEST, round(_STEPS * math.sqrt(min(signal, _LARGEST))))


def learning_rate_of(signal: float, *, steps: float, inputs: int, clip: float = 0.1, momentum: float = 0.9) -> float:
    """Return the learning rate that lets the weights travel as far as the signal allows.

    Examples
    --------
    >>> round(learning_rate_of(13_000, steps=251, inputs=3969), 2)
    3.29
    """
    distance = _DISTANCE * min(signal, _LARGEST) / math.sqrt(inputs)
    return distance * (1 - momentum) / (clip * steps)

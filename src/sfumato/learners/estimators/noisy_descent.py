"""Gradient descent with noisy full-batch gradients, shared by additive models and logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.learners.estimators.noisy_sums import Floats

__all__ = ["Descent", "ridge_against", "softmax"]

_STEP, _MOMENTUM = 0.5, 0.8
_SPREAD = 32.0  # the scale of coefficients relative to noise; chosen like the defaults of the estimators


class Descent:
    """Gradient descent with momentum, scaled by the curvature of each coefficient, and the average of its steps.

    The rounds share a budget, so each is noisier the more there are. The noise averages out again in the mean, which
    gives later rounds more weight (Polyak and Juditsky 1992).

    Parameters
    ----------
    start : array
    curvature : array
        The curvature of the loss of all records, for each coefficient.
    ridge : array
        The ridge penalty of each coefficient.

    Examples
    --------
    >>> descent = Descent(np.zeros(1), curvature=np.array([100.0]), ridge=np.array([1.0]))
    >>> for _ in range(200):
    ...     descent.step(100 * (3 - descent.at))
    >>> round(descent.at.item(), 3), round(descent.mean.item(), 1)  # the ridge shrinks 3 by one percent
    (2.97, 3.0)
    """

    def __init__(self, start: Floats, curvature: Floats, ridge: Floats) -> None:
        self.at, self.mean = start, start
        self._curvature, self._ridge = curvature, ridge
        self._speed, self._turn = np.zeros_like(start), 0

    def step(self, pull: Floats) -> None:
        """Take a step, given the noisy sum of the records' negative gradients."""
        self._turn += 1
        wanted = (pull - self._ridge * self.at) / (self._curvature + self._ridge)
        self._speed = _MOMENTUM * self._speed + (1 - _MOMENTUM) * wanted
        self.at = self.at + _STEP * self._speed
        self.mean = self.mean + 2 / (self._turn + 1) * (self.at - self.mean)


def ridge_against(noise: Any, curvature: Floats) -> Floats:
    """Return ridge penalties in proportion to the squared noise, larger for coefficients with little curvature.

    This is the form of the Bayes estimate for normal coefficients and normal noise. Without noise, the penalty equals
    one additional record with a coefficient of zero.

    Parameters
    ----------
    noise : float or array
        The standard deviation of the noise on the sum of gradients, over all rounds.
    curvature : array
        The curvature of the loss of all records, for each coefficient.

    Examples
    --------
    >>> ridge_against(16.0, np.array([10.0, 1000.0]))
    array([15.4  ,  9.064])
    """
    return 1 + np.square(noise) * (1 / _SPREAD + 1 / (4 * np.maximum(curvature, 1.0)))


def softmax(scores: Floats) -> Floats:
    """Return class probabilities from a row of scores per record.

    Examples
    --------
    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)

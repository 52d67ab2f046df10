"""Descent by noisy sums of all records' gradients: what additive models and logistic regression have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.learners.estimators.noisy_sums import Floats

__all__ = ["Descent", "ridge_against", "softmax"]

_STEP, _MOMENTUM = 0.5, 0.8
_SPREAD = 32.0  # of what is to be told from noise; chosen like the defaults of the estimators


class Descent:
    """Steps with momentum, each coefficient at the pace of its own curvature, and the mean of them.

    The rounds share a budget, so each is noisier the more there are; in the mean, in which later rounds count for more,
    the noise evens out again (Polyak and Juditsky 1992).

    Parameters
    ----------
    start : array
    held : array
        The curvature of the loss of all records, for each coefficient.
    ridge : array
        How strongly each coefficient is drawn to zero.

    Examples
    --------
    >>> descent = Descent(np.zeros(1), held=np.array([100.0]), ridge=np.array([1.0]))
    >>> for _ in range(200):
    ...     descent.step(100 * (3 - descent.at))
    >>> round(descent.at.item(), 3), round(descent.mean.item(), 1)  # drawn from 3 to zero by a part in a hundred
    (2.97, 3.0)
    """

    def __init__(self, start: Floats, held: Floats, ridge: Floats) -> None:
        self.at, self.mean = start, start
        self._held, self._ridge = held, ridge
        self._speed, self._turn = np.zeros_like(start), 0

    def step(self, pull: Floats) -> None:
        """Take a step, given the noisy sum of the records' gradients, downwards."""
        self._turn += 1
        wanted = (pull - self._ridge * self.at) / (self._held + self._ridge)
        self._speed = _MOMENTUM * self._speed + (1 - _MOMENTUM) * wanted
        self.at = self.at + _STEP * self._speed
        self.mean = self.mean + 2 / (self._turn + 1) * (self.at - self.mean)


def ridge_against(noise: Any, held: Floats) -> Floats:
    """Return how strongly coefficients are drawn to zero: by the square of the noise, more so those that hold little.

    That is the form that the best guess has if coefficients and noise are both normal. Without noise, it is as if one
    more record said that the coefficient is zero.

    Parameters
    ----------
    noise : float or array
        The deviation that all rounds together leave on the sum of gradients.
    held : array
        The curvature of the loss of all records, for each coefficient.

    Examples
    --------
    >>> ridge_against(16.0, np.array([10.0, 1000.0]))
    array([15.4  ,  9.064])
    """
    return 1 + np.square(noise) * (1 / _SPREAD + 1 / (4 * np.maximum(held, 1.0)))


def softmax(scores: Floats) -> Floats:
    """Return the probabilities of classes, given a row of scores for each record.

    Examples
    --------
    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)

"""Sums over records with Gaussian noise: the only access of the classical estimators to the data.

An estimator declares in advance which kinds of sums it needs, how often, and the share of the budget for each kind.
Each sum gets noise accordingly, and further sums raise an error. All sums together cost as much as a single sum with
one noise multiplier (the inverse squares of the multipliers add up), so one number is calibrated, whatever the
estimator does.

Sums are exact and noise is in whole numbers: a record's contribution is rounded to a grid (`on_grid`) on which up to
two million contributions add up without error in 64-bit floats, and the noise is a discrete Gaussian on a grid so fine
that it costs what a continuous one does (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import Event, Gaussian, Repeated
from sfumato.budget.noise import Source

__all__ = ["NoisySums", "Share", "on_grid", "within"]

Floats = NDArray[np.float64]

_GRID = 2.0**-16
_FINE = 30  # the grid of the noise is its standard deviation over 2**30,
_FINEST = 40  # but not finer than the norm over 2**40


@dataclass(frozen=True)
class Share:
    """How often a kind of sum is needed, and the relative budget for all sums of this kind."""

    times: int
    worth: float


class NoisySums:
    """The noisy sums of one estimator.

    Parameters
    ----------
    shares : mapping of str to Share
        The kinds of sums.
    multiplier : float
        The noise multiplier of a single sum that would cost as much as all sums; 0 adds no noise.
    source : Source

    Examples
    --------
    >>> sums = NoisySums({"counts": Share(1, 0.2), "gradients": Share(10, 0.8)}, 2.0, Source())
    >>> [str(event) for event in sums.events][0]
    'Gaussian noise of scale 4.47214 on a sensitivity of 1'
    >>> round(sum(one.times / sums.multiplier_of(name) ** 2 for name, one in sums.shares.items()), 12)  # 1 / 2.0 ** 2
    0.25
    >>> sums("counts", np.array([500.0, 20.0]), norm=1.0).shape
    (2,)
    """

    def __init__(self, shares: Mapping[str, Share], multiplier: float, source: Source) -> None:
        self.shares, self.multiplier, self._source = dict(shares), multiplier, source
        self._used = Counter[str]()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all sums; none without noise."""
        if self.multiplier == 0:
            return ()
        return tuple(
            Gaussian(self.multiplier_of(name))
            if one.times == 1
            else Repeated(Gaussian(self.multiplier_of(name)), one.times)
            for name, one in self.shares.items()
        )

    def multiplier_of(self, name: str) -> float:
        """Return the standard deviation of the noise on a kind of sum, for vectors of norm 1."""
        share = self.shares[name]
        whole = math.fsum(one.worth for one in self.shares.values())
        return self.multiplier * math.sqrt(share.times * whole / share.worth)

    def deviation_of(self, name: str, norm: float) -> float:
        """Return the standard deviation of the noise on every number of a kind of sum."""
        return self.multiplier_of(name) * norm

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        """Return sums with noise.

        Parameters
        ----------
        name : str
            The kind of sum.
        sums : array
            The sum of one array per record, each of at most this Euclidean norm.
        norm : float
            A constant, or computed from released values; never from the data.
        """
        self._used[name] += 1
        if self._used[name] > self.shares[name].times:
            raise RuntimeError(f"'{name}' was needed more often than it was paid for: {self.shares[name].times} times")
        exact = np.asarray(sums, dtype=np.float64)
        if self.multiplier == 0 or exact.size == 0:
            return exact.copy()
        multiplier = self.multiplier_of(name)
        step = 2.0 ** math.floor(max(math.log2(multiplier * norm) - _FINE, math.log2(norm) - _FINEST))
        # Rounding to the grid may move each number by half a step, in either of two neighbouring tables.
        most = norm + math.sqrt(exact.size) * step
        noise = self._source.discrete_gaussian(multiplier * most / step, exact.size)
        steps = np.rint(exact / step).astype(np.int64) + noise.reshape(exact.shape)
        noisy: Floats = steps.astype(np.float64) * step
        return noisy


def on_grid(values: Any) -> Floats:
    """Round numbers towards zero, to a grid on which their products add up exactly.

    Examples
    --------
    >>> float(on_grid(-0.1))
    -0.0999908447265625
    """
    return np.trunc(np.asarray(values, dtype=np.float64) / _GRID) * _GRID


def within(rows: Any, norm: float) -> Floats:
    """Clip each row to a Euclidean norm.

    Examples
    --------
    >>> np.linalg.norm(within([[3.0, 4.0], [0.3, 0.4]], 1.0), axis=1) <= [1.0, 0.5]
    array([ True,  True])
    """
    given = np.asarray(rows, dtype=np.float64)
    sizes = np.sqrt(np.square(given).sum(axis=1, keepdims=True))
    # The factor 1 - 1e-9 keeps rounding from making a row longer than the norm.
    return on_grid(np.where(sizes > norm, given * (norm * (1 - 1e-9) / np.maximum(sizes, 1e-300)), given))

"""Raking: weights for drawn rows, so that their pair counts agree with the noisy ones.

Each sweep multiplies the weight of a row by (wanted count / present count) of its cell, once per table (iterative
proportional fitting on a sample). A noisy count is trusted in proportion to what it knows: the exponent of the factor
is v / (v + s^2), where s is the deviation of its noise and v the variance that its present count would have anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Wanted", "rake"]

Floats = NDArray[np.float64]

_DOUBT = 0.1  # the relative error of the rows' own counts: the smaller, the less a noisy count moves them
_LARGEST = 3.0  # a factor of a sweep is between 1/3 and 3
_LIGHTEST, _HEAVIEST = 0.02, 50.0  # weights, relative to their mean
_SETTLED = 0.005  # stop when the weights of a sweep change by less, in the mean


@dataclass(frozen=True, eq=False)
class Wanted:
    """The wanted counts of some columns, and the deviation of the noise on each."""

    columns: tuple[int, ...]
    counts: Floats
    deviation: float


def rake(
    columns: Sequence[NDArray[np.integer]],
    wanted: Sequence[Wanted],
    weights: Floats,
    sweeps: int,
    parts: Floats | None = None,
) -> Floats:
    """Return weights with which the drawn rows have about the wanted counts.

    Parameters
    ----------
    columns : sequence of arrays
    wanted : sequence of Wanted
    weights : array
        The weights of the rows before.
    sweeps : int
        At most so many.
    parts : array, optional
        The part of a row that each row stands for, where some are drawn more often than others; the limits of its
        weight are that part of those of a row. By default 1.

    Examples
    --------
    >>> columns = [np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])]
    >>> wanted = [Wanted((0, 1), np.array([[4.0, 2.0], [2.0, 4.0]]), 0.0)]
    >>> rake(columns, wanted, np.full(4, 3.0), sweeps=9).round(2).tolist()
    [4.0, 2.0, 2.0, 4.0]
    """
    from sfumato.synthesizers.tables.methods.tree.raking_kernels import sweep

    weights = weights.copy()
    total, start, tables = weights.sum(), 0, []
    for one in wanted:
        shape = (*one.counts.shape, 1)
        third = one.columns[2] if len(one.columns) > 2 else -1
        tables.append((*one.columns[:2], third, shape[1], shape[2], start, one.counts.size))
        start += one.counts.size
    counts = np.concatenate([one.counts.ravel() for one in wanted] or [np.zeros(0)])
    variances = np.array([one.deviation**2 for one in wanted])
    present = np.zeros(max((one.counts.size for one in wanted), default=1))
    most = max(int(one.max(initial=0)) for one in columns)
    drawn = np.stack([one.astype(np.uint16 if most < 2**16 else np.int32) for one in columns])
    listed = np.array(tables, dtype=np.int64).reshape(-1, 7)
    for _ in range(sweeps):
        before = weights.copy()
        sweep(drawn, listed, counts, variances, weights, present, _DOUBT, _LARGEST)
        weights *= total / weights.sum()
        mean = total / len(weights) if parts is None else total / parts.sum() * parts
        np.clip(weights, _LIGHTEST * mean, _HEAVIEST * mean, out=weights)
        if np.abs(weights - before).sum() < _SETTLED * total:
            break
    raked: Floats = weights * (total / weights.sum())
    return raked

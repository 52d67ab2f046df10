"""What two columns together tell of the label, beyond what each of them tells; it is added to an additive model.

Pairs that were counted within each label show where an additive model is wrong. For each cell (group, group) of a pair,
the noisy count of a label minus the one that the model expects has the mean h d, where d is what the score lacks and h
the curvature of the drawn rows, and a known variance s^2: that of the noise, and of the records as a sample. The
variance v of d within a pair is estimated from all of its cells (empirical Bayes); each d is then its posterior mean::

    for each pair that is clearly wrong, those that tell most first, three times:
        e = noisy count - expected count of the label, without what rows and columns of the table have in common
        v = by the moments of e, at the first visit
        d = (h e / s^2 - score / v) / (h^2 / s^2 + 1 / v); score += d

Drawn rows are not quite like the records, so a small error is no sign of an interaction: a pair is clearly wrong if its
errors are larger than chance and an error of 0.2 in the log-odds of every cell explain. The less noise, the nearer the
model comes to one that has the counts of all such pairs; without them nothing changes.

References: Lou, Caruana, Gehrke and Hooker 2013 (additive models with pairs), Efron and Morris 1973 (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.synthesizers.tables.methods.tree.labels import chances_of

__all__ = ["Interactions", "learn_interactions"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SWEEPS = 3
_CLEAR = 4.0  # deviations by which the squared errors of a pair must be larger than expected
_DOUBT = 0.2  # the error of the log-odds in a cell that comes from the drawn rows
_LARGEST = 1.0  # the largest change of a score in one step
_WIDEST = 4.0  # the largest variance of a pair's scores


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Scores of the cells (group, group) of some pairs of columns, for each output of the model of the label.

    Parameters
    ----------
    groups : for each column, the group of each cell
    tables : by the positions of two columns, a table (group, group, output)
    outputs : the number of outputs

    Examples
    --------
    >>> groups = [np.array([0, 1, 1]), np.array([0, 1])]
    >>> one = Interactions(groups, {(0, 1): np.array([[[0.0], [1.0]], [[2.0], [3.0]]])}, 1)
    >>> one.scores([np.array([0, 2]), np.array([1, 0])]).tolist()
    [[1.0], [2.0]]
    """

    groups: Sequence[Ints]
    tables: Mapping[tuple[int, int], Floats]
    outputs: int

    def scores(self, cells: Sequence[NDArray[np.integer]]) -> Floats:
        """Return the sum of the scores of each row, given its cells, one array per column."""
        found = np.zeros((len(cells[0]), self.outputs))
        coarse = {at: self.groups[at].astype(np.int32)[cells[at]] for pair in self.tables for at in pair}
        for (a, b), table in self.tables.items():
            found += table.reshape(-1, self.outputs)[coarse[a] * table.shape[1] + coarse[b]]
        return found


@dataclass(frozen=True, eq=False)
class _Errors:
    """What a table of scores lacks: the errors of the expected counts, their variances, and the curvature."""

    error: Floats
    noise: Floats
    curve: Floats

    @property
    def _free(self) -> float:
        """The share of the errors that rows and columns of the table leave free."""
        a, b, _ = self.error.shape
        return float((a - 1) * (b - 1) / (a * b))

    def is_clear(self) -> bool:
        """Return whether the errors of any output are larger than chance and the doubt about the rows explain."""
        if not self._free:
            return False
        noise = self.noise + np.square(_DOUBT * self.curve)
        weight = np.square(self.curve / noise)
        signal = (weight * (np.square(self.error) / self._free - noise)).sum(axis=(0, 1))
        spread = np.sqrt(2 * np.square(weight * noise).sum(axis=(0, 1)) / self._free)
        return bool((signal > _CLEAR * spread).any())

    def variances(self) -> Floats:
        """Return the variance of what the scores lack, for each output."""
        weight = np.square(self.curve / self.noise)
        signal = (weight * (np.square(self.error) / self._free - self.noise)).sum(axis=(0, 1))
        scale = np.maximum((weight * self.curve**2).sum(axis=(0, 1)), 1e-12)
        found: Floats = np.clip(signal / scale, 1e-6, _WIDEST)
        return found


def learn_interactions(
    groups: Sequence[Ints],
    noisy: Mapping[tuple[int, int], Floats],
    deviation: float,
    cells: Sequence[NDArray[np.integer]],
    weights: Floats,
    linear: Floats,
) -> Interactions:
    """Find what pairs tell beyond an additive model.

    Parameters
    ----------
    groups : for each column, the group of each cell
    noisy : the noisy counts of (group, group, label), by the positions of two columns
    deviation : that of the noise on each count
    cells : the cells of drawn rows, one array per column
    weights : their weights
    linear : their scores by the additive model, a column per output
    """
    outputs = linear.shape[1]
    coarse = [group.astype(np.int32)[cell] for group, cell in zip(groups, cells, strict=True)]

    def places(pair: tuple[int, int]) -> NDArray[np.int32]:
        found: NDArray[np.int32] = coarse[pair[0]] * noisy[pair].shape[1] + coarse[pair[1]]
        return found

    def errors(pair: tuple[int, int]) -> _Errors:
        return _errors(noisy[pair], deviation, places(pair), weights, chances_of(linear))

    first = {pair: errors(pair) for pair in noisy}
    told = {
        pair: float(np.square(one.error / one.noise * one.curve).sum()) for pair, one in first.items() if one.is_clear()
    }
    found: dict[tuple[int, int], Floats] = {}
    precisions: dict[tuple[int, int], Floats] = {}
    linear = linear.copy()
    for sweep in range(_SWEEPS):
        for pair in sorted(told, key=lambda one: -told[one]) if sweep == 0 else list(found):
            now = errors(pair)
            if sweep == 0:
                if not now.is_clear():  # the pairs before explain it
                    continue
                found[pair], precisions[pair] = np.zeros_like(now.error), 1 / now.variances()
            pull = now.curve * now.error / now.noise - found[pair] * precisions[pair]
            change = np.clip(pull / (now.curve**2 / now.noise + precisions[pair]), -_LARGEST, _LARGEST)
            change *= 1.0 if outputs == 1 else 0.5  # all classes at once: half of a step cannot go too far
            found[pair] += change
            linear += change.reshape(-1, outputs)[places(pair)]
    return Interactions(groups, {pair: found[pair] for pair in sorted(found)}, outputs)


def _errors(noisy: Floats, deviation: float, place: NDArray[np.integer], weights: Floats, chances: Floats) -> _Errors:
    """Return the errors of the expected counts of a table (group, group, label), for each output."""
    outputs, shape, classes = chances.shape[1], noisy.shape[:2], noisy.shape[2]
    wanted, rows = noisy[:, :, classes - outputs if outputs == 1 else 0 :], noisy.sum(axis=2)

    def sums(values: Floats) -> Floats:
        found: Floats = np.bincount(place, weights=values, minlength=rows.size).astype(np.float64).reshape(shape)
        return found

    base = np.maximum(sums(weights), 1e-9)
    error, noise, curve = (np.empty((*shape, outputs)) for _ in range(3))
    for output in range(outputs):
        chance = chances[:, output]
        expected = sums(weights * chance)
        mean = expected / base
        h = np.maximum(expected - sums(weights * np.square(chance)), 0.0)
        curve[:, :, output] = h
        noise[:, :, output] = deviation**2 * ((1 - mean) ** 2 + (classes - 1) * mean**2) + h + 1.0
        error[:, :, output] = _alone(wanted[:, :, output] - mean * rows, h)
    return _Errors(error, noise, curve)


def _alone(error: Floats, curve: Floats) -> Floats:
    """Return the errors of a table without what its rows and its columns have in common."""
    for _ in range(2):
        error = error - curve * (error.sum(axis=1) / np.maximum(curve.sum(axis=1), 1e-9))[:, None]
        error = error - curve * (error.sum(axis=0) / np.maximum(curve.sum(axis=0), 1e-9))
    return error

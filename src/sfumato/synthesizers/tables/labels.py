"""Labels for drawn rows: an additive logistic model, fitted to noisy counts and corrected by noisy residuals.

The score of a class is a sum of one number per cell of each column. Drawn rows stand for the records: they say which
scores explain the noisy counts of (cell, label), and how a change of the scores changes the expected counts. All
estimates are Gaussian: a measurement e of expected H d (d is the change of the scores, H the curvature of the drawn
rows) with noise covariance R adds H R^-1 H to the precision of the scores. Without noise and with R = H, this is
Newton's method; with noise, directions that it hides do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import softmax

__all__ = ["AdditiveLabels", "Pool", "chances_of", "labels_in_order"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LENGTH = 8.0  # cells over which the score of an ordered column varies by its whole scale
_SINGLE = 0.1  # the share of its variance that a single cell of an ordered column may have alone
_STEPS = 12
_LARGEST = 1.0  # the largest change of the log-odds in one step, of all rows but 2 %
_FOR_CURVATURE = 20_000  # drawn rows that are enough for the curvature


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """Drawn rows: the position of each row's cell of each column among all cells, and its weight."""

    places: NDArray[np.int32]
    """One row per column."""
    weights: Floats
    total: int
    """The number of cells of all columns."""

    def sums(self, values: Floats) -> Floats:
        """Return the weighted sums of a number per row, for each cell of each column, and of all rows."""
        weighted = values * self.weights
        found = np.zeros(self.total + 1)
        for column in self.places:
            found[:-1] += np.bincount(column, weights=weighted, minlength=self.total)
        found[-1] = weighted.sum()
        return found

    def curvature(self, variances: Floats) -> Floats:
        """Return the second derivative of the loss by the scores, given the variance of each row's label."""
        from scipy.sparse import csr_matrix

        places = np.vstack([self.places, np.full(self.places.shape[1], self.total, dtype=np.int32)])
        columns, rows = places.shape
        at = np.arange(0, columns * rows + 1, columns)
        design = csr_matrix(
            (np.repeat(np.sqrt(variances * self.weights), columns), places.T.ravel(), at), shape=(rows, self.total + 1)
        )
        return np.asarray((design.T @ design).todense())

    def first(self, rows: int) -> Pool:
        """Return the pool of the first rows, with the same total weight."""
        weights = self.weights[:rows]
        return Pool(
            np.ascontiguousarray(self.places[:, :rows]), weights * (self.weights.sum() / weights.sum()), self.total
        )


@dataclass(eq=False, repr=False)
class AdditiveLabels:
    """The scores of all cells for each class, and how precisely they are known.

    With two classes, there is one score per cell, of the second class; with more, one for each class.

    Parameters
    ----------
    sizes : the number of cells of each column
    ordered : whether its cells are ordered
    classes : the number of classes
    """

    sizes: Sequence[int]
    ordered: Sequence[bool]
    classes: int
    scores: Floats = field(init=False)
    """A row per cell, and a last one for the intercept."""

    def __post_init__(self) -> None:
        self.outputs = 1 if self.classes == 2 else self.classes
        self.total = int(sum(self.sizes))
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        self.scores = np.zeros((self.total + 1, self.outputs))
        self._priors = [_prior(size, one) for size, one in zip(self.sizes, self.ordered, strict=True)]
        self._scales = np.ones((len(self.sizes), self.outputs))
        self._precision = [np.zeros((0, 0))] * self.outputs

    def linear(self, places: NDArray[np.integer]) -> Floats:
        """Return the scores of rows, given the positions of their cells, one row per column."""
        found = np.repeat(self.scores[-1:], places.shape[1], axis=0)
        for column in places:
            found += self.scores[column]
        return found

    def chances(self, places: NDArray[np.integer]) -> Floats:
        """Return the probability of each class for each row; with two classes, of the second only."""
        return chances_of(self.linear(places))

    def fit(self, pool: Pool, tables: Sequence[Floats], deviations: Floats, by_label: Floats) -> None:
        """Fit the scores to noisy counts.

        Parameters
        ----------
        pool : Pool
        tables : sequence of array
            The noisy count of each (cell, label), for each column.
        deviations : array
            The deviation of the noise on each column's counts.
        by_label : array
            The noisy count of each class.
        """
        kinds = slice(1, None) if self.outputs == 1 else slice(None)
        counts = np.concatenate([*tables, by_label[None, :]])
        rows, wanted = counts.sum(axis=1), counts[:, kinds]
        noise = np.append(np.repeat(deviations**2, self.sizes), 1 / np.sum(1 / (deviations**2 * self.sizes + 1e-9)))
        share = np.maximum(by_label / by_label.sum(), 1e-6)
        self.scores[-1] = np.log(share[1:] / share[:1]) if self.outputs == 1 else np.log(share)
        base = np.maximum(pool.sums(np.ones(len(pool.weights))), 1e-9)
        small = pool.first(_FOR_CURVATURE)
        for step in range(_STEPS):
            chances, some = self.chances(pool.places), self.chances(small.places)
            for output in range(self.outputs):
                p, q = chances[:, output], some[:, output]
                mean = pool.sums(p) / base
                error = wanted[:, output] - mean * rows
                variance = noise * ((1 - mean) ** 2 + mean**2)
                curve = small.curvature(q * (1 - q))
                self._update(small, output, curve, error, variance, 1.0, prior=True)
            if step in (_STEPS // 2, _STEPS - 3):
                self._rescale()

    def correct(self, pool: Pool, residuals: Floats, variance: Floats, doubt: float = 0.2) -> None:
        """Correct the scores by noisy sums of (label - chance) of the records in each cell.

        Parameters
        ----------
        pool : Pool
        residuals : array
            A row per cell, a column per output.
        variance : array
            The variance of the noise on each row.
        doubt : float
            How far the curvature of the drawn rows may be from that of the records: the variance of residuals that
            has nothing to do with the scores, relative to the curvature.
        """
        small = pool.first(_FOR_CURVATURE)
        some = self.chances(small.places)
        for output in range(self.outputs):
            q = some[:, output]
            curve = small.curvature(q * (1 - q))
            self._update(small, output, curve, residuals[:, output], variance, doubt, prior=False)

    def _update(
        self, pool: Pool, output: int, curve: Floats, error: Floats, variance: Floats, own: float, *, prior: bool
    ) -> None:
        noise = own * curve + np.diag(variance + 1.0)
        gain = np.linalg.solve(noise, curve).T  # H R^-1
        before = self._prior_precision(output) if prior else self._precision[output]
        pull = gain @ error
        if prior:
            pull -= before @ self.scores[:, output]
        precision = gain @ curve + before
        change = np.linalg.solve(precision, pull) * (1.0 if self.outputs == 1 else 1 - 1 / self.classes)
        moved = np.full(pool.places.shape[1], change[-1])
        for column in pool.places:
            moved += change[column]
        # The curvature holds near the present scores only.
        self.scores[:, output] += change * min(1.0, _LARGEST / max(np.quantile(np.abs(moved), 0.98), 1e-9))
        self._precision[output] = precision

    def _prior_precision(self, output: int) -> Floats:
        whole = np.zeros((self.total + 1, self.total + 1))
        whole[-1, -1] = 1e-6
        for start, prior, scale in zip(self.starts, self._priors, self._scales[:, output], strict=True):
            whole[start : start + len(prior), start : start + len(prior)] = prior / scale
        return whole

    def _rescale(self) -> None:
        """Estimate the variance of each column's scores from the scores and their uncertainty (empirical Bayes)."""
        for output in range(self.outputs):
            spread = np.linalg.inv(self._precision[output])
            for at, (start, prior) in enumerate(zip(self.starts, self._priors, strict=True)):
                part = slice(start, start + len(prior))
                own = self.scores[part, output]
                energy = own @ prior @ own + np.sum(prior * spread[part, part])
                self._scales[at, output] = np.clip(energy / len(prior), 1e-3, 30.0)


def _prior(size: int, ordered: bool) -> Floats:
    """Return the prior precision of the scores of one column, for a scale of 1."""
    if not ordered or size < 4:
        return np.eye(size)
    apart = np.abs(np.subtract.outer(np.arange(size - 1), np.arange(size - 1)))
    covariance = np.eye(size)
    covariance[:-1, :-1] = (1 - _SINGLE) * np.exp(-apart / _LENGTH) + _SINGLE * np.eye(size - 1)
    return np.asarray(np.linalg.inv(covariance), dtype=np.float64)


def chances_of(linear: Floats) -> Floats:
    """Return probabilities from scores: of the second class, if there is one score, else of each."""
    if linear.shape[1] == 1:
        chance: Floats = 1 / (1 + np.exp(-np.clip(linear, -30, 30)))
        return chance
    return softmax(linear)


def labels_in_order(chances: Floats, rng: np.random.Generator) -> Ints:
    """Draw a label for each row, in the order of the chances, so that every range of chances has its share.

    Examples
    --------
    >>> labels_in_order(np.array([[0.5], [0.5], [0.5], [0.5]]), np.random.default_rng(0)).sum()
    np.int64(2)
    """
    if chances.shape[1] == 1:
        order = np.argsort(chances[:, 0] + rng.random(len(chances)) * 1e-6)
        up = np.floor(np.cumsum(chances[order, 0]) + rng.random())
        labels = np.empty(len(chances), dtype=np.int64)
        labels[order] = np.diff(up, prepend=np.floor(up[:1] - chances[order[:1], 0] + 1e-12)) > 0
        return labels
    up = np.cumsum(chances, axis=1)
    drawn: Ints = (rng.random(len(chances))[:, None] >= up[:, :-1]).sum(axis=1)
    return drawn

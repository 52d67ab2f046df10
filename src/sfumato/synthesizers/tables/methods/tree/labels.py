"""Labels for drawn rows: an additive logistic model, fitted to noisy counts and corrected by noisy residuals.

The score of a class is a sum of one number per cell of each column. Drawn rows stand for the records: they say which
scores explain the noisy counts of (cell, label), and how a change of the scores changes the expected counts. All
estimates are Gaussian: a measurement e of expected H d (d is the change of the scores, H the curvature of the drawn
rows) with noise covariance R adds H R^-1 H to the precision of the scores. Without noise and with R = H, this is
Newton's method; with noise, directions that it hides do not move::

    fit:      scores = 0; 18 times: e = noisy counts of (cell, label) - expected ones; P = H R^-1 H + C^-1;
              scores += P^-1 (H R^-1 e - C^-1 scores); once they have settled, rescale the prior covariance C
    correct:  e = noisy sums of weight * (label - chance) over the records of each cell; P += H R^-1 H;
              scores += P^-1 H R^-1 e

The prior covariance is a sum of parts s K: for each column one of scores that are independent, and for an ordered one
another of scores that vary smoothly over its cells. Each scale s is estimated from what the counts of all classes tell
(empirical Bayes), so that columns that tell nothing of the label get no scores, and others as much freedom as they
need. Scores that have not settled look smaller than they are, and so would the scales; so these come later. With
``u = C^-1 scores`` and V the posterior covariance, the step is ``s *= u' K u / tr(K (C^-1 - C^-1 V C^-1))``.

The weight of a record in a correction is the largest that keeps its residual within a bound, see `influence`.

References: Kalman 1960 (updates), MacKay 1992 (scales of priors), Kuensch, Stefanski and Carroll 1989 (weights).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import softmax

__all__ = ["LARGEST_RESIDUAL", "AdditiveLabels", "Pool", "chances_of", "influence", "labels_in_order"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST_RESIDUAL = 0.5
"""The largest norm of the residual of a record, by `influence`."""
_LENGTH = 8.0  # cells over which the score of an ordered column varies by its whole scale
_SINGLE = 0.1  # the share of its variance that a single cell of an ordered column has alone, to begin with
_STEPS = 18
_SETTLED = 8  # steps before the first estimate of scales
_SMALLEST, _LARGEST_SCALE = 1e-4, 100.0
_BELIEF = 0.3  # scores that the first guess of a scale is worth
_DOUBT = 0.2  # the variance of residuals that has nothing to do with the scores, relative to the curvature
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
    added: Floats | None = None
    """What is added to the scores of each row, a column per output."""

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
        from sfumato.synthesizers.tables.methods.tree.label_kernels import add_products

        found = np.zeros((self.total + 1, self.total + 1))
        add_products(self.places, variances * self.weights, found)
        return np.tril(found) + np.tril(found, -1).T

    def first(self, rows: int) -> Pool:
        """Return the pool of the first rows, with the same total weight."""
        weights = self.weights[:rows]
        return Pool(
            np.ascontiguousarray(self.places[:, :rows]),
            weights * (self.weights.sum() / weights.sum()),
            self.total,
            None if self.added is None else self.added[:rows],
        )


@dataclass(eq=False, repr=False)
class AdditiveLabels:
    """The scores of all cells for each class, and how precisely they are known.

    With two classes, there is one score per cell, of the second class; with more, one for each class.

    Parameters
    ----------
    merged : for each column, the group of each cell; the cells of a group have one score
    ordered : whether its cells are ordered
    classes : the number of classes
    """

    merged: Sequence[Ints]
    ordered: Sequence[bool]
    classes: int
    scores: Floats = field(init=False)
    """A row per group of cells, and a last one for the intercept."""

    def __post_init__(self) -> None:
        self.outputs = 1 if self.classes == 2 else self.classes
        self.sizes = [int(one.max()) + 1 for one in self.merged]
        self.total = sum(self.sizes)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        self.scores = np.zeros((self.total + 1, self.outputs))
        self._parts = [
            _Part(slice(start, start + size), covariance, scale)
            for start, size, ordered in zip(self.starts, self.sizes, self.ordered, strict=True)
            for covariance, scale in _covariances(size, ordered=ordered)
        ]
        self._prior = self._prior_precision()
        self._precision = [np.zeros((0, 0))] * self.outputs

    def places(self, cells: Sequence[NDArray[np.integer]]) -> NDArray[np.int32]:
        """Return the positions of rows' cells among all groups of cells, one row per column."""
        each = zip(cells, self.merged, self.starts, strict=True)
        return np.stack([(groups + start).astype(np.int32)[one] for one, groups, start in each])

    def linear(self, places: NDArray[np.integer]) -> Floats:
        """Return the scores of rows, given the positions of their cells, one row per column."""
        found = np.repeat(self.scores[-1:], places.shape[1], axis=0)
        for column in places:
            found += self.scores[column]
        return found

    def chances(self, places: NDArray[np.integer], added: Floats | None = None) -> Floats:
        """Return the probability of each class for each row; with two classes, of the second only."""
        linear = self.linear(places)
        return chances_of(linear if added is None else linear + added)

    def fit(self, pool: Pool, tables: Sequence[Floats], deviation: float, by_label: Floats) -> None:
        """Fit the scores to noisy counts.

        Parameters
        ----------
        pool : Pool
        tables : sequence of array
            The noisy count of each (group of cells, label), for each column.
        deviation : float
            The deviation of the noise on the count of each cell.
        by_label : array
            The noisy count of each class.
        """
        kinds = slice(1, None) if self.outputs == 1 else slice(None)
        counts = np.concatenate([*tables, by_label[None, :]])
        rows, wanted = counts.sum(axis=1), counts[:, kinds]
        members = [np.bincount(one) for one in self.merged]
        of_all = 1 / sum(1 / len(one) for one in self.merged)
        noise = deviation**2 * np.concatenate([*members, [of_all]])
        share = np.maximum(by_label / by_label.sum(), 1e-6)
        self.scores[-1] = np.log(share[1:] / share[:1]) if self.outputs == 1 else np.log(share)
        base = np.maximum(pool.sums(np.ones(len(pool.weights))), 1e-9)
        small = pool.first(_FOR_CURVATURE)
        linear = self.linear(pool.places)
        for step in range(_STEPS):
            for output in range(self.outputs):
                p = chances_of(linear)[:, output]
                q = p[: len(small.weights)]
                mean = pool.sums(p) / base
                error = wanted[:, output] - mean * rows
                variance = noise * ((1 - mean) ** 2 + mean**2)
                curve = small.curvature(q * (1 - q))
                linear[:, output] += self._update(pool, output, curve, error, variance, 1.0, prior=True)
            if _SETTLED <= step < _STEPS - 1:
                self._rescale()

    def correct(self, pool: Pool, residuals: Floats, deviation: float) -> None:
        """Correct the scores by noisy sums of weighted (label - chance) of the records in each cell.

        Parameters
        ----------
        pool : Pool
        residuals : array
            A row per group of cells and one for all, a column per output.
        deviation : float
            The deviation of the noise on each sum.
        """
        small = pool.first(_FOR_CURVATURE)
        linear = self.linear(small.places)
        if small.added is not None:
            linear += small.added
        before = chances_of(linear)
        heft, variance = influence(before), np.full(self.total + 1, deviation**2)
        for output in range(self.outputs):
            q = chances_of(linear)[:, output]
            curve = small.curvature(heft * q * (1 - q))
            # The scores of other classes have changed since the residuals were summed.
            left = residuals[:, output] - small.sums(heft * (q - before[:, output]))
            linear[:, output] += self._update(small, output, curve, left, variance, _DOUBT, prior=False)

    def _update(
        self, pool: Pool, output: int, curve: Floats, error: Floats, variance: Floats, own: float, *, prior: bool
    ) -> Floats:
        """Change the scores of a class, and return by how much those of the drawn rows change."""
        from scipy.linalg import cho_solve, solve_triangular

        # With R = L L', H R^-1 H is W' W and H R^-1 e is W' L^-1 e, where W = L^-1 H.
        lower = np.linalg.cholesky(own * curve + np.diag(variance + 1.0))
        known = solve_triangular(lower, np.column_stack([curve, error]), lower=True, check_finite=False)
        whitened = np.asfortranarray(known[:, :-1])
        pull, precision = whitened.T @ known[:, -1], whitened.T @ whitened
        before = self._prior if prior else self._precision[output]
        if prior:
            pull -= before @ self.scores[:, output]
        precision += before
        change = cho_solve((np.linalg.cholesky(precision), True), pull, check_finite=False)
        moved = np.full(pool.places.shape[1], change[-1])
        for column in pool.places:
            moved += change[column]
        # The curvature holds near the present scores only.
        part = min(1.0, _LARGEST / max(float(np.quantile(np.abs(moved), 0.98)), 1e-9))
        self.scores[:, output] += part * change
        self._precision[output] = precision
        return part * moved

    def _prior_precision(self) -> Floats:
        """Return the inverse of the prior covariance, column by column."""
        whole = np.zeros((self.total + 1, self.total + 1))
        whole[-1, -1] = 1e-6
        for one in self._parts:
            whole[one.place, one.place] += one.scale * one.covariance
        for start, size in zip(self.starts, self.sizes, strict=True):
            place = slice(start, start + size)
            whole[place, place] = np.linalg.inv(whole[place, place])
        return whole

    def _rescale(self) -> None:
        """Estimate the scales of the prior from the scores of all classes and their uncertainty (empirical Bayes)."""
        from scipy.linalg import solve_triangular

        found, expected = np.zeros(len(self._parts)), np.zeros(len(self._parts))
        for output, precision in enumerate(self._precision):
            # The posterior covariance is root' root.
            root = solve_triangular(np.linalg.cholesky(precision), np.eye(len(precision)), lower=True)
            pull = self._prior @ self.scores[:, output]
            for at, one in enumerate(self._parts):
                prior = self._prior[one.place, one.place]
                spread = root[:, one.place]
                told = prior - prior @ (spread.T @ spread) @ prior
                found[at] += one.scale * (pull[one.place] @ one.covariance @ pull[one.place])
                expected[at] += one.scale * np.sum(one.covariance * told)
        for one, energy, scores in zip(self._parts, found, expected, strict=True):
            scale = (one.scale * energy + _BELIEF * one.guess) / (max(scores, 0.0) + _BELIEF)
            one.scale = float(np.clip(scale, _SMALLEST, _LARGEST_SCALE))
        self._prior = self._prior_precision()


@dataclass(eq=False, repr=False)
class _Part:
    """A part of the prior covariance of the scores of one column."""

    place: slice
    covariance: Floats
    guess: float
    """The scale before anything is known."""

    def __post_init__(self) -> None:
        self.scale = self.guess


def _covariances(size: int, *, ordered: bool) -> list[tuple[Floats, float]]:
    """Return the parts of the prior covariance of the scores of one column, and their first scales."""
    if not ordered or size < 4:
        return [(np.eye(size), 1.0)]
    apart = np.abs(np.subtract.outer(np.arange(size - 1), np.arange(size - 1)))
    smooth = np.zeros((size, size))
    smooth[:-1, :-1] = np.exp(-apart / _LENGTH)
    return [(smooth, 1 - _SINGLE), (np.eye(size), _SINGLE)]


def chances_of(linear: Floats) -> Floats:
    """Return probabilities from scores: of the second class, if there is one score, else of each."""
    if linear.shape[1] == 1:
        chance: Floats = 1 / (1 + np.exp(-np.clip(linear, -30, 30)))
        return chance
    return softmax(linear)


def influence(chances: Floats) -> Floats:
    """Return the largest factor for each row with which its residual (label - chance) has a norm of at most 1/2.

    It depends on the chances only, so residuals keep their mean of zero if the chances are right, and the sum of
    residuals has the largest signal that the bound allows (conditionally unbiased estimates of bounded influence:
    Kuensch, Stefanski and Carroll 1989).

    Examples
    --------
    >>> influence(np.array([[0.5], [0.1], [0.9]])).round(3).tolist()
    [1.0, 0.556, 0.556]
    """
    if chances.shape[1] == 1:
        farthest = np.maximum(chances[:, 0], 1 - chances[:, 0])
    else:
        farthest = np.sqrt(np.square(chances).sum(axis=1) + 1 - 2 * chances.min(axis=1))
    factors: Floats = LARGEST_RESIDUAL / farthest
    return factors


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

"""Additive models: the prediction is a sum of one readable curve per column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from sfumato.data.validate import whole
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.learners.estimators.binning import Binning, CellCounts, histogram, make_bins
from sfumato.learners.estimators.estimator import Classifier, Ints, PrivateEstimator, Regressor
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.learners.estimators.noisy_sums import (
    Descent,
    Floats,
    NoisySums,
    Share,
    on_grid,
    ridge_against,
    softmax,
    within,
)

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]

_FINE = 1024  # cells of a number, which are merged into bins
_TARGET_CELLS = 64
_FEW_RECORDS = 10.0  # a bin with fewer records does not increase the share of its column


@dataclass(kw_only=True, eq=False, repr=False)
class _Additive(PrivateEstimator):
    """The common part of both models: bins, and gradient descent on the curves of all columns."""

    bins: int = 24
    rounds: int = 40
    clip: float = 0.7

    _state: ClassVar = ("bins_", "intercept_", "shapes_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of bins", self.bins, least=2)
        whole("the number of rounds", self.rounds)
        if not 0 < self.clip <= 1:
            raise OptionError(f"the clip must be above 0 and at most 1, got {self.clip!r}")
        return {"histogram": Share(1, 0.3), "residuals": Share(self.rounds, 0.7)}

    def _refuse_misfits(self) -> None:
        binning = self._binning
        fits = self.bins_.dtype.kind == "i" and self.bins_.shape == (sum(binning.cells),)
        fits = fits and all(bool(((one >= 0) & (one <= one[-1])).all()) for one in binning.columns)
        outputs = len(self.classes_) if isinstance(self, Classifier) else 1
        if not fits or (self.shapes_.shape, self.intercept_.shape) != ((binning.total, outputs), (outputs,)):
            raise InputError("the curves do not fit these columns and outputs")

    @property
    def _binning(self) -> Binning:
        return Binning(self.bins_, self.features_.sizes(_FINE))

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return the intercept plus the values of all curves, for each record."""
        columns = self._columns(X)
        places = self._binning.places(self.features_.cells(columns, _FINE))
        return _add_curves(np.vstack([self.shapes_, self.intercept_]), places)

    def shape_of(self, column: str) -> list[tuple[str, Any]]:
        """Return the curve of a column: a label for each of its bins, and what the bin adds to the prediction.

        With two classes, a bin adds to the log-odds of the second; with more, there is a number for each class.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "features_")
        if column not in self.features_.names:
            raise ColumnError(f"the model has no column '{column}'", hint=did_you_mean(column, self.features_.names))
        at = self.features_.names.index(column)
        binning = self._binning
        scores = np.split(self.shapes_, binning.starts[1:])[at]
        values = np.diff(scores, axis=1) if scores.shape[1] == 2 else scores
        plain = values[:, 0].tolist() if values.shape[1] == 1 else values.tolist()
        return list(zip(_labels(self.features_.features[at], binning.columns[at]), plain, strict=True))

    def curve_of(self, column: str) -> tuple[list[Any], list[Any]]:
        """Return the curve of a column for plotting, without the bin for unknown values.

        For a number, the first list has the edges of its bins; for a category, its values. The second list has what
        each bin or value adds; see `shape_of`.
        """
        added = [one for _, one in self.shape_of(column)]
        at = self.features_.names.index(column)
        feature, bins = self.features_.features[at], self._binning.columns[at]
        if feature.domain is None:
            return _edges(feature, bins), added[:-1]
        return list(feature.domain), [added[one] for one in bins[:-1]]

    def _descend(
        self,
        places: Ints,
        found: CellCounts,
        residuals: Callable[[Floats], Floats],
        norm: float,
        curvature: Floats,
        start: Floats,
        sums: NoisySums,
    ) -> None:
        """Fit the curves: each round takes a step on all of them, from noisy sums of the residuals in each bin.

        ``places`` has the bin of every record in every column. ``residuals`` returns a row for each record, of at most
        the norm, given the scores. ``curvature`` is the second derivative of the loss of one record, for each output;
        ``start`` is the initial intercept.
        """
        binning = self._binning
        rows, shares = found.rows, binning.shares(found.counts)[:, None]
        total = rows * shares * curvature
        weights = _weights(binning, total.mean(axis=1))
        each = np.repeat(weights, binning.sizes)[:, None]
        whole_norm = norm * math.sqrt(math.fsum(weights**2))
        # All rounds together leave as much noise as a single sum with the same share.
        noise = sums.deviation_of("residuals", whole_norm) / math.sqrt(self.rounds) / each
        ridge = ridge_against(noise, total)
        trust = weights**2 / np.array(binning.sizes)
        trust /= trust.sum()

        # The intercept is the last row: every column sums the same residuals, and their common part belongs to it.
        descent = Descent(
            np.vstack([np.zeros((binning.total, len(start))), start]),
            np.vstack([total, rows * curvature]),
            np.vstack([ridge, np.zeros_like(start)]),
        )
        for _ in range(self.rounds):
            left = residuals(_add_curves(descent.at, places))
            pull = sums("residuals", each * _sum_in_bins(left, places, binning.total), norm=whole_norm) / each
            common = trust @ _by_column(pull, binning)
            descent.step(np.vstack([pull - shares * common, common]))
        shapes = descent.mean[:-1]
        centres = _by_column(shares * shapes, binning)
        self.shapes_ = shapes - np.repeat(centres, binning.sizes, axis=0)
        self.intercept_ = descent.mean[-1] + centres.sum(axis=0)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAdditiveClassifier(Classifier, _Additive):
    """An additive classifier with differential privacy: one readable curve per column, and often the best model.

    It is boosting with one curve per column (DP-EBM: Nori et al. 2021), with these differences. All curves take a step
    in each round, so a round costs one sum, and the noise of the rounds averages out. Columns with many small bins get
    less of the noise, and a ridge penalty shrinks curves in proportion to the noise. Residuals are clipped, which costs
    little accuracy and lowers the noise. Class probabilities are a softmax, whose residuals have norm at most sqrt(2).

    Parameters
    ----------
    bins : int
        The largest number of bins of a number; there are fewer where bins would not stand out from the noise.
    rounds : int
        The number of steps, which share the budget: more steps take longer but cost no more.
    clip : float
        The largest residual, as a fraction of the largest possible one; 1 without privacy.

    Notes
    -----
    The defaults, and the constants of this module, of `binning` and of `noisy_sums`, were chosen by five-fold
    cross-validation on the training part of Adult, most of them at epsilon 1.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateAdditiveClassifier(epsilon=1).fit(adult, "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.84
    True
    >>> curve = dict(model.shape_of("marital-status"))
    >>> curve["Married-civ-spouse"] > curve["Never-married"]
    True
    """

    def _learn(self, columns: Columns, target: Ints, sums: NoisySums) -> None:
        count = len(self.classes_)
        measured = histogram(self.features_, columns, sums, "histogram", _FINE, (target, count + 1))
        found, classes = measured.without_last()
        self.bins_ = make_bins(self.features_, found, self.bins).bins
        known = target < count
        places = self._binning.places(self.features_.cells(columns, _FINE)[known])
        truth = np.eye(count)[target[known]]
        norm = math.sqrt(2) * (self.clip if self.is_private else 1.0)
        prior = np.maximum(classes[:count], 1.0)
        prior /= prior.sum()
        self._descend(
            places,
            found,
            lambda scores: within(truth - softmax(scores), norm),
            norm,
            2 * prior * (1 - prior),
            np.log(prior),
            sums,
        )

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the log-odds of the second class, or a score per class if there are more than two."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        return softmax(self._scores(X))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAdditiveRegressor(Regressor, _Additive):
    """An additive regression model with differential privacy: one readable curve per column.

    Fitted like `PrivateAdditiveClassifier`, with squared error. Residuals are clipped relative to a scale: half the
    width of the middle 90 % of the target, from a noisy histogram.

    Parameters
    ----------
    bins : int
        The largest number of bins of a number; there are fewer where bins would not stand out from the noise.
    rounds : int
        The number of steps, which share the budget: more steps take longer but cost no more.
    clip : float
        The largest residual, as a fraction of the scale; no bound without privacy.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateAdditiveRegressor(epsilon=1).fit(adult, "age")
    >>> model.score(sf.datasets.adult("test"), "age") > 0.3
    True
    """

    def _learn(self, columns: Columns, target: Floats, sums: NoisySums) -> None:
        low, high = self.target_.bounds or (0.0, 1.0)
        cells = self.target_.cells(pl.Series(target), _TARGET_CELLS)
        measured = histogram(self.features_, columns, sums, "histogram", _FINE, (cells, _TARGET_CELLS + 1))
        found, counts = measured.without_last()
        self.bins_ = make_bins(self.features_, found, self.bins).bins
        first, last = _middle(counts[:-1], measured.deviations[-1])
        scale = (high - low) / _TARGET_CELLS * (last - first) / 2
        centre = low + (high - low) / _TARGET_CELLS * (first + last) / 2
        known = ~np.isnan(target)
        places = self._binning.places(self.features_.cells(columns, _FINE)[known])
        truth = (target[known, None] - centre) / scale
        norm = self.clip if self.is_private else math.inf
        self._descend(
            places,
            found,
            lambda scores: on_grid(np.clip(truth - scores, -norm, norm)),
            norm if self.is_private else 1.0,
            np.ones(1),
            np.zeros(1),
            sums,
        )
        self.intercept_, self.shapes_ = centre + scale * self.intercept_, scale * self.shapes_

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the prediction for each record, within the bounds of the target."""
        scores = self._scores(X)[:, 0]
        return np.clip(scores, *(self.target_.bounds or (-math.inf, math.inf)))


def _add_curves(curves: Floats, places: Ints) -> Floats:
    """Return the intercept, which is the last row, plus the values of the bins of each record."""
    scores = np.repeat(curves[-1:], len(places), axis=0)
    for column in places.T:
        scores += curves[column]
    return scores


def _sum_in_bins(residuals: Floats, places: Ints, total: int) -> Floats:
    """Return the sums of the residuals in the bins of all columns."""
    sums = np.zeros((total, residuals.shape[1]))
    for output, values in enumerate(residuals.T):
        for column in places.T:
            sums[:, output] += np.bincount(column, weights=values, minlength=total)
    return sums


def _by_column(values: Floats, binning: Binning) -> Floats:
    return np.add.reduceat(values, binning.starts, axis=0)


def _weights(binning: Binning, total: Floats) -> Floats:
    """Return the factor of each column's residuals that minimises the total error of all bins.

    The error of a bin is about the squared noise over the squared weight and over the total of the bin. Among weights
    with the same sum of squares, the error is least if the squared weight of a column is proportional to the square
    root of the sum, over its bins, of one over their total.
    """
    needs = np.where(np.diff(np.append(np.repeat(np.arange(len(binning.sizes)), binning.sizes), -1)) == 0, 1.0, 1e-6)
    return on_grid(np.add.reduceat(needs / (total + _FEW_RECORDS), binning.starts) ** 0.25)


def _middle(counts: Floats, deviation: float) -> tuple[float, float]:
    """Return the ends of the middle 90 % of a noisy histogram, in cells; at least one cell."""
    clear = np.where(counts > 2 * deviation, counts, 0.0)
    if not clear.any():
        return 0.0, float(len(counts))
    up = np.cumsum(clear) / clear.sum()
    first, last = int(np.searchsorted(up, 0.05)), int(np.searchsorted(up, 0.95))
    return float(first), float(min(last, len(counts) - 1) + 1)


def _labels(feature: Feature, bins: Ints) -> list[str]:
    """Return a readable label for each bin of a column."""
    if feature.domain is not None:
        members: list[list[str]] = [[] for _ in range(bins[-1] + 1)]
        for text, bin_ in zip(feature.domain, bins[:-1], strict=True):
            members[bin_].append(text)
        return [*(", ".join(one) for one in members[:-1]), "unknown"]
    edges = _edges(feature, bins)
    return [*(f"{one:.6g} to {other:.6g}" for one, other in itertools.pairwise(edges)), "unknown"]


def _edges(feature: Feature, bins: Ints) -> list[float]:
    """Return the edges of the bins of a number."""
    low, high = feature.bounds or (0.0, 1.0)
    return [low + (high - low) * int(one) / (len(bins) - 1) for one in np.flatnonzero(np.diff(bins, prepend=-1))]

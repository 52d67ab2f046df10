"""Additive models: the prediction is a sum of one curve per column, which a person can read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.learners.dpsgd.options import whole
from sfumato.learners.estimators.binning import Binning, Histogram, found_bins, histogram
from sfumato.learners.estimators.estimator import Classifier, Ints, PrivateEstimator, Regressor
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.learners.estimators.noisy_descent import Descent, ridge_against, softmax
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share, on_grid, within

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]

_FINE = 1024  # cells of a number from which bins are made
_TARGET_CELLS = 64
_FEW_RECORDS = 10.0  # a bin of fewer does not get its column a larger part of the budget


@dataclass(kw_only=True, eq=False, repr=False)
class _Additive(PrivateEstimator):
    """What both models share: bins, and descent on the curves of all columns at once."""

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
            raise InputError("the curves are not those of these columns and outputs")

    @property
    def _binning(self) -> Binning:
        return Binning(self.bins_, self.features_.sizes(_FINE))

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return the intercept plus what the curve of every column says, of each record."""
        columns = self._columns(X)
        places = self._binning.places(self.features_.cells(columns, _FINE))
        return _added(np.vstack([self.shapes_, self.intercept_]), places)

    def shape_of(self, column: str) -> list[tuple[str, Any]]:
        """Return the curve of a column: each of its bins, and what it adds to the prediction.

        Of two classes, that is to the logarithm of the odds of the second; of more classes, a number for each.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "features_")
        if column not in self.features_.names:
            raise ColumnError(f"the model has no column '{column}'", hint=did_you_mean(column, self.features_.names))
        at = self.features_.names.index(column)
        binning = self._binning
        scores = np.split(self.shapes_, binning.starts[1:])[at]
        told = np.diff(scores, axis=1) if scores.shape[1] == 2 else scores
        plain = told[:, 0].tolist() if told.shape[1] == 1 else told.tolist()
        return list(zip(_labels(self.features_.features[at], binning.columns[at]), plain, strict=True))

    def curve_of(self, column: str) -> tuple[list[Any], list[Any]]:
        """Return the curve of a column as it is drawn, unknown values aside, and what each part of it adds.

        The parts of a number are its bins, given by where they begin and where the last one ends; those of a category
        are its values. See `shape_of`.
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
        found: Histogram,
        residuals: Callable[[Floats], Floats],
        norm: float,
        curvature: Floats,
        start: Floats,
        sums: NoisySums,
    ) -> None:
        """Fit the curves: a step on all of them in each round, from noisy sums of the residuals in each bin.

        Parameters
        ----------
        places : array of int
            The bin of every record in every column.
        residuals : function
            Of the scores: a row for each record, of at most the norm.
        curvature : array
            The second derivative of the loss of one record, for each output.
        start : array
            The first intercept.
        """
        binning = self._binning
        rows, shares = found.rows, binning.shares(found.counts)[:, None]
        held = rows * shares * curvature
        weights = _weights(binning, held.mean(axis=1))
        each = np.repeat(weights, binning.sizes)[:, None]
        whole_norm = norm * math.sqrt(math.fsum(weights**2))
        # The deviation that all rounds together leave is that of a single sum with the same share.
        noise = sums.deviation_of("residuals", whole_norm) / math.sqrt(self.rounds) / each
        ridge = ridge_against(noise, held)
        trust = weights**2 / np.array(binning.sizes)
        trust /= trust.sum()

        # The intercept is the last row: every column sums up the same residuals, and what is common is no bin's.
        descent = Descent(
            np.vstack([np.zeros((binning.total, len(start))), start]),
            np.vstack([held, rows * curvature]),
            np.vstack([ridge, np.zeros_like(start)]),
        )
        for _ in range(self.rounds):
            left = residuals(_added(descent.at, places))
            pull = sums("residuals", each * _in_bins(left, places, binning.total), norm=whole_norm) / each
            common = trust @ _by_column(pull, binning)
            descent.step(np.vstack([pull - shares * common, common]))
        shapes = descent.mean[:-1]
        centres = _by_column(shares * shapes, binning)
        self.shapes_ = shapes - np.repeat(centres, binning.sizes, axis=0)
        self.intercept_ = descent.mean[-1] + centres.sum(axis=0)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAdditiveClassifier(Classifier, _Additive):
    """An additive model of classes with differential privacy: as readable as a table of points, and often the best.

    It is boosting with one curve per column (DP-EBM: Nori et al. 2021), with these differences. All curves take a step
    in each round, so that a round costs one sum, and the noise of the rounds evens out in their mean. Columns with
    many small bins get less of the noise, and curves are drawn to zero by as much as there is noise. Residuals are held
    within a bound, which costs little and lowers the noise. The classes are those of a softmax, whose residuals
    are at most the square root of 2 long.

    Parameters
    ----------
    bins : int
        How many bins a number has at most; there are fewer where they would not stand out from the noise.
    rounds : int
        How many steps are taken. More only take longer: they share the budget.
    clip : float
        How large a residual may be, as a part of the largest possible; 1 without privacy.

    Notes
    -----
    The defaults, and the constants of this module, of `binning` and of `noisy_descent`, were chosen by five-fold
    cross-validation within the training part of Adult, most of them at epsilon 1.

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
        bought = histogram(self.features_, columns, sums, "histogram", _FINE, (target, count + 1))
        found, classes = bought.without_last()
        self.bins_ = found_bins(self.features_, found, self.bins).bins
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
        """Return the logarithm of the odds of the second class, or the scores of all if there are more."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        return softmax(self._scores(X))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAdditiveRegressor(Regressor, _Additive):
    """An additive model of a number with differential privacy, one readable curve per column.

    Fitted like `PrivateAdditiveClassifier`, to squares of residuals. Half the width of the middle nine tenths of the
    target, from a noisy histogram, is the scale on which residuals are held within a bound.

    Parameters
    ----------
    bins : int
        How many bins a number has at most; there are fewer where they would not stand out from the noise.
    rounds : int
        How many steps are taken. More only take longer: they share the budget.
    clip : float
        How large a residual may be, as a part of the scale; no bound without privacy.

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
        bought = histogram(self.features_, columns, sums, "histogram", _FINE, (cells, _TARGET_CELLS + 1))
        found, counts = bought.without_last()
        self.bins_ = found_bins(self.features_, found, self.bins).bins
        first, last = _middle(counts[:-1], bought.deviations[-1])
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


def _added(curves: Floats, places: Ints) -> Floats:
    """Return the sum of what the bins of each record say and of the intercept, which is the last row."""
    scores = np.repeat(curves[-1:], len(places), axis=0)
    for column in places.T:
        scores += curves[column]
    return scores


def _in_bins(residuals: Floats, places: Ints, total: int) -> Floats:
    """Return the sums of the residuals in the bins of all columns."""
    sums = np.zeros((total, residuals.shape[1]))
    for output, values in enumerate(residuals.T):
        for column in places.T:
            sums[:, output] += np.bincount(column, weights=values, minlength=total)
    return sums


def _by_column(values: Floats, binning: Binning) -> Floats:
    return np.add.reduceat(values, binning.starts, axis=0)


def _weights(binning: Binning, held: Floats) -> Floats:
    """Return what each column's residuals are multiplied by, so that the errors of all bins are least together.

    The error of a bin is about the square of the noise, over the square of the weight and over what the bin holds. Of
    all weights with the same sum of squares, those have the least error whose squares are as the roots of the sums,
    over the bins, of one over what they hold.
    """
    needs = np.where(np.diff(np.append(np.repeat(np.arange(len(binning.sizes)), binning.sizes), -1)) == 0, 1.0, 1e-6)
    return on_grid(np.add.reduceat(needs / (held + _FEW_RECORDS), binning.starts) ** 0.25)


def _middle(counts: Floats, deviation: float) -> tuple[float, float]:
    """Return the ends of the middle nine tenths of a noisy histogram, in cells; at least one cell."""
    held = np.where(counts > 2 * deviation, counts, 0.0)
    if not held.any():
        return 0.0, float(len(counts))
    up = np.cumsum(held) / held.sum()
    first, last = int(np.searchsorted(up, 0.05)), int(np.searchsorted(up, 0.95))
    return float(first), float(min(last, len(counts) - 1) + 1)


def _labels(feature: Feature, bins: Ints) -> list[str]:
    """Return what each bin of a column is, for a person."""
    if feature.domain is not None:
        members: list[list[str]] = [[] for _ in range(bins[-1] + 1)]
        for text, bin_ in zip(feature.domain, bins[:-1], strict=True):
            members[bin_].append(text)
        return [*(", ".join(one) for one in members[:-1]), "unknown"]
    edges = _edges(feature, bins)
    return [*(f"{one:.6g} to {other:.6g}" for one, other in itertools.pairwise(edges)), "unknown"]


def _edges(feature: Feature, bins: Ints) -> list[float]:
    """Return where the bins of a number begin, and where the last one ends."""
    low, high = feature.bounds or (0.0, 1.0)
    return [low + (high - low) * int(one) / (len(bins) - 1) for one in np.flatnonzero(np.diff(bins, prepend=-1))]

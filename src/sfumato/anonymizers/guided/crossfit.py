"""Cross-fitted labels: predictions of simple models for people whose labels they have not seen.

A label is partly noise. A tree guided by the labels themselves groups people who share one by chance; their class then
looks more certain than it is, and a model trained on the release learns the noise. Held-out predictions contain none of
it. Predicting each fold of the rows from the others is the cross-fitting of V. Chernozhukov et al., "Double/debiased
machine learning", The Econometrics Journal 21(1), 2018; weighting several models by such predictions is the stacking of
D. Wolpert, Neural Networks 5(2), 1992. The importance of a column by shuffling it is from L. Breiman, "Random forests",
Machine Learning 45, 2001.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.guided.guidance import Guidance, sum_by_index
from sfumato.anonymizers.limits import limits
from sfumato.anonymizers.microaggregation.microaggregate import Metric
from sfumato.anonymizers.problem import Problem
from sfumato.engines.tuples import Tuples
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.models import KAnonymity

__all__ = ["CrossFitted", "Grow", "cross_fitted"]

_FOLDS = 3
_BINS = 24  # per column in the additive model
_SWEEPS = 6
_PRIOR = 5.0  # records with the mean label, added to every bin and leaf
_LEAF = 30  # the fewest records in a leaf of the predicting tree
_DETAIL = 0.5  # the variance of the columns, relative to that of the predictions
_SWAY = 0.9  # the influence of importance on a column's weight; with 1, an uninformative column would have none
_SWAYED = 50  # classes from which this influence is full
_MANY = 100  # classes from which `_DETAIL` is full
_ENOUGH = 20_000  # tuples of a fold used to measure importance
_CERTAIN = 2.0  # standard errors by which predictions must beat the mean

Ask = Callable[[NDArray[np.int32]], Floats]
"""Predicts tuples, given by their codes: the difference of their label from the mean."""

Grow = Callable[[Problem, Guidance], tuple[Any, Ints]]
"""Grows a tree over a problem, guided by labels, and returns the leaf of each tuple: see `guided.guided`."""


class CrossFitted(NamedTuple):
    """Labels that guide instead of the true ones.

    Attributes
    ----------
    guides : the predictions and the columns, as numbers
    explained : the share of the variance of the held-out labels that the predictions explain; 0 if that may be chance
    metric : the distance between two people. Columns have weight 1 on average, and more if the label depends on them;
        the prediction weighs as much as all columns together times the square of `explained`
    """

    guides: Guidance
    explained: float
    metric: Metric


def cross_fitted(problem: Problem, labels: Guidance, grow: Grow) -> CrossFitted:
    """Predict every label from the others, and guide by the predictions.

    ::

        divide the records into three folds
        for each fold, fit to the other two:
            an additive model: the mean + an effect of each column
            a tree, which also finds interactions of columns
        weight both models to predict the labels of the held-out folds best
        if the weighted sum does not beat the mean there by two standard errors: nothing guides
        else a tree is guided by the weighted sum, and by the columns themselves;
            neighbours by a distance in which columns are weighted by the loss of accuracy when they are shuffled

    For a tree, the columns (numbers, dates and ordinals, in standard deviations) together get half as much variance as
    the predictions, or less if there will be fewer than a hundred classes. They separate people with similar
    predictions who differ otherwise: the median of such a class would resemble nobody in it, which harms models that
    extrapolate most.

    For neighbours, columns have weight 1 on average, and at least a tenth. If there will be fewer than fifty classes,
    the weights are more equal, because importance misleads with few classes. The weighted sum is a further dimension,
    which has little weight unless the label is nearly certain.

    Parameters
    ----------
    problem : Problem
    labels : the true labels: classes, or a number
    grow : grows a tree
    """
    records, mass = _dealt(problem, labels)
    mean = mass.sum(axis=(0, 1)) / records.sum()
    bins = _bins(problem)
    models = [
        (_additive(bins, *seen, problem.codes), _tree(problem, labels, grow, *seen))
        for seen in ((records.sum(axis=0) - records[fold], mass.sum(axis=0) - mass[fold]) for fold in range(_FOLDS))
    ]
    # what each model says about each fold and tuple: how far from the mean
    says = np.stack([[model[one](problem.codes) for model in models] for one in range(2)])
    apart = mass - records[:, :, None] * mean
    weight = _weights(says, records, apart)
    said = np.einsum("m,mfto->fto", weight, says)
    gain = _gain(said, apart, records)
    if gain.sum() <= _CERTAIN * math.sqrt((gain**2).sum()):
        nothing = Guidance(np.zeros((len(problem), 1)), None, 1.0)
        return CrossFitted(nothing, 0.0, Metric(np.ones(len(problem.domains)), np.zeros((len(problem), 0))))
    spread = labels.spread if labels.classes is None else float((mass.sum(axis=(0, 1)) * (1 - mean)).sum())
    predicted, columns = np.einsum("fto,ft->to", said, records), _columns(problem)
    within, beside = (float((one**2 / problem.records[:, None]).sum()) for one in (predicted, columns))
    classes = records.sum() / max(limits(problem.counts, problem.guarantees).k, 1)
    columns *= math.sqrt(_DETAIL * min(1.0, classes / _MANY) * within / beside) if beside else 0.0
    guides = Guidance(np.hstack([predicted, columns]), None, 1.0)
    important = _importance(problem, models, weight, apart, records)
    sway = _SWAY * min(1.0, classes / _SWAYED) * bool(important.any())
    counts = 1.0 + sway * (important / (important.mean() or 1.0) - 1.0)
    explained = float(gain.sum() / spread)
    deviation = math.sqrt(within / records.sum())
    beside = predicted / problem.records[:, None] * (explained * math.sqrt(len(counts)) / deviation)
    return CrossFitted(guides, explained, Metric(counts, beside))


def _gain(said: Floats, apart: Floats, records: Ints) -> Floats:
    """Return the reduction of the squared error of the mean by predictions, for each fold and tuple."""
    lowered: Floats = (2 * said * apart - said**2 * records[..., None]).sum(axis=-1)
    return lowered


def _importance(
    problem: Problem, models: Sequence[tuple[Ask, Ask]], weight: Floats, apart: Floats, records: Ints
) -> Floats:
    """Return for each column the loss of accuracy on held-out labels when it is shuffled, at least 0."""
    draw = np.random.default_rng(0)
    worse = np.zeros(len(problem.domains))
    for fold, model in enumerate(models):
        some = np.sort(draw.permutation(np.flatnonzero(records[fold]))[:_ENOUGH])
        codes = problem.codes[some]
        gained = []
        for column in (None, *range(len(worse))):
            shuffled = codes.copy()
            if column is not None:
                shuffled[:, column] = draw.permutation(codes[:, column])
            said = weight[0] * model[0](shuffled) + weight[1] * model[1](shuffled)
            gained.append(float(_gain(said, apart[fold, some], records[fold, some]).sum()))
        worse += gained[0] - np.array(gained[1:])
    return np.maximum(worse, 0.0)


def _dealt(problem: Problem, labels: Guidance) -> tuple[Ints, Floats]:
    """Divide the records of each tuple among folds, those of each class as evenly as possible.

    For a number only the sum over a tuple is known, so all records of the tuple go to one fold. Returns the records and
    their labels, per fold and tuple.
    """
    draw = np.random.default_rng(0)  # a fixed seed, for reproducible folds
    if labels.classes is None:
        mine = draw.integers(_FOLDS, size=len(problem)) == np.arange(_FOLDS)[:, None]
        return mine * problem.records, mine[:, :, None] * labels.columns
    count = labels.mass.astype(np.int64)
    turn = draw.integers(_FOLDS, size=count.shape)
    dealt = np.stack([(count + (turn + fold) % _FOLDS) // _FOLDS for fold in range(_FOLDS)])
    columns = dealt[:, :, 1:] if count.shape[1] == 2 else dealt
    return dealt.sum(axis=2), columns.astype(np.float64)


def _bins(problem: Problem) -> list[Ints]:
    """Return the bin of each value of each column.

    An ordered column has bins with about equally many records, a category one bin per frequent value.
    """
    found = []
    for code, line in zip(problem.codes.T, problem.lines, strict=True):
        weight = np.bincount(code, weights=problem.records, minlength=len(line.position))
        order = np.argsort(line.position if line.ordered else -weight, kind="stable")
        bins = np.minimum(np.arange(len(order)), _BINS - 1)
        if line.ordered and len(order) > _BINS:
            before = np.cumsum(weight[order]) - weight[order] / 2
            bins = (before * _BINS / weight.sum()).astype(np.int64)
        of_code = np.empty(len(order), dtype=np.int64)
        of_code[order] = bins
        found.append(of_code)
    return found


def _additive(bins: list[Ints], records: Ints, mass: Floats, tuples: NDArray[np.int32]) -> Ask:
    """Fit an additive model: each column in turn explains the residual of the others."""
    left = mass - records[:, None] * (mass.sum(axis=0) / records.sum())
    codes = [of_code[code] for of_code, code in zip(bins, tuples.T, strict=True)]
    effects = [np.zeros((int(of_code.max()) + 1, mass.shape[1])) for of_code in bins]
    within = [np.bincount(code, weights=records, minlength=len(one)) for code, one in zip(codes, effects, strict=True)]
    for _ in range(_SWEEPS):
        for code, effect, weight in zip(codes, effects, within, strict=True):
            change = (sum_by_index(code, left, len(weight)) - _PRIOR * effect) / (weight + _PRIOR)[:, None]
            effect += change
            left -= records[:, None] * change[code]
    of_values = [effect[of_code] for effect, of_code in zip(effects, bins, strict=True)]
    return lambda asked: sum((one[code] for one, code in zip(of_values, asked.T, strict=True)), np.zeros(1))


def _tree(problem: Problem, labels: Guidance, grow: Grow, records: Ints, mass: Floats) -> Ask:
    """Grow a tree on some of the records, which predicts the mean of a leaf."""
    mean = mass.sum(axis=0) / records.sum()
    some = np.flatnonzero(records)
    seen = Problem.of(
        Tuples(problem.codes[some], records[some], problem.domains),
        [domain.name for domain in problem.domains],
        [],
        [KAnonymity(min(_LEAF, int(records.sum())))],
    )
    tree, leaf = grow(seen, Guidance(mass[some], None if mass.shape[1] == 1 else labels.classes, 1.0))
    size = np.bincount(leaf, weights=records[some], minlength=len(tree.nodes)) + _PRIOR
    means = (sum_by_index(leaf, mass[some], len(size)) + _PRIOR * mean) / size[:, None] - mean
    return lambda codes: means[tree.leaves_of(codes)]


def _weights(says: Floats, records: Ints, apart: Floats) -> Floats:
    """Return the non-negative weights of both models with the least squared error."""
    both = np.einsum("mfto,nfto,ft->mn", says, says, records)
    right = np.einsum("mfto,fto->m", says, apart)
    alone = [np.eye(2)[one] * max(right[one], 0.0) / (both[one, one] or 1.0) for one in range(2)]
    ways = [np.linalg.lstsq(both, right, rcond=None)[0], *alone]
    return min((way for way in ways if (way >= 0).all()), key=lambda way: float(way @ both @ way - 2 * way @ right))


def _columns(problem: Problem) -> Floats:
    """Return the place of each tuple in each ordered column, in standard deviations, summed over its records."""
    found, records = [np.zeros((len(problem), 0))], problem.records[:, None]
    for code, line in zip(problem.codes.T, problem.lines, strict=True):
        if line.ordered:
            place = line.place[code][:, None]
            apart = place - np.average(place, weights=records)
            found.append(records * apart / (math.sqrt(np.average(apart**2, weights=records)) or 1.0))
    return np.hstack(found)

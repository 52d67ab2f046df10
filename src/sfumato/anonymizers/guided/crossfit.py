"""Cross-fitted labels: what simple models say about people whose labels they have not seen.

A label is partly chance. A tree guided by the labels themselves puts people together who happen to share one; their
class then looks more certain than it is, and a model trained on the release learns chance. What a model says about
people it was not fitted on holds none of their chance. Predicting each fold of the rows from the others is the
cross-fitting of V. Chernozhukov et al., "Double/debiased machine learning", The Econometrics Journal 21(1), 2018;
weighing several models by such predictions is the stacking of D. Wolpert, Neural Networks 5(2), 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sfumato.anonymizers.guided.guidance import Guidance, added_up
from sfumato.anonymizers.limits import limits
from sfumato.anonymizers.problem import Problem
from sfumato.engines.tuples import Tuples
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.models import KAnonymity

__all__ = ["CrossFitted", "Grow", "cross_fitted"]

_FOLDS = 3
_BINS = 24  # of a column in the additive model
_SWEEPS = 6
_PRIOR = 5.0  # records with the mean label, added to every bin and leaf
_LEAF = 30  # the fewest records in a leaf of the tree that predicts
_DETAIL = 0.5  # the variance of the columns, relative to that of the predictions
_MANY = 100  # classes that can keep so much detail; fewer keep less
_CERTAIN = 2.0  # standard errors by which predictions must beat the mean

Grow = Callable[[Problem, Guidance], tuple[Any, Ints]]
"""Grows a tree over a problem, guided by labels, and returns the leaf of each tuple: see `guided.guided`."""


class CrossFitted(NamedTuple):
    """Labels to guide by in place of the true ones.

    Attributes
    ----------
    guides : the predictions and the columns, as numbers
    told : the share of the variance of the held-out labels that the predictions explain; 0 if that may be chance
    """

    guides: Guidance
    told: float


def cross_fitted(problem: Problem, labels: Guidance, grow: Grow) -> CrossFitted:
    """Predict every label from the others, and guide by the predictions.

    ::

        deal the records to three folds
        for each fold, fit to the other two:
            an additive model: the mean + an effect of each column
            a tree, which also finds what columns do together
        weigh both models so that they come nearest to the labels of the folds they have not seen
        if the weighted sum does not beat the mean there by two standard errors: nothing guides
        else guide by the weighted sum, and by the columns themselves

    The columns (numbers, dates and ordinals, in standard deviations) together get half as much variance as the
    predictions, or less where there will be fewer than a hundred classes. They keep people apart whom the models answer
    alike but who differ otherwise: the median of such a class would be like nobody in it, and models that extrapolate
    suffer most.

    Parameters
    ----------
    problem : Problem
    labels : the true labels: classes, or a number
    grow : grows a tree
    """
    codes, sizes = _bins(problem)
    records, mass = _dealt(problem, labels)
    mean = mass.sum(axis=(0, 1)) / records.sum()
    says = np.zeros((2, *mass.shape))  # of each model, about each fold and tuple: how far from the mean
    for fold in range(_FOLDS):
        seen = records.sum(axis=0) - records[fold], mass.sum(axis=0) - mass[fold]
        says[0, fold] = _additive(codes, sizes, *seen)
        says[1, fold] = _tree(problem, labels, grow, *seen)
    apart = mass - records[:, :, None] * mean
    weight = _weights(says, records, apart)
    said = np.einsum("m,mfto->fto", weight, says)
    gain = (2 * said * apart - said**2 * records[:, :, None]).sum(axis=2)
    if gain.sum() <= _CERTAIN * math.sqrt((gain**2).sum()):
        return CrossFitted(Guidance(np.zeros((len(problem), 1)), None, 1.0), 0.0)
    spread = labels.spread if labels.classes is None else float((mass.sum(axis=(0, 1)) * (1 - mean)).sum())
    predicted, columns = np.einsum("fto,ft->to", said, records), _columns(problem)
    within, beside = (float((one**2 / problem.records[:, None]).sum()) for one in (predicted, columns))
    classes = records.sum() / max(limits(problem.counts, problem.guarantees).k, 1)
    columns *= math.sqrt(_DETAIL * min(1.0, classes / _MANY) * within / beside) if beside else 0.0
    return CrossFitted(Guidance(np.hstack([predicted, columns]), None, 1.0), float(gain.sum() / spread))


def _dealt(problem: Problem, labels: Guidance) -> tuple[Ints, Floats]:
    """Deal the records of each tuple to folds, those of each class as evenly as possible.

    Only the sum of a number over a tuple is known, so that all records of the tuple go to one fold.

    Returns
    -------
    The records and their labels: an entry per fold and tuple.
    """
    draw = np.random.default_rng(0)  # any dealing will do, but always the same one
    if labels.classes is None:
        mine = draw.integers(_FOLDS, size=len(problem)) == np.arange(_FOLDS)[:, None]
        return mine * problem.records, mine[:, :, None] * labels.told
    count = labels.mass.astype(np.int64)
    turn = draw.integers(_FOLDS, size=count.shape)
    dealt = np.stack([(count + (turn + fold) % _FOLDS) // _FOLDS for fold in range(_FOLDS)])
    told = dealt[:, :, 1:] if count.shape[1] == 2 else dealt
    return dealt.sum(axis=2), told.astype(np.float64)


def _bins(problem: Problem) -> tuple[list[Ints], list[int]]:
    """Return the bin of each tuple in each column, and the number of bins.

    An ordered column has bins of about equally many records, a category one for each of its frequent values.
    """
    codes, sizes = [], []
    for code, line in zip(problem.codes.T, problem.lines, strict=True):
        weight = np.bincount(code, weights=problem.records, minlength=len(line.position))
        order = np.argsort(line.position if line.ordered else -weight, kind="stable")
        bins = np.minimum(np.arange(len(order)), _BINS - 1)
        if line.ordered and len(order) > _BINS:
            before = np.cumsum(weight[order]) - weight[order] / 2
            bins = (before * _BINS / weight.sum()).astype(np.int64)
        of_code = np.empty(len(order), dtype=np.int64)
        of_code[order] = bins
        codes.append(of_code[code])
        sizes.append(int(bins.max()) + 1)
    return codes, sizes


def _additive(codes: list[Ints], sizes: list[int], records: Ints, mass: Floats) -> Floats:
    """Return what an additive model says about each tuple: each column in turn explains what the others leave."""
    left = mass - records[:, None] * (mass.sum(axis=0) / records.sum())
    said = np.zeros_like(mass)
    effects = [np.zeros((size, mass.shape[1])) for size in sizes]
    within = [np.bincount(code, weights=records, minlength=size) for code, size in zip(codes, sizes, strict=True)]
    for _ in range(_SWEEPS):
        for code, effect, weight in zip(codes, effects, within, strict=True):
            change = (added_up(code, left, len(weight)) - _PRIOR * effect) / (weight + _PRIOR)[:, None]
            effect += change
            said += change[code]
            left -= records[:, None] * change[code]
    return said


def _tree(problem: Problem, labels: Guidance, grow: Grow, records: Ints, mass: Floats) -> Floats:
    """Return what a tree grown on some of the records says about each tuple: the mean of its leaf."""
    mean = mass.sum(axis=0) / records.sum()
    some = np.flatnonzero(records)
    seen = Problem.of(
        Tuples(problem.codes[some], records[some], problem.domains),
        [domain.name for domain in problem.domains],
        [],
        [KAnonymity(min(_LEAF, int(records.sum())))],
    )
    tree, _ = grow(seen, Guidance(mass[some], None if mass.shape[1] == 1 else labels.classes, 1.0))
    leaf = tree.leaves(problem.tuples)
    size = np.bincount(leaf, weights=records, minlength=len(tree.nodes)) + _PRIOR
    means = (added_up(leaf, mass, len(size)) + _PRIOR * mean) / size[:, None]
    return np.asarray(means[leaf] - mean)


def _weights(says: Floats, records: Ints, apart: Floats) -> Floats:
    """Return the weights, none below 0, with which both models come nearest to the labels."""
    both = np.einsum("mfto,nfto,ft->mn", says, says, records)
    right = np.einsum("mfto,fto->m", says, apart)
    alone = [np.eye(2)[one] * max(right[one], 0.0) / (both[one, one] or 1.0) for one in range(2)]
    ways = [np.linalg.lstsq(both, right, rcond=None)[0], *alone]
    return min((way for way in ways if (way >= 0).all()), key=lambda way: float(way @ both @ way - 2 * way @ right))


def _columns(problem: Problem) -> Floats:
    """Return where the records of each tuple lie in each ordered column, in standard deviations, summed up."""
    found, records = [np.zeros((len(problem), 0))], problem.records[:, None]
    for code, line in zip(problem.codes.T, problem.lines, strict=True):
        if line.ordered:
            place = line.place[code][:, None]
            apart = place - np.average(place, weights=records)
            found.append(records * apart / (math.sqrt(np.average(apart**2, weights=records)) or 1.0))
    return np.hstack(found)

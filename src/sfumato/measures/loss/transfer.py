"""Train models on a release and test them on real rows that the release has never seen.

For synthetic tables this is known as "train on synthetic, test on real" (C. Esteban, S. Hyland, G. Rätsch, *Real-valued
medical time series generation with recurrent conditional GANs*, arXiv 1706.02633, 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Plain
from sfumato.data.validate import whole
from sfumato.errors import OptionError
from sfumato.measures.classes import Floats
from sfumato.measures.loss.generalised import Coverage, Pairing
from sfumato.measures.loss.marginals import raw_coverage
from sfumato.measures.loss.utility import MODELS, codebook, draw_features, estimators_of, single_labels, sklearn_part

__all__ = ["ModelTransfer", "model_transfer", "roc_auc"]

_MOST_ROWS = 50_000
_MOST_CLASSES = 100
_ROWS_OF_A_CLASS = 5  # on average; below, a target is a number rather than a class


@dataclass(frozen=True)
class ModelTransfer(Plain):
    """The scores of a model on real test rows, trained on original and on released rows; see `model_transfer`.

    Attributes
    ----------
    model : its name
    raw, released : the mean accuracy over the seeds, trained on original and on released rows
    raw_spread, released_spread : the standard deviations over the seeds
    raw_auc, released_auc, raw_auc_spread, released_auc_spread : the same of the AUC
    baseline : the accuracy of always predicting the most frequent original label
    rows : the number of original and of released rows for training, and of test rows
    repeats, seed : the number of seeds, and the first of them
    """

    model: str
    raw: float
    raw_spread: float
    released: float
    released_spread: float
    raw_auc: float
    raw_auc_spread: float
    released_auc: float
    released_auc_spread: float
    baseline: float
    rows: tuple[int, int, int]
    repeats: int
    seed: int


def model_transfer(
    both: Pairing,
    tested: Pairing,
    target: str,
    *,
    models: Sequence[str] | Mapping[str, Any] = MODELS,
    repeats: int = 3,
    rows: int | None = _MOST_ROWS,
    seed: int = 0,
) -> tuple[ModelTransfer, ...]:
    """Train models on original and on released rows, and test both on other real rows.

    Values become features as in `model_accuracy`. Left out are rows without a target, released rows whose target stands
    for several values, and test rows with a class that the original lacks. The AUC of several classes is the mean over
    the classes of the test rows, each against all others.

    Parameters
    ----------
    both : Pairing
        The original and the release; every column is a feature, except the target.
    tested : Pairing
        The original and the test rows, with the same columns.
    target : str
    models : sequence of str, or mapping of names to estimators
        See `model_accuracy`.
    repeats : int
        The number of seeds; each decides what a model draws, and which rows it gets if there are too many.
    rows : int or None
        The most rows of each table to train on, drawn at random; None for all rows.
    seed : int
        The first seed.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.measures.loss.generalised import pair
    >>> people = pl.DataFrame({"age": list(range(100)), "retired": ["no"] * 65 + ["yes"] * 35})
    >>> blurred = people.with_columns(age=pl.lit("*"))
    >>> pairs = [pair(people, other, ["age", "retired"]) for other in (blurred, people)]
    >>> (found,) = model_transfer(*pairs, "retired", models=["tree"], repeats=1)
    >>> found.raw > 0.9, found.released == found.baseline, found.released_auc
    (True, True, 0.5)
    """
    whole("the number of repeats", repeats, most=100)
    if rows is not None and rows < 2:
        raise OptionError(f"rows must be at least 2, or None for all, got {rows}")
    at = both.names.index(target)
    features = [position for position in range(len(both.names)) if position != at]
    if not features:
        raise OptionError(f"there is no column beside the target '{target}' to predict it from")
    labels = both.coverages[at].universe
    classes = len(labels) - (labels.missing is not None)
    tables = [codebook(both.coverages[position], width=False) for position in features]
    original = [raw_coverage(read.universe) for read in both.coverages]
    tables_read = (original, both.original), (both.coverages, both.meaning), (tested.coverages, tested.meaning)
    sides = [_Rows.of(reads, at, features, codes) for reads, codes in tables_read]
    truth = sides[2].labels[sides[2].known]
    _refuse(target, classes, sides)
    estimators = estimators_of(models, seed)
    scores = np.empty((len(estimators), 2, 2, repeats))
    for repeat in range(repeats):
        generator = np.random.default_rng([seed, repeat])
        test = sides[2].draw(tables, None, generator)[0]
        for side in (0, 1):
            x, y = sides[side].draw(tables, rows, generator)
            for position, estimator in enumerate(_seeded(models, estimators, seed + repeat)):
                guess = _probabilities(estimator, x, y, test, classes)
                scores[position, side, :, repeat] = np.mean(guess.argmax(axis=1) == truth), _mean_auc(guess, truth)
    mean, spread = scores.mean(axis=3), scores.std(axis=3, ddof=min(1, repeats - 1))
    used = [int(side.known.sum()) if rows is None else min(int(side.known.sum()), rows) for side in sides[:2]]
    return tuple(
        ModelTransfer(
            model=name,
            raw=float(mean[position, 0, 0]),
            raw_spread=float(spread[position, 0, 0]),
            released=float(mean[position, 1, 0]),
            released_spread=float(spread[position, 1, 0]),
            raw_auc=float(mean[position, 0, 1]),
            raw_auc_spread=float(spread[position, 0, 1]),
            released_auc=float(mean[position, 1, 1]),
            released_auc_spread=float(spread[position, 1, 1]),
            baseline=float(np.mean(truth == np.bincount(sides[0].labels[sides[0].known]).argmax())),
            rows=(used[0], used[1], len(truth)),
            repeats=repeats,
            seed=seed,
        )
        for position, name in enumerate(estimators)
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """The rows of one table: what its codes stand for, and the label of each row."""

    reads: Sequence[Coverage]
    codes: NDArray[np.int32]
    labels: NDArray[np.int64]
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, reads: Sequence[Coverage], at: int, features: Sequence[int], codes: NDArray[np.int32]) -> _Rows:
        """Separate the features from the labels."""
        labels = single_labels(reads[at])[codes[:, at]]
        missing = reads[at].universe.missing
        known = (labels >= 0) & (labels != (-1 if missing is None else missing))
        return cls([reads[position] for position in features], codes[:, features], labels, known)

    def draw(
        self, tables: Sequence[NDArray[np.float32]], rows: int | None, generator: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the features and labels of at most some rows with a label."""
        some = np.flatnonzero(self.known)
        if rows is not None and rows < len(some):
            some = np.sort(generator.choice(some, rows, replace=False))
        parts = [
            draw_features(read, self.codes[some, position], table, generator)
            for position, (read, table) in enumerate(zip(self.reads, tables, strict=True))
        ]
        return np.hstack(parts), self.labels[some]


def _refuse(target: str, classes: int, sides: Sequence[_Rows]) -> None:
    """Refuse a target that cannot be learned or tested."""
    if classes < 2:
        raise OptionError(f"the target '{target}' has fewer than two distinct values")
    for side, name in zip(sides, ("original", "released", "test"), strict=True):
        if not side.known.any():
            raise OptionError(f"no {name} row has a known value of the target '{target}'")
    fewest = min(int(side.known.sum()) for side in sides[:2])
    if classes > _MOST_CLASSES or classes * _ROWS_OF_A_CLASS > fewest:
        raise OptionError(
            f"the target '{target}' has {classes:,} distinct values in {fewest:,} rows, and a model needs classes"
        )


def _seeded(models: Sequence[str] | Mapping[str, Any], estimators: Mapping[str, Any], seed: int) -> list[Any]:
    """Return the estimators with a seed; those that were given keep their own."""
    return list(estimators.values() if isinstance(models, Mapping) else estimators_of(models, seed).values())


def _probabilities(
    estimator: Any, x: NDArray[np.float32], y: NDArray[np.int64], test: NDArray[np.float32], classes: int
) -> Floats:
    """Train a model, and return the probability of each class for the test rows."""
    guess = np.zeros((len(test), classes))
    present = np.unique(y)
    if len(present) < 2:  # many estimators refuse a single class
        guess[:, present] = 1.0
        return guess
    known = np.isfinite(x)
    mean = np.where(known, x, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    fitted = sklearn_part("base").clone(estimator).fit(np.where(known, x, mean), y)
    guess[:, fitted.classes_] = fitted.predict_proba(np.where(np.isfinite(test), test, mean))
    return guess


def _mean_auc(guess: Floats, truth: NDArray[np.int64]) -> float:
    """Return the AUC of two classes; of more, the mean over the classes that occur, each against the others."""
    found = [roc_auc(guess[:, one], truth == one) for one in np.unique(truth)]
    known = [one for one in found if one is not None]
    return float(np.mean(known)) if known else 0.5


def roc_auc(score: Floats, positive: NDArray[np.bool_]) -> float | None:
    """Return the chance that a positive row scores higher than a negative one, a tie counting half.

    None if there are no rows of one kind.

    Examples
    --------
    >>> roc_auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    inside, outside = np.sort(score[positive]), np.sort(score[~positive])
    if not len(inside) or not len(outside):
        return None
    below = np.searchsorted(outside, inside, side="left") + np.searchsorted(outside, inside, side="right")
    return float(below.sum() / 2 / len(inside) / len(outside))

"""Classifiers from noisy counts of classes: naive Bayes, and a random forest.

Naive Bayes counts the values of every column within every class. The forest reads the data twice: once to draw its
splits, once to fill its leaves. Fletcher and Islam (2017) label each leaf with its most frequent class, drawn by the
exponential mechanism with smooth sensitivity. That is not differentially private
(docs/explanation/smooth-sensitivity.md), so leaves hold noisy counts here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import whole
from sfumato.errors import InputError
from sfumato.learners.estimators.estimator import Classifier, Ints
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["PrivateNaiveBayes", "PrivateRandomForest"]

_STANDS_OUT = 2.0  # least count on either side of a split, in standard deviations of its noise
_AVERAGE_LEAF = 1.0  # least average count of a leaf, in standard deviations; shallower trees have fuller leaves
_EMPTY_LEAF = 1 / 16  # least average number of records per leaf, also without noise
_LEAST_SHARE = 1e-3  # of a class in a leaf, so a single tree never rules out a class


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateNaiveBayes(Classifier):
    """Naive Bayes with differential privacy (after Vaidya et al. 2013).

    Columns are assumed independent within a class. Numbers are counted in equal cells between their bounds. A record
    is counted once per column, and once for its class.

    Parameters
    ----------
    cells : int
        The number of cells that a number is divided into.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateNaiveBayes(epsilon=1).fit(adult, "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.7
    True
    >>> print(model.spent_)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """

    cells: int = 20

    _state: ClassVar = ("class_log_prior_", "feature_log_prob_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of cells", self.cells)
        return {"classes": Share(1, 0.1), "columns": Share(1, 0.9)}

    def _learn(self, columns: Columns, target: Ints, sums: NoisySums) -> None:
        classes = len(self.classes_)
        known = target < classes
        target, cells = target[known], self.features_.cells(columns, self.cells)[known]
        starts = np.concatenate([[0], np.cumsum(self.features_.sizes(self.cells))])
        places = cells + starts[:-1]
        counts = np.zeros((classes, starts[-1]))
        np.add.at(counts, (target[:, None], places), 1.0)
        width = cells.shape[1]
        self.class_log_prior_ = _logarithms(sums("classes", np.bincount(target, minlength=classes), norm=1.0))
        noisy = sums("columns", counts, norm=float(np.sqrt(width)))
        parts = np.split(noisy, starts[1:-1], axis=1)
        self.feature_log_prob_ = np.concatenate([_logarithms(part) for part in parts], axis=1)

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        columns = self._columns(X)
        cells = self.features_.cells(columns, self.cells)
        starts = np.concatenate([[0], np.cumsum(self.features_.sizes(self.cells))[:-1]])
        logs = self.class_log_prior_ + self.feature_log_prob_[:, cells + starts].sum(axis=2).T
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)


def _logarithms(counts: Floats) -> Floats:
    """Return the logarithms of shares; a count below 1 counts as 1."""
    positive = np.maximum(counts, 1.0)
    return np.log(positive / positive.sum(axis=-1, keepdims=True))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRandomForest(Classifier):
    """A random forest with differential privacy.

    First, noisy counts of every column's values within every class are measured. They give the mutual information of
    each split of a column with the class, and splits are drawn at random in proportion to it. All nodes of a level
    share one split, and a tree reuses a column only after all others. Then the classes in the leaves of all trees are
    counted, with noise. A node whose count is lost in the noise uses the class shares of its parent, and the
    probabilities of the trees are multiplied.

    Parameters
    ----------
    trees : int
        Every tree counts all records: with Gaussian noise, that is better than giving each tree a part of them.
    depth : int
        The largest number of splits per tree; with much noise there are fewer.
    cells : int
        The number of cells that a number is divided into; splits lie between cells.
    random_state : int, optional
        Makes the draw of the splits reproducible, not the noise.

    Notes
    -----
    The defaults were chosen by cross-validation on the training part of Adult.

    Examples
    --------
    >>> import sfumato as sf
    >>> adult = sf.datasets.adult("train")
    >>> model = PrivateRandomForest(epsilon=1).fit(adult, "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.8
    True
    >>> print(model.spent_)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """

    trees: int = 40
    depth: int = 12
    cells: int = 256
    random_state: int | None = None

    _state: ClassVar = ("columns_", "sides_", "leaf_log_prob_")

    def _shares(self, columns: int) -> Mapping[str, Share]:
        whole("the number of trees", self.trees)
        whole("the depth", self.depth)
        whole("the number of cells", self.cells)
        if self.random_state is not None:
            whole("the random state", self.random_state, least=0)
        return {"columns": Share(1, 0.2), "leaves": Share(1, 0.8)}

    def _learn(self, columns: Columns, target: Ints, sums: NoisySums) -> None:
        classes = len(self.classes_)
        known = target < classes
        target, cells = target[known], self.features_.cells(columns, self.cells)[known]
        counts = self._column_counts(cells, target, sums)
        noise = sums.deviation_of("leaves", norm=math.sqrt(self.trees))
        depth = self._depth(counts, noise)
        seed = self.insecure_seed if self.random_state is None else self.random_state
        self.columns_, self.sides_ = _draw_splits(
            [one.is_number for one in self.features_.features],
            counts,
            sums.deviation_of("columns", norm=math.sqrt(len(counts))),
            (self.trees, depth),
            np.random.default_rng(seed),
        )
        leaves = np.zeros((self.trees, 2**depth, classes))
        for tree, leaf in enumerate(self._leaves(cells)):
            leaves[tree] = np.bincount(leaf * classes + target, minlength=leaves[0].size).reshape(-1, classes)
        self.leaf_log_prob_ = np.log(_shares_of(sums("leaves", leaves, norm=math.sqrt(self.trees)), noise))

    def _refuse_misfits(self) -> None:
        trees, depth = self.columns_.shape
        sizes = self.features_.sizes(self.cells)
        fits = self.sides_.shape == (trees, depth, max(sizes)) and self.sides_.dtype == bool
        fits &= self.columns_.dtype.kind == "i" and bool(((self.columns_ >= 0) & (self.columns_ < len(sizes))).all())
        if not fits or self.leaf_log_prob_.shape != (trees, 2**depth, len(self.classes_)):
            raise InputError("the trees do not fit these columns and classes")

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        columns = self._columns(X)
        cells = self.features_.cells(columns, self.cells)
        logs = np.zeros((len(cells), len(self.classes_)))
        for own, leaf in zip(self.leaf_log_prob_, self._leaves(cells), strict=True):
            logs += own[leaf]
        chances = np.exp((logs - logs.max(axis=1, keepdims=True)) / len(self.leaf_log_prob_))
        return chances / chances.sum(axis=1, keepdims=True)

    def _column_counts(self, cells: Ints, target: Ints, sums: NoisySums) -> list[Floats]:
        """Measure the count of each class in every cell of every column; a record counts once per column."""
        classes, sizes = len(self.classes_), self.features_.sizes(self.cells)
        places = (cells + np.cumsum([0, *sizes[:-1]])) * classes + target[:, None]
        counts = np.bincount(places.ravel(), minlength=sum(sizes) * classes).reshape(-1, classes)
        return np.split(sums("columns", counts, norm=math.sqrt(len(sizes))), np.cumsum(sizes)[:-1])

    def _depth(self, counts: Sequence[Floats], noise: float) -> int:
        # Every column counts the same records, and a sum of fewer cells is less noisy.
        rows = sum(one.sum() / one.size for one in counts) / sum(1 / one.size for one in counts)
        return int(np.clip(np.log2(max(rows, 1.0) / max(_AVERAGE_LEAF * noise, _EMPTY_LEAF)), 1, self.depth))

    def _leaves(self, cells: Ints) -> Iterator[Ints]:
        """Yield for each tree the leaf of each record: one bit per split, 1 for the right side."""
        by_column = np.ascontiguousarray(cells.T)
        for columns, sides in zip(self.columns_, self.sides_, strict=True):
            leaf = np.zeros(len(cells), dtype=np.int64)
            for column, right in zip(columns, sides, strict=True):
                leaf = 2 * leaf + right[by_column[column]]
            yield leaf


def _draw_splits(
    ordered: Sequence[bool],
    counts: Sequence[Floats],
    noise: float,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Ints, NDArray[np.bool_]]:
    """Draw the column of each split of each tree, and the cells on its right side.

    Categories are ordered by the share of one class, drawn at random for each tree; with two classes, either gives the
    same splits.
    """
    classes = counts[0].shape[1]
    orders = [
        [
            np.arange(len(one)) if is_ordered else _order(one, at, noise)
            for one, is_ordered in zip(counts, ordered, strict=True)
        ]
        for at in range(classes)
    ]
    gains = [[_gains(one[order], noise) for one, order in zip(counts, ordering, strict=True)] for ordering in orders]
    columns, sides = np.zeros(shape, dtype=np.int64), np.zeros((*shape, max(map(len, counts))), dtype=bool)
    for tree in range(shape[0]):
        at = int(rng.integers(classes))
        best = _chances(np.array([one.max(initial=0.0) for one in gains[at]]))
        rounds = [rng.choice(len(best), len(best), replace=False, p=best) for _ in range(0, shape[1], len(best))]
        columns[tree] = np.concatenate(rounds)[: shape[1]]
        for level, column in enumerate(columns[tree]):
            if not len(gains[at][column]):
                continue  # a column of a single cell cannot be split
            cut = rng.choice(len(gains[at][column]), p=_chances(gains[at][column]))
            sides[tree, level, orders[at][column][cut + 1 :]] = True
    return columns, sides


def _chances(gains: Floats) -> Floats:
    """Return probabilities in proportion to the gains; none is 0, and all are equal if there is no gain."""
    weights: Floats = np.maximum(gains, max(gains.max() * 1e-9, 1e-12))
    return weights / weights.sum()


def _order(counts: Floats, class_: int, noise: float) -> Ints:
    """Return categories by ascending share of a class; the share of a rare category is shrunk to the overall one."""
    positive = np.maximum(counts, 0.0)
    usual = positive[:, class_].sum() / max(positive.sum(), 1.0)
    rows = positive.sum(axis=1)
    few = 1.0 + 2.0 * noise
    return np.argsort((positive[:, class_] + few * usual) / (rows + few), kind="stable")


def _gains(counts: Floats, noise: float) -> Floats:
    """Return the mutual information of class and side for a split after each cell but the last."""
    below = np.cumsum(counts, axis=0)
    left, right, both = (np.maximum(one, 0.0) for one in (below[:-1], below[-1] - below[:-1], below[-1:]))
    gained = (_entropy(both) - _entropy(left) - _entropy(right)) / max(both.sum(), 1.0)
    least = _STANDS_OUT * noise * math.sqrt(len(counts))
    clear = np.minimum(left.sum(axis=1), right.sum(axis=1)) > least
    return np.where(clear, np.maximum(gained, 0.0), 0.0)


def _entropy(counts: Floats) -> Floats:
    """Return the entropy of each row of counts, times its sum."""
    sums = counts.sum(axis=1, keepdims=True)
    shares = np.maximum(counts / np.maximum(sums, 1e-12), 1e-12)
    return -(counts * np.log(shares)).sum(axis=1)


def _shares_of(leaves: Floats, noise: float) -> Floats:
    """Return the share of each class in each leaf; a node whose count is lost in the noise has those of its parent."""
    trees, count, classes = leaves.shape
    whole = np.maximum(leaves.sum(axis=1, keepdims=True), 1.0)
    shares: Floats = whole / whole.sum(axis=2, keepdims=True)
    while shares.shape[1] < count:
        shares = np.repeat(shares, 2, axis=1)
        counts = leaves.reshape(trees, shares.shape[1], -1, classes)
        deviation = noise * math.sqrt(counts.shape[2] * classes)
        nodes = counts.sum(axis=2)
        clear = nodes.sum(axis=2, keepdims=True) > deviation
        smoothed = np.maximum(nodes, 0.0) + shares  # the parent counts as one record
        shares = np.where(clear, smoothed / smoothed.sum(axis=2, keepdims=True), shares)
    bounded = np.maximum(shares, _LEAST_SHARE)
    return bounded / bounded.sum(axis=2, keepdims=True)

"""How the additive model of the labels is learned: from drawn rows and noisy counts, then from noisy residuals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid
from sfumato.synthesizers.tables.base import Records
from sfumato.synthesizers.tables.columns.cells import Cells
from sfumato.synthesizers.tables.methods.marginals import by_group, coarse_groups
from sfumato.synthesizers.tables.methods.tree.interactions import Interactions, learn_interactions
from sfumato.synthesizers.tables.methods.tree.labels import LARGEST_RESIDUAL, AdditiveLabels, Pool, influence
from sfumato.synthesizers.tables.methods.tree.pairs import Pairs
from sfumato.synthesizers.tables.methods.tree.tree_model import TreeModel

__all__ = ["learn_labels"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_CELLS = 2000  # of all columns together, since the curvature of the scores is a matrix


def learn_labels(
    model: TreeModel,
    records: Records,
    columns: Sequence[int],
    raw: Sequence[Floats],
    pairs: Pairs,
    sums: NoisySums,
    rng: np.random.Generator,
) -> tuple[AdditiveLabels, Interactions]:
    """Fit the additive model on rows that the model draws, and correct it if residuals were paid for.

    Parameters
    ----------
    model : TreeModel
    records : Records
    columns : the positions of all columns but the label
    raw : the noisy counts of (cell, label) of each column
    pairs : Pairs
    sums : NoisySums
    rng : the source of public randomness
    """
    ordered = [records.axes[at].ordered for at in columns]
    merged = _merged(model.tables, ordered)
    labels = AdditiveLabels(merged, ordered, len(model.by_label))
    drawn = model.draw(model.pool_rows, rng)
    pool = Pool(labels.places(drawn.cells), drawn.weights, labels.total)
    tables = [by_group(one, groups) for one, groups in zip(raw, merged, strict=True)]
    labels.fit(pool, tables, model.table_deviation, model.by_label)
    interactions = Interactions(pairs.groups, {}, labels.outputs)
    if pairs.joint:
        linear = labels.linear(pool.places)
        interactions = learn_interactions(
            pairs.groups, pairs.noisy, pairs.deviation, drawn.cells, drawn.weights, linear
        )
        pool = dataclasses.replace(pool, added=interactions.scores(drawn.cells))
    if "residuals" in sums.shares:
        norm = LARGEST_RESIDUAL * math.sqrt(len(columns) + 1)
        deviation = sums.deviation_of("residuals", norm)
        for _ in range(sums.shares["residuals"].times):
            found = _residuals(records, columns, model.cells, labels, interactions)
            labels.correct(pool, sums("residuals", found, norm=norm), deviation)
    return labels, interactions


def _merged(tables: Sequence[Floats], ordered: Sequence[bool]) -> list[Ints]:
    """Return the group of each cell for the model of the labels: a group each, unless there are too many in all."""
    if sum(len(one) for one in tables) <= _MOST_CELLS:
        return [np.arange(len(one)) for one in tables]
    most = max(_MOST_CELLS // len(tables) - 2, 2)
    return [
        np.arange(len(one)) if len(one) <= most + 1 else coarse_groups(one.sum(axis=1), most, 0.0, ordered=kind)
        for one, kind in zip(tables, ordered, strict=True)
    ]


def _residuals(
    records: Records,
    columns: Sequence[int],
    cells: Sequence[Cells],
    labels: AdditiveLabels,
    interactions: Interactions,
) -> Floats:
    """Return the weighted sums of (label - chance) over the records of each cell, for each output of the model."""
    found = np.zeros((labels.total + 1, labels.outputs))
    for batch in records.scan():
        label = batch.codes[records.label or 0]
        known = label < labels.classes
        codes = [batch.codes[at][known] for at in columns]
        inside = [one.of_codes(code) for one, code in zip(cells, codes, strict=True)]
        places = labels.places(inside)
        weights = np.ones(places.shape[1]) if batch.weights is None else batch.weights[known]
        truth = (label[known][:, None] == np.arange(labels.classes))[:, 1 if labels.outputs == 1 else 0 :]
        chances = labels.chances(places, interactions.scores(inside))
        left = on_grid((truth - chances) * (weights * influence(chances))[:, None])
        every = Pool(places, np.ones(places.shape[1]), labels.total)
        found += np.stack([every.sums(one) for one in left.T], axis=1)
    return found

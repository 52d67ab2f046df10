"""A tree of columns within each label, from noisy counts of pairs, with closed-form sampling (the fast default).

Every column depends on one other column and on the label. The tree has the largest mutual information (Chow and Liu
1968); p(b | a, label) is the table of largest entropy with the noisy counts of (a, b), (a, label) and (b, label).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, Share, on_grid
from sfumato.synthesizers.tables.base import Axis, Model, Recoding, Records, Synthesizer, split
from sfumato.synthesizers.tables.cells import Cells, count_cells, find_cells, is_wide, label_totals
from sfumato.synthesizers.tables.labels import AdditiveLabels, Pool
from sfumato.synthesizers.tables.marginals import coarse_groups, fit_three_way, fit_to_margins, onto_simplex
from sfumato.synthesizers.tables.tree_model import TreeModel, by_group

__all__ = ["LabelledTree"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLEAR = 7.0  # the mean count of a cell of two coarse columns, in deviations of its noise
_FEWEST, _MOST = 4, 24  # groups of a coarse column


@dataclass(frozen=True, kw_only=True)
class LabelledTree(Synthesizer):
    """A tree of columns within each label.

    Parameters
    ----------
    corrections : int
        The number of noisy sums of residuals that correct the labels; they share a budget. There are none if the
        records can only be counted.
    pool : int, optional
        The number of rows that are drawn and raked. By default fewer if there are many pairs of columns.
    sweeps : int, optional
        The number of sweeps of raking, likewise.
    joint : int
        Pairs are counted within each label if the noise allows this many groups per column.
    doubt : float
        The relative error of the tree's pair counts, for raking.
    balance : float
        From 0 (labels are drawn as often as they occur) to 1 (equally often, and weighted).
    mix : float
        The largest share of rows that keep the label of the tree; the others get that of the additive model. It is
        0 if the noise allows `joint` groups per column or fewer, and grows with more.
    """

    name: ClassVar[str] = "tree"
    model: ClassVar[type[Model]] = TreeModel

    corrections: int = 3
    pool: int | None = None
    sweeps: int | None = None
    joint: int = 12
    doubt: float = 0.1
    balance: float = 0.5
    mix: float = 0.5

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        wide = any(is_wide(one) for at, one in enumerate(axes) if at != label)
        worth = {"cells": 0.30, "pairs": 0.25}
        if wide:
            worth["values"] = 0.05
        asked = {name: Share(1, one) for name, one in worth.items()}
        if label is not None and self.corrections and scans:
            asked["residuals"] = Share(self.corrections, 0.4)
        return asked

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> TreeModel:
        """Learn from the records through noisy sums."""
        columns = [at for at in range(len(records.axes)) if at != records.label]
        axes = [records.axes[at] for at in columns]
        cells = find_cells(records, columns, sums)
        raw, deviation = count_cells(records, columns, cells, sums)
        by_label = label_totals(raw)
        tables = [np.stack(list(map(onto_simplex, one.T, by_label)), axis=1) for one in raw]

        pairs = list(itertools.combinations(range(len(columns)), 2))
        pair_norm = math.sqrt(max(len(pairs), 1))
        pair_deviation = sums.deviation_of("pairs", pair_norm)
        most = int(np.clip(math.sqrt(by_label.sum() / (_CLEAR * max(pair_deviation, 1e-9))), _FEWEST, _MOST))
        groups = [
            coarse_groups(one.sum(axis=1), most, 1 / (4 * most if axis.ordered else 6 * most), ordered=axis.ordered)
            for one, axis in zip(tables, axes, strict=True)
        ]
        # With little noise, pairs are counted within each label.
        joint = most >= self.joint and len(by_label) > 1
        counted = self._count_pairs(records, columns, cells, groups, pairs, joint=joint)
        flat = sums("pairs", np.concatenate([np.zeros(0), *(one.ravel() for one in counted)]), norm=pair_norm)
        noisy = [
            one.reshape(had.shape) for one, had in zip(split(flat, [c.size for c in counted]), counted, strict=True)
        ]
        margins = [by_group(one, group) for one, group in zip(tables, groups, strict=True)]
        model = TreeModel(
            axes=tuple(records.axes),
            label=records.label,
            cells=cells,
            groups=groups,
            by_label=by_label,
            tables=tables,
            pairs={
                (a, b): _fit(one, margins[a], margins[b], pair_deviation)
                for (a, b), one in zip(pairs, noisy, strict=True)
            },
            pair_deviation=pair_deviation,
            joint=joint,
            table_deviation=deviation,
            sweeps=int(np.clip(1800 // max(len(pairs), 1), 8, 20)) if self.sweeps is None else self.sweeps,
            pool_rows=(100_000 if len(pairs) <= 200 else 60_000) if self.pool is None else self.pool,
            doubt=self.doubt,
            balance=self.balance,
            mix=float(np.clip((most - self.joint) / 16, 0.0, self.mix)) if joint else 0.0,
        )
        if len(by_label) > 1:
            model.labels = self._labels(model, records, columns, raw, sums, rng)
        return model

    @staticmethod
    def _count_pairs(
        records: Records,
        columns: Sequence[int],
        cells: Sequence[Cells],
        groups: Sequence[Ints],
        pairs: Sequence[tuple[int, int]],
        *,
        joint: bool,
    ) -> list[Floats]:
        """Return the counts of (group, group, label) for each pair; with a single label unless they are joint."""
        label = records.label
        recodings = [Recoding.identity(one.size) for one in records.axes]
        for at, one, group in zip(columns, cells, groups, strict=True):
            recodings[at] = one.recoding.then(group)
        if label is None:
            return [one[:, :, None] for one in records.count([(columns[a], columns[b]) for a, b in pairs], recodings)]
        if not joint:
            recodings[label] = Recoding(np.array([0, records.axes[label].size - 1]), np.array([0, 1]))
        wanted = [(columns[a], columns[b], label) for a, b in pairs]
        return [one[:, :, :-1] for one in records.count(wanted, recodings)]

    def _labels(
        self,
        model: TreeModel,
        records: Records,
        columns: Sequence[int],
        raw: Sequence[Floats],
        sums: NoisySums,
        rng: np.random.Generator,
    ) -> AdditiveLabels:
        """Fit the additive model of the labels on drawn rows, and correct it by noisy residuals of the records."""
        sizes = [one.size for one in model.cells]
        labels = AdditiveLabels(sizes, [records.axes[at].ordered for at in columns], len(model.by_label))
        drawn = model.draw(model.pool_rows, rng)
        starts = labels.starts[:, None].astype(np.int32)
        pool = Pool(np.stack(drawn.cells).astype(np.int32) + starts, drawn.weights, labels.total)
        labels.fit(pool, raw, np.full(len(sizes), model.table_deviation), model.by_label)
        if "residuals" not in sums.shares:
            return labels
        norm = math.sqrt((len(sizes) + 1) * (1 if labels.outputs == 1 else 2))
        variance = np.full(labels.total + 1, sums.deviation_of("residuals", norm) ** 2)
        for _ in range(self.corrections):
            found = _residuals(records, columns, model.cells, labels)
            labels.correct(pool, sums("residuals", found, norm=norm), variance)
        return labels


def _residuals(records: Records, columns: Sequence[int], cells: Sequence[Cells], labels: AdditiveLabels) -> Floats:
    """Return the sums of (label - chance) over the records of each cell, for each output of the model."""
    found = np.zeros((labels.total + 1, labels.outputs))
    for batch in records.scan():
        label = batch.codes[records.label or 0]
        known = label < labels.classes
        codes = [batch.codes[at][known] for at in columns]
        places = np.stack([one.of_codes(code) for one, code in zip(cells, codes, strict=True)])
        places += labels.starts[:, None].astype(np.int32)
        weights = np.ones(places.shape[1]) if batch.weights is None else batch.weights[known]
        truth = (label[known][:, None] == np.arange(labels.classes))[:, 1 if labels.outputs == 1 else 0 :]
        left = on_grid((truth - labels.chances(places)) * weights[:, None])
        every = Pool(places, np.ones(places.shape[1]), labels.total)
        found += np.stack([every.sums(one) for one in left.T], axis=1)
    return found


def _fit(noisy: Floats, first: Floats, second: Floats, deviation: float) -> Floats:
    """Return the table (a, b, label) from noisy counts, given those of (a, label) and (b, label).

    It lies between the table without an interaction of all three and the noisy one, the nearer to the latter the
    more they differ relative to the noise (James and Stein 1961).
    """
    total = first.sum()
    two = fit_to_margins(onto_simplex(noisy.sum(axis=2), total), first.sum(axis=1), second.sum(axis=1))
    plain = fit_three_way(two, first, second)
    if noisy.shape[2] == 1:
        return plain
    own = np.stack(
        [
            fit_to_margins(onto_simplex(noisy[:, :, k], first[:, k].sum()), first[:, k], second[:, k])
            for k in range(noisy.shape[2])
        ],
        axis=2,
    )
    apart = float(np.square(noisy - plain).sum())
    trust = max(0.0, 1 - noisy.size * deviation**2 / max(apart, 1e-9))
    return plain + trust * (own - plain)

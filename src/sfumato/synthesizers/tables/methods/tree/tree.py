"""A tree of columns within each label, from noisy counts, with closed-form sampling (the fast default).

All that is read of the records are four kinds of sums with Gaussian noise; everything else works on noisy numbers::

    values     count single values of wide columns; frequent ones become cells of their own    (`cells`)
    cells      count (cell, label) for each column; project the counts to what is possible     (`marginals`)
    pairs      merge cells into groups; count (group, group) for each pair, or within each label     (`pairs`)
               find the tree of largest mutual information; p(b | a, label) has the largest entropy
               given the noisy counts of (a, b), (a, label) and (b, label)
    residuals  draw rows from the tree, rake them to all pairs                           (`tree_model`, `raking`)
               fit an additive model of the label to the counts of cells, with the drawn rows
               add to it what pairs tell of the label beyond it, if they were counted within labels (`interactions`)
               twice: sum (label - chance) over the records of each cell, correct the model          (`labels`)

    to sample: draw rows from the tree, rake them, draw labels from the additive model.

With enough budget the pairs are counted within each label. What they clearly tell beyond the additive model is added to
it, so that it is not below the tree where the label is an interaction. The tree has all other interactions, clear or
not. Both are estimates with errors of their own, and their mean is the safer guess: half of the rows keep the label of
the tree if its interactions are all signal, fewer in proportion to their noise, and none if pairs were counted without
the label. This share grows with epsilon by itself.

References: Chow and Liu 1968 (trees), McKenna, Miklau and Sheldon 2021 (noisy marginals), Deming and Stephan 1940
(raking), Hastie and Tibshirani 1986 (additive models), Nori et al. 2021 (the same with privacy).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.tables.base import Axis, Model, Records, Synthesizer
from sfumato.synthesizers.tables.columns.cells import count_cells, find_cells, is_wide, label_totals
from sfumato.synthesizers.tables.methods.marginals import onto_simplex
from sfumato.synthesizers.tables.methods.tree.label_learning import learn_labels
from sfumato.synthesizers.tables.methods.tree.pairs import learn_pairs
from sfumato.synthesizers.tables.methods.tree.tree_model import TreeModel

__all__ = ["LabelledTree"]

_WORTH = {"cells": 0.30, "pairs": 0.25, "values": 0.05, "residuals": 0.40}
_CORRECTIONS = 2
_SWEPT = 1800  # tables that are raked, over all sweeps


@dataclass(frozen=True, kw_only=True)
class LabelledTree(Synthesizer):
    """A tree of columns within each label, and an additive model of the label.

    Parameters
    ----------
    pool : int, optional
        The number of rows that are drawn and raked; more are drawn if more are wanted. By default 100,000, or 60,000
        if there are more than 200 pairs of columns.
    additive : bool
        Whether labels come from an additive model, which learns from the records how all columns together tell the
        label; else they are drawn from the tree, and all of the budget is for counts. Records that can only be counted
        give the additive model less.
    """

    name: ClassVar[str] = "tree"
    model: ClassVar[type[Model]] = TreeModel

    pool: int | None = None
    additive: bool = True

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        times = {"cells": 1, "pairs": 1}
        if any(is_wide(one) for at, one in enumerate(axes) if at != label):
            times["values"] = 1
        if label is not None and self.additive and scans:
            times["residuals"] = _CORRECTIONS
        return {name: Share(one, _WORTH[name]) for name, one in times.items()}

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> TreeModel:
        """Learn from the records through noisy sums."""
        columns = [at for at in range(len(records.axes)) if at != records.label]
        cells = find_cells(records, columns, sums)
        raw, deviation = count_cells(records, columns, cells, sums)
        by_label = label_totals(raw)
        tables = [np.stack(list(map(onto_simplex, one.T, by_label)), axis=1) for one in raw]
        pairs = learn_pairs(records, columns, cells, tables, by_label, sums)
        many = len(pairs.tables)
        model = TreeModel(
            axes=tuple(records.axes),
            label=records.label,
            cells=cells,
            groups=pairs.groups,
            by_label=by_label,
            tables=tables,
            pairs=pairs.tables,
            pair_deviation=pairs.deviation,
            joint=pairs.joint,
            table_deviation=deviation,
            sweeps=int(np.clip(_SWEPT // max(many, 1), 8, 20)),
            pool_rows=(100_000 if many <= 200 else 60_000) if self.pool is None else self.pool,
            mix=pairs.trust / 2,
        )
        if self.additive and len(by_label) > 1:
            model.labels, model.interactions = learn_labels(model, records, columns, raw, pairs, sums, rng)
        return model

"""Rows of the tree that meet a condition on single columns, drawn directly.

A mask over the codes of a column leaves each of its groups a share, within each label. Messages from the leaves to the
root carry these shares along the tree, so columns are drawn from what can still be met. Raking needs all rows: those
that meet the condition are added to a pool of all rows, each standing for the smaller part of a row the more often it
is drawn, and raked with it. Labels are then told as always, among those allowed. So the rows are distributed as those
rows of the model that meet the condition, however few these are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sfumato.synthesizers.tables.base import Mask, Sampler, refuse_impossible
from sfumato.synthesizers.tables.methods.tree.tree_model import TreeModel, draw_cells, systematic

__all__ = ["ConditionedTree"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ADDED = 20_000  # rows that meet the condition and are added to the pool, at least


class ConditionedTree(Sampler):
    """The rows of a tree whose codes are among those allowed, by position of the column.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> from sfumato.learners.estimators.noisy_sums import NoisySums
    >>> from sfumato.synthesizers.tables.base import Axis, Rows
    >>> from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 50, 2000)
    >>> rows = Rows((Axis("a", 51, False), Axis("b", 51, False)), (a, a), None)
    >>> method = LabelledTree(pool=1000)
    >>> tree = method.learn(rows, NoisySums(method.shares(rows.axes, None), 0.0, Source()), rng)
    >>> np.unique(tree.given({0: np.arange(51) == 7}).sample(5, rng)[0]).tolist()
    [7]
    """

    def __init__(self, model: TreeModel, allowed: Mapping[int, Mask]) -> None:
        self._model = model
        columns = [at for at in range(len(model.axes)) if at != model.label]
        self._cells, self._inside = list(model.cells), list(model.inside)
        self._shares: dict[int, Floats] = {}
        for place, at in enumerate(columns):
            if at in allowed:
                self._cells[place], self._shares[place] = model.cells[place].within(allowed[at])
                self._inside[place] = model.inside[place] * self._shares[place]
        met = [one.sum(axis=2) for one in self._inside]  # the chance of a column and all below it, by group and label
        self._conditionals: list[tuple[int, int | None, Floats]] = []
        chance = np.ones(len(model.by_label))
        for at, parent, table in reversed(model.conditionals):
            tilted = table * met[at].T
            self._conditionals.insert(0, (at, parent, tilted))
            message = tilted.sum(axis=2)
            if parent is None:
                chance = message[0]
            else:
                met[parent] = met[parent] * message
        self._allowed = None if model.label is None else allowed.get(model.label)
        self._drawn: Floats = chance * model.drawn_labels
        if self._allowed is not None and model.labels is None:
            self._drawn = self._drawn * self._allowed[:-1]
        refuse_impossible(self._drawn.sum())

    @property
    def at_once(self) -> int:
        """The rows that are added to the pool, which is raked as a whole."""
        return min(self._model.pool_rows, _ADDED)

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        model, pool, added = self._model, self._model.pool_rows, max(rows, self.at_once)
        both = (
            draw_cells(pool, model.drawn_labels, model.conditionals, model.inside, rng),
            draw_cells(added, self._drawn, self._conditionals, self._inside, rng),
        )
        label = np.concatenate([one[0] for one in both])
        groups, fine = ([*map(np.concatenate, zip(both[0][at], both[1][at], strict=True))] for at in (1, 2))
        met = np.ones(len(label))
        for place, share in self._shares.items():
            met *= share[fine[place]]
        if self._allowed is not None and model.labels is None:
            met *= self._allowed[label]
        weights = model.rake(label, groups, fine, 1 / (pool + added * met / self._drawn.sum()))
        stays, told = self._ways(fine, label)
        weights = weights * met * (stays + told.sum(axis=1))
        refuse_impossible(weights.sum())
        kept = rng.permutation(systematic(weights, rows, rng))
        codes = [cell.draw_codes(one[kept], rng) for cell, one in zip(self._cells, fine, strict=True)]
        if model.label is None:
            return codes
        label = _choose(label[kept], stays[kept], told[kept], rng)
        return [*codes[: model.label], label, *codes[model.label :]]

    def _ways(self, fine: list[Ints], label: Ints) -> tuple[Floats, Floats]:
        """Return the chance of each row to keep its label, and to be told each label, if these are allowed."""
        model = self._model
        if model.label is None or model.labels is None:
            return np.ones(len(label)), np.zeros((len(label), 1))
        told = model.chances(fine)
        if told.shape[1] == 1:  # of the second label only
            told = np.hstack([1 - told, told])
        allowed = np.ones(told.shape[1]) if self._allowed is None else self._allowed[:-1].astype(np.float64)
        return model.mix * allowed[label], (1 - model.mix) * told * allowed


def _choose(label: Ints, stays: Floats, told: Floats, rng: np.random.Generator) -> Ints:
    """Return the label of each row: its own, or one that is told, in proportion to their chances."""
    up = np.cumsum(told, axis=1)
    at = rng.random(len(label)) * (stays + up[:, -1]) - stays
    chosen: Ints = np.where(at < 0, label, (at[:, None] >= up[:, :-1]).sum(axis=1))
    return chosen

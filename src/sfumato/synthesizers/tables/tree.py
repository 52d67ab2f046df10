"""A tree of columns within each label, from noisy counts of pairs, with closed-form sampling (the fast default).

Every column depends on one other column and on the label. The tree has the largest mutual information (Chow and Liu
1968); p(b | a, label) is the table of largest entropy with the noisy counts of (a, b), (a, label) and (b, label).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, Share, on_grid
from sfumato.synthesizers.tables.base import Axis, Model, Rows, Synthesizer
from sfumato.synthesizers.tables.cells import Cells, find_cells, is_wide
from sfumato.synthesizers.tables.labels import AdditiveLabels, Pool, labels_in_order
from sfumato.synthesizers.tables.marginals import (
    coarse_groups,
    count,
    draw_evenly,
    fit_three_way,
    fit_to_margins,
    information,
    onto_simplex,
    spanning_tree,
)
from sfumato.synthesizers.tables.raking import Wanted, rake

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
        The number of noisy sums of residuals that correct the labels; they share a budget.
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

    corrections: int = 3
    pool: int | None = None
    sweeps: int | None = None
    joint: int = 12
    doubt: float = 0.1
    balance: float = 0.5
    mix: float = 0.5

    def shares(self, axes: Sequence[Axis], label: int | None) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        wide = any(is_wide(one) for at, one in enumerate(axes) if at != label)
        worth = {"cells": 0.30, "pairs": 0.25}
        if wide:
            worth["values"] = 0.05
        asked = {name: Share(1, one) for name, one in worth.items()}
        if label is not None and self.corrections:
            asked["residuals"] = Share(self.corrections, 0.4)
        return asked

    def learn(self, rows: Rows, sums: NoisySums) -> TreeModel:
        """Learn from the records through noisy sums."""
        rows, classes = _with_label(rows)
        at = [column for column in range(len(rows.axes)) if column != rows.label]
        axes = [rows.axes[column] for column in at]
        codes = [rows.codes[column] for column in at]
        label = rows.codes[rows.label] if rows.label is not None else np.zeros(len(rows), dtype=np.int64)
        cells = find_cells(axes, codes, sums)
        fine = [one.of_codes(column) for one, column in zip(cells, codes, strict=True)]

        norm = math.sqrt(len(at))
        tables = [count([one, label], [cell.size, classes]) for one, cell in zip(fine, cells, strict=True)]
        noisy = sums("cells", np.concatenate([one.ravel() for one in tables]), norm=norm)
        deviation = sums.deviation_of("cells", norm)
        raw = [one.reshape(-1, classes) for one in np.split(noisy, np.cumsum([one.size for one in tables])[:-1])]
        by_label = _totals(raw)
        table = [np.stack([onto_simplex(one[:, k], by_label[k]) for k in range(classes)], axis=1) for one in raw]

        pairs = list(itertools.combinations(range(len(at)), 2))
        pair_norm = math.sqrt(max(len(pairs), 1))
        pair_deviation = sums.deviation_of("pairs", pair_norm)
        total = by_label.sum()
        most = int(np.clip(math.sqrt(total / (_CLEAR * max(pair_deviation, 1e-9))), _FEWEST, _MOST))
        groups = [
            coarse_groups(one.sum(axis=1), most, 1 / (4 * most if axis.ordered else 6 * most), ordered=axis.ordered)
            for one, axis in zip(table, axes, strict=True)
        ]
        sizes = [int(one.max()) + 1 for one in groups]
        coarse = [group[one].astype(np.uint8) for group, one in zip(groups, fine, strict=True)]
        # With little noise, pairs are counted within each label.
        ways = classes if most >= self.joint else 1
        by = label if ways > 1 else np.zeros(len(rows), dtype=np.int64)
        counted = [count([coarse[a], coarse[b], by], [sizes[a], sizes[b], ways]) for a, b in pairs]
        flat = np.concatenate([one.ravel() for one in counted]) if pairs else np.zeros(0)
        noisy = sums("pairs", flat, norm=pair_norm)
        two = np.split(noisy, np.cumsum([one.size for one in counted]))[: len(pairs)]
        by_group = [_by_group(one, group) for one, group in zip(table, groups, strict=True)]
        fitted = {
            pair: _fit(
                one.reshape(sizes[pair[0]], sizes[pair[1]], ways), by_group[pair[0]], by_group[pair[1]], pair_deviation
            )
            for pair, one in zip(pairs, two, strict=True)
        }
        model = TreeModel(
            axes=tuple(rows.axes),
            label=rows.label,
            cells=cells,
            groups=groups,
            by_label=by_label,
            tables=table,
            pairs=fitted,
            pair_deviation=pair_deviation,
            joint=ways > 1,
            table_deviation=deviation,
            sweeps=int(np.clip(1800 // max(len(pairs), 1), 8, 20)) if self.sweeps is None else self.sweeps,
            pool_rows=(100_000 if len(pairs) <= 200 else 60_000) if self.pool is None else self.pool,
            doubt=self.doubt,
            balance=self.balance,
            mix=float(np.clip((most - self.joint) / 16, 0.0, self.mix)) if ways > 1 else 0.0,
        )
        if rows.label is not None and classes > 1:
            model.labels = self._labels(model, fine, label, raw, deviation, sums)
        return model

    def _labels(
        self,
        model: TreeModel,
        fine: Sequence[NDArray[np.int32]],
        label: Ints,
        raw: Sequence[Floats],
        deviation: float,
        sums: NoisySums,
    ) -> AdditiveLabels:
        """Fit the additive model of the labels on drawn rows, and correct it by noisy residuals of the records."""
        sizes = [one.size for one in model.cells]
        axes = [axis for at, axis in enumerate(model.axes) if at != model.label]
        labels = AdditiveLabels(sizes, [one.ordered for one in axes], len(model.by_label))
        drawn = model.draw(model.pool_rows, np.random.default_rng())
        starts = labels.starts[:, None].astype(np.int32)
        pool = Pool(np.stack(drawn.cells).astype(np.int32) + starts, drawn.weights, labels.total)
        labels.fit(pool, raw, np.full(len(sizes), deviation), model.by_label)
        if not self.corrections:
            return labels
        places = np.stack(fine) + starts
        norm = math.sqrt((len(sizes) + 1) * (1 if labels.outputs == 1 else 2))
        variance = np.full(labels.total + 1, sums.deviation_of("residuals", norm) ** 2)
        truth = (label[:, None] == np.arange(labels.classes)).astype(np.float64)[:, 1 if labels.outputs == 1 else 0 :]
        every = Pool(places, np.ones(places.shape[1]), labels.total)
        for _ in range(self.corrections):
            left = on_grid(truth - labels.chances(places))
            found = np.stack([every.sums(one) for one in left.T], axis=1)
            labels.correct(pool, sums("residuals", found, norm=norm), variance)
        return labels


@dataclass(frozen=True, eq=False, repr=False)
class Drawn:
    """Drawn rows: their cells by column, labels and raked weights."""

    cells: list[Ints]
    label: Ints
    weights: Floats


@dataclass(eq=False, repr=False)
class TreeModel(Model):
    """Noisy tables of cells and pairs, and the scores of the labels."""

    axes: tuple[Axis, ...]
    label: int | None
    cells: list[Cells]
    groups: list[Ints]
    by_label: Floats
    tables: list[Floats]
    pairs: dict[tuple[int, int], Floats]
    pair_deviation: float
    joint: bool
    table_deviation: float
    sweeps: int
    pool_rows: int
    doubt: float
    balance: float
    mix: float
    """The share of rows that keep the label of the tree."""
    labels: AdditiveLabels | None = field(default=None)

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        gains = np.zeros((len(self.cells), len(self.cells)))
        for (a, b), table in self.pairs.items():
            gains[a, b] = gains[b, a] = information(table.sum(axis=2))
        return spanning_tree(gains)

    @cached_property
    def _conditionals(self) -> list[tuple[int, int | None, Floats]]:
        """The chances of each column's groups: the column, its parent, and a table (parent, label, group)."""
        by_group = [_by_group(one, group) for one, group in zip(self.tables, self.groups, strict=True)]
        root = self._edges[0][0] if self._edges else 0
        found: list[tuple[int, int | None, Floats]] = [(root, None, _shares(by_group[root].T[None]))]
        for a, b in self._edges:
            three = self.pairs[a, b] if a < b else self.pairs[b, a].transpose(1, 0, 2)
            found.append((b, a, _shares(three.transpose(0, 2, 1))))
        return found

    @cached_property
    def _inside(self) -> list[Floats]:
        """The chances of each column's cells within a group: tables (group, label, cell)."""
        found = []
        for table, group in zip(self.tables, self.groups, strict=True):
            inside = np.zeros((int(group.max()) + 1, table.shape[1], len(group)))
            inside[group, :, np.arange(len(group))] = table
            found.append(_shares(inside))
        return found

    @cached_property
    def _wanted(self) -> list[Wanted]:
        """The tables to rake: columns are first the coarse ones, then the fine ones, then the label."""
        last = len(self.cells)
        pairs = [
            Wanted((*pair, 2 * last), table, self.pair_deviation)
            if self.joint
            else Wanted(pair, table.sum(axis=2), self.pair_deviation)
            for pair, table in self.pairs.items()
        ]
        return pairs + [
            Wanted((last + at, 2 * last), table, self.table_deviation) for at, table in enumerate(self.tables)
        ]

    def draw(self, rows: int, rng: np.random.Generator) -> Drawn:
        """Draw cells of rows from the tree, and rake them."""
        shares = self.by_label / self.by_label.sum()
        classes = len(shares)
        # Rare labels are drawn more often than they occur, so that raking has enough rows of each.
        drawn = (1 - self.balance) * shares + self.balance / classes
        label = draw_evenly(np.zeros(rows, dtype=np.int64), drawn[None, :], rng)
        coarse: dict[int, Ints] = {}
        for at, parent, table in self._conditionals:
            given = label if parent is None else coarse[parent] * classes + label
            coarse[at] = draw_evenly(given, table.reshape(-1, table.shape[2]), rng)
        groups = [coarse[at] for at in range(len(self.cells))]
        fine = [
            draw_evenly(one * classes + label, table.reshape(-1, table.shape[2]), rng)
            for one, table in zip(groups, self._inside, strict=True)
        ]
        weights = (self.by_label / drawn)[label] / rows
        weights = rake([*groups, *fine, label], self._wanted, weights, self.sweeps, self.doubt)
        return Drawn(fine, label, weights)

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        drawn = self.draw(max(rows, self.pool_rows), rng)
        kept = rng.permutation(_systematic(drawn.weights, rows, rng))
        fine = [one[kept] for one in drawn.cells]
        codes = [cell.draw_codes(one, rng) for cell, one in zip(self.cells, fine, strict=True)]
        if self.label is None:
            return codes
        label = drawn.label[kept]
        if self.labels is not None:
            places = np.stack(fine) + self.labels.starts[:, None]
            told = labels_in_order(self.labels.chances(places), rng)
            label = np.where(rng.random(rows) < self.mix, label, told)
        return [*codes[: self.label], label, *codes[self.label :]]


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


def _with_label(rows: Rows) -> tuple[Rows, int]:
    """Return the records whose label is known, and the number of classes; 1 if there is no label."""
    if rows.label is None:
        return rows, 1
    classes = rows.axes[rows.label].size - 1
    known = rows.codes[rows.label] < classes
    return Rows(rows.axes, tuple(one[known] for one in rows.codes), rows.label), classes


def _totals(tables: Sequence[Floats]) -> Floats:
    """Return the number of records of each label: every column counts them all, a sum of fewer cells is less noisy."""
    trust = np.array([1 / len(one) for one in tables])
    sums = np.stack([one.sum(axis=0) for one in tables])
    totals: Floats = np.maximum((trust[:, None] * sums).sum(axis=0) / trust.sum(), 1.0)
    return totals


def _shares(table: Floats) -> Floats:
    """Return shares along the last axis; equal ones where there is nothing."""
    whole = table.sum(axis=-1, keepdims=True)
    shares: Floats = np.where(whole > 0, table / np.maximum(whole, 1e-300), 1 / table.shape[-1])
    return shares


def _by_group(table: Floats, groups: Ints) -> Floats:
    found = np.zeros((int(groups.max()) + 1, table.shape[1]))
    np.add.at(found, groups, table)
    return found


def _systematic(weights: Floats, rows: int, rng: np.random.Generator) -> Ints:
    """Return the positions of rows drawn in proportion to their weights, evenly spaced."""
    up = np.cumsum(weights)
    at = (np.arange(rows) + rng.random()) * (up[-1] / max(rows, 1))
    drawn: Ints = np.minimum(np.searchsorted(up, at, side="right"), len(weights) - 1)
    return drawn

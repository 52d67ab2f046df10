"""What the tree has learned: noisy tables of cells and pairs, and how rows are drawn from them.

Labels are drawn first, then the columns along the tree, then the cells within their groups. The drawn rows are raked to
all pair counts; an additive model then tells the labels of all rows but a share of `mix`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.synthesizers.state import State, Stored, split
from sfumato.synthesizers.tables.base import Axis, Mask, Model, Sampler
from sfumato.synthesizers.tables.columns.cells import Cells, read_cells, read_groups
from sfumato.synthesizers.tables.methods.marginals import by_group, draw_evenly, information, spanning_tree
from sfumato.synthesizers.tables.methods.tree.interactions import Interactions
from sfumato.synthesizers.tables.methods.tree.labels import AdditiveLabels, labels_in_order
from sfumato.synthesizers.tables.methods.tree.raking import Wanted, rake

__all__ = ["TreeModel", "by_group", "draw_cells", "inside_groups", "systematic"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_ROWS = 1_000_000  # of a pool
_MOST_SWEEPS = 20  # the method asks for no more, and drawing from a stranger's model must not take hours
_MOST_PAIRS = 2**20
_BALANCE = 0.5  # from 0 (labels are drawn as often as they occur) to 1 (equally often, and weighted)


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
    mix: float
    """The share of rows that keep the label of the tree."""
    labels: AdditiveLabels | None = field(default=None)
    interactions: Interactions | None = field(default=None)

    @property
    def total(self) -> float:
        """The noisy number of records."""
        return float(self.by_label.sum())

    @property
    def deviations(self) -> Mapping[str, float]:
        """The noise multipliers that the state implies, by kind of sum."""
        return {
            "cells": self.table_deviation / math.sqrt(len(self.cells)),
            "pairs": self.pair_deviation / math.sqrt(max(len(self.pairs), 1)),
        }

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        gains = np.full((len(self.cells), len(self.cells)), -np.inf)
        for (a, b), table in self.pairs.items():
            gains[a, b] = gains[b, a] = information(table.sum(axis=2))
        return spanning_tree(gains)

    @cached_property
    def conditionals(self) -> list[tuple[int, int | None, Floats]]:
        """The chances of each column's groups: the column, its parent, and a table (parent, label, group)."""
        grouped = [by_group(one, group) for one, group in zip(self.tables, self.groups, strict=True)]
        root = self._edges[0][0] if self._edges else 0
        found: list[tuple[int, int | None, Floats]] = [(root, None, _shares(grouped[root].T[None]))]
        for a, b in self._edges:
            three = self.pairs[a, b] if a < b else self.pairs[b, a].transpose(1, 0, 2)
            found.append((b, a, _shares(three.transpose(0, 2, 1))))
        return found

    @cached_property
    def inside(self) -> list[Floats]:
        """The chances of each column's cells within a group: tables (group, label, cell)."""
        return [inside_groups(table, group) for table, group in zip(self.tables, self.groups, strict=True)]

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
        label, groups, fine = draw_cells(rows, self.drawn_labels, self.conditionals, self.inside, rng)
        return Drawn(fine, label, self.rake(label, groups, fine, np.full(rows, 1 / rows)))

    @property
    def drawn_labels(self) -> Floats:
        """How often labels are drawn: rare ones more often than they occur, so that raking has enough rows of each."""
        drawn: Floats = (1 - _BALANCE) * self.by_label / self.by_label.sum() + _BALANCE / len(self.by_label)
        return drawn

    def rake(self, label: Ints, groups: list[Ints], fine: list[Ints], parts: Floats) -> Floats:
        """Return the raked weights of rows, given the part of all drawn rows that each stands for."""
        weights = (self.by_label / self.drawn_labels)[label] * parts
        return rake([*groups, *fine, label], self._wanted, weights, self.sweeps, parts)

    @property
    def at_once(self) -> int:
        """The rows of a pool, which is drawn and raked as a whole."""
        return self.pool_rows

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        drawn = self.draw(max(rows, self.pool_rows), rng)
        kept = rng.permutation(systematic(drawn.weights, rows, rng))
        fine = [one[kept] for one in drawn.cells]
        codes = [cell.draw_codes(one, rng) for cell, one in zip(self.cells, fine, strict=True)]
        if self.label is None:
            return codes
        label = drawn.label[kept]
        if self.labels is not None:
            told = labels_in_order(self.chances(fine), rng)
            label = np.where(rng.random(rows) < self.mix, label, told)
        return [*codes[: self.label], label, *codes[self.label :]]

    def chances(self, fine: list[Ints]) -> Floats:
        """Return the chances of the labels of rows, given their cells; see `AdditiveLabels.chances`."""
        assert self.labels is not None
        added = None if self.interactions is None else self.interactions.scores(fine)
        return self.labels.chances(self.labels.places(fine), added)

    def given(self, allowed: Mapping[int, Mask]) -> Sampler:
        """Return what draws the rows whose codes are among those allowed."""
        from sfumato.synthesizers.tables.methods.tree.conditional import ConditionedTree

        return ConditionedTree(self, allowed)

    def to_state(self) -> State:
        """Return the settings and the noisy tables."""
        settings = {name: getattr(self, name) for name in _SETTINGS} | {"joint": int(self.joint)}
        arrays = {
            "starts": np.concatenate([one.starts for one in self.cells]),
            "groups": np.concatenate(self.groups),
            "by_label": self.by_label,
            "tables": np.concatenate(self.tables),
            "paired": np.array(list(self.pairs), dtype=np.int64).reshape(-1, 2),
            "pairs": np.concatenate([np.zeros(0), *(one.ravel() for one in self.pairs.values())]),
        }
        if self.labels is not None:
            arrays |= {"merged": np.concatenate(self.labels.merged), "scores": self.labels.scores}
        if self.interactions is not None:
            arrays |= {
                "interacting": np.array(list(self.interactions.tables), dtype=np.int64).reshape(-1, 2),
                "interactions": np.concatenate([np.zeros(0), *(a.ravel() for a in self.interactions.tables.values())]),
            }
        return State({**settings, "cells": [one.size for one in self.cells]}, arrays)

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state."""
        stored = Stored(state)
        classes = 1 if label is None else axes[label].size - 1
        columns = [axis for at, axis in enumerate(axes) if at != label]
        cells = read_cells(columns, stored)
        sizes = [one.size for one in cells]
        total = sum(sizes)
        groups = read_groups(stored, "groups", cells)
        pairs = _read_tables(stored, "paired", "pairs", groups, classes, least=0.0)
        _refuse_unconnected(pairs, len(columns))
        model = cls(
            axes=axes,
            label=label,
            cells=cells,
            groups=groups,
            by_label=stored.array("by_label", (classes,), least=1e-9),
            tables=split(stored.array("tables", (total, classes), least=0.0), sizes),
            pairs=pairs,
            joint=bool(stored.whole("joint", 0, 1)),
            sweeps=stored.whole("sweeps", 0, _MOST_SWEEPS),
            pool_rows=stored.whole("pool_rows", 1, _MOST_ROWS),
            pair_deviation=stored.number("pair_deviation", 0.0, 1e15),
            table_deviation=stored.number("table_deviation", 0.0, 1e15),
            mix=stored.number("mix", 0.0, 1.0),
        )
        if "scores" in state.arrays:
            ordered = [one.ordered for one in columns]
            model.labels = AdditiveLabels(read_groups(stored, "merged", cells), ordered, classes)
            outputs = model.labels.outputs
            model.labels.scores = stored.array("scores", (model.labels.total + 1, outputs))
            told = _read_tables(stored, "interacting", "interactions", groups, outputs)
            model.interactions = Interactions(groups, told, outputs)
        return model


_SETTINGS = ("pair_deviation", "table_deviation", "sweeps", "pool_rows", "mix")


def _read_tables(
    stored: Stored, names: str, values: str, groups: list[Ints], last: int, *, least: float = -math.inf
) -> dict[tuple[int, int], Floats]:
    """Return a table (group, group, last) for each of some pairs of columns; each pair is there once."""
    given = stored.state.arrays.get(names)
    count = 0 if given is None else len(given)
    found = stored.array(names, (min(count, _MOST_PAIRS), 2), kind="i", least=0, most=max(len(groups) - 1, 0))
    pairs = [(int(a), int(b)) for a, b in found]
    if len(set(pairs)) < len(pairs) or any(a >= b for a, b in pairs):
        raise InputError(f"the generator's '{names}' must be different pairs of columns, the first column first")
    shapes = [(int(groups[a].max()) + 1, int(groups[b].max()) + 1, last) for a, b in pairs]
    lengths = [a * b * c for a, b, c in shapes]
    flat = split(stored.array(values, (sum(lengths),), least=least), lengths)
    return {pair: one.reshape(shape) for pair, one, shape in zip(pairs, flat, shapes, strict=True)}


def _refuse_unconnected(pairs: Mapping[tuple[int, int], Floats], columns: int) -> None:
    joined = np.full((columns, columns), -np.inf)
    for a, b in pairs:
        joined[a, b] = joined[b, a] = 0.0
    if not all(joined[edge] == 0 for edge in spanning_tree(joined)):
        raise InputError("the generator's pairs must connect all columns")


def draw_cells(
    rows: int,
    labels: Floats,
    conditionals: Sequence[tuple[int, int | None, Floats]],
    inside: Sequence[Floats],
    rng: np.random.Generator,
) -> tuple[Ints, list[Ints], list[Ints]]:
    """Draw the labels of rows, the groups of their columns along a tree, and the cells within their groups."""
    label = draw_evenly(np.zeros(rows, dtype=np.int64), labels[None, :], rng)
    coarse: dict[int, Ints] = {}
    for at, parent, table in conditionals:
        given = label if parent is None else coarse[parent] * len(labels) + label
        coarse[at] = draw_evenly(given, table.reshape(-1, table.shape[2]), rng)
    groups = [coarse[at] for at in range(len(inside))]
    fine = [
        draw_evenly(one * len(labels) + label, table.reshape(-1, table.shape[2]), rng)
        for one, table in zip(groups, inside, strict=True)
    ]
    return label, groups, fine


def _shares(table: Floats) -> Floats:
    """Return shares along the last axis; equal ones where there is nothing."""
    whole = table.sum(axis=-1, keepdims=True)
    shares: Floats = np.where(whole > 0, table / np.maximum(whole, 1e-300), 1 / table.shape[-1])
    return shares


def inside_groups(table: Floats, groups: Ints) -> Floats:
    """Return the chances of a column's cells within a group: a table (group, label, cell) from one (cell, label).

    Examples
    --------
    >>> inside_groups(np.array([[1.0], [3.0], [2.0]]), np.array([0, 0, 1])).tolist()
    [[[0.25, 0.75, 0.0]], [[0.0, 0.0, 1.0]]]
    """
    inside = np.zeros((int(groups.max()) + 1, table.shape[1], len(groups)))
    inside[groups, :, np.arange(len(groups))] = table
    return _shares(inside)


def systematic(weights: Floats, rows: int, rng: np.random.Generator) -> Ints:
    """Return the positions of rows drawn in proportion to their weights, evenly spaced."""
    up = np.cumsum(weights)
    at = (np.arange(rows) + rng.random()) * (up[-1] / max(rows, 1))
    drawn: Ints = np.minimum(np.searchsorted(up, at, side="right"), len(weights) - 1)
    return drawn

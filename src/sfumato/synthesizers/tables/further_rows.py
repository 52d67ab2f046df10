"""Further rows of a person, given the first: what stays, what changes, and what goes together.

Of each person with several rows, one pair of rows is counted: for every column, the group of its value in the one row
and in the other, and how often both are the same value. A person is in one cell for each column, so k columns are a
noisy sum of norm sqrt(k). All else follows from what was bought for the first rows, at no cost::

    groups    of the values of each column, by how often the model of the first rows draws them
    a tree    of columns, those that stay first; each follows the one that tells most of it in drawn rows
    tables    p(value | the same column of the first row, the parent column of this row): the table of largest entropy
              that has the noisy pairs of rows, and the pairs of columns of drawn rows

    to draw: along the tree, the group of each column; inside the group of the first row, the same value as often as it
             was counted; else the value of a drawn row of that group

What never changes within a person is on the diagonal of its table, and comes out the same by itself. Both rows of a
pair are random ones, so tables are symmetric: the mean with the transpose has less noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.state import State, Stored, split
from sfumato.synthesizers.tables.base import Axis, Model, Recoding
from sfumato.synthesizers.tables.columns.cells import Cells, read_cells, read_groups
from sfumato.synthesizers.tables.columns.description import OfOneRow
from sfumato.synthesizers.tables.methods.marginals import (
    coarse_groups,
    draw_evenly,
    fit_three_way,
    fit_to_margins,
    information,
    onto_simplex,
)

__all__ = ["FURTHER", "FurtherRows", "further_shares", "learn_further", "rows_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FURTHER = "further rows"
"""The name of the noisy sum over pairs of rows."""
_NAME = "further_"  # before the names of what is stored
_PART = 0.25  # of the budget
_POOL = 50_000  # drawn first rows, from which all that is free follows
_ENOUGH = 1000  # of them that belong to people with several rows
_FEWEST, _USUAL, _MOST = 4, 8, 32  # groups of a column
_CLEAR = 3.0  # the mean count of a cell of a table, in deviations of its noise
_LEVELS = 4  # of stability
_SEEN = 2.0  # deviations by which changes must stand out
_LEAST = 0.02  # of what is usual, in any table


def further_shares(others: Mapping[str, Share]) -> dict[str, Share]:
    """Return the noisy sum over pairs of rows, relative to all other sums.

    Examples
    --------
    >>> further_shares({"cells": Share(1, 0.75)})["further rows"].worth
    0.25
    """
    worth = math.fsum(one.worth for one in others.values())
    return {FURTHER: OfOneRow(1, worth * _PART / (1 - _PART))}


@dataclass(frozen=True, eq=False, repr=False)
class FurtherRows(Discreet):
    """How the columns of a further row follow from the first row.

    Attributes
    ----------
    cells : the cells of each column
    groups : the group of each cell
    edges : a tree of the columns, (parent, child), parents first
    same : for each column and group of the first row, the share of rows of that group with the very same value
    tables : for each column, the weights of (group in the first row, group of the parent, group)
    """

    cells: list[Cells]
    groups: list[Ints]
    edges: list[tuple[int, int]]
    same: list[Floats]
    tables: list[Floats]

    @cached_property
    def recodings(self) -> list[Recoding]:
        """From the codes of each column to groups."""
        return [one.recoding.then(group) for one, group in zip(self.cells, self.groups, strict=True)]

    @property
    def order(self) -> list[tuple[int, int | None]]:
        """Every column with its parent, parents first."""
        return tree_order(self.edges)

    def draw(self, first: Sequence[Ints], donors: Sequence[Ints], rng: np.random.Generator) -> list[Ints]:
        """Return the codes of a further row for each first row, given drawn rows to take new values from."""
        before = [how.of_codes(one) for how, one in zip(self.recodings, first, strict=True)]
        after = draw_groups(self.tables, self.order, before, rng)
        found = []
        owned = [how.of_codes(one).astype(np.int64) for how, one in zip(self.recodings, donors, strict=True)]
        for at, parent in sorted(self.order):
            codes, fresh = first[at], _of_groups(after[at], owned[at], donors[at], rng)
            if parent is not None:  # of a drawn row in which the parent is in the same group too, if there is one
                size = self.recodings[at].size
                both, known = after[parent] * size + after[at], owned[parent] * size + owned[at]
                nearer = _of_groups(both, known, donors[at], rng)
                fresh = np.where(nearer < 0, fresh, nearer)
            stays = (after[at] == before[at]) & (rng.random(len(codes)) < self.same[at][before[at]])
            # A group that no drawn row is in is one of noise.
            found.append(np.where(stays | (fresh < 0), codes, fresh).astype(np.int64))
        return found

    def to_state(self) -> State:
        """Return everything that `from_state` needs beside the axes."""
        arrays = {
            "starts": np.concatenate([one.starts for one in self.cells]),
            "groups": np.concatenate(self.groups),
            "edges": np.array(self.edges, dtype=np.int64).reshape(-1, 2),
            "same": np.concatenate(self.same),
            "tables": np.concatenate([one.ravel() for one in self.tables]),
        }
        sizes = [one.size for one in self.cells]
        return State({f"{_NAME}cells": sizes}, {_NAME + name: one for name, one in arrays.items()})

    @classmethod
    def from_state(cls, axes: Sequence[Axis], state: State) -> Self:
        """Return the further rows of a stranger's state, which has other parts too; every number is checked."""
        settings, arrays = (
            {name.removeprefix(_NAME): one for name, one in part.items() if name.startswith(_NAME)}
            for part in (state.settings, state.arrays)
        )
        stored = Stored(State(settings, arrays))
        cells = read_cells(axes, stored)
        groups = read_groups(stored, "groups", cells)
        sizes = [int(one.max()) + 1 for one in groups]
        if max(sizes) > _MOST + 2:
            raise InputError(f"the generator's further rows must have at most {_MOST + 2} groups of a column")
        found = stored.array("edges", (len(axes) - 1, 2), kind="i", least=0, most=len(axes) - 1)
        edges = [(int(a), int(b)) for a, b in found]
        seen = {edges[0][0] if edges else 0}
        for parent, child in edges:
            if parent not in seen or child in seen:
                raise InputError("the generator's edges must be a tree of all columns, parents first")
            seen.add(child)
        shapes = {
            at: (sizes[at], 1 if parent is None else sizes[parent], sizes[at]) for at, parent in tree_order(edges)
        }
        ordered = [shapes[at] for at in range(len(axes))]
        lengths = [math.prod(one) for one in ordered]
        flat = split(stored.array("tables", (sum(lengths),), least=0.0, most=1e15), lengths)
        same = split(stored.array("same", (sum(sizes),), least=0.0, most=1.0), sizes)
        return cls(cells, groups, edges, same, [one.reshape(how) for one, how in zip(flat, ordered, strict=True)])


def tree_order(edges: Sequence[tuple[int, int]]) -> list[tuple[int, int | None]]:
    """Return every column with its parent, parents first.

    Examples
    --------
    >>> tree_order([(2, 0), (0, 1)])
    [(2, None), (0, 2), (1, 0)]
    """
    return [(edges[0][0] if edges else 0, None), *((child, parent) for parent, child in edges)]


def _tree(moves: Sequence[Floats], told: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return a tree of columns in which the more stable ones come first: what changes follows from what stays.

    Stable is a column whose groups stay more often than by chance (Cohen's kappa). Of about equally stable columns
    those that tell more come first, so that a ward follows from the diagnosis. The parent of a column is the one that
    tells most of it, among those before it.

    Examples
    --------
    >>> stays, changes = np.diag([0.5, 0.5]), np.full((2, 2), 0.25)
    >>> _tree([changes, stays, changes], lambda a, b: 1 - b)
    [(1, 0), (1, 2)]
    """
    keys = []
    for table in moves:
        shares = table.sum(axis=1)
        chance = float(np.square(shares).sum())
        kappa = (float(np.trace(table)) - chance) / max(1 - chance, 1e-9)
        entropy = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
        keys.append((-round(_LEVELS * kappa), -entropy))
    order = sorted(range(len(moves)), key=keys.__getitem__)
    return [(max(order[:place], key=lambda one: told(one, at)), at) for place, at in enumerate(order) if place]


def draw_groups(
    tables: Sequence[Floats],
    order: Sequence[tuple[int, int | None]],
    before: Sequence[NDArray[np.integer]],
    rng: np.random.Generator,
) -> dict[int, Ints]:
    """Draw the groups of the columns of further rows, as far as there are tables, given those of the first rows."""
    after: dict[int, Ints] = {}
    for at, parent in order:
        table = tables[at]
        given = before[at].astype(np.int64) * table.shape[1] + (0 if parent is None else after[parent])
        after[at] = draw_evenly(given, table.reshape(-1, table.shape[2]), rng)
    return after


def learn_further(
    model: Model,
    axes: Sequence[Axis],
    first: Sequence[NDArray[np.integer]],
    second: Sequence[NDArray[np.integer]],
    sums: NoisySums,
    rng: np.random.Generator,
) -> FurtherRows:
    """Learn what further rows are like from one pair of rows of each person who has several.

    Parameters
    ----------
    model : Model
        The model of first rows.
    axes : sequence of Axis
        Its columns; the last one is the number of rows of a person.
    first, second : sequence of arrays
        The codes of the pairs of rows, by column. Private.
    sums : NoisySums
    rng : the source of public randomness
    """
    *axes, last = axes
    drawn, several = _drawn(model, last.size - 1, rng)
    norm = math.sqrt(len(axes))
    deviation = sums.deviation_of(FURTHER, norm)
    people = None if model.total is None else model.total * several
    most = _USUAL
    if people is not None:
        most = int(np.clip(math.sqrt(people / (_CLEAR * max(deviation, 1e-9))), _FEWEST, _MOST))
    cells = [Cells.of(one) for one in axes]
    groups = []
    for axis, cell, codes in zip(axes, cells, drawn, strict=True):
        counts = np.bincount(cell.of_codes(codes), minlength=cell.size).astype(np.float64)
        least = 1 / (4 * most if axis.ordered else 6 * most)
        groups.append(coarse_groups(counts, most, least, ordered=axis.ordered))
    recodings = [one.recoding.then(group) for one, group in zip(cells, groups, strict=True)]
    exact = [_transitions(how, one, other) for how, one, other in zip(recodings, first, second, strict=True)]
    noisy = split(sums(FURTHER, np.concatenate([one.ravel() for one in exact]), norm=norm), [one.size for one in exact])
    raw = [one.reshape(had.shape) for one, had in zip(noisy, exact, strict=True)]
    pairs = max(float(np.average([one.sum() for one in raw], weights=[1 / one.size for one in raw])), 1.0)

    before = [how.of_codes(one).astype(np.int64) for how, one in zip(recodings, drawn, strict=True)]
    sizes = [how.size for how in recodings]
    shares = [np.bincount(one, minlength=size) / len(one) for one, size in zip(before, sizes, strict=True)]
    same, moves = [], []
    for cell, group, share, one in zip(cells, groups, shares, raw, strict=True):
        alone = np.bincount(group, weights=cell.widths) == 1
        kept, joint = _denoised(one, deviation, pairs, share, alone)
        same.append(kept)
        moves.append(joint)

    def together(a: int, b: int) -> Floats:
        counts = np.bincount(before[a] * sizes[b] + before[b], minlength=sizes[a] * sizes[b])
        found: Floats = counts.reshape(sizes[a], sizes[b]) / len(before[a])
        return found

    edges = _tree(moves, lambda a, b: information(together(a, b)))
    tables: list[Floats] = [np.zeros(0)] * len(axes)
    order = tree_order(edges)
    for place, (at, parent) in enumerate(order):
        if parent is None:
            tables[at] = moves[at][:, None, :]
            continue
        after = draw_groups(tables, order[:place], before, rng)[parent]
        given = np.bincount(before[at] * sizes[parent] + after, minlength=sizes[at] * sizes[parent])
        # The last margin is met exactly: it is that of the rows that are drawn.
        fitted = fit_three_way(
            together(at, parent), moves[at].T, given.reshape(sizes[at], sizes[parent]).T / len(after)
        )
        tables[at] = fitted.transpose(2, 1, 0)
    return FurtherRows(cells, groups, edges, same, tables)


def _drawn(model: Model, most: int, rng: np.random.Generator) -> tuple[list[Ints], float]:
    """Return drawn first rows of people with several rows, and the share of these people."""
    *codes, rows = model.sample(max(_POOL, model.at_once), rng)
    several = rows_of(rows, most) > 1
    share = float(several.mean())
    if several.sum() < _ENOUGH:  # nearly nobody: all people are a better guess than a few
        several[:] = True
    return [one[several] for one in codes], share


def rows_of(codes: Ints, most: int) -> Ints:
    """Return the numbers of rows of their codes; one where noise has drawn the code of a missing number.

    Examples
    --------
    >>> rows_of(np.array([0, 2, 3]), most=3).tolist()
    [1, 3, 1]
    """
    return np.where(codes < most, codes + 1, 1)


def _transitions(how: Recoding, one: NDArray[np.integer], other: NDArray[np.integer]) -> Floats:
    """Count pairs of values: by both groups if they differ, and in a last column if they are the same."""
    before, after = how.of_codes(one).astype(np.int64), how.of_codes(other).astype(np.int64)
    place = before * (how.size + 1) + np.where(one == other, how.size, after)
    counts = np.bincount(place, minlength=how.size * (how.size + 1))
    return counts.reshape(how.size, how.size + 1).astype(np.float64)


def _denoised(
    noisy: Floats, deviation: float, pairs: float, shares: Floats, alone: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return the share of same values within each group, and the table (group, group) with these margins.

    A column that changes less often than the noise would show never changes, and the reverse. Which groups have a
    single code is public: their values cannot differ.

    Examples
    --------
    >>> counts = np.array([[0.0, 10, 40], [10, 0, 40]])
    >>> kept, table = _denoised(counts, 0.0, 100, np.array([0.5, 0.5]), np.array([True, True]))
    >>> kept.tolist(), table.round(3).tolist()
    ([1.0, 1.0], [[0.4, 0.1], [0.1, 0.4]])
    """
    unchanged, seen = float(noisy[:, -1].sum()), _SEEN * deviation * math.sqrt(len(noisy))
    unchanged = 0.0 if unchanged < seen else pairs if unchanged > pairs - seen else unchanged
    same = _shrunk(noisy[:, -1], shares, unchanged, deviation)
    possible = ~np.diag(alone)
    changed = np.zeros(possible.shape)
    if possible.any():  # a number and its transpose have the same mean
        both = (noisy[:, :-1] + noisy[:, :-1].T) / 2
        chance = np.outer(shares, shares)[possible]
        changed[possible] = _shrunk(both[possible], chance, pairs - unchanged, deviation / math.sqrt(2))
    inside = same + changed.diagonal()
    kept: Floats = np.where(inside > 0, same / np.maximum(inside, 1e-300), 1.0)
    return kept, fit_to_margins((np.diag(same) + changed) / pairs, shares, shares)


def _shrunk(noisy: Floats, shares: Floats, total: float, deviation: float) -> Floats:
    """Return counts with a total, the nearer to these shares the less noisy ones differ from them than noise would.

    Nothing that may occur is without a chance: margins could not be met otherwise. (James and Stein 1961)

    Examples
    --------
    >>> _shrunk(np.array([30.0, 70.0]), np.array([0.5, 0.5]), 100.0, 0.0).round(1).tolist()
    [30.4, 69.6]
    >>> _shrunk(np.array([30.0, 70.0]), np.array([0.5, 0.5]), 100.0, 30.0).round(1).tolist()
    [50.0, 50.0]
    """
    usual = total * shares / max(float(shares.sum()), 1e-12)
    apart = float(np.square(noisy - usual).sum())
    trust = max(0.0, 1 - noisy.size * deviation**2 / max(apart, 1e-9))
    nearer = onto_simplex(usual + trust * (noisy - usual), total) if total > 0 else usual
    return (1 - _LEAST) * nearer + _LEAST * usual


def _of_groups(groups: Ints, owned: NDArray[np.integer], values: Ints, rng: np.random.Generator) -> Ints:
    """Return a random value of each of these groups, given values and their groups; -1 if a group has none.

    Examples
    --------
    >>> _of_groups(np.array([1, 0, 2]), np.array([0, 1]), np.array([70, 80]), np.random.default_rng(0)).tolist()
    [80, 70, -1]
    """
    order = np.argsort(owned, kind="stable")
    sizes = np.bincount(owned, minlength=int(groups.max(initial=0)) + 1)
    starts = np.cumsum(sizes) - sizes
    at = starts[groups] + (rng.random(len(groups)) * sizes[groups]).astype(np.int64)
    found: Ints = np.where(sizes[groups] > 0, values[order][np.minimum(at, len(values) - 1)], -1)
    return found

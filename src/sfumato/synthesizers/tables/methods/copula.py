"""A Gaussian copula: each column from its noisy counts, dependence from a noisy correlation of ranks.

A baseline: it follows how strongly two columns rise together, and nothing else. Within each label, the cells of a
column are put in order, and their ranks lie between -1 and 1; the products of the ranks of all pairs of columns are
added up in one noisy sum. Nothing has to be clipped, as the products of normal scores would have to be, which makes
strong correlations too small. Normal numbers with a correlation of 2 sin(pi/6 r) have the rank correlation r (Pearson
1907). A correlation matrix near the noisy one (Higham 2002) gives such numbers, and their ranks give cells (as in Li,
Xiong and Jiang, EDBT 2014).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.state import State, split
from sfumato.synthesizers.tables.base import Axis, Model, Records, Synthesizer
from sfumato.synthesizers.tables.columns.cells import (
    Cells,
    count_cells,
    find_cells,
    is_wide,
    label_totals,
    read_columns,
)
from sfumato.synthesizers.tables.methods.marginals import draw_evenly, onto_simplex

__all__ = ["Copula"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GRID = 2.0**-10  # of ranks: the sums of their products are exact for billions of records
_LEAST = 1e-4  # the least eigenvalue of a correlation matrix
_PROJECTIONS = 30


@dataclass(eq=False, repr=False)
class CopulaModel(Model):
    """Noisy counts of the cells of every column within each label, the order of cells, and correlations."""

    axes: tuple[Axis, ...]
    label: int | None
    cells: list[Cells]
    counts: list[Floats]
    orders: list[Ints]
    correlations: Floats

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        by_label = self.counts[0].sum(axis=0)
        label = draw_evenly(np.zeros(rows, dtype=np.int64), by_label[None, :], rng)
        cells = np.zeros((len(self.cells), rows), dtype=np.int64)
        for value, correlation in enumerate(self.correlations):
            here = np.flatnonzero(label == value)
            normal = rng.standard_normal((len(here), len(self.cells))) @ np.linalg.cholesky(correlation).T
            for at, (counts, order) in enumerate(zip(self.counts, self.orders, strict=True)):
                # Ranks make the shares of cells almost exact.
                even = (np.argsort(np.argsort(normal[:, at])) + rng.random()) / max(len(here), 1)
                up = np.cumsum(counts[order, value])
                place = np.searchsorted(up, even * up[-1], side="right")
                cells[at, here] = order[np.minimum(place, len(order) - 1)]
        codes = [cell.draw_codes(one, rng) for cell, one in zip(self.cells, cells, strict=True)]
        return codes if self.label is None else [*codes[: self.label], label, *codes[self.label :]]

    def to_state(self) -> State:
        """Return the cells, their counts and order, and the correlations."""
        arrays = {
            "starts": np.concatenate([one.starts for one in self.cells]),
            "counts": np.concatenate(self.counts),
            "orders": np.concatenate(self.orders),
            "correlations": self.correlations,
        }
        return State({"cells": [one.size for one in self.cells]}, arrays)

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state."""
        stored, columns, classes, cells = read_columns(axes, label, state)
        sizes = [one.size for one in cells]
        total = sum(sizes)
        orders = split(stored.array("orders", (total,), kind="i", least=0, most=max(sizes) - 1), sizes)
        if any((np.sort(one) != np.arange(len(one))).any() for one in orders):
            raise InputError("the order of the generator's cells must name each of them once")
        counts = split(stored.array("counts", (total, classes), least=0.0), sizes)
        found = stored.array("correlations", (classes, len(columns), len(columns)), least=-1.0, most=1.0 + 1e-9)
        symmetric = np.allclose(found, found.transpose(0, 2, 1), atol=1e-9)
        if not symmetric or min(float(np.linalg.eigvalsh(one)[0]) for one in found) < _LEAST / 2:
            raise InputError("the generator's correlations must be symmetric and positive definite")
        return cls(axes, label, cells, counts, orders, found)


@dataclass(frozen=True, kw_only=True)
class Copula(Synthesizer):
    """Draw normal numbers with a noisy correlation, and cells by their ranks: a baseline.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> from sfumato.synthesizers.tables.base import Rows
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(0, 50, 2000)
    >>> rows = Rows((Axis("age", 101, True), Axis("weight", 101, True)), (age, age + rng.integers(0, 20, 2000)), None)
    >>> method = Copula()
    >>> model = method.learn(rows, NoisySums(method.shares(rows.axes, None), 3.0, Source(insecure_seed=1)), rng)
    >>> 0.8 < np.corrcoef(model.sample(2000, rng))[0, 1] < 1
    np.True_
    """

    name: ClassVar[str] = "copula"
    model: ClassVar[type[Model]] = CopulaModel

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        if not scans:
            raise InputError(
                "a copula reads the records, but these can only be counted",
                hint="use another method, or fetch the table",
            )
        columns = [one for at, one in enumerate(axes) if at != label]
        asked = {"cells": Share(1, 0.6)}
        if any(map(is_wide, columns)):
            asked["values"] = Share(1, 0.1)
        if len(columns) > 1:
            asked["products"] = Share(1, 0.3)
        return asked

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> CopulaModel:
        """Learn from the records through noisy sums."""
        columns = [at for at in range(len(records.axes)) if at != records.label]
        cells = find_cells(records, columns, sums)
        raw, _ = count_cells(records, columns, cells, sums)
        by_label = label_totals(raw)
        counts = [np.stack(list(map(onto_simplex, one.T, by_label)), axis=1) for one in raw]
        orders = [_order(one, records.axes[at]) for at, one in zip(columns, counts, strict=True)]
        ranks = [_ranks(one, order) for one, order in zip(counts, orders, strict=True)]
        classes, size = len(by_label), len(columns)
        found = np.tile(np.eye(size), (classes, 1, 1))
        if size > 1:
            norm = math.sqrt(math.comb(size, 2))
            noisy = sums("products", _products(records, columns, cells, ranks, classes), norm=norm)
            deviation = sums.deviation_of("products", norm)
            spread = np.stack([(one * np.square(rank)).sum(axis=0) for one, rank in zip(counts, ranks, strict=True)])
            found = _correlations(noisy, deviation, by_label, np.maximum(spread / by_label, 1e-3))
        return CopulaModel(records.axes, records.label, cells, counts, orders, found)


def _order(counts: Floats, axis: Axis) -> Ints:
    """Return the cells of a column in order; categories by their share of the first label."""
    if axis.ordered:
        return np.arange(len(counts))
    share = counts[:, 0] / np.maximum(counts.sum(axis=1), 1e-9)
    return np.append(np.argsort(share[:-1], kind="stable"), len(counts) - 1)


def _ranks(counts: Floats, order: Ints) -> Floats:
    """Return the rank of each cell within each label: its middle, from -1 to 1."""
    sorted_ = counts[order]
    ranks = np.empty_like(counts)
    ranks[order] = 2 * (np.cumsum(sorted_, axis=0) - sorted_ / 2) / sorted_.sum(axis=0) - 1
    return np.clip(ranks, -1.0, 1.0)


def _products(
    records: Records, columns: Sequence[int], cells: Sequence[Cells], ranks: Sequence[Floats], classes: int
) -> Floats:
    """Return the sums of the products of ranks for each label and pair of columns; each product is at most 1."""
    upper = np.triu_indices(len(columns), 1)
    found = np.zeros((classes, len(upper[0])))
    for batch in records.scan():
        size = len(batch.codes[0])
        label = np.zeros(size, dtype=np.int64) if records.label is None else batch.codes[records.label]
        weights = np.ones(size) if batch.weights is None else np.asarray(batch.weights)
        for value in range(classes):
            here = label == value
            places = [cell.of_codes(batch.codes[at][here]) for at, cell in zip(columns, cells, strict=True)]
            known = np.stack([one[place, value] for one, place in zip(ranks, places, strict=True)], axis=1)
            shared = np.trunc(known * np.sqrt(weights[here])[:, None] / _GRID) * _GRID
            found[value] += (shared.T @ shared)[upper]
    return found


def _correlations(noisy: Floats, deviation: float, by_label: Floats, spread: Floats) -> Floats:
    """Return a correlation matrix per label; the fewer records a label has, the nearer to that of all labels."""
    size = len(spread)
    upper = np.triu_indices(size, 1)
    scale = np.sqrt(spread[upper[0]] * spread[upper[1]])
    each = noisy / (by_label[:, None] * scale.T)
    pooled = np.average(each, axis=0, weights=by_label)
    found = []
    for own, total, one in zip(each, by_label, scale.T, strict=True):
        apart = float(np.square(own - pooled).sum())
        noise = float(np.square(deviation / (total * one)).sum())
        trust = max(0.0, 1 - noise / max(apart, 1e-12))
        matrix = np.eye(size)
        matrix[upper] = 2 * np.sin(np.pi / 6 * np.clip(pooled + trust * (own - pooled), -1.0, 1.0))
        found.append(nearest_correlation(matrix + matrix.T - np.eye(size)))
    return np.stack(found)


def nearest_correlation(matrix: Floats) -> Floats:
    """Return a correlation matrix near a symmetric one with a diagonal of 1 (Higham 2002: alternating projections).

    Examples
    --------
    >>> nearest_correlation(np.array([[1.0, 0.3], [0.3, 1.0]])).round(3).tolist()
    [[1.0, 0.3], [0.3, 1.0]]
    >>> found = nearest_correlation(np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]))
    >>> bool(np.linalg.eigvalsh(found)[0] > 0), found.diagonal().round(9).tolist()
    (True, [1.0, 1.0, 1.0])
    """
    current, correction = matrix, np.zeros_like(matrix)
    for _ in range(_PROJECTIONS):
        shifted = current - correction
        positive = _positive(shifted)
        correction = positive - shifted
        current = positive.copy()
        np.fill_diagonal(current, 1.0)
        if np.linalg.eigvalsh(current)[0] >= _LEAST:
            break
    positive = _positive(current)
    scale = np.sqrt(positive.diagonal())
    scaled: Floats = np.clip(positive / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(scaled, 1.0)
    return scaled


def _positive(matrix: Floats) -> Floats:
    """Return the nearest symmetric matrix without small eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    positive: Floats = (vectors * np.maximum(values, 2 * _LEAST)) @ vectors.T
    return positive

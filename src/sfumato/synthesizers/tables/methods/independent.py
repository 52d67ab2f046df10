"""Independent columns: each column from its own noisy counts. A baseline: what is lost without any dependence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.state import State, Stored, split
from sfumato.synthesizers.tables.base import Axis, Mask, Model, Records, Synthesizer, refuse_impossible
from sfumato.synthesizers.tables.columns.cells import Cells, find_cells, is_wide, read_cells
from sfumato.synthesizers.tables.methods.marginals import draw_evenly, onto_simplex

__all__ = ["Independent"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False, repr=False)
class IndependentModel(Model):
    """The noisy counts of the cells of every column."""

    cells: list[Cells]
    counts: list[Floats]

    @property
    def total(self) -> float:
        """The noisy number of records."""
        return float(self.counts[0].sum())

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        alone = np.zeros(rows, dtype=np.int64)
        return [
            cell.draw_codes(draw_evenly(alone, one[None, :], rng), rng)
            for cell, one in zip(self.cells, self.counts, strict=True)
        ]

    def given(self, allowed: Mapping[int, Mask]) -> IndependentModel:
        """Return the model of the rows whose codes are among those allowed."""
        cells, counts = list(self.cells), list(self.counts)
        for at, mask in allowed.items():
            cells[at], share = self.cells[at].within(mask)
            counts[at] = self.counts[at] * share
            refuse_impossible(counts[at].sum())
        return IndependentModel(cells, counts)

    def to_state(self) -> State:
        """Return the cells and their counts."""
        sizes = [one.size for one in self.cells]
        starts = np.concatenate([one.starts for one in self.cells])
        return State({"cells": sizes}, {"starts": starts, "counts": np.concatenate(self.counts)})

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state."""
        stored = Stored(state)
        cells = read_cells(axes, stored)
        sizes = [one.size for one in cells]
        return cls(cells, split(stored.array("counts", (sum(sizes),), least=0.0), sizes))


@dataclass(frozen=True, kw_only=True)
class Independent(Synthesizer):
    """Draw every column independently of the others.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> from sfumato.synthesizers.tables.base import Rows
    >>> axes = Axis("sex", 3, False), Axis("age", 100, True)
    >>> rows = Rows(axes, (np.array([0, 0, 1]), np.array([30, 30, 40])), None)
    >>> method = Independent()
    >>> rng = np.random.default_rng(0)
    >>> model = method.learn(rows, NoisySums(method.shares(rows.axes, None), 0.0, Source()), rng)
    >>> sex, age = model.sample(6, rng)
    >>> np.bincount(sex).tolist(), np.unique(age, return_counts=True)[1].tolist()
    ([4, 2], [4, 2])
    """

    name: ClassVar[str] = "independent"
    model: ClassVar[type[Model]] = IndependentModel

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""
        wide = any(map(is_wide, axes))
        return {"values": Share(1, 0.2), "cells": Share(1, 0.8)} if wide else {"cells": Share(1, 1.0)}

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> IndependentModel:
        """Learn from the records through noisy sums."""
        columns = range(len(records.axes))
        cells = find_cells(records, columns, sums)
        counts = records.count([(at,) for at in columns], [one.recoding for one in cells])
        noisy = sums("cells", np.concatenate(counts), norm=math.sqrt(len(counts)))
        parts = split(noisy, [len(one) for one in counts])
        total = float(np.average([one.sum() for one in parts], weights=[1 / len(one) for one in parts]))
        return IndependentModel(cells, [onto_simplex(one, max(total, 1.0)) for one in parts])

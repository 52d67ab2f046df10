"""An adaptive method: measure the pairs of columns that a model gets most wrong, and fit a junction tree to them.

AIM (McKenna, Mullins, Sheldon and Miklau, VLDB 2022): the exponential mechanism chooses a marginal by how far the model
is from it, beyond the error that its noise will cause; Gaussian noise is added to it; a graphical model is fitted. Here
several choices come before each fit, and their number is declared, so the cost is known before the first of them. The
candidates are the pairs of columns, each with and without the label. Columns are coarse, as in the tree: groups of
cells by their noisy counts. A candidate that would make the model larger than a limit is left out.

A choice costs what the exponential mechanism does (`BoundedRange`), a measurement what Gaussian noise does. The records
are only counted, once for all candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import real
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Selection, Share, on_grid
from sfumato.synthesizers.state import State, split
from sfumato.synthesizers.tables.base import (
    Axis,
    Mask,
    Model,
    Recoding,
    Records,
    Rows,
    Sampler,
    Synthesizer,
    refuse_impossible,
)
from sfumato.synthesizers.tables.columns.cells import (
    Cells,
    count_cells,
    find_cells,
    is_wide,
    label_totals,
    read_columns,
    read_groups,
)
from sfumato.synthesizers.tables.methods.junction import Clique, Junction, Measured, draw_along, tilt, triangulate
from sfumato.synthesizers.tables.methods.marginals import coarse_groups, draw_evenly, onto_simplex
from sfumato.synthesizers.tables.methods.tree.tree_model import by_group, inside_groups

__all__ = ["Aim"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WORTH = {"cells": 0.5, "values": 0.05, "choices": 0.06, "marginals": 0.39}
_CLEAR = 7.0  # the mean count of a cell of two coarse columns, in deviations of its noise
_FEWEST, _MOST = 4, 24  # groups of a coarse column
_MOST_CELLS = 2**23  # of all candidates together
_MOST_CHOICES = 100
_FITS = 8  # fits of the model, with as many choices before each
_SWEEPS, _LAST_SWEEPS = 8, 30
_STEP = 0.5
_ROWS = 5_000, 50_000  # drawn rows by which the model is compared with the candidates,
_ROW_PAIRS = 30_000_000  # fewer of them if there are many candidates
_TRIED = 50  # candidates that close a cycle and are tried for their size, at most


@dataclass(eq=False, repr=False)
class AimModel(Model):
    """Tables of the cliques of coarse columns and the label, and the noisy counts of cells within each label."""

    axes: tuple[Axis, ...]
    label: int | None
    cells: list[Cells]
    groups: list[Ints]
    counts: list[Floats]
    cliques: list[Clique]
    tables: list[Floats]

    @cached_property
    def _sizes(self) -> list[int]:
        """The number of groups of each column, and that of the labels."""
        return [*(int(one.max()) + 1 for one in self.groups), self.counts[0].shape[1]]

    @cached_property
    def _inside(self) -> list[Floats]:
        """The chances of each column's cells within a group: tables (group, label, cell)."""
        return [inside_groups(one, group) for one, group in zip(self.counts, self.groups, strict=True)]

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        return _Junction(self._sizes, self.label, self.cells, self.cliques, self.tables, self._inside).sample(rows, rng)

    def given(self, allowed: Mapping[int, Mask]) -> Sampler | None:
        """Return what draws the rows whose codes are among those allowed: the shares of groups tilt the cliques."""
        columns = [at for at in range(len(self.axes)) if at != self.label]
        cells, inside, last = [*self.cells], [*self._inside], len(columns)
        factors = list[tuple[Clique, Floats]]()
        for place, at in enumerate(columns):
            if at in allowed:
                cells[place], share = self.cells[place].within(allowed[at])
                inside[place] = self._inside[place] * share
                factors.append(((place, last), inside[place].sum(axis=2)))
        if self.label is not None and self.label in allowed:
            factors.append(((last,), allowed[self.label][:-1].astype(np.float64)))
        tables = tilt(self._sizes, self.cliques, self.tables, factors)
        if tables is None:
            return None
        refuse_impossible(float(tables[0].sum()))
        return _Junction(self._sizes, self.label, cells, self.cliques, tables, inside)

    def to_state(self) -> State:
        """Return the cells, their groups and counts, and the cliques with their tables."""
        members = np.zeros((len(self.cliques), len(self._sizes)), dtype=np.int64)
        for row, clique in zip(members, self.cliques, strict=True):
            row[list(clique)] = 1
        arrays = {
            "starts": np.concatenate([one.starts for one in self.cells]),
            "groups": np.concatenate(self.groups),
            "counts": np.concatenate(self.counts),
            "members": members,
            "tables": np.concatenate([one.ravel() for one in self.tables]),
        }
        return State({"cells": [one.size for one in self.cells], "cliques": len(self.cliques)}, arrays)

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state."""
        stored, _, classes, cells = read_columns(axes, label, state)
        sizes = [one.size for one in cells]
        total = sum(sizes)
        groups = read_groups(stored, "groups", cells)
        counts = split(stored.array("counts", (total, classes), least=0.0), sizes)
        coarse = [*(int(one.max()) + 1 for one in groups), classes]
        shape = (stored.whole("cliques", 1, len(coarse)), len(coarse))
        members = stored.array("members", shape, kind="i", least=0, most=1)
        if not members.any(axis=0).all():
            raise InputError("every column must be in one of the generator's cliques")
        cliques = [tuple(np.flatnonzero(row).tolist()) for row in members]
        shapes = [tuple(coarse[at] for at in one) for one in cliques]
        lengths = [math.prod(one) for one in shapes]
        flat = split(stored.array("tables", (sum(lengths),), least=0.0), lengths)
        tables = [one.reshape(shape) for one, shape in zip(flat, shapes, strict=True)]
        return cls(axes, label, cells, groups, counts, cliques, tables)


@dataclass(frozen=True, eq=False, repr=False)
class _Junction(Sampler):
    """Draws groups along the cliques, then a cell within each group and label, then a code within each cell."""

    sizes: list[int]
    label: int | None
    cells: Sequence[Cells]
    cliques: Sequence[Clique]
    tables: Sequence[Floats]
    inside: Sequence[Floats]

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        *coarse, label = draw_along(self.sizes, self.cliques, self.tables, rows, rng)
        codes = []
        for cell, table, one in zip(self.cells, self.inside, coarse, strict=True):
            chances = table.reshape(-1, table.shape[2])
            codes.append(cell.draw_codes(draw_evenly(one * table.shape[1] + label, chances, rng), rng))
        return codes if self.label is None else [*codes[: self.label], label, *codes[self.label :]]


@dataclass(frozen=True, kw_only=True)
class Aim(Synthesizer):
    """Measure the pairs of columns that the model gets most wrong, one after another (AIM).

    Parameters
    ----------
    choices : float
        The number of pairs that are measured, per column; at most 100 in all.
    megabytes : float
        The largest size of the model. Larger models follow more pairs and take longer.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> rng = np.random.default_rng(0)
    >>> a, c = rng.integers(0, 3, (2, 3000))
    >>> rows = Rows(tuple(Axis(name, 4, False) for name in "abc"), (a, a, c), None)
    >>> method = Aim()
    >>> model = method.learn(rows, NoisySums(method.shares(rows.axes, None), 3.0, Source(insecure_seed=1)), rng)
    >>> a, b, c = model.sample(3000, rng)
    >>> (a == b).mean() > 0.9, (a == c).mean() < 0.5
    (np.True_, np.True_)
    """

    name: ClassVar[str] = "aim"
    model: ClassVar[type[Model]] = AimModel

    choices: float = 2.5
    megabytes: float = 8.0

    def __post_init__(self) -> None:
        real("choices", self.choices, least=0)
        real("megabytes", self.megabytes, above=0)

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums and choices that `learn` asks for, and the worth of each."""
        columns = [one for at, one in enumerate(axes) if at != label]
        asked: dict[str, Share] = {"cells": Share(1, _WORTH["cells"])}
        if any(map(is_wide, columns)):
            asked["values"] = Share(1, _WORTH["values"])
        if times := self._times(len(columns)):
            asked["choices"] = Selection(times, _WORTH["choices"])
            asked["marginals"] = Share(times, _WORTH["marginals"])
        return asked

    def _times(self, columns: int) -> int:
        """Return the number of choices."""
        return min(math.comb(columns, 2), math.ceil(self.choices * columns), _MOST_CHOICES)

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> AimModel:
        """Learn from the records through noisy sums and choices."""
        columns = [at for at in range(len(records.axes)) if at != records.label]
        cells = find_cells(records, columns, sums)
        raw, deviation = count_cells(records, columns, cells, sums)
        by_label = label_totals(raw)
        counts = [np.stack(list(map(onto_simplex, one.T, by_label)), axis=1) for one in raw]
        times = self._times(len(columns))
        noise = sums.deviation_of("marginals", 1.0) if times else 0.0
        most = int(np.clip(math.sqrt(by_label.sum() / (_CLEAR * max(noise, 1e-9))), _FEWEST, _MOST))
        groups = [
            coarse_groups(one.sum(axis=1), most, 1 / ((4 if axis.ordered else 6) * most), ordered=axis.ordered)
            for one, axis in zip(counts, (records.axes[at] for at in columns), strict=True)
        ]
        sizes = [*(int(one.max()) + 1 for one in groups), len(by_label)]
        measured = [
            Measured(
                (at, len(columns)),
                by_group(one, group),
                deviation * np.sqrt(np.bincount(group))[:, None] * np.ones(len(by_label)),
            )
            for at, (one, group) in enumerate(zip(raw, groups, strict=True))
        ]
        total = float(by_label.sum())
        junction = Junction(sizes, measured, total)
        junction.fit(_SWEEPS, _STEP)
        if times:
            recodings = [Recoding.identity(one.size) for one in records.axes]
            for at, one, group in zip(columns, cells, groups, strict=True):
                recodings[at] = one.recoding.then(group)
            candidates = _Candidates(records, columns, recodings, sizes, rng)
            limit = int(self.megabytes * 2**20 / 8)
            rows = int(np.clip(_ROW_PAIRS // len(candidates), *_ROWS))
            for done in range(0, times, step := math.ceil(times / _FITS)):
                drawn = draw_along(sizes, junction.cliques, junction.tables, rows, rng)
                scores = candidates.scores(drawn, total / rows, noise)
                for _ in range(done, min(done + step, times)):
                    fitting = candidates.fitting(measured, limit, rng)
                    if not len(fitting):
                        break
                    chosen = int(fitting[sums.choose("choices", scores[fitting], 1.0)])
                    noisy = sums("marginals", candidates.take(chosen), norm=1.0)
                    measured.append(Measured(candidates.columns_of(chosen), noisy, noise))
                junction = Junction(sizes, measured, total)
                junction.fit(_SWEEPS, _STEP)
            junction.fit(_LAST_SWEEPS, _STEP)
        return AimModel(
            records.axes, records.label, cells, groups, counts, junction.cliques, [*map(np.abs, junction.tables)]
        )


class _Candidates:
    """The exact counts of pairs of columns, with and without the label, as candidates to be measured. Private.

    The first half of the candidates are pairs within each label, the second half the same pairs of all labels together.
    """

    def __init__(
        self,
        records: Records,
        columns: Sequence[int],
        recodings: Sequence[Recoding],
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        self._sizes = list(sizes)
        pairs = list(itertools.combinations(range(len(columns)), 2))
        lengths = [math.prod(self._shape(pair)) for pair in pairs]
        if sum(lengths) > _MOST_CELLS:  # too many pairs: some of them, at random
            order = rng.permutation(len(pairs))
            kept = order[np.cumsum([lengths[at] for at in order]) <= _MOST_CELLS]
            pairs = [pairs[at] for at in sorted(kept.tolist())]
        self._pairs = pairs
        label = records.label
        if label is None:
            found = records.count([(columns[a], columns[b]) for a, b in pairs], recodings)
        else:
            # Records without a label are left out: its last code stands for a missing one.
            wanted = [(columns[a], columns[b], label) for a, b in pairs]
            found = [one[:, :, :-1] for one in records.count(wanted, recodings)]
        self._within = [one.reshape(self._shape(pair)) for one, pair in zip(found, pairs, strict=True)]
        self._left = np.ones(2 * len(pairs), dtype=bool)
        if sizes[-1] == 1:  # both halves are the same
            self._left[len(pairs) :] = False

    def __len__(self) -> int:
        return len(self._left)

    def _shape(self, pair: tuple[int, int]) -> tuple[int, int, int]:
        return self._sizes[pair[0]], self._sizes[pair[1]], self._sizes[-1]

    def columns_of(self, at: int) -> Clique:
        """Return the columns of a candidate."""
        a, b = self._pairs[at % len(self._pairs)]
        return (a, b, len(self._sizes) - 1) if at < len(self._pairs) else (a, b)

    def scores(self, drawn: Sequence[Ints], weight: float, noise: float) -> Floats:
        """Return how far drawn rows of a weight are from each candidate, beyond the error that noise will cause.

        A record changes each score by at most 1: all numbers are on a grid, so that their sums are exact.
        """
        axes = tuple(Axis(str(at), size, False) for at, size in enumerate(self._sizes))
        model = Rows(axes, tuple(drawn), None)
        same = [Recoding.identity(size) for size in self._sizes]
        last = len(self._sizes) - 1
        counts = model.count([(*pair, last) for pair in self._pairs], same)
        within, together = [], []
        for truth, found in zip(self._within, counts, strict=True):
            gap = truth - on_grid(found * weight)
            expected = math.sqrt(2 / math.pi) * noise * gap[:, :, 0].size
            within.append(np.abs(gap).sum() - on_grid(expected * gap.shape[2]))
            together.append(np.abs(gap.sum(axis=2)).sum() - on_grid(expected))
        return np.array(within + together)

    def fitting(self, measured: Sequence[Measured], limit: int, rng: np.random.Generator) -> Ints:
        """Return the candidates that are left and keep the model within a number of cells."""
        # The label is in every clique, so it only makes all of them larger.
        *sizes, classes = self._sizes
        graph = [tuple(at for at in one.columns if at < len(sizes)) for one in measured]
        cliques = triangulate(sizes, graph)
        cells = _cells(sizes, cliques) * classes
        inside = np.zeros((len(sizes), len(sizes)), dtype=bool)
        part = np.arange(len(sizes))  # the connected part that each column is in
        for one in cliques:
            inside[np.ix_(one, one)] = True
            part[np.isin(part, part[list(one)])] = part[one[0]]
        first, second = np.array(self._pairs).T
        free, joined = inside[first, second], part[first] == part[second]
        codes = np.array(sizes)
        fits = free | (~joined & (cells + codes[first] * codes[second] * classes <= limit))
        cycles = np.flatnonzero(~free & joined & self._left.reshape(2, -1).any(axis=0))
        if len(cycles) > _TRIED:
            cycles = rng.choice(cycles, _TRIED, replace=False)
        for at in cycles.tolist():
            fits[at] = _cells(sizes, triangulate(sizes, [*graph, self._pairs[at]])) * classes <= limit
        return np.flatnonzero(np.tile(fits, 2) & self._left)

    def take(self, at: int) -> Floats:
        """Return the exact counts of a candidate, which is then no longer one."""
        pair = at % len(self._pairs)
        self._left[at] = False
        if at < len(self._pairs):
            self._left[pair + len(self._pairs)] = False  # what is counted within labels is counted in all
            return self._within[pair]
        total: Floats = self._within[pair].sum(axis=2)
        return total


def _cells(sizes: Sequence[int], cliques: Sequence[Clique]) -> int:
    """Return the number of cells of all cliques together."""
    return sum(math.prod(sizes[at] for at in one) for one in cliques)

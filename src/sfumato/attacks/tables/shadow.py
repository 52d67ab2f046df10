"""Shadow sets: a member is better represented in the target than in sets that were made without it.

The attacker runs the procedure that made the target on random halves of all records, so that each record is in half of
these shadow sets. Several signals say how well a set represents a record: the distance of the nearest row, and how many
rows have the record's values in single columns, in pairs and in triples of columns. Each is compared with its mean over
the shadow sets without the record, as offline LiRA compares losses. The shadow sets with and without a record also show
how much each signal tells: they give the weights of a linear discriminant.

- Stadler, Oprisanu and Troncoso, *Synthetic data: anonymisation groundhog day*, USENIX Security 2022.
- Houssiau et al., *TAPAS: a toolbox for adversarial privacy auditing of synthetic data*, 2022: counts of the rows that
  share the target's values in some columns.
- Carlini et al., *Membership inference attacks from first principles*, IEEE S&P 2022: section VI-A, offline.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.base import Attack, Records, Scores
from sfumato.attacks.membership.references import halves_of, train_references
from sfumato.attacks.predictions import call
from sfumato.attacks.tables.distances import Distances
from sfumato.attacks.tables.reading import known_columns, read_pairing, some_of
from sfumato.attacks.targets import Procedure, SyntheticTarget, TableTarget
from sfumato.data.schema import Schema
from sfumato.data.validate import whole
from sfumato.engines.tuples import group
from sfumato.errors import InputError
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, Pairing

__all__ = ["Shadow"]

_FEWEST = 4
_ORDERS = (1, 2, 3)
_RANGES = 50
_SUBSETS = 50
"""Sets of columns of each order in which cells are counted."""
_LEAST = 1e-3
"""Distances below this one hardly differ, and a copy is not infinitely near."""


class Shadow(Attack):
    """Compare how well the target represents a record with how well sets do that were made without it.

    The number of shadow sets is that of the target's references. It needs the procedure that made the target.

    Parameters
    ----------
    queries : int
        The number of members, and of non-members, that are attacked; all, if there are fewer.

    Examples
    --------
    >>> import sfumato as sf
    >>> rng = np.random.default_rng(0)
    >>> inside, outside = (Records(pl.DataFrame(rng.normal(size=(40, 3)), schema=["x", "y", "z"])) for _ in "12")
    >>> def copy(records, seed):  # a synthesizer that copies all records
    ...     return records.frame.sample(fraction=1, shuffle=True, seed=seed)
    >>> made = copy(inside, 0)
    >>> target = SyntheticTarget(made, sf.Table(made).schema, procedure=copy, references=4, processes=1)
    >>> found = Shadow().run(target, inside, outside, seed=0)
    >>> bool(found.members.min() > found.nonmembers.max()), found.references
    (True, 4)
    """

    name = "shadow"
    question = "Was this record among those that the synthetic set was made from?"
    targets = ("synthetic", "table")

    def __init__(self, *, queries: int = 1000) -> None:
        self.queries = whole("the number of records", queries, least=2)

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is None and target.procedure is None:
            return "it makes shadow sets, and how the target was made is not known"
        if found is None and target.references < _FEWEST:
            return f"it needs at least {_FEWEST} references, half of them without each record"
        return found

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score some members and non-members against the shadow sets."""
        inside, outside = some_of(members, nonmembers, self.queries, np.random.default_rng(seed))
        which = np.concatenate([inside, outside])
        pool = members.and_(nonmembers)
        signals = _Signals(target.procedure, pool, which, target.kind, target.schema)
        used = halves_of(pool, target.references, seed)
        shadows = train_references(signals, used, seed=seed, processes=target.processes, progress=target.progress)
        score = _deviations(signals.of(target.frame), shadows, used[:, which])
        return Scores(
            score[: len(inside)],
            score[len(inside) :],
            references=target.references,
            details={"asked": self.queries},
            judged=(inside, outside - len(members)),
        )


class _Signals:
    """Make a set from some records of a pool; return how well it represents each attacked record, by signal."""

    def __init__(self, procedure: Procedure, pool: Records, which: Ints, kind: str, schema: Schema) -> None:
        self.procedure, self.pool, self.which, self.kind, self.schema = procedure, pool, which, kind, schema

    def __call__(self, rows: Ints, seed: int) -> Floats:
        made = call("the procedure", self.procedure, self.pool.take(rows), seed)
        if not isinstance(made, pl.DataFrame):
            raise InputError(f"the procedure must return a polars frame, and returned a {type(made).__name__}")
        return self.of(made)

    def of(self, frame: pl.DataFrame) -> Floats:
        """Return the signals of each attacked record, by record and signal."""
        if not frame.height:
            raise InputError("the procedure returned a table without rows")
        target = (SyntheticTarget if self.kind == "synthetic" else TableTarget)(frame, self.schema)
        both = read_pairing(target, self.pool, self.pool.take([]), known_columns(target))
        near = -np.log(Distances(both).least(self.which) + _LEAST)
        cells = [_cells(read, both, column) for column, read in enumerate(both.coverages)]
        return np.column_stack([near, *(_shared(cells, order, frame.height, self.which) for order in _ORDERS)])


def _cells(read: Coverage, both: Pairing, column: int) -> tuple[Ints, Ints]:
    """Return the cell of each released row and of each record in a column: a value, or one of some ranges of numbers.

    The ranges follow from the records, and are the same for all sets. A generalised category is in no record's cell.
    """
    of, rows, records = read.universe, both.meaning[:, column], both.original[:, column].astype(np.int64)
    if not of.is_line:
        first = np.append(read.first, 0)[read.start[:-1]]
        return np.where(read.exact, first, len(of))[rows], records
    known = of.numbers[records]
    some = known[~np.isnan(known)]
    edges = np.unique(np.quantile(some, np.arange(1, _RANGES) / _RANGES)) if len(some) else some
    places = [(read.low + read.high)[rows] / 2, known]
    inside, outside = (np.where(np.isnan(at), _RANGES, np.searchsorted(edges, at, side="right")) for at in places)
    return inside, outside


def _shared(cells: list[tuple[Ints, Ints]], order: int, rows: int, which: Ints) -> Floats:
    """Return the logarithm of the share of rows in the record's cell, for some sets of so many columns."""
    every = list(combinations(range(len(cells)), order))
    drawn = np.random.default_rng(order).permutation(len(every))[:_SUBSETS]  # the same for all sets
    codes = np.column_stack([np.concatenate([made, records[which]]) for made, records in cells])
    sizes = [int(column.max()) + 1 for column in codes.T]
    shares = np.empty((len(which), len(drawn)))
    for place, chosen in enumerate(every[one] for one in drawn):
        _, cell = group(codes[:, chosen], [sizes[column] for column in chosen])
        count = np.bincount(cell[:rows], minlength=int(cell.max()) + 1)[cell[rows:]]
        shares[:, place] = np.log((count + 0.5) / (rows + 1))
    return shares


def _deviations(target: Floats, shadows: Floats, inside: Any) -> Floats:
    """Return by how many deviations the target represents each record better than the shadow sets without it.

    All records share the deviations of the signals, because a few shadow sets do not tell those of each.
    """
    without = ~inside[:, :, None]
    mean = np.where(without, shadows, 0.0).sum(axis=0) / without.sum(axis=0)
    apart = shadows - mean
    noise, shift = apart[~inside], apart[inside].mean(axis=0)
    spread = noise.T @ noise / len(noise)
    spread += np.diag(1e-6 * np.diag(spread) + 1e-12)
    weight = np.linalg.solve(spread, shift)
    return np.asarray((target - mean) @ weight / np.sqrt(max(weight @ spread @ weight, 1e-300)))

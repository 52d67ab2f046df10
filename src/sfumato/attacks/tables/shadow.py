"""Shadow sets: a member is nearer to the synthetic rows than to those of sets that were made without it.

The attacker runs the procedure that made the target on random halves of all records. Each record is then in half of
the shadow sets. Its distance to the target is compared with its distances to the shadow sets without it, as offline
LiRA compares losses: by how many standard deviations it is nearer.

- Stadler, Oprisanu and Troncoso, *Synthetic data: anonymisation groundhog day*, USENIX Security 2022.
- Houssiau et al., *TAPAS: a toolbox for adversarial privacy auditing of synthetic data*, 2022.
- Carlini et al., *Membership inference attacks from first principles*, IEEE S&P 2022: section VI-A, offline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.base import Attack, Records, Scores
from sfumato.attacks.membership.references import halves, train_references
from sfumato.attacks.predictions import call
from sfumato.attacks.tables.distances import Distances
from sfumato.attacks.tables.reading import known_columns, read_pairing, some_of
from sfumato.attacks.targets import Procedure, SyntheticTarget, TableTarget
from sfumato.data.schema import Schema
from sfumato.data.validate import whole
from sfumato.errors import InputError
from sfumato.measures.classes import Floats, Ints

__all__ = ["Shadow"]

_FEWEST = 4
_LEAST = 1e-3
"""Distances below this one hardly differ, and a copy is not infinitely near."""


class Shadow(Attack):
    """Compare a record's distance to the target with its distances to sets that were made without it.

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
        near = _Nearness(target.procedure, pool, which, target.kind, target.schema)
        used = halves(len(pool), target.references, seed)
        # Signals are by shadow set and record of the pool; records that are not attacked have none.
        shadows = train_references(near, used, seed=seed, processes=target.processes, progress=target.progress)
        score = _deviations(near.of(target.frame), shadows[:, which], used[:, which])
        details = {"asked": self.queries}
        return Scores(score[: len(inside)], score[len(inside) :], references=target.references, details=details)


class _Nearness:
    """Make a set from some records of a pool; return how near to its rows the attacked records are."""

    def __init__(self, procedure: Procedure, pool: Records, which: Ints, kind: str, schema: Schema) -> None:
        self.procedure, self.pool, self.which, self.kind, self.schema = procedure, pool, which, kind, schema

    def __call__(self, rows: Ints, seed: int) -> Floats:
        made = call("the procedure", self.procedure, self.pool.take(rows), seed)
        if not isinstance(made, pl.DataFrame):
            raise InputError(f"the procedure must return a polars frame, and returned a {type(made).__name__}")
        found = np.zeros(len(self.pool))
        found[self.which] = self.of(made)
        return found

    def of(self, frame: pl.DataFrame) -> Floats:
        """Return the negative logarithm of the distance to the nearest row."""
        if not frame.height:
            raise InputError("the procedure returned a table without rows")
        target = (SyntheticTarget if self.kind == "synthetic" else TableTarget)(frame, self.schema)
        both = read_pairing(target, self.pool, self.pool.take([]), known_columns(target))
        return np.asarray(-np.log(Distances(both).least(self.which) + _LEAST))


def _deviations(target: Floats, shadows: Floats, inside: Any) -> Floats:
    """Return by how many deviations each record is nearer to the target than to the shadow sets without it.

    All records share one deviation, because a few shadow sets do not tell that of each.
    """
    without = ~inside
    number = without.sum(axis=0)
    mean = np.where(without, shadows, 0.0).sum(axis=0) / number
    square = np.where(without, (shadows - mean) ** 2, 0.0).sum() / (number - 1).sum()
    return np.asarray((target - mean) / np.sqrt(max(square, 1e-12)))

"""Singling-out: a condition that a single released row meets is also met by a single person.

As in Giomi, Boenisch, Wehmeyer and Tasnádi, *A unified framework for quantifying privacy risk in synthetic data*,
Proceedings on Privacy Enhancing Technologies 2023(2), with these differences from its package anonymeter: a condition
that cannot be found counts as a failed guess, so that there are never fewer guesses than asked for; the columns take
turns; and members and control are samples of the same size, because a condition singles people out of a large table
more rarely than out of a small one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.attacks.tables.conditions import Conditions, ReleasedRows, joined, met
from sfumato.attacks.tables.reading import known_columns, read_pairing
from sfumato.data.validate import whole

__all__ = ["SinglingOut", "SinglingOutUnivariate"]

_BYTES = 16_000_000  # of bits of rows that are compared at a time
_TRIES = 200  # conditions that are tried for each one asked for


class SinglingOut(Attack):
    """Single people out by conditions on several columns, each found in the release.

    Parameters
    ----------
    queries : int
        The number of conditions.
    columns : int
        The number of columns in a condition.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import SyntheticTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40, 50], "sex": ["f", "m", "f", "m"]})
    >>> outside = pl.DataFrame({"age": [25, 25, 35, 35], "sex": ["f", "m", "f", "m"]})
    >>> target = SyntheticTarget(inside, sf.Table(inside).schema)
    >>> found = SinglingOut(queries=4).run(target, Records(inside), Records(outside), seed=0)
    >>> found.members.tolist(), dict(found.details)
    ([1.0, 1.0, 1.0, 1.0], {'asked': 4, 'found': 4, 'columns': 2})
    """

    name = "singling-out"
    question = "Is there a single person with these values, as there is a single released row?"
    targets = ("table", "synthetic")
    guesses = True
    knows_people = True

    def __init__(self, *, queries: int = 500, columns: int = 3) -> None:
        self.queries = whole("the number of conditions", queries, least=2)
        self.columns = whole("the number of columns of a condition", columns)

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Find conditions, and count the people who meet them."""
        both = read_pairing(target, members, nonmembers, known_columns(target))
        rng = np.random.default_rng(seed)
        size = min(members.persons, nonmembers.persons)
        places = [one.of_people(rng.permutation(one.persons)[:size]) for one in (members, nonmembers)]
        whose = [one.owners[at] for one, at in zip((members, nonmembers), places, strict=True)]
        inside, outside = places[0], len(members) + places[1]
        release = ReleasedRows(both, rng, distinct=target.kind == "synthetic")
        width = min(self.columns, len(both.coverages))
        found = self._find(release, width, rng)
        scores = []
        for some, owners in zip((inside, outside), whose, strict=True):
            score = np.zeros(self.queries)  # a condition that was not found has failed
            score[: len(found)] = met(both, found, some, owners) == 1
            scores.append(score)
        chance = float(np.mean(met(both, release.random(self.queries, width, rng), inside, whose[0]) == 1))
        details = {"asked": self.queries, "found": len(found), "columns": width}
        baseline = Baseline(chance, "random conditions on as many columns")
        return Scores(scores[0], scores[1], baseline, details=details)

    def _find(self, release: ReleasedRows, width: int, rng: np.random.Generator) -> Conditions:
        """Return conditions that a single released row meets, as many as asked for if there are so many."""
        found = joined([], width)
        tries = max(1, min(_BYTES * 8 // len(release.rows), 20 * self.queries))
        for _ in range(max(1, _TRIES * self.queries // tries)):
            tried, before = release.around(tries, width, rng), len(found)
            found = joined([found, tried.take(release.met(tried) == 1)], width)
            _, first = np.unique(np.hstack([found.column, found.sign, found.code]), axis=0, return_index=True)
            found = found.take(np.sort(first)[: self.queries])
            if len(found) in (before, self.queries):  # so many tries found no new one: there are hardly any others
                break
        return found


class SinglingOutUnivariate(SinglingOut):
    """Single people out by conditions on one column: a value that occurs once, the least or the greatest one.

    Examples
    --------
    >>> SinglingOutUnivariate(queries=10).columns
    1
    """

    name = "singling-out-univariate"
    question = "Is there a single person with this value, as there is a single released row?"

    def __init__(self, *, queries: int = 500) -> None:
        super().__init__(queries=queries, columns=1)

    def _find(self, release: ReleasedRows, width: int, rng: np.random.Generator) -> Conditions:
        by_column = []
        for column in range(len(release.both.coverages)):
            found = release.once(column)
            by_column.append(found.take(rng.permutation(len(found))))
        # The columns take turns, so that no column with many values crowds out the others.
        turn = np.concatenate([np.arange(len(found)) for found in by_column])
        every = joined(by_column, 1)
        return every.take(np.argsort(turn, kind="stable")[: self.queries])

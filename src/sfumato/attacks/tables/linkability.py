"""Linkability: two sets of a person's values, known from different sources, lead to the same released row.

As in Giomi, Boenisch, Wehmeyer and Tasnádi, *A unified framework for quantifying privacy risk in synthetic data*,
Proceedings on Privacy Enhancing Technologies 2023(2): the nearest released row by the columns of one source and the
nearest by those of the other are the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.attacks.tables.distances import CLOSE, Distances
from sfumato.attacks.tables.reading import known_columns, read_pairing, some_known
from sfumato.data.validate import whole
from sfumato.errors import OptionError
from sfumato.measures.classes import Ints
from sfumato.measures.loss.generalised import Pairing

__all__ = ["Linkability"]


class Linkability(Attack):
    """Link two sets of a person's values over the released row that is nearest to both.

    Of several nearest rows, both searches take the one that comes first in a random order of the rows.

    Parameters
    ----------
    columns : pair of sequences of str, optional
        The columns of the two sources; by default the columns of the release, by turns.
    queries : int
        The number of members, and of non-members, that the attacker tries to link; all, if there are fewer.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import SyntheticTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40], "height": [180, 160, 170]})
    >>> outside = pl.DataFrame({"age": [21, 39], "height": [161, 181]})
    >>> target = SyntheticTarget(inside, sf.Table(inside).schema)
    >>> found = Linkability().run(target, Records(inside), Records(outside), seed=0)
    >>> found.members.tolist(), found.nonmembers.tolist(), round(found.baseline.accuracy, 3)
    ([1.0, 1.0, 1.0], [0.0, 0.0], 0.333)
    """

    name = "linkability"
    question = "Do two sets of a person's values lead to the same released row?"
    targets = ("table", "synthetic")
    guesses = True
    knows_people = True

    def __init__(self, columns: tuple[Sequence[str], Sequence[str]] | None = None, *, queries: int = 1000) -> None:
        self.columns, self.queries = columns, whole("the number of guesses", queries, least=2)
        if columns is not None and not (len(columns) == 2 and columns[0] and columns[1]):
            raise OptionError("linkability needs two sets of columns")

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is None and self.columns is None and len(known_columns(target)) < 2:
            return "it needs at least two columns"
        return found

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Link both sets of values of each record, or of one record of each person."""
        names = known_columns(target)
        one, other = self.columns or (names[0::2], names[1::2])
        both = read_pairing(target, members, nonmembers, list(dict.fromkeys([*one, *other])))
        rng = np.random.default_rng(seed)
        order = rng.permutation(target.frame.height)
        scores = []
        for some in some_known(members, nonmembers, self.queries, seed, rng):
            same = _first_nearest(both, one, some, order) == _first_nearest(both, other, some, order)
            scores.append(same.astype(np.float64))
        baseline = Baseline(1 / target.frame.height, "taking two random rows")
        details = {"asked": self.queries, "columns": [list(one), list(other)]}
        return Scores(scores[0], scores[1], baseline, details=details)


def _first_nearest(both: Pairing, names: Sequence[str], records: Ints, order: Ints) -> Ints:
    """Return the released row that is nearest to each record; of several, the first in an order."""
    away = Distances(both, names)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    first = np.full(len(away), len(order))
    np.minimum.at(first, away.of_row, rank)
    best = [
        np.where(distance <= distance.min(axis=1, keepdims=True) + CLOSE, first, len(order)).min(axis=1)
        for _, distance in away.blocks(records)
    ]
    return np.asarray(order[np.concatenate(best)])

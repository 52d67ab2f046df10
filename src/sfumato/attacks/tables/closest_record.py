"""Distance to the closest record: members are nearer to a synthetic row than others are, if it copies them.

This attack finds copies, and near copies, and nothing else: a synthetic set may pass it and still give members away
(Yao, Krčo, Ganev and de Montjoye, *The DCR delusion*, arXiv 2505.01524). See the attack with shadow sets.

- Platzer and Reutterer, *Holdout-based empirical assessment of mixed-type synthetic data*, Frontiers in Big Data 4,
  2021: the share of synthetic rows that are nearer to a member than to anyone in a hold-out of the same size.
- Chen, Yu, Zhang and Fritz, *GAN-Leaks*, CCS 2020: the distance as a score of membership.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Attack, Records, Scores
from sfumato.attacks.people import any_of
from sfumato.attacks.tables.distances import Distances
from sfumato.attacks.tables.reading import known_columns, read_pairing, some_of
from sfumato.data.validate import whole
from sfumato.measures.classes import Ints

__all__ = ["ClosestRecord"]

_TIE = 1e-6  # distances are rounded


class ClosestRecord(Attack):
    """Call those records members that are near to a released row.

    The detail ``closer_to_members`` is the share of released rows that are nearer to a member than to a non-member,
    with as many of both; a tie counts half. It is about one half if the rows are not copies. The details
    ``copied_members`` and ``copied_others`` are the shares of records, or people, with a released row at distance 0.

    Parameters
    ----------
    queries : int
        The number of members, and of non-members, whose distance is measured; all, if there are fewer.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import SyntheticTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40], "sex": ["f", "m", "f"]})
    >>> outside = pl.DataFrame({"age": [21, 45], "sex": ["f", "m"]})
    >>> target = SyntheticTarget(inside, sf.Table(inside).schema)
    >>> found = ClosestRecord().run(target, Records(inside), Records(outside), seed=0)
    >>> (found.members == 0).all(), found.nonmembers.round(2).tolist(), found.details["copied_members"]
    (np.True_, [-0.02, -0.3], 1.0)
    """

    name = "distance-to-closest-record"
    question = "Is this record nearer to a released row than others are?"
    targets = ("synthetic", "table")

    def __init__(self, *, queries: int = 5000) -> None:
        self.queries = whole("the number of records", queries, least=2)

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Measure how far each record is from the nearest released row."""
        both = read_pairing(target, members, nonmembers, known_columns(target))
        away = Distances(both)
        inside, outside = some_of(members, nonmembers, self.queries, np.random.default_rng(seed))
        whose = [members.take(inside).owners, nonmembers.take(outside - len(members)).owners]
        size = min(int(owners.max()) for owners in whose) + 1
        (near, by_inside), (far, by_outside) = (
            _closest(away, some, owners < size) for some, owners in zip((inside, outside), whose, strict=True)
        )
        nearer = by_outside - by_inside
        closer = (nearer > _TIE) + (np.abs(nearer) <= _TIE) / 2
        details = {
            "closer_to_members": float(np.average(closer, weights=away.count)),
            "copied_members": float(np.mean(any_of(near == 0, whose[0]))),
            "copied_others": float(np.mean(any_of(far == 0, whose[1]))),
            "asked": self.queries,
        }
        return Scores(-near, -far, details=details, judged=(inside, outside - len(members)))


def _closest(away: Distances, records: Ints, counted: NDArray[np.bool_]) -> tuple[Any, Any]:
    """Return the distance of each record to its nearest row, and of each distinct row to the nearest counted record.

    The records come in random order, so that those of the first people are a random sample.
    """
    near, by_row = np.empty(len(records)), np.full(len(away), np.inf)
    done = 0
    for some, distance in away.blocks(records):
        near[done : done + len(some)] = distance.min(axis=1)
        if (here := counted[done : done + len(some)]).any():
            by_row = np.minimum(by_row, distance[here].min(axis=0))
        done += len(some)
    return near, by_row

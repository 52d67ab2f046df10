"""The leaves of a bulk-loaded R+-tree as groups (Iwuchukwu & Naughton, VLDB 2007)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.anonymizers.base import Partitioner
from sfumato.anonymizers.mondrian.partition import partition
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members
from sfumato.measures.classes import Ints

__all__ = ["RPlus", "rplus"]


@dataclass(eq=False, repr=False)
class RPlus(Partitioner):
    """Anonymize by the leaves of an R+-tree; see `rplus`.

    It compares all cuts by what they lose, which takes longer than Mondrian.

    Parameters
    ----------
    guarantees, qi, sensitive, output
        See `Partitioner`.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> sf.RPlus("k=2", qi=["age", "sex"]).fit_transform(people)["age"].tolist()
    ['20-22', '20-22', '20-64', '20-64', '20-64']
    """

    name = "rplus"

    def _members(self, problem: Problem) -> Members:
        return Members.of(problem, rplus(problem))


def rplus(problem: Problem) -> Ints:
    """Put the tuples into the leaves of an R+-tree that keep every guarantee.

    The tree is loaded from the root down, and its nodes never overlap. A node is split where the
    bounding boxes of its two halves lose least: of the most balanced cut of every dimension, the one
    whose sides, each shrunk to its own records, have the least NCP over all dimensions and
    records; if a side does not keep a guarantee, the next best. A leaf is a node that no such cut
    splits; it has at least k records, and every other guarantee holds in it too.

    Mondrian cuts the dimension that loses most; here all cuts are compared by what they leave. That takes d
    times as long for d dimensions, and loses less where dimensions go together.

    Returns
    -------
    The group of each tuple.

    Raises
    ------
    InputError
        If even the whole table as one group does not keep a guarantee.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 22, 40, 60], "sex": ["f", "m", "f", "m"]}))
    >>> problem = Problem.of(reduce(table, ["age", "sex"]), ["age", "sex"], [], [sf.KAnonymity(2)])
    >>> rplus(problem).tolist()
    [0, 1, 0, 1]
    """
    problem.require_reachable()
    groups = np.empty(len(problem), dtype=np.int64)
    groups[problem.pieces.tuple] = partition(problem, problem.pieces, look_ahead=True)
    problem.require_kept(problem.merged(groups))
    return groups

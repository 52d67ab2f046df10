"""Unicity: how many people are alone, given some of their rows.

Someone who knows m rows of a person, such as the dates and places of m visits, looks for the people who have all of
them. The unicity is the share of people who are the only one (de Montjoye, Hidalgo, Verleysen and Blondel, *Unique in
the crowd: the privacy bounds of human mobility*, Scientific Reports 3, 2013). Equal rows of a person count once, and
people with fewer than m different rows are left out, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._repr import Plain
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import OptionError
from sfumato.measures.person_counts import Visits

__all__ = ["Unicity", "unicity"]

_SAMPLE = 2_000
"""The most people who are looked for; of more, so many are drawn."""


@dataclass(frozen=True)
class Unicity(Plain):
    """The share of people who are alone, given some of their rows.

    Attributes
    ----------
    rows : how many rows of a person are known
    share : the share of people who are alone
    people : the people with so many different rows
    tried : how many of them were looked for, each by rows drawn at random
    """

    rows: int
    share: float
    people: int
    tried: int


def unicity(
    tuples: Tuples, quasi: Sequence[str], person: str, most: int = 4, sample: int = _SAMPLE, seed: int = 0
) -> tuple[Unicity, ...]:
    """Measure how many people are alone given any 1 to `most` of their rows.

    Parameters
    ----------
    tuples : Tuples
        The counted quasi-identifiers and the person column.
    most : int
        The most rows of a person that are known.
    sample : int
        The most people who are looked for.
    seed : int
        The seed of the choice of people and rows.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> days = pl.DataFrame({"person": [1, 1, 2, 2, 3, 3], "day": [1, 2, 1, 3, 2, 3]})
    >>> for one in unicity(reduce(sf.Table(days), ["day", "person"]), ["day"], "person", most=2):
    ...     print(one.rows, one.share, one.people)
    1 0.0 3
    2 1.0 3
    """
    if most < 1 or sample < 1:
        raise OptionError("unicity needs at least one known row and one person")
    positions = [tuples.position[name] for name in quasi]
    _, of_tuple = group(tuples.codes[:, positions], [len(tuples.domains[position]) for position in positions])
    visits = Visits.of(tuples, person, of_tuple)
    kinds, people = int(visits.owner.max()) + 1, int(visits.person.max()) + 1
    pairs = np.unique(visits.person * kinds + visits.owner)
    who, what = pairs // kinds, pairs % kinds
    start = np.searchsorted(who, np.arange(people + 1))
    by_kind = np.argsort(what, kind="stable")
    holders = who[by_kind]  # sorted within each kind of row
    first = np.searchsorted(what[by_kind], np.arange(kinds + 1))
    different = np.diff(start)
    source = np.random.default_rng(seed)
    found = []
    for known in range(1, most + 1):
        able = np.flatnonzero(different >= known)
        if not len(able):
            break
        tried = able if len(able) <= sample else source.choice(able, sample, replace=False)
        alone = 0
        for one in tried.tolist():
            chosen = source.choice(what[start[one] : start[one + 1]], known, replace=False)
            lists = sorted((holders[first[kind] : first[kind + 1]] for kind in chosen.tolist()), key=len)
            same = lists[0]
            for other in lists[1:]:
                same = same[np.searchsorted(other, same, side="right") > np.searchsorted(other, same)]
                if len(same) == 1:
                    break
            alone += len(same) == 1
        found.append(Unicity(known, alone / len(tried), len(able), len(tried)))
    return tuple(found)

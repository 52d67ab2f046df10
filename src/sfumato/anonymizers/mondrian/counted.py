"""Mondrian's cuts of a part that is known by counts alone: its records with each value of each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sfumato.anonymizers.mondrian.kernels import boundary, dimension
from sfumato.anonymizers.mondrian.partition import Space, dimensions_of
from sfumato.engines.compiling import plain
from sfumato.measures.classes import Ints

__all__ = ["CountedCut", "cuts_of"]

_FEW = 1000  # up to so many values of a column, the kernel is not compiled
_plain, _dimension = plain(boundary), plain(dimension)


class CountedCut(NamedTuple):
    """A possible cut of a part: on a dimension, after a position on its line, with this many records on the left."""

    by: int
    at: int
    records: int


def cuts_of(space: Space, k: int, columns: Sequence[Ints]) -> Iterator[CountedCut]:
    """Yield the cuts of a part with at least k records on both sides, in the order in which the kernel tries them.

    Parameters
    ----------
    space : the lines of the quasi-identifiers
    k : the smallest number of records
    columns : the number of records at each position of each line
    """
    dimensions = dimensions_of(space, np.zeros((len(columns), 3), dtype=np.int64))
    size = int(columns[0].sum())
    losses = np.array([_loss(space, by, np.flatnonzero(records)) for by, records in enumerate(columns)])
    for by in np.argsort(-losses, kind="stable")[: np.count_nonzero(losses)].tolist():
        value, one = np.flatnonzero(columns[by]), _dimension(dimensions, by)
        weight, nearest = columns[by][value], _plain if len(value) <= _FEW else boundary
        for attempt in range(3):
            at, _, below = nearest(value, weight, len(value), size, one, space.place, space.node, False, attempt)
            if below >= k and size - below >= k:
                yield CountedCut(by, int(at), int(below))


def _loss(space: Space, by: int, present: Ints) -> float:
    """Return the loss of a dimension in a part with these positions, as in the kernel."""
    if not space.ordered[by]:
        return len(present) / int(space.size[by]) if len(present) > 1 else 0.0
    place = space.place[space.at[by] :]
    return float(min(place[present[-1]] - place[present[0]], 1.0))

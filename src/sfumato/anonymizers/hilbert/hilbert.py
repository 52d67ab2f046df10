"""The Hilbert method: groups of neighbours along the Hilbert curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.base import Partitioner
from sfumato.anonymizers.limits import Limits, limits, sparse
from sfumato.anonymizers.mondrian.partition import Space, space_of
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members
from sfumato.measures.classes import Ints

__all__ = ["Hilbert", "hilbert", "order_of"]

_STEPS = 32  # possible cuts per group of average size
_WINDOW = 8 * _STEPS
_FEW = 20_000  # up to so many tuples, kernels are not compiled if only k matters


@dataclass(eq=False, repr=False)
class Hilbert(Partitioner):
    """Anonymize by grouping neighbours along the Hilbert curve (Ghinita et al., VLDB 2007); see `hilbert`.

    It often loses less than Mondrian, and takes longer. The parameters are those of `Partitioner`.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> sf.Hilbert("k=2", qi=["age", "sex"]).fit_transform(people)["age"].tolist()
    ['20-22', '20-22', '20-64', '20-64', '20-64']
    """

    name = "hilbert"

    def _members(self, problem: Problem) -> Members:
        return Members.of(problem, hilbert(problem))


def hilbert(problem: Problem) -> Ints:
    """Group neighbours on the Hilbert curve of the quasi-identifiers so that every guarantee holds.

    The curve visits every combination of values such that neighbours on it are similar in all dimensions; every
    dimension is stretched to the same length. The line of tuples is first cut greedily: a group is closed as soon as
    it keeps every guarantee, and the rest at the end is merged backward. Then it is cut by dynamic programming for the
    least total loss (NCP; a category of more than 64 values counts by its range), at about 32 places per group of
    average size. The better result is returned: the group of each tuple. If even the whole table as one group breaks
    a guarantee, that is an `InputError`.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"x": [0, 1, 0, 9, 8, 9], "y": [0, 0, 1, 9, 9, 8]}))
    >>> problem = Problem.of(reduce(table, ["x", "y"]), ["x", "y"], [], [sf.KAnonymity(3)])
    >>> hilbert(problem).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    problem.require_reachable()
    asked, space = limits(problem.counts, problem.guarantees), space_of(problem)
    is_plain = len(problem) <= _FEW and not len(asked.model)
    from sfumato.anonymizers.hilbert import kernels, plain

    order = order_of(problem, space)
    begins = np.zeros(len(order), dtype=np.bool_)
    alone = np.empty_like(order)
    alone[order] = np.arange(len(order))
    if is_plain:
        plain.cut_greedily(problem.records[order], int(asked.k), begins)
    else:
        kernels.cut_greedily(*sparse(problem.merge(alone), asked), asked, begins)
    greedy = np.cumsum(begins) - 1
    # Cuts are tried between blocks: runs of tuples that are a small part of an average group.
    records = problem.records[order]
    part = (np.cumsum(records) - records) // max(int(records.sum()) // (int(greedy[-1]) + 1) // _STEPS, 1)
    block = np.cumsum(np.diff(part, prepend=part[0]) != 0)
    best = _best(problem, order, block, asked, space, is_plain)
    loss_of_all = plain.loss_of_all if is_plain else kernels.loss_of_all
    groups = np.empty_like(order)
    groups[order] = min(best, greedy, key=lambda cut: loss_of_all(*_boxes(problem, order, cut), records, cut, space))
    problem.require_kept(problem.merge(groups))
    return groups


def order_of(problem: Problem, space: Space) -> Ints:
    """Return the indices of the tuples in the order of the curve."""
    from sfumato.anonymizers.hilbert import kernels, plain

    bits = max(int(space.length.max() - 1).bit_length(), 1)
    stretched = problem.positions * np.int64(2**bits - 1) // np.maximum(space.length - 1, 1)
    index = (plain if len(problem) <= _FEW else kernels).along_the_curve(stretched, bits)
    return np.lexsort(index.T[::-1])


def _best(problem: Problem, order: Ints, block: Ints, asked: Limits, space: Space, is_plain: bool) -> Ints:
    """Return the group of each tuple, in the order of the curve, for the best cuts between blocks."""
    from sfumato.anonymizers.hilbert import kernels, plain

    of_tuple = np.empty_like(order)
    of_tuple[order] = block
    counts = problem.merge(of_tuple)
    begins = np.zeros(len(counts[0]), dtype=np.bool_)
    boxes = _boxes(problem, order, block)
    if is_plain:
        plain.cut_at_best(counts[0].size, *boxes, space, int(asked.k), _WINDOW, begins)
    else:
        kernels.cut_at_best(*sparse(counts, asked), *boxes, space, asked, _WINDOW, begins)
    return (np.cumsum(begins) - 1)[block]


def _boxes(problem: Problem, order: Ints, group: Ints) -> tuple[NDArray[np.uint64], Ints, Ints]:
    """Return the positions of each group on every line: as a set of bits, the first and the last."""
    position = problem.positions[order].astype(np.int64)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    bits = np.left_shift(np.uint64(1), (position & 63).astype(np.uint64))
    return (
        np.bitwise_or.reduceat(bits, first, axis=0),
        np.minimum.reduceat(position, first, axis=0),
        np.maximum.reduceat(position, first, axis=0),
    )

"""Top-down partitions, as Mondrian and the R+-tree make them: the way to the kernel and back.

The kernel sees the pieces of the problem as rows of 64-bit words that it moves: the positions of
the quasi-identifiers packed together, the number of the piece, its records, its sensitive values.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.problem import Pieces, Problem
from sfumato.measures.counts import Floats, Ints

__all__ = ["Space", "cut_rows", "partition", "rows_of", "space_of"]

_ROWS_PER_THREAD = 50_000


class Space(NamedTuple):
    """The lines of all quasi-identifiers, as arrays.

    Attributes
    ----------
    length : the number of positions on each line
    size : the number of values that the column may take
    ordered : whether the loss of a range is its width; else it is its number of values
    at : where the places of each line begin
    place : where each position of each line lies
    height : the number of levels that each hierarchy has, 0 without
    node_at : where the nodes of each hierarchy begin
    node : the node of each position on each level
    """

    length: Ints
    size: Ints
    ordered: NDArray[np.bool_]
    at: Ints
    place: Floats
    height: Ints
    node_at: Ints
    node: NDArray[np.int32]


def space_of(problem: Problem) -> Space:
    """Return the lines of a problem as arrays."""
    lines = problem.lines
    length = np.array([len(line.position) for line in lines], dtype=np.int64)
    nodes = np.array([line.nodes.size for line in lines], dtype=np.int64)
    return Space(
        length=length,
        size=np.array([line.size for line in lines], dtype=np.int64),
        ordered=np.array([line.ordered for line in lines]),
        at=np.cumsum(length) - length,
        place=np.concatenate([line.place[np.argsort(line.position)] for line in lines]),
        height=np.array([len(line.nodes) for line in lines], dtype=np.int64),
        node_at=np.cumsum(nodes) - nodes,
        node=np.concatenate([line.nodes.ravel() for line in lines]).astype(np.int32),
    )


def rows_of(
    positions: NDArray[np.int32], longest: int, records: Ints, values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the words that the kernel moves, a column per row, and the positions in them, which share their memory."""
    rows, dimensions = positions.shape
    kind = np.uint8 if longest <= 2**8 else np.uint32  # each kind takes the compiler seconds
    lanes = 8 // np.dtype(kind).itemsize
    packed = -(-dimensions // lanes)
    words = np.zeros((packed + 2 + values.shape[1], rows), dtype=np.int64)
    codes = words[:packed].view(kind).reshape(packed, rows, lanes)
    for by in range(dimensions):
        codes[by // lanes, :, by % lanes] = positions[:, by]
    words[packed] = np.arange(rows)
    words[packed + 1] = records
    words[packed + 2 :] = values.T
    return words, codes


def partition(problem: Problem, pieces: Pieces, *, relaxed: bool = False, look_ahead: bool = False) -> Ints:
    """Cut the table again and again where both sides keep every guarantee, and return the group of each piece.

    Parameters
    ----------
    problem : Problem
    pieces : Pieces
    relaxed : whether pieces with the median value may go to either side
    look_ahead : whether to choose the cut by the loss that it leaves, not by the width that it halves
    """
    asked, space = limits(problem.counts, problem.guarantees), space_of(problem)
    values = pieces.values if len(asked.model) else pieces.values[:, :0]
    words, codes = rows_of(problem.positions[pieces.tuple], int(space.length.max()), pieces.records, values)
    begins = cut_rows(words, codes, space, asked, relaxed, look_ahead)
    groups = np.empty(len(begins), dtype=np.int64)
    groups[words[len(codes)]] = np.cumsum(begins) - 1
    return groups


def cut_rows(
    words: NDArray[np.int64], codes: NDArray[Any], space: Space, asked: Limits, relaxed: bool, look_ahead: bool
) -> NDArray[np.bool_]:
    """Move the rows so that every group is a range of them, and return where each begins.

    The first cuts are made one after the other, then the parts are cut in threads; the result is the same.
    """
    from sfumato.anonymizers.partition_kernels import split

    rows = words.shape[1]
    begins = np.zeros(rows, dtype=np.bool_)
    parts = np.array([[0, rows, int(words[len(codes) + 1].sum())]])
    bounds = np.ones((1, len(space.length)))
    threads = min(os.cpu_count() or 1, rows // _ROWS_PER_THREAD)
    if threads < 2:
        split(words, codes, space, asked, relaxed, look_ahead, parts, bounds, 0, begins)
        return begins
    parts, bounds = split(words, codes, space, asked, relaxed, look_ahead, parts, bounds, rows // (4 * threads), begins)
    largest_first = np.argsort(parts[:, 0] - parts[:, 1], kind="stable")

    def finish(index: int) -> None:
        one = slice(index, index + 1)
        split(words, codes, space, asked, relaxed, look_ahead, parts[one], bounds[one], 0, begins)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(finish, largest_first.tolist()))
    return begins

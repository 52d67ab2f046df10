"""Top-down partitioning for Mondrian and the R+-tree: prepare the arrays for the kernel, and run it.

The kernel moves the pieces of the problem as rows of 64-bit words: the packed positions of the quasi-identifiers and
sensitive values, then the number of the piece and its records.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.problem import Pieces, Problem
from sfumato.engines.tuples import Packing
from sfumato.errors import InputError
from sfumato.measures.classes import Floats, Ints

__all__ = ["RECORDS", "Space", "cut_rows", "dimensions_of", "partition", "rows_of", "space_of"]

_ROWS_PER_THREAD = 50_000
_FEW = 50_000  # up to so many rows, the kernel is not compiled
_AHEAD = 4  # the slowdown of looking ahead
_NUMBER = 32
RECORDS = (1 << 31) - 1
"""The mask of the records in the last word of a row; the number of the row is in the bits from 32 on."""


class Space(NamedTuple):
    """The lines of all quasi-identifiers, as arrays.

    Attributes
    ----------
    length : the number of positions on each line
    size : the number of values that the column may take
    ordered : whether the loss of a range is its width rather than its number of values
    at : the offset of each line in `place`
    place : the place of each position of each line
    height : the number of levels of each hierarchy, 0 without one
    node_at : the offset of each hierarchy in `node`
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


def dimensions_of(space: Space, lanes: Ints) -> Ints:
    """Return a row per quasi-identifier: its lane in the words, see `rows_of`, and its line."""
    line = (space.length, space.size, space.ordered, space.at, space.height, space.node_at)
    return np.column_stack([lanes[: len(space.length)], *line])


def rows_of(
    positions: NDArray[np.int32], lengths: Ints, records: Ints, values: NDArray[np.int64], kinds: Ints
) -> tuple[NDArray[np.int64], Ints]:
    """Pack rows into the words that the kernel moves, a column per row; return them with their lanes.

    Parameters
    ----------
    positions, lengths : the position of each row on each line, and the lengths of the lines
    records : the records of each row
    values, kinds : the value of each sensitive attribute in each row, and the number of values of each attribute
    """
    rows = len(positions)
    packing = Packing.of([*lengths, *kinds], 63)
    words = np.empty((packing.lanes[-1][0] + 2, rows), dtype=np.int64)
    words[:-1] = packing.pack([*positions.T, *values.T])
    if rows > RECORDS or (rows and int(records.max()) > RECORDS):
        raise InputError(f"Mondrian can cut at most {RECORDS:,} tuples, with at most as many equal rows each")
    words[-1] = (np.arange(rows) << _NUMBER) | records
    return words, np.array(packing.lanes, dtype=np.int64)


def partition(problem: Problem, pieces: Pieces, *, relaxed: bool = False, look_ahead: bool = False) -> Ints:
    """Cut the table recursively while both sides keep every guarantee, and return the group of each piece.

    Parameters
    ----------
    problem : Problem
    pieces : Pieces
    relaxed : whether pieces with the median value may go to either side
    look_ahead : whether to choose the cut by the loss it leaves, not by the width it halves
    """
    asked, space = limits(problem.counts, problem.guarantees), space_of(problem)
    values = pieces.values if len(asked.model) else pieces.values[:, :0]
    kinds = np.diff(asked.offset) if len(asked.model) else asked.offset[:0]
    words, lanes = rows_of(problem.positions[pieces.tuple], space.length, pieces.records, values, kinds)
    begins = cut_rows(words, lanes, space, asked, relaxed=relaxed, look_ahead=look_ahead)
    groups = np.empty(len(begins), dtype=np.int64)
    groups[words[-1] >> _NUMBER] = np.cumsum(begins) - 1
    return groups


def cut_rows(
    words: NDArray[np.int64],
    lanes: Ints,
    space: Space,
    asked: Limits,
    *,
    relaxed: bool = False,
    look_ahead: bool = False,
    threads: int | None = None,
) -> NDArray[np.bool_]:
    """Move the rows so that every group is a range of them, and return a mask of where groups begin.

    The first cuts are made one after the other, then the parts are cut in parallel, by default with a thread per core;
    the number of threads does not change the result.
    """
    number, rows = len(space.length), words.shape[1]
    split = _kernel(rows * _AHEAD if look_ahead else rows)
    what = (
        dimensions_of(space, lanes),
        space.place,
        space.node,
        lanes[number:],
        asked,
        relaxed,
        look_ahead,
    )
    begins = np.zeros(rows, dtype=np.bool_)
    parts = np.array([[0, rows, int((words[-1] & RECORDS).sum())]])
    bounds = np.ones((1, number))
    threads = min(threads or os.cpu_count() or 1, rows // _ROWS_PER_THREAD)
    if threads < 2:
        split(words, *what, parts, bounds, 0, begins)
        return begins
    parts, bounds = split(words, *what, parts, bounds, rows // (4 * threads), begins)
    largest_first = np.argsort(parts[:, 0] - parts[:, 1], kind="stable")

    def finish(index: int) -> None:
        one = slice(index, index + 1)
        split(words, *what, parts[one], bounds[one], 0, begins)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(finish, largest_first.tolist()))
    return begins


def _kernel(rows: int) -> Callable[..., tuple[Ints, Floats]]:
    """Return the compiled kernel, or the plain one for few rows."""
    if rows > _FEW:
        from sfumato.anonymizers.mondrian.kernels import split

        return split
    from sfumato.anonymizers.mondrian.plain import plain_split

    return plain_split

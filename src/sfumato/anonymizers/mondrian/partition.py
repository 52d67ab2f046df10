"""Top-down partitions, as Mondrian and the R+-tree make them: the way to the kernel and back.

The kernel sees the pieces of the problem as rows of 64-bit words that it moves: the positions of the
quasi-identifiers and the sensitive values, packed together, then the number of the piece and its records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.problem import Pieces, Problem
from sfumato.errors import InputError
from sfumato.measures.classes import Floats, Ints

__all__ = ["RECORDS", "Space", "cut_rows", "dimensions_of", "partition", "rows_of", "space_of"]

_ROWS_PER_THREAD = 50_000
_FEW = 50_000  # rows that are cut without compiling the kernel
_AHEAD = 4  # how many times as long it takes to look ahead
_NUMBER = 32
RECORDS = (1 << 31) - 1
"""The bits of a row's last word that are its records; its number lies above them, from bit 32 on."""


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


def dimensions_of(space: Space, lanes: Ints) -> Ints:
    """Return a row per quasi-identifier: where it is in the words of a row, see `rows_of`, and its line."""
    line = (space.length, space.size, space.ordered, space.at, space.height, space.node_at)
    return np.column_stack([lanes[: len(space.length)], *line])


def rows_of(
    positions: NDArray[np.int32], lengths: Ints, records: Ints, values: NDArray[np.int64], kinds: Ints
) -> tuple[NDArray[np.int64], Ints]:
    """Return the words that the kernel moves, a column per row, and where in them everything is.

    Parameters
    ----------
    positions, lengths : the position of each row on each line, and the lengths of the lines
    records : the records of each row
    values, kinds : each row's value of each sensitive attribute, and how many values each has
    """
    rows = len(positions)
    lanes = _lanes([max(int(length - 1).bit_length(), 1) for length in (*lengths, *kinds)])
    words = np.zeros((int(lanes[-1, 0]) + 2, rows), dtype=np.int64)
    for column, (word, shift, _) in zip((*positions.T, *values.T), lanes, strict=True):
        words[word] |= column.astype(np.int64) << shift
    if rows > RECORDS or (rows and int(records.max()) > RECORDS):
        raise InputError(f"more than {RECORDS:,} equal rows, or tuples, are too many to be cut")
    words[-1] = (np.arange(rows) << _NUMBER) | records
    return words, lanes


def _lanes(bits: Sequence[int]) -> Ints:
    """Lay lanes of so many bits one after the other into words; the sign of a word is not used.

    Returns
    -------
    The word of each lane, how far it is shifted there, and the mask of its bits.
    """
    lanes, word, used = [], 0, 0
    for width in bits:
        if used + width > 63:
            word, used = word + 1, 0
        lanes.append((word, used, (1 << width) - 1))
        used += width
    return np.array(lanes, dtype=np.int64)


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
    """Move the rows so that every group is a range of them, and return where each begins.

    The first cuts are made one after the other, then the parts are cut in at most so many threads, by default as many
    as there are cores; the result is the same.
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
    """Return the kernel: compiled, unless so few rows are cut sooner without."""
    if rows > _FEW:
        from sfumato.anonymizers.mondrian.kernels import split

        return split
    from sfumato.anonymizers.mondrian.plain import plain_split

    return plain_split

"""The partitioning kernel as numpy code; small tables need no compiler.

Each function does the same as its namesake in `kernels`, so the cuts are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.mondrian.kernels import _Dimension, split
from sfumato.anonymizers.mondrian.partition import RECORDS
from sfumato.engines.compiling import plain
from sfumato.measures.classes import Floats, Ints

__all__ = ["plain_split"]


def _dimension(dimensions: Ints, by: int) -> _Dimension:
    return _Dimension(*dimensions[by].tolist())


def _codes(words: Ints, low: int, high: int, one: _Dimension) -> Ints:
    codes: Ints = (words[one.word, low:high] >> one.shift) & one.mask
    return codes


def _loss(words: Ints, low: int, high: int, one: _Dimension, place: Floats, seen: Ints) -> tuple[float, int, int]:
    codes = _codes(words, low, high, one)
    least, most = int(codes.min()), int(codes.max())
    return _width(codes, least, most, one, place), least, most


def _width(codes: Ints, least: int, most: int, one: _Dimension, place: Floats) -> float:
    """Return the width of an ordered dimension, or the share of the values of another."""
    if one.ordered:
        return min(float(place[one.at + most] - place[one.at + least]), 1.0)
    if most == least:
        return 0.0
    if _is_short(most - least, len(codes)):
        return np.count_nonzero(np.bincount(codes - least)) / one.size
    return len(np.unique(codes)) / one.size


def _tally(
    words: Ints, low: int, high: int, one: _Dimension, least: int, most: int, value: Ints, weight: Ints, tally: Ints
) -> int:
    codes, records = _codes(words, low, high, one) - least, words[-1, low:high] & RECORDS
    cell, sums = _sums(codes, records)
    value[: len(cell)], weight[: len(cell)] = cell + least, sums
    return len(cell)


def _left(words: Ints, low: int, high: int, one: _Dimension, cut: int, ties: int) -> NDArray[np.bool_]:
    """Return a mask of the rows left of a cut; of the rows with its value, the first `ties` are."""
    codes = _codes(words, low, high, one)
    equal = codes == cut
    left: NDArray[np.bool_] = (codes < cut) | (equal & (np.cumsum(equal) <= ties))
    return left


def _count(
    words: Ints, low: int, high: int, one: _Dimension, cut: int, ties: int, lanes: Ints, offset: Ints, histogram: Ints
) -> None:
    rows = low + np.flatnonzero(_left(words, low, high, one, cut, ties))
    records = words[-1, rows] & RECORDS
    for (word, shift, mask), begin, end in zip(lanes, offset[:-1], offset[1:], strict=True):
        values = (words[word, rows] >> shift) & mask
        histogram[begin:end] = np.bincount(values, weights=records, minlength=end - begin)


def _move(words: Ints, low: int, high: int, one: _Dimension, cut: int, ties: int, spare: Ints) -> int:
    left = _left(words, low, high, one, cut, ties)
    words[:, low:high] = words[:, low:high][:, np.argsort(~left, kind="stable")]
    return low + int(np.count_nonzero(left))


def _remaining(
    words: Ints,
    low: int,
    high: int,
    one: _Dimension,
    decides: _Dimension,
    cut: int,
    below: int,
    size: int,
    place: Floats,
    seen: Ints,
) -> float:
    codes, left = _codes(words, low, high, one), _codes(words, low, high, decides) <= cut
    remains = 0.0
    for side, records in ((codes[left], below), (codes[~left], size - below)):
        remains += records * _width(side, int(side.min()), int(side.max()), one, place)
    return remains


def _sums(codes: Ints, records: Ints) -> tuple[Ints, Any]:
    """Return the values that occur, ascending, and the records of each."""
    if _is_short(int(codes.max()), len(codes)):
        sums = np.bincount(codes, weights=records)
        cell = np.flatnonzero(sums)
        return cell, sums[cell]
    cell, of_row = np.unique(codes, return_inverse=True)
    return cell, np.bincount(of_row, weights=records)


def _is_short(most: int, rows: int) -> bool:
    """Return whether counting all values up to the largest is cheaper than sorting."""
    return most <= 4 * rows + 256


plain_split = plain(
    split, dimension=_dimension, _loss=_loss, _tally=_tally, _count=_count, _move=_move, _remaining=_remaining
)
"""`kernels.split` as numpy code."""

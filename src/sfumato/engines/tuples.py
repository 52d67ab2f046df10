"""Distinct tuples of integer codes and their counts, the result of every engine's count, and keys that pack codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.coding import Domain

__all__ = ["Keys", "Packing", "Tuples", "group", "group_keys", "key_starts"]

Keys = list[NDArray[np.uint64]]


@dataclass(frozen=True, eq=False, repr=False)
class Tuples(Discreet):
    """The sorted distinct tuples of some columns, as integer codes, with their counts."""

    codes: NDArray[np.int32]
    count: NDArray[np.int64]
    domains: tuple[Domain, ...]

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each column."""
        return {domain.name: position for position, domain in enumerate(self.domains)}

    def only(self, names: Sequence[str]) -> Tuples:
        """Return the tuples of some columns, in this order."""
        positions = [self.position[name] for name in names]
        codes, domains = self.codes[:, positions], tuple(self.domains[position] for position in positions)
        from sfumato.engines.group_by import GroupBy

        if not positions:
            return Tuples(codes[:1], self.count.sum(keepdims=True)[: len(codes)], domains)
        grouped = GroupBy(len(positions))
        grouped.add(list(codes.T), self.count)
        return Tuples(*grouped.sorted(), domains)


class Packing:
    """How the codes of a row are packed into keys of 64 bits: as few keys as hold all columns, in their order.

    The first column of a key is its most significant one, so keys sort as the rows do.

    Parameters
    ----------
    bits : the width of each column
    most : the bits of a key that may be used

    Examples
    --------
    >>> packing = Packing.of([4, 6])
    >>> keys = packing.pack([np.array([3, 0]), np.array([5, 1])])
    >>> keys[0].tolist(), [column.tolist() for column in packing.unpack(keys)]
    ([29, 1], [[3, 0], [5, 1]])
    """

    def __init__(self, bits: Sequence[int], most: int = 64) -> None:
        self.bits = tuple(bits)
        key_of: list[tuple[int, int]] = []
        used: list[int] = []
        for width in self.bits:
            if not used or used[-1] + width > most:
                used.append(0)
            used[-1] += width
            key_of.append((len(used) - 1, used[-1]))
        self.lanes = [(key, used[key] - end, (1 << width) - 1) for (key, end), width in zip(key_of, bits, strict=True)]
        """The key, the shift and the mask of each column."""

    @classmethod
    def of(cls, sizes: Sequence[int], most: int = 64) -> Packing:
        """Return the packing of columns with these numbers of codes."""
        return cls([max(int(size - 1).bit_length(), 1) for size in sizes], most)

    def pack(self, columns: Iterable[NDArray[Any]]) -> Keys:
        """Return the keys of rows that are given by column."""
        keys: Keys = []
        for column, width, (key, _, _) in zip(columns, self.bits, self.lanes, strict=True):
            if key == len(keys):
                keys.append(column.astype(np.uint64))
            elif width:
                keys[-1] <<= np.uint64(width)
                # In place, because a cast copy of the column would take as much memory as the keys.
                np.bitwise_or(keys[-1], column, out=keys[-1], dtype=np.uint64, casting="unsafe")
        return keys

    def unpack(self, keys: Keys) -> Iterator[NDArray[np.uint64]]:
        """Yield the columns."""
        for key, shift, mask in self.lanes:
            column = keys[key] >> np.uint64(shift)
            column &= np.uint64(mask)
            yield column


def group(codes: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Assign numbers to the distinct rows of a code matrix, in lexicographic order.

    Returns the first row of each group and the group of each row.

    Examples
    --------
    >>> first, of_row = group(np.array([[1, 0], [0, 5], [1, 0]]), sizes=[2, 6])
    >>> first.tolist(), of_row.tolist()
    ([1, 0], [1, 0, 1])
    """
    if not len(sizes):
        return group_keys(np.zeros(len(codes), dtype=np.uint64))
    keys = Packing.of(sizes).pack(codes.T)
    if len(keys) == 1:
        return group_keys(keys[0])
    order = np.lexsort(keys[::-1])
    begins = np.logical_or.reduce([key_starts(key[order]) for key in keys])
    of_row = np.empty(len(order), dtype=np.intp)
    of_row[order] = np.cumsum(begins) - 1
    return order[begins], of_row


def group_keys(key: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Assign numbers to the distinct keys, in order; see `group`."""
    if (key[1:] >= key[:-1]).all():  # true for the leading columns of sorted tuples
        begins = key_starts(key)
        return np.flatnonzero(begins), np.cumsum(begins) - 1
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    return first, of_row


def key_starts(key: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each key differs from the one before."""
    begins = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=begins[1:])
    return begins

"""Distinct tuples and their counts: the result of every engine's count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.coding import Domain

__all__ = ["Tuples", "group", "group_keys"]

_LARGEST_KEY = 2**62


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


def group(codes: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Assign numbers to the distinct rows of a code matrix, in lexicographic order.

    Returns the first row of each group and the group of each row.

    Examples
    --------
    >>> first, of_row = group(np.array([[1, 0], [0, 5], [1, 0]]), sizes=[2, 6])
    >>> first.tolist(), of_row.tolist()
    ([1, 0], [1, 0, 1])
    """
    key = np.zeros(len(codes), dtype=np.int64)
    span = 1
    for position, size in enumerate(sizes):
        if span * max(size, 1) > _LARGEST_KEY:
            first, key = group_keys(key)
            span = len(first)
        key *= max(size, 1)
        key += codes[:, position]
        span *= max(size, 1)
    return group_keys(key)


def group_keys(key: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Assign numbers to the distinct keys, in order; see `group`."""
    if (key[1:] >= key[:-1]).all():  # true for the leading columns of sorted tuples
        begins = np.ones(len(key), dtype=bool)
        np.not_equal(key[1:], key[:-1], out=begins[1:])
        return np.flatnonzero(begins), np.cumsum(begins) - 1
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    return first, of_row

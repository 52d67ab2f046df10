"""Reduce a table to its distinct tuples and their counts: the one pass over the data.

Everything the classical privacy models need from a table is how often each combination of
quasi-identifiers and sensitive values occurs. A frame in memory is coded column by column,
the codes of a row are packed into one integer, and equal integers are counted. A frame that
lives elsewhere (DuckDB, Spark) does the group-by itself and sends only the tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from sfumato.data.coding import Codes, Domain, encode
from sfumato.data.table import Table, collect

__all__ = ["Tuples", "group", "reduce"]

_LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False)
class Tuples:
    """The distinct tuples of some columns, sorted, as integer codes, and how often each occurs."""

    codes: NDArray[np.int32]
    count: NDArray[np.int64]
    domains: tuple[Domain, ...]

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each column."""
        return {domain.name: position for position, domain in enumerate(self.domains)}


def reduce(table: Table, names: Sequence[str]) -> Tuples:
    """Count how often each distinct tuple of the named columns occurs.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "f"], "age": [30, 30, 30]}))
    >>> tuples = reduce(table, ["sex", "age"])
    >>> tuples.codes.tolist(), tuples.count.tolist()
    ([[0, 0], [1, 0]], [2, 1])
    """
    if table.is_lazy:
        return _merge(*_group_where_it_lives(table, names))
    return _merge(table.encode(names), None)


def group(codes: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give numbers to the distinct rows of a code matrix, in lexicographic order.

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
            distinct, key = np.unique(key, return_inverse=True)
            span = len(distinct)
        key = key * max(size, 1) + codes[:, position]
        span *= max(size, 1)
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    return first, of_row


def _merge(coded: Codes, weight: NDArray[np.int64] | None) -> Tuples:
    first, of_row = group(coded.values, [len(domain) for domain in coded.domains])
    if weight is None:
        count = np.bincount(of_row, minlength=len(first)).astype(np.int64)
    else:
        count = np.zeros(len(first), dtype=np.int64)
        np.add.at(count, of_row, weight)
    return Tuples(coded.values[first], count, coded.domains)


def _group_where_it_lives(table: Table, names: Sequence[str]) -> tuple[Codes, NDArray[np.int64]]:
    counted = "rows"
    while counted in map(str.lower, names):  # databases do not tell Rows from rows
        counted += "_"
    lazy: nw.LazyFrame[Any] = nw.from_native(table.frame)
    tuples = collect(lazy, lambda all_: all_.group_by(*names).agg(nw.len().alias(counted))).to_polars()
    coded = encode([tuples[name] for name in names], [table.schema[name] for name in names])
    return coded, tuples[counted].cast(int).to_numpy().astype(np.int64)

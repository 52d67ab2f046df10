"""The cells of a union: every combination of public values, and how many rows of a holder are in each.

A holder must not reveal which combinations it has, so it counts all that the public schema allows, present or not: the
vector has the same length for everyone, and only its sum over the holders is opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import encode_column, texts_of, with_kind
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, InputError, SchemaError

__all__ = ["MOST_CELLS", "Cells", "described", "of_people", "positions_of", "public_values", "tuples_of"]

MOST_CELLS = 2**24
"""The most combinations of public values that are counted: 64 MiB for each holder."""


class Cells:
    """All combinations of the public values of some columns; each column may also be missing.

    Parameters
    ----------
    columns : sequence of Column
        Each with a public domain, or with bounds of whole numbers.

    Examples
    --------
    >>> import sfumato as sf
    >>> cells = Cells([sf.Column(name="sex", domain=("f", "m")), sf.Column(name="age", bounds=(30, 31))])
    >>> cells.count(sf.Table(pl.DataFrame({"sex": ["m", "f", "m"], "age": [30, 31, 30]}))).tolist()
    [0, 1, 0, 2, 0, 0, 0, 0, 0]
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self.values = tuple(map(public_values, self.columns))
        self.shape = tuple(len(values) + 1 for values in self.values)
        if math.prod(self.shape) > MOST_CELLS:
            raise InputError(
                f"the public values of {len(self.columns)} columns have {math.prod(self.shape):,} combinations, "
                f"and at most {MOST_CELLS:,} are counted together",
                hint="name fewer columns, generalise the finest of them first, or count stepwise",
            )

    def count(self, table: Table, person: str | None = None) -> NDArray[np.uint32]:
        """Count the rows of a holder in every cell, or the people of a person column."""
        positions, tuples = positions_of(table, self.columns, self.values, person)
        counted = np.zeros(math.prod(self.shape), dtype=np.uint32)
        np.add.at(counted, np.ravel_multi_index(tuple(positions.T), self.shape), tuples.count.astype(np.uint32))
        return counted


def tuples_of(columns: Sequence[Column], positions: NDArray[np.int64], count: NDArray[np.int64]) -> Tuples:
    """Return the tuples of the union from their positions among the public values, coded as if tables were pooled."""
    codes, domains = [], []
    for column, position in zip(columns, positions.T, strict=True):
        values = public_values(column)
        missing = pl.Series(values.name, [None], dtype=values.dtype)
        code, domain = encode_column(pl.concat([values, missing]).gather(position), column)
        codes.append(code.astype(np.int32))
        domains.append(domain)
    matrix = np.column_stack(codes)
    order = np.lexsort(matrix.T[::-1])
    return Tuples(matrix[order], count[order], tuple(domains))


def positions_of(
    table: Table, columns: Sequence[Column], values: Sequence[pl.Series], person: str | None = None
) -> tuple[NDArray[np.int64], Tuples]:
    """Return the distinct tuples of a table with the position of each value among the public ones, missing the last.

    With a person column, each tuple of each person is counted once, and every row without a person is.

    Examples
    --------
    >>> import sfumato as sf
    >>> sex = sf.Column(name="sex", domain=("m", "f"))
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "f", None]}))
    >>> positions, tuples = positions_of(table, [sex], [public_values(sex)])
    >>> positions.tolist(), tuples.count.tolist()
    ([[1], [0], [2]], [2, 1, 1])
    """
    whose = () if person is None else (person,)
    for name in (*(column.name for column in columns), *whose):
        if name not in table.schema.names:
            raise ColumnError(f"the table lacks the column '{name}'")
    if not table.rows:
        empty = np.zeros((0, len(columns)), dtype=np.int64)
        return empty, Tuples(empty.astype(np.int32), empty.sum(axis=1), ())
    names = [column.name for column in columns]
    tuples = reduce(Table(table.source, Schema([*columns, *map(_person, whose)])), [*names, *whose])
    tuples = tuples if person is None else _once_each(tuples)
    found = np.empty(tuples.codes.shape, dtype=np.int64)
    for at, (domain, public) in enumerate(zip(tuples.domains, values, strict=True)):
        known = {text_of(value): position for position, value in enumerate(public.to_list())}
        texts = texts_of(domain)
        unknown = sum(text is not None and text not in known for text in texts)
        if unknown:
            raise SchemaError(
                f"column '{domain.name}' holds {unknown} value(s) outside its public domain or bounds",
                hint="declare them in the schema that all holders share",
            )
        of_code = np.array([len(public) if text is None else known[text] for text in texts])
        found[:, at] = of_code[tuples.codes[:, at]]
    return found, tuples


def _person(name: str) -> Column:
    return Column(name=name, role=Role.PERSON)


def _once_each(tuples: Tuples) -> Tuples:
    """Return the tuples without their last column, that of the person: one for each tuple of each person."""
    nobody = tuples.codes[:, -1] == (-1 if (gap := tuples.domains[-1].missing) is None else gap)
    return Tuples(tuples.codes[:, :-1], np.where(nobody, tuples.count, 1), tuples.domains[:-1])


def of_people(tuples: Tuples, person: str) -> Tuples:
    """Return the tuples with a person column: as many people in each as were counted.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> counted = reduce(sf.Table(pl.DataFrame({"sex": ["f", "m", "f"]})), ["sex"])
    >>> of_people(counted, "patient").codes.tolist()
    [[0, 0], [0, 1], [1, 2]]
    """
    total = int(tuples.count.sum())
    code, domain = encode_column(pl.Series(person, np.arange(total)), _person(person))
    codes = np.column_stack([np.repeat(tuples.codes, tuples.count, axis=0), code.astype(np.int32)])
    return Tuples(codes, np.ones(total, dtype=np.int64), (*tuples.domains, domain))


def public_values(column: Column) -> pl.Series:
    """Return all values that a column may take; an error if the schema does not say."""
    if column.domain is not None:
        return pl.Series(column.name, list(column.domain))
    if column.bounds is not None and all(bound.is_integer() for bound in column.bounds) and column.step in (None, 1):
        low, high = map(int, column.bounds)
        if high - low < MOST_CELLS:
            return pl.Series(column.name, range(low, high + 1), dtype=pl.Int64)
    raise SchemaError(
        f"the values of column '{column.name}' are not public, so holders cannot count them together",
        hint="declare its domain, or bounds of whole numbers, in a schema that all holders share",
    )


def described(column: Column) -> Column:
    """Return a column with its kind, which every holder must see alike."""
    return with_kind(column, nw.from_native(public_values(column), series_only=True).dtype)

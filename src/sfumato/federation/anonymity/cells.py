"""The cells of a union: every combination of public values, and how many rows of a holder are in each.

A holder must not reveal which combinations it has, so it counts all that the public schema allows, present or not: the
vector has the same length for everyone, and only its sum over the holders is opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import encode_column, texts_of
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, InputError, SchemaError

__all__ = ["MOST_CELLS", "Cells"]

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
        self.values = tuple(map(_public, self.columns))
        self.shape = tuple(len(values) + 1 for values in self.values)
        if math.prod(self.shape) > MOST_CELLS:
            raise InputError(
                f"the public values of {len(self.columns)} columns have {math.prod(self.shape):,} combinations, "
                f"and at most {MOST_CELLS:,} are counted together",
                hint="name fewer columns, or generalise the finest of them first",
            )

    def count(self, table: Table) -> NDArray[np.uint32]:
        """Count the rows of a holder in every cell."""
        names = [column.name for column in self.columns]
        for name in names:
            if name not in table.schema.names:
                raise ColumnError(f"the table lacks the column '{name}'")
        counted = np.zeros(math.prod(self.shape), dtype=np.uint32)
        if not table.rows:
            return counted
        tuples = reduce(Table(table.source, Schema(self.columns)), names)
        place = np.zeros(len(tuples.count), dtype=np.int64)
        for at, (domain, values) in enumerate(zip(tuples.domains, self.values, strict=True)):
            known = {text_of(value): position for position, value in enumerate(values.to_list())}
            texts = texts_of(domain)
            unknown = sum(text is not None and text not in known for text in texts)
            if unknown:
                raise SchemaError(
                    f"column '{domain.name}' holds {unknown} value(s) outside its public domain or bounds",
                    hint="declare them in the schema that all holders share",
                )
            of_code = np.array([len(values) if text is None else known[text] for text in texts])
            place = place * self.shape[at] + of_code[tuples.codes[:, at]]
        np.add.at(counted, place, tuples.count.astype(np.uint32))
        return counted

    def tuples(self, total: NDArray[np.uint32]) -> Tuples:
        """Return the tuples of the union, coded as if its tables had been pooled."""
        held = np.flatnonzero(total)
        codes, domains = [], []
        for position, column, values in zip(np.unravel_index(held, self.shape), self.columns, self.values, strict=True):
            missing = pl.Series(values.name, [None], dtype=values.dtype)
            code, domain = encode_column(pl.concat([values, missing]).gather(position), column)
            codes.append(code.astype(np.int32))
            domains.append(domain)
        matrix = np.column_stack(codes)
        order = np.lexsort(matrix.T[::-1])
        return Tuples(matrix[order], total[held][order].astype(np.int64), tuple(domains))


def _public(column: Column) -> pl.Series:
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
    return replace(column, kind=Kind.CATEGORY) if column.kind is Kind.AUTO and column.bounds is None else column

"""Records of a Parquet or Arrow file: read one column at a time, so that a table larger than the memory can be learned.

A column is read when it is described or turned into codes, and then dropped; codes take one to four bytes. What is
learned is the same, to the bit, as from the table in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.io.source import File
from sfumato.data.table import Table
from sfumato.errors import InputError
from sfumato.learners.estimators.features import Columns, column_of
from sfumato.synthesizers.tables.columns.description import Description

__all__ = ["FileDescription", "describe_file"]


def describe_file(table: Table, *, buy_decimals: bool = True) -> FileDescription | None:
    """Describe the columns of a file whose types are known without reading its rows; None if it is not such a file.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write(sf.read("patients.csv"), "patients.parquet")
    >>> described = describe_file(sf.read("patients.parquet"))
    >>> described.rows, described.values("sex").unique().sort().to_list()
    (8, ['f', 'm'])
    """
    source = table.source
    if not isinstance(source, File) or source.format not in ("parquet", "arrow"):
        return None
    types = {name: dtype for name, dtype in source.types().items() if name in table.schema.names}
    columns = tuple(column_of(name, pl.Series(name, dtype=dtype)) for name, dtype in types.items())
    known = Description.of_columns(Columns(columns, table.schema, named=True), buy_decimals=buy_decimals)
    if not table.rows:
        raise InputError("0 sample(s): the table has no rows, while a minimum of 1 is required")
    return FileDescription(known.columns, known.described, table)


@dataclass(frozen=True, eq=False)
class FileDescription(Description):
    """What is public of the columns of a file, whose values are read when they are needed."""

    table: Table
    kept: NDArray[np.int64] | None = None
    """The positions of the records, if they are not all rows of the file."""

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.table.rows if self.kept is None else len(self.kept)

    def only(self, rows: NDArray[np.int64]) -> FileDescription:
        """Return the description of the records at some positions, in order."""
        return self if len(rows) == self.rows else replace(self, kept=rows if self.kept is None else self.kept[rows])

    def values(self, name: str) -> pl.Series:
        """Read the values of a column."""
        values = self.table.column(name)
        return values if self.kept is None else values.gather(self.kept)

"""What is public of a table: what a schema declares, whatever the data holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import narwhals as nw

from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError

__all__ = ["declared", "is_whole", "refuse_texts"]


def declared(table: Table, schema: Schema | str | Path | None) -> Schema:
    """Return what is public of the columns of a table: what its own schema says, or the one given.

    The one given is not put to the table: whether the data keeps to it is nobody's business. A kind that was found
    out from the values, as in a text file, is not public: one record can change it.

    Examples
    --------
    >>> import sfumato as sf
    >>> public = declared(sf.read("patients.csv"), sf.Schema([sf.Column(name="sex", domain=["f", "m"])]))
    >>> public["sex"].domain, public["age"].domain, public["age"].kind
    (('f', 'm'), None, <Kind.AUTO: 'auto'>)
    """
    given = Schema(()) if schema is None else Schema.of(schema)
    listed = {table.schema[column.name].name: column for column in given.columns}
    return Schema(listed.get(column.name) or _declared(table, column) for column in table.schema.columns)


def refuse_texts(table: Table, name: str) -> None:
    """Refuse a column whose declared type is not one of numbers or truth values, for a statistic of numbers.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> refuse_texts(sf.Table(pl.DataFrame({"job": ["nurse"]})), "job")
    Traceback (most recent call last):
        ...
    sfumato.errors.ColumnError: column 'job' does not hold numbers: its type is String (count by job counts its values)
    """
    dtype = table.declared_type(name)
    if dtype is not None and not (dtype.is_numeric() or isinstance(dtype, nw.Boolean)):
        kind = str(dtype).partition("(")[0]
        raise ColumnError(
            f"column '{name}' does not hold numbers: its type is {kind}", hint=f"count by {name} counts its values"
        )


def is_whole(table: Table, name: str) -> bool:
    """Say whether the declared type of a column is one of whole numbers.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> is_whole(sf.Table(pl.DataFrame({"age": [30, 40]})), "age"), is_whole(sf.read("patients.csv"), "age")
    (True, False)
    """
    dtype = table.declared_type(name)
    return dtype is not None and dtype.is_integer()


def _declared(table: Table, column: Column) -> Column:
    return column if table.declared_type(column.name) is not None else replace(column, kind=Kind.AUTO)

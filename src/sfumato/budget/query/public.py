"""The public facts about the columns of a table: those declared in a schema, independent of the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import narwhals as nw

from sfumato.budget.mechanisms.additive import declared_bounds
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, SchemaError

__all__ = ["Bounded", "public_schema"]


def public_schema(table: Table, schema: Schema | str | Path | None) -> Schema:
    """Return the declarations for all columns of a table, from its own schema or the given one.

    The given schema is not checked against the data, since the result of that check would be private. A kind that
    was inferred from the values, as in a text file, is not public either: one record can change it.

    Examples
    --------
    >>> import sfumato as sf
    >>> public = public_schema(sf.read("patients.csv"), sf.Schema([sf.Column(name="sex", domain=["f", "m"])]))
    >>> public["sex"].domain, public["age"].domain, public["age"].kind
    (('f', 'm'), None, <Kind.AUTO: 'auto'>)
    """
    given = Schema(()) if schema is None else Schema.of(schema)
    listed = {table.schema[column.name].name: column for column in given.columns}

    def public(column: Column) -> Column:
        inferred = table.declared_type(column.name) is None
        return listed.get(column.name) or (replace(column, kind=Kind.AUTO) if inferred else column)

    return Schema(map(public, table.schema.columns))


@dataclass(frozen=True)
class Bounded:
    """A column of numbers with public bounds."""

    name: str
    low: float
    high: float
    whole: bool = False
    """Whether the declared type of the column is a whole number."""

    @classmethod
    def of(cls, table: Table, column: Column) -> Bounded:
        """Return a column of a table with its bounds, or raise an error if it has none or does not hold numbers.

        Only declarations decide that, never the values.

        Examples
        --------
        >>> import polars as pl
        >>> import sfumato as sf
        >>> Bounded.of(sf.Table(pl.DataFrame({"age": [30, 40]})), sf.Column(name="age", bounds=(0, 120)))
        Bounded(name='age', low=0.0, high=120.0, whole=True)
        """
        name, dtype = column.name, table.declared_type(column.name)
        if dtype is not None and not (dtype.is_numeric() or isinstance(dtype, nw.Boolean)):
            kind = str(dtype).partition("(")[0]
            raise ColumnError(
                f"column '{name}' does not hold numbers: its type is {kind}", hint=f"count by {name} counts its values"
            )
        if column.kind not in (Kind.NUMBER, Kind.AUTO):
            raise ColumnError(
                f"column '{name}' does not hold numbers: its kind is '{column.kind.value}'",
                hint=f"count by {name} counts its values",
            )
        if column.bounds is None:
            raise SchemaError(
                f"column '{name}' has no public bounds, which declare that it holds numbers and determine the noise",
                hint="give its bounds in the schema or with --bounds: the possible range, not that of the data",
            )
        low, high = column.bounds
        if low == high:
            raise SchemaError(f"the bounds of column '{name}' are equal, so its values are known")
        return cls(name, *declared_bounds((low, high)), dtype is not None and dtype.is_integer())

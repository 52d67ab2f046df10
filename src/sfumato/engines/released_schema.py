"""What a schema says of a table that leaves the house: what was declared, and never a value that no row has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce

__all__ = ["declared_only", "used_only"]


def declared_only(table: Table) -> Schema:
    """Return what was said of the columns: not the values that a type lists, and of identifiers only which they are.

    Examples
    --------
    >>> import polars as pl
    >>> table = Table(pl.DataFrame({"level": pl.Series(["low"], dtype=pl.Enum(["low", "top"]))}))
    >>> table.schema["level"].domain, declared_only(table)["level"].domain
    (('low', 'top'), None)
    """
    listed = _listed_by_type(table)

    def said(column: Column) -> Column:
        if column.role is Role.IDENTIFIER:
            return Column(name=column.name, role=column.role)
        return replace(column, kind=Kind.AUTO, domain=None) if column.name in listed else column

    return Schema(map(said, table.schema.columns))


def used_only(columns: Schema, table: Table, released: Any) -> Schema:
    """Return the schema of a release in which a type lists only values that occur; a declared domain is public.

    Parameters
    ----------
    columns : Schema
        Of the release.
    table : Table
        The original.
    released : frame or source
        The rows that are released.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"level": pl.Series(["low"], dtype=pl.Enum(["low", "top"]))})
    >>> used_only(Table(frame).schema, Table(frame), frame)["level"].domain
    ('low',)
    """
    listed = _listed_by_type(table)

    def occurring(column: Column) -> Column:
        if column.name not in listed or column.domain is None:
            return column
        values = reduce(Table(released), [column.name]).domains[0].values
        present = {text_of(value) for value in values.drop_nulls()}
        used = tuple(value for value in column.domain if text_of(value) in present)
        return replace(column, kind=column.kind if used else Kind.CATEGORY, domain=used or None)

    return Schema(map(occurring, columns.columns))


def _listed_by_type(table: Table) -> set[str]:
    """Return the columns whose values only their type lists: such as an Enum, with values that no row has."""
    typed = Table(table.source).schema
    return {one.name for one in table.schema.columns if one.domain is not None and one.domain == typed[one.name].domain}

"""Schemas of released tables: only what was declared, and no value that does not occur in a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce

__all__ = ["declared_schema", "restrict_domains"]


def declared_schema(table: Table) -> Schema:
    """Return the declared schema of a table: without domains taken from types, and with only the role of identifiers.

    Examples
    --------
    >>> import polars as pl
    >>> table = Table(pl.DataFrame({"level": pl.Series(["low"], dtype=pl.Enum(["low", "top"]))}))
    >>> table.schema["level"].domain, declared_schema(table)["level"].domain
    (('low', 'top'), None)
    """
    listed = _listed_by_type(table)

    def declared(column: Column) -> Column:
        if column.role.is_identifier:
            return Column(name=column.name, role=column.role)
        return replace(column, kind=Kind.AUTO, domain=None) if column.name in listed else column

    return Schema(map(declared, table.schema.columns))


def restrict_domains(columns: Schema, table: Table, released: Any) -> Schema:
    """Restrict domains taken from types to the values that occur in a release; declared domains are public.

    Parameters
    ----------
    columns : Schema
        The schema of the release.
    table : Table
        The original table.
    released : frame or source
        The released rows.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"level": pl.Series(["low"], dtype=pl.Enum(["low", "top"]))})
    >>> restrict_domains(Table(frame).schema, Table(frame), frame)["level"].domain
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
    """Return the columns whose domain comes from their type, such as an Enum, which may list unused values."""
    typed = Table(table.source).schema
    return {one.name for one in table.schema.columns if one.domain is not None and one.domain == typed[one.name].domain}

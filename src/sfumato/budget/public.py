"""What is public of a table: what a schema declares, whatever the data holds."""

from __future__ import annotations

from pathlib import Path

from sfumato.data.schema import Schema
from sfumato.data.table import Table

__all__ = ["declared"]


def declared(table: Table, schema: Schema | str | Path | None) -> Schema:
    """Return what is public of the columns of a table: what its own schema says, or the one given.

    The one given is not put to the table: whether the data keeps to it is nobody's business.

    Examples
    --------
    >>> import sfumato as sf
    >>> public = declared(sf.read("patients.csv"), sf.Schema([sf.Column(name="sex", domain=["f", "m"])]))
    >>> public["sex"].domain, public["age"].domain
    (('f', 'm'), None)
    """
    if schema is None:
        return table.schema
    given = schema if isinstance(schema, Schema) else Schema.load(schema)
    listed = {table.schema[column.name].name: column for column in given.columns}
    return Schema(listed.get(column.name, column) for column in table.schema.columns)

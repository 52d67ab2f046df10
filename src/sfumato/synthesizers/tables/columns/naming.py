"""Columns that must not be made up: what names people or is free text, unless it is declared or kept on purpose."""

from __future__ import annotations

from collections.abc import Collection

from sfumato.data.schema import Role
from sfumato.data.suggest import against_release, facts_of
from sfumato.data.table import Table
from sfumato.errors import ColumnError

__all__ = ["refuse_names"]

_SAMPLE = 10_000  # rows whose values are examined


def refuse_names(table: Table, keep: Collection[str] = ()) -> None:
    """Refuse undeclared columns that name people or hold free text.

    Examples
    --------
    >>> import polars as pl
    >>> people = Table(pl.DataFrame({"age": [30, 41], "mail": ["ada@example.org", "bo@example.org"]}))
    >>> refuse_names(people, keep=["mail"])
    >>> try:
    ...     refuse_names(people)
    ... except ColumnError as refused:
    ...     print(refused.message)
    column 'mail' cannot be made up: its values look like e-mail addresses
    """
    open_ = [
        one.name
        for one in table.schema.columns
        if one.role not in (Role.IDENTIFIER, Role.PERSON, Role.KEPT)
        and one.domain is None
        and one.bounds is None
        and one.name not in keep
    ]
    rows = table.sample(_SAMPLE, open_) if open_ else table
    for name in open_:
        reason = against_release(facts_of(rows, rows.schema[name])) if name in rows.schema.names else ""
        if reason:
            raise ColumnError(
                f"column '{name}' cannot be made up: {reason}",
                hint="leave it out: make it an identifier in the schema or with --identifiers; or declare its domain "
                "or bounds; or make it up with keep / --keep",
            )

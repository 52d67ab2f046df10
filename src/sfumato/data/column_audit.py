"""Account for every column before a table is released: nothing identifying leaves without anyone having decided so.

A column that has a role is accounted for. One that has none is released as it is, and is therefore looked at, in a
sample of the rows: it must not look like an identifier or a text, nor reproduce a column that is to be protected.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import polars as pl

from sfumato.data.resemblance import FEWEST_ROWS, Values, reproduces
from sfumato.data.schema import Role, Schema
from sfumato.data.suggest import against_release, facts_of, names_someone, singles_out
from sfumato.data.table import Table
from sfumato.errors import ColumnError, looks_like_data

__all__ = ["accounted", "doubts", "naming"]

_ROWS = 10_000
"""How many rows are looked at."""
_COMPARED = 4_000
"""How many of them are compared with those of other columns."""
_SHOWN = 30
"""How many columns an error names."""


def accounted(table: Table) -> Table:
    """Return the table with what speaks against each kept column; refuse one with other columns of that kind.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"age": [30, 41], "contact": ["ada@example.org", "bo@example.org"]})
    >>> try:
    ...     accounted(sf.Table.of(people, qi=["age"]))
    ... except sf.errors.ColumnError as refused:
    ...     print(refused.message)
    a column without a role would be released as it is: 'contact' (its values look like e-mail addresses)
    >>> accounted(sf.Table.of(people, qi=["age"], keep=["contact"])).schema["contact"].reason
    'its values look like e-mail addresses'
    """
    found = doubts(table)
    refused = {name: reason for name, reason in found.items() if table.schema[name].role is not Role.KEPT}
    if refused:
        raise _refusal(table.schema, refused)
    if not table.schema.kept:
        return table
    same = copy.copy(table)  # with what is already known of the frame
    columns = (
        replace(one, reason=found.get(one.name, "")) if one.role is Role.KEPT else one for one in table.schema.columns
    )
    object.__setattr__(same, "schema", Schema(columns))
    return same


def doubts(table: Table) -> dict[str, str]:
    """Return what speaks against releasing each column that is kept or has no role; nothing of those that may be.

    At most 10,000 rows are looked at, wherever they are.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> ages = [20 + i % 50 for i in range(500)]
    >>> people = pl.DataFrame({"age": ages, "decade": [age // 10 for age in ages], "ward": [i % 3 for i in range(500)]})
    >>> doubts(sf.Table.of(people, qi=["age"]))
    {'decade': "it follows from 'age'"}
    """
    schema = table.schema
    open_ = [column.name for column in schema.columns if column.role in (Role.OTHER, Role.KEPT)]
    if not open_:
        return {}
    rows = table.sample(_ROWS, [*open_, *schema.quasi, *schema.sensitive])
    readable = {*rows.schema.names}
    compared = [name for name in (*schema.quasi, *schema.sensitive) if name in readable and rows.rows >= FEWEST_ROWS]
    protected = {name: values for name in compared if (values := _values(rows, name))}
    found = {}
    for name in readable.intersection(open_):
        facts = facts_of(rows, rows.schema[name])
        reason = against_release(facts)
        values = _values(rows, name) if protected and not reason else None
        if values is not None:
            reasons = (reproduces(values, other, shown) for shown, other in protected.items())
            reason = next(filter(None, reasons), "")
        reason = reason or singles_out(facts)
        if reason:
            found[name] = reason
    return {name: found[name] for name in open_ if name in found}


def naming(table: Table) -> dict[str, str]:
    """Return why columns without a role name people: by their names or by what their values look like alone.

    Of `doubts`, this is what the release of a table shows as clearly as the table itself.
    """
    open_ = [column.name for column in table.schema.columns if column.role is Role.OTHER]
    rows = table.sample(_ROWS, open_) if open_ else table
    readable = {*rows.schema.names}
    found = {name: names_someone(rows, rows.schema[name]) for name in open_ if name in readable}
    return {name: reason for name, reason in found.items() if reason}


def _values(rows: Table, name: str) -> Values | None:
    """Return the values of a column, if it has any that can be compared."""
    try:
        series = rows.column(name)
    except ColumnError:  # of mixed types
        return None
    is_plain = not (series.dtype.is_nested() or isinstance(series.dtype, pl.Object | pl.Binary))
    series = series.gather_every(max(1, -(-len(series) // _COMPARED)))
    return Values(series) if is_plain and series.null_count() < len(series) else None


def _refusal(schema: Schema, refused: dict[str, str]) -> ColumnError:
    named = {name: _shown(schema, name) for name in refused}
    listed = [f"{named[name]} ({reason})" for name, reason in refused.items()]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    one = len(refused) == 1
    them, names = "it" if one else "them", ",".join(f'"{name}"' if "," in name else name for name in refused)
    names = "A,B" if len(refused) > _SHOWN or any(map(looks_like_data, refused)) else names
    return ColumnError(
        f"{'a column' if one else f'{len(refused)} columns'} without a role would be released as "
        f"{'it is' if one else 'they are'}: {', '.join(listed[:_SHOWN])}{more}",
        hint=f"leave {them} out with identifiers / --identifiers {names}, or release {them} on purpose with "
        f"keep / --keep {names}",
    )


def _shown(schema: Schema, name: str) -> str:
    """Return the name of a column as an error may show it; one that looks like a record is not quoted."""
    return f"column {schema.names.index(name) + 1}" if looks_like_data(name) else f"'{name}'"

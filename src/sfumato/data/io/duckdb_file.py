"""Open a table in a DuckDB database file."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sfumato.errors import FileError, InputError, OptionError, did_you_mean, require_extra

__all__ = ["connection_of", "open_duckdb"]

_SETTINGS = {
    "access_mode": "READ_ONLY",
    "enable_external_access": False,  # a view in an untrusted file must not read other files
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_CONNECTIONS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def open_duckdb(path: Path, table: str | None = None) -> Any:
    """Open a table or view of a database file, read-only, as a relation; without a name, the only one it has.

    Examples
    --------
    >>> import duckdb
    >>> with duckdb.connect("clinic.duckdb") as clinic:
    ...     _ = clinic.execute("CREATE TABLE patients AS SELECT 30 AS age")
    >>> open_duckdb(Path("clinic.duckdb")).fetchall()
    [(30,)]
    """
    require_extra("pyarrow", "duckdb", "reading a DuckDB database")
    duckdb = require_extra("duckdb", "duckdb", "reading a DuckDB database")
    if not path.is_file():
        raise FileError(f"there is no file '{path}'", hint="check the path")
    try:
        connection = duckdb.connect(str(path), config=_SETTINGS)
    except duckdb.Error as error:
        if "different configuration" in str(error):
            hint = "pass a relation of that connection, or close it"
            raise FileError(f"'{path}' cannot be opened: this process has it open already", hint=hint) from None
        reason = "it is damaged, of another version, or not a DuckDB database"
        if "lock" in str(error).lower():
            reason = "another program is writing it"
        raise FileError(f"'{path}' cannot be opened: {reason}") from None
    names = [".".join(row) for row in connection.execute(_TABLES).fetchall()]
    short = {name.removeprefix("main."): name for name in names}
    if table is None and len(names) != 1:
        few = f"it holds {', '.join(sorted(short))}" if names else "it holds none"
        raise OptionError(f"'{path}' has {len(names)} tables", hint=f"name one with table / --table: {few}")
    chosen = next(iter(short)) if table is None else table
    if chosen not in short and chosen not in names:
        raise InputError(f"'{path}' has no table '{chosen}'", hint=did_you_mean(chosen, sorted(short)))
    schema, _, name = short.get(chosen, chosen).partition(".")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name))
    try:
        relation = connection.sql(f"SELECT * FROM {quoted}")  # noqa: S608 - both names are quoted
    except duckdb.Error:
        raise InputError(
            f"the table '{chosen}' of '{path}' cannot be read", hint="is it a view of a table in another file?"
        ) from None
    _CONNECTIONS[relation] = connection
    return relation


def connection_of(relation: Any) -> Any:
    """Return the connection of a relation that `open_duckdb` made, or None.

    Without external access, a query finds Python objects only if they are registered on the connection.
    """
    return _CONNECTIONS.get(relation)


_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_catalog = current_database() AND table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2
"""

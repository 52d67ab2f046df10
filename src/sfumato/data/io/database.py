"""Read a table in a database, in read-only transactions.

All queries go through SQLAlchemy, which quotes the names; values are taken as the driver returns them. The types are
those that the database declares. SQLite may store any type in any column, so its values are checked against the
declaration (see `sql_values`).
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sfumato.data.io.source import DataSource
from sfumato.data.io.sql_values import Reader, dtype_of, mixed_types, sqlite_dtype
from sfumato.errors import (
    ColumnError,
    FileError,
    InputError,
    MissingExtra,
    OptionError,
    did_you_mean,
    require_extra,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["Database", "Reflected", "fetch", "place_of"]

_BATCH = 2**15
_EXAMPLES = "for example postgresql://user@host/name or sqlite:///file.db"
_REASONS = {
    "57014": "cancelled the query",
    "42501": "does not permit this user to do it",
    "25006": "does not permit writing",
    "SQLITE_BUSY": "is being written by another program",
    "SQLITE_NOTADB": "is not an SQLite file",
    "SQLITE_READONLY": "does not permit writing",
}


@dataclass(frozen=True, repr=False)
class Database(DataSource):
    """A table or a view in a database.

    Parameters
    ----------
    url : str
        The address of the database as SQLAlchemy writes it, for example
        ``postgresql://user:password@host/name`` or ``sqlite:///file.db``. The password is never
        shown.
    table : str
        The exact name of the table, without quotes; ``schema.table`` if no table has that
        whole name.

    Examples
    --------
    >>> import sqlite3
    >>> clinic = sqlite3.connect("clinic.db")
    >>> _ = clinic.execute("CREATE TABLE patients (sex TEXT, age INTEGER)")
    >>> _ = clinic.execute("INSERT INTO patients VALUES ('f', 30), ('m', 41)")
    >>> clinic.commit()
    >>> clinic.close()
    >>> patients = Database("sqlite:///clinic.db", "patients")
    >>> patients.rows(), patients.types()
    (2, {'sex': String, 'age': Int64})
    """

    url: str
    table: str

    def __post_init__(self) -> None:
        _ = self._address  # reports a mistake now

    def __repr__(self) -> str:
        return f"Database({self.place!r}, {self.table!r})"

    @property
    def place(self) -> str:
        """The host and the name of the database, or its file, without user and password."""
        url = self._address
        if url.get_backend_name() == "sqlite":
            return str(url.database)
        host = url.host or url.query.get("host", "localhost")
        host = host if isinstance(host, str) else ",".join(host)
        return (
            f"{'localhost' if host.startswith('/') else host}/{url.database or ''}"  # a path is that of a local socket
        )

    def types(self) -> dict[str, pl.DataType]:
        """Return the type of each column; `pl.Unknown` where SQLite declares none."""
        with self.connect() as connection:
            return Reflected.find(self, connection).types

    def rows(self) -> int:
        """Count the rows in the database."""
        import sqlalchemy as sa

        with self.connect() as connection:
            table = Reflected.find(self, connection).table
            return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())

    def read(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the named columns, or all of them."""
        import sqlalchemy as sa

        with self.connect() as connection:
            table = Reflected.find(self, connection)
            wanted = [table.resolve(name, connection) for name in (table.types if names is None else names)]
            query = sa.select(*(table.value(name, dtype) for name, dtype in wanted))
            return pl.concat([pl.DataFrame(batch) for batch in fetch(connection, query, wanted)])

    def sample(self, rows: int, names: Sequence[str]) -> pl.DataFrame:
        """Read the first rows that the database returns."""
        import sqlalchemy as sa

        with self.connect() as connection:
            table, wanted = Reflected.find(self, connection), []
            for name in names:
                with suppress(ColumnError):  # a type that cannot be read
                    wanted.append(table.resolve(name, connection))
            if not wanted:
                return pl.DataFrame()
            query = sa.select(*(table.value(name, dtype) for name, dtype in wanted)).limit(rows)
            return pl.concat([pl.DataFrame(batch) for batch in fetch(connection, query, wanted)])

    @contextmanager
    def connect(self, *, writing: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction, read-only by default, and turn driver errors into one sentence.

        A writing transaction is committed if no error occurs, and rolled back otherwise. PostgreSQL and SQLite
        enforce read-only transactions; other databases roll them back at the end.
        """
        sa = require_extra("sqlalchemy", "sql", "reading a database")
        engine = self._engine()
        opened = False
        try:
            with engine.connect() as connection:
                opened = True
                if engine.dialect.name == "sqlite":
                    # By default the driver begins a transaction only before an INSERT, too late to undo CREATE TABLE.
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "PRAGMA query_only = ON")
                elif engine.dialect.name == "postgresql":
                    connection.execution_options(postgresql_readonly=not writing)
                yield connection
                if writing:
                    connection.commit()
        except sa.exc.SQLAlchemyError as error:
            failure = self._error(error, opened, "written" if writing else "read")
            raise failure from (None if isinstance(failure, ColumnError) else error)  # the cause may quote the value
        finally:
            engine.dispose()

    @cached_property
    def _address(self) -> sa.URL:
        """The address with our driver; an SQLite file must exist."""
        require_extra("sqlalchemy", "sql", "reading a database")
        import sqlalchemy as sa

        try:
            url = sa.make_url(self.url)
            if url.drivername in ("postgresql", "postgres"):
                return url.set(drivername="postgresql+psycopg")
            url.get_dialect()
        except sa.exc.NoSuchModuleError:
            raise InputError(
                f"the address begins with '{url.drivername}', which is not a known kind of database",
                hint=f"{_EXAMPLES}; for a file, give its path",
            ) from None
        except (sa.exc.ArgumentError, ValueError):  # their messages may quote the password
            raise InputError("the address of the database cannot be understood", hint=_EXAMPLES) from None
        if url.get_backend_name() == "sqlite":
            if not url.database or url.host or url.username or url.password:
                raise InputError(
                    "the address of the SQLite database names no file", hint="for example sqlite:///file.db"
                )
            if not Path(url.database).is_file():
                raise FileError(f"there is no file '{url.database}'", hint="check the path of the database")
        return url

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        url = self._address
        encoding = {}
        if url.drivername == "postgresql+psycopg":
            require_extra("psycopg", "sql", "reading a PostgreSQL database")
            encoding = {"client_encoding": "utf8"}  # a database without an encoding would return bytes
        if url.get_backend_name() == "sqlite" and url.database:
            file = Path(url.database).resolve().as_uri()  # mode=rw never creates a file
            url = url.set(database=file).update_query_dict({"uri": "true", "mode": "rw"})
        try:
            # Without hide_parameters an error would quote the values of the table.
            engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=encoding)
        except ImportError as error:
            raise MissingExtra(
                f"reading a database of the kind '{url.drivername}' needs {error.name}, which is not installed",
                hint=f"install a driver with pip, and name it: {url.get_backend_name()}+driver://",
            ) from None
        if engine.dialect.is_async:
            raise OptionError(f"'{url.drivername}' is an asynchronous driver, which is not supported")
        sa.event.listen(engine, "handle_error", _close_cursor)
        return engine

    def _error(self, error: sa.exc.SQLAlchemyError, opened: bool, doing: str) -> InputError:
        """Return the error for a driver error, without the password and without any value."""
        import sqlalchemy as sa

        if not opened:
            return InputError(
                f"the database '{self.place}' cannot be opened",
                hint="check that it is running, and its name, the user and the password",
            )
        cause = getattr(error, "orig", None)
        code = str(getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", ""))
        if getattr(error, "connection_invalidated", False) or code.startswith("57P"):
            return InputError(
                f"the database '{self.place}' closed the connection while it was {doing}",
                hint="run it again, or ask its administrator",
            )
        if code in _REASONS:
            return InputError(f"the database '{self.place}' {_REASONS[code]}")
        if code == "22021" or str(cause).startswith(
            "Could not decode to UTF-8"
        ):  # SQLite's driver has no code for this
            return ColumnError(
                f"the database '{self.place}' holds a text that is not valid UTF-8",
                hint="leave the column out, or correct it in a view",
            )
        if isinstance(error, sa.exc.DataError):
            return ColumnError(
                f"the database '{self.place}' holds or receives a value that is out of range, such as an infinite date",
                hint="leave it out in a view",
            )
        return InputError(f"the database '{self.place}' refuses the query ({code or type(error).__name__})")


@dataclass(frozen=True, eq=False)
class Reflected:
    """A table as its database describes it."""

    table: sa.TableClause
    """The table with untyped columns: values are taken as the driver returns them."""
    sql_types: dict[str, sa.types.TypeEngine[Any]]
    types: dict[str, pl.DataType]
    dialect: sa.Dialect

    @classmethod
    def find(cls, database: Database, connection: sa.Connection) -> Reflected:
        """Look the table up in the database."""
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        schema, name = _find(inspector, database)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)  # an unknown type becomes NullType, refused later
            columns = inspector.get_columns(name, schema=schema)
            sql_types = {str(column["name"]): column["type"] for column in columns}
        types = {column: dtype_of(kind, connection.dialect) for column, kind in sql_types.items()}
        return cls(sa.table(name, *map(sa.column, sql_types), schema=schema), sql_types, types, connection.dialect)

    def resolve(self, name: str, connection: sa.Connection) -> tuple[str, pl.DataType]:
        """Return a column's name and type, found from its values if SQLite declares none."""
        import sqlalchemy as sa

        try:
            dtype = self.types[name]
        except KeyError:
            raise ColumnError(
                f"the table '{self.table.name}' has no column '{name}'", hint=did_you_mean(name, self.types)
            ) from None
        if isinstance(dtype, pl.Unknown):
            storage = connection.execute(sa.select(sa.func.typeof(self.table.c[name])).distinct()).scalars()
            dtype = sqlite_dtype(frozenset(storage))
        if isinstance(dtype, pl.Unknown):
            raise mixed_types(name, dtype)
        if isinstance(dtype, pl.Object):
            kind = type(self.sql_types[name]).__name__
            raise ColumnError(
                f"column '{name}' is of {'an unknown type' if kind == 'NullType' else f'the type {kind}'}, "
                "but only numbers, texts, dates and truth values can be counted",
                hint="leave it out, or cast it in a view",
            )
        return name, dtype

    def value(self, name: str, dtype: pl.DataType) -> sa.ColumnElement[Any]:
        """Return the SQL expression that fetches a column."""
        import sqlalchemy as sa

        column: sa.ColumnElement[Any] = self.table.c[name]
        if self.dialect.name == "postgresql" and dtype == pl.String:
            return sa.cast(column, sa.Text)  # drops the padding of char(n), and shows an enum or a uuid as text
        return column


def _close_cursor(context: sa.ExceptionContext) -> None:
    """Close the cursor that SQLAlchemy leaves open when a connection is lost."""
    cursor = getattr(context.execution_context, "cursor", None)
    if cursor is not None:
        with suppress(Exception):
            cursor.close()


def place_of(inspector: sa.Inspector, name: str) -> tuple[str | None, str]:
    """Split the name of a new table into its schema, or None, and the rest."""
    schemas = inspector.get_schema_names()
    for schema, table in _splits(name):
        if schema in schemas:
            return schema, table
    return None, name


def fetch(
    connection: sa.Connection, query: sa.Select[Any], columns: Sequence[tuple[str, pl.DataType]]
) -> Generator[list[pl.Series]]:
    """Yield the result of a query in batches of columns with these names and types; the last batch is empty."""
    readers = [Reader(*column) for column in columns]
    with connection.execute(query, execution_options={"yield_per": _BATCH}) as result:
        for rows in result.partitions():
            yield [reader.series(values) for reader, values in zip(readers, zip(*rows, strict=True), strict=True)]
    yield [pl.Series(name, dtype=dtype) for name, dtype in columns]


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Return the splits of a name at each of its dots."""
    return ((name[:dot], name[dot + 1 :]) for dot, letter in enumerate(name) if letter == ".")


def _find(inspector: sa.Inspector, database: Database) -> tuple[str | None, str]:
    """Return the schema and the name of a table or a view."""
    name = database.table
    if name and "\0" not in name:
        for schema, table in [(None, name), *_splits(name)]:
            if inspector.has_table(table, schema=schema):
                return schema, table
    known = [*inspector.get_table_names(), *inspector.get_view_names()]
    raise InputError(
        f"the database '{database.place}' has no table '{name}'",
        hint=did_you_mean(name, sorted(known)) if known else "if it is in another schema, give schema.table",
    )

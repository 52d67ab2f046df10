"""A table in a database: its columns, and reading them without changing anything.

Everything is said through SQLAlchemy, which quotes the names, and values are taken as the driver
hands them over. The types of the columns are those that the database declares; SQLite may hold
anything in any column, so that there every value is compared with what is declared (see `sql_values`).
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

from sfumato.data.io.source import Source
from sfumato.data.io.sql_values import Reader, dtype_of, mixed, stored_as
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
    "25006": "does not permit to write",
    "SQLITE_BUSY": "is being written by another program",
    "SQLITE_NOTADB": "is no SQLite file",
    "SQLITE_READONLY": "does not permit to write",
}


@dataclass(frozen=True, repr=False)
class Database(Source):
    """A table, or a view, in a database.

    Parameters
    ----------
    url : str
        The address of the database as SQLAlchemy writes it, for example
        ``postgresql://user:password@host/name`` or ``sqlite:///file.db``. The password is never
        shown.
    table : str
        The name of the table as it is, without quotes; ``schema.table`` if no table has that
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
        _ = self._address  # so that a mistake is found now

    def __repr__(self) -> str:
        return f"Database({self.place!r}, {self.table!r})"

    @property
    def place(self) -> str:
        """The host and the name of the database, or the file: what may be shown."""
        url = self._address
        if url.get_backend_name() == "sqlite":
            return str(url.database)
        host = url.host or url.query.get("host", "localhost")
        host = host if isinstance(host, str) else ",".join(host)
        return f"{'localhost' if host.startswith('/') else host}/{url.database or ''}"  # a path is a local socket

    def types(self) -> dict[str, pl.DataType]:
        """Return the type of each column; unknown where SQLite leaves it to the values."""
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
            wanted = [table.settled(name, connection) for name in (table.types if names is None else names)]
            query = sa.select(*(table.value(name, dtype) for name, dtype in wanted))
            return pl.concat([pl.DataFrame(batch) for batch in fetch(connection, query, wanted)])

    def sample(self, rows: int, names: Sequence[str]) -> pl.DataFrame:
        """Read some rows, whichever the database hands over first."""
        import sqlalchemy as sa

        with self.connect() as connection:
            table, wanted = Reflected.find(self, connection), []
            for name in names:
                with suppress(ColumnError):  # of a type that cannot be read
                    wanted.append(table.settled(name, connection))
            if not wanted:
                return pl.DataFrame()
            query = sa.select(*(table.value(name, dtype) for name, dtype in wanted)).limit(rows)
            return pl.concat([pl.DataFrame(batch) for batch in fetch(connection, query, wanted)])

    @contextmanager
    def connect(self, *, writing: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction, read only unless it is for writing; what goes wrong becomes one sentence.

        What was written is kept if all went well, and otherwise nothing of it. PostgreSQL and SQLite
        refuse to write what is only read; elsewhere it is taken back in the end.
        """
        sa = require_extra("sqlalchemy", "sql", "reading a database")
        engine = self._engine()
        opened = False
        try:
            with engine.connect() as connection:
                opened = True
                if engine.dialect.name == "sqlite":
                    # Left alone, the driver begins only before an INSERT, and could not undo what creates a table.
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "PRAGMA query_only = ON")
                elif engine.dialect.name == "postgresql":
                    connection.execution_options(postgresql_readonly=not writing)
                yield connection
                if writing:
                    connection.commit()
        except sa.exc.SQLAlchemyError as error:
            trouble = self._trouble(error, opened, "written" if writing else "read")
            raise trouble from (None if isinstance(trouble, ColumnError) else error)  # which may quote the value
        finally:
            engine.dispose()

    @cached_property
    def _address(self) -> sa.URL:
        """The address with the driver that we use; SQLite only opens a file that exists."""
        require_extra("sqlalchemy", "sql", "reading a database")
        import sqlalchemy as sa

        try:
            url = sa.make_url(self.url)
            if url.drivername in ("postgresql", "postgres"):
                return url.set(drivername="postgresql+psycopg")
            url.get_dialect()
        except sa.exc.NoSuchModuleError:
            raise InputError(
                f"the address begins with '{url.drivername}', which is no known kind of database",
                hint=f"{_EXAMPLES}; a file is given by its path",
            ) from None
        except (sa.exc.ArgumentError, ValueError):  # their texts may quote the password
            raise InputError("the address of the database cannot be understood", hint=_EXAMPLES) from None
        if url.get_backend_name() == "sqlite":
            if not url.database or url.host or url.username or url.password:
                raise InputError("the address of the SQLite database names no file", hint="sqlite:///file.db does")
            if not Path(url.database).is_file():
                raise FileError(f"there is no file '{url.database}'", hint="check the path of the database")
        return url

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        url = self._address
        encoding = {}
        if url.drivername == "postgresql+psycopg":
            require_extra("psycopg", "sql", "reading a PostgreSQL database")
            encoding = {"client_encoding": "utf8"}  # a database that knows no encoding would hand over bytes
        if url.get_backend_name() == "sqlite" and url.database:
            file = Path(url.database).resolve().as_uri()  # mode=rw: if the file has gone meanwhile, none is made
            url = url.set(database=file).update_query_dict({"uri": "true", "mode": "rw"})
        try:
            # Without hide_parameters an error would quote the values of the table.
            engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=encoding)
        except ImportError as error:
            raise MissingExtra(
                f"reading a database of the kind '{url.drivername}' needs {error.name}, which is not installed",
                hint=f"pip install a driver, and name it as in {url.get_backend_name()}+driver://",
            ) from None
        if engine.dialect.is_async:
            raise OptionError(f"'{url.drivername}' is an asynchronous driver, which is of no use here")
        sa.event.listen(engine, "handle_error", _close_cursor)
        return engine

    def _trouble(self, error: sa.exc.SQLAlchemyError, opened: bool, doing: str) -> InputError:
        """Say in one sentence what went wrong, without the password and without any value."""
        import sqlalchemy as sa

        if not opened:
            return InputError(
                f"the database '{self.place}' cannot be opened",
                hint="is it running, and are its name, the user and the password right?",
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
        if code == "22021" or str(cause).startswith("Could not decode to UTF-8"):  # SQLite's driver has no code for it
            return ColumnError(
                f"the database '{self.place}' holds a text that is not valid UTF-8",
                hint="leave its column out, or mend it in a view",
            )
        if isinstance(error, sa.exc.DataError):
            return ColumnError(
                f"the database '{self.place}' holds or gets a value that is out of range, such as an infinite date",
                hint="leave it out in a view",
            )
        return InputError(f"the database '{self.place}' refuses the query ({code or type(error).__name__})")


@dataclass(frozen=True, eq=False)
class Reflected:
    """A table as its database describes it."""

    table: sa.TableClause
    """The table with its columns, which have no types: values are taken as the driver hands them over."""
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
            warnings.simplefilter(
                "ignore", sa.exc.SAWarning
            )  # a type that is not known becomes NullType, which says it
            sql_types = {str(one["name"]): one["type"] for one in inspector.get_columns(name, schema=schema)}
        types = {column: dtype_of(kind, connection.dialect) for column, kind in sql_types.items()}
        return cls(sa.table(name, *map(sa.column, sql_types), schema=schema), sql_types, types, connection.dialect)

    def settled(self, name: str, connection: sa.Connection) -> tuple[str, pl.DataType]:
        """Return the name of a column and its type, by its values if SQLite declares none."""
        import sqlalchemy as sa

        try:
            dtype = self.types[name]
        except KeyError:
            raise ColumnError(
                f"the table '{self.table.name}' has no column '{name}'", hint=did_you_mean(name, self.types)
            ) from None
        if isinstance(dtype, pl.Unknown):
            found = frozenset(connection.execute(sa.select(sa.func.typeof(self.table.c[name])).distinct()).scalars())
            dtype = stored_as(found)
        if isinstance(dtype, pl.Unknown):
            raise mixed(name, dtype)
        if isinstance(dtype, pl.Object):
            kind = type(self.sql_types[name]).__name__
            raise ColumnError(
                f"column '{name}' is of {'an unknown type' if kind == 'NullType' else f'the type {kind}'}, "
                "but only numbers, texts, dates and truth values can be counted",
                hint="leave it out, or cast it in a view",
            )
        return name, dtype

    def value(self, name: str, dtype: pl.DataType) -> sa.ColumnElement[Any]:
        """Return what is fetched of a column."""
        import sqlalchemy as sa

        column: sa.ColumnElement[Any] = self.table.c[name]
        if self.dialect.name == "postgresql" and dtype == pl.String:
            return sa.cast(column, sa.Text)  # of char(n) without its padding, of an enum or a uuid what it reads
        return column


def _close_cursor(context: sa.ExceptionContext) -> None:
    """Close what SQLAlchemy leaves open when a connection is lost."""
    cursor = getattr(context.execution_context, "cursor", None)
    if cursor is not None:
        with suppress(Exception):
            cursor.close()


def place_of(inspector: sa.Inspector, name: str) -> tuple[str | None, str]:
    """Return where a table of this name would be: the schema that it begins with, if there is one, and the rest."""
    schemas = inspector.get_schema_names()
    for schema, table in _splits(name):
        if schema in schemas:
            return schema, table
    return None, name


def fetch(
    connection: sa.Connection, query: sa.Select[Any], columns: Sequence[tuple[str, pl.DataType]]
) -> Generator[list[pl.Series]]:
    """Stream the answer to a query as batches of columns with these names and types; the last one may be empty."""
    readers = [Reader(*column) for column in columns]
    with connection.execute(query, execution_options={"yield_per": _BATCH}) as result:
        for rows in result.partitions():
            yield [reader.series(values) for reader, values in zip(readers, zip(*rows, strict=True), strict=True)]
    yield [pl.Series(name, dtype=dtype) for name, dtype in columns]


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Split a name at each of its dots."""
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

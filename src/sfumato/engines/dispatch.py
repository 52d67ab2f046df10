"""Choose the engine for a table, and count or recode with it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from sfumato.data.io.database import Database
from sfumato.data.io.source import DataSource
from sfumato.data.table import Table
from sfumato.engines.engine import Engine, Progress, Recoding
from sfumato.engines.memory import Memory
from sfumato.engines.tuples import Tuples
from sfumato.errors import one_of

__all__ = ["EngineName", "choose", "recode", "reduce"]


class EngineName(StrEnum):
    """The name of an engine.

    Examples
    --------
    >>> EngineName("duckdb")
    <EngineName.DUCKDB: 'duckdb'>
    """

    AUTO = "auto"
    """Where the rows are: in a database, in DuckDB, in Spark, or in this process."""
    MEMORY = "memory"
    """In this process: files batch by batch, and anything else after it was fetched."""
    DUCKDB = "duckdb"
    """In DuckDB: a relation or a .duckdb file."""
    SQL = "sql"
    """In the database that has the table."""
    SPARK = "spark"
    """In Spark: a Spark frame."""


def reduce(
    table: Table, names: Sequence[str], engine: Engine | str = EngineName.AUTO, progress: Progress | None = None
) -> Tuples:
    """Count how often each distinct tuple of the named columns occurs.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "f"], "age": [30, 30, 30]}))
    >>> tuples = reduce(table, ["sex", "age"])
    >>> tuples.codes.tolist(), tuples.count.tolist()
    ([[0, 0], [1, 0]], [2, 1])
    """
    try:
        return choose(table, engine).joint_count(table, names, progress and _guard(progress))
    except _ProgressFailed as failed:
        raise failed.error from None


class _ProgressFailed(BaseException):
    """Carries an error of the caller's progress callback past the handlers for errors of files and databases."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _guard(progress: Progress) -> Progress:
    def report(share: float) -> None:
        try:
            progress(share)
        except Exception as error:
            raise _ProgressFailed(error) from error

    return report


def recode(
    table: Table,
    recoding: Recoding,
    to: str | Path | None = None,
    engine: Engine | str = EngineName.AUTO,
    progress: Progress | None = None,
) -> Table:
    """Replace every tuple of a table by its new values; see `Recoding`."""
    try:
        return choose(table, engine).recode(table, recoding, to, progress and _guard(progress))
    except _ProgressFailed as failed:
        raise failed.error from None


def choose(table: Table, engine: Engine | str = EngineName.AUTO) -> Engine:
    """Return the engine with this name, or the one where the rows are.

    Examples
    --------
    >>> import sfumato as sf
    >>> choose(sf.read("patients.csv"))
    Memory()
    """
    if isinstance(engine, Engine):
        return engine
    name = one_of(EngineName, engine, "engine")
    if name is EngineName.AUTO:
        name = _engine_of(table)
    if name is EngineName.DUCKDB:
        from sfumato.engines.duckdb import DuckDB

        return DuckDB()
    if name is EngineName.SQL:
        from sfumato.engines.sql import Sql

        return Sql()
    if name is EngineName.SPARK:
        from sfumato.engines.spark import Spark

        return Spark()
    return Memory()


def _engine_of(table: Table) -> EngineName:
    """Return the engine that does not move the rows; a file is counted in this process."""
    if isinstance(table.source, Database):
        return EngineName.SQL
    if isinstance(table.source, DataSource):
        return EngineName.MEMORY
    implementation = table.implementation
    if implementation.is_duckdb():
        return EngineName.DUCKDB
    return EngineName.SPARK if implementation.is_pyspark() else EngineName.MEMORY

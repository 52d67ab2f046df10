"""Count and recode a DuckDB relation on its own connection; only distinct tuples leave it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sfumato.data.io.duckdb_file import connection_of
from sfumato.data.io.files import FORMATS, write_frame
from sfumato.data.io.folders import disk_errors, is_full, private_folder
from sfumato.data.io.source import DataSource, File
from sfumato.data.table import Table, frame_errors
from sfumato.engines.code_expressions import DuckDBDialect, levels, number_of
from sfumato.engines.contingency import CodeCounter, Coded
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Progress, Recoding, native, polars_panics
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError, SfumatoError, require_extra

__all__ = ["DuckDB"]

_BATCH = 2**17
_INTERRUPTED = ("query interrupted", "interrupt error")


@dataclass(frozen=True)
class DuckDB(CodeCounter):
    """Counts in DuckDB. The connection of the relation sets the memory limit and the folder for spilled data.

    Examples
    --------
    >>> import duckdb
    >>> import sfumato as sf
    >>> tuples = DuckDB().joint_count(sf.Table(duckdb.sql("SELECT * FROM 'patients.csv'")), ["sex"])
    >>> tuples.domains[0].values.to_list(), tuples.count.tolist()
    (['f', 'm'], [5, 3])
    """

    name: ClassVar[str] = "duckdb"
    counts: ClassVar[str] = "a DuckDB relation or a .duckdb file"

    @polars_panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        relation = self._relation(table)
        counter = Counter([table.schema[name] for name in names])
        with frame_errors(), _relation_errors():
            types = dict(zip(relation.columns, relation.types, strict=True))
            columns = ", ".join(_binary_key(_quoted(name), types[name]) for name in names)
            counted = relation.aggregate(f"{columns}, count(*)", columns)
            with counted.to_arrow_reader(_BATCH) as reader:  # an open reader would block the connection
                _add(counter, reader.schema.empty_table())  # even without rows a column has a type
                for batch in reader:
                    _add(counter, batch)
        if progress:
            progress(1.0)
        return counter.tuples()

    @polars_panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values: lazily, or in a new table or file."""
        relation = self._relation(table)
        if self.names_a_table(to) and connection_of(relation) is not None:
            raise OptionError(
                "a .duckdb file is opened for reading, and gets no new table",
                hint="connect to it with duckdb.connect, and pass the relation",
            )
        with frame_errors(), _relation_errors():
            recoded = _join(relation, recoding, None if to is None else str(to))
            if to is None or self.names_a_table(to):
                return Table(recoded)
            with private_folder() as folder:
                with disk_errors(folder):
                    recoded.write_parquet(str(folder / "recoded"))
                write_frame(pl.scan_parquet(folder / "recoded", glob=False), to)
        return Table(File(Path(to)))

    def types(self, table: Table) -> dict[str, pl.DataType]:
        """Return the declared types of all columns."""
        relation = self._relation(table)
        with frame_errors(), _relation_errors():
            return dict(pl.DataFrame(relation.limit(0).to_arrow_table()).schema)

    @polars_panics()
    def _count_groups(
        self,
        table: Table,
        columns: Sequence[Coded],
        types: dict[str, pl.DataType],
        sets: Sequence[tuple[int, ...]],
        weight: Coded | None,
    ) -> list[pl.Series]:
        """Count groups by grouping sets."""
        query, number = "sfumato_relation", number_of(len(columns), weight)
        every = [*columns] if weight is None else [*columns, weight]
        for level in levels(DuckDBDialect(), every, [_quoted(one.name) for one in every], types):
            chosen = ", ".join(f"{expression} AS {alias}" for expression, alias in level)
            query = f"(SELECT {chosen} FROM {query})"  # noqa: S608
        groups = ", ".join(f"g{at}" for at in range(len(columns)))
        by = ", ".join(f"({', '.join(f'g{at}' for at in one)})" for one in sets)
        counted = f"SELECT {groups}, {number} AS records FROM {query} GROUP BY GROUPING SETS ({by})"  # noqa: S608
        with frame_errors(), _relation_errors():
            found = self._relation(table).query("sfumato_relation", counted).to_arrow_table()
        return [pl.Series(column) for column in found.columns]

    def names_a_table(self, to: str | Path | None) -> bool:
        """Return whether ``to`` names a new table on the connection of a relation, not a file by its suffix."""
        return to is not None and Path(to).suffix not in FORMATS

    def _relation(self, table: Table) -> Any:
        if isinstance(table.source, DataSource) or not table.implementation.is_duckdb():
            raise self.refusal(table)
        _duckdb()
        return native(table)


@contextmanager
def _relation_errors() -> Iterator[None]:
    """Report errors of a relation that the user can correct; `frame_errors` handles the others."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        duckdb = _duckdb()
        if _is_interrupted(error):
            raise KeyboardInterrupt from None
        if isinstance(error, duckdb.ConnectionException):
            raise InputError(
                "the connection of the DuckDB relation is closed", hint="open it again and recreate the relation"
            ) from error
        if isinstance(error, duckdb.OutOfMemoryException) or is_full(error):
            raise InputError(
                "the DuckDB relation needs more memory or disk space than its connection has",
                hint="raise its memory_limit, or set its temp_directory",
            ) from error
        raise


def _duckdb() -> Any:
    require_extra("pyarrow", "duckdb", "the engine duckdb")
    return require_extra("duckdb", "duckdb", "the engine duckdb")


def _is_interrupted(error: Exception) -> bool:
    """Return whether an error of DuckDB means that Ctrl-C was pressed."""
    return any(sign in str(error).lower() for sign in _INTERRUPTED)


def _add(counter: Counter, counted: Any) -> None:
    """Count the tuples of an Arrow batch; its last column has their counts."""
    *values, count = (pl.Series(column) for column in counted.columns)
    counter.add(values, count.cast(pl.Int64).to_numpy())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _binary_key(column: str, kind: Any) -> str:
    """Return an expression that compares texts byte by byte, because a collation may treat a and A as equal."""
    return f'CAST({column} AS VARCHAR) COLLATE "binary"' if kind.id == "varchar" else column


def _join(relation: Any, recoding: Recoding, to: str | None = None) -> Any:
    """Give each row the new values of its tuple: in a new table, or lazily in a relation.

    Shuffled rows are sorted by a keyed hash of their number, and stored at least in a temporary table: the order and
    the measured values must not change with the source.
    """
    sfumato_new = recoding.look_up().to_arrow()  # DuckDB finds it by name
    look_up = "sfumato_new"
    if connection := connection_of(relation):
        look_up = f"sfumato_{secrets.token_hex(8)}"  # another one for each lazy relation
        connection.register(look_up, sfumato_new)
    duckdb, types = _duckdb(), dict(zip(relation.columns, relation.types, strict=True))
    equal = []
    for name in recoding.names:
        column, kind = f"sfumato_rows.{_quoted(name)}", types[name]
        if kind.id in ("float", "double"):
            column = f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END"
        elif kind.id == "enum":  # categories are looked up by their texts
            kind = duckdb.type("VARCHAR")
        before = f"CAST(sfumato_look_up.{_quoted(f'before {name}')} AS {kind})"
        equal.append(f"{_binary_key(column, kind)} IS NOT DISTINCT FROM {_binary_key(before, kind)}")
    new = {series.name: f"sfumato_look_up.{_quoted(f'after {series.name}')}" for series in recoding.values}
    kept = [name for name in relation.columns if name not in recoding.without]
    rows = {name: f"sfumato_rows.{_quoted(name)}" for name in kept}
    rows |= {
        name: f"CAST({rows[name]} AS VARCHAR)" for name in kept if types[name].id == "enum"
    }  # its type lists all values
    chosen = (f"{new.get(name, rows[name])} AS {_quoted(name)}" for name in kept)
    place = "sfumato_place"
    if recoding.shuffle:
        place = f"md5('{secrets.token_hex(16)}' || sfumato_place)"
    # A join does not keep the order of the rows, so they are numbered before it and sorted after it.
    query = (
        f"SELECT {', '.join(chosen)} "  # noqa: S608
        "FROM (SELECT *, row_number() OVER () AS sfumato_place FROM sfumato_relation) AS sfumato_rows "
        f"LEFT JOIN {look_up} AS sfumato_look_up ON {' AND '.join(equal)} ORDER BY {place}"
    )
    if not recoding.shuffle and (to is None or Path(to).suffix in FORMATS):
        return relation.query("sfumato_relation", query)
    name = f"sfumato_{secrets.token_hex(8)}" if to is None or Path(to).suffix in FORMATS else to
    made = "CREATE TABLE" if name == to else "CREATE TEMPORARY TABLE"
    relation.query("sfumato_relation", f"{made} {_quoted(name)} AS {query}")
    return relation.query("sfumato_relation", f"SELECT * FROM {_quoted(name)}")  # noqa: S608

"""Count in DuckDB, which spills to disk.

A relation is counted on its own connection. The rows of files and frames stream into a private
DuckDB (see `stream`), and the counted tuples stream out of it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sfumato.data.io.files import FORMATS, write_frame
from sfumato.data.io.folders import private_folder
from sfumato.data.io.source import File
from sfumato.data.table import Table, frame_errors
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Engine, Progress, Recoding
from sfumato.engines.memory import Memory
from sfumato.engines.stream import (
    Stream,
    disk_errors,
    is_full,
    native,
    polars_panics,
    refuse_elsewhere,
    typed_table,
)
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError, SfumatoError, require_extra

__all__ = ["DuckDB"]

_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B)", re.IGNORECASE)
_BATCH = 2**17
_INTERRUPTED = ("query interrupted", "interrupt error")
_MORE_SPACE = "raise memory_limit / --memory, or set spill / TMPDIR to a folder with more space"


@dataclass(frozen=True)
class DuckDB(Engine):
    """Counts in DuckDB. What exceeds its memory spills to a private folder, which is removed afterwards.

    Rows are recoded in batches, which needs no more memory than the recoding itself.

    Parameters
    ----------
    memory_limit : str, optional
        The most memory that DuckDB may use, such as ``2GB``; by default most of the machine's. The
        connection of a relation keeps its own limit.
    spill : Path, optional
        The folder for the spilled data; by default the system's temporary folder, set by the
        environment variable ``TMPDIR``.

    Examples
    --------
    >>> import sfumato as sf
    >>> tuples = DuckDB(memory_limit="200MB").joint_count(sf.read("patients.csv"), ["sex"])
    >>> tuples.domains[0].values.to_list(), tuples.count.tolist()
    (['f', 'm'], [5, 3])
    """

    memory_limit: str | None = None
    spill: Path | None = None
    name: ClassVar[str] = "duckdb"

    def __post_init__(self) -> None:
        if self.memory_limit is not None and not _SIZE.fullmatch(str(self.memory_limit)):
            raise OptionError(
                f"memory_limit must be a number with a unit, got {self.memory_limit!r}", hint="for example 500MB or 2GB"
            )
        if self.memory_limit is not None:
            duckdb = _duckdb()
            try:
                duckdb.connect(config={"memory_limit": str(self.memory_limit)}).close()
            except duckdb.Error as error:
                raise OptionError(
                    f"memory_limit is not a size that DuckDB understands, got {self.memory_limit!r}",
                    hint="for example 500MB or 2GB",
                ) from error
        if self.spill is not None and not Path(self.spill).is_dir():
            raise OptionError(f"spill must be a folder that exists, got '{self.spill}'")

    @polars_panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        duckdb = _duckdb()
        report = progress or (lambda share: None)
        relation = native(table)
        if isinstance(relation, duckdb.DuckDBPyRelation):
            counter = Counter([table.schema[name] for name in names])
            with frame_errors(), _relation_errors():
                types = dict(zip(relation.columns, relation.types, strict=True))
                columns = ", ".join(_binary_key(_quoted(name), types[name]) for name in names)
                counted = relation.aggregate(f"{columns}, count(*)", columns)
                with counted.to_arrow_reader(_BATCH) as reader:  # an open reader would block the connection
                    _add(counter, reader.schema.empty_table())  # even without rows a column has a type
                    for batch in reader:
                        _add(counter, batch)
            report(1.0)
            return counter.tuples()
        with private_folder(self.spill) as folder:
            stream = Stream(table, names, self.name, report)
            with self._connection(folder, stream) as connection:
                connection.register("stream", stream.arrow())
                columns = ", ".join(f"c{position}" for position in range(len(names)))
                counted = connection.sql(f"SELECT {columns}, count(*) FROM stream GROUP BY {columns}")  # noqa: S608
                for batch in counted.to_arrow_reader(_BATCH):
                    stream.add(batch.columns[:-1], batch.columns[-1])
            report(1.0)
            return stream.tuples()

    @polars_panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values: lazily for a relation, in batches for a file."""
        duckdb = _duckdb()
        relation = native(table)
        if not isinstance(relation, duckdb.DuckDBPyRelation):
            refuse_elsewhere(table, self.name)
            return Memory().recode(typed_table(table), recoding, to, progress)
        with frame_errors(), _relation_errors():
            recoded = _join(relation, recoding, None if to is None else str(to))
            if to is None or self.names_a_table(to):
                return Table(recoded)
            with private_folder(self.spill) as folder:
                with disk_errors(folder):
                    recoded.write_parquet(str(folder / "recoded"))
                write_frame(pl.scan_parquet(folder / "recoded", glob=False), to)
        return Table(File(Path(to)))

    def names_a_table(self, to: str | Path | None) -> bool:
        """Return whether ``to`` names a new table on the connection of a relation, not a file by its suffix."""
        return to is not None and Path(to).suffix not in FORMATS

    @contextmanager
    def _connection(self, folder: Path, stream: Stream) -> Iterator[Any]:
        """Open a private DuckDB, and turn its errors into one sentence."""
        duckdb = _duckdb()
        settings = {
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "preserve_insertion_order": False,
            "temp_directory": str(folder),
        }
        if self.memory_limit is not None:
            settings["memory_limit"] = str(self.memory_limit)
        try:
            with duckdb.connect(config=settings) as connection:
                yield connection
        except SfumatoError:
            raise
        except (duckdb.Error, OSError, ValueError, RuntimeError) as error:  # the last three include pyarrow's errors
            if stream.trouble is not None:
                raise stream.trouble from None
            if _is_interrupted(error):
                raise KeyboardInterrupt from None
            raise self._error(error, duckdb, folder.parent) from None

    def _error(self, error: Exception, duckdb: Any, spill: Path) -> SfumatoError:
        if is_full(error):
            return InputError(
                f"the disk of the folder '{spill}' is too full for the data that DuckDB spills",
                hint=_MORE_SPACE,
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            limit = f"its memory_limit of {self.memory_limit}" if self.memory_limit else "the memory"
            return InputError(
                f"counting needs more than {limit} in DuckDB, even with the spill folder '{spill}'",
                hint=_MORE_SPACE,
            )
        return InputError(
            f"DuckDB cannot count these columns ({type(error).__name__})", hint="check that their types are plain"
        )


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
    sfumato_look_up = recoding.look_up().to_arrow()  # noqa: F841  DuckDB finds it by name
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
        f"LEFT JOIN sfumato_look_up ON {' AND '.join(equal)} ORDER BY {place}"
    )
    if not recoding.shuffle and (to is None or Path(to).suffix in FORMATS):
        return relation.query("sfumato_relation", query)
    name = f"sfumato_{secrets.token_hex(8)}" if to is None or Path(to).suffix in FORMATS else to
    made = "CREATE TABLE" if name == to else "CREATE TEMPORARY TABLE"
    relation.query("sfumato_relation", f"{made} {_quoted(name)} AS {query}")
    return relation.query("sfumato_relation", f"SELECT * FROM {_quoted(name)}")  # noqa: S608

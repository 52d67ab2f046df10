"""Count in DuckDB, which keeps on disk what exceeds its memory.

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
from sfumato.data.table import Table, collecting
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Engine, Progress, Recoding
from sfumato.engines.memory import Memory
from sfumato.engines.stream import (
    Stream,
    copying,
    is_full,
    native,
    panics,
    refuse_elsewhere,
    typed_rows,
)
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError, SfumatoError, require_extra

__all__ = ["DuckDB"]

_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B)", re.IGNORECASE)
_BATCH = 2**17
_INTERRUPTED = ("query interrupted", "interrupt error")
_MORE_SPACE = "raise memory_limit / --memory, or name a folder with more space by spill / TMPDIR"


@dataclass(frozen=True)
class DuckDB(Engine):
    """Counting in DuckDB. What exceeds its memory is kept in a private folder, and removed afterwards.

    Rows are looked up in a recoding batch by batch, for which no more memory is needed than the
    recoding itself takes.

    Parameters
    ----------
    memory_limit : str, optional
        What DuckDB may take of the memory, such as ``2GB``; most of it by default. The connection
        of a relation keeps its own limit.
    spill : Path, optional
        The folder for what exceeds it; that of the system for temporary files by default, which
        the environment variable ``TMPDIR`` names.

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
                    f"memory_limit is no size that DuckDB understands, got {self.memory_limit!r}",
                    hint="for example 500MB or 2GB",
                ) from error
        if self.spill is not None and not Path(self.spill).is_dir():
            raise OptionError(f"spill must be a folder that exists, got '{self.spill}'")

    @panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        duckdb = _duckdb()
        tell = progress or (lambda share: None)
        relation = native(table)
        if isinstance(relation, duckdb.DuckDBPyRelation):
            counter = Counter([table.schema[name] for name in names])
            with collecting(), _asking_a_relation():
                types = dict(zip(relation.columns, relation.types, strict=True))
                columns = ", ".join(_told_apart(_quoted(name), types[name]) for name in names)
                counted = relation.aggregate(f"{columns}, count(*)", columns)
                with counted.to_arrow_reader(_BATCH) as reader:  # an open one would keep the connection busy
                    _add(counter, reader.schema.empty_table())  # even without rows a column has a type
                    for batch in reader:
                        _add(counter, batch)
            tell(1.0)
            return counter.tuples()
        with private_folder(self.spill) as folder:
            stream = Stream(table, names, self.name, tell)
            with self._connection(folder, stream) as connection:
                connection.register("stream", stream.arrow())
                columns = ", ".join(f"c{position}" for position in range(len(names)))
                counted = connection.sql(f"SELECT {columns}, count(*) FROM stream GROUP BY {columns}")  # noqa: S608
                for batch in counted.to_arrow_reader(_BATCH):
                    stream.add(batch.columns[:-1], batch.columns[-1])
            tell(1.0)
            return stream.tuples()

    @panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by what it becomes: of a relation when it is asked, of a file batch by batch."""
        duckdb = _duckdb()
        relation = native(table)
        if not isinstance(relation, duckdb.DuckDBPyRelation):
            refuse_elsewhere(table, self.name)
            return Memory().recode(typed_rows(table), recoding, to, progress)
        with collecting(), _asking_a_relation():
            recoded = _joined(relation, recoding, None if to is None else str(to))
            if to is None or self.names_a_table(to):
                return Table(recoded)
            with private_folder(self.spill) as folder:
                with copying(folder):
                    recoded.write_parquet(str(folder / "recoded"))
                write_frame(pl.scan_parquet(folder / "recoded", glob=False), to)
        return Table(File(Path(to)))

    def names_a_table(self, to: str | Path | None) -> bool:
        """Say whether ``to`` is a new table on the connection of a relation: a name without a suffix of a file."""
        return to is not None and Path(to).suffix not in FORMATS

    @contextmanager
    def _connection(self, folder: Path, stream: Stream) -> Iterator[Any]:
        """Open a DuckDB of our own, and turn whatever goes wrong in it into one sentence."""
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
        except (duckdb.Error, OSError, ValueError, RuntimeError) as error:  # pyarrow's errors are of the latter three
            if stream.trouble is not None:
                raise stream.trouble from None
            if _is_interrupted(error):
                raise KeyboardInterrupt from None
            raise self._sentence(error, duckdb, folder.parent) from None

    def _sentence(self, error: Exception, duckdb: Any, spill: Path) -> SfumatoError:
        if is_full(error):
            return InputError(
                f"the disk of the folder '{spill}' is too full for what exceeds DuckDB's memory",
                hint=_MORE_SPACE,
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            limit = f"its memory_limit of {self.memory_limit}" if self.memory_limit else "the memory"
            return InputError(
                f"counting needs more than {limit} in DuckDB, even with the spill folder '{spill}'",
                hint=_MORE_SPACE,
            )
        return InputError(f"DuckDB cannot count these columns ({type(error).__name__})", hint="are their types plain?")


@contextmanager
def _asking_a_relation() -> Iterator[None]:
    """Say in one sentence what a user can mend about a relation; see `collecting` for the rest."""
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
                "the connection of the DuckDB relation is closed", hint="open it again and make the relation anew"
            ) from error
        if isinstance(error, duckdb.OutOfMemoryException) or is_full(error):
            raise InputError(
                "the DuckDB relation needs more memory, or space on its disk, than its connection has",
                hint="raise its memory_limit, or set its temp_directory",
            ) from error
        raise


def _duckdb() -> Any:
    require_extra("pyarrow", "duckdb", "the engine duckdb")
    return require_extra("duckdb", "duckdb", "the engine duckdb")


def _is_interrupted(error: Exception) -> bool:
    """Say whether Ctrl-C was pressed, of which DuckDB makes an error of its own."""
    return any(sign in str(error).lower() for sign in _INTERRUPTED)


def _add(counter: Counter, counted: Any) -> None:
    """Count the tuples of an Arrow batch; its last column says how often each occurs."""
    *values, count = (pl.Series(column) for column in counted.columns)
    counter.add(values, count.cast(pl.Int64).to_numpy())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _told_apart(column: str, kind: Any) -> str:
    """Compare texts letter by letter: the collation of a column, or of its connection, may take a and A for one."""
    return f'CAST({column} AS VARCHAR) COLLATE "binary"' if kind.id == "varchar" else column


def _joined(relation: Any, recoding: Recoding, to: str | None = None) -> Any:
    """Give each row the values of its tuple: in a new table, or when the relation is asked for them.

    Shuffled rows are sorted by a keyed hash of their number. They go into a temporary table at least: the order, and
    what was measured, must not change with the source.
    """
    sfumato_look_up = recoding.look_up().to_arrow()  # noqa: F841  DuckDB finds it by its name
    duckdb, types = _duckdb(), dict(zip(relation.columns, relation.types, strict=True))
    equal = []
    for name in recoding.names:
        column, kind = f"sfumato_rows.{_quoted(name)}", types[name]
        if kind.id in ("float", "double"):
            column = f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END"
        elif kind.id == "enum":  # the categories are looked up by their texts
            kind = duckdb.type("VARCHAR")
        before = f"CAST(sfumato_look_up.{_quoted(f'before {name}')} AS {kind})"
        equal.append(f"{_told_apart(column, kind)} IS NOT DISTINCT FROM {_told_apart(before, kind)}")
    new = {series.name: f"sfumato_look_up.{_quoted(f'after {series.name}')}" for series in recoding.values}
    kept = [name for name in relation.columns if name not in recoding.without]
    rows = {name: f"sfumato_rows.{_quoted(name)}" for name in kept}
    rows |= {name: f"CAST({rows[name]} AS VARCHAR)" for name in kept if types[name].id == "enum"}  # it lists all values
    chosen = (f"{new.get(name, rows[name])} AS {_quoted(name)}" for name in kept)
    place = "sfumato_place"
    if recoding.shuffle:
        place = f"md5('{secrets.token_hex(16)}' || sfumato_place)"
    # A join forgets the order of the rows, so that they are numbered before and sorted after it.
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

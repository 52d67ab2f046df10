"""Count in Spark: a Spark frame in its own session, a file or a frame in the session there is.

Spark reads a Parquet file itself where it has all of its types. Whatever else is to be counted
is handed to it as plain columns, see `stream`.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sfumato.data.io.files import write_frame
from sfumato.data.io.folders import private_folder
from sfumato.data.io.source import File
from sfumato.data.table import Table
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Engine, Progress, Recoding, is_spark
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
from sfumato.errors import InputError, MissingExtra, SfumatoError, require_extra

__all__ = ["SENT_TO_ALL", "Spark", "asking", "grouped", "joined", "quiet", "require_pyspark"]

_OWN_TYPES = (
    *(pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Decimal, pl.Float32, pl.Float64),
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32),
)
_PATTERN = frozenset("*?[]{}\\%:,")
_ONLY_ERRORS = """
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = error
"""
"""How Log4j is told to log errors only, already while Spark starts; the last logger is that of whoever starts it."""

SENT_TO_ALL = 100_000
"""A look-up of up to so many tuples is sent to every worker, so that the rows stay where they are."""


@dataclass(frozen=True)
class Spark(Engine):
    """Counting in Spark.

    Parameters
    ----------
    session : SparkSession, optional
        For files and frames that are not Spark's; the active one by default, or a local one that
        is stopped again.

    Examples
    --------
    >>> import sfumato as sf
    >>> def ages(spark_frame):
    ...     return Spark().count(sf.Table(spark_frame), "age")
    """

    session: Any = None
    name: ClassVar[str] = "spark"

    @panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        require_pyspark()
        tell = progress or (lambda share: None)
        if is_spark(table):
            counter = Counter([table.schema[name] for name in names])
            *values, count = _counted(native(table), [table.schema.names.index(name) for name in names], tell)
            counter.add([pl.Series(column) for column in values], pl.Series(count).to_numpy())
            tell(1.0)
            return counter.tuples()
        with private_folder() as folder:
            stream = Stream(table, names, self.name, lambda share: tell(share / 2))
            with self._session() as session:
                source = table.source
                if isinstance(source, File) and _reads_itself(source):
                    positions = [table.schema.names.index(name) for name in names]
                    with asking(session):
                        frame = session.read.parquet(f"file://{source.path.resolve()}")
                    *values, count = _counted(frame, positions, tell)
                else:
                    frame = _handed_over(session, table, stream, folder)
                    *values, count = _counted(frame, range(len(names)), lambda share: tell((1 + share) / 2))
            stream.add(values, count)
            tell(1.0)
            return stream.tuples()

    @panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by what it becomes: of a Spark frame when it is asked, of a file batch by batch."""
        require_pyspark()
        if not is_spark(table):
            refuse_elsewhere(table, self.name)
            return Memory().recode(typed_rows(table), recoding, to, progress)
        frame = native(table)
        with asking(frame.sparkSession):
            recoded = _recoded(frame, recoding)
            if recoding.shuffle:  # by Spark's random numbers, which are not cryptographic
                from pyspark.sql import functions

                recoded = recoded.orderBy(functions.rand())
            if to is None:
                return Table(recoded)
            with private_folder() as folder:
                write_frame(_copied(recoded, folder / "recoded"), to)
        return Table(File(Path(to)))

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """Give the session to count in; one that we have started is stopped."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        session = self.session or SparkSession.getActiveSession()
        if session is None and SparkContext._active_spark_context is not None:  # of another thread
            session = SparkSession.builder.getOrCreate()
        if session is not None:
            yield session
            return
        session = _started()
        try:
            yield session
        finally:
            with suppress(Exception), quiet():  # it may have died
                session.stop()


def require_pyspark() -> None:
    """Say what to install if something is missing."""
    require_extra("pyarrow", "spark", "the engine spark")
    require_extra("pandas", "spark", "the engine spark")
    require_extra("pyspark", "spark", "the engine spark")


def _started() -> Any:
    """Start a local session that listens to nobody else, and only tells of errors."""
    from pyspark.sql import SparkSession

    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=str(Path(home) / "bin") if home else None):
        raise MissingExtra(
            "the engine spark needs Java, which is not installed", hint="install Java 17 or later, or set JAVA_HOME"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore", FutureWarning)  # about pandas, of which we need nothing new
        import pyspark.testing.utils  # noqa: F401  Spark itself does so, later
    with private_folder() as folder:
        log4j = folder / "log4j2.properties"
        try:
            log4j.write_text(_ONLY_ERRORS)
            return (
                SparkSession.builder.master("local[*]")
                .appName("sfumato")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.defaultJavaOptions", f'-Dlog4j2.configurationFile="{log4j}"')
                .getOrCreate()
            )
        except Exception as error:
            raise InputError(
                f"Spark cannot be started here ({type(error).__name__})", hint="does it start by itself, with pyspark?"
            ) from error


def _handed_over(session: Any, table: Table, stream: Stream, folder: Path) -> Any:
    """Return the plain columns as a Spark frame; those of a file go through a copy, not through the memory."""
    with asking(session):
        if not table.is_lazy:
            return session.createDataFrame(stream.arrow().read_all())
        import pyarrow.parquet

        copy = folder / "plain.parquet"
        with copying(folder), stream.arrow() as reader, pyarrow.parquet.ParquetWriter(copy, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return session.read.parquet(f"file://{copy}")


def _reads_itself(file: File) -> bool:
    """Say whether Spark reads the same from a file as we do: it has fewer types, and sees patterns in names."""
    if file.format != "parquet" or file.na:
        return False
    path, types = file.path.resolve(), file.types()
    return (
        not _PATTERN.intersection(str(path))
        and not path.name.startswith(("_", "."))  # Spark passes over these
        and len({name.lower() for name in types}) == len(types)
        and all(
            dtype in _OWN_TYPES or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns")
            for dtype in types.values()
        )
    )


def _counted(frame: Any, positions: Sequence[int], tell: Progress) -> list[Any]:
    """Count the tuples of some columns of a Spark frame, and fetch them; the last column says how often each occurs."""
    session = frame.sparkSession
    with _telling(session, tell), asking(session):
        return list(grouped(frame, positions).toArrow().columns)


def grouped(frame: Any, positions: Sequence[int]) -> Any:
    """Count the tuples of some columns, which are then called c0, c1 and so on; the last column is called records."""
    from pyspark.sql import functions

    plain = _plain(frame)
    groups = plain.groupBy(*(_told_apart(plain, position).alias(f"c{at}") for at, position in enumerate(positions)))
    return groups.agg(functions.count("*").alias("records"))


def _plain(frame: Any) -> Any:
    """Name the columns by their positions, as Spark does not tell Rows from rows."""
    return frame.toDF(*(f"c{position}" for position in range(len(frame.columns))))


def _told_apart(frame: Any, position: int) -> Any:
    """Return a column whose texts are compared byte by byte: its collation may take a and A for one."""
    from pyspark.sql import functions, types

    column = functions.col(f"c{position}")
    if isinstance(frame.schema[position].dataType, types.StringType):
        return functions.collate(column, "UTF8_BINARY")
    return column


@contextmanager
def asking(session: Any) -> Iterator[None]:
    """Turn whatever Spark raises into one sentence."""
    try:
        with quiet():
            yield
    except SfumatoError:
        raise
    except Exception as error:
        if not _is_alive(session):
            raise InputError(
                "the Spark session is gone: it was stopped, or its process or its cluster has died",
                hint="start it again, and read the frame anew",
            ) from error
        if is_full(error):
            raise InputError(
                "a disk is too full for what Spark has to write",
                hint="name a folder with more space by spark.local.dir, or by SPARK_LOCAL_DIRS",
            ) from error
        if "spark.driver.maxResultSize" in str(error):
            raise InputError(
                "the distinct tuples are larger than what Spark's driver may fetch",
                hint="raise spark.driver.maxResultSize",
            ) from error
        raise InputError(
            f"Spark cannot finish the job ({type(error).__name__}): its workers failed, or it cannot read the rows",
            hint="do the rows still exist where every worker can read them, and are their types plain?",
        ) from None


def _is_alive(session: Any) -> bool:
    try:
        with quiet():
            return bool(session.range(1).count() == 1)
    except Exception:  # noqa: BLE001  Py4J, sockets and Java each have their own
        return False


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Py4J from logging its tracebacks as if they were those of the program."""

    def is_not_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(is_not_py4j)
    try:
        yield
    finally:
        root.removeFilter(is_not_py4j)


@contextmanager
def _telling(session: Any, tell: Progress) -> Iterator[None]:
    """Tell which share of the tasks is done, as far as Spark has planned them, while a job runs."""
    if not hasattr(session, "sparkContext"):  # Spark Connect has no context
        yield
        return
    context, group, done = session.sparkContext, f"sfumato-{secrets.token_hex(4)}", threading.Event()
    trouble: list[Exception] = []

    def poll() -> None:
        told = 0.0
        while not done.wait(0.2):
            with suppress(Exception):  # the job itself finds out what is wrong with Spark
                told = max(told, _share(context.statusTracker(), group))
            try:
                tell(told)
            except Exception as error:  # noqa: BLE001  raised again below
                trouble.append(error)
                return

    with asking(session):
        before = {name: context.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.job.description")}
        context.setJobGroup(group, "counting tuples")
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(Exception):  # of a session that is gone
            for name, value in before.items():
                context.setLocalProperty(name, value)
    if trouble:
        raise trouble[0]


def _share(tracker: Any, group: str) -> float:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    tasks = sum(stage.numTasks for stage in stages if stage)
    return float(sum(stage.numCompletedTasks for stage in stages if stage) / max(1, tasks))


def _recoded(frame: Any, recoding: Recoding) -> Any:
    """Give each row the values of its tuple, when the frame is asked for them."""
    names = frame.columns
    keys = [names.index(name) for name in recoding.names]
    look_up = _look_up(frame, keys, recoding)
    if len(recoding.tuples.count) <= SENT_TO_ALL:
        look_up = look_up.hint("broadcast")
    new = {names.index(series.name): f"after{position}" for position, series in enumerate(recoding.values)}
    return joined(frame, keys, look_up, new, recoding.without)


def joined(frame: Any, keys: Sequence[int], look_up: Any, new: Mapping[int, Any], without: Sequence[str]) -> Any:
    """Give each row what a look-up has for its tuple, when the frame is asked for it.

    Parameters
    ----------
    frame : a Spark frame
    keys : where the columns are whose values are before0, before1 and so on in the look-up
    look_up : a Spark frame with each tuple once; NaN is null there, and texts have no collation
    new : which column of the look-up takes the place of one of the frame
    without : the names of columns that are left out
    """
    from pyspark.sql import functions, types

    rows, names, equal = _plain(frame), frame.columns, []
    for position, key in enumerate(keys):
        column = _told_apart(rows, key)
        if isinstance(frame.schema[key].dataType, types.FloatType | types.DoubleType):
            column = functions.when(~functions.isnan(column), column)
        equal.append(column.eqNullSafe(functions.col(f"before{position}")))
    both = rows.join(look_up, equal, "left")
    kept = [position for position, name in enumerate(names) if name not in without]
    return both.select(*(new.get(position, f"c{position}") for position in kept)).toDF(*(names[one] for one in kept))


def _look_up(frame: Any, keys: Sequence[int], recoding: Recoding) -> Any:
    """Return the recoding as a Spark frame whose keys have the types that they have in the frame."""
    from pyspark.sql import types

    look_up = recoding.look_up()
    look_up.columns = [
        *(f"before{position}" for position in range(len(keys))),
        *(f"after{position}" for position in range(len(recoding.values))),
    ]
    look_up = look_up.with_columns(pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))
    fields = frame.sparkSession.createDataFrame(look_up.head(0).to_arrow()).schema.fields
    for position, key in enumerate(keys):
        if not isinstance(frame.schema[key].dataType, types.StringType):  # texts have no collation, see _told_apart
            fields[position].dataType = frame.schema[key].dataType
    for field in fields[len(keys) :]:
        if look_up[field.name].dtype in (pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")):
            field.dataType = types.TimestampNTZType()  # without a zone it is the same everywhere
    return frame.sparkSession.createDataFrame(look_up.to_arrow(), schema=types.StructType(fields))


def _copied(frame: Any, folder: Path) -> pl.LazyFrame:
    """Let Spark write its rows as Parquet, and return what reads them."""
    from pyspark.sql import functions, types

    columns, back, plain = [], [], _plain(frame)
    for field, name in zip(plain.schema.fields, frame.columns, strict=True):
        moment = isinstance(field.dataType, types.TimestampType)  # Parquet's old type for it has no zone
        columns.append(functions.unix_micros(field.name).alias(field.name) if moment else functions.col(field.name))
        column = pl.col(field.name).cast(pl.Datetime("us", "UTC")) if moment else pl.col(field.name)
        back.append(column.alias(name))
    plain.select(*columns).write.parquet(f"file://{folder}")
    return pl.scan_parquet(sorted(folder.glob("part-*.parquet")), glob=False).select(back)

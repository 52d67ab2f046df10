"""Count in Spark: a Spark frame in its own session, a file or another frame in the active one.

Spark reads a Parquet file itself if it supports all of its types. Anything else is sent to it as plain columns; see
`stream`.
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
    disk_errors,
    is_full,
    native,
    polars_panics,
    refuse_elsewhere,
    typed_table,
)
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, MissingExtra, SfumatoError, require_extra

__all__ = ["SENT_TO_ALL", "Spark", "group_counts", "join_lookup", "quiet", "require_pyspark", "spark_errors"]

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
"""The Log4j settings to log only errors, even while Spark starts; the last logger is that of its launcher."""

SENT_TO_ALL = 100_000
"""The largest number of tuples in a lookup that is broadcast to every worker, which avoids moving the rows."""


@dataclass(frozen=True)
class Spark(Engine):
    """Counts in Spark.

    Parameters
    ----------
    session : SparkSession, optional
        The session for files and other frames; by default the active one, or a temporary local
        session.

    Examples
    --------
    >>> import sfumato as sf
    >>> def ages(spark_frame):
    ...     return Spark().count(sf.Table(spark_frame), "age")
    """

    session: Any = None
    name: ClassVar[str] = "spark"

    @polars_panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        require_pyspark()
        report = progress or (lambda share: None)
        if is_spark(table):
            counter = Counter([table.schema[name] for name in names])
            *values, count = _count(native(table), [table.schema.names.index(name) for name in names], report)
            counter.add([pl.Series(column) for column in values], pl.Series(count).to_numpy())
            report(1.0)
            return counter.tuples()
        with private_folder() as folder:
            stream = Stream(table, names, self.name, lambda share: report(share / 2))
            with self._session() as session:
                source = table.source
                if isinstance(source, File) and _spark_can_read(source):
                    positions = [table.schema.names.index(name) for name in names]
                    with spark_errors(session):
                        frame = session.read.parquet(f"file://{source.path.resolve()}")
                    *values, count = _count(frame, positions, report)
                else:
                    frame = _to_spark(session, table, stream, folder)
                    *values, count = _count(frame, range(len(names)), lambda share: report((1 + share) / 2))
            stream.add(values, count)
            report(1.0)
            return stream.tuples()

    @polars_panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values: lazily for a Spark frame, in batches for a file."""
        require_pyspark()
        if not is_spark(table):
            refuse_elsewhere(table, self.name)
            return Memory().recode(typed_table(table), recoding, to, progress)
        frame = native(table)
        with spark_errors(frame.sparkSession):
            recoded = _recode(frame, recoding)
            if recoding.shuffle:  # by Spark's random numbers, which are not cryptographic
                from pyspark.sql import functions

                recoded = recoded.orderBy(functions.rand())
            if to is None:
                return Table(recoded)
            with private_folder() as folder:
                write_frame(_copy(recoded, folder / "recoded"), to)
        return Table(File(Path(to)))

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """Yield the session to count in; stop it afterwards if it was started here."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        session = self.session or SparkSession.getActiveSession()
        if session is None and SparkContext._active_spark_context is not None:  # of another thread
            session = SparkSession.builder.getOrCreate()
        if session is not None:
            yield session
            return
        session = _start_session()
        try:
            yield session
        finally:
            with suppress(Exception), quiet():  # it may have died
                session.stop()


def require_pyspark() -> None:
    """Raise an error that says what to install if an extra is missing."""
    require_extra("pyarrow", "spark", "the engine spark")
    require_extra("pandas", "spark", "the engine spark")
    require_extra("pyspark", "spark", "the engine spark")


def _start_session() -> Any:
    """Start a local session that accepts no remote connections and logs only errors."""
    from pyspark.sql import SparkSession

    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=str(Path(home) / "bin") if home else None):
        raise MissingExtra(
            "the engine spark needs Java, which is not installed", hint="install Java 17 or later, or set JAVA_HOME"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore", FutureWarning)  # about newer versions of pandas
        import pyspark.testing.utils  # noqa: F401  Spark imports it later anyway
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
                f"Spark cannot be started ({type(error).__name__})", hint="check that pyspark starts on its own"
            ) from error


def _to_spark(session: Any, table: Table, stream: Stream, folder: Path) -> Any:
    """Return the plain columns as a Spark frame; a file goes through a copy on disk, not through memory."""
    with spark_errors(session):
        if not table.is_lazy:
            return session.createDataFrame(stream.arrow().read_all())
        import pyarrow.parquet

        copy = folder / "plain.parquet"
        with (
            disk_errors(folder),
            stream.arrow() as reader,
            pyarrow.parquet.ParquetWriter(copy, reader.schema) as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
        return session.read.parquet(f"file://{copy}")


def _spark_can_read(file: File) -> bool:
    """Return whether Spark reads a file as we do: it has fewer types, and reads some names as patterns."""
    if file.format != "parquet" or file.na:
        return False
    path, types = file.path.resolve(), file.types()
    return (
        not _PATTERN.intersection(str(path))
        and not path.name.startswith(("_", "."))  # Spark ignores these
        and len({name.lower() for name in types}) == len(types)
        and all(
            dtype in _OWN_TYPES or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns")
            for dtype in types.values()
        )
    )


def _count(frame: Any, positions: Sequence[int], report: Progress) -> list[Any]:
    """Count the tuples of some columns of a Spark frame, and fetch them; the last column has the counts."""
    session = frame.sparkSession
    with _poll_progress(session, report), spark_errors(session):
        return list(group_counts(frame, positions).toArrow().columns)


def group_counts(frame: Any, positions: Sequence[int]) -> Any:
    """Return a Spark frame of the distinct tuples (c0, c1 and so on) and their counts (records)."""
    from pyspark.sql import functions

    plain = _plain(frame)
    groups = plain.groupBy(*(_binary_key(plain, position).alias(f"c{at}") for at, position in enumerate(positions)))
    return groups.agg(functions.count("*").alias("records"))


def _plain(frame: Any) -> Any:
    """Name the columns by position, because Spark ignores case in names."""
    return frame.toDF(*(f"c{position}" for position in range(len(frame.columns))))


def _binary_key(frame: Any, position: int) -> Any:
    """Return a column whose texts are compared byte by byte, because a collation may treat a and A as equal."""
    from pyspark.sql import functions, types

    column = functions.col(f"c{position}")
    if isinstance(frame.schema[position].dataType, types.StringType):
        return functions.collate(column, "UTF8_BINARY")
    return column


@contextmanager
def spark_errors(session: Any) -> Iterator[None]:
    """Turn any error of Spark into one sentence."""
    try:
        with quiet():
            yield
    except SfumatoError:
        raise
    except Exception as error:
        if not _is_alive(session):
            raise InputError(
                "the Spark session is gone: it was stopped, or its process or its cluster has died",
                hint="start it again, and read the frame again",
            ) from error
        if is_full(error):
            raise InputError(
                "a disk is too full for the data that Spark writes",
                hint="set spark.local.dir or SPARK_LOCAL_DIRS to a folder with more space",
            ) from error
        if "spark.driver.maxResultSize" in str(error):
            raise InputError(
                "the distinct tuples exceed what Spark's driver may fetch",
                hint="raise spark.driver.maxResultSize",
            ) from error
        raise InputError(
            f"Spark cannot finish the job ({type(error).__name__}): its workers failed, or it cannot read the rows",
            hint="check that every worker can read the rows, and that their types are plain",
        ) from None


def _is_alive(session: Any) -> bool:
    try:
        with quiet():
            return bool(session.range(1).count() == 1)
    except Exception:  # noqa: BLE001  Py4J, sockets and Java each raise their own
        return False


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Py4J's own log of tracebacks."""

    def is_not_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(is_not_py4j)
    try:
        yield
    finally:
        root.removeFilter(is_not_py4j)


@contextmanager
def _poll_progress(session: Any, report: Progress) -> Iterator[None]:
    """Report the fraction of planned tasks that are done while a job runs."""
    if not hasattr(session, "sparkContext"):  # Spark Connect has no context
        yield
        return
    context, group, done = session.sparkContext, f"sfumato-{secrets.token_hex(4)}", threading.Event()
    trouble: list[Exception] = []

    def poll() -> None:
        told = 0.0
        while not done.wait(0.2):
            with suppress(Exception):  # the job itself raises the error
                told = max(told, _share(context.statusTracker(), group))
            try:
                report(told)
            except Exception as error:  # noqa: BLE001  raised again below
                trouble.append(error)
                return

    with spark_errors(session):
        before = {name: context.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.job.description")}
        context.setJobGroup(group, "counting tuples")
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(Exception):  # the session may be gone
            for name, value in before.items():
                context.setLocalProperty(name, value)
    if trouble:
        raise trouble[0]


def _share(tracker: Any, group: str) -> float:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    tasks = sum(stage.numTasks for stage in stages if stage)
    return float(sum(stage.numCompletedTasks for stage in stages if stage) / max(1, tasks))


def _recode(frame: Any, recoding: Recoding) -> Any:
    """Return a lazy frame that gives each row the new values of its tuple."""
    names = frame.columns
    keys = [names.index(name) for name in recoding.names]
    look_up = _look_up(frame, keys, recoding)
    if len(recoding.tuples.count) <= SENT_TO_ALL:
        look_up = look_up.hint("broadcast")
    new = {names.index(series.name): f"after{position}" for position, series in enumerate(recoding.values)}
    return join_lookup(frame, keys, look_up, new, recoding.without)


def join_lookup(frame: Any, keys: Sequence[int], look_up: Any, new: Mapping[int, Any], without: Sequence[str]) -> Any:
    """Join a Spark frame lazily with a lookup of the new values of each tuple.

    Parameters
    ----------
    frame : a Spark frame
    keys : the positions of the columns that match before0, before1 and so on in the lookup
    look_up : a Spark frame of distinct tuples, with null for NaN, and texts without a collation
    new : the new columns of the lookup, by the position of the column that they replace
    without : the names of columns to leave out
    """
    from pyspark.sql import functions, types

    rows, names, equal = _plain(frame), frame.columns, []
    for position, key in enumerate(keys):
        column = _binary_key(rows, key)
        if isinstance(frame.schema[key].dataType, types.FloatType | types.DoubleType):
            column = functions.when(~functions.isnan(column), column)
        equal.append(column.eqNullSafe(functions.col(f"before{position}")))
    both = rows.join(look_up, equal, "left")
    kept = [position for position, name in enumerate(names) if name not in without]
    return both.select(*(new.get(position, f"c{position}") for position in kept)).toDF(*(names[one] for one in kept))


def _look_up(frame: Any, keys: Sequence[int], recoding: Recoding) -> Any:
    """Return the recoding as a Spark frame whose keys have the types of the frame."""
    from pyspark.sql import types

    look_up = recoding.look_up()
    look_up.columns = [
        *(f"before{position}" for position in range(len(keys))),
        *(f"after{position}" for position in range(len(recoding.values))),
    ]
    look_up = look_up.with_columns(pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))
    fields = frame.sparkSession.createDataFrame(look_up.head(0).to_arrow()).schema.fields
    for position, key in enumerate(keys):
        if not isinstance(frame.schema[key].dataType, types.StringType):  # texts have no collation, see _binary_key
            fields[position].dataType = frame.schema[key].dataType
    for field in fields[len(keys) :]:
        if look_up[field.name].dtype in (pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")):
            field.dataType = types.TimestampNTZType()  # independent of the session's time zone
    return frame.sparkSession.createDataFrame(look_up.to_arrow(), schema=types.StructType(fields))


def _copy(frame: Any, folder: Path) -> pl.LazyFrame:
    """Write the rows of a Spark frame as Parquet, and return a lazy frame of them."""
    from pyspark.sql import functions, types

    columns, back, plain = [], [], _plain(frame)
    for field, name in zip(plain.schema.fields, frame.columns, strict=True):
        moment = isinstance(field.dataType, types.TimestampType)  # Parquet's old timestamp type has no zone
        columns.append(functions.unix_micros(field.name).alias(field.name) if moment else functions.col(field.name))
        column = pl.col(field.name).cast(pl.Datetime("us", "UTC")) if moment else pl.col(field.name)
        back.append(column.alias(name))
    plain.select(*columns).write.parquet(f"file://{folder}")
    return pl.scan_parquet(sorted(folder.glob("part-*.parquet")), glob=False).select(back)

"""Count and recode a Spark frame in its own session; only distinct tuples reach this process."""

from __future__ import annotations

import logging
import secrets
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.io.files import write_frame
from sfumato.data.io.folders import is_full, private_folder
from sfumato.data.io.source import File
from sfumato.data.table import Table
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Engine, Progress, Recoding, is_spark, native, polars_panics
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, SfumatoError, require_extra

__all__ = ["SENT_TO_ALL", "Spark", "group_counts", "join_lookup", "quiet", "require_pyspark", "spark_errors"]

SENT_TO_ALL = 100_000
"""The largest number of tuples in a lookup that is broadcast to every worker, which avoids moving the rows."""


@dataclass(frozen=True)
class Spark(Engine):
    """Counts in Spark, in the session of the frame.

    Examples
    --------
    >>> import sfumato as sf
    >>> def ages(spark_frame):
    ...     return Spark().count(sf.Table(spark_frame), "age")
    """

    name: ClassVar[str] = "spark"
    counts: ClassVar[str] = "a Spark frame"

    @polars_panics()
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        frame, report = self._frame(table), progress or (lambda share: None)
        counter = Counter([table.schema[name] for name in names])
        positions = [table.schema.names.index(name) for name in names]
        with _poll_progress(frame.sparkSession, report), spark_errors(frame.sparkSession):
            *values, count = group_counts(frame, positions).toArrow().columns
        counter.add([pl.Series(column) for column in values], pl.Series(count).to_numpy())
        report(1.0)
        return counter.tuples()

    @polars_panics()
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values: lazily, or in a file."""
        frame = self._frame(table)
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

    def types(self, table: Table) -> dict[str, pl.DataType]:
        """Return the declared types of all columns."""
        frame = self._frame(table)
        with spark_errors(frame.sparkSession):
            return dict(zip(frame.columns, pl.DataFrame(_plain(frame).limit(0).toArrow()).dtypes, strict=True))

    def add_up(self, table: Table, function: Callable[[pl.DataFrame], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Apply a function to batches of rows where they are, and add up the arrays that it returns.

        Spark's Python workers run the function, so that they need Sfumato. The arrays have one length, also that of
        an empty batch. Only sums reach this process.
        """
        frame = self._frame(table)
        names, types = list(frame.columns), list(self.types(table).values())

        def add(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow

            sums = None
            for batch in batches:
                found = function(pl.DataFrame(batch.rename_columns(names)))
                sums = found if sums is None else sums + found
            if sums is not None:
                places = np.flatnonzero(sums)
                yield pyarrow.RecordBatch.from_pydict({"place": places, "sum": sums[places]})

        with spark_errors(frame.sparkSession), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of versions of pandas, which is not used
            parts = pl.DataFrame(_plain(frame).mapInArrow(add, "place bigint, sum bigint").toArrow())
        total = np.zeros_like(function(pl.DataFrame(schema=dict(zip(names, types, strict=True)))))
        np.add.at(total, parts["place"].to_numpy(), parts["sum"].to_numpy())
        return total

    def _frame(self, table: Table) -> Any:
        if not is_spark(table):
            raise self.refusal(table)
        require_pyspark()
        return native(table)


def require_pyspark() -> None:
    """Raise an error that says what to install if an extra is missing."""
    require_extra("pyarrow", "spark", "the engine spark")
    require_extra("pandas", "spark", "the engine spark")
    require_extra("pyspark", "spark", "the engine spark")


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
        done_share = 0.0
        while not done.wait(0.2):
            with suppress(Exception):  # the job itself raises the error
                done_share = max(done_share, _share(context.statusTracker(), group))
            try:
                report(done_share)
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

"""Mondrian in Spark: the tuples stay in Spark, and this process sees only counts of single columns.

Reduce: Spark counts the distinct tuples. Decide: the first cuts are decided here, from sums over the tuples; workers
cut the remaining parts with the same kernel as a table in memory. Apply: workers write the published values of their
parts, and a join applies them to the rows. Parts are cut independently, so the groups are those of `mondrian`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from sfumato._repr import Discreet
from sfumato.anonymizers.base import measure_release, refuse_unreadable, require_quasi
from sfumato.anonymizers.mondrian.spark_cuts import Count, Cuts, TupleLayout, batch_of, first_cuts, pack, unpack
from sfumato.anonymizers.mondrian.spark_parts import Summaries, finish_part, loss_of_parts
from sfumato.anonymizers.problem import Problem, with_hierarchy
from sfumato.anonymizers.publish import Output, released_schema
from sfumato.data.coding import Domain, encode_column
from sfumato.data.released_values import MARK
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.engines.engine import is_spark, native, polars_panics
from sfumato.engines.spark import SENT_TO_ALL, group_counts, join_lookup, quiet, require_pyspark, spark_errors
from sfumato.errors import InputError, OptionError, one_of
from sfumato.measures.assessment import Assessment
from sfumato.measures.classes import Ints, sum_by_index
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.information_loss import Loss

__all__ = ["OnSpark", "mondrian_on_spark"]

_PARTITIONS_PER_CORE = 4
_HASHED = 200_000  # tuples per partition up to which the join uses a hash table instead of sorting


@dataclass(frozen=True, eq=False, repr=False)
class OnSpark(Discreet):
    """A table that was anonymized in Spark, with its assessment and information loss.

    Attributes
    ----------
    table : the released rows, a Spark frame, without the identifiers
    assessment : the assessment of all rows
    loss : the information loss, without the Kullback-Leibler divergence
    groups, parts : the numbers of groups, and of parts that workers cut
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("groups", "parts")

    table: Table
    assessment: Assessment
    loss: Loss
    groups: int
    parts: int


def mondrian_on_spark(
    table: Table,
    guarantees: Sequence[ClassGuarantee],
    *,
    output: Output | str = Output.INTERVAL,
    keep_order: bool = False,
) -> OnSpark:
    """Anonymize a Spark frame by strict Mondrian, without fetching its tuples.

    The groups and their published values are those of ``Mondrian``; see `mondrian`. The released rows are measured
    again, for which their distinct tuples are fetched. Spark caches the published values of each tuple as long as the
    released frame is in use here, and joins them to the rows on demand.

    Parameters
    ----------
    table : Table
        A Spark frame with the roles of its columns; identifiers are dropped.
    guarantees : sequence of ClassGuarantee
        At least one.
    output : {"interval", "tight", "level", "median", "mean", "medoid"}
        How the values of a group are published; see `Output`. Intervals have exact ends if a guarantee could break
        when groups are published alike.
    keep_order : bool
        Whether the rows stay in the order of Spark's join, often that of the original. By default they are sorted by
        Spark's random numbers, which are not cryptographic.

    Examples
    --------
    >>> import sfumato as sf
    >>> def ten_anonymous(spark_frame):
    ...     people = sf.Table.of(spark_frame, qi=["age", "sex"], sensitive=["disease"])
    ...     return mondrian_on_spark(people, [sf.KAnonymity(10)]).table.frame
    """
    require_pyspark()
    from pyspark.sql import functions

    output = one_of(Output, output, "output")
    if output is Output.INTERVAL and not all(one.survives_merging for one in guarantees):
        output = Output.TIGHT
    schema = table.schema
    if not is_spark(table):
        raise OptionError("mondrian_on_spark needs a Spark frame", hint="use anonymize for any other table")
    require_quasi(schema)
    frame = native(table)
    # Sensitive values matter only if a guarantee uses them.
    sensitive = schema.sensitive if any(one.needs_sensitive for one in guarantees) else ()
    names, number = (*schema.quasi, *sensitive), len(schema.quasi)
    with _worker_errors(frame.sparkSession), polars_panics(), ExitStack() as caches, ExitStack() as lasting:
        cores = _cores(frame.sparkSession)
        # A cached frame keeps its partitions, and each of them costs time in every job.
        tuples = group_counts(frame, [schema.names.index(name) for name in names]).coalesce(
            _PARTITIONS_PER_CORE * cores
        )
        tuples = _cached(tuples, caches)
        columns = [_counted(tuples, at, schema[name]) for at, name in enumerate(names)]
        if output is Output.LEVEL:
            columns[:number] = [
                _Column(with_hierarchy(column.domain, column.records), column.records) for column in columns[:number]
            ]
        whole = _whole(columns[:number], columns[number:], guarantees)
        layout = TupleLayout.of(whole)
        words = _cached(tuples.mapInArrow(partial(pack, layout), _longs(layout.names)), caches)
        cuts = first_cuts(partial(_summed, words, layout), layout, cores)
        look_up = _cached(_published(words, layout, cuts, tuples, output, columns[:number]), lasting)
        summaries = pl.Series(look_up.where("summary IS NOT NULL").select("summary").toArrow().column(0))
        parts = Summaries.of(np.array(summaries.to_list(), dtype=np.float64), number)
        released = _released(frame, schema, look_up, parts, output)
        for field in released.schema.fields:
            if field.metadata:  # such as labels listed by Spark's models, which may be of other rows
                released = released.withMetadata(field.name, {})
        released = released if keep_order else released.orderBy(functions.rand())
        result = Table(released, released_schema(schema))
        assessment = measure_release(result, guarantees)
        # At exit, the session ends and its cache with it.
        weakref.finalize(released, lasting.pop_all().close).atexit = False
    return OnSpark(
        table=result,
        assessment=assessment,
        loss=loss_of_parts(parts, whole.domains, assessment),
        groups=int(parts.groups.sum()),
        parts=len(parts.groups),
    )


# Reduce


class _Column(NamedTuple):
    """The values of a column, and the number of records with each."""

    domain: Domain
    records: Ints


def _counted(tuples: Any, position: int, column: Column) -> _Column:
    """Count the values of one column."""
    from pyspark.sql import functions

    values, records = tuples.groupBy(f"c{position}").agg(functions.sum("records")).toArrow().columns
    codes, domain = encode_column(pl.Series(values), column)  # a missing number may be null or NaN
    return _Column(domain, sum_by_index(codes, pl.Series(records).to_numpy(), len(domain)))


def _whole(quasi: Sequence[_Column], sensitive: Sequence[_Column], guarantees: Sequence[ClassGuarantee]) -> Problem:
    """Build the problem of the whole table as one class, which must keep the guarantees."""
    for column in quasi:
        refuse_unreadable(column.domain)
    rows = int(quasi[0].records.sum())
    problem = Problem.whole(rows, [column.domain for column in quasi], sensitive, guarantees)
    problem.require_reachable()
    return problem


# Decide


def _summed(words: Any, layout: TupleLayout, count: Count, shape: tuple[int, int]) -> Ints:
    """Add up the cells that workers count, and fetch the sums."""
    from pyspark.sql import functions

    cells = words.mapInArrow(partial(_cells, layout, count), _longs(("cell", "records")))
    sums = cells.groupBy("cell").agg(functions.sum("records"))
    cell, records = (pl.Series(column).to_numpy() for column in sums.toArrow().columns)
    found = np.zeros(shape, dtype=np.int64)
    found.ravel()[cell] = records
    return found


def _cells(layout: TupleLayout, count: Count, batches: Iterator[Any]) -> Iterator[Any]:
    """Count the tuples of a worker."""
    for cells in count(*unpack(layout, batches)):
        yield batch_of(("cell", "records"), cells)


# Apply


def _published(
    words: Any, layout: TupleLayout, cuts: Cuts, tuples: Any, output: Output, columns: Sequence[_Column]
) -> Any:
    """Return a frame with the original and published values of each tuple, and one summary per part."""
    from pyspark.sql import types

    kinds = [field.dataType for field in tuples.schema.fields[: len(columns)]]
    new = kinds if output.is_value else [types.StringType()] * len(columns)
    schema = types.StructType(
        [
            *(types.StructField(f"before{at}", kind) for at, kind in enumerate(kinds)),
            *(types.StructField(f"after{at}", kind) for at, kind in enumerate(new)),
            types.StructField("summary", types.ArrayType(types.DoubleType())),
        ]
    )
    arrow = tuples.limit(0).toArrow().schema.types[: len(columns)]
    records = tuple(column.records for column in columns)
    parted = words.mapInArrow(partial(_parted, layout, cuts), _longs(("part", *layout.names)))
    parts = parted.repartition(2 * cuts.uncut, "part").groupBy("part")
    # A lambda, because Spark would interpret the type hints of a function.
    return parts.applyInArrow(lambda part: _finished(layout, output, records, arrow, part), schema)


def _parted(layout: TupleLayout, cuts: Cuts, batches: Iterator[Any]) -> Iterator[Any]:
    """Add the part of each tuple, in a worker."""
    words, records = unpack(layout, batches)
    yield batch_of(("part", *layout.names), [cuts.parts(layout, words), *words, records])


def _finished(layout: TupleLayout, output: Output, counts: Sequence[Ints], arrow: Sequence[Any], part: Any) -> Any:
    """Finish a part in a worker; its summary is in the row of the first tuple."""
    import pyarrow

    before, after, summary = finish_part(layout, *unpack(layout, part.to_batches()), output, counts)
    kinds = [*arrow, *(arrow if output.is_value else [pyarrow.string()] * len(after))]
    columns = [series.to_arrow().cast(kind) for series, kind in zip((*before, *after), kinds, strict=True)]
    summaries = pyarrow.array([summary, *[None] * (len(before[0]) - 1)], pyarrow.list_(pyarrow.float64()))
    names = [f"{when}{at}" for when in ("before", "after") for at in range(len(after))]
    return pyarrow.Table.from_arrays([*columns, summaries], [*names, "summary"])


def _released(frame: Any, schema: Schema, look_up: Any, parts: Summaries, output: Output) -> Any:
    """Join the published values to the rows, and drop the identifiers."""
    from pyspark.sql import functions

    keys, new = [schema.names.index(name) for name in schema.quasi], {}
    for at, key in enumerate(keys):
        as_it_was = not output.is_value and not parts.generalised[:, at].any()
        new[key] = functions.col(f"before{at}" if as_it_was else f"after{at}")
    if parts.marked.all():
        new[keys[0]] = functions.lit(MARK)
    tuples, partitions = parts.tuples.sum(), int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    if tuples <= SENT_TO_ALL:
        look_up = look_up.hint("broadcast")
    elif tuples <= _HASHED * partitions:
        look_up = look_up.hint("shuffle_hash")
    return join_lookup(frame, keys, look_up.drop("summary"), new, schema.identifiers)


# Spark


def _longs(names: Sequence[str]) -> str:
    """Return the schema of a frame of 64-bit integers."""
    return ", ".join(f"{name} long" for name in names)


def _cached(frame: Any, until: ExitStack) -> Any:
    """Cache a frame until the stack is closed."""
    frame.persist()

    def forget() -> None:
        with suppress(Exception), quiet():  # the session may be gone
            frame.unpersist()

    until.callback(forget)
    return frame


def _cores(session: Any) -> int:
    """Return the number of tasks that Spark runs at a time; for Spark Connect, the number of partitions."""
    if hasattr(session, "sparkContext"):
        return int(session.sparkContext.defaultParallelism)
    return int(session.conf.get("spark.sql.shuffle.partitions"))


@contextmanager
def _worker_errors(session: Any) -> Iterator[None]:
    """Turn errors of Spark and its workers into one sentence."""
    with spark_errors(session), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # we need none
        try:
            yield
        except Exception as error:
            if "No module named 'sfumato" in str(error):
                raise InputError(
                    "the workers of Spark cannot import sfumato, which they need to cut parts of the table",
                    hint="install it there, for the Python that PYSPARK_PYTHON names",
                ) from error
            raise

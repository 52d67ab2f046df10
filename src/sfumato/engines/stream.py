"""Stream the rows of a file or a frame as plain columns to an engine that cannot read them itself.

A file is read in the same way as everywhere in Sfumato, so it means the same to every engine: the same quotes,
encodings, blank lines and errors. Types that some engines lack (categories, times, unsigned numbers) are sent as texts
and integers, and restored afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import polars.selectors as cs

from sfumato.data.coding import refuse_nested
from sfumato.data.io.source import File, Source
from sfumato.data.io.text import EVERY_FIELD, TextFile
from sfumato.data.table import Table, frame_errors
from sfumato.engines.counter import Counter
from sfumato.engines.dictionary import Dictionary
from sfumato.engines.engine import Progress
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError

__all__ = ["Stream", "disk_errors", "is_full", "native", "polars_panics", "refuse_elsewhere", "typed_table"]

_BATCH = 2**17
_UNSIGNED = (pl.UInt8, pl.UInt16, pl.UInt32)
_AS_TEXT = (pl.Categorical, pl.Enum, pl.Int128, pl.UInt128)
_FULL = ("no space left", "file too large", "disk quota", "max_temp_directory_size")


class Stream:
    """Some columns of a table in batches, and the conversion of their counted tuples.

    Parameters
    ----------
    table : Table
        A file, a frame in memory, or a lazy Polars frame.
    names : sequence of str
    engine : str
        The name of the engine that counts, for the error about a table that lives elsewhere.
    report : callable, optional
        A callback for the fraction of the rows that has been read; it may be called from another thread.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "f"]}))
    >>> stream = Stream(table, ["sex"], "duckdb")
    >>> [batch.columns for batch in stream.batches()]
    [['c0']]
    >>> stream.add([pl.Series(["f", "m"])], pl.Series([2, 1]))
    >>> stream.tuples().count.tolist()
    [2, 1]
    """

    trouble: BaseException | None = None
    """The error of the reader; an engine that reads from another thread does not see the original."""

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        engine: str,
        report: Progress = lambda share: None,
    ) -> None:
        refuse_elsewhere(table, engine)
        self._table = table
        self._names = list(names)
        self._report = report
        self._counter = Counter([table.schema[name] for name in names])
        self._incomplete = False
        self._columns = [] if table.is_lazy else [table.column(name).alias(name) for name in names]
        self.dtypes = self._types()
        for name, dtype in zip(self._names, self.dtypes, strict=True):
            refuse_nested(dtype, name)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield the columns, named c0, c1 and so on, as plain values."""
        rows = 0
        expected = None
        for batch in self._read():
            yield pl.DataFrame(
                [_plain(series).alias(f"c{position}") for position, series in enumerate(batch.get_columns())]
            )
            rows += len(batch)
            expected = expected or self._expected()
            self._report(min(1.0, rows / expected))

    def arrow(self) -> Any:
        """Return an Arrow reader of the batches."""
        import pyarrow

        empty = pl.DataFrame(
            [_plain(pl.Series(dtype=dtype)).alias(f"c{position}") for position, dtype in enumerate(self.dtypes)]
        )
        schema = empty.to_arrow().schema

        def batches() -> Iterator[Any]:
            try:
                for batch in self.batches():
                    yield from batch.to_arrow().cast(schema).to_batches()
            except GeneratorExit:  # the consumer has stopped reading
                raise
            except BaseException as error:
                self.trouble = error
                raise

        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def add(self, columns: Sequence[Any], count: Any) -> None:
        """Add counted tuples, given as plain Arrow or Polars columns."""
        values = [_restore(pl.Series(column), dtype) for column, dtype in zip(columns, self.dtypes, strict=True)]
        self._counter.add(values, pl.Series(count).cast(pl.Int64).to_numpy())

    def tuples(self) -> Tuples:
        """Return the distinct tuples, once all have been added."""
        self._counter.add([pl.Series(dtype=dtype) for dtype in self.dtypes])  # sets the types even if there are no rows
        source = self._table.source
        if isinstance(source, File) and source.is_text:
            if self._incomplete and len(source.text.names) > 1:
                self._counter.take_back(len(source.text.blank_lines()))
            return self._counter.tuples(source.text.parse)
        return self._counter.tuples()

    def _types(self) -> list[pl.DataType]:
        source = self._table.source
        if isinstance(source, File):
            return [pl.String() if source.is_text else source.types()[name] for name in self._names]
        if isinstance(source, pl.LazyFrame):
            with frame_errors():
                return [source.collect_schema()[name] for name in self._names]
        return [column.dtype for column in self._columns]

    def _read(self) -> Iterator[pl.DataFrame]:
        source = self._table.source
        if isinstance(source, File):
            with source.reading():
                yield from self._read_text(source.text) if source.is_text else _collect(source.scan(), self._names)
        elif isinstance(source, pl.LazyFrame):
            with frame_errors():
                yield from _collect(source, self._names)
        else:
            yield from pl.DataFrame(self._columns).iter_slices(_BATCH)

    def _read_text(self, text: TextFile) -> Iterator[pl.DataFrame]:
        last = text.names[-1]  # missing in short and blank lines
        columns = list(dict.fromkeys([*self._names, last]))
        for batch in _fields(text, columns):
            self._incomplete |= batch[last].has_nulls()
            yield batch.select(cs.by_name(*self._names))

    def _expected(self) -> float:
        """Return the number of rows, estimated from the beginning of a text file."""
        source = self._table.source
        if isinstance(source, File) and source.is_text:
            return source.text.expected_rows()
        if isinstance(source, pl.LazyFrame):
            return float(max(1, source.select(pl.len()).collect(engine="streaming").item()))
        return max(1.0, self._table.rows)


def native(table: Table) -> Any:
    """Return the native frame, or the source."""
    return nw.to_native(table.source, pass_through=True)


def refuse_elsewhere(table: Table, engine: str) -> None:
    """Refuse a table whose rows are in another database or cluster."""
    elsewhere = table.is_lazy and not isinstance(table.source, File | pl.LazyFrame)
    if elsewhere or (isinstance(table.source, Source) and not isinstance(table.source, File)):
        raise OptionError(
            f"the engine {engine} cannot count a {type(native(table)).__name__}, because its rows are elsewhere",
            hint="use the engine auto, which counts them where they are",
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Report a full disk while a private folder is written, instead of an error about the rows."""
    try:
        yield
    except Exception as error:
        if not is_full(error) or not (isinstance(error, OSError) or folder.name in str(error)):
            raise
        raise InputError(
            f"the disk of the folder '{folder.parent}' is too full for a copy of the rows",
            hint="set TMPDIR, or spill of DuckDB, to a folder with more space",
        ) from error


def is_full(error: Exception) -> bool:
    """Return whether an error of the system or of a database means that a disk is full."""
    return any(sign in str(error).lower() for sign in _FULL)


@contextmanager
def polars_panics() -> Iterator[None]:
    """Turn a panic of Polars, which ``except Exception`` does not catch, into an `InputError`."""
    try:
        yield
    except pl.exceptions.PanicException:
        raise InputError(
            "the table holds values that cannot be counted",
            hint="check that its types are plain and its timestamps finite",
        ) from None


def typed_table(table: Table) -> Table:
    """Return a text file as a lazily typed table; return any other table unchanged."""
    source = table.source
    if not (isinstance(source, File) and source.is_text):
        return table
    text = source.text
    with source.reading():
        found = {name: Dictionary() for name in text.names}
        incomplete = False
        for batch in _fields(text, text.names, {name: found[name].categories for name in text.names}):
            incomplete |= batch[text.names[-1]].has_nulls()
        rows = text.scan()
        if incomplete and len(text.names) > 1:
            rows = text.without_blank_lines(rows)
    dtypes = {name: text.parse(found[name].values().alias(name)).dtype for name in text.names}
    columns = [
        cs.by_name(name)
        .as_expr()
        .map_batches(partial(text.read_as, text.cells[name]), return_dtype=dtype, is_elementwise=True)
        for name, dtype in dtypes.items()
    ]
    return Table(rows.select(columns), table.schema)


def _collect(lazy: pl.LazyFrame, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    yield from lazy.select(cs.by_name(*names)).collect_batches(
        chunk_size=_BATCH, maintain_order=False, engine="streaming"
    )


def _fields(
    text: TextFile, names: Sequence[str], dtypes: dict[str, pl.DataType] | None = None
) -> Iterator[pl.DataFrame]:
    """Read the fields of a text file as texts."""
    try:
        yield from (
            text.scan(dtypes)
            .select(cs.by_name(*names))
            .collect_batches(chunk_size=_BATCH, maintain_order=False, optimizations=EVERY_FIELD)
        )
    except pl.exceptions.PolarsError as error:
        raise text.read_error(error) from None


def _plain(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if isinstance(dtype, _AS_TEXT):
        return values.cast(pl.String)
    if dtype.is_temporal():
        return values.to_physical()
    if dtype == pl.UInt64:
        return values.reinterpret(signed=True)
    if dtype in _UNSIGNED:
        return values.cast(pl.Int64)
    if dtype == pl.Float16:
        return values.cast(pl.Float32)
    return values.cast(pl.Boolean) if dtype == pl.Null else values


def _restore(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert plain values back to their type; categories stay texts, which is how they are counted."""
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return values
    if dtype == pl.UInt64:
        return values.cast(pl.Int64).reinterpret(signed=False)
    return values.cast(dtype)

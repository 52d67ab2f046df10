"""The rows of a file or a frame as a stream of plain columns, for an engine that has no reader of its own.

A file is read here as it is read everywhere else in Sfumato, so that it means the same to every
engine: the same quotes, encodings, blank lines and refusals. Types that not every engine has
(categories, times, unsigned numbers) travel as texts and integers and come back as what they were.
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
from sfumato.data.table import Table, collecting
from sfumato.engines.counter import Counter
from sfumato.engines.dictionary import Numbering
from sfumato.engines.engine import Progress
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError

__all__ = ["Stream", "copying", "is_full", "native", "panics", "refuse_elsewhere", "typed_rows"]

_BATCH = 2**17
_UNSIGNED = (pl.UInt8, pl.UInt16, pl.UInt32)
_AS_TEXT = (pl.Categorical, pl.Enum, pl.Int128, pl.UInt128)
_FULL = ("no space left", "file too large", "disk quota", "max_temp_directory_size")


class Stream:
    """Some columns of a table, batch by batch, and the way back from their counted tuples.

    Parameters
    ----------
    table : Table
        A file, a frame in memory, or a lazy Polars frame.
    names : sequence of str
    engine : str
        The name of the engine that counts; it is in the refusal of a table that lives elsewhere.
    tell : callable, optional
        What is told which share of the rows has been read, perhaps from another thread.

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
    """What went wrong in reading; an engine that reads from another thread only sees that something did."""

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        engine: str,
        tell: Progress = lambda share: None,
    ) -> None:
        refuse_elsewhere(table, engine)
        self._table = table
        self._names = list(names)
        self._tell = tell
        self._counter = Counter([table.schema[name] for name in names])
        self._incomplete = False
        self._columns = [] if table.is_lazy else [table.column(name).alias(name) for name in names]
        self.dtypes = self._types()
        for name, dtype in zip(self._names, self.dtypes, strict=True):
            refuse_nested(dtype, name)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Read the columns, which are called c0, c1 and so on, as plain values."""
        rows = 0
        expected = None
        for batch in self._read():
            yield pl.DataFrame(
                [_plain(series).alias(f"c{position}") for position, series in enumerate(batch.get_columns())]
            )
            rows += len(batch)
            expected = expected or self._expected()
            self._tell(min(1.0, rows / expected))

    def arrow(self) -> Any:
        """Return a reader of the batches for Arrow."""
        import pyarrow

        empty = pl.DataFrame(
            [_plain(pl.Series(dtype=dtype)).alias(f"c{position}") for position, dtype in enumerate(self.dtypes)]
        )
        schema = empty.to_arrow().schema

        def batches() -> Iterator[Any]:
            try:
                for batch in self.batches():
                    yield from batch.to_arrow().cast(schema).to_batches()
            except GeneratorExit:  # who reads has had enough
                raise
            except BaseException as error:
                self.trouble = error
                raise

        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def add(self, columns: Sequence[Any], count: Any) -> None:
        """Take tuples that have been counted; their columns are plain Arrow or Polars columns."""
        values = [_meant(pl.Series(column), dtype) for column, dtype in zip(columns, self.dtypes, strict=True)]
        self._counter.add(values, pl.Series(count).cast(pl.Int64).to_numpy())

    def tuples(self) -> Tuples:
        """Return the distinct tuples, once all have been taken."""
        self._counter.add([pl.Series(dtype=dtype) for dtype in self.dtypes])  # even without rows a column has a type
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
            with collecting():
                return [source.collect_schema()[name] for name in self._names]
        return [column.dtype for column in self._columns]

    def _read(self) -> Iterator[pl.DataFrame]:
        source = self._table.source
        if isinstance(source, File):
            with source.reading():
                yield from self._read_text(source.text) if source.is_text else _collected(source.scan(), self._names)
        elif isinstance(source, pl.LazyFrame):
            with collecting():
                yield from _collected(source, self._names)
        else:
            yield from pl.DataFrame(self._columns).iter_slices(_BATCH)

    def _read_text(self, text: TextFile) -> Iterator[pl.DataFrame]:
        last = text.names[-1]  # missing where a line is short or blank
        columns = list(dict.fromkeys([*self._names, last]))
        for batch in _fields(text, columns):
            self._incomplete |= batch[last].has_nulls()
            yield batch.select(cs.by_name(*self._names))

    def _expected(self) -> float:
        """Return how many rows there are, or an estimate from the beginning of a text file."""
        source = self._table.source
        if isinstance(source, File) and source.is_text:
            return source.text.expected_rows()
        if isinstance(source, pl.LazyFrame):
            return float(max(1, source.select(pl.len()).collect(engine="streaming").item()))
        return max(1.0, self._table.rows)


def native(table: Table) -> Any:
    """Return the frame as its own library knows it, or the source."""
    return nw.to_native(table.source, pass_through=True)


def refuse_elsewhere(table: Table, engine: str) -> None:
    """Refuse a table whose rows are in another database or cluster."""
    elsewhere = table.is_lazy and not isinstance(table.source, File | pl.LazyFrame)
    if elsewhere or (isinstance(table.source, Source) and not isinstance(table.source, File)):
        raise OptionError(
            f"the engine {engine} cannot count a {type(native(table)).__name__}, whose rows are elsewhere",
            hint="take the engine auto, which counts them where they are",
        )


@contextmanager
def copying(folder: Path) -> Iterator[None]:
    """Say that the disk is too full for what is written to a private folder: that is no fault of the rows."""
    try:
        yield
    except Exception as error:
        if not is_full(error) or not (isinstance(error, OSError) or folder.name in str(error)):
            raise
        raise InputError(
            f"the disk of the folder '{folder.parent}' is too full for a copy of the rows",
            hint="name a folder with more space by TMPDIR, or by spill of DuckDB",
        ) from error


def is_full(error: Exception) -> bool:
    """Say whether an error of the system, or what a database makes of it, means that a disk is full."""
    return any(sign in str(error).lower() for sign in _FULL)


@contextmanager
def panics() -> Iterator[None]:
    """Say in one sentence that Polars has panicked over a value, which no ``except Exception`` catches."""
    try:
        yield
    except pl.exceptions.PanicException:
        raise InputError(
            "the table holds values that cannot be counted", hint="are its types plain, and its moments finite?"
        ) from None


def typed_rows(table: Table) -> Table:
    """Return the rows of a text file with their types, not all of them in memory; any other table as it is."""
    source = table.source
    if not (isinstance(source, File) and source.is_text):
        return table
    text = source.text
    with source.reading():
        found = {name: Numbering() for name in text.names}
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


def _collected(lazy: pl.LazyFrame, names: Sequence[str]) -> Iterator[pl.DataFrame]:
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


def _meant(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Turn plain values back into those of a type; categories stay texts, as they are counted by these."""
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return values
    if dtype == pl.UInt64:
        return values.cast(pl.Int64).reinterpret(signed=False)
    return values.cast(dtype)

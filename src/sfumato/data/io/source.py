"""Sources of rows that are read on demand: files, and the interface that database tables share with them."""

from __future__ import annotations

import csv
import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import polars as pl
import polars.selectors as cs

from sfumato.data.io.encodings import check_encoding, is_utf8
from sfumato.data.io.files import compression_of, format_of, why
from sfumato.data.io.metadata_checks import check_memory, check_workbook, claimed_rows
from sfumato.data.io.notation import Conventions, Meaning, find_cells
from sfumato.data.io.spool import Spool
from sfumato.data.io.text import EVERY_FIELD, TextFile, check_names, refuse_record
from sfumato.errors import FileError, OptionError, SfumatoError, did_you_mean, require_extra

__all__ = ["DataSource", "File", "column"]

_FAILURES = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error, ValueError, RecursionError)

_BLOCKS = 10
"""The number of evenly spread blocks of rows in a sample of a large file."""


class DataSource(ABC):
    """A file, or a table in a database, whose rows are read on demand."""

    @abstractmethod
    def types(self) -> dict[str, pl.DataType]:
        """Return the type of each column without reading the rows; `pl.Unknown` if it depends on them."""

    @abstractmethod
    def rows(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def read(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the named columns, or all of them."""

    @abstractmethod
    def sample(self, rows: int, names: Sequence[str]) -> pl.DataFrame:
        """Read at most this many rows of the named columns; leave out columns that cannot be read."""


@dataclass(frozen=True)
class File(DataSource):
    """A CSV, TSV, Parquet, Arrow/Feather, Excel or JSON lines file.

    Parameters
    ----------
    path : Path
    separator : str, optional
        The field separator of a text file; detected from its header by default.
    encoding : str, optional
        The encoding of a text file; detected by default.
    na : tuple of str
        Texts that mean a missing value, besides the empty field.
    decimal : {".", ","}, optional
        The decimal sign of a text file; inferred for each column by default.
    dates : tuple of str
        The date formats of a text file: dmy, mdy, ymd, or formats such as ``%d.%m.%Y``; inferred by default.
    inferred : bool
        Whether to infer undeclared notations from the rows of a text file. If not, each cell is read separately, as
        private functions require.
    sheet : str, optional
        The sheet of an Excel file; needed if it has several.

    Examples
    --------
    >>> from pathlib import Path
    >>> patients = File(Path("patients.csv"))
    >>> patients.rows(), list(patients.types())[:3]
    (8, ['zip', 'age', 'sex'])
    """

    path: Path
    separator: str | None = None
    encoding: str | None = None
    na: tuple[str, ...] = ()
    decimal: str | None = None
    dates: tuple[str, ...] = ()
    inferred: bool = True
    sheet: str | None = None

    def __post_init__(self) -> None:
        try:
            exists = self.path.exists()
        except OSError as error:  # a folder above it may not be readable
            raise FileError(f"'{self.path}' cannot be read: {why(error)}") from error
        if not exists:
            raise FileError(f"there is no file '{self.path}'", hint="check the path")
        if self.path.is_dir():
            raise FileError(f"'{self.path}' is a folder, a file is needed")
        if not self.path.is_file():  # reading a pipe may block, and a device may never end
            raise FileError(f"'{self.path}' is not a regular file", hint="copy its content to a file first")
        if not self.is_text and (self.separator is not None or self.encoding or self.decimal or self.dates):
            raise OptionError(
                "a separator, an encoding, a decimal sign and date formats apply to text files, and "
                f"'{self.path.name}' is {self.format}"
            )
        if self.sheet is not None and self.format != "excel":
            raise OptionError(f"a sheet can be named only for an Excel file, and '{self.path.name}' is {self.format}")
        if self.format == "duckdb":
            raise OptionError(f"'{self.path}' is a DuckDB database", hint="read it with sf.read and table=...")
        if self.encoding is not None:
            check_encoding(self.encoding)
        _ = self.conventions  # reports a mistake now

    @cached_property
    def format(self) -> str:
        """The format: csv, tsv, parquet, arrow or excel."""
        return format_of(self.path)

    @property
    def is_text(self) -> bool:
        """Whether it is a delimited text file, whose types are known only when all rows are read."""
        return self.format in ("csv", "tsv")

    @cached_property
    def text(self) -> TextFile:
        """The text file, with its header."""
        separator = self.separator or ("\t" if self.format == "tsv" else None)
        with self.reading():
            return TextFile.open(
                self.path,
                separator,
                self.encoding,
                self.na,
                conventions=self.conventions,
                compression=compression_of(self.path),
            )

    @property
    def conventions(self) -> Conventions:
        """What is declared about the notation of numbers and dates."""
        return Conventions(self.decimal, self.dates, self.inferred)

    def types(self) -> dict[str, pl.DataType]:
        """Return the type of each column; `pl.Unknown` in a text file."""
        if self.is_text:
            return dict.fromkeys(self.text.names, pl.Unknown())
        with self.reading():
            try:
                types = self.scan().collect_schema().items()
                return {name: dtype if _is_known(dtype) else pl.Object() for name, dtype in types}
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
                if self.format != "parquet" or importlib.util.find_spec("pyarrow") is None:
                    raise
                return _types_one_by_one(self.path)  # an unreadable column matters only if it is used

    def rows(self) -> int:
        """Count the rows."""
        if self.is_text:
            return len(self.read(self.text.names[-1:]))
        with self.reading():
            return int(self.scan().select(pl.len()).collect().item())

    def read(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the named columns, or all of them."""
        with self.reading():
            if self.is_text:
                return self.text.read(names)
            scan = self.scan() if names is None else self.scan().select(map(column, names))
            if self.format in ("parquet", "arrow"):
                check_memory(self.path, self._claimed * sum(map(_width, scan.collect_schema().dtypes())))
            return scan.collect()

    def sample(self, rows: int, names: Sequence[str]) -> pl.DataFrame:
        """Read some rows: the first of a text file, blocks from all over any other file."""
        with self.reading():
            if self.is_text:
                text = replace(self.text, cells={})  # a sample must not settle the meaning of a column
                first = text.scan().head(rows).collect(optimizations=EVERY_FIELD)
                first = first.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
                return first.select(text.parse(first[name]) for name in names)
            types = self.types()
            scan = self.scan().select(column(name) for name in names if not isinstance(types[name], pl.Object))
            total, size = self.rows(), -(-rows // _BLOCKS)
            if total <= rows:
                return scan.collect()
            starts = [at * (total - size) // (_BLOCKS - 1) for at in range(_BLOCKS)]
            return pl.concat([scan.slice(start, size).collect() for start in starts]).head(rows)

    def scan(self) -> pl.LazyFrame:
        """Return a lazy frame of the file; that of a text file has texts, see `TextFile.scan`."""
        if self.is_text:
            return self.text.scan()
        if self.format in ("parquet", "arrow"):
            _ = self._claimed  # refuses an impossible claim
        if self.format == "parquet":
            lazy = pl.scan_parquet(self.path, glob=False, hive_partitioning=False)
        elif self.format == "arrow":
            lazy = pl.scan_ipc(self.path, glob=False, hive_partitioning=False)
        else:
            lazy = (self._excel() if self.format == "excel" else self._json_lines()).lazy()
        if not self.na:
            return lazy
        types = lazy.collect_schema().items()
        texts = [column(name) for name, dtype in types if isinstance(dtype, pl.String | pl.Categorical | pl.Enum)]
        return lazy.with_columns(pl.when(~text.cast(pl.String).is_in(list(self.na))).then(text) for text in texts)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn any failure to read into a `FileError`; refuse a file that changes meanwhile."""
        try:
            before = self._state()
            yield
            if self._state() != before:
                raise FileError(f"'{self.path}' changed while it was read", hint="wait until it is complete")
        except SfumatoError:
            raise
        except _FAILURES as error:
            reason = why(error, self.encoding if self.encoding and not is_utf8(self.encoding) else "UTF-8")
            raise FileError(f"'{self.path}' cannot be read as {self.format}: {reason}") from None

    @cached_property
    def _claimed(self) -> int:
        """The number of rows that a Parquet or an Arrow file claims; see `metadata_checks`."""
        with self.reading():
            return claimed_rows(self.path, self.format)

    def _state(self) -> tuple[int, int, int]:
        state = self.path.stat()
        return state.st_size, state.st_mtime_ns, state.st_ino

    def _json_lines(self) -> pl.DataFrame:
        """Read one JSON object per line; texts that are all dates become dates."""
        path = self.path
        if compression := compression_of(path):
            spool = Spool(path)
            path = spool.expand(compression)
        if not path.stat().st_size:
            raise FileError(f"'{self.path}' is empty")
        frame = pl.read_ndjson(path, infer_schema_length=None)
        check_names(self.path, frame.columns)
        if not self.inferred:
            return frame
        return frame.with_columns(_dated(values) for values in frame if values.dtype == pl.String)

    def _excel(self) -> pl.DataFrame:
        """Read the named sheet, or the only one that is not empty; types are inferred from whole columns."""
        fastexcel = require_extra("fastexcel", "excel", "reading an Excel file")
        check_workbook(self.path)
        try:
            names = fastexcel.read_excel(self.path).sheet_names
            sheet = self.sheet if self.sheet is not None or len(names) < 2 else self._only_sheet(names)
            if sheet is not None and sheet not in names:
                raise OptionError(f"'{self.path}' has no sheet '{sheet}'", hint=did_you_mean(sheet, names))
            read = partial(pl.read_excel, self.path, sheet_name=sheet, raise_if_empty=False)
            header = read(has_header=False, read_options={"n_rows": 1})
            frame = read(infer_schema_length=None)
        except SfumatoError:
            raise
        except Exception:  # noqa: BLE001 - fastexcel raises its own types, which must not be imported here
            raise FileError(f"'{self.path}' cannot be read as excel: it is damaged or of another format") from None
        names = ["" if name is None else str(name) for name in header.row(0)] if len(header) else []
        check_names(self.path, names)
        records = frame.head(100).select(pl.all().cast(pl.String, strict=False))
        refuse_record(self.path, names, records.iter_rows())
        return frame

    def _only_sheet(self, names: Sequence[str]) -> str:
        """Return the only sheet that is not empty; refuse several."""
        read = partial(pl.read_excel, self.path, has_header=False, raise_if_empty=False)
        full = [name for name in names if len(read(sheet_name=name, read_options={"n_rows": 1}))]
        if len(full) > 1:
            raise OptionError(
                f"'{self.path}' has {len(full)} sheets", hint=f"name one with sheet / --sheet: {', '.join(full)}"
            )
        return full[0] if full else names[0]


def _dated(values: pl.Series) -> pl.Series:
    """Convert texts to dates if all of them are dates in an unambiguous format."""
    cells = find_cells(values.drop_nulls().unique(), Conventions())
    return cells.read(values) if cells.meaning in (Meaning.DATE, Meaning.MOMENT) else values


def _is_known(dtype: pl.DataType) -> bool:
    """Return whether Polars can hold values of a type from a file; it cannot for numbers of 60 digits."""
    try:
        pl.Series(dtype=dtype)
    except pl.exceptions.PolarsError:
        return False
    return True


def _width(dtype: pl.DataType) -> float:
    """Return the least number of bytes that a value takes in memory."""
    if dtype.is_integer() or dtype.is_float():
        return float(re.sub(r"\D", "", type(dtype).__name__)) / 8
    if dtype.is_temporal():
        return 4.0 if dtype == pl.Date else 8.0
    return {pl.String: 16.0, pl.Binary: 16.0, pl.Categorical: 4.0, pl.Decimal: 16.0}.get(type(dtype), 1 / 8)


def _types_one_by_one(path: Path) -> dict[str, pl.DataType]:
    """Return the type of each column of a Parquet file; `pl.Object` where Polars has none."""
    import pyarrow.parquet

    types: dict[str, pl.DataType] = {}
    for field in pyarrow.parquet.read_schema(path):
        try:
            types[field.name] = pl.Series(pyarrow.array([], type=field.type)).dtype
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pyarrow.ArrowException):
            types[field.name] = pl.Object()
    return types


def column(name: str) -> pl.Expr:
    """Select the column with exactly this name; `pl.col` reads a name such as ``^.*$`` as a pattern."""
    return cs.by_name(name).as_expr()

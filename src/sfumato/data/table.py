"""Tables: a frame of any kind, or rows elsewhere, together with a schema."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import named
from sfumato.data.coding import Codes, encode, with_kind
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.io.database import Database
from sfumato.data.io.dialect import write_as_read
from sfumato.data.io.duckdb_file import open_duckdb
from sfumato.data.io.encodings import find_encoding
from sfumato.data.io.files import FORMATS, compression_of, format_of, write_frame
from sfumato.data.io.source import DataSource, File
from sfumato.data.schema import Column, Kind, Schema
from sfumato.errors import (
    ColumnError,
    InputError,
    MissingExtra,
    OptionError,
    SchemaError,
    SfumatoError,
    did_you_mean,
    require_extra,
)

__all__ = ["Table", "collect", "frame_errors", "read", "write"]


_IN_TEXT = (pl.String, pl.Date, pl.Datetime, pl.Boolean, pl.Categorical, pl.Enum, pl.Null)
_LABELLED = (nw.Categorical, nw.Enum, nw.Unknown)  # pandas categories, intervals, periods: counted by their texts
_AT_ONCE = 2**26
"""The largest text file, in bytes, that is read at once; larger ones are read on demand."""


@dataclass(frozen=True, eq=False)
class Table:
    """A frame with its schema: pandas, Polars, pyarrow, a DuckDB relation or a Spark frame.

    The frame is never modified. A column that the schema does not list gets the role ``other``
    and the kind of its type (numbers, dates, ordered categories; everything else is a category).

    A table may also refer to rows that have not been read: a file or a table in a database,
    see `read`. They are counted where they are; only `frame` reads all of them.

    Parameters
    ----------
    source
        The frame, or the source of the rows.
    schema : Schema, optional
        The roles and the public facts of the columns.
    origin : Path or File, optional
        The file that the frame was read from.
    layout : File, optional
        The text file that the frame was made from. If this table is written to a text file, it gets the same separator,
        quotes and notation of numbers and dates.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> table = sf.Table(pl.DataFrame({"age": [30, 40], "sex": ["f", "m"]}))
    >>> [(column.name, column.kind.value) for column in table.schema.columns]
    [('age', 'number'), ('sex', 'category')]
    >>> table.encode(["sex"]).values.tolist()
    [[0], [1]]
    """

    source: Any
    schema: Schema
    origin: Path | None
    file: File | None
    """The file that the rows are from, with its reading options, if it is known."""
    layout: File | None
    """The text file whose format is used when the table is written to a text file."""

    def __init__(
        self,
        source: Any,
        schema: Schema | None = None,
        *,
        origin: Path | File | None = None,
        layout: File | None = None,
    ) -> None:
        file = source if isinstance(source, File) else origin if isinstance(origin, File) else None
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "origin", origin if file is None else file.path)
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "layout", layout if file is None else file)
        names = self._names()
        known = set(names)
        listed = {} if schema is None else {column.name: column for column in Schema.of(schema).columns}
        for name in listed:
            if name not in known:
                raise SchemaError(
                    f"the schema lists a column '{name}' that the table lacks", hint=did_you_mean(name, names)
                )
        columns = (self._known(listed.get(name) or Column(name=name)) for name in names)
        rules = () if schema is None else Schema.of(schema).constraints
        object.__setattr__(self, "schema", Schema(columns, rules))

    def __repr__(self) -> str:
        kind = type(self.source)
        rows = "" if self.is_lazy else f", {self.rows:,} rows"
        return f"Table({kind.__module__.partition('.')[0]} {kind.__name__}{rows}: {named(self.schema.names)})"

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        qi: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        identifiers: Sequence[str] = (),
        person: str | None = None,
        target: str | None = None,
        keep: Sequence[str] = (),
    ) -> Table:
        """Make a table from a frame, a file or a table, with the given roles.

        Examples
        --------
        >>> import sfumato as sf
        >>> import polars as pl
        >>> frame = pl.DataFrame({"age": [30, 40], "disease": ["flu", "flu"]})
        >>> sf.Table.of(frame, qi=["age"], sensitive=["disease"]).schema.quasi
        ('age',)
        """
        schema = None if schema is None else Schema.of(schema)
        if isinstance(data, Table):
            table = cls(data.source, schema, origin=data.file or data.origin) if schema else data
        else:
            table = read(data, schema) if isinstance(data, str | Path) else cls(data, schema)
        roles = table.schema.with_roles(
            qi=qi, sensitive=sensitive, identifiers=identifiers, person=person, target=target, keep=keep
        )
        if roles == table.schema:
            return table
        same = copy.copy(table)  # keeps what is cached for the frame
        object.__setattr__(same, "schema", roles)
        return same

    @cached_property
    def frame(self) -> Any:
        """The frame; reads all rows if they are elsewhere."""
        return self.source.read() if isinstance(self.source, DataSource) else self.source

    @property
    def _is_unread(self) -> bool:
        return isinstance(self.source, DataSource) and "frame" not in self.__dict__

    @cached_property
    def _narwhal(self) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
        try:
            frame: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(self.frame)
        except TypeError as error:
            raise InputError(
                f"a table must be a frame or a file, got {type(self.frame).__name__}",
                hint="use a pandas, Polars, pyarrow, DuckDB or Spark frame",
            ) from error
        except nw.exceptions.DuplicateError as error:
            raise ColumnError("the table has two columns with the same name", hint="rename one of them") from error
        return frame

    @cached_property
    def _types(self) -> dict[str, Any]:
        source = self.source
        frame = nw.from_native(pl.DataFrame(schema=source.types())) if isinstance(source, DataSource) else self._narwhal
        with frame_errors():
            return dict(frame.collect_schema())

    def _names(self) -> list[str]:
        names = list(self._types)
        for name in names:
            if not isinstance(name, str):
                raise ColumnError(f"a column name must be a text, got {name!r}", hint="rename the columns")
        if not names:
            raise InputError("the table has no columns")
        return names

    @property
    def has_inferred_types(self) -> bool:
        """Whether types are inferred from the cells, as in a text or Excel file, where one cell can change a type.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.read("patients.csv").has_inferred_types
        True
        """
        if self.origin is None:
            return False
        name = self.origin.with_suffix("") if compression_of(self.origin) else self.origin
        return FORMATS.get(name.suffix.lower()) in ("csv", "tsv", "excel", "jsonl")

    def _known(self, column: Column) -> Column:
        """Return the column with its kind, marked if the kind was inferred from the cells."""
        found = self._typed(column)
        is_new = column.kind is Kind.AUTO and found.kind is not Kind.AUTO
        is_inferred = is_new and (self.has_inferred_types or self.holds_objects(column.name))
        return replace(found, inferred=True) if is_inferred else found

    def holds_objects(self, name: str) -> bool:
        """Return whether a column is a pandas object column, in which each value has its own type.

        Examples
        --------
        >>> import sfumato as sf
        >>> import pandas as pd
        >>> table = sf.Table(pd.DataFrame({"a": pd.Series([1, "x"], dtype=object), "b": [1, 2]}))
        >>> table.holds_objects("a"), table.holds_objects("b")
        (True, False)
        """
        return not self._is_unread and self.implementation.is_pandas() and str(self.frame[name].dtype) == "object"

    def _typed(self, column: Column) -> Column:
        """Return the column with the kind and order of its type, where the schema leaves them open."""
        if column.kind not in (Kind.AUTO, Kind.ORDINAL):
            return column
        dtype = self._types[column.name]
        if isinstance(self.source, DataSource):
            return column if isinstance(dtype, nw.Unknown) else with_kind(column, dtype)  # known after reading
        if isinstance(dtype, nw.Object) and not self.is_lazy:
            try:
                dtype = nw.from_native(self.column(column.name), series_only=True).dtype
            except ColumnError:  # reported when the column is used
                return replace(column, kind=Kind.TEXT)
        return with_kind(column, dtype)

    def declared_type(self, name: str) -> nw.dtypes.DType | None:
        """Return the declared type of a column; None if the type is inferred from the values.

        In a text file, in Excel and in a pandas object column, a single value can change the type of its column, so
        anything that depends on the type depends on that record.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Table(pl.DataFrame({"age": [30, 40]})).declared_type("age")
        Int64
        >>> sf.read("patients.csv").declared_type("age") is None
        True
        """
        if self.has_inferred_types:
            return None
        if not isinstance(self.source, DataSource) and self.implementation.is_pandas():
            return None
        dtype = self._types[name]
        return None if isinstance(dtype, nw.Unknown | nw.Object) else dtype

    def mixed_as_texts(self) -> Table:
        """Return the table with pandas object columns of several types as texts, each cell on its own.

        Examples
        --------
        >>> import pandas as pd
        >>> import sfumato as sf
        >>> table = sf.Table(pd.DataFrame({"a": pd.Series([1, "x", None], dtype=object)}))
        >>> table.mixed_as_texts().column("a").to_list()
        ['1', 'x', None]
        """
        mixed = []
        for name in filter(self.holds_objects, self._types):
            try:
                self.column(name)
            except ColumnError:
                mixed.append(name)
        if not mixed:
            return self
        texts = {name: self.frame[name].map(text_of, na_action="ignore").astype(object) for name in mixed}
        columns = self.schema.declared()
        return Table(self.frame.assign(**texts), columns, origin=self.origin)

    def as_declared(self) -> Table:
        """Return the table read with only the declared encoding and notation of its file.

        Private functions read this table: with inferred ones, a single record could change how all others are read.

        Examples
        --------
        >>> import sfumato as sf
        >>> _ = Path("labs.csv").write_text("sex;hba1c\\nf;7,5\\nm;6,1\\n")
        >>> sf.read("labs.csv").column("hba1c").to_list()
        [7.5, 6.1]
        >>> sf.read("labs.csv").as_declared().column("hba1c").to_list()
        ['7,5', '6,1']
        >>> sf.read("labs.csv", decimal=",").as_declared().column("hba1c").to_list()
        [7.5, 6.1]
        """
        file = self.file
        if file is None or not file.inferred or not (file.is_text or file.format == "jsonl"):
            return self.mixed_as_texts()  # one record must not make a column unreadable
        declared = replace(file, inferred=False)
        columns = self.schema.declared()
        if file.format == "jsonl":
            return Table(declared.read(), columns, origin=declared)
        text = file.text
        if file.encoding is None and text.encoding != find_encoding(text.path, content=False):
            raise OptionError(
                f"the encoding of '{file.path}', {text.encoding}, was inferred from its rows: "
                "one record could change it",
                hint=f"declare it with encoding / --encoding {text.encoding}",
            )
        if isinstance(self.source, File):
            return Table(declared, columns)
        if not file.decimal and not file.dates and all(one.is_plain and not one.doubt for one in text.cells.values()):
            return self
        return Table(declared.read(), columns, origin=declared)

    @property
    def is_lazy(self) -> bool:
        """Whether the rows are elsewhere (a file, a database, DuckDB, Spark) and are read on demand."""
        return isinstance(self.source, DataSource) or isinstance(self._narwhal, nw.LazyFrame)

    @property
    def implementation(self) -> nw.Implementation:
        """The library of the frame."""
        implementation: nw.Implementation = self._narwhal.implementation
        return implementation

    @cached_property
    def _collected(self) -> nw.DataFrame[Any]:
        return collect(self._narwhal, lambda all_: all_) if isinstance(self._narwhal, nw.LazyFrame) else self._narwhal

    @property
    def rows(self) -> int:
        """The number of rows."""
        if self._is_unread:
            return int(self.source.rows())
        return len(self._collected)

    def column(self, name: str) -> pl.Series:
        """Return one column as a Polars series."""
        if self._is_unread:
            values: pl.Series = self.source.read([name])[name]
            return values
        column = self._collected.get_column(name)
        try:
            if column.implementation.is_pandas() and isinstance(self._types[name], _LABELLED):
                return _labels(column.to_native())
            return column.to_polars()
        except ImportError as error:
            raise MissingExtra(
                "reading this kind of frame needs pyarrow", hint="pip install 'sfumato[arrow]'"
            ) from error
        except SfumatoError:
            raise
        except (
            TypeError,
            ValueError,
            OverflowError,
            NotImplementedError,
        ):  # includes pyarrow's errors, which quote cells
            raise ColumnError(
                f"column '{name}' holds values of mixed or unknown types",
                hint="turn them into one type, for example texts",
            ) from None

    def sample(self, rows: int, names: Sequence[str]) -> Table:
        """Return a deterministic sample of the named columns, without fetching the other rows.

        Columns that cannot be read are left out.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Table(pl.DataFrame({"age": range(100), "sex": ["f"] * 100})).sample(3, ["age"]).frame["age"].to_list()
        [0, 49, 99]
        """
        frame: Any
        if self._is_unread:
            frame = self.source.sample(rows, names)
        elif isinstance(self._narwhal, nw.LazyFrame):
            by_name = not any(sign in name for name in names for sign in "`.")  # special characters in Spark
            first = collect(self._narwhal, lambda every: (every.select(*names) if by_name else every).head(rows))
            frame = first.select(*names).to_native()
        elif len(self._collected) <= rows:
            frame = self._collected.select(*names).to_native()
        else:
            spread = np.linspace(0, len(self._collected) - 1, rows).astype(np.int64)
            frame = self._collected[spread, list(names)].to_native()
        return Table(frame, Schema(self.schema[name] for name in nw.from_native(frame).columns))

    def to_polars(self) -> pl.DataFrame:
        """Return all columns as a Polars frame.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.read("patients.csv").to_polars().shape
        (8, 4)
        """
        if isinstance(self.source, DataSource):
            frame: pl.DataFrame = self.frame
            return frame
        return pl.DataFrame([self.column(name).alias(name) for name in self.schema.names])

    def encode(self, names: Sequence[str]) -> Codes:
        """Return the named columns as integer codes with their domains."""
        unread = self._is_unread
        columns = self.source.read(names).get_columns() if unread else [self.column(name) for name in names]
        return encode(columns, [self.schema[name] for name in names])

    def decode(self, codes: Codes) -> Any:
        """Return a frame like this table's, with the encoded columns replaced by the decoded values.

        The kind of frame, its index, the order of the columns and their types are kept.

        Examples
        --------
        >>> import sfumato as sf
        >>> import pandas as pd
        >>> table = sf.Table(pd.DataFrame({"sex": ["f", "m", "f"]}, index=[7, 1, 3]))
        >>> table.decode(table.encode(["sex"])).equals(table.frame)
        True
        """
        own = self.encode(codes.names)
        if any(not mine.values.equals(theirs.values) for mine, theirs in zip(own.domains, codes.domains, strict=True)):
            raise InputError("the codes belong to another table")
        # Each code becomes the value of the first row that has it, which preserves types exactly.
        rows = {}
        for position, domain in enumerate(own.domains):
            first = np.zeros(len(domain), dtype=np.int64)
            first[own.values[::-1, position]] = np.arange(len(own.values))[::-1]
            rows[domain.name] = first[codes.values[:, position]]
        return _take_rows(self.frame, self._collected, rows)

    def drop(self, names: Sequence[str]) -> Any:
        """Return a frame like this table's without the named columns.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Table(pl.DataFrame({"name": ["Ada"], "age": [36]})).drop(["name"]).columns
        ['age']
        """
        return nw.to_native(self._narwhal.drop(*names))

    def with_columns(self, columns: Iterable[pl.Series]) -> Any:
        """Return a frame like this table's, in memory, with some columns replaced by name.

        Examples
        --------
        >>> import sfumato as sf
        >>> import pandas as pd
        >>> table = sf.Table(pd.DataFrame({"age": [30, 41]}, index=[7, 1]))
        >>> table.with_columns([pl.Series("age", ["30-39", "40-49"])]).loc[1, "age"]
        '40-49'
        """
        frame, implementation = self.frame, self._collected.implementation
        if implementation.is_pandas():
            return frame.assign(**{one.name: self._as_pandas(one) for one in columns})
        if implementation.is_pyarrow():
            for one in columns:
                at = frame.schema.get_field_index(one.name)
                values, kind = one.to_arrow(), frame.schema.field(at).type
                with suppress(ValueError, NotImplementedError):  # includes pyarrow's errors
                    values = values.cast(kind) if self._keeps_type(one) else values
                frame = frame.set_column(at, one.name, values)
            return frame
        polars = self._collected.to_polars()
        return polars.with_columns(
            one.cast(polars[one.name].dtype) if self._keeps_type(one) else one for one in columns
        )

    def _keeps_type(self, values: pl.Series, categories: Iterable[Any] | None = None) -> bool:
        """Return whether values fit the type of the column that they replace, such as its categories."""
        if categories is None:
            old = self.column(values.name)
            if not isinstance(old.dtype, pl.Categorical | pl.Enum):
                return values.dtype == old.dtype
            categories = old.dtype.categories if isinstance(old.dtype, pl.Enum) else old.unique()
        return set(values.drop_nulls().unique()) <= set(categories)

    def _as_pandas(self, values: pl.Series) -> Any:
        """Return values as a pandas column, with the type of the column that they replace if they fit."""
        index, dtype = self.frame.index, self.frame[values.name].dtype
        if str(dtype) != "object" and self._keeps_type(values, getattr(dtype, "categories", None)):
            with suppress(ImportError, TypeError, ValueError):
                # Through Arrow: otherwise integers with missing values would become floats.
                exact = values.to_pandas(use_pyarrow_extension_array=True).astype(dtype)
                if int(exact.isna().sum()) == values.null_count():
                    return exact.set_axis(index)
        return values.to_pandas().set_axis(index)


def read(
    path: str | Path,
    schema: Schema | None = None,
    *,
    table: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
    decimal: str | None = None,
    dates: str | Sequence[str] = (),
    inferred: bool = True,
    sheet: str | None = None,
) -> Table:
    """Read a CSV, TSV, Parquet, Arrow/Feather, Excel or JSON lines file, or a table in a database.

    A database, a Parquet or Arrow file, and a large text file are read on demand, and only the columns
    that are needed.

    Parameters
    ----------
    path : str or Path
        A file; text files may be compressed (``.csv.gz``, ``.csv.zst``). Or a DuckDB database (``.duckdb``), or the
        address of a database such as ``postgresql://user@host/name`` or ``sqlite:///file.db``.
    schema : Schema, optional
        The roles and the public facts of the columns.
    table : str, optional
        The name of the table in the database; optional for a DuckDB file with only one table.
    separator : str, optional
        The field separator of a text file; detected from its header by default.
    encoding : str, optional
        The encoding of a text file. By default that of its byte order mark, else UTF-8, or Windows-1252 (cp1252) if it
        is not valid UTF-8 and plausible as Windows-1252.
    na : sequence of str
        Texts that mean a missing value, besides the empty field.
    decimal : {".", ","}, optional
        The decimal sign of a text file. By default a column has decimal commas if its values can be read as numbers in
        no other way.
    dates : str or sequence of str
        The date formats of a text file: dmy, mdy or ymd for the order of day, month and year, or formats such as
        ``%d.%m.%Y``. By default inferred for each column whose values can be read in only one way.
    inferred : bool
        Whether to infer undeclared notations from the rows of a text file. Private functions do not; see
        `Table.as_declared`.
    sheet : str, optional
        The sheet of an Excel file; required if more than one is not empty.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.read("patients.csv").rows
    8
    """
    dates = (dates,) if isinstance(dates, str) else tuple(dates)
    if isinstance(path, str) and "://" in path:
        for_files = [separator, encoding, decimal, sheet, *na, *dates]
        return Table(_database(path, table, any(one is not None for one in for_files)), schema)
    if FORMATS.get(Path(path).suffix.lower()) == "duckdb":
        if any(one is not None for one in (separator, encoding, decimal, sheet, *na, *dates)):
            raise OptionError(f"'{path}' is a database: options for text files and sheets do not apply")
        return Table(open_duckdb(Path(path), table), schema, origin=Path(path))
    if table is not None:
        hint = f"give an SQLite file as sqlite:///{path}" if _is_sqlite(Path(path)) else "omit table / --table"
        raise OptionError(f"a table can be named only for a database, and '{path}' is a file", hint=hint)
    file = File(
        Path(path),
        separator=separator,
        encoding=encoding,
        na=tuple(na),
        decimal=decimal,
        dates=dates,
        inferred=inferred,
        sheet=sheet,
    )
    at_once = file.format in ("excel", "jsonl") or (file.is_text and file.path.stat().st_size <= _AT_ONCE)
    return Table(file.read() if at_once else file, schema, origin=file)


def _database(url: str, table: str | None, for_files: bool) -> Database:
    database = Database(url, table or "")  # refuses a bad address first
    if for_files:
        raise OptionError(
            "a separator, an encoding, a decimal sign, date formats and marks of missing values apply to files, "
            "not to databases"
        )
    if table is None:
        raise OptionError("no table of the database is named", hint="give its name with table / --table")
    return database


def _is_sqlite(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(6) == b"SQLite"
    return False


def write(table: Table | Any, path: str | Path, *, escape_formulas: bool = False) -> None:
    """Write a table or a frame atomically as CSV, TSV, JSON lines, Parquet, Arrow or Excel.

    A table from a text file is written to a text file in the original format: with its separator, quotes, line ends
    and encoding, and with numbers and dates as they were.

    Parameters
    ----------
    table : Table or frame
        The rows to write.
    path : path
        The file; the end of its name decides the format.
    escape_formulas : bool
        Whether to put an apostrophe before cells of a CSV or TSV file that a spreadsheet would evaluate, such as
        ``=1+1``.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write(sf.read("patients.csv"), "patients.parquet")
    >>> sf.read("patients.parquet").rows
    8
    """
    table = table if isinstance(table, Table) else Table(table)
    if table.layout is not None and table.layout.is_text and format_of(Path(path)) in ("csv", "tsv"):
        frame = table.to_polars()
        if all(dtype.is_numeric() or dtype in _IN_TEXT for dtype in frame.dtypes):
            write_as_read(frame, table.layout, path, escape_formulas=escape_formulas)
            return
    if isinstance(table.source, pl.LazyFrame):
        write_frame(table.source, path, escape_formulas=escape_formulas)
        return
    write_frame(table.to_polars(), path, escape_formulas=escape_formulas)


def collect(lazy: nw.LazyFrame[Any], query: Callable[[nw.LazyFrame[Any]], nw.LazyFrame[Any]]) -> nw.DataFrame[Any]:
    """Run a query where a frame lives, and fetch the result as a Polars frame."""
    if not lazy.implementation.is_polars():
        require_extra("pyarrow", "arrow", "reading this kind of frame")
    with frame_errors():
        return query(lazy).collect("polars")


@contextmanager
def frame_errors() -> Iterator[None]:
    """Turn any error of a database or a cluster into an `InputError`."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:  # noqa: BLE001 - from any driver; its message may quote rows
        raise InputError(
            f"the frame cannot be read where it lives ({type(error).__name__})",
            hint="check that it still exists and has only plain types: cast others in a view, a duration to seconds",
        ) from None


def _labels(column: Any) -> pl.Series:
    """Return the labels of a pandas column as texts."""
    labels = column.astype("category").cat
    texts = pl.Series(column.name, [str(label) for label in labels.categories], dtype=pl.String)
    if texts.n_unique() < len(texts):
        raise ValueError("two labels have the same text")
    position = pl.Series(labels.codes.to_numpy())
    return texts.gather(position.set(position < 0, None))


def _take_rows(frame: Any, collected: nw.DataFrame[Any], rows: dict[str, NDArray[np.int64]]) -> Any:
    """Return a frame of the same kind with the values of each named column taken from the given rows."""
    implementation = nw.from_native(frame).implementation
    if implementation.is_pandas():
        return frame.assign(**{name: frame[name].iloc[row].set_axis(frame.index) for name, row in rows.items()})
    if implementation.is_pyarrow():
        for name, row in rows.items():
            position = frame.schema.get_field_index(name)
            frame = frame.set_column(position, frame.schema.field(position), frame.column(position).take(row))
        return frame
    polars: pl.DataFrame = collected.to_polars()
    result = polars.with_columns(polars[name].gather(row) for name, row in rows.items())
    if implementation.is_duckdb():
        relation = implementation.to_native_namespace().from_arrow(result.to_arrow())
        names = ['"' + name.replace('"', '""') + '"' for name in frame.columns]
        typed = (f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, frame.types, strict=True))
        return relation.project(", ".join(typed))
    if implementation.is_pyspark():
        return frame.sparkSession.createDataFrame(result.to_arrow(), schema=frame.schema)
    return result.lazy() if isinstance(frame, pl.LazyFrame) else result

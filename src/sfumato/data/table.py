"""A table: any kind of frame together with its schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from sfumato._errors import ColumnError, InputError, MissingExtra, SchemaError, did_you_mean, require_extra
from sfumato.data.coding import Codes, encode
from sfumato.data.files import read_frame, write_frame
from sfumato.data.schema import Column, Kind, Schema

__all__ = ["Table", "read", "write"]


@dataclass(frozen=True, eq=False)
class Table:
    """Any frame with its schema: pandas, Polars, pyarrow, a DuckDB relation or a Spark frame.

    The frame is kept as it is and never modified. A column that the schema does not list
    gets the role ``other`` and the kind of its type (numbers, dates, ordered categories;
    everything else is a category).

    Parameters
    ----------
    frame
        The frame.
    schema : Schema, optional

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

    frame: Any
    schema: Schema

    def __init__(self, frame: Any, schema: Schema | None = None) -> None:
        object.__setattr__(self, "frame", frame)
        names = self._names()
        known = set(names)
        listed = {column.name: column for column in schema.columns} if schema else {}
        for name in listed:
            if name not in known:
                raise SchemaError(
                    f"the schema lists a column '{name}' that the table lacks", hint=did_you_mean(name, names)
                )
        object.__setattr__(self, "schema", Schema(self._known(listed.get(name) or Column(name=name)) for name in names))

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        schema: Schema | None = None,
        qi: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        identifiers: Sequence[str] = (),
        target: str | None = None,
    ) -> Table:
        """Make a table of a frame, a file or a table, with these roles.

        Examples
        --------
        >>> import sfumato as sf
        >>> import polars as pl
        >>> frame = pl.DataFrame({"age": [30, 40], "disease": ["flu", "flu"]})
        >>> sf.Table.of(frame, qi=["age"], sensitive=["disease"]).schema.quasi
        ('age',)
        """
        if isinstance(data, Table):
            table = cls(data.frame, schema) if schema else data
        else:
            table = read(data, schema) if isinstance(data, str | Path) else cls(data, schema)
        roles = table.schema.with_roles(qi=qi, sensitive=sensitive, identifiers=identifiers, target=target)
        return table if roles == table.schema else cls(table.frame, roles)

    @cached_property
    def _narwhal(self) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
        try:
            frame: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(self.frame)
            frame.collect_schema()
        except nw.exceptions.DuplicateError as error:
            raise ColumnError("the table has two columns of one name", hint="rename one of them") from error
        except TypeError as error:
            raise InputError(
                f"a table must be a frame or a file, got {type(self.frame).__name__}",
                hint="pandas, Polars, pyarrow, DuckDB and Spark frames are",
            ) from error
        return frame

    @cached_property
    def _types(self) -> dict[str, Any]:
        return dict(self._narwhal.collect_schema())

    def _names(self) -> list[str]:
        names = list(self._types)
        for name in names:
            if not isinstance(name, str):
                raise ColumnError(f"a column name must be a text, got {name!r}", hint="rename the columns")
        if not names:
            raise InputError("the table has no columns")
        return names

    def _known(self, column: Column) -> Column:
        """Return the column with the kind, and the order, that its type has if the schema leaves them open."""
        if column.kind not in (Kind.AUTO, Kind.ORDINAL):
            return column
        dtype = self._types[column.name]
        if isinstance(dtype, nw.Object) and not self.is_lazy:
            try:
                dtype = nw.from_native(self.column(column.name), series_only=True).dtype
            except ColumnError:  # said when the column is used
                return replace(column, kind=Kind.TEXT)
        order = tuple(map(str, dtype.categories)) if isinstance(dtype, nw.Enum) else ()
        if order or column.kind is Kind.ORDINAL:
            return replace(column, kind=Kind.ORDINAL, domain=column.domain or order or None)
        if dtype.is_numeric() or isinstance(dtype, nw.Duration):
            return replace(column, kind=Kind.NUMBER)
        return replace(column, kind=Kind.DATE if isinstance(dtype, nw.Date | nw.Datetime) else Kind.CATEGORY)

    @property
    def is_lazy(self) -> bool:
        """Whether the frame lives elsewhere (DuckDB, Spark) and is only collected on demand."""
        return isinstance(self._narwhal, nw.LazyFrame)

    @cached_property
    def _collected(self) -> nw.DataFrame[Any]:
        if isinstance(self._narwhal, nw.LazyFrame):
            require_extra("pyarrow", "arrow", "reading this kind of frame")
            return self._narwhal.collect("polars")
        return self._narwhal

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._collected)

    def column(self, name: str) -> pl.Series:
        """Return one column as a Polars series."""
        column = self._collected.get_column(name)
        try:
            if column.implementation.is_pandas() and _is_labelled(self._types[name]):
                return _labels(column.to_native())
            return column.to_polars()
        except ImportError as error:
            raise MissingExtra(
                "reading this kind of frame needs pyarrow", hint="pip install 'sfumato[arrow]'"
            ) from error
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:  # pyarrow's errors are of these
            raise ColumnError(
                f"column '{name}' holds values of mixed or unknown types",
                hint="turn them into one type, for example texts",
            ) from error

    def encode(self, names: Sequence[str]) -> Codes:
        """Return the named columns as integer codes with their domains."""
        return encode([self.column(name) for name in names], [self.schema[name] for name in names])

    def decode(self, codes: Codes) -> Any:
        """Return a frame like this table's, with the coded columns replaced by what the codes say.

        The kind of frame, its index, the order of the columns and their types are kept.

        Examples
        --------
        >>> import sfumato as sf
        >>> import pandas as pd
        >>> table = sf.Table(pd.DataFrame({"sex": ["f", "m", "f"]}, index=[7, 1, 3]))
        >>> table.decode(table.encode(["sex"])).equals(table.frame)
        True
        """
        return _replace(self.frame, self._collected, codes)


def read(
    path: str | Path,
    schema: Schema | None = None,
    *,
    separator: str | None = None,
    encoding: str = "utf-8",
    na: Sequence[str] = (),
) -> Table:
    """Read a CSV, TSV, Parquet, Arrow/Feather or Excel file as a table.

    Parameters
    ----------
    path : str or Path
    schema : Schema, optional
    separator : str, optional
        What separates the fields of a text file; found from its header by default.
    encoding : str
        The encoding of a text file.
    na : sequence of str
        Texts that stand for a missing value, besides the empty field.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.read("patients.csv").rows
    8
    """
    return Table(read_frame(path, separator=separator, encoding=encoding, na=na), schema)


def write(table: Table | Any, path: str | Path) -> None:
    """Write a table or a frame as CSV, TSV, Parquet or Arrow: all of it, or nothing.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write(sf.read("patients.csv"), "patients.parquet")
    >>> sf.read("patients.parquet").rows
    8
    """
    table = table if isinstance(table, Table) else Table(table)
    write_frame(pl.DataFrame([table.column(name).alias(name) for name in table.schema.names]), path)


def _is_labelled(dtype: Any) -> bool:
    """Say whether a pandas column has labels (categories, intervals, periods), which are counted by their texts."""
    return isinstance(dtype, nw.Categorical | nw.Enum | nw.Unknown)


def _labels(column: Any) -> pl.Series:
    """Return the labels of a pandas column as texts."""
    labels = column.astype("category").cat
    texts = pl.Series(column.name, [str(label) for label in labels.categories], dtype=pl.String)
    position = pl.Series(labels.codes.to_numpy())
    return texts.gather(position.set(position < 0, None))


def _replace(frame: Any, collected: nw.DataFrame[Any], codes: Codes) -> Any:
    """Put decoded columns into a frame of the same kind, with the same types."""
    implementation = nw.from_native(frame).implementation
    taken = dict(zip(codes.names, codes.values.T, strict=True))
    levels = {domain.name: domain.values.to_list() for domain in codes.domains}
    if implementation.is_pandas():
        pandas = implementation.to_native_namespace()
        columns = {}
        for name, position in taken.items():
            original = frame[name]
            label = {str(value): value for value in original.dropna().unique()} if levels[name] else {}
            values = [label.get(str(level), level) for level in levels[name]]
            array = pandas.array(values, dtype=original.dtype)
            columns[name] = pandas.Series(array.take(position), index=frame.index)
        return frame.assign(**columns)
    if implementation.is_pyarrow():
        arrow = implementation.to_native_namespace()
        for name, position in taken.items():
            kind = frame.schema.field(name)
            column = arrow.array(levels[name]).take(arrow.array(position)).cast(kind.type)
            frame = frame.set_column(frame.schema.get_field_index(name), kind, column)
        return frame
    polars: pl.DataFrame = collected.to_polars()
    result = polars.with_columns(codes.column(name).cast(polars.schema[name]) for name in taken)
    if implementation.is_duckdb():
        return implementation.to_native_namespace().from_arrow(result.to_arrow())
    if implementation.is_pyspark():
        return frame.sparkSession.createDataFrame(result.to_arrow(), schema=frame.schema)
    return result

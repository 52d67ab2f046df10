"""Dictionary encoding: integer codes for the values of columns.

No algorithm in Sfumato sees a dataframe: each value is replaced by its position in the sorted distinct values of its
column (its domain). `Table.decode` maps codes back to values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import ClassVar

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind
from sfumato.errors import ColumnError, SchemaError

__all__ = [
    "Codes",
    "Domain",
    "canonical_text",
    "codes_in",
    "encode",
    "encode_column",
    "person_texts",
    "positions_in",
    "refuse_nested",
    "replace_values",
    "texts_of",
    "with_kind",
]

_CALENDAR = (-719_162, 2_932_896)  # the days of the years 1 to 9999, counted from 1970
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_NUMBER = re.compile(r"[+-]?(?:(?!0\d)\d+\.?\d*|\.\d+)(?:[eE][+-]\d+)?|[+-]?(?:inf|nan|Inf|NaN)")
_WHOLE = re.compile(r"-?[1-9]\d*|0")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")
_NESTED = (pl.List, pl.Array, pl.Struct, pl.Object, pl.Unknown)


@dataclass(frozen=True, eq=False, repr=False)
class Domain(Discreet):
    """The distinct values of one column in order; code ``i`` stands for ``values[i]``.

    Missing, if it occurs, is the last value. NaN counts as missing, and -0.0 equals 0.0.
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("name",)

    column: Column
    values: pl.Series

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.column.name

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def missing(self) -> int | None:
        """The code of the missing value, or None if no value is missing."""
        last = len(self.values) - 1
        return last if last >= 0 and self.values[last] is None else None

    def code_of(self, text: str) -> int | None:
        """Return the code of the value with the given text, or None."""
        if self.values.dtype == pl.String:
            found = (self.values == text).arg_max()
            return found if found is not None and self.values[found] == text else None
        if not any(map(str.isalnum, text)):
            return None  # a mark such as * is not a number, date or truth value
        return next((code for code in range(len(self)) if self.label(code) == text), None)

    def label(self, code: int) -> str:
        """Return the text of the value of a code."""
        code = int(code)
        if code not in self._labels:
            self._labels[code] = self._text(code)
        return self._labels[code]

    @cached_property
    def _labels(self) -> dict[int, str]:
        """The texts that have been asked for: many measures name the same class."""
        return {}

    def _text(self, code: int) -> str:
        value = self.values.slice(code, 1)
        if isinstance(value.dtype, pl.Date | pl.Datetime):
            per_day = _PER_DAY[value.dtype.time_unit] if isinstance(value.dtype, pl.Datetime) else 1
            days = value.to_physical().cast(pl.Int64) // per_day
            if not days.is_between(*_CALENDAR).fill_null(True)[0]:
                value = value.to_physical()  # a time beyond Python's calendar: show the number of units since 1970
        if value.dtype == pl.Float32:
            value = value.cast(pl.String).cast(pl.Float64)  # 0.7, not 0.699999988079071
        return text_of(value[0])


@dataclass(frozen=True, eq=False, repr=False)
class Codes(Discreet):
    """Several columns as integer codes: a row per record, a column per domain."""

    values: NDArray[np.int32]
    domains: tuple[Domain, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coded columns."""
        return tuple(domain.name for domain in self.domains)


def encode(series: Sequence[pl.Series], columns: Sequence[Column]) -> Codes:
    """Return several columns as integer codes with their domains."""
    rows = len(series[0]) if series else 0
    codes = np.empty((rows, len(series)), dtype=np.int32, order="F")
    domains = []
    for position, (values, column) in enumerate(zip(series, columns, strict=True)):
        codes[:, position], domain = encode_column(values, column)
        domains.append(domain)
    return Codes(codes, tuple(domains))


def encode_column(values: pl.Series, column: Column) -> tuple[NDArray[np.uint32], Domain]:
    """Return the code of each value of one column, and the domain of the column."""
    if column.kind is Kind.AUTO:
        column = with_kind(column, nw.from_native(values, series_only=True).dtype)
    plain = _plain(values, column.name)
    domain = Domain(column, _distinct(plain, column))
    return positions_in(plain, domain.values).to_numpy(), domain


def codes_in(domain: Domain, values: pl.Series) -> NDArray[np.uint32]:
    """Return the code of each value; all values must be in the domain."""
    return positions_in(_plain(values, domain.name).cast(domain.values.dtype), domain.values).to_numpy()


def positions_in(values: pl.Series, known: pl.Series) -> pl.Series:
    """Return the position of each value among distinct known values, or null; a missing value equals a missing one.

    Examples
    --------
    >>> positions_in(pl.Series(["b", None, "c"]), pl.Series(["a", "b", None])).to_list()
    [1, 2, None]
    """
    rows, look_up = values.rename("value").to_frame(), known.rename("value").to_frame().with_row_index("position")
    return rows.join(look_up, on="value", how="left", nulls_equal=True, maintain_order="left")["position"]


def with_kind(column: Column, dtype: nw.dtypes.DType) -> Column:
    """Return the column with the kind and order of its type, where the schema leaves them open."""
    if column.kind not in (Kind.AUTO, Kind.ORDINAL):
        return column
    order = tuple(map(str, dtype.categories)) if isinstance(dtype, nw.Enum) else ()
    if order or column.kind is Kind.ORDINAL:
        return replace(column, kind=Kind.ORDINAL, domain=column.domain or order or None)
    if dtype.is_numeric() or isinstance(dtype, nw.Duration):
        return replace(column, kind=Kind.NUMBER)
    return replace(column, kind=Kind.DATE if isinstance(dtype, nw.Date | nw.Datetime) else Kind.CATEGORY)


def refuse_nested(dtype: pl.DataType, name: str) -> None:
    """Refuse a column of lists or records, which cannot be encoded."""
    if dtype in _NESTED:
        raise ColumnError(
            f"column '{name}' holds {str(dtype).split('(')[0].lower()} values, "
            "but only numbers, texts, dates and truth values can be counted"
        )


def _plain(values: pl.Series, name: str) -> pl.Series:
    """Make values comparable: NaN becomes missing, and categories become texts."""
    refuse_nested(values.dtype, name)
    if values.dtype.is_float():
        return values.fill_nan(None)
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    return values


def _distinct(values: pl.Series, column: Column) -> pl.Series:
    distinct = values.unique().sort(nulls_last=True)
    if column.kind is not Kind.ORDINAL or column.domain is None:
        return distinct
    present = set(distinct.to_list())
    unknown = present - {None} - set(column.domain)
    if unknown:
        raise SchemaError(
            f"column '{column.name}' holds {len(unknown)} different value(s) that its ordered domain does not list"
        )
    ordered = [value for value in column.domain if value in present]
    return pl.Series(distinct.name, ordered + [None] * (None in present), dtype=distinct.dtype)


def texts_of(domain: Domain) -> list[str | None]:
    """Return the values of a domain as texts in the order of their codes, with None for a missing value.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"age": [30.0, None, 7.5]}))
    >>> texts_of(table.encode(["age"]).domains[0])
    ['7.5', '30', None]
    """
    values = domain.values
    if values.dtype == pl.String:
        return values.to_list()
    if values.dtype.is_numeric() and values.dtype != pl.Float32:
        return [None if value is None else text_of(value) for value in values.to_list()]
    return [None if code == domain.missing else domain.label(code) for code in range(len(domain))]


def canonical_text(text: str) -> str | None:
    """Return the canonical form of a cell: a number in its shortest form, a date and time in ISO form, or the text.

    In a text file, all values of a column together decide whether it contains numbers, so one record could change how
    all others are read. The canonical form depends on the cell alone.

    Examples
    --------
    >>> [canonical_text(text) for text in ("30.0", " 30", "030", "f", "nan")]
    ['30', '30', '030', 'f', None]
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        return text_of(number + 0.0) if number == number else None
    if _MOMENT.fullmatch(text):
        try:
            return str(datetime.fromisoformat(text))
        except ValueError:  # not a valid date or time
            return text
    return text


def person_texts(values: pl.Series) -> pl.Series:
    """Return a person column as texts, each cell independently; long whole numbers stay exact.

    Examples
    --------
    >>> person_texts(pl.Series([2**60 + 1, None])).to_list(), person_texts(pl.Series(["7.0", "007"])).to_list()
    (['1152921504606846977', None], ['7', '007'])
    """
    distinct = values.unique()
    known = (None if value is None or value != value else str(value).strip() for value in distinct.to_list())
    texts = [one if one is None or _WHOLE.fullmatch(one) else canonical_text(one) for one in known]
    return replace_values(values, distinct, pl.Series(texts, dtype=pl.String))


def replace_values(values: pl.Series, distinct: pl.Series, by: pl.Series) -> pl.Series:
    """Replace each of the distinct values by the one at the same position.

    Examples
    --------
    >>> replace_values(pl.Series([3, 5, 3]), pl.Series([3, 5]), pl.Series(["a", "b"])).to_list()
    ['a', 'b', 'a']
    """
    table, rows = pl.DataFrame({"value": distinct, "by": by}), values.rename("value").to_frame()
    return rows.join(table, on="value", how="left", nulls_equal=True, maintain_order="left")["by"]

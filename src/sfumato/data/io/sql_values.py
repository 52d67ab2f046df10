"""Convert values from a database driver to Polars columns.

No conversion merges two values: a text is read as a date or a time only if all texts of its column have one format,
and the format writes each value back as its original text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from sfumato.errors import ColumnError

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["Reader", "dtype_of", "mixed_types", "sqlite_dtype"]

_HELD: dict[type[pl.DataType], set[type]] = {
    pl.Int64: {int},
    pl.Float64: {int, float, Decimal},
    pl.Decimal: {Decimal},
    pl.String: {str},
    pl.Boolean: {bool, int},
    pl.Date: {date, str},
    pl.Datetime: {datetime, str},
    pl.Time: {time, str},
}
_UNITS = ("auto", "minutes", "seconds", "milliseconds", "microseconds")
_READ: dict[type[pl.DataType], Callable[[str], Any]] = {
    pl.Date: date.fromisoformat,
    pl.Datetime: datetime.fromisoformat,
    pl.Time: time.fromisoformat,
}
_FORMS: dict[type[pl.DataType], list[Callable[[Any], str]]] = {
    pl.Date: [date.isoformat],
    pl.Datetime: [
        lambda moment: date.isoformat(moment.date()),
        *(partial(datetime.isoformat, sep=between, timespec=unit) for between in " T" for unit in _UNITS),
    ],
    pl.Time: [partial(time.isoformat, timespec=unit) for unit in _UNITS],
}
_SQLITE_TYPES: dict[frozenset[str], pl.DataType] = {
    frozenset(): pl.String(),
    frozenset({"text"}): pl.String(),
    frozenset({"integer"}): pl.Int64(),
    frozenset({"real"}): pl.Float64(),
    frozenset({"integer", "real"}): pl.Float64(),
}


def dtype_of(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> pl.DataType:
    """Return the Polars type for an SQL type; `pl.Object` if there is none."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    if isinstance(kind, postgresql.DOMAIN):
        return dtype_of(kind.data_type, dialect)
    if isinstance(kind, sa.Float):
        return pl.Float64()
    if isinstance(kind, sa.Numeric):
        precision, scale = kind.precision, kind.scale or 0
        exact = dialect.name != "sqlite" and precision is not None and 0 <= scale <= precision <= 38
        return pl.Decimal(precision, scale) if exact else pl.Float64()  # SQLite has only floats, PostgreSQL any digits
    if isinstance(kind, sa.DateTime):
        return pl.Datetime("us", "UTC" if kind.timezone else None)
    if isinstance(kind, sa.Time):
        return pl.String() if kind.timezone else pl.Time()
    plain: dict[type[sa.types.TypeEngine[Any]], pl.DataType] = {
        sa.Boolean: pl.Boolean(),
        sa.Integer: pl.Int64(),
        sa.Date: pl.Date(),
        sa.String: pl.String(),
        sa.Uuid: pl.String(),
    }
    for known, dtype in plain.items():
        if isinstance(kind, known):
            return dtype
    untyped = dialect.name == "sqlite" and isinstance(kind, sa.types.NullType | sa.LargeBinary)
    return pl.Unknown() if untyped else pl.Object()


def sqlite_dtype(storage: Set[str]) -> pl.DataType:
    """Return the Polars type for a column with these SQLite storage classes; `pl.Unknown` if they do not mix.

    Examples
    --------
    >>> sqlite_dtype({"integer", "real", "null"}), sqlite_dtype({"integer", "text"})
    (Float64, Unknown)
    """
    return pl.Object() if "blob" in storage else _SQLITE_TYPES.get(frozenset(storage - {"null"}), pl.Unknown())


class Reader:
    """Convert the values of one column, batch by batch.

    Examples
    --------
    >>> seen = Reader("seen", pl.Datetime("us"))
    >>> seen.series(["2020-01-31 10:30", None]).to_list()
    [datetime.datetime(2020, 1, 31, 10, 30), None]
    >>> try:
    ...     seen.series(["2020-01-31T10:30"])
    ... except ColumnError as error:
    ...     print(error.message)
    column 'seen' holds values of mixed or unknown types
    """

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        self._name = name
        self._dtype = dtype
        self._forms = _FORMS.get(type(dtype), [])  # the formats that fit all texts so far

    def series(self, values: Sequence[Any]) -> pl.Series:
        """Convert a batch of values to a series."""
        kinds = set(map(type, values)) - {type(None)}
        try:
            if not kinds <= _HELD[type(self._dtype)]:
                raise TypeError
            return pl.Series(self._name, self._read(values, kinds), dtype=self._dtype, strict=True)
        except ColumnError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise mixed_types(self._name, self._dtype) from None

    def _read(self, values: Sequence[Any], kinds: set[type]) -> Sequence[Any]:
        """Convert driver values to values of the column's type."""
        read: Callable[[Any], Any] | None = None
        if isinstance(self._dtype, pl.Float64) and kinds - {float}:
            read = partial(_float, name=self._name)
        elif isinstance(self._dtype, pl.Decimal):
            read = _without_nan
        elif isinstance(self._dtype, pl.Boolean) and int in kinds:
            read = {0: False, 1: True}.__getitem__
        elif self._dtype.is_temporal() and str in kinds:
            return self._times(values)
        return [None if value is None else read(value) for value in values] if read else values

    def _times(self, texts: Sequence[str | None]) -> list[Any]:
        """Parse dates or times; raise ValueError if the texts have no common format."""
        read = _READ[type(self._dtype)]
        known = {text: read(text) for text in dict.fromkeys(texts) if text is not None}
        # Polars would drop the time zone and merge 10:00 in two zones.
        if any(getattr(value, "tzinfo", None) is not None for value in known.values()):
            raise ValueError
        self._forms = [form for form in self._forms if all(form(value) == text for text, value in known.items())]
        if not self._forms:
            raise ValueError
        return [None if text is None else known[text] for text in texts]


def mixed_types(name: str, dtype: pl.DataType) -> ColumnError:
    """Return the error for a column whose values are not all of this type."""
    return ColumnError(
        f"column '{name}' holds values of mixed or unknown types",
        hint="write all of them like 2020-01-31 or 2020-01-31 10:30:00, or cast them to text in a view"
        if dtype.is_temporal()
        else "turn them into one type, for example texts",
    )


def _without_nan(value: Decimal) -> Decimal | None:
    return None if value.is_nan() else value


def _float(value: float | Decimal, name: str) -> float:
    """Convert a number to a float; refuse one that a float cannot represent exactly."""
    number = float(value)
    if not isinstance(value, float) and number == number and Decimal(repr(number)) != value:
        raise ColumnError(
            f"column '{name}' holds numbers with more digits than a float can represent",
            hint="give it a type such as numeric(20, 4), or round it in a view",
        )
    return number

"""The kinds of values of a column, and how each becomes a number: dates in days, times and durations in seconds.

A kind is public: it follows from the type of a frame or from the schema, never from cells. In a text file, where one
cell could change the type of a column, the schema declares the kind, and each cell is read on its own.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.features import as_numbers

__all__ = ["Values", "as_values", "in_type", "numbers_in", "round_step", "type_name", "type_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PER_SECOND = {"ms": 1e3, "us": 1e6, "ns": 1e9}
_MOMENT = r"^(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d(?:\.\d+)?))?)?$"  # in text files
_DAY = 86_400.0
_PLAIN: dict[str, pl.DataType] = {
    str(one): one()
    for one in (
        pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
        pl.Boolean, pl.String, pl.Date, pl.Time, pl.Null,
    )
}  # fmt: skip
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


class Values(StrEnum):
    """The values of a column."""

    TEXT = "text"
    TRUTH = "truth"
    WHOLE = "whole"
    REAL = "real"
    DATE = "date"
    MOMENT = "moment"
    """A date and time."""
    TIME = "time"
    """A time of day."""
    SPAN = "span"
    """A duration."""

    @classmethod
    def of(cls, dtype: pl.DataType) -> Values:
        """Return the kind of values of a type, which is public.

        Examples
        --------
        >>> Values.of(pl.Int16()).value, Values.of(pl.Datetime("ms")).value, Values.of(pl.Enum(["a"])).value
        ('whole', 'moment', 'text')
        """
        if dtype.is_integer():
            return cls.WHOLE
        if dtype.is_numeric():
            return cls.REAL
        kinds = {pl.Boolean: cls.TRUTH, pl.Date: cls.DATE, pl.Datetime: cls.MOMENT, pl.Time: cls.TIME}
        return cls.SPAN if dtype == pl.Duration else next((kinds[one] for one in kinds if dtype == one), cls.TEXT)

    @property
    def is_clock(self) -> bool:
        """Whether its numbers are seconds."""
        return self in (Values.MOMENT, Values.TIME, Values.SPAN)

    @property
    def finest(self) -> float:
        """The smallest step unless another is declared; 0 for numbers with decimals."""
        return 0.0 if self is Values.REAL else 1.0


def numbers_in(values: pl.Series, kind: Values) -> Floats:
    """Return values as numbers, each independently: NaN if one is missing or not of this kind.

    Examples
    --------
    >>> numbers_in(pl.Series(["1970-01-02", "1970-01-01 06:00", "soon"]), Values.MOMENT).tolist()
    [86400.0, 21600.0, nan]
    >>> numbers_in(pl.Series([0.7], dtype=pl.Float32), Values.REAL).tolist()
    [0.7]
    """
    dtype = values.dtype
    if kind.is_clock or kind is Values.DATE:
        seconds = _seconds(values, kind)
        return seconds if kind.is_clock else np.floor(seconds / _DAY)
    if dtype == pl.Float32:
        distinct = values.unique()
        by = distinct.cast(pl.String).cast(pl.Float64)  # 0.7, not 0.699999988079071
        values = values.replace_strict(distinct, by, return_dtype=pl.Float64)
    return as_numbers(values).to_numpy()


def _seconds(values: pl.Series, kind: Values) -> Floats:
    """Return the seconds since 1970, since midnight or of a duration."""
    dtype = values.dtype
    if dtype == pl.Date:
        found = values.to_physical().cast(pl.Float64) * _DAY
    elif isinstance(dtype, pl.Datetime | pl.Duration):
        found = values.to_physical().cast(pl.Float64) / _PER_SECOND[dtype.time_unit]
    elif dtype == pl.Time:
        found = values.to_physical().cast(pl.Float64) / 1e9
    elif dtype.is_numeric() or dtype == pl.Null:
        found = values.cast(pl.Float64) * (_DAY if kind is Values.DATE else 1.0)
    else:
        distinct = values.unique().cast(pl.String)
        part = [distinct.str.strip_chars().str.extract(_MOMENT, at) for at in range(1, 5)]
        day = part[0].str.to_date("%Y-%m-%d", strict=False).to_physical().cast(pl.Float64) * _DAY
        hour, minute, second = (one.fill_null("0").cast(pl.Float64) for one in part[1:])
        clock = 3600 * hour + 60 * minute + second
        by = pl.DataFrame({"text": distinct, "seconds": day.set(clock >= _DAY, None) + clock})
        texts = values.cast(pl.String).rename("text").to_frame()
        found = texts.join(by, on="text", how="left", maintain_order="left")["seconds"]
    return found.fill_null(math.nan).to_numpy()


def as_values(name: str, numbers: Ints | Floats, kind: Values) -> pl.Series:
    """Return numbers as values of a kind.

    Examples
    --------
    >>> as_values("at", np.array([0, 45_296]), Values.TIME).to_list()
    [datetime.time(0, 0), datetime.time(12, 34, 56)]
    """
    if kind is Values.DATE:
        return pl.Series(name, np.asarray(numbers, dtype=np.int32)).cast(pl.Date)
    if not kind.is_clock:
        return pl.Series(name, numbers)
    ticks = pl.Series(name, np.rint(np.asarray(numbers, dtype=np.float64) * 1e6).astype(np.int64))
    if kind is Values.TIME:
        return (ticks * 1000).cast(pl.Time)
    return ticks.cast(pl.Duration("us") if kind is Values.SPAN else pl.Datetime("us"))


def in_type(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values in the type of a frame's column, or as they are if one of them does not fit it.

    Examples
    --------
    >>> in_type(pl.Series([1, None]), pl.Int8()).dtype, in_type(pl.Series(["x"]), pl.Int8()).dtype
    (Int8, String)
    """
    if isinstance(dtype, pl.Datetime) and isinstance(values.dtype, pl.Datetime):
        found = values.dt.cast_time_unit(dtype.time_unit)  # the numbers are those of UTC
        return (
            found
            if dtype.time_zone is None
            else found.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
        )
    found = values.cast(dtype, strict=False)
    return found if found.null_count() == values.null_count() else values


def type_name(dtype: pl.DataType) -> str:
    """Return a type as a text; a type that cannot be stored as that of texts.

    Examples
    --------
    >>> type_name(pl.Decimal(10, 2)), type_name(pl.Datetime("ms", "Europe/Berlin")), type_name(pl.Enum(["a"]))
    ('Decimal(10, 2)', 'Datetime(ms, Europe/Berlin)', 'Enum')
    """
    if isinstance(dtype, pl.Decimal):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        return f"Datetime({dtype.time_unit}" + (f", {dtype.time_zone})" if dtype.time_zone else ")")
    if isinstance(dtype, pl.Duration):
        return f"Duration({dtype.time_unit})"
    if isinstance(dtype, pl.Enum | pl.Categorical):
        return type(dtype).__name__
    return str(dtype) if str(dtype) in _PLAIN else "String"


def type_of(name: Any, domain: tuple[str, ...] | None = None) -> pl.DataType:
    """Return the type of a `type_name`; the categories of an Enum are a domain.

    Examples
    --------
    >>> type_of("Decimal(10, 2)"), type_of("Datetime(ms)"), type_of("Enum", ("a", "b"))
    (Decimal(precision=10, scale=2), Datetime(time_unit='ms', time_zone=None), Enum(categories=['a', 'b']))
    >>> type_of("Object")
    Traceback (most recent call last):
        ...
    sfumato.errors.InputError: the generator has a column of the unknown type 'Object'
    """
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "Enum" and domain is not None:
        return pl.Enum(domain)
    if name == "Categorical":
        return pl.Categorical()
    text = str(name)
    if (found := re.fullmatch(r"Decimal\((\d{1,2}), (\d{1,2})\)", text)) and int(found[2]) <= int(found[1]) <= 38:
        return pl.Decimal(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"Duration\((ms|us|ns)\)", text):
        return pl.Duration(found[1])  # type: ignore[arg-type]
    if found := re.fullmatch(r"Datetime\((ms|us|ns)(?:, ([A-Za-z0-9_+\-/]{1,40}))?\)", text):
        return pl.Datetime(found[1], found[2])  # type: ignore[arg-type]
    raise InputError(f"the generator has a column of the unknown type '{text[:40]}'")


def round_step(least: float, kind: Values) -> float:
    """Return the smallest round step that is at least so large: 1, 2 or 5 times a power of ten; on a clock, minutes.

    Examples
    --------
    >>> round_step(0.03, Values.REAL), round_step(16, Values.WHOLE), round_step(700, Values.MOMENT)
    (0.05, 20.0, 900.0)
    """
    if kind.is_clock and least <= _CLOCK[-1]:
        return float(next(one for one in _CLOCK if one >= least))
    power = math.floor(math.log10(least)) if least > 0 else 0
    found = next(one for one in (1, 2, 5, 10, 20) if one * 10.0**power >= least * (1 - 1e-9))
    step = float(found * 10**power) if power >= 0 else found / 10**-power
    return max(step, kind.finest)

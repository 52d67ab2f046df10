"""Write ranges of whole numbers or of time in a readable form, and parse them.

=====================================  ==========================================================
``20-29``                              the whole numbers from 20 to 29
``1984``, ``1960s``, ``1960-1979``     a year, a decade, years
``2023-06``, ``2023-Q2``               a month, a quarter
``2023-06 to 2023-09``                 months; in the same way days
``2023-06-04``                         a day, in a column of times
``2023-06-04 13:00 to 15:59``          the minutes of a day, the last one included; in the same way seconds
=====================================  ==========================================================

Other ranges have brackets, ``[0.5, 2.0]``: decimal numbers, negative numbers, times with a time zone.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

import polars as pl

__all__ = ["DAY", "read_range", "write_time", "write_whole"]

DAY = 86_400_000_000
"""The microseconds of a day."""

_EPOCH = datetime(1970, 1, 1)
_TICK = timedelta(microseconds=1)
_WHOLE = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)")
_YEARS = re.compile(r"(\d{4})-(\d{4})")
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_PERIOD = re.compile(rf"(\d{{4}})(?:(s)|-Q([1-4])|-(\d\d)(?:-(\d\d)(?: ({_CLOCK}))?)?)?")


def write_whole(low: int, high: int, *, brackets: bool = False) -> str:
    """Write the range of whole numbers from ``low`` to ``high``, both included.

    Examples
    --------
    >>> write_whole(20, 29), write_whole(7, 7), write_whole(-5, 4)
    ('20-29', '7', '[-5, 4]')
    """
    if low == high:
        return str(low)
    return f"[{low}, {high}]" if brackets or low < 0 else f"{low}-{high}"


def write_time(start: int, stop: int, *, brackets: bool = False) -> str:
    """Write the time from ``start`` to ``stop``, which is excluded; both are microseconds since 1970.

    In brackets, the time zone is UTC.

    Examples
    --------
    >>> write_time(-DAY, 0), write_time(-DAY, DAY)
    ('1969-12-31', '1969-12-31 to 1970-01-01')
    >>> write_time(0, 31 * DAY), write_time(0, 365 * DAY), write_time(13 * DAY // 24, 16 * DAY // 24)
    ('1970-01', '1970', '1970-01-01 13:00 to 15:59')
    >>> write_time(0, 31 * DAY, brackets=True)
    '[1970-01-01 00:00+00:00, 1970-02-01 00:00+00:00)'
    """
    first, end = _EPOCH + start * _TICK, _EPOCH + stop * _TICK
    if brackets:
        ends = (moment.replace(tzinfo=UTC).isoformat(" ", _precision(moment)) for moment in (first, end))
        return f"[{', '.join(ends)})"
    last = end - _TICK
    if first.time() == end.time() == time():
        if first.day == end.day == 1:
            if first.month == end.month == 1:
                return _years(first.year, last.year)
            return _both(first.isoformat()[:7], last.isoformat()[:7])
        return _both(first.date().isoformat(), last.date().isoformat())
    fits = [one for one, tick in _PRECISIONS.items() if not (start % tick or stop % tick) and stop - start > tick]
    precision = fits[0] if fits else "microseconds"
    tick = _PRECISIONS[precision]
    one, other = first.isoformat(" ", precision), (end - tick * _TICK).isoformat(" ", precision)
    return f"{one} to {other[11:] if one[:10] == other[:10] else other}"


def read_range(text: str, dtype: pl.DataType) -> tuple[float, float] | None:
    """Parse a range; return both ends, included, as numbers in the unit of the column.

    Examples
    --------
    >>> read_range("20-29", pl.Int64()), read_range("29-20", pl.Int64())
    ((20.0, 29.0), None)
    >>> read_range("1970-01 to 1970-02", pl.Date()), read_range("1970s", pl.Date())
    ((0.0, 58.0), (0.0, 3651.0))
    >>> read_range("1970-01-01 00:00 to 00:59", pl.Datetime("us"))
    (0.0, 3599999999.0)
    """
    if not dtype.is_temporal():
        whole = _WHOLE.fullmatch(text)
        low, high = map(float, whole.groups()) if whole else (0.0, 0.0)
        return (low, high) if low < high else None
    if not isinstance(dtype, pl.Date | pl.Datetime):
        return None
    years = _YEARS.fullmatch(text)
    one, to, other = (years[1], "-", years[2]) if years else text.partition(" to ")
    if to and re.fullmatch(_CLOCK, other):
        other = f"{one[:10]} {other}"
    try:
        first, last = _period(one), _period(other if to else one)
    except (ValueError, OverflowError):  # such as the 31st of June
        return None
    if first is None or last is None or last[1] <= first[0]:
        return None
    if to and len(one) != len(other):
        return None  # the ends differ in precision
    start, stop = ((moment - _EPOCH) // _TICK for moment in (first[0], last[1]))
    if isinstance(dtype, pl.Date):
        return start / DAY, stop / DAY - 1
    scale = {"ms": 1e-3, "us": 1.0, "ns": 1e3}[dtype.time_unit]
    return start * scale, (stop - 1) * scale


def _period(text: str) -> tuple[datetime, datetime] | None:
    """Parse one period; return its start and that of the next one."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        return None
    year, decade, quarter, month, day, clock = found.groups()
    number = int(year)
    if decade:
        return (datetime(number, 1, 1), datetime(number + 10, 1, 1)) if number % 10 == 0 else None
    if quarter:
        return datetime(number, 3 * int(quarter) - 2, 1), _month(number, 3 * int(quarter) + 1)
    if month is None:
        return datetime(number, 1, 1), datetime(number + 1, 1, 1)
    if day is None:
        return datetime(number, int(month), 1), _month(number, int(month) + 1)
    start = datetime.combine(date(number, int(month), int(day)), time())
    if clock is None:
        return start, start + timedelta(days=1)
    start = datetime.fromisoformat(text)
    tick = {5: 60_000_000, 8: 1_000_000, 12: 1_000}.get(len(clock), 1)
    return start, start + tick * _TICK


def _month(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)


_PRECISIONS = {"minutes": 60_000_000, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


def _precision(moment: datetime) -> str:
    """Return the coarsest precision with which a moment can be written."""
    tick = (moment - _EPOCH) // _TICK
    return next(precision for precision, length in _PRECISIONS.items() if tick % length == 0)


def _years(first: int, last: int) -> str:
    if first == last:
        return f"{first:04d}"
    return f"{first:04d}s" if first % 10 == 0 and last == first + 9 else f"{first:04d}-{last:04d}"


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one} to {other}"

"""The grammar of released values: how a generalised value is written, and how it is read back.

=====================================  =================================================================
``*``                                  everything
``20-29``                              the whole numbers from 20 to 29
``<20``, ``90+``                       the numbers below 20, those from 90 on
``[20, 30)``, ``[low, mid]``           the numbers, times or ordinals between two ends. ``[`` and ``]`` include
                                       the end, ``(`` and ``)`` exclude it, and so do the outward ``]20, 30[``
``1984``, ``1960s``, ``1960-1979``     a year, a decade, years
``2023-06``, ``2023-Q2``               a month, a quarter
``2023-06 to 2023-09``                 months; in the same way days
``2023-06-04``                         a day, in a column of times
``2023-06-04 13:00 to 15:59``          the minutes of a day, the last one included; in the same way seconds
``low to mid``                         the ordinals, or texts that are numbers, from one to the other
``130**``                              the codes with this prefix
``{a, "b, c"}``                        a set, quoted as in CSV; ``(missing)`` is a missing value
``all but {a, b}``                     all values except these and the missing one
=====================================  =================================================================

Decimal numbers, negative numbers and times with a time zone have brackets: ``20-29`` would be false for them. Which
original values a text stands for depends on the column: see `measures.loss.generalised`.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import polars as pl

from sfumato.errors import SchemaError

__all__ = [
    *("DAY", "MARK", "MISSING", "PERIODS", "Interval", "are_whole", "is_long", "number_of", "read_brackets"),
    *("read_complement", "read_range", "read_set", "read_span", "short", "write_brackets", "write_complement"),
    *("write_set", "write_span", "write_time", "write_whole"),
]

MARK = "*"
"""Everything: the root of a hierarchy, and a suppressed value."""
MISSING = "(missing)"

DAY = 86_400_000_000
"""The microseconds of a day."""

_EPOCH = datetime(1970, 1, 1)
_TICK = timedelta(microseconds=1)
_LONG = 8
_MOST_DIGITS = 2**53  # floats tell whole numbers apart up to here
_ALL_BUT = "all but "
_BRACKETS = re.compile(r"\s*([\[(\]])\s*([^,]*?)\s*,\s*([^,]*?)\s*([\])\[])\s*")
_NUMBER = r"(-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?))"
_INTERVAL = re.compile(rf"([\[(]){_NUMBER}, {_NUMBER}([\])])")
_WHOLE = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)")
_BELOW, _FROM = re.compile(r"<(0|[1-9]\d*)"), re.compile(r"(0|[1-9]\d*)\+")
_YEARS = re.compile(r"(\d{4})-(\d{4})")
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_PERIOD = re.compile(rf"(\d{{4}})(?:(s)|-Q([1-4])|-(\d\d)(?:-(\d\d)(?: ({_CLOCK}))?)?)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?")

# Intervals and ranges of numbers


@dataclass(frozen=True)
class Interval:
    """A range of numbers, written as in mathematics: ``[20, 30)`` contains 20 but not 30.

    A label consists of ``[`` if the interval contains its low end, else ``(``; the low end; a comma
    and a space; the high end; and ``]`` if the interval contains its high end, else ``)``. An end
    is a decimal number, ``-inf`` or ``inf``.

    Examples
    --------
    >>> str(Interval(20, 30)), Interval(20, 30).whole_text()
    ('[20, 30)', '20-29')
    >>> Interval.parse("(0.5, inf)")
    Interval(low=0.5, high=inf, low_closed=False, high_closed=False)
    >>> 30 in Interval(20, 30), 30 in Interval(20, 30, high_closed=True)
    (False, True)
    """

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = False

    def __str__(self) -> str:
        ends = f"{short(self.low)}, {short(self.high)}"
        return f"{'[' if self.low_closed else '('}{ends}{']' if self.high_closed else ')'}"

    def whole_text(self) -> str:
        """Write the whole numbers of the interval; the interval itself if it has none, or all of them.

        Examples
        --------
        >>> Interval(-math.inf, 20, False).whole_text(), Interval(90, math.inf).whole_text()
        ('<20', '90+')
        """
        low, high = self.low, self.high
        if max(abs(end) for end in (low, high, 0.0) if math.isfinite(end)) >= _MOST_DIGITS:
            return str(self)
        if math.isfinite(low):
            low = math.ceil(low) if self.low_closed else math.floor(low) + 1
        if math.isfinite(high):
            high = math.floor(high) if self.high_closed else math.ceil(high) - 1
        is_range = low <= high and (math.isfinite(low) or math.isfinite(high))
        return write_whole(low, high) if is_range else str(self)

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.low_closed else value > self.low
        return above and (value <= self.high if self.high_closed else value < self.high)

    @classmethod
    def parse(cls, label: str) -> Interval:
        """Parse the label of an interval.

        Examples
        --------
        >>> Interval.parse("[80, 90]").high
        90.0
        >>> Interval.parse("80-89").high
        89.0
        """
        if found := read_range(label, pl.Int64()):
            return found
        brackets = _INTERVAL.fullmatch(label)
        if not brackets:
            raise SchemaError(f"'{label}' is not an interval", hint="write an interval like [20, 30)")
        opening, low, high, closing = brackets.groups()
        return cls(float(low), float(high), opening == "[", closing == "]")


def short(number: float) -> str:
    """Return the shortest text that parses back to the number."""
    return str(int(number)) if abs(number) < 1e22 and number == int(number) else repr(float(number))


def write_brackets(low: str, high: str) -> str:
    """Write the range between two ends, both included."""
    return f"[{low}, {high}]"


def read_brackets(text: str) -> tuple[str, str, str, str] | None:
    """Parse a range in brackets: the opening bracket, both ends as texts, the closing bracket."""
    found = _BRACKETS.fullmatch(text)
    return (found[1], found[2], found[3], found[4]) if found else None


def write_whole(low: float, high: float, *, brackets: bool = False) -> str:
    """Write the range of whole numbers from ``low`` to ``high``, both included; one of them may be infinite.

    Examples
    --------
    >>> write_whole(20, 29), write_whole(7, 7), write_whole(-5, 4), write_whole(90, math.inf)
    ('20-29', '7', '[-5, 4]', '90+')
    """
    if low == high:
        return str(low)
    if math.isinf(low):
        return f"(-inf, {high + 1})" if brackets or high < -1 else f"<{high + 1}"
    if math.isinf(high):
        return f"[{low}, inf)" if brackets or low < 0 else f"{low}+"
    return f"[{low}, {high}]" if brackets or low < 0 else f"{low}-{high}"


def are_whole(values: Iterable[Any]) -> bool:
    """Return whether all values are whole numbers.

    Examples
    --------
    >>> are_whole([20, 30.0, Decimal(7)]), are_whole([20, 30.5]), are_whole(["20"])
    (True, False, False)
    """
    return all(isinstance(one, Real | Decimal) and math.isfinite(one) and one % 1 == 0 for one in values)


def number_of(text: str, dtype: pl.DataType) -> float:
    """Parse a bound, number or date as a number in the unit of the column; NaN if it is none of these.

    Examples
    --------
    >>> number_of("-1.5", pl.Float64()), number_of("1970-02-01", pl.Date()), number_of("?", pl.Date())
    (-1.5, 31.0, nan)
    """
    try:
        if not dtype.is_temporal() or text.lstrip("+-") == "inf":
            return float(text)
        moment = datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
    except ValueError:
        return float("nan")
    if moment is None or not isinstance(dtype, pl.Date | pl.Datetime):
        return float("nan")
    tick = (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH.replace(tzinfo=UTC)) / _TICK
    unit = "d" if isinstance(dtype, pl.Date) else dtype.time_unit
    return tick * 1000 if unit == "ns" else tick / {"d": DAY, "ms": 1000, "us": 1}[unit]


# Ranges of time


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


def read_range(text: str, dtype: pl.DataType) -> Interval | None:
    """Parse a range without brackets; its ends are numbers in the unit of the column.

    Examples
    --------
    >>> str(read_range("20-29", pl.Int64())), str(read_range("<20", pl.Int64())), read_range("29-20", pl.Int64())
    ('[20, 29]', '(-inf, 20)', None)
    >>> str(read_range("1970-01 to 1970-02", pl.Date())), str(read_range("1970s", pl.Date()))
    ('[0, 58]', '[0, 3651]')
    >>> str(read_range("1970-01-01 00:00 to 00:59", pl.Datetime("us")))
    '[0, 3599999999]'
    """
    if not dtype.is_temporal():
        if below := _BELOW.fullmatch(text):
            return Interval(-math.inf, float(below[1]), low_closed=False)
        if start := _FROM.fullmatch(text):
            return Interval(float(start[1]), math.inf)
        whole = _WHOLE.fullmatch(text)
        low, high = map(float, whole.groups()) if whole else (0.0, 0.0)
        return Interval(low, high, high_closed=True) if low < high else None
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
    start_tick, stop = ((moment - _EPOCH) // _TICK for moment in (first[0], last[1]))
    if isinstance(dtype, pl.Date):
        return Interval(start_tick / DAY, stop / DAY - 1, high_closed=True)
    scale = {"ms": 1e-3, "us": 1.0, "ns": 1e3}[dtype.time_unit]
    return Interval(start_tick * scale, (stop - 1) * scale, high_closed=True)


PERIODS: dict[str, Callable[[date], str]] = {
    "day": lambda day: day.isoformat()[:10],
    "month": lambda day: day.isoformat()[:7],
    "quarter": lambda day: f"{day.isoformat()[:4]}-Q{(day.month + 2) // 3}",
    "year": lambda day: day.isoformat()[:4],
    "decade": lambda day: f"{day.isoformat()[:3]}0s",
    "century": lambda day: f"{day.isoformat()[:2]}00-{day.isoformat()[:2]}99",
}
"""How to write the calendar period of a date."""


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


# Sets and spans of ordinals


def write_set(members: Sequence[str], known: Container[str]) -> str:
    """Write a set, quoted as in CSV; quote every member if the set would read as a known value.

    Examples
    --------
    >>> write_set(["Bonn", "Rome, Italy"], known=())
    '{Bonn, "Rome, Italy"}'
    """
    plain = "{" + ", ".join(map(_quoted, members)) + "}"
    return "{" + ", ".join(_quoted(member, always=True) for member in members) + "}" if plain in known else plain


def _quoted(member: str, *, always: bool = False) -> str:
    if always or not member or member != member.strip() or any(mark in member for mark in ',"\r\n'):
        return '"' + member.replace('"', '""') + '"'
    return member


def write_complement(members: Sequence[str]) -> str:
    """Write a set by its complement: all values of the column except these and the missing one.

    Examples
    --------
    >>> write_complement(["Bonn", "Oslo"])
    'all but {Bonn, Oslo}'
    """
    return _ALL_BUT + write_set(members, ())


def is_long(members: int, others: int) -> bool:
    """Return whether a set is shorter when written by its complement."""
    return members > _LONG and 2 * others <= members


def read_set(text: str) -> list[str] | None:
    """Parse a set; return its members.

    Examples
    --------
    >>> read_set('{Bonn, "Rome, Italy"}'), read_set("Bonn")
    (['Bonn', 'Rome, Italy'], None)
    """
    if not (text.startswith("{") and text.endswith("}")):
        return None
    return next(csv.reader([text[1:-1]], skipinitialspace=True), [])


def read_complement(text: str) -> str | None:
    """Return the set whose complement a text is."""
    rest = text.removeprefix(_ALL_BUT)
    return rest if rest != text and rest.startswith("{") and rest.endswith("}") else None


def write_span(first: str, last: str) -> str:
    """Write the ordinals from one to another."""
    return f"{first} to {last}"


def read_span(text: str) -> list[tuple[str, str]]:
    """Return all pairs of ordinals that a text may be the span of.

    Examples
    --------
    >>> read_span("low to mid"), read_span("a to b to c")
    ([('low', 'mid')], [('a', 'b to c'), ('a to b', 'c')])
    """
    words = text.split(" to ")
    return [(" to ".join(words[:at]), " to ".join(words[at:])) for at in range(1, len(words))]

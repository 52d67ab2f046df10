"""SQL expressions that turn the values of a column into codes, and codes into groups; a dialect for each engine.

A text that shows a number is that number, and a value that does not fit is missing, as in memory. The expressions
consist of public rules only, so the text of a query tells nothing of the rows, and no value makes a query fail. Digits
are 0 to 9, and a number in a text must fit into a float.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import polars as pl

from sfumato.engines.contingency import TEXTS, Bins, Coded, Decimals, Places, Steps, Unit, has_zone, place_in_type

__all__ = ["Dialect", "DuckDBDialect", "PostgresDialect", "SqlDialect", "SqliteDialect", "levels", "number_of"]

SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
SPACES += "\u202f\u205f\u3000"
"""What surrounds a number in a text without being part of it."""
_LARGEST = 1.7976931348623157e308
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATE = "^[0-9]{4}-[0-9][0-9]-[0-9][0-9]"
_DAY = _DATE + r"([ T][0-9][0-9]:[0-9][0-9]:[0-9][0-9](\.[0-9]+)?)?$"
_SECONDS = r"(:[0-9][0-9](\.[0-9]+)?)?"
# The time may have 99 minutes and seconds, as long as it is of this day.
_TIMES = (
    f"([01][0-9]|2[0-2]):[0-9][0-9]{_SECONDS}",
    f"23:([0-4][0-9]|5[0-8]){_SECONDS}",
    r"23:59(:[0-5][0-9](\.[0-9]+)?)?",
)
_DAY_OF_MOMENT = f"{_DATE}([ T]({'|'.join(_TIMES)}))?$"
_STORED_MOMENT = f"{_DATE}([ T][0-9][0-9]:[0-9][0-9]{_SECONDS})?$"
_STORED_TIME = f"^[0-9][0-9]:[0-9][0-9]{_SECONDS}$"
_CLOCKS = (pl.Datetime, pl.Time)
_EPSILON = sys.float_info.epsilon
_UNIONS = 400  # SQLite allows 500
_MICROS = 24 * 60 * 60 * 10**6


class Dialect(ABC):
    """How an engine writes what the expressions need."""

    least: ClassVar[str] = "LEAST"
    greatest: ClassVar[str] = "GREATEST"
    integer: ClassVar[str] = "INTEGER"

    @abstractmethod
    def text(self, value: str) -> str:
        """Return a text."""

    @abstractmethod
    def number(self, value: float) -> str:
        """Return a 64-bit float."""

    @abstractmethod
    def exact(self, column: str) -> str:
        """Return a column of texts that are compared byte by byte."""

    @abstractmethod
    def stripped(self, text: str) -> str:
        """Return a text without `SPACES` around it."""

    @abstractmethod
    def matches(self, text: str, pattern: str) -> str:
        """Return the condition that a text matches a pattern, which has its own anchors."""

    @abstractmethod
    def float_of(self, text: str) -> str:
        """Return the number of a text that looks like one; null if it is too large."""

    @abstractmethod
    def day_of(self, text: str) -> str:
        """Return the day (since 1970) of a text that begins with an ISO date; null if there is no such day."""

    @abstractmethod
    def plain(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers or truth values as floats, with null for NaN."""

    def shown(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats; of a 32-bit float, the number that it shows: 0.7, not 0.699999988."""
        return self.plain(column, dtype)

    @abstractmethod
    def days(self, column: str, dtype: pl.DataType) -> str:
        """Return the day (since 1970, of UTC) of a column of dates or moments."""

    @abstractmethod
    def micros(self, column: str, dtype: pl.DataType) -> str:
        """Return the microseconds since 1970 of a column of moments, or since midnight of one of times."""


def number_of(columns: int, weight: Coded | None) -> str:
    """Return the number of a group: its rows, or the sum of the codes of a weight, which comes after the columns."""
    if weight is None:
        return "count(*)"
    return f"CAST(SUM(CASE WHEN g{columns} = {weight.rule.known} THEN 0 ELSE g{columns} END) AS BIGINT)"


def levels(
    dialect: Dialect, columns: Sequence[Coded], sources: Sequence[str], types: Mapping[str, pl.DataType]
) -> Iterator[list[tuple[str, str]]]:
    """Yield lists of (expression, alias), each to be selected from the one before; the last aliases are g0, g1, ....

    Parameters
    ----------
    dialect : Dialect
    columns : sequence of Coded
    sources : sequence of str
        The expression of each column in the rows.
    types : mapping
        The types of the columns.
    """
    ways = [_Way(dialect, one, types[one.name]) for one in columns]
    yield [(way.value(source), f"v{at}") for at, (way, source) in enumerate(zip(ways, sources, strict=True))]
    yield [(way.number(f"v{at}"), f"x{at}") for at, way in enumerate(ways)]
    yield [(way.steps(f"x{at}"), f"s{at}") for at, way in enumerate(ways)]
    yield [(way.code(f"s{at}"), f"c{at}") for at, way in enumerate(ways)]
    yield [(way.group(f"c{at}"), f"g{at}") for at, way in enumerate(ways)]


class _Way:
    """The way of one column from values to groups."""

    def __init__(self, dialect: Dialect, column: Coded, dtype: pl.DataType) -> None:
        self._sql, self._column, self._rule, self._dtype = dialect, column, column.rule, dtype
        self._is_text = isinstance(dtype, TEXTS)

    def value(self, source: str) -> str:
        """Return a text, or the number that stands for a value of another type."""
        sql, rule, dtype = self._sql, self._rule, self._dtype
        if self._is_text:
            return sql.exact(source)
        if isinstance(rule, Places):
            way = sql.days if dtype == pl.Date else sql.micros if dtype in _CLOCKS else sql.plain
            return way(source, dtype)
        if dtype == pl.Date or (dtype == pl.Datetime and rule.unit is not Unit.SECOND):
            return sql.days(source, dtype)
        return (sql.micros if dtype in _CLOCKS else sql.shown)(source, dtype)

    def number(self, value: str) -> str:
        """Return the number of a value, in the unit of the rule."""
        sql, rule = self._sql, self._rule
        if isinstance(rule, Places):
            return value
        if self._dtype in _CLOCKS and rule.unit is Unit.SECOND:
            return f"{value} / {sql.number(1e6)}"
        if not self._is_text:
            return value
        text = sql.stripped(value)
        if rule.unit is Unit.DAY:
            return f"CASE WHEN {sql.matches(text, _DAY_OF_MOMENT)} THEN {sql.day_of(text)} END"
        infinite = [
            f"WHEN LOWER({text}) IN ({', '.join(map(sql.text, names))}) THEN {sql.number(end)}"
            for names, end in (
                (("inf", "+inf", "infinity", "+infinity"), math.inf),
                (("-inf", "-infinity"), -math.inf),
            )
        ]
        return (
            f"CASE WHEN {sql.matches(text, _NUMBER)} THEN {sql.float_of(text)} "
            f"WHEN {text} = {sql.text('True')} THEN {sql.number(1.0)} "
            f"WHEN {text} = {sql.text('False')} THEN {sql.number(0.0)} "
            f"WHEN {sql.matches(text, _DAY)} THEN {sql.day_of(text)} {' '.join(infinite)} END"
        )

    def steps(self, number: str) -> str:
        """Return a number clipped and measured in steps; for other rules, the number itself."""
        rule, sql = self._rule, self._sql
        if not isinstance(rule, Steps):
            return number
        clipped = self._between(number, rule.low, rule.high)
        scaled = f"* {sql.number(rule.per_one)}" if rule.per_one else f"/ {sql.number(rule.step)}"
        return f"CASE WHEN {number} IS NOT NULL THEN {clipped} {scaled} END"

    def code(self, number: str) -> str:
        """Return the code of a number of steps, or of what `number` returns."""
        rule, sql = self._rule, self._sql
        if isinstance(rule, Places):
            found = [f"WHEN {number} = {place} THEN {code}" for code, place in self._places()]
            return f"CASE {' '.join(found)} ELSE {rule.known} END" if found else str(rule.known)
        if isinstance(rule, Bins):
            code = _search(number, [sql.number(one) for one in rule.edges], range(rule.known))
        elif isinstance(rule, Decimals):
            code = self._decimals(number, rule.most)
        else:
            half, two = sql.number(0.5), sql.number(2.0)
            is_odd = f"FLOOR({number}) <> FLOOR(FLOOR({number}) / {two}) * {two}"
            rest = f"{number} - FLOOR({number})"
            up = f"CASE WHEN {rest} > {half} OR ({rest} = {half} AND {is_odd}) THEN 1 ELSE 0 END"
            rounded = self._between(f"FLOOR({number}) + {up}", float(rule.first), float(rule.last))
            code = f"CAST({rounded} - {sql.number(rule.first)} AS {sql.integer})"
        return f"CASE WHEN {number} IS NULL THEN {rule.known} ELSE {code} END"

    def group(self, code: str) -> str:
        """Return the group of a code."""
        if self._column.is_identity:
            return code
        starts, groups = self._column.starts.tolist(), self._column.groups.tolist()
        kept = [at for at in range(len(starts)) if at == 0 or groups[at] != groups[at - 1]]
        return _search(code, [str(starts[at]) for at in kept[1:]], [groups[at] for at in kept])

    def _between(self, number: str, low: float, high: float) -> str:
        sql = self._sql
        return f"{sql.least}({sql.greatest}({number}, {sql.number(low)}), {sql.number(high)})"

    def _places(self) -> Iterator[tuple[int, str]]:
        """Yield the code of each category that the column can hold, and what stands for it."""
        assert isinstance(self._rule, Places)
        for code, text in enumerate(self._rule.domain):
            if self._is_text:
                yield code, self._sql.text(text)
            elif (place := place_in_type(text, self._dtype)) is not None:
                yield code, str(place) if isinstance(place, int) else self._sql.number(place)

    def _decimals(self, number: str, most: int) -> str:
        """Return the fewest decimals with which a number is what it is, up to rounding."""
        sql = self._sql
        found = [f"WHEN ABS({number}) > {sql.number(_LARGEST)} THEN {most + 1}"]
        for digits in range(most):
            scaled = f"{number} * {sql.number(10.0**digits)}"
            apart = f"ABS({scaled} - FLOOR({scaled} + {sql.number(0.5)}))"
            # Above this limit all numbers are within rounding.
            found.append(f"WHEN ABS({scaled}) >= {sql.number(6e14)} THEN {digits}")
            within = f"{sql.number(1e-9)} + {sql.number(4 * _EPSILON)} * ABS({scaled})"
            found.append(f"WHEN {apart} <= {within} THEN {digits}")
        return f"CASE {' '.join(found)} ELSE {most} END"


def _search(number: str, edges: Sequence[str], results: Sequence[int]) -> str:
    """Return the result at the number of edges that are not above a number, by halving."""
    if not edges:
        return str(results[0])
    half = len(edges) // 2
    below = _search(number, edges[:half], results[: half + 1])
    above = _search(number, edges[half + 1 :], results[half + 1 :])
    return f"CASE WHEN {number} < {edges[half]} THEN {below} ELSE {above} END"


class DuckDBDialect(Dialect):
    """Expressions of DuckDB."""

    def text(self, value: str) -> str:
        """Return a text."""
        parts = ["'" + part.replace("'", "''") + "'" for part in value.split("\0")]
        return "(" + " || chr(0) || ".join(parts) + ")" if len(parts) > 1 else parts[0]

    def number(self, value: float) -> str:
        """Return a 64-bit float."""
        return f"CAST('{value!r}' AS DOUBLE)"

    def exact(self, column: str) -> str:
        """Return a column of texts that are compared byte by byte."""
        return f'CAST({column} AS VARCHAR) COLLATE "binary"'

    def stripped(self, text: str) -> str:
        """Return a text without spaces around it."""
        return f"trim({text}, {self.text(SPACES)})"

    def matches(self, text: str, pattern: str) -> str:
        """Return the condition that a text matches a pattern."""
        return f"regexp_matches({text}, {self.text(pattern)})"

    def float_of(self, text: str) -> str:
        """Return the number of a text that looks like one."""
        return f"TRY_CAST({text} AS DOUBLE)"

    def day_of(self, text: str) -> str:
        """Return the day of a text that begins with an ISO date."""
        return f"(TRY_CAST({text}[1:10] AS DATE) - DATE '1970-01-01')"

    def plain(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats."""
        number = f"CAST({column} AS DOUBLE)"
        return f"CASE WHEN NOT isnan({number}) THEN {number} END" if dtype.is_float() else number

    def shown(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats, as they are shown."""
        return self.plain(f"CAST({column} AS VARCHAR)" if dtype == pl.Float32 else column, dtype)

    def days(self, column: str, dtype: pl.DataType) -> str:
        """Return the day of a column of dates or moments."""
        day = column if dtype == pl.Date else f"CAST(make_timestamp(epoch_us({column})) AS DATE)"
        return f"CASE WHEN isfinite({column}) THEN {day} - DATE '1970-01-01' END"

    def micros(self, column: str, dtype: pl.DataType) -> str:
        """Return the microseconds of a column of moments or times."""
        found = f"epoch_us({column})"
        return found if dtype == pl.Time else f"CASE WHEN isfinite({column}) THEN {found} END"


class SqlDialect(Dialect):
    """Expressions of SQLite and PostgreSQL; texts and numbers are parameters, which arrive as they are."""

    def __init__(self) -> None:
        self.parameters: dict[str, str | float] = {}
        self._names: dict[str | float, str] = {}

    def _parameter(self, value: str | float) -> str:
        name = self._names.setdefault(value, f"p{len(self._names)}")
        self.parameters[name] = value
        return f":{name}"

    kept: ClassVar[str] = ""
    """Whether the coded rows are kept while they are counted."""

    def counted(self, columns: int, sets: Sequence[tuple[int, ...]], number: str) -> Iterator[str]:
        """Yield queries of the coded rows that count all sets of columns, by the number of a group."""
        groups = ", ".join(f"g{at}" for at in range(columns))
        by = ", ".join(f"({', '.join(f'g{at}' for at in one)})" for one in sets)
        yield f"SELECT {groups}, {number} FROM coded GROUP BY GROUPING SETS ({by})"  # noqa: S608


class SqliteDialect(SqlDialect):
    """Expressions of SQLite, in which a value can have another type than its column declares."""

    least, greatest, kept = "MIN", "MAX", "MATERIALIZED"

    def counted(self, columns: int, sets: Sequence[tuple[int, ...]], number: str) -> Iterator[str]:
        """Yield unions of as many group-bys as SQLite takes."""
        for start in range(0, len(sets), _UNIONS):
            yield " UNION ALL ".join(
                f"SELECT {', '.join(f'g{at}' if at in one else 'NULL' for at in range(columns))}, {number} "  # noqa: S608
                f"FROM coded GROUP BY {', '.join(f'g{at}' for at in one)}"
                for one in sets[start : start + _UNIONS]
            )

    def text(self, value: str) -> str:
        """Return a text."""
        return self._parameter(value)

    def number(self, value: float) -> str:
        """Return a 64-bit float."""
        return self._parameter(float(value))

    def exact(self, column: str) -> str:
        """Return a column of texts that are compared byte by byte."""
        return f"CASE WHEN typeof({column}) = 'text' THEN {column} END COLLATE BINARY"

    def stripped(self, text: str) -> str:
        """Return a text without spaces around it."""
        return f"trim({text}, {self.text(SPACES)})"

    def matches(self, text: str, pattern: str) -> str:
        """Return the condition that a text matches a pattern."""
        return f"({text} REGEXP {self.text(pattern)})"

    def float_of(self, text: str) -> str:
        """Return the number of a text that looks like one."""
        return f"CAST({text} AS REAL)"

    def day_of(self, text: str) -> str:
        """Return the day of a text that begins with an ISO date."""
        day = f"substr({text}, 1, 10)"
        return f"CASE WHEN date(julianday({day})) = {day} THEN CAST(julianday({day}) - 2440587.5 AS INTEGER) END"

    def plain(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats."""
        if dtype == pl.Boolean:
            return f"CASE WHEN typeof({column}) = 'integer' AND {column} IN (0, 1) THEN CAST({column} AS REAL) END"
        return f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN CAST({column} AS REAL) END"

    def days(self, column: str, dtype: pl.DataType) -> str:
        """Return the day of a column of dates or moments."""
        return f"CASE WHEN {self._is_moment(column)} THEN {self.day_of(column)} END"

    def micros(self, column: str, dtype: pl.DataType) -> str:
        """Return the microseconds of a column of moments or times."""
        start = 1 if dtype == pl.Time else 12

        def part(at: int, unit: int) -> str:
            return f"CAST(substr({column}, {start + at}, 2) AS INTEGER) * {unit}"

        time = f"({part(0, 3600)} + {part(3, 60)} + {part(6, 1)}) * 1000000"
        fraction = f"CAST(substr(substr({column}, {start + 9}) || '000000', 1, 6) AS INTEGER)"
        if dtype == pl.Time:
            is_time = f"typeof({column}) = 'text' AND {self.matches(column, _STORED_TIME)}"
            return f"CASE WHEN {is_time} THEN {time} + {fraction} END"
        return f"CASE WHEN {self._is_moment(column)} THEN {self.day_of(column)} * {_MICROS} + {time} + {fraction} END"

    def _is_moment(self, column: str) -> str:
        return f"typeof({column}) = 'text' AND {self.matches(column, _STORED_MOMENT)}"


class PostgresDialect(SqlDialect):
    """Expressions of PostgreSQL."""

    def text(self, value: str) -> str:
        """Return a text."""
        return f"CAST({self._parameter(value)} AS text)"

    def number(self, value: float) -> str:
        """Return a 64-bit float."""
        return f"CAST({self._parameter(float(value))} AS double precision)"

    def exact(self, column: str) -> str:
        """Return a column of texts that are compared byte by byte."""
        return f'CAST({column} AS text) COLLATE "C"'

    def stripped(self, text: str) -> str:
        """Return a text without spaces around it."""
        return f"btrim({text}, {self.text(SPACES)})"

    def matches(self, text: str, pattern: str) -> str:
        """Return the condition that a text matches a pattern."""
        return f"({text} ~ {self.text(pattern)})"

    def float_of(self, text: str) -> str:
        """Return the number of a text that looks like one; null if a cast to a float might fail."""
        fits = f"length({text}) <= 200 AND {text} !~ {self.text('[eE][+-]?[0-9]{3}')}"
        return f"CASE WHEN {fits} THEN CAST({text} AS double precision) END"

    def day_of(self, text: str) -> str:
        """Return the day of a text that begins with an ISO date."""
        year, month, day = (f"CAST(substr({text}, {at}, {size}) AS integer)" for at, size in ((1, 4), (6, 2), (9, 2)))
        last = f"extract(day FROM make_date({year}, {month}, 1) + interval '1 month' - interval '1 day')"
        fits = f"CASE WHEN {year} >= 1 AND {month} BETWEEN 1 AND 12 AND {day} >= 1 THEN {day} <= {last} END"
        return f"CASE WHEN {fits} THEN make_date({year}, {month}, {day}) - DATE '1970-01-01' END"

    def plain(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats."""
        if dtype == pl.Boolean:
            return f"CAST(CAST({column} AS integer) AS double precision)"
        number = f"CAST({column} AS double precision)"
        return f"CASE WHEN {number} <> CAST('NaN' AS double precision) THEN {number} END"

    def shown(self, column: str, dtype: pl.DataType) -> str:
        """Return a column of numbers as floats, as they are shown."""
        return self.plain(f"CAST({column} AS text)" if dtype.is_float() else column, dtype)

    def days(self, column: str, dtype: pl.DataType) -> str:
        """Return the day of a column of dates or moments."""
        day = f"CAST({column} AT TIME ZONE 'UTC' AS date)" if has_zone(dtype) else f"CAST({column} AS date)"
        return f"CASE WHEN isfinite({column}) THEN {day} - DATE '1970-01-01' END"

    def micros(self, column: str, dtype: pl.DataType) -> str:
        """Return the microseconds of a column of moments or times."""
        found = f"CAST(extract(epoch FROM {column}) * 1000000 AS bigint)"
        return found if dtype == pl.Time else f"CASE WHEN isfinite({column}) THEN {found} END"

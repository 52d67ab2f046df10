"""The notation of the numbers and dates of a column: decimal commas, thousands separators, the order of day and month.

A notation is inferred from the whole column, and only if no other notation reads all of its texts: ``3,14`` has a
decimal comma, ``31/12/1980`` begins with the day, but ``1,234`` and ``03/04/1980`` are ambiguous. An ambiguous column
stays text, and the ambiguity is reported, until the notation is declared. A declared notation is applied to each cell
separately, so no record influences how another one is read, as private functions require (`Conventions.normalize`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from sfumato.errors import OptionError

__all__ = ["PLAIN", "Cells", "Conventions", "Meaning", "Notation", "find_cells", "is_just_text"]

_ORDERS = {"dmy": ("d", "m", "Y"), "mdy": ("m", "d", "Y"), "ymd": ("Y", "m", "d")}
_USUAL = {"dmy": "%d.%m.%Y", "mdy": "%m/%d/%Y", "ymd": "%Y-%m-%d"}
_DIRECTIVES = set("YymdbBHIMSpfTRF")
_TIMES = ("H", "I", "M", "S", "p", "f", "T", "R")
_GROUPINGS = ("", ".", ",", " ", "'")
_BLANKS = " \u00a0\u202f"  # thousands separators in French, including the non-breaking spaces
_DAY = re.compile(
    r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})(?:([ T])\d{1,2}:\d\d(:\d\d(?:\.\d+)?)?( ?[AaPp][Mm])?)?", re.ASCII
)
_NAMED = re.compile(
    r"(?:(\d{1,2})([ -])([A-Za-z]{3,9})\2\d{4}|([A-Za-z]{3,9}) \d{1,2}, \d{4})( \d{1,2}:\d\d(:\d\d)?)?", re.ASCII
)
_FIGURES = re.compile(rf"[+-]?[\d.,'’{_BLANKS}]*\d[\d.,'’{_BLANKS}]*(?:[eE][+-]\d+)?", re.ASCII)
# An exponent needs its sign, or codes such as 12E3 would be numbers.
_DECIMAL = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]\d+)?|inf|nan|Inf|NaN)$"
_THOUSANDS = r"^[+-]?(?:[1-9]\d{0,2}(?:\.\d{3})+|0|[1-9]\d*)$"


class Meaning(StrEnum):
    """The meaning of the cells of a column."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    DATE = "date"
    MOMENT = "moment"


@dataclass(frozen=True)
class Notation:
    """A way to write numbers, or dates.

    Parameters
    ----------
    decimal : str
        The decimal sign.
    grouping : str
        The thousands separator; empty for none.
    dates : str
        The ``strptime`` format of dates; empty for numbers.

    Examples
    --------
    >>> Notation(",", ".").normalize(pl.Series(["1.234,50", "x"])).to_list()
    ['1234.50', 'x']
    >>> Notation(dates="%d.%m.%Y").normalize(pl.Series(["31.12.1980", "x"])).to_list()
    ['1980-12-31', 'x']
    """

    decimal: str = "."
    grouping: str = ""
    dates: str = ""

    @property
    def has_time(self) -> bool:
        """Whether the dates include a time of day."""
        return any(f"%{letter}" in self.dates for letter in _TIMES) or "%.f" in self.dates

    def normalize(self, texts: pl.Series) -> pl.Series:
        """Rewrite numbers and dates in program notation, cell by cell; leave other texts unchanged."""
        if self.dates:
            moments = self.moments(texts)
            written = moments.dt.to_string("%Y-%m-%d %H:%M:%S%.f" if self.has_time else "%Y-%m-%d")
            return written.zip_with(moments.is_not_null(), texts)
        if self == PLAIN:
            return texts
        return self._bare(texts).zip_with(texts.str.contains(self.pattern), texts)

    def moments(self, texts: pl.Series) -> pl.Series:
        """Parse dates or timestamps; other texts become missing."""
        if not self.has_time:
            return _not_in_future(texts.str.to_date(self.dates, strict=False), self.dates)
        if " %H" in self.dates or " %I" in self.dates:
            texts = texts.str.replace(r"(\d)T(\d)", "${1} ${2}")
        return _not_in_future(texts.str.to_datetime(self.dates, time_unit="us", strict=False), self.dates)

    def numbers(self, texts: pl.Series, *, whole: bool) -> pl.Series:
        """Parse numbers in this notation."""
        bare = texts if self == PLAIN else self._bare(texts)
        return bare.str.to_integer(strict=False) if whole else bare.cast(pl.Float64, strict=False)

    def format(self, values: pl.Series) -> pl.Series:
        """Write numbers or dates in this notation; leave other values unchanged."""
        if self.dates and isinstance(values.dtype, pl.Date | pl.Datetime):
            return values.dt.to_string(self.dates)
        if self.decimal == "," and values.dtype.is_float():
            return values.cast(pl.String).str.replace(".", ",", literal=True)
        return values

    @property
    def pattern(self) -> str:
        """The regular expression of a number in this notation; codes with leading zeros do not match."""
        sign, end = re.escape(self.decimal), r"(?:[eE][+-]\d+)?$"
        whole = r"(?:0|[1-9]\d*)"
        if self.grouping:
            signs = f"[{_BLANKS}]" if self.grouping == " " else "['’]" if self.grouping == "'" else f"[{self.grouping}]"
            whole = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:{signs}\d{{3}})+)"
        return rf"^[+-]?{whole}(?:{sign}\d+)?{end}"

    def _bare(self, texts: pl.Series) -> pl.Series:
        if self.grouping == " ":
            texts = texts.str.replace_all(f"[{_BLANKS}]", "")
        elif self.grouping == "'":
            texts = texts.str.replace_all("['’]", "")
        elif self.grouping:
            texts = texts.str.replace_all(self.grouping, "", literal=True)
        return texts.str.replace(",", ".", literal=True) if self.decimal == "," else texts

    def to_dict(self) -> dict[str, str]:
        """Return the notation of numbers as plain values; an empty grouping is left out."""
        return {"decimal": self.decimal, **({"grouping": self.grouping} if self.grouping else {})}


PLAIN = Notation()
_OTHERS = tuple(
    Notation(decimal, grouping) for grouping in _GROUPINGS for decimal in ".," if decimal != grouping
)  # the first one is program notation


@dataclass(frozen=True)
class Conventions:
    """What is declared about the notation of a file's numbers and dates.

    Parameters
    ----------
    decimal : {".", ","}, optional
        The decimal sign; inferred for each column by default.
    dates : sequence of str
        Formats such as ``%d.%m.%Y``, or the order of day, month and year: dmy, mdy or ymd.
    inferred : bool
        Whether to infer what is not declared from the values of a column. If not, each cell is read separately.
    semicolons : bool
        Whether semicolons separate the fields, as is common where the decimal sign is a comma.

    Examples
    --------
    >>> Conventions(dates=("dmy",)).formats("03/04/1980")
    ['%d/%m/%Y']
    """

    decimal: str | None = None
    dates: tuple[str, ...] = ()
    inferred: bool = True
    semicolons: bool = False

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise OptionError(f"the decimal sign must be a point or a comma, got {self.decimal!r}")
        for one in self.dates:
            if one not in _ORDERS:
                _check_format(one)

    @property
    def orders(self) -> tuple[str, ...]:
        """The declared orders of day, month and year."""
        return tuple(one for one in self.dates if one in _ORDERS)

    def formats(self, example: str, *, orders: Sequence[str] | None = None) -> list[str]:
        """Return the possible formats of dates like the example, in the given orders or the declared ones."""
        wanted = self.orders if orders is None else orders
        found = _DAY.fullmatch(example)
        if found is None:
            return _named_formats(example)
        first, sign, _, last = found[1], found[2], found[3], found[4]
        if len(first) == 3 or len(last) == 3 or len(first) + len(last) > 6:
            return []
        time = ""
        if found[5]:
            half = found[7] or ""  # AM or PM
            time = f" {'%I' if half else '%H'}:%M" + (":%S%.f" if found[6] else "") + half[:-2] + ("%p" if half else "")
        fitting = []
        for order in wanted or _ORDERS:
            parts = _ORDERS[order]
            year = {0: first, 2: last}[parts.index("Y")]
            other = last if parts.index("Y") == 0 else first
            if len(other) > 2 or (len(year) not in (2, 4)):
                continue
            letters = ("y" if part == "Y" and len(year) == 2 else part for part in parts)
            fitting.append(sign.join(f"%{letter}" for letter in letters) + time)
        return fitting

    def normalize(self, texts: pl.Series) -> pl.Series:
        """Rewrite declared notations in program notation, each cell separately.

        Examples
        --------
        >>> Conventions(",", ("dmy",)).normalize(pl.Series(["3,5", "31.12.1980", "unknown"])).to_list()
        ['3.5', '1980-12-31', 'unknown']
        """
        for notation in self._declared():
            texts = notation.normalize(texts)
        return texts

    def write(self, values: pl.Series) -> pl.Series:
        """Write numbers and dates in the declared notation; leave other values unchanged.

        Of several date formats, the first that fits is used; an order stands for its most common format.

        Examples
        --------
        >>> Conventions(",", ("dmy",)).write(pl.Series([3.5])).to_list()
        ['3,5']
        >>> Conventions(dates=("dmy",)).write(pl.Series([datetime.date(1980, 12, 31)])).to_list()
        ['31.12.1980']
        """
        if values.dtype.is_float():
            return Notation(self.decimal or ".").format(values)
        if isinstance(values.dtype, pl.Date | pl.Datetime):
            time = isinstance(values.dtype, pl.Datetime)
            for one in self.dates:
                day = _USUAL.get(one)
                notation = Notation(dates=_for_polars(one) if day is None else f"{day} %H:%M:%S" if time else day)
                if notation.has_time == time:
                    return notation.format(values)
        return values

    def _declared(self) -> Iterator[Notation]:
        if self.decimal is not None:
            yield Notation(self.decimal, "." if self.decimal == "," else ",")
        for one in self.dates:
            if one in _ORDERS:
                for sign in "./-":
                    for year in "Yy":
                        day = sign.join(f"%{year if letter == 'Y' else letter}" for letter in _ORDERS[one])
                        yield from (Notation(dates=day + time) for time in ("", " %H:%M", " %H:%M:%S%.f"))
            else:
                yield Notation(dates=_for_polars(one))


@dataclass(frozen=True)
class Cells:
    """The meaning and the notation of the cells of a column.

    Examples
    --------
    >>> cells = find_cells(pl.Series(["3,14", "2,7"]), Conventions())
    >>> cells.meaning, cells.notation.decimal, cells.read(pl.Series(["3,14", None])).to_list()
    (<Meaning.NUMBER: 'number'>, ',', [3.14, None])
    >>> find_cells(pl.Series(["03/04/1980"]), Conventions()).doubt
    'dates such as 03/04/1980 may begin with the day or with the month'
    """

    meaning: Meaning = Meaning.TEXT
    notation: Notation = PLAIN
    doubt: str = ""
    """Why the cells stay texts although they look like numbers or dates; empty if they do not."""
    option: str = ""
    """The option that resolves the doubt: decimal or dates."""

    def read(self, texts: pl.Series) -> pl.Series:
        """Parse texts that have no surrounding spaces."""
        if self.meaning is Meaning.TEXT:
            return texts
        if self.meaning in (Meaning.WHOLE, Meaning.NUMBER):
            return self.notation.numbers(texts, whole=self.meaning is Meaning.WHOLE)
        return self.notation.moments(texts)

    @property
    def is_plain(self) -> bool:
        """Whether the cells are in program notation."""
        return self.notation == PLAIN or self.notation.dates in _PLAIN_DATES


_WORDS = ("inf", "nan", "Inf", "NaN")  # numbers, if the column has other numbers too
_PLAIN_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f")
_TEXT = Cells()


def is_just_text(text: str, conventions: Conventions) -> bool:
    """Return whether a text without surrounding spaces, and so its column, can be neither a number nor a date.

    Examples
    --------
    >>> is_just_text("E11.9", Conventions()), is_just_text("11.9", Conventions())
    (True, False)
    """
    if any(one not in _ORDERS for one in conventions.dates):
        return False
    looks = (text.lstrip("+-") in _WORDS, _FIGURES.fullmatch(text), _DAY.fullmatch(text), _NAMED.fullmatch(text))
    return not any(looks)


def find_cells(texts: pl.Series, conventions: Conventions) -> Cells:
    """Infer the meaning of the distinct texts of a column: numbers or dates only if no two of them are equal."""
    if texts.is_empty():
        return _TEXT
    first = texts[0]
    for cells in _candidates(first, texts, conventions):
        if cells.meaning is Meaning.TEXT:
            return cells
        values = cells.read(texts)
        if not values.has_nulls():
            return cells if values.n_unique() == len(texts) else _TEXT
    return _TEXT


def _candidates(first: str, texts: pl.Series, conventions: Conventions) -> Iterator[Cells]:
    """Yield possible meanings of the texts; the first one that reads them all is right."""
    for given in conventions.dates:
        if given not in _ORDERS and conventions.inferred:
            yield _dates(_for_polars(given))
    if _match(r"^\d{4}-\d\d-\d\d$", first, texts):
        yield _dates("%Y-%m-%d")
    elif _match(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?$", first, texts):
        yield _dates("%Y-%m-%d %H:%M:%S%.f")
    elif conventions.inferred and (_DAY.fullmatch(first) or _NAMED.fullmatch(first)):
        yield from _other_dates(first, texts, conventions)
    elif (first.lstrip("+-") not in _WORDS and not _FIGURES.fullmatch(first)) or texts.str.contains(r"^[+-]?0\d").any():
        return
    elif _match(r"^[+-]?\d+$", first, texts):
        yield Cells(Meaning.WHOLE)
    else:
        yield from _numbers(first, texts, conventions)


def _numbers(first: str, texts: pl.Series, conventions: Conventions) -> Iterator[Cells]:
    is_plain = _match(_DECIMAL, first, texts) and texts.str.contains(r"\d").any()
    # Where semicolons separate fields, a point may separate thousands.
    is_sure = not conventions.semicolons or not texts.str.contains(_THOUSANDS).all()
    if is_plain and (
        not conventions.inferred or conventions.decimal == "." or (conventions.decimal is None and is_sure)
    ):
        yield Cells(Meaning.NUMBER)
        return
    if not conventions.inferred:
        return
    signs = [sign for sign in ".,'" if texts.str.contains(sign, literal=True).any()]
    signs += [" "] if texts.str.contains(f"[{_BLANKS}]").any() else []
    fitting = [
        one
        for one in _OTHERS
        if conventions.decimal in (None, one.decimal)
        and (not one.grouping or one.grouping in signs)
        and all(sign in (one.decimal, one.grouping) for sign in signs)
        and (one == PLAIN or texts.str.contains(one.pattern).all())
        and (one != PLAIN or is_plain)
    ]
    has_decimals = [one for one in fitting if one.decimal in signs]
    if any(sign in signs for sign in " '") and not has_decimals:
        return  # telephone numbers look like this too
    grouped = [one for one in fitting if one.decimal not in signs]
    if not has_decimals and grouped:
        yield Cells(Meaning.WHOLE, grouped[0])
    elif len(has_decimals) == 1 and (not grouped or conventions.decimal):
        yield Cells(Meaning.NUMBER, has_decimals[0])
    elif has_decimals:
        shown = "1,234" if "," in signs else "1.234"
        yield Cells(doubt=f"numbers such as {shown} may have decimals or thousands", option="decimal")


def _other_dates(first: str, texts: pl.Series, conventions: Conventions) -> Iterator[Cells]:
    """Yield the format that reads all texts, or the doubt if several do and none is declared."""
    all_orders = conventions.formats(first, orders=tuple(_ORDERS))
    years = [one for one in all_orders if "%y" not in one]
    if years and conventions.orders:  # the position of a four-digit year is unambiguous
        declared = conventions.formats(first)
        years = [one for one in years if one in declared or one.startswith("%Y")]
    elif conventions.orders:
        years = conventions.formats(first)
    elif not years and all_orders:
        if any(not _dates(one).read(texts).has_nulls() for one in all_orders):
            yield Cells(doubt="years of two digits may be of any century", option="dates")
        return
    reading = [one for one in years if not _dates(one).read(texts).has_nulls() and _same_width(one, texts)]
    if len(reading) == 2 and "." in reading[0].partition(" ")[0]:
        reading = [one for one in reading if one.startswith("%d")]  # with points, every country writes the day first
    if len(reading) == 1:
        yield _dates(reading[0])
    elif reading:
        yield Cells(
            doubt="dates such as 03/04/1980 may begin with the day or with the month",
            option="dates",
        )


def _same_width(format: str, texts: pl.Series) -> bool:
    """Return whether all years have four digits if the format says so: ``%Y`` would read 68 as the year 68."""
    if "%Y" not in format or "%b" in format or "%B" in format:
        return True
    pattern = r"^\d{4}\D" if format.startswith("%Y") else r"^\d{1,2}\D\d{1,2}\D\d{4}(\D|$)"
    return bool(texts.str.contains(pattern).all())


def _named_formats(example: str) -> list[str]:
    """Return the formats of a date with the English name of a month."""
    found = _NAMED.fullmatch(example)
    if found is None:
        return []
    month = "%b" if len(found[3] or found[4]) == 3 else "%B"
    time = "" if not found[5] else " %H:%M:%S" if found[6] else " %H:%M"
    return [(f"%d{found[2]}{month}{found[2]}%Y" if found[1] else f"{month} %d, %Y") + time]


def _dates(format: str) -> Cells:
    notation = Notation(dates=format)
    return Cells(Meaning.MOMENT if notation.has_time else Meaning.DATE, notation)


def _match(pattern: str, first: str, texts: pl.Series) -> bool:
    """Return whether all texts match; testing the first one settles most columns."""
    return bool(re.search(pattern, first)) and bool(texts.str.contains(pattern).all())


def _for_polars(format: str) -> str:
    return format.replace("%S.%f", "%S%.f").replace("%T", "%H:%M:%S").replace("%R", "%H:%M").replace("%F", "%Y-%m-%d")


def _check_format(format: str) -> None:
    found = re.findall("%(.?)", format.replace("%.f", "%f"))
    has_day = "F" in found or ("d" in found and {"m", "b", "B"} & set(found) and {"Y", "y"} & set(found))
    if set(found) - _DIRECTIVES or not has_day:
        raise OptionError(
            f"'{format}' is not a date format",
            hint="give dmy, mdy or ymd, or a format such as %d.%m.%Y or '%d/%m/%Y %H:%M'",
        )


def _not_in_future(moments: pl.Series, format: str) -> pl.Series:
    """Move two-digit years that lie in the future to the previous century."""
    if "%y" not in format:
        return moments
    return moments.dt.offset_by("-100y").zip_with(moments.dt.year() > datetime.datetime.now(datetime.UTC).year, moments)

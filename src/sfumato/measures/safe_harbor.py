"""HIPAA's Safe Harbor: look for its 18 identifiers in a table.

US Code of Federal Regulations, 45 CFR 164.514(b)(2), and the guidance of the Department of
Health and Human Services on it (2012).

A program sees names of columns and shapes of values. It cannot see that a note names a neighbour.
A check without findings is therefore no proof, and none of this is legal advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from sfumato._errors import ColumnError, did_you_mean
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.suggest import words_of
from sfumato.data.table import Table

__all__ = ["RESTRICTED_ZIP3", "RULES", "Finding", "Status", "safe_harbor"]


class Status(StrEnum):
    """What a finding asks for.

    Examples
    --------
    >>> Status.PERSON.value
    'to be checked by a person'
    """

    FOUND = "found"
    """The rule is not kept, as far as names and values tell."""
    PERSON = "to be checked by a person"
    """A program cannot tell."""


RULES: dict[int, str] = {
    1: "names",
    2: "geographic subdivisions smaller than a state",
    3: "dates finer than a year, and ages over 89",
    4: "telephone numbers",
    5: "fax numbers",
    6: "e-mail addresses",
    7: "social security numbers",
    8: "medical record numbers",
    9: "health plan beneficiary numbers",
    10: "account numbers",
    11: "certificate and licence numbers",
    12: "vehicle identifiers and licence plates",
    13: "device identifiers and serial numbers",
    14: "web addresses (URLs)",
    15: "IP addresses",
    16: "biometric identifiers",
    17: "full-face photographs",
    18: "any other unique identifying number, characteristic or code",
}
"""The 18 identifiers of Safe Harbor, (A) to (R), by number."""

RESTRICTED_ZIP3 = frozenset(
    f"{prefix:03}" for prefix in (36, 59, 63, 102, 203, 556, 692, 790, 821, 823, 830, 831, 878, 879, 884, 890, 893)
)
"""The 3-digit ZIP prefixes with at most 20,000 people in the census of 2000, as the HHS guidance lists them."""


@dataclass(frozen=True)
class Finding:
    """Where a table may break a rule of Safe Harbor. Values are counted, never quoted."""

    rule: int
    """The number of the rule; 1 is (A), 18 is (R)."""
    name: str
    """What the rule is about."""
    column: str | None
    """The column, or None if the finding is about the whole table."""
    status: Status
    count: int | None
    """The number of rows that it is about, if they can be counted."""
    found: str
    """What was found, as a sentence."""
    action: str
    """What to do."""

    @property
    def letter(self) -> str:
        """The letter of the rule in the regulation."""
        return chr(ord("A") + self.rule - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {
            "rule": self.rule,
            "letter": self.letter,
            "name": self.name,
            "column": self.column,
            "status": self.status.value,
            "count": self.count,
            "found": self.found,
            "action": self.action,
        }


def safe_harbor(
    table: Table | Any,
    schema: Schema | None = None,
    *,
    zips: Sequence[str] = (),
    ages: Sequence[str] = (),
    dates: Sequence[str] = (),
    restricted: Collection[str] = RESTRICTED_ZIP3,
) -> tuple[Finding, ...]:
    """Look for the 18 identifiers of HIPAA's Safe Harbor in the names and values of the columns.

    Parameters
    ----------
    table : Table or frame
    schema : Schema, optional
    zips, ages, dates : sequence of str
        Columns that hold ZIP codes, ages or dates though their names do not say so.
    restricted : collection of str
        The 3-digit ZIP prefixes that must become 000; a newer census than that of 2000 may list others.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"zip": ["03601", "100**"], "age": [34, 93], "disease": ["flu", "flu"]})
    >>> for finding in safe_harbor(frame):
    ...     if finding.column:
    ...         print(finding.letter, finding.status.value, "-", finding.found)
    B found - column 'zip' holds 1 ZIP code(s) of more than three digits
    C found - column 'age' holds 1 age(s) over 89
    """
    table = Table.of(table, schema=schema)
    for name in (*zips, *ages, *dates):
        if name not in table.schema.names:
            raise ColumnError(
                f"Safe Harbor is asked to look at a column '{name}', which the table lacks",
                hint=did_you_mean(name, table.schema.names),
            )
    told = {name: kind for kind, names in (("zip", zips), ("age", ages), ("date", dates)) for name in names}
    found = [
        finding
        for column in table.schema.columns
        for finding in _column_findings(table, column, told.get(column.name), restricted)
    ]
    return tuple(sorted([*found, *_UNSEEN], key=lambda finding: finding.rule))


def _finding(rule: int, column: str | None, status: Status, count: int | None, found: str, action: str) -> Finding:
    return Finding(rule, RULES[rule], column, status, count, found, action)


_UNSEEN = (
    _finding(16, None, Status.PERSON, None, "fingerprints, voices and the like have no shape of their own", "look"),
    _finding(17, None, Status.PERSON, None, "a table does not show what its pictures show", "look at linked pictures"),
    _finding(
        18,
        None,
        Status.PERSON,
        None,
        "what is rare and known about someone can identify them, and nobody may know that the rest identifies anyone",
        "read free texts and rare values; 164.514(b)(2)(ii) also asks for no actual knowledge",
    ),
)

_REMOVE = "remove the column"


def _named(phrases: str) -> re.Pattern[str]:
    """Match names that hold one of these phrases as whole words."""
    return re.compile(rf"(?:^|_)(?:{'|'.join(phrases.split())})s?(?:_|$)")


_ZIP_NAME = _named(r"zip zip_?code zip_?[35] zcta\d? postal_?code post_?code")
_AGE_NAME = _named(r"age age_?(?:in_)?years? years_old")
_DATE_NAME = _named(r"date datetime timestamp dob dod birth_?(?:day|date) (?:born|died|admitted|discharged)_(?:on|at)")
_YEAR_NAME = _named(r"birth_?year year_of_birth yob")

# The first rule that fits a name is taken: a licence plate is no licence, an e-mail address no address.
_NAMES: tuple[tuple[int, re.Pattern[str]], ...] = (
    (5, _named(r"fax \w+_fax")),
    (6, _named(r"e_?mail")),
    (7, _named(r"ssn social_security\w*")),
    (8, _named(r"mrn medical_record\w* (?:patient|chart|record|encounter|case)_?(?:id|no|nr|num|number)")),
    (9, _named(r"(?:beneficiary|member|subscriber|policy|plan|insurance|medicare|medicaid)_?(?:id|no|nr|num|number)")),
    (10, _named(r"iban (?:bank_)?account(?:_?(?:id|no|nr|num|number))? (?:credit|debit|payment)_?card(?:_\w+)?")),
    (12, _named(r"vin vehicle_?(?:id|no|nr|num|number|serial) (?:number|licen[cs]e)_?plate plate_?(?:no|number)")),
    (
        11,
        _named(r"licen[cs]e(?:_?(?:id|no|nr|num|number))? certificate(?:_?(?:id|no|nr|num|number))? passport npi dea"),
    ),
    (13, _named(r"imei udi (?:device|implant|serial)_?(?:id|no|nr|num|number|serial)(?:_\w+)?")),
    (14, _named(r"url website web_?page homepage")),
    (15, _named(r"ip ip_?address(?:es)?")),
    (16, _named(r"finger_?print voice_?print retina iris_scan biometric")),
    (17, _named(r"photo photograph picture face_?image portrait")),
    (4, _named(r"(?:tele)?phone tel ^mobile$ (?:mobile|cell)_?(?:no|number|phone)")),
    (1, _named(r"^names?$ (?:first|last|middle|given|family|full|maiden|patient|person|doctor|physician|user)_?name")),
    (1, _named(r"[fl]name surname forename initials next_of_kin employer")),
    (
        2,
        _named(r"street address(?:es)? city cities town village county counties precinct parish municipality district"),
    ),
    (2, _named(r"census_(?:tract|block) geocode fips lat latitude lon lng longitude neighbou?rhood")),
)

# Unlike suggest's shapes, these are sought anywhere in a text: one address in one note is enough to break the rule.
_VALUES: tuple[tuple[int, str, str], ...] = (
    (6, "an e-mail address", r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"),
    (7, "a number like a US social security number", r"(?:^|[^0-9-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?:[^0-9-]|$)"),
    (4, "a number like a US telephone number", r"(?:^|[^0-9])\(?[0-9]{3}\)?[ .-] ?[0-9]{3}[ .-][0-9]{4}(?:[^0-9]|$)"),
    (14, "a web address", r"(?i)(?:https?://|www\.)[^\s]+"),
    (15, "an IP address", r"(?:^|[^0-9.])(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}[0-9]{1,3}(?:[^0-9.]|$)"),
)
_MONTH_NAME = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_TEXT_DATE = (
    r"(?i)^(?:[12][0-9]{3}[-/.][01]?[0-9](?:[-/.][0-3]?[0-9](?:[T ].*)?)?"  # 2020-03, 2020-03-01, with a time
    r"|[0-3]?[0-9][-/.][0-3]?[0-9][-/.](?:[12][0-9])?[0-9]{2}(?: .*)?"  # 01/03/2020, 1.3.20
    rf"|(?:[0-3]?[0-9][ -])?{_MONTH_NAME}[ -](?:[0-3]?[0-9],? )?(?:[12][0-9])?[0-9]{{2}})$"
)


def _column_findings(table: Table, column: Column, told: str | None, restricted: Collection[str]) -> Iterator[Finding]:
    name, words = column.name, words_of(column.name)
    try:
        values = _present(table.column(name))
    except ColumnError:
        yield _finding(18, name, Status.PERSON, None, f"column '{name}' holds values of mixed types", "look at it")
        return
    if values.dtype.is_nested() or values.dtype == pl.Object:
        yield _finding(18, name, Status.PERSON, len(values), f"column '{name}' holds lists or records", "look at it")
        return
    if not len(values):
        return

    special = told or next((kind for kind, names in _SPECIAL_NAMES if names.search(words)), None)
    if special:
        yield from _SPECIAL[special](name, values, restricted)
        return
    rule = next((number for number, names in _NAMES if names.search(words)), None)
    seen = list(_dates(name, values, restricted, named=False))
    if rule:
        what = f"the name of column '{name}' suggests {RULES[rule]}; {len(values)} row(s) have a value"
        seen.append(_finding(rule, name, Status.FOUND, len(values), what, _REMOVE))
    for number, thing, pattern in _VALUES if values.dtype == pl.String else ():
        count = int(values.str.contains(pattern).sum())
        if count and number != rule:
            what = f"column '{name}' holds {count} value(s) with {thing}"
            seen.append(_finding(number, name, Status.FOUND, count, what, "remove or mask them"))
    yield from seen or _unique(column, values)


def _present(values: pl.Series) -> pl.Series:
    """Leave out what is missing or suppressed; texts without the blanks around them."""
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        return values.filter(values.is_not_null() & ~values.is_in(["", "*"]))
    return (values.fill_nan(None) if values.dtype.is_float() else values).drop_nulls()


def _zips(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    """Check the rule of three digits; see 164.514(b)(2)(i)(B)."""
    if values.dtype.is_numeric():
        short = int((values < 10_000).sum())
        what = (
            f"column '{name}' was read as numbers, so that leading zeros of ZIP codes are lost; "
            f"{short} of {len(values)} have fewer than five digits"
        )
        yield _finding(2, name, Status.PERSON, short, what, f"read column '{name}' as text")
        values = values.cast(pl.Int64, strict=False).cast(pl.String).drop_nulls()
    if values.dtype != pl.String:
        yield _finding(2, name, Status.PERSON, len(values), f"column '{name}' holds no ZIP codes to read", "look at it")
        return
    long = int(values.str.contains(_ZIP_LONG).sum())
    if long:
        what = f"column '{name}' holds {long} ZIP code(s) of more than three digits"
        yield _finding(2, name, Status.FOUND, long, what, "keep the first three digits, or less")
    prefix = values.str.extract(_ZIP_PREFIX).drop_nulls()
    rare = int(prefix.str.extract("^([0-9]+)").str.zfill(3).is_in(sorted(restricted)).sum())
    if rare:
        what = f"column '{name}' holds {rare} 3-digit ZIP prefix(es) of an area with at most 20,000 people"
        yield _finding(2, name, Status.FOUND, rare, what, "replace them by 000")
    other = len(values) - long - len(prefix) - int(values.str.contains(_ZIP_COARSE).sum())
    if other:
        what = f"column '{name}' holds {other} value(s) that do not look like ZIP codes"
        yield _finding(2, name, Status.PERSON, other, what, "look at them")


# A value fits at most one of these. One or two digits that are not masked have lost their zeros.
_ZIP_LONG = r"^[0-9]{5}(?:-?[0-9]{4})?$|^[0-9]{4}[*xX#]?$"
_ZIP_PREFIX = r"^([0-9]{3}[*xX#]{0,2}|[0-9]{1,2})$"
_ZIP_COARSE = r"^[0-9]{0,2}[*xX#]+$"
_OLDEST = r"^(?:90 ?\+|90 (?:or|and) (?:older|over|above)|(?:>=|≥) ?90|> ?89|over 89)$"
_AGE_RANGE = r"^[\[(]? ?[0-9.]+ ?(?:-|–|,|to) ?([0-9.]+) ?[\])]?$"


def _ages(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    """Check that no age over 89 is told apart from the others; see 164.514(b)(2)(i)(C)."""
    if values.dtype == pl.String:
        values = values.str.to_lowercase()
        values = values.filter(~values.str.contains(_OLDEST))
        upper = values.str.extract(_AGE_RANGE).cast(pl.Float64, strict=False)
        upper = upper - values.str.ends_with(")").cast(pl.Float64)  # a range that is open at 90 ends at 89
        age = values.cast(pl.Float64, strict=False).fill_null(upper)
        unread = int(age.null_count())
        if unread:
            what = f"column '{name}' holds ages as texts, {unread} of which are neither numbers nor ranges"
            action = f"turn column '{name}' into numbers, with one group 90+ for the oldest"
            yield _finding(3, name, Status.PERSON, unread, what, action)
    elif values.dtype.is_numeric():
        age = values.cast(pl.Float64)
    else:
        yield _finding(3, name, Status.PERSON, len(values), f"column '{name}' holds no ages to read", "look at it")
        return
    old = int((age >= 90).sum())
    if old:
        what = f"column '{name}' holds {old} age(s) over 89"
        yield _finding(3, name, Status.FOUND, old, what, "put all ages over 89 into one group, 90+")


def _dates(name: str, values: pl.Series, restricted: Collection[str], named: bool = True) -> Iterator[Finding]:
    """Check that dates tell no more than the year; `named` says that the column claims to hold dates."""
    if values.dtype.is_temporal():
        fine = len(values)
        if values.dtype == pl.Date or isinstance(values.dtype, pl.Datetime):
            fine = int((values.dt.truncate("1y") != values).sum())  # the first of January stands for the year
        elif isinstance(values.dtype, pl.Duration):
            return
    elif values.dtype == pl.String:
        fine = int(values.str.contains(_TEXT_DATE).sum())
        fine += int(values.str.contains("^[12][0-9]{7}$").sum()) if named else 0
    elif values.dtype.is_integer() and named:
        fine = int(values.cast(pl.String).str.contains("^[12][0-9]{7}$").sum())
    else:
        fine = 0
    if fine:
        what = f"column '{name}' holds {fine} date(s) finer than a year"
        yield _finding(3, name, Status.FOUND, fine, what, "keep the year")
    elif named and not values.dtype.is_temporal():
        years = int(values.cast(pl.String).str.contains("^[12][0-9]{3}$").sum())
        if years < len(values):
            other = len(values) - years
            what = f"column '{name}' holds {other} value(s) that can be read neither as years nor as dates"
            yield _finding(3, name, Status.PERSON, other, what, "look at them")


def _years(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    yield from _dates(name, values, restricted)
    what = f"column '{name}' holds years of birth, which may show an age over 89"
    yield _finding(3, name, Status.PERSON, len(values), what, "put the earliest years into one group")


_SPECIAL_NAMES = (("zip", _ZIP_NAME), ("year", _YEAR_NAME), ("age", _AGE_NAME), ("date", _DATE_NAME))
_SPECIAL: dict[str, Callable[[str, pl.Series, Collection[str]], Iterator[Finding]]] = {
    "zip": _zips,
    "age": _ages,
    "date": _dates,
    "year": _years,
}


def _unique(column: Column, values: pl.Series) -> Iterator[Finding]:
    """Look for codes: columns that the schema calls identifiers, and those that differ in every row."""
    rows, name = len(values), column.name
    if column.role is Role.IDENTIFIER:
        what = f"column '{name}' has the role identifier; {rows} row(s) have a value"
        yield _finding(18, name, Status.FOUND, rows, what, _REMOVE)
    elif rows > 1 and not values.dtype.is_float() and values.n_unique() == rows:
        what = f"column '{name}' has a different value in each of its {rows} rows, as a code has"
        yield _finding(18, name, Status.PERSON, rows, what, "remove it if it is a code that others can look up")

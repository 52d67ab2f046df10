"""HIPAA's Safe Harbor: look for its 18 identifiers in a table.

US Code of Federal Regulations, 45 CFR 164.514(b)(2), and the guidance of the Department of
Health and Human Services on it (2012).

A program sees the names of columns and the form of values. It cannot see that a note names a
neighbour. A check without findings is therefore not a proof, and none of this is legal advice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.suggest import words_of
from sfumato.data.table import Table
from sfumato.errors import ColumnError, did_you_mean

__all__ = ["RESTRICTED_ZIP3", "RULES", "Finding", "Status", "safe_harbor"]


class Status(StrEnum):
    """The status of a finding.

    Examples
    --------
    >>> Status.PERSON.value
    'to be checked by a person'
    """

    FOUND = "found"
    """Names or values show that the rule is broken."""
    PERSON = "to be checked by a person"
    """A program cannot decide."""


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
    """A possible violation of a Safe Harbor rule. Values are counted, never quoted."""

    rule: int
    """The number of the rule; 1 is (A), 18 is (R)."""
    name: str
    """The identifier that the rule is about."""
    column: str | None
    """The column, or None if the finding is about the whole table."""
    status: Status
    count: int | None
    """The number of affected rows, if they can be counted."""
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
        return {"rule": self.rule, "letter": self.letter, **asdict(self), "status": self.status.value}


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
        The table to check.
    schema : Schema, optional
    zips, ages, dates : sequence of str
        Columns of ZIP codes, ages or dates that cannot be recognised by name.
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
    given = {name: kind for kind, names in (("zip", zips), ("age", ages), ("date", dates)) for name in names}
    found = [
        finding
        for column in table.schema.columns
        for finding in _column_findings(table, column, given.get(column.name), restricted)
    ]
    return tuple(sorted([*found, *_UNSEEN], key=lambda finding: finding.rule))


def _finding(rule: int, column: str | None, status: Status, count: int | None, found: str, action: str) -> Finding:
    return Finding(rule, RULES[rule], column, status, count, found, action)


_UNSEEN = tuple(
    _finding(rule, None, Status.PERSON, None, found, action)
    for rule, found, action in (
        (16, "fingerprints, voices and the like have no shape of their own", "look"),
        (17, "a table does not show what its pictures show", "look at linked pictures"),
        (
            18,
            "what is rare and known about someone can identify them, "
            "and nobody may know that the rest identifies anyone",
            "read free texts and rare values; 164.514(b)(2)(ii) also asks for no actual knowledge",
        ),
    )
)

_REMOVE = "remove the column"
_FEW = 20  # distinct values, at most, of a column that says what kind something is
_LONG = 40  # characters of a free text, on average
_DIFFERENT = 0.1  # of the values of a free text, at least; the labels of a code book recur
_NEARLY_ALL = 0.9  # of the values of a code, so many differ
_CODE = 10_000  # numbers from here on may be codes, though they recur


def _named(phrases: str) -> re.Pattern[str]:
    """Match names that hold one of these phrases as whole words."""
    return re.compile(rf"(?:^|_)(?:{'|'.join(phrases.split())})s?(?:_|$)")


_NO = "_?(?:id|no|nr|num|number)"
_WHO = (
    "first|last|middle|given|family|full|maiden|nick|user|patient|person|doctor|physician|provider|nurse|contact|mother"
    "|father|parent|guardian|spouse|partner|child|sibling|relative|kin|customer|client|employee|employer|member|subject"
    "|participant|student|holder|owner|insured"
)
# phone_type and num_accounts describe telephones and accounts, but are not such numbers.
_QUALIFIED = re.compile(
    r"^(?:n|num|count|(?:number|no|type|kind|count)_of|percent|pct|flag|has|is)_"
    r"|_(?:type|kind|count|size|flag|percent|pct|ratio|rate|share|score|status|population|version|attorney)s?$"
)
_SPECIAL_NAMES = (
    ("zip", _named(r"zip zip_?code zip_?[35] zcta\d? postal_?code post_?code ^postal$ plz")),
    ("year", _named(r"birth_?year year_of_birth yob")),
    ("age", _named(r"age age_?(?:in_)?(?:year|yr)s? years_old")),
    ("date", _named("date datetime timestamp dob dod birth_?(?:day|date) (?:born|died|admitted|discharged)_(?:on|at)")),
)
# The first match applies: a licence plate is not a licence, an e-mail address not an address.
_NAMES: tuple[tuple[int, Status, re.Pattern[str]], ...] = (
    (5, Status.FOUND, _named(r"fax \w+_fax")),
    (6, Status.FOUND, _named(r"e_?mail")),
    (7, Status.FOUND, _named(r"ssn social_security\w*")),
    (8, Status.FOUND, _named(rf"mrn medical_record\w* (?:patient|pat|chart|record|encounter|case|hospital){_NO}")),
    (9, Status.FOUND, _named(rf"(?:beneficiary|member|subscriber|policy|plan|insurance|medicare|medicaid){_NO}")),
    (10, Status.FOUND, _named(rf"iban ^accounts?$ bank_account account{_NO}")),
    (10, Status.FOUND, _named(rf"(?:credit|debit|payment)_?card(?:{_NO}|$)")),
    (12, Status.FOUND, _named(rf"vin vehicle(?:{_NO}|_serial) (?:number|licen[cs]e)_?plate plate{_NO}")),
    (11, Status.FOUND, _named(rf"licen[cs]e(?:{_NO})? certificate(?:{_NO})? passport npi dea")),
    (13, Status.FOUND, _named(rf"imei udi mac_address (?:device|implant|serial)(?:{_NO}|_serial)(?:_\w+)?")),
    (14, Status.FOUND, _named("url website web_?page homepage")),
    (15, Status.FOUND, _named("ip ip_?address(?:es)?")),
    (16, Status.FOUND, _named("finger_?print voice_?print retina iris_scan biometric")),
    (17, Status.FOUND, _named("photo photograph picture face_?image portrait")),
    (4, Status.FOUND, _named(f"(?:tele)?phone tel ^mobile$ (?:mobile|cell)(?:{_NO}|_?phone)")),
    (1, Status.FOUND, _named(f"^names?$ (?:{_WHO})_?name name_of_(?:{_WHO}) ^employer$")),
    (1, Status.FOUND, _named("[fl]name surname forename initials next_of_kin")),
    (2, Status.FOUND, _named("street address(?:es)? city cities town village county counties precinct parish")),
    (2, Status.FOUND, _named("municipality district census_(?:tract|block) geocode fips neighbou?rhood")),
    (2, Status.FOUND, _named("lat latitude lon lng longitude")),
    (1, Status.PERSON, _named(r"^\w+_name$ ^name_of_\w+$ ^(?:patient|physician|provider|doctor|nurse)$")),
    (18, Status.PERSON, _named(f"^id$ (?:subject|participant|person|customer|client|employee|user|study){_NO}")),
)

_PHONE = (
    r"(?:^|[^0-9])(?:\([0-9]{3}\)[ .-]? ?|[0-9]{3}[ .-] ?)[0-9]{3}[ .-][0-9]{4}(?:[^0-9]|$)"
    r"|(?:^|[^0-9])\+[1-9][0-9]{0,2}(?:[ -]?\(?[0-9]{2,4}\)?){3,5}"
)
_IP = r"(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}(?:[^0-9.]|\.?$|\.[^0-9])"
# Unlike the patterns of `suggest`, these match anywhere in a text: one address in one note breaks the rule. Only a
# pattern that also matches version numbers must match a share of the values.
_VALUES: tuple[tuple[int, str, float, str], ...] = (
    (6, "an e-mail address", 0, r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"),
    (7, "a number like a US social security number", 0, r"(?:^|[^0-9-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?:[^0-9-]|$)"),
    (4, "a number like a telephone number", 0, _PHONE),
    (13, "an address of a device (MAC)", 0, r"(?i)\b(?:(?:[0-9a-f]{2}:){5}|(?:[0-9a-f]{2}-){5})[0-9a-f]{2}\b"),
    (14, "a web address", 0, r"(?i)(?:https?://|www\.)[^\s]+"),
    (15, "an IP address", 0.5, rf"(?:^|[^0-9.])[0-9]{{1,3}}{_IP}"),
    (15, "an IP address", 0, rf"(?:^|[^0-9.])(?:1[0-9]{{2}}|2[0-5][0-9]){_IP}"),
)

_YEAR, _DAY = "(?:1[89][0-9]{2}|20[0-9]{2}|2100)", "(?:0?[1-9]|[12][0-9]|3[01])"
_MONTH_NAME = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTH = f"{_YEAR}[-/](?:0[1-9]|1[0-2])"
_DATE = "(?i)" + "|".join(
    (
        # anywhere in a text
        rf"(?:^|[^0-9./-]){_YEAR}[-/.](?:0?[1-9]|1[0-2])[-/.]{_DAY}(?:[^0-9]|$)",  # 2020-03-01
        rf"(?:^|[^0-9./-]){_DAY}[-/.]{_DAY}[-/.]{_YEAR}(?:[^0-9]|$)",  # 01/03/2020, 1.3.2020
        rf"\b{_MONTH_NAME}[ -](?:{_DAY}(?:st|nd|rd|th)?,? )?{_YEAR}\b",  # March 2020, March 1st, 2020
        rf"\b{_YEAR}[ -]?(?:q[1-4]|w[0-5][0-9])\b|\bq[1-4][ /-]{_YEAR}\b",  # 2020-Q1, 2020-W05, Q1 2020
        # as the whole value
        rf"^[\[(]?{_MONTH}(?:, {_MONTH})?[\])]?$",  # 2020-03, [2020-01, 2020-03)
        rf"^{_DAY}[-/]{_DAY}[-/][0-9]{{2}}(?: .*)?$",  # 01/03/20
        rf"^(?:{_DAY}[ -])?{_MONTH_NAME}[ -][0-9]{{2}}$",  # Mar-20, 1 Mar 20
    )
)
_NAMED_DATE = rf"^[12][0-9]{{7}}$|^{_DAY}\.{_DAY}\.[0-9]{{2}}$"  # 20200301 and 1.3.20, where a name says so
_NAMED_YEAR = r"^[\[(]?[12][0-9]{3}(?:(?:-|–|, )[12][0-9]{3})?[\])]?$"


def _column_findings(table: Table, column: Column, given: str | None, restricted: Collection[str]) -> Iterator[Finding]:
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

    distinct = values.n_unique()
    plain = not _QUALIFIED.search(words)
    special = given or next((kind for kind, names in _SPECIAL_NAMES if plain and names.search(words)), None)
    seen = list(_SPECIAL[special](name, values, restricted)) if special else []
    if special not in ("date", "year"):
        seen += _dates(name, values, restricted, named=False)
    shapes = _shapes(values) if values.dtype == pl.String else {}
    named = next((row for row in _NAMES if plain and not special and row[2].search(words)), None)
    rule = named[0] if named else None
    if named and (named[:2] != (1, Status.PERSON) or values.dtype == pl.String):
        number, status, _ = named
        if column.role.is_identifier or number in shapes:
            status = Status.FOUND
        elif _recurs(values, distinct):
            status = Status.PERSON
        what = f"the name of column '{name}' suggests {RULES[number]}; {len(values)} row(s) have a value"
        action = _REMOVE if status is Status.FOUND else "look at it, and remove it if it is so"
        seen.append(_finding(number, name, status, len(values), what, action))
    for number, (thing, count) in shapes.items():
        if number != rule:
            what = f"column '{name}' holds {count} value(s) with {thing}"
            seen.append(_finding(number, name, Status.FOUND, count, what, "remove or mask them"))
    if _is_free_text(column, values, distinct):
        what = f"column '{name}' holds free texts, which a program cannot read"
        seen.append(_finding(18, name, Status.PERSON, len(values), what, "read them, or remove the column"))
    yield from seen
    if column.role.is_identifier and not any(finding.status is Status.FOUND for finding in seen):
        what = f"column '{name}' has the role identifier; {len(values)} row(s) have a value"
        yield _finding(18, name, Status.FOUND, len(values), what, _REMOVE)
    elif not seen and not special:
        yield from _unique(name, values, distinct)


def _present(values: pl.Series) -> pl.Series:
    """Drop missing and suppressed values, and strip texts."""
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        return values.filter(values.is_not_null() & ~values.is_in(["", "*"]))
    return (values.fill_nan(None) if values.dtype.is_float() else values).drop_nulls()


def _matching(values: pl.Series, pattern: str) -> int:
    return int(values.str.contains(pattern).sum())


def _shapes(values: pl.Series) -> dict[int, tuple[str, int]]:
    """Count the values with an identifier in them, by rule."""
    shapes: dict[int, tuple[str, int]] = {}
    for number, thing, share, pattern in _VALUES:
        count = _matching(values, pattern)
        if count and count >= share * len(values):
            shapes.setdefault(number, (thing, count))
    return shapes


def _recurs(values: pl.Series, distinct: int) -> bool:
    """Return whether values recur like those of a category or a quantity."""
    if 2 * distinct >= len(values):
        return False
    low: Any = values.min() if values.dtype.is_numeric() else None
    return low < _CODE if low is not None else distinct <= _FEW


def _is_free_text(column: Column, values: pl.Series, distinct: int) -> bool:
    if values.dtype != pl.String or column.kind is Kind.TEXT:
        return values.dtype == pl.String
    length: Any = values.str.len_chars().mean()
    return length > _LONG and distinct >= _DIFFERENT * len(values)


def _zips(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    """Check the rule of three digits; see 164.514(b)(2)(i)(B)."""
    if values.dtype.is_numeric():
        short = int((values < 10_000).sum())
        what = (
            f"column '{name}' was read as numbers, so leading zeros of ZIP codes are lost; "
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


# A value matches at most one of these. One or two unmasked digits have lost their leading zeros.
_ZIP_LONG = r"^[0-9]{5}(?:-?[0-9]{4})?$|^[0-9]{4}[*xX#]?$"
_ZIP_PREFIX = r"^([0-9]{3}[*xX#]{0,2}|[0-9]{1,2})$"
_ZIP_COARSE = r"^[0-9]{0,2}[*xX#]+$"

_NUMBER = r"(-?(?:inf|∞|[0-9]+(?:\.[0-9]+)?))"
_AGE_RANGE = re.compile(rf"([\[\](]?) ?{_NUMBER} ?(?:-|–|,|to) ?{_NUMBER} ?([\])\[]?)")
_AGE_ENDS: tuple[tuple[re.Pattern[str], Callable[[float], tuple[float, float]]], ...] = (
    (re.compile(r"([0-9]+(?:\.[0-9]+)?)"), lambda age: (age, age)),
    (re.compile(r"(?:>=|≥) ?([0-9]+)"), lambda age: (age, math.inf)),
    (re.compile(r"([0-9]+) ?(?:\+|(?:or|and) (?:older|over|above))"), lambda age: (age, math.inf)),
    (re.compile(r"(?:>|over) ?([0-9]+)"), lambda age: (age + 1, math.inf)),
    (re.compile(r"(?:<=?|≤|under|up to) ?([0-9]+)"), lambda age: (-math.inf, age)),
)


def _age_group(text: str) -> tuple[float, float] | None:
    """Parse the lowest and the highest age of a text, in whole years for an open end."""
    if found := _AGE_RANGE.fullmatch(text):
        opening, low, high, closing = found.groups()
        first, last = (float(end.replace("∞", "inf")) for end in (low, high))
        return first + (opening in ("(", "]")), last - (closing in (")", "["))
    ends = ((pattern.fullmatch(text), group) for pattern, group in _AGE_ENDS)
    return next((group(float(found[1])) for found, group in ends if found), None)


def _ages(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    """Check that ages over 89 are in one group; see 164.514(b)(2)(i)(C)."""
    if not (values.dtype == pl.String or values.dtype.is_numeric()):
        yield _finding(3, name, Status.PERSON, len(values), f"column '{name}' holds no ages to read", "look at it")
        return
    unread, groups = 0, dict[tuple[float, float], int]()
    for value, count in values.value_counts().iter_rows():
        group = _age_group(value.lower()) if isinstance(value, str) else (float(value), float(value))
        if group is None:
            unread += count
        elif group[1] >= 90:
            groups[group] = groups.get(group, 0) + count
    if unread:
        what = f"column '{name}' holds ages as texts, {unread} of which are neither numbers nor ranges"
        action = f"turn column '{name}' into numbers, with one group 90+ for the oldest"
        yield _finding(3, name, Status.PERSON, unread, what, action)
    low, high = min(groups, default=(90.0, math.inf))
    if len(groups) <= 1 and low >= 90 and high > low:
        return
    old = sum(groups.values())
    what, status = f"column '{name}' holds {old} age(s) over 89", Status.FOUND
    if len(groups) == 1 and high == math.inf:
        what, status = f"column '{name}' holds {old} age(s) in a group without end that begins below 90", Status.PERSON
    yield _finding(3, name, status, old, what, "put all ages over 89 into one group, 90+")


def _dates(name: str, values: pl.Series, restricted: Collection[str], named: bool = True) -> Iterator[Finding]:
    """Check that dates show only the year; `named` means that the name of the column suggests dates."""
    fine = 0
    if isinstance(values.dtype, pl.Duration):
        return
    if values.dtype == pl.Date or isinstance(values.dtype, pl.Datetime):
        fine = int((values.dt.truncate("1y") != values).sum())  # the first of January means the year
    elif values.dtype.is_temporal():
        fine = len(values)
    elif values.dtype == pl.String:
        fine = _matching(values, f"{_DATE}|{_NAMED_DATE}" if named else _DATE)
    elif values.dtype.is_integer() and named:
        fine = _matching(values.cast(pl.String), _NAMED_DATE)
    if fine:
        what = f"column '{name}' holds {fine} date(s) finer than a year"
        yield _finding(3, name, Status.FOUND, fine, what, "keep the year")
    elif named and not values.dtype.is_temporal():
        other = len(values) - _matching(values.cast(pl.String), _NAMED_YEAR)
        if other:
            what = f"column '{name}' holds {other} value(s) that can be read neither as years nor as dates"
            yield _finding(3, name, Status.PERSON, other, what, "look at them")


def _years(name: str, values: pl.Series, restricted: Collection[str]) -> Iterator[Finding]:
    yield from _dates(name, values, restricted)
    what = f"column '{name}' holds years of birth, which may show an age over 89"
    yield _finding(3, name, Status.PERSON, len(values), what, "put the earliest years into one group")


_Check = Callable[[str, pl.Series, Collection[str]], Iterator[Finding]]
_SPECIAL: dict[str, _Check] = {"zip": _zips, "age": _ages, "date": _dates, "year": _years}


def _unique(name: str, values: pl.Series, distinct: int) -> Iterator[Finding]:
    """Find codes: values that differ in every row, or in nearly every row and have 9 or 10 digits."""
    rows = len(values)
    if rows > 1 and not values.dtype.is_float() and distinct == rows:
        what = f"column '{name}' has a different value in each of its {rows} rows, as a code has"
        yield _finding(18, name, Status.PERSON, rows, what, "remove it if it is a code that others can look up")
    elif values.dtype == pl.String and distinct >= _NEARLY_ALL * rows > 1:
        count = _matching(values, "^[0-9]{9,10}$")
        if 2 * count >= rows:
            what = f"column '{name}' holds {count} number(s) of 9 or 10 digits, as social security or telephone numbers"
            yield _finding(18, name, Status.PERSON, count, what, "remove it if they are such numbers or other codes")

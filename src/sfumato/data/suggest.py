"""Propose what each column of a table is, and say why.

The first of `_RULES` that has something to say gives a column its role and its reason. Rules
know the name of the column and a sample of its distinct values; a reason says what these
look like and how many they are, and never quotes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import polars as pl

from sfumato._errors import ColumnError
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table

__all__ = ["suggest", "words_of"]

_SAMPLE = 10_000  # distinct values that are looked at
_ONE_IN = 5  # of them may look different: 80 % must look alike
_FEWEST_ROWS = 20  # in fewer rows, values differ by chance
_MANY_VALUES = 50  # a category with more has rare values
_NEARLY_ALL = 0.9  # of the values of a free text, so many differ
_LONG = 40  # characters of a free text, on average


def suggest(table: Table | Any) -> Schema:
    """Propose a role and a kind for every column, each with its reason.

    Roles that a table already has are not looked at; its bounds, domains and hierarchies are
    kept where they fit the proposed kind.

    Examples
    --------
    >>> import polars as pl
    >>> schema = suggest(pl.DataFrame({"zip": [12345, 12346], "salary": [1000.5, 2000.0]}))
    >>> for column in schema.columns:
    ...     print(column.role.value, column.kind.value, "-", column.reason)
    quasi category - its name suggests something that others know about a person; its numbers are codes, not quantities
    sensitive number - its name suggests something that a person may want to keep private
    """
    table = Table.of(table)
    if any(column.kind is Kind.AUTO for column in table.schema.columns):  # only the rows of a text file can tell
        table = Table(table.frame, table.schema)
    return Schema(_proposal(table, column) for column in table.schema.columns)


@dataclass(frozen=True)
class _Facts:
    """What the rules know of a column."""

    words: str
    kind: Kind
    rows: int = 0
    present: int = 0
    distinct: int = 0
    is_whole: bool = False
    is_dates: bool = False
    texts: Sequence[str] = ()
    trouble: str = ""


class _Look(NamedTuple):
    """What values look like: a shape, and a check of those that have it."""

    things: str
    shape: re.Pattern[str]
    holds: Callable[[str], bool] = bool

    def fits(self, texts: Sequence[str]) -> bool:
        """Say whether most texts look like this; stop at the first that is one too many of the others."""
        others = (text for text in texts if not (self.shape.fullmatch(text) and self.holds(text)))
        return bool(texts) and next(islice(others, len(texts) // _ONE_IN, None), None) is None


def _is_iban(text: str) -> bool:
    plain = text.replace(" ", "")
    return int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1  # ISO 7064, mod 97-10


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]
    return sum(digits[::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0  # Luhn


def _is_phone(text: str) -> bool:
    return 7 <= sum(map(str.isdigit, text)) <= 20 and not _THOUSANDS.fullmatch(text)


_DAY, _MONTH, _TIME = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:0?[1-9]|1[0-2])", "(?:[T ][0-9:.,+Z -]+)?"
_DATE = re.compile(rf"(?:[0-9]{{4}}[-/. ]{_MONTH}[-/. ]{_DAY}|{_DAY}[-/. ]{_DAY}[-/. ][0-9]{{4}}){_TIME}")
_THOUSANDS = re.compile("[0-9]{1,3}(?:[ .][0-9]{3})+")
# Without a plus or brackets, only the groups that phone numbers have: no numbers, ranges or ZIP+4 codes.
_PHONE = r"""(?x)(?: \+[0-9][0-9\ ()./-]{5,}[0-9]
    | (?:(?:\+|00)?1[\ .-]?)? \([0-9]{2,5}\)\ ?[0-9]{3,4}[\ .-]?[0-9]{3,4}
    | (?:(?:00)?1[\ .-])? [0-9]{2,5} (?:[\ ./-][0-9]{3,4}){2,3}
    | 0[0-9] (?:[\ .-][0-9]{2}){4}
    | 0[0-9]{1,4}[\ /-][0-9]{5,8} ) (?:\ ?(?:x|ext\.?)\ ?[0-9]{1,5})?"""
_LOOKS = (
    _Look("e-mail addresses", re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")),
    _Look("US social security numbers", re.compile("[0-9]{3}-[0-9]{2}-[0-9]{4}")),
    _Look("IP addresses", re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.|$)){4}")),
    _Look("IP addresses", re.compile("(?i)(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[0-9a-f:]{0,37}::[0-9a-f:]{0,37}")),
    _Look("bank account numbers (IBAN)", re.compile("[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]){11,30}"), _is_iban),
    _Look("payment card numbers", re.compile("[2-6][0-9]{3}(?:[ -]?[0-9]){9,15}"), _is_card),
    _Look("phone numbers", re.compile(_PHONE), _is_phone),
)


def _names(phrases: str) -> re.Pattern[str]:
    """Match names that hold one of these phrases as whole words, or its plural in -s."""
    return re.compile(rf"(?:^|_)(?:{'|'.join(phrases.split())})s?(?:_|$)")


_IDENTIFIERS = _names(r"""
    ^name$ (first|last|middle|given|family|full|maiden|user|nick)_?name [fl]name surname forename initials name_of
    (patient|person|customer|client|employee|member|subject|participant|student|user|doctor)_?(name|number|num|no|nr|id)
    (record|case|chart|policy|insurance|beneficiary|membership|certificate|tax|serial|vehicle|card)_?(number|num|no|nr|id)
    (account|device)_?(holder|serial|number|num|no|nr|id) ^(patient|customer|employee|user|account)$ bank_account iban
    e_?mail (tele)?phone tel ^mobile$ mobile_(phone|number) fax address(es)? street url website login ip imei ssn
    social_security national_id passport nino aadhaar cpf pesel mrn nhs_number medical_record next_of_kin credit_card
    licen[cs]e number_plate vin photo fingerprint biometric signature""")
_IDS = _names("id identifier uuid guid uid pid")
_SENSITIVE = _names(r"""
    disease diagnos[ei]s diagnosed dx icd illness(es)? symptom comorbidit(y|ies) (medical|health)_(condition|history)
    health_status hiv aids cancer tumou?r diabet(es|ic) pregnan(t|cy) abortion mental psychiatr\w+ depression disorder
    disab(led|ility|ilities) medication drug prescription treatment therap(y|ies) surger(y|ies) allerg(y|ies) genetic
    genotype genome dna (lab|test)_result addiction alcohol smok(er|ing) cause_of_death
    income salar(y|ies) wage earning debt loan mortgage balance wealth net_worth bankrupt\w* pension
    credit_(score|rating|limit|history) religio(n|us) faith belief politic\w* ^party$ vote union_member\w* sexual\w*
    lgbt\w* crim(e|inal) convict\w+ offen[cs]e arrest\w* felon\w* prison\w* immigration_status""")
_QUASI = _names(r"""
    age birth\w* date_?of_?birth born dob yob sex gender zip(_?code)? postal\w* post_?code cit(y|ies) town village
    municipality district count(y|ies) state countr(y|ies) region province nationalit(y|ies) citizenship race ethnic\w*
    ancestry marital\w* education occupation job profession employer relationship language height lat latitude lon lng
    longitude location residence household_size veteran""")
_CODES = _names(r"zip(_?code)? postal\w* post_?code code fips icd id sex gender race ethnic\w* religion nationality")


def _looks_like(facts: _Facts) -> str:
    return next((f"its values look like {look.things}" for look in _LOOKS if look.fits(facts.texts)), "")


def _named(names: re.Pattern[str], what: str) -> Callable[[_Facts], str]:
    return lambda facts: f"its name suggests something that {what}" if names.search(facts.words) else ""


def _dated(facts: _Facts) -> str:
    return "it holds dates, which others may know" if facts.kind is Kind.DATE or facts.is_dates else ""


def _unique(facts: _Facts) -> str:
    is_measured = facts.kind is Kind.NUMBER and not facts.is_whole  # differs in every row without naming anyone
    if is_measured or facts.distinct < max(_FEWEST_ROWS, facts.present):
        return ""
    return "every row has its own value" if facts.present == facts.rows else "no two rows with a value share it"


def _many_valued(facts: _Facts) -> str:
    limit = min(_MANY_VALUES, max(_FEWEST_ROWS, facts.present) // 2)  # in a small table, fewer values are many
    if facts.kind not in (Kind.CATEGORY, Kind.TEXT) or facts.distinct <= limit:
        return ""
    return f"it has {facts.distinct} distinct values, more than {limit}, and a rare one can single a person out"


def _rest(facts: _Facts) -> str:
    few = {0: "it has no values", 1: "it has a single value"}
    return facts.trouble or few.get(facts.distinct, "nothing in its name or values suggests another role")


_RULES: tuple[tuple[Role, Callable[[_Facts], str]], ...] = (
    (Role.IDENTIFIER, _looks_like),
    (Role.IDENTIFIER, _named(_IDENTIFIERS, "names a person")),
    (Role.SENSITIVE, _named(_SENSITIVE, "a person may want to keep private")),
    (Role.QUASI, _named(_QUASI, "others know about a person")),
    (Role.IDENTIFIER, _named(_IDS, "names a person")),  # here, because a state_id or a job_id names no one
    (Role.QUASI, _dated),
    (Role.IDENTIFIER, _unique),  # here, because a salary that differs in every row is still a salary
    (Role.QUASI, _many_valued),
    (Role.OTHER, _rest),
)


def _proposal(table: Table, column: Column) -> Column:
    facts = _facts(table, column)
    role, reason = next((role, reason) for role, rule in _RULES if (reason := rule(facts)))
    kind, note = _kind(facts, role)
    reasons = "; ".join(filter(None, dict.fromkeys((reason, note))))
    return replace(column, role=role, kind=kind, bounds=column.bounds if kind is Kind.NUMBER else None, reason=reasons)


def _kind(facts: _Facts, role: Role) -> tuple[Kind, str]:
    """Correct the kind that a column has by its type, and say why."""
    if facts.trouble:
        return Kind.TEXT, facts.trouble
    if facts.kind is Kind.NUMBER and facts.is_whole and (role is Role.IDENTIFIER or _CODES.search(facts.words)):
        return Kind.CATEGORY, "its numbers are codes, not quantities"
    if facts.kind is Kind.CATEGORY and facts.is_dates:
        return Kind.CATEGORY, "its texts look like dates and should be parsed"
    length = sum(map(len, facts.texts)) / max(1, len(facts.texts))
    if facts.kind is Kind.CATEGORY and facts.distinct >= _NEARLY_ALL * facts.present and length > _LONG:
        return Kind.TEXT, "its texts are long and nearly all different"
    return facts.kind, ""


def _facts(table: Table, column: Column) -> _Facts:
    words = words_of(column.name)
    try:
        values = table.column(column.name)
    except ColumnError:
        values = pl.Series(dtype=pl.Object)
    if values.dtype == pl.Object:
        return _Facts(words, column.kind, trouble="its values are of different types")
    if values.dtype.is_nested():
        return _Facts(words, column.kind, trouble="its values are lists or records")
    rows = len(values)
    if values.dtype.is_float():
        values = _whole(values.fill_nan(None))
    elif isinstance(values.dtype, pl.String | pl.Categorical | pl.Enum):
        values = values.cast(pl.String).str.strip_chars().replace("", None)
    values = values.drop_nulls()
    distinct = values.unique(maintain_order=True)  # in their order: the sample is always the same
    texts: list[str] = []
    if values.dtype == pl.String or values.dtype.is_integer():
        texts = list(map(str, distinct if len(distinct) <= _SAMPLE else distinct.sample(_SAMPLE, seed=0)))
    return _Facts(
        words,
        column.kind,
        rows=rows,
        present=len(values),
        distinct=len(distinct),
        is_whole=values.dtype.is_integer(),
        is_dates=bool(texts) and all(map(_DATE.fullmatch, texts)),
        texts=texts,
    )


def _whole(values: pl.Series) -> pl.Series:
    """Return floats as integers if they are: pandas turns whole numbers into floats where one is missing."""
    whole = values.cast(pl.Int64, strict=False)
    return whole if whole.null_count() == values.null_count() and (whole == values).all() else values


def words_of(name: str) -> str:
    """Write a name such as zipCode, ZIP-Code or "zip code" as zip_code.

    Examples
    --------
    >>> words_of("ZIP-Code"), words_of("patientID")
    ('zip_code', 'patient_id')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return "_".join(re.findall(r"[^\W\d_]+|\d+", parted)).lower()

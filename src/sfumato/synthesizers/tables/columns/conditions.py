"""Conditions on drawn rows, as masks over codes: the same grammar as ``where`` in a query.

``given`` says what drawn rows must meet: ``{"sex": "f", "age": "30..39"}``, or in one text ``sex=f, age=30..39``, whose
parts are conditions. A comparison with a missing cell is false, as in a query. In a constraint it is unknown, as in
SQL's CHECK: a row is rejected only if the condition is false, so that missing values stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.query.condition import OPERATORS, Both, Condition, Either, Not, Predicate
from sfumato.budget.query.question import parse_condition
from sfumato.data.coding import canonical_text
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.errors import ColumnError, OptionError, did_you_mean
from sfumato.synthesizers.tables.columns.domain import Coding, Domain
from sfumato.synthesizers.tables.columns.kinds import Values, numbers_in

__all__ = [
    "allowed_codes",
    "check_condition",
    "code_of",
    "evaluate",
    "given_condition",
    "mask_of",
    "number_of",
    "predicates",
    "public_values",
]

Mask = NDArray[np.bool_]
Codes = Mapping[str, NDArray[np.integer]]

_PART = re.compile(r"""(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|\((?:[^()"']|"[^"]*"|'[^']*')*\)|[^,"'(]|[("'])+""")
_RANGE = re.compile(r"""\s*("(?:[^"]|"")+"|[^\s"'<>=!(),]+)\s*=\s*([^\s"']*?)\s*\.\.\s*([^\s"']*)\s*""")


def given_condition(given: Any) -> Condition:
    """Return the condition of what is given: a text, or a mapping from columns to values.

    In a mapping, a list means one of several values, a pair of numbers or a text such as ``30..39`` a range, and None a
    missing value.

    Examples
    --------
    >>> print(given_condition("sex=f, age=30..39"))
    sex = 'f' and age >= 30 and age <= 39
    >>> print(given_condition({"sex": ["f", "m"], "age": (30, None), "job": None}))
    sex in ('f', 'm') and age >= 30 and job is missing
    """
    if isinstance(given, Condition):
        return given
    if isinstance(given, str):
        parts = [part for one in _PART.findall(given) for part in _of_text(one)]
    elif isinstance(given, Mapping):
        parts = [part for name, value in given.items() for part in _of_value(name, value)]
    else:
        raise OptionError(
            f"'given' must be a text or map columns to values, got {type(given).__name__}",
            hint="for example {'sex': 'f', 'age': '30..39'}",
        )
    if not parts:
        raise OptionError("'given' is empty", hint="for example sex=f,age=30..39")
    return parts[0] if len(parts) == 1 else Both(tuple(parts))


def _of_text(text: str) -> Iterator[Condition]:
    if found := _RANGE.fullmatch(text):
        name = found[1][1:-1].replace('""', '"') if found[1].startswith('"') else found[1]
        yield from _range(name, found[2] or None, found[3] or None)
    else:
        yield parse_condition(text)


def _of_value(name: Any, value: Any) -> Iterator[Condition]:
    if not isinstance(name, str):
        raise OptionError(f"'given' maps the names of columns, got a {type(name).__name__}")
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        yield from _range(name, low.strip() or None, high.strip() or None)
    elif isinstance(value, tuple):
        if len(value) != 2:
            raise OptionError(f"the range of column '{name}' must have two ends, got {len(value)}")
        yield from _range(name, *value)
    elif isinstance(value, list | set | frozenset):
        yield Predicate(name, "in", tuple(sorted(map(text_of, value))))
    elif value is None:
        yield Predicate(name, "missing")
    else:
        yield Predicate(name, "=", (text_of(value),))


def _range(name: str, low: Any, high: Any) -> Iterator[Condition]:
    if low is None and high is None:
        raise OptionError(f"the range of column '{name}' has no end", hint="for example age=30..39 or age=30..")
    for sign, end in ((">=", low), ("<=", high)):
        if end is not None:
            yield Predicate(name, sign, (text_of(end),))


def predicates(condition: Condition) -> Iterator[Predicate]:
    """Return all comparisons of a condition."""
    if isinstance(condition, Predicate):
        yield condition
    elif isinstance(condition, Not):
        yield from predicates(condition.part)
    elif isinstance(condition, Both | Either):
        for part in condition.parts:
            yield from predicates(part)


def check_condition(
    condition: Condition, codings: Mapping[str, Coding], *, undeclared: Mapping[str, Any] | None = None
) -> None:
    """Raise an error if a column is unknown, or a value lies outside the domain or bounds of its column.

    The values of an undeclared column are not known yet; it has an attribute ``is_number``.
    """
    known = {**(undeclared or {}), **codings}
    for one in predicates(condition):
        if one.column not in known:
            raise ColumnError(
                f"'{one}' names a column '{one.column}' that the table lacks", hint=did_you_mean(one.column, known)
            )
        if one.column in codings:
            coding = codings[one.column]
            mask, hint = mask_of(one, coding), public_values(coding)
            if one.operator in OPERATORS and not mask.any():
                raise OptionError(f"no value of column '{one.column}' meets '{one}'", hint=hint)
            if one.operator not in OPERATORS and (strange := [v for v in one.values if code_of(v, coding) is None]):
                raise OptionError(f"'{strange[0][:80]}' is not a value of column '{one.column}'", hint=hint)
        elif undeclared is not None and one.operator in OPERATORS and not undeclared[one.column].is_number:
            raise OptionError(f"'{one}' compares column '{one.column}', which holds categories, by size")


def evaluate(condition: Condition, codings: Mapping[str, Coding], codes: Codes, *, sql: bool = False) -> Mask:
    """Return which rows meet a condition; with ``sql``, those for which it is not false, though perhaps unknown.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> sex = {"sex": Coding.of(Feature("sex", domain=("f", "m")), pl.String())}
    >>> codes = {"sex": np.array([0, 1, 2])}
    >>> evaluate(given_condition("sex=f"), sex, codes).tolist()
    [True, False, False]
    >>> evaluate(given_condition("sex=f"), sex, codes, sql=True).tolist()
    [True, False, True]
    """
    yes, no = _both_ways(condition, codings, codes, sql)
    return ~no if sql else yes


def _both_ways(condition: Condition, codings: Mapping[str, Coding], codes: Codes, sql: bool) -> tuple[Mask, Mask]:
    """Return where a condition is true, and where it is false."""
    if isinstance(condition, Predicate):
        coding = codings[condition.column]
        mask = mask_of(condition, coding)
        known = np.ones(len(mask), dtype=bool)
        known[-1] = not sql or condition.operator.endswith("missing")
        at = codes[condition.column]
        return (mask & known)[at], (~mask & known)[at]
    if isinstance(condition, Not):
        yes, no = _both_ways(condition.part, codings, codes, sql)
        return no, yes
    assert isinstance(condition, Both | Either)
    parts = [_both_ways(one, codings, codes, sql) for one in condition.parts]
    yes, no = (np.stack(side) for side in zip(*parts, strict=True))
    if isinstance(condition, Both):
        return np.asarray(yes.all(axis=0)), np.asarray(no.any(axis=0))
    return np.asarray(yes.any(axis=0)), np.asarray(no.all(axis=0))


def allowed_codes(condition: Condition, domain: Domain, *, sql: bool = False) -> dict[int, Mask]:
    """Return the codes that those parts of a condition allow which are about one learned column, by its position.

    A column that is computed from another is about that one. A row that meets the condition has allowed codes; one that
    has them meets it if every part is about one column.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> domain = Domain(tuple(Coding.of(Feature(name, bounds=(0.0, 2.0)), pl.Int64()) for name in "ab"))
    >>> {at: mask.tolist() for at, mask in allowed_codes(given_condition("b >= 1, a = 0 or b = 2"), domain).items()}
    {1: [False, True, True, False]}
    """
    names = [one.name for one in domain.codings]
    roots = {name: name for name in names}
    for one in domain.computed:
        roots[one.coding.name] = roots[one.source]
    found: dict[int, Mask] = {}
    for part in _conjuncts(condition):
        about = {roots[name] for name in part.columns}
        if len(about) != 1:
            continue
        at = names.index(about.pop())
        codes: dict[str, NDArray[np.integer]] = {names[at]: np.arange(domain.codings[at].axis.size)}
        for one in domain.computed:
            if one.source in codes:
                codes[one.coding.name] = np.array(one.lookup)[codes[one.source]]
        mask = evaluate(part, domain.by_name, codes, sql=sql)
        found[at] = found[at] & mask if at in found else mask
    return found


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    """Return the parts of a condition that must all be met."""
    if isinstance(condition, Both):
        for part in condition.parts:
            yield from _conjuncts(part)
    else:
        yield condition


def mask_of(one: Predicate, coding: Coding) -> Mask:
    """Return which codes meet a comparison; none is equal to a value that the column lacks."""
    size = coding.axis.size
    missing: Mask = np.arange(size) == size - 1
    if one.operator.endswith("missing"):
        return missing if one.operator == "missing" else ~missing
    if one.operator in OPERATORS:
        if np.isnan(coding.numbers[:-1]).all() and size > 1:
            raise OptionError(f"'{one}' compares column '{one.column}', which holds categories, by size")
        number = number_of(one.values[0], coding.values)
        if number != number:
            what = {Values.DATE: "date", Values.MOMENT: "date", Values.TIME: "time"}.get(coding.values, "number")
            raise OptionError(f"'{one}' needs a {what}, got '{one.values[0][:40]}'")
        with np.errstate(invalid="ignore"):
            return np.asarray(OPERATORS[one.operator](coding.numbers, number), dtype=bool)
    found = np.isin(
        np.arange(size), [code for code in (code_of(text, coding) for text in one.values) if code is not None]
    )
    return ~found & ~missing if one.operator in ("!=", "not in") else found


def code_of(text: str, coding: Coding) -> int | None:
    """Return the code of a value given as a text; None if it is not a value of the column.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> age = Coding.of(Feature("age", bounds=(18.0, 99.0)), pl.Int64())
    >>> code_of("30", age), code_of("30.5", age), code_of("120", age)
    (12, None, None)
    """
    domain = coding.feature.domain
    if domain is not None:
        if text in domain:
            return domain.index(text)
        alike = [code for code, known in enumerate(domain) if canonical_text(known) == canonical_text(text)]
        return alike[0] if alike else None
    low, high = coding.feature.bounds or (0.0, 1.0)
    number = number_of(text, coding.values)
    if number != number:
        return None
    slack = coding.step * (0.5 if coding.values is Values.REAL else 1e-6)
    code = int(np.nanargmin(np.abs(coding.numbers - number)))
    near = low - slack <= number <= high + slack and abs(coding.numbers[code] - number) <= slack * (1 + 1e-9)
    return code if near else None


def number_of(text: str, values: Values) -> float:
    """Return a value as a number, in days for dates and seconds for times; NaN if it is not one."""
    if values in (Values.TIME, Values.SPAN):
        return float(text) if re.fullmatch(r"[+-]?\d+(\.\d+)?", text) else _clock(text)
    return float(numbers_in(pl.Series([text]), values)[0])


def _clock(text: str) -> float:
    """Return the seconds since midnight of a time such as 08:30."""
    found = re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", text)
    return float("nan") if not found else 3600.0 * int(found[1]) + 60 * int(found[2]) + int(found[3] or 0)


def public_values(coding: Coding) -> str:
    """Return what is public of a column, for a hint."""
    if coding.feature.domain is None:
        ends = coding.decode(np.array([0, coding.axis.size - 2])).to_list()
        return f"it has values from {text_of(ends[0])} to {text_of(ends[1])}"
    shown = ", ".join(text[:40] for text in coding.feature.domain[:8])
    return f"its values are {shown}{', ...' if len(coding.feature.domain) > 8 else ''}" if shown else "it has no value"

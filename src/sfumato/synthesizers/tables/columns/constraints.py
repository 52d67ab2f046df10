"""What every synthetic row must meet, declared by the user and therefore public.

::

    constraint = condition                        age >= 18, or: not (sex = m and pregnant = yes)
               | column ( "<" | "<=" | ">" | ">=" ) column      start <= end
               | column "->" column "{" value ":" value { "," value ":" value } "}"
                                                  education -> years {'HS-grad': 9, Masters: 14}

A text is parsed, never run. Conditions are those of a query (`budget.query.condition`); a condition or comparison that
a missing value leaves unknown is met, as in SQL's CHECK. In ``a < b``, b is a column unless it is a number or a date.

``a -> b {...}`` says that a determines b: b is then computed from a, never learned and never paid for.

Constraints that contradict each other or the schema are refused before anything is charged. Rows that do not meet them
are drawn again, whatever the method, so each row meets all of them exactly, and their distribution is that of the model
given the constraints. Conditions on single columns are drawn directly where the method allows it (`Model.given`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.query.condition import OPERATORS, Condition, quoted
from sfumato.budget.query.question import parse_condition
from sfumato.data.hierarchies.label_paths import is_missing, text_of
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.learners.estimators.features import Feature
from sfumato.synthesizers.tables.base import Model
from sfumato.synthesizers.tables.columns.conditions import (
    allowed_codes,
    check_condition,
    code_of,
    evaluate,
    given_condition,
    public_values,
)
from sfumato.synthesizers.tables.columns.contradictions import refuse_contradictions, supposed
from sfumato.synthesizers.tables.columns.description import Described
from sfumato.synthesizers.tables.columns.domain import Coding, Computed, Domain
from sfumato.synthesizers.tables.columns.kinds import Values, type_name

__all__ = ["Constraint", "Constraints", "Determines", "Holds", "Order", "draw_rows"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NAME = r"""("(?:[^"]|"")+"|[^\s"'<>=!(),{}:]+?)"""
_ORDER = re.compile(rf"\s*{_NAME}\s*(<=|>=|<|>)\s*{_NAME}\s*")
_ARROW = re.compile(rf"\s*{_NAME}\s*->\s*{_NAME}\s*(\{{.*)?", re.DOTALL)
_VALUE = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|([:,{}])|([^\s:,{}"']+))""")
_NOT_A_NAME = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d.*|\d\d?:\d\d(?::\d\d)?")
_FAMILIES = {Values.WHOLE: "number", Values.REAL: "number", Values.DATE: "date", Values.MOMENT: "date"}
_AT_ONCE = 200_000  # rows of a batch, at most, unless more are wanted
_FEWEST = 1_000_000  # rows drawn before giving up,
_RAREST = 1e-4  # if a smaller share of them is met: so at most about 10,000 rows are drawn for each wanted one


@dataclass(frozen=True)
class Holds:
    """A condition that no row may violate.

    Examples
    --------
    >>> print(Holds(parse_condition("not (sex=m and pregnant=yes)")))
    not (sex = 'm' and pregnant = 'yes')
    """

    condition: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the condition."""
        return self.condition.columns

    def __str__(self) -> str:
        return str(self.condition)


@dataclass(frozen=True)
class Order:
    """A column whose values are below those of another, or equal to them.

    Examples
    --------
    >>> print(Order("start", "<=", "end"))
    start <= end
    """

    left: str
    operator: str
    right: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The two columns."""
        return self.left, self.right

    @property
    def rising(self) -> tuple[str, str, bool]:
        """The lower column, the upper column, and whether they must differ."""
        strict = self.operator in ("<", ">")
        return (self.left, self.right, strict) if self.operator.startswith("<") else (self.right, self.left, strict)

    def met(self, domain: Domain, codes: Mapping[str, NDArray[np.integer]]) -> Mask:
        """Return which rows meet it; a missing value does."""
        low, high = (_numbers(domain.by_name[name])[codes[name]] for name in self.columns)
        with np.errstate(invalid="ignore"):
            return np.asarray(OPERATORS[self.operator](low, high) | np.isnan(low) | np.isnan(high), dtype=bool)

    def __str__(self) -> str:
        return f"{_name(self.left)} {self.operator} {_name(self.right)}"


@dataclass(frozen=True)
class Determines:
    """A column that another one determines, and the value for each value of the other.

    Examples
    --------
    >>> print(Determines("education", "years", {"HS-grad": 9}))
    education -> years {'HS-grad': '9'}
    """

    source: str
    column: str
    values: Mapping[Any, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping) or not self.values:
            raise OptionError(
                f"'{self.source} -> {self.column}' needs the value of '{self.column}' for each value of "
                f"'{self.source}'",
                hint=f"for example: {self.source} -> {self.column} {{a: 1, b: 2}}",
            )
        if any(is_missing(one) for pair in self.values.items() for one in pair):
            raise OptionError(f"'{self.source} -> {self.column}' must map known values to known values")
        object.__setattr__(self, "values", {text_of(key): text_of(value) for key, value in self.values.items()})
        if self.source == self.column:
            raise OptionError(f"column '{self.source}' cannot determine itself")

    def __hash__(self) -> int:
        return hash((self.source, self.column))

    @property
    def columns(self) -> tuple[str, ...]:
        """The two columns."""
        return self.source, self.column

    def __str__(self) -> str:
        pairs = ", ".join(f"{_text(key)}: {_text(value)}" for key, value in self.values.items())
        return f"{_name(self.source)} -> {_name(self.column)} {{{pairs}}}"

    def computed(self, source: Coding, column: Described) -> Computed:
        """Return the column as one that is looked up; values of the source that are not mapped become missing."""
        domain = tuple(dict.fromkeys(self.values.values()))
        place = {text: code for code, text in enumerate(domain)}
        lookup = [len(domain)] * source.axis.size
        for key, value in self.values.items():
            code = code_of(key, source)
            if code is not None:
                lookup[code] = place[value]
        kind = "" if column.dtype is None else type_name(column.dtype)
        if column.dtype is None and column.values is Values.REAL:
            kind = "Int64" if all(re.fullmatch(r"-?\d{1,15}", one) for one in domain) else "Float64"
        elif column.dtype is None and column.values is Values.DATE:
            kind = "Date"
        coding = Coding(Feature(self.column, domain=domain), column.values, type=kind)
        return Computed(coding, self.source, tuple(lookup))


Constraint = Holds | Order | Determines


@dataclass(frozen=True)
class Constraints:
    """All constraints of a table.

    Examples
    --------
    >>> rules = Constraints.of(["start<=end", "not (sex=m and pregnant=yes)", "zip -> state {'02139': MA}"])
    >>> print(*rules.texts, sep="; ")
    start <= end; not (sex = 'm' and pregnant = 'yes'); zip -> state {'02139': 'MA'}
    >>> rules.computed
    ('state',)
    """

    items: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, given: Any) -> Constraints:
        """Return constraints from texts, mappings with the fields of `Determines`, or constraints."""
        if given is None or isinstance(given, Constraints):
            return given or cls()
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise OptionError(
                f"constraints must be a list, got {type(given).__name__}", hint="for example ['start <= end']"
            )
        return cls(tuple({str(one): one for one in map(_constraint, given)}.values()))

    @property
    def texts(self) -> list[str]:
        """The constraints as texts that `of` reads again."""
        return list(map(str, self.items))

    @property
    def mappings(self) -> tuple[Determines, ...]:
        """The constraints by which columns are computed."""
        return tuple(one for one in self.items if isinstance(one, Determines))

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns that are computed from others, so they are neither learned nor bought."""
        return tuple(one.column for one in self.mappings)

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that no row may violate."""
        return [one.condition for one in self.items if isinstance(one, Holds)]

    @property
    def orders(self) -> list[Order]:
        """The comparisons of two columns."""
        return [one for one in self.items if isinstance(one, Order)]

    def check(self, columns: Sequence[Described], target: str | None = None, given: Condition | None = None) -> None:
        """Raise an error if the constraints contradict each other, or what is given or declared, before any charge."""
        known = {one.name: one for one in columns}
        for one in self.items:
            for name in one.columns:
                if name not in known:
                    raise ColumnError(
                        f"the constraint '{_short(one)}' names a column '{name}' that the table lacks",
                        hint=did_you_mean(name, known),
                    )
        codings = {one.name: one.coding() for one in columns if _is_declared(one)}
        self._check_mappings(known, codings, target)
        conditions = [*self.conditions, *([] if given is None else [given])]
        for condition in conditions:
            check_condition(condition, codings, undeclared=known)
        self._check_orders(known, codings)
        guesses = supposed([one for one in columns if one.name not in codings], conditions)
        refuse_contradictions(conditions, {**guesses, **codings}, self._sources(codings))

    def _check_mappings(
        self, known: Mapping[str, Described], codings: Mapping[str, Coding], target: str | None
    ) -> None:
        by = {}
        for one in self.mappings:
            if one.column in by:
                raise OptionError(f"two constraints compute column '{one.column}'")
            if one.column == target:
                raise OptionError(f"column '{one.column}' is computed, so it cannot be the target")
            by[one.column] = one.source
        for name in by:
            seen, at = [name], by[name]
            while at in by and at not in seen:
                seen.append(at)
                at = by[at]
            if at in seen:
                raise OptionError(f"the columns {', '.join(map(repr, seen))} are computed from each other")
        for one in self.mappings:
            source, column = codings.get(one.source), codings.get(one.column)
            if source is not None:
                codes = {code_of(key, source): key for key in one.values}
                if None in codes:
                    raise OptionError(
                        f"the constraint '{_short(one)}' maps '{codes[None]}', which is not a value of column "
                        f"'{one.source}'",
                        hint=public_values(source),
                    )
                if one.source not in by and (left := set(range(source.axis.size - 1)) - codes.keys()):
                    first = text_of(source.decode(np.array([min(left)]))[0])
                    raise OptionError(f"the constraint '{_short(one)}' has no value for '{first}'")
            for value in dict.fromkeys(one.values.values()):
                if column is not None and code_of(value, column) is None:
                    raise OptionError(
                        f"the constraint '{_short(one)}' gives '{value}', which is not a value of column "
                        f"'{one.column}'",
                        hint=public_values(column),
                    )

    def _sources(self, codings: Mapping[str, Coding]) -> dict[str, tuple[str, Ints]]:
        """Return the source of each computed column, and its code for each code of the source, where both are known."""
        found = {}
        for one in self.mappings:
            if one.source in codings and one.column in codings:
                lookup = np.full(codings[one.source].axis.size, codings[one.column].axis.size - 1)
                for key, value in one.values.items():
                    lookup[code_of(key, codings[one.source])] = code_of(value, codings[one.column])
                found[one.column] = (one.source, lookup)
        return found

    def _check_orders(self, known: Mapping[str, Described], codings: Mapping[str, Coding]) -> None:
        for order in self.orders:
            kinds = [_family(known[name]) for name in order.columns]
            if None in kinds or kinds[0] != kinds[1]:
                raise OptionError(
                    f"the constraint '{order}' must compare two columns of numbers or of dates, not "
                    f"{' and '.join(one or 'categories' for one in kinds)}"
                )
        _check_cycles(self.orders)
        self._check_ranges(codings)

    def _check_ranges(self, codings: Mapping[str, Coding]) -> None:
        """Raise an error if bounds and ranges leave no value for a column that must be below another."""
        left: dict[str, NDArray[np.float64]] = {}
        for name in {name for one in self.orders for name in one.columns if name in codings}:
            allowed = np.ones(codings[name].axis.size, dtype=bool)
            for condition in self.conditions:
                if condition.columns == (name,):
                    allowed &= evaluate(condition, codings, {name: np.arange(len(allowed))}, sql=True)
            left[name] = np.unique(_numbers(codings[name])[:-1][allowed[:-1]])
        for _ in range(len(left) + 1):
            for order in self.orders:
                low, high, strict = order.rising
                if low not in left or high not in left:
                    continue
                if len(left[low]):
                    least = left[low][0]
                    left[high] = left[high][left[high] > least if strict else left[high] >= least]
                if len(left[high]):
                    most = left[high][-1]
                    left[low] = left[low][left[low] < most if strict else left[low] <= most]
                if not (len(left[low]) and len(left[high])):
                    raise OptionError(
                        f"the constraint '{order}' contradicts the ranges of its columns: no row can meet it"
                    )

    def domain(
        self, codings: Sequence[Coding], label: int | None, columns: Sequence[Described], order: Sequence[str] = ()
    ) -> Domain:
        """Return the domain of learned columns together with those that are computed from them."""
        known = {one.name: one for one in columns}
        found = {one.name: one for one in codings}
        computed: list[Computed] = []
        waiting = list(self.mappings)
        while waiting:
            ready = next(one for one in waiting if one.source in found)
            waiting.remove(ready)
            computed.append(ready.computed(found[ready.source], known[ready.column]))
            found[ready.column] = computed[-1].coding
        return Domain(tuple(codings), label, tuple(computed), tuple(order) if computed else ())

    def met(self, domain: Domain, codes: Mapping[str, NDArray[np.integer]]) -> Mask:
        """Return which rows meet all constraints, given the codes of all columns."""
        found = np.ones(len(next(iter(codes.values()))), dtype=bool)
        for condition in self.conditions:
            found &= evaluate(condition, domain.by_name, codes, sql=True)
        for order in self.orders:
            found &= order.met(domain, codes)
        return found


def draw_rows(
    model: Model,
    domain: Domain,
    rows: int,
    rng: np.random.Generator,
    *,
    constraints: Constraints | None = None,
    given: Any = None,
) -> list[Ints]:
    """Return the codes of new rows that meet all constraints and what is given.

    What concerns single columns is drawn directly, if the model can; rows that do not meet the rest are drawn again.

    Parameters
    ----------
    model : Model
    domain : Domain
    rows : int
    rng : numpy Generator
    constraints : Constraints, optional
    given : str or mapping, optional
        A condition that all rows meet, see `given_condition`.
    """
    rules = constraints or Constraints()
    wanted = None if given is None else given_condition(given)
    if wanted is not None:
        check_condition(wanted, domain.by_name)
        lookups = {one.coding.name: (one.source, np.array(one.lookup)) for one in domain.computed}
        refuse_contradictions([*rules.conditions, wanted], domain.by_name, lookups)
    if wanted is None and not rules.conditions and not rules.orders:
        return model.sample(rows, rng)
    allowed: dict[int, Mask] = {}
    for condition, sql in [*((one, True) for one in rules.conditions), *([] if wanted is None else [(wanted, False)])]:
        for column, mask in allowed_codes(condition, domain, sql=sql).items():
            allowed[column] = allowed[column] & mask if column in allowed else mask
    sampler = (model.given(allowed) if allowed else None) or model
    kept: list[list[Ints]] = []
    drawn, met, size = 0, 0, max(rows, sampler.at_once)
    while not kept or met < rows:
        codes = sampler.sample(size, rng)
        every = domain.complete(codes)
        passed = rules.met(domain, every)
        if wanted is not None:
            passed &= evaluate(wanted, domain.by_name, every)
        at = np.flatnonzero(passed)
        kept.append([one[at] for one in codes])
        drawn, met = drawn + size, met + len(at)
        if met < rows and drawn >= _FEWEST and met < _RAREST * drawn:
            what = " and ".join(["what is given"] * (wanted is not None) + ["the constraints"] * bool(rules.items))
            raise InputError(
                f"only {met:,} of {drawn:,} drawn rows meet {what}, but {rows:,} are wanted",
                hint="ask for fewer rows, or relax the condition",
            )
        expected = 1.1 * (rows - met) * (drawn + 1) / (met + 1) + 100
        size = max(sampler.at_once, int(min(expected, max(_AT_ONCE, rows))))
    return [np.concatenate(parts)[:rows] for parts in zip(*kept, strict=True)]


def _constraint(given: Any) -> Constraint:
    if isinstance(given, Holds | Order | Determines):
        return given
    if isinstance(given, Condition):
        return Holds(given)
    if isinstance(given, Mapping):
        if set(given) != {"source", "column", "values"} or not all(
            isinstance(given[one], str) for one in ("source", "column")
        ):
            raise OptionError("a constraint in the form of a mapping must have a source, a column and values")
        return Determines(**given)
    if not isinstance(given, str):
        raise OptionError(f"a constraint must be a text, got {type(given).__name__}", hint="for example 'start <= end'")
    if found := _ARROW.fullmatch(given):
        return Determines(_unquoted(found[1]), _unquoted(found[2]), dict(_pairs(given, found)))
    found = _ORDER.fullmatch(given)
    if found and (found[3].startswith('"') or not _NOT_A_NAME.fullmatch(found[3])):
        return Order(_unquoted(found[1]), found[2], _unquoted(found[3]))
    try:
        return Holds(parse_condition(given))
    except OptionError as error:
        raise OptionError(f"the constraint '{given[:80]}' cannot be read: {error.message}", hint=error.hint) from None


def _pairs(text: str, found: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Return the pairs of values in braces."""
    if found[3] is None:
        return
    at, end, wanted, key = found.start(3), len(text.rstrip()), "{", ""
    while at < end:
        token = _VALUE.match(text, at)
        if token is None:
            raise OptionError(f"the constraint '{text[:80]}' has an unmatched quotation mark at character {at + 1}")
        double, single, sign, word = token.groups()
        said = double if double is not None else single if single is not None else word
        place = token.start() + len(token[0]) - len(token[0].lstrip()) + 1
        if (wanted in ("key", "value")) != (sign is None) or (sign is not None and sign not in wanted):
            names = {"key": "a value", "value": "a value", ",}": "a comma or }", "": "nothing more"}
            got = sign if sign is not None else said
            needed = names.get(wanted, wanted)
            raise OptionError(
                f"the constraint '{text[:80]}' needs {needed} at character {place}, got '{got[:40]}'",
                hint="for example: education -> years {'HS-grad': 9, Masters: 14}",
            )
        if wanted == "value":
            yield key, said
        key = said if wanted == "key" else key
        wanted = {"{": "key", "key": ":", ":": "value", "value": ",}"}.get(wanted, "key" if sign == "," else "")
        at = token.end()
    if wanted:
        raise OptionError(f"the constraint '{text[:80]}' ends before its closing brace", hint="end it with }")


def _check_cycles(orders: Sequence[Order]) -> None:
    """Raise an error if a column would have to be below itself."""
    reach: dict[tuple[str, str], bool] = {}
    for order in orders:
        low, high, strict = order.rising
        reach[low, high] = reach.get((low, high), False) or strict
    names = {name for pair in reach for name in pair}
    for middle in names:
        for first in names:
            for last in names:
                if (first, middle) in reach and (middle, last) in reach:
                    strict = reach[first, middle] or reach[middle, last]
                    reach[first, last] = reach.get((first, last), False) or strict
    for name in sorted(names):
        if reach.get((name, name)):
            involved = [str(one) for one in orders if (name, one.rising[0]) in reach and (one.rising[1], name) in reach]
            raise OptionError(f"the constraints {' and '.join(map(repr, involved))} contradict each other")


def _is_declared(one: Described) -> bool:
    return not (one.wants_bounds or one.wants_categories)


def _family(one: Described) -> str | None:
    return None if not one.is_number else _FAMILIES.get(one.values, one.values.value)


def _numbers(coding: Coding) -> NDArray[np.float64]:
    """Return the number of each code, dates in seconds."""
    return coding.numbers * 86_400.0 if coding.values is Values.DATE else coding.numbers


def _short(one: Constraint) -> str:
    return f"{one.source} -> {one.column}" if isinstance(one, Determines) else str(one)


def _name(name: str) -> str:
    shown = quoted(name)
    unclear = _NOT_A_NAME.fullmatch(name) or not re.fullmatch(_NAME, shown)
    return '"' + name.replace('"', '""') + '"' if unclear and not shown.startswith('"') else shown


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

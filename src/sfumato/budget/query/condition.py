"""The condition of a question on its rows: ``age >= 40 and sex = 'f'``.

::

    condition  = clause { "or" clause }
    clause     = part { "and" part }
    part       = "not" part | "(" condition ")" | comparison
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column "is" [ "not" ] "missing"

A condition is a value, never code or SQL. The engine counts the combinations of values where the rows are, and each
combination is compared with the condition here. So all engines give the same answer, and each cell is parsed
independently: in a text file, no other record decides whether it is a number.

Each row passes or fails on its own, so adding or removing a record adds or removes at most one passing record (a
transformation of stability 1). A statistic of the passing rows therefore needs no more noise and costs no more.

A comparison with a missing cell is false for every operator; ``not`` negates any condition.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import Domain, canonical_text, texts_of
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError

__all__ = ["Both", "Condition", "Either", "Not", "Predicate", "numbers_of", "quoted"]

Mask = NDArray[np.bool_]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KEYWORDS = ("by", "in", "of", "where", "and", "or", "not", "is", "missing")
_WORD = re.compile(r"""[^\s,"'<>=!()]+""")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?")


class Condition(ABC):
    """A condition on a row."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns in the condition, each once."""

    @abstractmethod
    def holds(self, tuples: Tuples) -> Mask:
        """Return whether each combination of values meets the condition."""


@dataclass(frozen=True)
class Predicate(Condition):
    """A comparison of a cell with public values.

    Parameters
    ----------
    column : str
    operator : str
        ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``, ``missing`` or ``not missing``.
    values : tuple of str
        One value; several for ``in``, none for ``missing``.

    Examples
    --------
    >>> print(Predicate("hours per week", ">=", ("40",)))
    "hours per week" >= 40
    >>> Predicate("job", "<", ("nurse",))
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: 'job < nurse' needs a number or a date such as 2020-12-31 after '<'
    """

    column: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if self.operator in OPERATORS:
            (value,) = self.values
            if _number(value) is None and _moment(value) is None:
                raise OptionError(
                    f"'{self.column} {self.operator} {value}' needs a number or a date such as 2020-12-31 after "
                    f"'{self.operator}'"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the comparison."""
        return (self.column,)

    def holds(self, tuples: Tuples) -> Mask:
        """Return whether each combination of values meets the condition; each distinct value is compared once."""
        at = tuples.position[self.column]
        mask: Mask = self._of_values(tuples.domains[at])[tuples.codes[:, at]]
        return mask

    def _of_values(self, domain: Domain) -> Mask:
        if self.operator in OPERATORS and (number := _number(self.values[0])) is not None:
            with np.errstate(invalid="ignore"):
                return np.asarray(OPERATORS[self.operator](numbers_of(domain.values), number))
        texts = [None if text is None else canonical_text(text) for text in texts_of(domain)]
        if self.operator in OPERATORS:
            compare, when = OPERATORS[self.operator], _moment(self.values[0])
            moments = (None if text is None else _moment(text) for text in texts)
            return np.array([one is not None and compare(one, when) for one in moments], dtype=bool)
        wanted = {canonical_text(value) for value in self.values}
        negated = self.operator in ("!=", "not in", "not missing")
        if self.operator in ("missing", "not missing"):
            return np.array([(text is None) != negated for text in texts], dtype=bool)
        return np.array([text is not None and (text in wanted) != negated for text in texts], dtype=bool)

    def __str__(self) -> str:
        name = quoted(self.column)
        if self.operator.endswith("missing"):
            return f"{name} is {self.operator}"
        values = ", ".join(value if _number(value) is not None else _as_text(value) for value in self.values)
        return f"{name} {self.operator} " + (f"({values})" if self.operator.endswith("in") else values)


@dataclass(frozen=True)
class _Several(Condition):
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))


@dataclass(frozen=True)
class Both(_Several):
    """The conjunction of several conditions."""

    def holds(self, tuples: Tuples) -> Mask:
        """Return where all parts hold."""
        mask: Mask = np.all([part.holds(tuples) for part in self.parts], axis=0)
        return mask

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, _Several) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Either(_Several):
    """The disjunction of several conditions."""

    def holds(self, tuples: Tuples) -> Mask:
        """Return where at least one part holds."""
        mask: Mask = np.any([part.holds(tuples) for part in self.parts], axis=0)
        return mask

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, Either) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Not(Condition):
    """The negation of a condition."""

    part: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the condition."""
        return self.part.columns

    def holds(self, tuples: Tuples) -> Mask:
        """Return where the condition does not hold."""
        return ~self.part.holds(tuples)

    def __str__(self) -> str:
        return f"not ({self.part})"


def quoted(name: str) -> str:
    """Return the name of a column as written in a question, in quotation marks if necessary.

    Examples
    --------
    >>> quoted("age"), quoted("hours per week"), quoted("by")
    ('age', '"hours per week"', '"by"')
    """
    if _WORD.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def numbers_of(values: pl.Series) -> NDArray[np.float64]:
    """Return values as numbers, with NaN for each value that is not a number, independently of the others.

    Examples
    --------
    >>> numbers_of(pl.Series(["30", " 7.5", "unknown"])).tolist()
    [30.0, 7.5, nan]
    """
    if values.dtype == pl.String:
        values = values.str.strip_chars()
    elif not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        return np.full(len(values), np.nan)
    return values.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _moment(text: str) -> str | None:
    """Return a date or time as a text that sorts chronologically, or None if it is neither."""
    canonical = canonical_text(text)
    return canonical if canonical is not None and _MOMENT.fullmatch(canonical) else None


def _as_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

"""Which rows a question is about: ``age >= 40 and sex = 'f'``.

::

    condition  = clause { "or" clause }
    clause     = part { "and" part }
    part       = "not" part | "(" condition ")" | comparison
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column "is" [ "not" ] "missing"

A condition is a value of its own, never code or SQL. Rows are counted where they are, by their combinations of values,
and each combination is held against the condition here. So every engine answers alike, and each cell is read for
itself: in a text file, no other record decides on whether it is a number.

A row that fails contributes nothing, and which rows pass depends on each row alone. So one record more or less in the
table is at most one more or less in what is left (a transformation of stability 1), and a statistic of that needs no
more noise and costs no more.

A comparison with a missing cell does not hold, whatever the operator; ``not`` turns any condition around.
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

from sfumato.budget.ledger.fingerprint import reading, texts_of
from sfumato.data.coding import Domain
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError

__all__ = ["Both", "Comparison", "Condition", "Either", "Not", "numbers_of", "quoted"]

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
    """What a row has to fulfil."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, each once."""

    @abstractmethod
    def holds(self, tuples: Tuples) -> Mask:
        """Say of each combination of values whether it fulfils the condition."""


@dataclass(frozen=True)
class Comparison(Condition):
    """A cell against values that everybody may know.

    Parameters
    ----------
    column : str
    operator : str
        ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``, ``missing`` or ``not missing``.
    values : tuple of str
        One, several for ``in``, none for ``missing``.

    Examples
    --------
    >>> print(Comparison("hours per week", ">=", ("40",)))
    "hours per week" >= 40
    >>> Comparison("job", "<", ("nurse",))
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
        """The one column."""
        return (self.column,)

    def holds(self, tuples: Tuples) -> Mask:
        """Hold each value that occurs against the condition, once."""
        at = tuples.position[self.column]
        right: Mask = self._of_values(tuples.domains[at])[tuples.codes[:, at]]
        return right

    def _of_values(self, domain: Domain) -> Mask:
        if self.operator in OPERATORS and (number := _number(self.values[0])) is not None:
            with np.errstate(invalid="ignore"):
                return np.asarray(OPERATORS[self.operator](numbers_of(domain.values), number))
        texts = [None if text is None else reading(text) for text in texts_of(domain)]
        if self.operator in OPERATORS:
            compare, when = OPERATORS[self.operator], _moment(self.values[0])
            moments = (None if text is None else _moment(text) for text in texts)
            return np.array([one is not None and compare(one, when) for one in moments], dtype=bool)
        wanted = {reading(value) for value in self.values}
        turned = self.operator in ("!=", "not in", "not missing")
        if self.operator in ("missing", "not missing"):
            return np.array([(text is None) != turned for text in texts], dtype=bool)
        return np.array([text is not None and (text in wanted) != turned for text in texts], dtype=bool)

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
        """Those of all parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))


@dataclass(frozen=True)
class Both(_Several):
    """All of several conditions."""

    def holds(self, tuples: Tuples) -> Mask:
        """Say where all hold."""
        right: Mask = np.all([part.holds(tuples) for part in self.parts], axis=0)
        return right

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, _Several) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Either(_Several):
    """At least one of several conditions."""

    def holds(self, tuples: Tuples) -> Mask:
        """Say where one holds."""
        right: Mask = np.any([part.holds(tuples) for part in self.parts], axis=0)
        return right

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, Either) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Not(Condition):
    """The opposite of a condition."""

    part: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the condition."""
        return self.part.columns

    def holds(self, tuples: Tuples) -> Mask:
        """Say where it does not hold."""
        return ~self.part.holds(tuples)

    def __str__(self) -> str:
        return f"not ({self.part})"


def quoted(name: str) -> str:
    """Return the name of a column as it is written in a question.

    Examples
    --------
    >>> quoted("age"), quoted("hours per week"), quoted("by")
    ('age', '"hours per week"', '"by"')
    """
    if _WORD.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def numbers_of(values: pl.Series) -> NDArray[np.float64]:
    """Return values as numbers; whatever is not a number is missing, whatever the other values are.

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
    """Return a date or a time as a text that sorts as it does; None if it is neither."""
    read = reading(text)
    return read if read is not None and _MOMENT.fullmatch(read) else None


def _as_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

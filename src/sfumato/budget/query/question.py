"""The language of questions about a table: ``mean of age where job = 'nurse' by sex``.

::

    question  = statistic [ "where" condition ] [ "by" column { "," column } ]
    statistic = "count"
              | ( "sum" | "mean" | "variance" | "median" | "min" | "max" ) [ "of" ] column
              | "quantile" number [ "of" ] column
              | "histogram" [ "of" ] column [ "in" number "bins" ]
    column    = word | '"' any text '"'

The module `condition` has the grammar of a condition; ``where`` and ``by`` may come in either order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sfumato.budget.query.condition import KEYWORDS, OPERATORS, Both, Condition, Either, Not, Predicate, quoted
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError, did_you_mean, one_of

__all__ = ["Question", "StatisticName", "parse_condition"]

_TOKEN = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|(,)|([^\s,"']+))""")
_IN_CONDITION = re.compile(
    r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|(<=|>=|!=|<>|==|=|<|>|\(|\)|,)|([^\s,"'<>=!()]+))"""
)
_COMPARISONS = {**{one: one for one in OPERATORS}, "=": "=", "==": "=", "!=": "!=", "<>": "!="}
_MOST_NESTED = 50
_BINS = 10
_MOST_BINS = 10_000
_EXAMPLE = "for example: count where age >= 40 by sex; mean of age; quantile 0.9 of income; histogram of age in 10 bins"
_CONDITION = "for example: where age >= 40 and sex = 'f'"


class StatisticName(StrEnum):
    """The name of a statistic in a question.

    Examples
    --------
    >>> StatisticName("mean").needs_column
    True
    """

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    VARIANCE = "variance"
    MIN = "min"
    MAX = "max"
    QUANTILE = "quantile"
    HISTOGRAM = "histogram"

    @property
    def needs_column(self) -> bool:
        """Whether the statistic needs a column of numbers."""
        return self is not StatisticName.COUNT


@dataclass(frozen=True)
class Question:
    """A question: a statistic of a column, with a condition on the rows and grouping columns.

    Parameters
    ----------
    statistic : StatisticName
    column : str, optional
        The column of numbers; a count has none.
    groups : tuple of str
        The grouping columns.
    share : float
        For a quantile; 0.5 is the median.
    bins : int
        The number of bins of a histogram.
    where : Condition, optional
        The condition on the rows; by default all rows.

    Examples
    --------
    >>> Question.parse("count by sex, income").groups
    ('sex', 'income')
    >>> print(Question.parse("count where age>=40 and not sex='f' by income"))
    count where age >= 40 and not (sex = 'f') by income
    >>> print(Question.parse("MEDIAN 'hours per week'"))
    median of "hours per week"
    >>> Question.parse("mean by sex")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: the question needs a column after 'mean' (for example: mean of age by sex)
    """

    statistic: StatisticName
    column: str | None = None
    groups: tuple[str, ...] = ()
    share: float = 0.5
    bins: int = _BINS
    where: Condition | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistic", one_of(StatisticName, self.statistic, "the statistic"))
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.statistic.needs_column is not isinstance(self.column, str):
            raise OptionError(f"a {self.statistic} {'needs a' if self.statistic.needs_column else 'has no'} column")
        real("the share of a quantile", self.share, above=0, below=1)
        object.__setattr__(self, "bins", whole("the number of bins", self.bins, most=_MOST_BINS))
        for name in self.groups:
            if self.groups.count(name) > 1:
                raise OptionError(f"the question groups by '{name}' twice")

    @classmethod
    def parse(cls, text: str) -> Question:
        """Parse a question, or raise an `OptionError` that says what is wrong with it."""
        return _Reader(text).question()

    def __str__(self) -> str:
        parts = [self.statistic.value]
        if self.statistic is StatisticName.QUANTILE:
            parts = ["median"] if self.share == 0.5 else [*parts, repr(float(self.share))]
        if self.column is not None:
            parts += ["of", quoted(self.column)]
        if self.statistic is StatisticName.HISTOGRAM:
            parts += ["in", str(self.bins), "bins"]
        if self.where is not None:
            parts += ["where", str(self.where)]
        if self.groups:
            parts += ["by", ", ".join(map(quoted, self.groups))]
        return " ".join(parts)


def parse_condition(text: str) -> Condition:
    """Parse a condition alone, as after ``where``.

    Examples
    --------
    >>> print(parse_condition("age>=40 and sex=f"))
    age >= 40 and sex = 'f'
    """
    return _Reader(f"where {text}" if isinstance(text, str) else text).condition()


@dataclass(frozen=True)
class _Token:
    text: str
    quoted: bool = False

    def says(self, *words: str) -> bool:
        return not self.quoted and self.text.lower() in words


_END = _Token("")


class _Reader:
    """A recursive-descent parser for questions."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise OptionError(f"a question must be a text, got {type(text).__name__}", hint=_EXAMPLE)
        self._tokens = _tokens(text)
        self._at = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _skip(self, *words: str) -> bool:
        """Skip the next token if it is one of the words, and return whether it was."""
        skipped = self._next.says(*words)
        self._at += skipped
        return skipped

    def question(self) -> Question:
        name = self._take()
        if name is _END:
            raise OptionError("the question is empty", hint=_EXAMPLE)
        statistic, share, bins, column = self._statistic(name), 0.5, _BINS, None
        if statistic is StatisticName.QUANTILE and not name.says("median"):
            share = self._share()
        if statistic.needs_column:
            self._skip("of")
            column = self._column(after=name.text, hint=f"for example: {name.text.lower()} of age by sex")
        if statistic is StatisticName.HISTOGRAM and self._skip("in"):
            bins = self._bins()
        where, groups = None, tuple[str, ...]()
        while self._next.says("where", "by"):
            if where is None and self._skip("where"):
                where = self._condition()
            elif not groups and self._skip("by"):
                groups = self._groups()
            else:
                break
        if self._next is not _END:
            hint = "groups come after 'by', with commas between them"
            if statistic is StatisticName.COUNT and self._next.says("of"):
                hint = "a count has no column: count, or count by sex"
            elif where is not None:
                hint = "conditions are joined by 'and' or 'or'"
            raise OptionError(f"the question should end before '{self._next.text}'", hint=hint)
        return Question(statistic, column, groups, share, bins, where)

    def condition(self) -> Condition:
        self._skip("where")
        found = self._condition()
        if self._next is not _END:
            raise OptionError(
                f"the condition should end before '{self._next.text}'", hint="conditions are joined by 'and' or 'or'"
            )
        return found

    def _condition(self, depth: int = 0) -> Condition:
        if depth > _MOST_NESTED:
            raise OptionError(f"the condition has more than {_MOST_NESTED} nested parentheses")
        clauses = [self._clause(depth)]
        while self._skip("or"):
            clauses.append(self._clause(depth))
        return clauses[0] if len(clauses) == 1 else Either(tuple(clauses))

    def _clause(self, depth: int) -> Condition:
        parts = [self._part(depth)]
        while self._skip("and"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _part(self, depth: int) -> Condition:
        if self._skip("not"):
            turned = True
            while self._skip("not"):
                turned = not turned
            part = self._part(depth)
            return Not(part) if turned else part
        if self._skip("("):
            inner = self._condition(depth + 1)
            if not self._skip(")"):
                raise OptionError("the condition has an unmatched parenthesis", hint=_CONDITION)
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        column = self._column(after="where", hint=_CONDITION, words=KEYWORDS)
        if self._skip("is"):
            turned = self._skip("not")
            if not self._skip("missing"):
                raise OptionError(f"the condition lacks 'missing' after '{column} is'", hint=_CONDITION)
            return Predicate(column, "not missing" if turned else "missing")
        turned = self._skip("not")
        if self._skip("in"):
            return Predicate(column, "not in" if turned else "in", self._values(column))
        sign = self._take()
        if sign is _END:
            raise OptionError(f"the condition ends after '{column}'", hint=_CONDITION)
        if sign.quoted or turned or sign.text not in _COMPARISONS:
            raise OptionError(
                f"the condition needs =, !=, <, <=, >, >=, in or is after '{column}', got '{sign.text}'",
                hint=_CONDITION,
            )
        return Predicate(column, _COMPARISONS[sign.text], (self._value(sign.text),))

    def _values(self, column: str) -> tuple[str, ...]:
        if not self._skip("("):
            raise OptionError(f"'{column} in' needs a list in parentheses", hint="for example: where job in ('a', 'b')")
        values = [self._value("(")]
        while self._skip(","):
            values.append(self._value(","))
        if not self._skip(")"):
            raise OptionError(
                f"the list after '{column} in' is not closed", hint="for example: where job in ('a', 'b')"
            )
        return tuple(values)

    def _value(self, after: str) -> str:
        token = self._take()
        if not token.quoted and (
            token is _END or token.text in (*_COMPARISONS, "(", ")", ",") or token.says(*KEYWORDS)
        ):
            got = f"'{token.text}'" if token.text else "none"
            raise OptionError(f"the condition needs a value after '{after}', got {got}", hint="put texts in quotes")
        return token.text

    def _statistic(self, token: _Token) -> StatisticName:
        known = {member.value: member for member in StatisticName}
        known |= {"median": StatisticName.QUANTILE, "average": StatisticName.MEAN, "total": StatisticName.SUM}
        known |= {"minimum": StatisticName.MIN, "maximum": StatisticName.MAX}
        word = token.text.lower()
        if token.quoted or word not in known:
            raise OptionError(
                f"the question must begin with a statistic, got '{token.text}'", hint=did_you_mean(word, known)
            )
        return known[word]

    def _share(self) -> float:
        token = self._take()
        try:
            share = float(token.text)
        except ValueError:
            share = -1.0
        if not 0 < share < 1:
            raise OptionError(
                f"a quantile needs a number between 0 and 1, got '{token.text}'", hint="quantile 0.9 of income"
            )
        return share

    def _bins(self) -> int:
        token = self._take()
        if not re.fullmatch(r"[0-9]{1,6}", token.text) or not 1 <= int(token.text) <= _MOST_BINS:
            raise OptionError(f"a histogram has 1 to {_MOST_BINS:,} bins, got '{token.text}'")
        self._skip("bins", "bin")
        return int(token.text)

    def _groups(self) -> tuple[str, ...]:
        groups = [self._column(after="by", hint="for example: count by sex")]
        while self._skip(","):
            groups.append(self._column(after=",", hint="for example: count by sex, income"))
        return tuple(groups)

    def _column(self, *, after: str, hint: str, words: tuple[str, ...] = ("by", "in", "where")) -> str:
        token = self._next
        if token is _END or (not token.quoted and (token.text in (",", "(", ")") or token.says(*words))):
            raise OptionError(f"the question needs a column after '{after}'", hint=hint)
        return self._take().text


def _tokens(text: str) -> Sequence[_Token]:
    tokens, at, pattern = list[_Token](), 0, _TOKEN
    end = len(text.rstrip())
    while at < end:
        found = pattern.match(text, at)
        if not found:
            rest = text[at:].strip()
            if rest[0] in "\"'":
                raise OptionError(
                    "the question has an unmatched quotation mark", hint="double a quotation mark inside quotes"
                )
            raise OptionError(f"the condition has '{rest[0]}', which is not an operator", hint=_CONDITION)
        double, single, sign, word = found.groups()
        if double is not None or single is not None:
            name = double.replace('""', '"') if double is not None else single.replace("''", "'")
            tokens.append(_Token(name, quoted=True))
        else:
            tokens.append(_Token(sign or word))
            if tokens[-1].says("where"):
                pattern = _IN_CONDITION
        at = found.end()
    return tokens

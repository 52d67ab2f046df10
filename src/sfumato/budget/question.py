"""What a person asks of a table, in a few words: ``mean of age by sex``.

::

    question  = statistic [ "by" column { "," column } ]
    statistic = "count"
              | ( "sum" | "mean" | "median" ) [ "of" ] column
              | "quantile" number [ "of" ] column
              | "histogram" [ "of" ] column [ "in" number "bins" ]
    column    = word | '"' any text '"'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sfumato._errors import OptionError, did_you_mean, one_of

__all__ = ["Question", "Statistic"]

_TOKEN = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|(,)|([^\s,"']+))""")
_WORD = re.compile(r"""[^\s,"']+""")
_BINS = 10
_MOST_BINS = 10_000
_EXAMPLE = "for example: count by sex; mean of age by sex; quantile 0.9 of income; histogram of age in 10 bins"


class Statistic(StrEnum):
    """What can be asked.

    Examples
    --------
    >>> Statistic("mean").needs_column
    True
    """

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    QUANTILE = "quantile"
    HISTOGRAM = "histogram"

    @property
    def needs_column(self) -> bool:
        """Whether it is a statistic of the numbers of a column."""
        return self is not Statistic.COUNT


@dataclass(frozen=True)
class Question:
    """A statistic, of which column, and for which groups.

    Parameters
    ----------
    statistic : Statistic
    column : str, optional
        The column of numbers; a count has none.
    groups : tuple of str
        The columns whose values make the groups.
    share : float
        Of a quantile: 0.5 for the median.
    bins : int
        Of a histogram.

    Examples
    --------
    >>> Question.parse("count by sex, income").groups
    ('sex', 'income')
    >>> print(Question.parse("MEDIAN 'hours per week'"))
    quantile 0.5 of "hours per week"
    >>> Question.parse("mean by sex")
    Traceback (most recent call last):
        ...
    sfumato._errors.OptionError: the question names no column after 'mean' (for example: mean of age by sex)
    """

    statistic: Statistic
    column: str | None = None
    groups: tuple[str, ...] = ()
    share: float = 0.5
    bins: int = _BINS

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistic", one_of(Statistic, self.statistic, "the statistic"))
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.statistic.needs_column is not isinstance(self.column, str):
            raise OptionError(f"a {self.statistic} is of {'a column' if self.statistic.needs_column else 'rows'}")
        if not 0 < self.share < 1:
            raise OptionError(f"a quantile needs a number between 0 and 1, got {self.share!r}")
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 1 <= self.bins <= _MOST_BINS:
            raise OptionError(f"a histogram has 1 to {_MOST_BINS:,} bins, got {self.bins!r}")
        for name in self.groups:
            if self.groups.count(name) > 1:
                raise OptionError(f"the question groups by '{name}' twice")

    @classmethod
    def parse(cls, text: str) -> Question:
        """Read a question, or say in one sentence what is wrong with it."""
        return _Reader(text).question()

    def __str__(self) -> str:
        parts = [self.statistic.value]
        if self.statistic is Statistic.QUANTILE:
            parts.append(f"{self.share:g}")
        if self.column is not None:
            parts += ["of", _quoted(self.column)]
        if self.statistic is Statistic.HISTOGRAM:
            parts += ["in", str(self.bins), "bins"]
        if self.groups:
            parts += ["by", ", ".join(map(_quoted, self.groups))]
        return " ".join(parts)


@dataclass(frozen=True)
class _Token:
    text: str
    quoted: bool = False

    def says(self, *words: str) -> bool:
        return not self.quoted and self.text.lower() in words


_END = _Token("")


class _Reader:
    """Reads the tokens of a question from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise OptionError(f"a question is a text, got {type(text).__name__}", hint=_EXAMPLE)
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
        """Go past a word if it is the next one."""
        found = self._next.says(*words)
        self._at += found
        return found

    def question(self) -> Question:
        name = self._take()
        if name is _END:
            raise OptionError("the question is empty", hint=_EXAMPLE)
        statistic, share, bins, column = self._statistic(name), 0.5, _BINS, None
        if statistic is Statistic.QUANTILE and not name.says("median"):
            share = self._share()
        if statistic.needs_column:
            self._skip("of")
            column = self._column(after=name.text, hint=f"for example: {name.text.lower()} of age by sex")
        if statistic is Statistic.HISTOGRAM and self._skip("in"):
            bins = self._bins()
        groups = self._groups() if self._skip("by") else ()
        if self._next is not _END:
            hint = "groups come after 'by', with commas between them"
            if statistic is Statistic.COUNT and self._next.says("of", "where"):
                hint = "a count is of rows: count, or count by sex"
            raise OptionError(f"the question goes on with '{self._next.text}' where it should end", hint=hint)
        return Question(statistic, column, groups, share, bins)

    def _statistic(self, token: _Token) -> Statistic:
        known = {member.value: member for member in Statistic}
        known |= {"median": Statistic.QUANTILE, "average": Statistic.MEAN, "total": Statistic.SUM}
        word = token.text.lower()
        if token.quoted or word not in known:
            raise OptionError(
                f"the question begins with '{token.text}', which is not a statistic", hint=did_you_mean(word, known)
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
        while self._next.text == "," and not self._next.quoted:
            self._take()
            groups.append(self._column(after=",", hint="for example: count by sex, income"))
        return tuple(groups)

    def _column(self, *, after: str, hint: str) -> str:
        token = self._next
        if token is _END or (not token.quoted and (token.text == "," or token.says("by", "in"))):
            raise OptionError(f"the question names no column after '{after}'", hint=hint)
        return self._take().text


def _tokens(text: str) -> Sequence[_Token]:
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if not found:
            raise OptionError("the question has a quotation mark without its partner", hint="write it twice inside one")
        double, single, comma, word = found.groups()
        if double is not None or single is not None:
            name = double.replace('""', '"') if double is not None else single.replace("''", "'")
            tokens.append(_Token(name, quoted=True))
        else:
            tokens.append(_Token(comma or word))
        at = found.end()
    return tokens


def _quoted(name: str) -> str:
    """Return the name of a column as it is written in a question."""
    if _WORD.fullmatch(name) and name.lower() not in ("by", "in", "of"):
        return name
    return '"' + name.replace('"', '""') + '"'

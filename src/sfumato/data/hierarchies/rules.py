"""Rule-based hierarchies, which cover unseen values: intervals of numbers, masked codes, calendar dates."""

from __future__ import annotations

import datetime as dt
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Literal

from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import MISSING, ROOT, Labels, mark_hint, text_of
from sfumato.errors import SchemaError, did_you_mean

__all__ = ["Dates", "Interval", "Intervals", "Prefixes", "as_float", "make_intervals", "multiples"]

_NUMBER = r"(-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?))"
_INTERVAL = re.compile(rf"([\[(]){_NUMBER}, {_NUMBER}([\])])")
_MOST = 100_000  # intervals on one level


@dataclass(frozen=True)
class Interval:
    """A range of numbers, written as in mathematics: ``[20, 30)`` contains 20 but not 30.

    A label consists of ``[`` if the interval contains its low end, else ``(``; the low end; a comma
    and a space; the high end; and ``]`` if the interval contains its high end, else ``)``. An end
    is a decimal number, ``-inf`` or ``inf``. ``20-29`` is read as ``[20, 29]``.

    Examples
    --------
    >>> str(Interval(20, 30))
    '[20, 30)'
    >>> Interval.parse("(0.5, inf)")
    Interval(low=0.5, high=inf, low_closed=False, high_closed=False)
    >>> 30 in Interval(20, 30), 30 in Interval(20, 30, high_closed=True)
    (False, True)
    """

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = False

    def __str__(self) -> str:
        ends = f"{_short(self.low)}, {_short(self.high)}"
        return f"{'[' if self.low_closed else '('}{ends}{']' if self.high_closed else ')'}"

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.low_closed else value > self.low
        return above and (value <= self.high if self.high_closed else value < self.high)

    @classmethod
    def parse(cls, label: str) -> Interval:
        """Parse the label of an interval.

        Examples
        --------
        >>> Interval.parse("[80, 90]").high
        90.0
        >>> Interval.parse("80-89").high
        89.0
        """
        found = _INTERVAL.fullmatch(re.sub(r"(\d+)-(\d+)", r"[\1, \2]", label))
        if not found:
            raise SchemaError(f"'{label}' is not an interval", hint="write an interval like [20, 30)")
        opening, low, high, closing = found.groups()
        return cls(float(low), float(high), opening == "[", closing == "]")


@dataclass(frozen=True)
class Intervals(Hierarchy):
    """Nested intervals of numbers; see `Hierarchy.intervals`.

    Examples
    --------
    >>> Intervals([[0, 10, 20, 40], [0, 20, 40]]).paths([20])
    [('20', '[20, 40]', '[20, 40]', '*')]
    """

    cuts: tuple[tuple[float, ...], ...]

    def __init__(self, cuts: Sequence[Sequence[float]]) -> None:
        levels = tuple(tuple(map(_number, level)) for level in cuts)
        if not levels:
            raise SchemaError("a hierarchy of intervals needs the cuts of at least one level")
        for level in levels:
            if len(level) < 2:
                raise SchemaError("a level of intervals needs at least two cuts: the two ends of its range")
            for low, high in pairwise(level):
                if not low < high:
                    raise SchemaError(f"the cuts of a level must increase, but {_short(low)} precedes {_short(high)}")
        for lower, (below, above) in enumerate(pairwise(levels), start=1):
            extra = [cut for cut in above if cut not in set(below)]
            if extra:
                raise SchemaError(
                    f"levels of intervals must nest: the cut {_short(extra[0])} of level {lower + 1} "
                    f"is not a cut of level {lower}"
                )
            if (below[0], below[-1]) != (above[0], above[-1]):
                raise SchemaError(
                    f"all levels of intervals must have the same ends: level {lower} goes from {_short(below[0])} "
                    f"to {_short(below[-1])}, level {lower + 1} from {_short(above[0])} to {_short(above[-1])}"
                )
        object.__setattr__(self, "cuts", levels)

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.cuts) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the cuts of each level."""
        return {"kind": "intervals", "cuts": [[_plain(cut) for cut in level] for level in self.cuts]}

    def _path(self, value: Any) -> Labels:
        if isinstance(value, bool) or not isinstance(value, Real | Decimal):
            raise SchemaError(
                "intervals need numbers, and a value is a "
                f"{'text' if isinstance(value, str) else type(value).__name__}",
                hint=mark_hint(text_of(value)) or "turn the column into numbers",
            )
        place = (
            value if isinstance(value, int) else as_float(value)
        )  # as a float, like the cuts: 0.1 is a bit more than 1/10
        low, high = self.cuts[0][0], self.cuts[0][-1]
        if not low <= place <= high or place in (-math.inf, math.inf):
            raise SchemaError(
                f"a value is outside the intervals, which range from {_short(low)} to {_short(high)}",
                hint='widen the bounds, or allow values outside with outside="code"',
            )
        return (text_of(value), *self._labels(place))

    def _order(self, path: Labels) -> Any:
        return math.inf if path[0] == MISSING else Fraction(path[0])

    @cached_property
    def _cells(self) -> list[tuple[tuple[float, ...], list[str]]]:
        """The inner cuts and the interval labels of each level."""
        cells = []
        for level in self.cuts:
            last = level[-1]  # a finite upper end belongs to the last interval
            ends = pairwise(level)
            intervals = [Interval(low, high, math.isfinite(low), high == last < math.inf) for low, high in ends]
            cells.append((level[1:-1], list(map(str, intervals))))
        return cells

    def _labels(self, place: float) -> Labels:
        return tuple(labels[bisect_right(inner, place)] for inner, labels in self._cells)

    def _drawing(self) -> Sequence[Labels]:
        """Return the path of each interval of the lowest level."""
        return [(*self._labels(low), ROOT) for low in self.cuts[0][:-1]]


@dataclass(frozen=True)
class Prefixes(Hierarchy):
    """Codes masked character by character; see `Hierarchy.prefixes`.

    Examples
    --------
    >>> Prefixes(4, side="left").paths(["1234"])
    [('1234', '*234', '**34', '***4', '*')]
    """

    length: int
    masks: tuple[int, ...]
    side: str
    _draws_an_example: ClassVar[bool] = True

    def __init__(self, length: int, masks: Sequence[int] | None = None, side: str = "right") -> None:
        if not _is_whole(length) or length < 1:
            raise SchemaError(f"the length of codes must be a whole number of at least 1, got {length!r}")
        if side not in ("right", "left"):
            raise SchemaError(f"the side where masking begins must be right or left, got {side!r}")
        chosen = tuple(range(1, length) if masks is None else masks)
        steps = (0, *chosen, length)
        if not all(map(_is_whole, chosen)) or any(low >= high for low, high in pairwise(steps)):
            raise SchemaError(
                f"the masks of codes of length {length} must be increasing whole numbers from 1 to {length - 1}, "
                f"got {list(chosen)}"
            )
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "masks", chosen)
        object.__setattr__(self, "side", side)

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.masks) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the length, the masks and the side."""
        return {"kind": "prefixes", "length": self.length, "masks": list(self.masks), "side": self.side}

    def _path(self, value: Any) -> Labels:
        code = text_of(value)
        if len(code) > self.length:
            raise SchemaError(f"a code has more than {self.length} characters")
        if len(code) < self.length and not isinstance(value, str):
            raise SchemaError(
                f"a number has fewer than the {self.length} digits of a code",
                hint="read the column as text: numbers have no leading zeros",
            )
        if self.side == "right":
            full = code.ljust(self.length, "*")
            return (code, *(full[: self.length - mask] + "*" * mask for mask in self.masks))
        full = code.rjust(self.length, "*")
        return (code, *("*" * mask + full[mask:] for mask in self.masks))

    def _order(self, path: Labels) -> Any:
        return path[0] == MISSING, path[::-1]

    def _drawing(self) -> Sequence[Labels]:
        return self.paths(["".join(str(place % 10) for place in range(1, self.length + 1))])


_PERIODS: dict[str, Callable[[dt.date], str]] = {
    "day": lambda day: day.isoformat()[:10],
    "month": lambda day: day.isoformat()[:7],
    "quarter": lambda day: f"{day.isoformat()[:4]}-Q{(day.month + 2) // 3}",
    "year": lambda day: day.isoformat()[:4],
    "decade": lambda day: f"{day.isoformat()[:3]}0s",
    "century": lambda day: f"{day.isoformat()[:2]}00-{day.isoformat()[:2]}99",
}


@dataclass(frozen=True)
class Dates(Hierarchy):
    """Calendar dates; see `Hierarchy.dates`.

    Examples
    --------
    >>> Dates(["year"]).paths(["1999-12-31"])
    [('1999-12-31', '1999', '*')]
    """

    periods: tuple[str, ...]
    _draws_an_example: ClassVar[bool] = True

    def __init__(self, periods: Sequence[str]) -> None:
        for period in periods:
            if period not in list(_PERIODS):
                raise SchemaError(f"dates have no period {period!r}", hint=did_you_mean(str(period), _PERIODS))
        if isinstance(periods, str) or [period for period in _PERIODS if period in periods] != list(periods):
            raise SchemaError(f"the periods of dates must be in this order: {', '.join(_PERIODS)}")
        object.__setattr__(self, "periods", tuple(periods))

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.periods) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the periods."""
        return {"kind": "dates", "levels": list(self.periods)}

    def _path(self, value: Any) -> Labels:
        try:
            day = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            day = None
        if not isinstance(day, dt.date):
            raise SchemaError(
                "a value is not a date",
                hint=mark_hint(text_of(value)) or "write it like 2024-05-17, or turn the column into dates",
            )
        return (text_of(value), *(_PERIODS[period](day) for period in self.periods))

    def _order(self, path: Labels) -> Any:
        return path[0] == MISSING, path[::-1]

    def _drawing(self) -> Sequence[Labels]:
        return self.paths(["2024-05-17"])


def make_intervals(
    widths: Sequence[float] | None,
    bounds: Sequence[float] | None,
    cuts: Sequence[Any] | None,
    outside: Literal["error", "code"],
) -> Intervals:
    """Make intervals from widths and bounds, or from cuts; see `Hierarchy.intervals`.

    Examples
    --------
    >>> make_intervals([5, 10], (12, 30), None, "error").cuts
    ((12.0, 15.0, 20.0, 25.0, 30.0), (12.0, 20.0, 30.0))
    """
    if outside not in ("error", "code"):
        raise SchemaError(f"the option outside must be 'error' or 'code', got {outside!r}")
    levels: list[list[float]]
    if cuts is not None and widths is None and bounds is None:
        nested = len(cuts) > 0 and all(isinstance(level, list | tuple) for level in cuts)
        levels = [[_number(cut) for cut in level] for level in (cuts if nested else [cuts])]
    elif cuts is None and widths is not None and bounds is not None:
        low, high = _ends(bounds)
        levels = [[low, *multiples(width, low, high), high] for width in _nested(widths)]
    else:
        raise SchemaError("intervals need either widths and bounds, or cuts")
    if outside == "code":
        levels = [[-math.inf, *(cut for cut in level if math.isfinite(cut)), math.inf] for level in levels]
    return Intervals(levels)


def multiples(width: float, low: float, high: float) -> list[float]:
    """Return the multiples of a width strictly between two numbers.

    Examples
    --------
    >>> multiples(0.1, 0.1, 0.5)
    [0.2, 0.3, 0.4]
    """
    step = Decimal(str(width))  # the third multiple of 0.1 must be 0.3
    if (high - low) / width > _MOST:
        raise SchemaError(
            f"the width {_short(width)} makes more than {_MOST:,} intervals", hint="choose a larger width"
        )
    first, last = math.floor(Decimal(low) / step), math.ceil(Decimal(high) / step)
    return [cut for times in range(first, last + 1) if low < (cut := float(times * step)) < high]


def as_float(value: Any) -> float:
    """Convert a number to a float, infinite if it is out of range.

    Examples
    --------
    >>> as_float(Decimal("0.1")), as_float(-(10**400))
    (0.1, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _nested(widths: Sequence[float]) -> list[float]:
    """Return the widths as floats; check that each one is a multiple of the one before."""
    numbers = [_number(width) for width in widths]
    if not numbers or not all(0 < width < math.inf for width in numbers):
        raise SchemaError(f"the widths of intervals must be positive numbers, got {list(widths)}")
    for lower, upper in pairwise(numbers):
        if lower >= upper or Fraction(str(upper)) % Fraction(str(lower)):
            raise SchemaError(
                f"levels of intervals must nest: the width {_short(upper)} is not a multiple of {_short(lower)}"
            )
    return numbers


def _ends(bounds: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = map(_number, bounds)
    except SchemaError:
        raise
    except (TypeError, ValueError):
        raise SchemaError(f"the bounds of intervals must be two numbers, got {bounds!r}") from None
    if not -math.inf < low < high < math.inf:
        raise SchemaError(f"the bounds of intervals must be finite and in order, got {_short(low)} and {_short(high)}")
    return low, high


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise SchemaError(f"intervals need numbers, got {value!r}")
    return number


def _short(number: float) -> str:
    """Return the shortest text that parses back to the number."""
    return str(int(number)) if abs(number) < 1e22 and number == int(number) else repr(float(number))


def _plain(cut: float) -> int | float | str:
    """Return a cut for JSON, which has no infinite numbers."""
    if math.isinf(cut):
        return str(cut)
    return int(cut) if abs(cut) < 1e15 and cut == int(cut) else cut

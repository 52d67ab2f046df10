"""Rule-based hierarchies, which cover unseen values: intervals of numbers, masked codes, calendar dates."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Literal

from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import MISSING, ROOT, Labels, mark_hint, text_of
from sfumato.data.released_values import PERIODS, Interval, short
from sfumato.errors import SchemaError, did_you_mean

__all__ = ["Dates", "Intervals", "Prefixes", "as_float", "make_intervals", "multiples"]

_MOST = 100_000  # intervals on one level


@dataclass(frozen=True)
class Intervals(Hierarchy):
    """Nested intervals of numbers; see `Hierarchy.intervals`.

    Examples
    --------
    >>> Intervals([[0, 10, 20, 40], [0, 20, 40]]).paths([20])
    [('20', '[20, 40]', '[20, 40]', '*')]
    """

    cuts: tuple[tuple[float, ...], ...]
    whole: bool

    def __init__(self, cuts: Sequence[Sequence[float]], *, whole: bool = False) -> None:
        levels = tuple(tuple(map(_number, level)) for level in cuts)
        if not levels:
            raise SchemaError("a hierarchy of intervals needs the cuts of at least one level")
        for level in levels:
            if len(level) < 2:
                raise SchemaError("a level of intervals needs at least two cuts: the two ends of its range")
            for low, high in pairwise(level):
                if not low < high:
                    raise SchemaError(f"the cuts of a level must increase, but {short(low)} precedes {short(high)}")
        for lower, (below, above) in enumerate(pairwise(levels), start=1):
            extra = [cut for cut in above if cut not in set(below)]
            if extra:
                raise SchemaError(
                    f"levels of intervals must nest: the cut {short(extra[0])} of level {lower + 1} "
                    f"is not a cut of level {lower}"
                )
            if (below[0], below[-1]) != (above[0], above[-1]):
                raise SchemaError(
                    f"all levels of intervals must have the same ends: level {lower} goes from {short(below[0])} "
                    f"to {short(below[-1])}, level {lower + 1} from {short(above[0])} to {short(above[-1])}"
                )
        object.__setattr__(self, "cuts", levels)
        object.__setattr__(self, "whole", whole)

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.cuts) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the cuts of each level."""
        plain = {"kind": "intervals", "cuts": [[_plain(cut) for cut in level] for level in self.cuts]}
        return plain | ({"whole": True} if self.whole else {})

    def for_whole_numbers(self) -> Hierarchy:
        """Return the same intervals with labels such as ``20-39``."""
        return self if self.whole else Intervals(self.cuts, whole=True)

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
                f"a value is outside the intervals, which range from {short(low)} to {short(high)}",
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
            cells.append((level[1:-1], [one.whole_text() if self.whole else str(one) for one in intervals]))
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
            if period not in list(PERIODS):
                raise SchemaError(f"dates have no period {period!r}", hint=did_you_mean(str(period), PERIODS))
        if isinstance(periods, str) or [period for period in PERIODS if period in periods] != list(periods):
            raise SchemaError(f"the periods of dates must be in this order: {', '.join(PERIODS)}")
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
        return (text_of(value), *(PERIODS[period](day) for period in self.periods))

    def _order(self, path: Labels) -> Any:
        return path[0] == MISSING, path[::-1]

    def _drawing(self) -> Sequence[Labels]:
        return self.paths(["2024-05-17"])


def make_intervals(
    widths: Sequence[float] | None,
    bounds: Sequence[float] | None,
    cuts: Sequence[Any] | None,
    outside: Literal["error", "code"],
    *,
    whole: bool = False,
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
    return Intervals(levels, whole=whole)


def multiples(width: float, low: float, high: float) -> list[float]:
    """Return the multiples of a width strictly between two numbers.

    Examples
    --------
    >>> multiples(0.1, 0.1, 0.5)
    [0.2, 0.3, 0.4]
    """
    step = Decimal(str(width))  # the third multiple of 0.1 must be 0.3
    if (high - low) / width > _MOST:
        raise SchemaError(f"the width {short(width)} makes more than {_MOST:,} intervals", hint="choose a larger width")
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
                f"levels of intervals must nest: the width {short(upper)} is not a multiple of {short(lower)}"
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
        raise SchemaError(f"the bounds of intervals must be finite and in order, got {short(low)} and {short(high)}")
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


def _plain(cut: float) -> int | float | str:
    """Return a cut for JSON, which has no infinite numbers."""
    if math.isinf(cut):
        return str(cut)
    return int(cut) if abs(cut) < 1e15 and cut == int(cut) else cut

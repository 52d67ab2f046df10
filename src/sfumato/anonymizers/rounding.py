"""Round the ends of ranges outward to readable steps, so they do not show the values of people.

A range is widened to multiples of a step: 1, 2 or 5 times a power of ten for numbers; for times, fractions of a minute,
an hour or a day, then 1, 5 or 10 days, months and years. Of the steps of at least a tenth of the range's width, it is
the coarsest that widens the range by at most a quarter (two fifths for times), or the finest if none does. No step is
finer than the values of the column, so a range of a few whole numbers keeps its ends. Public bounds are not crossed.

The result depends only on the range and the column, never on other ranges, so parts of a table can be written
separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.released_values import DAY, read_range, write_brackets, write_time, write_whole
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.universe import Universe

__all__ = ["decimal_places", "range_texts"]

_FINEST = 10  # steps per width of a range
_WIDER = 0.25
_WIDER_TIME = 0.4
_CALENDAR = (-30_609_792_000_000_000, 250_228_051_200_000_000)  # the years 1000 to 9898: four digits after rounding too
_MOST_DIGITS = 2**53


def range_texts(of: Universe, first: Ints, last: Ints, *, tight: bool = False) -> list[str]:
    """Write ranges of a number or date column, each given by the positions of its ends in the universe.

    Parameters
    ----------
    of : Universe
    first, last : the smallest and the largest value of each range
    tight : whether to write exactly these ends instead of rounding outward

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.universe import universe
    >>> ages = universe(sf.Table(pl.DataFrame({"age": [21, 23, 28, 64, 95]})).encode(["age"]).domains[0])
    >>> range_texts(ages, np.array([0, 0, 3]), np.array([2, 1, 4]))
    ['20-29', '21-23', '60-99']
    >>> range_texts(ages, np.array([0, 0, 3]), np.array([2, 1, 4]), tight=True)
    ['21-28', '21-23', '64-95']
    """
    dtype = of.values.values.dtype
    alone = first == last
    texts = np.empty(len(first), dtype=object)
    # A single day is written without the midnight that pandas adds.
    suffix = " 00:00:00" if of.has_only_days else ""
    texts[alone] = [of.values.label(place).removesuffix(suffix) for place in first[alone].tolist()]
    if not alone.all():
        texts[~alone] = _ranges(of, dtype, first[~alone], last[~alone], tight=tight)
    return list(texts)


def _ranges(of: Universe, dtype: pl.DataType, first: Ints, last: Ints, *, tight: bool) -> list[str]:
    if isinstance(dtype, pl.Date | pl.Datetime):
        low, high, write = _times(of, dtype, first, last, tight=tight)
    elif of.whole and np.abs(of.numbers[[0, _last(of)]]).max() < _MOST_DIGITS:
        low, high, write = _whole(of, first, last, tight=tight)
    else:
        low, high, write = _decimals(of, first, last, tight=tight)
    pairs, which = np.unique(np.column_stack([low, high]), axis=0, return_inverse=True)
    texts = [_unmistaken(of, one, other, write) for one, other in pairs.tolist()]
    return [texts[at] for at in which.ravel().tolist()]


class _Write(Protocol):
    def __call__(self, low: int, high: int, /, *, brackets: bool = False) -> str: ...


class _Step(NamedTuple):
    """The length of a step, and functions for the multiples below and above an end."""

    length: float
    below: Callable[[Ints], Ints]
    above: Callable[[Ints], Ints]


def _widened(low: Ints, stop: Ints, steps: Sequence[_Step], most: float, low_end: int, stop_end: int) -> list[Ints]:
    """Round ranges from ``low`` to ``stop``, which is excluded, outward to suitable steps."""
    width = (stop - low).astype(np.float64)
    new, done = [low.copy(), stop.copy()], np.zeros(len(low), dtype=bool)
    for at in reversed(range(len(steps))):
        step = steps[at]
        fits = width / _FINEST <= step.length
        finest = fits & (width / _FINEST > (steps[at - 1].length if at else 0))
        some = np.flatnonzero(fits & ~done & (step.length <= 2 * (1 + most) * width))
        one = np.maximum(step.below(low[some]), low_end)
        other = np.minimum(step.above(stop[some]), stop_end)
        good = (other - one <= (1 + most) * width[some]) | finest[some]
        new[0][some[good]], new[1][some[good]] = one[good], other[good]
        done[some[good]] = True
    return new


def _multiple(length: int) -> _Step:
    return _Step(length, lambda ends: ends // length * length, lambda ends: -(-ends // length) * length)


def _nice(most: float) -> list[_Step]:
    """Return the steps 1, 5, 10, 20, 50, 100, ... up to the first above `most`; a step of 2 would look odd."""
    steps = [1, 5, 10]
    while steps[-1] < most:
        steps += [2 * steps[-1], 5 * steps[-1], 10 * steps[-1]]
    return [_multiple(step) for step in steps]


def _exact(of: Universe, first: Ints, last: Ints) -> list[str]:
    """Write ranges with exact ends, in brackets."""
    ends = ([of.values.label(place) for place in places.tolist()] for places in (first, last))
    return [write_brackets(*both) for both in zip(*ends, strict=True)]


def _listed(texts: Sequence[str]) -> _Write:
    """Return a writer for ranges that are already written, by index."""

    def write(at: int, _: int, /, *, brackets: bool = False) -> str:
        return texts[at]

    return write


# Whole numbers


def _whole(of: Universe, first: Ints, last: Ints, *, tight: bool) -> tuple[Ints, Ints, _Write]:
    low, stop = of.numbers[first].astype(np.int64), of.numbers[last].astype(np.int64) + 1
    if not tight:
        bounds = _bounds(of)
        ends = int(np.ceil(bounds[0])), int(np.floor(bounds[1])) + 1
        low, stop = _widened(low, stop, _nice(2.0 * float((stop - low).max())), _WIDER, *ends)
    return low, stop - 1, write_whole


def _bounds(of: Universe) -> tuple[float, float]:
    return of.column.bounds or (-(2.0**60), 2.0**60)


# Numbers with decimal places


def _decimals(of: Universe, first: Ints, last: Ints, *, tight: bool) -> tuple[Ints, Ints, _Write]:
    """Write decimal ranges, in brackets; returns indices into the texts."""
    low, high = of.numbers[first], of.numbers[last]
    number = np.arange(len(low))
    places = decimal_places(of.numbers[: _last(of) + 1])
    texts = _exact(of, first, last)
    if not tight:
        for at in number.tolist():
            texts[at] = _decimal(_bounds(of), float(low[at]), float(high[at]), places) or texts[at]
    return number, number, _listed(texts)


def _decimal(bounds: tuple[float, float], low: float, high: float, places: int | None) -> str:
    """Write the range between two numbers; empty if floats cannot represent the multiples of a step."""
    width = high - low
    if not 1e-290 < width < 1e290 or max(abs(low), abs(high)) / width > 1e12:
        return ""
    first, last = Decimal(repr(low)), Decimal(repr(high))
    text, power = "", int(np.floor(np.log10(width))) + 1
    while True:
        for lead in (5, 2, 1):
            step = Decimal(lead).scaleb(power)
            if float(step) < width / _FINEST or (places is not None and power < -places):
                return text
            multiples = (first / step).to_integral_value(ROUND_FLOOR), (last / step).to_integral_value(ROUND_CEILING)
            ends = [
                _decimal_text(times * step, bound, inside)
                for times, bound, inside in zip(multiples, bounds, (low, high), strict=True)
            ]
            text = write_brackets(*ends)
            if float(ends[1]) - float(ends[0]) <= (1 + _WIDER) * width:
                return text
        power -= 1


def _decimal_text(end: Decimal, bound: float, inside: float) -> str:
    beyond = float(end) < bound <= inside or float(end) > bound >= inside
    return text_of(bound) if beyond else f"{end:f}" if abs(end.adjusted()) < 15 else repr(float(end))


def decimal_places(numbers: Floats) -> int | None:
    """Return the largest number of decimal places, or None if there are ten or more.

    Examples
    --------
    >>> decimal_places(np.array([1.0, 2.25])), decimal_places(np.array([1 / 3]))
    (2, None)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return next((places for places in range(10) if (np.round(numbers, places) == numbers).all()), None)


# Times


def _times(
    of: Universe, dtype: pl.Date | pl.Datetime, first: Ints, last: Ints, *, tight: bool
) -> tuple[Ints, Ints, _Write]:
    ticks = of.values.values.to_physical().cast(pl.Int64).fill_null(0).to_numpy()
    if isinstance(dtype, pl.Date):
        ticks, unit, zone = ticks * DAY, DAY, False
    else:
        scale = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[dtype.time_unit]
        ticks = ticks * scale[0] // scale[1]
        unit, zone = max(int(of.unit * scale[0] // scale[1]), 1), dtype.time_zone is not None
    start, stop = ticks[first], ticks[last] + unit
    known = ticks[: _last(of) + 1]
    if known.min() < _CALENDAR[0] or known.max() >= _CALENDAR[1]:
        number = np.arange(len(start))
        return number, number, _listed(_exact(of, first, last))
    if not tight:
        steps = [step for step in _time_steps() if step.length >= unit]
        start, stop = _widened(start, stop, steps, _WIDER_TIME, *_CALENDAR)
    return start, stop, partial(write_time, brackets=True) if zone else write_time


def _time_steps() -> list[_Step]:
    fractions = [lead * 10**power for power in range(6) for lead in (1, 2, 5)]
    second, minute, hour = 1_000_000, 60_000_000, 3_600_000_000
    lengths = [
        *fractions,
        *(second * many for many in (1, 5, 15, 30)),
        *(minute * many for many in (1, 5, 15, 30)),
        *(hour * many for many in (1, 3, 6, 12)),
        DAY,
    ]
    days = [_Step(many * DAY, *_rounding(partial(_day, many=many))) for many in (5, 10)]
    months = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000]
    calendar = [_Step(many * 30.4 * DAY, *_rounding(partial(_months, many=many))) for many in months]
    return [*map(_multiple, lengths), *days, *calendar]


def _rounding(
    floor: Callable[[NDArray[np.datetime64], int], NDArray[np.datetime64]],
) -> tuple[Callable[[Ints], Ints], Callable[[Ints], Ints]]:
    """Return functions that round microseconds down and up, given the start of a day's period and of the next."""

    def below(ends: Ints) -> Ints:
        return _ticks(floor((ends // DAY).astype("M8[D]"), 0))

    def above(ends: Ints) -> Ints:  # the start of the period after that of the last moment
        return _ticks(floor(((ends - 1) // DAY).astype("M8[D]"), 1))

    return below, above


def _ticks(days: NDArray[np.datetime64]) -> Ints:
    return days.astype("M8[D]").astype(np.int64) * DAY


def _months(days: NDArray[np.datetime64], after: int, *, many: int) -> NDArray[np.datetime64]:
    """Return the start of the period of `many` months that contains a day, or of the period after it."""
    month = days.astype("M8[M]").astype(np.int64) + 1970 * 12
    return ((month // many + after) * many - 1970 * 12).astype("M8[M]").astype("M8[D]")


def _day(days: NDArray[np.datetime64], after: int, *, many: int) -> NDArray[np.datetime64]:
    """Return the start of the 5 or 10 days of a month that contain a day; the last period ends with the month."""
    month = days.astype("M8[M]")
    part = np.minimum((days - month.astype("M8[D]")).astype(np.int64) // many, 30 // many - 1) + after
    next_month = (month + 1).astype("M8[D]")
    return np.where(part < 30 // many, month.astype("M8[D]") + part * many, next_month)


# Distinguishing ranges from labels of the hierarchy


def _unmistaken(of: Universe, low: int, high: int, write: _Write) -> str:
    """Write a range, in brackets if its text is the label of a different group of the hierarchy."""
    text = write(low, high)
    if text not in of.groups or text.startswith("["):
        return text
    ends, known = read_range(text, of.values.values.dtype), of.numbers[: _last(of) + 1]
    inside = [place for place, number in enumerate(known.tolist()) if ends is not None and number in ends]
    same = np.array_equal(of.groups[text][1], inside)
    return text if same else write(low, high, brackets=True)


def _last(of: Universe) -> int:
    """Return the position of the last value that is not missing."""
    return len(of) - 1 - (of.missing is not None)

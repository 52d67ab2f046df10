"""Put the values of a column into a few bins that a page may show: no bin has only a few people.

Numbers are in equal bins between round numbers, dates in bins between round moments (years, months, days). The bins
span all but the lowest and the highest hundredth of the original rows, at least `SMALLEST_SHOWN` rows at each end,
and the first and the last bin are open, so the extremes are not shown. Ordinals keep their order. The most frequent
categories have a bin each, and all others share one.

A bin with fewer than `SMALLEST_SHOWN` original rows, or fewer than 0.1 % of them, is merged into a neighbour, or into
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.hierarchies.label_paths import MISSING
from sfumato.data.io.source import File
from sfumato.data.schema import Kind
from sfumato.data.table import Table
from sfumato.measures.assess import MOST_ROWS, profiles_of
from sfumato.measures.assessment import SMALLEST_SHOWN, Profile, round_shares
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage
from sfumato.measures.loss.marginals import along
from sfumato.measures.loss.universe import Universe, universe

__all__ = ["SMALLEST_SHOWN", "Bins", "binned_profiles", "bins_of", "round_shares"]

_LEAST = 0.001  # the smallest share of rows in a bin; a smaller one would be just a line
_TAIL = 0.01  # the share of rows at each end that the round bins need not span
_DAY = 86_400_000_000  # microseconds
_UNITS = (("days", _DAY), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000))
_TICKS = {"ms": 1000.0, "us": 1.0, "ns": 0.001}
_CALENDAR = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999, in microseconds from 1970
# The possible distances between edges of dates: for Polars, in days, and the format of an edge.
_EVERY = (
    ("1m", 1 / 1440, "%Y-%m-%d %H:%M"),
    ("10m", 1 / 144, "%Y-%m-%d %H:%M"),
    ("1h", 1 / 24, "%Y-%m-%d %H:%M"),
    ("6h", 0.25, "%Y-%m-%d %H:%M"),
    ("1d", 1, "%Y-%m-%d"),
    ("1w", 7, "%Y-%m-%d"),
    ("1mo", 28, "%Y-%m"),
    ("3mo", 90, "%Y-%m"),
    ("1y", 365, "%Y"),
    ("2y", 730, "%Y"),
    ("5y", 1826, "%Y"),
    ("10y", 3652, "%Y"),
    ("50y", 18262, "%Y"),
    ("1000y", 365242, "%Y"),
)
Text = Callable[[float, bool], str]  # formats an edge, or the last value below it


@dataclass(frozen=True, eq=False, repr=False)
class Bins(Discreet):
    """The bins of a column.

    Attributes
    ----------
    labels : the label of each bin
    of_value : the bin of each value of the universe
    edges : the edges between the parts of a number or date column; empty for other columns
    of_part : the bin of each of these parts, and of a missing value
    """

    labels: tuple[str, ...]
    of_value: Ints
    edges: Floats
    of_part: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def share(self, read: Coverage) -> NDArray[np.float64]:
        """Return the share of each released value that lies in each bin; see `marginals`.

        A value that the universe lacks lies in none.
        """
        if not read.universe.is_line:
            inside = [read.total(self.of_value == position) for position in range(len(self))]
            return np.asarray(np.column_stack(inside) / np.maximum(read.size, 1)[:, None])
        found = along(read, self.edges) @ (self.of_part[:, None] == np.arange(len(self)))
        return np.where(read.outside[:, None], 0.0, found)


def bins_of(of: Universe, count: Ints, most: int = 12) -> Bins:
    """Put the values of a column into at most `most` bins, none with 1 to 9 original rows.

    Parameters
    ----------
    of : Universe
    count : array of int
        The number of original rows with each value of the universe.
    most : int

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.universe import universe
    >>> table = sf.Table(pl.DataFrame({"age": range(18, 98), "sex": ["f"] * 50 + ["m"] * 29 + ["x"]}))
    >>> age, sex = map(universe, table.encode(["age", "sex"]).domains)
    >>> bins_of(age, np.ones(80), most=5).labels
    ('up to 39', '40 to 59', '60 to 79', 'from 80')
    >>> bins_of(sex, np.array([50, 29, 1])).labels
    ('f', 'others')
    """
    count = np.asarray(count, dtype=np.int64)
    if of.is_line:
        return _of_line(of, count, most)
    if of.column.kind is Kind.ORDINAL:
        group = _merge(count, most)
        return _named(group, [_span(of, np.flatnonzero(group == one)) for one in range(group[-1] + 1)])
    return _of_categories(of, count, most)


def binned_profiles(table: Table, names: Sequence[str], *, most: int = 12) -> tuple[Profile, ...]:
    """Profile the named columns, with their values in bins; identifiers are only counted.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> (sex,) = binned_profiles(sf.Table(pl.DataFrame({"sex": ["f"] * 30 + ["m"] * 20})), ["sex"])
    >>> sex.values, sex.bins, sex.shares
    (2, ('f', 'm'), (0.6, 0.4))
    """
    if isinstance(table.source, File) and table.rows <= MOST_ROWS:
        table = Table(table.to_polars(), table.schema)  # read the file only once
    return tuple(_binned(table, one, most) for one in profiles_of(table, names))


def _binned(table: Table, profile: Profile, most: int) -> Profile:
    if profile.values is None or profile.role.is_identifier or not table.rows:
        return profile
    codes = table.encode([profile.column])
    of = universe(codes.domains[0])
    total = np.bincount(of.place[codes.values[:, 0]], minlength=len(of))
    bins = bins_of(of, total, most)
    part = np.bincount(bins.of_value, weights=total, minlength=len(bins)) / len(codes.values)
    return replace(profile, bins=bins.labels, shares=tuple(round_shares(part, len(codes.values)).tolist()))


def _of_line(of: Universe, count: Ints, most: int) -> Bins:
    known = len(of) - (of.missing is not None)
    inner, text = _between(of, count[:known], max(most - (of.missing is not None), 1))
    # Whole numbers lie between the edges, not on them: [9, 10] is half below 9.5 and half above.
    edges = np.concatenate([[-np.inf], inner - (0.5 if of.whole else 0.0), [np.inf]])
    part = np.full(len(of), len(edges) - 1)
    part[:known] = np.searchsorted(edges, of.numbers[:known], side="right") - 1
    records = np.bincount(part, weights=count, minlength=len(edges)).astype(np.int64)
    group = _merge(records[: len(edges) - (of.missing is None)], most)
    of_part = group if of.missing is not None else np.append(group, group[-1])
    labels = []
    for one in range(group[-1] + 1):
        parts = np.flatnonzero(group == one)
        absent = of.missing is not None and parts[-1] == len(edges) - 1
        parts = parts[:-1] if absent else parts
        words = [_range(inner, parts, text, of.whole)] if len(parts) else []
        labels.append(_with_missing(words, absent))
    return Bins(tuple(labels), of_part[part], edges, of_part)


def _range(inner: Floats, parts: Ints, text: Text, whole: bool) -> str:
    """Return the label of the numbers from the first to the last of some parts."""
    first, last = int(parts[0]), int(parts[-1]) + 1
    below, above = first == 0, last == len(inner) + 1
    if below and above:
        return "all values"
    if above:
        return f"from {text(inner[first - 1], False)}"
    end = text(inner[last - 1], True)
    if below:
        return f"up to {end}" if whole else f"under {end}"
    start = text(inner[first - 1], False)
    return start if start == end else f"{start} to {end}"


def _between(of: Universe, count: Ints, most: int) -> tuple[Floats, Text]:
    """Return the round edges between at most `most` bins, and a function that formats a number."""
    numbers = of.numbers[: len(count)]
    cut = max(SMALLEST_SHOWN, _TAIL * count.sum())
    if count.sum() < 2 * SMALLEST_SHOWN or most < 2:  # one bin
        return np.zeros(0), _writer(1.0, whole=True)
    low = float(numbers[np.searchsorted(np.cumsum(count), cut)])
    high = float(numbers[::-1][np.searchsorted(np.cumsum(count[::-1]), cut)])
    low, high = min(low, high), max(low, high)
    dtype = of.values.values.dtype
    if isinstance(dtype, pl.Date | pl.Datetime):
        tick = float(_DAY) if isinstance(dtype, pl.Date) else _TICKS[dtype.time_unit]
        if _CALENDAR[0] <= low * tick and high * tick <= _CALENDAR[1] - 1000 * 366 * _DAY:
            return _moments(low, high, tick, most)
    if isinstance(dtype, pl.Duration) and low < high:
        return _lengths(low, high, _TICKS[dtype.time_unit], most)
    if low == high:
        return np.array([low, low + 1] if of.whole else [low]), _writer(1.0 if of.whole else abs(low) or 1.0, of.whole)
    return _round_numbers(low, high, most, of.whole)


def _round_numbers(low: float, high: float, most: int, whole: bool) -> tuple[Floats, Text]:
    """Return the multiples of 1, 2 or 5 times a power of ten between two numbers, for at most `most` bins."""
    power = math.floor(math.log10((high - low) / most))
    power = max(power, 0) if whole else power
    while True:
        for digit in (1, 2, 5):
            # Dividing by a power of ten gives 0.3; multiplying by 0.1 would give 0.30000000000000004.
            times, by = (digit * 10.0**power, 1.0) if power >= 0 else (float(digit), 10.0**-power)
            first, last = math.floor(low * by / times) + 1, math.floor(high * by / times)
            edges = np.arange(first, last + 1, dtype=np.float64) * times / by
            if len(edges) < most:
                return edges, _writer(digit * 10.0**power, whole)
        power += 1


def _writer(step: float, whole: bool) -> Text:
    """Return a function that formats multiples of a step; a fractional end is the edge itself."""
    places = max(0, -math.floor(math.log10(step) + 1e-9))

    def text(number: float, below: bool) -> str:
        number -= whole and below
        if not 1e-6 <= step < 1e12:
            return f"{number:.4g}"
        return f"{number:,.{places}f}" if abs(number) >= 10_000 else f"{number:.{places}f}"

    return text


def _moments(low: float, high: float, tick: float, most: int) -> tuple[Floats, Text]:
    """Return the round moments between two dates, for at most `most` bins."""
    ends = pl.Series([round(low * tick), round(high * tick)]).cast(pl.Datetime("us"))
    edges, form = np.zeros(0), ""
    for every, days, form in _EVERY:  # noqa: B007 - the last is that of the edges
        if (high - low) * tick / _DAY / days <= most + 1:
            moments = pl.datetime_range(ends.dt.truncate(every)[0], ends[1], every, time_unit="us", eager=True)
            edges = moments.to_physical().to_numpy() / tick
            edges = edges[edges > low]
            if len(edges) < most:
                break

    def text(number: float, below: bool) -> str:
        return str(pl.Series([round(number * tick) - below]).cast(pl.Datetime("us")).dt.to_string(form)[0])

    return edges, text


def _lengths(low: float, high: float, tick: float, most: int) -> tuple[Floats, Text]:
    """Return the round durations between two, in the largest unit that fits several times."""
    name, unit = next((each for each in _UNITS if (high - low) * tick >= most * each[1]), _UNITS[-1])
    edges, write = _round_numbers(low * tick / unit, high * tick / unit, most, whole=False)
    return edges * unit / tick, lambda number, below: f"{write(number * tick / unit, below)} {name}"


def _merge(count: Ints, most: int) -> Ints:
    """Merge the rarest part into its rarer neighbour until all bins are frequent and few; return each part's bin."""
    records, parts, enough = count.tolist(), [1] * len(count), _enough(count)
    while len(records) > 1 and (min(records) < enough or len(records) > most):
        rarest = records.index(min(records))
        around = [place for place in (rarest - 1, rarest + 1) if 0 <= place < len(records)]
        left = min(rarest, min(around, key=records.__getitem__))
        for each in (records, parts):
            each[left : left + 2] = [each[left] + each[left + 1]]
    return np.repeat(np.arange(len(parts)), parts)


def _enough(count: Ints) -> float:
    return max(SMALLEST_SHOWN, _LEAST * float(count.sum()))


def _span(of: Universe, positions: Ints) -> str:
    """Name neighbouring values of an ordinal column."""
    absent = positions[-1] == of.missing
    values = [of.texts[position] for position in (positions[:-1] if absent else positions).tolist()]
    if len(values) == len(of) - (of.missing is not None) > 1:
        return _with_missing(["all values"], absent)
    return _with_missing([" to ".join(dict.fromkeys((values[0], values[-1])))] if values else [], absent)


def _with_missing(words: list[str], absent: bool) -> str:
    return " or missing".join([*words, ""]) if absent and words else words[0] if words else MISSING


def _of_categories(of: Universe, count: Ints, most: int) -> Bins:
    order = np.argsort(-count, kind="stable")
    frequent = int((count >= _enough(count)).sum())
    shown = min(frequent, most if len(of) <= most and frequent == len(of) else most - 1)
    while shown and 0 < count[order[shown:]].sum() < SMALLEST_SHOWN:  # otherwise the rest could be inferred
        shown -= 1
    group = np.full(len(of), shown)
    group[order[:shown]] = np.arange(shown)
    labels = [of.texts[position] for position in order[:shown].tolist()]
    return _named(group, labels + (["others" if shown else "all values"] if shown < len(of) else []))


def _named(group: Ints, labels: list[str]) -> Bins:
    return Bins(tuple(labels), group, np.zeros(0), np.zeros(0, dtype=np.int64))

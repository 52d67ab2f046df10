"""Read released values as sets of original values, from which all loss and utility measures follow.

A released value is read by the first rule that applies:

- ``*`` is everything, including a missing value.
- A missing value is itself; everything, if the original column has no missing value.
- A value is itself; in a number or date column also a value that does not occur (a median). A text that is also the
  label of a group in the hierarchy is the group if the release has none of the other values in it.
- A range in brackets: the numbers, dates or ordinals between its ends.
- A label is the values under that node of the column's hierarchy.
- Any other text is read by the grammar of released values, see `data.released_values`: ``20-29``, ``1960s``,
  ``low to mid``, ``130**`` (if all codes have the same length), ``all but {a, b}``, and ``{a, b}``, the union of its
  members: values, ranges, labels or ``(missing)``. ``{*}`` is everything, in a row that is not suppressed.

The *universe* of a column is all values that it may take: those of the original table and those of
the public domain in its schema. The range of a number or date is from the least to the greatest
original value, or the public bounds. An interval is clipped to the range. If all numbers are whole
(dates count days or ticks), ``[20, 30)`` and ``[20, 29]`` are the same set and so the same interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.coding import Codes, Domain, encode
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.hierarchies.rules import Intervals
from sfumato.data.released_values import (
    MARK,
    MISSING,
    Interval,
    number_of,
    read_brackets,
    read_complement,
    read_range,
    read_set,
    read_span,
)
from sfumato.data.schema import Column, Kind
from sfumato.data.table import Table
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.universe import Universe, as_floats, universe

__all__ = ["Coverage", "Pairing", "coverage", "coverage_of_values", "distinct", "pair", "pair_codes"]

Bools = NDArray[np.bool_]

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, eq=False, repr=False)
class Coverage(Discreet):
    """The original values that each distinct released value of a column stands for.

    They are runs of positions in the universe: those of released value ``i`` are
    ``range(first[j], stop[j])`` for ``start[i] <= j < start[i+1]``, in order.

    Attributes
    ----------
    low, high : the interval of a number or date; NaN for other values
    everything : whether the value is the mark of suppression
    exact : whether the value is a single value, not a generalised one
    level : the level of the value in the hierarchy (without a hierarchy, the mark has level 1), or -1
    """

    universe: Universe
    start: Ints
    first: Ints
    stop: Ints
    low: Floats
    high: Floats
    everything: Bools
    exact: Bools
    level: Ints

    def __len__(self) -> int:
        return len(self.low)

    @cached_property
    def owner(self) -> Ints:
        """The released value of each run."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @cached_property
    def size(self) -> Ints:
        """The number of values of the universe that each released value stands for."""
        return self.total(np.ones(len(self.universe))).astype(np.int64)

    @cached_property
    def outside(self) -> Bools:
        """Whether each released value stands for nothing: neither a value of the universe nor a point on the line."""
        return np.asarray((self.size == 0) & np.isnan(self.low))

    def total(self, weight: NDArray[Any]) -> Floats:
        """Sum a weight per value of the universe over the values that each released value stands for."""
        before = np.concatenate([[0.0], np.cumsum(weight)])
        runs = before[self.stop] - before[self.first]
        return np.bincount(self.owner, weights=runs, minlength=len(self)).astype(np.float64)

    def spread(self, weight: NDArray[Any]) -> Floats:
        """Distribute a weight per released value evenly over the values that it stands for."""
        each = (np.asarray(weight, dtype=np.float64) / np.maximum(self.size, 1))[self.owner]
        # Exact values are added separately, because the cumulative sums of runs would round them.
        single = self.stop - self.first == 1
        length = len(self.universe) + 1
        alone = np.bincount(self.first[single], weights=each[single], minlength=length)
        begins = np.bincount(self.first[~single], weights=each[~single], minlength=length)
        ends = np.bincount(self.stop[~single], weights=each[~single], minlength=length)
        return np.asarray((alone + np.maximum(np.cumsum(begins - ends), 0))[:-1], dtype=np.float64)

    def covers(self, released: NDArray[Any], position: NDArray[Any]) -> Bools:
        """Return whether each released value (a code) covers the value at a position."""
        span = len(self.universe) + 1
        if not len(self.first):
            return np.zeros(len(released), dtype=bool)
        key = self.owner * span + self.first
        run = np.searchsorted(key, released.astype(np.int64) * span + position, side="right") - 1
        return np.asarray((run >= 0) & (self.owner[run] == released) & (position < self.stop[run]))

    def with_everything(self) -> Coverage:
        """Return the coverage with an additional last value that stands for everything."""
        of = self.universe
        top = of.column.hierarchy.height if of.column.hierarchy is not None else 1
        return replace(
            self,
            start=np.append(self.start, self.start[-1] + 1),
            first=np.append(self.first, 0),
            stop=np.append(self.stop, len(of)),
            low=np.append(self.low, of.low if of.is_line else np.nan),
            high=np.append(self.high, of.high if of.is_line else np.nan),
            everything=np.append(self.everything, True),
            exact=np.append(self.exact, False),
            level=np.append(self.level, top),
        )


def coverage(of: Universe, released: pl.Series, mark: str | None = MARK) -> Coverage:
    """Read the distinct released values of a column by the rules of this module.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> ages = universe(sf.Table(pl.DataFrame({"age": [20, 24, 30, 61]})).encode(["age"]).domains[0])
    >>> read = coverage(ages, pl.Series(["24", "[20, 30)", "{20, 61}", "*"]))
    >>> read.size.tolist()
    [1, 2, 2, 4]
    >>> read.low.tolist(), read.high.tolist()
    ([24.0, 20.0, 20.0, 20.0], [24.0, 29.0, 61.0, 61.0])
    """
    values = released.to_list()
    point = _points(of, released)
    if of.is_line:
        position = of.locate(point)
    else:
        position = np.array([of.position.get(text_of(value), -1) for value in values], dtype=np.int64)
    value = (position >= 0) | ~np.isnan(point)
    exact, everything = value.copy(), np.zeros(len(values), dtype=bool)
    low, high, level = point.copy(), point.copy(), np.where(value, 0, -1)
    top = of.column.hierarchy.height if of.column.hierarchy is not None else 1
    runs = []
    # Without a hierarchy, every value that parses as a number is done.
    for code in np.flatnonzero(~value) if of.is_line and not of.groups else range(len(values)):
        text = text_of(values[code])
        named = of.groups.get(text, (-1, ()))
        if values[code] is None and of.missing is not None:
            members, level[code], exact[code] = np.array([of.missing]), 0, True
        elif values[code] is None or text == mark:
            members, everything[code], exact[code], level[code] = np.arange(len(of)), True, False, top
            if of.is_line:
                low[code], high[code] = of.low, of.high
        elif value[code] and not _is_group(of, position[code], named[1], position):
            continue
        else:
            members, low[code], high[code] = _read(of, text)
            level[code], exact[code] = named[0], False
        position[code] = -1
        if len(members):
            breaks = np.flatnonzero(np.diff(members) > 1)
            first, last = members[np.append(0, breaks + 1)], members[np.append(breaks, len(members) - 1)]
            runs.append(np.column_stack([np.full(len(first), code), first, last]))
    known = np.flatnonzero(position >= 0)
    table = np.concatenate([np.column_stack([known, position[known], position[known]]), *runs]).astype(np.int64)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    start = np.searchsorted(table[:, 0], np.arange(len(values) + 1)).astype(np.int64)
    return Coverage(of, start, table[:, 1], table[:, 2] + 1, low, high, everything, exact, level.astype(np.int64))


def coverage_of_values(of: Universe, released: pl.Series) -> Coverage:
    """Read the distinct values of a column whose values are not generalised, such as that of a synthetic table.

    Every value stands for itself: ``20-29`` is a text, and a missing value is missing. A value that the universe lacks
    stands for nothing; a number that it lacks is still a point on the line.

    Examples
    --------
    >>> import sfumato as sf
    >>> cities = universe(sf.Table(pl.DataFrame({"city": ["Bonn", "Rome"]})).encode(["city"]).domains[0])
    >>> coverage_of_values(cities, pl.Series(["Rome", "*", None])).size.tolist()
    [1, 0, 0]
    """
    point = _points(of, released)
    if of.is_line:
        position = of.locate(point)
    else:
        position = np.array([of.position.get(text_of(value), -1) for value in released.to_list()], dtype=np.int64)
    absent = released.is_null().to_numpy()
    position = np.where(absent, -1 if of.missing is None else of.missing, position)
    known = position >= 0
    start = np.concatenate([[0], np.cumsum(known)])
    no, level = np.zeros(len(released), dtype=bool), np.zeros(len(released), dtype=np.int64)
    return Coverage(of, start, position[known], position[known] + 1, point, point, no, ~no, level)


@dataclass(frozen=True, eq=False, repr=False)
class Pairing(Discreet):
    """The paired columns of an original and a released table, as codes.

    Attributes
    ----------
    original : the position in the universe of every value of the original rows
    released : the released rows as codes
    domains : the domains of these codes
    meaning : the released rows as codes of the coverages; see `align`
    coverages : the values that the codes of `meaning` stand for
    records : the number of rows that each row represents, if not one
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows",)

    original: NDArray[np.int32]
    released: NDArray[np.int32]
    domains: tuple[Domain, ...]
    meaning: NDArray[np.int32]
    coverages: tuple[Coverage, ...]
    records: Ints | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the original."""
        return len(self.original) if self.records is None else int(self.records.sum())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(domain.name for domain in self.domains)

    @cached_property
    def classes(self) -> Tuples:
        """The distinct released rows and their counts."""
        codes, count = distinct(self.released, [len(domain) for domain in self.domains], self.records)
        return Tuples(codes, count, self.domains)

    @cached_property
    def people(self) -> tuple[NDArray[np.int32], Ints]:
        """The distinct original rows, as positions in the universes, and their counts."""
        return distinct(self.original, [len(read.universe) for read in self.coverages], self.records)

    @cached_property
    def regions(self) -> tuple[NDArray[np.int32], Ints]:
        """The distinct meanings of the released rows and their counts."""
        return distinct(self.meaning, [len(read) for read in self.coverages], self.records)

    def align(self) -> Pairing:
        """Check that row i of the release is row i of the original, as far as possible.

        A generalised value must cover the original value of its row; a single value need not,
        because it may be a representative or noise. A value that became missing is read as the mark.
        """
        if len(self.original) != len(self.released):
            raise InputError(
                f"the original table has {len(self.original)} rows and the release {len(self.released)}",
                hint="keep suppressed rows, with '*' in every quasi-identifier",
            )
        coverages, meaning = [], self.released.copy(order="F")
        for position, (read, domain) in enumerate(zip(self.coverages, self.domains, strict=True)):
            ours, theirs = self.original[:, position], meaning[:, position]
            if domain.missing is not None and read.universe.missing is not None:
                theirs[(theirs == domain.missing) & (ours != read.universe.missing)] = len(domain)
            read = read.with_everything()
            wrong = ~(read.exact | read.everything)[theirs]
            wrong[wrong] = ~read.covers(theirs[wrong], ours[wrong])
            if wrong.any():
                raise InputError(
                    f"the released value of column '{domain.name}' does not cover the original one in "
                    f"{int(wrong.sum())} of {len(wrong)} rows",
                    hint="the rows of both tables must be in the same order, and releases are shuffled: compare "
                    "release.aligned, or anonymize with keep_order / --keep-order",
                )
            coverages.append(read)
        return replace(self, meaning=meaning, coverages=tuple(coverages))


def pair(
    original: Any,
    released: Any,
    names: Sequence[str] = (),
    mark: str | None = MARK,
    *,
    generalised: bool = True,
) -> Pairing:
    """Encode the named columns of both tables, and read the released values.

    Parameters
    ----------
    original, released : Table, frame or path
    names : sequence of str
        The quasi-identifiers of the original's schema by default.
    mark : str or None
        The mark of suppression.
    generalised : bool
        Whether released values may stand for several original ones; see `coverage` and `coverage_of_values`.

    Examples
    --------
    >>> import polars as pl
    >>> original = pl.DataFrame({"sex": ["f", "m", "f"], "age": [30, 40, 50]})
    >>> released = pl.DataFrame({"sex": ["f", "m", "*"], "age": ["[30, 40]", "[30, 40]", "*"]})
    >>> both = pair(original, released, ["sex", "age"]).align()
    >>> [read.size[both.meaning[:, i]].tolist() for i, read in enumerate(both.coverages)]
    [[1, 1, 2], [2, 2, 3]]
    """
    raw, other = Table.of(original), Table.of(released)
    names = tuple(names) or raw.schema.quasi
    if not names:
        raise OptionError("no column is named", hint="name some, or give the original table a schema with roles")
    for name in names:
        if name not in other.schema.names:
            raise ColumnError(f"the release has no column '{name}'", hint=did_you_mean(name, other.schema.names))
    ours = raw.encode(names)
    if not len(ours.values) or not other.rows:
        raise InputError("the original table or the release has no rows")
    return pair_codes(ours, [other.column(name) for name in names], mark, generalised=generalised)


def pair_codes(
    ours: Codes,
    released: Sequence[pl.Series],
    mark: str | None = MARK,
    *,
    group: Ints | None = None,
    records: Ints | None = None,
    generalised: bool = True,
) -> Pairing:
    """Pair encoded original rows with their released values; see `pair`.

    Parameters
    ----------
    ours : Codes
    released : a series per column
    mark : str or None
    group : the position of each row's released values; by default each row has its own
    records : the number of rows that each row represents; one by default
    generalised : whether released values may stand for several original ones

    Examples
    --------
    >>> import sfumato as sf
    >>> ages = sf.Table(pl.DataFrame({"age": [30, 40]})).encode(["age"])
    >>> both = pair_codes(ages, [pl.Series(["[30, 40]"])], group=np.array([0, 0]), records=np.array([5, 2]))
    >>> both.rows, both.classes.count.tolist()
    (7, [7])
    """
    # The original schema gives the meaning of the released values; here they are only distinguished.
    theirs = encode(released, [Column(name=name) for name in ours.names])
    if group is not None:
        theirs = replace(theirs, values=np.asfortranarray(theirs.values[group]))
    universes = [universe(domain) for domain in ours.domains]
    places = np.empty_like(ours.values)
    for position, of in enumerate(universes):
        places[:, position] = of.place[ours.values[:, position]]
    read = [
        coverage(of, domain.values, mark) if generalised else coverage_of_values(of, domain.values)
        for of, domain in zip(universes, theirs.domains, strict=True)
    ]
    return Pairing(places, theirs.values, theirs.domains, theirs.values, tuple(read), records)


def distinct(
    codes: NDArray[np.int32], sizes: Sequence[int], records: Ints | None = None
) -> tuple[NDArray[np.int32], Ints]:
    """Return the distinct rows of a code matrix and their counts; each row counts once, or as often as given.

    Examples
    --------
    >>> rows, count = distinct(np.array([[1, 0], [0, 5], [1, 0]], dtype=np.int32), [2, 6])
    >>> rows.tolist(), count.tolist()
    ([[0, 5], [1, 0]], [1, 2])
    """
    first, of_row = group(codes, sizes)
    return codes[first], np.bincount(of_row, weights=records, minlength=len(first)).astype(np.int64)


def _is_group(of: Universe, itself: int, members: Sequence[int] | Ints, released: Ints) -> bool:
    """Return whether a text that is both a value and the label of a group, such as Other, means the group.

    It does if the original table has other values of the group and the release has none of them.
    """
    if len(members) < 2:
        return False
    others = np.setdiff1d(np.intersect1d(members, of.place), [itself])
    return len(others) > 0 and not np.isin(others, released).any()


def _points(of: Universe, released: pl.Series) -> Floats:
    """Parse each released value of a number or date column as a number; NaN if it is not one."""
    ours, theirs = of.values.values.dtype, released.dtype
    calendar = (pl.Date, pl.Datetime)
    if of.is_line and theirs == pl.String and ours.is_temporal():
        return np.array([_point(of, text or "") for text in released], dtype=np.float64)
    if of.is_line and theirs == pl.Date and _has_times(of):
        return np.full(len(released), np.nan)  # it means the whole day
    if of.is_line and theirs == pl.String:
        numbers = released.str.strip_chars().cast(pl.Float64, strict=False)
    elif of.is_line and (ours == theirs or (isinstance(ours, calendar) and isinstance(theirs, calendar))):
        numbers = as_floats(released.cast(ours).to_physical())
    elif of.is_line and not ours.is_temporal() and not theirs.is_temporal():
        numbers = as_floats(released)
    else:
        return np.full(len(released), np.nan)
    plain = numbers.fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(plain), plain, np.nan)


def _point(of: Universe, text: str) -> float:
    """Parse one number or time; NaN if it is neither. In a column of times, a day is an interval."""
    return np.nan if _has_times(of) and len(text) <= len("2024-05-31") else number_of(text, of.values.values.dtype)


def _has_times(of: Universe) -> bool:
    """Return whether a column has times of day, not only dates."""
    return isinstance(of.values.values.dtype, pl.Datetime) and not of.has_only_days


def _read(of: Universe, text: str) -> tuple[Ints, float, float]:
    """Return the positions that a generalised value covers, and its interval for numbers and dates."""
    dtype, found = of.values.values.dtype, None
    if brackets := read_brackets(text):
        left, a, b, right = brackets
        if of.is_line:
            ends = Interval(number_of(a, dtype), number_of(b, dtype), left == "[", right == "]")
            found = _between_numbers(of, ends)
        elif of.column.kind is Kind.ORDINAL:
            found = _between_ranks(of, *brackets)
    ranged = read_range(text, dtype) if of.is_line else None
    # The label of a rule is a range, whichever of its values occur; that of a tree may be any text.
    if found is None and text in of.groups and not (ranged and isinstance(of.column.hierarchy, Intervals)):
        found = _hull(of, of.groups[text][1])
    if found is None and ranged:
        found = _between_numbers(of, ranged)
    if found is None and text == MISSING and of.missing is not None:
        found = np.array([of.missing]), of.low if of.is_line else np.nan, of.high if of.is_line else np.nan
    if found is None and not of.is_line:
        found = _by_looks(of, text)
    if found is None and (others := read_complement(text)):
        known = np.arange(len(of) - (of.missing is not None))
        found = _hull(of, np.setdiff1d(known, _excluded(of, others)))
    if found is None and (members := read_set(text)) is not None:
        found = _union(of, members)
    if found is None:
        raise ColumnError(
            f"a released value of column '{of.column.name}' stands for no original value",
            hint="it should be a value, an interval [a, b) or 20-29, a set {a, b}, a label of the column's hierarchy "
            "or '*'",
        )
    return found


def _between_numbers(of: Universe, ends: Interval) -> tuple[Ints, float, float] | None:
    low, high = ends.low, ends.high
    if np.isnan(low) or np.isnan(high):
        return None
    known = of.numbers[: len(of) - (of.missing is not None)]
    begin = np.searchsorted(known, low, side="left" if ends.low_closed else "right")
    end = np.searchsorted(known, high, side="right" if ends.high_closed else "left")
    if of.whole:
        low = of.unit * (np.ceil(low / of.unit) if ends.low_closed else np.floor(low / of.unit) + 1)
        high = of.unit * (np.floor(high / of.unit) if ends.high_closed else np.ceil(high / of.unit) - 1)
    low, high = max(low, of.low), min(high, of.high)
    closed = of.whole or (ends.low_closed and ends.high_closed)
    if not (low <= high if closed else low < high or begin < end):  # empty, or outside the range
        return None
    return np.arange(begin, end), float(low), float(high)


def _between_ranks(of: Universe, left: str, a: str, b: str, right: str) -> tuple[Ints, float, float] | None:
    if a not in of.position or b not in of.position:
        return None
    begin, end = of.position[a] + (left != "["), of.position[b] + (right == "]")
    return (np.arange(begin, end), np.nan, np.nan) if begin < end else None


def _by_looks(of: Universe, text: str) -> tuple[Ints, float, float] | None:
    """Read the labels of automatic hierarchies for ordinals, or for texts that are numbers, codes or dates.

    These are ``low to mid`` (None if it is ambiguous), ``130**`` and ``2024-05``.
    """
    texts = of.texts[: len(of) - (of.missing is not None)]
    if " to " in text and (of.column.kind is Kind.ORDINAL or all(map(_PLAIN_NUMBER.fullmatch, texts))):
        order = range(len(texts)) if of.column.kind is Kind.ORDINAL else map(float, texts)
        place = dict(zip(texts, order, strict=True))
        ends = [(place[a], place[b]) for a, b in read_span(text) if a in place and b in place]
        inside = [] if len(ends) != 1 else [ends[0][0] <= place[one] <= ends[0][1] for one in texts]
    elif (known := text.rstrip("*")) != text and {len(text)} == set(map(len, texts)):
        inside = [one.startswith(known) for one in texts]
    elif (ends_of := read_range(text, pl.Date())) is not None and all(map(_DATE.match, texts)):
        inside = [number_of(one[:10], pl.Date()) in ends_of for one in texts]
    else:
        return None
    members = np.flatnonzero(inside)
    return (members, np.nan, np.nan) if len(members) else None


def _hull(of: Universe, members: Ints) -> tuple[Ints, float, float]:
    return members, *_ends(of.numbers[members] if of.is_line else [])


def _ends(numbers: Iterable[float]) -> tuple[float, float]:
    known = [float(number) for number in numbers if not np.isnan(number)]
    return (min(known), max(known)) if known else (np.nan, np.nan)


def _excluded(of: Universe, text: str) -> Ints:
    """Return the positions of the values of a set; one that no row has, such as a rare one of a domain, has none."""
    parts = [np.empty(0, dtype=np.int64)]
    for one in read_set(text) or ():
        try:
            read = _union(of, [one])
        except ColumnError:
            continue
        parts += [] if read is None else [read[0]]
    return np.unique(np.concatenate(parts))


def _union(of: Universe, texts: Iterable[str]) -> tuple[Ints, float, float] | None:
    parts: list[Ints] = []
    ends: list[float] = []
    for raw in texts:
        text = raw if raw in of.position else raw.strip()
        number = _point(of, text) if of.is_line else np.nan
        if text in of.position:
            members, low, high = _hull(of, np.array([of.position[text]]))
        elif text == MISSING and of.missing is not None:  # it may be any value, and costs as much
            members, low, high = np.array([of.missing]), of.low, of.high
        elif text == MARK:
            members, low, high = np.arange(len(of)), of.low, of.high
        elif np.isfinite(number):
            members, low, high = of.locate(np.array([number])), number, number
        else:
            members, low, high = _read(of, text)
        parts.append(members[members >= 0])
        ends += [low, high]
    if not parts:
        return None
    return np.unique(np.concatenate(parts)), *_ends(ends)

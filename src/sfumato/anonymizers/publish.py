"""How a group appears in a release: as what covers its values, or as one value for all.

A published text can be read back by a program (the grammar is in `data.released_values`):
``20-29``, ``1960s`` and ``[0.5, 2.0]`` are ranges of numbers and dates, ``[low, mid]`` one of ordinals, ``{a, "b, c"}``
a set of categories, a label a node of the column's hierarchy, and ``*`` stands for everything. Rows that are ``*`` in
every column read as suppressed: a group that is not writes its first column as a set, which is ``{*}`` if levels are
published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.problem import Problem, exact_floats
from sfumato.anonymizers.rounding import decimal_places, range_texts
from sfumato.data.coding import Codes, Domain
from sfumato.data.released_values import MARK, MISSING, is_long, write_brackets, write_complement, write_set
from sfumato.data.schema import Column, Kind, Schema
from sfumato.engines.engine import Recoding
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Pairing, pair_codes
from sfumato.measures.loss.universe import Universe, as_floats, universe

__all__ = ["Members", "Output", "Published", "alike", "publish", "released_schema", "tell_apart"]


class Output(StrEnum):
    """What is published of the values of a group.

    Examples
    --------
    >>> Output("median")
    <Output.MEDIAN: 'median'>
    """

    INTERVAL = "interval"
    """The range of its numbers, dates and ordinals, the set of its categories. The ends of numbers and dates are
    rounded outward to readable steps (see `anonymizers.rounding`). A set is written with the names of the column's
    hierarchy, if these stand for the same values."""
    TIGHT = "tight"
    """The same with exact ends: the smallest and the largest value of the group."""
    LEVEL = "level"
    """The lowest node of the column's hierarchy that covers its values. Its ends come from the hierarchy, never from
    the group. A column without a hierarchy gets an automatic one, as in the lattice; only the root ``*`` covers a
    missing value among others."""
    MEDIAN = "median"
    """The median of its numbers, dates and ordinals, the most frequent of its categories: maybe a combination
    that no row has."""
    MEAN = "mean"
    """The mean of its numbers, to as many decimal places as the column has; all else as ``median``."""
    MEDOID = "medoid"
    """The values of the record nearest to all of these medians: the combination of a real person."""

    @property
    def is_value(self) -> bool:
        """Whether it is one value for all, not what covers them."""
        return self in (Output.MEDIAN, Output.MEAN, Output.MEDOID)


class Members(NamedTuple):
    """Which records are in which group: so many of a tuple's records are in this group."""

    tuple: Ints
    records: Ints
    group: Ints

    @classmethod
    def of(cls, problem: Problem, groups: Ints) -> Members:
        """Put every tuple as a whole into its group."""
        return cls(np.arange(len(problem)), problem.records, groups)

    @property
    def of_tuple(self) -> Ints:
        """The group that has most of each tuple's records."""
        if len(self.tuple) and (np.diff(self.tuple, prepend=-1) == 1).all():  # none is in several
            return self.group
        order = np.lexsort((self.group, -self.records, self.tuple))
        return self.group[order[np.searchsorted(self.tuple[order], np.arange(int(self.tuple.max()) + 1))]]


class Published(NamedTuple):
    """What becomes of a table: which records are in which group, and what is published of each group."""

    members: Members
    values: list[pl.Series]

    def recoding(self, problem: Problem, without: Sequence[str] = (), *, shuffle: bool = False) -> Recoding:
        """Return the released values of each tuple, if all of its records are in one group."""
        return Recoding(problem.tuples, self.values, self.members.group, without, shuffle=shuffle)

    def paired(self, problem: Problem, columns: Sequence[Column]) -> Pairing:
        """Pair the records with what is published of them; the columns say what the original values are."""
        domains = tuple(replace(domain, column=column) for domain, column in zip(problem.domains, columns, strict=True))
        original = Codes(problem.codes[self.members.tuple], domains)
        return pair_codes(original, self.values, group=self.members.group, records=self.members.records)


def publish(
    problem: Problem, members: Members, output: Output, typical: NDArray[np.bool_] | None = None
) -> list[pl.Series]:
    """Return a series per quasi-identifier, with what is published of each group.

    A medoid is one of the typical members, if it is said which are: at least one in each group.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 30, 41], "sex": ["f", "m", "m"]}))
    >>> problem = Problem.of(reduce(table, ["age", "sex"]), ["age", "sex"], [], [])
    >>> members = Members.of(problem, np.array([0, 0, 1]))
    >>> [series.to_list() for series in publish(problem, members, Output.INTERVAL)]
    [['20-34', '41'], ['{f, m}', 'm']]
    >>> [series.to_list() for series in publish(problem, members, Output.TIGHT)]
    [['20-30', '41'], ['{f, m}', 'm']]
    """
    held = [_held(problem, column, members) for column in range(len(problem.domains))]
    if output.is_value:
        centres = [one.centres(line.ordered) for one, line in zip(held, problem.lines, strict=True)]
        if output is Output.MEDOID:
            centres = list(problem.codes[_nearest(problem, members, centres, typical)].T)
        of_group = [one.domain.values.gather(centre) for one, centre in zip(held, centres, strict=True)]
        if output is Output.MEAN:
            of_group = [one.means(medians) for one, medians in zip(held, of_group, strict=True)]
        return [series.alias(one.domain.name) for one, series in zip(held, of_group, strict=True)]
    published = [_covering(one, line.ordered, output) for one, line in zip(held, problem.lines, strict=True)]
    return _told_from_suppressed(published, held[0], problem.lines[0].ordered, output)


def alike(published: Sequence[pl.Series]) -> Ints:
    """Give each group a number, and the same one to groups that are published alike.

    Examples
    --------
    >>> alike([pl.Series(["20-29", "30-39", "20-29"]), pl.Series([1, 1, 1])]).tolist()
    [0, 1, 0]
    """
    rows = pl.DataFrame([series.alias(str(column)) for column, series in enumerate(published)])
    known = rows.unique(maintain_order=True).with_row_index("number")
    joined = rows.join(known, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")
    return joined["number"].cast(pl.Int64).to_numpy()


def tell_apart(problem: Problem, members: Members, published: list[pl.Series]) -> tuple[list[pl.Series], int]:
    """Give groups whose rounded ranges are the same exact ends, if the class that they make breaks a guarantee.

    Only whole tuples can be distinguished.

    Returns
    -------
    What is published of each group, and how many groups have exact ends.
    """
    if all(guarantee.survives_merging for guarantee in problem.guarantees):
        return published, 0
    tight = publish(problem, members, Output.TIGHT)
    exact = np.zeros(len(published[0]), dtype=bool)
    for _ in range(len(exact)):
        number = alike(published)
        if all(check.held for check in problem.check(number[members.group])):
            break
        exact |= np.bincount(number)[number] > 1
        published = [one.zip_with(pl.Series(~exact), other) for one, other in zip(published, tight, strict=True)]
    return published, int(exact.sum())


def released_schema(schema: Schema, *, tokens: bool = False) -> Schema:
    """Return the schema of a release: quasi-identifiers are what their new values are, identifiers are left out."""
    return schema.released(tokens=tokens)


@dataclass(frozen=True, eq=False)
class _Held:
    """The values that each group holds in one column: those of group i are ``code[start[i]:start[i+1]]``, ascending."""

    domain: Domain
    start: Ints
    code: Ints
    records: Ints

    @cached_property
    def labels(self) -> list[str]:
        """The text of each code."""
        return [self.domain.label(code) for code in range(len(self.domain))]

    @cached_property
    def known(self) -> set[str]:
        """The texts of all values but the missing one."""
        return set(self.labels[: self.domain.missing])

    def centres(self, ordered: bool) -> Ints:
        """Return the lower median of each group, or the first of its most frequent values."""
        return self._medians() if ordered else self._modes()

    def means(self, medians: pl.Series) -> pl.Series:
        """Return the mean of the numbers of each group, missing where the median is; the median of other values.

        Numbers beyond 2**53, of which floats cannot tell neighbours apart, keep their medians too.
        """
        dtype = medians.dtype
        if self.domain.column.kind is not Kind.NUMBER or not (dtype.is_numeric() or isinstance(dtype, pl.Duration)):
            return medians
        numbers = as_floats(self.domain.values.to_physical() if dtype.is_temporal() else self.domain.values).to_numpy()
        if np.nanmax(np.abs(numbers), initial=0.0) > 2**53:
            return medians
        known = ~np.isnan(numbers[self.code])
        weight = np.add.reduceat(np.where(known, self.records, 0), self.start[:-1])
        total = np.add.reduceat(np.where(known, numbers[self.code] * self.records, 0.0), self.start[:-1])
        mean = pl.Series(_rounded(total / np.maximum(weight, 1), numbers, dtype))
        mean = mean.cast(pl.Int64).cast(dtype) if dtype.is_integer() or dtype.is_temporal() else mean.cast(dtype)
        return mean.zip_with(medians.is_not_null(), medians)

    def _medians(self) -> Ints:
        running = np.cumsum(self.records)
        before = running[self.start[:-1]] - self.records[self.start[:-1]]
        total = running[self.start[1:] - 1] - before
        middle: Ints = np.searchsorted(running, before + (total + 1) // 2)
        return self.code[middle]

    def _modes(self) -> Ints:
        most = np.maximum.reduceat(self.records, self.start[:-1])
        candidates = np.flatnonzero(self.records == np.repeat(most, np.diff(self.start)))
        return self.code[candidates[np.searchsorted(candidates, self.start[:-1])]]


def _rounded(mean: Floats, numbers: Floats, dtype: pl.DataType) -> Floats:
    """Round means to the decimal places that the numbers of the column have; not if they have many."""
    if dtype.is_integer() or dtype.is_temporal():
        return np.round(mean)
    places = decimal_places(numbers[~np.isnan(numbers)])
    return mean if places is None else np.round(mean, places)


def _held(problem: Problem, column: int, members: Members) -> _Held:
    domain = problem.domains[column]
    groups, cells = int(members.group.max()) + 1, members.group * len(domain) + problem.codes[members.tuple, column]
    if groups * len(domain) <= 20 * len(cells) + 1_000_000:
        records = np.bincount(cells, weights=members.records)
        cell = np.flatnonzero(records)
        records = records[cell]
    else:
        cell, of_member = np.unique(cells, return_inverse=True)
        records = np.bincount(of_member, weights=members.records)
    start = np.searchsorted(cell // len(domain), np.arange(groups + 1))
    return _Held(domain, start, cell % len(domain), records.astype(np.int64))


def _nearest(problem: Problem, members: Members, centres: Sequence[Ints], typical: NDArray[np.bool_] | None) -> Ints:
    """Return the tuple of each group that is nearest to its centre."""
    away: Floats = np.zeros(len(members.group)) if typical is None else np.where(typical, 0.0, np.inf)
    for column, (line, centre) in enumerate(zip(problem.lines, centres, strict=True)):
        code, middle = problem.codes[members.tuple, column], centre[members.group]
        away += np.abs(line.place[code] - line.place[middle]) if line.ordered else code != middle
    order = np.lexsort((members.tuple, away, members.group))
    first = np.searchsorted(members.group[order], np.arange(int(members.group.max()) + 1))
    return members.tuple[order[first]]


def _covering(held: _Held, ordered: bool, output: Output) -> pl.Series:
    """Write what covers the values of each group."""
    domain, groups = held.domain, len(held.start) - 1
    if len(held.code) == groups:  # every group has one value: nothing is generalised
        return domain.values.gather(held.code).alias(domain.name)
    if output is Output.LEVEL:
        return pl.Series(domain.name, _nodes(held), dtype=pl.String)
    return _texts(held, ordered, np.arange(groups), output).alias(domain.name)


def _told_from_suppressed(published: list[pl.Series], held: _Held, ordered: bool, output: Output) -> list[pl.Series]:
    """Write the first column of a group that is the mark in every column as a set: suppressed rows look like that."""
    marked = np.ones(len(published[0]), dtype=bool)
    for series in published:
        marked &= (series == MARK).fill_null(False).to_numpy() if series.dtype == pl.String else False
    if not marked.any() or marked.all():
        return published
    groups = np.flatnonzero(marked)
    if output is Output.LEVEL:  # the values of the group would say more than its level does
        texts = pl.Series([write_set([MARK], known=held.known)] * len(groups), dtype=pl.String)
    else:
        texts = _texts(held, ordered, groups, output, spell_out=True)
    return [published[0].scatter(groups, texts), *published[1:]]


def _texts(held: _Held, ordered: bool, groups: Ints, output: Output, *, spell_out: bool = False) -> pl.Series:
    """Write the range or the set of the values of some groups; a missing value as the mark, or spelt out."""
    domain = held.domain
    of = universe(domain)
    # A range is read back only if its ends are plain: neither texts with marks nor lengths of time.
    on_line = of.is_line and not isinstance(domain.values.dtype, pl.Duration)
    as_range = on_line or (
        ordered and all(label == label.strip() and not set(label) & set(",[]()") for label in held.known)
    )
    as_range &= not isinstance(domain.values.dtype, pl.Duration)
    first, which = _alike(held, groups, as_range)
    some = groups[first]
    low, high = held.code[held.start[some]], held.code[held.start[some + 1] - 1]
    missing = np.zeros(len(some), dtype=bool) if domain.missing is None else high == domain.missing
    alone = missing & (low == high)
    if as_range:
        before = np.maximum(held.start[some + 1] - 1 - missing, held.start[some])
        high = np.where(alone, low, held.code[before])
    texts: list[str | None] = []
    if on_line:
        known = ~alone
        ranges = iter(range_texts(of, of.place[low[known]], of.place[high[known]], tight=output is Output.TIGHT))
        texts = [next(ranges) if one else None for one in known.tolist()]
    elif as_range:
        texts = [
            None if no else held.labels[one] if one == other else write_brackets(held.labels[one], held.labels[other])
            for no, one, other in zip(alone.tolist(), low.tolist(), high.tolist(), strict=True)
        ]
    else:
        names = _Names(held, of)
        for group, no in zip(some.tolist(), alone.tolist(), strict=True):
            codes = held.code[held.start[group] : held.start[group + 1]]
            texts.append(None if no else names.cover(codes, spell_out=spell_out))
    if as_range or not spell_out:
        for at in np.flatnonzero(missing & ~alone).tolist():  # nothing less than the mark covers a missing value
            texts[at] = write_set([texts[at] or "", MISSING], held.known if not on_line else ()) if spell_out else MARK
    return pl.Series(texts, dtype=pl.String).gather(which)


class _Names:
    """Writes sets of categories: with the names of a hierarchy, and if they are long by what they lack.

    Parameters
    ----------
    held : _Held
    of : the universe that a reader of the release has
    """

    def __init__(self, held: _Held, of: Universe) -> None:
        self.held, self.of = held, of
        levels: dict[int, list[tuple[str, Ints]]] = {}
        for label, (level, members) in of.groups.items():
            if level and len(members) > 1 and label not in (MARK, MISSING) and label not in of.position:
                levels.setdefault(level, []).append((label, members))
        self.levels = [_Level.of(levels[level], len(of)) for level in sorted(levels, reverse=True)]

    def cover(self, codes: Ints, *, spell_out: bool) -> str:
        """Write what stands for exactly these values."""
        places = np.sort(self.of.place[codes])
        names = self._members(places)
        if len(names) == 1:  # a value, or the name of a group
            return names[0]
        plain = write_set(names, self.held.known)
        if not is_long(len(names), len(self.of) - len(places)):
            return plain
        lacking = np.setdiff1d(np.arange(len(self.of)), places)
        if not len(lacking):
            return write_set([MARK], self.held.known) if spell_out else MARK
        if self.of.missing in places:
            return plain
        others = self._members(lacking[lacking != self.of.missing] if len(lacking) > 1 else lacking)
        short = write_complement(others)
        return plain if short in self.held.known or short in self.of.groups else short

    def _members(self, places: Ints) -> list[str]:
        """Name values in their order, those that fill a group of the hierarchy by its name."""
        names: dict[int, str] = {}
        for level in self.levels:
            group, first, number = np.unique(level.group[places], return_index=True, return_counts=True)
            full = (group >= 0) & (number == level.size[group])
            names |= {int(places[at]): level.names[one] for one, at in zip(group[full], first[full], strict=True)}
            places = places[~np.isin(level.group[places], group[full])]
        names |= {place: self.of.texts[place] for place in places.tolist()}
        return [names[place] for place in sorted(names)]


class _Level(NamedTuple):
    """The groups of one level of a hierarchy: that of each value, or -1, and their sizes and names."""

    group: Ints
    size: Ints
    names: list[str]

    @classmethod
    def of(cls, groups: Sequence[tuple[str, Ints]], values: int) -> _Level:
        group = np.full(values, -1)
        for number, (_, members) in enumerate(groups):
            group[members] = number
        return cls(group, np.array([len(members) for _, members in groups]), [label for label, _ in groups])


def _alike(held: _Held, groups: Ints, as_range: bool) -> tuple[Ints, Ints]:
    """Return the first of the groups that are written alike, for each such text, and which of these each group is."""
    domain, start, end = held.domain, held.start[groups], held.start[groups + 1]
    if as_range:
        misses = held.code[end - 1] == domain.missing
        last = held.code[np.maximum(end - 1 - misses, start)]
        key = ((held.code[start] * len(domain) + last) * 2 + misses) * 4 + np.minimum(end - start, 3)
    elif len(domain) <= 63:
        held_by = np.bitwise_or.reduceat(np.int64(1) << held.code.astype(np.int64), held.start[:-1])
        key = held_by[groups]
    else:
        return np.arange(len(groups)), np.arange(len(groups))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


def _nodes(held: _Held) -> list[str | None]:
    """Name the lowest node of the hierarchy that covers each group.

    A node that is called like a value is written as the set of the column's values under it, whether or not the group
    holds them all.
    """
    domain, hierarchy = held.domain, held.domain.column.hierarchy
    assert hierarchy is not None
    values = exact_floats(domain).values.to_list()
    hierarchy.check(values, domain.name)
    number = len(held.start) - 1
    names: list[str | None] = [None] * number
    left = np.arange(number)
    for level in range(hierarchy.height + 1):
        labels = hierarchy.labels(values, level)
        _, node = np.unique(np.array(labels, dtype=str), return_inverse=True)
        of_code = node[held.code]
        low, high = (extreme.reduceat(of_code, held.start[:-1]) for extreme in (np.minimum, np.maximum))
        for group in left[low[left] == high[left]].tolist():
            code = int(held.code[held.start[group]])
            names[group] = None if level == 0 and code == domain.missing else str(labels[code])
            if level and names[group] in held.known:
                under = np.flatnonzero(node == node[code]).tolist()
                names[group] = write_set([held.labels[one] for one in under], held.known)
        left = left[low[left] != high[left]]
    return names

"""How a group appears in a release: as what covers its values, or as one value for all.

A published text can be read back by a program (the grammar is in `measures.generalised`):
``[20, 30]`` is a range of numbers, dates or ordinals, ``{a, "b, c"}`` a set of categories, a label
a node of the column's hierarchy, and ``*`` stands for everything. Rows that are ``*`` in every column
read as suppressed: a group that is not writes its first column as a set, which is ``{*}`` if levels are published.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.problem import Problem, written
from sfumato.data.coding import Codes, Domain
from sfumato.data.paths import MISSING
from sfumato.data.schema import Column, Kind, Schema
from sfumato.engines.engine import Recoding
from sfumato.measures.counts import Floats, Ints
from sfumato.measures.generalised import MARK, Pairing, paired
from sfumato.measures.universe import as_floats

__all__ = ["Members", "Output", "Published", "publish", "released_schema", "set_of"]


class Output(StrEnum):
    """What is published of the values of a group.

    Examples
    --------
    >>> Output("median")
    <Output.MEDIAN: 'median'>
    """

    INTERVAL = "interval"
    """The range of its numbers, dates and ordinals, the set of its categories: the ends are the least and the greatest
    value that somebody of the group has."""
    LEVEL = "level"
    """The lowest node of the column's hierarchy that covers its values. Its ends come from the hierarchy, never from
    the group. A column without a hierarchy gets an automatic one, as in the lattice; only the root ``*`` covers a
    missing value among others."""
    MEDIAN = "median"
    """The median of its numbers, dates and ordinals, the most frequent of its categories: maybe a combination
    that nobody has."""
    MEAN = "mean"
    """The mean of its numbers, to as many decimal places as the column has; all else as ``median``."""
    MEDOID = "medoid"
    """The values of the record nearest to all of these medians: a combination that somebody has."""

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
        order = np.lexsort((self.group, -self.records, self.tuple))
        return self.group[order[np.searchsorted(self.tuple[order], np.arange(int(self.tuple.max()) + 1))]]


class Published(NamedTuple):
    """What becomes of a table: which records are in which group, and what is published of each group."""

    members: Members
    values: list[pl.Series]

    def recoding(self, problem: Problem, without: Sequence[str] = ()) -> Recoding:
        """Return what each tuple becomes, if all of its records are in one group."""
        return Recoding(problem.tuples, self.values, self.members.group, without)

    def paired(self, problem: Problem, columns: Sequence[Column]) -> Pairing:
        """Pair the records with what is published of them; the columns say what the original values are."""
        domains = tuple(replace(domain, column=column) for domain, column in zip(problem.domains, columns, strict=True))
        original = Codes(problem.codes[self.members.tuple], domains)
        return paired(original, self.values, group=self.members.group, records=self.members.records)


def publish(
    problem: Problem, members: Members, output: Output, typical: NDArray[np.bool_] | None = None
) -> list[pl.Series]:
    """Return a series per quasi-identifier, with what is published of each group.

    A medoid is one of the typical members, if it is said which are: at least one in each group.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines.reduce import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 30, 41], "sex": ["f", "m", "m"]}))
    >>> problem = Problem.of(reduce(table, ["age", "sex"]), ["age", "sex"], [], [])
    >>> members = Members.of(problem, np.array([0, 0, 1]))
    >>> [series.to_list() for series in publish(problem, members, Output.INTERVAL)]
    [['[20, 30]', '41'], ['{f, m}', 'm']]
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
    published = [
        _covering(one, line.ordered, by_level=output is Output.LEVEL)
        for one, line in zip(held, problem.lines, strict=True)
    ]
    return _told_from_suppressed(published, held[0], problem.lines[0].ordered, by_level=output is Output.LEVEL)


def released_schema(schema: Schema) -> Schema:
    """Return the schema of a release: quasi-identifiers are what their new values are, identifiers are left out."""
    return schema.released()


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
        """Return the mean of the numbers of each group, missing where the median is; the median of what is no number.

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
    known = numbers[~np.isnan(numbers)]
    places = next((places for places in range(10) if (np.round(known, places) == known).all()), None)
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


def _covering(held: _Held, ordered: bool, *, by_level: bool) -> pl.Series:
    """Write what covers the values of each group."""
    domain, groups = held.domain, len(held.start) - 1
    if len(held.code) == groups:  # every group has one value: nothing is generalised
        return domain.values.gather(held.code).alias(domain.name)
    if by_level:
        return pl.Series(domain.name, _nodes(held), dtype=pl.String)
    return _texts(held, ordered, np.arange(groups)).alias(domain.name)


def _told_from_suppressed(published: list[pl.Series], held: _Held, ordered: bool, *, by_level: bool) -> list[pl.Series]:
    """Write the first column of a group that is the mark in every column as a set: suppressed rows look like that."""
    marked = np.ones(len(published[0]), dtype=bool)
    for series in published:
        marked &= (series == MARK).fill_null(False).to_numpy() if series.dtype == pl.String else False
    if not marked.any() or marked.all():
        return published
    groups = np.flatnonzero(marked)
    if by_level:  # the values of the group would say more than its level does
        texts = pl.Series([set_of([MARK], known=held.known)] * len(groups), dtype=pl.String)
    else:
        texts = _texts(held, ordered, groups, spell_out=True)
    return [published[0].scatter(groups, texts), *published[1:]]


def _texts(held: _Held, ordered: bool, groups: Ints, *, spell_out: bool = False) -> pl.Series:
    """Write the range or the set of the values of some groups; a missing value as the mark, or spelt out."""
    domain, labels, known = held.domain, held.labels, held.known
    # A range is read back only if its bounds are plain: neither texts with marks nor lengths of time.
    as_range = ordered and all(label == label.strip() and not set(label) & set(",[]()") for label in known)
    as_range &= not isinstance(domain.values.dtype, pl.Duration)
    first, which = _alike(held, groups, as_range)
    texts: list[str | None] = []
    for group in groups[first].tolist():
        codes = held.code[held.start[group] : held.start[group + 1]]
        misses = codes[-1] == domain.missing
        if len(codes) == 1:
            texts.append(None if misses else labels[codes[0]])
        elif misses and not spell_out:
            texts.append(MARK)  # nothing less covers a missing value
        elif as_range and not misses:
            texts.append(_range(labels, codes))
        elif as_range and len(codes) > 2:
            texts.append(set_of([_range(labels, codes[:-1]), MISSING], known))
        else:
            texts.append(set_of([labels[code] for code in codes], known))
    return pl.Series(texts, dtype=pl.String).gather(which)


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


def _range(labels: Sequence[str], codes: Ints) -> str:
    return f"[{labels[codes[0]]}, {labels[codes[-1]]}]"


def set_of(members: Sequence[str], known: Container[str]) -> str:
    """Write a set, quoted as in CSV; all of it if else it would read as one of the known values.

    Examples
    --------
    >>> set_of(["Bonn", "Rome, Italy"], known=())
    '{Bonn, "Rome, Italy"}'
    """
    plain = "{" + ", ".join(map(_quoted, members)) + "}"
    return "{" + ", ".join(_quoted(member, always=True) for member in members) + "}" if plain in known else plain


def _quoted(member: str, *, always: bool = False) -> str:
    if always or not member or member != member.strip() or any(mark in member for mark in ',"\r\n'):
        return '"' + member.replace('"', '""') + '"'
    return member


def _nodes(held: _Held) -> list[str | None]:
    """Name the lowest node of the hierarchy that covers each group.

    A node that is called like a value is written as the set of the column's values under it, whether or not the group
    holds them all.
    """
    domain, hierarchy = held.domain, held.domain.column.hierarchy
    assert hierarchy is not None
    values = written(domain).values.to_list()
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
                names[group] = set_of([held.labels[one] for one in under], held.known)
        left = left[low[left] != high[left]]
    return names

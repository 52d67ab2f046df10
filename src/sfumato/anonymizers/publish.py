"""How a group appears in a release: as what covers its values, or as one value for all.

A published text can be read back by a program (the grammar is in `measures.generalised`):
``[20, 30]`` is a range of numbers, dates or ordinals, ``{a, "b, c"}`` a set of categories, a label
a node of the column's hierarchy, and ``*`` stands for everything. Rows that are ``*`` in every column
read as suppressed: a group that is not writes its first column as a set.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from sfumato.anonymizers.problem import Problem, written
from sfumato.data.coding import Domain
from sfumato.data.paths import MISSING
from sfumato.measures.counts import Floats, Ints
from sfumato.measures.generalised import MARK

__all__ = ["Members", "Output", "publish"]


class Output(StrEnum):
    """What is published of the values of a group.

    Examples
    --------
    >>> Output("median")
    <Output.MEDIAN: 'median'>
    """

    INTERVAL = "interval"
    """The range of its numbers, dates and ordinals, the set of its categories."""
    LEVEL = "level"
    """The lowest node of the column's hierarchy that covers its values; where there is none, as ``interval``."""
    MEDIAN = "median"
    """The median of its numbers, dates and ordinals, the most frequent of its categories: maybe a combination
    that nobody has."""
    MEDOID = "medoid"
    """The values of the record nearest to all of these medians: a combination that somebody has."""


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


def publish(problem: Problem, members: Members, output: Output) -> list[pl.Series]:
    """Return a series per quasi-identifier, with what is published of each group.

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
    if output in (Output.MEDIAN, Output.MEDOID):
        centres = [one.centres(line.ordered) for one, line in zip(held, problem.lines, strict=True)]
        if output is Output.MEDOID:
            centres = list(problem.codes[_nearest(problem, members, centres)].T)
        return [
            one.domain.values.gather(centre).alias(one.domain.name) for one, centre in zip(held, centres, strict=True)
        ]
    published = [
        _covering(one, line.ordered, by_level=output is Output.LEVEL)
        for one, line in zip(held, problem.lines, strict=True)
    ]
    return _told_from_suppressed(published, held[0], problem.lines[0].ordered)


@dataclass(frozen=True, eq=False)
class _Held:
    """The values that each group holds in one column: those of group i are ``code[start[i]:start[i+1]]``, ascending."""

    domain: Domain
    start: Ints
    code: Ints
    records: Ints

    def centres(self, ordered: bool) -> Ints:
        """Return the lower median of each group, or the first of its most frequent values."""
        return self._medians() if ordered else self._modes()

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


def _held(problem: Problem, column: int, members: Members) -> _Held:
    domain = problem.domains[column]
    cell, of_member = np.unique(members.group * len(domain) + problem.codes[members.tuple, column], return_inverse=True)
    records = np.bincount(of_member, weights=members.records).astype(np.int64)
    start = np.searchsorted(cell // len(domain), np.arange(int(members.group.max()) + 2))
    return _Held(domain, start, cell % len(domain), records)


def _nearest(problem: Problem, members: Members, centres: Sequence[Ints]) -> Ints:
    """Return the tuple of each group that is nearest to its centre."""
    away: Floats = np.zeros(len(members.group))
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
    if by_level and domain.column.hierarchy is not None:
        return pl.Series(domain.name, _nodes(held), dtype=pl.String)
    return pl.Series(domain.name, _texts(held, ordered, range(groups)), dtype=pl.String)


def _told_from_suppressed(published: list[pl.Series], held: _Held, ordered: bool) -> list[pl.Series]:
    """Write the first column of a group that is the mark in every column as a set: suppressed rows look like that."""
    marked = np.ones(len(published[0]), dtype=bool)
    for series in published:
        marked &= (series == MARK).fill_null(False).to_numpy() if series.dtype == pl.String else False
    if not marked.any() or marked.all():
        return published
    groups = np.flatnonzero(marked)
    texts = pl.Series(_texts(held, ordered, groups.tolist(), spell_out=True), dtype=pl.String)
    return [published[0].scatter(groups, texts), *published[1:]]


def _texts(held: _Held, ordered: bool, groups: Iterable[int], *, spell_out: bool = False) -> list[str | None]:
    """Write the range or the set of the values of some groups; a missing value as the mark, or spelt out."""
    domain = held.domain
    labels = [domain.label(code) for code in range(len(domain))]
    known = set(labels[: domain.missing])
    # A range is read back only if its bounds are plain: neither texts with marks nor lengths of time.
    as_range = ordered and not any(mark in label for label in known for mark in ",[]()")
    as_range &= not isinstance(domain.values.dtype, pl.Duration)
    texts: list[str | None] = []
    for group in groups:
        codes = held.code[held.start[group] : held.start[group + 1]]
        misses = codes[-1] == domain.missing
        if len(codes) == 1:
            texts.append(None if misses else labels[codes[0]])
        elif misses and not spell_out:
            texts.append(MARK)  # nothing less covers a missing value
        elif as_range and not misses:
            texts.append(_range(labels, codes))
        elif as_range and len(codes) > 2:
            texts.append(_set([_range(labels, codes[:-1]), MISSING], known))
        else:
            texts.append(_set([labels[code] for code in codes], known))
    return texts


def _range(labels: Sequence[str], codes: Ints) -> str:
    return f"[{labels[codes[0]]}, {labels[codes[-1]]}]"


def _set(members: Sequence[str], known: Container[str]) -> str:
    """Write a set, quoted as in CSV; all of it if else it would read as one of the known values."""
    plain = "{" + ", ".join(map(_quoted, members)) + "}"
    return "{" + ", ".join(_quoted(member, always=True) for member in members) + "}" if plain in known else plain


def _quoted(member: str, *, always: bool = False) -> str:
    if always or member != member.strip() or any(mark in member for mark in ',"\r\n'):
        return '"' + member.replace('"', '""') + '"'
    return member


def _nodes(held: _Held) -> list[str | None]:
    """Name the lowest node of the hierarchy that covers each group."""
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
        left = left[low[left] != high[left]]
    return names

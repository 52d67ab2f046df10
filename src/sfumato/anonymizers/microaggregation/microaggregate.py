"""Microaggregation: groups of neighbours, each published as its average (MDAV).

J. Domingo-Ferrer, J. Mateo-Sanz, "Practical data-oriented microaggregation for statistical disclosure
control", IEEE TKDE 14(1), 2002; for columns of mixed kinds J. Domingo-Ferrer, V. Torra, "Ordinal,
continuous and heterogeneous k-anonymity through microaggregation", DMKD 11(2), 2005; for guarantees
beyond k by merging J. Soria-Comas, J. Domingo-Ferrer, D. Sanchez, S. Martinez, "t-closeness through
microaggregation: strict privacy with enhanced utility preservation", IEEE TKDE 27(11), 2015.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.base import Partitioner
from sfumato.anonymizers.limits import limits
from sfumato.anonymizers.mondrian.partition import partition
from sfumato.anonymizers.problem import APART, Pieces, Problem
from sfumato.anonymizers.publish import Members, Output, alike, publish
from sfumato.data.validate import whole
from sfumato.errors import one_of
from sfumato.measures.classes import ClassCounts, Floats, Ints, ranges
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import AlphaK, KAnonymity, RecursiveCL

if TYPE_CHECKING:
    from sfumato.anonymizers.microaggregation.kernels import Scale

__all__ = ["Metric", "Microaggregate", "keeping", "microaggregate", "neighbours"]

_FEW = 12_000_000  # comparisons of tuples that take less time than loading the compiled kernels
_BARELY = 1e-12  # the shortfall of a class that is exactly on a strict bound


class Metric(NamedTuple):
    """Weights and further dimensions for the distance of two tuples.

    Attributes
    ----------
    weight : the weight of the squared distance in each column
    beside : a row per tuple with its place in further dimensions, whose squared distances are added
    """

    weight: Floats
    beside: Floats


@dataclass(eq=False, repr=False)
class Microaggregate(Partitioner):
    """Anonymize by groups of neighbours, each published as its average; see `microaggregate`.

    Every value keeps its type, and sums and means of numbers stay close to the true ones.

    Parameters
    ----------
    guarantees, qi, sensitive, output, new_rows
        See `Partitioner`; the mean is published by default. Groups that would be published alike are merged.
    block : int
        The largest number of distinct tuples to process together, because time grows with their square: a larger table
        is first cut into blocks of about this size, like Mondrian.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> published = sf.Microaggregate("k=2", qi=["age", "sex"]).fit_transform(people)
    >>> published["age"].tolist(), published["sex"].tolist()
    ([22, 22, 22, 50, 50], ['f', 'f', 'f', 'm', 'm'])
    """

    output: Output | str = Output.MEAN
    block: int = 4096

    name = "microaggregate"

    def _members(self, problem: Problem) -> Members:
        output = one_of(Output, self.output, "output")
        return Members.of(problem, neighbours(problem, output, block=self.block))


def neighbours(problem: Problem, output: Output, *, block: int = 4096, metric: Metric | None = None) -> Ints:
    """Microaggregate, and merge groups that would be published alike; see `microaggregate`."""
    groups = microaggregate(problem, block=block, metric=metric)
    while (number := _published_alike(problem, groups, output)).max() + 1 < len(number):
        groups = keeping(problem, number[groups], metric)
    return groups


def microaggregate(problem: Problem, *, block: int = 4096, metric: Metric | None = None) -> Ints:
    """Group near tuples so that every guarantee holds.

    ::

        while at least 3k records are left:
            r = the tuple farthest from the average of the remaining ones
            s = the tuple farthest from r
            make a group of r and its nearest tuples, until it has k records
            make a group of s and its nearest tuples, until it has k records
        if at least 2k records are left: make a group around the tuple farthest from their average
        the rest is a group
        while a group breaks a guarantee:
            merge the one that breaks it most with the group whose average is nearest

    Equal records stay together, so a group may exceed k, and the last ones may be merged with others. The distance is
    Euclidean: numbers, dates and ordinals count in units of the column's standard deviation (a missing value is a whole
    range away), categories 0 or 1, or the share of the levels of their hierarchy on which they differ. The average is
    the mean, for categories the most frequent one. Returns the group of each tuple; if even the whole table as one
    group breaks a guarantee, that is an `InputError`.

    Parameters
    ----------
    problem : Problem
    block : the distinct tuples of a block; see `Microaggregate`
    metric : the weights of columns, 1 by default, and further dimensions

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"x": [0, 1, 5, 8, 9]}))
    >>> problem = Problem.of(reduce(table, ["x"]), ["x"], [], [sf.KAnonymity(2)])
    >>> microaggregate(problem).tolist()
    [0, 0, 1, 1, 1]
    """
    block = whole("the tuples of a block", block)
    problem.require_reachable()
    k = limits(problem.counts, problem.guarantees).k
    groups = _mdav(problem, k, _blocks(problem, max(block, k)), metric)
    groups = keeping(problem, groups, metric)
    problem.require_kept(problem.merge(groups))
    return groups


def _blocks(problem: Problem, size: int) -> list[Ints]:
    """Cut the tuples into blocks of at least this size, like Mondrian, each tuple counting once."""
    everything = np.arange(len(problem))
    if len(problem) < 2 * size:
        return [everything]
    once = Pieces(everything, np.zeros((len(problem), 0), dtype=np.int64), np.ones_like(everything), joint=True)
    block = partition(replace(problem, guarantees=(KAnonymity(size),)), once)
    order = np.argsort(block, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(block[order])) + 1)


def _mdav(problem: Problem, k: int, blocks: Sequence[Ints], metric: Metric | None) -> Ints:
    """Run MDAV on each block; the last group of a block may have fewer than k records."""
    points, scale = _points(problem, metric)
    mdav = _kernels(len(problem) ** 2 / k).mdav
    groups = np.full(len(problem), -1)
    # Blocks share no tuple, so threads never write to the same place.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(blocks))) as pool:
        made = list(pool.map(lambda block: mdav(points, problem.records, block, k, scale, groups), blocks))
    for block, before in zip(blocks, np.cumsum(made) - made, strict=True):
        groups[block] += before
    return groups


def _kernels(pairs: float) -> ModuleType:
    """Return the kernels for so many comparisons of two tuples: compiled, unless so few are made sooner without."""
    from sfumato.anonymizers.microaggregation import kernels, plain

    return kernels if pairs > _FEW else plain


def _points(problem: Problem, metric: Metric | None) -> tuple[Floats, Scale]:
    """Return where the tuples lie: ordered columns in units of their standard deviation, categories by position."""
    from sfumato.anonymizers.microaggregation.kernels import Scale

    columns = len(problem.lines)
    if metric is None:
        metric = Metric(np.ones(columns), np.zeros((len(problem), 0)))
    points = np.hstack([np.empty(problem.codes.shape), metric.beside])
    for column, line in enumerate(problem.lines):
        code = problem.codes[:, column]
        if line.ordered:
            known = line.place[code] != APART
            deviation = _deviation(line.place[code][known], problem.records[known])
            points[:, column] = line.place[code] / (deviation or 1.0)
        else:
            points[:, column] = line.position[code]
    beside = metric.beside.shape[1]
    length = np.array([len(line.position) for line in problem.lines] + [0] * beside, dtype=np.int64)
    nodes = np.array([line.nodes.size for line in problem.lines] + [0] * beside, dtype=np.int64)
    ordered = np.array([line.ordered for line in problem.lines] + [True] * beside)
    scale = Scale(
        height=np.where(ordered, -1, [len(line.nodes) for line in problem.lines] + [0] * beside),
        length=length,
        node_at=np.cumsum(nodes) - nodes,
        node=np.concatenate([line.nodes.ravel() for line in problem.lines]).astype(np.int32),
        held_at=np.concatenate([[0], np.cumsum(np.where(ordered, 0, length))]),
        weight=np.concatenate([metric.weight, np.ones(beside)]),
    )
    return points, scale


def _deviation(place: Floats, records: Ints) -> float:
    if not len(place):
        return 0.0
    mean = np.average(place, weights=records)
    return float(np.sqrt(np.average((place - mean) ** 2, weights=records)))


def keeping(problem: Problem, groups: Ints, metric: Metric | None = None) -> Ints:
    """Merge the group that misses a guarantee most with the nearest one, until none misses any.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> problem = Problem.of(reduce(sf.Table(pl.DataFrame({"x": [0, 1, 8, 9]})), ["x"]), ["x"], [], [sf.KAnonymity(2)])
    >>> keeping(problem, np.array([0, 1, 2, 2])).tolist()
    [0, 0, 1, 1]
    """
    if problem.people is not None:
        return _merged_in_pairs(problem, groups)
    missed = _missed(problem.guarantees, problem.merge(groups))
    if not missed.any():
        return groups
    points, scale = _points(problem, metric)
    kernels = _kernels(len(missed) * int(np.count_nonzero(missed)))
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    centres, held = np.empty((len(members), points.shape[1])), np.zeros(scale.held_at[-1], dtype=np.int64)
    for centre, rows in zip(centres, members, strict=True):
        kernels.centre_of(points, problem.records, rows, held, scale, centre)
    there = np.ones(len(members), dtype=np.bool_)
    while missed.any():
        worst = int(missed.argmax())
        other = kernels.nearest(centres, there, worst, scale)
        members[worst] = np.concatenate([members[worst], members[other]])
        there[other], missed[other] = False, 0.0
        kernels.centre_of(points, problem.records, members[worst], held, scale, centres[worst])
        missed[worst] = _missed(problem.guarantees, _against_the_rest(problem, members[worst]))[0]
    merged = np.empty_like(groups)
    for number, group in enumerate(np.flatnonzero(there).tolist()):
        merged[members[group]] = number
    return merged


def _merged_in_pairs(problem: Problem, groups: Ints) -> Ints:
    """Merge groups of people that miss a guarantee in pairs of neighbours, round by round.

    To count people takes as long as to count all rows, so groups are not merged one by one. In a round every group is
    in one pair at most, and only the merged ones are counted again, where that is enough.
    """
    from scipy.spatial import cKDTree

    length = [max(len(line.position) - 1, 1) for line in problem.lines]
    places = problem.positions / length
    missed = _missed(problem.guarantees, problem.merge(groups)) > 0
    while (small := np.flatnonzero(missed)).size and len(missed) > 1:
        members = np.bincount(groups, problem.records)
        centres = np.column_stack([np.bincount(groups, problem.records * place) / members for place in places.T])
        _, near = cKDTree(centres).query(centres[small], k=2)
        other = np.where(near[:, 0] == small, near[:, 1], near[:, 0])
        into = np.arange(len(missed))
        free = np.ones(len(missed), dtype=bool)
        for mine, theirs in zip(small.tolist(), other.tolist(), strict=True):
            if free[mine] and free[theirs]:
                free[mine] = free[theirs] = False
                into[mine] = theirs
        used, number = np.unique(into, return_inverse=True)
        changed = np.zeros(len(used), dtype=bool)
        changed[number[~free]] = True
        groups, missed = number[groups], missed[used]
        if not problem.only_counts_members:
            missed = _missed(problem.guarantees, problem.merge(groups)) > 0
            continue
        tuples = np.flatnonzero(changed[groups])
        _, own = np.unique(groups[tuples], return_inverse=True)
        missed[changed] = _missed(problem.guarantees, problem.only(tuples).merge(own)) > 0
    return groups


def _against_the_rest(problem: Problem, rows: Ints) -> list[ClassCounts]:
    """Return the counts of a table with two classes: some tuples, and all others; or one, if there are none."""
    mine = int(problem.records[rows].sum())
    size = np.array([mine, problem.counts[0].rows - mine])
    number = 1 + bool(size[1])
    tables = []
    for one in problem.counts:
        _, entry = ranges(one.start[rows], one.start[rows + 1])
        held = np.bincount(one.value[entry], weights=one.count[entry], minlength=len(one.total)).astype(np.int64)
        both = np.stack([held, one.total - held])[:number]
        owner, value = np.nonzero(both)
        start = np.searchsorted(owner, np.arange(number + 1))
        records = size[:number]
        tables.append(replace(one, size=records, records=records, start=start, value=value, count=both[owner, value]))
    return tables


def _missed(guarantees: Sequence[ClassGuarantee], counts: Sequence[ClassCounts]) -> Floats:
    """Return which share of a guarantee each class misses at most; 0 if it keeps them all."""
    missed = np.zeros(len(counts[0]))
    for guarantee in [*guarantees, *(KAnonymity(one.k) for one in guarantees if isinstance(one, AlphaK))]:
        asked = getattr(guarantee, guarantee.bounds[guarantee.key].field)
        for one in counts:
            value = _per_class(guarantee, one, counts)
            broken = np.flatnonzero(_breaks(guarantee, value))
            low, high = (value[broken], asked) if guarantee.larger_is_safer else (asked, value[broken])
            share = 1.0 - low / np.maximum(high, np.finfo(np.float64).tiny)
            missed[broken] = np.maximum(missed[broken], np.maximum(share, _BARELY))
    return missed


def _breaks(guarantee: ClassGuarantee, value: Floats) -> NDArray[np.bool_]:
    """Return whether each number breaks a guarantee: those beyond the last one that it accepts do."""
    ascending = np.unique(value)
    if guarantee.larger_is_safer:
        first = bisect_left(ascending, True, key=guarantee.accepts)
        return value < ascending[first] if first < len(ascending) else np.ones(len(value), dtype=np.bool_)
    last = bisect_left(ascending, True, key=lambda number: not guarantee.accepts(number))
    return value >= ascending[last] if last < len(ascending) else np.zeros(len(value), dtype=np.bool_)


def _per_class(guarantee: ClassGuarantee, one: ClassCounts, counts: Sequence[ClassCounts]) -> Floats:
    """Return the number of each class; of recursive (c,l) without an l, with the l that the class has itself.

    The l of the table is the least of its classes, and the number grows with l: so no class hides behind another.
    """
    if not isinstance(guarantee, RecursiveCL) or guarantee.l is not None:
        return np.asarray(guarantee.per_class(one), dtype=np.float64)
    own = np.min([np.diff(each.start) for each in counts], axis=0)
    value = np.empty(len(own))
    for l in np.unique(own).tolist():
        value[own == l] = replace(guarantee, l=l).per_class(one)[own == l]
    return value


def _published_alike(problem: Problem, groups: Ints, output: Output) -> Ints:
    """Return a number for each group, the same for groups that would be published alike."""
    return alike(publish(problem, Members.of(problem, groups), output))

"""Grow an anonymizer's tree from summed counts: the coordinator sees counts of regions, and never a row.

Mondrian and the guided tree choose a cut from the number of records with each value of each quasi-identifier, jointly
with each sensitive value or label. So the tree of a union follows from sums over its holders, and equals that of the
pooled table. Only the left part of each cut is counted; the other is the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.class_kernels import keeps
from sfumato.anonymizers.guided.plain import Chooser, Cut
from sfumato.anonymizers.limits import Limits, limits
from sfumato.anonymizers.mondrian.counted import cuts_of
from sfumato.anonymizers.mondrian.partition import Space, space_of
from sfumato.anonymizers.problem import Problem, exact_floats, with_hierarchy
from sfumato.data.coding import Domain, encode_column
from sfumato.data.schema import Column
from sfumato.engines.compiling import plain
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, ProtocolError
from sfumato.federation.anonymity.cells import public_values
from sfumato.federation.anonymity.regions import Regions
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.guarantee import ClassGuarantee

__all__ = ["Choose", "Layout", "grow", "guided_cuts", "mondrian_cuts"]

_keeps = plain(keeps)

Side = NDArray[np.bool_]
Choose = Callable[[Ints], tuple[int, Side] | None]
"""Chooses a quasi-identifier, and which positions on its line go to the right, from the counts of a region."""
Count = Callable[[Regions, Sequence[int]], Iterable[Ints]]
"""Sums the counts of each region over the holders: a row per public value, a column per value of other columns."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The values that occur in the union, and where they are among the public ones.

    Counts of a region are a matrix: a row per value of each quasi-identifier, in the order of its line, and a column
    per value of each other column that matters, in the order of its codes; one column if none matters.

    Attributes
    ----------
    problem : the whole union as one class
    others : the other columns that matter; the sensitive ones come first
    guide : the place of the label among them; 0 if there is none
    sizes : the number of public values of each quasi-identifier, with the missing one
    public : of each quasi-identifier, the public position of each position on its line
    rows, columns : where the rows and columns of the matrix are among the public counts
    """

    problem: Problem
    others: tuple[Domain, ...]
    guide: int
    sizes: tuple[int, ...]
    public: tuple[Ints, ...]
    rows: Ints
    columns: Ints

    @classmethod
    def of(
        cls,
        quasi: Sequence[Column],
        sensitive: Sequence[Column],
        label: Column | None,
        counts: Ints,
        guarantees: Sequence[ClassGuarantee],
        *,
        levels: bool = False,
    ) -> Layout:
        """Find the values that occur, from the public counts of the whole union.

        If levels are published, each quasi-identifier without a hierarchy gets an automatic one.
        """
        if not counts.any():
            raise InputError("no holder has a row")
        others = [*sensitive, *([label] if label is not None and label not in sensitive else [])]
        sizes = [len(public_values(column)) + 1 for column in quasi]
        begins = np.cumsum([0, *sizes])
        across = np.cumsum([0, *(len(public_values(column)) + 1 for column in others)])
        wide = slice(0, across[1] if others else 1)
        occurring = [
            _occurring(column, counts[begin:end, wide].sum(axis=1))
            for column, (begin, end) in zip(quasi, pairwise(begins.tolist()), strict=True)
        ]
        beside = [
            _occurring(column, counts[: sizes[0], begin:end].sum(axis=0))
            for column, (begin, end) in zip(others, pairwise(across.tolist()), strict=True)
        ]
        counted = [(domain, records) for domain, _, records in beside[: len(sensitive)]]
        domains = [_with_levels(domain, records) if levels else domain for domain, _, records in occurring]
        problem = Problem.whole(int(occurring[0][2].sum()), domains, counted, guarantees)
        lines = zip(problem.lines, occurring, strict=True)
        public = [of_code[np.argsort(line.position)] for line, (_, of_code, _) in lines]
        return cls(
            problem,
            tuple(domain for domain, _, _ in beside),
            0 if label is None else others.index(label),
            tuple(sizes),
            tuple(public),
            np.concatenate([begin + one for begin, one in zip(begins, public, strict=False)]),
            np.concatenate([begin + of_code for begin, (_, of_code, _) in zip(across, beside, strict=False)] or [[0]]),
        )

    @property
    def lines(self) -> list[slice]:
        """The rows of each quasi-identifier."""
        ends = np.cumsum([0, *(len(one) for one in self.public)]).tolist()
        return [slice(begin, end) for begin, end in pairwise(ends)]

    def arranged(self, counts: Ints) -> Ints:
        """Return the matrix of a region."""
        return self.checked(counts[self.rows][:, self.columns])

    def checked(self, part: Ints) -> Ints:
        """Return a matrix in which every column of the table has the same records; an error if it is not one."""
        every = [part[line].sum(axis=0) for line in self.lines]
        ends = np.cumsum([0, *(len(domain) for domain in self.others)]).tolist()
        sums = {int(every[0][begin:end].sum()) for begin, end in pairwise(ends)}
        if part.min() < 0 or len(sums) > 1 or any((one != every[0]).any() for one in every):
            raise inconsistent()
        return part

    def records(self, part: Ints) -> Ints:
        """Return the number of records of each row of a matrix."""
        wide = len(self.others[0]) if self.others else 1
        found: Ints = part[:, :wide].sum(axis=1)
        return found

    def tuples(self, parts: Sequence[Ints]) -> Tuples:
        """Return tuples that have the counts of these regions: in each, the columns are combined in their order.

        Whatever depends on single columns of a region, jointly with nothing, is that of the rows themselves.
        """
        domains = (*self.problem.domains, *self.others)
        codes, count = [], []
        code_at = [np.argsort(line.position) for line in self.problem.lines]
        ends = np.cumsum([0, *(len(domain) for domain in self.others)]).tolist()
        for part in parts:
            records = self.records(part)
            margins = [records[line] for line in self.lines]
            values = [code[np.flatnonzero(one)] for code, one in zip(code_at, margins, strict=True)]
            beside = [part[self.lines[0], begin:end].sum(axis=0) for begin, end in pairwise(ends)]
            values += [np.flatnonzero(one) for one in beside]
            until = [np.cumsum(one[one > 0]) for one in (*margins, *beside)]
            every = np.unique(np.concatenate(until))
            codes.append(
                np.column_stack([one[np.searchsorted(to, every)] for one, to in zip(values, until, strict=True)])
            )
            count.append(np.diff(every, prepend=0))
        matrix = np.concatenate(codes).astype(np.int32)
        order = np.lexsort(matrix.T[::-1])
        return Tuples(matrix[order], np.concatenate(count)[order], domains)


def grow(count: Count, layout: Layout, root: Ints, choose: Choose) -> tuple[Regions, list[Ints]]:
    """Divide the union until no region can be cut; return the regions and the counts of those left.

    Parameters
    ----------
    count : sums over the holders
    layout, root : the values of the union, and the public counts of all its rows
    choose : `mondrian_cuts` or `guided_cuts`
    """
    regions, found, opened = Regions(), {0: layout.arranged(root)}, [0]
    while opened:
        below: dict[int, int] = {}
        for region in opened:
            chosen = choose(found[region])
            if chosen is not None:
                by, right = chosen
                side = np.zeros(layout.sizes[by], dtype=bool)
                side[layout.public[by][right]] = True
                below[regions.cut(region, by, side)[0]] = region
        opened = [part for left in below for part in (left, left + 1)]
        for left, counts in zip(below, count(regions, list(below)) if below else (), strict=True):
            found[left] = layout.arranged(counts)
            found[left + 1] = layout.checked(found.pop(below[left]) - found[left])
    return regions, [found[region] for region in regions.leaves.tolist()]


def mondrian_cuts(layout: Layout) -> Choose:
    """Choose the cuts of Mondrian; see `sfumato.anonymizers.mondrian.mondrian`."""
    space, asked = space_of(layout.problem), limits(layout.problem.counts, layout.problem.guarantees)
    scratch = np.zeros(asked.values, dtype=np.int64)

    def choose(part: Ints) -> tuple[int, Side] | None:
        records = layout.records(part)
        for cut in cuts_of(space, asked.k, [records[line] for line in layout.lines]):
            line = layout.lines[cut.by]
            right = np.arange(line.stop - line.start) > cut.at
            sides = _sides(part[line], right, asked, layout.records(part[line]))
            if not asked.values or all(_keeps(held, size, asked, scratch) for held, size in sides):
                return cut.by, right
        return None

    return choose


def guided_cuts(layout: Layout, *, entropy: bool = False, refine: bool = True) -> Choose:
    """Choose the cuts of a tree that is guided by the last of the other columns; see `guided`."""
    space, asked = space_of(layout.problem), limits(layout.problem.counts, layout.problem.guarantees)
    chooser = _Guided(layout, space, asked, entropy)
    every = np.arange(len(layout.public))

    def choose(part: Ints) -> tuple[int, Side] | None:
        size = int(layout.records(part[layout.lines[0]]).sum())
        if size < 2 * asked.k:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):  # of cuts that are not allowed
            units = chooser.listed(part, every)
            cut = chooser.best(part, size, units)
        if cut is None and refine:
            cut = chooser.halved(part, size, units)
        if cut is None:
            return None
        line = layout.lines[cut.by]
        right = np.zeros(line.stop - line.start, dtype=bool)
        right[cut.cells[cut.cells_right] - line.start] = True
        return cut.by, right

    return choose


class _Guided(Chooser):
    """The choices of the guided tree, of which a part is a matrix of counts."""

    def __init__(self, layout: Layout, space: Space, asked: Limits, entropy: bool) -> None:
        dimensions = np.column_stack([space.length, space.size, space.ordered, space.at, space.height, space.node_at])
        super().__init__(dimensions.astype(np.int64), space.place, space.node, asked, entropy)
        lengths, self.layout = list(map(len, layout.others)), layout
        begin = sum(lengths[: layout.guide])
        first = 1 if lengths[layout.guide] == 2 and not entropy else 0  # one class of two: see `Guidance.columns`
        self.label = slice(begin + first, begin + lengths[layout.guide])

    def counted(self, part: Ints, alive: Ints) -> tuple[Ints, list[Floats]]:
        """Return the records and the label mass of each value of some dimensions."""
        records = self.layout.records(part)
        cell = np.flatnonzero((records > 0) & np.isin(self.of_cell, alive))
        mass = part[cell, self.label].T
        return cell, [one.astype(np.float64) for one in (records[cell], *mass)]

    def held(self, part: Ints, cut: Cut) -> Iterator[tuple[Ints, int]]:
        """Yield the sensitive values and the records of both sides of a cut."""
        some = part[cut.cells]
        return _sides(some, cut.cells_right, self.limits, self.layout.records(some))


def inconsistent() -> ProtocolError:
    """Return the error for counts that cannot be those of a table."""
    return ProtocolError("the counts of the holders contradict each other", hint="a holder changed its table, or lies")


def _sides(part: Ints, right: Side, asked: Limits, records: Ints) -> Iterator[tuple[Ints, int]]:
    for side in (~right, right):
        yield part[side, : asked.values].sum(axis=0), int(records[side].sum())


def _with_levels(domain: Domain, records: Ints) -> Domain:
    return replace(domain, column=with_hierarchy(exact_floats(domain), records).column)


def _occurring(column: Column, records: Ints) -> tuple[Domain, Ints, Ints]:
    """Return the domain of the values that occur, and of each code the public position and the records."""
    public = public_values(column)
    there = np.flatnonzero(records)
    missing = pl.Series(public.name, [None], dtype=public.dtype)
    code, domain = encode_column(pl.concat([public, missing]).gather(there), column)
    position: Any = np.empty(len(there), dtype=np.int64)
    position[code] = there
    return domain, position, records[position]

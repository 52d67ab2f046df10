"""A map of the lattice: what each combination of levels would cost, so that a person can choose one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato._repr import Discreet
from sfumato.anonymizers.lattice.nodes import Judge, Levels, Nodes
from sfumato.anonymizers.lattice.search import Cost, Objective, costs_of, lattice
from sfumato.errors import InputError
from sfumato.measures.classes import ClassCounts
from sfumato.measures.guarantee import ClassGuarantee

__all__ = ["LatticeMap", "LatticeNode", "map_lattice"]


@dataclass(frozen=True, kw_only=True)
class LatticeNode:
    """One combination of levels.

    Attributes
    ----------
    levels : the level of each column
    classes : the number of equivalence classes
    smallest : the number of rows of the smallest one, before any is suppressed
    suppressed : the number of rows that must be suppressed so that every guarantee holds
    loss : the loss, with a suppressed row as the worst
    holds : whether no more rows are suppressed than allowed, and some are left
    """

    levels: tuple[int, ...]
    classes: int
    smallest: int
    suppressed: int
    loss: float
    holds: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class LatticeMap(Discreet):
    """The measured part of a lattice; made by `Lattice.map`.

    Attributes
    ----------
    columns : the quasi-identifiers
    heights : the highest level of each
    rows : the number of rows of the table
    most_suppressed : the number of rows that may be suppressed
    size : the number of nodes of the whole lattice
    best : the levels with the least loss of all; None if nothing keeps the guarantees
    nodes : the measured nodes, those with the lowest levels first
    """

    columns: tuple[str, ...]
    heights: tuple[int, ...]
    rows: int
    most_suppressed: int
    size: int
    best: tuple[int, ...] | None
    nodes: tuple[LatticeNode, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain values, ready for JSON; a node is a list of its attributes."""
        return {
            "columns": list(self.columns),
            "heights": list(self.heights),
            "rows": self.rows,
            "most_suppressed": self.most_suppressed,
            "size": self.size,
            "best": None if self.best is None else list(self.best),
            "nodes": [
                [list(one.levels), one.classes, one.smallest, one.suppressed, one.loss, one.holds] for one in self.nodes
            ],
        }


def map_lattice(
    counts: Sequence[ClassCounts],
    guarantees: Sequence[ClassGuarantee],
    levels: Sequence[Levels],
    *,
    suppress: float = 0.0,
    loss: Objective | str | Cost = Objective.LEAVES,
    around: Sequence[int] | None = None,
    most_nodes: int = 2000,
    most_visited: int = 10**6,
    progress: Callable[[float], None] | None = None,
) -> LatticeMap:
    """Find the best node, and measure those that are nearest to a node, by default to the best one.

    Parameters
    ----------
    counts, guarantees, levels, suppress, loss
        As for `lattice`.
    around : sequence of int, optional
        The level of each column of the node in the middle.
    most_nodes : int
        The most nodes to measure.
    most_visited : int
        The most nodes to visit for the best one.
    progress : callable, optional
        A callback for the fraction of the work that is done.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.anonymizers.lattice.nodes import levels_of
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> schema = sf.Schema([sf.Column(name="illness", hierarchy=tree)])
    >>> table = sf.Table(pl.DataFrame({"illness": ["flu", "flu", "asthma", "asthma", "ulcer"]}), schema)
    >>> counts = class_counts(reduce(table, ["illness"]), ["illness"], None)
    >>> found = map_lattice([counts], [sf.KAnonymity(2)], [levels_of(one) for one in counts.quasi], suppress=0.2)
    >>> [(one.levels, one.classes, one.suppressed, one.holds) for one in found.nodes]
    [((0,), 3, 1, True), ((1,), 2, 1, True), ((2,), 1, 0, True)]
    """
    share = (lambda done: progress(done / 4)) if progress else None
    best: tuple[int, ...] | None
    try:
        best = lattice(
            counts, guarantees, levels, suppress=suppress, loss=loss, most_nodes=most_visited, progress=share
        ).levels
    except InputError:
        best = None
    rows, heights = counts[0].rows, tuple(one.height for one in levels)
    limit = math.floor(suppress * rows + 1e-9)
    judge = Judge(guarantees, counts, limit=rows)  # so that it says how many rows break the guarantees, however many
    costs = costs_of(loss, levels, [domain.name for domain in counts[0].quasi])
    nodes = Nodes(counts, [one.groups for one in levels], costs, judge.sensitive)
    middle = tuple(around) if around is not None else best or heights
    wanted = sorted(_nearest(middle, heights, most_nodes), key=lambda one: (sum(one), one))
    found = []
    for done, node in enumerate(wanted):
        if progress is not None and done % 32 == 0:
            progress(0.25 + 0.75 * done / len(wanted))
        classes = nodes.classes(bytes(node))
        fails, _ = judge.judge(classes)
        suppressed = np.where(fails, classes.size, 0) if fails is not None else classes.size
        price = classes.size / rows if loss == Objective.DISCERNIBILITY else classes.price
        # A suppressed row costs 1; summing in order gives the same result on every machine.
        cost = np.cumsum(classes.size * price + suppressed * np.maximum(1.0 - price, 0.0))[-1] / rows
        gone = int(suppressed.sum())
        found.append(
            LatticeNode(
                levels=node,
                classes=len(classes.size),
                smallest=int(classes.size.min()),
                suppressed=gone,
                loss=round(float(cost), 12),
                holds=gone <= limit and gone < rows,
            )
        )
    return LatticeMap(
        columns=tuple(domain.name for domain in counts[0].quasi),
        heights=heights,
        rows=rows,
        most_suppressed=limit,
        size=len(nodes),
        best=best,
        nodes=tuple(found),
    )


def _nearest(middle: Sequence[int], heights: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the nodes by their number of steps from the middle.

    Examples
    --------
    >>> list(_nearest((1, 0), (2, 1), 4))
    [(1, 0), (0, 0), (2, 0), (1, 1)]
    """
    known = {tuple(middle): None}
    for node in (ring := list(known)):
        yield node
        for column, height in enumerate(heights):
            for level in (node[column] - 1, node[column] + 1):
                near = (*node[:column], level, *node[column + 1 :])
                if 0 <= level <= height and len(known) < most and near not in known:
                    known[near] = None
                    ring.append(near)

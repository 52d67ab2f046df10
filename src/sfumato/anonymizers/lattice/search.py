"""An exact search for the best full-domain generalisation.

Every column has a hierarchy, and all its values are released on one level of it (full-domain generalisation; Samarati
2001). A *node* is one level per column, and its classes are the rows that are then equal. Classes that break a
guarantee are suppressed, up to a share of the rows; see `nodes.Judge`. The search returns the feasible node with the
least loss, and proves that no other has less.

**Why the search is exact.** A row never costs less on a higher level, and costs most when it is suppressed. The loss of
a node without suppression is therefore a lower bound on its loss and on that of every coarser node. Nodes are visited
best-first by this bound; when it exceeds the least loss found, no remaining node can be better. In addition
(predictive tagging: OLA, El Emam et al. 2009; Flash, Kohlmayer et al. 2012) an infeasible node rules out all finer
ones where that is sound:

- k and distinct l, at any limit: a failing class consists of failing classes only, so a finer node suppresses at least
  the same rows, whatever the other guarantees;
- every guarantee that merging classes cannot worsen, if nothing may be suppressed: all but delta with
  ``absent="ignore"`` and recursive without an l.

Tagged nodes are skipped: a feasible node above a tagged one exceeds the infeasible node that covers it in some column,
so the search continues from there. Lattices of millions of nodes are often solved by checking thousands.

Elsewhere tagging is not sound: a class that fails alpha, entropy l, recursive (c,l), t, beta or delta may consist of
one that fails and many that hold, so a finer node may suppress fewer rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from operator import getitem
from typing import NamedTuple

import numpy as np

from sfumato._repr import Discreet
from sfumato.anonymizers.lattice.nodes import Judge, Levels, Nodes
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, OptionError, SchemaError, one_of
from sfumato.measures.classes import ClassCounts, Floats, Ints
from sfumato.measures.guarantee import ClassGuarantee

__all__ = ["Cost", "Generalisation", "Objective", "at_levels", "costs_of", "lattice"]

_SLACK = 1e-12  # losses closer than this are equal
_NODES_FOR_HINT = 2_000


class Objective(StrEnum):
    """The loss of a row that is released at a node: a number from 0 to 1, and 1 for a suppressed row.

    The loss of a node is the mean over all rows. It never falls when a column is raised to a higher level.

    Examples
    --------
    >>> Objective("precision")
    <Objective.PRECISION: 'precision'>
    """

    LEAVES = "leaves"
    """The mean over the columns of (leaf values in the group - 1) / (leaf values - 1) (Iyengar 2002)."""
    PRECISION = "precision"
    """The mean over the columns of level / height (Sweeney 2002)."""
    DISCERNIBILITY = "discernibility"
    """The size of the row's class divided by the number of rows (Bayardo & Agrawal 2005, divided by n^2)."""


Cost = Callable[[Levels], Floats]


@dataclass(frozen=True, eq=False, repr=False)
class Generalisation(Discreet):
    """The node that a search of the lattice chose.

    Attributes
    ----------
    levels : the level of each column
    of_tuple : the class of each tuple, or -1 if it is suppressed
    suppressed : the number of suppressed rows
    loss : the loss of the node
    bound : a proven lower bound on the loss of every feasible node
    nodes : the number of nodes of the lattice
    checked : the number of nodes whose classes were checked
    pruned : the number of nodes ruled out without that; 0 (not counted) if the search did not finish
    """

    levels: tuple[int, ...]
    of_tuple: Ints
    suppressed: int
    loss: float
    bound: float
    nodes: int
    checked: int
    pruned: int

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no feasible node has less loss."""
        return self.bound >= self.loss


def lattice(
    counts: Sequence[ClassCounts],
    guarantees: Sequence[ClassGuarantee],
    levels: Sequence[Levels],
    *,
    suppress: float = 0.0,
    loss: Objective | str | Cost = Objective.LEAVES,
    most_nodes: int = 10**6,
    progress: Callable[[float], None] | None = None,
) -> Generalisation:
    """Choose one level per column so that the guarantees hold with the least loss.

    See the top of this module for why the result is optimal. Of several nodes with the least loss (to 12 decimal
    places), the one with the fewest suppressed rows is chosen, then the first in lexicographic order of the levels.

    Parameters
    ----------
    counts : sequence of ClassCounts
        Each class is one distinct tuple of quasi-identifiers: one ClassCounts per sensitive
        attribute, all with the same classes, or one without.
    guarantees : sequence of ClassGuarantee
    levels : sequence of Levels
        How each quasi-identifier generalises; see `levels_of`.
    suppress : float
        The largest share of rows that may be suppressed.
    loss : Objective, str or callable
        The loss to minimise. A callable takes the `Levels` of a column and returns the cost of every
        code on every level, from 0 to 1, equal within a group and never falling with the level.
    most_nodes : int
        The most nodes to visit. If there are more, the best node found is improved by lowering one column after
        another while that helps, and `Generalisation.bound` is what was proven.
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
    >>> levels = [levels_of(domain) for domain in counts.quasi]
    >>> lattice([counts], [sf.KAnonymity(2)], levels).levels
    (2,)
    >>> best = lattice([counts], [sf.KAnonymity(2)], levels, suppress=0.2)
    >>> best.levels, best.of_tuple.tolist(), best.loss, best.optimal
    ((0,), [0, 1, -1], 0.2, True)
    """
    _check_input(counts, guarantees, levels, suppress, most_nodes)
    search = _Search(counts, guarantees, levels, suppress, loss, most_nodes, progress)
    search.run()
    if search.best is None:
        raise _nothing_found(search, counts, guarantees, levels)
    return search.result()


def at_levels(
    counts: Sequence[ClassCounts],
    guarantees: Sequence[ClassGuarantee],
    levels: Sequence[Levels],
    node: Sequence[int],
    *,
    suppress: float = 0.0,
    loss: Objective | str | Cost = Objective.LEAVES,
) -> Generalisation:
    """Return the node with these levels; raise an error if it does not keep the guarantees.

    Parameters
    ----------
    counts, guarantees, levels, suppress, loss
        As for `lattice`.
    node : sequence of int
        The level of each column.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.anonymizers.lattice.nodes import levels_of
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> schema = sf.Schema([sf.Column(name="illness", hierarchy=tree)])
    >>> table = sf.Table(pl.DataFrame({"illness": ["flu", "asthma", "ulcer", "ulcer"]}), schema)
    >>> counts = class_counts(reduce(table, ["illness"]), ["illness"], None)
    >>> levels = [levels_of(domain) for domain in counts.quasi]
    >>> at_levels([counts], [sf.KAnonymity(2)], levels, [1]).of_tuple.tolist()
    [0, 0, 1]
    >>> at_levels([counts], [sf.KAnonymity(2)], levels, [0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    sfumato.errors.InputError: at these levels 2 of 4 rows must be suppressed, and 0 may be (choose coarser levels, ...
    """
    _check_input(counts, guarantees, levels, suppress, 1)
    for domain, one, level in zip(counts[0].quasi, levels, node, strict=True):
        whole(f"the level of column '{domain.name}'", level, least=0)
        if level > one.height:
            raise OptionError(f"the level of column '{domain.name}' must be at most {one.height}, got {level}")
    search = _Search(counts, guarantees, levels, suppress, loss, 1, None)
    search.check(bytes(node))
    if search.best is None:
        search.judge.limit = search.rows
        classes = search.nodes.classes(bytes(node))
        fails, _ = search.judge.judge(classes)
        gone = search.rows if fails is None else int(classes.size[fails].sum())
        limit, share = math.floor(suppress * search.rows + 1e-9), math.ceil(gone / search.rows * 10_000) / 10_000
        more = f", or suppress={share:g}" if gone < search.rows else ""
        raise InputError(
            f"at these levels {gone:,} of {search.rows:,} rows must be suppressed, and {limit:,} may be",
            hint=f"choose coarser levels{more}",
        )
    return search.result()


def _check_input(
    counts: Sequence[ClassCounts],
    guarantees: Sequence[ClassGuarantee],
    levels: Sequence[Levels],
    suppress: float,
    most_nodes: int,
) -> None:
    real("the share of rows to suppress", suppress, least=0, most=1)
    whole("the number of nodes to visit", most_nodes)
    if not counts or not counts[0].rows:
        raise InputError("the table has no rows")
    if not guarantees:
        raise OptionError("no guarantee is asked for", hint="for example k=10")
    for guarantee in guarantees:
        guarantee.refuse_unknown([one.attribute for one in counts if one.attribute is not None])
        if guarantee.needs_sensitive:
            guarantee.measure(counts)  # raises an error if the guarantee cannot be measured
    if any((one.size != one.records).any() for one in counts):
        raise OptionError("the lattice needs missing values as values, not as wildcards", hint="missing='value'")
    if not levels or any(one.labels.shape != (len(counts[0]), len(levels)) for one in counts):
        raise OptionError(
            f"the lattice needs the levels of each of {counts[0].labels.shape[1]} quasi-identifiers, got {len(levels)}"
        )
    for position, one in enumerate(levels):
        name = counts[0].quasi[position].name
        if one.height > 255:
            raise SchemaError(f"column '{name}': a hierarchy has at most 255 levels, got {one.height}")
        for below, above in zip(one.groups, one.groups[1:], strict=False):
            if len(np.unique(np.column_stack([below, above]), axis=0)) != len(np.unique(below)):
                raise SchemaError(f"column '{name}': values that agree on one level must agree on every level above")
        if one.groups[-1].any():
            raise SchemaError(f"column '{name}': the last level of a hierarchy must be one group, the root")


class _Found(NamedTuple):
    """A feasible node; the least is the best."""

    rounded: float
    suppressed: int
    node: bytes
    loss: float


class _Search:
    """Best-first search of the lattice, with predictive tagging."""

    def __init__(
        self,
        counts: Sequence[ClassCounts],
        guarantees: Sequence[ClassGuarantee],
        levels: Sequence[Levels],
        suppress: float,
        loss: Objective | str | Cost,
        most_nodes: int,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.rows, columns = counts[0].rows, len(levels)
        self.judge = Judge(guarantees, counts, limit=math.floor(suppress * self.rows + 1e-9))
        self.by_class = loss == Objective.DISCERNIBILITY
        costs = costs_of(loss, levels, [domain.name for domain in counts[0].quasi])
        self.nodes = Nodes(counts, [one.groups for one in levels], costs, self.judge.sensitive)
        # the mean cost over all rows of each level of each column
        self.steps = [
            (cost @ np.bincount(codes, weights=counts[0].size, minlength=cost.shape[1]) / self.rows).tolist()
            for cost, codes in zip(costs, self.nodes.codes, strict=True)
        ]
        self.most_nodes, self.progress = most_nodes, progress
        self.best: _Found | None = None
        self.bases: dict[bytes, float] = {}  # the nodes that were checked: their loss without suppression
        self.hopeless = np.zeros((0, columns), dtype=np.uint8)  # all nodes below one of these are infeasible
        self.hopeful = np.zeros((0, columns), dtype=np.uint8)  # no node above one of these is tagged
        self.bound = 0.0
        self.finished = False

    def run(self) -> None:
        """Visit nodes in the order of their lower bounds until none can be better than the best."""
        bottom = bytes(len(self.steps))
        heap = [(self._base(bottom), bottom)]
        reached = {bottom}
        visited = 0
        while heap:
            self.bound, node = heappop(heap)
            if self.best is not None and self.bound > self.best.loss + _SLACK:
                break
            if visited == self.most_nodes:
                self._descend()
                return
            if self.progress is not None and visited % 256 == 0:
                self.progress(visited / min(self.most_nodes, len(self.nodes)))
            visited += 1
            if node not in self.bases and self._hopeless_above(node) is None:
                if self.judge.can_tag and not self._is_hopeful(node):
                    self._climb(node)
                else:
                    self.check(node)
            # A feasible node above this one is, in some column, also above the infeasible node that covers it.
            cover = self._hopeless_above(node) or node
            below = self.bases.get(node, self.bound)
            for column, level in enumerate(cover):
                if level < self.nodes.top[column]:
                    above = _with_level(node, column, level + 1)
                    if above not in reached:
                        reached.add(above)
                        heappush(heap, (max(below, self._base(above)), above))
        self.finished = True
        if self.progress is not None:
            self.progress(1.0)

    def _base(self, node: bytes) -> float:
        """Return the loss of a node without suppression, or 0 if it depends on the classes."""
        return 0.0 if self.by_class else sum(map(getitem, self.steps, node))

    def check(self, node: bytes) -> bool:
        """Check the classes of a node; return whether every finer node is infeasible."""
        classes = self.nodes.classes(node)
        size = classes.size.astype(np.float64) if self.by_class else None
        base = self._base(node) if size is None else float(size @ size) / self.rows**2
        self.bases[node] = base
        fails, hopeless = self.judge.judge(classes)
        if fails is not None and (self.best is None or base <= self.best.loss + _SLACK):
            price = classes.price if size is None else size / self.rows
            suppressed = np.where(fails, classes.size, 0)
            # A suppressed row costs 1; summing in order gives the same result on every machine.
            more = float(np.cumsum(suppressed * np.maximum(1.0 - price, 0.0))[-1])
            loss = base + more / self.rows
            found = _Found(round(loss, 12), int(suppressed.sum()), node, loss)
            self.best = found if self.best is None else min(self.best, found)
        return hopeless

    def _climb(self, node: bytes) -> None:
        """Find the highest infeasible node on a cheap path upward by bisection, and tag all nodes below it.

        A node high on the path has few classes; if it is infeasible, the larger nodes below it need no check.
        """
        path = [node]
        while path[-1] != self.nodes.top and (self.best is None or self._base(path[-1]) <= self.best.loss):
            here = path[-1]
            rises = [
                (step[level + 1] - step[level], column)
                for column, (step, level) in enumerate(zip(self.steps, here, strict=True))
                if level < self.nodes.top[column]
            ]
            column = min(rises)[1]
            path.append(_with_level(here, column, here[column] + 1))
        low, high = -1, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            here = path[middle]
            if self._hopeless_above(here) or (not self._is_hopeful(here) and self.check(here)):
                low = middle
            else:
                high = middle
        if low >= 0:
            top = np.frombuffer(path[low], dtype=np.uint8)
            self.hopeless = np.vstack([self.hopeless[(self.hopeless > top).any(axis=1)], top])
        if high < len(path):
            bottom = np.frombuffer(path[high], dtype=np.uint8)
            self.hopeful = np.vstack([self.hopeful[(self.hopeful < bottom).any(axis=1)], bottom])

    def _hopeless_above(self, node: bytes) -> bytes | None:
        """Return a known infeasible node that rules out this one, if there is one."""
        found = self.nodes.kernels(len(self.hopeless)).first_above(self.hopeless, np.frombuffer(node, dtype=np.uint8))
        return self.hopeless[found].tobytes() if found >= 0 else None

    def _is_hopeful(self, node: bytes) -> bool:
        any_below = self.nodes.kernels(len(self.hopeful)).any_below
        return bool(any_below(self.hopeful, np.frombuffer(node, dtype=np.uint8)))

    def _descend(self) -> None:
        """Lower one column after another from the best node found, or from the top, while that helps."""
        if self.best is None:
            self.check(self.nodes.top)
        while self.best is not None:
            start = self.best.node
            for column, level in enumerate(start):
                below = _with_level(start, column, level - 1) if level else start
                if below not in self.bases and self._hopeless_above(below) is None:
                    self.check(below)
            if self.best.node == start:
                return

    def result(self) -> Generalisation:
        """Return the best node."""
        assert self.best is not None
        classes, of_tuple = self.nodes.of_tuple(self.best.node)
        fails, _ = self.judge.judge(classes)
        assert fails is not None
        kept = np.where(fails, -1, np.cumsum(~fails) - 1)
        loss, checked = self.best.loss, len(self.bases)
        return Generalisation(
            levels=tuple(self.best.node),
            of_tuple=kept[of_tuple],
            suppressed=self.best.suppressed,
            loss=loss,
            bound=loss if self.finished or self.bound >= loss else self.bound,
            nodes=len(self.nodes),
            checked=checked,
            pruned=len(self.nodes) - checked if self.finished else 0,
        )


def _with_level(node: bytes, column: int, level: int) -> bytes:
    return node[:column] + bytes((level,)) + node[column + 1 :]


def costs_of(loss: Objective | str | Cost, levels: Sequence[Levels], names: Sequence[str]) -> list[Floats]:
    """Return the cost of every code of each column on every level, as a share of the loss of a row.

    Examples
    --------
    >>> levels = Levels(np.array([[0, 1], [0, 0]]), np.array([[1, 1], [2, 2]]))
    >>> [one.tolist() for one in costs_of("leaves", [levels, levels], ["a", "b"])]
    [[[0.0, 0.0], [0.5, 0.5]], [[0.0, 0.0], [0.5, 0.5]]]
    """
    return [_cost(loss, one, name) / len(levels) for one, name in zip(levels, names, strict=True)]


def _cost(loss: Objective | str | Cost, levels: Levels, name: str) -> Floats:
    """Return the cost of every code of a column on every level; raise an error if it is not monotone."""
    if callable(loss):
        cost = np.asarray(loss(levels), dtype=np.float64)
    elif one_of(Objective, loss, "loss") is Objective.LEAVES:
        cost = (levels.leaves - 1) / max(int(levels.leaves.max()) - 1, 1)
    else:
        level = np.arange(levels.height + 1) / max(levels.height, 1)
        cost = np.repeat(level[:, None], levels.groups.shape[1], axis=1)
    fits = cost.shape == levels.groups.shape and bool(((cost >= 0) & (cost <= 1)).all())
    if not fits or (np.diff(cost, axis=0) < 0).any() or any(map(_varies, levels.groups, cost)):
        raise OptionError(
            f"the loss must give every code of column '{name}' a cost from 0 to 1 on every level, "
            "equal within a group and never falling with the level"
        )
    return cost


def _varies(group: Ints, cost: Floats) -> bool:
    of_group = np.zeros(int(group.max()) + 1)
    of_group[group] = cost
    return bool((of_group[group] != cost).any())


def _nothing_found(
    search: _Search, counts: Sequence[ClassCounts], guarantees: Sequence[ClassGuarantee], levels: Sequence[Levels]
) -> InputError:
    """Return the error if no node is feasible: what fails with all rows in one class, and the suppression needed."""
    top, _ = search.nodes.of_tuple(search.nodes.top)
    tables = [search.judge.counts_of(top, i, np.arange(1)) for i in range(len(top.entries))]
    failed = []
    for guarantee in guarantees:
        held = [float(guarantee.per_class(one)[0]) for one in tables] or [search.rows]
        value = min(held) if guarantee.larger_is_safer else max(held)
        if not guarantee.accepts(value):
            less = ", and it must be less" if guarantee.strict else ""
            failed.append(f"{guarantee} ({guarantee.key} is {value:.6g}{less})")
        elif getattr(guarantee, "k", 1) > search.rows:
            failed.append(f"{guarantee} (there are {search.rows:,} rows)")
    hint = "ask for less" if search.finished else "ask for less, or visit more nodes"
    if search.rows >= search.judge.k and all(np.diff(start)[0] >= search.judge.l for start, _, _ in top.entries):
        # If a generalised row costs nothing, the loss is the suppressed share.
        least = _Search(counts, guarantees, levels, 1.0, lambda one: np.zeros(one.groups.shape), _NODES_FOR_HINT, None)
        least.run()
        if least.best is not None:
            share = math.ceil(least.best.suppressed / search.rows * 10_000) / 10_000
            hint = f"suppress={share:g} would do{', less would not' if least.finished else ''}"
    tried = "" if search.finished else "that was tried "
    return InputError(
        f"no level of the hierarchies {tried}keeps {' and '.join(failed)} even with all rows in one class", hint=hint
    )

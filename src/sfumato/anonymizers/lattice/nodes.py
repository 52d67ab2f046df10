"""The nodes of the lattice: how columns generalise, the classes of a node, and which of them must be suppressed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.anonymizers.lattice import kernels, plain
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.tree import Tree
from sfumato.measures.classes import ClassCounts, Floats, Ints
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import (
    Absent,
    AlphaK,
    BetaLikeness,
    DeltaDisclosure,
    EntropyL,
    KAnonymity,
    LDiversity,
    RecursiveCL,
    TCloseness,
)

__all__ = ["Judge", "Levels", "NodeClasses", "Nodes", "levels_of"]

_LARGEST_KEY = 2**63
_WORTH_KEEPING = 0.8  # classes of a coarser node, as a share of those it was made from
_CALL, _SORT = 500, 4  # the costs of a call, and of sorting a class, in rows read
_FEW, _FEW_TUPLES = 30_000_000, 12_000  # rows read, and tuples, up to which no compiled kernels are loaded
_MOST_KEPT = 2**23  # classes and entries kept as starting points for other nodes: about 250 MB


@dataclass(frozen=True, eq=False, repr=False)
class Levels(Discreet):
    """How the codes of one column generalise, level by level.

    Attributes
    ----------
    groups : the group of each code on each level, a row per level from the values to the root; groups nest
    leaves : the number of values of the column's domain in that group
    """

    groups: Ints
    leaves: Ints

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.groups) - 1


def levels_of(domain: Domain, counts: Sequence[int] | None = None) -> Levels:
    """Generalise the values of a column by its hierarchy, or by an automatic one from the counts of the values.

    The leaves of a tree are its rows, whether they occur or not; those of a hierarchy by rule are the values that
    occur and those of the public domain in the schema.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> table = sf.Table(pl.DataFrame({"x": ["flu", "ulcer"]}), sf.Schema([sf.Column(name="x", hierarchy=tree)]))
    >>> levels = levels_of(table.encode(["x"]).domains[0])
    >>> levels.groups.tolist(), levels.leaves.tolist()
    ([[0, 1], [0, 1], [0, 0]], [[1, 1], [2, 1], [3, 3]])
    """
    column, values = domain.column, domain.values
    hierarchy = column.hierarchy or Hierarchy.automatic(column, values, counts)
    hierarchy.check(values, column.name)
    paths = hierarchy.paths(values)
    listed = hierarchy.rows if isinstance(hierarchy, Tree) else hierarchy.paths(column.domain or ())
    leaf = dict.fromkeys([*paths, *listed])
    groups = np.empty((hierarchy.height + 1, len(paths)), dtype=np.int64)
    leaves = np.empty_like(groups)
    for level in range(hierarchy.height + 1):
        number: dict[str, int] = {}
        of_leaf = [number.setdefault(path[level], len(number)) for path in leaf]
        groups[level] = [number[path[level]] for path in paths]
        leaves[level] = np.bincount(of_leaf, minlength=1)[groups[level]]
    return Levels(groups, leaves)


class NodeClasses(NamedTuple):
    """The classes of a node.

    Attributes
    ----------
    first : a tuple of each class
    key : distinguishes the classes; see `kernels.merge_classes`
    size : the rows of each class
    price : the cost of one of its rows
    entries : the sparse counts of each sensitive attribute: start, value and count, as in `ClassCounts`
    """

    first: NDArray[np.int32]
    key: NDArray[np.uint64]
    size: Ints
    price: Floats
    entries: tuple[tuple[Ints, Ints, Ints], ...]

    @property
    def work(self) -> int:
        """The number of entries to process for a coarser node."""
        return len(self.size) + sum(len(value) for _, value, _ in self.entries)


class Nodes:
    """The classes of any node, made by roll-up from the smallest finer node that is cached.

    A node is a byte per column: its level.

    Parameters
    ----------
    counts : the tuples, one ClassCounts per sensitive attribute
    groups : for each column the group of each code on each level
    costs : the cost of the code on that level
    sensitive : whether the sensitive attributes matter
    """

    def __init__(
        self, counts: Sequence[ClassCounts], groups: Sequence[Ints], costs: Sequence[Floats], sensitive: bool
    ) -> None:
        self.top = bytes(len(column) - 1 for column in groups)
        self.codes = np.ascontiguousarray(counts[0].labels.T, dtype=np.int32)
        self.values = [len(one.total) for one in counts] if sensitive else []
        self._lay_out(groups, costs)
        key, price = np.zeros(len(counts[0]), dtype=np.uint64), np.zeros(len(counts[0]))
        for column, code in enumerate(self.codes):
            key += self._word[self._place[column, 0] + code]
            price += costs[column][0][code]
        entries = tuple((one.start, one.value, one.count) for one in counts) if sensitive else ()
        given = NodeClasses(np.arange(len(key), dtype=np.int32), key, counts[0].size, price, entries)
        # The buffers are reused: allocating memory would take longer than the work.
        self._slots = np.empty(1 << (4 * len(key)).bit_length(), dtype=np.int32)
        self._moved = np.empty_like(key)
        self._room: tuple[Any, ...] = tuple(
            np.empty_like(part) for part in (given.first, key, given.size, price, given.first)
        )
        self._kept = [given]
        self._kept_nodes = np.zeros((64, len(groups)), dtype=np.uint8)
        self._kept_work = np.full(64, given.work, dtype=np.int64)
        self._work = 0
        self._done = 0

    def kernels(self, work: int) -> ModuleType:
        """Return the kernels for some more work, in rows read: plain ones until compiled ones are worth loading."""
        self._done += _CALL + work
        is_small = self._exact and self.codes.shape[1] <= _FEW_TUPLES and self._done <= _FEW
        return plain if is_small else kernels

    def _lay_out(self, groups: Sequence[Ints], costs: Sequence[Floats]) -> None:
        """Concatenate the groups of all levels of all columns, with a word and a cost for each."""
        sizes = [int(column.max()) + 1 for column in groups]
        self._exact = math.prod(sizes) < _LARGEST_KEY
        draw = np.random.default_rng(0)  # if two words might be equal, groups are compared too
        self._place = np.zeros((len(groups), max(self.top) + 1), dtype=np.int64)
        words, end, span = [], 0, 1
        for column, (levels, size) in enumerate(zip(groups, sizes, strict=True)):
            for level, group in enumerate(levels):
                random = draw.integers(0, 2**64, size, dtype=np.uint64)
                words.append(group.astype(np.uint64) * np.uint64(span) if self._exact else random[group])
                self._place[column, level] = end
                end += len(group)
            span = span * size if self._exact else 1
        self._word = np.concatenate(words)
        self._group = np.concatenate([levels.ravel() for levels in groups]).astype(np.int32)
        self._cost = np.concatenate([cost.ravel() for cost in costs])

    def __len__(self) -> int:
        return math.prod(level + 1 for level in self.top)

    def classes(self, node: bytes) -> NodeClasses:
        """Return the classes of a node; they are valid until the next call."""
        levels = np.frombuffer(node, dtype=np.uint8)
        known = len(self._kept)
        nearest = self.kernels(known).nearest_below(self._kept_nodes[:known], self._kept_work[:known], levels)
        made, _ = self._merge(nearest, levels)
        # Only a much smaller node is worth its memory.
        if made.work <= _WORTH_KEEPING * self._kept_work[nearest]:
            self._keep(levels, made)
        return made

    def of_tuple(self, node: bytes) -> tuple[NodeClasses, Ints]:
        """Return the classes of a node, and the class of each tuple."""
        made, of = self._merge(0, np.frombuffer(node, dtype=np.uint8))
        return made, of.astype(np.int64)

    def _merge(self, nearest: int, node: NDArray[np.uint8]) -> tuple[NodeClasses, NDArray[np.int32]]:
        finer = self._kept[nearest]
        shape = (self.codes, self._place, self._word, self._group, self._cost, self._exact)
        room = (self._slots, self._moved, *self._room)
        chosen = self.kernels(_SORT * finer.work)
        classes = chosen.merge_classes(*shape, self._kept_nodes[nearest], node, *finer[:4], *room)
        first, key, size, price, of = self._room
        of = of[: len(finer.size)]
        entries = tuple(
            chosen.merge_entries(of, classes, values, *entry)
            for values, entry in zip(self.values, finer.entries, strict=True)
        )
        return NodeClasses(first[:classes], key[:classes], size[:classes], price[:classes], entries), of

    def _keep(self, node: NDArray[np.uint8], made: NodeClasses) -> None:
        if self._work + made.work > _MOST_KEPT:  # drop the older half, but keep the tuples
            half = [0, *range(1 + len(self._kept) // 2, len(self._kept))]
            self._kept = [self._kept[one] for one in half]
            self._kept_nodes[: len(half)], self._kept_work[: len(half)] = self._kept_nodes[half], self._kept_work[half]
            self._work = int(self._kept_work[1 : len(half)].sum())
        known = len(self._kept)
        if known == len(self._kept_nodes):
            self._kept_nodes = np.concatenate([self._kept_nodes, self._kept_nodes])
            self._kept_work = np.concatenate([self._kept_work, self._kept_work])
        self._kept_nodes[known], self._kept_work[known] = node, made.work
        self._work += made.work
        first, key, size, price, entries = made
        self._kept.append(NodeClasses(first.copy(), key.copy(), size.copy(), price.copy(), entries))


class Judge:
    """Decides which classes of a node must be suppressed, and whether that is too much.

    First go the classes whose own number breaks a guarantee that depends on the class alone (k, alpha, l, entropy l,
    recursive (c,l) with a given l). Then, in rounds, those that break one that depends on the whole table (t, the
    betas, delta, recursive without an l): all of them at once, measured against the rows still left. Suppressed rows
    are not in the reference distribution, so it shifts, and the rest is measured again until all that is left
    holds. The node is feasible if rows are left and the suppressed share is within the limit.
    """

    def __init__(self, guarantees: Sequence[ClassGuarantee], counts: Sequence[ClassCounts], limit: int) -> None:
        # alpha with a k is a guarantee about shares and one about sizes
        apart = [*guarantees, *(KAnonymity(one.k) for one in guarantees if isinstance(one, AlphaK))]
        self.limit, self.counts, self.rows = limit, counts, counts[0].rows
        self._fails = np.empty(len(counts[0]), dtype=bool)
        self.k = max((one.k for one in apart if isinstance(one, KAnonymity)), default=1)
        self.l = max((one.l for one in apart if isinstance(one, LDiversity)), default=1)
        others = [one for one in apart if not isinstance(one, KAnonymity | LDiversity)]
        self.of_class = [one for one in others if _depends_on_the_class_only(one)]
        self.of_table = [one for one in others if not _depends_on_the_class_only(one)]
        self.sensitive = self.l > 1 or bool(others)
        self.can_tag = self.k > 1 or self.l > 1 or (limit == 0 and any(map(_improves_by_merging, others)))

    def judge(self, classes: NodeClasses) -> tuple[NDArray[np.bool_] | None, bool]:
        """Return the mask of suppressed classes, or None and whether every finer node is infeasible too."""
        fails = self._fails[: len(classes.size)]
        np.less(classes.size, self.k, out=fails)
        rows = int(classes.size[fails].sum())
        if rows > self.limit or rows == self.rows:
            return None, True
        if not self.sensitive:
            return fails, False
        for start, _, _ in classes.entries if self.l > 1 else ():
            fails |= np.diff(start) < self.l
        if self._too_many(classes, fails):
            return None, True
        for guarantees, repeat in ((self.of_class, False), (self.of_table, True)):
            while guarantees:
                kept = np.flatnonzero(~fails)
                worse, hopeless = self._failing(
                    guarantees, [self.counts_of(classes, i, kept) for i in range(len(classes.entries))]
                )
                fails[kept[worse]] = True
                if self._too_many(classes, fails):
                    return None, hopeless and self.limit == 0
                if not repeat or not worse.any():
                    break
        return fails, False

    def _too_many(self, classes: NodeClasses, fails: NDArray[np.bool_]) -> bool:
        return bool(classes.size[fails].sum() > self.limit or fails.all())

    def _failing(
        self, guarantees: Sequence[ClassGuarantee], tables: Sequence[ClassCounts]
    ) -> tuple[NDArray[np.bool_], bool]:
        """Return the mask of failing classes, and whether a guarantee fails that merging cannot worsen."""
        fails, hopeless = np.zeros(len(tables[0]), dtype=bool), False
        for guarantee in guarantees:
            if isinstance(guarantee, RecursiveCL) and guarantee.l is None:  # all attributes share one l
                asked: ClassGuarantee = replace(guarantee, l=int(min(np.diff(one.start).min() for one in tables)))
            else:
                asked = guarantee
            for one in tables:
                wrong = ~_accepted(asked, np.asarray(asked.per_class(one), dtype=np.float64))
                hopeless |= bool(wrong.any()) and _improves_by_merging(guarantee)
                fails |= wrong
        return fails, hopeless

    def counts_of(self, classes: NodeClasses, attribute: int, kept: NDArray[np.intp]) -> ClassCounts:
        """Return the counts of the kept classes, over the sensitive values in them."""
        start, value, count = classes.entries[attribute]
        size, given = classes.size, self.counts[attribute]
        if len(kept) < len(size):
            length = np.diff(start)
            alive = np.zeros(len(size), dtype=bool)
            alive[kept] = True
            entries = np.repeat(alive, length)
            start = np.concatenate([[0], np.cumsum(length[kept])])
            size, value, count = size[kept], value[entries], count[entries]
        total = np.bincount(value, weights=count, minlength=len(given.total)).astype(np.int64)
        domain = given.attribute
        if domain is not None and not total.all():
            present = np.flatnonzero(total)
            value = (np.cumsum(total > 0) - 1)[value]
            domain, total = replace(domain, values=domain.values.gather(present)), total[present]
        return ClassCounts(size, size, start, value, count, total, domain, given.labels[:0], given.quasi)


def _depends_on_the_class_only(guarantee: ClassGuarantee) -> bool:
    if isinstance(guarantee, RecursiveCL):
        return guarantee.l is not None
    return isinstance(guarantee, KAnonymity | AlphaK | LDiversity | EntropyL)


def _improves_by_merging(guarantee: ClassGuarantee) -> bool:
    """Return whether merging classes never worsens a guarantee; for an unknown model, assume that it may."""
    if isinstance(guarantee, DeltaDisclosure):
        return guarantee.absent is Absent.INFINITE
    return _depends_on_the_class_only(guarantee) or isinstance(guarantee, TCloseness | BetaLikeness)


def _accepted(guarantee: ClassGuarantee, value: Floats) -> NDArray[np.bool_]:
    """Return whether each number meets the bound: `ClassGuarantee.accepts`, vectorized."""
    if type(guarantee).accepts is not ClassGuarantee.accepts:
        return np.array([guarantee.accepts(one) for one in value.tolist()], dtype=bool)
    bound = guarantee.bounds[guarantee.key]
    asked: float = getattr(guarantee, bound.field)
    if guarantee.strict:
        return (value < asked) | (asked == math.inf)
    right = value >= asked if guarantee.larger_is_safer else value <= asked
    if bound.whole or math.isinf(asked):
        return right
    with np.errstate(invalid="ignore"):
        return right | (
            np.abs(value - asked) <= np.maximum(1e-9 * np.maximum(np.abs(value), abs(asked)), 1e-12)
        ) & np.isfinite(value)

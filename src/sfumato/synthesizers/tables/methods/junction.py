"""Junction trees: the distribution of largest entropy that agrees with noisy counts of few columns at a time.

The columns that are counted together are the edges of a graph. A triangulation of it gives cliques, which form a
tree: what two cliques share lies in all cliques between them (Lauritzen and Spiegelhalter 1988). A table per clique
then stands for the joint distribution of all columns. It is fitted by iterative proportional fitting along a tour of
the tree (Jirousek and Preucil 1995): at each clique, the counts that lie in it scale its table, and the table of the
next clique is brought up to date through what both share. Counts with noise scale less: see `Measured`.

Everything here is post-processing of noisy numbers, which costs no privacy.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.synthesizers.tables.methods.marginals import draw_evenly, spanning_tree

__all__ = ["Junction", "Measured", "draw_along", "tilt", "triangulate"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Clique = tuple[int, ...]

_TINY = 1e-300


@dataclass(eq=False, repr=False)
class Measured:
    """Noisy counts of some columns, and the factors by which a model is scaled to agree with them.

    A count scales its cell by ``exp(step * (count - model) / (model + noise))``: a cell with many records by almost the
    ratio, one that is lost in the noise hardly, and always in the direction of the squared error.
    """

    columns: Clique
    counts: Floats
    deviation: Floats | float
    log_factor: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.log_factor = np.zeros(self.counts.shape)


def triangulate(sizes: Sequence[int], together: Sequence[Clique]) -> list[Clique]:
    """Return the cliques of a triangulated graph in which these columns are connected.

    Columns are eliminated one by one, each time the one with the smallest table (a heuristic of Rose 1972).

    Examples
    --------
    >>> triangulate([2, 2, 2, 2], [(0, 1), (1, 2), (2, 3), (0, 3)])
    [(0, 1, 3), (1, 2, 3)]
    """
    near = [0] * len(sizes)
    for one in together:
        whole = sum(1 << at for at in one)
        for at in one:
            near[at] |= whole & ~(1 << at)
    logs = [math.log2(size) for size in sizes]
    costs = [logs[at] + sum(logs[other] for other in _bits(near[at])) for at in range(len(sizes))]
    heap = [(cost, at) for at, cost in enumerate(costs)]
    heapq.heapify(heap)
    left, found = set(range(len(sizes))), list[int]()
    while heap:
        cost, at = heapq.heappop(heap)
        if at not in left or cost != costs[at]:
            continue
        left.remove(at)
        others = near[at]
        clique = others | 1 << at
        if all(clique & ~one for one in found):
            found.append(clique)
        for other in _bits(others):
            near[other] = (near[other] | others) & ~(1 << other | 1 << at)
            costs[other] = logs[other] + sum(logs[next_] for next_ in _bits(near[other]))
            heapq.heappush(heap, (costs[other], other))
    return [tuple(_bits(one)) for one in found]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Junction:
    """A tree of cliques with a table each, in an order in which parents come first.

    Examples
    --------
    >>> pair = Measured((0, 1), np.array([[30.0, 10.0], [0.0, 20.0]]), 0.0)
    >>> other = Measured((1, 2), np.array([[30.0, 0.0], [15.0, 15.0]]), 0.0)
    >>> junction = Junction([2, 2, 2], [pair, other], total=60.0)
    >>> junction.fit(60, 1.0)
    >>> sorted(junction.cliques), [table.round(3).tolist() for table in junction.tables][0]
    ([(0, 1), (1, 2)], [[30.0, 10.0], [0.0, 20.0]])
    """

    def __init__(self, sizes: Sequence[int], measured: Sequence[Measured], total: float) -> None:
        self._sizes, self._total, self._measured = list(sizes), total, list(measured)
        cliques = triangulate(sizes, [one.columns for one in measured])
        shared = np.array([[len(set(a) & set(b)) if a != b else -1 for b in cliques] for a in cliques])
        edges = spanning_tree(shared.astype(np.float64))
        order = [edges[0][0], *(child for _, child in edges)] if edges else [0]
        self.cliques = [cliques[at] for at in order]
        place = {at: rank for rank, at in enumerate(order)}
        self._parents = {place[child]: place[parent] for parent, child in edges}
        self._between = {child: self._common(child, parent) for child, parent in self._parents.items()}
        self._local: list[list[Measured]] = [[] for _ in order]
        cells = [math.prod(self._sizes[at] for at in one) for one in self.cliques]
        for one in measured:
            within = [rank for rank, clique in enumerate(self.cliques) if set(one.columns) <= set(clique)]
            self._local[min(within, key=cells.__getitem__)].append(one)
        self._tour = self._walk()
        self.tables = [self._start(rank) for rank in range(len(order))]
        self._messages = {child: np.ones(self._shape(columns)) for child, columns in self._between.items()}
        for child in sorted(self._parents, reverse=True):
            self._send(child, self._parents[child], child)

    def _common(self, child: int, parent: int) -> Clique:
        return tuple(at for at in self.cliques[child] if at in self.cliques[parent])

    def _shape(self, columns: Clique) -> tuple[int, ...]:
        return tuple(self._sizes[at] for at in columns)

    def _walk(self) -> list[tuple[int, int, int, bool]]:
        """Return the moves of a tour through all cliques and back: from, to, the child of both, and whether down."""
        children: list[list[int]] = [[] for _ in self.cliques]
        for child, parent in sorted(self._parents.items(), reverse=True):
            children[parent].append(child)
        moves, path = [], [0]
        while path:
            at = path[-1]
            if children[at]:
                child = children[at].pop()
                moves.append((at, child, child, True))
                path.append(child)
            else:
                path.pop()
                if path:
                    moves.append((at, path[-1], at, False))
        return moves

    def _start(self, rank: int) -> Floats:
        """Return the table that follows from the factors that were found earlier."""
        logs = np.zeros(self._shape(self.cliques[rank]))
        for one in self._local[rank]:
            logs += self._spread(one.log_factor, one.columns, rank)
        table: Floats = np.exp(logs - logs.max())
        table *= self._total / table.sum()
        return table

    def _spread(self, array: Floats, columns: Clique, rank: int) -> Floats:
        return array.reshape([self._sizes[at] if at in columns else 1 for at in self.cliques[rank]])

    def _margin(self, rank: int, columns: Clique) -> Floats:
        away = tuple(axis for axis, at in enumerate(self.cliques[rank]) if at not in columns)
        margin: Floats = self.tables[rank].sum(axis=away) if away else self.tables[rank]
        return margin

    def _send(self, source: int, target: int, child: int) -> None:
        """Bring a clique up to date with its neighbour."""
        columns, before = self._between[child], self._messages[child]
        now = self._margin(source, columns)
        ratio = np.where(before > _TINY, now / np.maximum(before, _TINY), 0.0)
        self.tables[target] = self.tables[target] * self._spread(ratio, columns, target)
        self.tables[target] *= self._total / max(float(self.tables[target].sum()), _TINY)
        self._messages[child] = now

    def _scale(self, rank: int, step: float) -> None:
        """Scale the table of a clique towards all counts that lie in it."""
        for one in self._local[rank]:
            model = self._margin(rank, one.columns)
            gap = (one.counts - model) / (model + np.maximum(one.deviation, 1e-6))
            moved = step * np.clip(gap, -1.0, 1.0)
            one.log_factor = one.log_factor + moved
            self.tables[rank] = self.tables[rank] * self._spread(np.exp(moved), one.columns, rank)
        if self._local[rank]:
            self.tables[rank] *= self._total / max(float(self.tables[rank].sum()), _TINY)

    def fit(self, sweeps: int, step: float) -> None:
        """Scale all tables towards the counts, in tours through the tree."""
        for _ in range(sweeps):
            self._scale(0, step)
            for source, target, child, is_down in self._tour:
                self._send(source, target, child)
                if is_down:
                    self._scale(target, step)


def draw_along(
    sizes: Sequence[int], cliques: Sequence[Clique], tables: Sequence[Floats], rows: int, rng: np.random.Generator
) -> list[Ints]:
    """Draw rows: in each clique, the columns that are new, given those that have been drawn.

    Examples
    --------
    >>> tables = [np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])]
    >>> a, b, c = draw_along([2, 2, 2], [(0, 1), (1, 2)], tables, 4, np.random.default_rng(0))
    >>> np.bincount(a).tolist(), (a == b).all().item(), (b != c).all().item()
    ([2, 2], True, True)
    """
    drawn: dict[int, Ints] = {}
    for clique, table in zip(cliques, tables, strict=True):
        known = [axis for axis, at in enumerate(clique) if at in drawn]
        new = [axis for axis, at in enumerate(clique) if at not in drawn]
        if not new:
            continue
        given = np.zeros(rows, dtype=np.int64)
        for axis in known:
            given = given * sizes[clique[axis]] + drawn[clique[axis]]
        shape = [sizes[clique[axis]] for axis in new]
        places = draw_evenly(given, table.transpose(known + new).reshape(-1, math.prod(shape)), rng)
        for axis, values in zip(new, np.unravel_index(places, shape), strict=True):
            drawn[clique[axis]] = values.astype(np.int64)
    return [drawn[at] for at in range(len(sizes))]


def tilt(
    sizes: Sequence[int], cliques: Sequence[Clique], tables: Sequence[Floats], factors: Sequence[tuple[Clique, Floats]]
) -> list[Floats] | None:
    """Return tables from which `draw_along` draws each row in proportion to its chance times some factors.

    A factor is a table of columns in ascending order, like the cliques. None if no clique has all columns of a factor,
    or if the cliques are not a tree with parents first.

    Examples
    --------
    >>> tables = [np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([[3.0, 1.0], [1.0, 0.0]])]
    >>> tilted = tilt([2, 2, 2], [(0, 1), (1, 2)], tables, [((2,), np.array([0.0, 1.0]))])
    >>> [one.tolist() for one in draw_along([2, 2, 2], [(0, 1), (1, 2)], tilted, 3, np.random.default_rng(0))]
    [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    """
    known: set[int] = set()
    found, before = list[Floats](), list[Clique]()
    for clique, table in zip(cliques, tables, strict=True):
        before.append(tuple(at for at in clique if at in known))
        new = tuple(axis for axis, at in enumerate(clique) if at not in known)
        whole = table.sum(axis=new, keepdims=True)
        size = math.prod(table.shape[axis] for axis in new)
        found.append(np.where(whole > 0, table / np.maximum(whole, _TINY), 1 / size))
        known |= {*clique}

    def put(columns: Clique, factor: Floats, last: int) -> bool:
        """Multiply a table by a factor; the table must be among the first."""
        at = next((rank for rank in range(last) if {*columns} <= {*cliques[rank]}), None)
        if at is None:
            return False
        found[at] = found[at] * factor.reshape([sizes[one] if one in columns else 1 for one in cliques[at]])
        return True

    if not all(put(columns, factor, len(cliques)) for columns, factor in factors):
        return None
    for rank in range(len(cliques) - 1, 0, -1):
        new = tuple(axis for axis, at in enumerate(cliques[rank]) if at not in before[rank])
        if not put(before[rank], found[rank].sum(axis=new), rank):
            return None
    return found

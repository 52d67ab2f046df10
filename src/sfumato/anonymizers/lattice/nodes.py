"""The nodes of the lattice: the classes that the tuples of a table form on given levels, by roll-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.measures.classes import ClassCounts, Floats, Ints

__all__ = ["Classes", "Nodes"]

_LARGEST_KEY = 2**63
_WORTH_KEEPING = 0.8  # of the classes that a node was made of
_CALL, _SORT = 500, 4  # what a call, and what the sorting of a class costs, in rows that are read
_FEW = 30_000_000  # rows that are read before compiled kernels are loaded
_MOST_KEPT = 2**23  # classes and entries kept to start other nodes from: about 250 MB


class Classes(NamedTuple):
    """The classes of a node.

    Attributes
    ----------
    first : a tuple of each class
    key : what tells the classes apart; see `kernels.merge_classes`
    size : the rows of each class
    price : what one row of it costs
    entries : the sparse counts of each sensitive attribute: start, value and count, as in `ClassCounts`
    """

    first: NDArray[np.int32]
    key: NDArray[np.uint64]
    size: Ints
    price: Floats
    entries: tuple[tuple[Ints, Ints, Ints], ...]

    @property
    def work(self) -> int:
        """How many numbers must be gone through to make a coarser node of it."""
        return len(self.size) + sum(len(value) for _, value, _ in self.entries)


class Nodes:
    """Makes the classes of any node, each from the smallest finer one at hand.

    A node is a byte per column: its level.

    Parameters
    ----------
    counts : the tuples, one ClassCounts per sensitive attribute
    groups : for each column the group of each code on each level
    costs : what the code costs there
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
        given = Classes(np.arange(len(key), dtype=np.int32), key, counts[0].size, price, entries)
        # Classes are made in the same room again and again: fresh memory costs more than the work in it.
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
        """Return the kernels for some more work: plain ones until so much is done that it pays to load compiled ones.

        Work is counted in rows that an array operation reads.
        """
        from sfumato.anonymizers.lattice import kernels, plain

        self._done += _CALL + work
        return plain if self._exact and self._done <= _FEW else kernels

    def _lay_out(self, groups: Sequence[Ints], costs: Sequence[Floats]) -> None:
        """Lay the groups of all levels of all columns one after another, with a word and a cost for each."""
        sizes = [int(column.max()) + 1 for column in groups]
        self._exact = math.prod(sizes) < _LARGEST_KEY
        draw = np.random.default_rng(0)  # words need only differ; where they might not, groups are compared
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

    def classes(self, node: bytes) -> Classes:
        """Return the classes of a node; they last until the next ones are made."""
        levels = np.frombuffer(node, dtype=np.uint8)
        known = len(self._kept)
        nearest = self.kernels(known).nearest_below(self._kept_nodes[:known], self._kept_work[:known], levels)
        made, _ = self._merge(nearest, levels)
        # Classes hardly fewer than those they were made of are not worth their memory.
        if made.work <= _WORTH_KEEPING * self._kept_work[nearest]:
            self._keep(levels, made)
        return made

    def of_tuple(self, node: bytes) -> tuple[Classes, Ints]:
        """Return the classes of a node, and the class of each tuple."""
        made, of = self._merge(0, np.frombuffer(node, dtype=np.uint8))
        return made, of.astype(np.int64)

    def _merge(self, nearest: int, node: NDArray[np.uint8]) -> tuple[Classes, NDArray[np.int32]]:
        finer = self._kept[nearest]
        shape = (self.codes, self._place, self._word, self._group, self._cost, self._exact)
        room = (self._slots, self._moved, *self._room)
        kernels = self.kernels(_SORT * finer.work)
        classes = kernels.merge_classes(*shape, self._kept_nodes[nearest], node, *finer[:4], *room)
        first, key, size, price, of = self._room
        of = of[: len(finer.size)]
        entries = tuple(
            kernels.merge_entries(of, classes, values, *entry)
            for values, entry in zip(self.values, finer.entries, strict=True)
        )
        return Classes(first[:classes], key[:classes], size[:classes], price[:classes], entries), of

    def _keep(self, node: NDArray[np.uint8], made: Classes) -> None:
        if self._work + made.work > _MOST_KEPT:  # the older half goes, but not the tuples
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
        self._kept.append(Classes(first.copy(), key.copy(), size.copy(), price.copy(), entries))

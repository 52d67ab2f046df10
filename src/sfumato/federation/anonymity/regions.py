"""Regions of the space of public values: a tree of cuts, each of which divides the values of one column.

A cut says of every public value, present or not, on which side it is, so all holders divide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import ProtocolError
from sfumato.federation.wire import Message
from sfumato.measures.classes import Ints

__all__ = ["Regions"]


@dataclass
class Regions:
    """A binary tree of regions; region 0 is everything, and a part has a larger number than its whole.

    Attributes
    ----------
    by : the column that divides each region, or -1
    left : the part on the left; the part on the right is the next one
    right : of each divided region, which public values go to the right; the last is the missing value

    Examples
    --------
    >>> regions = Regions()
    >>> regions.cut(0, 1, np.array([False, True, True]))
    (1, 2)
    >>> regions.route(np.array([[5, 0], [5, 2]])).tolist()
    [1, 2]
    """

    by: list[int] = field(default_factory=lambda: [-1])
    left: list[int] = field(default_factory=lambda: [-1])
    right: dict[int, NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by)

    @property
    def leaves(self) -> Ints:
        """The regions that are not divided."""
        return np.flatnonzero(np.array(self.by) < 0)

    def cut(self, region: int, by: int, right: NDArray[np.bool_]) -> tuple[int, int]:
        """Divide a region, and return both parts."""
        self.by[region], self.left[region], self.right[region] = by, len(self.by), right
        self.by += [-1, -1]
        self.left += [-1, -1]
        return len(self.by) - 2, len(self.by) - 1

    def route(self, positions: Ints) -> Ints:
        """Return the region of each row of positions among the public values."""
        found = np.zeros(len(positions), dtype=np.int64)
        waiting = [(0, np.arange(len(positions)))]
        while waiting:
            region, rows = waiting.pop()
            if self.by[region] < 0:
                found[rows] = region
            elif len(rows):
                right = self.right[region][positions[rows, self.by[region]]]
                waiting += [(self.left[region], rows[~right]), (self.left[region] + 1, rows[right])]
        return found

    def to_message(self) -> Message:
        """Return the tree as plain values."""
        right = [self.right[region] for region in sorted(self.right)]
        return {
            "by": np.array(self.by, dtype=np.int32),
            "left": np.array(self.left, dtype=np.int32),
            "right": np.packbits(np.concatenate(right)) if right else np.zeros(0, dtype=np.uint8),
        }

    @classmethod
    def from_message(cls, message: Message, sizes: Sequence[int]) -> Self:
        """Read a tree over columns with these numbers of public values, missing ones included."""
        by, left, right = (message[name] for name in ("by", "left", "right"))
        for one, kind in ((by, "i4"), (left, "i4"), (right, "u1")):
            if not isinstance(one, np.ndarray) or one.dtype != np.dtype(f"<{kind}") or one.ndim != 1:
                raise ProtocolError("the regions are not a tree")
        divided = np.flatnonzero(by >= 0)
        sound = len(by) == len(left) > 0 and len(by) == 2 * len(divided) + 1 and int(by.max()) < len(sizes)
        if not sound or (left[divided] <= divided).any() or (left[divided] + 1 >= len(by)).any():
            raise ProtocolError("the regions are not a tree")
        lengths = np.array(sizes)[by[divided]]
        ends = np.cumsum(lengths)
        if len(right) != -(-int(lengths.sum()) // 8):
            raise ProtocolError("the regions are not a tree")
        sides = np.split(np.unpackbits(right)[: int(lengths.sum())].astype(bool), ends[:-1]) if len(divided) else []
        return cls(by.tolist(), left.tolist(), dict(zip(divided.tolist(), sides, strict=True)))

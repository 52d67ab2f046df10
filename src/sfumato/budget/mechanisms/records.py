"""Records in groups, as the statistics process them: all groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Records"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PARTS = 2**31  # fractions of a grid step


@dataclass(frozen=True, eq=False)
class Records:
    """Distinct records with their multiplicity: the group, the number (NaN if missing) and the count of each.

    Examples
    --------
    >>> records = Records.of([30.0, float("nan"), 7.5])
    >>> records.counts(), records.known().counts()
    ([3], [2])
    """

    group: Ints
    value: Floats
    count: Ints
    groups: int
    """The number of groups."""

    @classmethod
    def of(cls, values: Any) -> Records:
        """Return numbers as records of a single group."""
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        zeros = np.zeros(len(numbers), dtype=np.int64)
        return cls(zeros, numbers, zeros + 1, 1)

    def known(self) -> Records:
        """Return the records whose number is not missing."""
        known = ~np.isnan(self.value)
        return Records(self.group[known], self.value[known], self.count[known], self.groups)

    def sums(self, each: Ints) -> list[int]:
        """Return the sum of `each`, a whole number per record, for every group."""
        largest = int(np.abs(each).max(initial=0)) * int(self.count.sum())
        total = np.zeros(self.groups, dtype=np.int64 if largest < 2**62 else object)  # Python integers do not overflow
        np.add.at(total, self.group, each.astype(total.dtype) * self.count.astype(total.dtype))
        whole: list[int] = total.tolist()
        return whole

    def totals(self, each: Floats, step: float) -> list[int]:
        """Return the sum of `each`, a number per record, in grid steps for every group.

        The sum is exact in fractions of a step and rounded once, so rounding errors never add up to a step.
        The step must be a power of two.

        Examples
        --------
        >>> Records.of([0.0] * 4).totals(np.array([0.3, 0.3, 0.3, 0.3]), step=1.0)
        [1]
        """
        scaled = each / step
        whole = np.rint(scaled)
        rest = np.rint((scaled - whole) * _PARTS)
        sums = zip(self.sums(whole.astype(np.int64)), self.sums(rest.astype(np.int64)), strict=True)
        return [(steps * _PARTS + parts + _PARTS // 2) // _PARTS for steps, parts in sums]

    def counts(self) -> list[int]:
        """Return the number of records of every group."""
        return self.sums(np.ones(len(self.count), dtype=np.int64))

"""The people of a batch: the gradient of a person is the mean of the gradients of their rows.

The rows of a person follow one another, and people may have different numbers of rows. Rows are never padded to the
same number: gradients of rows are added up per person, and where only norms are needed, the positions of each row are
multiplied with those of the next few rows, among which are all later rows of the same person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["People"]

_IN_CACHE = 1 << 18  # numbers of rows that are added up at once
_DEAR = 4  # a number of a saved gradient takes as long as this many multiplications


@dataclass(frozen=True, eq=False)
class People:
    """How many consecutive rows of a batch each person has: from 1 to ``most``, which is public.

    Examples
    --------
    >>> people = People(torch.tensor([2, 1]), most=3)
    >>> people.sum(torch.tensor([[1.0], [2.0], [5.0]]))
    tensor([[3.],
            [5.]])
    >>> people.shares(torch.float32)
    tensor([0.5000, 0.5000, 1.0000])
    """

    counts: Tensor
    most: int

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def owners(self) -> Tensor:
        """The person of each row."""
        return torch.arange(len(self), device=self.counts.device).repeat_interleave(self.counts)

    def shares(self, dtype: torch.dtype) -> Tensor:
        """Return the weight of each row in the mean of its person."""
        return (1 / self.counts.to(dtype))[self.owners]

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *self.counts.cumsum(0).tolist()]

    def to(self, device: torch.device) -> People:
        """Return the people on a device."""
        return self if self.counts.device == device else People(self.counts.to(device), self.most)

    def part(self, first: int, size: int) -> tuple[People, int, int]:
        """Return some consecutive people, their first row and the row after their last."""
        rows = self._ends[first], self._ends[first + size]
        return (self if size == len(self) else People(self.counts[first : first + size], self.most)), *rows

    def sum(self, values: Tensor) -> Tensor:
        """Add up the rows of each person; numbers that are not finite stay with their person."""
        return values.new_zeros(len(self), *values.shape[1:]).index_add_(0, self.owners, values)

    def sum_parts(self, values: Callable[[int, int], list[Tensor]], size: int) -> list[Tensor]:
        """Add up rows of so many numbers that are computed a few at a time, from a first row to a last one."""
        rows, step = len(self.owners), max(1, _IN_CACHE // size)
        sums: list[Tensor] = []
        for at in range(0, rows, step):
            owners, parts = self.owners[at : at + step], values(at, min(at + step, rows))
            sums = sums or [one.new_zeros(len(self), *one.shape[1:]) for one in parts]
            for one, part in zip(sums, parts, strict=True):
                one.index_add_(0, owners, part)
        return sums

    def prefers_gradients(self, positions: int, wide: int, high: int) -> bool:
        """Whether gradients of wide x high numbers are faster than `gram` on rows of so many positions.

        It depends on public numbers only.
        """
        return self.most * positions * (wide + high) > _DEAR * wide * high

    def gram(self, values: Tensor, buffer: Callable[[str, Sequence[int]], Tensor]) -> Tensor:
        """Return the products of the positions of each row with those in its window; the values are (rows, T, K).

        The buffer is reused memory: see `Layer.buffer`.
        """
        padded = buffer("windows", (len(values) + self.most - 1, *values.shape[1:]))
        return torch.bmm(values, self.windows(values, padded).mT)

    def windows(self, values: Tensor, padded: Tensor | None = None) -> Tensor:
        """Return the positions of each row and of as many rows after it as a person may have: (rows, most * T, K)."""
        rows, positions, wide = values.shape
        if padded is None:
            padded = values.new_empty(rows + self.most - 1, positions, wide)
        padded[:rows] = values
        padded[rows:] = 0
        return padded.as_strided((rows, self.most * positions, wide), (positions * wide, wide, 1))

    def inner_products(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum of the products of two Gram matrices over all pairs of positions of each person, and traces.

        The matrices are those of `gram`.
        """
        positions = one.shape[1]
        products = (one * other).view(-1, positions, self.most, positions)
        # Not a product with the mask: numbers that are not finite must not reach another person.
        products = torch.where(self._same, products, 0.0)
        products = products.sum((1, 3)) if positions > 1 else products.view(-1, self.most)
        products[:, 1:] *= 2  # pairs of different rows occur in both orders
        traces = (each.diagonal(dim1=1, dim2=2).sum(1) for each in (one, other))
        of_all, of_one, of_other = self.sum(torch.stack([products.sum(1), *traces], 1)).unbind(1)
        return of_all, of_one, of_other

    @cached_property
    def _same(self) -> Tensor:
        """Which rows in the window of each row are of the same person: (rows, 1, most, 1)."""
        numbers = (self.owners + 1).view(-1, 1, 1)  # 0 is padding
        return (self.windows(numbers) == numbers).unsqueeze(1)

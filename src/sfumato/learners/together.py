"""One process, or several that train one model together (`torch.distributed`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from sfumato._errors import BudgetError, OptionError
from sfumato.learners.sampling import Full, Poisson, Sampler

__all__ = ["Alone", "Together"]


class Alone:
    """A process by itself."""

    rank, size = 0, 1
    reduce: Callable[[Tensor], None] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that adds noise, charges and saves."""
        return self.rank == 0

    def total(self, count: int) -> int:
        """Return a count over all processes."""
        return count

    def mine(self, sampler: Sampler, rows: int) -> Sampler:
        """Return how this process draws of its own rows."""
        return sampler

    def once(self, act: Callable[[], Any]) -> None:
        """Do something in one process; if it is refused, it is refused in all."""
        act()

    def any(self, said: bool) -> bool:
        """Return whether any process said so."""
        return said

    def mean(self, value: Tensor) -> float:
        """Return the mean over all processes."""
        return float(value)

    def same(self, state: Iterable[Tensor]) -> None:
        """Give all processes what the first one has."""


class Together(Alone):
    """One of several processes, each with its own part of the samples.

    Each draws from its own samples with the same probability, which together is Poisson sampling;
    the clipped sums are added up, and the first process adds the noise.
    """

    def __init__(self) -> None:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise OptionError(
                "several processes can train together only after torch.distributed.init_process_group",
                hint="torchrun starts them",
            )
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.reduce = torch.distributed.all_reduce

    def total(self, count: int) -> int:
        """Add up the counts."""
        held = torch.tensor(count)
        torch.distributed.all_reduce(held)
        return int(held)

    def mine(self, sampler: Sampler, rows: int) -> Sampler:
        """Keep the rate, for fewer rows."""
        return Poisson(rows, sampler.rate) if isinstance(sampler, Poisson) else Full(rows)

    def once(self, act: Callable[[], Any]) -> None:
        """Let the first process try, and tell the others."""
        refused: list[Any] = [None]
        if self.first:
            try:
                act()
            except BudgetError as error:
                refused = [(error.message, error.hint)]
        torch.distributed.broadcast_object_list(refused)
        if refused[0] is not None:
            message, hint = refused[0]
            raise BudgetError(message, hint=hint)

    def any(self, said: bool) -> bool:
        """Ask all."""
        return self.total(int(said)) > 0

    def mean(self, value: Tensor) -> float:
        """Average over those that have a value."""
        held = torch.stack([value.nan_to_num(0.0), value.isfinite().to(value.dtype)]).double()
        torch.distributed.all_reduce(held)
        return float(held[0] / held[1])

    def same(self, state: Iterable[Tensor]) -> None:
        """Broadcast."""
        for one in state:
            torch.distributed.broadcast(one, 0)

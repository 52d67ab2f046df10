"""Training in one process, or in several with `torch.distributed`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sfumato import errors
from sfumato.errors import OptionError, SfumatoError

__all__ = ["Distributed", "SingleProcess"]


class SingleProcess:
    """Training in a single process; also the interface of `Distributed`."""

    rank, size = 0, 1
    reduce: Callable[[Tensor], None] | None = None
    share: Callable[[Tensor], None] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that adds the noise, charges the ledger and saves checkpoints."""
        return self.rank == 0

    def total(self, count: int) -> int:
        """Return the sum of a count over all processes."""
        return count

    def once(self, act: Callable[[], Any]) -> Any:
        """Run a function in the first process; return its result, or raise its error, in all processes.

        The result must be plain values.
        """
        return act()

    @contextmanager
    def shared_errors(self) -> Iterator[None]:
        """Raise an error in all processes if one raises it; inside, no process may wait for another."""
        yield

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return flag

    def mean(self, value: Tensor) -> float:
        """Return the mean over all processes."""
        return float(value)

    def broadcast(self, state: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all others, in place."""


class Distributed(SingleProcess):
    """One of several processes that train one model, each on its own part of the samples.

    Each process draws from its own samples with the same probability, which amounts to Poisson sampling over all of
    them. The clipped sums are added up, and the first process adds the noise and broadcasts the noisy sum.
    """

    def __init__(self) -> None:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise OptionError(
                "several processes can train together only after torch.distributed.init_process_group",
                hint="torchrun starts them",
            )
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.reduce, self.share = torch.distributed.all_reduce, partial(torch.distributed.broadcast, src=0)
        self._device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"  # of the tensors sent

    def total(self, count: int) -> int:
        """Return the sum of a count over all processes."""
        total = torch.tensor(count, device=self._device)
        torch.distributed.all_reduce(total)
        return int(total)

    def once(self, act: Callable[[], Any]) -> Any:
        """Run a function in the first process; return its result, or raise its error, in all processes."""
        outcome: dict[str, Any] = {}
        if self.first:
            try:
                outcome = {"value": act()}
            except SfumatoError as error:
                outcome = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        outcome = json.loads(self._broadcast_text(json.dumps(outcome)))
        if "error" in outcome:
            raise getattr(errors, outcome["error"])(outcome["message"], hint=outcome["hint"])
        return outcome["value"]

    @contextmanager
    def shared_errors(self) -> Iterator[None]:
        """Raise an error in all processes if one raises it."""
        own: SfumatoError | None = None
        try:
            yield
        except SfumatoError as error:
            own = error
        if self.any(own is not None):
            raise own or OptionError("another process rejected its samples or options", hint="see its error")

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return self.total(int(flag)) > 0

    def mean(self, value: Tensor) -> float:
        """Return the mean over the processes whose value is finite."""
        known = value.isfinite()
        sums = torch.stack([torch.where(known, value, 0.0), known.to(value.dtype)]).double().to(self._device)
        torch.distributed.all_reduce(sums)
        return float(sums[0] / sums[1])

    def broadcast(self, state: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all others, in place."""
        for one in state:
            sent = one.detach().contiguous()
            torch.distributed.broadcast(sent, 0)
            one.detach().copy_(sent)

    def _broadcast_text(self, text: str) -> str:
        """Return the text of the first process."""
        own = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self._device)
        size = torch.tensor(len(own), device=self._device)
        torch.distributed.broadcast(size, 0)
        received = own if self.first else torch.empty(int(size), dtype=torch.uint8, device=self._device)
        torch.distributed.broadcast(received, 0)
        return bytes(received.tolist()).decode()

"""One process, or several that train one model together (`torch.distributed`)."""

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

__all__ = ["Alone", "Together"]


class Alone:
    """A process by itself."""

    rank, size = 0, 1
    reduce: Callable[[Tensor], None] | None = None
    share: Callable[[Tensor], None] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that adds noise, charges and saves."""
        return self.rank == 0

    def total(self, count: int) -> int:
        """Return a count over all processes."""
        return count

    def once(self, act: Callable[[], Any]) -> Any:
        """Do something in one process and tell all what came of it, as plain values; a refusal too."""
        return act()

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Refuse in all processes what is refused in one; inside, no process may wait for another."""
        yield

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
    the clipped sums are added up, and the first process adds the noise to all of them and hands it on.
    """

    def __init__(self) -> None:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise OptionError(
                "several processes can train together only after torch.distributed.init_process_group",
                hint="torchrun starts them",
            )
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.reduce, self.share = torch.distributed.all_reduce, partial(torch.distributed.broadcast, src=0)
        self._device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"  # of what is sent

    def total(self, count: int) -> int:
        """Add up the counts."""
        held = torch.tensor(count, device=self._device)
        torch.distributed.all_reduce(held)
        return int(held)

    def once(self, act: Callable[[], Any]) -> Any:
        """Let the first process try, and tell the others."""
        told: dict[str, Any] = {}
        if self.first:
            try:
                told = {"value": act()}
            except SfumatoError as error:
                told = {"refused": type(error).__name__, "message": error.message, "hint": error.hint}
        told = json.loads(self._heard(json.dumps(told)))
        if "refused" in told:
            raise getattr(errors, told["refused"])(told["message"], hint=told["hint"])
        return told["value"]

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Ask all how it went."""
        refused: SfumatoError | None = None
        try:
            yield
        except SfumatoError as error:
            refused = error
        if self.any(refused is not None):
            raise refused or OptionError("another process refused its part", hint="it says why")

    def any(self, said: bool) -> bool:
        """Ask all."""
        return self.total(int(said)) > 0

    def mean(self, value: Tensor) -> float:
        """Average over those that have a value."""
        known = value.isfinite()
        held = torch.stack([torch.where(known, value, 0.0), known.to(value.dtype)]).double().to(self._device)
        torch.distributed.all_reduce(held)
        return float(held[0] / held[1])

    def same(self, state: Iterable[Tensor]) -> None:
        """Broadcast."""
        for one in state:
            sent = one.detach().contiguous()
            torch.distributed.broadcast(sent, 0)
            one.detach().copy_(sent)

    def _heard(self, text: str) -> str:
        """Return the text of the first process."""
        said = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self._device)
        size = torch.tensor(len(said), device=self._device)
        torch.distributed.broadcast(size, 0)
        heard = said if self.first else torch.empty(int(size), dtype=torch.uint8, device=self._device)
        torch.distributed.broadcast(heard, 0)
        return bytes(heard.tolist()).decode()

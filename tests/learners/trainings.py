"""Programs that train in processes of their own: ``trainings.py killed|together ...``; for the tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sfumato.budget import Ledger
from sfumato.errors import SfumatoError
from sfumato.learners import AdaptiveClip, Optimization, Privacy, Sgd, Speed, Trainer
from sfumato.learners.options import grouped

ROWS = 61
OPTIONS: dict[str, Any] = {"delta": 1e-3, "noise_multiplier": 1.0, "steps": 6}


def in_groups(**options: Any) -> dict[str, Any]:
    """The parameters of a `Trainer`, given without groups."""
    return grouped(options, privacy=Privacy, optimization=Optimization, speed=Speed)


def trainer_of(module: nn.Module, **options: Any) -> Trainer:
    return Trainer(module, **in_groups(**options))


def people(channels: int = 0) -> tuple[Tensor, Tensor]:
    """The samples of all processes: rows of a table, or images."""
    chance = torch.Generator().manual_seed(5)
    shape = (channels, 6, 6) if channels else (3,)
    return torch.randn(ROWS, *shape, generator=chance), torch.arange(ROWS) % 2


def linear() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(3, 2)


def convolutions() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten(), nn.Linear(12, 2))


def part(rank: int, size: int) -> slice:
    """The rows of a process: the first has twice as many as each other one."""
    each = ROWS // (size + 1)
    ends = [0, *(ROWS - each * (size - 1 - other) for other in range(size))]
    return slice(ends[rank], ends[rank + 1])


# --- what one process trains, and several together ---


def exact(**options: Any) -> Trainer:
    return trainer_of(linear(), **{**OPTIONS, "noise_multiplier": 1e-7}, **options)


def adaptive(**options: Any) -> Trainer:
    return trainer_of(linear(), clip=AdaptiveClip(count_noise=1e-6), **{**OPTIONS, "noise_multiplier": 1e-7}, **options)


def images(**options: Any) -> Trainer:
    return trainer_of(convolutions(), **{**OPTIONS, "noise_multiplier": 1e-7}, **options)


def noisy(**options: Any) -> Trainer:
    """Its gradient is 0, so that it learns nothing but noise."""
    options = {**OPTIONS, "noise_multiplier": 2.0, "steps": 1, "optimizer": Sgd(learning_rate=1.0), **options}
    module = nn.Linear(3, 40_000, bias=False)
    nn.init.zeros_(module.weight)
    return trainer_of(module, loss=lambda outputs, _: 0 * outputs.sum(1), **options)


def _together(rank: int, size: int, folder: Path) -> None:
    """Train one model after another with the other processes, and write down how each ended."""
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    wait = timedelta(seconds=60)
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=wait)
    mine = part(rank, size)
    inputs, targets = people()
    pictures = people(2)[0][mine]
    weights: dict[str, Tensor] = {}
    said: dict[str, Any] = {}

    def run(
        name: str,
        make: Callable[[], Trainer],
        some: Tensor = inputs[mine],
        theirs: Tensor = targets[mine],
        of_people: bool = False,
    ) -> None:
        try:
            trainer = make()
            if of_people:
                trainer.fit(some, theirs, people=np.arange(len(some)), rows_per_person=1)
            else:
                trainer.fit(some, theirs)
        except SfumatoError as error:
            said[name] = f"{type(error).__name__}: {error}"
            trainer = None
        if trainer is not None:
            said[name] = {"done": trainer.done, "epsilon": trainer.spent.epsilon, "loss": trainer.history[-1].loss}
            weights.update({f"{name} {key}": one for key, one in trainer.module.state_dict().items()})

    own = [slice(0, 1), slice(1, ROWS)][rank > 0] if size == 2 else slice(20 * rank, 20 * rank + 20)
    checkpoint = folder / "run.safetensors" if rank == 0 else None
    run("exact", lambda: exact(distributed=True))
    run("adaptive", lambda: adaptive(distributed=True))
    run("images", lambda: images(distributed=True), pictures)
    run("noisy", lambda: noisy(distributed=True))
    run("poisson", lambda: trainer_of(linear(), **OPTIONS, batch_size=10, distributed=True))
    run("empty", lambda: trainer_of(linear(), **OPTIONS, batch_size=2, distributed=True), inputs[own], targets[own])
    run("refused", lambda: trainer_of(linear(), **OPTIONS, distributed=True, ledger=_ledger(rank, folder)))
    run("wrong", lambda: trainer_of(linear(), **OPTIONS, distributed=True), theirs=targets[mine] + rank)
    few = slice(0, ROWS if rank == 0 else 0)
    run("people", lambda: trainer_of(linear(), **OPTIONS, distributed=True), of_people=rank > 0)
    run("none", lambda: trainer_of(linear(), **OPTIONS, distributed=True), inputs[few], targets[few])
    torch.manual_seed(rank)  # other weights in each: those of the first count
    run("differing", lambda: trainer_of(nn.Linear(3, 2), **OPTIONS, distributed=True))
    whole = {**OPTIONS, "steps": 12, "insecure_seed": 1, "batch_size": 10, "distributed": True}
    run("whole", lambda: trainer_of(linear(), **whole))
    stopped = trainer_of(linear(), **whole, checkpoint=checkpoint)
    stopped.fit(inputs[mine], targets[mine], stop=lambda told: rank == size - 1)
    said["stopped"] = stopped.done
    run("resumed", lambda: trainer_of(linear() if rank == 0 else nn.Linear(3, 2), **whole, checkpoint=checkpoint))
    if rank == 0:
        (folder / "run.safetensors").write_bytes(b"damaged")
    run("damaged", lambda: trainer_of(linear(), **whole, checkpoint=checkpoint))
    save_file(weights, folder / f"{rank}.safetensors")
    (folder / f"{rank}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()


def _ledger(rank: int, folder: Path) -> Ledger | None:
    return Ledger(folder / "some.ledger") if rank == 0 else None


# --- one that dies ---


def killed(ledger: Path, checkpoint: Path, step: int, rows_per_person: int | None = None) -> None:
    """Die without a word after a step, if there is such a step; with a bound, of people with four rows each."""
    trainer = trainer_of(
        linear(), **{**OPTIONS, "steps": 12}, batch_size=10, ledger=Ledger(ledger), checkpoint=checkpoint
    )
    whose = {} if rows_per_person is None else {"people": np.arange(ROWS) // 4, "rows_per_person": rows_per_person}
    trainer.fit(*people(), **whose, progress=lambda _: os.kill(os.getpid(), 9) if trainer.done == step else None)


def _fork(size: int, folder: Path) -> int:
    """Let processes train together, which this one has imported everything for; return how many of them failed."""
    import dp_accounting  # noqa: F401 - the first report of a training would, in each of them

    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            _together(rank, size, folder)
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    if sys.argv[1] == "together":
        sys.exit(_fork(int(sys.argv[2]), Path(sys.argv[3])))
    else:
        killed(Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))

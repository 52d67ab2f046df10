"""The private training step on one CPU thread: against Opacus, and against the same step without privacy."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from clock import alternate
from float_noise import HostFloats
from sfumato.budget import Source
from sfumato.learners import Sgd, architecture
from sfumato.learners.dpsgd.steps import HostNoise, NoiseMaker, Step
from sfumato.learners.gradients.clipping import cross_entropy, set_memory_format

# So small that all stay where they start: noise step after step on one batch drives a network to where gradients are
# denormal numbers, which are slow, and that would be compared instead.
RATE = 1e-4
MOMENTUM, CLIP, NOISE = 0.9, 1.0, 1.0


class Training(Protocol):
    """Something that trains a network step by step."""

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""


class Ours:
    """Sfumato's private step, its noise from the operating system's entropy."""

    def __init__(
        self, model: nn.Module, batch: int, layout: torch.memory_format, noise: NoiseMaker | None = None
    ) -> None:
        self.layout = layout
        self.private = Step(
            set_memory_format(model, layout),
            cross_entropy,
            Sgd(learning_rate=RATE, momentum=MOMENTUM),
            noise or HostNoise(Source()),
            clip=CLIP,
            expected=batch,
        )
        self.private.flat.attach()

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""
        self.private(inputs.contiguous(memory_format=self.layout), targets, None, RATE, NOISE)


class Plain:
    """A training step as people write it, not private."""

    def __init__(self, model: nn.Module, **options: bool) -> None:
        self.model = model
        self.optimizer: Any = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, **options)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class Tuned(Plain):
    """The fastest form of it that was found: one kernel for all updates, and the better memory layout.

    Updates by foreach were not faster; torch.compile took 13 to 78 seconds to compile and its steps were slower.
    """

    def __init__(self, model: nn.Module, layout: torch.memory_format) -> None:
        super().__init__(set_memory_format(model, layout), fused=True)
        self.layout = layout

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""
        super().step(inputs.contiguous(memory_format=self.layout), targets)


class Opacus(Plain):
    """Opacus with its hooks; every batch is the same size and its noise is not the secure one."""

    def __init__(self, model: nn.Module, batch: int) -> None:
        super().__init__(model)
        with warnings.catch_warnings(action="ignore"):  # that this is no training for production
            self.model, self.optimizer, _ = (
                importlib.import_module("opacus")
                .PrivacyEngine()
                .make_private(
                    module=model,
                    optimizer=self.optimizer,
                    data_loader=torch.utils.data.DataLoader(range(10 * batch), batch_size=batch),  # type: ignore[arg-type]
                    noise_multiplier=NOISE,
                    max_grad_norm=CLIP,
                    poisson_sampling=False,
                    grad_sample_mode="hooks",
                )
            )

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step on a batch."""
        with warnings.catch_warnings(action="ignore"):
            super().step(inputs, targets)


class Case(NamedTuple):
    """A network and a batch, and what is asked of each comparison."""

    network: str
    batch: int
    layout: torch.memory_format
    steps: int
    rounds: int
    opacus: str
    plain: str = ""
    tuned: str = ""


CASES = (
    Case("cnn", 64, torch.channels_last, 10, 31, "at least 2.5 x", "more than 1 x", "at least 0.65 x"),
    Case("cnn", 512, torch.channels_last, 2, 31, "at least 2.5 x", "more than 1 x", "at least 0.65 x"),
    Case("resnet18", 64, torch.contiguous_format, 1, 9, "at least 3 x"),
)


def repeated(training: Training, case: Case, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    """Return work that takes long enough for the clock."""

    def work() -> None:
        for _ in range(case.steps):
            training.step(inputs, targets)

    return work


def compared(case: Case) -> list[tuple[str, str, str]]:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return architecture(case.network, (28, 28), 10).module

    inputs, targets = torch.randn(case.batch, 1, 28, 28), torch.randint(0, 10, (case.batch,))
    layout = str(case.layout).removeprefix("torch.").removesuffix("_format")
    peers: list[tuple[str, Callable[[], Training], str]] = [
        ("plain PyTorch, not private,", lambda: Plain(model()), case.plain),
        (f"tuned PyTorch ({layout}, fused), not private,", lambda: Tuned(model(), case.layout), case.tuned),
    ]
    floats = HostFloats(Source())
    peers.insert(0, ("the same with noise in floats", lambda: Ours(model(), case.batch, case.layout, floats), "0.9 x"))
    if importlib.util.find_spec("opacus"):
        version = importlib.metadata.version("opacus")
        peers.insert(0, (f"Opacus {version} (hooks)", lambda: Opacus(model(), case.batch), case.opacus))
    mine, rows = repeated(Ours(model(), case.batch, case.layout), case, inputs, targets), []
    for name, make, asked in peers:
        seconds, theirs = alternate(mine, repeated(make(), case, inputs, targets), rounds=case.rounds)
        each, peer = 1e3 * seconds / case.steps, 1e3 * theirs / case.steps
        what = (
            f"private step, {case.network}, batch {case.batch}, one thread: {each:.1f} CPU ms, {name} {peer:.1f} CPU ms"
        )
        rows.append((what, f"{peer / each:.2f} x", asked))
    return rows


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [row for case in CASES for row in compared(case)]
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    for row in main():
        print(" | ".join(row))

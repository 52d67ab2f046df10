"""DP-SGD by person against DP-SGD by row, with the same rows in every step, on one CPU thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clock import alternate
from dp_step import CLIP, MOMENTUM, NOISE, RATE
from sfumato.budget import Source
from sfumato.learners import Sgd, architecture
from sfumato.learners.dpsgd.steps import HostNoise, Step
from sfumato.learners.gradients.clipping import cross_entropy, set_memory_format
from sfumato.learners.gradients.people import People

ASKED = "at most 1.3 x"
CLASSES = 10


class Case(NamedTuple):
    """A network and a number of rows per step."""

    network: str
    shape: tuple[int, ...]
    rows: int
    layout: torch.memory_format
    steps: int
    rounds: int


CASES = (
    Case("mlp", (200,), 2048, torch.contiguous_format, 5, 11),
    Case("mlp", (200,), 256, torch.contiguous_format, 20, 11),
    Case("logistic", (200,), 2048, torch.contiguous_format, 10, 11),
    Case("cnn", (28, 28), 64, torch.channels_last, 5, 11),
    Case("cnn", (28, 28), 512, torch.channels_last, 1, 11),
    Case("resnet18", (28, 28), 64, torch.contiguous_format, 1, 5),
)
PEOPLE: dict[str, tuple[int, Callable[[np.random.Generator], int]]] = {
    "1 to 3 rows each": (3, lambda chance: int(chance.integers(1, 4))),
    "1 to 10 rows each": (10, lambda chance: int(chance.integers(1, 11))),
    "1 row each, but 10 for every tenth": (10, lambda chance: 10 if chance.random() < 0.1 else 1),
}


def counts_of(rows: int, each: Callable[[np.random.Generator], int]) -> Tensor:
    """Return the rows of people who have so many together."""
    chance, counts = np.random.default_rng(0), list[int]()
    while (left := rows - sum(counts)) > 0:
        counts.append(min(each(chance), left))
    return torch.tensor(counts)


def step_of(case: Case, expected: int, rows_per_person: int) -> Step:
    """Return the step of a new network."""
    torch.manual_seed(0)
    inputs = case.shape if len(case.shape) > 1 else case.shape[0]
    module = set_memory_format(architecture(case.network, inputs, CLASSES).module, case.layout)
    rule, noise = Sgd(learning_rate=RATE, momentum=MOMENTUM), HostNoise(Source())
    step = Step(module, cross_entropy, rule, noise, clip=CLIP, expected=expected, rows_per_person=rows_per_person)
    step.flat.attach()
    return step


def compared(case: Case, name: str) -> tuple[str, str, str]:
    """Return what was measured, the ratio, and what was asked."""
    bound, each = PEOPLE[name]
    counts = counts_of(case.rows, each)
    shape = case.shape if len(case.shape) == 1 else (1, *case.shape)
    inputs, targets = torch.randn(case.rows, *shape), torch.randint(0, CLASSES, (case.rows,))
    if len(case.shape) > 1:
        inputs = inputs.contiguous(memory_format=case.layout)
    by_row, by_person = step_of(case, case.rows, 1), step_of(case, len(counts), bound)

    def rows() -> None:
        for _ in range(case.steps):
            by_row(inputs, targets, None, RATE, NOISE)

    def people() -> None:
        for _ in range(case.steps):  # who is drawn is new in every step
            by_person(inputs, targets, None, RATE, NOISE, people=People(counts, bound))

    seconds, peer = alternate(people, rows, rounds=case.rounds)
    mine, theirs = (1e3 * one / case.steps for one in (seconds, peer))
    what = f"{case.network}, {case.rows} rows of {len(counts)} people ({name}): {mine:.1f} CPU ms, by row {theirs:.1f}"
    return what, f"{mine / theirs:.2f} x", ASKED


def main() -> Iterator[tuple[str, str, str]]:
    """Yield (what, measured, asked) rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for case in CASES:
            for name in PEOPLE:
                yield compared(case, name)
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    for row in main():
        print(" | ".join(row), flush=True)

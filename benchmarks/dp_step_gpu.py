"""The private training step on a GPU, one CUDA graph with its sample and its noise, beside steps without privacy.

python dp_step_gpu.py        measures on the GPU at hand, and keeps the figures in dp_step_gpu.json
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from sfumato.learners import Sgd, architecture
from sfumato.learners.dpsgd.sampling import FixedPoisson
from sfumato.learners.dpsgd.steps import Step
from sfumato.learners.gradients.clipping import cross_entropy

KEPT = Path(__file__).with_suffix(".json")
ROWS, RATE, MOMENTUM, BATCHES = 60_000, 1e-4, 0.9, (64, 512, 2048)
NETWORKS = {"cnn": torch.contiguous_format, "resnet18": torch.channels_last}
ASKED = {"cnn": "at most 0.26 / 0.52 / 1.1 ms", "resnet18": "at most 3.2 / 7 / 19.5 ms"}


def model(network: str) -> nn.Module:
    torch.manual_seed(0)
    made: Any = architecture(network, (28, 28), 10).module.cuda()
    return made.to(memory_format=NETWORKS[network])  # type: ignore[no-any-return]


def milliseconds(work: Callable[[], object], steps: int) -> float:
    """Return the time of one piece of work, the median of seven measurements."""
    for _ in range(5):
        work()
    found: list[float] = []
    for _ in range(7):
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        for _ in range(steps):
            work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / steps)
    return statistics.median(found)


def private(network: str, batch: int, *, on_grid: bool = True) -> float:
    from float_noise import device_floats
    from sfumato.learners.gpu.chacha import DeviceNoise
    from sfumato.learners.gpu.cuda_graph import GraphedStep

    inputs = torch.randn(ROWS, 1, 28, 28, device="cuda")
    targets = torch.randint(0, 10, (ROWS,), device="cuda")
    rule = Sgd(learning_rate=RATE, momentum=MOMENTUM)
    noise = (DeviceNoise if on_grid else device_floats)(torch.device("cuda"))
    step = Step(model(network), cross_entropy, rule, noise, clip=1.0, expected=float(batch))
    with step.running():
        sampler = FixedPoisson(ROWS, batch / ROWS, batch, 20, ROWS)  # the batch itself, as in the other steps
        run = GraphedStep(step, inputs, targets, sampler, NETWORKS[network])
        return milliseconds(lambda: run(RATE, 1.0), 50)


def ordinary(network: str, batch: int, *, graphed: bool) -> float:
    module = model(network)
    inputs: Any = torch.randn(batch, 1, 28, 28, device="cuda").contiguous(memory_format=NETWORKS[network])
    targets = torch.randint(0, 10, (batch,), device="cuda")
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    if not graphed:
        return milliseconds(step, 50)
    aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return milliseconds(graph.replay, 50)


def measure() -> dict[str, Any]:
    """Measure all of it."""
    found = {
        network: {
            "private": [private(network, batch) for batch in BATCHES],
            "private, noise in floats (not safe)": [private(network, batch, on_grid=False) for batch in BATCHES],
            "ordinary": [ordinary(network, batch, graphed=False) for batch in BATCHES],
            "ordinary, as a CUDA graph": [ordinary(network, batch, graphed=True) for batch in BATCHES],
        }
        for network in NETWORKS
    }
    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "milliseconds": found}


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows of the figures that are kept."""
    kept = json.loads(KEPT.read_text())
    return [
        (
            f"{how} step on an {kept['device']} (torch {kept['torch']}), {network}, batch 64 / 512 / 2048",
            f"{' / '.join(f'{one:.3g}' for one in times)} ms",
            ASKED[network] if how == "private" else "",
        )
        for network, ways in kept["milliseconds"].items()
        for how, times in ways.items()
    ]


if __name__ == "__main__":
    KEPT.write_text(json.dumps(measure(), indent=1) + "\n")
    for row in main():
        print(" | ".join(row))

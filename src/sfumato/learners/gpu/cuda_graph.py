"""A whole private step on a GPU as one CUDA graph: sample, clip, add noise, update.

A graph runs without Python between its kernels. It needs fixed shapes, so Poisson samples are padded to a fixed size
with samples of weight 0. The size is so large that a sample almost never exceeds it, and delta includes the probability
that one does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sfumato.learners.dpsgd.sampling import FixedPoisson
from sfumato.learners.dpsgd.steps import Step
from sfumato.learners.gpu.chacha import DeviceNoise

__all__ = ["GraphedStep"]


@contextmanager
def _benchmarking() -> Iterator[None]:
    """Let cuDNN measure which of its kernels is fastest for these shapes."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class GraphedStep:
    """Steps of a module, with all data on the GPU, replayed as a CUDA graph.

    Parameters
    ----------
    step : Step
        Its noise is a `DeviceNoise`.
    inputs, targets : Tensor
        All samples, on the GPU.
    sampler : FixedPoisson
    layout : torch.memory_format
    """

    def __init__(
        self,
        step: Step,
        inputs: Tensor,
        targets: Tensor,
        sampler: FixedPoisson,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.step, self.inputs, self.targets, self.sampler, self.layout = step, inputs, targets, sampler, layout
        device = inputs.device
        assert isinstance(step.noise, DeviceNoise)
        self._noise = step.noise
        self._taken = torch.zeros(sampler.size, dtype=torch.int64, device=device)
        self._weights = torch.zeros(sampler.size, dtype=torch.float32, device=device)
        self._rest = torch.full((), math.log1p(-sampler.rate), dtype=torch.float64, device=device)
        self._rate = torch.zeros((), device=device)
        self._multiplier = torch.zeros((), device=device)
        self._set: tuple[float, float] | None = None
        self._loss: Tensor | None = None
        self._graph = torch.cuda.CUDAGraph()
        self._capture()

    def _sample_and_step(self) -> Tensor:
        self._noise.draw(self._taken, self._weights, self._rest, len(self.inputs))
        some = self.inputs[self._taken]
        if some.dim() == 4:
            some = some.contiguous(memory_format=self.layout)
        return self.step(some, self.targets[self._taken], self._weights, self._rate, self._multiplier)

    def _capture(self) -> None:
        before = {name: one.clone() for name, one in self.step.state.items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _benchmarking():
            for _ in range(3):
                self._sample_and_step()
        torch.cuda.current_stream().wait_stream(stream)
        for name, one in self.step.state.items():
            one.copy_(before[name])
        with _benchmarking(), torch.cuda.graph(self._graph):
            self._loss = self._sample_and_step()

    def __call__(self, rate: float, noise_multiplier: float) -> Tensor:
        """Run a step; the next call overwrites the returned loss."""
        if (rate, noise_multiplier) != self._set:
            self._rate.fill_(rate)
            self._multiplier.fill_(noise_multiplier)
            self._set = (rate, noise_multiplier)
        self._graph.replay()
        assert self._loss is not None
        return self._loss

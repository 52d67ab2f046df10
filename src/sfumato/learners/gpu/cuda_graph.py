"""A whole private step on a GPU as one CUDA graph: draw, clip, add noise, follow.

A graph runs without Python between its kernels. It needs fixed shapes, so a Poisson sample is
filled up to a fixed size with samples of weight 0; the size is so large that a sample practically
never exceeds it, and the probability that one does is part of delta.
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
def _choosing() -> Iterator[None]:
    """Let cuDNN try which of its kernels are fastest for these shapes, once."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class GraphedStep:
    """Steps of a module on data that lies on the GPU.

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

    def _all(self) -> Tensor:
        self._noise.draw(self._taken, self._weights, self._rest, len(self.inputs))
        some = self.inputs[self._taken]
        if some.dim() == 4:
            some = some.contiguous(memory_format=self.layout)
        return self.step(some, self.targets[self._taken], self._weights, self._rate, self._multiplier)

    def _capture(self) -> None:
        kept = {name: one.clone() for name, one in self.step.state.items()}
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), _choosing():
            for _ in range(3):
                self._all()
        torch.cuda.current_stream().wait_stream(aside)
        for name, one in self.step.state.items():
            one.copy_(kept[name])
        with _choosing(), torch.cuda.graph(self._graph):
            self._loss = self._all()

    def __call__(self, rate: float, noise_multiplier: float) -> Tensor:
        """Make a step; the loss that is returned is overwritten by the next one."""
        if (rate, noise_multiplier) != self._set:
            self._rate.fill_(rate)
            self._multiplier.fill_(noise_multiplier)
            self._set = (rate, noise_multiplier)
        self._graph.replay()
        assert self._loss is not None
        return self._loss

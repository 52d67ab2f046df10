"""A dense auto-encoder trained by DP-SGD (Abadi et al. 2016), whose codes lie in the unit ball.

Needs torch, for training only: the encoder and the decoder come out as plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.noise import Source
from sfumato.learners.dpsgd.optimizers import Adam, schedule_of
from sfumato.learners.dpsgd.samples import in_mode
from sfumato.learners.dpsgd.sampling import Poisson
from sfumato.learners.dpsgd.steps import HostNoise, Step
from sfumato.learners.gradients.clipping import Loss
from sfumato.synthesizers.dense import Dense
from sfumato.synthesizers.steps import Steps

__all__ = ["AutoEncoder", "Training", "train"]

Ints = NDArray[np.int64]
Batches = Callable[[Ints], tuple[Tensor, Tensor, Tensor | None]]

_AVERAGING = 0.95  # decay of the average of the weights


class AutoEncoder(nn.Module):
    """Dense layers to a code in the unit ball, and back.

    In training, normal noise is added to each code, so that codes near it decode alike (``jitter`` is its standard
    deviation). The last layer begins at 0: what the loss adds to the outputs is all there is.

    Examples
    --------
    >>> model = AutoEncoder([6, 4, 2], [2, 4, 6], jitter=0.1)
    >>> bool((model.encode(torch.randn(5, 6) * 100).norm(dim=1) < 1.001).all())
    True
    >>> model(torch.randn(5, 6)).abs().max().item()
    0.0
    """

    def __init__(self, down: Sequence[int], up: Sequence[int], jitter: float) -> None:
        super().__init__()
        self.encoder, self.decoder, self.jitter = _dense(down), _dense(up), jitter
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the codes, clipped to the unit ball."""
        codes: Tensor = self.encoder(inputs)
        inside: Tensor = codes / codes.norm(dim=1, keepdim=True).clamp(min=1.0)
        return inside

    def forward(self, inputs: Tensor) -> Tensor:
        """Decode codes to network outputs."""
        codes = self.encode(inputs)
        if self.training:
            codes = codes + self.jitter * torch.randn_like(codes)
        decoded: Tensor = self.decoder(codes)
        return decoded


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an auto-encoder is trained.

    Parameters
    ----------
    clip : float
        The largest norm of a record's gradient.
    learning_rate : float
        Of Adam, at its largest.
    jitter : float
        The standard deviation of the noise on codes.
    """

    clip: float = 1.0
    learning_rate: float = 0.01
    jitter: float = 0.1


def train(
    down: Sequence[int],
    up: Sequence[int],
    loss: Loss,
    batches: Batches,
    *,
    records: int,
    rows: float,
    steps: Steps,
    noise: float,
    source: Source,
    seed: int,
    how: Training,
) -> tuple[Dense, Dense]:
    """Train an auto-encoder, and return its encoder and its decoder.

    Parameters
    ----------
    down, up : sequence of int
        The sizes of the layers from the inputs to a code, and from a code to the outputs.
    loss : callable
        Returns one number per sample of outputs and targets.
    batches : callable
        Returns the inputs, targets and optional weights (from 0 to 1) of records, given their positions.
    records : int
        How many records there are: private, and used for drawing only.
    rows : float
        The declared or noisy number of records, which scales the mean gradient.
    steps : Steps
    noise : float
        The noise multiplier of a step; 0 trains without clipping and noise.
    source : Source
        Of the noise and the samples.
    seed : int
        Of the initial weights and the jitter, which are public.
    how : Training

    Examples
    --------
    >>> points = torch.randn(300, 4)
    >>> steps = Steps(20, 1.0, rate=0.1, dimensions=100)
    >>> encoder, decoder = train(
    ...     [4, 1], [1, 4], lambda out, to: (out - to).square().sum(1), lambda at: (points[at], points[at], None),
    ...     records=300, rows=300, steps=steps, noise=1.0, source=Source(insecure_seed=1), seed=0, how=Training()
    ... )
    >>> decoder(encoder(points.numpy())).shape
    (300, 4)
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = AutoEncoder(down, up, how.jitter)
        trained = sum(one.numel() for one in module.parameters())
        if trained > steps.dimensions:
            raise RuntimeError(f"the steps were paid for {steps.dimensions:,} weights, but there are {trained:,}")
        expected = max(float(rows), 1.0) * steps.rate
        rule = Adam(learning_rate=how.learning_rate)
        clip = how.clip if noise else None
        step = Step(module, loss, rule, HostNoise(source), clip=clip, expected=expected, averaging=_AVERAGING)
        sampler, course = Poisson(1, steps.rate), schedule_of("warm-cosine")
        with in_mode(module, training=True), step.running():
            for at in range(steps.times):
                inputs, targets, weights = batches(sampler.draw(source, records))
                step(inputs, targets, weights, rule.learning_rate * course((at + 0.5) / steps.times), noise)
            assert step.average is not None
            step.flat.values.copy_(step.average)
    return _arrays(module.encoder), _arrays(module.decoder)


def _dense(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in Dense.shapes(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _arrays(network: nn.Sequential) -> Dense:
    layers = [one for one in network if isinstance(one, nn.Linear)]
    weights = tuple(one.weight.detach().numpy().T.copy() for one in layers)
    return Dense(weights, tuple(one.bias.detach().numpy().copy() for one in layers))

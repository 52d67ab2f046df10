"""A dense auto-encoder trained by DP-SGD (Abadi et al. 2016), whose codes lie in the unit ball; plain or variational.

The noise that training adds to codes comes from the secret source of the noise on gradients. Were it public, each
record of a batch would get the noise of its position, and one record more would change the gradients of all those
after it.

Needs torch, for training only: the encoder and the decoder come out as plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from sfumato.synthesizers.training import Training, prior_deviation, weights_of

__all__ = ["AutoEncoder", "Training", "VariationalAutoEncoder", "train"]

Ints = NDArray[np.int64]
Batches = Callable[[Ints], tuple[Tensor, Tensor, Tensor | None]]

_AVERAGING = 0.95  # decay of the average of the weights
_LOGARITHMS = (-8.0, 4.0)  # of the variance of a code, relative to the prior


class AutoEncoder(nn.Module):
    """Dense layers to a code in the unit ball, and back.

    In training, normal noise is added to each code, so that codes near it decode alike (``jitter`` is its standard
    deviation). The last layer begins at 0: what the loss adds to the outputs is all there is. The last ``known``
    inputs, such as a label, are given to the decoder too, beside the code. A matrix ``after`` multiplies what is
    decoded, and is not trained.

    Examples
    --------
    >>> model = AutoEncoder([6, 4, 2], [2, 4, 6], jitter=0.1)
    >>> bool((model.encode(torch.randn(5, 6) * 100).norm(dim=1) < 1.001).all())
    True
    >>> model(torch.randn(5, 6)).abs().max().item()
    0.0
    """

    after: Tensor | None

    def __init__(
        self, down: Sequence[int], up: Sequence[int], jitter: float, known: int = 0, after: Tensor | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("after", after)
        self.encoder, self.decoder, self.jitter, self.known = _dense(down), _dense(up), jitter, known
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the codes, clipped to the unit ball."""
        return _in_ball(self.encoder(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Decode codes to network outputs."""
        codes = self.encode(inputs)
        if self.training:
            codes = codes + self.jitter * torch.randn_like(codes)
        return self._decode(codes, inputs)

    def _decode(self, codes: Tensor, inputs: Tensor) -> Tensor:
        given = torch.cat([codes, inputs[:, -self.known :]], dim=1) if self.known else codes
        decoded: Tensor = self.decoder(given)
        return decoded if self.after is None else decoded @ self.after


class VariationalAutoEncoder(AutoEncoder):
    """An auto-encoder whose codes are normal distributions (Kingma and Welling 2014).

    The encoder has two outputs per dimension of a code: the mean, clipped to the unit ball, and the logarithm of the
    variance relative to that of the prior. In training a code is drawn (the mean, plus the deviation times normal
    noise); otherwise it is the mean. The last output is the divergence of the distribution from the prior.

    Examples
    --------
    >>> model = VariationalAutoEncoder([6, 4, 2], [2, 4, 6])
    >>> outputs = model(torch.randn(5, 6))
    >>> outputs.shape, bool((outputs[:, -1] >= 0).all())
    (torch.Size([5, 7]), True)
    """

    def __init__(self, down: Sequence[int], up: Sequence[int], known: int = 0, after: Tensor | None = None) -> None:
        super().__init__([*down[:-1], 2 * down[-1]], up, 0.0, known, after)
        self.prior = prior_deviation(down[-1])

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the means of the codes."""
        return _in_ball(self.encoder(inputs).chunk(2, dim=1)[0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what drawn codes decode to, and the divergence of each from the prior."""
        means, logs = self.encoder(inputs).chunk(2, dim=1)
        means, logs = _in_ball(means), logs.clamp(*_LOGARITHMS)
        codes = means
        if self.training:
            codes = means + self.prior * torch.exp(logs / 2) * torch.randn_like(means)
        divergence = 0.5 * (torch.exp(logs) + (means / self.prior).square() - 1 - logs).sum(dim=1, keepdim=True)
        return torch.cat([self._decode(codes, inputs), divergence], dim=1)


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
    after: NDArray[np.float64] | None = None,
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
        Of the noise and the samples, and of the noise on codes.
    seed : int
        Of the initial weights, which are public.
    how : Training
    after : array, optional
        A matrix that multiplies what is decoded, before the loss.

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
        module = _module(down, up, how, after)
        torch.manual_seed(int(source.below(2**62, 1)[0]))
        trained = weights_of(down, up, how)
        if trained > steps.dimensions:
            raise RuntimeError(f"the steps were paid for {steps.dimensions:,} weights, but there are {trained:,}")
        expected = max(float(rows), 1.0) * steps.rate
        rule = Adam(learning_rate=how.learning_rate)
        clip = how.clip if noise else None
        whole_loss = _with_divergence(loss, how.divergence) if how.variational else loss
        step = Step(module, whole_loss, rule, HostNoise(source), clip=clip, expected=expected, averaging=_AVERAGING)
        sampler, course = Poisson(1, steps.rate), schedule_of("warm-cosine")
        with in_mode(module, training=True), step.running():
            for at in range(steps.times):
                inputs, targets, weights = batches(sampler.draw(source, records))
                step(inputs, targets, weights, rule.learning_rate * course((at + 0.5) / steps.times), noise)
            assert step.average is not None
            step.flat.values.copy_(step.average)
    return _arrays(module.encoder, down[-1]), _arrays(module.decoder, up[-1])


def _module(down: Sequence[int], up: Sequence[int], how: Training, after: NDArray[np.float64] | None) -> AutoEncoder:
    fixed = None if after is None else torch.from_numpy(after.astype(np.float32))
    made: AutoEncoder
    if how.variational:
        made = VariationalAutoEncoder(down, up, how.known, fixed)
    else:
        made = AutoEncoder(down, up, how.jitter, how.known, fixed)
    first = made.encoder[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.mul_(how.gain)
    return made


def _with_divergence(loss: Loss, weight: float) -> Loss:
    """Return the loss of outputs whose last one is a divergence."""
    return lambda outputs, targets: loss(outputs[:, :-1], targets) + weight * outputs[:, -1]


def _in_ball(codes: Tensor) -> Tensor:
    inside: Tensor = codes / codes.norm(dim=1, keepdim=True).clamp(min=1.0)
    return inside


def _dense(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in Dense.shapes(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _arrays(network: nn.Sequential, outputs: int) -> Dense:
    """Return the layers as arrays, with the first outputs only."""
    layers = [one for one in network if isinstance(one, nn.Linear)]
    weights = [one.weight.detach().numpy().T.copy() for one in layers]
    biases = [one.bias.detach().numpy().copy() for one in layers]
    return Dense((*weights[:-1], weights[-1][:, :outputs]), (*biases[:-1], biases[-1][:outputs]))

"""What a private engine must do, as checks of the steps it makes, seen from outside.

A check is given a function that makes steps, reads nothing but the weights before and after, and
raises AssertionError if the engine is broken. What is random gives a false alarm less than once in
ten million runs (``ALARM`` for each of fewer than ten numbers); the rest is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from sfumato.budget.noise import grid_of
from sfumato.learners import Sgd
from sfumato.learners.dpsgd.steps import Step

ALARM = 1e-8
CLIP, EXPECTED, MULTIPLIER = 0.3, 11.0, 1.7


class Maker(Protocol):
    """Makes the step of an engine."""

    def __call__(self, module: nn.Module, loss: Any, rule: Any, *, clip: float, expected: float) -> Step: ...


class Sums(nn.Module):
    """Two layers whose gradients, for the loss below, are the two halves of the sample itself."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(wide // 2, 1, bias=False), nn.Linear(wide // 2, 1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        first, second = inputs.chunk(2, 1)
        return self.first(first) + self.second(second)


def outputs_alone(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.squeeze(1)


class Bench:
    """An engine on a model whose gradients are known; ``make_step`` returns what was added up, noise included."""

    def __init__(self, make: Maker, wide: int) -> None:
        self.module, self.wide = Sums(wide), wide
        self.step = make(self.module, outputs_alone, Sgd(learning_rate=1.0), clip=CLIP, expected=EXPECTED)

    def make_step(self, samples: Tensor, multiplier: float) -> NDArray[np.float64]:
        with self.step.running(), torch.no_grad():
            self.step.flat.values.zero_()
            self.step(samples, torch.zeros(len(samples)), None, 1.0, multiplier)
        moved = torch.cat([one.detach().flatten() for one in self.module.parameters()])
        return -moved.double().numpy() * EXPECTED


def clipping_holds(make: Maker) -> None:
    """Each sample counts with its gradient of all weights together, cut to the clip, and with no more."""
    torch.manual_seed(0)
    samples = torch.randn(6, 40) * torch.tensor([1e4, 1e-3, 1.0, 30.0, 0.04, 0.0])[:, None]
    samples[0, 20:] *= 3
    kept = samples * (CLIP / samples.norm(dim=1).clamp(min=CLIP))[:, None]
    bench = Bench(make, 40)
    for some, theirs in [(samples[:1], kept[:1]), (samples, kept)]:
        found = bench.make_step(some, 0.0)
        np.testing.assert_allclose(found, theirs.sum(0), rtol=1e-4, atol=1e-5)


def division_is_by_the_expected_batch(make: Maker) -> None:
    """The step divides by the batch that was expected, however many samples came."""
    bench = Bench(make, 10)
    one = torch.full((1, 10), 0.01)
    for count in (1, 3, 40):
        np.testing.assert_allclose(bench.make_step(one.repeat(count, 1), 0.0), 0.01 * count, rtol=1e-4)


def noise_has_the_stated_deviation(make: Maker) -> None:
    """Even a step without samples adds normal noise of clip times multiplier to the sum."""
    wide = 20_000
    noise = Bench(make, wide).make_step(torch.zeros(0, wide), MULTIPLIER) / (CLIP * MULTIPLIER)
    assert two_sided(stats.chi2(wide), float(np.square(noise).sum())) > ALARM, "the deviation"
    assert two_sided(stats.norm(0, wide**-0.5), float(noise.mean())) > ALARM, "the mean"
    cell = grid_of(CLIP * MULTIPLIER) / (CLIP * MULTIPLIER)  # it is rounded; spread over its cell it is normal again
    spread = noise + cell * np.random.default_rng(0).uniform(-0.5, 0.5, wide)
    assert stats.kstest(spread, "norm").pvalue > ALARM, "the distribution"


def noise_is_new_in_every_step(make: Maker) -> None:
    """The noise of a step has nothing to do with that of another, nor that of a weight with its neighbour's.

    If it is new, its product with the direction of anything fixed is a standard normal number.
    """
    wide, steps = 4000, 3
    bench = Bench(make, wide)
    noise = [bench.make_step(torch.zeros(2, wide), MULTIPLIER) / (CLIP * MULTIPLIER) for _ in range(steps)]
    for one, other in itertools.combinations(noise, 2):
        assert two_sided(stats.norm(), float(one @ other / np.linalg.norm(other))) > ALARM, "between steps"
    for one in noise:
        assert two_sided(stats.norm(), float(one[0::2] @ one[1::2] / np.linalg.norm(one[1::2]))) > ALARM, "neighbours"


def two_sided(distribution: Any, value: float) -> float:
    """Return the probability of a value that is as far out."""
    return 2 * min(float(distribution.cdf(value)), float(distribution.sf(value)))


CHECKS: tuple[Callable[[Maker], None], ...] = (
    clipping_holds,
    division_is_by_the_expected_batch,
    noise_has_the_stated_deviation,
    noise_is_new_in_every_step,
)


def failed(make: Maker) -> set[str]:
    """Return the names of the checks that an engine fails."""
    found = set()
    for check in CHECKS:
        try:
            check(make)
        except AssertionError:
            found.add(check.__name__)
    return found

"""The checks of an engine pass on ours, and every engine that is broken on purpose fails the right one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato.budget import Source
from sfumato.learners.dpsgd.steps import HostNoise, Step
from sfumato.learners.gradients.clipping import ClippedSum
from tests.learners import engine_checks
from tests.learners.engine_checks import CHECKS, Maker, failed


def ours(module: Any, loss: Any, rule: Any, **options: Any) -> Step:
    return Step(module, loss, rule, HostNoise(Source()), **options)


def in_double(module: Any, loss: Any, rule: Any, **options: Any) -> Step:
    module.register_forward_pre_hook(lambda _, inputs: tuple(one.double() for one in inputs))
    return ours(module.double(), loss, rule, **options)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "make",
    [ours, partial(ours, micro_batch=2), partial(ours, averaging=0.5), in_double],
    ids=["plain", "micro-batches", "averaging", "double"],
)
def test_our_engine_passes(make: Maker, check: Any) -> None:
    check(make)


class Unclipped(Step):
    def _gradients(self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: Any = None) -> ClippedSum:
        return self.clipper(inputs, targets, weights, 1e20)


class ClippedAsOne(Step):
    """Clips the sum of the batch, as ordinary training does."""

    def _gradients(self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: Any = None) -> ClippedSum:
        found = self.clipper(inputs, targets, weights, 1e20)
        norm = torch.cat([one.flatten() for one in found.gradients]).norm()
        assert self.clip is not None
        factor = float(self.clip / norm.clamp(min=self.clip))
        return found._replace(gradients=[one * factor for one in found.gradients])


class ClippedByLayer(Step):
    """Clips the gradient of each weight for itself."""

    def _gradients(self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: Any = None) -> ClippedSum:
        assert self.clip is not None
        total = [torch.zeros_like(one) for one in self.clipper.parameters]
        for at in range(len(inputs)):
            alone = self.clipper(inputs[at : at + 1], targets[at : at + 1], None, 1e20).gradients
            for one, mine in zip(total, alone, strict=True):
                one += mine * (self.clip / mine.norm().clamp(min=self.clip))
        return self.clipper(inputs, targets, weights, self.clip)._replace(gradients=total)


class DividedByRealised(Step):
    def __call__(self, inputs: Tensor, *rest: Any, **options: Any) -> Tensor:
        self.expected = float(max(len(inputs), 1))
        return super().__call__(inputs, *rest, **options)


class EmptySkipped(Step):
    def __call__(self, inputs: Tensor, *rest: Any, **options: Any) -> Tensor:
        return super().__call__(inputs, *rest, **options) if len(inputs) else torch.zeros(())


class NotInClips(Step):
    """Noise in proportion to the multiplier alone, whatever the clip is."""

    def __call__(self, inputs: Tensor, targets: Tensor, weights: Any, rate: Any, noise: Any, **options: Any) -> Tensor:
        assert self.clip is not None
        return super().__call__(inputs, targets, weights, rate, noise / self.clip, **options)


class Weak(HostNoise):
    def __init__(self, times: float) -> None:
        super().__init__(Source())
        self.times = times

    def add(self, values: Tensor, scale: Tensor) -> None:
        super().add(values, scale / self.times)


class Repeated(HostNoise):
    """Begins anew in every step."""

    def __init__(self) -> None:
        super().__init__(Source(insecure_seed=7))

    def add(self, values: Tensor, scale: Tensor) -> None:
        self.source = Source(insecure_seed=7)
        super().add(values, scale)


class Mirrored(HostNoise):
    """Takes away in a step what the one before added."""

    def __init__(self) -> None:
        super().__init__(Source())
        self.before: Tensor | None = None

    def add(self, values: Tensor, scale: Tensor) -> None:
        if self.before is not None:
            values -= self.before
            self.before = None
        else:
            noise = torch.zeros_like(values)
            super().add(noise, scale)
            values += noise
            self.before = noise


class InPairs(HostNoise):
    """Uses every number for two weights."""

    def add(self, values: Tensor, scale: Tensor) -> None:
        half = torch.zeros_like(values[::2])
        super().add(half, scale)
        values += half.repeat_interleave(2)[: len(values)]


def broken(kind: type[Step] = Step, noise: Any = None) -> Maker:
    def make(module: Any, loss: Any, rule: Any, **options: Any) -> Step:
        return kind(module, loss, rule, noise() if noise else HostNoise(Source()), **options)

    return make


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (broken(Unclipped), "clipping_holds"),
        (broken(ClippedAsOne), "clipping_holds"),
        (broken(ClippedByLayer), "clipping_holds"),
        (broken(DividedByRealised), "division_is_by_the_expected_batch"),
        (broken(EmptySkipped), "noise_has_the_stated_deviation"),
        (broken(NotInClips), "noise_has_the_stated_deviation"),
        (broken(noise=lambda: Weak(10)), "noise_has_the_stated_deviation"),
        (broken(noise=lambda: Weak(1.5)), "noise_has_the_stated_deviation"),
        (broken(noise=lambda: Weak(1.1)), "noise_has_the_stated_deviation"),
        (broken(noise=Repeated), "noise_is_new_in_every_step"),
        (broken(noise=Mirrored), "noise_is_new_in_every_step"),
        (broken(noise=lambda: InPairs(Source())), "noise_is_new_in_every_step"),
    ],
    ids=[
        *("no clipping", "clipped as one", "clipped by layer", "divided by the realised batch", "empty batch skipped"),
        *("noise without the clip", "noise 10 times too small", "noise 1.5 times too small", "1.1 times too small"),
        *("noise reused", "noise taken back", "noise used twice"),
    ],
)
def test_an_engine_that_is_broken_fails_the_right_check(make: Maker, check: str) -> None:
    assert check in failed(make)


@pytest.mark.parametrize("times", [10, 1.5])
def test_too_little_noise_is_all_that_is_wrong_with_it(times: float) -> None:
    assert failed(broken(noise=lambda: Weak(times))) == {"noise_has_the_stated_deviation"}


def test_the_checks_know_no_engine_by_its_insides() -> None:
    assert engine_checks.ALARM * 10 < 1e-6
    assert failed(ours) == set()

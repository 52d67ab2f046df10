"""A private step: parts of a batch, views, averages, a clip that follows, and memory that does not suffice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sfumato as sf
from sfumato.budget import Composed, Gaussian, PoissonSampled, Repeated, spent
from sfumato.learners import Adam, AdaptiveClip, Sgd, private_step
from sfumato.learners.dpsgd.steps import Step
from sfumato.learners.gradients.clipping import cross_entropy


class Silent:
    """Adds nothing, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    def add(self, values: Tensor, scale: Tensor) -> None:
        self.asked.append((values.numel(), float(scale)))


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batch(samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 4, generator=made, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (samples,), generator=made)


def step_of(module: nn.Module, **options: Any) -> Step:
    options = {"clip": 0.5, "expected": 8.0, "noise": Silent(), "optimizer": Sgd(learning_rate=1.0), **options}
    return Step(module, options.pop("loss", cross_entropy), **options)


def weights_of(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def moved(step: Step, *given: Any, noise: float = 0.0) -> Tensor:
    """Return by how much the weights go down in a step of rate 1."""
    before = weights_of(step.module)
    with step.running():
        step(*given, 1.0, noise)
    return before - weights_of(step.module)


def summed(module: nn.Module, inputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    found = private_step(module, cross_entropy, inputs, targets, weights, clip=0.5)
    return torch.cat([one.reshape(-1) for one in found.values()])


@pytest.mark.parametrize("micro_batch", [None, 1, 3, 7, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_a_batch_give_the_sum_of_the_batch(micro_batch: int | None, weighted: bool) -> None:
    inputs, targets = batch(7)
    weights = torch.tensor([1, 0, 1, 1, 0.5, 1, 0], dtype=torch.float64) if weighted else None
    step = step_of(net(), micro_batch=micro_batch)
    found = moved(step, inputs, targets, weights)
    torch.testing.assert_close(found, summed(net(), inputs, targets, weights) / 8, rtol=1e-10, atol=1e-14)


def test_the_loss_is_the_mean_over_the_samples_that_count() -> None:
    inputs, targets = batch(5)
    weights = torch.tensor([1, 1, 0, 1, 1], dtype=torch.float64)
    expected = cross_entropy(net()(inputs), targets)[weights == 1].mean()
    for micro_batch in (None, 2):
        step = step_of(net(), micro_batch=micro_batch)
        with step.running():
            torch.testing.assert_close(step(inputs, targets, weights, 1.0, 0.0), expected.detach())


class Small(nn.Module):
    """A model for which memory suffices up to a number of samples."""

    def __init__(self, most: int, error: Callable[[], RuntimeError]) -> None:
        super().__init__()
        self.inner, self.most, self.error = net(), most, error

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > self.most:
            raise self.error()
        return self.inner(inputs)


ERRORS: list[Callable[[], RuntimeError]] = [
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
]


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("most", [2, 3, 4, 6, 100])
@pytest.mark.parametrize("error", ERRORS, ids=["of the device", "of this process"])
def test_a_batch_that_does_not_fit_into_memory_is_divided(
    error: Callable[[], RuntimeError], most: int, views: int
) -> None:
    inputs, targets = batch(11 * views)
    step, whole = step_of(Small(most, error), views=views), step_of(net(), views=views)
    torch.testing.assert_close(moved(step, inputs, targets, None), moved(whole, inputs, targets, None))
    assert step.micro_batch is None if most == 100 else step.micro_batch is not None
    assert most == 100 or (step.micro_batch or 0) * views <= most


def test_memory_that_does_not_suffice_for_one_sample_is_told_in_one_sentence() -> None:
    step = step_of(Small(0, ERRORS[0]))
    with pytest.raises(sf.errors.ModelError) as caught:
        moved(step, *batch(11), None)
    assert caught.value.message == "there is not enough memory for the gradient of a single sample"


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        moved(step_of(Small(0, lambda: RuntimeError("something else"))), *batch(4), None)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_the_mean_gradient_of_several_views_is_clipped(micro_batch: int | None) -> None:
    inputs, targets = batch(6)
    views = torch.stack([inputs, inputs.flip(1), inputs * 3], 1).flatten(0, 1)
    found = moved(step_of(net(), views=3, micro_batch=micro_batch), views, targets.repeat_interleave(3), None)
    expected = torch.zeros_like(found)
    module = net()
    for at in range(6):
        some, theirs = views[3 * at : 3 * at + 3], targets[at].repeat(3)
        own = torch.autograd.grad(cross_entropy(module(some), theirs).mean(), list(module.parameters()))
        flat = torch.cat([one.reshape(-1) for one in own])
        expected += flat * min(1.0, 0.5 / float(flat.norm())) / 8
    torch.testing.assert_close(found, expected)


def test_averages_of_the_weights_begin_quickly_and_then_decay() -> None:
    module = net()
    step = step_of(module, averaging=0.25, optimizer=Sgd(learning_rate=1.0, momentum=0.5))
    average = weights_of(module)
    with step.running():
        for at in range(1, 6):
            step(*batch(6, seed=at), None, 1.0, 0.0)
            kept = min((1 + at) / (10 + at), 0.25)
            average = kept * average + (1 - kept) * step.flat.values
        own = weights_of(module)
        with step.averaged():
            torch.testing.assert_close(weights_of(module), average)
        assert torch.equal(weights_of(module), own)
    assert not torch.allclose(own, average)


def test_without_a_clip_a_step_is_an_ordinary_one() -> None:
    inputs, targets = batch(8)
    other, rule = net(), Adam(learning_rate=0.01)
    optimiser = torch.optim.Adam(other.parameters(), 0.01)
    silent = Silent()
    step = step_of(net(), clip=None, optimizer=rule, noise=silent)
    with step.running():
        for _ in range(3):
            step(inputs, targets, None, 0.01, 5.0)
            optimiser.zero_grad()
            cross_entropy(other(inputs), targets).mean().backward()
            optimiser.step()
    torch.testing.assert_close(weights_of(step.module), weights_of(other))
    assert silent.asked == []


# --- nothing is skipped ---


def test_an_empty_batch_still_adds_noise_and_steps() -> None:
    noise = Silent()
    step = step_of(net(), noise=noise, optimizer=Sgd(learning_rate=1.0, momentum=0.9), averaging=0.9)
    with step.running():
        step(*batch(8), None, 1.0, 2.0)
        before = step.flat.values.clone()
        loss = step(*batch(0), None, 1.0, 2.0)
        assert not torch.equal(step.flat.values, before)  # the velocity goes on
    assert math.isnan(float(loss))
    assert noise.asked == [(43, pytest.approx(1.0))] * 2  # twice the clip
    assert float(step.state["taken"]) == 2


def test_a_batch_of_nothing_but_filling_is_an_empty_one() -> None:
    inputs, targets = batch(8)
    found = moved(step_of(net()), inputs, targets, torch.zeros(8, dtype=torch.float64))
    assert float(found.abs().max()) == 0


@pytest.mark.parametrize("samples", [1, 5, 30])
def test_sums_are_divided_by_the_batch_that_was_expected(samples: int) -> None:
    inputs, targets = batch(samples)
    found = moved(step_of(net(), expected=3.7), inputs, targets, None)
    torch.testing.assert_close(found * 3.7, summed(net(), inputs, targets))


def test_of_several_processes_one_adds_the_noise_to_what_all_have_summed() -> None:
    inputs, targets = batch(9)
    shared: list[Tensor] = []
    noise = Silent()
    for noisy in (True, False):
        step = step_of(
            net(), noise=noise, reduce=lambda values: values.mul_(2), share=lambda one: shared.append(one.clone())
        )
        with step.running():
            step(inputs, targets, None, 1.0, 1.0, noisy=noisy)
    assert len(noise.asked) == 1
    for one in shared:
        torch.testing.assert_close(one, 2 * summed(net(), inputs, targets))


def test_half_precision_in_the_passes_leaves_weights_and_clip_in_full() -> None:
    module = net().float()
    step = step_of(module, precision=torch.bfloat16, expected=1.0)
    inputs, targets = batch(1)
    found = moved(step, 1e4 * inputs.float(), targets, None)
    assert found.dtype == torch.float32
    assert float(found.norm()) == pytest.approx(0.5, rel=1e-4)


def test_after_the_steps_a_model_is_as_any_other() -> None:
    module = net()
    step = step_of(module)
    moved(step, *batch(4), None)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())
    assert len({one.untyped_storage().data_ptr() for one in module.parameters()}) == 4
    assert all(one.is_leaf and one.grad is None for one in module.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "the clip must be a finite number above 0, got 0.0"),
        ({"clip": math.inf}, "the clip must be a finite number above 0, got inf"),
        ({"clip": math.nan}, "the clip must be a finite number above 0, got nan"),
        ({"expected": 0.0}, "the expected batch must be a finite number above 0, got 0.0"),
        ({"expected": -3.0}, "the expected batch must be a finite number above 0, got -3.0"),
    ],
)
def test_a_clip_or_a_batch_that_is_none_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(sf.errors.OptionError) as caught:
        step_of(net(), **options)
    assert caught.value.message == message


# --- the clip that follows ---


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [1e-3, 1e3])
def test_the_clip_follows_its_quantile(quantile: float, start: float) -> None:
    """Norms that do not change: samples are their own gradients."""
    norms = torch.linspace(1, 5, 101, dtype=torch.float64)
    inputs = torch.eye(4, dtype=torch.float64)[torch.arange(101) % 4] * norms[:, None]
    step = step_of(
        nn.Linear(4, 1, bias=False).double(),
        loss=lambda outputs, _: outputs.squeeze(1),
        clip=start,
        expected=101.0,
        adaptive=AdaptiveClip(quantile=quantile, rate=0.2, count_noise=0.05),
    )
    with step.running():
        for _ in range(400):
            step(inputs, torch.zeros(101), None, 1.0, 0.0)
    assert step.clip is not None
    assert float(step.clip) == pytest.approx(float(norms.quantile(quantile)), rel=0.05)


def test_a_step_of_the_clip_is_as_published() -> None:
    inputs, targets = batch(10)
    norms = step_of(net()).clipper(inputs, targets).norms
    clip = float(norms.sort().values[6]) * 1.0001  # seven of ten are below
    for micro_batch in (None, 3):
        step = step_of(net(), clip=clip, expected=10.0, adaptive=AdaptiveClip(), micro_batch=micro_batch)
        noise = step.noise
        moved(step, inputs, targets, None, noise=2.0)
        assert step.clip is not None
        assert float(step.clip) == pytest.approx(clip * math.exp(-0.2 * (0.7 - 0.5)))
        assert isinstance(noise, Silent)
        assert noise.asked == [(43, pytest.approx(2 * clip)), (1, pytest.approx(0.5))]  # 0.05 of 10


def test_filling_and_empty_batches_do_not_count_for_the_clip() -> None:
    inputs, targets = batch(10)
    weights = (torch.arange(10) < 4).double()
    padded, alone = (step_of(net(), expected=4.0, adaptive=AdaptiveClip()) for _ in range(2))
    moved(padded, inputs, targets, weights)
    moved(alone, inputs[:4], targets[:4], None)
    assert padded.clip is not None
    assert alone.clip is not None
    assert float(padded.clip) == pytest.approx(float(alone.clip))
    empty = step_of(net(), adaptive=AdaptiveClip(quantile=0.3))
    moved(empty, *batch(0), None)
    assert empty.clip is not None
    assert float(empty.clip) == pytest.approx(0.5 * math.exp(-0.2 * (0.5 - 0.3)))


@pytest.mark.parametrize(("multiplier", "expected", "share"), [(1.0, 64.0, 0.05), (0.6, 12.0, 0.1), (5.0, 100.0, 0.03)])
def test_sum_and_count_together_cost_what_the_noise_multiplier_says(
    multiplier: float, expected: float, share: float
) -> None:
    of_sum = AdaptiveClip(count_noise=share).for_sum(multiplier, expected)
    deviation = share * expected
    assert 1 / multiplier**2 == pytest.approx(1 / of_sum**2 + 1 / (2 * deviation) ** 2)
    # The count, less one half of each sample, changes by one half: its multiplier is two deviations.
    both = Composed((Gaussian(of_sum), Gaussian(2 * deviation)))
    for steps in (1, 20):
        together, alone = Repeated(both, steps), Repeated(Gaussian(multiplier), steps)
        found, stated = spent(together, 1e-5).epsilon, spent(alone, 1e-5).epsilon
        assert found == pytest.approx(stated, rel=1e-3)
    assert of_sum > multiplier
    # On a Poisson sample both are of the same sample, one Gaussian of two parts: the event of the trainer.
    assert spent(PoissonSampled(0.01, Gaussian(multiplier)), 1e-5).epsilon < spent(Gaussian(multiplier), 1e-5).epsilon


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": 0.0}, "the quantile of the clip must be a number between 0 and 1, got 0.0"),
        ({"quantile": math.nan}, "the quantile of the clip must be a number between 0 and 1, got nan"),
        ({"rate": 0.0}, "the rate of the clip must be a finite number above 0, got 0.0"),
        ({"count_noise": math.inf}, "the noise on the count must be a finite number above 0, got inf"),
    ],
)
def test_a_bad_adaptive_clip_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(sf.errors.OptionError) as caught:
        AdaptiveClip(**options)
    assert caught.value.message == message


def test_a_count_with_too_little_noise_is_refused() -> None:
    with pytest.raises(
        sf.errors.OptionError, match=r"needs more noise than 0.05 of a batch of 8 with a noise multiplier of 1"
    ):
        AdaptiveClip().for_sum(1.0, 8)

"""A training costs what it says, pays before it draws, stops and continues, and leaves the module as it was."""

from __future__ import annotations

import copy
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import polars as pl
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import sfumato as sf
from sfumato.budget import Composed, Event, Gaussian, PoissonSampled, Repeated, spent
from sfumato.budget.noise import rounding_event
from sfumato.learners import Adam, AdaptiveClip, Optimization, Privacy, Report, Sgd, Trainer, make_private
from tests.budget.chance import assert_variance
from tests.learners.trainings import in_groups


def blobs(rows: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two groups that a line divides."""
    chance = torch.Generator().manual_seed(seed)
    targets = torch.arange(rows) % 2
    return torch.randn(rows, 3, generator=chance) + 4 * targets[:, None], targets


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def trainer_of(module: nn.Module | None = None, **options: Any) -> Trainer:
    chosen: dict[str, Any] = {
        "delta": 1e-4,
        "batch_size": 20,
        "epochs": 2,
        "optimizer": Sgd(learning_rate=0.5),
        **options,
    }
    if "epsilon" not in chosen:
        chosen.setdefault("noise_multiplier", 1.0)
    if "steps" in options and "epochs" not in options:
        del chosen["epochs"]
    return Trainer(module or linear(), **in_groups(**chosen))


def poisson(rate: float, noise: float, times: int, dimensions: int = 8) -> Repeated:
    """Return what steps on Poisson samples are: the eight weights of `linear` get noise that is rounded."""
    step: Event = PoissonSampled(rate, Gaussian(noise))
    return Repeated(Composed((step, rounding_event(dimensions, noise))), times)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sf.Ledger]:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    people = pl.DataFrame({"age": range(200)})
    with sf.Ledger.grant(people, epsilon=5.0, delta=1e-4, path=tmp_path / "some.ledger") as granted:
        yield granted


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


# --- what it costs ---


@pytest.mark.parametrize("batch_size", [None, 20])
def test_epsilon_is_at_most_the_target_and_that_of_dp_accounting(batch_size: int | None) -> None:
    trainer = trainer_of(epsilon=1.0, batch_size=batch_size, epochs=3)
    trainer.fit(*blobs())
    noise = trainer.noise_multiplier
    assert noise is not None
    one = dp_accounting.GaussianDpEvent(noise)
    event = dp_accounting.PoissonSampledDpEvent(0.1, one) if batch_size else one
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, trainer.done))
    assert 0.99 < trainer.spent.epsilon <= 1.0
    assert trainer.spent.epsilon == pytest.approx(accountant.get_epsilon(1e-4), rel=5e-3)


def test_the_noise_can_be_given_instead_of_epsilon() -> None:
    trainer = trainer_of(noise_multiplier=1.5)
    assert trainer.noise_multiplier == 1.5
    trainer.fit(*blobs())
    assert trainer.events == (poisson(0.1, 1.5, 20),)
    assert trainer.spent == spent(trainer.events, 1e-4)


def test_an_infinite_epsilon_trains_without_privacy_and_says_so() -> None:
    trainer = trainer_of(epsilon=math.inf, insecure_seed=1)
    (*_, last) = trainer.fit(*blobs(), validation=blobs(seed=1))
    assert not trainer.private
    assert trainer.spent.epsilon == last.epsilon == math.inf
    told = trainer.to_dict()
    assert (told["epsilon"], told["private"], told["clip"], told["noise_multiplier"]) == ("inf", False, None, 0.0)
    assert last.score is not None
    assert last.score > 0.9


def test_a_training_without_privacy_asks_for_no_delta_and_no_replacements() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    trainer = trainer_of(module, epsilon=math.inf, delta=0.5)
    assert len(trainer.fit(*blobs())) == 2


def test_convolutions_with_batch_normalisation_are_trained_without_privacy() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    trainer = trainer_of(module, epsilon=math.inf, epochs=1)
    assert len(trainer.fit(torch.randn(40, 1, 8, 8), torch.arange(40) % 2)) == 1


def test_a_training_without_privacy_cannot_be_charged(ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.OptionError, match="a training without privacy cannot be charged to a ledger"):
        trainer_of(epsilon=math.inf, ledger=ledger)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_uneven_noise_costs_at_most_the_target(batch_size: int | None) -> None:
    trainer = trainer_of(epsilon=2.0, batch_size=batch_size, steps=20, noise_schedule="linear")
    trainer.fit(*blobs())
    steps = [event.event.events[0] for event in trainer.events]  # type: ignore[attr-defined]
    scales = [step.event.scale if batch_size else step.scale for step in steps]
    assert len(scales) == 10
    assert scales == sorted(scales, reverse=True)
    assert 1.98 < trainer.spent.epsilon <= 2.0


def test_uneven_noise_leaves_one_report_per_epoch() -> None:
    trainer = trainer_of(noise_multiplier=2.0, noise_schedule="linear", epochs=2)
    assert [(told.epoch, told.step) for told in trainer.fit(*blobs())] == [(1, 10), (2, 20)]


def test_a_clip_that_adapts_is_charged_as_one_gaussian(ledger: sf.Ledger) -> None:
    trainer = trainer_of(clip=AdaptiveClip(), noise_multiplier=2.0, ledger=ledger, batch_size=100, steps=4)
    trainer.fit(*blobs())
    assert trainer.events == (poisson(0.5, 2.0, 4, dimensions=9),)  # the count is one more
    assert poisson(0.5, 2.0, 2, dimensions=9) in ledger.events


def test_the_sum_gets_the_noise_that_the_count_of_a_clip_that_adapts_leaves_it() -> None:
    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of = nn.Linear(1, 100_000, bias=False)

        def forward(self, values: Tensor) -> Tensor:
            return self.of(values).mean(1, keepdim=True)  # type: ignore[no-any-return]

    module = Zero()
    before = module.of.weight.detach().clone()
    adaptive = AdaptiveClip(start=2.0, count_noise=0.3)
    trainer = Trainer(
        module, delta=1e-3, steps=1, clip=adaptive, optimizer=Sgd(learning_rate=1.0),
        privacy=Privacy(noise_multiplier=4.0), optimization=Optimization(loss="squared-error"),
    )  # fmt: skip
    trainer.fit(torch.zeros(10, 1), torch.zeros(10))
    # Of count and sum together: 1 / 4**2 = 1 / 6**2 + 1 / sum**2; false alarm below 1e-8 (6 standard errors).
    deviation = 2.0 * (1 / 16 - 1 / 36) ** -0.5 / 10
    assert_variance((module.of.weight.detach() - before).flatten().double().numpy(), deviation**2, kurtosis=3.0)


def test_a_step_adds_the_stated_noise_also_if_its_batch_is_empty() -> None:
    module = nn.Linear(50_000, 1, bias=False)
    before = module.weight.detach().clone()
    trainer = Trainer(
        module, delta=1e-3, batch_size=1, steps=1, clip=0.5, optimizer=Sgd(learning_rate=1.0),
        privacy=Privacy(noise_multiplier=3.0, insecure_seed=3), optimization=Optimization(loss="squared-error"),
    )  # fmt: skip
    (told,) = trainer.fit(torch.zeros(2, 50_000), torch.zeros(2))
    assert_variance((module.weight.detach() - before).flatten().double().numpy(), 1.5**2, kurtosis=3.0)
    assert trainer.done == 1
    assert told.step == 1


def test_a_loss_that_is_not_known_is_no_number_in_json() -> None:
    told = Report(epoch=1, step=1, loss=math.nan, epsilon=math.inf, seconds=0.0)
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False)) == {
        "epoch": 1, "step": 1, "loss": None, "epsilon": "inf", "seconds": 0.0, "score": None,
    }  # fmt: skip
    assert Report(epoch=1, step=1, loss=math.inf, epsilon=1.0, seconds=0.0).to_dict()["loss"] == "inf"


def test_everything_told_is_json() -> None:
    trainer = trainer_of(epsilon=1.0, clip=AdaptiveClip(count_noise=0.5), optimizer=Adam(), insecure_seed=1)
    trainer.fit(*blobs(), validation=blobs(seed=1))
    told = json.loads(json.dumps(trainer.to_dict(), allow_nan=False))
    assert told["sampling"] == {"kind": "poisson", "rate": 0.1, "rows": 200, "steps": 20}
    assert told["relation"] == "add-remove"
    assert told["private"] is False, "its noise can be made again"
    assert [one["step"] for one in told["history"]] == [10, 20]
    assert told["epsilon"] == trainer.spent.epsilon


# --- the ledger ---


def test_every_epoch_is_charged_before_its_noise_is_drawn(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger)
    seen: list[int] = []
    trainer.fit(*blobs(), progress=lambda _: seen.append(len(ledger.events)))
    assert seen == [1] * 10 + [2] * 10
    assert ledger.events == (poisson(0.1, 1.0, 10),) * 2
    assert ledger.spent.epsilon == pytest.approx(trainer.spent.epsilon, rel=1e-9)


def test_a_refused_charge_stops_the_training_with_nothing_more_released(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger, noise_multiplier=1.0, epochs=50)
    weights: list[dict[str, Tensor]] = []
    with pytest.raises(sf.errors.BudgetError, match="would exceed the limit"):
        trainer.fit(*blobs(), report=lambda _: weights.append(copy.deepcopy(trainer.module.state_dict())))
    assert len(weights) == len(trainer.history) == len(ledger.events) > 0
    assert all(torch.equal(one, weights[-1][name]) for name, one in trainer.module.state_dict().items())
    assert trainer.done == 10 * len(weights)
    assert ledger.spent.epsilon == pytest.approx(trainer.spent.epsilon, rel=1e-9)
    assert ledger.spent.epsilon <= 5.0


def test_a_charge_refused_at_once_leaves_the_weights_as_they_were(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger, noise_multiplier=0.01)
    before = copy.deepcopy(trainer.module)
    with pytest.raises(sf.errors.BudgetError):
        trainer.fit(*blobs())
    assert same(before, trainer.module)
    assert trainer.events == ()


def test_an_early_stop_tells_and_charges_only_the_steps_made(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger, epsilon=1.0, epochs=5)
    reports = trainer.fit(*blobs(), stop=lambda told: told.epoch == 2)
    assert [told.step for told in reports] == [10, 20]
    assert trainer.events[0].times == sum(event.times for event in ledger.events) == 20  # type: ignore[attr-defined]
    assert trainer.spent.epsilon == reports[-1].epsilon < 1.0
    trainer.fit(*blobs())
    assert trainer.done == 50, "it can be taken up again"
    assert 0.99 < trainer.spent.epsilon <= 1.0


# --- more of it ---


def test_more_steps_have_the_noise_of_before_and_the_cost_grows() -> None:
    trainer = trainer_of(epsilon=1.0)
    trainer.fit(*blobs())
    noise, cost = trainer.noise_multiplier, trainer.spent.epsilon
    trainer.extend(steps=7).fit(*blobs())
    assert trainer.done == 27
    assert trainer.noise_multiplier == noise
    assert len(trainer.events) == 1
    assert trainer.spent.epsilon > cost


def test_more_steps_after_uneven_noise_have_the_last_noise() -> None:
    trainer = trainer_of(batch_size=None, steps=20, epsilon=2.0, noise_schedule="linear")
    trainer.fit(*blobs())
    last = trainer.noise_multiplier
    trainer.extend(steps=5).fit(*blobs())
    assert trainer.noise_multiplier == last
    assert trainer.events[-1].times == 7  # type: ignore[attr-defined]


def test_more_budget_is_never_exceeded_by_all_steps_together() -> None:
    trainer = trainer_of(epsilon=1.0)
    trainer.fit(*blobs())
    trainer.extend(epochs=1, epsilon=2.0).fit(*blobs())
    assert trainer.done == 30
    assert 1.98 < trainer.spent.epsilon <= 2.0
    assert [told.epoch for told in trainer.history] == [1, 2, 3]


def test_more_budget_before_the_first_step_is_the_budget() -> None:
    trainer = trainer_of(epsilon=1.0, batch_size=None).extend(steps=5, epsilon=2.0)
    trainer.fit(*blobs())
    assert trainer.done == 5
    assert 1.98 < trainer.spent.epsilon <= 2.0


def test_less_budget_than_is_spent_is_refused() -> None:
    trainer = trainer_of(epsilon=1.0)
    trainer.fit(*blobs())
    with pytest.raises(sf.errors.OptionError, match=r"epsilon must be above the 1 already spent, got 0.5"):
        trainer.extend(steps=5, epsilon=0.5).fit(*blobs())


def test_a_training_without_privacy_is_given_no_epsilon_later() -> None:
    trainer = trainer_of(epsilon=math.inf)
    with pytest.raises(sf.errors.OptionError, match="without privacy"):
        trainer.extend(steps=5, epsilon=1.0)


def test_a_training_continues_with_as_many_samples() -> None:
    trainer = trainer_of()
    trainer.fit(*blobs())
    with pytest.raises(sf.errors.OptionError, match="as many samples as it began with"):
        trainer.extend(steps=1).fit(*blobs(199))


def test_data_that_was_refused_does_not_bind_a_training() -> None:
    trainer = trainer_of()
    inputs, targets = blobs(100)
    with pytest.raises(sf.errors.OptionError):
        trainer.fit(inputs, targets + 1)
    trainer.fit(*blobs())
    assert trainer.done == 20


# --- interruptions ---


def _interrupted(trainer: Trainer, after: int, error: type[BaseException]) -> None:
    made = []

    def told(_: float) -> None:
        made.append(1)
        if len(made) == after:
            raise error

    with pytest.raises(error):
        trainer.fit(*blobs(), progress=told)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_was_made_when_a_training_is_interrupted_is_accounted_for(
    ledger: sf.Ledger, error: type[BaseException]
) -> None:
    trainer = trainer_of(ledger=ledger)
    _interrupted(trainer, 13, error)
    assert trainer.done == 13
    assert trainer.events == (poisson(0.1, 1.0, 13),)
    assert sum(event.times for event in ledger.events) == 20, "what was charged stays charged"  # type: ignore[attr-defined]
    assert not any(one._forward_hooks for one in trainer.module.modules())
    trainer.fit(*blobs())
    assert trainer.done == 20
    assert sum(event.times for event in ledger.events) == 20, "and is not charged twice"  # type: ignore[attr-defined]
    assert [told.step for told in trainer.history] == [10, 20]


def test_a_step_that_fails_on_its_way_counts_as_made() -> None:
    def augment(some: Tensor) -> Tensor:
        if trainer.done == 3:
            raise ZeroDivisionError
        return some

    trainer = trainer_of(augment=augment)
    with pytest.raises(ZeroDivisionError):
        trainer.fit(*blobs())
    assert trainer.done == 3


def test_an_interrupted_training_with_an_average_goes_on_from_its_own_weights() -> None:
    def run(*, interrupted: bool) -> nn.Module:
        trainer = trainer_of(averaging=0.9, insecure_seed=1, epochs=1)
        trainer.fit(*blobs())
        trainer.extend(steps=10)
        if interrupted:
            _interrupted(trainer, 4, KeyboardInterrupt)
        trainer.fit(*blobs())
        return trainer.module

    assert same(run(interrupted=False), run(interrupted=True))


def test_a_report_that_fails_leaves_the_epoch_in_the_history() -> None:
    trainer = trainer_of()
    with pytest.raises(ZeroDivisionError):
        trainer.fit(*blobs(), report=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert [told.step for told in trainer.history] == [10]
    trainer.fit(*blobs())
    assert [told.step for told in trainer.history] == [10, 20]


# --- averages, and what is left of it all ---


def test_the_module_has_the_average_afterwards_and_training_goes_on_from_the_weights() -> None:
    plain, averaged = (trainer_of(averaging=decay, insecure_seed=1, epochs=1) for decay in (None, 0.9))
    for trainer in (plain, averaged):
        trainer.fit(*blobs())
    assert not same(plain.module, averaged.module)
    weights: list[Tensor] = []
    for trainer in (plain, averaged):
        trainer.extend(steps=1)
        trainer.fit(*blobs(), progress=lambda _, trainer=trainer: weights.append(trainer.module.weight.clone()))  # type: ignore[misc]
    assert torch.equal(*weights)


def test_weights_that_a_user_puts_in_are_trained_on() -> None:
    trainer = trainer_of(batch_size=None, noise_multiplier=1e-3, optimizer=Sgd(learning_rate=1e-6))
    trainer.fit(*blobs())
    with torch.no_grad():
        trainer.module.weight.fill_(7.0)
    trainer.extend(steps=1).fit(*blobs())
    assert torch.allclose(trainer.module.weight, torch.tensor(7.0), atol=1e-3)


@pytest.mark.parametrize("layout", ["contiguous", "channels-last", "auto"])
def test_the_module_is_left_as_any_other(tmp_path: Path, layout: str) -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Dropout(), nn.Linear(64, 2))
    module[0].requires_grad_(False)
    module[3].eval()
    parameters = list(module.parameters())
    modes = [one.training for one in module.modules()]
    trainer = trainer_of(module, memory_format=layout, epochs=1)
    trainer.fit(
        torch.randn(40, 2, 8, 8), torch.arange(40) % 2, validation=(torch.randn(4, 2, 8, 8), torch.ones(4).long())
    )
    assert trainer.module is module
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
    assert [one.training for one in module.modules()] == modes
    assert not any(one._forward_hooks for one in module.modules())
    assert all(one.is_contiguous() and one.untyped_storage().nbytes() == one.nbytes for one in parameters)
    save_file(module.state_dict(), tmp_path / "module.safetensors")
    assert all(torch.equal(module.state_dict()[k], v) for k, v in load_file(tmp_path / "module.safetensors").items())
    torch.save(module.state_dict(), tmp_path / "module.pt")
    assert same(copy.deepcopy(module), module)


def test_the_mode_of_the_module_is_restored_when_scoring_fails() -> None:
    trainer = trainer_of()
    trainer.fit(*blobs())
    with pytest.raises(sf.SfumatoError):
        trainer.score(torch.randn(4, 5), torch.zeros(4).long())
    assert trainer.module.training


def test_layers_are_replaced_in_a_copy() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(
        sf.errors.ModelError, match=r"layer '1': BatchNorm1d mixes .* put GroupNorm\(1, 4\) in its place"
    ):
        trainer_of(module)
    before = copy.deepcopy(module)
    trainer = trainer_of(make_private(module))
    trainer.fit(*blobs())
    assert isinstance(trainer.module[1], nn.GroupNorm)  # type: ignore[index]
    assert same(module, before)
    assert isinstance(trainer_of(make_private(module), epsilon=math.inf).module[1], nn.GroupNorm)  # type: ignore[index]


def test_a_module_that_mixes_samples_only_while_it_is_trained_is_refused() -> None:
    class Mixes(nn.Linear):
        def forward(self, values: Tensor) -> Tensor:
            return super().forward(values - values.mean(0) if self.training else values)

    with pytest.raises(sf.errors.ModelError, match="mixes the samples"):
        trainer_of(Mixes(3, 2).eval()).fit(*blobs())


# --- seeds, threads, precision ---


def test_a_seed_of_noise_repeats_everything_and_none_repeats_nothing() -> None:
    def run(**options: Any) -> nn.Module:
        trainer = trainer_of(**options)
        trainer.fit(*blobs())
        return trainer.module

    assert same(run(insecure_seed=1), run(insecure_seed=1))
    assert not same(run(insecure_seed=1), run(insecure_seed=2))
    assert not same(run(seed=1), run(seed=1)), "a seed is not one of noise"


def test_a_seed_repeats_dropout_and_augmentation_whatever_was_drawn_before() -> None:
    def run(layout: str) -> nn.Module:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Dropout(), nn.Linear(8, 2))
        torch.rand(int(torch.randint(1, 9, ())))
        trainer = trainer_of(
            module,
            insecure_seed=1,
            seed=5,
            views=2,
            augment=lambda some: some + torch.randn_like(some),
            memory_format=layout,
        )
        trainer.fit(torch.ones(200, 1, 4, 4), torch.arange(200) % 2)
        return module

    assert same(run("contiguous"), run("contiguous"))
    # Two layouts add up in another order; another seed would be off by far more.
    assert torch.allclose(run("contiguous")[3].weight, run("channels-last")[3].weight, atol=1e-4)  # type: ignore[index]


def test_trainings_in_several_threads_do_not_disturb_each_other() -> None:
    def run(seed: int) -> nn.Module:
        module = nn.Linear(3, 2)
        with torch.no_grad():
            module.weight.fill_(0.1)
            module.bias.zero_()
        trainer = trainer_of(module, insecure_seed=seed, epsilon=1.0)
        trainer.fit(*blobs())
        assert 0.99 < trainer.spent.epsilon <= 1.0
        return module

    alone = [run(seed) for seed in range(4)]
    found: dict[int, nn.Module] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: run(seed)})) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(alone[seed], found[seed]) for seed in range(4))


def test_half_precision_trains_and_leaves_weights_of_full_precision() -> None:
    module = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    trainer = trainer_of(module, precision="float16", epochs=4, noise_multiplier=0.5, insecure_seed=1)
    (*_, last) = trainer.fit(*blobs(), validation=blobs(seed=1))
    assert last.score is not None
    assert last.score > 0.9
    assert module[0].weight.dtype == torch.float32


# --- data ---


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
@pytest.mark.parametrize("label", ["int64", "int32", "uint8", "bool", "int8"])
def test_arrays_of_every_number_train(kind: str, label: str) -> None:
    inputs, targets = (one.numpy() for one in blobs())
    trainer = trainer_of(noise_multiplier=0.3, insecure_seed=1)
    told = trainer.fit(inputs.astype(kind), targets.astype(label), validation=(inputs, targets))
    assert told[-1].score is not None
    assert told[-1].score > 0.9


def test_arrays_that_cannot_be_written_to_or_run_backwards_train() -> None:
    inputs, targets = (one.numpy()[::-1] for one in blobs())
    inputs.flags.writeable = False
    trainer_of().fit(inputs, targets)
    trainer_of().fit(pl.DataFrame(inputs), pl.Series(targets))


def test_images_of_bytes_become_numbers() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    assert len(trainer_of(module).fit(images, np.arange(40, dtype=np.uint8) % 2)) == 2


def test_words_stay_whole_numbers() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.out = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, words: Tensor) -> Tensor:
            return self.out(self.embedding(words).mean(1))  # type: ignore[no-any-return]

    words = np.random.default_rng(0).integers(0, 10, (200, 5))
    module = Words().double()
    told = trainer_of(module, noise_multiplier=0.3).fit(words, (words.mean(1) > 4.5).astype(int))
    assert len(told) == 2
    assert math.isfinite(told[-1].loss)


def test_a_module_of_doubles_is_trained_in_doubles() -> None:
    trainer = trainer_of(linear().double())
    trainer.fit(*(one.numpy() for one in blobs()))
    assert trainer.module.weight.dtype == torch.float64


@pytest.mark.parametrize("kind", ["float64", "float32", "int64"])
@pytest.mark.parametrize("shape", [(200,), (200, 1)])
def test_regression_is_scored_by_the_squared_error(kind: str, shape: tuple[int, ...]) -> None:
    inputs, _ = blobs()
    targets = (inputs.numpy() @ [1.0, 2.0, 3.0]).astype(kind).reshape(shape)
    trainer = trainer_of(
        nn.Linear(3, 1), loss="squared-error", batch_size=None, noise_multiplier=0.1, clip=100.0, steps=200,
        optimizer=Sgd(learning_rate=0.01, momentum=0.9), insecure_seed=1,
    )  # fmt: skip
    told = trainer.fit(inputs, targets, validation=(inputs, targets))
    assert told[-1].score is not None
    assert told[-1].score < 2.0
    outputs = trainer.module(inputs).detach().numpy().reshape(shape)
    assert told[-1].score == pytest.approx(float(((outputs - targets) ** 2).mean()), rel=1e-4)
    assert told[-1].score == pytest.approx(trainer.score(inputs, targets))


def test_the_mean_squared_error_is_over_samples_not_batches_of_them() -> None:
    trainer = trainer_of(nn.Linear(1, 1), loss="squared-error", noise_multiplier=1.0)
    with torch.no_grad():
        trainer.module.weight.fill_(1.0)
        trainer.module.bias.zero_()
    inputs = torch.cat([torch.zeros(1024, 1), torch.ones(512, 1)])
    assert trainer.score(inputs, torch.zeros(1536)) == pytest.approx(1 / 3)


def test_a_loss_of_ones_own_trains() -> None:
    def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
        return (1 - outputs.squeeze(1) * (2.0 * targets - 1)).relu()

    trainer = trainer_of(nn.Linear(3, 1), loss=hinge, noise_multiplier=0.3, insecure_seed=1)
    told = trainer.fit(*blobs(), validation=blobs(seed=1))[-1]
    assert told.loss < 0.5
    assert told.score is not None
    assert told.score > 0.9, "above 0 or not"


def test_a_loss_that_is_not_one_number_per_sample_is_refused_before_anything_is_charged(ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.OptionError, match=r"one number per sample, got the shape \(\) .*reduction=\"none\""):
        trainer_of(loss=nn.functional.cross_entropy, ledger=ledger).fit(*blobs())
    assert not ledger.events


def test_more_outputs_than_numbers_to_predict_are_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="returns 2 numbers per sample, but the targets have 1"):
        trainer_of(loss="squared-error").fit(*blobs())


def test_too_little_noise_on_a_count_is_refused_before_anything_is_charged(ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.OptionError, match="needs more noise"):
        trainer_of(clip=AdaptiveClip(count_noise=0.01), ledger=ledger).fit(*blobs())
    assert not ledger.events


NUMBERS, LABELS = blobs()


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (torch.full((200, 3), math.nan), LABELS, "the inputs contain missing or infinite numbers"),
        (torch.full((200, 3), math.inf), LABELS, "the inputs contain missing or infinite numbers"),
        (NUMBERS, LABELS + 1, "targets must be whole numbers from 0 to 1"),
        (NUMBERS, LABELS - 1, "targets must be whole numbers from 0 to 1"),
        (NUMBERS, torch.stack([LABELS, LABELS], 1), "targets must be one class per sample"),
        (NUMBERS, LABELS.float(), "targets must be whole numbers from 0 to 1"),
        (NUMBERS, LABELS[:-1], "there are 200 inputs and 199 targets"),
        (NUMBERS[:0], LABELS[:0], "there are no samples"),
        (torch.tensor(1.0), LABELS, "inputs must be one row per sample"),
        (NUMBERS, None, "the targets must be numbers"),
        ([["a", "b"]] * 200, LABELS, "the inputs must be numbers"),
        (NUMBERS, LABELS.reshape(100, 2), "there are 200 inputs and 100 targets"),
        (torch.randn(200, 4), LABELS, r"the model does not take inputs of shape 4 \(float32\)"),
        (NUMBERS.long(), LABELS, r"the model does not take inputs of shape 3 \(int64\)"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_trained_on_is_refused_in_one_sentence(inputs: Any, targets: Any, message: str) -> None:
    trainer = trainer_of()
    before = copy.deepcopy(trainer.module)
    with pytest.raises(sf.errors.InputError, match=message) as caught:
        trainer.fit(inputs, targets)
    assert "\n" not in str(caught.value)
    assert same(before, trainer.module)
    assert trainer.done == 0


def test_a_loader_of_batches_is_refused() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*blobs()), batch_size=20, shuffle=True)
    with pytest.raises(sf.errors.OptionError, match="the batches of a DataLoader are not Poisson samples"):
        trainer_of().fit(loader, None)


def test_validation_data_is_refused_before_anything_is_charged(ledger: sf.Ledger) -> None:
    inputs, targets = blobs()
    for validation in ((inputs, targets[:-1]), (inputs, targets + 1), (inputs[:, :2], targets)):
        with pytest.raises(sf.errors.InputError):
            trainer_of(ledger=ledger).fit(inputs, targets, validation=validation)
    assert not ledger.events


def test_a_delta_of_one_over_the_samples_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="delta must be below 1 / 200"):
        trainer_of(delta=1 / 200).fit(*blobs())


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(
        sf.errors.OptionError, match="the batch size must be at most the number of samples, 200, got 201"
    ):
        trainer_of(batch_size=201).fit(*blobs())


def test_a_batch_of_all_samples_is_one_of_rate_one() -> None:
    trainer = trainer_of(batch_size=200)
    trainer.fit(*blobs())
    assert trainer.done == 2
    assert trainer.spent.epsilon == pytest.approx(spent(Repeated(Gaussian(1.0), 2), 1e-4).epsilon, rel=1e-2)


def test_an_augmentation_that_changes_the_number_of_samples_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="augment must return as many samples as it gets"):
        trainer_of(augment=lambda some: some[:1]).fit(*blobs())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "give either epsilon or noise_multiplier"),
        ({"epsilon": None}, "give either epsilon or noise_multiplier"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number above 0"),
        ({"noise_multiplier": 0.0}, "the noise multiplier must be a finite number above 0"),
        ({"noise_multiplier": math.inf}, "the noise multiplier must be a finite number above 0"),
        ({"clip": -1.0}, "the clip must be a finite number above 0"),
        ({"delta": 0.0}, "delta must be a number between 0 and 1"),
        ({"batch_size": 2.5}, "the batch size must be a whole number of at least 1, got 2.5"),
        ({"batch_size": 0}, "the batch size must be a whole number"),
        ({"steps": 2, "epochs": 2}, "give either epochs or steps"),
        ({"epochs": None}, "give either epochs or steps"),
        ({"steps": 1.5, "epochs": None}, "the number of steps must be a whole number"),
        ({"epochs": -1}, "the number of epochs must be a finite number above 0"),
        ({"loss": "cross-entropie"}, "did you mean 'cross-entropy'"),
        ({"loss": ["cross-entropy"]}, "there is no loss"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"noise_schedule": "liner"}, "did you mean 'linear'"),
        ({"precision": "floaat16"}, "did you mean 'float16' or 'bfloat16'"),
        ({"memory_format": "channel-last"}, "did you mean 'channels-last'"),
        ({"memory_format": "automatic"}, "did you mean 'auto'"),
        ({"averaging": 1.0}, "averaging must be a number between 0 and 1"),
        ({"averaging": "much"}, "averaging must be a number between 0 and 1"),
        ({"views": 2}, "several views of a sample need augment"),
        ({"views": "2"}, "the number of views must be a whole number"),
        ({"micro_batch": 0}, "the micro-batch must be a whole number"),
        ({"insecure_seed": -1}, "the seed of noise must be a whole number of at least 0"),
        ({"seed": 1.5}, "the seed must be a whole number of at least 0"),
        ({"device": "gpu"}, "there is no device 'gpu'"),
        ({"noise_schedule": lambda way: -1.0}, "the noise schedule must be above 0"),
        ({"distributed": True}, "several processes can train together only after"),
        ({"optimizer": "adam"}, r"the optimizer must be one like Sgd\(\) or Adam\(\)"),
        ({"clip": True}, "the clip must be a finite number above 0"),
    ],
)
def test_options_outside_their_range_are_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=message) as caught:
        trainer_of(**options).fit(*blobs())
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    trainer = trainer_of(noise_multiplier=np.float32(1.0), clip=np.float64(1.0), batch_size=np.int64(20))
    trainer.fit(*blobs())
    assert json.dumps(trainer.to_dict())

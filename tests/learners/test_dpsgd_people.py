"""DP-SGD by person: the gradients of a person's rows are averaged and clipped once, and steps draw people.

By brute force, gradients are computed row by row, and averaged and clipped one person at a time.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

import sfumato as sf
from sfumato.budget import Source, spent
from sfumato.budget.people import draw_rows, for_people
from sfumato.learners import AdaptiveClip, Sgd, Trainer
from sfumato.learners.dpsgd import checkpoint as checkpoints
from sfumato.learners.dpsgd.samples import Samples
from sfumato.learners.dpsgd.sampling import FixedPoisson, Poisson
from sfumato.learners.gradients.clipping import Clipper
from sfumato.learners.gradients.people import People
from tests.budget.chance import assert_frequencies
from tests.learners.trainings import in_groups, killed, linear

CLIP = 0.3
COUNTS = [3, 1, 1, 4, 2, 1, 5, 1]
ROWS = sum(COUNTS)


class Tied(nn.Module):
    """One layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.twice(self.twice(self.once(inputs)).tanh()))


class Words(nn.Module):
    """An embedding, and layers with several positions."""

    def __init__(self, wide: int = 4) -> None:
        super().__init__()
        self.words, self.mixed, self.normal = nn.Embedding(7, wide, padding_idx=0), nn.Linear(wide, wide), nn.RMSNorm(4)
        self.last = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.normal(self.mixed(self.words(inputs)).tanh()).mean(1))


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))


def numbers() -> Tensor:
    return torch.randn(ROWS, 6)


def pictures(channels: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(ROWS, channels, 7, 7)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)), numbers),
    "without biases": (lambda: nn.Sequential(nn.Linear(6, 9, bias=False), nn.Linear(9, 3, bias=False)), numbers),
    "convolutions": (lambda: images(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3, groups=2)), pictures(2)),
    "single channel": (lambda: images(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh()), pictures(1)),
    "wide convolution": (lambda: images(nn.Conv2d(16, 130, 3, stride=3)), pictures(16)),
    "embedding": (Words, lambda: torch.randint(0, 7, (ROWS, 5))),
    "layer normalisation": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), numbers),
    "tied": (Tied, numbers),
    "unknown layer": (lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(4), nn.Linear(4, 3)), numbers),
    "wide positions": (
        lambda: nn.Sequential(nn.Linear(200, 150), nn.Tanh(), nn.Flatten(), nn.Linear(450, 3)),
        lambda: torch.randn(ROWS, 3, 200),
    ),
}


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def brute_force(module: nn.Module, inputs: Tensor, targets: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """Return the clipped sum and the norms of all people, one person at a time."""
    total, norms, at = torch.zeros(()), [], 0
    parameters = [one for one in module.parameters() if one.requires_grad]
    for count in counts:
        rows = slice(at, at + count)
        each = cross_entropy(module(inputs[rows]), targets[rows])
        gradients = [torch.autograd.grad(one, parameters, retain_graph=True) for one in each]
        mean = torch.stack([torch.cat([part.flatten() for part in one]) for one in gradients]).mean(0)
        norms.append(mean.norm())
        total = total + mean * min(1.0, CLIP / float(mean.norm()))
        at += count
    return total, torch.stack(norms)


def flat(gradients: list[Tensor]) -> Tensor:
    return torch.cat([one.flatten() for one in gradients])


def built(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(5)
    make, draw = CASES[name]
    module, inputs = make(), draw()
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    module.to(dtype)
    module(inputs)
    return module, inputs, torch.randint(0, 3, (ROWS,))


@pytest.mark.parametrize("most", [5, 40], ids=["few rows", "many rows"])
@pytest.mark.parametrize("name", CASES)
def test_the_mean_of_the_gradients_of_a_person_is_clipped(name: str, most: int) -> None:
    module, inputs, targets = built(name)
    expected, norms = brute_force(module, inputs, targets, COUNTS)
    assert bool((norms > CLIP).any())
    with Clipper(module, cross_entropy) as clipper:
        found = clipper(inputs, targets, None, CLIP, People(torch.tensor(COUNTS), most))
    torch.testing.assert_close(flat(found.gradients), expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_one_person_less_changes_the_sum_by_at_most_the_clip(name: str) -> None:
    module, inputs, targets = built(name, torch.float32)
    inputs = inputs * 50 if inputs.is_floating_point() else inputs
    with Clipper(module, cross_entropy) as clipper:

        def total(left_out: int | None) -> Tensor:
            kept = [at for at in range(len(COUNTS)) if at != left_out]
            rows = torch.arange(ROWS).split(COUNTS)
            some = torch.cat([rows[at] for at in kept])
            people = People(torch.tensor([COUNTS[at] for at in kept]), most=5)
            return flat(clipper(inputs[some], targets[some], None, CLIP, people).gradients)

        changes = [float((total(None) - total(at)).norm()) for at in range(len(COUNTS))]
    assert 0.5 * CLIP < max(changes) <= CLIP * 1.0001


@pytest.mark.parametrize("name", CASES)
def test_a_person_of_weight_zero_or_without_a_finite_gradient_changes_nothing(name: str) -> None:
    module, inputs, targets = built(name, torch.float32)
    people = People(torch.tensor(COUNTS), most=5)
    first, others = slice(0, COUNTS[0]), slice(COUNTS[0], None)
    with Clipper(module, cross_entropy) as clipper:
        without = clipper(inputs[others], targets[others], None, CLIP, People(people.counts[1:], most=5)).gradients
        weights = torch.ones(len(COUNTS))
        weights[0] = 0
        weightless = clipper(inputs, targets, weights, CLIP, people)
        torch.testing.assert_close(flat(weightless.gradients), flat(without), rtol=1e-4, atol=1e-5)
        if inputs.is_floating_point():
            broken = inputs.clone()
            broken[first][1] = torch.inf
            found = clipper(broken, targets, None, CLIP, people)
            torch.testing.assert_close(flat(found.gradients), flat(without), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_with_one_row_each_people_are_samples(name: str) -> None:
    module, inputs, targets = built(name)
    with Clipper(module, cross_entropy) as clipper:
        rows: Any = clipper(inputs, targets, None, CLIP)
        people: Any = clipper(inputs, targets, None, CLIP, People(torch.ones(ROWS, dtype=torch.int64), most=1))
    torch.testing.assert_close(flat(people.gradients), flat(rows.gradients), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(people.norms, rows.norms, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(people.losses, rows.losses)


def test_views_of_the_rows_of_a_person_are_averaged_too() -> None:
    module, inputs, targets = built("wide convolution")
    counts = [2, 1, 3, 3]  # each of two views
    expected, norms = brute_force(module, inputs, targets, [2 * one for one in counts])
    with Clipper(module, cross_entropy, views=2) as clipper:
        found = clipper(inputs, targets, None, CLIP, People(torch.tensor(counts), most=3))
    torch.testing.assert_close(flat(found.gradients), expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-8)


# --- training ---


def persons(rows: int = 120) -> NDArray[np.int64]:
    """The person of each row, in no order: people with one to about twelve rows, and rows of nobody."""
    codes = np.random.default_rng(4).geometric(0.2, rows) - 2
    codes[-1] = 30
    return codes


def table(rows: int = 120) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(2)
    return torch.randn(rows, 3, generator=chance), torch.arange(rows) % 2


def trained(people: Any = None, rows_per_person: int | None = None, **options: Any) -> Trainer:
    chosen: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-3, "steps": 8, "insecure_seed": 3, **options}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    trainer = Trainer(linear(), **in_groups(**chosen))
    trainer.fit(*table(), people=people, rows_per_person=rows_per_person)
    return trainer


def weights(trainer: Trainer) -> Tensor:
    return torch.cat([one.detach().flatten() for one in trainer.module.parameters()])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 30},
        {"batch_size": 30, "micro_batch": 7, "clip": AdaptiveClip(count_noise=0.5)},
        {"batch_size": 30, "augment": lambda some: some + 0.1 * torch.randn_like(some), "views": 2, "seed": 1},
        {"epsilon": 2.0, "noise_multiplier": None, "batch_size": 30, "averaging": 0.9},
        {"epsilon": math.inf, "noise_multiplier": None, "batch_size": 30},
    ],
    ids=["full", "poisson", "adaptive", "views", "calibrated", "not private"],
)
@pytest.mark.parametrize("codes", [np.arange(120)[::-1], np.full(120, -1)], ids=["all known", "nobody"])
def test_with_one_row_each_a_training_is_that_of_rows_bit_by_bit(options: dict[str, Any], codes: Any) -> None:
    rows, people = trained(**options), trained(codes, 1, **options)
    assert torch.equal(weights(rows), weights(people))
    assert people.events == tuple(for_people(event, 1) for event in rows.events)
    assert people.spent.epsilon == rows.spent.epsilon
    assert [one.loss for one in people.history] == pytest.approx([one.loss for one in rows.history], nan_ok=True)


def test_fixed_batches_are_of_people_too() -> None:
    rows = FixedPoisson.of(Poisson(1000, 0.1, dimensions=5), delta=1e-5, up_to=20)
    people = FixedPoisson.of(Poisson(1000, 0.1, dimensions=5, rows_per_person=3), delta=1e-5, up_to=20)
    assert np.array_equal(*(one.draw(Source(insecure_seed=1)) for one in (rows, people)))
    assert people.event(1.5) == for_people(rows.event(1.5), 1)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_the_cost_is_that_of_as_many_rows_as_there_are_people(batch_size: int | None) -> None:
    codes = persons()
    count = len(np.unique(codes[codes >= 0])) + int((codes < 0).sum())
    people = trained(codes, 4, batch_size=batch_size)
    rows = trained(batch_size=batch_size, rows=count)
    assert people.events == tuple(for_people(event, 1) for event in rows.events)
    assert people.to_dict()["sampling"] == {**rows.to_dict()["sampling"], "unit": "person", "rows_per_person": 4}
    with pytest.raises(sf.errors.OptionError, match=f"below 1 / {count}"):
        trained(codes, 4, delta=1 / count)


def test_people_are_drawn_as_a_whole_each_with_the_probability_of_the_rate() -> None:
    inputs, targets = torch.arange(120.0)[:, None].expand(-1, 3), table()[1]
    codes, bound = persons(), 4
    given = Samples.of(inputs, targets, linear(), cross_entropy).of_people(codes, bound)
    samples = given.drawn(draw_rows(codes, bound, Source(insecure_seed=1)))
    rows_of: dict[Any, set[int]] = {}
    for row in samples.inputs[:, 0].int().tolist():
        rows_of.setdefault(codes[row] if codes[row] >= 0 else ("nobody", row), set()).add(row)
    assert max(map(len, rows_of.values())) == bound
    assert len(samples) == len(given) == len(rows_of)
    sampler, source, draws = Poisson(len(samples), 0.3, rows_per_person=bound), Source(insecure_seed=2), 3000
    drawn: Counter[Any] = Counter()
    for _ in range(draws):
        batch = samples.batch(sampler, source, torch.float32)
        assert batch.people is not None
        assert len(batch.inputs) == int(batch.people.counts.sum())
        assert len(batch.inputs) % 8 == 0
        known = torch.ones(len(batch.people)) if batch.weights is None else batch.weights
        for rows, weight in zip(batch.inputs[:, 0].int().split(batch.people.counts.tolist()), known, strict=True):
            if weight:
                (owner,) = {codes[row] if codes[row] >= 0 else ("nobody", row) for row in rows.tolist()}
                assert set(rows.tolist()) == rows_of[owner]
                drawn[owner] += 1
    assert_frequencies(drawn, dict.fromkeys(rows_of, 0.3), draws)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_step_without_noise_is_the_mean_of_the_clipped_people(micro_batch: int | None) -> None:
    codes, (inputs, targets) = np.arange(120) // 3, table()
    expected, _ = brute_force(linear(), inputs, targets, [3] * 40)
    options = {"noise_multiplier": 1e-7, "steps": 1, "clip": CLIP, "optimizer": Sgd(learning_rate=1.0)}
    moved = weights(trained(codes, 3, **options, micro_batch=micro_batch))
    before = torch.cat([one.detach().flatten() for one in linear().parameters()])
    torch.testing.assert_close(before - moved, expected / 40, rtol=1e-4, atol=1e-6)


def rows_drawn(trainer: Trainer) -> list[int]:
    assert trainer._drawn is not None
    return trainer._drawn[1].tolist()


def test_rows_beyond_the_bound_are_drawn_once_and_in_secret() -> None:
    drawn = []
    for _ in range(2):
        trainer = Trainer(linear(), **in_groups(noise_multiplier=1.0, delta=1e-3, steps=2))
        trainer.fit(*table(), people=np.zeros(120, dtype=int), rows_per_person=5)
        (first,) = {tuple(rows_drawn(trainer))}
        trainer.extend(steps=2).fit(*table(), people=np.zeros(120, dtype=int), rows_per_person=5)
        assert tuple(rows_drawn(trainer)) == first
        assert len(first) == 5
        drawn.append(first)
    assert drawn[0] != drawn[1]  # equal once in 190 million times


def test_a_resumed_training_of_people_is_the_uninterrupted_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 20, "steps": 12, "clip": 0.5}
    whole = trained(persons(), 3, **options)
    first = Trainer(linear(), **in_groups(**_chosen(options)), checkpoint=tmp_path / "run")
    first.fit(*table(), people=persons(), rows_per_person=3, stop=lambda told: True)
    assert 0 < first.done < 12
    second = Trainer(linear(), **in_groups(**_chosen(options)), checkpoint=tmp_path / "run")
    second.fit(*table(), people=persons(), rows_per_person=3)
    assert torch.equal(weights(second), weights(whole))
    assert second.events == whole.events
    for people, bound in ((persons()[::-1].copy(), 3), (persons(), 4), (None, None)):
        other = Trainer(linear(), **in_groups(**_chosen(options)), checkpoint=tmp_path / "run")
        with pytest.raises(sf.errors.FileError, match="is of a training with another"):
            other.fit(*table(), people=people, rows_per_person=bound)


def _chosen(options: dict[str, Any]) -> dict[str, Any]:
    return {"noise_multiplier": 1.0, "delta": 1e-3, "insecure_seed": 3, **options}


def test_a_resumed_private_training_keeps_the_rows_that_it_drew(tmp_path: Path) -> None:
    codes = np.arange(120) % 4
    drawn = []
    for stop in (True, False):
        options = {"noise_multiplier": 1.0, "delta": 1e-3, "steps": 40, "batch_size": 2}
        trainer = Trainer(linear(), **in_groups(**options), checkpoint=tmp_path / "run")
        trainer.fit(*table(), people=codes, rows_per_person=6, stop=lambda told, stop=stop: stop)
        drawn.append(rows_drawn(trainer))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("people", "bound", "message"),
    [
        (np.arange(120), None, "people and rows_per_person go together"),
        (None, 2, "people and rows_per_person go together"),
        (np.arange(119), 2, "there are 120 inputs and 119 people"),
        (np.arange(120) / 2, 2, "people must be one whole number per row"),
        (np.arange(120), 0, "the rows of a person"),
    ],
)
def test_people_that_do_not_fit_are_refused_in_one_sentence(people: Any, bound: int | None, message: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=message) as caught:
        trained(people, bound)
    assert "\n" not in str(caught.value)


def test_a_training_continues_with_people_as_it_began() -> None:
    trainer = trained(persons(), 3)
    with pytest.raises(sf.errors.OptionError, match="continues with"):
        trainer.extend(steps=2).fit(*table(), people=persons(), rows_per_person=4)


def test_a_ledger_of_rows_refuses_people_before_anything_is_learnt(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    for unit in ("row", "person"):
        frame = pl.DataFrame({"age": [1, 2]})
        ledger = sf.Ledger.grant(frame, epsilon=50.0, delta=1e-3, unit=unit, path=tmp_path / f"{unit}.ledger")
        if unit == "row":
            with pytest.raises(sf.errors.SfumatoError, match="person"):
                trained(persons(), 3, ledger=ledger, insecure_seed=None)
            assert not ledger.events
        else:
            people = trained(persons(), 3, ledger=ledger, insecure_seed=None)
            assert spent(ledger.events, 1e-3).epsilon == pytest.approx(people.spent.epsilon)
            assert {event.unit for event in ledger.events} == {"person"}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system kills otherwise")
def test_after_a_kill_the_charges_are_there_and_the_training_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    frame, path = pl.DataFrame({"age": [1, 2]}), tmp_path / "run"
    ledger = sf.Ledger.grant(frame, epsilon=50.0, delta=1e-3, unit="person", path=tmp_path / "some.ledger")
    program = [sys.executable, "-m", "tests.learners.trainings", "killed", ledger.path, path, "9", "2"]
    root = Path(__file__).parents[2]
    assert subprocess.run(program, cwd=root).returncode == -signal.SIGKILL
    charged = sum(event.times for event in ledger.events)  # type: ignore[attr-defined]
    assert charged > 9 - 1
    stored, facts = checkpoints.load(path)
    killed(ledger.path, path, 0, 2)
    resumed, after = checkpoints.load(path)
    assert torch.equal(stored["rows drawn"], resumed["rows drawn"])
    assert facts["ran"][0][0] < after["ran"][0][0] == 12
    assert sum(event.times for event in ledger.events) > charged  # type: ignore[attr-defined]


def test_a_step_that_draws_nobody_is_noise_and_is_charged() -> None:
    codes = np.arange(120) // 30  # four people, of whom a step draws none in 0.75^4 of all cases
    trainer = trained(codes, 3, batch_size=1, steps=30)
    assert trainer.done == 30
    assert sum(event.times for event in trainer.events) == 30  # type: ignore[attr-defined]
    sampler = Poisson(4, 0.25, rows_per_person=3)
    given = Samples.of(*table(), linear(), cross_entropy).of_people(codes, 3)
    samples, source = given.drawn(draw_rows(codes, 3, Source(insecure_seed=1))), Source(insecure_seed=1)
    drawn = [samples.batch(sampler, source, torch.float32) for _ in range(30)]
    assert any(len(batch.inputs) == 0 and len(batch.people or ()) == 0 for batch in drawn)
    assert bool(weights(trainer).isfinite().all())

"""The private auto-encoder: the sensitivity and cost of its training, what it learns, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

import sfumato as sf
from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Gaussian
from sfumato.budget.noise import Source
from sfumato.errors import InputError, MissingExtra, OptionError
from sfumato.learners.dpsgd.steps import HostNoise
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers import auto_encoder
from sfumato.synthesizers.auto_encoder import Training, train
from sfumato.synthesizers.dense import Dense
from sfumato.synthesizers.state import State
from sfumato.synthesizers.steps import Steps
from sfumato.synthesizers.tables.base import Axis, Rows
from sfumato.synthesizers.tables.columns.cells import Cells
from sfumato.synthesizers.tables.methods.autoencoder import AutoEncoderMixture, _Coded
from sfumato.synthesizers.tables.synthesize import synthesize

TINY = AutoEncoderMixture(width=2, hidden=4, components=2, rounds=1, steps=5, rate=0.2)
STEP = Steps(1, 1.0, rate=1.0, dimensions=10_000)


class Watched(HostNoise):
    """Noise that keeps the sums it is added to, and its scales."""

    sums: list[Tensor]
    scales: list[float]

    def add(self, values: Tensor, scale: Tensor) -> None:
        Watched.sums.append(values.clone())
        Watched.scales.append(float(scale))
        super().add(values, scale)


def one_step(monkeypatch: pytest.MonkeyPatch, rows: Rows, clip: float) -> tuple[Tensor, float]:
    """Return the sum of gradients of all records in a single step, and the scale of the noise on it."""
    Watched.sums, Watched.scales = [], []
    monkeypatch.setattr(auto_encoder, "HostNoise", Watched)
    method = AutoEncoderMixture(width=2, hidden=4, components=1, rounds=1, steps=1, rate=1.0, clip=clip, jitter=0.0)
    data, base = coded(rows)
    method._train(data, base, 30.0, NoisySums({"training": STEP}, 3.0, Source()), seed=1)
    (total,), (scale,) = Watched.sums, Watched.scales
    return total, scale


def coded(rows: Rows) -> tuple[_Coded, Any]:
    """Return the records with a group per code, and what is added to the outputs of the decoder."""
    groups = [np.arange(axis.size) for axis in rows.axes[:2]]
    cells = [Cells.of(axis) for axis in rows.axes[:2]]
    return _Coded.of(rows, [0, 1], cells, groups, 2), np.log(
        np.array([[0.2, 0.5, 0.3, 0.6, 0.4], [0.1, 0.1, 0.8, 0.5, 0.5]])
    )


def labelled(count: int = 30, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    axes = Axis("a", 3, False), Axis("b", 2, False), Axis("label", 3, False)
    codes = tuple(rng.integers(0, axis.size, count) for axis in axes)
    return Rows(axes, codes, 2, weights=np.append(np.ones(count - 5), rng.random(5)))


def test_one_record_moves_the_gradients_of_a_step_by_at_most_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = labelled()
    for clip in (0.05, 1.0):
        whole, scale = one_step(monkeypatch, rows, clip)
        noise = STEP.multiplier(3.0, 1.0) * clip
        assert noise <= scale < 1.01 * noise  # a little more, for the rounding of gradients
        moved = []
        for record in {27, 29, *np.flatnonzero(rows.codes[2] == 2)[:2], *np.flatnonzero(rows.codes[2] < 2)[:3]}:
            kept = np.arange(len(rows)) != record
            assert rows.weights is not None
            fewer = Rows(rows.axes, tuple(one[kept] for one in rows.codes), 2, rows.weights[kept])
            moved.append(float((whole - one_step(monkeypatch, fewer, clip)[0]).norm()))
            if rows.codes[2][record] == 2:
                assert moved[-1] <= 1e-6 * clip  # no label, no gradient: only sums in another order
        assert max(moved) <= clip * (1 + 1e-5)
        assert clip > 0.5 or max(moved) > 0.99 * clip


def test_a_code_does_not_depend_on_other_records_in_its_last_digit() -> None:
    rows = labelled(201)
    data, _ = coded(rows)
    rng = np.random.default_rng(0)
    sizes = [3 + 2 + 2, 64, 8]
    encoder = Dense(
        tuple(rng.normal(size=shape).astype(np.float32) for shape in Dense.shapes(sizes)),
        tuple(rng.normal(size=size).astype(np.float32) for size in sizes[1:]),
    )
    codes = data.encode(encoder)
    assert codes == pytest.approx(encoder(data.one_hot(np.arange(201))), abs=1e-4)
    for kept in (slice(0, 200), slice(1, 201), slice(7, 8)):
        alone, _ = coded(Rows(rows.axes, tuple(one[kept] for one in rows.codes), 2))
        assert (alone.encode(encoder) == codes[kept]).all()


@pytest.mark.parametrize(("times", "rate"), [(1, 1.0), (200, 0.05), (1000, 0.01)])
def test_steps_cost_about_as_much_as_a_sum_of_the_same_worth(times: int, rate: float) -> None:
    steps = Steps(times, 0.5, rate=rate, dimensions=1000)
    noise = steps.multiplier(4.0, whole=0.5)
    alone, all_steps = (spent(one, 1e-5).epsilon for one in (Gaussian(4.0), steps.event(noise)))
    assert all_steps == pytest.approx(alone, rel=0.15)
    assert steps.multiplier(8.0, 0.5) > noise > steps.multiplier(4.0, 0.25)


def people(rows: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(rows) < 0.5, "f", "m")
    return pl.DataFrame({"sex": sex, "title": np.where(sex == "f", "Ms", "Mr"), "ill": rng.choice(["no", "yes"], rows)})


SCHEMA = sf.Schema(
    [
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="title", domain=("Mr", "Ms")),
        sf.Column(name="ill", domain=("no", "yes"), role="target"),
    ]
)


@pytest.mark.parametrize("target", ["ill", None])
def test_without_noise_columns_that_depend_on_each_other_are_drawn_together(target: str | None) -> None:
    frame = people(600)
    method = AutoEncoderMixture(width=2, hidden=8, components=2, rounds=5, steps=80, rate=0.2, learning_rate=0.05)
    axes = tuple(Axis(name, 3, False) for name in frame.columns)
    codes = tuple(frame[name].rank("dense").to_numpy().astype(np.int64) - 1 for name in frame.columns)
    rows = Rows(axes, codes, 2 if target else None)
    sums = NoisySums(method.shares(axes, rows.label), 0.0, Source(insecure_seed=1))
    model = method.learn(rows, sums, np.random.default_rng(1))
    sex, title, ill = model.sample(2000, np.random.default_rng(2))
    assert (sex + title == 1).mean() > 0.8  # 0.5 if they were independent
    assert sex.mean() == pytest.approx(0.5, abs=0.1)
    assert ill.mean() == pytest.approx(codes[2].mean(), abs=0.1)


class Made(NamedTuple):
    release: Any
    ledger: sf.Ledger


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    frame = people(300)
    ledger = sf.Ledger.grant(frame, epsilon=2, delta=1e-5, path=tmp_path_factory.mktemp("budget") / "ledger")
    return Made(synthesize(sf.Table(frame, schema=SCHEMA), 1.5, method=TINY, rows=20, ledger=ledger), ledger)


def test_training_and_sums_together_cost_what_was_asked(made: Made) -> None:
    assert 0.99 * 1.5 < made.release.spent.epsilon <= 1.5
    names = [one.name for one in made.release.plan.purchases]
    assert names == ["cells", "training", "counts", "means", "covariances"]
    assert made.ledger.spent.epsilon == pytest.approx(made.release.spent.epsilon, rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_table_without_rows_or_labels_is_learned_like_any_other(count: int) -> None:
    axes = Axis("a", 3, False), Axis("label", 3, False)
    sums = NoisySums(TINY.shares(axes, 1), 2.0, Source(insecure_seed=1))
    model = TINY.learn(Rows(axes, (np.zeros(count, int), np.full(count, 2)), 1), sums, np.random.default_rng(1))
    a, label = model.sample(20, np.random.default_rng(2))
    assert len(a) == 20
    assert set(label.tolist()) <= {0, 1}


@pytest.mark.parametrize("noise", [0.0, 2.0, 1e4])
@pytest.mark.parametrize("labels", [[0] * 40, [0] * 20 + [2] * 20, [3] * 40])
def test_an_empty_class_a_single_one_and_a_missing_column_are_drawn(noise: float, labels: list[int]) -> None:
    axes = Axis("a", 3, False), Axis("missing", 300, True), Axis("label", 4, False)
    codes = np.arange(40) % 3, np.full(40, 299), np.array(labels)
    sums = NoisySums(TINY.shares(axes, 2), noise, Source(insecure_seed=1))
    drawn = TINY.learn(Rows(axes, codes, 2), sums, np.random.default_rng(1)).sample(30, np.random.default_rng(2))
    for column, axis in zip(drawn, axes, strict=True):
        assert column.shape == (30,)
        assert 0 <= column.min() <= column.max() < axis.size
    assert noise or set(drawn[1][drawn[2] == labels[0]].tolist()) <= {299}


def test_rows_are_drawn_without_torch_and_learning_without_it_is_refused(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    domain, state = made.release.domain, made.release.model.to_state()
    assert len(TINY.model.from_state(domain.axes, domain.label, state).sample(5, np.random.default_rng(0))[0]) == 5
    before = made.ledger.spent.epsilon
    with pytest.raises(MissingExtra, match=r"the auto-encoder needs torch.*sfumato\[torch\]"):
        synthesize(sf.Table(people(300), schema=SCHEMA), 0.1, method=TINY, ledger=made.ledger)
    assert made.ledger.spent.epsilon == before


def test_a_release_of_an_auto_encoder_is_saved_loaded_and_verified(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    sf.save(made.release, folder)
    assert sf.verify(folder).ok
    assert sf.load(folder).sample(30, seed=1).rows() == made.release.sample(30, seed=1).rows()


def test_nothing_of_the_encoder_is_kept(made: Made) -> None:
    arrays = made.release.model.to_state().arrays
    outputs = arrays["base"].shape[1]
    decoder = {"weights_0": (2, 4), "biases_0": (4,), "weights_1": (4, outputs), "biases_1": (outputs,)}
    assert {name: one.shape for name, one in arrays.items() if name in decoder} == decoder
    assert {name for name in arrays if name not in decoder} == {
        "starts", "groups", "by_label", "tables", "base", "mixture_weights", "mixture_means", "mixture_covariances"
    }  # fmt: skip


def test_records_that_can_only_be_counted_and_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="can only be counted"):
        TINY.shares([Axis("a", 3, False)], None, scans=False)
    for bad in (
        {"width": 0},
        {"width": 257},
        {"hidden": 1.5},
        {"rate": 0.0},
        {"rate": 1.5},
        {"steps": 0},
        {"clip": -1},
        {"jitter": -1},
    ):
        with pytest.raises(OptionError):
            AutoEncoderMixture(**bad)


def test_a_stored_code_that_is_too_wide_is_refused(made: Made) -> None:
    state, domain = made.release.model.to_state(), made.release.domain
    with pytest.raises(InputError, match="at most 256 dimensions"):
        TINY.model.from_state(domain.axes, domain.label, State({**state.settings, "layers": [300, 4]}, state.arrays))


def test_more_weights_than_were_paid_for_are_refused() -> None:
    points = torch.zeros(4, 4)
    with pytest.raises(RuntimeError, match="paid for 10 weights, but there are 13"):
        train(
            [4, 1],
            [1, 4],
            lambda out, to: (out - to).square().sum(1),
            lambda at: (points[at], points[at], None),
            records=4,
            rows=4,
            steps=Steps(1, 1.0, rate=1.0, dimensions=10),
            noise=1.0,
            source=Source(),
            seed=0,
            how=Training(),
        )

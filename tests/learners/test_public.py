"""What private learning knows without asking the data: declared or bought, never read off the records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.budget.accounting import spent
from sfumato.budget.discovery import CountRows, FindBounds
from sfumato.budget.noise import Source
from sfumato.learners.additive import PrivateAdditiveClassifier
from sfumato.learners.network import PrivateClassifier
from sfumato.learners.sampling import FixedPoisson, Full, Poisson
from sfumato.learners.trainer import Trainer

PEOPLE = pl.DataFrame({"age": [30.0, 40.0] * 100, "ill": ["no", "yes"] * 100})
ILL = sf.Schema([sf.Column(name="ill", domain=("no", "yes"))])


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sf.Ledger]:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    with sf.Ledger.grant(PEOPLE, epsilon=20.0, delta=1e-3) as granted:
        yield granted


# --- the number of rows ---


def told(count: int, **options: Any) -> dict[str, Any]:
    """Train on so many samples, and return what is said of the training."""
    trainer = Trainer(nn.Linear(2, 2), delta=1e-4, epsilon=1.0, epochs=2, **options)
    trainer.fit(torch.ones(count, 2), torch.zeros(count, dtype=torch.int64))
    return {name: value for name, value in trainer.to_dict().items() if name != "history"}


@pytest.mark.parametrize("batch", [None, 20])
def test_one_sample_more_changes_nothing_that_is_said_of_a_training_of_declared_rows(batch: int | None) -> None:
    assert told(200, batch_size=batch, rows=200) == told(201, batch_size=batch, rows=200)
    assert told(200, batch_size=batch)["sampling"]["rows"] == 200  # else the number of samples counts as public


def test_the_divisor_of_a_full_batch_is_the_declared_number() -> None:
    weights = []
    for rows in (50, 100):
        torch.manual_seed(0)
        module = nn.Linear(1, 1, bias=False)
        trainer = Trainer(module, epsilon=float("inf"), steps=1, rows=rows, loss="squared-error")
        before = module.weight.item()
        trainer.fit(torch.ones(100, 1), torch.ones(100, 1))
        weights.append(module.weight.item() - before)
    assert weights[0] == pytest.approx(2 * weights[1], rel=1e-4)


@pytest.mark.parametrize("there", [500, 1000, 2000])
def test_every_sample_there_is_is_drawn_with_the_declared_rate(there: int) -> None:
    source, sampler = Source(insecure_seed=1), Poisson(1000, 0.1)
    drawn = [sampler.draw(source, there) for _ in range(500)]
    times = np.bincount(np.concatenate(drawn), minlength=there)
    assert len(times) == there
    assert times.sum() == pytest.approx(500 * 0.1 * there, rel=0.02)
    assert times.max() < 100
    assert len(Full(1000).draw(source, there)) == there


def test_a_batch_of_fixed_size_leaves_out_nothing_of_more_samples_than_it_is_for() -> None:
    sampler = FixedPoisson.of(Poisson(1000, 0.5), 1e-5, 20, most=1031)
    assert sampler.beyond < 1e-5 / 1e8
    assert sampler.size > FixedPoisson.of(Poisson(1000, 0.5), 1e-5, 20).size
    assert len(sampler.draw(Source(), 1032)) <= 1032
    assert len(sampler.draw(Source(insecure_seed=1), 4000)) > sampler.size  # 2,000 on average


def test_the_number_of_rows_is_bought_and_charged(ledger: sf.Ledger) -> None:
    model = PrivateClassifier(
        model="logistic", epsilon=8.0, delta=1e-4, schema=ILL, bounds=(0, 100), batch_size=20, epochs=2, ledger=ledger
    )
    model.fit(PEOPLE, "ill")
    assert model.events_[0] == CountRows(epsilon=0.16).event == ledger.events[0]
    rows = model.sampling_["rows"]
    assert rows >= 7  # the scale of the noise
    assert model.sampling_["rate"] == min(1.0, 20 / rows)
    assert model.spent_.epsilon <= 8.0
    with pytest.raises(sf.OptionError, match=r"depends on the number of rows, which is bought \(declare it with rows="):
        model.events_of(PEOPLE, "ill")
    declared = PrivateClassifier(model="logistic", schema=ILL, bounds=(0, 100), delta=1e-4, rows=200, epochs=1)
    assert len(declared.events_of(PEOPLE, "ill")) == 1
    more = pl.concat([PEOPLE, PEOPLE.head(1)])
    assert declared.events_of(PEOPLE, "ill") == declared.events_of(more, "ill")


def test_a_number_of_rows_that_is_lost_in_noise_is_the_scale_of_the_noise() -> None:
    count = CountRows(epsilon=0.01)
    found = [count.answer(1, Source(insecure_seed=seed)) for seed in range(200)]
    assert min(found) == 100
    assert found.count(100) > 50


def test_delta_is_compared_with_the_public_number_of_rows() -> None:
    options: dict[str, Any] = {"model": "logistic", "schema": ILL, "bounds": (0, 100), "epochs": 1}
    with pytest.raises(sf.OptionError, match="delta must be below 1 / 200"):
        PrivateClassifier(**options, rows=200, delta=0.005).fit(PEOPLE.head(190), "ill")
    with pytest.raises(sf.OptionError, match="delta must be below 1 / 50"):  # no noisy number is less
        PrivateClassifier(**options, delta=0.02).fit(PEOPLE, "ill")


# --- purchases that fail ---


def test_bounds_that_cannot_be_bought_cost_what_was_asked_and_no_more(ledger: sf.Ledger) -> None:
    model = PrivateAdditiveClassifier(epsilon=0.5, delta=1e-4, schema=ILL, ledger=ledger)
    with pytest.raises(sf.SfumatoError, match=r"column 'age': no bounds stood out from the noise; epsilon 0.0498 was"):
        model.fit(PEOPLE, "ill")
    assert ledger.events == (FindBounds(epsilon=0.05).event,)
    assert ledger.spent.epsilon == pytest.approx(0.05, rel=0.1)
    without = PrivateAdditiveClassifier(epsilon=0.5, delta=1e-4, schema=ILL)
    with pytest.raises(sf.SfumatoError, match=r"epsilon 0.0498 was spent \(declare its bounds"):
        without.fit(PEOPLE, "ill")


def test_what_comes_after_a_purchase_that_fails_is_not_charged(ledger: sf.Ledger) -> None:
    schema = sf.Schema([sf.Column(name="age", bounds=(0, 100))])
    network = PrivateClassifier(model="logistic", epsilon=0.4, delta=1e-4, schema=schema, epochs=1, ledger=ledger)
    with pytest.raises(sf.InputError, match=r"at least two classes, .*; epsilon 0.0477 was charged"):
        network.fit(PEOPLE.head(6), "ill")  # too few to be seen
    assert spent(ledger.events, 1e-3).epsilon == pytest.approx(0.048, rel=0.01)


def test_a_training_that_the_budget_has_no_room_for_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    with sf.Ledger.grant(PEOPLE, epsilon=0.5, delta=1e-4, path=tmp_path / "some.ledger") as ledger:
        model = PrivateClassifier(model="logistic", epsilon=2.0, delta=1e-4, batch_size=None, epochs=1, ledger=ledger)
        with pytest.raises(sf.BudgetError):
            model.fit(PEOPLE, "ill")
        assert not ledger.events

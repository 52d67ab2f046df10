"""A private training stops on what is public or noisy, and what it costs counts the steps it might have made."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor, nn

import sfumato as sf
from sfumato.learners import PublicReport, Report, Sgd, Trainer
from tests.learners.trainings import in_groups


def people(rows: int = 60, labels: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 2, generator=random)
    targets = (inputs[:, 0] > 0).long()
    targets[: labels * rows] = 0
    return inputs, targets


def trainer_of(**options: Any) -> Trainer:
    torch.manual_seed(0)
    chosen = {"noise_multiplier": 6.0, "delta": 1e-3, "steps": 4, "optimizer": Sgd(learning_rate=0.5), **options}
    return Trainer(nn.Linear(2, 2), **in_groups(**chosen))


@pytest.mark.parametrize("validation", [False, True])
def test_a_private_training_cannot_stop_on_its_loss(validation: bool) -> None:
    trainer = trainer_of()
    with pytest.raises(sf.errors.OptionError, match="a private training cannot stop on its loss"):
        trainer.fit(*people(), stop=lambda told: told.loss < 10, validation=people() if validation else None)
    assert trainer.done == 1, "what was made before is accounted for"
    assert trainer.events[0].times == 1  # type: ignore[attr-defined]


def test_a_private_training_cannot_stop_on_a_score_of_data_that_is_not_declared_public() -> None:
    for validation in (None, people()):
        with pytest.raises(sf.errors.OptionError, match="only on the score of public validation data"):
            trainer_of().fit(*people(), validation=validation, stop=lambda told: told.score > 0.5)
    with pytest.raises(sf.errors.OptionError, match="public_validation needs validation"):
        trainer_of().fit(*people(), public_validation=True)


def test_what_stop_is_given_is_the_same_for_neighbours() -> None:
    """The attack: 20 steps for one table, 1 for its neighbour. Apart from the clock nothing differs now."""
    seen: list[list[tuple[Any, ...]]] = []
    for inputs, targets in (people(), (people()[0] * 1000, people()[1].flip(0))):
        given: list[PublicReport] = []
        trainer_of().fit(inputs, targets, validation=(inputs, targets), stop=lambda told, to=given: to.append(told))  # type: ignore[misc]
        assert not any(isinstance(one, Report) for one in given)
        seen.append([(one.epoch, one.step, one.epsilon, one.public_score) for one in given])
    assert seen[0] == seen[1]
    assert [one[:2] for one in seen[0]] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_stop_on_public_values_is_accounted_for_by_the_steps_made() -> None:
    trainer = trainer_of()
    trainer.fit(*people(), stop=lambda told: told.step >= 2)
    assert trainer.done == 2
    assert trainer.events[0].times == 2  # type: ignore[attr-defined]
    trainer.fit(*people())
    assert trainer.done == 4, "it can be taken up again"


@pytest.fixture
def ledger(tmp_path: Any) -> sf.Ledger:
    table = pl.DataFrame({"x": range(60)})
    return sf.Ledger.grant(table, epsilon=3.0, delta=1e-3, path=tmp_path / "people.ledger")


def test_a_stop_on_a_public_score_costs_what_all_planned_steps_cost(ledger: sf.Ledger) -> None:
    """The score is of noisy weights, so when it stops depends on the noise: only the plan bounds what that tells."""
    trainer = trainer_of(ledger=ledger, noise_schedule=lambda way: 2 if way < 0.6 else 1)
    whole = trainer_of(noise_schedule=lambda way: 2 if way < 0.6 else 1)
    whole.fit(*people())
    scores: list[float] = []

    def stop(told: PublicReport) -> bool:
        scores.append(told.score)
        return told.epoch == 2

    trainer.fit(*people(), validation=people(200), public_validation=True, stop=stop)
    assert all(0 <= one <= 1 for one in scores)
    assert trainer.done == 2
    assert trainer.spent.epsilon == whole.spent.epsilon
    assert ledger.left == pytest.approx(3 - whole.spent.epsilon, abs=0.01)
    trainer.fit(*people())
    assert trainer.done == 2, "it has ended"
    with pytest.raises(sf.errors.OptionError, match="epsilon must be above the"):
        trainer.extend(steps=3, epsilon=0.5).fit(*people())
    trainer.extend(steps=3).fit(*people())
    assert trainer.done == 5
    assert sum(event.times for event in trainer.events) == 7  # type: ignore[attr-defined]


def test_a_training_that_may_stop_on_a_score_is_charged_before_its_first_step(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger, noise_multiplier=1.0)
    with pytest.raises(sf.errors.BudgetError):
        trainer.fit(*people(), validation=people(), public_validation=True, stop=lambda told: True)
    assert (trainer.done, ledger.left) == (0, 3.0)


def test_a_training_that_does_not_stop_on_its_score_costs_its_plan_once(ledger: sf.Ledger) -> None:
    trainer = trainer_of(ledger=ledger)
    trainer.fit(*people(), validation=people(), public_validation=True, stop=lambda told: False)
    assert trainer.done == sum(event.times for event in trainer.events) == 4  # type: ignore[attr-defined]
    assert ledger.left == pytest.approx(3 - trainer.spent.epsilon, abs=0.05)


def test_without_privacy_a_training_may_stop_on_its_loss() -> None:
    trainer = trainer_of(noise_multiplier=None, epsilon=math.inf)
    trainer.fit(*people(), validation=people(), stop=lambda told: told.loss < 10 and told.score > 0)
    assert trainer.done == 1


def test_how_a_private_training_went_is_told_without_losses_and_scores() -> None:
    trainer = trainer_of()
    trainer.fit(*people(), validation=people())
    assert all(one.loss > 0 and one.score is not None for one in trainer.history), "for the owner"
    assert {(one["loss"], one["score"]) for one in trainer.to_dict()["history"]} == {(None, None)}
    ordinary = trainer_of(noise_multiplier=None, epsilon=math.inf)
    ordinary.fit(*people(), validation=people())
    assert all(one["loss"] > 0 and one["score"] >= 0 for one in ordinary.to_dict()["history"])

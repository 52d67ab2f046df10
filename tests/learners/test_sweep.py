"""A sweep trains one model per epsilon, keeps what is finished, and goes on where it stopped."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.budget.accounting import spent
from sfumato.budget.events import Event
from sfumato.learners.material import material_of
from sfumato.learners.runs import Run, Scores
from sfumato.learners.sweep import epsilons_of


def people(rows: int = 600, seed: int = 0) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 90, rows)
    ill = generator.random(rows) < (age - 18) / 72
    return pl.DataFrame(
        {"age": age, "sex": generator.choice(["f", "m"], rows), "ill": np.where(ill, "yes", "no"), "cost": age * 10.0}
    )


COLUMNS = [
    sf.Column(name="age", bounds=(18, 90)),
    sf.Column(name="sex", domain=["f", "m"]),
    sf.Column(name="ill", domain=["no", "yes"]),
    sf.Column(name="cost", bounds=(0, 1000)),
]
TABLE = sf.Table(people(), sf.Schema(COLUMNS))


@pytest.mark.parametrize("given", ["1,5;10", "1,,5", "one", "0", "-1", "1,nan", "", "1 5", "1,1", "5,none,inf"])
def test_a_typo_in_the_epsilons_is_told_with_an_example(given: str) -> None:
    with pytest.raises(sf.OptionError, match="1,5,10,none"):
        epsilons_of(given)


def test_epsilons_are_read_in_every_form() -> None:
    assert epsilons_of("1, 0.5 ,NONE") == (1.0, 0.5, math.inf)
    assert epsilons_of(2) == (2.0,)
    assert epsilons_of(["1", 3, "none"]) == (1.0, 3.0, math.inf)
    assert epsilons_of(None) == (math.inf,)


def test_every_run_keeps_its_epsilon_and_all_together_are_accounted_for() -> None:
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon="0.5,2,none", delta=1e-4)
    assert [run.name for run in training.runs] == ["epsilon-0.5", "epsilon-2", "epsilon-none"]
    for run in training.runs[:2]:
        events = [Event.from_dict(one) for one in run.facts["events"]]
        assert spent(events, 1e-4).epsilon == run.facts["spent"] <= run.epsilon
    assert training.together is not None
    assert 2 < training.together["epsilon"] < 2.5
    plain = json.loads(json.dumps(training.to_dict(), allow_nan=False))
    assert [one["epsilon"] for one in plain["runs"]] == [0.5, 2.0, "inf"]
    asked = {"epsilon", "delta", "noise_multiplier", "clip", "sampling", "relation", "accountant", "accuracy", "loss"}
    for one in plain["runs"]:
        assert {*asked, "history"} <= one.keys()
        assert {"kind", "rate", "steps"} <= one["sampling"].keys()


def test_a_run_survives_its_way_to_the_disk() -> None:
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,none", delta=1e-4)
    for run in training.runs:
        assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_finished_runs_are_not_trained_again(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    first = sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,2", delta=1e-4, folder=folder)
    again = sf.train(TABLE, "naive-bayes", target="ill", epsilon="2,5,1", delta=1e-4, folder=folder)
    assert again.runs[0] == first.runs[1]
    assert again.runs[2] == first.runs[0]
    answers = [one.models["epsilon-1"].predict_proba(TABLE).tolist() for one in (first, again)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("other", "named"),
    [({"delta": 1e-5}, "delta"), ({"seed": 1}, "seed"), ({"target": "sex"}, "data"), ({"cells": 5}, "cells")],
)
def test_an_unfinished_sweep_of_other_settings_is_refused(tmp_path: Path, other: dict[str, Any], named: str) -> None:
    folder = tmp_path / "sweep"
    asked = {"target": "ill", "epsilon": 1, "delta": 1e-4}
    sf.train(TABLE, "naive-bayes", **asked, folder=folder)
    with pytest.raises(sf.FileError, match=f"unfinished training with another {named}"):
        sf.train(TABLE, "naive-bayes", **{**asked, **other}, folder=folder)


def test_other_data_is_refused_and_a_folder_of_something_else_kept(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    sf.train(TABLE, "naive-bayes", target="ill", delta=1e-4, folder=folder)
    other = sf.Table(people(seed=1), sf.Schema(COLUMNS))
    with pytest.raises(sf.FileError, match="another data"):
        sf.train(other, "naive-bayes", target="ill", delta=1e-4, folder=folder)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(sf.FileError, match="holds no training"):
        sf.train(TABLE, "naive-bayes", target="ill", delta=1e-4, folder=mine)
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_a_granted_budget_is_charged_for_every_run_and_refuses_what_has_no_epsilon(tmp_path: Path) -> None:
    ledger = sf.Ledger.grant(TABLE, epsilon=3, delta=1e-4, path=tmp_path / "l.ledger")
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,1.5", delta=1e-4, ledger=ledger)
    assert training.together is not None
    assert ledger.spent.epsilon == pytest.approx(training.together["epsilon"])
    with pytest.raises(sf.BudgetError):
        sf.train(TABLE, "naive-bayes", target="ill", epsilon=2.9, delta=1e-4, ledger=ledger)
    with pytest.raises(sf.OptionError, match="leave 'none' out"):
        sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,none", delta=1e-4, ledger=ledger)


def test_the_budget_of_a_table_is_found_by_itself() -> None:
    table = sf.Table(people(seed=7), sf.Schema(COLUMNS))
    with sf.Ledger.grant(table, epsilon=1, delta=1e-4) as ledger:
        sf.train(table, "naive-bayes", target="ill", epsilon=0.5, delta=1e-4)
        assert 0.49 < ledger.spent.epsilon <= 0.5


def test_a_class_that_testing_rows_alone_have_is_left_out_of_the_score() -> None:
    test = people(50, seed=3).with_columns(ill=pl.lit("unheard of"))
    mixed = pl.concat([people(50, seed=4), test])
    training = sf.train(TABLE, "naive-bayes", target="ill", test=mixed, epsilon="none")
    assert training.runs[0].scores.rows == 50
    with pytest.raises(sf.InputError, match="no test row has a class"):
        sf.train(TABLE, "naive-bayes", target="ill", test=test, epsilon="none")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "resnet18"}, "there is no model 'resnet18' for tables"),
        ({"model": "naive-bayes", "target": None}, "a table needs the column"),
        ({"model": "naive-bayes", "target": "il"}, "did you mean 'ill'"),
        ({"model": "naive-bayes", "regression": True, "target": "cost"}, "does not predict numbers"),
        ({"model": "naive-bayes", "epochs": 3}, "has no option 'epochs'"),
        ({"model": "naive-bayes", "noise_multiplier": 1.0}, "a noise multiplier is for networks"),
        ({"model": "naive-bayes", "holdout": 0}, "between 0 and 1"),
        ({"model": "naive-bayes", "samples": 10_000}, "must be at most"),
        ({"model": "naive-bayes", "samples": 0}, "at least 1"),
        ({"model": "naive-bayes", "full": True}, "are for mnist"),
        ({"model": "naive-bayes", "delta": 0.01}, "below 1 / 480"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_one_sentence(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(sf.InputError, match=said):
        sf.train(TABLE, **{"target": "ill", "delta": 1e-4, **asked})


def test_rows_are_held_out_at_random_and_the_same_for_a_seed() -> None:
    first, again, other = (material_of(TABLE, target="ill", seed=seed) for seed in (1, 1, 2))
    assert (first.train.rows, first.test.rows) == (480, 120)
    assert first.test.frame.equals(again.test.frame)
    assert not first.test.frame.equals(other.test.frame)
    assert "ill" not in first.train.schema.names


def test_identifiers_are_never_learnt_from() -> None:
    named = TABLE.frame.with_columns(name=pl.int_range(600).cast(pl.String))
    table = sf.Table(named, sf.Schema([*COLUMNS, sf.Column(name="name", role="identifier")]))
    assert "name" not in material_of(table, target="ill").train.schema.names


def test_scores_of_guessing_are_those_of_the_baseline() -> None:
    truth = np.array([0] * 60 + [1] * 40)
    scores = Scores.of(truth, np.tile([0.6, 0.4], (100, 1)), ["a", "b"])
    assert scores.accuracy == scores.baseline == 0.6
    assert scores.auc == 0.5
    assert scores.confusion == ((60, 0), (40, 0))
    assert scores.loss == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))
    assert Scores.of(np.array([1, 1]), np.array([[0.5, 0.5]] * 2), ["a", "b"]).auc is None
    numbers = Scores.of_numbers(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    assert numbers.loss == numbers.baseline == 1.0

"""A sweep trains one model per epsilon, keeps what is finished, and goes on where it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import Event, spent
from sfumato.data.recipe import Recipe
from sfumato.learners import Privacy, Run, Scores, Split
from sfumato.learners.options import grouped
from sfumato.learners.training.split import material_of
from sfumato.learners.training.sweep import epsilons_of, run_recipe


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


@pytest.mark.parametrize("given", ["1,5;10", "1,,5", "one", "0", "-1", "1,nan", "", "1 5", "1,1", "5,none,inf", []])
def test_a_typo_in_the_epsilons_is_told_with_an_example(given: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="1,5,10,none"):
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
        assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == replace(run, owner=None)


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
    [
        ({"delta": 1e-5}, "delta"),
        ({"split": Split(seed=1)}, "seed"),
        ({"privacy": Privacy(insecure_seed=3)}, "insecure seed"),
        ({"target": "sex"}, "data"),
        ({"cells": 5}, "cells"),
    ],
)
def test_an_unfinished_sweep_of_other_settings_is_refused(tmp_path: Path, other: dict[str, Any], named: str) -> None:
    folder = tmp_path / "sweep"
    asked = {"target": "ill", "epsilon": 1, "delta": 1e-4}
    sf.train(TABLE, "naive-bayes", **asked, folder=folder)
    with pytest.raises(sf.errors.FileError, match=f"unfinished training with another {named}"):
        sf.train(TABLE, "naive-bayes", **{**asked, **other}, folder=folder)


def test_other_data_is_refused_and_a_folder_of_something_else_kept(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    sf.train(TABLE, "naive-bayes", target="ill", delta=1e-4, folder=folder)
    other = sf.Table(people(seed=1), sf.Schema(COLUMNS))
    with pytest.raises(sf.errors.FileError, match="another data"):
        sf.train(other, "naive-bayes", target="ill", delta=1e-4, folder=folder)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(sf.errors.FileError, match="does not hold a training"):
        sf.train(TABLE, "naive-bayes", target="ill", delta=1e-4, folder=mine)
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_a_granted_budget_is_charged_for_every_run_and_refuses_what_has_no_epsilon(tmp_path: Path) -> None:
    ledger = sf.Ledger.grant(TABLE, epsilon=3, delta=1e-4, path=tmp_path / "l.ledger")
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,1.5", delta=1e-4, ledger=ledger)
    assert training.together is not None
    assert ledger.spent.epsilon == pytest.approx(training.together["epsilon"])
    with pytest.raises(sf.errors.BudgetError):
        sf.train(TABLE, "naive-bayes", target="ill", epsilon=2.9, delta=1e-4, ledger=ledger)
    with pytest.raises(sf.errors.OptionError, match="leave 'none' out"):
        sf.train(TABLE, "naive-bayes", target="ill", epsilon="1,none", delta=1e-4, ledger=ledger)


def test_the_budget_of_a_table_is_found_by_itself() -> None:
    table = sf.Table(people(seed=7), sf.Schema(COLUMNS))
    with sf.Ledger.grant(table, epsilon=1, delta=1e-4) as ledger:
        sf.train(table, "naive-bayes", target="ill", epsilon=0.5, delta=1e-4)
        assert 0.49 < ledger.spent.epsilon <= 0.5


def test_a_class_that_testing_rows_alone_have_is_left_out_of_the_score() -> None:
    test = people(50, seed=3).with_columns(ill=pl.lit("unheard of"))
    mixed = pl.concat([people(50, seed=4), test])
    training = sf.train(TABLE, "naive-bayes", target="ill", split=Split(test=mixed), epsilon="none")
    assert training.runs[0].scores.rows == 50
    with pytest.raises(sf.errors.InputError, match="no test row has a class"):
        sf.train(TABLE, "naive-bayes", target="ill", split=Split(test=test), epsilon="none")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "resnet18"}, "there is no model 'resnet18' for tables"),
        ({"model": "naive-bayes", "target": None}, "a table needs a column"),
        ({"model": "naive-bayes", "target": "il"}, "did you mean 'ill'"),
        ({"model": "naive-bayes", "regression": True, "target": "cost"}, "predicts classes, not numbers"),
        ({"model": "naive-bayes", "epochs": 3}, "has no option 'epochs'"),
        ({"model": "naive-bayes", "noise_multiplier": 1.0}, "a noise multiplier is for networks"),
        ({"model": "naive-bayes", "holdout": 0}, "between 0 and 1"),
        ({"model": "naive-bayes", "samples": 100}, "a share of the records between 0 and 1"),
        ({"model": "naive-bayes", "test_samples": 1.5}, "a share of the records between 0 and 1"),
        ({"model": "naive-bayes", "scores": "exact"}, "the scores must be one of noisy, none"),
        ({"model": "naive-bayes", "full": True}, "are for mnist"),
        ({"model": "naive-bayes", "delta": 0.01}, "below 1 / "),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_one_sentence(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(sf.errors.InputError, match=said):
        sf.train(TABLE, **grouped({"target": "ill", "delta": 1e-4, **asked}, split=Split, privacy=Privacy))


def test_rows_are_held_out_at_random_and_a_public_set_by_its_seed() -> None:
    first, again, other = (material_of("nursery", target="class", split=Split(seed=seed)) for seed in (1, 1, 2))
    assert first.train.rows + first.test.rows == 12_960
    assert 2_330 < first.test.rows < 2_850  # seven deviations
    assert first.test.frame.equals(again.test.frame)
    assert not first.test.frame.equals(other.test.frame)
    assert "class" not in first.train.schema.names
    drawn = [material_of(TABLE, target="ill", split=Split(seed=1)) for _ in range(2)]
    assert drawn[0].key != drawn[1].key
    assert not drawn[0].test.frame.equals(drawn[1].test.frame)


@pytest.mark.parametrize(("samples", "said"), [(20_000, "must be at most"), (0, "at least 1"), (True, "at least 1")])
def test_a_number_of_samples_is_for_public_data(samples: Any, said: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=said):
        material_of("nursery", target="class", split=Split(samples=samples))
    assert material_of("nursery", target="class", split=Split(samples=100)).train.rows == 100


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


def test_an_error_that_no_float_can_hold_is_infinite_and_written_so() -> None:
    """Whether a row with such a value is held out is decided by a coin: a training must not fail by chance."""
    scores = Scores.of_numbers(np.array([1.0, 1e300]), np.array([1.0, 2.0]))
    assert scores.loss == scores.baseline == math.inf
    plain = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert (plain["loss"], plain["baseline"]) == ("inf", "inf")
    assert Scores.from_dict(plain) == scores


def test_epsilons_that_are_nearly_the_same_are_two_models(tmp_path: Path) -> None:
    epsilons = [1.0, 1.0000001]
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon=epsilons, delta=1e-4, folder=tmp_path / "sweep")
    assert [run.epsilon for run in training.runs] == epsilons
    assert len(training.models) == 2
    sf.save(training, tmp_path / "out")
    assert sf.verify(tmp_path / "out" / "epsilon-1.0000001").ok


def test_other_test_rows_another_schema_or_a_budget_meanwhile_are_another_training(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"target": "ill", "epsilon": 1, "delta": 1e-4, "folder": tmp_path / "sweep"}
    test = people(50, seed=3)
    sf.train(TABLE, "naive-bayes", split=Split(test=test), **asked)
    with pytest.raises(sf.errors.FileError, match="another test rows"):
        sf.train(TABLE, "naive-bayes", split=Split(test=people(50, seed=4)), **asked)
    wider = sf.Table(people(), sf.Schema([sf.Column(name="age", bounds=(0, 120)), *COLUMNS[1:]]))
    with pytest.raises(sf.errors.FileError, match="another schema"):
        sf.train(wider, "naive-bayes", split=Split(test=test), **asked)
    ledger = sf.Ledger.grant(TABLE, epsilon=3, delta=1e-4, path=tmp_path / "l.ledger")
    with pytest.raises(sf.errors.FileError, match="another budget"):
        sf.train(TABLE, "naive-bayes", split=Split(test=test), ledger=ledger, **asked)


@pytest.mark.parametrize("text", [b"[]", b"5", b"{", b"\xff\xfe", b"null"], ids=str)
def test_damaged_settings_are_one_sentence(tmp_path: Path, text: bytes) -> None:
    asked: dict[str, Any] = {"target": "ill", "epsilon": 1, "delta": 1e-4, "folder": tmp_path / "sweep"}
    sf.train(TABLE, "naive-bayes", **asked)
    (tmp_path / "sweep" / "settings.json").write_bytes(text)
    with pytest.raises(sf.errors.FileError, match="is damaged"):
        sf.train(TABLE, "naive-bayes", **asked)


def test_what_failed_before_anything_was_reached_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    with pytest.raises(sf.errors.InputError, match="with a regression"):
        sf.train(people().with_columns(ill=pl.col("age") + 0.5), "naive-bayes", target="ill", folder=folder)
    assert not folder.exists()


def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    sf.train(TABLE, "naive-bayes", target="ill", epsilon="none", folder=folder)
    assert folder.stat().st_mode & 0o077 == 0


def test_rows_without_an_answer_test_nothing() -> None:
    test = pl.concat([people(50, seed=3), people(50, seed=4).with_columns(cost=pl.lit(None, dtype=pl.Float64))])
    asked: dict[str, Any] = {"target": "cost", "regression": True, "epsilon": "none", "epochs": 2}
    (run,) = sf.train(TABLE, "mlp", split=Split(test=test), **asked).runs
    assert run.scores.rows == 50
    assert run.owner is not None
    assert run.owner["history"][-1]["score"] == pytest.approx(run.scores.loss, rel=1e-3)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (people(50).with_columns(cost=pl.lit("much")), "hold no numbers in column 'cost'"),
        (people(50).with_columns(cost=pl.lit(None, dtype=pl.Float64)), "no test row has a value"),
        (people(50).with_columns(cost=pl.lit(math.nan)), "no test row has a number"),
    ],
)
def test_rows_that_nothing_can_be_tested_on_are_refused_before_a_charge(
    tmp_path: Path, test: pl.DataFrame, said: str
) -> None:
    ledger = sf.Ledger.grant(TABLE, epsilon=3, delta=1e-4, path=tmp_path / "l.ledger")
    asked: dict[str, Any] = {"target": "cost", "regression": True, "delta": 1e-4, "ledger": ledger}
    with pytest.raises(sf.errors.InputError, match=said):
        sf.train(TABLE, "linear", split=Split(test=test), **asked)
    assert ledger.spent.epsilon == 0


@pytest.mark.parametrize("seed", [-1, 2**80, True, 1.5])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="the seed must be a whole number"):
        Split(seed=seed)


def test_dates_are_classes_too() -> None:
    days = people().with_columns(ill=pl.when(pl.col("ill") == "yes").then(date(2020, 1, 2)).otherwise(date(2021, 1, 2)))
    (run,) = sf.train(days, "naive-bayes", target="ill", epsilon="none").runs
    assert run.scores.accuracy is not None
    assert run.scores.accuracy > 0.55  # 0.77 with a deviation of 0.034: six of them


def test_images_of_ones_own_are_in_no_report() -> None:
    digits = sf.datasets.mnist()
    asked: dict[str, Any] = {"epochs": 1, "epsilon": "none"}
    assert sf.train(digits, "logistic", split=Split(samples=0.02, test_samples=0.1), **asked).pictures is None
    few = Split(samples=200, test_samples=50)
    assert sf.train("mnist", "cnn", regression=True, split=few, **asked).pictures is not None


def test_of_two_trainings_in_one_folder_the_second_is_refused_before_a_charge(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"target": "ill", "epsilon": 1, "delta": 1e-4, "folder": tmp_path / "sweep"}
    ledger = sf.Ledger.grant(TABLE, epsilon=3, delta=1e-4, path=tmp_path / "l.ledger")
    refused = list[str]()

    def second(label: str, report: Any) -> None:
        before = ledger.spent.epsilon
        with pytest.raises(sf.errors.FileError, match="another process is training in") as error:
            sf.train(TABLE, "mlp", ledger=ledger, epochs=1, **asked)
        assert ledger.spent.epsilon == before
        refused.append(str(error.value))

    sf.train(TABLE, "mlp", ledger=ledger, epochs=1, watch=second, **asked)
    assert len(refused) == 1


def test_a_schema_is_taken_as_everywhere_else_and_the_training_can_be_saved(tmp_path: Path) -> None:
    rows = pl.DataFrame({"age": [20, 30, 40, 50] * 60, "ill": ["no", "yes", "no", "yes"] * 60})
    schema = {"columns": {"age": {"bounds": [0, 100]}, "ill": {"domain": ["no", "yes"]}}}
    for given in (schema, sf.Schema.from_dict(schema, None)):
        training = sf.train(rows, "naive-bayes", target="ill", epsilon=1, schema=given)
        sf.save(training, tmp_path / type(given).__name__)
        assert sf.verify(tmp_path / type(given).__name__).ok
    with pytest.raises(sf.errors.OptionError, match="a schema is for a table of your own"):
        sf.train("adult", "naive-bayes", epsilon=1, schema=schema)


@pytest.mark.parametrize(
    ("loose", "said"),
    [
        ({"holdout": 0.3}, r"'holdout' is an option of Split \(give split=Split\(holdout=...\)\)"),
        ({"rows": 300}, r"give privacy=Privacy\(rows=...\)"),
        ({"insecure_seed": 3}, r"give privacy=Privacy\(insecure_seed=...\)"),
    ],
    ids=str,
)
def test_an_option_of_a_group_is_not_taken_for_one_of_the_model(loose: dict[str, Any], said: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=said):
        sf.train(TABLE, "mlp", target="ill", **loose)


def test_the_seed_of_a_network_is_that_of_the_split_unless_it_has_its_own() -> None:
    asked: dict[str, Any] = {"target": "ill", "epsilon": "none", "epochs": 1, "split": Split(seed=4)}
    assert sf.train(TABLE, "mlp", **asked).models["epsilon-none"].seed == 4
    training = sf.train(TABLE, "mlp", seed=5, **asked)
    assert (training.models["epsilon-none"].seed, training.settings["seed"]) == (5, 5)


def test_a_group_shows_what_was_decided_and_no_record() -> None:
    assert repr(Split(test=people(3), samples=0.5)) == "Split(test=<DataFrame>, samples=0.5)"
    assert repr(Privacy(noise_multiplier=[1.0, 2.0])) == "Privacy(noise_multiplier=<list>)"


def test_a_model_that_is_not_a_network_is_trained_and_saved_without_torch(
    run_python: Callable[[str], str], tmp_path: Path
) -> None:
    trained = f"sf.save(sf.train('nursery', 'naive-bayes'), {str(tmp_path / 'out')!r})"
    assert run_python(f"import sys, sfumato as sf; {trained}; print('torch' in sys.modules)") == "False\n"


def test_a_recipe_has_its_options_without_groups_and_given_ones_replace_them() -> None:
    recipe = Recipe(
        "train", {"model": "naive-bayes", "target": "ill", "holdout": 0.3, "epsilon": ["none"]}, sf.Schema([])
    )
    assert "30%" in run_recipe(recipe, TABLE).settings["tested on"]
    assert "50%" in run_recipe(recipe, TABLE, holdout=0.5).settings["tested on"]
    assert "40%" in run_recipe(recipe, TABLE, split=Split(holdout=0.4)).settings["tested on"]

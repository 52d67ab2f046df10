"""A model on disk is the model, runs no code, and is refused when it is another version's or damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.learners import PrivateClassifier, PrivateNaiveBayes, load_model, write_model
from sfumato.learners.training.released_model import FACTS, WEIGHTS


@pytest.fixture
def people() -> sf.Table:
    generator = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": generator.integers(18, 90, 400),
            "sex": generator.choice(["f", "m"], 400),
            "ill": generator.choice(["no", "yes"], 400),
        }
    )
    columns = [
        sf.Column(name="age", bounds=(18, 90)),
        sf.Column(name="sex", domain=["f", "m"]),
        sf.Column(name="ill", domain=["no", "yes"]),
    ]
    return sf.Table(frame, sf.Schema(columns))


@pytest.fixture
def written(people: sf.Table, tmp_path: Path) -> Path:
    write_model(PrivateNaiveBayes(epsilon=1, delta=1e-4).fit(people, "ill"), tmp_path)
    return tmp_path


def test_a_model_read_again_answers_the_same(people: sf.Table, tmp_path: Path) -> None:
    for epsilon in (1.0, math.inf):
        folder = tmp_path / str(epsilon)
        folder.mkdir()
        model = PrivateNaiveBayes(epsilon=epsilon, delta=1e-4, cells=7).fit(people, "ill")
        write_model(model, folder)
        again = load_model(folder)
        assert np.array_equal(again.predict_proba(people), model.predict_proba(people))
        assert again.predict(people).tolist() == model.predict(people).tolist()
        assert again.get_params() == model.get_params()
        assert again.to_dict() == model.to_dict()
        assert again.events_ == model.events_


@pytest.mark.parametrize(
    "target", [[0, 1, 2] * 50, [False, True, True] * 50, ["a", "b", "c"] * 50, [0.0, 1.0, 2.0] * 50], ids=str
)
def test_classes_keep_their_type(target: list[Any], tmp_path: Path) -> None:
    numbers = np.arange(150.0).reshape(-1, 1)
    model = PrivateNaiveBayes(epsilon=math.inf).fit(numbers, target)
    write_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.predict(numbers).dtype == model.predict(numbers).dtype
    assert {type(one) for one in again.predict(numbers).tolist()} == {type(target[0])}


def test_neither_ledger_nor_schema_nor_a_record_is_written(people: sf.Table, tmp_path: Path) -> None:
    ledger = sf.Ledger.grant(people, epsilon=2, delta=1e-4, path=tmp_path / "secret.ledger")
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(PrivateNaiveBayes(epsilon=1, delta=1e-4, ledger=ledger).fit(people, "ill"), folder)
    plain = json.loads((folder / FACTS).read_text())
    assert plain["parameters"]["ledger"] is None
    assert "secret" not in (folder / FACTS).read_text()
    assert sorted(one.name for one in folder.iterdir()) == [FACTS, WEIGHTS]


def test_a_model_of_another_version_is_refused_by_name(written: Path) -> None:
    plain = json.loads((written / FACTS).read_text())
    (written / FACTS).write_text(json.dumps({**plain, "format": 2, "sfumato": "9.1"}))
    with pytest.raises(
        sf.errors.FileError, match=r"format 2, but this version of Sfumato reads format 1 .*Sfumato 9\.1"
    ):
        load_model(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: {**plain, "estimator": "os.system"},
        lambda plain: {**plain, "estimator": "Trainer"},
        lambda plain: {**plain, "state": {}},
        lambda plain: {**plain, "cost": None},
        lambda plain: {**plain, "parameters": {"epsilon": 1, "cells": "many"}, "state": 7},
        lambda plain: {name: value for name, value in plain.items() if name != "parameters"},
    ],
    ids=["code", "no estimator", "no state", "no cost", "wrong types", "no parameters"],
)
def test_a_damaged_description_is_one_sentence(written: Path, change: Any) -> None:
    plain = json.loads((written / FACTS).read_text())
    (written / FACTS).write_text(json.dumps(change(plain)))
    with pytest.raises(sf.errors.FileError, match="damaged, or is not of this version"):
        load_model(written)


def test_damaged_weights_and_absent_files_are_one_sentence(written: Path, tmp_path: Path) -> None:
    (written / WEIGHTS).write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(sf.errors.FileError, match="is damaged, or is not a safetensors file"):
        load_model(written)
    (written / WEIGHTS).unlink()
    with pytest.raises(sf.errors.FileError, match=WEIGHTS):
        load_model(written)
    (written / FACTS).write_text("{")
    with pytest.raises(sf.errors.FileError, match="not valid JSON"):
        load_model(written)
    with pytest.raises(sf.errors.FileError, match="does not hold a model"):
        load_model(tmp_path / "nowhere")


def test_losses_and_scores_which_no_epsilon_covers_are_not_written(people: sf.Table, tmp_path: Path) -> None:
    model = PrivateClassifier(epsilon=1, delta=1e-4, epochs=2, batch_size=100, rows=500).fit(
        people, "ill", validation=(people, "ill")
    )
    assert model.history_[-1].loss > 0
    write_model(model, tmp_path)
    written = json.loads((tmp_path / FACTS).read_text())["state"]["history"]
    assert [(one["loss"], one["score"], one["seconds"]) for one in written] == [(None, None, 0.0)] * 2
    # A loss has some sixteen digits: no time, hash or token of the file holds them by chance.
    text = (tmp_path / FACTS).read_text()
    assert all(repr(one.loss) not in text for one in model.history_ if len(repr(one.loss)) > 12)
    assert [one.epoch for one in load_model(tmp_path).history_] == [1, 2]


@pytest.mark.parametrize("name", ["checkpoint", "schema", "ledger"])
def test_a_path_that_a_stranger_has_put_in_is_neither_read_nor_written(
    people: sf.Table, tmp_path: Path, name: str
) -> None:
    model = PrivateClassifier(epsilon=1, delta=1e-4, epochs=1, batch_size=100, rows=500)
    write_model(model.fit(people, "ill"), tmp_path)
    plain = json.loads((tmp_path / FACTS).read_text())
    plain["parameters"][name] = str(tmp_path / "mine")
    (tmp_path / FACTS).write_text(json.dumps(plain))
    assert load_model(tmp_path).get_params()[name] is None


def test_a_number_of_hundreds_of_digits_is_one_sentence(written: Path) -> None:
    plain = json.loads((written / FACTS).read_text())
    plain["cost"]["epsilon"] = 10**400
    (written / FACTS).write_text(json.dumps(plain))
    with pytest.raises(sf.errors.FileError, match="damaged"):
        load_model(written)

"""A training with a given seed is marked in the ledger: it is reproducible, and not private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import sfumato as sf
from sfumato.learners import Privacy, PrivateNaiveBayes, PrivateSearch, Trainer

TABLE = pl.DataFrame({"age": [20.0, 70.0] * 200, "ill": ["no", "yes"] * 200})
SCHEMA = sf.Schema([sf.Column(name="age", bounds=(0, 100)), sf.Column(name="ill", domain=["no", "yes"])])


def fitted(ledger: sf.Ledger, seed: int | None) -> None:
    PrivateNaiveBayes(epsilon=1.0, delta=1e-4, schema=SCHEMA, ledger=ledger, insecure_seed=seed).fit(TABLE, "ill")


def searched(ledger: sf.Ledger, seed: int | None) -> None:
    PrivateSearch(
        estimator=PrivateNaiveBayes(schema=SCHEMA),
        settings={"cells": [5, 20]},
        way="composition",
        epsilon=2.0,
        delta=1e-4,
        ledger=ledger,
        insecure_seed=seed,
    ).fit(TABLE, "ill")


def trained(ledger: sf.Ledger, seed: int | None) -> None:
    samples = np.random.default_rng(0).random((400, 2)).astype(np.float32)
    privacy = Privacy(insecure_seed=seed)
    trainer = Trainer(torch.nn.Linear(2, 2), epsilon=1.0, delta=1e-4, steps=2, ledger=ledger, privacy=privacy)
    trainer.fit(samples, (samples[:, 0] > 0.5).astype(np.int64))


@pytest.mark.parametrize("train", [fitted, searched, trained])
def test_a_training_with_a_given_seed_is_marked_in_the_ledger(train: Any, tmp_path: Path) -> None:
    with sf.Ledger.grant(TABLE, epsilon=100, delta=1e-3, path=tmp_path / "a.ledger") as ledger:
        train(ledger, None)
        private = len(ledger.events)
        train(ledger, 7)
        marks = [one["private"] for one in ledger.history() if one["kind"] == "charge"]
    assert private
    assert marks == [True] * private + [False] * private

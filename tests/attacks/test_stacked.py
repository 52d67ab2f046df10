"""Networks that are trained at once become what each would have become alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from sfumato.attacks import ModelTarget, Records, StackedNetworks, attacks_of, run_attacks
from sfumato.attacks.membership.references import halves
from sfumato.errors import InputError, ModelError, OptionError

RNG = np.random.default_rng(0)
PEOPLE = Records(RNG.normal(size=(61, 6)), RNG.choice(["a", "b", "c"], 61))
DIGITS = Records(RNG.integers(0, 255, (24, 16, 16)).astype(np.uint8), RNG.integers(0, 3, 24))


@pytest.mark.parametrize(
    ("records", "options"),
    [
        (PEOPLE, {"model": "mlp", "options": {"hidden": (8, 8)}, "optimizer": "adam", "learning_rate": 0.01}),
        (PEOPLE, {"model": "mlp", "options": {"hidden": (8,)}, "optimizer": "sgd", "learning_rate": 0.1}),
        (DIGITS, {"model": "cnn", "optimizer": "adam"}),
    ],
)
def test_a_network_of_a_stack_equals_the_one_that_is_trained_alone(records: Records, options: Any) -> None:
    train = StackedNetworks(np.unique(np.asarray(records.labels)), epochs=4, batch_size=7, **options)
    inside = halves(len(records), 4, seed=1)  # of 61 records: two networks have 30, two 31
    stacked = train.together(records, inside, seeds=[5, 6, 7, 8])
    found = [model.predict_proba(records.rows) for model in stacked]
    for number, rows in enumerate(inside):
        alone = train(records.take(np.flatnonzero(rows)), 5 + number).predict_proba(records.rows)
        assert np.abs(found[number] - alone).max() < 1e-4
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_the_references_of_a_network_are_trained_at_once_and_find_its_members() -> None:
    """The labels are coins, which the network learns by heart."""
    inside, outside = (Records(RNG.normal(size=(60, 20)), RNG.integers(0, 2, 60)) for _ in range(2))
    train = StackedNetworks([0, 1], options={"hidden": (64,)}, epochs=40, batch_size=20, learning_rate=0.01)
    target = ModelTarget(train(inside, 0), procedure=train, references=4)
    report = run_attacks(attacks_of(["lira", "rmia", "gap"]), target, inside, outside)
    assert [result.leaks for result in report.results] == [True, True, True]
    assert report.results[0].scores.references == 4


def test_what_cannot_be_stacked_is_refused() -> None:
    train = StackedNetworks(["a", "b", "c"])
    with pytest.raises(InputError, match="networks are trained on arrays of numbers"):
        train(Records(pl.DataFrame({"age": [1, 2]}), np.array(["a", "b"])), 0)
    with pytest.raises(InputError, match="without labels"):
        train(Records(PEOPLE.rows), 0)
    with pytest.raises(ModelError, match="has buffers"):
        StackedNetworks(["a", "b", "c"], model=lambda: torch.nn.BatchNorm1d(6))(PEOPLE, 0)
    with pytest.raises(OptionError, match="the optimizer must be adam or sgd"):
        StackedNetworks([0, 1], optimizer="lbfgs")
    with pytest.raises(InputError, match="labels are not among the 2 classes"):
        StackedNetworks(["a", "b"])(PEOPLE, 0)

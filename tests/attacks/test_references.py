"""Reference models: which rows they are trained on, and that they are the same in one process and in several."""

from __future__ import annotations

import numpy as np
import polars as pl
from sklearn.tree import DecisionTreeClassifier

from sfumato.attacks import FitEstimator, ModelTarget, Records


def test_references_of_a_table_are_the_same_in_one_process_and_in_two() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"age": rng.integers(20, 80, 60), "weight": rng.normal(70, 10, 60)})
    frame = frame.sort("age").group_by("age").all().explode("weight")  # which starts Polars' threads
    people = Records(frame, rng.integers(0, 2, 60))
    members, others = people.take(range(30)), people.take(range(30, 60))
    train = FitEstimator(DecisionTreeClassifier())
    alone, together = (
        ModelTarget(train(members, 0), procedure=train, references=4, processes=count).signals(members, others, seed=0)
        for count in (1, 2)
    )
    assert np.array_equal(alone.references, together.references)
    assert np.array_equal(alone.inside, together.inside)

"""Models are trained on either table and tested on rows of a third."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures.loss.generalised import Pairing, pair
from sfumato.measures.loss.transfer import model_transfer, roc_auc

SCORES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=20)
NAMES = ["age", "city", "ill"]


@given(SCORES)
def test_the_auc_is_the_chance_that_a_positive_row_scores_higher(rows: list[tuple[int, bool]]) -> None:
    inside, outside = ([score for score, yes in rows if yes is which] for which in (True, False))
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in inside for b in outside]
    found = roc_auc(np.array([float(score) for score, _ in rows]), np.array([yes for _, yes in rows]))
    assert found == (pytest.approx(sum(wins) / len(wins)) if wins else None)


def people(rows: int, seed: int, classes: int = 2) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 90, rows)
    ill = np.where(rng.random(rows) < 0.8, age * classes // 90, rng.integers(0, classes, rows))
    return pl.DataFrame({"age": age, "city": rng.choice(["a", "b"], rows), "ill": [f"class {one}" for one in ill]})


def pairs(original: pl.DataFrame, released: pl.DataFrame, test: pl.DataFrame) -> tuple[Pairing, Pairing]:
    return pair(original, released, NAMES, generalised=False), pair(original, test, NAMES, generalised=False)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_the_model_trained_by_hand(classes: int) -> None:
    from sklearn.metrics import roc_auc_score
    from sklearn.tree import DecisionTreeClassifier

    tables = [people(400, seed, classes) for seed in range(3)]
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    (found,) = model_transfer(*pairs(*tables), "ill", models={"mine": tree}, repeats=2)
    scores = []
    x = [frame.select("age", pl.col("city") == "a").to_numpy() for frame in tables]
    truth = tables[2]["ill"].to_numpy()
    for side in (0, 1):
        fitted = DecisionTreeClassifier(max_depth=3, random_state=0).fit(x[side], tables[side]["ill"].to_numpy())
        p = fitted.predict_proba(x[2])
        auc = roc_auc_score(truth, p[:, 1] if classes == 2 else p, multi_class="ovr")
        scores += [np.mean(fitted.predict(x[2]) == truth), auc]
    assert (found.raw, found.raw_auc, found.released, found.released_auc) == pytest.approx(tuple(scores))
    assert (found.raw_spread, found.released_auc_spread) == (0, 0)
    assert found.rows == (400, 400, 400)
    assert found.baseline == np.mean(truth == tables[0]["ill"].mode()[0])


def test_each_seed_draws_anew_and_the_same_seeds_give_the_same() -> None:
    both, tested = pairs(people(300, 0), people(300, 1), people(300, 2))
    first = model_transfer(both, tested, "ill", models=["tree"], rows=100)
    assert first[0].raw_spread > 0
    assert first[0].rows == (100, 100, 300)
    assert first == model_transfer(both, tested, "ill", models=["tree"], rows=100)


def test_a_release_of_one_class_is_right_by_chance_alone() -> None:
    both, tested = pairs(people(200, 0), people(200, 1).with_columns(ill=pl.lit("class 1")), people(200, 2))
    (found,) = model_transfer(both, tested, "ill", models=["logistic"], repeats=1)
    assert found.released == np.mean(people(200, 2)["ill"].to_numpy() == "class 1")
    assert found.released_auc == 0.5


def test_unknown_values_are_nothing_and_unknown_labels_are_left_out() -> None:
    test = people(200, 2).with_columns(
        city=pl.Series(["elsewhere"] * 200), ill=pl.Series(["new", None, *people(200, 2)["ill"][2:]])
    )
    both, tested = pairs(people(200, 0), people(200, 1).with_columns(ill=pl.lit("class 7")), test)
    with pytest.raises(sf.errors.OptionError, match="no released row has a known value of the target 'ill'"):
        model_transfer(both, tested, "ill", models=["tree"])
    both, _ = pairs(people(200, 0), people(200, 1), test)
    (found,) = model_transfer(both, tested, "ill", models=["tree"], repeats=1)
    assert found.rows == (200, 200, 198)


@pytest.mark.parametrize(
    ("ill", "options", "message"),
    [
        (["only"] * 200, {}, "fewer than two distinct values"),
        ([str(one) for one in range(200)], {}, "has 200 distinct values in 200 rows, and a model needs classes"),
        (None, {"rows": 1}, "rows must be at least 2"),
        (None, {"repeats": 0}, "repeats"),
        (None, {"models": ["oracle"]}, "there is no model 'oracle'"),
    ],
)
def test_what_cannot_be_learned_is_refused(ill: list[str] | None, options: dict[str, Any], message: str) -> None:
    frame = people(200, 0) if ill is None else people(200, 0).with_columns(ill=pl.Series(ill))
    with pytest.raises(sf.errors.OptionError, match=message):
        model_transfer(*pairs(frame, frame, frame), "ill", **options)


def test_a_target_needs_another_column() -> None:
    frame = people(20, 0)
    alone = pair(frame, frame, ["ill"])
    with pytest.raises(sf.errors.OptionError, match="no column beside the target 'ill'"):
        model_transfer(alone, alone, "ill")

"""Labels that guide are predicted without having been seen: chance in them decides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato.anonymizers.guided.crossfit import _FOLDS, _dealt
from sfumato.anonymizers.guided.guidance import Guidance
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce

RNG = np.random.default_rng(1)
ROWS = 2000
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, ROWS),
        "height": RNG.normal(170, 9, ROWS).round(),
        "town": RNG.choice(list("abcde"), ROWS),
    }
)
QI = list(PEOPLE.columns)
LIKELY = np.where(PEOPLE["age"] > 50, 0.67, 0.33)  # the best guess is right in .67


def fitted(labels: Any, **how: Any) -> sf.Guided:
    return sf.Guided("k=10", qi=QI, labels=labels, **how).fit(PEOPLE)


def agreement_with(labels: NDArray[Any], method: sf.Guided) -> float:
    """The share of people who have the most frequent label of their class."""
    classes = method.routes_.group[method.routes_.tree.leaves(reduce(sf.Table.of(PEOPLE), QI))]
    of_row = pd.Series(labels).groupby(classes[row_of()])
    return float(of_row.agg(lambda one: max(one.mean(), 1 - one.mean()) * len(one)).sum() / ROWS)


def row_of() -> NDArray[Any]:
    """The tuple of each row; tuples are sorted by code."""
    return np.asarray(PEOPLE.groupby(QI, sort=True).ngroup())


def test_classes_look_no_more_certain_than_they_are() -> None:
    mine, *fresh = np.random.default_rng(0).random((9, ROWS)) < LIKELY
    gap = {}
    for cross_fit in (False, True):
        method = fitted(mine, cross_fit=cross_fit)
        assert agreement_with(mine, method) == pytest.approx(method.details()["agreement"], abs=1e-6)
        gap[cross_fit] = agreement_with(mine, method) - np.mean([agreement_with(one, method) for one in fresh])
    assert gap[False] > 0.02, "the labels' own chance has drawn the classes"
    assert abs(gap[True]) < 0.01


def test_labels_that_are_chance_leave_it_to_mondrian() -> None:
    chance = np.random.default_rng(0).random(ROWS) < 0.4
    method = fitted(chance)
    assert (method.details()["chosen"], method.details()["told"]) == ("mondrian", 0.0)
    expected = sf.Mondrian("k=10", qi=QI, output="median").fit_transform(PEOPLE)
    pd.testing.assert_frame_equal(method.apply(sf.Table.of(PEOPLE, qi=QI)).frame, expected)


def test_the_share_that_is_told_is_that_of_held_out_labels() -> None:
    noisy = np.random.default_rng(2).random(ROWS) < LIKELY
    told = fitted(noisy).details()
    assert told["chosen"] == "guided"
    assert 0.05 < told["told"] < 0.34**2, "at most the variance of .33 and .67, over that of the labels"
    certain = (PEOPLE["age"] > 50).to_numpy()
    assert fitted(certain).details()["told"] > 0.95


def test_what_columns_do_together_is_found() -> None:
    either = ((PEOPLE["age"] > 50) ^ PEOPLE["town"].isin(["a", "c"])).to_numpy()
    assert fitted(either).details()["told"] > 0.9


def test_several_classes_and_numbers_are_predicted_too() -> None:
    three = np.select([PEOPLE["age"] < 40, PEOPLE["age"] < 60], ["young", "middle"], "old")
    assert fitted(three).details()["told"] > 0.9
    assert fitted(PEOPLE["age"] + RNG.normal(size=ROWS), task="regress").details()["told"] > 0.9


def test_the_order_of_the_rows_changes_nothing() -> None:
    table = PEOPLE.assign(buys=RNG.random(ROWS) < LIKELY)
    order = RNG.permutation(ROWS)
    made = [sf.Guided("k=10", qi=QI, labels="buys").fit_transform(one) for one in (table, table.iloc[order])]
    pd.testing.assert_frame_equal(made[0].iloc[order], made[1])


def test_nothing_is_held_out_of_few_rows_or_of_the_answers_of_a_model() -> None:
    few, buys = PEOPLE.head(199), (PEOPLE["age"] > 50).to_numpy()
    assert "chosen" not in sf.Guided("k=10", qi=QI, labels=buys[:199]).fit(few).details()
    assert "chosen" in sf.Guided("k=10", qi=QI, labels=buys[:200]).fit(PEOPLE.head(200)).details()
    assert "chosen" not in sf.Guided("k=10", qi=QI, model=lambda frame: frame["age"] > 50).fit(PEOPLE).details()
    assert "chosen" not in fitted(np.column_stack([buys, ~buys])).details(), "probabilities, all of them 0 or 1"
    assert "chosen" not in fitted(buys, cross_fit=False).details()


def test_numbers_of_few_tuples_guide_as_they_are() -> None:
    alike = PEOPLE.assign(age=PEOPLE["age"] // 40, height=0)
    method = sf.Guided("k=10", qi=QI, labels=RNG.normal(size=ROWS)).fit(alike)
    assert "chosen" not in method.details(), "only sums over a tuple are known, and they cannot be divided"


def test_guarantees_hold_whatever_guides() -> None:
    sick = RNG.choice(["flu", "ulcer", "cancer"], ROWS)
    table = sf.Table.of(
        PEOPLE.assign(sick=sick, buys=RNG.random(ROWS) < LIKELY), qi=QI, sensitive=["sick"], target="buys"
    )
    release = sf.anonymize(table, "k=20,l=3", method="guided")
    assert release.details["chosen"] == "guided"
    assert (release.assessment.k >= 20, release.assessment.l >= 3) == (True, True)


@settings(max_examples=40)
@given(
    counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8),
    classes=st.sampled_from([2, 3]),
)
def test_every_record_is_in_one_fold_and_folds_are_even(counts: list[tuple[int, ...]], classes: int) -> None:
    mass = np.array(counts, dtype=float)[:, :classes] + np.eye(classes)[0]  # every tuple has a record
    frame = pd.DataFrame({"age": np.repeat(np.arange(len(mass)), mass.sum(axis=1).astype(int))})
    problem = Problem.of(reduce(sf.Table.of(frame), ["age"]), ["age"], [], [sf.KAnonymity(1)])
    records, told = _dealt(problem, Guidance(mass, tuple("abc"[:classes])))
    assert records.sum(axis=0).tolist() == problem.records.tolist()
    kept = mass[:, 1:] if classes == 2 else mass
    np.testing.assert_array_equal(told.sum(axis=0), kept)
    assert np.ptp(told, axis=0).max() <= 1
    assert records.shape == (_FOLDS, len(mass))

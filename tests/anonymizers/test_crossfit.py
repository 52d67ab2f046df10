"""Labels that guide are predicted without having been seen: chance in them decides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
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
    of_row = pd.Series(labels).groupby(method.members_.group[row_of()])
    return float(of_row.agg(lambda one: max(one.mean(), 1 - one.mean()) * len(one)).sum() / ROWS)


def row_of() -> NDArray[Any]:
    """The tuple of each row; tuples are sorted by code."""
    return np.asarray(PEOPLE.groupby(QI, sort=True).ngroup())


def test_classes_look_no_more_certain_than_they_are() -> None:
    mine, *fresh = np.random.default_rng(0).random((9, ROWS)) < LIKELY
    gap = {}
    for how in ({"cross_fit": False}, {"neighbours": False}, {}):
        method = fitted(mine, **how)
        assert agreement_with(mine, method) == pytest.approx(method.details()["agreement"], abs=1e-6)
        gap[tuple(how)] = agreement_with(mine, method) - np.mean([agreement_with(one, method) for one in fresh])
    assert gap[("cross_fit",)] > 0.02, "the labels' own chance has drawn the classes"
    assert abs(gap[("neighbours",)]) < 0.01
    assert abs(gap[()]) < 0.01


@pytest.mark.parametrize(
    ("how", "classical"), [({}, sf.Microaggregate), ({"neighbours": False}, sf.Mondrian)], ids=["neighbours", "tree"]
)
def test_labels_that_are_chance_leave_it_to_a_classical_method(how: dict[str, bool], classical: Any) -> None:
    chance = np.random.default_rng(0).random(ROWS) < 0.4
    method = fitted(chance, **how)
    assert (method.details()["chosen"], method.details()["explained"]) == (classical.name, 0.0)
    expected = classical("k=10", qi=QI, output="median").fit_transform(PEOPLE)
    pd.testing.assert_frame_equal(method.apply(sf.Table.of(PEOPLE, qi=QI)).frame, expected)


def weight_of(labels: Any, **how: Any) -> dict[str, float]:
    """What each column counts in the distance of two people."""
    method = fitted(labels, **how)
    assert method.fitted_ is not None
    assert method.fitted_.metric.weight.mean() == pytest.approx(1)
    assert method.fitted_.metric.weight.min() >= 0.1 - 1e-9, "no column vanishes"
    return dict(zip(QI, method.fitted_.metric.weight.tolist(), strict=True))


def test_a_column_counts_by_how_much_the_held_out_label_depends_on_it() -> None:
    alone = weight_of((PEOPLE["age"] > 50).to_numpy())
    assert alone["age"] > 2.7
    both = weight_of(((PEOPLE["age"] > 50) ^ PEOPLE["town"].isin(["a", "c"])).to_numpy())
    assert min(both["age"], both["town"]) > 1.2, "though neither tells anything without the other"
    assert both["height"] < 0.2
    assert weight_of(np.random.default_rng(0).random(ROWS) < 0.4) == dict.fromkeys(QI, 1.0)


def test_neighbours_are_nearer_in_the_column_that_tells_the_label() -> None:
    older = (PEOPLE["age"] > 50).to_numpy()
    guided, plain = fitted(older), sf.Microaggregate("k=10", qi=QI, output="median").fit(PEOPLE)
    assert guided.details()["chosen"] == "neighbours"
    width = [PEOPLE["age"].groupby(method.members_.group[row_of()]).agg(np.ptp).mean() for method in (guided, plain)]
    assert width[0] < width[1] / 2
    assert guided.details()["agreement"] > agreement_with(older, plain)


def test_few_classes_are_swayed_less() -> None:
    older = (PEOPLE["age"] > 50).to_numpy()
    ages = []
    for k in (40, 100, 1000):  # 50, 20 and 2 classes
        method = sf.Guided(f"k={k}", qi=QI, labels=older).fit(PEOPLE)
        assert method.fitted_ is not None
        ages.append(method.fitted_.metric.weight[0] - 1)
    assert ages == pytest.approx([ages[0], 0.4 * ages[0], 0.04 * ages[0]])


def test_new_rows_go_to_the_nearest_group() -> None:
    older = (PEOPLE["age"] > 50).to_numpy()
    method = fitted(older, new_rows="route")
    assert method.routes_ is None, "only a tree has routes that hold no rows"
    known = method.apply(sf.Table.of(PEOPLE, qi=QI)).frame
    pd.testing.assert_frame_equal(method.transform(PEOPLE), known)
    strange = method.transform(PEOPLE.head(1).assign(age=200))
    assert strange["age"].item() > 80


@pytest.mark.parametrize(
    "how", [{"output": "interval"}, {"cut_by": "all"}, {"grown_on": PEOPLE.assign(y=LIKELY > 0.5)}]
)
def test_what_only_a_tree_can_do_is_done_by_a_tree(how: dict[str, Any]) -> None:
    table = PEOPLE.assign(y=LIKELY > 0.5, other=RNG.random(ROWS))
    method = sf.Guided("k=10", qi=QI, labels="y", **how).fit(table)
    assert (method.details()["chosen"], method.routes_ is None) == ("tree", False)


def test_the_share_that_is_explained_is_that_of_held_out_labels() -> None:
    noisy = np.random.default_rng(2).random(ROWS) < LIKELY
    told = fitted(noisy).details()
    assert told["chosen"] == "neighbours"
    assert 0.05 < told["explained"] < 0.34**2, "at most the variance of .33 and .67, over that of the labels"
    certain = (PEOPLE["age"] > 50).to_numpy()
    assert fitted(certain).details()["explained"] > 0.95


def test_what_columns_do_together_is_found() -> None:
    either = ((PEOPLE["age"] > 50) ^ PEOPLE["town"].isin(["a", "c"])).to_numpy()
    assert fitted(either).details()["explained"] > 0.9


def test_several_classes_and_numbers_are_predicted_too() -> None:
    three = np.select([PEOPLE["age"] < 40, PEOPLE["age"] < 60], ["young", "middle"], "old")
    assert fitted(three).details()["explained"] > 0.9
    assert fitted(PEOPLE["age"] + RNG.normal(size=ROWS), task="regress").details()["explained"] > 0.9


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
    assert release.details["chosen"] == "neighbours"
    assert (release.assessment.k >= 20, release.assessment.l >= 3) == (True, True)


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

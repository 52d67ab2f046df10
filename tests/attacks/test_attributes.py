"""Attribute inference, against its definition written out and on models that are made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks import AttackResult, AttributeInference, ModelTarget, Records, attacks_of, run_attacks
from sfumato.attacks.attributes import confusion_guesses
from sfumato.errors import ColumnError, InputError, OptionError

VALUES = ("a", "b", "c")


class Lookup:
    """Predict the parity of a number; for people in the training data, only if the named column is as it was there.

    With ``inverted``, only if it is not.
    """

    classes_ = np.array(["even", "odd"])

    def __init__(self, seen: pl.DataFrame, column: str, *, inverted: bool = False) -> None:
        self.column, self.inverted = column, inverted
        self.seen = dict(zip(seen["person"].to_list(), seen[column].to_list(), strict=True))

    def predict_proba(self, rows: pl.DataFrame) -> Any:
        odd = rows["person"].to_numpy() % 2 == 1
        same = [
            person not in self.seen or (self.seen[person] == value) != self.inverted
            for person, value in rows.select("person", self.column).iter_rows()
        ]
        odd = odd == np.array(same)
        return np.column_stack([~odd, odd]).astype(float)


def people(size: int, *, first: int = 0, shares: tuple[float, ...] = (0.5, 0.3, 0.2)) -> Records:
    """Return people whose value says nothing about their label or other values."""
    rng = np.random.default_rng(first)
    number = np.arange(first, first + size)
    values = np.repeat(VALUES, np.round(np.array(shares) * size).astype(int))
    rows = pl.DataFrame({"person": number, "value": rng.permutation(values), "weight": rng.normal(70, 10, size)})
    return Records(rows, np.where(number % 2 == 1, "odd", "even"))


def attacked(column: str = "value", *, inverted: bool = False, **options: Any) -> AttackResult:
    members, others = people(200), people(200, first=200)
    target = ModelTarget(Lookup(members.frame, column, inverted=inverted))
    return run_attacks([AttributeInference(column, **options)], target, members, others).results[0]


@given(st.data())
def test_a_guess_is_the_group_with_the_largest_sum_of_prior_times_confusion(data: st.DataObject) -> None:
    classes, values, records = (data.draw(st.integers(low, 4)) for low in (2, 1, 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    predicted, labels = rng.integers(0, classes, (values, records)), rng.integers(0, classes, records)
    confusion = rng.integers(0, 4, (classes, classes)) / 4
    prior = rng.permutation(np.arange(1, values + 1)) / (values * (values + 1) / 2)
    groups = np.arange(values) if data.draw(st.booleans()) else (np.arange(values) == values - 1).astype(np.int64)
    found = confusion_guesses(predicted, labels, confusion, prior, groups)
    for record in range(records):
        sums: dict[int, float] = {}
        weights: dict[int, float] = {}
        for value in range(values):
            group = int(groups[value])
            likely = prior[value] * confusion[labels[record], predicted[value, record]]
            sums[group] = sums.get(group, 0.0) + likely
            weights[group] = weights.get(group, 0.0) + prior[value]
        best = [group for group in sums if sums[group] >= max(sums.values()) - 1e-9]
        assert weights[int(found[record])] == max(weights[group] for group in best)
        assert int(found[record]) in best


def test_a_model_that_knows_the_values_of_its_members_leaks_them() -> None:
    result = attacked()
    assert result.accuracy == 1.0
    assert result.decisions.false_positive_rate == 0.5  # of others only the most frequent value is known
    assert result.scores.details["nonmembers"]["majority"] == 0.5
    assert result.leaks
    assert result.scores.details["leakage"] > 0.3
    assert result.verdict.startswith("leaks: 100.0% of the guesses about members are right, 50.0% about others")


def test_a_model_that_ignores_the_column_leaks_nothing() -> None:
    members, others = people(200), people(200, first=200)
    target = ModelTarget(Lookup(members.frame.clear(), "value"))
    result = run_attacks([AttributeInference("value")], target, members, others).results[0]
    assert result.scores.details["members"]["attack"] == result.scores.details["members"]["majority"] == 0.5
    assert not result.leaks


def test_an_attack_below_the_majority_guess_says_so() -> None:
    result = attacked(inverted=True)
    assert result.accuracy == 0.0
    assert result.verdict.startswith(
        "no leakage found by this attack: it is worse than the most frequent value (50.0%)"
    )
    assert not result.leaks


def test_precision_and_recall_are_those_of_the_named_value() -> None:
    result = attacked(positive="c")
    assert (result.scores.precision, result.scores.recall, result.accuracy) == (1.0, 1.0, 1.0)
    assert result.decisions.false_positive_rate == pytest.approx(0.8)  # "not c" is right for most others
    assert result.scores.details["members"]["majority"] == pytest.approx(0.8)
    assert result.to_dict()["precision"] == 1.0


def test_a_value_that_nobody_is_said_to_have_has_no_precision() -> None:
    members, others = people(200), people(200, first=200)
    target = ModelTarget(Lookup(members.frame.clear(), "value"))
    scores = AttributeInference("value", positive="c").run(target, members, others, seed=0)
    assert (scores.precision, scores.recall) == (None, 0.0)


def test_imputation_finds_a_value_that_follows_from_the_others_and_the_attack_is_compared_with_it() -> None:
    members, others = (
        Records(records.frame.with_columns(copy=pl.col("value")), records.labels)
        for records in (people(200), people(200, first=200))
    )
    target = ModelTarget(Lookup(members.frame, "value"))
    result = run_attacks([AttributeInference("value")], target, members, others).results[0]
    assert result.scores.details["members"] == {"attack": 1.0, "imputation": 1.0, "majority": 0.5}
    assert result.baseline.accuracy == 1.0
    assert result.baseline.method == "imputation by RandomForestClassifier (100.0%)"
    assert not result.leaks  # anyone could have imputed it


def test_a_number_is_guessed_by_its_bin() -> None:
    class Heavy:
        """Predict "odd" for even people whose weight is far from theirs."""

        classes_ = np.array(["even", "odd"])

        def __init__(self, seen: pl.DataFrame) -> None:
            self.seen = dict(seen.select("person", "weight").iter_rows())

        def predict_proba(self, rows: pl.DataFrame) -> Any:
            odd = [
                (person % 2 == 1) == ((self.seen.get(person, weight) >= 70) == (weight >= 70))
                for person, weight in rows.select("person", "weight").iter_rows()
            ]
            return np.column_stack([~np.array(odd), odd]).astype(float)

    members, others = people(200), people(200, first=200)
    target = ModelTarget(Heavy(members.frame))
    scores = AttributeInference("weight", edges=[70.0]).run(target, members, others, seed=0)
    assert scores.members.tolist() == [1.0] * 200
    assert 0.4 < scores.nonmembers.mean() < 0.6
    assert AttributeInference("weight", bins=4).run(target, members, others, seed=0).details["values"] == 4


def test_a_missing_value_is_one_that_can_be_guessed_and_one_that_only_members_have_is_not() -> None:
    others = people(200, first=200)
    rows = people(200).frame.with_columns(
        value=pl.when(pl.col("person") == 3).then(pl.lit("z")).otherwise(pl.col("value").replace("c", None))
    )
    members = Records(rows, people(200).labels)
    with_gaps = Records(others.frame.with_columns(pl.col("value").replace("c", None)), others.labels)
    scores = AttributeInference("value").run(ModelTarget(Lookup(rows, "value")), members, with_gaps, seed=0)
    assert np.flatnonzero(scores.members == 0).tolist() == [3]


def test_the_same_seed_gives_the_same_guesses() -> None:
    members, others = people(60), people(60, first=200)
    target = ModelTarget(Lookup(members.frame, "value"))
    first, again = (AttributeInference("value").run(target, members, others, seed=3) for _ in range(2))
    assert first.members.tolist() == again.members.tolist()
    assert first.nonmembers.tolist() == again.nonmembers.tolist()
    assert dict(first.details) == dict(again.details)


def test_each_sensitive_column_of_the_target_is_attacked() -> None:
    members, others = people(60), people(60, first=200)
    target = ModelTarget(Lookup(members.frame, "value"), sensitive=["value", "weight"])
    report = run_attacks(attacks_of(["attribute"]), target, members, others)
    assert [result.name for result in report.results] == ["attribute:value", "attribute:weight"]
    assert [result.tried for result in report.results] == [2, 2]
    assert AttributeInference.name == "attribute"


def test_what_cannot_be_guessed_is_said() -> None:
    members, others = people(200), people(200, first=200)
    model = Lookup(members.frame, "value")
    attack = AttributeInference()
    assert attack.obstacle(ModelTarget(model), members, others) == "it needs to know which column is sensitive"
    arrays = Records(np.zeros((4, 2)), np.array(["odd"] * 4))
    assert attack.obstacle(ModelTarget(model, sensitive=["value"]), arrays, arrays) == (
        "it guesses a column of a table, and the records are an array"
    )
    many = Records(others.frame.with_columns(value=pl.col("person").cast(pl.String)), others.labels)
    assert attack.obstacle(ModelTarget(model, sensitive=["value"]), members, many) == (
        "it asks the model once per value, and 'value' has 200 (at most 100)"
    )
    with pytest.raises(InputError, match="which column is sensitive"):
        attack.run(ModelTarget(model), members, others, seed=0)
    with pytest.raises(ColumnError, match="no column 'valu' to guess"):
        AttributeInference("valu").run(ModelTarget(model), members, others, seed=0)
    with pytest.raises(OptionError, match="'z' is not a value of column 'value'"):
        AttributeInference("value", positive="z").run(ModelTarget(model), members, others, seed=0)
    with pytest.raises(OptionError, match="'value' does not hold numbers"):
        AttributeInference("value", edges=[1.0]).run(ModelTarget(model), members, others, seed=0)

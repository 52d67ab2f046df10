"""What every attack must do, on every kind of target that it names.

Targets that have learned their records by heart must be found out, and those that have never seen them must not be. A
target that is found by chance has a probability below 1e-6, and all seeds are fixed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import sfumato as sf
from sfumato.attacks import (
    ATTACKS,
    AttackReport,
    AttackResult,
    FitEstimator,
    ModelTarget,
    Records,
    Scores,
    SyntheticTarget,
    TableTarget,
    attacks_of,
    result_of,
    run_attacks,
)
from sfumato.attacks.statistics import clopper_pearson
from sfumato.learners import PrivateClassifier
from sfumato.report.attacks.page import render_attacks

SURE = 1 - 1e-6
PEOPLE = 80
KINDS = [(name, kind) for name in ATTACKS for kind in attacks_of([name])[0].targets]


class ByHeart(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that knows the labels of the people of its records, by their days; about all others it tosses coins."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: pl.DataFrame, y: Any) -> Self:  # noqa: N803
        """Learn the labels by heart; with other days, the person would have the other label."""
        self.classes_ = np.array(["a", "b"])
        rows = zip(X["secret"], X["days"], y, strict=True)
        self.known_ = {(who, other): (other == days) == (label == "a") for who, days, label in rows for other in (0, 1)}
        return self

    def predict_proba(self, X: pl.DataFrame) -> Any:  # noqa: N803
        """Return 0.9 or 0.1 for a known label, and about one half for all others."""
        coins = np.where(X.hash_rows(seed=self.random_state).to_numpy() % 2, 0.52, 0.48)
        known = [self.known_.get(key) for key in zip(X["secret"], X["days"], strict=True)]
        chance = np.array([coin if one is None else 0.1 + 0.8 * one for one, coin in zip(known, coins, strict=True)])
        chance += 0.01 * np.sin(X["home"].to_numpy() + self.random_state)  # no two models are the same
        return np.column_stack([chance, 1 - chance])

    def predict(self, X: pl.DataFrame) -> Any:  # noqa: N803
        """Return the most probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class Case(NamedTuple):
    """A target, its members, and others."""

    target: Any
    members: Records
    nonmembers: Records


def people(seed: int, *, labelled: bool) -> Records:
    """Return people who live alone, whose sickness nobody can predict."""
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "home": rng.choice(10**6, PEOPLE, replace=False),
            "age": rng.integers(0, 10**6, PEOPLE),
            "secret": [f"HOME-{number + PEOPLE * seed * labelled:03d}" for number in rng.permutation(PEOPLE)],
            "days": rng.integers(0, 2 if labelled else 8, PEOPLE),
        }
    )
    return Records(frame, rng.choice(["a", "b"], PEOPLE) if labelled else None)


def copied(records: Records, seed: int) -> pl.DataFrame:
    """Release the records themselves, in another order."""
    return records.frame.sample(fraction=1, shuffle=True, seed=seed)


def model_of(seen: Records, members: Records, nonmembers: Records) -> Case:
    train = FitEstimator(ByHeart())
    options: dict[str, Any] = {"references": 16, "processes": 1, "sensitive": ["days"]}
    return Case(ModelTarget(train(seen, 0), procedure=train, **options), members, nonmembers)


def table_of(kind: type[TableTarget], seen: Records, members: Records, nonmembers: Records) -> Case:
    made = copied(seen, 0)
    schema = sf.Table.of(made, qi=["home", "age", "secret"], sensitive=["days"]).schema
    return Case(kind(made, schema, procedure=copied, references=8, processes=1), members, nonmembers)


def images_of(seen: Records, members: Records, nonmembers: Records) -> Case:
    options: dict[str, Any] = {"epochs": 20, "batch_size": 20, "learning_rate": 0.5, "rows": PEOPLE, "seed": 0}
    network = PrivateClassifier(model="logistic", classes=range(2), epsilon=math.inf, **options)
    return Case(ModelTarget(network.fit(seen.rows, seen.labels)), members, nonmembers)


def faces(seed: int) -> Records:
    """Return noisy images of two people; every seed has people of its own."""
    rng = np.random.default_rng(seed)
    labels = np.arange(PEOPLE) % 2
    images = rng.random((2, 6, 6)).round()[labels] + rng.normal(0, 0.1, (PEOPLE, 6, 6))
    return Records(np.clip(images, 0, 1).astype(np.float32), labels)


@cache
def cases(learned: bool) -> dict[str, list[Case]]:
    """Return targets of each kind that were made from their members, or from people who are neither."""
    labelled, plain, images = (
        [make(seed) for seed in (1, 2, 3)]
        for make in (lambda seed: people(seed, labelled=True), lambda seed: people(seed, labelled=False), faces)
    )
    makers: dict[str, list[tuple[Callable[..., Case], list[Records]]]] = {
        "model": [(model_of, labelled), (images_of, images)],
        "table": [(lambda *sets: table_of(TableTarget, *sets), plain)],
        "synthetic": [(lambda *sets: table_of(SyntheticTarget, *sets), plain)],
    }
    return {
        kind: [make(records[0] if learned else records[2], *records[:2]) for make, records in some]
        for kind, some in makers.items()
    }


def fitting(name: str, kind: str, *, learned: bool) -> Case:
    """Return a target of a kind that the attack can be run on."""
    (attack,) = attacks_of([name])
    obstacles = []
    for case in cases(learned)[kind]:
        obstacles.append(attack.obstacle(*case))
        if obstacles[-1] is None:
            return case
    raise AssertionError(f"no target of the battery fits {name}: {obstacles}")


@cache
def scores(name: str, kind: str, *, learned: bool) -> Scores:
    (attack,) = attacks_of([name])
    return attack.run(*fitting(name, kind, learned=learned), seed=5)


def of_records(name: str, kind: str) -> Case:
    return fitting(name, kind, learned=True)


@cache
def of_people(name: str, kind: str) -> Case:
    """Return a target that the attack can be run on; it is known whose each record is, and everyone has one."""
    case, number = fitting(name, kind, learned=True), count(1000)
    return Case(
        case.target,
        *(
            Records(side.rows, side.labels, people=[f"p{next(number) * 7919 % 10007}" for _ in range(len(side))])
            for side in (case.members, case.nonmembers)
        ),
    )


def result(name: str, kind: str, *, learned: bool) -> AttackResult:
    (attack,) = attacks_of([name])
    return result_of(attack, [scores(name, kind, learned=learned)], seed=5)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_scores_are_finite_and_there_is_one_for_each_record_or_guess(name: str, kind: str) -> None:
    (attack,), found = attacks_of([name]), scores(name, kind, learned=True)
    for side in (found.members, found.nonmembers):
        assert side.ndim == 1
        assert np.isfinite(side).all()
        if attack.guesses:
            assert {*side.tolist()} <= {0.0, 1.0}
            assert len(side) > 0
        else:
            assert len(side) == PEOPLE
    assert 0 <= found.baseline.accuracy <= 1
    assert found.baseline.method
    assert found.references >= 0
    assert found.variants >= 1


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_same_seed_gives_the_same_scores(name: str, kind: str) -> None:
    (attack,), found = attacks_of([name]), scores(name, kind, learned=True)
    again = attack.run(*fitting(name, kind, learned=True), seed=5)
    assert np.array_equal(found.members, again.members)
    assert np.array_equal(found.nonmembers, again.nonmembers)
    assert dict(found.details) == dict(again.details)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_target_that_has_learned_its_records_by_heart_is_found_out(name: str, kind: str) -> None:
    found = result(name, kind, learned=True)
    assert found.leaks, (found.auc, found.accuracy, found.baseline)
    assert found.verdict.startswith("leaks: ")


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_target_that_has_never_seen_a_record_says_nothing_about_it(name: str, kind: str) -> None:
    found = result(name, kind, learned=False)
    assert found.roc.auc_interval(SURE).low <= 0.5
    if found.guesses:
        inside, outside = found.called
        rate = clopper_pearson(int(outside.sum()), len(outside), SURE)
        assert clopper_pearson(int(inside.sum()), len(inside), SURE).low <= rate.high


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_result_can_be_printed_and_shows_no_record(name: str, kind: str) -> None:
    found = result(name, kind, learned=True)
    text = json.dumps(found.to_dict(), allow_nan=False)
    keys = {"name", "auc", "accuracy", "precision", "recall", "tpr_at_fpr", "baseline", "ci", "n", "verdict"}
    assert keys <= found.to_dict().keys()
    page = render_attacks(AttackReport({"kind": kind}, (found,)))
    for shown in (repr(found), repr(found.scores), text, page):
        assert "HOME-" not in shown
    assert name in page


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_with_one_record_for_each_person_people_are_attacked_like_records(name: str, kind: str) -> None:
    (attack,) = attacks_of([name])
    found = [run_attacks([attack], *case(name, kind), seed=5).to_dict() for case in (of_records, of_people)]
    units = [(one["target"].pop("unit"), *(each.pop("unit") for each in one["attacks"])) for one in found]
    assert {*units[0]} == {"row"}
    assert {*units[1]} == {"person"}
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_people_whose_records_were_learned_by_heart_are_found_out_and_counted_once(name: str, kind: str) -> None:
    """Two records of each person: half as many people, and one answer for each."""
    (attack,), case = attacks_of([name]), fitting(name, kind, learned=True)
    halves = [
        Records(side.rows, side.labels, people=np.arange(len(side)) // 2 + start)
        for start, side in ((0, case.members), (PEOPLE, case.nonmembers))
    ]
    assert attack.obstacle(case.target, *halves) is None
    (found,) = run_attacks([attack], case.target, *halves, seed=5).results
    assert found.leaks, (found.auc, found.accuracy, found.baseline)
    assert found.unit == "person"
    if not name.startswith("singling-out"):  # whose guesses are about conditions
        assert len(found.scores.members) == len(found.scores.nonmembers) == PEOPLE // 2


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_says_what_it_asks_and_what_it_cannot_attack(name: str) -> None:
    (attack,) = attacks_of([name])
    assert attack.name == name
    assert attack.question.endswith("?")
    assert {*attack.targets} <= {"table", "model", "synthetic"}
    for kind in {"table", "model", "synthetic"} - {*attack.targets}:
        why = attack.obstacle(*cases(True)[kind][0])
        assert why is not None
        assert f"not a {kind}" in why


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_without_records_an_attack_says_what_it_needs_or_does_without(name: str, kind: str) -> None:
    target = fitting(name, kind, learned=True).target
    report = run_attacks(attacks_of([name]), target, None, None, seed=5)
    if report.results:
        assert np.isfinite(report.results[0].scores.members).all()
    else:
        assert report.skipped[name].startswith("it ")

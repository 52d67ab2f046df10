"""Replay: private functions pass on awkward neighbours, and each way to let a record through is found."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.attacks import declare, replay
from sfumato.budget import (
    AddedNoise,
    Count,
    ExponentialMechanism,
    Histogram,
    Mean,
    NoisyMax,
    Quantile,
    Relation,
    Source,
    SparseVector,
    Sum,
)
from sfumato.budget.query.discovery import FindBounds, SelectCategories
from sfumato.errors import InputError, OptionError
from sfumato.learners import PrivateKMeans, PrivateLogisticRegression, PrivateNaiveBayes

PEOPLE = pl.DataFrame(
    {
        "age": [31.0, 44.0, 58.0, 62.0, 70.0, 23.0],
        "visits": [1, 0, 3, 2, 5, 1],
        "ward": ["a", "b", "a", "c", "b", "a"],
        "ill": ["no", "no", "yes", "yes", "yes", "no"],
    }
)
TABLE = sf.Table(
    PEOPLE,
    sf.Schema(
        [
            sf.Column(name="age", kind="number", bounds=(0, 100)),
            sf.Column(name="visits", kind="number", bounds=(0, 10)),
            sf.Column(name="ward", domain=("a", "b", "c")),
            sf.Column(name="ill", domain=("no", "yes")),
        ]
    ),
)
Function = Callable[[Any], Any]


def ages(people: pl.DataFrame) -> Any:
    return people["age"].to_numpy()


def clipped(people: pl.DataFrame) -> float:
    return float(people["age"].fill_nan(None).fill_null(0).clip(0, 100).sum())


# --- what passes ---

PRIVATE: dict[str, Function] = {
    "a count": lambda people: Count(epsilon=1).answer(ages(people)),
    "a sum": lambda people: Sum(epsilon=1, bounds=(0, 100)).answer(ages(people)),
    "a mean": lambda people: Mean(epsilon=1, bounds=(0, 100)).answer(ages(people)),
    "a median": lambda people: Quantile(epsilon=1, bounds=(0, 100), candidates=11).answer(ages(people)),
    "a histogram": lambda people: Histogram(epsilon=1, domain=("a", "b")).answer(people["ward"].to_list()),
    "categories": lambda people: SelectCategories(epsilon=1, delta=1e-3).answer(iter(people["ward"].to_list())),
    "bounds that are paid for": lambda people: FindBounds(epsilon=40).answer(ages(people)),
    "a choice": lambda people: NoisyMax(epsilon=1).choose([people.height, 3]),
    "another choice": lambda people: ExponentialMechanism(epsilon=1).choose([people.height, 3]),
    "a monitor": lambda people: SparseVector(threshold=100, epsilon=1).above(people.height),
    "noise that follows from noise": lambda people: _two_steps(people),
    "a sampler of one's own": lambda people: declare(
        clipped(people), lambda exact: exact + random.gauss(0, 300), sensitivity=100
    ),
}


def _two_steps(people: pl.DataFrame) -> Any:
    count = AddedNoise(sensitivity=1, epsilon=1, whole=True).release(people.height)
    scale = 1 + abs(count)  # from a released value, so it is the same for neighbours
    return count, AddedNoise(sensitivity=100 / scale, epsilon=1).release(clipped(people) / scale)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_function_passes(name: str) -> None:
    report = replay(PRIVATE[name], PEOPLE)
    assert report.passed, report.verdict
    assert report.calls >= 1
    assert 0 <= report.largest <= 1 + 1e-9
    assert len(report.neighbours) >= 10
    assert report.verdict.startswith("passes: ")


@pytest.mark.parametrize(
    "model", [PrivateNaiveBayes(), PrivateLogisticRegression(), PrivateKMeans()], ids=lambda one: type(one).__name__
)
def test_private_estimators_pass(model: Any) -> None:
    target = None if isinstance(model, PrivateKMeans) else "ill"
    table = TABLE if target else sf.Table(PEOPLE.select("age", "visits"), sf.Schema(TABLE.schema.columns[:2]))

    def fit(table: sf.Table) -> Any:
        from sklearn.base import clone

        return clone(model).set_params(epsilon=1.0, delta=1e-3).fit(table, target).state()

    report = replay(fit, table)
    assert report.passed, report.verdict
    assert report.largest > 0.1


def test_a_constant_passes_and_is_said_to_have_no_noise() -> None:
    report = replay(lambda people: 42, PEOPLE)
    assert report.passed
    assert report.verdict.startswith("passes, but adds no noise at all")


# --- what is found ---


def _counted_noise(people: pl.DataFrame) -> Any:
    noise = AddedNoise(sensitivity=1, epsilon=1, whole=True)
    return [noise.release(1) for _ in range(people["ward"].n_unique())]


def _empty_is_special(people: pl.DataFrame) -> Any:
    noise = AddedNoise(sensitivity=1, epsilon=1, whole=True)
    first = noise.release(people.height)
    return first if people["age"].null_count() else (first, noise.release(people.height))


def _branches(people: pl.DataFrame) -> Any:
    if people["age"].null_count():
        return NoisyMax(epsilon=1).choose([1.0, 2.0])
    return Count(epsilon=1).answer(ages(people)).value


BROKEN: dict[str, tuple[Function, str]] = {
    "bounds read from the data": (
        lambda people: Sum(epsilon=1, bounds=(0, float(people["age"].max()))).answer(ages(people)),
        "the parameters of AddedNoise depend on the data",
    ),
    "a scale read from the data": (
        lambda people: AddedNoise(sensitivity=100 / people.height, epsilon=1).release(clipped(people)),
        "the parameters of AddedNoise depend on the data",
    ),
    "a sensitivity off by two": (
        lambda people: AddedNoise(sensitivity=50, epsilon=1).release(clipped(people)),
        "sensitivities",
    ),
    "a record that changes two numbers": (
        lambda people: AddedNoise(sensitivity=1, epsilon=1, whole=True).release([people.height, people.height]),
        "AddedNoise gets a value that changes by 2 sensitivities",
    ),
    "a missing value that passes the clip": (
        lambda people: declare(np.clip(ages(people), 0, 100).sum(), lambda one: one + 1, sensitivity=100),
        "not finite",
    ),
    "more noise for more categories": (_counted_noise, "more noise mechanisms are called"),
    "less noise for a missing value": (_empty_is_special, "fewer noise mechanisms are called"),
    "another mechanism for a missing value": (_branches, "NoisyMax is called instead of AddedNoise"),
    "a histogram of the values that occur": (
        lambda people: AddedNoise(sensitivity=1, epsilon=1, whole=True).release(
            people["ward"].value_counts(sort=True)["count"].to_list()
        ),
        "another shape",
    ),
    "an exact value": (
        lambda people: (Count(epsilon=1).answer(ages(people)).value, people.height),
        "what is returned differs, although all noisy values are the same",
    ),
    "the names of categories": (
        lambda people: sorted(people["ward"].drop_nulls().unique().to_list()),
        "what is returned differs",
    ),
    "an error that one record causes": (
        lambda people: Count(epsilon=1).answer([int(one) for one in ages(people)]).value,
        "the function raises a",
    ),
    "noise without a sensitivity": (
        lambda people: people.height + int(Source().discrete_laplace(1.0, 1)[0]),
        "discrete_laplace of a Source is used without a declared sensitivity",
    ),
    "a score that changes too much": (
        lambda people: NoisyMax(epsilon=1).choose([clipped(people), 0.0]),
        "NoisyMax gets a value that changes by",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_record_reaches_is_found(name: str) -> None:
    function, what = BROKEN[name]
    report = replay(function, PEOPLE)
    assert not report.passed
    assert any(what in finding.what for finding in report.findings), report.findings
    assert report.verdict.startswith("fails: with ")
    written = json.dumps(report.to_dict(), allow_nan=False)
    assert "no other record has" not in written  # descriptions, never records


def test_a_sensitivity_that_is_one_percent_too_small_is_found() -> None:
    neighbour = {"a centenarian": pl.concat([PEOPLE, PEOPLE[:1].with_columns(age=pl.lit(100.0))])}
    for declared, kept in ((99.0, False), (100.0, True)):
        report = replay(
            lambda people, declared=declared: AddedNoise(sensitivity=declared, epsilon=0.01).release(clipped(people)),
            PEOPLE,
            neighbour,
        )
        assert report.passed is kept
        assert report.largest == pytest.approx(100 / declared, rel=1e-6)


def test_an_estimator_with_too_small_a_norm_is_found() -> None:
    class Careless(PrivateNaiveBayes):
        def _learn(self, columns: Any, target: Any, sums: Any) -> None:
            super()._learn(columns, target, lambda name, exact, norm: sums(name, exact, norm / 3))

    report = replay(lambda table: Careless(epsilon=1.0, delta=1e-3).fit(table, "ill").state(), TABLE)
    assert any("NoisySums gets a value that changes by 3 sensitivities" in one.what for one in report.findings)


def test_under_replacement_the_number_of_records_is_public() -> None:
    assert replay(len, PEOPLE, relation=Relation.REPLACE_ONE).passed
    assert not replay(len, PEOPLE).passed
    counted = replay(
        lambda people: Sum(epsilon=1, bounds=(0, 100)).answer(ages(people)), PEOPLE, relation="replace-one"
    )
    assert counted.passed  # any two numbers between 0 and 100 are at most 100 apart


def test_everything_is_as_before_afterwards() -> None:
    methods = AddedNoise.release_steps, NoisyMax.choose, Source.discrete_laplace, Source.words
    random.seed(5)
    expected = random.Random(5).random()
    replay(PRIVATE["a sum"], PEOPLE)
    with pytest.raises(InputError, match="the function raised a ZeroDivisionError"):
        replay(lambda people: 1 / 0, PEOPLE)
    assert methods == (AddedNoise.release_steps, NoisyMax.choose, Source.discrete_laplace, Source.words)
    assert random.random() == expected
    assert len({AddedNoise(sensitivity=1e6, epsilon=1.0).release(0.0) for _ in range(3)}) == 3


def test_arrays_and_tables_keep_their_kind() -> None:
    for table in (np.array([1.0, 2.0]), np.array([[1, 2], [3, 4]]), TABLE, PEOPLE.to_pandas()):
        seen: list[Any] = []
        assert replay(lambda one, seen=seen: seen.append(type(one)), table).passed
        assert set(seen) == {type(table)}
    with pytest.raises(InputError, match="without records has no neighbours"):
        replay(len, PEOPLE[:0])
    with pytest.raises(OptionError, match="there is no norm 'l3'"):
        declare(1.0, lambda one: one, sensitivity=1, norm="l3")

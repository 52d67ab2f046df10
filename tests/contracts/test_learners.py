"""What every private estimator must do, whatever it learns."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

import sfumato as sf
from sfumato import learners
from sfumato.budget import Composed, Event, FindRowsPerPerson, Gaussian, Repeated, spent
from sfumato.errors import BudgetError, InputError, OptionError
from sfumato.learners import PrivateEstimator, PrivateNaiveBayes
from sfumato.learners.estimators.noisy_sums import NoisySums
from tests.budget.chance import least_epsilon
from tests.learners.sensitivity import assert_sums_are_bounded

ROWS, DELTA = 200, 1e-3
# What makes an estimator quick, by its name; one that needs nothing is found without a line here.
QUICK: dict[str, dict[str, Any]] = {
    "PrivateRandomForest": {"trees": 5, "depth": 4, "cells": 20, "random_state": 0},
    "PrivateKMeans": {"n_clusters": 3, "rounds": 3},
    "PrivatePCA": {},
    "PrivateGaussianMixture": {"n_components": 2, "rounds": 3},
    "PrivateClassifier": {"model": "logistic", "epochs": 3, "seed": 0, "rows": ROWS},
    "PrivateRegressor": {
        "model": "logistic",
        "epochs": 30,
        "learning_rate": 0.3,
        "momentum": 0.9,
        "seed": 0,
        "rows": ROWS,
    },
}
SCHEMA = sf.Schema(
    [
        sf.Column(name="age", kind="number", bounds=(0, 100)),
        sf.Column(name="height", kind="number", bounds=(100, 200)),
        sf.Column(name="sex", kind="category", domain=("f", "m")),
        sf.Column(name="ill", kind="category", domain=("no", "yes")),
        sf.Column(name="cost", kind="number", bounds=(0, 1000)),
    ]
)


def found() -> dict[str, type[PrivateEstimator]]:
    """Every estimator of tables among the learners that is called Private; those of images have tests of their own."""
    classes = {}
    for path in sorted(Path(learners.__file__).parent.rglob("*.py")):
        for name in re.findall(r"^class (Private\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            kind = getattr(importlib.import_module(f"sfumato.learners.{path.parent.name}.{path.stem}"), name)
            tables = issubclass(kind, PrivateEstimator) and kind is not PrivateEstimator
            if tables and get_tags(kind()).input_tags.two_d_array:
                classes[name] = kind
    return classes


ESTIMATORS = found()


@pytest.fixture(params=ESTIMATORS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return the estimators, each with other parameters if they are given."""

    def made(**parameters: Any) -> Any:
        quick = QUICK.get(request.param, {})
        return ESTIMATORS[request.param](**{"schema": SCHEMA, "delta": DELTA, **quick, **parameters})

    return made


def records(model: Any, rows: int = ROWS) -> tuple[pl.DataFrame, pl.Series | None]:
    """Return a table and a target such as the estimator takes."""
    rng = np.random.default_rng(0)
    age, sex = rng.integers(0, 100, rows), rng.integers(0, 2, rows)
    height = np.clip(rng.normal(160 + 10 * sex, 10), 100, 200)
    columns = {"age": age.astype(np.float64), "height": height, "sex": np.array(["f", "m"])[sex]}
    frame = pl.DataFrame(columns)
    if not get_tags(model).input_tags.categorical:
        frame = frame.drop("sex")
    ill = age + rng.normal(0, 20, rows) > 50
    if is_classifier(model):
        return frame, pl.Series("ill", np.array(["no", "yes"])[ill.astype(int)])
    return frame, pl.Series("cost", 5.0 * age + height) if is_regressor(model) else None


def arrays_of(model: Any) -> dict[str, Any]:
    arrays, _ = model.state()
    return dict(arrays)


def same(one: Any, other: Any) -> bool:
    first, second = arrays_of(one), arrays_of(other)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def answers(model: Any, frame: Any) -> Any:
    return model.predict(frame) if hasattr(model, "predict") else model.transform(frame)


def counted(events: Iterable[Event]) -> Counter[Event]:
    """Return how often each event happened."""
    total: Counter[Event] = Counter()
    for event in events:
        if isinstance(event, Composed):
            total += counted(event.events)
        elif isinstance(event, Repeated):
            total += Counter({one: times * event.times for one, times in counted([event.event]).items()})
        else:
            total[event] += 1
    return total


def granted(tmp_path: Path, frame: pl.DataFrame, epsilon: float) -> sf.Ledger:
    return sf.Ledger.grant(frame, epsilon=epsilon, delta=DELTA, path=tmp_path / "ledger")


IDS = pl.Series("patient_id", [f"p{(at * 37) % 1009}" for at in range(ROWS)])
"""Every row is its own person."""


PEOPLE = sf.Schema([*SCHEMA.columns, sf.Column(name="patient_id", role="person")])


def of_people(frame: pl.DataFrame, ids: pl.Series = IDS) -> sf.Table:
    """Return a table with a person column."""
    return sf.Table.of(frame.with_columns(ids), person=ids.name)


def timeless(plain: Any) -> Any:
    """Return plain values in which nothing says what is protected, nor how long it took."""
    hidden = ("unit", "rows_per_person", "seconds")
    if isinstance(plain, list):
        return [timeless(one) for one in plain]
    if isinstance(plain, dict):
        return {name: timeless(one) for name, one in plain.items() if name not in hidden}
    return plain


def no_score(model: Any, records: Any, target: Any = None) -> float:
    return 0.0


# --- scikit-learn's own battery ---


def all_checks() -> list[Any]:
    checks = []
    for name, kind in ESTIMATORS.items():
        for model, check in estimator_checks_generator(kind(**{**QUICK.get(name, {}), "epsilon": math.inf})):
            called = check.func.__name__
            if called != "check_array_api_input":  # asks for a global switch of scipy, and skips without
                checks.append(pytest.param(model, check, id=f"{name}-{called}"))
    return checks


@pytest.mark.parametrize(("model", "check"), all_checks())
def test_scikit_learns_checks_pass_without_privacy(model: Any, check: Callable[[Any], None]) -> None:
    check(model)


def test_parameters_are_kept_by_a_copy_and_can_be_set(make: Callable[..., Any]) -> None:
    model = make(epsilon=0.5)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert again.set_params(epsilon=2.0).epsilon == 2.0
    assert model.epsilon == 0.5


# --- what it costs ---


def test_the_price_is_known_before_and_is_at_most_epsilon(make: Callable[..., Any]) -> None:
    model = make()
    frame, target = records(model)
    before = model.events_of(frame, target)
    model.fit(frame, target)
    assert counted(model.events_) == counted(before)
    assert 0.9 < spent(before, DELTA).epsilon <= 1.0
    assert model.spent_.epsilon <= 1.0


def test_what_is_not_declared_is_bought_within_the_price(make: Callable[..., Any]) -> None:
    model = make(schema=None, epsilon=4.0, delta=1e-4)
    frame, target = records(model, rows=2000)  # enough to tell their bounds and domains
    before = model.events_of(frame, target)
    assert len(before) == len(make(delta=1e-4).events_of(frame, target)) + frame.width + (target is not None)
    model.fit(frame, target)
    assert counted(model.events_) == counted(before)
    assert spent(before, 1e-4).epsilon <= 4.0


def test_a_fit_charges_what_it_declares(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 1.0) as ledger:
        model = make(epsilon=0.6, ledger=ledger).fit(frame, target)
        assert counted(ledger.events) == counted(model.events_)
        assert counted(ledger.events) == counted(make(epsilon=0.6).events_of(frame, target))


def test_a_fit_that_does_not_fit_is_refused_and_costs_nothing(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 1e-4) as ledger:
        model = make(epsilon=3.0, ledger=ledger)
        with pytest.raises(BudgetError):
            model.fit(frame, target)
        assert ledger.events == ()
    assert not hasattr(model, "events_")


def test_the_charge_is_made_before_the_data_is_looked_at(make: Callable[..., Any], tmp_path: Path) -> None:
    kind = type(make())
    if kind._learn is PrivateEstimator._learn:
        return  # it is charged step by step: see its own tests

    class Interrupted(kind):  # type: ignore[misc, valid-type]
        def _learn(self, *given: Any) -> Any:
            raise KeyboardInterrupt

    frame, target = records(make())
    with granted(tmp_path, frame, 1.0) as ledger:
        model = Interrupted(**{**make(epsilon=0.6).get_params(), "ledger": ledger})
        with pytest.raises(KeyboardInterrupt):
            model.fit(frame, target)
        assert counted(ledger.events) == counted(make(epsilon=0.6).events_of(frame, target))


def test_every_fold_is_charged(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 50.0) as ledger:
        model = make(epsilon=1.0, ledger=ledger)
        cross_val_score(model, frame, target, cv=3, scoring=no_score, error_score="raise")
        thrice = spent(ledger.events, DELTA).epsilon
    once = spent(make(epsilon=1.0).events_of(frame, target), DELTA).epsilon
    assert 1.2 * once < thrice <= 3 * once * 1.01


def test_a_search_charges_every_candidate_and_the_last_fit(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 50.0) as ledger:
        search = GridSearchCV(make(ledger=ledger), {"epsilon": [0.5, 1.0]}, cv=2, scoring=no_score, error_score="raise")
        search.fit(frame, target)
        singles = [make(epsilon=epsilon).events_of(frame, target) for epsilon in (0.5, 0.5, 1.0, 1.0, 0.5)]
        charged = counted(ledger.events)
    if type(make())._learn is not PrivateEstimator._learn:  # the steps of a network depend on the number of records
        assert charged == sum(map(counted, singles), Counter())
    assert sum(charged.values()) >= 5


def test_a_pipeline_charges_once(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 2.0) as ledger:
        line = make_pipeline(FunctionTransformer(), make(ledger=ledger)).fit(frame, target)
        assert counted(ledger.events) == counted(line[-1].events_)
        assert len(answers(line, frame)) == len(frame)


def test_a_fit_without_privacy_cannot_be_charged(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    with granted(tmp_path, frame, 2.0) as ledger, pytest.raises(OptionError, match="without privacy"):
        make(epsilon=math.inf, ledger=ledger).fit(frame, target)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, "1", None, -math.inf, True])
def test_an_epsilon_that_is_none_is_refused(make: Callable[..., Any], epsilon: Any) -> None:
    model = make(epsilon=epsilon)
    with pytest.raises(OptionError, match="epsilon must be"):
        model.fit(*records(make()))


@pytest.mark.parametrize("delta", [0.0, 1 / ROWS, 0.5, -1e-3, math.nan, "small"])
def test_a_delta_that_is_not_below_one_over_the_records_is_refused(make: Callable[..., Any], delta: Any) -> None:
    model = make(delta=delta)
    with pytest.raises(OptionError, match="delta must be"):
        model.fit(*records(make()))


# --- what it looks at, and the noise ---


def test_nothing_beyond_what_is_declared_is_read(make: Callable[..., Any]) -> None:
    """Values beyond the bounds are held within them, and those outside of a domain are all one."""
    frame, target = records(make())
    fits = []
    for high, low, other in ((101.0, 99.0, "x"), (1e6, -1e6, "another")):
        changed = {"age": high, "height": low} | ({"sex": other} if "sex" in frame.columns else {})
        beyond = [
            pl.when(pl.int_range(pl.len()) < 20).then(pl.lit(value)).otherwise(name).alias(name)
            for name, value in changed.items()
        ]
        mine = frame.with_columns(beyond)
        goal = target
        if target is not None:
            goal = pl.concat([pl.Series(target.name, [other if is_classifier(make()) else high * 10] * 5), target[5:]])
        fits.append(make(insecure_seed=1).fit(mine, goal))
    assert same(*fits)


def test_a_seed_repeats_the_model_and_takes_its_privacy(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    one, other = (make(insecure_seed=7).fit(frame, target) for _ in range(2))
    assert same(one, other)
    assert one.to_dict()["private"] is False
    assert np.array_equal(answers(one, frame), answers(other, frame))
    assert not same(one, make(insecure_seed=8).fit(frame, target))


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
def test_every_fit_has_noise_of_its_own(make: Callable[..., Any], epsilon: float) -> None:
    frame, target = records(make())
    one, other = (make(epsilon=epsilon).fit(frame, target) for _ in range(2))
    assert not same(one, other)
    assert one.to_dict()["private"] is True


def test_a_fit_without_privacy_says_so(make: Callable[..., Any]) -> None:
    told = make(epsilon=math.inf).fit(*records(make())).to_dict()
    assert told["private"] is False
    assert told["epsilon"] == "inf"
    assert told["events"] == []


def test_a_model_is_all_in_its_state(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    model = make().fit(frame, target)
    arrays, facts = model.state()
    again = make()
    again.restore(arrays, json.loads(json.dumps(facts)))
    assert np.array_equal(answers(again, frame), answers(model, frame))


# --- what it is given ---


def test_missing_values_are_taken(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    holes = frame.with_columns(pl.when(pl.int_range(pl.len()) % 3 > 0).then(pl.col(name)) for name in frame.columns)
    model = make().fit(holes, target)
    assert len(answers(model, holes)) == ROWS
    assert np.isfinite(model.transform(holes) if hasattr(model, "transform") else 0.0).all()


def test_a_category_that_is_not_known_is_told_by_its_column_only(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    if "sex" not in frame.columns:
        return
    model = make().fit(frame, target)
    odd = frame.with_columns(sex=pl.lit("Zaphod"))
    with pytest.warns(UserWarning, match="column 'sex'") as told:
        answers(model, odd)
    assert not any("Zaphod" in str(one.message) for one in told)


def test_categories_are_refused_where_numbers_are_wanted(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    if "sex" in frame.columns:
        return
    with pytest.raises(InputError, match="column 'sex' holds categories") as refused:
        make().fit(frame.with_columns(sex=pl.lit("Zaphod")), target)
    assert "Zaphod" not in str(refused.value)


def test_columns_are_taken_by_their_names(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    model = make(insecure_seed=0).fit(frame, target)
    turned = frame.select(reversed(frame.columns)).with_columns(more=pl.lit(1))
    assert np.array_equal(answers(model, turned), answers(model, frame))


def test_other_columns_are_refused(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    model = make().fit(frame, target)
    with pytest.raises(InputError, match="'age'"):
        answers(model, frame.drop("age"))
    with pytest.raises(InputError, match=f"is expecting {frame.width} features"):
        answers(model, np.zeros((3, frame.width + 1)))


@pytest.mark.parametrize("rows", [0, ROWS])
def test_a_table_without_rows_or_columns_is_refused(make: Callable[..., Any], rows: int) -> None:
    frame, target = records(make())
    given = frame.head(0) if rows == 0 else frame.select([])
    with pytest.raises(InputError, match="no rows" if rows == 0 else "no column"):
        make().fit(given, None if target is None else target.head(rows))


def test_a_target_that_is_wrong_is_refused_in_one_sentence(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    if target is None:
        return
    with pytest.raises(InputError, match="the same number of records, got 200 and 199"):
        make().fit(frame, target.head(ROWS - 1))
    with pytest.raises(InputError, match="y to be passed"):
        make().fit(frame)
    with pytest.raises(InputError, match="no column 'illl'"):
        make().fit(frame.with_columns(target), "illl")
    if is_classifier(make()):
        with pytest.raises(InputError, match="two classes"):
            make(schema=None, epsilon=math.inf).fit(frame, pl.Series("ill", ["Zaphod"] * ROWS))
        with pytest.raises(InputError, match="two classes"):
            make(classes=["no"]).fit(frame, target)
        with pytest.raises(InputError, match="Unknown label type") as refused:
            make(schema=None).fit(frame, pl.Series("cost", np.arange(ROWS) + 0.123456))
        assert "123456" not in str(refused.value)
    else:
        with pytest.raises(InputError, match="must be numbers") as refused:
            make().fit(frame, pl.Series("cost", ["Zaphod"] * ROWS))
        assert "Zaphod" not in str(refused.value)


def test_a_target_without_any_other_column_is_refused(make: Callable[..., Any]) -> None:
    _, target = records(make())
    if target is not None:
        with pytest.raises(InputError, match="no column beside the target"):
            make().fit(target.to_frame(), target.name)


def test_what_is_refused_for_what_is_public_costs_nothing(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    wrong: dict[str, Any] = {"bounds": (0, 1e-320), "schema": None}
    with granted(tmp_path, frame, 1.0) as ledger:
        with pytest.raises(OptionError, match="the bounds must be"):
            make(ledger=ledger, **wrong).fit(frame, target)
        if is_classifier(make()):
            with pytest.raises(InputError, match="two classes"):
                make(ledger=ledger, classes=["no"]).fit(frame, target)
        assert ledger.events == ()


def test_no_label_alone_stops_a_fit(make: Callable[..., Any]) -> None:
    """Whether it is infinite, missing or no class: that somebody has it would be told, and not be paid for."""
    frame, target = records(make())
    if target is None:
        return
    for odd in (math.inf, -math.inf, math.nan, 0.5):
        if is_classifier(make()):
            labels = np.where(target == "yes", 1.0, 0.0)
            labels[0] = odd
            model = make(classes=(0, 1)).fit(frame, labels)
            assert model.classes_.tolist() == [0, 1]
        else:
            labels = target.to_numpy().copy()
            labels[0] = odd
            model = make(target_bounds=(0, 1000)).fit(frame, labels)
        assert len(answers(model, frame)) == ROWS


def test_classes_that_are_not_of_the_targets_type_are_texts(make: Callable[..., Any]) -> None:
    frame, _ = records(make())
    if is_classifier(make()):
        model = make(classes=("0.5", "many")).fit(frame, np.arange(ROWS) % 2)
        assert model.classes_.tolist() == ["0.5", "many"]


@pytest.mark.parametrize("dtype", ["Int64", "boolean", object])
def test_a_missing_label_does_not_change_the_type_of_the_classes(make: Callable[..., Any], dtype: Any) -> None:
    if not is_classifier(make()):
        return
    frame, target = records(make())
    labels: list[Any] = [one == "yes" if dtype == "boolean" else int(one == "yes") for one in target]
    whole, holed = (
        make(classes=sorted(set(labels))).fit(frame, pd.Series(given, dtype=dtype)).classes_
        for given in (labels, [None, *labels[1:]])
    )
    assert whole.dtype == holed.dtype
    assert whole.tolist() == holed.tolist() == sorted(set(labels))


def test_a_schema_or_classes_that_are_none_are_refused(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    with pytest.raises(OptionError, match="must be a Schema"):
        make(schema={"age": 1}).fit(frame, target)
    if is_classifier(make()):
        with pytest.raises(OptionError, match="must be a list"):
            make(classes=2).fit(frame, target)
        assert make(classes=("no", "yes", None)).fit(frame, target).classes_.tolist() == ["no", "yes"]


def test_a_category_of_which_nothing_stood_out_is_taken(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    if "sex" in frame.columns:
        rare = frame.with_columns(sex=pl.Series([f"Zaphod {at}" for at in range(ROWS)]))
        declared = sf.Schema([one for one in SCHEMA.columns if one.name != "sex"])
        model = make(schema=declared, delta=1e-9).fit(rare, target)
        assert model.features_.features[2].domain == ()
        models = [model]
        if type(model)._learn is not PrivateEstimator._learn:  # a network needs an input
            models.append(make(schema=declared, delta=1e-9).fit(rare.select("sex"), target))
        for one in models:
            with pytest.warns(UserWarning, match="column 'sex'"):
                assert len(answers(one, rare)) == ROWS


def test_names_of_a_fit_before_are_forgotten(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    numbers = frame.select("age", "height")
    model = make(bounds=(0, 200)).fit(numbers, target)
    assert model.feature_names_in_.tolist() == ["age", "height"]
    model.fit(numbers.to_numpy(), target)
    assert not hasattr(model, "feature_names_in_")


# --- people with several rows ---


def test_with_one_row_for_each_person_all_is_as_for_rows(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    by_row = make(insecure_seed=3).fit(frame, target)
    by_person = make(insecure_seed=3, schema=PEOPLE, rows_per_person=1).fit(of_people(frame), target)
    assert same(by_row, by_person)
    assert timeless(by_person.state()[1]) == timeless(by_row.state()[1])
    assert timeless(by_person.to_dict()) == timeless(by_row.to_dict())
    assert {one.unit for one in by_person.events_} == {"person"}
    assert np.array_equal(answers(by_person, frame), answers(by_row, frame))


def test_with_one_row_for_each_person_purchases_are_as_for_rows(make: Callable[..., Any]) -> None:
    frame, target = records(make(), rows=2000)
    ids, terms = pl.Series("patient_id", range(2000)), {"epsilon": 4.0, "delta": 1e-4, "insecure_seed": 3}
    by_row = make(schema=None, **terms).fit(frame, target)
    by_person = make(schema=None, rows_per_person=1, **terms).fit(of_people(frame, ids), target)
    assert same(by_row, by_person)
    assert by_person.features_ == by_row.features_
    assert timeless(by_person.to_dict()) == timeless(by_row.to_dict())


def test_people_with_several_rows_cost_no_more_than_epsilon(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    table = of_people(frame, pl.Series("patient_id", [at // 4 for at in range(ROWS)]))
    model = make(schema=PEOPLE, rows_per_person=3)
    before = model.events_of(table, target)
    with sf.Ledger.grant(frame, epsilon=2.0, delta=DELTA, path=tmp_path / "people", unit="person") as ledger:
        model = make(schema=PEOPLE, rows_per_person=3, ledger=ledger).fit(table, target)
        assert counted(ledger.events) == counted(model.events_) == counted(before)
    assert 0.9 < spent(before, DELTA).epsilon <= 1.0
    assert model.spent_.unit == "person"
    with granted(tmp_path, frame, 2.0) as ledger, pytest.raises(OptionError, match="protects a person, and the ledger"):
        make(schema=PEOPLE, rows_per_person=3, ledger=ledger).fit(table, target)


@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_no_person_moves_a_sum_further_than_is_paid_for(make: Callable[..., Any], epsilon: float) -> None:
    """By brute force: fits without each of the people, two of whom have five rows, and one of whom is in no row."""
    if type(make())._learn is PrivateEstimator._learn:
        return  # it asks for no sums: see the tests of its steps
    frame, target = records(make(), rows=16)
    ids = pl.Series("patient_id", [1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 3, 4, None, None, 5, 5])
    model = make(schema=PEOPLE, epsilon=epsilon, rows_per_person=5, insecure_seed=1)
    if is_classifier(model):
        model.set_params(classes=("no", "yes"))
    elif is_regressor(model):
        model.set_params(target_bounds=(0, 1000))  # the target has no name there
    assert_sums_are_bounded(model, of_people(frame, ids), target)


def test_a_person_with_most_rows_counts_as_often_as_the_bound_says() -> None:
    frame = pl.DataFrame({"age": [75.0] * 1000 + [25.0] * 3})
    table = of_people(frame, pl.Series("patient_id", [1] * 1000 + [2, 3, 4]))
    terms: dict[str, Any] = {"classes": (0, 1), "cells": 2, "rows_per_person": 2}
    model = PrivateNaiveBayes(epsilon=1e5, delta=0.1, **terms).fit(table, np.ones(1003, dtype=np.int64))
    chances = np.exp(model.feature_log_prob_[1][:2])
    assert chances[1] / chances[0] == pytest.approx(2 / 3, rel=0.05)  # 2 of 1,000 rows, and 3 of the others


def test_what_is_undeclared_is_estimated_on_one_row_of_each_person(make: Callable[..., Any]) -> None:
    """Someone with very many rows far away from all others does not widen the bounds."""
    frame, target = records(make(), rows=2000)
    far = frame.with_columns(age=pl.when(pl.int_range(pl.len()) < 900).then(1e7).otherwise("age"))
    ids = pl.Series("patient_id", [0] * 900 + list(range(1, 1101)))
    terms = {"schema": None, "epsilon": 4.0, "delta": 1e-4}
    by_person = make(**terms, rows_per_person=900).fit(of_people(far, ids), target)
    by_row = make(**terms).fit(far, target)
    ends = [one.features_.features[0].bounds[1] for one in (by_person, by_row)]
    assert ends[0] < 1000 < 1e6 < ends[1]


def test_a_bound_that_is_none_and_a_column_that_is_none_are_refused(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    table = of_people(frame)
    with pytest.raises(OptionError, match="the rows of a person are not bounded"):
        make(schema=PEOPLE).fit(table, target)
    with pytest.raises(OptionError, match="rows_per_person needs a person column"):
        make(rows_per_person=2).fit(frame, target)
    for bound in (0, -1, 1.5, "2", True):
        with pytest.raises(OptionError, match="the rows of a person must be a whole number"):
            make(schema=PEOPLE, rows_per_person=bound).fit(table, target)
    if not hasattr(make(), "batch_size"):
        with pytest.raises(OptionError, match="rows_per_person needs a person column"):
            make(rows_per_person="bought").fit(frame, target)
    with pytest.raises(InputError, match="asks to protect people, but there is no column 'patient_id'"):
        make(schema=PEOPLE, rows_per_person=2).fit(frame, target)
    with pytest.raises(InputError, match="'patient_id' says which rows are of the same person"):
        make(schema=PEOPLE, rows_per_person=2).fit(table, "patient_id")
    with pytest.raises(InputError, match="no column beside the person column"):
        make(schema=PEOPLE, rows_per_person=2).fit(sf.Table.of(IDS.to_frame(), person="patient_id"), target)
    other = sf.Schema([*SCHEMA.columns, sf.Column(name="person", role="person")])
    with pytest.raises(OptionError, match="the person column of the table is 'patient_id', and of the schema 'person'"):
        make(schema=other, rows_per_person=2).fit(table, target)


def test_delta_is_below_one_over_the_people(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    table = of_people(frame, pl.Series("patient_id", [at // 4 for at in range(ROWS)]))
    public = {"rows": ROWS // 4} if "rows" in make().get_params() else {}
    make(schema=PEOPLE, rows_per_person=4, delta=0.99 / (ROWS / 4), **public).fit(table, target)
    with pytest.raises(OptionError, match="one over the number of people"):
        make(schema=PEOPLE, rows_per_person=4, delta=1 / (ROWS / 4), **public).fit(table, target)


def test_the_schema_of_an_estimator_may_name_the_person_of_a_frame(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    table, terms = of_people(frame), {"rows_per_person": 2, "insecure_seed": 1}
    by_table = make(schema=SCHEMA, **terms).fit(table, target)
    for given in (table.to_polars(), table.to_polars().to_pandas()):
        assert same(by_table, make(schema=PEOPLE, **terms).fit(given, target))
    assert np.array_equal(answers(by_table, table), answers(by_table, frame))


def test_without_privacy_all_rows_of_all_people_count(make: Callable[..., Any]) -> None:
    frame, target = records(make())
    ids = pl.Series("patient_id", [1] * ROWS)
    seed = {"random_state": 0} if "random_state" in make().get_params() else {}
    plain = make(epsilon=math.inf, **seed).fit(frame, target)
    for bound in (None, *([] if hasattr(make(), "batch_size") else ["bought"])):
        model = make(epsilon=math.inf, schema=PEOPLE, rows_per_person=bound, **seed)
        assert same(plain, model.fit(of_people(frame, ids), target))


# --- rows of a person that are bought ---


def test_whatever_is_bought_all_together_costs_no_more_than_epsilon(make: Callable[..., Any], tmp_path: Path) -> None:
    frame, target = records(make())
    table = of_people(frame, pl.Series("patient_id", [at // 4 for at in range(ROWS)]))
    if type(make())._learn is PrivateEstimator._learn:
        with pytest.raises(OptionError, match="networks do not buy the rows of a person, because"):
            make(schema=PEOPLE, rows_per_person="bought").fit(table, target)
        return
    search = FindRowsPerPerson(epsilon=0.1)
    before = make(schema=PEOPLE, rows_per_person="bought").events_of(table, target)
    assert before[0] == search.event
    with sf.Ledger.grant(frame, epsilon=1.0, delta=DELTA, path=tmp_path / "people", unit="person") as ledger:
        model = make(schema=PEOPLE, rows_per_person="bought", ledger=ledger).fit(table, target)
        assert counted(ledger.events) == counted(model.events_)
        with pytest.raises(BudgetError, match="would exceed the limit"):
            make(schema=PEOPLE, rows_per_person="bought", ledger=ledger).fit(table, target)
        assert counted(ledger.events) == counted(model.events_)
    assert model.rows_that_count in search.CANDIDATES
    assert model.to_dict()["bought_rows_per_person"] == model.rows_that_count
    assert model.spent_.unit == "person"
    for rows in search.CANDIDATES:
        model.bought_rows_per_person_ = rows
        events = model.events_of(table, target)
        assert 0.99 < spent(events, DELTA).epsilon <= 1.0
        assert {one.sensitivity for one in counted(events) if isinstance(one, Gaussian)} == {float(rows)}
        assert [one for one in counted(events) if one == search.event] == [search.event]


def test_a_bound_is_bought_from_the_rows_of_people_and_noise_is_made_for_it() -> None:
    people = 20_000
    rows = np.repeat(np.arange(people), 4)
    table = sf.Table.of(pl.DataFrame({"age": np.full(len(rows), 30.0), "patient_id": rows}), person="patient_id")
    terms: dict[str, Any] = {"bounds": (18, 90), "classes": (0, 1), "rows_per_person": "bought", "insecure_seed": 1}
    model = PrivateNaiveBayes(epsilon=20, delta=1e-5, **terms).fit(table, np.zeros(len(rows), dtype=np.int64))
    assert model.rows_that_count == 5
    assert {one.sensitivity for one in counted(model.events_) if isinstance(one, Gaussian)} == {5.0}
    assert spent(model.events_, 1e-5).epsilon <= 20


def test_a_bound_is_charged_before_anything_is_read(tmp_path: Path) -> None:
    frame, target = records(PrivateNaiveBayes())
    table = of_people(frame)
    terms: dict[str, Any] = {"delta": DELTA, "rows_per_person": "bought", "insecure_seed": 1, "schema": PEOPLE}
    with sf.Ledger.grant(frame, epsilon=0.5, delta=DELTA, path=tmp_path / "people", unit="person") as ledger:
        with pytest.raises(BudgetError, match="would exceed the limit"):
            PrivateNaiveBayes(epsilon=1.0, ledger=ledger, **terms).fit(table, target)
        assert ledger.spent.epsilon == 0
    seeded = [PrivateNaiveBayes(epsilon=1.0, **terms).fit(table, target) for _ in range(2)]
    assert same(*seeded)
    assert seeded[0].rows_that_count == seeded[1].rows_that_count
    again = seeded[0].set_params(rows_per_person=2).fit(table, target)  # what was bought before is forgotten
    assert again.rows_that_count == 2
    assert "bought_rows_per_person" not in again.to_dict()


# --- whether the claim is true ---


class Careless(PrivateNaiveBayes):
    """Naive Bayes that takes every norm for a third of what it is."""

    def _sums(self, *given: Any) -> NoisySums:
        right = super()._sums(*given)

        class ThirdOfTheNoise(NoisySums):
            def __call__(self, name: str, sums: Any, norm: float) -> Any:
                return super().__call__(name, sums, norm / 3)

        return ThirdOfTheNoise(right.shares, right.multiplier, right._source)


def audited(kind: type[PrivateNaiveBayes], epsilon: float, runs: int) -> float:
    """Return a lower bound on epsilon, from fits to six equal records and to seven: with delta 0.1 few fits tell much.

    All records are in one of two cells. With the other for a measure, a model tells about how many there are.
    """
    model = kind(epsilon=epsilon, delta=0.1, bounds=(0, 100), cells=2, classes=(0, 1))
    seen = []
    for rows in (6, 7):
        table, target = np.full((rows, 1), 75.0), np.ones(rows, dtype=np.int64)
        fits = (model.fit(table, target).feature_log_prob_[1] for _ in range(runs))
        seen.append(sum(math.exp(found[1] - found[0]) > 6.5 for found in fits))
    without, with_it = seen
    return max(least_epsilon(with_it, without, runs, 0.1), least_epsilon(runs - without, runs - with_it, runs, 0.1))


def test_an_audit_finds_no_more_than_the_claim() -> None:
    """The bound is too high less than once in ten million times."""
    assert audited(PrivateNaiveBayes, 1.0, 1000) <= 1.0


def test_an_audit_catches_an_estimator_with_a_third_of_the_noise() -> None:
    """The bound is about 1.57, and its standard error 0.1."""
    assert audited(Careless, 1.0, 1000) > 1.0

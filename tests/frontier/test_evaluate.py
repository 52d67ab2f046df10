"""An evaluation holds what its parts measure, whatever the order of the rows, and says what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.frontier import Evaluation
from sfumato.measures import distances, propensity

QUICK: dict[str, Any] = {"models": ["tree"], "attacks": ["distance-to-closest-record", "inference"], "repeats": 1}


def people(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age, city = rng.integers(18, 90, rows), rng.choice(["Bonn", "Oslo", "Rome"], rows)
    ill = np.where(rng.random(rows) < 0.8, age > 60, rng.random(rows) < 0.5)
    return pl.DataFrame(
        {"age": age, "city": city, "weight": rng.normal(70, 9, rows).round(1), "ill": ill}
    ).with_columns(ill=pl.col("ill").cast(pl.String))


@pytest.fixture(scope="module")
def found() -> Evaluation:
    return sf.evaluate(people(300, 0), people(250, 1), test=people(200, 2), target="ill", **QUICK)


def test_all_parts_are_measured(found: Evaluation) -> None:
    names = ["age", "city", "weight", "ill"]
    ours, theirs, test = (people(rows, seed) for seed, rows in enumerate((300, 250, 200)))
    assert found.rows == {"original": 300, "released": 250, "test": 200}
    assert (found.kind, found.columns, found.left_out, found.skipped) == ("synthetic", tuple(names), (), {})
    assert found.distances == distances(ours, theirs, columns=names, quantiles=True)
    assert found.test_distances == distances(ours, test, columns=names, quantiles=True)
    assert found.propensity.pmse == pytest.approx(propensity(ours, theirs, columns=names).pmse, rel=1e-5)
    assert found.mean_pair_distance == np.mean(list(found.distances.by_pair.values()))
    assert (found.models[0].model, found.models[0].rows) == ("tree", (300, 250, 200))
    assert found.attacks is not None
    assert {one.name for one in found.attacks.results} == {"distance-to-closest-record", "inference"}
    assert found.attacks.target["nonmembers"] == 200
    assert found.leaks is False


def test_the_order_of_the_rows_changes_no_figure(found: Evaluation) -> None:
    tables = [people(rows, seed).sample(fraction=1, shuffle=True, seed=7) for seed, rows in enumerate((300, 250, 200))]
    tables[2] = tables[2].with_columns(pl.col("city").cast(pl.Categorical))  # which sorts by its first rows
    again = sf.evaluate(tables[0], tables[1], test=tables[2], target="ill", **QUICK)
    assert again.to_dict() == found.to_dict()


def test_it_is_plain_json_without_a_record(found: Evaluation) -> None:
    plain = json.loads(found.to_json())
    assert plain == json.loads(json.dumps(found.to_dict()))
    assert plain["note"].startswith("figures of real rows without noise")
    assert plain["distances"]["mean_of_pairs"] == found.mean_pair_distance
    assert [one["model"] for one in plain["models"]] == ["tree"]
    assert plain["attacks"]["leaks"] is False
    for text in (repr(found), found.to_json()):
        assert "Bonn" not in text
    assert repr(found).startswith("Evaluation(kind='synthetic', mean_pair_distance=0.")


def test_copied_rows_are_alike_and_leak() -> None:
    ours = people(300, 0)
    copied = sf.evaluate(
        ours, ours.sample(300, with_replacement=True, seed=1), test=people(300, 2), target="ill", **QUICK
    )
    assert copied.leaks
    assert copied.test_distances is not None
    assert copied.distances.mean_of_columns < copied.test_distances.mean_of_columns


def test_without_test_rows_there_are_neither_models_nor_attacks() -> None:
    found = sf.evaluate(people(100, 0), people(100, 1), target="ill")
    assert (found.models, found.attacks, found.leaks, found.test_distances) == ((), None, None, None)
    assert found.skipped == {
        "models": "there are no test rows: real rows that the release was not made from",
        "attacks": "there is no control: real rows that the release was not made from",
    }
    assert found.to_dict()["attacks"] is None


def test_a_part_that_cannot_be_measured_says_why() -> None:
    tables = people(100, 0), people(100, 1)
    test = people(100, 2)
    assert sf.evaluate(*tables, test=test, attacks=[]).skipped == {
        "models": "no target is named",
        "attacks": "none is asked for",
    }
    known = sf.Table.of(tables[0], target="weight")
    weight = sf.evaluate(known, tables[1], test=test, attacks=[])
    assert weight.skipped["models"].startswith("the target 'weight' has ")
    assert sf.evaluate(known, tables[1], test=test, attacks=[], models=[]).skipped["models"] == "none is asked for"
    some = sf.evaluate(known, tables[1], test=test, attacks=[], columns=["age", "city"])
    assert some.skipped["models"] == "the target 'weight' is not among the columns"
    assert some.columns == ("age", "city")


def test_a_control_of_its_own_is_used_for_attacks_alone() -> None:
    found = sf.evaluate(
        people(200, 0), people(200, 1), control=people(150, 3), attacks=["distance-to-closest-record"], target="ill"
    )
    assert found.attacks is not None
    assert found.attacks.target["nonmembers"] == 150
    assert list(found.skipped) == ["models"]


def test_a_release_of_a_table_is_read_as_generalised(tmp_path: Path) -> None:
    ours, test = people(300, 0), people(300, 2)
    release = sf.anonymize(ours, "k=10", qi=["age", "city"], sensitive=["ill"], identifiers=["weight"])
    found = sf.evaluate(ours, release, test=test, target="ill", models=["tree"], attacks=["homogeneity"], repeats=1)
    assert (found.kind, found.left_out) == ("table", ("weight",))
    same = distances(ours, release.table, columns=["age", "city", "ill"], quantiles=True)
    assert found.distances == same
    assert found.attacks is not None
    assert [one.name for one in found.attacks.results] == ["homogeneity"]
    sf.save(release, tmp_path / "saved")
    saved = sf.evaluate(ours, tmp_path / "saved", attacks=[])
    assert saved.distances == same


def test_test_rows_change_nothing_of_a_generator() -> None:
    """They never pass it: it is learned before they are named, and an evaluation leaves it as it is."""
    columns = [
        sf.Column(name="age", kind="number", bounds=(0, 120)),
        sf.Column(name="city", kind="category", domain=("Bonn", "Oslo", "Rome")),
        sf.Column(name="ill", kind="category", domain=("false", "true")),
    ]
    ours = people(300, 0).drop("weight")
    options: dict[str, Any] = {"method": "independent", "schema": sf.Schema(columns), "rows": 200, "ledger": False}
    release = sf.synthesize(ours, 1, insecure_seed=1, seed=1, **options)
    made, (facts, arrays) = release.table.frame.clone(), release.stored_form()
    tests = [people(100, 2), people(100, 2).reverse(), people(100, 3)]
    first, turned, other = (
        sf.evaluate(ours, release, test=one, target="ill", models=["tree"], attacks=[], repeats=1).to_dict()
        for one in tests
    )
    assert first == turned
    assert first["models"] != other["models"]
    for same in (release, sf.synthesize(ours, 1, insecure_seed=1, seed=1, **options)):
        assert same.table.frame.equals(made)
        plain, noisy = same.stored_form()
        assert plain == facts
        assert all(np.array_equal(noisy[name], arrays[name]) for name in (*noisy, *arrays))


def test_values_that_the_original_lacks_are_compared_too() -> None:
    ours = people(100, 0)
    made = people(100, 1).with_columns(city=pl.lit("Elsewhere"), age=pl.lit(None, dtype=pl.Int64))
    found = sf.evaluate(ours, made, test=people(100, 2), target="ill", models=["tree"], attacks=[])
    assert found.distances.binned["city"] == found.distances.binned["age"] == 1
    assert found.distances.by_pair["age", "city"] == 1


def test_real_values_outside_of_what_is_declared_are_compared_as_they_are() -> None:
    # A synthesizer clips them to the bounds, or takes them for missing; the owner wants to see what that costs.
    declared = [sf.Column(name="age", bounds=(30, 60)), sf.Column(name="city", domain=("Bonn", "Oslo"))]
    ours, made = people(300, 0), people(300, 1).filter(pl.col("age").is_between(30, 60), pl.col("city") != "Rome")
    plain = sf.evaluate(ours, made, target="ill", attacks=[])
    found = sf.evaluate(sf.Table(ours, sf.Schema(declared)), made, target="ill", attacks=[])
    assert found.distances == plain.distances
    assert found.distances.binned["city"] > 0.3  # a third of the real rows are from Rome


def test_an_empty_column_of_a_text_file_is_compared_as_what_it_is() -> None:
    ours = people(100, 0).with_columns(paid=pl.lit(None, dtype=pl.String))
    paid = sf.Column(name="paid", kind="number")
    found = sf.evaluate(sf.Table(ours, sf.Schema([paid])), ours.with_columns(paid=pl.lit(1.5)), attacks=[])
    assert found.distances.binned["paid"] == 1


def test_a_column_with_too_many_categories_is_left_out() -> None:
    name = pl.Series("name", [f"person {one}" for one in range(1500)])
    found = sf.evaluate(people(1500, 0).with_columns(name), people(1500, 1).with_columns(name), attacks=[])
    assert found.left_out == ("name",)


def test_progress_goes_from_nothing_to_all() -> None:
    seen: list[float] = []
    sf.evaluate(people(100, 0), people(100, 1), test=people(100, 2), target="ill", progress=seen.append, **QUICK)
    assert seen == sorted(seen)
    assert seen[-1] == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "sinthetic"}, "OptionError", "kind must be 'synthetic' or 'table', got 'sinthetic'"),
        ({"target": "il"}, "ColumnError", "the original has no column 'il'"),
        ({"columns": ["age", "size"]}, "ColumnError", "the original has no column 'size'"),
        ({"target": "weight"}, "OptionError", "the target 'weight' has "),
        ({"target": "ill", "models": ["oracle"]}, "OptionError", "there is no model 'oracle'"),
        ({"attacks": ["telepathy"]}, "OptionError", "telepathy"),
        ({"seed": -1}, "OptionError", "the seed"),
        ({"bins": 0}, "OptionError", "bins must be at least 1"),
        ({"queries": 0}, "OptionError", "queries must be at least 1"),
        ({"test": people(0, 0)}, "InputError", "the test has no rows"),
        ({"test": people(10, 2).drop("city")}, "ColumnError", "the test has no column 'city'"),
        ({"test": people(60, 0)}, "InputError", "are also members"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(options: dict[str, Any], error: str, message: str) -> None:
    with pytest.raises(getattr(sf.errors, error), match=message):
        sf.evaluate(people(60, 0), people(60, 1), **{"test": people(60, 2), **QUICK, **options})


def test_what_has_no_rows_is_refused() -> None:
    with pytest.raises(sf.errors.ColumnError, match="has none of the original's columns"):
        sf.evaluate(people(10, 0), people(10, 1).rename(str.upper))
    with pytest.raises(sf.errors.InputError, match="the release has no rows"):
        sf.evaluate(people(10, 0), people(0, 1))
    (model,) = sf.train(people(100, 0), "logistic", target="ill", epsilon="none").values()
    with pytest.raises(sf.errors.InputError, match="kind 'model' has no rows"):
        sf.evaluate(people(10, 0), model)

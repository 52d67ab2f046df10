"""Models for people: who trains and who tests, scores, searches and releases, if a person has several rows."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import Event, Gaussian, PoissonSampled, Source, spent
from sfumato.budget.people import for_people
from sfumato.data.recipe import Recipe
from sfumato.learners import Privacy, PrivateNaiveBayes, PrivateSearch, Split
from sfumato.learners.estimators.features import Columns, person_texts
from sfumato.learners.training.catalogue import TABLE_MODELS
from sfumato.learners.training.scoring import noisy_scores, scoring_events
from sfumato.learners.training.split import coins_of, coins_of_people, key_of, material_of, records_of
from sfumato.learners.training.sweep import run_recipe
from tests.effort import effort
from tests.forgery import change_json, change_text, failed

KEY = key_of(7)
COLUMNS = [
    sf.Column(name="age", bounds=(18, 90)),
    sf.Column(name="sex", domain=["f", "m"]),
    sf.Column(name="ill", domain=["no", "yes"]),
    sf.Column(name="cost", bounds=(0, 1000)),
    sf.Column(name="patient_id", role="person"),
]
SCHEMA = sf.Schema(COLUMNS)


def visits(people: int = 300, seed: int = 0, most: int = 5) -> pl.DataFrame:
    """Return a table with one to five rows of each person, and a few rows of nobody, in no order."""
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(people), random.integers(1, most + 1, people))
    age = random.integers(18, 90, len(ids))
    ill = random.random(len(ids)) < (age - 18) / 72
    frame = pl.DataFrame(
        {
            "age": age,
            "sex": random.choice(["f", "m"], len(ids)),
            "ill": np.where(ill, "yes", "no"),
            "cost": age * 10.0,
            "patient_id": [None if at % 29 == 0 else f"p{one}" for at, one in enumerate(ids)],
        }
    )
    return frame[random.permutation(len(frame))]


VISITS = sf.Table(visits(), SCHEMA)
QUICK: dict[str, dict[str, Any]] = {"mlp": {"epochs": 3, "batch_size": 60, "model_options": {"hidden": [4]}}}


def trained(data: Any = VISITS, model: str = "naive-bayes", **terms: Any) -> Any:
    return sf.train(data, model, **{"target": "ill", "epsilon": 1, "delta": 1e-4, "rows_per_person": 2, **terms})


# --- who trains and who tests ---


def parts(frame: pl.DataFrame, **more: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    material = material_of(sf.Table(frame, SCHEMA), target="ill", key=KEY, split=Split(**more))
    train, test = (
        part.to_polars().with_columns(target.alias("ill")).select(frame.columns)
        for part, target in ((material.train, material.train_target), (material.test, material.test_target))
    )
    return train, test


@pytest.mark.parametrize("samples", [None, 0.5])
def test_all_rows_of_a_person_are_in_one_part(samples: float | None) -> None:
    train, test = parts(visits(), samples=samples, test_samples=samples)
    both = [set(one["patient_id"].drop_nulls()) for one in (train, test)]
    assert both[0]
    assert both[1]
    assert not both[0] & both[1]
    whole = Counter(visits()["patient_id"].drop_nulls())
    found = Counter(pl.concat([train, test])["patient_id"].drop_nulls())
    assert all(count == whole[one] for one, count in found.items())
    assert samples is not None or found == whole


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("samples", [None, 0.5])
def test_one_person_more_leaves_everyone_else_in_their_part(rows: int, samples: float | None) -> None:
    frame = visits()
    own = {"age": [30 + one for one in range(rows)], "sex": "f", "ill": "no", "cost": 5.0, "patient_id": "new"}
    order = np.random.default_rng(1).permutation(len(frame) + rows)
    more = pl.concat([frame, pl.DataFrame(own, schema=frame.schema)])[order]
    for before, after in zip(
        *(parts(one, samples=samples, test_samples=samples) for one in (frame, more)), strict=True
    ):
        there = after.filter(pl.col("patient_id").is_null() | (pl.col("patient_id") != "new"))
        assert Counter(there.rows()) == Counter(before.rows())
        assert len(after) - len(before) in (0, rows)


def test_people_are_held_out_with_the_probability_that_is_asked_for() -> None:
    """False alarms: below 1e-9."""
    people = 20_000
    units = np.repeat(np.arange(people), 3)
    coins = coins_of_people(coins_of(np.arange(len(units)), KEY), units)
    assert len(np.unique(coins[:, 0])) == people
    for at in (0, 1):
        share = float((coins[::3, at] < np.uint64(0.2 * 2.0**64)).mean())
        assert abs(share - 0.2) < 6.2 * math.sqrt(0.2 * 0.8 / people)
    assert abs(np.corrcoef(coins[::3].T.astype(float))[0, 1]) < 6.2 / math.sqrt(people)


@settings(deadline=None, max_examples=effort(60, 1000))
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), min_size=1, max_size=12), st.data())
def test_the_coins_of_people_depend_on_nobody_else_and_on_no_order(rows: list[Any], data: Any) -> None:
    order = data.draw(st.permutations(rows))
    gone = data.draw(st.sampled_from([who for _, who in rows]))
    fewer = [one for one in rows if one[1] != gone]

    def coins(some: list[Any]) -> Counter[Any]:
        frame = pl.DataFrame(some, schema={"x": pl.Int64, "y": pl.String}, orient="row")
        codes = Columns.of(sf.Table.of(frame, person="y")).units if some else np.zeros(0, dtype=np.int64)
        return Counter(zip(some, coins_of_people(coins_of(records_of(frame), KEY), codes)[:, 0].tolist(), strict=True))

    assert coins(order) == coins(rows)
    assert gone is None or not coins(fewer) - coins(rows)


def test_test_rows_of_people_in_the_table_are_left_out_whoever_is_in_both() -> None:
    frame = visits()
    here, there = frame.filter(pl.col("patient_id") != "p7"), visits(400, seed=1)
    _, test = parts(here, test=there)
    others = there.filter(
        ~pl.col("patient_id").is_in(here["patient_id"].drop_nulls().unique().implode()).fill_null(False)
    )
    assert Counter(test.rows()) == Counter(others.rows())
    assert {"p7", None} <= set(test["patient_id"])
    words = [material_of(sf.Table(one, SCHEMA), target="ill", split=Split(test=there)).split for one in (frame, here)]
    assert words == ["the rows given for testing, without those of people who are in the table"] * 2


def test_test_rows_need_the_person_column_in_the_same_type() -> None:
    there = visits(50, seed=1)
    with pytest.raises(sf.errors.ColumnError, match="the test rows have no column 'patient_id'"):
        parts(visits(), test=there.drop("patient_id"))
    with pytest.raises(sf.errors.ColumnError, match="of the test rows is of type Int64"):
        parts(visits(), test=there.with_columns(patient_id=pl.int_range(pl.len())))


def test_one_cell_of_a_text_file_joins_and_parts_nobody(tmp_path: Path) -> None:
    texts = ["1", "1.0", " 1", "01", str(2**60), str(2**60 + 1), "x", ""]
    for name, kept in (("with", texts), ("without", [one for one in texts if one != "x"])):
        path = tmp_path / f"{name}.csv"
        path.write_text("patient_id,age\n" + "".join(f"{one},5\n" for one in kept))
        table = sf.Table.of(sf.read(path, inferred=False), person="patient_id")
        assert Columns.of(table).units.tolist() == [0, 0, 0, *range(1, len(kept) - 2)]
    assert person_texts(pl.Series([2**60, 2**60 + 1])).n_unique() == 2


# --- scores ---


def test_scores_count_at_most_as_many_rows_of_a_person_as_the_training() -> None:
    """With next to no noise: someone with 500 rows, all wrong, counts twice."""
    ids = ["one"] * 500 + [f"p{at}" for at in range(98)]
    frame = pl.DataFrame({"age": [20.0] * 500 + [80.0] * 98, "patient_id": ids})
    target = pl.Series("ill", ["yes"] * 598)
    model = PrivateNaiveBayes(epsilon=1e6, delta=1e-3, schema=SCHEMA, classes=("no", "yes"), rows_per_person=2)
    others = pl.DataFrame({"age": [20.0, 80.0] * 50, "patient_id": [f"other {at}" for at in range(100)]})
    model.fit(others, pl.Series("ill", ["no", "yes"] * 50))
    events = [for_people(Gaussian(2e-3), 2)]
    scores = noisy_scores(model, frame, target, events, Source(insecure_seed=1))
    assert (scores.rows, scores.confusion) == (100, ((0, 0), (2, 98)))
    assert scores.events == tuple(one.to_dict() for one in events)


def test_samples_of_test_rows_are_of_people() -> None:
    """Everyone has ten rows, so every cell of a sample is a multiple of ten."""
    random = np.random.default_rng(0)
    ages = np.repeat(random.uniform(18, 90, 200), 10)
    frame = pl.DataFrame({"age": ages, "patient_id": np.repeat(np.arange(200), 10)})
    target = pl.Series("ill", np.where(ages > 54, "yes", "no"))
    model = PrivateNaiveBayes(epsilon=1e6, delta=1e-3, schema=SCHEMA, classes=("no", "yes"), rows_per_person=10)
    model.fit(frame, target)
    one = PoissonSampled(0.5, for_people(Gaussian(1e-3), 1))
    scores = noisy_scores(model, frame, target, [one], Source(insecure_seed=1))
    drawn = [cell / 2 for row in scores.confusion for cell in row]  # the total is scaled by one over the rate
    assert all(abs(cell / 10 - round(cell / 10)) < 0.05 for cell in drawn)
    assert 60 * 10 < sum(drawn) < 140 * 10  # the deviation is 71; a false alarm is rarer than 1e-7


def test_the_noise_on_scores_is_made_for_all_rows_of_a_person() -> None:
    """The deviation of 200 draws is within a third of the expected one; false alarms are rarer than 1e-9."""
    frame = visits(400)
    model = PrivateNaiveBayes(epsilon=2, delta=1e-4, schema=SCHEMA, rows_per_person=5, insecure_seed=1)
    model.fit(frame.drop("ill"), frame["ill"])
    events = [for_people(Gaussian(5 * 20.0), 5)]
    rows = [
        sum(map(sum, noisy_scores(model, frame, frame["ill"], events, Source(insecure_seed=at)).confusion))
        for at in range(200)
    ]
    expected = 5 * 20.0 / math.sqrt(0.6) * 2  # of the share for the answers; four cells
    assert 2 / 3 < np.std(rows) / expected < 4 / 3


def test_the_events_of_scores_are_among_those_of_the_training_and_per_person() -> None:
    model = PrivateNaiveBayes(epsilon=1, delta=1e-4, schema=SCHEMA, rows_per_person=3)
    model.fit(visits().drop("ill"), visits()["ill"])
    scores = scoring_events(model.events_, 3)
    assert scores
    assert {*scores} <= {*model.events_}
    assert {one.unit for one in scores} == {"person"}
    with pytest.raises(sf.errors.OptionError, match="need a bound on the rows of a person"):
        scoring_events(model.events_)
    with pytest.raises(sf.errors.InputError, match="the test rows have no person column"):
        noisy_scores(model, visits().drop("patient_id"), visits()["ill"], model.events_, Source())


def test_noisy_scores_are_close_to_the_exact_ones() -> None:
    """The margin is of 95 %; a false alarm is rarer than 1e-9."""
    big = sf.Table(visits(8000, most=3), SCHEMA)
    (run,) = trained(big, epsilon=8, rows_per_person=3).runs
    assert run.scores.how == "noisy"
    assert abs(run.scores.accuracy - run.owner["scores"]["accuracy"]) < 4 * run.scores.margin


# --- a search ---


@pytest.mark.parametrize("way", ["random-stopping", "composition"])
def test_a_search_for_people_costs_at_most_its_epsilon(way: str, tmp_path: Path) -> None:
    frame = visits(2000)
    ledger = sf.Ledger.grant(frame, epsilon=2.0, delta=1e-4, path=tmp_path / "people", unit="person")
    estimator = PrivateNaiveBayes(schema=SCHEMA, rows_per_person=2)
    terms: dict[str, Any] = {"way": way, "delta": 1e-4, "epsilon": 2.0, "score_noise": 100.0, "ledger": ledger}
    search = PrivateSearch(estimator=estimator, settings={"cells": [2, 20]}, **terms).fit(frame, "ill")
    assert search.spent_.epsilon <= 2.0
    assert {one.unit for one in ledger.events} == {"person"}


def test_a_search_with_one_row_for_each_person_is_as_for_rows() -> None:
    frame = visits(most=1).with_columns(patient_id=pl.int_range(pl.len()))
    found = []
    for rows, bound in ((frame.drop("patient_id"), None), (frame, 1)):
        schema = sf.Schema([one for one in COLUMNS if one.name in rows.columns])
        estimator = PrivateNaiveBayes(schema=schema, rows_per_person=bound)
        search = PrivateSearch(
            estimator=estimator, settings={"cells": [2, 20]}, way="composition", delta=1e-4, epsilon=3, insecure_seed=5
        )
        search.fit(rows, "ill")
        found.append((search.best_params_, search.best_score_, search.spent_.epsilon, len(search.events_)))
    assert found[0] == found[1]


# --- from a table to a release ---


@pytest.mark.parametrize("model", TABLE_MODELS)
def test_a_training_with_one_row_for_each_person_is_as_for_rows(model: str) -> None:
    regression = TABLE_MODELS[model].classifier is None
    frame = visits(most=1).with_columns(patient_id=pl.int_range(pl.len()))
    terms: dict[str, Any] = {"target": "cost" if regression else "ill", "regression": regression, "delta": 1e-4}
    terms |= {"epsilon": "0.5,4", "privacy": Privacy(insecure_seed=3), **QUICK.get(model, {})}
    found = []
    for role, bound in (("identifier", None), ("person", 1)):
        schema = sf.Schema([*COLUMNS[:-1], sf.Column(name="patient_id", role=role)])
        training = sf.train(sf.Table(frame, schema), model, rows_per_person=bound, **terms)
        plain = json.loads(json.dumps(training.to_dict()))
        assert plain.pop("unit") == ("person" if bound else "row")
        del plain["settings"]["tested on"]
        arrays = {name: one.state()[0] for name, one in training.models.items()}
        found.append((_without_unit(plain), arrays))
    assert found[0][0] == found[1][0]
    for name, arrays in found[0][1].items():
        assert all(np.array_equal(one, found[1][1][name][key]) for key, one in arrays.items())


def _without_unit(plain: Any) -> Any:
    hidden = ("unit", "rows_per_person", "seconds")
    if isinstance(plain, list):
        return [_without_unit(one) for one in plain]
    if isinstance(plain, dict):
        return {name: _without_unit(one) for name, one in plain.items() if name not in hidden}
    return plain


@pytest.mark.parametrize("model", TABLE_MODELS)
def test_every_model_of_tables_is_trained_for_people(model: str, tmp_path: Path) -> None:
    regression = TABLE_MODELS[model].classifier is None
    terms = {
        "model": model,
        "target": "cost" if regression else "ill",
        "regression": regression,
        **QUICK.get(model, {}),
    }
    training = trained(**terms, epsilon="1,none")
    assert training.unit == "person"
    private, ordinary = training.runs
    assert private.facts["spent"] <= 1
    events = [Event.from_dict(one) for one in private.facts["events"]]
    assert spent(events, 1e-4).unit == "person"
    assert ordinary.facts["events"] == []
    assert "patient_id" not in training.models[private.name].features_.names
    sf.save(trained(**terms), tmp_path / "model")
    certificate = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert certificate["unit"] == "person"
    assert certificate["schema"]["columns"]["patient_id"]["role"] == "person"
    assert certificate["parameters"]["rows_per_person"] == 2
    assert sf.verify(tmp_path / "model").ok
    again = sf.learners.load_model(tmp_path / "model")
    assert (again.rows_per_person, again.spent_.unit) == (2, "person")
    assert len(again.predict(VISITS)) == len(again.predict(visits().drop("patient_id"))) == VISITS.rows


def test_a_recipe_trains_for_people_again(tmp_path: Path) -> None:
    visits().write_csv(tmp_path / "visits.csv")
    sf.save(trained(), tmp_path / "model")
    again = run_recipe(Recipe.of_release(tmp_path / "model"), tmp_path / "visits.csv")
    assert (again.unit, again.settings["rows_per_person"]) == ("person", 2)


def test_the_page_speaks_of_people(tmp_path: Path) -> None:
    sf.save(trained(epsilon="1,2"), tmp_path / "models")
    page = (tmp_path / "models" / "report.html").read_text()
    assert "add or remove one person" in page
    assert "lacks all rows of any one person" in page
    assert "At most 2 rows of each person were used to train, and to test." in page
    assert "a person is used either to train or to test" in page
    assert "weaker for a person with several records" not in page


def test_the_page_of_a_network_speaks_of_people(tmp_path: Path) -> None:
    sf.save(trained(model="mlp", **QUICK["mlp"], privacy=Privacy(rows=240)), tmp_path / "network")
    page = (tmp_path / "network" / "report.html").read_text()
    assert "each drew every person independently with probability 0.25" in page
    assert "the gradient of every person was clipped to a norm of 1" in page
    assert "240 people to train on" in page


def test_a_table_in_which_every_row_is_its_own_person_and_one_of_nobody_are_trained_on() -> None:
    nobody = visits().with_columns(patient_id=pl.lit(None, dtype=pl.String))
    single = visits().with_columns(patient_id=pl.int_range(pl.len()).cast(pl.String))
    for frame in (nobody, single):
        assert trained(sf.Table(frame, SCHEMA)).unit == "person"


def test_what_cannot_be_trained_for_people_says_what_can() -> None:
    frame = visits()
    with pytest.raises(sf.errors.OptionError, match="the rows of a person are not bounded"):
        trained(rows_per_person=None)
    with pytest.raises(sf.errors.OptionError, match="rows_per_person needs a person column"):
        trained(sf.Table(frame.drop("patient_id"), sf.Schema(COLUMNS[:-1])))
    with pytest.raises(sf.errors.OptionError, match="the rows of a person must be a whole number of at least 1, got 0"):
        trained(rows_per_person=0)
    with pytest.raises(sf.errors.ColumnError, match="'patient_id' says which rows are of the same person"):
        trained(target="patient_id")
    with pytest.raises(sf.errors.ColumnError, match="there is no column 'patient'"):
        trained(frame, person="patient")
    with pytest.raises(sf.errors.OptionError, match="every row of 'adult' is a person of its own"):
        sf.train("adult", "naive-bayes", person="age", rows_per_person=1)
    with pytest.raises(sf.errors.OptionError, match="a person column is for tables"):
        sf.train("mnist", person="label", rows_per_person=1)


def test_a_ledger_of_rows_refuses_a_training_for_people_before_it_is_charged(tmp_path: Path) -> None:
    ledger = sf.Ledger.grant(VISITS, epsilon=5, delta=1e-4, path=tmp_path / "rows")
    with pytest.raises(sf.errors.OptionError, match="is for each row, and this training protects each person"):
        trained(ledger=ledger)
    assert ledger.events == ()
    people = sf.Ledger.grant(VISITS, epsilon=5, delta=1e-4, path=tmp_path / "people", unit="person")
    assert trained(ledger=people).charged
    assert people.spent.epsilon == pytest.approx(1, abs=1e-3)
    rows = sf.Table(visits().drop("patient_id"), sf.Schema(COLUMNS[:-1]))
    with pytest.raises(sf.errors.OptionError, match="is for each person, and this training protects each row"):
        sf.train(rows, "naive-bayes", target="ill", delta=1e-4, ledger=people)


def test_an_interrupted_sweep_goes_on_for_the_same_people_alone(tmp_path: Path) -> None:
    folder = tmp_path / "unfinished"
    first = trained(epsilon="1", folder=folder)
    again = trained(epsilon="1,2", folder=folder)
    assert again.runs[0].scores == first.runs[0].scores
    with pytest.raises(sf.errors.FileError, match="another rows per person"):
        trained(epsilon="1,2", folder=folder, rows_per_person=3)


# --- forgeries ---


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "bayes"
    sf.save(trained(), folder)
    return folder


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def of_rows(plain: Any) -> None:
    """Take the unit out of all events."""
    for one in plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ():
        of_rows(one)
    if isinstance(plain, dict) and plain.get("unit") == "person":
        plain["unit"] = "row"


def test_a_release_for_people_holds(release: Path) -> None:
    verdict = sf.verify(release)
    assert verdict.ok
    assert "at most 2 rows of a person count" in [one.claim for one in verdict.claims if one.held]


def test_events_of_rows_under_a_promise_for_people_are_found(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: of_rows(plain["parameters"]["events"]))
    change_json(release, "model.json", lambda plain: of_rows(plain["cost"]["events"]))
    assert any(claim.startswith("epsilon=1") for claim in failed(release))


def test_a_promise_for_rows_with_a_person_column_is_found(release: Path) -> None:
    change_json(release, "certificate.json", of_rows)
    change_json(release, "model.json", of_rows)
    assert "it protects rows" in failed(release)


@pytest.mark.parametrize("bound", [1, 3, 0, None, "2", 2.0])
def test_another_bound_on_the_rows_of_a_person_is_found_in_one_file_and_in_all(bound: Any, release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(rows_per_person=bound))
    assert failed(release)
    change_json(release, "model.json", lambda plain: plain["parameters"].update(rows_per_person=bound))
    if isinstance(bound, int):
        change_text(release, "recipe.toml", "rows_per_person = 2", f"rows_per_person = {bound}")
    assert any("rows of a person count" in claim for claim in failed(release))


def test_a_bound_that_only_the_model_or_the_recipe_changes_is_found(release: Path) -> None:
    change_text(release, "recipe.toml", "rows_per_person = 2", "rows_per_person = 1")
    assert "the recipe says the same" in failed(release)
    change_json(release, "model.json", lambda plain: plain["parameters"].update(rows_per_person=1))
    assert "model.json says the same" in failed(release)


def test_a_person_column_that_is_hidden_is_found(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["schema"]["columns"].pop("patient_id"))
    found = failed(release)
    assert "the schema names the person column" in found
    assert "the recipe says the same" in found


@pytest.fixture
def network(tmp_path: Path) -> Path:
    sf.save(trained(model="mlp", **QUICK["mlp"], privacy=Privacy(rows=240)), tmp_path / "network")
    return tmp_path / "network"


def test_a_network_for_people_holds_and_what_is_forged_about_people_is_found(network: Path) -> None:
    verdict = sf.verify(network)
    assert verdict.ok
    assert "at most 2 rows of a person count" in [one.claim for one in verdict.claims if one.held]
    for name, place in (("certificate.json", "parameters"), ("model.json", "cost")):
        change_json(network, name, lambda plain, place=place: plain[place]["sampling"].update(rows_per_person=1))
    assert "at most 2 rows of a person count" in failed(network)
    for name, place in (("certificate.json", "parameters"), ("model.json", "cost")):
        change_json(network, name, lambda plain, place=place: plain[place]["sampling"].update(rows_per_person=2))
    assert "at most 2 rows of a person count" not in failed(network)
    change_json(network, "certificate.json", lambda plain: plain["parameters"]["sampling"].pop("unit"))
    assert "at most 2 rows of a person count" in failed(network)


@pytest.mark.parametrize("model", ["naive-bayes", "logistic", "forest"])
def test_a_release_states_how_many_rows_were_bought_and_verify_refutes_another_number(
    model: str, tmp_path: Path
) -> None:
    training = trained(model=model, rows_per_person="bought")
    rows = training.models["epsilon-1"].rows_that_count
    release = tmp_path / "model"
    sf.save(training, release)
    certificate = json.loads((release / "certificate.json").read_text())
    assert certificate["parameters"]["rows_per_person"] == "bought"
    assert certificate["parameters"]["bought_rows_per_person"] == rows
    assert f"at most {rows} at epsilon 1" in (release / "report.html").read_text()
    verdict = sf.verify(release)
    assert verdict.ok
    assert f"at most {rows} rows of a person count" in [one.claim for one in verdict.claims if one.held]
    assert f"its {rows} rows per person were chosen with noise" in [one.claim for one in verdict.unchecked]
    again = sf.learners.load_model(release)
    assert (again.rows_per_person, again.rows_that_count) == ("bought", rows)
    for forged in (4, 987 if rows != 987 else 1, None, "3", 2.0):
        for name, place in (("certificate.json", "parameters"), ("model.json", "cost")):
            change_json(
                release,
                name,
                lambda plain, place=place, forged=forged: plain[place].update(bought_rows_per_person=forged),
            )
            assert failed(release)
        assert any("rows of a person count" in claim for claim in failed(release))


def test_a_purchase_of_rows_that_the_events_lack_is_found(tmp_path: Path) -> None:
    sf.save(trained(rows_per_person="bought"), tmp_path / "model")
    for name, place in (("certificate.json", "parameters"), ("model.json", "cost")):
        change_json(tmp_path / "model", name, lambda plain, place=place: plain[place]["events"].pop(0))
    assert "its events hold the purchase of rows per person" in failed(tmp_path / "model")


def test_models_at_several_epsilons_buy_bounds_of_their_own_and_a_recipe_does_again(tmp_path: Path) -> None:
    training = trained(epsilon="0.5,2,none", rows_per_person="bought")
    first, second, ordinary = training.runs
    assert [one.facts["spent"] <= one.epsilon for one in (first, second)] == [True, True]
    assert "bought_rows_per_person" not in ordinary.facts
    assert training.together["epsilon"] <= 2.5
    for run in (first, second):
        model = training.models[run.name]
        assert spent(scoring_events(model.events_, model.rows_that_count), 1e-4).epsilon <= run.epsilon
    visits().write_csv(tmp_path / "visits.csv")
    sf.save(trained(rows_per_person="bought"), tmp_path / "model")
    again = run_recipe(Recipe.of_release(tmp_path / "model"), tmp_path / "visits.csv")
    assert (again.unit, again.settings["rows_per_person"]) == ("person", "bought")


def test_who_cannot_buy_the_rows_of_a_person_says_why() -> None:
    with pytest.raises(sf.errors.OptionError, match="networks do not buy the rows of a person, because"):
        trained(model="mlp", rows_per_person="bought", **QUICK["mlp"])
    with pytest.raises(sf.errors.OptionError, match="rows_per_person needs a person column"):
        trained(sf.Table(visits().drop("patient_id"), sf.Schema(COLUMNS[:-1])), rows_per_person="bought")
    search = PrivateSearch(
        estimator=PrivateNaiveBayes(rows_per_person="bought"), settings={"cells": [2, 20]}, way="composition",
        delta=1e-4, epsilon=2.0,
    )  # fmt: skip
    with pytest.raises(sf.errors.OptionError, match="a search does not buy the rows of a person, because"):
        search.fit(VISITS, "ill")
    with pytest.raises(sf.errors.OptionError, match="the rows of a person must be a whole number"):
        trained(rows_per_person="any")


def test_a_network_buys_the_number_of_people_not_of_rows() -> None:
    frame = visits(3000, most=3)
    model = sf.learners.PrivateClassifier(
        model="logistic", epsilon=20, delta=1e-5, schema=SCHEMA, rows_per_person=1, epochs=1, batch_size=500
    )
    model.fit(frame.drop("ill"), frame["ill"])
    people = Columns.of(sf.Table(frame, SCHEMA)).unit_count
    assert len(frame) > 1.5 * people
    assert abs(model.sampling_["rows"] - people) < 60  # noise of scale 2.5; a false alarm is rarer than 1e-9
    assert {one.unit for one in model.events_} == {"person"}


def test_a_network_for_people_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    frame = visits(200)
    terms: dict[str, Any] = {"model": "logistic", "epsilon": 2, "delta": 1e-4, "schema": SCHEMA, "rows_per_person": 2}
    terms |= {"epochs": 4, "batch_size": 50, "checkpoint": tmp_path / "checkpoint", "seed": 0}
    with sf.Ledger.grant(frame, epsilon=2.001, delta=1e-4, path=tmp_path / "people", unit="person") as ledger:

        def stop(report: Any) -> None:
            if report.epoch == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sf.learners.PrivateClassifier(**terms, ledger=ledger).fit(frame.drop("ill"), frame["ill"], report=stop)
        model = sf.learners.PrivateClassifier(**terms, ledger=ledger).fit(frame.drop("ill"), frame["ill"])
        assert model.spent_.epsilon <= 2
        assert ledger.spent.epsilon <= 2.001
    moved = frame.with_columns(patient_id=pl.col("patient_id").shift(1))
    with pytest.raises(sf.errors.FileError, match="other"):
        sf.learners.PrivateClassifier(**terms).fit(moved.drop("ill"), moved["ill"])


def test_scores_for_rows_do_not_keep_a_promise_for_people(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: of_rows(plain["loss"]["events"]))
    assert "the scores of held-out records keep the promise" in failed(release)

"""Reference models are made by the procedure of the target: seeded, protected alike, and never charged."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sfumato as sf
from sfumato.attacks import FitEstimator, ModelTarget, Records, RunRecipe, procedure_of, protection, records_of
from sfumato.data.recipe import Recipe
from sfumato.errors import InputError, OptionError
from sfumato.learners import PrivateNaiveBayes

RNG = np.random.default_rng(1)
ROWS = 160
PEOPLE = pl.DataFrame(
    {
        "name": [f"person {number}" for number in range(ROWS)],
        "age": [None if number % 40 == 0 else int(age) for number, age in enumerate(RNG.integers(20, 80, ROWS))],
        "town": RNG.choice(["Bern", "Genf", "Chur"], ROWS),
        "ill": RNG.choice(["no", "yes"], ROWS),
    }
)
TABLE = sf.Table.of(PEOPLE, identifiers=["name"])
RECORDS = records_of(TABLE, "ill")


def _probabilities(model: Any, records: Records = RECORDS) -> Any:
    return ModelTarget(model, classes=["no", "yes"]).probabilities(records)


@pytest.mark.parametrize(
    ("model", "protect"),
    [
        *((name, None) for name in ("forest", "tree", "boosting", "mlp")),
        *(("tree", text) for text in ("guided:k=10", "mondrian:k=10", "lattice:k=10", "suppress:k=3")),
        ("tree", "synthetic:epsilon=5,delta=1e-3,method=independent"),
    ],
)
def test_a_named_model_is_trained_with_each_protection_and_predicts_for_unseen_rows(model: str, protect: Any) -> None:
    procedure = pickle.loads(pickle.dumps(procedure_of(model, protect, TABLE, "ill")))
    trained = procedure(RECORDS.take(range(0, ROWS, 2)), seed=3)
    unseen = RECORDS.take(range(1, ROWS, 2)).frame
    if protect != "lattice:k=10":  # whose hierarchies know the categories of the table
        unseen = unseen.with_columns(town=pl.lit("Rom"), age=pl.lit(200))
    found = _probabilities(trained, Records(unseen))
    assert found.shape == (ROWS // 2, 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("model", ["forest", "tree", "boosting", "mlp"])
def test_a_private_model_takes_the_place_of_a_named_one(model: str) -> None:
    procedure = procedure_of(model, "dp:epsilon=1,delta=1e-3", TABLE, "ill")
    assert "age, town, ill are not declared; they were taken from all rows" in procedure.notes[0]
    if model == "mlp":
        procedure.estimator.set_params(epochs=1)
    first, other = (procedure(RECORDS, seed) for seed in (1, 2))
    assert first.spent_.epsilon <= 1
    assert first.spent_.delta == 1e-3
    assert not np.array_equal(_probabilities(first), _probabilities(other))
    if model != "mlp":  # whose trainings take longest
        assert np.array_equal(_probabilities(first), _probabilities(procedure(RECORDS, 1)))


def test_declared_bounds_and_domains_are_not_read_off_the_rows() -> None:
    schema = {"age": {"kind": "number", "bounds": [0, 120]}, "town": {"domain": ["Bern", "Genf", "Chur", "Sion"]}}
    table = sf.Table(PEOPLE.drop("name"), sf.Schema.of({"columns": {**schema, "ill": {"domain": ["no", "yes"]}}}))
    procedure = procedure_of("forest", "dp:epsilon=1", table, "ill")
    assert procedure.notes == ()
    assert procedure.estimator.schema["age"].bounds == (0.0, 120.0)
    assert "Sion" in procedure.estimator.schema["town"].domain


def test_all_features_are_quasi_identifiers_unless_the_schema_names_some() -> None:
    every = procedure_of("tree", "guided:k=10", TABLE, "ill")
    assert tuple(every.estimator.qi) == ("age", "town")
    assert every.notes == ("the schema names no quasi-identifier, so all features are",)
    some = procedure_of("tree", "guided:k=10", sf.Table.of(TABLE, qi=["age"]), "ill")
    assert (tuple(some.estimator.qi), some.notes) == (("age",), ())


def test_a_protected_model_is_trained_on_rows_that_keep_the_guarantee() -> None:
    class Remember(DecisionTreeClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
            seen.append(X)
            return super().fit(X.select(pl.col("age").cast(pl.Float64)), y)

    seen: list[pl.DataFrame] = []
    table = sf.Table.of(PEOPLE.drop("name", "town"), qi=["age"])
    procedure_of(Remember(), "mondrian:k=10", table, "ill")(records_of(table, "ill"), seed=0)
    assert seen[-1].group_by("age").len()["len"].min() >= 10  # type: ignore[operator]


def test_every_seed_of_a_pipeline_is_set_and_differs_between_references() -> None:
    estimator = make_pipeline(StandardScaler(), LogisticRegression(solver="sag", max_iter=3))
    train = FitEstimator(estimator)
    records = Records(RNG.normal(size=(40, 2)), RNG.integers(0, 2, 40))
    seeds = [train(records, seed).steps[-1][1].random_state for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert estimator.steps[-1][1].random_state is None


def test_no_ledger_is_charged_for_a_reference(tmp_path: Any) -> None:
    book = sf.Ledger.grant(TABLE, epsilon=50, delta=1e-3, path=tmp_path / "own.ledger")
    train = FitEstimator(PrivateNaiveBayes(epsilon=50, delta=1e-3, ledger=book, classes=["no", "yes"]))
    assert train(RECORDS, seed=0).spent_.epsilon > 1
    assert book.spent.epsilon == 0


def test_the_recipe_of_a_private_model_trains_all_given_records_without_a_charge() -> None:
    schema = {"age": {"kind": "number", "bounds": [0, 120]}, "town": {"domain": ["Bern", "Genf", "Chur"]}}
    schema |= {"ill": {"domain": ["no", "yes"]}}
    recipe = Recipe(
        "train",
        {"model": "naive-bayes", "target": "ill", "epsilon": [1.0], "delta": 1e-3, "holdout": 0.5},
        sf.Schema.of({"columns": schema}),
    )
    given = sf.Table.of(PEOPLE.drop("name"))
    sf.Ledger.grant(given, epsilon=1, delta=1e-3)
    train = pickle.loads(pickle.dumps(RunRecipe(recipe)))
    first, again, other = (train(RECORDS, seed) for seed in (1, 1, 2))
    assert np.array_equal(_probabilities(first), _probabilities(again))
    assert not np.array_equal(_probabilities(first), _probabilities(other))
    assert sf.Ledger.of(given).spent.epsilon == 0


def test_the_recipe_of_an_ordinary_model_learns_every_record() -> None:
    recipe = Recipe("train", {"model": "naive-bayes", "target": "ill", "epsilon": ["none"]}, sf.Schema([]))
    model = RunRecipe(recipe)(RECORDS, seed=0)
    alone = PrivateNaiveBayes(epsilon=float("inf")).fit(RECORDS.frame, RECORDS.labels)
    assert np.allclose(_probabilities(model), _probabilities(alone))


def test_the_recipe_of_images_trains_a_network() -> None:
    images = Records(RNG.integers(0, 255, (40, 8, 8)).astype(np.uint8), np.arange(40) % 2)
    options = {"model": "logistic", "epsilon": [8.0], "delta": 1e-3, "epochs": 1, "classes": [0, 1], "rows": 40}
    model = RunRecipe(Recipe("train", options, sf.Schema([])))(images, seed=0)
    assert ModelTarget(model).probabilities(images).shape == (40, 2)


def test_the_recipe_of_a_table_releases_other_rows() -> None:
    release = sf.anonymize(PEOPLE.drop("name"), "k=5", qi=["age", "town"], sensitive=["ill"])
    made = RunRecipe(release.recipe)(Records(PEOPLE.drop("name").head(80)), seed=0)
    assert made.height == 80
    assert made.group_by("age", "town").len()["len"].min() >= 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("guided", "the protection 'guided' needs a guarantee (for example guided:k=10)"),
        ("guided:m=3", "the guarantee 'm' is unknown"),
        ("dp", "the protection 'dp' needs epsilon"),
        ("dp:epsilon=one", "epsilon of the protection 'dp' must be a number, got 'one'"),
        ("dp:epsilon=1,epsilon=2", "the protection 'dp' has epsilon twice"),
        ("dp:epsilon=-1", "epsilon must be a finite number above 0"),
        ("dp:eps=1", "the protection 'dp' has no option 'eps'"),
        ("synthetic", "the protection 'synthetic' needs epsilon"),
        ("synthetic:epsilon=1,method=tre", "there is no method 'tre'"),
        ("dp:epsilon=1,method=tree", "the protection 'dp' has no option 'method'"),
        ("mondrain:k=3", "there is no protection 'mondrain' (did you mean 'mondrian'?)"),
    ],
)
def test_a_wrong_protection_is_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(OptionError) as error:
        protection(text)
    assert says in str(error.value)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(OptionError, match="there is no model 'forrest' to attack"):
        procedure_of("forrest", None, TABLE, "ill")
    with pytest.raises(OptionError, match="DecisionTreeClassifier cannot be made private"):
        procedure_of(DecisionTreeClassifier(), "dp:epsilon=1", TABLE, "ill")
    with pytest.raises(InputError, match="there is no column 'sick' to predict"):
        procedure_of("tree", None, TABLE, "sick")
    with pytest.raises(InputError, match="the target 'age' is missing in 4 of 160 rows"):
        records_of(TABLE, "age")
    with pytest.raises(InputError, match="the target 'town' has a single class"):
        records_of(sf.Table(PEOPLE.with_columns(town=pl.lit("Bern"))), "town")
    with pytest.raises(OptionError, match="a recipe of 'query' makes neither a model nor a table"):
        RunRecipe(Recipe("query", {}, sf.Schema([])))
    with pytest.raises(InputError, match="without labels"):
        FitEstimator(DecisionTreeClassifier())(Records(PEOPLE), seed=0)

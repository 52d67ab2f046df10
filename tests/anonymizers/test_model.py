"""An anonymized model: it has only learnt from anonymous rows, and behaves like the estimator that it wraps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sfumato as sf

RNG = np.random.default_rng(1)
ROWS = 600
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, ROWS),
        "hours": RNG.integers(0, 60, ROWS),
        "town": RNG.choice(list("abcd"), ROWS),
        "noise": RNG.normal(size=ROWS).round(2),
    }
)
BUYS = np.where(PEOPLE["age"] + 25 * PEOPLE["town"].isin(["a", "b"]) > 65, "yes", "no")
QI = ["age", "hours", "town"]
TREE = make_pipeline(
    make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough"),
    DecisionTreeClassifier(min_samples_leaf=5, random_state=0),
)
WITH_TARGET = sf.Table.of(PEOPLE.assign(buys=BUYS), qi=QI, target="buys")


@pytest.fixture(scope="module")
def model() -> sf.AnonymizedModel:
    return sf.anonymize_model(TREE, WITH_TARGET, k=20)


def test_it_keeps_k_and_most_of_its_accuracy(model: sf.AnonymizedModel) -> None:
    raw = clone(TREE).fit(PEOPLE, BUYS).score(PEOPLE, BUYS)
    assert model.release.assessment.k >= 20
    assert model.score(PEOPLE, BUYS) > raw - 0.05
    mondrian = sf.Mondrian("k=20", qi=QI, output="median").fit_transform(PEOPLE)
    assert model.score(PEOPLE, BUYS) > clone(TREE).fit(mondrian, BUYS).score(PEOPLE, BUYS)


def test_it_has_learnt_from_the_released_rows_only(model: sf.AnonymizedModel) -> None:
    released = model.release.table.frame[["age", "hours", "town", "noise"]]
    again = clone(TREE).fit(released, BUYS)
    asked = model.anonymizer_.transform(PEOPLE) if model.transforms_ else PEOPLE
    assert (again.predict(asked) == model.predict(PEOPLE)).all()
    assert sf.assess(released, qi=QI).k == model.release.assessment.k


def test_it_answers_as_its_estimator_does(model: sf.AnonymizedModel) -> None:
    assert is_classifier(model)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba(PEOPLE).shape == (ROWS, 2)
    assert model.predict(sf.Table(PEOPLE)).shape == (ROWS,)
    assert model.predict(PEOPLE.assign(town="zzz")).shape == (ROWS,)
    svc = sf.AnonymizedModel(LinearSVC())
    assert not hasattr(svc, "predict_proba")


def test_its_certificate_is_plain_and_says_what_it_does_not_cover(model: sf.AnonymizedModel) -> None:
    told = json.loads(json.dumps(model.certificate))
    assert told["held"] is True
    assert told["measured"]["k"] >= 20
    assert told["guarantees"] == [sf.KAnonymity(20).to_dict()]
    assert {"guide", "cut_by", "transform", "score"} == set(told["chosen"])
    assert told["chosen"] == max(told["trials"], key=lambda trial: trial["score"])
    assert any("not differential privacy" in text for text in told["not_covered"])


def test_all_ways_are_tried_and_the_best_is_taken(model: sf.AnonymizedModel) -> None:
    ways = [(trial.guide, trial.cut_by, trial.transform) for trial in model.trials_]
    guides = [("soft", "qi"), ("soft", "all"), ("hard", "qi"), ("true", "qi"), ("true", "all")]
    assert ways == [(*way, transform) for way in guides for transform in (False, True)]


def test_what_is_given_is_not_chosen() -> None:
    model = sf.anonymize_model(TREE, WITH_TARGET, k=20, guide="hard", cut_by="qi", transform=True)
    assert [(trial.guide, trial.cut_by, trial.transform) for trial in model.trials_] == [("hard", "qi", True)]
    assert model.certificate["chosen"]["score"] is None


def test_several_guarantees_hold() -> None:
    sick = RNG.choice(["flu", "ulcer", "cancer"], ROWS)
    table = sf.Table.of(PEOPLE.assign(buys=BUYS, sick=sick), qi=QI, sensitive=["sick"], target="buys")
    estimator = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town", "sick"]), remainder="passthrough"),
        DecisionTreeClassifier(random_state=0),
    )
    model = sf.anonymize_model(estimator, table, k=5, guarantees="l=2", transform=False)
    assert model.release.assessment.k >= 5
    assert model.release.assessment.l >= 2


def test_a_fitted_estimator_guides_by_its_own_answers_and_stays_as_it_is() -> None:
    fitted = clone(TREE).fit(PEOPLE, BUYS)
    before = fitted.predict_proba(PEOPLE)
    model = sf.anonymize_model(fitted, WITH_TARGET, k=20, guide="soft", cut_by="qi", transform=False)
    assert (fitted.predict_proba(PEOPLE) == before).all()
    expected = sf.Guided("k=20", qi=QI, labels=before).fit_transform(PEOPLE)
    pd.testing.assert_frame_equal(model.release.table.frame[QI], expected[QI])


def test_a_model_that_answers_the_same_everywhere_does_not_guide() -> None:
    rare = np.where(RNG.random(ROWS) < 0.1, "yes", "no")
    model = sf.anonymize_model(LogisticRegression(max_iter=1000), PEOPLE[["age"]], k=20, y=rare, qi=["age"])
    assert (model.predict(PEOPLE[["age"]]) == "no").all()
    assert "hard" not in {trial.guide for trial in model.trials_}
    assert model.release.assessment.k >= 20


def test_numbers_are_predicted_too() -> None:
    hours = PEOPLE["age"] * 2.0 + RNG.normal(size=ROWS)
    model = sf.anonymize_model(
        DecisionTreeRegressor(min_samples_leaf=5), PEOPLE[["age", "hours", "noise"]], k=20, y=hours, qi=["age", "hours"]
    )
    assert is_regressor(model)
    assert model.release.assessment.k >= 20
    assert model.score(PEOPLE[["age", "hours", "noise"]], hours) > 0.95
    assert {trial.guide for trial in model.trials_} == {"soft", "true"}


def test_it_can_be_cloned_searched_and_put_into_a_pipeline() -> None:
    model = sf.AnonymizedModel(TREE, "k=20", qi=QI, guide="true", cut_by="qi", transform=False)
    copy = clone(model)
    assert copy.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert copy.get_params()["estimator__decisiontreeclassifier__min_samples_leaf"] == 5
    whole = make_pipeline(FunctionTransformer(), model)
    assert cross_val_score(whole, PEOPLE, BUYS, cv=2).mean() > 0.8
    search = GridSearchCV(model, {"guarantees": ["k=10", "k=50"]}, cv=2).fit(PEOPLE, BUYS)
    assert search.best_params_["guarantees"] in ("k=10", "k=50")
    model.set_params(estimator__decisiontreeclassifier__min_samples_leaf=9)
    assert model.estimator[-1].min_samples_leaf == 9
    TREE.set_params(decisiontreeclassifier__min_samples_leaf=5)


def test_features_are_selected_before_or_after() -> None:
    numbers = PEOPLE.drop(columns="town")
    labels = (PEOPLE["age"] > 50).to_numpy()
    options: dict[str, Any] = {"y": labels, "qi": ["age", "hours"], "features": SelectKBest(k=1), "k": 20}
    before = sf.anonymize_model(DecisionTreeClassifier(), numbers, select="before", **options)
    after = sf.anonymize_model(DecisionTreeClassifier(), numbers, select="after", **options)
    assert before.names_ == after.names_ == ["age"]
    assert list(before.release.table.frame.columns) == ["age"]
    assert list(after.release.table.frame.columns) == list(numbers.columns)
    assert min(before.score(numbers, labels), after.score(numbers, labels)) > 0.95
    named = sf.anonymize_model(DecisionTreeClassifier(), numbers, **options | {"features": ["age", "noise"]})
    assert named.names_ == ["age", "noise"]


def test_polars_frames_are_learnt_too() -> None:
    people = pl.from_pandas(PEOPLE[["age", "hours"]])
    model = sf.anonymize_model(LogisticRegression(max_iter=1000), people, k=20, y=BUYS, qi=["age", "hours"])
    assert isinstance(model.release.table.frame, pl.DataFrame)
    assert model.predict(people).shape == (ROWS,)


def test_a_file_is_learnt_too(tmp_path: Any) -> None:
    path = tmp_path / "people.csv"
    sf.write(PEOPLE[["age", "hours"]].assign(buys=BUYS), path)
    model = sf.anonymize_model(LogisticRegression(max_iter=1000), path, k=20, target="buys", qi=["age", "hours"])
    assert model.release.assessment.k >= 20


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no guarantee": ({"k": None}, "no guarantee is asked for"),
    "too much": ({"k": 601}, "no grouping keeps k=601"),
    "no target": ({"y": None}, "no target is named"),
    "labels of other rows": ({"y": BUYS[:-1]}, "600 rows, 599 labels"),
    "a missing label": ({"y": [None, *BUYS[1:]]}, "what to predict is missing in 1 rows"),
    "no quasi-identifier": ({"qi": []}, "no quasi-identifier is named"),
    "texts to learn from": ({"output": "interval"}, "output 'interval' publishes texts"),
    "a strange hold-out": ({"holdout": 1.0}, "holdout must be between 0 and 1, got 1.0"),
    "a strange guide": ({"guide": "mine"}, "guide must be one of soft, hard, true"),
    "a strange transform": ({"transform": "no"}, "transform must be 'auto', True or False"),
    "no such column": ({"features": ["agee"]}, r"there is no column 'agee' to learn from \(did you mean 'age'"),
    "no such option": ({"giude": "hard"}, r"anonymize_model has no option 'giude' \(did you mean 'guide'"),
    "no estimator": ({"estimator": 3}, "an estimator has fit and predict, got int"),
}  # fmt: skip


@pytest.mark.parametrize("one", BAD)
def test_bad_input_gets_one_sentence(one: str) -> None:
    changed, message = BAD[one]
    options: dict[str, Any] = {"estimator": LogisticRegression(), "k": 10, "y": BUYS, "qi": ["age"]} | changed
    with pytest.raises(sf.InputError, match=message):
        sf.anonymize_model(options.pop("estimator"), PEOPLE[["age", "hours"]], **options)


def test_what_has_learnt_nothing_cannot_answer() -> None:
    model = sf.AnonymizedModel(TREE)
    with pytest.raises(sf.InputError, match="this model has learnt no table yet"):
        model.predict(PEOPLE)
    with pytest.raises(sf.OptionError, match=r"has no parameter 'guides' \(did you mean 'guide'"):
        model.set_params(guides="soft")

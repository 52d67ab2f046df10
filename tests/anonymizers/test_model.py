"""An anonymized model: it has only learnt from anonymous rows, and behaves like the estimator that it wraps."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

import sfumato as sf
from sfumato.anonymizers import CutBy, Guide, Trial
from sfumato.anonymizers.guided.model import _best

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
def model() -> sf.anonymizers.AnonymizedModel:
    return sf.anonymize_model(TREE, WITH_TARGET, k=20)


def test_it_keeps_k_and_most_of_its_accuracy(model: sf.anonymizers.AnonymizedModel) -> None:
    raw = clone(TREE).fit(PEOPLE, BUYS).score(PEOPLE, BUYS)
    assert model.release.assessment.k >= 20
    assert model.score(PEOPLE, BUYS) > raw - 0.05
    mondrian = sf.Mondrian("k=20", qi=QI, output="median").fit_transform(PEOPLE)
    assert model.score(PEOPLE, BUYS) > clone(TREE).fit(mondrian, BUYS).score(PEOPLE, BUYS)


def test_it_has_learnt_from_the_released_rows_only(model: sf.anonymizers.AnonymizedModel) -> None:
    released = model.release.aligned.frame[["age", "hours", "town", "noise"]]
    again = clone(TREE).fit(released, BUYS)
    asked = model.routes_.transform(PEOPLE) if model.routes_ is not None else PEOPLE
    assert (again.predict(asked) == model.predict(PEOPLE)).all()
    assert sf.assess(released, qi=QI).k == model.release.assessment.k


def test_it_answers_as_its_estimator_does(model: sf.anonymizers.AnonymizedModel) -> None:
    assert is_classifier(model)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba(PEOPLE).shape == (ROWS, 2)
    assert model.predict(sf.Table(PEOPLE)).shape == (ROWS,)
    assert model.predict(PEOPLE.assign(town="zzz")).shape == (ROWS,)
    svc = sf.anonymizers.AnonymizedModel(LinearSVC())
    assert not hasattr(svc, "predict_proba")


def test_its_certificate_is_plain_and_says_what_it_does_not_cover(model: sf.anonymizers.AnonymizedModel) -> None:
    told = json.loads(json.dumps(model.certificate))
    assert told["held"] is True
    assert told["measured"]["k"] >= 20
    assert told["guarantees"] == [sf.KAnonymity(20).to_dict()]
    assert {"method", "guide", "cut_by", "transform", "score"} == set(told["chosen"])
    ours = [trial for trial in told["trials"] if trial["method"] == "guided"]
    assert told["chosen"] == max(ours, key=lambda trial: trial["score"])
    assert any("not differential privacy" in text for text in told["not_covered"])


def test_all_ways_are_tried_and_the_best_is_taken(model: sf.anonymizers.AnonymizedModel) -> None:
    ways = [(trial.guide, trial.cut_by, trial.transform) for trial in model.trials_]
    guides = [("soft", "qi"), ("soft", "all"), ("hard", "qi"), ("true", "qi"), ("true", "all")]
    classical = [(None, "qi", False)] * 4
    assert ways == [(*way, transform) for way in guides for transform in (False, True)] + classical
    assert [trial.method for trial in model.trials_[-4:]] == ["mondrian", "hilbert", "rplus", "microaggregate"]


@pytest.mark.parametrize(("ahead", "chosen"), [(5, "guided"), (60, "mondrian")])
def test_a_classical_method_is_chosen_if_it_is_better_by_more_than_chance(ahead: int, chosen: str) -> None:
    worse = np.repeat([1.0, 0.0], 500)
    better = worse.copy()
    better[-ahead:] = 1.0  # and less right about a few others
    better[:4] = 0.0
    trials = [
        Trial(Guide.TRUE, CutBy.QI, False, worse.mean()),
        Trial(None, CutBy.QI, False, better.mean(), "mondrian"),
        Trial(None, CutBy.QI, False, 0.1, "hilbert"),
    ]
    assert _best(trials, [worse, better, np.zeros(1000)]).method == chosen


def test_a_label_that_guides_nothing_leaves_a_classical_release_to_learn_from() -> None:
    model = sf.anonymize_model(TREE, PEOPLE.assign(buys="no"), k=20, qi=QI, target="buys")
    chosen = model.certificate["chosen"]
    assert (chosen["method"], chosen["guide"], chosen["transform"]) == ("mondrian", None, False)
    assert (model.release.method, model.routes_) == ("mondrian", None)
    assert model.release.assessment.k >= 20
    assert set(model.predict(PEOPLE)) == {"no"}
    assert not any("guided by the answers" in text for text in model.certificate["not_covered"])


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
    pd.testing.assert_frame_equal(model.release.aligned.frame[QI], expected[QI])


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
    assert {trial.guide for trial in model.trials_} == {"soft", "true", None}


def test_it_can_be_cloned_searched_and_put_into_a_pipeline() -> None:
    model = sf.anonymizers.AnonymizedModel(TREE, "k=20", qi=QI, guide="true", cut_by="qi", transform=False)
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
    "a strange hold-out": ({"holdout": 1.0}, "holdout must be a number between 0 and 1, got 1.0"),
    "a strange guide": ({"guide": "mine"}, "guide must be one of soft, hard, true"),
    "a strange transform": ({"transform": "no"}, "transform must be 'auto', True or False"),
    "no such column": ({"features": ["agee"]}, r"there is no column 'agee' to learn from \(did you mean 'age'"),
    "no such option": ({"giude": "hard"}, r"anonymize_model has no option 'giude' \(did you mean 'guide'"),
    "a hold-out that is no number": ({"holdout": "0.2"}, "holdout must be a number between 0 and 1, got '0.2'"),
    "a hold-out of no row": ({"holdout": 0.9999}, r"holdout 0.9999 of 600 row\(s\) leaves none to learn from"),
    "one fold": ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
    "strange folds": ({"folds": "3"}, "folds must be a whole number of at least 2, got '3'"),
    "a strange seed": ({"seed": "a"}, "seed must be a whole number of at least 0, got 'a'"),
    "two labels per row": ({"y": np.column_stack([BUYS, BUYS])}, "one label per row is to be predicted"),
    "no feature": ({"features": []}, "no feature is selected"),
    "no estimator": ({"estimator": 3}, "an estimator has fit and predict, got int"),
}  # fmt: skip


@pytest.mark.parametrize("one", BAD)
def test_bad_input_gets_one_sentence(one: str) -> None:
    changed, message = BAD[one]
    options: dict[str, Any] = {"estimator": LogisticRegression(), "k": 10, "y": BUYS, "qi": ["age"]} | changed
    with pytest.raises(sf.errors.InputError, match=message):
        sf.anonymize_model(options.pop("estimator"), PEOPLE[["age", "hours"]], **options)


def test_what_has_learnt_nothing_cannot_answer() -> None:
    model = sf.anonymizers.AnonymizedModel(TREE)
    with pytest.raises(sf.errors.InputError, match="this model is not fitted"):
        model.predict(PEOPLE)
    with pytest.raises(sf.errors.OptionError, match=r"has no parameter 'guides' \(did you mean 'guide'"):
        model.set_params(guides="soft")


@pytest.mark.parametrize("transform", [True, False])
def test_a_stored_model_answers_as_before_and_holds_no_original_row(transform: bool) -> None:
    people = PEOPLE.drop(columns="town").astype(float)
    people.loc[0, ["age", "hours"]] = 77.123456789, 33.987654321
    fitted = KNeighborsClassifier().fit(people, BUYS)
    model = sf.anonymize_model(fitted, people, k=20, y=BUYS, qi=["age", "hours"], transform=transform, guide="soft")
    stored = pickle.dumps(model)
    again = pickle.loads(stored)
    assert (again.predict(people) == model.predict(people)).all()
    assert again.certificate == model.certificate
    with pytest.raises(NotFittedError):
        check_is_fitted(again.estimator)
    assert not hasattr(again, "release")
    assert model.release.source is not None, "here it is still known"
    # A row has two such numbers; the values of a column, one by one, are needed to transform new rows.
    rows = people[["age", "hours"]].to_numpy()
    held = [part for part in _arrays(again) if part.ndim == 2 and part.shape[0] == len(rows) and part.dtype != bool]
    assert all(not np.isin(77.123456789, part) for part in held)
    if not transform:
        assert np.float64(77.123456789).tobytes() not in stored
    # One that has learnt nothing yet is stored as it is.
    check_is_fitted(pickle.loads(pickle.dumps(sf.anonymizers.AnonymizedModel(fitted))).estimator)


def _arrays(thing: Any, seen: set[int] | None = None) -> list[Any]:
    """All arrays that can be reached from an object."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | int | float | type | None):
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing]
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
    inside = [*parts, *getattr(thing, "__dict__", {}).values()]
    return [array for part in inside for array in _arrays(part, seen)]


def test_the_certificate_says_what_was_chosen_with_original_rows() -> None:
    options: dict[str, Any] = {"k": 20, "y": BUYS, "qi": ["age", "hours"], "features": SelectKBest(k=2)}
    people = PEOPLE.drop(columns="town")
    estimator = DecisionTreeClassifier(random_state=0)
    chosen = sf.anonymize_model(estimator, people, **options).certificate["not_covered"]
    assert any("the way was chosen on original rows" in one for one in chosen)
    assert any("features were selected on the original rows" in one for one in chosen)
    assert any("answers of a model that had learnt the original rows" in one for one in chosen)
    given = sf.anonymize_model(
        estimator, people, **options, guide="true", cut_by="qi", transform=False, select="after"
    ).certificate["not_covered"]
    assert not any("original rows" in one for one in given)
    assert not any("thresholds" in one for one in given), "nothing is transformed"


def test_a_pipeline_that_hands_frames_over_ends_with_it() -> None:
    people = PEOPLE[["age", "hours"]]
    model = sf.anonymizers.AnonymizedModel(DecisionTreeClassifier(), "k=20", qi=["age", "hours"])
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    assert pipeline.fit(people, BUYS).score(people, BUYS) > 0.5


def test_what_is_not_selected_is_not_learnt_even_if_it_is_sensitive() -> None:
    people = PEOPLE[["age", "hours"]].assign(sick=RNG.choice(["flu", "ulcer"], ROWS))
    model = sf.anonymize_model(
        LogisticRegression(), people, k=20, guarantees="l=2", y=BUYS, qi=["age", "hours"], sensitive=["sick"],
        features=["age"],
    )  # fmt: skip
    assert model.names_ == ["age"]
    assert model.release.assessment.l == 2
    assert model.predict(people[["age"]]).shape == (ROWS,)


def test_a_fitted_estimator_guides_with_the_columns_that_are_not_selected() -> None:
    people = PEOPLE[["age", "hours"]]
    fitted = DecisionTreeClassifier(max_depth=3).fit(people, BUYS)
    model = sf.anonymize_model(fitted, people, k=20, y=BUYS, qi=["age", "hours"], features=["age"], guide="soft")
    assert model.names_ == ["age"]


def test_features_that_nobody_knows_need_no_anonymization() -> None:
    with pytest.raises(sf.errors.OptionError, match="no quasi-identifier is among the selected features"):
        sf.anonymize_model(DecisionTreeClassifier(), PEOPLE, k=20, y=BUYS, qi=["age"], features=["noise"])


def test_the_estimator_says_whether_classes_or_numbers_are_learnt() -> None:
    people, letters = PEOPLE[["age", "hours"]], PEOPLE["age"].to_numpy() % 26
    options: dict[str, Any] = {"k": 5, "qi": ["age", "hours"], "guide": "true", "transform": False}
    classes = sf.anonymize_model(DecisionTreeClassifier(), people, y=letters, **options)
    numbers = sf.anonymize_model(DecisionTreeRegressor(), people, y=(PEOPLE["age"] // 20).to_numpy(), **options)
    assert classes.release.parameters["task"] == "classify"
    assert numbers.release.parameters["task"] == "regress"


@pytest.mark.parametrize(
    ("labels", "k"),
    [(["a", "b"], 1), (["a", "b"] * 2, 4), (["a"] * 9 + ["b"], 2), (["a", "b"] * 9 + ["c"] * 2, 3),
     ([str(index // 3) for index in range(60)], 2)],
)  # fmt: skip
def test_few_rows_and_rare_classes_are_learnt_too(labels: list[str], k: int) -> None:
    people = PEOPLE[["age", "hours"]][: len(labels)]
    model = sf.anonymize_model(DecisionTreeClassifier(), people, k=k, y=np.array(labels), qi=["age", "hours"])
    assert model.release.assessment.k >= k
    assert model.predict(people).shape == (len(labels),)


def test_a_single_row_leaves_nothing_to_choose_by() -> None:
    one: dict[str, Any] = {"k": 1, "y": ["a"], "qi": ["age", "hours"]}
    rows = PEOPLE[["age", "hours"]][:1]
    with pytest.raises(sf.errors.OptionError, match=r"holdout 0.25 of 1 row\(s\) leaves none .*yourself"):
        sf.anonymize_model(DecisionTreeClassifier(), rows, **one)
    with pytest.raises(sf.errors.InputError, match="no model can be asked about a single row"):
        sf.anonymize_model(DecisionTreeClassifier(), rows, **one, guide="soft", cut_by="qi", transform=False)
    model = sf.anonymize_model(DecisionTreeClassifier(), rows, **one, guide="true", cut_by="qi", transform=True)
    assert model.predict(rows).tolist() == ["a"]


def test_rows_of_a_file_are_predicted_and_missing_columns_named(tmp_path: Any) -> None:
    people = PEOPLE[["age", "hours"]].assign(noise=PEOPLE["noise"] + 0.0)  # no -0.0, which a file has as a text
    sf.write(people, tmp_path / "people.csv")
    for transform in (True, False):
        model = sf.anonymize_model(
            DecisionTreeClassifier(), people, k=20, y=BUYS, qi=["age"], transform=transform, guide="true"
        )
        assert (model.predict(tmp_path / "people.csv") == model.predict(people)).all()
        assert (model.predict(sf.read(tmp_path / "people.csv")) == model.predict(people)).all()
        with pytest.raises(sf.errors.ColumnError, match="the rows lack the column 'hours'"):
            model.predict(people[["age", "noise"]])

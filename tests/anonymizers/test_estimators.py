"""Anonymizers are estimators: they can be cloned, stand in pipelines, and publish rows that they have not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

import sfumato as sf
from sfumato.anonymizers.anonymizer import Anonymizer

PEOPLE = pd.DataFrame(
    {"age": [20, 22, 24, 40, 60, 61], "sex": list("ffmmmf"), "income": [1, 2, 3, 4, 5, 6]}, index=[5, 3, 1, 0, 2, 4]
)
BUYS = np.array([0, 0, 1, 1, 1, 0])
QI = ["age", "sex"]
ALL: list[Anonymizer] = [
    sf.Mondrian("k=2", qi=QI, output="median"),
    sf.Mondrian("k=3", qi=QI, strict=False),
    sf.Hilbert([sf.KAnonymity(2), "l=2"], qi=QI, sensitive=["income"], output="medoid"),
    sf.RPlus("k=2", qi=QI),
    sf.Lattice("k=2", qi=QI, suppress=0.4, objective="precision", most_nodes=99),
]
each = pytest.mark.parametrize("one", ALL, ids=lambda one: type(one).__name__)


@each
def test_a_clone_has_the_same_parameters_and_has_learnt_nothing(one: Anonymizer) -> None:
    copy = clone(clone(one).fit(PEOPLE))
    assert copy.get_params() == one.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    check_is_fitted(copy.fit(PEOPLE))


@each
def test_parameters_can_be_set_one_by_one(one: Anonymizer) -> None:
    other = type(one)()
    assert other.set_params(**one.get_params()) is other
    assert other.get_params() == one.get_params()
    assert type(one)(**one.get_params()).get_params() == one.get_params()
    with pytest.raises(sf.OptionError, match=r"has no parameter 'gaurantees' \(did you mean 'guarantees'\?\)"):
        other.set_params(gaurantees="k=3")


@each
def test_learning_does_not_change_parameters(one: Anonymizer) -> None:
    before = clone(one).get_params()
    copy = clone(one).fit(PEOPLE)
    assert copy.get_params() == before
    assert repr(copy) == repr(clone(copy))


@each
def test_fit_and_transform_are_fit_transform(one: Anonymizer) -> None:
    if isinstance(one, sf.Mondrian) and not one.strict:
        return  # there equal rows may differ when the table is learnt
    pd.testing.assert_frame_equal(clone(one).fit(PEOPLE).transform(PEOPLE), clone(one).fit_transform(PEOPLE))


@each
def test_what_has_learnt_nothing_cannot_publish(one: Anonymizer) -> None:
    for use in (lambda: clone(one).transform(PEOPLE), lambda: clone(one).get_feature_names_out()):
        with pytest.raises(sf.InputError, match=r"has learnt no table yet \(call fit first\)"):
            use()


@each
def test_the_columns_that_come_out_are_those_that_go_in(one: Anonymizer) -> None:
    learnt = clone(one).fit(PEOPLE)
    assert learnt.get_feature_names_out().tolist() == list(learnt.transform(PEOPLE).columns) == list(PEOPLE.columns)


@each
def test_it_is_shown_in_a_pipeline(one: Anonymizer) -> None:
    pipeline = make_pipeline(one)
    assert type(one).__name__ in repr(pipeline)
    assert type(one).__name__ in pipeline._repr_html_()


def test_a_classifier_learns_from_medians() -> None:
    model = make_pipeline(
        sf.Mondrian("k=2", qi=QI, output="median"), OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier()
    )
    assert model.fit(PEOPLE, BUYS).predict(PEOPLE).shape == (6,)
    named = make_pipeline(model[0], OneHotEncoder(sparse_output=False)).set_output(transform="pandas")
    assert "sex_m" in named.fit_transform(PEOPLE).columns
    assert model.set_params(mondrian__guarantees="k=6").fit(PEOPLE, BUYS)[0].asked == (sf.KAnonymity(6),)


def test_parameters_can_be_searched() -> None:
    model = make_pipeline(
        sf.Mondrian(qi=QI, output="median"), OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier()
    )
    search = GridSearchCV(model, {"mondrian__guarantees": ["k=1", "k=2"]}, cv=2).fit(
        pd.concat([PEOPLE] * 3), np.tile(BUYS, 3)
    )
    assert search.best_params_["mondrian__guarantees"] in ("k=1", "k=2")


def test_it_works_on_some_of_the_columns() -> None:
    columns = ColumnTransformer(
        [("blur", sf.Hilbert("k=2", qi=QI), QI), ("keep", FunctionTransformer(np.log), ["income"])]
    )
    out = columns.fit_transform(PEOPLE)
    assert out.shape == (6, 3)
    assert set(map(type, out[:, 0])) == {str}


def fitted(**options: Any) -> sf.Mondrian:
    return sf.Mondrian("k=2", qi=QI, **options).fit(PEOPLE)


def test_unseen_numbers_go_to_the_nearest_group() -> None:
    new = pd.DataFrame({"age": [21, 19, 1000, 23.5], "sex": ["f", "m", "m", "f"]}, index=[3, 2, 1, 0])
    published = fitted().transform(new)
    assert published.index.equals(new.index)
    known = fitted().transform(PEOPLE)
    low, high = known["age"].iloc[0], known["age"].iloc[4]
    assert published["age"].tolist() == [low, low, high, low]


def test_unseen_dates_go_to_the_nearest_group() -> None:
    old = pl.DataFrame({"day": pl.Series(["2020-01-01", "2020-02-01", "2021-01-01", "2021-03-01"]).str.to_date()})
    new = pl.DataFrame({"day": pl.Series(["2020-01-09", "2031-01-01", "1999-01-01"]).str.to_date()})
    assert sf.Mondrian("k=2", qi=["day"]).fit(old).transform(new)["day"].to_list() == [
        "[2020-01-01, 2020-02-01]",
        "[2021-01-01, 2021-03-01]",
        "[2020-01-01, 2020-02-01]",
    ]


@pytest.mark.parametrize("sex", ["x", None])
def test_unseen_categories_are_refused(sex: str | None) -> None:
    new = pd.DataFrame({"age": [21, 22], "sex": ["f", sex]})
    with pytest.raises(sf.ColumnError, match=r"column 'sex' holds 1 value\(s\) that were not there"):
        fitted().transform(new)


def test_a_category_that_the_hierarchy_lacks_is_refused() -> None:
    new = pd.DataFrame({"age": [21, 22], "sex": ["f", "x"]})
    with pytest.raises(sf.SchemaError, match="column 'sex': the hierarchy does not cover the value 'x'"):
        sf.Lattice("k=2", qi=QI).fit(PEOPLE).transform(new)


def test_new_rows_of_the_lattice_that_are_in_no_class_are_suppressed() -> None:
    decades = sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100))
    table = sf.Table(PEOPLE, sf.Schema([sf.Column(name="age", role="quasi", hierarchy=decades)]))
    learnt = sf.Lattice("k=2", suppress=0.4).fit(table)
    assert learnt.transform(pd.DataFrame({"age": [29, 65, 5]}))["age"].tolist() == ["[20, 30)", "[60, 70)", "*"]


def test_the_order_of_columns_does_not_matter() -> None:
    turned = PEOPLE[["income", "sex", "age"]]
    published = fitted().transform(turned)
    assert list(published.columns) == ["income", "sex", "age"]
    pd.testing.assert_frame_equal(published[list(PEOPLE.columns)], fitted().transform(PEOPLE))


def test_other_columns_may_come_and_go() -> None:
    new = PEOPLE.drop(columns="income").assign(note="n")
    assert fitted().transform(new)["note"].tolist() == ["n"] * 6


def test_a_quasi_identifier_that_is_not_there_is_named() -> None:
    with pytest.raises(sf.ColumnError, match=r"the table lacks the quasi-identifier 'age' \(did you mean 'Age'\?\)"):
        fitted().transform(PEOPLE.rename(columns={"age": "Age"}))


def test_a_column_of_another_type_is_refused() -> None:
    new = PEOPLE.assign(age=["a"] * 6)
    with pytest.raises(sf.ColumnError, match="column 'age' holds String values, but Int64 when it was learnt"):
        fitted().transform(new)


def test_no_rows_give_no_rows() -> None:
    for one in ALL:
        assert len(clone(one).fit(PEOPLE).transform(PEOPLE.head(0))) == 0


def test_another_kind_of_frame_may_be_published() -> None:
    published = fitted().transform(pl.from_pandas(PEOPLE))
    assert isinstance(published, pl.DataFrame)
    assert published["age"].to_list() == fitted().transform(PEOPLE)["age"].tolist()


def test_a_table_comes_out_of_a_table() -> None:
    for strict in (True, False):
        one = sf.Mondrian("k=2", qi=QI, strict=strict)
        assert isinstance(one.fit_transform(sf.Table(PEOPLE)), sf.Table)
        assert isinstance(one.fit_transform(PEOPLE), pd.DataFrame)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (sf.Mondrian("k=2", qi=QI, output="mean"), "output must be one of interval, level, median, medoid, got 'mean'"),
        (sf.Lattice("k=2", qi=QI, suppress=1.5), "rows to suppress must be from 0 to 1, got 1.5"),
        (sf.Lattice("k=2", qi=QI, suppress="some"), "rows to suppress must be from 0 to 1, got 'some'"),  # type: ignore[arg-type]
        (sf.Lattice("k=2", qi=QI, most_nodes=0), "nodes to visit must be at least 1, got 0"),
        (sf.Lattice("k=2", qi=QI, objective="best"), "objective must be one of leaves, precision, discernibility"),
        (sf.Hilbert("k=2"), "no quasi-identifier is named"),
        (sf.Hilbert("k=2", qi="age"), "must be a list of names, got the text 'age'"),
        (sf.Hilbert("k=2", qi=["aeg"]), "there is no column 'aeg'"),
        (sf.Hilbert("j=2", qi=QI), "the guarantee 'j' is unknown"),
    ],
)
def test_wrong_parameters_get_one_sentence(one: Anonymizer, message: str) -> None:
    with pytest.raises(sf.InputError, match=message):
        one.fit(PEOPLE)


@pytest.mark.parametrize("method", [None, sf.Hilbert, 3])
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(sf.OptionError, match=r"the method must be one such as Mondrian\(\)"):
        sf.anonymize(PEOPLE, "k=2", qi=QI, method=method)


def test_anonymize_takes_the_roles_that_its_method_has() -> None:
    people = pd.DataFrame({"age": [20, 22, 40, 60], "disease": ["flu", "ulcer", "flu", "ulcer"]})
    release = sf.anonymize(people, "k=2,l=2", method=sf.Mondrian(qi=["age"], sensitive=["disease"]))
    assert (release.assessment.k, release.assessment.l) == (2, 2)
    assert release.assessment.quasi == ("age",)

"""Anonymizers are estimators: they can be cloned, stand in pipelines, and publish rows that they have not seen."""

from __future__ import annotations

from pathlib import Path
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
from sfumato.anonymizers import Anonymizer

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
    sf.Microaggregate("k=2", qi=QI, block=3),
    sf.Guided("k=2", qi=QI, labels="income", output="interval", task="regress"),
    sf.LocalSuppression("k=2", qi=QI, suppress=0.5, importance={"sex": 2.5}, most_masks=9),
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
    with pytest.raises(sf.errors.OptionError, match=r"has no parameter 'gaurantees' \(did you mean 'guarantees'\?\)"):
        other.set_params(gaurantees="k=3")


@each
def test_learning_does_not_change_parameters(one: Anonymizer) -> None:
    before = clone(one).get_params()
    copy = clone(one).fit(PEOPLE)
    assert copy.get_params() == before
    assert repr(copy) == repr(clone(copy))


@each
def test_fit_and_transform_are_fit_transform(one: Anonymizer) -> None:
    pd.testing.assert_frame_equal(clone(one).fit(PEOPLE).transform(PEOPLE), clone(one).fit_transform(PEOPLE))


@each
def test_what_has_learnt_nothing_cannot_publish(one: Anonymizer) -> None:
    for use in (lambda: clone(one).transform(PEOPLE), lambda: clone(one).get_feature_names_out()):
        with pytest.raises(sf.errors.InputError, match=r"is not fitted \(call fit first\)"):
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
        sf.Mondrian(qi=QI, output="median", new_rows="route"),
        OneHotEncoder(handle_unknown="ignore"),
        DecisionTreeClassifier(),
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
    return sf.Mondrian("k=2", qi=QI, new_rows="route", **options).fit(PEOPLE)


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
    assert sf.Mondrian("k=2", qi=["day"], new_rows="route").fit(old).transform(new)["day"].to_list() == [
        "2020-01-01 to 2020-02-10",
        "2021-01-01 to 2021-03-10",
        "2020-01-01 to 2020-02-10",
    ]


@pytest.mark.parametrize("sex", ["x", None])
def test_unseen_categories_are_refused(sex: str | None) -> None:
    new = pd.DataFrame({"age": [21, 22], "sex": ["f", sex]})
    with pytest.raises(sf.errors.ColumnError, match=r"column 'sex' holds 1 value\(s\) that the fitted table lacks"):
        fitted().transform(new)


def test_a_category_that_the_hierarchy_lacks_is_refused() -> None:
    new = pd.DataFrame({"age": [21, 22], "sex": ["f", "x"]})
    with pytest.raises(sf.errors.SchemaError, match="column 'sex': the hierarchy does not cover a value: 1 of 2"):
        sf.Lattice("k=2", qi=QI).fit(PEOPLE).transform(new)


def test_new_rows_of_the_lattice_that_are_in_no_class_are_suppressed() -> None:
    decades = sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100))
    table = sf.Table(PEOPLE, sf.Schema([sf.Column(name="age", role="quasi", hierarchy=decades)]))
    learnt = sf.Lattice("k=2", suppress=0.4, new_rows="route").fit(table)
    assert learnt.transform(pd.DataFrame({"age": [29, 65, 5]}))["age"].tolist() == ["20-29", "60-69", "*"]


def test_a_node_called_like_the_mark_is_not_taken_for_suppressed_rows() -> None:
    tree = sf.Hierarchy.tree([("a", "x", "*"), ("b", "x", "*"), ("c", "*", "*"), ("d", "*", "*")])
    table = sf.Table(pl.DataFrame({"q": list("aabbccd")}), sf.Schema([sf.Column(name="q", hierarchy=tree)]))
    release = sf.anonymize(table, "k=3", method="lattice", qi=["q"])
    assert release.aligned.frame["q"].to_list() == ["x"] * 4 + ["{c, d}"] * 3
    assert (release.assessment.k, release.assessment.rows, release.assessment.suppressed) == (3, 7, 0)
    assert (release.loss.suppressed, release.loss.gcp) == (0, 0.5)
    learnt = sf.Lattice("k=3", qi=["q"], new_rows="route").fit(table)
    assert learnt.transform(pl.DataFrame({"q": ["c", "b", "d"]}))["q"].to_list() == ["{c, d}", "x", "{c, d}"]


def test_the_order_of_columns_does_not_matter() -> None:
    turned = PEOPLE[["income", "sex", "age"]]
    published = fitted().transform(turned)
    assert list(published.columns) == ["income", "sex", "age"]
    pd.testing.assert_frame_equal(published[list(PEOPLE.columns)], fitted().transform(PEOPLE))


def test_other_columns_may_come_and_go() -> None:
    new = PEOPLE.drop(columns="income").assign(note="n")
    assert fitted().transform(new)["note"].tolist() == ["n"] * 6


def test_a_quasi_identifier_that_is_not_there_is_named() -> None:
    with pytest.raises(
        sf.errors.ColumnError, match=r"the table lacks the quasi-identifier 'age' \(did you mean 'Age'\?\)"
    ):
        fitted().transform(PEOPLE.rename(columns={"age": "Age"}))


def test_a_column_of_another_type_is_refused() -> None:
    new = PEOPLE.assign(age=["a"] * 6)
    with pytest.raises(sf.errors.ColumnError, match="column 'age' holds String values, but Int64 in the fitted table"):
        fitted().transform(new)


@pytest.mark.parametrize("age", [pd.Timestamp("2020-01-01"), True, "20"])
def test_a_date_a_truth_value_or_a_text_is_no_number(age: Any) -> None:
    with pytest.raises(sf.errors.ColumnError, match=r"column 'age' holds .* values, but Int64 in the fitted table"):
        fitted().transform(PEOPLE.assign(age=age))


def test_times_with_and_without_a_time_zone_are_not_compared() -> None:
    days = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=4)})
    learnt = sf.Mondrian("k=2", qi=["day"]).fit(days)
    with pytest.raises(sf.errors.ColumnError, match="in the fitted table"):
        learnt.transform(pd.DataFrame({"day": pd.date_range("2020-01-01", periods=4, tz="Europe/Rome")}))


def test_numbers_and_dates_of_another_size_are_compared() -> None:
    small = sf.Mondrian("k=2", qi=QI, new_rows="route").fit(PEOPLE.assign(age=PEOPLE["age"].astype("int8")))
    new = PEOPLE.assign(age=[1000, -1000, 22, 24, 60, 2**62])
    assert small.transform(new)["age"].tolist() == fitted().transform(new)["age"].tolist()
    days = pl.DataFrame({"day": pl.Series(["2020-01-01", "2020-01-02", "2021-01-01", "2021-01-02"]).str.to_date()})
    learnt = sf.Mondrian("k=2", qi=["day"], new_rows="route").fit(days)
    assert learnt.transform(days.cast(pl.Datetime("ms")))["day"].equals(learnt.transform(days)["day"])
    late = pl.DataFrame({"day": pl.Series(["2020-11-01 23:00"]).str.to_datetime("%Y-%m-%d %H:%M")})
    assert learnt.transform(late)["day"].to_list() == ["2021-01-01 to 2021-01-02"]


def test_an_infinite_number_lies_at_its_end_of_the_line() -> None:
    ages = fitted().transform(PEOPLE.assign(age=[-np.inf, np.inf, 20, 20, 20, 20], sex="m"))["age"].tolist()
    assert ages[0] == fitted().transform(PEOPLE.assign(age=-1000, sex="m"))["age"].tolist()[0]
    assert ages[1] == fitted().transform(PEOPLE.assign(age=1000, sex="m"))["age"].tolist()[0]


def test_ordinals_of_the_public_domain_go_to_the_nearest_group() -> None:
    column = sf.Column(name="size", role="quasi", kind="ordinal", domain=("xs", "s", "m", "l", "xl"))
    people = sf.Table(pl.DataFrame({"size": ["xs", "xs", "xl", "xl"]}), sf.Schema([column]))
    learnt = sf.Mondrian("k=2", new_rows="route").fit(people)
    assert learnt.transform(pl.DataFrame({"size": ["s", "l", "xl"]}))["size"].to_list() == ["xs", "xl", "xl"]
    with pytest.raises(sf.errors.ColumnError, match=r"column 'size' holds 1 value\(s\) that the fitted table lacks"):
        learnt.transform(pl.DataFrame({"size": ["s", "xxl"]}))


@pytest.mark.parametrize(
    "values",
    [
        pd.array([2**60 + 1, 2, None, 4], dtype="Int64"),
        pd.array([1, 2, 3, 4], dtype="int64[pyarrow]"),
        pd.array(["a", "b", "c", "d"], dtype="string"),
        pd.array([True, False, None, True], dtype="boolean"),
        pd.Categorical(["a", "b", "c", "a"], categories=["c", "b", "a", "unused"], ordered=True),
        pd.Categorical(["a", "b", "c", None], categories=["c", "b", "a", "unused"]),
        np.array([1, 2, 3, 4], dtype="int32"),
        np.array([1.5, np.nan, 3, 4], dtype="float32"),
    ],
    ids=lambda values: str(values.dtype),
)
@pytest.mark.parametrize("k", [1, 2])
def test_values_that_stay_values_keep_the_type_of_their_column(values: Any, k: int) -> None:
    people = pd.DataFrame({"x": values})
    published = sf.Mondrian(f"k={k}", qi=["x"], output="median").fit_transform(people)
    assert published["x"].dtype == people["x"].dtype
    if k == 1:
        pd.testing.assert_frame_equal(published, people)


@pytest.mark.parametrize("dtype", [pl.Enum(["low", "mid", "top"]), pl.Categorical, pl.Int8])
def test_values_that_stay_values_keep_the_type_of_their_polars_column(dtype: Any) -> None:
    values = [1, 2, 3, 3] if dtype == pl.Int8 else ["low", "mid", "top", "top"]
    people = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    assert sf.Mondrian("k=2", qi=["x"], output="median").fit_transform(people)["x"].dtype == dtype
    assert sf.Mondrian("k=4", qi=["x"]).fit_transform(people)["x"].dtype == pl.String
    arrow = sf.Mondrian("k=2", qi=["x"], output="median").fit_transform(people.to_arrow())
    assert arrow.schema.field("x").type == people.to_arrow().schema.field("x").type


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
        (sf.Mondrian("k=2", qi=QI, output="mode"), "one of interval, tight, level, median, mean, medoid, got 'mode'"),
        (sf.Lattice("k=2", qi=QI, suppress=1.5), "rows to suppress must be a number from 0 to 1, got 1.5"),
        (sf.Lattice("k=2", qi=QI, suppress="some"), "rows to suppress must be a number from 0 to 1, got 'some'"),  # type: ignore[arg-type]
        (sf.Lattice("k=2", qi=QI, most_nodes=0), "nodes to visit must be a whole number of at least 1, got 0"),
        (sf.Lattice("k=2", qi=QI, objective="best"), "objective must be one of leaves, precision, discernibility"),
        (sf.Hilbert("k=2"), "no quasi-identifier is named"),
        (sf.Hilbert("k=2", qi="age"), "must be a list of names, got the text 'age'"),
        (sf.Hilbert("k=2", qi=["aeg"]), "there is no column 'aeg'"),
        (sf.Hilbert("j=2", qi=QI), "the guarantee 'j' is unknown"),
    ],
)
def test_wrong_parameters_get_one_sentence(one: Anonymizer, message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        one.fit(PEOPLE)


@pytest.mark.parametrize("method", [None, sf.Hilbert, 3])
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match=r"the method must be an object such as Mondrian\(\)"):
        sf.anonymize(PEOPLE, "k=2", qi=QI, method=method)


def test_anonymize_takes_the_roles_that_its_method_has() -> None:
    people = pd.DataFrame({"age": [20, 22, 40, 60], "disease": ["flu", "ulcer", "flu", "ulcer"]})
    release = sf.anonymize(people, "k=2,l=2", method=sf.Mondrian(qi=["age"], sensitive=["disease"]))
    assert (release.assessment.k, release.assessment.l) == (2, 2)
    assert release.assessment.quasi == ("age",)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_release_is_never_written_over_its_original(suffix: str, tmp_path: Path) -> None:
    original, link = tmp_path / f"people.{suffix}", tmp_path / f"link.{suffix}"
    sf.write(PEOPLE, original)
    link.symlink_to(original)
    before = original.read_bytes()
    for to in (original, link):
        with pytest.raises(sf.errors.OptionError, match="is read and cannot be written too"):
            sf.anonymize(original, "k=2", qi=QI, to=to)
    assert original.read_bytes() == before

"""What a model is given: each record must read as what it is by itself, whatever the others hold."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import ColumnError, InputError, OptionError
from sfumato.learners.estimators.features import Columns, Feature, Undeclared, describe, scale_bounds

DATES = sf.Schema([sf.Column(name="seen", kind="date"), sf.Column(name="age", kind="number")])


def written(tmp_path, *lines):
    path = tmp_path / f"{len(lines)}.csv"
    path.write_text("\n".join(["seen,age", *lines]) + "\n")
    return path


@pytest.mark.parametrize("odd", ["x, 40", "2020-02-30,40", "2020-01-03,x", "7,x", "2020-01-03 25:00:00,007"])
def test_a_record_of_a_text_file_does_not_change_what_the_others_read_as(tmp_path, odd):
    lines = ["2020-01-01, 30", "2020-01-02, 4.5", "1969-12-31,+5"]
    few, more = (Columns.of(sf.read(written(tmp_path, *some))) for some in (lines, [*lines, odd]))
    assert {one.dtype for one in more.values} - {one.dtype for one in few.values}, "the odd record changes a type"
    for feature, before, after in zip(
        (Feature("seen", bounds=(-10.0, 30_000.0)), Feature("age", bounds=(0.0, 100.0))),
        few.values,
        more.values,
        strict=True,
    ):
        assert feature.numbers(after)[:3].tolist() == feature.numbers(before).tolist()
    assert Feature("seen", bounds=(-10.0, 30_000.0)).numbers(more.values[0])[:3].tolist() == [18262.0, 18263.0, -1.0]


def test_moments_of_a_text_file_stay_days(tmp_path):
    lines = ["2020-01-01 10:00:00,1", "2020-01-02T23:59:59.5,1"]
    few, more = (Columns.of(sf.read(written(tmp_path, *some))).values[0] for some in (lines, [*lines, "x,1"]))
    assert few.dtype == pl.Datetime
    assert more.dtype == pl.String
    days = Feature("seen", bounds=(0.0, 30_000.0))
    assert days.numbers(more)[:2].tolist() == days.numbers(few).tolist() == [18262.0, 18263.0]


def test_a_declared_kind_is_bought_as_what_it_is_whatever_a_record_made_of_its_type(tmp_path):
    for lines in (["2020-01-01,30"], ["2020-01-01,30", "x,y"]):
        columns = Columns.of(sf.read(written(tmp_path, *lines)))
        assert describe(columns, DATES) == [Undeclared("seen", is_number=True), Undeclared("age", is_number=True)]
        assert describe(columns, DATES, bounds=(0, 9))[1] == Feature("age", bounds=(0.0, 9.0))


@pytest.mark.parametrize("odd", ["x", 2.5, 1])
def test_a_value_of_another_type_does_not_change_what_the_others_read_as(odd):
    few, more = (
        Columns.of(np.array([[one, "a"] for one in some], dtype=object)).values[0]
        for some in ([True, False, None], [True, False, None, odd])
    )
    answer = Feature("answer", domain=("False", "True"))
    assert answer.codes(few).tolist() == answer.codes(more)[:3].tolist() == [1, 0, 2]
    number = Feature("answer", bounds=(0.0, 1.0))
    assert np.array_equal(number.numbers(few), number.numbers(more)[:3], equal_nan=True)


def test_what_is_infinite_is_held_within_the_bounds_in_an_array_too():
    columns = Columns.of(np.array([[np.inf, 1.0], [-np.inf, np.nan]]))
    assert Feature("x0", bounds=(0.0, 1.0)).numbers(columns.values[0]).tolist() == [1.0, 0.0]


def test_zeros_of_either_sign_are_one_category():
    zero = Feature("a", domain=("0", "1"))
    assert zero.codes(pl.Series([-0.0, 0.0, 1.0, math.nan])).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("dtype", [pl.Time, pl.Duration("us")])
def test_times_are_numbers(dtype):
    assert np.isfinite(Feature("at", bounds=(0.0, 1e9)).numbers(pl.Series([1, 2]).cast(dtype))).all()


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [1.0], "b": [2.0]}),
        pl.LazyFrame({"a": [1.0], "b": [2.0]}),
        pd.DataFrame({"a": [1.0], "b": [2.0]}),
        pa.table({"a": [1.0], "b": [2.0]}),
    ],
    ids=["polars", "lazy", "pandas", "arrow"],
)
def test_every_frame_keeps_its_names(frame):
    assert Columns.of(frame).names == ("a", "b")


@pytest.mark.parametrize("values", [[[1], [2]], [{"b": 1}, {"b": 2}]])
def test_lists_and_objects_are_refused_by_the_name_of_their_column(values):
    with pytest.raises(ColumnError, match="'a' holds lists or objects"):
        Columns.of(pl.DataFrame({"a": values}))


@pytest.mark.parametrize("given", [[123.456, 2.0], np.array(123.456), np.array([123.456])])
def test_an_array_of_one_dimension_is_refused_without_telling_what_it_holds(given):
    with pytest.raises(InputError, match="a row per record") as refused:
        Columns.of(given)
    assert "123" not in str(refused.value)


@pytest.mark.parametrize("bounds", [(0, 1e-320), (0, 1e-200), (-1e150, 1e150), (1, 1), (0, math.inf)])
def test_bounds_by_which_nothing_can_be_scaled_are_refused(bounds):
    with pytest.raises(OptionError, match="the bounds must be"):
        scale_bounds(bounds)


def test_a_target_needs_no_name() -> None:
    from sfumato.learners import PrivateNaiveBayes

    target = pl.Series(["no", "yes"] * 20)
    model = PrivateNaiveBayes(epsilon=1, delta=1e-3, bounds=(0, 40), classes=["no", "yes"])
    assert len(model.fit(np.arange(40.0).reshape(-1, 1), target).classes_) == 2


def test_a_target_that_is_declared_as_a_number_is_no_class() -> None:
    from sfumato.learners import PrivateNaiveBayes

    columns = [sf.Column(name="age", bounds=(0, 100)), sf.Column(name="size", bounds=(0, 10))]
    table = sf.Table(pl.DataFrame({"age": range(50), "size": [1, 2] * 25}), sf.Schema(columns))
    with pytest.raises(sf.errors.InputError, match="the target 'size' is a number, not a class"):
        PrivateNaiveBayes(epsilon=1, delta=1e-3).fit(table, "size")
    assert len(PrivateNaiveBayes(epsilon=1, delta=1e-3, classes=[1, 2]).fit(table, "size").classes_) == 2

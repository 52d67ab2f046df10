"""The same table as every kind of frame gives the same numbers, and comes back as it was."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.coding import encode
from tests.effort import effort

SMALL = pl.DataFrame(
    {
        "age": [30, 30, 41, 41, 41, None],
        "sex": ["f", "f", "m", "m", None, "f"],
        "weight": [50.5, 50.5, 80.0, 80.0, 81.25, -0.0],
        "born": [datetime.date(1990, 1, 1)] * 2 + [datetime.date(1979, 5, 5)] * 4,
        "smokes": [True, False, True, True, False, True],
        "disease": ["flu", "ulcer", "flu", "flu", "cancer", "flu"],
    }
)
QI = ["age", "sex"]


def test_every_kind_of_frame_gives_the_same_assessment(as_frame: Callable[[pl.DataFrame], Any]) -> None:
    for missing in ("value", "wildcard", "drop"):
        expected = sf.assess(SMALL, qi=QI, sensitive=["disease"], missing=missing)
        found = sf.assess(as_frame(SMALL), qi=QI, sensitive=["disease"], missing=missing)
        assert found.to_dict() == expected.to_dict()


def test_every_kind_of_frame_comes_back_as_it_was(as_frame: Callable[[pl.DataFrame], Any]) -> None:
    frame = as_frame(SMALL.drop("age"))  # a whole-number column with a missing value is a float in pandas
    table = sf.Table(frame)
    back = table.decode(table.encode(["sex", "weight", "born", "smokes"]))
    assert type(back) is type(frame)
    collected, again = (sf.Table(one) for one in (frame, back))
    assert again.schema == collected.schema
    for name in collected.schema.names:
        assert again.column(name).dtype == collected.column(name).dtype
        assert again.column(name).to_list() == collected.column(name).to_list()


def test_a_frame_is_never_modified(as_frame: Callable[[pl.DataFrame], Any]) -> None:
    frame = as_frame(SMALL)
    before = sf.Table(frame).column("sex").to_list()
    table = sf.Table(frame)
    codes = table.encode(["sex"])
    codes.values[:] = 0
    table.decode(codes)
    assert sf.Table(frame).column("sex").to_list() == before


def test_pandas_keeps_its_index_order_and_types() -> None:
    frame = pd.DataFrame(
        {
            "b": pd.Categorical(["x", "y", "x"], categories=["z", "y", "x"]),
            "a": pd.array([1, None, 3], dtype="Int64"),
            "when": pd.to_datetime(["2020-01-01", "2021-01-01", None]).tz_localize("Europe/Berlin"),
            "price": [decimal.Decimal("1.10"), decimal.Decimal("2.50"), None],
            "small": np.array([1, 2, 3], dtype="int8"),
            "band": pd.cut([1, 5, 9], [0, 3, 6, 10]),
            "month": pd.period_range("2020-01", periods=3, freq="M"),
            "code": pd.Categorical([3, 1, None], ordered=True),
        },
        index=pd.Index([7, 3, 5], name="person"),
    )
    table = sf.Table(frame)
    pd.testing.assert_frame_equal(table.decode(table.encode(list(frame.columns))), frame)


def test_pyarrow_keeps_its_dictionary_type() -> None:
    arrow = pl.DataFrame({"sex": ["f", "m", "f"], "n": [1, 2, 3]}).to_arrow()
    column = arrow.column("sex").dictionary_encode()
    arrow = arrow.set_column(0, "sex", column)
    table = sf.Table(arrow)
    back = table.decode(table.encode(["sex", "n"]))
    assert back.schema == arrow.schema
    assert back.to_pydict() == arrow.to_pydict()


def test_a_polars_categorical_keeps_its_type() -> None:
    frame = pl.DataFrame(
        {
            "sex": pl.Series(["f", "m", None], dtype=pl.Categorical),
            "e": pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a"])),
        }
    )
    table = sf.Table(frame)
    polars.testing.assert_frame_equal(table.decode(table.encode(["sex", "e"])), frame)


def test_a_permuted_or_filtered_index_changes_nothing() -> None:
    frame = SMALL.to_pandas()
    expected = sf.assess(frame, qi=QI, sensitive=["disease"]).numbers()
    permuted = frame.sample(frac=1, random_state=1)
    assert sf.assess(permuted, qi=QI, sensitive=["disease"]).numbers() == expected
    relabelled = frame.set_index(pd.Index([9] * len(frame)))
    assert sf.assess(relabelled, qi=QI, sensitive=["disease"]).numbers() == expected
    filtered = frame[frame["age"] > 35]
    assert sf.assess(filtered, qi=QI, sensitive=["disease"]).k == 1
    assert sf.assess(filtered, qi=["age"], sensitive=["disease"]).k == 3


def test_unused_levels_of_a_category_are_no_class() -> None:
    frame = pd.DataFrame({"sex": pd.Categorical(["f", "f"], categories=["f", "m"]), "s": ["a", "b"]})
    result = sf.assess(frame, qi=["sex"], sensitive=["s"])
    assert (result.k, result.classes) == (2, 1)


def test_an_ordered_category_is_ordinal_in_its_own_order() -> None:
    ordered = pd.Categorical(["low", "high", "mid", "low"], categories=["low", "mid", "high", "unused"], ordered=True)
    table = sf.Table(pd.DataFrame({"grade": ordered}))
    assert table.schema["grade"].kind is sf.Kind.ORDINAL
    assert table.encode(["grade"]).domains[0].values.to_list() == ["low", "mid", "high"]


def test_an_ordinal_value_outside_its_domain_is_refused() -> None:
    schema = sf.Schema([sf.Column(name="grade", kind="ordinal", domain=["low", "high"])])
    with pytest.raises(
        sf.errors.SchemaError, match=r"holds 1 different value\(s\) that its ordered domain does not list"
    ):
        sf.Table(pl.DataFrame({"grade": ["low", "mid"]}), schema).encode(["grade"])


def test_kinds_follow_the_types() -> None:
    kinds = {column.name: column.kind.value for column in sf.Table(SMALL).schema.columns}
    assert kinds == {
        "age": "number",
        "sex": "category",
        "weight": "number",
        "born": "date",
        "smokes": "category",
        "disease": "category",
    }
    assert sf.Table(pd.DataFrame({"d": [decimal.Decimal("1.5")]})).schema["d"].kind is sf.Kind.NUMBER


def test_mixed_types_are_refused_only_when_used() -> None:
    frame = pd.DataFrame({"m": [1, "a"], "sex": ["f", "f"]})
    assert sf.assess(frame, qi=["sex"], keep=["m"]).k == 2
    with pytest.raises(sf.errors.ColumnError, match="column 'm' holds values of mixed or unknown types"):
        sf.assess(frame, qi=["m"])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"a": [1]}, "must be a frame or a file, got dict"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns with the same name"),
        (pd.DataFrame({0: [1]}), "a column name must be a text, got 0"),
        (pl.DataFrame(), "no columns"),
    ],
)
def test_what_is_no_table_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        sf.Table(frame)


@pytest.mark.parametrize("values", [[[1], [2]], [{"x": 1}, {"x": 2}]])
def test_nested_values_are_refused_with_a_reason(values: list[Any]) -> None:
    with pytest.raises(sf.errors.ColumnError, match="only numbers, texts, dates and truth values can be counted"):
        sf.assess(pl.DataFrame({"q": values}), qi=["q"])


def test_a_schema_of_another_table_is_refused() -> None:
    with pytest.raises(sf.errors.SchemaError, match=r"column 'agee' that the table lacks \(did you mean 'age'\?\)"):
        sf.Table(SMALL, sf.Schema([sf.Column(name="agee")]))


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1),
    st.lists(st.one_of(st.none(), st.floats()), min_size=1),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=1),
    st.lists(st.one_of(st.none(), st.dates()), min_size=1),
)


@given(VALUES)
def test_codes_are_positions_in_a_sorted_domain_and_decode_to_the_values(values: list[Any]) -> None:
    series = pl.Series("x", values)
    codes = encode([series], [sf.Column(name="x")])
    domain = codes.domains[0]
    plain = [None if value != value else value for value in values]  # NaN is missing
    assert domain.values.gather(codes.values[:, 0]).to_list() == plain
    present = [value for value in domain.values.to_list() if value is not None]
    assert present == sorted(set(present))
    assert len(domain) == len(set(plain))
    assert domain.missing == (len(present) if None in plain else None)


def test_thousands_of_columns_are_counted() -> None:
    columns = effort(3_000, 10_000)
    frame = pl.DataFrame({f"c{i}": [i % 3, i % 3, 1] for i in range(columns)})
    assert sf.assess(frame, qi=["c0", f"c{columns - 1}"], sensitive=["c5"]).k == 1
    most = effort(1_100, 2_000)  # more than Python nests calls
    everything = sf.assess(frame[:, :most], qi=frame.columns[:most])
    assert (everything.k, everything.classes) == (1, 2)


def test_labels_that_read_alike_are_not_merged() -> None:
    for ordered in (False, True):
        frame = pd.DataFrame({"q": pd.Categorical([1, 1, "1", "1"], categories=[1, "1"], ordered=ordered)})
        with pytest.raises(sf.errors.ColumnError, match="column 'q' holds values of mixed or unknown types"):
            sf.assess(sf.Table(frame, sf.Schema([sf.Column(name="q", kind="category")])), qi=["q"])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["None", None]),
        pd.Series(["None", None], dtype=object),
        pd.Series(["None", None], dtype="category"),
        pd.Series(pd.to_datetime([1, 2], unit="ns")),
        pd.Series(pd.to_timedelta([1, 2], unit="ns")),
        pd.Series([2**63 + 1, 2**63 + 3], dtype="uint64"),
        pd.Series([True, None], dtype="boolean"),
        pd.Series([1.5, None], dtype="Float32"),
        pd.Series(["a", "b"], dtype="string[pyarrow]"),
    ],
)
def test_pandas_columns_come_back_to_the_last_bit(column: Any) -> None:
    frame = column.to_frame("x").set_axis([3, 1])
    table = sf.Table(frame)
    codes = table.encode(["x"])
    assert len(codes.domains[0]) == 2
    pd.testing.assert_frame_equal(table.decode(codes), frame)


def test_recoded_values_come_back_as_values_of_the_table() -> None:
    table = sf.Table(pd.DataFrame({"x": ["a", "b", "c"]}, index=[5, 6, 7]))
    codes = table.encode(["x"])
    codes.values[:, 0] = [1, 1, 2]
    assert table.decode(codes)["x"].to_dict() == {5: "b", 6: "b", 7: "c"}
    with pytest.raises(sf.errors.InputError, match="the codes belong to another table"):
        sf.Table(pd.DataFrame({"x": ["a", "z"]})).decode(codes)


def test_a_lazy_polars_frame_stays_lazy() -> None:
    table = sf.Table(SMALL.lazy())
    assert sf.assess(table, qi=QI).k == 1
    back = table.decode(table.encode(["sex"]))
    assert isinstance(back, pl.LazyFrame)
    assert back.collect().equals(SMALL)


def test_duckdb_keeps_its_types() -> None:
    import duckdb

    relation = duckdb.sql(
        "select 1::hugeint h, 'a'::enum('a', 'b') e, '00000000-0000-0000-0000-000000000001'::uuid u, "
        "time '10:00' t, 1.5::decimal(9,2) d"
    )
    table = sf.Table(relation)
    assert table.decode(table.encode(["h", "e", "u", "t", "d"])).types == relation.types


def test_a_database_does_not_tell_the_case_of_names() -> None:
    import duckdb

    assert sf.assess(duckdb.sql("select 1 as Rows, 2 as x"), qi=["Rows"]).k == 1


def test_a_frame_that_is_gone_is_one_sentence() -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute("create table gone as select 1 as a")
    relation = connection.table("gone")
    table = sf.Table(relation)
    connection.execute("drop table gone")
    with pytest.raises(sf.errors.InputError, match="cannot be read where it lives"):
        sf.assess(table, qi=["a"])


def test_values_that_python_cannot_hold_have_a_text() -> None:
    far = pl.DataFrame({"d": pl.Series([2**30], dtype=pl.Int32).cast(pl.Date), "b": [b"\xff"]})
    assert sf.assess(far, qi=["d", "b"]).witnesses["k"].labels["d"] == str(2**30)


def test_a_short_float_is_written_shortly() -> None:
    frame = pl.DataFrame({"q": pl.Series([0.7, None], dtype=pl.Float32)})
    assert sf.assess(frame, qi=["q"]).witnesses["k"].labels == {"q": "0.7"}


def test_a_mark_may_be_a_number() -> None:
    frame = pl.DataFrame({"a": [0, 0, 7], "b": [0, 1, 1]})
    assert sf.assess(frame, qi=["a", "b"], suppressed="0").suppressed == 1


def test_a_polars_category_of_its_own_counts_like_any_other() -> None:
    frame = pl.DataFrame({"sex": ["f", "m", "f"], "s": ["a", "b", "c"]})
    own = frame.cast({"sex": pl.Categorical(pl.Categories("sexes", "tests"))})
    expected = sf.assess(frame, qi=["sex"], sensitive=["s"])
    assert sf.assess(own, qi=["sex"], sensitive=["s"]).to_dict() == expected.to_dict()
    assert sf.Schema.suggest(sf.Table(own)) == sf.Schema.suggest(sf.Table(frame))

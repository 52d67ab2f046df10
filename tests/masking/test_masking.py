"""Masking: perturbations that do what they say, keep frames as they are, and promise nothing.

Random numbers are judged by bounds that a correct method exceeds with a probability below 1e-6, stated at each.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.masking import NoiseAddition, Pram, RankSwap, TopBottomCode

ROWS = 20_000


def masked(values: Any, method: Any, seed: int | None = None) -> pl.Series:
    return sf.mask(pl.DataFrame({"x": values}), [method], seed=seed).table.frame["x"]


def test_what_lies_beyond_a_bound_becomes_the_bound() -> None:
    assert masked([1, 5, 9, None], TopBottomCode("x", low=2, high=8)).to_list() == [2, 5, 8, None]
    assert masked([1.5, 9.5], TopBottomCode("x", high=2)).to_list() == [1.5, 2.0]
    days = [date(1900, 1, 1), date(2000, 1, 1), None]
    for low in (date(1950, 1, 1), "1950-01-01"):
        assert masked(days, TopBottomCode("x", low=low)).to_list() == [
            date(1950, 1, 1),
            date(2000, 1, 1),
            None,
        ]
    moments = pl.Series([datetime(2020, 1, 1, 12), datetime(2020, 1, 3)]).dt.replace_time_zone("Europe/Rome")
    coded = masked(moments, TopBottomCode("x", high="2020-01-02"))
    assert coded.dtype == moments.dtype
    assert coded.dt.to_string("%Y-%m-%d %H").to_list() == ["2020-01-01 12", "2020-01-02 00"]


def test_pram_keeps_the_expected_marginals() -> None:
    values = np.repeat(["a", "b", "c", "d"], [ROWS // 2, ROWS // 4, ROWS // 5, ROWS // 20])
    found = masked(values, Pram("x", keep=0.3))
    # Rows are drawn one by one, so that Hoeffding's bound holds for the count of each of the four values: the
    # probability that one of them is further off is below 4 * 2 exp(-2 t^2 / n) = 8e-8.
    far = math.sqrt(ROWS / 2 * math.log(1e8))
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        assert abs((found == value).sum() - count) < far
    # A value is kept, or drawn anew and the same: 0.3 + 0.7 * sum p^2. The same bound, 2e-8.
    shares = np.array([0.5, 0.25, 0.2, 0.05])
    assert abs((found == pl.Series(values)).sum() - ROWS * (0.3 + 0.7 * (shares**2).sum())) < far


def test_pram_that_keeps_everything_changes_nothing() -> None:
    values = ["a", None, "b", "b"]
    assert masked(values, Pram("x", keep=1)).to_list() == values


def test_missing_values_stay_missing_and_are_never_drawn() -> None:
    values = [None, "a", "b"] * 100
    for method in (Pram("x", keep=0), Pram("x", keep=0.5)):
        assert masked(values, method).is_null().to_list() == [value is None for value in values]
    numbers = [None, 1, 2] * 100
    for method in (RankSwap("x"), NoiseAddition("x"), TopBottomCode("x", high=1)):
        assert masked(numbers, method).is_null().to_list() == [number is None for number in numbers]
        assert masked(pl.Series([None, None], dtype=pl.Int64), method).null_count() == 2
    floats = pl.Series([1.0, math.nan, None, 4.0])
    assert masked(floats, NoiseAddition("x")).to_list()[2] is None
    assert math.isnan(masked(floats, NoiseAddition("x")).to_list()[1])
    assert math.isnan(masked(floats, TopBottomCode("x", high=2)).to_list()[1])


@given(
    values=st.lists(st.integers(0, 30) | st.none(), max_size=60),
    percent=st.floats(0, 100),
    seed=st.integers(0, 2**32),
)
def test_swapped_values_are_the_same_values_and_near_in_rank(
    values: list[int | None], percent: float, seed: int
) -> None:
    series = pl.Series(values, dtype=pl.Int64)
    found = masked(series, RankSwap("x", percent=percent), seed)
    assert found.sort().equals(series.sort().alias("x"))
    known = sorted(value for value in values if value is not None)
    window = max(math.floor(percent / 100 * len(known) + 1e-9), 1)
    for old, new in zip(values, found, strict=True):
        if old is not None:
            # Equal values are ranked at random: the nearest of their ranks are compared.
            low, high = sorted((old, new))
            last_low = len(known) - 1 - known[::-1].index(low)
            assert known.index(high) - last_low <= window


def test_most_values_are_swapped_and_as_far_as_they_may_be() -> None:
    found = masked(np.arange(ROWS), RankSwap("x", percent=5)).to_numpy()
    away = np.abs(found - np.arange(ROWS))
    assert away.max() <= ROWS // 20
    # At most a few at the end find no partner, and distances are spread over the window: of about 10,000 swaps,
    # each below half of the window with a probability of at most 3/4, all being so has one below 0.75^5000.
    assert (away == 0).mean() < 0.01
    assert away.max() > ROWS // 40


def test_dates_and_ordinals_can_be_swapped() -> None:
    days = [date(2020, 1, day) for day in range(1, 21)]
    assert sorted(masked(days, RankSwap("x", percent=20)).to_list()) == days
    grades = pl.Series(["low", "mid", "top"] * 5, dtype=pl.Enum(["low", "mid", "top"]))
    found = masked(grades, RankSwap("x", percent=50))
    assert found.dtype == grades.dtype
    assert found.sort().to_list() == grades.sort().to_list()


def test_noise_has_the_variance_that_is_asked_for() -> None:
    from scipy.stats import chi2

    values = np.random.default_rng(1).normal(50, 10, ROWS)
    noise = masked(values, NoiseAddition("x", scale=0.3)).to_numpy() - values
    # The sum of squares by the variance has a chi-square distribution with n degrees of freedom: 2e-7.
    low, high = chi2.ppf([1e-7, 1 - 1e-7], ROWS)
    assert low < (noise**2).sum() / (0.3 * values.std()) ** 2 < high
    assert abs(noise.mean()) < 6 * 0.3 * values.std() / math.sqrt(ROWS)  # six deviations: 2e-9


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1])


@pytest.mark.parametrize("correlated", [True, False])
def test_noise_is_correlated_like_the_columns_if_asked(correlated: bool) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=ROWS)
    frame = pl.DataFrame({"x": x, "y": 100 * (0.8 * x + 0.6 * draw.normal(size=ROWS))})
    noisy = sf.mask(frame, [NoiseAddition(["x", "y"], scale=0.5, correlated=correlated)]).table.frame
    noise = [(noisy[name] - frame[name]).to_numpy() for name in ("x", "y")]
    # Fisher's z of a correlation is normal with deviation 1/sqrt(n - 3); six deviations: 2e-9.
    expected = math.atanh(correlation(frame["x"].to_numpy(), frame["y"].to_numpy())) if correlated else 0.0
    assert abs(math.atanh(correlation(*noise)) - expected) < 6 / math.sqrt(ROWS - 3)
    for part, name in zip(noise, ("x", "y"), strict=True):
        # The deviation of a sample deviation is about 1/sqrt(2n) of it; six of them.
        assert part.std() == pytest.approx(0.5 * frame[name].to_numpy().std(), rel=6 / math.sqrt(2 * ROWS))


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Decimal(10, 2)])
def test_noise_keeps_the_type_and_stays_in_its_range(dtype: Any) -> None:
    values = pl.Series([0, 1, 50, 100, 127] * 20).cast(dtype)
    found = masked(values, NoiseAddition("x", scale=3))
    assert found.dtype == dtype
    assert not found.equals(values.alias("x"))
    huge = pl.Series([2**63 - 1, -(2**63)] * 5)
    assert masked(huge, NoiseAddition("x", scale=9)).dtype == pl.Int64


def test_noise_keeps_the_public_bounds() -> None:
    schema = sf.Schema([sf.Column(name="x", kind="number", bounds=(0, 10))])
    frame = pl.DataFrame({"x": [0, 5, 10] * 50})
    noisy = sf.mask(frame, [NoiseAddition("x", scale=2)], schema=schema).table
    assert set(noisy.frame["x"]) <= set(range(11))


def test_a_constant_column_gets_no_noise() -> None:
    assert masked([7, 7], NoiseAddition("x", scale=5)).to_list() == [7, 7]


PEOPLE = pl.DataFrame(
    {
        "age": pl.Series([20, 30, None, 50, 60, 70], dtype=pl.Int64),
        "income": [1.5, 2.5, 3.0, None, 9.0, 20.0],
        "sex": ["f", "m", None, "m", "f", "f"],
        "born": [date(2000, 1, 1), date(1990, 1, 1), None, date(1970, 1, 1), date(1960, 1, 1), date(1950, 1, 1)],
        "note": ["a", "b", "c", "d", "e", "f"],
    }
)
EVERYTHING = [
    Pram("sex", keep=0.5),
    RankSwap("born", percent=50),
    NoiseAddition(["age", "income"], scale=0.5, correlated=True),
    TopBottomCode("age", low=25, high=55),
]


def test_pandas_keeps_its_types_and_not_its_index() -> None:
    people = PEOPLE.to_pandas().astype({"age": "Int64", "sex": "category"}).set_axis([5, 1, 1, 0, -3, 9])
    people["small"] = np.arange(6, dtype=np.int8)
    people["day"] = pd.Series([date(2020, 1, day) for day in range(1, 7)], index=people.index, dtype=object)
    before = people.copy(deep=True)
    found = sf.mask(people, [*EVERYTHING, NoiseAddition("small"), TopBottomCode("day", low="2020-01-03")]).table.frame
    assert found["day"].tolist()[:3] == [date(2020, 1, 3)] * 3
    assert isinstance(found, pd.DataFrame)
    assert found.index.equals(pd.RangeIndex(6))
    people = people.reset_index(drop=True)
    before = before.reset_index(drop=True)
    # A category that no masked row has is dropped, so the lists of categories may differ.
    assert found.dtypes.astype(str).equals(people.dtypes.astype(str))
    pd.testing.assert_series_equal(found["note"], people["note"])
    pd.testing.assert_frame_equal(people, before)
    assert found.isna().equals(people.isna())


def test_pyarrow_keeps_its_types() -> None:
    people = PEOPLE.to_arrow()
    found = sf.mask(people, EVERYTHING).table.frame
    assert isinstance(found, pa.Table)
    assert found.schema.equals(people.schema)


def test_polars_keeps_its_types_and_other_columns() -> None:
    before = PEOPLE.clone()
    found = sf.mask(PEOPLE, EVERYTHING).table.frame
    assert found.schema == PEOPLE.schema
    assert found["note"].equals(PEOPLE["note"])
    assert PEOPLE.equals(before)


def test_rows_that_are_elsewhere_are_fetched(tmp_path: Any) -> None:
    import duckdb

    expected = sf.mask(PEOPLE, EVERYTHING, seed=4).table.frame
    sf.write(PEOPLE, tmp_path / "people.parquet")
    for source in (PEOPLE.lazy(), duckdb.from_arrow(PEOPLE.to_arrow()), tmp_path / "people.parquet"):
        found = sf.mask(source, EVERYTHING, seed=4).table
        assert found.schema.names == tuple(expected.columns)
        assert [found.column(name).to_list() for name in expected.columns] == [
            expected[name].to_list() for name in expected.columns
        ]


def test_a_seed_makes_it_reproducible_and_the_system_s_entropy_does_not() -> None:
    frame = pl.DataFrame({"x": np.arange(500.0), "y": ["a", "b"] * 250})
    methods = [NoiseAddition("x"), RankSwap("x"), Pram("y")]
    runs = [sf.mask(frame, methods, seed=seed).table.frame for seed in (7, 7, 8, None, None)]
    assert runs[0].equals(runs[1])
    # Two runs are equal with a probability below 2^-100.
    assert not any(one.equals(other) for one, other in ((runs[0], runs[2]), (runs[0], runs[3]), (runs[3], runs[4])))


def test_the_result_says_that_nothing_is_guaranteed() -> None:
    found = sf.mask(PEOPLE, EVERYTHING, seed=12345)
    assert "no guarantee" in found.note
    assert "no differential privacy" in found.note
    told = json.dumps(found.to_dict())
    assert found.to_dict()["guarantees"] == []
    assert found.assessment is None
    assert "12345" not in told, "whoever knows the seed can undo it"
    assert found.to_dict()["seeded"] is True
    assert "anyone who knows it can undo" in found.note
    assert sf.mask(PEOPLE, EVERYTHING).to_dict()["seeded"] is False
    assert [one["method"] for one in found.to_dict()["methods"]] == [
        "post-randomisation", "rank swapping", "correlated noise", "top and bottom coding"
    ]  # fmt: skip


def test_methods_are_applied_in_their_order() -> None:
    found = sf.mask(PEOPLE, [NoiseAddition("age", scale=50), TopBottomCode("age", low=25, high=55)]).table.frame["age"]
    assert set(found.drop_nulls()) <= set(range(25, 56))


def test_no_rows_are_no_trouble() -> None:
    for method in (
        Pram("sex"),
        RankSwap("age"),
        NoiseAddition("age"),
        TopBottomCode("age", high=3),
    ):
        assert sf.mask(PEOPLE.clear(), [method]).table.rows == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pram("sex", keep=1.5), "the probability to keep a value must be a number from 0 to 1, got 1.5"),
        (lambda: Pram("sex", keep="most"), "must be a number from 0 to 1, got 'most'"),
        (lambda: RankSwap("age", percent=-1), "the percentage of rank swapping must be a number from 0 to 100"),
        (lambda: NoiseAddition("age", scale=-1), "the scale of noise must be a finite number of at least 0, got -1"),
        (lambda: NoiseAddition("age", scale=math.nan), "the scale of noise must be a finite number"),
        (lambda: NoiseAddition("age", correlated=True), r"correlated noise needs several columns, got only 'age'"),
        (lambda: TopBottomCode("age"), "top and bottom coding of column 'age' needs a bound"),
        (lambda: sf.mask(PEOPLE, []), "no method is given"),
        (lambda: sf.mask(PEOPLE, Pram("sex")), "the methods must be a list"),
        (lambda: sf.mask(PEOPLE, ["noise"]), "the methods must be a list"),
        (lambda: sf.mask(PEOPLE, [Pram("gender")]), "there is no column 'gender'"),
        (lambda: sf.mask(PEOPLE, [Pram("sex")], seed=-1), "the seed must be a whole number of at least 0, got -1"),
        (lambda: sf.mask(PEOPLE, [Pram("sex")], seed="x"), "the seed must be a whole number of at least 0, got 'x'"),
        (lambda: sf.mask(PEOPLE, [RankSwap("sex")]), r"column 'sex' holds category values.*use Pram"),
        (lambda: sf.mask(PEOPLE, [NoiseAddition("sex")]), "column 'sex' does not hold numbers"),
        (lambda: sf.mask(PEOPLE, [NoiseAddition("born")]), "column 'born' does not hold numbers"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("sex", high=3)]), "column 'sex' holds neither numbers nor dates"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("age", high="old")]), "must be a whole number in its range"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("age", high=1.5)]), "must be a whole number in its range"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("age", high=2**70)]), "must be a whole number in its range"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("born", high=3)]), "must be a date in its range, got 3"),
        (lambda: sf.mask(PEOPLE, [TopBottomCode("age", low=9, high=3)]), "lower bound of column 'age' is above"),
        (
            lambda: sf.mask(pl.DataFrame({"x": [1.0, math.inf]}), [NoiseAddition("x")]),
            "infinite numbers have no standard deviation",
        ),
        (
            lambda: sf.mask(PEOPLE.head(1), [NoiseAddition(["age", "income"], correlated=True)]),
            "correlated noise needs at least two rows",
        ),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        make()

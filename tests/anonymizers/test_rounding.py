"""The ends of a range are readable steps and not somebody's values, and whatever is written is read back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers import Output
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members, publish, tell_apart
from sfumato.anonymizers.rounding import range_texts
from sfumato.engines import reduce
from sfumato.measures.loss.generalised import coverage
from sfumato.measures.loss.universe import Universe, universe


def line(values: Any, column: sf.Column | None = None, dtype: Any = None) -> Universe:
    frame = pl.DataFrame({"q": pl.Series(values, dtype=dtype)})
    return universe(sf.Table(frame, sf.Schema([column]) if column else None).encode(["q"]).domains[0])


def written(values: Any, *, tight: bool = False, column: sf.Column | None = None, dtype: Any = None) -> str:
    """What is written of all of these values."""
    of = line(values, column, dtype)
    last = len(of) - 1 - (of.missing is not None)
    return range_texts(of, np.array([0]), np.array([last]), tight=tight)[0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([20, 29], "20-29"),
        ([21, 28], "20-29"),
        ([23, 41], "20-44"),
        ([61, 97], "60-99"),
        ([3, 5], "3-5"),
        ([0, 17], "0-19"),
        ([-13, 22], "[-15, 24]"),
        ([1_017, 48_233], "0-49999"),
        ([1961, 1978], "1960-1979"),
        ([5.31, 6.87], "[5.2, 7.0]"),
        ([-0.37, 0.52], "[-0.4, 0.6]"),
        ([5.31, 5.34], "[5.31, 5.34]"),
        ([1e-9, 7e-9], "[0.000000001, 0.000000007]"),
        ([0.1234567891234, 0.9876543219876], "[0, 1]"),
    ],
)
def test_numbers_end_at_round_ones(values: list[float], text: str) -> None:
    assert written(values) == text


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ("1961-03-04", "1969-05-17", "1960s"),
        ("1961-03-04", "1978-05-17", "1960-1979"),
        ("1980-02-04", "1980-11-17", "1980"),
        ("1980-03-04", "1980-05-17", "1980-03 to 1980-05"),
        ("2023-06-02", "2023-06-28", "2023-06"),
        ("2023-06-02", "2023-06-04", "2023-06-02 to 2023-06-04"),
        ("2023-06-02", "2023-06-14", "2023-06-01 to 2023-06-15"),
        ("1980-05-03", "1983-04-20", "1980-1983"),
    ],
)
def test_dates_end_where_months_years_and_decades_do(first: str, last: str, text: str) -> None:
    days = [dt.date.fromisoformat(one) for one in (first, last)]
    assert written(days) == text
    midnights = [dt.datetime.combine(day, dt.time()) for day in days]
    assert written(midnights) == text  # pandas has no other dates
    assert written(days, tight=True) == (f"{first} to {last}")


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ("2023-06-04 13:07", "2023-06-04 15:48", "2023-06-04 13:00 to 15:59"),
        ("2023-06-04 00:17", "2023-06-04 22:48", "2023-06-04"),
        ("2023-06-04 13:07", "2023-06-05 01:48", "2023-06-04 12:00 to 2023-06-05 02:59"),
        ("2023-06-04 13:07", "2023-06-27 01:48", "2023-06"),
        ("2023-06-04 13:07", "2023-06-06 21:48", "2023-06-04 to 2023-06-06"),
        ("2023-06-04 13:07:11", "2023-06-04 13:07:13", "2023-06-04 13:07:11 to 13:07:13"),
        ("2023-06-04 13:07:01", "2023-06-04 13:07:51", "2023-06-04 13:07:00 to 13:07:59"),
        ("2023-06-04 13:07:01.123456", "2023-06-04 13:07:01.123459", "2023-06-04 13:07:01.123455 to 13:07:01.123459"),
    ],
)
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_end_where_hours_and_days_do(first: str, last: str, text: str, unit: Any) -> None:
    moments = [dt.datetime.fromisoformat(one) for one in (first, last)]
    assert written(moments, dtype=pl.Datetime(unit)) == text


def test_times_with_a_zone_say_so() -> None:
    moments = [dt.datetime(2023, 6, 4, 13, 7), dt.datetime(2023, 6, 28, 13, 7)]
    zoned = pl.Series(moments).dt.replace_time_zone("Europe/Berlin")
    assert written(zoned) == "[2023-06-01 00:00+00:00, 2023-07-01 00:00+00:00)"


def test_public_bounds_are_not_crossed() -> None:
    assert written([21, 88], column=sf.Column(name="q", bounds=(18, 90))) == "18-90"
    assert written([18, 90], column=sf.Column(name="q", bounds=(18, 90))) == "18-90"
    assert written([0.43, 9.87], column=sf.Column(name="q", bounds=(0.4, 9.9))) == "[0.4, 9.9]"


def test_a_range_named_like_another_group_of_the_hierarchy_has_brackets() -> None:
    tree = sf.Hierarchy.tree([(20, "20-29"), (21, "20-29"), (28, "rest"), (29, "20-29"), (30, "rest")])
    column = sf.Column(name="q", kind="number", hierarchy=tree)
    of = line([20, 21, 28, 29, 30], column)
    assert range_texts(of, np.array([0, 2]), np.array([3, 4])) == ["[20, 29]", "28-30"]
    decades = sf.Column(name="q", kind="date", hierarchy=sf.Hierarchy.dates(["year", "decade"]))
    assert written([dt.date(1961, 1, 4), dt.date(1969, 3, 3)], column=decades) == "1960s"


NUMBERS = st.one_of(
    st.lists(st.integers(-300, 2_000), min_size=2, max_size=12, unique=True),
    st.lists(st.integers(-(2**60), 2**60), min_size=2, max_size=12, unique=True),
    st.lists(st.integers(0, 10**6).map(lambda x: x / 100), min_size=2, max_size=12, unique=True),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=12, unique=True),
)
DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)) | st.dates(dt.date(1899, 1, 1), dt.date(2030, 12, 31))
TIMES = st.one_of(
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2020, 3, 31)),
    st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2020, 3, 31)).map(lambda one: one.replace(microsecond=0)),
    st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 3)).map(
        lambda one: one.replace(microsecond=0, second=0)
    ),
)
LINES = st.one_of(
    NUMBERS,
    st.lists(DAYS, min_size=2, max_size=12, unique=True),
    st.lists(TIMES, min_size=2, max_size=12, unique=True),
)


@given(values=LINES, tight=st.booleans(), missing=st.booleans(), data=st.data())
def test_whatever_is_written_is_read_back(values: list[Any], tight: bool, missing: bool, data: st.DataObject) -> None:
    dtype = pl.Datetime("us") if isinstance(values[0], dt.datetime) else None
    of = line([*values, None] if missing else values, dtype=dtype)
    known = len(of) - missing
    ends = data.draw(st.lists(st.tuples(st.integers(0, known - 1), st.integers(0, known - 1)), min_size=1, max_size=5))
    first, last = np.array([sorted(pair) for pair in ends]).T
    texts = range_texts(of, first, last, tight=tight)
    read = coverage(of, pl.Series(texts))
    assert not read.everything.any()
    for at, (low, high) in enumerate(zip(first, last, strict=True)):
        covered = [place for place in range(len(of)) if read.covers(np.array([at]), np.array([place]))[0]]
        assert covered == list(range(covered[0], covered[-1] + 1))
        assert missing not in covered or covered[-1] < known
        assert covered[0] <= low
        assert covered[-1] >= high
        if tight:
            assert covered == list(range(low, high + 1))
            assert read.exact[at] == (low == high)
        elif low == high:
            assert covered == [low]


@given(low=st.integers(0, 5_000), width=st.integers(11, 2_000))
def test_a_range_is_not_widened_by_much_and_no_end_is_finer_than_a_tenth_of_it(low: int, width: int) -> None:
    text = written([low, low + width - 1])
    first, last = map(int, text.split("-"))
    assert first <= low
    assert last >= low + width - 1
    assert last - first + 1 <= 2 * width
    step = next(step for step in (1000, 500, 200, 100, 50, 20, 10, 5, 1) if not (first % step or (last + 1) % step))
    assert step >= width / 10


def test_classes_that_rounding_merges_keep_exact_ends_if_a_guarantee_would_break() -> None:
    # The first class holds only flu; merged with the second, the ulcer shows up far below its share.
    rows = [(21, "flu"), (38, "flu")] * 5 + [(22, "flu"), (37, "ulcer")] + [(60, "ulcer"), (68, "ulcer")] * 5
    table = sf.Table(pl.DataFrame(rows, schema=["age", "sick"], orient="row"))
    groups = np.array([0, 1, 1, 0, 2, 2])  # of 21, 22, 37, 38, 60, 68
    for guarantee, expected, exact in [
        (sf.measures.DeltaDisclosure(1.0), ["21-38", "22-37", "60-69"], 2),
        (sf.measures.DeltaDisclosure(3.0), ["20-39", "20-39", "60-69"], 0),
        (sf.KAnonymity(2), ["20-39", "20-39", "60-69"], 0),
    ]:
        problem = Problem.of(reduce(table, ["age", "sick"]), ["age"], ["sick"], [guarantee])
        members = Members.of(problem, groups)
        published, number = tell_apart(problem, members, publish(problem, members, Output.INTERVAL))
        assert (published[0].to_list(), number) == (expected, exact)


def test_exact_ends_are_asked_for_in_one_word() -> None:
    frame = pl.DataFrame({"age": [21, 28, 33, 38]})
    assert sf.anonymize(frame, "k=4", qi=["age"]).table.frame["age"].to_list() == ["20-39"] * 4
    exact = sf.anonymize(frame, "k=4", qi=["age"], exact_ends=True)
    assert exact.table.frame["age"].to_list() == ["21-38"] * 4
    assert exact.parameters["output"] == "tight"
    with pytest.raises(sf.errors.OptionError, match="exact ends need intervals"):
        sf.anonymize(frame, "k=4", method="lattice", qi=["age"], exact_ends=True)


def test_what_a_text_file_makes_of_ranges_is_read_back(tmp_path: Path) -> None:
    """All years read as numbers, all days as dates: they are still years and days."""
    days = [dt.date(1980 + at // 4, 1 + at % 4 * 3, 1 + at) for at in range(16)]
    times = [dt.datetime(2023, 6, 1 + at // 4, at % 4 * 7, at) for at in range(16)]
    frame = pl.DataFrame({"born": days, "admitted": times, "age": [20 + at for at in range(16)]})
    release = sf.anonymize(frame, "k=4", qi=["born", "admitted", "age"], to=tmp_path / "release.csv")
    # The rows of a release are in no order; the classes, and so what is lost, are the same in any.
    released = pl.read_csv(tmp_path / "release.csv", try_parse_dates=True)
    assert released["born"].dtype == pl.Int64
    assert released["admitted"].dtype == pl.Date
    assert sorted(released["born"].unique()) == [1980, 1981, 1982, 1983]
    order = released.sort("age")
    assert sf.loss(frame, order, quasi=["born", "admitted", "age"]).gcp == pytest.approx(release.loss.gcp)

"""Columns of synthetic tables: values come back as they were, and what is bought is found."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.data.io.source import File
from sfumato.data.schema import Kind
from sfumato.errors import InputError, SchemaError, SfumatoError
from sfumato.learners.estimators.features import Feature
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.tables.columns.description import Described, Description, selections, shares
from sfumato.synthesizers.tables.columns.domain import MOST_CODES, Coding, Computed, Domain
from sfumato.synthesizers.tables.columns.kinds import Values

_MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 2, 12)).map(lambda one: one.replace(microsecond=0))
_DAY_SECONDS = 86_400.0
_START = datetime(2020, 1, 1, tzinfo=None)
_FROM = (_START - datetime(1970, 1, 1)).total_seconds()

KINDS: dict[str, tuple[pl.DataType, dict[str, Any], Any]] = {
    "whole": (pl.Int32(), {"bounds": (-50, 200)}, st.integers(-50, 200)),
    "small whole": (pl.UInt8(), {"bounds": (0, 255)}, st.integers(0, 255)),
    "hundredths": (pl.Float64(), {"bounds": (-5, 5), "step": 0.01}, st.integers(-500, 500).map(lambda one: one / 100)),
    "quarters": (pl.Float64(), {"bounds": (0, 9), "step": 0.25}, st.integers(0, 36).map(lambda one: one / 4)),
    "fives": (pl.Int64(), {"bounds": (0, 95), "step": 5}, st.integers(0, 19).map(lambda one: 5 * one)),
    "narrow float": (
        pl.Float32(), {"bounds": (0, 1), "step": 0.1}, st.integers(0, 10).map(lambda one: float(np.float32(one / 10)))
    ),
    "decimal": (
        pl.Decimal(12, 2), {"bounds": (-9, 99)}, st.integers(-900, 9900).map(lambda one: Decimal(one) / 100)
    ),
    "date": (pl.Date(), {}, st.dates(date(1980, 1, 1), date(2040, 1, 1))),
    "moment": (pl.Datetime("ms"), {}, _MOMENTS),
    "quarter of an hour": (
        pl.Datetime("us"), {"step": "15m"},
        st.integers(0, 300).map(lambda one: datetime(2020, 1, 1) + timedelta(minutes=15 * one)),
    ),
    "time": (pl.Time(), {}, st.times().map(lambda one: one.replace(microsecond=0))),
    "span": (pl.Duration("ms"), {"bounds": (-60, 86_400)}, st.integers(-60, 86_400).map(lambda one: timedelta(0, one))),
    "truth": (pl.Boolean(), {}, st.booleans()),
    "code": (pl.String(), {"domain": ("01234", "1234", "1.50", "1.5", "é")}, st.sampled_from(["01234", "1.50", "1.5"])),
    "grade": (pl.Enum(["low", "mid", "high"]), {}, st.sampled_from(["low", "mid", "high"])),
    "label": (pl.Categorical(), {"domain": ("a", "b")}, st.sampled_from(["a", "b"])),
    "numbered": (pl.Int16(), {"domain": (3, 1, 2)}, st.sampled_from([1, 2, 3])),
}  # fmt: skip


def described(values: pl.Series, **declared: Any) -> Described:
    schema = sf.Schema([sf.Column(name=values.name, **declared)])
    return Description.of(values.to_frame(), schema).described[0]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data())
def test_values_within_bounds_and_steps_come_back_as_they_were(kind: str, data: Any) -> None:
    dtype, declared, values = KINDS[kind]
    given_ = pl.Series("x", data.draw(st.lists(st.none() | values, min_size=1, max_size=8)), dtype=dtype)
    one = described(given_, **declared)
    if one.wants_bounds:  # years, as they would be found
        scale = 1.0 if one.values is Values.DATE else _DAY_SECONDS
        days = (0.0, 40_000.0) if one.values is Values.DATE else (18_262.0, 18_627.0)
        one = Described("x", one.values, one.dtype, (days[0] * scale, days[1] * scale), step=one.step)
    coding = one.coding()
    if kind == "moment":  # a year in seconds has too many steps: quarters of an hour at most
        coding = Coding.of(Feature("x", bounds=(_FROM, _FROM + 130_000)), dtype)
    again = Coding.from_dict(json.loads(json.dumps(coding.to_dict())))
    back = again.decode(coding.encode(given_))
    assert back.dtype == dtype
    assert back.to_list() == given_.to_list()


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.lists(st.floats(allow_nan=False), min_size=1, max_size=9))
def test_other_numbers_are_clipped_and_off_by_half_a_step_at_most(
    low: float, width: float, given_: list[float]
) -> None:
    coding = Coding.of(Feature("x", bounds=(low, low + width)), pl.Float64())
    back = coding.decode(coding.encode(pl.Series("x", given_))).to_numpy()
    assert coding.axis.size - 1 <= MOST_CODES
    clipped = np.clip(given_, low, low + width)
    assert (np.abs(back - clipped) <= coding.step * 1.001 + 1e-6 * coding.step).all()
    assert (back >= low - 1e-6 * coding.step).all()
    assert (back <= low + width + 1e-6 * coding.step).all()


def test_a_wide_column_of_whole_numbers_has_round_values() -> None:
    coding = Coding.of(Feature("pay", bounds=(0.0, 2.0**21)), pl.Int64())
    assert coding.step == 20.0
    assert coding.decode(coding.encode(pl.Series("pay", [0, 7688, 10**9]))).to_list() == [0, 7680, 2_097_140]


def test_times_in_another_zone_come_back_in_it() -> None:
    dtype = pl.Datetime("us", "Europe/Berlin")
    at = pl.Series("at", [datetime(2020, 7, 1, 12), None]).cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin")
    seconds = 1_593_597_600.0  # noon in Berlin
    coding = Coding.of(Feature("at", bounds=(seconds - 100, seconds + 100)), dtype)
    assert coding.decode(coding.encode(at)).to_list() == at.to_list()


def test_a_constant_column_has_one_value() -> None:
    one = described(pl.Series("x", [5, 5]), bounds=(5, 5)).coding()
    assert one.axis.size == 2
    assert one.decode(one.encode(pl.Series("x", [5, None, 7]))).to_list() == [5, None, 5]


@pytest.mark.parametrize("name", ["", " ", "a,b", 'say "a"', "zeile\numbruch", "ß名", "x" * 300])
def test_strange_names_are_names(name: str) -> None:
    frame = pl.DataFrame({name: ["a", "b"] * 20, "y": [1, 2] * 20})
    if not name:
        with pytest.raises(SchemaError, match="at least one character"):
            Description.of(frame)
        return
    assert [one.name for one in Description.of(frame).described] == [name, "y"]


def estimate(frame: Any, schema: sf.Schema | None = None, noise: float = 1.0) -> tuple[Coding, ...]:
    one = Description.of(frame, schema)
    sums = NoisySums(shares(one.described, 1.0), noise, Source(insecure_seed=1))
    return one.estimate(selections(one.described, 10.0, 1e-5), sums, Source(insecure_seed=2))


def test_bounds_and_decimals_are_found() -> None:
    rng = np.random.default_rng(0)
    rows = 4000
    frame = pl.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "price": np.round(rng.uniform(1, 60, rows), 2),
            "loss": -rng.uniform(5, 7, rows),
            "born": [date(1950 + int(one), 3, 5) for one in rng.integers(0, 40, rows)],
            "seen": [datetime(2021, 3, 5, 10, int(one)) for one in rng.integers(0, 60, rows)],
            "count": rng.integers(0, 3, rows).astype(np.float64),
        }
    )
    age, price, loss, born, seen, count = estimate(frame)
    assert age.feature.bounds == (16.0, 127.0)
    assert (price.feature.bounds, price.step) == ((1.0, 63.99), 0.01)
    assert loss.feature.bounds == (-8.0, -4.0)
    assert loss.step == 5e-5
    assert [one.year for one in born.decode(np.array([0, born.axis.size - 2]))] == [1950, 1989]
    assert (seen.decode(np.array([0]))[0], seen.step) == (datetime(2021, 1, 1), 300.0)
    assert (count.feature.bounds, count.step) == ((0.0, 3.0), 1.0)
    assert count.decode(np.array([2, 4])).to_list() == [2.0, None]  # floats stay floats


def test_a_single_odd_value_changes_no_kind() -> None:
    whole = [float(one % 7) for one in range(3000)]
    for odd in (3.5, 1e300, -1e300, math.inf, math.nan, None):
        (coding,) = estimate(pl.DataFrame({"x": [*whole, odd]}))
        assert (coding.feature.bounds, coding.step) == ((0.0, 7.0), 1.0)


def test_the_cells_of_a_text_file_do_not_decide_a_kind(tmp_path: Path) -> None:
    rows = [f"{one % 50},2020-01-{1 + one % 28:02},0{one % 3}1,{one % 4}.5" for one in range(3000)]
    schema = sf.Schema(
        [
            sf.Column(name="n", kind="number"),
            sf.Column(name="day", kind="date"),
            sf.Column(name="zip", kind="category"),
            sf.Column(name="half", kind="number"),
        ]
    )
    found = []
    for odd in ("7,2020-01-05,001,0.5", "3.5,2020-01-05,001,0.5", "x,soon,9,high", "7,2020-01-05 08:00:00,1,"):
        path = tmp_path / "a.csv"
        path.write_text("\n".join(["n,day,zip,half", *rows, odd]))
        codings = estimate(sf.read(path, schema))
        found.append([one.to_dict() for one in codings])
        back = Domain(codings).decode([np.array([0, one.axis.size - 1]) for one in codings])
        assert back.dtypes == [pl.Int64, pl.Date, pl.String, pl.Float64]
        assert back["zip"][0] == "001"
    assert all(one == found[0] for one in found)


def test_moments_of_a_text_file_have_the_declared_step(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("at\n" + "\n".join(f"2020-01-{1 + one % 28:02} {one % 24:02}:30:00" for one in range(3000)))
    (coding,) = estimate(sf.read(path, sf.Schema([sf.Column(name="at", kind="date", step="30m")])))
    back = coding.decode(coding.encode(pl.Series("at", ["2020-02-03 04:30:00", "2020-02-03T04:44", "?"])))
    assert back.to_list() == [datetime(2020, 2, 3, 4, 30), datetime(2020, 2, 3, 4, 30), None]


def test_a_column_of_missing_values_comes_back_missing() -> None:
    frame = pl.DataFrame(
        {"number": [None] * 2000, "text": [None] * 2000, "null": [None] * 2000},
        schema={"number": pl.Float64, "text": pl.String, "null": pl.Null},
    )
    codings = estimate(frame)
    rows = Domain(codings).decode([one.encode(frame[one.name]) for one in codings])
    assert rows.null_count().row(0) == (2000, 2000, 2000)


def test_too_few_numbers_for_bounds_are_one_sentence() -> None:
    with pytest.raises(SfumatoError, match="column 'x': no bounds were found above the noise"):
        estimate(pl.DataFrame({"x": [1.5] * 5}), noise=100.0)


def test_one_record_is_in_one_bin_of_each_histogram() -> None:
    frame = pl.DataFrame({"a": [1.5, 3.0], "b": [7, None], "c": [date(2020, 1, 1), None]})
    one = Description.of(frame)
    for values, column in zip(one.columns.values, one.described, strict=True):
        for at in (0, 1):
            for histogram in column.histograms(values.slice(at, 1)):
                assert histogram.sum() <= 1
        whole = [part.tolist() for part in column.histograms(values)]
        counted = [part.tolist() for part in column.histograms(values, np.ones(2))]
        assert whole == counted


@pytest.mark.parametrize(
    ("dtype", "declared", "says"),
    [
        (pl.Int64(), {"step": 0.5}, "column 'x' holds whole numbers, but its step is 0.5"),
        (pl.Int64(), {"step": "1d"}, "the step of column 'x', a whole, must be a number"),
        (pl.Date(), {"step": 2}, "must be a text such as 1d, 15m or 1s"),
        (pl.Int64(), {"step": -1}, "must be above 0"),
        (pl.Int64(), {"step": "soon"}, "must be a number, or a text such as 1d"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(dtype: pl.DataType, declared: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        described(pl.Series("x", [], dtype=dtype).extend_constant(None, 2), **declared)


def test_bounds_without_a_value_between_them_are_refused() -> None:
    with pytest.raises(InputError, match="no multiple of it lies between its bounds"):
        described(pl.Series("x", [1]), bounds=(0.2, 0.4)).coding()


def test_a_step_survives_the_file_of_a_schema() -> None:
    schema = sf.Schema([sf.Column(name="x", bounds=(0, 1), step=0.01), sf.Column(name="at", kind="date", step="15m")])
    assert sf.Schema.from_toml(schema.to_toml()) == schema


def test_pandas_types_come_back() -> None:
    frame = pd.DataFrame({"n": pd.array([1, None, 3] * 300, dtype="Int64"), "t": pd.to_datetime(["2020-01-01"] * 900)})
    codings = estimate(frame)
    assert [one.type for one in codings] == ["Int64", "Datetime(us)"]


def test_a_forged_domain_is_refused() -> None:
    good = Domain(
        (
            Coding.of(Feature("a", bounds=(0.0, 3.0)), pl.Int64()),
            Coding.of(Feature("s", domain=("f", "m")), pl.String()),
        ),
        1,
        (Computed(Coding.of(Feature("b", domain=("x", "y")), pl.String()), "s", (0, 1, 2)),),
        ("b", "a", "s"),
    )
    plain = json.loads(json.dumps(good.to_dict()))
    assert Domain.from_dict(plain) == good
    assert good.decode([np.array([1, 4]), np.array([1, 2])]).rows() == [("y", 1, "m"), (None, None, None)]
    for change in (
        {"label": 2}, {"label": "a"}, {"columns": []}, {"columns": 3}, {"order": ["a"]}, {"computed": [{}]},
        *({"columns": [{**plain["columns"][0], **one}, plain["columns"][1]]} for one in (
            {"step": 0}, {"step": 1e-9}, {"step": "x"}, {"values": "x"}, {"bounds": [1]}, {"bounds": [3, 0]},
            {"bounds": [0.1, 0.2]}, {"domain": ["a", "a"]}, {"type": "Object"}, {"type": "Decimal(99, 1)"},
            {"name": "s"}, {"bounds": [math.nan, 1]}, {"bounds": [1e300, 1e300]},
        )),
        *({"computed": [{**plain["computed"][0], **one}]} for one in (
            {"lookup": [0]}, {"lookup": [0, 9, 9]}, {"source": "z"},
        )),
    ):  # fmt: skip
        with pytest.raises(InputError):
            Domain.from_dict({**plain, **change})


def test_bounds_of_many_columns_whose_values_spread_over_magnitudes_are_found() -> None:
    # Ten magnitudes with 300 of 3,000 rows each, 22 columns: no bin stands out alone from the noise.
    rng = np.random.default_rng(0)
    values = {f"n{at}": np.floor(2 ** rng.uniform(0, 10, 3000)) for at in range(22)}
    schema = sf.Schema([sf.Column(name=name, kind="number") for name in values])
    release = sf.synthesize(pl.DataFrame(values), 1.0, method="independent", rows=10, schema=schema, insecure_seed=5)
    ends = [coding.feature.bounds for coding in release.domain.codings]
    assert all(low <= 2 and 511 <= high <= 4096 for low, high in ends)
    assert not release.note


def test_the_split_of_adult_is_not_made_up() -> None:
    assert "split" not in sf.synthesize("adult", 1.0, method="independent", rows=5).table.schema.names


def test_a_parquet_file_is_learned_column_by_column_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": rng.integers(0, 90, 300),
            "pay": rng.exponential(900, 300).round(2),
            "sex": rng.choice(["f", "m"], 300),
            "day": [date(2020, 1, 1 + int(one)) for one in rng.integers(0, 28, 300)],
            "well": rng.random(300) < 0.5,
            "none": pl.Series([None] * 300, dtype=pl.String),
        }
    ).with_columns(pl.col("sex").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "people.parquet")
    schema = sf.Schema([sf.Column(name="age", bounds=(0, 99)), sf.Column(name="none", domain=("a", "b"))])
    read, asked = File.read, []

    def recorded(self: File, names: Any = None) -> pl.DataFrame:
        asked.append(names)
        return read(self, names)

    monkeypatch.setattr(File, "read", recorded)
    options: dict[str, Any] = {"schema": schema, "method": "tree", "rows": 40, "delta": 1e-4, "insecure_seed": 1}
    release = sf.synthesize(tmp_path / "people.parquet", 8, target="sex", ledger=False, **options)
    assert asked
    assert {len(names) for names in asked} == {1}
    here = sf.synthesize(frame, 8, target="sex", ledger=False, **options)
    assert release.table.to_polars().equals(here.table.to_polars())
    assert release.plan == here.plan
    assert release.artifact.scans
    frame.head(0).write_parquet(tmp_path / "empty.parquet")
    with pytest.raises(InputError, match="no rows"):
        sf.synthesize(tmp_path / "empty.parquet", 8, ledger=False, **options)


@pytest.mark.parametrize(
    ("values", "dtype", "says"),
    [
        (Values.WHOLE, pl.Int64(), "Declare the bounds in the schema"),
        (Values.DATE, pl.Date(), "Declare the bounds in the schema, as two dates"),
        (Values.DATE, None, "Declare the bounds in the schema, as two dates"),
    ],
)
def test_bounds_that_are_lost_in_the_noise_come_with_a_remedy_that_works(values: Values, dtype: Any, says: str) -> None:
    one = Described("since", values, dtype)
    with pytest.raises(SfumatoError, match="no bounds were found") as caught:
        one.estimated([np.zeros(len(one.edges))], 10.0)
    assert (caught.value.hint or "").endswith(says)


@pytest.mark.parametrize("kind", ["text file", "date", "moment"])
def test_the_bounds_of_dates_are_two_dates(kind: str, tmp_path: Path) -> None:
    """They bound the days of a text file, of dates and of times on days, and the release verifies with them."""
    days = [date(2023, 1, 1 + at % 28) for at in range(200)]
    frame = pl.DataFrame({"since": days, "sex": ["f", "m"] * 100})
    if kind == "moment":
        frame = frame.with_columns(pl.col("since").cast(pl.Datetime("ms")) + pl.duration(hours=23))
    given: Any = frame
    if kind == "text file":
        given = tmp_path / "people.csv"
        frame.write_csv(given)
    columns = {"since": {"bounds": ["2023-01-05", "2023-01-20"]}, "sex": {"domain": ["f", "m"]}}
    schema = sf.Schema.of({"columns": columns})
    release = sf.synthesize(
        given, 9, method="independent", schema=schema, rows=100, delta=1e-4, declared_only=True, ledger=False
    )
    sf.save(release, tmp_path / "out")
    assert sf.verify(tmp_path / "out").ok
    drawn = release.table.to_polars()["since"].drop_nulls()
    assert len(drawn) > 50
    assert drawn.cast(pl.Date).is_between(date(2023, 1, 5), date(2023, 1, 20)).all()
    again = sf.load(tmp_path / "out").schema["since"]
    assert (again.dates, again.bounds, again.kind.value) == ((date(2023, 1, 5), date(2023, 1, 20)), None, "date")


def test_dates_do_not_bound_numbers() -> None:
    frame = pl.DataFrame({"pay": [1.5, 2.5] * 50})
    schema = sf.Schema([sf.Column(name="pay", bounds=("2023-01-05", "2023-01-20"))])
    with pytest.raises(SchemaError, match="the bounds of column 'pay' are dates, but its values are none"):
        sf.synthesize(sf.Table(frame, schema), 9, ledger=False)


def test_the_bounds_of_dates_of_a_frame_are_declared_in_days() -> None:
    frame = pl.DataFrame({"since": [date(2020, 1, 1 + at % 28) for at in range(200)]})
    schema = sf.Schema([sf.Column(name="since", bounds=(18_000, 19_000))])
    release = sf.synthesize(
        sf.Table(frame, schema), 9, method="independent", rows=20, delta=1e-4, declared_only=True, ledger=False
    )
    drawn = release.table.to_polars()["since"].drop_nulls()
    assert drawn.dtype == pl.Date
    assert drawn.is_between(date(2019, 4, 14), date(2022, 1, 8)).all()


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv"])
def test_numbers_that_are_declared_as_categories_are_drawn_as_they_were(kind: str, tmp_path: Path) -> None:
    rows = pl.DataFrame({"age": [20, 30, 40, 50] * 100, "ill": [0, 1] * 200, "rate": [0.5, 1.5] * 200})
    data: Any = rows
    if kind != "frame":
        data = tmp_path / f"rows.{kind}"
        sf.write(rows, data)
    kinds = {"age": Kind.NUMBER, "ill": Kind.CATEGORY, "rate": Kind.CATEGORY}
    schema = sf.Schema(sf.Column(name=name, kind=kind) for name, kind in kinds.items())
    made = sf.synthesize(
        data, 20, target="ill", schema=schema, rows=50, insecure_seed=1, ledger=False
    ).table.to_polars()
    assert set(made["ill"].cast(pl.String)) == {"0", "1"}
    assert set(made["rate"].cast(pl.String)) == {"0.5", "1.5"}
    if kind != "csv":
        assert made.schema == rows.schema

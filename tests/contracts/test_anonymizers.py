"""What every anonymizer must do, whatever it publishes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers import Anonymizer, Output, Partitioner
from sfumato.anonymizers.anonymize import METHODS
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.measures.loss.generalised import pair
from tests import bruteforce as brute
from tests.anonymizers.problems import GUARANTEES, TREE
from tests.effort import THOROUGH, effort

SCHEMA = sf.Schema(
    [
        sf.Column(name="name", role="identifier"),
        sf.Column(name="number", role="quasi", kind="number"),
        sf.Column(name="note", role="kept", kind="text"),
        sf.Column(name="born", role="quasi", kind="date"),
        sf.Column(name="ordinal", role="quasi", kind="ordinal", domain=("low", "mid", "high", "top")),
        sf.Column(name="tree", role="quasi", kind="category", hierarchy=TREE),
        sf.Column(name="plain", role="quasi", kind="category"),
        sf.Column(name="disease", role="sensitive", kind="category"),
        sf.Column(name="salary", role="sensitive", kind="number"),
    ]
)
TYPES = {
    "name": pl.String,
    "number": pl.Float64,
    "note": pl.String,
    "born": pl.Date,
    "ordinal": pl.String,
    "tree": pl.String,
    "plain": pl.String,
    "disease": pl.String,
    "salary": pl.Int64,
}
CELLS = st.tuples(
    st.none() | st.sampled_from([0.0, 1.0, 2.5, 3.0, 7.0, 40.0]),
    st.none() | st.integers(0, 900).map(lambda days: date(1999, 12, 31) + timedelta(days=days)),
    st.none() | st.sampled_from(["low", "mid", "high", "top"]),
    st.none() | st.sampled_from("abcdef"),
    # Texts that look like what a release is written in.
    st.none() | st.sampled_from(["p", "q", "a, b", "{p, q}", "[1, 2]", 'say "r"', " p", "", "(1"]),
    st.none() | st.sampled_from(["flu", "ulcer", "cancer"]),
    st.sampled_from([10, 20, 50]),
)
HOW: dict[str, Callable[[], Anonymizer]] = {
    "lattice": lambda: sf.Lattice(),
    "lattice that suppresses": lambda: sf.Lattice(suppress=0.3),
    "suppress": lambda: sf.LocalSuppression(suppress=1),
}
PARTITIONERS: dict[str, Callable[..., Anonymizer]] = {
    "mondrian": lambda output: sf.Mondrian(output=output),
    "relaxed mondrian": lambda output: sf.Mondrian(output=output, strict=False),
    "hilbert": lambda output: sf.Hilbert(output=output),
    "rplus": lambda output: sf.RPlus(output=output),
    "microaggregate": lambda output: sf.Microaggregate(output=output),
    "guided": lambda output: sf.Guided(output=output, model=every_third),
}
HOW["guided by all columns"] = lambda: sf.Guided(output="interval", model=every_third, cut_by="all")
HOW["guided without medians"] = lambda: sf.Guided(model=every_third, refine=False, criterion="entropy")
# One module publishes the values of a group, whichever method has made it: each method with some outputs, each output
# with some methods. The promise itself is tried with all of them.
USUAL = list(HOW)
for _place, _name in enumerate(PARTITIONERS):
    for _number, _output in enumerate(Output):
        HOW[f"{_name} {_output}"] = partial(PARTITIONERS[_name], _output)
        if THOROUGH or (_number - _place) % len(Output) < 2:
            USUAL.append(f"{_name} {_output}")


def every_third(frame: Any) -> Any:
    """Answer by the number of the row: every table has one, and more than one answer if it has two rows."""
    return np.arange(len(frame)) % 3


@pytest.fixture(params=USUAL, scope="module")
def method(request: pytest.FixtureRequest) -> Anonymizer:
    return HOW[request.param]()


# Where rows come from matters to a method, and not to what it writes: one output of each is enough.
ONE_OF_EACH = USUAL if THOROUGH else list({HOW[name]().name: name for name in reversed(USUAL)}.values())


@pytest.fixture(params=ONE_OF_EACH, scope="module")
def one_of_each(request: pytest.FixtureRequest) -> Anonymizer:
    return HOW[request.param]()


@pytest.fixture(params=HOW, scope="module")
def any_method(request: pytest.FixtureRequest) -> Anonymizer:
    return HOW[request.param]()


def test_every_method_is_in_the_battery() -> None:
    assert {make().name for make in HOW.values()} == set(METHODS)
    assert {HOW[name]().name for name in USUAL} == {HOW[name]().name for name in ONE_OF_EACH} == set(METHODS)
    assert {getattr(HOW[name](), "output", None) for name in USUAL} >= set(Output)


def frame_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    records = [(f"person {i}", row[0], f"note {i}", *row[1:]) for i, row in enumerate(rows)]
    return pl.DataFrame(records, schema=TYPES, orient="row")


@st.composite
def tables(draw: st.DrawFn) -> sf.Table:
    """A table with some of the quasi-identifiers and one or two sensitive attributes."""
    frame = frame_of(draw(st.lists(CELLS, min_size=1, max_size=40)))
    quasi = draw(st.lists(st.sampled_from(SCHEMA.quasi), min_size=1, max_size=4, unique=True))
    sensitive = draw(st.lists(st.sampled_from(SCHEMA.sensitive), min_size=1, max_size=2, unique=True))
    kept = [name for name in SCHEMA.names if name in ("name", "note", *quasi, *sensitive)]
    return sf.Table(frame.select(kept), sf.Schema(map(SCHEMA.__getitem__, kept)))


def holds(guarantee: sf.Guarantee, released: pl.DataFrame, quasi: tuple[str, ...], sensitive: tuple[str, ...]) -> bool:
    """Whether a guarantee holds by its definition; suppressed rows are in no class."""
    keys = list(released.select(quasi).cast(pl.String).iter_rows())
    kept = [set(key) != {"*"} for key in keys]
    if not any(kept):
        kept = [True] * len(keys)
    tables = [
        [(key, value) for key, value, keep in zip(keys, released[name], kept, strict=True) if keep]
        for name in sensitive
    ]
    if isinstance(guarantee, sf.KAnonymity):
        return brute.k(tables[0]) >= guarantee.k
    if isinstance(guarantee, sf.measures.RecursiveCL):
        l = guarantee.l or min(map(brute.distinct_l, tables))
        return all(brute.recursive_c(rows, l) < guarantee.c for rows in tables)
    return all(_holds(guarantee, rows) for rows in tables)


def _holds(guarantee: sf.Guarantee, rows: list[brute.Row]) -> bool:
    slack = 1e-9
    if isinstance(guarantee, sf.measures.AlphaK):
        chosen = list(guarantee.values or ())
        groups = brute.classes(rows)
        share = max(
            (float(share) for group in groups for v, share in brute.shares(group).items() if not chosen or v in chosen),
            default=0.0,
        )
        return share <= guarantee.alpha + slack and brute.k(rows) >= guarantee.k
    if isinstance(guarantee, sf.LDiversity):
        return brute.distinct_l(rows) >= guarantee.l
    if isinstance(guarantee, sf.measures.EntropyL):
        return brute.entropy_l(rows) >= guarantee.l - slack
    if isinstance(guarantee, sf.TCloseness):
        values = sorted({value for _, value in rows if value is not None})
        values += [None] * any(value is None for _, value in rows)
        ranks = {value: rank / max(len(values) - 1, 1) for rank, value in enumerate(values)}
        emd = brute.line_emd(ranks) if isinstance(values[0], int) else brute.equal_emd
        return brute.t(rows, emd) <= guarantee.t + slack
    if isinstance(guarantee, sf.measures.EnhancedBeta):
        return brute.enhanced_beta(rows) <= guarantee.beta + slack
    if isinstance(guarantee, sf.measures.BetaLikeness):
        return float(brute.basic_beta(rows)) <= guarantee.beta + slack
    assert isinstance(guarantee, sf.measures.DeltaDisclosure)
    return brute.delta(rows, guarantee.absent.value) < guarantee.delta


def may_fail_where_groups_look_alike(guarantee: sf.Guarantee) -> bool:
    """Whether one class of two that keep the guarantee may break it."""
    if isinstance(guarantee, sf.measures.DeltaDisclosure):
        return guarantee.absent == "ignore"
    return isinstance(guarantee, sf.measures.RecursiveCL) and guarantee.l is None


NOTHING = ("no grouping keeps", "no level of the hierarchies keeps", "no suppression of cells")


def released(table: sf.Table, guarantees: list[sf.Guarantee], method: Anonymizer) -> sf.Release | None:
    """Anonymize, or find that it cannot be done."""
    try:
        return sf.anonymize(table, guarantees, method=method)
    except sf.errors.InputError as error:
        alike = "when it is measured again" in error.message and any(map(may_fail_where_groups_look_alike, guarantees))
        if not alike and not error.message.startswith(NOTHING):
            raise
        return None


@settings(max_examples=effort(5, 50))  # of each method, with every output
@given(table=tables(), guarantees=GUARANTEES)
def test_what_it_promises_holds_by_definition(
    any_method: Anonymizer, table: sf.Table, guarantees: list[sf.Guarantee]
) -> None:
    method = any_method
    before = table.frame.clone()
    release = released(table, guarantees, method)
    assert table.frame.equals(before), "the input is never modified"
    # A transformer releases what `anonymize` releases, and refuses what it refuses.
    transformer = type(method)(**method.get_params() | {"guarantees": guarantees})
    if release is None:
        with pytest.raises(sf.errors.InputError):
            transformer.fit_transform(table)
        return
    published = release.aligned.frame
    assert sorted(map(str, release.table.frame.rows())) == sorted(map(str, published.rows()))
    assert transformer.fit_transform(table).frame.drop("name").equals(published)
    assert transformer.transform(table).frame.drop("name").equals(published)
    frame, quasi, sensitive = published, table.schema.quasi, table.schema.sensitive
    for guarantee in guarantees:
        assert holds(guarantee, frame, quasi, sensitive), guarantee
    # No row is lost or moved, nothing but quasi-identifiers changes, and no identifier is left.
    kept = [name for name in table.schema.names if name != "name"]
    assert frame.columns == kept
    assert frame.drop(quasi).equals(before.drop("name", *quasi))
    # What is published covers what it stands for, and can be read back.
    lost = release.loss
    assert 0 <= lost.gcp <= 1
    assert lost.suppressed <= getattr(method, "suppress", 0)
    assert lost.suppressed == release.assessment.suppressed / len(frame)
    if not (isinstance(method, Partitioner) and method.output in ("median", "mean", "medoid")):
        known = sf.Table(table.frame, sf.Schema(transformer.columns))  # with the hierarchies that were made for it
        both = pair(known, frame, quasi) if isinstance(method, Partitioner) else None
        for position, read in enumerate(both.coverages if both else ()):
            assert read.covers(both.released[:, position], both.original[:, position]).all()  # type: ignore[union-attr]


LEVELS = [name for name in HOW if name.endswith(" level")]


@pytest.mark.parametrize("name", LEVELS)
@settings(max_examples=6)
@given(table=tables(), k=st.integers(2, 6))
def test_a_level_is_a_value_or_a_node_of_the_hierarchy(name: str, table: sf.Table, k: int) -> None:
    method = HOW[name]().set_params(guarantees=f"k={k}")
    if table.rows < k:
        return
    published = method.fit_transform(table).frame
    for column in method.columns:
        assert column.hierarchy is not None
        original = table.frame[column.name]
        nodes = {label for path in column.hierarchy.paths(original) for label in path[1:]}
        values = {None, *original.cast(pl.String), *map(text_of, original)}
        for text in set(published[column.name].cast(pl.String)) - values:
            # A node that is called like a value is written as the set of all values of the column under it.
            under = {label for label in nodes & values if text not in nodes}
            assert text in nodes or text == "{*}" or under, (column.name, text)


@settings(max_examples=4)
@given(table=tables(), rows=st.randoms(use_true_random=False), guarantees=GUARANTEES)
def test_other_rows_are_transformed_only_if_they_keep_it_all_by_themselves(
    method: Anonymizer, table: sf.Table, rows: Any, guarantees: list[sf.Guarantee]
) -> None:
    quasi, sensitive, number = table.schema.quasi, table.schema.sensitive, table.rows
    transformer = type(method)(**method.get_params() | {"guarantees": guarantees})
    others = table.frame[[rows.randrange(number) for _ in range(number)]]
    try:
        published = transformer.fit(table).transform(others)
    except sf.errors.InputError:
        return
    for guarantee in guarantees:
        assert holds(guarantee, published, quasi, sensitive), guarantee


PEOPLE = frame_of(
    [
        (30.0, date(2000, 1, 1), "low", "a", "p", "flu", 10),
        (31.0, date(2000, 1, 3), "mid", "a", "q", "ulcer", 20),
        (40.0, date(2001, 1, 1), "high", "d", "p", "flu", 50),
        (None, date(2001, 5, 1), "high", "b", None, "cancer", 10),
        (77.0, date(1999, 5, 1), "top", "c", "p", "flu", 10),
        (30.0, date(2000, 1, 1), "low", "a", "p", "cancer", 20),
    ]
)


def test_pandas_stays_pandas_without_its_index(method: Anonymizer) -> None:
    people = PEOPLE.to_pandas().set_index(pd.Index([7, 1, 1, 4, 0, -2], name="row"))
    before = people.copy(deep=True)
    release = sf.anonymize(people, "k=2", method=method, schema=SCHEMA, keep_order=True).table.frame
    assert isinstance(release, pd.DataFrame)
    assert release.index.equals(pd.RangeIndex(6))
    assert release.index.name is None
    assert list(release.columns) == list(SCHEMA.names)[1:]
    for name in ("note", "disease", "salary"):
        pd.testing.assert_series_equal(release[name], people[name].reset_index(drop=True))
    pd.testing.assert_frame_equal(people, before)


def test_every_kind_of_frame_gives_the_same_release(one_of_each: Anonymizer, tmp_path: Path) -> None:
    import duckdb

    method = one_of_each

    expected = sf.anonymize(PEOPLE, "k=2,l=2", method=method, schema=SCHEMA, keep_order=True).table.frame
    arrow = sf.anonymize(PEOPLE.to_arrow(), "k=2,l=2", method=method, schema=SCHEMA, keep_order=True).table.frame
    assert isinstance(arrow, pa.Table)
    lazy = sf.anonymize(PEOPLE.lazy(), "k=2,l=2", method=method, schema=SCHEMA, keep_order=True).table
    relation = sf.anonymize(
        duckdb.from_arrow(PEOPLE.to_arrow()), "k=2,l=2", method=method, schema=SCHEMA, keep_order=True
    ).table
    parquet = tmp_path / "people.parquet"
    sf.write(PEOPLE, parquet)
    file = sf.anonymize(parquet, "k=2,l=2", method=method, schema=SCHEMA, keep_order=True).table
    for other in (sf.Table(arrow), lazy, relation, file):
        assert list(other.schema.names) == expected.columns
        for name in expected.columns:
            assert other.column(name).to_list() == expected[name].to_list(), name


def test_polars_keeps_the_types_of_other_columns(method: Anonymizer) -> None:
    release = sf.anonymize(PEOPLE, "k=2", method=method, schema=SCHEMA).table.frame
    assert isinstance(release, pl.DataFrame)
    assert {name: release.schema[name] for name in ("note", "disease", "salary")} == {
        "note": pl.String,
        "disease": pl.String,
        "salary": pl.Int64,
    }


@pytest.fixture(scope="module")
def release(method: Anonymizer) -> sf.Release:
    return sf.anonymize(PEOPLE, "k=2,l=2", method=method, schema=SCHEMA)


def test_it_does_the_same_every_time(method: Anonymizer, release: sf.Release) -> None:
    again = sf.anonymize(PEOPLE, "k=2,l=2", method=method, schema=SCHEMA)
    assert again.aligned.frame.equals(release.aligned.frame)
    assert again.to_dict() | {"seconds": 0} == release.to_dict() | {"seconds": 0}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "arrow"])
def test_a_written_release_is_measured_alike(release: sf.Release, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"release.{suffix}"
    release.write(path)
    roles = {"qi": SCHEMA.quasi, "sensitive": SCHEMA.sensitive}
    again = sf.assess(path, **roles).to_dict()
    told = release.assessment.to_dict()
    measured = ("rows", "classes", "suppressed", "k", "l", "alpha", "entropy_l", "t", "basic_beta", "risk")
    assert {key: again[key] for key in measured} == {key: told[key] for key in measured}


def test_a_table_of_equal_rows_is_published_as_it_is(method: Anonymizer) -> None:
    people = pl.DataFrame({"city": ["Bonn"] * 3, "age": [30] * 3})
    release = sf.anonymize(people, "k=3", method=method, qi=["city", "age"])
    assert release.table.frame.equals(people)
    assert release.loss.gcp == 0


def test_a_table_of_one_row_keeps_k_1(method: Anonymizer) -> None:
    people = pl.DataFrame({"city": ["Bonn"], "age": [30]})
    assert sf.anonymize(people, "k=1", method=method, qi=["city", "age"]).table.frame.equals(people)


def test_columns_without_a_value_stay_without(method: Anonymizer) -> None:
    people = pl.DataFrame({"city": [None] * 3, "age": [None] * 3}, schema={"city": pl.String, "age": pl.Int64})
    release = sf.anonymize(people, "k=2", method=method, qi=["city", "age"])
    assert release.table.frame.rows() == [(None, None)] * 3


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([True, False, None, True, True, False]),
        pl.Series(["1.10", "2.20", None, "3", "1.10", "7"]).cast(pl.Decimal(10, 2)),
        pl.Series([date(2020, 1, day) for day in (1, 2, 3, 4, 5)] + [None]).cast(pl.Datetime("ms")),
        pl.Series([date(2020, 1, day) for day in (1, 2, 3, 4, 5)] + [None])
        .cast(pl.Datetime("us"))
        .dt.replace_time_zone("Europe/Rome"),
        pl.Series([1, 2, 3, 4, None, 7], dtype=pl.Int8),
        pl.Series([0.1, 0.2, math.nan, 0.3, 0.7, None], dtype=pl.Float32),
        pl.Series([1, 2, 3, 4, None, 7], dtype=pl.Duration("us")),
        pl.Series(["low", "top", None, "low", "top", "mid"], dtype=pl.Enum(["low", "mid", "top"])),
        pl.Series(["x", "y", None, "x", "z", "y"], dtype=pl.Categorical),
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_of_every_type_can_be_published(method: Anonymizer, values: pl.Series) -> None:
    people = pl.DataFrame({"x": values, "note": range(6)})
    release = sf.anonymize(people, "k=2", method=method, qi=["x"])
    assert release.assessment.k >= 2
    assert 0 <= release.loss.gcp <= 1
    assert release.aligned.frame["note"].to_list() == list(range(6))


def test_a_chosen_value_that_only_suppressed_rows_hold_has_no_share() -> None:
    people = pl.DataFrame({"city": list("aaabbbc"), "disease": ["x", "y", "z", "x", "y", "z", "rare"]})
    asked = [sf.measures.AlphaK(0.5, k=2, values=["rare"])]
    release = sf.anonymize(people, asked, method=sf.Lattice(suppress=0.3), qi=["city"], sensitive=["disease"])
    assert release.assessment.suppressed == 1
    assert release.assessment.verdict


def test_groups_with_missing_values_do_not_look_suppressed() -> None:
    people = pl.DataFrame({"age": [1, 2, 3, None], "city": ["a", "a", "b", None]})
    release = sf.anonymize(people, "k=2", qi=["age", "city"])
    assert release.aligned.frame.rows() == [("1-2", "a")] * 2 + [("{3, (missing)}", "*")] * 2
    assert release.assessment.suppressed == 0
    assert release.assessment.rows == 4
    assert release.loss.by_column["age"].ncp == pytest.approx((2 * 0.5 + 2 * 1) / 4)


BAD = {
    "k larger than the table": ({"guarantees": "k=7"}, "keeps k=7", "6"),
    "too diverse": ({"guarantees": "k=2,l=4", "sensitive": ["disease"]}, "keeps l=4", "l (is|=) 3"),
    "no sensitive attribute": ({"guarantees": "l=2"}, "l needs a sensitive attribute", ""),
    "a column of two roles": ({"sensitive": ["plain"]}, "column 'plain' cannot be both quasi and sensitive", ""),
    "an unknown column": ({"qi": ["plian"]}, "there is no column 'plian'", "did you mean 'plain'"),
    "no quasi-identifier": ({"qi": []}, "no quasi-identifier is named", ""),
    "no guarantee": ({"guarantees": []}, "no guarantee is asked for", ""),
    "not a guarantee": ({"guarantees": [3]}, "a guarantee is needed", "got int"),
    "just a number": ({"guarantees": 3}, "a guarantee is needed", "got int"),
    "nothing": ({"guarantees": None}, "a guarantee is needed", "got NoneType"),
    "less than nothing": (
        {"guarantees": "delta=0", "sensitive": ["disease"]},
        "delta_disclosure=0",
        "0.*it must be less",
    ),
    "a value that nobody has": (
        {"guarantees": [sf.measures.AlphaK(0.9, values=["gout"])], "sensitive": ["disease"]},
        "alpha is required for the value 'gout'",
        "",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(method: Anonymizer, case: str) -> None:
    options, message, more = BAD[case]
    options = {"guarantees": "k=2", "qi": ["number", "plain"]} | options
    with pytest.raises(sf.errors.InputError, match=message) as caught:
        sf.anonymize(PEOPLE.drop("name"), options.pop("guarantees"), method=method, **options)
    assert re.search(more, str(caught.value))


def test_no_rows_are_refused(method: Anonymizer) -> None:
    with pytest.raises(sf.errors.InputError, match="the table has no rows"):
        sf.anonymize(PEOPLE.clear(), "k=1", method=method, schema=SCHEMA)


def test_a_hierarchy_that_misses_a_value_is_refused(method: Anonymizer) -> None:
    column = sf.Column(name="plain", role="quasi", hierarchy=sf.Hierarchy.tree([("p", "x"), ("r", "y")]))
    with pytest.raises(sf.errors.SchemaError, match="column 'plain': the hierarchy does not cover a value"):
        sf.anonymize(sf.Table(PEOPLE.drop("name"), sf.Schema([column])), "k=2", method=method)


def test_the_mark_of_suppression_is_no_value(method: Anonymizer) -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds the value '\\*'"):
        sf.anonymize(pl.DataFrame({"x": ["*", "a", "*"]}), "k=1", method=method, qi=["x"])


def test_a_value_called_missing_is_refused_where_others_are_missing(method: Anonymizer) -> None:
    with pytest.raises(
        sf.errors.ColumnError, match=r"column 'x' holds the value '\(missing\)', which stands for a missing"
    ):
        sf.anonymize(pl.DataFrame({"x": ["(missing)", "a", None]}), "k=1", method=method, qi=["x"])
    column = sf.Column(name="x", role="quasi", kind="ordinal", domain=("(missing)", "a"))
    with pytest.raises(sf.errors.ColumnError, match=r"holds the value '\(missing\)'"):
        sf.anonymize(sf.Table(pl.DataFrame({"x": ["a", None]}), sf.Schema([column])), "k=1", method=method)
    people = pl.DataFrame({"x": ["(missing)", "a", "a"]})
    assert sf.anonymize(people, "k=3", method=method, qi=["x"]).assessment.k == 3


def test_times_that_no_text_can_tell_apart_are_refused(method: Anonymizer) -> None:
    moments = pl.DataFrame({"x": pl.Series([1, 999, 1500, 2500]).cast(pl.Datetime("ns"))})
    with pytest.raises(sf.errors.ColumnError, match=r"column 'x' holds times of nanoseconds.*round"):
        sf.anonymize(moments, "k=2", method=method, qi=["x"])


def test_what_is_released_does_not_change_with_its_source(method: Anonymizer) -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute("create table people as select * from (values (1, 'a'), (2, 'b'), (3, 'c')) as v(age, city)")
    release = sf.anonymize(connection.table("people"), "k=2", method=method, qi=["age", "city"])
    connection.execute("insert into people values (99, 'new')")
    assert release.table.rows == 3
    assert sf.assess(release.table).k == release.assessment.k


def test_an_infinite_number_is_refused(method: Anonymizer) -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds an infinite number"):
        sf.anonymize(pl.DataFrame({"x": [1.0, math.inf]}), "k=2", method=method, qi=["x"])


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match=r"the method 'mondrain' is unknown.*did you mean 'mondrian'"):
        sf.anonymize(PEOPLE, "k=2", method="mondrain", schema=SCHEMA)


def test_nothing_is_left_if_all_rows_had_to_be_suppressed() -> None:
    with pytest.raises(sf.errors.InputError, match=r"no level of the hierarchies keeps k=7 \(k is 6\)"):
        sf.anonymize(PEOPLE, "k=7", method=sf.Lattice(suppress=1), schema=SCHEMA)


def test_a_method_keeps_its_own_parameters() -> None:
    method = sf.Mondrian("k=3", qi=["plain"], output="medoid")
    sf.anonymize(PEOPLE, "k=2", method=method, schema=SCHEMA)
    assert method.get_params() == {
        "guarantees": "k=3", "qi": ["plain"], "sensitive": (), "output": "medoid", "strict": True, "new_rows": "measure"
    }  # fmt: skip
    assert not hasattr(method, "problem_")


@dataclass(eq=False)
class Fixed(Partitioner):
    """A method that makes the groups it is told: by the first column."""

    name = "fixed"

    def _members(self, problem: Problem) -> Members:
        return Members.of(problem, problem.codes[:, 0].astype(np.int64))


def test_groups_that_look_alike_get_a_helpful_sentence() -> None:
    # Group 0 holds no a, which is passed over, until it shares its medians with group 1: then a is rare.
    groups = pl.Series([0] * 21 + [1] * 3 + [2] * 20)
    x = pl.Series([2, 2, 2] * 7 + [1, 2, 3] + [50] * 20)
    y = pl.Series([1, 2, 3] * 7 + [2, 9, 2] + [50] * 20)
    sick = pl.Series(["b"] * 21 + ["a", "a", "b"] + ["a", "b"] * 10)
    people = pl.DataFrame({"group": groups, "x": x, "y": y, "sick": sick})
    problem = {"qi": ["group", "x", "y"], "sensitive": ["sick"]}
    release = sf.anonymize(people, [sf.measures.DeltaDisclosure(1)], method=Fixed(output="median"), **problem)
    assert release.assessment.classes == 3
    with pytest.raises(
        sf.errors.InputError, match=r"does not keep delta_disclosure=1 when it is measured again.*intervals"
    ):
        sf.anonymize(people, [sf.measures.DeltaDisclosure(1)], method=Constant(output="median"), **problem)


@pytest.mark.parametrize("use", [lambda one, x: one.fit_transform(x), lambda one, x: one.fit(x).transform(x)])
def test_a_transformer_measures_what_it_publishes(use: Callable[[Anonymizer, pl.DataFrame], pl.DataFrame]) -> None:
    # As above: group 0 and group 1 are published alike, and then `a` is rare among the others.
    sick = pl.Series(["b"] * 21 + ["a", "a", "b"] + ["a", "b"] * 10)
    people = pl.DataFrame({"group": [0] * 21 + [1] * 3 + [2] * 20, "sick": sick})
    asked = [sf.measures.DeltaDisclosure(1)]
    assert use(Fixed(asked, qi=["group"], sensitive=["sick"], output="median"), people).equals(people)
    with pytest.raises(sf.errors.InputError, match="does not keep delta_disclosure=1 when it is measured again"):
        use(Constant(asked, qi=["group"], sensitive=["sick"], output="median"), people)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_relaxed_mondrian_publishes_the_fitted_rows_alike_whenever_it_is_asked(k: int) -> None:
    # Equal ages lie on both sides of the median: routed by their values alone, they would all go to one side.
    people = pl.DataFrame({"age": [1] * (2 * k - 1) + [2], "sick": list("ab" * k)})
    relaxed = sf.Mondrian(f"k={k}", qi=["age"], sensitive=["sick"], strict=False)
    published = relaxed.fit_transform(people)
    assert sorted(published["age"].value_counts()["count"]) == [k, k]
    assert relaxed.fit(people).transform(people).equals(published)
    turned = people.with_row_index().sample(fraction=1, shuffle=True, seed=k)
    again = relaxed.transform(turned.select("index", "sick", "age"))
    assert sorted(again["age"].value_counts()["count"]) == [k, k]
    with pytest.raises(sf.errors.InputError, match=r"transform only the rows it was fitted on.*strict=True"):
        relaxed.transform(people.head(2 * k - 1))
    assert relaxed.set_params(new_rows="route").transform(people.head(1))["age"].to_list() in (["1"], ["1-2"])


def test_rows_of_which_a_guarantee_cannot_be_measured_are_refused(method: Anonymizer) -> None:
    people = pl.DataFrame({"age": [20, 20, 40, 40], "sick": ["flu", "ulcer", "flu", "ulcer"]})
    asked = {"guarantees": "k=2,l=2", "qi": ["age"], "sensitive": ["sick"]}
    fitted = type(method)(**method.get_params() | asked).fit(people)
    with pytest.raises(
        sf.errors.InputError, match=r"the rows lack the sensitive column 'sick'|only the rows it was fitted on"
    ):
        fitted.transform(people.select("age"))
    assert fitted.set_params(new_rows="route").transform(people.select("age")).height == 4


def test_rows_of_a_model_are_transformed_without_a_promise_only_when_asked(method: Anonymizer) -> None:
    people = pl.DataFrame({"age": [20, 21, 40, 41]})
    fitted = type(method)(**method.get_params() | {"guarantees": "k=2", "qi": ["age"]}).fit(people)
    with pytest.raises(sf.errors.InputError, match="new_rows='route'"):
        fitted.transform(people.head(1))
    assert fitted.set_params(new_rows="route").transform(people.head(1)).height == 1
    with pytest.raises(sf.errors.OptionError, match="new_rows must be one of measure, route, got 'any'"):
        fitted.set_params(new_rows="any").transform(people)
    assert "new_rows" not in sf.anonymize(people, "k=2", method=fitted.set_params(new_rows="route")).parameters


@dataclass(eq=False)
class Constant(Fixed):
    """The same, but the first column does not tell the groups 0 and 1 apart."""

    name = "constant"

    def _decide(self, problem: Problem) -> None:
        super()._decide(problem)
        self.published_[0] = self.published_[0].replace({1: 0})


def test_spark_frames_are_fetched_by_a_method_that_decides_row_by_row(spark: Any) -> None:
    people = spark.createDataFrame(PEOPLE.to_arrow())
    how: dict[str, Any] = {"method": sf.Mondrian(strict=False), "schema": SCHEMA, "keep_order": True}
    expected = sf.anonymize(PEOPLE, "k=2", **how).table.frame
    release = sf.anonymize(people, "k=2", **how).table
    assert isinstance(release.frame, pl.DataFrame)
    for name in expected.columns:
        assert release.column(name).to_list() == expected[name].to_list()

"""Profiles of columns: the number of values, and bins that nobody is alone in."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures.assess import profiles_of
from sfumato.report.bins import binned_profiles


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=200))
def test_no_value_of_fewer_than_ten_rows_is_named(values: list[str | None]) -> None:
    (profile,) = binned_profiles(sf.Table(pl.DataFrame({"x": pl.Series(values, dtype=pl.String)})), ["x"])
    assert profile.values == len(set(values) - {None})
    named = {label for label in profile.bins if len(label) == 1}
    assert all(values.count(label) >= 10 for label in named)
    assert abs(sum(profile.shares) - 1) < 0.11 * len(profile.shares)  # rounded to parts of ten rows


def test_only_the_number_of_values_of_an_identifier_is_shown() -> None:
    table = sf.Table.of(pl.DataFrame({"name": ["Ann"] * 50, "sex": ["f"] * 50}), identifiers=["name"])
    name, sex = binned_profiles(table, ["name", "sex"])
    assert (name.values, name.bins, name.shares) == (1, (), ())
    assert sex.bins == ("f",)
    assert binned_profiles(table, []) == ()
    assert [one.bins for one in profiles_of(table)] == [(), ()]


def test_a_database_is_not_fetched_to_profile_its_columns() -> None:
    table = sf.Table(pl.DataFrame({"x": [1, 2]}).lazy())
    assert profiles_of(table) == ()
    assert binned_profiles(table, ["x"]) == ()

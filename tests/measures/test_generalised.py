"""A released value is read as the set of original values that it stands for, or refused by name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures.loss.generalised import Coverage, coverage, pair
from sfumato.measures.loss.universe import universe


def read(original: list[Any], released: list[Any], *, mark: str | None = "*", **column: Any) -> Coverage:
    """Read released values against an original column."""
    table = sf.Table(pl.DataFrame({"x": original}))
    if column:
        column = {"kind": table.schema["x"].kind} | column
        table = sf.Table(table.frame, sf.Schema([sf.Column(name="x", **column)]))
    return coverage(universe(table.encode(["x"]).domains[0]), pl.Series(released), mark)


def covered(original: list[Any], released: list[Any], **column: Any) -> list[list[str]]:
    """Name the original values that each released value stands for."""
    found = read(original, released, **column)
    runs = [range(first, stop) for first, stop in zip(found.first, found.stop, strict=True)]
    values: list[list[str]] = [[] for _ in released]
    for owner, run in zip(found.owner, runs, strict=True):
        values[owner] += [found.universe.texts[position] for position in run]
    return values


AGES = [20, 24, 30, 61]


@pytest.mark.parametrize(
    ("text", "values", "ends"),
    [
        ("24", ["24"], (24, 24)),
        (" 24.0 ", ["24"], (24, 24)),
        ("[20, 30]", ["20", "24", "30"], (20, 30)),
        ("[20, 30)", ["20", "24"], (20, 29)),
        ("(20,30)", ["24"], (21, 29)),
        ("]20, 30]", ["24", "30"], (21, 30)),
        ("[20, 30[", ["20", "24"], (20, 29)),
        ("[0, 24.5]", ["20", "24"], (20, 24)),
        ("(-inf, 30)", ["20", "24"], (20, 29)),
        ("[30, inf)", ["30", "61"], (30, 61)),
        ("{20, 61}", ["20", "61"], (20, 61)),
        ("{20, [30, 70]}", None, None),
        ("*", ["20", "24", "30", "61"], (20, 61)),
    ],
)
def test_the_grammar_of_numbers(text: str, values: list[str] | None, ends: tuple[float, float] | None) -> None:
    if values is None:  # a set holds values and labels, not intervals
        with pytest.raises(sf.errors.ColumnError):
            read(AGES, [text])
        return
    found = read(AGES, [text])
    assert covered(AGES, [text]) == [values]
    assert (found.low[0], found.high[0]) == ends


def test_a_number_that_nobody_has_is_a_value_that_covers_no_original_one() -> None:
    found = read(AGES, [27.5])
    assert found.exact.tolist() == [True]
    assert found.size.tolist() == [0]
    assert found.low.tolist() == [27.5]


def test_the_bounds_of_real_numbers_are_kept_as_they_are() -> None:
    found = read([0.5, 1.0, 2.5], ["[0.5, 1)", "(0.5, 1]", "(0.5, 1)"])
    assert found.size.tolist() == [1, 1, 0]
    assert found.low.tolist() == [0.5] * 3
    assert found.high.tolist() == [1.0] * 3


@pytest.mark.parametrize("text", ["[70, 80)", "[30, 20]", "(20, 21)", "[20, x]", "[20]", "twenty", "30-20", "", "{}"])
def test_what_is_no_part_of_a_number_column_is_refused(text: str) -> None:
    with pytest.raises(sf.errors.ColumnError, match="a released value of column 'x' stands for no original value"):
        read(AGES, [text])


def test_dates_and_their_intervals() -> None:
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 31), dt.date(2024, 2, 1)]
    texts = ["2024-01-31", "[2024-01-01, 2024-02-01)", "[2024-01-31, inf)", "{2024-01-01, 2024-02-01}", "*"]
    assert covered(days, texts) == [
        ["2024-01-31"],
        ["2024-01-01", "2024-01-31"],
        ["2024-01-31", "2024-02-01"],
        ["2024-01-01", "2024-02-01"],
        ["2024-01-01", "2024-01-31", "2024-02-01"],
    ]
    found = read(days, texts)
    assert (found.high - found.low).tolist() == [0, 30, 1, 31, 31]
    assert covered(days, days) == [["2024-01-01"], ["2024-01-31"], ["2024-02-01"]]
    with pytest.raises(sf.errors.ColumnError, match="stands for no original value"):
        read(days, ["2023"])
    assert read(days, [2024]).size.tolist() == [3]  # a file of years is read as one of numbers


def test_times_of_day_and_pandas_intervals() -> None:
    moments = [dt.datetime(2024, 1, 1, 8), dt.datetime(2024, 1, 1, 20)]
    assert read(moments, ["[2024-01-01, 2024-01-01 12:00)", "(2024-01-01T08:00, 2024-01-02]"]).size.tolist() == [1, 1]
    ages = pd.DataFrame({"age": [21, 25, 34]})
    cut = pd.DataFrame({"age": pd.cut(ages["age"], [20, 25, 35])})
    both = pair(sf.Table(ages), sf.Table(cut), ["age"]).align()
    assert both.coverages[0].size[both.meaning[:, 0]].tolist() == [2, 2, 1]


def test_categories_are_values_sets_or_everything() -> None:
    cities = ["Bonn", "Rome", "Paris, Texas", 'the "city"']
    texts = ["Rome", "{Bonn, Rome}", '{"Paris, Texas", Bonn}', '{"the ""city"""}', "*"]
    assert [set(one) for one in covered(cities, texts)] == [
        {"Rome"},
        {"Bonn", "Rome"},
        {"Paris, Texas", "Bonn"},
        {'the "city"'},
        set(cities),
    ]
    with pytest.raises(sf.errors.ColumnError, match="a released value of column 'x' stands for no original value"):
        read(cities, ["Rom"])
    with pytest.raises(sf.errors.ColumnError, match="stands for no original value"):
        read(cities, ["{Bonn, Berlin}"])
    with pytest.raises(sf.errors.ColumnError, match="stands for no original value"):
        read(cities, ["[Bonn, Rome]"])


def test_ordinals_have_intervals() -> None:
    levels = {"kind": "ordinal", "domain": ("low", "mid", "high")}
    assert covered(["low", "high"], ["[low, mid]", "(low, high]", "[low, high)"], **levels) == [
        ["low", "mid"],
        ["mid", "high"],
        ["low", "mid"],
    ]


def test_numbers_that_are_categories_and_truth_values() -> None:
    assert covered([1, 2, 3], ["{1, 3}", "2"], kind="category") == [["1", "3"], ["2"]]
    assert covered([True, False], ["True", "*"]) == [["True"], ["False", "True"]]
    assert covered([1.0, None], ["1"], kind="category") == [["1"]]


def test_a_public_domain_widens_the_universe_and_bounds_the_range() -> None:
    assert read(["a"], ["*"], domain=("a", "b", "c")).size.tolist() == [3]
    assert read([1, 2], ["*"], domain=(1, 2, 5)).high.tolist() == [5]
    found = read([30, 40], ["*", "[0, 40]"], bounds=(0, 120))
    assert (found.low.tolist(), found.high.tolist()) == ([0, 0], [120, 40])
    with pytest.raises(sf.errors.SchemaError, match="does not list"):
        read(["a", "z"], ["a"], domain=("a", "b"))
    with pytest.raises(sf.errors.SchemaError, match="outside its public bounds"):
        read([30, 140], ["*"], bounds=(0, 120))


def test_missing_is_a_value_where_the_original_has_it_and_everything_where_not() -> None:
    assert covered(["a", None], [None, "*"]) == [["(missing)"], ["a", "(missing)"]]
    assert covered(["a", "b"], [None]) == [["a", "b"]]
    assert covered([1, None], [None, "[1, 2]", "*"]) == [["(missing)"], ["1"], ["1", "(missing)"]]
    assert covered(["None", None], [None, "None"]) == [["(missing)"], ["None"]]


TREE = sf.Hierarchy.tree([("flu", "lung", "*"), ("asthma", "lung", "*"), ("ulcer", "stomach", "*")])


def test_labels_of_a_hierarchy() -> None:
    found = read(["flu", "asthma", "ulcer", None], ["lung", "stomach", "flu", "{lung, ulcer}", "*"], hierarchy=TREE)
    assert found.size.tolist() == [2, 1, 1, 3, 4]
    assert found.level.tolist() == [1, 1, 0, -1, 2]
    assert read(["flu", None], ["(missing)"], hierarchy=TREE).size.tolist() == [1]
    with pytest.raises(sf.errors.ColumnError, match="stands for no original value"):
        read(["flu"], ["heart"], hierarchy=TREE)


def test_labels_of_numbers_reach_from_the_least_to_the_greatest() -> None:
    decades = sf.Hierarchy.tree([(year, f"{str(year)[:3]}0s") for year in (1981, 1987, 1990)])
    found = read([1981, 1987, 1990], ["1980s", "1990s", "1987", "*"], hierarchy=decades)
    assert found.low.tolist() == [1981, 1990, 1987, 1981]
    assert found.high.tolist() == [1987, 1990, 1987, 1990]
    assert found.level.tolist() == [1, 1, 0, 2]


def test_a_text_that_is_a_value_and_a_group_is_the_group_if_the_others_are_gone() -> None:
    other = sf.Hierarchy.tree([("Other", "Other"), ("Klingon", "Other"), ("Dutch", "Europe")])
    assert read(["Other", "Klingon", "Dutch"], ["Other"], hierarchy=other).size.tolist() == [2]
    assert read(["Other", "Klingon", "Dutch"], ["Klingon", "Other"], hierarchy=other).size.tolist() == [1, 1]
    assert read(["Other", "Dutch"], ["Other"], hierarchy=other).size.tolist() == [1]


def test_texts_in_a_number_column_and_infinite_numbers_are_refused() -> None:
    with pytest.raises(sf.errors.SchemaError, match="declared a number, but holds texts"):
        read(["20"], ["20"], kind="number")
    with pytest.raises(sf.errors.ColumnError, match="infinite"):
        read([1.0, float("inf")], ["1"])


def test_the_mark_can_be_another_or_none() -> None:
    assert read(["a", "b"], ["?"], mark="?").size.tolist() == [2]
    assert read(["a", "*"], ["*"], mark=None).size.tolist() == [1]
    assert read(["a", "*"], ["*"]).size.tolist() == [2]


@given(
    st.lists(st.integers(-5, 12), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from("[("), st.integers(-6, 13), st.integers(0, 9), st.sampled_from("])"))),
)
def test_an_interval_covers_exactly_the_numbers_between_its_bounds(
    numbers: list[int], intervals: list[tuple[str, int, int, str]]
) -> None:
    for left, low, width, right in intervals:
        inside = [
            str(x)
            for x in sorted(set(numbers))
            if (low <= x if left == "[" else low < x) and (x <= low + width if right == "]" else x < low + width)
        ]
        text = f"{left}{low}, {low + width}{right}"
        if inside:
            assert covered(numbers, [text]) == [inside]


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8), st.data())
def test_runs_hold_any_sets(sets: list[set[str]], data: st.DataObject) -> None:
    found = read(list("abcdef"), ["{" + ", ".join(sorted(one)) + "}" for one in sets])
    weight = data.draw(st.lists(st.integers(0, 9), min_size=6, max_size=6))
    assert found.size.tolist() == [len(one) for one in sets]
    totals = [sum(weight["abcdef".index(value)] for value in one) for one in sets]
    assert found.total(weight).tolist() == totals
    for code, one in enumerate(sets):
        for position, value in enumerate("abcdef"):
            assert found.covers(found.first[:1] * 0 + code, found.first[:1] * 0 + position)[0] == (value in one)
    shares = [sum(1 / len(one) for one in sets if value in one) for value in "abcdef"]
    assert found.spread([1] * len(sets)).tolist() == pytest.approx(shares)


def test_rows_that_do_not_fit_are_refused() -> None:
    original = pl.DataFrame({"age": [20, 30, 40]})
    with pytest.raises(sf.errors.InputError, match="3 rows and the release 2"):
        pair(original, original.head(2), ["age"]).align()
    shuffled = pl.DataFrame({"age": ["[30, 40]", "[20, 25]", "*"]})
    with pytest.raises(sf.errors.InputError, match="column 'age' does not cover the original one in 2 of 3 rows"):
        pair(original, shuffled, ["age"]).align()
    with pytest.raises(sf.errors.ColumnError, match="the release has no column 'age'"):
        pair(original, original.rename({"age": "aeg"}), ["age"])
    with pytest.raises(sf.errors.InputError, match="no rows"):
        pair(original.clear(), original.clear(), ["age"])
    with pytest.raises(sf.errors.OptionError, match="no column is named"):
        pair(original, original)


def test_periods_of_dates_are_read_whatever_their_length() -> None:
    days = [dt.date(1960, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1970, 3, 31)]
    texts = [
        "1960s",
        "1960-1970",
        "1970-03",
        "1969-12 to 1970-01",
        "1969-12-31 to 1970-01-01",
        "1970-Q1",
        "{1960, 1970}",
    ]
    assert read(days, texts).size.tolist() == [2, 4, 1, 2, 2, 2, 3]
    assert (read(days, texts).high - read(days, texts).low).tolist() == [3652, 3742, 30, 61, 1, 89, 3742]


@pytest.mark.parametrize(
    "text", ["1965s", "1970-13", "1970-02-30", "1970 to 1970-03", "1970-1960", "1970-03 to 1970-01", "70s", "1970-Q5"]
)
def test_what_is_not_a_period_is_refused(text: str) -> None:
    with pytest.raises(sf.errors.ColumnError, match="stands for no original value"):
        read([dt.date(1960, 1, 1), dt.date(1970, 1, 1)], [text])


def test_a_day_stands_for_all_of_its_times() -> None:
    moments = [
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 1, 8),
        dt.datetime(2024, 1, 1, 20),
        dt.datetime(2024, 1, 2),
    ]
    texts = ["2024-01-01", "2024-01-01 08:00 to 19:59", "2024-01-01 20:00 to 2024-01-02 00:00", "2024-01-01 08:00"]
    assert read(moments, texts).size.tolist() == [3, 1, 2, 1]
    assert read(moments, [dt.date(2024, 1, 1)]).size.tolist() == [3]
    midnights = [
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 2),
        dt.datetime(2024, 1, 31),
    ]  # dates, as pandas has them
    found = read(midnights, ["2024-01-01", "2024-01"])
    assert found.size.tolist() == [1, 3]
    assert found.exact.tolist() == [True, False]
    assert (found.high - found.low).tolist() == [0, 30 * 86_400e6]


def test_a_set_can_be_told_by_what_it_lacks() -> None:
    assert covered(["a", "b", "c", None], ["all but {a}", "all but {a, b}", "a"]) == [["b", "c"], ["c"], ["a"]]
    assert covered(["a", "b", "c"], ["all but {a, rare}", "b", "c"])[0] == [
        "b",
        "c",
    ]  # a domain has more than rows have


def test_ordinals_are_read_from_one_name_to_the_other() -> None:
    order = ("low", "mid", "top")
    assert read(["low", "mid", "top"], ["low to mid", "mid to top"], kind="ordinal", domain=order).size.tolist() == [
        2,
        2,
    ]


@pytest.mark.parametrize(
    "values",
    [
        [f"{name}{number}" for name in ("a", "b, c", 'say "d"', "{a1, a2}") for number in range(6)],
        [str(number) for number in range(1, 40)],
        [f"{number:05d}" for number in (1067, 1069, 4109, 10115, 80331, 80333)],
        [f"20{number:02d}-0{1 + number % 9}-11" for number in range(1, 30)],
        ["", "x", "y", "z", "x to y", "all but {x}"],
    ],
    ids=["names", "numbers", "codes", "dates", "odd ones"],
)
def test_labels_of_automatic_hierarchies_are_read_back_without_them(values: list[str]) -> None:
    hierarchy = sf.Hierarchy.automatic(sf.Column(name="x"), values, [1 + at % 7 for at in range(len(values))])
    for level in range(1, hierarchy.height):
        labels = hierarchy.labels(values, level)
        groups = {label: {one for one, of in zip(values, labels, strict=True) if of == label} for label in labels}
        for label, found in zip(groups, covered(values, list(groups)), strict=True):
            assert set(found) == groups[label], label

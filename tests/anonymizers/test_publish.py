"""What is published of a group covers its values, and a program can read it back."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers import Output
from sfumato.anonymizers.problem import Problem, with_hierarchies
from sfumato.anonymizers.publish import Members, publish
from sfumato.engines import reduce
from sfumato.measures.loss.generalised import coverage
from sfumato.measures.loss.universe import universe

TREE = sf.Hierarchy.tree([("a", "x", "u"), ("b", "x", "u"), ("c", "y", "u"), ("d", "z", "v")])


def published(
    values: list[Any], groups: list[int], output: str = "interval", column: sf.Column | None = None, dtype: Any = None
) -> list[Any]:
    """What is published of the distinct values, which are given in their order, in these groups."""
    series = pl.Series("q", values, dtype=dtype, strict=False)
    table = sf.Table(series.to_frame(), sf.Schema([column]) if column else None)
    problem = Problem.of(reduce(table, ["q"]), ["q"], [], [])
    problem = with_hierarchies(problem) if output == "level" else problem
    return publish(problem, Members.of(problem, np.array(groups)), Output(output))[0].to_list()


def test_numbers_are_a_range() -> None:
    assert published([1, 2, 5, 9], [0, 0, 0, 1]) == ["1-5", "9"]
    assert published([0.5, 2.0], [0, 0]) == ["[0.5, 2.0]"]
    assert published([-3, -1], [0, 0]) == ["[-3, -1]"]


def test_numbers_are_a_range_also_where_others_are_missing() -> None:
    assert published([1, 2, 5, None], [0, 0, 1, 2]) == ["1-2", "5", None]
    days = [date(2020, 1, 1), date(2020, 1, 2), None]
    assert published(days, [0, 0, 1]) == ["2020-01-01 to 2020-01-02", None]


def test_categories_are_a_set_quoted_as_in_csv() -> None:
    assert published(["a", "b", "c"], [0, 0, 1]) == ["{a, b}", "c"]
    assert published(["a, b", 'say "c"'], [0, 0]) == ['{"a, b", "say ""c"""}']


def test_a_set_is_written_with_the_names_of_groups_that_it_fills() -> None:
    column = sf.Column(name="q", hierarchy=TREE)
    assert published(["a", "b", "c", "d"], [0, 0, 1, 1], column=column) == ["x", "{c, d}"]
    assert published(["a", "b", "c", "d"], [0, 0, 0, 1], column=column) == ["u", "d"]
    assert published(["a", "b", "c", "d"], [0, 0, 1, 0], column=column) == ["{x, d}", "c"]
    listed = sf.Column(name="q", hierarchy=TREE, domain=["a", "b", "c", "d"])
    assert published(["a", "c", "d"], [0, 0, 1], column=listed) == ["{a, c}", "d"]  # u would also stand for b
    named = sf.Column(name="q", hierarchy=sf.Hierarchy.tree([("a", "c"), ("b", "c"), ("c", "d")]))
    assert published(["a", "b", "c"], [0, 0, 1], column=named) == ["{a, b}", "c"]  # c is a value, too


def test_a_long_set_is_written_by_what_it_lacks() -> None:
    towns = [f"town {number:02d}" for number in range(20)]
    some = published([*towns], [1, 2, *[0] * 18])
    assert some == ["all but {town 00, town 01}", "town 00", "town 01"]
    assert published([*towns], [0] * 20) == ["*"]
    assert published([*towns, None], [*[0] * 20, 1])[0] == "all but {(missing)}"
    assert published([*towns, None], [1, *[0] * 19, 1]) == ["all but {town 00}", "{town 00, (missing)}"]
    of = universe(sf.Table(pl.DataFrame({"q": [*towns, None]})).encode(["q"]).domains[0])
    assert coverage(of, pl.Series(["all but {town 00}", "all but {(missing)}"])).size.tolist() == [19, 20]


def test_a_set_is_not_mistaken_for_a_value() -> None:
    assert published(["a", "b", "{a, b}"], [0, 0, 1]) == ['{"a", "b"}', "{a, b}"]


def test_ordinals_are_a_range_unless_their_names_could_not_be_read_in_one() -> None:
    def column(*domain: str) -> sf.Column:
        return sf.Column(name="q", kind="ordinal", domain=domain)

    assert published(["low", "mid", "top"], [0, 0, 1], column=column("low", "mid", "top")) == ["[low, mid]", "top"]
    assert published(["low", "mid, or so"], [0, 0], column=column("low", "mid, or so")) == ['{low, "mid, or so"}']
    assert published([" low", "mid"], [0, 0], column=column(" low", "mid")) == ['{" low", mid}']


def test_nothing_that_was_not_generalised_changes_its_type() -> None:
    assert published([1, 2], [0, 1]) == [1, 2]
    assert published([True, None], [0, 1]) == [True, None]


def test_a_missing_value_among_others_is_covered_by_everything() -> None:
    problem = Problem.of(
        reduce(sf.Table(pl.DataFrame({"p": [1, 2, 3], "q": ["a", "b", None]})), ["p", "q"]), ["p", "q"], [], []
    )
    p, q = publish(problem, Members.of(problem, np.array([0, 1, 1])), Output.INTERVAL)
    assert p.to_list() == ["1", "2-3"]
    assert q.to_list() == ["a", "*"]


def test_a_group_that_would_look_suppressed_is_spelt_out() -> None:
    assert published([1, 2, 3, None], [0, 1, 1, 1]) == ["1", "{2-3, (missing)}"]
    assert published([1, 2, None], [0, 1, 1]) == ["1", "{2, (missing)}"]
    assert published(["a", "b", None], [0, 1, 1]) == ["a", "{b, (missing)}"]
    column = sf.Column(name="q", hierarchy=TREE)
    assert published(["a", "b", "c", "d"], [0, 1, 0, 1], "level", column) == ["u", "{*}"]


def test_one_group_of_everything_is_everything() -> None:
    assert published([1, None], [0, 0]) == ["*"]


def test_a_level_is_the_lowest_node_that_covers_the_group() -> None:
    column = sf.Column(name="q", hierarchy=TREE)
    assert published(["a", "b", "c", "d"], [0, 0, 1, 2], "level", column) == ["x", "c", "d"]
    assert published(["a", "b", "c", "d"], [0, 1, 1, 2], "level", column) == ["a", "u", "d"]


def test_a_column_without_a_hierarchy_gets_an_automatic_one() -> None:
    ages = [2, 9, 22, 35, 61, 97]
    assert published(ages, [0, 0, 1, 1, 2, 2], "level") == ["<20", "20-39", "{*}"]
    assert published(list("abcdef"), [0, 0, 0, 1, 1, 2], "level") == ["{a, b, c}", "{d, e, f}", "f"]


def test_a_level_says_nothing_of_the_extremes_of_its_group() -> None:
    column = sf.Column(name="q", kind="number", hierarchy=sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100)))
    assert published([3, 61, 97, None], [0, 1, 1, 1], "level", column) == ["3", "{*}"]
    assert published([3, 61, 97, None], [0, 1, 1, 2], "level", column) == ["3", "50-100", None]
    assert published([3, 61, 97, None], [0, 1, 1, 1], "level") == ["3", "{*}"]
    assert published([3, 61, 97, None], [0, 0, 0, 0], "level", column) == ["*"]


def test_everything_is_read_back_from_a_set_of_the_mark() -> None:
    of = universe(sf.Table(pl.DataFrame({"q": [3, 61, None]})).encode(["q"]).domains[0])
    read = coverage(of, pl.Series(["{*}", "*", "3"]))
    assert read.size.tolist() == [3, 3, 1]
    assert read.everything.tolist() == [False, True, False]
    assert (read.low[0], read.high[0]) == (3, 61)


def test_a_median_is_the_lower_middle_value_of_the_records() -> None:
    assert published([1, 2, 3, 4], [0, 0, 0, 0], "median") == [2]
    assert published([1, 2, 2, 2, 9, 9], [0, 0, 1], "median") == [2, 9]
    assert published(["a", "b", "b", "c"], [0, 0, 0], "median") == ["b"]


def test_a_medoid_is_a_combination_that_somebody_has() -> None:
    table = sf.Table(pl.DataFrame({"x": [1, 2, 3], "y": [3, 1, 2]}))
    problem = Problem.of(reduce(table, ["x", "y"]), ["x", "y"], [], [])
    members = Members.of(problem, np.zeros(3, dtype=np.int64))
    median = [one.to_list() for one in publish(problem, members, Output.MEDIAN)]
    medoid = [one.to_list() for one in publish(problem, members, Output.MEDOID)]
    assert median == [[2], [2]]
    assert (medoid[0][0], medoid[1][0]) in {(1, 3), (2, 1), (3, 2)}


TEXTS = st.text(st.sampled_from("ab ,\"{}[]()*\n'1"), max_size=4).filter(lambda text: text != "*")


@given(texts=st.lists(TEXTS, min_size=2, max_size=6, unique=True), data=st.data())
def test_whatever_a_category_is_called_it_is_read_back(texts: list[str], data: st.DataObject) -> None:
    texts = sorted(texts)
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(texts), max_size=len(texts)))
    groups = np.unique(groups, return_inverse=True)[1].tolist()
    out = published(texts, groups)
    of = universe(sf.Table(pl.DataFrame({"q": texts})).encode(["q"]).domains[0])
    read = coverage(of, pl.Series(out))
    for group in range(max(groups) + 1):
        covered = {texts[i] for i in range(len(texts)) if read.covers(np.array([group]), np.array([i]))[0]}
        assert covered == {text for text, at in zip(texts, groups, strict=True) if at == group}


@pytest.mark.parametrize("value", [0.1, 1e-7, 1e300, -2.5, 123456789.125])
@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
def test_bounds_are_read_back_to_the_last_bit(value: float, dtype: Any) -> None:
    if dtype == pl.Float32 and abs(value) > 1e38:
        return
    frame = pl.DataFrame({"q": pl.Series([value, value + abs(value)], dtype=dtype)})
    release = sf.anonymize(frame, "k=2", qi=["q"])
    assert release.loss.gcp == 1
    assert sf.loss(frame, release.aligned, quasi=["q"]).gcp == 1


def test_a_group_named_like_a_value_is_not_mistaken_for_it() -> None:
    tree = sf.Hierarchy.tree([("other", "other"), ("a", "other"), ("b", "other"), ("c", "known"), ("d", "known")])
    column = sf.Column(name="q", hierarchy=tree)
    assert published(["a", "b", "c", "d", "other"], [0, 0, 1, 1, 2], "level", column) == [
        "{a, b, other}",
        "known",
        "other",
    ]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_are_read_back_to_the_last_tick(unit: Any) -> None:
    ticks = np.random.default_rng(0).integers(1_600_000_000_000, 1_700_000_000_000, 60)
    moments = pl.Series("q", ticks).cast(pl.Datetime("ms")).cast(pl.Datetime(unit))
    release = sf.anonymize(moments.to_frame(), "k=3", qi=["q"])
    assert sf.loss(moments.to_frame(), release.aligned, quasi=["q"]).gcp == release.loss.gcp

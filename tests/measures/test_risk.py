"""The risks equal their definitions on random tables and on tables computed by hand."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.engines import Tuples, reduce
from sfumato.measures import (
    ClassCounts,
    Missing,
    class_counts,
    column_risks,
    delta_presence,
    journalist_risk,
    reidentification_risk,
    subset_risks,
)

Row = tuple[Any, ...]
ROWS = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", None])] * 3), min_size=1, max_size=30)
NAMES = ["q0", "q1", "q2"]


def tuples(rows: list[Row], names: list[str] = NAMES) -> Tuples:
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return reduce(sf.Table(frame), names)


def counts(rows: list[Row], names: list[str] = NAMES, **how: Any) -> ClassCounts:
    return class_counts(tuples(rows, names), names, None, **how)


def column(values: list[Any], name: str = "age") -> ClassCounts:
    return class_counts(reduce(sf.Table(pl.DataFrame({name: values})), [name]), [name], None)


@given(ROWS, st.sampled_from([0.09, 0.2, 1 / 3, 0.5, 1]))
def test_prosecutor_and_marketer_equal_their_definitions(rows: list[Row], threshold: float) -> None:
    size = Counter(rows)
    result = reidentification_risk(counts(rows), threshold)
    assert result.prosecutor_max == max(1 / size[row] for row in rows)
    assert result.prosecutor_mean == pytest.approx(sum(1 / size[row] for row in rows) / len(rows))
    assert result.uniques == sum(size[row] == 1 for row in rows)
    assert result.marketer == pytest.approx(result.prosecutor_mean)  # classes are disjoint
    assert result.above_threshold == sum(1 / size[row] > threshold for row in rows) / len(rows)
    assert result.to_dict()["threshold"] == threshold


def test_a_record_at_the_threshold_is_not_above_it() -> None:
    rows = [("x",)] * 10 + [("y",)] * 9
    assert reidentification_risk(counts(rows, ["q"]), threshold=0.1).above_threshold == 9 / 19
    assert reidentification_risk(counts(rows, ["q"])).above_threshold == 1  # 1/10 > 0.09
    assert reidentification_risk(counts([("x",)] * 12, ["q"])).above_threshold == 0


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "high"])
def test_a_threshold_is_a_share(threshold: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="threshold must be a number from 0 to 1"):
        reidentification_risk(counts([("x",)], ["q"]), threshold)


@given(ROWS, ROWS)
def test_journalist_and_presence_equal_their_definitions(rows: list[Row], others: list[Row]) -> None:
    people = rows + others
    here, there = Counter(rows), Counter(people)
    sample, population = counts(rows), counts(people)
    result = journalist_risk(sample, population, threshold=0.3)
    assert result.k_map == min(there[row] for row in rows)
    assert result.journalist_max == 1 / result.k_map
    assert result.journalist_mean == pytest.approx(sum(1 / there[row] for row in rows) / len(rows))
    assert result.uniques == sum(there[row] == 1 for row in rows)
    assert result.above_threshold == sum(1 / there[row] > 0.3 for row in rows) / len(rows)
    presence = delta_presence(sample, population)
    shares = [here[row] / there[row] for row in there]
    assert (presence.delta_min, presence.delta_max) == (min(shares), max(shares))


def test_a_population_is_at_least_as_safe_as_its_sample() -> None:
    sample = column([30, 40, 40])
    assert journalist_risk(sample, sample).journalist_mean == reidentification_risk(sample).prosecutor_mean
    assert delta_presence(sample, sample).to_dict() == {"delta_min": 1, "delta_max": 1}


def test_presence_of_the_paper_by_hand() -> None:
    # Population classes of 4, 2 and 3 people, of which the table holds 2, 1 and none.
    presence = delta_presence(column(["a", "a", "b"]), column(["a"] * 4 + ["b"] * 2 + ["c"] * 3))
    assert (presence.delta_min, presence.delta_max) == (0.0, 0.5)


def test_columns_are_matched_by_name_and_values_by_themselves() -> None:
    sample = counts([(1, "x"), (2, "x")], ["age", "sex"])
    population = counts([("w", 0), ("x", 1), ("x", 1), ("x", 2), ("x", 2)], ["sex", "age"])
    assert journalist_risk(sample, population).k_map == 2
    floats = counts([("x", 1.0), ("x", 2.0), ("x", None)], ["sex", "age"])
    assert journalist_risk(sample, floats).k_map == 1


def test_a_population_that_lacks_classes_is_refused_without_quoting_them() -> None:
    with pytest.raises(sf.errors.InputError, match=r"lacks 2 of the 3 classes of the table \(3 rows\)") as error:
        journalist_risk(column(["secret", "secret", "known", "hidden"]), column(["known", "known"]))
    assert "secret" not in str(error.value)
    assert "hidden" not in str(error.value)
    with pytest.raises(sf.errors.InputError, match="lacks 1 of the 1"):  # both values are known, together they are not
        delta_presence(counts([("a", "b")], ["x", "y"]), counts([("a", "a"), ("b", "b")], ["x", "y"]))


def test_a_class_that_is_larger_than_in_the_population_is_refused() -> None:
    with pytest.raises(sf.errors.InputError, match="1 of the 2 classes have fewer rows in the population table"):
        journalist_risk(column([30, 30, 40]), column([30, 40, 50]))


def test_a_population_with_other_columns_or_types_is_refused() -> None:
    with pytest.raises(sf.errors.ColumnError, match="not counted by the quasi-identifier 'age'"):
        journalist_risk(column([30]), column([30], "ages"))
    with pytest.raises(sf.errors.ColumnError, match="more quasi-identifiers"):
        journalist_risk(column([30]), counts([(30, "f")], ["age", "sex"]))
    with pytest.raises(sf.errors.ColumnError, match="column 'age' is Int64 in the table but String"):
        journalist_risk(column([30]), column(["30"]))


def test_wildcards_have_no_population() -> None:
    sample = counts([("a", None), ("a", "b")], ["x", "y"], missing=Missing.WILDCARD)
    with pytest.raises(sf.errors.OptionError, match="wildcards"):
        journalist_risk(sample, sample)


@given(ROWS, st.integers(1, 3))
def test_subsets_equal_their_definition(rows: list[Row], size: int) -> None:
    found = {one.columns: one for one in subset_risks(tuples(rows), NAMES, size)}
    chosen = [subset for number in range(1, size + 1) for subset in combinations(range(3), number)]
    assert len(found) == len(chosen)
    for subset in chosen:
        classes = Counter(tuple(row[position] for position in subset) for row in rows)
        one = found[tuple(NAMES[position] for position in subset)]
        assert one.k == min(classes.values())
        assert one.uniques == sum(number == 1 for number in classes.values())
        assert one.unique_share == one.uniques / len(rows)
    ranks = [(-one.uniques, one.k, len(one.columns)) for one in found.values()]
    assert ranks == sorted(ranks)


def test_subsets_of_wide_columns_are_counted_by_sorting() -> None:
    rows = [(i, i // 2, i // 3) for i in range(3000)]  # 3000 * 1500 * 1000 possible tuples
    worst = subset_risks(tuples(rows), NAMES)
    assert worst[0].columns == ("q0",)
    assert worst[-1].to_dict() == {"columns": ["q2"], "k": 3, "uniques": 0, "unique_share": 0.0}
    assert {one.columns: one.k for one in worst}[("q1", "q2")] == 1


def test_subsets_ignore_the_other_columns() -> None:
    with_sensitive = tuples([("a", "x", "flu"), ("a", "x", "ulcer")])
    assert subset_risks(with_sensitive, ["q0", "q1"], 2)[0].k == 2


def test_too_many_subsets_are_refused() -> None:
    names = [f"q{i}" for i in range(40)]
    wide = tuples([tuple(range(40))], names)
    assert len(subset_risks(wide, names, 2)) == 820
    with pytest.raises(sf.errors.OptionError, match="40 quasi-identifiers have 10700 subsets of at most 3 columns"):
        subset_risks(wide, names, 3)
    with pytest.raises(sf.errors.OptionError, match="size must be a whole number of at least 1"):
        subset_risks(wide, names, 0)
    with pytest.raises(sf.errors.ColumnError, match="no column 'q99'"):
        subset_risks(wide, ["q99"])
    with pytest.raises(sf.errors.OptionError, match="no quasi-identifier"):
        column_risks(wide, [])


@given(ROWS)
def test_column_risks_equal_their_definition(rows: list[Row]) -> None:
    def measured(positions: list[int]) -> tuple[float, int]:
        classes = Counter(tuple(row[position] for position in positions) for row in rows)
        mean = sum(1 / classes[tuple(row[position] for position in positions)] for row in rows) / len(rows)
        return mean, sum(number == 1 for number in classes.values())

    mean, uniques = measured([0, 1, 2])
    found = column_risks(tuples(rows), NAMES)
    assert [one.mean_drop for one in found] == sorted((one.mean_drop for one in found), reverse=True)
    for one in found:
        position = NAMES.index(one.column)
        without = measured([other for other in range(3) if other != position])
        assert one.mean_drop == pytest.approx(mean - without[0])
        assert one.uniques_drop == uniques - without[1] >= 0
        assert (one.mean_alone, one.uniques_alone) == pytest.approx(measured([position]))


def test_the_only_column_takes_all_the_risk() -> None:
    (one,) = column_risks(tuples([("a",), ("b",), ("b",), ("b",)], ["q"]), ["q"])
    assert one.to_dict() == {
        "column": "q", "mean_drop": 0.25, "uniques_drop": 1, "mean_alone": 0.5, "uniques_alone": 1
    }  # fmt: skip

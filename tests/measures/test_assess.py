"""An assessment brings the risks together: in the table, in the population, by column, and by preset."""

from __future__ import annotations

import polars as pl
import pytest

import sfumato as sf

PEOPLE = pl.DataFrame({"town": ["a"] * 3 + ["b"] * 2 + ["c"], "sex": ["f", "f", "m", "m", "m", "f"]})
SAMPLE = PEOPLE[[0, 2, 3, 4]]


def test_a_population_table_gives_the_risk_of_a_journalist() -> None:
    result = sf.assess(SAMPLE, qi=["town"], population=PEOPLE)
    assert result.journalist is not None
    assert result.presence is not None
    assert (result.risk.prosecutor_max, result.journalist.journalist_max, result.journalist.k_map) == (0.5, 0.5, 2)
    assert result.journalist.journalist_mean == pytest.approx((1 / 3 + 1 / 3 + 1 / 2 + 1 / 2) / 4)
    assert (result.presence.delta_min, result.presence.delta_max) == (0.0, 1.0)
    assert result.to_dict()["risk"]["journalist"]["k_map"] == 2


def test_the_population_is_known_by_the_quasi_identifiers_alone() -> None:
    sample = SAMPLE.with_columns(x=pl.lit("a"), y=pl.Series(["c", "d", "c", "d"]))
    options = {"qi": ["town"], "sensitive": ["x", "y"], "population": PEOPLE, "population_size": 6}
    plain, strict = (sf.assess(sample, classes=classes, **options) for classes in ("qi", "qi+other-sensitive"))
    assert (plain.k, strict.k) == (2, 1)
    assert plain.journalist == strict.journalist
    assert plain.population == strict.population


@pytest.mark.parametrize(
    ("population", "message"),
    [
        (PEOPLE.drop("town"), "the population table lacks the quasi-identifier 'town'"),
        (PEOPLE.filter(pl.col("town") != "b"), r"lacks 1 of the 2 classes of the table \(2 rows\)"),
        (PEOPLE[[0, 2, 3]], "1 of the 2 classes have fewer rows in the population table"),
        (PEOPLE[:0], "the table has no rows"),
        (PEOPLE.with_columns(town=pl.Series([1, 1, 1, 2, 2, 3])), "column 'town' is String in the table but Int64"),
    ],
)
def test_a_population_that_the_table_is_no_sample_of_is_refused(population: pl.DataFrame, message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        sf.assess(SAMPLE, qi=["town"], population=population)


def test_a_population_size_gives_the_estimated_uniques() -> None:
    result = sf.assess(sf.datasets.adult(), population_size=48842)
    assert result.population is not None
    assert (result.population.uniques, result.population.chosen.value) == (12889, "exact")
    assert result.to_dict()["risk"]["population"]["share"] == pytest.approx(12889 / 48842)
    with pytest.raises(sf.errors.OptionError, match="wildcards"):
        sf.assess(PEOPLE, qi=["town"], population_size=100, missing="wildcard")
    with pytest.raises(sf.errors.InputError, match="population"):
        sf.assess(PEOPLE, qi=["town"], population_size=3)
    with pytest.raises(sf.errors.OptionError, match="the population table has 6 rows, but population_size is 100"):
        sf.assess(SAMPLE, qi=["town"], population=PEOPLE, population_size=100)


def test_detail_says_which_columns_single_people_out() -> None:
    result = sf.assess(PEOPLE, qi=["town", "sex"], detail=True)
    assert [(one.columns, one.uniques) for one in result.subsets] == [
        (("town", "sex"), 2),
        (("town",), 1),
        (("sex",), 0),
    ]
    assert [(one.column, one.uniques_drop) for one in result.columns] == [("town", 2), ("sex", 1)]
    assert sf.assess(PEOPLE, qi=["town", "sex"]).columns == ()


def test_the_threshold_says_who_is_at_risk() -> None:
    assert sf.assess(PEOPLE, qi=["town"], threshold=0.4).risk.above_threshold == 0.5
    assert sf.assess(PEOPLE, qi=["town"], threshold=0.5).risk.above_threshold == pytest.approx(1 / 6)
    with pytest.raises(sf.errors.OptionError, match="threshold must be a number from 0 to 1, got 2"):
        sf.assess(PEOPLE, qi=["town"], threshold=2)


@pytest.mark.parametrize("preset", ["ema", "health-canada"])
def test_a_threshold_preset_requires_its_k(preset: str) -> None:
    result = sf.assess(pl.DataFrame({"q": ["x"] * 11}), qi=["q"], preset=preset, require="k=2")
    assert result.verdict is not None
    assert [(str(check.guarantee), check.held) for check in result.verdict.checks] == [("k=2", True), ("k=12", False)]
    assert (result.satisfied, result.risk.threshold) == (False, 0.09)
    assert sf.assess(pl.DataFrame({"q": ["x"] * 12}), qi=["q"], preset=preset).satisfied
    with pytest.raises(sf.errors.OptionError, match=f"the preset '{preset}' has its threshold, 0.09"):
        sf.assess(PEOPLE, qi=["town"], preset=preset, threshold=0.5)


def test_the_hipaa_preset_looks_for_identifiers() -> None:
    frame = pl.DataFrame({"age": [91, 91], "sex": ["f", "f"]})
    result = sf.assess(frame, qi=["age", "sex"], preset="hipaa")
    assert result.satisfied is False
    assert [one.letter for one in result.findings if one.column] == ["C"]
    young = sf.assess(frame.with_columns(age=30), qi=["age", "sex"], preset="hipaa")
    assert young.satisfied is True
    assert all(one.status == "to be checked by a person" for one in young.findings)
    with pytest.raises(sf.errors.OptionError, match=r"the preset 'hippa' is unknown"):
        sf.assess(frame, qi=["age"], preset="hippa")


def test_detail_looks_at_as_many_columns_as_it_can() -> None:
    frame = pl.DataFrame({f"c{i}": [i % 2, 1, i % 3] for i in range(60)})
    for width, largest in ((2, 2), (6, 3), (40, 2)):
        result = sf.assess(frame, qi=frame.columns[:width], detail=True)
        assert max(len(one.columns) for one in result.subsets) == largest
        assert len(result.columns) == width

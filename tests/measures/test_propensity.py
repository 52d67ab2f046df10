"""The propensity score equals its definition, and its expected value is what chance gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures import propensity

CITIES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=25)


@settings(max_examples=30)
@given(CITIES, CITIES)
def test_of_one_column_it_is_the_spread_of_the_shares(ours: list[str | None], theirs: list[str | None]) -> None:
    """The model of one column knows the share of released rows in each bin."""
    inside = [one for one in theirs if one in ours] or ours[:1]
    counts = Counter(ours), Counter(inside)
    total = len(ours) + len(inside)
    share = len(inside) / total
    both = {value: counts[0][value] + counts[1][value] for value in counts[0]}
    expected = sum(n * (counts[1][value] / n - share) ** 2 for value, n in both.items()) / total
    found = propensity(
        pl.DataFrame({"city": pl.Series(ours, dtype=pl.String)}),
        pl.DataFrame({"city": pl.Series(inside, dtype=pl.String)}),
        columns=["city"],
    )
    assert found.pmse == pytest.approx(expected, abs=1e-5)
    assert found.parameters == len(both) - 1
    assert found.expected == pytest.approx((len(both) - 1) * (1 - share) ** 2 * share / total)
    assert found.rows == (len(ours), len(inside))
    if found.parameters:
        assert found.ratio == pytest.approx(found.pmse / found.expected)
        deviation = (2 * found.parameters) ** 0.5 * (1 - share) ** 2 * share / total
        assert found.standardized == pytest.approx((found.pmse - found.expected) / deviation)
    else:
        assert (found.ratio, found.standardized) == (None, None)


def people(rows: int, seed: int, tilt: float = 0.5) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    city = rng.choice(["Bonn", "Oslo", "Rome"], rows, p=[tilt, 0.8 - tilt, 0.2])
    return pl.DataFrame({"city": city, "age": rng.integers(18, 90, rows) + 10 * (city == "Rome")})


def test_of_several_columns_it_is_that_of_a_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    ours, theirs = people(900, 0), people(600, 1, tilt=0.4)
    # No age is that of a quarter of the people, so a bin begins with the first age that a quarter of the rows is below.
    ages = np.unique(ours["age"].to_numpy())
    quarter = [int(4 * (ours["age"] < age).mean()) for age in ages.tolist()]  # type: ignore[operator]
    edges = ages[np.flatnonzero(np.diff(quarter, prepend=0))]
    age = np.searchsorted(edges, np.concatenate([ours["age"].to_numpy(), theirs["age"].to_numpy()]), side="right")
    city = np.concatenate([ours["city"].to_numpy(), theirs["city"].to_numpy()])
    features = np.column_stack(
        [city == "Oslo", city == "Rome", *(age == one for one in range(1, int(age.max()) + 1))]
    ).astype(float)
    labels = np.repeat([0, 1], [900, 600])
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(features, labels)
    expected = np.mean((model.predict_proba(features)[:, 1] - 0.4) ** 2)
    found = propensity(ours, theirs, columns=["city", "age"], bins=4)
    assert found.pmse == pytest.approx(expected, rel=1e-4)
    assert found.parameters == 2 + age.max()


def test_a_sample_of_the_original_has_a_ratio_of_one_and_other_people_of_two() -> None:
    """Fixed seeds: the means of 60 draws lie within 4 standard errors of what Snoke et al. derive."""
    original = people(400, 0)
    ratios = np.empty((2, 60))
    for draw in range(60):
        sample = original.sample(400, with_replacement=True, seed=draw)
        tables = (original, sample), (people(400, 1000 + draw), people(400, 2000 + draw))
        ratios[:, draw] = [propensity(*two, columns=["city", "age"]).ratio for two in tables]
    error = ratios.std(axis=1) / np.sqrt(60)
    assert abs(ratios[0].mean() - 1) < 4 * error[0] < 0.3
    assert abs(ratios[1].mean() - 2) < 4 * error[1] < 0.6


def test_a_part_of_the_rows_has_a_ratio_of_one_too() -> None:
    """The release is a sample of all original rows, and not of those that are compared: the mean knows."""
    original = people(400, 0)
    ratios = np.empty(60)
    for draw in range(60):
        sample = original.sample(400, with_replacement=True, seed=draw)
        found = propensity(original, sample, columns=["city", "age"], rows=200, seed=draw).ratio
        assert found is not None
        ratios[draw] = found
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(60) < 0.3


def test_collinear_columns_count_once() -> None:
    frame = people(300, 0)
    twice = frame.with_columns(town=pl.col("city").str.to_uppercase())
    alone = propensity(frame, people(300, 1), columns=["city"])
    doubled = propensity(
        twice, people(300, 1).with_columns(town=pl.col("city").str.to_uppercase()), columns=["city", "town"]
    )
    assert doubled.parameters == alone.parameters == 2
    assert doubled.pmse == pytest.approx(alone.pmse, abs=1e-8)


def test_a_generalised_value_is_one_of_those_that_it_covers() -> None:
    frame = people(4000, 0)
    blurred = frame.with_columns(age=(pl.col("age") // 10 * 10).map_elements(lambda a: f"[{a}, {a + 9}]", pl.String))
    found = propensity(frame, blurred, columns=["age"], seed=1)
    assert found.ratio is not None
    assert found.ratio < 5
    gone = propensity(frame, frame.with_columns(city=pl.lit("*")), columns=["city"])
    assert gone.ratio is not None
    assert gone.ratio > 20


def test_at_most_so_many_rows_are_compared() -> None:
    found = propensity(people(500, 0), people(90, 1), columns=["city", "age"], rows=100)
    assert found.rows == (100, 90)
    assert found == propensity(people(500, 0), people(90, 1), columns=["city", "age"], rows=100)
    assert found.to_dict()["rows"] == [100, 90]


@pytest.mark.parametrize("options", [{"bins": 0}, {"rows": 0}])
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(sf.errors.OptionError):
        propensity(people(10, 0), people(10, 1), columns=["city"], **options)  # type: ignore[arg-type]

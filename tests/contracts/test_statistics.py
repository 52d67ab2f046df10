"""Every statistic lies within its interval, and every interval holds the truth as often as it says.

The tables are those of many groups at once: none, one and several records, gaps, numbers beyond the bounds, numbers
that are all alike, many records. Where the interval is the noise alone (counts and sums) the coverage is computed from
the distribution of the noise; for the others it is counted, and a test fails by chance with a probability below
1e-10: for all of them together, below 1e-7.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import sfumato as sf
from sfumato.budget import (
    AddedNoise,
    ContingencyTable,
    Count,
    Extreme,
    Histogram,
    Mean,
    Quantile,
    Source,
    Sum,
    Variance,
)
from sfumato.budget.mechanisms.statistics import Answers, Records

BOUNDS = {
    "whole": (0.0, 100.0),
    "decimal": (0.5, 7.25),
    "negative": (-30.0, -2.0),
    "both signs": (-5.0, 20.0),
    "huge": (-1e9, 1e12),
    "large and close": (1e16, 1e16 + 2),
    "narrow": (3.0, 3.0 + 1e-9),
}
EPSILONS = [0.01, 0.1, 1.0, 10.0, 100.0]
CONFIDENCE, ALARM = 0.8, 1e-10
RELATIONS = ["add-remove", "replace-one"]
EVERY_TABLE = pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
EVERY_EPSILON = pytest.mark.parametrize("epsilon", EPSILONS)


def people(bounds: tuple[float, float]) -> list[list[float]]:
    """The numbers of a few tables between bounds, and beyond them."""
    low, high = bounds
    dice, width = np.random.default_rng(7), high - low
    return [
        [],
        [low + width / 3],
        [low, high, high, math.nan, high + 9 * width, -math.inf, low + width / 7],
        [low + width * 0.4321] * 300,  # between two candidates of a quantile
        (low + width * dice.random(40) ** 3).tolist(),
        (low + width * dice.random(400)).tolist() + [math.nan] * 20,
    ]


def in_groups(tables: list[list[float]], times: int) -> Records:
    """All tables, again and again, each time in a group of its own."""
    groups = len(tables) * times
    value = np.concatenate([table for _ in range(times) for table in tables])
    group = np.repeat(np.arange(groups), [len(table) for table in tables] * times)
    return Records(group, value, np.ones(len(value), dtype=np.int64), groups)


def held(table: list[float], bounds: tuple[float, float]) -> list[Fraction]:
    low, high = bounds
    return [Fraction(min(max(one, low), high)) for one in table if one == one]


def holds(found: Answers, truth: list[Fraction | None]) -> list[bool]:
    """Whether each interval holds the truth of its table, for those that have one."""
    ends = zip(found.low.tolist(), found.high.tolist(), strict=True)
    return [
        Fraction(low) <= truth[at % len(truth)] <= Fraction(high)  # type: ignore[operator]
        for at, (low, high) in enumerate(ends)
        if truth[at % len(truth)] is not None
    ]


def assert_covers(right: list[bool], confidence: float = CONFIDENCE) -> None:
    """Fail if the truth is missed more often than the confidence allows; a false alarm is rarer than 1e-10."""
    missed = len(right) - sum(right)
    assert stats.binom(len(right), 1 - confidence).sf(missed - 1) > ALARM, f"{missed} of {len(right)} missed"


def assert_inside(found: Answers) -> None:
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def coverage(noise: AddedNoise, steps: int) -> float:
    """Return the probability that noise strays by no more than so many steps."""
    scale = noise.scale / noise.step
    if noise.delta:
        size = np.exp(-((np.arange(math.ceil(12 * scale) + 12) / scale) ** 2) / 2)
        return float((2 * size[: steps + 1].sum() - 1) / (2 * size.sum() - 1))
    return 1 - 2 * math.exp(-(steps + 1) / scale) / (1 + math.exp(-1 / scale))


@EVERY_EPSILON
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_count_lies_in_its_interval_which_holds_the_truth_whenever_the_noise_is_as_small_as_it_mostly_is(
    epsilon: float, delta: float, relation: str
) -> None:
    count = Count(epsilon=epsilon, delta=delta, relation=relation, grouped=True, confidence=CONFIDENCE)
    half = round(count.noise.half_width(CONFIDENCE))
    assert coverage(count.noise, half) >= CONFIDENCE - 1e-12
    if half and not delta:
        assert coverage(count.noise, half - 1) < CONFIDENCE, "it is no wider than it has to be"
    true = np.tile([0, 1, 7, 420], 100)
    found = count.each(in_groups([[0.0] * 0, [0.0], [0.0] * 7, [0.0] * 420], 100), Source())
    assert_inside(found)
    assert (found.high >= 0).all(), "a count of nobody is the least there is"
    near = np.abs(found.value - true) <= half
    assert ((found.low <= true) & (true <= found.high))[near].all()


@EVERY_EPSILON
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_counts_of_a_histogram_and_of_a_table_lie_in_their_intervals(epsilon: float, relation: str) -> None:
    options: dict[str, Any] = {"epsilon": epsilon, "relation": relation, "confidence": CONFIDENCE}
    cells = tuple(range(200))
    for statistic, values in (
        (Histogram(**options, domain=cells), [0, 0, 3]),
        (Histogram(**options, edges=(*cells, 200)), [0.5, 0.0, 3.0]),
        (ContingencyTable(**options, domains=(cells, ("x",))), [[0, 0, 3], ["x"] * 3]),
    ):
        half = round(statistic.noise.half_width(CONFIDENCE))
        assert coverage(statistic.noise, half) >= CONFIDENCE - 1e-12
        for true, answer in zip([2, 0, 0, 1] + [0] * 196, statistic.answer(values).values(), strict=True):
            assert answer.low <= answer.value <= answer.high
            assert abs(answer.value - true) > half or answer.low <= true <= answer.high


@EVERY_TABLE
@EVERY_EPSILON
def test_a_sum_lies_in_its_interval_which_holds_the_truth_whenever_the_noise_is_as_small_as_it_mostly_is(
    bounds: tuple[float, float], epsilon: float
) -> None:
    for delta in (0.0, 1e-6):
        total = Sum(epsilon=epsilon, delta=delta, bounds=bounds, confidence=CONFIDENCE)
        half = total.noise.half_width(CONFIDENCE)
        assert delta or coverage(total.noise, round(half / total.noise.step)) >= CONFIDENCE - 1e-12
        tables = people(bounds)
        found = total.each(in_groups(tables, 20), Source())
        assert_inside(found)
        truth = [sum(held(table, bounds), Fraction(0)) for table in tables]
        far = [abs(Fraction(value) - truth[at % len(truth)]) > half for at, value in enumerate(found.value.tolist())]
        assert all(right or off for right, off in zip(holds(found, list(truth)), far, strict=True))


def test_a_sum_of_many_small_numbers_does_not_add_up_their_roundings() -> None:
    """Each of them is a third of a step of the grid, and their sum many steps."""
    total = Sum(epsilon=1.0, bounds=(0, 1))
    records = Records(np.zeros(1, dtype=np.int64), np.array([total.noise.step / 3]), np.array([3 * 10**12]), 1)
    assert records.totals(records.value, total.noise.step) == [pytest.approx(10**12, rel=1e-9)]


@EVERY_TABLE
@EVERY_EPSILON
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_mean_and_a_variance_lie_in_intervals_that_hold_the_truth(
    bounds: tuple[float, float], epsilon: float, relation: str
) -> None:
    tables, times = people(bounds), 60
    records = in_groups(tables, times)
    means: list[Fraction | None] = []
    variances: list[Fraction | None] = []
    for table in tables:
        known = held(table, bounds)
        mean = sum(known, Fraction(0)) / len(known) if known else None
        means.append(mean)
        variances.append(None if mean is None else sum((one - mean) ** 2 for one in known) / len(known))
    for kind, truth in ((Mean, means), (Variance, variances)):
        found = kind(epsilon=epsilon, bounds=bounds, relation=relation, grouped=True, confidence=CONFIDENCE).each(
            records, Source()
        )
        assert_inside(found)
        assert_covers(holds(found, truth))
        for at in range(len(tables)):  # no table is missed that the others make up for
            one = Answers(found.value[at :: len(tables)], found.low[at :: len(tables)], found.high[at :: len(tables)])
            assert_covers(holds(one, [truth[at]]))


@EVERY_TABLE
@pytest.mark.parametrize(
    ("epsilon", "share", "whole"),
    [(0.01, 0.9, False), (0.1, 0.5, True), (1.0, 0.02, False), (10, 0.9, True), (100, 0.5, False)],
)
def test_a_quantile_lies_in_its_interval_which_holds_the_truth(
    bounds: tuple[float, float], epsilon: float, share: float, whole: bool
) -> None:
    tables, confidence = people(bounds), 0.99
    quantile = Quantile(epsilon=epsilon, share=share, bounds=bounds, whole=whole, confidence=confidence)
    found = quantile.each(in_groups(tables, 6), Source())
    assert_inside(found)
    for at, table in enumerate(tables):
        known = held(table, bounds)
        rank = Fraction(str(share)) * len(known)
        ends = zip(found.low[at :: len(tables)].tolist(), found.high[at :: len(tables)].tolist(), strict=True)
        assert_covers(
            [sum(one < low for one in known) <= rank <= sum(one <= high for one in known) for low, high in ends],
            confidence,
        )


@EVERY_TABLE
@pytest.mark.parametrize(
    ("epsilon", "share", "whole"), [(0.1, 0, True), (1.0, 1, False), (10, 0, False), (100, 1, True)]
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_minimum_and_a_maximum_are_never_beyond_the_numbers_but_as_often_as_they_say(
    bounds: tuple[float, float], epsilon: float, share: int, whole: bool, relation: str
) -> None:
    tables, confidence = people(bounds), 0.9
    extreme = Extreme(
        epsilon=epsilon, share=share, bounds=bounds, whole=whole, confidence=confidence, relation=relation, grouped=True
    )
    found = extreme.each(in_groups(tables, 15), Source())
    assert_inside(found)
    assert (found.value == (found.low if share else found.high)).all()
    for at, table in enumerate(tables):
        if known := held(table, bounds):
            inner = found.value[at :: len(tables)].tolist()
            assert_covers([max(known) >= one if share else min(known) <= one for one in inner], confidence)


@pytest.mark.parametrize("share", [0, 1])
def test_about_as_many_numbers_lie_beyond_a_minimum_as_are_meant_to(share: int) -> None:
    """Of 300 draws, each is right with a probability of 0.9: fewer than 0.75 of them are rarer than 1e-10."""
    numbers = np.linspace(0, 1000, 2001)
    extreme = Extreme(epsilon=1.0, share=share, bounds=(-500, 1500), confidence=0.9)
    records = in_groups([numbers.tolist()], 300)
    value = extreme.each(records, Source()).value
    beyond = np.array([(numbers >= one).sum() if share else (numbers <= one).sum() for one in value])
    assert ((beyond >= 1) & (beyond <= 2 * extreme.rank_error)).mean() > 0.75


@EVERY_EPSILON
@pytest.mark.parametrize("kind", [Count, Sum, Mean, Variance, Quantile, Extreme])
def test_no_group_and_a_single_group_are_answered_like_several(kind: Any, epsilon: float) -> None:
    nobody = Records(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64), 0)
    for bounds in BOUNDS.values():
        statistic = kind(epsilon=epsilon, **({} if kind is Count else {"bounds": bounds}))
        assert len(statistic.each(nobody).value) == 0
        for table in people(bounds):
            answer = statistic.answer(table)
            assert answer.low <= answer.value <= answer.high


def test_every_answer_to_a_question_lies_in_its_interval(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the groups are empty, and with so much noise half of their counts come out negative."""
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path))
    table = pl.DataFrame({"ward": ["a", "b", "b"], "creatinine": [0.9, 1.34, None]})
    schema = sf.Schema(
        [sf.Column(name="ward", domain=[f"w{one}" for one in range(100)]), sf.Column(name="creatinine", bounds=(-2, 5))]
    )
    sf.Ledger.grant(table, epsilon=100)
    for question in (
        "count",
        "sum of creatinine",
        "mean of creatinine",
        "histogram of creatinine in 2 bins",
        "variance of creatinine",
        "max of creatinine",
    ):
        rows = sf.query(table, f"{question} by ward", epsilon=0.1, schema=schema).rows
        assert len(rows) >= 101
        assert all(row.interval[0] <= row.value <= row.interval[1] for row in rows)
        if "count" in question or "histogram" in question:
            assert all(row.interval[1] >= 0 for row in rows)
            assert any(row.value < 0 for row in rows)

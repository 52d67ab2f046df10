"""Statistics with noise: private by what they claim, right on average, and honest about their intervals."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    AddedNoise,
    ContingencyTable,
    Count,
    DiscreteLaplace,
    Histogram,
    Mean,
    Quantile,
    Relation,
    Source,
    Sum,
    Variance,
    spent,
)
from sfumato.budget.mechanisms.statistics import Answers, OfRecords, Records, Statistic
from tests.budget.chance import assert_epsilon, assert_mean, assert_variance, least_epsilon

RUNS = 20_000
AGES = np.random.default_rng(0).integers(18, 90, 2_000).astype(np.float64)
EVERY: list[Statistic] = [
    make(relation=relation, **options)
    for relation in ("add-remove", "replace-one")
    for make, options in (
        (Count, {"epsilon": 0.7}),
        (Sum, {"epsilon": 0.7, "bounds": (-5, 20)}),
        (Mean, {"epsilon": 0.7, "bounds": (-5, 20)}),
        (Variance, {"epsilon": 0.7, "bounds": (-5, 20)}),
        (Histogram, {"epsilon": 0.7, "domain": ("a", "b")}),
        (Histogram, {"epsilon": 0.7, "edges": (0, 1, 5)}),
        (ContingencyTable, {"epsilon": 0.7, "domains": (("a", "b"), (1, 2, 3))}),
        (Quantile, {"epsilon": 0.7, "bounds": (-5, 20)}),
    )
]


@pytest.mark.parametrize("statistic", EVERY, ids=lambda one: f"{type(one).__name__}-{one.relation}")
def test_a_statistic_costs_what_was_asked_for_before_it_sees_data(statistic: Statistic) -> None:
    cost = spent(statistic.event, 0)
    assert 0.999 * 0.7 < cost.epsilon <= 0.7
    assert cost.relation is statistic.relation is statistic.event.relation


@pytest.mark.parametrize("kind", [Count, Sum, Mean, Variance, Histogram])
def test_with_a_delta_the_noise_is_gaussian_and_within_both(kind: type[Statistic]) -> None:
    options: dict[str, Any] = {Count: {}, Histogram: {"domain": ("a", "b")}}.get(kind, {"bounds": (0, 10)})
    statistic = kind(epsilon=0.7, delta=1e-5, **options)
    assert spent(statistic.event, 1e-5).epsilon <= 0.7


def draws(statistic: Statistic, values: Any, runs: int) -> list[Any]:
    source = Source()
    return [statistic.answer(values, source) for _ in range(runs)]


def at_once(statistic: OfRecords, values: Any, runs: int = RUNS) -> Answers:
    """Answer for as many groups of the same records: much faster, and `answer` does the same for one group."""
    once, times = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    records = Records(np.arange(runs).repeat(len(once)), np.tile(once, runs), np.tile(times, runs), runs)
    return statistic._each(records, Source())


class TestEmpiricalEpsilon:
    """On two neighbouring tables, an answer is about as likely; a claim 1.5 times too small would be caught."""

    def test_count(self) -> None:
        here, there = (
            sum(one.value >= 10 for one in draws(Count(epsilon=1.0), np.arange(20) < size, 6_000)) for size in (10, 9)
        )
        assert_epsilon(here, there, 6_000, 1.0)

    def test_sum(self) -> None:
        total = Sum(epsilon=1.0, bounds=(-5, 20))
        here, there = (int((at_once(total, values).value >= 21).sum()) for values in ([1.0, 99.0], [1.0]))
        assert_epsilon(here, there, RUNS, 1.0)

    def test_sum_under_replace_one(self) -> None:
        total = Sum(epsilon=1.0, bounds=(-5, 20), relation=Relation.REPLACE_ONE)
        here, there = (int((at_once(total, values).value >= 20).sum()) for values in ([99.0], [-99.0]))
        assert_epsilon(here, there, RUNS, 1.0)

    def test_histogram(self) -> None:
        counts = Histogram(epsilon=1.0, domain=("a", "b"))
        here, there = (
            sum(one["a"].value >= 2 for one in draws(counts, values, 6_000)) for values in (["a", "a", "b"], ["a", "b"])
        )
        assert_epsilon(here, there, 6_000, 1.0)

    def test_contingency_table_under_replace_one(self) -> None:
        table = ContingencyTable(epsilon=2.0, domains=(("a", "b"), ("x",)), relation="replace-one")
        here, there = (
            sum(one["a", "x"].value >= 1 and one["b", "x"].value <= 0 for one in draws(table, [[label], ["x"]], 6_000))
            for label in ("a", "b")
        )
        assert_epsilon(here, there, 6_000, 2.0)

    @pytest.mark.parametrize(("kind", "epsilon"), [(Mean, 2.0), (Variance, 3.0)])
    def test_mean_and_variance_as_a_whole(
        self, kind: type[Mean | Variance], epsilon: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All noisy numbers that an answer is made of, seen together: no answer can tell more."""
        drawn: list[list[float]] = []
        release = AddedNoise.release_steps

        def noted(noise: AddedNoise, steps: Any, source: Source | None = None) -> list[int]:
            noisy = release(noise, steps, source)
            drawn.append([one * noise.step for one in noisy])
            return noisy

        monkeypatch.setattr(AddedNoise, "release_steps", noted)
        statistic = kind(epsilon=epsilon, bounds=(0, 10))
        at_once(statistic, [10.0])
        here, drawn = np.array(drawn).T, []
        at_once(statistic, [])
        there = np.array(drawn).T
        assert here.shape == there.shape == (RUNS, len(statistic.noises))
        # The record adds 1 to the count and to every sum: so does it to none less.
        assert_epsilon(int((here >= 1).all(axis=1).sum()), int((there >= 1).all(axis=1).sum()), RUNS, epsilon)

    def test_the_value_of_a_quantile(self) -> None:
        """A record at 0 makes few candidates right and all the others more wrong than they were."""
        median, runs = Quantile(epsilon=6.0, bounds=(0, 201), candidates=202), 21_000

        class Skipped:  # the choices of the ends: drawn apart, and paid for apart
            epsilon, sensitivity = median.end.epsilon, median.end.sensitivity

            def choose(self, scores: Any, source: Source) -> int:
                return 0

        median.__dict__["end"] = Skipped()
        here, there = (at_once(median, seen, runs).value for seen in ([0.0, 5.0], [5.0]))
        here, there = (int(((one >= 1) & (one <= 4)).sum()) for one in (here, there))
        assert_epsilon(here, there, runs, median.choice.epsilon)

    def test_mean_by_its_parts(self) -> None:
        mean = Mean(epsilon=1.0, bounds=(0, 10))
        for noise, change in zip(mean.noises, (1, 1.0), strict=True):
            with_record, without = noise.release(np.full(60_000, change)), noise.release(np.zeros(60_000))
            assert_epsilon(int((with_record >= change).sum()), int((without >= change).sum()), 60_000, 0.5)

    def test_mean_and_variance_as_a_whole_stay_below_their_claims(self) -> None:
        for statistic in (Mean(epsilon=1.0, bounds=(0, 10)), Variance(epsilon=1.0, bounds=(0, 10))):
            here, there = (at_once(statistic, values, 5_000).value for values in ([0.0, 10.0], [0.0]))
            for limit in (1.0, 5.0, 9.0):
                for count, other in ((here > limit, there > limit), (there > limit, here > limit)):
                    ratio = (count.mean() + 1e-9) / (other.mean() + 1e-9)
                    assert ratio < math.e * (1 + 6 * math.sqrt(2 / max(1, int(other.sum()))))

    def test_the_value_and_the_interval_of_a_quantile_together_stay_below_the_claim(self) -> None:
        median, runs = Quantile(epsilon=1.5, bounds=(0, 1), candidates=2), 8_000
        here, there = (
            Counter(zip(one.low.tolist(), one.value.tolist(), one.high.tolist(), strict=True))
            for one in (at_once(median, values, runs) for values in ([0.0, 1.0, 1.0], [0.0, 1.0]))
        )
        for answer in here | there:
            assert least_epsilon(here[answer], there[answer], runs) <= 1.5
            assert least_epsilon(there[answer], here[answer], runs) <= 1.5


class TestEstimators:
    """Right on average, with the variance that the noise says."""

    def test_count(self) -> None:
        found = np.array([one.value for one in draws(Count(epsilon=0.5), 100, 5_000)], dtype=np.float64)
        deviation = Count(epsilon=0.5).noise.standard_deviation
        assert_mean(found, 100, deviation)
        assert_variance(found, deviation**2)

    def test_sum(self) -> None:
        total = Sum(epsilon=0.5, bounds=(0, 100))
        found = np.array([one.value for one in draws(total, AGES, 5_000)])
        assert_mean(found, AGES.sum(), total.noise.standard_deviation)
        assert_variance(found, total.noise.standard_deviation**2)

    def test_mean(self) -> None:
        mean = Mean(epsilon=1.0, bounds=(0, 100))
        found = at_once(mean, AGES, 5_000).value
        count, total = (noise.standard_deviation / len(AGES) for noise in mean.noises)
        centre = (AGES.mean() - 50) / 50
        deviation = 50 * math.sqrt(total**2 + (centre * count) ** 2)
        assert_mean(found, AGES.mean(), deviation * 1.1)  # the bias is a thousandth of that
        assert_variance(found, deviation**2, kurtosis=7)

    def test_variance(self) -> None:
        variance = Variance(epsilon=2.0, bounds=(0, 100))
        found = at_once(variance, AGES, 5_000).value
        count, first, second = (noise.standard_deviation / len(AGES) for noise in variance.noises)
        mean, square = (AGES.mean() - 50) / 50, np.mean(((AGES - 50) / 50) ** 2)
        slope = mean**2 * 2 - (2 * square - 1) / 2  # how the result changes with the relative error of the count
        deviation = 2500 * math.sqrt((second / 2) ** 2 + (2 * mean * first) ** 2 + (slope * count) ** 2)
        assert_mean(found, AGES.var(), deviation * 1.1)
        assert_variance(found, deviation**2, kurtosis=8)

    def test_histogram(self) -> None:
        counts = Histogram(epsilon=0.5, edges=(0, 30, 60, 90))
        answers = draws(counts, AGES, 2_000)
        for (low, high), true in zip(counts.answer(AGES), np.histogram(AGES, (0, 30, 60, 90))[0], strict=True):
            found = np.array([one[low, high].value for one in answers], dtype=np.float64)
            assert_mean(found, true, counts.noise.standard_deviation)
            assert_variance(found, counts.noise.standard_deviation**2)

    def test_quantile(self) -> None:
        median = Quantile(epsilon=3.0, bounds=(0, 100), candidates=101)
        found = np.array([one.value for one in draws(median, AGES, 300)])
        assert np.abs(found - np.median(AGES)).mean() < 1.5


@pytest.mark.parametrize(
    "statistic",
    [
        Count(epsilon=0.5),
        Sum(epsilon=0.5, bounds=(0, 100)),
        Mean(epsilon=0.5, bounds=(0, 100)),
        Variance(epsilon=0.5, bounds=(0, 100)),
        Quantile(epsilon=0.5, bounds=(0, 100), share=0.1, candidates=501),
        Quantile(epsilon=0.5, bounds=(0, 100), share=0.5, candidates=501),
        Quantile(epsilon=0.1, bounds=(0, 100), share=0.99, candidates=501),
        Sum(epsilon=0.5, delta=1e-5, bounds=(0, 100)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_interval_holds_the_statistic_at_least_as_often_as_it_says(statistic: Any) -> None:
    runs, values = 1_500, AGES
    true = {
        Count: lambda: len(values),
        Sum: values.sum,
        Mean: values.mean,
        Variance: values.var,
        Quantile: lambda: np.quantile(values, statistic.share, method="inverted_cdf"),
    }[type(statistic)]()
    given_values = np.ones(len(values)) if isinstance(statistic, Count) else values
    found = at_once(statistic, given_values, runs)
    held = np.mean((found.low <= true) & (true <= found.high))
    assert held > 0.95 - 6 * math.sqrt(0.95 * 0.05 / runs)


def test_a_number_outside_of_the_bounds_is_cut_off_and_a_missing_one_is_nothing() -> None:
    total = Sum(epsilon=1e6, bounds=(0, 10))
    assert total.answer([5.0, 1e300, -3.0, math.nan, math.inf]).value == pytest.approx(25, abs=0.01)
    mean = Mean(epsilon=1e6, bounds=(0, 10))
    assert mean.answer([4.0, 6.0, math.nan]).value == pytest.approx(5, abs=0.01)


def test_a_value_outside_of_the_domain_is_not_counted() -> None:
    counts = Histogram(epsilon=1e3, domain=("a", "b")).answer(["a", "c", None, "a"])
    assert {label: one.value for label, one in counts.items()} == {"a": 2, "b": 0}


def test_the_last_bin_holds_both_of_its_ends() -> None:
    counts = Histogram(epsilon=1e3, edges=(0, 1, 2)).answer([0.0, 1.0, 2.0, 2.5, -1.0, math.nan])
    assert [one.value for one in counts.values()] == [1, 2]


def test_a_quantile_of_no_numbers_is_an_answer_between_the_bounds() -> None:
    answer = Quantile(epsilon=1.0, bounds=(3, 4)).answer([])
    assert 3 <= answer.low <= answer.value <= answer.high <= 4
    assert Mean(epsilon=1.0, bounds=(3, 4)).answer([]).low >= 3


@given(
    st.lists(st.floats(-50, 50), max_size=30), st.integers(0, 29), st.floats(-50, 50), st.sampled_from([0.1, 0.5, 1])
)
def test_one_record_changes_the_rank_of_no_candidate_by_more_than_one(
    values: list[float], at: int, other: float, share: float
) -> None:
    """The sensitivity of the scores of a quantile, under both relations."""
    quantile = Quantile(epsilon=1.0, bounds=(-50, 50), share=share, candidates=21)
    scores: list[Any] = []

    class Seen:
        epsilon, sensitivity = 1.0, quantile.choice.sensitivity

        def choose(self, known: Any, source: Any) -> int:
            scores.append(known / quantile._share.denominator)  # in records
            return 0

    quantile.__dict__.update(choice=Seen(), end=Seen())  # what is computed once and kept
    changed = [other if place == at else value for place, value in enumerate(values)]
    for table in (values, [*values, other], changed):
        quantile.answer(table)
    before, more, replaced = scores[:3], scores[3:6], scores[6:]
    for one, two, three in zip(before, more, replaced, strict=True):
        assert np.abs(one - two).max() <= max(share, 1 - share) + 1e-9
        assert np.abs(one - three).max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", [Sum, Mean, Variance, Quantile])
def test_bounds_that_are_not_declared_are_refused(kind: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="need public bounds"):
        kind(epsilon=1.0)
    for bounds in ((1, 0), (0, math.inf), (0, 0)):
        with pytest.raises(sf.errors.OptionError, match="the lower below the upper"):
            kind(epsilon=1.0, bounds=bounds)


def test_domains_that_are_not_declared_are_refused() -> None:
    for make in (lambda: Histogram(epsilon=1.0), lambda: ContingencyTable(epsilon=1.0)):
        with pytest.raises(sf.errors.OptionError, match="need public domains"):
            make()
    with pytest.raises(sf.errors.OptionError, match="each only once"):
        Histogram(epsilon=1.0, domain=("a", "a"))
    with pytest.raises(sf.errors.OptionError, match="edges of bins"):
        Histogram(epsilon=1.0, edges=(0, 0))
    with pytest.raises(sf.errors.OptionError, match="not both"):
        Histogram(epsilon=1.0, domain=("a",), edges=(0, 1))


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, "1"])
def test_an_epsilon_that_is_no_positive_number_is_refused(epsilon: Any) -> None:
    with pytest.raises(sf.errors.OptionError, match="epsilon must be a finite number above 0"):
        Count(epsilon=epsilon)


def test_a_fixed_seed_marks_an_answer_as_not_private() -> None:
    assert Count(epsilon=1.0).answer(5, Source(insecure_seed=1)).to_dict()["note"] == "reproducible, not private"
    assert "note" not in Count(epsilon=1.0).answer(5).to_dict()


def test_all_cells_of_a_table_cost_what_one_costs() -> None:
    table = ContingencyTable(epsilon=0.5, domains=(tuple(range(50)), tuple(range(50))))
    assert table.event == DiscreteLaplace(2.0, 1)


@pytest.mark.parametrize("kind", [Mean, Variance])
def test_bounds_that_are_large_and_close_give_no_record_more_weight(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of 1e16 and 1e16 + 2 is no float: rounded, it would let a record count twice."""
    summed: list[int] = []
    monkeypatch.setattr(AddedNoise, "release_steps", lambda self, steps, source=None: summed.extend(steps) or steps)
    statistic = kind(epsilon=1.0, bounds=(1e16, 1e16 + 2))
    for value in (1e16, 1e16 + 2):
        statistic.answer([value])
    assert max(map(abs, summed)) <= max(noise.units for noise in statistic.noises)


def test_bounds_without_a_grid_are_refused() -> None:
    for kind in (Sum, Mean, Variance, Quantile):
        with pytest.raises(sf.errors.OptionError, match="finite and within"):
            kind(epsilon=1.0, bounds=(-1e308, 1e308))

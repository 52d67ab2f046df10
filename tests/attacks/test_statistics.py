"""The statistics of attacks, against their definitions written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.attacks import AttackResult, Baseline, Scores
from sfumato.attacks.statistics import Decisions, Roc, clopper_pearson, crossfit, precision_at, stability, wilson
from sfumato.errors import InputError, OptionError

scores = st.lists(st.integers(-3, 3).map(float) | st.sampled_from([math.inf, -math.inf]), min_size=1, max_size=30)


@given(scores, scores)
def test_the_auc_is_the_share_of_pairs_that_are_in_order(inside: list[float], outside: list[float]) -> None:
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in inside for b in outside)
    assert Roc(inside, outside).auc == pytest.approx(wins / len(inside) / len(outside), abs=1e-12)


@given(scores, scores)
def test_the_auc_of_the_opposite_is_the_rest(inside: list[float], outside: list[float]) -> None:
    assert Roc(inside, outside).auc + Roc(outside, inside).auc == pytest.approx(1.0)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.lists(st.integers(0, 12), min_size=40, max_size=90),
    st.sampled_from([0.3, 0.5, 0.9]),
)
def test_a_rate_is_that_of_the_best_threshold_with_so_few_false_alarms(
    inside: list[int], outside: list[int], fpr: float
) -> None:
    rate = Roc(inside, outside).rate_at(fpr)
    possible = [
        (sum(x >= t for x in inside), sum(x >= t for x in outside))
        for t in range(14)
        if sum(x >= t for x in outside) <= fpr * len(outside)
    ]
    if math.floor(fpr * len(outside) + 1e-9) < 20:
        assert rate is None
    else:
        assert rate is not None
        assert rate.tpr == max(hits for hits, _ in possible) / len(inside)
        assert rate.false_positives <= fpr * len(outside)
        assert rate.tpr in rate.interval


def test_all_scores_alike_show_nothing() -> None:
    roc = Roc(np.zeros(300), np.zeros(300))
    rate = roc.rate_at(0.1)
    assert roc.auc == 0.5
    assert rate is not None
    assert (rate.tpr, rate.false_positives) == (0.0, 0)
    assert Decisions.of(*crossfit(np.zeros(300), np.zeros(300), seed=0)).advantage == 0


def test_a_thousandth_is_reported_from_twenty_thousand_nonmembers_on() -> None:
    assert Roc(np.arange(100), np.arange(19_999)).rate_at(0.001) is None
    assert Roc(np.arange(100), np.arange(20_000)).rate_at(0.001) is not None


@pytest.mark.parametrize(("count", "trials"), [(0, 1), (1, 1), (3, 10), (10, 10), (500, 1000)])
def test_the_interval_of_a_rate_is_that_of_clopper_and_pearson(count: int, trials: int) -> None:
    ours, theirs = clopper_pearson(count, trials), stats.binomtest(count, trials).proportion_ci(method="exact")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize(("count", "trials"), [(0, 5), (3, 10), (10, 10), (500, 1000)])
def test_the_interval_of_wilson_is_scipys(count: int, trials: int) -> None:
    ours, theirs = wilson(count / trials, trials), stats.binomtest(count, trials).proportion_ci(method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("kind", ["normal", "few members stand out", "ties", "unequal numbers"])
def test_the_interval_of_the_auc_holds_whatever_the_scores_are(kind: str) -> None:
    """Of 2,000 intervals at 95 % at most 7.5 % miss: by chance, if 5 % did, less than 1e-6 of the time."""
    rng = np.random.default_rng(7)
    misses = 0
    for _ in range(2000):
        m, n = (40, 400) if kind == "unequal numbers" else (100, 100)
        inside, outside = rng.normal(size=m), rng.normal(size=n)
        truth = 0.5
        if kind == "few members stand out":
            inside[rng.random(m) < 0.2] = 9.0
            truth = 0.2 + 0.8 * 0.5
        elif kind == "ties":
            inside, outside = np.round(inside), np.round(outside)
        elif kind == "normal":
            inside += 2.0
            truth = float(stats.norm.cdf(2.0 / math.sqrt(2)))
        misses += truth not in Roc(inside, outside).auc_interval()
    assert misses <= 150


@given(st.floats(0.01, 0.99), st.floats(0, 1), st.floats(0, 1))
def test_precision_follows_from_bayes(prior: float, tpr: float, fpr: float) -> None:
    called = prior * tpr + (1 - prior) * fpr
    assert precision_at(prior, tpr, fpr) == (pytest.approx(prior * tpr / called) if called else 0.0)


def test_a_threshold_is_never_chosen_on_the_records_that_it_judges() -> None:
    """Scores without meaning: a threshold chosen on the same 20 records would be right for 65 % of them."""
    rng = np.random.default_rng(3)
    found = [Decisions.of(*crossfit(rng.normal(size=10), rng.normal(size=10), seed=s)).advantage for s in range(4000)]
    assert abs(float(np.mean(found))) < 6 * float(np.std(found)) / math.sqrt(len(found))


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=2, max_size=6))
def test_stability_is_the_share_of_agreeing_pairs(runs: list[list[bool]]) -> None:
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    agreed = np.mean([[x == y for x, y in zip(a, b, strict=True)] for a, b in pairs])
    assert stability(runs) == pytest.approx(float(agreed))


@given(scores, scores, st.integers(0, 99))
def test_a_band_has_its_curve_inside_or_at_its_edge(inside: list[float], outside: list[float], seed: int) -> None:
    low, high = Roc(inside, outside).band([0.1, 0.5], replicates=20, seed=seed)
    assert np.all((low >= 0) & (low <= high) & (high <= 1))


def test_what_is_not_a_score_is_refused() -> None:
    with pytest.raises(InputError, match="1 of 2 scores of members are NaN"):
        Roc([math.nan, 1], [0])
    with pytest.raises(InputError, match="needs scores of non-members, and got none"):
        Roc([1], [])
    with pytest.raises(InputError, match="at least two members"):
        crossfit([1], [1, 2], seed=0)
    with pytest.raises(InputError, match="at least two runs"):
        stability([[True]])
    with pytest.raises(OptionError):
        clopper_pearson(3, 2)


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_the_chance_of_so_many_right_guesses_is_that_of_fishers_exact_test(
    inside: int, outside: int, data: Any
) -> None:
    hits, alarms = data.draw(st.integers(0, inside)), data.draw(st.integers(0, outside))
    table = [[hits, inside - hits], [alarms, outside - alarms]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert Decisions(hits, inside, alarms, outside).chance() == pytest.approx(expected, rel=1e-9)


def test_rare_right_guesses_about_members_only_are_a_leak() -> None:
    """65 of 1,000 right guesses against 5 are no accident, though nearly all pairs tie."""
    members, others = (np.arange(1000) < number for number in (65, 5))
    scores = Scores(members.astype(float), others.astype(float), Baseline(0.001, "a random row"))
    found = AttackResult("linkability", "Same row?", scores, (members, others), guesses=True, seed=0)
    assert found.auc == 0.53
    assert found.leaks
    same = AttackResult("linkability", "Same row?", scores, (members, members), guesses=True, seed=0)
    assert not same.leaks


@given(
    st.lists(st.integers(0, 4).map(float), min_size=8, max_size=40),
    st.lists(st.integers(0, 4).map(float), min_size=8, max_size=40),
)
def test_the_chance_of_an_order_is_that_of_mann_and_whitney(inside: list[float], outside: list[float]) -> None:
    chance = Roc(inside, outside).chance()
    kinds = len({*inside, *outside})
    if kinds == 1:
        assert chance == 1.0
    elif kinds == 2:
        high = max(inside + outside)
        table = [[sum(one == high for one in group), sum(one != high for one in group)] for group in (inside, outside)]
        assert chance == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue, rel=1e-6)
    else:
        known = stats.mannwhitneyu(inside, outside, alternative="greater", method="asymptotic")
        assert chance == pytest.approx(known.pvalue, rel=1e-9)


def test_a_small_gap_of_many_records_is_found() -> None:
    """1.3 % of 6,480 others are predicted wrong, and no member: far more than chance explains, at an AUC of .507."""
    roc = Roc(np.ones(6480), np.arange(6480) >= 84)
    assert round(roc.auc, 4) == 0.5065
    assert roc.chance() < 1e-20


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_scores_without_meaning_are_rarely_found(values: int) -> None:
    """Of 2,000 draws at 5 %, more than 150 happen by chance less than once in a million times."""
    rng = np.random.default_rng(11)
    draws = (rng.integers(0, values, (2, 60)) for _ in range(2000))
    assert sum(Roc(inside, outside).chance() < 0.05 for inside, outside in draws) <= 150

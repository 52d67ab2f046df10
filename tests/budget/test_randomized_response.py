"""Perturbed answers: nobody's report tells much, all reports together tell the truth."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.budget import (
    CategoryResponse,
    CoinResponse,
    LocalMechanism,
    NumberResponse,
    RandomizedResponse,
    Relation,
    Source,
    UnaryResponse,
    spent,
)
from tests.budget.chance import assert_epsilon, assert_mean, assert_variance

RUNS = 150_000
PEOPLE = 2_000
DOMAIN = ("a", "b", "c", "d")
LABELS = ["a"] * 1_000 + ["b"] * 600 + ["c"] * 400
EVERY: list[LocalMechanism] = [
    CoinResponse(),
    CoinResponse.for_epsilon(1.0),
    CategoryResponse(epsilon=1.0, domain=DOMAIN),
    UnaryResponse(epsilon=1.0, domain=DOMAIN),
    NumberResponse(epsilon=1.0, bounds=(0, 10)),
    NumberResponse(epsilon=1.0, delta=1e-5, bounds=(0, 10)),
    NumberResponse(epsilon=1.0, bounds=(0, 10), missing=True),
]


@pytest.mark.parametrize("response", EVERY, ids=lambda one: type(one).__name__)
def test_a_report_hides_any_value_behind_any_other(response: LocalMechanism) -> None:
    assert response.event.relation is Relation.REPLACE_ONE
    assert spent(response.event, 1e-5).epsilon <= getattr(response, "epsilon", math.inf) + 1e-12


def test_two_fair_coins_have_an_epsilon_of_log_3() -> None:
    assert CoinResponse().epsilon == pytest.approx(math.log(3))
    assert CoinResponse().probabilities == (0.25, 0.75)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
def test_coins_for_an_epsilon_keep_it(epsilon: float) -> None:
    assert epsilon * 0.999 < CoinResponse.for_epsilon(epsilon).epsilon <= epsilon


class TestEmpiricalEpsilon:
    def test_two_coins(self) -> None:
        coins = CoinResponse()
        here, there = (int(coins.perturb(np.full(RUNS, truth)).sum()) for truth in (True, False))
        assert_epsilon(here, there, RUNS, coins.epsilon)

    def test_categories(self) -> None:
        response = CategoryResponse(epsilon=1.0, domain=DOMAIN)
        here, there = (response.perturb([label] * RUNS).count("a") for label in ("a", "b"))
        assert_epsilon(here, there, RUNS, 1.0)

    def test_rows_of_yes_and_no(self) -> None:
        response = UnaryResponse(epsilon=1.0, domain=DOMAIN)
        here, there = (
            int((rows[:, 0] & ~rows[:, 1]).sum()) for rows in (response.perturb([label] * RUNS) for label in ("a", "b"))
        )
        assert_epsilon(here, there, RUNS, 1.0)

    def test_numbers(self) -> None:
        response = NumberResponse(epsilon=1.0, bounds=(0, 10))
        here, there = (int((response.perturb(np.full(RUNS, value)) >= 10).sum()) for value in (99.0, -99.0))
        assert_epsilon(here, there, RUNS, 1.0)

    def test_numbers_with_a_delta(self) -> None:
        response = NumberResponse(epsilon=1.0, delta=0.02, bounds=(0, 10))
        limit = response.noise.scale**2 / 10 + 5  # where the loss is epsilon
        here, there = (int((response.perturb(np.full(RUNS, value)) >= limit).sum()) for value in (10.0, 0.0))
        assert_epsilon(here, there, RUNS, 1.0, 0.02)

    def test_a_missing_number_and_the_largest(self) -> None:
        """The worst report: a number beyond the bounds, which is not missing."""
        response = NumberResponse(epsilon=1.0, bounds=(0, 10), missing=True)
        here, there = (int((response.perturb(np.full(RUNS, value)) >= 10).sum()) for value in (10.0, math.nan))
        assert_epsilon(here, there, RUNS, 1.0)
        gap, number = (int(np.isnan(response.perturb(np.full(RUNS, value))).sum()) for value in (math.nan, 3.0))
        assert_epsilon(gap, number, RUNS, 0.5)


@pytest.mark.parametrize("bounds", [(0, 10), (-3.3, 1e6), (1e15, 1e15 + 2), (0.1, 0.1 + 1e-9)])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_noise_and_coins_hide_a_missing_number_with_epsilon(bounds: tuple[float, float], epsilon: float) -> None:
    """In whole steps: from the middle to a bound by the noise, and the rest by the coins."""
    response = NumberResponse(epsilon=epsilon, bounds=bounds, missing=True)
    noise = response.noise
    low, middle, high = (round(one / noise.step) for one in (bounds[0], sum(bounds) / 2, bounds[1]))
    hidden = Fraction(max(middle - low, high - middle)) * Fraction(noise.step) / Fraction(noise.scale)
    whole = Fraction(response.coins.epsilon) + hidden
    assert 0.98 * epsilon < whole <= epsilon
    assert Fraction(high - low) * Fraction(noise.step) / Fraction(noise.scale) <= epsilon
    assert response.event == RandomizedResponse(epsilon)


class TestEstimators:
    """Right on average, with the standard error that they say."""

    def check(self, response: LocalMechanism, values: Any, true: float, pick: Any = lambda found: found) -> None:
        found = [pick(response.estimate(response.perturb(values))) for _ in range(400)]
        error = float(np.mean([one.standard_error for one in found]))
        assert_mean(np.array([one.value for one in found]), true, error)
        assert_variance(np.array([one.value for one in found]), error**2, kurtosis=3.5)

    @pytest.mark.parametrize("coins", [CoinResponse(), CoinResponse(honest=0.3, yes=0.8)])
    def test_two_coins(self, coins: CoinResponse) -> None:
        self.check(coins, np.arange(PEOPLE) < 500, 0.25)

    @pytest.mark.parametrize(("label", "share"), [("a", 0.5), ("c", 0.2), ("d", 0.0)])
    @pytest.mark.parametrize("kind", [CategoryResponse, UnaryResponse])
    def test_categories(self, kind: Any, label: str, share: float) -> None:
        self.check(kind(epsilon=1.0, domain=DOMAIN), LABELS, share, lambda found: found[label])

    @pytest.mark.parametrize("delta", [0.0, 1e-5])
    def test_numbers(self, delta: float) -> None:
        self.check(NumberResponse(epsilon=1.0, delta=delta, bounds=(0, 10)), np.linspace(2, 5, PEOPLE), 3.5)

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_numbers_that_may_be_missing(self, share: float) -> None:
        """The mean is a ratio: its bias is below a third of a standard error, which covers a little too much."""
        response = NumberResponse(epsilon=4.0, bounds=(0, 10), missing=True)
        numbers = np.where(np.arange(PEOPLE) < share * PEOPLE, np.nan, np.linspace(2, 5, PEOPLE))
        reports = [response.perturb(numbers) for _ in range(200)]
        gaps = [response.estimate_missing(one) for one in reports]
        assert_mean(np.array([one.value for one in gaps]), share, gaps[0].standard_error)
        means = [response.estimate(one) for one in reports]
        error = float(np.median([one.standard_error for one in means]))
        found = np.array([one.value for one in means])
        assert abs(np.median(found) - np.nanmean(numbers)) < error * (1 / 3 + 6 * 1.26 / math.sqrt(200))
        # The deviation of such a percentile is 7 % of it.
        assert 0.5 * error < np.percentile(np.abs(found - np.median(found)), 68.3) < 1.5 * error


def test_with_many_categories_rows_are_more_accurate_than_names() -> None:
    domain = tuple(range(100))
    errors = [
        kind(epsilon=1.0, domain=domain).estimate(kind(epsilon=1.0, domain=domain).perturb([7] * 500))[3].standard_error
        for kind in (UnaryResponse, CategoryResponse)
    ]
    assert errors[0] < errors[1] / 2


def test_an_estimate_has_an_interval() -> None:
    low, high = CoinResponse().estimate(np.array([True, False, True, False])).interval(0.95)
    assert low < 0.5 < high


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CoinResponse(honest=1.0), "between 0 and 1"),
        (lambda: CoinResponse.for_epsilon(0), "epsilon must be"),
        (lambda: CategoryResponse(epsilon=1.0), "need a public domain"),
        (lambda: UnaryResponse(epsilon=1.0, domain=("a",)), "at least two values"),
        (lambda: NumberResponse(epsilon=1.0), "need public bounds"),
        (lambda: NumberResponse(epsilon=1.0, bounds=(5, 1)), "the lower below the upper"),
        (lambda: NumberResponse(epsilon=-1.0, bounds=(0, 1)), "epsilon must be"),
        (lambda: CategoryResponse(epsilon=1.0, domain=DOMAIN).perturb(["z"]), "not in the public domain"),
        (lambda: NumberResponse(epsilon=1.0, bounds=(0, 1)).perturb([math.nan]), "missing number"),
        (lambda: NumberResponse(epsilon=1.0, delta=1e-6, bounds=(0, 1), missing=True), "which needs no delta"),
        (lambda: NumberResponse(epsilon=1.0, bounds=(0, 1)).estimate_missing([1.0]), "there are no coins"),
        (lambda: NumberResponse(epsilon=9.0, bounds=(0, 1), missing=True).estimate([math.nan]), "no mean to estimate"),
        (lambda: CoinResponse().perturb([1, 0]), "must be booleans"),
        (lambda: CoinResponse().estimate(np.zeros(0, dtype=bool)), "at least one report"),
        (lambda: UnaryResponse(epsilon=1.0, domain=DOMAIN).estimate([[True]]), "a row of 4"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(sf.errors.InputError, match=says):
        make()


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 40.0, 800.0])
def test_a_large_epsilon_still_hides_something(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest random words make everybody lie: no share of honest answers rounds to 1."""
    words = Source.words
    monkeypatch.setattr(Source, "words", lambda self, count: words(self, count) * np.uint64(0))
    assert set(CategoryResponse(epsilon=epsilon, domain=("a", "b")).perturb(["a"] * 5)) == {"b"}
    assert UnaryResponse(epsilon=epsilon, domain=("a", "b")).perturb(["a"] * 5).all()


def test_a_category_is_named_as_likely_as_its_epsilon_says_and_no_likelier() -> None:
    asked: list[float] = []

    class Asked(Source):
        def bernoulli(self, probability: Any, count: int) -> Any:
            asked.append(float(probability))
            return super().bernoulli(probability, count)

    for epsilon in (0.1, 1.0, 30.0, 40.0):
        CategoryResponse(epsilon=epsilon, domain=("a", "b", "c")).perturb(["a"], Asked())
        exact = Fraction(2) / (2 + Fraction(math.exp(epsilon)))
        assert exact < Fraction(asked.pop()) < exact * Fraction(1 + 1e-12)


def test_coins_that_hardly_lie_cost_what_they_cost() -> None:
    nearly = CoinResponse(honest=math.nextafter(1.0, 0.0))
    assert nearly.epsilon == pytest.approx(math.log(2.0**54), rel=1e-6)
    assert CoinResponse.for_epsilon(50.0).epsilon <= 50.0
    assert CoinResponse(yes=1e-17).epsilon == pytest.approx(math.log(1 + 1e17), rel=1e-9)

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

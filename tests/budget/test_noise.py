"""Noise has exactly the distribution that it claims, and nobody can make it again."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import sfumato as sf
from sfumato.budget import Source
from tests.budget.chance import FALSE_ALARM, assert_fits, assert_frequencies, is_plausible

DRAWS = 400_000


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.7, 20.0])
def test_discrete_laplace_numbers_are_as_frequent_as_the_definition_says(scale: float) -> None:
    drawn = Source().discrete_laplace(scale, DRAWS)
    weight = math.tanh(1 / (2 * scale))
    assert_fits(drawn, lambda x: weight * math.exp(-abs(x) / scale), range(-8, 9))


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.7, 20.0])
def test_discrete_gaussian_numbers_are_as_frequent_as_the_definition_says(scale: float) -> None:
    drawn = Source().discrete_gaussian(scale, DRAWS)
    total = math.fsum(math.exp(-(x**2) / (2 * scale**2)) for x in range(-400, 401))
    assert_fits(drawn, lambda x: math.exp(-(x**2) / (2 * scale**2)) / total, range(-8, 9))


@pytest.mark.parametrize("scale", [1e6, 1e9])
def test_noise_of_a_large_scale_is_like_that_of_real_numbers(scale: float) -> None:
    for drawn, law in (
        (Source().discrete_laplace(scale, DRAWS), stats.laplace(scale=scale)),
        (Source().discrete_gaussian(scale, DRAWS), stats.norm(scale=scale)),
    ):
        cells = np.clip(np.floor(law.cdf(drawn) * 20), 0, 19).astype(np.int64)
        assert_frequencies(dict(enumerate(np.bincount(cells, minlength=20))), dict.fromkeys(range(20), 0.05), DRAWS)


def test_a_test_of_these_would_notice_a_scale_that_is_a_tenth_off() -> None:
    drawn = Source().discrete_laplace(3.7 * 1.1, DRAWS)
    weight = math.tanh(1 / (2 * 3.7))
    with pytest.raises(AssertionError):
        assert_fits(drawn, lambda x: weight * math.exp(-abs(x) / 3.7), range(-8, 9))


def test_the_exact_decision_agrees_with_floats_where_these_are_sure() -> None:
    source = Source()
    for word in np.random.default_rng(0).integers(1, 2**64 - 1, 500, dtype=np.uint64).tolist():
        unit = (word + 0.5) / 2**64
        assert source._bernoulli_exp_exactly(word, Fraction(3, 7)) == (unit < math.exp(-3 / 7))
        assert source._geometric_exactly(word, Fraction(5, 2)) == math.floor(-2.5 * math.log(unit))


def test_draws_that_floats_cannot_decide_are_decided_with_more_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution is the same if floats never decide."""
    monkeypatch.setattr("sfumato.budget.noise._ULP", 1.0)  # now every draw is in doubt
    drawn = Source().discrete_gaussian(1.0, 4_000)
    total = math.fsum(math.exp(-(x**2) / 2) for x in range(-40, 41))
    assert_fits(drawn, lambda x: math.exp(-(x**2) / 2) / total, range(-4, 5))


def test_a_word_of_zero_is_decided_too() -> None:
    assert Source()._geometric_exactly(0, Fraction(5, 2)) >= math.floor(2.5 * 64 * math.log(2))
    assert Source()._bernoulli_exp_exactly(2**64 - 1, Fraction(0)) is True


@given(st.integers(1, 2**62))
def test_numbers_below_a_limit_are_below_it(limit: int) -> None:
    drawn = Source().below(limit, 50)
    assert ((drawn >= 0) & (drawn < limit)).all()


def test_numbers_below_a_limit_are_equally_likely() -> None:
    drawn = Source().below(7, DRAWS)
    assert_frequencies(dict(enumerate(np.bincount(drawn))), dict.fromkeys(range(7), 1 / 7), DRAWS)


def test_all_orders_of_a_shuffle_are_equally_likely() -> None:
    source = Source()
    orders = [tuple(source.permutation(3).tolist()) for _ in range(12_000)]
    for order in set(orders):
        assert is_plausible(orders.count(order), 12_000, 1 / 6, FALSE_ALARM / 6)
    assert len(set(orders)) == 6


def test_no_two_sources_give_the_same_noise() -> None:
    assert (Source().words(8) != Source().words(8)).all()


def test_a_fixed_seed_gives_the_same_noise_and_is_not_private() -> None:
    one, two = Source(insecure_seed=7), Source(insecure_seed=7)
    assert (one.discrete_gaussian(5.0, 20) == two.discrete_gaussian(5.0, 20)).all()
    assert not one.private
    assert Source().private


def test_a_forked_process_does_not_repeat_the_noise_of_its_parent() -> None:
    source = Source()
    source.words(1)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, source.words(8).tobytes())
        os._exit(0)
    os.wait()
    assert os.read(reader, 64) != source.words(8).tobytes()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("scale", [0, -1, math.inf, math.nan, 2.0**41, True, "1"])
def test_a_scale_outside_of_the_range_is_refused(scale: object) -> None:
    with pytest.raises(sf.errors.OptionError, match="the scale of noise"):
        Source().discrete_laplace(scale, 1)  # type: ignore[arg-type]


def test_no_draws_are_no_numbers() -> None:
    assert len(Source().discrete_gaussian(2.0, 0)) == len(Source().discrete_laplace(2.0, 0)) == 0


def test_a_coin_is_exactly_as_likely_as_its_float_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probability of 2**-70 takes a word of 0, and then a word in the lowest 64th."""
    drawn = iter([[0, 1, 5], [2**58 - 1], [0], [2**58]])
    monkeypatch.setattr(Source, "words", lambda self, count: np.array(next(drawn), dtype=np.uint64))
    assert Source().bernoulli(2.0**-70, 3).tolist() == [True, False, False]
    assert Source().bernoulli(2.0**-70, 1).tolist() == [False]


def test_what_is_certain_or_impossible_always_or_never_happens() -> None:
    assert Source().bernoulli(1.0, 1000).all()
    assert not Source().bernoulli(0.0, 1000).any()
    assert Source().bernoulli(np.array([0.0, 1.0]), 2).tolist() == [False, True]

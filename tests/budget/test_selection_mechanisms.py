"""Choices are as likely as their scores say, and keep their epsilon."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.budget import ExponentialMechanism, NoisyMax, Source, SparseVector
from tests.budget.chance import assert_epsilon, assert_frequencies

RUNS = 14_000


def choices(mechanism: ExponentialMechanism | NoisyMax, scores: list[float]) -> list[int]:
    source = Source()
    return np.bincount([mechanism.choose(scores, source) for _ in range(RUNS)], minlength=len(scores)).tolist()


def test_the_exponential_mechanism_chooses_as_its_formula_says() -> None:
    scores = [0.0, 1.0, 2.5, -3.0]
    weights = [math.exp(1.5 * score / (2 * 0.5)) for score in scores]
    shares = {place: weight / sum(weights) for place, weight in enumerate(weights)}
    found = choices(ExponentialMechanism(epsilon=1.5, sensitivity=0.5), scores)
    assert_frequencies(dict(enumerate(found)), shares, RUNS)


def test_the_noisy_maximum_is_that_of_scores_with_exponential_noise() -> None:
    scores = np.array([0.0, 1.0, 2.0])
    noise = np.random.default_rng(0).exponential(2 / 1.5, (1_000_000, 3))
    expected = np.bincount((scores + noise).argmax(axis=1), minlength=3) / 1_000_000
    found = choices(NoisyMax(epsilon=1.5), scores.tolist())
    for ours, theirs in zip(found, expected, strict=True):
        error = math.sqrt(theirs * (1 - theirs) * (1 / RUNS + 1 / 1_000_000))
        assert abs(ours / RUNS - theirs) < 6 * error


@pytest.mark.parametrize("kind", [ExponentialMechanism, NoisyMax])
def test_a_choice_keeps_its_epsilon_and_a_smaller_claim_would_be_caught(
    kind: type[ExponentialMechanism] | type[NoisyMax],
) -> None:
    epsilon, others = 4.0, 15  # one record raises the score of the first and lowers those of the others
    here = choices(kind(epsilon=epsilon), [1.0] + [0.0] * others)[0]
    there = choices(kind(epsilon=epsilon), [0.0] + [1.0] * others)[0]
    assert_epsilon(here, there, RUNS, epsilon)


def test_the_noisy_maximum_is_on_average_no_worse_than_the_exponential_mechanism() -> None:
    scores = [0.0, 1.0, 2.0, 3.0]
    means = [np.dot(choices(kind(epsilon=1.0), scores), scores) / RUNS for kind in (NoisyMax, ExponentialMechanism)]
    assert means[0] > means[1] - 6 * 1.2 * math.sqrt(2 / RUNS)


def test_a_choice_costs_the_same_however_many_candidates_there_are() -> None:
    assert ExponentialMechanism(epsilon=0.5).event == ExponentialMechanism(epsilon=0.5).event
    assert ExponentialMechanism(epsilon=50.0).choose(np.arange(100_000)) > 99_000


@pytest.mark.parametrize("scores", [[], [math.nan], [math.inf, 1.0]])
def test_scores_that_are_no_numbers_are_refused(scores: list[float]) -> None:
    with pytest.raises(sf.SfumatoError, match="must be"):
        NoisyMax(epsilon=1.0).choose(scores)


class TestSparseVector:
    def monitor(self, **options: Any) -> SparseVector:
        return SparseVector(**{"threshold": 0, "epsilon": 5.0, **options})

    def test_it_keeps_its_epsilon_and_a_smaller_claim_would_be_caught(self) -> None:
        """Many counts just below and the last one above: the worst case of the proof."""
        source, below, runs = Source(), 3, 12_000

        def happened(first: int, last: int) -> int:
            times = 0
            for _ in range(runs):
                monitor = self.monitor(source=source)
                times += not any(monitor.above(first) for _ in range(below)) and monitor.above(last)
            return times

        here, there = happened(-1, 0), happened(0, -1)
        assert_epsilon(here, there, runs, 5.0)

    def test_it_is_silent_below_and_speaks_above(self) -> None:
        quiet = sum(self.monitor(threshold=100).above(0) for _ in range(500))
        loud = sum(self.monitor(threshold=-100).above(0) for _ in range(500))
        assert quiet == 0  # at a distance of 100 an answer is wrong once in 10**40
        assert loud == 500

    def test_it_stops_after_the_answers_that_were_paid_for(self) -> None:
        monitor = self.monitor(threshold=-1000, positives=2)
        assert monitor.above(0)
        assert monitor.above(0)
        with pytest.raises(sf.errors.OptionError, match='all paid answers "above" have been given: 2'):
            monitor.above(0)

    @pytest.mark.parametrize("options", [{"epsilon": 0}, {"positives": 0}, {"sensitivity": 0.5}])
    def test_what_cannot_be_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(sf.errors.OptionError, match="must be a"):
            self.monitor(**options)


def test_scores_that_are_farther_apart_than_floats_reach_are_no_error() -> None:
    assert NoisyMax(epsilon=1.0).choose([1e308, -1e308]) == 0
    assert ExponentialMechanism(epsilon=1.0).choose([-1e308, 1e308]) == 1

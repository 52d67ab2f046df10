"""Samples are taken as the event says: every one with the same probability, each for itself.

Every check gives a false alarm less than once in ten million runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.budget import ApproximateEvent, Composed, Gaussian, PoissonSampled, Source, spent
from sfumato.learners.dpsgd.sampling import FixedPoisson, Full, Poisson
from tests.budget.chance import assert_fits, assert_frequencies, assert_mean, is_plausible


@pytest.mark.parametrize(("rows", "rate"), [(40, 0.25), (7, 0.9), (13, 0.02), (1, 0.3), (3, 0.999)])
def test_every_sample_is_taken_with_the_probability_of_the_rate(rows: int, rate: float) -> None:
    draws, source = 4000, Source()
    sampler = Poisson(rows, rate)
    taken = np.zeros((draws, rows))
    for at in range(draws):
        found = sampler.draw(source)
        assert np.array_equal(found, np.unique(found))  # none twice
        taken[at, found] = 1
    counts = {row: int(taken[:, row].sum()) for row in range(rows)}
    assert_frequencies(counts, dict.fromkeys(range(rows), rate), draws)
    # how many: a binomial number, cell by cell
    sizes = taken.sum(1).astype(np.int64)
    assert_fits(sizes, lambda size: float(stats.binom(rows, rate).pmf(size)), range(rows + 1))


def test_samples_are_taken_independently_within_a_draw_and_between_draws() -> None:
    rows, rate, draws, source = 12, 0.3, 6000, Source()
    sampler = Poisson(rows, rate)
    taken = np.zeros((draws, rows), dtype=bool)
    for at in range(draws):
        taken[at, sampler.draw(source)] = True
    pairs = [(one, other) for one in range(rows) for other in range(one)]
    for one, other in pairs:
        both = int((taken[:, one] & taken[:, other]).sum())
        assert is_plausible(both, draws, rate**2, 1e-8 / len(pairs))
    for one in range(rows):  # alone, two draws that follow each other share no draw with the next two
        again = int((taken[0::2, one] & taken[1::2, one]).sum())
        assert is_plausible(again, draws // 2, rate**2, 1e-8 / rows)


def test_a_tiny_rate_takes_samples_from_everywhere() -> None:
    rows, rate, source = 10_000_000, 1e-6, Source()
    sampler = Poisson(rows, rate)
    found = [sampler.draw(source) for _ in range(400)]
    assert is_plausible(sum(map(len, found)), 400 * rows, rate, 1e-8)
    places = np.concatenate(found) / rows
    assert_mean(places, 0.5, math.sqrt(1 / 12))


def test_a_rate_of_1_takes_all() -> None:
    assert np.array_equal(Poisson(5, 1.0).draw(Source()), np.arange(5))
    assert np.array_equal(Full(5).draw(Source()), np.arange(5))
    assert len(Poisson(1000, math.nextafter(1.0, 0)).draw(Source())) == 1000


def test_the_smallest_rate_takes_nothing_of_a_few() -> None:
    assert len(Poisson(1000, 2.0**-40).draw(Source())) == 0


def test_two_draws_are_not_the_same_and_a_seed_repeats_them() -> None:
    sampler = Poisson(1000, 0.5)
    source = Source()
    assert not np.array_equal(sampler.draw(source), sampler.draw(source))
    again = [sampler.draw(Source(insecure_seed=3)) for _ in range(2)]
    assert np.array_equal(*again)


def test_the_event_is_that_of_the_sampling() -> None:
    assert Poisson(1000, 0.01).event(1.3) == PoissonSampled(0.01, Gaussian(1.3))
    assert Full(1000).event(1.3) == Gaussian(1.3)
    assert Poisson(1000, 0.01).expected == 10
    assert Full(1000).expected == 1000
    assert Poisson(1000, 0.01).to_dict() == {"kind": "poisson", "rate": 0.01}
    assert Full(1000).to_dict() == {"kind": "full", "rate": 1.0}


@pytest.mark.parametrize(("rows", "rate", "delta", "up_to"), [(1000, 0.1, 1e-4, 20), (60_000, 0.001, 1e-5, 60)])
def test_what_a_batch_of_fixed_size_leaves_out_is_charged(rows: int, rate: float, delta: float, up_to: float) -> None:
    sampler = FixedPoisson.of(Poisson(rows, rate), delta, up_to)
    lost = stats.binom.sf(sampler.size, rows, rate)
    assert 0 < lost * (1 + math.exp(up_to)) * 1e6 <= delta / 1000
    assert sampler.beyond == pytest.approx(lost * (1 + math.exp(up_to)))
    assert sampler.event(1.5) == Composed((Poisson(rows, rate).event(1.5), ApproximateEvent(0.0, sampler.beyond)))
    assert sampler.to_dict() == {"kind": "poisson", "rate": rate, "size": sampler.size}
    assert (
        1.0 <= spent(sampler.event(1.0), delta).epsilon / spent(Poisson(rows, rate).event(1.0), delta).epsilon < 1.001
    )


def test_a_batch_of_all_samples_leaves_nothing_out() -> None:
    sampler = FixedPoisson.of(Poisson(5, 0.9), 1e-3, 20)
    assert (sampler.size, sampler.beyond) == (5, 0.0)
    assert sampler.event(1.0) == Poisson(5, 0.9).event(1.0)


def test_a_sample_beyond_the_size_is_cut() -> None:
    assert all(len(FixedPoisson(1000, 0.5, 10, 20, 1000).draw(Source())) == 10 for _ in range(20))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Poisson, (100, 0.0), "the sampling rate must be at least 2**-40 and at most 1, got 0.0"),
        (Poisson, (100, 1e-18), "the sampling rate must be at least 2**-40 and at most 1, got 1e-18"),
        (Poisson, (100, 1.5), "the sampling rate must be at least 2**-40 and at most 1, got 1.5"),
        (Poisson, (100, math.nan), "the sampling rate must be at least 2**-40 and at most 1, got nan"),
        (Poisson, (0, 0.5), "there are no samples to train on"),
        (Full, (0,), "there are no samples to train on"),
    ],
)
def test_a_bad_rate_and_no_samples_are_refused(kind: Any, options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(sf.errors.OptionError) as caught:
        kind(*options)
    assert caught.value.message == message

"""What a random draw may show by chance: every check here gives a false alarm less than once in ten million runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-8


def assert_fits(values: NDArray[np.int64], probability: Callable[[int], float], cells: range) -> None:
    """Fail unless the values are as frequent as they should be: an exact binomial test per cell and for both tails."""
    shares = {cell: probability(cell) for cell in cells}
    found = {cell: int(np.count_nonzero(values == cell)) for cell in cells}
    rest = 1 - math.fsum(shares.values())
    assert_frequencies(found, shares, len(values))
    outside = len(values) - sum(found.values())
    assert is_plausible(outside, len(values), max(rest, 0.0), FALSE_ALARM)


def assert_frequencies(found: Mapping[int, int], shares: Mapping[int, float], total: int) -> None:
    for cell, share in shares.items():
        assert is_plausible(found[cell], total, share, FALSE_ALARM / len(shares)), cell


def is_plausible(count: int, total: int, share: float, alarm: float) -> bool:
    binomial = stats.binom(total, share)
    return bool(binomial.cdf(count) > alarm / 2 and binomial.sf(count - 1) > alarm / 2)


def assert_mean(values: NDArray[np.float64], mean: float, deviation: float) -> None:
    """Fail if the mean is more than 6 standard errors off (2e-9 for a normal mean)."""
    assert abs(float(np.mean(values)) - mean) < 6 * deviation / math.sqrt(len(values))


def assert_variance(values: NDArray[np.float64], variance: float, kurtosis: float = 6.0) -> None:
    """Fail if the variance is more than 6 of its own standard errors off."""
    error = variance * math.sqrt((kurtosis - 1) / len(values))
    assert abs(float(np.var(values)) - variance) < 6 * error


def least_epsilon(here: int, there: int, runs: int, delta: float = 0.0) -> float:
    """Return an epsilon that is too small, for certain, if an event happened so often for two neighbouring tables."""
    low = stats.beta.ppf(FALSE_ALARM, here, runs - here + 1) if here else 0.0
    high = stats.beta.ppf(1 - FALSE_ALARM, there + 1, runs - there) if there < runs else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


def assert_epsilon(here: int, there: int, runs: int, claimed: float, delta: float = 0.0) -> None:
    """Fail if the claim is too small, or if this test would not notice that it was 1.5 times too small.

    The numbers of runs are such that the second happens by chance less than once in a million times, too: the
    expected bound is more than 5.5 standard errors above the claim over 1.5.
    """
    least = least_epsilon(here, there, runs, delta)
    assert claimed / 1.5 < least <= claimed, (least, claimed)

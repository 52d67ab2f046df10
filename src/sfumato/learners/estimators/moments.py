"""Counts, means and covariances of groups of records, from noisy sums: what estimators without a target learn from.

Numbers are scaled by their public bounds to [-1, 1]. A record may be in several groups in part; its parts add up to
one, and so it adds no more to all sums together than if it were in one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from sfumato.errors import ColumnError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns, Feature, Unknown
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, on_grid

__all__ = ["Covariance", "Moments", "OfNumbers", "noisy_means", "noisy_moments", "spread"]

_STANDS_OUT = 2.0  # a group that is there holds at least so many deviations of the noise on its count


class Covariance(StrEnum):
    """What is learnt of how columns vary: all covariances, or the variances alone."""

    FULL = "full"
    DIAG = "diag"


class _NotNumbers(ColumnError, TypeError):
    """A column that does not hold numbers; to scikit-learn that is a wrong type."""


@dataclass(frozen=True, eq=False)
class Moments:
    """What is known of groups of records, all of whose numbers are in [-1, 1]."""

    counts: Floats
    """How many records each holds; at least 1."""
    clear: Any
    """Whether it stands out from the noise."""
    means: Floats
    covariances: Floats
    """A matrix per group, or a row of variances; without noise those of the records, with noise not always positive."""
    noise: Floats
    """The deviation of the noise on each covariance of a group."""


@dataclass(kw_only=True, eq=False, repr=False)
class OfNumbers(PrivateEstimator):
    """The base of estimators whose columns are all numbers; a missing one counts as the middle of its bounds."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = False
        return tags

    def _described(self, columns: Columns, target: pl.Series | None) -> list[Feature | Unknown]:
        found = super()._described(columns, target)
        for one in found:
            if not one.is_number:
                raise _NotNumbers(
                    f"column '{one.name}' holds categories, and an argument must be a number or "
                    f"a string that reads as a number in {type(self).__name__}",
                    hint="leave it out, or declare its bounds",
                )
        return found

    @property
    def _middle(self) -> Floats:
        return self.features_.bounds.mean(axis=0)

    @property
    def _half(self) -> Floats:
        """Half the distance of the bounds: the unit of scaled numbers."""
        low, high = self.features_.bounds
        return (high - low) / 2


def noisy_means(x: Floats, roots: Floats, sums: NoisySums) -> tuple[Floats, Any, Floats]:
    """Buy how many records are in each group, whether that stands out from the noise, and the means.

    Parameters
    ----------
    x : array
        A row per record, in [-1, 1].
    roots : array
        A row per record: the square roots of its parts in each group. Their squares add up to at most 1.
    sums : NoisySums
        In which "counts" and "means" are paid for.
    """
    # Products of two numbers on the grid add up exactly.
    parts, given = on_grid(roots), on_grid(x)
    noisy = sums("counts", np.square(parts).sum(axis=0), norm=1.0)
    held = [parts[:, at] @ on_grid(parts[:, at, None] * given) for at in range(parts.shape[1])]
    totals = sums("means", np.array(held), norm=math.sqrt(given.shape[1]))
    clear = noisy > max(_STANDS_OUT * sums.deviation_of("counts", norm=1.0), 0.5)
    counts = np.maximum(noisy, 1.0)
    return counts, clear, np.clip(totals / counts[:, None], -1.0, 1.0)


def noisy_moments(x: Floats, roots: Floats, sums: NoisySums, kind: Covariance) -> Moments:
    """Buy the counts, means and covariances of groups; "covariances" must be paid for, too.

    Second moments are bought about the middle of the bounds, each once (Dwork et al. 2014, "Analyze Gauss"): those of a
    record in [-1, 1] have a norm of at most sqrt(d (d + 1) / 2), or of sqrt(d) if it is only variances.
    """
    counts, clear, means = noisy_means(x, roots, sums)
    parts, given = on_grid(roots), on_grid(x)
    groups, width = parts.shape[1], given.shape[1]
    held = (on_grid(parts[:, at, None] * given) for at in range(groups))
    if kind is Covariance.DIAG:
        norm = math.sqrt(width)
        squares = sums("covariances", np.array([np.square(one).sum(axis=0) for one in held]), norm=norm)
        covariances = squares / counts[:, None] - np.square(means)
    else:
        norm = math.sqrt(width * (width + 1) / 2)
        upper = np.triu_indices(width)
        products = sums("covariances", np.array([(one.T @ one)[upper] for one in held]), norm=norm)
        squares = np.zeros((groups, width, width))
        squares[:, upper[0], upper[1]] = squares[:, upper[1], upper[0]] = products
        covariances = squares / counts[:, None, None] - means[:, :, None] * means[:, None, :]
    return Moments(counts, clear, means, covariances, sums.deviation_of("covariances", norm=norm) / counts)


@lru_cache(maxsize=64)
def spread(count: int, width: int) -> tuple[Floats, float]:
    """Return points that stand for a standard normal distribution, and the variance that they leave out.

    They are the centres of 1,000 and more draws that are always the same, and know nothing of any data.

    Examples
    --------
    >>> points, rest = spread(2, 1)
    >>> points.round(1).ravel().tolist(), round(rest, 1)
    ([0.8, -0.8], 0.4)
    """
    from sklearn.cluster import KMeans

    draws = np.random.default_rng(0).normal(size=(1000 + 50 * count, width))
    found = KMeans(count, n_init=1, random_state=0).fit(draws)
    return found.cluster_centers_, float(found.inertia_ / draws.size)

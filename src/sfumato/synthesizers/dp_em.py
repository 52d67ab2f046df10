"""Normal mixtures of several groups by expectation maximisation with noise (DP-EM: Park et al. 2017, arXiv 1605.06995).

The records are vectors in the unit ball, such as codes of an auto-encoder, and each belongs to at most one group, such
as its label. A round divides every record among the components of its group by likelihood, and measures the count, the
mean and the second moment of each component with Gaussian noise. The parts of a record add up to at most 1, so it moves
the counts, the sums of vectors and the sums of products each by a norm of at most 1, whatever the number of groups and
components. The mixtures are as private as these noisy sums.

Second moments get the noise of a symmetric matrix. Covariances are shrunk towards their common mean by their noise,
and no variance is below it, so all are positive definite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.clustering import (
    log_densities,
    positive_definite,
    responsibilities,
    split_the_largest,
)
from sfumato.learners.estimators.moments import Covariance, Moments, noisy_moments, spread
from sfumato.learners.estimators.noisy_sums import NoisySums, Share, within

__all__ = ["Mixtures", "em_shares", "fit_mixtures"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_WEIGHT = 1e-3  # of a component, times one over their number
_WORTH = {"counts": 0.1, "means": 0.3, "covariances": 0.6}


def em_shares(rounds: int, worth: float) -> Mapping[str, Share]:
    """Return the shares of a fit, given their worth together.

    Examples
    --------
    >>> {name: one.times for name, one in em_shares(4, 0.5).items()}
    {'counts': 5, 'means': 5, 'covariances': 5}
    """
    return {name: Share(rounds + 1, worth * part) for name, part in _WORTH.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Mixtures:
    """A normal mixture for each group of vectors in the unit ball."""

    weights: Floats
    """A row per group, with a share per component."""
    means: Floats
    """A vector per group and component."""
    covariances: Floats
    """A matrix per group and component."""

    def __post_init__(self) -> None:
        groups, components = self.weights.shape
        width = self.means.shape[-1]
        if self.means.shape != (groups, components, width) or self.covariances.shape != (*self.means.shape, width):
            raise InputError("the weights, means and covariances of the mixtures do not fit each other")

    @cached_property
    def _roots(self) -> Floats:
        """A square root of each covariance; what is not positive in a stranger's matrix counts as 0."""
        variances, vectors = np.linalg.eigh((self.covariances + np.swapaxes(self.covariances, -1, -2)) / 2)
        roots: Floats = vectors * np.sqrt(np.maximum(variances, 0.0))[..., None, :]
        return roots

    def sample(self, groups: Ints, rng: np.random.Generator) -> Floats:
        """Return a vector in the unit ball for each of these groups."""
        up = np.cumsum(self.weights, axis=1)
        up /= up[:, -1:]
        own = (rng.random((len(groups), 1)) >= up[groups, :-1]).sum(axis=1)
        normal = rng.normal(size=(len(groups), self.means.shape[-1]))
        drawn = self.means[groups, own].copy()
        for group, component in np.ndindex(*self.weights.shape):
            at = (groups == group) & (own == component)
            drawn[at] += normal[at] @ self._roots[group, component].T
        return within(drawn, 1.0)

    def responsibilities(self, x: Floats, groups: Ints) -> Floats:
        """Return the parts of each record in all components of all groups, those of its own group adding up to 1.

        A record of no group (any number from the number of groups on) has no part in any component.
        """
        count, components = self.weights.shape
        parts = np.zeros((len(x), count, components))
        for group in range(count):
            at = groups == group
            logs = log_densities(x[at], self.means[group], self.covariances[group])
            parts[at, group] = responsibilities(logs + np.log(self.weights[group]))
        return parts.reshape(len(x), count * components)


def fit_mixtures(
    x: Floats,
    groups: Ints,
    count: int,
    sums: NoisySums,
    *,
    components: int,
    rounds: int,
    weights: Floats | None = None,
) -> Mixtures:
    """Fit a mixture to the records of each group.

    Parameters
    ----------
    x : array
        A row per record. A row longer than 1 is clipped to that norm.
    groups : array
        The group of each record; a number from ``count`` on is no group.
    count : int
        The number of groups.
    sums : NoisySums
        With the shares of `em_shares`.
    components, rounds : int
        The number of components in each group, and of rounds after the first look at all records of a group.
    weights : array, optional
        The weight of each record, from 0 to 1.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(-0.5, 0.1, (2000, 1)), rng.normal(0.5, 0.1, (2000, 1))])
    >>> sums = NoisySums(em_shares(5, 1.0), 4.0, Source(insecure_seed=1))
    >>> found = fit_mixtures(x, np.zeros(4000, int), 1, sums, components=2, rounds=5)
    >>> sorted(found.means.round(1).ravel().tolist())
    [-0.5, 0.5]
    """
    inside = within(x, 1.0)
    share = np.ones(len(inside)) if weights is None else weights
    alone = (groups[:, None] == np.arange(count)) * share[:, None]
    found = _first(noisy_moments(inside, np.sqrt(alone), sums, Covariance.FULL, ball=True), components)
    for left in reversed(range(rounds)):
        parts = found.responsibilities(inside, groups) * share[:, None]
        moments = noisy_moments(inside, np.sqrt(parts), sums, Covariance.FULL, ball=True)
        found = _update(found, moments, last=left == 0)
    return found


def _first(everyone: Moments, components: int) -> Mixtures:
    """Return mixtures that approximate a single normal distribution in each group."""
    groups, width = everyone.means.shape
    points, rest = spread(components, width)
    covariances = positive_definite(everyone)
    means = everyone.means[:, None] + np.einsum("gij,kj->gki", np.linalg.cholesky(covariances), points)
    matrices = np.repeat((covariances * rest)[:, None], components, axis=1)
    return Mixtures(np.full((groups, components), 1 / components), _in_ball(means), matrices)


def _update(before: Mixtures, moments: Moments, *, last: bool) -> Mixtures:
    """Return the next mixtures; a component whose count is lost in the noise takes half of the largest."""
    groups, components = before.weights.shape
    clear = moments.clear.reshape(groups, components)
    weights = np.where(clear, moments.counts.reshape(groups, components), 0.0)
    means = np.where(clear[..., None], moments.means.reshape(before.means.shape), before.means)
    fresh = positive_definite(moments).reshape(before.covariances.shape)
    covariances = np.where(clear[..., None, None], fresh, before.covariances)
    if not last:
        for group in range(groups):
            parts = split_the_largest(weights[group], means[group], covariances[group])
            weights[group], means[group], covariances[group] = parts
    total = weights.sum(axis=1, keepdims=True)
    weights = np.where(total > 0, weights / np.maximum(total, 1.0), 1 / components)
    weights = np.maximum(weights, _LEAST_WEIGHT / components)
    return Mixtures(weights / weights.sum(axis=1, keepdims=True), _in_ball(means), covariances)


def _in_ball(means: Floats) -> Floats:
    return within(means.reshape(-1, means.shape[-1]), 1.0).reshape(means.shape)

"""Private estimates of undeclared facts: the categories of a column, the bounds of its numbers, the row count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import ApproximateEvent, Event, Relation
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism
from sfumato.budget.noise import Source
from sfumato.data.validate import real
from sfumato.errors import SfumatoError, one_of

__all__ = ["CountRows", "FindBounds", "SelectCategories", "octaves"]

_LOWEST, _HIGHEST = -32, 40  # exponents of the smallest and the largest bin edge, powers of two


@dataclass(frozen=True, kw_only=True)
class SelectCategories(Mechanism):
    """Find the categories of enough records, without revealing the category of a single record.

    Each category that occurs is counted with noise, and selected if the noisy count reaches a threshold,
    which a single record does with a probability of at most delta (Korolova et al. 2009).

    Parameters
    ----------
    epsilon, delta : float
    relation : Relation or str

    Examples
    --------
    >>> selection = SelectCategories(epsilon=1.0, delta=1e-6)
    >>> selection.threshold
    15
    >>> list(selection.answer(["flu"] * 500 + ["rare"], Source(insecure_seed=1)))
    ['flu']
    """

    epsilon: float
    delta: float
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        check_delta(self.delta)

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each count."""
        return _on_counts(self.epsilon, self.relation)

    @cached_property
    def threshold(self) -> int:
        """The smallest noisy count of a selected category."""
        # For a count of 1: P(1 + noise >= t) = exp(-(t - 1) / scale) / (1 + exp(-1 / scale)). Under replace-one the
        # record can be alone in one category before and in another category after.
        scale = self.noise.scale
        allowed = self.delta / self.noise.changes
        return max(2, 1 + math.ceil(-scale * (math.log(allowed) + math.log1p(math.exp(-1 / scale))) + 1e-9))

    @property
    def event(self) -> Event:
        """The cost of the selection, independent of the number of categories."""
        return ApproximateEvent(self.epsilon, self.delta, self.relation)

    def answer(self, values: Iterable[Hashable], source: Source | None = None) -> dict[Any, int]:
        """Return the selected categories with their noisy counts, sorted by their texts."""
        counts = Counter(value for value in values if value is not None and value == value)  # not missing, not NaN
        return self.select(counts, source)

    def select(self, counts: Mapping[Any, int], source: Source | None = None) -> dict[Any, int]:
        """Return the selected categories, given how often each occurs."""
        chosen = Source() if source is None else source
        labels = sorted(counts, key=lambda value: (str(value), str(type(value))))  # the order of the records is private
        noisy = self.noise.release_steps([counts[label] for label in labels], chosen)
        return {label: count for label, count in zip(labels, noisy, strict=True) if count >= self.threshold}


@dataclass(frozen=True, kw_only=True)
class FindBounds(Mechanism):
    """Find bounds for numbers from a noisy histogram of their magnitudes (Wilson et al. 2020).

    The bins are powers of two, for either sign. The bounds enclose every bin whose noisy count reaches a threshold
    that, with the given confidence, no empty bin reaches. They are powers of two, and a few numbers may be
    outside.

    Examples
    --------
    >>> ages = np.random.default_rng(0).integers(20, 90, 10_000)
    >>> FindBounds(epsilon=1.0).answer(ages)
    (16.0, 128.0)
    """

    epsilon: float
    confidence: float = 1 - 1e-6
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        real("the confidence", self.confidence, above=0, below=1)

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each bin."""
        return _on_counts(self.epsilon, self.relation)

    @property
    def threshold(self) -> int:
        """The smallest noisy count of an enclosed bin; with the confidence, no empty bin reaches it."""
        bins = len(octaves()) - 1
        return round(self.noise.half_width(1 - 2 * (1 - self.confidence) / bins)) + 1  # only one tail counts

    @property
    def event(self) -> Event:
        """The cost of the histogram."""
        return self.noise.event

    def answer(self, values: Any, source: Source | None = None) -> tuple[float, float]:
        """Return the lower and the upper bound."""
        edges = octaves()
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
        numbers = np.clip(numbers[~np.isnan(numbers)], edges[0], edges[-1])
        bins = np.minimum(np.searchsorted(edges, numbers, "right") - 1, len(edges) - 2)
        noisy = self.noise.release(np.bincount(bins, minlength=len(edges) - 1), source)
        full = np.flatnonzero(noisy >= self.threshold)
        if not len(full):
            raise SfumatoError(
                "no bounds were found above the noise", hint="there are too few numbers for this epsilon; it is spent"
            )
        return float(edges[full[0]]), float(edges[full[-1] + 1])


@dataclass(frozen=True, kw_only=True)
class CountRows(Mechanism):
    """Count the records with noise; under add-remove their number is private.

    The answer is at least the noise scale, so that a small count does not look like an empty table.

    Examples
    --------
    >>> CountRows(epsilon=0.02).answer(30_000, Source(insecure_seed=1))
    30058
    """

    epsilon: float

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on the count."""
        return AddedNoise(sensitivity=1, epsilon=real("epsilon", self.epsilon, above=0), whole=True)

    @property
    def event(self) -> Event:
        """The cost of the count."""
        return self.noise.event

    def answer(self, rows: int, source: Source | None = None) -> int:
        """Return the noisy number of records."""
        return max(int(self.noise.release(rows, source)), math.ceil(self.noise.scale))


def _on_counts(epsilon: float, relation: Relation) -> AddedNoise:
    """Return the noise on the counts of categories or bins, of which replacing a record changes two."""
    changes = 1 if relation is Relation.ADD_REMOVE else 2
    return AddedNoise(sensitivity=1, epsilon=epsilon, changes=changes, whole=True, relation=relation)


def octaves() -> Any:
    """Return the edges of bins for numbers of any magnitude: powers of two of either sign, and zero."""
    powers = 2.0 ** np.arange(_LOWEST, _HIGHEST + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])

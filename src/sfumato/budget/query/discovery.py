"""Private estimates of undeclared facts: the categories of a column, the bounds of its numbers, the number of rows.

Also how many rows of a person should count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import ApproximateEvent, Event, Relation
from sfumato.budget.mechanisms.additive import AddedNoise, Mechanism
from sfumato.budget.mechanisms.selection import ExponentialMechanism
from sfumato.budget.noise import Source
from sfumato.budget.people import DeclaredBound, for_people
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.validate import real
from sfumato.errors import OptionError, SfumatoError, one_of

__all__ = ["CountRows", "FindBounds", "FindRowsPerPerson", "SelectCategories", "octaves"]

_EVERYBODY = 2**61  # more people than any table has
_LOWEST, _HIGHEST = -32, 40  # exponents of the smallest and the largest bin edge, powers of two


@dataclass(frozen=True, kw_only=True)
class SelectCategories(Mechanism):
    """Find the categories of enough records, without revealing the category of a single record.

    Each category that occurs is counted with noise, and selected if the noisy count reaches a threshold,
    which a single record does with a probability of at most delta (Korolova et al. 2009).

    For people, delta bounds the probability that any category of a single person is selected. If they are alone in
    j categories with c rows in each, that is ``1 - (1 - P(c + noise >= threshold))**j``. The probability grows
    exponentially with c, so the worst way to spread their rows is one of the extremes.

    Parameters
    ----------
    epsilon, delta : float
    relation : Relation or str
    bound : DeclaredBound, optional
        To protect people: how much of a person is counted. What is given to `answer` and `select` must be bounded.
    merged : bool
        Whether a category may hold several groups of the bound.

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
    bound: DeclaredBound | None = None
    merged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        check_delta(self.delta)

    @cached_property
    def noise(self) -> AddedNoise:
        """The noise on each count."""
        return _on_counts(self.epsilon, self.relation, 1 if self.bound is None else self.bound.rows)

    @cached_property
    def threshold(self) -> int:
        """The smallest noisy count of a selected category."""
        # Under replace-one, one may be alone in some categories before and in others after.
        allowed = self.delta if self.relation is Relation.ADD_REMOVE else self.delta / 2
        alone = ((1, 1),) if self.bound is None else self.bound.alone(merged=self.merged)
        return max(self._threshold(count, categories, allowed) for categories, count in alone)

    def _threshold(self, count: int, categories: int, allowed: float) -> int:
        """Return the smallest threshold that none of so many counts reaches, but for the allowed probability."""
        # P(c + noise >= t) = exp(-(t - c) / scale) / (1 + exp(-1 / scale)) for t > c.
        scale = self.noise.scale
        each = allowed if categories == 1 else -math.expm1(math.log1p(-allowed) / categories)
        above = math.ceil(-scale * (math.log(each) + math.log1p(math.exp(-1 / scale))) + 1e-9)
        return count + max(1, above)

    @property
    def event(self) -> Event:
        """The cost of the selection, independent of the number of categories."""
        return ApproximateEvent(self.epsilon, self.delta, self.relation, UNIT if self.bound is None else PERSON)

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


@dataclass(frozen=True, kw_only=True)
class FindRowsPerPerson(Mechanism):
    """Find how many rows of a person should count, such that few people have more.

    The answer is one of `CANDIDATES`, chosen by the exponential mechanism: with the confidence, at most twice
    `beyond` people have more rows than it (unless it is the last candidate), and at least one has more than the
    candidate before it. So rows of a few people only are dropped, however many people there are, and the bound is not
    much larger than that takes.

    One person changes by at most one how many people have more rows than a candidate, whatever the number of their
    rows. So the event is for a person, and anything that is bounded by the answer can be charged after it.

    Examples
    --------
    >>> visits = np.repeat(np.arange(100_000), 4)  # everybody has four
    >>> search = FindRowsPerPerson(epsilon=0.1)
    >>> search.answer(visits, Source(insecure_seed=1)), search.beyond
    (5, 147)
    >>> print(search.event)
    a choice by the exponential mechanism of epsilon 0.1 per person
    """

    CANDIDATES: ClassVar[tuple[int, ...]] = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987)
    """The possible answers."""
    SHARE: ClassVar[float] = 0.1
    """The share of epsilon for it, wherever a bound is bought."""

    epsilon: float
    confidence: float = 0.99
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))
        real("epsilon", self.epsilon, above=0)
        real("the confidence", self.confidence, above=0, below=1)

    @cached_property
    def choice(self) -> ExponentialMechanism:
        """The selection of a candidate."""
        return ExponentialMechanism(epsilon=self.epsilon, relation=self.relation)

    @cached_property
    def beyond(self) -> int:
        """About how many people have more rows than the answer: as few as the noise allows."""
        return math.ceil(2 / self.epsilon * (math.log(len(self.CANDIDATES)) - math.log1p(-self.confidence)))

    @property
    def event(self) -> Event:
        """The cost of the choice for a person with any number of rows."""
        return for_people(self.choice.event, 1)

    def scores(self, people: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the score of each candidate, given the person of every row; a negative one is nobody.

        It is how many people too many have more rows than the candidate, or too few more than the one before.
        """
        rows = np.bincount(people[people >= 0])
        more = np.array([np.count_nonzero(rows > one) for one in self.CANDIDATES])
        upto, below = np.append(more[:-1], 0), np.append(_EVERYBODY, more[:-1])
        off: NDArray[np.int64] = np.maximum(0, np.maximum(upto - self.beyond, self.beyond - below))
        return -off

    def answer(self, people: NDArray[np.int64], source: Source | None = None) -> int:
        """Return how many rows of a person should count, given the person of every row; a negative one is nobody."""
        return self.CANDIDATES[self.choice.choose(self.scores(people), source)]

    @classmethod
    def checked(cls, rows: Any) -> int:
        """Return a stated answer, or raise an error if it cannot be one.

        Examples
        --------
        >>> FindRowsPerPerson.checked(5)
        5
        """
        if type(rows) is not int or rows not in cls.CANDIDATES:
            raise OptionError(f"a bound on the rows of a person that was bought cannot be {rows!r:.40}")
        return rows


def _on_counts(epsilon: float, relation: Relation, rows: int = 1) -> AddedNoise:
    """Return the noise on the counts of categories or bins, of which replacing a record changes two."""
    changes = rows if relation is Relation.ADD_REMOVE else 2 * rows
    return AddedNoise(sensitivity=1, epsilon=epsilon, changes=changes, whole=True, relation=relation)


def octaves() -> Any:
    """Return the edges of bins for numbers of any magnitude: powers of two of either sign, and zero."""
    powers = 2.0 ** np.arange(_LOWEST, _HIGHEST + 1)
    return np.concatenate([-powers[::-1], [0.0], powers])

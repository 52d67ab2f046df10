"""Similarity: the sensitive values of the rows that may be a person's differ, but are close to each other.

- Li, Li and Venkatasubramanian, *t-closeness: privacy beyond k-anonymity and l-diversity*, ICDE 2007.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Records
from sfumato.attacks.tables.candidates import sparse_counts
from sfumato.attacks.tables.guessing import Guesses, Knowledge, SecretAttack, most_frequent
from sfumato.attacks.tables.reading import secrets
from sfumato.data.schema import Kind
from sfumato.measures.classes import Floats, Ints

__all__ = ["NEAR", "Similarity", "best_place", "guess_place", "places"]

NEAR = 0.05
"""Two numbers are near each other if they differ by at most this share of the column's range."""


class Similarity(SecretAttack):
    """Name the group that most of the sensitive values are in that may be a person's.

    For a column with a hierarchy, the groups are those of its first level. For a number or a date, a guess is right if
    it is at most 5 % of the column's range away from the true value; for an ordinal, also if it is the next value.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> release = pl.DataFrame({"age": ["20-29"] * 3 + ["30-39"] * 3, "income": [900, 910, 920, 100, 500, 990]})
    >>> target = TableTarget(release, sf.Table.of(release, qi=["age"], sensitive=["income"]).schema)
    >>> Similarity().run(target, None, None, seed=0).members.tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    """

    name = "similarity"
    question = "Which similar sensitive values do the rows have that may be this person's?"
    baseline = "naming the most frequent group of values, or range, of the release"

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is not None:
            return found
        column = self.column or secrets(target)[0]
        known, dtype = target.schema[column], target.frame[column].dtype
        has_groups = known.hierarchy is not None and known.hierarchy.height > 1
        if not (has_groups or known.kind is Kind.ORDINAL or dtype.is_numeric() or dtype.is_temporal()):
            return f"it needs an order or a hierarchy of the values of column '{column}'"
        return None

    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Guess a group or a range."""
        groups = _groups(known)
        if groups is not None:
            return _guess_group(known, groups)
        return guess_place(known)


def _groups(known: Knowledge) -> Ints | None:
    """Return the group of each value of the universe on the first level of the hierarchy; None without groups."""
    of = known.read.universe
    if of.column.hierarchy is None or of.column.hierarchy.height < 2:
        return None
    return np.asarray(of.column.hierarchy.levels(of.values.values)[1])


def _guess_group(known: Knowledge, groups: Ints) -> Guesses:
    of_code = np.full(len(known.prior), -1)
    single = known.read.exact & (np.diff(known.read.start) == 1)
    of_code[single] = groups[known.read.first[known.read.start[:-1][single]]]
    some = np.flatnonzero(of_code >= 0)
    joined = sparse_counts(some, of_code[some], (len(of_code), int(groups.max()) + 1))
    prior = known.prior @ joined
    guess = most_frequent((known.counts @ joined).tocsr(), prior)
    usual = np.full(len(known.truth), int(np.argmax(prior)))
    return Guesses(guess[known.person] == groups[known.truth], usual == groups[known.truth])


def guess_place(known: Knowledge) -> Guesses:
    """Guess the value with the most rows near it; a guess is right if it is near the truth."""
    place, truth, near = places(known)
    guess = best_place(known.counts, place, near)
    usual = best_place(sparse_counts(*_release(known.prior)), place, near)[0]
    guess = np.where(np.isnan(guess), usual, guess)[known.person]
    return Guesses(np.abs(guess - truth) <= near + 1e-9, np.abs(usual - truth) <= near + 1e-9)


def places(known: Knowledge) -> tuple[Floats, Floats, float]:
    """Return the place of each released value and of each true one on a line from 0 to 1, and what counts as near."""
    read, of = known.read, known.read.universe
    if of.is_line:
        span = (of.high - of.low) or 1.0
        return ((read.low + read.high) / 2 - of.low) / span, (of.numbers[known.truth] - of.low) / span, NEAR
    number = len(of) - (of.missing is not None)
    at = np.where(np.arange(len(of)) < number, np.arange(len(of)), np.nan) / max(number - 1, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = read.total(np.nan_to_num(at)) / read.total(~np.isnan(at))
    return middle, at[known.truth], max(NEAR, 1 / max(number - 1, 1))


def best_place(counts: Any, place: NDArray[Any], near: float) -> Floats:
    """Return the value of each person with the most rows near it; NaN for a person without rows.

    Examples
    --------
    >>> best_place(sparse_counts([0, 0, 0, 1], [0, 1, 2, 2], (3, 3)), np.array([0.0, 0.9, 0.94]), 0.05).tolist()
    [0.9, 0.94, nan]
    """
    owner = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    at, weight = place[counts.indices], counts.data
    some = ~np.isnan(at)
    owner, at, weight = owner[some], at[some], weight[some]
    order = np.lexsort((at, owner))
    owner, at, weight = owner[order], at[order], weight[order]
    line = owner * 4.0 + at  # people do not meet: all places are between 0 and 1
    before = np.concatenate([[0], np.cumsum(weight)])
    low = np.searchsorted(line, line - near - 1e-9, side="left")
    high = np.searchsorted(line, line + near + 1e-9, side="right")
    best = np.lexsort((at, -(before[high] - before[low]), owner))
    found = np.full(counts.shape[0], np.nan)
    first = np.unique(owner[best], return_index=True)
    found[first[0]] = at[best][first[1]]
    return found


def _release(prior: Ints) -> tuple[Ints, Ints, tuple[int, int]]:
    """Return the whole release as the rows of one person."""
    value = np.repeat(np.arange(len(prior)), prior)
    return np.zeros_like(value), value, (1, len(prior))

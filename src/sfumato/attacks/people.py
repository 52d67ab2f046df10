"""Attacks on people with several rows: whose rows are whose, and what the answers about rows say about a person.

A person is a member or not with all of their rows, so tables are divided by person. An attack that scores rows gives a
person the mean score of their rows, or the sum if scores are log-likelihood ratios. An attack that guesses knows one
row of each person, drawn at random: a sensitive value is then guessed right as often as a class says about a person, of
weight one and split over their rows. Either way there is one answer for each person, so that intervals count people,
whose rows are not independent of each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.people import codes_of_people

__all__ = ["any_of", "one_row_each", "owners_of", "persons_in", "pooled", "rows_of_people", "together"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def persons_in(values: Any) -> pl.Series:
    """Return a person column; a row without a person has a missing value.

    Examples
    --------
    >>> persons_in([7.0, float("nan")]).to_list()
    [7.0, None]
    """
    given = values if isinstance(values, pl.Series) else pl.Series("person", list(values), strict=False)
    return given.fill_nan(None) if given.dtype.is_float() else given


def together(first: pl.Series, second: pl.Series) -> pl.Series:
    """Return two person columns as one; the same number is the same person, whatever its type.

    Examples
    --------
    >>> together(pl.Series([1, 2]), pl.Series([2.0, None])).to_list()
    ['1', '2', '2', None]
    """
    parts = [first.rename("person"), second.rename("person")]
    if parts[0].dtype != parts[1].dtype:
        texts = [one.cast(pl.String) for one in parts]
        parts = [
            one.str.strip_suffix(".0") if of.dtype.is_float() else one for one, of in zip(texts, parts, strict=True)
        ]
    return pl.concat(parts)


def owners_of(persons: pl.Series) -> Ints:
    """Return the number of the person of each row, by their first rows; a row without a person is of one more.

    Examples
    --------
    >>> owners_of(pl.Series(["b", "a", None, "b", None])).tolist()
    [0, 1, 2, 0, 3]
    """
    code = codes_of_people(persons)
    nobody = code < 0
    code[nobody] = code.max(initial=-1) + 1 + np.arange(np.count_nonzero(nobody))
    _, first, owner = np.unique(code, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    found: Ints = number[owner]
    return found


def rows_of_people(owners: Ints, chosen: NDArray[Any]) -> Ints:
    """Return all rows of some people, one person after the other.

    Examples
    --------
    >>> rows_of_people(np.array([0, 1, 0, 2]), np.array([2, 0])).tolist()
    [3, 0, 2]
    """
    place = np.full(int(owners.max(initial=-1)) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(place[owners] >= 0)
    found: Ints = rows[np.argsort(place[owners[rows]], kind="stable")]
    return found


def one_row_each(owners: Ints, seed: int) -> Ints:
    """Return the place of a random row of each person.

    Examples
    --------
    >>> one_row_each(np.array([0, 1, 0]), seed=0).tolist()
    [2, 1]
    """
    order = np.random.default_rng((seed, 2)).permutation(len(owners))
    found: Ints = order[np.unique(owners[order], return_index=True)[1]]
    return found


def any_of(flags: Any, owners: Ints) -> NDArray[np.bool_]:
    """Return whether something is true of any row of each person.

    Examples
    --------
    >>> any_of([False, False, True], np.array([0, 1, 0])).tolist()
    [True, False]
    """
    return np.asarray(np.bincount(owners, np.asarray(flags, dtype=np.float64)) > 0)


def pooled(scores: Floats, owners: Ints, *, add: bool) -> Floats:
    """Return the mean score of the rows of each person, or their sum.

    Examples
    --------
    >>> pooled(np.array([3.0, 1.0, 5.0]), np.array([0, 1, 0]), add=False).tolist()
    [4.0, 1.0]
    """
    rows = np.bincount(owners)
    total = np.bincount(owners, scores)
    return np.asarray(total if add else total / rows, dtype=np.float64)

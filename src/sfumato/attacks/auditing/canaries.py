"""Canaries: records that an audit includes or not by fair coins, and the scores that tell which.

A canary should change what is released as much as one record can: in the gradient of a training it has a direction of
its own (`sfumato.attacks.auditing.training`), in a table it has a class that no similar record has (`mislabelled`).

If a claim protects people, a canary is a person, with as many equal records as the claim allows a person to have:
nothing moves a sum further.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.auditing.bounds import Guesses
from sfumato.attacks.base import Records
from sfumato.errors import InputError

__all__ = ["DESIGNS", "coins", "guesses_of", "joined", "likelihood_ratio", "mislabelled", "new_people", "planted"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DESIGNS = ((0.03, 0.0), (0.05, 0.05), (0.15, 0.15), (0.4, 0.4))
"""The shares of canaries that are guessed to be in, and to be out. All are tried, and share the error rate.

Few guesses find strong signals in noise, many show more where most are right. Where a step draws few records, only the
canaries that were drawn can be told apart, so one design has no guesses "out".
"""
_FEWEST = 20  # canaries


def coins(count: int, seed: int) -> Flags:
    """Return a fair coin for each canary.

    Examples
    --------
    >>> coins(20, seed=1)[:4].tolist()
    [True, True, False, False]
    """
    if count < _FEWEST:
        raise InputError(f"an audit in one run needs at least {_FEWEST} canaries, got {count}")
    return np.random.default_rng([seed, 0xC0]).random(count) >= 0.5


def guesses_of(scores: Any, included: Flags) -> tuple[Guesses, ...]:
    """Return the guesses about canaries for each of the `DESIGNS`: the highest scores are in, the lowest are out.

    Examples
    --------
    >>> included = np.arange(40) % 2 == 0
    >>> [(one.made, one.right) for one in guesses_of(np.where(included, 1.0, 0.0), included)]
    [(1, 1), (4, 4), (12, 12), (32, 32)]
    """
    found = np.asarray(scores, dtype=np.float64)
    if found.shape != included.shape or not np.isfinite(found).all():
        raise InputError(f"an audit needs one finite score for each of {len(included)} canaries")
    numbers = [(max(1, round(high * len(included))), round(low * len(included))) for high, low in DESIGNS]
    return tuple(Guesses.of(found, included, high=high, low=low) for high, low in numbers)


def likelihood_ratio(observed: Any, rate: float, noise: float) -> Floats:
    """Return the log-likelihood ratio of a canary that a step draws at a rate, given the value that it moves by 1.

    The sum over all steps is the best score that exists. For a small rate and little noise, the published score, the
    sum of the values, is much weaker: it adds up the noise of all steps, though few of them have drawn the canary.

    Examples
    --------
    >>> likelihood_ratio([0.5, 1.5], rate=1.0, noise=1.0).tolist()
    [0.0, 1.0]
    >>> likelihood_ratio([0.0, 1.0], rate=0.01, noise=0.5).round(3).tolist()
    [-0.009, 0.062]
    """
    exponent: Floats = (2 * np.asarray(observed, dtype=np.float64) - 1) / (2 * noise**2)
    if rate == 1:
        return exponent
    ratio: Floats = np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)
    return ratio


def mislabelled(records: Records, count: int, seed: int) -> Records:
    """Return records drawn from others, each with a label that is not its own.

    Examples
    --------
    >>> people = Records(np.array([[30], [40], [50]]), np.array(["no", "yes", "no"]))
    >>> wrong = mislabelled(people, 20, seed=0)
    >>> truth = dict(zip(people.rows[:, 0].tolist(), people.labels.tolist()))
    >>> any(truth[age] == label for age, label in zip(wrong.rows[:, 0].tolist(), wrong.labels.tolist()))
    False
    """
    if records.labels is None or len(classes := np.unique(records.labels)) < 2:
        raise InputError("records without two classes cannot be mislabelled")
    rng = np.random.default_rng([seed, 0xCA])
    drawn = records.take(rng.integers(0, len(records), count))
    own = np.searchsorted(classes, np.asarray(drawn.labels))
    other = (own + rng.integers(1, len(classes), count)) % len(classes)
    return Records(drawn.rows, classes[other])


def planted(records: Records, canaries: Records, included: Flags, rows: int) -> Records:
    """Return records and the included canaries, each a new person with so many equal records.

    Examples
    --------
    >>> people = Records(np.array([30, 31, 50]), people=[1, 1, 2])
    >>> planted(people, Records(np.array([99, 98])), np.array([False, True]), 2).people.to_list()
    [1, 1, 2, 3, 3]
    """
    chosen = canaries.take(np.repeat(np.flatnonzero(included), rows))
    if records.people is None:
        return records.and_(chosen)
    whose = new_people(records.people, len(chosen) // rows)
    return records.and_(replace(chosen, people=whose.gather(np.repeat(np.arange(len(whose)), rows))))


def new_people(known: pl.Series, number: int) -> pl.Series:
    """Return so many people who are not in a person column.

    Examples
    --------
    >>> new_people(pl.Series([7, None, 3]), 2).to_list(), new_people(pl.Series(["a"]), 1).to_list()
    ([8, 9], ['canary 0'])
    """
    if known.dtype.is_integer():
        first = int(known.cast(pl.Int64).max() or 0) + 1  # type: ignore[arg-type]
        return pl.Series("person", np.arange(number) + first).cast(known.dtype)
    taken, names = {str(one) for one in known.to_list()}, list[str]()
    for at in itertools.count():
        if len(names) == number:
            break
        names += [name] if (name := f"canary {at}") not in taken else []
    return pl.Series("person", names, dtype=pl.String)


def joined(records: Any, more: Any) -> Any:
    """Return records and more of them, as a frame or an array."""
    if isinstance(records, pl.DataFrame):
        return pl.concat([records, more])
    return np.concatenate([np.asarray(records), np.asarray(more)])

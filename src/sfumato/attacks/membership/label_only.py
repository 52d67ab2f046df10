"""Label-only: a record whose label survives much noise was probably in the training data.

The attacker sees only predicted classes. The record is changed at random many times, a little and more; a model keeps
its label longer around records that it was trained on. So this attack also works where no probabilities are released.

- Choquette-Choo, Tramer, Carlini, Papernot, *Label-only membership inference attacks*, ICML 2021. They choose the
  amount of noise on a model of their own; we take the mean over five amounts, so that nothing is chosen.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.base import Records, Scores
from sfumato.attacks.membership.attack import ModelAttack

__all__ = ["LabelOnly", "perturbed"]

Bools = NDArray[np.bool_]


class LabelOnly(ModelAttack):
    """Score a record by the share of its noisy copies that get its label; 0 if the record itself does not get it.

    Of more than 2,000 members or non-members a random 2,000 are judged; the result says how many records they have.
    """

    name = "label-only"
    asks_probabilities = False
    amounts: ClassVar[tuple[float, ...]] = (0.02, 0.05, 0.1, 0.2, 0.3)
    copies: ClassVar[int] = 10
    most: ClassVar[int] = 2_000

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score by the share of noisy copies that keep the label."""
        rng = np.random.default_rng(seed)
        judged = _sample(members, self.most, rng), _sample(nonmembers, self.most, rng)
        given = [records.take(some) for records, some in zip((members, nonmembers), judged, strict=True)]
        inside, outside = (self._kept(target, records, nonmembers, rng) for records in given)
        details = {"queries": 1 + len(self.amounts) * self.copies, "judged": [len(inside), len(outside)]}
        return Scores(inside, outside, details=details, judged=judged)

    def _kept(self, target: Any, records: Records, known: Records, rng: np.random.Generator) -> NDArray[np.float64]:
        labels = target.codes(records)
        right = target.labels(records) == labels
        copies = records.take(np.tile(np.arange(len(records)), self.copies))
        kept = np.zeros(len(records))
        for amount in self.amounts:
            found = target.labels(perturbed(copies, known, amount, rng)).reshape(self.copies, -1)
            kept += (found == labels).sum(axis=0)
        result: NDArray[np.float64] = np.where(right, kept / (len(self.amounts) * self.copies), 0.0)
        return result


def perturbed(records: Records, known: Records, amount: float, rng: np.random.Generator) -> Records:
    """Return noisy copies of records.

    A number gets normal noise of `amount` times the interquartile range of the known records, and stays within their
    range; anything else, and a number that is only 0 or 1, is exchanged for that of a known record with a probability
    of `amount`. A missing number stays missing.

    Examples
    --------
    >>> people = Records(pl.DataFrame({"age": [30, 50, 70], "sex": ["m", "f", "f"]}))
    >>> noisy = perturbed(people, people, 0.2, np.random.default_rng(0))
    >>> noisy.frame.schema == people.frame.schema, noisy.frame["age"].is_between(30, 70).all()
    (True, True)
    """
    if isinstance(records.rows, pl.DataFrame):
        columns = [_noisy_column(one, known.frame[one.name], amount, rng) for one in records.rows]
        return Records(pl.DataFrame(columns), records.labels)
    flat, others = (np.asarray(one.rows).reshape(len(one), -1) for one in (records, known))
    if np.isin(others, (0, 1)).all():
        drawn = others[rng.integers(len(others), size=flat.shape), np.arange(flat.shape[1])]
        noisy = np.where(rng.random(flat.shape) < amount, drawn, flat)
    else:
        noisy = _noisy_numbers(flat.astype(np.float64), others.astype(np.float64), amount, rng)
        noisy = noisy if flat.dtype.kind == "f" else np.rint(noisy)
    return Records(noisy.astype(flat.dtype).reshape(records.rows.shape), records.labels)


def _noisy_column(values: pl.Series, known: pl.Series, amount: float, rng: np.random.Generator) -> pl.Series:
    is_number = values.dtype.is_numeric() and not known.cast(pl.Float64).drop_nulls().is_in([0.0, 1.0]).all()
    if not is_number:
        drawn = known.gather(rng.integers(len(known), size=len(values)))
        keep = pl.Series(rng.random(len(values)) >= amount)
        return values.zip_with(keep, drawn.rename(values.name))
    numbers, others = (one.cast(pl.Float64).fill_null(np.nan).to_numpy()[:, None] for one in (values, known))
    noisy = _noisy_numbers(numbers, others, amount, rng)[:, 0]
    noisy = np.rint(noisy) if values.dtype.is_integer() else noisy
    return pl.Series(values.name, noisy).fill_nan(None).cast(values.dtype)


def _noisy_numbers(
    values: NDArray[np.float64], known: NDArray[np.float64], amount: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    finite = np.where(np.isfinite(known), known, np.nan)
    empty = np.isnan(finite).all(axis=0)
    finite[:, empty] = 0.0
    low, lower, upper, high = np.nanquantile(finite, [0, 0.25, 0.75, 1], axis=0)
    width = np.where(upper > lower, upper - lower, high - low)
    noisy = values + amount * width * rng.normal(size=values.shape)
    result: NDArray[np.float64] = np.clip(noisy, np.minimum(low, values), np.maximum(high, values))
    return result


def _sample(records: Records, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the places of the records of so many people."""
    if records.persons <= most:
        return np.arange(len(records))
    return np.sort(records.of_people(rng.permutation(records.persons)[:most]))

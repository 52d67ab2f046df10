"""How alike the rows of people are in two tables: how many there are, what stays the same, and what follows what.

Of each person with several rows, two are drawn at random, so people count alike, however many rows they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["RowsOfPeople", "rows_of_people"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RowsOfPeople:
    """How alike the rows of people are in an original and a released table.

    Attributes
    ----------
    counts : total variation distance of the numbers of rows of a person, up to the largest one of the release
    same : for each column, the share of people whose two rows have the same value: originally, and in the release
    pairs : for each column, the total variation distance of the pairs of values in two rows of a person
    """

    counts: float
    same: Mapping[str, tuple[float, float]]
    pairs: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "counts": self.counts,
            "same": {name: list(both) for name, both in self.same.items()},
            "pairs": dict(self.pairs),
        }


def rows_of_people(
    original: pl.DataFrame, released: pl.DataFrame, person: str, names: Sequence[str], *, bins: int = 10, seed: int = 0
) -> RowsOfPeople | None:
    """Compare the rows of people in two tables; None if nobody has several rows in one of them.

    Numbers are compared in bins with equal shares of the original rows. Rows without a person are left out.

    Examples
    --------
    >>> visits = pl.DataFrame({"who": [1, 1, 2, 2, 3], "sex": ["f", "f", "m", "m", "f"]})
    >>> mixed = visits.with_columns(sex=pl.Series(["f", "m", "m", "f", "f"]))
    >>> found = rows_of_people(visits, mixed, "who", ["sex"])
    >>> found.counts, found.same, found.pairs
    (0.0, {'sex': (1.0, 0.0)}, {'sex': 1.0})
    """
    rng = np.random.default_rng(seed)
    (ours, before), (theirs, after) = (_pairs(one, person, rng) for one in (original, released))
    if not (len(before[0]) and len(after[0])):
        return None
    most = int(theirs.max())
    shares = [np.bincount(np.minimum(one, most), minlength=most + 1) / len(one) for one in (ours, theirs)]
    same, apart = {}, {}
    for name in names:
        values = [one[name] for one in (*before, *after)]
        same[name] = _share_of_same(*values[:2]), _share_of_same(*values[2:])
        codes = _codes(original[name], values, bins)
        size = max(int(one.max()) for one in codes) + 1
        tables = [
            np.bincount(one * size + other, minlength=size**2) / len(one) for one, other in (codes[:2], codes[2:])
        ]
        apart[name] = float(np.abs(tables[0] - tables[1]).sum() / 2)
    return RowsOfPeople(counts=float(np.abs(shares[0] - shares[1]).sum() / 2), same=same, pairs=apart)


def _share_of_same(one: pl.Series, other: pl.Series) -> float:
    """Return the share of places at which two columns have the same value; missing ones are the same."""
    return float(one.eq_missing(other).to_numpy().mean())


def _pairs(
    table: pl.DataFrame, person: str, rng: np.random.Generator
) -> tuple[NDArray[np.intp], tuple[pl.DataFrame, pl.DataFrame]]:
    """Return the number of rows of each person, and two random rows of each who has them."""
    known = table.filter(pl.col(person).is_not_null())
    order = known.select(person).with_columns(at=pl.int_range(pl.len()), draw=pl.Series(rng.random(len(known))))
    order = order.sort(person, "draw")
    counts = order.group_by(person, maintain_order=True).len()["len"].to_numpy().astype(np.intp)
    first = (np.cumsum(counts) - counts)[counts > 1]
    at = order["at"].to_numpy()
    return counts, (known[at[first]], known[at[first + 1]])


def _codes(original: pl.Series, values: Sequence[pl.Series], bins: int) -> list[NDArray[np.intp]]:
    """Return values as codes: of bins for numbers and times, else of the values themselves."""
    if original.dtype.is_numeric() or original.dtype.is_temporal():
        usual = original.to_physical().cast(pl.Float64).drop_nulls().drop_nans()
        edges = np.unique(np.quantile(usual, np.linspace(0, 1, bins + 1)[1:-1])) if len(usual) else np.zeros(0)
        if all(one.dtype.is_numeric() or one.dtype == original.dtype for one in values):
            numbers = [one.to_physical().cast(pl.Float64) for one in values]
            return [
                np.where(one.is_null(), len(edges) + 1, np.searchsorted(edges, one.fill_null(0.0), "right"))
                for one in numbers
            ]
    texts = [one.cast(pl.String).fill_null("") for one in values]
    every = pl.concat(texts).rank("dense").to_numpy().astype(np.intp) - 1
    return np.split(every, np.cumsum([len(one) for one in texts])[:-1])

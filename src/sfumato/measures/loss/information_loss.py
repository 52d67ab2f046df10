"""The classical measures of information loss.

All of them depend on the quasi-identifiers, and on the values that each released value stands for;
see `generalised`. n is the number of rows, d the number of quasi-identifiers, n_E the rows of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Plain
from sfumato.data.released_values import MARK
from sfumato.data.table import Table
from sfumato.engines.tuples import group
from sfumato.measures.classes import Floats, Ints, ranges, without_suppressed
from sfumato.measures.guarantee import as_json_number
from sfumato.measures.loss.generalised import Coverage, Pairing, pair

__all__ = [
    "ColumnLoss",
    "Loss",
    "average_class",
    "bits",
    "discernibility",
    "kl_divergence",
    "loss",
    "loss_of",
    "ncp",
    "precision",
]

_MOST_PAIRS = 3_000_000


@dataclass(frozen=True)
class ColumnLoss(Plain):
    """The information loss of one quasi-identifier.

    Attributes
    ----------
    ncp : the mean normalised certainty penalty of its cells, 0 to 1
    entropy : the share of its bits that is lost, 0 to 1
    precision : 1 minus the mean height of its cells in its hierarchy; None if a cell is on no level
    suppressed : the share of its cells that are suppressed
    """

    ncp: float
    entropy: float
    precision: float | None
    suppressed: float


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The information loss of a release over all quasi-identifiers; except for the class measures, 0 is no loss.

    Attributes
    ----------
    gcp : the global certainty penalty, 0 to 1
    discernibility : the sum of n_E^2, plus n for every suppressed row
    average_class : the mean size of a class
    suppressed : the share of rows in which every quasi-identifier is suppressed
    precision : 1 minus the mean height of the cells, 0 to 1; None if a cell is on no level of a hierarchy
    entropy : the share of bits that is lost, 0 to 1; 0 for constant columns
    kl : the Kullback-Leibler divergence in bits; None if it would take too long
    by_column : the loss of each quasi-identifier
    """

    gcp: float
    discernibility: int
    average_class: float
    suppressed: float
    precision: float | None
    entropy: float
    kl: float | None
    by_column: dict[str, ColumnLoss]

    def to_dict(self) -> dict[str, Any]:
        """Return the loss as plain values, ready for JSON."""
        return {
            "gcp": self.gcp,
            "discernibility": self.discernibility,
            "average_class": self.average_class,
            "suppressed": self.suppressed,
            "precision": self.precision,
            "entropy": self.entropy,
            "kl": as_json_number(self.kl),
            "by_column": {name: column.to_dict() for name, column in self.by_column.items()},
        }


def loss(
    original: Table | Any, released: Table | Any, *, quasi: Sequence[str] = (), suppressed: str | None = MARK
) -> Loss:
    """Measure the information loss of a release.

    Row i of the release must be row i of the original; a suppressed row stays, with the mark in
    every quasi-identifier. If all rows are suppressed, they form one class and none counts as
    suppressed, as in `assess`.

    Parameters
    ----------
    original, released : Table, frame or path
        The schema of the original declares kinds, bounds, domains and hierarchies.
    quasi : sequence of str
        The quasi-identifiers; those of the original's schema by default.
    suppressed : str or None
        The mark of suppression.

    Examples
    --------
    >>> import polars as pl
    >>> original = pl.DataFrame({"age": [20, 30, 40, 60], "sex": ["f", "m", "f", "m"]})
    >>> released = pl.DataFrame({"age": ["[20, 30]", "[20, 30]", "*", "60"], "sex": ["{f, m}", "{f, m}", "*", "m"]})
    >>> lost = loss(original, released, quasi=["age", "sex"])
    >>> lost.gcp, lost.discernibility, lost.average_class, lost.suppressed
    (0.5625, 9, 1.5, 0.25)
    >>> lost.by_column["age"].ncp, lost.by_column["sex"].ncp
    (0.375, 0.75)
    >>> cities = pl.DataFrame({"city": ["Bonn", "Rome", "Oslo", "Bern"]})
    >>> loss(cities, pl.DataFrame({"city": ["{Bonn, Rome}"] * 2 + ["Oslo", "Bern"]}), quasi=["city"]).entropy
    0.25
    """
    return loss_of(pair(original, released, quasi, suppressed), suppressed)


def loss_of(pairing: Pairing, suppressed: str | None = MARK) -> Loss:
    """Measure the information loss of a paired original and release; see `loss`."""
    both = pairing.align()
    names, rows = both.names, both.rows
    classes, marked = without_suppressed(both.classes, names, suppressed)
    bits_of = [bits(both, position) for position in range(len(names))]
    columns = {}
    for position, (name, read) in enumerate(zip(names, both.coverages, strict=True)):
        count = np.bincount(both.meaning[:, position], weights=both.records, minlength=len(read))
        columns[name] = ColumnLoss(
            ncp=float(ncp(read) @ count / rows),
            entropy=_share(*bits_of[position]),
            precision=precision(read, count),
            suppressed=float(count[read.everything].sum() / rows),
        )
    levels = [column.precision for column in columns.values()]
    return Loss(
        gcp=float(np.mean([column.ncp for column in columns.values()])),
        discernibility=discernibility(classes.count, marked),
        average_class=average_class(classes.count),
        suppressed=marked / rows,
        precision=None if None in levels else float(np.mean(np.array(levels, dtype=float))),
        entropy=_share(sum(lost for lost, _ in bits_of), sum(held for _, held in bits_of)),
        kl=kl_divergence(both),
        by_column=columns,
    )


def ncp(read: Coverage) -> Floats:
    """Return the normalised certainty penalty of each released value (Xu et al. 2006; Ghinita et al. 2007).

    For a number or date, it is the width of the interval divided by the range of the column; for a
    category, the number of values that it stands for divided by the number of all values, but 0 for
    a single value. The mark costs 1, even in a constant column. The global certainty penalty (GCP)
    of a table is the mean over all cells.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.generalised import coverage
    >>> from sfumato.measures.loss.universe import universe
    >>> table = sf.Table(pl.DataFrame({"age": [20, 30, 40, 60], "city": ["Bonn", "Rome", "Oslo", "Oslo"]}))
    >>> age, city = map(universe, table.encode(["age", "city"]).domains)
    >>> ncp(coverage(age, pl.Series(["20", "[20, 40]", "*"]))).tolist()
    [0.0, 0.5, 1.0]
    >>> ncp(coverage(city, pl.Series(["Bonn", "{Bonn, Oslo}", "*"]))).round(3).tolist()
    [0.0, 0.667, 1.0]
    """
    of = read.universe
    if of.is_line:
        width = np.nan_to_num(read.high - read.low) / ((of.high - of.low) or 1.0)
        return np.where(read.everything, 1.0, width)
    return np.where(read.everything, 1.0, np.where(read.size > 1, read.size / len(of), 0.0))


def precision(read: Coverage, count: NDArray[Any]) -> float | None:
    """Return 1 minus the mean height of a column's cells in its hierarchy (Sweeney 2002).

    The height of a cell is its level divided by the height of the hierarchy; without a hierarchy, a
    value has height 0 and the mark 1. None if a cell is on no level, such as a free interval.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.measures.loss.generalised import coverage
    >>> from sfumato.measures.loss.universe import universe
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> schema = sf.Schema([sf.Column(name="illness", hierarchy=tree)])
    >>> table = sf.Table(pl.DataFrame({"illness": ["flu", "asthma", "ulcer"]}), schema)
    >>> read = coverage(universe(table.encode(["illness"]).domains[0]), pl.Series(["flu", "lung", "*"]))
    >>> precision(read, np.array([1, 1, 2]))
    0.375
    """
    hierarchy = read.universe.column.hierarchy
    if (read.level[count > 0] < 0).any():
        return None
    return float(1 - (read.level @ count) / (count.sum() * (1 if hierarchy is None else max(hierarchy.height, 1))))


def discernibility(size: Ints, suppressed: int = 0) -> int:
    """Return the sum of n_E^2 over the classes, plus n for every suppressed row (Bayardo & Agrawal 2005).

    Examples
    --------
    >>> discernibility(np.array([2, 3]), suppressed=1)
    19
    """
    rows = int(size.sum()) + suppressed
    return int((size.astype(np.int64) ** 2).sum()) + rows * suppressed


def average_class(size: Ints, k: int = 1) -> float:
    """Return the mean class size; divided by the required k, it is C_avg (LeFevre et al. 2006).

    Suppressed rows are in no class.

    Examples
    --------
    >>> average_class(np.array([2, 4])), average_class(np.array([2, 4]), k=2)
    (3.0, 1.5)
    """
    return float(size.sum() / len(size) / k)


def bits(both: Pairing, position: int, count: NDArray[Any] | None = None) -> tuple[float, float]:
    """Return the bits that a column lost, and those it could lose: the non-uniform entropy (Gionis & Tassa 2009).

    A cell with the original value a, released as the set S, lost ``-log2 P(a | S)`` bits, with
    ``P(a | S) = p_a / p_S`` from the original column (de Waal & Willenborg 1999); as the mark it would
    have lost ``-log2 p_a``. A representative that is not the original value counts as lost. If only a part of a table
    is paired, `count` has the number of records of the whole table with each value.
    """
    read = both.coverages[position]
    ours, theirs = both.original[:, position].astype(np.int64), both.meaning[:, position]
    values = len(read.universe)
    count = np.bincount(ours, weights=both.records, minlength=values) if count is None else count
    rows = count.sum()
    if values * len(read) <= 4 * len(ours) + 1_000_000:
        times = np.bincount(theirs * np.int64(values) + ours, weights=both.records)
        cell = np.flatnonzero(times)
        times = times[cell]
    else:
        cell, of_row = np.unique(theirs * np.int64(values) + ours, return_inverse=True)
        times = np.bincount(of_row, weights=both.records)
    value, code = cell % values, cell // values
    # A value that does not cover the original one reveals nothing, like the mark.
    among = np.where(read.covers(code, value), read.total(count)[code], rows)
    return float(times @ np.log2(among / count[value])), float(times @ np.log2(rows / count[value]))


def _share(lost: float, held: float) -> float:
    return lost / held if held > 0 else 0.0


def kl_divergence(both: Pairing, most: int = _MOST_PAIRS) -> float | None:
    """Return the Kullback-Leibler divergence from the original to the released distribution (Kifer & Gehrke 2006).

    ``sum p_t log2(p_t / q_t)`` over the distinct original rows t, in bits; p is the share of the row
    in the original, and q its share if every released row is spread evenly over all combinations
    of values that it stands for. Infinite if an original row has q = 0, as with representatives.
    None if more than `most` partial matches of original and released rows are expected or reached.

    Examples
    --------
    >>> import polars as pl
    >>> original = pl.DataFrame({"city": ["Bonn", "Bonn", "Bonn", "Rome"]})
    >>> released = pl.DataFrame({"city": ["{Bonn, Rome}"] * 4})
    >>> round(kl_divergence(pair(original, released, ["city"]).align()), 3)
    0.189
    """
    people, count = both.people
    if 10 * len(people) > most:  # a row matches several released rows in the search
        return None
    regions, weight = both.regions
    mass = weight / weight.sum()
    # Match row prefixes with released prefixes, column by column, the most selective column first:
    # the matching values are a run of the children of a row prefix, found by two searches.
    width = [(read.size[regions[:, i]] / len(read.universe)) @ mass for i, read in enumerate(both.coverages)]
    row, of_row = np.zeros(1, dtype=np.int64), np.zeros(len(people), dtype=np.int64)
    region, of_region = np.zeros(1, dtype=np.int64), np.zeros(len(regions), dtype=np.int64)
    for i in np.argsort(width).tolist():
        read = both.coverages[i]
        mass = mass / np.maximum(read.size[regions[:, i]], 1)
        span = len(read.universe) + 1
        first, below_row = group(np.column_stack([of_row, people[:, i]]), [len(people), span])
        key = of_row[first] * span + people[first, i]
        first, below_region = group(np.column_stack([of_region, regions[:, i]]), [len(regions), len(read)])
        start = np.searchsorted(of_region[first], np.arange(int(of_region.max()) + 2))
        if (start[region + 1] - start[region]).sum() > most:
            return None
        match, child = ranges(start[region], start[region + 1])
        code = regions[first[child], i]
        if (read.start[code + 1] - read.start[code]).sum() > most:
            return None
        of_match, run = ranges(read.start[code], read.start[code + 1])
        parent = row[match[of_match]] * span
        begin, end = np.searchsorted(key, parent + read.first[run]), np.searchsorted(key, parent + read.stop[run])
        if (end - begin).sum() > most:
            return None
        of_run, row = ranges(begin, end)
        region = child[of_match[of_run]]
        of_row, of_region = below_row, below_region
    density = np.zeros(len(regions))
    density[of_region] = mass
    q = np.bincount(row, weights=density[region], minlength=len(people))
    p = np.zeros(len(people))
    p[of_row] = count / count.sum()
    if (q == 0).any():
        return float("inf")
    return max(float(p @ np.log2(p / q)), 0.0)

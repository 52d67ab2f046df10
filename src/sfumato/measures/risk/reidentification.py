"""Re-identification risk: the chance that an attacker finds a person's row, and the columns that help.

A *prosecutor* knows that a person is in the table: the chance of picking the right row is one in
the size of the class. A *marketer* wants to match as many rows as possible, no matter which.
`journalist` covers attackers who only know a population that the table is a sample of.

- El Emam and Dankar, *Protecting privacy using k-anonymity*, Journal of the American Medical
  Informatics Association 15(5), 2008: prosecutor.
- Dankar and El Emam, *A method for evaluating marketer re-identification risk*, EDBT/ICDT
  workshops 2010.

The presets are thresholds of medicines agencies; none of this is legal advice:

- European Medicines Agency, *External guidance on the implementation of the European Medicines
  Agency policy on the publication of clinical data for medicinal products for human use*
  (EMA/90915/2016): a maximum risk of 0.09.
- Health Canada, *Public release of clinical information: guidance document*, 2019: the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from sfumato._repr import Plain
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.measures.classes import ClassCounts
from sfumato.measures.guarantee import Bound, ClassGuarantee
from sfumato.measures.models import KAnonymity
from sfumato.measures.person_counts import Visits, count_people

__all__ = [
    "MOST_SUBSETS",
    "PRESETS",
    "THRESHOLD",
    "ColumnRisk",
    "Preset",
    "Risk",
    "SubsetRisk",
    "column_risks",
    "number_of_subsets",
    "preset",
    "reidentification_risk",
    "subset_risks",
]

THRESHOLD = 0.09
"""The risk that the European Medicines Agency and Health Canada accept for one record; see `Preset`."""

MOST_SUBSETS = 5_000
"""The most subsets of the quasi-identifiers that are measured; more would take minutes."""

_DENSE = 1 << 22  # the most possible tuples that are counted in an array instead of by sorting


@dataclass(frozen=True)
class Risk(Plain):
    """The chance that an attacker who knows a person's quasi-identifiers picks the person's row."""

    prosecutor_max: float
    """For the person at most risk."""
    prosecutor_mean: float
    """For the average person."""
    uniques: int
    """The number of rows that are alone in their class; or of people who are alone in one of theirs."""
    marketer: float
    """The share of rows that an attacker who links the whole table gets right on average: classes / rows.

    With disjoint classes this is the prosecutor mean; with ``missing="wildcard"`` classes overlap. If people are
    counted, it is the share of right links, one for each person in each of their classes.
    """
    threshold: float
    """The risk above which a record counts as at risk."""
    above_threshold: float
    """The share of records, or people, with a risk strictly above the threshold."""


def reidentification_risk(counts: ClassCounts, threshold: float = THRESHOLD) -> Risk:
    """Measure the re-identification risk of every row.

    The risk of a row is 1/n_E, with n_E the size of its class. If people are counted, the risk of a person is that of
    their smallest class: the row that exposes them most.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "f", "m"]}))
    >>> result = reidentification_risk(class_counts(reduce(table, ["sex"]), ["sex"], None), threshold=0.5)
    >>> result.prosecutor_max, result.prosecutor_mean, result.uniques
    (1.0, 0.5, 1)
    >>> result.marketer, result.above_threshold
    (0.5, 0.25)
    """
    threshold = VALID_THRESHOLD.valid("threshold", threshold)
    return Risk(
        prosecutor_max=float(1 / counts.size.min()),
        prosecutor_mean=float((counts.records / counts.size).sum() / counts.rows),
        uniques=int(counts.records[counts.size == 1].sum()),
        marketer=len(counts) / (counts.links or counts.rows),
        threshold=threshold,
        above_threshold=float(counts.records[1 / counts.size > threshold].sum() / counts.rows),
    )


@dataclass(frozen=True)
class Preset:
    """A limit on the largest risk of a record, and the guarantees that keep it.

    Examples
    --------
    >>> [str(guarantee) for guarantee in preset("ema").guarantees]
    ['k=12']
    """

    name: str
    title: str
    threshold: float
    source: str

    @property
    def guarantees(self) -> tuple[ClassGuarantee, ...]:
        """The required guarantee: the smallest k with 1/k not above the threshold (1/11 is above 0.09)."""
        k = max(1, math.floor(1 / self.threshold))
        return (KAnonymity(k if 1 / k <= self.threshold else k + 1),)

    def to_dict(self) -> dict[str, Any]:
        """Return the preset as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "threshold": self.threshold,
            "guarantees": [str(guarantee) for guarantee in self.guarantees],
            "source": self.source,
        }


PRESETS: dict[str, Preset] = {
    one.name: one
    for one in (
        Preset("ema", "European Medicines Agency, policy 0070", THRESHOLD, "EMA/90915/2016"),
        Preset("health-canada", "Health Canada, public release of clinical information", THRESHOLD, "Guidance of 2019"),
    )
}
"""The presets by name."""


def preset(name: str) -> Preset:
    """Return a preset by its name.

    Examples
    --------
    >>> preset("health-canada").threshold
    0.09
    """
    if name not in PRESETS:
        raise OptionError(f"the preset '{name}' is unknown", hint=did_you_mean(name, PRESETS))
    return PRESETS[name]


@dataclass(frozen=True)
class SubsetRisk(Plain):
    """How well a subset of the quasi-identifiers singles people out."""

    columns: tuple[str, ...]
    k: int
    """The smallest class."""
    uniques: int
    """The rows that are alone in their class."""
    unique_share: float
    """Their share of all rows."""


def subset_risks(
    tuples: Tuples, quasi: Sequence[str], size: int = 3, person: str | None = None
) -> tuple[SubsetRisk, ...]:
    """Measure k and the uniques of every set of at most `size` quasi-identifiers, the worst set first.

    Worst means: most uniques, then the smallest k, then the fewest columns, because a set never
    has fewer uniques or a larger k than its subsets.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "m", "m"], "age": [30, 40, 30, 30]}))
    >>> for one in subset_risks(reduce(table, ["sex", "age"]), ["sex", "age"], size=2):
    ...     print(one.columns, one.k, one.uniques)
    ('sex', 'age') 1 2
    ('age',) 1 1
    ('sex',) 2 0
    """
    size = min(int(Bound("size", low=1, whole=True).valid("size", size)), len(quasi))
    tuples = _only(tuples, quasi, person)
    subsets = number_of_subsets(len(quasi), size)
    if subsets > MOST_SUBSETS:
        raise OptionError(
            f"{len(quasi)} quasi-identifiers have {subsets} subsets of at most {size} columns, "
            f"more than {MOST_SUBSETS}",
            hint="ask for a smaller size or fewer quasi-identifiers",
        )
    found = []
    for number in range(1, size + 1):
        for chosen in combinations(range(len(quasi)), number):
            classes = _classes_of(tuples, chosen, person)
            names = tuple(quasi[position] for position in chosen)
            found.append(SubsetRisk(names, classes.k, classes.uniques, classes.uniques / classes.units))
    return tuple(sorted(found, key=lambda one: (-one.uniques, one.k, len(one.columns))))


@dataclass(frozen=True)
class ColumnRisk(Plain):
    """The contribution of one quasi-identifier to the risk, and its risk alone."""

    column: str
    mean_drop: float
    """The drop of the mean prosecutor risk if the column is left out."""
    uniques_drop: int
    """The drop of the number of unique rows if the column is left out."""
    mean_alone: float
    """The mean prosecutor risk if this were the only quasi-identifier."""
    uniques_alone: int


def column_risks(tuples: Tuples, quasi: Sequence[str], person: str | None = None) -> tuple[ColumnRisk, ...]:
    """Measure the contribution of each quasi-identifier to the risk, largest first.

    The contributions do not add up: two columns may reveal together what neither reveals alone.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "m", "m"], "age": [30, 40, 30, 30]}))
    >>> column_risks(reduce(table, ["sex", "age"]), ["sex", "age"])[0]
    ColumnRisk(column='age', mean_drop=0.25, uniques_drop=2, mean_alone=0.5, uniques_alone=1)
    """
    tuples = _only(tuples, quasi, person)
    everything = range(len(quasi))
    whole = _classes_of(tuples, tuple(everything), person)
    found = []
    for position in everything:
        without = _classes_of(tuples, tuple(other for other in everything if other != position), person)
        alone = _classes_of(tuples, (position,), person)
        found.append(
            ColumnRisk(
                column=quasi[position],
                mean_drop=(whole.risk - without.risk) / whole.units,
                uniques_drop=whole.uniques - without.uniques,
                mean_alone=alone.risk / whole.units,
                uniques_alone=alone.uniques,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.mean_drop, -one.uniques_drop)))


def number_of_subsets(columns: int, size: int) -> int:
    """Return the number of non-empty subsets of at most ``size`` columns.

    Examples
    --------
    >>> number_of_subsets(6, 3)
    41
    """
    return sum(math.comb(columns, number) for number in range(1, size + 1))


VALID_THRESHOLD = Bound("threshold", low=0, high=1)


def _only(tuples: Tuples, quasi: Sequence[str], person: str | None = None) -> Tuples:
    """Return the distinct tuples of the quasi-identifiers, in the given order, and of the person."""
    if not quasi:
        raise OptionError("no quasi-identifier is named", hint="name the columns that others know, with qi / --qi")
    for name in quasi:
        if name not in tuples.position:
            raise ColumnError(f"there is no column '{name}'", hint=did_you_mean(name, tuples.position))
    found = tuples.only([*quasi, *([] if person is None else [person])])
    if not len(found.count):
        raise InputError("the table has no rows")
    return found


class _Classes(NamedTuple):
    """The classes of some columns: the smallest, who is alone, the risks added up, and how many have one."""

    k: int
    uniques: int
    risk: float
    units: int


def _classes_of(tuples: Tuples, positions: Sequence[int], person: str | None) -> _Classes:
    """Measure the classes of some columns, in rows or in people."""
    sizes = [len(tuples.domains[position]) for position in positions]
    if sizes and math.prod(sizes) <= _DENSE:
        key = np.ravel_multi_index(tuple(tuples.codes[:, position] for position in positions), sizes)
    else:
        _, key = group(tuples.codes[:, list(positions)], sizes)
    if person is None:
        size = np.bincount(key, weights=tuples.count).astype(np.int64)
        size = size[size > 0]
        # With disjoint classes, the mean of 1/n_E over the rows is classes / rows.
        return _Classes(int(size.min()), int((size == 1).sum()), len(size), int(tuples.count.sum()))
    counts = count_people(Visits.of(tuples, person, key), int(key.max()) + 1, None, 0)
    risks = counts.records[counts.size > 0] / counts.size[counts.size > 0]
    uniques = int(counts.records[counts.size == 1].sum())
    return _Classes(int(counts.size[counts.size > 0].min()), uniques, float(risks.sum()), int(counts.records.sum()))

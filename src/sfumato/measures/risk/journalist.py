"""Journalist risk and delta-presence: attackers who do not know whether a person is in the table.

A *journalist* only knows that a person is in a population that the table is a sample of: the chance
of picking the right person is one in the size of the class in the population. Being in the table at
all (*presence*) may also be sensitive.

- El Emam and Dankar, *Protecting privacy using k-anonymity*, Journal of the American Medical
  Informatics Association 15(5), 2008: journalist.
- Sweeney, *k-anonymity: a model for protecting privacy*, International Journal of Uncertainty,
  Fuzziness and Knowledge-Based Systems 10(5), 2002: k-map.
- Nergiz, Atzori and Clifton, *Hiding the presence of individuals from shared databases*, SIGMOD
  2007: delta-presence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from sfumato._repr import Plain
from sfumato.data.coding import Domain
from sfumato.engines.tuples import group
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.measures.classes import ClassCounts, Ints
from sfumato.measures.risk.reidentification import THRESHOLD, VALID_THRESHOLD

__all__ = ["DeltaPresence", "JournalistRisk", "delta_presence", "journalist_risk"]


@dataclass(frozen=True)
class JournalistRisk(Plain):
    """The chance that an attacker picks the person behind a row from the population."""

    k_map: int
    """The smallest population class that a row of the table belongs to."""
    journalist_max: float
    """1 / k_map: for the person at most risk."""
    journalist_mean: float
    """For the average row; also the share of rows that a marketer with the population gets right."""
    uniques: int
    """The rows whose person is alone in their population class."""
    threshold: float
    above_threshold: float
    """The share of records with a risk strictly above the threshold."""


def journalist_risk(sample: ClassCounts, population: ClassCounts, threshold: float = THRESHOLD) -> JournalistRisk:
    """Measure the risk against a population table that the table is a sample of.

    The risk of a row is 1/N_E, with N_E the size of its class in the population. Both tables are
    counted by the same quasi-identifiers, at the same level of detail.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> def count(ages):
    ...     return class_counts(reduce(sf.Table(pl.DataFrame({"age": ages})), ["age"]), ["age"], None)
    >>> result = journalist_risk(count([30, 40, 40]), count([30, 30, 40, 40, 40, 40, 50]))
    >>> result.k_map, result.journalist_max, result.journalist_mean
    (2, 0.5, 0.3333333333333333)
    """
    threshold = VALID_THRESHOLD.valid("threshold", threshold)
    size = population.size[_in_population(sample, population)]
    return JournalistRisk(
        k_map=int(size.min()),
        journalist_max=float(1 / size.min()),
        journalist_mean=float((sample.size / size).sum() / sample.rows),
        uniques=int(sample.size[size == 1].sum()),
        threshold=threshold,
        above_threshold=float(sample.size[1 / size > threshold].sum() / sample.rows),
    )


@dataclass(frozen=True)
class DeltaPresence(Plain):
    """The probability that a person of the population is in the table: from `delta_min` to `delta_max`."""

    delta_min: float
    """The smallest share of a population class that is in the table; 0 if the table lacks a class."""
    delta_max: float
    """The largest share; 1 if all people of some class are in the table."""


def delta_presence(sample: ClassCounts, population: ClassCounts) -> DeltaPresence:
    """Bound the chance that a person of the population is in the table (Nergiz et al. 2007).

    For each class of the population, the chance is n_E / N_E: its rows in the table divided by its people.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines import reduce
    >>> from sfumato.measures import class_counts
    >>> def count(ages):
    ...     return class_counts(reduce(sf.Table(pl.DataFrame({"age": ages})), ["age"]), ["age"], None)
    >>> delta_presence(count([30, 40, 40]), count([30, 30, 40, 40, 40, 40, 40]))
    DeltaPresence(delta_min=0.4, delta_max=0.5)
    """
    rows = np.zeros(len(population), dtype=np.int64)
    rows[_in_population(sample, population)] = sample.size
    share = rows / population.size
    return DeltaPresence(float(share.min()), float(share.max()))


def _in_population(sample: ClassCounts, population: ClassCounts) -> Ints:
    """Return the population class of each class of the sample; refuse tables that are not sample and population."""
    if (sample.size != sample.records).any() or (population.size != population.records).any():
        raise OptionError(
            "a population table cannot be compared where missing values are wildcards",
            hint="use missing=value or missing=drop",
        )
    domains = {domain.name: domain for domain in population.quasi}
    for domain in sample.quasi:
        if domain.name not in domains:
            raise ColumnError(
                f"the population table is not counted by the quasi-identifier '{domain.name}'",
                hint=did_you_mean(domain.name, domains),
            )
    names = [domain.name for domain in sample.quasi]
    if len(names) != len(domains):
        raise ColumnError("the population table is counted by more quasi-identifiers than the table")
    order = [names.index(domain.name) for domain in population.quasi]
    labels = np.column_stack(
        [
            _translate(sample.quasi[column], domain)[sample.labels[:, column]]
            for column, domain in zip(order, population.quasi, strict=True)
        ]
    )
    known = (labels >= 0).all(axis=1)
    # Group the labels of both tables together; within each table they are distinct.
    sizes = [len(domain) for domain in population.quasi]
    first, of_label = group(np.concatenate([population.labels, labels[known]]), sizes)
    place = np.full(len(first), -1)
    place[of_label[: len(population)]] = np.arange(len(population))
    found = np.full(len(sample), -1)
    found[known] = place[of_label[len(population) :]]

    absent = found < 0
    if absent.any():
        raise InputError(
            f"the population table lacks {absent.sum()} of the {len(sample)} classes of the table "
            f"({sample.size[absent].sum()} rows)",
            hint="the table must be a sample of the population, generalised in the same way",
        )
    smaller = population.size[found] < sample.size
    if smaller.any():
        raise InputError(
            f"{smaller.sum()} of the {len(sample)} classes have fewer rows in the population table than in the table",
            hint="the table must be a sample of the population",
        )
    return found


def _translate(sample: Domain, population: Domain) -> Ints:
    """Return the population's code of each value of the sample; -1 if the population lacks it."""
    ours, theirs = sample.values, population.values
    if ours.dtype != theirs.dtype:
        if ours.dtype == pl.Null or theirs.dtype == pl.Null:
            ours, theirs = (
                (ours.cast(theirs.dtype), theirs) if ours.dtype == pl.Null else (ours, theirs.cast(ours.dtype))
            )
        elif ours.dtype.is_integer() and theirs.dtype.is_integer():
            ours, theirs = ours.cast(pl.Int128), theirs.cast(pl.Int128)
        elif ours.dtype.is_numeric() and theirs.dtype.is_numeric():
            ours, theirs = ours.cast(pl.Float64), theirs.cast(pl.Float64)
        else:
            raise ColumnError(
                f"column '{sample.name}' is {ours.dtype} in the table but {theirs.dtype} in the population table",
                hint="read both in the same way",
            )
    codes = pl.DataFrame({"value": theirs}).with_row_index("code")
    found = pl.DataFrame({"value": ours}).join(codes, on="value", how="left", nulls_equal=True, maintain_order="left")
    return found["code"].cast(pl.Int64).fill_null(-1).to_numpy()

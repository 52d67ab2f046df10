"""The earth mover's distance between a class and the table, for t-closeness (Li et al. 2007).

It is the least work (mass times distance) that turns the distribution of a sensitive attribute in
a class into that of the table. The computation is exact and takes time proportional to the entries
of the sparse counts, not to classes times values.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import polars as pl

from sfumato.data.coding import Domain
from sfumato.data.schema import Kind
from sfumato.errors import OptionError, SchemaError
from sfumato.measures.classes import ClassCounts, Floats, Ints

__all__ = ["Distance", "earth_movers_distance", "levels_of", "places_of"]


class Distance(StrEnum):
    """The distance between two sensitive values.

    Examples
    --------
    >>> Distance("equal")
    <Distance.EQUAL: 'equal'>
    """

    AUTO = "auto"
    """Chosen by column: hierarchical if it has a hierarchy, ordered for numbers, ordinals and dates, else equal."""
    EQUAL = "equal"
    """Any two values are 1 apart."""
    ORDERED = "ordered"
    """The difference of the ranks, divided by the number of values less one. A missing value ranks last."""
    SCALED = "scaled"
    """The difference of the numbers, divided by the range of the column."""
    HIERARCHICAL = "hierarchical"
    """The height of the lowest common ancestor, divided by the height of the hierarchy."""

    def for_attribute(self, attribute: Domain) -> Distance:
        """Return the distance for an attribute; raise an error if this one does not apply."""
        column = attribute.column
        distance = self
        if self is Distance.AUTO:
            ordered = Distance.ORDERED if column.kind.is_ordered else Distance.EQUAL
            distance = ordered if column.hierarchy is None else Distance.HIERARCHICAL
        if distance is Distance.HIERARCHICAL and column.hierarchy is None:
            raise OptionError(f"the hierarchical distance needs a hierarchy, and column '{column.name}' has none")
        if distance is Distance.ORDERED and not column.kind.is_ordered:
            raise OptionError(
                f"the ordered distance needs a number, an ordinal or a date, and column '{column.name}' is a "
                f"{column.kind.value}"
            )
        if distance is Distance.SCALED and column.kind not in (Kind.NUMBER, Kind.DATE):
            raise OptionError(
                f"the scaled distance needs a number or a date, and column '{column.name}' is a {column.kind.value}"
            )
        if distance in (Distance.ORDERED, Distance.SCALED) and attribute.values.dtype == pl.String:
            if column.kind is not Kind.ORDINAL:
                raise SchemaError(f"column '{column.name}' is declared a {column.kind.value}, but holds texts")
            if column.domain is None:
                raise SchemaError(
                    f"column '{column.name}' is declared ordinal, but the order of its texts is not declared",
                    hint="list them in its domain",
                )
        return distance


def earth_movers_distance(counts: ClassCounts, attribute: Domain, distance: Distance) -> Floats:
    """Return EMD(q, p) of every class, to 15 decimal places."""
    distance = distance.for_attribute(attribute)
    if distance is Distance.EQUAL:
        emd = _total_variation(counts, np.arange(len(attribute)))
    elif distance is Distance.HIERARCHICAL:
        # The distance of two values is (height of their lowest common ancestor) / H, so each of the H
        # levels below the root contributes the mass that must move between its groups.
        emd = np.mean([_total_variation(counts, level) for level in levels_of(attribute)], axis=0)
    else:
        emd = _along_a_line(counts, places_of(attribute, distance))
    return np.abs(np.round(emd, 15))  # rounding may give -0.0


def _total_variation(counts: ClassCounts, group: Ints) -> Floats:
    """Sum max(q - p, 0) over groups of values: the mass that must move to another group."""
    groups = int(group.max()) + 1
    p = np.bincount(group, weights=counts.total, minlength=groups) / counts.whole
    cell, of_entry = np.unique(counts.owner * groups + group[counts.value], return_inverse=True)
    owner = cell // groups
    q = np.bincount(of_entry, weights=counts.count) / counts.mass[owner]
    return np.bincount(owner, weights=np.maximum(q - p[cell % groups], 0)).astype(np.float64)


def levels_of(attribute: Domain) -> Ints:
    """Return the group of each value on each level of the hierarchy; a missing value is its own group."""
    hierarchy = attribute.column.hierarchy
    assert hierarchy is not None
    hierarchy.check(attribute.values, attribute.name)
    return hierarchy.levels(attribute.values)


def places_of(attribute: Domain, distance: Distance) -> Floats:
    """Return the position of each value on a line from 0 to 1."""
    last = len(attribute) - 1
    if distance is Distance.ORDERED:
        return np.arange(last + 1) / max(last, 1)
    values = attribute.values
    places = (values.to_physical() if values.dtype.is_temporal() else values).cast(pl.Float64, strict=False).to_numpy()
    if not np.isfinite(places).all():
        raise OptionError(
            f"the scaled distance needs finite numbers, and column '{attribute.name}' has others too",
            hint="use the ordered distance",
        )
    span = float(places[last] - places[0])
    return np.asarray((places - places[0]) / (span or 1.0), dtype=np.float64)


def _along_a_line(counts: ClassCounts, places: Floats) -> Floats:
    """Integrate |F_q - F_p| over the line.

    Between two adjacent values of a class, F_q is constant, so the integral over that gap follows
    from prefix sums of F_p and the one point where F_p crosses F_q.
    """
    step = np.diff(places)
    table = np.cumsum(counts.total)[:-1] / counts.whole  # F_p right of each value but the last
    width = np.concatenate([[0.0], np.cumsum(step)])
    area = np.concatenate([[0.0], np.cumsum(step * table)])

    first = counts.start[:-1]
    before = np.cumsum(counts.count) - counts.count
    q = (before + counts.count - before[first][counts.owner]) / counts.mass[counts.owner]  # F_q from each entry on
    left = counts.value
    right = np.append(left[1:], len(places) - 1)
    right[counts.start[1:] - 1] = len(places) - 1  # the last gap of a class extends to the end of the line

    crossing = np.clip(np.searchsorted(table, q), left, right)
    above = q * (width[crossing] - width[left]) - (area[crossing] - area[left])
    below = (area[right] - area[crossing]) - q * (width[right] - width[crossing])
    emd: Floats = area[left[first]] + np.add.reduceat(above + below, first)
    return emd

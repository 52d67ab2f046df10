"""The lattice method: release each column on one level of its hierarchy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from sfumato.anonymizers.base import Anonymizer
from sfumato.anonymizers.lattice.nodes import levels_of
from sfumato.anonymizers.lattice.search import Objective, lattice
from sfumato.anonymizers.problem import Problem, exact_floats, with_hierarchy
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.released_values import MARK, write_set
from sfumato.data.schema import Column
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError, one_of

__all__ = ["Lattice"]


@dataclass(eq=False, repr=False)
class Lattice(Anonymizer):
    """Anonymize by releasing each column on one level of its hierarchy, with optimal levels; see `lattice`.

    All values of a column are generalised to the same level (full-domain generalisation), so a release is easy to
    read and to join with others. Rows in classes that break a guarantee are suppressed: they stay, with ``*`` in
    every quasi-identifier. A column without a hierarchy gets an automatic one.

    Parameters
    ----------
    guarantees, qi, sensitive, new_rows
        See `Anonymizer`.
    suppress : float
        The largest share of rows that may be suppressed; of the weight of people, if they are counted.
    objective : {"leaves", "precision", "discernibility"}
        The loss to minimise; see `Objective`.
    most_nodes : int
        The most nodes of the lattice to visit. If there are more, the result may not be optimal; `details` reports
        the proven bound.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [21, 22, 24, 41, 68], "sex": ["f", "f", "m", "m", "m"]})
    >>> decades = sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100))
    >>> table = sf.Table(people, sf.Schema([sf.Column(name="age", role="quasi", hierarchy=decades)]))
    >>> chosen = sf.Lattice("k=2", suppress=0.4).fit(table)
    >>> chosen.transform(people)["age"].tolist()
    ['20-29', '20-29', '20-29', '*', '*']
    >>> chosen.details()["levels"], chosen.details()["optimal"]
    ({'age': 1}, True)
    """

    suppress: float = 0.0
    objective: Objective | str = Objective.LEAVES
    most_nodes: int = 10**6

    name = "lattice"

    def details(self) -> dict[str, Any]:
        """Return the level of each column, the loss with its proven bound, and the extent of the search."""
        found = self.generalisation_
        names = [domain.name for domain in self.domains_]
        return {
            "levels": dict(zip(names, found.levels, strict=True)),
            "heights": {domain.name: _hierarchy(domain).height for domain in self.domains_},
            "suppressed": found.suppressed,
            "objective": str(self.objective),
            "loss": found.loss,
            "bound": found.bound,
            "optimal": found.optimal,
            "nodes": found.nodes,
            "checked": found.checked,
        }

    @property
    def columns(self) -> tuple[Column, ...]:
        """The quasi-identifiers with the hierarchies that were used, automatic ones included."""
        return tuple(domain.column for domain in self.domains_)

    def _decide(self, problem: Problem) -> None:
        self.domains_ = tuple(
            with_hierarchy(exact_floats(domain), np.bincount(problem.codes[:, column], problem.records, len(domain)))
            for column, domain in enumerate(problem.domains)
        )
        self.generalisation_ = lattice(
            problem.counts,
            problem.guarantees,
            [levels_of(domain) for domain in self.domains_],
            suppress=self.suppress,
            loss=one_of(Objective, self.objective, "objective"),
            most_nodes=self.most_nodes,
        )
        kept = self.generalisation_.of_tuple >= 0
        codes = [problem.codes[kept, column] for column in range(len(problem.domains))]
        labels = [self._labels(domain)[code] for domain, code in zip(self.domains_, codes, strict=True)]
        self.released_ = pl.DataFrame([series.alias(str(column)) for column, series in enumerate(labels)]).unique()

    def _settle(self, problem: Problem) -> None:
        super()._settle(problem)
        found = self.generalisation_
        rows = int(problem.records[found.of_tuple < 0].sum())
        self.generalisation_ = replace(found, suppressed=rows)

    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        """Generalise the tuples, and suppress those whose class is not in the release."""
        both = zip(tuples.domains, self.domains_, strict=True)
        new = [exact_floats(replace(mine, column=known.column)) for mine, known in both]
        for domain in new:
            _hierarchy(domain).check(domain.values, domain.name)
        labels = pl.DataFrame(
            [self._labels(domain)[tuples.codes[:, column]].alias(str(column)) for column, domain in enumerate(new)]
        )
        known = self.released_.with_columns(pl.lit(True).alias("released"))
        joined = labels.join(known, on=labels.columns, how="left", nulls_equal=True, maintain_order="left")
        released = joined["released"].fill_null(False)
        if released.all():
            exact = [level == 0 for level in self.generalisation_.levels]
            return [
                mine.values.gather(tuples.codes[:, column]).alias(mine.name)
                if exact[column]
                else labels[str(column)].alias(mine.name)
                for column, mine in enumerate(tuples.domains)
            ]
        marked = pl.when(pl.lit(released))
        return [
            labels.select(marked.then(pl.col(str(column))).otherwise(pl.lit(MARK))).to_series().alias(domain.name)
            for column, domain in enumerate(new)
        ]

    def _labels(self, domain: Domain) -> pl.Series:
        """Return the label of each value on the chosen level; a missing value stays missing on level 0.

        A group below the root whose label is the mark of suppression is written as the set of its values.
        """
        column = [one.name for one in self.domains_].index(domain.name)
        level, hierarchy = self.generalisation_.levels[column], _hierarchy(domain)
        labels = pl.Series(hierarchy.labels(domain.values, level), dtype=pl.String)
        if level == 0:
            return labels.set(domain.values.is_null(), None)
        if level < hierarchy.height and (labels == MARK).any():
            fitted = self.domains_[column]
            texts = [fitted.label(code) for code in range(len(fitted))]
            marked = [label == MARK for label in hierarchy.labels(fitted.values, level)]
            labels = labels.set(labels == MARK, write_set([*itertools.compress(texts, marked)], known=texts))
        return labels


def _hierarchy(domain: Domain) -> Hierarchy:
    if domain.column.hierarchy is None:
        raise OptionError(f"column '{domain.name}' has no hierarchy")
    return domain.column.hierarchy

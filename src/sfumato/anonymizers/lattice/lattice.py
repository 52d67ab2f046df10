"""The lattice method: release each column on one level of its hierarchy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from sfumato.anonymizers.base import Anonymizer, require_quasi
from sfumato.anonymizers.lattice.nodes import levels_of
from sfumato.anonymizers.lattice.search import Objective, at_levels, lattice
from sfumato.anonymizers.lattice.walk import LatticeMap, map_lattice
from sfumato.anonymizers.problem import Problem, exact_floats, with_hierarchy
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.released_values import MARK, write_set
from sfumato.data.schema import Column
from sfumato.data.table import Table
from sfumato.data.validate import whole
from sfumato.engines.dispatch import reduce
from sfumato.engines.engine import Progress
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError, did_you_mean, one_of

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
    levels : mapping of str to int, optional
        The level of each quasi-identifier, if you choose it yourself: `map` shows what each choice costs.

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
    levels: Mapping[str, int] | None = None

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

    def map(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        *,
        around: Mapping[str, int] | None = None,
        most_nodes: int = 2000,
        progress: Progress | None = None,
    ) -> LatticeMap:
        """Measure what many combinations of levels would cost, so that you can choose one as `levels`.

        Parameters
        ----------
        X : Table, frame or file
        around : mapping of str to int, optional
            The levels in the middle of the map, by default the best ones. The nearest ones are measured.
        most_nodes : int
            The most combinations to measure.
        progress : callable, optional
            A callback for the fraction of the work that is done.

        Examples
        --------
        >>> import pandas as pd
        >>> import sfumato as sf
        >>> people = pd.DataFrame({"age": [21, 22, 24, 41, 68], "sex": ["f", "f", "m", "m", "m"]})
        >>> decades = sf.Hierarchy.intervals(widths=[10, 50], bounds=(0, 100))
        >>> table = sf.Table(people, sf.Schema([sf.Column(name="age", role="quasi", hierarchy=decades)]))
        >>> found = sf.Lattice("k=2", suppress=0.4).map(table)
        >>> found.best, [(one.levels, one.suppressed) for one in found.nodes]
        ((1,), [((0,), 5), ((1,), 2), ((2,), 1), ((3,), 0)])
        """
        whole("the number of combinations", most_nodes)
        table = Table.of(X, qi=self.qi, sensitive=self.sensitive)
        quasi, sensitive = table.schema.quasi, table.schema.sensitive
        require_quasi(table.schema)
        table.schema.refuse_person("a map of the lattice")
        problem = Problem.of(reduce(table, [*quasi, *sensitive]), quasi, sensitive, self.asked)
        levels = [levels_of(domain) for domain in _domains(problem)]
        middle = None if around is None else _in_order(around, quasi)
        for name, one, level in zip(quasi, levels, middle or (), strict=False):
            if level > one.height:
                raise OptionError(f"the level of column '{name}' must be at most {one.height}, got {level}")
        return map_lattice(
            problem.counts,
            problem.guarantees,
            levels,
            suppress=self.suppress,
            loss=one_of(Objective, self.objective, "objective"),
            around=middle,
            most_nodes=most_nodes,
            most_visited=self.most_nodes,
            progress=progress,
        )

    def _decide(self, problem: Problem) -> None:
        self.domains_ = _domains(problem)
        levels = [levels_of(domain) for domain in self.domains_]
        loss = one_of(Objective, self.objective, "objective")
        if self.levels is None:
            self.generalisation_ = lattice(
                problem.counts,
                problem.guarantees,
                levels,
                suppress=self.suppress,
                loss=loss,
                most_nodes=self.most_nodes,
            )
        else:
            chosen = _in_order(self.levels, [domain.name for domain in self.domains_])
            self.generalisation_ = at_levels(
                problem.counts, problem.guarantees, levels, chosen, suppress=self.suppress, loss=loss
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


def _domains(problem: Problem) -> tuple[Domain, ...]:
    """Return the domains of the quasi-identifiers, each with a hierarchy."""
    return tuple(
        with_hierarchy(exact_floats(domain), np.bincount(problem.codes[:, column], problem.records, len(domain)))
        for column, domain in enumerate(problem.domains)
    )


def _in_order(levels: Mapping[str, int], names: Sequence[str]) -> list[int]:
    """Return the level of each column."""
    for name in levels:
        if name not in names:
            hint = did_you_mean(name, names)
            raise OptionError(f"there is no quasi-identifier '{name}' to choose the level of", hint=hint)
    for name in names:
        if name not in levels:
            raise OptionError(f"the level of column '{name}' is missing", hint="name one for each quasi-identifier")
        whole(f"the level of column '{name}'", levels[name], least=0)
    return [levels[name] for name in names]


def _hierarchy(domain: Domain) -> Hierarchy:
    if domain.column.hierarchy is None:
        raise OptionError(f"column '{domain.name}' has no hierarchy")
    return domain.column.hierarchy

"""How the values of a column generalise, level by level, as integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.anonymizers.problem import Problem, written
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.tree import Tree
from sfumato.data.released_values import are_whole
from sfumato.data.schema import Kind
from sfumato.measures.classes import Ints

__all__ = ["Levels", "levels_of", "with_hierarchies", "with_hierarchy"]


@dataclass(frozen=True, eq=False, repr=False)
class Levels(Discreet):
    """How the codes of one column generalise, level by level.

    Attributes
    ----------
    groups : the group of each code on each level: a row per level, the values themselves first, the
        root last; groups nest
    leaves : how many values of the column's domain are in that group
    """

    groups: Ints
    leaves: Ints

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.groups) - 1


def levels_of(domain: Domain, counts: Sequence[int] | None = None) -> Levels:
    """Work out how the values of a column generalise by its hierarchy, or by one made for it.

    The leaf values of a tree are its rows, whether they occur or not; those of a hierarchy by rule
    are the values that occur and those of the public domain in the schema.

    Parameters
    ----------
    domain : Domain
        The distinct values of the column; its schema may hold a hierarchy.
    counts : sequence of int, optional
        How often each value occurs, for `Hierarchy.automatic` where the schema has none.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> table = sf.Table(pl.DataFrame({"x": ["flu", "ulcer"]}), sf.Schema([sf.Column(name="x", hierarchy=tree)]))
    >>> levels = levels_of(table.encode(["x"]).domains[0])
    >>> levels.groups.tolist(), levels.leaves.tolist()
    ([[0, 1], [0, 1], [0, 0]], [[1, 1], [2, 1], [3, 3]])
    """
    column, values = domain.column, domain.values
    hierarchy = column.hierarchy or Hierarchy.automatic(column, values, counts)
    hierarchy.check(values, column.name)
    paths = hierarchy.paths(values)
    listed = hierarchy.rows if isinstance(hierarchy, Tree) else hierarchy.paths(column.domain or ())
    leaf = dict.fromkeys([*paths, *listed])
    groups = np.empty((hierarchy.height + 1, len(paths)), dtype=np.int64)
    leaves = np.empty_like(groups)
    for level in range(hierarchy.height + 1):
        number: dict[str, int] = {}
        of_leaf = [number.setdefault(path[level], len(number)) for path in leaf]
        groups[level] = [number[path[level]] for path in paths]
        leaves[level] = np.bincount(of_leaf, minlength=1)[groups[level]]
    return Levels(groups, leaves)


def with_hierarchy(domain: Domain, records: NDArray[np.generic]) -> Domain:
    """Give a column without a hierarchy an automatic one, from its values and how many records have each.

    The intervals of a column of whole numbers get labels such as ``20-39``.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> ages = sf.Table(pl.DataFrame({"age": [18, 20, 33, 41, 97]})).encode(["age"]).domains[0]
    >>> with_hierarchy(ages, np.ones(5)).column.hierarchy.labels([33, 97], level=1)
    ['20-49', '50+']
    """
    column = domain.column
    if column.hierarchy is not None:
        if column.kind is Kind.NUMBER and are_whole([*domain.values.drop_nulls(), *(column.domain or ())]):
            column = replace(column, hierarchy=column.hierarchy.for_whole_numbers())
        return replace(domain, column=column)
    if isinstance(domain.values.dtype, pl.Duration):
        column = replace(column, kind=Kind.CATEGORY)  # intervals are of numbers and dates
    automatic = Hierarchy.automatic(column, domain.values, records.astype(int).tolist())
    return replace(domain, column=replace(domain.column, hierarchy=automatic))


def with_hierarchies(problem: Problem) -> Problem:
    """Give every quasi-identifier without a hierarchy an automatic one."""
    quasi = []
    for at, domain in enumerate(problem.domains):
        records = np.bincount(problem.codes[:, at], problem.records, len(domain))
        quasi.append(replace(domain, column=with_hierarchy(written(domain), records).column))
    return replace(problem, counts=tuple(replace(one, quasi=tuple(quasi)) for one in problem.counts))

"""Model-guided anonymization: classes with similar predictions of a model (Goldsteen et al., DPM 2021).

A. Goldsteen, G. Ezov, R. Shmelkin, M. Moffie, A. Farkash, "Anonymizing machine learning models", Data Privacy
Management 2021; with true labels and entropy it is the workload-aware method of K. LeFevre, D. DeWitt,
R. Ramakrishnan, "Workload-aware anonymization techniques for large-scale datasets", ACM TODS 33(3), 2008. That the
best of all subsets of a category's values is among those in the order of their mean label is from L. Breiman et
al., "Classification and regression trees", 1984.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.anonymizers.base import Partitioner
from sfumato.anonymizers.guided.crossfit import CrossFitted, cross_fitted
from sfumato.anonymizers.guided.guidance import Guidance, Task, guidance, usable_features
from sfumato.anonymizers.limits import limits, sparse
from sfumato.anonymizers.microaggregation.microaggregate import neighbours
from sfumato.anonymizers.mondrian.partition import space_of
from sfumato.anonymizers.nearest_group import known_codes, places_on
from sfumato.anonymizers.problem import Problem, ValueLine
from sfumato.anonymizers.publish import Members, Output, publish
from sfumato.data.coding import Domain
from sfumato.data.schema import Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.data.validate import whole
from sfumato.engines.dispatch import recode, reduce
from sfumato.engines.engine import Recoding
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import ColumnError, InputError, did_you_mean, one_of
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.models import KAnonymity

__all__ = ["Criterion", "CutBy", "Guided", "GuidedTree", "Routes", "guided", "prune"]

_FEW, _FEW_NODES = 12_000, 10_000  # up to so many tuples and tree nodes, the kernels are not compiled
_FEWEST = 200  # records needed to hold some out
_BLOCK = 4096  # records among which neighbours are searched at k = 10; more in the same time for a larger k
_MOST_NAMES = 1000  # a category with more values, unique in half of the rows, identifies people


class Criterion(StrEnum):
    """The impurity that a cut lowers; for a number it is always the variance.

    Examples
    --------
    >>> Criterion("entropy")
    <Criterion.ENTROPY: 'entropy'>
    """

    GINI = "gini"
    """The Gini impurity of classes, or the variance of probabilities."""
    ENTROPY = "entropy"
    """The entropy of the classes."""


class CutBy(StrEnum):
    """The columns that decide which rows are published together.

    Examples
    --------
    >>> CutBy("qi")
    <CutBy.QI: 'qi'>
    """

    QI = "qi"
    """The quasi-identifiers: equal rows are published alike, and a release can have any size."""
    ALL = "all"
    """All but the target, identifiers and sensitive columns: rows with equal quasi-identifiers may be published
    differently. Only quasi-identifiers are changed."""


@dataclass(frozen=True, eq=False, repr=False)
class GuidedTree(Discreet):
    """A tree over tuples, as arrays with an entry per node; a child has a larger number than its parent.

    Attributes
    ----------
    nodes : the dimension (-1 for a leaf), both children, the records, the range of tuples, and the range of `pool`; for
        an ordered dimension instead the positions of the last value on the left and of the first on the right
    threshold : the place up to which an ordered dimension goes to the left
    pool : for each cut of a category its positions in order: twice the position, plus 1 if it goes to the right
    domains, lines : the values of each dimension, and their line
    """

    nodes: Ints
    threshold: Floats
    pool: Ints
    domains: tuple[Domain, ...]
    lines: tuple[ValueLine, ...]

    def leaves(self, tuples: Tuples) -> Ints:
        """Return the leaf of each tuple, including tuples with new values.

        A number between two others goes to the side of the nearer one, an unknown category to the larger side.
        """
        from sfumato.anonymizers.guided.kernels import UNKNOWN

        places = np.full((len(self.domains), len(tuples.count)), UNKNOWN)
        positions = np.empty(places.shape, dtype=np.int64)
        for column, (known, line) in enumerate(zip(self.domains, self.lines, strict=True)):
            new, at = tuples.domains[tuples.position[known.name]], tuples.codes[:, tuples.position[known.name]]
            code = known_codes(known, new)
            positions[column] = np.where(code < 0, -1, line.position[code])[at]
            if line.ordered:
                of_code = places_on(known, line, new)
                if known.missing is None and new.missing is not None:
                    of_code[new.missing] = UNKNOWN
                places[column] = of_code[at]
        return self._found(positions, places)

    def leaves_of(self, codes: NDArray[np.int32]) -> Ints:
        """Return the leaf of each tuple, given by codes of the tree's own domains."""
        both = list(zip(self.lines, codes.T, strict=True))
        positions = np.stack([line.position[code] for line, code in both]).astype(np.int64)
        return self._found(positions, np.stack([line.place[code] for line, code in both]).astype(np.float64))

    def _found(self, positions: Ints, places: Floats) -> Ints:
        ordered = np.array([line.ordered for line in self.lines])
        found: Ints = _kernels(len(self.nodes), places.shape[1]).find_leaves(
            positions, places, ordered, self.nodes, self.threshold, self.pool
        )
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Routes(Discreet):
    """A tree and the published values of its leaves, to transform new rows. It contains no rows.

    Attributes
    ----------
    tree : GuidedTree
    group : the group of each leaf
    published : the published values of each group, a series per quasi-identifier
    """

    tree: GuidedTree
    group: Ints
    published: list[pl.Series]

    def transform(self, X: Any) -> Any:  # noqa: N803 - scikit-learn's name
        """Recode each row like its leaf, and return a frame of the same kind, or a table if `X` is one.

        There is no guarantee for rows that the tree was not grown on: they may be alone in their leaf.
        """
        table = Table.of(X)
        names, quasi = [domain.name for domain in self.tree.domains], [series.name for series in self.published]
        for name in names:
            if name not in table.schema.names:
                raise ColumnError(
                    f"the table lacks the {'quasi-identifier' if name in quasi else 'column'} '{name}', "
                    "by which rows were told apart",
                    hint=did_you_mean(name, table.schema.names),
                )
        tuples = reduce(table, names)
        recoded = recode(table, Recoding(tuples, self.published, self.group[self.tree.leaves(tuples)]))
        return recoded if isinstance(X, Table) else recoded.frame


@dataclass(eq=False, repr=False)
class Guided(Partitioner):
    """Anonymize so that a model, or the labels, lose as little as possible; see `guided` and `cross_fitted`.

    People with similar predictions, or who are similar in what the labels depend on, are published together, so a model
    trained on the release predicts much as before. `anonymize_model` does all of this in one call.

    Parameters
    ----------
    guarantees, qi, sensitive, output, new_rows
        See `Partitioner`; the median is published by default, so numbers stay numbers. A medoid is the combination of
        a real person, the nearest to the median among those with the most of the frequent label.
    model : object or str, optional
        The guiding model: a fitted estimator, a torch module, or any function of a frame that returns a label or one
        probability per class for each row; or the name of a model (logistic, tree, forest, boosting), which is
        trained to predict the target from the other columns, except free text, and predicts held-out rows.
    labels : str or array, optional
        Instead of a model: the name of a column, or a label (class, number or probabilities) for each row; by default
        the target of the table. Classes and numbers are cross-fitted, see ``cross_fit``.
    soft : bool
        Whether to use the probabilities of a model rather than its most likely class.
    task : {"auto", "classify", "regress"}
        The kind of label; see `Task`.
    criterion : {"gini", "entropy"}
        The impurity that a cut lowers; see `Criterion`.
    cut_by : {"qi", "all"}
        The columns that decide; see `CutBy`.
    refine : bool
        Whether to cut classes further at medians, like Mondrian, when no cut improves the label.
    look_ahead : int
        In a table of at most this many times k records, cuts are compared by the gain of the whole tree below them, not
        by their own. This takes longer, and pays off if classes are few and large; with small classes the tree would
        overfit. 0 never looks ahead.
    cross_fit : bool
        Whether to guide by held-out predictions of the labels and by the columns themselves; see `cross_fitted`. Labels
        that no model predicts guide nothing, and the release is a classical one. Otherwise the labels guide directly,
        including their noise. Fewer than 200 rows, numbers in a table in which most tuples repeat, probabilities, and
        the predictions of a model always guide directly.
    neighbours : bool
        Whether cross-fitted labels form groups of neighbours, as in `Microaggregate`, rather than the leaves of a tree.
        Each column is then weighted by how much the held-out label depends on it. Intervals and levels,
        ``cut_by="all"``, ``grown_on``, and labels that guide directly always use the tree.
    grown_on : Table, frame or path, optional
        Other rows to grow the tree on, with a guiding model or a label column. The released rows are routed to its
        leaves, and leaves that break a guarantee are collapsed into their parents.

    Notes
    -----
    Every guarantee holds for every choice made here: a class is checked when it is made, whatever guided it.
    Only a tree has ``routes_``, which contain no rows; with neighbours they are None, and new rows go to the nearest
    group.
    The classes depend on the labels of all rows, including held-out ones. The labels are released anyway; the numbers
    in `details` are a further statistic of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "buys": ["no", "no", "yes", "yes", "yes"]})
    >>> sf.Guided("k=2", qi=["age"], labels="buys").fit_transform(people)["age"].tolist()
    [20, 20, 40, 40, 40]
    """

    output: Output | str = Output.MEDIAN
    model: Any = None
    labels: Any = field(default=None, repr=False)  # it may be rows
    soft: bool = True
    task: Task | str = Task.AUTO
    criterion: Criterion | str = Criterion.GINI
    cut_by: CutBy | str = CutBy.QI
    refine: bool = True
    look_ahead: int = 64
    cross_fit: bool = True
    neighbours: bool = True
    grown_on: Any = field(default=None, repr=False)

    name = "guided"

    @property
    def divides_tuples(self) -> bool:
        """Whether equal rows may be published differently."""
        return self.cut_by == CutBy.ALL

    @property
    def needs_rows(self) -> bool:
        """Always true: the method uses the label of every row."""
        return True

    def _members(self, problem: Problem) -> Members:
        raise NotImplementedError  # the groups depend on the table

    def _learn(self, problem: Problem, table: Table, y: Any) -> None:
        output = one_of(Output, self.output, "output")
        cut_by = one_of(CutBy, self.cut_by, "cut_by")
        options: dict[str, Any] = {
            "entropy": one_of(Criterion, self.criterion, "criterion") is Criterion.ENTROPY,
            "refine": bool(self.refine),
            "look_ahead": whole("look_ahead", self.look_ahead, least=0),
        }
        problem.require_reachable()
        names = [*table.schema.quasi, *(_others(table, self.labels) if cut_by is CutBy.ALL else ())]
        wide = problem
        if len(names) > len(table.schema.quasi):
            sensitive = table.schema.sensitive
            wide = Problem.of(reduce(table, [*names, *sensitive]), names, sensitive, self.asked)
        _refuse_names(wide, table.schema)
        grown, rows = wide, table
        if self.grown_on is not None:
            rows = _like(table, Table.of(self.grown_on), names)
            k = min(limits(problem.counts, self.asked).k, rows.rows)
            grown = Problem.of(reduce(rows, names), names, [], [KAnonymity(k)])
        labels = y if y is not None and self.model is None and self.labels is None else self.labels
        guides = guidance(grown, rows, model=self.model, labels=labels, soft=bool(self.soft), task=self.task)
        self.fitted_: CrossFitted | None = None
        answers = self.model is not None or (np.ndim(labels) == 2 and np.shape(labels)[1] > 1)
        if self.cross_fit and not answers and _can_be_held_out(grown, guides):
            self.fitted_ = cross_fitted(grown, guides, partial(guided, refine=False))
        of_leaf: Ints | None = None
        fitted, only_quasi = self.fitted_, wide is problem and grown is problem
        if fitted is not None and self.neighbours and only_quasi and output.is_value:
            groups = neighbours(problem, output, block=_block(problem), metric=fitted.metric)
        else:
            tree, leaf = guided(grown, guides if fitted is None else fitted.guides, **options)
            if grown is not wide:
                tree, leaf = prune(tree, wide, tree.leaves(wide.tuples))
            of_leaf, groups = np.unique(leaf, return_inverse=True)
        used, unused = usable_features(table)
        self.unused_: list[str] = unused if cut_by is CutBy.ALL or isinstance(self.model, str) else []
        self.features_: int = len(used) + len(unused)
        self.grown_: Problem = grown
        self.wide_: Problem = wide
        self.groups_: Ints = groups
        _, of_tuple = group(wide.codes[:, : len(problem.domains)], [len(domain) for domain in problem.domains])
        self.members_ = Members(of_tuple, wide.records, groups)
        self.agreement_: float | None = None if grown is not wide else guides.agreement(wide.records, groups)
        by_label = grown is wide and output is Output.MEDOID
        typical = guides.typical(np.arange(len(wide)), wide.records, groups) if by_label else None
        self.published_ = publish(problem, self.members_, output, typical)
        self.routes_: Routes | None = None
        if of_leaf is not None:
            group_of = np.full(len(tree.nodes), -1)
            group_of[of_leaf] = np.arange(len(of_leaf))
            self.routes_ = Routes(tree, group_of, self.published_)

    def _divide(self, problem: Problem, table: Table, y: Any) -> None:
        self._learn(problem, table, y)

    def _settle(self, problem: Problem) -> None:
        before = self.groups_
        super()._settle(problem)
        self.wide_, self.groups_ = problem, self.members_.group
        if self.routes_ is not None:
            merged = np.zeros(int(before.max()) + 1, dtype=np.int64)
            merged[before] = self.groups_
            group_of = np.where(self.routes_.group < 0, -1, merged[self.routes_.group])
            self.routes_ = Routes(self.routes_.tree, group_of, self.published_)

    def _recoding(self, without: Sequence[str], shuffle: bool) -> Recoding:
        return Recoding(self.wide_.tuples, self.published_, self.groups_, without, shuffle=shuffle)

    def _routed(self, table: Table) -> Table:
        if self.routes_ is None:
            return super()._routed(table)  # to the nearest group
        routed: Table = self.routes_.transform(table)
        return routed

    def details(self) -> dict[str, Any]:
        """Return the number of classes, how well they predict the label, and the partition that was chosen.

        ``agreement`` is that of the guiding labels, see `Guidance.agreement`. ``chosen`` is "neighbours" or "tree"; if
        no model predicted held-out labels better than their mean, it is "microaggregate" or "mondrian", which publish
        the same. ``explained`` is the share of the held-out labels' variance that predictions explain.
        ``unused`` lists columns that could not be used because they hold free text, out of all ``features``.
        """
        found: dict[str, Any] = {"leaves": len(self.published_[0])}
        if self.agreement_ is not None:
            found["agreement"] = round(self.agreement_, 6)
        if self.fitted_ is not None:
            by_label, by_chance = ("tree", "mondrian") if self.routes_ else ("neighbours", "microaggregate")
            found |= {
                "chosen": by_label if self.fitted_.explained else by_chance,
                "explained": round(self.fitted_.explained, 6),
            }
        if self.unused_:
            found |= {"unused": self.unused_, "features": self.features_}
        return found


def guided(
    problem: Problem, guides: Guidance, *, entropy: bool = False, refine: bool = True, look_ahead: int = 0
) -> tuple[GuidedTree, Ints]:
    """Grow a tree whose leaves predict the label and keep every guarantee.

    ::

        part = the whole table
        of all cuts of all columns whose two sides keep every guarantee:
            take the one that lowers the impurity of the label most
            (if none does: the median of the column with the largest loss, like Mondrian)
            do the same with each side
        a part without such a cut is a group

    An ordered column is cut between any two of its values; a missing value comes after all others. The values of a
    category are ordered by their share of a class and cut at any place: for two classes and for numbers, this includes
    the best of all subsets, unless a guarantee forbids it. The same holds for the children of the lowest node of a
    hierarchy that covers the part. Every group is checked when it is cut off, so all guarantees hold. If even the whole
    table as one group breaks a guarantee, that is an `InputError`.

    Parameters
    ----------
    problem : Problem
    guides : Guidance
    entropy : whether to lower the entropy rather than the Gini impurity or the variance
    refine : whether to cut at medians when no cut improves the label
    look_ahead : in a table of at most this many times k records, the best cuts of all columns are compared by the gain
        of the whole tree below each, grown without looking ahead

    Returns
    -------
    The tree, and the leaf of each tuple.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"city": ["Bonn", "Oslo", "Rome", "Rome"], "buys": [1, 0, 1, 1]}))
    >>> problem = Problem.of(reduce(table, ["city"]), ["city"], [], [sf.KAnonymity(1)])
    >>> tree, leaf = guided(problem, guidance(problem, table, labels="buys"), refine=False)
    >>> leaf.tolist()
    [2, 1, 2]
    """
    problem.require_reachable()
    asked, space = limits(problem.counts, problem.guarantees), space_of(problem)
    dimensions = np.column_stack([space.length, space.size, space.ordered, space.at, space.height, space.node_at])
    entropy = entropy and guides.classes is not None
    ahead = asked.rows if asked.rows <= look_ahead * asked.k else 0
    most_nodes = 2 * min(len(problem), asked.rows // asked.k)
    tries = 1 + bool(ahead) * len(dimensions) * most_nodes.bit_length()  # of each node
    nodes, threshold, pool, leaf = _kernels(most_nodes * tries, max(len(problem), len(space.place))).grow(
        (problem.positions + space.at).astype(np.int32),
        np.column_stack([problem.records, guides.mass if entropy else guides.columns]).astype(np.float64),
        *sparse(problem.counts, asked)[1:],
        dimensions.astype(np.int64),
        space.place,
        space.node,
        asked,
        entropy,
        refine,
        ahead,
        np.arange(len(problem)),
    )
    problem.require_kept(problem.merge(np.unique(leaf, return_inverse=True)[1]))
    return GuidedTree(nodes, threshold, pool, problem.domains, problem.lines), leaf


def _kernels(nodes: int, rows: int) -> ModuleType:
    """Return the kernels for a tree of this size: plain ones if it is small, else compiled."""
    from sfumato.anonymizers.guided import kernels, plain

    return plain if nodes <= _FEW_NODES and rows <= _FEW else kernels


def prune(tree: GuidedTree, problem: Problem, leaf: Ints) -> tuple[GuidedTree, Ints]:
    """Collapse leaves that break a guarantee into their parents, repeatedly; return the tree and the new leaves.

    A tree that was grown on other rows may have leaves with few of the released rows, or none.

    Parameters
    ----------
    tree : GuidedTree
    problem : the released rows, with the guarantees that they must keep
    leaf : the leaf of each tuple
    """
    from sfumato.anonymizers.class_kernels import keeps

    problem.require_reachable()
    asked, nodes = limits(problem.counts, problem.guarantees), tree.nodes.copy()
    number = len(nodes)
    size = np.bincount(leaf, weights=problem.records, minlength=number).astype(np.int64)
    _, start, cell, count = sparse(problem.counts, asked)
    held = np.zeros((number, asked.values), dtype=np.int64)
    if asked.values:
        np.add.at(held, (np.repeat(leaf, np.diff(start)), cell), count)
    scratch = np.zeros(asked.values, dtype=np.int64)
    kept = np.ones(number, dtype=bool)
    for node in range(number - 1, -1, -1):  # children before their parents
        if nodes[node, 0] >= 0:
            left, right = nodes[node, 1], nodes[node, 2]
            size[node], held[node] = size[left] + size[right], held[left] + held[right]
            if kept[left] and kept[right]:
                if not size[left] or not size[right]:  # an empty side: all rows go to the other
                    nodes[node, 1:3] = right if size[right] else left
                continue
            nodes[node, 0] = -1
        kept[node] = not size[node] or bool(keeps(held[node], size[node], asked, scratch))
    nodes[:, 3] = size
    inner = np.flatnonzero(tree.nodes[:, 0] >= 0)
    parent, stays = np.zeros(number, dtype=np.int64), np.arange(number)
    parent[tree.nodes[inner, 1]] = parent[tree.nodes[inner, 2]] = inner
    for node in range(1, number):  # parents before their children
        if nodes[stays[parent[node]], 0] < 0:
            stays[node] = stays[parent[node]]
    leaf = stays[leaf]
    problem.require_kept(problem.merge(np.unique(leaf, return_inverse=True)[1]))
    return replace(tree, nodes=nodes), leaf


def _block(problem: Problem) -> int:
    """Return the number of tuples to search for neighbours: time then grows with the table, not its square."""
    records: float = _BLOCK * math.sqrt(max(1.0, limits(problem.counts, problem.guarantees).k / 10))
    return max(round(records * len(problem) / int(problem.records.sum())), 1)


def _can_be_held_out(problem: Problem, labels: Guidance) -> bool:
    """Return whether there are enough records; for a number, whose sums per tuple are known, enough tuples."""
    rows = int(problem.records.sum())
    return rows >= _FEWEST and (labels.classes is not None or 2 * len(problem) >= rows)


def _others(table: Table, labels: Any) -> list[str]:
    """Return the columns besides the quasi-identifiers that may distinguish rows, without the guiding one."""
    guides = labels if isinstance(labels, str) else None
    return [
        one.name
        for one in table.schema.columns
        if one.role in (Role.OTHER, Role.KEPT) and one.kind is not Kind.TEXT and one.name != guides
    ]


def _like(table: Table, rows: Table, needed: Sequence[str]) -> Table:
    """Return other rows with the schema of a table."""
    for name in needed:
        if name not in rows.schema.names:
            raise ColumnError(
                f"the rows to grow the tree on lack the column '{name}'", hint=did_you_mean(name, rows.schema.names)
            )
    if not rows.rows:
        raise InputError("there are no rows to grow the tree on")
    said = {column.name: column for column in table.schema.columns}
    return Table.of(rows, schema=Schema(said.get(column.name, column) for column in rows.schema.columns))


def _refuse_names(problem: Problem, schema: Schema) -> None:
    """Raise an error for texts that are unique in half of the rows, because they identify people."""
    rows = int(problem.records.sum())
    for domain in problem.domains:
        if domain.column.kind is Kind.TEXT or (
            domain.column.kind is Kind.CATEGORY
            and schema[domain.name].hierarchy is None
            and len(domain) > max(_MOST_NAMES, rows / 2)
        ):
            raise ColumnError(
                f"column '{domain.name}' holds {len(domain):,} different texts in {rows:,} rows: they name people",
                hint="make it an identifier, or give it a hierarchy",
            )

"""Model-guided anonymization: classes that a model answers alike (Goldsteen et al., DPM 2021).

A. Goldsteen, G. Ezov, R. Shmelkin, M. Moffie, A. Farkash, "Anonymizing machine learning models", Data Privacy
Management 2021; with true labels and entropy it is the workload-aware method of K. LeFevre, D. DeWitt,
R. Ramakrishnan, "Workload-aware anonymization techniques for large-scale datasets", ACM TODS 33(3), 2008. That the
best of all subsets of a category's values is among those in the order of their mean label is from L. Breiman et
al., "Classification and regression trees", 1984.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sfumato._errors import ColumnError, OptionError, did_you_mean, one_of
from sfumato.anonymizers.anonymizer import Partitioner
from sfumato.anonymizers.guidance import Guidance, Task, guidance, index_rows
from sfumato.anonymizers.limits import limits
from sfumato.anonymizers.partition import space_of
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members, Output, publish
from sfumato.anonymizers.route import known_codes, places_on
from sfumato.data.schema import Kind, Role
from sfumato.data.source import File
from sfumato.data.table import Table, write
from sfumato.engines.engine import Progress
from sfumato.engines.reduce import reduce
from sfumato.engines.tuples import Tuples, group
from sfumato.measures.counts import Floats, Ints
from sfumato.measures.models import KAnonymity

__all__ = ["Criterion", "CutBy", "Guided", "Tree", "guided", "pruned"]

_MOST_NAMES = 1000  # of a category: if half of the rows have one of their own, it names people


class Criterion(StrEnum):
    """What a cut shall lower; of a number it is the variance, whichever is chosen.

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
    """Which columns decide who is published together.

    Examples
    --------
    >>> CutBy("qi")
    <CutBy.QI: 'qi'>
    """

    QI = "qi"
    """The quasi-identifiers: equal rows are published alike, and a release can be of any size."""
    ALL = "all"
    """All but the target and what is sensitive or names a person: rows with the same quasi-identifiers may be
    published differently. Nothing but quasi-identifiers is changed."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree over tuples, as arrays with an entry per node; a child has a larger number than its parent.

    Attributes
    ----------
    nodes : the dimension (-1 for a leaf), both children, the records, the tuples in its range, and the range of `pool`
    threshold : the place up to which an ordered dimension goes to the left
    pool : of each cut of a category its positions in order, twice the position and 1 if it goes to the right
    """

    nodes: Ints
    threshold: Floats
    pool: Ints

    def leaves(self, problem: Problem, tuples: Tuples) -> Ints:
        """Return the leaf of each tuple, which may have values that the problem of the tree does not have.

        A number between two others goes to the side of the nearer one, an unknown category to the larger side.
        """
        from sfumato.anonymizers.guided_kernels import UNKNOWN, find_leaves

        places = np.empty((len(problem.domains), len(tuples.count)))
        for column, (known, line) in enumerate(zip(problem.domains, problem.lines, strict=True)):
            new = tuples.domains[tuples.position[known.name]]
            if line.ordered:
                of_code = places_on(known, line, new)
                if known.missing is None and new.missing is not None:
                    of_code[new.missing] = UNKNOWN
            else:
                code = known_codes(known, new)
                of_code = np.where(code < 0, UNKNOWN, line.position[code])
            places[column] = of_code[tuples.codes[:, tuples.position[known.name]]]
        ordered = np.array([line.ordered for line in problem.lines])
        found: Ints = find_leaves(places, ordered, self.nodes, self.threshold, self.pool)
        return found


@dataclass(eq=False)
class Guided(Partitioner):
    """Anonymize so that a model, or the labels, lose as little as possible; see `guided`.

    People whom the model answers alike are published together, so that a model that is trained on the release answers
    much as before. `anonymize_model` does all of that at once.

    Parameters
    ----------
    guarantees, qi, sensitive, output
        See `Partitioner`; here the median is published by default, so that numbers stay numbers. A medoid is
        the combination of a real person, nearest to the median among those that have most of the frequent label.
    model : object or str, optional
        What guides: a fitted estimator, a torch module, any function of a frame that returns a label or one
        probability per class for each row; or the name of a model (logistic, tree, forest, boosting), which is
        trained on the other columns of the table to predict its target, and asked for rows that it has not seen.
    labels : str or array, optional
        In place of a model: the name of a column, or a label (class, number or probabilities) for each row. By
        default the true ones, the target of the table.
    soft : bool
        Whether the probabilities of a model count as they are, rather than its most likely class.
    task : {"auto", "classify", "regress"}
        What the label is; see `Task`.
    criterion : {"gini", "entropy"}
        What a cut shall lower; see `Criterion`.
    cut_by : {"qi", "all"}
        Which columns decide; see `CutBy`.
    refine : bool
        Whether classes in which the label has nothing more to gain are cut further at medians, as Mondrian does.
    look_ahead : int
        A table of at most so many times k records is cut with care: cuts are compared by what the whole tree below
        them gains, not by what they gain themselves. It takes longer, and pays where classes are few and large; where
        they are small, the tree would only learn them by heart. 0 never looks ahead.
    grown_on : Table, frame or path, optional
        Other rows on which the tree is grown, with a model, or a column of theirs, that guides. The released rows
        are then routed to its leaves, and leaves that do not keep a guarantee are collapsed into their parents.

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
    labels: Any = None
    soft: bool = True
    task: Task | str = Task.AUTO
    criterion: Criterion | str = Criterion.GINI
    cut_by: CutBy | str = CutBy.QI
    refine: bool = True
    look_ahead: int = 64
    grown_on: Any = None

    name = "guided"

    @property
    def divides_tuples(self) -> bool:
        """Whether equal rows may be published differently."""
        return self.cut_by == CutBy.ALL

    def _members(self, problem: Problem) -> Members:
        raise NotImplementedError  # it looks at the table

    def _learn(self, problem: Problem, table: Table, y: Any) -> None:
        output = one_of(Output, self.output, "output")
        cut_by = one_of(CutBy, self.cut_by, "cut_by")
        options: dict[str, Any] = {
            "entropy": one_of(Criterion, self.criterion, "criterion") is Criterion.ENTROPY,
            "refine": bool(self.refine),
            "look_ahead": self.look_ahead,
        }
        if not isinstance(self.look_ahead, numbers.Integral) or self.look_ahead < 0:
            raise OptionError(f"look_ahead must be a whole number of at least 0, got {self.look_ahead!r}")
        problem.require_reachable()
        names = [*table.schema.quasi, *(_others(table) if cut_by is CutBy.ALL else ())]
        wide = problem
        if len(names) > len(table.schema.quasi):
            sensitive = table.schema.sensitive
            wide = Problem.of(reduce(table, [*names, *sensitive]), names, sensitive, self.asked)
        _refuse_names(wide)
        grown, rows = wide, table
        if self.grown_on is not None:
            rows = Table.of(self.grown_on, qi=self.qi or table.schema.quasi, target=table.schema.target)
            k = min(limits(problem.counts, self.asked).k, rows.rows)
            grown = Problem.of(reduce(rows, names), names, [], [KAnonymity(k)])
        labels = y if y is not None and self.model is None and self.labels is None else self.labels
        guides = guidance(grown, rows, model=self.model, labels=labels, soft=bool(self.soft), task=self.task)
        tree, leaf = guided(grown, guides, **options)
        if grown is not wide:
            tree, leaf = pruned(tree, wide, tree.leaves(grown, wide.tuples))
        of_leaf, groups = np.unique(leaf, return_inverse=True)
        self.tree_: Tree = tree
        self.grown_: Problem = grown
        self.wide_: Problem = wide
        self.groups_: Ints = groups
        self.group_of_leaf_: Ints = np.full(len(tree.nodes), -1)
        self.group_of_leaf_[of_leaf] = np.arange(len(of_leaf))
        _, of_tuple = group(wide.codes[:, : len(problem.domains)], [len(domain) for domain in problem.domains])
        self.members_ = Members(of_tuple, wide.records, groups)
        self.agreement_: float | None = None if grown is not wide else guides.agreement(wide.records, groups)
        typical = guides.typical(np.arange(len(wide)), wide.records, groups) if grown is wide else None
        self.published_ = publish(problem, self.members_, output, typical)

    def apply(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        to: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Table:
        """Publish the very table that was learnt."""
        if not self.divides_tuples:
            return super().apply(table, without=without, to=to, progress=progress)
        released = Table(self._with(table, self.groups_[index_rows(self.wide_, table)]))
        released = Table(released.drop(without)) if without else released
        if to is None:
            return released
        write(released, to)
        return Table(File(Path(to)))

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Give each row what is published of its leaf: a frame of the same kind, or a table of a table."""
        self._require_fitted()
        if not self.divides_tuples:
            return super().transform(X)
        table = Table.of(X)
        names = [domain.name for domain in self.wide_.domains]
        for name in names:
            if name not in table.schema.names:
                raise ColumnError(
                    f"the table lacks the column '{name}', by which rows were told apart",
                    hint=did_you_mean(name, table.schema.names),
                )
        codes = table.encode(names)
        rows = Tuples(codes.values, np.ones(len(codes.values), dtype=np.int64), codes.domains)
        recoded = self._with(table, self._groups(rows))
        return Table(recoded) if isinstance(X, Table) else recoded

    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        groups = self._groups(tuples)
        return [series.gather(groups) for series in self.published_]

    def _groups(self, tuples: Tuples) -> Ints:
        return self.group_of_leaf_[self.tree_.leaves(self.grown_, tuples)]

    def _with(self, table: Table, groups: Ints) -> Any:
        return table.with_columns([series.gather(groups) for series in self.published_])

    def details(self) -> dict[str, Any]:
        """Return the number of leaves, and how well they tell the label; see `Guidance.agreement`."""
        found: dict[str, Any] = {"leaves": len(self.published_[0])}
        return found if self.agreement_ is None else found | {"agreement": round(self.agreement_, 6)}


def guided(
    problem: Problem, guides: Guidance, *, entropy: bool = False, refine: bool = True, look_ahead: int = 0
) -> tuple[Tree, Ints]:
    """Grow a tree whose leaves tell the label and keep every guarantee.

    ::

        part = the whole table
        of all cuts of all columns that leave both sides every guarantee:
            take the one that lowers the impurity of the label most
            (if none does: the median of the column that loses most, as Mondrian)
            do the same with each side
        a part without such a cut is a group

    An ordered column is cut between any two of its values; a missing one lies behind all others. The values of a
    category go to both sides in any way that puts those with a larger share of a class on one side: for two classes
    and for numbers, that includes the best of all subsets, unless a guarantee forbids that one. The same holds for
    the children of the lowest node of a hierarchy that covers the part. Every group was checked when it was cut
    off, so that all guarantees hold.

    Parameters
    ----------
    problem : Problem
    guides : Guidance
    entropy : whether the entropy is lowered, rather than the Gini impurity or the variance
    refine : whether to cut at medians where the label has nothing to gain
    look_ahead : in a table of at most so many times k records, the best cuts of all columns are compared by what
        is gained in the whole tree below each, if that is grown without looking ahead

    Returns
    -------
    The tree, and the leaf of each tuple.

    Raises
    ------
    InputError
        If even the whole table as one group does not keep a guarantee.

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
    from sfumato.anonymizers.guided_kernels import grow

    problem.require_reachable()
    asked, space = limits(problem.counts, problem.guarantees), space_of(problem)
    dimensions = np.column_stack([space.length, space.size, space.ordered, space.at, space.height, space.node_at])
    entropy = entropy and guides.classes is not None
    nodes, threshold, pool, leaf = grow(
        np.ascontiguousarray(problem.positions.T),
        problem.records,
        np.ascontiguousarray(guides.mass if entropy else guides.told),
        *_entries(problem),
        dimensions.astype(np.int64),
        space.place,
        space.node,
        asked,
        entropy,
        refine,
        asked.rows if asked.rows <= look_ahead * asked.k else 0,
        np.arange(len(problem)),
    )
    problem.require_kept(problem.merged(np.unique(leaf, return_inverse=True)[1]))
    return Tree(nodes, threshold, pool), leaf


def pruned(tree: Tree, problem: Problem, leaf: Ints) -> tuple[Tree, Ints]:
    """Collapse leaves that do not keep a guarantee into their parents, as often as needed.

    A tree that was grown on other rows promises nothing of these: a leaf may have few of them, or none.

    Parameters
    ----------
    tree : Tree
    problem : Problem
        The released rows, with the guarantees that they must keep.
    leaf : the leaf of each of its tuples

    Returns
    -------
    What is left of the tree, and the leaf of each tuple.
    """
    from sfumato.anonymizers.kernels import keeps

    problem.require_reachable()
    asked, nodes = limits(problem.counts, problem.guarantees), tree.nodes.copy()
    number = len(nodes)
    size = np.bincount(leaf, weights=problem.records, minlength=number).astype(np.int64)
    start, cell, count = _entries(problem)
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
                if not size[left] or not size[right]:  # nobody is there: all go to the other side
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
    problem.require_kept(problem.merged(np.unique(leaf, return_inverse=True)[1]))
    return replace(tree, nodes=nodes), leaf


def _entries(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Return the sensitive values of each tuple as cells of one histogram of all attributes."""
    several = [one for one in problem.counts if one.attribute is not None]
    if not several:
        none = np.zeros(0, dtype=np.int64)
        return np.zeros(len(problem) + 1, dtype=np.int64), none, none
    offset = np.cumsum([0, *(len(one.total) for one in several)])
    owner = np.concatenate([one.owner for one in several])
    order = np.argsort(owner, kind="stable")
    cell = np.concatenate([one.value + first for one, first in zip(several, offset[:-1], strict=True)])[order]
    count = np.concatenate([one.count for one in several])[order]
    return np.searchsorted(owner[order], np.arange(len(problem) + 1)), cell, count


def _others(table: Table) -> list[str]:
    """Return the columns beside the quasi-identifiers that may tell rows apart."""
    return [one.name for one in table.schema.columns if one.role is Role.OTHER and one.kind is not Kind.TEXT]


def _refuse_names(problem: Problem) -> None:
    """Refuse texts of which half of the people have one of their own: they would be cut by their names."""
    rows = int(problem.records.sum())
    for domain in problem.domains:
        if domain.column.kind is Kind.TEXT or (
            domain.column.kind is Kind.CATEGORY
            and domain.column.hierarchy is None
            and len(domain) > max(_MOST_NAMES, rows / 2)
        ):
            raise ColumnError(
                f"column '{domain.name}' holds {len(domain):,} different texts in {rows:,} rows: they name people",
                hint="make it an identifier, or give it a hierarchy",
            )

"""Top-down partitioning by recursive cuts: Mondrian, and the leaves of an R+-tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from sfumato.anonymizers.base import NewRows, Partitioner
from sfumato.anonymizers.mondrian.partition import partition
from sfumato.anonymizers.problem import Pieces, Problem
from sfumato.anonymizers.publish import Members, Output
from sfumato.data.io.source import File
from sfumato.data.schema import Schema
from sfumato.data.table import Table, write
from sfumato.engines.dispatch import reduce
from sfumato.engines.engine import is_spark
from sfumato.engines.tuples import group
from sfumato.errors import InputError, OptionError, one_of
from sfumato.measures.classes import Ints

__all__ = ["Mondrian", "RPlus", "mondrian", "rplus"]


@dataclass(eq=False, repr=False)
class Mondrian(Partitioner):
    """Anonymize by recursive cuts at medians (LeFevre, DeWitt, Ramakrishnan, ICDE 2006); see `mondrian`.

    Fast at any size; every class is a box that overlaps no other.

    Parameters
    ----------
    guarantees, qi, sensitive, output, new_rows
        See `Partitioner`.
    strict : bool
        Whether equal rows stay together. Otherwise (relaxed Mondrian) rows with the median value may go to either
        side, which loses less if a few values are frequent. The table must then fit into memory, and ``transform``
        accepts only the fitted rows, because equal rows may be in several classes. (With ``new_rows="route"``, a
        row goes to the class that has most of its equals.)

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> sf.Mondrian("k=2", qi=["age", "sex"]).fit_transform(people)["age"].tolist()
    ['20-22', '20-22', '20-64', '20-64', '20-64']
    """

    strict: bool = True

    name = "mondrian"

    @property
    def divides_tuples(self) -> bool:
        """Whether equal rows may be published differently."""
        return not self.strict

    def distributed(self, table: Table, *, keep_order: bool) -> Any:
        """Anonymize a Spark frame in Spark, because its tuples may not fit into memory here."""
        if not self.strict or not is_spark(table):
            return None
        from sfumato.anonymizers.mondrian.spark import mondrian_on_spark

        return mondrian_on_spark(table, self.asked, output=one_of(Output, self.output, "output"), keep_order=keep_order)

    def apply(
        self, table: Table, *, without: Sequence[str] = (), to: str | Path | None = None, **options: Any
    ) -> Table:
        """Apply the fitted recoding to the training table; if not strict, equal rows may be published differently."""
        if self.strict:
            return super().apply(table, without=without, to=to, **options)
        rows = table.encode([domain.name for domain in self.tuples_.domains])
        groups = np.empty(len(rows.values), dtype=np.int64)
        groups[np.lexsort(rows.values.T[::-1])] = np.repeat(self.members_.group, self.members_.records)
        released = Table(table.with_columns([series.gather(groups) for series in self.published_]), layout=table.layout)
        released = Table(released.drop(without), layout=table.layout) if without else released
        if to is None:
            return released
        write(released, to)
        return Table(File(Path(to)))

    def _routed(self, table: Table) -> Table:
        """Recode each row like its group; if not strict, only the fitted rows have a known group."""
        if self.strict:
            return super()._routed(table)
        fitted = self._as_fitted(table)
        if fitted is not None:
            return self.apply(fitted)
        if self.new_rows == NewRows.MEASURE and table.rows:
            raise InputError(
                "relaxed Mondrian can transform only the rows it was fitted on, because equal rows may be in several "
                "classes",
                hint="use strict=True, or fit_transform the rows to release; new_rows='route' promises nothing",
            )
        return super()._routed(table)

    def _as_fitted(self, table: Table) -> Table | None:
        """Return the table with the fitted schema if it holds the fitted rows in any order, else None."""
        fitted = self.tuples_
        if any(domain.name not in table.schema.names for domain in fitted.domains):
            return None
        table = Table(table.source, Schema(domain.column for domain in fitted.domains))
        tuples = reduce(table, [domain.name for domain in fitted.domains])
        same = np.array_equal(tuples.codes, fitted.codes) and np.array_equal(tuples.count, fitted.count)
        both = zip(tuples.domains, fitted.domains, strict=True)
        return table if same and all(one.values.equals(other.values) for one, other in both) else None

    def _members(self, problem: Problem) -> Members:
        if self.strict:
            return Members.of(problem, mondrian(problem))
        pieces, groups = mondrian(problem, strict=False)
        return Members(pieces.tuple, pieces.records, groups)  # in the order of tuples and sensitive values


@dataclass(eq=False, repr=False)
class RPlus(Partitioner):
    """Anonymize by the leaves of a bulk-loaded R+-tree (Iwuchukwu & Naughton, VLDB 2007); see `rplus`.

    It compares all cuts by the loss they leave, which takes longer than Mondrian. The parameters are those of
    `Partitioner`.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 22, 24, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> sf.RPlus("k=2", qi=["age", "sex"]).fit_transform(people)["age"].tolist()
    ['20-22', '20-22', '20-64', '20-64', '20-64']
    """

    name = "rplus"

    def _members(self, problem: Problem) -> Members:
        return Members.of(problem, rplus(problem))


@overload
def mondrian(problem: Problem, *, strict: Literal[True] = True) -> Ints: ...
@overload
def mondrian(problem: Problem, *, strict: Literal[False]) -> tuple[Pieces, Ints]: ...
def mondrian(problem: Problem, *, strict: bool = True) -> Ints | tuple[Pieces, Ints]:
    """Group the tuples by recursive cuts at medians so that every guarantee holds.

    ::

        part = the whole table
        for each dimension, the one with the largest loss in the part first:
            cut the part at the median of the records
            if both sides keep every guarantee: do the same with each side, and stop
        otherwise the part is a group

    The loss of a dimension is its NCP: the width of the range for a number, date or ordinal, the share of the values
    for a category. The cut is the boundary between two values that is nearest to the median. If a side breaks a
    guarantee, the boundary on the other side of the median value is tried too (this cannot help k, which the balanced
    cut keeps if any cut does). A category with a hierarchy is cut between two children of the lowest node that covers
    the part. Every group is checked when it is cut off, so all guarantees hold, even those that merging can break.
    If even the whole table as one group breaks a guarantee, that is an `InputError`.

    Parameters
    ----------
    problem : Problem
    strict : bool
        Whether equal tuples stay together. Otherwise records with the median value may go to either side, which
        makes both sides equally large; a category with a hierarchy is cut as before. Records are divided in the
        order of tuples and sensitive values.

    Returns
    -------
    The group of each tuple. If not strict: the pieces and the group of each piece. A piece is a tuple with a value of
    every sensitive attribute and a number of records; a tuple has several pieces if its records are in several groups.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 22, 24, 24, 40, 60]}))
    >>> problem = Problem.of(reduce(table, ["age"]), ["age"], [], [sf.KAnonymity(2)])
    >>> mondrian(problem).tolist()
    [0, 0, 1, 2, 2]
    >>> pieces, groups = mondrian(problem, strict=False)
    >>> pieces.tuple.tolist(), pieces.records.tolist(), groups.tolist()
    ([0, 1, 2, 2, 3, 4], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    """
    problem.require_reachable()
    pieces = problem.pieces
    if strict:
        groups = np.empty(len(problem), dtype=np.int64)
        groups[pieces.tuple] = partition(problem, pieces)
        problem.require_kept(problem.merge(groups))
        return groups
    if not pieces.joint:
        raise OptionError(
            "relaxed Mondrian divides tuples, so its sensitive attributes must be counted jointly",
            hint="use Problem.of",
        )
    of_record = np.repeat(np.arange(len(pieces.tuple)), pieces.records)
    one = np.ones(len(of_record), dtype=np.int64)
    single = Pieces(pieces.tuple[of_record], pieces.values[of_record], one, joint=True)
    groups = partition(problem, single, relaxed=True)
    # Join the records of one piece that are in the same group.
    first, of_pair = group(np.column_stack([of_record, groups]), [len(pieces.tuple), int(groups.max()) + 1])
    piece, of_piece = of_record[first], groups[first]
    records = np.bincount(of_pair).astype(np.int64)
    divided = Pieces(pieces.tuple[piece], pieces.values[piece], records, joint=True)
    problem.require_kept(problem.merge_pieces(divided, of_piece))
    return divided, of_piece


def rplus(problem: Problem) -> Ints:
    """Group the tuples by the leaves of an R+-tree so that every guarantee holds.

    The tree is loaded from the root down, and its nodes never overlap. A node is split at the most balanced cut of one
    of the dimensions: the one whose two sides, each shrunk to its own records, have the least NCP over all dimensions
    and records; if a side breaks a guarantee, the next best. A leaf is a node that no such cut splits.

    Mondrian cuts the dimension with the largest loss; here all cuts are compared by the loss they leave. That takes d
    times as long for d dimensions, and loses less if dimensions are correlated. If even the whole table as one group
    breaks a guarantee, that is an `InputError`.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.Table(pl.DataFrame({"age": [20, 22, 40, 60], "sex": ["f", "m", "f", "m"]}))
    >>> problem = Problem.of(reduce(table, ["age", "sex"]), ["age", "sex"], [], [sf.KAnonymity(2)])
    >>> rplus(problem).tolist()
    [0, 1, 0, 1]
    """
    problem.require_reachable()
    groups = np.empty(len(problem), dtype=np.int64)
    groups[problem.pieces.tuple] = partition(problem, problem.pieces, look_ahead=True)
    problem.require_kept(problem.merge(groups))
    return groups

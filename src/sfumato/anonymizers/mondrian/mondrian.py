"""Mondrian: cut the table at medians, again and again (LeFevre, DeWitt, Ramakrishnan, ICDE 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.base import NewRows, Partitioner
from sfumato.anonymizers.mondrian.partition import partition
from sfumato.anonymizers.problem import Pieces, Problem
from sfumato.anonymizers.publish import Members, Output
from sfumato.data.io.source import File
from sfumato.data.schema import Schema
from sfumato.data.table import Table, write
from sfumato.engines.dispatch import reduce
from sfumato.engines.engine import Progress, is_spark
from sfumato.engines.tuples import group
from sfumato.errors import InputError, OptionError, one_of
from sfumato.measures.classes import Ints

__all__ = ["Mondrian", "mondrian"]


@dataclass(eq=False, repr=False)
class Mondrian(Partitioner):
    """Anonymize by cutting the table at medians, again and again; see `mondrian`.

    Quick at any size, and every class is a box of its own.

    Parameters
    ----------
    guarantees, qi, sensitive, output
        See `Partitioner`.
    strict : bool
        Whether equal rows stay together. Otherwise rows with the median value may go to either
        side, which loses less where few values are frequent. The table then has to fit into memory, and
        ``transform`` accepts no other rows: no rule says which of several classes a new row belongs to. (With
        ``new_rows="route"``, equal rows go to the class that has most of them.)
    new_rows
        See `Anonymizer`.

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
        """Cut a Spark frame in Spark, where its tuples may be more than fit into memory here."""
        if not self.strict or not is_spark(table):
            return None
        from sfumato.anonymizers.mondrian.spark import mondrian_on_spark

        return mondrian_on_spark(table, self.asked, output=one_of(Output, self.output, "output"), keep_order=keep_order)

    def apply(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        to: str | Path | None = None,
        shuffle: bool = False,
        progress: Progress | None = None,
    ) -> Table:
        """Publish the very table that was learnt; if not strict, equal rows may be published differently."""
        if self.strict:
            return super().apply(table, without=without, to=to, shuffle=shuffle, progress=progress)
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
        """Give each row what is published of its group; if not strict, only the fitted rows have one for sure."""
        if self.strict:
            return super()._routed(table)
        fitted = self._as_fitted(table)
        if fitted is not None:
            return self.apply(fitted)
        if self.new_rows == NewRows.MEASURE and table.rows:
            raise InputError(
                "these are not the rows that relaxed Mondrian was fitted on, and it cannot tell the classes of others: "
                "equal rows are in several",
                hint="take strict=True, or fit_transform the rows that are released; new_rows='route' promises nothing",
            )
        return super()._routed(table)

    def _as_fitted(self, table: Table) -> Table | None:
        """Return the table as it was fitted, in any order of its rows; None if it holds other rows."""
        learnt = self.tuples_
        if any(domain.name not in table.schema.names for domain in learnt.domains):
            return None
        table = Table(table.source, Schema(domain.column for domain in learnt.domains))
        tuples = reduce(table, [domain.name for domain in learnt.domains])
        same = np.array_equal(tuples.codes, learnt.codes) and np.array_equal(tuples.count, learnt.count)
        both = zip(tuples.domains, learnt.domains, strict=True)
        return table if same and all(one.values.equals(other.values) for one, other in both) else None

    def _members(self, problem: Problem) -> Members:
        if self.strict:
            return Members.of(problem, mondrian(problem))
        pieces, groups = mondrian(problem, strict=False)
        return Members(pieces.tuple, pieces.records, groups)  # in the order of tuples and sensitive values


@overload
def mondrian(problem: Problem, *, strict: Literal[True] = True) -> Ints: ...
@overload
def mondrian(problem: Problem, *, strict: Literal[False]) -> tuple[Pieces, Ints]: ...
def mondrian(problem: Problem, *, strict: bool = True) -> Ints | tuple[Pieces, Ints]:
    """Put the tuples into groups that keep every guarantee, by cuts at medians.

    ::

        part = the whole table
        for each dimension, the one that loses most in the part first:
            cut the part at the median of the records
            if both sides keep every guarantee: do the same with each side, and stop
        otherwise the part is a group

    What a dimension loses is what NCP counts: the width of the range of a number, date or ordinal, the
    share of the values of a category. The cut is the boundary between two values that is nearest to
    the median; if a side does not keep a guarantee, the boundary on the other side of the median value is
    tried too (it cannot help k, which the balanced cut keeps if any cut does). A category with a
    hierarchy is cut between two children of the lowest node that covers the part. Every group was
    checked when it was cut off, so that all guarantees hold, also those that merging can break.

    Parameters
    ----------
    problem : Problem
    strict : bool
        Whether equal tuples stay together. Otherwise records with the median value may go to either side,
        so that both have equally many; a category with a hierarchy is cut as before. Which records go
        where is decided by their order: by tuple, then by sensitive values.

    Returns
    -------
    The group of each tuple. If not strict: pieces, each a tuple with a value of every sensitive
    attribute and a number of records, and the group of each piece; a tuple, and a combination of its sensitive
    values, is divided among several pieces if its records are in several groups.

    Raises
    ------
    InputError
        If even the whole table as one group does not keep a guarantee.

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
        problem.require_kept(problem.merged(groups))
        return groups
    if not pieces.joint:
        raise OptionError(
            "relaxed Mondrian divides tuples, and of several sensitive attributes it is not known which values go "
            "together",
            hint="count them together: Problem.of",
        )
    single, of_record = _records(pieces)
    divided, of_piece = _divided(pieces, of_record, partition(problem, single, relaxed=True))
    problem.require_kept(problem.merged_pieces(divided, of_piece))
    return divided, of_piece


def _records(pieces: Pieces) -> tuple[Pieces, Ints]:
    """Return every record as a piece of its own, and the piece that it is from."""
    of_record = np.repeat(np.arange(len(pieces.tuple)), pieces.records)
    one = np.ones(len(of_record), dtype=np.int64)
    return Pieces(pieces.tuple[of_record], pieces.values[of_record], one, joint=True), of_record


def _divided(pieces: Pieces, of_record: NDArray[Any], groups: Ints) -> tuple[Pieces, Ints]:
    """Put the records of one piece that are in one group together again."""
    first, of_pair = group(np.column_stack([of_record, groups]), [len(pieces.tuple), int(groups.max()) + 1])
    piece = of_record[first]
    records = np.bincount(of_pair).astype(np.int64)
    return Pieces(pieces.tuple[piece], pieces.values[piece], records, joint=True), groups[first]

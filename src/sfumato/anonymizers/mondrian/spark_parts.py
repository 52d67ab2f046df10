"""Finish the parts left by the first cuts, each on its own: groups, published values and losses.

The result is that of the whole table, and the losses of the parts add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.mondrian.partition import cut_rows
from sfumato.anonymizers.mondrian.spark_cuts import TupleLayout, Words
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members, Output, publish
from sfumato.data.coding import Codes, Domain
from sfumato.data.released_values import MARK
from sfumato.engines.tuples import group
from sfumato.measures.assessment import Assessment
from sfumato.measures.classes import ClassCounts, Floats, Ints, sum_by_index
from sfumato.measures.loss.generalised import pair_codes
from sfumato.measures.loss.information_loss import ColumnLoss, Loss, bits, ncp

__all__ = ["Finished", "Summaries", "finish_part", "loss_of_parts"]


class Finished(NamedTuple):
    """The original and published values of each tuple of a part, and its summary; see `Summaries`."""

    before: list[pl.Series]
    after: list[pl.Series]
    summary: Floats


class Summaries(NamedTuple):
    """The summaries of the finished parts: an entry per part, and in matrices a column per quasi-identifier.

    Attributes
    ----------
    tuples, groups : the numbers of tuples and groups
    marked : whether all groups would be the mark in every column
    generalised : whether a group has several values of the column
    ncp, level, unknown, everything : the sums over the cells of their penalty and level, and the numbers of cells on
        no level and of marks
    lost, held : the bits that the cells lost, and that they could lose
    """

    tuples: Floats
    groups: Floats
    marked: Floats
    generalised: Floats
    ncp: Floats
    level: Floats
    unknown: Floats
    everything: Floats
    lost: Floats
    held: Floats

    @classmethod
    def of(cls, rows: Floats, columns: int) -> Summaries:
        """Read the summaries of several parts, a row per part."""
        return cls(*rows[:, :3].T, *(rows[:, at : at + columns] for at in range(3, rows.shape[1], columns)))


def finish_part(layout: TupleLayout, words: Words, records: Ints, output: Output, counts: Sequence[Ints]) -> Finished:
    """Cut a part completely, and return the published values of its tuples.

    Parameters
    ----------
    layout : TupleLayout
    words, records : the tuples of the part; a tuple with several sensitive values may be there several times
    output : Output
    counts : the number of records of the whole table with each value of each quasi-identifier
    """
    rows = np.vstack([words, records])
    # One thread, because a worker finishes several parts at a time.
    groups = np.cumsum(cut_rows(rows, layout.lanes, layout.space, layout.asked, threads=1)) - 1
    codes = layout.codes(rows)
    first, of_row = group(codes, [len(domain) for domain in layout.quasi])
    codes, groups, records = codes[first], groups[first], sum_by_index(of_row, rows[-1], len(first))
    texts, marked = _written(layout.quasi, codes, records, groups, output)
    after = [series.gather(groups) for series in texts]
    before = [domain.values.gather(codes[:, at]) for at, domain in enumerate(layout.quasi)]
    one = np.empty((len(texts[0]), codes.shape[1]), dtype=np.int32)
    one[groups] = codes  # the values of one tuple of the group
    generalised = (one[groups] != codes).any(axis=0)
    # A column without generalisation is read by its values, because not every text of a value can be parsed.
    readable = [
        new if several or output.is_value else old for old, new, several in zip(before, after, generalised, strict=True)
    ]
    lost = _lost(layout.quasi, codes, readable, records, counts)
    return Finished(before, after, np.concatenate([[len(codes), len(texts[0]), marked], generalised, lost.ravel()]))


def _written(
    domains: tuple[Domain, ...], codes: NDArray[np.int32], records: Ints, groups: Ints, output: Output
) -> tuple[list[pl.Series], bool]:
    """Return the published values of each group of a part, and whether all of them would be the mark.

    Two things depend on groups elsewhere: a column that is generalised nowhere is not written as texts, and a group
    that is the mark in every column is distinguished from suppressed rows unless all groups are. Two extra groups
    ensure both: one of a single tuple, and one of the first and the last value of every column.
    """
    number, count = len(codes), int(groups.max()) + 1
    ends = np.array([[0, len(domain) - 1] for domain in domains], dtype=np.int32).T
    more = _problem(np.append(records, [1, 1]), np.vstack([codes, ends]), domains)
    members = Members(
        np.append(np.arange(number), [number, number, number + 1]),
        np.append(records, [1, 1, 1]),
        np.append(groups, [count, count + 1, count + 1]),
    )
    texts = [series.head(count) for series in publish(more, members, output)]
    if output.is_value:
        return texts, False
    texts = [series.cast(pl.String) for series in texts]
    marked = all(series.eq_missing(MARK).all() for series in texts[1:])
    if marked:
        alone = _problem(records, codes, domains)
        first = publish(alone, Members.of(alone, groups), output)[0]
        marked = first.dtype == pl.String and first.eq_missing(MARK).all()
    return texts, marked


def _problem(records: Ints, codes: NDArray[np.int32], domains: tuple[Domain, ...]) -> Problem:
    """Build the problem of tuples that are already grouped."""
    return Problem((ClassCounts.sizes(records, codes, domains),), ())


def _lost(
    domains: tuple[Domain, ...],
    codes: NDArray[np.int32],
    released: Sequence[pl.Series],
    records: Ints,
    counts: Sequence[Ints],
) -> Floats:
    """Sum the losses of the cells of a part: a row per number of `Summaries`, a column per quasi-identifier."""
    both = pair_codes(Codes(codes, domains), released, records=records).align()
    sums = []
    for at, (read, count) in enumerate(zip(both.coverages, counts, strict=True)):
        whole = np.bincount(read.universe.place, weights=count, minlength=len(read.universe))
        cells = np.bincount(both.meaning[:, at], weights=records, minlength=len(read))
        sums.append(
            [
                ncp(read) @ cells,
                np.maximum(read.level, 0) @ cells,
                (read.level < 0) @ cells,
                read.everything @ cells,
                *bits(both, at, whole),
            ]
        )
    return np.array(sums, dtype=np.float64).T


def loss_of_parts(parts: Summaries, domains: Sequence[Domain], assessment: Assessment) -> Loss:
    """Add up the losses of the parts; class measures are from the assessment, and no divergence is computed."""
    sums = {name: np.array(getattr(parts, name).sum(axis=0)) for name in Summaries._fields[3:]}
    rows = assessment.rows + assessment.suppressed
    tops = [1 if domain.column.hierarchy is None else max(domain.column.hierarchy.height, 1) for domain in domains]
    if parts.marked.all():
        sums["ncp"][0] = sums["everything"][0] = rows
        sums["lost"][0], sums["level"][0], sums["unknown"][0] = sums["held"][0], tops[0] * rows, 0
    columns = {
        domain.name: ColumnLoss(
            ncp=float(sums["ncp"][at] / rows),
            entropy=float(sums["lost"][at] / (sums["held"][at] or 1.0)),
            precision=None if sums["unknown"][at] else float(1 - sums["level"][at] / (rows * tops[at])),
            suppressed=float(sums["everything"][at] / rows),
        )
        for at, domain in enumerate(domains)
    }
    sizes = assessment.rows_by_class_size
    levels = [column.precision for column in columns.values()]
    return Loss(
        gcp=float(np.mean([column.ncp for column in columns.values()])),
        discernibility=sum(size * of_size for size, of_size in sizes.items()) + rows * assessment.suppressed,
        average_class=assessment.rows / assessment.classes,
        suppressed=assessment.suppressed / rows,
        precision=None if None in levels else float(np.mean(np.array(levels, dtype=float))),
        entropy=float(sums["lost"].sum() / (sums["held"].sum() or 1.0)),
        kl=None,
        by_column=columns,
    )

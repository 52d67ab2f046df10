"""Measure how anonymous the union of several tables is, from securely summed counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.engines.engine import Counted
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError, ProtocolError
from sfumato.federation.anonymity.cells import MOST_CELLS, Cells, described, of_people, public_values, tuples_of
from sfumato.federation.anonymity.holder import UnionHolder
from sfumato.federation.channel import Channel
from sfumato.federation.secure.sum import Contribute, SecureSum
from sfumato.federation.wire import Message
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.measures.classes import Ints

__all__ = ["assess_union", "contribution", "sum_of_all"]


def contribution(table: Any) -> Contribute:
    """Return a holder's half: it counts its rows, or people, in the cells of the schema that the coordinator sends."""
    return UnionHolder(table).contribute


def assess_union(
    channel: Channel,
    secure: SecureSum,
    schema: Schema,
    *,
    round_: int = 1,
    stepwise: bool = False,
    people_are_disjoint: bool = False,
    **options: Any,
) -> Assessment:
    """Measure the union of the holders' tables; the result equals that of the pooled table.

    The coordinator learns the count of every combination of quasi-identifiers and sensitive values in the union, so it
    learns as much as from the pooled columns, but not which holder a row is from. All holders must take part.

    Parameters
    ----------
    channel
        The holders, whose handlers are made with `contribution`.
    secure
        How their counts are added up.
    schema
        The roles and public values of the columns.
    round_
        A number that no other sum of this run has.
    stepwise : whether to count one column after the other, so that there is no limit to the number of combinations:
        only the combinations that occur so far are counted with the values of the next column. The coordinator learns
        the same, but holders learn which combinations occur in the union. Takes a sum per column, with the rounds from
        ``round_`` on.
    people_are_disjoint : whether nobody has rows at several holders. If the schema has a person column, each holder
        counts its own people in each combination of quasi-identifiers, and sums are numbers of people only if this is
        so: nobody can check it from sums. The assessment is then of people; someone who is in several classes counts
        as a person in each, so that k is exact, and numbers of people are at most too large.
    options
        Those of `sfumato.assess` that say how to measure, such as ``require``.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.federation.channel import InProcess, Party
    >>> from sfumato.federation.secure.sum import PlainSum, plain_handlers
    >>> schema = sf.Schema([sf.Column(name="sex", role="quasi", domain=("f", "m"))])
    >>> tables = {"north": ["f", "m"], "south": ["f", "m"]}
    >>> channel = InProcess(
    ...     Party(name, plain_handlers(contribution(pl.DataFrame({"sex": sex})))) for name, sex in tables.items()
    ... )
    >>> assess_union(channel, PlainSum(), schema).k
    2
    """
    if not schema.quasi:
        raise OptionError("no quasi-identifier is named", hint="give its column the role quasi")
    whose = _people(schema, disjoint=people_are_disjoint)
    columns = [described(schema[name]) for name in (*schema.quasi, *schema.sensitive)]
    if stepwise:
        tuples = _stepwise(channel, secure, columns, itertools.count(round_), whose)
    else:
        cells = Cells(columns)
        request = {"count": "cells", "schema": Schema(cells.columns).to_dict(), **whose}
        total = sum_of_all(channel, secure, round_, request, math.prod(cells.shape))
        held = np.flatnonzero(total)
        tuples = tuples_of(columns, np.column_stack(np.unravel_index(held, cells.shape)), total[held])
    if not len(tuples.count):
        raise InputError("no holder has a row")
    tuples = of_people(tuples, whose["person"]) if whose else tuples
    found = [domain.column for domain in tuples.domains]
    empty = pl.DataFrame([domain.values.clear().alias(domain.name) for domain in tuples.domains])
    measured = measure(Table(empty, Schema(found)), engine=Counted(tuples), **options)
    return replace(measured, options=measured.options | {"people_are_disjoint": "declared"}) if whose else measured


def _people(schema: Schema, *, disjoint: bool) -> Message:
    """Return the part of a request that has people counted, if the schema has a person column."""
    if schema.person is None:
        return {}
    if not disjoint:
        raise OptionError(
            "people may have rows at several holders, and would be counted at each of them",
            hint="if nobody has, say so: people_are_disjoint=True",
        )
    if schema.sensitive:
        raise OptionError(
            f"sensitive values of people are not counted across holders, got '{schema.sensitive[0]}'",
            hint="leave sensitive columns out of the schema to measure k, or pool the tables",
        )
    return {"person": schema.person}


def _stepwise(
    channel: Channel, secure: SecureSum, columns: Sequence[Column], rounds: Iterator[int], whose: Message
) -> Tuples:
    """Count the combinations of ever more columns: those that occur, with each value of the next column."""
    known, count = np.zeros((1, 0), dtype=np.int64), np.zeros(0, dtype=np.int64)
    for number in range(1, len(columns) + 1):
        size = len(public_values(columns[number - 1])) + 1
        schema = Schema(columns[:number]).to_dict()
        longer, counts = [], []
        for some in np.array_split(known, max(math.ceil(len(known) * size / MOST_CELLS), 1)):
            request = {"count": "combinations", "schema": schema, "combinations": some, **whose}
            total = sum_of_all(channel, secure, next(rounds), request, len(some) * size)
            held = np.flatnonzero(total)
            longer.append(np.column_stack([some[held // size], held % size]))
            counts.append(total[held])
        known, count = np.concatenate(longer), np.concatenate(counts)
        if not len(known):
            break
    return tuples_of(columns[: known.shape[1]], known, count)


def sum_of_all(channel: Channel, secure: SecureSum, round_: int, request: Message, length: int) -> Ints:
    """Sum so many counts of all holders; an error that names the first one whose counts are missing."""
    summed = secure.total(channel, round_, dict.fromkeys(channel.names, request))
    for name in channel.names:
        if name not in summed.present:
            raise ProtocolError(
                f"party '{name}' is missing, and the union without it is another table",
                hint=summed.refused.get(name, "it did not answer"),
            )
    if len(summed.total) != length:
        raise ProtocolError(f"the holders sent {len(summed.total):,} counts, and {length:,} were requested")
    return summed.total.astype(np.int64)

"""A data holder that counts its rows with others, and recodes them alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.sanitize import sanitize
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import recode
from sfumato.engines.engine import Recoding
from sfumato.errors import InputError, ProtocolError
from sfumato.federation.anonymity.cells import MOST_CELLS, Cells, positions_of, public_values
from sfumato.federation.anonymity.regions import Regions
from sfumato.federation.channel import Handler
from sfumato.federation.wire import Message
from sfumato.measures.classes import Ints

__all__ = ["UnionHolder", "received", "sendable"]

_TYPES = {"String": pl.String, "Int64": pl.Int64, "Float64": pl.Float64, "Boolean": pl.Boolean}

Words = NDArray[np.uint32]


class UnionHolder:
    """The rows of one holder, for `assess_union` and `anonymize_union`.

    It sends counts only, through the secure sum. If the coordinator reports that the union keeps what was asked,
    `part` holds this holder's recoded rows.

    Parameters
    ----------
    table : Table, frame or path

    Attributes
    ----------
    part : the recoded rows in random order, with the columns of the shared schema; None before they may be published
    kept : the guarantees that the union of all parts keeps

    Examples
    --------
    >>> from sfumato.federation import PlainSum, plain_handlers
    >>> north = UnionHolder(pl.DataFrame({"age": [30, 41]}))
    >>> handlers = {**plain_handlers(north.contribute), **north.handlers}
    >>> sorted(handlers)
    ['sum/plain', 'union/keep']
    """

    def __init__(self, table: Any) -> None:
        self.table = Table.of(table)
        self.part: Table | None = None
        self.kept: tuple[str, ...] = ()
        self._recoded: Table | None = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """What this holder answers beside the secure sum."""
        return {"union/keep": self.keep}

    def contribute(self, request: Message) -> tuple[Words, Message]:
        """Count the rows, or the people, that a request describes."""
        self._refuse_other_people(request)
        schema = Schema.from_dict(request["schema"], folder=None)
        counts = {
            "cells": self._cells,
            "combinations": self._combinations,
            "regions": self._regions,
            "classes": self._classes,
        }
        if request.get("count") not in counts:
            raise ProtocolError(f"a holder cannot count {str(request.get('count'))[:40]!r}")
        return counts[request["count"]](schema, request), {}

    def _refuse_other_people(self, request: Message) -> None:
        """Raise an error if this holder is to count rows, and protects people, or counts others than it protects."""
        own, asked = self.table.schema.person, request.get("person")
        if own is not None and request.get("count") in ("regions", "classes"):
            self.table.schema.refuse_person("anonymizing the union of several tables")
        if own is not None and asked != own:
            counted = "rows" if asked is None else f"people of column '{str(asked)[:40]}'"
            raise ProtocolError(f"this holder protects the people of column '{own}', and {counted} are to be counted")

    def keep(self, request: Message) -> Message:
        """Keep the recoded rows: the union keeps the guarantees."""
        if self._recoded is None:
            raise ProtocolError("this holder has not recoded its rows")
        self.part, self._recoded = self._recoded, None
        self.kept = tuple(map(str, request["guarantees"]))
        return {}

    def _cells(self, schema: Schema, request: Message) -> Words:
        return Cells(schema.columns).count(self.table, request.get("person"))

    def _combinations(self, schema: Schema, request: Message) -> Words:
        """Count the last column in each combination of those before it, of which only some are asked for."""
        positions, count, sizes = self._positions(schema.columns, request.get("person"))
        asked: Ints = request["combinations"]
        if asked.ndim != 2 or asked.shape[1] != len(sizes) - 1:
            raise ProtocolError("the combinations do not fit the columns")
        number = {tuple(one): at for at, one in enumerate(asked.tolist())}
        of = np.array([number.get(tuple(one), -1) for one in positions[:, :-1].tolist()], dtype=np.int64)
        there = of >= 0
        return _sums(of[there] * sizes[-1] + positions[there, -1], count[there], len(asked) * sizes[-1])

    def _regions(self, schema: Schema, request: Message) -> Words:
        """Count each value of each quasi-identifier, with each value of each other column, in some regions."""
        positions, count, sizes = self._positions(schema.columns)
        number = len(schema.quasi)
        regions = Regions.from_message(request["regions"], sizes[:number])
        opened = np.asarray(request["opened"], dtype=np.int64)
        place = np.full(len(regions), -1)
        place[opened] = np.arange(len(opened))
        of = place[regions.route(positions[:, :number])]
        positions, count, of = positions[of >= 0], count[of >= 0], of[of >= 0]
        begins, across = np.cumsum([0, *sizes[:number]]), np.cumsum([0, *sizes[number:]])
        wide = max(int(across[-1]), 1)
        length = len(opened) * int(begins[-1]) * wide
        _refuse_long(length)
        total = np.zeros(length, dtype=np.uint32)
        for at in range(number):
            row = (of * begins[-1] + begins[at] + positions[:, at]) * wide
            for other in range(number, len(sizes)) or (-1,):
                column = across[other - number] + positions[:, other] if other >= 0 else 0
                np.add.at(total, row + column, count.astype(np.uint32))
        return total

    def _classes(self, schema: Schema, request: Message) -> Words:
        """Recode the rows, and count the combinations of all other columns in each class."""
        quasi = [schema[name] for name in schema.quasi]
        others = [column for column in schema.columns if column.role is not Role.QUASI]
        sizes = [len(public_values(column)) + 1 for column in quasi]
        regions = Regions.from_message(request["regions"], sizes)
        class_of = np.full(len(regions), -1)
        class_of[regions.leaves] = np.arange(len(regions.leaves))
        first, last = request["first"], request["last"]
        positions, count, sizes = self._positions([*quasi, *others])
        self._recoded = self._recode(schema, regions, class_of, [received(one) for one in request["published"]])
        of = class_of[regions.route(positions[:, : len(quasi)])] - first
        there = (of >= 0) & (of < last - first)
        shape = (last - first, *sizes[len(quasi) :])
        _refuse_long(math.prod(shape))
        index = np.ravel_multi_index((of[there], *positions[there, len(quasi) :].T), shape)
        return _sums(index, count[there], math.prod(shape))

    def _recode(self, schema: Schema, regions: Regions, class_of: Ints, published: Sequence[pl.Series]) -> Table:
        """Return the rows with the published values of their classes, shuffled."""
        frame = self.table.to_polars().select(schema.names)
        if not len(frame):
            return Table(frame.with_columns(one.clear() for one in published), schema.released())
        rows = Table(frame, Schema(schema.columns))
        columns = [schema[name] for name in schema.quasi]
        positions, tuples = positions_of(rows, columns, [public_values(column) for column in columns])
        recoded = recode(rows, Recoding(tuples, published, class_of[regions.route(positions)]))
        return Table(sanitize(recoded.source, shuffle=True), schema.released())

    def _positions(self, columns: Sequence[Column], person: str | None = None) -> tuple[Ints, Ints, list[int]]:
        values = [public_values(column) for column in columns]
        positions, tuples = positions_of(self.table, columns, values, person)
        return positions, tuples.count, [len(one) + 1 for one in values]


def sendable(series: pl.Series) -> Message:
    """Return published values as a message."""
    kind = str(series.dtype)
    if kind not in _TYPES:
        raise InputError(
            f"column '{series.name}' has values of type {kind}, which holders cannot be sent",
            hint="declare its values as texts, whole numbers, decimal numbers or truth values",
        )
    return {"name": series.name, "type": kind, "values": series.to_list()}


def received(message: Message) -> pl.Series:
    """Read published values from a message."""
    if message.get("type") not in _TYPES:
        raise ProtocolError("the published values are of an unknown type")
    try:
        return pl.Series(message["name"], message["values"], dtype=_TYPES[message["type"]])
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ProtocolError("the published values are not of their type") from error


def _refuse_long(length: int) -> None:
    if length > MOST_CELLS:
        raise ProtocolError(f"{length:,} counts were requested at once, and at most {MOST_CELLS:,} can be")


def _sums(index: Ints, count: Ints, length: int) -> Words:
    _refuse_long(length)
    found = np.zeros(length, dtype=np.uint32)
    np.add.at(found, index, count.astype(np.uint32))
    return found

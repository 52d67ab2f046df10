"""Measure how anonymous the union of several tables is, from securely summed counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.engines.engine import Counted
from sfumato.errors import InputError, OptionError, ProtocolError
from sfumato.federation.anonymity.cells import Cells, described
from sfumato.federation.channel import Channel
from sfumato.federation.secure.sum import Contribute, SecureSum
from sfumato.federation.wire import Message
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment

__all__ = ["assess_union", "contribution"]


def contribution(table: Any) -> Contribute:
    """Return a holder's half: it counts its rows in the cells of the schema that the coordinator sends."""
    held = Table.of(table)

    def contribute(request: Message) -> tuple[NDArray[np.uint32], Message]:
        return _cells(Schema.from_dict(request["schema"], folder=None)).count(held), {}

    return contribute


def assess_union(channel: Channel, secure: SecureSum, schema: Schema, *, round_: int = 1, **options: Any) -> Assessment:
    """Measure the union of the holders' tables; the result equals that of the pooled table.

    The coordinator learns the count of every combination of quasi-identifiers and sensitive values in the union, so it
    learns as much as from the pooled columns, but not which holder a row is from. All holders must take part.

    Parameters
    ----------
    channel : the holders, whose handlers are made with `contribution`
    secure : how their counts are added up
    schema : the roles and public values of the columns
    round_ : a number that no other sum of this run has
    options : those of `sfumato.assess` that say how to measure, such as ``require``

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
    cells = _cells(schema)
    request = {"schema": Schema(cells.columns).to_dict()}
    summed = secure.total(channel, round_, dict.fromkeys(channel.names, request))
    for name in channel.names:
        if name not in summed.present:
            raise ProtocolError(
                f"party '{name}' is missing, and the union without it is another table",
                hint=summed.refused.get(name, "it did not answer"),
            )
    if not summed.total.any():
        raise InputError("no holder has a row")
    tuples = cells.tuples(summed.total.astype(np.uint32))
    columns = [domain.column for domain in tuples.domains]
    empty = pl.DataFrame([domain.values.clear().alias(domain.name) for domain in tuples.domains])
    return measure(Table(empty, Schema(columns)), engine=Counted(tuples), **options)


def _cells(schema: Schema) -> Cells:
    return Cells([described(schema[name]) for name in (*schema.quasi, *schema.sensitive)])

"""Anonymize a table: let a method decide, publish, measure again, and refuse what does not hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato._errors import InputError, OptionError, did_you_mean
from sfumato.anonymizers.anonymizer import Anonymizer
from sfumato.anonymizers.hilbert import Hilbert
from sfumato.anonymizers.lattice import Lattice
from sfumato.anonymizers.mondrian import Mondrian
from sfumato.anonymizers.rplus import RPlus
from sfumato.data.schema import Column, Schema
from sfumato.data.source import Source
from sfumato.data.table import Table, write
from sfumato.measures.assess import assess
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import Guarantee
from sfumato.measures.loss import Loss, loss

__all__ = ["METHODS", "Release", "anonymize"]

METHODS: dict[str, type[Anonymizer]] = {method.name: method for method in (Mondrian, Hilbert, RPlus, Lattice)}


@dataclass(frozen=True, eq=False)
class Release:
    """An anonymized table, what was measured on it, and what it lost.

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", "k=4", qi=["zip", "age"], sensitive=["disease"])
    >>> release.assessment.k, release.method
    (4, 'mondrian')
    >>> release.table.frame["age"].unique().sort().to_list()
    ['[28, 35]', '[28, 50]']
    """

    table: Table
    assessment: Assessment
    loss: Loss
    method: str
    seconds: float
    details: dict[str, Any]
    """What only this method tells, such as the levels that the lattice chose."""

    def write(self, path: str | Path) -> None:
        """Write the table as CSV, TSV, Parquet or Arrow: all of it, or nothing."""
        write(self.table, path)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the table as plain values."""
        return {
            "method": self.method,
            "seconds": self.seconds,
            "assessment": self.assessment.to_dict(),
            "loss": self.loss.to_dict(),
            "details": self.details,
        }


def anonymize(
    data: Any,
    guarantees: str | Guarantee | Sequence[str | Guarantee],
    *,
    method: Anonymizer | str = "mondrian",
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    schema: Schema | str | Path | None = None,
) -> Release:
    """Make a table anonymous, and lose as little as possible.

    The release is measured anew, as anyone could who only has it; a guarantee that does not hold
    is an error. k-anonymity and its relatives are not differential privacy: they bound what can be
    concluded from this release alone.

    Parameters
    ----------
    data : Table, frame or path
    guarantees : str, Guarantee or sequence of them
        What must hold, such as ``"k=10,l=3"`` or ``[KAnonymity(10), LDiversity(3)]``.
    method : Anonymizer or str
        How: ``Mondrian()``, ``Hilbert()``, ``RPlus()``, ``Lattice()`` with their parameters, or the
        name of one (mondrian, hilbert, rplus, lattice).
    qi, sensitive, identifiers : sequence of str
        The roles of the columns; those of the method or of the schema by default. Identifiers are
        left out of the release.
    schema : Schema or path, optional

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", [sf.KAnonymity(2)], method=sf.Lattice(suppress=0.5), qi=["zip", "age"])
    >>> release.assessment.k >= 2, release.details["optimal"]
    (True, True)
    """
    started = time.perf_counter()
    if isinstance(method, str):
        if method not in METHODS:
            raise OptionError(f"the method '{method}' is unknown", hint=did_you_mean(method, METHODS))
        method = METHODS[method]()
    if not isinstance(method, Anonymizer):
        raise OptionError(
            f"the method must be one such as Mondrian(), or its name, got {getattr(method, '__name__', method)!r}",
            hint="known: " + ", ".join(METHODS),
        )
    qi, sensitive = qi or method.qi, sensitive or method.sensitive
    table = Table.of(data, schema=schema, qi=qi, sensitive=sensitive, identifiers=identifiers)
    if isinstance(table.source, Source):
        table = Table(table.frame, table.schema)
    parameters = method.get_params() | {"guarantees": guarantees, "qi": (), "sensitive": ()}
    anonymizer = type(method)(**parameters)
    published = anonymizer.fit_transform(table)
    released = Table(published.drop(table.schema.identifiers), _released(table.schema))
    assessment = assess(released, require=anonymizer.asked)
    assert assessment.verdict is not None
    if not assessment.verdict:
        failed = ", ".join(str(check.guarantee) for check in assessment.verdict.checks if not check.held)
        raise InputError(
            f"the release does not keep {failed} when it is measured again",
            hint="groups that are published alike are one class: publish intervals, of a strict method",
        )
    used = {column.name: column for column in anonymizer.columns}
    original = Table(table.source, Schema(used.get(column.name, column) for column in table.schema.columns))
    return Release(
        table=released,
        assessment=assessment,
        loss=loss(original, released),
        method=anonymizer.name,
        seconds=time.perf_counter() - started,
        details=anonymizer.details(),
    )


def _released(schema: Schema) -> Schema:
    """Return the schema of the release: quasi-identifiers are what their new values are."""
    return Schema(
        Column(name=column.name, role=column.role) if column.name in schema.quasi else column
        for column in schema.columns
        if column.name not in schema.identifiers
    )

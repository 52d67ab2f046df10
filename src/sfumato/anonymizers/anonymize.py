"""Anonymize a table: let a method decide, publish, measure again, and refuse what does not hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from sfumato._repr import Discreet
from sfumato.anonymizers.base import Anonymizer, measured
from sfumato.anonymizers.methods import METHODS
from sfumato.anonymizers.publish import Output, released_schema
from sfumato.data.column_audit import accounted
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.files import atomic_path, format_of
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.sanitize import sanitized
from sfumato.data.schema import Schema
from sfumato.data.table import Table, read, write
from sfumato.engines.counted import Counted
from sfumato.engines.dispatch import EngineName
from sfumato.engines.engine import Progress, is_spark
from sfumato.engines.memory import streams
from sfumato.engines.released_schema import declared_only, used_only
from sfumato.errors import InputError, OptionError, did_you_mean
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import Guarantee
from sfumato.measures.loss.generalised import Pairing
from sfumato.measures.loss.information_loss import Loss, loss_of
from sfumato.measures.loss.utility import QueryError, query_error_of
from sfumato.measures.models import asked_for
from sfumato.measures.people import keys_of, people_of, refuse_repeated

__all__ = ["Release", "anonymize", "tightened"]

_MANY = 200_000  # original tuples: fewer queries are asked of more
_NOT_OF_THE_METHOD = ("guarantees", "qi", "sensitive", "new_rows")


@dataclass(frozen=True, eq=False, repr=False)
class Release(Discreet):
    """An anonymized table, what was measured on it, and what it lost.

    Attributes
    ----------
    table : the table that is released
    assessment : what was measured on it
    loss : what it lost against the original
    method, parameters : how it was made
    guarantees : what was asked for
    seconds : how long that took
    details : what only this method tells, such as the levels that the lattice chose
    source : the original table
    origin : the file that it is from, if it is from one
    declared : what was said of its columns
    kept_order : whether the rows are in the order of the original
    pairing, counted : the distinct original tuples with what was published of each, and how often each occurs; None if
        they stayed in Spark

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", "k=4", qi=["zip", "age"], sensitive=["disease"])
    >>> release.assessment.k, release.method
    (4, 'mondrian')
    >>> release.table.frame["age"].unique().sort().to_list()
    ['25-54', '28-35']
    """

    _told: ClassVar[tuple[str, ...]] = ("method", "rows", "k", "order")

    table: Table
    assessment: Assessment
    loss: Loss
    method: str
    parameters: dict[str, Any]
    guarantees: tuple[Guarantee, ...]
    seconds: float
    details: dict[str, Any]
    source: Table
    origin: Path | None
    declared: Schema
    pairing: Pairing | None
    counted: Counted | None
    kept_order: bool
    align: Callable[[], Table] | None = field(repr=False)

    @cached_property
    def before(self) -> Assessment:
        """What is measured on the original."""
        return measure(self.source, engine=EngineName.AUTO if self.counted is None else self.counted)

    @cached_property
    def aligned(self) -> Table:
        """The release in the order of the original, for what compares them row by row, such as `loss`.

        It tells which row is whose. Publish `table`, whose rows are shuffled.
        """
        if self.align is None:
            raise InputError(
                "a release whose rows are in Spark cannot be compared row by row",
                hint="fetch the table before it is anonymized",
            )
        return Table(sanitized(self.align().source), self.table.schema)

    @property
    def k(self) -> int:
        """The smallest class of the release."""
        return self.assessment.k

    @property
    def rows(self) -> int:
        """The number of rows, with suppressed ones."""
        return self.assessment.rows + self.assessment.suppressed

    @property
    def order(self) -> str:
        """What became of the order of the rows: shuffled, or kept as in the original."""
        return "kept" if self.kept_order else "shuffled"

    @cached_property
    def query_error(self) -> QueryError | None:
        """How far random counting queries on the release are off; None if its rows stayed in Spark."""
        if self.pairing is None:
            return None
        return query_error_of(self.pairing, queries=200 if len(self.pairing.original) <= _MANY else 40)

    def write(self, path: str | Path, *, escape_formulas: bool = False) -> None:
        """Write the table alone as CSV, TSV, Parquet or Arrow, all of it or nothing; see `sf.save` for all else."""
        write(self.table, path, escape_formulas=escape_formulas)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the tables as plain values."""
        return {
            "method": self.method,
            "parameters": self.parameters,
            "seconds": self.seconds,
            "assessment": self.assessment.to_dict(),
            "loss": self.loss.to_dict(),
            "order": self.order,
            "kept": self.assessment.kept,
            "details": self.details,
        }


def anonymize(
    data: Any,
    guarantees: str | Guarantee | Mapping[str, float] | Sequence[Any] = (),
    *,
    k: int | None = None,
    l: int | None = None,
    t: float | None = None,
    alpha: float | None = None,
    entropy_l: float | None = None,
    recursive_c: float | None = None,
    recursive_l: int | None = None,
    basic_beta: float | None = None,
    enhanced_beta: float | None = None,
    delta_disclosure: float | None = None,
    method: Anonymizer | str = "mondrian",
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    keep: Sequence[str] = (),
    rows_are_units: bool = False,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    to: str | Path | None = None,
    exact_ends: bool = False,
    keep_order: bool = False,
    escape_formulas: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Make a table anonymous, and lose as little as possible.

    The release is measured anew, as anyone could who only has it; a guarantee that does not hold
    is an error. k-anonymity and its relatives are not differential privacy: they bound what can be
    concluded from this release alone.

    Parameters
    ----------
    data : Table, frame or path
        The index of a pandas frame is not released, whatever it holds; make it a column if it should be. A Spark frame
        stays where it is if the method is strict Mondrian and the release goes to no file; all else
        that is elsewhere is fetched.
    guarantees : str, Guarantee, mapping or sequence of them
        What must hold, such as ``"k=10,l=3"``, ``{"k": 10, "l": 3}`` or ``[KAnonymity(10), LDiversity(3)]``.
    k, l, t, alpha, entropy_l, recursive_c, recursive_l, basic_beta, enhanced_beta, delta_disclosure : optional
        The same by name: ``anonymize(table, k=10, l=3)``.
    method : Anonymizer or str
        How: ``Mondrian()``, ``Hilbert()``, ``RPlus()``, ``Lattice()``, ``Microaggregate()``,
        ``LocalSuppression()``, ``Guided()`` with their parameters, or the name of one (mondrian, hilbert, rplus,
        lattice, microaggregate, suppress, guided).
    qi, sensitive, identifiers : sequence of str
        The roles of the columns; those of the method or of the schema by default. Identifiers are
        left out of the release.
    keep : sequence of str
        Columns to release as they are, although they look like identifiers or free text, or reproduce a
        quasi-identifier or sensitive column. A column of that kind that has no role is refused: see `accounted`.
    rows_are_units : bool
        Whether to protect rows where people have several: else that is refused.
    schema : Schema, path or mapping, optional
        See `Schema.of`.
    to : path, optional
        A file to write the table to. From a Parquet file to a Parquet file the rows go batch by batch, so
        that a table of any size fits.
    exact_ends : bool
        Whether the ends of intervals are the least and the greatest value of a class, rather than rounded outward to
        readable steps: each is then the value of somebody. The same as ``output="tight"`` of the method.
    keep_order : bool
        Whether the rows stay in the order of the original. By default they are shuffled: the order alone may tell whose
        row is whose. The new order comes from the operating system's entropy, and is not kept anywhere.
    escape_formulas : bool
        Whether cells of that file that a spreadsheet would compute, such as ``=1+1``, get an apostrophe in front; only
        for CSV and TSV.
    progress : callable, optional
        Called now and then with the share of the work that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", [sf.KAnonymity(2)], method=sf.Lattice(suppress=0.5), qi=["zip", "age"])
    >>> release.assessment.k >= 2, release.details["optimal"]
    (True, True)
    >>> sf.anonymize("patients.csv", "k=2", qi=["zip", "age"], to="release.csv").table.rows
    8
    """
    started = time.perf_counter()
    method = _method(method)
    named = {
        "k": k,
        "l": l,
        "t": t,
        "alpha": alpha,
        "entropy_l": entropy_l,
        "recursive_c": recursive_c,
        "recursive_l": recursive_l,
        "basic_beta": basic_beta,
        "enhanced_beta": enhanced_beta,
        "delta_disclosure": delta_disclosure,
    }
    guarantees = _asked(guarantees, {name: value for name, value in named.items() if value is not None})
    table = Table.of(
        data,
        schema=schema,
        qi=qi or method.qi,
        sensitive=sensitive or method.sensitive,
        identifiers=identifiers,
        keep=keep,
    )
    people = None
    if table.schema.quasi:
        table = accounted(table)
        people = people_of(table, keys_of(table))
    parameters = method.get_params() | {"guarantees": guarantees, "qi": (), "sensitive": ()}
    if exact_ends:
        parameters["output"] = tightened(method)
    anonymizer = type(method)(**parameters)
    refuse_repeated(people, anonymizer.asked, rows_are_units)
    release = partial(
        Release,
        method=anonymizer.name,
        parameters={name: _plain(value) for name, value in parameters.items() if name not in _NOT_OF_THE_METHOD},
        guarantees=anonymizer.asked,
        origin=table.origin,
        declared=declared_only(table),
        kept_order=keep_order,
    )
    if escape_formulas and to is not None:
        refuse_typed(to, format_of(Path(to)))
    elif escape_formulas:
        raise OptionError("formulas are escaped in a file", hint="name it with to, or escape them in write or save")
    if to is not None and table.origin is not None and Path(to).resolve() == table.origin.resolve():
        raise OptionError(f"'{to}' is read and cannot be written too", hint="choose another name")
    if to is None and is_spark(table) and anonymizer.name == "mondrian" and parameters["strict"]:
        from sfumato.anonymizers.mondrian.spark import mondrian_on_spark

        done = mondrian_on_spark(table, anonymizer.asked, output=parameters["output"], keep_order=keep_order)
        return release(
            table=done.table,
            assessment=replace(done.assessment, people=people),
            loss=done.loss,
            seconds=time.perf_counter() - started,
            details={"groups": done.groups, "parts": done.parts},
            source=table,
            pairing=None,
            counted=None,
            align=None,
        )
    told = _Stages(progress)
    streamed = streams(table, to) and not anonymizer.divides_tuples
    if table.is_lazy and not streamed:  # what is released must be what was measured, whatever becomes of its source
        table = Table(table.fetched(), table.schema, layout=table.layout)
    anonymizer.fit(table, progress=told(0.0, 0.4))
    apply = partial(anonymizer.apply, table, without=table.schema.identifiers)
    if to is None:
        frame = sanitized(apply().source, shuffle=not keep_order)
        columns = used_only(released_schema(table.schema), table, frame)
        released = Table(frame, columns, layout=table.layout)
        assessment = measured(released, anonymizer.asked, told(0.8, 1.0))
    else:
        with atomic_path(to) as temporary:
            if streamed:
                apply(to=temporary, shuffle=not keep_order, progress=told(0.4, 0.8))
            else:
                frame = sanitized(apply().source, shuffle=not keep_order)
                write(Table(frame, layout=table.layout), temporary)
            if escape_formulas:
                escape_file(temporary)
            written = read(temporary).source
            columns = used_only(released_schema(table.schema), table, written)
            assessment = measured(Table(written, columns), anonymizer.asked, told(0.8, 1.0))
        released = Table(read(to).source, columns)
    pairing = anonymizer.published().paired(anonymizer.problem_, anonymizer.columns)
    return release(
        table=released,
        assessment=replace(assessment, people=people),
        loss=loss_of(pairing),
        seconds=time.perf_counter() - started,
        details=anonymizer.details(),
        source=table,
        pairing=pairing,
        counted=Counted(anonymizer.tuples_),
        align=apply,
    )


def _asked(guarantees: Any, named: Mapping[str, float]) -> list[Guarantee]:
    """Return what is asked for, by position and by name; refuse the same twice."""
    asked = [*asked_for(guarantees), *(asked_for(named) if named else [])]
    if not asked:
        raise OptionError("no guarantee is asked for", hint="how many rows shall share a combination? For example k=10")
    kinds = [type(one) for one in asked if type(one) in {type(other) for other in asked_for(named or ())}]
    if len(set(kinds)) < len(kinds):
        raise OptionError("a guarantee is given twice", hint="by its name, or among the guarantees")
    return asked


def tightened(method: Anonymizer) -> Output:
    """Return the output with exact ends, of a method that publishes intervals.

    Examples
    --------
    >>> import sfumato as sf
    >>> tightened(sf.Mondrian())
    <Output.TIGHT: 'tight'>
    """
    if getattr(method, "output", None) not in (Output.INTERVAL, Output.TIGHT):
        raise OptionError(
            f"exact ends are those of intervals, which the method '{method.name}' does not publish",
            hint="leave them out, or choose intervals: output='interval' / --representative interval",
        )
    return Output.TIGHT


def _method(method: Anonymizer | str) -> Anonymizer:
    if isinstance(method, str):
        if method not in METHODS:
            raise OptionError(f"the method '{method}' is unknown", hint=did_you_mean(method, METHODS))
        return METHODS[method]()
    if not isinstance(method, Anonymizer):
        raise OptionError(
            f"the method must be one such as Mondrian(), or its name, got {getattr(method, '__name__', method)!r}",
            hint="known: " + ", ".join(METHODS),
        )
    return method


class _Stages:
    """Tells the share of all work that is done from the shares of its stages."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress

    def __call__(self, begin: float, end: float) -> Progress | None:
        tell = self.progress
        return tell and (lambda share: tell(begin + share * (end - begin)))


def _plain(value: Any) -> Any:
    """Return a parameter as JSON and TOML can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Enum):
        return value.value
    # Of anything else only what it is: a text of an array or a frame would show its rows.
    return value if value is None or isinstance(value, str | int | float | bool) else type(value).__name__

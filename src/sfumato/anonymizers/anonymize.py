"""Anonymize a table: let a method decide, publish, measure again, and refuse what does not hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

from sfumato.anonymizers.base import Anonymizer, measured
from sfumato.anonymizers.methods import METHODS
from sfumato.anonymizers.publish import Output, released_schema
from sfumato.data.column_audit import accounted
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.database import Database
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.files import atomic_path, format_of
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.sanitize import sanitize
from sfumato.data.schema import Schema
from sfumato.data.table import Table, read, write
from sfumato.engines.dispatch import EngineName, choose
from sfumato.engines.engine import Counted, Progress
from sfumato.engines.memory import Memory, can_stream
from sfumato.engines.released_schema import declared_schema, restrict_domains
from sfumato.errors import InputError, OptionError, did_you_mean
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.generalised import Pairing
from sfumato.measures.loss.information_loss import Loss, loss_of
from sfumato.measures.loss.utility import QueryError, query_error_of
from sfumato.measures.models import as_guarantees
from sfumato.measures.people import keys_of, people_of, refuse_repeated
from sfumato.measures.released_table import ReleasedTable

__all__ = ["AnonymizedTable", "anonymize", "in_spark", "planned", "refuse_new", "run_recipe", "tightened"]

_MANY = 200_000  # original tuples: fewer queries are asked of more
_NOT_OF_THE_METHOD = ("guarantees", "qi", "sensitive", "new_rows")


@dataclass(frozen=True, eq=False, repr=False)
class AnonymizedTable(ReleasedTable):
    """An anonymized table beside its original, which only the process that anonymized it has.

    Attributes
    ----------
    loss : what it lost against the original
    source : the original table
    pairing, counted : the distinct original tuples with what was published of each, and how often each occurs; None if
        they stayed in Spark
    kept_order : whether the rows are in the order of the original
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "k", "order")

    assessment: Assessment
    loss: Loss
    source: Table
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

        It shows which row is whose. Publish `table`, whose rows are shuffled.
        """
        if self.align is None:
            raise in_spark("compared row by row")
        return Table(sanitize(self.align().source), self.table.schema)

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

    @property
    def certified_loss(self) -> dict[str, Any]:
        """What it lost; what the classes alone show is measured on the file, as `verify` will."""
        return self.loss.to_dict() | self.class_loss

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write the table, unless its rows are in Spark or a column is not accounted for."""
        if self.pairing is None:
            raise in_spark("saved as a folder")
        self.check_columns()  # of a table that is in the folder already, too
        return super().write_into(folder, guarantees, **options)

    def check_columns(self) -> None:
        """Refuse a column that looks identifying, judged by the original."""
        accounted(self.source)

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured as plain values."""
        return {**super().to_dict(), "loss": self.loss.to_dict(), "order": self.order}


def in_spark(done: str) -> InputError:
    """Return the error for something that needs the rows of a release that stayed in Spark."""
    return InputError(
        f"a release whose rows are in Spark cannot be {done}",
        hint="let Spark write it, with release.table.frame.write, or fetch the table before it is anonymized",
    )


def anonymize(
    data: Any,
    guarantees: str | ClassGuarantee | Mapping[str, float] | Sequence[Any] = (),
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
        or a DuckDB relation stays where it is, and so do the rows of a database if ``to`` names a new table of it: they
        are counted there, and recoded there by a join. Rows that go into a file, or that guided anonymization and
        relaxed Mondrian decide on one by one, are fetched.
    guarantees : str, ClassGuarantee, mapping or sequence of them
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
        A file to write the table to; or, without the suffix of a file, the name of a new table in the database that
        the rows are in. From a Parquet file to a Parquet file the rows go batch by batch, so
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
    _refuse_output(table, to, escape_formulas)
    job = _Job(table, anonymizer, to, keep_order, escape_formulas, _Stages(progress))
    artifact, details = job.distributed() or job.run()
    artifact = replace(artifact, assessment=replace(artifact.assessment, people=people))
    stored = {name: _plain(value) for name, value in parameters.items() if name not in _NOT_OF_THE_METHOD}
    return Release(
        artifact=artifact,
        method=anonymizer.name,
        parameters=stored,
        guarantees=anonymizer.asked,
        recipe=_recipe(anonymizer, stored, declared_schema(table), keep_order),
        provenance=Provenance.of(table.origin, artifact.rows, order=artifact.order),
        seconds=time.perf_counter() - started,
        details=details,
    )


def _refuse_output(table: Table, to: str | Path | None, escape_formulas: bool) -> None:
    """Refuse an output that cannot be written, before any work."""
    if escape_formulas and to is not None:
        refuse_typed(to, format_of(Path(to)))
    elif escape_formulas:
        raise OptionError("formulas are escaped in a file", hint="name it with to, or escape them in write or save")
    if to is not None and table.origin is not None and Path(to).resolve() == table.origin.resolve():
        raise OptionError(f"'{to}' is read and cannot be written too", hint="choose another name")


@dataclass(frozen=True, eq=False)
class _Job:
    """One table, one method, one place to write to."""

    table: Table
    method: Anonymizer
    to: str | Path | None
    keep_order: bool
    escape_formulas: bool
    stages: _Stages

    def distributed(self) -> tuple[AnonymizedTable, dict[str, Any]] | None:
        """Let a method that can do so work on rows whose tuples do not fit here."""
        done = self.method.distributed(self.table, keep_order=self.keep_order) if self.to is None else None
        if done is None:
            return None
        artifact = AnonymizedTable(
            table=done.table,
            assessment=done.assessment,
            loss=done.loss,
            source=self.table,
            pairing=None,
            counted=None,
            kept_order=self.keep_order,
            align=None,
        )
        return artifact, {"groups": done.groups, "parts": done.parts}

    def run(self) -> tuple[AnonymizedTable, dict[str, Any]]:
        """Reduce, decide, apply; then measure what came out, as anyone could who only has it."""
        table, method, stays = self.table, self.method, self.stays
        streamed = can_stream(table, self.to) and not method.divides_tuples
        if table.is_lazy and not streamed and not stays:  # what is released must be what was measured
            table = Table(table.to_polars(), table.schema, layout=table.layout)
        method.fit(table, progress=self.stages(0.0, 0.4))
        apply = partial(method.apply, table, without=table.schema.identifiers)
        if stays:
            rows = apply(to=self.to, shuffle=not self.keep_order, progress=self.stages(0.4, 0.8)).source
            released, assessment = self.measured(table, rows)
        elif self.to is None:
            rows = sanitize(apply().source, shuffle=not self.keep_order)
            released, assessment = self.measured(table, rows, layout=table.layout)
        else:
            with atomic_path(self.to) as temporary:
                if streamed:
                    apply(to=temporary, shuffle=not self.keep_order, progress=self.stages(0.4, 0.8))
                else:
                    rows = sanitize(apply().source, shuffle=not self.keep_order)
                    write(Table(rows, layout=table.layout), temporary)
                if self.escape_formulas:
                    escape_file(temporary)
                released, assessment = self.measured(table, read(temporary).source)
            written = read(self.to)
            released = Table(written.source, released.schema, origin=written.file or written.origin)
        pairing = method.published().paired(method.problem_, method.columns)
        artifact = AnonymizedTable(
            table=released,
            assessment=assessment,
            loss=loss_of(pairing),
            source=table,
            pairing=pairing,
            counted=Counted(method.tuples_),
            kept_order=self.keep_order,
            align=None if stays and isinstance(table.source, Database) else apply,
        )
        return artifact, method.details()

    @property
    def stays(self) -> bool:
        """Whether the rows stay where they are: in DuckDB, in Spark, or in a database that gets a new table.

        Rows that a method decides on one by one are fetched, and so are rows that go into a file.
        """
        engine = choose(self.table)
        if isinstance(engine, Memory) or self.method.needs_rows:
            return False
        return engine.names_a_table(self.to) or (self.to is None and not isinstance(self.table.source, Database))

    def measured(self, table: Table, rows: Any, **options: Any) -> tuple[Table, Assessment]:
        """Return the released rows with their schema, and what is measured on them."""
        released = Table(rows, restrict_domains(released_schema(table.schema), table, rows), **options)
        return released, measured(released, self.method.asked, self.stages(0.8, 1.0))


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Anonymize a table as a recipe says."""
    if data is None:
        raise OptionError("a recipe of anonymize does not name its data", hint="give the table")
    guarantees, method, keep_order = planned(recipe)
    table = Table.of(data, schema=recipe.schema)
    refuse_new(table, recipe.schema)
    return anonymize(table, guarantees, method=method, keep_order=keep_order, **options)


def planned(recipe: Recipe) -> tuple[list[Guarantee], Anonymizer, bool]:
    """Return what a recipe asks for: the guarantees, the method, and whether the order of the rows is kept."""
    name, parameters, asked = (recipe.options.get(key) for key in ("method", "parameters", "guarantees"))
    parameters = {} if parameters is None else parameters
    if recipe.command != "anonymize" or name not in list(METHODS) or not isinstance(asked, list):
        raise OptionError("the recipe is not for anonymize", hint="'sfumato anonymize -o FOLDER' writes one")
    if not isinstance(parameters, dict) or parameters.keys() & {"guarantees", "qi", "sensitive"}:
        raise OptionError("the recipe has parameters that are not of its method", hint="see its [schema]")
    keep_order = recipe.options.get("keep_order", False)
    if not isinstance(keep_order, bool):
        raise OptionError(f"keep_order of the recipe must be true or false, got {keep_order!r}")
    return [Guarantee.from_dict(one) for one in asked], METHODS[name]().set_params(**parameters), keep_order


def refuse_new(table: Table, schema: Schema) -> None:
    """Refuse a column that the recipe does not mention: it would be released as it is, and nobody decided that."""
    for name in table.schema.names:
        if name not in schema.names:
            raise OptionError(
                f"the recipe says nothing of the column '{name}'",
                hint=f"leave it out of the table, or add [schema.columns.{name}] to the recipe",
            )


def _recipe(method: Anonymizer, parameters: dict[str, Any], declared: Schema, keep_order: bool) -> Recipe:
    options = {
        "guarantees": [guarantee.to_dict() for guarantee in method.asked],
        "method": method.name,
        "parameters": parameters,
        "keep_order": keep_order or None,
    }
    return Recipe("anonymize", options, declared)


def _asked(guarantees: Any, named: Mapping[str, float]) -> list[ClassGuarantee]:
    """Return what is asked for, by position and by name; refuse the same twice."""
    asked = [*as_guarantees(guarantees), *(as_guarantees(named) if named else [])]
    if not asked:
        raise OptionError("no guarantee is asked for", hint="how many rows shall share a combination? For example k=10")
    kinds = [type(one) for one in asked if type(one) in {type(other) for other in as_guarantees(named or ())}]
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

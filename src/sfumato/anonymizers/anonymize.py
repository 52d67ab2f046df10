"""Anonymize a table: decide, recode, and measure the result again; a guarantee that does not hold is an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from sfumato import anonymizers
from sfumato.anonymizers.base import Anonymizer, measure_release
from sfumato.anonymizers.publish import Output, released_schema
from sfumato.data.column_audit import accounted
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.database import Database
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.files import atomic_path, format_of
from sfumato.data.io.folders import private_folder
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.io.source import File
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.sanitize import permutation, sanitize
from sfumato.data.schema import Column, Role, Schema
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
from sfumato.measures.people import keys_of, people_of, refuse_repeated, refuse_two_units
from sfumato.measures.released_table import ReleasedTable

__all__ = [
    "METHODS",
    "AnonymizedTable",
    "anonymize",
    "as_method",
    "in_spark",
    "plain_parameters",
    "read_plan",
    "recipe_of",
    "refuse_new",
    "run_recipe",
    "tight_output",
    "with_tokens",
]

METHODS = {
    "mondrian": "Mondrian",
    "hilbert": "Hilbert",
    "rplus": "RPlus",
    "lattice": "Lattice",
    "microaggregate": "Microaggregate",
    "suppress": "LocalSuppression",
    "guided": "Guided",
}
"""The class of each method, by its name on the command line."""

_MANY = 200_000  # original tuples; with more, fewer queries are asked
_NOT_OF_THE_METHOD = ("guarantees", "qi", "sensitive", "new_rows")
_BY_NAME = (
    *("k", "l", "t", "alpha", "entropy_l", "recursive_c", "recursive_l"),
    *("basic_beta", "enhanced_beta", "delta_disclosure"),
)


@dataclass(frozen=True, eq=False, repr=False)
class AnonymizedTable(ReleasedTable):
    """An anonymized table with its original, as long as both are in this process.

    Attributes
    ----------
    loss : the information loss
    source : the original table
    pairing, counted : the distinct original tuples with their published values, and their counts; None if they stayed
        in Spark
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
        """The assessment of the original."""
        known = self.counted is not None and self.source.schema.person is None
        return measure(self.source, engine=self.counted if known else EngineName.AUTO)  # type: ignore[arg-type]

    @cached_property
    def aligned(self) -> Table:
        """The release in the order of the original, for row-by-row comparisons such as `loss`.

        The order shows which row belongs to whom, so publish `table`, whose rows are shuffled.
        """
        if self.align is None:
            raise in_spark("compared row by row")
        return Table(sanitize(self.align().source), self.table.schema)

    @property
    def order(self) -> str:
        """The order of the rows: ``"shuffled"``, or ``"kept"`` as in the original."""
        return "kept" if self.kept_order else "shuffled"

    @cached_property
    def query_error(self) -> QueryError | None:
        """The error of random counting queries on the release; None if its rows stayed in Spark."""
        if self.pairing is None:
            return None
        return query_error_of(self.pairing, queries=200 if len(self.pairing.original) <= _MANY else 40)

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The information loss; class measures are taken from the released file, as `verify` will do."""
        return self.loss.to_dict() | self.class_loss

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write the table; raise an error if its rows are in Spark."""
        if self.pairing is None:
            raise in_spark("saved as a folder")
        return super().write_into(folder, guarantees, **options)

    def check_columns(self) -> None:
        """Do nothing: `anonymize` has accounted for every column of the original."""

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
        return {**super().to_dict(), "loss": self.loss.to_dict(), "order": self.order}


def in_spark(done: str) -> InputError:
    """Return the error for an action that needs the rows of a release that stayed in Spark."""
    return InputError(
        f"a release whose rows are in Spark cannot be {done}",
        hint="write it with Spark, release.table.frame.write, or fetch the table before you anonymize it",
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
    person: str | None = None,
    keep_person_token: bool = False,
    keep: Sequence[str] = (),
    rows_are_units: bool = False,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    to: str | Path | None = None,
    exact_ends: bool = False,
    keep_order: bool = False,
    escape_formulas: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Anonymize a table with as little information loss as possible.

    The release is measured again from its rows alone; a guarantee that does not hold is an error. k-anonymity and
    its relatives are not differential privacy: they limit what this release alone reveals.

    Parameters
    ----------
    data : Table, frame or path
        The index of a pandas frame is dropped; make it a column to release it. A Spark frame or a DuckDB relation is
        counted and recoded where it is, and so are the rows of a database if ``to`` names a new table there. Rows are
        fetched if they go into a file, or if the method is guided or relaxed Mondrian, which decide row by row.
    guarantees : str, ClassGuarantee, mapping or sequence of them
        The guarantees, such as ``"k=10,l=3"``, ``{"k": 10, "l": 3}`` or ``[KAnonymity(10), LDiversity(3)]``.
    k, l, t, alpha, entropy_l, recursive_c, recursive_l, basic_beta, enhanced_beta, delta_disclosure : optional
        The same by name: ``anonymize(table, k=10, l=3)``.
    method : Anonymizer or str
        ``Mondrian()``, ``Hilbert()``, ``RPlus()``, ``Lattice()``, ``Microaggregate()``, ``LocalSuppression()`` or
        ``Guided()`` with their parameters, or a name (mondrian, hilbert, rplus, lattice, microaggregate, suppress,
        guided).
    qi, sensitive, identifiers : sequence of str
        The roles of the columns; by default those of the method or of the schema. Identifiers are dropped.
    person : str, optional
        The column that says which rows are of the same person: guarantees are then about people, and k=10 means ten
        people in every class. It is dropped. A row without a person counts as a person of its own.
    keep_person_token : bool
        Whether to release that column with random numbers in the place of its values, so that anyone can count people.
        This tells which rows are of the same person: no class hides someone whose rows together are known.
    keep : sequence of str
        Columns to release unchanged although they look like identifiers or free text, or reproduce a
        quasi-identifier or sensitive column. Such a column without a role is an error.
    rows_are_units : bool
        Whether to protect rows even if a person has several rows; otherwise such a table is an error.
    schema : Schema, path or mapping, optional
        See `Schema.of`.
    to : path, optional
        The output file or, without a file suffix, the name of a new table in the database of the rows. From Parquet
        to Parquet, rows are written in batches, so a table of any size fits.
    exact_ends : bool
        Whether intervals end at the smallest and the largest value of a class, which are values of people, instead of
        values rounded outward. The same as ``output="tight"`` of the method.
    keep_order : bool
        Whether to keep the order of the rows. By default they are shuffled with the operating system's entropy,
        because the order may reveal which row belongs to whom.
    escape_formulas : bool
        Whether to put an apostrophe before cells that a spreadsheet would compute, such as ``=1+1``; only for CSV and
        TSV files.
    progress : callable, optional
        A callback for the fraction of the work that is done.

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
    method = as_method(method)
    by_name = (k, l, t, alpha, entropy_l, recursive_c, recursive_l, basic_beta, enhanced_beta, delta_disclosure)
    asked = _asked(guarantees, {name: one for name, one in zip(_BY_NAME, by_name, strict=True) if one is not None})
    qi, sensitive = qi or method.qi, sensitive or method.sensitive
    roles: dict[str, Any] = {"qi": qi, "sensitive": sensitive, "identifiers": identifiers, "keep": keep}
    table = Table.of(data, schema=schema, person=person, **roles)
    refuse_two_units(table, rows_are_units)
    people = None
    if table.schema.quasi:
        table = accounted(table)
    if table.schema.quasi and table.schema.person is None:
        people = people_of(table, keys_of(table))
    if keep_person_token and table.schema.person is None:
        raise OptionError("there is no person column to keep as a token", hint="name it with person / --person")
    parameters = method.get_params() | {"guarantees": asked, "qi": (), "sensitive": ()}
    if exact_ends:
        parameters["output"] = tight_output(method)
    anonymizer = type(method)(**parameters)
    refuse_repeated(people, anonymizer.asked, rows_are_units)
    _refuse_output(table, to, escape_formulas)
    if table.schema.person is not None and choose(table).names_a_table(to):
        raise OptionError(
            "people cannot be counted in a new table of a database, which has no person column",
            hint="write a file, or omit 'to' and write the released rows yourself",
        )
    job = _Job(table, anonymizer, to, keep_order, keep_person_token, escape_formulas, progress)
    artifact, details = job.distributed() or job.run()
    if people is not None:
        artifact = replace(artifact, assessment=replace(artifact.assessment, people=people))
    stored = plain_parameters(anonymizer)
    return Release(
        artifact=artifact,
        method=anonymizer.name,
        parameters=stored,
        guarantees=anonymizer.asked,
        recipe=recipe_of(
            anonymizer, stored, declared_schema(table), keep_order=keep_order, keep_person_token=keep_person_token
        ),
        provenance=Provenance.of(table.origin, artifact.rows, order=artifact.order),
        seconds=time.perf_counter() - started,
        details=details,
    )


def _refuse_output(table: Table, to: str | Path | None, escape_formulas: bool) -> None:
    """Raise an error for an output that cannot be written, before any work."""
    if escape_formulas and to is not None:
        refuse_typed(to, format_of(Path(to)))
    elif escape_formulas:
        raise OptionError(
            "escape_formulas needs an output file", hint="name it with to, or escape formulas in write or save"
        )
    if to is not None and table.origin is not None and Path(to).resolve() == table.origin.resolve():
        raise OptionError(f"'{to}' is read and cannot be written too", hint="choose another name")


@dataclass(frozen=True, eq=False)
class _Job:
    """A table, a fitted method and an output."""

    table: Table
    method: Anonymizer
    to: str | Path | None
    keep_order: bool
    keep_person_token: bool
    escape_formulas: bool
    progress: Progress | None

    @property
    def person(self) -> str | None:
        """The column that people are counted by."""
        return self.table.schema.person

    def distributed(self) -> tuple[AnonymizedTable, dict[str, Any]] | None:
        """Anonymize in a distributed way, if the method can; otherwise return None."""
        here = self.to is not None or self.person is not None
        done = None if here else self.method.distributed(self.table, keep_order=self.keep_order)
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
        """Reduce, decide, apply, and measure the released rows."""
        table, method, stays = self.table, self.method, self.stays
        if self.keep_person_token:
            table, stays = with_tokens(table), False
        streamed = can_stream(table, self.to) and not method.divides_tuples
        if table.is_lazy and not streamed and not stays:  # the released rows must be those that were measured
            table = Table(table.to_polars(), table.schema, layout=table.layout)
        method.fit(table, progress=self.stage(0.0, 0.4))
        left_out = [one for one in table.schema.identifiers if one != self.person or not self.keep_person_token]
        apply = partial(method.apply, table, without=left_out)
        of_people = None if self.person is None else self.of_people(table)
        if stays:
            rows = apply(to=self.to, shuffle=not self.keep_order, progress=self.stage(0.4, 0.8)).source
            released, assessment = self.measured(table, rows)
        elif self.to is None:
            rows = sanitize(apply().source, shuffle=not self.keep_order)
            released, assessment = self.measured(table, rows, layout=table.layout)
        else:
            with atomic_path(self.to) as temporary:
                if streamed:
                    apply(to=temporary, shuffle=not self.keep_order, progress=self.stage(0.4, 0.8))
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
            assessment=assessment if of_people is None else of_people,
            of_rows=None if of_people is None or self.keep_person_token else assessment,
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
        """Whether the rows stay where they are: in DuckDB, in Spark, or in a database that gets a new table."""
        engine = choose(self.table)
        if isinstance(engine, Memory) or self.method.needs_rows:
            return False
        return engine.names_a_table(self.to) or (self.to is None and not isinstance(self.table.source, Database))

    def measured(self, table: Table, rows: Any, **options: Any) -> tuple[Table, Assessment]:
        """Return the released rows with their schema, and their assessment."""
        columns = released_schema(table.schema, tokens=self.keep_person_token)
        released = Table(rows, restrict_domains(columns, table, rows), **options)
        if self.person is not None and not self.keep_person_token:
            return released, measure(released, progress=self.stage(0.8, 1.0))  # the guarantees are not about rows
        return released, measure_release(released, self.method.asked, self.stage(0.8, 1.0))

    def of_people(self, table: Table) -> Assessment:
        """Measure the recoded rows while they still have their person column."""
        left_out = [one for one in table.schema.identifiers if one != self.person]
        columns = table.schema.released(tokens=True)
        with private_folder() as folder:
            to = folder / "people.parquet" if isinstance(table.source, File) and table.is_lazy else None
            rows = self.method.apply(table, without=left_out, to=to).source
            return measure_release(Table(rows, restrict_domains(columns, table, rows)), self.method.asked)

    def stage(self, begin: float, end: float) -> Progress | None:
        """Return the progress callback of a stage, given the fractions of all work at its begin and end."""
        report = self.progress
        return report and (lambda share: report(begin + share * (end - begin)))


def with_tokens(table: Table) -> Table:
    """Replace the person column by the numbers from 1 on, in random order; each row without a person gets its own.

    Examples
    --------
    >>> import polars as pl
    >>> visits = pl.DataFrame({"patient": ["ann", "bob", "ann", None], "age": [30, 41, 31, 50]})
    >>> tokens = with_tokens(Table.of(visits, person="patient")).column("patient").to_list()
    >>> tokens[0] == tokens[2], sorted(set(tokens))
    (True, [1, 2, 3])
    """
    person = table.schema.person
    assert person is not None
    rows = table.to_polars()
    whose = rows[person].fill_nan(None) if rows[person].dtype.is_float() else rows[person]
    missing, known = whose.is_null().to_numpy(), whose.drop_nulls().n_unique()
    place = whose.rank("dense").fill_null(0).cast(pl.Int64).to_numpy() - 1
    place = np.where(missing, known + np.cumsum(missing) - 1, place)
    token = 1 + permutation(known + int(missing.sum()))
    columns = (Column(name=person, role=Role.PERSON) if one.name == person else one for one in table.schema.columns)
    made = rows.with_columns(pl.Series(person, token[place]))
    return Table(made, Schema(columns, table.schema.constraints), layout=table.layout)


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Anonymize a table by a recipe."""
    if data is None:
        raise OptionError("a recipe of anonymize does not name its data", hint="give the table")
    guarantees, method, keep_order = read_plan(recipe)
    table = Table.of(data, schema=recipe.schema)
    refuse_new(table, recipe.schema)
    tokens = bool(recipe.options.get("keep_person_token"))
    return anonymize(table, guarantees, method=method, keep_order=keep_order, keep_person_token=tokens, **options)


def read_plan(recipe: Recipe) -> tuple[list[Guarantee], Anonymizer, bool]:
    """Return the guarantees and the method of a recipe, and whether it keeps the order of the rows."""
    name, parameters, asked = (recipe.options.get(key) for key in ("method", "parameters", "guarantees"))
    parameters = {} if parameters is None else parameters
    if recipe.command != "anonymize" or name not in list(METHODS) or not isinstance(asked, list):
        raise OptionError("the recipe is not for anonymize", hint="'sfumato anonymize -o FOLDER' writes one")
    if not isinstance(parameters, dict) or parameters.keys() & {"guarantees", "qi", "sensitive"}:
        raise OptionError("the recipe has parameters that its method lacks", hint="see its [schema]")
    keep_order = recipe.options.get("keep_order", False)
    if not isinstance(keep_order, bool):
        raise OptionError(f"keep_order of the recipe must be true or false, got {keep_order!r}")
    return [Guarantee.from_dict(one) for one in asked], as_method(str(name)).set_params(**parameters), keep_order


def refuse_new(table: Table, schema: Schema) -> None:
    """Raise an error for a column that the recipe does not mention, which would be released unchanged."""
    for name in table.schema.names:
        if name not in schema.names:
            raise OptionError(
                f"the recipe does not mention the column '{name}'",
                hint=f"drop it from the table, or add [schema.columns.{name}] to the recipe",
            )


def plain_parameters(method: Anonymizer) -> dict[str, Any]:
    """Return the parameters of a method as a release states them: plain values, without guarantees and columns."""
    return {name: _plain(one) for name, one in method.get_params().items() if name not in _NOT_OF_THE_METHOD}


def recipe_of(
    method: Anonymizer,
    parameters: dict[str, Any],
    declared: Schema,
    *,
    keep_order: bool,
    keep_person_token: bool = False,
) -> Recipe:
    """Return the recipe that makes a release again from the original table."""
    options = {
        "guarantees": [guarantee.to_dict() for guarantee in method.asked],
        "method": method.name,
        "parameters": parameters,
        "keep_order": keep_order or None,
        "keep_person_token": keep_person_token or None,
    }
    return Recipe("anonymize", options, declared)


def _asked(guarantees: Any, named: Mapping[str, float]) -> list[ClassGuarantee]:
    """Return the guarantees given by position and by name; it is an error to give one twice."""
    asked = [*as_guarantees(guarantees), *(as_guarantees(named) if named else [])]
    if not asked:
        raise OptionError("no guarantee is asked for", hint="for example k=10, for classes of at least 10 rows")
    kinds = [type(one) for one in asked if type(one) in {type(other) for other in as_guarantees(named or ())}]
    if len(set(kinds)) < len(kinds):
        raise OptionError("a guarantee is given twice", hint="by its name, or among the guarantees")
    return asked


def tight_output(method: Anonymizer) -> Output:
    """Return the output with exact ends, for a method that publishes intervals.

    Examples
    --------
    >>> import sfumato as sf
    >>> tight_output(sf.Mondrian())
    <Output.TIGHT: 'tight'>
    """
    if getattr(method, "output", None) not in (Output.INTERVAL, Output.TIGHT):
        raise OptionError(
            f"exact ends need intervals, which the method '{method.name}' does not publish",
            hint="omit them, or choose intervals: output='interval' / --representative interval",
        )
    return Output.TIGHT


def as_method(method: Anonymizer | str) -> Anonymizer:
    """Return a method, given itself or its name.

    Examples
    --------
    >>> as_method("mondrian")
    Mondrian()
    """
    if isinstance(method, str):
        if method not in METHODS:
            raise OptionError(f"the method '{method}' is unknown", hint=did_you_mean(method, METHODS))
        made: Anonymizer = getattr(anonymizers, METHODS[method])()  # imports only this method
        return made
    if not isinstance(method, Anonymizer):
        raise OptionError(
            f"the method must be an object such as Mondrian(), or a name, got {getattr(method, '__name__', method)!r}",
            hint="known: " + ", ".join(METHODS),
        )
    return method


def _plain(value: Any) -> Any:
    """Return a parameter as a plain value for JSON and TOML."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Enum):
        return value.value
    # Of anything else only the type: the text of an array or a frame would show rows.
    return value if value is None or isinstance(value, str | int | float | bool) else type(value).__name__

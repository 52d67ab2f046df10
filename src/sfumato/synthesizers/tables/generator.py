"""A generator as a release: rows that were drawn, and the noisy numbers from which more are drawn for free.

The folder holds the drawn rows (``table.csv`` or ``table.parquet``), the public description of the columns, the plan of
all purchases and the settings of the model (``generator.json``), and its noisy arrays (``generator.safetensors``).
Nothing else is stored: no record, no number of records, no ledger. Reading a generator runs no code from its files, and
takes memory and time in proportion to their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

import sfumato
from sfumato._repr import Discreet, named
from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.data.certificate import Certificate, is_regular_file
from sfumato.data.claim import DAMAGED, Claim, reason_of
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.formulas import unescaped
from sfumato.data.recipe import Recipe
from sfumato.data.release import Artifact, Layout, Provenance, Release
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import real, whole
from sfumato.errors import FileError, InputError, MissingExtra, OptionError, SfumatoError
from sfumato.learners.training.released_model import read_arrays
from sfumato.measures.released_table import Format, LoadedTable
from sfumato.synthesizers.catalogue import parameters_of
from sfumato.synthesizers.plan import derived
from sfumato.synthesizers.state import State
from sfumato.synthesizers.stored import ARRAYS, FACTS, read_facts, write_stored
from sfumato.synthesizers.tables.base import Model, Synthesizer
from sfumato.synthesizers.tables.columns.constraints import Constraints, draw_rows
from sfumato.synthesizers.tables.columns.description import Described
from sfumato.synthesizers.tables.columns.domain import Domain
from sfumato.synthesizers.tables.further_rows import FurtherRows
from sfumato.synthesizers.tables.methods.catalogue import method_of
from sfumato.synthesizers.tables.people import OF_PEOPLE, ROWS, draw_people, frame_of_people, read_people
from sfumato.synthesizers.tables.plan import TablePlan, plan_of

__all__ = ["MOST_ROWS", "Generator", "drawn_schema", "like"]

MOST_ROWS = 10**9
"""The most rows that are drawn at once."""
_FORMAT = 1
_FREQUENT = 0.1  # the share of rows with a value that must not be lost in the noise
_COUNTED = (
    4.0  # times what the noise hides: the number of rows is a sum of noisy counts, with several times their noise
)
_EMPTY = 0.95  # the share of missing values of a column that is worth a note
_KEYS = {
    "format", "method", "parameters", "domain", "bought", "scans", "escaped", "epsilon", "delta", "noise", "private",
    "plan", "settings", "sfumato",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Generator(Artifact, Discreet):
    """Draws synthetic rows. It holds noisy numbers and public descriptions only, so drawing costs no privacy.

    Attributes
    ----------
    table : the rows that were drawn when it was made
    domain : the columns, as declared or bought
    model : what the method has learned
    method : how it has learned
    plan : every purchase
    declared : the declared schema
    private : False if the noise came from a given seed
    scans : whether the method could read the records, not only count them
    escaped : whether formulas among the texts of the stored rows have an apostrophe before them
    library : the kind of frame that `sample` returns: polars, pandas or pyarrow
    rows_per_person : the most rows of a person that were read, if people are protected
    further : how further rows follow from the first one, if people with several rows are drawn

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.synthesize("nursery", epsilon=1, rows=500)
    >>> release.kind, release.rows, release.sample(3).shape
    ('generator', 500, (3, 9))
    """

    kind = "generator"
    layout = Layout((Format.CSV.file, Format.PARQUET.file), (FACTS, ARRAYS, "recipe.toml", "report.html"))
    facts = ("public",)
    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "columns")

    table: Table
    domain: Domain
    model: Model
    method: Synthesizer
    plan: TablePlan
    declared: Schema
    private: bool
    scans: bool = True
    escaped: bool = False
    library: str = "polars"
    rows_per_person: int | None = None
    further: FurtherRows | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else the recipe says."""

    @property
    def rows(self) -> int:
        """The number of rows that were drawn when it was made."""
        return self.table.rows

    @property
    def people(self) -> int | None:
        """The number of people that were drawn when it was made; None if rows were."""
        return None if self.further is None else int(self.table.column(self.declared.person or "").n_unique())

    @property
    def unit(self) -> str:
        """What is protected: a row, or a person."""
        return self.plan.unit

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are drawn, without that of the person."""
        return tuple(name for name in self.domain.names if self.further is None or name != ROWS)

    @property
    def columns(self) -> int:
        """The number of columns, without that of the person."""
        return len(self.names)

    @property
    def epsilon(self) -> float:
        """The epsilon that was asked for."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """The delta that was asked for."""
        return self.plan.delta

    @property
    def target(self) -> str | None:
        """The column to be predicted, if there is one."""
        return self.domain.target

    @cached_property
    def constraints(self) -> Constraints:
        """What every row meets."""
        return Constraints.of(self.declared.constraints)

    @property
    def spent(self) -> Spent:
        """What the generator has cost."""
        return self.plan.spent

    @property
    def note(self) -> str:
        """What to know if frequent values are lost in the noise or columns are empty; empty if all is well.

        It follows from what is released, so it says no more about the records.
        """
        return "; ".join(one for one in (self._about_noise, self._about_bounds, self._about_missing) if one)

    @property
    def _about_bounds(self) -> str:
        """Name the columns of which noise left a single value: others are clipped to it."""
        bought = {name for name, what in self.plan.bought.items() if "bounds" in what}
        single = [one.name for one in self.domain.codings if one.name in bought and one.axis.size <= 2]
        return f"only one value of {named(single)} stands out from the noise: declare the bounds" if single else ""

    @property
    def _about_missing(self) -> str:
        frame = self.table.to_polars()
        empty = [one.name for one in frame if one.null_count() > _EMPTY * len(one)]
        if not empty:
            return ""
        ruled = {name for one in self.constraints.items for name in one.columns}
        rules = "; or no value that was bought meets the constraints" if ruled & {*empty} & {*self.plan.bought} else ""
        return (
            f"nearly all values of {named(empty)} are missing: if they are not in the original, they are too rare for "
            "this epsilon, or not written as declared (the decimal sign, the order of dates, the kind of the column)"
            f"{rules}"
        )

    @property
    def hidden(self) -> float:
        """The number of rows with a value below which it is lost in the noise: two deviations of its count, at best."""
        return 2 * self.plan.noise * (self.plan.rows_per_person or 1) * math.sqrt(len(self.domain.names))

    @property
    def _about_noise(self) -> str:
        total, hidden = max(self.model.total or 0.0, 1.0), self.hidden
        if self.model.total is None or hidden <= _FREQUENT * total:
            return ""
        what = "rows" if self.further is None else "people"
        lost = f"at epsilon {self.epsilon:g}, the noise hides values of fewer than about {hidden:,.0f} {what}, and"
        if total < _COUNTED * hidden:
            enough = self.epsilon * hidden / (_FREQUENT * 1000)
            return (
                f"{lost} how many {what} the table has: with {self.columns} columns, a table of 1,000 {what} needs "
                f"about epsilon {enough:.2g} to show values of a tenth of them"
            )
        enough = self.epsilon * hidden / (_FREQUENT * total)
        return (
            f"{lost} the table has about {total:,.0f}: with {self.columns} columns, epsilon {enough:.2g} would show "
            f"those of a tenth of the {what}"
        )

    @property
    def schema(self) -> Schema:
        """The declared schema."""
        return self.declared

    @property
    def claims(self) -> dict[str, Any]:
        """The number of drawn rows and, if the noise is secret, the cost by the recorded events."""
        drawn = {"rows": self.rows} if self.further is None else {"rows": self.rows, "people": self.people}
        if not self.private:
            return drawn
        cost = self.spent
        return {**drawn, "epsilon": cost.epsilon, "delta": cost.delta, "relation": cost.relation.value}

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything from which the cost follows, beside the columns."""
        return {
            **self._terms,
            "target": self.target,
            "relation": self.plan.relation.value,
            "seed": self.options.get("seed"),
            "events": [one.to_dict() for one in self.plan.events],
        }

    @property
    def _terms(self) -> dict[str, Any]:
        return {
            "parameters": parameters_of(self.method),
            "epsilon": self.plan.epsilon,
            "delta": self.plan.delta,
            "noise": self.plan.noise,
            "scans": self.scans,
            "private": self.private,
            **self._of_people,
        }

    @property
    def _of_people(self) -> dict[str, Any]:
        if self.rows_per_person is None:
            return {}
        bought = {"rows_bought": True} if self.plan.buys_rows else {}
        return {"rows_per_person": self.rows_per_person, "people": self.further is not None, **bought}

    def sample(self, rows: int, *, given: Any = None, seed: int | None = None) -> Any:
        """Return new rows; a seed makes the draw reproducible.

        Parameters
        ----------
        rows : int
            How many rows to draw. Of a generator of people, how many people: each has several rows.
        given : mapping or str, optional
            What all rows meet, unless people are drawn: ``{"sex": "f", "age": "30..39"}``, or a condition as in a
            query. Conditions on single columns are drawn directly by the methods tree, aim and independent, however
            rare they are; otherwise rows are drawn until enough of them meet it, and a rare condition takes longer.
        seed : int, optional
            Draw the same rows again.

        Returns
        -------
        frame
            Of the kind that the generator was made from; a Polars frame if it was loaded.
        """
        return like(self.draw(rows, np.random.default_rng(seed), given), self.library)

    def draw(self, rows: int, rng: np.random.Generator, given: Any = None) -> pl.DataFrame:
        """Return new rows as a Polars frame; so many people if people are drawn."""
        if self.further is not None:
            if given is not None:
                raise OptionError("what is given concerns rows, and people are drawn", hint="select rows of the result")
            count = whole("the number of people", rows, least=0, most=MOST_ROWS // (self.rows_per_person or 1))
            return frame_of_people(
                *draw_people(self.model, self.further, self.domain, count, rng, self.constraints),
                self.domain,
                self.declared.person or "",
            )
        count = whole("the number of rows", rows, least=0, most=MOST_ROWS)
        codes = draw_rows(self.model, self.domain, count, rng, constraints=self.constraints, given=given)
        return self.domain.decode(codes)

    def release(self, provenance: Provenance, seconds: float, *, charged: bool) -> Release:
        """Return the generator as a release."""
        promise = DifferentialPrivacy(self.epsilon, self.delta, self.spent.relation, self.unit)
        stated = {
            "method": self.method.name,
            "parameters": parameters_of(self.method),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "target": self.target,
        }
        return Release(
            artifact=self,
            method=self.method.name,
            parameters=self.parameters,
            guarantees=(promise,) if self.private else (),
            events=self.plan.events,
            recipe=Recipe("synthesize", {**stated, **self.options}, self.declared),
            provenance=provenance,
            seconds=seconds,
            details={"charged": charged},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what was made, and what it cost, as plain values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rows": self.rows,
            **({} if self.further is None else {"people": self.people}),
            "utility": {},
            "target": self.target,
            "spent": self.spent.epsilon,
            "relation": self.spent.relation.value,
            "unit": self.unit,
            **({} if self.rows_per_person is None else {"rows_per_person": self.rows_per_person}),
            "purchases": self.plan.to_dict(),
            "private": self.private,
            "note": self.note,
        }

    # --- files ------------------------------------------------------------------------------------

    def stored_form(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the plain values and the arrays that `write_into` stores."""
        state = self.model.to_state()
        more = State({}, {}) if self.further is None else self.further.to_state()
        plain = {
            "format": _FORMAT,
            "method": self.method.name,
            **self._terms,
            "domain": self.domain.to_dict(),
            "bought": {name: list(what) for name, what in self.plan.bought.items()},
            "escaped": self.escaped,
            "plan": self.plan.to_dict(),
            "settings": {**state.settings, **more.settings},
            "sfumato": sfumato.__version__,
        }
        return plain, {name: np.ascontiguousarray(one) for name, one in {**state.arrays, **more.arrays}.items()}

    def write_into(
        self,
        folder: Path,
        guarantees: tuple[Guarantee, ...],
        *,
        origin: Path | None = None,
        escape_formulas: bool = False,
        **options: Any,
    ) -> tuple[str, Self]:
        """Write the generator and the drawn rows."""
        escaped = replace(self, escaped=escape_formulas)
        write_stored(folder, *escaped.stored_form(), hint="leave out columns with very many categories")
        data, _ = LoadedTable(self.table, None, {}).write_into(
            folder, (), origin=origin, escape_formulas=escape_formulas, **options
        )
        stored = _stored_rows(folder / data, self.table.schema, escaped=escape_formulas)
        return data, replace(escaped, table=stored)

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> Generator:
        """Read the generator of a release, ready to draw from."""
        if not is_regular_file(folder / certificate.data):
            raise FileError(f"'{certificate.data}' is missing, or not a regular file")
        plain = read_facts(folder / FACTS, _KEYS, format=_FORMAT, optional=OF_PEOPLE)
        arrays = read_arrays(folder / ARRAYS)
        try:
            domain, escaped = _domain(plain["domain"]), _truth(plain["escaped"])
            method = method_of(plain["method"], plain["parameters"])
            rows_per_person, people, buys_rows = read_people(plain, certificate.schema, domain)
            state = State(plain["settings"], arrays)
            return cls(
                table=_stored_rows(
                    folder / certificate.data,
                    drawn_schema(certificate.schema, domain, people=people),
                    escaped=escaped,
                ),
                domain=domain,
                model=method.model.from_state(domain.axes, domain.label, state),
                method=method,
                plan=_plan(plain, domain, method, rows_per_person, buys_rows=buys_rows, people=people),
                declared=certificate.schema,
                private=_truth(plain["private"]),
                scans=_truth(plain["scans"]),
                escaped=escaped,
                rows_per_person=rows_per_person,
                further=FurtherRows.from_state(domain.axes[:-1], state) if people else None,
                options={"seed": certificate.parameters.get("seed")},
            )
        except (SfumatoError, *DAMAGED) as error:
            raise FileError(f"the generator in '{folder}' cannot be used: {reason_of(error)}") from error

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Derive the cost again from the method and its columns, and check every file against the certificate."""
        from sfumato.synthesizers.tables.verify_generator import verify_generator

        return verify_generator(folder, certificate)


def like(frame: pl.DataFrame, library: str) -> Any:
    """Return a frame as one of another library."""
    try:
        if library != "pandas":
            return frame.to_arrow() if library == "pyarrow" else frame
        whole = [one.name for one in frame if one.dtype.is_integer() and one.has_nulls()]
        exact = {
            name: frame[name].to_pandas(use_pyarrow_extension_array=True).astype(str(frame[name].dtype))
            for name in whole
        }
        return frame.to_pandas().assign(**exact)  # otherwise missing values would turn whole numbers into floats
    except ImportError as error:
        raise MissingExtra("this kind of frame needs pyarrow", hint="pip install 'sfumato[arrow]'") from error


def drawn_schema(declared: Schema, domain: Domain, *, people: bool = False) -> Schema:
    """Return the declared columns that are drawn; if people are, with that of the person."""
    known = {one.name: one for one in declared.columns if not one.role.is_identifier}
    person = [Column(name=declared.person, role=Role.PERSON)] if people and declared.person else []
    return Schema([*person, *(known[name] for name in domain.names if name in known)])


def _stored_rows(path: Path, schema: Schema, *, escaped: bool) -> Table:
    """Return the drawn rows of a folder; texts that were escaped for spreadsheets are as they were drawn."""
    table = Table(read(path).source, schema)
    if not escaped:
        return table
    frame = table.to_polars()
    return Table(frame.with_columns(unescaped(one) for one in frame if one.dtype == pl.String), schema)


def _domain(plain: Mapping[str, Any]) -> Domain:
    """Return the domain of a stranger's file."""
    domain = Domain.from_dict(plain)
    label, count = domain.label, len(domain.codings)
    if not count or len({*domain.names}) < count:
        raise InputError("the generator has no column, or two of the same name")
    if label is not None and (type(label) is not int or not 0 <= label < count or domain.axes[label].ordered):
        raise InputError("the target of the generator must be one of its columns of categories")
    return domain


def _plan(
    plain: Mapping[str, Any],
    domain: Domain,
    method: Synthesizer,
    rows_per_person: int | None,
    *,
    buys_rows: bool,
    people: bool,
) -> TablePlan:
    """Return the plan that follows from the method, the columns and the noise."""
    bought = plain["bought"]
    if not isinstance(bought, dict) or not bought.keys() <= {one.name for one in domain.codings}:
        raise InputError("a column that was bought is not among the columns")
    if not all(
        isinstance(what, list) and what and {*what} <= {"domain", "bounds", "decimals"} for what in bought.values()
    ):
        raise InputError("of a column its domain, bounds or decimals are bought")
    described = [Described.before(one, bought.get(one.name, ())) for one in domain.codings]
    epsilon, delta, noise = (real(name, plain[name], above=0) for name in ("epsilon", "delta", "noise"))
    terms: dict[str, Any] = {"noise": noise, "rows_per_person": rows_per_person, "people": people}
    terms["buys_rows"] = buys_rows
    return derived(plan_of(method, described, domain.label, epsilon, delta, scans=_truth(plain["scans"]), **terms))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError("'private', 'scans', 'escaped' and 'people' must be true or false")
    return value

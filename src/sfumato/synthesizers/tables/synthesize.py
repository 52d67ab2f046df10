"""Make a generator of synthetic rows from a table: describe its columns, pay, learn, draw."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUGHT
from sfumato.budget.query.discovery import FindRowsPerPerson
from sfumato.data import datasets
from sfumato.data.io.source import File
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import real, whole
from sfumato.errors import ColumnError, InputError, OptionError, SchemaError, SfumatoError, did_you_mean
from sfumato.synthesizers.tables.base import Synthesizer
from sfumato.synthesizers.tables.columns.conditions import given_condition
from sfumato.synthesizers.tables.columns.constraints import Constraint, Constraints, draw_rows
from sfumato.synthesizers.tables.columns.description import Described, Description
from sfumato.synthesizers.tables.columns.naming import refuse_names
from sfumato.synthesizers.tables.engine_records import describe_elsewhere
from sfumato.synthesizers.tables.file_records import describe_file
from sfumato.synthesizers.tables.generator import MOST_ROWS, Generator, drawn_schema, like
from sfumato.synthesizers.tables.methods.catalogue import method_of
from sfumato.synthesizers.tables.people import (
    People,
    check_people,
    draw_people,
    frame_of_people,
    learn_people,
    rows_of_a_person,
)
from sfumato.synthesizers.tables.plan import plan_of

__all__ = ["run_recipe", "synthesize"]

_ROWS = 10_000  # drawn by a model that does not know how many records there were


def synthesize(
    table: Any,
    epsilon: float = 1.0,
    *,
    delta: float = 1e-5,
    target: str | None = None,
    method: str | Synthesizer | None = None,
    rows: int | None = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    constraints: Sequence[str | Mapping[str, Any] | Constraint] | None = None,
    weights: str | None = None,
    given: Any = None,
    keep: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | Literal["bought"] | None = None,
    people: int | None = None,
    declared_only: bool = False,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    seed: int | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Release:
    """Learn a generator of synthetic rows with differential privacy, and draw rows from it.

    Parameters
    ----------
    table : Table, frame, path or name
        "adult" and "nursery" are built in. Columns with the role of an identifier are left out.
    epsilon, delta : float
        The total cost, for adding or removing one row. Delta must be below one over the number of rows; a larger delta
        raises an error, which is for you alone: it names that number.
    target : str, optional
        A column of categories whose dependence on all others matters most. By default the target of the schema. Rows
        in which it is missing are left out.
    method : str or Synthesizer, optional
        A name, such as "tree" (the default) or "independent", or an object, such as ``LabelledTree(additive=False)``.
    rows : int, optional
        How many rows to draw; by default about as many as the table has, by a noisy count. `Generator.sample` draws
        more at any time, at no cost.
    schema : Schema, path or mapping, optional
        What is public of the columns; by default the schema of the table. Undeclared bounds and domains are bought
        with a tenth of the budget.
    constraints : sequence of str, optional
        What every row must meet, in addition to the constraints of the schema: ``"start <= end"``, ``"not (sex = m and
        pregnant = yes)"``, or ``"education -> years {'HS-grad': 9, Masters: 14}"``, by which one column is computed
        from another. They are public.
    weights : str, optional
        The column of survey weights, which is not drawn. It needs a declared upper bound: a record counts as its weight
        relative to that bound.
    given : mapping or str, optional
        What the rows that are drawn now must meet, see `Generator.sample`. All records are learned from.
    keep : sequence of str
        Columns to make up although their names or values look like names of people or free text. Without it, such a
        column raises an error if it is undeclared. The error is for you: it depends on the rows.
    person : str, optional
        The column that says which rows are of the same person, to protect people instead of rows; that of the schema by
        default. It is not learned. A ledger must be one for people: ``Ledger.grant(..., unit="person")``.
    rows_per_person : int or "bought", optional
        With a person column: how many rows of a person count. Of people with more, so many are drawn at random, which
        nobody learns. Noise is as many times as large. ``"bought"`` finds a number with a tenth of epsilon.
    people : int, optional
        Draw so many people with up to ``rows_per_person`` rows each, instead of rows. The person column then has a new
        number for each. One row and one pair of rows of each person are read, with the noise for a single row.
    declared_only : bool
        Whether to raise an error instead of buying.
    ledger : Ledger or path, optional
        Charged before anything is learned. By default the ledger of the table, if a budget was granted for it. False
        charges none: only for generators that are never released, such as the shadow sets of an attack.
    seed : int, optional
        Makes everything but the noise reproducible.
    insecure_seed : int, optional
        Makes the noise reproducible too: the result is then not private.
    progress : callable, optional
        Called with the share of the work that is done.

    Returns
    -------
    Release
        Of kind ``generator``, with the attributes of `Generator`: ``table`` has the rows, ``sample(n)`` draws more.

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.synthesize("nursery", epsilon=1, rows=1000)
    >>> release.table.frame.shape, release.sample(3).columns[-1]
    ((1000, 9), 'class')
    >>> print(release.spent)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """
    began = time.monotonic()
    epsilon, delta = real("epsilon", epsilon, above=0), check_delta(delta)
    for name, number in (("the seed", seed), ("the insecure seed", insecure_seed)):
        if number is not None:
            whole(name, number, least=0)
    if rows is not None:
        whole("the number of rows", rows, most=MOST_ROWS)
    chosen = method_of(method)
    chosen.prepare()
    is_public = isinstance(table, str) and table in datasets.TABLES and not Path(table).exists()
    condition = None if given is None else given_condition(given)
    given = _table(table, schema, is_public, person)
    owner = given.schema.person
    check_people(given.schema, rows_per_person, people)
    if people is not None:
        for name, option in (("rows", rows), ("weights", weights), ("given", condition)):
            if option is not None:
                raise OptionError(f"'{name}' is for drawing rows, and people are drawn", hint="leave it out")
    kept = _kept(keep, given)
    if not is_public:
        refuse_names(given, kept)
    usual = datasets.TARGETS.get(str(table)) if is_public else None
    wanted = target if target is not None else given.schema.target or usual
    for what, column in (("target", wanted), ("weights", weights)):
        if owner is not None and column == owner:
            raise OptionError(f"column '{owner}' cannot be both the person and the {what}")
    buys = not declared_only
    plain = Table.of(given, identifiers=given.schema.identifiers)  # the person is left out like others
    every = (
        describe_elsewhere(plain, buy_decimals=buys)
        or describe_file(plain, buy_decimals=buys)
        or Description.of(plain, buy_decimals=buys)
    )
    owners = None if owner is None else _owners(every, owner)
    every = every.without(given.schema.identifiers)
    check_delta(delta, every.rows if owners is None else owners.count)
    rules = Constraints.of([*given.schema.constraints, *Constraints.of(constraints).items])
    counted, every = _weights(weights, every)
    rules.check(every.described, wanted, condition)
    learned = every.without(rules.computed)
    label = _label(wanted, learned)
    _check(learned.described, label, wanted, declared_only=declared_only)
    buys_rows = rows_per_person == BOUGHT
    # Until it is bought, the plan is for one row; the noise grows with what is bought, and its cost does not.
    most = FindRowsPerPerson.CANDIDATES[0] if rows_per_person == BOUGHT else rows_per_person
    more = [] if people is None else [rows_of_a_person(most or 1)]
    plan = plan_of(
        chosen,
        [*learned.described, *more],
        label,
        epsilon,
        delta,
        scans=learned.scans,
        rows_per_person=most,
        buys_rows=buys_rows,
        people=people is not None,
    )
    book = _ledger(ledger, given)
    if book is not None:
        book.charge(plan.event, note="synthesis of a table", private=insecure_seed is None)
    report = progress or (lambda share: None)
    report(0.1)
    own = seed if seed is not None else insecure_seed
    learning, drawing = (np.random.default_rng(one) for one in np.random.SeedSequence(own).spawn(2))
    # Not the source of the sums: with a seed, all would draw the same noise.
    source, choosing, searching = (
        Source(insecure_seed=None if insecure_seed is None else insecure_seed ^ 2**bit) for bit in (128, 129, 130)
    )
    if buys_rows and owners is not None:
        most = plan.search.answer(owners.codes, searching)
        plan = replace(plan, rows_per_person=most)
    sums = plan.sums(Source(insecure_seed=insecure_seed))
    described, visits, further = learned, None, None
    try:
        if owners is not None and people is not None:
            visits = owners.draw(most or 1, choosing)
            described = learned.only(visits.first)
        elif owners is not None:
            chosen_rows = owners.at_most(most or 1, choosing)
            counted = None if counted is None else counted[chosen_rows]
            learned, owners = learned.only(chosen_rows), owners.only(chosen_rows)
            described = learned.only(owners.at_most(1, choosing))
        codings = described.estimate(plan.columns, sums, source)
        if label is not None and not codings[label].feature.domain:
            raise InputError(
                f"no class of the target '{wanted}' is frequent enough to be found at epsilon {epsilon:g}",
                hint="declare its classes as a domain, or leave out the target",
            )
        domain = rules.domain(
            (*codings, *(each.coding() for each in more)),
            label,
            (*every.described, *more),
            (*every.columns.names, *(each.name for each in more)),
        )
        if visits is None:
            model = chosen.learn(learned.records(domain, counted), sums, learning)
            count = rows if rows is not None else _ROWS if model.total is None else max(1, round(model.total))
            codes = draw_rows(model, domain, count, drawing, constraints=rules, given=condition)
            frame = domain.decode(codes)
        else:
            model, further = learn_people(chosen, domain, learned, visits, sums, learning)
            drawn = draw_people(model, further, domain, people or 1, drawing, rules)
            frame = frame_of_people(*drawn, domain, owner or "")
    except SfumatoError as error:
        how, hint = "spent" if book is None else "charged", error.hint
        asked = () if condition is None else condition.columns
        if isinstance(error, OptionError) and any(one.name in asked and one.bought for one in learned.described):
            hint = f"{hint}; a column that is declared is checked before anything is {how}"
        raise type(error)(f"{error.message}; epsilon {plan.spent.epsilon:.3g} was {how}", hint=hint) from error
    report(0.8)
    declared = _declared(given, wanted, rules, kept)
    library = _library(given)
    report(1.0)
    generator = Generator(
        table=Table(
            like(frame, library), drawn_schema(declared, domain, people=people is not None), layout=_layout(given)
        ),
        domain=domain,
        model=model,
        method=chosen,
        scans=learned.scans,
        plan=plan,
        declared=declared,
        private=insecure_seed is None,
        library=library,
        rows_per_person=most,
        further=further,
        options={
            **_options(table if is_public else None, rows, seed, insecure_seed, declared_only),
            "weights": weights,
            "constraints": rules.texts or None,
            "given": None if condition is None else str(condition),
            "rows_per_person": rows_per_person,
            "people": people,
        },
    )
    if is_public:
        provenance = Provenance(str(table), given.rows, None, {"public": True})
    else:
        provenance = Provenance.of(given.origin, None, public=False)
    return generator.release(provenance, time.monotonic() - began, charged=book is not None)


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Make a generator by a recipe, with new noise, from the data set that it names unless other data is given."""
    stated = {**recipe.options, **options}
    named, parameters = stated.pop("data", None), stated.pop("parameters", None)
    given = named if data is None else data
    if given is None:
        raise OptionError("the recipe does not name its data", hint="give the table")
    known = inspect.signature(synthesize).parameters
    if strange := sorted(stated.keys() - known.keys()):
        raise OptionError(f"the recipe has an unknown option '{strange[0][:40]}'", hint=did_you_mean(strange[0], known))
    if isinstance(given, str) and given in datasets.TABLES and not Path(given).exists():
        schema = None
    else:
        schema = recipe.schema if recipe.schema.columns else None
    method = method_of(stated.pop("method", None), parameters)
    return synthesize(given, method=method, schema=stated.pop("schema", schema), **stated)


def _options(data: Any, rows: Any, seed: Any, insecure_seed: Any, declared_only: bool) -> dict[str, Any]:
    """Return what the recipe says beside the method, its cost and the target."""
    stated = {"data": data, "rows": rows, "seed": seed, "insecure_seed": insecure_seed}
    return {**stated, "declared_only": declared_only or None}


def _owners(every: Description, person: str) -> People:
    """Return the people of all rows."""
    if not every.scans:
        raise InputError(
            "which rows of a person count is drawn at random, but these rows can only be counted where they are",
            hint="fetch the table, or make the person column an identifier, to protect rows",
        )
    return People.of(every.values(person))


def _table(given: Any, schema: Any, is_public: bool, person: str | None) -> Table:
    """Return the table with what is declared of it; its rows do not decide how they are read."""
    if is_public:
        if schema is not None:
            raise OptionError(f"'{given}' is built in: what is public of it is known", hint="leave out the schema")
        return Table.of(datasets.without_split(datasets.TABLES[given]()), person=person)
    if isinstance(given, str) and not Path(given).exists() and "://" not in given:
        close = did_you_mean(given, datasets.BUILT_IN)
        if close.startswith("did you mean"):
            raise OptionError(f"there is no file '{given}'", hint=close)
    data = read(given, inferred=False) if isinstance(given, str | Path) else given
    return Table.of(Table.of(data, schema=schema).as_declared(), person=person)


def _weights(name: str | None, every: Description) -> tuple[Any, Description]:
    """Return the weights of the records, and the description without them."""
    if name is None:
        return None, every
    if name not in every.columns.names:
        raise ColumnError(f"there is no column '{name}' of weights", hint=did_you_mean(name, every.columns.names))
    return every.weights(name), every.without([name])


def _label(target: str | None, learned: Description) -> int | None:
    """Return the position of the target."""
    columns = learned.columns
    if target is None:
        return None
    if target not in columns.names:
        raise ColumnError(f"there is no column '{target}' to be the target", hint=did_you_mean(target, columns.names))
    return columns.names.index(target)


def _check(described: Sequence[Described], label: int | None, target: str | None, *, declared_only: bool) -> None:
    """Raise an error if the columns do not fit, before anything is charged."""
    if label is not None and described[label].is_number:
        raise InputError(
            f"the target '{target}' is a number, but a target must be a category",
            hint="declare its domain, or leave out the target: the column is then drawn like all others",
        )
    if label is not None and len(described) == 1:
        raise InputError(f"the table has no column beside the target '{target}'")
    missing = [one for one in described if one.bought]
    if declared_only and missing:
        what, verb = ("bounds", "are") if missing[0].is_number else ("domain", "is")
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise SchemaError(
            f"the {what} of column '{missing[0].name}'{more} {verb} not declared, and nothing may be bought",
            hint="declare it in the schema, or with --bounds or --domain; or let a part of epsilon pay for it",
        )


def _ledger(given: Ledger | str | Path | Literal[False] | None, table: Table) -> Ledger | None:
    """Return the ledger to charge: the given one, or that of the table if a budget was granted for it."""
    if given is False:
        return None
    return Ledger.find(table) if given is None else Ledger.of(table, given)


def _kept(keep: Sequence[str], table: Table) -> frozenset[str]:
    """Return the columns that are made up on purpose."""
    if isinstance(keep, str):
        raise OptionError("'keep' must be a list of columns, got a text", hint=f"keep=['{keep[:40]}']")
    return frozenset(table.schema[name].name for name in keep)


def _declared(table: Table, target: str | None, rules: Constraints, kept: Collection[str]) -> Schema:
    """Return what is declared of the columns, with no roles but identifiers, kept columns and the target."""
    roles = {one: one for one in (Role.IDENTIFIER, Role.PERSON, Role.KEPT)}
    columns = (
        Column(
            name=one.name,
            kind=Kind.AUTO if one.inferred else one.kind,
            domain=one.domain,
            bounds=one.bounds,
            dates=one.dates,
            step=one.step,
            role=roles.get(one.role, Role.KEPT if one.name in kept else Role.OTHER),
        )
        for one in table.schema.columns
    )
    return Schema(columns, rules.texts).with_roles(target=target)


def _layout(table: Table) -> File | None:
    """Return the text file in whose declared format the rows are written, if they came from one."""
    file = table.file
    return None if file is None or not file.is_text else replace(file, inferred=False)


def _library(table: Table) -> str:
    """Return the kind of frame that the rows came in."""
    if table.is_lazy:
        return "polars"
    kind = table.implementation
    return "pandas" if kind.is_pandas() else "pyarrow" if kind.is_pyarrow() else "polars"

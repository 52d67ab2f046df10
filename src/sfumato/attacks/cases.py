"""What is attacked: a release with its original, a model trained for the purpose, or a table of any origin.

Every attack compares members with non-members. Where only the original of a release is given, the release's own recipe
is run again on a random half of the rows, so that the other half has never been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.base import Records
from sfumato.attacks.predictions import call
from sfumato.attacks.procedures import RunRecipe, people_of, records_of
from sfumato.attacks.protections import procedure_of
from sfumato.attacks.targets import ModelTarget, SyntheticTarget, TableTarget
from sfumato.data import datasets
from sfumato.data.coding import canonical_text
from sfumato.data.release import Release
from sfumato.data.schema import Role, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.measures.people import keys_of
from sfumato.measures.people import people_of as repeating_people

__all__ = ["Case", "Work", "labelled", "model_case", "release_case", "rows_of", "table_case"]

_FEWEST = 8
"""Rows that can be divided into members and non-members."""
_IMAGES = ("mnist", "pneumonia")
_ROWS_OF_A_CLASS = 4
"""Fewer, on average, are numbers or names, and not classes."""


@dataclass(frozen=True)
class Work:
    """How much work is done for an attack: see `attack`."""

    seed: int
    references: int
    processes: int | None
    progress: Callable[[float], None]

    def model_target(self, model: Any, **known: Any) -> ModelTarget:
        """Return a model as a target."""
        return ModelTarget(model, references=self.references, processes=self.processes, progress=self.progress, **known)


@dataclass(frozen=True)
class Case:
    """A target, with the records that it was made from, and others."""

    target: Any
    members: Records | None
    nonmembers: Records | None
    facts: Mapping[str, Any]


def release_case(
    release: Release,
    name: str,
    source: Any,
    control: Any,
    population: Any,
    target: str | None,
    roles: Mapping[str, Any],
    work: Work,
) -> Case:
    """Return the case of a release; without a control, it is made again from half of the rows of its source."""
    if release.kind in ("model", "federated-model"):
        return _released_model(release, name, source, control, target, roles, work)
    if release.kind == "image-generator":
        raise InputError(
            "attacks on synthetic images are not known",
            hint="sf.evaluate looks for copies of real images among synthetic ones",
        )
    if release.kind not in ("table", "generator"):
        raise InputError(
            f"a release of kind '{release.kind}' has neither records nor a model that an attack could ask",
            hint="its claim can be audited: --audit, or sfumato.attacks.audit_function",
        )
    person, roles = _person(source, release, roles)
    schema = Table.of(release.table, **roles).schema
    kept = [one for one in release.recipe.schema.columns if one.name in schema.names or one.role is Role.PERSON]
    procedure = RunRecipe(replace(release.recipe, schema=Schema(kept)))
    read = _Reading(person, lambda table, name: _rows(table, name, schema, "the release"))
    members, nonmembers, again = _both(source, control, read, work.seed)
    frame = release.table.to_polars()
    if again and members is not None:
        frame = call("the recipe of the release", procedure, members, work.seed)
        frame = frame.sort(schema.names) if release.kind == "table" else frame  # it was shuffled
    others = _population(population, schema)
    # Released quasi-identifiers no longer have their hierarchies, and their labels mean nothing without them.
    public = {one.name: one for one in kept}
    known = Schema(replace(public.get(one.name, one), role=one.role) for one in schema.columns)
    made = (TableTarget if release.kind == "table" else SyntheticTarget)(
        frame,
        known,
        procedure=procedure,
        population=others,
        person=person,
        references=work.references,
        processes=work.processes,
        progress=work.progress,
    )
    facts = {"name": name, "method": release.method, "guarantees": list(map(str, release.guarantees))}
    how = _how(source, control, again, members)
    return Case(made, members, nonmembers, _facts(facts, made, members, nonmembers, how))


def _person(source: Any, release: Release | None, roles: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the person column that the user, the source or a release names, and all other roles."""
    named, others = roles.get("person"), {name: value for name, value in roles.items() if name != "person"}
    if named is None and isinstance(source, Table):
        named = source.schema.person
    protected = None if release is None else release.recipe.schema.person
    if protected is not None and named not in (None, protected):
        raise OptionError(
            f"the release protects the people of column '{protected}', so people of '{named}' are not attacked",
            hint="leave the person column out",
        )
    return protected if named is None else named, others


def _released_model(
    release: Release,
    name: str,
    source: Any,
    control: Any,
    target: str | None,
    roles: Mapping[str, Any],
    work: Work,
) -> Case:
    model, recipe = release.model, release.recipe
    if not hasattr(model, "classes_"):
        raise InputError("this model predicts numbers, and attacks on models need classes")
    predicted = target or recipe.options.get("target") or recipe.schema.target
    procedure, (person, roles) = RunRecipe(recipe), _person(source, release, roles)
    members, nonmembers, again = _both(
        source, control, lambda data: labelled(data, predicted, model, person), work.seed
    )
    how = _how(source, control, again, members)
    if again and members is not None:
        model = call("the recipe of the release", procedure, members, work.seed)
    elif members is not None and "test" not in recipe.options:
        how += (
            " Some of the original rows were held out for tests when the model was trained, and count as members here."
        )
    sensitive = [one for one in (*release.schema.sensitive, *roles["sensitive"]) if one != predicted]
    made = work.model_target(model, procedure=procedure, sensitive=sensitive)
    facts = {"name": name, "model": release.method, "guarantees": list(map(str, release.guarantees))}
    return Case(made, members, nonmembers, _facts(facts, made, members, nonmembers, how))


def model_case(data: Any, target: str | None, model: Any, protect: Any, roles: Mapping[str, Any], work: Work) -> Case:
    """Return the case of a model that is trained on a random half of a table."""
    table, name = _table(data)
    if name in datasets.TABLES:  # which names the rows for training, and quasi-identifiers for anonymizing alone
        table = datasets.without_split(table)
        others = [one if one.role is Role.TARGET else replace(one, role=Role.OTHER) for one in table.schema.columns]
        table = Table(table.to_polars(), Schema(others))
    table = Table.of(table, target=target, **roles)
    known = [replace(one, inferred=False) for one in table.schema.columns]  # nothing is released, so rows may decide
    table = Table(table.to_polars(), Schema(known))
    predicted = table.schema.target or datasets.TARGETS.get(name)
    if predicted is None:
        raise OptionError("the column that the model predicts is not named", hint="name it with --target")
    records = records_of(table, predicted)
    members, nonmembers = _halves(records, work.seed)
    classes = np.unique(np.asarray(records.labels))
    if _ROWS_OF_A_CLASS * len(classes) > len(records):
        raise InputError(
            f"'{predicted}' has {len(classes):,} different values in {len(records):,} rows, and attacks need classes"
        )
    procedure = procedure_of(model, protect, table, predicted)
    fitted = call("the training", procedure, members, work.seed)
    sensitive = [name for name in table.schema.sensitive if name != predicted]
    made = work.model_target(fitted, classes=classes, procedure=procedure, sensitive=sensitive)
    shown = model if isinstance(model, str) else type(model).__name__
    half = "rows" if records.people is None else "people"
    how = (
        f"The model was trained on a random half of the {half} of {name}, and attacked; the other half is the control."
    )
    facts = {"name": name, "target": predicted, "model": shown, "protect": None if protect is None else str(protect)}
    said = [*procedure.notes, *_repeating(table)]
    notes = {"notes": said} if said else {}
    return Case(made, members, nonmembers, _facts({**facts, **notes}, made, members, nonmembers, how))


def _repeating(table: Table) -> list[str]:
    """Say that an identifier repeats, so that rows of the same person may be among members and others."""
    people = None if table.schema.person is not None else repeating_people(table, keys_of(table))
    if people is None or not people.repeat:
        return []
    return [
        f"{people.in_words}, and rows are attacked: members and others may be the same people (name the column with "
        "person / --person)"
    ]


def table_case(data: Any, kind: str, source: Any, control: Any, population: Any, roles: Mapping[str, Any]) -> Case:
    """Return the case of a table that is not a release of ours; how it was made is not known."""
    table, name = _table(data)
    person, roles = _person(source, None, roles)
    table = Table.of(table, **roles, person=person if person in table.schema.names else None)
    read = _Reading(person, lambda original, of: _rows(original, of, table.schema, "the table"))
    members, nonmembers, _ = _both(source, control, read, None)
    frame, others = table.to_polars(), _population(population, table.schema)
    kinds = SyntheticTarget if kind == "synthetic" else TableTarget
    made = kinds(frame, table.schema, population=others, person=person)
    how = _how(source, control, False, members)
    return Case(made, members, nonmembers, _facts({"name": name}, made, members, nonmembers, how))


# --- records --------------------------------------------------------------------------------------


def _both(
    source: Any, control: Any, read: Callable[[Any], Records], seed: int | None
) -> tuple[Records | None, Records | None, bool]:
    """Return members and non-members, and whether the release must be made again from the members."""
    if source is None:
        return None, None, False
    members = read(source)
    if control is not None:
        return members, _alike(read(control), members), False
    return (members, None, False) if seed is None else (*_halves(members, seed), True)


def _halves(records: Records, seed: int) -> tuple[Records, Records]:
    """Divide people at random into two halves of the same size; each has all rows of its people."""
    people = records.persons
    if people < _FEWEST:
        unit = "rows" if records.people is None else "people"
        raise InputError(f"an attack needs at least {_FEWEST} {unit}, half of them as a control, and got {people}")
    order = np.random.default_rng((seed, 1)).permutation(people)
    chosen = order[: people // 2], order[people // 2 : people // 2 * 2]
    first, second = (records.take(np.sort(records.of_people(one))) for one in chosen)
    return first, second


class _Reading:
    """Read an original, with the people of its rows."""

    def __init__(self, person: str | None, rows: Callable[[Table, str], Records]) -> None:
        self.person, self.rows = person, rows

    def __call__(self, data: Any) -> Records:
        table, name = with_person(data, self.person)
        return replace(self.rows(table, name), people=people_of(table))


def with_person(data: Any, person: str | None) -> tuple[Table, str]:
    """Return a table and its name, with the role of its person column."""
    table, name = _table(data)
    if person is None:
        return table, name
    if person not in table.schema.names:
        raise ColumnError(
            f"{name} lacks the column '{person}', which says whose each row is",
            hint=did_you_mean(person, table.schema.names),
        )
    return Table.of(table, person=person), name


def _table(data: Any) -> tuple[Table, str]:
    """Return a table and its name."""
    built_in = isinstance(data, str) and not Path(data).exists()
    if built_in and data == "mnist":
        return _pixels(datasets.mnist()), "mnist"
    if built_in and data in datasets.TABLES:
        return datasets.TABLES[data](), str(data)
    if built_in and (close := did_you_mean(str(data), datasets.BUILT_IN)).startswith("did you mean"):
        raise OptionError(f"there is no file '{data}'", hint=close)
    if isinstance(data, datasets.Images):
        return _pixels(data), "the images"
    table = Table.of(data)
    return table, table.origin.name if table.origin else "the table"


def _pixels(images: datasets.Images) -> Table:
    """Return images as a table with a column per pixel."""
    shown = np.concatenate([images.train_images, images.test_images])
    flat = shown.reshape(len(shown), -1)
    labels = np.concatenate([images.train_labels, images.test_labels])
    frame = pl.DataFrame(flat, schema=[f"pixel{number}" for number in range(flat.shape[1])])
    return Table.of(frame.with_columns(label=pl.Series(labels)), target="label")


def _rows(table: Table, name: str, schema: Schema, of: str) -> Records:
    """Return the rows of an original with the columns of the release."""
    wanted = [one.name for one in schema.columns if one.role is not Role.PERSON]  # released as tokens, if at all
    _refuse_lacking(name, table, wanted, of)
    return Records(table.to_polars().select(wanted))


def rows_of(data: Any, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows of an original with the columns that a generator draws."""
    table, name = _table(data)
    _refuse_lacking(name, table, names, "the generator")
    return table.to_polars().select(names)


def _refuse_lacking(name: str, table: Table, columns: Sequence[str], of: str) -> None:
    for column in columns:
        if column not in table.schema.names:
            raise ColumnError(
                f"{name} lacks the column '{column}' of {of}", hint=did_you_mean(column, table.schema.names)
            )


def labelled(data: Any, target: str | None, model: Any, person: str | None = None) -> Records:
    """Return the records that a released model can be asked about, with labels like its classes, and their people."""
    if isinstance(data, str) and data in _IMAGES and not Path(data).exists():
        data = datasets.mnist() if data == "mnist" else datasets.pneumonia()
    if isinstance(data, datasets.Images):
        images = np.concatenate([data.train_images, data.test_images])
        return Records(images, np.concatenate([data.train_labels, data.test_labels]))
    if target is None:
        raise OptionError("the column that the model predicts is not known", hint="name it with --target")
    table, name = with_person(data, person)
    if model.features_ is None:
        raise InputError("the model was trained on images, and the source is a table", hint="such as --source mnist")
    _refuse_lacking(name, table, model.features_.names, "the model")
    records = records_of(table, target)
    labels = np.asarray(records.labels)
    if np.asarray(model.classes_).dtype.kind in "OU" and labels.dtype.kind not in "OU":
        labels = np.array([canonical_text(one) for one in labels.tolist()])
    return Records(records.frame.select(model.features_.names), labels, records.people)


def _alike(control: Records, source: Records) -> Records:
    """Return the control with the columns and types of the source."""
    if not isinstance(control.rows, pl.DataFrame) or not isinstance(source.rows, pl.DataFrame):
        return control
    wanted, got = source.rows.schema, control.rows.schema
    if missing := [name for name in wanted if name not in got]:
        raise ColumnError(f"the control lacks the column '{missing[0]}' of the source")
    try:
        return replace(control, rows=control.rows.select(pl.col(name).cast(kind) for name, kind in wanted.items()))
    except pl.exceptions.PolarsError:
        other = next((name for name in wanted if wanted[name] != got[name]), "")
        raise ColumnError(
            f"column '{other}' is {wanted[other]} in the source and {got[other]} in the control",
            hint="both must be written alike",
        ) from None


def _population(data: Any, schema: Schema) -> pl.DataFrame | None:
    """Return the rows of everybody, with the quasi-identifiers of the release."""
    if data is None:
        return None
    table, _ = _table(data)
    _refuse_lacking("the population", table, schema.quasi, "the release")
    return table.to_polars()


# --- facts ----------------------------------------------------------------------------------------


def _how(source: Any, control: Any, again: bool, members: Records | None) -> str:
    """Say in words what was attacked, and what it is compared with."""
    people = members is not None and members.people is not None
    if source is None:
        return (
            "Only the release was given. Attacks that need its original, or records that it has never seen, were not "
            "run."
        )
    if again:
        half = "people, with all of their rows," if people else "original rows,"
        return (
            f"The recipe of the release was run again on a random half of the {half} and what it made was attacked; "
            "the other half is the control. The release itself was not attacked."
        )
    if control is None:
        return "The release itself was attacked. Attacks that need records that it has never seen were not run."
    which = "people of the original" if people else "original rows"
    return f"The release itself was attacked. Members are the {which}, non-members those of the control."


def _facts(
    facts: dict[str, Any], target: Any, members: Records | None, nonmembers: Records | None, how: str
) -> dict[str, Any]:
    """Return what a report says about the target; a model with its accuracies."""
    accuracies = [
        target.accuracy(records) if records is not None and target.kind == "model" else None
        for records in (members, nonmembers)
    ]
    sizes = {
        "members": None if members is None else members.persons,
        "nonmembers": None if nonmembers is None else nonmembers.persons,
    }
    if members is not None and nonmembers is not None and members.people is not None:
        how += f" People are attacked: the members have {len(members):,} rows, the others {len(nonmembers):,}."
    scores = dict(zip(("train_accuracy", "test_accuracy"), accuracies, strict=True))
    return {**facts, **({} if target.kind == "model" else {"rows": target.rows}), **scores, **sizes, "how": how}

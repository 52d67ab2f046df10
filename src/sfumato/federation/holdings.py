"""The data of a federation on one machine: a data set split among holders, or a file of each holder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.people import units_of
from sfumato.data import datasets
from sfumato.data.io.images import are_images, image_table, read_images
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import whole
from sfumato.errors import FileError, InputError, OptionError, SchemaError, SfumatoError
from sfumato.federation.coding import SCALE, Coding
from sfumato.federation.simulation import names_of
from sfumato.learners.options import Split
from sfumato.learners.training.split import Material, material_of, of_others, with_people

__all__ = ["IMAGE_SETS", "Holdings", "check_name", "holdings_of", "read_holder"]

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]

IMAGE_SETS = {"mnist": (10, (0.1307, 0.3081)), "pneumonia": (2, SCALE)}
"""The built-in sets of images: the number of their classes, and the mean and deviation by which they are normalised."""
_FORMATS = (".csv", ".tsv", ".parquet", ".jsonl", ".npz")


@dataclass(frozen=True, eq=False)
class Holdings:
    """The samples of every holder, and those to test on.

    Attributes
    ----------
    name : the name of the data
    coding : how records become samples
    parts : the samples of each holder, by name
    test : the samples to score models on; None if there are none
    schema : the declared schema of a table
    public : whether all records are from a built-in public data set
    origin : the file of the data, if there is one file
    tables : the table of each holder, where it has one of its own
    people : whose each sample of a holder is, by name, where a person column is declared
    """

    name: str
    coding: Coding
    parts: Mapping[str, Samples]
    test: Samples | None
    schema: Schema
    public: bool = False
    origin: Path | None = None
    tables: Mapping[str, Table] | None = None
    people: Mapping[str, NDArray[np.int64]] | None = None

    @property
    def rows(self) -> int:
        """The number of samples of all holders."""
        return sum(len(targets) for _, targets in self.parts.values())

    @property
    def pooled(self) -> Samples:
        """All samples together, for a comparison."""
        inputs, targets = zip(*self.parts.values(), strict=True)
        return np.concatenate(inputs), np.concatenate(targets)


def holdings_of(
    data: Any,
    *,
    clients: int | None = None,
    target: str | None = None,
    schema: Schema | None = None,
    test: Any = None,
    holdout: float = 0.2,
    samples: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    key: bytes | None = None,
    person: str | None = None,
) -> Holdings:
    """Return the samples of every holder.

    A data set, a table or images are split at random among ``clients``; a mapping or a folder has one of each holder.
    ``key`` is the secret by which rows that are not public are held out. With a ``person`` column, by default that of
    the schema, a person is at one holder of a table that is split, and in one of its parts for training and testing.

    Examples
    --------
    >>> found = holdings_of("nursery", target="class", clients=3)
    >>> list(found.parts), found.public
    (['holder-0001', 'holder-0002', 'holder-0003'], True)
    """
    if isinstance(data, str | Path) and Path(data).is_dir():
        data = files_in(Path(data))
    if isinstance(data, Mapping):
        if clients not in (None, len(data)):
            raise OptionError(f"there is data of {len(data)} holders, but clients is {clients}", hint="leave it out")
        return _of_holders(data, target, schema, test, holdout, classes, key, person)
    count = whole("the number of clients", 3 if clients is None else clients)
    split = Split(test=test, holdout=holdout, seed=seed, samples=samples)
    material = _material(data, target, schema, split, key, person)
    coding = _coding(material, getattr(data, "classes", None) or classes)
    inputs, targets = coding.samples(material.train, material.train_target)
    people = _people(coding, material)
    units = np.arange(len(targets)) if people is None else units_of(people)
    there = int(units.max(initial=-1)) + 1
    if there < count:
        what = "records" if people is None else "people"
        raise InputError(f"{there:,} {what} cannot be split among {count:,} clients")
    chosen = _split(units, np.array_split(np.random.default_rng(seed).permutation(there), count))
    parts = [(inputs[one], targets[one]) for one in chosen]
    tested = coding.samples(material.test, material.test_target)
    return Holdings(
        material.name,
        coding,
        dict(zip(names_of(count), parts, strict=True)),
        tested if len(tested[1]) else None,
        coding.schema if material.is_public else _declared(material.schema, coding.target),
        material.is_public,
        None if material.whole is None else material.whole.origin,
        people=None if people is None else dict(zip(names_of(count), (people[one] for one in chosen), strict=True)),
    )


def _split(units: NDArray[np.int64], parts: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Return the rows of each part, given the number of what each row belongs to and these numbers in each part.

    Examples
    --------
    >>> [rows.tolist() for rows in _split(np.array([0, 1, 0, 2]), [np.array([2, 0]), np.array([1])])]
    [[3, 0, 2], [1]]
    """
    place = np.empty(sum(map(len, parts)), dtype=np.int64)
    place[np.concatenate(parts)] = np.arange(len(place))
    order = np.argsort(place[units], kind="stable")
    return np.split(order, np.searchsorted(place[units][order], np.cumsum([len(one) for one in parts])[:-1]))


def files_in(folder: Path) -> dict[str, Path]:
    """Return the file of each holder in a folder, by the name of the file without its ending."""
    found = {one.stem: one for one in sorted(folder.iterdir()) if one.suffix in _FORMATS and one.is_file()}
    if not found:
        raise FileError(f"'{folder}' holds no file of a holder", hint=f"one file each: {', '.join(_FORMATS)}")
    for name in found:
        check_name(name)
    return found


def check_name(name: str) -> str:
    """Refuse a name of a holder that cannot be the name of a folder.

    Examples
    --------
    >>> check_name("north-clinic")
    'north-clinic'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name) or name == "server":
        raise OptionError(
            f"the name of a holder must be up to 40 letters, digits, - and _, and not 'server', got {name[:60]!r}"
        )
    return name


def read_holder(
    path: Path, coding: Coding, person: str | None = None
) -> tuple[Samples, Table, NDArray[np.int64] | None]:
    """Read the file of one holder: its samples, coded as all holders have agreed, its records, and whose they are.

    Without a ``person`` column, nothing is said of people.
    """
    if coding.features is None:
        images = read_images(path)
        return coding.samples(images.train_images, images.train_labels), image_table(images), None
    table = read(path, inferred=False)
    whose = None if person is None else coding.people(table, person)
    return coding.samples(table), Table.of(table, person=person), whose


def _of_holders(
    data: Mapping[str, Any],
    target: str | None,
    schema: Schema | None,
    test: Any,
    holdout: float,
    classes: int | None,
    key: bytes | None,
    person: str | None,
) -> Holdings:
    if not data:
        raise OptionError("there is no holder")
    materials = dict[str, Material]()
    for name, one in data.items():
        check_name(name)
        try:
            materials[name] = _material(one, target, schema, Split(holdout=holdout), key, person)
            first = next(iter(materials.values()))
            if materials[name].person != first.person:
                own, others = (repr(each.person) if each.person else "none" for each in (materials[name], first))
                raise SchemaError(f"its person column is {own}, and that of the others {others}")
        except SfumatoError as error:
            raise type(error)(f"holder '{name}': {error.message}", hint=error.hint) from error
    first = next(iter(materials.values()))
    coding = _coding(first, classes)
    parts, tests, tables = dict[str, Samples](), list[Samples](), dict[str, Table]()
    people = dict[str, NDArray[np.int64]]()
    for name, one in materials.items():
        try:
            parts[name] = coding.samples(one.train, one.train_target)
            if not len(parts[name][1]):
                raise InputError(f"no record has one of the declared classes of '{coding.target}'")
            tests.append(coding.samples(one.test, one.test_target))
            if (whose := _people(coding, one)) is not None:
                people[name] = whose
        except SfumatoError as error:
            raise type(error)(f"holder '{name}': {error.message}", hint=error.hint) from error
        if one.whole is not None:
            tables[name] = one.whole
    tested = (np.concatenate([one for one, _ in tests]), np.concatenate([one for _, one in tests]))
    if test is not None:
        tested = coding.samples(_of_nobody_here(test, first.person, tables))
    found, whole = _declared(first.schema, coding.target), tested if len(tested[1]) else None
    return Holdings("holders", coding, parts, whole, found, tables=tables, people=people or None)


def _of_nobody_here(test: Any, person: str | None, tables: Mapping[str, Table]) -> Any:
    """Return the test rows without those of people who are at a holder: everyone is in one part at most."""
    given = read(test, inferred=False) if isinstance(test, str | Path) else test
    if person is None:
        return given
    table = Table.of(given, person=person).as_declared()
    frame = with_people(table.to_polars(), table)
    for one in tables.values():
        frame = of_others(frame, with_people(one.to_polars(), one), person)
    return Table(frame, table.schema)


def _people(coding: Coding, material: Material) -> NDArray[np.int64] | None:
    """Return whose each sample is; None without a person column."""
    return None if material.person is None else coding.people(material.train, material.person, material.train_target)


def _material(
    data: Any, target: str | None, schema: Schema | None, split: Split, key: bytes | None, person: str | None
) -> Material:
    named = isinstance(data, str) and not Path(data).exists()
    if named and data == "pneumonia":
        found = material_of(datasets.pneumonia(), person=person, split=split, key=key)
        return replace(found, name="pneumonia", is_public=True)
    if schema is not None and not named:
        data = Table.of(read(data, inferred=False) if isinstance(data, str | Path) else data, schema=schema)
    if are_images(data) and isinstance(data, str | Path) and not named:
        data = read_images(data)
    return material_of(data, target=target, person=person, split=split, key=key)


def _coding(material: Material, classes: int | None) -> Coding:
    if material.are_images:
        known, scale = IMAGE_SETS.get(material.name, (None, SCALE))
        classes = classes or known
        if classes is None:
            raise SchemaError("the number of classes of the images is not declared", hint="give classes=N, --classes N")
        return Coding.of_images(material.train, classes, scale)
    assert material.whole is not None
    return Coding.of_table(material.train, material.schema[material.target], public=material.is_public)


def _declared(schema: Schema, target: str) -> Schema:
    """Return the declared schema without hierarchies, and with no roles but identifiers and the target."""
    if not schema.columns:
        return schema
    kept = (Role.IDENTIFIER, Role.PERSON)
    columns = (
        Column(
            name=one.name,
            kind=one.kind,
            domain=one.domain,
            bounds=one.bounds,
            role=one.role if one.role in kept else Role.OTHER,
        )
        for one in schema.columns
    )
    return Schema(columns).with_roles(target=target)

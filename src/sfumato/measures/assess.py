"""Assess a table: count once, measure all nine models, check the required guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.column_audit import accounted
from sfumato.data.io.source import File
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import EngineName, reduce
from sfumato.engines.engine import Engine, Progress
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, InputError, OptionError, SfumatoError, did_you_mean, one_of
from sfumato.measures.assessment import Assessment, Measures, Profile, Verdict, round_shares
from sfumato.measures.classes import ClassCounts, Missing, class_counts, without_missing, without_suppressed
from sfumato.measures.distance import Distance
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.universe import universe
from sfumato.measures.models import MODELS, Absent, DeltaDisclosure, KAnonymity, TCloseness, as_guarantees
from sfumato.measures.people import People, keys_of, people_of, refuse_repeated, refuse_two_units
from sfumato.measures.risk.journalist import delta_presence, journalist_risk
from sfumato.measures.risk.population import population_uniques
from sfumato.measures.risk.reidentification import (
    MOST_SUBSETS,
    THRESHOLD,
    column_risks,
    number_of_subsets,
    reidentification_risk,
    subset_risks,
)
from sfumato.measures.risk.reidentification import preset as find_preset
from sfumato.measures.risk.safe_harbor import safe_harbor
from sfumato.measures.risk.unicity import unicity

__all__ = ["MOST_ROWS", "SAFE_HARBOR", "Classes", "assess", "check", "measure", "profiles_of"]

SAFE_HARBOR = "hipaa"
"""The preset that is a list of identifiers instead of a threshold; see `safe_harbor`."""

MOST_ROWS = 1_000_000
"""The most rows of a table that is read again just to profile its columns."""


class Classes(StrEnum):
    """The columns that define an equivalence class when there are several sensitive attributes.

    Examples
    --------
    >>> Classes("qi")
    <Classes.QI: 'qi'>
    """

    QI = "qi"
    """The quasi-identifiers."""
    QI_AND_OTHER_SENSITIVE = "qi+other-sensitive"
    """The quasi-identifiers and the other sensitive attributes, which an attacker may know too."""


def assess(
    data: Any,
    *,
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    person: str | None = None,
    keep: Sequence[str] = (),
    rows_are_units: bool = False,
    schema: Schema | str | Path | None = None,
    require: str | ClassGuarantee | Sequence[str | ClassGuarantee] = (),
    missing: Missing | str = Missing.VALUE,
    classes: Classes | str = Classes.QI,
    distance: Distance | str = Distance.AUTO,
    absent: Absent | str = Absent.IGNORE,
    suppressed: str | None = "*",
    threshold: float | None = None,
    population: Any = None,
    population_size: int | None = None,
    preset: str | None = None,
    detail: bool = False,
    engine: Engine | str = EngineName.AUTO,
    progress: Progress | None = None,
) -> Assessment:
    """Measure how anonymous a table is.

    Parameters
    ----------
    data : Table, frame or path
        For a table in a database, see `read`.
    qi : sequence of str
        The quasi-identifiers; those of the schema by default.
    sensitive : sequence of str
        The sensitive attributes; those of the schema by default.
    identifiers : sequence of str
        The columns that identify a person by themselves, which must not be released.
    person : str, optional
        The column that says which rows are of the same person: people are then counted, not rows. That of the schema
        by default. A row without a person counts as a person of its own.
    keep : sequence of str
        Columns to release unchanged although they look like identifiers or free text, or reproduce a quasi-identifier
        or sensitive column. Such a column without a role is an error.
    rows_are_units : bool
        Whether guarantees may count rows where people have several and no person column is named; otherwise they are
        refused.
    schema : Schema or path, optional
        The roles and the public facts of the columns.
    require : str, ClassGuarantee or sequence of them
        The guarantees to check, such as ``"k=10,l=3"``.
    missing : {"value", "wildcard", "drop"}
        The meaning of a missing value; see `Missing`.
    classes : {"qi", "qi+other-sensitive"}
        The columns that define a class when there are several sensitive attributes; see `Classes`.
    distance : {"auto", "equal", "ordered", "scaled", "hierarchical"}
        The distance between sensitive values for t-closeness; see `Distance`.
    absent : {"ignore", "infinite"}
        How delta-disclosure treats a value that is absent from a class; see `Absent`.
    suppressed : str or None
        The mark of suppression. A row in which every quasi-identifier is this mark is in no class.
    threshold : float, optional
        The risk above which a record counts as at risk; 0.09 by default.
    population : Table, frame or path, optional
        The population that the table is a sample of, with the same quasi-identifiers: for the
        journalist's risk and delta-presence.
    population_size : int, optional
        The number of people in the population: for the estimated number of population uniques.
    preset : {"ema", "health-canada", "hipaa"}, optional
        Published rules: a threshold with the k that keeps it, or the Safe Harbor check.
    detail : bool
        Whether to measure which columns, and which sets of up to three, single people out, and how many values each
        column has.
    engine : {"auto", "memory", "duckdb", "sql", "spark"} or Engine
        The engine that counts the rows; by default where they are. See `EngineName`.
    progress : callable, optional
        A callback for the fraction of the rows that has been counted.

    Examples
    --------
    >>> import sfumato as sf
    >>> result = sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease"])
    >>> result.k, result.l
    (2, 1)
    >>> result.witnesses["l"].size
    2
    """
    table = Table.of(data, schema=schema, qi=qi, sensitive=sensitive, identifiers=identifiers, person=person, keep=keep)
    people = None
    refuse_two_units(table, rows_are_units)
    if table.schema.quasi:
        table = accounted(table)
    if table.schema.quasi and table.schema.person is None:
        people = people_of(
            table,
            keys_of(table),
            table.schema.quasi,
            missing=one_of(Missing, missing, "missing"),
            suppressed=suppressed,
        )
        asked = as_guarantees(require) if require or not isinstance(require, str) else []
        limit = [preset] if preset and preset != SAFE_HARBOR else []
        refuse_repeated(people, [*asked, *limit], rows_are_units)
    measured = measure(
        table,
        require=require,
        missing=missing,
        classes=classes,
        distance=distance,
        absent=absent,
        suppressed=suppressed,
        threshold=threshold,
        population=population,
        population_size=population_size,
        preset=preset,
        detail=detail,
        engine=engine,
        progress=progress,
    )
    return measured if people is None else replace(measured, people=people)


def measure(
    table: Table,
    *,
    require: str | ClassGuarantee | Sequence[str | ClassGuarantee] = (),
    missing: Missing | str = Missing.VALUE,
    classes: Classes | str = Classes.QI,
    distance: Distance | str = Distance.AUTO,
    absent: Absent | str = Absent.IGNORE,
    suppressed: str | None = "*",
    threshold: float | None = None,
    population: Any = None,
    population_size: int | None = None,
    preset: str | None = None,
    detail: bool = False,
    engine: Engine | str = EngineName.AUTO,
    progress: Progress | None = None,
) -> Assessment:
    """Measure a table whose columns have been checked; otherwise like `assess`.

    Examples
    --------
    >>> import sfumato as sf
    >>> measure(sf.Table.of("patients.csv", qi=["zip", "age"])).k
    2
    """
    missing, classes = one_of(Missing, missing, "missing"), one_of(Classes, classes, "classes")
    distance, absent = one_of(Distance, distance, "distance"), one_of(Absent, absent, "absent")
    limit = find_preset(preset) if preset is not None and preset != SAFE_HARBOR else None
    if limit is not None and threshold is not None:
        raise OptionError(f"the preset '{preset}' has its threshold, {limit.threshold}", hint="give one of the two")
    threshold = limit.threshold if limit else THRESHOLD if threshold is None else threshold
    quasi, attributes, person = table.schema.quasi, table.schema.sensitive, table.schema.person
    if not quasi:
        raise OptionError("no quasi-identifier is named", hint="name the columns that others know, with qi / --qi")
    count = partial(reduce, engine=engine, progress=progress)
    names = [*quasi, *([] if person is None else [person]), *attributes]
    tuples, without_class, dropped = _count(count, table, names, quasi, missing, suppressed, person)
    counts = _counts(tuples, quasi, attributes, classes, missing, person)
    # Classes differ between attributes only if the others count as quasi-identifiers; report the worst.
    people = min(counts, key=lambda one: (one.size.min(), -len(one)))
    models = [_with_options(model(), distance, absent) for model in MODELS]
    by_sensitive = {one.attribute.name: _measures(models, [one]) for one in counts if one.attribute}
    worst = by_sensitive[attributes[0]] if len(attributes) == 1 else _measures(models, counts)
    required = _guarantees(require, distance, absent)
    for guarantee in required:  # a value may occur only in suppressed rows
        guarantee.refuse_unknown([tuples.domains[tuples.position[name]] for name in attributes])
    checks = tuple(guarantee.check(counts) for guarantee in (*required, *(limit.guarantees if limit else ())))
    conventions = {"missing": missing, "classes": classes, "distance": distance, "absent": absent}
    return Assessment(
        **{field.name: getattr(worst, field.name) for field in fields(Measures)},
        rows=int(tuples.count.sum()),
        classes=len(people),
        people=None if person is None else People(person, int(tuples.count.sum()), people.rows, int(people.size.min())),
        unit=UNIT if person is None else PERSON,
        nobody=0 if person is None else _rows_of_nobody(tuples, person),
        suppressed=without_class,
        dropped=dropped,
        quasi=quasi,
        sensitive=attributes,
        identifiers=table.schema.identifiers,
        kept={name: table.schema[name].reason for name in table.schema.kept},
        by_sensitive=by_sensitive,
        distances={one.attribute.name: distance.for_attribute(one.attribute).value for one in counts if one.attribute},
        risk=reidentification_risk(people, threshold),
        **_risks_in_population(tuples, quasi, population, population_size, missing, suppressed, threshold, person),
        **_detail(tuples, quasi if detail else (), person),
        profiles=profiles_of(table) if detail else (),
        findings=safe_harbor(table) if preset == SAFE_HARBOR else (),
        rows_by_class_size=_by_class_size(people),
        verdict=Verdict(checks) if checks else None,
        options={**{name: one.value for name, one in conventions.items()}, "suppressed": suppressed, "preset": preset},
    )


def check(data: Any, guarantees: str | ClassGuarantee | Sequence[str | ClassGuarantee], **options: Any) -> Verdict:
    """Check whether a table keeps the given guarantees; the options are those of `assess`.

    Examples
    --------
    >>> import sfumato as sf
    >>> bool(sf.check("patients.csv", [sf.KAnonymity(2)], qi=["zip", "age"]))
    True
    """
    if not guarantees:
        raise OptionError("no guarantee is given to check", hint="for example 'k=10,l=3'")
    verdict = assess(data, require=guarantees, **options).verdict
    assert verdict is not None
    return verdict


def profiles_of(table: Table, names: Sequence[str] | None = None) -> tuple[Profile, ...]:
    """Count the values of the named columns, all by default; nothing for a table that is too long or in a database.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> (sex,) = profiles_of(sf.Table(pl.DataFrame({"sex": ["f"] * 30 + ["m"] * 20})))
    >>> sex.values, sex.missing
    (2, 0.0)
    """
    if (table.is_lazy and not isinstance(table.source, File)) or table.rows > MOST_ROWS:
        return ()
    known = Table(table.to_polars(), table.schema) if table.is_lazy else table  # read a file only once
    return tuple(_profile(known, name) for name in (table.schema.names if names is None else names))


def _profile(table: Table, name: str) -> Profile:
    role = table.schema[name].role
    try:
        codes = table.encode([name])
        domain = codes.domains[0]
        universe(domain)
    except SfumatoError:  # lists, or values outside the schema: only this profile fails
        return Profile(name, role, table.schema[name].kind.value, None, None)
    rows = len(codes.values)
    missing = 0 if domain.missing is None else int((codes.values[:, 0] == domain.missing).sum())
    share = float(round_shares(missing / max(rows, 1), rows))
    return Profile(name, role, domain.column.kind.value, len(domain) - (missing > 0), share)


def _rows_of_nobody(tuples: Tuples, person: str) -> int:
    position = tuples.position[person]
    missing = tuples.domains[position].missing
    return 0 if missing is None else int(tuples.count[tuples.codes[:, position] == missing].sum())


def _by_class_size(counts: ClassCounts) -> dict[int, int]:
    size, of_class = np.unique(counts.size, return_inverse=True)
    rows = np.bincount(of_class, weights=counts.records).astype(int)
    return {each: count for each, count in zip(size.tolist(), rows.tolist(), strict=True) if count}


def _counts(
    tuples: Tuples,
    quasi: Sequence[str],
    attributes: Sequence[str],
    classes: Classes,
    missing: Missing,
    person: str | None,
) -> list[ClassCounts]:
    """Count each sensitive attribute in its classes; a single count of sizes if there is none."""
    known = () if classes is Classes.QI else attributes  # besides the quasi-identifiers
    return [
        class_counts(tuples, [*quasi, *(other for other in known if other != name)], name, missing, person)
        for name in attributes
    ] or [class_counts(tuples, quasi, None, missing, person)]


def _count(
    count: Callable[[Table, Sequence[str]], Tuples],
    table: Table,
    names: Sequence[str],
    quasi: Sequence[str],
    missing: Missing,
    suppressed: str | None,
    person: str | None = None,
) -> tuple[Tuples, int, int]:
    """Return the tuples that are in a class, and the numbers of suppressed and dropped rows."""
    tuples = count(table, names)
    if not len(tuples.count):
        raise InputError("the table has no rows")
    tuples, without_class = without_suppressed(tuples, quasi, suppressed)
    tuples, dropped = without_missing(tuples, person) if missing is Missing.DROP else (tuples, 0)
    if not len(tuples.count):
        raise InputError("no row is left: every row misses a value", hint="use missing=value / --missing value")
    return tuples, without_class, dropped


def _risks_in_population(
    tuples: Tuples,
    quasi: Sequence[str],
    population: Any,
    population_size: int | None,
    missing: Missing,
    suppressed: str | None,
    threshold: float,
    person: str | None,
) -> dict[str, Any]:
    """Measure the risks that depend on the population, if it is given."""
    risks: dict[str, Any] = {"journalist": None, "presence": None, "population": None}
    if population is None and population_size is None:
        return risks
    people = class_counts(tuples, quasi, None, missing, person)
    if people.links is not None and people.links > people.rows:
        raise OptionError(
            f"people of column '{person}' are in several classes, so the table cannot be compared with a population",
            hint="measure the columns that stay the same for a person, with qi / --qi",
        )
    if population is not None:
        known = Table.of(population)
        for name in quasi:
            if name not in known.schema.names:
                raise ColumnError(
                    f"the population table lacks the quasi-identifier '{name}'",
                    hint=did_you_mean(name, known.schema.names),
                )
        whose = person if person in known.schema.names else None  # else every row is a person
        names = [*quasi, *([] if whose is None else [whose])]
        counted, *_ = _count(reduce, known, names, quasi, missing, suppressed, whose)
        everyone = class_counts(counted, quasi, None, missing, whose)
        if population_size not in (None, everyone.rows):
            raise OptionError(
                f"the population table has {everyone.rows:,} rows, but population_size is {population_size:,}",
                hint="give one of the two",
            )
        risks["journalist"] = journalist_risk(people, everyone, threshold)
        risks["presence"] = delta_presence(people, everyone)
    if population_size is not None:
        if missing is Missing.WILDCARD:
            raise OptionError("population uniques cannot be estimated where missing values are wildcards")
        size, classes = np.unique(people.size, return_counts=True)
        histogram = dict(zip(size.tolist(), classes.tolist(), strict=True))
        risks["population"] = population_uniques(histogram, population_size)
    return risks


def _detail(tuples: Tuples, quasi: Sequence[str], person: str | None) -> dict[str, Any]:
    """Measure the risk of single columns, of sets of up to three if there are not too many, and of several rows."""
    size = max(size for size in (0, 1, 2, 3) if number_of_subsets(len(quasi), size) <= MOST_SUBSETS)
    if not quasi or not size:
        return {"columns": (), "subsets": ()}
    return {
        "columns": column_risks(tuples, quasi, person),
        "subsets": subset_risks(tuples, quasi, size, person),
        "unicity": () if person is None else unicity(tuples, quasi, person),
    }


def _guarantees(
    require: str | ClassGuarantee | Mapping[str, float] | Sequence[Any], distance: Distance, absent: Absent
) -> list[ClassGuarantee]:
    """Return the guarantees; those given as text use the chosen conventions, objects keep their own."""
    given = (
        [require]
        if isinstance(require, str | ClassGuarantee | Mapping) or not isinstance(require, Iterable)
        else require
    )
    return [
        guarantee if isinstance(one, ClassGuarantee) else _with_options(guarantee, distance, absent)
        for one in given
        if one or isinstance(one, ClassGuarantee)
        for guarantee in as_guarantees(one)
    ]


def _with_options(guarantee: ClassGuarantee, distance: Distance, absent: Absent) -> ClassGuarantee:
    """Return the guarantee with the chosen conventions where it has the default ones."""
    if isinstance(guarantee, TCloseness) and guarantee.distance is Distance.AUTO:
        return replace(guarantee, distance=distance)
    if isinstance(guarantee, DeltaDisclosure) and guarantee.absent is Absent.IGNORE:
        return replace(guarantee, absent=absent)
    return guarantee


def _measures(models: Sequence[ClassGuarantee], counts: Sequence[ClassCounts]) -> Measures:
    """Measure every model that applies."""
    if counts[0].attribute is None:
        models = [KAnonymity()]
    measured = {model.key: model.measure(counts) for model in models}
    values: dict[str, Any] = {key: one.value for key, one in measured.items()}
    if "l" in values:
        values["recursive_l"] = values["l"]  # the l at which recursive_c was measured
    return Measures(**values, witnesses={key: one.witness for key, one in measured.items()})

"""Assess a table: count once, measure all nine models, compare with what is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from sfumato._errors import InputError, OptionError
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.engines.memory import reduce
from sfumato.measures.counts import ClassCounts, Missing, class_counts, without_missing, without_suppressed
from sfumato.measures.distance import Distance
from sfumato.measures.guarantee import Check, Guarantee, Witness, as_json_number, one_of
from sfumato.measures.models import MODELS, Absent, DeltaDisclosure, KAnonymity, TCloseness, parse
from sfumato.measures.risk import Risk, risk

__all__ = ["Assessment", "Classes", "Measures", "Verdict", "assess", "check"]


class Classes(StrEnum):
    """Which columns make an equivalence class when there are several sensitive attributes.

    Examples
    --------
    >>> Classes("qi")
    <Classes.QI: 'qi'>
    """

    QI = "qi"
    """The quasi-identifiers."""
    QI_AND_OTHER_SENSITIVE = "qi+other-sensitive"
    """The quasi-identifiers and the other sensitive attributes: an attacker may know those too."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The numbers that the nine models measured, and the witness of each; None where no attribute is sensitive."""

    k: int
    alpha: float | None = None
    l: int | None = None
    entropy_l: float | None = None
    recursive_c: float | None = None
    recursive_l: int | None = None
    t: float | None = None
    basic_beta: float | None = None
    enhanced_beta: float | None = None
    delta_disclosure: float | None = None
    witnesses: dict[str, Witness]

    def numbers(self) -> dict[str, float | str | None]:
        """Return the numbers as JSON can hold them."""
        names = (name for name in Measures.__dataclass_fields__ if name != "witnesses")
        return {name: as_json_number(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Verdict:
    """Which guarantees hold. It is true when all do.

    Examples
    --------
    >>> import sfumato as sf
    >>> verdict = sf.check("patients.csv", "k=2,l=2", qi=["zip", "age"], sensitive=["disease"])
    >>> bool(verdict)
    False
    >>> print(verdict)
    k=2: held, measured 2
    l=2: not held, measured 1
    """

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return all(check.held for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(
            f"{check.guarantee}: {'held' if check.held else 'not held'}, measured {check.measured.value:.6g}"
            + (f" ({check.reason})" if check.reason else "")
            for check in self.checks
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {"ok": bool(self), "claims": [check.to_dict() for check in self.checks]}


@dataclass(frozen=True, kw_only=True)
class Assessment(Measures):
    """How anonymous a table is: the worst number of each model, with its witness.

    Made by `assess`. Besides ``k``, ``alpha``, ``l`` and so on, the worst over all sensitive
    attributes, it says what was counted and what was left out.
    """

    rows: int
    """The rows that are in a class."""
    classes: int
    """The number of equivalence classes."""
    suppressed: int
    """The suppressed rows; they are in no class."""
    dropped: int
    """With ``missing="drop"``, the rows left out because they miss a value."""
    quasi: tuple[str, ...]
    """The quasi-identifiers."""
    sensitive: tuple[str, ...]
    """The sensitive attributes."""
    identifiers: tuple[str, ...]
    """The columns of the table that name a person alone: never release them."""
    by_sensitive: dict[str, Measures]
    """The measures of each sensitive attribute."""
    distances: dict[str, str]
    """The distance between its values that t-closeness took for each sensitive attribute."""
    risk: Risk
    """The risk of re-identification."""
    rows_by_class_size: dict[int, int]
    """How many rows are in a class of each size."""
    verdict: Verdict | None
    """Which of the required guarantees hold; None if none was required."""
    options: dict[str, str | None]
    """The conventions that were followed."""

    @property
    def satisfied(self) -> bool | None:
        """Whether every required guarantee holds; None if none was required."""
        return None if self.verdict is None else bool(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the assessment as plain values, under the names of the command-line contract."""
        return {
            "rows": self.rows,
            "classes": self.classes,
            "suppressed": self.suppressed,
            "dropped": self.dropped,
            **self.numbers(),
            "risk": self.risk.to_dict(),
            "by_sensitive": {
                name: {**measures.numbers(), "distance": self.distances[name]}
                for name, measures in self.by_sensitive.items()
            },
            "witnesses": {name: witness.to_dict() for name, witness in self.witnesses.items()},
            "satisfied": self.satisfied,
            "checks": [] if self.verdict is None else self.verdict.to_dict()["claims"],
            "quasi": list(self.quasi),
            "sensitive": list(self.sensitive),
            "identifiers": list(self.identifiers),
            "rows_by_class_size": {str(size): rows for size, rows in self.rows_by_class_size.items()},
            "options": self.options,
        }

    def to_json(self) -> str:
        """Return the assessment as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


def assess(
    data: Any,
    *,
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    schema: Schema | None = None,
    require: str | Sequence[Guarantee] = (),
    missing: Missing | str = Missing.VALUE,
    classes: Classes | str = Classes.QI,
    distance: Distance | str = Distance.AUTO,
    absent: Absent | str = Absent.IGNORE,
    suppressed: str | None = "*",
) -> Assessment:
    """Measure how anonymous a table is.

    Parameters
    ----------
    data : Table, frame or path
    qi : sequence of str
        The quasi-identifiers; those of the schema by default.
    sensitive : sequence of str
        The sensitive attributes; those of the schema by default.
    schema : Schema, optional
    require : str or sequence of Guarantee
        What should hold, such as ``"k=10,l=3"``.
    missing : {"value", "wildcard", "drop"}
        What a missing value means; see `Missing`.
    classes : {"qi", "qi+other-sensitive"}
        What makes a class when there are several sensitive attributes; see `Classes`.
    distance : {"auto", "equal", "ordered", "scaled", "hierarchical"}
        The distance between sensitive values for t-closeness; see `Distance`.
    absent : {"ignore", "infinite"}
        What delta-disclosure makes of a value that a class does not hold; see `Absent`.
    suppressed : str or None
        A row in which every quasi-identifier is this mark is suppressed: it is in no class.

    Examples
    --------
    >>> import sfumato as sf
    >>> result = sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease"])
    >>> result.k, result.l
    (2, 1)
    >>> result.witnesses["l"].size
    2
    """
    missing = one_of(Missing, missing, "missing")
    classes = one_of(Classes, classes, "classes")
    distance = one_of(Distance, distance, "distance")
    absent = one_of(Absent, absent, "absent")
    table = Table.of(data, schema=schema, qi=qi, sensitive=sensitive)
    quasi, attributes = table.schema.quasi, table.schema.sensitive
    if not quasi:
        raise OptionError("no quasi-identifier is named", hint="name the columns that others know, with qi / --qi")

    tuples = reduce(table, [*quasi, *attributes])
    if not len(tuples.count):
        raise InputError("the table has no rows")
    tuples, without_class = without_suppressed(tuples, quasi, suppressed)
    tuples, dropped = without_missing(tuples) if missing is Missing.DROP else (tuples, 0)
    if not len(tuples.count):
        raise InputError("no row is left: every row misses a value", hint="use missing=value / --missing value")

    counts = [
        class_counts(tuples, _class_columns(quasi, attributes, name, classes), name, missing) for name in attributes
    ] or [class_counts(tuples, quasi, None, missing)]
    # Classes differ between attributes only if the others count as quasi-identifiers; the worst are shown.
    people = min(counts, key=lambda one: (one.size.min(), -len(one)))
    models = [_with_options(model(), distance, absent) for model in MODELS]
    by_sensitive = {one.attribute.name: _measures(models, [one]) for one in counts if one.attribute}
    worst = by_sensitive[attributes[0]] if len(attributes) == 1 else _measures(models, counts)
    required: Sequence[Guarantee] = ()
    if isinstance(require, str):  # guarantees that come as objects say their conventions themselves
        required = [_with_options(one, distance, absent) for one in parse(require)] if require else ()
    else:
        required = require
    checks = tuple(guarantee.check(counts) for guarantee in required)
    size, of_class = np.unique(people.size, return_inverse=True)
    rows_of_size = np.bincount(of_class, weights=people.records).astype(int)
    return Assessment(
        **_fields(worst),
        rows=people.rows,
        classes=len(people),
        suppressed=without_class,
        dropped=dropped,
        quasi=quasi,
        sensitive=attributes,
        identifiers=table.schema.identifiers,
        by_sensitive=by_sensitive,
        distances={one.attribute.name: distance.for_attribute(one.attribute).value for one in counts if one.attribute},
        risk=risk(people),
        rows_by_class_size=dict(zip(size.tolist(), rows_of_size.tolist(), strict=True)),
        verdict=Verdict(checks) if checks else None,
        options={
            "missing": missing.value,
            "classes": classes.value,
            "distance": distance.value,
            "absent": absent.value,
            "suppressed": suppressed,
        },
    )


def check(data: Any, guarantees: str | Sequence[Guarantee], **options: Any) -> Verdict:
    """Say whether a table keeps the given guarantees; the options are those of `assess`.

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


def _class_columns(quasi: Sequence[str], attributes: Sequence[str], attribute: str, classes: Classes) -> list[str]:
    if classes is Classes.QI:
        return list(quasi)
    return [*quasi, *(other for other in attributes if other != attribute)]


def _with_options(guarantee: Guarantee, distance: Distance, absent: Absent) -> Guarantee:
    """Give a guarantee that leaves a convention open the one that was asked for."""
    if isinstance(guarantee, TCloseness) and guarantee.distance is Distance.AUTO:
        return replace(guarantee, distance=distance)
    if isinstance(guarantee, DeltaDisclosure) and guarantee.absent is Absent.IGNORE:
        return replace(guarantee, absent=absent)
    return guarantee


def _measures(models: Sequence[Guarantee], counts: Sequence[ClassCounts]) -> Measures:
    """Measure every model that applies."""
    if counts[0].attribute is None:
        models = [KAnonymity()]
    measured = {model.key: model.measure(counts) for model in models}
    values: dict[str, Any] = {key: one.value for key, one in measured.items()}
    if "l" in values:
        values["recursive_l"] = values["l"]  # the l at which recursive_c was measured
    return Measures(**values, witnesses={key: one.witness for key, one in measured.items()})


def _fields(measures: Measures) -> dict[str, Any]:
    return {name: getattr(measures, name) for name in Measures.__dataclass_fields__}

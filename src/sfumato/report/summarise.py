"""Summarise an assessment in a few sentences: the first step of a report.

Nothing here quotes a record: the quasi-identifiers of a class are shown only if at least `SMALLEST_SHOWN` rows share
them, and sensitive values never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.data.certificate import PERSON
from sfumato.data.schema import Role
from sfumato.measures.assessment import SMALLEST_SHOWN, Assessment
from sfumato.measures.guarantee import Witness
from sfumato.measures.people import People
from sfumato.measures.risk.population import PopulationModel, PopulationUniques
from sfumato.measures.risk.reidentification import ColumnRisk
from sfumato.measures.risk.safe_harbor import Finding, Status
from sfumato.report.table.comparison import CLASS_SIZES, Standing, rows_by_size, size_label

__all__ = [
    "SMALLEST_SHOWN",
    "Bar",
    "MeasureLine",
    "Summary",
    "count",
    "many_of",
    "number",
    "of_unit",
    "one_of",
    "percent",
    "risks_of",
    "role_of",
    "share",
    "summarise",
    "title_of",
    "units_of",
    "warnings_of",
    "words",
]

_ROLES = {
    Role.QUASI: "quasi-identifier",
    Role.SENSITIVE: "sensitive",
    Role.IDENTIFIER: "identifier",
    Role.PERSON: "person",
    Role.TARGET: "target",
    Role.KEPT: "kept on purpose",
    Role.OTHER: "none",
}
_RISKY = 5  # classes of fewer rows are hatched
_SUBSETS_SHOWN = 8
_MIX = "coarsen the quasi-identifiers until classes with different sensitive values merge, or suppress uniform classes"
_LIKEN = "coarsen the quasi-identifiers until every class looks like the whole table"


@dataclass(frozen=True)
class MeasureLine:
    """One measure in words and numbers."""

    key: str
    title: str
    value: str
    asked: str
    held: bool | None
    meaning: str
    stops: str
    witness: str


@dataclass(frozen=True)
class Bar:
    """The number of rows in classes of a size range."""

    label: str
    rows: int
    risky: bool


@dataclass(frozen=True)
class Summary:
    """The content of a report: a verdict, a line per measure, what singles people out, and the bars of its charts."""

    headline: str
    good: bool | None
    warnings: tuple[str, ...]
    """Shown first."""
    facts: tuple[str, ...]
    lines: tuple[MeasureLine, ...]
    bars: tuple[Bar, ...]
    columns: tuple[ColumnRisk, ...]
    subsets: tuple[tuple[str, str, str], ...]
    """The riskiest sets of up to three columns, with the number and the share of rows that they single out."""
    sensitive: tuple[tuple[str, ...], ...]
    """A row of texts per sensitive attribute, if there are several."""
    findings: tuple[Finding, ...]
    remedies: tuple[tuple[str, str], ...]
    """Pieces of advice, each with the measures it improves."""
    risks: tuple[tuple[str, str], ...]
    profiles: tuple[tuple[str, ...], ...]
    """A row of texts per column: name, role, kind, distinct values, missing values, rows unique by it alone."""
    units: str = "rows"
    """What is counted: rows, or people."""


@dataclass(frozen=True)
class _Model:
    title: str
    stops: str
    remedy: str
    meaning: Callable[[Assessment], str]


_MODELS = {
    "k": _Model(
        "k-anonymity",
        "linkage, re-identification",
        "coarsen or leave out the quasi-identifiers that single most people out, or suppress the rare rows",
        lambda a: (
            f"{of_unit(a, a.risk.uniques)} unique: no other {one_of(a)} has the same combination of quasi-identifiers."
            if a.k == 1
            else f"Everyone shares their combination of quasi-identifiers with at least {count(a.k - 1, 'other')}."
        ),
    ),
    "alpha": _Model(
        "(α,k)-anonymity",
        "linkage, re-identification, homogeneity",
        _MIX,
        lambda a: f"In the worst class one sensitive value fills {percent(a.alpha)} of the {many_of(a)}.",
    ),
    "l": _Model(
        "distinct l-diversity",
        "homogeneity, background knowledge",
        _MIX,
        lambda a: (
            "In some class everyone has the same sensitive value: finding the class reveals it."
            if a.l == 1
            else f"Every class has at least {a.l} different sensitive values."
        ),
    ),
    "entropy_l": _Model(
        "entropy l-diversity",
        "homogeneity, background knowledge",
        _MIX,
        lambda a: (
            "The least diverse class has only one value."
            if a.entropy_l == 1
            else f"The least diverse class is as diverse as {number(a.entropy_l)} equally frequent values."
        ),
    ),
    "recursive_c": _Model(
        "recursive (c,l)-diversity",
        "homogeneity, background knowledge",
        _MIX,
        lambda a: (
            f"With l = {a.recursive_l}, the most frequent value outweighs the rare ones by up to "
            f"{number(a.recursive_c)}: satisfied for every larger c."
        ),
    ),
    "t": _Model(
        "t-closeness",
        "skewness, similarity",
        _LIKEN,
        lambda a: (
            f"The class that differs most from the whole table is {number(a.t)} away from it "
            f"(0 = alike, 1 = opposite; distance: {', '.join(sorted(set(a.distances.values())))})."
        ),
    ),
    "basic_beta": _Model(
        "basic β-likeness",
        "skewness",
        _LIKEN,
        lambda a: (
            f"A sensitive value can be {number(1 + (a.basic_beta or 0))} times as frequent in a class as overall."
        ),
    ),
    "enhanced_beta": _Model(
        "enhanced β-likeness",
        "skewness",
        _LIKEN,
        lambda a: (
            "A frequent value gains more than its cap (-ln p): no β is enough."
            if a.enhanced_beta == float("inf")
            else f"The smallest β that holds, with frequent values capped, is {number(a.enhanced_beta)}."
        ),
    ),
    "delta_disclosure": _Model(
        "δ-disclosure privacy",
        "inference",
        _LIKEN,
        lambda a: (
            "Some class lacks a value of the table, which rules it out for everyone in the class."
            if a.delta_disclosure == float("inf")
            else f"Knowing the class changes the share of a value by a factor of up to e^{number(a.delta_disclosure)}."
        ),
    ),
}


def summarise(assessment: Assessment) -> Summary:
    """Summarise an assessment."""
    return Summary(
        headline=_headline(assessment),
        good=False if assessment.verdict is None and assessment.k == 1 else assessment.satisfied,
        warnings=warnings_of(assessment),
        facts=tuple(_facts(assessment)),
        lines=tuple(_line(assessment, key) for key in _MODELS if key in assessment.witnesses),
        bars=tuple(_bars(assessment)),
        columns=assessment.columns,
        subsets=tuple(
            (" + ".join(one.columns), number(one.uniques), percent(one.unique_share))
            for one in assessment.subsets[:_SUBSETS_SHOWN]
            if one.uniques
        ),
        sensitive=tuple(_sensitive(assessment)) if len(assessment.by_sensitive) > 1 else (),
        findings=assessment.findings,
        remedies=tuple(_remedies(assessment)),
        risks=tuple(risks_of(assessment)),
        profiles=tuple(_profiles(assessment)),
        units=many_of(assessment),
    )


def number(value: float | None) -> str:
    """Write a number with four significant digits.

    Examples
    --------
    >>> number(0.759190), number(12345), number(float("inf")), number(0.0)
    ('0.7592', '12,345', '∞', '0')
    """
    if value is None:
        return "-"
    if value == float("inf"):
        return "∞"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def count(number: int, noun: str, plural: str = "s") -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> count(1, "row"), count(2000, "class", "es")
    ('1 row', '2,000 classes')
    """
    return f"{number:,} {noun}" + (plural if number != 1 else "")


def unused_columns(names: Sequence[str], columns: int, why: str) -> str:
    """Write which columns a model could not use.

    Examples
    --------
    >>> unused_columns(["note", "zip"], 5, "because of too many categories")
    '2 of 5 columns could not be used, because of too many categories: note, zip'
    """
    return f"{len(names)} of {count(columns, 'column')} could not be used, {why}: {', '.join(names)}"


def percent(share: float | None) -> str:
    """Write a share as a percentage with three significant digits.

    Examples
    --------
    >>> percent(0.12345), percent(1.0), percent(None)
    ('12.3%', '100%', '-')
    """
    return "-" if share is None else f"{100 * share:.3g}%"


def share(part: float) -> str:
    """Write a share to 0.1 %; only a share of zero is written as 0 %.

    Examples
    --------
    >>> share(0.1234), share(0.0001), share(1.0)
    ('12.3%', '<0.1%', '100%')
    """
    return "<0.1%" if 0 < part < 0.0005 else f"{100 * part:.1f}%" if 0 < part < 1 else f"{part:.0%}"


def words(value: Any) -> str:
    """Write a plain value in words.

    Examples
    --------
    >>> words(True), words(None), words([1, 2.5]), words({"rate": 0.5})
    ('yes', '-', '1, 2.5', 'rate 0.5')
    """
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {words(one)}" for name, one in value.items()) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(words, value)) or "-"
    return str(value)


def role_of(role: Role) -> str:
    """Return the name of a role on a page.

    Examples
    --------
    >>> role_of(Role.QUASI)
    'quasi-identifier'
    """
    return _ROLES[role]


def warnings_of(assessment: Assessment) -> tuple[str, ...]:
    """Return warnings about columns kept on purpose, and about people with several rows.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"age": [30, 41], "contact": ["ada@example.org", "bo@example.org"]})
    >>> warnings_of(sf.assess(people, qi=["age"], keep=["contact"]))
    ("the column 'contact' is kept unchanged on purpose: its values look like e-mail addresses",)
    """
    doubtful = {name: reason for name, reason in assessment.kept.items() if reason}
    kept = tuple(f"the column '{name}' is kept unchanged on purpose: {reason}" for name, reason in doubtful.items())
    return (*kept, *(() if assessment.unit == PERSON else _people(assessment.people)))


def _people(people: People | None) -> tuple[str, ...]:
    if people is None or not people.repeat:
        return ()
    fewest = f"; the smallest class has {people.smallest:,} of them" if people.smallest is not None else ""
    return (f"{people.in_words}{fewest}: everything else here counts rows, not people",)


def one_of(a: Assessment) -> str:
    """Return the noun of what an assessment counts.

    Examples
    --------
    >>> import sfumato as sf
    >>> one_of(sf.assess("patients.csv", qi=["zip"]))
    'row'
    """
    return a.unit


def many_of(a: Assessment) -> str:
    """Return the same as a plural: ``"rows"`` or ``"people"``."""
    return "people" if a.unit == PERSON else "rows"


def of_unit(a: Assessment, number: int) -> str:
    """Write a number of rows, or of people if an assessment counts them."""
    return f"{number:,} {one_of(a) if number == 1 else many_of(a)}"


def units_of(a: Assessment) -> int:
    """Return the number of rows, or of people if an assessment counts them."""
    return a.people.people if a.unit == PERSON and a.people is not None else a.rows


def title_of(key: str) -> tuple[str, str]:
    """Return the name of a model and what it guards against.

    Examples
    --------
    >>> title_of("k")
    ('k-anonymity', 'linkage, re-identification')
    """
    return _MODELS[key].title, _MODELS[key].stops


def _headline(a: Assessment) -> str:
    identifiers = sum(finding.status is Status.FOUND for finding in a.findings)
    found = [f"Safe Harbor ({count(identifiers, 'finding')})"] if identifiers else []
    if a.findings and a.verdict is None:
        left = count(len(a.findings) - identifiers, "point")
        return f"Not met: {found[0]}" if found else f"Safe Harbor: nothing found, {left} for a person to check"
    if a.verdict is not None:
        failed = [str(check.guarantee) for check in a.verdict.checks if not check.held] + found
        if failed:
            return f"Not met: {'; '.join(failed)}"
        return f"Met: {'; '.join(str(check.guarantee) for check in a.verdict.checks)}"
    if a.k == 1:
        return (
            f"People stand out: {a.risk.uniques:,} of {units_of(a):,} {many_of(a)} "
            f"({percent(a.risk.uniques / units_of(a))}) are unique"
        )
    return f"No {one_of(a)} is unique: every class has at least {of_unit(a, a.k)}"


def _facts(a: Assessment) -> list[str]:
    people = f" of {of_unit(a, units_of(a))} ('{a.people.identifier}')" if a.people and a.unit == PERSON else ""
    facts = [
        f"{count(a.rows, 'row')}{people} in {count(a.classes, 'equivalence class', 'es')} over "
        f"{count(len(a.quasi), 'quasi-identifier')}: {', '.join(a.quasi)}",
        f"sensitive: {', '.join(a.sensitive) or 'none named, so only k is measured'}",
        f"someone who knows a person's quasi-identifiers picks the right row with a chance of "
        f"{percent(a.risk.prosecutor_mean)} on average, {percent(a.risk.prosecutor_max)} at most; for "
        f"{percent(a.risk.above_threshold)} of the {many_of(a)} it is above {percent(a.risk.threshold)}",
    ]
    if a.nobody:
        facts.append(f"{count(a.nobody, 'row')} without a person: each counts as a person of its own")
    if a.unicity:
        known = ", ".join(f"{one.rows}: {percent(one.share)}" for one in a.unicity)
        facts.append(f"people who are alone, given so many of their rows: {known}")
    if a.journalist and a.presence:
        facts.append(
            f"against the population table, the chance is {percent(a.journalist.journalist_mean)} on average, "
            f"{percent(a.journalist.journalist_max)} at most (k-map {a.journalist.k_map:,}); between "
            f"{percent(a.presence.delta_min)} and {percent(a.presence.delta_max)} of a class are in the table"
        )
    if a.population:
        facts.append(_population(a.population))
    if a.suppressed:
        facts.append(f"{count(a.suppressed, 'suppressed row')} in no class")
    if a.dropped:
        facts.append(f"{count(a.dropped, 'row')} with missing values left out, as requested")
    if a.identifiers:
        facts.append(f"the table has direct identifiers, which must not be released: {', '.join(a.identifiers)}")
    if a.options["missing"] == "wildcard":
        facts.append("a missing quasi-identifier matches any value")
    if a.options["classes"] != "qi":
        facts.append("for each sensitive column, the others count as quasi-identifiers")
    return facts


def _line(a: Assessment, key: str) -> MeasureLine:
    model = _MODELS[key]
    checks = [check for check in a.verdict.checks if check.guarantee.key == key] if a.verdict is not None else []
    return MeasureLine(
        key=key,
        title=model.title,
        value=number(getattr(a, key)),
        asked="; ".join(str(check.guarantee) for check in checks),
        held=all(check.guarantee.accepts(check.measured.value) for check in checks) if checks else None,
        meaning=model.meaning(a),
        stops=model.stops,
        witness=_witness(a, a.witnesses[key]),
    )


def _remedies(a: Assessment) -> list[tuple[str, str]]:
    """Return each piece of advice once, with the measures it improves."""
    helped: dict[str, list[str]] = {}
    for key, model in _MODELS.items():
        if key in a.witnesses:
            helped.setdefault(model.remedy, []).append(model.title)
    return [(remedy[0].upper() + remedy[1:], ", ".join(titles)) for remedy, titles in helped.items()]


def _profiles(a: Assessment) -> list[tuple[str, ...]]:
    alone = {one.column: number(one.uniques_alone) for one in a.columns}
    return [
        (
            one.column,
            role_of(one.role),
            one.kind if one.values is not None else "not counted",
            number(one.values),
            "-" if one.missing is None else share(one.missing),
            alone.get(one.column, "-"),
        )
        for one in a.profiles
    ]


def risks_of(side: Assessment | Standing) -> list[tuple[str, str]]:
    """Return the rows of a table of risks: a name and a number."""
    risk = side.risk
    units = "people" if side.unit == PERSON else "rows"
    return [
        ("smallest class (k)", number(side.k)),
        ("classes", number(side.classes)),
        (f"unique {units}", number(risk.uniques)),
        ("chance of picking a person's row, at most", share(risk.prosecutor_max)),
        ("the same on average", share(risk.prosecutor_mean)),
        (f"{units} with a chance above {percent(risk.threshold)}", share(risk.above_threshold)),
    ]


def _witness(a: Assessment, witness: Witness) -> str:
    members = f"a class of {of_unit(a, witness.size)}"
    if min(witness.records, witness.size) < SMALLEST_SHOWN:
        return members
    return f"{members}: " + ", ".join(f"{name} = {witness.labels[name]}" for name in a.quasi)


def _bars(a: Assessment) -> list[Bar]:
    rows = rows_by_size(a.rows_by_class_size)
    return [Bar(size_label(i), rows[i], risky=low < _RISKY) for i, low in enumerate(CLASS_SIZES)]


def _population(p: PopulationUniques) -> str:
    people = f"of the {p.population:,} people in the population,"
    unique = f"{p.uniques:,.0f} ({percent(p.share)})"
    if p.chosen is PopulationModel.EXACT:
        return f"{people} {unique} are unique: the table holds them all"
    if p.sample_uniques == p.rows:
        return f"{people} at most {unique} are unique: every row of the table is unique, so this is only a bound"
    return f"{people} about {unique} are estimated to be unique (model: {p.chosen.value}; {p.reason})"


def _sensitive(a: Assessment) -> list[tuple[str, ...]]:
    keys = [key for key in _MODELS if key != "k"]
    return [
        (name, *(number(getattr(measures, key)) for key in keys), a.distances[name])
        for name, measures in a.by_sensitive.items()
    ]

"""What a notebook shows of a result: its sentence, its numbers and its charts, and never a record.

A notebook stores what its cells show, so that a card has only what the result's page may show. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from sfumato._repr import named
from sfumato.attacks.base import AttackResult
from sfumato.attacks.report import AttackReport
from sfumato.data.release import Release
from sfumato.data.schema import Schema
from sfumato.errors import looks_like_data
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.measures.assessment import Assessment
from sfumato.report.attacks.page import gains_of, right_answers
from sfumato.report.charts.plot import bar_rows
from sfumato.report.frontier.page import charts_of, columns_of, headline_of, reason_of
from sfumato.report.page import fill
from sfumato.report.summarise import count, many_of, number, role_of, share, summarise, units_of

__all__ = ["card"]

_SHOWN = 4  # figures of a point of the frontier
_MOST = 100  # rows of a table
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def card(result: Any) -> str:
    """Return a result as HTML for a notebook.

    Examples
    --------
    >>> import sfumato as sf
    >>> shown = card(sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease"]))
    >>> shown.startswith("<div class="), "<svg" in shown
    (True, True)
    """
    makers: dict[type, Callable[[Any], dict[str, Any]]] = {
        Assessment: _assessment,
        AttackReport: _attacks,
        AttackResult: lambda one: _attacks(AttackReport({}, (one,))),
        Frontier: _frontier,
        Release: _release,
        Schema: _schema,
    }
    make = next(found for kind, found in makers.items() if isinstance(result, kind))
    parts: dict[str, Any] = {"facts": (), "charts": (), "table": None, "note": "", "command": ""}
    return fill("notebook.html", **(parts | make(result)))


def _assessment(assessment: Assessment) -> dict[str, Any]:
    summary = summarise(assessment)
    return {
        "headline": summary.headline,
        "facts": (*summary.warnings, *summary.facts),
        "charts": [("Rows by the size of their class", "", _sizes(assessment))],
        "table": (("measure", "value"), [(line.title, line.value) for line in summary.lines]),
    }


def _sizes(assessment: Assessment) -> Markup:
    bars = summarise(assessment).bars
    rows = [
        (bar.label, [(bar.rows, share(bar.rows / units_of(assessment)), "risky" if bar.risky else "after")])
        for bar in bars
    ]
    return bar_rows(f"Share of {many_of(assessment)} by the size of their class", rows)


def _release(release: Release) -> dict[str, Any]:
    promises = [str(one) for one in release.guarantees]
    claims = {name: one for name, one in release.artifact.claims.items() if isinstance(one, int | float)}
    assessment = getattr(release.artifact, "assessment", None)
    return {
        "headline": f"A {release.kind} by {release.method}, with {', '.join(promises) or 'no guarantee'}.",
        "facts": ["Save it with sf.save(release, folder); sf.verify(folder) measures every claim again."],
        "charts": [("Rows by the size of their class", "", _sizes(assessment))] if assessment is not None else (),
        "table": (("claim", "measured"), [(name.replace("_", " "), number(value)) for name, value in claims.items()]),
    }


def _attacks(report: AttackReport) -> dict[str, Any]:
    ranked = sorted(report.results, key=lambda result: -result.auc)
    chart = gains_of(ranked)
    verdict = report.verdict
    return {
        "headline": f"{verdict[:1].upper()}{verdict[1:]}.",
        "charts": [] if chart is None else [("AUC of each attack", "The bar begins at 0.5, which is guessing.", chart)],
        "table": (("attack", "right", "without", "others"), [right_answers(one) for one in ranked]),
        "note": "For the owner of the data: the figures come from the original records, without noise.",
    }


def _frontier(frontier: Frontier) -> dict[str, Any]:
    columns = columns_of(frontier)[:_SHOWN]
    rows = []
    for point in frontier.points[:_MOST]:
        figures = [point.figure(name) for name, _ in columns]
        rows.append((point.name, *("-" if one is None else f"{one.mean:.3f}" for one in figures)))
    chosen = frontier.recommended
    return {
        "headline": headline_of(frontier),
        "facts": [reason] if (reason := reason_of(frontier)) else (),
        "command": chosen.command,
        "charts": charts_of(frontier),
        "table": (("protection", *(words for _, words in columns)), rows),
        "note": f"These are {frontier.note}.",
    }


def _schema(schema: Schema) -> dict[str, Any]:
    if any(looks_like_data(name) for name in schema.names):  # a file without a line of names
        return {"headline": f"A schema of {named(schema.names)}."}
    rows = []
    for one in schema.columns[:_MOST]:
        known = [f"{one.bounds[0]:g} to {one.bounds[1]:g}"] if one.bounds else []
        known += [count(len(one.domain), "value")] if one.domain is not None else []
        known += ["a hierarchy"] if one.hierarchy is not None else []
        rows.append((one.name, role_of(one.role), one.kind.value, ", ".join(known) or "-"))
    more = len(schema.columns) - _MOST
    return {
        "headline": f"A schema of {count(len(schema.columns), 'column')}.",
        "table": (("column", "role", "kind", "public"), rows),
        "note": f"and {more} more" if more > 0 else "",
    }

"""The page of a release beside its original: measure what a page shows, and render it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfumato.anonymizers.anonymize import AnonymizedTable, in_spark
from sfumato.data.release import Release
from sfumato.data.schema import Role
from sfumato.errors import OptionError
from sfumato.measures.loss.utility import ModelAccuracy, model_accuracy
from sfumato.measures.profile import profiles_of
from sfumato.report.page import Page, facts_page, render_report
from sfumato.report.summarise import count, warnings_of
from sfumato.report.table.comparison import compare
from sfumato.report.table.release import render_release
from sfumato.report.table.side_by_side import Beside, render_side_by_side

__all__ = ["page_of", "page_of_all"]

_MOST_ROWS = 5_000_000
"""Of a file with more rows, no model is trained: all of it would have to be read."""
_MOST_CLASSES = 100
"""A target with more different values is not something to classify."""


def page_of(release: Release, *, name: str, models: Sequence[str] = ("forest",), **options: Any) -> Page:
    """Return the page of a released table: beside its original, if that is at hand, or else what was measured on it."""
    found = release.artifact
    if not isinstance(found, AnonymizedTable):
        return _alone(release, name)
    if found.pairing is None:
        raise in_spark("reported on")
    assert found.assessment.verdict is not None
    accuracy, notes = _accuracy(found, models)
    columns = found.table.schema.columns
    others = [column.name for column in columns if column.role in (Role.OTHER, Role.KEPT, Role.TARGET)]
    comparison = compare(
        found.pairing,
        found.before,
        found.assessment,
        found.loss,
        accuracy=accuracy,
        queries=found.query_error,
        others=profiles_of(found.table, [*found.table.schema.sensitive, *others]),
    )
    page = render_release(
        comparison,
        title=f"{name}: before and after",
        method=release.method,
        guarantees=found.assessment.verdict.checks,
        warnings=warnings_of(found.assessment),
        details=release.details,
        facts=release.parameters
        | {
            "columns released as they are": ", ".join(others) or "none",
            "order of the rows": "as in the original" if found.kept_order else "shuffled",
        }
        | ({"model": "; ".join(notes)} if notes else {}),
        folder=name,
    )
    return Page(page, replace(comparison, notes=notes))


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return the page that compares several releases of one table; None if an original is not at hand."""
    if any(page.summary is None for page in pages.values()):
        return None
    beside = [Beside.of(own, release, pages[own].summary) for own, release in releases.items()]
    rows = next(iter(pages.values())).summary.before.rows
    return Page(render_side_by_side(beside, rows=rows, title=f"{name}: side by side"), beside)


def _alone(release: Release, name: str) -> Page:
    """Return the page of a table whose original is not at hand: how it was made, and what was measured on it."""
    if release.assessment is not None:
        return Page(render_report(release.assessment, title=name), None)
    facts = {"method": release.method, "rows": f"{release.rows:,}", "order of the rows": "as in the original"}
    facts |= {f"column {one}": text for one, text in release.described().items()}
    return facts_page(release, name, facts, note=getattr(release, "note", ""))


def _accuracy(release: AnonymizedTable, models: Sequence[str]) -> tuple[tuple[ModelAccuracy, ...], tuple[str, ...]]:
    """Train models on the original and on the release, if there is something to predict; say what was left out."""
    target = release.source.schema.target
    if target is None or not models or release.before.rows > _MOST_ROWS:
        return (), ()
    classes = release.source.column(target).n_unique()
    if classes > _MOST_CLASSES:
        return (), (f"no model was trained: the target '{target}' has {classes:,} different values",)
    try:
        accuracy = model_accuracy(release.source, release.aligned, models=models, repeats=3, rows=20_000)
    except OptionError as error:  # nothing to learn, or to learn from: no reason to withhold the release
        return (), (f"no model was trained: {error.message}",)
    unused = accuracy[0].left_out
    columns = len(release.table.schema.names) - 1
    said = f"{len(unused)} of {count(columns, 'column')} could not be used, because of too many categories: "
    return accuracy, (said + ", ".join(unused),) if unused else ()

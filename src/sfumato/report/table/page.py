"""The page of a released table: measure what it shows, then render it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfumato.anonymizers.anonymize import AnonymizedTable, in_spark
from sfumato.data.release import Release
from sfumato.data.schema import Role
from sfumato.errors import OptionError
from sfumato.measures.loss.utility import ModelAccuracy, model_accuracy
from sfumato.report.bins import binned_profiles
from sfumato.report.page import Page, facts_page, render_report
from sfumato.report.summarise import unused_columns, warnings_of
from sfumato.report.table.comparison import compare
from sfumato.report.table.release import render_release
from sfumato.report.table.side_by_side import ComparedRelease, render_side_by_side

__all__ = ["page_of", "page_of_all"]

_MOST_ROWS = 5_000_000
"""No model is trained on more rows: all of them would have to be read."""
_MOST_CLASSES = 100
"""No model is trained for a target with more distinct values."""


def page_of(release: Release, *, name: str, models: Sequence[str] = ("forest",), **options: Any) -> Page:
    """Return the page of a released table: compared with its original if that is in memory, or on its own."""
    table = release.artifact
    if not isinstance(table, AnonymizedTable):
        return _without_original(release, name)
    if table.pairing is None:
        raise in_spark("reported on")
    assert table.assessment.verdict is not None
    accuracy, notes = _accuracy(table, models)
    columns = table.table.schema.columns
    others = [column.name for column in columns if column.role in (Role.OTHER, Role.KEPT, Role.TARGET)]
    comparison = compare(
        table.pairing,
        table.before,
        table.assessment,
        table.loss,
        accuracy=accuracy,
        queries=table.query_error,
        others=binned_profiles(table.table, [*table.table.schema.sensitive, *others]),
    )
    page = render_release(
        comparison,
        title=f"{name}: before and after",
        method=release.method,
        guarantees=table.assessment.verdict.checks,
        warnings=warnings_of(table.assessment),
        details=release.details,
        facts=release.parameters
        | {
            "columns released as they are": ", ".join(others) or "none",
            "order of the rows": "as in the original" if table.kept_order else "shuffled",
        }
        | ({"model": "; ".join(notes)} if notes else {}),
        folder=name,
    )
    return Page(page, replace(comparison, notes=notes))


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return the page that compares several releases of one table; None if an original is missing."""
    if any(page.summary is None for page in pages.values()):
        return None
    compared = [ComparedRelease.of(own, release, pages[own].summary) for own, release in releases.items()]
    rows = next(iter(pages.values())).summary.before.rows
    return Page(render_side_by_side(compared, rows=rows, title=f"{name}: side by side"), compared)


def _without_original(release: Release, name: str) -> Page:
    """Return the page of a table that is not compared with its original."""
    if release.assessment is not None:
        return Page(render_report(release.assessment, title=name), None)
    facts = {"method": release.method, "rows": f"{release.rows:,}", "order of the rows": "as in the original"}
    facts |= {f"column {one}": text for one, text in release.described().items()}
    return facts_page(release, name, facts, note=getattr(release, "note", ""))


def _accuracy(release: AnonymizedTable, models: Sequence[str]) -> tuple[tuple[ModelAccuracy, ...], tuple[str, ...]]:
    """Train models on the original and on the release, if there is a target; note what was left out."""
    target = release.source.schema.target
    if target is None or not models or release.before.rows > _MOST_ROWS:
        return (), ()
    classes = release.source.column(target).n_unique()
    if classes > _MOST_CLASSES:
        return (), (f"no model was trained: the target '{target}' has {classes:,} distinct values",)
    try:
        accuracy = model_accuracy(release.source, release.aligned, models=models, repeats=3, rows=20_000)
    except OptionError as error:  # nothing to learn, or to learn from: the release is fine without
        return (), (f"no model was trained: {error.message}",)
    unused = accuracy[0].left_out
    columns = len(release.table.schema.names) - 1
    return accuracy, (unused_columns(unused, columns, "because of too many categories"),) if unused else ()

"""The page of a release beside its original: measure what a page shows, and render it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sfumato.anonymizers.anonymize import Release
from sfumato.data.schema import Role
from sfumato.data.table import Table
from sfumato.errors import InputError, OptionError
from sfumato.measures.assessment import Assessment
from sfumato.measures.loss.utility import ModelAccuracy, model_accuracy
from sfumato.measures.profile import profiles_of
from sfumato.report.release.comparison import Comparison, compare
from sfumato.report.release.release import render_release
from sfumato.report.summarise import warnings_of

__all__ = ["in_spark", "release_page"]

_MOST_ROWS = 5_000_000
"""Of a file with more rows, no model is trained: all of it would have to be read."""
_MOST_CLASSES = 100
"""A target with more different values is not something to classify."""


def release_page(
    release: Release, assessment: Assessment, released: Table, *, name: str, models: Sequence[str] = ("forest",)
) -> tuple[str, Comparison]:
    """Return the page of a release, and what it compares: what was measured on the released table, and its original."""
    if release.pairing is None:
        raise in_spark("reported on")
    assert assessment.verdict is not None
    accuracy, notes = _accuracy(release, models)
    others = [
        column.name for column in release.table.schema.columns if column.role in (Role.OTHER, Role.KEPT, Role.TARGET)
    ]
    comparison = compare(
        release.pairing,
        release.before,
        assessment,
        release.loss,
        accuracy=accuracy,
        queries=release.query_error,
        others=profiles_of(released, [*released.schema.sensitive, *others]),
    )
    page = render_release(
        comparison,
        title=f"{name}: before and after",
        method=release.method,
        guarantees=assessment.verdict.checks,
        warnings=warnings_of(replace(assessment, people=release.assessment.people)),
        details=release.details,
        facts=release.parameters
        | {
            "columns released as they are": ", ".join(others) or "none",
            "order of the rows": "as in the original" if release.kept_order else "shuffled",
        }
        | ({"model": "; ".join(notes)} if notes else {}),
        folder=name,
    )
    return page, replace(comparison, notes=notes)


def in_spark(done: str) -> InputError:
    """Return the error for a release whose rows stayed in Spark."""
    return InputError(
        f"a release whose rows are in Spark cannot be {done}",
        hint="let Spark write it, with release.table.frame.write, or fetch the table before it is anonymized",
    )


def _accuracy(release: Release, models: Sequence[str]) -> tuple[tuple[ModelAccuracy, ...], tuple[str, ...]]:
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
    unused = ", ".join(accuracy[0].left_out)
    return accuracy, (f"it does not learn from {unused}: too many categories",) if unused else ()

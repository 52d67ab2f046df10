"""Make what a protection publishes from the training rows: rows, models of these, or a private model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sfumato.anonymizers.anonymize import anonymize, as_method, read_plan
from sfumato.anonymizers.publish import Output
from sfumato.attacks.base import Records
from sfumato.attacks.predictions import call
from sfumato.attacks.procedures import FitEstimator, RunRecipe, features_of
from sfumato.attacks.protections import AnonymousTraining, estimator_of, procedure_of, with_domains
from sfumato.data.coding import canonical_text
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.errors import InputError
from sfumato.measures.models import as_guarantees

if TYPE_CHECKING:
    from sfumato.frontier.sweep.grid import Candidate
    from sfumato.frontier.sweep.measure import Task

__all__ = ["Made", "make", "rows_of"]


@dataclass(frozen=True)
class Made:
    """What a protection publishes.

    Attributes
    ----------
    rows : the released rows; None if only a model is released
    models : by name, trained on the released rows, or with the protection
    """

    rows: pl.DataFrame | None
    models: dict[str, Any]


def rows_of(records: Records, target: str) -> pl.DataFrame:
    """Return records as a frame with their labels."""
    return records.frame.with_columns(pl.Series(target, np.asarray(records.labels).tolist()))


def make(task: Task, candidate: Candidate, members: Records, seed: int) -> Made:
    """Protect the members, and train every model on what is published."""
    if candidate.plan is not None and candidate.plan.command == "train":
        model = call("the recipe", RunRecipe(candidate.plan), members, seed)
        return Made(None, {task.models[0]: model})
    if candidate.anonymizes:
        return _anonymous(task, candidate, members, seed)
    if candidate.plan is not None:
        rows = call("the recipe", RunRecipe(candidate.plan), Records(rows_of(members, task.target)), seed)
        rows = _with_labels(rows if candidate.makes_up else rows.sort(rows.columns), task)
        return Made(rows, _models(task, rows, None, seed))
    models = {
        name: call("the training", procedure_of(name, _protect(candidate), task.table, task.target), members, seed)
        for name in task.models
    }
    if not candidate.publishes_rows:
        return Made(None, models)
    if candidate.name == "raw":
        return Made(rows_of(members, task.target), models)
    drawn: pl.DataFrame = models[task.models[0]].generator_.table.to_polars()
    (label,) = [name for name in drawn.columns if name not in members.frame.columns]
    return Made(_with_labels(drawn.rename({label: task.target}), task), models)


def _with_labels(rows: pl.DataFrame, task: Task) -> pl.DataFrame:
    """Return rows whose labels have the type of the table's: made-up ones may be texts of numbers."""
    if task.target not in rows.columns or rows.schema[task.target] != pl.String:
        return rows
    known = {canonical_text(str(one)): one for one in task.table.column(task.target).unique().to_list()}
    labels = [None if one is None else known.get(canonical_text(one)) for one in rows[task.target].to_list()]
    return rows.with_columns(pl.Series(task.target, labels))


def _protect(candidate: Candidate) -> str | None:
    return None if candidate.name == "raw" else str(candidate)


def _anonymous(task: Task, candidate: Candidate, members: Records, seed: int) -> Made:
    """Anonymize the rows. Groups are published by their medians, so that models and analyses read them like rows."""
    if candidate.plan is None:
        name, parameters = candidate.parts[0]
        method = as_method(name)
        guarantees: list[Any] = as_guarantees(",".join(f"{key}={value}" for key, value in parameters))
    else:
        asked, method, _ = read_plan(candidate.plan)
        guarantees = list(asked)
    by_value = "output" in method.get_params()
    if by_value:
        method = method.set_params(output=Output.MEDIAN)
    rows = rows_of(members, task.target)
    schema = Schema(task.table.schema[name] for name in rows.columns)
    release = anonymize(Table(rows, schema), guarantees, method=method)
    released: pl.DataFrame = release.table.to_polars()
    released = released.sort(released.columns)  # it was shuffled
    protect = str(candidate) if candidate.plan is None and not candidate.publishes_rows else None
    if by_value:
        models = _models(task, released, protect, seed)
    else:  # hierarchies' texts and suppressed cells: the rows to predict are recoded too
        features = Schema(one for one in schema.columns if one.name != task.target)
        features = with_domains(features, task.table)  # other rows may have categories that these lack
        models = {
            name: call(
                "the training",
                FitEstimator(
                    AnonymousTraining(
                        estimator_of(name, protect, task.table, task.target)[0], method, guarantees, features
                    ),
                    columns=features.names,
                ),
                members,
                seed,
            )
            for name in task.models
        }
    return Made(released if candidate.publishes_rows else None, models)


def _models(task: Task, rows: pl.DataFrame, protect: str | None, seed: int) -> dict[str, Any]:
    """Train the models on released rows."""
    if task.target not in rows.columns:
        raise InputError(f"the target '{task.target}' is not released, so that no model can be trained")
    kept = [one for one in task.table.schema.columns if one.name in rows.columns and not one.role.is_identifier]
    table = Table(task.table.to_polars().select(one.name for one in kept), Schema(kept))
    known = rows.drop_nulls(task.target)
    features = features_of(table, task.target)
    labels = known[task.target].cast(table.to_polars().schema[task.target], strict=False)
    records = Records(known.select(features), np.asarray(labels.to_list()))
    return {
        name: call(
            "the training",
            FitEstimator(estimator_of(name, protect, table, task.target)[0], columns=features),
            records,
            seed,
        )
        for name in task.models
    }

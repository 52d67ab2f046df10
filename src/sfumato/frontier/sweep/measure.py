"""Measure one protection with one seed: make it from the training rows, attack it, and test what it is good for.

A seed decides the split of the rows: half of them are for training (the members), a quarter are the control of the
attacks, and a quarter test the model. All protections of a seed see the same rows and the same attackers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.base import AttackResult, Records, result_of
from sfumato.attacks.catalogue import attacks_of
from sfumato.attacks.procedures import records_of
from sfumato.attacks.report import run_attacks
from sfumato.attacks.tables.linkage import Linkage
from sfumato.attacks.targets import ModelTarget, SyntheticTarget, TableTarget
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.errors import InputError
from sfumato.frontier.sweep.analysis import Analysis, numbers_of
from sfumato.frontier.sweep.grid import Candidate
from sfumato.frontier.sweep.make import make, rows_of
from sfumato.measures.assess import assess
from sfumato.measures.loss.generalised import pair
from sfumato.measures.loss.marginals import distances_of
from sfumato.measures.loss.transfer import roc_auc
from sfumato.measures.loss.utility import affordable, query_error_of

__all__ = ["ATTACKS", "Task", "measure"]

ATTACKS = ("loss", "gap", "linkage", "inference")
"""The attacks that are run by default: each takes about a second."""
_FEWEST = 40
_CURVE = 33  # points of a stored ROC
_RATE = 0.01
_QUERIES = 200

Figures = dict[str, tuple[float, float]]
"""A measured number and its standard error by sampling, by name."""


@dataclass(frozen=True, eq=False)
class Task:
    """What every protection is measured on, and how.

    Attributes
    ----------
    table : all rows, with the roles of the columns
    target : the column that models predict
    models : the first is attacked, and all are tested
    attacks : their names
    analyses : the user's own, by name: functions of a frame that return a number, or numbers by name
    """

    table: Table
    target: str
    models: tuple[str, ...]
    attacks: tuple[str, ...]
    analyses: Mapping[str, Analysis] = field(default_factory=dict)


def measure(task: Task, candidate: Candidate, seed: int) -> dict[str, Any]:
    """Return the risks and utilities of a protection with a seed, and the seconds that it took."""
    began = time.perf_counter()
    records = records_of(task.table, task.target)
    members, control, test = _split(records, seed)
    classes = np.unique(np.asarray(records.labels))  # a rare one may be in one part only
    risk: Figures = {}
    utility: Figures = {}
    roc: list[tuple[float, float]] = []
    release = make(task, candidate, members, seed)
    made = time.perf_counter() - began
    released = release.rows
    for number, (model, fitted) in enumerate(release.models.items()):
        target = ModelTarget(fitted, classes=classes, sensitive=())
        suffix = f":{model}" if number else ""
        utility |= {f"{name}{suffix}": figure for name, figure in _scores(target, test).items()}
        if number == 0:
            found, roc = _membership(task, target, members, control, seed)
            risk |= found
    if released is None:
        risk["re_identification"] = 0.0, 0.0  # no row is released
    else:
        risk |= _of_rows(task, candidate, released, members, control, seed)
        utility |= _kept(task, candidate, released, members, seed)
    return {"risk": risk, "utility": utility, "roc": roc, "seconds": time.perf_counter() - began, "made": made}


def _split(records: Records, seed: int) -> tuple[Records, Records, Records]:
    rows = len(records)
    if rows < _FEWEST:
        raise InputError(f"exploring needs at least {_FEWEST} rows, and got {rows}")
    order = np.random.default_rng((seed, 2)).permutation(rows)
    ends = (0, rows // 2, 3 * rows // 4, rows)
    train, control, test = (records.take(np.sort(order[a:b])) for a, b in itertools.pairwise(ends))
    return train, control, test


def _scores(target: ModelTarget, test: Records) -> Figures:
    """Return the accuracy and the AUC of a model; of several classes, the mean of each against the others."""
    codes, likely = target.codes(test), target.probabilities(test)
    accuracy = target.accuracy(test)
    found = [roc_auc(likely[:, code], codes == code) for code in range(len(target.classes))]
    known = [one for one in found if one is not None]
    figures = {"accuracy": _share(accuracy, len(test))}
    return figures | ({"auc": _share(float(np.mean(known)), len(test))} if known else {})


def _share(value: float, trials: int) -> tuple[float, float]:
    return value, float(np.sqrt(max(value * (1 - value), 0.25 / trials) / trials))


def _membership(
    task: Task, target: ModelTarget, members: Records, control: Records, seed: int
) -> tuple[Figures, list[tuple[float, float]]]:
    """Measure the strongest membership attack on the model, and the ROC of that with the largest AUC."""
    report = run_attacks(_fit(task.attacks, "model"), target, members, control, seed=seed)
    results = [one for one in report.results if not one.guesses]
    if not results:
        return {}, []
    error = float(np.sqrt(0.25 / len(members) + 0.25 / len(control)))
    rates = [rate.tpr for one in results if (rate := one.rates[_RATE]) is not None]
    roc = max(results, key=lambda one: one.auc).roc
    across = np.geomspace(max(1e-4, 1 / roc.nonmembers), 1, _CURVE)
    across[-1] = 1.0
    figures = {
        "membership_auc": (max(one.auc for one in results), error / np.sqrt(3)),
        "membership_advantage": (max(one.decisions.advantage for one in results), error),
        **({f"tpr_at_{_RATE:g}": (max(rates), float(np.sqrt(_RATE / len(control))))} if rates else {}),
    }
    return figures, list(zip(across.tolist(), roc.curve(across).tolist(), strict=True))


def _fit(names: Sequence[str], kind: str) -> list[Any]:
    return [one for one in attacks_of(names) if kind in one.targets]


def _of_rows(
    task: Task, candidate: Candidate, released: pl.DataFrame, members: Records, control: Records, seed: int
) -> Figures:
    """Measure linkage with the released rows, and guesses of sensitive values from them."""
    inside, outside = (Records(rows_of(one, task.target).select(released.columns)) for one in (members, control))
    schema = Schema(task.table.schema[name] for name in released.columns)
    synthetic = candidate.makes_up
    target = (SyntheticTarget if synthetic else TableTarget)(released, schema)
    figures: Figures = {}
    if "linkage" in task.attacks and schema.quasi:
        link = Linkage()  # also of synthetic rows, which may copy people
        found = result_of(link, [link.run(target, inside, outside, seed)], seed=seed)
        figures["linkage"] = _gain(found), _error(found)
    others = _fit([one for one in task.attacks if one != "linkage"], target.kind)
    guessed = [one for one in run_attacks(others, target, inside, outside, seed=seed).results if one.guesses]
    if guessed:
        worst = max(guessed, key=_gain)
        figures["attribute_inference"] = _gain(worst), _error(worst)
    if synthetic and "linkage" in figures:
        gain, error = figures["linkage"]
        figures["re_identification"] = max(gain, 0.0), error
    elif not synthetic and schema.quasi:
        known = Table(released.select(schema.quasi), Schema(schema[name] for name in schema.quasi))
        figures["re_identification"] = 1 / assess(known).k, 0.0
    return figures


def _error(result: AttackResult) -> float:
    return float(np.sqrt(0.5 / min(result.decisions.members, result.decisions.nonmembers)))


def _gain(result: AttackResult) -> float:
    """Return the share of right guesses about members, above others and above guessing without the release."""
    return result.accuracy - max(result.baseline.accuracy, result.decisions.false_positive_rate)


def _kept(task: Task, candidate: Candidate, released: pl.DataFrame, members: Records, seed: int) -> Figures:
    """Return the distances, the query error, and what the user's own analyses give."""
    rows = rows_of(members, task.target)
    kept, _ = affordable(Table(rows, Schema(task.table.schema[name] for name in rows.columns)), list(released.columns))
    names = [name for name in released.columns if name in kept]
    original = Table(rows.select(names), Schema(task.table.schema[name] for name in names))  # with its hierarchies
    both = pair(original, released.select(names), names, generalised=candidate.anonymizes)
    distances = distances_of(both, 10, quantiles=True)
    asked = query_error_of(both, queries=_QUERIES, dimensions=min(3, len(names)), rescale=True, seed=seed)
    figures: Figures = {"query_error": (asked.mean, 0.0)}
    if distances.mean_of_pairs is not None:
        figures["pair_distance"] = distances.mean_of_pairs, 0.0
    for name, analysis in task.analyses.items():
        figures |= {key: (value, 0.0) for key, value in numbers_of(name, analysis, released).items()}
    return figures

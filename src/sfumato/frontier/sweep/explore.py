"""Explore which protection to take: every protection on the same data, judged by the same attackers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.catalogue import attacks_of
from sfumato.attacks.protections import MODELS, texts_in
from sfumato.budget.ledger.ledger import Ledger
from sfumato.data import datasets
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real, whole
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.frontier.sweep.analysis import Analysis, analysis_of
from sfumato.frontier.sweep.choose import Limits
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.frontier.sweep.grid import DEFAULTS, Candidate, candidates_of
from sfumato.frontier.sweep.measure import ATTACKS, Task
from sfumato.frontier.sweep.point import Figure, Point, with_common_spread
from sfumato.frontier.sweep.run import Runner
from sfumato.measures.people import keys_of, people_of

__all__ = ["explore"]

_MOST_CLASSES = 200
_MOST_CELLS = 250_000_000
"""Most cells of the categories of the training rows as indicators, of 4 bytes each: a gigabyte per process."""


def explore(
    data: Any,
    *,
    target: str | None = None,
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    keep: Sequence[str] = (),
    protections: Sequence[str] = DEFAULTS,
    attacks: Sequence[str] = ATTACKS,
    utilities: Sequence[str | Callable[..., Any]] = ("forest",),
    max_risk: float | None = None,
    max_advantage: float | None = None,
    min_accuracy: float | None = None,
    bisect: bool = False,
    seeds: int = 3,
    seed: int = 0,
    jobs: int = 2,
    folder: str | Path | None = None,
    rows_are_units: bool = False,
    public: bool = False,
    uncharged: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Frontier:
    """Measure the risk and the utility of protections over their parameters, and recommend one.

    Each seed divides the rows: half are protected, a quarter are the control of the attacks, and a quarter test the
    models. All protections see the same rows and the same attackers. The figures are exact, so they are for the owner
    of the data: no epsilon covers them, nor a choice that is made with them. If a budget was granted for the data,
    declare that the choice is ``uncharged``, or that the data are ``public``.

    Parameters
    ----------
    data : Table, frame, path, or the name of a built-in table
        The rows on which the protections are compared.
    target : str, optional
        The column that models predict; that of the schema by default.
    qi, sensitive, identifiers, keep : sequence of str
        The roles of the columns, as in `sf.anonymize`; those of the schema by default.
    protections : sequence of str
        ``"raw"``, ``"dp"``, ``"synthetic"``, or a method of `sf.anonymize` or `sf.synthesize`; with values
        (``"mondrian:k=5,50"``), a range (``"dp:epsilon=0.1..10"``), or without parameters for a default grid. Or the
        recipe of any release that can be made again from other rows, with values for its options:
        ``"masked/recipe.toml:scale=0.1,0.5"``. Groups of rows are published by their medians, where they can be.
    attacks : sequence of str
        See `sfumato.attacks.ATTACKS`; those that do not fit a protection are left out there.
    utilities : sequence of str or callable
        Models (``"forest"``, ``"tree"``, ``"mlp"``, ``"boosting"``), of which the first is also attacked, and your own
        analyses of the released rows: functions of a Polars frame that return a number, or numbers by name;
        ``"module:function"``; or ``"script.py"``, which is run in a process of its own with the path of a CSV file, and
        prints such numbers as JSON. An analysis is known again by its source text.
    max_risk, max_advantage, min_accuracy : float, optional
        Limits of the recommendation: of the re-identification risk (1/k), of the membership advantage, and of the
        accuracy. Each must hold with 95 % confidence when the protection is measured again.
    bisect : bool
        Measure only what decides the choice: of each protection, the weakest parameter that keeps the limits of risks
        is found by bisection, assuming that less protection is more risk.
    seeds : int
        The number of seeds, ``seed`` and those after it.
    seed : int
        Of the divisions of the rows, the models and the attacks; never of privacy noise.
    jobs : int
        The number of processes.
    folder : path, optional
        Keeps every measurement, so that a run that was stopped goes on, and none is made twice.
    rows_are_units : bool
        Whether to protect and attack rows even if a person has several rows; otherwise such a table is an error.
    public : bool
        Whether the data are public, so that the figures may be published.
    uncharged : bool
        Declares that figures and choice stay with the owner of data that have a budget, and are not charged to it.
    progress : callable, optional
        Called with the share of the work that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> people = sf.datasets.adult("test").frame.head(2000)
    >>> found = sf.explore(
    ...     people, target="income", qi=["age", "sex"], keep=["fnlwgt"], protections=["raw", "mondrian:k=5,100"],
    ...     utilities=["tree"], seeds=2, jobs=1, max_risk=0.2,
    ... )
    >>> [point.name for point in found.points], found.recommended.point.name != "raw"
    (['raw', 'mondrian:k=5', 'mondrian:k=100'], True)
    """
    limits = _limits(max_risk, max_advantage, min_accuracy)
    whole("the number of seeds", seeds, most=100)
    whole("the seed", seed, least=0, most=2**31 - 1 - 100)
    whole("the number of jobs", jobs, most=1024)
    attacks_of(attacks)
    candidates = candidates_of(protections)
    if bisect and limits.risks_only() == Limits():
        raise OptionError("bisect needs a limit of a risk", hint="give max_risk or max_advantage")
    roles = {"qi": qi, "sensitive": sensitive, "identifiers": identifiers, "keep": keep}
    task, name, left_out = _task(data, target, roles, tuple(attacks), utilities, rows_are_units)
    budget = None if public or (isinstance(data, str) and _is_built_in(data)) else _budget_of(data, uncharged)
    runner = Runner(task, jobs=jobs, folder=None if folder is None else Path(folder), progress=progress)
    numbers = range(seed, seed + seeds)
    if bisect:
        _search(runner, candidates, numbers, limits)
    else:
        runner.run((one, number) for number in numbers for one in candidates)
    points, skipped = _gather(runner, candidates, numbers)
    if not points and skipped:
        candidate, reason = next(iter(skipped.items()))
        raise InputError(f"no protection could be measured; {candidate}: {reason}")
    facts = {
        "name": name,
        "rows": task.table.rows,
        "target": task.target,
        "guess": _most_frequent(task),
        "qi": list(task.table.schema.quasi),
        "sensitive": list(task.table.schema.sensitive),
        "identifiers": left_out,
        "keep": [one.name for one in task.table.schema.columns if one.role is Role.KEPT],
        "models": list(task.models),
        "attacks": list(task.attacks),
        "seeds": list(numbers),
        "unchanged": [one.name for one in task.table.schema.columns if one.role in (Role.OTHER, Role.KEPT)],
        "budget": budget,
        "analyses": [one for one in utilities if isinstance(one, str) and _is_analysis(one)],
        "considered": len(candidates),
        "rows_are_units": rows_are_units,
        **_columns(task.table, data),
        "measurements": {"asked": len(candidates) * seeds, "run": len(runner.results)},
    }
    return Frontier(points, facts, skipped, public, limits)


def _is_built_in(name: str) -> bool:
    return name in datasets.TABLES and not Path(name).exists()


def _budget_of(data: Any, uncharged: bool) -> str | None:
    """Return the budget that was granted for the data; without a declaration, its rows may not be read exactly."""
    ledger = Ledger.find(data)
    if ledger is None:
        return None
    with ledger:
        limit = str(ledger.limit)
    if not uncharged:
        raise OptionError(
            f"the data have a budget ({limit}), and exploring reads them without noise, which no budget covers",
            hint="declare with uncharged / --uncharged that figures and choice stay with you",
        )
    return limit


def _limits(max_risk: float | None, max_advantage: float | None, min_accuracy: float | None) -> Limits:
    given = {"max_risk": max_risk, "max_advantage": max_advantage, "min_accuracy": min_accuracy}
    for name, value in given.items():
        if value is not None:
            real(name, value, least=0, most=1)
    return Limits(**given)


def _task(
    data: Any,
    target: str | None,
    roles: Mapping[str, Sequence[str]],
    attacks: tuple[str, ...],
    utilities: Sequence[Any],
    rows_are_units: bool,
) -> tuple[Task, str, list[str]]:
    """Return the task, the name of the data, and the identifiers that it leaves out."""
    built_in = isinstance(data, str) and _is_built_in(data)
    table = datasets.without_split(datasets.TABLES[data]()) if built_in else Table.of(data)
    name = str(data) if built_in or isinstance(data, Path) else table.origin.name if table.origin else "table.csv"
    predicted = target or table.schema.target or (datasets.TARGETS.get(name) if built_in else None)
    if predicted is None:
        raise OptionError("the column that models predict is not named", hint="name it with --target")
    if predicted not in table.schema.names:
        raise ColumnError(f"there is no column '{predicted}'", hint=did_you_mean(predicted, table.schema.names))
    given: dict[str, Any] = {role: list(names) for role, names in roles.items()}
    table = Table.of(table, target=predicted, **given)
    table.schema.refuse_person("exploring")
    people = None if rows_are_units else people_of(table, keys_of(table))
    if people is not None and people.repeat:
        raise InputError(
            f"{people.rows:,} rows are of {people.people:,} people ('{people.identifier}' repeats), so all figures "
            "would be about rows and not people",
            hint="use a table with one row per person, or protect rows instead with rows_are_units / --rows-are-units",
        )
    models = tuple(one for one in utilities if isinstance(one, str) and not _is_analysis(one))
    for one in models:
        if one not in MODELS:
            raise OptionError(f"there is no model '{one}'", hint=did_you_mean(one, MODELS))
    analyses = [analysis_of(one) for one in utilities if isinstance(one, str) and _is_analysis(one)]
    analyses += [(getattr(one, "__name__", "analysis"), one) for one in utilities if callable(one)]
    own: dict[str, Analysis] = {}
    for label, analysis in analyses:
        if label in own:
            raise OptionError(f"two analyses are named '{label}'", hint="rename one of them")
        own[label] = analysis
    if not models:
        models = ("forest",)
    kept = [name for name in table.schema.names if name not in table.schema.identifiers]
    frame = table.to_polars().select(kept).drop_nulls(predicted)
    frame = frame.drop_nans(predicted) if frame.schema[predicted].is_float() else frame
    _check_classes(frame[predicted])
    _check_size(frame.drop(predicted))
    columns = {one: _with_kind(table.schema[one], frame.schema[one]) for one in kept}
    if columns[predicted].kind is not Kind.ORDINAL:  # also 0 and 1 are classes
        columns[predicted] = replace(columns[predicted], kind=Kind.CATEGORY, bounds=None)
    rows = Table(frame, Schema(columns.values()))
    return Task(rows, predicted, models, attacks, own), name, list(table.schema.identifiers)


def _check_classes(labels: pl.Series) -> None:
    """Refuse a target whose values are no classes."""
    hint = "make classes of it, such as low, middle and high, or name another target"
    whole_numbers = not labels.dtype.is_float() or bool((labels == labels.round()).all())
    if labels.dtype.is_temporal() or labels.dtype.is_decimal() or not whole_numbers:
        held = "dates or times" if labels.dtype.is_temporal() else "decimal numbers"
        raise InputError(f"the target '{labels.name}' holds {held}, and the models predict classes", hint=hint)
    if (classes := labels.n_unique()) > _MOST_CLASSES:
        said = f"the target '{labels.name}' has {classes:,} values"
        raise InputError(f"{said}, and the models predict at most {_MOST_CLASSES} classes", hint=hint)


def _check_size(features: pl.DataFrame) -> None:
    """Refuse texts with so many different values that models of them would not fit into memory."""
    values = {name: features[name].n_unique() for name in texts_in(features)}
    cells = features.height // 2 * sum(values.values())
    if cells > _MOST_CELLS:
        name = max(values, key=lambda one: values[one])
        raise InputError(
            f"column '{name}' has {values[name]:,} different texts in {features.height:,} rows: a model of them needs "
            f"{cells * 4 / 1e9:.1f} GB in each process",
            hint=f"group its values, use fewer rows, or leave it out with identifiers / --identifiers {name}",
        )


def _with_kind(column: Column, found: pl.DataType) -> Column:
    """Return a column with the kind of its cells: the figures are for the owner, so that the rows may decide it."""
    kind = column.kind
    if kind is Kind.AUTO and (found.is_numeric() or found == pl.String):
        kind = Kind.NUMBER if found.is_numeric() else Kind.CATEGORY
    return replace(column, kind=kind, inferred=False)


def _most_frequent(task: Task) -> float:
    """Return the share of the most frequent class: how often a guess without any model is right."""
    counts = task.table.column(task.target).value_counts()["count"].to_list()
    return float(max(counts, default=0)) / max(task.table.rows, 1)


def _columns(table: Table, data: Any) -> dict[str, list[str]]:
    """Return which columns are numbers and which categories: commands that are private ask for a text file's."""
    if isinstance(data, str) and _is_built_in(data):
        return {}
    kinds = {one.name: one.kind for one in table.schema.columns}
    return {
        "numbers": [name for name, kind in kinds.items() if kind is Kind.NUMBER],
        "categories": [name for name, kind in kinds.items() if kind is Kind.CATEGORY],
    }


def _is_analysis(utility: str) -> bool:
    return utility.endswith(".py") or ":" in utility


def _search(runner: Runner, candidates: Sequence[Candidate], seeds: Sequence[int], limits: Limits) -> None:
    """Find the weakest parameter of each protection that keeps the limits of risks.

    First by the measured means, which takes few seeds to tell; then, from there on, the weakest that keeps the limits
    surely: by then, several points tell how much seeds spread.
    """
    among = len(candidates) * (2 if limits.min_accuracy is not None else 1)  # the choice is among all, of all limits
    risks = limits.risks_only()
    families: dict[tuple[Any, ...], list[Candidate]] = defaultdict(list)
    for one in candidates:
        others = tuple(part for part in one.parameters if part[0] not in ("k", "epsilon"))
        families[one.name, others].append(one)
    for family in families.values():
        ordered = sorted(family, key=lambda one: one.strength)  # the weakest first

        def measured(place: int, ordered: Sequence[Candidate] = ordered) -> Point | None:
            runner.run((ordered[place], seed) for seed in seeds)
            points, _ = _gather(runner, ordered, seeds)
            return next((point for point in points if point.candidate == ordered[place]), None)

        def keeps(place: int, find: Callable[[int], Point | None] = measured) -> bool:
            point = find(place)
            return point is None or risks.kept_on_average_by(point)  # what cannot be made is too strong

        def keeps_surely(place: int, find: Callable[[int], Point | None] = measured) -> bool:
            point = find(place)
            return point is None or not risks.broken_by(point, among)

        weakest(keeps_surely, weakest(keeps, 0, len(ordered)), len(ordered))


def weakest(keeps: Callable[[int], bool], first: int, end: int) -> int:
    """Return the first place from which on a condition holds, by bisection; the end if it never does.

    Examples
    --------
    >>> asked = []
    >>> def keeps(place):
    ...     asked.append(place)
    ...     return place >= 6
    >>> weakest(keeps, 0, 10), len(asked)
    (6, 4)
    """
    while first < end:
        middle = (first + end) // 2
        if keeps(middle):
            end = middle
        else:
            first = middle + 1
    return first


def _gather(
    runner: Runner, candidates: Iterable[Candidate], seeds: Sequence[int]
) -> tuple[tuple[Point, ...], dict[str, str]]:
    """Return a point for each protection whose seeds were all measured, and why others could not be."""
    points, skipped = [], {}
    for one in candidates:
        runs = [runner.results[one, seed] for seed in seeds if (one, seed) in runner.results]
        if failed := [run["failed"] for run in runs if "failed" in run]:
            skipped[str(one)] = failed[0]
        elif runs:
            risk, utility = (_figures(run[part] for run in runs) for part in ("risk", "utility"))
            roc = np.mean([run["roc"] for run in runs], axis=0).tolist()
            keys = tuple(filter(None, (runner.key(one, seed) for seed in seeds)))
            made = float(np.mean([run["made"] for run in runs]))
            points.append(Point(one, risk, utility, made, tuple((x, y) for x, y in roc), keys))
    return with_common_spread(points), skipped


def _figures(runs: Iterable[dict[str, Any]]) -> dict[str, Figure]:
    """Return a figure for each name that all runs have."""
    all_runs = list(runs)
    names = [name for name in all_runs[0] if all(name in run for run in all_runs)]
    return {
        name: Figure(tuple(run[name][0] for run in all_runs), float(np.mean([run[name][1] for run in all_runs])))
        for name in names
    }

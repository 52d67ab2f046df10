"""The curves of additive models: what each column adds to a prediction, drawn from the released weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.learners.training.runs import Training
from sfumato.report.charts.lines import Axis, Line, line_chart, line_legend
from sfumato.report.charts.plot import heat_map, legend, split_bars
from sfumato.report.model.outcome import Outcome

__all__ = ["Shapes", "shapes_of"]

Floats = NDArray[np.float64]

_MOST_COLUMNS, _MOST_VALUES, _MOST_CLASSES = 12, 12, 6


@dataclass(frozen=True)
class Shapes:
    """The curves of a training, ready for a page."""

    meaning: str
    """The quantity that a curve adds to."""
    legend: Markup | str
    figures: tuple[tuple[str, str, Markup], ...]
    """The name of a column, a note on it, and its chart."""
    left_out: tuple[str, ...]
    classes_left_out: tuple[str, ...] = ()


def shapes_of(training: Training, runs: Sequence[Outcome]) -> Shapes | None:
    """Draw the curves of additive models, the most influential first; None for other models.

    Of several models, those with the smallest and the largest epsilon (or without privacy) are drawn; with more than
    two classes one model, with a line for each class. Only the weights of the models are read.
    """
    models: list[tuple[Outcome, Any]] = [(one, training.models.get(one.run.name)) for one in runs]
    drawn = [(one, model) for one, model in models if hasattr(model, "curve_of")]
    several = [(one, model) for one, model in drawn if len(getattr(model, "classes_", ())) > 2]
    if several:
        private = [(one, model) for one, model in several if one.private]
        return _of_classes(training, *(private or several)[-1])
    drawn = [drawn[0], drawn[-1]] if len(drawn) > 1 else drawn
    if not drawn:
        return None
    first = drawn[0][1]
    names = [name for name in first.features_.names if all(name in model.features_.names for _, model in drawn)]
    spread = {name: max(_spread(model, name) for _, model in drawn) for name in names}
    ranked = sorted((name for name in names if spread[name] > 0), key=lambda name: -spread[name])
    numbers = {one.name for one in first.features_.features if one.is_number}
    figures = [(name, *(_line if name in numbers else _bars)(name, drawn)) for name in ranked[:_MOST_COLUMNS]]
    classes = getattr(first, "classes_", None)
    what = training.target if classes is None else f"the log-odds that {training.target} is {classes[1]}"
    key = legend(drawn[0][0].label, drawn[-1][0].label) if len(drawn) > 1 else ""
    return Shapes(what, key, tuple(figures), tuple(ranked[_MOST_COLUMNS:])) if figures else None


def _of_classes(training: Training, one: Outcome, model: Any) -> Shapes | None:
    """Draw a curve for each class: relative to the mean of all classes, as probabilities depend on differences only."""
    curves = dict[str, tuple[list[Any], Floats]]()
    for name in model.features_.names:
        places, added = model.curve_of(name)
        if added:
            curves[name] = places, np.asarray(added) - np.mean(added, axis=1, keepdims=True)
    spread = {name: np.ptp(added, axis=0) for name, (_, added) in curves.items()}
    ranked = sorted((name for name in curves if spread[name].max() > 0), key=lambda name: -spread[name].max())
    if not ranked:
        return None
    influence = np.max([spread[name] for name in ranked], axis=0)
    shown = sorted(np.argsort(-influence, kind="stable")[:_MOST_CLASSES].tolist())
    classes = [str(label) for label in model.classes_]
    labels = [classes[at] for at in shown]
    numbers = {column.name for column in model.features_.features if column.is_number}
    figures = []
    for name in ranked[:_MOST_COLUMNS]:
        places, added = curves[name]
        figures.append((name, *(_lines if name in numbers else _grid)(name, places, added[:, shown], labels)))
    what = f"the score of each class of {training.target}, compared with the mean of all classes ({one.label})"
    others = tuple(label for at, label in enumerate(classes) if at not in shown)
    key = line_legend(labels) if numbers.intersection(ranked[:_MOST_COLUMNS]) else ""  # a grid names its classes
    return Shapes(what, key, tuple(figures), tuple(ranked[_MOST_COLUMNS:]), others)


def _lines(name: str, edges: list[Any], added: Floats, labels: Sequence[str]) -> tuple[str, Markup]:
    """Draw the curves of a number as steps."""
    lines = []
    for style, (label, heights) in enumerate(zip(labels, added.T, strict=True)):
        steps = zip(pairwise(edges), heights.tolist(), strict=True)
        lines.append(Line(label, [(at, height) for ends, height in steps for at in ends], style))
    return "", line_chart(f"What {name} adds", lines, Axis(name, tick=_tick), Axis(tick=_tick), labels="none")


def _grid(name: str, values: list[Any], added: Floats, labels: Sequence[str]) -> tuple[str, Markup]:
    """Draw the curves of a category as a grid: the values that matter most by the classes."""
    ranked = sorted(range(len(values)), key=lambda at: -float(np.abs(added[at]).max()))[:_MOST_VALUES]
    order = sorted(ranked)
    note = f"the {len(order)} of {len(values)} values that matter most" if len(order) < len(values) else ""
    cells = [[float(number) for number in added[at]] for at in order]
    full = float(np.abs(added).max()) or 1.0
    grid = heat_map(
        f"What {name} adds", [str(values[at]) for at in order], labels, cells, full=full, signed=True, write=_signed
    )
    return note, grid


def _signed(number: float) -> str:
    return f"{number:+.1f}".replace("-", "−") if abs(number) >= 0.05 else "0"


def _spread(model: Any, name: str) -> float:
    _, added = model.curve_of(name)
    return max(added) - min(added) if added else 0.0


def _line(name: str, drawn: Sequence[tuple[Outcome, Any]]) -> tuple[str, Markup]:
    """Draw the curve of a number as steps."""
    lines = []
    for one, model in drawn:
        edges, added = model.curve_of(name)
        steps = zip(pairwise(edges), added, strict=True)
        lines.append(Line(one.label, [(at, height) for ends, height in steps for at in ends], one.style))
    return "", line_chart(f"What {name} adds", lines, Axis(name, tick=_tick), Axis(tick=_tick), labels="below")


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _bars(name: str, drawn: Sequence[tuple[Outcome, Any]]) -> tuple[str, Markup]:
    """Draw the curve of a category as bars to both sides: the values that add or subtract most."""
    curves = [dict(zip(*model.curve_of(name), strict=True)) for _, model in drawn]
    values = sorted(set.intersection(*map(set, curves)), key=lambda value: (-curves[0][value], value))
    few = _MOST_VALUES // 2
    shown = values if len(values) <= _MOST_VALUES else values[:few] + values[-few:]
    kinds = ("before", "after") if len(drawn) > 1 else ("after",)
    rows = [
        (value, [(curve[value], f"{curve[value]:+.2f}", kind) for curve, kind in zip(curves, kinds, strict=True)])
        for value in shown
    ]
    note = f"the {len(shown)} of {len(values)} values that add or subtract most" if len(shown) < len(values) else ""
    return note, split_bars(f"What {name} adds", rows, then=drawn[-1][0].label)

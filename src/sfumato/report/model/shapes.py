"""The curves of additive models: what each column adds to a prediction, drawn from the released weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from sfumato.learners.training.runs import Training
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import legend, split_bars
from sfumato.report.model.outcome import Outcome

__all__ = ["Shapes", "shapes_of"]

_MOST_COLUMNS, _MOST_VALUES = 12, 12


@dataclass(frozen=True)
class Shapes:
    """The curves of a training, ready for a page."""

    meaning: str
    """The quantity that a curve adds to."""
    legend: Markup | str
    figures: tuple[tuple[str, str, Markup], ...]
    """The name of a column, a note on it, and its chart."""
    left_out: tuple[str, ...]


def shapes_of(training: Training, runs: Sequence[Outcome]) -> Shapes | None:
    """Draw the curves of additive models, the most influential first; None for other models or many classes.

    Of several models, those with the smallest and the largest epsilon (or without privacy) are drawn. Only the weights
    of the models are read.
    """
    models: list[tuple[Outcome, Any]] = [(one, training.models.get(one.run.name)) for one in runs]
    drawn = [(one, model) for one, model in models if hasattr(model, "curve_of")]
    drawn = [drawn[0], drawn[-1]] if len(drawn) > 1 else drawn
    if not drawn or not all(_is_flat(model) for _, model in drawn):
        return None
    first = drawn[0][1]
    names = [name for name in first.features_.names if all(name in model.features_.names for _, model in drawn)]
    spread = {name: max(_spread(model, name) for _, model in drawn) for name in names}
    ranked = sorted((name for name in names if spread[name] > 0), key=lambda name: -spread[name])
    figures = []
    for name in ranked[:_MOST_COLUMNS]:
        is_number = first.features_.features[first.features_.names.index(name)].is_number
        figures.append((name, *(_line if is_number else _bars)(name, drawn)))
    classes = getattr(first, "classes_", None)
    what = training.target if classes is None else f"the log-odds that {training.target} is {classes[1]}"
    key = legend(drawn[0][0].label, drawn[-1][0].label) if len(drawn) > 1 else ""
    return Shapes(what, key, tuple(figures), tuple(ranked[_MOST_COLUMNS:])) if figures else None


def _is_flat(model: Any) -> bool:
    """Return whether a bin of the model adds one number: to a prediction, or to the odds of two classes."""
    classes = getattr(model, "classes_", None)
    return classes is None or len(classes) == 2


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

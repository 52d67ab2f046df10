"""The page of the frontier: the recommendation in words, linked charts, all points, and the runs behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from sfumato.errors import OptionError
from sfumato.frontier.sweep.choose import measuring_command, release_command
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.frontier.sweep.markdown import by_reason
from sfumato.frontier.sweep.point import Figure, Point
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import bar_list
from sfumato.report.page import fill
from sfumato.report.summarise import percent

__all__ = ["charts_of", "columns_of", "headline_of", "reason_of", "render_frontier"]

COLUMNS = (
    ("accuracy", "Accuracy"),
    ("auc", "AUC"),
    ("re_identification", "1/k"),
    ("membership_auc", "Membership AUC"),
    ("membership_advantage", "Advantage"),
    ("attribute_inference", "Attribute gain"),
    ("linkage", "Linkage gain"),
    ("query_error", "Query error"),
)
_OTHERS = ("pair_distance",)
_LABELS = {
    "qi": "others know",
    "measurements": "runs",
    "keep": "kept",
    "unchanged": "not changed",
    "reading": "read with",
    "guess": "most frequent class",
    "rows_are_units": "rows are protected, not people",
}
_CURVES = 6  # in the chart of ROC
Chart = tuple[str, str, Markup]


def render_frontier(frontier: Frontier, *, title: str = "Which protection to take") -> str:
    """Return the frontier as an HTML page.

    Examples
    --------
    >>> from sfumato.frontier import Frontier
    >>> "No protection could be measured" in render_frontier(Frontier((), {"rows": 0}))
    True
    """
    chosen = frontier.recommended
    columns = columns_of(frontier)
    return fill(
        "frontier.html",
        title=title,
        headline=headline_of(frontier),
        good=None if chosen.point is None else True,
        reason=reason_of(frontier),
        command=chosen.command,
        cautions=_cautions(frontier),
        charts=charts_of(frontier),
        columns=[words for _, words in columns],
        rows=_rows(frontier, [name for name, _ in columns]),
        chosen=None if chosen.point is None else chosen.point.name,
        runs=[_run(frontier, number, point) for number, point in enumerate(frontier.points)],
        skipped=by_reason(frontier.skipped),
        how=[(_LABELS.get(name, name), _words(value)) for name, value in frontier.data.items() if value],
    )


def headline_of(frontier: Frontier) -> str:
    """Return the recommendation in one sentence."""
    chosen = frontier.recommended
    if chosen.point is None:
        return f"{chosen.reason.partition('. ')[0].removesuffix('.')}."
    return f"Take {chosen.point.name}: publish {chosen.point.candidate.words}."


def reason_of(frontier: Frontier) -> str:
    """Return why, in some sentences after the headline."""
    chosen = frontier.recommended
    return chosen.reason if chosen.point is not None else chosen.reason.partition(". ")[2]


def _cautions(frontier: Frontier) -> list[str]:
    """Say what the recommendation does not cover."""
    cautions = [f"These are {frontier.note}.", frontier.charging]
    chosen = frontier.recommended.point
    if chosen is not None and "+" in chosen.candidate.name:
        cautions.append(f"What is guaranteed: {chosen.candidate.guarantee}.")
    is_private = chosen is not None and chosen.candidate.parts[-1][0] in ("dp", "synthetic")
    if is_private and (frontier.data.get("numbers") or frontier.data.get("categories")):
        cautions.append(
            "Bounds and categories that no schema declares were read from the rows here: the command pays for them "
            "with a part of epsilon, so that its release may be less accurate. Declare what is public in a schema."
        )
    if attackers := frontier.data.get("attacks"):
        cautions.append(f"The attackers were {', '.join(attackers)}: a stronger one may find more.")
    return cautions


def columns_of(frontier: Frontier) -> list[tuple[str, str]]:
    """Return the figures that were measured of any point: those of each frontier, and the user's own."""
    names = {name for point in frontier.points for name in (*point.risk, *point.utility)}
    known = [name for name, _ in COLUMNS]
    own = sorted(name for name in names if name not in (*known, *_OTHERS) and not name.startswith("tpr_at_"))
    return [(name, words) for name, words in COLUMNS if name in names] + [(name, name) for name in own]


def charts_of(frontier: Frontier) -> list[Chart]:
    """Return the charts that can be drawn, each with its name and a note."""
    pareto = "The dotted line joins the points that no other beats; the crosses are 95 % intervals."
    charts = [
        ("Accuracy against membership advantage", pareto, _risks(frontier, "membership_advantage")),
        ("Accuracy against the risk to be re-identified", pareto, _risks(frontier, "re_identification")),
        ("Accuracy against k", "More people look alike to the right.", _against(frontier, "k")),
        ("Accuracy against epsilon", "More noise to the left.", _against(frontier, "epsilon")),
        (
            "The strongest membership attack",
            "Members found, by false alarms; both axes are logarithmic. The dotted line is guessing.",
            _roc(frontier),
        ),
        ("Time per protection", "To make the release and train on it: the mean, in seconds.", _seconds(frontier)),
    ]
    return [(name, note, chart) for name, note, chart in charts if chart is not None]


def _families(frontier: Frontier) -> dict[str, list[tuple[int, Point]]]:
    found: dict[str, list[tuple[int, Point]]] = defaultdict(list)
    for number, point in enumerate(frontier.points):
        found[point.candidate.family].append((number, point))
    return found


def _risks(frontier: Frontier, risk: str) -> Markup | None:
    """Draw the utility of each protection against a risk, with the Pareto set as a dotted line."""
    able = [one.risk[risk].mean for one in frontier.points if risk in one.risk and "accuracy" in one.utility]
    if not able:
        return None
    log = risk == "re_identification"
    floor = min((one for one in able if one > 0), default=1.0) / 3  # where a logarithmic axis has its 0

    def place(value: float) -> float:
        return max(value, floor) if log else value

    lines = []
    for number, (name, points) in enumerate(_families(frontier).items()):
        known = [(at, one.risk[risk], one.utility["accuracy"]) for at, one in points if _has(one, risk, "accuracy")]
        places = [(place(x.mean), y.mean) for _, x, y in known]
        ends = [(_ends(x), _ends(y)) for _, x, y in known]
        bars = [(place(left), place(right), low, high) for (left, right), (low, high) in ends]
        lines.append(Line(name, places, number, joined=False, bars=bars, tags=[str(at) for at, _, _ in known]))
    try:
        best = sorted((place(one.risk[risk].mean), one.utility["accuracy"].mean) for one in frontier.pareto(risk))
    except OptionError:
        best = []
    lines.append(Line("no other is better", best, None, marked=False))
    lines += _ring(frontier, lambda one: place(one.risk[risk].mean) if risk in one.risk else None)
    written = (lambda value: "0" if value <= floor else f"{value:.3g}") if log else "{:.3f}".format
    ticks = [floor, *(one for one in (0.001, 0.01, 0.1, 1.0) if one > floor)] if log else []
    tick = (lambda value: "0" if value <= floor else f"{value:g}") if log else "{:.4g}".format
    label = "re-identification risk" if log else "membership advantage"
    across = Axis(label, text=written, tick=tick, log=log, at=ticks)
    return line_chart(f"Accuracy against {label}", lines, across, Axis(text=percent, tick=_short), labels="below")


def _ring(frontier: Frontier, across: Callable[[Point], float | None]) -> list[Line]:
    """Return the ring around the recommended point, if it is in the chart."""
    chosen = frontier.recommended.point
    place = None if chosen is None else across(chosen)
    if chosen is None or place is None:
        return []
    return [Line("recommended", [(place, chosen.utility["accuracy"].mean)], ringed=True, joined=False)]


def _has(point: Point, risk: str, utility: str) -> bool:
    return risk in point.risk and utility in point.utility


def _ends(figure: Figure) -> tuple[float, float]:
    reach = figure.reach()
    return figure.mean - reach, figure.mean + reach


def _short(share: float) -> str:
    return f"{100 * share:g}%"


def _against(frontier: Frontier, key: str) -> Markup | None:
    """Draw the accuracy of each protection against a parameter."""
    lines = []
    for number, (name, points) in enumerate(_families(frontier).items()):
        known = sorted(
            (value, at, one.utility["accuracy"])
            for at, one in points
            if (value := one.candidate.number(key)) is not None and "accuracy" in one.utility
        )
        if known:
            band = [(x, *_ends(y)) for x, _, y in known] if len(known) > 1 else []
            places = [(x, y.mean) for x, _, y in known]
            lines.append(Line(name, places, number, band=band, tags=[str(at) for _, at, _ in known]))
    if not lines:
        return None
    lines += _ring(frontier, lambda one: one.candidate.number(key))
    down = Axis(text=percent, tick=_short)
    return line_chart(f"Accuracy against {key}", lines, Axis(key, log=True), down, labels="below")


def _roc(frontier: Frontier) -> Markup | None:
    """Draw the ROC of raw data, of the recommended protection, and of the most accurate of others."""
    chosen = frontier.recommended.point
    ranked = sorted(
        ((number, point) for number, point in enumerate(frontier.points) if point.roc),
        key=lambda one: (
            one[1] is not chosen,
            one[1].candidate.name != "raw",
            -(figure.mean if (figure := one[1].utility.get("accuracy")) else 0.0),
        ),
    )
    shown: dict[str, tuple[int, Point]] = {}
    for number, point in ranked:
        shown.setdefault(point.candidate.family, (number, point))
    if not shown:
        return None
    styles = {name: number for number, name in enumerate(_families(frontier))}
    lines, least = [], 1.0
    for name, (number, point) in list(shown.items())[:_CURVES]:
        least = min(least, point.roc[0][0])
        floor = point.roc[0][0]
        places = [(x, y if y >= floor else None) for x, y in point.roc]
        lines.append(Line(point.name, places, styles[name], tags=[str(number)]))
    lines.append(Line("guessing", [(least, least), (1.0, 1.0)], None, marked=False))
    across = Axis("false alarms", text=percent, tick=_short, log=True)
    down = Axis(text=percent, tick=_short, log=True)
    return line_chart("ROC of the strongest membership attack", lines, across, down, labels="below")


def _seconds(frontier: Frontier) -> Markup | None:
    bars, tags = [], []
    for name, points in _families(frontier).items():
        mean = sum(one.seconds for _, one in points) / len(points)
        bars.append((name, mean, f"{mean:.2f} s"))
        tags.append(" ".join(str(number) for number, _ in points))
    return bar_list("Time per protection", bars, tags=tags) if bars else None


def _rows(frontier: Frontier, names: Sequence[str]) -> list[dict[str, Any]]:
    try:
        best = {point.name for point in frontier.pareto()}
    except OptionError:
        best = set()
    return [
        {
            "number": number,
            "name": point.name,
            "words": point.candidate.words,
            "best": point.name in best,
            "cells": [_cell(point.figure(name)) for name in names],
            "seconds": f"{point.seconds:.2f}",
        }
        for number, point in enumerate(frontier.points)
    ]


def _cell(figure: Figure | None) -> tuple[str, str]:
    """Return a figure and its reach as texts."""
    if figure is None:
        return "-", ""
    reach = figure.reach()
    digits = 3 if abs(figure.mean) < 100 else 1
    return f"{figure.mean:.{digits}f}", f"± {reach:.{digits}f}" if reach >= 0.5 * 10**-digits else ""


def _run(frontier: Frontier, number: int, point: Point) -> dict[str, Any]:
    """Return where the numbers of a point come from: the commands, and the values by seed."""
    seeds = list(frontier.data.get("seeds", range(max(len(next(iter(point.utility.values())).values), 1))))
    values = [
        (name, [f"{value:.4g}" for value in figure.values])
        for name, figure in (*point.risk.items(), *point.utility.items())
    ]
    return {
        "number": number,
        "name": point.name,
        "facts": [
            ("published", point.candidate.words),
            ("guaranteed", point.candidate.guarantee),
            ("to make it", release_command(point.candidate, frontier.data) or "nothing is made"),
            ("to measure it again", measuring_command(point.candidate, frontier.data)),
            ("kept as", ", ".join(f"points/{key}.json" for key in point.keys) or "not kept: there was no folder"),
        ],
        "seeds": ["Figure", *(f"seed {one}" for one in seeds)],
        "values": [(name, *shown) for name, shown in values if len(shown) == len(seeds)],
    }


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, float):
        return percent(value)
    if isinstance(value, dict):
        return ", ".join(f"{number} {name}" for name, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

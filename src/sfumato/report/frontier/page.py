"""The page of the frontier: the recommendation in words, the charts, and all points."""

from __future__ import annotations

from collections import defaultdict

from markupsafe import Markup

from sfumato.frontier.sweep.frontier import Frontier, Point
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import bar_list
from sfumato.report.page import fill
from sfumato.report.summarise import percent

__all__ = ["render_frontier"]

_DOTTED = "The dotted line joins the points that no other beats."
_COLUMNS = (
    ("re_identification", "1/k"),
    ("membership_auc", "Membership AUC"),
    ("membership_advantage", "Advantage"),
    ("attribute_inference", "Attribute gain"),
    ("linkage", "Linkage gain"),
    ("accuracy", "Accuracy"),
    ("auc", "AUC"),
    ("query_error", "Query error"),
)


def render_frontier(frontier: Frontier, *, title: str = "Which protection to take") -> str:
    """Return the frontier as an HTML page.

    Examples
    --------
    >>> from sfumato.frontier import Frontier
    >>> "No protection could be measured" in render_frontier(Frontier((), {"rows": 0}))
    True
    """
    chosen = frontier.recommended
    headline = chosen.reason if chosen.point is None else f"Take {chosen.point.name}."
    facts = [] if chosen.point is None else [chosen.reason]
    facts += [f"To make it: {chosen.command}"] if chosen.command else []
    facts.append(f"These are {frontier.note}.")
    if attackers := frontier.data.get("attacks"):
        facts.append(f"The attackers were {', '.join(attackers)}: a stronger one may find more.")
    charts = [
        (
            "Accuracy against membership advantage",
            _DOTTED,
            _risks(frontier),
        ),
        ("Accuracy against k", "", _against(frontier, "k")),
        ("Accuracy against epsilon", "", _against(frontier, "epsilon")),
    ]
    rows = [(point.name, *_cells(point)) for point in frontier.points]
    return fill(
        "frontier.html",
        title=title,
        headline=headline,
        good=None if chosen.point is None else True,
        facts=facts,
        charts=[one for one in charts if one[2] is not None],
        seconds=_seconds(frontier),
        names=["Protection", *(words for _, words in _COLUMNS), "Seconds"],
        rows=rows,
        skipped=list(frontier.skipped.items()),
        how=[(name.replace("_", " "), str(value)) for name, value in frontier.data.items()],
    )


def _families(frontier: Frontier) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = defaultdict(list)
    for point in frontier.points:
        found[point.candidate.name].append(point)
    return found


def _risks(frontier: Frontier) -> Markup | None:
    """Draw the utility of each protection against its risk, with the Pareto set as a dotted line."""
    lines = []
    for number, (name, points) in enumerate(_families(frontier).items()):
        known = [one for one in points if "membership_advantage" in one.risk]
        places = sorted((one.risk["membership_advantage"].mean, one.utility["accuracy"].mean) for one in known)
        lines.append(Line(name, places, number))
    if not any(line.known for line in lines):
        return None
    best = sorted((one.risk["membership_advantage"].mean, one.utility["accuracy"].mean) for one in frontier.pareto())
    lines.append(Line("no other is better", best, None, marked=False))
    across = Axis("membership advantage", text="{:.3f}".format)
    return line_chart("Accuracy against membership advantage", lines, across, Axis(text=percent), labels="below")


def _against(frontier: Frontier, key: str) -> Markup | None:
    """Draw the accuracy of each protection against a parameter."""
    lines = []
    for number, (name, points) in enumerate(_families(frontier).items()):
        places = []
        for one in points:
            value = one.candidate.number(key)
            if value is not None:
                reach = one.utility["accuracy"].reach()
                places.append((value, one.utility["accuracy"].mean, reach))
        if places:
            places.sort()
            band = [(x, y - reach, y + reach) for x, y, reach in places]
            lines.append(Line(name, [(x, y) for x, y, _ in places], number, band=band))
    if not lines:
        return None
    return line_chart(f"Accuracy against {key}", lines, Axis(key, log=True), Axis(text=percent), labels="below")


def _seconds(frontier: Frontier) -> Markup | None:
    bars = []
    for name, points in _families(frontier).items():
        mean = sum(one.seconds for one in points) / len(points)
        bars.append((name, mean, f"{mean:.2f} s"))
    return bar_list("Time per protection", bars) if bars else None


def _cells(point: Point) -> list[str]:
    texts = []
    for name, _ in _COLUMNS:
        figure = point.risk.get(name) or point.utility.get(name)
        texts.append("-" if figure is None else f"{figure.mean:.3f}")
    return [*texts, f"{point.seconds:.2f}"]

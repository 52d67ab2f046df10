"""Line charts as inline SVG; lines differ in dashes, marks and labels as well as in colour."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from sfumato.report.charts.plot import SMALL, broken, svg

__all__ = ["Axis", "Line", "line_chart", "line_legend"]

# Neighbouring lines differ in each of colour, dashes and mark; combinations repeat after twenty lines.
# A colour is a class of the style sheet, which has one for light and one for dark screens.
_PLAIN = ("c0", "", "circle")
_COLOURS = (("c1", "7 3"), ("c2", "2 3"), ("c3", "9 3 2 3"), ("c4", "4 2"), ("c5", "1 2"))
_MARKS = ("square", "triangle", "diamond", "circle")
_SOFT = "c6"
_Place = Callable[[float], float]
_LARGEST = 1e12  # larger values come from a training that diverged
_FEW = 12  # points of a line that are marked and described


@dataclass(frozen=True)
class Line:
    """A line of a chart; style 0 is plain, None a dotted line for comparison.

    The line is interrupted at points without a height.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    style: int | None = 0
    marked: bool = True
    """Whether its points are data; those of a reference level are not."""
    band: Sequence[tuple[float, float, float]] = ()
    """The bounds of the line as an area: positions, each with its lower and its upper bound."""
    joined: bool = True
    """Whether the points are joined."""
    bars: Sequence[tuple[float, float, float, float]] = ()
    """The interval of each point: lowest and highest position, lowest and highest value."""
    ringed: bool = False
    """Whether the points are only ringed: they are those of other lines."""
    tags: Sequence[str] = ()
    """The number of each point, or one for all of them: what has the same number is highlighted together."""

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points whose height is known."""
        return [(x, y) for x, y in self.points if y is not None and abs(y) < _LARGEST]


@dataclass(frozen=True)
class Axis:
    """An axis of a chart: its name, how values on it are written, and whether it is logarithmic."""

    label: str = ""
    text: Callable[[float], str] = "{:.4g}".format
    tick: Callable[[float], str] = "{:.4g}".format
    """Writes the values at the axis."""
    log: bool = False
    whole: bool = False
    """Whether only whole numbers make sense."""
    at: Sequence[float] = ()
    """The values to write at the axis, instead of round ones."""

    def ticks(self, low: float, high: float) -> list[float]:
        """Return a few round values that enclose the range.

        Examples
        --------
        >>> Axis().ticks(0.12, 0.97), Axis(log=True).ticks(1, 10)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 2.0, 5.0, 10.0])
        """
        if self.log:
            first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            for steps in ((1, 2, 5), (1, 3)):
                ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
                start = max(number for number, one in enumerate(ticks) if one <= low * (1 + 1e-9))
                end = next((number for number, one in enumerate(ticks) if one >= high * (1 - 1e-9)), len(ticks) - 1)
                if end - start < 5:
                    return ticks[start : end + 1]
            every = -(-max(last - first, 1) // 6)
            return [10.0**power for power in range(first, max(last, first + 1) + every, every)]
        largest = max(abs(low), abs(high))
        spread = high - low if high - low > 1e-9 * max(largest, 1e-3) else largest if largest > 1e-9 else 1.0
        power = 10.0 ** math.floor(math.log10(spread / 5))
        step = next(times * power for times in (1, 2, 5, 10) if spread / (times * power) <= 5 * (1 + 1e-9))
        step = max(1.0, step) if self.whole else step
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]

    def scale(self, low: float, high: float, start: float, end: float) -> Callable[[float], float]:
        """Return the function from values to positions."""
        if low == high:
            return lambda value: (start + end) / 2
        if self.log:
            return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)
        return lambda value: start + (end - start) * (value - low) / (high - low)


def line_chart(title: str, lines: Sequence[Line], x: Axis, y: Axis, *, labels: str = "end") -> Markup:
    """Draw a line chart.

    Parameters
    ----------
    title : str
    lines : sequence of Line
        Those without a known point are left out.
    x, y : Axis
    labels : str
        Where the labels go: at the ``"end"`` of each line, or ``"below"`` the chart for lines that meet. ``"points"``
        also writes the heights of the first line at its points. ``"none"`` is for charts that share a `line_legend`.

    Examples
    --------
    >>> svg = line_chart("Loss", [Line("a", [(1, 0.5), (2, 0.25)])], Axis("epoch", whole=True), Axis())
    >>> 'aria-label="Loss. a: 0.5 at 1, 0.25 at 2"' in svg
    True
    """
    least = 1 / _LARGEST if y.log else -math.inf
    lines = [line for line in lines if line.known and min(height for _, height in line.known) >= least]
    across = [at for line in lines for at, _ in line.known] or [1.0]
    heights = [height for line in lines for _, height in line.known] or [1.0]
    heights += [end for line in lines for _, *ends in line.band for end in ends if not y.log or end >= min(heights)]
    across += [end for line in lines for *ends, _, _ in line.bars for end in ends]
    heights += [end for line in lines for _, _, *ends in line.bars for end in ends]
    ticks = y.ticks(min(heights), max(heights))
    left = 10 + 8.2 * max(len(y.tick(tick)) for tick in ticks)
    right, top = SMALL - (14 if labels in ("below", "none") else 94), 12
    floor = max(178, 16 * len(lines))
    height = floor + 36
    x_at = x.scale(min(across), max(across), left + 8, right - 8)
    y_at = y.scale(ticks[0], ticks[-1], floor, top)
    parts = [
        f'<path d="M{left:.1f} {y_at(tick):.1f}H{right}" class="ruler"/>'
        f'<text x="{left - 6:.1f}" y="{y_at(tick) + 4:.1f}" class="soft" style="text-anchor:end">'
        f"{escape(y.tick(tick))}</text>"
        for tick in ticks
    ]
    shown = [tick for tick in x.at or x.ticks(min(across), max(across)) if min(across) <= tick <= max(across)]
    shown = _apart(shown or across[:1], x_at, lambda tick: len(x.tick(tick)))
    parts += [
        f'<path d="M{x_at(tick):.1f} {floor}v4" class="{_SOFT}"/>'
        f'<text x="{x_at(tick):.1f}" y="{floor + 17}" class="soft">{escape(x.tick(tick))}</text>'
        for tick in shown
    ]
    parts.append(
        f'<path d="M{left:.1f} {floor}H{right}" class="{_SOFT}"/>'
        f'<text x="{(left + right) / 2:.1f}" y="{height - 4}" class="soft">{escape(x.label)}</text>'
    )
    parts += [_area(line, x_at, y_at, ticks[0]) for line in lines if line.band]
    parts += [_drawn(line, x_at, y_at, x, y) for line in lines]
    if labels == "points" and lines:
        parts.append(_heights(lines, x_at, y_at, y.text, floor))
    if labels == "below":
        parts += [_key(line, left, height + 10 + 16 * number) for number, line in enumerate(lines)]
        height += 16 * len(lines) + 4
    elif labels != "none":
        parts += _ends(lines, x_at, y_at, floor)
    described = [_described(line, x, y) for line in lines]
    return svg(title, "; ".join(described), SMALL, height, parts)


def line_legend(labels: Sequence[str]) -> Markup:
    """Draw one legend for several charts, whose lines have the styles 0, 1, 2 and so on.

    Examples
    --------
    >>> line_legend(["flu", "none"]).count("<text")
    2
    """
    keys = [_key(Line(label, (), style), 0, 8 + 16 * style) for style, label in enumerate(labels)]
    return svg("Legend", ", ".join(labels), SMALL, 16 * len(labels), keys, kind="small legend")


def _described(line: Line, x: Axis, y: Axis) -> str:
    """Describe a line by its points; the label of a reference level is enough."""
    if not line.marked:
        return line.label
    few = ", ".join(f"{y.text(height)} at {x.text(at)}" for at, height in _some(line.known))
    return f"{line.label}: {few}"


def _style(number: int | None) -> tuple[str, str, str]:
    if not number:
        return _PLAIN if number == 0 else (_SOFT, "1 3", "")
    colour, dashes = _COLOURS[(number - 1) % len(_COLOURS)]
    return colour, dashes, _MARKS[(number - 1) % len(_MARKS)]


def _some(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a few points, including the first and the last."""
    if len(points) <= _FEW:
        return points
    return [points[round(number * (len(points) - 1) / 5)] for number in range(6)]


def _apart(values: Sequence[float], place: _Place, letters: Callable[[float], int]) -> list[float]:
    """Return the values whose texts do not overlap, preferring the last and the first."""
    kept: list[float] = []
    for value in [*values[-1:], *values[:1], *values[1:-1]]:
        room = 7.0 * letters(value) + 5
        if all(abs(place(value) - place(other)) > (room + 7.0 * letters(other) + 5) / 2 for other in kept):
            kept.append(value)
    return kept


def _area(line: Line, x_at: _Place, y_at: _Place, least: float) -> str:
    """Draw the bounds of a line; those below the axis end at the axis."""
    colour, _, _ = _style(line.style)
    above = [f"{x_at(at):.1f} {y_at(max(high, least)):.1f}" for at, _, high in line.band]
    below = [f"{x_at(at):.1f} {y_at(max(low, least)):.1f}" for at, low, _ in reversed(line.band)]
    return f'<path d="M{"L".join(above + below)}z" class="{colour} band"/>'


def _drawn(line: Line, x_at: _Place, y_at: _Place, x: Axis, y: Axis) -> str:
    if line.ringed:
        rings = {(x_at(at), y_at(height)) for at, height in line.known}
        return "".join(_mark("ring", "c0", *place, line.label) for place in sorted(rings))
    colour, dashes, mark = _style(line.style)
    held, path, pen = set(line.known), "", "M"
    for at, height in line.points:
        if height is None or (at, height) not in held:
            pen = "M"
            continue
        path += f"{pen}{x_at(at):.1f} {y_at(height):.1f}"
        pen = "L"
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    tag = _tag(line.tags[0]) if len(line.tags) == 1 < len(line.points) else ""
    drawn = f'<path d="{path}" class="{colour}" stroke-width="1.6"{dashed}{tag}/>' if line.joined else ""
    if line.tags and not tag:
        ends = [(x_at(a), x_at(b), y_at(c), y_at(d)) for a, b, c, d in line.bars]
        for number, ((at, height), one) in enumerate(zip(line.known, line.tags, strict=True)):
            there, title = (x_at(at), y_at(height)), f"{line.label}: {y.text(height)} at {x.text(at)}"
            drawn += _interval(colour, *there, ends[number], one) if ends else ""
            drawn += _mark(mark, colour, *there, title, _tag(one))
        return drawn
    places = {(x_at(at), y_at(height)): f"{line.label}: {y.text(height)} at {x.text(at)}" for at, height in line.known}
    marked = _marked(list(places), line.style or 0) if line.marked else []
    return drawn + "".join(_mark(mark, colour, *at, places[at], tag) for at in marked)


def _tag(number: str) -> str:
    return f' data-point="{escape(number)}"'


def _interval(colour: str, x: float, y: float, ends: tuple[float, float, float, float], tag: str) -> str:
    """Draw the interval of a point as a thin cross."""
    left, right, low, high = ends
    path = f"M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}"
    return f'<path d="{path}" class="{colour} interval" stroke-width=".8"{_tag(tag)}/>'


def _marked(places: list[tuple[float, float]], style: int) -> list[tuple[float, float]]:
    """Return the positions of the marks; of many points a few, staggered between lines."""
    if len(places) <= _FEW:
        return places
    lengths = [0.0]
    for one, other in pairwise(places):
        lengths.append(lengths[-1] + math.dist(one, other))
    wished = [lengths[-1] * (number + (0.4 + 0.24 * style) % 1) / 6 for number in range(6)]
    return [places[min(bisect_left(lengths, one), len(places) - 1)] for one in wished]


def _mark(mark: str, colour: str, x: float, y: float, title: str = "", tag: str = "") -> str:
    shape = {
        "circle": f"M{x - 3.2:.1f} {y:.1f}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
        "square": f"M{x - 3:.1f} {y - 3:.1f}h6v6h-6z",
        "triangle": f"M{x:.1f} {y - 4.4:.1f}l4.1 7.2h-8.2z",
        "diamond": f"M{x:.1f} {y - 4.2:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
        "ring": f"M{x - 7:.1f} {y:.1f}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z",
        "": "",
    }[mark]
    filled = "" if mark == "ring" else " full"
    return f'<path d="{shape}" class="{colour}{filled}"{tag}><title>{escape(title)}</title></path>' if shape else ""


def _heights(lines: Sequence[Line], x_at: _Place, y_at: _Place, text: Callable[[float], str], floor: float) -> str:
    """Write the heights of the first line at its points, away from the second line."""
    heights = dict(lines[0].known)
    under = len(lines) < 2 or lines[1].known[-1][1] >= lines[0].known[-1][1]
    under = under and max(map(y_at, heights.values())) + 20 < floor  # below that are the numbers of the axis
    return "".join(
        f'<text x="{x_at(at):.1f}" y="{y_at(heights[at]) + (17 if under else -9):.1f}" class="halo">'
        f"{escape(text(heights[at]))}</text>"
        for at in _apart(list(heights), x_at, lambda at: len(text(heights[at])))
    )


def _key(line: Line, start: float, y: float) -> str:
    """Draw the legend entry of a line."""
    colour, dashes, mark = ("c0", "", "ring") if line.ringed else _style(line.style)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    stroke = f'<path d="M{start:.1f} {y:.1f}h28" class="{colour}" stroke-width="1.6"{dashed}/>' if line.joined else ""
    return (
        f"{stroke}"
        f"{_mark(mark, colour, start + 14, y, line.label)}"
        f'<text x="{start + 34:.1f}" y="{y + 4:.1f}" style="text-anchor:start">{escape(line.label)}</text>'
    )


def _ends(lines: Sequence[Line], x_at: _Place, y_at: _Place, floor: float) -> list[str]:
    """Write the labels at the ends of lines, moved apart where they would overlap."""
    wrapped = sorted(
        ((y_at(line.known[-1][1]), broken(line.label, 13, 3), line) for line in lines), key=lambda one: one[0]
    )
    halves = [6.5 * len(words) + 1.5 for _, words, _ in wrapped]
    places = [max(wished, half) for half, (wished, _, _) in zip(halves, wrapped, strict=True)]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + halves[number - 1] + halves[number])
    lowest = floor + 4
    for number in reversed(range(len(places))):  # labels pushed below the floor move the others up
        places[number] = min(places[number], lowest - halves[number])
        lowest = places[number] - halves[number]
    written = []
    for place, (wished, words, line) in zip(places, wrapped, strict=True):
        colour, _, _ = _style(line.style)
        end, start = x_at(line.known[-1][0]) + 4, SMALL - 82
        spans = "".join(
            f'<tspan x="{start}" y="{place + 4 + 13 * (number - (len(words) - 1) / 2):.1f}">{escape(word)}</tspan>'
            for number, word in enumerate(words)
        )
        written.append(
            f'<path d="M{end:.1f} {wished:.1f}L{start - 4} {place:.1f}" class="{colour}" '
            f'stroke-width="0.7"/><text style="text-anchor:start">{spans}</text>'
        )
    return written

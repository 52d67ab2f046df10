"""Charts as inline SVG: small, offline, printable, and readable without colour.

A chart is `SMALL` units wide, so that on a phone its text is as large as the text around it. Colours are classes of the
page's style sheet, with one set for light and one for dark screens. Tooltips (``<title>``) show the values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

__all__ = [
    "SMALL",
    "bar_list",
    "bar_pairs",
    "bar_rows",
    "broken",
    "hatching",
    "heat_map",
    "interval_bars",
    "legend",
    "split_bars",
    "svg",
]

SMALL = 300  # the width of a chart; several fit side by side
_FILLS = {"before": 'fill="url(#before)"', "after": 'class="safe"', "risky": 'fill="url(#risky)"'}
_BESIDE, _ABOVE = 15, 40  # letters in a line of a label beside a bar, and above it
Bar = tuple[float, str, str]  # length, text at the end, fill


def bar_list(
    title: str, bars: Sequence[tuple[str, float, str]], *, full: float | None = None, tags: Sequence[str] = ()
) -> Markup:
    """Draw horizontal bars, each a (label, length, text) tuple.

    A bar of length `full`, by default the longest, takes the whole width. If `full` is given, a track shows it. The
    `tags` are the numbers of the points that each bar is about.

    Examples
    --------
    >>> svg = bar_list("Rows", [("age", 3, "3 rows"), ("sex", 0, "none")])
    >>> svg.count("<rect")
    2
    """
    longest = full or max((length for _, length, _ in bars), default=0) or 1
    track = f'<rect x="0" y="{{}}" width="{SMALL}" height="12" class="track"/>' if full else ""
    parts, top = [], 0
    for number, (label, length, text) in enumerate(bars):
        lines = broken(label, max(_ABOVE - len(text), _BESIDE), 3)
        below = top + 15 * len(lines) + 6
        tag = f' data-point="{escape(tags[number])}"' if tags else ""
        parts.append(
            f"<g{tag}>{_hover(f'{label}: {text}')}{_lines(lines, 0, top + 15, 15, 'start')}"
            f'<text x="{SMALL}" y="{top + 15}" style="text-anchor:end">{escape(text)}</text>'
            f"{track.format(below)}"
            f'<rect x="0" y="{below}" width="{SMALL * max(length, 0) / longest:.1f}" height="12" class="safe"/></g>'
        )
        top = below + 15
    described = "; ".join(f"{label}: {text}" for label, _, text in bars)
    return svg(title, described, SMALL, top, parts)


def interval_bars(title: str, bars: Sequence[tuple[str, float, float, float, str]]) -> Markup:
    """Draw bars from 0 with a line over each interval: each a (label, value, low, high, text beside it) tuple.

    Examples
    --------
    >>> svg = interval_bars("count", [("f", 4, 1, 7, "4"), ("m", -1, -1, 2, "-1")])
    >>> svg.count("<rect"), svg.count("<line")
    (2, 2)
    """
    least = min(0.0, *(min(value, low) for _, value, low, _, _ in bars))
    most = max(0.0, *(max(value, high) for _, value, _, high, _ in bars))
    scale = SMALL / ((most - least) or 1)
    parts, top = [], 0
    for label, value, low, high, text in bars:
        lines = broken(label, max(_ABOVE - len(text), _BESIDE), 3)
        below = top + 15 * len(lines) + 6
        start, end, left, right = ((one - least) * scale for one in (min(value, 0), max(value, 0), low, high))
        parts.append(
            f"<g>{_hover(f'{label}: {text}')}{_lines(lines, 0, top + 15, 15, 'start')}"
            f'<text x="{SMALL}" y="{top + 15}" style="text-anchor:end">{escape(text)}</text>'
            f'<rect x="{start:.1f}" y="{below}" width="{end - start:.1f}" height="12" class="safe" fill-opacity=".45"/>'
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{below + 6}" y2="{below + 6}" '
            'stroke="currentColor" stroke-width="2"/></g>'
        )
        top = below + 15
    return svg(title, "; ".join(f"{label}: {text}" for label, *_, text in bars), SMALL, top, parts)


def hatching() -> Markup:
    """Return the fill patterns of bars and cells, which a page needs once before the first chart."""
    return Markup(  # noqa: S704 - there is no text in it
        '<svg width="0" height="0" style="position:absolute;width:0;height:0" aria-hidden="true"><defs>'
        + "".join(
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" class="{name}-paper"/>'
            f'<rect width="2" height="5" class="{name}-ink"/></pattern>'
            for name in ("before", "fewer", "risky")
        )
        + "</defs></svg>"
    )


def legend(hatched: str, plain: str, kind: str = "before") -> Markup:
    """Draw the legend of a chart with two kinds of bars.

    Examples
    --------
    >>> legend("original table", "release").count("<rect")
    2
    """
    return svg(
        "Legend",
        f"hatched: {hatched}; plain: {plain}",
        SMALL,
        16,
        [
            f'<rect x="{x}" y="2" width="14" height="12" {_FILLS[fill]}/>'
            f'<text x="{x + 20}" y="12" style="text-anchor:start">{escape(name)}</text>'
            for x, fill, name in ((0, kind, hatched), (SMALL // 2, "after", plain))
        ],
        kind="small legend",
    )


def bar_rows(
    title: str, rows: Sequence[tuple[str, Sequence[Bar]]], *, full: float | None = None, then: str = "after"
) -> Markup:
    """Draw one or more bars for each label: a (label, bars) tuple, each bar a (length, text at its end, kind) tuple.

    The kinds are ``"before"`` and ``"risky"``, which are hatched with the patterns of `hatching`, and ``"after"``. A
    bar of the length `full`, by default the longest, takes the whole width. Labels stand beside the bars, or above them
    if one of them is too long for that. A description calls the second bar of a label `then`.

    Examples
    --------
    >>> svg = bar_rows("Rows", [("1", [(3, "30%", "risky")]), ("2 or more", [(7, "70%", "after")])])
    >>> 'aria-label="Rows. 1: 30%; 2 or more: 70%"' in svg
    True
    """
    longest = full or max((length for _, bars in rows for length, _, _ in bars), default=0) or 1
    beside = all(len(textwrap.wrap(label, _BESIDE)) <= 2 for label, _ in rows)
    left, right = (112 if beside else 0), 46
    parts, top, said = [], 0.0, []
    for label, bars in rows:
        lines = broken(label, _BESIDE if beside else _ABOVE, 2 if beside else 3)
        height = 13.0 * len(bars)
        block = max(height, 13.0 * len(lines)) if beside else height
        start = top + 1 + (block - height) / 2 if beside else top + 14 * len(lines) + 3
        words = f"{label}: " + f", {then} ".join(text for _, text, _ in bars)
        said.append(words)
        parts.append(f"<g>{_hover(words)}")
        parts.append(
            _lines(lines, left - 8, top + 4.5 + block / 2 - 6.5 * (len(lines) - 1), 13, "end")
            if beside
            else _lines(lines, 0, top + 13, 14, "start")
        )
        for number, (length, text, kind) in enumerate(bars):
            wide = (SMALL - left - right) * max(length, 0) / longest
            y = start + 13 * number
            parts.append(
                f'<rect x="{left}" y="{y:g}" width="{wide:.1f}" height="12" {_FILLS[kind]}/>'
                f'<text x="{left + wide + 4:.1f}" y="{y + 10:g}" style="text-anchor:start">{escape(text)}</text>'
            )
        parts.append("</g>")
        top = (top + 1 + block if beside else start + height) + 5
    return svg(title, "; ".join(said), SMALL, top, parts)


def bar_pairs(
    title: str,
    pairs: Sequence[tuple[str, tuple[float, str], tuple[float, str]]],
    *,
    full: float | None = None,
    then: str = "after",
) -> Markup:
    """Draw a hatched bar and a plain one per label, from (label, before, after) tuples.

    Before and after are the length of a bar and the text at its end; see `bar_rows`.

    Examples
    --------
    >>> svg = bar_pairs("Age", [("up to 39", (0.4, "40%"), (0.5, "50%"))])
    >>> svg.count("<rect"), 'aria-label="Age. up to 39: 40%, after 50%"' in svg
    (2, True)
    """
    rows = [(label, [(*before, "before"), (*after, "after")]) for label, before, after in pairs]
    return bar_rows(title, rows, full=full, then=then)


def split_bars(title: str, rows: Sequence[tuple[str, Sequence[Bar]]], *, then: str = "after") -> Markup:
    """Draw bars to both sides of a zero line; see `bar_rows`.

    Examples
    --------
    >>> svg = split_bars("Adds", [("flu", [(0.5, "+0.50", "after")]), ("none", [(-0.5, "-0.50", "after")])])
    >>> 'x="112" y="19" width="70.0"' in svg, svg.count("<rect")
    (True, 2)
    """
    lengths = [length for _, bars in rows for length, _, _ in bars]
    low, high = min([0.0, *lengths]), max([0.0, *lengths])
    left, right = 112, 48
    unit = (SMALL - left - right) / ((high - low) or 1)
    zero = left - low * unit
    parts, top, said = [], 0.0, []
    for label, bars in rows:
        lines = broken(label, _BESIDE, 3)
        height = 13.0 * len(bars)
        block = max(height, 13.0 * len(lines))
        words = f"{label}: " + f", {then} ".join(text for _, text, _ in bars)
        said.append(words)
        parts.append(f"<g>{_hover(words)}")
        parts.append(_lines(lines, left - 8, top + 4.5 + block / 2 - 6.5 * (len(lines) - 1), 13, "end"))
        for place, (length, text, kind) in enumerate(bars):
            y = top + 1 + (block - height) / 2 + 13 * place
            parts.append(
                f'<rect x="{zero + min(length, 0.0) * unit:g}" y="{y:g}" width="{abs(length) * unit:.1f}" height="12" '
                f'{_FILLS[kind]}/><text x="{SMALL}" y="{y + 10:g}" style="text-anchor:end">{escape(text)}</text>'
            )
        parts.append("</g>")
        top += block + 5
    parts.append(f'<path d="M{zero:.1f} 0V{top:.1f}" class="c6"/>')
    return svg(title, "; ".join(said), SMALL, top, parts)


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    full: float,
    signed: bool = False,
    cell: tuple[float, float] = (36.0, 21.0),
    axes: tuple[str, str] = ("", ""),
    write: Callable[[float], str] | None = None,
) -> Markup:
    """Draw shares as a grid of cells, darker the closer to `full`, with whole percentages in them.

    A cell of None is marked with a dot; a row may have fewer cells than there are columns. Signed shares (differences)
    are plain if positive and hatched if negative.
    Numbers that are not shares need a function to `write` them.
    A cell is at most as wide as the first number of `cell`, and as tall as the second, or taller if a label needs it.
    `axes` names the rows and the columns.

    Examples
    --------
    >>> svg = heat_map("Age by sex", ["up to 39", "from 40"], ["f", "m"], [[0.5, 0.1], [0.4, None]], full=0.5)
    >>> svg.count("<rect"), svg.count("·")
    (4, 1)
    """
    in_full = write or "{:.1%}".format
    named = [broken(label, _BESIDE, 4) for label in rows]
    size = max(cell[1], 10.0 * max(map(len, named), default=0) + 1)
    margin = 17.0 if axes[0] else 0.0
    left = margin + min(104.0, 10 + 8.0 * max((len(line) for lines in named for line in lines), default=0))
    wide = min(cell[0], (SMALL - left) / max(len(columns), 1))
    floor = size * len(rows)
    parts = []
    for i, (label, lines) in enumerate(zip(rows, named, strict=True)):
        parts.append(_lines(lines, left - 5, size * (i + 0.5) + 3.5 - 5 * (len(lines) - 1), 10, "end"))
        for j, share in enumerate(cells[i]):
            said = f"{label}, {columns[j]}: " + ("too few" if share is None else in_full(share))
            text = "·" if share is None else write(share) if write else _points(share, signed)
            parts.append(_cell(said, text, share, (left + wide * j, size * i), (wide, size), full=full, signed=signed))
    parts.append(_columns(columns, left, wide, floor))
    deepest = floor + _depth(columns, wide)
    across = left + wide * len(columns) / 2
    if axes[0]:
        turned = f'transform="translate(13 {floor / 2:.1f}) rotate(-90)"'
        parts.append(f'<text {turned} class="soft">{escape(_cut(axes[0], max(int(floor / 6), 9)))}</text>')
    if axes[1]:
        deepest += 14
        parts.append(f'<text x="{across:.1f}" y="{deepest - 3:.1f}" class="soft">{escape(_cut(axes[1], 36))}</text>')
    ranked = sorted(
        (
            (share, row, column)
            for row, line in zip(rows, cells, strict=True)
            for column, share in zip(columns, line, strict=False)
            if share
        ),
        key=lambda one: -abs(one[0]),
    )
    described = "Largest: " + "; ".join(f"{row}, {column}: {in_full(share)}" for share, row, column in ranked[:5])
    return svg(title, described, SMALL, deepest, parts)


def _cell(
    said: str,
    text: str,
    share: float | None,
    at: tuple[float, float],
    size: tuple[float, float],
    *,
    full: float,
    signed: bool,
) -> str:
    """Draw a cell with its text."""
    (x, y), (wide, tall) = at, size
    strength = 0.0 if share is None else min(abs(share) / (full or 1), 1.0) ** 0.7
    fewer = signed and share is not None and share < 0
    fill = 'fill="url(#fewer)"' if fewer else 'class="cell"'
    ink = "halo" if fewer else "in-dark" if strength > 0.86 else "in-light"
    written = (
        f'<text x="{x + wide / 2 - 0.5:.1f}" y="{y + tall / 2 + 3.5:.1f}" class="{ink}">{text}</text>' if text else ""
    )
    return (
        f'<g>{_hover(said)}<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{tall - 1:.1f}" '
        f'{fill} fill-opacity="{0.04 + 0.96 * strength:.2f}"/>{written}</g>'
    )


def _columns(labels: Sequence[str], left: float, wide: float, floor: float) -> str:
    """Write the labels of columns below them, turned if they are long."""
    if _upright(labels, wide):
        return "".join(
            f'<text x="{left + wide * (j + 0.5):.1f}" y="{floor + 13:.1f}">{escape(label)}</text>'
            for j, label in enumerate(labels)
        )
    drawn = []
    for j, lines in enumerate(_turned(labels, wide)):
        turn = f'transform="translate({left + wide * (j + 0.5):.1f} {floor + 5:.1f}) rotate(-90)"'
        drawn.append(_lines(lines, 0, 3.5 - 5 * (len(lines) - 1), 10, "end", turn))
    return "".join(drawn)


def _turned(labels: Sequence[str], wide: float) -> list[list[str]]:
    """Break turned labels into lines that fit the width of a column."""
    most = max(int(wide // 10), 1)
    letters = next((few for few in (15, 20, 25) if all(len(textwrap.wrap(one, few)) <= most for one in labels)), 30)
    return [broken(label, letters, most) for label in labels]


def _upright(labels: Sequence[str], wide: float) -> bool:
    return all(len(label) * 8 < wide for label in labels)


def _depth(labels: Sequence[str], wide: float) -> float:
    """Return the height of the labels of columns."""
    if _upright(labels, wide):
        return 18.0
    return 8 + 6.4 * max((len(line) for lines in _turned(labels, wide) for line in lines), default=0)


def _points(share: float, signed: bool) -> str:
    """Write a share in whole percentages; nothing for 0."""
    points = round(100 * share)
    return "" if points == 0 else f"{points:+}".replace("-", "−") if signed else str(points)


def broken(label: str, letters: int, most: int = 2) -> list[str]:
    """Break a label into at most this many lines.

    Examples
    --------
    >>> broken("Married-spouse-absent", 15), broken("x" * 40, 15)
    (['Married-spouse-', 'absent'], ['xxxxxxxxxxxxxxx', 'xxxxxxxxxxxxxx…'])
    """
    lines = textwrap.wrap(label, letters) or [""]
    return lines if len(lines) <= most else [*lines[: most - 1], _cut(lines[most - 1] + lines[most], letters)]


def _lines(lines: Sequence[str], x: float, y: float, spacing: float, anchor: str, turn: str = "") -> str:
    """Write lines of text, the first at height y."""
    if len(lines) == 1:
        return f'<text x="{x:g}" y="{y:.1f}" style="text-anchor:{anchor}" {turn}>{escape(lines[0])}</text>'
    spans = "".join(
        f'<tspan x="{x:g}" y="{y + spacing * number:.1f}">{escape(line)}</tspan>' for number, line in enumerate(lines)
    )
    return f'<text style="text-anchor:{anchor}" {turn}>{spans}</text>'


def _cut(label: str, letters: int) -> str:
    """Shorten a label that is too long; its tooltip has all of it."""
    return label if len(label) <= letters else label[: max(letters - 1, 1)] + "…"


def _hover(text: str) -> str:
    """Return a tooltip."""
    return f"<title>{escape(text)}</title>"


def svg(title: str, described: str, width: int, height: float, parts: Sequence[str], *, kind: str = "small") -> Markup:
    """Assemble a chart from parts whose texts are escaped."""
    return Markup(  # noqa: S704 - every text in the parts is escaped
        f'<svg class="{kind}" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}. {escape(described)}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )

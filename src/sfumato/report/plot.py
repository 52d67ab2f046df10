"""Charts as inline SVG: small, offline, printable, and readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from markupsafe import Markup, escape

__all__ = [
    "RISKY",
    "SAFE",
    "SMALL",
    "bar_chart",
    "bar_list",
    "bar_pairs",
    "broken",
    "hatching",
    "heat_map",
    "legend",
    "svg",
]

# Vermilion and blue of Okabe & Ito's palette: told apart by people with any kind of colour vision.
RISKY, SAFE = "#d55e00", "#0072b2"
_AFTER = SAFE
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 640, 260, 34, 52
SMALL = 300  # the width of a small chart, of which several stand side by side


def bar_chart(
    title: str, bars: Sequence[tuple[str, float, str, bool]], *, x_label: str, legend: tuple[str, str]
) -> Markup:
    """Draw bars, each a (label, height, text above it, risky) tuple; risky ones are hatched too.

    Examples
    --------
    >>> svg = bar_chart("Rows", [("1", 3, "3", True)], x_label="size", legend=("few", "many"))
    >>> svg.startswith("<svg"), "</svg>" in svg
    (True, True)
    """
    tallest = max((height for _, height, _, _ in bars), default=0) or 1
    slot = _WIDTH / max(len(bars), 1)
    floor = _HEIGHT - _BOTTOM
    parts = []
    for position, (label, height, text, risky) in enumerate(bars):
        tall = (floor - _TOP - 18) * height / tallest
        middle = slot * (position + 0.5)
        fill = "url(#risky)" if risky else SAFE
        parts.append(
            f'<rect x="{middle - slot * 0.36:.1f}" y="{floor - tall:.1f}" width="{slot * 0.72:.1f}" '
            f'height="{tall:.1f}" fill="{fill}"/>'
            f'<text x="{middle:.1f}" y="{floor - tall - 5:.1f}">{escape(text)}</text>'
            f'<text x="{middle:.1f}" y="{floor + 17}">{escape(label)}</text>'
        )
    described = "; ".join(f"{label}: {text}" for label, _, text, _ in bars)
    keys = "".join(
        f'<rect x="{x}" y="6" width="14" height="14" fill="{fill}"/>'
        f'<text x="{x + 20}" y="18" style="text-anchor:start">{escape(name)}</text>'
        for x, fill, name in ((4, "url(#risky)", legend[0]), (_WIDTH // 2, SAFE, legend[1]))
    )
    return Markup(  # noqa: S704 - every text in it is escaped above
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}. {escape(described)}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<defs><pattern id="risky" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="6" height="6" fill="{RISKY}"/><rect width="2" height="6" fill="#b04d00"/></pattern></defs>'
        f"{keys}{''.join(parts)}"
        f'<line x1="0" x2="{_WIDTH}" y1="{floor}" y2="{floor}" stroke="currentColor"/>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}">{escape(x_label)}</text></svg>'
    )


def bar_list(
    title: str, bars: Sequence[tuple[str, float, str]], *, full: float | None = None, small: bool = False
) -> Markup:
    """Draw horizontal bars below each other, each a (label, length, text beside it) tuple.

    A bar of the length `full`, by default the longest, takes the whole width; if `full` is given, it is seen how far
    each is from it.

    Examples
    --------
    >>> svg = bar_list("Rows", [("age", 3, "3 rows"), ("sex", 0, "none")])
    >>> svg.count("<rect")
    2
    """
    longest = full or max((length for _, length, _ in bars), default=0) or 1
    width, row, letters = (SMALL, 36, 40) if small else (_WIDTH, 46, 80)
    track = f'<rect x="0" y="{{}}" width="{width}" height="12" fill="{SAFE}" fill-opacity="0.1"/>' if full else ""
    parts = []
    for position, (label, length, text) in enumerate(bars):
        top = row * position
        parts.append(
            f'<text x="0" y="{top + 15}" style="text-anchor:start">{escape(_cut(label, letters - len(text)))}</text>'
            f'<text x="{width}" y="{top + 15}" style="text-anchor:end">{escape(text)}</text>'
            f"{track.format(top + 21)}"
            f'<rect x="0" y="{top + 21}" width="{width * max(length, 0) / longest:.1f}" height="12" fill="{SAFE}"/>'
        )
    described = "; ".join(f"{label}: {text}" for label, _, text in bars)
    return svg(title, described, width, row * len(bars), parts, kind="small" if small else "")


def hatching() -> Markup:
    """Return the patterns that `bar_pairs` and `heat_map` fill with: once on a page, before the first of them."""
    return Markup(  # noqa: S704 - there is no text in it
        '<svg width="0" height="0" style="position:absolute;width:0;height:0" aria-hidden="true"><defs>'
        + "".join(
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" fill="{paper}"/><rect width="2" height="5" fill="{ink}"/></pattern>'
            for name, paper, ink in (("before", "#f6d48a", "#a87400"), ("fewer", "#f3b48a", RISKY))
        )
        + "</defs></svg>"
    )


def legend(before: str, after: str) -> Markup:
    """Draw what the two kinds of bars of `bar_pairs` are.

    Examples
    --------
    >>> legend("original table", "release").count("<rect")
    2
    """
    return svg(
        "Legend",
        f"hatched: {before}; plain: {after}",
        SMALL,
        16,
        [
            f'<rect x="{x}" y="2" width="14" height="12" fill="{fill}"/>'
            f'<text x="{x + 20}" y="12" style="text-anchor:start">{escape(name)}</text>'
            for x, fill, name in ((0, "url(#before)", before), (SMALL // 2, _AFTER, after))
        ],
        kind="small legend",
    )


def bar_pairs(
    title: str,
    pairs: Sequence[tuple[str, tuple[float, str], tuple[float, str]]],
    *,
    full: float | None = None,
    then: str = "after",
) -> Markup:
    """Draw two bars per label, hatched before and plain after: each a (label, before, after) tuple.

    Before and after are the length of a bar and the text at its end. A bar of the length `full`,
    by default the longest, takes the whole width. The patterns are those of `hatching`; a description calls the
    second bar `then`.

    Examples
    --------
    >>> svg = bar_pairs("Age", [("up to 39", (0.4, "40%"), (0.5, "50%"))])
    >>> svg.count("<rect"), 'aria-label="Age. up to 39: 40%, after 50%"' in svg
    (2, True)
    """
    longest = full or max((length for _, *both in pairs for length, _ in both), default=0) or 1
    row, left, right = 32, 112, 46
    parts = []
    for position, (label, *both) in enumerate(pairs):
        top = row * position
        parts.append(_label(label, left - 8, top + 14))
        for number, ((length, text), fill) in enumerate(zip(both, ("url(#before)", _AFTER), strict=True)):
            wide = (SMALL - left - right) * max(length, 0) / longest
            y = top + 1 + 13 * number
            parts.append(
                f'<rect x="{left}" y="{y}" width="{wide:.1f}" height="12" fill="{fill}"/>'
                f'<text x="{left + wide + 4:.1f}" y="{y + 10}" style="text-anchor:start">{escape(text)}</text>'
            )
    described = "; ".join(f"{label}: {before[1]}, {then} {after[1]}" for label, before, after in pairs)
    return svg(title, described, SMALL, row * len(pairs), parts)


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    full: float,
    signed: bool = False,
    cell: tuple[float, float] = (36.0, 21.0),
) -> Markup:
    """Draw shares as a grid of cells, darker the closer to `full`, with whole percents in those that have some.

    A cell of None is marked with a dot. Signed shares, the differences, are blue and plain where
    there are more and hatched where there are fewer. The patterns are those of `hatching`. A cell is at most as
    wide as the first number of `cell`, and as tall as the second.

    Examples
    --------
    >>> svg = heat_map("Age by sex", ["up to 39", "from 40"], ["f", "m"], [[0.5, 0.1], [0.4, None]], full=0.5)
    >>> svg.count("<rect"), svg.count("·")
    (4, 1)
    """
    longest = max((len(line) for label in rows for line in broken(label, 15)), default=0)
    left, size = min(92.0, 10 + 8.0 * longest), cell[1]
    wide = min(cell[0], (SMALL - left) / max(len(columns), 1))
    parts = []
    for i, label in enumerate(rows):
        parts.append(_label(label, left - 5, size * (i + 0.5), letters=15, spacing=10))
        for j, share in enumerate(cells[i]):
            x, y = left + wide * j, size * i
            strength = 0.0 if share is None else min(abs(share) / (full or 1), 1.0) ** 0.7
            fill = "url(#fewer)" if signed and share is not None and share < 0 else _AFTER
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{size - 1:.1f}" fill="{fill}" '
                f'fill-opacity="{0.04 + 0.96 * strength:.2f}"/>'
            )
            text = "·" if share is None else _points(share, signed)
            if text:
                halo = ' style="paint-order:stroke;stroke:#fff;stroke-width:3px"' if fill != _AFTER else ""
                ink = ' fill="#fff"' if strength > 0.84 and fill == _AFTER else halo
                parts.append(f'<text x="{x + wide / 2 - 0.5:.1f}" y="{y + size / 2 + 3.5:.1f}"{ink}>{text}</text>')
    floor = size * len(rows)
    deepest = max((len(line) for label in columns for line in broken(label, 15)), default=0)
    upright = deepest * 8 < wide and all(len(broken(label, 15)) == 1 for label in columns)
    for j, label in enumerate(columns):
        middle = left + wide * (j + 0.5)
        parts.append(
            f'<text><tspan x="{middle:.1f}" y="{floor + 13:.1f}">{escape(label)}</tspan></text>'
            if upright
            else _label(label if wide >= 20 else _cut(label, 15), 0, 0, spacing=10, turn=(middle, floor + 5))
        )
    ranked = sorted(
        (
            (share, row, column)
            for row, line in zip(rows, cells, strict=True)
            for column, share in zip(columns, line, strict=True)
            if share
        ),
        key=lambda one: -abs(one[0]),
    )
    described = "Largest: " + "; ".join(f"{row}, {column}: {100 * share:.1f}%" for share, row, column in ranked[:5])
    return svg(title, described, SMALL, floor + 8 + (10 if upright else 5.6 * deepest), parts)


def _points(share: float, signed: bool) -> str:
    """Write a share in whole percents, and nothing if there are none."""
    points = round(100 * share)
    return "" if points == 0 else f"{points:+}".replace("-", "−") if signed else str(points)


def broken(label: str, letters: int) -> list[str]:
    """Break a label into at most two lines."""
    lines = textwrap.wrap(label, letters) or [""]
    return lines if len(lines) <= 2 else [lines[0], _cut(lines[1] + lines[2], letters)]


def _label(
    label: str, x: float, y: float, *, letters: int = 15, spacing: float = 13, turn: tuple[float, float] | None = None
) -> str:
    """Write a label of one or two lines that ends at x, around the height y; or turned, below a point."""
    lines = broken(label, letters)
    first = y + 4 - spacing * (len(lines) - 1) / 2
    turned = f' transform="translate({turn[0]:.1f} {turn[1]:.1f}) rotate(-90)"' if turn else ""
    spans = "".join(
        f'<tspan x="{x:g}" y="{first + spacing * number:.1f}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return f'<text style="text-anchor:end"{turned}>{spans}</text>'


def _cut(label: str, letters: int) -> str:
    """Shorten a label that is too long for its place; the whole of it is in the description of the chart."""
    return label if len(label) <= letters else label[: max(letters - 1, 1)] + "…"


def svg(title: str, described: str, width: int, height: float, parts: Sequence[str], *, kind: str = "small") -> Markup:
    """Put the parts of a chart together; every text in them is escaped already."""
    shown = f'class="{kind}" ' if kind else ""
    return Markup(  # noqa: S704 - every text in the parts is escaped
        f'<svg {shown}viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}. {escape(described)}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )

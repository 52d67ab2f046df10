"""Charts as inline SVG: small, offline, printable, and readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

__all__ = ["bar_chart", "bar_list"]

# Vermilion and blue of Okabe & Ito's palette: told apart by people with any kind of colour vision.
_RISKY, _SAFE = "#d55e00", "#0072b2"
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 640, 260, 34, 52


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
        fill = "url(#risky)" if risky else _SAFE
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
        for x, fill, name in ((4, "url(#risky)", legend[0]), (_WIDTH // 2, _SAFE, legend[1]))
    )
    return Markup(  # noqa: S704 - every text in it is escaped above
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}. {escape(described)}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<defs><pattern id="risky" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="6" height="6" fill="{_RISKY}"/><rect width="2" height="6" fill="#b04d00"/></pattern></defs>'
        f"{keys}{''.join(parts)}"
        f'<line x1="0" x2="{_WIDTH}" y1="{floor}" y2="{floor}" stroke="currentColor"/>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}">{escape(x_label)}</text></svg>'
    )


def bar_list(title: str, bars: Sequence[tuple[str, float, str]]) -> Markup:
    """Draw horizontal bars below each other, each a (label, length, text beside it) tuple.

    Examples
    --------
    >>> svg = bar_list("Rows", [("age", 3, "3 rows"), ("sex", 0, "none")])
    >>> svg.count("<rect")
    2
    """
    longest = max((length for _, length, _ in bars), default=0) or 1
    row = 46
    parts = []
    for position, (label, length, text) in enumerate(bars):
        top = row * position
        parts.append(
            f'<text x="0" y="{top + 15}" style="text-anchor:start">{escape(label)}</text>'
            f'<text x="{_WIDTH}" y="{top + 15}" style="text-anchor:end">{escape(text)}</text>'
            f'<rect x="0" y="{top + 21}" width="{_WIDTH * max(length, 0) / longest:.1f}" height="12" fill="{_SAFE}"/>'
        )
    described = "; ".join(f"{label}: {text}" for label, _, text in bars)
    return Markup(  # noqa: S704 - every text in it is escaped above
        f'<svg viewBox="0 0 {_WIDTH} {row * len(bars)}" role="img" aria-label="{escape(title)}. {escape(described)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )

"""The lattice as a picture: a dot for each combination of levels, the finest at the bottom, joined if a step apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = ["Dot", "lattice_picture"]

Levels = tuple[int, ...]
_STEP, _LETTER, _ROW, _MARGIN, _LEAST = 34, 6, 64, 28, 560
_LINE = '<line x1="{:.0f}" y1="{}" x2="{:.0f}" y2="{}"{}/>'
_WALKED, _HERE = ' class="walked"', ' aria-current="true"'
_FEW = 90  # dots that have room for their levels


@dataclass(frozen=True)
class Dot:
    """A combination of levels.

    Attributes
    ----------
    levels : the level of each column
    text : what it costs, in words
    holds : whether it keeps the guarantees
    """

    levels: Levels
    text: str
    holds: bool


def lattice_picture(dots: Sequence[Dot], at: Levels, best: Levels | None, link: Callable[[Levels], str]) -> Markup:
    """Draw the dots, each with a link; the one that is looked at has a ring, and the best one a star.

    The links are not reached by the tab key: a page that shows the picture has other ways for the keyboard.

    Examples
    --------
    >>> dots = [Dot((0,), "5 rows go", False), Dot((1,), "no row goes", True)]
    >>> drawn = lattice_picture(dots, (0,), (1,), lambda levels: f"?at={levels[0]}")
    >>> drawn.count("<a "), drawn.count("<line"), drawn.count("★")
    (2, 1, 1)
    """
    rows: dict[int, list[Dot]] = defaultdict(list)
    for dot in sorted(dots, key=lambda one: tuple(-level for level in one.levels)):
        rows[sum(dot.levels)].append(dot)
    names = {dot.levels: (".".join if max(dot.levels) > 9 else "".join)(map(str, dot.levels)) for dot in dots}
    named = len(dots) <= _FEW
    step = max(_STEP, _LETTER * max(map(len, names.values()), default=0) + 10) if named else _STEP
    width = max(_LEAST, 2 * _MARGIN + step * max(map(len, rows.values()), default=1))
    top = max(rows, default=0)
    place: dict[Levels, tuple[float, int]] = {}
    for height, inside in rows.items():
        gap = min((width - 2 * _MARGIN) / len(inside), 2.5 * step)
        for number, dot in enumerate(inside):
            place[dot.levels] = (width / 2 + gap * (number - (len(inside) - 1) / 2), _MARGIN + _ROW * (top - height))
    lines = [
        _LINE.format(x, y, *place[above], _WALKED if at in (levels, above) else "")
        for levels, (x, y) in place.items()
        for above in (_raised(levels, column) for column in range(len(levels)))
        if above in place
    ]
    spots = [_spot(dot, *place[dot.levels], at, best, link, names[dot.levels] if named else "") for dot in dots]
    deep = 2 * _MARGIN + _ROW * (top - min(rows, default=0))
    return Markup(  # noqa: S704 - every text in the parts is escaped
        f'<svg class="lattice" viewBox="0 0 {width} {deep}" width="{width}" height="{deep}" role="group" '
        f'aria-label="The lattice" xmlns="http://www.w3.org/2000/svg">{"".join([*lines, *spots])}</svg>'
    )


def _raised(levels: Levels, column: int) -> Levels:
    return (*levels[:column], levels[column] + 1, *levels[column + 1 :])


def _spot(dot: Dot, x: float, y: int, at: Levels, best: Levels | None, link: Callable[[Levels], str], name: str) -> str:
    text, here = escape(dot.text), dot.levels == at
    hit = f'<rect x="{x - 15:.0f}" y="{y - 15}" width="30" height="42" fill="transparent"/>'  # to be met more easily
    ring = f'<circle cx="{x:.0f}" cy="{y}" r="13" class="here"/>' if here else ""
    mark = f'<circle cx="{x:.0f}" cy="{y}" r="7" class="{"kept" if dot.holds else "broken"}"/>'
    star = f'<text x="{x:.0f}" y="{y + 4}" class="star">★</text>' if dot.levels == best else ""
    below = f'<text x="{x:.0f}" y="{y + 26}">{name}</text>' if name else ""
    return (
        f'<a href="{escape(link(dot.levels))}" tabindex="-1" aria-label="{text}"{_HERE if here else ""}>'
        f"<title>{text}</title>{hit}{ring}{mark}{star}{below}</a>"
    )

"""The pages: templates filled with values, every text escaped; the style sheet is that of the reports, and a little."""

from __future__ import annotations

import math
import time
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

import sfumato
from sfumato.report.page import style_sheet

__all__ = ["STATIC", "fill_page", "moment", "static_file"]

STATIC = {
    "studio.css": "text/css; charset=utf-8",
    "studio.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that pages load, all of them from here."""


def fill_page(template: str, **values: Any) -> str:
    """Return a page or a part of one."""
    return _templates().get_template(template).render(version=sfumato.__version__, **values)


@cache
def static_file(name: str) -> bytes:
    """Return a file that pages load; the style sheet begins with that of the reports."""
    own = files("sfumato.studio").joinpath("static", name).read_bytes()
    return style_sheet().encode() + own if name == "studio.css" else own


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FunctionLoader(lambda name: files("sfumato.studio").joinpath("pages", name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": clock,
        "moment": moment,
        "share": share,
        "count": "{:,}".format,
        "plain": "{:g}".format,
    }
    return made


def clock(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> clock(42), clock(130), clock(7300)
    ('42 s', '2 min 10 s', '2 h 1 min')
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(seconds: float) -> str:
    """Return a time since the epoch as day and hour here.

    Examples
    --------
    >>> len(moment(0))
    13
    """
    return time.strftime("%d %b, %H:%M", time.localtime(seconds))


def share(part: float) -> str:
    """Return a share as percent.

    Examples
    --------
    >>> share(0.5), share(0.00001), share(0)
    ('50.0 %', 'below 0.1 %', '0 %')
    """
    return "0 %" if not part else "below 0.1 %" if part < 0.001 else f"{100 * part:.1f} %"

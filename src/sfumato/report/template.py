"""Fill a page template: one file that asks for nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

import sfumato
from sfumato.measures.bins import SMALLEST_SHOWN

__all__ = ["fill"]


def fill(template: str, **values: Any) -> str:
    """Return a template of this folder as a page, with all texts escaped.

    Examples
    --------
    >>> fill("base.html", title="A & B").count("A &amp; B")
    2
    """
    environment = Environment(
        loader=FunctionLoader(lambda name: files("sfumato.report").joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template)
    return page.render(version=sfumato.__version__, smallest_shown=SMALLEST_SHOWN, **values)

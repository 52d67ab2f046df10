"""Fill a page template: one file that asks for nothing from elsewhere.

The only script is our own, which sorts tables; the page's policy names its hash, so that no other script can run.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

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
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page, script = environment.get_template(template), _text("page.js")
    return page.render(
        version=sfumato.__version__,
        smallest_shown=SMALLEST_SHOWN,
        script=Markup(script),  # noqa: S704 - our own file
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )


def _text(name: str) -> str:
    """Read a file of this folder."""
    return files("sfumato.report").joinpath(name).read_text(encoding="utf-8")

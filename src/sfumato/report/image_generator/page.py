"""The page of a generator of images: what it promises, what every private access cost, and how to draw more.

The page is part of the release: it shows public facts and noisy values, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.data.release import Release
from sfumato.report.page import Page, facts_page
from sfumato.report.summarise import count

__all__ = ["page_of", "page_of_all"]


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of a generator of images."""
    canvas, plan = release.canvas, release.plan
    facts = {
        "images": f"{count(release.rows, 'image')} of {canvas.height} x {canvas.width}, {canvas.classes} classes",
        "method": release.method,
        "style": release.style,
        "spent": "epsilon is infinite: nothing is guaranteed" if plan is None else str(release.spent),
        **({} if plan is None else {f"noisy {one.name}": str(one.event) for one in plan.purchases}),
    }
    note = release.note
    if plan is not None and not release.private:
        note = "The noise came from a given seed: this is reproducible, and not private."
    return facts_page(release, f"{name}: a generator of synthetic images", facts, note=note)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return None: generators are listed, not compared."""
    return None

"""The page of a generator: what it promises, what every private access cost, and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.data.release import Release
from sfumato.report.page import Page, facts_page
from sfumato.report.summarise import count, percent

__all__ = ["page_of", "page_of_all"]


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of a generator; it shows nothing but what is declared, noisy or the terms of its making."""
    facts = {
        "rows": f"{count(release.rows, 'row')} were drawn; the generator draws more at no cost",
        "columns": str(release.columns),
        "method": release.method,
        "target": release.target or "none",
        "cost": str(release.spent),
    }
    lines = [[one.name, str(one.event), percent(one.share)] for one in release.plan.purchases]
    note = "" if release.private else "The noise came from a given seed: this is reproducible, and not private."
    columns = ["what was bought", "noise", "share"]
    return facts_page(release, name, facts, note=note, columns=columns, lines=lines)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return None: generators are listed, not compared."""
    return None

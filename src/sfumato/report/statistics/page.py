"""The page of the answer to a question: its groups as bars with their intervals, and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.data.release import Release
from sfumato.report.charts.plot import interval_bars
from sfumato.report.page import Page, facts_page
from sfumato.report.summarise import count, percent

__all__ = ["page_of", "page_of_all"]

_MOST_BARS, _MOST_LINES = 60, 2_000


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of an answer; it shows nothing but the released numbers and the terms of the question."""
    lines, bars = [], []
    for row in release.rows[:_MOST_LINES]:
        group, value, interval = row.words()
        lines.append([*group, value, interval])
        bars.append((", ".join(group) or "all rows", row.value, *row.interval, f"{value} ({interval})"))
    interval = f"{percent(release.confidence)} interval"
    facts = {
        "question": str(release.question),
        "answers": count(release.answers, "group"),
        "intervals": f"contain the exact value of this data with a probability of {percent(release.confidence)} each",
        "noise": str(release.event),
        "groups": "the large ones, selected with noise" if release.plan.discover else "those of the declared domains",
    }
    if release.settled.people_in_words:
        facts["people"] = release.settled.people_in_words
    left_out = release.answers - len(lines)
    note = "" if release.private else "The noise came from a given seed: this is reproducible, and not private."
    return facts_page(
        release,
        name,
        facts | ({"not shown": f"{count(left_out, 'group')}, which answer.json holds"} if left_out else {}),
        note=note,
        columns=[*release.plan.names, "answer", interval],
        lines=lines,
        charts=[(str(release.question), interval_bars(str(release.question), bars[:_MOST_BARS]))] if bars else [],
    )


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return None: answers to several questions are listed, not compared."""
    return None

"""Write an assessment or a release as one offline HTML page: summarise, plot, fill the template."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sfumato.data.io.files import atomic_path
from sfumato.data.release import Release
from sfumato.errors import OptionError
from sfumato.measures.assessment import Assessment
from sfumato.report.charts.plot import bar_list, bar_rows, hatching, legend
from sfumato.report.summarise import count, share, summarise
from sfumato.report.template import fill

__all__ = ["Page", "facts_page", "page_of", "page_of_all", "render_report", "write_report"]


def render_report(assessment: Assessment, *, title: str = "Anonymity assessment") -> str:
    """Return an assessment as an HTML page.

    Examples
    --------
    >>> import sfumato as sf
    >>> page = render_report(sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease"]))
    >>> page.startswith("<!doctype html>")
    True
    """
    summary = summarise(assessment)
    sizes = [
        (bar.label, [(bar.rows, share(bar.rows / assessment.rows), "risky" if bar.risky else "after")])
        for bar in summary.bars
    ]
    columns = [(one.column, one.uniques_drop, count(one.uniques_drop, "row")) for one in summary.columns]
    return fill(
        "page.html",
        title=title,
        summary=summary,
        hatching=hatching(),
        legend=legend("easier to single out", "better hidden", "risky"),
        sizes=bar_rows("Share of rows by the size of their class", sizes),
        columns=bar_list("Rows that would no longer be alone without a column", columns),
    )


class Page(NamedTuple):
    """A page, and what it shows in numbers where other pages need them."""

    html: str
    summary: Any


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of a release; each kind has its own in a package of its name."""
    page: Page = _pages(release).page_of(release, name=name, **options)
    return page


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page:
    """Return the page that compares several releases, or lists those that cannot be compared."""
    kinds = {release.kind: release for release in releases.values()}
    compared: Page | None = None
    if len(kinds) == 1:
        compared = _pages(*kinds.values()).page_of_all(releases, pages, name=name)
    return compared or _list_page(releases, name)


def facts_page(release: Release, title: str, facts: Mapping[str, str], *, note: str = "", **parts: Any) -> Page:
    """Return a page with the guarantees of a release and the facts about it."""
    promised = [str(one) for one in release.guarantees]
    headline = "This release keeps what is promised below." if promised else "Nothing is guaranteed for this release."
    return Page(_fill_facts(title, headline, promised, facts, note=note, **parts), None)


def _list_page(releases: Mapping[str, Release], name: str) -> Page:
    facts = {
        own: f"{release.kind} by {release.method}: {', '.join(map(str, release.guarantees)) or 'nothing is guaranteed'}"
        for own, release in releases.items()
    }
    return Page(_fill_facts(name, count(len(facts), "release"), [], facts, heading="The releases"), None)


def _fill_facts(title: str, headline: str, guarantees: Sequence[str], facts: Mapping[str, str], **parts: Any) -> str:
    usual = {"note": "", "heading": "How it was made", "columns": (), "lines": (), "charts": ()}
    return fill("facts.html", title=title, headline=headline, guarantees=guarantees, facts=facts, **(usual | parts))


def _pages(release: Release) -> Any:
    return importlib.import_module(f"sfumato.report.{release.kind}.page")


def write_report(result: Any, path: str | Path = "report.html", *, title: str | None = None) -> None:
    """Write an assessment or a release as one HTML page that needs no network and holds no record.

    The page of a release shows figures of the original table, too.

    Parameters
    ----------
    result : Assessment or Release
    path : path
        The page; an existing one is replaced.
    title : str, optional

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write_report(sf.assess("patients.csv", qi=["zip", "age"]), "assessment.html")
    >>> sf.write_report(sf.anonymize("patients.csv", k=4, qi=["zip", "age"]))
    """
    if isinstance(result, Assessment):
        page = render_report(result, title=title or "Anonymity assessment")
    elif isinstance(result, Release):
        page = page_of(result, name=title or (result.origin.name if result.origin else "The release")).html
    else:
        raise OptionError(f"a report is of an assessment or of a release, got {type(result).__name__}")
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")

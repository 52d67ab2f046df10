"""Write an assessment, a release or attacks as one offline HTML page.

The only script on a page is our own, which sorts tables. The page's content security policy names its hash, so no other
script can run.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

import sfumato
from sfumato.data.io.files import atomic_path, write_owned
from sfumato.data.release import Release
from sfumato.errors import OptionError
from sfumato.measures.assessment import SMALLEST_SHOWN, Assessment
from sfumato.report.charts.plot import bar_list, bar_rows, hatching, legend
from sfumato.report.summarise import count, of_unit, share, summarise, units_of

__all__ = [
    "Page",
    "facts_page",
    "fill",
    "page_of",
    "page_of_all",
    "page_script",
    "render_report",
    "style_sheet",
    "write_report",
]


class Page(NamedTuple):
    """A page, and the numbers on it that other pages need."""

    html: str
    summary: Any


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of a release, made by the package of its kind."""
    page: Page = _pages(release).page_of(release, name=name, **options)
    return page


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page:
    """Return the page that compares several releases, or lists those that cannot be compared."""
    kinds = {release.kind: release for release in releases.values()}
    compared: Page | None = None
    if len(kinds) == 1:
        compared = _pages(*kinds.values()).page_of_all(releases, pages, name=name)
    if compared:
        return compared
    facts = {
        own: f"{release.kind} by {release.method}: {', '.join(map(str, release.guarantees)) or 'nothing is guaranteed'}"
        for own, release in releases.items()
    }
    return _facts_page(name, count(len(facts), "release"), [], facts, heading="The releases")


def facts_page(release: Release, title: str, facts: Mapping[str, str], *, note: str = "", **parts: Any) -> Page:
    """Return a page with the guarantees of a release and the facts about it."""
    promises = [str(one) for one in release.guarantees]
    headline = "This release keeps the guarantees below." if promises else "Nothing is guaranteed for this release."
    return _facts_page(title, headline, [*promises, *filter(None, [note])], facts, **parts)


def _facts_page(title: str, headline: str, guarantees: Sequence[str], facts: Mapping[str, str], **parts: Any) -> Page:
    parts = {"heading": "How it was made", "columns": (), "lines": (), "charts": ()} | parts
    return Page(fill("facts.html", title=title, headline=headline, guarantees=guarantees, facts=facts, **parts), None)


def _pages(release: Release) -> Any:
    return importlib.import_module(f"sfumato.report.{release.kind.replace('-', '_')}.page")


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
        (bar.label, [(bar.rows, share(bar.rows / units_of(assessment)), "risky" if bar.risky else "after")])
        for bar in summary.bars
    ]
    columns = [(one.column, one.uniques_drop, of_unit(assessment, one.uniques_drop)) for one in summary.columns]
    return fill(
        "assessment.html",
        title=title,
        summary=summary,
        legend=legend("easier to single out", "better hidden", "risky"),
        sizes=bar_rows(f"Share of {summary.units} by the size of their class", sizes),
        columns=bar_list("Rows that would no longer be unique without a column", columns),
    )


def write_report(result: Any, path: str | Path = "report.html", *, title: str | None = None) -> None:
    """Write an assessment, a release, an evaluation or attacks as one HTML page, without a network or a record.

    The page of a released table, of an evaluation or of attacks also shows figures of the original table. That of a
    generator shows nothing but what its release contains. The file of an evaluation can be read by you alone; that of
    images shows some real ones.

    Parameters
    ----------
    result : Assessment, Release, Evaluation, ImageEvaluation, AttackReport, Frontier, Reproduction
        Or several Evaluations by name.
    path : path
        The file to write; an existing one is replaced.
    title : str, optional
        The heading of the page.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write_report(sf.assess("patients.csv", qi=["zip", "age"]), "assessment.html")
    >>> sf.write_report(sf.anonymize("patients.csv", k=4, qi=["zip", "age"]))
    """
    owned = False
    if isinstance(result, Assessment):
        page = render_report(result, title=title or "Anonymity assessment")
    elif isinstance(result, Release):
        page = page_of(result, name=title or (result.origin.name if result.origin else "The release")).html
    else:
        page, owned = _page_of_figures(result, title)
    if owned:
        write_owned(Path(path), page)
        return
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _page_of_figures(result: Any, title: str | None) -> tuple[str, bool]:
    """Return the page of an evaluation or of attacks, and whether only the owner of the data may read the file."""
    from sfumato.attacks.report import AttackReport  # statistics that other pages do without
    from sfumato.frontier.images.evaluation import ImageEvaluation
    from sfumato.frontier.sweep.frontier import Frontier
    from sfumato.frontier.tables.evaluate import Evaluation
    from sfumato.report.attacks.page import render_attacks
    from sfumato.report.evaluation.page import render_evaluation, render_evaluations
    from sfumato.report.frontier.page import render_frontier
    from sfumato.report.image_generator.owner import render_image_evaluation
    from sfumato.report.reproduction import render_reproduction
    from sfumato.reproductions.values import Reproduction

    if isinstance(result, Reproduction):
        return render_reproduction(result, title=title), False
    if isinstance(result, Frontier):
        return render_frontier(result, title=title or "Which protection to take"), True
    if isinstance(result, ImageEvaluation):
        return render_image_evaluation(result, title=title or "Real beside synthetic images"), True
    if isinstance(result, Evaluation):
        return render_evaluation(result, title=title or "Real beside released"), True
    if isinstance(result, Mapping) and result and all(isinstance(one, Evaluation) for one in result.values()):
        return render_evaluations(result, title=title or "Releases beside each other"), True
    if not isinstance(result, AttackReport):
        raise OptionError(
            "a report needs an assessment, a release, an evaluation, a frontier or attacks, "
            f"got {type(result).__name__}"
        )
    return render_attacks(result, title=title or f"Attacks on {result.target.get('name', 'the target')}"), False


def fill(template: str, **values: Any) -> str:
    """Return a page: a template of this folder filled with values, every text escaped.

    Examples
    --------
    >>> fill("base.html", title="A & B").count("A &amp; B")
    2
    """
    script = page_script()
    return (
        _templates()
        .get_template(template)
        .render(
            hatching=hatching(),
            version=sfumato.__version__,
            smallest_shown=SMALLEST_SHOWN,
            script=Markup(script),  # noqa: S704 - our own file
            script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            **values,
        )
    )


def page_script() -> str:
    """Return the script of every page."""
    return _text("page.js")


def style_sheet() -> str:
    """Return the style sheet of every page.

    Examples
    --------
    >>> ":root" in style_sheet()
    True
    """
    template = _templates().get_template("base.html")
    return "".join(template.blocks["style"](template.new_context()))


@cache
def _templates() -> Environment:
    """Return the environment of all pages: each template is compiled once."""
    return Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _text(name: str) -> str:
    return files("sfumato.report").joinpath(name).read_text(encoding="utf-8")

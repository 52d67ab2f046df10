"""Write an assessment or a release as one offline HTML page: summarise, plot, fill the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.data.io.files import atomic_path
from sfumato.errors import OptionError
from sfumato.measures.assessment import Assessment
from sfumato.report.charts.plot import bar_list, bar_rows, hatching, legend
from sfumato.report.summarise import count, share, summarise
from sfumato.report.template import fill

__all__ = ["render_report", "write_report"]


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


def write_report(result: Any, path: str | Path = "report.html", *, title: str | None = None) -> None:
    """Write an assessment or the release of a table as one HTML page that needs no network and holds no record.

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
    else:
        from sfumato.anonymizers.anonymize import Release  # here: an assessment needs none of it
        from sfumato.report.release.compared import release_page

        if not isinstance(result, Release):
            raise OptionError(
                f"a report is of an assessment or of an anonymized table, got {type(result).__name__}",
                hint="sf.save writes trained models with their report",
            )
        name = title or (result.origin.name if result.origin else "The release")
        page, _ = release_page(result, result.assessment, result.table, name=name)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")

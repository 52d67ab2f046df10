"""Write an assessment as one offline HTML page: summarise, plot, fill the template."""

from __future__ import annotations

from pathlib import Path

from sfumato.data.files import atomic_path
from sfumato.measures.assessment import Assessment
from sfumato.report.plot import bar_list, bar_rows, hatching, legend
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


def write_report(assessment: Assessment, path: str | Path, *, title: str = "Anonymity assessment") -> None:
    """Write an assessment as one HTML page that needs no network and holds no record of the table.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write_report(sf.assess("patients.csv", qi=["zip", "age"]), "report.html")
    """
    page = render_report(assessment, title=title)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")

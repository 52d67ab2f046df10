"""The page of a published experiment that was run again: printed figures beside ours."""

from __future__ import annotations

from markupsafe import Markup

from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.pictures import data_uri, tiled
from sfumato.report.page import fill
from sfumato.reproductions.values import NOT_RUN, VERDICTS, Curves, Pictures, Reproduction, shown

__all__ = ["render_reproduction"]

_WIDTH = 2.6  # of an image, in rem


def render_reproduction(found: Reproduction, *, title: str | None = None) -> str:
    """Return the page of a reproduction.

    Examples
    --------
    >>> import sfumato as sf
    >>> page = render_reproduction(sf.reproduce("epsilon-sweep", quick=True, epsilons=()))
    >>> "two-coin randomized response" in page
    True
    """
    run = [row for row in found.rows if row.note != NOT_RUN]
    form = "The quick form, which judges only what does not depend on its size." if found.quick else "The whole run."
    left = len(found.rows) - len(run)
    facts = [found.source, form] + ([f"{left} figures are not part of this form of the run."] if left else [])
    return fill(
        "reproduction.html",
        title=title or found.title,
        headline=", ".join(f"{name}: {count}" for name, count in found.verdicts.items()),
        facts=facts,
        rows=[{**vars(row), "printed": row.target, "ours": shown(row.ours)} for row in run],
        charts=[(one.title, "", _chart(one)) for one in found.figures if isinstance(one, Curves) and any(one.lines)],
        pictures=[
            (one.title, data_uri(tiled(list(one.images), one.columns)), min(len(one.images), one.columns) * _WIDTH)
            for one in found.figures
            if isinstance(one, Pictures)
        ],
        meanings=[(name, meaning) for name, meaning in VERDICTS.items() if name in found.verdicts],
        settings=[
            *((name.replace("_", " "), str(value)) for name, value in found.settings.items()),
            ("CPU seconds", f"{found.seconds:.1f}"),
        ],
    )


def _chart(one: Curves) -> Markup:
    lines = [Line(name, points, style % 5) for style, (name, points) in enumerate(one.lines.items())]
    return line_chart(one.title, lines, Axis(one.x, log=one.log), Axis(one.y), labels="below")

"""Several releases of one table side by side: one line of numbers for each, a chart, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sfumato.data.release import Release
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import bar_list
from sfumato.report.summarise import count, number, percent, share
from sfumato.report.table.comparison import Comparison
from sfumato.report.template import fill

__all__ = ["HEADINGS", "Beside", "render_side_by_side"]

_SHARES = Axis(text=share, tick=lambda value: f"{100 * value:.4g}%")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One of several releases, in the numbers that they are compared by.

    Attributes
    ----------
    name, method, guarantees : its folder, and how it was made
    asked, k : the k that was asked for, and the smallest class
    risk : the largest chance of picking a person's row
    suppressed : the share of the rows that is suppressed
    gcp, entropy : what it lost; see `Loss`. Single values in place of others have no width, so that they have no GCP
    query_error : the median relative error of counting queries
    accuracy, original : of a model trained on the release, and on the original table, if there is a target
    model : which model that is
    """

    name: str
    method: str
    guarantees: str
    asked: int
    k: int
    risk: float
    suppressed: float
    gcp: float | None
    entropy: float
    query_error: float | None
    accuracy: float | None = None
    original: float | None = None
    model: str | None = None

    @classmethod
    def of(cls, name: str, release: Release, measured: Comparison) -> Beside:
        """Take the numbers of a release, and of the page about it."""
        best = measured.accuracy[0] if measured.accuracy else None
        return cls(
            name=name,
            method=release.method,
            guarantees=", ".join(map(str, release.guarantees)),
            asked=max((int(getattr(one, "k", 0)) for one in release.guarantees), default=0),
            k=measured.after.k,
            risk=measured.after.risk.prosecutor_max,
            suppressed=release.loss.suppressed,
            gcp=None if measured.replaced else release.loss.gcp,
            entropy=release.loss.entropy,
            query_error=None if measured.queries is None else measured.queries.median,
            accuracy=None if best is None else best.released,
            original=None if best is None else best.raw,
            model=None if best is None else best.model,
        )

    def texts(self) -> list[str]:
        """Write the numbers for a person, in the order of `HEADINGS`; without the accuracy, if there is none."""
        written = [
            number(self.k),
            percent(self.risk),
            share(self.suppressed),
            "-" if self.gcp is None else share(self.gcp),
            share(self.entropy),
            "-" if self.query_error is None else share(self.query_error),
        ]
        return written if self.accuracy is None else [*written, share(self.accuracy)]


HEADINGS = ("Smallest class", "Risk at most", "Rows suppressed", "Detail lost", "Bits lost", "Query error", "Accuracy")
"""What the numbers of `Beside.texts` are."""


def render_side_by_side(ones: Sequence[Beside], *, rows: int, title: str) -> str:
    """Return a page that compares releases of a table with so many rows.

    Examples
    --------
    >>> low, high = (
    ...     Beside(
    ...         name=f"mondrian-k{k}", method="mondrian", guarantees=f"k={k}", asked=k, k=k, risk=1 / k,
    ...         suppressed=0.0, gcp=k / 100, entropy=k / 50, query_error=k / 100,
    ...     )
    ...     for k in (5, 10)
    ... )
    >>> page = render_side_by_side([low, high], rows=100, title="patients")
    >>> "mondrian-k5 keeps most detail: 10.0% of the bits are lost" in page
    True
    """
    least = min(ones, key=lambda one: one.entropy)
    return fill(
        "side_by_side.html",
        title=title,
        headline=f"{count(len(ones), 'release')} of {count(rows, 'row')}: {least.name} keeps most detail: "
        f"{share(least.entropy)} of the bits are lost",
        facts=_facts(ones),
        headings=HEADINGS[: len(ones[0].texts())],
        lines=[(one.name, one.guarantees, one.texts()) for one in ones],
        replaced=any(one.gcp is None for one in ones),
        original=None if ones[0].original is None else share(ones[0].original),
        model=ones[0].model,
        charts=_charts(ones),
    )


def _facts(ones: Sequence[Beside]) -> list[str]:
    safest = min(ones, key=lambda one: (one.risk, one.entropy))
    facts = [f"the smallest risk is that of {safest.name}: a chance of at most {percent(safest.risk)} per person"]
    if asked := [one for one in ones if one.query_error is not None]:
        best = min(asked, key=lambda one: one.query_error or 0.0)
        facts.append(
            f"counting queries are closest on {best.name}: half are off by {share(best.query_error or 0)} or less"
        )
    if scored := [one for one in ones if one.accuracy is not None]:
        best = max(scored, key=lambda one: one.accuracy or 0.0)
        facts.append(
            f"a {best.model} learns most from {best.name}: {share(best.accuracy or 0)} right; "
            f"from the original table, {share(best.original or 0)}"
        )
    return facts


def _charts(ones: Sequence[Beside]) -> list[tuple[str, Markup]]:
    """Draw what was lost by k, a line for each method; or bars, if there is one k only."""
    measures: list[tuple[str, dict[str, float | None]]] = [
        ("Bits lost", {one.name: one.entropy for one in ones}),
        ("Median error of counting queries", {one.name: one.query_error for one in ones}),
        ("Accuracy of a model trained on it", {one.name: one.accuracy for one in ones}),
    ]
    return [
        (caption, _chart(caption, ones, values))
        for caption, values in measures
        if all(value is not None for value in values.values())
    ]


def _chart(caption: str, ones: Sequence[Beside], values: dict[str, Any]) -> Markup:
    if len({one.asked for one in ones}) < 2:
        return bar_list(caption, [(one.name, values[one.name], share(values[one.name])) for one in ones], full=1.0)
    methods = dict.fromkeys(one.method for one in ones)
    lines = [
        Line(method, [(one.asked, values[one.name]) for one in ones if one.method == method], style)
        for style, method in enumerate(methods)
    ]
    points = sorted({one.asked for one in ones})
    return line_chart(caption, lines, Axis("k asked for", text=number, log=True, at=points), _SHARES, labels="below")

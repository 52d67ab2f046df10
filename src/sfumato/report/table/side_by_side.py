"""Several releases of one table side by side: a row of numbers for each, charts, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sfumato.data.release import Release
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import bar_list
from sfumato.report.page import fill
from sfumato.report.summarise import count, number, percent, share
from sfumato.report.table.comparison import Comparison

__all__ = ["HEADINGS", "ComparedRelease", "render_side_by_side"]

_SHARES = Axis(text=share, tick=lambda value: f"{100 * value:.4g}%")


@dataclass(frozen=True, kw_only=True)
class ComparedRelease:
    """One of several releases, with the numbers to compare them by.

    Attributes
    ----------
    name, method, guarantees : its folder, and how it was made
    asked, k : the k that was asked for, and the smallest class
    risk : the largest chance of picking a person's row
    suppressed : the share of suppressed rows
    gcp, entropy : the information loss; see `Loss`. Single values that stand for a class have no GCP
    query_error : the median relative error of counting queries
    accuracy, original : of a model trained on the release, and on the original table, if there is a target
    model : the name of that model
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
    def of(cls, name: str, release: Release, measured: Comparison) -> ComparedRelease:
        """Take the numbers of a release and of its page."""
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
        """Write the numbers in the order of `HEADINGS`, without the accuracy if there is none."""
        written = [
            number(self.k),
            percent(self.risk),
            share(self.suppressed),
            "-" if self.gcp is None else share(self.gcp),
            share(self.entropy),
            "-" if self.query_error is None else share(self.query_error),
        ]
        return written if self.accuracy is None else [*written, share(self.accuracy)]


HEADINGS = ("Smallest class", "Highest risk", "Rows suppressed", "Detail lost", "Bits lost", "Query error", "Accuracy")
"""The columns of `ComparedRelease.texts`."""


def render_side_by_side(ones: Sequence[ComparedRelease], *, rows: int, title: str) -> str:
    """Return a page that compares releases of a table.

    Examples
    --------
    >>> low, high = (
    ...     ComparedRelease(
    ...         name=f"mondrian-k{k}", method="mondrian", guarantees=f"k={k}", asked=k, k=k, risk=1 / k,
    ...         suppressed=0.0, gcp=k / 100, entropy=k / 50, query_error=k / 100,
    ...     )
    ...     for k in (5, 10)
    ... )
    >>> page = render_side_by_side([low, high], rows=100, title="patients")
    >>> "mondrian-k5 keeps the most detail: it loses 10.0% of the bits" in page
    True
    """
    least = min(ones, key=lambda one: one.entropy)
    return fill(
        "side_by_side.html",
        title=title,
        headline=f"{count(len(ones), 'release')} of {count(rows, 'row')}. {least.name} keeps the most detail: "
        f"it loses {share(least.entropy)} of the bits",
        facts=_facts(ones),
        headings=["Release", *HEADINGS[: len(ones[0].texts())]],
        lines=[(one.name, one.guarantees, one.texts()) for one in ones],
        replaced=any(one.gcp is None for one in ones),
        original=None if ones[0].original is None else share(ones[0].original),
        model=ones[0].model,
        charts=_charts(ones),
    )


def _facts(ones: Sequence[ComparedRelease]) -> list[str]:
    safest = min(ones, key=lambda one: (one.risk, one.entropy))
    facts = [f"{safest.name} has the smallest risk: a chance of at most {percent(safest.risk)} per person"]
    if asked := [one for one in ones if one.query_error is not None]:
        best = min(asked, key=lambda one: one.query_error or 0.0)
        facts.append(
            f"counting queries are most exact on {best.name}: half are off by at most {share(best.query_error or 0)}"
        )
    if scored := [one for one in ones if one.accuracy is not None]:
        best = max(scored, key=lambda one: one.accuracy or 0.0)
        facts.append(
            f"a {best.model} learns most from {best.name}: its accuracy is {share(best.accuracy or 0)}; "
            f"from the original table, {share(best.original or 0)}"
        )
    return facts


def _charts(ones: Sequence[ComparedRelease]) -> list[tuple[str, Markup]]:
    """Draw the losses by k, with a line for each method; or as bars if there is only one k."""
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


def _chart(caption: str, ones: Sequence[ComparedRelease], values: dict[str, Any]) -> Markup:
    if len({one.asked for one in ones}) < 2:
        return bar_list(caption, [(one.name, values[one.name], share(values[one.name])) for one in ones], full=1.0)
    methods = dict.fromkeys(one.method for one in ones)
    lines = [
        Line(method, [(one.asked, values[one.name]) for one in ones if one.method == method], style)
        for style, method in enumerate(methods)
    ]
    points = sorted({one.asked for one in ones})
    return line_chart(caption, lines, Axis("k asked for", text=number, log=True, at=points), _SHARES, labels="below")

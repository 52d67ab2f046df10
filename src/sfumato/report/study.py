"""The page of the study of auto-encoders for synthetic images: ours beside what was published."""

from __future__ import annotations

from sfumato.report.charts.pictures import data_uri, tiled
from sfumato.report.page import fill
from sfumato.synthesizers.images.study import Outcome, Study

__all__ = ["lines_of", "render_study"]

_COLUMNS = 10
_WIDTH = 2.6  # of an image, in rem


def lines_of(study: Study) -> list[dict[str, str]]:
    """Return the outcomes as texts.

    Examples
    --------
    >>> outcome = Outcome("real images", "real images", None, 0.9125, 0.936, 1.0)
    >>> lines_of(Study((outcome,), {}))[0]["accuracy"]
    '91.25 %'
    """
    return [
        {
            "trained_on": one.trained_on,
            "tested_on": one.tested_on,
            "epsilon": "infinite" if one.epsilon is None else f"{one.epsilon:g}",
            "accuracy": f"{100 * one.accuracy:.2f} %",
            "published": "" if one.published is None else f"{100 * one.published:.2f} %",
        }
        for one in study.outcomes
    ]


def render_study(study: Study) -> str:
    """Return the study as an HTML page.

    Examples
    --------
    >>> outcome = Outcome("auto-encoder", "real images", 1.0, 0.7, None, 1.0)
    >>> "70.0 % at epsilon 1" in render_study(Study((outcome,), {}))
    True
    """
    return fill(
        "study.html",
        title=study.title or "Private auto-encoders",
        headline=_headline(study.outcomes),
        notes=study.notes,
        rows=lines_of(study),
        pictures=[
            (name, data_uri(tiled(list(images[..., 0]), _COLUMNS)), _COLUMNS * _WIDTH)
            for name, images in study.pictures.items()
            if len(images)
        ],
        settings=[(name, str(value)) for name, value in study.settings.items()],
    )


def _headline(outcomes: tuple[Outcome, ...]) -> str:
    private = [(one.epsilon, one.accuracy) for one in outcomes if one.epsilon is not None]
    if not private:
        return "Nothing here is private."
    best: dict[float, float] = {}
    for cost, accuracy in private:
        best[cost] = max(accuracy, best.get(cost, 0.0))
    parts = [f"{100 * accuracy:.1f} % at epsilon {cost:g}" for cost, accuracy in best.items()]
    return f"A classifier that learned from private images is right for {', '.join(parts)}."

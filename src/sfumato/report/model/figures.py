"""The charts and images of a page about a training; images are PNG files inside the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.learners.training.runs import Pictures
from sfumato.measures.assessment import SMALLEST_SHOWN
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.pictures import data_uri, tiled
from sfumato.report.charts.plot import bar_pairs, heat_map, legend
from sfumato.report.model.outcome import Outcome, PrivacyCost, known
from sfumato.report.summarise import count, share

__all__ = [
    "MOST_CLASSES",
    "Figure",
    "charts_of",
    "confusion_matrices",
    "layers_of",
    "noise_of",
    "recalls_of",
    "roc_of",
]

MOST_CLASSES = 12  # in a readable matrix
_FEW_CLASSES, _FEW_LETTERS = 5, 10  # in a small matrix with large letters
_MOST_MAPS = 32  # of a layer
_EPOCH = Axis("epoch", whole=True)
_SHARES = Axis(text=share, tick=lambda value: f"{100 * value:.4g}%")


@dataclass(frozen=True)
class Figure:
    """A chart or an image with its caption."""

    caption: str
    chart: Markup | str
    alt: str = ""
    width: float = 0.0
    kind: str = ""
    """The CSS classes that lay out several figures."""


# --- charts ---------------------------------------------------------------------------------------


def charts_of(judge: PrivacyCost, runs: Sequence[Outcome]) -> list[Figure]:
    """Draw the score by epsilon and, if there were epochs, the course of the training."""
    what = "Mean squared error" if judge.regression else "Accuracy"
    scores = Axis(text=judge.write) if judge.regression else _SHARES
    finals = [one.spent for one in runs if one.private and 0 < one.spent < math.inf]
    wide = len(finals) > 1 and max(finals) > 4 * min(finals)
    figures = [
        _trade_off(judge, what, scores),
        _by_epoch(f"{what} on the test rows, after each epoch", runs, "score", scores),
        _by_epoch("Loss on the rows of each epoch", runs, "loss", Axis()),
        _by_epoch(
            "Epsilon spent, after each epoch",
            [one for one in runs if one.private],
            "epsilon",
            Axis(text="{:.3g}".format, log=wide),
        ),
    ]
    return [figure for figure in figures if figure is not None]


def _trade_off(judge: PrivacyCost, what: str, scores: Axis) -> Figure | None:
    points = [(one.run.epsilon, one.score) for one in judge.private if one.run.epsilon > 0 and one.scored]
    private = Line("private", points, 1)
    if not private.known:
        return None
    low, high = points[0][0] / 1.6, points[-1][0] * 1.6
    levels: list[tuple[str, float, int | None]] = [("no privacy", judge.ordinary.score, 0)] if judge.ordinary else []
    levels.append(("always the mean" if judge.regression else "guessing", judge.baseline, None))
    lines = [
        Line(f"{name}: {judge.write(level)}", [(low, level), (high, level)], style, marked=False)
        for name, level, style in levels
    ]
    chart = line_chart(
        f"{what} by epsilon",
        [private, *lines],
        Axis("epsilon (less is more private)", log=True, at=[epsilon for epsilon, _ in points]),
        scores,
        labels="points",
    )
    noise = f", with at most ± {judge.spread()} of noise" if judge.noisy else ""
    return Figure(f"{what} on the test rows, for every epsilon{noise}", chart)


def _by_epoch(caption: str, runs: Sequence[Outcome], key: str, axis: Axis) -> Figure | None:
    lines = []
    for one in runs:
        points = [(float(row.get("epoch", 0)), known(row.get(key))) for row in one.run.history]
        lines.append(Line(one.label, points, one.style))
    if not any(line.known for line in lines):
        return None
    return Figure(caption, line_chart(caption, lines, _EPOCH, axis))


def roc_of(runs: Sequence[Outcome]) -> Figure | None:
    """Draw the ROC curve of every run: of the second of two classes, or the mean curve of more classes."""
    lines, classes = [], 0
    at = np.linspace(0, 1, 101)
    for one in runs:
        scores = one.run.scores
        curves = [curve for curve in scores.curves if len(curve) > 2]  # a straight curve: the class was not tested
        if not curves:
            continue
        heights = np.mean([np.interp(at, *np.array(curve).T) for curve in curves], axis=0)
        label = one.label if scores.auc is None else f"{one.label}: {scores.auc:.3f}"
        points = [(float(x), float(y)) for x, y in zip(at, heights, strict=True)]
        lines.append(Line(label, [(0.0, 0.0), *points], one.style))
        classes = max(classes, len(scores.curves))
    if not lines:
        return None
    lines.append(Line("guessing: 0.500", [(0.0, 0.0), (1.0, 1.0)], None))
    names = runs[0].run.scores.classes
    whose = f"Class {names[1]}" if classes == 1 and len(names) == 2 else "Mean over classes, each against all others"
    chart = line_chart(
        f"ROC curves. {whose}", lines, replace(_SHARES, label="false positive rate"), _SHARES, labels="below"
    )
    return Figure(f"{whose}: the true positive rate by the false positive rate, with the area under the curve", chart)


# --- which predictions were wrong -----------------------------------------------------------------


def confusion_matrices(runs: Sequence[Outcome]) -> list[Figure]:
    """Draw the confusion matrix of every run, all with the same classes in the same order."""
    shown = [one for one in runs if one.run.scores.confusion]
    if not shown:
        return []
    names = list(shown[0].run.scores.classes)
    counts = [_counts(one) for one in shown]
    if len(names) > MOST_CLASSES:
        wrong = np.sum([one.sum(0) + one.sum(1) - 2 * one.diagonal() for one in counts], axis=0)
        kept = np.sort(np.argsort(-wrong, kind="stable")[: MOST_CLASSES - 1])
        place = np.full(len(names), len(kept))
        place[kept] = np.arange(len(kept))
        onto = np.eye(len(kept) + 1, dtype=np.int64)[place]
        counts = [onto.T @ one @ onto for one in counts]
        names = [*(names[one] for one in kept), "all others"]
    few = len(names) <= _FEW_CLASSES and max(map(len, names)) <= _FEW_LETTERS
    cell = (72.0, 36.0) if few else (36.0, 21.0)
    figures = []
    for one, matrix in zip(shown, counts, strict=True):
        cells = [
            [None] * len(names) if row.sum() < SMALLEST_SHOWN else [float(cell) for cell in row / row.sum()]
            for row in matrix
        ]
        title = f"Confusion matrix, {one.label}"
        chart = heat_map(title, names, names, cells, full=1.0, cell=cell, axes=("actual", "predicted"))
        figures.append(Figure(one.label, chart, kind="" if few else "grid two"))
    return figures


def recalls_of(runs: Sequence[Outcome]) -> Figure | None:
    """Draw the recall of every class at the smallest epsilon and without privacy, the largest loss first."""
    both = [one for one in runs if one.run.scores.confusion]
    if len(both) < 2 or not both[0].private or both[-1].private:
        return None
    private, ordinary = both[0], both[-1]
    shares = [
        (name, one[at] / max(one.sum(), 1), other[at] / other.sum())
        for at, (name, one, other) in enumerate(
            zip(ordinary.run.scores.classes, _counts(private), _counts(ordinary), strict=True)
        )
        if other.sum() >= SMALLEST_SHOWN
    ]
    ranked = sorted(shares, key=lambda one: one[1] - one[2])[:MOST_CLASSES]
    pairs = [(name, (one, share(one)), (other, share(other))) for name, one, other in ranked]
    if not pairs:
        return None
    caption = "The share of each class that is recognised (recall), largest loss first: privacy costs some classes more"
    chart = bar_pairs(f"Recall, {private.label}", pairs, full=1.0, then=ordinary.label)
    return Figure(caption, legend(private.label, ordinary.label) + chart)


def _counts(one: Outcome) -> NDArray[np.int64]:
    return np.array(one.run.scores.confusion, dtype=np.int64)


# --- pictures -------------------------------------------------------------------------------------


def noise_of(pictures: Pictures | None) -> list[Figure]:
    """Show the images at every level of noise, one sheet per level."""
    if pictures is None:
        return []
    return [
        Figure(
            f"noise with standard deviation {level:g}" if level else "original",
            data_uri(tiled(images, len(images))),
            f"{count(len(images), 'image')} " + (f"with noise of deviation {level:g}" if level else "without noise"),
            4.5 * len(images),
        )
        for level, images in zip(pictures.levels, pictures.noisy, strict=True)
        if images
    ]


def layers_of(pictures: Pictures | None, runs: Sequence[Outcome]) -> list[tuple[str, list[Figure]]]:
    """Show the feature maps of one image, for every layer and run; the image itself comes first."""
    if pictures is None or not pictures.maps:
        return []
    layers: dict[str, list[Figure]] = {}
    for one in runs:
        for layer, images in pictures.maps.get(one.run.name, {}).items():
            few = images[:_MOST_MAPS]
            left_out = f" (the first {len(few)} of {len(images)})" if len(images) > len(few) else ""
            alt = f"{count(len(few), 'feature map')} of {layer}, {one.label}"
            if few:
                sheet = data_uri(tiled(few, min(8, len(few))))
                layers.setdefault(layer, []).append(Figure(one.label + left_out, sheet, alt, 24.0))
    image = Figure("", data_uri(pictures.shown), "The input image", 6.0)
    return [("The image", [image]), *layers.items()]

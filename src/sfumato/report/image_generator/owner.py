"""The owner's page of synthetic images: real beside synthetic, nearest neighbours, and what models learn from them.

It shows real images and exact figures, so it is for the owner of the data alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sfumato.frontier.images.evaluation import ImageEvaluation, ImageFigures, Score
from sfumato.report.charts.plot import bar_pairs, heat_map, legend
from sfumato.report.image_generator.sheets import Sheet, pairs_sheet, paper_of, shown_classes
from sfumato.report.page import fill
from sfumato.report.summarise import count, number, share

__all__ = ["render_image_evaluation"]

Floats = NDArray[np.float64]

_COLUMNS, _ROWS = 6, 2  # of a sheet
_BINS = 10  # of distances
_MOST_IN_MATRIX = 12
_FIRST = 0.995  # of the distances: the axis of the chart ends there


def render_image_evaluation(evaluation: ImageEvaluation, *, title: str = "Real beside synthetic images") -> str:
    """Return an evaluation of images as an HTML page for the owner of the real ones.

    Examples
    --------
    >>> import sfumato as sf
    >>> digits = sf.datasets.mnist()
    >>> images, labels = digits.train_images, digits.train_labels
    >>> found = sf.frontier.evaluate_images((images[:300], labels[:300]), (images[300:600], labels[300:600]))
    >>> "Do not publish it" in render_image_evaluation(found)
    True
    """
    e = evaluation
    classes = shown_classes(e.canvas)
    paper = paper_of(e.canvas, len(classes) * (1 + len(e.sets)), columns=_COLUMNS, rows=_ROWS)
    named = [("real", e.samples.by_class), *((one.name, one.samples.by_class) for one in e.sets)]
    beside = [
        (
            f"Class {at}",
            [
                made
                for name, images in named
                if (made := paper.sheet(name, images[at], f"{name}, class {at}")) is not None
            ],
        )
        for at in classes
    ]
    return fill(
        "images_owner.html",
        title=title,
        headline=_headline(e),
        facts=_facts(e),
        warnings=_warnings(e),
        good=False if e.leaks else None,
        models=[one.model for one in e.real],
        figures=[_real_line(e), *(_line(one) for one in e.sets)],
        tested=e.images["test"],
        compared=e.compared,
        beside=beside,
        shown=len(classes),
        classes=e.canvas.classes,
        times=paper.times,
        neighbours=[_neighbours(e, one) for one in e.sets if one.samples.nearest is not None],
        recalls=[_recalls(e.real[0], one) for one in e.sets if one.scores],
        matrices=[] if e.canvas.classes > _MOST_IN_MATRIX else [_matrix(one) for one in e.sets if one.scores],
        legend=legend("real images", "synthetic images"),
        by_class=_by_class(e),
        made=_made(e),
    )


def _headline(e: ImageEvaluation) -> str:
    if not e.real or e.accuracy is None:
        return f"Distance of the synthetic images from the real ones: {_distance(e.sets[0].distance)}"
    best = max(e.sets, key=lambda one: one.accuracy or 0.0)
    return (
        f"A network that is trained on synthetic images is right about {share(best.accuracy or 0.0)} of real test "
        f"images; trained on the real ones, about {share(e.real[0].accuracy)}"
    )


def _facts(e: ImageEvaluation) -> list[str]:
    facts = []
    if len(e.sets) > 1 and e.real:
        best = max(e.sets, key=lambda one: one.accuracy or 0.0)
        facts.append(f"the best set to train on: {best.name}")
        nearest = min(e.sets, key=lambda one: one.distance)
        facts.append(f"the set that looks most like the real images: {nearest.name}")
    for one in e.sets:
        if one.copies is not None:
            facts.append(f"{one.name}: {_verdict(one)}")
    facts += [f"{part} were not measured: {why}" for part, why in e.skipped.items()]
    return facts


def _verdict(one: ImageFigures) -> str:
    """Say whether a set copies training images."""
    assert one.copies is not None
    low, high = one.copies.chance
    same = f"; {count(one.copies.identical, 'image')} identical to a real one" if one.copies.identical else ""
    found = (
        f"{share(one.copies.nearer_to_training)} are nearer to a training image than to another real one (without "
        f"copies {100 * low:.0f} to {100 * high:.0f}%){same}"
    )
    if one.copies.leaks:
        return f"may copy real images: {found}"
    return f"copies cannot be told from chance: {found}" if high >= 1 else f"no copies found: {found}"


def _warnings(e: ImageEvaluation) -> list[str]:
    warnings = ["For the owner of the data alone: this page shows real images and exact figures. Do not publish it."]
    open_ = [one.name for one in e.sets if one.epsilon == math.inf]
    if open_:
        warnings.append(f"Epsilon is infinite for {', '.join(open_)}: nothing is guaranteed.")
    return warnings


def _real_line(e: ImageEvaluation) -> dict[str, Any]:
    return {
        "name": "real images",
        "note": count(e.images["real"], "image"),
        "scores": [_score(one) for one in e.real],
        "distance": _distance(e.test_distance),
        "agreement": ("-", ""),
        "nearer": "-",
        "bad": "",
    }


def _line(one: ImageFigures) -> dict[str, Any]:
    cost = "" if one.epsilon is None else f", epsilon {number(one.epsilon)}"
    copies, spread = one.copies, one.agreement_interval
    return {
        "name": one.name,
        "note": count(one.images, "image") + cost,
        "scores": [_score(score) for score in one.scores],
        "distance": _distance(one.distance),
        "agreement": ("-", "") if one.agreement is None else (f"{100 * one.agreement:.1f}%", _interval(spread)),
        "nearer": "-" if copies is None else f"{100 * copies.nearer_to_training:.1f}%",
        "bad": "may copy" if copies is not None and copies.leaks else "",
    }


def _score(one: Score) -> tuple[str, str]:
    return f"{100 * one.accuracy:.2f}%", _interval(one.interval)


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}%"


def _neighbours(e: ImageEvaluation, one: ImageFigures) -> dict[str, Any]:
    """Return the nearest pairs of a set, some pairs, and the chart of all distances."""
    assert one.samples.nearest is not None
    assert one.samples.some is not None
    found = one.copies
    return {
        "name": one.name,
        "verdict": "" if found is None else f"{_verdict(one)[:1].upper()}{_verdict(one)[1:]}.",
        "bad": found is not None and found.leaks,
        "nearest": _pairs(e, one.samples.nearest, "the most alike"),
        "some": _pairs(e, one.samples.some, "drawn at random"),
        "chart": None if one.samples.distances is None else _distances(one.name, *one.samples.distances),
        "figures": []
        if found is None
        else [
            ("distance to the nearest training image", f"{found.distance:.3f}", f"{found.held_out_distance:.3f}"),
            ("identical to a training image", number(found.identical), "-"),
            ("nearer than a held-out image is", share(found.closer), "50.0%"),
            ("nearer to training, other training images", share(found.others_nearer), "-"),
        ],
    }


def _pairs(e: ImageEvaluation, pairs: tuple[Any, Any, Any], what: str) -> tuple[Sheet, str]:
    made, real, distances = pairs
    alt = f"{count(len(made), 'synthetic image')}, {what}, and below each the nearest real one"
    return pairs_sheet(e.canvas, made, real, alt), f"{distances.min():.3f} to {distances.max():.3f}"


def _distances(name: str, made: Floats, held: Floats) -> Markup:
    """Draw how far synthetic and held-out images are from the nearest training image."""
    top = float(np.quantile(np.concatenate([made, held]), _FIRST)) or 1.0
    edges = np.linspace(0, top, _BINS + 1)
    shares = [np.histogram(np.minimum(values, top), edges)[0] / len(values) for values in (held, made)]
    bars = [
        (f"{low:.2f} to {high:.2f}", (float(other), share(other)), (float(ours), share(ours)))
        for low, high, other, ours in zip(edges[:-1], edges[1:], *shares, strict=True)
    ]
    return bar_pairs(f"Distance to the nearest training image, {name}", bars, then="synthetic")


def _recalls(real: Score, one: ImageFigures) -> tuple[str, str, Markup]:
    """Draw the share of each class that a network recognises, trained on real and on synthetic images."""
    pairs = [
        (f"class {at}", (ours, share(ours)), (theirs, share(theirs)))
        for at, (ours, theirs) in enumerate(zip(real.by_class, one.scores[0].by_class, strict=True))
        if ours is not None and theirs is not None
    ]
    lost = sorted(pairs, key=lambda pair: pair[2][0] - pair[1][0])[:_MOST_IN_MATRIX]
    chart = bar_pairs(f"Recall by class, {one.name}", lost, full=1.0, then="synthetic")
    return one.name, "largest loss first", chart


def _matrix(one: ImageFigures) -> tuple[str, str, Markup]:
    """Draw which classes a network confuses that is trained on a set."""
    counts = one.scores[0].confusion
    names = [str(at) for at in range(len(counts))]
    cells = [[cell / sum(row) if sum(row) else None for cell in row] for row in counts]
    grid = heat_map(f"Confusion, {one.name}", names, names, cells, full=1.0, axes=("actual", "predicted"))
    return one.name, "percent of each actual class", grid


def _by_class(e: ImageEvaluation) -> tuple[Sequence[str], list[list[str]]]:
    """Return the distances within each class: the headings, and a row per class."""
    sets = [(one.name, one.distance_by_class) for one in e.sets]
    if e.test_distance_by_class is not None:
        sets.insert(0, ("other real images", e.test_distance_by_class))
    rows = [
        [str(at), *(_distance(values[at]) for _, values in sets)]
        for at in shown_classes(e.canvas)
        if any(values[at] is not None for _, values in sets)
    ]
    return ["Class", *(name for name, _ in sets)], rows


def _made(e: ImageEvaluation) -> list[tuple[str, str]]:
    """Say how the figures were measured."""
    canvas = e.canvas
    known = [
        ("size", f"{canvas.height} x {canvas.width} pixels, {'grey' if canvas.channels == 1 else 'in colour'}"),
        ("classes", str(canvas.classes)),
        ("real images", number(e.images["real"])),
        ("test images", number(e.images["test"])),
    ]
    known += [(f"images, {one.name}", number(one.images)) for one in e.sets]
    known.append(("distance", f"Fréchet distance of scattering features, {number(e.compared)} images of each set"))
    compared = next((one.copies for one in e.sets if one.copies is not None), None)
    if compared is not None:
        numbers = f"{number(compared.training)} training images and {number(compared.held_out)} held-out ones"
        known.append(("copies", f"looked for among {numbers}"))
    known += [(f"no {part}", why) for part, why in e.skipped.items()]
    return [*known, ("seed", str(e.seed))]

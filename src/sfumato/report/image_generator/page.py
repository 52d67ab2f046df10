"""The public page of synthetic images: what they promise, contact sheets of each style, what every access cost.

The page is part of the release: it shows public and noisy values and images that the generator has drawn. It shows real
images only if they are those of a public data set that comes with Sfumato. How the images compare with private ones is
on the page of an evaluation (`report.image_generator.owner`), for the owner of the data alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data import datasets
from sfumato.data.release import Release
from sfumato.report.image_generator.sheets import Paper, Sheet, paper_of, shown_classes
from sfumato.report.page import Page, fill
from sfumato.report.summarise import count, number, percent, words
from sfumato.synthesizers.images.base import Canvas

__all__ = ["page_of", "page_of_all"]

_COLUMNS, _ROWS = 5, 5  # of a sheet
_DRAWN = 3 * _COLUMNS * _ROWS  # images per class of a style that the release has none of
_MOST_DRAWN = 2**26  # bytes of images
_FEW = 3  # classes, whose sheets are drawn larger
_FOR = {
    "distilled": (
        "Images to train on",
        "Made for training a model: warped more than looks natural, and labelled by a private teacher. The strange "
        "ones are there on purpose, because a model learns more from them. They are not made for the eye.",
    ),
    "faithful": (
        "Images to look at",
        "Made for the eye: not warped, each with the class that it was drawn for.",
    ),
}
_PURPOSES = {
    "norms": "how bright images are, and about how many there are",
    "tones": "how often each shade occurs in a class",
    "basis": "the directions in which images differ most",
    "moments": "the mean and the spread of each class",
    "centres": "the typical images of each class",
    "gradients": "the steps in which the teacher learned to tell classes apart",
    "clusters": "the groups that images fall into",
    "sizes": "how many images each group has",
    "training": "the steps in which the auto-encoders learned",
    "counts": "how many codes each part of a mixture has",
    "means": "where the parts of a mixture lie",
    "covariances": "how wide the parts of a mixture are",
}


class _Style(NamedTuple):
    name: str
    title: str
    text: str
    sheets: list[Sheet]


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of synthetic images."""
    canvas, styles, real = release.canvas, release.model.styles, _public_images(release)
    paper = paper_of(
        canvas, len(shown_classes(canvas)) * (len(styles) + (real is not None)), columns=_COLUMNS, rows=_ROWS
    )
    page = fill(
        "images.html",
        title=f"{name}: synthetic images",
        headline=_headline(release),
        facts=_facts(release),
        warnings=_warnings(release),
        styles=[_style(release, one, paper) for one in styles],
        real=[] if real is None else _sheets(*real, canvas, paper, "real images"),
        source=release.provenance.name or "the data set",
        shown=len(shown_classes(canvas)),
        layout="sheets" if canvas.classes > _FEW else "",
        classes=canvas.classes,
        times=paper.times,
        purchases=[] if release.plan is None else [_purchase(one) for one in release.plan.purchases],
        spent=str(release.spent),
        folder=name,
        described=_described(canvas),
        made=_made(release),
    )
    return Page(page, None)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return None: generators are listed, not compared."""
    return None


def _headline(release: Release) -> str:
    made = count(release.rows, "synthetic image")
    if release.plan is None:
        return f"{made} without any guarantee"
    return f"{made} at epsilon {number(float(release.epsilon))} and delta {number(float(release.delta))}"


def _warnings(release: Release) -> list[str]:
    if release.plan is None:
        return [
            f"Epsilon is infinite: the method '{release.method}' guarantees nothing. It is there to be compared with "
            "private methods; do not release its images as private ones."
        ]
    return [] if release.private else ["The noise came from a given seed: this is reproducible, and not private."]


def _facts(release: Release) -> list[str]:
    facts = [str(one) for one in release.guarantees] or ["nothing is guaranteed"]
    if release.plan is None:
        facts.append("a synthetic image may show a real one: nothing bounds what it gives away")
    else:
        facts.append(
            "all images were drawn from noisy numbers; drawing more costs nothing, as the noise was added once"
        )
    return facts


def _style(release: Release, style: str, paper: Paper) -> _Style:
    """Return the sheets of a style; images that the release does not hold are drawn, always the same ones."""
    canvas = release.canvas
    images, labels = release.images, release.labels
    if style != release.style:
        rows = max(1, min(_DRAWN * len(shown_classes(canvas)), _MOST_DRAWN // math.prod(canvas.shape)))
        images, labels = release.draw(rows, np.random.default_rng(0), style=style)
    title, text = _FOR.get(style, (f"Images in the style '{style}'", ""))
    if len(release.model.styles) == 1:
        title = "The images"
    held = "These are in images.npz." if style == release.style else "Not in images.npz: drawn for this page."
    return _Style(style, title, f"{text} {held}".strip(), _sheets(images, labels, canvas, paper, f"{style} images"))


def _sheets(images: NDArray[np.uint8], labels: NDArray[Any], canvas: Canvas, paper: Paper, what: str) -> list[Sheet]:
    """Return a sheet for each class that has images."""
    pixels = images.reshape(-1, *canvas.shape)
    made = (
        paper.sheet(f"Class {one}", pixels[np.flatnonzero(labels == one)[: paper.images]], f"{what} of class {one}")
        for one in shown_classes(canvas)
    )
    return [one for one in made if one is not None]


def _public_images(release: Release) -> tuple[NDArray[np.uint8], NDArray[Any]] | None:
    """Return the real images that everybody may see: those of a public data set that comes with Sfumato."""
    if release.provenance.name != "mnist" or release.provenance.more.get("public") is not True:
        return None
    if release.canvas != Canvas(28, 28, 1, 10):
        return None
    digits = datasets.mnist()
    return digits.train_images, digits.train_labels


def _purchase(one: Any) -> tuple[str, str, str, str, float]:
    """Return a private access: its name, its purpose, its noise, its share, and the length of a bar."""
    purpose = _PURPOSES.get(one.name, "a sum over the images")
    return one.name, purpose, str(one.event), percent(one.share), 100 * one.share


def _described(canvas: Canvas) -> list[tuple[str, str]]:
    return [
        ("size", f"{canvas.height} x {canvas.width} pixels, {'grey' if canvas.channels == 1 else 'in colour'}"),
        ("classes", f"{canvas.classes}: labels 0 to {canvas.classes - 1}"),
    ]


def _made(release: Release) -> list[tuple[str, str]]:
    """Say how the generator was made."""
    known = {
        "source": release.provenance.name or "data without a name",
        "method": release.method,
        "settings": release.parameters.get("parameters"),
        "style of images.npz": release.style,
        "cost of all purchases": "not bounded" if release.plan is None else str(release.spent),
        "unit": "one image: the bound is weaker for a person with several images",
    }
    return [(name, words(value)) for name, value in known.items() if value]

"""The public page of synthetic images: what they promise, contact sheets of each style, what every access cost.

The page is part of the release: it shows public and noisy values and images that the generator has drawn. It shows real
images only if they are those of a public data set that comes with Sfumato. How the images compare with private ones is
on the page of an evaluation (`report.image_generator.owner`), for the owner of the data alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import spent
from sfumato.data import datasets
from sfumato.data.release import Release
from sfumato.report.image_generator.sheets import Paper, Sheet, paper_of, shown_classes
from sfumato.report.page import Page, fill
from sfumato.report.summarise import count, number, percent, words
from sfumato.synthesizers.images.base import Canvas

__all__ = ["page_of", "page_of_all"]

_COLUMNS, _ROWS = 5, 5  # of a sheet
_BESIDE, _ROWS_BESIDE = 6, 2  # of a sheet beside those of other releases
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
    "middle": "what all images have in common, such as their brightness",
    "spread": "how far images are from the middle",
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
    """Return the page that compares generators of one set of images, by what is public of them."""
    ones = list(releases.values())
    canvas = ones[0].canvas
    if any(one.canvas != canvas for one in ones):
        return None  # they are listed
    sets = {own: _drawn(one, _to_look_at(one)) for own, one in releases.items()}
    real = [_public_images(one) for one in ones]
    if real[0] is not None and None not in real:
        sets = {"real": real[0], **sets}
    paper = paper_of(canvas, len(shown_classes(canvas)) * len(sets), columns=_BESIDE, rows=_ROWS_BESIDE)
    by_set = {own: _sheets(*drawn, canvas, paper, own) for own, drawn in sets.items()}
    beside = [
        (label, [one._replace(name=own) for own, sheets in by_set.items() for one in sheets if one.name == label])
        for label in (f"Class {one}" for one in shown_classes(canvas))
    ]
    page = fill(
        "images_all.html",
        title=f"{name}: generators of synthetic images",
        headline=f"{count(len(ones), 'generator')} of synthetic images",
        facts=list(dict.fromkeys(f"{own}: {one.note}" for own, one in releases.items() if one.note)),
        warnings=list(dict.fromkeys(text for one in ones for text in _warnings(one))),
        headings=["Generator", "Epsilon", "Spent", "Images"],
        lines=[
            (own, f"{one.method}: {', '.join(map(str, one.guarantees)) or 'nothing is guaranteed'}", _numbers(one))
            for own, one in releases.items()
        ],
        beside=beside,
        real="real" in sets,
        source=ones[0].provenance.name or "the data set",
        shown=len(shown_classes(canvas)),
        classes=canvas.classes,
        spent=_together(ones),
    )
    return Page(page, None)


def _numbers(release: Release) -> list[str]:
    """Return the numbers by which generators are compared."""
    cost = math.inf if release.plan is None else float(release.spent.epsilon)
    return [number(float(release.epsilon)), number(cost), number(release.rows)]


def _together(releases: Sequence[Release]) -> str:
    """Say what all generators cost whoever has all of them."""
    if any(one.plan is None for one in releases):
        return ""
    return str(spent([event for one in releases for event in one.events], max(one.delta for one in releases)))


def _to_look_at(release: Release) -> str:
    """Return the style that is best to look at."""
    styles: tuple[str, ...] = release.model.styles
    return "faithful" if "faithful" in styles else styles[0]


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
    """Return the sheets of a style."""
    title, text = _FOR.get(style, (f"Images in the style '{style}'", ""))
    if len(release.model.styles) == 1:
        title = "The images"
    held = "These are in images.npz." if style == release.style else "Not in images.npz: drawn for this page."
    sheets = _sheets(*_drawn(release, style), release.canvas, paper, f"{style} images")
    return _Style(style, title, f"{text} {held}".strip(), sheets)


def _drawn(release: Release, style: str) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return images of a style: those of the release, or drawn ones, which are always the same."""
    if style == release.style:
        return release.images, release.labels
    canvas = release.canvas
    rows = max(1, min(_DRAWN * len(shown_classes(canvas)), _MOST_DRAWN // math.prod(canvas.shape)))
    images, labels = release.draw(rows, np.random.default_rng(0), style=style)
    return images, labels


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

"""Contact sheets: some images of each class as one small picture, so that a page stays below a megabyte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.report.charts.pictures import data_uri, smaller, tiled
from sfumato.report.summarise import count
from sfumato.synthesizers.images.base import Canvas

__all__ = ["MOST_CLASSES", "Paper", "Sheet", "pairs_sheet", "paper_of", "shown_classes"]

Bytes = NDArray[np.uint8]

MOST_CLASSES = 20
"""The most classes on a page."""

_BYTES = 600_000  # of all sheets of a page, before they are written as text
_FEWEST = 6  # images on a sheet; if there is no room for them, they are drawn smaller
_SMALLEST = 16  # pixels a side that an image keeps
_SCALE = 2.2  # at most so many dots of a screen for each pixel, or small images look coarse
_LETTER = 16.0  # dots of a rem


class Sheet(NamedTuple):
    """A picture of several images."""

    name: str
    source: str
    alt: str
    width: float
    """The largest width on a page, in rem."""


class Paper(NamedTuple):
    """How images are laid out on a sheet."""

    images: int
    columns: int
    times: int
    """How many times smaller an image is drawn."""

    def sheet(self, name: str, images: Bytes, alt: str) -> Sheet | None:
        """Return a sheet of the first images; None if there are none."""
        if not len(images):
            return None
        shown = smaller(images[: self.images], self.times)
        picture = tiled(shown, self.columns)
        return Sheet(name, data_uri(picture), f"{count(len(shown), 'image')}: {alt}", _width(picture))


def paper_of(canvas: Canvas, sheets: int, *, columns: int, rows: int) -> Paper:
    """Return how images of a size are laid out on a page with so many sheets.

    Examples
    --------
    >>> paper_of(Canvas(28, 28, 1, 10), 20, columns=5, rows=5)
    Paper(images=25, columns=5, times=1)
    >>> paper_of(Canvas(224, 224, 3, 10), 20, columns=5, rows=5)
    Paper(images=5, columns=5, times=6)
    """
    times = 1
    while True:
        pixels = (canvas.height // times) * (canvas.width // times) * canvas.channels
        room = _BYTES // (max(1, sheets) * pixels)
        if room >= _FEWEST or min(canvas.height, canvas.width) // (times + 1) < _SMALLEST:
            images = max(1, min(columns * rows, room))
            return Paper(images - images % columns if images > columns else images, columns, times)
        times += 1


def pairs_sheet(canvas: Canvas, above: Bytes, below: Bytes, alt: str) -> Sheet:
    """Return a sheet of two rows: images, and below each the one that it is compared with."""
    paper = paper_of(canvas, 1, columns=len(above), rows=2)
    picture = tiled(smaller(np.concatenate([above, below]), paper.times), len(above), gap=2)
    return Sheet("", data_uri(picture), alt, _width(picture))


def shown_classes(canvas: Canvas) -> Sequence[int]:
    """Return the classes that a page shows."""
    return range(min(canvas.classes, MOST_CLASSES))


def _width(picture: Bytes) -> float:
    return _SCALE * int(picture.shape[1]) / _LETTER

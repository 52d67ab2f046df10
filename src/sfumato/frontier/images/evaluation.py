"""The figures of synthetic images beside real ones, and some of the images, for the owner of the data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.frontier.images.copies import Copies
from sfumato.synthesizers.images.base import Canvas

__all__ = ["ImageEvaluation", "ImageFigures", "ImageSamples", "Score"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

_NOTE = "figures of real images without noise: for the owner of the data, not for publication"
_COLUMNS = {
    "set": pl.String, "model": pl.String, "images": pl.Int64, "accuracy": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "distance": pl.Float64, "agreement": pl.Float64, "nearer_to_training": pl.Float64,
    "identical": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class Score:
    """How a model does on real test images.

    Attributes
    ----------
    model : its name
    images : how many images it was trained on
    tested : how many it was tested on
    accuracy : the share that it is right about
    interval : of the accuracy, with 95 % confidence (Clopper and Pearson 1934)
    confusion : how many images of each class (a row) it takes for each class (a column)
    """

    model: str
    images: int
    tested: int
    accuracy: float
    interval: tuple[float, float]
    confusion: tuple[tuple[int, ...], ...]

    @property
    def by_class(self) -> tuple[float | None, ...]:
        """The share of each class that it is right about; None for a class without test images."""
        return tuple(row[at] / sum(row) if sum(row) else None for at, row in enumerate(self.confusion))

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain values."""
        return {
            "model": self.model,
            "images": self.images,
            "tested": self.tested,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "by_class": list(self.by_class),
            "confusion": [list(row) for row in self.confusion],
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageSamples(Discreet):
    """Some images of a set and their nearest real ones, for the page of the owner; never part of `to_dict`.

    Attributes
    ----------
    by_class : some images of each class
    nearest : the synthetic images that are nearest to a training image, and that training image
    some : the same for synthetic images that are drawn at random
    distances : of synthetic images to the nearest training image, and of held-out images, if there are any
    """

    by_class: tuple[Bytes, ...]
    nearest: tuple[Bytes, Bytes, Floats] | None = None
    some: tuple[Bytes, Bytes, Floats] | None = None
    distances: tuple[Floats, Floats] | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageFigures(Discreet):
    """The figures of one set of synthetic images.

    Attributes
    ----------
    name : of the set, such as its style
    images : how many it has
    epsilon : what it cost; infinite if nothing is guaranteed, None if it is not known
    scores : how models do on real test images that were trained on this set
    distance : the Fréchet distance of scattering features from real images; 1 is that of their mean
    distance_by_class : the same within each class; None for a class with few images
    agreement : the share of labels that a network agrees with that was trained on real images
    agreement_interval : of this share, with 95 % confidence
    copies : whether it copies training images
    samples : some of its images
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("name", "images", "accuracy", "distance")

    name: str
    images: int
    epsilon: float | None = None
    scores: tuple[Score, ...] = ()
    distance: float
    distance_by_class: tuple[float | None, ...]
    agreement: float | None = None
    agreement_interval: tuple[float, float] | None = None
    copies: Copies | None = None
    samples: ImageSamples

    @property
    def accuracy(self) -> float | None:
        """The accuracy of the first model."""
        return self.scores[0].accuracy if self.scores else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "name": self.name,
            "images": self.images,
            "epsilon": "infinite" if self.epsilon == math.inf else self.epsilon,
            "scores": [one.to_dict() for one in self.scores],
            "distance": self.distance,
            "distance_by_class": list(self.distance_by_class),
            "agreement": self.agreement,
            "agreement_interval": self.agreement_interval and list(self.agreement_interval),
            "copies": self.copies and {**self.copies.to_dict(), "leaks": self.copies.leaks},
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageEvaluation(Discreet):
    """What synthetic images are good for, and whether they copy real ones; made by `evaluate_images`.

    Attributes
    ----------
    canvas : the size of an image, and the number of classes
    images : the number of real images for training, and of test images
    real : how models do on test images that were trained on real images
    test_distance : the Fréchet distance of the test images: no synthetic set can be expected to come closer
    test_distance_by_class : the same within each class
    sets : the figures of each set of synthetic images, such as a style or a method
    compared : how many images of each set the distances are measured with
    skipped : why a part was not measured, by name
    seed : of everything that is drawn
    samples : some real images
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("accuracy", "real_accuracy", "leaks")

    canvas: Canvas
    images: Mapping[str, int]
    real: tuple[Score, ...]
    test_distance: float | None
    test_distance_by_class: tuple[float | None, ...] | None
    sets: tuple[ImageFigures, ...]
    compared: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    samples: ImageSamples

    @property
    def accuracy(self) -> float | None:
        """The accuracy of the first model, trained on the first set."""
        return self.sets[0].accuracy

    @property
    def real_accuracy(self) -> float | None:
        """The accuracy of the first model, trained on real images."""
        return self.real[0].accuracy if self.real else None

    @property
    def leaks(self) -> bool | None:
        """Whether any set copies training images; None if that was not measured."""
        known = [one.copies.leaks for one in self.sets if one.copies is not None]
        return any(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        canvas = self.canvas
        by_class = self.test_distance_by_class
        return {
            "size": [canvas.height, canvas.width, canvas.channels],
            "classes": canvas.classes,
            "images": dict(self.images),
            "real": [one.to_dict() for one in self.real],
            "test_distance": self.test_distance,
            "test_distance_by_class": by_class and list(by_class),
            "sets": [one.to_dict() for one in self.sets],
            "compared": self.compared,
            "skipped": dict(self.skipped),
            "seed": self.seed,
            "note": _NOTE,
        }

    def to_json(self) -> str:
        """Return the figures as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self) -> pl.DataFrame:
        """Return a row for each set and model, real images first."""
        rows = [{"set": "real images", "distance": self.test_distance, **_line(one)} for one in self.real]
        for made in self.sets:
            common = {"set": made.name, "distance": made.distance, "agreement": made.agreement, **_about(made.copies)}
            rows += [{**common, **_line(one)} for one in made.scores] or [common]
        return pl.DataFrame(rows, schema=_COLUMNS)


def _line(score: Score) -> dict[str, Any]:
    low, high = score.interval
    return {"model": score.model, "images": score.images, "accuracy": score.accuracy, "low": low, "high": high}


def _about(copies: Copies | None) -> dict[str, Any]:
    if copies is None:
        return {}
    return {"nearer_to_training": copies.nearer_to_training, "identical": copies.identical}

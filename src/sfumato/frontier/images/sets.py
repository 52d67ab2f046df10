"""Which images are meant: real ones, test images, and one or several sets of synthetic ones, all of one size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sfumato.data import datasets
from sfumato.data.certificate import CERTIFICATE
from sfumato.data.images import Images
from sfumato.data.io.images import are_images, read_images
from sfumato.data.release import Release
from sfumato.errors import InputError, OptionError
from sfumato.synthesizers.images.base import Canvas, ImageRecords

__all__ = ["KIND", "Made", "held_out_of", "means_images", "of_one_size", "real_images", "synthetic_sets"]

KIND = "image-generator"
"""The kind of a release of synthetic images."""

_FEWEST = 2  # images of a set, or it has no spread
_MOST_DRAWN = 20_000  # images of a style that a release has none of


class Made(NamedTuple):
    """A set of synthetic images: its name, the images, and its epsilon if that is known."""

    name: str
    images: Images
    epsilon: float | None = None


def means_images(data: Any) -> bool:
    """Return whether data is images: a set, a file, a folder, a release, "mnist", or arrays of images and labels.

    Examples
    --------
    >>> means_images("mnist"), means_images("patients.csv"), means_images((np.zeros((2, 8, 8)), [0, 1]))
    (True, False, True)
    """
    if isinstance(data, Release):
        return data.kind == KIND
    if are_images(data) or _is_mnist(data):
        return True
    return isinstance(data, tuple) and len(data) == 2 and np.ndim(data[0]) in (3, 4)


def real_images(data: Any) -> Images:
    """Return the images that are meant."""
    if isinstance(data, Images):
        return data
    if _is_mnist(data):
        return datasets.mnist()
    if isinstance(data, str | Path):
        return read_images(data)
    if isinstance(data, tuple) and len(data) == 2:
        return Images.of(*data)
    raise OptionError(
        f"images must be a set of images, a file, or arrays of images and labels, got {type(data).__name__}",
        hint="for example (images, labels)",
    )


def held_out_of(real: Images) -> Images | None:
    """Return the test images of a set as a set of their own; None if it has none."""
    if not len(real.test_labels):
        return None
    return Images.of(real.test_images, real.test_labels)


def synthetic_sets(data: Any, seed: int) -> list[Made]:
    """Return the sets of synthetic images that are meant; of a generator, one for each style."""
    if not isinstance(data, Mapping):
        return _sets("synthetic images", data, seed)
    if not data:
        raise OptionError("there is no set of synthetic images")
    found = []
    for name, one in data.items():
        sets = _sets(str(name), one, seed)
        several = len(sets) > 1
        found += [made._replace(name=f"{name}, {made.name}" if several else str(name)) for made in sets]
    return found


def of_one_size(real: Images, test: Images | None, made: list[Made]) -> list[ImageRecords]:
    """Return all sets as records of one canvas: the real images, those of each synthetic set, and the test images."""
    sets = [real, *(one.images for one in made), *([] if test is None else [test])]
    names = ["the real images", *(f"the set '{one.name}'" for one in made), "the test images"]
    shape = _shape(real)
    for name, one in zip(names, sets, strict=False):
        if _shape(one) != shape:
            sizes = [" x ".join(map(str, size)) for size in (shape, _shape(one))]
            raise InputError(f"the real images have the size {sizes[0]}, but {name} {sizes[1]}")
        if len(one.train_labels) < _FEWEST:
            raise InputError(f"a set of images needs at least {_FEWEST}, but {name} are {len(one.train_labels)}")
    # Counting is allowed here: every figure is for the owner alone.
    classes = max(2, real.classes or 0, *(int(one.train_labels.max()) + 1 for one in sets))
    canvas = Canvas(*shape, classes)
    return [
        ImageRecords(one.train_images.reshape(-1, *shape), one.train_labels.astype(np.int64), canvas) for one in sets
    ]


def _sets(name: str, data: Any, seed: int) -> list[Made]:
    release = _release(data)
    if release is None:
        return [Made(name, real_images(data))]
    if release.kind != KIND:
        raise InputError(f"a release of kind '{release.kind}' has no images that could be compared with real ones")
    epsilon = float(release.epsilon) if release.guarantees else math.inf
    sets = [Made(release.style, Images.of(release.images, release.labels), epsilon)]
    for style in release.model.styles:
        if style != release.style:
            images, labels = release.sample(min(release.rows, _MOST_DRAWN), style=style, seed=seed)
            sets.append(Made(style, Images.of(images, labels), epsilon))
    return sets


def _release(data: Any) -> Release | None:
    if isinstance(data, Release):
        return data
    if isinstance(data, str | Path) and Path(data, CERTIFICATE).is_file():
        return Release.read(data)
    return None


def _is_mnist(data: Any) -> bool:
    return isinstance(data, str) and data == "mnist" and not Path(data).exists()


def _shape(images: Images) -> tuple[int, int, int]:
    height, width, *channels = images.train_images.shape[1:]
    return height, width, channels[0] if channels else 1

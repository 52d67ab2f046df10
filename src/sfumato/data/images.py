"""Labelled images in memory: one size, bytes, and labels from 0 to the number of classes - 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import whole
from sfumato.errors import InputError, OptionError

__all__ = ["MOST_CLASSES", "Images", "check_classes", "check_images", "check_labels"]

MOST_CLASSES = 10_000
_LONGEST_SIDE = 4096
_CHANNELS = (1, 3)


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Labelled grey or colour images of one size, split for training, validation and testing.

    Images are arrays of bytes of shape ``(count, height, width)``, or ``(count, height, width, 3)`` in colour; labels
    have the shape ``(count,)``. If a data set has no test or validation images, these arrays are empty. The number of
    classes is public, and None unless it is declared: it is never counted from the labels.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.datasets.mnist()
    Images(train=10,000, test=2,000, size=28x28, classes=10)
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[Any]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[Any]
    validation_images: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 28, 28), np.uint8))
    validation_labels: NDArray[Any] = field(default_factory=lambda: np.empty(0, np.uint8))
    classes: int | None = None
    origin: Path | None = None

    @classmethod
    def of(
        cls,
        images: Any,
        labels: Any,
        test_images: Any = None,
        test_labels: Any = None,
        *,
        classes: int | None = None,
        origin: Path | None = None,
    ) -> Images:
        """Check arrays, and return them as images.

        Parameters
        ----------
        images : array or sequence of arrays
            Of shape (count, height, width), or (count, height, width, 3) in colour. Whole numbers are bytes, 0 to 255;
            other numbers lie in 0..1.
        labels : array
            Whole numbers from 0.
        test_images, test_labels : array, optional
            Images to test on; nothing is learned from them.
        classes : int, optional
            The number of classes, which is public.
        origin : path, optional
            The file that the images come from.

        Examples
        --------
        >>> Images.of(np.zeros((3, 8, 8)), [0, 1, 1], classes=2)
        Images(train=3, test=0, size=8x8, classes=2)
        >>> Images.of(np.zeros((3, 8, 8)), [0, 1])
        Traceback (most recent call last):
            ...
        sfumato.errors.InputError: there are 3 images, but 2 labels (every image needs one label)
        """
        if classes is not None:
            check_classes(classes)
        pixels = check_images(images)
        known = check_labels(labels, len(pixels), classes)
        if not len(pixels):
            raise InputError("there are no images")
        others, names = np.empty((0, *pixels.shape[1:]), np.uint8), np.empty(0, known.dtype)
        if test_images is not None or test_labels is not None:
            others = check_images(test_images, "test images")
            names = check_labels(test_labels, len(others), classes, "test ")
            if others.shape[1:] != pixels.shape[1:]:
                sizes = [" x ".join(map(str, one.shape[1:])) for one in (pixels, others)]
                raise InputError(
                    f"the images have different sizes: {sizes[0]} for learning, {sizes[1]} for testing",
                    hint="bring all images to one size",
                )
        return cls(pixels, known, others, names, classes=classes, origin=origin)

    def __repr__(self) -> str:
        """Return the number and size of the images, and the number of classes."""
        validation = f" validation={len(self.validation_labels):,}," if len(self.validation_labels) else ""
        size = "x".join(map(str, self.train_images.shape[1:]))
        classes = self.classes if self.classes is not None else "not declared"
        return (
            f"Images(train={len(self.train_labels):,},{validation} test={len(self.test_labels):,}, "
            f"size={size}, classes={classes})"
        )


def check_classes(classes: Any) -> int:
    """Return a number of classes, or raise an error: one class is nothing to tell apart.

    Examples
    --------
    >>> check_classes(10)
    10
    """
    if classes == 1 and not isinstance(classes, bool):
        raise OptionError("images need at least 2 classes, got 1", hint="with one class there is nothing to predict")
    return whole("the number of classes", classes, least=2, most=MOST_CLASSES)


def check_images(given: Any, what: str = "images") -> NDArray[np.uint8]:
    """Return images as bytes of shape (count, height, width) or (count, height, width, 3), or raise an error.

    Examples
    --------
    >>> check_images(np.array([[[0.0, 0.5, 1.0]]])).tolist()
    [[[0, 128, 255]]]
    """
    if given is None:
        raise InputError(f"the {what} are missing")
    sizes = {np.shape(one) for one in given} if isinstance(given, Sequence) and not isinstance(given, str) else set()
    if len(sizes) > 1:
        raise InputError(f"the {what} have different sizes", hint="bring all images to one size")
    array = np.asarray(given)
    shape = " x ".join(map(str, array.shape)) or "a single number"
    if array.dtype.kind not in "uif":
        raise InputError(f"the {what} must be numbers, got an array of {array.dtype}", hint="bytes, or floats in 0..1")
    if array.ndim == 4 and array.shape[3] not in _CHANNELS:
        hint = "put the channels last" if array.shape[1] in _CHANNELS else "leave out a channel of transparency"
        raise InputError(f"the {what} must have 1 or 3 channels, got the shape {shape}", hint=hint)
    if array.ndim not in (3, 4) or 0 in array.shape[1:] or max(array.shape[1:3]) > _LONGEST_SIDE:
        raise InputError(
            f"the {what} must have the shape count x height x width, or that x 3 in colour, got {shape}",
            hint=f"a side has 1 to {_LONGEST_SIDE:,} pixels",
        )
    grey = array[..., 0] if array.ndim == 4 and array.shape[3] == 1 else array
    if not array.size:
        return grey.astype(np.uint8)
    least, most = grey.min(), grey.max()
    if array.dtype.kind == "f":
        if np.isnan(least):
            raise InputError(f"the {what} have pixels that are not numbers", hint="fill in missing pixels first")
        if not (least >= 0 and most <= 1):
            raise InputError(f"the {what} are floats outside 0..1", hint="divide them by their largest possible value")
        rounded: NDArray[np.uint8] = np.rint(grey * 255).astype(np.uint8)
        return rounded
    if least < 0 or most > 255:
        raise InputError(f"the {what} are whole numbers outside 0..255", hint="give bytes, or floats in 0..1")
    return np.require(grey, np.uint8, ["C", "W"])  # torch warns of arrays that cannot be written to


def check_labels(given: Any, count: int, classes: int | None, what: str = "") -> NDArray[Any]:
    """Return the labels of so many images, or raise an error if one is missing, left over or out of range.

    Examples
    --------
    >>> check_labels([[3], [1]], 2, 10).tolist()
    [3, 1]
    """
    if given is None:
        raise InputError(f"the {what}labels are missing", hint="every image needs one label")
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "ui"):
        shape = " x ".join(map(str, array.shape)) or "a single value"
        raise InputError(f"the {what}labels must be one whole number per image, got {shape} of {array.dtype}")
    if len(array) != count:
        raise InputError(
            f"there are {count:,} {what}images, but {len(array):,} {what}labels", hint="every image needs one label"
        )
    most = MOST_CLASSES if classes is None else classes
    if len(array) and not 0 <= array.min() <= array.max() < most:
        raise InputError(
            f"a {what}label is outside 0 to {most - 1:,}",
            hint="labels start at 0, and the declared number of classes must cover them",
        )
    return array.astype(np.uint8 if most <= 256 else np.int64)

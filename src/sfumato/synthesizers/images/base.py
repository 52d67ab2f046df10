"""The base of all synthesizers of images: labelled images in, noisy numbers out, images drawn from these for free.

As for tables (`synthesizers.tables.base`), a method declares beforehand what it will read (`shares`), reads it through
noisy sums or steps of DP-SGD only, and returns a model of noisy numbers that can be stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.errors import OptionError, did_you_mean
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.state import State

__all__ = ["Canvas", "ImageModel", "ImageRecords", "ImageSynthesizer", "Progress"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Canvas:
    """What is public of a set of images: their size, the number of channels, and the number of classes.

    Examples
    --------
    >>> Canvas(height=28, width=28, channels=1, classes=10).shape
    (28, 28, 1)
    """

    height: int
    width: int
    channels: int
    classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return self.height, self.width, self.channels


@dataclass(frozen=True, eq=False, repr=False)
class ImageRecords(Discreet):
    """Labelled images. Private: whatever is read of them gets noise.

    Examples
    --------
    >>> records = ImageRecords(np.zeros((5, 28, 28, 1), np.uint8), np.zeros(5, int), Canvas(28, 28, 1, 10))
    >>> len(records.labels)
    5
    """

    images: Bytes
    """Of shape (count, height, width, channels)."""
    labels: Ints
    """From 0 to the number of classes - 1."""
    canvas: Canvas


class ImageModel(ABC):
    """What a synthesizer has learned: noisy numbers, from which images are drawn for free.

    Attributes
    ----------
    styles : the kinds of images that can be drawn; the first is the default
    """

    styles: ClassVar[tuple[str, ...]] = ("faithful",)

    @property
    def total(self) -> float | None:
        """The noisy number of records; None if the model does not know it."""
        return None

    @classmethod
    def style_of(cls, given: str | None) -> str:
        """Return a style by its name, or the default."""
        if given is not None and given not in cls.styles:
            raise OptionError(f"there is no style '{str(given)[:40]}'", hint=did_you_mean(str(given), cls.styles))
        return given or cls.styles[0]

    @abstractmethod
    def sample(
        self, rows: int, rng: np.random.Generator, *, style: str | None = None, progress: Progress | None = None
    ) -> tuple[Bytes, Ints]:
        """Return new images of shape (rows, height, width, channels), and their labels."""

    @abstractmethod
    def to_state(self) -> State:
        """Return everything that `from_state` needs beside the canvas."""

    @classmethod
    @abstractmethod
    def from_state(cls, canvas: Canvas, state: State) -> Self:
        """Return the model of a state.

        The state may be a stranger's: an `InputError` if a name, type, shape or range of it does not fit the canvas.
        """


class ImageSynthesizer(ABC):
    """A method: which noisy sums and other private mechanisms it needs, and how it learns from them."""

    name: ClassVar[str]
    model: ClassVar[type[ImageModel]]
    private: ClassVar[bool] = True
    """False for a method that is there for comparison, and guarantees nothing."""

    def quick(self) -> Self:
        """Return a smaller form of the method, which learns faster and less."""
        raise OptionError(f"the method '{self.name}' has no smaller form", hint="leave out 'quick'")

    def prepare(self, canvas: Canvas) -> None:  # noqa: B027  # most methods need nothing
        """Raise an error if the method cannot learn such images here; called before anything is charged."""

    @abstractmethod
    def shares(self, canvas: Canvas) -> Mapping[str, Share]:
        """Return the kinds of private access that `learn` needs, and the worth of each."""

    @abstractmethod
    def learn(
        self, records: ImageRecords, sums: NoisySums, rng: np.random.Generator, progress: Progress | None = None
    ) -> ImageModel:
        """Learn from the records through noisy sums; other random choices, which are public, come from ``rng``."""

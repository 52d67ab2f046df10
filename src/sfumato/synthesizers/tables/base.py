"""The base of all synthesizers: a column is an axis of codes, and the data are read through noisy sums only.

An algorithm never sees a dataframe: it gets one array of codes per column (`Rows`), and what it may read of them is
declared beforehand (`Synthesizer.shares`) and paid for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

__all__ = ["Axis", "Model", "Rows", "Synthesizer"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """What an algorithm knows of a column: the number of its codes, the last of which is for missing values."""

    name: str
    size: int
    ordered: bool
    origin: int = 0
    """The code nearest to zero, around which wide columns are resolved best."""


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Discreet):
    """The coded records: an array of codes per column. Private; algorithms pass it to `NoisySums` only."""

    axes: tuple[Axis, ...]
    codes: tuple[NDArray[Any], ...]
    label: int | None
    """The position of the column to be predicted, whose codes are few; None if there is none."""

    def __len__(self) -> int:
        return len(self.codes[0])


class Model(ABC):
    """What a synthesizer has learned: noisy numbers, from which rows are drawn for free."""

    @abstractmethod
    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""


class Synthesizer(ABC):
    """A method: which noisy sums it needs, and how it learns from them."""

    @abstractmethod
    def shares(self, axes: Sequence[Axis], label: int | None) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each."""

    @abstractmethod
    def learn(self, rows: Rows, sums: NoisySums) -> Model:
        """Learn from the records through noisy sums."""

"""The base of all synthesizers: a column is an axis of codes, and the data are read through noisy sums only.

An algorithm never sees a dataframe: it gets one code per column and record (`Records`), and what it may read of them is
declared beforehand (`Synthesizer.shares`) and paid for. What it has learned (`Model`) is noisy numbers, which can be
written to a file and from which rows are drawn for free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.state import State

__all__ = [
    "Axis",
    "Batch",
    "Mask",
    "Model",
    "Recoding",
    "Records",
    "Rows",
    "Sampler",
    "Synthesizer",
    "refuse_impossible",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BATCH = 2**20


@dataclass(frozen=True)
class Axis:
    """What an algorithm knows of a column: the number of its codes, the last of which is for missing values."""

    name: str
    size: int
    ordered: bool
    origin: int = 0
    """The code nearest to zero, around which wide columns are resolved best."""


@dataclass(frozen=True, eq=False)
class Recoding:
    """Codes in fewer groups: the group of all codes from one start to the next.

    Examples
    --------
    >>> thirds = Recoding(np.array([0, 10, 20]), np.array([0, 1, 0]))
    >>> thirds.of_codes(np.array([0, 9, 10, 25])).tolist(), thirds.size
    ([0, 0, 1, 0], 2)
    """

    starts: Ints
    """The first code of each interval; the first start is 0."""
    groups: Ints
    """The group of each interval."""

    @cached_property
    def size(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1

    @classmethod
    def identity(cls, size: int) -> Recoding:
        """Return the recoding that changes nothing."""
        return cls(np.arange(size), np.arange(size))

    @cached_property
    def _has_an_interval_per_code(self) -> bool:
        return bool(self.starts[-1] == len(self.starts) - 1)

    def of_codes(self, codes: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the group of each code."""
        at = codes if self._has_an_interval_per_code else np.searchsorted(self.starts, codes, side="right") - 1
        return self.groups.astype(np.int32)[np.minimum(at, len(self.groups) - 1)]

    def then(self, groups: Ints) -> Recoding:
        """Return the recoding to groups of these groups."""
        return Recoding(self.starts, groups[self.groups])


@dataclass(frozen=True, eq=False, repr=False)
class Batch(Discreet):
    """Some records: an array of codes per column, and the weight of each record, between 0 and 1."""

    codes: tuple[NDArray[Any], ...]
    weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.codes[0])


class Records(ABC):
    """The coded records, wherever they are. Private: whatever is read of them gets noise from `NoisySums`.

    Attributes
    ----------
    axes : what is known of the columns
    label : the position of the column to be predicted, which has few codes; None if there is none
    scans : whether the records themselves can be read, not only counted
    """

    axes: tuple[Axis, ...]
    label: int | None
    scans: ClassVar[bool]

    @abstractmethod
    def count(self, tuples: Sequence[tuple[int, ...]], recodings: Sequence[Recoding]) -> list[Floats]:
        """Count the groups of each tuple of columns; each result has an axis per column of its tuple.

        A record adds its weight (1 if there are none) to one number of each result.
        """

    def scan(self) -> Iterator[Batch]:
        """Return all records in batches."""
        raise NotImplementedError(f"{type(self).__name__} can count records, but not read them")


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Discreet, Records):
    """Coded records in memory."""

    axes: tuple[Axis, ...]
    codes: tuple[NDArray[Any], ...]
    label: int | None
    weights: Floats | None = None
    scans: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.codes[0])

    def count(self, tuples: Sequence[tuple[int, ...]], recodings: Sequence[Recoding]) -> list[Floats]:
        """Count the groups of each tuple of columns.

        Examples
        --------
        >>> rows = Rows((Axis("a", 3, False), Axis("b", 2, False)), (np.array([0, 2, 2]), np.array([1, 1, 0])), None)
        >>> [one.tolist() for one in rows.count([(0,), (1, 0)], [Recoding.identity(3), Recoding.identity(2)])]
        [[1.0, 0.0, 2.0], [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]]]
        """
        needed = {at for one in tuples for at in one}
        shapes = [[recodings[at].size for at in one] for one in tuples]
        found = [np.zeros(int(np.prod(shape))) for shape in shapes]
        for batch in self._batches():
            groups = {at: recodings[at].of_codes(batch.codes[at]) for at in needed}
            for columns, shape, counts in zip(tuples, shapes, found, strict=True):
                place = groups[columns[0]].astype(np.intp)
                for at, size in zip(columns[1:], shape[1:], strict=True):
                    place *= size
                    place += groups[at]
                counts += np.bincount(place, weights=batch.weights, minlength=len(counts))
        return [counts.reshape(shape) for counts, shape in zip(found, shapes, strict=True)]

    def scan(self) -> Iterator[Batch]:
        """Return all records in batches."""
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        """Return batches that need little memory beside the records."""
        for start in range(0, max(len(self), 1), _BATCH):
            part = slice(start, start + _BATCH)
            yield Batch(tuple(one[part] for one in self.codes), None if self.weights is None else self.weights[part])


class Sampler(ABC):
    """Draws rows."""

    @property
    def at_once(self) -> int:
        """How many rows cost about as much as a single one, so that drawing fewer at a time is a waste."""
        return 1

    @abstractmethod
    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""


def refuse_impossible(chance: float) -> None:
    """Raise an error if no row can meet what is given, by the noisy numbers of a model."""
    if not chance > 0:
        raise InputError(
            "the generator draws no row that meets what is asked",
            hint="relax the condition, or declare the domains and bounds of its columns: noise may hide rare values",
        )


class Model(Sampler):
    """What a synthesizer has learned: noisy numbers, from which rows are drawn for free."""

    @property
    def total(self) -> float | None:
        """The noisy number of records; None if the model does not know it."""
        return None

    @property
    def deviations(self) -> Mapping[str, float]:
        """The noise multipliers that the state implies, by kind of sum; they must be those that were paid for."""
        return {}

    def given(self, allowed: Mapping[int, Mask]) -> Sampler | None:
        """Return what draws rows whose codes are among those allowed, by position of the column.

        Its rows are distributed as those rows of the model that meet the condition. None if the model cannot draw them
        directly: rows must then be drawn until enough of them meet it.
        """
        return None

    @abstractmethod
    def to_state(self) -> State:
        """Return everything that `from_state` needs beside the axes and the label."""

    @classmethod
    @abstractmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state.

        The state may be a stranger's: an `InputError` if a name, type, shape or range of it does not fit the axes.
        """


class Synthesizer(ABC):
    """A method: which noisy sums and other private mechanisms it needs, and how it learns from them."""

    name: ClassVar[str]
    model: ClassVar[type[Model]]

    def prepare(self) -> None:  # noqa: B027  # most methods need nothing
        """Raise an error if the method cannot learn here, for lack of a library; called before anything is charged."""

    @abstractmethod
    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, and the worth of each.

        A kind that is not a sum (steps of DP-SGD, choices) is a subclass of `Share` and takes place in `NoisySums.run`.
        ``scans`` says whether the records can be read, not only counted.
        """

    @abstractmethod
    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> Model:
        """Learn from the records through noisy sums; other random choices, which are public, come from ``rng``."""

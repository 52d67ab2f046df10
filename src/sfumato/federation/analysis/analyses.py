"""What can be computed over the rows of several holders: each analysis says what every holder adds up.

An analysis is a public description. Of every row it takes some numbers between -1 and 1; a holder adds them up over its
rows, in whole steps of ``2**-24``, so that the sum over all holders is exact; from the total follows the result. An
analysis that needs several sums, such as Newton's method, sends what it knows so far along with the next one.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.data.schema import Schema
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, OptionError
from sfumato.federation.analysis.columns import Columns, categories_of, units_of
from sfumato.federation.secure.mpc import MOST_NUMBERS, SUM

__all__ = [
    "ANALYSES",
    "GRID",
    "Analysis",
    "CrossTable",
    "ElementSum",
    "Histogram",
    "JointFunction",
    "LinearRegression",
    "LogisticRegression",
    "Moments",
    "Quantiles",
    "of_dict",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GRID = 24
"""Bits after the point of a number that is added up."""
_ROWS = 1 << 16
_MOST_CELLS = 1 << 20
_LONGEST_STEP = 5.0
_LONGEST_SOURCE = 100_000
_LARGEST_WHOLE = 2**31


class Analysis(ABC):
    """What every holder adds up, and what follows from the total."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers that are used."""

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """The columns of categories that are used."""

    @property
    def sums(self) -> int:
        """How many sums it takes."""
        return 1

    @abstractmethod
    def length(self, schema: Schema) -> int:
        """How many numbers are added up; an error if the schema lacks what is needed."""

    @abstractmethod
    def norm(self, schema: Schema) -> float:
        """Return the largest Euclidean norm of what one row adds."""

    def check(self, columns: Columns) -> None:  # noqa: B027 - most take any rows
        """Raise an error, before a holder joins, if its rows do not fit."""

    @abstractmethod
    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Add up the rows of a holder, in steps of the grid."""

    def step(self, schema: Schema, state: Floats, total: Floats, noise: float) -> Floats:
        """Return what is known after a sum; ``noise`` is the standard deviation of each number."""
        return total

    def start(self, schema: Schema) -> Floats:
        """Return what is known before the first sum."""
        return np.zeros(0)

    def function(self, schema: Schema, most: int) -> dict[str, Any]:
        """Return what is opened by multi-party computation, of counts of at most so many rows; else it is the sum."""
        return dict(SUM)

    def opened(self, schema: Schema, found: Integers) -> dict[str, Any]:
        """Return the result of what a function other than the sum has opened."""
        raise NotImplementedError

    def follows(self, schema: Schema, before: Floats | None, state: Floats) -> bool:
        """Whether a coordinator may ask for a sum with this state after that one; None before the first sum."""
        return before is None and np.array_equal(state, self.start(schema))

    @abstractmethod
    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Return the result as plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Moments(Analysis):
    """Count, sum, mean and variance of columns of numbers.

    Examples
    --------
    >>> Moments(("age", "income")).to_dict()
    {'kind': 'mean', 'columns': ('age', 'income')}
    """

    columns: tuple[str, ...]
    kind = "mean"

    def __post_init__(self) -> None:
        _names(self, "columns")

    @property
    def numbers(self) -> tuple[str, ...]:
        """All columns."""
        return self.columns

    @property
    def categories(self) -> tuple[str, ...]:
        """None."""
        return ()

    def length(self, schema: Schema) -> int:
        """Count one number for the rows, and two for each column."""
        return 1 + 2 * len(units_of(schema, self.columns))

    def norm(self, schema: Schema) -> float:
        """Bound each number by 1."""
        return math.sqrt(self.length(schema))

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Add up ones, values and squares."""
        return _summed(
            (np.column_stack([np.ones(len(part)), part, part**2]) for part in _parts(columns.numbers)),
            self.length(schema),
        )

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Scale the moments back."""
        count, found = float(state[0]), {}
        for at, unit in enumerate(units_of(schema, self.columns)):
            first, second = float(state[1 + at]), float(state[1 + len(self.columns) + at])
            plain = {"count": _count(count, noise), "sum": first * unit.half + count * unit.middle}
            if count >= 1:
                mean = min(max(first / count, -1.0), 1.0)
                variance = max(second / count - mean**2, 0.0) * count / max(count - 1, 1)
                plain |= {"mean": unit.middle + unit.half * mean, "variance": variance * unit.half**2}
            found[unit.name] = plain
        return found


@dataclass(frozen=True)
class Histogram(Analysis):
    """Counts of bins of equal width between the bounds of a column.

    Counts below ``least`` stay hidden, which takes multi-party computation: they are never opened.

    Examples
    --------
    >>> import sfumato as sf
    >>> Histogram("age", bins=4).length(sf.Schema([sf.Column(name="age", bounds=(0, 120))]))
    4
    """

    column: str
    bins: int = 10
    least: int = 1
    kind = "histogram"

    def __post_init__(self) -> None:
        _names(self, "column")
        whole("the least count", self.least)
        whole("the number of bins", self.bins, most=_MOST_CELLS)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The column, unless it has a domain."""
        return (self.column,)

    @property
    def categories(self) -> tuple[str, ...]:
        """None."""
        return ()

    def length(self, schema: Schema) -> int:
        """Return the number of bins."""
        units_of(schema, self.numbers)
        return self.bins

    def norm(self, schema: Schema) -> float:
        """Return 1: a row is in one bin."""
        return 1.0

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Count the rows in each bin."""
        # Of the values as they are: scaled, one on an edge could come to lie beside it.
        place = np.searchsorted(self.edges(schema), columns.values[:, 0], side="right") - 1
        return _counted(np.clip(place, 0, self.bins - 1), self.bins)

    def function(self, schema: Schema, most: int) -> dict[str, Any]:
        """Open large counts only."""
        return _large(self.least, most)

    def opened(self, schema: Schema, found: Integers) -> dict[str, Any]:
        """Return the bins; the count of a hidden one is None."""
        counts = _hidden(found, self.least)
        return {self.column: {"edges": self.edges(schema).tolist(), "counts": counts, "least": self.least}}

    def edges(self, schema: Schema) -> Floats:
        """Return the edges of the bins."""
        units_of(schema, self.numbers)
        low, high = schema[self.column].bounds or (0, 0)
        return np.linspace(low, high, self.bins + 1)

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Return the bins."""
        edges = self.edges(schema).tolist()
        return {self.column: {"edges": edges, "counts": [_count(one, noise) for one in state.tolist()]}}


@dataclass(frozen=True)
class Quantiles(Histogram):
    """Quantiles of a column, from a fine histogram: each is right up to the width of a bin.

    By multi-party computation the histogram stays hidden, and the bin of each quantile is opened alone: 0 and 1 are the
    smallest and the largest value.

    Examples
    --------
    >>> Quantiles("age", probabilities=(0.5,)).bins
    1000
    """

    bins: int = 1000
    probabilities: tuple[float, ...] = (0.25, 0.5, 0.75)
    kind = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least != 1:
            raise OptionError("quantiles have no least count", hint="by multi-party computation all counts stay hidden")
        given = tuple(real("a probability", one) for one in self.probabilities)
        if not given or min(given) < 0 or max(given) > 1:
            raise OptionError(f"the probabilities of quantiles must be from 0 to 1, got {self.probabilities!r}")
        object.__setattr__(self, "probabilities", given)

    def function(self, schema: Schema, most: int) -> dict[str, Any]:
        """Open the places of the quantiles."""
        parts = [Fraction(one).limit_denominator(10_000) for one in self.probabilities]
        return {
            "name": "ranks",
            "fractions": [[one.numerator, one.denominator] for one in parts],
            "bits": _bits(most * max(one.denominator for one in parts)),
        }

    def opened(self, schema: Schema, found: Integers) -> dict[str, Any]:
        """Return the middles of the bins."""
        edges, places = self.edges(schema), found.tolist()
        middles = ((edges[1:] + edges[:-1]) / 2).tolist()
        values = {f"{one:g}": middles[at] for one, at in zip(self.probabilities, places, strict=True) if at < self.bins}
        return {self.column: {"quantiles": values, "resolution": float(edges[1] - edges[0])}}

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Interpolate within the bin where the cumulative count reaches the probability."""
        edges, counts = self.edges(schema), np.maximum(state, 0)
        reached, found = np.concatenate([[0.0], np.cumsum(counts)]), {}
        if reached[-1] > 0:
            for one in self.probabilities:
                wanted = one * reached[-1]
                at = min(max(int(np.searchsorted(reached, wanted)) - 1, 0), self.bins - 1)
                part = (wanted - reached[at]) / counts[at] if counts[at] else 0.0
                found[f"{one:g}"] = float(edges[at] + part * (edges[at + 1] - edges[at]))
        return {self.column: {"quantiles": found, "resolution": float(edges[1] - edges[0])}}


@dataclass(frozen=True)
class CrossTable(Analysis):
    """Counts of every combination of the values of some columns with a domain.

    Counts below ``least`` stay hidden, which takes multi-party computation: they are never opened.

    Examples
    --------
    >>> import sfumato as sf
    >>> CrossTable(("sex",)).length(sf.Schema([sf.Column(name="sex", domain=("f", "m"))]))
    2
    """

    columns: tuple[str, ...]
    least: int = 1
    kind = "table"

    def __post_init__(self) -> None:
        _names(self, "columns")
        whole("the least count", self.least)

    @property
    def numbers(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def categories(self) -> tuple[str, ...]:
        """All columns."""
        return self.columns

    def _shape(self, schema: Schema) -> tuple[int, ...]:
        return tuple(len(categories_of(schema, name)) for name in self.columns)

    def length(self, schema: Schema) -> int:
        """Return the number of combinations."""
        cells = math.prod(self._shape(schema))
        if cells > _MOST_CELLS:
            raise InputError(f"the columns have {cells:,} combinations, and at most {_MOST_CELLS:,} are counted")
        return cells

    def norm(self, schema: Schema) -> float:
        """Return 1: a row is in one cell."""
        return 1.0

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Count the rows in each cell."""
        place = np.zeros(len(columns.codes), np.int64)
        for at, size in enumerate(self._shape(schema)):
            place = place * size + columns.codes[:, at]
        return _counted(place, self.length(schema))

    def function(self, schema: Schema, most: int) -> dict[str, Any]:
        """Open large counts only."""
        return _large(self.least, most)

    def opened(self, schema: Schema, found: Integers) -> dict[str, Any]:
        """Return a row for each combination; the count of a hidden one is None."""
        return {**self._cells(schema, _hidden(found, self.least)), "least": self.least}

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Return a row for each combination."""
        return self._cells(schema, [_count(one, noise) for one in state.tolist()])

    def _cells(self, schema: Schema, counts: Sequence[float | None]) -> dict[str, Any]:
        combinations = itertools.product(*(categories_of(schema, name) for name in self.columns))
        cells = zip(combinations, counts, strict=True)
        return {"cells": [{**dict(zip(self.columns, one, strict=True)), "count": count} for one, count in cells]}


@dataclass(frozen=True)
class ElementSum(Analysis):
    """The sum, over the holders, of a column element by element: every holder has as many rows, in the same order.

    Examples
    --------
    >>> ElementSum("counts", size=52).sums
    1
    """

    column: str
    size: int
    kind = "sum"

    def __post_init__(self) -> None:
        _names(self, "column")
        whole("the number of elements", self.size, most=1 << 26)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def categories(self) -> tuple[str, ...]:
        """None."""
        return ()

    def length(self, schema: Schema) -> int:
        """Count the elements, and one for the number of holders."""
        units_of(schema, self.numbers)
        return self.size + 1

    def norm(self, schema: Schema) -> float:
        """Bound what one row adds: its element."""
        return 1.0

    def check(self, columns: Columns) -> None:
        """Refuse a vector of another length."""
        _of_size(columns, self.size)

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Return the elements themselves."""
        steps = np.rint(columns.numbers[:, 0] * 2.0**GRID).astype(np.int64)
        return np.concatenate([steps, [1 << GRID]])

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Scale the sums back."""
        (unit,) = units_of(schema, self.numbers)
        holders = round(float(state[-1]))
        return {self.column: {"sums": (state[:-1] * unit.half + holders * unit.middle).tolist(), "holders": holders}}


@dataclass(frozen=True)
class JointFunction(Analysis):
    """Any function of a vector of whole numbers of each holder, by multi-party computation: only its result is opened.

    Parameters
    ----------
    column
        The column that holds the vector.
    size
        How many numbers each holder has.
    source : Python source with ``function(mpc, vectors)``, which gets MPyC's runtime and one secure array for each
        holder, in the order of their names, and returns secure numbers or arrays of them. It runs at every holder: all
        should read it before they agree.

    Examples
    --------
    >>> largest = "def function(mpc, vectors):\\n    return mpc.max([one[0] for one in vectors])"
    >>> JointFunction("total", 1, largest).kind
    'function'
    """

    column: str
    size: int
    source: str
    kind = "function"

    def __post_init__(self) -> None:
        _names(self, "column")
        whole("the number of elements", self.size, most=MOST_NUMBERS)
        if not isinstance(self.source, str) or "function" not in self.source or len(self.source) > _LONGEST_SOURCE:
            raise OptionError(
                f"the source of a joint function must define function(mpc, vectors), in at most {_LONGEST_SOURCE:,} "
                "characters"
            )

    @property
    def numbers(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def categories(self) -> tuple[str, ...]:
        """None."""
        return ()

    def length(self, schema: Schema) -> int:
        """Count the elements."""
        (unit,) = units_of(schema, self.numbers)
        if abs(unit.middle) + unit.half >= _LARGEST_WHOLE:
            raise OptionError(f"the bounds of column '{self.column}' must be within 2^31 for a joint function")
        return self.size

    def norm(self, schema: Schema) -> float:
        """Bound nothing: a function has no noise."""
        raise OptionError("a joint function has no noise", hint="leave out epsilon")

    def function(self, schema: Schema, most: int) -> dict[str, Any]:
        """Open what the source says."""
        return {"name": "own", "source": self.source}

    def opened(self, schema: Schema, found: Integers) -> dict[str, Any]:
        """Return the numbers."""
        return {self.column: {"opened": found.tolist()}}

    def check(self, columns: Columns) -> None:
        """Refuse a vector of another length, or of fractions."""
        _of_size(columns, self.size)
        if (columns.values != np.rint(columns.values)).any():
            raise InputError(f"the values of column '{self.column}' must be whole numbers for a joint function")

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Return the elements themselves."""
        return columns.values[:, 0].astype(np.int64)

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Give none: a function has no sum."""
        raise OptionError("a joint function is computed by mpc alone")


@dataclass(frozen=True)
class _Regression(Analysis):
    """A regression of a target on columns of numbers, all scaled to -1 and 1, with an intercept."""

    columns: tuple[str, ...]
    target: str
    ridge: float = 1.0

    def __post_init__(self) -> None:
        _names(self, "columns")
        _names(self, "target")
        real("the ridge", self.ridge)
        if self.ridge < 0:
            raise OptionError(f"the ridge must be at least 0, got {self.ridge!r}")
        if self.target in self.columns:
            raise OptionError(f"column '{self.target}' cannot be the target and a predictor")

    @property
    def _width(self) -> int:
        return len(self.columns) + 1

    @property
    def _pairs(self) -> int:
        return self._width * (self._width + 1) // 2

    def _penalty(self) -> Floats:
        return np.diag([0.0] + [self.ridge] * len(self.columns))

    def _matrix(self, upper: Floats) -> Floats:
        found = np.zeros((self._width, self._width))
        found[np.triu_indices(self._width)] = upper
        return np.asarray(found + np.triu(found, 1).T)

    def _solved(self, matrix: Floats, right: Floats, noise: float) -> Floats:
        """Solve with a matrix whose noise may have made it indefinite."""
        values, vectors = np.linalg.eigh(matrix + self._penalty())
        least = max(2 * noise * math.sqrt(self._width), 1e-9)
        return np.asarray(vectors @ ((vectors.T @ right) / np.maximum(values, least)))

    def _scaled(self, schema: Schema, slopes: Floats) -> tuple[float, dict[str, float]]:
        """Return intercept and slopes for the columns as they are."""
        units = units_of(schema, self.columns)
        own = {one.name: float(slope) / one.half for one, slope in zip(units, slopes[1:], strict=True)}
        return float(slopes[0]) - sum(own[one.name] * one.middle for one in units), own


@dataclass(frozen=True)
class LinearRegression(_Regression):
    """Linear regression from summed moments: exact least squares with a small ridge on the scaled slopes.

    Examples
    --------
    >>> LinearRegression(("age",), "income").sums
    1
    """

    ridge: float = 1e-6
    kind = "linear"

    @property
    def numbers(self) -> tuple[str, ...]:
        """The predictors, then the target."""
        return (*self.columns, self.target)

    @property
    def categories(self) -> tuple[str, ...]:
        """None."""
        return ()

    def length(self, schema: Schema) -> int:
        """Count the products of pairs of predictors, of each with the target, and the square of the target."""
        units_of(schema, self.numbers)
        return self._pairs + self._width + 1

    def norm(self, schema: Schema) -> float:
        """Bound each product by 1."""
        return math.sqrt(self.length(schema))

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Add up the products."""
        rows, cols = np.triu_indices(self._width)

        def products() -> Iterator[Floats]:
            for part in _parts(columns.numbers):
                x, y = np.column_stack([np.ones(len(part)), part[:, :-1]]), part[:, -1:]
                yield np.column_stack([x[:, rows] * x[:, cols], x * y, y**2])

        return _summed(products(), self.length(schema))

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Solve the normal equations."""
        matrix, right = self._matrix(state[: self._pairs]), state[self._pairs : -1]
        slopes = self._solved(matrix, right, noise)
        (unit,) = units_of(schema, [self.target])
        intercept, own = self._scaled(schema, slopes * unit.half)
        count = float(matrix[0, 0])
        residual = float(state[-1] - 2 * slopes @ right + slopes @ matrix @ slopes)
        spread = float(state[-1] - right[0] ** 2 / count) if count >= 1 else 0.0
        fit = 1 - max(residual, 0.0) / spread if spread > 0 else None
        return {"count": _count(count, noise), "intercept": intercept + unit.middle, "slopes": own, "r2": fit}


@dataclass(frozen=True)
class LogisticRegression(_Regression):
    """Logistic regression by Newton's method on summed gradients and Hessians; the target has a domain of two values.

    Examples
    --------
    >>> LogisticRegression(("age",), "ill", iterations=5).sums
    5
    """

    iterations: int = 8
    kind = "logistic"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("the number of iterations", self.iterations, most=1000)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The predictors."""
        return self.columns

    @property
    def categories(self) -> tuple[str, ...]:
        """The target."""
        return (self.target,)

    @property
    def sums(self) -> int:
        """One for each iteration."""
        return self.iterations

    def length(self, schema: Schema) -> int:
        """Count the numbers of the Hessian and of the gradient."""
        units_of(schema, self.columns)
        if len(categories_of(schema, self.target)) != 2:
            raise OptionError(f"the target '{self.target}' of a logistic regression must have a domain of two values")
        return self._pairs + self._width

    def norm(self, schema: Schema) -> float:
        """Bound numbers of the Hessian by 1/4, those of the gradient by 1."""
        return math.sqrt(self._pairs / 16 + self._width)

    def start(self, schema: Schema) -> Floats:
        """Return slopes of 0."""
        return np.zeros(self._width)

    def follows(self, schema: Schema, before: Floats | None, state: Floats) -> bool:
        """Allow slopes of 0, then steps as Newton's method takes them: steep ones would cut out single rows."""
        if before is None:
            return super().follows(schema, before, state)
        return state.shape == before.shape and bool((np.abs(state - before) <= 1.001 * _LONGEST_STEP).all())

    def add(self, schema: Schema, columns: Columns, state: Floats) -> Integers:
        """Add up Hessians and gradients at the slopes so far."""
        rows, cols = np.triu_indices(self._width)

        def derivatives() -> Iterator[Floats]:
            labels = _parts(columns.codes[:, 0])
            for part, label in zip(_parts(columns.numbers), labels, strict=True):
                x = np.column_stack([np.ones(len(part)), part])
                chance = 1 / (1 + np.exp(-np.clip(x @ state, -500, 500)))[:, None]
                weight = chance * (1 - chance)
                yield np.column_stack([weight * x[:, rows] * x[:, cols], (label[:, None] - chance) * x])

        return _summed(derivatives(), self.length(schema))

    def step(self, schema: Schema, state: Floats, total: Floats, noise: float) -> Floats:
        """Take a step of Newton's method, of limited length."""
        matrix, gradient = self._matrix(total[: self._pairs]), total[self._pairs :]
        change = self._solved(matrix, gradient - self._penalty() @ state, noise)
        return np.asarray(state + change * min(1.0, _LONGEST_STEP / max(float(np.abs(change).max()), 1e-12)))

    def result(self, schema: Schema, state: Floats, noise: float) -> dict[str, Any]:
        """Return slopes for the columns as they are; the second value of the domain is the event."""
        intercept, own = self._scaled(schema, state)
        return {"event": categories_of(schema, self.target)[1], "intercept": intercept, "slopes": own}


ANALYSES: dict[str, type[Analysis]] = {
    one.kind: one
    for one in (
        Moments,
        Histogram,
        Quantiles,
        CrossTable,
        ElementSum,
        LinearRegression,
        LogisticRegression,
        JointFunction,
    )
}
"""The class of each analysis by its kind."""


def of_dict(plain: Mapping[str, Any]) -> Analysis:
    """Build an analysis from the plain values that `to_dict` returned.

    Examples
    --------
    >>> of_dict({"kind": "mean", "columns": ["age"]})
    Moments(columns=('age',))
    """
    try:
        options = dict(plain)
        return ANALYSES[options.pop("kind")](**options)
    except (KeyError, TypeError) as error:
        raise InputError(
            "the description of the analysis lacks a part or has an unknown one", hint=f"known: {', '.join(ANALYSES)}"
        ) from error


def _names(analysis: Any, field: str) -> None:
    given = getattr(analysis, field)
    if field == "columns":
        if isinstance(given, str) or not given or not all(isinstance(one, str) and one for one in given):
            raise OptionError(f"the columns of an analysis must be names, got {given!r}")
        if len({*given}) < len(given):
            raise OptionError("a column is named twice in an analysis")
        object.__setattr__(analysis, field, tuple(given))
    elif not isinstance(given, str) or not given:
        raise OptionError(f"'{field}' of an analysis must be the name of a column, got {given!r}")


def _of_size(columns: Columns, size: int) -> None:
    if len(columns.numbers) != size:
        raise InputError(f"the vector has {len(columns.numbers):,} numbers, but the plan is for {size:,}")


def _parts(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for at in range(0, len(values), _ROWS):
        yield values[at : at + _ROWS]


def _summed(parts: Iterator[Floats], length: int) -> Integers:
    """Add up rows in whole steps: exact, and at most one step per row and number is lost."""
    total = np.zeros(length, np.int64)
    for part in parts:
        total += np.rint(part * 2.0**GRID).astype(np.int64).sum(0)
    return total


def _counted(place: Integers, length: int) -> Integers:
    return np.bincount(place, minlength=length).astype(np.int64) << GRID


def _large(least: int, most: int) -> dict[str, Any]:
    return dict(SUM) if least == 1 else {"name": "large", "least": least, "bits": _bits(max(most, least))}


def _hidden(found: Integers, least: int) -> list[float | None]:
    return [one if one >= least else None for one in found.tolist()]


def _bits(most: int) -> int:
    """Return how many bits a difference of numbers up to this one has, with its sign."""
    return most.bit_length() + 2


def _count(value: float, noise: float) -> int | float:
    """Return a count: whole without noise, and with a few digits otherwise."""
    return round(value) if not noise else round(value, 2)

"""Networks of dense layers as plain arrays, so that a stored generator draws without torch and runs no code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dense"]

Floats = NDArray[np.floating[Any]]

_GRID = 2.0**-13
_LARGEST = 2.0**8  # input or unit
_LARGEST_WEIGHT = 2.0**6


@dataclass(frozen=True, eq=False, repr=False)
class Dense:
    """Dense layers with rectified linear units between them.

    Examples
    --------
    >>> network = Dense((np.array([[1.0, -1.0]]), np.array([[2.0], [3.0]])), (np.zeros(2), np.ones(1)))
    >>> network(np.array([[4.0], [-5.0]])).tolist()
    [[9.0], [16.0]]
    >>> Dense.shapes([1, 2, 1])
    [(1, 2), (2, 1)]
    """

    weights: tuple[Floats, ...]
    """A matrix per layer, with a row per input."""
    biases: tuple[Floats, ...]

    @staticmethod
    def shapes(sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return the shapes of the weights of layers of these sizes."""
        return list(itertools.pairwise(sizes))

    @staticmethod
    def count(sizes: Sequence[int]) -> int:
        """Return the number of weights and biases of layers of these sizes."""
        return sum((one + 1) * other for one, other in itertools.pairwise(sizes))

    @property
    def layers(self) -> Iterator[tuple[Floats, Floats]]:
        """The weights and biases of each layer."""
        return zip(self.weights, self.biases, strict=True)

    def __call__(self, inputs: Floats) -> Floats:
        """Return the outputs, a row per row of the inputs."""
        found = inputs
        for at, (weights, biases) in enumerate(self.layers):
            found = (np.maximum(found, 0.0) if at else found) @ weights + biases
        return found

    def exactly(self, inputs: Floats) -> NDArray[np.float64]:
        """Return nearly the same, without any rounding that depends on the rows beside a row.

        Inputs, units and weights are clipped (to 256, and weights to 64), and rounded to a grid on which the products
        of up to 2**12 of them add up exactly in 64 bits. This is faster than `one_by_one`.

        Examples
        --------
        >>> network = Dense((np.array([[1.0, -1.0]]), np.array([[2.0], [3.0]])), (np.zeros(2), np.ones(1)))
        >>> network.exactly(np.array([[0.5], [-0.25]])).tolist()
        [[2.0], [1.75]]
        """
        found = np.asarray(inputs)
        for at, (weights, biases) in enumerate(self.layers):
            given = np.maximum(found, 0.0) if at else found
            found = _on_grid(given, _LARGEST) @ _on_grid(weights, _LARGEST_WEIGHT) + _on_grid(biases, _LARGEST_WEIGHT)
        return np.asarray(found, dtype=np.float64)

    def one_by_one(self, inputs: Floats) -> NDArray[np.float64]:
        """Return the same in 64 bits, each row computed alone.

        A product of matrices may round a row differently beside other rows. The sensitivity of a sum over rows allows
        for the row that is added or removed, and not for the last digits of all others.

        Examples
        --------
        >>> network = Dense((np.array([[1.0, -1.0]]), np.array([[2.0], [3.0]])), (np.zeros(2), np.ones(1)))
        >>> network.one_by_one(np.array([[4.0], [-5.0]])).tolist()
        [[9.0], [16.0]]
        """
        found = inputs.astype(np.float64)
        for at, (weights, biases) in enumerate(self.layers):
            given = np.maximum(found, 0.0) if at else found
            found = np.tile(biases.astype(np.float64), (len(given), 1))
            for unit, row in zip(given.T, weights.astype(np.float64), strict=True):
                found += unit[:, None] * row
        return found


def _on_grid(values: Floats, largest: float) -> NDArray[np.float64]:
    clipped = np.clip(np.asarray(values, dtype=np.float64), -largest, largest)
    return np.asarray(np.trunc(clipped / _GRID) * _GRID)

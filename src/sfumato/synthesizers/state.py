"""What a generator consists of, and how it is read from a stranger's file: every number is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError

__all__ = ["State", "Stored", "split"]


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """What a model consists of: plain settings, and arrays of noisy numbers."""

    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Stored:
    """A state that somebody wrote to a file: every number is checked when it is taken out.

    Examples
    --------
    >>> stored = Stored(State({"rows": 5}, {"counts": np.array([1.0, 4.0])}))
    >>> stored.whole("rows", 0, 10), stored.array("counts", (2,), least=0.0).tolist()
    (5, [1.0, 4.0])
    """

    state: State

    def number(self, name: str, least: float, most: float) -> float:
        """Return a number between two others."""
        found = self.state.settings.get(name)
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise InputError(f"the generator's '{name}' must be a number from {least:g} to {most:g}")
        return float(found)

    def whole(self, name: str, least: int, most: int) -> int:
        """Return a whole number between two others."""
        found = self.number(name, least, most)
        if found != int(found):
            raise InputError(f"the generator's '{name}' must be a whole number")
        return int(found)

    def sizes(self, name: str, length: int) -> list[int]:
        """Return a list of positive whole numbers."""
        found = self.state.settings.get(name)
        if not isinstance(found, list) or len(found) != length:
            raise InputError(f"the generator's '{name}' must be a list of {length} numbers")
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 < one <= 2**20 for one in found):
            raise InputError(f"the generator's '{name}' must be a list of whole numbers above 0")
        return found

    def array(
        self, name: str, shape: tuple[int, ...], *, kind: str = "f", least: float = -math.inf, most: float = math.inf
    ) -> NDArray[Any]:
        """Return an array of a shape whose numbers are finite, of a kind (f or i), and between two others."""
        found = self.state.arrays.get(name)
        if found is None or found.shape != shape or found.dtype.kind != kind:
            raise InputError(f"the generator's array '{name}' must have the shape {shape}")
        if found.size and not (np.isfinite(found).all() and least <= found.min() and found.max() <= most):
            raise InputError(f"the generator's array '{name}' must be of finite numbers from {least:g} to {most:g}")
        return found


def split(flat: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """Return an array in parts of these sizes.

    Examples
    --------
    >>> [one.tolist() for one in split(np.arange(5), [2, 3])]
    [[0, 1], [2, 3, 4]]
    """
    return np.split(flat, np.cumsum(sizes)[:-1]) if len(sizes) else []

"""Projection of noisy counts onto those that can be counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["onto_simplex"]

Floats = NDArray[np.float64]


def onto_simplex(noisy: Any, total: float) -> Floats:
    """Return the nearest numbers that are not negative and add up to a total.

    Examples
    --------
    >>> onto_simplex([5.0, 3.0, -4.0], 6.0).tolist()
    [4.0, 2.0, 0.0]
    """
    given = np.asarray(noisy, dtype=np.float64)
    falling = np.sort(given.ravel())[::-1]
    excess = (np.cumsum(falling) - max(total, 0.0)) / np.arange(1, len(falling) + 1)
    moved: Floats = np.maximum(given - excess[np.flatnonzero(falling > excess)[-1:]].sum(), 0.0)
    return moved

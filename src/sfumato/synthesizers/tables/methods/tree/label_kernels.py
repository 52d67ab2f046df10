"""The kernel of the labels' model: sums for the curvature. Numba compiles it on first use and caches the result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel

__all__ = ["add_products"]

Floats = NDArray[np.float64]


@kernel(error_model="numpy")
def add_products(places: NDArray[np.int32], weights: Floats, found: Floats) -> Any:
    """Add the weight of each row to the cell of each two of its places; the last place is one that all rows share.

    Only cells (i, j) with i >= j are counted if places rise from column to column.

    Parameters
    ----------
    places : a row per column, the place of each drawn row
    weights : the weights of the drawn rows
    found : the sums, a row and a column per place and one for all, changed in place
    """
    columns, rows = places.shape
    last = len(found) - 1
    for a in range(columns):
        for row in range(rows):
            at = places[a, row]
            found[at, at] += weights[row]
            found[last, at] += weights[row]
        for b in range(a):
            for row in range(rows):
                found[places[a, row], places[b, row]] += weights[row]
    for row in range(rows):
        found[last, last] += weights[row]

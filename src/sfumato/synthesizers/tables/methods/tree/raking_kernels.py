"""The kernel of raking: one sweep over all tables. Numba compiles it on first use and caches the result on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel

__all__ = ["sweep"]

Floats = NDArray[np.float64]


@kernel(error_model="numpy")
def sweep(
    columns: NDArray[Any],
    tables: NDArray[np.int64],
    wanted: Floats,
    variances: Floats,
    weights: Floats,
    present: Floats,
    doubt: float,
    largest: float,
) -> Any:
    """Multiply the weight of each row by the factors of its cells, table by table.

    Parameters
    ----------
    columns : a row per column, the codes of the drawn rows
    tables : per table three columns (-1 for none), the sizes of the second and the third, its first cell, its cells
    wanted : the wanted counts of the cells of all tables
    variances : the variance of the noise of each table
    weights : the weights of the rows, changed in place
    present : room for the cells of a table
    doubt : the relative error of the rows' own counts
    largest : the largest factor
    """
    rows = columns.shape[1]
    for at in range(len(tables)):
        a, b, c = tables[at, 0], tables[at, 1], tables[at, 2]
        second, third, start, cells = tables[at, 3], tables[at, 4], tables[at, 5], tables[at, 6]
        for cell in range(cells):
            present[cell] = 0.0
        if c >= 0:
            for row in range(rows):
                place = (np.int64(columns[a, row]) * second + columns[b, row]) * third + columns[c, row]
                present[place] += weights[row]
        else:
            for row in range(rows):
                present[np.int64(columns[a, row]) * second + columns[b, row]] += weights[row]
        for cell in range(cells):
            target = max(wanted[start + cell], 1e-3)
            found = max(present[cell], 1e-3)
            own = (doubt * max(found, target)) ** 2 + 1e-9
            factor = (target / found) ** (own / (own + variances[at]))
            present[cell] = min(max(factor, 1.0 / largest), largest)
        if c >= 0:
            for row in range(rows):
                place = (np.int64(columns[a, row]) * second + columns[b, row]) * third + columns[c, row]
                weights[row] *= present[place]
        else:
            for row in range(rows):
                weights[row] *= present[np.int64(columns[a, row]) * second + columns[b, row]]

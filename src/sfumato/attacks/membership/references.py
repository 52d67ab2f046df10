"""Reference models: the target's own training procedure, run on other rows.

Two reference models share the pool of rows between them, so that every record is in half of the models' training data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import whole

__all__ = ["Procedure", "halves", "train_references"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Procedure = Callable[[Ints, int], Floats]
"""Train on some rows of the pool with a seed; return the probability of its own label for every row of the pool."""


def halves(rows: int, models: int, seed: int) -> Bools:
    """Return which rows each model is trained on: each pair of models shares all rows.

    Examples
    --------
    >>> inside = halves(10, 4, seed=0)
    >>> inside.sum(axis=1).tolist(), inside.sum(axis=0).tolist()
    ([5, 5, 5, 5], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    whole("the number of reference models", models, least=2, most=10_000)
    rng = np.random.default_rng(seed)
    inside = np.zeros((models, rows), dtype=bool)
    for model in range(0, models, 2):
        inside[model, rng.permutation(rows)[: rows // 2]] = True
        if model + 1 < models:
            inside[model + 1] = ~inside[model]
    return inside


def train_references(
    procedure: Procedure,
    inside: Bools,
    *,
    seed: int,
    processes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Return the probability that each reference model gives to every row's own label, by model and row.

    Parameters
    ----------
    procedure : callable
        See `Procedure`. It must be picklable if there is more than one process.
    inside : array of bool, by model and row
        See `halves`.
    processes : int, optional
        The number of processes; as many as cores by default.
    """
    jobs = [(procedure, np.flatnonzero(rows), seed + 1 + number) for number, rows in enumerate(inside)]
    workers = min(len(jobs), processes or os.cpu_count() or 1)
    found = np.empty(inside.shape)
    if workers == 1:
        for number, job in enumerate(jobs):
            found[number] = _run(job)
            if progress:
                progress((number + 1) / len(jobs))
        return found
    with ProcessPoolExecutor(workers) as pool:
        for number, signals in enumerate(pool.map(_run, jobs)):
            found[number] = signals
            if progress:
                progress((number + 1) / len(jobs))
    return found


def _run(job: tuple[Procedure, Ints, int]) -> Any:
    procedure, rows, seed = job
    return procedure(rows, seed)

"""A small table with all that a column can have: missing values, rare categories, numbers beyond the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sfumato.data import Column, Kind, Schema

__all__ = ["mixed_schema", "mixed_table"]


def mixed_schema() -> Schema:
    """Return what is public of it."""
    return Schema(
        (
            Column(name="size", kind=Kind.NUMBER, bounds=(-2.0, 2.0)),
            Column(name="colour", kind=Kind.CATEGORY, domain=("red", "green", "blue")),
            Column(name="small", kind=Kind.NUMBER, bounds=(0.0, 100.0)),
        )
    )


def mixed_table(rows: int, seed: int = 0) -> tuple[pl.DataFrame, Any, Any]:
    """Return a table, classes a, b and c, and numbers most of which are between -1 and 1."""
    random = np.random.default_rng(seed)
    size = random.normal(0, 2, rows)
    table = pl.DataFrame(
        {
            "size": pl.Series(np.where(random.uniform(size=rows) < 0.1, np.nan, size), nan_to_null=True),
            "colour": random.choice(np.array(["red", "green", "blue", None]), rows, p=[0.5, 0.3, 0.1, 0.1]).tolist(),
            "small": np.where(random.uniform(size=rows) < 0.7, 0.0, random.uniform(0, 200, rows)),
        }
    )
    classes = np.where(size > 1, "a", random.choice(["a", "b", "c"], rows))
    return table, classes, 0.4 * size + random.normal(0, 0.2, rows)

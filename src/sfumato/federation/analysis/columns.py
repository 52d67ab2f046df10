"""The columns of a holder as numbers between -1 and 1 and as codes, by what the shared schema declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, SchemaError

__all__ = ["Columns", "Unit", "categories_of", "read_columns", "units_of"]


@dataclass(frozen=True)
class Unit:
    """How a column of numbers is scaled: its bounds become -1 and 1.

    Examples
    --------
    >>> import sfumato as sf
    >>> (unit,) = units_of(sf.Schema([sf.Column(name="age", bounds=(0, 120))]), ["age"])
    >>> unit.middle, unit.half
    (60.0, 60.0)
    """

    name: str
    middle: float
    half: float


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """The complete rows of a holder: numbers within their bounds as they are and scaled, and codes of categories."""

    values: NDArray[np.float64]
    numbers: NDArray[np.float64]
    codes: NDArray[np.int64]


def units_of(schema: Schema, names: Sequence[str]) -> list[Unit]:
    """Return the scale of each column; a `SchemaError` if it has no public bounds."""
    found = []
    for name in names:
        bounds = schema[name].bounds
        if bounds is None or bounds[0] == bounds[1]:
            raise SchemaError(
                f"column '{name}' has no public bounds, without which its sums could overflow",
                hint="declare them in the schema that all holders share: the possible range, not that of the data",
            )
        low, high = bounds
        found.append(Unit(name, (low + high) / 2, (high - low) / 2))
    return found


def categories_of(schema: Schema, name: str) -> tuple[Any, ...]:
    """Return the public values of a column; a `SchemaError` if it has none."""
    domain = schema[name].domain
    if not domain:
        raise SchemaError(
            f"column '{name}' has no public domain, so holders cannot count its values together",
            hint="declare its domain in the schema that all holders share",
        )
    return domain


def read_columns(
    rows: Any, schema: Schema, numbers: Sequence[str], categories: Sequence[str], *, private: bool
) -> Columns:
    """Read the columns of a holder; rows in which one of them is missing are left out.

    Values outside their bounds or domain are an error. With privacy they must not be, since the error would say that
    there is one: numbers are clipped to their bounds, and rows with an unknown category are left out.
    """
    frame = Table.of(rows).frame
    for name in (*numbers, *categories):
        if name not in frame.columns:
            raise ColumnError(f"the table lacks the column '{name}'")
    matrix = np.empty((frame.height, len(numbers)))
    values = np.empty_like(matrix)
    for at, unit in enumerate(units_of(schema, numbers)):
        read = frame[unit.name].cast(pl.Float64, strict=False)
        wrong = read.null_count() - frame[unit.name].null_count()
        if wrong and not private:
            raise SchemaError(f"{wrong} value(s) of column '{unit.name}' are not numbers")
        values[:, at] = read.fill_null(np.nan).to_numpy()
        matrix[:, at] = (values[:, at] - unit.middle) / unit.half
        outside = int((np.abs(matrix[:, at]) > 1 + 1e-12).sum())
        if outside and not private:
            low, high = schema[unit.name].bounds or (0, 0)
            raise SchemaError(f"{outside} value(s) of column '{unit.name}' are outside its bounds {low:g} to {high:g}")
    codes = np.empty((frame.height, len(categories)), np.int64)
    for at, name in enumerate(categories):
        known = {text_of(value): place for place, value in enumerate(categories_of(schema, name))}
        texts = frame[name].unique().drop_nulls().to_list()
        found = [known.get(text_of(value), -1) for value in texts]
        if -1 in found and not private:
            raise SchemaError(f"{found.count(-1)} value(s) of column '{name}' are not in its public domain")
        if texts:
            codes[:, at] = frame[name].replace_strict(texts, found, default=-1, return_dtype=pl.Int64).to_numpy()
        else:
            codes[:, at] = -1
    keep = np.isfinite(matrix).all(1) & (codes >= 0).all(1)
    least, most = (np.array([(schema[name].bounds or (0, 0))[end] for name in numbers], np.float64) for end in (0, 1))
    return Columns(np.clip(values[keep], least, most), np.clip(matrix[keep], -1, 1), codes[keep])

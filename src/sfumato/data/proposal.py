"""Write a proposed schema as a file to edit, with bounds and domains found in the data as comments.

Bounds and domains in a schema are public: they are used without charging the budget, and are listed in certificates. So
those found in the data take effect only after a person confirms them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import polars as pl

from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError

__all__ = ["round_bounds", "to_commented_toml"]

_MOST_VALUES = 50  # a person would not check a longer list
_CONFIRM = "# taken from the data: removing the # below makes it public, so check first that anyone may know it"


def to_commented_toml(schema: Schema, table: Table) -> str:
    """Return a schema as TOML with the bounds and domains of the data, commented out.

    Numbers get round bounds, categories the list of their values if it is short. Identifiers, texts, dates and columns
    with declared bounds or domains get nothing.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"age": [18, 93], "sex": ["f", "m"]})
    >>> print(to_commented_toml(Schema([Column(name="age"), Column(name="sex")]), Table(frame)))
    [columns.age]
    role = "other"
    kind = "auto"
    # taken from the data: removing the # below makes it public, so check first that anyone may know it
    # bounds = [10, 100]
    <BLANKLINE>
    [columns.sex]
    role = "other"
    kind = "auto"
    # taken from the data: removing the # below makes it public, so check first that anyone may know it
    # domain = ["f", "m"]
    <BLANKLINE>
    """
    return "\n".join(_column_toml(column, table) for column in schema.columns)


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """Round two bounds outwards to multiples of the power of ten below their distance.

    Examples
    --------
    >>> round_bounds(18, 93), round_bounds(4.52, 11.98), round_bounds(0.0131, 0.0186)
    ((10, 100), (4, 12), (0.013, 0.019))
    >>> round_bounds(7, 7)
    (7, 8)
    """
    span = Fraction(high) - Fraction(low) or abs(Fraction(low)) or Fraction(1)
    step = math.floor(math.log10(span.numerator) - math.log10(span.denominator))
    unit = Fraction(10) ** step
    first = math.floor(Fraction(low) / unit)
    last = max(math.ceil(Fraction(high) / unit), first + 1)
    return (int(first * unit), int(last * unit)) if step >= 0 else (float(first * unit), float(last * unit))


def _column_toml(column: Column, table: Table) -> str:
    import tomli_w

    text = tomli_w.dumps(Schema([column]).to_dict())
    if suggestion := _suggest(column, table):
        key, values = suggestion
        listed = ", ".join(tomli_w.dumps({"x": value}).strip().removeprefix("x = ") for value in values)
        text += f"{_CONFIRM}\n# {key} = [{listed}]\n"
    return text


def _suggest(column: Column, table: Table) -> tuple[str, list[Any]] | None:
    """Return the key and the bounds or domain that the values of a column suggest; None if there is none."""
    if column.role.is_identifier or column.kind is Kind.TEXT or column.bounds or column.domain:
        return None
    try:
        values = table.column(column.name)
    except ColumnError:  # mixed types, as the column's reason says
        return None
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.cast(pl.String)
    if column.kind in (Kind.NUMBER, Kind.AUTO) and values.dtype.is_numeric():
        numbers = values.cast(pl.Float64).drop_nulls()
        numbers = numbers.filter(numbers.is_finite())
        return ("bounds", list(round_bounds(numbers.min(), numbers.max()))) if len(numbers) else None  # type: ignore[arg-type]
    if not (values.dtype == pl.String or values.dtype.is_integer() or values.dtype == pl.Boolean):
        return None
    known = values.drop_nulls().unique().sort().to_list()
    return ("domain", known) if 0 < len(known) <= _MOST_VALUES else None

"""A proposed schema as a file to edit: what the values suggest stands in comments, for a person to confirm.

Bounds and domains that a schema declares are public: they are used without a charge, and stand in certificates. So
nothing that was read off the data may become one by itself.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import polars as pl

from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError

__all__ = ["commented", "round_bounds"]

_MOST_VALUES = 50  # more are no list that a person would check
_CONFIRM = "# read off the data: it becomes public when you remove the mark before it, so check that anyone may know it"


def commented(schema: Schema, table: Table) -> str:
    """Return a schema as TOML with the bounds and domains that the values suggest, commented out.

    Numbers get round bounds around them, categories their values if they are few. Identifiers, texts and dates get
    nothing, and neither does a column of which the schema declares it already.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"age": [18, 93], "sex": ["f", "m"]})
    >>> print(commented(Schema([Column(name="age"), Column(name="sex")]), Table(frame)))
    [columns.age]
    role = "other"
    kind = "auto"
    # read off the data: it becomes public when you remove the mark before it, so check that anyone may know it
    # bounds = [10, 100]
    <BLANKLINE>
    [columns.sex]
    role = "other"
    kind = "auto"
    # read off the data: it becomes public when you remove the mark before it, so check that anyone may know it
    # domain = ["f", "m"]
    <BLANKLINE>
    """
    return "\n".join(_described(column, table) for column in schema.columns)


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around two numbers: multiples of the power of ten below their distance.

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


def _described(column: Column, table: Table) -> str:
    import tomli_w

    text = tomli_w.dumps(Schema([column]).to_dict())
    found = _found(column, table)
    if found:
        listed = ", ".join(tomli_w.dumps({"x": one}).strip().removeprefix("x = ") for one in found[1])
        text += f"{_CONFIRM}\n# {found[0]} = [{listed}]\n"
    return text


def _found(column: Column, table: Table) -> tuple[str, list[Any]] | None:
    """Return what the values of a column suggest, and what it is called in a schema."""
    if column.role is Role.IDENTIFIER or column.kind is Kind.TEXT or column.bounds or column.domain:
        return None
    try:
        values = table.column(column.name)
    except ColumnError:  # of mixed types, as the reason says
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

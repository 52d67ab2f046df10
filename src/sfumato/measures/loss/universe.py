"""The universe of a column: all values that it may take, against which released values are read.

They are the values of the original table and of the public domain in the column's schema. The range
of a number or date column is from the least to the greatest of them, or the public bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from sfumato._repr import Discreet
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.released_values import number_of
from sfumato.data.schema import Column, Kind
from sfumato.errors import ColumnError, SchemaError
from sfumato.measures.classes import Floats, Ints

__all__ = ["Universe", "as_floats", "universe"]


@dataclass(frozen=True, eq=False, repr=False)
class Universe(Discreet):
    """All values that a column may take, in order; a missing value, if there is one, comes last.

    Attributes
    ----------
    column : the column of the schema
    place : the position in the universe of each code of the original column
    texts : each value as a text
    numbers : each value of a number or date column as a number; empty for other kinds
    low, high : the range of a number or date column
    whole : whether all numbers are whole
    missing : the position of the missing value, or None
    """

    column: Column
    place: Ints
    values: Domain
    numbers: Floats
    low: float
    high: float
    whole: bool
    missing: int | None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_line(self) -> bool:
        """Whether the values are on a line, as numbers and dates are."""
        return self.column.kind in (Kind.NUMBER, Kind.DATE)

    @cached_property
    def unit(self) -> float:
        """The distance of neighbouring whole numbers; for times, a day, a minute or a second if all times fit."""
        dtype, known = self.values.values.dtype, self.numbers[: len(self) - (self.missing is not None)]
        if not self.whole or not isinstance(dtype, pl.Datetime):
            return 1.0
        second = {"ms": 1e3, "us": 1e6, "ns": 1e9}[dtype.time_unit]
        return next((unit for unit in (86_400 * second, 60 * second, second) if not (known % unit).any()), 1.0)

    @property
    def has_only_days(self) -> bool:
        """Whether all times are midnight, as for dates in pandas."""
        dtype = self.values.values.dtype
        return isinstance(dtype, pl.Datetime) and self.unit == number_of("1970-01-02", dtype)

    @cached_property
    def texts(self) -> list[str]:
        """The values as texts."""
        return [self.values.label(position) for position in range(len(self))]

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each non-missing value, by its text."""
        return {text: position for position, text in enumerate(self.texts) if position != self.missing}

    @cached_property
    def groups(self) -> dict[str, tuple[int, Ints]]:
        """The level of each label of the hierarchy, and the positions of the values under it.

        The intervals of whole numbers have two labels: ``20-39`` and ``[20, 40)``.
        """
        hierarchy = self.column.hierarchy
        found: dict[str, tuple[int, Ints]] = {}
        if hierarchy is None:
            return found
        held = self.values.values
        values = (as_floats(held) if held.dtype == pl.Float32 else held).to_list()
        readable = hierarchy.for_whole_numbers() if self.whole else hierarchy
        for one in [hierarchy] if readable is hierarchy else [hierarchy, readable]:
            for level in range(hierarchy.height + 1):
                members: dict[str, list[int]] = {}
                for position, label in enumerate(one.labels(values, level)):
                    members.setdefault(label, []).append(position)
                for label, positions in members.items():
                    # A label on several levels means its largest group, on the lowest level that has it.
                    if len(positions) > len(found.get(label, (level, ()))[1]):
                        found[label] = (level, np.array(positions, dtype=np.int64))
        return found

    def locate(self, numbers: Floats) -> Ints:
        """Return the position of each number, or -1 if the universe lacks it."""
        known = self.numbers[: len(self) - (self.missing is not None)]
        if not len(known):
            return np.full(len(numbers), -1)
        position = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        return np.where(known[position] == numbers, position, -1)


def universe(domain: Domain) -> Universe:
    """Return all values that a column may take: the original ones and those of its public domain.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> schema = sf.Schema([sf.Column(name="age", kind="number", bounds=(0, 120))])
    >>> ages = universe(sf.Table(pl.DataFrame({"age": [40, 30, 40]}), schema).encode(["age"]).domains[0])
    >>> ages.texts, ages.low, ages.high
    (['30', '40'], 0.0, 120.0)
    """
    column, values = domain.column, domain.values.drop_nulls()
    present = np.arange(len(domain)) != (-1 if domain.missing is None else domain.missing)
    place = np.full(len(domain), -1)
    numbers, low, high, whole = np.zeros(0), 0.0, 0.0, False
    if column.kind in (Kind.NUMBER, Kind.DATE):
        if not len(values) and values.dtype == pl.String:  # a column of a text file without a value
            values = values.cast(pl.Float64 if column.kind is Kind.NUMBER else pl.Date)
        declared = pl.Series(column.domain or [], strict=False)
        ours, theirs = _all_numbers(values, values.dtype, column), _all_numbers(declared, values.dtype, column)
        numbers, where = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
        place[present] = where[: len(ours)]
        if len(numbers):
            low, high, whole = float(numbers[0]), float(numbers[-1]), bool((numbers == np.floor(numbers)).all())
            values = pl.concat([values, declared.cast(values.dtype)]) if len(theirs) else values
            values = values.gather(np.unique(where, return_index=True)[1])
        if column.bounds is not None:
            if len(numbers) and (low < column.bounds[0] or high > column.bounds[1]):
                raise SchemaError(f"column '{column.name}' holds values outside its public bounds {column.bounds}")
            low, high = column.bounds
    elif column.domain is not None:
        texts = [domain.label(code) for code in np.flatnonzero(present).tolist()]
        values = pl.Series([text_of(value) for value in column.domain], dtype=pl.String)
        known = {text: position for position, text in enumerate(values)}
        unknown = [text for text in texts if text not in known]
        if unknown:
            raise SchemaError(
                f"column '{column.name}' holds {len(unknown)} value(s) that its public domain does not list",
                hint="add them to the domain, or leave it out of the schema",
            )
        place[present] = [known[text] for text in texts]
    else:
        place[present] = np.arange(len(values))
    missing = None
    if domain.missing is not None:
        missing = place[domain.missing] = len(values)
        values = pl.concat([values, pl.Series([None], dtype=values.dtype)])
        numbers = np.append(numbers, np.nan) if column.kind in (Kind.NUMBER, Kind.DATE) else numbers
    return Universe(column, place, Domain(column, values), numbers, low, high, whole, missing)


def as_floats(values: pl.Series) -> pl.Series:
    """Convert numbers to 64-bit floats; 32-bit floats keep their text: 0.7, not 0.699999988079071.

    Examples
    --------
    >>> as_floats(pl.Series([0.7], dtype=pl.Float32)).to_list()
    [0.7]
    """
    return (values.cast(pl.String) if values.dtype == pl.Float32 else values).cast(pl.Float64, strict=False)


def _all_numbers(values: pl.Series, dtype: pl.DataType, column: Column) -> Floats:
    """Return the values of a number or date column as numbers."""
    if dtype == pl.String:
        raise SchemaError(f"column '{column.name}' is declared a {column.kind.value}, but holds texts")
    try:
        typed = values.cast(dtype)
    except pl.exceptions.PolarsError:
        raise SchemaError(
            f"the domain of column '{column.name}' lists a value that is not a {column.kind.value}"
        ) from None
    numbers = as_floats(typed.to_physical() if dtype.is_temporal() else typed).to_numpy()
    if not np.isfinite(numbers).all():
        raise ColumnError(f"column '{column.name}' holds an infinite number, which has no place in a range")
    return np.asarray(numbers, dtype=np.float64)

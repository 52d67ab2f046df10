"""Columns as codes: between the values of a table and the whole numbers that the algorithms work on.

A category has a code for each value of its domain, a number for each step between its bounds; the last code of a column
stands for missing values. Everything here is public: declared in the schema, or bought with noise. Values outside the
domain count as missing, numbers beyond the bounds are clipped, each record independently. Whole numbers come back as
whole numbers, dates as dates, and decimals with as many digits as the type declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.synthesizers.tables.base import Axis, Rows

__all__ = ["Coding", "Domain", "Values"]

Ints = NDArray[np.int64]

_MOST = 2**17  # codes of a number


class Values(StrEnum):
    """The values of a column."""

    TEXT = "text"
    TRUTH = "truth"
    WHOLE = "whole"
    REAL = "real"
    DATE = "date"

    @classmethod
    def of(cls, dtype: pl.DataType) -> Values:
        """Return the kind of values of a type, which is public."""
        if dtype == pl.Boolean:
            return cls.TRUTH
        if dtype.is_integer():
            return cls.WHOLE
        if dtype in (pl.Date, pl.Datetime):
            return cls.DATE
        return cls.REAL if dtype.is_numeric() else cls.TEXT


@dataclass(frozen=True)
class Coding:
    """How the values of one column become codes and back.

    Examples
    --------
    >>> age = Coding.of(Feature("age", bounds=(0.0, 120.0)), pl.Int64())
    >>> age.encode(pl.Series([30, None, 300])).tolist(), age.axis.size
    ([30, 121, 120], 122)
    >>> age.decode(np.array([30, 121])).to_list()
    [30, None]
    >>> price = Coding.of(Feature("price", bounds=(0.0, 99.99)), pl.Decimal(10, 2))
    >>> price.decode(price.encode(pl.Series(["12.50", "7.99"]).cast(pl.Decimal(10, 2)))).to_list()
    [12.5, 7.99]
    """

    feature: Feature
    values: Values
    step: float = 1.0
    """The distance of two neighbouring codes of a number."""

    @classmethod
    def of(cls, feature: Feature, dtype: pl.DataType) -> Coding:
        """Return the coding of a column of a public type."""
        values = Values.of(dtype)
        if not feature.is_number:
            return cls(feature, values)
        if values is Values.TEXT:
            values = Values.REAL  # numbers of a text file
        low, high = feature.bounds or (0.0, 1.0)
        width = high - low
        if values is Values.REAL:
            digits = dtype.scale if isinstance(dtype, pl.Decimal) else None
            step = 10.0**-digits if digits is not None else 10.0 ** (math.ceil(math.log10(width)) - 5)
        else:
            low, high, step = math.ceil(low), math.floor(high), 1.0
            feature = Feature(feature.name, bounds=(float(low), float(max(high, low))))
        return cls(feature, values, step * max(1, math.ceil((width / step + 1) / _MOST)))

    @property
    def axis(self) -> Axis:
        """What an algorithm knows of the column."""
        if self.feature.domain is not None:
            return Axis(self.feature.name, len(self.feature.domain) + 1, ordered=False)
        low, _ = self.feature.bounds or (0.0, 1.0)
        known = self._known
        return Axis(self.feature.name, known + 1, True, int(np.clip(round(-low / self.step), 0, known - 1)))

    @property
    def _known(self) -> int:
        low, high = self.feature.bounds or (0.0, 1.0)
        return math.floor((high - low) / self.step + 1e-9) + 1

    def encode(self, values: pl.Series) -> Ints:
        """Return the code of each value."""
        if self.feature.domain is not None:
            return self.feature.codes(values)
        low, _ = self.feature.bounds or (0.0, 1.0)
        numbers = self.feature.numbers(values)
        known = ~np.isnan(numbers)
        codes = np.full(len(numbers), self._known, dtype=np.int64)
        codes[known] = np.clip(np.floor((numbers[known] - low) / self.step + 1e-6), 0, self._known - 1)
        return codes

    def decode(self, codes: NDArray[np.integer]) -> pl.Series:
        """Return the value of each code."""
        name = self.feature.name
        if self.feature.domain is not None:
            return self._typed(pl.Series(name, [*self.feature.domain, None], dtype=pl.String)).gather(codes)
        low, _ = self.feature.bounds or (0.0, 1.0)
        missing = codes == self._known
        numbers = low + codes * self.step
        if self.values is Values.REAL:
            digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
            found = pl.Series(name, np.round(numbers, digits))
        else:
            found = pl.Series(name, np.floor(numbers + self.step / 2 - 0.5).astype(np.int64))
            found = found.cast(pl.Int32).cast(pl.Date) if self.values is Values.DATE else found
        return found.to_frame().select(pl.when(pl.Series(~missing)).then(pl.col(name)).alias(name))[name]

    def _typed(self, texts: pl.Series) -> pl.Series:
        """Return categories in the type of the column, if all of them are of that type."""
        if self.values is Values.TRUTH and set(texts.drop_nulls()) <= {"True", "False"}:
            return texts == "True"
        types = {Values.WHOLE: pl.Int64, Values.REAL: pl.Float64, Values.DATE: pl.Date}
        if self.values not in types:
            return texts
        found = texts.cast(types[self.values], strict=False)
        return found if found.null_count() == texts.null_count() else texts

    def to_dict(self) -> dict[str, Any]:
        """Return the coding as plain values."""
        return {**self.feature.to_dict(), "values": self.values.value, "step": self.step}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Coding:
        """Return the coding of a `to_dict`."""
        step = float(plain["step"])
        if not (math.isfinite(step) and step > 0):
            raise InputError(f"the step of column '{str(plain['name'])[:40]}' must be above 0, got {step:g}")
        found = cls(Feature.from_dict(plain), Values(plain["values"]), step)
        if found.feature.is_number and found._known > 2 * _MOST:
            raise InputError(f"column '{found.feature.name[:40]}' must have at most {2 * _MOST:,} steps")
        return found


@dataclass(frozen=True)
class Domain:
    """The codings of all columns of a table, and which column is the label.

    Examples
    --------
    >>> people = Columns.of(pl.DataFrame({"age": [30, 41], "sex": ["f", None]}))
    >>> domain = Domain.of([Feature("age", bounds=(0, 99)), Feature("sex", domain=("f", "m"))], people)
    >>> rows = domain.encode(people)
    >>> [one.tolist() for one in rows.codes]
    [[30, 41], [0, 2]]
    >>> domain.decode(rows.codes).rows()
    [(30, 'f'), (41, None)]
    """

    codings: tuple[Coding, ...]
    label: int | None = None

    @classmethod
    def of(cls, features: Sequence[Feature], columns: Columns, label: str | None = None) -> Domain:
        """Return the domain of columns with these public features."""
        codings = tuple(Coding.of(one, values.dtype) for one, values in zip(features, columns.values, strict=True))
        return cls(codings, None if label is None else columns.names.index(label))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(one.feature.name for one in self.codings)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What an algorithm knows of the columns."""
        return tuple(one.axis for one in self.codings)

    def encode(self, columns: Columns) -> Rows:
        """Return the records as codes."""
        codes = [one.encode(values) for one, values in zip(self.codings, columns.values, strict=True)]
        return Rows(self.axes, tuple(codes), self.label)

    def decode(self, codes: Sequence[NDArray[np.integer]]) -> pl.DataFrame:
        """Return a frame of the values of codes."""
        return pl.DataFrame([one.decode(values) for one, values in zip(self.codings, codes, strict=True)])

    def to_dict(self) -> dict[str, Any]:
        """Return the domain as plain values."""
        return {"columns": [one.to_dict() for one in self.codings], "label": self.label}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Domain:
        """Return the domain of a `to_dict`."""
        return cls(tuple(map(Coding.from_dict, plain["columns"])), plain.get("label"))

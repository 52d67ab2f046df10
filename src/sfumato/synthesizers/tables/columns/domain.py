"""Columns as codes: between the values of a table and the whole numbers that the algorithms work on.

A category has a code for each value of its domain; a number, a date or a time has one for each multiple of its step
between its bounds. The last code of a column stands for missing values. Everything here is public: declared in the
schema, or bought with noise. Values outside the domain count as missing, numbers beyond the bounds are clipped, each
record independently. Values come back in the type they had: whole numbers as whole numbers, dates as dates, and
decimals with their digits. A column that another one determines is computed, never learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.synthesizers.tables.base import Axis, Rows
from sfumato.synthesizers.tables.columns.kinds import (
    Values,
    as_values,
    in_type,
    numbers_in,
    round_step,
    type_name,
    type_of,
)

__all__ = ["MOST_CODES", "Coding", "Computed", "Domain", "Values"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CODES = 2**17
"""The largest number of codes of a number; a wide column gets a larger step."""
_AT_ONCE = 2**18  # values that are turned into codes at once


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
    [Decimal('12.50'), Decimal('7.99')]
    """

    feature: Feature
    """The domain of a category, or the bounds of a number, in days for dates and seconds for times."""
    values: Values
    step: float = 1.0
    """The distance of two neighbouring codes of a number; each is a multiple of it."""
    type: str = ""
    """The type of the frame's column; empty if it has none, as in a text file."""

    @classmethod
    def of(
        cls, feature: Feature, dtype: pl.DataType | None, *, values: Values | None = None, step: float | None = None
    ) -> Coding:
        """Return the coding of a column of a public type, which is None if the column has none.

        Without a step, it is 1 for whole numbers, dates and times, that of a decimal's digits, and else as small as the
        number of codes allows. It becomes larger if there are too many steps.
        """
        kind = values if values is not None else Values.TEXT if dtype is None else Values.of(dtype)
        name = "" if dtype is None else type_name(dtype)
        if not feature.is_number:
            return cls(feature, kind, type=name)
        if kind in (Values.TEXT, Values.TRUTH):
            kind = Values.REAL  # numbers of a text file
        low, high = feature.bounds or (0.0, 1.0)
        if step is None and isinstance(dtype, pl.Decimal):
            step = 10.0**-dtype.scale
        if step is None:
            step = kind.finest or round_step(max((high - low) / (MOST_CODES - 2), 1e-15 * max(-low, high)), kind)
        if (high - low) / step + 1 > MOST_CODES:
            step = round_step((high - low) / (MOST_CODES - 2), kind)
        found = cls(feature, kind, step, name)
        if found._last < found._first:
            raise InputError(
                f"column '{feature.name}' has steps of {step:g}, but no multiple of it lies between its bounds",
                hint=f"the bounds are {low:g} and {high:g}",
            )
        return found

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.feature.name

    @cached_property
    def axis(self) -> Axis:
        """What an algorithm knows of the column."""
        if self.feature.domain is not None:
            return Axis(self.name, len(self.feature.domain) + 1, ordered=False)
        return Axis(self.name, self._known + 1, True, int(np.clip(-self._first, 0, self._known - 1)))

    @cached_property
    def _inverse(self) -> int | None:
        """How many steps make 1, if it is a whole number: then decimals are exact."""
        return round(1 / self.step) if self.step < 1 and abs(self.step * round(1 / self.step) - 1) < 1e-12 else None

    def _steps(self, numbers: Any) -> Any:
        return numbers * self._inverse if self._inverse else numbers / self.step

    @cached_property
    def _first(self) -> int:
        steps: float = self._steps((self.feature.bounds or (0.0, 1.0))[0])
        return math.ceil(steps - 1e-6)

    @cached_property
    def _last(self) -> int:
        steps: float = self._steps((self.feature.bounds or (0.0, 1.0))[1])
        return math.floor(steps + 1e-6)

    @property
    def grid(self) -> tuple[int, int, int | None]:
        """The first and the last step, counted from 0, and how many steps make 1 if that is a whole number."""
        return self._first, self._last, self._inverse

    @property
    def _known(self) -> int:
        return self._last - self._first + 1

    @property
    def _is_exact(self) -> bool:
        """Whether the column has a type of texts, so that 1.50 is not 1.5."""
        return self.type in ("String", "Categorical", "Enum")

    def encode(self, values: pl.Series) -> Ints:
        """Return the code of each value."""
        domain = self.feature.domain
        if domain is None:
            numbers = numbers_in(values, self.values)
            known = ~np.isnan(numbers)
            codes = np.full(len(numbers), self._known, dtype=np.int64)
            inside = np.clip(numbers[known], *(self.feature.bounds or (0.0, 1.0)))
            codes[known] = np.clip(np.rint(self._steps(inside)), self._first, self._last) - self._first
            return codes
        if not domain:
            return np.zeros(len(values), dtype=np.int64)
        if not self._is_exact:
            return self.feature.codes(values)
        place = pl.DataFrame({"text": pl.Series(domain, dtype=pl.String), "code": np.arange(len(domain))})
        texts = values.cast(pl.String).rename("text").to_frame()
        found = texts.join(place, on="text", how="left", maintain_order="left")["code"].fill_null(len(domain))
        return found.to_numpy().astype(np.int64)

    def encode_compactly(self, values: pl.Series) -> NDArray[np.integer]:
        """Return the code of each value in as few bytes as suffice, with little memory beside."""
        codes = np.empty(len(values), dtype=np.min_scalar_type(self.axis.size - 1))
        for start in range(0, len(values), _AT_ONCE):
            codes[start : start + _AT_ONCE] = self.encode(values.slice(start, _AT_ONCE))
        return codes

    @cached_property
    def numbers(self) -> Floats:
        """The number of each code, in days for dates and seconds for times; NaN for missing values and texts."""
        if self.feature.domain is not None:
            return np.append(numbers_in(pl.Series(self.feature.domain, dtype=pl.String), self.values), math.nan)
        return np.append(self._number(np.arange(self._known)), math.nan)

    def _number(self, codes: NDArray[np.integer]) -> Any:
        steps = codes.astype(np.int64) + self._first
        if self._inverse:
            return steps / self._inverse
        return steps * int(self.step) if self.step == int(self.step) else steps * self.step

    def decode(self, codes: NDArray[np.integer]) -> pl.Series:
        """Return the value of each code."""
        if self.feature.domain is not None:
            texts = pl.Series(self.name, [*self.feature.domain, None], dtype=pl.String)
            return self._typed(texts).gather(np.asarray(codes, dtype=np.int64))
        missing = np.asarray(codes) == self._known
        numbers = self._number(np.where(missing, 0, codes))
        if self.values is Values.REAL and self.type:
            numbers = np.asarray(numbers, dtype=np.float64)
        found = as_values(self.name, numbers, self.values)
        known = found.to_frame().select(pl.when(pl.Series(~missing)).then(pl.col(self.name)).alias(self.name))
        return in_type(known[self.name], type_of(self.type)) if self.type else known[self.name]

    def _typed(self, texts: pl.Series) -> pl.Series:
        """Return categories in the type of the column, if all of them are of that type."""
        if self.values is Values.TRUTH and set(texts.drop_nulls()) <= {"True", "False"}:
            return texts == "True"
        if not self.type:
            return texts
        return in_type(texts, type_of(self.type, self.feature.domain))

    def to_dict(self) -> dict[str, Any]:
        """Return the coding as plain values."""
        return {**self.feature.to_dict(), "values": self.values.value, "step": self.step, "type": self.type}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Coding:
        """Return the coding of a `to_dict`."""
        name, domain, bounds = str(plain.get("name")), plain.get("domain"), plain.get("bounds")
        try:
            step, values = float(plain["step"]), Values(plain["values"])
            ends = (0.0, 0.0) if bounds is None else (float(bounds[0]), float(bounds[1]))
            texts = None if domain is None else tuple(map(str, domain))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise InputError(f"the generator's column '{name[:40]}' is damaged") from None
        if not (math.isfinite(step) and step > 0):
            raise InputError(f"the step of column '{name[:40]}' must be above 0, got {step:g}")
        if (texts is None) == (bounds is None) or not (math.isfinite(ends[1] - ends[0]) and ends[0] <= ends[1]):
            raise InputError(f"column '{name[:40]}' must have a domain, or bounds that are finite and in order")
        if (ends[1] - ends[0]) / step > 2 * MOST_CODES or max(map(abs, ends)) / step > 2.0**53:
            raise InputError(f"column '{name[:40]}' must have at most {2 * MOST_CODES:,} steps")
        if texts is not None and len(set(texts)) < len(texts):
            raise InputError(f"the domain of column '{name[:40]}' lists a value twice")
        if kind := str(plain.get("type", "")):
            type_of(kind, texts)
        feature = Feature(name, domain=texts) if texts is not None else Feature(name, bounds=ends)
        found = cls(feature, values, step, kind)
        if texts is None and found._last < found._first:
            raise InputError(f"no step of column '{name[:40]}' lies between its bounds")
        return found


@dataclass(frozen=True)
class Computed:
    """A column that another one determines: its code is looked up.

    The lookup has an entry for each code of the source, the last one for a missing value.
    """

    coding: Coding
    source: str
    lookup: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain values."""
        return {**self.coding.to_dict(), "source": self.source, "lookup": list(self.lookup)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Computed:
        """Return the column of a `to_dict`."""
        coding, lookup = Coding.from_dict(plain), plain.get("lookup")
        if not isinstance(lookup, list) or not all(type(one) is int and 0 <= one < coding.axis.size for one in lookup):
            raise InputError(f"the computed column '{coding.name[:40]}' must have a lookup of its codes")
        return cls(coding, str(plain.get("source")), tuple(lookup))


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
    """The columns that are learned."""
    label: int | None = None
    computed: tuple[Computed, ...] = ()
    """The columns that others determine, each after its source."""
    order: tuple[str, ...] = ()
    """The names of all columns in the order of the table; by default the learned ones, then the computed ones."""

    def __post_init__(self) -> None:
        known = {one.name: one.axis.size for one in self.codings}
        for one in self.computed:
            if len(one.lookup) != known.get(one.source):
                raise InputError(f"the lookup of column '{one.coding.name[:40]}' does not fit its source")
            known[one.coding.name] = one.coding.axis.size
        names = [one.name for one in self.codings] + [one.coding.name for one in self.computed]
        if len(known) < len(names) or (self.order and sorted(self.order) != sorted(names)):
            raise InputError("the generator's columns must have different names, each with a place in the order")
        if self.label is not None and not 0 <= self.label < len(self.codings):
            raise InputError("the generator's label must be one of its learned columns")

    @classmethod
    def of(cls, features: Sequence[Feature], columns: Columns, label: str | None = None) -> Domain:
        """Return the domain of columns with these public features and the types of a frame."""
        codings = tuple(Coding.of(one, values.dtype) for one, values in zip(features, columns.values, strict=True))
        return cls(codings, None if label is None else columns.names.index(label))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns in the order of the table."""
        return self.order or (*(one.name for one in self.codings), *(one.coding.name for one in self.computed))

    @property
    def target(self) -> str | None:
        """The name of the label."""
        return None if self.label is None else self.codings[self.label].name

    @cached_property
    def by_name(self) -> dict[str, Coding]:
        """The coding of each column."""
        return {one.name: one for one in (*self.codings, *(one.coding for one in self.computed))}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What an algorithm knows of the columns that it learns."""
        return tuple(one.axis for one in self.codings)

    def encode(self, columns: Columns, weights: Floats | None = None) -> Rows:
        """Return the learned columns of the records as codes."""
        by_name = dict(zip(columns.names, columns.values, strict=True))
        return self.encode_each(by_name.__getitem__, weights)

    def encode_each(self, values: Callable[[str], pl.Series], weights: Floats | None = None) -> Rows:
        """Return the learned columns of the records as codes, read one after another, in as few bytes as suffice."""
        codes = tuple(one.encode_compactly(values(one.name)) for one in self.codings)
        return Rows(self.axes, codes, self.label, weights)

    def complete(self, codes: Sequence[NDArray[np.integer]]) -> dict[str, NDArray[np.integer]]:
        """Return the codes of all columns by name, given those of the learned ones."""
        found = {one.name: values for one, values in zip(self.codings, codes, strict=True)}
        for one in self.computed:
            found[one.coding.name] = np.array(one.lookup)[found[one.source]]
        return found

    def decode(self, codes: Sequence[NDArray[np.integer]]) -> pl.DataFrame:
        """Return a frame of the values of codes."""
        every = self.complete(codes)
        return pl.DataFrame([self.by_name[name].decode(every[name]) for name in self.names])

    def to_dict(self) -> dict[str, Any]:
        """Return the domain as plain values."""
        plain: dict[str, Any] = {"columns": [one.to_dict() for one in self.codings], "label": self.label}
        if self.computed:
            plain |= {"computed": [one.to_dict() for one in self.computed], "order": list(self.names)}
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Domain:
        """Return the domain of a `to_dict`."""
        columns, computed, label = plain.get("columns"), plain.get("computed", []), plain.get("label")
        order = plain.get("order", [])
        if not all(isinstance(one, list) for one in (columns, computed, order)) or not columns:
            raise InputError("the generator's domain must list its columns")
        if not all(isinstance(one, Mapping) for one in (*columns, *computed)):
            raise InputError("the generator's domain must list its columns")
        if label is not None and type(label) is not int:
            raise InputError("the generator's label must be the position of a column")
        return cls(
            tuple(map(Coding.from_dict, columns)),
            label,
            tuple(map(Computed.from_dict, computed)),
            tuple(map(str, order)),
        )

"""The public description of a model's columns, declared in a schema or estimated with noise.

A number lies between public bounds, a category is one of a public domain. Values beyond the bounds are clipped, and
values outside the domain count as unknown, each record independently. So a model reveals nothing else about a value.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.mechanisms.additive import Mechanism, declared_bounds
from sfumato.budget.noise import Source
from sfumato.budget.people import codes_of_people, units_of
from sfumato.budget.query.discovery import FindBounds, SelectCategories
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.coding import canonical_text, person_texts, replace_values
from sfumato.data.hierarchies.label_paths import is_missing, text_of
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, InputError, OptionError, SchemaError, SfumatoError, did_you_mean

__all__ = [
    "Columns",
    "Feature",
    "Features",
    "Undeclared",
    "UnusedColumn",
    "as_numbers",
    "as_read",
    "classes_of",
    "column_of",
    "describe",
    "scale_bounds",
    "texts_in",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DAY = r"^(\d{4}-\d\d-\d\d)(?:[ T]\d\d:\d\d:\d\d(?:\.\d+)?)?$"  # dates in text files
_LONGEST, _SHORTEST = 1e100, 1e-100  # distance between bounds, such that squares fit into floats


class UnusedColumn(UserWarning):
    """No value of a column stood out from the noise: the model does not use it."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns passed to a model, and the schema that came with them.

    Examples
    --------
    >>> Columns.of([[1.0, 2.0], [3.0, 4.0]]).names
    ('x0', 'x1')
    """

    values: tuple[pl.Series, ...]
    schema: Schema | None
    named: bool
    """Whether the columns have names; columns of an array are named by position."""
    objects: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Columns of objects, whose values may have different types: categories, unless declared otherwise."""
    inferred: bool = field(default=False, kw_only=True)
    """Whether types were inferred from cells, as in a text file; columns of a declared kind are texts or numbers."""
    people: pl.Series | None = field(default=None, kw_only=True)
    """The number of the person of each row, under the name of the person column; negative without a person."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(one.name for one in self.values)

    @property
    def rows(self) -> int:
        """The number of records."""
        return len(self.values[0])

    @property
    def person(self) -> str | None:
        """The name of the person column, which is not among the columns."""
        return None if self.people is None else self.people.name

    @property
    def unit(self) -> str:
        """What is protected: a row, or a person with all of their rows."""
        return UNIT if self.people is None else PERSON

    @property
    def units(self) -> Ints:
        """The number of what each row belongs to, from 0: of its person, or of the row itself."""
        return np.arange(self.rows) if self.people is None else units_of(self.people.to_numpy())

    @property
    def unit_count(self) -> int:
        """How many there are of what is protected: people or rows."""
        if self.people is None:
            return self.rows
        people = self.people.to_numpy()
        known = people[people >= 0]
        return int(np.count_nonzero(np.bincount(known))) + len(people) - len(known)

    def of_people(self, person: str) -> Columns:
        """Return the columns without that of the person, and the rows of each person."""
        if person not in self.names:
            raise ColumnError(f"there is no person column '{person}'", hint=did_you_mean(person, self.names))
        (column,) = (one for one in self.values if one.name == person)
        if self.inferred or person in self.objects:
            column = person_texts(column)
        values = tuple(one for one in self.values if one.name != person)
        if not values:
            raise InputError(f"0 feature(s): the table has no column beside the person column '{person}'")
        return replace(self, values=values, people=pl.Series(person, codes_of_people(column)))

    def take(self, rows: Ints) -> Columns:
        """Return the rows at some positions."""
        people = None if self.people is None else self.people.gather(rows)
        return replace(self, values=tuple(one.gather(rows) for one in self.values), people=people)

    @classmethod
    def of(cls, given: Any) -> Columns:
        """Convert a table, a frame of any kind, or an array with a row per record."""
        if isinstance(given, Columns):
            return given
        if isinstance(given, Table | pl.LazyFrame) or all(isinstance(name, str) for name in _names(given)):
            table = Table.of(given).as_declared()
            if not table.schema.names:
                raise InputError("0 feature(s): the table has no column")
            objects = frozenset(name for name in table.schema.names if table.holds_objects(name))
            values = tuple(
                column_of(name, table.frame[name].tolist() if name in objects else table.column(name))
                for name in table.schema.names
            )
            if table.has_inferred_types:
                values = tuple(map(_of_declared_kind, values, table.schema.columns))
            if not len(values[0]):
                raise InputError("0 sample(s): the table has no rows, while a minimum of 1 is required")
            columns = cls(
                values,
                table.schema if isinstance(given, Table) else None,
                named=True,
                objects=objects,
                inferred=table.has_inferred_types,
            )
            return columns if table.schema.person is None else columns.of_people(table.schema.person)
        from sklearn.utils import check_array

        if (given if hasattr(given, "ndim") else np.asarray(given)).ndim < 2:  # scikit-learn's error would print values
            raise InputError("X must have a row per record and a column per feature", hint="Reshape your data")
        # Infinite numbers are clipped to the bounds, like all others beyond them.
        array = check_array(given, dtype=None, ensure_all_finite=False)
        mixed = array.dtype == object
        values = tuple(column_of(f"x{at}", one.tolist() if mixed else one) for at, one in enumerate(array.T))
        return cls(values, None, named=False, objects=frozenset(one.name for one in values) if mixed else frozenset())


def _names(given: Any) -> Any:
    """Return the names of the columns of a frame; of an array, what is not a name."""
    return getattr(given, "column_names", None) or getattr(given, "columns", [0])


@dataclass(frozen=True)
class Feature:
    """The public description of one column: the bounds of a number, or the domain of a category as texts.

    Examples
    --------
    >>> Feature("age", bounds=(0.0, 120.0)).numbers(pl.Series([30.0, None, 300.0])).tolist()
    [30.0, nan, 120.0]
    >>> Feature("sex", domain=("f", "m")).codes(pl.Series(["m", "f", "other", None])).tolist()
    [1, 0, 2, 2]
    """

    name: str
    bounds: tuple[float, float] | None = None
    domain: tuple[str, ...] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return self.bounds is not None

    def numbers(self, values: pl.Series) -> Floats:
        """Return the numbers, clipped to the bounds; NaN if missing."""
        assert self.bounds is not None
        return np.clip(_numbers(values), *self.bounds)

    def codes(self, values: pl.Series) -> Ints:
        """Return the positions in the domain; its length for values that are missing or not in the domain."""
        assert self.domain is not None
        place = {text: code for code, text in enumerate(self.domain)}
        distinct = values.unique()
        codes = [len(place) if text is None else place.get(text, len(place)) for text in _texts(distinct)]
        found = replace_values(values, distinct, pl.Series(codes, dtype=pl.Int64)).fill_null(len(place))
        return found.to_numpy().astype(np.int64)

    def cells(self, values: pl.Series, most: int) -> Ints:
        """Return the codes of a category, or cell indices between the bounds of a number; the last is for unknown."""
        if not self.is_number:
            return self.codes(values)
        low, high = self.bounds or (0.0, 1.0)
        numbers = self.numbers(values)
        known = ~np.isnan(numbers)
        cells = np.full(len(numbers), most, dtype=np.int64)
        cells[known] = np.minimum((numbers[known] - low) * (most / (high - low)), most - 1).astype(np.int64)
        return cells

    def size(self, most: int) -> int:
        """Return the number of cells, including the one for unknown values."""
        return (most if self.domain is None else len(self.domain)) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return the feature as plain values."""
        public = {"domain": list(self.domain)} if self.domain is not None else {"bounds": list(self.bounds or ())}
        return {"name": self.name, **public}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Feature:
        """Return the feature of a `to_dict`."""
        domain, bounds = plain.get("domain"), plain.get("bounds")
        if domain is not None:
            return cls(str(plain["name"]), domain=tuple(map(str, domain)))
        return cls(str(plain["name"]), bounds=scale_bounds(bounds))


@dataclass(frozen=True)
class Undeclared:
    """A column whose bounds or domain are not declared."""

    name: str
    is_number: bool

    def mechanism(self, epsilon: float, delta: float) -> FindBounds | SelectCategories:
        """Return the mechanism that estimates the bounds or the domain."""
        return FindBounds(epsilon=epsilon) if self.is_number else SelectCategories(epsilon=epsilon, delta=delta)

    def estimate(self, values: pl.Series, how: Mechanism, source: Source) -> Feature:
        """Return noisy bounds or a noisy domain."""
        try:
            if isinstance(how, FindBounds):
                return Feature(self.name, bounds=how.answer(_numbers(values), source))
            assert isinstance(how, SelectCategories)
            domain = how.answer(_texts(values), source)
        except SfumatoError as error:
            raise SfumatoError(
                f"column '{self.name}': {error.message}", hint="declare its bounds in the schema"
            ) from None
        return Feature(self.name, domain=tuple(sorted(map(str, domain))))

    def read(self, values: pl.Series) -> Feature:
        """Return the exact bounds or domain of the data, without privacy."""
        if not self.is_number:
            return Feature(self.name, domain=tuple(sorted({text for text in _texts(values) if text is not None})))
        numbers = _numbers(values)
        numbers = numbers[np.isfinite(numbers)]
        numbers = np.clip(numbers, -_LONGEST / 2, _LONGEST / 2)
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
        return Feature(self.name, bounds=(low, high if high - low >= _SHORTEST else low + max(1.0, abs(low) * 1e-9)))


@dataclass(frozen=True)
class Features:
    """The public description of all columns of a model, which turns records into arrays.

    Examples
    --------
    >>> features = Features((Feature("age", bounds=(0.0, 100.0)), Feature("sex", domain=("f", "m"))))
    >>> people = Columns.of(pl.DataFrame({"age": [25, None], "sex": ["f", "x"]}))
    >>> features.matrix(people).tolist()
    [[-0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    >>> features.matrix(people, knots=3).tolist()
    [[0.5, 0.5, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    >>> features.cells(people, 10).tolist(), features.sizes(10)
    ([[2, 0], [10, 2]], (11, 3))
    """

    features: tuple[Feature, ...]
    named: bool = field(default=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(one.name for one in self.features)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A label for each column of `matrix`."""
        return tuple(
            label
            for one in self.features
            for label in ([one.name] if one.domain is None else [f"{one.name} = {value}" for value in one.domain])
        )

    def matrix(self, columns: Columns, knots: int | None = None) -> Floats:
        """Return a row per record: numbers scaled to [-1, 1] (0 if missing), and one-hot categories.

        With knots, a number gets a column for each of this many equidistant knots between its bounds, and its weights
        on the two knots around it: a linear model of them is piecewise linear in the number (a linear spline).
        """
        parts = []
        for one, values in zip(self.features, columns.values, strict=True):
            if one.domain is None:
                parts.append(_scaled(one, values)[:, None] if knots is None else _weights(one, values, knots))
            else:
                parts.append((one.codes(values)[:, None] == np.arange(len(one.domain))).astype(np.float64))
        return np.concatenate(parts, axis=1)

    def width(self, knots: int | None = None) -> int:
        """Return the number of columns of `matrix`."""
        return sum((knots or 1) if one.domain is None else len(one.domain) for one in self.features)

    def numbers(self, columns: Columns) -> Floats:
        """Return unscaled numbers, clipped to their bounds; the middle of the bounds if missing."""
        for one in self.features:
            if not one.is_number:
                raise ColumnError(f"column '{one.name}' holds categories, but this model is for numbers")
        parts = [one.numbers(values) for one, values in zip(self.features, columns.values, strict=True)]
        return np.where(np.isnan(found := np.stack(parts, axis=1)), self.bounds.mean(axis=0), found)

    @property
    def bounds(self) -> Floats:
        """The lower and the upper bounds of the numbers."""
        return np.array([one.bounds for one in self.features if one.bounds is not None]).reshape(-1, 2).T

    def cells(self, columns: Columns, most: int) -> Ints:
        """Return the cell of each number, out of `most`, and the code of each category; the last is for unknown."""
        parts = [one.cells(values, most) for one, values in zip(self.features, columns.values, strict=True)]
        return np.stack(parts, axis=1)

    def sizes(self, most: int) -> tuple[int, ...]:
        """Return the number of cells of each column, including the one for unknown values."""
        return tuple(one.size(most) for one in self.features)

    def align(self, given: Any, model: str) -> Columns:
        """Return the columns of new records in the order of these features."""
        columns = Columns.of(given)
        if self.named and columns.named:
            by_name = dict(zip(columns.names, columns.values, strict=True))
            missing = [name for name in self.names if name not in by_name]
            if missing:
                raise ColumnError(f"column '{missing[0]}' is missing, but the model was trained with it")
            columns = Columns(tuple(by_name[name] for name in self.names), columns.schema, named=True)
        elif len(columns.values) != len(self.features):
            raise InputError(
                f"X has {len(columns.values)} features, but {model} is expecting {len(self.features)} features as input"
            )
        self._warn(columns)
        return columns

    def _warn(self, columns: Columns) -> None:
        for one, values in zip(self.features, columns.values, strict=True):
            if one.domain is not None:
                unseen = int((one.codes(values) == len(one.domain)).sum()) - values.null_count()
                if unseen > 0:
                    warnings.warn(
                        f"column '{one.name}': {unseen:,} values are not in its domain and count as unknown",
                        UserWarning if one.domain else UnusedColumn,
                        stacklevel=4,
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return the features as plain values."""
        return {"named": self.named, "columns": [one.to_dict() for one in self.features]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Features:
        """Return the features of a `to_dict`."""
        return cls(tuple(map(Feature.from_dict, plain["columns"])), bool(plain["named"]))


def describe(
    columns: Columns, schema: Schema | None, bounds: Any = None, *, private: bool = True
) -> list[Feature | Undeclared]:
    """Return the declared features, and an `Undeclared` for each column whose bounds or domain are not declared.

    Parameters
    ----------
    columns : Columns
    schema : Schema, optional
        By default the one that came with a table. A column with a domain is a category, one with bounds a number.
    bounds : tuple of two numbers or arrays, optional
        The bounds of numbers that the schema does not declare.
    private : bool
        Whether to reject a column of a text file without a declared kind, because one cell can change its type.

    Examples
    --------
    >>> describe(Columns.of([[1.0, 2.0]]), None, bounds=(0, 10))[1]
    Feature(name='x1', bounds=(0.0, 10.0), domain=None)
    """
    known, own = ({one.name: one for one in given.columns} if given else {} for given in (schema, columns.schema))
    known = known or own
    ends = _ends(bounds, len(columns.values))
    features: list[Feature | Undeclared] = []
    unclear: list[str] = []
    for position, values in enumerate(columns.values):
        column = known.get(values.name, Column(name=values.name))
        if column.inferred:  # a kind inferred from the cells is not public
            column = replace(column, kind=Kind.AUTO, inferred=False)
        if column.domain is not None and column.kind is not Kind.NUMBER:
            features.append(Feature(column.name, domain=texts_in(column.domain)))
        elif column.bounds is not None:
            features.append(Feature(column.name, bounds=scale_bounds(column.bounds)))
        elif private and values.name in columns.objects and not _is_declared(column):
            features.append(Undeclared(column.name, is_number=False))
        elif private and not (_is_declared(column) or values.name not in own or _is_declared(own[values.name])):
            unclear.append(column.name)
        elif values.dtype == pl.Boolean and column.kind not in (Kind.NUMBER, Kind.DATE):
            features.append(Feature(column.name, domain=("False", "True")))
        elif not _holds_numbers(column.kind, values.dtype):
            features.append(Undeclared(column.name, is_number=False))
        elif ends is not None:
            features.append(Feature(column.name, bounds=scale_bounds(ends[position])))
        else:
            features.append(Undeclared(column.name, is_number=True))
    if unclear:
        more = f" (nor that of {len(unclear) - 1} more)" if len(unclear) > 1 else ""
        raise SchemaError(
            f"the kind of column '{unclear[0]}' is not declared{more}, and in a text file one cell could change it",
            hint=f"declare it in the schema, or with --numbers '{unclear[0]}' or --categories '{unclear[0]}'; "
            "'sfumato schema' proposes kinds for you to check; columns that name people go to --identifiers",
        )
    return features


def _is_declared(column: Column) -> bool:
    """Return whether the kind of a column is public: declared, or given by the type of its frame."""
    return column.kind is not Kind.AUTO and not column.inferred


def as_read(values: pl.Series) -> pl.Series:
    """Return a column as normalised texts, each cell independently; the type Categorical marks the result.

    Examples
    --------
    >>> as_read(pl.Series([1, None, 2])).to_list(), as_read(pl.Series(["1.0", "x"])).to_list()
    (['1', None, '2'], ['1', 'x'])
    """
    distinct = values.unique()
    return replace_values(values, distinct, pl.Series(_texts(distinct), dtype=pl.Categorical)).rename(values.name)


def as_numbers(values: pl.Series) -> pl.Series:
    """Return a column as numbers, each cell independently; a cell that is not a number becomes missing.

    Examples
    --------
    >>> as_numbers(pl.Series("age", ["30", "unknown"])).to_list()
    [30.0, nan]
    """
    return pl.Series(values.name, _numbers(values))


def _of_declared_kind(values: pl.Series, column: Column) -> pl.Series:
    """Return a column of a text file in the type of its declared kind, whatever type its cells suggest."""
    if not _is_declared(column) or column.role is Role.PERSON:
        return values
    return as_numbers(values) if column.kind is Kind.NUMBER else as_read(values)


def _holds_numbers(kind: Kind, dtype: pl.DataType) -> bool:
    """Return whether a column is numeric; a declared kind takes precedence over the type."""
    if kind in (Kind.NUMBER, Kind.DATE):
        return True
    return kind is not Kind.CATEGORY and (dtype.is_numeric() or dtype.is_temporal())


def scale_bounds(bounds: Any) -> tuple[float, float]:
    """Return declared bounds, or raise an `OptionError` if numbers cannot be scaled by them.

    Examples
    --------
    >>> scale_bounds((0, 120))
    (0.0, 120.0)
    """
    low, high = declared_bounds(bounds)
    if not _SHORTEST <= high - low <= _LONGEST:
        raise OptionError(
            f"the bounds must be at least {_SHORTEST:g} and at most {_LONGEST:g} apart, got ({low:g}, {high:g})"
        )
    return low, high


def column_of(name: str, values: Any) -> pl.Series:
    """Return values as a column; values of different types become texts, each independently.

    Examples
    --------
    >>> column_of("a", [True, None, 2.5, "x"]).to_list()
    ['True', None, '2.5', 'x']
    >>> column_of("a", [1, None, 2.5]).to_list()
    [1.0, None, 2.5]
    """
    if isinstance(values, list):
        kinds = {type(one) for one in values if not is_missing(one)}
        if len(kinds) > 1 and (bool in kinds or not all(issubclass(kind, Real) for kind in kinds)):
            values = [one if is_missing(one) else text_of(one) for one in values]
        values = pl.Series([None if is_missing(one) else one for one in values], strict=False)
    column = pl.Series(name, values)
    if column.dtype.is_nested() or column.dtype == pl.Object:
        raise ColumnError(f"column '{name}' holds lists or objects", hint="only numbers, dates and texts are supported")
    return column


def classes_of(column: Column) -> tuple[Any, ...] | None:
    """Return the declared classes of a target, if any; raise an `InputError` if it is declared as a number.

    Examples
    --------
    >>> classes_of(Column(name="ill", domain=["no", "yes"]))
    ('no', 'yes')
    >>> classes_of(Column(name="age", bounds=(0, 120)))
    Traceback (most recent call last):
        ...
    sfumato.errors.InputError: the target 'age' is a number, not a class (give --regression, regression=True in \
Python, or declare its classes as a domain)
    """
    if column.domain is None and column.bounds is not None:
        raise InputError(
            f"the target '{column.name}' is a number, not a class",
            hint="give --regression, regression=True in Python, or declare its classes as a domain",
        )
    return column.domain


def texts_in(domain: Iterable[Any]) -> tuple[str, ...]:
    """Return the distinct values of a domain as normalised texts, without missing values."""
    known = (canonical_text(text_of(value)) for value in domain if not is_missing(value))
    return tuple(dict.fromkeys(text for text in known if text is not None))


def _ends(bounds: Any, count: int) -> Sequence[tuple[float, float]] | None:
    if bounds is None:
        return None
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (count,)) for end in bounds)
    except (TypeError, ValueError):
        raise OptionError(f"the bounds must be two numbers, or two lists of {count}, got {bounds!r}") from None
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _scaled(feature: Feature, values: pl.Series) -> Floats:
    low, high = feature.bounds or (0.0, 1.0)
    return np.nan_to_num((feature.numbers(values) - low) * (2 / (high - low)) - 1, nan=0.0)


def _weights(feature: Feature, values: pl.Series, knots: int) -> Floats:
    places = (_scaled(feature, values) + 1) * ((knots - 1) / 2)
    known = ~np.isnan(feature.numbers(values))
    return np.clip(1 - np.abs(places[:, None] - np.arange(knots)), 0, 1) * known[:, None]


def _numbers(values: pl.Series) -> Floats:
    """Return a column as numbers, each value independently: NaN if it is not a number, the day number of a date.

    In a text file, one record can turn a column of numbers or dates into texts; the values of others must not change.
    """
    if values.dtype in (pl.Time, pl.Duration):
        values = values.to_physical()
    elif values.dtype.is_temporal():
        values = values.cast(pl.Date, strict=False).to_physical()
    elif values.dtype != pl.Boolean and not values.dtype.is_numeric():
        texts = values.cast(pl.String, strict=False).str.strip_chars()
        texts = texts.replace(["True", "False"], ["1", "0"])  # like a boolean column
        days = texts.str.extract(_DAY).str.to_date("%Y-%m-%d", strict=False).to_physical().cast(pl.Float64)
        values = days.fill_null(texts.cast(pl.Float64, strict=False))
    numbers = values.cast(pl.Float64, strict=False).to_numpy()
    return np.where(np.isnan(numbers), math.nan, numbers)


def _texts(values: pl.Series) -> list[str | None]:
    """Return a column as normalised texts, each value independently."""
    distinct = values.unique()
    read = {
        value: None if value is None or value != value else canonical_text(text_of(value))
        for value in distinct.to_list()
    }
    return [read.get(value) for value in values.to_list()]

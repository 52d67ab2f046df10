"""What is known of the columns of a table before it is read, and what must be bought.

The kind of a column (text, whole number, date, ...) is public: the type of a frame, a Parquet file or a database, or
the kind that the schema declares. Cells never decide it: in a text file one record could. What the schema does not
declare is bought:

- the categories of a text, by noisy counts above a threshold (`SelectCategories`);
- the bounds of a number, by a histogram of magnitudes (powers of two; years for dates) with Gaussian noise (after
  Wilson et al. 2020, whose noise is Laplace's);
- the decimals of a number, by a histogram of how many decimals each value has.

All histograms together are one noisy sum: each record is in one bin of each, so k histograms have norm sqrt(k).
Where people are protected, one row of each person is described.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import SelectCategories, octaves
from sfumato.data.hierarchies.label_paths import is_missing, text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import InputError, SchemaError, SfumatoError
from sfumato.learners.estimators.features import Columns, Feature, as_read, describe, texts_in
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.tables.base import Axis, Records
from sfumato.synthesizers.tables.columns.cells import NARROW
from sfumato.synthesizers.tables.columns.domain import Coding, Domain
from sfumato.synthesizers.tables.columns.kinds import Values, numbers_in, type_of

__all__ = [
    "MOST_DECIMALS",
    "SHARE",
    "WEIGHTS",
    "Described",
    "Description",
    "OfOneRow",
    "declared_ends",
    "most_weight",
    "record_weights",
    "selections",
    "shares",
    "texts_of",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARE = "columns"
"""The name of the noisy sum that describes numbers."""
_FOR_EACH = 0.01  # the worth of each histogram, relative to all other sums,
_LEAST, _MOST = 0.02, 0.25  # and of all of them
_FOR_CATEGORIES = 0.1  # the share of epsilon, and of delta
WEIGHTS = 2**16
"""How many steps a survey weight has, so that sums of weights are exact."""
MOST_DECIMALS = 6
"""Numbers with so many decimals are taken as continuous."""
_FALSE = 1e-5  # the chance that an empty bin of a column seems full
_TOGETHER = 1, 2, 4  # neighbouring bins that may stand out together,
_SEEN = 2.5  # and the deviations of each of them that is not taken as empty
_NEAR = 3.0  # deviations that suffice next to a full bin, where an error costs one bin only
_SURE = 4.0  # deviations above which some values have more decimals
_RARE = 0.01  # the share of values that may have more decimals
_YEARS = (1900, 2101)
_DAY = 86_400.0
_UNITS = {"d": _DAY, "h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True)
class OfOneRow(Share):
    """Sums to which each person adds one row, however many rows other sums read of them."""

    bounds_people: ClassVar[bool] = True


@dataclass(frozen=True)
class Described:
    """What is public of one column.

    Examples
    --------
    >>> paid = Described("paid", Values.REAL, pl.Float64(), bounds=(0.0, 1000.0))
    >>> paid.wants_bounds, paid.wants_step, paid.wants_categories
    (False, True, False)
    """

    name: str
    values: Values
    dtype: pl.DataType | None
    """The type of the frame's column; None if it has none, as in a text file."""
    bounds: tuple[float, float] | None = None
    domain: tuple[str, ...] | None = None
    step: float | None = None

    @property
    def is_number(self) -> bool:
        """Whether it has bounds, not a domain."""
        return self.domain is None and self.values not in (Values.TEXT, Values.TRUTH)

    @property
    def wants_bounds(self) -> bool:
        """Whether bounds must be bought."""
        return self.is_number and self.bounds is None

    @property
    def wants_step(self) -> bool:
        """Whether the number of decimals must be bought."""
        return self.is_number and self.step is None and self.values is Values.REAL

    @property
    def wants_categories(self) -> bool:
        """Whether a domain must be bought."""
        return self.domain is None and not self.is_number

    @property
    def bought(self) -> tuple[str, ...]:
        """What must be bought: domain, bounds or decimals."""
        wanted = {"domain": self.wants_categories, "bounds": self.wants_bounds, "decimals": self.wants_step}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @classmethod
    def before(cls, coding: Coding, bought: Collection[str]) -> Described:
        """Return what was known of a column before something of it was bought.

        Examples
        --------
        >>> age = Coding.of(Feature("age", bounds=(0.0, 99.0)), pl.Int64())
        >>> Described.before(age, ["bounds"]).bought
        ('bounds',)
        """
        feature, dtype = coding.feature, type_of(coding.type, coding.feature.domain) if coding.type else None
        found = cls(
            coding.name,
            coding.values,
            dtype,
            None if "bounds" in bought else feature.bounds,
            None if "domain" in bought else feature.domain,
            None if "decimals" in bought or feature.bounds is None else coding.step,
        )
        if set(found.bought) != set(bought):
            raise InputError(f"column '{coding.name[:40]}' cannot have been bought as stated")
        return found

    def without_purchases(self) -> Described:
        """Return the column with as many decimals as the number of codes allows, if they are not declared."""
        if not self.wants_step or self.bounds is None:
            return self
        return replace(self, step=Coding.of(Feature(self.name, self.bounds), self.dtype, values=self.values).step)

    @property
    def axis(self) -> Axis:
        """The axis of a declared column; for others, the widest that may come."""
        if self.wants_categories:
            return Axis(self.name, 2, ordered=False)
        if self.wants_bounds or self.wants_step:
            return Axis(self.name, 2 * NARROW + 1, ordered=True)
        return self.coding().axis

    def coding(self) -> Coding:
        """Return the coding of a column that is declared or bought."""
        feature = Feature(self.name, domain=self.domain) if self.bounds is None else Feature(self.name, self.bounds)
        return Coding.of(feature, self.dtype, values=self.values, step=self.step)

    @property
    def edges(self) -> Floats:
        """The edges of the bins of the histogram of magnitudes."""
        if self.values not in (Values.DATE, Values.MOMENT):
            found: Floats = octaves()
            return found
        days = np.array([date(year, 1, 1).toordinal() - _EPOCH for year in range(*_YEARS)], dtype=np.float64)
        return days if self.values is Values.DATE else days * _DAY

    def histograms(self, values: pl.Series, counts: Floats | None = None) -> list[Floats]:
        """Return the histograms that the column wants, the one of magnitudes first; its last bin is for missing values.

        ``counts`` says how often each value occurs; by default once.
        """
        numbers, found = numbers_in(values, self.values), []
        known = ~np.isnan(numbers)
        if self.wants_bounds:
            edges = self.edges
            at = np.searchsorted(edges, np.clip(numbers, edges[0], edges[-1]), "right") - 1
            at = np.where(known, np.minimum(at, len(edges) - 2), len(edges) - 1)
            found.append(np.bincount(at, counts, minlength=len(edges)).astype(np.float64))
        if self.wants_step:
            some = known & np.isfinite(numbers)
            often = None if counts is None else counts[some]
            found.append(np.bincount(_decimals(numbers[some]), often, minlength=MOST_DECIMALS + 1).astype(np.float64))
        return found

    def estimated(self, noisy: list[Floats], deviation: float) -> Described:
        """Return the column with bounds and decimals from its noisy histograms."""
        step, bounds = self.step, self.bounds
        if self.wants_step:
            step = _step_of(noisy[-1], deviation)
        if self.wants_bounds:
            ends = _enclose(noisy[0], self.edges, deviation)
            if ends is None:
                raise SfumatoError(
                    f"column '{self.name}': no bounds were found above the noise",
                    hint=f"there are too few values for this epsilon. {self._remedy}",
                )
            bounds = self._within(ends, step)
        elif step is not None and bounds is not None and math.floor(bounds[1] / step) < math.ceil(bounds[0] / step):
            step = None  # the bounds are closer than that
        return Described(self.name, self.values, self.dtype, bounds, self.domain, step)

    @property
    def _remedy(self) -> str:
        """What to do if its bounds are lost in the noise."""
        dated = self.values in (Values.DATE, Values.MOMENT)
        return f"Declare the bounds in the schema{', as two dates' if dated else ''}"

    def _within(self, ends: tuple[float, float], step: float | None) -> tuple[float, float]:
        """Return the first and the last multiple of the step in a half-open interval, in the range of the type."""
        low, high = ends
        unit = step or self.values.finest
        if unit:
            low = math.ceil(low / unit - 1e-9) * unit
            high = max(low, (math.ceil(high / unit - 1e-9) - 1) * unit)
        if self.dtype is not None and self.dtype.is_integer():
            limits = [int(pl.select(one).item()) for one in (self.dtype.min(), self.dtype.max())]  # type: ignore[attr-defined]
            low, high = (min(max(one, limits[0]), limits[1]) for one in (low, high))
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Description:
    """The columns of a table, and what is public of each.

    Examples
    --------
    >>> people = pl.DataFrame({"age": [30, 41] * 500, "sex": ["f", "m"] * 500, "paid": [1.5, None] * 500})
    >>> described = Description.of(people, Schema([Column(name="age", bounds=(0, 99))]))
    >>> [one.name for one in described.described if one.wants_bounds or one.wants_categories]
    ['sex', 'paid']
    >>> sums = NoisySums(shares(described.described, 1.0), 2.0, Source(insecure_seed=1))
    >>> found = described.estimate(selections(described.described, 1.0, 1e-5), sums, Source(insecure_seed=2))
    >>> [one.axis.size for one in found]
    [101, 3, 11]
    """

    columns: Columns
    described: tuple[Described, ...]
    scans: ClassVar[bool] = True
    """Whether the records can be read, not only counted."""

    @classmethod
    def of(cls, table: Any, schema: Schema | None = None, *, buy_decimals: bool = True) -> Description:
        """Describe the columns of a table or frame.

        Identifiers are described as texts: they need no declared kind, and must be left out.
        """
        given = Table.of(table, schema=schema)  # a text file is read as the schema declares
        return cls.of_columns(_typed(Columns.of(given), given), buy_decimals=buy_decimals)

    @classmethod
    def of_columns(cls, columns: Columns, *, buy_decimals: bool = True) -> Description:
        """Describe columns by their types and their schema."""
        declared = columns.schema or Schema([])
        public = describe(
            columns, Schema(map(_describable, declared.columns))
        )  # refuses undeclared kinds of text files
        known = {one.name: one for one in declared.columns}
        described = tuple(
            _describe(values, known[values.name], one, columns)
            for values, one in zip(columns.values, public, strict=True)
        )
        return Description(columns, described if buy_decimals else tuple(one.without_purchases() for one in described))

    def without(self, names: Collection[str]) -> Description:
        """Return the description without some columns, such as those that are computed."""
        left = [at for at, one in enumerate(self.described) if one.name not in names]
        if not left:
            raise InputError("no column of the table is left to be learned")
        values = tuple(self.columns.values[at] for at in left)
        described = tuple(self.described[at] for at in left)
        return replace(self, columns=replace(self.columns, values=values), described=described)

    def only(self, rows: Ints) -> Description:
        """Return the description of the records at some positions, in order."""
        if len(rows) == self.rows:
            return self
        values = tuple(one.gather(rows) for one in self.columns.values)
        return replace(self, columns=replace(self.columns, values=values))

    @property
    def axes(self) -> list[Axis]:
        """What is known of the columns beforehand."""
        return [one.axis for one in self.described]

    def estimate(self, chosen: Mapping[str, SelectCategories], sums: NoisySums, source: Source) -> tuple[Coding, ...]:
        """Buy what is not declared, and return the codings of the columns."""
        exact = self._exact_histograms()
        flat = [one for part in exact for one in part]
        noisy = iter(self._noisy(flat, sums))
        found = []
        for one, part in zip(self.described, exact, strict=True):
            if one.name in chosen:
                domain = tuple(sorted(map(str, chosen[one.name].select(self._text_counts(one.name), source))))
                one = Described(one.name, one.values, one.dtype, domain=domain)
            elif part:
                one = one.estimated([next(noisy) for _ in part], sums.deviation_of(SHARE, self._norm))
            found.append(one.coding())
        return tuple(found)

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.columns.rows

    def values(self, name: str) -> pl.Series:
        """Return the values of a column."""
        return self.columns.values[self.columns.names.index(name)]

    def records(self, domain: Domain, weights: Any = None) -> Records:
        """Return the records as codes."""
        return domain.encode_each(self.values, weights)

    def weights(self, name: str) -> Any:
        """Return a column of survey weights, as `records` takes them; see `record_weights`."""
        return record_weights(self.values(name), self._declared(name))

    def _declared(self, name: str) -> Column:
        return (self.columns.schema or Schema([]))[name]

    def _exact_histograms(self) -> list[list[Floats]]:
        """Return the histograms that each column wants."""
        return [
            one.histograms(self.values(one.name)) if one.wants_bounds or one.wants_step else []
            for one in self.described
        ]

    def _text_counts(self, name: str) -> Mapping[Any, int]:
        """Return how often each text of a column occurs."""
        texts = texts_of(self.values(name), self.described[self.columns.names.index(name)].dtype)
        return Counter(text for text in texts if text is not None)

    @property
    def _norm(self) -> float:
        return math.sqrt(sum(one.wants_bounds + one.wants_step for one in self.described))

    def _noisy(self, exact: list[Floats], sums: NoisySums) -> list[Floats]:
        if not exact:
            return []
        flat = sums(SHARE, np.concatenate(exact), norm=self._norm)
        return np.split(flat, np.cumsum([len(one) for one in exact])[:-1])


def shares(described: Sequence[Described], others: float) -> dict[str, Share]:
    """Return the noisy sum that describes numbers, relative to the worth of all other sums.

    Its worth grows with the number of histograms, so that the noise on each stays the same up to a limit.

    Examples
    --------
    >>> shares([Described("age", Values.WHOLE, pl.Int64(), step=1.0)], 1.0)
    {'columns': OfOneRow(times=1, worth=0.02)}
    """
    wanted = sum(one.wants_bounds + one.wants_step for one in described)
    return {SHARE: OfOneRow(1, min(max(_FOR_EACH * wanted, _LEAST), _MOST) * others)} if wanted else {}


def selections(described: Sequence[Described], epsilon: float, delta: float) -> dict[str, SelectCategories]:
    """Return the mechanisms that select categories, by the name of the column.

    Examples
    --------
    >>> [one.epsilon for one in selections([Described("job", Values.TEXT, pl.String())], 1.0, 1e-5).values()]
    [0.1]
    """
    wanted = [one.name for one in described if one.wants_categories]
    each = _FOR_CATEGORIES / max(len(wanted), 1)
    return {name: SelectCategories(epsilon=each * epsilon, delta=each * delta) for name in wanted}


def record_weights(values: pl.Series, column: Column) -> Floats:
    """Return survey weights relative to their declared upper bound, so that no record counts more than 1.

    Missing and negative weights count 0. The weights are on a grid on which their sums are exact.

    Examples
    --------
    >>> record_weights(pl.Series("w", [50, 200, None]), Column(name="w", bounds=(0, 100))).tolist()
    [0.5, 1.0, 0.0]
    """
    most = most_weight(column)
    steps = np.rint(np.clip(numbers_in(values, Values.REAL), 0.0, most) / (most / WEIGHTS))
    return np.nan_to_num(steps, nan=0.0) / WEIGHTS


def most_weight(column: Column) -> float:
    """Return the declared upper bound of survey weights."""
    if column.bounds is None or not column.bounds[1] > 0:
        raise SchemaError(
            f"the weights '{column.name}' need a declared upper bound above 0",
            hint="declare the bounds of the column in the schema: without them, one record could count for all",
        )
    return column.bounds[1]


_EPOCH = date(1970, 1, 1).toordinal()
_TYPED_TEXTS = (pl.String, pl.Categorical, pl.Enum)


def _typed(columns: Columns, table: Table) -> Columns:
    """Return columns of pandas' categories as such; their values are texts."""
    if table.is_lazy or not table.implementation.is_pandas():
        return columns
    values = (
        one.cast(pl.Categorical) if str(table.frame[one.name].dtype) == "category" and one.dtype == pl.String else one
        for one in columns.values
    )
    return replace(columns, values=tuple(values))


def _describable(column: Column) -> Column:
    """Return a column that a model can describe: identifiers are texts, and bounds are not equal."""
    if column.role.is_identifier:
        return Column(name=column.name, kind=Kind.TEXT)
    if column.bounds is None or column.bounds[0] < column.bounds[1]:
        return column
    return replace(column, bounds=(column.bounds[0], column.bounds[0] + 1 + abs(column.bounds[0])))


def _describe(values: pl.Series, column: Column, public: Any, columns: Columns) -> Described:
    """Return what is public of a column, given its type, its declared kind, and what a model would know of it."""
    name = values.name
    typed = not columns.inferred and name not in columns.objects
    dtype = values.dtype if typed else None
    kind = Values.of(dtype) if dtype is not None else Values.TEXT
    step = column.step
    if column.domain is not None:
        domain = texts_in(column.domain)
        if dtype is not None and dtype in _TYPED_TEXTS:
            domain = tuple(dict.fromkeys(text_of(one) for one in column.domain if not is_missing(one)))
        return Described(name, kind, dtype, domain=domain)
    if kind is Values.TRUTH and isinstance(public, Feature) and public.domain is not None:
        return Described(name, kind, dtype, domain=public.domain)
    if not (public.is_number or kind is Values.TIME):  # the values of numbers declared as categories are to be found
        return Described(name, Values.TEXT if kind in (Values.WHOLE, Values.REAL) else kind, dtype)
    if kind in (Values.TEXT, Values.TRUTH):
        kind = Values.DATE if column.kind is Kind.DATE else Values.REAL
    if dtype is None and kind is Values.DATE and isinstance(step, str) and not step.endswith("d"):
        kind = Values.MOMENT
    bounds = declared_ends(column, kind) or ((0.0, _DAY - 1) if kind is Values.TIME else None)
    return Described(name, kind, dtype, bounds=bounds, step=_declared_step(name, step, kind, dtype))


def declared_ends(column: Column, kind: Values) -> tuple[float, float] | None:
    """Return the declared bounds of a column as numbers: days since 1970 for dates, seconds for times on days.

    Examples
    --------
    >>> declared_ends(Column(name="seen", bounds=("1970-01-02", "1970-01-31")), Values.DATE)
    (1.0, 30.0)
    """
    if column.dates is None:
        return column.bounds
    first, last = (one.toordinal() - _EPOCH for one in column.dates)
    if kind is Values.MOMENT:
        return first * _DAY, (last + 1) * _DAY - 1
    if kind is not Values.DATE:
        raise SchemaError(f"the bounds of column '{column.name}' are dates, but its values are none")
    return float(first), float(last)


def _declared_step(name: str, step: float | str | None, kind: Values, dtype: pl.DataType | None) -> float | None:
    """Return the declared step in the unit of a kind: days for dates, seconds for times."""
    if step is None:
        return 10.0**-dtype.scale if isinstance(dtype, pl.Decimal) else kind.finest or None
    timed = kind.is_clock or kind is Values.DATE
    if isinstance(step, str) != timed:
        wanted = "a text such as 1d, 15m or 1s" if timed else "a number"
        raise SchemaError(f"the step of column '{name}', a {kind.value}, must be {wanted}, got {step!r}")
    found = float(step) if not isinstance(step, str) else int(step[:-1]) * _UNITS[step[-1]]
    found = found / _DAY if kind is Values.DATE else found
    if kind is Values.WHOLE and found != int(found):
        raise SchemaError(f"column '{name}' holds whole numbers, but its step is {found:g}")
    return found


def texts_of(values: pl.Series, dtype: pl.DataType | None) -> list[str | None]:
    """Return texts as they are in a column of a type of texts, and else normalised, each independently."""
    if dtype is not None and dtype in _TYPED_TEXTS:
        return values.cast(pl.String).to_list()
    return [None] * len(values) if values.dtype == pl.Null else as_read(values).cast(pl.String).to_list()


def _decimals(numbers: Floats) -> NDArray[np.intp]:
    """Return how many decimals each number has, at most a limit."""
    found = np.full(len(numbers), MOST_DECIMALS, dtype=np.intp)
    small = np.where(np.abs(numbers) < 2.0**53, numbers, 0.0)  # larger floats are whole numbers
    for digits in reversed(range(MOST_DECIMALS)):
        scaled = small * 10.0**digits
        found[np.abs(scaled - np.rint(scaled)) <= 1e-9 + 4 * np.finfo(float).eps * np.abs(scaled)] = digits
    return found


def _step_of(noisy: Floats, deviation: float) -> float | None:
    """Return the step of the fewest decimals that nearly all numbers have; None if they are continuous."""
    more = np.append(np.cumsum(noisy[::-1])[::-1][1:], 0.0)  # with more decimals than this
    bins = np.arange(len(noisy) - 1, -1, -1)
    few = more <= _RARE * max(noisy.sum(), 0.0) + _SURE * deviation * np.sqrt(bins)
    digits = int(np.argmax(few))
    return None if digits == MOST_DECIMALS else 1 / 10**digits


def _enclose(noisy: Floats, edges: Floats, deviation: float) -> tuple[float, float] | None:
    """Return edges around the bins that stand out from the noise; the last bin counts missing values.

    Values that spread over many magnitudes fill none of them: bins stand out alone, or two or four neighbours together,
    of which the outer ones are left out again if they seem empty. A column in which only missing values stand out has
    the bounds 0 and 1; None if nothing does.
    """
    from scipy.special import ndtri

    counts = noisy[:-1]
    clear = deviation * float(ndtri(1 - _FALSE / (len(_TOGETHER) * len(noisy))))
    up = np.concatenate([[0.0], np.cumsum(counts)])
    full: list[int] = []
    for width in _TOGETHER:
        for at in np.flatnonzero(up[width:] - up[:-width] > max(clear * math.sqrt(width), 0.5)):
            seen = at + np.flatnonzero(counts[at : at + width] > max(_SEEN * deviation, 0.5))
            full += seen.tolist()
    if not full:
        return (0.0, 1.0) if noisy[-1] > max(clear, 0.5) else None
    first, last = min(full), max(full)
    near = max(_NEAR * deviation, 0.5)
    while first > 0 and counts[first - 1] > near:
        first -= 1
    while last < len(counts) - 1 and counts[last + 1] > near:
        last += 1
    return float(edges[first]), float(edges[last + 1])

"""Masking: columns are perturbed one by one, by the classical methods of statistical offices.

These methods make it harder to recognise a person, or to be sure of a value. None of them guarantees
anything: they promise no k, and they are not differential privacy. What they did is said beside the result.
"""

from __future__ import annotations

import math
import numbers
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.sanitize import sanitize
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.engines.released_schema import declared_schema, restrict_domains
from sfumato.errors import ColumnError, OptionError, did_you_mean
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.universe import as_floats
from sfumato.measures.released_table import ReleasedTable

__all__ = ["Mask", "MaskedTable", "NoiseAddition", "Pram", "RankSwap", "TopBottomCode", "mask", "run_recipe"]

NOTE = (
    "These columns were perturbed. That carries no guarantee: no k-anonymity or any of its relatives, and no "
    "differential privacy. Measure what is released with assess, and do not call it anonymous because of this."
)
_SEEDED = " The seed was given: whoever knows it can undo much of it."
_TRIES = 64  # draws for a free partner before all of them are listed

Random = np.random.Generator


class Mask(ABC):
    """A way to perturb columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it changes."""

    @abstractmethod
    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame like the table's, with the columns perturbed."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return what was done as plain values."""


@dataclass(frozen=True)
class TopBottomCode(Mask):
    """Replace what lies beyond a bound by the bound, so that the extremes do not stand out.

    Parameters
    ----------
    column : str
        A column of numbers or dates.
    low, high : number, date or str, optional
        Values below `low` become `low`, those above `high` become `high`. A date may be written as 2024-05-31.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"age": [3, 40, 97, None]})
    >>> sf.mask(people, [sf.masking.TopBottomCode("age", low=18, high=90)]).table.frame["age"].to_list()
    [18, 40, 90, None]
    """

    column: str
    low: Any = None
    high: Any = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise OptionError(f"column '{self.column}' is to be top or bottom coded, but no bound is given")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that it changes."""
        return (self.column,)

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with the bounds in place of what lies beyond them."""
        values = table.column(self.column)
        if not (values.dtype.is_numeric() or isinstance(values.dtype, pl.Date | pl.Datetime)):
            raise ColumnError(f"column '{self.column}' holds neither numbers nor dates, which have no top and bottom")
        low, high = (_bound(bound, values, self.column) for bound in (self.low, self.high))
        if low is not None and high is not None and low > high:
            raise OptionError(f"the bottom of column '{self.column}' lies above its top")
        return _with(table, [values.clip(low, high)])

    def to_dict(self) -> dict[str, Any]:
        """Return the bounds as plain values."""
        plain = {name: _plain(bound) for name, bound in (("low", self.low), ("high", self.high)) if bound is not None}
        return {"method": "top and bottom coding", "columns": [self.column], **plain}


@dataclass(frozen=True)
class Pram(Mask):
    """Keep a value with some probability, and otherwise draw one from the column's own distribution.

    The post-randomisation method (Gouweleeuw, Kooiman, Willenborg, de Wolf 1998) with the transition matrix
    ``keep * I + (1 - keep) * 1 p'``, where p are the shares of the values in the column. The matrix is
    invariant, ``p' P = p'``: the expected share of every value is the true one, and tables of the
    released column need no correction. What belongs together across columns becomes weaker.

    Parameters
    ----------
    column : str
    keep : float
        The probability that a value is not drawn anew; one that is drawn anew may come out the same.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"sex": ["f", "m", None, "m"]})
    >>> sf.mask(people, [sf.masking.Pram("sex", keep=1)]).table.frame["sex"].to_list()
    ['f', 'm', None, 'm']
    """

    column: str
    keep: float = 0.8

    def __post_init__(self) -> None:
        _number(self.keep, "the probability to keep a value", 0, 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that it changes."""
        return (self.column,)

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with values drawn anew from the column, where it came to that."""
        codes, known = _codes(table, self.column)
        drawn = codes[known]
        anew = np.flatnonzero(random.random(len(known)) >= self.keep)
        if len(anew):
            drawn[anew] = codes[known[random.integers(0, len(known), len(anew))]]  # rows are drawn by their shares
        return _decoded(table, self.column, known, drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return the probability as plain values."""
        return {"method": "post-randomisation", "columns": [self.column], "keep": float(self.keep)}


@dataclass(frozen=True)
class RankSwap(Mask):
    """Swap each value with one that is near in rank (Moore 1996).

    The values are sorted, those that are equal at random. From the first on, each that was not swapped yet is swapped
    with one drawn from those not swapped yet whose rank is greater by at most so many percent of the
    rows. The column keeps exactly its values, and no value moves further than that; what belongs
    together across columns becomes weaker.

    Parameters
    ----------
    column : str
        A column of numbers, dates or ordinals.
    percent : float
        How far apart in rank two values may be that are swapped, in percent of the rows; at least by one rank.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"income": [10, 20, 30, 40]})
    >>> sf.mask(people, [sf.masking.RankSwap("income", percent=25)]).table.frame["income"].to_list()
    [20, 10, 40, 30]
    """

    column: str
    percent: float = 5

    def __post_init__(self) -> None:
        _number(self.percent, "the percentage of rank swapping", 0, 100)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that it changes."""
        return (self.column,)

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with swapped values."""
        codes, known = _codes(table, self.column, ordered=True)
        ranked = known[np.lexsort((random.random(len(known)), codes[known]))]
        window = max(math.floor(self.percent / 100 * len(ranked) + 1e-9), 1)
        return _decoded(table, self.column, ranked, codes[ranked[_partners(len(ranked), window, random)]])

    def to_dict(self) -> dict[str, Any]:
        """Return the window as plain values."""
        return {"method": "rank swapping", "columns": [self.column], "percent": float(self.percent)}


@dataclass(frozen=True)
class NoiseAddition(Mask):
    """Add normal noise to numbers, in units of their standard deviation.

    Whole numbers stay whole, and the public bounds of the schema are kept. Without them values may leave the
    range that they had: top and bottom code them after.

    Parameters
    ----------
    column : str or sequence of str
        One or several columns of numbers.
    scale : float
        The standard deviation of the noise, in units of that of the column.
    correlated : bool
        Whether the noise of several columns has the correlations of the columns, so that those
        stay as they are (Kim 1986); otherwise it is drawn for each column alone, and correlations become weaker.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"income": [1000, 2000, 3000, None]})
    >>> noisy = sf.mask(people, [sf.masking.NoiseAddition("income", scale=0.1)], seed=1).table.frame["income"]
    >>> noisy.dtype, noisy.null_count(), noisy.equals(people["income"])
    (Int64, 1, False)
    """

    column: str | Sequence[str]
    scale: float = 0.1
    correlated: bool = False

    def __post_init__(self) -> None:
        _number(self.scale, "the scale of noise", 0)
        if self.correlated and len(self.columns) < 2:
            raise OptionError(
                f"correlated noise is for several columns, got '{self.columns[0] if self.columns else ''}' alone",
                hint="name them together, or leave correlated out",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it changes."""
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with noise added."""
        series = [table.column(name) for name in self.columns]
        for one in series:
            if not one.dtype.is_numeric():
                raise ColumnError(f"column '{one.name}' does not hold numbers, to which noise could be added")
        values = np.column_stack([as_floats(one).fill_null(np.nan).to_numpy() for one in series])
        if np.isinf(values).any():
            raise ColumnError("infinite numbers have no standard deviation", hint="top and bottom code them first")
        noise = random.standard_normal(values.shape) @ self._root(values).T
        noisy = zip(series, (values + noise).T, strict=True)
        return _with(table, [_noisy(one, column, table.schema[one.name]) for one, column in noisy])

    def _root(self, values: Floats) -> Floats:
        """Return A such that A z has the covariance of the noise for independent standard normal z."""
        if not self.correlated:
            known = [column[~np.isnan(column)] for column in values.T]
            return np.diag([self.scale * (float(column.std()) if len(column) else 0.0) for column in known])
        complete = values[~np.isnan(values).any(axis=1)]
        if len(complete) < 2:
            raise ColumnError("correlated noise needs at least two rows in which no column is missing")
        spread, axes = np.linalg.eigh(np.cov(complete.T, bias=True))
        return np.asarray(self.scale * axes * np.sqrt(np.maximum(spread, 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """Return the scale as plain values."""
        return {
            "method": "correlated noise" if self.correlated else "noise",
            "columns": list(self.columns),
            "scale": float(self.scale),
        }


@dataclass(frozen=True, eq=False, repr=False)
class MaskedTable(ReleasedTable):
    """A masked table, what was done to it, and what that does not promise.

    Examples
    --------
    >>> import sfumato as sf
    >>> masked = sf.mask("patients.csv", [sf.masking.TopBottomCode("age", high=40)])
    >>> masked.table.rows, masked.methods[0].columns
    (8, ('age',))
    >>> masked.note[:60]
    'These columns were perturbed. That carries no guarantee: no '
    """

    _told: ClassVar[tuple[str, ...]] = ("rows", "methods")

    methods: tuple[Mask, ...]
    note: str
    """What was not promised, in words: there is no guarantee."""
    seeded: bool
    """Whether the random numbers came from a seed that was given; the seed itself is not kept."""

    def described(self) -> dict[str, str]:
        """Say for each column how it was masked."""
        found: dict[str, str] = {}
        for method in self.methods:
            done = method.to_dict()
            named, columns = done.pop("method"), done.pop("columns")
            text = ", ".join([str(named), *(f"{name} {value}" for name, value in done.items() if value is not None)])
            found |= {name: f"{found[name]}; {text}" if name in found else text for name in columns}
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all but the table as plain values."""
        return {
            "rows": self.rows,
            "methods": [method.to_dict() for method in self.methods],
            "guarantees": [],
            "note": self.note,
            "seeded": self.seeded,
        }


def mask(
    data: Any, methods: Sequence[Mask], *, seed: int | None = None, schema: Schema | str | Path | None = None
) -> Release:
    """Perturb columns of a table, one method after the other, without any guarantee.

    The kind of frame, the order of the rows and the types of the columns are kept, and missing values stay missing. The
    index of a pandas frame and categories that no row has do not come out. Rows that are elsewhere (a file, a database,
    DuckDB, Spark) are fetched, and come out as a Polars frame.

    Parameters
    ----------
    data : Table, frame or path
    methods : sequence of TopBottomCode, Pram, RankSwap or NoiseAddition
        What is done, in this order.
    seed : int, optional
        Makes the random numbers reproducible. Keep it as safe as the table: whoever knows it can undo much of
        the perturbation. By default they come from the operating system's entropy.
    schema : Schema or path, optional

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [31, 97, 45], "income": [10.0, 20.0, 30.0]})
    >>> from sfumato.masking import NoiseAddition, TopBottomCode
    >>> masked = sf.mask(people, [TopBottomCode("age", high=90), NoiseAddition("income", scale=0.2)])
    >>> masked.table.frame["age"].tolist(), masked.to_dict()["guarantees"]
    ([31, 90, 45], [])
    """
    table = Table.of(data, schema=schema)
    origin = table.origin
    if isinstance(methods, Mask) or not all(isinstance(one, Mask) for one in methods):
        raise OptionError("the methods must be a list such as [TopBottomCode('age', high=90), Pram('sex')]")
    if not methods:
        raise OptionError("no method is given", hint="for example TopBottomCode('age', high=90)")
    if seed is not None and (not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or seed < 0):
        raise OptionError(f"the seed must be a whole number of at least 0, got {seed!r}")
    for name in (name for one in methods for name in one.columns):
        if name not in table.schema.names:
            raise ColumnError(f"there is no column '{name}'", hint=did_you_mean(name, table.schema.names))
    if table.is_lazy:
        table = Table(
            pl.DataFrame([table.column(name).alias(name) for name in table.schema.names]),
            table.schema,
            layout=table.layout,
        )
    random = np.random.default_rng(secrets.randbits(128) if seed is None else int(seed))
    for one in methods:
        table = Table(one.apply(table, random), table.schema, layout=table.layout)
    rows = sanitize(table.frame)
    table = Table(rows, restrict_domains(table.schema, table, rows), layout=table.layout)
    note = NOTE if seed is None else NOTE + _SEEDED
    parameters = {"masks": [one.to_dict() for one in methods], "seeded": seed is not None}
    options = {"method": "mask", "parameters": parameters, "guarantees": [], "keep_order": True}
    return Release(
        artifact=MaskedTable(table, None, methods=tuple(methods), note=note, seeded=seed is not None),
        method="mask",
        parameters=parameters,
        recipe=Recipe("mask", options, declared_schema(table)),
        provenance=Provenance.of(origin, table.rows, order="kept"),
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Mask a table as a recipe says; random numbers are drawn anew."""
    if data is None:
        raise OptionError("a recipe of mask does not name its data", hint="give the table")
    kinds: dict[Any, Any] = {
        "top and bottom coding": TopBottomCode,
        "post-randomisation": Pram,
        "rank swapping": RankSwap,
        "noise": NoiseAddition,
        "correlated noise": partial(NoiseAddition, correlated=True),
    }
    try:
        masks = [dict(one) for one in recipe.options["parameters"]["masks"]]
        methods = [kinds[one.pop("method")](_alone(one.pop("columns")), **one) for one in masks]
    except (KeyError, TypeError, ValueError):
        raise OptionError("the recipe does not describe masks", hint="'sfumato mask -o FOLDER' writes one") from None
    return mask(data, methods, schema=recipe.schema, **options)


def _alone(columns: Sequence[str]) -> str | Sequence[str]:
    return columns[0] if len(columns) == 1 else columns


def _codes(table: Table, name: str, *, ordered: bool = False) -> tuple[NDArray[np.int32], Ints]:
    """Return the code of each row of a column, and the rows in which it is not missing."""
    encoded = table.encode([name])
    domain = encoded.domains[0]
    if ordered and not domain.column.kind.is_ordered:
        raise ColumnError(
            f"column '{name}' holds {domain.column.kind.value} values, which have no ranks to swap by",
            hint="use Pram, or give the column an order in the schema",
        )
    codes = encoded.values[:, 0]
    return codes, np.flatnonzero(codes < len(domain) - (domain.missing is not None))


def _decoded(table: Table, name: str, rows: Ints, codes: NDArray[np.int32]) -> Any:
    """Return a frame in which some rows of a column have the values of these codes."""
    encoded = table.encode([name])
    values = encoded.values.copy()
    values[rows, 0] = codes
    return table.decode(replace(encoded, values=values))


def _partners(number: int, window: int, random: Random) -> list[int]:
    """Return with which rank each rank is swapped, at most a window away; the last may keep their own."""
    partner, free = list(range(number)), bytearray(b"\1") * number
    for rank in range(number - 1):
        if not free[rank]:
            continue
        span = min(window, number - 1 - rank)
        for _ in range(_TRIES):
            other = rank + 1 + int(random.random() * span)
            if free[other]:
                break
        else:
            others = [other for other in range(rank + 1, rank + 1 + span) if free[other]]
            if not others:
                continue
            other = others[int(random.random() * len(others))]
        partner[rank], partner[other] = other, rank
        free[rank] = free[other] = False
    return partner


def _noisy(original: pl.Series, values: Floats, column: Column) -> pl.Series:
    """Return numbers in the type of the column, within its public bounds and what the type can hold."""
    dtype = original.dtype
    low, high = column.bounds or (-math.inf, math.inf)
    if dtype.is_integer():
        can = np.iinfo(np.int64 if dtype == pl.Int128 else str(dtype).lower())
        # The float next to the largest number of 64 bits is too large for it.
        low, high = max(low, float(can.min)), min(high, float(np.nextafter(float(can.max), 0.0)))
        values = np.rint(np.clip(values, low, high))
        return pl.Series(original.name, values).fill_nan(None).cast(dtype)
    noisy = pl.Series(original.name, np.clip(values, low, high))
    return (noisy if dtype.is_float() else noisy.fill_nan(None)).set(original.is_null(), None).cast(dtype)


def _with(table: Table, columns: Sequence[pl.Series]) -> Any:
    """Return a frame like the table's with some columns replaced; each keeps the type that it has there."""
    frame = table.with_columns(columns)
    if table.implementation.is_pandas():
        types = {one.name: table.frame[one.name].dtype for one in columns}
        objects = {one.name: one.to_list() for one in columns if types[one.name].kind == "O"}  # Python's own dates
        return frame.assign(**objects).astype(types)
    if table.implementation.is_pyarrow():
        return frame.cast(table.frame.schema)
    return frame


def _bound(bound: Any, values: pl.Series, name: str) -> Any:
    """Return a bound in the type of the column."""
    if bound is None:
        return None
    dtype = values.dtype
    try:
        if isinstance(dtype, pl.Date | pl.Datetime):
            moment = datetime.fromisoformat(bound) if isinstance(bound, str) else bound
            if not isinstance(moment, date):
                raise TypeError
            zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
            typed = pl.Series([moment]).cast(pl.Datetime("us"))
            return (typed.dt.replace_time_zone(zone) if zone else typed).cast(dtype)[0]
        number = float(bound) if isinstance(bound, str) else bound
        if isinstance(number, bool) or not isinstance(number, numbers.Real) or not math.isfinite(number):
            raise TypeError
        if dtype.is_integer() and number != math.floor(number):
            raise TypeError
        return pl.Series([math.floor(number) if dtype.is_integer() else float(number)]).cast(dtype)[0]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        kind = "a date" if dtype.is_temporal() else "a whole number" if dtype.is_integer() else "a number"
        raise OptionError(f"the bound of column '{name}' must be {kind} that it can hold, got {bound!r}") from None


def _number(value: Any, what: str, low: float, high: float = math.inf) -> None:
    """Refuse what is no number of a range."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not low <= value <= high or value == math.inf:
        span = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
        raise OptionError(f"{what} must be a number {span}, got {value!r}")


def _plain(bound: Any) -> Any:
    return bound if isinstance(bound, int | float | str) else str(bound)

"""Masking: perturb single columns by the classical methods of statistical disclosure control.

These methods make it harder to recognize a person or to be certain of a value. They carry no guarantee, neither
k-anonymity nor differential privacy. The result records the methods that were applied.
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
from sfumato.data.validate import real, whole
from sfumato.engines.released_schema import declared_schema, restrict_domains
from sfumato.errors import ColumnError, OptionError, did_you_mean
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.universe import as_floats
from sfumato.measures.released_table import ReleasedTable

__all__ = ["Mask", "MaskedTable", "NoiseAddition", "Pram", "RankSwap", "TopBottomCode", "mask", "run_recipe"]

NOTE = (
    "These columns were perturbed. That carries no guarantee: no k-anonymity or related model, and no "
    "differential privacy. Measure the released table with assess, and do not call it anonymous because of masking."
)
_SEEDED = " The seed was given: anyone who knows it can undo much of the perturbation."
_TRIES = 64  # random draws for a free partner before all partners are listed

Random = np.random.Generator


class Mask(ABC):
    """A method that perturbs columns."""

    column: str | Sequence[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the method changes."""
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    @abstractmethod
    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame like the table's, with the columns perturbed."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the method and its parameters as plain values."""


@dataclass(frozen=True)
class TopBottomCode(Mask):
    """Replace values beyond a bound by the bound, so that extreme values do not stand out.

    Parameters
    ----------
    column : str
        A column of numbers or dates.
    low, high : number, date or str, optional
        Values below `low` become `low`, values above `high` become `high`. A date can be written as 2024-05-31.

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
            raise OptionError(f"top and bottom coding of column '{self.column}' needs a bound", hint="give low or high")

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with values beyond the bounds replaced by the bounds."""
        values = table.column(self.column)
        if not (values.dtype.is_numeric() or isinstance(values.dtype, pl.Date | pl.Datetime)):
            raise ColumnError(f"column '{self.column}' holds neither numbers nor dates, so it has no top and bottom")
        low, high = (_bound(bound, values, self.column) for bound in (self.low, self.high))
        if low is not None and high is not None and low > high:
            raise OptionError(f"the lower bound of column '{self.column}' is above its upper bound")
        return _with(table, [values.clip(low, high)])

    def to_dict(self) -> dict[str, Any]:
        """Return the bounds as plain values."""
        bounds = {name: bound for name, bound in (("low", self.low), ("high", self.high)) if bound is not None}
        plain = {name: one if isinstance(one, int | float | str) else str(one) for name, one in bounds.items()}
        return {"method": "top and bottom coding", "columns": [self.column], **plain}


@dataclass(frozen=True)
class Pram(Mask):
    """Keep a value with some probability, and otherwise draw a new one from the distribution of the column.

    The post-randomisation method (Gouweleeuw, Kooiman, Willenborg, de Wolf 1998) with the transition matrix
    ``keep * I + (1 - keep) * 1 p'``, where p are the shares of the values in the column. The matrix is
    invariant, ``p' P = p'``: the expected share of every value is its true share, so frequency tables of the
    released column need no correction. Associations with other columns become weaker.

    Parameters
    ----------
    column : str
    keep : float
        The probability of keeping a value; a newly drawn value may be the same by chance.

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
        real("the probability to keep a value", self.keep, least=0, most=1)

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame in which some values are newly drawn from the column."""
        codes, known = _codes(table, self.column)
        drawn = codes[known]
        anew = np.flatnonzero(random.random(len(known)) >= self.keep)
        if len(anew):
            drawn[anew] = codes[known[random.integers(0, len(known), len(anew))]]  # a random row has a random value
        return _decoded(table, self.column, known, drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return the probability as plain values."""
        return {"method": "post-randomisation", "columns": [self.column], "keep": float(self.keep)}


@dataclass(frozen=True)
class RankSwap(Mask):
    """Swap each value with one of similar rank (Moore 1996).

    The values are ranked, with ties in random order. In this order, each value that was not swapped yet is
    swapped with a random unswapped value whose rank is higher by at most the given percentage of the rows. The column
    keeps exactly its values, and no value moves further than that. Associations with other columns become weaker.

    Parameters
    ----------
    column : str
        A column of numbers, dates or ordinals.
    percent : float
        The largest difference in rank between swapped values, in percent of the rows, but at least one rank.

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
        real("the percentage of rank swapping", self.percent, least=0, most=100)

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

    Whole numbers stay whole, and values stay within the public bounds of the schema. Without bounds, values may leave
    their original range; apply top and bottom coding afterwards.

    Parameters
    ----------
    column : str or sequence of str
        One or several columns of numbers.
    scale : float
        The standard deviation of the noise, in units of the standard deviation of the column.
    correlated : bool
        Whether the noise of several columns has the same correlations as the columns, which preserves
        them (Kim 1986); otherwise it is independent for each column, and correlations become weaker.

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
        real("the scale of noise", self.scale, least=0)
        if self.correlated and len(self.columns) < 2:
            raise OptionError(
                f"correlated noise needs several columns, got only '{self.columns[0] if self.columns else ''}'",
                hint="name several columns, or omit correlated",
            )

    def apply(self, table: Table, random: Random) -> Any:
        """Return a frame with noise added."""
        series = [table.column(name) for name in self.columns]
        for one in series:
            if not one.dtype.is_numeric():
                raise ColumnError(f"column '{one.name}' does not hold numbers, so noise cannot be added")
        values = np.column_stack([as_floats(one).fill_null(np.nan).to_numpy() for one in series])
        if np.isinf(values).any():
            raise ColumnError("infinite numbers have no standard deviation", hint="first apply top and bottom coding")
        noise = random.standard_normal(values.shape) @ self._root(values).T
        noisy = zip(series, (values + noise).T, strict=True)
        return _with(table, [_noisy(one, column, table.schema[one.name]) for one, column in noisy])

    def _root(self, values: Floats) -> Floats:
        """Return a matrix A such that A z has the covariance of the noise for independent standard normal z."""
        if not self.correlated:
            known = [column[~np.isnan(column)] for column in values.T]
            return np.diag([self.scale * (float(column.std()) if len(column) else 0.0) for column in known])
        complete = values[~np.isnan(values).any(axis=1)]
        if len(complete) < 2:
            raise ColumnError("correlated noise needs at least two rows without missing values in its columns")
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
    """A masked table and the methods that were applied, without any guarantee.

    Examples
    --------
    >>> import sfumato as sf
    >>> masked = sf.mask("patients.csv", [sf.masking.TopBottomCode("age", high=40)])
    >>> masked.table.rows, masked.methods[0].columns
    (8, ('age',))
    >>> masked.note[:60]
    'These columns were perturbed. That carries no guarantee: no '
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "methods")

    methods: tuple[Mask, ...]
    note: str
    """A statement that masking carries no guarantee."""
    seeded: bool
    """Whether the random numbers came from a given seed; the seed itself is not stored."""

    def described(self) -> dict[str, str]:
        """Return a description of the masking of each column."""
        texts: dict[str, str] = {}
        for method in self.methods:
            plain = method.to_dict()
            title, columns = plain.pop("method"), plain.pop("columns")
            text = ", ".join([str(title), *(f"{name} {value}" for name, value in plain.items() if value is not None)])
            texts |= {name: f"{texts[name]}; {text}" if name in texts else text for name in columns}
        return texts

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the table as plain values."""
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
    """Apply masking methods to the columns of a table, in order, without any guarantee.

    The type of frame, the order of the rows and the types of the columns are preserved; missing values stay missing.
    The index of a pandas frame and unused categories are dropped. Rows outside this process (a file, a database,
    DuckDB, Spark) are fetched and returned as a Polars frame.

    Parameters
    ----------
    data : Table, frame or path
        The table to perturb.
    methods : sequence of TopBottomCode, Pram, RankSwap or NoiseAddition
        The methods, in the order of application.
    seed : int, optional
        Makes the random numbers reproducible. Keep it as safe as the table: anyone who knows it can undo much of
        the perturbation. By default the random numbers come from the operating system's entropy.
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
    table.schema.refuse_person("masking")
    origin = table.origin
    if isinstance(methods, Mask) or not all(isinstance(one, Mask) for one in methods):
        raise OptionError("the methods must be a list such as [TopBottomCode('age', high=90), Pram('sex')]")
    if not methods:
        raise OptionError("no method is given", hint="for example TopBottomCode('age', high=90)")
    seed = None if seed is None else whole("the seed", seed, least=0)
    for name in (name for one in methods for name in one.columns):
        if name not in table.schema.names:
            raise ColumnError(f"there is no column '{name}'", hint=did_you_mean(name, table.schema.names))
    if table.is_lazy:
        table = Table(
            pl.DataFrame([table.column(name).alias(name) for name in table.schema.names]),
            table.schema,
            layout=table.layout,
        )
    random = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
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
    """Mask a table by a recipe, with new random numbers."""
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
        columns = [one.pop("columns") for one in masks]
        methods = [
            kinds[one.pop("method")](names[0] if len(names) == 1 else names, **one)
            for one, names in zip(masks, columns, strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        raise OptionError("the recipe does not describe masks", hint="'sfumato mask -o FOLDER' writes one") from None
    return mask(data, methods, schema=recipe.schema, **options)


def _codes(table: Table, name: str, *, ordered: bool = False) -> tuple[NDArray[np.int32], Ints]:
    """Return the code of each row of a column, and the rows without a missing value."""
    encoded = table.encode([name])
    domain = encoded.domains[0]
    if ordered and not domain.column.kind.is_ordered:
        raise ColumnError(
            f"rank swapping needs ordered values, but column '{name}' holds {domain.column.kind.value} values",
            hint="use Pram, or declare an order in the schema",
        )
    codes = encoded.values[:, 0]
    return codes, np.flatnonzero(codes < len(domain) - (domain.missing is not None))


def _decoded(table: Table, name: str, rows: Ints, codes: NDArray[np.int32]) -> Any:
    """Return a frame in which these rows of a column have the values of the codes."""
    encoded = table.encode([name])
    values = encoded.values.copy()
    values[rows, 0] = codes
    return table.decode(replace(encoded, values=values))


def _partners(number: int, window: int, random: Random) -> list[int]:
    """Return the swap partner of each rank, at most a window away; a rank without a free partner stays."""
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
    """Return numbers in the type of the column, clipped to its public bounds and the range of the type."""
    dtype = original.dtype
    low, high = column.bounds or (-math.inf, math.inf)
    if dtype.is_integer():
        limits = np.iinfo(np.int64 if dtype == pl.Int128 else str(dtype).lower())
        # The largest 64-bit integer rounds up to a float that is out of range.
        low, high = max(low, float(limits.min)), min(high, float(np.nextafter(float(limits.max), 0.0)))
        values = np.rint(np.clip(values, low, high))
        return pl.Series(original.name, values).fill_nan(None).cast(dtype)
    noisy = pl.Series(original.name, np.clip(values, low, high))
    return (noisy if dtype.is_float() else noisy.fill_nan(None)).set(original.is_null(), None).cast(dtype)


def _with(table: Table, columns: Sequence[pl.Series]) -> Any:
    """Return a frame like that of the table with some columns replaced; column types are preserved."""
    frame = table.with_columns(columns)
    if table.implementation.is_pandas():
        types = {one.name: table.frame[one.name].dtype for one in columns}
        objects = {one.name: one.to_list() for one in columns if types[one.name].kind == "O"}  # such as Python dates
        return frame.assign(**objects).astype(types)
    if table.implementation.is_pyarrow():
        return frame.cast(table.frame.schema)
    return frame


def _bound(bound: Any, values: pl.Series, name: str) -> Any:
    """Convert a bound to the type of the column."""
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
        raise OptionError(f"the bound of column '{name}' must be {kind} in its range, got {bound!r}") from None

"""Locally perturbed records: each is changed on its own, as if by the person before handing it in.

Nobody has to be trusted with the true values, and whoever has the perturbed ones can still estimate what holds of all
people together. The price is noise on every record: for the same epsilon an answer of `query` is far more accurate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Composed, Event
from sfumato.budget.ledger.fingerprint import reading
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.mechanisms.additive import positive
from sfumato.budget.mechanisms.randomized_response import CategoryResponse, Estimate, NumberResponse
from sfumato.budget.noise import Source
from sfumato.budget.query.public import declared
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.io.files import atomic_path, why
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table, read
from sfumato.errors import ColumnError, FileError, OptionError, SchemaError
from sfumato.measures.released_table import ReleasedTable

__all__ = ["Estimated", "PerturbedTable", "perturb", "run_recipe"]

_FORMAT = "sfumato perturbation 1"


@dataclass(frozen=True)
class Estimated:
    """What perturbed records say of the people together: the share of a value, or the mean of a number."""

    column: str
    value: str | None
    """The value whose share it is; None for that of missing values, and for a mean."""
    statistic: str
    """``"share"`` or ``"mean"``."""
    estimate: float
    standard_error: float
    interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values."""
        plain: dict[str, Any] = {"column": self.column, "statistic": self.statistic}
        if self.statistic == "share":
            plain["value"] = self.value
        return {
            **plain,
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "interval": list(self.interval),
        }


@dataclass(frozen=True, eq=False, repr=False)
class PerturbedTable(ReleasedTable):
    """Perturbed records, and how they were perturbed; see `perturb`.

    Examples
    --------
    >>> import sfumato as sf
    >>> smokers = pl.DataFrame({"smokes": ["yes"] * 300 + ["no"] * 700})
    >>> schema = sf.Schema([sf.Column(name="smokes", domain=["yes", "no"])])
    >>> sf.perturb(smokers, ["smokes"], epsilon=1, schema=schema).write("answers.csv")
    >>> yes, no = sf.masking.PerturbedTable.from_file("answers.csv").estimate()
    >>> yes.column, yes.value, yes.statistic
    ('smokes', 'yes', 'share')
    >>> yes.interval[0] < yes.estimate < yes.interval[1]
    True
    """

    _told: ClassVar[tuple[str, ...]] = ("rows", "epsilon", "private")

    methods: Mapping[str, CategoryResponse | NumberResponse]
    """How each column was perturbed."""
    epsilon: float
    charged: bool | None = None
    """Whether the ledger of the data was charged; None if the records were read from a file."""
    private: bool = True
    """False if the noise came from a given seed: then the records are reproducible, and not private."""

    @property
    def frame(self) -> pl.DataFrame:
        """The records."""
        found: pl.DataFrame = self.table.frame
        return found

    @property
    def event(self) -> Event:
        """What a record costs its person."""
        return _event(self.methods)

    def described(self) -> dict[str, str]:
        """Say for each column how it was perturbed."""
        plain = {name: _method_dict(method) for name, method in self.methods.items()}
        return {name: f"{one['method']} of epsilon {one['epsilon']:g}" for name, one in plain.items()}

    def estimate(self, confidence: float = 0.95) -> list[Estimated]:
        """Return the share of every value and the mean of every number, without bias.

        Intervals are of the perturbation alone; they say nothing about people who are not in the data.
        """
        if positive("the confidence", confidence) >= 1:
            raise OptionError(f"the confidence must be a number between 0 and 1, got {confidence!r}")
        found = []
        for name, method in self.methods.items():
            if isinstance(method, NumberResponse):
                mean = method.estimate(self.frame[name].cast(pl.Float64).to_numpy())
                found.append(_estimated(name, None, "mean", mean, confidence))
            else:
                shares = method.estimate(_answers(self.frame[name], method))
                found += [_estimated(name, value, "share", share, confidence) for value, share in shares.items()]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return how the records were perturbed, as plain values."""
        return {
            "format": _FORMAT,
            "rows": self.rows,
            "epsilon": self.epsilon,
            "relation": self.event.relation.value,
            "private": self.private,
            "columns": {name: _method_dict(method) for name, method in self.methods.items()},
        }

    def write(self, path: str | Path, *, escape_formulas: bool = False) -> None:
        """Write the records to a file, and how they were perturbed to that name with ``.json`` after it."""
        super().write(path, escape_formulas=escape_formulas)
        with atomic_path(f"{path}.json") as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def from_file(cls, path: str | Path) -> PerturbedTable:
        """Read what `write` has written."""
        described = f"{path}.json"
        try:
            plain = json.loads(Path(described).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = why(error) if isinstance(error, OSError) else "it is not JSON"
            raise FileError(
                f"how '{path}' was perturbed is not known: '{described}' cannot be read, {reason}",
                hint="sfumato perturb writes both files",
            ) from error
        try:
            if plain["format"] != _FORMAT:
                raise ValueError
            methods = {str(name): _method(one) for name, one in plain["columns"].items()}
            epsilon, private = positive("epsilon", plain["epsilon"]), bool(plain["private"])
        except (KeyError, TypeError, ValueError, AttributeError, OptionError):
            raise FileError(f"'{described}' does not say how records were perturbed, or it is damaged") from None
        frame = read(path).to_polars()
        for name in methods:
            if name not in frame.columns:
                raise ColumnError(f"'{path}' lacks the column '{name}' that was perturbed")
        return cls(Table(frame.select(list(methods))), None, methods, epsilon, private=private)


def perturb(
    data: Any,
    columns: Sequence[str],
    *,
    epsilon: float,
    schema: Schema | str | Path | None = None,
    missing: bool = False,
    ledger: Ledger | str | Path | None = None,
    note: str = "",
    insecure_seed: int | None = None,
) -> Release:
    """Perturb every record on its own, so that nobody can be sure of any value in it.

    A column with a public domain is perturbed by randomized response: the true value is kept with some probability, and
    otherwise another one of the domain is taken. A column with public bounds gets Laplace noise. The columns
    share the epsilon evenly; columns that are not named are left out.

    Whatever a record was before, what it becomes is at most exp(epsilon) times as likely as for any other record. That
    holds under replace-one: how many records there are is not hidden. If the data has a ledger, it is
    charged; it must count under replace-one. If it has none, nothing is charged: so for answers that are
    perturbed as they are collected.

    Parameters
    ----------
    data
        A table, a frame or a file.
    columns : sequence of str
    epsilon : float
        For a whole record, all columns together.
    schema : Schema or path, optional
        With a domain or bounds for each of the columns.
    missing : bool
        Of columns with a domain: whether a missing value, or one that the domain does not list, is an answer like the
        others; else it is refused. A missing number is always refused: no noise hides that it is missing.
    ledger : Ledger or path, optional
        The ledger, or its file; by default it is found by the content of the data.
    note : str
        Kept in the ledger.
    insecure_seed : int, optional
        Makes the noise reproducible, for a test. The records are then not private, and the result says so.

    Examples
    --------
    >>> import sfumato as sf
    >>> schema = sf.Schema([sf.Column(name="sex", domain=["f", "m"]), sf.Column(name="age", bounds=(0, 120))])
    >>> perturbed = sf.perturb("patients.csv", ["sex", "age"], epsilon=2, schema=schema)
    >>> perturbed.frame.columns, len(perturbed.frame)
    (['sex', 'age'], 8)
    >>> print(perturbed.methods["sex"].event)
    a randomized response of epsilon 1
    """
    source = Source(insecure_seed=insecure_seed)
    table = Table.of(data).as_declared()
    public = declared(table, schema)
    if isinstance(columns, str) or not columns:
        raise OptionError("the columns to be perturbed must be a list of names", hint="give columns / --columns")
    names = list(dict.fromkeys(columns))
    each = positive("epsilon", epsilon) / len(names)
    methods = {name: _chosen(public[name], each, missing) for name in names}
    values = {name: _values(table, name, method, missing) for name, method in methods.items()}
    event = _event(methods)
    charged = _charge(table, event, ledger, note or f"perturbed {', '.join(names)}", private=source.private)
    frame = pl.DataFrame([_reports(name, method, values[name], source) for name, method in methods.items()])
    kinds = Schema(Column(name=name, kind=public[name].kind) for name in names)
    promise = DifferentialPrivacy(float(epsilon), relation=event.relation)
    parameters = {
        "columns": {name: _method_dict(method) for name, method in methods.items()},
        "missing": missing,
        "private": source.private,
        "events": [event.to_dict()],
    }
    promised = (promise,) if source.private else ()
    asked = {"method": "perturb", "parameters": parameters, "guarantees": [one.to_dict() for one in promised]}
    return Release(
        artifact=PerturbedTable(Table(frame, kinds), None, methods, float(epsilon), charged, source.private),
        method="perturb",
        parameters=parameters,
        guarantees=promised,
        events=(event,),
        recipe=Recipe("perturb", {**asked, "keep_order": True}, kinds),
        provenance=Provenance.of(table.origin, table.rows, order="kept"),
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Perturb records as a recipe says, with new noise."""
    if data is None:
        raise OptionError("a recipe of perturb does not name its data", hint="give the table")
    try:
        parameters = recipe.options["parameters"]
        methods = {str(name): _method(one) for name, one in parameters["columns"].items()}
        public = Schema(
            Column(name=name, bounds=method.bounds)
            if isinstance(method, NumberResponse)
            else Column(name=name, domain=tuple(one for one in method.domain or () if one is not None))
            for name, method in methods.items()
        )
        epsilon, missing = sum(method.epsilon for method in methods.values()), bool(parameters["missing"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OptionError(
            "the recipe does not say how to perturb", hint="'sfumato perturb -o FOLDER' writes one"
        ) from None
    return perturb(data, list(methods), epsilon=epsilon, schema=public, missing=missing, **options)


def _event(methods: Mapping[str, CategoryResponse | NumberResponse]) -> Event:
    events = tuple(method.event for method in methods.values())
    return events[0] if len(events) == 1 else Composed(events)


def _charge(table: Table, event: Event, path: Ledger | str | Path | None, note: str, *, private: bool) -> bool:
    ledger = Ledger.find(table) if path is None else Ledger.of(table, path)
    if ledger is None:
        return False
    with ledger:
        ledger.charge(event, note=note, private=private)
    return True


def _chosen(column: Column, epsilon: float, missing: bool) -> CategoryResponse | NumberResponse:
    if column.domain is not None:
        domain = tuple(map(text_of, column.domain))
        if len(set(map(reading, domain))) < len(domain):
            raise SchemaError(f"the domain of column '{column.name}' lists two values that read alike")
        return CategoryResponse(epsilon=epsilon, domain=(*domain, None) if missing else domain)
    if column.bounds is not None:
        return NumberResponse(epsilon=epsilon, bounds=column.bounds)
    raise SchemaError(
        f"column '{column.name}' has neither a public domain nor public bounds, so it cannot be perturbed",
        hint="list its values or give its bounds in the schema; they must not be read off the data",
    )


def _values(table: Table, name: str, method: CategoryResponse | NumberResponse, missing: bool) -> Any:
    """Return the values of a column, ready to be perturbed; one that cannot be is refused."""
    series = table.column(name)
    if isinstance(method, NumberResponse):
        if not series.dtype.is_numeric():  # of a text file: one odd cell makes texts of all
            series = series.cast(pl.String).cast(pl.Float64, strict=False)
        numbers = series.cast(pl.Float64).fill_null(np.nan).to_numpy()
        if np.isnan(numbers).any():
            raise ColumnError(
                f"column '{name}' has cells that are missing or not numbers, which cannot be perturbed",
                hint="leave those records out, or give the column a domain instead of bounds",
            )
        return numbers
    answers = _answers(series, method)
    if None in answers and not missing:
        raise ColumnError(
            f"column '{name}' has values that are missing or that its domain does not list",
            hint="missing / --missing makes them an answer of their own",
        )
    return answers


def _answers(series: pl.Series, method: CategoryResponse) -> list[str | None]:
    """Return the value of the domain that each value reads as; None for one that is missing or not listed."""
    domain = {reading(text): text for text in map(str, filter(None, method.domain or ()))}
    return [None if text is None else domain.get(reading(text)) for text in _texts(series)]


def _texts(series: pl.Series) -> list[str | None]:
    if series.dtype == pl.Float32:
        series = series.cast(pl.String).cast(pl.Float64)  # 0.7, not 0.699999988079071
    return [None if value is None or value != value else text_of(value) for value in series.to_list()]


def _reports(name: str, method: CategoryResponse | NumberResponse, values: Any, source: Source) -> pl.Series:
    kind = pl.Float64 if isinstance(method, NumberResponse) else pl.String
    return pl.Series(name, method.perturb(values, source), dtype=kind)


def _estimated(column: str, value: str | None, statistic: str, found: Estimate, confidence: float) -> Estimated:
    return Estimated(column, value, statistic, found.value, found.standard_error, found.interval(confidence))


def _method_dict(method: CategoryResponse | NumberResponse) -> dict[str, Any]:
    if isinstance(method, NumberResponse):
        return {"method": "laplace noise", "epsilon": method.epsilon, "bounds": list(method.bounds or ())}
    return {"method": "randomized response", "epsilon": method.epsilon, "domain": list(method.domain or ())}


def _method(plain: Mapping[str, Any]) -> CategoryResponse | NumberResponse:
    if plain["method"] == "laplace noise":
        return NumberResponse(epsilon=plain["epsilon"], bounds=tuple(plain["bounds"]))
    if plain["method"] != "randomized response":
        raise ValueError
    return CategoryResponse(epsilon=plain["epsilon"], domain=tuple(plain["domain"]))

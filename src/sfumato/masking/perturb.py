"""Local differential privacy: perturb each record on its own, as its person could do before submitting it.

No one has to be trusted with the true values, and the perturbed records still allow estimates of shares and means.
The price is noise on every record: for the same epsilon, an answer of `query` is far more accurate.
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
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.mechanisms.randomized_response import CategoryResponse, Estimate, NumberResponse
from sfumato.budget.noise import Source
from sfumato.budget.query.plan import public_schema
from sfumato.data.coding import canonical_text
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.io.files import atomic_path, why
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import real
from sfumato.errors import ColumnError, FileError, OptionError, SchemaError
from sfumato.measures.released_table import ReleasedTable

__all__ = ["Estimated", "PerturbedTable", "perturb", "run_recipe"]

_FORMAT = "sfumato perturbation 1"


@dataclass(frozen=True)
class Estimated:
    """An estimate from perturbed records: the share of a value or the mean of a number."""

    column: str
    value: str | None
    """The value whose share is estimated; None for missing values and for a mean."""
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
    """Perturbed records and the methods that perturbed them; see `perturb`.

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

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "epsilon", "private")

    methods: Mapping[str, CategoryResponse | NumberResponse]
    """The method of each column."""
    epsilon: float
    charged: bool | None = None
    """Whether the ledger of the data was charged; None if the records were read from a file."""
    private: bool = True
    """False if the noise came from a given seed: the records are then reproducible and not private."""

    @property
    def frame(self) -> pl.DataFrame:
        """The records."""
        frame: pl.DataFrame = self.table.frame
        return frame

    @property
    def event(self) -> Event:
        """The cost of a record for its person."""
        return _event(self.methods)

    def described(self) -> dict[str, str]:
        """Return a description of the perturbation of each column."""
        plain = {name: _method_dict(method) for name, method in self.methods.items()}
        return {name: f"{one['method']} of epsilon {one['epsilon']:g}" for name, one in plain.items()}

    def estimate(self, confidence: float = 0.95) -> list[Estimated]:
        """Return unbiased estimates of the share of every value and the mean of every number.

        Where numbers may be missing, the share of those that are is estimated too, and the mean is that of the others.
        This mean is a ratio of two unbiased estimates, whose bias is far smaller than its standard error.
        The intervals cover the perturbation only, not the sampling of people from a larger population.
        """
        real("the confidence", confidence, above=0, below=1)
        estimates = []
        for name, method in self.methods.items():
            if isinstance(method, NumberResponse):
                numbers = self.frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
                if method.missing:
                    estimates.append(_estimated(name, None, "share", method.estimate_missing(numbers), confidence))
                estimates.append(_estimated(name, None, "mean", method.estimate(numbers), confidence))
            else:
                shares = method.estimate(_answers(self.frame[name], method))
                estimates += [_estimated(name, value, "share", share, confidence) for value, share in shares.items()]
        return estimates

    def to_dict(self) -> dict[str, Any]:
        """Return the methods and parameters of the perturbation as plain values."""
        return {
            "format": _FORMAT,
            "rows": self.rows,
            "epsilon": self.epsilon,
            "relation": self.event.relation.value,
            "private": self.private,
            "columns": {name: _method_dict(method) for name, method in self.methods.items()},
        }

    def write(self, path: str | Path, *, escape_formulas: bool = False) -> None:
        """Write the records to a file, and the description of the perturbation to the same name plus ``.json``."""
        super().write(path, escape_formulas=escape_formulas)
        with atomic_path(f"{path}.json") as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def from_file(cls, path: str | Path) -> PerturbedTable:
        """Read the two files that `write` writes."""
        described = f"{path}.json"
        try:
            plain = json.loads(Path(described).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = why(error) if isinstance(error, OSError) else "it is not JSON"
            raise FileError(
                f"'{described}', the description of how '{path}' was perturbed, cannot be read: {reason}",
                hint="sfumato perturb writes both files",
            ) from error
        try:
            if plain["format"] != _FORMAT:
                raise ValueError
            methods = {str(name): _method(one) for name, one in plain["columns"].items()}
            epsilon, private = real("epsilon", plain["epsilon"], above=0), bool(plain["private"])
        except (KeyError, TypeError, ValueError, AttributeError, OptionError):
            raise FileError(f"'{described}' is not the description of a perturbation, or it is damaged") from None
        frame = read(path).to_polars()
        for name in methods:
            if name not in frame.columns:
                raise ColumnError(f"'{path}' lacks the perturbed column '{name}'")
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
    """Perturb each record on its own with local differential privacy.

    A column with a public domain is perturbed by randomized response: the true value is kept with some probability, and
    otherwise replaced by another value of the domain. A column with public bounds gets Laplace noise. The columns
    share epsilon equally; columns that are not named are dropped.

    Any perturbed record is at most exp(epsilon) times as likely for one true record as for any other. The relation is
    replace-one, so the number of records is not hidden. If the data has a ledger, it is charged; its relation must be
    replace-one. Without a ledger nothing is charged, as for answers that are perturbed at collection.

    Parameters
    ----------
    data
        A table, a frame or a file.
    columns : sequence of str
        The columns to perturb; all others are left out.
    epsilon : float
        The cost of a whole record, all columns together.
    schema : Schema or path, optional
        Declares a domain or bounds for each of the columns.
    missing : bool
        Whether missing and unlisted values of columns with a domain are a category of their own, and numbers may be
        missing (see `NumberResponse`); otherwise they are an error. A column costs the same with or without it.
    ledger : Ledger or path, optional
        The ledger or its file; by default it is found by the content of the data.
    note : str
        Stored in the ledger.
    insecure_seed : int, optional
        Makes the noise reproducible for a test. The records are then marked as not private.

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
    public = public_schema(table, schema)
    public.refuse_person("perturbing each record")
    if isinstance(columns, str) or not columns:
        raise OptionError("the columns to perturb must be a list of names", hint="give columns / --columns")
    names = list(dict.fromkeys(columns))
    each = real("epsilon", epsilon, above=0) / len(names)
    methods = {name: _method_for(public[name], each, missing) for name in names}
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
        recipe=Recipe("perturb", {**asked, "epsilon": float(epsilon), "keep_order": True}, kinds),
        provenance=Provenance.of(table.origin, table.rows, order="kept"),
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Perturb records by a recipe, with new noise."""
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
        epsilon = recipe.options.get("epsilon", sum(method.epsilon for method in methods.values()))
        missing = bool(parameters["missing"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OptionError(
            "the recipe does not describe a perturbation", hint="'sfumato perturb -o FOLDER' writes one"
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


def _method_for(column: Column, epsilon: float, missing: bool) -> CategoryResponse | NumberResponse:
    if column.domain is not None:
        domain = tuple(map(text_of, column.domain))
        if len(set(map(canonical_text, domain))) < len(domain):
            raise SchemaError(f"the domain of column '{column.name}' lists the same value twice")
        return CategoryResponse(epsilon=epsilon, domain=(*domain, None) if missing else domain)
    if column.bounds is not None:
        return NumberResponse(epsilon=epsilon, bounds=column.bounds, missing=missing)
    raise SchemaError(
        f"column '{column.name}' has neither a public domain nor public bounds, so it cannot be perturbed",
        hint="declare its values or bounds in the schema, without looking at the data",
    )


def _values(table: Table, name: str, method: CategoryResponse | NumberResponse, missing: bool) -> Any:
    """Return the values of a column, or raise an error if one of them cannot be perturbed."""
    series = table.column(name)
    if isinstance(method, NumberResponse):
        if not series.dtype.is_numeric():  # in a text file, one unusual cell makes the whole column text
            series = series.cast(pl.String).cast(pl.Float64, strict=False)
        numbers = series.cast(pl.Float64).fill_null(np.nan).to_numpy()
        if np.isnan(numbers).any() and not missing:
            raise ColumnError(
                f"column '{name}' has missing cells or cells that are not numbers",
                hint="missing / --missing hides which ones",
            )
        return numbers
    answers = _answers(series, method)
    if None in answers and not missing:
        raise ColumnError(
            f"column '{name}' has missing values or values outside its domain",
            hint="missing / --missing makes them a category of their own",
        )
    return answers


def _answers(series: pl.Series, method: CategoryResponse) -> list[str | None]:
    """Return the domain value that equals each value in canonical form, or None if there is none."""
    domain = {canonical_text(text): text for text in map(str, filter(None, method.domain or ()))}
    return [None if text is None else domain.get(canonical_text(text)) for text in _texts(series)]


def _texts(series: pl.Series) -> list[str | None]:
    if series.dtype == pl.Float32:
        series = series.cast(pl.String).cast(pl.Float64)  # 0.7, not 0.699999988079071
    return [None if value is None or value != value else text_of(value) for value in series.to_list()]


def _reports(name: str, method: CategoryResponse | NumberResponse, values: Any, source: Source) -> pl.Series:
    kind = pl.Float64 if isinstance(method, NumberResponse) else pl.String
    return pl.Series(name, method.perturb(values, source), dtype=kind, nan_to_null=True)


def _estimated(column: str, value: str | None, statistic: str, found: Estimate, confidence: float) -> Estimated:
    return Estimated(column, value, statistic, found.value, found.standard_error, found.interval(confidence))


def _method_dict(method: CategoryResponse | NumberResponse) -> dict[str, Any]:
    if isinstance(method, NumberResponse):
        plain = {"method": "laplace noise", "epsilon": method.epsilon, "bounds": list(method.bounds or ())}
        return {**plain, "missing": True} if method.missing else plain
    return {"method": "randomized response", "epsilon": method.epsilon, "domain": list(method.domain or ())}


def _method(plain: Mapping[str, Any]) -> CategoryResponse | NumberResponse:
    if plain["method"] == "laplace noise":
        missing = plain.get("missing", False)
        if not isinstance(missing, bool):
            raise ValueError
        return NumberResponse(epsilon=plain["epsilon"], bounds=tuple(plain["bounds"]), missing=missing)
    if plain["method"] != "randomized response":
        raise ValueError
    return CategoryResponse(epsilon=plain["epsilon"], domain=tuple(plain["domain"]))

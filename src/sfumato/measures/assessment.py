"""The result of an assessment: the numbers, their witnesses, the risks, and the guarantees that hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import polars as pl

from sfumato._repr import Discreet, InNotebooks, Plain
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.schema import Role
from sfumato.measures.guarantee import Check, Witness, as_json_number
from sfumato.measures.people import People
from sfumato.measures.risk.journalist import DeltaPresence, JournalistRisk
from sfumato.measures.risk.population import PopulationUniques
from sfumato.measures.risk.reidentification import ColumnRisk, Risk, SubsetRisk
from sfumato.measures.risk.safe_harbor import Finding, Status
from sfumato.measures.risk.unicity import Unicity

__all__ = ["SMALLEST_SHOWN", "Assessment", "Measures", "Profile", "Verdict", "round_shares"]

SMALLEST_SHOWN = 10
"""The smallest number of original rows that is shown."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Measures(Discreet):
    """The numbers of the nine models with their witnesses; None if there is no sensitive attribute."""

    _repr_fields: ClassVar[tuple[str, ...]] = ("k", "alpha", "l", "t")

    k: int
    alpha: float | None = None
    l: int | None = None
    entropy_l: float | None = None
    recursive_c: float | None = None
    recursive_l: int | None = None
    t: float | None = None
    basic_beta: float | None = None
    enhanced_beta: float | None = None
    delta_disclosure: float | None = None
    witnesses: dict[str, Witness]

    def numbers(self) -> dict[str, float | str | None]:
        """Return the numbers as values that JSON can store."""
        names = (one.name for one in fields(Measures) if one.name != "witnesses")
        return {name: as_json_number(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Verdict:
    """The checked guarantees; true if all of them hold.

    Examples
    --------
    >>> import sfumato as sf
    >>> verdict = sf.check("patients.csv", "k=2,l=2", qi=["zip", "age"], sensitive=["disease"])
    >>> bool(verdict)
    False
    >>> print(verdict)
    k=2: held, measured 2
    l=2: not held, measured 1
    """

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return all(check.held for check in self.checks)

    @property
    def failed(self) -> str:
        """The guarantees that do not hold, as a text."""
        return ", ".join(str(check.guarantee) for check in self.checks if not check.held)

    def __str__(self) -> str:
        return "\n".join(
            f"{check.guarantee}: {'held' if check.held else 'not held'}, measured {_text(check.measured.value)}"
            + (f" ({check.reason})" if check.reason else "")
            for check in self.checks
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {"ok": bool(self), "claims": [check.to_dict() for check in self.checks]}


@dataclass(frozen=True)
class Profile(Plain):
    """The profile of a column.

    Attributes
    ----------
    column, role, kind : its name, role and kind
    values : the number of distinct values, without the missing one; None if they cannot be counted
    missing : the share of rows with a missing value
    bins, shares : the label of each bin, and the share of rows in it; empty unless a page shows them
    """

    column: str
    role: Role
    kind: str
    values: int | None
    missing: float | None
    bins: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()


def round_shares(share: Any, rows: int) -> Any:
    """Round shares to 0.1 %, or to parts of `SMALLEST_SHOWN` rows if these are larger.

    Examples
    --------
    >>> float(round_shares(0.12345, 48_842)), float(round_shares(0.12345, 100))
    (0.123, 0.1)
    """
    parts = min(max(rows // SMALLEST_SHOWN, 1), 1000)
    return np.round(np.round(np.asarray(share, dtype=np.float64) * parts) / parts, 3)


@dataclass(frozen=True, kw_only=True, repr=False)
class Assessment(Measures, InNotebooks):
    """How anonymous a table is: the worst number of each model, with its witness.

    The result of `assess`. Besides ``k``, ``alpha``, ``l`` and so on, each the worst over all
    sensitive attributes, it has what was counted and what was left out.
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "classes", "k", "l", "t", "satisfied")

    rows: int
    """The rows that are in a class."""
    classes: int
    """The number of equivalence classes."""
    suppressed: int
    """The suppressed rows; they are in no class."""
    dropped: int
    """The rows left out because of a missing value, with ``missing="drop"``."""
    quasi: tuple[str, ...]
    """The quasi-identifiers."""
    sensitive: tuple[str, ...]
    """The sensitive attributes."""
    identifiers: tuple[str, ...]
    """The columns that identify a person by themselves, which must not be released."""
    people: People | None = None
    """The number of people behind the rows, if a column identifies them."""
    unit: str = UNIT
    """What all numbers but `rows`, `suppressed` and `dropped` count: rows, or people if a person column is named."""
    kept: dict[str, str]
    """The columns that are released unchanged on purpose, each with the case against it."""
    by_sensitive: dict[str, Measures]
    """The measures of each sensitive attribute."""
    distances: dict[str, str]
    """The distance between values that t-closeness used for each sensitive attribute."""
    risk: Risk
    """The risk of re-identification."""
    journalist: JournalistRisk | None
    """The risk against a population table, if one was given."""
    presence: DeltaPresence | None
    """How much the table reveals about who of the population is in it, if a population table was given."""
    population: PopulationUniques | None
    """The estimated number of unique people in the population, if its size was given."""
    columns: tuple[ColumnRisk, ...]
    """The contribution of each quasi-identifier to the risk, with ``detail=True``."""
    subsets: tuple[SubsetRisk, ...]
    """How well up to three quasi-identifiers single people out, worst first, with ``detail=True``."""
    findings: tuple[Finding, ...]
    """The findings of HIPAA's Safe Harbor check, with ``preset="hipaa"``."""
    nobody: int = 0
    """The rows without a person, each of which counts as a person of its own, if people are counted."""
    unicity: tuple[Unicity, ...] = ()
    """How many people are alone given some of their rows, with ``detail=True`` and a person column."""
    rows_by_class_size: dict[int, int]
    """The number of rows in classes of each size; of people, each in their smallest class, if they are counted."""
    verdict: Verdict | None
    """The checks of the required guarantees; None if none was required."""
    options: dict[str, str | None]
    """The conventions of the measurement."""
    profiles: tuple[Profile, ...] = ()
    """The number of values of each column, without the values themselves, with ``detail=True``."""

    @property
    def satisfied(self) -> bool | None:
        """Whether everything required holds; None if nothing was required."""
        found = any(finding.status is Status.FOUND for finding in self.findings)
        if self.verdict is None:
            return not found if self.findings else None
        return bool(self.verdict) and not found

    def to_dict(self) -> dict[str, Any]:
        """Return the assessment as plain values, under the names of the command-line contract."""
        return {
            "rows": self.rows,
            "classes": self.classes,
            "suppressed": self.suppressed,
            "dropped": self.dropped,
            **self.numbers(),
            "risk": {
                **self.risk.to_dict(),
                "journalist": self.journalist and self.journalist.to_dict(),
                "presence": self.presence and self.presence.to_dict(),
                "population": self.population and self.population.to_dict(),
                "columns": [column.to_dict() for column in self.columns],
                "subsets": [subset.to_dict() for subset in self.subsets],
                **({"unicity": [one.to_dict() for one in self.unicity]} if self.unit == PERSON else {}),
            },
            "findings": [finding.to_dict() for finding in self.findings],
            "by_sensitive": {
                name: {**measures.numbers(), "distance": self.distances[name]}
                for name, measures in self.by_sensitive.items()
            },
            "witnesses": {name: witness.to_dict() for name, witness in self.witnesses.items()},
            "satisfied": self.satisfied,
            "checks": [] if self.verdict is None else self.verdict.to_dict()["claims"],
            "quasi": list(self.quasi),
            "sensitive": list(self.sensitive),
            "identifiers": list(self.identifiers),
            "kept": self.kept,
            "people": self.people and self.people.to_dict(),
            "unit": self.unit,
            **({"nobody": self.nobody} if self.unit == PERSON else {}),
            "rows_by_class_size": {str(size): rows for size, rows in self.rows_by_class_size.items()},
            "options": self.options,
            "profiles": [profile.to_dict() for profile in self.profiles],
        }

    def to_frame(self) -> pl.DataFrame:
        """Return a row per measure: its name, and its value over all sensitive attributes and for each of them.

        Examples
        --------
        >>> import sfumato as sf
        >>> frame = sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease"]).to_frame()
        >>> frame.filter(pl.col("measure") == "l")["value"].to_list()
        [1.0, 1.0]
        """
        rows = [("", name, value) for name, value in self.numbers().items()]
        for column, measures in self.by_sensitive.items():
            rows += [(column, name, value) for name, value in measures.numbers().items() if name != "k"]
        rows += [("", f"risk_{name}", value) for name, value in self.risk.to_dict().items()]
        kept = [(column, name, float(value)) for column, name, value in rows if isinstance(value, int | float | str)]
        names = {"sensitive": pl.String, "measure": pl.String, "value": pl.Float64}
        return pl.DataFrame(kept, schema=names, orient="row")

    def to_json(self) -> str:
        """Return the assessment as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

"""What an assessment says: the numbers, their witnesses, the risks, and which guarantees hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from sfumato._repr import Discreet
from sfumato.measures.guarantee import Check, Witness, as_json_number
from sfumato.measures.people import People
from sfumato.measures.profile import Profile
from sfumato.measures.risk.journalist import DeltaPresence, JournalistRisk
from sfumato.measures.risk.population import PopulationUniques
from sfumato.measures.risk.reidentification import ColumnRisk, Risk, SubsetRisk
from sfumato.measures.risk.safe_harbor import Finding, Status

__all__ = ["Assessment", "Measures", "Verdict"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Measures(Discreet):
    """The numbers that the nine models measured, and the witness of each; None where no attribute is sensitive."""

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
        """Return the numbers as JSON can hold them."""
        names = (one.name for one in fields(Measures) if one.name != "witnesses")
        return {name: as_json_number(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Verdict:
    """Which guarantees hold. It is true when all do.

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Assessment(Measures):
    """How anonymous a table is: the worst number of each model, with its witness.

    Made by `assess`. Besides ``k``, ``alpha``, ``l`` and so on, the worst over all sensitive
    attributes, it says what was counted and what was left out.
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "classes", "k", "l", "t", "satisfied")

    rows: int
    """The rows that are in a class."""
    classes: int
    """The number of equivalence classes."""
    suppressed: int
    """The suppressed rows; they are in no class."""
    dropped: int
    """With ``missing="drop"``, the rows left out because they miss a value."""
    quasi: tuple[str, ...]
    """The quasi-identifiers."""
    sensitive: tuple[str, ...]
    """The sensitive attributes."""
    identifiers: tuple[str, ...]
    """The columns of the table that name a person alone: never release them."""
    people: People | None = None
    """How many people the rows are of, if a column tells them apart."""
    kept: dict[str, str]
    """The columns that are released as they are on purpose, each with what speaks against it."""
    by_sensitive: dict[str, Measures]
    """The measures of each sensitive attribute."""
    distances: dict[str, str]
    """The distance between its values that t-closeness took for each sensitive attribute."""
    risk: Risk
    """The risk of re-identification."""
    journalist: JournalistRisk | None
    """The risk against a population table, if one was given."""
    presence: DeltaPresence | None
    """How much the table tells about who of the population is in it, if a population table was given."""
    population: PopulationUniques | None
    """The estimated number of people who are unique in the population, if its size was given."""
    columns: tuple[ColumnRisk, ...]
    """What each quasi-identifier adds to the risk, with ``detail=True``."""
    subsets: tuple[SubsetRisk, ...]
    """How well up to three quasi-identifiers single people out, worst first, with ``detail=True``."""
    findings: tuple[Finding, ...]
    """What HIPAA's Safe Harbor check found, with ``preset="hipaa"``."""
    rows_by_class_size: dict[int, int]
    """How many rows are in a class of each size."""
    verdict: Verdict | None
    """Which of the required guarantees hold; None if none was required."""
    options: dict[str, str | None]
    """The conventions that were followed."""
    profiles: tuple[Profile, ...] = ()
    """How many values each column of the table has, with ``detail=True``; no value itself."""

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
            "rows_by_class_size": {str(size): rows for size, rows in self.rows_by_class_size.items()},
            "options": self.options,
            "profiles": [profile.to_dict() for profile in self.profiles],
        }

    def to_json(self) -> str:
        """Return the assessment as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

"""The privacy-utility frontier: protections with their risks and utilities, the Pareto set, and the choice of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import polars as pl

from sfumato._repr import Discreet, InNotebooks
from sfumato.errors import OptionError, did_you_mean
from sfumato.frontier.sweep.choose import Limits, Recommendation, measuring_command, recommend
from sfumato.frontier.sweep.markdown import markdown_of
from sfumato.frontier.sweep.point import Point, pareto_set

__all__ = ["NOTE", "Frontier"]

_ANYTHING = Limits()
NOTE = "figures of real rows without noise, not covered by any epsilon: for the owner of the data, not for publication"


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Discreet, InNotebooks):
    """Protections on the same data, judged by the same attackers; made by `sf.explore`.

    Attributes
    ----------
    points : what was measured
    skipped : why a protection could not be measured, by its text
    data : the name of the data, its rows, target, quasi-identifiers, models, attacks and seeds
    public : whether the data are declared public
    limits : what was asked for
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("protections", "best")

    points: tuple[Point, ...]
    data: Mapping[str, Any]
    skipped: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    public: bool = False
    limits: Limits = _ANYTHING

    @property
    def protections(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def best(self) -> str | None:
        """The recommended protection; None if none keeps the limits."""
        found = self.recommended.point
        return None if found is None else found.name

    @property
    def note(self) -> str:
        """Whom the figures are for."""
        return "figures of data that are declared public" if self.public else NOTE

    @property
    def charging(self) -> str:
        """Whether the choice is charged to a budget, in a sentence."""
        if self.public:
            return "The choice costs no budget: the data are declared public."
        if limit := self.data.get("budget"):
            return (
                f"The choice is not charged to the budget of the data ({limit}): it is declared to be the owner's. A "
                "release costs its own epsilon, and what the choice itself reveals is not covered."
            )
        return "The choice is not charged: no budget was granted for the data. What it reveals is not covered."

    @property
    def recommended(self) -> Recommendation:
        """The choice for the limits that were asked for."""
        return recommend(self.points, self.data, self.limits)

    def pareto(self, risk: str = "membership_advantage", utility: str = "accuracy") -> tuple[Point, ...]:
        """Return the points that no other beats in a risk and a utility; a query error or distance is better small."""
        known = [point for point in self.points if risk in point.risk and utility in point.utility]
        if not known:
            names = sorted({name for point in self.points for name in (*point.risk, *point.utility)})
            raise OptionError(f"no point has both '{risk}' and '{utility}'", hint=did_you_mean(risk, names))
        sign = -1 if utility in ("query_error", "pair_distance") else 1
        places = pareto_set(
            [point.risk[risk].mean for point in known], [sign * point.utility[utility].mean for point in known]
        )
        return tuple(known[place] for place in places)

    def choose(
        self,
        *,
        max_risk: float | None = None,
        max_advantage: float | None = None,
        min_accuracy: float | None = None,
    ) -> Recommendation:
        """Choose the most accurate protection that keeps limits, also when it is measured again with fresh seeds."""
        return recommend(self.points, self.data, Limits(max_risk, max_advantage, min_accuracy))

    def to_dict(self) -> dict[str, Any]:
        """Return the points, the Pareto set and the recommendation as plain values."""
        chosen = self.recommended
        try:
            best = [point.name for point in self.pareto()]
        except OptionError:
            best = []
        return {
            "data": dict(self.data),
            "points": [
                {**point.to_dict(), "measure": measuring_command(point.candidate, self.data)} for point in self.points
            ],
            "pareto": best,
            "recommended": None if chosen.point is None else chosen.to_dict(),
            "reason": chosen.reason,
            "skipped": dict(self.skipped),
            "public": self.public,
            "note": self.note,
            "charging": self.charging,
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_markdown(self) -> str:
        """Return the recommendation and a table of all points as Markdown."""
        plain = self.to_dict()
        return markdown_of(
            self.points,
            self.recommended,
            plain["pareto"],
            self.skipped,
            self.data,
            f"These are {self.note}. {self.charging}",
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a row per point, with the mean and the ends of the interval of each figure."""
        rows = []
        for point in self.points:
            row: dict[str, Any] = {"protection": point.candidate.name, "name": point.name, "seconds": point.seconds}
            for name, one in (*point.risk.items(), *point.utility.items()):
                reach = one.reach()
                row |= {name: one.mean, f"{name}_low": one.mean - reach, f"{name}_high": one.mean + reach}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

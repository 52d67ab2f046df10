"""The privacy-utility frontier: protections with their risks and utilities, the Pareto set, and the choice of one."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import polars as pl
from scipy import special

from sfumato._repr import Discreet
from sfumato.errors import OptionError, did_you_mean
from sfumato.frontier.sweep.grid import Candidate

__all__ = ["NOTE", "Figure", "Frontier", "Limits", "Point", "Recommendation", "pareto_set"]

NOTE = "figures of real rows without noise, not covered by any epsilon: for the owner of the data, not for publication"
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Figure:
    """A measured number over several seeds.

    Attributes
    ----------
    values : one per seed
    error : the standard error of one value by sampling alone
    """

    values: tuple[float, ...]
    error: float = 0.0

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds; 0 with one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def reach(self, fresh: int = 0) -> float:
        """Return how far the true mean may be with 95 % confidence; or the mean of so many fresh seeds.

        Examples
        --------
        >>> figure = Figure((0.1, 0.2, 0.3))
        >>> round(figure.reach(), 3), figure.reach(fresh=3) > figure.reach()
        (0.248, True)
        """
        seeds, tail = len(self.values), 0.5 + _CONFIDENCE / 2
        by_seeds = float(special.stdtrit(seeds - 1, tail)) * self.spread if seeds > 1 else 0.0
        by_sampling = float(special.ndtri(tail)) * self.error
        return max(by_seeds, by_sampling) * math.sqrt(1 / seeds + (1 / fresh if fresh else 0))

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain values."""
        reach = self.reach()
        ends = [self.mean - reach, self.mean + reach]
        return {"mean": self.mean, "spread": self.spread, "ci": ends, "values": list(self.values)}


@dataclass(frozen=True)
class Point:
    """A protection with its parameters, and what was measured of it.

    Attributes
    ----------
    candidate : the protection with its parameters
    risk, utility : figures by name
    seconds : the mean time to make the release and to train on it
    """

    candidate: Candidate
    risk: Mapping[str, Figure]
    utility: Mapping[str, Figure]
    seconds: float

    @property
    def name(self) -> str:
        """The protection as a text, such as ``mondrian:k=10``."""
        return str(self.candidate)

    def to_dict(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return {
            "name": self.name,
            "protection": self.candidate.name,
            "parameters": {key: _number(value) for key, value in self.candidate.parameters},
            "guarantee": self.candidate.guarantee,
            "risk": {name: one.to_dict() for name, one in self.risk.items()},
            "utility": {name: one.to_dict() for name, one in self.utility.items()},
            "seconds": self.seconds,
        }


def _number(text: str) -> float | int | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


@dataclass(frozen=True)
class Limits:
    """What a protection must keep; None if anything will do.

    Attributes
    ----------
    max_risk : the largest risk of re-identification
    max_advantage : the largest advantage of a membership attack
    min_accuracy : the least accuracy of the model
    """

    max_risk: float | None = None
    max_advantage: float | None = None
    min_accuracy: float | None = None

    def broken_by(self, point: Point) -> list[str]:
        """Say which limits a point may break when it is measured again with as many fresh seeds."""
        asked = (
            ("re_identification", point.risk, self.max_risk, 1, "the re-identification risk"),
            ("membership_advantage", point.risk, self.max_advantage, 1, "the membership advantage"),
            ("accuracy", point.utility, self.min_accuracy, -1, "the accuracy"),
        )
        broken = []
        for name, figures, limit, sign, words in asked:
            if limit is None:
                continue
            figure = figures.get(name)
            if figure is None:
                broken.append(f"{words} was not measured")
                continue
            end = figure.mean + sign * figure.reach(fresh=len(figure.values))
            if name == "re_identification" and (k := point.candidate.number("k")):
                end = min(end, 1 / k)  # it is guaranteed
            if sign * (end - limit) > 1e-12:
                broken.append(f"{words} may be {end:.3f}, and the limit is {limit:g}")
        return broken

    def risks_only(self) -> Limits:
        """Return the limits of risks alone."""
        return Limits(self.max_risk, self.max_advantage)

    def to_dict(self) -> dict[str, float | None]:
        """Return the limits as plain values."""
        return {
            "max_risk": self.max_risk,
            "max_advantage": self.max_advantage,
            "min_accuracy": self.min_accuracy,
        }


@dataclass(frozen=True)
class Recommendation:
    """The protection to take; its reason in words, and the command that makes the release.

    Attributes
    ----------
    point : the recommended point; None if none keeps the limits
    reason : in one or two sentences
    command : makes the release; empty if there is none to make
    limits : what was asked for
    """

    point: Point | None
    reason: str
    command: str
    limits: Limits

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendation as plain values."""
        named = self.point and {key: value for key, value in self.point.to_dict().items() if key != "seconds"}
        return {**(named or {}), "reason": self.reason, "command": self.command, "limits": self.limits.to_dict()}


def pareto_set(risks: Sequence[float], utilities: Sequence[float]) -> list[int]:
    """Return the places of points that no other beats: less risk and as much utility, or more and as little risk.

    Examples
    --------
    >>> pareto_set([0.5, 0.1, 0.1, 0.3], [0.9, 0.8, 0.7, 0.8])
    [0, 1]
    """
    order = sorted(range(len(risks)), key=lambda at: (risks[at], -utilities[at]))
    kept: list[int] = []
    best: tuple[float, float] | None = None
    for at in order:
        if best is None or utilities[at] > best[1] or (risks[at], utilities[at]) == best:
            kept.append(at)
            best = risks[at], utilities[at]
    return sorted(kept)


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Discreet):
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
    limits: Limits = Limits()

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
    def recommended(self) -> Recommendation:
        """The choice for the limits that were asked for."""
        return self._choose(self.limits)

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
        return self._choose(Limits(max_risk, max_advantage, min_accuracy))

    def _choose(self, limits: Limits) -> Recommendation:
        """Return the most accurate point that keeps the limits; raw data are recommended to nobody without limits."""
        asked = limits if limits != Limits() else Limits(max_risk=0.2, max_advantage=0.1)
        able = [point for point in self.points if not asked.broken_by(point) and "accuracy" in point.utility]
        if not able:
            return Recommendation(None, _nearest(self.points, asked), "", asked)
        best = max(able, key=lambda point: (point.utility["accuracy"].mean, point.candidate.strength))
        return Recommendation(best, _reason(best, asked, len(able), len(self.points)), self._command(best), asked)

    def _command(self, point: Point) -> str:
        """Return the command line that makes the release."""
        data, options = str(self.data["name"]), dict(point.candidate.parameters)
        kind = point.candidate.name
        target, quasi = str(self.data["target"]), ",".join(self.data["qi"])
        out = point.name.replace(":", "-").replace("=", "").replace(",", "-")
        if kind == "raw":
            return ""
        taken = {"dp": ("identifiers",), "synthetic": ("identifiers", "keep")}.get(
            kind, ("sensitive", "identifiers", "keep")
        )
        roles = [part for role in taken if (names := self.data.get(role)) for part in (f"--{role}", ",".join(names))]
        given = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        if kind == "dp":
            model = {"forest": "forest", "tree": "forest", "mlp": "mlp", "boosting": "additive"}[self.data["models"][0]]
            words = ["train", data, "--model", model, "--target", target, *roles, *given]
        elif kind == "synthetic":
            words = ["synthesize", data, "--target", target, *roles, *given, "-n", str(self.data.get("rows", 1000))]
        else:
            words = ["anonymize", data, *(["--qi", quasi] if quasi else []), *roles, "--method", kind, *given]
            words += ["--target", target] if kind == "guided" else []
        return shlex.join(["sfumato", *words, "-o", out])

    def to_dict(self) -> dict[str, Any]:
        """Return the points, the Pareto set and the recommendation as plain values."""
        chosen = self.recommended
        try:
            best = [point.name for point in self.pareto()]
        except OptionError:
            best = []
        return {
            "data": dict(self.data),
            "points": [point.to_dict() for point in self.points],
            "pareto": best,
            "recommended": None if chosen.point is None else chosen.to_dict(),
            "reason": chosen.reason,
            "skipped": dict(self.skipped),
            "public": self.public,
            "note": self.note,
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

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


def _reason(point: Point, limits: Limits, able: int, points: int) -> str:
    accuracy = point.utility["accuracy"].mean
    parts = [f"it keeps a model right about {100 * accuracy:.1f} % of other people"]
    if (risk := point.risk.get("re_identification")) is not None:
        parts.append(f"its re-identification risk is {risk.mean:.3f}")
    if (gain := point.risk.get("membership_advantage")) is not None:
        parts.append(f"its membership advantage is {gain.mean:.3f}")
    given = {name.replace("_", " "): value for name, value in limits.to_dict().items() if value is not None}
    asked = ", ".join(f"{name} {value:g}" for name, value in given.items())
    best = f"{point.name} is the most accurate of {able} protections, of {points}, that keep {asked}"
    return f"{best}: {'; '.join(parts)}."


def _nearest(points: Sequence[Point], limits: Limits) -> str:
    """Say why no protection keeps the limits."""
    if not points:
        return "No protection could be measured."
    closest = min(points, key=lambda point: len(limits.broken_by(point)))
    return f"No protection keeps the limits. Closest is {closest.name}: {'; '.join(limits.broken_by(closest))}."

"""A point of the frontier: a protection with its parameters, and what was measured of it over several seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import special

from sfumato._repr import Discreet
from sfumato.frontier.sweep.grid import Candidate, plain

__all__ = ["CONFIDENCE", "Figure", "Point", "pareto_set", "with_common_spread"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Figure:
    """A measured number over several seeds.

    Attributes
    ----------
    values : one per seed
    error : the standard error of one value by sampling alone
    common : the standard deviation over the seeds of all protections of the same family, and its degrees of freedom
    """

    values: tuple[float, ...]
    error: float = 0.0
    common: tuple[float, int] | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds; 0 with one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def reach(self, fresh: int = 0, tail: float = (1 - CONFIDENCE) / 2) -> float:
        """Return how far the true mean may be, or the mean of so many fresh seeds; each end fails with chance `tail`.

        Seeds spread by training, noise and sampling. A few seeds tell little about their spread, so that those of the
        protections of the same family count together, unless this one spreads more.

        Examples
        --------
        >>> figure = Figure((0.1, 0.2, 0.3))
        >>> round(figure.reach(), 3), figure.reach(fresh=3) > figure.reach(), figure.reach(tail=0.001) > figure.reach()
        (0.248, True, True)
        """
        seeds = len(self.values)
        spread, freedom = self.common or (self.spread, seeds - 1)
        by_seeds = float(special.stdtrit(freedom, 1 - tail)) * max(spread, self.spread) if freedom > 0 else 0.0
        by_sampling = float(special.ndtri(1 - tail)) * self.error
        return max(by_seeds, by_sampling) * math.sqrt(1 / seeds + (1 / fresh if fresh else 0))

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain values."""
        reach = self.reach()
        ends = [self.mean - reach, self.mean + reach]
        return {"mean": self.mean, "spread": self.spread, "ci": ends, "values": list(self.values)}


@dataclass(frozen=True, repr=False)
class Point(Discreet):
    """A protection with its parameters, and what was measured of it.

    Attributes
    ----------
    candidate : the protection with its parameters
    risk, utility : figures by name
    seconds : the mean time to make the release and to train on it
    roc : the strongest membership attack: its true positive rate at false positive rates, the mean over the seeds
    keys : the names of the stored measurements, one per seed; none without a folder
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("name", "seconds")

    candidate: Candidate
    risk: Mapping[str, Figure]
    utility: Mapping[str, Figure]
    seconds: float
    roc: tuple[tuple[float, float], ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The protection as a text, such as ``mondrian:k=10``."""
        return str(self.candidate)

    def figure(self, name: str) -> Figure | None:
        """Return a risk or a utility; None if it was not measured."""
        return self.risk.get(name) or self.utility.get(name)

    def to_dict(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return {
            "name": self.name,
            "protection": self.candidate.name,
            "parameters": {key: plain(value) for key, value in self.candidate.parameters},
            "guarantee": self.candidate.guarantee,
            "risk": {name: one.to_dict() for name, one in self.risk.items()},
            "utility": {name: one.to_dict() for name, one in self.utility.items()},
            "seconds": self.seconds,
            "roc": [list(pair) for pair in self.roc],
            "measurements": list(self.keys),
        }


def with_common_spread(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points; each figure has the spread over the seeds of all points of the same protection.

    Examples
    --------
    >>> one, other = (Point(Candidate("dp", (("epsilon", e),)), {}, {"auc": Figure(values)}, 1.0)
    ...               for e, values in (("1", (0.5, 0.7)), ("2", (0.8, 0.8))))
    >>> [round(number, 3) for number in with_common_spread([one, other])[1].utility["auc"].common]
    [0.1, 2]
    """
    squares: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for point in points:
        for name, figure in (*point.risk.items(), *point.utility.items()):
            freedom = len(figure.values) - 1
            squares[point.candidate.family, name].append((freedom * figure.spread**2, freedom))
    common = {}
    for key, parts in squares.items():
        freedom = sum(one for _, one in parts)
        common[key] = (math.sqrt(sum(square for square, _ in parts) / freedom), freedom) if freedom else None

    def shared(point: Point, figures: Mapping[str, Figure]) -> dict[str, Figure]:
        return {name: replace(one, common=common[point.candidate.family, name]) for name, one in figures.items()}

    return tuple(
        replace(point, risk=shared(point, point.risk), utility=shared(point, point.utility)) for point in points
    )


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

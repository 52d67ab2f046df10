"""What all holders of an analysis agree on beforehand: the analysis, the schema, the kind of sum, and the privacy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from sfumato.budget.accounting.concentrated import epsilon_of_rho, rho_of_epsilon
from sfumato.budget.events import ApproximateEvent, Event, NoiseShares
from sfumato.data.schema import Schema
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, OptionError
from sfumato.federation.analysis.analyses import GRID, Analysis, of_dict
from sfumato.federation.secure.connect import SECURE, check_sum
from sfumato.federation.secure.mpc import SUM

__all__ = ["AnalysisPlan"]

_MOST_TOTAL = 2**62
_TAIL = 60  # standard deviations of noise that must fit


@dataclass(frozen=True, kw_only=True)
class AnalysisPlan:
    """An analysis over the rows of several holders.

    Parameters
    ----------
    analysis
        What is computed.
    schema
        The columns, with the public bounds and domains that it needs.
    parties
        How many holders there are.
    secure
        "none", "masks", "threshold", "ckks" or "mpc".
    threshold
        How many holders must take part; all by default.
    rows
        The largest number of rows of one holder; public.
    epsilon, delta : with an epsilon every holder adds its share of the noise before anything leaves it, so the result
        is differentially private. Neighbours differ in one row of one holder.
    honest : how many of the shares of noise must suffice. The default is one less than ``threshold``, so that no
        holder can remove its own share and see more; 1 if sums are in clear, and by CKKS, where a coordinator that lies
        can have a single vector opened.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.federation import Moments
    >>> schema = sf.Schema([sf.Column(name="age", bounds=(0, 120))])
    >>> plan = AnalysisPlan(analysis=Moments(("age",)), schema=schema, parties=3, epsilon=1.0)
    >>> plan.honest, round(plan.noise / 2**24, 2), AnalysisPlan.from_dict(plan.to_dict()) == plan
    (2, 5.55, True)
    """

    analysis: Analysis
    schema: Schema
    parties: int
    secure: str = "masks"
    threshold: int | None = None
    rows: int = 10_000_000
    epsilon: float | None = None
    delta: float = 1e-6
    honest: int | None = None

    def __post_init__(self) -> None:
        if self.secure not in SECURE:
            raise OptionError(f"secure must be one of {', '.join(SECURE)}, got {self.secure!r}")
        whole("the number of holders", self.parties)
        whole("the largest number of rows of a holder", self.rows)
        _set(self, "threshold", whole("the threshold", self.parties if self.threshold is None else self.threshold))
        assert self.threshold is not None
        if self.threshold > self.parties:
            raise OptionError(f"the threshold is {self.threshold}, but there are only {self.parties} holders")
        default = 1 if self.secure in ("none", "ckks") else max(self.threshold - 1, 1)
        _set(self, "honest", whole("the number of honest holders", default if self.honest is None else self.honest))
        assert self.honest is not None
        if self.honest > (1 if self.secure == "none" else self.threshold):
            raise OptionError(
                f"{self.honest} shares of noise cannot be relied on",
                hint="at most the threshold; 1 for sums in clear, where each share is seen alone",
            )
        if self.epsilon is not None:
            real("epsilon", self.epsilon, above=0)
        if not 0 < self.delta < 1:
            raise OptionError(f"delta must be between 0 and 1, got {self.delta!r}")
        if self.analysis.sums > 1 and self.threshold < self.parties and self.epsilon is None:
            raise OptionError(
                f"{self.analysis.kind} takes {self.analysis.sums} sums, and the difference of two sums over different "
                "holders is what one of them alone has",
                hint="leave out the threshold, so that all take part in each, or give an epsilon",
            )
        if self.epsilon is not None and self.analysis.kind == "sum":
            raise OptionError(
                "a sum of vectors has no noise: its elements are not rows of people", hint="leave out epsilon"
            )
        self._check_function()
        _set(self, "schema", Schema([self.schema[name] for name in self.columns]))
        check_sum(self.secure, parties=self.parties, words=self.length, bits=64)
        if self.parties * (self.rows * 2**GRID + _TAIL * self.noise) >= _MOST_TOTAL:
            raise OptionError(
                f"the sums of {self.parties} holders of {self.rows:,} rows could overflow",
                hint="state a smaller largest number of rows, or ask for a larger epsilon",
            )

    def _check_function(self) -> None:
        """Refuse what multi-party computation cannot do, and what only it can."""
        if self.secure != "mpc":
            if getattr(self.analysis, "least", 1) > 1:
                raise OptionError(
                    "small counts can only stay hidden by multi-party computation: a sum opens them all",
                    hint="secure='mpc', or leave out least",
                )
            if self.analysis.kind == "function":
                raise OptionError("a joint function needs multi-party computation", hint="secure='mpc'")
            return
        if self.epsilon is not None:
            raise OptionError(
                "multi-party computation adds no noise", hint="leave out epsilon, or take masks, threshold or ckks"
            )
        if self.threshold != self.parties:
            raise OptionError("in multi-party computation all holders take part", hint="leave out the threshold")

    @cached_property
    def function(self) -> dict[str, Any]:
        """What is opened: by multi-party computation what the analysis says, else the sum."""
        if self.secure != "mpc":
            return dict(SUM)
        return self.analysis.function(self.schema, self.parties * self.rows)

    @property
    def opens_sums(self) -> bool:
        """Whether the sum is opened, rather than a function of it."""
        return self.function == SUM

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are used."""
        return tuple(dict.fromkeys((*self.analysis.numbers, *self.analysis.categories)))

    @cached_property
    def length(self) -> int:
        """How many numbers are added up."""
        return self.analysis.length(self.schema)

    @cached_property
    def noise(self) -> int:
        """The scale of one holder's share of the noise, in steps; 0 without privacy."""
        length = self.length
        if self.epsilon is None:
            return 0
        assert self.honest is not None
        sensitivity = math.ceil(self.analysis.norm(self.schema) * 2**GRID) + math.sqrt(length)  # rounded to the grid
        rho = rho_of_epsilon(self.epsilon, self.delta) / self.analysis.sums
        scale = math.ceil(sensitivity / math.sqrt(2 * rho * self.honest))
        while self._cost(sensitivity, scale) > self.epsilon:
            scale += max(scale // 10_000, 1)
        if scale >= 2**40:
            raise OptionError(f"epsilon {self.epsilon:g} is too small for this analysis: its noise would overflow")
        return scale

    def _cost(self, sensitivity: float, scale: int) -> float:
        assert self.honest is not None
        share = NoiseShares(scale, sensitivity, self.honest, self.length, unit="row")
        return epsilon_of_rho(self.analysis.sums * share.rho, self.delta)

    @property
    def event(self) -> Event | None:
        """What every holder charges; None without privacy."""
        return None if self.epsilon is None else ApproximateEvent(self.epsilon, self.delta)

    @property
    def digest(self) -> str:
        """A name of the plan, which all messages carry."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        analysis = {key: list(one) if isinstance(one, tuple) else one for key, one in self.analysis.to_dict().items()}
        names = ("parties", "secure", "threshold", "rows", "epsilon", "delta", "honest")
        return {"analysis": analysis, "schema": self.schema.to_dict(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Build a plan from the plain values that `to_dict` returned."""
        try:
            options = dict(plain)
            analysis, schema = of_dict(options.pop("analysis")), Schema.from_dict(options.pop("schema"))
            return cls(analysis=analysis, schema=schema, **options)
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError("the plan of the analysis lacks a part or has an unknown one") from error


def _set(plan: AnalysisPlan, name: str, value: Any) -> None:
    object.__setattr__(plan, name, value)

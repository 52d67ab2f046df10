"""Differential privacy as a guarantee, and whether events satisfy it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.budget.accounting.accountant import check_delta, spent
from sfumato.budget.events import Event, Relation
from sfumato.data.certificate import UNIT
from sfumato.data.guarantee import Guarantee
from sfumato.data.validate import real
from sfumato.errors import OptionError, one_of

if TYPE_CHECKING:
    from sfumato.data.release import Release

__all__ = ["DifferentialPrivacy"]


@dataclass(frozen=True)
class DifferentialPrivacy(Guarantee, stored_as="differential-privacy"):
    """A bound on what a release reveals about any one record, whatever else is known (Dwork et al. 2006).

    For any two neighbouring tables and any set of results, the probability of a result in that set under one
    table is at most exp(epsilon) times the probability under the other, plus delta.

    Parameters
    ----------
    epsilon, delta : float
    relation : Relation or str
        Which tables are neighbours.

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> promise = DifferentialPrivacy(1.0, 1e-5)
    >>> print(promise)
    epsilon=1, delta=1e-05 (add or remove one record)
    >>> promise.kept_by([Gaussian(4.0)]), promise.kept_by([Gaussian(4.0), Gaussian(4.0)])
    (True, False)
    """

    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, above=0))
        object.__setattr__(self, "delta", check_delta(self.delta, allow_zero=True))
        object.__setattr__(self, "relation", one_of(Relation, self.relation, "the relation"))

    def kept_by(self, events: Iterable[Event]) -> bool:
        """Return whether events on the same data satisfy the guarantee together."""
        return spent(tuple(events), self.delta, relation=self.relation).epsilon <= self.epsilon

    def holds_for(self, release: Release) -> bool:
        """Return whether the events of a release satisfy the guarantee together."""
        return self.kept_by(release.events)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain values."""
        return {
            "guarantee": "differential-privacy",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": UNIT,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DifferentialPrivacy:
        """Build the guarantee from the plain values that `to_dict` returned."""
        known = {"guarantee", "epsilon", "delta", "relation"}  # earlier versions wrote no unit
        if plain.get("guarantee") != "differential-privacy" or plain.keys() - {"unit"} != known:
            raise OptionError("a guarantee of differential privacy lacks a key or has an unknown one")
        if plain.get("unit", UNIT) != UNIT:
            raise OptionError(f"a guarantee of differential privacy protects a {UNIT}, got {plain['unit']!r}")
        return cls(plain["epsilon"], plain["delta"], plain["relation"])

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:g}, delta={self.delta:g} ({self.relation.in_words})"

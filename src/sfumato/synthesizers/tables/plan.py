"""What a synthetic table will cost: the sums of its method, and what is bought of undeclared columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Event
from sfumato.budget.people import for_people
from sfumato.budget.query.discovery import FindRowsPerPerson, SelectCategories
from sfumato.errors import OptionError
from sfumato.learners.estimators.noisy_sums import Share
from sfumato.synthesizers.plan import Plan, Purchase, multiplier
from sfumato.synthesizers.steps import Steps
from sfumato.synthesizers.tables.base import Synthesizer
from sfumato.synthesizers.tables.columns.description import SHARE, Described, selections
from sfumato.synthesizers.tables.columns.description import shares as description_shares
from sfumato.synthesizers.tables.further_rows import further_shares

__all__ = ["TablePlan", "plan_of"]

_SHOWN = 3  # columns in the name of a purchase
_MORE_NOISE = 1 + 1e-9  # so that rounding does not increase epsilon, however many rows of a person are bought


@dataclass(frozen=True)
class TablePlan(Plan):
    """All purchases of a synthetic table.

    Attributes
    ----------
    columns : the mechanisms that select categories, by column
    bought : what was bought of each undeclared column: domain, bounds or decimals
    buys_rows : whether it is bought how many rows of a person are read; until then, the sums are those for one row
    """

    columns: Mapping[str, SelectCategories] = field(default_factory=dict)
    bought: Mapping[str, Sequence[str]] = field(default_factory=dict)
    buys_rows: bool = False

    @property
    def search(self) -> FindRowsPerPerson:
        """The mechanism that finds how many rows of a person are read."""
        return _search(self.epsilon)

    @property
    def beforehand(self) -> tuple[Purchase, ...]:
        """The rows of a person and the domains that are bought."""
        rows = Purchase("rows of a person", self.search.event, self.search.SHARE, describes=True)
        domains = (
            Purchase(f"domain of {name}", event, one.epsilon / self.epsilon, describes=True)
            for (name, one), event in zip(
                self.columns.items(), _selected(self.columns, self.rows_per_person), strict=True
            )
        )
        return (*((rows,) if self.buys_rows else ()), *domains)

    def purchase(self, name: str, event: Event, share: float) -> Purchase:
        """Return a kind of sum as a purchase; the one that describes numbers by what it is for."""
        return Purchase(self._described if name == SHARE else name, event, share, name == SHARE)

    @property
    def _described(self) -> str:
        """What the noisy sum that describes numbers is for."""
        parts = []
        for what in ("bounds", "decimals"):
            names = [name for name, bought in self.bought.items() if what in bought]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            parts += [f"{what} of {', '.join(names[:_SHOWN])}{more}"] if names else []
        return ", ".join(parts)


def plan_of(
    method: Synthesizer,
    described: Sequence[Described],
    label: int | None,
    epsilon: float,
    delta: float,
    *,
    scans: bool = True,
    noise: float | None = None,
    rows_per_person: int | None = None,
    buys_rows: bool = False,
    people: bool = False,
) -> TablePlan:
    """Return the plan of a method for a table; it depends on nothing that is private.

    Parameters
    ----------
    method : Synthesizer
    described : sequence of Described
        What is declared of each column; the rest is bought.
    label : int, optional
        The position of the label.
    epsilon, delta : float
    scans : bool
        Whether the records can be read, not only counted.
    noise : float, optional
        The noise multiplier, if it is known; by default the smallest one that costs at most epsilon.
    rows_per_person : int, optional
        The most rows of a person, if people are protected.
    buys_rows : bool
        Whether that number is bought. The noise multiplier for a person does not depend on it.
    people : bool
        Whether people with several rows are drawn. The last column is then the number of rows of a person, and sums
        read one row of each.
    """
    chosen = selections(described, epsilon, delta)
    rows_per_person = 1 if people else rows_per_person
    # The shares must not depend on what is bought: an undeclared number may turn out to be wide.
    asked = method.shares([one.axis for one in described], label, scans=scans)
    if (buys_rows or rows_per_person not in (None, 1)) and any(isinstance(one, Steps) for one in asked.values()):
        raise OptionError(
            f"the method '{method.name}' draws rows, not people, in each step of its training, so it cannot protect "
            f"people with {'several' if buys_rows else rows_per_person} rows",
            hint="use another method, such as tree, or rows_per_person=1",
        )
    if people:
        asked = {**asked, **further_shares(asked)}
    shares = {**description_shares(described, math.fsum(one.worth for one in asked.values())), **asked}
    if noise is None:
        terms: dict[str, Any] = {"rows_per_person": rows_per_person, "buys_rows": buys_rows}
        noise = _noise(described, shares, epsilon, delta, **terms)
        if noise is None:
            raise _too_small(described, shares, epsilon, delta, **terms)
    bought = {one.name: one.bought for one in described if one.bought}
    return TablePlan(epsilon, delta, shares, noise, rows_per_person, chosen, bought, buys_rows)


def _search(epsilon: float) -> FindRowsPerPerson:
    return FindRowsPerPerson(epsilon=FindRowsPerPerson.SHARE * epsilon)


def _selected(columns: Mapping[str, SelectCategories], rows_per_person: int | None) -> list[Event]:
    """Return the cost of selecting categories, from one row of each person if people are protected."""
    events = (one.event for one in columns.values())
    return [one if rows_per_person is None else for_people(one, 1) for one in events]


def _noise(
    described: Sequence[Described],
    shares: Mapping[str, Share],
    epsilon: float,
    delta: float,
    *,
    rows_per_person: int | None,
    buys_rows: bool,
) -> float | None:
    """Return the noise multiplier; None if no amount of noise is enough."""
    before = _selected(selections(described, epsilon, delta), rows_per_person)
    if buys_rows:
        before = [_search(epsilon).event, *before]
    try:
        noise = multiplier(before, shares, epsilon, delta, rows_per_person=rows_per_person)
        return noise * _MORE_NOISE if buys_rows else noise
    except OptionError:
        if spent(before, delta).epsilon == math.inf:  # delta is too small, and the error says so
            raise
        return None


def _too_small(
    described: Sequence[Described],
    shares: Mapping[str, Share],
    epsilon: float,
    delta: float,
    **terms: Any,
) -> OptionError:
    """Return the error that says which epsilon is reachable."""
    tried = (digit * 10.0**power for power in range(math.floor(math.log10(epsilon)), 2) for digit in (1, 2, 5))
    larger = (one for one in tried if one > epsilon)
    reached = next((one for one in larger if _noise(described, shares, one, delta, **terms) is not None), None)
    bought = sum(bool(one.bought) for one in described)
    what = f"with what must be bought of {bought} of " if bought else "for "
    least = "" if reached is None else f"; about {reached:g} can"
    return OptionError(
        f"epsilon {epsilon:g} cannot be reached at delta {delta:g} {what}{len(described)} columns{least}",
        hint="declare domains and bounds in the schema, or raise epsilon" if bought else "raise epsilon",
    )

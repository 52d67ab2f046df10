"""Run several attacks on one target, and gather what they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from sfumato._repr import Discreet, InNotebooks
from sfumato.attacks.base import Attack, AttackResult, Records, result_of, scores_of, unit_of
from sfumato.attacks.statistics import clopper_pearson
from sfumato.data.validate import whole
from sfumato.errors import InputError

__all__ = ["AttackReport", "run_attacks"]


@dataclass(frozen=True, eq=False, repr=False)
class AttackReport(Discreet, InNotebooks):
    """What all attacks on a target found.

    Attributes
    ----------
    target : plain facts about the target: its kind, what it is, its accuracies
    results : the results, in the order of the attacks
    skipped : why each attack that does not fit was not run, by name
    seed : of the attacks
    audit : the result of an audit of the claimed differential privacy; None if there was none
    """

    _repr_fields = ("worst", "leaks")

    target: Mapping[str, Any]
    results: tuple[AttackResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    audit: Any = None

    @property
    def worst(self) -> AttackResult | None:
        """The result with the largest AUC; None if no attack was run."""
        return max(self.results, key=lambda result: result.auc, default=None)

    @property
    def leaks(self) -> bool:
        """Whether any attack found leakage."""
        return any(result.leaks for result in self.results)

    @property
    def verdict(self) -> str:
        """What the audit and all attacks together say, in one sentence."""
        if self.audit is not None:
            return f"the audit {self.audit.verdict}" + (f"; {self._of_attacks}" if self.results else "")
        return self._of_attacks

    @property
    def _of_attacks(self) -> str:
        if not self.results:
            return "no attack could be run"
        found = [result.name for result in self.results if result.leaks]
        count = f"{len(self.results)} attack{'s' if len(self.results) > 1 else ''}"
        if not found:
            return f"no leakage found by {count}, which does not prove that there is none"
        return f"{len(found)} of {count} found leakage: {', '.join(found)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        worst = self.worst
        plain: dict[str, Any] = _plain(
            {
                "target": dict(self.target),
                "verdict": self.verdict,
                "leaks": self.leaks,
                "attacks": [result.to_dict() for result in self.results],
                "worst": None if worst is None else {"name": worst.name, "auc": worst.auc},
                "skipped": [{"name": name, "why": why} for name, why in self.skipped.items()],
                "seed": self.seed,
                **({} if self.audit is None else {"audit": self.audit.to_dict()}),
            }
        )
        return plain


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: plain numbers, "inf" for what is unbounded, None for what is not a number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def run_attacks(
    attacks: Sequence[Attack],
    target: Any,
    members: Records | None,
    nonmembers: Records | None,
    *,
    seed: int = 0,
    repeats: int = 1,
    facts: Mapping[str, Any] | None = None,
    progress: Callable[[float], None] | None = None,
) -> AttackReport:
    """Run every attack that fits a target.

    Parameters
    ----------
    attacks : sequence of Attack
        See `attacks_of`.
    target : ModelTarget, TableTarget or SyntheticTarget
    members, nonmembers : Records, optional
        The records that the target was made from, and others like them. Without them only attacks that need neither
        are run; the report says which were not, and why. If they say whose each record is, people are attacked: nobody
        may have records among both, every figure counts people, and each person is one answer.
    seed, repeats : int
        With several repeats each attack is run with as many seeds, and its result says how often they agree.
    facts : mapping, optional
        What the report says about the target.
    progress : callable, optional
        Called with the share of the work that is done.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from sfumato.attacks import ModelTarget, Records, attacks_of, run_attacks
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)  # labels that nobody can predict
    >>> inside, outside = Records(rows[:200], labels[:200]), Records(rows[200:], labels[200:])
    >>> tree = DecisionTreeClassifier(random_state=0).fit(inside.rows, inside.labels)  # which learns them by heart
    >>> report = run_attacks(attacks_of(["loss", "gap", "lira"]), ModelTarget(tree), inside, outside)
    >>> report.verdict
    '2 of 2 attacks found leakage: loss, gap'
    >>> dict(report.skipped)
    {'lira': 'it trains reference models, and how the target was trained is not known'}
    """
    whole("the number of repeats", repeats, most=100)
    _check(members, nonmembers)
    attacks = [part for attack in attacks for part in attack.parts(target)]
    obstacles = {attack.name: attack.obstacle(target, members, nonmembers) for attack in attacks}
    skipped = {name: why for name, why in obstacles.items() if why is not None}
    able = [attack for attack in attacks if attack.name not in skipped]
    results, unit = [], unit_of(members, nonmembers)
    for number, attack in enumerate(able):
        runs = []
        for repeat in range(repeats):
            runs.append(scores_of(attack, target, members, nonmembers, seed + repeat))
            if progress:
                progress((number * repeats + repeat + 1) / (len(able) * repeats))
        results.append(result_of(attack, runs, seed=seed, tried=len(able), unit=unit))
    return AttackReport({"kind": target.kind, **(facts or {}), "unit": unit}, tuple(results), skipped, seed)


def _check(members: Records | None, nonmembers: Records | None) -> None:
    """Refuse too few people, and non-members that are members."""
    for name, records in (("members", members), ("non-members", nonmembers)):
        if records is not None and records.persons < 2:
            raise InputError(f"an attack needs at least two {name}, and got {records.persons}")
    if members is None or nonmembers is None:
        return
    if (members.people is None) != (nonmembers.people is None):
        raise InputError("it must be known of members and of non-members whose each record is, or of neither")
    common = members.persons + nonmembers.persons - members.and_(nonmembers).persons
    if common:
        raise InputError(
            f"{common:,} of {nonmembers.persons:,} people among the non-members are also members",
            hint="divide the rows by person: all rows of a person are on one side",
        )
    both = _hashes(members.and_(nonmembers))
    inside, outside = both[: len(members)], both[len(members) :]
    repeated = len(inside) - inside.n_unique()
    shared = int(outside.is_in(inside.implode()).sum())
    by_chance = clopper_pearson(2 * repeated if 2 * repeated < len(inside) else len(inside), len(inside), 1 - 1e-6)
    if clopper_pearson(shared, len(outside), 1 - 1e-6).low > by_chance.high:
        raise InputError(
            f"{shared:,} of {len(outside):,} non-members are also members, so that the attacks have no control",
            hint="give records that the release has never seen",
        )


def _hashes(records: Records) -> pl.Series:
    """Return a hash of each record."""
    if isinstance(records.rows, pl.DataFrame):
        return records.rows.hash_rows(seed=0)
    flat = np.ascontiguousarray(records.rows).reshape(len(records), -1)
    return pl.DataFrame(flat).hash_rows(seed=0)

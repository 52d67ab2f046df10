"""The common form of all attacks: they score records, and every result carries the same figures.

An attack scores *members* (the records that a release is about) and *non-members* (others like them, which were kept
apart). What it finds among members and not among non-members, it has learned from the release; what it finds among
both, anyone could have guessed. So the non-members are the control of every attack.

If people have several records, members and non-members are people: see `sfumato.attacks.people`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet, InNotebooks, Plain
from sfumato.attacks.people import one_row_each, owners_of, persons_in, pooled, rows_of_people, together
from sfumato.attacks.statistics import CONFIDENCE, Decisions, Interval, Rate, Roc, clopper_pearson, crossfit, stability
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.table import Table
from sfumato.errors import InputError

__all__ = [
    "GUESSING",
    "RATES",
    "Attack",
    "AttackResult",
    "Baseline",
    "Records",
    "Scores",
    "result_of",
    "scores_of",
    "unit_of",
]

RATES = (0.01, 0.001)
"""The false positive rates at which the true positive rate is reported."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Records(Discreet):
    """Records that an attack is about.

    Attributes
    ----------
    rows : a frame of any kind, or an array whose first axis counts the records
    labels : what a model predicts for them; None if they have no label
    people : whose each record is, as a column; None if each record is another person's. A record without a person
        (a missing value) is one of its own.

    Examples
    --------
    >>> people = Records(pl.DataFrame({"age": [30, 40, 50]}), np.array(["no", "yes", "no"]))
    >>> people.take([2, 0]).labels.tolist(), len(people)
    (['no', 'no'], 3)
    >>> visits = Records(pl.DataFrame({"age": [30, 31, 50]}), people=[7, 7, None])
    >>> len(visits), visits.persons, visits.owners.tolist()
    (3, 2, [0, 0, 1])
    """

    _repr_fields = ("size", "persons")

    rows: pl.DataFrame | NDArray[Any]
    labels: NDArray[Any] | None = None
    people: pl.Series | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rows, pl.DataFrame | np.ndarray):
            named = hasattr(self.rows, "columns")
            object.__setattr__(self, "rows", Table(self.rows).to_polars() if named else np.asarray(self.rows))
        if self.labels is not None and not isinstance(self.labels, np.ndarray):
            object.__setattr__(self, "labels", np.asarray(self.labels))
        if self.labels is not None and len(self.labels) != len(self.rows):
            raise InputError(f"{len(self.rows)} records have {len(self.labels)} labels")
        if self.people is not None:
            object.__setattr__(self, "people", persons_in(self.people))
            if len(self.people) != len(self.rows):
                raise InputError(f"{len(self.rows)} records have {len(self.people)} people")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.rows)

    @cached_property
    def owners(self) -> Ints:
        """The number of the person of each record; people are numbered by their first records."""
        return np.arange(len(self)) if self.people is None else owners_of(self.people)

    @cached_property
    def persons(self) -> int:
        """The number of people."""
        return int(self.owners.max(initial=-1)) + 1

    @property
    def repeat(self) -> bool:
        """Whether a person has several records."""
        return self.persons < len(self)

    @property
    def frame(self) -> pl.DataFrame:
        """The records as a frame."""
        if not isinstance(self.rows, pl.DataFrame):
            raise InputError("this attack needs a table, and got an array")
        return self.rows

    def take(self, which: Sequence[int] | NDArray[np.integer[Any]]) -> Records:
        """Return some of the records, in the given order."""
        index = np.asarray(which, dtype=np.int64)
        whose = None if self.people is None else self.people[index]
        return Records(self.rows[index], None if self.labels is None else self.labels[index], whose)

    def of_people(self, chosen: NDArray[np.integer[Any]]) -> Ints:
        """Return the places of all records of some people, one person after the other."""
        return rows_of_people(self.owners, chosen)

    def known(self, seed: int) -> Ints:
        """Return the place of the record that an attacker knows of each person, drawn at random.

        Examples
        --------
        >>> visits = Records(np.arange(4), people=[1, 1, 2, 2])
        >>> visits.owners[visits.known(0)].tolist()
        [0, 1]
        """
        return one_row_each(self.owners, seed) if self.repeat else np.arange(len(self))

    def and_(self, others: Records) -> Records:
        """Return these records, followed by others."""
        self.require_like(others)
        if isinstance(self.rows, pl.DataFrame) and isinstance(others.rows, pl.DataFrame):
            rows: Any = pl.concat([self.rows, others.rows.select(self.rows.columns)], how="vertical_relaxed")
        else:
            rows = np.concatenate([self.rows, others.rows])
        whose = None if self.people is None or others.people is None else together(self.people, others.people)
        if self.labels is None or others.labels is None:
            return Records(rows, people=whose)
        return Records(rows, np.concatenate([self.labels, others.labels]), whose)

    def require_like(self, others: Records) -> None:
        """Raise an error if members and non-members do not have the same columns, or the same shape.

        Examples
        --------
        >>> Records(pl.DataFrame({"age": [30]})).require_like(Records(pl.DataFrame({"town": ["Bern"]})))
        Traceback (most recent call last):
            ...
        sfumato.errors.InputError: the non-members have no column 'age', which the members have
        """
        ours, theirs = (dict(one.rows.schema) if isinstance(one.rows, pl.DataFrame) else None for one in (self, others))
        if ours is None or theirs is None:
            if (ours is None) != (theirs is None) or self.rows.shape[1:] != others.rows.shape[1:]:
                raise InputError("the members and the non-members are not arrays of the same shape")
            return
        for name, kind in ours.items():
            if name not in theirs:
                raise InputError(f"the non-members have no column '{name}', which the members have")
            if kind != theirs[name] and not (kind.is_numeric() and theirs[name].is_numeric()):
                raise InputError(
                    f"column '{name}' is {kind} among the members and {theirs[name]} among the non-members",
                    hint="read both tables in the same way",
                )


@dataclass(frozen=True)
class Baseline(Plain):
    """The success of somebody who has not seen the release.

    Attributes
    ----------
    accuracy : the share of right answers
    method : how these answers are found
    """

    accuracy: float
    method: str


GUESSING = Baseline(0.5, "guessing: half of the candidates are members")


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Discreet):
    """What an attack says about members and non-members; higher scores mean "member", or "the guess is right".

    Attributes
    ----------
    members, nonmembers : the scores, by record or by guess
    baseline : the success without the release
    called : whether each member and each non-member is called a member, if the attack decides by itself
    precision, recall : of the guesses, where they are not about membership
    references : the number of reference models that were trained
    variants : the number of settings that were tried to find the reported one
    details : further plain values for the report
    picture : grey pixels that a page shows; None if the attack has nothing to show
    judged : the places of the members and of the non-members that have a score, if not all have
    """

    _repr_fields = ("references", "variants")

    members: NDArray[np.float64]
    nonmembers: NDArray[np.float64]
    baseline: Baseline = GUESSING
    called: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None
    precision: float | None = None
    recall: float | None = None
    references: int = 0
    variants: int = 1
    details: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    picture: NDArray[np.uint8] | None = None
    judged: tuple[Ints, Ints] | None = None

    def of_people(self, members: Records, nonmembers: Records, *, add: bool = False) -> Scores:
        """Return the scores of people, given those of their records: the mean over each person's, or the sum.

        Examples
        --------
        >>> visits, others = Records(np.arange(3), people=[1, 1, 2]), Records(np.arange(2), people=[3, 4])
        >>> Scores(np.array([5.0, 1.0, 2.0]), np.array([0.0, 1.0])).of_people(visits, others).members.tolist()
        [3.0, 2.0]
        """
        sides = (members, nonmembers)
        if self.judged is not None:
            sides = (members.take(self.judged[0]), nonmembers.take(self.judged[1]))
        found = [
            pooled(scores, side.owners, add=add)
            for scores, side in zip((self.members, self.nonmembers), sides, strict=True)
        ]
        # What an attack calls a row says nothing about a person with several, so a threshold is found for people.
        return replace(self, members=found[0], nonmembers=found[1], called=None, judged=None)


class Attack(ABC):
    """An attack: a question, the kinds of targets that it fits, and the scores that answer it.

    A subclass is one file. `sfumato.attacks.attack` runs it once its module is in `sfumato.attacks.catalogue`.
    """

    name: str
    question: ClassVar[str]
    """What the attacker wants to know, in one sentence that ends with a question mark."""
    targets: ClassVar[tuple[str, ...]]
    """The kinds of targets: table, model, synthetic."""
    guesses: ClassVar[bool] = False
    """Whether a score is 1 for a right guess about a record and 0 for a wrong one."""
    adds_up: ClassVar[bool] = False
    """Whether scores are log-likelihood ratios, which add up over the records of a person."""
    knows_people: ClassVar[bool] = False
    """Whether the attack itself looks at all records of a person, and scores people."""

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run, in one clause ("it needs ..."); None if it can."""
        if target.kind not in self.targets:
            return f"it attacks a {' or a '.join(self.targets)}, not a {target.kind}"
        if members is None:
            return "it needs the original records (--source)"
        if nonmembers is None:
            return "it needs records that the release has never seen (--control)"
        return None

    def parts(self, target: Any) -> tuple[Attack, ...]:
        """Return the attacks that this one means for a target: one for each sensitive column, for example."""
        return (self,)

    @abstractmethod
    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score the members and the non-members of a target."""


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult(Discreet, InNotebooks):
    """What an attack found, with its control, its intervals, and how much was tried.

    Attributes
    ----------
    name, question : of the attack
    scores : the scores of members and non-members
    called : whether each member and each non-member is called a member, or each guess about them is right
    guesses : whether the scores are guesses, right or wrong
    seed : of the attack
    tried : the number of attacks that were run beside this one, and this one
    agreement : how often two seeds call a record the same; None with one seed
    unit : what is attacked: a row, or a person with all of their rows
    """

    _repr_fields = ("name", "auc", "leaks")

    name: str
    question: str
    scores: Scores
    called: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    guesses: bool
    seed: int
    tried: int = 1
    agreement: float | None = None
    unit: str = UNIT

    @cached_property
    def roc(self) -> Roc:
        """The receiver operating characteristic of the scores."""
        return Roc(self.scores.members, self.scores.nonmembers)

    @property
    def auc(self) -> float:
        """The chance that a member scores higher than a non-member; a tie counts half."""
        return self.roc.auc

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the AUC."""
        return self.roc.auc_interval()

    @cached_property
    def decisions(self) -> Decisions:
        """The records that are called members, or the right guesses."""
        return Decisions.of(*self.called)

    @property
    def accuracy(self) -> float:
        """The share of right answers: about membership, or the right guesses about members."""
        return self.decisions.recall if self.guesses else self.decisions.accuracy

    @property
    def baseline(self) -> Baseline:
        """The success without the release."""
        return self.scores.baseline

    @property
    def rates(self) -> dict[float, Rate | None]:
        """The true positive rate at fixed false positive rates; None where too few records support it."""
        return {fpr: self.roc.rate_at(fpr) for fpr in RATES}

    @property
    def leaks(self) -> bool:
        """Whether members score higher than chance explains, and the attacker beats the baseline.

        The error rate of 5 % is shared among all attacks that were tried.
        """
        wrong = (1 - CONFIDENCE) / self.tried
        if not self.guesses:
            return self.roc.chance() < wrong
        found = self.decisions
        right = clopper_pearson(found.true_positives, found.members, 1 - wrong)
        return right.low > self.baseline.accuracy and found.chance() < wrong / 2

    @property
    def word(self) -> str:
        """What the result says, in a word or two."""
        if not self.leaks:
            return "nothing found"
        return "leaks" if self.guesses or self.interval.low > 0.5 else "leaks a little"

    @property
    def verdict(self) -> str:
        """What the result says, in one sentence."""
        if self.leaks and self.guesses:
            others = self.decisions.false_positive_rate
            return (
                f"leaks: {self.accuracy:.1%} of the guesses about members are right, {others:.1%} about others, "
                f"{self.baseline.accuracy:.1%} without the release"
            )
        if self.leaks:
            how = "leaks" if self.interval.low > 0.5 else "leaks a little, more than chance explains"
            return f"{how}: a member scores higher than a non-member in {self.auc:.1%} of all pairs (50 % by guessing)"
        below = self.guesses and self.accuracy < self.baseline.accuracy
        return "no leakage found by this attack" + (f": it is worse than {self.baseline.method}" if below else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        found, scores = self.decisions, self.scores
        return {
            "name": self.name,
            "question": self.question,
            "auc": self.auc,
            "ci": self.interval.to_list(),
            "accuracy": self.accuracy,
            "precision": scores.precision if self.guesses else found.precision,
            "recall": scores.recall if self.guesses else found.recall,
            "advantage": found.advantage,
            "precision_at_prior": {} if self.guesses else found.precisions(),
            "control": found.false_positive_rate,
            "tpr_at_fpr": {f"{fpr:g}": None if rate is None else rate.to_dict() for fpr, rate in self.rates.items()},
            "baseline": self.baseline.to_dict(),
            "n": {"members": len(scores.members), "nonmembers": len(scores.nonmembers)},
            "unit": self.unit,
            "chance": self.decisions.chance() if self.guesses else self.roc.chance(),
            "leaks": self.leaks,
            "verdict": self.verdict,
            "seed": self.seed,
            "references": scores.references,
            "variants": scores.variants,
            "attacks_tried": self.tried,
            "stability": self.agreement,
            "details": dict(scores.details),
        }


def scores_of(attack: Attack, target: Any, members: Any, nonmembers: Any, seed: int) -> Scores:
    """Run an attack on a target, and return one score or guess for each person if people have several records.

    Examples
    --------
    >>> class Oldest(Attack):
    ...     name, question, targets = "oldest", "Is the record that of an old person?", ("model",)
    ...     def run(self, target, members, nonmembers, seed):
    ...         return Scores(members.frame["age"].to_numpy() * 1.0, nonmembers.frame["age"].to_numpy() * 1.0)
    >>> visits = [Records(pl.DataFrame({"age": ages}), people=[1, 1, 2]) for ages in ([80, 82, 70], [20, 21, 30])]
    >>> scores_of(Oldest(), None, *visits, seed=0).members.tolist()
    [81.0, 70.0]
    """
    if members is None or nonmembers is None or attack.knows_people or not (members.repeat or nonmembers.repeat):
        return attack.run(target, members, nonmembers, seed)
    if attack.guesses:
        known = members.take(members.known(seed)), nonmembers.take(nonmembers.known(seed))
        return attack.run(target, *known, seed)
    return attack.run(target, members, nonmembers, seed).of_people(members, nonmembers, add=attack.adds_up)


def unit_of(members: Records | None, nonmembers: Records | None) -> str:
    """Return what is attacked: people if it is known whose each record is, else rows."""
    known = members is not None and nonmembers is not None and members.people is not None
    return PERSON if known else UNIT


def result_of(attack: Attack, runs: Sequence[Scores], *, seed: int, tried: int = 1, unit: str = UNIT) -> AttackResult:
    """Return the result of an attack, run once or with several seeds; the first run is reported.

    Examples
    --------
    >>> class Oldest(Attack):
    ...     name, question, targets = "oldest", "Is the record that of an old person?", ("model",)
    ...     def run(self, target, members, nonmembers, seed):
    ...         return Scores(members.frame["age"].to_numpy() * 1.0, nonmembers.frame["age"].to_numpy() * 1.0)
    >>> old, young = (Records(pl.DataFrame({"age": ages})) for ages in (list(range(60, 90)), list(range(20, 50))))
    >>> result = result_of(Oldest(), [Oldest().run(None, old, young, seed=0)], seed=0)
    >>> result.auc, result.leaks, result.accuracy > 0.95
    (1.0, True, True)
    """
    calls = [_calls(attack, scores, seed + number) for number, scores in enumerate(runs)]
    agreement = None
    if len(calls) > 1 and len({tuple(map(len, pair)) for pair in calls}) == 1:
        agreement = stability([np.concatenate(pair) for pair in calls])
    return AttackResult(attack.name, attack.question, runs[0], calls[0], attack.guesses, seed, tried, agreement, unit)


def _calls(attack: Attack, scores: Scores, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    if scores.called is not None:
        return scores.called
    if attack.guesses:
        return scores.members > 0.5, scores.nonmembers > 0.5
    return crossfit(scores.members, scores.nonmembers, seed=seed)

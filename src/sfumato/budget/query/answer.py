"""The answer to a question as a release of kind ``statistics``: written as ``answer.json``, read back and verified.

The folder holds the question, its terms, the declared domains and bounds, and the noisy answers. The answers do not
show the data behind them, but their groups, cost and intervals follow from the question, so they are derived again.
The state of the ledger, which tells of other questions, is not released.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sfumato._repr import Discreet
from sfumato.budget.accounting.accountant import spent
from sfumato.budget.differential_privacy import DifferentialPrivacy, verify_events
from sfumato.budget.events import Event, Relation
from sfumato.budget.ledger.ledger import Account, Budget
from sfumato.budget.mechanisms.statistics import Answers
from sfumato.budget.people import BOUNDS, BoughtRowsPerPerson, PersonBound
from sfumato.budget.query.discovery import FindRowsPerPerson
from sfumato.budget.query.plan import Plan
from sfumato.budget.query.question import Question
from sfumato.data.certificate import MOST_BYTES, Certificate, is_regular_file, read_plain
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number, same_plain
from sfumato.data.guarantee import Guarantee
from sfumato.data.recipe import Recipe
from sfumato.data.release import Artifact, Layout, Provenance, Release
from sfumato.data.schema import Schema
from sfumato.errors import FileError, InputError, SfumatoError

__all__ = ["QueryAnswer", "Row", "of_people"]

_ANSWER = "answer.json"
_LARGEST = 2**60  # count
_TERMS = ("question", "epsilon", "delta", "discover", "confidence", "whole", "relation", "private", "events")


@dataclass(frozen=True)
class Row:
    """The answer for one group.

    Examples
    --------
    >>> Row({"sex": "f"}, 12, (9, 15)).to_dict()
    {'sex': 'f', 'value': 12, 'interval': [9, 15]}
    """

    group: dict[str, Any]
    """The value of each grouping column; None if it is missing or not in the domain."""
    value: float
    interval: tuple[float, float]
    """The confidence interval of the exact value for this data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {**self.group, "value": self.value, "interval": list(self.interval)}

    def words(self) -> tuple[list[str], str, str]:
        """Return the group, the value and the interval for a person, with as many digits as the interval justifies.

        Examples
        --------
        >>> Row({"sex": None, "age": [0, 60]}, 41.26, (40.54, 41.98)).words()
        (['(other or missing)', '0 to 60'], '41.26', '40.54 to 41.98')
        """
        return (
            [*map(_name, self.group.values())],
            self._digits(self.value),
            " to ".join(map(self._digits, self.interval)),
        )

    def _digits(self, value: float) -> str:
        if isinstance(value, int):
            return f"{value:,}"
        low, high = self.interval
        digits = 0
        while digits < 9 and (high - low) * 10**digits < 20 and value * 10**digits % 1:
            digits += 1
        return f"{value:,.{digits}f}"


def _name(value: Any) -> str:
    if value is None:
        return "(other or missing)"
    return f"{value[0]:g} to {value[1]:g}" if isinstance(value, list) else str(value)


@dataclass(frozen=True, eq=False, repr=False)
class QueryAnswer(Artifact, Discreet):
    """The answer to a question; see `query`.

    Attributes
    ----------
    plan : the question, its terms and the public facts about its columns
    rows : the answer for each group
    relation : the neighbouring relation of the ledger
    private : False if the noise came from a given seed: the answer is then reproducible and not private
    account : the state of the ledger, including this answer; None if the answer was read from a folder
    bought : the bound on the rows of a person, if it was bought
    """

    kind = "statistics"
    layout = Layout((_ANSWER,), ("recipe.toml", "report.html"))
    _repr_fields: ClassVar[tuple[str, ...]] = ("answers",)

    plan: Plan
    rows: tuple[Row, ...]
    relation: Relation
    private: bool = True
    account: Account | None = None
    bought: int | None = None

    @cached_property
    def settled(self) -> Plan:
        """The plan of the answers, with the bound that was bought."""
        return self.plan.settled(self.bought)

    @property
    def spent(self) -> Budget | None:
        """The total cost of all charges, this answer included; None if the answer was read from a folder."""
        return None if self.account is None else self.account.spent

    @property
    def limit(self) -> Budget | None:
        """The limit of the ledger."""
        return None if self.account is None else self.account.limit

    @property
    def left(self) -> float | None:
        """What is left of the budget after this answer."""
        return None if self.account is None else self.account.left

    @property
    def question(self) -> Question:
        """The question."""
        return self.plan.question

    @property
    def answers(self) -> int:
        """The number of answers: one for each group."""
        return len(self.rows)

    @property
    def epsilon(self) -> float:
        """The cost of the answer."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """The delta of the answer: 0 unless its groups were discovered."""
        return self.plan.delta

    @property
    def confidence(self) -> float:
        """The probability that an interval contains the exact value of its group."""
        return self.plan.confidence

    @cached_property
    def event(self) -> Event:
        """The event that was charged."""
        return self.plan.event(self.relation)

    @property
    def schema(self) -> Schema:
        """The columns of the question, with their declared domains and bounds."""
        return self.plan.schema

    @cached_property
    def claims(self) -> dict[str, Any]:
        """The number of answers and, if they are private, their cost by the recorded events."""
        if not self.private:
            return {"answers": self.answers}
        cost = spent(self.event, self.delta, relation=self.relation).epsilon
        return {"answers": self.answers, "epsilon": cost, "delta": self.delta, "relation": self.relation.value}

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything from which the cost, the groups and the intervals follow."""
        more = {"whole": self.plan.whole, "relation": self.relation.value, "private": self.private}
        return {**self.plan.to_dict(), **more, "events": [self.event.to_dict()]}

    def release(self, origin: Path | None) -> Release:
        """Return the answer as a release; its number of rows is private."""
        promise = DifferentialPrivacy(self.epsilon, self.delta, self.relation, self.plan.unit)
        return Release(
            artifact=self,
            method="query",
            parameters=self.parameters,
            guarantees=(promise,) if self.private else (),
            events=(self.event,),
            recipe=Recipe("query", self.plan.to_dict(), self.schema),
            provenance=Provenance.of(origin, None),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values; the state of the ledger is None if it is not known."""
        return {
            "question": str(self.question),
            "rows": [row.to_dict() for row in self.rows],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": self.plan.unit,
            **of_people(self.settled, bought=self.bought is not None),
            "confidence": self.confidence,
            "event": self.event.to_dict(),
            "spent": self.spent and self.spent.to_dict(),
            "limit": self.limit and self.limit.to_dict(),
            "left": self.left,
            "private": self.private,
        }

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write the answers as ``answer.json``."""
        plain = {"question": str(self.question), "confidence": self.confidence}
        if self.bought is not None:
            plain["rows_per_person"] = self.bought
        text = json.dumps({**plain, "rows": [row.to_dict() for row in self.rows]}, allow_nan=False) + "\n"
        if len(text.encode()) > MOST_BYTES:
            raise InputError(
                f"the answer has {len(self.rows):,} groups, and its file would be larger than {MOST_BYTES:,} bytes",
                hint="print it, or ask for fewer groups",
            )
        (folder / _ANSWER).write_text(text, encoding="utf-8")
        return _ANSWER, self

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> QueryAnswer:
        """Read an answer, and reject one that does not fit its question."""
        path, stated = folder / certificate.data, certificate.parameters
        if not is_regular_file(path):
            raise FileError(f"'{certificate.data}' is missing, or not a regular file")
        try:
            if not all(isinstance(stated[name], bool) for name in ("discover", "whole", "private")):
                raise FileError("a term is of another type")
            terms = {name: stated[name] for name in ("epsilon", "delta", "discover", "confidence", "whole")}
            bound = PersonBound.of({name: stated[name] for name in BOUNDS if name in stated})
            plan = Plan(
                Question.parse(stated["question"]),
                certificate.schema,
                **terms,
                person=stated.get("person"),
                bound=bound,
            )
            if stated.keys() != (known := {*_TERMS, *plan.to_dict()}):
                raise FileError(f"{quote(', '.join(sorted(stated.keys() ^ known)))} is missing or unknown")
            rows, bought = _read_rows(read_plain(path), plan)
            return cls(plan, rows, Relation(stated["relation"]), stated["private"], bought=bought)
        except (SfumatoError, *DAMAGED) as error:
            raise FileError(f"'{path}' cannot be used: {reason_of(error)}") from error

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Derive the groups, the cost and the intervals again, and compare the certificate with the recipe."""
        try:
            found = cls.read(folder, certificate)
            derived = [found.event.to_dict()]
        except (SfumatoError, *DAMAGED) as error:
            yield Claim("the answers are those of the question", False, reason_of(error))
            return
        yield Claim("the answers are those of the question", True, found.answers)
        yield from _compare_recipe(folder, certificate, found.plan)
        same = same_plain(certificate.parameters["events"], derived)
        yield Claim("its events are those of the question", same, str(found.event))
        yield from found._verify_promise(certificate)
        yield from found._verify_rows()
        claims = found.claims
        for name in sorted({*claims, *certificate.claims}):
            claimed = certificate.claims.get(name)
            held = same_number(claimed, claims.get(name), precision=1e-6)
            yield Claim(f"{quote(name)} is {quote(claimed)}", held, claims.get(name))
        if certificate.loss or certificate.source.get("rows") is not None:
            yield Claim("nothing else is stated about the data", False, "the certificate names its rows, or a loss")

    def _verify_promise(self, certificate: Certificate) -> Iterator[Claim]:
        if not self.private or len(certificate.guarantees) != 1:
            why = "its noise came from a given seed" if not self.private else f"{len(certificate.guarantees)} are"
            yield Claim("one epsilon is guaranteed", False, why)
            return
        stated = DifferentialPrivacy(self.epsilon, self.delta, self.relation, self.plan.unit).to_dict()
        same = same_plain(certificate.guarantees[0], stated)
        yield Claim("the guarantee is the cost of the question", same, "the same" if same else "another one")
        if same:
            yield from verify_events(certificate.parameters["events"], DifferentialPrivacy.from_plain(stated))

    def _verify_rows(self) -> Iterator[Claim]:
        """Check values and intervals against the noise, as far as they follow from it."""
        statistic = self.settled.statistic(self.relation)
        numbers = [(row.value, *row.interval) for row in self.rows]
        value, low, high = np.array(numbers, dtype=np.int64 if self.plan.counts else np.float64).reshape(-1, 3).T
        wrong = int((~statistic.agrees(Answers(value, low, high))).sum())
        claim = "the values and intervals agree with the noise"
        yield Claim(claim, not wrong, f"{wrong:,} do not" if wrong else f"all {self.answers:,}")
        yield Claim.unchecked("its noise was drawn as described, and from the data", "the answers do not show it")
        if self.plan.discover:
            yield Claim.unchecked("its groups were selected with noise", "the answers do not show it")
        if self.bought is not None:
            claim = f"its {self.bought:,} rows per person were chosen with noise"
            yield Claim.unchecked(claim, "the answers do not show it")
        if self.plan.person is not None:
            yield Claim.unchecked("no more than that of a person was counted", "the answers do not show it")


def of_people(plan: Plan, *, bought: bool) -> dict[str, Any]:
    """Return how much of a person counts as plain values: nothing if rows are protected.

    Examples
    --------
    >>> from sfumato.budget.people import MaxRowsPerPerson
    >>> plan = Plan(Question.parse("count"), Schema([]), 1.0, person="id", bound=MaxRowsPerPerson(3))
    >>> of_people(plan, bought=False)["counted"]
    'rows that count per id: at most 3, drawn at random in secret; a row without one counts as a person of its own'
    """
    if plan.bound is None:
        return {}
    return {"person": plan.person, **plan.bound.to_dict(), "bought": bought, "counted": plan.people_in_words}


def _read_rows(plain: Any, plan: Plan) -> tuple[tuple[Row, ...], int | None]:
    """Return the answers, and the bound on the rows of a person if it was bought."""
    buys = isinstance(plan.bound, BoughtRowsPerPerson)
    known = {"question", "confidence", "rows", *(("rows_per_person",) if buys else ())}
    if not isinstance(plain, dict) or plain.keys() != known:
        raise FileError("it is not an answer of Sfumato")
    bought = plain.get("rows_per_person")
    if buys and (type(bought) is not int or bought not in FindRowsPerPerson.CANDIDATES):
        raise FileError(f"its rows per person cannot have been bought: {quote(bought)}")
    if plain["question"] != str(plan.question) or plain["confidence"] != plan.confidence:
        raise FileError("it answers another question, or with another confidence")
    names, listed = [*plan.names, "value", "interval"], plain["rows"]
    if not isinstance(listed, list) or (plan.groups is not None and len(listed) != plan.groups):
        raise FileError("it has other groups than the question")
    rows = []
    kinds = (int,) if plan.counts else (int, float)
    for one in listed:
        if list(one) != names:
            raise FileError("an answer has other parts than its group, value and interval")
        value, (low, high) = one["value"], one["interval"]
        for number in (value, low, high):
            if type(number) not in kinds or not math.isfinite(number) or (plan.counts and abs(number) > _LARGEST):
                raise FileError("a value is not a finite number of its kind")
        rows.append(Row({name: one[name] for name in plan.names}, value, (low, high)))
    keys = [tuple(row.group.values()) for row in rows]
    if json.dumps(keys) != json.dumps(plan.keys if plan.groups is not None else _discovered(keys, plan)):
        raise FileError("it has other groups than the question")
    return tuple(rows), bought


def _discovered(keys: list[tuple[Any, ...]], plan: Plan) -> list[tuple[Any, ...]]:
    """Return the groups that discovered groups of texts have, each once and with all bins."""
    columns, bins = len(plan.question.groups), len(plan.with_bins([()]))
    found = dict.fromkeys(key[:columns] for key in keys)
    texts = all(part is None or isinstance(part, str) for key in found for part in key)
    return plan.with_bins(list(found)) if texts and len(found) * bins == len(keys) else []


def _compare_recipe(folder: Path, certificate: Certificate, plan: Plan) -> Iterator[Claim]:
    try:
        recipe = Recipe.of_release(folder, "query")
        same = same_plain(recipe.options, plan.to_dict()) and recipe.schema == certificate.schema
        yield Claim("the recipe says the same", same, "the same" if same else "another question, terms or columns")
    except SfumatoError as error:
        yield Claim("the recipe says the same", False, reason_of(error))
    if certificate.method != "query":
        yield Claim("it was made by query", False, quote(certificate.method))

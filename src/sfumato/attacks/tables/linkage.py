"""Linkage: find the released rows that cover a person's quasi-identifiers, and take one of them for the person's.

The attacker knows the quasi-identifiers of people, from a population table for example. Which of the covering rows is
the person's can be checked only by what else the row says. So a guess is right if the guessed row has the person's
values in all other columns, and the control are people who have no row: about them, such a guess is right by chance.
If people have several rows, the attacker knows one of each person's, and a guess is right if the guessed row has the
values of any of their rows.

- Sweeney, *k-anonymity: a model for protecting privacy*, International Journal of Uncertainty, Fuzziness and
  Knowledge-Based Systems 10(5), 2002.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.attacks.people import any_of
from sfumato.attacks.tables.candidates import Candidates, candidates, candidates_of, sparse_counts
from sfumato.attacks.tables.reading import known_columns, read_pairing
from sfumato.errors import ColumnError, did_you_mean
from sfumato.measures.classes import Ints
from sfumato.measures.loss.generalised import Pairing

__all__ = ["Linkage"]


class Linkage(Attack):
    """Take a random row that covers a person's quasi-identifiers for the person's row.

    The details of the result are the mean chances of picking the right row or person, as `sf.assess` measures them: of
    an attacker who knows that the person has a row (prosecutor), and of one who looks for the person of a row in a
    population table (journalist). Without a population table, all records, members or not, are the population. In a
    k-anonymous table the prosecutor's chance is at most 1/k, and never 0. If people have several rows, it is the chance
    of picking the right one of the people who may be in the class, in the smallest class that a person is in.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40], "disease": ["flu", "cold", "ulcer"]})
    >>> outside = pl.DataFrame({"age": [20, 50], "disease": ["cold", "flu"]})
    >>> target = TableTarget(inside, sf.Table.of(inside, qi=["age"], sensitive=["disease"]).schema)
    >>> found = Linkage().run(target, Records(inside), Records(outside), seed=0)
    >>> found.members.tolist(), found.nonmembers.tolist(), found.details["prosecutor"]
    ([1.0, 1.0, 1.0], [0.0, 0.0], 1.0)
    """

    name = "linkage"
    question = "Which released row is this person's?"
    targets = ("table",)
    guesses = True
    knows_people = True

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is None and not target.schema.quasi:
            return "it needs quasi-identifiers (--qi)"
        if found is None and not known_columns(target, without=target.schema.quasi):
            return "it needs a column beside the quasi-identifiers, by which a link can be checked"
        return found

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Guess a row for each person, and check its other columns."""
        quasi = target.schema.quasi
        others = read_pairing(target, members, nonmembers, known_columns(target, without=quasi))
        found = candidates_of(target, members, nonmembers)
        owners = np.concatenate([members.owners, members.persons + nonmembers.owners])
        everyone = np.arange(len(found.of_record))
        guess = found.pick(np.random.default_rng(seed))
        known = np.concatenate([members.known(seed), len(members) + nonmembers.known(seed)])
        guess = guess[known][owners]  # by the one row that is known of each person
        right = any_of(_agree(others, everyone, guess), owners)
        inside, usual = everyone[: len(members)], np.full(len(members), _most_frequent(others))
        baseline = Baseline(
            float(any_of(_agree(others, inside, usual), members.owners).mean()),
            "naming the most frequent combination of the other columns",
        )
        score = right.astype(np.float64)
        details = _prosecutor(found, members.owners, repeat=members.repeat)
        details |= {"journalist": _journalist(found, found.of_record, owners)}
        if target.population is not None:
            if missing := [name for name in quasi if name not in target.population.columns]:
                raise ColumnError(
                    f"the population table has no column '{missing[0]}', which is a quasi-identifier of the release",
                    hint=did_you_mean(missing[0], target.population.columns),
                )
            public = candidates(read_pairing(target, members, Records(target.population), quasi))
            who = target.population.get_column(target.person, default=None) if target.person else None
            population = Records(target.population, people=who).owners
            details |= {"journalist": _journalist(public, public.of_record[len(members) :], population)}
        return Scores(score[: members.persons], score[members.persons :], baseline, details=details)


def _agree(others: Pairing, record: Ints, row: Ints) -> NDArray[np.bool_]:
    """Return whether the row has the record's values; a row that says "anything" does not."""
    right = np.ones(len(record), dtype=bool)
    for column, read in enumerate(others.coverages):
        code = others.meaning[row, column]
        right &= read.covers(code, others.original[record, column]) & ~read.everything[code]
    return right


def _most_frequent(others: Pairing) -> int:
    """Return a released row with the most frequent combination of values."""
    _, of_row, count = np.unique(others.meaning, axis=0, return_inverse=True, return_counts=True)
    return int(np.argmax(count[of_row.ravel()]))


def _prosecutor(found: Candidates, owners: Ints, *, repeat: bool) -> dict[str, Any]:
    """Return the chance of picking a member's row, and how many members have a single one, or any."""
    who = found.of_record[: len(owners)]
    number = found.may_be @ _people_in(found, who, owners) if repeat else found.rows
    row_chance = np.where(found.covered, 1 / np.maximum(number, 1), 0.0)[who]
    chance = np.zeros(int(owners.max()) + 1)
    np.maximum.at(chance, owners, row_chance)
    unique, covered = float(np.mean(chance == 1)), float(any_of(found.covered[who], owners).mean())
    return {"prosecutor": float(chance.mean()), "unique": unique, "covered": covered}


def _people_in(found: Candidates, who: Ints, owners: Ints) -> Ints:
    """Return how many different people each class covers."""
    if int(owners.max(initial=-1)) + 1 == len(owners):
        people = np.bincount(who, minlength=found.people) * found.covered
        return np.asarray(found.may_be.T @ people, dtype=np.int64)
    records = sparse_counts(owners, who, (int(owners.max()) + 1, found.people))
    covers = records @ found.may_be.multiply(found.covered[:, None]).tocsr()
    return np.asarray((covers > 0).sum(axis=0)).ravel().astype(np.int64)


def _journalist(found: Candidates, who: Ints, owners: Ints) -> float:
    """Return the mean chance of picking the person of a row, among the people that the row covers."""
    number = _people_in(found, who, owners)
    some = number > 0
    return float((found.size[some] / number[some]).sum() / max(found.size[some].sum(), 1))

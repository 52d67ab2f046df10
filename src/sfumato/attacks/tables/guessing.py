"""The common form of attacks on a secret: guess a sensitive value from the released rows that may be a person's.

What the attacker knows about a person is how often each sensitive value occurs among the released rows that cover the
person's quasi-identifiers; about people whom no row covers, among the nearest rows. The control are people who are
not in the release: what an attacker guesses right about them follows from people being alike, not from the release of
their rows. Without such people, and without the original records, each released row is guessed from the others of its
class: the attack then needs nothing but the release.

If people have several records, the attacker knows one of each person, drawn at random, and guesses its secret. So the
guess about a class is right as often as people of weight one, split over their rows there, have the guessed value.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.attacks.tables.candidates import candidates_of, sparse_counts
from sfumato.attacks.tables.reading import column_of, read_pairing, secrets
from sfumato.data.coding import encode
from sfumato.data.released_values import MARK
from sfumato.data.schema import Column
from sfumato.engines.tuples import group
from sfumato.errors import InputError
from sfumato.measures.classes import Floats, Ints
from sfumato.measures.loss.generalised import Coverage, pair_codes

__all__ = ["Guesses", "Knowledge", "SecretAttack", "most_frequent"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Knowledge(Discreet):
    """What an attacker knows about the secret of some people.

    Attributes
    ----------
    counts : a sparse matrix of people and released values: how often each occurs among a person's rows
    person : the row of `counts` of each record
    prior : how often each released value occurs in the whole release
    read : what the released values stand for
    truth : the true value of each record, as a position in the universe of values
    """

    counts: Any
    person: Ints
    prior: Ints
    read: Coverage
    truth: Ints

    @cached_property
    def usual(self) -> int:
        """The most frequent released value."""
        return int(np.argmax(self.prior))

    @cached_property
    def kinds(self) -> Ints:
        """The number of different values among the rows of each person."""
        return np.asarray(np.diff(self.counts.indptr), dtype=np.int64)

    def right(self, guess: Ints) -> Bools:
        """Return whether the guess about each record is right; "anything" is not a guess."""
        return self.read.covers(guess, self.truth) & ~self.read.everything[guess]


@dataclass(frozen=True, eq=False, repr=False)
class Guesses(Discreet):
    """Which guesses are right: those of the attacker, and those without the release's classes."""

    right: Bools
    without: Bools
    details: Mapping[str, float] = field(default_factory=dict)


class SecretAttack(Attack):
    """An attack that guesses a sensitive value from the released rows that may be a person's.

    Parameters
    ----------
    column : str, optional
        The column to guess. By default each sensitive column, or the target of a model if there is none.
    """

    targets: ClassVar[tuple[str, ...]] = ("table",)
    guesses = True
    knows_people = True
    baseline: ClassVar[str] = "naming the most frequent value of the release"

    def __init__(self, column: str | None = None) -> None:
        self.column = column

    def parts(self, target: Any) -> tuple[Attack, ...]:
        """Return one attack for each sensitive column of the target, unless one is named."""
        names = secrets(target) if target.kind in self.targets else ()
        if self.column is not None or len(names) < 2:
            return (self,)
        attacks = []
        for name in names:
            attack = copy.copy(self)
            attack.column, attack.name = name, f"{self.name}:{name}"
            attacks.append(attack)
        return tuple(attacks)

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can, also on the release alone."""
        if target.kind not in self.targets:
            return super().obstacle(target, members, nonmembers)
        if not target.schema.quasi:
            return "it needs quasi-identifiers (--qi)"
        if self.column is None and not secrets(target):
            return "it needs a sensitive column (--sensitive)"
        return None

    def run(self, target: Any, members: Records | None, nonmembers: Records | None, seed: int) -> Scores:
        """Guess the secret of each record."""
        column = self.column or secrets(target)[0]
        alone = members is None or nonmembers is None
        rng = np.random.default_rng(seed)
        if members is None or nonmembers is None:
            known = _alone(target, column)
        else:
            known = self.know(target, members, nonmembers, column, seed, rng)
        inside, outside = (self.guess(know, rng) for know in known)
        details = {"column": column, "control": "each row left out of its class" if alone else "other records"}
        return Scores(
            inside.right.astype(np.float64),
            outside.right.astype(np.float64),
            Baseline(float(inside.without.mean()), self.baseline),
            details={**details, **inside.details},
        )

    def know(
        self, target: Any, members: Records, nonmembers: Records, column: str, seed: int, rng: np.random.Generator
    ) -> tuple[Knowledge, Knowledge]:
        """Return what the attacker knows about members and about non-members, by one record of each person."""
        found = candidates_of(target, members, nonmembers)
        secret = read_pairing(target, members, nonmembers, [column])
        read, codes, truth = secret.coverages[0], secret.meaning[:, 0], secret.original[:, 0].astype(np.int64)
        counts, prior = found.counts(codes, len(read)), np.bincount(codes, minlength=len(read))
        places = members.known(seed), len(members) + nonmembers.known(seed)
        inside, outside = (Knowledge(counts, found.of_record[some], prior, read, truth[some]) for some in places)
        return inside, outside

    @abstractmethod
    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Guess the secret of each record from what is known."""


def most_frequent(counts: Any, prior: NDArray[Any]) -> Ints:
    """Return the most frequent value of each person; of several, the one more frequent in the whole release.

    A person without any row gets the most frequent value of the release.

    Examples
    --------
    >>> most_frequent(sparse_counts([0, 0, 1], [0, 1, 1], (3, 2)), np.array([5, 7])).tolist()
    [1, 1, 1]
    """
    owner = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((counts.indices, -prior[counts.indices], -counts.data, owner))
    first = np.unique(owner[order], return_index=True)
    found: Ints = np.full(counts.shape[0], int(np.argmax(prior)))
    found[first[0]] = counts.indices[order][first[1]]
    return found


def _alone(target: Any, column: str) -> tuple[Knowledge, Knowledge]:
    """Return what is known about each released row from its class, with and without the row itself."""
    if not target.frame.height:
        raise InputError("the table that is attacked has no rows")
    quasi = encode([target.frame[name] for name in target.schema.quasi], [Column(name=n) for n in target.schema.quasi])
    marks = [domain.code_of(MARK) for domain in quasi.domains]
    suppressed = (quasi.values == [-1 if mark is None else mark for mark in marks]).all(axis=1)
    kept = np.flatnonzero(~suppressed) if not suppressed.all() else np.arange(len(suppressed))
    series: pl.Series = target.frame[column][kept]
    secret = pair_codes(encode([series], [column_of(target, column)]), [series], MARK)
    read, codes, truth = secret.coverages[0], secret.meaning[:, 0], secret.original[:, 0].astype(np.int64)
    _, person = group(quasi.values[kept], [len(domain) for domain in quasi.domains])
    counts, prior = sparse_counts(person, codes, (int(person.max()) + 1, len(read))), np.bincount(codes)
    everyone = np.arange(len(kept))
    others = counts[person] - sparse_counts(everyone, codes, (len(kept), len(read)))
    others.eliminate_zeros()
    inside = Knowledge(counts, person.astype(np.int64), prior, read, truth)
    return inside, Knowledge(others, everyone, prior, read, truth)


def share_of(known: Knowledge, guess: Ints) -> Floats:
    """Return the share of a guessed value (by person) among the rows of each person; 0 for a person without rows."""
    picked = np.asarray(known.counts[np.arange(len(guess)), guess]).ravel()
    total = np.asarray(known.counts.sum(axis=1)).ravel()
    return np.asarray(picked / np.maximum(total, 1), dtype=np.float64)

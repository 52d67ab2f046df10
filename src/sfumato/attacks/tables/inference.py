"""Inference: guess a person's secret from the released row that is nearest to the person in all other columns.

As in Giomi, Boenisch, Wehmeyer and Tasnádi, *A unified framework for quantifying privacy risk in synthetic data*,
Proceedings on Privacy Enhancing Technologies 2023(2), with these differences from its package anonymeter: a number is
guessed right if it is at most 5 % of the column's range away, whatever its sign; missing values are as near to each
other as equal ones; of several nearest rows a random one is taken; the baseline is the best guess without the other
columns, not a random one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.attacks.base import Attack, Records
from sfumato.attacks.tables.candidates import nearest, sparse_counts
from sfumato.attacks.tables.guessing import Guesses, Knowledge, SecretAttack, most_frequent
from sfumato.attacks.tables.reading import known_columns, read_pairing, secrets, some_known
from sfumato.attacks.tables.similarity import guess_place
from sfumato.data.validate import whole

__all__ = ["Inference"]


class Inference(SecretAttack):
    """Take the secret of the nearest released row for the person's.

    Parameters
    ----------
    column : str, optional
        The column to guess; by default each sensitive column.
    queries : int
        The number of members, and of non-members, about whom the attacker guesses; all, if there are fewer.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import SyntheticTarget
    >>> inside = pl.DataFrame({"age": [20, 30, 40], "disease": ["flu", "cold", "ulcer"]})
    >>> outside = pl.DataFrame({"age": [21, 50], "disease": ["cold", "flu"]})
    >>> target = SyntheticTarget(inside, sf.Table.of(inside, qi=["age"], sensitive=["disease"]).schema)
    >>> found = Inference().run(target, Records(inside), Records(outside), seed=0)
    >>> found.members.tolist(), found.nonmembers.tolist()
    ([1.0, 1.0, 1.0], [0.0, 0.0])
    """

    name = "inference"
    question = "Which sensitive value does the released row have that is most like this person?"
    targets = ("table", "synthetic")
    baseline = "naming the most frequent value, or range, of the release"

    def __init__(self, column: str | None = None, *, queries: int = 1000) -> None:
        super().__init__(column)
        self.queries = whole("the number of guesses", queries, least=2)

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = Attack.obstacle(self, target, members, nonmembers)
        if found is not None:
            return found
        wanted = (self.column,) if self.column is not None else secrets(target)
        if not wanted:
            return "it needs a sensitive column (--sensitive)"
        if not known_columns(target, without=wanted[:1]):
            return "it needs a column beside the sensitive one"
        return None

    def know(
        self, target: Any, members: Records, nonmembers: Records, column: str, seed: int, rng: np.random.Generator
    ) -> tuple[Knowledge, Knowledge]:
        """Return the secret of the row that is nearest to each of some members and non-members."""
        secret = read_pairing(target, members, nonmembers, [column])
        read, codes, truth = secret.coverages[0], secret.meaning[:, 0], secret.original[:, 0].astype(np.int64)
        prior = np.bincount(codes, minlength=len(read))
        both = read_pairing(target, members, nonmembers, known_columns(target, without=[column]))
        known = []
        for some in some_known(members, nonmembers, self.queries, seed, rng):
            row = nearest(both, some).pick(rng)
            everyone = np.arange(len(some))
            counts = sparse_counts(everyone, codes[row], (len(some), len(read)))
            known.append(Knowledge(counts, everyone, prior, read, truth[some]))
        return known[0], known[1]

    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Guess what the nearest row says."""
        asked = {"asked": self.queries}
        if known.read.universe.is_line:
            found = guess_place(known)
            return Guesses(found.right, found.without, asked)
        usual = np.full(len(known.truth), known.usual)
        return Guesses(known.right(most_frequent(known.counts, known.prior)), known.right(usual), asked)

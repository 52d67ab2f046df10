"""Skewness: a sensitive value is more frequent among the rows that may be a person's than in the whole release.

- Li, Li and Venkatasubramanian, *t-closeness: privacy beyond k-anonymity and l-diversity*, ICDE 2007.
"""

from __future__ import annotations

import numpy as np

from sfumato.attacks.tables.guessing import Guesses, Knowledge, SecretAttack, most_frequent, share_of

__all__ = ["Skewness"]


class Skewness(SecretAttack):
    """Name the most frequent sensitive value of the rows that may be a person's.

    The detail ``lift`` is how many times as frequent the guessed value is among these rows as in the whole release, on
    average over the members.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> release = pl.DataFrame({"age": ["20-29"] * 3 + ["30-39"] * 3, "disease": ["a", "a", "b", "b", "b", "a"]})
    >>> target = TableTarget(release, sf.Table.of(release, qi=["age"], sensitive=["disease"]).schema)
    >>> found = Skewness().run(target, None, None, seed=0)
    >>> found.members.tolist(), found.baseline.accuracy, round(found.details["lift"], 3)
    ([1.0, 1.0, 0.0, 1.0, 1.0, 0.0], 0.5, 1.333)
    """

    name = "skewness"
    question = "Which sensitive value is the most frequent among the rows that may be this person's?"

    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Guess the most frequent value of each person's rows."""
        guess = most_frequent(known.counts, known.prior)
        lift = share_of(known, guess) * known.prior.sum() / np.maximum(known.prior[guess], 1)
        usual = np.full(len(known.truth), known.usual)
        mean = float(lift[known.person].mean())
        return Guesses(known.right(guess[known.person]), known.right(usual), {"lift": mean})

"""Homogeneity: all rows that may be a person's have the same sensitive value, so the attacker knows it.

- Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam, *l-diversity: privacy beyond k-anonymity*, ACM Transactions on
  Knowledge Discovery from Data 1(1), 2007.
"""

from __future__ import annotations

import numpy as np

from sfumato.attacks.tables.guessing import Guesses, Knowledge, SecretAttack, most_frequent

__all__ = ["Homogeneity"]


class Homogeneity(SecretAttack):
    """Name the sensitive value of a class that has only one; about all others, guess as without the release.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> disease = ["flu", "flu", "flu", "flu", "cold", "ulcer"]
    >>> release = pl.DataFrame({"age": ["20-29"] * 3 + ["30-39"] * 3, "disease": disease})
    >>> target = TableTarget(release, sf.Table.of(release, qi=["age"], sensitive=["disease"]).schema)
    >>> found = Homogeneity().run(target, None, None, seed=0)  # the release alone is enough
    >>> found.details["certain"], found.members.tolist()
    (0.5, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    """

    name = "homogeneity"
    question = "Which sensitive value do all rows have that may be this person's?"

    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Guess the value of homogeneous classes."""
        certain = known.kinds == 1
        guess = np.where(certain, most_frequent(known.counts, known.prior), known.usual)
        share = float(certain[known.person].mean())
        usual = np.full(len(known.truth), known.usual)
        return Guesses(known.right(guess[known.person]), known.right(usual), {"certain": share})

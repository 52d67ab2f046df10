"""Background knowledge: the attacker can rule out some sensitive values, and the class leaves only one other.

- Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam, *l-diversity: privacy beyond k-anonymity*, ACM Transactions on
  Knowledge Discovery from Data 1(1), 2007.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.attacks.base import Records
from sfumato.attacks.tables.candidates import sparse_counts
from sfumato.attacks.tables.guessing import Guesses, Knowledge, SecretAttack, most_frequent
from sfumato.attacks.tables.reading import secrets
from sfumato.data.validate import whole
from sfumato.measures.classes import Ints

__all__ = ["BackgroundKnowledge"]

_ROUNDS = 200


class BackgroundKnowledge(SecretAttack):
    """Name the sensitive value that is left in a class once values are ruled out that the person is known not to have.

    The values that the attacker can rule out are drawn at random for each person, from all that the person does not
    have. Where several are left, and for the baseline, the guess is the most frequent value of the release that the
    attacker has not ruled out.

    Parameters
    ----------
    column : str, optional
        The column to guess; by default each sensitive column.
    excluded : int
        The number of values that the attacker can rule out.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> release = pl.DataFrame({"age": ["20-29"] * 2 + ["30-39"] * 2, "disease": ["flu", "cold", "flu", "ulcer"]})
    >>> target = TableTarget(release, sf.Table.of(release, qi=["age"], sensitive=["disease"]).schema)
    >>> BackgroundKnowledge(excluded=2).run(target, None, None, seed=0).details["certain"]
    1.0
    """

    name = "background-knowledge"
    question = "Which sensitive value is left once the attacker has ruled some out?"
    baseline = "naming the most frequent value that is not ruled out"

    def __init__(self, column: str | None = None, *, excluded: int = 1) -> None:
        super().__init__(column)
        self.excluded = whole("the number of values that are ruled out", excluded, most=100)

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is not None:
            return found
        column = self.column or secrets(target)[0]
        values = target.frame[column].n_unique()
        if values < self.excluded + 2:
            return (
                f"it needs at least {self.excluded + 2} different values, so that ruling some out leaves a choice, and "
                f"column '{column}' has {values}"
            )
        return None

    def guess(self, known: Knowledge, rng: np.random.Generator) -> Guesses:
        """Rule values out, and guess what is left."""
        record, value = _ruled_out(known, self.excluded, rng)
        out = sparse_counts(record, value, (len(known.truth), len(known.prior)))
        left = known.counts[known.person]
        left = left - left.multiply(out)
        left.eliminate_zeros()
        certain = np.diff(left.indptr) == 1
        usual = _usual(known.prior, record, value, len(known.truth))
        guess = np.where(certain, most_frequent(left, known.prior), usual)
        details = {"certain": float(certain.mean()), "excluded": self.excluded}
        return Guesses(known.right(guess), known.right(usual), details)


def _ruled_out(known: Knowledge, number: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw different values that each person does not have; return pairs of a record and a value.

    Values are drawn again until they fit. A person who has nearly all values may keep fewer.
    """
    values = len(known.prior)
    drawn = rng.integers(0, values, (len(known.truth), min(number, values - 1)))
    fits = np.zeros(drawn.shape, dtype=bool)
    for _ in range(_ROUNDS):
        order = np.argsort(drawn, axis=1, kind="stable")
        ascending = np.take_along_axis(drawn, order, axis=1)
        repeated = np.zeros(drawn.shape, dtype=bool)
        repeated[:, 1:] = ascending[:, 1:] == ascending[:, :-1]
        np.put_along_axis(repeated, order, repeated.copy(), axis=1)
        has = known.read.covers(drawn.ravel(), np.repeat(known.truth, drawn.shape[1])).reshape(drawn.shape)
        fits = ~repeated & ~has
        if fits.all():
            break
        drawn[~fits] = rng.integers(0, values, int((~fits).sum()))
    record, place = np.nonzero(fits)
    return record, drawn[record, place]


def _usual(prior: Ints, record: Ints, value: Ints, records: int) -> Ints:
    """Return the most frequent value that is not ruled out for each record."""
    order = np.argsort(-prior, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    best = np.zeros(records, dtype=np.int64)
    place = np.lexsort((rank[value], record))
    for one, out in zip(record[place].tolist(), rank[value][place].tolist(), strict=True):
        best[one] += best[one] == out
    found: Ints = order[np.minimum(best, len(order) - 1)]
    return found

"""The base of membership attacks on models: they ask a model about records whose labels are known."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Attack, Records

__all__ = ["MEMBERSHIP", "ModelAttack", "two_halves"]

MEMBERSHIP = "Was this record in the training data?"


class ModelAttack(Attack):
    """A membership attack on a model."""

    question = MEMBERSHIP
    targets = ("model",)
    asks_probabilities: ClassVar[bool] = True
    """Whether the attack asks for the probabilities of classes, and not only for the predicted class."""
    fewest: ClassVar[int] = 2
    """The fewest members, and the fewest non-members, that the attack needs."""

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is not None or members is None or nonmembers is None:
            return found
        if self.asks_probabilities and not target.has_probabilities:
            return "the model has no predict_proba"
        if members.labels is None or nonmembers.labels is None:
            return "it needs the labels of the records"
        for name, records in (("members", members), ("non-members", nonmembers)):
            if records.persons < self.fewest:
                return f"it needs at least {self.fewest} {name}, and there are {records.persons}"
        return None


def two_halves(records: Records, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which records are in the first of two random halves, with all records of a person in one of them.

    Examples
    --------
    >>> two_halves(Records(np.arange(7)), np.random.default_rng(0)).sum()
    np.int64(4)
    """
    first = rng.permutation(records.persons) % 2 == 0
    found: NDArray[np.bool_] = first[records.owners]
    return found

"""The signals of records: the probability that the target, and each reference model, gives to a record's own label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.errors import InputError

__all__ = ["LEAST", "Signals", "logit"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST = 1e-12
"""The least probability, so that logarithms stay finite; the votes of forests are smoothed before."""


@dataclass(frozen=True, eq=False, repr=False)
class Signals(Discreet):
    """The probabilities that models give to the own labels of records.

    Attributes
    ----------
    target : of the target, by record
    references : of the reference models, by model and record
    inside : whether each reference model was trained on each record
    """

    _repr_fields = ("models", "records")

    target: Floats
    references: Floats
    inside: Bools

    def __post_init__(self) -> None:
        if self.references.shape != self.inside.shape or self.references.shape[1:] != self.target.shape:
            raise InputError("the signals of the target and of the references are not of the same records")
        for of, values in (("target", self.target), ("references", self.references)):
            if not ((values >= 0) & (values <= 1)).all():
                raise InputError(f"the {of} must give probabilities from 0 to 1")

    @property
    def models(self) -> int:
        """The number of reference models."""
        return len(self.references)

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.target)

    def take(self, records: NDArray[np.int64]) -> Signals:
        """Return the signals of some of the records."""
        return Signals(self.target[records], self.references[:, records], self.inside[:, records])


def logit(p: Floats) -> Floats:
    """Return log(p / (1 - p)), which is about normal for the predictions of a record by many models."""
    p = np.clip(p, LEAST, 1 - LEAST)
    result: Floats = np.log(p) - np.log1p(-p)
    return result

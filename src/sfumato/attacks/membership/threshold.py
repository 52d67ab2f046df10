"""The simplest membership attacks: a model predicts its training data better than other records.

- Yeom, Giacomelli, Fredrikson, Jha, *Privacy risk in machine learning: analyzing the connection to overfitting*, IEEE
  CSF 2018: a record with a small loss is called a member.
- Choquette-Choo, Tramer, Carlini, Papernot, *Label-only membership inference attacks*, ICML 2021: the gap attack calls
  a record a member if its label is predicted right. Its advantage is the training accuracy less the test accuracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.attacks.base import Records, Scores
from sfumato.attacks.membership.attack import ModelAttack
from sfumato.attacks.membership.signals import LEAST

__all__ = ["Gap", "LossThreshold"]


class LossThreshold(ModelAttack):
    """Score a record by the log probability of its label: the loss with the opposite sign."""

    name = "loss"

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score by the loss."""
        inside, outside = (np.log(np.maximum(target.own_label(records), LEAST)) for records in (members, nonmembers))
        return Scores(inside, outside)


class Gap(ModelAttack):
    """Call a record a member if the model predicts its label."""

    name = "gap"
    asks_probabilities = False

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score 1 if the prediction is right, else 0."""
        inside, outside = (target.labels(records) == target.codes(records) for records in (members, nonmembers))
        return Scores(inside.astype(float), outside.astype(float), called=(inside, outside))

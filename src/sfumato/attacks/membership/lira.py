"""LiRA: compare the target's logit for a record with those of models that were, and were not, trained on it.

The attacker trains reference models with the procedure that trained the target, on other rows. A record that the
target predicts better than the references that have never seen it was probably in the target's training data.

- Carlini, Chien, Nasr, Song, Terzis, Tramer, *Membership inference attacks from first principles*, IEEE S&P 2022.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.membership.references import ReferenceAttack
from sfumato.attacks.membership.signals import LEAST, Signals, logit
from sfumato.errors import InputError

__all__ = ["Lira", "LiraOffline", "lira", "lira_offline"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FEW = 64  # references; with fewer, all records share one variance (section VI-B)


class Lira(ReferenceAttack):
    """Online LiRA: the likelihood ratio between models with and without the record."""

    name = "lira"
    models = 4
    adds_up = True

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the likelihood ratio of each record."""
        return lira(signals)


class LiraOffline(ReferenceAttack):
    """Offline LiRA: only reference models that were not trained on the record."""

    name = "lira-offline"
    models = 4

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return how far each record is above the models without it."""
        return lira_offline(signals)


def lira(signals: Signals) -> Floats:
    """Return the likelihood ratio of the target's logit between models with and without the record (online LiRA).

    Examples
    --------
    >>> references = np.array([[0.9, 0.6], [0.8, 0.5], [0.6, 0.9], [0.5, 0.8]])
    >>> inside = np.array([[True, False], [True, False], [False, True], [False, True]])
    >>> lira(Signals(np.array([0.85, 0.55]), references, inside)).round(2).tolist()
    [13.58, -4.54]
    """
    logits, target = logit(signals.references), logit(signals.target)
    with_, width_in = _moments(logits, signals.inside, "trained on it")
    without, width_out = _moments(logits, ~signals.inside, "not trained on it")
    inside = -((target - with_) ** 2) / width_in - np.log(width_in)
    outside = -((target - without) ** 2) / width_out - np.log(width_out)
    result: Floats = (inside - outside) / 2
    return result


def lira_offline(signals: Signals) -> Floats:
    """Return by how many deviations the target's logit exceeds that of models without the record (offline LiRA).

    Examples
    --------
    >>> signals = Signals(np.array([0.9, 0.5]), np.array([[0.5, 0.5], [0.6, 0.6]]), np.zeros((2, 2), bool))
    >>> lira_offline(signals).round(2).tolist()
    [6.96, -0.71]
    """
    without, width = _moments(logit(signals.references), ~signals.inside, "not trained on it")
    result: Floats = (logit(signals.target) - without) / np.sqrt(width)
    return result


def _moments(values: Floats, of: Bools, what: str) -> tuple[Floats, Floats]:
    """Return the mean by record over some of the models, and the variance: one for all records if models are few."""
    count = of.sum(axis=0)
    if count.min() < 2:
        raise InputError(f"each record needs at least two reference models that were {what}, and one has {count.min()}")
    mean = np.where(of, values, 0.0).sum(axis=0) / count
    square = np.where(of, (values - mean) ** 2, 0.0).sum(axis=0)
    if len(values) < _FEW:
        return mean, np.full_like(mean, max(square.sum() / (count - 1).sum(), LEAST))
    return mean, np.maximum(square / (count - 1), LEAST)

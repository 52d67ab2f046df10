"""RMIA: compare a record's likelihood ratio with those of records of the population.

The attacker trains reference models with the procedure that trained the target, on other rows. A record that the
target predicts better than the references that have never seen it was probably in the target's training data.

- Zarifzadeh, Liu, Shokri, *Low-cost high-power membership inference attacks*, ICML 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.membership.references import ReferenceAttack
from sfumato.attacks.membership.signals import LEAST, Signals
from sfumato.data.validate import real
from sfumato.errors import InputError

__all__ = ["Rmia", "RmiaOffline", "rmia", "rmia_offline"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Rmia(ReferenceAttack):
    """Online RMIA: half of the reference models were trained on the record."""

    name = "rmia"

    def score(self, signals: Signals, population: Signals) -> Floats:
        """Return the share of the population that each record beats."""
        return rmia(signals, population)


class RmiaOffline(ReferenceAttack):
    """Offline RMIA: only reference models that were not trained on the record."""

    name = "rmia-offline"

    def score(self, signals: Signals, population: Signals) -> Floats:
        """Return the share of the population that each record beats."""
        return rmia_offline(signals, population)


def rmia(signals: Signals, population: Signals, *, gamma: float = 1.0) -> Floats:
    """Return the share of the population that the record beats by a factor of gamma (online RMIA).

    A record beats another one if the target prefers it, compared with the average of all reference models, by more.
    The population is sorted once: no matrix of records and population is made.

    Examples
    --------
    >>> references = np.array([[0.9, 0.6, 0.7], [0.8, 0.5, 0.7]])
    >>> inside = np.array([[True, False, False], [False, True, True]])
    >>> everyone = Signals(np.array([0.95, 0.5, 0.7]), references, inside)
    >>> rmia(everyone.take(np.array([0])), everyone.take(np.array([1, 2]))).tolist()
    [1.0]
    """
    return _beaten(_online_ratio(signals), _online_ratio(population), gamma)


def rmia_offline(signals: Signals, population: Signals, *, gamma: float = 1.0, a: float = 0.3) -> Floats:
    """Return the share of the population that the record beats (offline RMIA): only models without it are compared.

    Models that were trained on a record predict it better; `a` is the slope by which they do (0: not better than 1/2
    (1 + p), 1: as well as models without it).
    """
    real("a", a, least=0, most=1)
    return _beaten(_offline_ratio(signals, a), _offline_ratio(population, a), gamma)


def _online_ratio(signals: Signals) -> Floats:
    """Return p(x | target) / p(x), where p(x) is half by models with the record and half by models without it."""
    halves = [_mean(signals.references, of) for of in (signals.inside, ~signals.inside)]
    result: Floats = np.maximum(signals.target, LEAST) / np.maximum(sum(halves) / 2, LEAST)
    return result


def _offline_ratio(signals: Signals, a: float) -> Floats:
    without = _mean(signals.references, ~signals.inside)
    result: Floats = np.maximum(signals.target, LEAST) / np.maximum(((1 + a) * without + (1 - a)) / 2, LEAST)
    return result


def _mean(values: Floats, of: Bools) -> Floats:
    count = of.sum(axis=0)
    if not count.all():
        raise InputError("each record needs a reference model that was trained on it, and one that was not")
    result: Floats = np.where(of, values, 0.0).sum(axis=0) / count
    return result


def _beaten(ratio: Floats, population: Floats, gamma: float) -> Floats:
    real("gamma", gamma, above=0)
    result: Floats = np.searchsorted(np.sort(population), ratio / gamma, side="right") / len(population)
    return result

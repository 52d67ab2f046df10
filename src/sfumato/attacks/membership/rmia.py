"""RMIA: compare a record's likelihood ratio with those of records of the population.

The attacker trains reference models with the procedure that trained the target, on other rows. A record that the
target predicts better than the references that have never seen it was probably in the target's training data.

- Zarifzadeh, Liu, Shokri, *Low-cost high-power membership inference attacks*, ICML 2024.
- Tao and Shokri, *(Token-level) InfoRMIA: stronger membership inference and memorization assessment*, arXiv 2510.05582.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.membership.references import ReferenceAttack
from sfumato.attacks.membership.signals import LEAST, Signals
from sfumato.attacks.statistics import Roc
from sfumato.data.validate import real
from sfumato.errors import InputError

__all__ = ["SLOPES", "InfoRmia", "Rmia", "RmiaOffline", "best_slope", "informia", "rmia", "rmia_offline"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SLOPES = tuple(tenth / 10 for tenth in range(11))
"""The slopes that `best_slope` tries."""
_SLOPE = 0.3  # where the references cannot tell; the default of the authors' tool


class Rmia(ReferenceAttack):
    """Online RMIA: half of the reference models were trained on the record."""

    name = "rmia"

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the share of the population that each record beats."""
        return rmia(signals, population)


class RmiaOffline(ReferenceAttack):
    """Offline RMIA: only reference models that were not trained on the record."""

    name = "rmia-offline"
    variants = len(SLOPES)

    def settings(self, signals: Signals) -> dict[str, Any]:
        """Return the slope `a` that finds the members of the first reference model best; see `best_slope`."""
        return {"a": best_slope(signals)}

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the share of the population that each record beats."""
        return rmia_offline(signals, population, **settings)


class InfoRmia(ReferenceAttack):
    """InfoRMIA: how much more a record's likelihood ratio is than that of the population, in nats.

    It orders the records of one target as RMIA does; its scores can be compared among targets.
    """

    name = "informia"

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the information that the target has about each record beyond that about the population."""
        return informia(signals, population)


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
    ratio, others = (_ratio(one.target, _average(one)) for one in (signals, population))
    return _beaten(ratio, others, gamma)


def rmia_offline(signals: Signals, population: Signals, *, gamma: float = 1.0, a: float = 0.3) -> Floats:
    """Return the share of the population that the record beats (offline RMIA): only models without it are compared.

    Models that were trained on a record predict it better: if the others give it p, they give it a p + 1 - a.
    """
    real("a", a, least=0, most=1)
    both = (signals, population)
    ratio, others = (_ratio(one.target, _both(_mean(one.references, ~one.inside), a)) for one in both)
    return _beaten(ratio, others, gamma)


def best_slope(signals: Signals) -> float:
    """Return the slope with the largest AUC if the first reference model is attacked with the others.

    Its members are known, so nothing about the target is used.
    """
    outside = ~signals.inside[1:]
    usable = outside.any(axis=0)
    members = signals.inside[0]
    if not (members & usable).any() or not (~members & usable).any():
        return _SLOPE
    attacked, members = signals.references[0][usable], members[usable]
    without = _mean(signals.references[1:, usable], outside[:, usable])
    found = {a: Roc(*_by(_ratio(attacked, _both(without, a)), members)).auc for a in SLOPES}
    return max(found, key=lambda a: (found[a], -abs(a - _SLOPE)))


def informia(signals: Signals, population: Signals) -> Floats:
    """Return log(p(x | target) / p(x)) less its mean over the population, weighted by p(z) (InfoRMIA).

    Examples
    --------
    >>> references = np.array([[0.9, 0.6, 0.7], [0.8, 0.5, 0.7]])
    >>> inside = np.array([[True, False, False], [False, True, True]])
    >>> everyone = Signals(np.array([0.95, 0.5, 0.7]), references, inside)
    >>> informia(everyone.take(np.array([0])), everyone.take(np.array([1, 2]))).round(3).tolist()
    [0.153]
    """
    weights = _average(population)
    others = np.log(_ratio(population.target, weights))
    result: Floats = np.log(_ratio(signals.target, _average(signals))) - np.average(
        others, weights=np.maximum(weights, LEAST)
    )
    return result


def _average(signals: Signals) -> Floats:
    """Return p(x): half by models with the record and half by models without it."""
    with_, without = (_mean(signals.references, of) for of in (signals.inside, ~signals.inside))
    result: Floats = (with_ + without) / 2
    return result


def _both(without: Floats, a: float) -> Floats:
    """Return p(x), given that by models without the record: a model with it gives a p + 1 - a."""
    return ((1 + a) * without + (1 - a)) / 2


def _ratio(target: Floats, average: Floats) -> Floats:
    """Return p(x | target) / p(x)."""
    result: Floats = np.maximum(target, LEAST) / np.maximum(average, LEAST)
    return result


def _by(values: Floats, members: Bools) -> tuple[Floats, Floats]:
    return values[members], values[~members]


def _mean(values: Floats, of: Bools) -> Floats:
    count = of.sum(axis=0)
    if not count.all():
        raise InputError(
            "each record needs a reference model that was trained on it, and one that was not",
            hint="train more reference models",
        )
    result: Floats = np.where(of, values, 0.0).sum(axis=0) / count
    return result


def _beaten(ratio: Floats, population: Floats, gamma: float) -> Floats:
    """Return the share of the population whose ratio is less than that of a record by more than gamma, strictly."""
    real("gamma", gamma, above=0)
    result: Floats = np.searchsorted(np.sort(population), ratio / gamma, side="left") / len(population)
    return result

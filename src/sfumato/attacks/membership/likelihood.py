"""Membership scores from reference models: LiRA and RMIA.

The attacker trains reference models with the procedure that trained the target, on other rows. A record that the
target predicts better than the references that have never seen it was probably in the target's training data.

Every function takes the *signals* of records: the probability that the target, and each reference model, gives to the
record's own label. All scores are higher for members.

- Carlini, Chien, Nasr, Song, Terzis, Tramer, *Membership inference attacks from first principles*, IEEE S&P 2022: LiRA.
- Zarifzadeh, Liu, Shokri, *Low-cost high-power membership inference attacks*, ICML 2024: RMIA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.validate import real
from sfumato.errors import InputError

__all__ = ["Signals", "lira", "lira_offline", "rmia", "rmia_offline"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_LEAST = 1e-12  # the least probability; forests are smoothed before, see `smooth`
_FEW = 64  # references; with fewer, all records share one variance (Carlini et al., section VI-B)


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


def _logit(p: Floats) -> Floats:
    """Return log(p / (1 - p)), which is about normal for the predictions of a record by many models."""
    p = np.clip(p, _LEAST, 1 - _LEAST)
    result: Floats = np.log(p) - np.log1p(-p)
    return result


def _moments(values: Floats, of: Bools, what: str) -> tuple[Floats, Floats]:
    """Return the mean by record over some of the models, and the variance: by record, or one for all if models are few."""
    count = of.sum(axis=0)
    if count.min() < 2:
        raise InputError(f"each record needs at least two reference models that were {what}, and one has {count.min()}")
    mean = np.where(of, values, 0.0).sum(axis=0) / count
    square = np.where(of, (values - mean) ** 2, 0.0).sum(axis=0)
    if len(values) < _FEW:
        return mean, np.full_like(mean, max(square.sum() / (count - 1).sum(), _LEAST))
    return mean, np.maximum(square / (count - 1), _LEAST)


def lira(signals: Signals) -> Floats:
    """Return the likelihood ratio of the target's logit between models with and without the record (online LiRA).

    Examples
    --------
    >>> references = np.array([[0.9, 0.6], [0.8, 0.5], [0.6, 0.9], [0.5, 0.8]])
    >>> inside = np.array([[True, False], [True, False], [False, True], [False, True]])
    >>> lira(Signals(np.array([0.85, 0.55]), references, inside)).round(2).tolist()
    [13.58, -4.54]
    """
    logits, target = _logit(signals.references), _logit(signals.target)
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
    without, width = _moments(_logit(signals.references), ~signals.inside, "not trained on it")
    result: Floats = (_logit(signals.target) - without) / np.sqrt(width)
    return result


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
    result: Floats = np.maximum(signals.target, _LEAST) / np.maximum(sum(halves) / 2, _LEAST)
    return result


def _offline_ratio(signals: Signals, a: float) -> Floats:
    without = _mean(signals.references, ~signals.inside)
    result: Floats = np.maximum(signals.target, _LEAST) / np.maximum(((1 + a) * without + (1 - a)) / 2, _LEAST)
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

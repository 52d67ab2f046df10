"""BaVarIA: LiRA whose variances are estimated in the Bayesian way, for few reference models.

A handful of logits says little about their variance. LiRA then takes one variance for all records; BaVarIA combines a
prior from all records with the record's own logits: a normal-inverse-gamma prior for each of the two cases (with and
without the record), whose posterior predictive is Student's t.

- Brannvall, *Exponential-family membership inference: from LiRA and RMIA to BaVarIA*, arXiv 2603.11799: the form "t"
  with the prior of one observation (kappa 1, alpha 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sfumato.attacks.membership.references import ReferenceAttack
from sfumato.attacks.membership.signals import LEAST, Signals, logit

__all__ = ["Bavaria", "BavariaOffline", "bavaria"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KAPPA, _ALPHA = 1.0, 2.0


class Bavaria(ReferenceAttack):
    """Online BaVarIA: the ratio of the predictive densities with and without the record."""

    name = "bavaria"
    adds_up = True

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the likelihood ratio of each record."""
        return bavaria(signals)


class BavariaOffline(ReferenceAttack):
    """Offline BaVarIA: models with the record are known only by what they do with members on average."""

    name = "bavaria-offline"
    adds_up = True

    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the likelihood ratio of each record."""
        return bavaria(signals, online=False)


def bavaria(signals: Signals, *, online: bool = True) -> Floats:
    """Return the log ratio of the predictive densities of the target's logit, with and without the record.

    Offline, the models with the record are described by the prior alone: the logits of all members of all reference
    models.

    Examples
    --------
    >>> references = np.array([[0.9, 0.6], [0.8, 0.5], [0.6, 0.9], [0.5, 0.8]])
    >>> inside = np.array([[True, False], [True, False], [False, True], [False, True]])
    >>> bavaria(Signals(np.array([0.85, 0.55]), references, inside)).round(2).tolist()
    [7.9, -5.45]
    """
    logits, target = logit(signals.references), logit(signals.target)
    with_ = _log_density(target, logits, signals.inside, learned=online)
    result: Floats = with_ - _log_density(target, logits, ~signals.inside, learned=True)
    return result


def _log_density(target: Floats, logits: Floats, of: Bools, *, learned: bool) -> Floats:
    """Return the log density of Student's t that is predicted from some of the models, up to a common constant."""
    every = logits[of]
    prior = every.mean() if len(every) else 0.0
    spread = every.var() if len(every) else 1.0
    count = of.sum(axis=0) if learned else np.zeros(len(target))
    total = np.where(of, logits, 0.0).sum(axis=0) if learned else np.zeros(len(target))
    mean = np.where(count > 0, total / np.maximum(count, 1), prior)
    square = np.where(of, (logits - mean) ** 2, 0.0).sum(axis=0) if learned else np.zeros(len(target))
    kappa, alpha = _KAPPA + count, _ALPHA + count / 2
    beta = max(spread * (_ALPHA - 1), LEAST) + square / 2 + _KAPPA * count * (mean - prior) ** 2 / kappa / 2
    centre = (_KAPPA * prior + total) / kappa
    width, freedom = beta * (kappa + 1) / (alpha * kappa), 2 * alpha
    result: Floats = (
        special.gammaln((freedom + 1) / 2)
        - special.gammaln(freedom / 2)
        - np.log(freedom * width) / 2
        - (freedom + 1) / 2 * np.log1p((target - centre) ** 2 / (freedom * width))
    )
    return result

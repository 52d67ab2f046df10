"""The attack network: learn from known members and non-members what the target's predictions about members look like.

The attacker is strong: half of the training data is known, and as many other records. A small network gets the logit
of each class, the record's label and the logit of that, and predicts membership. Two networks are trained, each on half
of the records; each judges only the other half, so that no record is judged by a network that has seen it.

- Shokri, Stronati, Song, Shmatikov, *Membership inference attacks against machine learning models*, IEEE S&P 2017.
- Goldsteen, Ezov, Shmelkin, Moffie, Farkash, *Anonymizing machine learning models*, DPM 2021, whose Table 1 reports
  the accuracy of this attack. Their network is larger, and has to find out by itself which class is the record's own.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Records, Scores
from sfumato.attacks.membership.attack import ModelAttack, two_halves
from sfumato.attacks.membership.signals import logit

__all__ = ["AttackNetwork"]

Floats = NDArray[np.float64]

_HIDDEN = (64, 32)
_BATCH = 100  # as published
_EPOCHS = 30


class AttackNetwork(ModelAttack):
    """A network that is trained on half of the members and as many non-members, and judges the others.

    Examples
    --------
    >>> from sfumato.attacks import ModelTarget, attacks_of, run_attacks
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> inside, outside = (Records(rng.normal(size=(100, 3)), rng.integers(0, 2, 100)) for _ in range(2))
    >>> target = ModelTarget(DecisionTreeClassifier(random_state=0).fit(inside.rows, inside.labels))
    >>> run_attacks(attacks_of(["network"]), target, inside, outside).leaks
    True
    """

    name = "network"
    fewest = 20

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score by the logit of the network's probability of membership; it calls those above 1/2 members."""
        given = [_features(target, records) for records in (members, nonmembers)]
        rng = np.random.default_rng(seed)
        halves = [two_halves(records, rng) for records in (members, nonmembers)]
        scores = [np.empty(len(rows)) for rows in given]
        for here in (True, False):
            known = [rows[half != here] for rows, half in zip(given, halves, strict=True)]
            network = _network(known, rng)
            for rows, half, found in zip(given, halves, scores, strict=True):
                found[half == here] = logit(network.predict_proba(rows[half == here])[:, 1])
        inside, outside = scores
        return Scores(inside, outside, called=(inside > 0, outside > 0), details={"known": "half of the records"})


def _features(target: Any, records: Records) -> Floats:
    """Return the logit of the record's own class, that of each class, and the label as one column per class."""
    p, codes = target.probabilities(records), target.codes(records)
    logits = logit(p)
    result: Floats = np.hstack([logits[np.arange(len(p)), codes, None], logits, np.eye(p.shape[1])[codes]])
    return result


def _network(known: list[Floats], rng: np.random.Generator) -> Any:
    """Return a network that tells known members from as many known non-members."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count = min(map(len, known))
    inside, outside = (rows[rng.permutation(len(rows))[:count]] for rows in known)
    learner = MLPClassifier(_HIDDEN, batch_size=min(_BATCH, 2 * count), max_iter=_EPOCHS)
    network = make_pipeline(StandardScaler(), learner.set_params(random_state=int(rng.integers(2**31))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is fixed
        return network.fit(np.vstack([inside, outside]), np.repeat([1, 0], count))

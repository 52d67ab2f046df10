"""What the scores of an attack show: ROC, AUC, rates at fixed false alarms, decisions, and how sure they are.

An attack gives every record a score; members of the training data should score higher. All figures count tied scores
together: a threshold takes all records of a score or none of them, and no rate is interpolated between two thresholds.

- Carlini et al., *Membership inference attacks from first principles*, IEEE S&P 2022: why the true positive rate at a
  low false positive rate is reported beside the AUC.
- Birnbaum and Klose, *Bounds for the variance of the Mann-Whitney statistic*, Annals of Mathematical Statistics 28(4),
  1957: the variance of an AUC is at most AUC (1 - AUC) / min(m, n), whatever the distribution of the scores. The
  interval of an AUC is therefore Wilson's for min(m, n) trials.
- Mann and Whitney, *On a test of whether one of two random variables is stochastically larger than the other*, Annals
  of Mathematical Statistics 18(1), 1947: whether members score higher than chance explains.
- Clopper and Pearson, *The use of confidence or fiducial limits*, Biometrika 26(4), 1934: the interval of a rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sfumato._repr import Discreet
from sfumato.data.validate import real, whole
from sfumato.errors import InputError

__all__ = [
    "CONFIDENCE",
    "FALSE_POSITIVES_NEEDED",
    "PRIORS",
    "Decisions",
    "Interval",
    "Rate",
    "Roc",
    "clopper_pearson",
    "crossfit",
    "precision_at",
    "stability",
    "wilson",
]

CONFIDENCE = 0.95
"""The confidence of every interval."""

FALSE_POSITIVES_NEEDED = 20
"""A true positive rate is reported only where at least so many non-members may score above the threshold."""

PRIORS = (0.01, 0.1, 0.5)
"""The shares of members among all candidates for which a precision is reported."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_list(self) -> list[float]:
        """Return both ends."""
        return [self.low, self.high]


def clopper_pearson(count: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the exact interval of a rate: the true rate is outside at most as often as stated.

    Examples
    --------
    >>> round(clopper_pearson(0, 20).high, 3)
    0.168
    """
    whole("the number of trials", trials, least=1)
    whole("the count", count, least=0, most=trials)
    tail = (1 - real("the confidence", confidence, above=0, below=1)) / 2
    low = float(special.betaincinv(count, trials - count + 1, tail)) if count else 0.0
    high = float(special.betaincinv(count + 1, trials - count, 1 - tail)) if count < trials else 1.0
    return Interval(low, high)


def wilson(share: float, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the values whose distance to `share` is at most z standard errors, for a variance of p (1 - p) / trials.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0.5, 100).to_list()]
    [0.404, 0.596]
    """
    z2 = float(special.ndtri(0.5 + confidence / 2)) ** 2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(z2 * (share * (1 - share) / trials + z2 / (4 * trials**2))) / (1 + z2 / trials)
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))


@dataclass(frozen=True)
class Rate:
    """The share of members above a threshold that few non-members exceed."""

    fpr: float
    """The false positive rate that was asked for; the threshold's own is at most that."""
    tpr: float
    interval: Interval
    false_positives: int
    """The number of non-members above the threshold."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rate as plain values."""
        return {"tpr": self.tpr, "ci": self.interval.to_list(), "false_positives": self.false_positives}


class Roc(Discreet):
    """The receiver operating characteristic of scores.

    Parameters
    ----------
    members, nonmembers : array of floats
        The scores of records that were in the training data, and of others. Infinite scores are allowed, NaN is not.

    Examples
    --------
    >>> roc = Roc([3.0, 2.0, 2.0], [2.0, 1.0])
    >>> round(roc.auc, 3)
    0.833
    >>> roc.thresholds.tolist(), roc.true_positives.tolist(), roc.false_positives.tolist()
    ([3.0, 2.0, 1.0], [1, 3, 3], [0, 1, 2])
    """

    _repr_fields = ("auc", "members", "nonmembers")

    def __init__(self, members: ArrayLike, nonmembers: ArrayLike) -> None:
        inside, outside = _scores("members", members), _scores("non-members", nonmembers)
        self.members, self.nonmembers = len(inside), len(outside)
        ascending, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
        self.thresholds: Floats = ascending[::-1]
        """The different scores, the highest first; a record at a threshold counts as above it."""
        self._inside: Ints = np.bincount(place[: len(inside)], minlength=len(ascending))[::-1]
        self._outside: Ints = np.bincount(place[len(inside) :], minlength=len(ascending))[::-1]
        self.true_positives: Ints = np.cumsum(self._inside)
        self.false_positives: Ints = np.cumsum(self._outside)

    @cached_property
    def auc(self) -> float:
        """The chance that a member scores higher than a non-member; a tie counts half."""
        return float(_auc(self._inside[None], self._outside[None])[0])

    def auc_interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return an interval for the AUC of all possible records of this target, whatever the scores' distribution."""
        return wilson(self.auc, min(self.members, self.nonmembers), confidence)

    def chance(self) -> float:
        """Return how often chance alone orders members and non-members so well, if they do not differ.

        This is the one-sided test of Mann and Whitney (1947) by its normal approximation, corrected for ties and for
        continuity; for scores of two values it is Fisher's exact test.

        Examples
        --------
        >>> [round(Roc(*one).chance(), 3) for one in (([3, 4, 5], [0, 1, 2]), ([1, 1, 1], [0, 0, 0]), ([1], [1]))]
        [0.04, 0.05, 1.0]
        """
        if len(self.thresholds) == 1:
            return 1.0
        if len(self.thresholds) == 2:
            return Decisions(int(self._inside[0]), self.members, int(self._outside[0]), self.nonmembers).chance()
        pairs, everyone = self.members * self.nonmembers, self.members + self.nonmembers
        tied = (self._inside + self._outside).astype(np.float64)
        variance = pairs / 12 * (everyone + 1 - (tied**3 - tied).sum() / (everyone * (everyone - 1)))
        return float(special.ndtr(-((self.auc - 0.5) * pairs - 0.5) / math.sqrt(variance)))

    def rate_at(self, fpr: float) -> Rate | None:
        """Return the best rate with at most `fpr` false positives; None if too few non-members support it.

        Examples
        --------
        >>> roc = Roc(np.arange(50, 250), np.arange(200))
        >>> rate = roc.rate_at(0.1)
        >>> rate.tpr, round(rate.interval.low, 2), round(rate.interval.high, 2), rate.false_positives
        (0.35, 0.28, 0.42, 20)
        >>> roc.rate_at(0.01) is None
        True
        """
        allowed = math.floor(real("the false positive rate", fpr, above=0, below=1) * self.nonmembers + 1e-9)
        if allowed < FALSE_POSITIVES_NEEDED:
            return None
        last = int(np.searchsorted(self.false_positives, allowed, side="right")) - 1
        hits = int(self.true_positives[last]) if last >= 0 else 0
        alarms = int(self.false_positives[last]) if last >= 0 else 0
        return Rate(fpr, hits / self.members, clopper_pearson(hits, self.members), alarms)

    def curve(self, rates: ArrayLike) -> Floats:
        """Return the true positive rate with at most as many false positives, for each false positive rate.

        Examples
        --------
        >>> Roc([3.0, 2.0, 2.0], [2.0, 1.0]).curve([0.1, 0.5, 1.0]).round(3).tolist()
        [0.333, 1.0, 1.0]
        """
        allowed = np.floor(np.asarray(rates, dtype=np.float64) * self.nonmembers + 1e-9)
        last = np.searchsorted(self.false_positives, allowed, side="right") - 1
        result: Floats = np.where(last >= 0, self.true_positives[last], 0) / self.members
        return result

    def best_threshold(self) -> float:
        """Return the threshold with the largest difference of true and false positive rate, midway between two scores.

        Examples
        --------
        >>> Roc([3.0, 2.0], [1.0, 0.0]).best_threshold()
        1.5
        """
        gain = self.true_positives / self.members - self.false_positives / self.nonmembers
        best = int(np.flatnonzero(gain == gain.max())[-1])
        if gain[best] <= 0:
            return math.inf
        above, below = (float(self.thresholds[min(best + step, len(gain) - 1)]) for step in (0, 1))
        return (above + below) / 2 if math.isfinite(above) and math.isfinite(below) else above

    def band(self, rates: ArrayLike, *, replicates: int = 200, seed: int = 0) -> tuple[Floats, Floats]:
        """Return bounds of the true positive rate at false positive rates, by resampling members and non-members.

        Examples
        --------
        >>> low, high = Roc(np.arange(50, 250), np.arange(200)).band([0.1, 0.5])
        >>> bool(np.all(low < [0.35, 0.75]) and np.all(high > [0.35, 0.75]))
        True
        """
        rng = np.random.default_rng(seed)
        at = np.asarray(rates, dtype=np.float64)
        drawn = np.empty((replicates, len(at)))
        for row in drawn:
            inside = np.cumsum(rng.multinomial(self.members, self._inside / self.members))
            outside = np.cumsum(rng.multinomial(self.nonmembers, self._outside / self.nonmembers))
            last = np.searchsorted(outside, np.floor(at * self.nonmembers + 1e-9), side="right") - 1
            row[:] = np.where(last >= 0, inside[last], 0) / self.members
        low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
        return low, high


def _auc(inside: Ints, outside: Ints) -> Floats:
    """Return the AUC of each row of counts by score, the highest score first."""
    below = outside.sum(axis=1, keepdims=True) - np.cumsum(outside, axis=1)
    wins = (inside * (below + outside / 2)).sum(axis=1)
    result: Floats = wins / (inside.sum(axis=1) * outside.sum(axis=1))
    return result


def _scores(of: str, values: ArrayLike) -> Floats:
    scores = np.asarray(values, dtype=np.float64).ravel()
    if not len(scores):
        raise InputError(f"an attack needs scores of {of}, and got none")
    if np.isnan(scores).any():
        raise InputError(f"{np.count_nonzero(np.isnan(scores))} of {len(scores)} scores of {of} are NaN")
    return scores


@dataclass(frozen=True)
class Decisions:
    """What an attacker who calls each record a member or not gets right, for as many members as non-members.

    Attributes
    ----------
    true_positives, members : the members that were called members, and all
    false_positives, nonmembers : the non-members that were called members, and all

    Examples
    --------
    >>> Decisions.of(*crossfit([0.9, 0.8, 0.7, 0.4], [0.6, 0.3, 0.2, 0.1], seed=0)).accuracy
    0.75
    """

    true_positives: int
    members: int
    false_positives: int
    nonmembers: int

    @classmethod
    def of(cls, members: ArrayLike, nonmembers: ArrayLike) -> Decisions:
        """Count the members and the non-members that were called members."""
        inside, outside = np.asarray(members, dtype=bool), np.asarray(nonmembers, dtype=bool)
        return cls(int(inside.sum()), len(inside), int(outside.sum()), len(outside))

    @property
    def recall(self) -> float:
        """The share of members that are called members."""
        return self.true_positives / self.members

    @property
    def false_positive_rate(self) -> float:
        """The share of non-members that are called members."""
        return self.false_positives / self.nonmembers

    @property
    def advantage(self) -> float:
        """The true positive rate minus the false positive rate."""
        return self.recall - self.false_positive_rate

    @property
    def accuracy(self) -> float:
        """The share of right calls if half of the candidates are members."""
        return (1 + self.advantage) / 2

    @property
    def precision(self) -> float:
        """The share of members among those who are called members, if half of the candidates are members."""
        return precision_at(0.5, self.recall, self.false_positive_rate)

    def chance(self) -> float:
        """Return how often chance alone calls so many of the called records members (Fisher's exact test).

        Examples
        --------
        >>> round(Decisions(3, 3, 0, 3).chance(), 3)
        0.05
        """
        records, called = self.members + self.nonmembers, self.true_positives + self.false_positives
        # The number of called members is at least this, if the called records are a random subset of all.
        possible = np.arange(self.true_positives, min(called, self.members) + 1)
        ways = _choose(self.members, possible) + _choose(self.nonmembers, called - possible)
        return float(np.exp(special.logsumexp(ways) - _choose(records, called)))

    def precisions(self) -> dict[str, float]:
        """Return the precision for several shares of members among all candidates."""
        return {f"{prior:g}": precision_at(prior, self.recall, self.false_positive_rate) for prior in PRIORS}


def crossfit(members: ArrayLike, nonmembers: ArrayLike, *, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Call records members by their scores: the threshold of each half of the records is chosen on the other half.

    So no record helps to judge itself, and an attack without any power is right about half of the time.

    Examples
    --------
    >>> [calls.tolist() for calls in crossfit([9, 8, 7, 6], [4, 3, 2, 1], seed=0)]
    [[True, True, True, True], [False, False, False, False]]
    """
    inside, outside = _scores("members", members), _scores("non-members", nonmembers)
    if min(len(inside), len(outside)) < 2:
        raise InputError("a threshold needs at least two members and two non-members")
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(len(scores)) % 2 == 0 for scores in (inside, outside)]
    called = (np.zeros(len(inside), dtype=bool), np.zeros(len(outside), dtype=bool))
    for here in (True, False):
        chosen = Roc(inside[halves[0] != here], outside[halves[1] != here]).best_threshold()
        for verdict, scores, half in zip(called, (inside, outside), halves, strict=True):
            verdict[half == here] = scores[half == here] >= chosen
    return called


def _choose(of: int, number: ArrayLike) -> Any:
    """Return the logarithm of a binomial coefficient."""
    number = np.asarray(number)
    return special.gammaln(of + 1) - special.gammaln(number + 1) - special.gammaln(of - number + 1)


def precision_at(prior: float, tpr: float, fpr: float) -> float:
    """Return the share of members among those above a threshold, if `prior` of the candidates are members.

    Examples
    --------
    >>> round(precision_at(0.5, 0.6, 0.2), 3), round(precision_at(0.01, 0.6, 0.2), 3)
    (0.75, 0.029)
    """
    hits, alarms = prior * tpr, (1 - prior) * fpr
    return hits / (hits + alarms) if hits + alarms else 0.0


def stability(verdicts: Sequence[ArrayLike]) -> float:
    """Return how often two runs of an attack with different seeds agree about a record, on average.

    Examples
    --------
    >>> round(stability([[True, False, True], [True, True, True]]), 3)
    0.667
    """
    runs = np.asarray(verdicts, dtype=bool)
    if runs.ndim != 2 or len(runs) < 2:
        raise InputError("the stability of an attack needs the verdicts of at least two runs")
    yes = runs.sum(axis=0, dtype=np.float64)
    pairs = len(runs) * (len(runs) - 1)
    return float(np.mean((yes * (yes - 1) + (len(runs) - yes) * (len(runs) - yes - 1)) / pairs))

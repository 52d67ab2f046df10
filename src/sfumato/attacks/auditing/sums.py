"""Audit the noisy sums that the classical estimators learn from, with canaries that move one number of every sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.attacks.auditing.audit import AuditResult
from sfumato.attacks.auditing.canaries import coins
from sfumato.attacks.auditing.observation import Observation
from sfumato.attacks.statistics import CONFIDENCE
from sfumato.budget.accounting.accountant import spent
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.validate import real, whole
from sfumato.learners.estimators.noisy_sums import NoisySums

__all__ = ["audit_sums", "observe_sums"]

_CANARIES = 1000


def audit_sums(
    sums: NoisySums,
    *,
    delta: float = 1e-5,
    norm: float = 1.0,
    canaries: int = _CANARIES,
    rows_per_person: int | None = None,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> AuditResult:
    """Test the noise of an estimator's sums: all of them, as often as the estimator would ask for them.

    Every canary moves a number of its own, by the whole norm, in each sum. That the records of an estimator move its
    sums by no more than the norm is another question: `replay` answers it.

    If the sums protect people, a canary is a person with as many equal rows as they allow. Sums of rows can be tested
    for people who have several, with ``rows_per_person``: then they fail.

    Examples
    --------
    >>> from sfumato.budget import Source
    >>> from sfumato.learners.estimators.noisy_sums import Share
    >>> sums = NoisySums({"counts": Share(1, 0.2), "gradients": Share(10, 0.8)}, 2.0, Source(insecure_seed=1))
    >>> result = audit_sums(sums, canaries=400)
    >>> result.passed, round(result.claimed.epsilon, 2)
    (True, 1.99)
    """
    seen = observe_sums(sums, delta=delta, norm=norm, canaries=canaries, rows_per_person=rows_per_person, seed=seed)
    return seen.result("one run of the sums with canaries in each", confidence=confidence, seed=seed)


def observe_sums(
    sums: NoisySums,
    *,
    delta: float,
    canaries: int,
    seed: int,
    norm: float = 1.0,
    rows_per_person: int | None = None,
    names: Sequence[str] | None = None,
    events: tuple[Event, ...] | None = None,
) -> Observation:
    """Ask for sums, by default for all, with canaries in each, and return what was observed.

    Values are in the most that the sums are made for: the norm of a row, or that of as many rows as a person may have.
    """
    included, allowed = coins(canaries, seed), sums.rows_per_person or 1
    rows = allowed if rows_per_person is None else whole("the rows of a person", rows_per_person)
    unit = UNIT if sums.rows_per_person is None and rows_per_person is None else PERSON
    most, exact = allowed * real("the norm", norm, above=0), included * (rows * norm)
    if names is None:
        names = [name for name, share in sums.shares.items() for _ in range(share.times)]
    events = sums.events if events is None else events
    return Observation(
        values=np.array([sums(name, exact, norm) / most for name in names], dtype=np.float32),
        included=included,
        rates=np.ones(len(names)),
        noises=np.array([sums.multiplier_of(name) / allowed for name in names]),
        events=events,
        claimed=DifferentialPrivacy(spent(events, delta).epsilon, delta, unit=unit),
        rows=rows,
    )

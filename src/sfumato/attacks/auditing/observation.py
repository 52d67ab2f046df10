"""What the steps of a mechanism have released about canaries: the best score of each, and direct checks.

An auditor who knows which canaries are absent sees the noise itself, and who knows the batches sees the sampler. So the
mechanism is also checked directly: its noise is as large as declared, and fresh in every step; a record moves a sum by
at most the sensitivity; and batches are Poisson samples. An honest mechanism fails one of these checks with a
probability below 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sfumato._repr import Discreet
from sfumato.attacks.auditing.audit import AuditResult, result_of_guesses
from sfumato.attacks.auditing.canaries import likelihood_ratio
from sfumato.attacks.statistics import CONFIDENCE
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event
from sfumato.data.certificate import PERSON
from sfumato.data.claim import Claim

__all__ = ["Observation"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ALARM = 1e-7  # the largest probability that an honest mechanism fails a check
_MOST_STEPS = 1000  # whose noise is compared pairwise
_MANY = 100  # counts, from which on their variance is compared with that of binomial ones


@dataclass(frozen=True, eq=False, repr=False)
class Observation(Discreet):
    """What steps have released about canaries that each move a sum of their own, and what the auditor knows of it.

    Attributes
    ----------
    values : a row per step: the noisy sum in the direction of each canary, in clips
    included : whether each canary is among the records
    rates, noises : the sampling rate and the noise multiplier of each step, as accounted for
    events : the events that were accounted for
    claimed : the epsilon that they cost at a delta
    counts : how many batches each record was in; None if there is no sampling
    sizes : how many of these records each batch had
    rows : the records of each canary
    """

    _repr_fields = ("claimed",)

    values: NDArray[np.float32]
    included: NDArray[np.bool_]
    rates: Floats
    noises: Floats
    events: tuple[Event, ...]
    claimed: DifferentialPrivacy
    counts: Ints | None = None
    sizes: Ints | None = None
    rows: int = 1

    @property
    def likelihood_ratios(self) -> Floats:
        """The best score of each canary: its log-likelihood ratio over all steps."""
        total = np.zeros(self.values.shape[1])
        for row, rate, noise in zip(self.values, self.rates, self.noises, strict=True):
            total += likelihood_ratio(row, rate, noise)
        return total

    @property
    def sums(self) -> Floats:
        """The published score of each canary: the sum over all steps."""
        total: Floats = self.values.sum(axis=0, dtype=np.float64)
        return total

    def result(self, method: str, *, confidence: float = CONFIDENCE, seed: int = 0) -> AuditResult:
        """Return the result of the audit, with all checks."""
        return result_of_guesses(
            self.likelihood_ratios,
            self.included,
            self.claimed,
            self.events,
            method=f"{method}, scored by their likelihood ratio",
            confidence=confidence,
            checks=self.checks,
            rows=self.rows,
            seed=seed,
        )

    @property
    def checks(self) -> tuple[Claim, ...]:
        """The checks of the noise, the sensitivity and the sampler."""
        found = (_enough_noise(self), _fresh_noise(self), _one_clip(self))
        return found if self.counts is None or self.sizes is None else (*found, _poisson(self, self.counts, self.sizes))


# --- direct checks ------------------------------------------------------------------------------


def _noise(seen: Observation) -> Floats:
    """Return the noise on absent canaries, in standard deviations."""
    noise: Floats = seen.values[:, ~seen.included] / seen.noises[:, None]
    return noise


def _enough_noise(seen: Observation) -> Claim:
    noise = _noise(seen)
    square = float(np.square(noise).sum())
    held = bool(special.gammainc(noise.size / 2, square / 2) > _ALARM)
    return Claim("the noise is as large as declared", held, _rounded(np.sqrt(square / noise.size)))


def _fresh_noise(seen: Observation) -> Claim:
    """Compare the noise of all pairs of steps: under independence, a correlation has Student's distribution."""
    noise = _noise(seen)[:_MOST_STEPS]
    steps, width = noise.shape
    claim = "the noise is fresh in every step"
    if steps < 2:
        return Claim.unchecked(claim, "there is only one step")
    centred = noise - noise.mean(axis=1, keepdims=True)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-300)
    most = float(np.abs(np.triu(centred @ centred.T, 1)).max())
    free = width - 2
    beyond = 2 * float(special.stdtr(free, -most * np.sqrt(free / max(1 - most**2, 1e-15))))
    return Claim(claim, beyond * steps * (steps - 1) / 2 > _ALARM, _rounded(most))


def _one_clip(seen: Observation) -> Claim:
    count = int(seen.included.sum())
    moved = float(seen.values[:, seen.included].sum(dtype=np.float64))
    mean = count * float(seen.rates.sum())
    spread = np.sqrt(count * float((seen.noises**2 + seen.rates * (1 - seen.rates)).sum()))
    held = bool(special.ndtr((mean - moved) / spread) > _ALARM)
    who = "person" if seen.claimed.unit == PERSON else "record"
    return Claim(f"a {who} moves a sum by at most its sensitivity", held, _rounded(moved / mean))


def _poisson(seen: Observation, counts: Ints, sizes: Ints) -> Claim:
    """Check how many batches each record was in, and how many records each batch had: both are binomial."""
    claim, rate = "each record is drawn independently, at the declared rate", float(seen.rates[0])
    steps, records, drawn = len(sizes), len(counts), int(counts.sum())
    share = drawn / (steps * records)
    if rate == 1:
        return Claim(claim, bool((counts == steps).all()), _rounded(share))
    trials = steps * records
    tails = [2 * float(special.bdtr(drawn, trials, rate)), 2 * float(special.bdtrc(drawn - 1, trials, rate))]
    tails += [_too_equal(counts, steps, rate), _too_equal(sizes, records, rate)]
    alike = _too_different(counts, steps, rate) or int(counts.max()) > steps
    return Claim(claim, min(tails) > _ALARM and not alike, _rounded(share))


def _rounded(measured: Any) -> float:
    return float(f"{measured:.3g}")


def _too_equal(counts: Ints, trials: int, rate: float) -> float:
    """Return how likely it is that binomial counts vary so little; they are whole, so each may be half a count off."""
    square = float(np.square(np.abs(counts - trials * rate) + 0.5).sum()) / (trials * rate * (1 - rate))
    return float(special.gammainc(len(counts) / 2, square / 2))


def _too_different(counts: Ints, trials: int, rate: float) -> bool:
    """Return whether many binomial counts vary by nine standard errors more than they should."""
    variance = trials * rate * (1 - rate)
    square = float(np.square(counts - trials * rate).sum()) / variance
    spread = np.sqrt(len(counts) * (2 + (1 - 6 * rate * (1 - rate)) / variance))
    return len(counts) >= _MANY and square > len(counts) + 9 * spread

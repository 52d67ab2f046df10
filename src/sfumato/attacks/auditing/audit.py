"""Audits: test a claim of differential privacy by running what makes the claim.

An audit can refute a claim, never prove it. A bound of 0 says nothing, and a bound below the claim says only that this
audit found no more. So a result also states the largest epsilon that it could have shown, had every guess been right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.auditing.bounds import (
    Calls,
    Curve,
    JointCurve,
    curve_of,
    fdp_epsilon,
    fdp_gaussian_epsilon,
    refutes,
    shared,
)
from sfumato.attacks.auditing.canaries import coins, guesses_of, joined, mislabelled, planted
from sfumato.attacks.base import Records
from sfumato.attacks.cases import labelled
from sfumato.attacks.people import owners_of
from sfumato.attacks.predictions import call, label_codes, own_label, probabilities
from sfumato.attacks.procedures import RunRecipe
from sfumato.attacks.statistics import CONFIDENCE
from sfumato.budget.accounting.accountant import spent
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event, Relation
from sfumato.data.certificate import PERSON
from sfumato.data.claim import Claim
from sfumato.data.release import Release, Releases
from sfumato.data.validate import whole
from sfumato.errors import InputError, OptionError

__all__ = ["AuditResult", "audit", "audit_function", "cost_claim", "result_of_guesses", "rows_of_canary"]

Floats = NDArray[np.float64]
Progress = Callable[[float], None]

_CANARIES = 1000
_RUNS = 1000
_THRESHOLDS = 200  # that are tried on the first half of the runs
_LEAST = 1e-12  # of a probability


@dataclass(frozen=True, repr=False)
class AuditResult(Discreet):
    """What an audit of differential privacy found.

    Attributes
    ----------
    method : what was done
    claimed : the guarantee under test
    epsilon : a lower bound on epsilon at the claimed delta, whatever the mechanism; 0 if nothing was shown
    could_have_shown : the bound if every guess had been right
    confidence : the probability with which the bound holds
    canaries, runs : how many records, or people, were included by coins, and how often the mechanism ran
    guesses, right : how many guesses were made, and how many were right
    refuted : whether the guesses contradict the claimed curve
    could_refute : whether they would if all were right
    gaussian : the bound on epsilon if the noise were Gaussian; None for many runs
    checks : direct checks of the noise, the clip and the sampler, where the audit sees them
    seed : of the canaries and their coins
    rows : the records of each canary, if a canary is a person
    """

    _repr_fields = ("passed", "epsilon", "claimed")

    method: str
    claimed: DifferentialPrivacy
    epsilon: float
    could_have_shown: float
    confidence: float
    canaries: int
    runs: int
    guesses: int
    right: int
    refuted: bool
    could_refute: bool
    gaussian: float | None = None
    checks: tuple[Claim, ...] = ()
    seed: int = 0
    rows: int = 1

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the claim; that does not prove it."""
        return not self.refuted and all(check.held is not False for check in self.checks)

    @property
    def verdict(self) -> str:
        """What the audit says, in one sentence."""
        claim, sure = f"{self.claimed.epsilon:.4g}", f"{self.confidence:.0%}"
        if self.epsilon > self.claimed.epsilon:
            return f"fails: epsilon is at least {self.epsilon:.3g} ({sure} sure), and {claim} is claimed"
        if self.refuted:
            right = f"{self.right:,} of {self.guesses:,} guesses are right"
            return f"fails: {right}, more than the claimed privacy allows ({sure} sure)"
        if not self.passed:
            wrong = " nor that ".join(check.claim for check in self.checks if check.held is False)
            return f"fails: it is not true that {wrong}"
        most = f"at most {self.could_have_shown:.3g} could have been shown"
        if not self.could_refute:
            return f"passes, but could not have failed: {most}, and {claim} is claimed"
        if self.epsilon == 0:
            return f"passes, but shows nothing: no epsilon above 0 was found; {most}"
        return f"passes: epsilon is at least {self.epsilon:.3g} ({sure} sure) of the claimed {claim}; {most}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "method": self.method,
            "epsilon": self.epsilon,
            "claimed": self.claimed.to_dict(),
            "could_have_shown": self.could_have_shown,
            "could_refute": self.could_refute,
            "refuted": self.refuted,
            "epsilon_if_gaussian": self.gaussian,
            "confidence": self.confidence,
            "canaries": self.canaries,
            "rows_per_canary": self.rows,
            "unit": self.claimed.unit,
            "runs": self.runs,
            "guesses": self.guesses,
            "right": self.right,
            "checks": [check.to_dict() for check in self.checks],
            "seed": self.seed,
        }


def result_of_guesses(
    scores: Any,
    included: Any,
    claimed: DifferentialPrivacy,
    events: Iterable[Event] = (),
    *,
    method: str,
    confidence: float = CONFIDENCE,
    checks: tuple[Claim, ...] = (),
    rows: int = 1,
    seed: int = 0,
) -> AuditResult:
    """Return the result of one run, given the scores of its canaries and which of them were included.

    Examples
    --------
    >>> included = np.arange(400) % 2 == 0
    >>> result = result_of_guesses(included * 1.0, included, DifferentialPrivacy(1.0, 1e-6), method="canaries")
    >>> print(result.verdict)
    fails: epsilon is at least 4.28 (95% sure), and 1 is claimed
    """
    tried, curve = guesses_of(scores, np.asarray(included, dtype=bool)), _claimed_curve(claimed, tuple(events))
    sure, delta = shared(confidence, len(tried)), claimed.delta
    found = [fdp_epsilon(one, delta, sure) for one in tried]
    best = max(range(len(tried)), key=lambda at: (found[at], tried[at].right / tried[at].made))
    refuting = [one for one in tried if refutes(curve, one, sure)]
    shown = refuting[0] if refuting and found[best] <= claimed.epsilon else tried[best]
    return AuditResult(
        method=method,
        claimed=claimed,
        epsilon=found[best],
        could_have_shown=max(fdp_epsilon(one.best, delta, sure) for one in tried),
        confidence=confidence,
        canaries=shown.canaries,
        runs=1,
        guesses=shown.made,
        right=shown.right,
        refuted=bool(refuting),
        could_refute=any(refutes(curve, one.best, sure) for one in tried),
        gaussian=max(fdp_gaussian_epsilon(one, delta, sure) for one in tried) if delta else None,
        checks=checks,
        seed=seed,
        rows=rows,
    )


def audit_function(
    release: Callable[[Any], Any],
    records: Any,
    canaries: Any,
    claimed: DifferentialPrivacy,
    *,
    events: Iterable[Event] = (),
    score: Callable[[Any, Any], Any] | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
    runs: int = _RUNS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    progress: Progress | None = None,
) -> AuditResult:
    """Test the claim of any function that releases something about records.

    Parameters
    ----------
    release : callable
        Takes records, of the type given here, and returns what it releases.
    records : frame or array
        The records that are always there.
    canaries : frame or array
        With a score: many records, each of which is included by a coin; the function runs once. Without: one record,
        which is included in half of the runs. It should be as unusual as a record may be.
    claimed : DifferentialPrivacy
        If neighbours differ by replacing a record, a record that is left out is replaced by the first of ``records``.
    events : iterable of Event
        The events that the claim follows from, if they are known: their curve says more than one epsilon and delta.
    score : callable, optional
        Takes what was released, and the canaries; returns a number for each, high if it seems to be included. Without
        one, what is released must be numbers, and a linear discriminant of half of the runs judges the other half.
    person : str, optional
        For a claim about people: the column that says which rows of the frames are of the same person. A canary is then
        a person, and is there with all rows or with none.
    rows_per_person : int
        For a claim about people: how often each row of a canary is repeated. People with as many equal rows as the
        claim allows are the worst case.
    runs : int
        Without a score, how often the function runs.
    progress : callable, optional
        Called with the share of runs that are done.

    Examples
    --------
    >>> from sfumato.budget import AddedNoise, Source
    >>> ages, source = np.array([[30.0], [40.0], [50.0]]), Source(insecure_seed=1)
    >>> def total(people, noise=AddedNoise(sensitivity=100, epsilon=1.0)):
    ...     return noise.release(people.sum(), source)
    >>> audit_function(total, ages, np.array([[100.0]]), DifferentialPrivacy(1.0), runs=400).passed
    True
    >>> audit_function(total, ages, np.array([[9000.0]]), DifferentialPrivacy(1.0), runs=400).passed  # not clipped
    False
    """
    if not len(records):
        raise InputError("an audit needs at least one record beside the canaries")
    owners, often = _people_of(canaries, records, claimed, person, rows_per_person)
    number, swaps = int(owners.max(initial=-1)) + 1, claimed.relation is Relation.REPLACE_ONE
    most = int(np.bincount(owners).max(initial=0)) * often

    def given(included: NDArray[np.bool_]) -> Any:
        with_them = joined(records, canaries[np.repeat(np.flatnonzero(included[owners]), often)])
        left_out = np.repeat(np.flatnonzero(~included[owners]), often)
        return joined(with_them, _instead(records, canaries, left_out, person)) if swaps else with_them

    if score is not None:
        included = coins(number, seed)
        released = call("the function", release, given(included))
        scores = call("the score", score, released, canaries)
        return result_of_guesses(
            scores,
            included,
            claimed,
            events,
            method="one run of the function",
            confidence=confidence,
            rows=most,
            seed=seed,
        )
    if number != 1:
        raise InputError(f"without a score an audit has one canary, got {number}")
    included = coins(whole("the number of runs", runs, least=40), seed)
    seen: list[Floats] = []
    for at, present in enumerate(included):
        seen.append(_numbers(call("the function", release, given(np.array([present])))))
        if progress:
            progress((at + 1) / runs)
    if len({len(one) for one in seen}) > 1:
        raise InputError("the function must release the same number of values in every run")
    curve = _claimed_curve(claimed, tuple(events))
    return replace(_result_of_runs(np.array(seen), included, claimed, curve, confidence, seed), rows=most)


def _people_of(
    canaries: Any, records: Any, claimed: DifferentialPrivacy, person: str | None, rows: int
) -> tuple[NDArray[np.int64], int]:
    """Return the number of the canary that each row is of, and how often each row is repeated."""
    often = whole("the rows of a person", rows)
    if (person is not None or often > 1) and claimed.unit != PERSON:
        raise OptionError(
            f"the claim protects a {claimed.unit}, and canaries are people",
            hint='a claim about people is DifferentialPrivacy(..., unit="person")',
        )
    if person is None:
        return np.arange(len(canaries)), often
    for name, frame in (("records", records), ("canaries", canaries)):
        if not isinstance(frame, pl.DataFrame) or person not in frame.columns:
            raise InputError(f"the {name} have no column '{person}' that says which rows are of the same person")
    if canaries[person].is_in(records[person].drop_nulls().implode()).any():
        raise InputError("a canary is also a person among the records", hint="give each canary a person of its own")
    return owners_of(canaries[person]), often


def _instead(records: Any, canaries: Any, left_out: NDArray[np.int64], person: str | None) -> Any:
    """Return the rows that replace those of canaries: copies of the first record, of the same people."""
    copies = records[np.zeros(len(left_out), dtype=np.int64)]
    return copies if person is None else copies.with_columns(canaries[person][left_out])


def audit(
    release: Release | Releases | str | Path,
    source: Any = None,
    *,
    canaries: int = _CANARIES,
    where: str | None = None,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> AuditResult:
    """Test the differential privacy that a released model or generator claims, by making it again with canaries.

    A network is trained again on the original records, as often and with as much noise, with canaries in the gradient:
    see `audit_training`. The recipe of any other model is run again with canaries among the records: mislabelled ones,
    each of which scores by how much more probable its wrong label is than to the released model, which has never seen
    it. Such canaries show little, so the noise of its sums is checked directly too. A generator is made again with
    canaries that are unlike any record, and what it draws is searched for them. What is made again is not released and
    costs no privacy.

    Parameters
    ----------
    release : Release, or the folder of one
        The release whose epsilon is tested.
    source : Table, frame, path or name of a data set
        The original records. By default those that the recipe names, if it does.
    canaries : int
        How many; of mislabelled ones at most as many as there are records.
    where : {"gradient", "input"}, optional
        Where the canaries are. By default in the gradient if that is possible.
    seed : int
        Of the canaries, their coins and, with mislabelled ones, the training.
    progress : callable, optional
        Called with the share of the training that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("nursery", "naive-bayes", target="class", epsilon=2)
    >>> result = audit(training, "nursery", canaries=400)
    >>> result.passed, result.claimed.epsilon, result.could_have_shown > 4
    (True, 2.0, True)
    """
    whole("the number of canaries", canaries)
    if where not in (None, "gradient", "input"):
        raise OptionError(f"canaries are in the gradient or in the input, got {where!r}")
    one = Release.read(release) if isinstance(release, str | Path) else release
    if isinstance(one, Releases):
        if len(one) != 1:
            raise InputError(f"an audit takes one release, got {len(one)}", hint="audit them one by one")
        one = next(iter(one.values()))
    promises = [promise for promise in one.guarantees if isinstance(promise, DifferentialPrivacy)]
    if not promises:
        raise InputError("the release does not claim differential privacy, so there is nothing to audit")
    if one.kind != "generator" and (one.kind != "model" or not hasattr(one.model, "classes_")):
        raise InputError(
            f"an audit by its recipe needs a generator or a model of classes, got a release of kind '{one.kind}'",
            hint="audit_function takes any function",
        )
    given = one.recipe.options.get("data") if source is None else source
    if given is None:
        raise InputError("an audit needs the original records", hint="--source")
    if one.kind == "generator":
        from sfumato.attacks.auditing.generators import audit_generator  # which builds on this module

        if where == "gradient":
            raise InputError("a generator has no gradient for canaries")
        options: dict[str, Any] = {"canaries": canaries, "seed": seed, "confidence": confidence, "progress": progress}
        return audit_generator(one, promises[0], given, **options)
    person = one.recipe.schema.person if promises[0].unit == PERSON else None
    records = labelled(given, one.recipe.options.get("target") or one.recipe.schema.target, one.model, person)
    if hasattr(one.model, "module_") and where != "input":
        found = _by_gradient(one, promises[0], records, canaries, seed, confidence, progress)
        if found is not None:
            return found
    if where == "gradient":
        raise InputError("only a network that was trained on a CPU in the usual way has a gradient for canaries")
    return _by_recipe(one, promises[0], records, canaries, seed, confidence, progress)


def _by_gradient(
    release: Release,
    promise: DifferentialPrivacy,
    records: Records,
    canaries: int,
    seed: int,
    confidence: float,
    progress: Progress | None,
) -> AuditResult | None:
    from sfumato.attacks.auditing.training import observe_network  # which needs torch, and builds on this module

    seen = observe_network(release.model, records, promise.delta, canaries=canaries, seed=seed, progress=progress)
    if seen is None:
        return None
    return result_of_guesses(
        seen.likelihood_ratios,
        seen.included,
        promise,
        seen.events,
        method="the training of its network with canaries in the gradient, scored by their likelihood ratio",
        confidence=confidence,
        checks=(*seen.checks, cost_claim(seen.events, promise)),
        rows=seen.rows,
        seed=seed,
    )


def _by_recipe(
    release: Release,
    promise: DifferentialPrivacy,
    records: Records,
    canaries: int,
    seed: int,
    confidence: float,
    progress: Progress | None,
) -> AuditResult:
    from sfumato.attacks.auditing.mechanisms import mechanism_checks  # which builds on this module

    model, classes = release.model, release.model.classes_
    wrong = mislabelled(records, min(canaries, records.persons), seed)
    included, rows = coins(len(wrong), seed), rows_of_canary(promise, model.rows_that_count)
    if progress:
        progress(0.0)
    recipe = release.recipe
    if getattr(model, "rows", None) is not None:  # declared as public, so not bought
        recipe = replace(recipe, options={**recipe.options, "rows": model.rows})
    made = RunRecipe(recipe)(planted(records, wrong, included, rows), seed)
    if progress:
        progress(1.0)
    return result_of_guesses(
        _fit(made, wrong, classes) - _fit(model, wrong, classes),
        included,
        promise,
        release.events,
        method="its own recipe with mislabelled canaries, scored by their loss",
        confidence=confidence,
        checks=(*mechanism_checks(model), cost_claim(made.events_, promise)),
        rows=rows,
        seed=seed,
    )


def rows_of_canary(promise: DifferentialPrivacy, rows_per_person: int | None) -> int:
    """Return how many records a canary has: as many as count of a person, if people are protected."""
    return rows_per_person or 1 if promise.unit == PERSON else 1


def cost_claim(events: Iterable[Event], promise: DifferentialPrivacy) -> Claim:
    """Check that what was run again costs no more than the release claims, by the accountant."""
    cost = spent(events, promise.delta, relation=promise.relation).epsilon
    held = cost <= promise.epsilon * (1 + 1e-6)
    return Claim(
        "the noise of its recipe costs at most the claimed epsilon",
        held,
        round(cost, 4) if math.isfinite(cost) else "inf",
    )


def _fit(model: Any, records: Records, classes: Any) -> Floats:
    """Return the log probability of each record's label."""
    codes = label_codes(np.asarray(records.labels), classes)
    chances = own_label(probabilities(model, records.rows, classes), codes)
    return np.log(np.maximum(chances, _LEAST))


@lru_cache(maxsize=64)
def _claimed_curve(claimed: DifferentialPrivacy, events: tuple[Event, ...]) -> Curve:
    return JointCurve((curve_of(claimed), *([curve_of(events)] if events else [])))


# --- many runs ----------------------------------------------------------------------------------


def _result_of_runs(
    seen: Floats,
    included: NDArray[np.bool_],
    claimed: DifferentialPrivacy,
    curve: Curve,
    confidence: float,
    seed: int,
) -> AuditResult:
    """Judge the second half of the runs by a discriminant and a threshold that the first half has chosen."""
    first = np.arange(len(seen)) < len(seen) // 2
    scores = _discriminant(seen[first], included[first], seen)
    threshold = max(
        np.unique(np.quantile(scores[first], np.linspace(0, 1, _THRESHOLDS))),
        key=lambda at: _calls(scores[first] >= at, included[first]).epsilon(claimed.delta, confidence),
    )
    calls = _calls(scores[~first] >= threshold, included[~first])
    return AuditResult(
        method="many runs of the function, with and without one canary",
        claimed=claimed,
        epsilon=calls.epsilon(claimed.delta, confidence),
        could_have_shown=calls.best.epsilon(claimed.delta, confidence),
        confidence=confidence,
        canaries=1,
        runs=len(seen),
        guesses=calls.runs_with + calls.runs_without,
        right=calls.hits + calls.runs_without - calls.alarms,
        refuted=calls.refutes(curve, confidence),
        could_refute=calls.best.refutes(curve, confidence),
        seed=seed,
    )


def _calls(called: NDArray[np.bool_], included: NDArray[np.bool_]) -> Calls:
    inside, outside = called[included], called[~included]
    if not len(inside) or not len(outside):
        raise InputError("an audit needs runs with and runs without the canary", hint="make more runs")
    return Calls(int(inside.sum()), len(inside), int(outside.sum()), len(outside))


def _discriminant(known: Floats, included: NDArray[np.bool_], all_seen: Floats) -> Floats:
    """Return Fisher's linear discriminant of all runs, learned from some, on standardised values."""
    centre, spread = np.median(known, axis=0), known.std(axis=0)
    scaled = [(one - centre) / np.where(spread > 0, spread, 1.0) for one in (known, all_seen)]
    inside, outside = scaled[0][included], scaled[0][~included]
    within = np.vstack([inside - inside.mean(axis=0), outside - outside.mean(axis=0)])
    ridge = 1e-6 + (known.shape[1] / len(known)) ** 2
    covariance = within.T @ within / len(within) + ridge * np.eye(known.shape[1])
    direction = np.linalg.solve(covariance, inside.mean(axis=0) - outside.mean(axis=0))
    result: Floats = scaled[1] @ direction
    return result


def _numbers(released: Any) -> Floats:
    """Return everything that was released as one vector; values that are not finite become a flag of their own."""
    if isinstance(released, pl.DataFrame):
        released = released.select(pl.selectors.numeric()).to_numpy()
    if isinstance(released, Mapping):
        return np.concatenate([_numbers(one) for one in released.values()] or [np.zeros(0)])
    if isinstance(released, list | tuple):
        return np.concatenate([_numbers(one) for one in released] or [np.zeros(0)])
    try:
        flat = np.asarray(released, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(
            f"without a score the function must release numbers, got {type(released).__name__}", hint="give a score"
        ) from None
    finite = np.isfinite(flat)
    return np.concatenate([np.clip(np.where(finite, flat, 0.0), -1e150, 1e150), finite.astype(np.float64)])

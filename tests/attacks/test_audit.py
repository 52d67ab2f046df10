"""Audits of functions and of released models: broken ones fail, honest ones pass, and each says what it could show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.attacks import audit, audit_function
from sfumato.budget import AddedNoise, DifferentialPrivacy, Gaussian, Relation, Source, spent
from sfumato.errors import InputError, OptionError
from sfumato.learners import Privacy

HALF = DifferentialPrivacy(1.0)
SURE = 0.999999
"""For models whose noise has no seed: an honest one then fails with a probability of at most 1e-6."""


def counting(scale: float, seed: int = 0) -> Any:
    """Return a function that releases the number of records of each of 200 kinds, with Laplace noise."""
    source = Source(insecure_seed=seed)

    def release(kinds: Any) -> Any:
        return np.bincount(kinds, minlength=200) + source.discrete_laplace(scale, 200)

    return release


def own_count(released: Any, canaries: Any) -> Any:
    return released[canaries]


CANARIES = np.arange(200)
RECORDS = np.zeros(5, dtype=np.int64)


def test_honest_counts_fail_at_most_as_often_as_stated() -> None:
    """Laplace noise is as bad as its epsilon allows, so the error rate of 5 % may be reached. The seeds are fixed."""
    results = [
        audit_function(counting(1.0, seed), RECORDS, CANARIES, HALF, score=own_count, seed=seed) for seed in range(200)
    ]
    assert sum(not result.passed for result in results) <= 10
    assert all(result.could_refute for result in results)
    assert 3.5 < results[0].could_have_shown < 4.5


def test_honest_gaussian_noise_is_never_failed_in_two_hundred_runs() -> None:
    """The rate is at most 5 % by the theorem, and far smaller for Gaussian noise: none of 200 games is refuted."""
    event = Gaussian(1.5)
    claim = DifferentialPrivacy(spent(event, 1e-5).epsilon, 1e-5)
    rng = np.random.default_rng(7)
    for seed in range(200):
        result = audit_function(
            lambda kinds: np.bincount(kinds, minlength=200) + rng.normal(0, 1.5, 200),
            RECORDS,
            CANARIES,
            claim,
            events=[event],
            score=own_count,
            seed=seed,
        )
        assert result.passed, result.verdict
        assert result.epsilon < claim.epsilon


def test_counts_with_a_tenth_of_the_noise_fail() -> None:
    result = audit_function(counting(0.1), RECORDS, CANARIES, HALF, score=own_count, seed=1)
    assert not result.passed
    assert result.epsilon > 3
    assert result.verdict.startswith("fails: epsilon is at least 3.")
    assert "95% sure" in result.verdict


def test_one_canary_in_many_runs_shows_a_sensitivity_that_is_too_small() -> None:
    source = Source(insecure_seed=4)
    noise = AddedNoise(sensitivity=100, epsilon=1.0)
    ages = np.array([30.0, 40.0])

    def honest(people: Any) -> Any:
        return {"sum": noise.release(np.clip(people, 0, 100).sum(), source), "kind": 1}

    def unclipped(people: Any) -> Any:
        return {"sum": noise.release(people.sum(), source), "kind": 1}

    kept = audit_function(honest, ages, np.array([500.0]), HALF, runs=300)
    broken = audit_function(unclipped, ages, np.array([500.0]), HALF, runs=300)
    assert kept.passed
    assert not broken.passed
    assert broken.epsilon > 2
    assert (broken.canaries, broken.runs, broken.guesses) == (1, 300, 150)
    assert json.loads(json.dumps(broken.to_dict()))["passed"] is False


def test_a_value_that_becomes_nan_with_the_canary_is_seen() -> None:
    with np.errstate(invalid="ignore"):
        result = audit_function(lambda people: people.sum() * 0, np.array([1.0]), np.array([np.inf]), HALF, runs=100)
    assert not result.passed


def test_under_replacement_a_canary_that_is_left_out_is_replaced() -> None:
    """The number of records is then public: a function that releases it passes under replace-one only."""
    swapped = DifferentialPrivacy(1.0, relation=Relation.REPLACE_ONE)
    frame = pl.DataFrame({"age": [30, 40]})
    results = [
        audit_function(lambda people: len(people), frame, frame.head(1), claim, runs=100) for claim in (swapped, HALF)
    ]
    assert [result.passed for result in results] == [True, False]


def test_a_weak_audit_says_that_it_could_not_have_failed() -> None:
    claim = DifferentialPrivacy(8.0, 1e-6)
    result = audit_function(counting(0.001), RECORDS, CANARIES, claim, score=own_count)
    assert result.passed
    assert not result.could_refute
    assert result.verdict == (
        f"passes, but could not have failed: at most {result.could_have_shown:.3g} could have been shown, "
        "and 8 is claimed"
    )
    silent = audit_function(counting(1000.0), RECORDS, CANARIES, HALF, score=own_count)
    assert silent.epsilon == 0
    assert "shows nothing" in silent.verdict


def patients(rows: int = 120) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 80, rows)
    ill = np.where(age > 50, "yes", "no")
    return pl.DataFrame({"age": age, "ward": rng.choice(["a", "b", "c"], rows), "ill": ill})


SCHEMA = sf.Schema(
    [
        sf.Column(name="age", kind="number", bounds=(0, 100)),
        sf.Column(name="ward", domain=("a", "b", "c")),
        sf.Column(name="ill", domain=("no", "yes")),
    ]
)


CHECKS = [
    "the noise is as large as declared",
    "the noise is fresh in every step",
    "a record moves a sum by at most its sensitivity",
    "each record is drawn independently, at the declared rate",
]
COST = "the noise of its recipe costs at most the claimed epsilon"


def test_a_released_model_is_audited_by_its_own_recipe(tmp_path: Any) -> None:
    table = sf.Table.of(patients(), schema=SCHEMA)
    sf.save(sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-3), tmp_path / "model")
    steps: list[float] = []
    result = audit(tmp_path / "model", table, canaries=100, seed=3, confidence=SURE, progress=steps.append)
    assert result.passed, result.verdict
    assert (result.canaries, result.runs, result.claimed.epsilon) == (100, 1, 1.0)
    assert steps == [0.0, 1.0]
    assert [check.claim for check in result.checks] == [*CHECKS[:3], COST]
    assert all(check.held for check in result.checks)
    assert "ill" not in repr(result)


def test_a_released_network_is_audited_in_its_gradient_and_in_its_input() -> None:
    table = sf.Table.of(patients(), schema=SCHEMA)
    noise = Privacy(rows=90, noise_multiplier=1.0)
    model = sf.train(table, "mlp", target="ill", epsilon=None, delta=1e-9, privacy=noise, epochs=4, batch_size=None)
    steps: list[float] = []
    inside = audit(model, table, canaries=800, confidence=SURE, progress=steps.append)
    assert inside.passed, inside.verdict
    assert "canaries in the gradient" in inside.method
    assert inside.canaries == 800
    assert 0 < inside.epsilon < inside.claimed.epsilon
    assert [check.claim for check in inside.checks] == [*CHECKS, COST]
    assert steps[-1] == 1.0
    beside = audit(model, table, canaries=100, where="input", confidence=SURE)
    assert beside.passed, beside.verdict
    assert "mislabelled" in beside.method
    assert [check.claim for check in beside.checks] == [*CHECKS, COST]


def test_a_released_model_with_too_little_noise_is_found_by_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sf.Table.of(patients(), schema=SCHEMA)
    training = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-3)
    honest = Source.discrete_gaussian
    monkeypatch.setattr(Source, "discrete_gaussian", lambda source, scale, count: honest(source, scale / 2, count))
    result = audit(training, table, canaries=100, confidence=SURE)
    assert not result.passed
    assert result.checks[0].measured == pytest.approx(0.5, abs=0.05)
    assert result.verdict == "fails: it is not true that the noise is as large as declared"


def test_identifiers_of_the_source_are_left_out_as_in_the_training() -> None:
    frame = patients().with_columns(name=pl.Series([f"p{number}" for number in range(120)]))
    table = sf.Table.of(frame, schema=SCHEMA, identifiers=["name"])
    training = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-3)
    assert audit(training, table, canaries=100, confidence=SURE).passed


def test_what_cannot_be_audited_is_said_in_one_sentence(tmp_path: Any) -> None:
    table = sf.Table.of(patients(), schema=SCHEMA)
    open_model = sf.train(table, "naive-bayes", target="ill", epsilon="none")
    with pytest.raises(InputError, match="does not claim differential privacy"):
        audit(open_model, table)
    with pytest.raises(InputError, match="the release does not claim"):
        audit(sf.anonymize(table, "k=2", qi=["ward"]), table)
    with (
        sf.Ledger.grant(table, path=tmp_path / "book.ledger", epsilon=2) as book,
        pytest.raises(InputError, match="needs a generator or a model of classes, got a release of kind 'statistics'"),
    ):
        audit(sf.query(table, "count by ward", epsilon=1, ledger=book), table)
    private = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-3)
    with pytest.raises(InputError, match="only a network that was trained on a CPU"):
        audit(private, table, where="gradient")
    with pytest.raises(OptionError, match="in the gradient or in the input, got 'labels'"):
        audit(private, table, where="labels")
    with pytest.raises(InputError, match="at least 20 canaries, got 10"):
        audit(private, table, canaries=10)
    with pytest.raises(InputError, match="an audit takes one release, got 2"):
        audit(sf.train(table, "naive-bayes", target="ill", epsilon="1,2", delta=1e-3), table)
    with pytest.raises(InputError, match="one canary, got 200"):
        audit_function(counting(1.0), RECORDS, CANARIES, HALF)
    with pytest.raises(InputError, match="raised a ZeroDivisionError"):
        audit_function(lambda people: 1 / 0, RECORDS, CANARIES[:1], HALF)
    with pytest.raises(InputError, match="must release numbers, got str"):
        audit_function(lambda people: "Ada", RECORDS, CANARIES[:1], HALF)
    with pytest.raises(InputError, match="the same number of values"):
        audit_function(lambda people: [1.0] * len(people), RECORDS, CANARIES[:1], HALF, runs=100)
    with pytest.raises(InputError, match="one finite score for each of 200 canaries"):
        audit_function(counting(1.0), RECORDS, CANARIES, HALF, score=lambda released, canaries: [1.0])


def test_a_claim_below_what_the_recipe_costs_is_refuted_even_if_canaries_show_nothing() -> None:
    (release,) = sf.train("nursery", "naive-bayes", target="class", epsilon=50).values()
    forged = replace(release, guarantees=(DifferentialPrivacy(0.1, 1e-5),), events=())
    result = audit(forged, "nursery", canaries=100, confidence=SURE)
    assert not result.refuted
    assert not result.passed
    assert result.verdict == "fails: it is not true that the noise of its recipe costs at most the claimed epsilon"
    assert audit(release, "nursery", canaries=100, confidence=SURE).passed

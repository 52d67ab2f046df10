"""The certificate of a model: epsilon is derived again from its events, and what was tampered with is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load, save

import sfumato as sf


@pytest.fixture
def release(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    frame = pl.DataFrame({"age": generator.integers(18, 90, 500), "ill": generator.choice(["no", "yes"], 500)})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])]
    table = sf.Table(frame, sf.Schema(columns))
    sf.save(sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-4), tmp_path / "model")
    return tmp_path / "model"


def changed(folder: Path, name: str, change: Callable[[dict[str, Any]], None], *, bind: bool = True) -> None:
    """Change a JSON file of a release, and let the certificate bind what it has become."""
    path = folder / name
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    if bind and name != "certificate.json":
        rebound(folder, name)


def rebound(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    changed(folder, "certificate.json", lambda plain: plain["files"].update({name: facts}))


def failed(folder: Path) -> list[str]:
    return [claim.claim for claim in sf.verify(folder).claims if not claim.held]


def test_all_claims_of_a_release_hold(release: Path) -> None:
    verdict = sf.verify(release)
    assert verdict.ok
    assert any(claim.claim.startswith("epsilon=1, delta=0.0001") for claim in verdict.claims)


def test_a_smaller_epsilon_than_the_events_cost_is_a_false_claim(release: Path) -> None:
    changed(release, "certificate.json", lambda plain: plain["guarantees"][0].update(epsilon=0.5))
    assert failed(release) == ["epsilon=0.5, delta=0.0001 (add or remove one record)"]


def test_a_smaller_delta_is_a_false_claim(release: Path) -> None:
    changed(release, "certificate.json", lambda plain: plain["guarantees"][0].update(delta=1e-9))
    assert any(claim.startswith("epsilon=1, delta=1e-09") for claim in failed(release))


def test_events_with_more_noise_than_was_run_do_not_fit_the_model(release: Path) -> None:
    def quieter(plain: dict[str, Any]) -> None:
        for event in plain["parameters"]["events"]:
            event["scale"] *= 2

    changed(release, "certificate.json", quieter)
    assert "model.json says the same" in failed(release)


def test_a_replaced_relation_is_found(release: Path) -> None:
    changed(release, "certificate.json", lambda plain: plain["guarantees"][0].update(relation="replace-one"))
    assert any("replace" in claim for claim in failed(release))


def test_no_guarantee_or_no_events_hold_nothing(release: Path) -> None:
    changed(release, "certificate.json", lambda plain: plain["parameters"].update(events=[]))
    assert any(claim.startswith("epsilon=1") for claim in failed(release))
    changed(release, "certificate.json", lambda plain: plain.update(guarantees=[]))
    assert "something is guaranteed" in failed(release)


@pytest.mark.parametrize("events", [None, "many", [{"kind": "gaussian"}], [{"kind": "magic"}], [7]], ids=str)
def test_events_that_are_none_are_one_failed_claim(release: Path, events: Any) -> None:
    changed(release, "certificate.json", lambda plain: plain["parameters"].update(events=events))
    assert "its events can be accounted for" in failed(release)


def test_a_seed_of_the_noise_is_told(tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [20.0, 30.0] * 100, "ill": ["no", "yes"] * 100})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])]
    table = sf.Table(frame, sf.Schema(columns))
    training = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-4, insecure_seed=3)
    sf.save(training, tmp_path / "model")
    assert failed(tmp_path / "model") == ["its noise cannot be made again"]


def test_changed_weights_are_found(release: Path) -> None:
    weights = release / "model.safetensors"
    arrays = load(weights.read_bytes())
    arrays["class_log_prior_"] = arrays["class_log_prior_"] * 2
    weights.write_bytes(save(arrays))
    assert failed(release) == ["model.safetensors is the file that was released"]
    arrays["class_log_prior_"][0] = np.nan
    weights.write_bytes(save(arrays))
    rebound(release, "model.safetensors")
    assert failed(release) == ["its weights can be read, and are numbers"]
    weights.write_bytes(b"not weights")
    rebound(release, "model.safetensors")
    assert failed(release) == ["its weights can be read, and are numbers"]


def test_a_model_without_privacy_guarantees_nothing(tmp_path: Path) -> None:
    table = pl.DataFrame({"age": [20.0, 30.0] * 100, "ill": ["no", "yes"] * 100})
    sf.save(sf.train(table, "naive-bayes", target="ill", epsilon="none"), tmp_path / "model")
    assert failed(tmp_path / "model") == ["something is guaranteed"]


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("cost", {"private": False}),
        ("cost", {"epsilon": 0.1}),
        ("cost", {"delta": 1e-9}),
        ("cost", {"relation": "replace-one"}),
        ("cost", {"noise_multiplier": 99.0}),
        ("parameters", {"insecure_seed": 5}),
    ],
    ids=str,
)
def test_a_model_that_says_something_else_is_found(release: Path, where: str, change: dict[str, Any]) -> None:
    changed(release, "model.json", lambda plain: plain[where].update(change))
    assert failed(release) == ["model.json says the same"]


def test_a_model_that_says_something_twice_is_found(release: Path) -> None:
    path = release / "model.json"
    path.write_text('{"cost": {"epsilon": 0.1},' + path.read_text()[1:])
    rebound(release, "model.json")
    assert failed(release) == ["model.json says the same"]


@pytest.mark.parametrize("value", [10**400, 1e308, 1e-300, -1, "1", True, None, []], ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("name", ["epsilon", "delta", "scale", "sensitivity", "claimed"])
def test_numbers_that_are_none_fail_and_crash_nothing(release: Path, name: str, value: Any) -> None:
    def put(plain: dict[str, Any]) -> None:
        if name == "claimed":
            plain["claims"]["epsilon"] = value
        elif name in ("epsilon", "delta"):
            plain["guarantees"][0][name] = value
        else:
            plain["parameters"]["events"][0][name] = value

    changed(release, "certificate.json", put)
    assert bool(failed(release)) is ((name, value) != ("epsilon", 1e308))  # which is weak, and true


def test_a_delta_that_lets_a_record_out_is_found_and_so_is_a_claim_of_another_kind(release: Path) -> None:
    changed(release, "certificate.json", lambda plain: plain["source"].update(rows=10_000))
    assert failed(release) == ["delta is below one over the number of records"]
    changed(release, "certificate.json", lambda plain: plain["source"].update(rows=400))
    changed(release, "certificate.json", lambda plain: plain["claims"].update(k=1000))
    assert failed(release) == ["k is 1000"]

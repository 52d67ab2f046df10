"""The certificate of a model: epsilon is derived again from its events, and what was tampered with is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load, save

import sfumato as sf
from sfumato.learners import Privacy
from tests.forgery import bind, change_json, change_text, failed, unchecked


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classical estimator, and a network that takes 16 steps on Poisson samples."""
    folder = tmp_path_factory.mktemp("made")
    generator = np.random.default_rng(0)
    frame = pl.DataFrame({"age": generator.integers(18, 90, 500), "ill": generator.choice(["no", "yes"], 500)})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])]
    table = sf.Table(frame, sf.Schema(columns))
    sf.save(sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-4), folder / "bayes")
    options = {"batch_size": 50, "epochs": 2, "model_options": {"hidden": [4]}}
    noise = Privacy(noise_multiplier=2.0, rows=400)
    network = sf.train(table, "mlp", target="ill", epsilon=None, privacy=noise, delta=1e-4, **options)
    sf.save(network, folder / "network")
    return folder


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "bayes", tmp_path / "model"))


@pytest.fixture
def network(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "network", tmp_path / "network"))


def test_all_claims_of_a_release_hold(release: Path) -> None:
    verdict = sf.verify(release)
    assert verdict.ok
    assert any(claim.claim.startswith("epsilon=1, delta=0.0001") for claim in verdict.claims)


def test_a_smaller_epsilon_than_the_events_cost_is_a_false_claim(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["guarantees"][0].update(epsilon=0.5))
    assert "epsilon=0.5, delta=0.0001 (add or remove one record)" in failed(release)


def test_a_smaller_delta_is_a_false_claim(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["guarantees"][0].update(delta=1e-9))
    assert any(claim.startswith("epsilon=1, delta=1e-09") for claim in failed(release))


def test_events_with_more_noise_than_was_run_do_not_fit_the_model(release: Path) -> None:
    def quieter(plain: dict[str, Any]) -> None:
        for event in plain["parameters"]["events"]:
            event["scale"] *= 2

    change_json(release, "certificate.json", quieter)
    assert "model.json says the same" in failed(release)


def test_a_replaced_relation_is_found(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["guarantees"][0].update(relation="replace-one"))
    assert any("replace" in claim for claim in failed(release))


def test_no_guarantee_or_no_events_hold_nothing(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=[]))
    assert any(claim.startswith("epsilon=1") for claim in failed(release))
    change_json(release, "certificate.json", lambda plain: plain.update(guarantees=[]))
    assert "something is guaranteed" in failed(release)


@pytest.mark.parametrize("events", [None, "many", [{"kind": "gaussian"}], [{"kind": "magic"}], [7]], ids=str)
def test_events_that_are_none_are_one_failed_claim(release: Path, events: Any) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=events))
    assert "its events can be accounted for" in failed(release)


def test_a_seed_of_the_noise_is_told(tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [20.0, 30.0] * 100, "ill": ["no", "yes"] * 100})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])]
    table = sf.Table(frame, sf.Schema(columns))
    training = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-4, privacy=Privacy(insecure_seed=3))
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
    bind(release, "model.safetensors")
    assert failed(release) == ["its weights can be read, and are numbers"]
    weights.write_bytes(b"not weights")
    bind(release, "model.safetensors")
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
    change_json(release, "model.json", lambda plain: plain[where].update(change))
    seeded = change.keys() & {"private", "insecure_seed"}
    assert ("its noise cannot be made again" if seeded else "model.json says the same") in failed(release)


def test_a_model_that_says_something_twice_is_found(release: Path) -> None:
    path = release / "model.json"
    path.write_text('{"cost": {"epsilon": 0.1},' + path.read_text()[1:])
    bind(release, "model.json")
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

    change_json(release, "certificate.json", put)
    assert failed(release)


def test_a_delta_that_lets_a_record_out_is_found_and_so_is_a_claim_of_another_kind(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["source"].update(rows=10_000))
    assert failed(release) == ["delta is below one over the number of records"]
    change_json(release, "certificate.json", lambda plain: plain["source"].update(rows=400))
    change_json(release, "certificate.json", lambda plain: plain["claims"].update(k=1000))
    assert failed(release) == ["k is 1,000"]


# --- forgeries: every file is changed alike, and every hash is true ---


def restated(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the certificate and model.json state of the cost, and claim what the events then cost."""
    change_json(folder, "model.json", lambda plain: change(plain["cost"]))
    change_json(folder, "certificate.json", lambda plain: change(plain["parameters"]))
    change_json(folder, "model.json", lambda plain: _match(plain["state"], plain["cost"]))
    events = sf.verify(folder)  # whatever it says: it measured what the events cost
    measured = next(one.measured for one in events.claims if one.claim.startswith("what was spent is epsilon"))
    change_json(folder, "model.json", lambda plain: plain["cost"].update(epsilon=measured))
    change_json(folder, "certificate.json", lambda plain: plain["claims"].update(epsilon=measured))
    change_json(folder, "certificate.json", lambda plain: plain["guarantees"][0].update(epsilon=measured))


def _match(state: dict[str, Any], cost: dict[str, Any]) -> None:
    if "training" in state:
        state["training"].update({name: cost[name] for name in state["training"]})


def quieter(cost: dict[str, Any]) -> None:
    gaussian(cost["events"][-1])["scale"] *= 10


def gaussian(event: dict[str, Any]) -> dict[str, Any]:
    within = event.get("event") or event.get("events", [None])[0]
    return event if within is None else gaussian(within)


def one_step(cost: dict[str, Any]) -> None:
    cost["events"][-1]["times"] = 1


def in_parallel(cost: dict[str, Any]) -> None:
    cost["events"][-1] = {"kind": "parallel", "events": [cost["events"][-1]["event"]] * 16}


def cheaper(cost: dict[str, Any]) -> None:
    cost["events"] = [{"kind": "pure", "epsilon": 0.01, "relation": "add-remove"}]


def ideal(cost: dict[str, Any]) -> None:
    """Noise of floats costs a little more than ideal noise."""
    cost["events"][-1]["event"] = cost["events"][-1]["event"]["events"][0]


def rarer(cost: dict[str, Any]) -> None:
    cost["events"][-1]["event"]["events"][0]["rate"] /= 10


def insensitive(cost: dict[str, Any]) -> None:
    gaussian(cost["events"][-1])["sensitivity"] /= 10


def shuffled(cost: dict[str, Any]) -> None:
    cost["events"][-1] = {"kind": "shuffled", "batches": 10, "event": cost["events"][-1]["event"]}


def beside_the_best(cost: dict[str, Any]) -> None:
    """The steps that are held are those of a part in which nobody is."""
    dear, cheap = cost["events"][-1], {"kind": "pure", "epsilon": 0.01, "relation": "add-remove"}
    cost["events"][-1] = {"kind": "parallel", "events": [{**dear, "times": 15}, cheap]}


STEPS = "its events hold every step with the stated noise"


@pytest.mark.parametrize(
    "change", [quieter, one_step, in_parallel, cheaper, ideal, rarer, insensitive, shuffled, beside_the_best]
)
def test_events_that_cost_less_than_the_stated_steps_are_found(
    network: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    assert sf.verify(network).ok
    restated(network, change)
    assert STEPS in failed(network)


@pytest.mark.parametrize("change", [quieter, cheaper, insensitive])
def test_sums_that_cost_less_than_the_stated_noise_are_found(
    release: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    restated(release, change)
    assert STEPS in failed(release)


def test_events_may_hold_more_than_the_steps(network: Path) -> None:
    """As a score on other records does, or the distance of the noise that is drawn from the ideal one."""

    def scored(cost: dict[str, Any]) -> None:
        score = {"kind": "gaussian", "scale": 50.0, "sensitivity": 1.0, "relation": "add-remove"}
        beyond = {"kind": "approximate", "epsilon": 0.0, "delta": 1e-12, "relation": "add-remove"}
        cost["events"][-1:] = [{"kind": "parallel", "events": [cost["events"][-1], score]}, beyond]

    restated(network, scored)
    assert failed(network) == []


@pytest.mark.parametrize("rows", [499, 399, 5, 100_000])
def test_rows_follow_from_the_rate_of_samples_of_a_stated_size(network: Path, rows: int) -> None:
    change_json(network, "certificate.json", lambda plain: plain["source"].update(rows=rows))
    assert f"source.rows is {rows:,}" in failed(network)


def test_rows_on_which_nothing_depends_are_listed(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["source"].update(rows=300))
    assert failed(release) == []
    assert "source.rows is 300" in unchecked(release)


@pytest.mark.parametrize("mark", ["model.json", "recipe.toml", "certificate.json"])
def test_a_seeded_model_that_is_relabelled_private_is_found_by_any_mark_that_is_left(tmp_path: Path, mark: str) -> None:
    frame = pl.DataFrame({"age": [20.0, 30.0] * 100, "ill": ["no", "yes"] * 100})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])]
    table, folder = sf.Table(frame, sf.Schema(columns)), tmp_path / "model"
    training = sf.train(table, "naive-bayes", target="ill", epsilon=1, delta=1e-4, privacy=Privacy(insecure_seed=3))
    sf.save(training, folder)
    assert "its noise cannot be made again" in failed(folder)
    change_json(folder, "model.json", lambda plain: plain["parameters"].update(insecure_seed=None))
    for name, part in (("model.json", "cost"), ("certificate.json", "parameters")):
        change_json(folder, name, lambda plain, part=part: plain[part].update(private=True))
    assert failed(folder) == []
    if mark == "recipe.toml":
        change_text(folder, mark, "seed = 0\n", "seed = 0\ninsecure_seed = 3\n")
    else:
        change_json(folder, mark, lambda plain: plain["parameters"].update(insecure_seed=3))
    assert "its noise cannot be made again" in failed(folder)


def test_that_noise_was_secret_is_never_claimed_to_be_checked(release: Path) -> None:
    assert "its noise cannot be made again" in unchecked(release)


@pytest.mark.parametrize("name", ["model.json", "recipe.toml"])
def test_a_model_has_all_its_files(release: Path, name: str) -> None:
    (release / name).unlink()
    change_json(release, "certificate.json", lambda plain: plain["files"].pop(name))
    assert f"the certificate binds {name}" in failed(release)


def test_records_beside_a_model_are_found_even_if_they_are_listed(release: Path) -> None:
    (release / "train.csv").write_text("age,ill\n20,yes\n")
    bind(release, "train.csv")
    assert failed(release) == ["nothing else is in the folder"]


def test_a_model_and_its_recipe_agree(network: Path) -> None:
    change_text(network, "recipe.toml", "epochs = 2", "epochs = 1")
    assert failed(network) == ["the recipe says the same"]
    change_text(network, "recipe.toml", "epochs = 1", "epochs = 2")
    change_text(network, "recipe.toml", "90.0", "80.0")
    assert failed(network) == ["the recipe says the same"]


# --- what a stranger's events may cost ---


def events_of(count: int) -> list[dict[str, Any]]:
    noise = {"kind": "gaussian", "sensitivity": 1.0, "relation": "add-remove"}
    return [
        {"kind": "poisson-sampled", "rate": 0.001 + 1e-6 * at, "event": {**noise, "scale": 20.0 + at}}
        for at in range(count)
    ]


def nested(depth: int) -> list[dict[str, Any]]:
    event = {"kind": "pure", "epsilon": 0.1, "relation": "add-remove"}
    for _ in range(depth):
        event = {"kind": "composed", "events": [event]}
    return [event]


@pytest.mark.parametrize(
    "events", [events_of(2001), nested(17), [{"kind": "repeated", "times": 10**13, "event": events_of(1)[0]}]], ids=len
)
def test_events_beyond_any_training_are_refused_before_they_are_built(release: Path, events: Any) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=events))
    assert "its events can be accounted for" in failed(release)


def test_a_promise_whose_accounting_takes_too_long_holds_if_a_cheap_bound_proves_it(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=events_of(45)))
    verdict = sf.verify(release)
    promise, claimed = verdict.claims[6:8] if verdict.claims[6].claim.startswith("epsilon") else verdict.claims[7:9]
    assert promise.held is True
    assert 0 < float(str(promise.measured)) < 1
    assert claimed.held is None
    change_json(release, "certificate.json", lambda plain: plain["guarantees"][0].update(epsilon=1e-3))
    unproven = [claim for claim in sf.verify(release).unchecked if claim.claim.startswith("epsilon=0.001")]
    assert "would take about 4 s" in str(unproven[0].measured)


def test_so_many_different_events_that_no_bound_is_cheap_are_not_checkable(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=events_of(300)))
    assert any(name.startswith("epsilon=1") for name in unchecked(release))


def test_millions_of_steps_are_accounted_for(release: Path) -> None:
    """They took 13 GB."""
    many = [{"kind": "repeated", "times": 19_000_000, "event": events_of(1)[0]}]
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(events=many))
    promise = next(claim for claim in sf.verify(release).claims if claim.claim.startswith("epsilon=1"))
    assert promise.held is True
    assert promise.measured == pytest.approx(0.874, abs=0.01)


SCORES = "the scores of held-out records keep the promise"


@pytest.mark.parametrize(
    "change",
    [
        {"scores": "exact"},
        {"scores": None},
        {"events": None},
        {"events": [{"kind": "pure", "epsilon": 3.0, "relation": "add-remove"}]},
    ],
    ids=str,
)
def test_scores_of_private_records_are_noisy_and_within_the_promise(release: Path, change: dict[str, Any]) -> None:
    change_json(release, "certificate.json", lambda plain: plain["loss"].update(change))
    assert failed(release) == [SCORES]


# --- what does not belong to a model ---


def extra_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(save({**load(path.read_bytes()), "records": np.arange(6.0)}))
    bind(folder, path.name)


def _model(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: change_json(folder, "model.json", change)


STRANGE: dict[str, Callable[[Path], None]] = {
    "a tensor of its own": extra_tensor,
    "a key in its state": _model(lambda plain: plain["state"].update(notes=["Zaphod"])),
    "a key of a column": _model(lambda plain: plain["state"]["features"]["columns"][0].update(records=[1, 2])),
    "a parameter that it does not have": _model(lambda plain: plain["parameters"].update(notes="Zaphod")),
    "another estimator": _model(lambda plain: plain.update(estimator="PrivateLogisticRegression")),
    "other bounds": _model(lambda plain: plain["state"]["features"]["columns"][0].update(bounds=[0, 91])),
    "a column that is not declared": _model(lambda plain: plain["state"]["features"]["columns"][0].update(name="zip")),
    "other classes": _model(lambda plain: plain["state"].update(classes=["Zaphod", "yes"])),
}


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("kind", ["bayes", "network"])
def test_what_does_not_belong_to_a_model_is_found(kind: str, strange: str, made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made / kind, tmp_path / "model"))
    STRANGE[strange](folder)
    assert failed(folder)


def test_an_estimator_that_is_not_the_one_of_the_method_is_found(release: Path) -> None:
    """Whoever renames the method in the certificate and the recipe alike has a model that does not fit."""
    change_json(release, "certificate.json", lambda plain: plain.update(method="forest"))
    change_text(release, "recipe.toml", "naive-bayes", "forest")
    assert "it is a model of the stated method" in failed(release)


def test_other_domains_of_categories_are_found(tmp_path: Path) -> None:
    sf.save(sf.train("nursery", "naive-bayes", target="class", epsilon=1), tmp_path / "model")
    assert failed(tmp_path / "model") == []

    def change(plain: dict[str, Any]) -> None:
        plain["state"]["features"]["columns"][0]["domain"][0] = "Zaphod"

    change_json(tmp_path / "model", "model.json", change)
    assert failed(tmp_path / "model") == ["its columns and classes are the declared ones"]


def test_weights_beyond_any_model_are_not_read(release: Path) -> None:
    with (release / "model.safetensors").open("r+b") as file:
        file.truncate(2**33)  # a sparse file
    assert "its weights can be read, and are numbers" in failed(release)
    with pytest.raises(sf.errors.FileError, match="8,589,934,592 bytes"):
        sf.load(release)

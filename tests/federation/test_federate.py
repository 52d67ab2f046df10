"""Federated training as a release: saved, loaded, verified, run again; its unit, ledgers and bad input."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.data.certificate import Certificate
from sfumato.errors import ColumnError, InputError, OptionError, ProtocolError, SchemaError
from sfumato.federation.holdings import holdings_of

SCHEMA = sf.Schema(
    [
        sf.Column(name="age", kind="number", bounds=(0, 100)),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="ill", domain=("no", "yes")),
    ]
)
PRIVATE = {"record": 3.0, "client": 20.0}


def rows(count: int = 300, seed: int = 0) -> pl.DataFrame:
    make = np.random.default_rng(seed)
    age = make.integers(0, 100, count)
    return pl.DataFrame(
        {"age": age, "sex": make.choice(["f", "m"], count), "ill": np.where(age > 50, "yes", "no").tolist()}
    )


def trained(data=None, **more) -> sf.Release:
    options = {"target": "ill", "schema": SCHEMA, "rounds": 2, "learning_rate": 0.2, "delta": 1e-4, **more}
    return sf.federate(rows() if data is None else data, **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federated")
    for level, epsilon in PRIVATE.items():
        sf.save(trained(level=level, epsilon=epsilon, folder=folder / f"{level}.run"), folder / level)
    return folder


def changed(saved, tmp_path, level, change):
    for one in (saved / level).iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    plain = json.loads((tmp_path / "certificate.json").read_text())
    change(plain)
    (tmp_path / "certificate.json").write_text(json.dumps(plain))
    return tmp_path


def test_holders_with_a_threshold_of_all_learn_without_privacy():
    release = trained(rows(1500), rounds=6, learning_rate=0.5)
    assert release.outcome.scores.accuracy > 0.85
    assert release.outcome.central.accuracy > 0.85
    plain = release.to_dict()
    assert [one["round"] for one in plain["rounds"]] == [1, 2, 3, 4, 5, 6]
    assert plain["final"]["accuracy"] == release.outcome.scores.accuracy
    assert plain["clients"]["holder-0001"]["sent"] > 0
    assert plain["epsilon"] is None
    assert release.guarantees == ()


@pytest.mark.parametrize("level", PRIVATE)
def test_a_private_release_is_verified_and_predicts(level, saved):
    verdict = sf.verify(saved / level)
    assert verdict.ok, verdict.failed
    assert any("every holder" in one.claim and one.held for one in verdict.claims)
    release = sf.load(saved / level)
    assert len(release.predict(rows(5))) == 5
    assert all(one.holds_for(release) for one in release.guarantees)


@pytest.mark.parametrize(("level", "unit"), [("record", "row"), ("client", "client")])
def test_the_unit_is_in_guarantee_events_certificate_and_ledger(level, unit, saved):
    certificate = Certificate.read(saved / level)
    release = sf.load(saved / level)
    assert certificate.unit == release.unit == certificate.guarantees[0]["unit"] == unit
    assert {one.unit for one in release.events} == {unit}
    assert ("one client" in str(release.guarantees[0])) == (unit == "client")
    book = sf.Ledger(saved / f"{level}.run" / "ledgers" / "holder-0001.ledger")
    assert book.unit == book.to_dict()["unit"] == unit
    assert 0 < book.spent.epsilon <= PRIVATE[level] * (1 + 1e-9)


FORGERIES = {
    "a smaller promise": lambda one: one["guarantees"][0].update(epsilon=0.5),
    "more rounds": lambda one: one["parameters"]["plan"].update(rounds=9),
    "a plan of a smaller epsilon": lambda one: one["parameters"]["plan"].update(epsilon=0.5),
    "another clip": lambda one: one["parameters"]["plan"].update(clip=0.25),
    "another holder": lambda one: one["parameters"]["holders"].append("east"),
    "a cheaper holder": lambda one: one["parameters"]["epsilons"].update({"holder-0001": 0.1}),
    "events twice": lambda one: one["parameters"].update(events=one["parameters"]["events"] * 2),
    "exact scores": lambda one: one["parameters"]["history"][0].update(accuracy=0.9),
    "a missing round": lambda one: one["parameters"]["history"].pop(),
}


@pytest.mark.parametrize("level", PRIVATE)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_certificate_is_found_out(level, forgery, saved, tmp_path):
    verdict = sf.verify(changed(saved, tmp_path, level, FORGERIES[forgery]))
    assert not verdict.ok


@pytest.mark.parametrize("where", ["certificate", "guarantee"])
def test_a_client_is_never_taken_for_a_row(where, saved, tmp_path):
    def change(plain):
        place = plain if where == "certificate" else plain["guarantees"][0]
        place["unit"] = "row"

    with pytest.raises(InputError, match="another unit"):
        sf.verify(changed(saved, tmp_path, "client", change))

    def both(plain):
        plain["unit"] = plain["guarantees"][0]["unit"] = "row"

    failed = sf.verify(changed(saved, tmp_path, "client", both)).failed
    assert any("protect a client" in str(one.measured) for one in failed)


def test_by_ckks_the_noise_of_one_holder_is_counted_and_verified(tmp_path):
    release = trained(level="client", epsilon=20.0, secure="ckks", rounds=1)
    assert {one.event.shares for one in release.events} == {1}
    sf.save(release, tmp_path / "ckks")
    assert sf.verify(tmp_path / "ckks").ok
    masked = trained(level="client", epsilon=20.0, rounds=1)
    sf.save(masked, tmp_path / "masked")
    (tmp_path / "forged").mkdir()
    failed = sf.verify(
        changed(tmp_path, tmp_path / "forged", "masked", lambda one: one["parameters"].update(secure="ckks"))
    )
    assert any("honest" in str(one.measured) for one in failed.failed)


def test_a_ledger_refuses_a_training_beyond_its_budget(tmp_path):
    data = {"north": rows(150, 0), "south": rows(150, 1)}
    asked = {"rounds": 1, "epsilon": 1.0, "ledgers": tmp_path / "ledgers"}
    trained(data, level="record", **asked)
    with pytest.raises(ProtocolError, match="0 of 2") as caught:
        trained(data, level="record", spare=0, **asked)
    assert "would exceed" in str(caught.value)
    with pytest.raises(OptionError, match="protects a row"):
        trained(data, level="client", **asked)


def test_scores_and_times_of_private_records_stay_with_their_owners(saved):
    release = trained(level="record", epsilon=3.0)
    assert release.outcome.owner["scores"]["accuracy"] is not None
    assert {one.accuracy for one in release.outcome.rounds} == {None}
    assert release.to_dict()["final"] == {"accuracy": None, "auc": None}
    text = (saved / "record" / "certificate.json").read_text()
    assert json.loads(text)["loss"]["accuracy"] is None


def test_a_recipe_trains_again(tmp_path):
    release = trained(clients=4, absent=0.3)
    again = sf.run(release.recipe, rows())
    assert again.recipe == release.recipe
    assert [one.clients for one in again.outcome.rounds] == [one.clients for one in release.outcome.rounds]


def test_a_folder_with_a_file_of_each_holder_is_one_federation(tmp_path):
    (tmp_path / "data").mkdir()
    for at, name in enumerate(("north", "south")):
        rows(150, at).write_parquet(tmp_path / "data" / f"{name}.parquet")
    release = trained(str(tmp_path / "data"), rounds=1)
    assert list(release.outcome.parties) == ["north", "south"]


@pytest.mark.parametrize("epsilon", [None, 8.0])
def test_a_linear_model_of_scattered_images_is_trained_saved_and_predicts(epsilon, tmp_path):
    digits = sf.datasets.mnist()
    options = {"model": "scattering-linear", "rounds": 2, "samples": 300, "epsilon": epsilon}
    if epsilon is not None:
        options |= {"batch": 100, "clip": 0.1, "learning_rate": 5.0}
    release = sf.federate("mnist", **options)
    assert release.outcome.scores.accuracy > 0.4
    sf.save(release, tmp_path / "out")
    assert [one.claim for one in sf.verify(tmp_path / "out").failed] == ([] if epsilon else ["something is guaranteed"])
    again, images = sf.load(tmp_path / "out").model, digits.test_images
    share = (again.predict(images) == digits.test_labels).mean()
    assert share == pytest.approx(release.outcome.scores.accuracy, abs=2e-3)


def test_every_round_leaves_its_model(tmp_path):
    from safetensors.numpy import load_file

    release = trained(folder=tmp_path / "run", centralised=False)
    files = sorted((tmp_path / "run" / "rounds").iterdir())
    assert [one.name for one in files] == ["round-0001.safetensors", "round-0002.safetensors"]
    arrays = load_file(files[-1])
    for name, one in release.model.module_.state_dict().items():
        assert np.array_equal(arrays[name], one.numpy())


@pytest.mark.parametrize(
    ("data", "more", "error", "says"),
    [
        ({"a": rows(40), "b": rows(40).drop("age")}, {}, InputError, "holder 'b'"),
        ({"a": rows(40), "b": rows(0)}, {}, InputError, "holder 'b'"),
        (
            {"a": rows(40), "b": rows(40).with_columns(ill=pl.lit("perhaps"))},
            {},
            InputError,
            "holder 'b': no record has one",
        ),
        ({"../a": rows(40)}, {}, OptionError, "letters, digits"),
        (None, {"schema": sf.Schema([sf.Column(name="ill", domain=("no", "yes"))])}, SchemaError, "'age'"),
        (
            None,
            {"schema": sf.Schema([one for one in SCHEMA.columns if one.name != "ill"])},
            SchemaError,
            "classes of 'ill'",
        ),
        (None, {"target": "nothing"}, ColumnError, "nothing"),
        (None, {"clients": 1000}, InputError, "cannot be split"),
        (None, {"clients": 1}, OptionError, "at least 2 parties"),
        (None, {"model": "cnn"}, OptionError, "logistic, mlp"),
        (None, {"level": "client"}, OptionError, "needs an epsilon"),
        (None, {"epsilon": 1.0, "level": "client", "secure": "none"}, OptionError, "needs a secure sum"),
        (None, {"secure": "magic"}, OptionError, "none, masks, threshold, ckks, got"),
        (None, {"secure": "mpc"}, OptionError, "none, masks, threshold, ckks, got"),
        (None, {"threshold": 9}, OptionError, "only 3 holders"),
        (None, {"speed": 9}, OptionError, "no option 'speed'"),
        ("mnist", {"target": None, "model": "scattering-linear", "augment": True}, OptionError, "that see the images"),
    ],
)
def test_bad_input_is_one_sentence(data, more, error, says):
    with pytest.raises(error, match=says) as caught:
        trained(data, rounds=1, **more)
    assert "\n" not in str(caught.value)


def test_records_of_unknown_classes_are_left_out():
    table = pl.concat([rows(30), pl.DataFrame({"age": [200], "sex": ["x"], "ill": ["perhaps"]})])
    coding = holdings_of(rows(30), target="ill", schema=SCHEMA, clients=2).coding
    inputs, targets = coding.samples(table)
    assert len(inputs) == len(targets) == 30


@pytest.mark.parametrize("level", PRIVATE)
def test_a_training_goes_on_after_a_crash_and_pays_for_no_round_twice(level, tmp_path):
    class Crash(Exception):
        pass

    def crash(done):
        raise Crash

    asked = {"rounds": 3, "level": level, "epsilon": PRIVATE[level], "folder": tmp_path / "run"}
    with pytest.raises(Crash):
        trained(progress=crash, **asked)
    path = tmp_path / "run" / "ledgers" / "holder-0001.ledger"

    def charges():
        return sum(one["kind"] == "charge" for one in sf.Ledger(path).history())

    numbers, once = [], charges()
    release = trained(progress=lambda done: numbers.append(done.round), **asked)
    assert numbers == [2, 3]
    assert [one.round for one in release.outcome.rounds] == [1, 2, 3]
    assert charges() == 3 * once
    book = sf.Ledger(path)
    assert book.spent.epsilon < PRIVATE[level]


def test_a_holder_with_another_schema_is_refused_before_anybody_trains():
    from sfumato.federation.holder import TrainingHolder
    from sfumato.federation.plan import FederationPlan

    plan = FederationPlan(model="logistic", inputs=(22,), classes=2, coding="ours")
    other = FederationPlan(**{**plan.to_dict(), "coding": "theirs"})
    holder = TrainingHolder("north", other, np.zeros((5, 22)), np.zeros(5, int), parties=3)
    with pytest.raises(ProtocolError, match="'north' has another schema"):
        holder.describe({"plan": plan.to_dict()})


@pytest.mark.parametrize(("level", "unit"), [("record", "row"), ("client", "client")])
def test_a_holder_on_a_machine_of_its_own_has_a_ledger_and_a_record_for_each_run(level, unit, tmp_path, monkeypatch):
    from sfumato.federation.coding import Coding
    from sfumato.federation.flower.keys import make_identity
    from sfumato.federation.flower.training import agreement, make_party, planned
    from sfumato.federation.plan import FederationPlan
    from sfumato.federation.weights import get_weights, network_of

    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    more = {"epsilon": 30.0, "delta": 1e-3, "rounds": 1, "spare": 0, "level": level, "secure": "masks"}
    plain = planned(rows(30), ["north", "south"], target="ill", schema=SCHEMA, **more)
    plan, coding = FederationPlan.from_dict(plain["plan"]), Coding.from_dict(plain["coding"])
    keys = {name: make_identity(tmp_path / name) for name in ("north", "south")}
    rows(40).write_csv(tmp_path / "north.csv")
    request = {"round": 1, "weight": 1.0, "weights": get_weights(network_of(plan))}

    def send(ledger=None):
        agreed = agreement(plan, coding, "masks", keys)
        given = {"federation": agreed, "data": str(tmp_path / "north.csv"), "ledger": ledger}
        party = make_party("north", tmp_path / "north", **given)
        party.handlers["sum/keys"]({"round": 1})
        return party.answer({"kind": "sum/vector", "round": 1, "mail": {}, "bits": 32, "request": request})

    send()
    book = sf.Ledger(tmp_path / "north" / "ledger")
    assert book.unit == unit
    assert 25 < book.spent.epsilon <= 30
    assert "would exceed the limit" in send()["error"]  # another run begins a record of its own, and pays again
    if level == "record":
        granted = sf.Ledger.grant(tmp_path / "north.csv", epsilon=90, delta=1e-3)
        send()
        assert granted.spent.epsilon > 25
        own = tmp_path / "own.ledger"
        sf.Ledger.grant(rows(41), epsilon=90, delta=1e-3, path=own)
        with pytest.raises(InputError, match="other data"):
            send(str(own))


def test_an_agreement_that_was_changed_is_refused(tmp_path):
    from sfumato.federation.flower.keys import make_identity
    from sfumato.federation.flower.training import agreement, make_party, planned, read_agreement

    plain = planned(rows(30), ["north", "south"], target="ill", schema=SCHEMA, rounds=2)
    from sfumato.federation.coding import Coding
    from sfumato.federation.plan import FederationPlan

    keys = {name: make_identity(tmp_path / name) for name in ("north", "south")}
    agreed = agreement(FederationPlan.from_dict(plain["plan"]), Coding.from_dict(plain["coding"]), "masks", keys)
    rows(40).write_csv(tmp_path / "north.csv")
    party = make_party("north", tmp_path / "north", federation=agreed, data=str(tmp_path / "north.csv"))
    assert party.answer({"kind": "train/describe", "plan": plain["plan"]}) == {"rows": 40}
    with pytest.raises(InputError, match="'east' is not in the agreement"):
        make_party("east", tmp_path / "north", federation=agreed, data=str(tmp_path / "north.csv"))
    rows(40).drop("age").write_csv(tmp_path / "other.csv")
    with pytest.raises(ColumnError, match="no column 'age'"):
        make_party("north", tmp_path / "north", federation=agreed, data=str(tmp_path / "other.csv"))
    agreed["coding"]["classes"] = ["no", "perhaps"]
    with pytest.raises(InputError, match="another schema than its plan"):
        read_agreement(agreed)
    with pytest.raises(InputError, match="missing or damaged"):
        read_agreement(tmp_path / "nothing.json")

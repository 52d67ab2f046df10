"""Federated training that protects people: the unit everywhere, the identity with rows, neighbours, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import sfumato as sf
from sfumato.budget.people import for_people
from sfumato.cli.commands.federate import federate as command
from sfumato.data.certificate import Certificate
from sfumato.errors import ColumnError, FileError, InputError, OptionError, ProtocolError, SchemaError
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.coding import Coding
from sfumato.federation.flower.keys import make_identity
from sfumato.federation.flower.training import agreement, make_party, planned, train_with_hosts
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.holdings import holdings_of
from sfumato.federation.plan import FederationPlan
from sfumato.federation.rounds import run_rounds
from sfumato.federation.secure.sum import PlainSum, plain_handlers
from sfumato.federation.simulation import simulate
from sfumato.federation.weights import get_weights, network_of
from tests.contracts.test_promise import CERTIFICATE, public_files

OPEN = (
    sf.Column(name="age", kind="number", bounds=(0, 100)),
    sf.Column(name="sex", domain=("f", "m")),
    sf.Column(name="ill", domain=("no", "yes")),
)
SCHEMA = sf.Schema([sf.Column(name="patient_id", role="person"), *OPEN])
BY_ROWS = sf.Schema([sf.Column(name="patient_id", role="identifier"), *OPEN])


def visits(people: int = 60, seed: int = 0, most: int = 5) -> pl.DataFrame:
    """Return visits of patients with 1 to ``most`` rows each, mixed."""
    make = np.random.default_rng(seed)
    who = make.permutation(np.repeat(np.arange(people), make.integers(1, most + 1, people)))
    age = make.integers(0, 100, len(who))
    return pl.DataFrame(
        {
            "patient_id": [f"p{one}" for one in who],
            "age": age,
            "sex": make.choice(["f", "m"], len(who)),
            "ill": np.where(age > 50, "yes", "no").tolist(),
        }
    )


HOLDERS = {"north": visits(60, 0), "south": visits(50, 1)}


def trained(data: Any = None, **more: Any) -> sf.Release:
    asked = {"target": "ill", "schema": SCHEMA, "rounds": 1, "learning_rate": 0.2, "delta": 1e-4, "epsilon": 3.0}
    asked |= {"rows_per_person": 2, "batch": 20, **more}
    return sf.federate(HOLDERS if data is None else data, **asked)


def plan(**more: Any) -> FederationPlan:
    asked = {"model": "logistic", "inputs": (3,), "classes": 2, "rounds": 2, "threshold": 2, "level": "record"}
    asked |= {"epsilon": 2.0, "delta": 1e-3, "batch": 10, "person": "who", "rows_per_person": 1}
    return FederationPlan(**{**asked, **more})


def samples(rows: int = 60, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.int64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    sf.save(trained(folder=folder / "run"), folder / "out")
    return folder


def test_the_unit_is_a_person_everywhere_and_verify_claims_no_more_than_holds(saved: Path) -> None:
    release, verdict, certificate = sf.load(saved / "out"), sf.verify(saved / "out"), Certificate.read(saved / "out")
    assert verdict.ok, verdict.failed
    assert certificate.unit == release.unit == certificate.guarantees[0]["unit"] == "person"
    assert "one person" in str(release.guarantees[0])
    assert {one.unit for one in release.events} == {"person"}
    several = next(one for one in verdict.claims if one.claim == "nobody has rows at two holders")
    assert several.held is None
    assert "at m holders" in str(several.measured)
    assert "at m holders" in certificate.parameters["people"]
    assert "patient_id" not in release.model.features_.names
    page = (saved / "out" / "report.html").read_text()
    assert "at most 2 rows of each were used" in page
    assert "for somebody with rows at m holders" in page
    book = sf.Ledger(saved / "run" / "ledgers" / "north.ledger")
    assert (book.unit, book.person) == ("person", "patient_id")
    assert 0 < book.spent.epsilon <= 3.0
    assert "p1" not in (saved / "out" / "certificate.json").read_text().split('"')


FORGERIES = {
    "the unit row": lambda one: (one.update(unit="row"), one["guarantees"][0].update(unit="row")),
    "another bound": lambda one: one["parameters"].update(rows_per_person=1),
    "another bound in the plan": lambda one: one["parameters"]["plan"].update(rows_per_person=1),
    "no bound": lambda one: one["parameters"].pop("rows_per_person"),
    "no bound in the plan": lambda one: one["parameters"]["plan"].update(rows_per_person=None, person=None),
    "another person column": lambda one: one["parameters"]["plan"].update(person="age"),
    "nobody is at two holders": lambda one: one["parameters"].update(people="nobody is at two holders"),
    "events for rows": lambda one: one["parameters"].update(
        events=json.loads(json.dumps(one["parameters"]["events"]).replace('"person"', '"row"'))
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_unit_or_bound_is_refuted(forgery: str, saved: Path, tmp_path: Path) -> None:
    for one in (saved / "out").iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    plain = json.loads((tmp_path / "certificate.json").read_text())
    FORGERIES[forgery](plain)
    (tmp_path / "certificate.json").write_text(json.dumps(plain))
    assert not sf.verify(tmp_path).ok


@pytest.mark.parametrize("batch", [10, 100])
def test_with_one_row_for_each_person_weights_and_events_are_those_for_rows(batch: int) -> None:
    def run(how: FederationPlan, people: np.ndarray | None) -> tuple[Any, list[TrainingHolder]]:
        holders = [
            TrainingHolder(name, how, *samples(seed=at), parties=2, people=people, insecure_seed=at + 7)
            for at, name in enumerate(("north", "south"))
        ]
        parties = [
            Party(one.name, {**plain_handlers(one.contribute), "train/describe": one.describe}) for one in holders
        ]
        return run_rounds(how, InProcess(parties), PlainSum(2)), holders

    ours, of_people = run(plan(batch=batch), np.random.default_rng(0).permutation(60))
    theirs, of_rows = run(plan(batch=batch, person=None, rows_per_person=None), None)
    assert np.array_equal(ours.weights, theirs.weights)
    for one, other in zip(of_people, of_rows, strict=True):
        assert one.events == tuple(for_people(event, 1) for event in other.events) != ()
        assert {event.unit for event in one.planned} == {"person"}


@pytest.mark.parametrize("data", [None, visits(150, most=1)], ids=["several holders", "one table"])
def test_without_epsilon_people_of_one_row_are_held_out_and_divided_like_rows(data: Any, tmp_path: Path) -> None:
    """The column is left out, and the coins are those of the same rows."""
    given = {name: visits(60, at, most=1) for at, name in enumerate(("north", "south"))} if data is None else data
    found = []
    for name, schema in (("people", SCHEMA), ("rows", BY_ROWS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "split.key").write_bytes(bytes(32))
        asked = {"epsilon": None, "rows_per_person": None, "centralised": False, "folder": tmp_path / name}
        release = trained(given, schema=schema, **asked)
        weights = [one.tolist() for one in release.model.module_.state_dict().values()]
        found.append((weights, release.outcome.scores.to_dict(), release.model.features_.names))
    assert found[0] == found[1]


def test_a_person_of_one_table_is_at_one_holder_and_in_one_part() -> None:
    table = visits(120).with_columns(at=pl.int_range(pl.len()))
    schema = sf.Schema([*SCHEMA.columns, sf.Column(name="at", kind="number", bounds=(0, 1000))])
    found = holdings_of(table, target="ill", schema=schema, clients=4, key=bytes(32))
    assert found.people is not None
    rows = sum(len(one) for one in found.people.values())
    assert rows == found.rows < len(table)
    names = [{*one.tolist()} for one in found.people.values()]
    assert sum(map(len, names)) == len(set.union(*names)) < 120
    assert found.test is not None
    assert rows + len(found.test[1]) == len(table)


def test_given_test_rows_lose_those_of_people_at_a_holder() -> None:
    others = visits(40, 2).with_columns(pl.format("q{}", "patient_id").alias("patient_id"))
    found = holdings_of(HOLDERS, target="ill", schema=SCHEMA, test=pl.concat([HOLDERS["north"], others]))
    assert found.test is not None
    assert len(found.test[1]) == len(others)


def test_rows_beyond_the_bound_are_drawn_once_and_kept_by_a_holder_that_starts_again(tmp_path: Path) -> None:
    people, how = np.arange(60) % 12, plan(rows_per_person=2, batch=4, spare=1)
    request = {"round": 1, "weight": 1.0, "weights": get_weights(network_of(how))}
    inputs, targets = samples()
    kept: list[np.ndarray] = []
    for _ in range(2):
        one = TrainingHolder("north", how, inputs, targets, parties=2, people=people, record=tmp_path / "record")
        one.contribute(request)
        kept.append(np.asarray(one.inputs))
        assert one.units == 12
        assert np.bincount(one.people).tolist() == [2] * 12
    assert np.array_equal(*kept)
    other = people[:20] // 12
    with pytest.raises(FileError, match="other records"):
        TrainingHolder("north", how, *samples(20), parties=2, people=other, record=tmp_path / "record")


MORE = {
    "one person more, with most of the rows": pl.DataFrame(
        {"patient_id": ["new"] * 300, "age": [44] * 300, "sex": ["f"] * 300, "ill": ["yes"] * 300}
    ),
    "a row of nobody": pl.DataFrame({"patient_id": [None], "age": [44], "sex": ["f"], "ill": ["yes"]}),
}


def written(data: dict[str, pl.DataFrame], folder: Path) -> dict[str, Any]:
    release = trained(data, batch=1000, folder=folder / "run", ledgers=folder / "ledgers")
    sf.save(release, folder / "out")
    noisy = {"certificate.json": (*CERTIFICATE, "/files/*/bytes"), "model.json": ()}
    histories = []
    for name in sorted(data):
        with sf.Ledger(folder / "ledgers" / f"{name}.ledger") as book:
            histories.append([{**one, "time": 0, "seal": 0} for one in book.history()][1:])
    return {"files": public_files(folder / "out", noisy, pages=False), "histories": histories}


@pytest.mark.parametrize("more", MORE)
def test_one_person_more_at_a_holder_changes_nothing_that_is_not_noisy(more: str, tmp_path: Path) -> None:
    """With all people in each step, not even the number of people is there to see."""
    one = written(HOLDERS, tmp_path / "one")
    other = written({**HOLDERS, "south": pl.concat([HOLDERS["south"], MORE[more]])}, tmp_path / "other")
    assert one["files"] == other["files"]
    for ours, theirs in zip(one["histories"], other["histories"], strict=True):
        assert [each["event"] for each in ours if "event" in each] == [
            each["event"] for each in theirs if "event" in each
        ]
        assert len(ours) == len(theirs)


def test_a_client_is_protected_with_all_its_people_and_the_column_is_left_out(tmp_path: Path) -> None:
    release = trained(level="client", epsilon=20.0, rows_per_person=None)
    assert release.unit == "client"
    assert "patient_id" not in release.model.features_.names
    sf.save(release, tmp_path / "out")
    assert sf.verify(tmp_path / "out").ok
    with pytest.raises(OptionError, match="a client is protected with all of its people"):
        trained(level="client", epsilon=20.0)


def test_a_recipe_protects_people_again(saved: Path) -> None:
    release = sf.load(saved / "out")
    again = sf.run(release.recipe, visits(80, 5))
    assert (again.unit, again.parameters["rows_per_person"]) == ("person", 2)


def bad(**more: Any) -> dict[str, Any]:
    return {**HOLDERS, **more}


@pytest.mark.parametrize(
    ("data", "more", "error", "says"),
    [
        (None, {"rows_per_person": 0}, OptionError, "rows of a person must be"),
        (None, {"rows_per_person": None}, OptionError, "rows of a person are not bounded"),
        (None, {"rows_per_person": "bought"}, OptionError, "holders buy no bound on the rows of a person"),
        (None, {"epsilon": None}, OptionError, "without an epsilon nothing is"),
        (None, {"schema": sf.Schema(OPEN), "data": "drop"}, OptionError, "needs a person column"),
        (bad(west=visits(20).drop("patient_id")), {}, InputError, "holder 'west': .*'patient_id'"),
        (
            {
                "north": sf.Table.of(HOLDERS["north"], schema=SCHEMA),
                "south": sf.Table.of(
                    HOLDERS["south"].rename({"patient_id": "pid"}),
                    schema=sf.Schema([sf.Column(name="pid", role="person"), *OPEN]),
                ),
            },
            {"schema": None},
            SchemaError,
            "holder 'south': its person column is 'pid', and that of the others 'patient_id'",
        ),
        (None, {"target": "patient_id"}, ColumnError, "cannot be predicted"),
        (visits(2), {"clients": 5, "test": visits(30, 3)}, InputError, "2 people cannot be split among 5"),
        ("mnist", {"target": None, "schema": None, "person": "label"}, OptionError, "every image counts as a person"),
        ("nursery", {"target": "class", "schema": None, "person": "health"}, OptionError, "a person of its own"),
    ],
)
def test_bad_input_is_one_sentence(data: Any, more: dict[str, Any], error: type[Exception], says: str) -> None:
    more = dict(more)
    if more.pop("data", None) == "drop":
        data = {name: one.drop("patient_id") for name, one in HOLDERS.items()}
    with pytest.raises(error, match=says) as caught:
        trained(data, **more)
    assert "\n" not in str(caught.value)


def test_a_ledger_of_rows_and_other_parties_are_refused(tmp_path: Path) -> None:
    table = sf.Table.of(HOLDERS["north"], schema=SCHEMA).as_declared()
    (tmp_path / "ledgers").mkdir()
    sf.Ledger.grant(table, epsilon=9, delta=1e-4, path=tmp_path / "ledgers" / "north.ledger").close()
    with pytest.raises(OptionError, match="protects a row, and this training a person"):
        trained(ledgers=tmp_path / "ledgers")
    with pytest.raises(InputError, match="does not say whose"):
        TrainingHolder("north", plan(), *samples(), parties=2)
    how = plan()
    for_rows = TrainingHolder("north", plan(person=None, rows_per_person=None), *samples(), parties=2)
    liar = {"train/describe": lambda _: {"events": [one.to_dict() for one in for_rows.planned]}}
    with pytest.raises(ProtocolError, match="another unit than the plan, a person"):
        run_rounds(how, InProcess([Party(name, liar) for name in ("north", "south")]), PlainSum(2))
    with pytest.raises(ProtocolError, match="another plan"):
        for_rows.describe({"plan": how.to_dict()})


def test_people_of_arrays_are_simulated_with_a_number_for_each() -> None:
    people = {name: np.arange(60) // 3 for name in ("north", "south")}
    how = plan(rows_per_person=2, batch=4)
    found = simulate(how, {name: samples(seed=at) for at, name in enumerate(people)}, people=people, secure="none")
    assert {event.unit for share in found.parties.values() for event in share.events} == {"person"}
    assert found.epsilon is not None
    assert 1.5 < found.epsilon <= 2.0


def test_a_holder_on_a_machine_of_its_own_protects_its_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    more = {"epsilon": 9.0, "delta": 1e-3, "rounds": 1, "spare": 0, "secure": "none", "batch": 20}
    plain = planned(visits(30), ["north", "south"], target="ill", schema=SCHEMA, person=None, rows_per_person=2, **more)
    how, coding = FederationPlan.from_dict(plain["plan"]), Coding.from_dict(plain["coding"])
    assert (how.person, how.rows_per_person, how.unit) == ("patient_id", 2, "person")
    keys = {name: make_identity(tmp_path / name) for name in HOLDERS}
    agreed = agreement(how, coding, "none", keys)
    parties = []
    for name, one in HOLDERS.items():
        one.write_csv(tmp_path / f"{name}.csv")
        parties.append(make_party(name, tmp_path / name, federation=agreed, data=str(tmp_path / f"{name}.csv")))
    (tmp_path / "federation.json").write_text(json.dumps(agreed))
    release = train_with_hosts(InProcess(parties), tmp_path / "federation.json", tmp_path / "work")
    sf.save(release, tmp_path / "out")
    verdict = sf.verify(tmp_path / "out")
    assert verdict.ok, verdict.failed
    assert (release.unit, sf.Ledger(tmp_path / "north" / "ledger").unit) == ("person", "person")
    HOLDERS["north"].drop("patient_id").write_csv(tmp_path / "bad.csv")
    with pytest.raises(ColumnError, match="no person column 'patient_id', which all holders must have"):
        make_party("north", tmp_path / "north", federation=agreed, data=str(tmp_path / "bad.csv"))


def test_the_command_protects_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, one in HOLDERS.items():
        one.write_csv(tmp_path / "data" / f"{name}.csv")
    declared = ["--target", "ill", "--bounds", "age=0,100", "--domain", "sex=f,m", "--domain", "ill=no,yes"]
    given = ["data", *declared, "--person", "patient_id", "--epsilon", "5", "--delta", "1e-3", "--rounds", "1"]
    given += ["--level", "record", "--simulate", "-o", "out"]
    done = CliRunner().invoke(command, [*given, "--rows-per-person", "3"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "add or remove one person" in done.stdout
    assert "for somebody with rows at m holders" in done.stderr
    assert sf.verify("out").ok
    assert sf.load("out").unit == "person"
    hosts = [*given, "--rows-per-person", "3", "--hosts", "north,south", "--address", "a:1", "--force"]
    assert CliRunner().invoke(command, hosts, catch_exceptions=False).exit_code == 0
    assert json.loads((tmp_path / "out.plan.json").read_text())["plan"]["person"] == "patient_id"

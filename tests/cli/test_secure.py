"""``sfumato secure``: parties with keys, a plan and a shared folder get one result; what is wrong gets one sentence."""

from __future__ import annotations

import functools
import importlib.util
import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.errors import FileError, OptionError, ProtocolError
from sfumato.federation import (
    Agreement,
    AnalysisHolder,
    FolderChannel,
    Party,
    analyse,
    answer_in_folder,
    handlers_of,
    inputs_of,
    load_identity,
    load_public,
    new_identity,
    sum_of,
    to_circuit,
)
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
NAMES = ("east", "north", "south")
SCHEMA = '[columns.age]\nbounds = [0, 120]\n[columns.ill]\ndomain = ["no", "yes"]\n'


@pytest.fixture
def planned(sfumato: Run) -> Run:
    for at, name in enumerate(NAMES):
        new_identity(name)
        Path(f"{name}.csv").write_text(f"age,ill\n{30 + at},no\n{50 + at},yes\n")
    Path("schema.toml").write_text(SCHEMA)
    parties = [part for name in NAMES for part in ("--party", f"{name}.pub")]
    return lambda *more: sfumato("secure", "plan", *more, "--schema", "schema.toml", *parties, "-o", "plan.json")


def joined(name: str) -> None:
    """Take part as `sfumato secure join` does, in a thread of this process."""
    agreement, (own, identity) = Agreement.load("plan.json"), load_identity(f"{name}.key")
    holder = AnalysisHolder(own, agreement.plan, pl.read_csv(f"{name}.csv"))
    handlers = handlers_of(
        agreement.plan.secure, agreement.roster, own, identity, holder.contribute, agreement.plan.function
    )
    answer_in_folder(Party(own, handlers), "exchange", timeout=120)


class Others:
    """Some parties, or the coordinator, in threads."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self.threads = [threading.Thread(target=one) for one in works]

    def __enter__(self) -> None:
        for one in self.threads:
            one.start()

    def __exit__(self, *error: object) -> None:
        for one in self.threads:
            one.join(120)
            assert not one.is_alive()


def test_keys_are_for_their_owner_alone_and_never_shown(sfumato: Run) -> None:
    ran = sfumato("secure", "keys", "north", "--json")
    assert (ran.code, ran.json) == (0, {"key": "north.key", "public": "north.pub"})
    assert stat.S_IMODE(Path("north.key").stat().st_mode) == 0o600
    secret = Path("north.key").read_text().split()[-1]
    assert secret not in ran.out + ran.err + Path("north.pub").read_text()
    assert repr(load_identity("north.key")[1]).find(secret) < 0
    refused(sfumato("secure", "keys", "north"), "exists, and a key is never overwritten")
    refused(sfumato("secure", "keys", "../north"), "up to 60 letters, digits, - and _")
    assert load_public("north.pub")[0] == "north"
    for load, path in ((load_public, "north.key"), (load_identity, "north.pub"), (load_identity, "none")):
        with pytest.raises(FileError):
            load(path)


@pytest.mark.parametrize("secure", ["masks", "ckks"])
def test_the_coordinator_prints_the_result_of_all_parties(planned: Run, sfumato: Run, secure: str) -> None:
    ran = planned("mean", "--columns", "age", "--secure", secure, "--json")
    assert ran.json["parties"] == list(NAMES)
    with Others(*(lambda name=name: joined(name) for name in NAMES)):
        ran = sfumato("secure", "stats", "plan.json", "exchange", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["result"]["age"] == pytest.approx({"count": 6, "sum": 246, "mean": 41, "variance": 120.8}, rel=1e-6)
    assert ran.json["holders"] == list(NAMES)
    assert min(ran.json["sent"].values()) > 500
    assert not [one for one in Path("exchange").rglob("*") if one.is_file()]


def test_a_party_joins_prints_what_it_sends_and_reveals_no_value(planned: Run, sfumato: Run) -> None:
    planned("table", "--columns", "ill")
    found = []

    def coordinate() -> None:
        agreement = Agreement.load("plan.json")
        channel = FolderChannel("exchange", agreement.roster.names)
        found.append(analyse(agreement.plan, channel, sum_of("masks", agreement.roster)))
        channel.end()

    with Others(coordinate, lambda: joined("east"), lambda: joined("south")):
        ran = sfumato("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["requests"] == 5
    assert "north: sum/vector" in ran.err
    assert Path("north.key").read_text().split()[-1] not in ran.err + ran.out
    assert found[0].values["cells"] == [{"ill": "no", "count": 3}, {"ill": "yes", "count": 3}]


def test_with_epsilon_a_party_without_a_budget_does_not_join(planned: Run, sfumato: Run) -> None:
    planned("mean", "--columns", "age", "--epsilon", "1")
    ran = sfumato("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key")
    refused(ran, "no budget was granted for this data")
    ledger = sf.Ledger.grant("north.csv", epsilon=2, delta=1e-5)
    ran = sfumato("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key", "--wait", "0.1")
    assert (ran.code, "waited for 0.1 s, and no request came" in ran.err) == (2, True)
    assert ledger.spent.epsilon == 0
    planned("mean", "--columns", "age", "--epsilon", "3", "--force")
    ran = sfumato("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key")
    refused(ran, "would exceed the limit, epsilon 2")
    assert not Path("north.answered").exists()
    ledger.close()


def test_wrong_plans_keys_and_folders_are_refused(planned: Run, sfumato: Run) -> None:
    refused(planned("mean"), "no column is named")
    refused(planned("mean", "--columns", "weight"), "weight")
    refused(planned("linear", "--columns", "age"), "linear needs --target")
    refused(planned("mean", "--columns", "age", "--target", "ill"), "mean does not take --target")
    refused(planned("mean", "--columns", "age", "--bins", "3"), "mean does not take --bins")
    refused(planned("histogram", "--columns", "age,ill"), "takes one column")
    refused(planned("mean", "--columns", "age", "--rows", "1000000000000"), "could overflow")
    refused(planned("mean", "--columns", "age", "--secure", "magic"), "magic")
    planned("mean", "--columns", "age")
    refused(sfumato("secure", "sum", "plan.json", "exchange"), "the plan is for mean (use stats)")
    new_identity("north", "other")
    ran = sfumato("secure", "join", "north.csv", "plan.json", "exchange", "--key", "other/north.key")
    refused(ran, "does not have the key of party 'north'")
    refused(
        sfumato("secure", "stats", "plan.json", "exchange", "--wait", "0.1", "--quiet"), "only 0 of 3 parties answered"
    )
    for damage in ("{}", '{"format": "sfumato joint analysis 1"}', "junk"):
        Path("bad.json").write_text(damage)
        refused(sfumato("secure", "stats", "bad.json", "exchange"), "is not a plan of an analysis")
    plain = json.loads(Path("plan.json").read_text())
    plain["parties"]["../etc"] = plain["parties"].pop("north")
    Path("bad.json").write_text(json.dumps(plain))
    refused(sfumato("secure", "stats", "bad.json", "exchange"), "up to 60 letters")
    assert "plan" in sfumato("secure").out


def test_a_plan_with_exchanged_keys_is_not_joined(planned: Run, sfumato: Run) -> None:
    # Whoever writes the plan gives east and south keys of its own: the sum would be north's alone.
    for name in ("east", "south"):
        new_identity(name, "forged")
    forged = [part for name in ("east", "south") for part in ("--party", f"forged/{name}.pub")]
    what = ("mean", "--columns", "age", "--schema", "schema.toml", "--party", "north.pub")
    assert sfumato("secure", "plan", *what, *forged, "-o", "plan.json").code == 0
    join = ("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key", "--wait", "0.1")
    refused(sfumato(*join), "the key of party 'east' in the plan is not the one that they handed to you")
    refused(sfumato(*join, *forged, "--party", "east.pub"), "the key of party 'east' in the plan is not the one")
    Path("east.pub").unlink()
    refused(sfumato(*join), "the key of party 'east' in the plan is not checked (put east.pub")
    refused(sfumato(*join, "--party", "south.key"), "is not the public key of a party")
    assert not Path("exchange").exists()


def test_a_plan_is_answered_once_also_after_a_restart(planned: Run, sfumato: Run) -> None:
    # A coordinator that had it answered again without one party would see what that party has.
    assert planned("mean", "--columns", "age", "--threshold", "2").code == 0
    join = ("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key")
    for others in (("east", "south"), ("east",)):
        found: list[object] = []
        refusal: list[str] = []

        def coordinate(found: list[object] = found, refusal: list[str] = refusal) -> None:
            agreement = Agreement.load("plan.json")
            channel = FolderChannel("exchange", agreement.roster.names, wait=2)
            try:
                found.append(analyse(agreement.plan, channel, sum_of("masks", agreement.roster)))
            except ProtocolError as error:
                refusal.append(str(error))
            channel.end()

        with Others(coordinate, *(functools.partial(joined, name) for name in others)):
            ran = sfumato(*join)
        assert "north: mean of age by masks, over the rows of east, north, south, 2 of which must take part" in ran.err
    assert not found
    assert "this party has answered this plan before" in refusal[0]
    assert stat.S_IMODE(Path("north.answered").stat().st_mode) == 0o700


needs_mpyc = pytest.mark.skipif(importlib.util.find_spec("mpyc") is None, reason="needs MPyC")


@needs_mpyc
def test_a_table_without_its_small_counts(planned: Run, sfumato: Run) -> None:
    for name, rows in {"north": "30,no\n31,no\n", "east": "40,yes\n41,no\n", "south": "50,no\n"}.items():
        Path(f"{name}.csv").write_text(f"age,ill\n{rows}")
    assert planned("table", "--columns", "ill", "--secure", "mpc", "--least", "3").code == 0
    with Others(*(functools.partial(joined, name) for name in NAMES)):
        ran = sfumato("secure", "stats", "plan.json", "exchange")
    assert ran.code == 0, ran.err
    assert "ill no, count 4\n" in ran.out
    assert "ill yes, count hidden\n" in ran.out


@needs_mpyc
def test_a_program_of_a_plan_runs_only_where_it_was_read(planned: Run, sfumato: Run) -> None:
    Path("largest.py").write_text("def function(mpc, vectors):\n    return mpc.max([one[0] for one in vectors])\n")
    what = ("function", "--columns", "age", "--size", "1", "--secure", "mpc", "--function", "largest.py")
    assert planned(*what).code == 0
    join = ("secure", "join", "north.csv", "plan.json", "exchange", "--key", "north.key", "--wait", "0.1")
    refused(sfumato(*join), "the plan holds a program that would run here (read it, then give your own copy")
    Path("other.py").write_text("def function(mpc, vectors):\n    return mpc.min([one[0] for one in vectors])\n")
    refused(sfumato(*join, "--function", "other.py"), "the program of the plan is not the one in 'other.py'")
    refused(sfumato(*join, "--function", "none.py"), "'none.py' cannot be read as a program")
    for at, name in enumerate(NAMES):
        Path(f"{name}.csv").write_text(f"age,ill\n{30 + at},no\n")
    with Others(*(functools.partial(joined, name) for name in ("east", "south"))):
        found: list[dict[str, object]] = []

        def coordinate() -> None:
            agreement = Agreement.load("plan.json")
            channel = FolderChannel("exchange", agreement.roster.names)
            secure = sum_of("mpc", agreement.roster, agreement.plan.function)
            found.append(analyse(agreement.plan, channel, secure).values)
            channel.end()

        with Others(coordinate):
            ran = sfumato(*join[:-1], "60", "--function", "largest.py")
    assert ran.code == 0, ran.err
    assert found == [{"age": {"opened": [32]}}]


def test_options_that_a_plan_does_not_take_are_refused(planned: Run) -> None:
    refused(planned("function", "--columns", "age", "--size", "1", "--secure", "mpc"), "function needs --function")
    refused(planned("mean", "--columns", "age", "--least", "3"), "mean does not take --least")
    refused(planned("table", "--columns", "ill", "--least", "3"), "only stay hidden by multi-party computation")
    refused(planned("quantiles", "--columns", "age", "--probabilities", "a"), "takes numbers from 0 to 1")
    refused(planned("mean", "--columns", "age", "--honest", "2"), "--honest says whose noise must suffice")
    refused(planned("table", "--columns", "ill", "--ridge", "1"), "table does not take --ridge")
    refused(planned("linear", "--columns", "age", "--target", "age", "--iterations", "3"), "does not take --iterations")
    refused(planned("logistic", "--columns", "age", "--target", "ill", "--ridge", "-1"), "--ridge must be")
    assert planned("logistic", "--columns", "age", "--target", "ill", "--ridge", "0", "--iterations", "3").code == 0
    analysis = json.loads(Path("plan.json").read_text())["plan"]["analysis"]
    assert (analysis["ridge"], analysis["iterations"]) == (0, 3)
    Path("plan.json").unlink()
    assert planned("quantiles", "--columns", "age", "--probabilities", "0,1", "--secure", "mpc").code == 0
    ran = planned("table", "--columns", "ill", "--force")
    assert "All counts will be open: one of 1 is a person" in ran.err


def test_what_cannot_work_is_said_before_anybody_waits(
    planned: Run, sfumato: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfumato.federation.secure.openfhe._running", [])
    monkeypatch.setenv("SFUMATO_OPENFHE_PYTHON", "/nowhere/python")
    planned("mean", "--columns", "age", "--secure", "threshold")
    join = ("secure", "join", "north.csv", "plan.json")
    for command in ((*join, "exchange", "--key", "north.key"), ("secure", "stats", "plan.json", "exchange")):
        refused(sfumato(*command), "'/nowhere/python' of SFUMATO_OPENFHE_PYTHON does not import openfhe")
    planned("mean", "--columns", "age", "--force")
    refused(sfumato(*join, "north.csv", "--key", "north.key", "--quiet"), "'north.csv' is not a folder")
    planned("sum", "--columns", "age", "--size", "3", "--force")
    refused(sfumato(*join, "exchange", "--key", "north.key"), "the vector has 2 numbers, but the plan is for 3")
    assert not Path("north.answered").exists()


def test_links_and_junk_in_the_shared_folder_harm_nobody(tmp_path: Path) -> None:
    party, own = Party("north", {"hello": lambda request: {"from": "north"}}), tmp_path / "north"
    own.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (own / "0000000001.reply").symlink_to(precious)
    channel = FolderChannel(tmp_path, ["north"], wait=1)
    (own / "0000000001.reply").symlink_to(precious)
    with pytest.raises(FileError, match="not a regular file"):
        channel.ask({"north": {"kind": "hello"}}, timeout=1)
    seen = []
    channel.end()
    assert answer_in_folder(party, tmp_path, timeout=5, seen=lambda *one: seen.append(one)) == 1
    assert seen[0][0] == "hello"
    assert precious.read_text() == "mine"
    (own / "0000000009.request").write_bytes(b"junk")
    with pytest.raises(ProtocolError, match="damaged"):
        answer_in_folder(party, tmp_path, timeout=5)
    with pytest.raises(OptionError):
        FolderChannel(tmp_path, [".."])


# predict


def test_a_server_answers_records_that_it_cannot_read(sfumato: Run) -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 10, 400)
    pl.DataFrame({"size": size, "ill": np.where(size + rng.normal(0, 1, 400) > 5, "yes", "no")}).write_csv("t.csv")
    options = ("--epsilon", "none", "--bounds", "size=0,10", "--domain", "ill=no,yes", "--target", "ill")
    ran = sfumato("train", "t.csv", "--model", "logistic", *options, "-o", "model")
    assert ran.code == 0, ran.err
    predict = ("secure", "predict")
    ran = sfumato(*predict, "question", "model", "-o", "question.json", "--json")
    assert ran.json["classes"] == ["no", "yes"]
    ran = sfumato(*predict, "keys", "question.json", "-o", "client", "--json")
    assert stat.S_IMODE(Path("client.secret").stat().st_mode) == 0o600
    refused(sfumato(*predict, "keys", "question.json", "-o", "client"), "never overwritten")
    Path("rows.csv").write_text("other,size\n1,0.4\n2,9.9\n")
    secret = ("--secret", "client.secret")
    assert sfumato(*predict, "encrypt", "rows.csv", "question.json", *secret, "-o", "rows.bin").code == 0
    assert sfumato(*predict, "answer", "model", "client.public", "rows.bin", "-o", "answers.bin").code == 0
    ran = sfumato(*predict, "decrypt", "answers.bin", "question.json", *secret, "--json")
    release = sf.load("model")
    rows = inputs_of(release.artifact.model, pl.DataFrame({"size": [0.4, 9.9]}))  # type: ignore[attr-defined]
    assert [one["class"] for one in ran.json["answers"]] == ["no", "yes"]
    for found, wanted in zip(ran.json["answers"], to_circuit(release)(rows).tolist(), strict=True):
        assert found["scores"] == pytest.approx(wanted, abs=1e-3)
    Path("wrong.csv").write_text("width\n3\n")
    refused(
        sfumato(*predict, "encrypt", "wrong.csv", "question.json", *secret, "-o", "w.bin"), "column 'size' is missing"
    )
    refused(sfumato(*predict, "decrypt", "rows.csv", "question.json", *secret), "damaged")
    refused(sfumato(*predict, "answer", "model", "rows.bin", "rows.bin", "-o", "a.bin"), "RelinKeys")
    refused(sfumato(*predict, "keys", "plan.json", "-o", "c"), "is not a question")
    assert "sfumato secure predict question" in sfumato(*predict).out


def test_a_regression_answers_with_amounts_however_large(sfumato: Run) -> None:
    size = np.linspace(0, 10, 200)
    pl.DataFrame({"size": size, "price": 100_000 + 70_000 * size}).write_csv("t.csv")
    options = ("--epsilon", "none", "--bounds", "size=0,10", "--bounds", "price=0,1000000", "--target", "price")
    ran = sfumato("train", "t.csv", "--model", "linear", "--regression", *options, "-o", "model")
    assert ran.code == 0, ran.err
    Path("rows.csv").write_text("size\n2\n9\n")
    predict, secret = ("secure", "predict"), ("--secret", "client.secret")
    for step in (
        ("question", "model", "-o", "q.json"),
        ("keys", "q.json", "-o", "client"),
        ("encrypt", "rows.csv", "q.json", *secret, "-o", "rows.bin"),
        ("answer", "model", "client.public", "rows.bin", "-o", "answers.bin"),
    ):
        ran = sfumato(*predict, *step)
        assert ran.code == 0, ran.err
    ran = sfumato(*predict, "decrypt", "answers.bin", "q.json", *secret, "--json")
    release = sf.load("model")
    wanted = release.artifact.model.predict(pl.DataFrame({"size": [2, 9]}))  # type: ignore[attr-defined]
    assert [one["scores"][0] for one in ran.json["answers"]] == pytest.approx(list(wanted), rel=1e-6)
    assert all(one.keys() == {"scores"} for one in ran.json["answers"])

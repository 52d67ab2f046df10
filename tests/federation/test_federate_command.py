"""``sfumato federate``: what it prints and writes, how it goes on, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import sfumato as sf
from sfumato.cli.commands.federate import federate
from sfumato.errors import InputError, OptionError, SchemaError

QUICK = ["--rounds", "2", "--learning-rate", "0.2", "--simulate"]
NURSERY = ["nursery", "--target", "class"]
TABLE = "age,sex,ill\n" + "\n".join(f"{age},{'fm'[age % 2]},{'yes' if age > 40 else 'no'}" for age in range(80)) + "\n"
DECLARED = ["--target", "ill", "--bounds", "age=0,100", "--domain", "sex=f,m", "--domain", "ill=no,yes"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(federate, arguments, catch_exceptions=False)


def test_the_json_has_the_keys_of_the_contract(folder):
    done = run(*NURSERY, *QUICK, "--clients", "3", "--json", "-o", "out")
    plain = json.loads(done.stdout)
    assert {"rounds", "final", "centralised", "epsilon"} <= plain.keys()
    assert [{*one} for one in plain["rounds"]] == [{"round", "clients", "accuracy", "loss", "seconds", "bytes"}] * 2
    assert {*plain["final"]} == {"accuracy", "auc"}
    assert {*plain["centralised"]} == {"accuracy", "auc", "seconds"}
    assert "3 holders in this process" in done.stderr
    assert "round 2: 3 holders, accuracy" in done.stderr
    assert sf.load("out").kind == "federated-model"
    page = (folder / "out" / "report.html").read_text()
    assert "Accuracy by round" in page
    assert "ROC curves" in page
    assert [one.name for one in sorted((folder / "out.run" / "rounds").iterdir())][-1] == "round-0002.safetensors"


def test_a_table_of_each_holder_is_trained_privately_and_verified(folder):
    (folder / "data").mkdir()
    for name in ("north", "south"):
        (folder / "data" / f"{name}.csv").write_text(TABLE)
    done = run("data", *DECLARED, *QUICK, "--epsilon", "5", "--delta", "1e-3", "-o", "out")
    assert done.exit_code == 0
    assert sf.verify("out").ok
    assert "OUT" not in done.stderr
    owner = json.loads((folder / "out.owner.json").read_text())
    assert owner["scores"]["accuracy"] is not None
    assert "Accuracy by round" not in (folder / "out" / "report.html").read_text()
    assert {one.name for one in (folder / "out.run" / "ledgers").glob("*.ledger")} == {"north.ledger", "south.ledger"}


def test_a_zero_is_a_choice(folder):
    done = run(*NURSERY, "--hosts", "north,south", "--address", "a:1", "--spare", "0", "--absent", "0", "-o", "out")
    assert done.exit_code == 0
    plan = json.loads((folder / "out.plan.json").read_text())["plan"]
    assert (plan["spare"], plan["absence"]) == (0, 0.0)


def test_images_without_privacy_have_a_recipe_of_their_own_which_each_option_changes(folder):
    hosts = ["mnist", "--hosts", "north,south", "--address", "a:1", "-o", "out"]

    def planned(*more):
        assert run(*hosts, *more).exit_code == 0
        plan = json.loads((folder / "out.plan.json").read_text())["plan"]
        return [plan[one] for one in ("rounds", "momentum", "decay", "augment")]

    assert planned() == [60, 0.5, True, True]
    assert planned("--no-augment", "--no-decay", "--momentum", "0", "--rounds", "4") == [4, 0.0, False, False]
    assert planned("--epsilon", "3") == [10, 0.0, False, False]
    assert planned("--model", "scattering-linear") == [60, 0.5, True, False]


def test_the_same_command_goes_on_after_the_last_finished_round(folder, monkeypatch):
    from sfumato.federation import rounds

    whole = json.loads(run(*NURSERY, *QUICK, "--rounds", "3", "--clients", "3", "--json", "-o", "whole").stdout)
    real = rounds._round

    def stopped(plan, channel, secure, state, number, weights):
        if number == 3:
            raise KeyboardInterrupt
        return real(plan, channel, secure, state, number, weights)

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "_round", stopped)
        run(*NURSERY, *QUICK, "--rounds", "3", "--clients", "3", "-o", "out")
    assert not (folder / "out").exists()
    again = run(*NURSERY, *QUICK, "--rounds", "3", "--clients", "3", "--json", "-o", "out")
    assert "Going on from the last finished round" in again.stderr
    assert again.stderr.count("round 3") == 1
    assert "round 2:" not in again.stderr
    assert json.loads(again.stdout)["final"] == whole["final"]


def test_a_file_without_a_column_is_named(folder):
    (folder / "data").mkdir()
    (folder / "data" / "north.csv").write_text(TABLE)
    (folder / "data" / "south.csv").write_text(TABLE.replace("sex", "gender"))
    with pytest.raises(InputError, match="holder 'south': there is no column 'sex'"):
        run("data", *DECLARED, *QUICK)


def test_the_commands_for_real_hosts_name_every_step(folder):
    done = run(*NURSERY, "--hosts", "north,south", "--address", "fed.example.org:9092", "-o", "out")
    for step in ("authority", "key --folder south", "agree --plan out.plan.json", "coordinate", "join --name north"):
        assert step in done.stdout
    assert json.loads((folder / "out.plan.json").read_text())["plan"]["threshold"] == 2
    assert "timeout" not in done.stdout
    done = run(*NURSERY, "--hosts", "north,south", "--address", "fed.example.org:9092", "-o", "out", "--timeout", "20")
    assert "--set output=out --set timeout=20\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ([*NURSERY, "--hosts", "north,south"], OptionError, "--address"),
        ([*NURSERY, "--hosts", "north,south", "--address", "nowhere"], OptionError, "HOST:PORT"),
        ([*NURSERY, "--simulate", "--processes"], OptionError, "exclude each other"),
        ([*NURSERY, "--simulate", "--timeout", "9"], OptionError, "--timeout is for holders that are processes"),
        ([*NURSERY, "--processes", "--timeout", "0"], OptionError, "--timeout must be"),
        ([*NURSERY, "--numbers", "form"], OptionError, "built in"),
        (["table.csv", "--target", "ill", "--simulate"], SchemaError, "not declared"),
        (["table.csv", *DECLARED, "--simulate", "--model", "cnn"], OptionError, "logistic, mlp"),
    ],
)
def test_a_wrong_option_is_one_sentence(folder, arguments, error, says):
    (folder / "table.csv").write_text(TABLE)
    with pytest.raises(error, match=says):
        run(*arguments)

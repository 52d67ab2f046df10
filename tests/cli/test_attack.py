"""`sfumato attack`: the contract of its JSON, its words, its exit codes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
RNG = np.random.default_rng(3)
PEOPLE = pl.DataFrame(
    {
        "age": RNG.integers(18, 90, 200),
        "zip": [f"Z{number:02d}" for number in RNG.integers(0, 40, 200)],
        "ill": RNG.choice(["no", "yes"], 200),
    }
)
"""Whether these people are ill is random: a tree learns it by heart, and nobody can predict it."""
MODEL = ("attack", "people.csv", "--target", "ill", "--model", "tree")
CHEAP = ("--references", "4", "--processes", "1")


@pytest.fixture
def attack(sfumato: Run) -> Run:
    """Run a command in a folder with a table, its two halves, and a release of it."""
    sf.write(PEOPLE, "people.csv")
    sf.write(PEOPLE[:100], "inside.csv")
    sf.write(PEOPLE[100:].with_columns(zip=pl.lit("Z") + pl.col("age").cast(pl.String)), "outside.csv")
    sf.save(sf.anonymize("inside.csv", "k=2", qi=["age", "zip"], sensitive=["ill"]), "release")
    return sfumato


def test_the_json_has_the_keys_that_other_tools_rely_on(attack: Run) -> None:
    ran = attack(*MODEL, "--attacks", "loss,gap,rmia", *CHEAP, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert {"target", "attacks", "worst", "skipped", "verdict", "leaks", "seed"} <= found.keys()
    assert found["target"]["train_accuracy"] > 0.95 > found["target"]["test_accuracy"]
    keys = {"name", "auc", "accuracy", "precision", "recall", "tpr_at_fpr", "baseline", "ci", "n", "verdict"}
    assert all(keys <= one.keys() for one in found["attacks"])
    assert [one["name"] for one in found["attacks"]] == ["loss", "gap", "rmia"]
    best = max(found["attacks"], key=lambda one: one["auc"])
    assert found["worst"] == {"name": best["name"], "auc": best["auc"]}
    low, high = best["ci"]
    assert low <= best["auc"] <= high
    assert {"0.01", "0.001"} == best["tpr_at_fpr"].keys()
    assert best["n"] == {"members": 100, "nonmembers": 100}


def test_the_text_begins_with_the_verdict_and_ends_with_zero_although_there_is_leakage(attack: Run) -> None:
    ran = attack(*MODEL, "--attacks", "loss,gap")
    assert ran.code == 0
    first, second, *_ = ran.out.splitlines()
    assert first == "2 of 2 attacks found leakage: loss, gap."
    assert second.startswith("The model is right about 9")
    assert "the other half is the control" in " ".join(ran.out.split())
    assert "verdict" in ran.out
    assert "0.5" not in ran.err


def test_a_protected_model_shows_less(attack: Run) -> None:
    """A tree learns labels that nobody can predict; from two classes of 50 rows it learns the shares of the labels."""
    by_heart = attack(*MODEL, "--attacks", "loss", "--json").json
    ran = attack(*MODEL, "--protect", "guided:k=50", "--attacks", "loss", "--json")
    assert ran.code == 0
    assert by_heart["worst"]["auc"] > 0.7
    assert ran.json["worst"]["auc"] < 0.65
    assert "the schema names no quasi-identifier, so all features are" in ran.json["target"]["notes"]


def test_a_private_model_takes_from_the_rows_what_a_text_file_does_not_declare(attack: Run) -> None:
    ran = attack(*MODEL, "--protect", "dp:epsilon=1", "--attacks", "gap", "--json")
    assert ran.code == 0, ran.err
    assert "are not declared; they were taken from all rows" in ran.json["target"]["notes"][0]


def test_a_requirement_decides_the_exit_code(attack: Run) -> None:
    refused_ = attack(*MODEL, "--attacks", "loss,gap", "--require", "auc=0.55", "--json")
    assert (refused_.code, refused_.json["satisfied"], refused_.json["require"]) == (1, False, {"auc": 0.55})
    said = attack(*MODEL, "--attacks", "loss", "--require", "auc=0.55")
    assert (said.code, said.out.splitlines()[-1]) == (1, "Surely above auc=0.55: loss.")
    kept = attack(*MODEL, "--protect", "guided:k=50", "--attacks", "loss", "--require", "auc=0.55")
    assert (kept.code, kept.out.splitlines()[-1]) == (0, "No attack is surely above auc=0.55.")
    unchecked = attack("attack", "release", "--attacks", "linkage", "--require", "auc=0.55")
    assert unchecked.code == 1
    assert "No attack was run, so that auc=0.55 was not checked." in unchecked.out


def test_a_release_with_its_original_and_a_control_is_attacked_itself(attack: Run) -> None:
    arguments = ("attack", "release", "--source", "inside.csv", "--control", "outside.csv", "-o", "page.html")
    ran = attack(*arguments)
    assert ran.code == 0, ran.err
    assert "The release itself was attacked." in " ".join(ran.out.split())
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Attacks on release" in page
    assert "linkage" in page
    assert "The report is in page.html; it is for you alone" in ran.err
    refused(attack(*arguments), "'page.html' exists already")
    assert attack(*arguments, "--force", "--quiet").err == ""


def test_without_a_control_the_text_says_that_a_half_was_released_again(attack: Run) -> None:
    ran = attack("attack", "release", "--source", "inside.csv", "--attacks", "linkage", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["target"]["members"] == 50
    assert "run again on a random half" in ran.json["target"]["how"]


def test_without_its_original_the_release_says_which_attacks_need_it(attack: Run) -> None:
    ran = attack("attack", "release")
    assert ran.code == 0
    assert "Only the release was given." in ran.out
    assert "  linkage: it needs the original records (--source)" in ran.out.splitlines()


def test_a_synthetic_table_is_attacked_with_its_original(attack: Run) -> None:
    ran = attack(
        *("attack", "outside.csv", "--synthetic", "--source", "inside.csv", "--control", "people.csv", "--json"),
        *("--qi", "age,zip", "--sensitive", "ill"),
    )
    refused(ran, "100 of 200 non-members are also members")
    ran = attack("attack", "people.csv", "--synthetic", "--source", "inside.csv", "--control", "outside.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["target"]["kind"] == "synthetic"


def test_an_audit_says_what_it_showed_and_what_it_could_have_shown(attack: Run) -> None:
    public = sf.Schema([sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])])
    table = sf.Table(PEOPLE.select("age", "ill"), public)
    sf.save(sf.train(table, "naive-bayes", target="ill", epsilon=1), "model")
    said = attack("attack", "model", "--source", "people.csv", "--audit", "-o", "audit.html")
    assert said.code == 0, said.err
    assert said.out.startswith("The audit passes")
    assert "could have been shown" in said.out
    assert "could have been shown" in Path("audit.html").read_text(encoding="utf-8")
    both = attack("attack", "model", "--source", "people.csv", "--audit", "--attacks", "gap", "--json")
    assert both.code == 0, both.err
    assert both.json["audit"]["claimed"]["epsilon"] == 1
    assert both.json["audit"]["passed"] is True
    assert [one["name"] for one in both.json["attacks"]] == ["gap"]
    refused(attack("attack", "release", "--source", "inside.csv", "--audit"), "does not claim differential privacy")


def test_a_refuted_claim_ends_with_one(attack: Run) -> None:
    """Almost without noise, a model of places where one person lives each knows every planted record."""
    homes = [f"Z{number:03d}" for number in range(200)]
    rows = pl.DataFrame({"zip": homes, "ill": ["no", "yes"] * 100})
    public = sf.Schema([sf.Column(name="zip", domain=homes), sf.Column(name="ill", domain=["no", "yes"])])
    training = sf.train(sf.Table(rows, public), "naive-bayes", target="ill", epsilon=1e4)
    sf.save(training, "model")
    certificate = json.loads(Path("model/certificate.json").read_text(encoding="utf-8"))
    for guarantee in certificate["guarantees"]:
        guarantee["epsilon"] = 0.01
    certificate["parameters"]["events"] = []
    Path("model/certificate.json").write_text(json.dumps(certificate), encoding="utf-8")
    sf.write(rows, "rows.csv")
    ran = attack("attack", "model", "--source", "rows.csv", "--audit", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["audit"]["passed"] is False


BAD: dict[str, tuple[str, str]] = {
    "overlap": (
        "attack release --source inside.csv --control people.csv",
        "100 of 200 non-members are also members, so that the attacks have no control",
    ),
    "one class": ("attack one.csv --target ill --model tree", "the target 'ill' has a single class"),
    "few rows": ("attack few.csv --target ill --model tree", "an attack needs at least 8 rows"),
    "few rows of a release": ("attack release --source few.csv", "an attack needs at least 8 rows"),
    "population": (
        "attack release --source inside.csv --population narrow.csv",
        "the population lacks the column 'zip' of the release",
    ),
    "source": ("attack release --source narrow.csv", "narrow.csv lacks the column 'zip' of the release"),
    "no such target": ("attack people.csv --target il --model tree", "did you mean 'ill'?"),
    "classes": ("attack people.csv --target age --model tree --attacks loss", "attacks need classes"),
    "a typo": ("attack adlt --model tree", "there is no file 'adlt' (did you mean 'adult'?)"),
    "reading options": ("attack adult --model tree --decimal ,", "'adult' is built in"),
    "not a release": ("attack empty", "certificate.json"),
    "a release and a model": ("attack release --model tree", "a release says itself what it is"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(attack: Run, case: str) -> None:
    sf.write(PEOPLE.with_columns(ill=pl.lit("no")), "one.csv")
    sf.write(PEOPLE[:3], "few.csv")
    sf.write(PEOPLE.select("age", "ill"), "narrow.csv")
    Path("empty").mkdir()
    command, said = BAD[case]
    refused(attack(*command.split()), said)


def test_help_says_when_the_exit_code_is_one(attack: Run) -> None:
    ran = attack("attack", "--help")
    assert "The exit code is 0 even if there is leakage" in " ".join(ran.out.split())


def test_a_name_from_a_file_cannot_control_the_terminal(attack: Run) -> None:
    evil: Any = PEOPLE.rename({"ill": "i\x1b[31ml"})
    sf.write(evil, "evil.csv")
    ran = attack("attack", "evil.csv", "--target", "i\x1b[31ml", "--model", "tree", "--attacks", "gap")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out + ran.err

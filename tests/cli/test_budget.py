"""``sfumato budget``, ``query``, ``perturb`` and ``estimate``: what is printed, and one sentence for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
TABLE = "zip,age,sex,smokes\n" + "13053,28,f,yes\n13053,40,m,no\n14850,91,f,no\n14850,,m,no\n" * 50
SEX = ("--domain", "sex=f,m")
AGE = ("--bounds", "age=0,100")


@pytest.fixture
def run(sfumato: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    Path("t.csv").write_text(TABLE)
    return sfumato


def test_a_file_that_is_not_a_ledger_is_named_as_such(run: Run) -> None:
    Path("other.csv").write_text("a,b\n1,2\n")
    for command in (["budget", "show", "t.csv"], ["budget", "grant", "t.csv", "--epsilon", "1"]):
        refused(run(*command, "--ledger", "other.csv"), "'other.csv' is not a ledger", "sfumato budget grant")
    assert Path("other.csv").read_text() == "a,b\n1,2\n"


def test_an_answer_is_saved_as_a_release(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "2")
    asked = ["query", "t.csv", "count by sex", "--epsilon", "0.5", *SEX]
    ran = run(*asked, "-o", "answer", "--json")
    assert ran.code == 0
    assert ran.json["rows"] == json.loads(Path("answer/answer.json").read_text())["rows"]
    verdict = run("verify", "answer", "--json")
    assert (verdict.code, verdict.json["ok"], verdict.json["kind"]) == (0, True, "statistics")
    charged = len(run("budget", "show", "t.csv", "--json").json["events"])
    refused(run(*asked, "-o", "answer"), "answer", "--force")
    refused(run(*asked, "-o", "answer.json"), "folder of a release")
    refused(run(*asked, "-o", "other", "--dry-run"), "dry run")
    assert len(run("budget", "show", "t.csv", "--json").json["events"]) == charged
    assert run(*asked, "-o", "answer", "--force").code == 0


def test_a_budget_is_granted_spent_and_shown(run: Run) -> None:
    granted = run("budget", "grant", "t.csv", "--epsilon", "2", "--delta", "1e-4", "--note", "by the board", "--json")
    assert granted.code == 0, granted.err
    assert granted.json["limit"] == {"epsilon": 2.0, "delta": 1e-4}
    assert granted.json["spent"] == {"epsilon": 0.0, "delta": 1e-4}
    assert "The ledger is " in granted.err
    answer = run("query", "t.csv", "count by sex", "--epsilon", "0.5", *SEX, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["epsilon"] == 0.5
    assert 0.49 < answer.json["spent"]["epsilon"] <= 0.5
    assert [row["sex"] for row in answer.json["rows"]] == ["f", "m", None]
    assert all(row["interval"][0] <= row["value"] <= row["interval"][1] for row in answer.json["rows"])
    shown = run("budget", "show", "t.csv", "--json").json
    assert shown["spent"] == answer.json["spent"]
    assert [event["note"] for event in shown["events"]] == ["count by sex"]
    told = run("budget", "history", "t.csv", "--json").json
    assert [entry["kind"] for entry in told["history"]] == ["made", "grant", "charge"]
    assert told["events"] == shown["events"]


def test_a_person_can_read_it(run: Run) -> None:
    ran = run("budget", "grant", "t.csv", "--epsilon", "2", "--note", "by the board")
    assert ran.out.splitlines() == ["spent epsilon 0 of 2, delta 0, to add or remove one record", "left  epsilon 2"]
    ran = run("query", "t.csv", "mean of age by sex", "--epsilon", "0.5", *SEX, *AGE, "--note", "for Ada")
    lines = ran.out.splitlines()
    assert lines[0].split("  ")[0] == "sex"
    assert "95 % interval" in lines[0]
    assert lines[3].startswith("(other or missing)")
    assert lines[-1] == "epsilon 0.5 charged, to add or remove one record; spent epsilon 0.5 of 2, left 1.5"
    history = run("budget", "history", "t.csv").out
    assert "granted  epsilon 2, delta 0 (by the board)" in history
    assert "(mean of age by sex (for Ada))" in history
    assert run("budget").out.startswith("Usage:")


def test_a_ledger_for_people_says_so(run: Run) -> None:
    ran = run("budget", "grant", "t.csv", "--epsilon", "2", "--unit", "person", "--ledger", "people.ledger")
    assert ran.out.splitlines()[0] == "spent epsilon 0 of 2, delta 0, to add or remove one person"
    assert "made     add or remove one person" in run("budget", "history", "t.csv", "--ledger", "people.ledger").out


def test_what_is_left_is_said_when_a_question_is_refused(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "1")
    run("query", "t.csv", "count", "--epsilon", "0.75")
    refused(
        run("query", "t.csv", "count", "--epsilon", "0.5"),
        "a charge of epsilon 0.5 would exceed the limit, epsilon 1, delta 0 (epsilon 0.25 is left)",
    )
    assert len(run("budget", "show", "t.csv", "--json").json["events"]) == 1


def test_the_ledger_follows_the_content_and_not_the_file(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "1")
    sf.write(sf.read("t.csv"), "copy.parquet")
    run("query", "copy.parquet", "count", "--epsilon", "0.75")
    assert run("budget", "show", "t.csv", "--json").json["spent"]["epsilon"] == 0.75
    Path("t.csv").write_text(TABLE + "1,2,f,no\n")
    refused(run("budget", "show", "t.csv"), "but its content now reads differently", "grant the changed data")


def test_a_ledger_in_a_file_of_its_own(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "1", "--ledger", "mine.ledger", "--relation", "replace-one")
    assert run("query", "t.csv", "count", "--epsilon", "0.5", "--ledger", "mine.ledger", "--json").json["left"] == 0.5
    assert run("budget", "show", "t.csv", "--ledger", "mine.ledger", "--json").json["relation"] == "replace-one"
    refused(run("budget", "show", "t.csv"), "no budget was granted")
    Path("other.csv").write_text("age\n1\n")
    refused(run("budget", "show", "other.csv", "--ledger", "mine.ledger"), "belongs to another data set")
    refused(run("budget", "show", "t.csv", "--ledger", "none.ledger"), "there is no ledger 'none.ledger'")
    Path("mine.ledger").write_bytes(b"")
    refused(run("query", "t.csv", "count", "--epsilon", "0.1", "--ledger", "mine.ledger"), "mine.ledger' is damaged")
    assert Path("mine.ledger").read_bytes() == b""


def test_the_whole_ledger_can_be_exported(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "1")
    run("query", "t.csv", "count", "--epsilon", "0.25")
    plain = run("budget", "export", "t.csv").json
    assert [entry["kind"] for entry in plain["entries"]] == ["made", "grant", "charge"]
    assert all(len(entry["seal"]) == 64 for entry in plain["entries"])
    ran = run("budget", "export", "t.csv", "-o", "ledger.json")
    assert (ran.code, ran.out) == (0, "")
    assert json.loads(Path("ledger.json").read_text()) == plain
    refused(run("budget", "export", "t.csv", "-o", "t.csv"), "'t.csv' is read and cannot be written too")


def test_a_note_or_a_value_cannot_write_over_what_is_shown(run: Run) -> None:
    rows = "a\x1b[2Jb\n" * 50
    Path("t.csv").write_text(f"job\n{rows}")
    run("budget", "grant", "t.csv", "--epsilon", "9", "--delta", "1e-3", "--note", "ok\n2099  granted  epsilon 1000")
    ran = run(
        "query", "t.csv", "count by job", "--epsilon", "5", "--discover", "--delta", "1e-4", "--note", "\x1b]0;x\x07"
    )
    assert r"a\x1b[2Jb" in ran.out
    history = run("budget", "history", "t.csv").out
    assert len(history.splitlines()) == 5
    assert "\x1b" not in ran.out + history
    assert run("budget", "history", "t.csv", "--json").json["history"][1]["note"].startswith("ok\n2099")


def test_the_built_in_table_says_what_is_public(run: Run) -> None:
    run("budget", "grant", "adult", "--epsilon", "9")
    ran = run("query", "adult", "count by sex, income", "--epsilon", "0.5", "--json")
    assert ran.code == 0, ran.err
    assert [row["value"] for row in ran.json["rows"][:2]] == pytest.approx([14_423, 1_769], abs=80)
    assert run("query", "adult", "mean of hours-per-week by race", "--epsilon", "0.5").code == 0
    ran = run("query", "adult", "count by sex", "--epsilon", "0.5", "--domain", "sex=Female", "--json")
    assert [row["sex"] for row in ran.json["rows"]] == ["Female", None]


def test_every_statistic_can_be_asked_for(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "1000", "--delta", "1e-4")
    for question in (
        "count", "sum of age", "mean of age", "median of age", "quantile 0.9 of age", "histogram of age", "max of age",
        "variance of age where zip = '13053'",
    ):  # fmt: skip
        ran = run("query", "t.csv", f"{question} by sex", "--epsilon", "50", *SEX, *AGE)
        assert ran.code == 0, ran.err
        assert ran.out.count("\n") >= 5
    ran = run("query", "t.csv", "count by zip", "--epsilon", "50", "--discover", "--delta", "1e-6", "--json")
    assert [row["zip"] for row in ran.json["rows"]] == ["13053", "14850"]
    ran = run("query", "t.csv", "count by zip, age", "--epsilon", "0.01", "--discover", "--delta", "1e-9")
    assert "No group was found" in ran.out


def test_a_dry_run_says_what_a_question_would_cost_and_charges_nothing(run: Run) -> None:
    asked = ["query", "t.csv", "mean of age where zip = '13053' by sex", "--epsilon", "0.5", *SEX, *AGE, "--dry-run"]
    ran = run(*asked)
    assert ran.code == 0, ran.err
    assert "would cost epsilon 0.5" in ran.out
    assert "answers: 3" in ran.out
    assert "1,000 rows: about" in ran.out
    told = run("query", "t.csv", "count", "--epsilon", "0.5", "--dry-run", "--json").json
    assert (told["dry_run"], told["width"], told["fits"]) == (True, 12, None)
    run("budget", "grant", "t.csv", "--epsilon", "0.4", "--ledger", "own.ledger")
    ran = run(*asked, "--ledger", "own.ledger")
    assert "left of the budget: epsilon 0.4, not enough" in ran.out
    assert run("budget", "show", "t.csv", "--ledger", "own.ledger", "--json").json["spent"]["epsilon"] == 0


def test_a_schema_declares_what_is_public(run: Run) -> None:
    Path("s.toml").write_text('[columns.sex]\ndomain = ["f", "m"]\n[columns.age]\nbounds = [0, 120]\n')
    run("budget", "grant", "t.csv", "--epsilon", "10")
    rows = run("query", "t.csv", "mean of age by sex", "--epsilon", "5", "--schema", "s.toml", "--json").json["rows"]
    assert [row["sex"] for row in rows] == ["f", "m", None]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["count by sex", "--epsilon", "1"], ["column 'sex' has no public domain", "--discover"]),
        (["mean of age", "--epsilon", "1"], ["column 'age' has no public bounds"]),
        (["count", "--epsilon", "0"], ["epsilon must be a finite number above 0, got 0.0"]),
        (["count", "--epsilon", "nan"], ["epsilon must be a finite number above 0"]),
        (["count", "--epsilon", "much"], ["--epsilon"]),
        (["count"], ["--epsilon"]),
        (["cout", "--epsilon", "1"], ["must begin with a statistic, got 'cout' (did you mean 'count'"]),
        (["count by sexe", "--epsilon", "1", *SEX], ["there is no column 'sexe'"]),
        (["count by sex", "--epsilon", "1", "--domain", "sexe=f"], ["there is no column 'sexe' (did you mean 'sex'"]),
        (["count by sex", "--epsilon", "1", "--domain", "sex"], ["--domain must look like sex=f,m", "got 'sex'"]),
        (["count by sex", "--epsilon", "1", "--domain", "sex=f,f"], ["lists a value twice"]),
        (["mean of age", "--epsilon", "1", "--bounds", "age=1"], ["--bounds must look like age=0,100, got 'age=1'"]),
        (["mean of age", "--epsilon", "1", "--bounds", "age=9,1"], ["--bounds needs the smaller number first"]),
        (["mean of age", "--epsilon", "1", "--bounds", "age=0,inf"], ["must be finite and in order"]),
        (["mean of age", "--epsilon", "1", "--bounds", "age=5,5"], ["are equal"]),
        (["count", "--epsilon", "1", "--confidence", "2"], ["--confidence must be a number between 0 and 1"]),
        (["count by zip", "--epsilon", "1", "--discover"], ["discovering groups needs a delta", "--delta"]),
        (
            ["count by zip", "--epsilon", "1", "--discover", "--delta", "0.5"],
            ["no finite epsilon at the delta of the limit"],
        ),
    ],
)
def test_what_cannot_be_asked_gets_one_sentence_and_costs_nothing(
    run: Run, arguments: list[str], parts: list[str]
) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "10", "--delta", "1e-4")
    refused(run("query", "t.csv", *arguments), *parts)
    assert run("budget", "show", "t.csv", "--json").json["events"] == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--epsilon", "0"], "epsilon must be a finite number above 0"),
        (["--epsilon", "inf"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1", "--delta", "-1"], "delta must be"),
        (["--epsilon", "1", "--delta", "0.005"], "delta must be below 1 / 200"),
        (["--epsilon", "1", "--relation", "both"], "--relation"),
        ([], "--epsilon"),
    ],
)
def test_what_cannot_be_granted_gets_one_sentence(run: Run, arguments: list[str], part: str) -> None:
    refused(run("budget", "grant", "t.csv", *arguments), part)
    refused(run("budget", "show", "t.csv"), "no budget was granted")


def test_records_are_perturbed_and_estimated(run: Run) -> None:
    smokes = (
        "--columns",
        "smokes,age",
        "--domain",
        "smokes=yes,no",
        "--bounds",
        "zip=0,99999",
        "--domain",
        "age=28,40,91",
    )
    ran = run("perturb", "t.csv", *smokes, "--missing", "--epsilon", "4", "-o", "out.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["charged"] is False
    assert ran.json["relation"] == "replace-one"
    assert ran.json["rows"] == 200
    assert "no ledger" in ran.err
    assert Path("out.csv").read_text().splitlines()[0] == "smokes,age"
    found = run("estimate", "out.csv", "--json").json
    assert found["rows"] == 200
    shares = {(one["column"], one["value"]): one for one in found["estimates"]}
    assert sum(one["estimate"] for key, one in shares.items() if key[0] == "smokes") == pytest.approx(1)
    assert abs(shares["smokes", "yes"]["estimate"] - 0.25) < 5.5 * shares["smokes", "yes"]["standard_error"]
    assert ("age", None) in shares
    ran = run("perturb", "t.csv", "--columns", "zip", "--bounds", "zip=0,99999", "--epsilon", "1", "-o", "zip.csv")
    assert "laplace noise of epsilon 1" in ran.out
    assert "replace one record" in ran.out
    told = run("estimate", "zip.csv").out
    assert told.startswith("mean of zip")
    assert "95 % interval" in told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--epsilon", "1", "-o", "out.csv"], "the columns to perturb must be a list"),
        (["--columns", "sex", "--epsilon", "1", "-o", "out.csv"], "neither a public domain nor public bounds"),
        (["--columns", "sex", *SEX, "--epsilon", "-1", "-o", "out.csv"], "epsilon must be a finite number above 0"),
        (
            ["--columns", "age", *AGE, "--epsilon", "1", "-o", "out.csv"],
            "has missing cells or cells that are not numbers",
        ),
        (["--columns", "sex", *SEX, "--epsilon", "1", "-o", "t.csv"], "is read and cannot be written too"),
        (["--columns", "sex", *SEX, "--epsilon", "1", "-o", "out.doc"], "the format of 'out.doc' is unknown"),
    ],
)
def test_what_cannot_be_perturbed_gets_one_sentence(run: Run, arguments: list[str], part: str) -> None:
    refused(run("perturb", "t.csv", *arguments), part)
    assert not Path("out.csv").exists()


def test_an_interval_that_says_nothing_is_pointed_out(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "9")
    asked = ("mean of sex", "--epsilon", "1", "--bounds", "sex=0,1", "--confidence", "0.99999999")
    ran = run("query", "t.csv", *asked, "--json")  # narrower by chance less often than once in 10^7 runs
    assert ran.json["rows"][0]["interval"] == [0, 1]
    assert "too few numbers for this epsilon, or the column has none" in ran.err
    assert "says nothing" not in run("query", "t.csv", "mean of age", "--epsilon", "1", *AGE).err


def test_the_history_marks_what_was_answered_with_a_given_seed(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "4", "--relation", "replace-one")
    run("query", "t.csv", "count", "--epsilon", "1")
    run("query", "t.csv", "count", "--epsilon", "1", "--insecure-seed", "7")
    run("perturb", "t.csv", "--columns", "sex", *SEX, "--epsilon", "1", "--insecure-seed", "7", "-o", "out.csv")
    told = run("budget", "history", "t.csv").out.splitlines()
    assert ["SEEDED: NOT PRIVATE" in line for line in told] == [False, False, False, True, True, False, False]
    told = run("budget", "history", "t.csv", "--json").json
    assert [one["private"] for one in told["history"] if one["kind"] == "charge"] == [True, False, False]
    assert [one["private"] for one in told["events"]] == [True, False, False]
    exported = run("budget", "export", "t.csv").json
    assert [one["private"] for one in exported["entries"] if one["kind"] == "charge"] == [True, False, False]


def test_a_given_seed_is_said_to_be_not_private(run: Run) -> None:
    run("budget", "grant", "t.csv", "--epsilon", "9", "--relation", "replace-one")
    ran = run("query", "t.csv", "count", "--epsilon", "1", "--insecure-seed", "7", "--json")
    assert ran.json["private"] is False
    assert (
        ran.json["rows"]
        == run("query", "t.csv", "count", "--epsilon", "1", "--insecure-seed", "7", "--json").json["rows"]
    )
    assert "not private" in ran.err
    ran = run("perturb", "t.csv", "--columns", "sex", *SEX, "--epsilon", "1", "--insecure-seed", "7", "-o", "out.csv")
    assert "not private" in ran.err
    assert "no ledger" not in ran.err


def test_a_file_that_was_not_perturbed_cannot_be_estimated(run: Run) -> None:
    refused(run("estimate", "t.csv"), "the description of how 't.csv' was perturbed, cannot be read")


def test_help_loads_no_accountant(run_python: Callable[[str], str]) -> None:
    for command in ("budget", "query", "perturb", "estimate"):
        program = (
            "import sys\nfrom sfumato.cli.main import main\n"
            f"try: main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
            "print([m for m in ['dp_accounting', 'opendp', 'scipy'] if m in sys.modules])"
        )
        assert run_python(program).strip().endswith("[]"), command

"""The command line keeps its contract: JSON, exit codes, one sentence per error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from conftest import PATIENTS
from tests.conftest import Ran

Run = Callable[..., Ran]
CONTRACT = [
    "rows",
    "classes",
    "k",
    "alpha",
    "l",
    "entropy_l",
    "recursive_c",
    "recursive_l",
    "t",
    "basic_beta",
    "enhanced_beta",
    "delta_disclosure",
    "risk",
    "by_sensitive",
    "witnesses",
    "satisfied",
]


@pytest.fixture
def patients(sfumato: Run) -> Run:
    Path("patients.csv").write_text(PATIENTS)
    return lambda *arguments: sfumato("assess", "patients.csv", *arguments)


def test_json_has_the_keys_that_other_tools_rely_on(patients: Run) -> None:
    ran = patients("--qi", "zip,age", "--sensitive", "disease", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.json)[:2] == ["rows", "classes"]
    assert set(CONTRACT) <= set(ran.json)
    assert {"prosecutor_max", "prosecutor_mean", "uniques"} <= set(ran.json["risk"])
    assert ran.json["enhanced_beta"] == "inf"
    assert ran.json["satisfied"] is None
    assert ran.json["witnesses"]["l"] == {
        "class": {"zip": "13053", "age": "35"},
        "size": 2,
        "sensitive": "disease",
        "value": None,
    }


def test_json_and_python_agree(patients: Run) -> None:
    ran = patients("--qi", "zip,age", "--sensitive", "disease,sex", "--require", "k=2", "--json")
    result = sf.assess("patients.csv", qi=["zip", "age"], sensitive=["disease", "sex"], require="k=2")
    assert ran.json == json.loads(result.to_json()) | {"read": ran.json["read"]}


def test_a_requirement_decides_the_exit_code(patients: Run) -> None:
    met = patients("--qi", "zip,age", "--sensitive", "disease", "--require", "k=2", "--json")
    assert (met.code, met.json["satisfied"]) == (0, True)
    failed = patients("--qi", "zip,age", "--sensitive", "disease", "--require", "k=2,l=2", "--json")
    assert (failed.code, failed.json["satisfied"]) == (1, False)
    assert [(check["claim"], check["held"]) for check in failed.json["checks"]] == [("k=2", True), ("l=2", False)]


def test_a_person_reads_the_verdict_first(patients: Run) -> None:
    ran = patients("--qi", "zip,age", "--sensitive", "disease", "--require", "k=2,l=2")
    assert ran.out.startswith("Not met: l=2")
    assert "NOT HELD  (asked l=2)" in ran.out
    assert "held  (asked k=2)" in ran.out


def test_prose_never_shows_a_small_class(patients: Run) -> None:
    ran = patients("--qi", "zip,age,sex", "--sensitive", "disease", "--report", "page.html")
    page = Path("page.html").read_text()
    for secret in ("13053", "cancer", "ulcer"):
        assert secret not in ran.out
        assert secret not in page


def test_options_reach_the_measures(sfumato: Run) -> None:
    Path("t.csv").write_text("q;age;s\nx;30;1\nx;?;2\ny;30;1\ny;*;9\n")
    common = ("assess", "t.csv", "--qi", "q,age", "--sensitive", "s", "--json")
    assert sfumato(*common).json["options"]["missing"] == "value"
    assert sfumato(*common, "--na", "?", "--missing", "drop").json["dropped"] == 1
    assert sfumato(*common, "--distance", "equal").json["by_sensitive"]["s"]["distance"] == "equal"
    assert sfumato(*common, "--absent", "infinite").json["delta_disclosure"] == "inf"
    assert sfumato("assess", "t.csv", "--qi", "age", "--json").json["suppressed"] == 1
    assert sfumato("assess", "t.csv", "--qi", "age", "--suppressed", "", "--json").json["suppressed"] == 0
    assert sfumato(*common, "--classes", "qi+other-sensitive").json["options"]["classes"] == "qi+other-sensitive"
    assert sfumato(*common, "--separator", ";").json["rows"] == 4


def test_a_schema_file_names_the_roles(sfumato: Run) -> None:
    Path("patients.csv").write_text(PATIENTS)
    assert sfumato("schema", "patients.csv", "-o", "s.toml").code == 0
    ran = sfumato("assess", "patients.csv", "--schema", "s.toml", "--json")
    assert (ran.code, ran.json["quasi"]) == (0, ["zip", "age", "sex"])
    assert sfumato("assess", "patients.csv", "--schema", "s.toml", "--qi", "zip", "--json").json["quasi"] == ["zip"]


def test_schema_prints_reasons_or_json(sfumato: Run) -> None:
    Path("patients.csv").write_text(PATIENTS)
    assert "its name suggests something that others know about a person" in sfumato("schema", "patients.csv").out
    assert sfumato("schema", "patients.csv", "--json").json["columns"]["disease"]["role"] == "sensitive"


def test_names_with_commas_and_spaces_can_be_given(sfumato: Run) -> None:
    Path("t.csv").write_text('"last, first",home town, zip,"x ""y""",s\na,b,1,1,1\na,b,1,1,2\n')
    names = ["last, first", "home town", " zip", 'x "y"']
    ran = sfumato("assess", "t.csv", "--qi", '"last, first", home town ," zip","x ""y"""', "--json")
    assert (ran.json["k"], ran.json["quasi"]) == (2, names)


def test_built_in_tables_can_be_named(sfumato: Run) -> None:
    ran = sfumato("assess", "adult", "--json")
    assert (ran.json["rows"], ran.json["classes"], ran.json["k"]) == (48842, 19781, 1)
    assert sfumato("assess", "nursery", "--qi", "parents,finance", "--sensitive", "health", "--json").code == 0


def test_help_explains_every_command(sfumato: Run) -> None:
    for arguments in ([], ["--help"], ["assess", "--help"], ["schema", "--help"], ["demo", "--help"]):
        ran = sfumato(*arguments)
        assert ran.code == 0
        assert "Usage: sfumato" in ran.out
    assert sfumato("--version").out.strip() == f"sfumato {sf.__version__}"


def test_it_runs_as_a_program(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "sfumato", "assess", "adult", "--json"]
    ran = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(ran.stdout)["k"] == 1
    assert ran.stderr == ""


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m sfumato assess adult | head -n 1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" not in ran.stderr
    assert ran.stdout.startswith("People stand out")
    assert ran.returncode in (0, 141)  # never 1, which would say that a check failed


def test_an_option_given_twice_adds_up(patients: Run) -> None:
    ran = patients("--qi", "zip", "--qi", "age,sex", "--sensitive", "disease", "--json")
    assert ran.json["quasi"] == ["zip", "age", "sex"]
    assert patients("--qi", "zip", "--require", "k=99", "--require", "l=1", "--sensitive", "disease").code == 1


def test_a_terminal_without_greek_letters_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    (tmp_path / "p.csv").write_text(PATIENTS)
    program = [sys.executable, "-m", "sfumato", "assess", "p.csv", "--qi", "zip,age", "--sensitive", "disease"]
    ran = subprocess.run(program, capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert ran.returncode == 0
    assert b",k)-anonymity" in ran.stdout, "it is one that prints them"
    assert b"Error" not in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_results_do_not_depend_on_the_format(sfumato: Run) -> None:
    frame = pl.read_csv(PATIENTS.encode())
    for ending in ("csv", "tsv", "parquet", "arrow"):
        sf.write(frame, f"p.{ending}")
    common = ("--qi", "zip,age", "--sensitive", "disease", "--json")
    answers = [sfumato("assess", f"p.{ending}", *common).json for ending in ("csv", "tsv", "parquet", "arrow")]
    assert [answer.pop("read", None) is not None for answer in answers] == [True, True, False, False]
    assert answers == [answers[0]] * 4

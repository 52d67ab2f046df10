"""``sfumato anonymize -o FOLDER`` and ``sfumato verify``: a release is whole, or not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran
from tests.effort import effort

Run = Callable[..., Ran]
FILES = ["certificate.json", "recipe.toml", "report.html", "table.csv"]
ROLES = ["--qi", "age,zip", "--sensitive", "disease", "--identifiers", "name"]


@pytest.fixture
def release(sfumato: Run) -> Run:
    rows = [f"p{n},{20 + n % 25},{n % 3},{'flu' if n % 2 else 'ulcer'}" for n in range(60)]
    Path("t.csv").write_text("\n".join(["name,age,zip,disease", *rows]))
    return lambda *arguments: sfumato("anonymize", "t.csv", *arguments)


def names(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("output", ["release", "release/"])
def test_a_folder_gets_all_that_belongs_to_a_release(release: Run, sfumato: Run, output: str) -> None:
    ran = release(*ROLES, "--k", "5", "-o", output, "--json")
    assert ran.code == 0, ran.err
    assert names("release") == FILES
    assert names() == ["release", "t.csv"]
    told = sfumato("verify", "release", "--json")
    assert told.code == 0
    assert {"claims", "ok"} <= set(told.json)
    assert told.json["ok"] is True
    assert {"claim": "k=5", "held": True, "measured": ran.json["assessment"]["k"]} in told.json["claims"]
    told = sfumato("verify", "release", "--source", "t.csv")
    assert told.code == 0
    assert "All " in told.out


def test_a_false_claim_ends_with_1(release: Run, sfumato: Run) -> None:
    release(*ROLES, "--k", "5", "-o", "release")
    table = Path("release/table.csv")
    table.write_text(table.read_text().replace("flu", "flue", 1))
    told = sfumato("verify", "release")
    assert told.code == 1
    assert "NOT HELD  table.csv is the file that was released" in told.out
    failed = told.out.count("NOT HELD")
    assert re.match(rf"{failed} of \d+ claims {'does' if failed == 1 else 'do'} not hold\.", told.out)
    assert not re.search(r"\b(None|inf)\b", told.out)
    told = sfumato("verify", "release", "--json")
    assert (told.code, told.json["ok"]) == (1, False)


def test_a_recipe_does_it_again(release: Run, sfumato: Run) -> None:
    assert release(*ROLES, "--k", "5", "--l", "2", "--method", "hilbert", "-o", "release").code == 0
    assert release("--recipe", "release/recipe.toml", "-o", "again").code == 0
    again, once = (sorted(Path(f"{name}/table.csv").read_text().splitlines()) for name in ("again", "release"))
    assert again == once
    ran = release("--recipe", "release/recipe.toml", "--k", "3", "-o", "other")
    assert ran.code == 2
    assert "leave the other options out" in ran.err
    Path("wrong.toml").write_text('command = "train"\n[train]\n[schema.columns]\n')
    ran = release("--recipe", "wrong.toml", "-o", "other")
    assert ran.code == 2
    assert "is not for anonymize" in ran.err
    assert not Path("other").exists()


def test_a_recipe_leaves_nothing_to_be_guessed(release: Run, sfumato: Run) -> None:
    assert release(*ROLES, "--k", "5", "--alpha", "0.9", "-o", "release").code == 0
    for option in ("--qi", "--sensitive", "--identifiers", "--target"):
        ran = release("--recipe", "release/recipe.toml", option, "zip", "-o", "other")
        assert (ran.code, "leave the other options out" in ran.err) == (2, True)
    lines = Path("t.csv").read_text().splitlines()
    Path("newer.csv").write_text("\n".join([f"{lines[0]},phone", *(f"{line},555" for line in lines[1:])]))
    ran = sfumato("anonymize", "newer.csv", "--recipe", "release/recipe.toml", "-o", "other")
    assert (ran.code, "does not mention the column 'phone'" in ran.err) == (2, True)
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('method = "mondrian"\nguarantees = "k=4"', "is not for anonymize"),
        ('method = "mondrian"\nguarantees = ["k=4"]', "the guarantee None is unknown"),
        ('method = ["mondrian"]\nguarantees = []', "is not for anonymize"),
        ('method = "mondrian"\nguarantees = [{guarantee = ["KAnonymity"]}]', "is unknown"),
        ('method = "mondrian"\nguarantees = []\nparameters = {qi = ["zip"]}', "that its method lacks"),
        ('method = "mondrian"\nguarantees = []\nparameters = 3', "that its method lacks"),
    ],
)
def test_a_recipe_that_says_something_else_is_one_sentence(release: Run, options: str, message: str) -> None:
    Path("wrong.toml").write_text(
        f'command = "anonymize"\n[anonymize]\n{options}\n[schema.columns.age]\nrole="quasi"\n'
    )
    ran = release("--recipe", "wrong.toml", "-o", "other")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err


def test_a_certificate_cannot_write_over_the_verdict(release: Run, sfumato: Run) -> None:
    release(*ROLES, "--k", "5", "-o", "release")
    path = Path("release/certificate.json")
    path.write_text(path.read_text().replace('"made": "', '"made": "\\u001b[2K\\nheld      k=99 ', 1))
    told = sfumato("verify", "release").out
    assert "\x1b" not in told
    assert not any(line.startswith("held      k=99") for line in told.splitlines())


def test_a_folder_that_exists_is_kept_and_told_before_the_work(release: Run, sfumato: Run) -> None:
    Path("release").mkdir()
    Path("release/mine").write_text("mine")
    ran = sfumato("anonymize", "absent.csv", *ROLES, "--k", "5", "-o", "release")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "'release' exists already" in ran.err
    assert names("release") == ["mine"]


def test_a_key_that_cannot_be_made_is_told_before_the_work(
    release: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "no folder"))
    ran = release(*ROLES, "--k", "1000000", "-o", "release")  # which nothing keeps: to be told after the work
    assert (ran.code, "the key for fingerprints" in ran.err) == (2, True)


def test_the_format_of_a_folder_can_be_chosen_and_that_of_a_file_is_its_name(release: Run) -> None:
    assert release(*ROLES, "--k", "5", "--format", "parquet", "-o", "release").code == 0
    assert "table.parquet" in names("release")
    ran = release(*ROLES, "--k", "5", "--format", "parquet", "-o", "table.csv")
    assert ran.code == 2
    assert "--format is for a folder" in ran.err


def test_columns_that_are_released_as_they_are_are_named(sfumato: Run) -> None:
    pl.DataFrame({"age": [30, 31, 32, 33], "shoe size": [40, 41, 42, 43]}).write_csv("t.csv")
    ran = sfumato("anonymize", "t.csv", "--qi", "age", "--k", "2", "-o", "release")
    assert "released as they are       shoe size" in ran.out
    assert "released as they are: shoe size" in sfumato("verify", "release").out


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the system refuses to write more in the same way."""
    frame = pl.DataFrame({"age": [n % 90 for n in range(60_000)], "note": [f"{n:x}" * 3 for n in range(60_000)]})
    frame.write_parquet(tmp_path / "t.parquet")
    program = (  # which writes no compiled module: Python would keep it, cut off
        "import resource, signal, sys; sys.dont_write_bytecode = True; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "from sfumato.cli.main import main; main(sys.argv[1:])"
    )
    arguments = ["anonymize", "t.parquet", "--qi", "age", "--keep", "note", "--k", "5", "-o", "release"]
    ran = subprocess.run([sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2
    said = [line for line in ran.stderr.splitlines() if not line.startswith("Compiling ")]  # the first time only
    assert len(said) == 1
    assert said[0].startswith("Error: ")
    assert "cannot be written" in said[0]
    assert names(str(tmp_path)) == ["t.parquet"]


# One process imports everything; each child of it anonymizes, and is killed after its share of the time that it takes.
KILLED = """
import importlib, os, random, shutil, signal, sys, time
from contextlib import suppress
from pathlib import Path
from sfumato.cli.main import main
command = ["anonymize", "t.parquet", "--qi", "age,zip", "--k", "5", "-o", "release"]

def run(seconds):
    began, child = time.monotonic(), os.fork()
    if child == 0:
        try:
            main(command)
        finally:
            Path("modules").write_text("\\n".join(sys.modules))
    while not os.waitpid(child, os.WNOHANG)[0]:
        if seconds is not None and time.monotonic() - began > seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.001)
    return time.monotonic() - began

run(None)
shutil.rmtree("release")
for module in Path("modules").read_text().split():
    with suppress(Exception):
        importlib.import_module(module)
whole, chance = run(None), random.Random(0)
os.rename("release", "kept-whole")
for number in range(int(sys.argv[1])):
    run(whole * chance.uniform(0.3, 1.05))
    if os.path.exists("release"):
        os.rename("release", f"kept-{number}")
run(None)
os.remove("modules")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_wherever_it_is_killed_a_release_is_whole_or_not_there(tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [n % 90 for n in range(2_000)], "zip": [n % 211 for n in range(2_000)]})
    frame.write_parquet(tmp_path / "t.parquet")
    subprocess.run([sys.executable, "-c", KILLED, str(effort(6, 50))], cwd=tmp_path, capture_output=True, check=True)
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("kept-")]
    for release in (tmp_path / "release", *kept):
        assert sf.verify(release).ok
    assert tmp_path / "kept-whole" in kept
    left = {path.name for path in tmp_path.iterdir()} - {path.name for path in kept}
    assert left == {"release", "t.parquet"}, "what the killed ones left is gone"


def test_of_several_processes_one_writes_the_release_and_the_others_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"age": [n % 90 for n in range(2_000)]}).write_parquet(tmp_path / "t.parquet")
    command = [sys.executable, "-m", "sfumato", "anonymize", "t.parquet", "--qi", "age", "--k", "5", "-o", "release"]
    processes = [subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    ended = [(process.communicate()[1], process.returncode) for process in processes]
    assert sorted(code for _, code in ended) == [0, 2]
    for error, code in ended:
        assert error.count("\n") == 1
        assert code == 0 or "exists already" in error or "another process has created it meanwhile" in error
    assert sf.verify(tmp_path / "release").ok
    assert names(str(tmp_path)) == ["release", "t.parquet"]


def test_what_is_not_checkable_stands_under_its_own_heading(release: Run, sfumato: Run) -> None:
    release(*ROLES, "--k", "5", "-o", "release")
    told = sfumato("verify", "release")
    assert told.code == 0
    checked, _, rest = told.out.partition("Not checkable here:\n")
    assert "loss.by_column, loss.entropy, loss.kl: it needs the original table" in rest
    assert "held" not in rest
    assert "loss.kl" not in checked
    listed = [one for one in sfumato("verify", "release", "--json").json["claims"] if one["held"] is None]
    assert len(listed) == len(rest.splitlines())
    assert all(one["measured"].startswith("not checkable here: ") for one in listed)

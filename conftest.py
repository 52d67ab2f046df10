"""Run the examples of the docstrings, the documentation and the README."""

from __future__ import annotations

import doctest
import gc
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser
from xdist.scheduler import LoadFileScheduling

# Keys and ledgers that Sfumato makes for its user are made for the tests alone; each page begins without any.
_HOME = tempfile.TemporaryDirectory()
os.environ["SFUMATO_HOME"] = _HOME.name

# There are as many workers as cores: a second thread in each would only wait for the first one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is imported and collected lives until the end: to search it for garbage, again and again, finds none.
gc.disable()

PATIENTS = """zip,age,sex,disease
13053,28,f,flu
13053,28,m,ulcer
13053,35,f,flu
13053,35,f,flu
14850,28,m,cancer
14850,28,f,flu
14850,50,m,cancer
14850,50,f,ulcer
"""


# The files that take longest, which therefore start first: the workers end at about the same time. Mondrian's
# kernels are compiled before Spark needs them.
LONGEST = (
    "tests/engines/test_spark.py",
    "tests/anonymizers/test_mondrian.py",
    "tests/anonymizers/test_guided.py",
    "tests/anonymizers/test_on_spark.py",
    "tests/contracts/test_anonymizers.py",
    "tests/synthesizers/test_engine_records.py",
    "tests/budget/test_query.py",
    "tests/contracts/test_engines.py",
    "tests/report/test_browser.py",
    "tests/studio/test_browser.py",
    "tests/studio/test_pages.py",
    "tests/contracts/test_learners.py",
    "tests/cli/test_train.py",
    "tests/cli/test_release.py",
    "tests/learners/test_checkpoint.py",
    "tests/budget/test_statistics.py",
    "tests/contracts/test_synthesizers.py",
    "tests/anonymizers/test_model.py",
    "tests/learners/test_distributed.py",
    "tests/contracts/test_statistics.py",
    "tests/contracts/test_promise.py",
    "tests/budget/test_selection_mechanisms.py",
    "tests/contracts/test_secrets.py",
    "tests/budget/test_ledger_processes.py",
)


# One worker takes all files that need Java or PostgreSQL, and one those that need compiled kernels: both start slowly.
TOGETHER = {
    "tests/anonymizers/test_on_spark.py": "servers",
    "tests/budget/test_query.py": "servers",
    "tests/cli/test_engines.py": "servers",
    "tests/contracts/test_anonymizers.py": "servers",
    "tests/contracts/test_engines.py": "servers",
    "tests/contracts/test_verify.py": "servers",
    "tests/contracts/test_where_the_data_lives.py": "servers",
    "tests/data/test_database.py": "servers",
    "tests/data/test_table.py": "servers",
    "tests/engines/test_contingency.py": "servers",
    "tests/engines/test_memory.py": "servers",
    "tests/engines/test_spark.py": "servers",
    "tests/engines/test_sql.py": "servers",
    "tests/measures/test_presets.py": "servers",
    "tests/pseudonyms/test_pseudonymize.py": "servers",
    "tests/synthesizers/test_engine_records.py": "servers",
    "tests/anonymizers/test_guided.py": "kernels",
    "tests/anonymizers/test_hilbert.py": "kernels",
    "tests/anonymizers/test_lattice.py": "kernels",
    "tests/anonymizers/test_local_suppression.py": "kernels",
    "tests/anonymizers/test_microaggregate.py": "kernels",
    "tests/anonymizers/test_mondrian.py": "kernels",
    "tests/anonymizers/test_partition_plain.py": "kernels",
}
SERVERS = {"as_frame", "database_url", "place", "postgres_server", "spark"}  # fixtures that start one


class Files(LoadFileScheduling):
    """A file, or files that belong together, for one worker after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files:
    return Files(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files, and nothing within a file; a file that starts a server must be with the others that do."""
    together = {config.rootpath / name for name, group in TOGETHER.items() if group == "servers"}
    starting = (item.path for item in items if SERVERS.intersection(getattr(item, "fixturenames", ())))
    if alone := {path.name for path in starting if path not in together}:
        raise pytest.UsageError(f"tests that start a server must be named in TOGETHER, in conftest.py: {sorted(alone)}")
    paths = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: paths.get(item.path, len(paths)))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From now on search for garbage, but only in what the tests themselves make."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin every test with the same state of all generators that a library may draw from, whatever ran before it."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def in_a_folder_with_patients(namespace: dict[str, Any]) -> None:
    namespace["_home"] = Path.cwd()
    namespace["_folder"] = folder = tempfile.TemporaryDirectory()
    Path(folder.name, "patients.csv").write_text(PATIENTS)
    namespace["_keys"] = tempfile.TemporaryDirectory()
    os.environ["SFUMATO_HOME"] = namespace["_keys"].name
    os.chdir(folder.name)


def back_home(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    os.environ["SFUMATO_HOME"] = _HOME.name
    namespace["_keys"].cleanup()
    namespace["_folder"].cleanup()


def of_sfumato_alone(command: str) -> list[str]:
    """Return the arguments of a line that a shell would only hand to ``sfumato``; else none."""
    line = command.replace("\\\n", " ")
    words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    plain = words[0] == "sfumato" and not any(re.match("[();<>|&]", word) for word in words)
    return shlex.split(line)[1:] if plain and not re.search(r"[$`*?~]", line) else []


def run_sfumato(arguments: list[str]) -> tuple[int, str]:
    """Run a command in this process, which spares a second of imports; return its exit code and all that it prints."""
    from sfumato.cli.main import main

    kept = [os.dup(stream) for stream in (1, 2)]
    with tempfile.TemporaryFile() as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        try:
            with (
                open(1, "w", encoding="utf-8", closefd=False) as out,
                open(2, "w", encoding="utf-8", closefd=False, buffering=1) as err,
                redirect_stdout(out),
                redirect_stderr(err),
                pytest.MonkeyPatch.context() as patch,
            ):
                patch.setenv("COLUMNS", "80")
                with pytest.raises(SystemExit) as end:
                    main(arguments)
        finally:
            for stream, before in zip((1, 2), kept, strict=True):
                os.dup2(before, stream)
                os.close(before)
        file.seek(0)
        return int(end.value.code or 0), file.read().decode()


def run_console(example: Example) -> str | None:
    """Run every line that starts with a dollar and compare what it prints; a block without output is not run."""
    if all(line.startswith("$ ") for line in example.parsed.splitlines() if line.strip()):
        return None
    code = 0
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for part in f"\n{example.parsed}".split("\n$ ")[1:]:
        lines = part.splitlines()
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
        command, want = "\n".join(lines[:end]), "\n".join(lines[end:]).strip("\n") + "\n"
        if arguments := of_sfumato_alone(command):
            code, got = run_sfumato(arguments)
        else:
            ran = subprocess.run(  # noqa: S603 - our own pages
                ["bash", "-c", f"(exit {code}); {command}"],  # noqa: S607 - $? is that of the command before
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PATH": path, "COLUMNS": "80"},
                check=False,
            )
            code, got = ran.returncode, ran.stdout
        got = re.sub(r"(?m)^Compiling for tables .*\n", "", got).strip("\n") + "\n"  # once on a machine
        if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
            return f"$ {command}\nexpected:\n{want}\ngot:\n{got}"
    return None


docstrings = Sybil(
    parsers=[DocTestParser()],
    patterns=["src/sfumato/*.py", "src/sfumato/*/*.py", "src/sfumato/*/*/*.py"],  # ** is only a * to pathlib's match
    setup=in_a_folder_with_patients,
    teardown=back_home,
)
pages = Sybil(
    # Sessions (>>>) are in pycon fences with a blank line before the closing one; DocTestParser finds them.
    parsers=[DocTestParser(), PythonCodeBlockParser(), CodeBlockParser("console", run_console)],
    patterns=["docs/*.md", "docs/*/*.md", "README.md", "CONTRIBUTING.md"],
    setup=in_a_folder_with_patients,
    teardown=back_home,
)
pytest_collect_file = (docstrings + pages).pytest()

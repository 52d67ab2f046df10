"""Run the examples of the docstrings, the documentation and the README."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

# Keys and ledgers that Sfumato makes for its user are made for the tests alone; each page begins without any.
_HOME = tempfile.TemporaryDirectory()
os.environ["SFUMATO_HOME"] = _HOME.name

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
        ran = subprocess.run(  # noqa: S603 - our own pages
            ["bash", "-c", f"(exit {code}); {command}"],  # noqa: S607 - $? is that of the command before
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": path, "COLUMNS": "80"},
            check=False,
        )
        code, got = ran.returncode, ran.stdout.strip("\n") + "\n"
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

"""Run the examples of the docstrings, the documentation and the README."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

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
    os.chdir(folder.name)


def back_home(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


docstrings = Sybil(
    parsers=[DocTestParser()],
    patterns=["src/**/*.py"],
    setup=in_a_folder_with_patients,
    teardown=back_home,
)
pages = Sybil(
    parsers=[DocTestParser(), PythonCodeBlockParser()],
    patterns=["docs/**/*.md", "README.md", "CONTRIBUTING.md"],
    setup=in_a_folder_with_patients,
    teardown=back_home,
)
pytest_collect_file = (docstrings + pages).pytest()

"""The page of published experiments has every published figure, as the stored runs give it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sfumato.reproductions import VERDICTS, experiments

ROOT = Path(__file__).parents[2]
PRINTED = {  # how many figures and statements each publication has, counted by hand
    "epsilon-sweep": 11,
    "private-cnn": 34,
    "guided-models": 24,
    "membership": 16,
    "attributes": 11,
    "nine-measures": 31,
    "techniques": 9,
    "federated-xrays": 19,
    "encrypted": 5,
    "private-auto-encoder": 7,
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproductions", ROOT / "benchmarks" / "reproductions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_published_figure_has_been_lost() -> None:
    assert {one.name: len(one.facts) for one in experiments()} == PRINTED


def test_the_page_is_what_the_stored_runs_give(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    begin, end = page.index(script.BEGIN) + len(script.BEGIN), page.index(script.END)
    assert page[begin:end].strip() == script.rows_in_markdown(), "python benchmarks/reproductions.py page"


def test_every_published_figure_has_its_row_with_a_verdict(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for experiment in experiments():
        section = page.split(f"{{ #{experiment.name} }}")[1].partition("\n## ")[0]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        assert [row[0].removeprefix("| ") for row in rows] == [
            script._cell(fact.what) for fact in experiment.facts.values()
        ]
        assert all(row[3] in VERDICTS for row in rows), experiment.name


def test_a_stored_run_says_when_and_by_which_command_it_was_made(script: ModuleType) -> None:
    for line in [*script.kept(), *script.earlier()]:
        assert line["date"] >= "2026-11-01"
        assert line["command"]
        assert {row["verdict"] for row in line["rows"]} <= set(VERDICTS)

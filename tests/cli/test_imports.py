"""What a command does not load: a second here and there is what makes a command slow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from sfumato.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code, end.code
heavy = ("numba", "scipy", "sklearn", "torch", "dp_accounting")
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
ROLES = ("--qi", "age,sex,education", "--sensitive", "occupation", "--k", "10")


@pytest.fixture
def loaded(
    run_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Which heavy modules a command has loaded, in a process of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> list[str]:
        found: list[str] = json.loads(run_python(PROGRAM.format(arguments=arguments)).splitlines()[-1])
        return found

    return run


@pytest.mark.parametrize("output", ["release.csv", "release"])
def test_anonymizing_a_small_table_compiles_nothing_and_loads_no_model(
    loaded: Callable[..., list[str]], output: str
) -> None:
    assert loaded("anonymize", "adult", *ROLES, "-o", output) == []
    assert Path(output).exists()


@pytest.mark.parametrize("command", ["anonymize", "assess", "query", "verify", "budget"])
def test_the_help_of_a_command_loads_nothing_heavy(loaded: Callable[..., list[str]], command: str) -> None:
    assert loaded(command, "--help") == []


def test_a_query_loads_no_accountant_that_it_does_not_need(loaded: Callable[..., list[str]]) -> None:
    assert loaded("budget", "grant", "adult", "--epsilon", "2", "--ledger", "adult.ledger") == []
    assert loaded("query", "adult", "count by sex", "--epsilon", "0.5", "--ledger", "adult.ledger") == []

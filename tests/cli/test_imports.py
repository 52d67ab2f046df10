"""What a command does not load: a second here and there is what makes a command slow."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import sfumato as sf
from sfumato.budget import PureEvent
from sfumato.cli.main import _sfumato as group
from sfumato.cli.options import Choice

PROGRAM = """
import json, sys
from sfumato.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = ("numba", "scipy", "sklearn", "torch", "dp_accounting", "pandas", "duckdb", "pyspark")
METHODS = ("mondrian", "hilbert", "lattice", "microaggregation", "local_suppression", "guided")
ROLES = ("--qi", "age,sex,education", "--sensitive", "occupation", "--k", "10")


@pytest.fixture
def loaded(
    run_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Which modules a command has loaded, in a process of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> list[str]:
        found: list[str] = json.loads(run_python(PROGRAM.format(arguments=arguments)).splitlines()[-1])
        return found

    return run


def heavy(modules: list[str]) -> list[str]:
    return [name for name in HEAVY if name in modules]


def ours(modules: list[str], *packages: str) -> list[str]:
    """Return what is loaded of some of our packages, and not only their empty `__init__`."""
    return [name for name in modules for package in packages if name.startswith(f"sfumato.{package}.")]


def others(modules: list[str]) -> set[str]:
    """Return the packages of others that are loaded, but for what these load themselves."""
    standard = {*sys.stdlib_module_names, "__main__", "sfumato"}
    return {name.partition(".")[0] for name in modules} - standard


@pytest.mark.parametrize("output", ["release.csv", "release"])
def test_anonymizing_a_small_table_compiles_nothing_and_loads_no_model(
    loaded: Callable[..., list[str]], output: str
) -> None:
    modules = loaded("anonymize", "adult", *ROLES, "-o", output)
    assert Path(output).exists()
    assert heavy(modules) == []
    assert ours(modules, "learners", "budget.accounting", "budget.query", "masking", "pseudonyms") == []
    assert ours(modules, *(f"anonymizers.{name}" for name in METHODS if name != "mondrian")) == []
    assert [name for name in modules if name.startswith("sfumato.") and "spark" in name] == []


def test_a_table_alone_is_written_without_what_a_page_takes(loaded: Callable[..., list[str]]) -> None:
    modules = loaded("anonymize", "adult", *ROLES, "-o", "release.csv")
    assert ours(modules, "report.charts", "releases.save") == []
    assert others(modules) >= {"click", "numpy", "polars", "narwhals"}
    assert "jinja2" not in others(modules)


def test_a_wrong_option_is_refused_without_loading_a_method(
    run_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = PROGRAM.replace("assert not end.code, end.code", "assert end.code == 2, end.code")
    for wrong in (("--k", "x"), ("--no-such-option",), ("--k", "5", "--method", "none")):
        arguments = ("anonymize", "adult", *wrong, "-o", "release.csv")
        modules: list[str] = json.loads(run_python(program.format(arguments=arguments)).splitlines()[-1])
        assert heavy(modules) == []
        assert ours(modules, "learners", "report.charts", "anonymizers.guided", "anonymizers.lattice") == []


def test_a_wrong_option_is_refused_before_numpy_is_loaded(run_python: Callable[[str], str]) -> None:
    program = PROGRAM.replace("assert not end.code, end.code", "assert end.code == 2, end.code")
    for command in (
        "assess",
        "anonymize -o x --k 5",
        "train",
        "attack",
        "query",
        "mask -o x",
        "pseudonymize -o x",
        "schema",
    ):
        arguments = (*command.split(), "none.csv", "--no-such-option")
        modules: list[str] = json.loads(run_python(program.format(arguments=arguments)).splitlines()[-1])
        assert {"numpy", "polars", "narwhals"}.isdisjoint(modules), command


@pytest.mark.parametrize("command", ["anonymize", "assess", "attack", "train", "query", "verify", "budget"])
def test_the_help_of_a_command_loads_nothing_heavy(loaded: Callable[..., list[str]], command: str) -> None:
    modules = loaded(command, "--help")
    assert heavy(modules) == []
    assert {"numpy", "polars", "narwhals"}.isdisjoint(modules)


def test_the_choices_of_an_option_are_those_of_the_module_that_defines_them() -> None:
    seen = 0
    with click.Context(group) as context:
        commands = [group.get_command(context, name) for name in group.list_commands(context)]
    for command in commands:
        assert command is not None
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        for option in (option for part in parts for option in part.params):
            if isinstance(option.type, Choice):
                known = list[str]()
                for source in option.type.of.split():
                    module, _, attribute = source.partition(":")
                    found = getattr(importlib.import_module(f"sfumato.{module}"), attribute)
                    known += [found] if isinstance(found, str) else map(str, found)
                assert list(option.type.names) == list(dict.fromkeys(known)), option.name
                seen += 1
    assert seen >= 12


def test_a_query_loads_no_accountant_that_it_does_not_need(loaded: Callable[..., list[str]]) -> None:
    for number, grant in enumerate((("--epsilon", "2"), ("--epsilon", "2", "--delta", "1e-6"))):
        ledger = ("--ledger", f"{number}.ledger")
        assert heavy(loaded("budget", "grant", "adult", *grant, *ledger)) == []
        for _ in range(2):
            assert heavy(loaded("query", "adult", "count by sex", "--epsilon", "0.5", *ledger)) == []


def test_a_query_after_many_others_bounds_what_is_spent_without_the_accountant(
    loaded: Callable[..., list[str]],
) -> None:
    with sf.Ledger.grant(sf.datasets.adult(), epsilon=20, delta=1e-6, path="many.ledger") as ledger:
        ledger.charge(PureEvent(0.25), times=40)
    assert heavy(loaded("query", "adult", "count by sex", "--epsilon", "0.5", "--ledger", "many.ledger")) == []


@pytest.mark.parametrize("method", ["guided", "lattice", "microaggregate", "suppress"])
def test_no_method_compiles_for_a_small_table(loaded: Callable[..., list[str]], method: str) -> None:
    sf.datasets.adult().frame.head(1000).write_csv("adult.csv")
    more = ("--target", "income", "--method", method, "--keep", "education-num")
    assert heavy(loaded("anonymize", "adult.csv", *ROLES, *more, "-o", "release.csv")) == []

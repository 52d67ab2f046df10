"""What a command does not load: a second here and there is what makes a command slow."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import sfumato as sf
from sfumato.budget import PureEvent
from sfumato.cli.main import _sfumato as group
from sfumato.cli.options import Choice

# Commands one after another in one process, which is cheap: what none of them may load none of them has loaded.
PROGRAM = """
import json, sys
from sfumato.cli.main import main
for arguments in {commands!r}:
    try:
        main(arguments)
    except SystemExit as end:
        assert (end.code or 0) == {code}, (end.code, arguments)
    print(json.dumps(sorted(sys.modules)))
"""
HEAVY = ("numba", "scipy", "sklearn", "torch", "dp_accounting", "pandas", "duckdb", "pyspark")
METHODS = ("mondrian", "hilbert", "lattice", "microaggregation", "local_suppression", "guided")
ROLES = ("--qi", "age,sex,education", "--sensitive", "occupation", "--k", "10")


After = Callable[..., Iterator[tuple[str, list[str]]]]


@pytest.fixture
def after_each(run_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> After:
    """Which modules a process of its own has loaded after each command."""
    monkeypatch.chdir(tmp_path)

    def run(*commands: tuple[str, ...], code: int = 0) -> Iterator[tuple[str, list[str]]]:
        printed = run_python(PROGRAM.format(commands=commands, code=code)).splitlines()
        found = [json.loads(line) for line in printed if line.startswith('["')]
        return zip(map(" ".join, commands), found, strict=True)

    return run


@pytest.fixture
def loaded(after_each: After) -> Callable[..., list[str]]:
    """Which modules a command has loaded, in a process of its own."""
    return lambda *arguments: next(after_each(arguments))[1]


def heavy(modules: list[str]) -> list[str]:
    return [name for name in HEAVY if name in modules]


def ours(modules: list[str], *packages: str) -> list[str]:
    """Return what is loaded of some of our packages, and not only their empty `__init__`."""
    return [name for name in modules for package in packages if name.startswith(f"sfumato.{package}.")]


def others(modules: list[str]) -> set[str]:
    """Return the packages of others that are loaded, but for what these load themselves."""
    standard = {*sys.stdlib_module_names, "__main__", "sfumato"}
    return {name.partition(".")[0] for name in modules} - standard


def test_anonymizing_a_small_table_compiles_nothing_and_loads_no_model(after_each: After) -> None:
    """A table alone is written without what a page takes, too."""
    table, folder = after_each(*(("anonymize", "adult", *ROLES, "-o", output) for output in ("release.csv", "release")))
    assert Path("release.csv").exists()
    assert Path("release").exists()
    for command, modules in (table, folder):
        assert heavy(modules) == [], command
        assert ours(modules, "learners", "budget.accounting", "budget.query", "masking", "pseudonyms") == [], command
        assert ours(modules, *(f"anonymizers.{name}" for name in METHODS if name != "mondrian")) == [], command
        assert [name for name in modules if name.startswith("sfumato.") and "spark" in name] == [], command
    assert ours(table[1], "report.charts", "releases.save") == []
    assert others(table[1]) >= {"click", "numpy", "polars", "narwhals"}
    assert "jinja2" not in others(table[1])


def test_a_wrong_option_is_refused_without_loading_a_method(after_each: After) -> None:
    wrongs = (("--k", "x"), ("--no-such-option",), ("--k", "5", "--method", "none"))
    for command, modules in after_each(*(("anonymize", "adult", *wrong, "-o", "r.csv") for wrong in wrongs), code=2):
        assert heavy(modules) == [], command
        assert ours(modules, "learners", "report.charts", "anonymizers.guided", "anonymizers.lattice") == [], command


def test_a_wrong_option_is_refused_before_numpy_is_loaded(after_each: After) -> None:
    commands = (
        "assess",
        "anonymize -o x --k 5",
        "train",
        "attack",
        "query",
        "mask -o x",
        "pseudonymize -o x",
        "schema",
    )
    wrong = ((*command.split(), "none.csv", "--no-such-option") for command in commands)
    for command, modules in after_each(*wrong, code=2):
        assert {"numpy", "polars", "narwhals"}.isdisjoint(modules), command


def test_the_help_of_a_command_loads_nothing_heavy(after_each: After) -> None:
    names = ("anonymize", "assess", "attack", "train", "query", "verify", "budget")
    for command, modules in after_each(*((name, "--help") for name in names)):
        assert heavy(modules) == [], command
        assert {"numpy", "polars", "narwhals"}.isdisjoint(modules), command


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


def test_a_query_loads_no_accountant_that_it_does_not_need(after_each: After) -> None:
    commands = list[tuple[str, ...]]()
    for number, grant in enumerate((("--epsilon", "2"), ("--epsilon", "2", "--delta", "1e-6"))):
        ledger = ("--ledger", f"{number}.ledger")
        commands.append(("budget", "grant", "adult", *grant, *ledger))
        commands += [("query", "adult", "count by sex", "--epsilon", "0.5", *ledger)] * 2
    for command, modules in after_each(*commands):
        assert heavy(modules) == [], command


def test_a_query_after_many_others_bounds_what_is_spent_without_the_accountant(
    loaded: Callable[..., list[str]],
) -> None:
    with sf.Ledger.grant(sf.datasets.adult(), epsilon=20, delta=1e-6, path="many.ledger") as ledger:
        ledger.charge(PureEvent(0.25), times=40)
    assert heavy(loaded("query", "adult", "count by sex", "--epsilon", "0.5", "--ledger", "many.ledger")) == []


def test_no_method_compiles_for_a_small_table(after_each: After) -> None:
    sf.datasets.adult().frame.head(1000).write_csv("adult.csv")
    more = (*ROLES, "--target", "income", "--keep", "education-num")
    methods = ("guided", "lattice", "microaggregate", "suppress")
    commands = [("anonymize", "adult.csv", *more, "--method", method, "-o", f"{method}.csv") for method in methods]
    for command, modules in after_each(*commands):
        assert heavy(modules) == [], command

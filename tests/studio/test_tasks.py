"""What stands beside a result does the same: the command is understood, and the program runs."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.errors import OptionError
from sfumato.studio.tasks import TASKS, task_of
from tests.conftest import Ran

COLUMNS = {"zip": "quasi", "age": "quasi", "sex": "quasi", "disease": "sensitive"}
SCHEMA = {"columns": {name: {"role": role, "kind": "category"} for name, role in COLUMNS.items()}}
TARGET = {"columns": {**SCHEMA["columns"], "disease": {"role": "target", "kind": "category"}}}
OPTIONS: dict[str, dict[str, Any]] = {
    "look": {},
    "preview": {},
    "assess": {"require": {"k": 5, "t": 0.5}},
    "anonymize": {"require": {"k": 5, "l": 2}, "methods": ["mondrian", "lattice"], "suppress": 0.1},
    "map": {"require": {"k": 5, "l": 2}, "suppress": 0.1, "around": {"zip": 1, "age": 2, "sex": 0}},
    "attack": {"release": "0001-anonymize/mondrian"},
    "verify": {"release": "0001-anonymize/mondrian"},
    "explore": {
        "protections": ["raw", "mondrian:k=5"],
        "seeds": 1,
        "model": "tree",
        "max_risk": 0.2,
        "max_advantage": None,
    },
    "train": {"model": "naive-bayes", "epsilons": [0.5, 1.0], "delta": 1e-5},
    "synthesize": {"method": "independent", "epsilons": [1.0], "delta": 1e-5, "rows": 100},
    "budget": {"grant": {"epsilon": 2.0, "delta": 1e-6, "note": "approved; by the 'board'"}},
}


def task(kind: str, path: Path | str, **source: str) -> Any:
    schema = {} if kind in ("look", "preview", "budget") else TARGET if kind in ("train", "explore") else SCHEMA
    plain = {"kind": kind, "name": "patients.csv", "source": {"path": str(path), **source}}
    return task_of({**plain, "schema": schema, "options": OPTIONS[kind]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job in a project."""
    made = tmp_path / "project" / "jobs" / "0002-any"
    made.mkdir(parents=True)
    return made


def test_every_kind_of_task_is_tried() -> None:
    task("look", "patients.csv")
    assert set(TASKS) == set(OPTIONS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_command_line_understands_the_command(kind: str, table: Path, folder: Path) -> None:
    (folder / "schema.toml").write_text("", encoding="utf-8")
    shown = task(kind, table).command(folder)
    if kind in ("preview", "map"):
        assert not shown
        return
    program, name, *words = shlex.split(shown)
    assert program == "sfumato"
    command = getattr(importlib.import_module(f"sfumato.cli.commands.{name}"), name)
    if kind == "budget":
        command, words = command.commands[words[0]], words[1:]
    command.make_context(name, words)  # refuses unknown options and wrong values


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_program_is_python_even_with_hostile_names(kind: str, folder: Path) -> None:
    hostile = "it's \"a\"\n'; import os #.csv"
    shown = task(kind, hostile).python(folder)
    compile(shown, "shown", "exec")
    assert "\n'; import os" not in shown


def test_the_password_of_a_database_is_never_shown(folder: Path) -> None:
    for kind in ("assess", "attack", "budget"):
        one = task(kind, "postgresql://me:secret@host/clinic", table="patients")
        assert "secret" not in one.command(folder) + one.python(folder)
        assert "postgresql://me@host/clinic" in one.command(folder)


def test_the_shown_command_and_program_make_the_same_release(
    table: Path, folder: Path, sfumato: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = task("anonymize", table)
    sf.Schema.of(dict(one.schema)).save(folder / "schema.toml")
    (folder / "tmp").mkdir()
    result = one.run(folder, lambda share, **known: None)
    (folder / "command").mkdir()
    monkeypatch.chdir(folder / "command")
    assert sfumato(*shlex.split(one.command(folder))[1:]).code == 0
    monkeypatch.chdir(folder / "tmp")
    exec(one.python(folder), {})
    for line in result["releases"]:
        ours = sf.load(folder / "releases" / line["name"])
        for other in (
            folder / "command" / "releases" / f"{line['name']}-k5",
            folder / "tmp" / "releases" / line["name"],
        ):
            again = sf.load(other)
            assert again.assessment.rows_by_class_size == ours.assessment.rows_by_class_size
            assert again.guarantees == ours.guarantees


def test_the_tasks_of_an_engineer_are_charged_to_the_ledger(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "adult.csv"
    frame = sf.datasets.adult("test").frame.head(500).select("age", "sex", "income")
    frame.write_csv(path)
    columns = {
        "age": {"role": "quasi", "kind": "number", "bounds": [17.0, 90.0]},
        "sex": {"role": "quasi", "kind": "category", "domain": ["Female", "Male"]},
        "income": {"role": "target", "kind": "category", "domain": ["<=50K", ">50K"]},
    }
    spent, known = [], []
    for number, kind in enumerate(("budget", "train", "synthesize", "budget")):
        own = folder.parent / f"{number:04d}-{kind}"
        own.mkdir()
        options = {} if number == 3 else OPTIONS[kind]
        if kind == "budget" and options:
            options = {"grant": {"epsilon": 20.0, "delta": 1e-5, "note": "approved"}}
        plain = {"kind": kind, "name": "adult", "source": {"path": str(path)}, "options": options}
        one = task_of({**plain, "schema": {} if kind == "budget" else {"columns": columns}})
        result = one.run(own, lambda share, **more: known.append(more.get("points")))
        json.dumps(result, allow_nan=False)
        if kind == "budget":
            assert result["granted"]
            spent.append(result["spent"]["epsilon"])
        else:
            assert result["charged"]
    assert spent[0] == 0
    assert 1.5 < spent[1] <= 2.5  # epsilon 0.5, 1 and 1; together they cost less than their sum
    assert [[epsilon for epsilon, _ in points] for points in known if points][:2] == [[0.5], [0.5, 1.0]]


@pytest.mark.parametrize(
    "chosen", ["../../x", "0001-anonymize/../../..", "0001-anonymize", "/etc", "0001-anonymize//etc"]
)
def test_a_release_is_one_of_the_project(folder: Path, chosen: str) -> None:
    from sfumato.studio.table_tasks import release_folder

    with pytest.raises(OptionError, match="no such release"):
        release_folder(folder.parent.parent, chosen)

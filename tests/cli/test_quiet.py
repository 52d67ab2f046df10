"""What goes to stderr: notes of ours, no warnings of other libraries, and with --quiet nothing but errors."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from sfumato.cli.main import _COMMANDS, _sfumato
from tests.conftest import Ran, refused

ROLES = ("--qi", "zip,age", "--sensitive", "disease", "--k", "2")
PATIENTS = "zip,age,disease\n" + "1,20,flu\n1,21,cold\n2,30,flu\n2,31,cold\n"


def commands(group: click.Group = _sfumato) -> list[click.Command]:
    """Every command, with those of groups."""
    context = click.Context(group)
    found: list[click.Command] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command) if isinstance(command, click.Group) else [command]
    return found


def test_every_command_can_be_quiet() -> None:
    assert len(commands()) > len(_COMMANDS)
    for command in commands():
        assert "--quiet" in [flag for option in command.params for flag in option.opts], command.name


def test_a_quiet_command_prints_nothing_on_stderr(sfumato: Callable[..., Ran]) -> None:
    Path("patients.csv").write_text(PATIENTS)
    loud = sfumato("anonymize", "patients.csv", *ROLES, "-o", "loud.csv")
    assert (loud.code, "The release is in loud.csv" in loud.err) == (0, True)
    quiet = sfumato("anonymize", "patients.csv", *ROLES, "-o", "quiet.csv", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out != ""
    assert Path("quiet.csv").exists()


def test_a_quiet_command_still_says_what_went_wrong_and_the_next_one_is_not_quiet(sfumato: Callable[..., Ran]) -> None:
    Path("patients.csv").write_text(PATIENTS)
    refused(sfumato("anonymize", "patients.csv", *ROLES, "-o", "out.xlsx", "--k", "x", "--quiet"), "k")
    assert "The release is in loud.csv" in sfumato("anonymize", "patients.csv", *ROLES, "-o", "loud.csv").err


def test_warnings_of_other_libraries_are_not_shown(
    sfumato: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sfumato.cli.commands.assess as module

    def warns(*_: object, **__: object) -> None:
        warnings.warn_explicit("something old", DeprecationWarning, "/lib/other.py", 1)
        warnings.warn_explicit("did not converge", UserWarning, "/lib/other.py", 2)
        warnings.warn_explicit("this matters", UserWarning, str(Path(module.__file__)), 3)

    monkeypatch.setattr(module, "check_not_input", warns)
    Path("patients.csv").write_text(PATIENTS)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ran = sfumato("assess", "patients.csv", "--qi", "zip")
    assert ran.code == 0
    assert "Note: this matters\n" in ran.err
    assert "something old" not in ran.err
    assert "converge" not in ran.err


def test_compiling_is_announced_once(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from sfumato.engines.compiling import announce\n"
        "from sfumato.anonymizers.lattice.kernels import any_below\n"
        "announce(lambda: print('compiling'))\n"
        "for _ in range(2): any_below(np.zeros((2, 3), dtype=np.uint8), np.ones(3, dtype=np.uint8))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        ).stdout
        for _ in range(2)
    ]
    assert outputs == ["compiling\n", ""]  # the second process finds it on disk

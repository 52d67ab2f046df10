"""A command that is told to stop does so in order: nothing of the rows is left on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MAIN = "from sfumato.cli.main import main; main()"
COMMAND = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {MAIN}"  # also if the tests run under nohup
ENDED = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@contextmanager
def spilling(folder: Path, program: str = COMMAND) -> Iterator[subprocess.Popen[str]]:
    """Run a command that reads its standard input until rows of it are in the temporary folder."""
    temporary = folder / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", program, "assess", "-", "--qi", "a"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("a,b\n" + "123-45-6789,1\n" * 200_000)
            process.stdin.flush()  # and it stays open: the command waits for more
            while process.poll() is None and not any(
                file.stat().st_size for file in temporary.glob(".sfumato-spill.*/*")
            ):
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ENDED)
def test_a_command_that_is_stopped_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    with spilling(tmp_path) as process:
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (ENDED[name], "", "Stopped.")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {MAIN}"  # as nohup does
    with spilling(tmp_path, program) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == ENDED["SIGTERM"]


def emptied(folder: Path) -> bool:
    """Wait until nothing is in a folder; a minute is more than any machine needs."""
    end = time.monotonic() + 60
    while time.monotonic() < end and any(folder.iterdir()):
        time.sleep(0.01)
    return not any(folder.iterdir())


def test_no_row_survives_a_command_that_is_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    with spilling(tmp_path) as process:
        (folder,) = temporary.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        assert any(file.stat().st_size for file in folder.iterdir())
        process.kill()
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert emptied(temporary)


HOLDER = """
import subprocess, sys, time
from pathlib import Path
from sfumato.data.io.folders import private_folder

class Shown(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        print(self.pid, flush=True)

subprocess.Popen = Shown
with private_folder() as folder:
    (folder / "rows").write_text("123-45-6789")
    print(folder, flush=True)
    time.sleep(600)
"""


@contextmanager
def holding(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """Run a process with a private folder; give it, the number of its guard, and the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline()), Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_next_command_removes_what_the_dead_left_and_nothing_of_the_living(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("age\n30\n30\n")
    temporary = tmp_path / "temporary"
    stranger = temporary / ".sfumato-spill.notours1.tmp"
    stranger.mkdir(parents=True)
    with holding(temporary) as (dead, guard, left), holding(temporary) as (_, _, kept):
        os.kill(guard, signal.SIGKILL)  # as when the power fails
        dead.kill()
        dead.communicate(timeout=60)
        assert (left / "rows").exists()
        ran = subprocess.run(
            [sys.executable, "-c", COMMAND, "assess", table, "--qi", "age"],
            env={**os.environ, "TMPDIR": str(temporary)},
            capture_output=True,
        )
        assert ran.returncode == 0
        assert set(temporary.iterdir()) == {kept, stranger}
        assert (kept / "rows").exists()

"""One process at a time changes a file, and a lock ends with the process that held it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.data.io.files import exclusive_lock

HOLD = """
import sys, time
from sfumato.data.io.files import exclusive_lock
with exclusive_lock(sys.argv[1], "it"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    path, entered = tmp_path / "file", threading.Event()

    def enter() -> None:
        with exclusive_lock(path, "the file"):
            entered.set()

    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        waiting = threading.Thread(target=enter)
        waiting.start()
        time.sleep(0.2)
        assert not entered.is_set()
        holder.kill()
    waiting.join(60)
    assert entered.is_set()
    assert (tmp_path / ".file.lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(sf.errors.FileError, match=r"the mapping '.*' cannot be written"),
        exclusive_lock(tmp_path / "no" / "x", "the mapping"),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_a_process_that_is_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    path, go = tmp_path / "file", os.pipe()
    with exclusive_lock(path, "the file"):
        child = os.fork()
        if not child:
            os.read(go[0], 1)
            os._exit(0)
    try:
        subprocess.run([sys.executable, "-c", HOLD.replace("600", "0"), str(path)], timeout=60, check=True)
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="it locks by other means")
def test_a_file_system_without_locks_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def none_left(number: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_left)
    with (
        pytest.raises(sf.errors.FileError, match=r"the ledger '.*' cannot be locked: No locks available"),
        exclusive_lock(tmp_path / "x", "the ledger"),
    ):
        pass

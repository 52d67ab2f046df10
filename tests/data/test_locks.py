"""One process at a time changes a file, and a lock ends with the process that held it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.data.locks import alone

HOLD = """
import sys, time
from sfumato.data.locks import alone
with alone(sys.argv[1], "it"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    path, entered = tmp_path / "file", threading.Event()

    def enter() -> None:
        with alone(path, "the file"):
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
        pytest.raises(sf.FileError, match=r"the mapping '.*' cannot be written"),
        alone(tmp_path / "no" / "x", "the mapping"),
    ):
        pass

"""``sfumato federate`` on real processes: without a network, and killed in the middle."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.effort import THOROUGH

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="flwr is not installed"),
    pytest.mark.skipif(not THOROUGH, reason="minutes of real processes: make thorough runs them"),
]

MARK = "SFUMATO_TEST_FEDERATE"
COMMAND = ["nursery", "--target", "class", "--clients", "2", "--rounds", "3", "--learning-rate", "0.2", "--processes"]
PROGRAM = [sys.executable, "-m", "sfumato", "federate", *COMMAND, "--secure", "none", "--no-central", "--json", "-o"]
PATIENCE = 900.0


@pytest.fixture
def scratch(monkeypatch):
    """A short path: that of a socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="f-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("SFUMATO_HOME", str(folder / "home"))
    monkeypatch.setenv(MARK, folder.name)
    yield folder
    shutil.rmtree(folder)


def processes(mark: str) -> list[str]:
    """Return the processes that inherited the mark of a test, dead ones that nobody has waited for included."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (one / "environ").read_bytes().split(b"\0"):
                found.append((one / "cmdline").read_text().replace("\0", " "))
    return found


def until(condition, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_coordinator_that_is_killed_goes_on_at_the_last_finished_round(scratch):
    out = scratch / "out"
    first = scratch / "out.run" / "rounds" / "round-0001.safetensors"
    with subprocess.Popen([*PROGRAM, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until(lambda: first.exists() and (scratch / "out.run" / "checkpoint").exists(), "the first round")
        model = first.read_bytes()
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    mark = os.environ[MARK]
    until(lambda: not [one for one in processes(mark) if "flower" in one or "sfumato" in one], "all processes end")
    assert not out.exists()
    again = subprocess.run([*PROGRAM, str(out)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 0, again.stderr[-2000:]
    assert "Going on from the last finished round" in again.stderr
    assert "round 1:" not in again.stderr
    assert [one["round"] for one in json.loads(again.stdout)["rounds"]] == [1, 2, 3]
    assert first.read_bytes() == model
    until(lambda: not processes(mark), "what the second command started ends with it")
    assert not list((scratch / "out.run" / "parties").glob("*/samples.npz"))


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_no_connection_leaves_the_machine(scratch):
    """A namespace with a loopback interface only: whatever tries to leave it fails."""
    alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    up = "import fcntl, socket, struct; s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 0x49))"
    if subprocess.run([*alone, sys.executable, "-c", up], capture_output=True, check=False).returncode:
        pytest.skip("a network namespace cannot be made here")
    script = f"{up}; import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    command = [*alone, sys.executable, "-c", script, *PROGRAM, str(scratch / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["final"]["accuracy"] > 0.8

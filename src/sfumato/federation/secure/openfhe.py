"""The process that runs OpenFHE, whose wheels import on other Python versions than Sfumato's perhaps.

The interpreter is that of the environment variable ``SFUMATO_OPENFHE_PYTHON``, else the running one, else
``python3.10``, whichever imports OpenFHE first. It always runs as a process of its own: serialized keys and ciphertexts
of strangers are parsed by native code there, and a crash of it is an error here.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sfumato.errors import MissingExtra, ProtocolError

__all__ = ["OpenFhe", "openfhe"]

VARIABLE = "SFUMATO_OPENFHE_PYTHON"
_WORKER = Path(__file__).with_name("openfhe_worker.py")
_MOST_HEADER, _MOST_BYTES = 1 << 20, 4 << 30
_INSTALL = (
    f"python3.10 -m venv ~/openfhe && ~/openfhe/bin/pip install openfhe && export {VARIABLE}=~/openfhe/bin/python"
)


class OpenFhe:
    """A running process; see `sfumato.federation.secure.openfhe_worker` for what it answers."""

    def __init__(self, interpreter: str) -> None:
        keep = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "SYSTEMROOT")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        self._process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
            [interpreter, "-I", "-B", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._lock = threading.Lock()
        self.pid = os.getpid()

    def __repr__(self) -> str:
        return f"OpenFhe(process {self._process.pid})"

    @property
    def process(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, and was started by this process."""
        return self.pid == os.getpid() and self._process.poll() is None

    def ask(self, op: str, parts: Sequence[bytes] = (), **more: int | bool) -> list[bytes]:
        """Return the parts of the reply; a `ProtocolError` if OpenFHE refuses what it got, or crashes on it."""
        header = json.dumps({"op": op, "parts": [len(one) for one in parts], **more}).encode()
        with self._lock:
            try:
                stdin, stdout = self._process.stdin, self._process.stdout
                assert stdin is not None
                assert stdout is not None
                stdin.write(len(header).to_bytes(8))
                stdin.write(header)
                for one in parts:
                    stdin.write(one)
                stdin.flush()
                reply = json.loads(self._read(min(int.from_bytes(self._read(8)), _MOST_HEADER)))
                lengths = [int(one) for one in reply["parts"]]
                if sum(lengths) > _MOST_BYTES:
                    raise ValueError("length")
                found = [self._read(one) for one in lengths]
            except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
                self.close()
                raise ProtocolError("OpenFHE ended while it worked", hint="a message may be damaged") from error
        if "error" in reply:
            raise ProtocolError("OpenFHE refuses a key or ciphertext: it is damaged, or of other parameters")
        return found

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(size)
        if len(found) < size:
            raise EOFError
        return found

    def close(self) -> None:
        """End the process, unless it is that of the process that this one was forked from."""
        if self.pid != os.getpid():
            return
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._process.kill()
        self._process.wait()


_running: list[OpenFhe] = []
_starting = threading.Lock()


def openfhe() -> OpenFhe:
    """Return the process, started when it is first needed; a `MissingExtra` says what to install."""
    with _starting:
        if _running and _running[0].alive:
            return _running[0]
        _running.clear()
        for interpreter in _interpreters():
            with contextlib.suppress(OSError, ProtocolError):
                made = OpenFhe(interpreter)
                made.ask("hello")
                atexit.register(made.close)
                _running.append(made)
                return made
    given = os.environ.get(VARIABLE)
    if given:
        raise MissingExtra(f"the interpreter '{given}' of {VARIABLE} does not import openfhe", hint=_INSTALL)
    raise MissingExtra("threshold encryption needs OpenFHE, which no Python found here imports", hint=_INSTALL)


def _interpreters() -> list[str]:
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    found = shutil.which("python3.10")
    return [sys.executable, *([found] if found else [])]

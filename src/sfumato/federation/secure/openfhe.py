"""The process that runs OpenFHE, whose wheels import on other Python versions than Sfumato's perhaps.

The interpreter is that of the environment variable ``SFUMATO_OPENFHE_PYTHON``, else the running one, else
``python3.10``, whichever imports OpenFHE first. It always runs as a process of its own: serialized keys and ciphertexts
of strangers are parsed by native code there, and a crash of it is an error here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sfumato.errors import MissingExtra, ProtocolError
from sfumato.federation.secure.process import Process

__all__ = ["VERSION", "OpenFhe", "openfhe"]

VERSION = "1.6.1.0.22.4"
"""The version whose keys and ciphertexts are of the form that is known here."""

VARIABLE = "SFUMATO_OPENFHE_PYTHON"
_WORKER = Path(__file__).with_name("openfhe_worker.py")
_INSTALL = (
    f"python3.10 -m venv ~/openfhe && ~/openfhe/bin/pip install openfhe=={VERSION} && "
    f"export {VARIABLE}=~/openfhe/bin/python"
)


class OpenFhe(Process):
    """A running process; see `sfumato.federation.secure.openfhe_worker` for what it answers."""

    def __init__(self, interpreter: str) -> None:
        super().__init__(interpreter, _WORKER, "OpenFHE")

    def ask(self, op: str, parts: Sequence[bytes] = (), **more: int | bool) -> list[bytes]:
        """Return the parts of the reply; a `ProtocolError` if OpenFHE refuses what it got, or crashes on it."""
        reply, found = self.exchange({"op": op, **more}, parts)
        if "error" in reply:
            raise ProtocolError("OpenFHE refuses a key or ciphertext: it is damaged, or of other parameters")
        return found


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

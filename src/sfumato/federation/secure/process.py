"""A process of its own for code of others, which parses what strangers send: a crash of it is an error here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfumato.errors import ProtocolError

__all__ = ["Process"]

_SERVE = Path(__file__).with_name("serve.py")
_MOST_HEADER, _MOST_BYTES = 1 << 20, 4 << 30
_KEEP = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "SYSTEMROOT")


class Process:
    """A running process; see `sfumato.federation.secure.serve`.

    Parameters
    ----------
    interpreter : the Python that runs it
    module : the file whose ``Answer`` it calls
    what : what it runs, for errors
    """

    def __init__(self, interpreter: str, module: Path, what: str) -> None:
        environment = {name: os.environ[name] for name in _KEEP if name in os.environ}
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        self._what = what
        self._process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
            [interpreter, "-I", "-B", str(_SERVE), str(module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._lock = threading.Lock()
        self.pid = os.getpid()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(process {self._process.pid})"

    @property
    def process(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, and was started by this process."""
        return self.pid == os.getpid() and self._process.poll() is None

    def exchange(self, header: dict[str, Any], parts: Sequence[bytes] = ()) -> tuple[dict[str, Any], list[bytes]]:
        """Return the header and the parts of the reply; a `ProtocolError` if the process ends over it."""
        sent = json.dumps({**header, "parts": [len(one) for one in parts]}).encode()
        with self._lock:
            try:
                stdin, stdout = self._process.stdin, self._process.stdout
                assert stdin is not None
                assert stdout is not None
                stdin.write(len(sent).to_bytes(8))
                stdin.write(sent)
                for one in parts:
                    stdin.write(one)
                stdin.flush()
                reply = json.loads(self._read(min(int.from_bytes(self._read(8)), _MOST_HEADER)))
                lengths = [int(one) for one in reply["parts"]]
                if sum(lengths) > _MOST_BYTES:
                    raise ValueError("length")
                return reply, [self._read(one) for one in lengths]
            except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
                self.close()
                raise ProtocolError(f"{self._what} ended while it worked", hint="a message may be damaged") from error

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

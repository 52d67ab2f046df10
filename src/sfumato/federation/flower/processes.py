"""Flower's commands as child processes that end with their parent, and that say in one sentence why they failed."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sfumato.errors import MissingExtra, ProtocolError

__all__ = ["control", "environment", "free_port", "last_line", "require_flower", "start", "stop"]

_INSTALL = "pip install 'sfumato[federation]'"
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TRIVIAL = re.compile(r"^[\s│╭╰─╮╯^~*=-]*$|^\s*(File|Traceback|raise|return|at )\b")


def require_flower() -> None:
    """Refuse to go on without Flower; it is not imported here, since only its own processes need it."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtra("federated learning between processes needs the package 'flwr'", hint=_INSTALL)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes: its own home, no telemetry, no update check, short waits."""
    scripts = sysconfig.get_path("scripts")
    return {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "OTEL_SDK_DISABLED": "true",
        "PYTHONUNBUFFERED": "1",
    }


def start(
    command: Sequence[str], log: Path, home: Path, *, own_group: bool = True, scratch: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in the background that is killed when this process ends, however it ends.

    Its output goes to a file of mode 0600, its temporary files to ``scratch``, or else where those of this process go.
    """
    require_flower()
    variables = environment(home) | ({} if scratch is None else {"TMPDIR": str(scratch)})
    program = command[0] if Path(command[0]).is_absolute() else shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise MissingExtra(f"the command '{command[0]}' was not found", hint=_INSTALL)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    parent = os.getpid()

    def tie() -> None:  # runs between fork and exec: a killed parent takes its children with it
        if libc is not None:
            libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    home.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        return subprocess.Popen(  # noqa: S603
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=own_group,
            preexec_fn=tie,
        )


def stop(process: subprocess.Popen[bytes], *, seconds: float = 5.0) -> None:
    """End a process and all that it has started, kindly first."""
    for one in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, one)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.wait()


def last_line(log: Path) -> str:
    """Return the last line of a log that says something.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
    ...     _ = file.write("ERROR: the port is taken\\n────\\n\\n")
    ...     file.flush()
    ...     last_line(Path(file.name))
    'ERROR: the port is taken'
    """
    try:
        text = log.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""
    lines = [_COLOURS.sub("", one).strip(" │") for one in text.splitlines()]
    return next((one[:300] for one in reversed(lines) if not _TRIVIAL.match(one)), "")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])


def control(
    commands: Sequence[Sequence[str]], home: Path, secret: str, *, timeout: float = 300.0
) -> list[Mapping[str, object]]:
    """Run commands of Flower's `flwr` one after another in one process, and return what each reports as JSON.

    The secret opens the control API of the server (see `Guard`).
    """
    program = [sys.executable, "-m", "sfumato.federation.flower.control"]
    try:
        done = subprocess.run(  # noqa: S603
            program,
            input=json.dumps({"secret": secret, "commands": [list(one) for one in commands]}).encode(),
            capture_output=True,
            env=environment(home),
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProtocolError(f"'flwr {commands[0][0]}' did not end within {timeout:.0f} seconds") from error
    try:
        reports = json.loads(done.stdout)
    except ValueError:
        reports = []
    for command, report in zip(commands, reports, strict=False):
        if not report.get("success"):
            raise ProtocolError(f"'flwr {' '.join(command[:2])}' failed", hint=_reason(report))
    if len(reports) != len(commands):
        lines = [one.strip() for one in done.stderr.decode(errors="replace").splitlines()]
        said = next((one[:300] for one in reversed(lines) if one), "it said nothing")
        raise ProtocolError(f"'flwr {' '.join(commands[0][:2])}' failed", hint=said)
    return list(reports)


def _reason(report: Mapping[str, object]) -> str:
    text = str(report.get("error-message") or report.get("said") or "it said nothing")
    lines = [one.strip() for one in _COLOURS.sub("", text).splitlines() if not _TRIVIAL.match(one)]
    return lines[-1][:300] if lines else "it said nothing"


def wait_for(process: subprocess.Popen[bytes], log: Path, what: str, host: str, port: int, seconds: float) -> None:
    """Wait until a process accepts connections, or say why it ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ProtocolError(f"{what} ended with status {process.returncode}", hint=last_line(log))
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
            return
        time.sleep(0.1)
    raise ProtocolError(f"{what} did not accept connections within {seconds:.0f} seconds", hint=last_line(log))

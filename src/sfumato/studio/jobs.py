"""Long work in processes of its own: started, watched, cancelled, and found again when the studio is opened again.

A job is a folder. Its process holds the lock on the file ``lock`` for as long as it lives, so that whoever looks later
knows whether it still runs, however it or the studio ended.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.data.io.files import write_owned
from sfumato.errors import FileError, OptionError
from sfumato.studio.files import private_folder
from sfumato.studio.workspace import Project, read_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["MOST_RUNNING", "Job", "cancel", "find", "latest", "running", "start"]

MOST_RUNNING = 4
"""The most jobs of a studio that run at once."""
_ID = re.compile(r"\d{4}-[a-z]+")
_GRACE = 3.0  # seconds after which a job that was cancelled is killed
_SOON = 0.02  # the share below which no time is estimated
_CHILDREN: list[subprocess.Popen[bytes]] = []
_STARTING = threading.Lock()


@dataclass(frozen=True)
class Job:
    """A piece of work and how far it is.

    Attributes
    ----------
    folder : its files
    task : what is done, as plain values
    status : running, done, failed or cancelled
    """

    folder: Path
    task: Mapping[str, Any]
    status: str

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def result(self) -> dict[str, Any]:
        """What the work found; empty until it is done."""
        return read_json(self.folder / "result.json") or {}

    @property
    def error(self) -> str:
        """Why it failed, in one sentence."""
        known = read_json(self.folder / "error.json") or {}
        return str(known.get("message", "the work stopped unexpectedly; it may have needed more memory than there is"))

    @property
    def progress(self) -> dict[str, Any]:
        """The share that is done, and what is known before the end."""
        return read_json(self.folder / "progress.json") or {}

    @property
    def share(self) -> float:
        """The share that is done, from 0 to 1."""
        return min(max(float(self.progress.get("share", 0.0)), 0.0), 1.0)

    @property
    def seconds(self) -> float:
        """How long it took, or takes by now."""
        end = time.time() if self.status == "running" else (self.folder / "ended").stat().st_mtime
        return max(end - float(self.task["started"]), 0.0)

    @property
    def left(self) -> float | None:
        """The seconds that are left, as far as that can be said."""
        return self.seconds * (1 - self.share) / self.share if self.share >= _SOON else None


def start(project: Project, task: Mapping[str, Any]) -> Job:
    """Start a task in a process of its own, and return it."""
    if fcntl is None:
        raise OptionError("the studio needs a system with file locks, such as Linux or macOS")
    with _STARTING:
        if sum(1 for one in project.folder.parent.iterdir() for _ in running_in(one / "jobs")) >= MOST_RUNNING:
            raise OptionError(f"{MOST_RUNNING} pieces of work run already", hint="wait for one of them, or cancel one")
        numbers = [int(one.name[:4]) for one in project.jobs.iterdir() if _ID.fullmatch(one.name)]
        folder = private_folder(project.jobs / f"{max(numbers, default=0) + 1:04d}-{task['kind']}")
        private_folder(folder / "tmp")
        write_owned(folder / "task.json", {**task, "started": time.time()})
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(  # noqa: S603 - our own module, with a folder that we made
                    [sys.executable, "-P", "-m", "sfumato.studio.work", str(folder), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env={**os.environ, "TMPDIR": str(folder / "tmp")},
                    pass_fds=[lock],
                    start_new_session=True,  # closing the studio does not stop it
                )
        finally:
            os.close(lock)
    _CHILDREN.append(process)
    write_owned(folder / "process.json", {"id": process.pid})
    return find(project, folder.name)


def find(project: Project, name: str) -> Job:
    """Return a job of a project by its id."""
    folder = project.jobs / name
    if not _ID.fullmatch(name) or folder.is_symlink() or not (folder / "task.json").is_file():
        raise FileError("there is no such work")
    return _job(folder)


def latest(project: Project, kind: str) -> Job | None:
    """Return the newest job of a kind; None if there is none."""
    found = sorted(one for one in project.jobs.iterdir() if _ID.fullmatch(one.name) and one.name[5:] == kind)
    return _job(found[-1]) if found and (found[-1] / "task.json").is_file() else None


def running(project: Project) -> list[Job]:
    """Return the jobs of a project that run."""
    return [_job(folder) for folder in running_in(project.jobs)]


def running_in(folder: Path) -> list[Path]:
    """Return the folders of the jobs that run, among those in a folder."""
    try:
        return [one for one in sorted(folder.iterdir()) if _ID.fullmatch(one.name) and _is_held(one / "lock")]
    except OSError:
        return []


def cancel(project: Project, name: str) -> None:
    """Stop a job: politely at first, and after some seconds for certain."""
    job = find(project, name)
    known = read_json(job.folder / "process.json")
    if job.status != "running" or known is None:
        return
    (job.folder / "cancelled").touch(0o600)
    _stop(job.folder, known["id"], signal.SIGTERM)
    timer = threading.Timer(_GRACE, _stop, (job.folder, known["id"], signal.SIGKILL))
    timer.daemon = True
    timer.start()


def _stop(folder: Path, process: int, number: int) -> None:
    """Send a signal to a job and its own processes, if it still runs: its number may be another's by now."""
    if _is_held(folder / "lock"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, number)


def _job(folder: Path) -> Job:
    _CHILDREN[:] = [child for child in _CHILDREN if child.poll() is None]
    task = read_json(folder / "task.json") or {}
    if _is_held(folder / "lock"):
        return Job(folder, task, "running")
    if not (folder / "ended").exists():
        (folder / "ended").touch(0o600)
        shutil.rmtree(folder / "tmp", ignore_errors=True)  # rows that a killed process has left
    done = (folder / "result.json").is_file()
    return Job(folder, task, "done" if done else "cancelled" if (folder / "cancelled").exists() else "failed")


def _is_held(lock: Path) -> bool:
    """Return whether a process holds the lock; two that look at once do not disturb each other."""
    if fcntl is None:
        return False
    try:
        number = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False

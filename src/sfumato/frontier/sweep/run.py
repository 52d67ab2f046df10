"""Run measurements in fresh processes, and keep each result in a file, so that a killed run goes on where it was.

A result is kept under a hash of everything that it depends on: the rows, the schema, the models, the attacks, the
source text of the user's analyses, the protection, the seed and the version of Sfumato.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

import sfumato
from sfumato.data.io.files import why, write_owned
from sfumato.data.io.fingerprint import user_hmac
from sfumato.errors import FileError, InputError, SfumatoError
from sfumato.frontier.sweep.grid import Candidate
from sfumato.frontier.sweep.measure import Task, measure

__all__ = ["Runner"]

Job = tuple[Candidate, int]
_FORM = 1  # of a stored result; another number makes old files useless
_watched = threading.Event()


class Runner:
    """Measure protections, or read what was measured before.

    Parameters
    ----------
    task : Task
    jobs : int
        The number of processes; with one, everything runs in this process.
    folder : path, optional
        Where results are kept.
    progress : callable, optional
        Called with the share of the work that is done.

    Attributes
    ----------
    computed : the number of measurements that were not found in the folder
    """

    def __init__(
        self, task: Task, *, jobs: int, folder: Path | None, progress: Callable[[float], None] | None = None
    ) -> None:
        self.task, self.jobs, self.folder, self.progress = task, jobs, folder, progress
        self.computed = 0
        self.results: dict[Job, dict[str, Any]] = {}
        self._base = None if folder is None else _content(task)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(f"the folder '{folder}' cannot be made: {why(error)}") from error

    def run(self, jobs: Iterable[Job]) -> None:
        """Measure the jobs that are not known yet; a protection that cannot be made is kept with its reason."""
        asked = [job for job in dict.fromkeys(jobs) if job not in self.results]
        left = []
        for job in asked:
            stored = self._read(job)
            if stored is None:
                left.append(job)
            else:
                self.results[job] = stored
        for done, (job, result) in enumerate(self._measured(left), start=1):
            self.computed += 1
            self.results[job] = result
            if self.folder is not None:
                write_owned(self._path(job), result)
            if self.progress:
                self.progress((len(asked) - len(left) + done) / len(asked))

    def _measured(self, jobs: list[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
        workers = min(self.jobs, len(jobs))
        if workers <= 1:
            yield from (_run(self.task, job, None) for job in jobs)
            return
        from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]
        from joblib.externals.loky.process_executor import TerminatedWorkerError  # type: ignore[import-untyped]

        try:
            with parallel_config(backend="loky", inner_max_num_threads=1):
                yield from Parallel(workers, return_as="generator_unordered", pre_dispatch=workers)(
                    delayed(_run)(self.task, job, os.getpid()) for job in jobs
                )
        except TerminatedWorkerError:
            raise InputError(
                "a process that measures protections was ended, probably for lack of memory",
                hint="explore with jobs=1; what was measured is kept if there is a folder",
            ) from None
        except SfumatoError as error:
            raise error from None  # without the traceback of the process

    def _path(self, job: Job) -> Path:
        assert self.folder is not None
        assert self._base is not None
        mac = self._base.copy()
        mac.update(json.dumps([str(job[0]), job[1]]).encode())
        return self.folder / f"{mac.hexdigest()[:40]}.json"

    def _read(self, job: Job) -> dict[str, Any] | None:
        """Return a stored result; one that cannot be read is measured again."""
        if self.folder is None:
            return None
        try:
            found = json.loads(self._path(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.keys() & {"risk", "failed"} else None


def _run(task: Task, job: Job, parent: int | None) -> tuple[Job, dict[str, Any]]:
    if parent is not None and not _watched.is_set():
        _watched.set()
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        return job, _plain(measure(task, *job))
    except SfumatoError as error:
        return job, {"failed": str(error)}


def _end_with(parent: int) -> None:
    """End this process soon after its parent was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _plain(value: Any) -> Any:
    """Convert a result to plain JSON values, so that a stored one equals a fresh one."""
    return json.loads(json.dumps(value, default=float))


def _content(task: Task) -> Any:
    """Return a keyed hash of what all results depend on."""
    mac = user_hmac()
    facts = {
        "form": _FORM,
        "version": sfumato.__version__,
        "schema": task.table.schema.to_dict(),
        "target": task.target,
        "models": task.models,
        "attacks": task.attacks,
        "analyses": {name: _source(one) for name, one in task.analyses.items()},
    }
    mac.update(json.dumps(facts, sort_keys=True, default=str).encode())
    frame: pl.DataFrame = task.table.to_polars()
    mac.update(json.dumps([(name, str(kind)) for name, kind in frame.schema.items()]).encode())
    mac.update(frame.write_csv().encode())
    return mac


def _source(function: Any) -> str:
    """Return the text of a function; without it, results are found again only in this process."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{id(function)} of {os.getpid()} at {time.time()}"

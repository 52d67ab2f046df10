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
from typing import Any, TypeGuard

import polars as pl

import sfumato
from sfumato.data.io.files import why, write_owned
from sfumato.data.io.fingerprint import user_hmac
from sfumato.errors import FileError, InputError, SfumatoError
from sfumato.frontier.sweep.analysis import Named, Script
from sfumato.frontier.sweep.grid import Candidate
from sfumato.frontier.sweep.measure import Task, measure

__all__ = ["Runner"]

Job = tuple[Candidate, int]
_FORM = 4  # of a stored result; another number makes old files useless
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
        Called with the share of the time that has passed, by an estimate.

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
        """Measure the jobs that are not known yet; one that fails is tried again in the next run."""
        asked = [job for job in dict.fromkeys(jobs) if job not in self.results]
        left = []
        for job in asked:
            stored = self._read(job)
            if stored is None:
                left.append(job)
            else:
                self.results[job] = stored
        waiting, started = dict.fromkeys(left), time.monotonic()
        for job, result in self._measured(left):
            self.computed += 1
            self.results[job] = result
            del waiting[job]
            if self.folder is not None and "failed" not in result:
                write_owned(self._path(job), result)
            if self.progress:
                elapsed = time.monotonic() - started
                rest = sum(self._expected(one) for one in waiting) / min(self.jobs, max(len(waiting), 1))
                self.progress(elapsed / (elapsed + rest) if rest else 1.0)

    def _expected(self, job: Job) -> float:
        """Return the seconds that a measurement will take, by others: of the protection, of its kind, or of all."""
        kinds: list[Callable[[Candidate], object]] = [str, lambda one: one.family, lambda one: None]
        for kind in kinds:
            alike = [one.get("seconds", 0.0) for known, one in self.results.items() if kind(known[0]) == kind(job[0])]
            if alike:
                return float(sum(alike) / len(alike))
        return 0.0

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

    def key(self, candidate: Candidate, seed: int) -> str | None:
        """Return the name that a result is kept under; None without a folder."""
        if self._base is None:
            return None
        mac = self._base.copy()
        mac.update(json.dumps([str(candidate), candidate.recipe, seed]).encode())
        name: str = mac.hexdigest()[:40]
        return name

    def _path(self, job: Job) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.key(*job)}.json"

    def _read(self, job: Job) -> dict[str, Any] | None:
        """Return a stored result; one that cannot be read is measured again."""
        if self.folder is None:
            return None
        try:
            found = json.loads(self._path(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if _is_result(found) else None


def _is_result(found: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a stored file holds what `measure` returns."""

    def pairs(given: Any) -> bool:
        return isinstance(given, list) and all(
            isinstance(one, list) and len(one) == 2 and all(type(x) in (int, float) for x in one) for one in given
        )

    return (
        isinstance(found, dict)
        and found.keys() == {"risk", "utility", "roc", "seconds", "made"}
        and all(isinstance(found[part], dict) and pairs([*found[part].values()]) for part in ("risk", "utility"))
        and pairs(found["roc"])
        and all(type(found[part]) in (int, float) for part in ("seconds", "made"))
    )


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
        "analyses": {name: [type(one).__name__, _source(one)] for name, one in task.analyses.items()},
    }
    mac.update(json.dumps(facts, sort_keys=True, default=str).encode())
    frame: pl.DataFrame = task.table.to_polars()
    mac.update(json.dumps([(name, str(kind)) for name, kind in frame.schema.items()]).encode())
    mac.update(frame.write_csv().encode())
    return mac


def _source(function: Any) -> str:
    """Return the text of a function; without it, results are found again only in this process."""
    if isinstance(function, Script | Named):
        return function.source
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{id(function)} of {os.getpid()} at {time.time()}"

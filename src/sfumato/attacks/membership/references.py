"""Reference models: the target's own training procedure, run on other rows.

Two reference models share the pool of rows between them, so that every record is in half of the models' training data.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pickle import PicklingError
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.base import Records, Scores
from sfumato.attacks.membership.attack import ModelAttack
from sfumato.attacks.membership.signals import Signals
from sfumato.data.validate import whole
from sfumato.errors import InputError, SfumatoError

__all__ = ["ReferenceAttack", "Training", "halves", "halves_of", "train_references"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Training = Callable[[Ints, int], Floats]
"""Train on some rows of the pool with a seed; return the probability of its own label for every row of the pool."""

Job = tuple[Training, Ints, int]

_SMALL = 10.0  # seconds; processes take a few to start, and each needs its own copy of the pool


class ReferenceAttack(ModelAttack):
    """A membership attack that compares the target with reference models; see `ModelTarget.signals`."""

    models: ClassVar[int] = 2
    """The fewest reference models that the attack needs."""
    variants: ClassVar[int] = 1
    """The number of settings that `settings` tries."""

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is None and target.procedure is None:
            return "it trains reference models, and how the target was trained is not known"
        if found is None and target.references < self.models:
            return f"it needs at least {self.models} reference models, and there are {target.references}"
        return found

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score all records against the reference models; the non-members are the population."""
        signals = target.signals(members, nonmembers, seed)
        population = signals.take(np.arange(len(members), len(members) + len(nonmembers)))
        chosen = self.settings(signals)
        found = self.score(signals, population, **chosen)
        inside, outside = found[: len(members)], found[len(members) :]
        return Scores(inside, outside, references=signals.models, variants=self.variants, details=chosen)

    def settings(self, signals: Signals) -> dict[str, Any]:
        """Return settings of `score` that are chosen on the reference models, whose members are known."""
        return {}

    @abstractmethod
    def score(self, signals: Signals, population: Signals, **settings: Any) -> Floats:
        """Return the score of each record; members of the population are not in the target's training data."""


def halves(rows: int, models: int, seed: int) -> Bools:
    """Return which rows each model is trained on: each pair of models shares all rows.

    Examples
    --------
    >>> inside = halves(10, 4, seed=0)
    >>> inside.sum(axis=1).tolist(), inside.sum(axis=0).tolist()
    ([5, 5, 5, 5], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    whole("the number of reference models", models, least=2, most=10_000)
    rng = np.random.default_rng(seed)
    inside = np.zeros((models, rows), dtype=bool)
    for model in range(0, models, 2):
        inside[model, rng.permutation(rows)[: rows // 2]] = True
        if model + 1 < models:
            inside[model + 1] = ~inside[model]
    return inside


def halves_of(records: Records, models: int, seed: int) -> Bools:
    """Return which records each model is trained on: those of half of the people.

    Examples
    --------
    >>> inside = halves_of(Records(np.arange(6), people=[1, 1, 1, 2, 3, 4]), 2, seed=0)
    >>> inside[0].tolist(), inside[1].tolist()
    ([True, True, True, False, True, False], [False, False, False, True, False, True])
    """
    found: Bools = halves(records.persons, models, seed)[:, records.owners]
    return found


def train_references(
    procedure: Training,
    inside: Bools,
    *,
    seed: int,
    processes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Return the probability that each reference model gives to every row's own label, by model and row.

    Parameters
    ----------
    procedure : callable
        See `Training`. It must be picklable if there is more than one process.
    inside : array of bool, by model and row
        See `halves`.
    processes : int, optional
        The number of processes. By default one if the first model shows that the work is small, else as many as cores.
        They are started afresh, never forked: a fork inherits locks of threads that it does not have, and hangs.
    """
    jobs = [(procedure, np.flatnonzero(rows), seed + 1 + number) for number, rows in enumerate(inside)]
    found: list[Floats] = []

    def store(signals: Floats) -> None:
        found.append(signals)
        if progress:
            progress(len(found) / len(jobs))

    workers = processes or _cores()
    if processes is None or workers == 1:
        began = time.monotonic()
        store(_run(jobs[0]))
        if (time.monotonic() - began) * (len(jobs) - 1) < _SMALL:
            workers = 1
    left = jobs[len(found) :]
    for signals in map(_run, left) if min(workers, len(left)) <= 1 else _in_processes(left, workers):
        store(signals)
    return np.stack(found)


def _in_processes(jobs: Sequence[Job], workers: int) -> Iterator[Floats]:
    """Yield the results of the jobs in their order; a failure of a process is one sentence."""
    from joblib import Parallel, delayed  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import TerminatedWorkerError  # type: ignore[import-untyped]

    try:
        yield from Parallel(min(workers, len(jobs)), backend="loky", return_as="generator")(
            delayed(_run)(job) for job in jobs
        )
    except TerminatedWorkerError:
        raise InputError(
            "a process that trains reference models was ended, probably for lack of memory",
            hint="train with fewer processes",
        ) from None
    except SfumatoError as error:
        raise error from None  # without the traceback of the process
    except PicklingError:
        raise InputError(
            "the training procedure cannot be sent to other processes", hint="train in one: processes=1"
        ) from None


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(job: Job) -> Floats:
    procedure, rows, seed = job
    return procedure(rows, seed)

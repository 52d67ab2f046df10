"""Compare CPU times fairly on a noisy machine: alternate, take medians, print the ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

__all__ = ["alternate", "cpu_seconds"]


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def alternate(ours: Callable[[], object], peer: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Run two pieces of work in turn and return the median CPU seconds of each."""
    ours()  # imports and caches are not what is compared
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        taken[0].append(cpu_seconds(ours))
        taken[1].append(cpu_seconds(peer))
    return statistics.median(taken[0]), statistics.median(taken[1])

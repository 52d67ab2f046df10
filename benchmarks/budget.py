"""Noise and accounting: draws against numpy, torch and OpenDP, and how long one epsilon takes."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from typing import Any

import numpy as np

from clock import alternate, cpu_seconds
from sfumato.budget import Event, Gaussian, PoissonSampled, Repeated, Source, calibrate, spent
from sfumato.budget.accounting.pld import _repeated, _single, epsilon_upper_bound

MANY = 11_000_000  # the weights of a small network
CELLS = 100_000
RATE, EPOCH = 64 / 60_000, 938


def whole_numbers() -> list[tuple[str, str, str]]:
    source, rows = Source(), []
    for scale in (1.5, 40.0, 1e6):
        seconds = min(cpu_seconds(lambda scale=scale: source.discrete_gaussian(scale, 10**6)) for _ in range(3))  # type: ignore[misc]
        rows.append(
            (f"10^6 exact discrete Gaussian numbers of scale {scale:g}, one call", f"{seconds:.2f} CPU s", "2 s")
        )
    if not importlib.util.find_spec("opendp"):
        return rows
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    zeros, domain = np.zeros(CELLS, dtype=np.int64), dp.vector_domain(dp.atom_domain(T="i64"))
    for name, ours, theirs in (
        ("Gaussian", source.discrete_gaussian, dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=40.0)),
        ("Laplace", source.discrete_laplace, dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=40.0)),
    ):
        mine, peer = alternate(lambda ours=ours: ours(40.0, CELLS), lambda theirs=theirs: theirs(zeros), rounds=3)  # type: ignore[misc]
        what = (
            f"{CELLS:,} exact discrete {name} numbers: {mine:.3f} CPU s, OpenDP's vector measurement {peer:.2f} CPU s"
        )
        rows.append((what, f"{peer / mine:.0f} x", ""))
    return rows


def training(steps: int, scale: float = 1.2) -> Event:
    return Repeated(PoissonSampled(RATE, Gaussian(scale)), steps)


def accounting() -> list[tuple[str, str, str]]:
    spent(training(1), 1e-5)  # imports

    def first() -> object:
        for cached in (_single, _repeated, epsilon_upper_bound):
            cached.cache_clear()
        return spent(training(9 * EPOCH), 1e-5)

    cold = min(cpu_seconds(first) for _ in range(3))
    each = []
    for step in range(100, 9 * EPOCH, 400):  # what a display during training asks for
        start = time.process_time()
        spent(training(step), 1e-5)
        each.append(time.process_time() - start)
    again = cpu_seconds(lambda: [spent(training(EPOCH), 1e-5) for _ in range(100)]) / 100
    found = cpu_seconds(lambda: calibrate(lambda scale: training(9 * EPOCH, scale), 1.0, 1e-5))
    return [
        ("epsilon of 8,442 sampled steps, nothing cached", f"{1e3 * cold:.0f} ms", ""),
        ("epsilon after another step, the step's distribution cached", f"{1e3 * statistics.median(each):.0f} ms", ""),
        ("the same epsilon again", f"{1e3 * again:.1f} ms", ""),
        ("the noise for epsilon 1 in 8,442 sampled steps, to 4 digits", f"{found:.1f} CPU s", ""),
    ]


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    return [*whole_numbers(), *accounting()]


if __name__ == "__main__":
    for row in main():
        print(" | ".join(row))

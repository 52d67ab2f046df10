"""The frontier: the CPU time of the default grid on Adult, and recommendations that are measured again.

    python benchmarks/frontier.py grid [FOLDER]  # all default protections, three seeds
    python benchmarks/frontier.py parts          # a point or two of each protection, one seed: what a grid takes
    python benchmarks/frontier.py everything     # some of them with all columns as quasi-identifiers
    python benchmarks/frontier.py again          # 20 re-measurements with fresh seeds, on Adult and on a made-up table
    python benchmarks/frontier.py demo [--quick] # the demo

Each prints the CPU seconds of this process and of its children.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sfumato as sf
from sfumato.frontier import Frontier
from sfumato.frontier.sweep.grid import DEFAULTS, candidates_of

TRIALS = 20
MADE_UP_ROWS = 6000


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def grid(folder: str | None = None) -> None:
    found = sf.explore("adult", max_risk=0.09, max_advantage=0.05, public=True, folder=folder)
    show(found)


def everything(folder: str | None = None) -> None:
    """Compare anonymous tables of which every column is a quasi-identifier: nothing is released as it is."""
    columns = [name for name in sf.datasets.adult().schema.names if name not in ("split", "income")]
    asked = ["raw", "mondrian:k=20,100,500", "hilbert:k=100", "guided:k=20,100,500"]
    limits: dict[str, Any] = {"max_risk": 0.09, "max_advantage": 0.05}
    show(sf.explore("adult", qi=columns, protections=asked, public=True, folder=folder, **limits))


def parts() -> None:
    """Measure some points of each protection with one seed, and say what all points would take with three."""
    some = [
        "raw",
        "mondrian:k=5,100",
        "lattice:k=20",
        "guided:k=100",
        "dp:epsilon=1",
        "synthetic:epsilon=1",
        "hilbert:k=20",
    ]
    number = Counter(one.family for one in candidates_of(DEFAULTS))
    total = 0.0
    for text in some:
        points = candidates_of([text])
        before = cpu()
        for point in points:
            began = cpu()
            sf.explore("adult", protections=[str(point)], seeds=1, jobs=1, public=True)
            print(f"{point}: {cpu() - began:.1f} CPU s")
        total += 3 * number[points[0].family] * (cpu() - before) / len(points)
    print(f"{sum(number.values())} points, three seeds: about {total:.0f} CPU s")


def show(found: Frontier) -> None:
    print(found.recommended.reason)
    print(found.to_frame().select("name", "accuracy", "membership_advantage", "re_identification", "seconds"))
    print("not measured:", dict(found.skipped))


def made_up() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age, income = rng.integers(18, 90, MADE_UP_ROWS), rng.lognormal(10, 0.5, MADE_UP_ROWS).round(-2)
    ill = rng.random(MADE_UP_ROWS) < 0.1 + 0.6 * (age > 60)
    sex = rng.choice(["f", "m"], MADE_UP_ROWS)
    return pl.DataFrame({"age": age, "sex": sex, "income": income, "ill": np.where(ill, "yes", "no")})


def again() -> None:
    """Choose a protection, measure it 20 times with three fresh seeds each, and count broken limits."""
    tables: dict[str, dict[str, Any]] = {
        "adult": {
            "data": "adult",
            "protections": ["raw", "dp:epsilon=1,3,10"],
            "limits": {"max_risk": 0.09, "max_advantage": 0.03},
        },
        "made up": {
            "data": made_up(),
            "target": "ill",
            "qi": ["age", "sex"],
            "protections": ["raw", "mondrian:k=5,20,100", "lattice:k=20", "dp:epsilon=1,10"],
            "limits": {"max_risk": 0.09, "max_advantage": 0.09, "min_accuracy": 0.6},
        },
    }
    for name, options in tables.items():
        limits, asked = options.pop("limits"), options.pop("protections")
        common = {
            "utilities": ["tree" if name == "made up" else "forest"],
            "attacks": ["loss", "gap"],
            **options,
        }
        data = common.pop("data")
        chosen = sf.explore(data, protections=asked, **limits, **common).recommended
        print(f"{name}: {chosen.reason}")
        if chosen.point is None:
            continue
        broken, most = 0, 0.0
        for trial in range(TRIALS):
            one = sf.explore(data, protections=[chosen.point.name], seed=1000 + 3 * trial, **common)
            (point,) = one.points
            risk, gain = (point.risk[key].mean for key in ("re_identification", "membership_advantage"))
            least = point.utility["accuracy"].mean
            most = max(most, gain)
            broken += risk > limits["max_risk"] or gain > limits["max_advantage"]
            broken += least < limits.get("min_accuracy", 0)
        print(f"{name}: {broken} of {TRIALS} re-measurements broke a limit; the largest advantage was {most:.4f}")


def demo(*options: str) -> None:
    from sfumato.cli.main import main

    with tempfile.TemporaryDirectory() as folder:
        try:
            main(["demo", "-o", str(Path(folder) / "demo"), *options])
        except SystemExit as end:
            print("exit code", end.code)


if __name__ == "__main__":
    what, *options = sys.argv[1:]
    {"grid": grid, "parts": parts, "everything": everything, "again": again, "demo": demo}[what](*options)
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

    get_reusable_executor().shutdown(wait=True)  # its processes count when they have ended
    print(f"{cpu():.0f} CPU s")

"""How quickly Sfumato starts: ``import sfumato`` and ``sfumato --help`` in fresh processes."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

HEAVY = ("torch", "sklearn", "numba", "polars", "numpy", "pandas", "pyspark", "flwr")


def child_cpu(*command: str) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    help_ = statistics.median(child_cpu("-m", "sfumato", "--help") for _ in range(9))
    bare = statistics.median(child_cpu("-c", "pass") for _ in range(9))
    program = f"import sys, sfumato; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    return [
        (
            f"`sfumato --help` (a bare Python start takes {1000 * bare:.0f} ms)",
            f"{1000 * help_:.0f} ms CPU",
            "under 300 ms CPU",
        ),
        ("heavy modules that `import sfumato` loads", loaded, "neither torch nor scikit-learn nor numba"),
    ]


if __name__ == "__main__":
    for row in main():
        print(" | ".join(row))

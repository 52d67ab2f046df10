"""How long a command takes the first time, and after that: CPU seconds of whole processes, their start included.

The first time, numba has kept nothing on disk; Python's own bytecode is there, as after an installation.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from sfumato.data import datasets

ROWS = 10_000
QUASI = "age,sex,education,race,marital-status,workclass,native-country,hours-per-week"
METHODS = ("mondrian", "hilbert", "rplus", "lattice", "microaggregate", "suppress", "guided")


def main(rounds: int = 1) -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        datasets.adult().frame.head(ROWS).write_csv(folder / "adult.csv")
        rows = []
        for method in METHODS:
            roles = ("--qi", QUASI, "--sensitive", "occupation", "--target", "income", "--keep", "education-num")
            work = ("anonymize", "adult.csv", *roles, "--k", "10", "--method", method, "--force")
            _cpu(folder, *work, "-o", "bytecode.csv", cache="else")
            first = _cpu(folder, *work, "-o", "first.csv", cache=method)
            after = statistics.median(_cpu(folder, *work, "-o", f"{n}.csv", cache=method) for n in range(rounds))
            asked = "first use at most 5 CPU s, then at most 1.5"
            what = (
                f"`sfumato anonymize --method {method} --k 10`, {ROWS:,} rows of Adult, CSV to CSV, 8 quasi-identifiers"
            )
            rows.append((f"{what}: first use, then", f"{first:.1f}, {after:.1f} CPU s", asked))
        _cpu(folder, "budget", "grant", "adult", "--epsilon", "20")
        _cpu(folder, "budget", "grant", "adult.csv", "--epsilon", "20", "--delta", "1e-6")
        commands = {
            "`sfumato anonymize adult --qi age,sex,education --sensitive occupation --k 10` to a folder": (
                ("anonymize", "adult", "--qi", "age,sex,education", "--sensitive", "occupation", "--k", "10"),
                "at most 1.5 CPU s",
            ),
            '`sfumato query adult "count by sex" --epsilon 0.5`': (
                ("query", "adult", "count by sex", "--epsilon", "0.5"),
                "at most 1 CPU s",
            ),
            "the same of a CSV file of 10,000 rows, with a budget of epsilon 20 and delta 1e-6": (
                ("query", "adult.csv", "count by sex", "--domain", "sex=Female,Male", "--epsilon", "0.5"),
                "at most 1 CPU s",
            ),
            "the same after 20 others": (
                ("query", "adult.csv", "count by sex", "--domain", "sex=Female,Male", "--epsilon", "0.1"),
                "at most 1 CPU s",
            ),
            "an option that is wrong (`anonymize --k x`)": (
                ("anonymize", "adult", "--qi", "age", "--k", "x"),
                "well under 1 CPU s",
            ),
            "`sfumato anonymize --help`": (("anonymize", "--help"), ""),
        }
        for number, (what, (arguments, asked)) in enumerate(commands.items()):
            taken = []
            for _ in range(20 if "after 20" in what else 0):
                _cpu(folder, *arguments)
            for n in range(rounds):
                output = ("-o", f"out{number}-{n}") if arguments[0] == "anonymize" else ()
                taken.append(_cpu(folder, *arguments, *output, ends=2 if "x" in arguments else 0))
            rows.append((what, f"{statistics.median(taken):.2f} CPU s", asked))
        return rows


def _cpu(folder: Path, *arguments: str, cache: str = "shared", ends: int = 0) -> float:
    """Return the CPU seconds of a command, which must end with this exit code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "NUMBA_CACHE_DIR": str(folder / f"numba-{cache}"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "SFUMATO_HOME": str(folder / "home"),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "sfumato", *arguments]
    done = subprocess.run(command, capture_output=True, cwd=folder, env=environment, text=True)
    assert done.returncode == ends, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for row in main(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        print(" | ".join(row))
